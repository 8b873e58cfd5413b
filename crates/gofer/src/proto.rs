//! Requests and replies.
//!
//! A request is: version, a list of handles to close, names to look at afterwards ([`Seen`]), an
//! operation's number, its fields. A reply is: version, an error number (0: done), and only then
//! the number of its kind, and the fields. Each kind is a row of the tables in `request.rs` and
//! `reply.rs`, from which come the types, what is sent, and the tests' messages;
//! [`Field`](crate::wire::Field) says how a type is sent.

mod attr;
mod reply;
mod request;

pub use attr::{ACL, Attr};
pub use reply::{Entry, NameTarget, Reply, Seen, Step};
pub use request::{Access, Handle, Piggybacked, Request, WalkPurpose};
