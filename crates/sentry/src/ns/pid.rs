//! Pid namespaces (`pid_namespaces(7)`).
//!
//! A process, a thread, a process group and a session are known inside the kernel by one id: their
//! number in the initial namespace. A namespace below it gives each of its members, and its
//! children's, a number of its own. [`Pid`] holds them all, one a level; the numbers come into play
//! where a system call takes one from the application or shows it one.
//!
//! The first process of a namespace (number 1) is its init: signals without a handler do not reach
//! it from inside, it gets the namespace's orphans, and with it all members end
//! ([`Kernel::end_namespace`]); then no more can be made (`ENOMEM`).
//!
//! Lock order: the task list, then a namespace's `state`. Numbers are given and taken back under
//! the task list's lock; a [`Pid`] never changes, so that getpid(2) needs no lock.

use crate::Kernel;
use crate::task::ThreadGroup;
use crate::task::list::PID_MAX;
use abi::Result;
use abi::errno::{EAGAIN, EEXIST, EINVAL, ENOMEM, ENOSPC, EPERM};
use abi::signal::{SIGCHLD, SIGKILL};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfs::ucounts::Kind;
use vfs::userns::{NsId, Registry, UserNs};
use vfs::{Caps, Credentials};
use wait::{Events, Steady, WaitQueue, block_until};

/// How deep they may nest (`MAX_PID_NS_LEVEL`).
const DEPTH_MAX: u32 = 32;
/// Where numbering goes on after a wrap (`RESERVED_PIDS`).
const RESERVED: i32 = 300;

/// A pid namespace.
pub struct PidNs {
    id: NsId,
    level: u32,
    parent: Option<Arc<PidNs>>,
    /// Who may administer it.
    pub user: UserNs,
    /// Nothing of it is used in the initial namespace, where a number is the id.
    state: Mutex<State>,
    /// Notified when a number comes free.
    gone: WaitQueue,
}

#[derive(Default)]
struct State {
    /// The id that a number stands for.
    ids: BTreeMap<i32, i32>,
    last: i32,
    /// The id of process 1; 0 before there is one.
    init: i32,
    /// Process 1 has ended, or ends.
    closed: bool,
}

