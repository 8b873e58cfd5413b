//! Which matches and targets there are, and where each may be, as Linux registers them
//! (`struct xt_match`, `struct xt_target`; `include/linux/netfilter/x_tables.h`).

use super::Role;
use crate::packet::{Hook, ICMP, ICMPV6, TCP, UDP, Version};
use abi::Result;
use abi::errno::{EINVAL, ENOENT, EPROTONOSUPPORT, EPROTOTYPE};

/// Of which family's rules it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    /// Registered once for all (`NFPROTO_UNSPEC`).
    Any,
    /// Registered for each.
    Both,
    V4,
    V6,
}

impl Of {
    fn has(self, version: Version) -> bool {
        match self {
            Of::Any | Of::Both => true,
            Of::V4 => version == Version::V4,
            Of::V6 => version == Version::V6,
        }
    }
}

/// A match or a target in one revision.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub name: &'static str,
    pub revision: u8,
    of: Of,
    /// Bytes of its structure.
    pub size: u16,
    /// How many of them programs are told again (`usersize`); the rest is the kernel's.
    pub told: u16,
    /// The only table that it may be in.
    table: Option<&'static str>,
    /// The hooks that it may be reached by, a bit for each.
    hooks: u8,
    /// The only protocol of its rules.
    protocol: Option<u8>,
}

/// What is known of a rule that something is to be in.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub table: &'a str,
    pub hooks: u8,
    pub protocol: u8,
    pub inverted: bool,
}

const fn row(name: &'static str, revision: u8, of: Of, size: u16) -> Known {
    Known {
        name,
        revision,
        of,
        size,
        told: size,
        table: None,
        hooks: 0x1f,
        protocol: None,
    }
}

impl Known {
    const fn told(self, told: u16) -> Known {
        Known { told, ..self }
    }

    const fn table(self, table: &'static str) -> Known {
        Known {
            table: Some(table),
            ..self
        }
    }

    const fn hooks(self, all: &[Hook]) -> Known {
        let (mut hooks, mut n) = (0, 0);
        while n < all.len() {
            hooks |= 1 << all[n] as u8;
            n += 1;
        }
        Known { hooks, ..self }
    }

    const fn protocol(self, protocol: u8) -> Known {
        Known {
            protocol: Some(protocol),
            ..self
        }
    }

    /// Whether a structure has this length, as rules align it.
    #[must_use]
    pub fn fits(&self, len: usize) -> bool {
        usize::from(self.size).next_multiple_of(8) == len.next_multiple_of(8)
    }

    /// Whether it may be in such a rule (`xt_check_match`, `xt_check_target`).
    ///
    /// # Errors
    ///
    /// `EINVAL` if not.
    pub fn check(&self, at: &Place<'_>) -> Result<()> {
        let table = self.table.is_none_or(|t| t == at.table);
        let protocol = self
            .protocol
            .is_none_or(|p| p == at.protocol && !at.inverted);
        if table && protocol && at.hooks & !self.hooks == 0 {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }
}

use Hook::{Forward, Input, Output, Postrouting, Prerouting};

const MATCHES: [Known; 26] = [
    row("statistic", 0, Of::Any, 24).told(16),
    row("quota", 0, Of::Any, 24).told(16),
    row("hl", 0, Of::V6, 2),
    row("ttl", 0, Of::V4, 2),
    row("tos", 1, Of::Both, 3),
    row("dscp", 0, Of::Both, 2),
    row("tcpmss", 0, Of::Both, 6).protocol(TCP),
    row("state", 0, Of::Any, 4),
    row("pkttype", 0, Of::Any, 8),
    row("limit", 0, Of::Any, 40).told(8),
    row("conntrack", 3, Of::Any, 164),
    row("conntrack", 2, Of::Any, 156),
    row("conntrack", 1, Of::Any, 152),
    row("comment", 0, Of::Any, 256),
    row("connmark", 1, Of::Any, 12),
    row("mark", 1, Of::Any, 12),
    row("owner", 1, Of::Both, 20).hooks(&[Output, Postrouting]),
    row("multiport", 1, Of::Both, 48),
    row("length", 0, Of::Both, 6),
    row("iprange", 1, Of::Both, 68),
    row("addrtype", 1, Of::Both, 8),
    row("addrtype", 0, Of::V4, 12),
    row("icmp", 0, Of::V4, 4).protocol(ICMP),
    row("icmp6", 0, Of::V6, 4).protocol(ICMPV6),
    row("udp", 0, Of::Both, 10).protocol(UDP),
    row("tcp", 0, Of::Both, 12).protocol(TCP),
];

const DESTINATION: [Hook; 2] = [Prerouting, Output];
const SOURCE: [Hook; 2] = [Postrouting, Input];

const TARGETS: [Known; 22] = [
    row("DNAT", 2, Of::Any, 44).table("nat").hooks(&DESTINATION),
    row("SNAT", 2, Of::Any, 44).table("nat").hooks(&SOURCE),
    row("DNAT", 1, Of::Any, 40).table("nat").hooks(&DESTINATION),
    row("SNAT", 1, Of::Any, 40).table("nat").hooks(&SOURCE),
    row("REJECT", 0, Of::Both, 4)
        .table("filter")
        .hooks(&[Input, Forward, Output]),
    row("MASQUERADE", 0, Of::V4, 20)
        .table("nat")
        .hooks(&[Postrouting]),
    row("MASQUERADE", 0, Of::V6, 40)
        .table("nat")
        .hooks(&[Postrouting]),
    row("REDIRECT", 0, Of::V4, 20)
        .table("nat")
        .hooks(&DESTINATION),
    row("REDIRECT", 0, Of::V6, 40)
        .table("nat")
        .hooks(&DESTINATION),
    row("TCPMSS", 0, Of::Both, 2).protocol(TCP),
    row("NFLOG", 0, Of::Both, 76),
    row("LOG", 0, Of::Both, 32),
    row("CT", 2, Of::Both, 72).told(64).table("raw"),
    row("CT", 1, Of::Both, 72).told(64).table("raw"),
    row("CT", 0, Of::Both, 40).told(32).table("raw"),
    row("NOTRACK", 0, Of::Both, 0).table("raw"),
    row("DNAT", 0, Of::V4, 20).table("nat").hooks(&DESTINATION),
    row("SNAT", 0, Of::V4, 20).table("nat").hooks(&SOURCE),
    row("CONNMARK", 1, Of::Both, 16),
    row("MARK", 2, Of::Both, 8),
    // Of the old tables alone: a verdict, and what begins a chain.
    row("", 0, Of::Both, 4),
    row("ERROR", 0, Of::Both, 30),
];

/// All of a kind for a family, in the order in which Linux tells of them.
pub fn all(version: Version, role: Role) -> impl Iterator<Item = &'static Known> {
    let all: &[Known] = match role {
        Role::Match => &MATCHES,
        Role::Target => &TARGETS,
    };
    all.iter().filter(move |k| k.of.has(version))
}

