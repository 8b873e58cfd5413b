//! What each user holds (Linux's `kernel/ucount.c`).
//!
//! A [`Ucounts`] counts what one user of one user namespace holds. What is charged to it is charged
//! to the owner of the namespace, too, in the namespace above, and so on up to the initial one:
//! nobody escapes a limit by a namespace of his own, and no user's limit is another's. A user of
//! one container is another than that of another container, whatever its number.
//!
//! Linux charges the kernel's memory for objects to control groups. Here it is charged to users
//! ([`Kind::Kmem`]): the kernel is one process of the host, so what one user takes without a limit,
//! all lose. How much a user may have, `sentry::kernel` says. A new kind of object is charged so:
//! `cred.ucounts().charge(Kind::Kmem, bytes, u64::MAX)`, no charge is ENOMEM, and the object keeps
//! the [`Charge`]. Where it cannot fail, [`Ucounts::force`], and its maker is asked before
//! ([`crate::Credentials::may_take_more`]).
//!
//! Invariants: a count is the sum of the [`Charge`]s that live here and below; a refused charge
//! leaves no trace. Of memory only users of the initial namespace have counts
//! ([`Ucounts::outermost`]): namespaces have no limits of it, and what is charged keeps no
//! namespace, as a charge keeps whom it is charged to: a file that was made in one may stay, and
//! keyrings that end with one must not keep it. The table of users is a leaf lock; counts need none. Memory is charged by most
//! calls of all threads of a user, so its count is kept in parts, a thread's in one of them
//! ([`Parts`]). What comes to the total of a user of the initial namespace counts within its
//! container's limit of memory as well ([`count_in`]).

use crate::userns::UserNs;
use clas::Clas;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::{Duration, Instant};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    UserNamespaces,
    PidNamespaces,
    UtsNamespaces,
    IpcNamespaces,
    NetNamespaces,
    MntNamespaces,
    CgroupNamespaces,
    TimeNamespaces,
    InotifyInstances,
    InotifyWatches,
    FanotifyGroups,
    FanotifyMarks,
    EpollWatches,
    /// Requests that contexts of asynchronous I/O are made for (`fs.aio-max-nr`).
    AioRequests,
    /// Threads.
    Tasks,
    /// Threads, and processes that have ended and wait to be waited for: `RLIMIT_NPROC`.
    Processes,
    /// Queued signals and POSIX timers: `RLIMIT_SIGPENDING`.
    Signals,
    /// Bytes that POSIX message queues may fill: `RLIMIT_MSGQUEUE`.
    MessageQueues,
    /// Files in SCM_RIGHTS messages that wait.
    FilesInFlight,
    /// System V objects of each kind.
    ShmIds,
    SemIds,
    MsgIds,
    /// Pages that are registered with rings: `RLIMIT_MEMLOCK`.
    LockedPages,
    /// Words that requests of rings wait at.
    FutexWaits,
    /// Pages that pipes may fill.
    PipePages,
    /// Descriptors of the host, of which the Gofer and this process have few: one for each file of
    /// the host's that is in use or remembered, charged to the user that looked it up first. A user
    /// that keeps another's in use is charged, too ([`crate::Credentials::hold`]).
    HostFiles,
    /// Bytes of the kernel's memory.
    Kmem,
}

impl Kind {
    /// Whether the limit is a process's.
    fn is_rlimit(self) -> bool {
        matches!(
            self,
            Kind::Tasks
                | Kind::Processes
                | Kind::Signals
                | Kind::MessageQueues
                | Kind::FilesInFlight
                | Kind::LockedPages
                | Kind::FutexWaits
        )
    }
}

const KINDS: usize = Kind::Kmem as usize + 1;

/// A count of bytes that many threads change, as Linux's `percpu_counter`: each changes a part that
/// few others do, and brings a part that has become large to the total. So the total is wrong by
/// less than [`Parts::SLACK`], and exact with the parts.
#[derive(Debug, Default)]
struct Parts {
    total: AtomicI64,
    parts: [Part; Parts::COUNT],
}

/// In a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Part(AtomicI64);

impl Parts {
    const COUNT: usize = 16;
    /// The most that stays in one part.
    const BATCH: i64 = 32 << 10;
    const SLACK: i64 = Self::BATCH * Self::COUNT as i64;

