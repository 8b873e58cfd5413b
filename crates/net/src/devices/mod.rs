//! Devices of a namespace: those of the host that were taken over, each with a socket of its own
//! for its frames, and virtual ones that programs make.
//!
//! ```text
//! mod         a namespace takes devices, and has its stack follow the table
//! table       what a namespace says of its devices
//! links       devices that are made, changed, moved and taken away
//! later       devices of the host that come, change and go while programs run
//! conf        settings of devices
//! addresses   the same for addresses, routes and neighbours
//! news        what is told of a change, and to whom
//! device      a device and its frames
//! bridge      where a bridge's frames go
//! tun         devices whose frames a program reads and writes
//! offload     what they say of checksums and super-segments
//! ```
//!
//! A namespace that has none but its loopback has no stack: it gets one with its first device.

mod addresses;
mod bridge;
mod conf;
mod device;
mod later;
mod links;
mod news;
mod offload;
mod table;
mod tun;

pub(crate) use addresses::How;
pub(crate) use conf::Confs;
pub use conf::{ConfOf, Setting, Version as ConfVersion};
pub(crate) use device::{Device, Kind};
pub use later::Change;
pub(crate) use links::{LinkRequest, NewKind};
pub(crate) use news::{Listener, Listeners, News};
pub(crate) use table::{Address, LOWER_UP, LinkInfo, NO_DAD, NO_PREFIX_ROUTE, PERMANENT, Table};
use table::{Entry, Inside};

use crate::interface::LO_INDEX;
use crate::ns::NetNamespace;
pub use crate::stack::Bells;
pub use crate::stack::gate::Start as Gate;
use crate::stack::{Made, Stack};
use abi::Result;
use abi::errno::{EBUSY, EINVAL};
use hostcall::HostFd;
pub use hostcall::packet::Link;
pub use netstack::setup::Setup;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
pub use tun::TunFile;

impl NetNamespace {
    /// Takes devices with their addresses and routes, and a socket for each, in the order of the
    /// setup's devices; and a UDP socket of their namespace that is connected to Docker's name
    /// server, if there may be one. To be called once, after the allow-lists and before the first
    /// program runs.
    ///
    /// # Errors
    ///
    /// `EINVAL` where there is not one socket for each device, `ENOSPC` where there are too many;
    /// `EBUSY` where there are devices already, no [`NetNamespace::set_bells`], or another way out;
    /// `EAGAIN` where no thread can be made.
    pub fn attach_devices(
        self: &Arc<Self>,
        setup: Setup,
        links: Vec<Link>,
        names: Option<HostFd>,
        gate: Gate,
    ) -> Result<()> {
        if setup.devices.len() != links.len() {
            return Err(EINVAL);
        }
        let stack = Stack::new(self, &setup, links, names, gate)?;
        stack.bells(|| self.take_bells()).ok_or(EBUSY)?;
        self.set_stack(&stack)?;
        let mut table = self.table.lock();
        table.take(self, &setup);
        self.apply(&table);
        drop(table);
        stack.serve()
    }

    /// Has the stack, the devices and the sockets follow the table.
    pub(crate) fn apply(self: &Arc<Self>, t: &Table) {
        if let Some(lo) = t.entries.get(&LO_INDEX) {
            self.lo_is(lo.up, !lo.addresses.is_empty());
        }
        self.set_local(t);
        for (index, e) in &t.entries {
            let master = e.master.and_then(|m| t.entries.get(&m));
            let bridge = master.map(|m| m.device.weak());
            e.device.set_place(|p| {
                (p.index, p.mac, p.mtu, p.up) = (*index, e.mac, e.mtu, e.up);
                p.bridge = bridge;
            });
        }
        let is_others = |(a, _): &(table::Address, _)| !a.ip.is_loopback();
        let lo = t.entries.get(&LO_INDEX);
        if t.entries.len() > 1 && lo.is_some_and(|e| e.addresses.iter().any(is_others)) {
            // Others may ask for these.
            self.has_loopback();
        }
        if t.entries.len() > 1 || self.has_rules.load(Ordering::Relaxed) {
            let of_program = |d: &Device| !matches!(d.kind, Kind::Loopback | Kind::Taken);
            let all = t.entries.iter().filter(|(_, e)| of_program(&e.device));
            let made = |e: &Entry| -> Arc<dyn Made> { e.device.clone() };
            let devices: HashMap<u32, Arc<dyn Made>> =
                all.map(|(i, e)| (*i as u32, made(e))).collect();
            let setup = self.setup_of(t);
            self.need_stack().set(&setup, devices);
        } else if let Some(s) = self.stack() {
            s.set(&self.setup_of(t), HashMap::new());
        }
        if self.has_rules.load(Ordering::Relaxed) {
            self.ruled.store(true, Ordering::Release);
        }
    }

    fn setup_of(&self, t: &Table) -> Setup {
        let inside = if self.has_rules.load(Ordering::Relaxed) {
            Inside::Packets
        } else {
            Inside::Joined
        };
        t.setup(&self.confs_for(t), inside)
    }

    fn device(&self, index: i32) -> Option<Arc<Device>> {
        let t = self.table.lock();
        t.entries.get(&index).map(|e| e.device.clone())
    }

    /// A frame left by a device that is a bridge's port.
    pub(crate) fn count_sent(&self, index: i32, len: usize) {
        if let Some(s) = self.stack() {
            s.ip.sent(index as u32, len);
        }
    }

    /// One came.
    pub(crate) fn count_received(&self, index: i32, len: usize) {
        if let Some(s) = self.stack() {
            s.ip.came(index as u32, len);
        }
    }
}

impl NetNamespace {
    /// Whether the loopback is up, and has addresses, as sockets ask.
    fn lo_is(&self, up: bool, addressed: bool) {
        self.up.store(up, Ordering::Relaxed);
        self.addressed.store(addressed, Ordering::Relaxed);
    }
}
