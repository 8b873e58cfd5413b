//! Whose datagrams to a group a socket takes (`ip(7)`: IP_ADD_SOURCE_MEMBERSHIP and its kin,
//! RFC 3678): all but some, or some.
//!
//! The stack tells routers that the device is in the group, whatever sources are chosen: what is
//! not chosen comes, and is left out here.

use super::groups::Which;
use crate::options::int_of;
use crate::sys::{AF_INET, AF_INET6};
use abi::Result;
use abi::errno::{EADDRNOTAVAIL, EINVAL, ENOBUFS};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `net.ipv4.igmp_max_msf`, `net.ipv6.mld_max_msf`.
const MOST_V4: usize = 10;
const MOST_V6: usize = 64;

/// How the sources of a filter are meant (MCAST_EXCLUDE, MCAST_INCLUDE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Exclude = 0,
    Include = 1,
}

impl Mode {
    fn read(n: u32) -> Result<Mode> {
        match n {
            0 => Ok(Mode::Exclude),
            1 => Ok(Mode::Include),
            _ => Err(EINVAL),
        }
    }
}

/// What a change of one source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// MCAST_BLOCK_SOURCE.
    Block,
    Unblock,
    /// MCAST_JOIN_SOURCE_GROUP.
    Join,
    Leave,
}

impl Change {
    fn mode(self) -> Mode {
        match self {
            Change::Block | Change::Unblock => Mode::Exclude,
            Change::Join | Change::Leave => Mode::Include,
        }
    }

    fn adds(self) -> bool {
        matches!(self, Change::Block | Change::Join)
    }
}

/// A membership's filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Filter {
    pub mode: Mode,
    pub sources: Vec<IpAddr>,
}

/// Whether the membership goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterChange {
    Stays,
    Leaves,
}

impl Filter {
    /// Of a membership of this mode, without sources.
    pub fn empty(mode: Mode) -> Filter {
        Filter {
            mode,
            sources: Vec::new(),
        }
    }

    pub fn takes(&self, source: IpAddr) -> bool {
        self.sources.contains(&source) == (self.mode == Mode::Include)
    }

    /// Changes one source (`ip_mc_source`, `ip6_mc_source`).
    pub fn change(&mut self, what: Change, source: IpAddr) -> Result<AfterChange> {
        if self.mode != what.mode() {
            if !self.sources.is_empty() {
                return Err(EINVAL);
            }
            self.mode = what.mode();
        }
        let at = self.sources.iter().position(|s| *s == source);
        if what.adds() {
            if self.sources.len() >= most(source) {
                return Err(ENOBUFS);
            }
            if at.is_some() {
                return Err(EADDRNOTAVAIL);
            }
            self.sources.push(source);
            return Ok(AfterChange::Stays);
        }
        let at = at.ok_or(EADDRNOTAVAIL)?;
        if self.sources.len() == 1 && self.mode == Mode::Include {
            return Ok(AfterChange::Leaves);
        }
        self.sources.remove(at);
        Ok(AfterChange::Stays)
    }
}

fn most(ip: IpAddr) -> usize {
    if ip.is_ipv4() { MOST_V4 } else { MOST_V6 }
}

fn v4(v: &[u8], at: usize) -> Result<Ipv4Addr> {
    let b: [u8; 4] = v
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .ok_or(EINVAL)?;
    Ok(Ipv4Addr::from(b))
}

fn word(v: &[u8], at: usize) -> Result<u32> {
    int_of(v.get(at..).ok_or(EINVAL)?).map(|n| n as u32)
}

/// The address of a `struct sockaddr_storage` of a family.
fn address(v: &[u8], family: u16) -> Result<IpAddr> {
    if crate::addr::family_of(v)? != family {
        return Err(EADDRNOTAVAIL);
    }
    match family {
        AF_INET => v4(v, 4).map(IpAddr::V4),
        AF_INET6 => {
            let b: [u8; 16] = v.get(8..24).and_then(|b| b.try_into().ok()).ok_or(EINVAL)?;
            Ok(IpAddr::V6(Ipv6Addr::from(b)))
        }
        _ => Err(EADDRNOTAVAIL),
    }
}

/// One source of a group: `struct ip_mreq_source`.
pub(crate) fn mreq_source(v: &[u8]) -> Result<(IpAddr, Which, IpAddr)> {
    if v.len() != 12 {
        return Err(EINVAL);
    }
    let which = Which {
        device: 0,
        address: v4(v, 4)?,
    };
    Ok((v4(v, 0)?.into(), which, v4(v, 8)?.into()))
}

/// The same as `struct group_source_req`.
pub(crate) fn group_source_req(v: &[u8], family: u16) -> Result<(IpAddr, Which, IpAddr)> {
    const LEN: usize = 264;
    let v = v.get(..LEN).ok_or(EINVAL)?;
    let group = address(&v[8..136], family)?;
    let source = address(&v[136..], family)?;
    Ok((group, Which::by_index(int_of(v)?), source))
}

