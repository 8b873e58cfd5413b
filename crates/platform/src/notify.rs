//! The notify platform: seccomp user notification with synchronous wake-up.
//!
//! Each application thread has its own filter with its own listener, so that one Sentry thread
//! waits for it alone. A system call is a notification: number, arguments and instruction pointer,
//! no registers. Calls that need the registers, faults and interrupts go through the stub's signal
//! handler, which makes the *event call*, another notification, whose arguments say where the
//! register frame lies.
//!
//! `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` holds signals back while a received call waits for its
//! answer; so a kick sent before the answer is taken right after the call returns, before any
//! application instruction. That is how registers are fetched after a plain notification.
//!
//! Call sites that are used often are patched ([`crate::lane`]): some calls are then answered where
//! they are made, others come by a mailbox while this thread spins for them, the rest as before.

use crate::frame::Frame;
use crate::kick::Kick;
use crate::lane::{self, Hot, MailboxSpin, Stopped, Why};
use crate::lanes::{Came, Local, Own, SpaceLanes, ThreadLanes};
use crate::offers::Area;
use crate::process::{
    Drive, End, Factory, KICK, Listener, Patience, Process, RawThread, TRAPPED, readable_within,
    recv, release_after,
};
use crate::recycle::Held;
use crate::sites::{Site, Sites};
use crate::words::mailbox;
use crate::{AddressSpace, AppThread, Event, Interrupter, Lanes, MapOp, Platform, Regs, SpaceEnd};
use abi::Result;
use abi::errno::{EINVAL, ESRCH};
use abi::syscalls::X32;
use hostcall::process as host;
use std::sync::Arc;
use std::time::Duration;
use wait::spin::CallCount;
use wait::spin::table::BESIDE_MOST;

/// How long an application thread takes to end, at most.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The platform that `--platform=notify` names.
pub struct Notify(Arc<Factory>);

impl Notify {
    /// Must be called while the process has one thread.
    pub fn new(lanes: Lanes) -> Result<Notify> {
        Ok(Notify(Factory::new(Drive::Notify, lanes)?))
    }
}

impl Platform for Notify {
    fn name(&self) -> &'static str {
        "notify"
    }
    fn new_address_space(&self) -> Result<Arc<dyn AddressSpace>> {
        Ok(Arc::new(Space(self.0.process()?)))
    }
    fn host_vdso(&self) -> Option<u64> {
        self.0.host_vdso
    }
    fn end(&self) -> Option<hostcall::RawFd> {
        Some(self.0.zygote_end.raw())
    }
    fn spinners(&self) -> Option<Arc<wait::Spinners>> {
        (self.0.lanes >= Lanes::Local).then(|| self.0.spinners.clone())
    }
    fn when_quiet(&self, f: Box<dyn Fn() + Send + Sync>) {
        self.0.reaper.when_quiet(f);
    }
    fn settle(&self, limit: Duration) -> bool {
        self.0.reaper.settle(limit)
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Whether the stub's code made a call.
fn in_stub(ip: u64) -> bool {
    (stub::TEXT..stub::FILTERS).contains(&ip)
}

struct Space(Held);

impl AddressSpace for Space {
    fn apply(&self, ops: &[MapOp]) -> Result<()> {
        self.0.apply(ops)
    }
    fn new_thread(&self) -> Result<Box<dyn AppThread>> {
        Ok(Box::new(Thread::new(self.0.clone(), self.0.new_thread()?)?))
    }
    fn kill(&self) {
        self.0.kill();
    }
    fn end(&self) -> SpaceEnd {
        self.0.ended()
    }
    fn retire(&self, bytes: u64, then: Box<dyn FnOnce() + Send>) {
        self.0.retire(bytes, then);
    }
    fn cpu_nanos(&self) -> u64 {
        self.0.cpu_nanos()
    }
    fn lanes(&self) -> Option<&dyn SpaceLanes> {
        (self.0.factory.lanes != Lanes::None).then_some(self)
    }
}

impl SpaceLanes for Space {
    fn add_site(&self, site: Site) -> Option<u32> {
        self.0.add_site(site)
    }
    fn retire_sites(&self, r: std::ops::Range<u64>) {
        self.0.retire_sites(&r);
    }
    fn drop_sites(&self) {
        self.0.drop_sites();
    }
    fn sites(&self) -> Arc<Sites> {
        self.0.sites().0
    }
    fn inherit_sites(&self, parent: &Arc<Sites>) -> Result<()> {
        self.0.inherit_sites(parent)
    }
    fn offers(&self) -> Option<Arc<Area>> {
        self.0.offers()
    }
    fn end_offers(&self) {
        self.0.end_offers();
    }
    fn end_counts(&self) {
        self.0.end_counts();
    }
    fn count_waiter(&self, va: u64, by: i32) {
        self.0.count_waiter(va, by);
    }
}

/// What the thread waits in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// A plain notification of a system call.
    Call {
        id: u64,
        nr: u64,
    },
    /// A call that it laid into its mailbox: it looks for the answer there, or has parked.
    Mail {
        nr: u64,
    },
    /// The event call: its register frame is at this stub address.
    Event {
        id: u64,
        uc: u64,
    },
    Gone,
}

