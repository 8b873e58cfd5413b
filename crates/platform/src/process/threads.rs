//! The threads of a stub process: how they start, are idle and serve again.

use super::factory::{Drive, Unit, kick_spawner};
use super::listener::{Claim, Listener};
use super::patience::{LOOK, Patience};
use super::{
    Process, RENEW_LIMIT, START_LIMIT, has_ended, read_i32, readable_within, word, write_words,
};
use crate::frame::{Frame, u64_at};
use abi::errno::{EAGAIN, ESRCH};
use abi::{Errno, Result, nr};
use hostcall::{HostFd, MemSlice, RawFd, process as host};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stub::{AREA_LEN, AREAS, Symbol, area};

/// How many threads of a process are idle at most, and how many of all: each is a thread of the
/// host's.
pub(super) const IDLE_MAX: usize = 4;
pub(super) const IDLE_ALL: u32 = 64;
/// How many areas without a thread stay mapped in a process.
const FREE_KEPT: usize = 8;

/// A thread just started in a stub process, and what it uses.
pub struct RawThread {
    pub tid: i32,
    pub area_no: u32,
    pub unit: Unit,
    /// Only with [`Drive::Notify`].
    pub listener: Option<Listener>,
    /// With a listener: the event that it waits in, by its number and the address of its frame.
    pub waits: Option<(u64, u64)>,
    /// It has run for another task before.
    pub served: bool,
}

/// How long the listener of a thread that starts is waited for before what others may have received
/// is looked at.
const PEEK_MILLIS: i32 = 10;

/// Whether a thread has a listener.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Listens {
    No,
    Yes,
}

/// Waits until `f` gives something, woken by the thread whose area this is. What the area says is
/// only a reason to look: application code can write it. `ESRCH` when the process is gone or time
/// is up.
pub(super) fn wait_start<T>(
    p: &Process,
    a: MemSlice<'_>,
    patience: &mut Patience,
    mut f: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let ready = word(a, area::READY);
    loop {
        if let Some(x) = f()? {
            return Ok(x);
        }
        if patience.is_over() {
            return Err(ESRCH);
        }
        if let Err(e) = host::futex_wait(ready, 0, LOOK.as_millis() as u64) {
            if has_ended(&p.pidfd) {
                return Err(ESRCH);
            }
            if e == EAGAIN {
                // Up already, or so it is said.
                std::thread::yield_now();
            }
        }
    }
}

/// Gives back what a thread used, once it runs no more: a listener whose thread still ends reports
/// it by its hang-up.
pub fn release_after(p: &Process, area_no: u32, listener: Listener, end: End<'_>) {
    // It is a few instructions from its end; a hostile one may not be: then its area is not reused.
    if let End::Within(patience) = end
        && !has_hung_up(&listener, patience)
    {
        p.kill();
        return;
    }
    drop(listener);
    p.give_area(area_no);
}

/// How it is known that a thread has ended.
pub enum End<'a> {
    /// The host has said so.
    Seen,
    /// Its listener will hang up within this time.
    Within(&'a mut Patience),
}

/// Waits until a listener's thread has ended; whether it has.
fn has_hung_up(listener: &Listener, patience: &mut Patience) -> bool {
    loop {
        let mut f = [libc::pollfd {
            fd: listener.raw(),
            events: 0,
            revents: 0,
        }];
        let _ = hostcall::file::poll(&mut f, LOOK.as_millis() as i32);
        if f[0].revents & libc::POLLHUP != 0 {
            return true;
        }
        if patience.is_over() {
            return false;
        }
    }
}

