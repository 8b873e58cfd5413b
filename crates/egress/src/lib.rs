//! What a sandbox may reach outside: rules, the names behind addresses, and the messages that ask for names.
//!
//! The broker of `--net=user` asks a [`Guard`] before each connection, each datagram and each question for a
//! name. This crate makes no host call and keeps no clock: times are seconds that the caller gives.
//!
//! # What holds
//!
//! - With one rule that allows, all that no rule allows is refused. A rule that denies goes before all others.
//! - A rule that allows a domain allows an address only while a resolver's answer for such a name is valid
//!   ([`pins`]). The answer has come through this guard: an application cannot say which name an address has.
//! - Addresses of this host, of the link, of metadata services and of groups ([`address::Class::Special`]) are
//!   refused unless a rule allows that network. Addresses of private networks are refused unless a rule allows
//!   them, where any rule allows anything: a name that leads there (rebinding) does not help.
//! - An IPv4 address in an IPv6 one (mapped, NAT64, 6to4) is judged as both.
//! - Messages are parsed by a total parser, and made anew in both directions: nothing of a question but its name
//!   and type leaves.
//!
//! # Modules
//!
//! ```text
//! guard     all of it: what the broker asks
//! dns       questions and answers
//! policy    rules, and what they say of a name or an address
//! pins      which names an address was given for
//! rule      one rule as people write it
//! address   what kind of address it is
//! refusal   what is told of what was refused
//! ```
#![forbid(unsafe_code)]

pub mod address;
pub mod dns;
pub mod guard;
pub mod pins;
pub mod policy;
pub mod refusal;
pub mod rule;

pub use guard::{Guard, Question};
pub use policy::Policy;
pub use refusal::{Reason, Refusal};
pub use rule::Rule;

use serde::Serialize;

/// A protocol that rules distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Tcp,
    Udp,
    /// Echo requests (`ping`): they have no port, rules with ports are not about them.
    Icmp,
}
