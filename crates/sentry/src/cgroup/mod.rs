//! Control groups, version 2 (`cgroups(7)`, Documentation/admin-guide/cgroup-v2.rst): one tree for
//! a container, which every process of it is somewhere in, with the controllers `pids` and `memory`
//! (`cpu` and `cpuset` limit nothing) and the core's own services (freezing, killing).
//!
//! A process is in one group with all its threads (there are no threaded groups). It counts against
//! its group and all above it: each live thread but the main one, and the main one until it is
//! waited for.
//!
//! | module | what it holds |
//! |---|---|
//! | [`devices`] | programs that say which devices a group may use |
//! | [`files`] | the files that a group shows |
//! | [`limits`] | what the host limits a container to, as its root group tells it |
//! | [`memory`] | the `memory` controller of groups below the root |
//!
//! Lock order: [`Hierarchy::change`] (the shape of the tree, moves, freezing) → the task list → a
//! group's `inner` → a process's cell of its group. Fork and exit take the task list's lock alone,
//! which they hold anyway: under it nobody moves and no group goes.
//!
//! Invariants: `populated` is the number of live processes in a group and below; a group with live
//! processes or children is never dead; `freezers` is how many of a group and those above it have
//! been told to freeze. A group has the `memory` controller exactly where its parent gives it to
//! its children; what its processes make is paid from the nearest account upwards
//! ([`Cgroup::account`]), which changes with the tree's shape and moves alone.

pub mod devices;
pub mod files;
pub mod limits;
pub mod memory;

use self::memory::{Happened, Memory};
use crate::fs::pressure::Alarm;
use crate::ns::{CgroupNs, Ns};
use crate::task::cpu::{Cpu, CpuSum};
use crate::task::list::TaskList;
use crate::{Kernel, ThreadGroup};
use abi::Result;
use abi::errno::{EAGAIN, EBUSY, EEXIST, EINVAL, ENODEV, ENOENT, EOPNOTSUPP, EPERM};
use abi::signal::SIGKILL;
use bitflags::bitflags;
use clas::Clas;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::Perm;
use vfs::inode::SetAttr;
use vfs::notice::{Notice, Seen};
use vfs::ucounts::Kind;
use vfs::userns::{NsId, UserNs};

/// How many groups a tree may have.
const GROUPS_MAX: u64 = 4096;
/// No limit.
pub const NO_LIMIT: i64 = i64::MAX;

bitflags! {
    /// Controllers that a group can give to its children.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Controls: u8 {
        const PIDS = 1;
        const MEMORY = 2;
        /// Those two are the host's: below the root they say that nothing is limited, and keep a
        /// weight for who asks.
        const CPU = 4;
        const CPUSET = 8;
        /// Those of which processes within a group may be told apart from its children's
        /// (`threaded`).
        const THREADED = Self::PIDS.bits() | Self::CPU.bits() | Self::CPUSET.bits();
    }
}

