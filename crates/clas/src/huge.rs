//! Huge pages of the host, made where memory is filled from one end to the other: one call instead of 512 faults
//! for each.
//!
//! The host begins such a call by waiting until each of its CPUs has worked for it for a moment, which takes long
//! where they are busy. So a thread of its own makes them, ahead of who fills the memory; what that one reaches first
//! is left alone.
//!
//! The thread holds a reference to what waits. What is discarded, or unmapped as a part or whole, is taken out of the
//! queue at once: the host's memory for it is needed by what comes next. All is, where there is no room. So at most
//! [`CALL_MAX`] can be held, or filled, for nothing: what the host is at work on. That is let go of when the call is
//! over: who finds no room waits for it, as for address spaces that end.
//!
//! Lock order: the queue's lock is a leaf; `Clas::inner`, another, is never taken under it.

use crate::{Cla, Clas};
use abi::PAGE_SIZE;
use hostcall::mem::collapse;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The size of a huge page.
pub const LEN: u64 = 2 << 20;
/// The most that one call makes.
const CALL_MAX: u64 = 8 << 20;
/// Runs, and bytes, that wait at most.
const QUEUE: usize = 8;
const BYTES: u64 = 64 << 20;
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
    runs: VecDeque<Run>,
    /// What is being made; `None` where it is not wanted any more.
    now: Option<(Cla, Cla)>,
}

struct Run {
    clas: Arc<Clas>,
    at: Cla,
    end: Cla,
}

impl Run {
    fn len(&self) -> u64 {
        self.end.0 - self.at.0
    }

    /// With references of its own to the frames, which must be allocated.
    fn new(clas: &Arc<Clas>, at: Cla, end: Cla) -> Run {
        let clas = clas.clone();
        clas.incref(at, (end.0 - at.0) / PAGE_SIZE);
        clas.making.fetch_add(1, SeqCst);
        Run { clas, at, end }
    }

    /// What is beyond `len`, as a run of its own.
    fn split_off(&mut self, len: u64) -> Option<Run> {
        let (clas, end) = (self.clas.clone(), self.end);
        let at = self.at.add(len);
        (at < end).then(|| {
            clas.making.fetch_add(1, SeqCst);
            self.end = at;
            Run { clas, at, end }
        })
    }

    /// Gives its references back.
    fn forget(self) {
        self.clas.give(self.at, self.len() / PAGE_SIZE);
        self.clas.making.fetch_sub(1, SeqCst);
        self.clas.tell_room();
    }
}

impl Waiting {
    /// Whether `len` more bytes are welcome.
    fn has_room(&self, len: u64) -> bool {
        let bytes: u64 = self.runs.iter().map(Run::len).sum();
        self.rest == 0 && self.runs.len() < QUEUE && bytes + len <= BYTES
    }
}

impl Clas {
    /// Has huge pages made of the frames from `at` to `end` soon, as far as those are whole ones, the host has some,
    /// and nobody has begun to write there. The frames must be allocated; contents stay.
    pub fn make_huge_soon(self: &Arc<Self>, at: Cla, end: Cla) {
        let (at, end) = (Cla(at.0.next_multiple_of(LEN)), Cla(end.0 & !(LEN - 1)));
        if self.on_disk || at >= end {
            return;
        }
        let len = end.0 - at.0;
        {
            let mut s = self.huge.state.lock();
            if !s.has_room(len) {
                s.rest = s.rest.saturating_sub(1);
                return;
            }
        }
        let run = Run::new(self, at, end);
        let refused = {
            let mut s = self.huge.state.lock();
            if !s.up && s.has_room(len) {
                let queue = self.huge.clone();
                let thread = std::thread::Builder::new().name("huge-pages".into());
                s.up = thread.spawn(move || queue.run()).is_ok();
            }
            if s.up && s.has_room(len) {
                s.runs.push_back(run);
                None
            } else {
                Some(run)
            }
        };
        match refused {
            Some(run) => run.forget(),
            None => {
                self.huge.more.notify_one();
            }
        }
    }

