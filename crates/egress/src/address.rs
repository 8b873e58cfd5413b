//! What kind of address it is.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How an address is judged where no rule names its network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// An address of the internet.
    Public,
    /// An address of a private network (RFC 1918, RFC 4193, RFC 6598).
    Private,
    /// This host, the link (metadata services are there), groups, and what no host has.
    Special,
}

/// The networks of [`Class::Special`], but for single addresses of metadata services.
const SPECIAL: [&str; 8] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "192.0.0.0/24",
    "224.0.0.0/3",
    "::/16",
    "fe80::/10",
    "ff00::/8",
];

/// Whether a network has addresses of [`Class::Special`].
#[must_use]
pub fn has_special(net: &IpNet) -> bool {
    let special = SPECIAL.iter().filter_map(|n| n.parse::<IpNet>().ok());
    let single = METADATA.iter().map(|ip| IpNet::from(*ip));
    let overlaps = |n: IpNet| n.contains(&net.network()) || net.contains(&n.network());
    special.chain(single).any(overlaps)
}

const fn v6(a: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7],
    ))
}

/// Metadata services that are not on the link: Alibaba's, Azure's; by IPv6 AWS', Google's,
/// Oracle's, Scaleway's.
const METADATA: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]),
    v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]),
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]),
];

/// An address as it is judged: IPv4 in IPv6 (`::ffff:1.2.3.4`) is IPv4.
#[must_use]
pub fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The IPv4 address that a gateway would send to: NAT64 (RFC 6052), 6to4 (RFC 3056), and the old
/// compatible form.
#[must_use]
pub fn embedded(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = ip else { return None };
    let s = v6.segments();
    let join = |a: u16, b: u16| IpAddr::V4(Ipv4Addr::from(u32::from(a) << 16 | u32::from(b)));
    match s {
        // 64:ff9b::/96, and the local-use 64:ff9b:1::/48 with the address at its end.
        [0x64, 0xff9b, 0, 0, 0, 0, a, b] | [0x64, 0xff9b, 1, _, _, _, a, b] => Some(join(a, b)),
        [0x2002, a, b, ..] => Some(join(a, b)),
        [0, 0, 0, 0, 0, 0, a, b] if a != 0 => Some(join(a, b)),
        _ => None,
    }
}

/// The class of a [`canonical`] address. What is embedded in it is another one's.
#[must_use]
pub fn class(ip: IpAddr) -> Class {
    if METADATA.contains(&ip) {
        return Class::Special;
    }
    match ip {
        IpAddr::V4(a) => class_v4(a),
        IpAddr::V6(a) => class_v6(a),
    }
}

fn class_v4(a: Ipv4Addr) -> Class {
    let [b0, b1, b2, _] = a.octets();
    match (b0, b1) {
        // The IETF's own: Oracle has its metadata there.
        (192, 0) if b2 == 0 => Class::Special,
        // "This network", loopback, the link, groups and the reserved rest with the broadcast
        // address.
        (0 | 127 | 224..=255, _) | (169, 254) => Class::Special,
        (10, _) | (172, 16..=31) | (192, 168) | (100, 64..=127) | (198, 18 | 19) => Class::Private,
        _ => Class::Public,
    }
}

fn class_v6(a: Ipv6Addr) -> Class {
    match a.segments()[0] {
        // `::/16` has loopback, the wildcard and the compatible form.
        0 | 0xfe80..=0xfebf | 0xff00..=0xffff => Class::Special,
        0xfc00..=0xfdff | 0xfec0..=0xfeff => Class::Private,
        _ => Class::Public,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let of = |s: &str| class(canonical(s.parse().unwrap()));
        for s in [
            "0.0.0.0",
            "127.0.0.1",
            "127.8.9.1",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd20:ce::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            assert_eq!(of(s), Class::Special, "{s}");
        }
        for s in [
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd12::1",
            "::ffff:10.0.0.1",
        ] {
            assert_eq!(of(s), Class::Private, "{s}");
        }
        for s in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "192.169.0.1",
        ] {
            assert_eq!(of(s), Class::Public, "{s}");
        }
    }

    #[test]
    fn special_networks() {
        for n in SPECIAL {
            let n: IpNet = n.parse().unwrap();
            for ip in [n.network(), n.broadcast()] {
                assert_eq!(class(ip), Class::Special, "{ip}");
            }
            assert!(has_special(&n), "{n}");
        }
        for (net, has) in [
            ("168.0.0.0/8", true),
            ("169.254.169.254/32", true),
            ("fd00:ec2::/32", true),
            ("::/0", true),
            ("10.0.0.0/8", false),
            ("203.0.113.0/24", false),
            ("2001:db8::/32", false),
        ] {
            assert_eq!(has_special(&net.parse().unwrap()), has, "{net}");
        }
    }

    #[test]
    fn what_is_embedded() {
        let of = |s: &str| embedded(s.parse().unwrap()).map(|a| a.to_string());
        assert_eq!(of("64:ff9b::a9fe:a9fe").as_deref(), Some("169.254.169.254"));
        assert_eq!(of("64:ff9b:1::7f00:1").as_deref(), Some("127.0.0.1"));
        assert_eq!(of("2002:a00:1::1").as_deref(), Some("10.0.0.1"));
        assert_eq!(of("::7f00:1").as_deref(), Some("127.0.0.1"));
        assert_eq!(of("2606:4700::1111"), None);
        assert_eq!(of("1.1.1.1"), None);
    }
}