struct Thread {
    process: Arc<Process>,
    raw: Option<RawThread>,
    /// `None` only while dropped.
    listener: Option<Listener>,
    kick: Arc<Kick>,
    waits: Waits,
    ret: u64,
    /// Valid while in `Waits::Event`.
    regs: Regs,
    regs_changed: bool,
    bases_changed: bool,
    /// See [`Came::missed`].
    missed: Option<(u64, u64)>,
    /// It serves again: what it had used of the CPU before is to be noted.
    clock_due: bool,
    spin: MailboxSpin,
    hot: Hot<64>,
    /// Where the call just given came from.
    from: From,
    /// The patched sites that it knows, and their number ([`Process::sites`]).
    sites: (Arc<Sites>, u64),
    /// Whether both sides wake each other where they are themselves ([`Thread::wake_here`]).
    here: bool,
    /// The thread may not go to the CPU where this one was when it began to spin.
    away: bool,
    /// Its calls that are not counted yet, and what [`lane::offered`] was when they last were.
    calls: CallCount,
    offered: u32,
}

/// Where a call came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// A patched site: by a lane, or by the trap that stands for its call.
    Patched,
    /// One that is not, which it returns to.
    Site(u64),
}

impl Thread {
    fn new(process: Arc<Process>, mut raw: RawThread) -> Result<Thread> {
        let listener = raw.listener.take().ok_or(EINVAL)?;
        let (waits, clock_due) = (raw.waits.take(), raw.served);
        let kick = Kick::new(process.pid, raw.tid, raw.unit, Arc::downgrade(&process));
        let mut t = Thread {
            process,
            raw: Some(raw),
            listener: Some(listener),
            kick,
            waits: Waits::Gone,
            ret: 0,
            regs: Regs::default(),
            regs_changed: false,
            bases_changed: false,
            missed: None,
            clock_due,
            spin: MailboxSpin::default(),
            sites: (Arc::default(), 0),
            here: true,
            from: From::Patched,
            away: false,
            calls: CallCount::default(),
            offered: 0,
            hot: Hot::default(),
        };
        if let Some((id, uc)) = waits {
            t.waits = Waits::Event { id, uc };
        }
        let Some(f) = t.frame() else {
            t.process.kill();
            return Err(ESRCH);
        };
        let _ = f.set_fp_state(None);
        let (area, _) = t.area();
        mailbox::reset(lane::state(area));
        lane::publish(area, None);
        let offered = lane::offered(area);
        t.offered = offered;
        t.regs.eflags = 0x202;
        t.bases_changed = true;
        t.regs_changed = true;
        t.process.add_kick(t.kick.clone());
        Ok(t)
    }

    fn area(&self) -> (hostcall::MemSlice<'_>, u64) {
        let raw = self.raw.as_ref().expect("until drop");
        self.process.area(raw.area_no, raw.unit)
    }

    /// It goes into application code. Whether a kick has been sent that it must take first.
    fn entered(&mut self) -> bool {
        self.kick.entered()
    }

    /// It has come out, and what it was stopped at has been looked up.
    fn left(&mut self) {
        self.kick.left();
    }

    fn listener(&self) -> &Listener {
        self.listener.as_ref().expect("until drop")
    }

