//! One connection's end (RFC 9293): a machine of segments and time.

mod segment;

pub use segment::{Flags, Header, Options, SackBlocks, Segment, Seq, Timestamps};
