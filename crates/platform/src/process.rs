//! Stub processes: what both platforms share.
//!
//! A stub process is one application's address space on the host. All of them, and the Sentry, share one
//! descriptor table (`CLONE_FILES`), so that the service thread can map any descriptor of the Sentry's
//! without passing it; application code makes no call that takes a descriptor.
//!
//! ## Invariants
//!
//! - A stub process is cloned from the *zygote*, which has nothing mapped but the stub's own area and never
//!   runs application code. It is the Sentry's child (`CLONE_PARENT`) and dies with the Sentry's pid
//!   namespace.
//! - What the application can write (thread areas) is believed only in what concerns that application. A
//!   thread's id comes by another way; its listener's number is checked with the host before use.
//! - A process is ended, and waited for, by its descriptor: its number may be another's when it has ended.
//! - Lock order: `Factory::zygote`, `Process::sites` → `Process::spawner` → `Process::service`. `Process::kicks`
//!   is a leaf. `Process::offers` → `Process::service`. None is held while waiting for application code.
//!   `Factory::thread_start` comes before `spawner` and `service`; it *is* held while a thread starts.

use crate::kick::Kick;
use crate::lane::Hot;
use crate::offers::Area;
use crate::sites::{Site, Sites};
use crate::{Lanes, MapOp, Prot, Sharing};
use abi::errno::{EAGAIN, EINTR, EINVAL, ENOENT, ENOMEM, ESRCH};
use abi::{Errno, Result};
use hostcall::bpf::{self, Program};
use hostcall::mem::{Mapping, memfd};
use hostcall::{HostFd, MemSlice, RawFd, process as host};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stub::lane::{TABLE, TABLE_LEN};
use stub::{AREA_LEN, AREAS, COMMAND_LEN, Symbol, area};
use wait::Spinners;

/// The host signal that interrupts application threads. A standard one: it queues at most once.
pub const KICK: i32 = libc::SIGUSR2;

/// The control file: command pages and thread areas of all stub processes, in units of [`AREA_LEN`].
const CONTROL_UNITS: usize = 1 << 17;

/// A process that had more threads at a time is not used again.
const AREAS_KEPT: usize = 8;

/// So many descriptors are looked at for listeners that nobody knows of, each time that one may be lost.
const SWEEP: RawFd = 1 << 14;
/// The highest number of a descriptor that is looked at.
const SWEEP_MAX: u64 = 1 << 20;

/// The numbers of the listeners in use.
type Claimed = Arc<Mutex<HashSet<RawFd>>>;

/// A seccomp listener that is ours.
pub struct Listener {
    /// `None` only while dropped.
    fd: Option<HostFd>,
    claimed: Claimed,
}

impl Listener {
    /// A number read from an application's memory is believed only if the host says that it is a listener
    /// and nobody has claimed it.
    fn claim(fd: RawFd, claimed: &Claimed) -> Option<Listener> {
        let mut numbers = claimed.lock();
        (host::is_listener(fd) && numbers.insert(fd)).then(|| Listener {
            fd: Some(HostFd::from_raw(fd)),
            claimed: claimed.clone(),
        })
    }

    pub fn raw(&self) -> RawFd {
        self.fd.as_ref().expect("until drop").raw()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Under the lock: forgotten first it could be claimed once more, closed first its number could be
        // given out again.
        let claimed = self.claimed.clone();
        let mut numbers = claimed.lock();
        let fd = self.raw();
        self.fd = None;
        numbers.remove(&fd);
    }
}

/// Which way application threads are driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drive {
    Notify,
    Ptrace,
}

/// The control file and the zygote.
pub struct Factory {
    pub drive: Drive,
    control: HostFd,
    map: Mapping,
    units: Mutex<Units>,
    zygote: Mutex<Zygote>,
    /// Readable when the zygote has ended.
    pub zygote_end: HostFd,
    /// Held from a thread's clone until its descriptor or its tracer is known to be its own.
    pub thread_start: Mutex<()>,
    /// The descriptors that are listeners in use.
    listeners: Claimed,
    /// Where the search for lost ones goes on, and the end of all.
    sweep: Mutex<RawFd>,
    sweep_end: RawFd,
    /// The stub's code. The zygote maps it by number, soon after its start: it must stay open.
    _text: HostFd,
    /// Ends processes that block the kick.
    pub watchdog: crate::kick::Watchdog,
    /// Takes ended processes down.
    pub reaper: crate::recycle::Reaper,
    /// Keeps them for the next program.
    pub pool: crate::recycle::Pool,
    /// How many threads rest.
    resting: AtomicU32,
    /// Where the host's vDSO is in every stub process.
    pub host_vdso: Option<u64>,
    /// Which call sites' lanes there are.
    pub lanes: Lanes,
    /// Who spins for a mailbox.
    pub spinners: Arc<Spinners>,
}

struct Zygote {
    command: Unit,
    area: Unit,
    seq: u32,
}

#[derive(Default)]
struct Units {
    free: Vec<u32>,
    next: u32,
    /// Where runs were that are given back.
    runs: Vec<u32>,
}

/// Units in a row, for what is offered ([`crate::offers`]).
pub struct Run(u32);

const RUN: u32 = (stub::offers::LEN / AREA_LEN) as u32;

impl Run {
    pub fn offset(&self) -> u64 {
        u64::from(self.0) * AREA_LEN
    }
}

/// A unit of the control file, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit(u32);

impl Unit {
    fn offset(self) -> u64 {
        u64::from(self.0) * AREA_LEN
    }
}

impl Factory {
    /// Makes the control file and the zygote. Must be called while the process has one thread.
    pub fn new(drive: Drive, lanes: Lanes) -> Result<Arc<Factory>> {
        let control = memfd(c"cloister-control")?;
        let len = CONTROL_UNITS * AREA_LEN as usize;
        hostcall::file::ftruncate(control.raw(), len as u64)?;
        let map = Mapping::shared(control.raw(), 0, len)?;
        let text = text_image()?;
        let mut units = Units::default();
        let mut take = || {
            units.next += 1;
            Unit(units.next - 1)
        };
        let (command, zarea) = (take(), take());
        host::reap_children_by_host()?;
        let vdso = crate::zygote::host_vdso();
        let zygote_end = crate::zygote::start(
            &text,
            &control,
            command.offset(),
            zarea.offset(),
            &vdso,
            drive,
        )?;
        Ok(Arc::new(Factory {
            drive,
            control,
            map,
            units: Mutex::new(units),
            zygote_end,
            zygote: Mutex::new(Zygote {
                command,
                area: zarea,
                seq: 0,
            }),
            thread_start: Mutex::new(()),
            listeners: Claimed::default(),
            sweep: Mutex::new(0),
            sweep_end: hostcall::start::rlimit(libc::RLIMIT_NOFILE)
                .map_or(SWEEP_MAX, |(_, hard)| hard.min(SWEEP_MAX)) as RawFd,
            _text: text,
            watchdog: crate::kick::Watchdog::default(),
            reaper: crate::recycle::Reaper::default(),
            pool: crate::recycle::Pool::default(),
            resting: AtomicU32::new(0),
            host_vdso: crate::zygote::moved_vdso(&vdso),
            lanes: lanes.possible(),
            spinners: Arc::new(Spinners::new(host::cpu_count(), lanes == Lanes::Mailbox)),
        }))
    }

