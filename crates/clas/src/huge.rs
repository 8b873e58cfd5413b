//! Huge pages of the host, made where memory is filled from one end to the other: one call instead of 512 faults
//! for each of the processes that map it.

use crate::{Cla, Clas};
use hostcall::mem::{collapse, data_end};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The size of a huge page.
pub const LEN: u64 = 2 << 20;
/// The host that takes longer, for a call and for each huge page of it, had to look for memory: faults are no
/// slower. (A call waits until every CPU has been busy for the host for a moment, however much it makes.)
const SLOW_CALL: Duration = Duration::from_millis(10);
const SLOW: Duration = Duration::from_micros(1000);
/// After a call that failed or was slow, so many are not made.
const REST: u32 = 4;

/// How many calls are still not made.
#[derive(Default)]
pub(crate) struct Patience(AtomicU32);

impl Clas {
    /// Makes huge pages of the frames from `at` to `end`, as far as those are whole ones, and the host has some
    /// and gives them soon; whether all are. Contents stay.
    pub fn make_huge(&self, at: Cla, end: Cla) -> bool {
        let (at, end) = (at.0.next_multiple_of(LEN), end.0 & !(LEN - 1));
        if self.on_disk || at >= end {
            return false;
        }
        let wait = &self.huge.0;
        if wait
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_ok()
        {
            return false;
        }
        let since = Instant::now();
        let all = self.slice(Cla(at), (end - at) as usize);
        for part in (0..all.len()).step_by(LEN as usize) {
            // The host wants to find a page in each. Others may be writing there.
            if let Some(word) = all.sub(part, 4).atomic_u32() {
                // Not `fetch_or(0)`, which a compiler leaves out.
                let _ = word.compare_exchange(0, 0, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
        // In one call: the host begins each by waiting for every CPU once.
        let done = collapse(all);
        if done.is_err() || since.elapsed() > SLOW_CALL + SLOW * ((end - at) / LEN) as u32 {
            wait.store(REST, Ordering::Relaxed);
        }
        done.is_ok()
    }

    /// Whether nearly all of `[at, at + len)` was written, as far as one can tell from its start.
    #[must_use]
    pub fn is_dense(&self, at: Cla, len: u64) -> bool {
        !self.on_disk && data_end(self.file.raw(), at.0) >= at.0 + len - len / 8
    }
}
