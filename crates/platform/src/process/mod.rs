//! Stub processes: what both platforms share.
//!
//! A stub process is one application's address space on the host. All of them, and the Sentry,
//! share one descriptor table (`CLONE_FILES`), so that the service thread can map any descriptor of
//! the Sentry's without passing it; application code makes no call that takes a descriptor.
//!
//! ## Invariants
//!
//! - A stub process is cloned from the *zygote*, which has nothing mapped but the stub's own area
//!   and never runs application code. It is the Sentry's child (`CLONE_PARENT`) and dies with the
//!   Sentry's pid namespace.
//! - What the application can write (thread areas) is believed only in what concerns that
//!   application. A thread's id comes by another way; its listener's number is checked with the
//!   host before use.
//! - A process is ended, and waited for, by its descriptor: its number may be another's when it has
//!   ended.
//! - Lock order: `Factory::zygote`, `Process::sites` → `Process::spawner` → `Process::service`.
//!   `Process::kicks` is a leaf. `Process::read_slots` → `Process::service`. None is held while
//!   waiting for application code.
//! - No lock of the factory's is held while a thread starts: an application can make that last (it
//!   may hide the word that is waited for), and others start theirs meanwhile. `Process::spawner`
//!   is, while the spawner clones: other threads of the same program wait for it.

mod clocks;
mod factory;
mod filters;
pub mod kick;
mod lanes;
mod listener;
mod maps;
mod patience;
pub mod recycle;
mod threads;
pub mod zygote;

pub use factory::{Drive, Factory, Run, Unit};
pub use filters::{TRAPPED, base_filter};
pub use listener::{Listener, recv};
pub use patience::Patience;
pub use threads::{End, RawThread, release_after};

use crate::SpaceEnd;
use crate::lanes::hot::Hot;
use crate::lanes::sites::Sites;
use crate::process::kick::Kick;
use abi::Result;
use abi::errno::ESRCH;
use abi::nr;
use hostcall::{HostFd, MemSlice, RawFd, process as host};
use lanes::{NO_UNIT, SlotArea};
use maps::Call;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stub::lane::{TABLE, TABLE_LEN};
use stub::{AREA_LEN, AREAS, COMMAND_LEN, Symbol};
use threads::Listens;

/// The host signal that interrupts application threads. A standard one: it queues at most once.
pub const KICK: i32 = libc::SIGUSR2;

/// A process that had more threads at a time is not used again.
const AREAS_KEPT: usize = 8;

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

/// Waits until one of these can be read, so many milliseconds at most; whether one can. (Of
/// processes: has ended.)
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

/// How long a thread's start may take, and the end of one that failed. Only hostile code makes them
/// last, and a host without a free CPU, whose time does not count ([`Patience`]).
const START_LIMIT: Duration = Duration::from_secs(10);

/// The same where nobody waits for it, and no application code runs.
const RENEW_LIMIT: Duration = Duration::from_millis(250);

/// How long a process that is dropped is waited for.
const DROP_LIMIT: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Areas {
    /// Numbers of thread areas that are mapped and free; 0 is the service thread's.
    free: Vec<u32>,
    /// What is mapped at each number from 1 on, until the process ends or is renewed, or the unit
    /// is given back to the file that all processes' areas are from.
    units: Vec<Option<Unit>>,
    /// Numbers with nothing mapped.
    vacant: Vec<u32>,
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
    /// Threads whose tasks have ended, at most [`IDLE_MAX`]: they wait in the event call for
    /// other tasks of the same program. They are none of `threads`.
    idle_threads: Mutex<SmallVec<[RawThread; 1]>>,
    /// A thread of it may have a listener that nobody knows of.
    hid_listener: AtomicBool,
    /// Positions of starts that were given up: its spawner may set them until it is gone.
    lost: Mutex<Vec<HostFd>>,
    /// It had ended before anybody here ended it.
    ended_by_host: AtomicBool,
    /// CPU time that earlier programs used.
    cpu_before: AtomicU64,
    /// Its clocks are its own ([`clocks`]).
    slow_clocks: AtomicBool,
    /// That was tried: no other program gets this process.
    is_marked: AtomicBool,
    /// Its patched call sites. Changed by the holder of the memory manager's lock only.
    sites: Mutex<Arc<Sites>>,
    /// How often they have changed; changed under `sites`.
    sites_number: AtomicU64,
    /// Its application threads: the memory of who runs.
    kicks: Mutex<Vec<Arc<Kick>>>,
    /// The unit with their table and trampolines, once it is mapped; else [`NO_UNIT`]. Changed as
    /// `sites` are.
    site_unit: AtomicU32,
    /// Its read slots.
    read_slots: Mutex<SlotArea>,
    /// There shall be none any more.
    slots_ended: AtomicBool,
    counts_ended: AtomicBool,
    /// The unit is not mapped yet: that comes with the first mapping of the application's.
    table_due: AtomicBool,
    /// Counts the calls that trap and could be answered where they are made. A leaf.
    pub trapped: Mutex<Hot<16>>,
}

