//! What is answered with an error, with nothing, and what is not believed.

use super::*;
use neighbour::NeighbourState::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{Head, Sum, V4, V6};

fn v4(h: &str) -> Ipv4Addr {
    h.parse().expect("an address")
}

fn v6(h: &str) -> Ipv6Addr {
    h.parse().expect("an address")
}

/// A packet from A to B's MAC, or to the group's.
pub(super) fn frame_v4(from: &str, to: &str, protocol: u8, options: &[u8], body: &[u8]) -> Vec<u8> {
    let mut head = Head::new();
    let to = v4(to);
    let mac = if to.is_multicast() {
        wire::group_mac(IpAddr::V4(to))
    } else if to.is_broadcast() {
        wire::BROADCAST
    } else {
        B_MAC
    };
    head.ethernet(mac, A_MAC, wire::TYPE_IPV4);
    V4 {
        tos: 0,
        total: (20 + options.len() + body.len()) as u16,
        id: 1,
        fragment: 0,
        ttl: 64,
        protocol,
        from: v4(from),
        to,
    }
    .write(&mut head, options);
    [head.bytes(), body].concat()
}

fn icmpv6(from: &str, to: &str, ttl: u8, message: &[u8]) -> Vec<u8> {
    let (from, to) = (v6(from), v6(to));
    let mut m = message.to_vec();
    let sum = Sum::pseudo(IpAddr::V6(from), IpAddr::V6(to), wire::ICMPV6, m.len()).add(&m);
    m[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    let mut head = Head::new();
    let mac = if to.is_multicast() {
        wire::group_mac(IpAddr::V6(to))
    } else {
        B_MAC
    };
    head.ethernet(mac, A_MAC, wire::TYPE_IPV6);
    V6 {
        tos: 0,
        flow: 0,
        len: m.len() as u16,
        next: wire::ICMPV6,
        ttl,
        from,
        to,
    }
    .write(&mut head);
    [head.bytes(), &m].concat()
}

/// Solicitation or advertisement.
fn ndisc(kind: u8, flags: u8, target: &str, option: Option<(u8, [u8; 6])>) -> Vec<u8> {
    let mut m = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    m.extend(v6(target).octets());
    if let Some((kind, mac)) = option {
        m.extend([kind, 1]);
        m.extend(mac);
    }
    m
}

fn host() -> Host {
    let h = Host::quiet(&setup(B_MAC, 2));
    h.seen.refuses.store(true, Relaxed);
    h
}

fn give(h: &Host, frame: &[u8]) -> Vec<Vec<u8>> {
    h.receive(after(5.0), &FrameMeta::default(), frame);
    h.wire.take().into_iter().map(|(_, f)| f).collect()
}

#[test]
fn errors_are_not_answered_nor_what_went_to_many() {
    let h = host();
    let udp = [0, 1, 0, 2, 0, 8, 0, 0];
    // An answer to one host asks for its MAC first.
    let asked = |frames: &[Vec<u8>]| frames.len() == 1 && frames[0][12..14] == [8, 6];
    let sent = give(&h, &frame_v4("10.0.0.1", "10.0.0.2", 17, &[], &udp));
    assert!(asked(&sent));
    let h = host();
    h.ip.join(INDEX, ip("224.1.1.1")).expect("room");
    for (from, to) in [
        ("10.0.0.1", "224.1.1.1"),
        ("10.0.0.1", "255.255.255.255"),
        ("10.0.0.1", "10.0.0.255"),
        ("0.0.0.0", "255.255.255.255"),
    ] {
        assert!(
            give(&h, &frame_v4(from, to, 17, &[], &udp)).is_empty(),
            "{to}"
        );
        assert!(give(&h, &frame_v4(from, to, 200, &[], &udp)).is_empty());
    }
    // An error with options that are wrong.
    let wrong = [7, 1, 0, 0];
    for (kind, answers) in [(3, 0), (11, 0), (8, 1)] {
        let body = [kind, 0, 0, 0, 0, 0, 0, 0];
        let sent = give(&h, &frame_v4("10.0.0.1", "10.0.0.2", 1, &wrong, &body));
        assert_eq!(sent.len(), answers, "{kind}");
    }
    assert_eq!(h.count(Mib::IpInHdrErrors), 3);
}

#[test]
fn source_routes_are_dropped() {
    let h = host();
    h.seen.refuses.store(false, Relaxed);
    let udp = [0, 1, 0, 2, 0, 8, 0, 0];
    let route = [131, 7, 4, 10, 0, 0, 9, 0];
    assert!(give(&h, &frame_v4("10.0.0.1", "10.0.0.2", 17, &route, &udp)).is_empty());
    assert_eq!(h.seen.take(), []);
    let record = [7, 7, 4, 0, 0, 0, 0, 0];
    give(&h, &frame_v4("10.0.0.1", "10.0.0.2", 17, &record, &udp));
    assert_eq!(h.seen.take().len(), 1);
}

#[test]
fn echoes_to_all_are_not_answered_in_ipv4() {
    let h = host();
    let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1];
    let sum = Sum::default().add(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    assert!(give(&h, &frame_v4("10.0.0.1", "10.0.0.255", 1, &[], &echo)).is_empty());
    assert_eq!(
        give(&h, &frame_v4("10.0.0.1", "10.0.0.2", 1, &[], &echo)).len(),
        1
    );
}

#[test]
fn errors_are_linuxs() {
    use abi::errno::*;
    let quote = frame_v4("10.0.0.2", "10.9.9.9", 17, &[], &[0, 1, 0, 2, 0, 8, 0, 0]);
    for (kind, code, errno, severity) in [
        (3, 0, ENETUNREACH, Severity::Soft),
        (3, 1, EHOSTUNREACH, Severity::Soft),
        (3, 2, ENOPROTOOPT, Severity::Hard),
        (3, 3, ECONNREFUSED, Severity::Hard),
        (3, 4, EMSGSIZE, Severity::Soft),
        (3, 13, EHOSTUNREACH, Severity::Hard),
        (11, 0, EHOSTUNREACH, Severity::Soft),
        (12, 0, EPROTO, Severity::Hard),
    ] {
        let h = host();
        let mut m = vec![kind, code, 0, 0, 0, 0, 0, 0];
        m.extend(&quote[14..]);
        let sum = Sum::default().add(&m).finish();
        m[2..4].copy_from_slice(&sum.to_be_bytes());
        give(&h, &frame_v4("10.0.0.254", "10.0.0.2", 1, &[], &m));
        let told = h.seen.take();
        let [Upcall::Error(about, error, from)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((error.errno, error.severity), (errno, severity));
        assert_eq!(
            (about.pair.remote, *from),
            (at("10.9.9.9", 2), ip("10.0.0.254"))
        );
        if (kind, code) == (3, 4) {
            // A router that names no MTU: the plateau below the packet's length.
            assert_eq!(error.kind, ErrorKind::PacketTooBig(552));
        }
    }
}

#[test]
fn a_solicitation_is_answered_if_it_comes_from_the_link() {
    let group = wire::solicited_node(v6("2001:db8::2")).to_string();
    let ask = ndisc(135, 0, "2001:db8::2", Some((1, A_MAC)));
    let h = host();
    assert!(give(&h, &icmpv6("2001:db8::1", &group, 254, &ask)).is_empty());
    assert_eq!(h.count(Mib::Icmp6InErrors), 1);
    assert_eq!(h.ip.neighbours(after(5.0)), []);
    let sent = give(&h, &icmpv6("2001:db8::1", &group, 255, &ask));
    assert_eq!(sent.len(), 1);
    let m = &sent[0][54..];
    assert_eq!((&sent[0][..6], m[0], m[4]), (&A_MAC[..], 136, 0x60));
    assert_eq!(m[26..32], B_MAC);
    assert_eq!(h.ip.neighbours(after(5.0))[0].state, Stale);
    // An address of nobody here; an option of no length.
    let other = ndisc(135, 0, "2001:db8::3", Some((1, A_MAC)));
    assert!(give(&h, &icmpv6("2001:db8::1", &group, 255, &other)).is_empty());
    let mut cut = ask.clone();
    cut[25] = 0;
    assert!(give(&h, &icmpv6("2001:db8::1", &group, 255, &cut)).is_empty());
}

#[test]
fn who_would_take_our_address_is_told() {
    let group = wire::solicited_node(v6("2001:db8::2")).to_string();
    let probe = ndisc(135, 0, "2001:db8::2", None);
    let h = host();
    let sent = give(&h, &icmpv6("::", &group, 255, &probe));
    assert_eq!(sent.len(), 1);
    assert_eq!((&sent[0][..2], sent[0][54 + 4]), (&[0x33, 0x33][..], 0x20));
    // Not with an option, not to all (RFC 4861 7.1.1).
    let with = ndisc(135, 0, "2001:db8::2", Some((1, A_MAC)));
    assert!(give(&h, &icmpv6("::", &group, 255, &with)).is_empty());
    assert!(give(&h, &icmpv6("::", "ff02::1", 255, &probe)).is_empty());
    assert_eq!(h.ip.neighbours(after(5.0)), []);
}

#[test]
fn advertisements_change_what_they_may() {
    const SOLICITED: u8 = 0x40;
    const OVERRIDE: u8 = 0x20;
    let other = [2, 0, 0, 0, 0, 0xcc];
    let h = host();
    let state = || {
        let all = h.ip.neighbours(after(5.0));
        all.first().map(|n| (n.mac, n.state))
    };
    let tell = |flags, mac| {
        let m = ndisc(136, flags, "2001:db8::1", Some((2, mac)));
        h.receive(
            after(5.0),
            &FrameMeta::default(),
            &icmpv6("2001:db8::1", "2001:db8::2", 255, &m),
        );
        h.wire.take().len()
    };
    assert_eq!((tell(SOLICITED, A_MAC), state()), (0, None), "nobody asked");
    let path = h.path("2001:db8::1");
    let p = pair("2001:db8::2", "2001:db8::1");
    let marks = Marks::default();
    let _ = h.ip.send_udp(after(5.0), &path, p, &[b"x"], None, &marks);
    h.wire.take();
    // Unasked: it is known, but not that it can be reached.
    assert_eq!(tell(OVERRIDE, A_MAC), 1);
    assert_eq!(state(), Some((Some(A_MAC), Stale)));
    assert_eq!(tell(SOLICITED, A_MAC), 0);
    assert_eq!(state(), Some((Some(A_MAC), Reachable)));
    // Another MAC that may not override makes it doubtful.
    tell(SOLICITED, other);
    assert_eq!(state(), Some((Some(A_MAC), Stale)));
    tell(SOLICITED | OVERRIDE, other);
    assert_eq!(state(), Some((Some(other), Reachable)));
    // One of a group is nobody's.
    tell(SOLICITED | OVERRIDE, [0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(state(), Some((Some(other), Reachable)));
}

#[test]
fn routers_advertisements_and_redirects_are_counted_only() {
    let h = host();
    let mut m = vec![134, 0, 0, 0, 64, 0, 0x07, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(give(&h, &icmpv6("fe80::fe", "ff02::1", 255, &m)).is_empty());
    m = ndisc(137, 0, "fe80::fe", None);
    m.extend([0; 16]);
    assert!(give(&h, &icmpv6("fe80::fe", "fe80::2", 255, &m)).is_empty());
    assert_eq!(h.count(Mib::Icmp6InRouterAdvertisements), 1);
    assert_eq!(h.count(Mib::Icmp6InRedirects), 1);
    assert_eq!(h.seen.take(), []);
}

#[test]
fn all_of_it_at_once_ends() {
    let two = Two {
        a: Host::quiet(&setup(A_MAC, 1)),
        b: Host::quiet(&setup(B_MAC, 2)),
    };
    let two = &two;
    std::thread::scope(|s| {
        for n in 0..4_u64 {
            s.spawn(move || {
                for i in 0..300 {
                    let now = after(i as f64 / 10.0);
                    let to = ["10.0.0.2", "2001:db8::2"][(n % 2) as usize];
                    let p = pair(["10.0.0.1", "2001:db8::1"][(n % 2) as usize], to);
                    if let Ok(path) = two.a.ip.path(ip(to), None, None) {
                        let big = [&[0; 3000][..]];
                        let marks = Marks::default();
                        let _ = two.a.ip.send_udp(now, &path, p, &big, None, &marks);
                    }
                    two.run(now);
                    match (n, i % 50) {
                        (0, 0) => two.a.ip.set(&setup(A_MAC, 1)),
                        (1, 0) => drop(two.b.ip.join(INDEX, ip("ff05::9"))),
                        (1, 1) => two.b.ip.leave(INDEX, ip("ff05::9")),
                        (2, _) => two.a.ip.timer(now, &two.a.seen),
                        (3, _) => two.b.ip.timer(now, &two.b.seen),
                        _ => {}
                    }
                }
            });
        }
    });
    assert!(!two.b.seen.take().is_empty());
}
