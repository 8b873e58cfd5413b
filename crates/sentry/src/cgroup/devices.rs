//! Programs that say which devices the processes of a group may use (`BPF_PROG_TYPE_CGROUP_DEVICE`;
//! Linux's `kernel/bpf/cgroup.c`): version 2's way to have what version 1 has a controller for.
//!
//! A program is its holders' (descriptors and groups), and is paid by the user that loaded it. A
//! group has up to [`PROGRAMS_MAX`]; what goes for its processes are its own and, of the groups
//! above it, those that said so ([`AttachFlags::MULTI`]), or the nearest if none is nearer. All of
//! them must say yes. They are asked when a device's node is opened or made, and by access(2); what
//! is open stays open.
//!
//! Programs are run without a lock: what is attached is a list that is replaced as a whole.

use super::{Cgroup, Hierarchy};
use crate::programs::Program;
use crate::task::{Task, task_of};
use abi::Result;
use abi::errno::{E2BIG, EINVAL, ENOENT, EPERM};
use bitflags::bitflags;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vfs::FileType;
use vfs::ucounts::Charge;
use vfs::vfs::{DeviceGuard, DeviceUse, DeviceWant};

/// `BPF_CGROUP_MAX_PROGS`.
const PROGRAMS_MAX: usize = 64;
/// `BPF_DEVCG_DEV_BLOCK`, `BPF_DEVCG_DEV_CHAR`.
const BLOCK: u32 = 1;
const CHAR: u32 = 2;

bitflags! {
    /// `BPF_F_*` of `BPF_PROG_ATTACH`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AttachFlags: u32 {
        /// Groups below may have another in its place.
        const OVERRIDE = 1;
        /// Groups below may have others besides.
        const MULTI = 2;
        const REPLACE = 4;
    }
}

/// What who attaches a program pays for that, bytes.
pub const ATTACHED: usize = 128;

/// One that is attached, and counts as that.
struct Entry {
    program: Arc<Program>,
    all: Arc<AtomicUsize>,
    _memory: Charge,
}

