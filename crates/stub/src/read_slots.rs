//! The area at [`READ_SLOTS`]: slots that the Sentry fills for the address space's reads, and the
//! changes of an epoll that lie there for it. The application may write all of it.

/// Its length.
pub const LEN: u64 = 32 * super::AREA_LEN;
/// `u32`: the descriptor of the epoll whose changes may lie here; [`NO_EPOLL`] for none.
pub const EPOLL: u64 = 0;
pub const NO_EPOLL: u32 = u32::MAX;
/// `u32`: how many changes were ever laid here, and how many of them were taken.
pub const LAID: u64 = 4;
pub const TAKEN: u64 = 8;
/// A byte for each descriptor: [`ASK`], [`OUT`] or [`IN`].
pub const STATES: u64 = 0x100;
/// The Sentry is asked.
pub const ASK: u8 = 0;
/// Not in the epoll's set.
pub const OUT: u8 = 1;
/// In its set.
pub const IN: u8 = 2;
/// The changes: `u32` operation, descriptor, events; data at [`RING_DATA`].
pub const RING: u64 = 0x400;
pub const RING_DATA: u64 = 16;
pub const RING_ENTRY: u64 = 32;
/// How many may lie there.
pub const RING_LEN: u64 = 64;
/// Descriptor `i`'s slot is at `SLOTS + i * SLOT_LEN`: a `u64` word, a `u32` that says where here
/// the data are, one that says how many more bytes there are than those ([`UNTOLD`]: ask), and room
/// for data.
pub const SLOTS: u64 = 0x1000;
pub const SLOT_SHIFT: u64 = 11;
pub const SLOT_LEN: u64 = 1 << SLOT_SHIFT;
pub const SLOT_AT: u64 = 8;
pub const SLOT_BEHIND: u64 = 12;
pub const SLOT_DATA: u64 = 64;
pub const UNTOLD: u32 = u32::MAX;
/// Room for more data than a slot has: smaller pieces, and larger ones behind them.
pub const PIECES: u64 = SLOTS + COUNT * SLOT_LEN;
pub const SMALL: u64 = 0x2000;
pub const SMALL_COUNT: u64 = 24;
pub const LARGE: u64 = 0x10000;
pub const LARGE_COUNT: u64 = 5;
/// How many descriptors have one.
pub const COUNT: u64 = 240;
/// In the word: the slot is filled.
pub const LIVE: u64 = 1;
/// When all is taken, the answer is EAGAIN.
pub const THEN_EMPTY: u64 = 2;
/// Nothing more may be taken.
pub const CLOSED: u64 = 4;
/// A read of more than is left asks: there is more.
pub const THEN_MORE: u64 = 8;
/// Seventeen bits: bytes that were taken.
pub const TAKEN_SHIFT: u64 = 4;
/// Seventeen bits: bytes that there were.
pub const LEN_SHIFT: u64 = 21;
pub const LEN_MASK: u64 = 0x1_ffff;
/// The rest: the fill's number, so that a claim is of the fill that was read.
pub const NUMBER_SHIFT: u64 = 38;
/// The most bytes of a fill in the slot itself, and of any.
pub const OWN: u64 = SLOT_LEN - SLOT_DATA;
pub const MAX: u64 = LARGE;
const _: () = assert!(MAX <= LEN_MASK && COUNT <= RING - STATES);
const _: () = assert!(RING + RING_LEN * RING_ENTRY <= SLOTS);
const _: () = assert!(PIECES + SMALL_COUNT * SMALL + LARGE_COUNT * LARGE <= LEN);
const _: () = assert!(super::READ_SLOTS + LEN <= super::AREAS);
