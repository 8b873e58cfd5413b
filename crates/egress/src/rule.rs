//! One rule as people write it: `[PROTOCOL:]TARGET[:PORT[-PORT]]`.
//!
//! | written | is about |
//! |---|---|
//! | `pypi.org` | this name, all ports and protocols |
//! | `*.pythonhosted.org:443` | all names below it (not itself), port 443 |
//! | `10.0.0.0/8`, `192.0.2.1`, `[2001:db8::/32]:80` | addresses |
//! | `udp:1.1.1.1:53` | one protocol: `tcp`, `udp` or `icmp` |
//! | `*` | everything that is not special (see [`crate::address`]) |

use crate::Protocol;
use crate::address::{canonical, has_special};
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The longest rule that is read, in bytes.
const MAX: usize = 512;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    pub target: Target,
    /// All, if there is none.
    pub ports: Option<RangeInclusive<u16>>,
    pub protocol: Option<Protocol>,
}

/// What a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Names and addresses of any kind but the special ones.
    All,
    /// This name; lower case, without a dot at the end.
    Name(String),
    /// The names below it.
    Below(String),
    Net(IpNet),
}

/// Why it is no rule; says what to write.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "\"{0}\" is no rule for the network: write a domain (pypi.org, *.example.org) or a network (10.0.0.0/8), and a port if you like (:443)"
    )]
    Shape(String),
    #[error("\"{0}\" is no port, or no range of ports such as 8000-8080")]
    Port(String),
    #[error(
        "\"{0}\" is no domain: labels of letters, digits, \"-\" and \"_\" between dots, and \"*.\" only in front"
    )]
    Domain(String),
    #[error("icmp has no ports: \"{0}\"")]
    IcmpPort(String),
}

impl Rule {
    /// Whether it is about this protocol and port.
    #[must_use]
    pub fn covers(&self, protocol: Protocol, port: u16) -> bool {
        self.protocol.is_none_or(|p| p == protocol)
            && self
                .ports
                .as_ref()
                .is_none_or(|p| protocol.has_ports() && p.contains(&port))
    }
    /// Whether it is about this address by its network.
    #[must_use]
    pub fn names_address(&self, ip: IpAddr) -> bool {
        matches!(&self.target, Target::Net(n) if n.contains(&ip))
    }
    /// Whether it names this address's network closely enough to allow what is refused by itself:
    /// the whole of the internet has all private networks within.
    #[must_use]
    pub fn lifts(&self, ip: IpAddr) -> bool {
        const LEAST: u8 = 8;
        self.names_address(ip) && matches!(&self.target, Target::Net(n) if n.prefix_len() >= LEAST)
    }
    /// Whether it could allow what is refused by itself without rules: special addresses, and
    /// these.
    #[must_use]
    pub fn opens(&self, own: &[IpAddr]) -> bool {
        match &self.target {
            Target::Net(n) => has_special(n) || own.iter().any(|ip| n.contains(&canonical(*ip))),
            Target::All | Target::Name(_) | Target::Below(_) => false,
        }
    }
    /// Whether it is about this name: as [`normal`] gives it.
    #[must_use]
    pub fn names(&self, name: &str) -> bool {
        match &self.target {
            Target::All => true,
            Target::Name(n) => n == name,
            Target::Below(n) => name
                .strip_suffix(n.as_str())
                .is_some_and(|front| front.len() > 1 && front.ends_with('.')),
            Target::Net(_) => false,
        }
    }
}

/// A name as rules have it: lower case, without a dot at the end. `None` where it is no name of a
/// host.
#[must_use]
pub fn normal(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let fine = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    (name.len() <= 253 && name.split('.').all(fine)).then(|| name.to_ascii_lowercase())
}

impl TryFrom<String> for Rule {
    type Error = Error;

    fn try_from(text: String) -> Result<Rule, Error> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(r: Rule) -> String {
        r.to_string()
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Rule, Error> {
        if text.contains("://") {
            return Err(Error::Shape(text.into()));
        }
        if text.len() > MAX {
            return Err(Error::Shape(text.chars().take(40).collect()));
        }
        let (protocol, rest) = match text.split_once(':') {
            Some(("tcp", r)) => (Some(Protocol::Tcp), r),
            Some(("udp", r)) => (Some(Protocol::Udp), r),
            Some(("icmp", r)) => (Some(Protocol::Icmp), r),
            _ => (None, text),
        };
        let (target, port) = split_port(rest).ok_or_else(|| Error::Shape(text.into()))?;
        let ports = port.map(parse_ports).transpose()?;
        if protocol == Some(Protocol::Icmp) && ports.is_some() {
            return Err(Error::IcmpPort(text.into()));
        }
        Ok(Rule {
            target: parse_target(target)?,
            ports,
            protocol,
        })
    }
}

/// The target and the port behind its colon. An IPv6 address with a port is in brackets.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(inner) = text.strip_prefix('[') {
        let (net, rest) = inner.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((net, Some(port))),
            None => rest.is_empty().then_some((net, None)),
        };
    }
    match text.matches(':').count() {
        0 => Some((text, None)),
        1 => text.split_once(':').map(|(t, p)| (t, Some(p))),
        // An IPv6 address without a port.
        _ => Some((text, None)),
    }
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, Error> {
    let wrong = || Error::Port(text.into());
    let one = |s: &str| s.parse::<u16>().ok().filter(|p| *p != 0).ok_or_else(wrong);
    let (first, last) = match text.split_once('-') {
        Some((a, b)) => (one(a)?, one(b)?),
        None => (one(text)?, one(text)?),
    };
    if first > last {
        return Err(wrong());
    }
    Ok(first..=last)
}