impl Process {
    /// Clones a thread at `start`; returns when it is up, with its first notification if it has a
    /// listener.
    pub(super) fn spawn(
        &self,
        start: u64,
        area_no: u32,
        unit: Unit,
        listens: Listens,
        mut patience: Patience,
    ) -> Result<(RawThread, Option<libc::seccomp_notif>)> {
        let a = self.factory.unit(unit);
        let va = AREAS + u64::from(area_no) * AREA_LEN;
        a.sub(0, area::PID as usize).zero();
        write_words(a, area::CPU_BEGIN, &[0; 2]);
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
        let position = self.factory.take_position()?;
        let result = self.clone_thread(flags, start, va, a, &position, &mut patience);
        let tid = match result {
            Err(e) => {
                // The spawner may still set it.
                self.lost.lock().push(position);
                // So may the thread, with a listener.
                self.hid_listener.store(true, Ordering::Release);
                self.kill();
                return Err(e);
            }
            Ok(n) => {
                self.factory.give_position(position);
                if n >> stub::FAILED_BIT != 0 {
                    return Err(Errno::new(n as u32 as i32).unwrap_or(EAGAIN));
                }
                n as i32
            }
        };
        let (listener, first) = match listens {
            Listens::No => (None, None),
            Listens::Yes => {
                let (l, n) = self.find_listener(a, tid, &mut patience)?;
                (Some(l), Some(n))
            }
        };
        let thread = RawThread {
            tid,
            area_no,
            unit,
            listener,
            waits: None,
            served: false,
        };
        Ok((thread, first))
    }

    /// Has the spawner clone a thread; its id, or an errno above [`stub::FAILED_BIT`]. `ESRCH` when
    /// the process is gone or time is up.
    fn clone_thread(
        &self,
        flags: i32,
        start: u64,
        va: u64,
        a: MemSlice<'_>,
        position: &HostFd,
        patience: &mut Patience,
    ) -> Result<u64> {
        let cmd = self.factory.unit(self.command);
        let mut s = self.spawner.lock();
        // No thread has this number.
        hostcall::file::set_position(position.raw(), 0)?;
        let fd = position.raw() as u64;
        write_words(
            cmd,
            stub::CMD_OP,
            &[stub::OP_THREAD, flags as u64, 0, start, va, 0, fd],
        );
        s.seq = s.seq.wrapping_add(1);
        kick_spawner(cmd, s.seq);
        wait_start(self, a, patience, || {
            Ok(Some(hostcall::file::position(position.raw())?).filter(|p| *p != 0))
        })
    }

    /// The listener of a thread that starts, and its first notification. The number stands in the
    /// thread's area, where other threads of the application can write: who says a false one, or
    /// none, is ended.
    pub(super) fn find_listener(
        &self,
        a: MemSlice<'_>,
        tid: i32,
        patience: &mut Patience,
    ) -> Result<(Listener, libc::seccomp_notif)> {
        let said = wait_start(self, a, patience, || {
            Ok(Some(read_i32(a, area::LISTENER)).filter(|fd| *fd != 0))
        });
        let failed = match said {
            Ok(fd) if fd > 0 => match self.receive_first(fd, tid, patience) {
                Ok(found) => return Ok(found),
                Err(e) => e,
            },
            // Without a filter the thread ends: there is no descriptor, or no memory.
            Ok(e) => {
                let ended = wait_start(self, a, patience, || {
                    Ok(host::tgkill(self.pid, tid, 0).is_err().then_some(()))
                });
                match ended {
                    Ok(()) => return Err(Errno::new(e.wrapping_neg()).unwrap_or(EAGAIN)),
                    Err(e) => e,
                }
            }
            Err(e) => e,
        };
        self.hid_listener.store(true, Ordering::Release);
        self.kill();
        Err(failed)
    }

    /// Waits for the first notification of the thread `tid`, whose listener is said to be `fd`.
    fn receive_first(
        &self,
        fd: RawFd,
        tid: i32,
        patience: &mut Patience,
    ) -> Result<(Listener, libc::seccomp_notif)> {
        // Whose ever it is: all have it. (Before 6.6 there is no synchronous wake-up; everything
        // works without.)
        let _ = host::notif_wake_up(fd, host::WakeUp::Synchronous);
        loop {
            match self.factory.listeners.claim(fd, tid) {
                Claim::Own(l, n) => return Ok((l, n)),
                Claim::False => return Err(ESRCH),
                Claim::Silent => {}
            }
            if patience.is_over() || has_ended(&self.pidfd) {
                return Err(ESRCH);
            }
            readable_within(&[fd], PEEK_MILLIS);
        }
    }

