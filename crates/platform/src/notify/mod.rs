//! The notify platform: seccomp user notification with synchronous wake-up.
//!
//! Each application thread has its own filter with its own listener, so that one Sentry thread
//! waits for it alone. A system call is a notification: number, arguments and instruction pointer,
//! no registers. Calls that need the registers, faults and interrupts go through the stub's signal
//! handler, which makes the *event call*, another notification, whose arguments say where the
//! register frame lies.
//!
//! `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` holds signals back while a received call waits for its
//! answer; so a kick sent before the answer is taken right after the call returns, before any
//! application instruction. That is how registers are fetched after a plain notification.
//!
//! Call sites that are used often are patched ([`crate::lanes`]): some calls are then answered
//! where they are made, others come by a mailbox while this thread spins for them, the rest as
//! before.

mod events;
mod mail;
mod thread;

use crate::lanes::SpaceLanes;
use crate::lanes::read_slots::Area;
use crate::lanes::sites::{Site, Sites};
use crate::process::recycle::ProcessHandle;
use crate::process::{Drive, Factory};
use crate::{AddressSpace, AppThread, Lanes, MapOp, Platform, SpaceEnd};
use abi::Result;
use std::sync::Arc;
use std::time::Duration;
use thread::Thread;

/// The platform that `--platform=notify` names.
pub struct Notify(Arc<Factory>);

impl Notify {
    /// Must be called while the process has one thread.
    pub fn new(lanes: Lanes) -> Result<Notify> {
        Ok(Notify(Factory::new(Drive::Notify, lanes)?))
    }
}

impl Platform for Notify {
    fn name(&self) -> &'static str {
        "notify"
    }
    fn new_address_space(&self) -> Result<Arc<dyn AddressSpace>> {
        Ok(Arc::new(Space(self.0.process()?)))
    }
    fn host_vdso(&self) -> Option<u64> {
        self.0.host_vdso
    }
    fn has_own_clocks(&self) -> bool {
        self.0.has_own_clocks()
    }
    fn end(&self) -> Option<hostcall::RawFd> {
        Some(self.0.zygote_end.raw())
    }
    fn spinners(&self) -> Option<Arc<wait::Spinners>> {
        (self.0.lanes >= Lanes::Local).then(|| self.0.spinners.clone())
    }
    fn when_quiet(&self, f: Box<dyn Fn() + Send + Sync>) {
        self.0.reaper.when_quiet(f);
    }
    fn wait_unmapped(&self, limit: Duration) -> bool {
        self.0.reaper.wait_unmapped(limit)
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Whether the stub's code made a call.
fn in_stub(ip: u64) -> bool {
    (stub::TEXT..stub::FILTERS).contains(&ip)
}

struct Space(ProcessHandle);

impl AddressSpace for Space {
    fn apply(&self, ops: &[MapOp]) -> Result<()> {
        self.0.apply(ops)
    }
    fn new_thread(&self) -> Result<Box<dyn AppThread>> {
        Ok(Box::new(Thread::new(self.0.clone(), self.0.new_thread()?)?))
    }
    fn kill(&self) {
        self.0.kill();
    }
    fn end(&self) -> SpaceEnd {
        self.0.ended()
    }
    fn retire(&self, bytes: u64, then: Box<dyn FnOnce() + Send>) {
        self.0.retire(bytes, then);
    }
    fn cpu_nanos(&self) -> u64 {
        self.0.cpu_nanos()
    }
    fn own_clocks(&self) -> Result<()> {
        self.0.own_clocks()
    }
    fn lanes(&self) -> Option<&dyn SpaceLanes> {
        (self.0.factory.lanes != Lanes::None).then_some(self)
    }
}

impl SpaceLanes for Space {
    fn add_site(&self, site: Site) -> Option<u32> {
        self.0.add_site(site)
    }
    fn retire_sites(&self, r: std::ops::Range<u64>) {
        self.0.retire_sites(&r);
    }
    fn drop_sites(&self) {
        self.0.drop_sites();
    }
    fn sites(&self) -> Arc<Sites> {
        self.0.sites().0
    }
    fn inherit_sites(&self, parent: &Arc<Sites>) -> Result<()> {
        self.0.inherit_sites(parent)
    }
    fn read_slots(&self) -> Option<Arc<Area>> {
        self.0.read_slots()
    }
    fn end_read_slots(&self) {
        self.0.end_read_slots();
    }
    fn end_counts(&self) {
        self.0.end_counts();
    }
    fn count_waiter(&self, va: u64, by: i32) {
        self.0.count_waiter(va, by);
    }
}