impl Controls {
    /// The names, as `cgroup.controllers` has them.
    fn names(self) -> String {
        let all = [
            (Controls::CPUSET, "cpuset"),
            (Controls::CPU, "cpu"),
            (Controls::MEMORY, "memory"),
            (Controls::PIDS, "pids"),
        ];
        let names = all.iter().filter(|c| self.contains(c.0)).map(|c| c.1);
        let mut text = names.collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// The trees: the root container's, and one of its own for each other container, so that they do
/// not reach each other's.
pub struct Hierarchy {
    pub root: Arc<Cgroup>,
    /// Held by everything that changes the tree's shape, moves processes, or freezes.
    change: Mutex<()>,
    next_id: AtomicU64,
    /// How many programs are attached to groups of all trees. Atomic.
    attached: Arc<AtomicUsize>,
}

/// A group.
pub struct Cgroup {
    pub id: u64,
    name: Vec<u8>,
    parent: Option<Arc<Cgroup>>,
    /// Who made it, and owns its files unless chown(2) says otherwise.
    uid: u32,
    gid: u32,
    /// Owners and modes that were set, by the file's name. A leaf lock.
    perms: Mutex<BTreeMap<&'static str, Perm>>,
    notices: Notices,
    /// Who waits for lack of memory here. A leaf lock.
    alarms: Mutex<Vec<Weak<Alarm>>>,
    inner: Mutex<Inner>,
    /// Live processes here and below.
    populated: AtomicUsize,
    freezers: AtomicUsize,
    /// Groups below it; changed under [`Hierarchy::change`].
    descendants: AtomicU64,
    pids: Pids,
    /// What processes used that ended in it or below, or that left.
    cpu: CpuSum,
    /// `cpu.weight`, as it was written: the host divides its CPUs as it does. Atomic.
    weight: AtomicU64,
    /// The container's memory; set once for a tree's root, and the same below.
    clas: OnceLock<Weak<Clas>>,
    /// The `memory` controller; changed under [`Hierarchy::change`]. Before an account's lock.
    memory: Mutex<Option<Arc<Memory>>>,
    /// Of a root group, which has no such controller of its own. Atomics.
    happened: Happened,
    /// Of a container's root group. A leaf lock.
    limits: Mutex<config::Limits>,
    /// Changed under [`Hierarchy::change`]. A leaf lock.
    devices: Mutex<devices::Attached>,
}

/// Files that tell when they change, and all others.
struct Notices {
    /// `cgroup.events`.
    state: Arc<Notice>,
    /// `memory.events`, `memory.events.local`, `memory.swap.events`.
    memory: Arc<Notice>,
    own_memory: Arc<Notice>,
    swap: Arc<Notice>,
    /// `pids.events`, `pids.events.local`.
    pids: Arc<Notice>,
    own_pids: Arc<Notice>,
    /// Nobody is told of these.
    silent: Arc<Notice>,
}

impl Default for Notices {
    fn default() -> Notices {
        let new = || Notice::new(Seen::AtRead);
        Notices {
            state: new(),
            memory: new(),
            own_memory: new(),
            swap: new(),
            pids: new(),
            own_pids: new(),
            silent: Notice::silent(),
        }
    }
}

struct Inner {
    children: BTreeMap<Vec<u8>, Arc<Cgroup>>,
    /// Live processes, by id.
    procs: BTreeSet<i32>,
    /// What is given to the children (`cgroup.subtree_control`).
    controls: Controls,
    freeze: bool,
    dead: bool,
    max_depth: u64,
    max_descendants: u64,
}

/// The `pids` controller's part of a group.
struct Pids {
    current: AtomicI64,
    peak: AtomicI64,
    max: AtomicI64,
    /// Times that a limit here or below refused a fork, and times that this one did.
    events: AtomicU64,
    own_events: AtomicU64,
}

impl Cgroup {
    fn new(id: u64, name: &[u8], parent: Option<Arc<Cgroup>>, uid: u32, gid: u32) -> Arc<Cgroup> {
        let clas = OnceLock::new();
        if let Some(c) = parent.as_ref().and_then(|p| p.clas.get()) {
            let _ = clas.set(c.clone());
        }
        let freezers = parent
            .as_ref()
            .map_or(0, |p| p.freezers.load(Ordering::SeqCst));
        Arc::new(Cgroup {
            id,
            name: name.to_vec(),
            parent,
            uid,
            gid,
            perms: Mutex::default(),
            notices: Notices::default(),
            alarms: Mutex::default(),
            inner: Mutex::new(Inner {
                children: BTreeMap::new(),
                procs: BTreeSet::new(),
                controls: Controls::empty(),
                freeze: false,
                dead: false,
                max_depth: u64::MAX,
                max_descendants: u64::MAX,
            }),
            populated: AtomicUsize::new(0),
            freezers: AtomicUsize::new(freezers),
            descendants: AtomicU64::new(0),
            pids: Pids {
                current: AtomicI64::new(0),
                peak: AtomicI64::new(0),
                max: AtomicI64::new(NO_LIMIT),
                events: AtomicU64::new(0),
                own_events: AtomicU64::new(0),
            },
            cpu: CpuSum::default(),
            weight: AtomicU64::new(limits::WEIGHT),
            clas,
            memory: Mutex::new(None),
            happened: Happened::default(),
            limits: Mutex::default(),
            devices: Mutex::default(),
        })
    }
    /// For a process that was never listed.
    #[must_use]
    pub fn nowhere() -> Arc<Cgroup> {
        Cgroup::new(0, b"", None, 0, 0)
    }
    /// It and all above it.
    fn upwards(&self) -> impl Iterator<Item = &Cgroup> {
        std::iter::successors(Some(self), |c| c.parent.as_deref())
    }
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.inner.lock().dead
    }
    #[must_use]
    pub fn is_below(&self, other: &Cgroup) -> bool {
        self.upwards().any(|c| std::ptr::eq(c, other))
    }
    #[must_use]
    pub fn is_populated(&self) -> bool {
        self.populated.load(Ordering::SeqCst) > 0
    }
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Option<Arc<Cgroup>> {
        self.inner.lock().children.get(name).cloned()
    }
    #[must_use]
    pub fn children(&self) -> Vec<(Vec<u8>, Arc<Cgroup>)> {
        let i = self.inner.lock();
        i.children
            .iter()
            .map(|(n, c)| (n.clone(), c.clone()))
            .collect()
    }
    /// It and all below it.
    fn subtree(self: &Arc<Self>) -> Vec<Arc<Cgroup>> {
        let mut all = vec![self.clone()];
        let mut i = 0;
        while i < all.len() {
            let below = all[i].children();
            all.extend(below.into_iter().map(|c| c.1));
            i += 1;
        }
        all
    }
    /// The controllers that it has: of a root, all that can be had here.
    #[must_use]
    pub fn controllers(&self) -> Controls {
        let parent = self.parent.as_ref();
        parent.map_or(Controls::all(), |p| p.inner.lock().controls)
    }
    /// Whether it has the `pids` controller.
    #[must_use]
    pub fn has_pids(&self) -> bool {
        self.controllers().contains(Controls::PIDS)
    }
    /// Its path as it is seen from `root`: `/`, `/a/b`, or `/..` and so on for what lies beside or
    /// above.
    #[must_use]
    pub fn path_from(&self, root: &Cgroup) -> Vec<u8> {
        let mut up = 0;
        let common = root
            .upwards()
            .find(|r| {
                let found = self.is_below(r);
                up += usize::from(!found);
                found
            })
            .unwrap_or(root);
        let mut out = b"/..".repeat(up);
        let names: Vec<&[u8]> = self
            .upwards()
            .take_while(|c| !std::ptr::eq(*c, common))
            .map(|c| c.name.as_slice())
            .collect();
        for n in names.iter().rev() {
            out.push(b'/');
            out.extend_from_slice(n);
        }
        if out.is_empty() {
            out.push(b'/');
        }
        out
    }

    fn charge(&self, n: i64) {
        for c in self.upwards() {
            let now = c.pids.current.fetch_add(n, Ordering::Relaxed) + n;
            c.pids.peak.fetch_max(now, Ordering::Relaxed);
        }
    }
    /// One more task; `EAGAIN` where a limit of this group or one above forbids it.
    pub fn try_charge(self: &Arc<Self>) -> Result<TaskCharge> {
        self.charge_one()?;
        Ok(TaskCharge(Some(self.clone())))
    }
    fn charge_one(&self) -> Result<()> {
        for c in self.upwards() {
            let now = c.pids.current.fetch_add(1, Ordering::Relaxed) + 1;
            if now > c.pids.max.load(Ordering::Relaxed) && c.has_pids() {
                for d in self.upwards() {
                    d.pids.current.fetch_sub(1, Ordering::Relaxed);
                    if std::ptr::eq(d, c) {
                        break;
                    }
                }
                c.pids.own_events.fetch_add(1, Ordering::Relaxed);
                c.notices.own_pids.tell();
                for d in c.upwards() {
                    d.pids.events.fetch_add(1, Ordering::Relaxed);
                    d.notices.pids.tell();
                }
                return Err(EAGAIN);
            }
            c.pids.peak.fetch_max(now, Ordering::Relaxed);
        }
        Ok(())
    }
    pub fn uncharge(&self, n: i64) {
        for c in self.upwards() {
            c.pids.current.fetch_sub(n, Ordering::Relaxed);
        }
    }
    /// A live process comes or goes. Under the task list's lock.
    fn enter(&self, tgid: i32) {
        self.inner.lock().procs.insert(tgid);
        for c in self.upwards() {
            if c.populated.fetch_add(1, Ordering::SeqCst) == 0 {
                c.notices.state.tell();
            }
        }
    }
    fn leave(&self, tgid: i32) {
        if self.inner.lock().procs.remove(&tgid) {
            for c in self.upwards() {
                if c.populated.fetch_sub(1, Ordering::SeqCst) == 1 {
                    c.notices.state.tell();
                }
            }
        }
    }
    /// A process of it used so much that no group has counted.
    pub fn add_cpu(&self, used: Cpu) {
        for c in self.upwards() {
            c.cpu.add(used);
        }
    }
    /// `cpu.stat`.
    fn cpu_stat(self: &Arc<Self>, k: &Kernel) -> String {
        let mut sum = self.cpu.get();
        for d in self.subtree() {
            for g in Hierarchy::procs(k, &d) {
                sum = sum + (k.cpu_time(&g) - *g.cpu_counted.lock());
            }
        }
        let [user, system] = [sum.user, sum.system].map(|n| n / 1000);
        let text = format!(
            "usage_usec {}\nuser_usec {user}\nsystem_usec {system}\n",
            user + system
        );
        // The host limits, and does not tell how often.
        let limits = "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n";
        match self.controllers().contains(Controls::CPU) {
            true => text + limits,
            false => text,
        }
    }
    /// A task of it stands still now, or goes on: who is to be frozen may be so now.
    pub fn task_held(&self) {
        for c in self.upwards().filter(|c| c.is_freezing()) {
            c.notices.state.tell();
        }
    }
    /// Owner and mode of the file of this name, which has `mode` unless chmod(2) says otherwise.
    fn perm(&self, name: &str, mode: u32) -> Perm {
        let (uid, gid) = (self.uid, self.gid);
        let set = self.perms.lock().get(name).copied();
        set.unwrap_or(Perm { mode, uid, gid })
    }
    fn set_perm(&self, name: &'static str, mode: u32, a: &SetAttr) -> Result<()> {
        if a.mode.is_none() && a.uid.is_none() && a.gid.is_none() {
            return Err(EPERM);
        }
        let (uid, gid) = (self.uid, self.gid);
        let mut all = self.perms.lock();
        let p = all.entry(name).or_insert(Perm { mode, uid, gid });
        p.mode = a.mode.map_or(p.mode, |m| m & 0o7777);
        p.uid = a.uid.unwrap_or(p.uid);
        p.gid = a.gid.unwrap_or(p.gid);
        Ok(())
    }
    fn is_freezing(&self) -> bool {
        self.freezers.load(Ordering::SeqCst) > 0
    }
    /// Whether processes may be in it (`cgroup_migrate_vet_dst`).
    fn may_hold(&self) -> Result<()> {
        let i = self.inner.lock();
        if i.dead {
            return Err(ENODEV);
        }
        if self.is_root() || i.controls.is_empty() || i.can_be_threaded() {
            Ok(())
        } else {
            Err(EBUSY)
        }
    }
}

impl Inner {
    /// Whether it could be the root of threaded groups (`cgroup_can_be_thread_root`): controllers
    /// that such can have may be given to children beside processes of the group's own, as long as
    /// no child has any.
    fn can_be_threaded(&self) -> bool {
        let below = self.children.values().any(|c| c.is_populated());
        !below && Controls::THREADED.contains(self.controls)
    }
}

impl Hierarchy {
    #[must_use]
    pub fn new() -> Hierarchy {
        Hierarchy {
            root: Cgroup::new(1, b"", None, 0, 0),
            change: Mutex::new(()),
            next_id: AtomicU64::new(2),
            attached: Arc::default(),
        }
    }
    /// The initial cgroup namespace.
    #[must_use]
    pub fn initial_namespace(&self) -> Arc<CgroupNs> {
        Ns::new(
            NsId::initial(0xefff_fffb),
            &UserNs::default(),
            self.root.clone(),
        )
    }
    fn change(&self) -> MutexGuard<'_, ()> {
        self.change.lock()
    }

