//! Huge pages of the host, made where memory is filled from one end to the other: one call instead
//! of 512 faults for each, for a sixth of the time.
//!
//! Mostly. The host begins such a call by waiting until each of its CPUs has worked for it for a
//! moment (`lru_add_drain_all`), and where it is a virtual machine itself, its large free blocks
//! presumably are memory that it has first to be given (4 to 5 ms each, where what was just freed
//! in small pieces is at hand). So a call that took longer than the faults would have, or failed,
//! has the next pages left as they are: the more, the more often in a row that happens. Nothing
//! depends on it.

use crate::{Cla, Clas};
use abi::PAGE_SIZE;
use hostcall::mem::collapse;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// The size of a huge page.
pub const LEN: u64 = 2 << 20;
/// What the faults take that it saves, by page.
const FAULT: Duration = Duration::from_nanos(1500);
/// So long huge pages are made in one go, and then what was begun: others may wait for the address
/// space.
const LONGEST: Duration = Duration::from_millis(2);
/// So many are left as they are after a call that did not pay, at first and at most.
const REST: (u32, u32) = (1, 64);

/// Whether it pays now.
#[derive(Debug, Default)]
pub(crate) struct Pays {
    /// How many are still left as they are.
    rest: AtomicU32,
    /// How many were the last time; 0 where a call has paid since.
    last: AtomicU32,
}

impl Pays {
    /// Whether the next is to be tried.
    fn tries(&self) -> bool {
        let one_less = |n: u32| n.checked_sub(1);
        self.rest.fetch_update(Relaxed, Relaxed, one_less).is_err()
    }

    fn note(&self, paid: bool) {
        let rest = match self.last.load(Relaxed) {
            _ if paid => 0,
            last => (2 * last).clamp(REST.0, REST.1),
        };
        self.last.store(rest, Relaxed);
        self.rest.store(rest, Relaxed);
    }
}

impl Clas {
    /// Makes huge pages of the frames from `at` to `end`, as far as those are whole ones and the
    /// host has some, until it takes long. The frames must be allocated, and nobody else's;
    /// contents stay. One that begins with a page in memory is left alone.
    pub fn make_huge(&self, at: Cla, end: Cla) {
        let (mut at, end) = (Cla(at.0.next_multiple_of(LEN)), Cla(end.0 & !(LEN - 1)));
        if self.on_disk {
            return;
        }
        let first = Instant::now();
        while at < end && first.elapsed() < LONGEST {
            if !self.is_full(at, 1) && self.huge.tries() {
                let page = self.slice(at, LEN as usize);
                // The host wants to find something there. (Not `fetch_or(0)`, which a compiler
                // leaves out.)
                if let Some(word) = page.sub(0, 4).atomic_u32() {
                    let _ = word.compare_exchange(0, 0, SeqCst, SeqCst);
                }
                let begin = Instant::now();
                let made = collapse(page).is_ok();
                let paid = made && begin.elapsed() < FAULT * (LEN / PAGE_SIZE) as u32;
                self.huge.note(paid);
                if !paid {
                    return;
                }
            }
            at = at.add(LEN);
        }
    }

    /// Whether nearly all of `[at, at + len)`, which is at least [`LEN`] / 2, has been written, by
    /// some samples: in memory, and not all zeros, as is what was made of huge pages and nobody has
    /// written since. Only a hint.
    #[must_use]
    pub fn is_dense(&self, at: Cla, len: u64) -> bool {
        const SAMPLES: u64 = 8;
        let written = |page: Cla| {
            let page = self.slice(page, PAGE_SIZE as usize);
            let mut buf = [0u8; 256];
            (0..page.len()).step_by(buf.len()).any(|from| {
                page.sub(from, buf.len()).copy_to(&mut buf);
                buf.iter().any(|b| *b != 0)
            })
        };
        let step = (len / SAMPLES) & !(PAGE_SIZE - 1);
        // The last one first: it tells most.
        let last = at.add(len - PAGE_SIZE);
        let mut pages = (0..SAMPLES).map(|i| at.add(i * step));
        !self.on_disk
            && self.is_full(last, 1)
            && pages.clone().all(|p| self.is_full(p, 1))
            && written(last)
            && pages.by_ref().filter(|p| written(*p)).count() as u64 >= SAMPLES - 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pay_is_tried_seldom() {
        let p = Pays::default();
        let tried = |n: u32| (0..n).filter(|_| p.tries()).count();
        assert_eq!(tried(10), 10);
        for n in [1, 2, 4] {
            p.note(false);
            assert_eq!((tried(n), tried(1)), (0, 1));
        }
        for _ in 0..10 {
            p.note(false);
        }
        assert_eq!((tried(64), tried(1)), (0, 1));
        p.note(true);
        assert_eq!(tried(10), 10);
        p.note(false);
        assert_eq!((tried(1), tried(1)), (0, 1));
    }
}
