//! Seccomp (`seccomp(2)`, `kernel/seccomp.c`): what a task forbids itself, its threads to come and
//! its children.
//!
//! A task is in no mode, in strict mode (read, write, exit, rt_sigreturn), or has a chain of
//! filters, the newest first. Children share the chain and may only add to it. All filters of the
//! chain are asked, and the sternest answer counts. For calls that the whole chain allows by their
//! number alone, a bitmap answers.
//!
//! Filters change under the task list's lock, so that `SECCOMP_FILTER_FLAG_TSYNC` sees all threads
//! as they are. A task without filters pays one load for each call. A task that ends lets go of its
//! filters ([`Seccomp::release`]), so that whoever listens learns that nobody has them any more.
//!
//! A filter may have a listener, which is asked about calls (`SECCOMP_RET_USER_NOTIF`): [`notify`].

mod listener;
pub mod notify;

use super::{Context, Task, coredump};
use abi::errno::{EACCES, EBUSY, EINVAL, ENOENT, ENOMEM, ENOSYS, ESRCH};
use abi::signal::{SIGKILL, SIGSYS};
use abi::{Errno, Result, SigInfo, nr};
pub use listener::{Listener, SIZES as NOTIF_SIZES};
use notify::{Notifications, Reply, Source};
use parking_lot::RwLock;
use seccomp::bpf::{ARCH, Data, Insn, Program};
use seccomp::{ALLOW, ERRNO, KILL_PROCESS, KILL_THREAD, LOG, TRACE, TRAP, USER_NOTIF};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use vfs::Credentials;
use vfs::ucounts::Charge;

pub const FLAG_TSYNC: u64 = 1;
pub const FLAG_LOG: u64 = 2;
pub const FLAG_SPEC_ALLOW: u64 = 4;
pub const FLAG_TSYNC_ESRCH: u64 = 16;

/// The actions, the sternest first, as `kernel.seccomp.actions_avail` names them.
pub const ACTIONS: [(u32, &str); 8] = [
    (KILL_PROCESS, "kill_process"),
    (KILL_THREAD, "kill_thread"),
    (TRAP, "trap"),
    (ERRNO, "errno"),
    (USER_NOTIF, "user_notif"),
    (TRACE, "trace"),
    (LOG, "log"),
    (ALLOW, "allow"),
];

/// A bit for each of them but the last, which cannot be logged.
pub const LOGGED: i64 = (1 << (ACTIONS.len() - 1)) - 1;

/// What `SECCOMP_GET_ACTION_AVAIL` says.
#[must_use]
pub fn action_available(action: u32) -> bool {
    ACTIONS.iter().any(|(a, _)| *a == action)
}

/// How many system-call numbers the bitmap has room for.
const NUMBERS: usize = crate::syscalls::MAX;
/// The most instructions of a chain, with four for each filter (`MAX_INSNS_PER_PATH`).
const CHAIN_MAX: usize = 32_768;
const PER_FILTER: usize = 4;

/// A bit for each system-call number.
type Bitmap = [u64; NUMBERS / 64];

/// The numbers that a program allows with any arguments.
fn allowed(program: &Program) -> Bitmap {
    let mut b = [0; NUMBERS / 64];
    for nr in 0..NUMBERS {
        if program.constant(nr as u32) == Some(ALLOW) {
            b[nr / 64] |= 1u64 << (nr % 64);
        }
    }
    b
}

/// A filter and those before it.
pub struct Filter {
    program: Program,
    prev: Option<Arc<Filter>>,
    /// Numbers that the whole chain allows with any arguments.
    allowed: Bitmap,
    /// Of the chain.
    count: usize,
    size: usize,
    /// Where it has a listener, or had one.
    source: Option<Source>,
    /// What it takes, as its maker's.
    _memory: Charge,
}

/// What a filter takes of the kernel's memory beyond its program, and for each instruction, bytes.
const FILTER: usize = 512;
const INSTRUCTION: usize = 16;

