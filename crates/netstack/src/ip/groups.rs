//! The multicast groups of a link, and when routers are told of them (RFC 2236, RFC 3376,
//! RFC 2710, RFC 3810), as a machine of queries and time.
//!
//! A group that is joined is reported twice, as one that is left. A query is answered after a
//! random part of the time that it gives. A router that speaks an older version is spoken to in
//! it, until it has not been heard of for [`OLD_ROUTER`].

use super::keyed::Keyed;
use super::wire::{Mac, group_mac};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// 224.0.0.1 and ff02::1: everybody is in them, and nobody says so.
pub(crate) const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The most groups of a link.
pub(crate) const MOST: usize = 1024;
/// Robustness: how often a change is told.
const TIMES: u8 = 2;
/// Between the two: a random part of it (RFC 3376 8.11).
const AGAIN: Duration = Duration::from_secs(1);
/// RFC 3376 8.12: two queries' intervals and an answer's.
const OLD_ROUTER: Duration = Duration::from_secs(260);

/// What is told of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum News {
    /// An answer.
    Member,
    Joined,
    Left,
}

/// In which version a router is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Version {
    /// IGMPv1.
    One,
    /// IGMPv2, MLDv1.
    Two,
    /// IGMPv3, MLDv2.
    Three,
}

#[derive(Clone, Copy)]
struct Member {
    /// How often it was joined; 0: it has been left, and that is still to be told.
    count: usize,
    news: News,
    times: u8,
    due: Option<Instant>,
}

pub(crate) struct Groups {
    members: BTreeMap<IpAddr, Member>,
    /// Until when older routers are there, of IPv4 and of IPv6.
    old: [Option<(Version, Instant)>; 2],
    key: Keyed,
}

impl Groups {
    pub(crate) fn new(key: Keyed) -> Groups {
        Groups {
            members: BTreeMap::new(),
            old: [None; 2],
            key,
        }
    }

    /// Joins a group; tells whether there was room. The report is due at once.
    pub(crate) fn join(&mut self, now: Instant, group: IpAddr) -> bool {
        if let Some(m) = self.members.get_mut(&group)
            && m.count > 0
        {
            m.count += 1;
            return true;
        }
        if self.members.len() >= MOST {
            return false;
        }
        self.tell(now, group, 1, News::Joined);
        true
    }

    pub(crate) fn leave(&mut self, now: Instant, group: IpAddr) {
        let Some(m) = self.members.get_mut(&group) else {
            return;
        };
        m.count = m.count.saturating_sub(1);
        if m.count > 0 || m.news == News::Left {
            return;
        }
        if is_told(group) {
            self.tell(now, group, 0, News::Left);
        } else {
            self.members.remove(&group);
        }
    }

    fn tell(&mut self, now: Instant, group: IpAddr, count: usize, news: News) {
        let (times, due) = if is_told(group) {
            (TIMES, Some(now))
        } else {
            (0, None)
        };
        let member = Member {
            count,
            news,
            times,
            due,
        };
        self.members.insert(group, member);
    }

    pub(crate) fn has(&self, group: IpAddr) -> bool {
        is_everybody(group) || self.members.get(&group).is_some_and(|m| m.count > 0)
    }

    /// Whether a group has this Ethernet address.
    pub(crate) fn has_mac(&self, mac: Mac) -> bool {
        let members = self.members.iter().filter(|(_, m)| m.count > 0);
        [IpAddr::V4(ALL_HOSTS), IpAddr::V6(ALL_NODES)]
            .into_iter()
            .chain(members.map(|(group, _)| *group))
            .any(|g| group_mac(g) == mac)
    }

    /// A router asks: for a group, or for all of its family (`group` is unspecified).
    pub(crate) fn query(&mut self, now: Instant, group: IpAddr, version: Version, max: Duration) {
        let family = usize::from(group.is_ipv6());
        if version < Version::Three {
            self.old[family] = Some((version, now + OLD_ROUTER));
        }
        let max = if max.is_zero() {
            Duration::from_secs(10)
        } else {
            max
        };
        for (g, m) in &mut self.members {
            let asked = g.is_ipv4() == group.is_ipv4() && (group.is_unspecified() || *g == group);
            if !asked || m.count == 0 || !is_told(*g) {
                continue;
            }
            let part = (self.key.hash((now, *g)) % 1000) as u32;
            let due = now + max * part / 1000;
            if m.due.is_none_or(|d| d > due) {
                m.due = Some(due);
            }
            if m.times == 0 {
                (m.news, m.times) = (News::Member, 1);
            }
        }
    }

    /// Another host has answered for the group: an older router needs no second answer.
    pub(crate) fn answered(&mut self, now: Instant, group: IpAddr) {
        if self.version(now, group) < Version::Three
            && let Some(m) = self.members.get_mut(&group)
            && m.news == News::Member
        {
            (m.due, m.times) = (None, 0);
        }
    }

    /// In which version the routers of this family are spoken to.
    pub(crate) fn version(&self, now: Instant, family: IpAddr) -> Version {
        match self.old[usize::from(family.is_ipv6())] {
            Some((version, until)) if now < until => version,
            _ => Version::Three,
        }
    }

    /// What is to be told now; and when next.
    pub(crate) fn timer(&mut self, now: Instant) -> (Vec<(IpAddr, News)>, Option<Instant>) {
        let mut news = Vec::new();
        let key = self.key;
        self.members.retain(|group, m| {
            if m.due.is_some_and(|due| due <= now) {
                news.push((*group, m.news));
                m.times = m.times.saturating_sub(1);
                let part = (key.hash((now, *group)) % 1000) as u32;
                m.due = (m.times > 0).then(|| now + AGAIN * part / 1000);
            }
            m.count > 0 || m.due.is_some()
        });
        (news, self.due())
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.members.values().filter_map(|m| m.due).min()
    }
}

fn is_everybody(group: IpAddr) -> bool {
    group == IpAddr::V4(ALL_HOSTS) || group == IpAddr::V6(ALL_NODES)
}

/// Whether routers are told of a group at all (RFC 3376 6, RFC 3810 6).
fn is_told(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(_) => !is_everybody(group),
        IpAddr::V6(g) => !is_everybody(group) && g.octets()[1] & 15 > 1,
    }
}
