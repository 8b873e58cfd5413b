//! Copies of what may be read next, laid where the reader takes them without asking.
//!
//! An object (a stream's queue) *fills* a slot with its first bytes: it copies them to
//! [`ReadSlots`], and keeps them. The reader claims bytes there by one atomic step. Before the
//! object looks at or changes those bytes, it *revokes* the slot, under its own lock, and drops
//! what was taken. So all that it does is as if the reads had been done by it, each at the time of
//! its claim.

use std::sync::Arc;

/// The slots of an address space, by descriptor.
pub trait ReadSlots: Send + Sync {
    /// Copies `parts` to `slot` and lets it be taken; when all is, the next finds that there is
    /// nothing if `then` says so. The fill's number; `None` where there is no room for so much, or
    /// the slot is filled.
    fn fill(&self, slot: u32, parts: [&[u8]; 2], then: Remainder) -> Option<u32>;
    /// Empties the slot if its fill is that one: from now on nobody takes of it. How many bytes
    /// were taken, by what the reader may have forged: the caller bounds it by what it put there.
    fn revoke(&self, slot: u32, number: u32) -> usize;
}

/// An object that can fill a slot with its first bytes.
pub trait SlotSource {
    /// Fills `slot` with what the next reads give, where that is simple. `nonblocking`: whether
    /// reads of its file are.
    fn fill_slot(&self, slots: &Arc<dyn ReadSlots>, slot: u32, nonblocking: &dyn Fn() -> bool);
    /// Revokes the slot that it has filled, if any. May be called under the lock of a descriptor
    /// table.
    fn revoke_slot(&self);
}

/// What a read finds that comes when all is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// It asks.
    Ask,
    /// It asks, and so does a read of more than is left: there are so many more bytes than are
    /// in the slot.
    More(u32),
    /// `EAGAIN`.
    Empty,
}
