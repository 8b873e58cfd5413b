//! Above `memory.high`: how long who makes memory there is held up (Linux:
//! `mem_cgroup_handle_over_high`). And above the limit, which the kernel's own memory can pass.
//!
//! A thread that makes frames or objects may hold locks, so it only takes a note of them; it sleeps
//! for them where it holds none, before its program goes on.

use crate::Clas;
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// Pages that this host thread has made above some `high` since it slept for them.
    static ABOVE: Cell<u64> = const { Cell::new(0) };
    /// It has made more of the kernel's memory than the limit leaves.
    static OVER: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread has made so many pages.
pub(crate) fn note(pages: u64) {
    ABOVE.set(ABOVE.get().saturating_add(pages));
}

/// The calling thread has made what the limit leaves no room for.
pub(crate) fn note_over_limit() {
    // (A thread that ends may have none any more.)
    let _ = OVER.try_with(|o| o.set(true));
}

/// Whether the calling thread is to wait for the container to be within its limit; it does now.
#[must_use]
pub fn take_over_limit() -> bool {
    OVER.replace(false)
}

/// Whether the calling thread is to sleep for something.
#[must_use]
pub fn is_held_up() -> bool {
    ABOVE.get() > 0 || OVER.get()
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
        assert!(!is_held_up());
        let g = c.allocate(10, None).unwrap();
        assert!(is_held_up());
        assert_eq!(take_above_high(), 10);
        assert!(!is_held_up());
        // A tenth above: 0.64 s for 32 pages.
        let of = |pages| c.high_delay(pages).map(|d| d.as_millis());
        assert_eq!((of(32), of(16), of(0)), (Some(640), Some(320), None));
        assert_eq!(of(1000), Some(2000));
        c.decref(g, 10);
        assert_eq!(of(1000), None);
        c.decref(f, 100);
    }

    #[test]
    fn the_kernels_memory_can_pass_the_limit() {
        let c = Clas::with_limit(100 * PAGE_SIZE).unwrap();
        let payer = Arc::new(Payer::new(&c));
        pay_with(&payer);
        let f = c.allocate(60, None).unwrap();
        c.add_kernel_memory(40 * PAGE_SIZE as i64);
        assert!(!is_held_up() && !c.is_over_limit());
        assert!(c.allocate(1, None).is_err());
        c.add_kernel_memory(1);
        assert!(c.is_over_limit() && take_over_limit() && !is_held_up());
        assert!(c.is_awaited(crate::AccountId::ROOT));
        assert_eq!(payer.kernel_memory(), 40 * PAGE_SIZE + 1);
        c.decref(f, 60);
        assert!(!c.is_over_limit() && c.here() == 41 * PAGE_SIZE);
        c.add_kernel_memory(-41 * PAGE_SIZE as i64);
        assert_eq!((c.here(), payer.kernel_memory()), (0, 0));
    }
}
