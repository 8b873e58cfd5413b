//! What sockets of datagrams (UDP, ping, raw) have in common: what comes, what is told of it, where
//! what they send goes, their groups, their errors.
//!
//! ```text
//! socket    the shared part of such a socket: its options and what they mean
//! course    where a datagram goes
//! groups    multicast groups of sockets
//! sources   whose datagrams to a group a socket takes
//! queue     the receive queue
//! sent      when what was sent went (SO_TIMESTAMPING)
//! ```

mod course;
mod groups;
mod queue;
mod sent;
mod socket;
mod sources;

pub(crate) use course::{Course, Route, Wishes};
pub(crate) use socket::{DatagramSocket, Peer};