    /// The part of the calling thread.
    fn own(&self) -> &AtomicI64 {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            // The host thread's, whichever task it runs: any part would do, one for each thread has
            // no contention.
            static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % Parts::COUNT;
        }
        // A thread that ends may have none any more.
        &self.parts[OWN.try_with(|i| *i).unwrap_or(0)].0
    }
    /// What came to the total by it.
    fn add(&self, n: i64) -> i64 {
        let own = self.own();
        let now = own.fetch_add(n, Ordering::Relaxed) + n;
        if now.abs() < Self::BATCH {
            return 0;
        }
        let moved = own.swap(0, Ordering::Relaxed);
        self.total.fetch_add(moved, Ordering::Relaxed);
        moved
    }
    fn get(&self) -> i64 {
        let parts = self.parts.iter().map(|p| p.0.load(Ordering::Relaxed));
        self.total.load(Ordering::Relaxed) + parts.sum::<i64>()
    }
    /// Whether it is more than `limit`; the parts are asked only where they make the difference.
    fn is_above(&self, limit: i64) -> bool {
        let total = self.total.load(Ordering::Relaxed);
        total > limit.saturating_sub(Self::SLACK) && self.get() > limit
    }
}

/// The most of each kind that a user may hold, where nothing else says it.
#[derive(Debug)]
pub struct Limits([AtomicI64; KINDS]);

/// Threads and processes are the largest kind: as on Linux, half of what there can be.
const NAMESPACES: i64 = 2_000;
/// Threads of one user: each costs threads of the host's, which the sandbox has a bounded number
/// of.
pub const TASKS: i64 = 3_000;
/// Processes of one user, with zombies: half of what there can be.
pub const PROCESSES: i64 = 16_000;
/// Files of one user in flight, whatever its RLIMIT_NOFILE says: the collection of garbage walks
/// them all.
pub const FILES_IN_FLIGHT: i64 = 16_384;
/// What a user's objects may take of the kernel's memory, bytes, before the machine's memory is
/// known.
const KMEM: i64 = 256 << 20;

impl Limits {
    fn initial() -> Limits {
        let l = Limits::none();
        for k in 0..=Kind::TimeNamespaces as usize {
            l.0[k].store(NAMESPACES, Ordering::Relaxed);
        }
        l.set(Kind::InotifyInstances, 128);
        l.set(Kind::InotifyWatches, 65_536);
        l.set(Kind::FanotifyGroups, 128);
        l.set(Kind::FanotifyMarks, 65_536);
        l.set(Kind::EpollWatches, 1 << 18);
        l.set(Kind::AioRequests, 1 << 16);
        l.set(Kind::Tasks, TASKS);
        l.set(Kind::Processes, PROCESSES);
        l.set(Kind::FilesInFlight, FILES_IN_FLIGHT);
        l.set(Kind::HostFiles, i64::MAX);
        l.set(Kind::Kmem, KMEM);
        l
    }
    /// Those of a namespace that a user made: what counts is the limit above.
    pub(crate) fn none() -> Limits {
        Limits(std::array::from_fn(|_| AtomicI64::new(i64::MAX)))
    }
    #[must_use]
    pub fn get(&self, k: Kind) -> i64 {
        self.0[k as usize].load(Ordering::Relaxed)
    }
    pub fn set(&self, k: Kind, n: i64) {
        self.0[k as usize].store(n, Ordering::Relaxed);
    }
}

/// The users of a namespace that hold something, by container and id.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<HashMap<(u32, u32), Weak<Ucounts>>>);

/// Those of the initial namespace, which has no object of its own: a Sentry has one.
static INITIAL: LazyLock<(Users, Limits)> = LazyLock::new(|| (Users::default(), Limits::initial()));

/// Containers' memory, by their numbers.
static GOVERNED: Mutex<Vec<(u32, Weak<Clas>)>> = Mutex::new(Vec::new());

/// Counts the kernel's memory of this container's users within its limit from now on.
pub fn count_in(clas: &Arc<Clas>) {
    let mut all = GOVERNED.lock();
    all.retain(|(_, c)| c.strong_count() > 0);
    all.push((clas.number(), Arc::downgrade(clas)));
}

