//! The control file, the zygote, and what processes are made of.

use super::filters::{LONG, TRAPPED, app_filter, service_filter};
use super::lanes::{NO_UNIT, SlotArea};
use super::listener::Listeners;
use super::{Areas, Process, Service, Spawner, distance, has_ended, read_i32, word, write_words};
use crate::Lanes;
use abi::errno::{EAGAIN, ESRCH};
use abi::{Errno, Result};
use hostcall::mem::{Mapping, memfd};
use hostcall::{HostFd, MemSlice, RawFd, process as host};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use stub::{AREA_LEN, AREAS, COMMAND_LEN, area};
use wait::{MaySpin, Spinners};

/// The control file: command pages and thread areas of all stub processes, in units of
/// [`AREA_LEN`].
pub(super) const CONTROL_UNITS: usize = 1 << 17;

/// So many descriptors are looked at for listeners that nobody knows of, each time that one may be
/// lost.
pub(super) const SWEEP: RawFd = 1 << 14;

/// The highest number of a descriptor that is looked at.
pub(super) const SWEEP_MAX: u64 = 1 << 20;

/// Which way application threads are driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drive {
    Notify,
    Ptrace,
}

/// The control file and the zygote.
pub struct Factory {
    pub drive: Drive,
    pub(super) control: HostFd,
    pub(super) map: Mapping,
    pub(super) units: Mutex<Units>,
    pub(super) zygote: Mutex<Zygote>,
    /// Readable when the zygote has ended.
    pub zygote_end: HostFd,
    /// Files whose positions tell what became of a thread's clone; each start has one of its own
    /// meanwhile.
    positions: Mutex<Vec<HostFd>>,
    pub(super) listeners: Listeners,
    /// Where the search for lost ones goes on, and the end of all.
    pub(super) sweep: Mutex<RawFd>,
    pub(super) sweep_end: RawFd,
    /// The stub's code. The zygote maps it by number, soon after its start: it must stay open.
    pub(super) _text: HostFd,
    /// Ends processes that block the kick.
    pub watchdog: crate::process::kick::Watchdog,
    /// Takes ended processes down.
    pub reaper: crate::process::recycle::Reaper,
    /// Keeps them for the next program.
    pub pool: crate::process::recycle::Pool,
    /// How many threads are idle.
    pub(super) idle_threads: AtomicU32,
    /// Where the host's vDSO is in every stub process.
    pub host_vdso: Option<u64>,
    /// What stands there where clocks are a program's own.
    pub(super) slow_image: Option<super::clocks::SlowImage>,
    /// Which call sites' lanes there are.
    pub lanes: Lanes,
    /// Who spins for a mailbox.
    pub spinners: Arc<Spinners>,
}

pub(super) struct Zygote {
    pub(super) command: Unit,
    pub(super) area: Unit,
    pub(super) seq: u32,
}

#[derive(Default)]
pub(super) struct Units {
    pub(super) free: Vec<u32>,
    pub(super) next: u32,
    /// Where runs were that are given back.
    pub(super) runs: Vec<u32>,
}

/// Units in a row, for read slots ([`crate::lanes::read_slots`]).
pub struct Run(pub(super) u32);

pub(super) const RUN: u32 = (stub::read_slots::LEN / AREA_LEN) as u32;

impl Run {
    pub fn offset(&self) -> u64 {
        u64::from(self.0) * AREA_LEN
    }
}

/// A unit of the control file, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit(pub(super) u32);

