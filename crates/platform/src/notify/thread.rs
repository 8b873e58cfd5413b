//! An application thread: what it waits in, how it is let go on, how it ends.

use super::{Lanes, in_stub};
use crate::frame::Frame;
use crate::lanes::ThreadLanes;
use crate::lanes::area::ThreadArea;
use crate::lanes::hot::Hot;
use crate::lanes::sites::Sites;
use crate::lanes::spin::MailboxSpin;
use crate::lanes::words::mailbox;
use crate::process::kick::Kick;
use crate::process::{End, KICK, Listener, Patience, Process, RawThread, release_after};
use crate::{AppThread, Event, Interrupter, Regs};
use abi::Result;
use abi::errno::{EINVAL, ESRCH};
use hostcall::process as host;
use std::sync::Arc;
use std::time::Duration;
use wait::spin::CallCount;

/// How long an application thread takes to end, at most.
const END_LIMIT: Duration = Duration::from_secs(1);

/// What the thread waits in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
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

pub(super) struct Thread {
    pub(super) process: Arc<Process>,
    pub(super) raw: Option<RawThread>,
    /// `None` only while dropped.
    pub(super) listener: Option<Listener>,
    pub(super) kick: Arc<Kick>,
    pub(super) waits: Waits,
    pub(super) ret: u64,
    /// Valid while in `Waits::Event`.
    pub(super) regs: Regs,
    pub(super) regs_changed: bool,
    pub(super) bases_changed: bool,
    /// See [`Came::missed`].
    pub(super) missed: Option<(u64, u64)>,
    /// It serves again: what it had used of the CPU before is to be noted.
    pub(super) clock_due: bool,
    pub(super) spin: MailboxSpin,
    pub(super) hot: Hot<64>,
    /// Where the call just given came from.
    pub(super) from: From,
    /// The patched sites that it knows, and their number ([`Process::sites`]).
    pub(super) sites: (Arc<Sites>, u64),
    /// Whether both sides wake each other where they are themselves ([`Thread::wake_here`]).
    pub(super) here: bool,
    /// The thread may not go to the CPU where this one was when it began to spin.
    pub(super) away: bool,
    /// Its calls that are not counted yet, and what [`lane::slot_hits`] was when they last were.
    pub(super) calls: CallCount,
    pub(super) slot_hits: u32,
}

/// Where a call came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// A patched site: by a lane, or by the trap that stands for its call.
    Patched,
    /// One that is not, which it returns to.
    Site(u64),
}

impl Thread {
    pub(super) fn new(process: Arc<Process>, mut raw: RawThread) -> Result<Thread> {
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
            slot_hits: 0,
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
        let view = t.view();
        mailbox::reset(view.state());
        view.publish(None);
        t.slot_hits = view.slot_hits();
        t.regs.eflags = 0x202;
        t.bases_changed = true;
        t.regs_changed = true;
        t.process.add_kick(t.kick.clone());
        Ok(t)
    }

    pub(super) fn area(&self) -> (hostcall::MemSlice<'_>, u64) {
        let raw = self.raw.as_ref().expect("until drop");
        self.process.area(raw.area_no, raw.unit)
    }

    /// Its area as lanes see it.
    pub(super) fn view(&self) -> ThreadArea<'_> {
        ThreadArea::of(self.area().0)
    }

    /// It goes into application code. Whether a kick has been sent that it must take first.
    pub(super) fn entered(&mut self) -> bool {
        self.kick.entered()
    }

    /// It has come out, and what it was stopped at has been looked up.
    pub(super) fn left(&mut self) {
        self.kick.left();
    }

    pub(super) fn listener(&self) -> &Listener {
        self.listener.as_ref().expect("until drop")
    }

    pub(super) fn frame(&self) -> Option<Frame<'_>> {
        let Waits::Event { uc, .. } = self.waits else {
            return None;
        };
        let (area, base) = self.area();
        Frame::new(area, base, uc)
    }

    /// Lets the thread go on with what was set.
    ///
    /// `deferral` ends before it begins or ends to spin, which takes calls of the host.
    pub(super) fn answer(&mut self, deferral: &mut Option<wait::wakes::Deferral>) -> Result<()> {
        let (id, val) = match self.waits {
            Waits::Gone => return Err(ESRCH),
            Waits::Mail { nr } => {
                self.count(nr);
                self.answer_mail(deferral);
                return Ok(());
            }
            Waits::Call { id, nr } => {
                self.count(nr);
                self.begin_to_spin(deferral);
                (id, self.ret)
            }
            Waits::Event { id, .. } => (id, self.put_regs()),
        };
        self.regs_changed = false;
        self.bases_changed = false;
        self.ret = 0;
        host::notif_send(self.listener().raw(), id, val as i64)
    }

    /// Writes registers that were set where the thread loads them from; gives what the reply must
    /// tell it.
    fn put_regs(&mut self) -> u64 {
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
        val
    }

    /// The application destroyed its own stub: end it.
    pub(super) fn broken(&mut self) -> Event {
        self.process.kill();
        self.waits = Waits::Gone;
        Event::Gone
    }

    /// Lets it go on until the next event; wake-ups that are deferred are made when it runs.
    pub(super) fn run_with(&mut self, mut deferral: Option<wait::wakes::Deferral>) -> Event {
        // A thread that looks into its mailbox takes the kick when it comes.
        let mail = matches!(self.waits, Waits::Mail { .. });
        let due = self.entered() && !mail;
        if self.answer(&mut deferral).is_err() {
            self.left();
            self.waits = Waits::Gone;
            return Event::Gone;
        }
        drop(deferral);
        self.next(due, None)
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
        crate::CpuClock {
            application: Arc::new(self.process.thread_clock(raw)),
            spun: self.spin.spun.clone(),
        }
    }

    fn lanes(&mut self) -> Option<&mut dyn ThreadLanes> {
        match self.process.factory.lanes {
            Lanes::None => None,
            _ => Some(self),
        }
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
        self.stop_spinning();
        self.left();
        self.kick.end();
        self.process.forget_kick(&self.kick);
        let mut raw = self.raw.take().expect("only here");
        raw.listener = self.listener.take();
        if let (Some(id), Some(uc)) = (id, uc) {
            (raw.waits, raw.served) = (Some((id, uc)), true);
            raw = match self.process.keep_idle(raw) {
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
