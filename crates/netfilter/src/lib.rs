//! Rules for packets, and the connections that they belong to: Linux's netfilter, without a kernel
//! around it. It is given packets, what is known of their devices and sockets, and the time; it
//! says what becomes of them and how they are to be written anew. It makes no host call and has no
//! thread.
//!
//! ```text
//! engine     the rules of a namespace: a packet's way through the chains of a hook
//! nft        nf_tables' netlink messages: transactions, dumps
//! ct         conntrack's netlink messages
//! events     what is told of connections and rules
//! legacy     the tables of iptables' socket options
//! xt         iptables' matches and targets
//! expr       expressions: what rules are made of
//! validate   what a transaction's rules must be: no loops, not too long
//! set        sets and maps
//! table      tables, chains, rules
//! nat        how a connection is translated
//! rewrite    a packet with other addresses and ports, its checksums right
//! conntrack  connections
//! tcp        TCP's states
//! log        whom rules tell of packets
//! reject     what answers a packet that is refused
//! packet     a packet as rules look at it
//! attr       netlink's attributes
//! ```
//!
//! # What holds
//!
//! - Rules, messages and packets are hostile: parsers are total, all that is kept is bounded.
//! - A set of rules is never changed: a transaction makes another one, and packets go by the one
//!   that they find. No lock is held while rules run, but those of one connection or one bucket;
//!   nothing is allocated, but for a connection's first packet and for one that is looked at
//!   translated.
//! - What a packet may cost is bounded when rules are made ([`MOST_STEPS`]): chains that lead to
//!   each other in a circle, more than [`DEEPEST`] deep or to too many rules are refused.
//!
//! # Lock order
//!
//! ```text
//! Engine::change
//! Flows::table → Flow::state
//! Logs::all
//! ```
#![forbid(unsafe_code)]

pub mod attr;
pub mod conntrack;
pub mod ct;
pub mod engine;
pub mod events;
pub mod expr;
pub mod legacy;
pub mod log;
pub mod nat;
pub mod nft;
pub mod packet;
pub mod reject;
pub mod rewrite;
pub mod set;
pub mod table;
pub mod tcp;
mod validate;
pub mod xt;

pub use engine::{Engine, Outcome};
pub use validate::{DEEPEST, MOST_STEPS};

#[cfg(test)]
mod tests;