/// How long a process whose service thread is gone may take until it is gone itself.
const LOST_MILLIS: i32 = 50;

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        *self.service.get_mut() = Service::Down;
        let idle = self.idle_threads.get_mut().len() as u32;
        self.factory.idle_threads.fetch_sub(idle, Ordering::Relaxed);
        // A dying thread may still write its area: they are given back only when the process is
        // gone.
        let factory = self.factory.clone();
        let areas = std::mem::take(&mut self.spawner.get_mut().areas);
        let mut units = areas.others;
        units.extend(areas.units.into_iter().flatten());
        units.extend([self.command, self.area0]);
        let slots = std::mem::replace(self.read_slots.get_mut(), SlotArea::None);
        if let SlotArea::Area(a) | SlotArea::Failed(Some(a)) = &slots {
            a.unmapped();
        }
        let lost = std::mem::take(self.lost.get_mut());
        if self.wait_gone(DROP_LIMIT) {
            for u in units {
                factory.give_unit(u);
            }
            if *self.hid_listener.get_mut() {
                factory.sweep_listeners();
            }
        } else {
            // Nor may its memory be another's, nor these numbers.
            std::mem::forget((slots, lost));
        }
    }
}

impl Process {
    fn start_service(&self) -> Result<()> {
        let start = stub::address(Symbol::Service);
        let patience = Patience::new(START_LIMIT);
        let (t, first) = self.spawn(start, 0, self.area0, Listens::Yes, patience)?;
        let (listener, n) = t.listener.zip(first).ok_or(ESRCH)?;
        *self.service.lock() = Service::Up { listener, id: n.id };
        Ok(())
    }

    /// Whether it has no application thread, and nobody has ended it.
    pub fn is_idle(&self) -> bool {
        let common = !self.dead.load(Ordering::Acquire) && !self.is_marked.load(Ordering::Acquire);
        self.thread_count() == 0 && common
    }

    /// See [`crate::AddressSpace::end`].
    pub fn ended(&self) -> SpaceEnd {
        if self.dead.load(Ordering::Acquire) && !self.ended_by_host.load(Ordering::Acquire) {
            return SpaceEnd::Killed;
        }
        SpaceEnd::Host(host::pidfd_status(self.pidfd.raw()))
    }

    /// Whether the host still has it.
    pub fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::Acquire) && !has_ended(&self.pidfd)
    }

    /// Makes it ready for another program: nothing of the last is left, not even how many threads
    /// there were, and a thread waits at its start. `false` if that is more work than a new
    /// process, or does not come about: then it can only be dropped.
    pub fn renew(&self) -> bool {
        self.end_idle_threads();
        let areas = self.spawner.lock().areas.units.len() as u64;
        if areas > AREAS_KEPT as u64 || !self.is_idle() {
            return false;
        }
        let unmap = |at: u64, len: u64| [nr::MUNMAP.into(), at, len, 0, 0, 0, 0];
        let mut calls: SmallVec<[Call; 3]> = SmallVec::new();
        if areas > 1 {
            calls.push(unmap(AREAS + 2 * AREA_LEN, (areas - 1) * AREA_LEN));
        }
        // The table, too, has stayed when all was unmapped.
        if self.has_sites() {
            calls.push(unmap(TABLE, TABLE_LEN));
            calls.push(unmap(stub::TRAMPOLINES, AREA_LEN - TABLE_LEN));
        }
        let slots = std::mem::replace(&mut *self.read_slots.lock(), SlotArea::None);
        if let SlotArea::Area(_) | SlotArea::Failed(Some(_)) = slots {
            calls.push(unmap(stub::READ_SLOTS, stub::read_slots::LEN));
        }
        if !calls.is_empty() && self.batch(&calls).is_err() {
            // It is still mapped: kept until the process is gone.
            *self.read_slots.lock() = slots;
            return false;
        }
        if let SlotArea::Area(a) | SlotArea::Failed(Some(a)) = slots {
            a.unmapped();
        }
        self.slots_ended.store(false, Ordering::SeqCst);
        self.counts_ended.store(false, Ordering::SeqCst);
        self.change_sites(|s| *s = Sites::default());
        self.site_unit.store(NO_UNIT, Ordering::Release);
        self.table_due.store(false, Ordering::Release);
        *self.trapped.lock() = Hot::default();
        {
            let mut s = self.spawner.lock();
            let more = s.areas.units.split_off(areas.min(1) as usize);
            let sites = std::mem::take(&mut s.areas.others);
            for u in more.into_iter().flatten().chain(sites) {
                self.factory.give_unit(u);
            }
            s.areas.free.retain(|no| *no == 1);
            s.areas.vacant.clear();
            for u in s.areas.units.iter().flatten().chain([&self.area0]) {
                self.factory.clear_unit(*u);
            }
            s.seq = s.seq.wrapping_add(distance());
        }
        let batch = stub::CMD_BATCH as usize;
        let len = COMMAND_LEN as usize - batch;
        self.factory.unit(self.command).sub(batch, len).zero();
        let used = hostcall::time::clock_nanos(self.cpu_clock()) as u64;
        self.cpu_before.store(used, Ordering::Relaxed);
        let t = self.new_thread_within(Patience::new(RENEW_LIMIT));
        t.map(|t| *self.spare.lock() = Some(t)).is_ok()
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

    /// Ends the process. Its threads' listeners report it.
    pub fn kill(&self) {
        if !self.dead.swap(true, Ordering::AcqRel) {
            if has_ended(&self.pidfd) {
                self.ended_by_host.store(true, Ordering::Release);
            }
            let _ = host::pidfd_kill(self.pidfd.raw(), libc::SIGKILL);
        }
    }

    /// Waits until the host has taken down what was killed: all its threads have ended, and nothing
    /// is mapped by it. (It reaps it itself: SIGCHLD is ignored.) `false` if that takes longer;
    /// code of it may not run any more, but what waits for a device in the host does not end.
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
