//! The steps of a parker's state, apart from what it is made of, so that the model tries all their
//! orders.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

pub(crate) const IDLE: u32 = 0;
pub(crate) const WOKEN: u32 = 1;
pub(crate) const SPINNING: u32 = 2;
pub(crate) const ASLEEP: u32 = 3;

/// The state: each operation is one step that all threads see in one order.
pub(crate) trait Word {
    fn get(&self) -> u32;
    /// Gives what stood there before.
    fn exchange(&self, value: u32) -> u32;
    /// Whether `from` stood there, and `to` does now.
    fn replace(&self, from: u32, to: u32) -> bool;
}

impl Word for AtomicU32 {
    fn get(&self) -> u32 {
        self.load(SeqCst)
    }
    fn exchange(&self, value: u32) -> u32 {
        self.swap(value, SeqCst)
    }
    fn replace(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }
}

/// What a waker found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SleeperState {
    /// Nobody sleeps.
    Awake,
    /// Another has woken it; its wake-up may be late.
    Woken,
    /// A sleeper: this waker counts it as awake.
    Asleep,
}

/// Says that it is woken.
pub(crate) fn wake(state: &impl Word) -> SleeperState {
    match state.exchange(WOKEN) {
        ASLEEP => SleeperState::Asleep,
        WOKEN => SleeperState::Woken,
        _ => SleeperState::Awake,
    }
}

/// By the thread itself: takes what it finds, a wake-up for one.
pub(crate) fn take(state: &impl Word, from: u32) -> bool {
    state.replace(from, IDLE)
}

/// Waits until woken. `pause` gives true when the deadline has come. False if it was that which
/// ended it.
pub(crate) fn sleep(state: &impl Word, mut pause: impl FnMut() -> bool) -> bool {
    while state.get() == ASLEEP {
        if pause() && take(state, ASLEEP) {
            return false;
        }
    }
    take(state, WOKEN)
}
