//! What a stub process has for its lanes: trampolines of patched call sites, and read
//! slots.

use super::factory::Unit;
use super::maps::Call;
use super::{Process, word};
use crate::Lanes;
use crate::lanes::read_slots::Area;
use crate::lanes::sites::{Site, Sites};
use crate::process::kick::Kick;
use abi::{Result, nr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stub::AREA_LEN;
use stub::lane::{TABLE, TABLE_LEN};

pub(super) enum SlotArea {
    /// Nobody has asked for it yet.
    None,
    Area(Arc<Area>),
    /// There could be none; what may be mapped nevertheless.
    Failed(Option<Arc<Area>>),
}

/// Unit 0 is the zygote's.
pub(super) const NO_UNIT: u32 = 0;

/// There was one: its table is not mapped any more.
pub(super) const DROPPED: u32 = u32::MAX;

impl Process {
    /// See [`crate::lanes::SpaceLanes::read_slots`].
    pub fn read_slots(&self) -> Option<Arc<Area>> {
        let a = self.map_read_slots();
        // Who ends them beside this does not wait.
        if let Some(a) = &a {
            if self.slots_ended.load(Ordering::SeqCst) {
                a.end();
            }
            if self.counts_ended.load(Ordering::SeqCst) {
                a.end_counts();
            }
        }
        a
    }

    pub(super) fn map_read_slots(&self) -> Option<Arc<Area>> {
        let mut o = self.read_slots.lock();
        match &*o {
            SlotArea::Area(a) => return Some(a.clone()),
            SlotArea::Failed(_) => return None,
            SlotArea::None => {}
        }
        if self.factory.lanes == Lanes::None || self.slots_ended.load(Ordering::SeqCst) {
            return None;
        }
        // Once is enough.
        *o = SlotArea::Failed(None);
        let run = self.factory.take_run().ok()?;
        let a = Arc::new(Area::new(self.factory.clone(), run, self.command));
        let call = [
            nr::MMAP.into(),
            stub::READ_SLOTS,
            stub::read_slots::LEN,
            (libc::PROT_READ | libc::PROT_WRITE) as u64,
            (libc::MAP_SHARED | libc::MAP_FIXED) as u64,
            self.factory.control.raw() as u64,
            a.offset(),
        ];
        if self.batch(&[call]).is_err() {
            // Nobody knows whether it is mapped.
            *o = SlotArea::Failed(Some(a));
            return None;
        }
        a.open();
        *o = SlotArea::Area(a.clone());
        Some(a)
    }

    /// See [`crate::lanes::SpaceLanes::end_read_slots`].
    pub fn end_read_slots(&self) {
        self.slots_ended.store(true, Ordering::SeqCst);
        // Callers hold locks that all share. Who makes them now, which takes a service call, looks
        // afterwards.
        if let Some(o) = self.read_slots.try_lock()
            && let SlotArea::Area(a) = &*o
        {
            // It stays mapped, and the process's.
            a.end();
        }
    }

    /// See [`crate::lanes::SpaceLanes::end_counts`].
    pub fn end_counts(&self) {
        self.counts_ended.store(true, Ordering::SeqCst);
        if let Some(o) = self.read_slots.try_lock()
            && let SlotArea::Area(a) = &*o
        {
            a.end_counts();
        }
    }

    /// Whether it has, or had, trampolines for patched call sites.
    pub fn has_sites(&self) -> bool {
        self.site_unit.load(Ordering::Acquire) != NO_UNIT
    }

    /// The calls that map trampolines and their table.
    pub(super) fn map_sites(&self, unit: Unit) -> [Call; 2] {
        let mut code = self.map_table(unit);
        code[1] = stub::TRAMPOLINES;
        code[2] = AREA_LEN - TABLE_LEN;
        code[3] = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        code[6] += TABLE_LEN;
        [code, self.map_table(unit)]
    }

    /// The call that maps the table of trampolines.
    pub(super) fn map_table(&self, unit: Unit) -> Call {
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
        let control = self.factory.control.raw() as u64;
        let read = libc::PROT_READ as u64;
        let mmap = u64::from(nr::MMAP);
        [mmap, TABLE, TABLE_LEN, read, flags, control, unit.offset()]
    }

    /// Changes the sites: readers go on with those that they know until they see the number.
    pub(super) fn change_sites<R>(&self, f: impl FnOnce(&mut Sites) -> R) -> R {
        let mut sites = self.sites.lock();
        let r = f(Arc::make_mut(&mut sites));
        self.sites_number.fetch_add(1, Ordering::SeqCst);
        r
    }

    /// The sites, and how often they have changed.
    pub fn sites(&self) -> (Arc<Sites>, u64) {
        let sites = self.sites.lock();
        (sites.clone(), self.sites_number.load(Ordering::SeqCst))
    }

    /// See [`Process::sites`].
    pub fn sites_number(&self) -> u64 {
        self.sites_number.load(Ordering::SeqCst)
    }

    /// Makes a trampoline for a call site; the address of its entry in the table. `None` where
    /// there are no lanes, or no more.
    pub fn add_site(&self, site: Site) -> Option<u32> {
        let unit = self.sites_unit()?;
        self.change_sites(|s| s.add(self.factory.unit(unit), site))
    }

    /// See [`crate::lanes::SpaceLanes::retire_sites`], and [`crate::lanes::sites`] for the order.
    pub fn retire_sites(&self, r: &Range<u64>) {
        let (before, _) = self.sites();
        if !before.has_live(r) {
            return;
        }
        // Who comes into application code from now on finds the page unmapped, and stands nowhere.
        let there = |k: &&Arc<Kick>| k.stay().is_some();
        let there: Vec<Arc<Kick>> = self.kicks.lock().iter().filter(there).cloned().collect();
        for k in &there {
            k.remember(&before);
        }
        self.change_sites(|s| s.retire(r));
        // None is waited for: it is its own affair if it does not take its kick.
        for k in there {
            crate::Interrupter::interrupt(&*k);
        }
    }

    /// A thread that may run application code; until [`Process::forget_kick`].
    pub fn add_kick(&self, k: Arc<Kick>) {
        self.kicks.lock().push(k);
    }

    /// See [`Process::add_kick`].
    pub fn forget_kick(&self, k: &Arc<Kick>) {
        let mut kicks = self.kicks.lock();
        if let Some(i) = kicks.iter().position(|o| Arc::ptr_eq(o, k)) {
            kicks.swap_remove(i);
        }
    }

    /// The unit for trampolines, mapped.
    pub(super) fn sites_unit(&self) -> Option<Unit> {
        let n = self.site_unit.load(Ordering::Acquire);
        if self.factory.lanes == Lanes::None || n == DROPPED {
            return None;
        }
        if n != NO_UNIT {
            return Some(Unit(n));
        }
        let unit = self.factory.take_unit().ok()?;
        // Where only the first could be mapped, the unit stays with the process.
        let mapped = self.batch(&self.map_sites(unit));
        self.spawner.lock().areas.others.push(unit);
        if mapped.is_err() {
            // Once is enough: each try costs a unit, which all processes share.
            self.site_unit.store(DROPPED, Ordering::Release);
            return None;
        }
        self.site_unit.store(unit.0, Ordering::Release);
        Some(unit)
    }

    /// See [`crate::lanes::SpaceLanes::drop_sites`].
    pub fn drop_sites(&self) {
        self.retire_sites(&(0..u64::MAX));
        let before = self.site_unit.swap(DROPPED, Ordering::AcqRel);
        if self.table_due.swap(false, Ordering::AcqRel) {
            return;
        }
        if before != NO_UNIT && before != DROPPED {
            let call = [nr::MUNMAP.into(), TABLE, TABLE_LEN, 0, 0, 0, 0];
            if self.batch(&[call]).is_err() {
                self.kill();
            }
        }
    }

    /// Gives this process, which has run nothing yet, the sites of the one that it is a copy of.
    pub fn inherit_sites(&self, parent: &Arc<Sites>) -> Result<()> {
        if parent.is_empty() {
            return Ok(());
        }
        let unit = self.factory.take_unit()?;
        self.spawner.lock().areas.others.push(unit);
        parent.copy_to(self.factory.unit(unit));
        self.site_unit.store(unit.0, Ordering::Release);
        self.table_due.store(true, Ordering::Release);
        let mut sites = self.sites.lock();
        *sites = parent.clone();
        self.sites_number.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// See [`crate::lanes::SpaceLanes::count_waiter`].
    pub fn count_waiter(&self, va: u64, by: i32) {
        if self.factory.lanes == Lanes::None {
            return;
        }
        let at = stub::WAITERS + 4 * stub::waiters_slot(va);
        let count = word(self.factory.unit(self.command), at);
        count.fetch_add(by as u32, Ordering::SeqCst);
    }
}