impl PidNs {
    #[must_use]
    pub fn initial() -> Arc<PidNs> {
        Arc::new(PidNs {
            id: NsId::initial(0xefff_fffc),
            level: 0,
            parent: None,
            user: UserNs::default(),
            state: Mutex::default(),
            gone: WaitQueue::new(),
        })
    }
    /// A child of this one (`create_pid_namespace`).
    pub fn create(
        self: &Arc<Self>,
        registry: &Registry,
        maker: &Credentials,
    ) -> Result<Arc<PidNs>> {
        let user = &maker.user_ns;
        if !user.is_below(&self.user) {
            return Err(EINVAL);
        }
        if self.level >= DEPTH_MAX {
            return Err(ENOSPC);
        }
        Ok(Arc::new(PidNs {
            id: registry.new_id(Kind::PidNamespaces, maker)?,
            level: self.level + 1,
            parent: Some(self.clone()),
            user: user.clone(),
            state: Mutex::default(),
            gone: WaitQueue::new(),
        }))
    }
    #[must_use]
    pub fn ino(&self) -> u32 {
        self.id.ino
    }
    #[must_use]
    pub fn parent(&self) -> Option<Arc<PidNs>> {
        self.parent.clone()
    }
    #[must_use]
    pub fn is_initial(&self) -> bool {
        self.level == 0
    }
    /// What is asked of numbers that the caller chooses, for `ns` and those above it
    /// (`alloc_pid`): as many as there are, each a number, and rights over each namespace.
    pub fn check_numbers(&self, asked: &[i32], cred: &Credentials) -> Result<()> {
        if asked.len() > self.level as usize + 1 {
            return Err(EINVAL);
        }
        let mut at = Some(self);
        for n in asked {
            let Some(ns) = at else { return Err(EINVAL) };
            if *n < 1 || *n >= PID_MAX {
                return Err(EINVAL);
            }
            let may = [Caps::CHECKPOINT_RESTORE, Caps::SYS_ADMIN];
            if !may.iter().any(|c| cred.has_in(&ns.user, *c)) {
                return Err(EPERM);
            }
            at = ns.parent.as_deref();
        }
        Ok(())
    }
    #[must_use]
    pub fn level(&self) -> u32 {
        self.level
    }
    /// Its ancestor of a level, itself included.
    fn at_level(&self, level: u32) -> Option<&PidNs> {
        let mut at = self;
        while at.level > level {
            at = at.parent.as_deref()?;
        }
        (at.level == level).then_some(at)
    }
    /// Whether it is `other` or below it.
    #[must_use]
    pub fn is_below(&self, other: &PidNs) -> bool {
        self.at_level(other.level)
            .is_some_and(|a| std::ptr::eq(a, other))
    }
    /// The id of its process 1, which has not ended; 0 where there is none.
    #[must_use]
    pub fn init(&self) -> i32 {
        if self.is_initial() {
            1
        } else {
            self.state.lock().init
        }
    }
    /// The id that a number means, if it is in use. In the initial namespace every number may be.
    #[must_use]
    pub fn id_of(&self, number: i32) -> Option<i32> {
        if self.is_initial() {
            Some(number)
        } else {
            self.state.lock().ids.get(&number).copied()
        }
    }
    fn number(&self, id: i32) -> Result<i32> {
        let mut s = self.state.lock();
        if s.closed {
            return Err(ENOMEM);
        }
        for _ in 0..=s.ids.len() {
            let first = if s.last + 1 >= PID_MAX {
                RESERVED
            } else {
                s.last + 1
            };
            s.last = first;
            if let Entry::Vacant(v) = s.ids.entry(first) {
                v.insert(id);
                if s.init == 0 {
                    s.init = id;
                }
                return Ok(first);
            }
        }
        Err(EAGAIN)
    }
    /// A number that was asked for (`alloc_pid` with `set_tid`).
    fn take(&self, id: i32, number: i32) -> Result<i32> {
        let mut s = self.state.lock();
        if s.closed {
            return Err(ENOMEM);
        }
        // The first is process 1.
        if number != 1 && s.init == 0 {
            return Err(EINVAL);
        }
        let Entry::Vacant(v) = s.ids.entry(number) else {
            return Err(EEXIST);
        };
        v.insert(id);
        if s.init == 0 {
            s.init = id;
        }
        Ok(number)
    }
    fn release(&self, number: i32) {
        let mut s = self.state.lock();
        s.ids.remove(&number);
        if s.ids.is_empty() && !s.closed {
            // Its first process never ran.
            *s = State::default();
        }
        drop(s);
        self.gone.notify(Events::IN);
    }
}

/// The numbers of a process, a thread, a group or a session.
pub struct Pid {
    /// The number in the initial namespace.
    pub id: i32,
    /// Where it belongs: the deepest namespace that has a number for it.
    pub ns: Arc<PidNs>,
    /// The numbers in the namespaces of levels 1 to `ns.level`.
    numbers: Box<[i32]>,
}

