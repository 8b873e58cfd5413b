//! The multicast groups of a link.

use super::wire::{Mac, group_mac};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// 224.0.0.1 and ff02::1: everybody is in them.
pub(crate) const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

#[derive(Default)]
pub(crate) struct Groups {
    /// How often each was joined.
    joined: BTreeMap<IpAddr, usize>,
}

impl Groups {
    pub(crate) fn join(&mut self, group: IpAddr) {
        *self.joined.entry(group).or_default() += 1;
    }

    pub(crate) fn leave(&mut self, group: IpAddr) {
        if let Some(n) = self.joined.get_mut(&group) {
            *n -= 1;
            if *n == 0 {
                self.joined.remove(&group);
            }
        }
    }

    pub(crate) fn has(&self, group: IpAddr) -> bool {
        is_everybody(group) || self.joined.contains_key(&group)
    }

    /// Whether a group has this Ethernet address.
    pub(crate) fn has_mac(&self, mac: Mac) -> bool {
        [IpAddr::V4(ALL_HOSTS), IpAddr::V6(ALL_NODES)]
            .iter()
            .chain(self.joined.keys())
            .any(|g| group_mac(*g) == mac)
    }
}

fn is_everybody(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(g) => g == ALL_HOSTS,
        IpAddr::V6(g) => g == ALL_NODES,
    }
}
