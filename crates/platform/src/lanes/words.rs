//! The words that a thread of the Sentry and application code change at the same time: the Sentry's
//! steps.
//!
//! What stands there the application can forge, and so deceives itself. With an application that
//! does not, no call is lost, none is answered twice, and no signal waits unseen. That holds in
//! every order of steps and stores: the tests try them all by loom, with the application's half as
//! the instructions of `stub` make it. Where the words lie, and what comes with them, is
//! [`super::area`]'s and [`crate::lanes::read_slots`]'s.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// A word of shared memory: each operation is one step that all sides see in one order.
pub trait Word<T> {
    fn get(&self) -> T;
    fn set(&self, value: T);
    /// This and those below give what stood there before.
    fn exchange(&self, value: T) -> T;
    fn and(&self, bits: T) -> T;
    fn or(&self, bits: T) -> T;
    fn change(&self, to: impl Fn(T) -> T) -> T;
}

macro_rules! words {
    ($($atomic:ty, $of:ty;)*) => {$(
        impl Word<$of> for $atomic {
            fn get(&self) -> $of {
                self.load(SeqCst)
            }
            fn set(&self, value: $of) {
                self.store(value, SeqCst);
            }
            fn exchange(&self, value: $of) -> $of {
                self.swap(value, SeqCst)
            }
            fn and(&self, bits: $of) -> $of {
                self.fetch_and(bits, SeqCst)
            }
            fn or(&self, bits: $of) -> $of {
                self.fetch_or(bits, SeqCst)
            }
            fn change(&self, to: impl Fn($of) -> $of) -> $of {
                let mut now = self.load(SeqCst);
                loop {
                    match self.compare_exchange_weak(now, to(now), SeqCst, SeqCst) {
                        Ok(before) => return before,
                        Err(other) => now = other,
                    }
                }
            }
        }
    )*};
}
words! {
    AtomicU32, u32;
    AtomicU64, u64;
}

/// The state word of a mailbox: see [`stub::lane`] for its picture.
pub mod mailbox {
    use super::Word;
    use stub::lane::{ANSWERED, ASKED, PARKED, SPINS};

    /// What the Sentry does behind an answer.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AfterAnswer {
        /// It spins for the next call.
        Spins,
        Stops,
    }

    /// The thread stands still, or has just begun: nothing is asked, and nobody spins.
    pub fn reset(state: &impl Word<u32>) {
        state.set(0);
    }

    /// The Sentry spins from here on. The application's thread is in a system call, whose answer
    /// comes after this.
    pub fn begin(state: &impl Word<u32>) {
        state.set(SPINS);
    }

    /// The Sentry spins no more; whether a call was laid there in the last moment, which is to be
    /// answered.
    pub fn give_up(state: &impl Word<u32>) -> bool {
        state.and(!SPINS) & ASKED != 0
    }

    /// The result lies there. Whether the application has parked, and is to be told by the event
    /// call: for such a one the Sentry does not spin.
    pub fn answer(state: &impl Word<u32>, then: AfterAnswer) -> bool {
        let spins = |s| then == AfterAnswer::Spins && s & PARKED == 0;
        let before = state.change(|s| ANSWERED | if spins(s) { SPINS } else { 0 });
        before & PARKED != 0
    }
}

/// The mask of a thread in application code, which changes it itself, and the signals that it is
/// told wait for it.
pub mod signals {
    use super::Word;

    /// The thread is about to go into application code. `waiting` tells what waits and may be for
    /// it: who adds to that does so first, then calls [`note`]. So either `waiting` tells of it
    /// here, or it is added to the word after this.
    pub fn enter(
        mask: &impl Word<u64>,
        pending: &impl Word<u64>,
        blocked: u64,
        waiting: impl Fn() -> u64,
    ) {
        if mask.get() != blocked {
            mask.set(blocked);
        }
        if pending.get() != waiting() {
            pending.set(0);
            pending.or(waiting());
        }
    }

    /// Signals wait that this thread may be the one to take, when it blocks them no more. Its mask
    /// is looked at after this.
    pub fn note(pending: &impl Word<u64>, set: u64) {
        pending.or(set);
    }
}

/// The word of a read slot: see [`stub::read_slots`].
pub mod slot {
    use super::Word;
    use stub::read_slots::{CLOSED, LEN_MASK, TAKEN_SHIFT};

    /// The data lie there whole, in a slot that whoever ends all slots knows to be in use. `ended`:
    /// whether they have ended; then it is not filled, and this gives false.
    pub fn fill(word: &impl Word<u64>, filled: u64, ended: impl Fn() -> bool) -> bool {
        if ended() {
            return false;
        }
        // Who ends them has closed the slot by now, or does so after this.
        word.change(|w| filled | w & CLOSED);
        true
    }

    /// What has not been taken yet is not.
    pub fn close(word: &impl Word<u64>) {
        word.or(CLOSED);
    }

    /// Empties the slot: how many bytes of it were taken. Any number may stand there.
    pub fn revoke(word: &impl Word<u64>) -> u64 {
        word.exchange(0) >> TAKEN_SHIFT & LEN_MASK
    }
}

#[cfg(test)]
mod tests;
