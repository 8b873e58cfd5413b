//! Above `memory.high`: how long who makes memory there is held up (Linux:
//! `mem_cgroup_handle_over_high`).
//!
//! A thread that makes frames may hold locks, so it only takes a note of them; it sleeps for them
//! where it holds none, before its program goes on.

use crate::Clas;
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// Pages that this host thread has made above some `high` since it slept for them.
    static ABOVE: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread has made so many pages.
pub(crate) fn note(pages: u64) {
    ABOVE.set(ABOVE.get().saturating_add(pages));
}

/// Whether the calling thread is to sleep for something.
#[must_use]
pub fn is_above_high() -> bool {
    ABOVE.get() > 0
}

/// For how many pages; it does now.
#[must_use]
pub fn take_above_high() -> u64 {
    ABOVE.replace(0)
}

/// The delay for [`BATCH`] pages where there is twice as much as `high`; it grows with the square
/// of what is above.
const UNIT: f64 = 64.0;
const BATCH: f64 = 32.0;
/// No delay is longer, and none so short is made.
const LONGEST: f64 = 2.0;
const LEAST: f64 = 0.01;

impl Clas {
    /// How long the calling thread sleeps for so many pages; `None` where it need not.
    #[must_use]
    pub fn high_delay(&self, pages: u64) -> Option<Duration> {
        let payer = self.payer();
        let inner = self.inner.lock();
        let over = inner.accounts.upwards(payer).map(|(_, e)| e.over_high());
        let most = over.fold(0.0, f64::max);
        let delay = UNIT * most * most * pages as f64 / BATCH;
        (delay > LEAST).then(|| Duration::from_secs_f64(delay.min(LONGEST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Payer, pay_with};
    use abi::PAGE_SIZE;
    use std::sync::Arc;

    #[test]
    fn who_is_far_above_sleeps_long() {
        let c = Clas::new().unwrap();
        let a = c.open_account(None).unwrap();
        a.set_high(100 * PAGE_SIZE);
        let payer = Arc::new(Payer::new(&c));
        payer.set(a.id());
        pay_with(&payer);
        let f = c.allocate(100, None).unwrap();
        assert!(!is_above_high());
        let g = c.allocate(10, None).unwrap();
        assert!(is_above_high());
        assert_eq!(take_above_high(), 10);
        assert!(!is_above_high());
        // A tenth above: 0.64 s for 32 pages.
        let of = |pages| c.high_delay(pages).map(|d| d.as_millis());
        assert_eq!((of(32), of(16), of(0)), (Some(640), Some(320), None));
        assert_eq!(of(1000), Some(2000));
        c.decref(g, 10);
        assert_eq!(of(1000), None);
        c.decref(f, 100);
    }
}
