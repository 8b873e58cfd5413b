//! Multicast groups: which a socket is in (`ip(7)`, `ipv6(7)`).
//!
//! # What holds
//!
//! - A socket is in a group of a device once at most, and leaves all when it closes.
//! - A device is in a group as long as a socket is ([`DeviceGroups`]): the stack tells routers of
//!   the first and of the last.
//!
//! Lock order: [`Memberships`] → [`DeviceGroups`] → the stack's own.
//!
//! [`DeviceGroups`]: crate::groups::DeviceGroups

use super::sources::{AfterChange, Change, Filter, Mode};
use crate::interface::LO_INDEX;
use crate::ns::NetNamespace;
use abi::Result;
use abi::errno::{EADDRINUSE, EADDRNOTAVAIL, EINVAL, ENOBUFS, ENODEV, ENOMEM};
use netstack::ip::SendError;
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr};

/// `net.ipv4.igmp_max_memberships`.
const MOST_V4: usize = 20;
/// What `net.core.optmem_max` leaves room for, about.
const MOST_V6: usize = 1024;

/// Which device a program means: by its index, by an address of it, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Which {
    /// 0: not said.
    pub device: i32,
    /// IPv4 only; unspecified: not said.
    pub address: Ipv4Addr,
}

impl Which {
    pub fn by_index(device: i32) -> Which {
        Which {
            device,
            address: Ipv4Addr::UNSPECIFIED,
        }
    }
}

struct Member {
    group: IpAddr,
    device: i32,
    address: Ipv4Addr,
    filter: Filter,
}

/// The groups of a socket.
#[derive(Default)]
pub(crate) struct Memberships(Mutex<Vec<Member>>);

impl Memberships {
    pub fn join(&self, ns: &NetNamespace, group: IpAddr, which: Which, mode: Mode) -> Result<()> {
        if !group.is_multicast() {
            return Err(EINVAL);
        }
        let mut all = self.0.lock();
        let known = |m: &Member, device: i32| m.group == group && m.device == device;
        if group.is_ipv6() && which.device == 0 && all.iter().any(|m| m.group == group) {
            return Err(EADDRINUSE);
        }
        let device = find_device(ns, group, which);
        let (most, full) = match group {
            IpAddr::V4(_) => (MOST_V4, ENOBUFS),
            IpAddr::V6(_) => (MOST_V6, ENOMEM),
        };
        let same = |m: &&Member| m.group.is_ipv4() == group.is_ipv4();
        let device = device.ok_or(ENODEV)?;
        if all.iter().any(|m| known(m, device)) {
            return Err(EADDRINUSE);
        }
        if all.iter().filter(same).count() >= most {
            return Err(full);
        }
        join_device(ns, device, group)?;
        all.push(Member {
            group,
            device,
            address: which.address,
            filter: Filter::empty(mode),
        });
        Ok(())
    }

    /// Changes one source of a group; a source that is chosen joins (`do_mcast_group_source`).
    pub fn change_source(
        &self,
        ns: &NetNamespace,
        (group, which): (IpAddr, Which),
        what: Change,
        source: IpAddr,
    ) -> Result<()> {
        if what == Change::Join {
            match self.join(ns, group, which, Mode::Include) {
                Ok(()) | Err(EADDRINUSE) => {}
                Err(e) => return Err(e),
            }
        }
        let then = {
            let mut all = self.0.lock();
            let m = find(&mut all, ns, group, which)?;
            m.filter.change(what, source)?
        };
        match then {
            AfterChange::Stays => Ok(()),
            AfterChange::Leaves => self.leave(ns, group, which),
        }
    }

    /// Sets the whole filter of a group; none of its sources chosen is leaving it.
    pub fn set_filter(
        &self,
        ns: &NetNamespace,
        (group, which): (IpAddr, Which),
        new: Filter,
    ) -> Result<()> {
        if new == Filter::empty(Mode::Include) {
            return self.leave(ns, group, which);
        }
        find(&mut self.0.lock(), ns, group, which)?.filter = new;
        Ok(())
    }