/// What one user of a namespace holds.
#[derive(Debug)]
pub struct Ucounts {
    ns: UserNs,
    uid: u32,
    /// The namespace's owner, in the namespace above.
    above: Option<Arc<Ucounts>>,
    /// Of all kinds but [`Kind::Kmem`].
    counts: [AtomicI64; KINDS - 1],
    kmem: Parts,
    /// Of a user of the initial namespace: what its memory counts in, once it was looked up.
    container: OnceLock<Weak<Clas>>,
    /// How often a charge was refused.
    refused: AtomicU64,
    /// See [`Ucounts::make_room`].
    in_vain_until: Mutex<Option<Instant>>,
    turn: Mutex<()>,
}

impl Drop for Ucounts {
    fn drop(&mut self) {
        let mut users = self.ns.users().0.lock();
        // The user may have come back meanwhile.
        if users
            .get(&self.key())
            .is_some_and(|w| w.strong_count() == 0)
        {
            users.remove(&self.key());
        }
    }
}

impl UserNs {
    fn users(&self) -> &Users {
        self.own_users().unwrap_or(&INITIAL.0)
    }
    /// The limits that hold in this namespace.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.own_limits().unwrap_or(&INITIAL.1)
    }
    /// What a user (an id of the initial namespace) holds here.
    #[must_use]
    pub fn ucounts(&self, uid: u32) -> Arc<Ucounts> {
        let key = (self.container(), uid);
        let find = |u: &HashMap<_, Weak<Ucounts>>| u.get(&key).and_then(Weak::upgrade);
        if let Some(u) = find(&self.users().0.lock()) {
            return u;
        }
        let above = self.parent().map(|p| p.ucounts(self.owner()));
        let new = Arc::new(Ucounts {
            ns: self.clone(),
            uid,
            above,
            counts: Default::default(),
            kmem: Parts::default(),
            container: OnceLock::new(),
            refused: AtomicU64::new(0),
            in_vain_until: Mutex::new(None),
            turn: Mutex::new(()),
        });
        let mut users = self.users().0.lock();
        if let Some(u) = find(&users) {
            // `new` counts nothing; its end takes the lock.
            drop(users);
            return u;
        }
        users.insert(key, Arc::downgrade(&new));
        new
    }
}