impl Filter {
    fn new(
        program: Program,
        own: &Bitmap,
        prev: Option<Arc<Filter>>,
        listener: Option<Arc<Notifications>>,
        cred: &Credentials,
    ) -> Result<Arc<Filter>> {
        let (size, count) = prev.as_ref().map_or((0, 0), |p| (p.size, p.count));
        // What is there already counts with a surcharge for each, what is new without
        // (`seccomp_attach_filter`).
        if size + program.weight() > CHAIN_MAX {
            return Err(ENOMEM);
        }
        let bytes = FILTER + program.weight() * INSTRUCTION;
        let memory = cred.kmem(bytes, ENOMEM)?;
        let mut allowed = *own;
        if let Some(p) = &prev {
            allowed
                .iter_mut()
                .zip(&p.allowed)
                .for_each(|(a, b)| *a &= b);
        }
        Ok(Arc::new(Filter {
            size: size + program.weight() + PER_FILTER,
            count: count + 1,
            program,
            prev,
            allowed,
            source: listener.map(Source),
            _memory: memory,
        }))
    }

    /// Whether the whole chain allows a call by its number.
    fn always_allows(&self, nr: u32) -> bool {
        let word = self.allowed.get(nr as usize / 64);
        word.is_some_and(|w| w >> (nr % 64) & 1 != 0)
    }

    /// The sternest answer of the chain, and the filter that gave it.
    fn run(&self, data: &Data) -> (u32, Option<&Filter>) {
        let stern = |r: u32| (r & 0xffff_0000) as i32;
        let (mut answer, mut f) = ((ALLOW, None), Some(self));
        while let Some(x) = f {
            let r = x.program.run(data);
            if stern(r) < stern(answer.0) {
                answer = (r, Some(x));
            }
            f = x.prev.as_deref();
        }
        answer
    }

    /// Whether a filter of the chain has its listener.
    fn has_listener(&self) -> bool {
        let mut f = Some(self);
        while let Some(x) = f {
            if x.source.as_ref().is_some_and(|s| s.0.is_open()) {
                return true;
            }
            f = x.prev.as_deref();
        }
        false
    }
}

/// A chain as it is, walked once: whether it has a filter is told by the filter's place in it, so
/// that TSYNC costs the chain's length and the number of threads, not their product. The walk is
/// made before the task list's lock is taken.
struct Chain {
    newest: Option<Arc<Filter>>,
    /// Where its filters are, the oldest first. `newest` keeps them there.
    places: Vec<*const Filter>,
}

impl Chain {
    fn of(newest: Option<Arc<Filter>>) -> Chain {
        let links = std::iter::successors(newest.as_ref(), |f| f.prev.as_ref());
        let mut places: Vec<_> = links.map(Arc::as_ptr).collect();
        places.reverse();
        Chain { newest, places }
    }
    /// Whether this is all of a task's.
    fn is_of(&self, newest: Option<&Arc<Filter>>) -> bool {
        self.newest.as_ref().map(Arc::as_ptr) == newest.map(Arc::as_ptr)
    }
    fn has(&self, f: &Arc<Filter>) -> bool {
        self.places.get(f.count - 1) == Some(&Arc::as_ptr(f))
    }
}

/// A call as filters see it (`struct seccomp_data`).
fn data_of(nr: u32, args: &[u64; 6], ip: u64) -> Data {
    let mut data: Data = [0; 16];
    data[0] = nr;
    data[1] = ARCH;
    let words = [ip].into_iter().chain(*args);
    for (at, w) in words.enumerate() {
        data[2 + 2 * at] = w as u32;
        data[3 + 2 * at] = (w >> 32) as u32;
    }
    data
}

/// A chain may be thousands of filters long: dropped one by one, not one within the other.
impl Drop for Filter {
    fn drop(&mut self) {
        let mut next = self.prev.take();
        while let Some(f) = next.and_then(Arc::into_inner) {
            let mut f = f;
            next = f.prev.take();
        }
    }
}

/// `SECCOMP_MODE_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    Disabled = 0,
    Strict = 1,
    Filter = 2,
}

/// A task's state.
#[derive(Default)]
pub struct Seccomp {
    /// A [`Mode`]. Written under the task list's lock.
    mode: AtomicU8,
    filter: RwLock<Option<Arc<Filter>>>,
    /// How many filters there are, or were when it let go of them.
    count: AtomicUsize,
}