    /// A unit that reads as zeros.
    fn take_unit(&self) -> Result<Unit> {
        let mut u = self.units.lock();
        match u.free.pop() {
            Some(n) => Ok(Unit(n)),
            None if (u.next as usize) < CONTROL_UNITS => {
                u.next += 1;
                Ok(Unit(u.next - 1))
            }
            None => Err(EAGAIN),
        }
    }

    /// Takes back a unit that nobody maps any more. The next to have it may be another user's process: it must
    /// find nothing of this one's registers and addresses.
    fn give_unit(&self, u: Unit) {
        self.clear_unit(u);
        self.units.lock().free.push(u.0);
    }

    /// Makes a unit read as zeros.
    fn clear_unit(&self, u: Unit) {
        if hostcall::mem::punch_hole(self.control.raw(), u.offset(), AREA_LEN).is_err() {
            self.unit(u).zero();
        }
    }

    /// A run that reads as zeros. None beyond the first half of all units: who gets none goes on without.
    fn take_run(&self) -> Result<Run> {
        let mut u = self.units.lock();
        match u.runs.pop() {
            Some(n) => Ok(Run(n)),
            None if ((u.next + RUN) as usize) < CONTROL_UNITS / 2 => {
                u.next += RUN;
                Ok(Run(u.next - RUN))
            }
            None => Err(EAGAIN),
        }
    }

    /// As [`Factory::give_unit`].
    pub fn give_run(&self, r: &Run) {
        let len = stub::offers::LEN;
        if hostcall::mem::punch_hole(self.control.raw(), r.offset(), len).is_err() {
            self.run(r).zero();
        }
        self.units.lock().runs.push(r.0);
    }

    /// The Sentry's view of a run.
    pub fn run(&self, r: &Run) -> MemSlice<'_> {
        let len = stub::offers::LEN as usize;
        self.map.slice().sub(r.offset() as usize, len)
    }

    /// The Sentry's view of a unit.
    pub fn unit(&self, u: Unit) -> MemSlice<'_> {
        self.map.slice().sub(u.offset() as usize, AREA_LEN as usize)
    }

    /// A new stub process with its service thread.
    pub fn new_process(self: &Arc<Self>) -> Result<Process> {
        let command = self.take_unit()?;
        let area0 = self.take_unit().inspect_err(|_| self.give_unit(command))?;
        let (pid, pidfd) = self.clone_zygote(command, area0).inspect_err(|_| {
            self.give_unit(command);
            self.give_unit(area0);
        })?;
        let p = Process {
            factory: self.clone(),
            pid,
            pidfd,
            command,
            area0,
            spawner: Mutex::new(Spawner {
                seq: distance(),
                areas: Areas::default(),
            }),
            service: Mutex::new(Service::Down),
            dead: AtomicBool::new(false),
            threads: AtomicU32::new(0),
            spare: Mutex::new(None),
            resting: Mutex::default(),
            ended_by_host: AtomicBool::new(false),
            cpu_before: AtomicU64::new(0),
            sites: Mutex::new(Arc::default()),
            sites_number: AtomicU64::new(0),
            site_unit: AtomicU32::new(NO_UNIT),
            table_due: AtomicBool::new(false),
            trapped: Mutex::default(),
            kicks: Mutex::new(Vec::new()),
            offers: Mutex::new(Offers::None),
            offers_ended: AtomicBool::new(false),
        };
        p.start_service()?;
        Ok(p)
    }

    /// Closes some of the listeners that nobody knows of: of threads of hostile applications, which hid the number
    /// from us. The caller holds `thread_start`, so that there are no others.
    fn sweep_listeners(&self) {
        let mut at = self.sweep.lock();
        let end = (*at + SWEEP).min(self.sweep_end);
        for fd in *at..end {
            drop(Listener::claim(fd, &self.listeners));
        }
        *at = if end == self.sweep_end { 0 } else { end };
    }

    /// Has the zygote make a process; its id and its descriptor.
    fn clone_zygote(&self, command: Unit, area0: Unit) -> Result<(i32, HostFd)> {
        let mut z = self.zygote.lock();
        let cmd = self.unit(z.command);
        let za = self.unit(z.area);
        za.sub(area::READY as usize, 4).zero();
        let flags = libc::CLONE_PARENT | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
        write_words(
            cmd,
            stub::CMD_OP,
            &[
                stub::OP_PROCESS,
                flags as u64,
                AREAS + area::PIDFD,
                area0.offset(),
                AREAS,
                command.offset(),
                self.control.raw() as u64,
            ],
        );
        z.seq = z.seq.wrapping_add(1);
        kick_spawner(cmd, z.seq);
        wait_ready(za, &self.zygote_end)?;
        let pid = read_i32(za, area::RESULT);
        if pid <= 0 {
            return Err(Errno::new(-pid).unwrap_or(EAGAIN));
        }
        // In the descriptor table that we share.
        Ok((pid, HostFd::from_raw(read_i32(za, area::PIDFD))))
    }
}

fn word(m: MemSlice<'_>, offset: u64) -> &AtomicU32 {
    m.sub(offset as usize, 4).atomic_u32().expect("aligned")
}

fn read_i32(m: MemSlice<'_>, offset: u64) -> i32 {
    word(m, offset).load(Ordering::Acquire) as i32
}

fn write_words(m: MemSlice<'_>, offset: u64, words: &[u64]) {
    for (i, w) in words.iter().enumerate() {
        m.sub(offset as usize + i * 8, 8)
            .copy_from(&w.to_le_bytes());
    }
}

fn kick_spawner(cmd: MemSlice<'_>, seq: u32) {
    word(cmd, 0).store(seq, Ordering::Release);
    host::futex_wake(word(cmd, 0), 1);
}

/// A step of a spawner's sequence that tells nothing of how many there were.
fn distance() -> u32 {
    let mut b = [0; 4];
    hostcall::time::random(&mut b);
    u32::from_le_bytes(b) >> 1
}

/// Whether a descriptor of a process says that it has ended.
fn has_ended(pidfd: &HostFd) -> bool {
    readable_within(&[pidfd.raw()], 0)
}

/// Waits until one of these can be read, so many milliseconds at most; whether one can. (Of processes: has ended.)
pub fn readable_within(fds: &[RawFd], millis: i32) -> bool {
    let mut f: SmallVec<[libc::pollfd; 16]> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    hostcall::file::poll(&mut f, millis).is_ok_and(|n| n > 0)
}

/// Waits until the zygote says that it is done; `ESRCH` if it is gone. (No application code can write there.)
fn wait_ready(a: MemSlice<'_>, end: &HostFd) -> Result<()> {
    let ready = word(a, area::READY);
    // A hand-over usually takes some tens of microseconds.
    while ready.load(Ordering::Acquire) == 0 {
        let _ = host::futex_wait(ready, 0, 50);
        if ready.load(Ordering::Acquire) == 0 && has_ended(end) {
            return Err(ESRCH);
        }
    }
    Ok(())
}

