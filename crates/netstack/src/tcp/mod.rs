//! One connection's end (RFC 9293): a machine of segments and time.
//!
//! [`Connection`] is told of segments, of time and of what its socket does, and sends by
//! [`Output`] when [`Connection::transmit`] is called, which is to follow each other call (after a
//! batch of segments once). It keeps no clock and no lock. In short:
//!
//! ```text
//! connect | accept | accept_cookie        begins
//! segment | timer (at deadline)           tell what changed for the socket
//! write | read | close_write | close ...  what the socket does
//! transmit                                sends all that may go
//! time_wait → TimeWait                    what is left at the end
//! ```
//!
//! What it does: RFC 9293 with timestamps, PAWS and window scaling (7323), selective
//! acknowledgements both ways (2018, 2883), RACK and tail loss probes (8985), three repeated
//! acknowledgements where the peer has no selective ones (6582), rate reduction (6937), CUBIC
//! (9438) and Reno (5681), HyStart++ (9406), undoing of needless retransmissions (3522, 3708),
//! challenge acknowledgements (5961), path MTU black holes (4821 7.7), explicit congestion
//! notification (3168), Fast Open (7413), buffers that tune themselves. What it does not: MD5.
//!
//! # What holds
//!
//! - Nothing that a peer sends costs more than the logarithm of what is outstanding, beside what it
//!   brings for the first time.
//! - What came and is not read takes at most about twice `Config::receive_most` of memory, whatever
//!   the pieces are in which it came.

mod config;
mod congestion;
mod connection;
pub mod fast_open;
mod rack;
mod receive_queue;
mod rtt;
mod scoreboard;
pub mod secret;
mod segment;
mod send_buffer;
mod slow_start;
mod time_wait;

#[cfg(test)]
mod tests;

pub use config::{Bursts, Config, Congestion, Ecn, KeepAlive};
pub use connection::{
    Busy, Changes, Connection, Emitted, Failure, Info, Output, Phase, State, Take, Unreachable,
    Urgent, UrgentByte,
};
pub use segment::{Flags, Header, Options, SackBlocks, Segment, Seq, Timestamps};
pub use time_wait::{TimeWait, TimeWaitAnswer};

/// The answer to a segment of no connection (RFC 9293 3.5.2, group 1). None for a reset.
#[must_use]
pub fn reset_for(segment: &Segment) -> Option<Header> {
    let h = &segment.header;
    if h.flags.contains(Flags::RST) {
        return None;
    }
    if h.flags.contains(Flags::ACK) {
        return Some(Header {
            seq: h.ack,
            flags: Flags::RST,
            ..Header::default()
        });
    }
    let controls =
        u32::from(h.flags.contains(Flags::SYN)) + u32::from(h.flags.contains(Flags::FIN));
    Some(Header {
        ack: h.seq.plus(segment.payload.len() as u32 + controls),
        flags: Flags::RST | Flags::ACK,
        ..Header::default()
    })
}
