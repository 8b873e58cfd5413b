//! Groups that are joined, asked for and left.

use super::*;
use wire::{be16, be32};

/// The reports among frames: the destination, the type, and of newer ones the records' kinds.
fn reports(h: &Host) -> Vec<(IpAddr, u8, Vec<u8>)> {
    let mut found = Vec::new();
    for (_, f) in h.wire.take() {
        let b = &f[14..];
        if b[0] >> 4 == 4 && b[9] == wire::IGMP {
            assert_eq!((b[0], b[8], &b[20..22]), (0x46, 1, &[0x94, 4][..]));
            let m = &b[24..];
            assert!(wire::Sum::default().add(m).is_right());
            let kinds = match m[0] {
                0x22 => m[8..].chunks(8).map(|r| r[0]).collect(),
                _ => vec![],
            };
            let to = std::net::Ipv4Addr::from_bits(be32(b, 16));
            found.push((IpAddr::V4(to), m[0], kinds));
        } else if b[0] >> 4 == 6 && b[6] == 0 {
            assert_eq!((b[7], &b[40..44]), (1, &[58, 0, 5, 2][..]));
            let mut octets = [0; 16];
            octets.copy_from_slice(&b[24..40]);
            let m = &b[48..];
            let kinds = match m[0] {
                143 => m[8..].chunks(20).map(|r| r[0]).collect(),
                _ => vec![],
            };
            found.push((IpAddr::from(octets), m[0], kinds));
        }
    }
    found
}

fn host() -> Host {
    let h = Host::new(&setup(A_MAC, 1));
    // The reports of its own groups.
    h.ip.timer(after(0.0), &h.seen);
    let own = reports(&h);
    assert_eq!(own, [(ip("ff02::16"), 143, vec![4])], "one group of both");
    h.ip.timer(after(2.0), &h.seen);
    assert_eq!(reports(&h).len(), 1, "once more");
    h.ip.timer(after(4.0), &h.seen);
    assert_eq!(reports(&h), []);
    assert_eq!(h.ip.deadline(), None);
    h
}

fn igmp(to: &str, message: &[u8]) -> Vec<u8> {
    let mut m = message.to_vec();
    let sum = wire::Sum::default().add(&m).finish();
    m[2..4].copy_from_slice(&sum.to_be_bytes());
    let (IpAddr::V4(from), IpAddr::V4(v4)) = (ip("10.0.0.254"), ip(to)) else {
        unreachable!()
    };
    let mut head = wire::Head::new();
    head.ethernet(wire::group_mac(ip(to)), B_MAC, wire::TYPE_IPV4);
    wire::V4 {
        tos: 0xc0,
        total: (20 + m.len()) as u16,
        id: 0,
        fragment: 0,
        ttl: 1,
        protocol: wire::IGMP,
        from,
        to: v4,
    }
    .write(&mut head, &[]);
    [head.bytes(), &m].concat()
}

#[test]
fn joining_and_leaving_is_told_twice() {
    for (group, to, kind) in [
        ("224.1.2.3", "224.0.0.22", 0x22),
        ("ff05::7", "ff02::16", 143),
    ] {
        let h = host();
        h.ip.join(INDEX, ip(group)).expect("room");
        h.ip.join(INDEX, ip(group)).expect("room");
        for s in [5.0, 6.1] {
            h.ip.timer(after(s), &h.seen);
            assert_eq!(reports(&h), [(ip(to), kind, vec![4])], "{s}");
        }
        h.ip.timer(after(9.0), &h.seen);
        h.ip.leave(INDEX, ip(group));
        assert_eq!(h.ip.deadline(), None, "joined once more than left");
        h.ip.leave(INDEX, ip(group));
        for s in [10.0, 11.1] {
            h.ip.timer(after(s), &h.seen);
            assert_eq!(reports(&h), [(ip(to), kind, vec![3])], "{s}");
        }
        h.ip.timer(after(13.0), &h.seen);
        assert_eq!((reports(&h), h.ip.deadline()), (vec![], None));
    }
}