    fn frame(&self) -> Option<Frame<'_>> {
        let Waits::Event { uc, .. } = self.waits else {
            return None;
        };
        let (area, base) = self.area();
        Frame::new(area, base, uc)
    }

    /// Lets the thread go on with what was set.
    ///
    /// Wake-ups that are `held` are not held while it begins or ends to spin, which takes calls of
    /// the host.
    fn answer(&mut self, held: &mut Option<wait::wakes::Hold>) -> Result<()> {
        let (id, val) = match self.waits {
            Waits::Gone => return Err(ESRCH),
            Waits::Mail { nr } => {
                self.count(nr);
                self.answer_mail(held);
                return Ok(());
            }
            Waits::Call { id, nr } => {
                self.count(nr);
                self.begin_to_spin(held);
                (id, self.ret)
            }
            Waits::Event { id, .. } => {
                if self.regs_changed
                    && let Some(f) = self.frame()
                {
                    f.set_regs(&self.regs);
                }
                let mut val = 0;
                if self.bases_changed {
                    let (area, base) = self.area();
                    let put = |at: u64, v: u64| {
                        area.sub(at as usize, 8).copy_from(&v.to_le_bytes());
                    };
                    put(stub::area::FS_BASE, self.regs.fs_base);
                    // Where the application has none, it leads the lanes to this area.
                    let gs = match self.regs.gs_base {
                        0 if self.process.factory.lanes != Lanes::None => base,
                        own => own,
                    };
                    put(stub::area::GS_BASE, gs);
                    val |= stub::REPLY_BASES;
                }
                if std::mem::take(&mut self.clock_due) {
                    val |= stub::REPLY_CLOCK;
                }
                (id, val)
            }
        };
        self.regs_changed = false;
        self.bases_changed = false;
        self.ret = 0;
        host::notif_send(self.listener().raw(), id, val as i64)
    }

    /// The application destroyed its own stub: end it.
    fn broken(&mut self) -> Event {
        self.process.kill();
        self.waits = Waits::Gone;
        Event::Gone
    }

    /// A call is about to be answered.
    fn count(&mut self, nr: u64) {
        if self.process.factory.lanes >= Lanes::All
            && lane::achieves(nr, self.ret)
            && self.calls.called()
        {
            let offered = lane::offered(self.area().0);
            let before = std::mem::replace(&mut self.offered, offered);
            let more = offered.wrapping_sub(before).min(BESIDE_MOST);
            self.process
                .factory
                .spinners
                .count_calls(&mut self.calls, more.into());
        }
    }

    /// Answers what lies in the mailbox.
    fn answer_mail(&mut self, held: &mut Option<wait::wakes::Hold>) {
        let all = &self.process.factory.spinners;
        let again = self.spin.again(all);
        let (area, _) = self.area();
        lane::put_result(area, self.ret);
        let parked = mailbox::answer(lane::state(area), again);
        self.ret = 0;
        if parked || !again {
            *held = None;
        }
        if parked {
            self.wake_here(true);
            self.let_move();
            self.spin.late(&self.process.factory.spinners);
        } else if !again {
            self.rest();
        }
    }

    /// Begins to spin for the mailbox if calls have been coming fast.
    fn begin_to_spin(&mut self, held: &mut Option<wait::wakes::Hold>) {
        let all = &self.process.factory.spinners;
        if self.process.factory.lanes >= Lanes::All && self.spin.answering(all) {
            let (area, _) = self.area();
            mailbox::begin(lane::state(area));
            *held = None;
            // It is to be woken elsewhere: this CPU is busy.
            self.wake_here(false);
            self.move_away();
        }
    }

    fn tid(&self) -> i32 {
        self.raw.as_ref().expect("until drop").tid
    }

    /// Where the host wakes the thread next, which sleeps, is not where this one spins. Left to
    /// itself a host with few CPUs mostly wakes it on the same one, in the place of this thread,
    /// which then does not look.
    fn move_away(&mut self) {
        let here = host::current_cpu();
        let mut others = host::cpus();
        others.retain(|c| *c != here);
        self.away = !others.is_empty() && host::keep_on(self.tid(), others).is_ok();
    }

    /// It may go anywhere again: this thread spins no more.
    fn let_move(&mut self) {
        if std::mem::take(&mut self.away) {
            // Those of now: an update may have changed them.
            let _ = host::keep_on(self.tid(), host::cpus());
        }
    }

    /// Whether who wakes the other leaves its CPU to it: so while this thread sleeps for the other,
    /// not while it spins.
    fn wake_here(&mut self, here: bool) {
        if self.here != here {
            self.here = here;
            let _ = host::notif_sync_wake_up(self.listener().raw(), here);
        }
    }

    /// Spins no more: the next to come wakes this thread where it is itself.
    fn rest(&mut self) {
        self.wake_here(true);
        self.let_move();
        self.spin.rest(&self.process.factory.spinners);
    }

    /// Spins for the mailbox; the call found there.
    fn spin(&mut self) -> Option<Event> {
        let raw = self.raw.as_ref().expect("until drop");
        let (area, _) = self.process.area(raw.area_no, raw.unit);
        let all = &self.process.factory.spinners;
        let listener = self.listener.as_ref().expect("until drop").raw();
        // A call of a site that is not patched leaves the state as it is.
        let elsewhere = || readable_within(&[listener], 0);
        let asked = self.spin.spin(lane::state(area), all, elsewhere);
        let request = asked.then(|| lane::request(area));
        if request.is_none() {
            self.wake_here(true);
            self.let_move();
        }
        let (nr, args, ip) = request?;
        // The lane never asks these this way: they need registers, which only a trap shows.
        if nr >= X32.into() || TRAPPED.contains(&(nr as u32)) {
            return Some(self.broken());
        }
        self.left();
        self.from = From::Patched;
        self.waits = Waits::Mail { nr };
        Some(Event::Syscall { nr, args, ip })
    }

    /// The next notification but those of parked threads, which look again. `None`: it is gone.
    fn receive(&mut self) -> Option<libc::seccomp_notif> {
        loop {
            let n = recv(self.listener()).ok()?;
            let d = &n.data;
            let parked = d.args[0] == stub::EVENT_PARK && d.nr == stub::EVENT_NR as i32;
            if !parked || !in_stub(d.instruction_pointer) {
                return Some(n);
            }
            host::notif_send(self.listener().raw(), n.id, 0).ok()?;
        }
    }

    /// `due`: the kick had been sent before the thread went on. `pending`: the result of a call
    /// from the mailbox that it has not been given.
    fn next(&mut self, due: bool, pending: Option<u64>) -> Event {
        if self.spin.spins
            && pending.is_none()
            && let Some(e) = self.spin()
        {
            return e;
        }
        loop {
            let got = self.receive();
            let event = match got {
                Some(n) => self.received(&n, due, pending),
                None => {
                    self.waits = Waits::Gone;
                    Some(Event::Gone)
                }
            };
            if let Some(e) = event {
                self.left();
                return e;
            }
            // It goes step by step, and was between two steps.
            if self.answer(&mut None).is_err() {
                self.left();
                self.waits = Waits::Gone;
                return Event::Gone;
            }
        }
    }

    /// What a notification says; `None` where the thread is to go on as it is.
    fn received(
        &mut self,
        n: &libc::seccomp_notif,
        due: bool,
        pending: Option<u64>,
    ) -> Option<Event> {
        let d = &n.data;
        let by_lane = d.instruction_pointer == stub::lane::called();
        if by_lane || !in_stub(d.instruction_pointer) {
            if due {
                // The kick was sent before the thread went on, and is taken before anything else
                // unless the application blocked it by a frame of its own.
                return Some(self.broken());
            }
            let lanes = self.process.factory.lanes;
            let soon = lanes >= Lanes::All
                && self.spin.called(by_lane)
                && self.process.factory.spinners.has_idle_cpu();
            let ip = if by_lane {
                self.from = From::Patched;
                lane::back(self.area().0)
            } else {
                self.from = From::Site(d.instruction_pointer);
                // Where a lane may help.
                let local = || lane::LOCAL.contains(&(d.nr as u32));
                if soon || lanes != Lanes::None && local() {
                    self.hot.note(d.instruction_pointer);
                } else if lanes == Lanes::Mailbox {
                    self.hot.found = Some(d.instruction_pointer);
                }
                d.instruction_pointer
            };
            let nr = u64::from(d.nr as u32);
            self.waits = Waits::Call { id: n.id, nr };
            let args = d.args;
            return Some(Event::Syscall { nr, args, ip });
        }
        let [signal, info, uc, fs, gs, _] = d.args;
        self.waits = Waits::Event { id: n.id, uc };
        let (Some(f), Ok(signal)) = (self.frame(), i32::try_from(signal)) else {
            return Some(self.broken());
        };
        let mut regs = f.regs();
        let error = f.error_code();
        regs.fs_base = fs;
        let (area, base) = self.area();
        regs.gs_base = if gs == base && self.process.factory.lanes != Lanes::None {
            0
        } else {
            gs
        };
        regs.orig_rax = u64::MAX;
        // siginfo lies behind the ucontext on the same stack.
        let at = info.wrapping_sub(base);
        if at >= area.len() as u64 - 128 {
            return Some(self.broken());
        }
        let mut si = [0u8; 32];
        area.sub(at as usize, 32).copy_to(&mut si);
        let code = i32::from_le_bytes(si[8..12].try_into().expect("4 bytes"));
        let addr = u64::from_le_bytes(si[16..24].try_into().expect("8 bytes"));
        if self.process.sites_number() != self.sites.1 {
            self.sites = self.process.sites();
        }
        let why = Why::of(signal, code);
        let stopped = if self.sites.0.is_empty() {
            Stopped::Outside
        } else {
            lane::outside(self.area().0, &self.sites.0, &mut regs, why, pending)
        };
        if stopped == Stopped::Between {
            return None;
        }
        self.regs = regs;
        if stopped != Stopped::Outside {
            self.regs_changed = true;
            // What it was about to ask, or was being answered, is settled.
            mailbox::reset(lane::state(self.area().0));
            self.rest();
        }
        if stopped == Stopped::Trap {
            self.missed = (why == Why::Access).then_some((addr, error));
            return Some(self.trapped());
        }
        if stopped == Stopped::Look {
            return Some(Event::Interrupted);
        }
        if signal == KICK {
            self.kick.served();
            return Some(Event::Interrupted);
        }
        if signal == libc::SIGSYS {
            let arch = u32::from_le_bytes(si[28..32].try_into().expect("4 bytes"));
            if arch != hostcall::bpf::ARCH_X86_64 {
                return Some(Event::ForeignSyscall);
            }
            if stopped == Stopped::Outside {
                self.note_trapped();
            }
            return Some(self.trapped());
        }
        Some(Event::Fault {
            signal,
            code,
            addr,
            error,
        })
    }

    /// A call that traps has come from a site that is not patched. Threads make those that a lane
    /// may help once or twice each: all of a program are counted together.
    fn note_trapped(&mut self) {
        let lanes = self.process.factory.lanes;
        let r = &self.regs;
        if lanes != Lanes::None && lane::LOCAL.contains(&(r.rax as u32)) {
            let mut hot = self.process.trapped.lock();
            hot.note(r.rip);
            self.hot.found = match lanes {
                Lanes::Mailbox => Some(r.rip),
                _ => hot.found.take(),
            };
        }
    }

    /// Lets it go on until the next event; what is `held` is woken when it runs.
    fn run_with(&mut self, mut held: Option<wait::wakes::Hold>) -> Event {
        // A thread that looks into its mailbox takes the kick when it comes.
        let mail = matches!(self.waits, Waits::Mail { .. });
        let due = self.entered() && !mail;
        if self.answer(&mut held).is_err() {
            self.left();
            self.waits = Waits::Gone;
            return Event::Gone;
        }
        drop(held);
        self.next(due, None)
    }

    /// The system call that its registers are those of.
    fn trapped(&mut self) -> Event {
        self.from = From::Patched;
        self.regs.orig_rax = self.regs.rax;
        let r = &self.regs;
        Event::Syscall {
            // The kernel looks at the low half only.
            nr: u64::from(r.rax as u32),
            args: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9],
            ip: r.rip,
        }
    }
}