    /// A new application thread.
    pub fn new_thread(&self) -> Result<RawThread> {
        if let Some(t) = self.spare.lock().take() {
            return Ok(t);
        }
        let idle = self.idle_threads.lock().pop();
        match idle {
            Some(t) => {
                self.threads.fetch_add(1, Ordering::Relaxed);
                self.factory.idle_threads.fetch_sub(1, Ordering::Relaxed);
                // Until it runs, and notes what it had used before.
                write_words(self.factory.unit(t.unit), area::CPU_BEGIN, &[u64::MAX; 2]);
                Ok(t)
            }
            None => self.new_thread_within(Patience::new(START_LIMIT)),
        }
    }

    /// A thread whose task has ended waits for another of the same program. Given back where there
    /// are enough, or where it was the last: the process as a whole serves again.
    pub fn keep_idle(&self, t: RawThread) -> core::result::Result<(), RawThread> {
        let mut idle = self.idle_threads.lock();
        let one_more = |n: u32| (n < IDLE_ALL).then_some(n + 1);
        let all = &self.factory.idle_threads;
        if self.dead.load(Ordering::Acquire)
            || self.thread_count() <= 1
            || idle.len() >= IDLE_MAX
            || all
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                .is_err()
        {
            return Err(t);
        }
        idle.push(t);
        self.threads.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the threads that are idle, or the process, where one does not obey.
    pub(super) fn end_idle_threads(&self) {
        let idle = std::mem::take(&mut *self.idle_threads.lock());
        let (n, all) = (idle.len() as u32, &self.factory.idle_threads);
        all.fetch_sub(n, Ordering::Relaxed);
        self.threads.fetch_add(n, Ordering::Relaxed);
        let end = |t: &RawThread| {
            let (listener, (id, _)) = (t.listener.as_ref()?, t.waits?);
            host::notif_send(listener.raw(), id, stub::REPLY_EXIT as i64).ok()
        };
        let told: SmallVec<[bool; IDLE_MAX]> = idle.iter().map(|t| end(t).is_some()).collect();
        let mut patience = Patience::new(RENEW_LIMIT);
        for (t, told) in idle.into_iter().zip(told) {
            let Some(listener) = t.listener else { continue };
            let end = if told {
                End::Within(&mut patience)
            } else {
                End::Seen
            };
            release_after(self, t.area_no, listener, end);
        }
    }

    pub(super) fn new_thread_within(&self, patience: Patience) -> Result<RawThread> {
        let (area_no, unit) = self.take_area()?;
        let (start, listens) = match self.factory.drive {
            Drive::Notify => (Symbol::Thread, Listens::Yes),
            Drive::Ptrace => (Symbol::ThreadTraced, Listens::No),
        };
        self.threads.fetch_add(1, Ordering::Relaxed);
        // Where that fails there is no thread, or soon no process.
        let (mut t, first) = self
            .spawn(stub::address(start), area_no, unit, listens, patience)
            .inspect_err(|_| self.give_area(area_no))?;
        if let Some(n) = first {
            let (a, base) = self.area(area_no, unit);
            let uc = Frame::fresh(a, base).address();
            let [what, _, said, ..] = n.data.args;
            if (what, said) != (stub::EVENT_START, uc) {
                self.kill();
                return Err(ESRCH);
            }
            t.waits = Some((n.id, uc));
        }
        Ok(t)
    }

    /// An area that is mapped and that no thread uses.
    pub(super) fn take_area(&self) -> Result<(u32, Unit)> {
        let (no, unit) = {
            let areas = &mut self.spawner.lock().areas;
            let free = areas.free.pop();
            if let Some(found) = free.and_then(|no| Some((no, areas.units[no as usize - 1]?))) {
                return Ok(found);
            }
            let no = (areas.vacant.last().copied()).unwrap_or(areas.units.len() as u32 + 1);
            if AREAS + u64::from(no + 1) * AREA_LEN > stub::HIGH {
                return Err(EAGAIN);
            }
            let unit = self.factory.take_unit()?;
            match areas.vacant.pop() {
                Some(no) => areas.units[no as usize - 1] = Some(unit),
                None => areas.units.push(Some(unit)),
            }
            (no, unit)
        };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let mapped = self.batch(&[[
            nr::MMAP.into(),
            AREAS + u64::from(no) * AREA_LEN,
            AREA_LEN,
            3,
            flags as u64,
            self.factory.control.raw() as u64,
            unit.offset(),
        ]]);
        match mapped {
            Ok(()) => Ok((no, unit)),
            // It may be mapped, by a thread that is ending: then it stays this process's.
            Err(ESRCH) => Err(ESRCH),
            Err(e) => {
                self.vacate(no);
                Err(e)
            }
        }
    }

    /// Takes back the area of a thread that has ended. Some stay for the next to come.
    pub fn give_area(&self, no: u32) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
        {
            let areas = &mut self.spawner.lock().areas;
            // (The first stays where the process is renewed.)
            if no == 1 || areas.free.len() < FREE_KEPT {
                areas.free.push(no);
                return;
            }
        }
        let at = AREAS + u64::from(no) * AREA_LEN;
        // Where that fails the process has ended, or nobody can tell: then it stays as it is.
        if self
            .batch(&[[nr::MUNMAP.into(), at, AREA_LEN, 0, 0, 0, 0]])
            .is_ok()
        {
            self.vacate(no);
        }
    }

