//! The matches and targets of iptables (`xt_*`, `ipt_*`), by the structures that its programs send.
//!
//! ```text
//! matches   tcp, udp, icmp, conntrack, addrtype, multiport, owner, mark, limit, ...
//! targets   MASQUERADE, SNAT, DNAT, REDIRECT, REJECT, LOG, MARK, CONNMARK, CT
//! ```

mod matches;
mod targets;

pub use matches::Match;
pub use targets::Target;

use crate::expr::{Run, Scope, Step};
use crate::table::Family;
use crate::validate::Places;
use abi::Result;
use abi::errno::{EINVAL, ENOENT};

/// The longest structure.
const LONGEST: usize = 512;
/// Of which matches and targets there is which highest revision, and the lowest.
const MATCHES: [(&str, u32, u32); 17] = [
    ("tcp", 0, 0),
    ("udp", 0, 0),
    ("icmp", 0, 0),
    ("icmp6", 0, 0),
    ("conntrack", 1, 3),
    ("state", 0, 0),
    ("addrtype", 0, 1),
    ("comment", 0, 0),
    ("multiport", 1, 1),
    ("owner", 1, 1),
    ("mark", 1, 1),
    ("connmark", 1, 1),
    ("limit", 0, 0),
    ("pkttype", 0, 0),
    ("iprange", 1, 1),
    ("statistic", 0, 0),
    ("length", 0, 0),
];
const TARGETS: [(&str, u32, u32); 11] = [
    ("MASQUERADE", 0, 0),
    ("SNAT", 0, 1),
    ("DNAT", 0, 2),
    ("REDIRECT", 0, 0),
    ("REJECT", 0, 0),
    ("LOG", 0, 0),
    ("NFLOG", 0, 0),
    ("MARK", 2, 2),
    ("CONNMARK", 1, 1),
    ("CT", 0, 2),
    ("NOTRACK", 0, 0),
];

/// The revisions of a match or target that there are.
#[must_use]
pub fn revisions(name: &str, is_target: bool) -> Option<std::ops::RangeInclusive<u32>> {
    let all: &[(&str, u32, u32)] = if is_target { &TARGETS } else { &MATCHES };
    let found = all.iter().find(|(n, ..)| *n == name);
    found.map(|(_, first, last)| *first..=*last)
}

/// What is done, of either kind.
pub enum What {
    Match(Match),
    Target(Target),
}

impl What {
    #[must_use]
    pub fn tracks(&self) -> bool {
        match self {
            What::Match(m) => m.tracks(),
            What::Target(t) => t.tracks(),
        }
    }

    /// Where it may be.
    pub(crate) fn places(&self) -> Places {
        match self {
            What::Match(_) => Places::MAX,
            What::Target(t) => t.places(),
        }
    }
}

/// Reads a structure.
///
/// # Errors
///
/// `ENOENT` for what is not known here, `EINVAL` for what cannot be.
pub fn read(
    scope: &Scope<'_>,
    name: &str,
    revision: u32,
    info: &[u8],
    is_target: bool,
) -> Result<What> {
    if info.len() > LONGEST {
        return Err(EINVAL);
    }
    if !revisions(name, is_target).is_some_and(|r| r.contains(&revision)) {
        return Err(ENOENT);
    }
    let b = Bytes(info);
    Ok(if is_target {
        What::Target(Target::read(scope, name, revision, b)?)
    } else {
        What::Match(Match::read(scope, name, revision, b)?)
    })
}

#[must_use]
pub fn matches(what: &What, r: &mut Run<'_, '_>) -> bool {
    match what {
        What::Match(m) => m.matches(r),
        What::Target(_) => false,
    }
}

#[must_use]
pub fn act(what: &What, r: &mut Run<'_, '_>) -> Step {
    match what {
        What::Target(t) => t.act(r),
        What::Match(_) => Step::Break,
    }
}

/// A structure of the machine's byte order; too short a one is `EINVAL`.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn array<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let b = self.0.get(at..).and_then(|b| b.first_chunk());
        b.copied().ok_or(EINVAL)
    }
    pub fn byte(&self, at: usize) -> Result<u8> {
        self.array(at).map(|[b]: [u8; 1]| b)
    }
    pub fn u16(&self, at: usize) -> Result<u16> {
        self.array(at).map(u16::from_ne_bytes)
    }
    pub fn be16(&self, at: usize) -> Result<u16> {
        self.array(at).map(u16::from_be_bytes)
    }
    pub fn u32(&self, at: usize) -> Result<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }
    /// An address of a family (`union nf_inet_addr`).
    pub fn ip(&self, at: usize, is_v4: bool) -> Result<std::net::IpAddr> {
        Ok(if is_v4 {
            self.array::<4>(at)?.into()
        } else {
            self.array::<16>(at)?.into()
        })
    }
}

/// Whether rules of a family are about IPv4's packets.
pub(crate) fn is_v4(scope: &Scope<'_>) -> bool {
    scope.family != Family::V6
}