impl Entry {
    fn new(program: &Arc<Program>, all: &Arc<AtomicUsize>, memory: Charge) -> Entry {
        all.fetch_add(1, Ordering::SeqCst);
        Entry {
            program: program.clone(),
            all: all.clone(),
            _memory: memory,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What is attached to a group, in the order of attachment.
#[derive(Clone, Default)]
pub(super) struct Attached {
    /// Of the first two; as all that are attached have them.
    flags: AttachFlags,
    entries: Arc<[Arc<Entry>]>,
}

impl Attached {
    fn find(&self, p: &Arc<Program>) -> Option<usize> {
        let mut entries = self.entries.iter();
        entries.position(|e| Arc::ptr_eq(&e.program, p))
    }
    /// Where a new one goes: in the place of another, or behind all (`find_attach_entry`).
    fn place(
        &self,
        p: &Arc<Program>,
        flags: AttachFlags,
        replaced: Option<&Arc<Program>>,
    ) -> Result<Option<usize>> {
        if !flags.contains(AttachFlags::MULTI) {
            return Ok((!self.entries.is_empty()).then_some(0));
        }
        let itself = replaced.is_some_and(|r| Arc::ptr_eq(r, p));
        if !itself && self.find(p).is_some() {
            return Err(EINVAL);
        }
        replaced.map(|r| self.find(r).ok_or(ENOENT)).transpose()
    }
}

impl Cgroup {
    fn attached(&self) -> Attached {
        self.devices.lock().clone()
    }
    /// Calls `f` with each program that goes for its processes, the nearest first, until it gives
    /// false (`compute_effective_progs`).
    fn each_effective(&self, mut f: impl FnMut(&Arc<Program>) -> bool) {
        let mut is_first = true;
        for c in self.upwards() {
            let a = c.attached();
            if a.entries.is_empty() || !is_first && !a.flags.contains(AttachFlags::MULTI) {
                continue;
            }
            is_first = false;
            for e in &*a.entries {
                if !f(&e.program) {
                    return;
                }
            }
        }
    }
    /// Whether groups above it let it have programs of its own (`hierarchy_allows_attach`).
    fn may_attach(&self) -> bool {
        for c in self.upwards().skip(1) {
            let a = c.attached();
            if a.flags.contains(AttachFlags::MULTI) {
                return true;
            }
            if !a.entries.is_empty() {
                return a.flags.contains(AttachFlags::OVERRIDE);
            }
        }
        true
    }
}

impl Hierarchy {
    /// `BPF_PROG_ATTACH`, paid by `memory` ([`ATTACHED`]). `flags` with `REPLACE`: in the place of
    /// `replaced`. `ENOENT` for a group that was removed, and where `replaced` is not attached;
    /// `EPERM` where this group or one above has programs that allow no such.
    pub fn attach(
        &self,
        c: &Cgroup,
        p: &Arc<Program>,
        flags: AttachFlags,
        replaced: Option<&Arc<Program>>,
        memory: Charge,
    ) -> Result<()> {
        let kept = flags - AttachFlags::REPLACE;
        let is_multi = flags.contains(AttachFlags::MULTI);
        if kept == AttachFlags::OVERRIDE | AttachFlags::MULTI
            || flags.contains(AttachFlags::REPLACE) && !is_multi
        {
            return Err(EINVAL);
        }
        let _change = self.change();
        if c.is_dead() {
            return Err(ENOENT);
        }
        let old = c.attached();
        if !c.may_attach() || !old.entries.is_empty() && old.flags != kept {
            return Err(EPERM);
        }
        if old.entries.len() >= PROGRAMS_MAX {
            return Err(E2BIG);
        }
        let place = old.place(p, flags, replaced)?;
        let mut entries = old.entries.to_vec();
        let new = Arc::new(Entry::new(p, &self.attached, memory));
        match place {
            Some(i) => entries[i] = new,
            None => entries.push(new),
        }
        *c.devices.lock() = Attached {
            flags: kept,
            entries: entries.into(),
        };
        Ok(())
    }
    /// `BPF_PROG_DETACH`. Without a program: of a group that can have but one.
    pub fn detach(&self, c: &Cgroup, p: Option<&Arc<Program>>) -> Result<()> {
        let _change = self.change();
        if c.is_dead() {
            return Err(ENOENT);
        }
        let mut a = c.attached();
        let at = if !a.flags.contains(AttachFlags::MULTI) {
            (!a.entries.is_empty()).then_some(0).ok_or(ENOENT)?
        } else {
            a.find(p.ok_or(EINVAL)?).ok_or(ENOENT)?
        };
        let mut entries = a.entries.to_vec();
        entries.remove(at);
        a.entries = entries.into();
        if a.entries.is_empty() {
            a.flags = AttachFlags::empty();
        }
        // A program goes after the lock.
        let before = std::mem::replace(&mut *c.devices.lock(), a);
        drop(before);
        Ok(())
    }
    /// The programs of a group and their flags; `ENOENT` for one that was removed.
    pub fn attached(&self, c: &Cgroup) -> Result<(AttachFlags, Vec<u32>)> {
        let _change = self.change();
        if c.is_dead() {
            return Err(ENOENT);
        }
        let a = c.attached();
        Ok((a.flags, a.entries.iter().map(|e| e.program.id).collect()))
    }
    /// The programs that go for a group's processes.
    pub fn effective(&self, c: &Cgroup) -> Result<Vec<u32>> {
        let _change = self.change();
        if c.is_dead() {
            return Err(ENOENT);
        }
        let mut ids = Vec::new();
        c.each_effective(|p| {
            ids.push(p.id);
            true
        });
        Ok(ids)
    }
    /// What the VFS asks.
    #[must_use]
    pub fn device_guard(&self) -> Arc<dyn DeviceGuard> {
        Arc::new(Guard(self.attached.clone()))
    }
}

/// Asks the programs of a caller's group.
struct Guard(Arc<AtomicUsize>);

impl DeviceGuard for Guard {
    fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
    fn may(&self, u: &DeviceUse<'_>) -> Result<()> {
        // (The kernel itself makes nodes for a container that begins.)
        let Some(t) = task_of(u.caller.task) else {
            return Ok(());
        };
        // A file without a device is an overlay's mark.
        if u.rdev == 0 && u.want != DeviceWant::MKNOD {
            return Ok(());
        }
        allowed(t, u)
    }
}

/// `EPERM` where a program says no (`__cgroup_bpf_check_dev_permission`).
fn allowed(t: &Task, u: &DeviceUse<'_>) -> Result<()> {
    let kind = if u.kind == FileType::Block {
        BLOCK
    } else {
        CHAR
    };
    let told = [
        kind | u.want.bits() << 16,
        vfs::major(u.rdev),
        vfs::minor(u.rdev),
    ];
    let mut all = true;
    t.group.cgroup().each_effective(|p| {
        // (Groups may nest deep: who is killed is not kept.)
        all = !t.is_killed() && p.loaded.program.run(&told) == 1;
        all
    });
    if all { Ok(()) } else { Err(EPERM) }
}
