//! The thread that submits for rings with `SQPOLL` (`io_uring/sqpoll.c`): a task of the maker's
//! process that never runs the application's code. What it does is
//! `crate::syscalls::uring`'s; here is what it shares with its rings.
//!
//! It looks for entries for a moment after the last one, and then sleeps, with `NEED_WAKEUP` told
//! to the application first: both store and then load, so that one sees the other. Linux's looks
//! for `sq_thread_idle`; an application sees the same but for the flag, which comes sooner.
//!
//! It ends when it has no ring any more, or its process no other thread.

use super::Ring;
use parking_lot::Mutex;
use platform::{AppThread, CpuClock, Event, Interrupter, Regs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use vfs::Credentials;
use wait::{Events, WaitQueue};

/// A thread that submits.
pub struct Thread {
    /// Whose process it is of, and as whom it acts. Immutable.
    pub tgid: i32,
    pub cred: Arc<Credentials>,
    rings: Mutex<Vec<Weak<Ring>>>,
    /// It is to look.
    woken: AtomicBool,
    /// Once true it stays so.
    gone: AtomicBool,
    pub queue: WaitQueue,
}

impl Thread {
    #[must_use]
    pub fn new(tgid: i32, cred: Arc<Credentials>) -> Arc<Thread> {
        Arc::new(Thread {
            tgid,
            cred,
            rings: Mutex::default(),
            woken: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            queue: WaitQueue::new(),
        })
    }
    /// It submits for this ring from now on; false where it has ended.
    pub fn join(&self, ring: &Arc<Ring>) -> bool {
        let mut all = self.rings.lock();
        if self.is_gone() {
            return false;
        }
        all.push(Arc::downgrade(ring));
        drop(all);
        self.wake();
        true
    }
    /// A ring has come to its end.
    pub fn leave(&self, ring: &Ring) {
        self.rings
            .lock()
            .retain(|w| !std::ptr::eq(w.as_ptr(), ring));
        self.wake();
    }
    /// Its rings.
    #[must_use]
    pub fn rings(&self) -> Vec<Arc<Ring>> {
        self.rings.lock().iter().filter_map(Weak::upgrade).collect()
    }
    pub fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.queue.notify(Events::IN);
    }
    pub fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }
    /// It ends if it has no ring; whether it does.
    pub fn end_if_unused(&self) -> bool {
        let all = self.rings.lock();
        let ends = all.iter().all(|w| w.strong_count() == 0);
        if ends {
            self.gone.store(true, Ordering::SeqCst);
        }
        ends
    }
    /// It ends, whatever rings it has.
    pub fn end(&self) {
        let _rings = self.rings.lock();
        self.gone.store(true, Ordering::SeqCst);
    }
}

/// The application side of a thread that has none.
pub struct NoApp;

impl Interrupter for NoApp {
    fn interrupt(&self) {}
}

impl AppThread for NoApp {
    fn run(&mut self) -> Event {
        Event::Gone
    }
    fn set_return(&mut self, _: u64) {}
    fn has_regs(&self) -> bool {
        true
    }
    fn fetch_regs(&mut self) -> Event {
        Event::Interrupted
    }
    fn regs(&self) -> Regs {
        Regs::default()
    }
    fn set_regs(&mut self, _: &Regs) {}
    fn fp_state(&self, _: &mut Vec<u8>) {}
    fn set_fp_state(&mut self, _: Option<&[u8]>) -> abi::Result<()> {
        Ok(())
    }
    fn interrupter(&self) -> Arc<dyn Interrupter> {
        Arc::new(NoApp)
    }
    fn cpu_clock(&self) -> CpuClock {
        CpuClock::new(|| 0)
    }
}