impl Seccomp {
    /// A child's; under the task list's lock.
    #[must_use]
    pub fn inherit(&self) -> Seccomp {
        Seccomp {
            filter: RwLock::new(self.filter.read().clone()),
            mode: AtomicU8::new(self.mode.load(Ordering::Acquire)),
            count: AtomicUsize::new(self.count.load(Ordering::Relaxed)),
        }
    }
    /// The task ends: no call of its is to come (`seccomp_filter_release`). Under the task list's
    /// lock, after which what it had is dropped.
    #[must_use]
    pub fn release(&self) -> Option<Arc<Filter>> {
        self.filter.write().take()
    }
    /// Whether it has let go of its filters.
    fn is_released(&self) -> bool {
        self.mode() == Mode::Filter && self.filter.read().is_none()
    }
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::SeqCst) {
            0 => Mode::Disabled,
            1 => Mode::Strict,
            _ => Mode::Filter,
        }
    }
    /// Tells of a call's number whether it is allowed whatever its arguments, so that nobody need
    /// be asked.
    pub fn always(&self) -> impl Fn(u32) -> bool + use<> {
        let mode = self.mode();
        let allowed = match mode {
            Mode::Filter => self.filter.read().as_ref().map(|f| f.allowed),
            _ => None,
        };
        move |nr| match mode {
            Mode::Disabled => true,
            Mode::Strict => false,
            Mode::Filter => allowed
                .as_ref()
                .and_then(|a| a.get(nr as usize / 64))
                .is_some_and(|w| w >> (nr % 64) & 1 != 0),
        }
    }
    /// Whether the calls that may be answered by read slots, or what is laid beside them, are all
    /// [`Seccomp::always`] allowed.
    #[must_use]
    pub fn allows_read_slots(&self) -> bool {
        let always = self.always();
        platform::lanes::SLOT_CALLS.iter().all(|nr| always(*nr))
    }
    /// Whether ioctl(2) is, one command of which tells how much there is to be read.
    #[must_use]
    pub fn allows_counts(&self) -> bool {
        self.always()(platform::lanes::COUNTED)
    }
    /// How many filters there are, for `/proc/PID/status`.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
    fn set(&self, f: Arc<Filter>) {
        self.count.store(f.count, Ordering::Relaxed);
        let old = self.filter.write().replace(f);
        self.mode.store(Mode::Filter as u8, Ordering::SeqCst);
        drop(old);
    }
    fn may(&self, mode: Mode) -> Result<()> {
        let now = self.mode();
        if now == Mode::Disabled || now == mode {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }
}

/// The program of a task's `number`th filter, the oldest being the first, as it was installed
/// (`seccomp_get_filter`).
pub fn code(task: &Task, number: u64) -> Result<Vec<u8>> {
    if task.seccomp.mode() != Mode::Filter {
        return Err(EINVAL);
    }
    let newest = task.seccomp.filter.read().clone().ok_or(EINVAL)?;
    let number = usize::try_from(number).map_err(|_| ENOENT)?;
    let back = newest.count.checked_sub(number + 1).ok_or(ENOENT)?;
    let mut f = &newest;
    for _ in 0..back {
        f = f.prev.as_ref().ok_or(ENOENT)?;
    }
    let mut bytes = Vec::new();
    for i in f.program.code() {
        bytes.extend_from_slice(&i.code.to_le_bytes());
        bytes.extend_from_slice(&[i.jt, i.jf]);
        bytes.extend_from_slice(&i.k.to_le_bytes());
    }
    Ok(bytes)
}

/// Why a filter was not installed.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    Errno(Errno),
    /// This thread has filters that the caller does not have (TSYNC).
    Thread(i32),
}

impl From<Errno> for Refused {
    fn from(e: Errno) -> Refused {
        Refused::Errno(e)
    }
}

/// Enters strict mode.
pub fn set_strict(task: &Task) -> Result<()> {
    let _list = task.kernel.tasks.lock();
    task.seccomp.may(Mode::Strict)?;
    task.seccomp
        .mode
        .store(Mode::Strict as u8, Ordering::Release);
    task.withdraw_local();
    Ok(())
}