impl Ucounts {
    fn key(&self) -> (u32, u32) {
        (self.ns.container(), self.uid)
    }
    fn upwards(&self) -> impl Iterator<Item = &Ucounts> {
        std::iter::successors(Some(self), |u| u.above.as_deref())
    }
    /// The user of the initial namespace that all this counts for: for what stays when namespaces
    /// end, and keeps none.
    #[must_use]
    pub fn outermost(self: &Arc<Self>) -> Arc<Ucounts> {
        let mut u = self;
        while let Some(above) = &u.above {
            u = above;
        }
        u.clone()
    }
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }
    /// Taken, of the [outermost](Ucounts::outermost), for what holds everybody up as long as it
    /// takes and may be asked for by many: one user does one of these at a time. Before any other
    /// lock.
    pub fn turn(&self) -> &Mutex<()> {
        &self.turn
    }
    /// How much this user holds, and the users of namespaces that it owns.
    #[must_use]
    pub fn count(&self, k: Kind) -> i64 {
        match self.counts.get(k as usize) {
            Some(n) => n.load(Ordering::Relaxed),
            None => self.kmem.get(),
        }
    }
    /// Whether it is more than `limit`.
    fn is_above(&self, k: Kind, limit: i64) -> bool {
        match k {
            Kind::Kmem => self.kmem.is_above(limit),
            _ => self.count(k) > limit,
        }
    }
    /// Adds `n` at this level alone; whether it is more than `limit` then.
    fn add_here(&self, k: Kind, n: i64, limit: i64) -> bool {
        match self.counts.get(k as usize) {
            Some(count) => count.fetch_add(n, Ordering::Relaxed) + n > limit,
            None => {
                let moved = self.kmem.add(n);
                if moved != 0 && self.above.is_none() {
                    self.count_in_container(moved);
                }
                self.kmem.is_above(limit)
            }
        }
    }
    fn count_in_container(&self, bytes: i64) {
        let clas = self.container.get().cloned().or_else(|| {
            let all = GOVERNED.lock();
            let (_, clas) = all.iter().find(|c| c.0 == self.ns.container())?;
            Some(self.container.get_or_init(|| clas.clone()).clone())
        });
        if let Some(clas) = clas.and_then(|c| c.upgrade()) {
            clas.add_kernel_memory(bytes);
        }
    }
    /// How often this user was refused something.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
    fn add(&self, k: Kind, n: i64) {
        for u in self.upwards() {
            u.add_here(k, n, i64::MAX);
        }
    }
    /// Adds bytes of the kernel's memory that the caller gives back by [`Ucounts::give_back`],
    /// whatever the limits: a [`Charge`] without a reference of its own.
    pub(crate) fn take(&self, bytes: u64) {
        self.last().add(Kind::Kmem, bytes as i64);
    }
    /// See [`Ucounts::take`].
    pub(crate) fn give_back(&self, bytes: u64) {
        self.last().add(Kind::Kmem, -(bytes as i64));
    }
    fn last(&self) -> &Ucounts {
        self.upwards().last().unwrap_or(self)
    }
    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0 && self.ns.is_initial()
    }
    /// Calls `free`, by which the count that `used` tells should fall, for this user's want. Not
    /// again and again where it frees little: what it forgets is of use to others.
    pub fn make_room(&self, used: impl Fn() -> i64, free: impl FnOnce()) {
        const PAUSE: Duration = Duration::from_millis(250);
        if self
            .in_vain_until
            .lock()
            .is_some_and(|t| Instant::now() < t)
        {
            return;
        }
        let before = used();
        free();
        if before - used() <= before / 16 {
            *self.in_vain_until.lock() = Some(Instant::now() + PAUSE);
        }
    }
    /// See [`crate::Credentials::hold`], whether there is room or not.
    #[must_use]
    pub fn hold(self: &Arc<Self>, charged: Option<Arc<Ucounts>>) -> Option<Charge> {
        let another = charged.filter(|u| !Arc::ptr_eq(u, self));
        another.map(|_| self.force(Kind::HostFiles, 1))
    }
    /// What its namespace lets this user hold. Root's memory and descriptors are the sandbox's.
    fn limit(&self, k: Kind) -> i64 {
        if matches!(k, Kind::Kmem | Kind::HostFiles) && self.is_root() {
            return i64::MAX;
        }
        self.ns.limits().get(k)
    }
    /// What no user of any namespace holds more of, whatever limits its processes have. Root's is
    /// the sandbox's.
    fn ceiling(&self, k: Kind) -> i64 {
        if k.is_rlimit() && !self.is_root() {
            INITIAL.1.get(k)
        } else {
            i64::MAX
        }
    }
    /// Adds `n` unless a count would come above its namespace's limit, or `own` for this user.
    ///
    /// The limits of processes (RLIMIT_*) are the caller's at its own level, and what was the
    /// maker's when it made the namespace at the level above (`inc_rlimit_ucounts`). The sandbox's
    /// ceiling holds at every level.
    fn try_add(&self, k: Kind, n: i64, own: i64) -> bool {
        let mut limit = own;
        for u in self.upwards() {
            let is_own = std::ptr::eq(u, self);
            if !k.is_rlimit() {
                limit = u.limit(k).min(if is_own { own } else { i64::MAX });
            }
            if u.add_here(k, n, limit.min(u.ceiling(k))) {
                for v in self.upwards() {
                    v.add_here(k, -n, i64::MAX);
                    if std::ptr::eq(v, u) {
                        break;
                    }
                }
                self.refused.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            limit = u.ns.limits().get(k);
        }
        true
    }
    /// The most that this user, or one above, holds: for limits that are the same for all. Root's
    /// is left out unless it is root who asks.
    #[must_use]
    pub fn most(&self, k: Kind) -> i64 {
        let asks = |u: &&Ucounts| u.uid == self.uid || !u.is_root();
        let counts = self.upwards().filter(asks).map(|u| u.count(k));
        counts.max().unwrap_or(0)
    }
    /// Whether this user holds more than `own` in any of its namespaces, or one above more than the
    /// sandbox's ceiling.
    #[must_use]
    pub fn has_more_than(&self, k: Kind, own: i64) -> bool {
        let most = |u: &Ucounts| if u.uid == self.uid { own } else { i64::MAX };
        self.upwards()
            .any(|u| u.count(k) > most(u).min(u.ceiling(k)))
    }
    /// Whether this user, or one above, holds more than a limit.
    #[must_use]
    pub fn is_over(&self, k: Kind) -> bool {
        self.upwards().any(|u| u.is_above(k, u.limit(k)))
    }
    /// Whether this user, or one above, holds more than half of a limit: what is idle is given
    /// back.
    #[must_use]
    pub fn is_tight(&self, k: Kind) -> bool {
        self.upwards().any(|u| u.is_above(k, u.limit(k) / 2))
    }
    /// Whether `n` more would fit by now.
    #[must_use]
    pub fn has_room(&self, k: Kind, n: u64) -> bool {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        self.upwards()
            .all(|u| u.count(k).saturating_add(n) <= u.limit(k))
    }
    /// Charges `n`; `None` where a limit is in the way. `own` is this user's limit where a process
    /// has one.
    #[must_use]
    pub fn charge(self: &Arc<Self>, k: Kind, n: u64, own: u64) -> Option<Charge> {
        let mut c = self.force(k, 0);
        c.grow(n, own).then_some(c)
    }
    /// Charges `n` whatever the limits.
    #[must_use]
    pub fn force(self: &Arc<Self>, k: Kind, n: u64) -> Charge {
        let to = match k {
            Kind::Kmem => self.outermost(),
            _ => self.clone(),
        };
        to.add(k, n as i64);
        Charge { to, kind: k, n }
    }
}