fn parse_target(text: &str) -> Result<Target, Error> {
    if text == "*" {
        return Ok(Target::All);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Target::Net(canonical(ip).into()));
    }
    if let Ok(net) = text.parse::<IpNet>() {
        return Ok(Target::Net(unmapped(net.trunc())));
    }
    if text.contains('/') || text.contains(':') || text.is_empty() {
        return Err(Error::Shape(text.into()));
    }
    let wrong = || Error::Domain(text.into());
    match text.strip_prefix("*.") {
        Some(rest) => normal(rest).map(Target::Below),
        None => normal(text).map(Target::Name),
    }
    // "1.2.3" or "300.1.1.1" is a mistyped address, not a name: no top-level domain is a number.
    // A host with a protocol\'s name alone could not be told from the protocol.
    .filter(|t| match t {
        Target::Name(n) if ["tcp", "udp", "icmp"].contains(&n.as_str()) => false,
        Target::Name(n) | Target::Below(n) => !n
            .rsplit('.')
            .next()
            .is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit())),
        _ => true,
    })
    .ok_or_else(wrong)
}

/// A network of mapped addresses as the IPv4 network that it is.
fn unmapped(net: IpNet) -> IpNet {
    const MAPPED: u8 = 96;
    match (net.network().to_canonical(), net.prefix_len()) {
        (IpAddr::V4(a), n) if net.network().is_ipv6() && n >= MAPPED => {
            Ipv4Net::new(a, n - MAPPED).map_or(net, IpNet::V4)
        }
        _ => net,
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Some(Protocol::Tcp) => f.write_str("tcp:")?,
            Some(Protocol::Udp) => f.write_str("udp:")?,
            Some(Protocol::Icmp) => f.write_str("icmp:")?,
            // (No rule is about these alone.)
            Some(Protocol::Other) | None => {}
        }
        match &self.target {
            Target::All => f.write_str("*")?,
            Target::Name(n) => f.write_str(n)?,
            Target::Below(n) => write!(f, "*.{n}")?,
            Target::Net(n @ IpNet::V6(_)) if self.ports.is_some() => write!(f, "[{n}]")?,
            Target::Net(n) => write!(f, "{n}")?,
        }
        match &self.ports {
            None => Ok(()),
            Some(p) if p.start() == p.end() => write!(f, ":{}", p.start()),
            Some(p) => write!(f, ":{}-{}", p.start(), p.end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(s: &str) -> Rule {
        s.parse().unwrap_or_else(|e| panic!("{s}: {e}"))
    }

    #[test]
    fn as_people_write_them() {
        for s in [
            "pypi.org",
            "*.pythonhosted.org",
            "pypi.org:443",
            "tcp:pypi.org:443",
            "10.0.0.0/8",
            "udp:1.1.1.1/32:53",
            "[2001:db8::/32]:8000-8080",
            "2001:db8::/32",
            "icmp:1.1.1.1/32",
            "*",
            "_srv.example.org",
            "*:443",
        ] {
            assert_eq!(rule(s).to_string(), s);
        }
        assert_eq!(rule("PyPI.org."), rule("pypi.org"));
        assert_eq!(rule("192.0.2.1").to_string(), "192.0.2.1/32");
        assert_eq!(rule("10.1.2.3/8").to_string(), "10.0.0.0/8");
        assert_eq!(rule("::ffff:10.0.0.1").to_string(), "10.0.0.1/32");
    }

    #[test]
    fn what_is_none() {
        for s in [
            "",
            "a..b",
            "*.*.org",
            "a*.org",
            "pypi.org:",
            "pypi.org:0",
            "pypi.org:70000",
            "pypi.org:9-8",
            "https://pypi.org",
            "iCmp:0870",
            "TCP",
            "1.2.3",
            "300.1.1.1",
            "10.0.0.0/33",
            "icmp:1.1.1.1:7",
            "[::1",
            "pypi.org/simple",
            "-",
            "ü.org",
        ] {
            // A lone "-" is a label that no name has, but it harms nobody.
            assert!(s == "-" || s.parse::<Rule>().is_err(), "{s}");
        }
    }

    #[test]
    fn names_below_and_not_beside() {
        let r = rule("*.example.org");
        for n in ["a.example.org", "a.b.example.org"] {
            assert!(r.names(n), "{n}");
        }
        for n in [
            "example.org",
            "badexample.org",
            ".example.org",
            "example.org.evil.net",
            "a.example.orga",
        ] {
            assert!(!r.names(n), "{n}");
        }
    }

    #[test]
    fn ports_and_protocols() {
        let r = rule("tcp:a.org:80-90");
        assert!(r.covers(Protocol::Tcp, 80) && r.covers(Protocol::Tcp, 90));
        assert!(!r.covers(Protocol::Tcp, 91) && !r.covers(Protocol::Udp, 80));
        assert!(
            rule("a.org").covers(Protocol::Icmp, 0) && !rule("a.org:80").covers(Protocol::Icmp, 80)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC{0,80}") {
            if let Ok(r) = s.parse::<Rule>() {
                prop_assert_eq!(r.to_string().parse::<Rule>(), Ok(r));
            }
        }
    }
}
