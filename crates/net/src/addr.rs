//! Socket addresses as bytes.

use crate::sys::{AF_INET, AF_INET6, AF_UNIX, AF_UNSPEC};
use abi::Result;
use abi::errno::{EAFNOSUPPORT, EINVAL};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 or IPv6 endpoint. IPv4-mapped addresses are kept as IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    pub ip: IpAddr,
    pub port: u16,
}

impl Endpoint {
    pub fn new(ip: IpAddr, port: u16) -> Endpoint {
        Endpoint {
            ip: ip.to_canonical(),
            port,
        }
    }
    /// As a socket of `family` shows it.
    pub fn encode(&self, family: u16) -> Vec<u8> {
        let mut v = Vec::with_capacity(28);
        v.extend_from_slice(&family.to_le_bytes());
        v.extend_from_slice(&self.port.to_be_bytes());
        if family == AF_INET {
            let ip = match self.ip {
                IpAddr::V4(a) => a,
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
            };
            v.extend_from_slice(&ip.octets());
            v.resize(16, 0);
        } else {
            let ip = match self.ip {
                IpAddr::V4(a) => a.to_ipv6_mapped(),
                IpAddr::V6(a) => a,
            };
            v.extend_from_slice(&[0; 4]);
            v.extend_from_slice(&ip.octets());
            v.resize(28, 0);
        }
        v
    }
    /// As a socket of `family` shows who sent what came by a device: a link-local address has it as
    /// its scope.
    pub fn encode_from(&self, family: u16, device: i32) -> Vec<u8> {
        let mut v = self.encode(family);
        if let (IpAddr::V6(a), AF_INET6) = (self.ip, family)
            && a.is_unicast_link_local()
        {
            v[24..28].copy_from_slice(&device.to_le_bytes());
        }
        v
    }
    /// As a socket of its own family shows it.
    #[must_use]
    pub fn to_sockaddr(&self) -> Vec<u8> {
        self.encode(if self.ip.is_ipv4() { AF_INET } else { AF_INET6 })
    }
    /// Reads a `sockaddr_in` or `sockaddr_in6`; `None` where it is neither.
    #[must_use]
    pub fn from_sockaddr(addr: &[u8]) -> Option<Endpoint> {
        parse_inet(addr, family_of(addr).ok().filter(|f| is_inet(*f))?).ok()
    }
    /// The wildcard of a family.
    pub fn any(family: u16) -> Endpoint {
        Endpoint {
            ip: any_ip(family),
            port: 0,
        }
    }
}

pub fn any_ip(family: u16) -> IpAddr {
    if family == AF_INET {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    }
}

/// The address family at the start of a `struct sockaddr`; `EINVAL` if it is too short to have one.
pub fn family_of(addr: &[u8]) -> Result<u16> {
    match addr {
        [a, b, ..] => Ok(u16::from_le_bytes([*a, *b])),
        _ => Err(EINVAL),
    }
}

/// Reads a `sockaddr_in` or `sockaddr_in6` of exactly this family. `ip` keeps a wildcard as its
/// family has it.
pub fn parse_inet(addr: &[u8], family: u16) -> Result<Endpoint> {
    let need = if family == AF_INET { 16 } else { 24 };
    if addr.len() < need {
        return Err(EINVAL);
    }
    if family_of(addr)? != family {
        return Err(EAFNOSUPPORT);
    }
    let port = u16::from_be_bytes([addr[2], addr[3]]);
    let ip = if family == AF_INET {
        IpAddr::V4(Ipv4Addr::new(addr[4], addr[5], addr[6], addr[7]))
    } else {
        let mut o = [0; 16];
        o.copy_from_slice(&addr[8..24]);
        IpAddr::V6(Ipv6Addr::from(o))
    };
    Ok(Endpoint::new(ip, port))
}

/// Like [`parse_inet`] for `bind(2)`: an AF_INET socket takes AF_UNSPEC with the wildcard too.
pub fn parse_bind(addr: &[u8], family: u16) -> Result<Endpoint> {
    if family == AF_INET
        && addr.len() >= 16
        && family_of(addr)? == AF_UNSPEC
        && addr[4..8] == [0; 4]
    {
        let mut a = addr.to_vec();
        a[..2].copy_from_slice(&AF_INET.to_le_bytes());
        return parse_inet(&a, family);
    }
    parse_inet(addr, family)
}

/// A name in the UNIX domain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnixName {
    Unnamed,
    /// Without the leading zero byte.
    Abstract(Vec<u8>),
    Path(Vec<u8>),
}

impl UnixName {
    /// `EINVAL` where it is no `sockaddr_un`.
    pub fn parse(addr: &[u8]) -> Result<UnixName> {
        if addr.len() > 110 || family_of(addr)? != AF_UNIX {
            return Err(EINVAL);
        }
        let name = &addr[2..];
        Ok(match name {
            [] => UnixName::Unnamed,
            [0, rest @ ..] => UnixName::Abstract(rest.to_vec()),
            _ => {
                let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
                UnixName::Path(name[..end].to_vec())
            }
        })
    }
    pub fn encode(&self) -> Vec<u8> {
        let mut v = AF_UNIX.to_le_bytes().to_vec();
        match self {
            UnixName::Unnamed => {}
            UnixName::Abstract(n) => {
                v.push(0);
                v.extend_from_slice(n);
            }
            UnixName::Path(p) => {
                v.extend_from_slice(p);
                v.push(0);
            }
        }
        v
    }
}

/// The file-system path in a `sockaddr_un`, if it names one.
#[must_use]
pub fn unix_path(addr: &[u8]) -> Option<Vec<u8>> {
    match UnixName::parse(addr) {
        Ok(UnixName::Path(p)) => Some(p),
        _ => None,
    }
}

/// Whether an address of this family can be given to an INET socket at all.
pub fn is_inet(family: u16) -> bool {
    family == AF_INET || family == AF_INET6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        let e = Endpoint::new("127.0.0.1".parse().unwrap(), 80);
        assert_eq!(parse_inet(&e.encode(AF_INET), AF_INET), Ok(e));
        assert_eq!(parse_inet(&e.encode(AF_INET6), AF_INET6), Ok(e));
        assert_eq!(parse_inet(&e.encode(AF_INET), AF_INET6), Err(EINVAL));
        assert_eq!(e.encode(AF_INET6).len(), 28);
        for n in [
            UnixName::Unnamed,
            UnixName::Abstract(b"a\0b".to_vec()),
            UnixName::Path(b"/x".to_vec()),
        ] {
            assert_eq!(UnixName::parse(&n.encode()), Ok(n));
        }
    }
}