impl Unit {
    pub(super) fn offset(self) -> u64 {
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
        let may_spin = match lanes {
            Lanes::Mailbox => MaySpin::Always,
            _ => MaySpin::WhereIdle,
        };
        let vdso = crate::process::zygote::host_vdso();
        let zygote_end = crate::process::zygote::start(
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
            positions: Mutex::default(),
            listeners: Listeners::default(),
            sweep: Mutex::new(0),
            sweep_end: hostcall::start::rlimit(libc::RLIMIT_NOFILE)
                .map_or(SWEEP_MAX, |(_, hard)| hard.min(SWEEP_MAX)) as RawFd,
            _text: text,
            watchdog: crate::process::kick::Watchdog::default(),
            reaper: crate::process::recycle::Reaper::default(),
            pool: crate::process::recycle::Pool::default(),
            idle_threads: AtomicU32::new(0),
            host_vdso: crate::process::zygote::moved_vdso(&vdso),
            slow_image: super::clocks::slow_image(&vdso, super::zygote::moved_vdso(&vdso)),
            lanes: lanes.possible(),
            spinners: Arc::new(Spinners::new(host::cpu_count(), may_spin)),
        }))
    }

    /// A unit that reads as zeros.
    pub(super) fn take_unit(&self) -> Result<Unit> {
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

    /// Takes back a unit that nobody maps any more. The next to have it may be another user's
    /// process: it must find nothing of this one's registers and addresses.
    pub(super) fn give_unit(&self, u: Unit) {
        self.clear_unit(u);
        self.units.lock().free.push(u.0);
    }

    /// Makes a unit read as zeros.
    pub(super) fn clear_unit(&self, u: Unit) {
        if hostcall::mem::punch_hole(self.control.raw(), u.offset(), AREA_LEN).is_err() {
            self.unit(u).zero();
        }
    }

    /// A run that reads as zeros. None beyond the first half of all units: who gets none goes on
    /// without.
    pub(super) fn take_run(&self) -> Result<Run> {
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
        let len = stub::read_slots::LEN;
        if hostcall::mem::punch_hole(self.control.raw(), r.offset(), len).is_err() {
            self.run(r).zero();
        }
        self.units.lock().runs.push(r.0);
    }

    /// The Sentry's view of a run.
    pub fn run(&self, r: &Run) -> MemSlice<'_> {
        let len = stub::read_slots::LEN as usize;
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
            idle_threads: Mutex::default(),
            hid_listener: AtomicBool::new(false),
            lost: Mutex::default(),
            ended_by_host: AtomicBool::new(false),
            cpu_before: AtomicU64::new(0),
            sites: Mutex::new(Arc::default()),
            sites_number: AtomicU64::new(0),
            site_unit: AtomicU32::new(NO_UNIT),
            table_due: AtomicBool::new(false),
            trapped: Mutex::default(),
            kicks: Mutex::new(Vec::new()),
            read_slots: Mutex::new(SlotArea::None),
            slots_ended: AtomicBool::new(false),
            counts_ended: AtomicBool::new(false),
            slow_clocks: AtomicBool::new(false),
            is_marked: AtomicBool::new(false),
        };
        p.start_service()?;
        Ok(p)
    }

    /// Closes some of the listeners that hostile applications hid from us, whose threads have
    /// ended.
    pub(super) fn sweep_listeners(&self) {
        let mut at = self.sweep.lock();
        let end = (*at + SWEEP).min(self.sweep_end);
        self.listeners.sweep(*at, end);
        *at = if end == self.sweep_end { 0 } else { end };
    }

    /// A file for one start of a thread.
    pub(super) fn take_position(&self) -> Result<HostFd> {
        let kept = self.positions.lock().pop();
        match kept {
            Some(p) => Ok(p),
            None => Ok(HostFd::from_raw(self.ask_zygote(
                &mut self.zygote.lock(),
                &[stub::OP_POSITION, 0, 0, 0, AREAS, 0, 0],
            )?)),
        }
    }

    /// Takes back one that no spawner will set any more.
    pub(super) fn give_position(&self, p: HostFd) {
        self.positions.lock().push(p);
    }

    /// Has the zygote make a process; its id and its descriptor.
    pub(super) fn clone_zygote(&self, command: Unit, area0: Unit) -> Result<(i32, HostFd)> {
        let mut z = self.zygote.lock();
        let flags = libc::CLONE_PARENT | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
        let pid = self.ask_zygote(
            &mut z,
            &[
                stub::OP_PROCESS,
                flags as u64,
                AREAS + area::PIDFD,
                area0.offset(),
                AREAS,
                command.offset(),
                self.control.raw() as u64,
            ],
        )?;
        let za = self.unit(z.area);
        // In the descriptor table that we share.
        Ok((pid, HostFd::from_raw(read_i32(za, area::PIDFD))))
    }

    /// Has the zygote do something; what it gives, above 0, or an error.
    fn ask_zygote(&self, z: &mut Zygote, words: &[u64; 7]) -> Result<i32> {
        let (cmd, za) = (self.unit(z.command), self.unit(z.area));
        za.sub(area::READY as usize, 4).zero();
        write_words(cmd, stub::CMD_OP, words);
        z.seq = z.seq.wrapping_add(1);
        kick_spawner(cmd, z.seq);
        wait_ready(za, &self.zygote_end)?;
        match read_i32(za, area::RESULT) {
            n if n > 0 => Ok(n),
            e => Err(Errno::new(e.wrapping_neg()).unwrap_or(EAGAIN)),
        }
    }
}

pub(super) fn kick_spawner(cmd: MemSlice<'_>, seq: u32) {
    word(cmd, 0).store(seq, Ordering::Release);
    host::futex_wake(word(cmd, 0), 1);
}

/// Waits until the zygote says that it is done; `ESRCH` if it is gone. (No application code can
/// write there.)
pub(super) fn wait_ready(a: MemSlice<'_>, end: &HostFd) -> Result<()> {
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

/// The stub's code and filters in a memory file of their own.
pub(super) fn text_image() -> Result<HostFd> {
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
    for (nr, kind) in stub::lane::SLOT_CALLS {
        image[kinds + nr as usize] = kind;
    }
    image[kinds + stub::lane::COUNTED as usize] = stub::lane::KIND_IOCTL;
    hostcall::file::pwrite(fd.raw(), &image, 0)?;
    Ok(fd)
}

const _: () = assert!(COMMAND_LEN <= AREA_LEN);
