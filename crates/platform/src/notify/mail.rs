//! The lanes of a thread: its mailbox, and where the two sides wake each other.

use super::thread::{From, Thread, Waits};
use crate::lanes::area::{Request, ThreadArea};
use crate::lanes::spin::achieves;
use crate::lanes::words::mailbox::{self, AfterAnswer};
use crate::lanes::{Came, Local, LocalState, ThreadLanes};
use crate::process::{TRAPPED, readable_within};
use crate::{Event, Lanes};
use abi::syscalls::X32;
use hostcall::process as host;
use wait::spin::table::BESIDE_MOST;

impl Thread {
    /// A call is about to be answered.
    pub(super) fn count(&mut self, nr: u64) {
        if self.process.factory.lanes >= Lanes::All && achieves(nr, self.ret) && self.calls.called()
        {
            let slot_hits = self.view().slot_hits();
            let before = std::mem::replace(&mut self.slot_hits, slot_hits);
            let more = slot_hits.wrapping_sub(before).min(BESIDE_MOST);
            self.process
                .factory
                .spinners
                .count_calls(&mut self.calls, more.into());
        }
    }

    /// Answers what lies in the mailbox.
    pub(super) fn answer_mail(&mut self, deferral: &mut Option<wait::wakes::Deferral>) {
        let all = &self.process.factory.spinners;
        let then = self.spin.again(all);
        let area = self.view();
        area.put_result(self.ret);
        let parked = mailbox::answer(area.state(), then);
        self.ret = 0;
        if parked || then == AfterAnswer::Stops {
            *deferral = None;
        }
        if parked {
            self.wake_here(true);
            self.let_move();
            self.spin.late(&self.process.factory.spinners);
        } else if then == AfterAnswer::Stops {
            self.stop_spinning();
        }
    }

    /// Begins to spin for the mailbox if calls have been coming fast.
    pub(super) fn begin_to_spin(&mut self, deferral: &mut Option<wait::wakes::Deferral>) {
        let all = &self.process.factory.spinners;
        if self.process.factory.lanes >= Lanes::All && self.spin.answering(all) {
            mailbox::begin(self.view().state());
            *deferral = None;
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
    pub(super) fn let_move(&mut self) {
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
            let how = if here {
                host::WakeUp::Synchronous
            } else {
                host::WakeUp::Plain
            };
            let _ = host::notif_wake_up(self.listener().raw(), how);
        }
    }

    /// Spins no more: the next to come wakes this thread where it is itself.
    pub(super) fn stop_spinning(&mut self) {
        self.wake_here(true);
        self.let_move();
        self.spin.stop(&self.process.factory.spinners);
    }

    /// Spins for the mailbox; the call found there.
    pub(super) fn spin(&mut self) -> Option<Event> {
        let raw = self.raw.as_ref().expect("until drop");
        let area = ThreadArea::of(self.process.area(raw.area_no, raw.unit).0);
        let all = &self.process.factory.spinners;
        let listener = self.listener.as_ref().expect("until drop").raw();
        // A call of a site that is not patched leaves the state as it is.
        let elsewhere = || readable_within(&[listener], 0);
        let asked = self.spin.spin(area.state(), all, elsewhere);
        let request = asked.then(|| area.request());
        if request.is_none() {
            self.wake_here(true);
            self.let_move();
        }
        let Request { nr, args, back: ip } = request?;
        // The lane never asks these this way: they need registers, which only a trap shows.
        if nr >= X32.into() || TRAPPED.contains(&(nr as u32)) {
            return Some(self.broken());
        }
        self.left();
        self.from = From::Patched;
        self.waits = Waits::Mail { nr };
        Some(Event::Syscall { nr, args, ip })
    }
}

impl ThreadLanes for Thread {
    fn publish(&mut self, local: Option<Local>) {
        self.view().publish(local);
    }

    fn put(&mut self, own: &LocalState, pending: &dyn Fn() -> u64) {
        let area = self.view();
        area.put_mask(own.mask, pending);
        area.put_stack(&own.stack);
    }

    fn run(&mut self, deferral: Option<wait::wakes::Deferral>) -> Event {
        self.run_with(deferral)
    }

    fn own(&self) -> LocalState {
        let area = self.view();
        LocalState {
            mask: area.mask(),
            stack: area.stack(),
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
