//! Where peeks begin (SO_PEEK_OFF of `socket(7)`; Linux's `sk_peek_offset`).
//!
//! An offset of -1, or any below 0, is none: peeks begin with the first byte, and nothing is
//! counted. One that is there goes on with what is peeked at, and back with what is read.

use crate::sys::MSG_PEEK;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};

/// See the module. No lock: of two receives at once either may be counted first, as on Linux.
pub struct PeekOffset(AtomicI32);

impl Default for PeekOffset {
    fn default() -> PeekOffset {
        PeekOffset(AtomicI32::new(-1))
    }
}

impl PeekOffset {
    pub fn get(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, n: i32) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Whether there is one: a receive changes it.
    pub fn is_on(&self) -> bool {
        self.get() >= 0
    }

    /// How many bytes a receive passes over; `None` where there is no offset, or it is no peek.
    pub fn skip(&self, flags: u32) -> Option<usize> {
        let peeks = flags & MSG_PEEK != 0;
        usize::try_from(self.get()).ok().filter(|_| peeks)
    }

    /// A receive gave `n` bytes.
    pub fn received(&self, flags: u32, n: usize) {
        if !self.is_on() {
            return;
        }
        let n = i32::try_from(n).unwrap_or(i32::MAX);
        let next = |at: i32| match flags & MSG_PEEK {
            0 => at.saturating_sub(n).max(0),
            _ => at.saturating_add(n),
        };
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| {
                (at >= 0).then(|| next(at))
            });
    }
}

/// A message that waits.
pub trait Message {
    fn bytes(&self) -> usize;
    /// Whether a peek has shown it: said of empty ones alone.
    fn shown(&mut self) -> &mut bool;
}

/// The message where a receive begins, and how many of its bytes it passes over: at an offset those
/// before it are none of this peek's, nor is an empty one that was shown.
pub fn find<M: Message>(all: &mut VecDeque<M>, skip: Option<usize>) -> Option<(&mut M, usize)> {
    let Some(mut left) = skip else {
        return all.front_mut().map(|m| (m, 0));
    };
    let mut at = None;
    for (i, m) in all.iter_mut().enumerate() {
        let n = m.bytes();
        if left >= n && (left > 0 || *m.shown()) {
            left -= n;
            continue;
        }
        *m.shown() = n == 0;
        at = Some(i);
        break;
    }
    all.get_mut(at?).map(|m| (m, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct M(usize, bool);

    impl Message for M {
        fn bytes(&self) -> usize {
            self.0
        }
        fn shown(&mut self) -> &mut bool {
            &mut self.1
        }
    }

    #[test]
    fn it_goes_on_with_peeks_and_back_with_reads() {
        let p = PeekOffset::default();
        p.received(MSG_PEEK, 5);
        assert_eq!((p.get(), p.skip(MSG_PEEK)), (-1, None));
        p.set(2);
        p.received(MSG_PEEK, 5);
        assert_eq!((p.skip(MSG_PEEK), p.skip(0)), (Some(7), None));
        p.received(0, 3);
        assert_eq!(p.get(), 4);
        p.received(0, 9);
        assert_eq!(p.get(), 0);
    }

    #[test]
    fn an_empty_message_is_shown_once() {
        let mut all: VecDeque<M> = [M(0, false), M(3, false)].into();
        let at = |all: &mut VecDeque<M>, skip| find(all, skip).map(|(m, n)| (m.0, n));
        assert_eq!(at(&mut all, Some(0)), Some((0, 0)));
        assert_eq!(at(&mut all, Some(0)), Some((3, 0)));
        assert_eq!(at(&mut all, Some(2)), Some((3, 2)));
        assert_eq!(at(&mut all, Some(3)), None);
        assert_eq!(at(&mut all, None), Some((0, 0)));
    }
}