/// How long a thread's start may take, and the end of one that failed. Only hostile code makes them last: all
/// threads of the sandbox start one after the other.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The same where nobody waits for it, and no application code runs.
const RENEW_LIMIT: Duration = Duration::from_millis(250);
/// How long a process that is dropped is waited for.
const DROP_LIMIT: Duration = Duration::from_secs(2);
/// How long its threads may take to come out of application code.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);

/// Waits until `f` gives something, woken by the thread whose area this is. What the area says is only a
/// reason to look: application code can write it. `ESRCH` when the process is gone or time is up.
fn wait_start<T>(
    a: MemSlice<'_>,
    pidfd: &HostFd,
    until: Instant,
    mut f: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let ready = word(a, area::READY);
    loop {
        if let Some(x) = f()? {
            return Ok(x);
        }
        if Instant::now() > until {
            return Err(ESRCH);
        }
        if let Err(e) = host::futex_wait(ready, 0, 50) {
            if has_ended(pidfd) {
                return Err(ESRCH);
            }
            if e == EAGAIN {
                // Up already, or so it is said.
                std::thread::yield_now();
            }
        }
    }
}

#[derive(Default)]
struct Areas {
    /// Numbers of thread areas that are mapped and free; 0 is the service thread's.
    free: Vec<u32>,
    /// What is mapped at each number from 1 on, until the process ends or is renewed.
    units: Vec<Unit>,
    /// What else is mapped as long: trampolines.
    others: Vec<Unit>,
}

struct Spawner {
    seq: u32,
    areas: Areas,
}

enum Service {
    Down,
    /// Waiting in the notification with this id.
    Up {
        listener: Listener,
        id: u64,
    },
}

/// One stub process.
pub struct Process {
    pub factory: Arc<Factory>,
    pub pid: i32,
    pidfd: HostFd,
    command: Unit,
    area0: Unit,
    spawner: Mutex<Spawner>,
    service: Mutex<Service>,
    dead: AtomicBool,
    /// Application threads that use an area.
    threads: AtomicU32,
    /// One that waits at its start for [`Process::new_thread`].
    spare: Mutex<Option<RawThread>>,
    /// Threads whose tasks have ended, at most [`RESTING_MAX`]: they wait in the event call for other tasks of the same
    /// program. They are none of `threads`.
    resting: Mutex<SmallVec<[RawThread; 1]>>,
    /// It had ended before anybody here ended it.
    ended_by_host: AtomicBool,
    /// CPU time that earlier programs used.
    cpu_before: AtomicU64,
    /// Its patched call sites. Changed by the holder of the memory manager's lock only.
    sites: Mutex<Arc<Sites>>,
    /// How often they have changed; changed under `sites`.
    sites_number: AtomicU64,
    /// Its application threads: the memory of who runs.
    kicks: Mutex<Vec<Arc<Kick>>>,
    /// The unit with their table and trampolines, once it is mapped; else [`NO_UNIT`]. Changed as `sites` are.
    site_unit: AtomicU32,
    /// Where what its reads may find is offered.
    offers: Mutex<Offers>,
    /// There shall be none any more.
    offers_ended: AtomicBool,
    /// The unit is not mapped yet: that comes with the first mapping of the application's.
    table_due: AtomicBool,
    /// Counts the calls that trap and could be answered where they are made. A leaf.
    pub trapped: Mutex<Hot<16>>,
}

enum Offers {
    /// Nobody has asked for it yet.
    None,
    Area(Arc<Area>),
    /// There could be none; what may be mapped nevertheless.
    Failed(Option<Arc<Area>>),
}

/// How many threads of a process rest at most, and how many of all: each is a thread of the host's.
const RESTING_MAX: usize = 4;
const RESTING_ALL: u32 = 64;
/// How long a process whose service thread is gone may take until it is gone itself.
const LOST_MILLIS: i32 = 50;
/// Unit 0 is the zygote's.
const NO_UNIT: u32 = 0;
/// There was one: its table is not mapped any more.
const DROPPED: u32 = u32::MAX;

/// A thread just started in a stub process, and what it uses.
pub struct RawThread {
    pub tid: i32,
    pub area_no: u32,
    pub unit: Unit,
    /// Only with [`Drive::Notify`].
    pub listener: Option<Listener>,
    /// It has served: it waits in this event, by its number and the address of its frame.
    pub rests: Option<(u64, u64)>,
    /// CPU time that it had used before it served again.
    pub cpu_before: u64,
}

/// A call for the service thread.
type Call = [u64; 7];

impl Process {
    fn start_service(&self) -> Result<()> {
        let start = stub::address(Symbol::Service);
        let t = self.spawn(start, 0, self.area0, Listens::Yes, START_LIMIT)?;
        let listener = t.listener.expect("asked for");
        let n = recv(&listener).map_err(|_| ESRCH)?;
        *self.service.lock() = Service::Up { listener, id: n.id };
        Ok(())
    }

    /// Clones a thread at `start`; returns when it is up.
    fn spawn(
        &self,
        start: u64,
        area_no: u32,
        unit: Unit,
        listens: Listens,
        limit: Duration,
    ) -> Result<RawThread> {
        let a = self.factory.unit(unit);
        let va = AREAS + u64::from(area_no) * AREA_LEN;
        a.sub(0, area::PID as usize).zero();
        let numbers = (area::WORDS_END - area::PID) as usize;
        a.sub(area::PID as usize, numbers)
            .copy_from(&[0xff; (area::WORDS_END - area::PID) as usize]);
        write_words(
            a,
            area::STACK_T,
            &[va + area::STACK, 0, AREA_LEN - area::STACK],
        );
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        let control = self.factory.control.raw();
        let _one_at_a_time = self.factory.thread_start.lock();
        let until = Instant::now() + limit;
        let cmd = self.factory.unit(self.command);
        let mut s = self.spawner.lock();
        // No thread has this number.
        hostcall::file::set_position(control, 0)?;
        write_words(
            cmd,
            stub::CMD_OP,
            &[
                stub::OP_THREAD,
                flags as u64,
                0,
                start,
                va,
                0,
                control as u64,
            ],
        );
        s.seq = s.seq.wrapping_add(1);
        kick_spawner(cmd, s.seq);
        let result = wait_start(a, &self.pidfd, until, || {
            Ok(Some(hostcall::file::position(control)?).filter(|p| *p != 0))
        });
        drop(s);
        let tid = match result {
            Ok(n) if n >> stub::FAILED_BIT != 0 => {
                return Err(Errno::new(n as u32 as i32).unwrap_or(EAGAIN));
            }
            Ok(n) => n as i32,
            Err(e) => {
                self.kill();
                self.factory.sweep_listeners();
                return Err(e);
            }
        };
        let listener = match listens {
            Listens::No => None,
            Listens::Yes => Some(self.find_listener(a, tid, until)?),
        };
        if let Some(l) = &listener {
            // Before 6.6 there is no synchronous wake-up; everything works without.
            let _ = host::notif_sync_wake_up(l.raw(), true);
        }
        Ok(RawThread {
            tid,
            area_no,
            unit,
            listener,
            rests: None,
            cpu_before: 0,
        })
    }

