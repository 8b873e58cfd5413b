//! Huge pages of the host, made where memory is filled from one end to the other: one call instead of 512 faults
//! for each.
//!
//! The host begins such a call by waiting until each of its CPUs has worked for it for a moment, which takes long
//! where they are busy. So a thread of its own makes them, ahead of who fills the memory; what that one reaches first
//! is left alone.
//!
//! Lock order: the queue's lock is a leaf.

use crate::{Cla, Clas};
use abi::PAGE_SIZE;
use hostcall::mem::collapse;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The size of a huge page.
pub const LEN: u64 = 2 << 20;
/// The most that one call makes.
const CALL_MAX: u64 = 8 << 20;
/// Runs that wait at most.
const QUEUE: usize = 8;
/// The thread ends when there was nothing to do for so long.
const IDLE: Duration = Duration::from_secs(1);
/// After a call that failed, so many runs are left as they are.
const REST: u32 = 8;

/// The runs that wait to be made of huge pages.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// The thread runs.
    up: bool,
    /// How many runs are still refused.
    rest: u32,
    /// With a reference to each frame.
    runs: VecDeque<(Arc<Clas>, Cla, Cla)>,
}

impl Clas {
    /// Has huge pages made of the frames from `at` to `end` soon, as far as those are whole ones, the host has some,
    /// and nobody has begun to write there. The frames must be allocated; contents stay.
    pub fn make_huge_soon(self: &Arc<Self>, at: Cla, end: Cla) {
        let (at, end) = (Cla(at.0.next_multiple_of(LEN)), Cla(end.0 & !(LEN - 1)));
        if self.on_disk || at >= end {
            return;
        }
        let mut s = self.huge.state.lock();
        if s.rest > 0 || s.runs.len() >= QUEUE {
            s.rest = s.rest.saturating_sub(1);
            return;
        }
        self.incref(at, (end.0 - at.0) / PAGE_SIZE);
        s.runs.push_back((self.clone(), at, end));
        if !s.up {
            let queue = self.huge.clone();
            let thread = std::thread::Builder::new().name("huge-pages".into());
            s.up = thread.spawn(move || queue.run()).is_ok();
        }
        let up = s.up;
        let refused = if up { None } else { s.runs.pop_back() };
        drop(s);
        match refused {
            Some((clas, at, end)) => clas.decref(at, (end.0 - at.0) / PAGE_SIZE),
            None => {
                self.huge.more.notify_one();
            }
        }
    }

    /// Makes them now; whether the host made all that nobody had begun to write.
    pub(crate) fn make_huge(&self, at: Cla, end: Cla) -> bool {
        let begun = |at: Cla| self.is_full(at, 1);
        let mut at = at;
        while at < end {
            if begun(at) {
                at = at.add(LEN);
                continue;
            }
            let mut to = at;
            while to < end && to.0 - at.0 < CALL_MAX && !begun(to) {
                // The host wants to find a page in each. Others may write there now. (Not `fetch_or(0)`, which a
                // compiler leaves out.)
                if let Some(word) = self.slice(to, 4).atomic_u32() {
                    use std::sync::atomic::Ordering::SeqCst;
                    let _ = word.compare_exchange(0, 0, SeqCst, SeqCst);
                }
                to = to.add(LEN);
            }
            if collapse(self.slice(at, (to.0 - at.0) as usize)).is_err() {
                return false;
            }
            at = to;
        }
        true
    }

    /// Whether nearly all of `[at, at + len)`, which is at least [`LEN`] / 2, is in memory, by some samples: only a
    /// hint.
    #[must_use]
    pub fn is_dense(&self, at: Cla, len: u64) -> bool {
        const SAMPLE: u64 = 32;
        let last = len - SAMPLE * PAGE_SIZE;
        let middle = (len / 2) & !(PAGE_SIZE - 1);
        !self.on_disk
            && [last, middle, 0]
                .into_iter()
                .all(|from| self.is_full(at.add(from), SAMPLE))
    }
}

impl Queue {
    fn run(&self) {
        loop {
            let mut s = self.state.lock();
            while s.runs.is_empty() {
                if self.more.wait_for(&mut s, IDLE).timed_out() && s.runs.is_empty() {
                    s.up = false;
                    return;
                }
            }
            let Some((clas, at, end)) = s.runs.pop_front() else {
                continue;
            };
            drop(s);
            let made = clas.make_huge(at, end);
            clas.decref(at, (end.0 - at.0) / PAGE_SIZE);
            drop(clas);
            if !made {
                self.state.lock().rest = REST;
            }
        }
    }
}