/// Something that a user holds; dropped, it is given back.
#[derive(Debug)]
pub struct Charge {
    to: Arc<Ucounts>,
    kind: Kind,
    n: u64,
}

impl Charge {
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.n
    }
    #[must_use]
    pub fn user(&self) -> &Arc<Ucounts> {
        &self.to
    }
    /// Adds `n`; whether the limits allow it.
    #[must_use]
    pub fn grow(&mut self, n: u64, own: u64) -> bool {
        let own = i64::try_from(own).unwrap_or(i64::MAX);
        let Ok(add) = i64::try_from(n) else {
            return false;
        };
        let ok = n == 0 || self.to.try_add(self.kind, add, own);
        self.n += if ok { n } else { 0 };
        ok
    }
    /// Gives `n` back, or what there is.
    pub fn shrink(&mut self, n: u64) {
        self.set(self.n.saturating_sub(n));
    }
    /// Makes it `n` whatever the limits.
    pub fn set(&mut self, n: u64) {
        if n != self.n {
            self.to.add(self.kind, n as i64 - self.n as i64);
            self.n = n;
        }
    }
    /// Makes it `n` unless that goes more than a quarter beyond a limit: for the little without
    /// which what there is makes no progress.
    #[must_use]
    pub fn resize_at_need(&mut self, n: u64) -> bool {
        let (k, was) = (self.kind, self.n);
        self.set(n);
        let most = |u: &Ucounts| u.limit(k).saturating_add(u.limit(k) / 4);
        let ok = n <= was || self.to.upwards().all(|u| u.count(k) <= most(u));
        if !ok {
            self.set(was);
        }
        ok
    }
    /// Makes it `n`; whether the limits allow it. Less is always allowed.
    #[must_use]
    pub fn resize(&mut self, n: u64) -> bool {
        if n > self.n {
            return self.grow(n - self.n, u64::MAX);
        }
        self.set(n);
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.n > 0 {
            self.to.add(self.kind, -(self.n as i64));
        }
    }
}

/// The counts of credentials, looked up at the first use. A copy of credentials looks anew: its
/// user may change.
#[derive(Default)]
pub struct Cell(OnceLock<Arc<Ucounts>>);

impl Cell {
    pub(crate) fn get_or_init(&self, look_up: impl FnOnce() -> Arc<Ucounts>) -> &Arc<Ucounts> {
        self.0.get_or_init(look_up)
    }
}

impl Clone for Cell {
    fn clone(&self) -> Cell {
        Cell::default()
    }
}
impl PartialEq for Cell {
    fn eq(&self, _: &Cell) -> bool {
        true
    }
}
impl Eq for Cell {}
impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ucounts")
    }
}

#[cfg(test)]
mod tests;
