//! Settings of devices (`net.ipv4.conf`; `net/ipv4/devinet.c`): those of each, those that new ones
//! begin with (`default`), and what counts beside each one's own (`all`).

use super::table::Table;
use crate::ns::NetNamespace;
use abi::Result;
use abi::errno::ENOENT;
use netstack::setup::{Conf, ReversePath};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whose a setting is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfOf {
    All,
    Default,
    /// A device's, by its index.
    Device(i32),
}

/// What is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Whether packets for others that come by it are sent on. For all: each one's, too.
    Forwarding,
    /// Whether packets must come by the device that leads to their source; the stricter one of all
    /// and the device's own.
    ReversePath,
}

#[derive(Clone, Copy, Default)]
struct Values {
    forwarding: i32,
    rp_filter: i32,
}

impl Values {
    fn of(&mut self, s: Setting) -> &mut i32 {
        match s {
            Setting::Forwarding => &mut self.forwarding,
            Setting::ReversePath => &mut self.rp_filter,
        }
    }
}

/// The settings of a namespace. Its lock comes after that of the devices.
#[derive(Default)]
pub(crate) struct Confs {
    all: Values,
    default: Values,
    devices: BTreeMap<i32, Values>,
}

impl Confs {
    /// Has settings for these devices and no others.
    fn follow(&mut self, t: &Table) {
        self.devices.retain(|i, _| t.entries.contains_key(i));
        for index in t.entries.keys() {
            self.devices.entry(*index).or_insert(self.default);
        }
    }

    fn of(&mut self, of: ConfOf) -> Option<&mut Values> {
        match of {
            ConfOf::All => Some(&mut self.all),
            ConfOf::Default => Some(&mut self.default),
            ConfOf::Device(i) => self.devices.get_mut(&i),
        }
    }

    /// Whether any device sends IPv4's packets on.
    pub fn forwards(&self) -> bool {
        self.devices.values().any(|v| v.forwarding != 0)
    }

    /// What the stack is told of a device.
    pub fn conf(&self, index: i32) -> Conf {
        let own = self.devices.get(&index).copied().unwrap_or_default();
        Conf {
            keeps: own.forwarding == 0,
            reverse_path: match own.rp_filter.max(self.all.rp_filter) {
                1 => ReversePath::Same,
                2 => ReversePath::Any,
                _ => ReversePath::Unasked,
            },
        }
    }
}

impl NetNamespace {
    /// A setting; none of a device that is not there.
    #[must_use]
    pub fn conf(&self, of: ConfOf, s: Setting) -> Option<i32> {
        let t = self.table.lock();
        let mut confs = self.confs.lock();
        confs.follow(&t);
        confs.of(of).map(|v| *v.of(s))
    }

    /// Sets it, from now on.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is no such device.
    pub fn set_conf(self: &Arc<Self>, of: ConfOf, s: Setting, value: i32) -> Result<()> {
        let t = self.table.lock();
        let mut confs = self.confs.lock();
        confs.follow(&t);
        *confs.of(of).ok_or(ENOENT)?.of(s) = value;
        if (of, s) == (ConfOf::All, Setting::Forwarding) {
            confs.default.forwarding = value;
            let all = confs.devices.values_mut();
            all.for_each(|v| v.forwarding = value);
        }
        drop(confs);
        self.apply(&t);
        Ok(())
    }

    /// The settings for these devices.
    pub(super) fn confs_for(&self, t: &Table) -> parking_lot::MutexGuard<'_, Confs> {
        let mut confs = self.confs.lock();
        confs.follow(t);
        confs
    }
}