    /// Nothing is mapped at this number.
    fn vacate(&self, no: u32) {
        let unit = {
            let areas = &mut self.spawner.lock().areas;
            areas.vacant.push(no);
            areas.units[no as usize - 1].take()
        };
        if let Some(u) = unit {
            self.factory.give_unit(u);
        }
    }

    /// The Sentry's view of a thread's area, and its address in the stub.
    pub fn area(&self, area_no: u32, unit: Unit) -> (MemSlice<'_>, u64) {
        (
            self.factory.unit(unit),
            AREAS + u64::from(area_no) * AREA_LEN,
        )
    }

    /// How many application threads it has, about.
    pub fn thread_count(&self) -> u32 {
        self.threads.load(Ordering::Relaxed)
    }

    /// CPU time of one thread, since it began to serve its task. The host tells it within the
    /// process only, so the service thread asks. What is read from the thread's area is the
    /// application's claim about itself, and does not count against anyone else.
    pub(super) fn thread_cpu_nanos(&self, tid: i32, area_no: u32, unit: Unit) -> u64 {
        let (a, base) = self.area(area_no, unit);
        // CPUCLOCK_PERTHREAD, CPUCLOCK_SCHED.
        let clock = (!tid << 3) | 6;
        let call = [
            nr::CLOCK_GETTIME.into(),
            clock as u32 as u64,
            base + area::CPU_TIME,
            0,
            0,
            0,
            0,
        ];
        if self.batch(&[call]).is_err() {
            return 0;
        }
        let nanos = |at: u64| {
            let word = |at: u64| u64_at(a, at as usize);
            word(at)
                .saturating_mul(1_000_000_000)
                .saturating_add(word(at + 8))
        };
        nanos(area::CPU_TIME).saturating_sub(nanos(area::CPU_BEGIN))
    }

    /// See [`crate::AppThread::cpu_clock`].
    pub fn thread_clock(
        self: &Arc<Self>,
        raw: &RawThread,
    ) -> impl Fn() -> u64 + Send + Sync + use<> {
        let process = Arc::downgrade(self);
        let (tid, area_no, unit) = (raw.tid, raw.area_no, raw.unit);
        move || {
            let p = process.upgrade();
            p.map_or(0, |p| p.thread_cpu_nanos(tid, area_no, unit))
        }
    }
}
