//! The multicast groups that the devices of a namespace are in, because sockets are.
//!
//! Its lock is held while others are told of a group's first member and of its last, so that they
//! hear of both in order.

use abi::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A device and a group, with the number of sockets in it.
#[derive(Default)]
pub(crate) struct DeviceGroups(Mutex<HashMap<(i32, IpAddr), usize>>);

impl DeviceGroups {
    /// One more socket is in it; `first`, where it is the first, may refuse.
    pub fn join(
        &self,
        device: i32,
        group: IpAddr,
        first: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut all = self.0.lock();
        let count = all.entry((device, group)).or_insert(0);
        if *count == 0
            && let Err(e) = first()
        {
            all.remove(&(device, group));
            return Err(e);
        }
        *count += 1;
        Ok(())
    }

    /// One less; `last`, where it was the last.
    pub fn leave(&self, device: i32, group: IpAddr, last: impl FnOnce()) {
        let mut all = self.0.lock();
        let Some(count) = all.get_mut(&(device, group)) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        all.remove(&(device, group));
        last();
    }

    /// Whether a device is in a group.
    pub fn has(&self, device: i32, group: IpAddr) -> bool {
        is_everybody(group) || self.0.lock().contains_key(&(device, group))
    }

    /// All, with the number of their sockets, in order.
    pub fn all(&self) -> Vec<(i32, IpAddr, usize)> {
        let all = self.0.lock();
        let mut list: Vec<_> = all.iter().map(|((d, g), n)| (*d, *g, *n)).collect();
        list.sort_unstable();
        list
    }
}

/// Groups that everybody is in: all hosts, all nodes of the link and of the device.
fn is_everybody(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(g) => g == Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(g) => {
            g == Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1)
                || g == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
        }
    }
}
