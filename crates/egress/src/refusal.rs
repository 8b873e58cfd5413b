//! What is told of what was refused: a line of JSON each.

use crate::Protocol;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Why something was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// No rule allows it, and some allow others.
    NotAllowed,
    /// A rule denies it.
    Denied,
    /// It is an address of a private network, and no rule allows that network.
    Private,
    /// It is an address of this host, the link, a metadata service or a group, and no rule allows
    /// it.
    Special,
    /// A question for a name by TCP, where only those by UDP are looked at.
    NamesByTcp,
    /// A packet that a program made, with options or headers that could lead elsewhere, or too
    /// short.
    Malformed,
}

/// A line of the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "refused", rename_all = "lowercase")]
pub enum Refusal {
    Name {
        name: String,
        reason: Reason,
    },
    Peer {
        protocol: Protocol,
        address: IpAddr,
        port: u16,
        /// Those that the address was given for.
        names: Vec<String>,
        reason: Reason,
    },
}

impl Refusal {
    /// The line, with the seconds since 1970.
    #[must_use]
    pub fn line(&self, time: u64) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            time: u64,
            #[serde(flatten)]
            refusal: &'a Refusal,
        }
        let line = Line {
            time,
            refusal: self,
        };
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    }

    /// What a person would write into a rule to allow it.
    #[must_use]
    pub fn wanted(&self) -> String {
        match self {
            Refusal::Name { name, .. } => name.clone(),
            Refusal::Peer {
                address,
                port,
                names,
                ..
            } => match (names.first(), address) {
                (Some(n), _) => format!("{n}:{port}"),
                (None, IpAddr::V4(a)) => format!("{a}:{port}"),
                (None, IpAddr::V6(a)) => format!("[{a}]:{port}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let name = Refusal::Name {
            name: "a.org".into(),
            reason: Reason::NotAllowed,
        };
        assert_eq!(
            name.line(5),
            "{\"time\":5,\"refused\":\"name\",\"name\":\"a.org\",\"reason\":\"not-allowed\"}\n"
        );
        let peer = Refusal::Peer {
            protocol: Protocol::Tcp,
            address: "169.254.169.254".parse().unwrap(),
            port: 80,
            names: Vec::new(),
            reason: Reason::Special,
        };
        assert!(
            peer.line(5)
                .contains("\"address\":\"169.254.169.254\",\"port\":80")
        );
        assert_eq!(peer.wanted(), "169.254.169.254:80");
    }
}