impl AppThread for Thread {
    fn run(&mut self) -> Event {
        self.run_with(None)
    }

    fn set_return(&mut self, value: u64) {
        match self.waits {
            Waits::Event { .. } => {
                self.regs.rax = value;
                self.regs_changed = true;
            }
            _ => self.ret = value,
        }
    }

    fn has_regs(&self) -> bool {
        !matches!(self.waits, Waits::Call { .. } | Waits::Mail { .. })
    }

    fn fetch_regs(&mut self) -> Event {
        let (nr, mail) = match self.waits {
            Waits::Call { nr, .. } => (nr, false),
            Waits::Mail { nr } => (nr, true),
            Waits::Gone => return Event::Gone,
            Waits::Event { .. } => return Event::Interrupted,
        };
        self.kick.interrupt();
        let event = if mail {
            self.let_move();
            // Unanswered it cannot leave the stub's code.
            self.entered();
            let ret = std::mem::take(&mut self.ret);
            self.next(false, Some(ret))
        } else {
            self.run_with(None)
        };
        match event {
            Event::Interrupted => {
                self.regs.orig_rax = nr;
                Event::Interrupted
            }
            Event::Gone => Event::Gone,
            // Only an application that blocked the kick signal by a frame of its own gets here.
            _ => self.broken(),
        }
    }