    /// What lies in `[at, at + len)` is not to be made of huge pages any more.
    pub(crate) fn forget_huge(&self, at: Cla, len: u64) {
        if self.making.load(SeqCst) == 0 {
            return;
        }
        let end = Cla(at.0.saturating_add(len));
        let gone: Vec<Run> = {
            let mut s = self.huge.state.lock();
            s.now.take_if(|(s, e)| *s < end && at < *e);
            if !s.runs.iter().any(|r| r.at < end && at < r.end) {
                return;
            }
            let (gone, stay) = std::mem::take(&mut s.runs)
                .into_iter()
                .partition(|r| r.at < end && at < r.end);
            s.runs = stay;
            gone.into()
        };
        gone.into_iter().for_each(Run::forget);
    }

    /// Makes them now, as long as `wanted` says so before each call; whether the host made all that nobody had begun
    /// to write. The caller has a reference of its own: what nobody else has is left alone.
    pub(crate) fn make_huge(&self, at: Cla, end: Cla, wanted: impl Fn() -> bool) -> bool {
        let not = |at: Cla| {
            let (start, end) = (at.page(), at.add(LEN).page());
            self.is_full(at, 1) || self.inner.lock().refs.some_exclusive(start, end)
        };
        let mut at = at;
        while at < end && wanted() {
            if not(at) {
                at = at.add(LEN);
                continue;
            }
            let mut to = at;
            while to < end && to.0 - at.0 < CALL_MAX && !not(to) {
                // The host wants to find a page in each. Others may write there now. (Not `fetch_or(0)`, which a
                // compiler leaves out.)
                if let Some(word) = self.slice(to, 4).atomic_u32() {
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
            let Some(mut run) = s.runs.pop_front() else {
                continue;
            };
            if let Some(rest) = run.split_off(CALL_MAX) {
                s.runs.push_front(rest);
            }
            s.now = Some((run.at, run.end));
            drop(s);
            let wanted = || self.state.lock().now.is_some();
            let made = run.clas.make_huge(run.at, run.end, wanted);
            let gone = {
                let mut s = self.state.lock();
                s.now = None;
                if made {
                    VecDeque::new()
                } else {
                    s.rest = REST;
                    std::mem::take(&mut s.runs)
                }
            };
            run.forget();
            gone.into_iter().for_each(Run::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wait;

    #[test]
    fn who_finds_no_room_waits_for_what_is_being_made() {
        let pages = LEN / PAGE_SIZE;
        let c = Clas::with_limit(LEN).unwrap();
        let at = c.allocate(pages, None).unwrap();
        let run = Run::new(&c, at, at.add(LEN));
        c.huge.state.lock().now = Some((run.at, run.end));
        // Unmapped while the host works on it.
        c.decref(at, pages);
        assert!(c.huge.state.lock().now.is_none());
        let near = |wait| c.allocate_near(pages, None, None, abi::Va(0), wait);
        assert_eq!(near(Wait::No), Err(abi::errno::ENOMEM));
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            run.forget();
        });
        let again = near(Wait::ForEnding).unwrap();
        thread.join().unwrap();
        c.decref(again, pages);
        assert_eq!((c.stats().allocated, c.making.load(SeqCst)), (0, 0));
    }

    #[test]
    fn what_is_unmapped_is_let_go_of_at_once() {
        let len = 2 * CALL_MAX + LEN;
        let c = Clas::new().unwrap();
        let at = c.allocate(len / PAGE_SIZE, None).unwrap();
        c.slice(at, len as usize).zero();
        let mut first = Run::new(&c, at, at.add(len));
        let rest = first.split_off(CALL_MAX).unwrap();
        assert_eq!((first.len(), rest.len()), (CALL_MAX, len - CALL_MAX));
        {
            let mut s = c.huge.state.lock();
            s.now = Some((first.at, first.end));
            s.runs.push_back(rest);
        }
        assert!(c.stats().resident >= len);
        // The last page of all.
        c.decref(at.add(len - PAGE_SIZE), 1);
        assert!(c.huge.state.lock().runs.is_empty());
        assert!(c.huge.state.lock().now.is_some());
        c.decref(at, len / PAGE_SIZE - 1);
        assert_eq!(c.stats().allocated, CALL_MAX);
        assert!(c.stats().resident < CALL_MAX + LEN);
        first.forget();
        assert_eq!((c.stats().allocated, c.making.load(SeqCst)), (0, 0));
    }
}