/// Whether the task may install filters: it cannot gain privileges, or has CAP_SYS_ADMIN.
pub fn may_install(task: &Task) -> Result<()> {
    if task.no_new_privs.load(Ordering::Relaxed) || task.cred().has_own(vfs::Caps::SYS_ADMIN) {
        Ok(())
    } else {
        Err(EACCES)
    }
}

/// Adds a filter to the task's, with [`FLAG_TSYNC`] to all threads of its process. Permission is
/// the caller's matter ([`may_install`]). `EBUSY` where it would be the second with a listener.
///
/// This is also how a container's own profile is applied: after [`super::exec::prepare`], before
/// the first task's thread is started, with the compiled program and no flags. It holds for every
/// process to come.
pub fn install(
    task: &Task,
    code: &[Insn],
    flags: u64,
    listener: Option<&Arc<Notifications>>,
) -> core::result::Result<(), Refused> {
    let program = Program::new(code)?;
    let own = allowed(&program);
    let syncs = flags & FLAG_TSYNC != 0;
    let known = syncs.then(|| Chain::of(task.seccomp.filter.read().clone()));
    let list = task.kernel.tasks.lock();
    task.seccomp.may(Mode::Filter)?;
    let mine = task.seccomp.filter.read().clone();
    if listener.is_some() && mine.as_ref().is_some_and(|m| m.has_listener()) {
        return Err(EBUSY.into());
    }
    let mut others = Vec::new();
    if let Some(known) = known {
        // Another thread may have given it more since.
        let chain = match known.is_of(mine.as_ref()) {
            true => known,
            false => Chain::of(mine.clone()),
        };
        others = list.threads(task.group.tgid);
        others.retain(|t| t.tid != task.tid && !t.seccomp.is_released());
        refuse_strangers(&others, &chain, flags)?;
    }
    let f = Filter::new(program, &own, mine, listener.cloned(), &task.cred())?;
    for t in &others {
        t.seccomp.set(f.clone());
        t.withdraw_local();
        if task.no_new_privs.load(Ordering::Relaxed) {
            t.no_new_privs.store(true, Ordering::Relaxed);
        }
    }
    task.seccomp.set(f);
    task.withdraw_local();
    drop(list);
    Ok(())
}

/// With TSYNC no thread may have filters that the caller does not have.
fn refuse_strangers(
    others: &[Arc<Task>],
    chain: &Chain,
    flags: u64,
) -> core::result::Result<(), Refused> {
    match others.iter().find(|t| !may_follow(t, chain)) {
        None => Ok(()),
        Some(_) if flags & FLAG_TSYNC_ESRCH != 0 => Err(Refused::Errno(ESRCH)),
        Some(t) => Err(Refused::Thread(t.tid)),
    }
}

/// Whether a thread can have these filters, as it has none that are not among them.
fn may_follow(t: &Task, chain: &Chain) -> bool {
    match t.seccomp.mode() {
        Mode::Disabled => true,
        Mode::Strict => false,
        Mode::Filter => t
            .seccomp
            .filter
            .read()
            .as_ref()
            .is_some_and(|f| chain.has(f)),
    }
}

/// What becomes of a system call.
#[derive(PartialEq, Eq, Debug)]
pub enum Verdict {
    Go,
    /// It is not done; it gives this.
    Return(u64),
    /// It is not done yet: a signal comes first.
    Interrupted(Errno),
    /// The tracer decides, which is told this.
    Trace(u16),
    /// The thread or its process ends.
    End,
}

