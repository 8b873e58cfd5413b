//! Whom a packet is for that a program has made itself (raw sockets).
//!
//! What could lead a packet elsewhere (options of IPv4, which have source routes; extension
//! headers of IPv6, which have routing headers) makes it none that is understood. A fragment
//! without ports is of
//! [`Protocol::Other`]: what rules say of ports cannot be told of it.

use crate::Protocol;
use std::net::{IpAddr, Ipv4Addr};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;
const ECHO: u8 = 8;
const ECHO_V6: u8 = 128;
/// Hop-by-hop and destination options, routing, fragment, authentication, mobility, HIP and shim6.
const EXTENSIONS: [u8; 8] = [0, 60, 43, 44, 51, 135, 139, 140];

/// A peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct To {
    pub protocol: Protocol,
    pub ip: IpAddr,
    /// 0 where the protocol has none.
    pub port: u16,
}

/// Whom it is for, of a payload of that protocol; `None` where that cannot be told.
#[must_use]
pub fn of_payload(ip: IpAddr, protocol: u8, payload: &[u8]) -> Option<To> {
    if ip.is_ipv6() && EXTENSIONS.contains(&protocol) {
        return None;
    }
    let port = || Some(u16::from_be_bytes([*payload.get(2)?, *payload.get(3)?]));
    let (protocol, port) = match (protocol, ip.is_ipv4()) {
        (TCP, _) => (Protocol::Tcp, port()?),
        (UDP, _) => (Protocol::Udp, port()?),
        (ICMP, true) if payload.first() == Some(&ECHO) => (Protocol::Icmp, 0),
        (ICMP_V6, false) if payload.first() == Some(&ECHO_V6) => (Protocol::Icmp, 0),
        _ => (Protocol::Other, 0),
    };
    Some(To { protocol, ip, port })
}

/// The same, of a whole packet of IPv4.
#[must_use]
pub fn of_whole(packet: &[u8]) -> Option<To> {
    /// An IPv4 header without options.
    const PLAIN: u8 = 0x45;
    let header: &[u8; 20] = packet.first_chunk()?;
    if header[0] != PLAIN {
        return None;
    }
    let ip = IpAddr::V4(Ipv4Addr::new(
        header[16], header[17], header[18], header[19],
    ));
    let is_later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    if is_later {
        let protocol = Protocol::Other;
        return Some(To {
            protocol,
            ip,
            port: 0,
        });
    }
    of_payload(ip, header[9], &packet[20..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PEER: [u8; 4] = [192, 0, 2, 7];

    fn whole(first: u8, fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut p = vec![0; 20];
        p[0] = first;
        p[6..8].copy_from_slice(&fragment.to_be_bytes());
        p[9] = protocol;
        p[16..20].copy_from_slice(&PEER);
        p.extend_from_slice(payload);
        p
    }

    fn told(p: &[u8]) -> Option<(Protocol, u16)> {
        of_whole(p).map(|t| {
            assert_eq!(t.ip, IpAddr::from(PEER));
            (t.protocol, t.port)
        })
    }

    #[test]
    fn whom_packets_are_for() {
        let ports = [0, 9, 1, 0xbb, 0, 8, 0, 0];
        assert_eq!(
            told(&whole(0x45, 0, UDP, &ports)),
            Some((Protocol::Udp, 443))
        );
        assert_eq!(
            told(&whole(0x45, 0x2000, TCP, &ports)),
            Some((Protocol::Tcp, 443))
        );
        assert_eq!(
            told(&whole(0x45, 0x2001, UDP, &ports)),
            Some((Protocol::Other, 0))
        );
        assert_eq!(
            told(&whole(0x45, 0, ICMP, &[ECHO, 0])),
            Some((Protocol::Icmp, 0))
        );
        assert_eq!(
            told(&whole(0x45, 0, ICMP, &[3, 0])),
            Some((Protocol::Other, 0))
        );
        assert_eq!(
            told(&whole(0x45, 0, 132, &ports)),
            Some((Protocol::Other, 0))
        );
        // Options, other versions, no ports.
        for p in [
            whole(0x46, 0, UDP, &[0; 16]),
            whole(0x65, 0, UDP, &ports),
            whole(0x45, 0, UDP, &[0, 9, 1]),
            vec![0x45; 19],
        ] {
            assert_eq!(told(&p), None);
        }
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(of_payload(v6, 43, &ports), None);
        assert_eq!(
            of_payload(v6, ICMP_V6, &[ECHO_V6]).unwrap().protocol,
            Protocol::Icmp
        );
        assert_eq!(
            of_payload(v6, ICMP, &[ECHO]).unwrap().protocol,
            Protocol::Other
        );
    }

    proptest! {
        #[test]
        fn any_bytes(p in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = of_whole(&p);
        }
    }
}