    /// The listener of a thread that starts. Its number stands in the thread's area, where other threads of
    /// the application can write: a false one ends the process, and the thread's first notification shows
    /// whose it is.
    fn find_listener(&self, a: MemSlice<'_>, tid: i32, until: Instant) -> Result<Listener> {
        let said = wait_start(a, &self.pidfd, until, || {
            Ok(Some(read_i32(a, area::LISTENER)).filter(|fd| *fd != 0))
        });
        let failed = match said {
            Ok(fd) if fd > 0 => match Listener::claim(fd, &self.factory.listeners) {
                Some(l) => return Ok(l),
                None => ESRCH,
            },
            // Without a filter the thread ends: there is no descriptor, or no memory.
            Ok(e) => {
                let ended = wait_start(a, &self.pidfd, until, || {
                    Ok(host::tgkill(self.pid, tid, 0).is_err().then_some(()))
                });
                match ended {
                    Ok(()) => return Err(Errno::new(e.wrapping_neg()).unwrap_or(EAGAIN)),
                    Err(e) => e,
                }
            }
            Err(e) => e,
        };
        self.kill();
        self.factory.sweep_listeners();
        Err(failed)
    }

    /// A new application thread.
    pub fn new_thread(&self) -> Result<RawThread> {
        if let Some(t) = self.spare.lock().take() {
            return Ok(t);
        }
        let rested = self.resting.lock().pop();
        match rested {
            Some(mut t) => {
                self.threads.fetch_add(1, Ordering::Relaxed);
                self.factory.resting.fetch_sub(1, Ordering::Relaxed);
                t.cpu_before = self.thread_cpu_nanos(t.tid, t.area_no, t.unit);
                Ok(t)
            }
            None => self.new_thread_within(START_LIMIT),
        }
    }

    /// A thread whose task has ended waits for another of the same program. Given back where there are enough, or where
    /// it was the last: the process as a whole serves again.
    pub fn rest(&self, t: RawThread) -> core::result::Result<(), RawThread> {
        let mut resting = self.resting.lock();
        let one_more = |n: u32| (n < RESTING_ALL).then_some(n + 1);
        let all = &self.factory.resting;
        if self.dead.load(Ordering::Acquire)
            || self.thread_count() <= 1
            || resting.len() >= RESTING_MAX
            || all
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                .is_err()
        {
            return Err(t);
        }
        resting.push(t);
        self.threads.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the threads that rest, or the process, where one does not obey.
    fn end_resting(&self) {
        let resting = std::mem::take(&mut *self.resting.lock());
        let (n, all) = (resting.len() as u32, &self.factory.resting);
        all.fetch_sub(n, Ordering::Relaxed);
        self.threads.fetch_add(n, Ordering::Relaxed);
        let end = |t: &RawThread| {
            let (listener, (id, _)) = (t.listener.as_ref()?, t.rests?);
            host::notif_send(listener.raw(), id, stub::REPLY_EXIT as i64).ok()
        };
        let told: SmallVec<[bool; RESTING_MAX]> =
            resting.iter().map(|t| end(t).is_some()).collect();
        let until = Instant::now() + RENEW_LIMIT;
        for (t, told) in resting.into_iter().zip(told) {
            let limit = until.saturating_duration_since(Instant::now());
            let Some(listener) = t.listener else { continue };
            release_after(self, t.area_no, listener, !told, limit);
        }
    }

    fn new_thread_within(&self, limit: Duration) -> Result<RawThread> {
        let (area_no, unit) = self.take_area()?;
        let (start, listens) = match self.factory.drive {
            Drive::Notify => (Symbol::Thread, Listens::Yes),
            Drive::Ptrace => (Symbol::ThreadTraced, Listens::No),
        };
        self.threads.fetch_add(1, Ordering::Relaxed);
        // Where that fails there is no thread, or soon no process.
        self.spawn(stub::address(start), area_no, unit, listens, limit)
            .inspect_err(|_| self.give_area(area_no))
    }

    /// An area that is mapped and that no thread uses.
    fn take_area(&self) -> Result<(u32, Unit)> {
        let (no, unit) = {
            let mut s = self.spawner.lock();
            let Areas { free, units, .. } = &mut s.areas;
            if let Some(no) = free.pop() {
                return Ok((no, units[no as usize - 1]));
            }
            let no = units.len() as u32 + 1;
            if AREAS + u64::from(no + 1) * AREA_LEN > stub::HIGH {
                return Err(EAGAIN);
            }
            let unit = self.factory.take_unit()?;
            units.push(unit);
            (no, unit)
        };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let mapped = self.batch(&[[
            libc::SYS_mmap as u64,
            AREAS + u64::from(no) * AREA_LEN,
            AREA_LEN,
            3,
            flags as u64,
            self.factory.control.raw() as u64,
            unit.offset(),
        ]]);
        match mapped {
            Ok(()) => Ok((no, unit)),
            Err(e) => {
                let mut s = self.spawner.lock();
                // Others may have come after it: then its number stays unused.
                if s.areas.units.len() == no as usize {
                    s.areas.units.pop();
                    drop(s);
                    self.factory.give_unit(unit);
                }
                Err(e)
            }
        }
    }

    /// Takes back the area of a thread that has ended.
    pub fn give_area(&self, area_no: u32) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
        self.spawner.lock().areas.free.push(area_no);
    }

    /// Whether it has no application thread, and nobody has ended it.
    pub fn is_idle(&self) -> bool {
        self.thread_count() == 0 && !self.dead.load(Ordering::Acquire)
    }

    /// Whether it has, or had, trampolines for patched call sites.
    pub fn has_sites(&self) -> bool {
        self.site_unit.load(Ordering::Acquire) != NO_UNIT
    }

    /// See [`crate::AddressSpace::was_killed`].
    pub fn was_killed(&self) -> bool {
        self.dead.load(Ordering::Acquire) && !self.ended_by_host.load(Ordering::Acquire)
    }

