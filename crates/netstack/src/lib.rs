//! A TCP/IP stack for Ethernet devices, as functions of packets and time: no host calls, no
//! threads, no sockets. Whoever uses it (the crate `net`) gives it frames that came and the time,
//! and a way to send frames.
//!
//! ```text
//! tcp       one connection's end: segments in, segments out
//! ip        frames to datagrams and back: devices, neighbours, routes, fragments, ICMP
//! counters  what both count
//! setup     what a stack starts with
//! time      the clock that both are told
//! ```
//!
//! `ip` and `tcp` do not know each other but for [`tcp::Header`], which `ip` reads and writes.
//!
//! # What holds
//!
//! - Whatever comes is hostile: parsers are total, nothing that a packet says decides how much is
//!   allocated, all that is kept is bounded.
//! - Sequence numbers, ports and identifications are keyed hashes of a secret
//!   (RFC 6528, RFC 6056).
//!
#![forbid(unsafe_code)]

pub mod counters;
pub mod ip;
pub mod setup;
pub mod tcp;
pub mod time;