    fn hold(&mut self) -> Event {
        // What lies in a mailbox says of a thread that it waits for the answer; it need not.
        match self.waits {
            Waits::Mail { .. } => self.fetch_regs(),
            Waits::Gone => Event::Gone,
            Waits::Call { .. } | Waits::Event { .. } => Event::Interrupted,
        }
    }

    fn regs(&self) -> Regs {
        assert!(self.has_regs(), "registers are not known");
        self.regs
    }

    fn set_regs(&mut self, regs: &Regs) {
        assert!(self.has_regs(), "registers are not known");
        self.bases_changed |=
            regs.fs_base != self.regs.fs_base || regs.gs_base != self.regs.gs_base;
        self.regs = *regs;
        self.regs_changed = true;
    }

    fn fp_state(&self, out: &mut Vec<u8>) {
        if let Some(f) = self.frame() {
            f.fp_state(out);
        }
    }

    fn set_fp_state(&mut self, state: Option<&[u8]>) -> Result<()> {
        match self.frame() {
            Some(f) => f.set_fp_state(state),
            None => Ok(()),
        }
    }

    fn interrupter(&self) -> Arc<dyn Interrupter> {
        self.kick.clone()
    }

    fn cpu_clock(&self) -> crate::CpuClock {
        let raw = self.raw.as_ref().expect("until drop");
        self.process.thread_clock(raw)
    }