    /// Whether the host still has it.
    pub fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::Acquire) && !has_ended(&self.pidfd)
    }

    /// Unmaps all that was mapped for applications.
    pub fn unmap_all(&self) -> Result<()> {
        self.apply(&[MapOp::Unmap {
            va: crate::USER_MIN,
            len: crate::USER_MAX - crate::USER_MIN,
        }])
    }

    /// Makes it ready for another program: nothing of the last is left, not even how many threads there were, and a
    /// thread waits at its start. `false` if that is more work than a new process, or does not come about: then it
    /// can only be dropped.
    pub fn renew(&self) -> bool {
        self.end_resting();
        let areas = self.spawner.lock().areas.units.len() as u64;
        if areas > AREAS_KEPT as u64 || !self.is_idle() {
            return false;
        }
        let unmap = |at: u64, len: u64| [libc::SYS_munmap as u64, at, len, 0, 0, 0, 0];
        let mut calls: SmallVec<[Call; 3]> = SmallVec::new();
        if areas > 1 {
            calls.push(unmap(AREAS + 2 * AREA_LEN, (areas - 1) * AREA_LEN));
        }
        // The table, too, has stayed when all was unmapped.
        if self.has_sites() {
            calls.push(unmap(TABLE, TABLE_LEN));
            calls.push(unmap(stub::TRAMPOLINES, AREA_LEN - TABLE_LEN));
        }
        let offers = std::mem::replace(&mut *self.offers.lock(), Offers::None);
        if let Offers::Area(_) | Offers::Failed(Some(_)) = offers {
            calls.push(unmap(stub::OFFERS, stub::offers::LEN));
        }
        if !calls.is_empty() && self.batch(&calls).is_err() {
            // It is still mapped: kept until the process is gone.
            *self.offers.lock() = offers;
            return false;
        }
        if let Offers::Area(a) | Offers::Failed(Some(a)) = offers {
            a.unmapped();
        }
        self.offers_ended.store(false, Ordering::SeqCst);
        self.change_sites(|s| *s = Sites::default());
        self.site_unit.store(NO_UNIT, Ordering::Release);
        self.table_due.store(false, Ordering::Release);
        *self.trapped.lock() = Hot::default();
        {
            let mut s = self.spawner.lock();
            let more = s.areas.units.split_off(areas.min(1) as usize);
            let sites = std::mem::take(&mut s.areas.others);
            for u in more.into_iter().chain(sites) {
                self.factory.give_unit(u);
            }
            s.areas.free.retain(|no| *no == 1);
            for u in s.areas.units.iter().chain([&self.area0]) {
                self.factory.clear_unit(*u);
            }
            s.seq = s.seq.wrapping_add(distance());
        }
        let batch = stub::CMD_BATCH as usize;
        let len = COMMAND_LEN as usize - batch;
        self.factory.unit(self.command).sub(batch, len).zero();
        let used = hostcall::time::clock_nanos(self.cpu_clock()) as u64;
        self.cpu_before.store(used, Ordering::Relaxed);
        let t = self.new_thread_within(RENEW_LIMIT);
        t.map(|t| *self.spare.lock() = Some(t)).is_ok()
    }

    /// See [`crate::AddressSpace::offers`].
    pub fn offers(&self) -> Option<Arc<Area>> {
        let a = self.make_offers();
        // Who ends them beside this does not wait.
        if self.offers_ended.load(Ordering::SeqCst)
            && let Some(a) = &a
        {
            a.end();
        }
        a
    }

    fn make_offers(&self) -> Option<Arc<Area>> {
        let mut o = self.offers.lock();
        match &*o {
            Offers::Area(a) => return Some(a.clone()),
            Offers::Failed(_) => return None,
            Offers::None => {}
        }
        if self.factory.lanes == Lanes::None || self.offers_ended.load(Ordering::SeqCst) {
            return None;
        }
        // Once is enough.
        *o = Offers::Failed(None);
        let run = self.factory.take_run().ok()?;
        let a = Arc::new(Area::new(self.factory.clone(), run, self.command));
        let call = [
            libc::SYS_mmap as u64,
            stub::OFFERS,
            stub::offers::LEN,
            (libc::PROT_READ | libc::PROT_WRITE) as u64,
            (libc::MAP_SHARED | libc::MAP_FIXED) as u64,
            self.factory.control.raw() as u64,
            a.offset(),
        ];
        if self.batch(&[call]).is_err() {
            // Nobody knows whether it is mapped.
            *o = Offers::Failed(Some(a));
            return None;
        }
        a.open();
        *o = Offers::Area(a.clone());
        Some(a)
    }

    /// See [`crate::AddressSpace::end_offers`].
    pub fn end_offers(&self) {
        self.offers_ended.store(true, Ordering::SeqCst);
        // Callers hold locks that all share. Who makes them now, which takes a service call, looks afterwards.
        if let Some(o) = self.offers.try_lock()
            && let Offers::Area(a) = &*o
        {
            // It stays mapped, and the process's.
            a.end();
        }
    }

    /// How many application threads it has, about.
    pub fn thread_count(&self) -> u32 {
        self.threads.load(Ordering::Relaxed)
    }

    /// The Sentry's view of a thread's area, and its address in the stub.
    pub fn area(&self, area_no: u32, unit: Unit) -> (MemSlice<'_>, u64) {
        (
            self.factory.unit(unit),
            AREAS + u64::from(area_no) * AREA_LEN,
        )
    }

    /// Has the service thread make `calls`; stops at the first that fails.
    fn batch(&self, calls: &[Call]) -> Result<()> {
        self.batch_to(calls).map_err(|(_, e)| e)
    }

    /// As [`Process::batch`]; tells which failed.
    fn batch_to(&self, calls: &[Call]) -> core::result::Result<(), (usize, Errno)> {
        let mut s = self.service.lock();
        let Service::Up { listener, id } = &mut *s else {
            return Err((0, ESRCH));
        };
        let mut before = 0;
        let cmd = self.factory.unit(self.command);
        for part in calls.chunks(stub::BATCH_MAX) {
            for (i, c) in part.iter().enumerate() {
                write_words(cmd, stub::CMD_BATCH + 56 * i as u64, c);
            }
            MemSlice::fence();
            let r = host::notif_send(listener.raw(), *id, part.len() as i64)
                .and_then(|()| recv(listener));
            match r {
                Ok(n) => {
                    *id = n.id;
                    let result = n.data.args[1] as i64;
                    if result != 0 {
                        let e = Errno::new(-result as i32).unwrap_or(ENOMEM);
                        return Err((before + n.data.args[2] as usize, e));
                    }
                    before += part.len();
                }
                // It ends only with its process; which from now on nobody could change the mappings of.
                Err(_) => {
                    *s = Service::Down;
                    // If the host is ending it, that is over in a moment, and `kill` finds it ended.
                    readable_within(&[self.pidfd.raw()], LOST_MILLIS);
                    self.kill();
                    return Err((0, ESRCH));
                }
            }
        }
        Ok(())
    }

    /// Applies changes of the host mappings.
    pub fn apply(&self, ops: &[MapOp]) -> Result<()> {
        let table = self.site_unit.load(Ordering::Acquire);
        for part in ops.chunks(64) {
            let mut calls: SmallVec<[Call; 64]> = SmallVec::new();
            let due = self.table_due.load(Ordering::Acquire);
            if due {
                calls.extend(self.map_sites(Unit(table)));
            }
            for op in part {
                // Where all goes, what lies between the application's mappings stays: threads may be at a jump
                // that reads the table.
                if table != NO_UNIT
                    && table != DROPPED
                    && let MapOp::Unmap { va, len } = *op
                    && va < TABLE + TABLE_LEN
                    && TABLE < va.saturating_add(len)
                {
                    let (behind, end) = (TABLE + TABLE_LEN, va + len);
                    for (va, end) in [(va, TABLE), (behind, end)] {
                        if va < end {
                            let len = end - va;
                            calls.push(encode(&MapOp::Unmap { va, len })?);
                        }
                    }
                    continue;
                }
                calls.push(encode(op)?);
            }
            let mut from = 0;
            while let Err((at, e)) = self.batch_to(&calls[from..]) {
                // Advice that is not taken changes nothing.
                let advice = calls
                    .get(from + at)
                    .is_some_and(|c| c[0] == libc::SYS_madvise as u64);
                if e == ESRCH || !advice {
                    return Err(e);
                }
                from += at + 1;
            }
            if due {
                self.table_due.store(false, Ordering::Release);
            }
        }
        Ok(())
    }

    /// The calls that map trampolines and their table.
    fn map_sites(&self, unit: Unit) -> [Call; 2] {
        let mut code = self.map_table(unit);
        code[1] = stub::TRAMPOLINES;
        code[2] = AREA_LEN - TABLE_LEN;
        code[3] = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        code[6] += TABLE_LEN;
        [code, self.map_table(unit)]
    }

    /// The call that maps the table of trampolines.
    fn map_table(&self, unit: Unit) -> Call {
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
        let control = self.factory.control.raw() as u64;
        let read = libc::PROT_READ as u64;
        let mmap = libc::SYS_mmap as u64;
        [mmap, TABLE, TABLE_LEN, read, flags, control, unit.offset()]
    }

    /// Changes the sites: readers go on with those that they know until they see the number.
    fn change_sites<R>(&self, f: impl FnOnce(&mut Sites) -> R) -> R {
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

    /// Makes a trampoline for a call site; the address of its entry in the table. `None` where there are no
    /// lanes, or no more.
    pub fn add_site(&self, site: Site) -> Option<u32> {
        let unit = self.sites_unit()?;
        self.change_sites(|s| s.add(self.factory.unit(unit), site))
    }

    /// See [`crate::AddressSpace::retire_sites`].
    pub fn retire_sites(&self, r: &Range<u64>) {
        if !self.sites().0.has_live(r) {
            return;
        }
        self.settle();
        self.change_sites(|s| s.retire(r));
    }

    /// Waits until every thread that is in application code now has come out once: what it was stopped at has been
    /// looked up by then. Nothing in the Sentry that such a thread may need meanwhile is held by the caller, but the
    /// memory manager's lock, which is taken only for an event that has been given.
    fn settle(&self) {
        let stay = |k: &Arc<Kick>| k.stay().map(|s| (k.clone(), s));
        let there: Vec<(Arc<Kick>, u64)> = self.kicks.lock().iter().filter_map(stay).collect();
        for (k, _) in &there {
            crate::Interrupter::interrupt(&**k);
        }
        let until = Instant::now() + SETTLE_LIMIT;
        for (k, stay) in there {
            let mut looks = 0u32;
            // One that computes and does not take its kick is ended by the watchdog; one that waits in the host for a
            // page of a file that does not come, here.
            while k.stay() == Some(stay) {
                looks += 1;
                if looks < 50 {
                    std::thread::yield_now();
                } else if Instant::now() < until {
                    std::thread::sleep(Duration::from_micros(50));
                } else {
                    return self.kill();
                }
            }
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
    fn sites_unit(&self) -> Option<Unit> {
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

    /// See [`crate::AddressSpace::drop_sites`].
    pub fn drop_sites(&self) {
        self.retire_sites(&(0..u64::MAX));
        let before = self.site_unit.swap(DROPPED, Ordering::AcqRel);
        if self.table_due.swap(false, Ordering::AcqRel) {
            return;
        }
        if before != NO_UNIT && before != DROPPED {
            let call = [libc::SYS_munmap as u64, TABLE, TABLE_LEN, 0, 0, 0, 0];
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

    /// See [`crate::AddressSpace::count_waiter`].
    pub fn count_waiter(&self, va: u64, by: i32) {
        if self.factory.lanes == Lanes::None {
            return;
        }
        let at = stub::WAITERS + 4 * stub::waiters_slot(va);
        let count = word(self.factory.unit(self.command), at);
        count.fetch_add(by as u32, Ordering::SeqCst);
    }

    /// CPU time of all its threads (`clock_getcpuclockid(3)`).
    pub fn cpu_nanos(&self) -> u64 {
        let all = hostcall::time::clock_nanos(self.cpu_clock()) as u64;
        all.saturating_sub(self.cpu_before.load(Ordering::Relaxed))
    }

    /// The clock id of its CPU time: the inverted pid, CPUCLOCK_SCHED.
    fn cpu_clock(&self) -> i32 {
        (!self.pid << 3) | 2
    }

    /// CPU time of one thread. The host tells it within the process only, so the service thread asks. What is read
    /// from the thread's area is the application's claim about itself, and does not count against anyone else.
    fn thread_cpu_nanos(&self, tid: i32, area_no: u32, unit: Unit) -> u64 {
        let (area, base) = self.area(area_no, unit);
        // CPUCLOCK_PERTHREAD, CPUCLOCK_SCHED.
        let clock = (!tid << 3) | 6;
        let call = [
            libc::SYS_clock_gettime as u64,
            clock as u32 as u64,
            base + stub::area::CPU_TIME,
            0,
            0,
            0,
            0,
        ];
        if self.batch(&[call]).is_err() {
            return 0;
        }
        let mut t = [0u8; 16];
        area.sub(stub::area::CPU_TIME as usize, 16).copy_to(&mut t);
        let word = |at: usize| u64::from_le_bytes(t[at..at + 8].try_into().expect("8 bytes"));
        word(0)
            .saturating_mul(1_000_000_000)
            .saturating_add(word(8))
    }

    /// See [`crate::AppThread::cpu_clock`].
    pub fn thread_clock(self: &Arc<Self>, raw: &RawThread) -> crate::CpuClock {
        let process = Arc::downgrade(self);
        let (tid, area_no, unit) = (raw.tid, raw.area_no, raw.unit);
        let before = raw.cpu_before;
        Arc::new(move || {
            let p = process.upgrade();
            p.map_or(0, |p| p.thread_cpu_nanos(tid, area_no, unit))
                .saturating_sub(before)
        })
    }

    /// Ends the process. Its threads' listeners report it.
    pub fn kill(&self) {
        if !self.dead.swap(true, Ordering::AcqRel) {
            if has_ended(&self.pidfd) {
                self.ended_by_host.store(true, Ordering::Release);
            }
            let _ = host::pidfd_kill(self.pidfd.raw(), libc::SIGKILL);
        }
    }

    /// Waits until the host has taken down what was killed: all its threads have ended, and nothing is mapped by it.
    /// (It reaps it itself: SIGCHLD is ignored.) `false` if that takes longer; code of it may not run any more, but
    /// what waits for a device in the host does not end.
    pub fn wait_gone(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if readable_within(&[self.pidfd.raw()], rest.as_millis() as i32) {
                return true;
            }
            if rest.is_zero() {
                return false;
            }
        }
    }

    /// Readable when it has ended.
    pub fn end(&self) -> RawFd {
        self.pidfd.raw()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        *self.service.get_mut() = Service::Down;
        let resting = self.resting.get_mut().len() as u32;
        self.factory.resting.fetch_sub(resting, Ordering::Relaxed);
        // A dying thread may still write its area: they are given back only when the process is gone.
        let factory = self.factory.clone();
        let areas = std::mem::take(&mut self.spawner.get_mut().areas);
        let mut units = areas.units;
        units.extend(areas.others);
        units.extend([self.command, self.area0]);
        let offers = std::mem::replace(self.offers.get_mut(), Offers::None);
        if let Offers::Area(a) | Offers::Failed(Some(a)) = &offers {
            a.unmapped();
        }
        if self.wait_gone(DROP_LIMIT) {
            for u in units {
                factory.give_unit(u);
            }
        } else {
            // Nor may its memory be another's.
            std::mem::forget(offers);
        }
    }
}

/// Whether a thread has a listener.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listens {
    No,
    Yes,
}

/// Receives the next notification. `ENOENT` when nobody is left who could send one.
pub fn recv(listener: &Listener) -> Result<libc::seccomp_notif> {
    loop {
        let mut n = zeroed_notif();
        match host::notif_recv(listener.raw(), &mut n) {
            Ok(()) => return Ok(n),
            Err(EINTR) => {}
            Err(ENOENT) => {
                let mut p = [libc::pollfd {
                    fd: listener.raw(),
                    events: libc::POLLIN,
                    revents: 0,
                }];
                hostcall::file::poll(&mut p, 0)?;
                if p[0].revents & libc::POLLHUP != 0 {
                    return Err(ENOENT);
                }
            }
            Err(e) => return Err(e),
        }
    }
}

fn zeroed_notif() -> libc::seccomp_notif {
    libc::seccomp_notif {
        id: 0,
        pid: 0,
        flags: 0,
        data: libc::seccomp_data {
            nr: 0,
            arch: 0,
            instruction_pointer: 0,
            args: [0; 6],
        },
    }
}

fn encode(op: &MapOp) -> Result<Call> {
    let check = |va: u64, len: u64| {
        let end = va.checked_add(len).ok_or(EINVAL)?;
        if len == 0
            || !va.is_multiple_of(4096)
            || !len.is_multiple_of(4096)
            || end > crate::USER_MAX
        {
            return Err(EINVAL);
        }
        Ok(())
    };
    Ok(match *op {
        MapOp::Map {
            va,
            len,
            prot,
            fd,
            offset,
            sharing,
        } => {
            check(va, len)?;
            let kind = match sharing {
                Sharing::Shared => libc::MAP_SHARED,
                Sharing::Private => libc::MAP_PRIVATE,
            };
            let prot = match sharing {
                Sharing::Shared => prot,
                Sharing::Private => prot.without(Prot::WRITE),
            };
            let flags = (kind | libc::MAP_FIXED | libc::MAP_NORESERVE) as u64;
            [
                libc::SYS_mmap as u64,
                va,
                len,
                u64::from(prot.0),
                flags,
                fd as u64,
                offset,
            ]
        }
        MapOp::Unmap { va, len } => {
            check(va, len)?;
            [libc::SYS_munmap as u64, va, len, 0, 0, 0, 0]
        }
        MapOp::Protect { va, len, prot } => {
            check(va, len)?;
            [
                libc::SYS_mprotect as u64,
                va,
                len,
                u64::from(prot.0),
                0,
                0,
                0,
            ]
        }
        MapOp::Advise { va, len, advice } => {
            check(va, len)?;
            [libc::SYS_madvise as u64, va, len, advice as u64, 0, 0, 0]
        }
    })
}

/// The stub's code and filters in a memory file of their own.
fn text_image() -> Result<HostFd> {
    let fd = memfd(c"cloister-stub")?;
    let mut image = vec![0u8; stub::TEXT_LEN as usize];
    let code = stub::image();
    let filters = (stub::FILTERS - stub::TEXT) as usize;
    assert!(code.len() <= filters);
    image[..code.len()].copy_from_slice(code);
    let (app, service) = (app_filter(), service_filter());
    let mut at = (stub::FILTER_CODE - stub::TEXT) as usize;
    for (prog, p) in [(stub::APP_PROG, &app), (stub::SERVICE_PROG, &service)] {
        let head = (prog - stub::TEXT) as usize;
        image[head..head + 2].copy_from_slice(&(p.len() as u16).to_le_bytes());
        image[head + 8..head + 16].copy_from_slice(&(stub::TEXT + at as u64).to_le_bytes());
        let b = p.bytes();
        image[at..at + b.len()].copy_from_slice(&b);
        at += b.len();
    }
    let kinds = (stub::lane::KINDS_AT - stub::TEXT) as usize;
    assert!(at <= kinds);
    for nr in TRAPPED.into_iter().chain(LONG) {
        image[kinds + nr as usize] = stub::lane::KIND_TRAP;
    }
    for (nr, kind, _) in stub::lane::LOCAL {
        image[kinds + nr as usize] = kind;
    }
    for (nr, kind) in stub::lane::OFFERED {
        image[kinds + nr as usize] = kind;
    }
    hostcall::file::pwrite(fd.raw(), &image, 0)?;
    Ok(fd)
}

const _: () = assert!(COMMAND_LEN <= AREA_LEN);

/// The high half of every stub address.
const STUB_HIGH_HALF: u32 = (stub::TEXT >> 32) as u32;

/// Skips the `n` instructions that follow unless the call comes from the stub's code.
fn unless_from_stub(p: &mut Program, n: u8) {
    let low = stub::TEXT as u32;
    let end = low + (stub::FILTERS - stub::TEXT) as u32;
    p.load(bpf::IP_HIGH).skip_if_ne(STUB_HIGH_HALF, n + 3);
    p.load(bpf::IP_LOW)
        .skip_if_lt(low, n + 1)
        .skip_if_ge(end, n);
}

/// Calls that need the full registers: they trap instead of notifying. (Those that end a thread: one that waits in
/// the handler ends by an answer.)
pub const TRAPPED: [i64; 12] = [
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_arch_prctl,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigsuspend,
];

/// Calls that wait long: nobody should spin for their end.
const LONG: [i64; 4] = [
    libc::SYS_pause,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit_group,
];

/// Skips the `n` instructions that follow if the call is one that the slow lane makes for the application.
fn if_from_lane(p: &mut Program, n: u8) {
    p.load(bpf::IP_LOW)
        .skip_if_eq(stub::lane::called() as u32, n);
}

/// The filter of application threads.
///
/// From the stub's code: what the slow lane calls is the application's; the event call asks the Sentry; rt_sigreturn,
/// exit and sched_yield concern the thread alone; FUTEX_WAKE can at most wake somebody who looks again. From anywhere else: ask the Sentry.
fn app_filter() -> Program {
    let mut stub_part = Program::new();
    stub_part
        .load(bpf::NR)
        .ret_if_eq(stub::EVENT_NR, bpf::USER_NOTIF)
        .ret_if_eq(libc::SYS_rt_sigreturn as u32, bpf::ALLOW)
        .ret_if_eq(libc::SYS_exit as u32, bpf::ALLOW)
        .ret_if_eq(libc::SYS_sched_yield as u32, bpf::ALLOW)
        .skip_if_ne(libc::SYS_futex as u32, 3)
        .load(bpf::arg_low(1))
        .ret_if_eq(libc::FUTEX_WAKE as u32, bpf::ALLOW)
        .ret(bpf::KILL);
    let mut p = Program::new();
    p.load(bpf::ARCH)
        .skip_if_eq(bpf::ARCH_X86_64, 1)
        .ret(bpf::TRAP);
    unless_from_stub(&mut p, stub_part.len() as u8 + 2);
    if_from_lane(&mut p, stub_part.len() as u8);
    p.append(&stub_part);
    p.load(bpf::NR).skip_if_lt(0x4000_0000, 1).ret(bpf::TRAP);
    for nr in TRAPPED {
        p.ret_if_eq(nr as u32, bpf::TRAP);
    }
    p.ret(bpf::USER_NOTIF);
    p
}

/// The filter of the service thread: memory calls, its process's CPU clocks and the event call, from the stub's
/// code only.
fn service_filter() -> Program {
    let mut stub_part = Program::new();
    stub_part
        .load(bpf::NR)
        .ret_if_eq(stub::EVENT_NR, bpf::USER_NOTIF);
    for nr in [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_exit,
    ] {
        stub_part.ret_if_eq(nr as u32, bpf::ALLOW);
    }
    let mut p = Program::new();
    p.load(bpf::ARCH)
        .skip_if_eq(bpf::ARCH_X86_64, 1)
        .ret(bpf::KILL);
    unless_from_stub(&mut p, stub_part.len() as u8);
    p.append(&stub_part);
    p.ret(bpf::KILL);
    p
}

/// The filter of the zygote, inherited by every stub thread: what comes from the stub's code is limited to
/// what that code does, and no other call is ever made. Application code has its thread's own filter, which
/// is newer and so is the one that notifies; where it should be missing, this one, which nobody listens to,
/// gives `ENOSYS`. (A traced call never gets here.)
pub fn base_filter() -> Program {
    let mut stub_part = Program::new();
    stub_part.load(bpf::NR);
    for nr in [
        libc::SYS_futex,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_yield,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_clock_gettime,
        libc::SYS_clone,
        libc::SYS_sigaltstack,
        libc::SYS_seccomp,
        libc::SYS_lseek,
        libc::SYS_exit,
    ] {
        stub_part.ret_if_eq(nr as u32, bpf::ALLOW);
    }
    stub_part
        .ret_if_eq(stub::EVENT_NR, bpf::USER_NOTIF)
        .ret(bpf::KILL);
    let mut p = Program::new();
    // The application threads' filter, which traps, goes before it.
    p.load(bpf::ARCH)
        .skip_if_eq(bpf::ARCH_X86_64, 1)
        .ret(bpf::NO_CALL);
    unless_from_stub(&mut p, stub_part.len() as u8 + 2);
    if_from_lane(&mut p, stub_part.len() as u8);
    p.append(&stub_part);
    p.ret(bpf::USER_NOTIF);
    p
}

/// Gives back what a thread used, once it runs no more: a listener whose thread still ends reports it by
/// its hang-up.
pub fn release_after(p: &Process, area_no: u32, listener: Listener, ended: bool, limit: Duration) {
    if !ended {
        let mut f = [libc::pollfd {
            fd: listener.raw(),
            events: 0,
            revents: 0,
        }];
        // It is a few instructions from its end; a hostile one may not be: then its area is not reused.
        let _ = hostcall::file::poll(&mut f, limit.as_millis() as i32);
        if f[0].revents & libc::POLLHUP == 0 {
            p.kill();
            return;
        }
    }
    drop(listener);
    p.give_area(area_no);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter answers (classic BPF: the instructions that [`Program`] makes).
    fn verdict(p: &Program, nr: i64, ip: u64, arg1: u32) -> u32 {
        let bytes = p.bytes();
        let code: Vec<&[u8]> = bytes.chunks(8).collect();
        let (mut pc, mut a) = (0usize, 0u32);
        loop {
            let i = code[pc];
            let op = u16::from_le_bytes([i[0], i[1]]);
            let k = u32::from_le_bytes([i[4], i[5], i[6], i[7]]);
            pc += 1;
            let skip = |yes: bool| usize::from(if yes { i[2] } else { i[3] });
            match op {
                0x20 if k == bpf::ARCH => a = bpf::ARCH_X86_64,
                0x20 if k == bpf::NR => a = nr as u32,
                0x20 if k == bpf::IP_LOW => a = ip as u32,
                0x20 if k == bpf::IP_HIGH => a = (ip >> 32) as u32,
                0x20 if k == bpf::arg_low(1) => a = arg1,
                0x15 => pc += skip(a == k),
                0x35 => pc += skip(a >= k),
                0x06 => return k,
                _ => panic!("instruction {op:#x} {k:#x}"),
            }
        }
    }

    #[test]
    fn filters_allow_no_more_than_they_say() {
        let (app, service, base) = (app_filter(), service_filter(), base_filter());
        let stub_ip = stub::TEXT + 0x40;
        for nr in (0..600).chain([i64::from(stub::EVENT_NR), 0x4000_0001]) {
            for arg in [0, 1, 128, 129] {
                let wake = nr == libc::SYS_futex && arg == libc::FUTEX_WAKE as u32;
                let harmless = nr == libc::SYS_rt_sigreturn
                    || nr == libc::SYS_exit
                    || nr == libc::SYS_sched_yield
                    || wake;
                let v = verdict(&app, nr, stub_ip, arg);
                assert_eq!(v == bpf::ALLOW, harmless, "call {nr} of the stub");
                let lane = stub::lane::called();
                assert_eq!(
                    verdict(&app, nr, lane, arg),
                    verdict(&app, nr, 0x40_0000, arg)
                );
                assert_ne!(verdict(&base, nr, lane, arg), bpf::ALLOW);
                assert_ne!(verdict(&service, nr, lane, arg), bpf::TRAP);
                for ip in [
                    0x40_0000,
                    stub::TEXT - 1,
                    stub::FILTERS,
                    stub::COMMAND,
                    stub::AREAS,
                    stub::TRAMPOLINES,
                ] {
                    assert_ne!(verdict(&app, nr, ip, arg), bpf::ALLOW);
                    assert_ne!(verdict(&base, nr, ip, arg), bpf::ALLOW);
                    assert_eq!(verdict(&service, nr, ip, arg), bpf::KILL);
                }
            }
            assert_ne!(verdict(&service, libc::SYS_clone, stub_ip, 0), bpf::ALLOW);
        }
    }
}
