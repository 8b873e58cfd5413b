//! The Gofer: the one process of a container that sees host paths.
//!
//! The Sentry (the client) holds *handles* to files of the host and asks for things by handle and
//! name; the Gofer (the server) answers, and donates descriptors of regular files, through which
//! the Sentry then reads and writes by itself, and `O_PATH` descriptors, by which it sees
//! attributes ([`proto::Access::Look`]).
//!
//! # Walls
//!
//! - The server takes names of one component only, without `/`, `.` and `..`, and opens them with
//!   `openat2(2)` beneath the directory of a handle, following no link. So every handle is a file
//!   below a root, whatever the client says.
//! - It never opens devices, sockets or FIFOs of the host: a handle to one can only be asked for
//!   its attributes.
//! - The kernel's own file systems are read-only and in part hidden, wherever they are mounted
//!   ([`kernel_fs`]).
//! - It treats the client as hostile: messages are bounded, decoded with checks, and rejected whole
//!   when malformed (`EBADMSG`, and the connection goes on); handles carry a generation and are
//!   looked up at each use; their number is limited (`EMFILE`). Nothing in a message can make it
//!   panic.
//! - What a client can make it do, an ordinary user with the server's rights could do below the
//!   roots; nothing at all is changed below a root that is not writable.
//! - The client checks replies in the same way: a server that lies can lie about files only.
//!
//! # Channel
//!
//! At start, the server sends [`wire::Hello`] over the channel, with a connection for each of its
//! threads: a pipe each way, and a socket. A client's thread takes a free one, sends a request by
//! the pipe, and receives the reply by the other, or, where it may bring a descriptor, by the
//! socket ([`line`]); all are of at most [`wire::MAX_MESSAGE`] bytes. So requests on one connection
//! are strictly alternating (a client that sends the next before the answer loses the connection),
//! and as many are under way as there are connections.
#![forbid(unsafe_code)]

pub mod client;
pub mod kernel_fs;
pub mod line;
pub mod proto;
pub mod server;
pub mod wire;

pub use client::{Client, CreatedFile, In, Walked};
pub use proto::{Attr, Handle, WalkPurpose};
pub use server::{Root, Server};

#[cfg(test)]
mod attack;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