    fn lanes(&mut self) -> Option<&mut dyn ThreadLanes> {
        match self.process.factory.lanes {
            Lanes::None => None,
            _ => Some(self),
        }
    }
}

impl ThreadLanes for Thread {
    fn publish(&mut self, local: Option<Local>) {
        lane::publish(self.area().0, local);
    }

    fn put(&mut self, own: &Own, pending: &dyn Fn() -> u64) {
        let (area, _) = self.area();
        lane::put_mask(area, own.mask, pending);
        lane::put_stack(area, &own.stack);
    }

    fn run(&mut self, deferred: Option<wait::wakes::Hold>) -> Event {
        self.run_with(deferred)
    }

    fn own(&self) -> Own {
        let (area, _) = self.area();
        Own {
            mask: lane::mask(area),
            stack: lane::stack(area),
        }
    }

    fn came(&mut self) -> Came {
        Came {
            hot_site: self.hot.found.take(),
            missed: self.missed.take(),
        }
    }

    fn by_lane(&self) -> bool {
        self.from == From::Patched
    }

    fn note_site(&mut self) -> Option<u64> {
        let From::Site(ip) = self.from else {
            return None;
        };
        self.hot.note(ip);
        self.hot.found.take()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // In the handler it can end, or wait for another task; a thread in application code is
        // kicked there first.
        let (id, uc) = match self.waits {
            Waits::Gone => (None, None),
            Waits::Event { id, uc } => (Some(id), Some(uc)),
            Waits::Call { .. } | Waits::Mail { .. } => {
                self.kick.interrupt();
                self.entered();
                if let Waits::Call { id, .. } = self.waits {
                    let _ = host::notif_send(self.listener().raw(), id, 0);
                }
                // What hostile code sends next is answered as if it were the handler: another call
                // of its own returns, and the wait below tells that the thread has not ended.
                let n = self.receive();
                let kicked = |n: &&libc::seccomp_notif| {
                    let event = n.data.nr == stub::EVENT_NR as i32;
                    event && in_stub(n.data.instruction_pointer) && n.data.args[0] == KICK as u64
                };
                let uc = n.as_ref().filter(kicked).map(|n| n.data.args[2]);
                (n.map(|n| n.id), uc)
            }
        };
        self.rest();
        self.left();
        self.kick.end();
        self.process.forget_kick(&self.kick);
        let mut raw = self.raw.take().expect("only here");
        raw.listener = self.listener.take();
        if let (Some(id), Some(uc)) = (id, uc) {
            (raw.waits, raw.served) = (Some((id, uc)), true);
            raw = match self.process.rest(raw) {
                Ok(()) => return,
                Err(raw) => raw,
            };
        }
        let listener = raw.listener.expect("with this platform");
        let end = |id| host::notif_send(listener.raw(), id, stub::REPLY_EXIT as i64);
        let mut patience = Patience::new(END_LIMIT);
        let end = match id.map(end) {
            Some(Ok(())) => End::Within(&mut patience),
            _ => End::Seen,
        };
        release_after(&self.process, raw.area_no, listener, end);
    }
}