impl Pid {
    /// Gives out numbers for `id` in `ns` and all above it, those that are `asked` for in `ns`, its
    /// parent, and so on. `ENOMEM` where process 1 is gone.
    pub(crate) fn new(id: i32, ns: &Arc<PidNs>, asked: &[i32]) -> Result<Arc<Pid>> {
        let mut chain = Vec::new();
        let mut at = ns;
        while let Some(p) = &at.parent {
            chain.push(at);
            at = p;
        }
        chain.reverse();
        let mut numbers = Vec::with_capacity(chain.len());
        for (i, n) in chain.iter().enumerate() {
            let wish = asked.get(chain.len() - 1 - i);
            match wish.map_or_else(|| n.number(id), |nr| n.take(id, *nr)) {
                Ok(nr) => numbers.push(nr),
                Err(e) => {
                    for (n, nr) in chain[..i].iter().zip(numbers) {
                        n.release(nr);
                    }
                    return Err(e);
                }
            }
        }
        Ok(Arc::new(Pid {
            id,
            ns: ns.clone(),
            numbers: numbers.into(),
        }))
    }
    /// Takes the numbers back.
    pub(crate) fn release(&self) {
        let mut at = &self.ns;
        for n in self.numbers.iter().rev() {
            at.release(*n);
            let Some(p) = &at.parent else { return };
            at = p;
        }
    }
    /// The number in its own namespace: what getpid(2) says.
    #[must_use]
    pub fn own(&self) -> i32 {
        self.numbers.last().copied().unwrap_or(self.id)
    }
    /// The number in another; 0 where it is not to be seen.
    #[must_use]
    pub fn seen_in(&self, ns: &PidNs) -> i32 {
        if ns.is_initial() {
            return self.id;
        }
        if self.ns.is_below(ns) {
            self.numbers[ns.level as usize - 1]
        } else {
            0
        }
    }
    /// The numbers from `ns` down to its own, for `/proc/PID/status`.
    #[must_use]
    pub fn from_level(&self, ns: &PidNs) -> Vec<i32> {
        let all = std::iter::once(self.id).chain(self.numbers.iter().copied());
        all.skip(ns.level as usize).collect()
    }
    /// Whether it is process 1 of a namespace below the initial one.
    #[must_use]
    pub fn is_init(&self) -> bool {
        !self.ns.is_initial() && self.own() == 1
    }
}

impl Kernel {
    /// Process 1 of a namespace has ended all its threads: ends every other member, and waits until
    /// they are reaped (`zap_pid_ns_processes`). `me`: where the last of its threads sleeps.
    pub fn end_namespace(&self, init: &Arc<ThreadGroup>, me: &Steady) {
        let ns = &init.pid.ns;
        ns.state.lock().closed = true;
        // Its children need nobody to wait for them.
        let ignore = crate::task::signal::SigAction {
            handler: crate::task::signal::SIG_IGN,
            ..Default::default()
        };
        init.actions().write().set(SIGCHLD, ignore);
        let gone = [(&ns.gone, Events::IN)];
        let soon = || Some(Instant::now() + Duration::from_millis(200));
        while block_until(me, &gone, soon(), || self.end_members(init)).is_err() {}
    }

    /// Ends the other members of process 1's namespace, and reaps those that have ended; `EAGAIN`
    /// while there are any.
    fn end_members(&self, init: &ThreadGroup) -> abi::Result<()> {
        let ns = &init.pid.ns;
        let mut reaped = Vec::new();
        let members: Vec<_> = {
            let mut l = self.tasks.lock();
            let children: Vec<i32> = l
                .process(init.tgid)
                .map(|p| p.children.iter().copied().collect())
                .unwrap_or_default();
            for c in children {
                if l.process(c).is_some_and(|p| p.zombie.is_some()) {
                    reaped.push(l.reap(c));
                }
            }
            let mut ids: Vec<i32> = ns.state.lock().ids.values().copied().collect();
            // An id that is only a group's or a session's is nobody to wait for: process 1 may be
            // in it.
            ids.retain(|i| *i != init.tgid && (l.process(*i).is_some() || l.task(*i).is_some()));
            if ids.is_empty() {
                return Ok(());
            }
            // A tracer elsewhere keeps none of them.
            for id in &ids {
                if let Some(t) = l.task(*id)
                    && l.unlink(&t).is_some()
                {
                    t.kick();
                }
            }
            ids.iter()
                .filter_map(|i| l.group(*i))
                .filter(|g| !g.needs_no_kill())
                .collect()
        };
        drop(reaped);
        for g in members {
            self.kill_group(&g, SIGKILL.number());
        }
        Err(EAGAIN)
    }
}
