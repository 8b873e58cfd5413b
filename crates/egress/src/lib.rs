//! What a sandbox may reach outside: rules, the names behind addresses, and the messages that ask
//! for names.
//!
//! The broker of `--net=user`, and the stack of `--net=sandbox`, ask a [`Guard`] before each
//! connection, each datagram and each question for a name. This crate makes no host call and keeps
//! no clock: times are seconds that the caller gives.
//!
//! # What holds
//!
//! - With one rule that allows, all that no rule allows is refused. A rule that denies goes before
//!   all others.
//! - A rule that allows a domain allows an address only while a resolver's answer for such a name
//!   is valid ([`pins`]). The answer has come through this guard: an application cannot say which
//!   name an address has.
//! - Addresses of this host, of the link, of metadata services and of groups
//!   ([`address::Class::Special`]) are refused unless a rule allows that network. Addresses of
//!   private networks are refused unless a rule allows them, where any rule allows anything: a
//!   name that leads there (rebinding) does not help.
//! - An IPv4 address in an IPv6 one (mapped, NAT64, 6to4) is judged as both.
//! - Messages are parsed by a total parser, and made anew in both directions: nothing of a
//!   question but its name and type leaves.
//!
//! # Modules
//!
//! ```text
//! guard     all of it: what the broker, or the stack, asks
//! dns       questions and answers
//! packet    whom a packet is for that a program made
//! policy    rules, and what they say of a name or an address
//! pins      which names an address was given for
//! rules     all rules as people give them
//! rule      one rule as people write it
//! address   what kind of address it is
//! refusal   what is told of what was refused
//! journal   the lines of the log of refusals
//! counts    how often what was allowed and refused
//! ```
#![forbid(unsafe_code)]

pub mod address;
pub mod counts;
pub mod dns;
pub mod guard;
pub mod journal;
pub mod packet;
pub mod pins;
pub mod policy;
pub mod refusal;
pub mod rule;
pub mod rules;

pub use guard::{Guard, Question};
pub use policy::Policy;
pub use refusal::{Reason, Refusal};
pub use rule::Rule;
pub use rules::Rules;

use serde::Serialize;

/// A protocol that rules distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Tcp,
    Udp,
    /// Echo requests (`ping`): they have no port, rules with ports are not about them.
    Icmp,
    /// All others, and what cannot be told: only rules without a protocol and ports are about it.
    Other,
}

impl Protocol {
    /// Whether its peers are ports.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        matches!(self, Protocol::Tcp | Protocol::Udp)
    }
}
