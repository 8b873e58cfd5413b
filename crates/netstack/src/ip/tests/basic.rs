//! Messages of each kind between two hosts.

use super::*;

const PAIRS: [(&str, &str); 3] = [
    ("10.0.0.1", "10.0.0.2"),
    ("2001:db8::1", "2001:db8::2"),
    ("fe80::1", "fe80::2"),
];

fn scoped(mut p: Pair) -> Pair {
    for a in [&mut p.local, &mut p.remote] {
        if let SocketAddr::V6(a) = a
            && a.ip().is_unicast_link_local()
        {
            a.set_scope_id(INDEX);
        }
    }
    p
}

#[test]
fn meta_is_ten_bytes() {
    let meta = FrameMeta {
        flags: 1,
        gso_type: 4,
        hdr_len: 74,
        gso_size: 1440,
        csum_start: 54,
        csum_offset: 16,
    };
    assert_eq!(FrameMeta::from_bytes(&meta.to_bytes()), meta);
}

#[test]
fn segments_arrive_in_both_families() {
    for (a, b) in PAIRS {
        let two = two();
        let p = scoped(pair(a, b));
        let path = two.a.path(b);
        assert_eq!((path.source, path.mtu), (ip(a), 1500));
        let sent = two.a.ip.send_tcp(
            after(1.0),
            &path,
            p,
            &syn(),
            &[b"ab", b"", b"cde"],
            1400,
            &Marks::default(),
        );
        assert_eq!(sent, Ok(Sent::Yes));
        two.run(after(1.0));
        let told = two.b.seen.take();
        let [Upcall::Tcp(to, segment)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(*to, turned(p));
        assert_eq!(segment.header, syn());
        assert_eq!((&segment.payload[..], segment.joined), (&b"abcde"[..], 1));
    }
}

#[test]
fn checksums_that_the_device_finishes_are_right() {
    for (a, b) in PAIRS {
        let two = two();
        let p = scoped(pair(a, b));
        let path = two.a.path(b);
        let marks = Marks::default();
        let now = after(1.0);
        // Neighbours first.
        let _ = two.a.ip.send_udp(now, &path, p, &[b"x"], None, &marks);
        two.run(now);
        two.b.seen.take();
        let _ = two.a.ip.send_udp(now, &path, p, &[b"odd"], None, &marks);
        let _ = two
            .a
            .ip
            .send_tcp(now, &path, p, &syn(), &[b"odd"], 99, &marks);
        for (meta, mut f) in two.a.wire.take() {
            Two::finish(&meta, &mut f);
            two.b.receive(now, &FrameMeta::default(), &f);
            let last = f.len() - 1;
            f[last] ^= 1;
            two.b.receive(now, &FrameMeta::default(), &f);
        }
        assert_eq!(two.b.seen.take().len(), 2, "{a}");
        assert_eq!(two.b.count(Mib::TcpInCsumErrors), 1);
    }
}

#[test]
fn large_segments_are_left_to_the_device() {
    for (a, b) in PAIRS {
        let two = two();
        let p = scoped(pair(a, b));
        let path = two.a.path(b);
        let marks = Marks::default();
        let (now, mss) = (after(1.0), 1400);
        let headers = if path.source.is_ipv4() { 40 } else { 60 };
        let n = path.largest_payload(mss, headers);
        assert_eq!(n % 1400, 0);
        let big = vec![9; n + 1400];
        let header = tcp::Header::default();
        let sent = two
            .a
            .ip
            .send_tcp(now, &path, p, &header, &[&big[..n]], mss, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        let too_big = two
            .a
            .ip
            .send_tcp(now, &path, p, &header, &[&big], mss, &marks);
        assert_eq!(too_big, Err(SendError::TooBig(65_536)));
        let too_long = two
            .a
            .ip
            .send_tcp(now, &path, p, &header, &[&big], 1500, &marks);
        assert_eq!(too_long, Err(SendError::TooBig(1500)));
        let frames = two.run(now);
        assert!(frames.iter().all(|f| f.len() < 65_536));
        let told = two.b.seen.take();
        let [Upcall::Tcp(_, segment)] = &told[..] else {
            panic!("{}", told.len())
        };
        assert_eq!(segment.payload.len(), n);
        assert_eq!(usize::from(segment.joined), n / 1400);
    }
}

#[test]
fn a_segment_that_nobody_wants_is_reset() {
    for (a, b) in PAIRS {
        let two = two();
        two.b.seen.refuses.store(true, Relaxed);
        let p = scoped(pair(a, b));
        let path = two.a.path(b);
        let marks = Marks::default();
        let _ = two
            .a
            .ip
            .send_tcp(after(1.0), &path, p, &syn(), &[], 99, &marks);
        two.run(after(1.0));
        let told = two.a.seen.take();
        let [Upcall::Tcp(to, segment)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(*to, p);
        assert_eq!(segment.header.flags, tcp::Flags::RST | tcp::Flags::ACK);
        assert_eq!(segment.header.ack, tcp::Seq(6));
    }
}

#[test]
fn a_datagram_that_nobody_wants_is_refused_at_a_rate() {
    for (a, b) in PAIRS {
        let two = two();
        two.b.seen.refuses.store(true, Relaxed);
        let p = scoped(pair(a, b));
        let path = two.a.path(b);
        for _ in 0..20 {
            let marks = Marks::default();
            let sent = two
                .a
                .ip
                .send_udp(after(1.0), &path, p, &[b"hi"], None, &marks);
            assert_eq!(sent, Ok(Sent::Yes));
            two.run(after(1.0));
        }
        let told = two.a.seen.take();
        assert_eq!(told.len(), 6, "Linux's burst");
        let Upcall::Error(about, error, from) = told[0] else {
            panic!("{told:?}")
        };
        assert_eq!((about.protocol, about.pair, from), (17, p, ip(b)));
        assert_eq!(error.errno, abi::errno::ECONNREFUSED);
        assert_eq!(error.severity, Severity::Hard);
    }
}

#[test]
fn echoes_are_answered() {
    for (a, b) in PAIRS {
        let two = two();
        let path = two.a.path(b);
        let (kind, answer) = if path.source.is_ipv4() {
            (8, 0)
        } else {
            (128, 129)
        };
        let message = [kind, 0, 0, 0, 0x12, 0x34, 0, 1, b'h', b'i', b'!'];
        let marks = Marks::default();
        let sent = two
            .a
            .ip
            .send_icmp(after(1.0), &path, ip(a), ip(b), &message, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        two.run(after(1.0));
        let told = two.a.seen.take();
        let [Upcall::Icmp(from, to, got)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((*from, *to, got[0]), (ip(b), ip(a), answer));
        assert_eq!(got[4..], message[4..]);
        assert_eq!(two.b.seen.take(), []);
    }
}

#[test]
fn joined_datagrams_come_apart_unless_wanted() {
    let two = two();
    let p = pair("10.0.0.1", "10.0.0.2");
    let path = two.a.path("10.0.0.2");
    let marks = Marks::default();
    let payload: Vec<u8> = (0..250).collect();
    for joined in [false, true] {
        two.b.seen.joined.store(joined, Relaxed);
        let sent = two
            .a
            .ip
            .send_udp(after(1.0), &path, p, &[&payload], Some(100), &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        two.run(after(1.0));
        let got = two.b.seen.take();
        let sizes: Vec<_> = got
            .iter()
            .map(|t| match t {
                Upcall::Udp(_, p, gro) => (p.len(), *gro),
                _ => panic!("{t:?}"),
            })
            .collect();
        if joined {
            assert_eq!(sizes, [(250, Some(100))]);
        } else {
            assert_eq!(sizes, [(100, None), (100, None), (50, None)]);
        }
    }
}

#[test]
fn no_other_source_leaves() {
    let two = two();
    let path = two.a.path("10.0.0.2");
    let marks = Marks::default();
    let p = pair("10.0.0.9", "10.0.0.2");
    let sent = two
        .a
        .ip
        .send_udp(after(1.0), &path, p, &[b"x"], None, &marks);
    assert_eq!(sent, Err(SendError::Source));
    let mut whole = vec![0; 28];
    whole[0] = 0x45;
    whole[12..16].copy_from_slice(&[10, 0, 0, 9]);
    let sent = two
        .a
        .ip
        .send_raw(after(1.0), &path, Raw::Whole(&whole), &marks);
    assert_eq!(sent, Err(SendError::Source));
    assert_eq!(two.a.wire.take(), []);
}

#[test]
fn raw_packets_are_seen_and_sent() {
    let two = two();
    two.b.seen.raw.store(true, Relaxed);
    let path = two.a.path("10.0.0.2");
    let raw = Raw::Payload {
        from: ip("10.0.0.1"),
        to: ip("10.0.0.2"),
        protocol: 200,
        payload: b"payload",
    };
    let marks = Marks {
        ttl: 9,
        ..Marks::default()
    };
    assert_eq!(
        two.a.ip.send_raw(after(1.0), &path, raw, &marks),
        Ok(Sent::Yes)
    );
    two.run(after(1.0));
    let told = two.b.seen.take();
    let [Upcall::Raw(packet, info)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((info.ttl, info.protocol, info.header), (9, 200, 20));
    assert_eq!(packet[20..], *b"payload");
    // Nobody listens: the protocol is refused.
    two.b.seen.raw.store(false, Relaxed);
    assert_eq!(
        two.a.ip.send_raw(after(1.0), &path, raw, &marks),
        Ok(Sent::Yes)
    );
    two.run(after(1.0));
    let told = two.a.seen.take();
    let [Upcall::Error(about, error, _)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(about.protocol, 200);
    assert_eq!(error.errno, abi::errno::ENOPROTOOPT);
}

#[test]
fn frames_for_others_and_with_tags_are_dropped() {
    let two = two();
    let p = pair("10.0.0.1", "10.0.0.2");
    let path = two.a.path("10.0.0.2");
    let _ = two
        .a
        .ip
        .send_udp(after(1.0), &path, p, &[b"x"], None, &Marks::default());
    two.run(after(1.0));
    two.b.seen.take();
    let _ = two
        .a
        .ip
        .send_udp(after(1.0), &path, p, &[b"x"], None, &Marks::default());
    let (meta, frame) = two.a.wire.take().remove(0);
    let mut other = frame.clone();
    other[5] ^= 1;
    two.b.receive(after(1.0), &meta, &other);
    let mut tagged = frame.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    two.b.receive(after(1.0), &meta, &tagged);
    let mut all = frame.clone();
    all[..6].fill(0xff);
    two.b.receive(after(1.0), &meta, &all);
    assert_eq!(two.b.seen.take(), []);
    let counts = two.b.ip.counters().devices[0].1;
    assert_eq!((counts.rx_dropped, counts.rx_vlan), (2, 1));
    assert_eq!(two.b.count(Mib::IpInAddrErrors), 1);
    two.b.receive(after(1.0), &meta, &frame);
    assert_eq!(two.b.seen.take().len(), 1);
}

#[test]
fn martians_are_dropped() {
    for from in [
        "127.0.0.1",
        "224.0.0.5",
        "0.0.0.0",
        "10.0.0.2",
        "10.0.0.255",
        "255.255.255.255",
    ] {
        let two = two();
        let mut head = wire::Head::new();
        head.ethernet(B_MAC, A_MAC, wire::TYPE_IPV4);
        let (IpAddr::V4(from), IpAddr::V4(to)) = (ip(from), ip("10.0.0.2")) else {
            unreachable!()
        };
        let v4 = wire::V4 {
            tos: 0,
            total: 28,
            id: 0,
            fragment: 0,
            ttl: 64,
            protocol: wire::UDP,
            from,
            to,
        };
        v4.write(&mut head, &[]);
        head.push(&[0, 1, 0, 2, 0, 8, 0, 0]);
        two.b
            .receive(after(1.0), &FrameMeta::default(), head.bytes());
        assert_eq!(two.b.seen.take(), [], "{from}");
        assert_eq!(two.b.count(Mib::IpInAddrErrors), 1);
    }
}

#[test]
fn a_device_that_cuts_nothing_gets_datagrams_alone() {
    let mut s = setup(A_MAC, 1);
    s.devices[0].gso_max = 0;
    s.neighbours = vec![Neighbour {
        device: INDEX,
        ip: ip("10.0.0.2"),
        mac: B_MAC,
    }];
    let a = Host::quiet(&s);
    let path = a.path("10.0.0.2");
    assert_eq!(path.largest_payload(1400, 40), 1400);
    let p = pair("10.0.0.1", "10.0.0.2");
    let (first, rest) = ([1; 130], [2; 120]);
    let marks = Marks::default();
    let sent =
        a.ip.send_udp(after(1.0), &path, p, &[&first, &rest], Some(100), &marks);
    assert_eq!(sent, Ok(Sent::Yes));
    let lens: Vec<_> = a
        .wire
        .take()
        .iter()
        .map(|(m, f)| (m.gso_type, f.len()))
        .collect();
    assert_eq!(lens, [(0, 142), (0, 142), (0, 92)]);
}