    /// The filter of a group. `EADDRNOTAVAIL` where it is in none.
    pub fn filter(&self, ns: &NetNamespace, group: IpAddr, which: Which) -> Result<Filter> {
        let mut all = self.0.lock();
        match find(&mut all, ns, group, which) {
            Ok(m) => Ok(m.filter.clone()),
            Err(EINVAL) if group.is_multicast() => Err(EADDRNOTAVAIL),
            Err(e) => Err(e),
        }
    }

    pub fn leave(&self, ns: &NetNamespace, group: IpAddr, which: Which) -> Result<()> {
        if group.is_ipv6() && !group.is_multicast() {
            return Err(EINVAL);
        }
        let found = match group {
            IpAddr::V4(_) => find_device(ns, group, which),
            IpAddr::V6(_) => Some(which.device),
        };
        if found.is_none() && which.device == 0 && which.address.is_unspecified() {
            return Err(ENODEV);
        }
        let device = found.unwrap_or(which.device);
        let mut all = self.0.lock();
        let place = all.iter().position(|m| {
            let by_address = which.address.is_unspecified() || which.address == m.address;
            m.group == group
                && if device == 0 {
                    by_address
                } else {
                    m.device == device
                }
        });
        let m = all.remove(place.ok_or(EADDRNOTAVAIL)?);
        leave_device(ns, m.device, m.group);
        Ok(())
    }

    pub fn leave_all(&self, ns: &NetNamespace) {
        for m in std::mem::take(&mut *self.0.lock()) {
            leave_device(ns, m.device, m.group);
        }
    }

    /// Whether it takes what came by a device from `source` for a group. `others`: also of groups
    /// that only other sockets are in (IP_MULTICAST_ALL).
    pub fn take(
        &self,
        source: IpAddr,
        (group, device): (IpAddr, i32),
        others: impl FnOnce() -> bool,
    ) -> bool {
        let all = self.0.lock();
        // IPv6 does not look at the device (`inet6_mc_check`).
        let mine = |m: &&Member| m.group == group && (group.is_ipv6() || m.device == device);
        match all.iter().find(mine) {
            Some(m) => m.filter.takes(source),
            None => others(),
        }
    }
}

/// The membership that is meant. `EINVAL` where there is none.
fn find<'a>(
    all: &'a mut [Member],
    ns: &NetNamespace,
    group: IpAddr,
    which: Which,
) -> Result<&'a mut Member> {
    if !group.is_multicast() {
        return Err(EINVAL);
    }
    let device = find_device(ns, group, which).ok_or(ENODEV)?;
    let found = all
        .iter_mut()
        .find(|m| m.group == group && m.device == device);
    found.ok_or(EINVAL)
}

/// The device that is meant (`ip_mc_find_dev`, `ipv6_sock_mc_join`).
pub(crate) fn find_device(ns: &NetNamespace, group: IpAddr, which: Which) -> Option<i32> {
    if which.device != 0 {
        return Some(which.device).filter(|i| ns.has_device(*i));
    }
    if !which.address.is_unspecified() {
        return ns.device_of(IpAddr::V4(which.address));
    }
    let path = ns.stack()?.ip.path(group, None, None).ok()?;
    i32::try_from(path.index).ok()
}

/// A socket is in the group: the stack tells routers of the first.
fn join_device(ns: &NetNamespace, device: i32, group: IpAddr) -> Result<()> {
    ns.groups.join(device, group, || match ns.stack() {
        Some(s) if device != LO_INDEX => s.join(device as u32, group).map_err(|e| match e {
            SendError::Device => ENODEV,
            e => e.errno(),
        }),
        _ => Ok(()),
    })
}

/// It is in it no longer: and of the last.
fn leave_device(ns: &NetNamespace, device: i32, group: IpAddr) {
    ns.groups.leave(device, group, || {
        if device != LO_INDEX
            && let Some(s) = ns.stack()
        {
            s.leave(device as u32, group);
        }
    });
}
