//! Copies of what may be read next, laid where the reader takes them without asking.
//!
//! An object (a stream's queue) *offers* its first bytes: it copies them to a [`Place`], and keeps
//! them. Whoever reads there claims bytes by one atomic step. Before the object looks at or changes
//! what it offers, it ends the offer, under its own lock, and drops what was taken. So all that it
//! does is as if the reads had been done by it, each at the time of its claim.

use std::sync::Arc;

/// Where offers lie: slots, by descriptor.
pub trait Place: Send + Sync {
    /// Copies `parts` to `slot` and lets it be taken; when all is, the next finds that there is
    /// nothing if `then` says so. The offer's number; `None` where there is no room for so much, or
    /// the slot has an offer.
    fn put(&self, slot: u32, parts: [&[u8]; 2], then: Then) -> Option<u32>;
    /// Ends an offer: from now on nobody takes of it. How many bytes were taken, by what the reader
    /// may have forged: the caller bounds it by what it offered.
    fn end(&self, slot: u32, number: u32) -> usize;
}

/// An object whose first bytes may be offered.
pub trait ReadSlots {
    /// Offers what the next reads give in `slot`, where that is simple. `nonblocking`: whether
    /// reads of its file are.
    fn offer(&self, place: &Arc<dyn Place>, slot: u32, nonblocking: &dyn Fn() -> bool);
    /// Ends what is offered of it. May be called under the lock of a descriptor table.
    fn end_offer(&self);
}

/// What a read finds that comes when all is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It asks.
    Ask,
    /// It asks, and so does a read of more than is left: there are so many more bytes than are
    /// offered.
    More(u32),
    /// `EAGAIN`.
    Empty,
}
