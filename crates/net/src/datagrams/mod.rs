//! What sockets of datagrams (UDP, ping, raw) have in common: what comes, what is told of it, where
//! what they send goes, their groups, their errors.
//!
//! ```text
//! socket    the shared part of such a socket: its options and what they mean
//! course    where a datagram goes
//! groups    multicast groups of sockets
//! errors    the error queue (IP_RECVERR)
//! queue     the receive queue
//! ```

mod course;
mod errors;
mod groups;
mod queue;
mod socket;

pub(crate) use course::{Course, Route, Wishes};
pub(crate) use socket::{DatagramSocket, Peer};