/// One of them (`xt_find_match`, `xt_find_target`).
///
/// # Errors
///
/// `ENOENT`: there is none of this name; `EPROTOTYPE`: not of this revision.
pub fn find(name: &str, revision: u32, version: Version, role: Role) -> Result<&'static Known> {
    let named = || all(version, role).filter(|k| k.name == name);
    let found = named().find(|k| u32::from(k.revision) == revision);
    let general = named().any(|k| k.of == Of::Any);
    found.ok_or(if general { EPROTOTYPE } else { ENOENT })
}

/// Whether there is one of this revision (`xt_find_revision`).
///
/// # Errors
///
/// `ENOENT`: there is none of this name; `EPROTONOSUPPORT`: not of this revision.
pub fn has_revision(name: &str, revision: u32, version: Version, role: Role) -> Result<()> {
    let is_named = all(version, role).any(|k| k.name == name);
    let missing = if is_named { EPROTONOSUPPORT } else { ENOENT };
    let found = find(name, revision, version, role);
    found.map(drop).map_err(|_| missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Role::{Match, Target};
    use Version::{V4, V6};

    #[test]
    fn what_is_missing_is_told_apart() {
        assert_eq!(has_revision("conntrack", 3, V4, Match), Ok(()));
        let none = Err(EPROTONOSUPPORT);
        assert_eq!(has_revision("conntrack", 4, V4, Match), none);
        assert_eq!(has_revision("addrtype", 0, V6, Match), none);
        assert_eq!(has_revision("icmp", 0, V6, Match), Err(ENOENT));
        assert_eq!(has_revision("tcp", 0, V4, Target), Err(ENOENT));
        assert_eq!(find("mark", 7, V4, Match).err(), Some(EPROTOTYPE));
        assert_eq!(find("tcp", 7, V4, Match).err(), Some(ENOENT));
    }

    #[test]
    fn some_may_be_in_one_place_only() {
        let place = Place {
            table: "nat",
            hooks: 1 << Postrouting as u8,
            protocol: TCP,
            inverted: false,
        };
        let masquerade = find("MASQUERADE", 0, V4, Target).unwrap();
        assert!(masquerade.fits(24) && !masquerade.fits(16) && !masquerade.fits(40));
        assert_eq!(masquerade.check(&place), Ok(()));
        let filter = Place {
            table: "filter",
            ..place
        };
        assert_eq!(masquerade.check(&filter), Err(EINVAL));
        let output = Place { hooks: 8, ..place };
        assert_eq!(masquerade.check(&output), Err(EINVAL));
        let tcp = find("tcp", 0, V4, Match).unwrap();
        let not = Place {
            inverted: true,
            ..place
        };
        assert_eq!((tcp.check(&place), tcp.check(&not)), (Ok(()), Err(EINVAL)));
    }
}