    /// `mkdir(2)` in a group.
    pub fn make(
        &self,
        parent: &Arc<Cgroup>,
        name: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<Arc<Cgroup>> {
        if name.contains(&b'\n') {
            return Err(EINVAL);
        }
        let _change = self.change();
        for (depth, c) in parent.upwards().enumerate() {
            let (most_deep, most) = {
                let i = c.inner.lock();
                (i.max_depth, i.max_descendants)
            };
            if depth as u64 + 1 > most_deep || most <= c.descendants() {
                return Err(EAGAIN);
            }
        }
        let root = parent.upwards().last().unwrap_or(parent);
        if root.descendants() >= GROUPS_MAX {
            return Err(EAGAIN);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let new = Cgroup::new(id, name, Some(parent.clone()), uid, gid);
        let mut i = parent.inner.lock();
        if i.dead {
            return Err(ENODEV);
        }
        if i.children.contains_key(name) {
            return Err(EEXIST);
        }
        if i.controls.contains(Controls::MEMORY) {
            *new.memory.lock() = Some(Memory::below(parent, &new.notices.swap)?);
        }
        i.children.insert(name.to_vec(), new.clone());
        for c in parent.upwards() {
            c.descendants.fetch_add(1, Ordering::Relaxed);
        }
        Ok(new)
    }
    /// `rmdir(2)` in a group.
    pub fn remove(&self, k: &Kernel, parent: &Arc<Cgroup>, name: &[u8]) -> Result<()> {
        // (Dropped when nothing is locked any more.)
        let _programs;
        let _change = self.change();
        let c = parent.child(name).ok_or(ENOENT)?;
        // Nobody is born into it meanwhile.
        let _list = k.tasks.lock();
        {
            let mut i = c.inner.lock();
            if c.is_populated() || !i.children.is_empty() {
                return Err(EBUSY);
            }
            i.dead = true;
        }
        parent.inner.lock().children.remove(name);
        for c in parent.upwards() {
            c.descendants.fetch_sub(1, Ordering::Relaxed);
        }
        // What it leaves, files in memory, counts for those above.
        let memory = c.memory.lock().take();
        drop(memory);
        _programs = std::mem::take(&mut *c.devices.lock());
        c.end_alarms();
        Ok(())
    }
    /// Gives controllers to the children, and takes others back.
    fn set_controls(&self, k: &Kernel, c: &Arc<Cgroup>, on: Controls, off: Controls) -> Result<()> {
        let _change = self.change();
        let (old, new) = {
            let mut i = c.inner.lock();
            if i.dead {
                return Err(ENODEV);
            }
            let old = i.controls;
            let (on, off) = (on - old, off & old);
            if !c.controllers().contains(on) {
                return Err(ENOENT);
            }
            if (i.children.values()).any(|c| c.inner.lock().controls.intersects(off)) {
                return Err(EBUSY);
            }
            // `cgroup_vet_subtree_control_enable`
            let beside = Controls::THREADED.contains(on) && i.can_be_threaded();
            if !on.is_empty() && !c.is_root() && !beside && !i.procs.is_empty() {
                // (With controllers given already it is the root of threads.)
                let is_thread_root = i.controls.intersects(Controls::THREADED);
                let is_domain = !Controls::THREADED.contains(on);
                return Err(if is_thread_root && is_domain {
                    EOPNOTSUPP
                } else {
                    EBUSY
                });
            }
            i.controls = (old - off) | on;
            (old, i.controls)
        };
        if (old ^ new).contains(Controls::MEMORY) {
            let set = self.set_memory(k, c, new.contains(Controls::MEMORY));
            if set.is_err() {
                c.inner.lock().controls = old;
            }
            return set;
        }
        Ok(())
    }
    /// Gives the children of `c` the `memory` controller, or takes it back. Nobody else changes the
    /// tree.
    fn set_memory(&self, k: &Kernel, c: &Arc<Cgroup>, on: bool) -> Result<()> {
        let children: Vec<Arc<Cgroup>> = c.children().into_iter().map(|c| c.1).collect();
        let mut made = Vec::new();
        for d in children.iter().filter(|_| on) {
            made.push(Memory::below(c, &d.notices.swap)?);
        }
        let mut made = made.into_iter();
        let old: Vec<_> = children
            .iter()
            .map(|d| std::mem::replace(&mut *d.memory.lock(), made.next()))
            .collect();
        // No group below a child has the controller: it is their child's account.
        let below: Vec<_> = (children.iter())
            .map(|d| (d.account(), d.subtree()))
            .collect();
        let l = k.tasks.lock();
        for (account, groups) in &below {
            let populated = groups.iter().filter(|d| d.is_populated());
            for d in populated {
                for id in &d.inner.lock().procs {
                    if let Some(p) = l.process(*id) {
                        p.group.payer.set(*account);
                    }
                }
            }
        }
        drop(l);
        drop(old);
        children.iter().for_each(|d| d.end_alarms());
        Ok(())
    }
    /// Moves a process.
    pub fn migrate(&self, k: &Kernel, g: &Arc<ThreadGroup>, to: &Arc<Cgroup>) -> Result<()> {
        let _change = self.change();
        let used = k.cpu_time(g);
        let l = k.tasks.lock();
        // One that has ended is nowhere any more.
        let Some(p) = l.process(g.tgid).filter(|p| p.zombie.is_none()) else {
            return Ok(());
        };
        let from = g.cgroup();
        if Arc::ptr_eq(&from, to) {
            return Ok(());
        }
        to.may_hold()?;
        let n = 1 + p.threads.keys().filter(|t| **t != g.tgid).count() as i64;
        from.add_cpu(g.count_cpu(used));
        from.leave(g.tgid);
        to.enter(g.tgid);
        to.charge(n);
        from.uncharge(n);
        g.set_cgroup(to.clone());
        g.payer.set(to.account());
        self.refresh(g, to);
        for t in p.threads.values() {
            t.kick();
        }
        Ok(())
    }
    fn refresh(&self, g: &ThreadGroup, c: &Cgroup) {
        g.frozen.store(c.is_freezing(), Ordering::SeqCst);
    }
    /// `cgroup.freeze`.
    fn freeze(&self, k: &Kernel, c: &Arc<Cgroup>, on: bool) {
        let _change = self.change();
        {
            let mut i = c.inner.lock();
            if i.freeze == on || i.dead {
                return;
            }
            i.freeze = on;
        }
        let all = c.subtree();
        for d in &all {
            if on {
                d.freezers.fetch_add(1, Ordering::SeqCst);
            } else {
                d.freezers.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let l = k.tasks.lock();
        for d in &all {
            let procs: Vec<i32> = d.inner.lock().procs.iter().copied().collect();
            for id in procs {
                let Some(p) = l.process(id) else { continue };
                self.refresh(&p.group, d);
                for t in p.threads.values() {
                    t.kick();
                }
            }
        }
        drop(l);
        for d in &all {
            d.notices.state.tell();
        }
    }
    /// Whether every process of a freezing group stands still.
    fn is_frozen(k: &Kernel, c: &Arc<Cgroup>) -> bool {
        if !c.is_freezing() {
            return false;
        }
        let l = k.tasks.lock();
        c.subtree().iter().all(|d| {
            let procs: Vec<i32> = d.inner.lock().procs.iter().copied().collect();
            procs
                .iter()
                .filter_map(|id| l.process(*id))
                .flat_map(|p| p.threads.values())
                .all(|t| t.held.load(Ordering::SeqCst))
        })
    }
    /// `cgroup.kill`.
    fn kill(k: &Kernel, c: &Arc<Cgroup>) {
        // Who is being told to end makes no more children (`clone` looks under the list's lock):
        // the second time finds those that were made meanwhile.
        loop {
            let groups: Vec<_> = {
                let l = k.tasks.lock();
                c.subtree()
                    .iter()
                    .flat_map(|d| d.inner.lock().procs.iter().copied().collect::<Vec<_>>())
                    .filter_map(|id| l.group(id))
                    .filter(|g| !g.needs_no_kill())
                    .collect()
            };
            if groups.is_empty() {
                return;
            }
            for g in groups {
                k.kill_group(&g, SIGKILL.number());
            }
        }
    }
    /// The live processes of a group.
    fn procs(k: &Kernel, c: &Cgroup) -> Vec<Arc<ThreadGroup>> {
        let l = k.tasks.lock();
        let ids: Vec<i32> = c.inner.lock().procs.iter().copied().collect();
        ids.iter().filter_map(|id| l.group(*id)).collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Not by recursion: groups nest as deep as there may be groups.
        let mut above = self.parent.take();
        while let Some(mut c) = above.and_then(Arc::into_inner) {
            above = c.parent.take();
        }
    }
}

impl Default for Hierarchy {
    fn default() -> Self {
        Self::new()
    }
}

impl Cgroup {
    /// Groups below it.
    #[must_use]
    pub fn descendants(&self) -> u64 {
        self.descendants.load(Ordering::Relaxed)
    }
    /// Lets a tree go that nobody is in any more: groups hold each other.
    pub fn dismantle(self: &Arc<Self>) {
        for c in self.subtree() {
            let below = std::mem::take(&mut c.inner.lock().children);
            drop(below);
        }
    }
}

impl Kernel {
    /// A tree for another container, as a namespace.
    pub fn new_cgroups(&self) -> Result<Arc<CgroupNs>> {
        let number = self.cgroups.next_id.fetch_add(1, Ordering::Relaxed);
        let root = Cgroup::new(number, b"", None, 0, 0);
        let maker = vfs::Credentials::root();
        let id = self.namespaces.new_id(Kind::CgroupNamespaces, &maker)?;
        Ok(Ns::new(id, &UserNs::default(), root))
    }
}

/// The charge of a task that is not in the list yet. Dropped before it is kept, it is taken back.
#[must_use]
pub struct TaskCharge(Option<Arc<Cgroup>>);

impl TaskCharge {
    /// The task is listed: what takes it from the list uncharges its group. Gives the group.
    pub fn keep(mut self) -> Arc<Cgroup> {
        self.0.take().unwrap_or_else(Cgroup::nowhere)
    }
}

impl Drop for TaskCharge {
    fn drop(&mut self) {
        if let Some(c) = self.0.take() {
            c.uncharge(1);
        }
    }
}

/// A new process begins in `c`, which has been charged for it. Under the task list's lock.
pub fn begin(_: &TaskList, g: &ThreadGroup, c: &Arc<Cgroup>) {
    g.set_cgroup(c.clone());
    g.payer.set(c.account());
    g.frozen.store(c.is_freezing(), Ordering::SeqCst);
    c.enter(g.tgid);
}

/// A process has ended; it counts until it is waited for. Under the task list's lock.
pub fn end(g: &ThreadGroup) {
    g.cgroup().leave(g.tgid);
}

/// Refuses what this kernel has no threaded groups for.
const fn no_threads<T>() -> Result<T> {
    Err(EOPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_for_all_below() {
        let h = Hierarchy::new();
        let a = h.make(&h.root, b"a", 0, 0).unwrap();
        let b = h.make(&a, b"b", 0, 0).unwrap();
        let k = crate::testing::kernel();
        let none = Controls::empty();
        let on = |c| h.set_controls(&k, c, Controls::PIDS, none);
        assert_eq!(on(&a), Err(ENOENT));
        on(&h.root).unwrap();
        on(&a).unwrap();
        a.pids.max.store(3, Ordering::Relaxed);
        b.pids.max.store(2, Ordering::Relaxed);
        let [first, second] = [&b, &b].map(|c| c.try_charge().unwrap());
        assert_eq!(b.try_charge().err(), Some(EAGAIN));
        let other = a.try_charge().unwrap();
        assert_eq!(a.try_charge().err(), Some(EAGAIN));
        let seen = |c: &Cgroup| {
            let p = &c.pids;
            let own = p.own_events.load(Ordering::Relaxed);
            (
                p.current.load(Ordering::Relaxed),
                p.events.load(Ordering::Relaxed),
                own,
            )
        };
        assert_eq!((seen(&b), seen(&a)), ((2, 1, 1), (3, 2, 1)));
        // What is not kept goes back; what is kept is the listed task's.
        drop((first, other));
        assert_eq!((seen(&b).0, seen(&a).0, seen(&h.root).0), (1, 1, 1));
        second.keep();
        assert_eq!(h.root.pids.current.load(Ordering::Relaxed), 1);
        let off = h.set_controls(&k, &h.root, none, Controls::PIDS);
        assert_eq!(off, Err(EBUSY));
    }

    #[test]
    fn paths_are_relative_to_a_root() {
        let h = Hierarchy::new();
        let a = h.make(&h.root, b"a", 0, 0).unwrap();
        let b = h.make(&a, b"b", 0, 0).unwrap();
        let c = h.make(&h.root, b"c", 0, 0).unwrap();
        assert_eq!(b.path_from(&h.root), b"/a/b");
        assert_eq!(b.path_from(&b), b"/");
        assert_eq!(h.root.path_from(&a), b"/..");
        assert_eq!(c.path_from(&b), b"/../../c");
        assert_eq!(h.make(&a, b"b", 0, 0).err(), Some(EEXIST));
    }
}