#[test]
fn queries_are_answered_in_their_version() {
    let h = host();
    h.ip.join(INDEX, ip("224.1.2.3")).expect("room");
    for s in [5.0, 6.1, 9.0] {
        h.ip.timer(after(s), &h.seen);
    }
    h.wire.take();
    let ask = |s: f64, message: &[u8]| {
        h.receive(after(s), &FrameMeta::default(), &igmp("224.0.0.1", message));
        assert!(h.ip.deadline().expect("an answer is due") <= after(s + 10.0));
        h.ip.timer(after(s + 10.0), &h.seen);
        h.ip.timer(after(s + 20.0), &h.seen);
        reports(&h)
    };
    let v3 = [0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    assert_eq!(ask(10.0, &v3), [(ip("224.0.0.22"), 0x22, vec![2])]);
    let v2 = [0x11, 100, 0, 0, 0, 0, 0, 0];
    assert_eq!(ask(40.0, &v2), [(ip("224.1.2.3"), 0x16, vec![])]);
    // Another's answer is enough.
    h.receive(after(70.0), &FrameMeta::default(), &igmp("224.0.0.1", &v2));
    let other = igmp("224.1.2.3", &[0x16, 0, 0, 0, 224, 1, 2, 3]);
    h.receive(after(70.0), &FrameMeta::default(), &other);
    h.ip.timer(after(90.0), &h.seen);
    assert_eq!(reports(&h), []);
    h.ip.leave(INDEX, ip("224.1.2.3"));
    h.ip.timer(after(91.0), &h.seen);
    assert_eq!(reports(&h), [(ip("224.0.0.2"), 0x17, vec![])]);
}

#[test]
fn mld_queries_come_from_neighbours_only() {
    let (h, other) = (host(), host());
    h.ip.join(INDEX, ip("ff05::7")).expect("room");
    for s in [5.0, 6.1, 9.0] {
        h.ip.timer(after(s), &h.seen);
    }
    h.wire.take();
    let mut query = vec![0; 28];
    query[0] = 130;
    query[4..6].copy_from_slice(&1000_u16.to_be_bytes());
    for (ttl, answers) in [(64, 0), (1, 1)] {
        let path = other.ip.path(ip("ff02::1"), None, None).expect("a path");
        let marks = Marks {
            ttl,
            ..Marks::default()
        };
        // As if from another address.
        let from = ip("fe80::1");
        let sent = other
            .ip
            .send_icmp(after(20.0), &path, from, ip("ff02::1"), &query, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        let (meta, mut f) = other.wire.take().remove(0);
        f[14 + 23] = 9;
        let sum = !be16(&f, 56);
        let moved = wire::Sum::default()
            .add(&sum.to_be_bytes())
            .add(&8_u16.to_be_bytes())
            .finish();
        f[56..58].copy_from_slice(&moved.to_be_bytes());
        h.receive(after(20.0), &meta, &f);
        h.ip.timer(after(22.0), &h.seen);
        let got = reports(&h);
        assert_eq!(got.len(), answers, "{ttl} {got:?}");
    }
}

#[test]
fn only_joined_groups_are_received() {
    let two = two();
    let p = pair("10.0.0.1", "224.1.2.3");
    let path = two.a.path("224.1.2.3");
    let marks = Marks::default();
    let send = || {
        let sent = two
            .a
            .ip
            .send_udp(after(20.0), &path, p, &[b"x"], None, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        for (meta, f) in two.a.wire.take() {
            two.b.receive(after(20.0), &meta, &f);
        }
        two.b.seen.take().len()
    };
    assert_eq!(send(), 0);
    two.b.ip.join(INDEX, ip("224.1.2.3")).expect("room");
    assert_eq!(send(), 1);
    two.b.seen.refuses.store(true, Relaxed);
    two.b.wire.take();
    assert_eq!(send(), 1);
    assert_eq!(two.b.wire.take(), [], "no error about what went to many");
    two.b.ip.leave(INDEX, ip("224.1.2.3"));
    assert_eq!(send(), 0);
    assert_eq!(
        two.b.ip.join(INDEX, ip("10.0.0.1")),
        Err(SendError::Invalid)
    );
}

#[test]
fn groups_are_bounded() {
    let h = host();
    let join = |n: u32| {
        let group = std::net::Ipv4Addr::from_bits(0xe100_0000 + n);
        h.ip.join(INDEX, IpAddr::V4(group))
    };
    let joined = (0..2000).filter(|n| join(*n).is_ok()).count();
    assert_eq!(joined, groups::MOST - 1);
}