/// Asks a task's filters about a system call. Only where [`Seccomp::mode`] is not `Disabled`.
pub fn check(cx: &mut Context, nr: u64, args: &[u64; 6], ip: u64) -> Verdict {
    let error = |e: i64| Verdict::Return((-e) as u64);
    let nr = nr as u32;
    let filter = match cx.seccomp.mode() {
        Mode::Disabled => return Verdict::Go,
        Mode::Strict => {
            if matches!(nr, nr::READ | nr::WRITE | nr::RT_SIGRETURN | nr::EXIT) {
                return Verdict::Go;
            }
            cx.exit = Some(SIGKILL.number());
            return Verdict::End;
        }
        Mode::Filter => cx.seccomp.filter.read().clone(),
    };
    let Some(filter) = filter else {
        return Verdict::Go;
    };
    if filter.always_allows(nr) {
        return Verdict::Go;
    }
    let call = data_of(nr, args, ip);
    let (answer, by) = filter.run(&call);
    let data = answer & 0xffff;
    match answer & 0xffff_0000 {
        ALLOW | LOG => Verdict::Go,
        ERRNO => error(i64::from(data.min(4095))),
        TRACE => Verdict::Trace(data as u16),
        USER_NOTIF => match by.and_then(|f| f.source.as_ref()) {
            None => error(i64::from(ENOSYS.raw())),
            Some(s) => match s.0.ask(cx, call) {
                Ok(Reply::Continue) => Verdict::Go,
                Ok(Reply::Result(v)) => Verdict::Return(v),
                Err(e) => Verdict::Interrupted(e),
            },
        },
        TRAP => {
            cx.kernel.force(&cx.task, refused(nr, ip, data));
            Verdict::Return(nr as i32 as i64 as u64)
        }
        KILL_THREAD if cx.kernel.tasks.lock().threads(cx.group.tgid).len() > 1 => {
            cx.exit = Some(SIGSYS.number());
            Verdict::End
        }
        _ => {
            // The core shows what it asked for (`syscall_rollback`).
            cx.thread.set_return(u64::from(nr));
            coredump::end_by(cx, &refused(nr, ip, data));
            Verdict::End
        }
    }
}

/// What SIGSYS tells of a call that a filter does not allow (`force_sig_seccomp`).
fn refused(nr: u32, ip: u64, data: u32) -> SigInfo {
    let mut info = SigInfo::fault(SIGSYS, 1, ip);
    info.errno = data as i32;
    info.fields[1] = u64::from(nr) | u64::from(ARCH) << 32;
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(ret: u32, prev: Option<Arc<Filter>>) -> Arc<Filter> {
        let code = [Insn {
            code: 6,
            jt: 0,
            jf: 0,
            k: ret,
        }];
        let program = Program::new(&code).unwrap();
        let own = allowed(&program);
        Filter::new(program, &own, prev, None, &Credentials::root()).unwrap()
    }

    fn answer(f: &Filter, nr: u32) -> u32 {
        f.run(&data_of(nr, &[0; 6], 0)).0
    }

    #[test]
    fn the_sternest_answer_counts() {
        let a = filter(ALLOW, None);
        assert_eq!(answer(&a, 1), ALLOW);
        assert!(a.allowed.iter().all(|w| *w == u64::MAX));
        let e = filter(ERRNO | 7, Some(a.clone()));
        assert_eq!(answer(&e, 1), ERRNO | 7);
        assert!(e.allowed.iter().all(|w| *w == 0));
        let t = filter(TRAP, Some(e.clone()));
        let l = filter(LOG, Some(t.clone()));
        assert_eq!(answer(&l, 1), TRAP);
        let k = filter(KILL_PROCESS, Some(l.clone()));
        assert_eq!(answer(&filter(KILL_THREAD, Some(k)), 1000), KILL_PROCESS);
        // Of equal answers, the newest's data.
        assert_eq!(answer(&filter(ERRNO | 9, Some(e.clone())), 1), ERRNO | 9);
        let (short, long) = (Chain::of(Some(a.clone())), Chain::of(Some(l.clone())));
        assert!(long.has(&a) && long.has(&t) && long.has(&l) && !short.has(&l));
        // One of the same depth that is another's.
        assert!(!long.has(&filter(TRAP, Some(e))));
        assert!(long.is_of(Some(&l)) && !long.is_of(Some(&a)) && !long.is_of(None));
    }

    #[test]
    fn a_long_chain_is_bounded_and_drops() {
        let mut f = filter(ALLOW, None);
        let program = || {
            Program::new(&[Insn {
                code: 6,
                jt: 0,
                jf: 0,
                k: ALLOW,
            }])
            .unwrap()
        };
        let own = allowed(&program());
        let mut n = 1;
        while let Ok(next) =
            Filter::new(program(), &own, Some(f.clone()), None, &Credentials::root())
        {
            f = next;
            n += 1;
        }
        assert_eq!(n, 3641);
        assert_eq!(f.count, n);
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || drop(f))
            .unwrap()
            .join()
            .unwrap();
    }
}
