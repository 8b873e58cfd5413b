//! The matches and targets of iptables (`xt_*`, `ipt_*`), by the structures that its programs send.
//!
//! ```text
//! known     which there are, of which length, and where each may be
//! matches   tcp, udp, icmp, conntrack, addrtype, multiport, owner, mark, limit, ttl, ...
//! targets   MASQUERADE, SNAT, DNAT, REDIRECT, REJECT, LOG, MARK, CONNMARK, CT, TCPMSS
//! ```

mod known;
mod matches;
mod targets;

pub use known::{Known, Place, all, find, has_revision};
pub use matches::Match;
pub use targets::Target;
pub(crate) use targets::check_mss;

use crate::expr::{Run, Scope, Step};
use crate::packet::Version;
use crate::validate::Places;
use abi::Result;
use abi::errno::EINVAL;

/// `NFT_RULE_COMPAT_F_INV`: a rule is about all protocols but one.
pub const INVERTED: u32 = 2;
/// The longest structure.
const LONGEST: usize = 512;

/// Which of the two something of iptables is in a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Match,
    Target,
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
/// Those of [`find`]; `EINVAL` for what cannot be.
pub fn read(scope: &Scope<'_>, name: &str, revision: u32, info: &[u8], role: Role) -> Result<What> {
    if info.len() > LONGEST {
        return Err(EINVAL);
    }
    if !find(name, revision, scope.family.version(), role)?.fits(info.len()) {
        return Err(EINVAL);
    }
    let b = Bytes(info);
    Ok(match role {
        Role::Match => What::Match(Match::read(scope, name, revision, b)?),
        Role::Target => What::Target(Target::read(scope, name, revision, b)?),
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
    /// An address of a version (`union nf_inet_addr`).
    pub fn ip(&self, at: usize, version: Version) -> Result<std::net::IpAddr> {
        Ok(match version {
            Version::V4 => self.array::<4>(at)?.into(),
            Version::V6 => self.array::<16>(at)?.into(),
        })
    }
}

/// Refuses a rule that is not about one of these protocols, where it is known which it is about.
pub(crate) fn needs_protocol(scope: &Scope<'_>, all: &[u8]) -> Result<()> {
    let Some((protocol, flags)) = scope.compat else {
        return Ok(());
    };
    let is = all.iter().any(|p| u32::from(*p) == protocol);
    if is && flags & INVERTED == 0 {
        Ok(())
    } else {
        Err(EINVAL)
    }
}