/// A whole filter of a group: `struct ip_msfilter`.
pub(crate) fn msfilter(v: &[u8]) -> Result<(IpAddr, Which, Filter)> {
    let count = word(v, 12)? as usize;
    if count > MOST_V4 {
        return Err(ENOBUFS);
    }
    if v.len() < 16 + 4 * count {
        return Err(EINVAL);
    }
    let which = Which {
        device: 0,
        address: v4(v, 4)?,
    };
    let mode = Mode::read(word(v, 8)?)?;
    let sources = (0..count).map(|i| v4(v, 16 + 4 * i).map(IpAddr::V4));
    let sources = sources.collect::<Result<_>>()?;
    Ok((v4(v, 0)?.into(), which, Filter { mode, sources }))
}

/// The same as `struct group_filter`.
pub(crate) fn group_filter(v: &[u8], family: u16) -> Result<(IpAddr, Which, Filter)> {
    const HEAD: usize = 144;
    const EACH: usize = 128;
    let count = word(v, 140)? as usize;
    let most = if family == AF_INET { MOST_V4 } else { MOST_V6 };
    if count > most {
        return Err(ENOBUFS);
    }
    if v.len() < HEAD + EACH * count {
        return Err(EINVAL);
    }
    let mode = Mode::read(word(v, 136)?)?;
    let group = address(&v[8..136], family)?;
    let sources = (0..count).map(|i| address(&v[HEAD + EACH * i..], family));
    let sources = sources.collect::<Result<_>>()?;
    Ok((group, Which::by_index(int_of(v)?), Filter { mode, sources }))
}

/// Whose filter is asked for by a `struct ip_msfilter`.
pub(crate) fn asked_msfilter(v: &[u8]) -> Result<(IpAddr, Which)> {
    let which = Which {
        device: 0,
        address: v4(v, 4)?,
    };
    word(v, 12)?;
    Ok((v4(v, 0)?.into(), which))
}

/// The same by a `struct group_filter`.
pub(crate) fn asked_group_filter(v: &[u8], family: u16) -> Result<(IpAddr, Which)> {
    word(v, 140)?;
    Ok((address(&v[8..136], family)?, Which::by_index(int_of(v)?)))
}

/// The answer: how many sources there are, and as many as were asked for.
pub(crate) fn told_msfilter(v: &[u8], f: &Filter) -> Vec<u8> {
    let mut out = v[..8].to_vec();
    out.extend_from_slice(&(f.mode as u32).to_le_bytes());
    out.extend_from_slice(&(f.sources.len() as u32).to_le_bytes());
    let most = word(v, 12).unwrap_or(0) as usize;
    for s in f.sources.iter().take(most) {
        if let IpAddr::V4(a) = s {
            out.extend_from_slice(&a.octets());
        }
    }
    out
}

/// The same as a `struct group_filter`.
pub(crate) fn told_group_filter(v: &[u8], f: &Filter) -> Vec<u8> {
    const EACH: usize = 128;
    let mut out = v[..136].to_vec();
    out.extend_from_slice(&(f.mode as u32).to_le_bytes());
    out.extend_from_slice(&(f.sources.len() as u32).to_le_bytes());
    let most = word(v, 140).unwrap_or(0) as usize;
    for s in f.sources.iter().take(most) {
        let family = if s.is_ipv4() { AF_INET } else { AF_INET6 };
        let mut one = crate::addr::Endpoint::new(*s, 0).encode(family);
        one.resize(EACH, 0);
        out.extend_from_slice(&one);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn sources_are_chosen_or_left_out() {
        let mut f = Filter::empty(Mode::Exclude);
        assert!(f.takes(A));
        assert_eq!(f.change(Change::Unblock, A), Err(EADDRNOTAVAIL));
        assert_eq!(f.change(Change::Block, A), Ok(AfterChange::Stays));
        assert_eq!(f.change(Change::Block, A), Err(EADDRNOTAVAIL));
        assert_eq!(f.change(Change::Join, B), Err(EINVAL));
        assert!(!f.takes(A) && f.takes(B));
        assert_eq!(f.change(Change::Unblock, A), Ok(AfterChange::Stays));
        // Without sources the mode may change.
        assert_eq!(f.change(Change::Join, B), Ok(AfterChange::Stays));
        assert!(!f.takes(A) && f.takes(B));
        assert_eq!(f.change(Change::Leave, B), Ok(AfterChange::Leaves));
    }

    #[test]
    fn filters_are_bounded() {
        let mut v = vec![0; 16];
        v[..4].copy_from_slice(&[224, 0, 0, 9]);
        v[12] = 11;
        assert_eq!(msfilter(&v).err(), Some(ENOBUFS));
        v[12] = 1;
        assert_eq!(msfilter(&v).err(), Some(EINVAL));
        v.extend_from_slice(&[10, 0, 0, 1]);
        assert_eq!(msfilter(&v).map(|f| f.2.sources), Ok(vec![A]));
        assert_eq!(group_source_req(&[0; 263], AF_INET).err(), Some(EINVAL));
    }
}
