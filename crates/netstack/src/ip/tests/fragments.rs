//! Datagrams larger than the link takes.

use super::*;
use proptest::prelude::*;

const PAIRS: [(&str, &str); 2] = [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")];

/// Two hosts that know each other.
fn acquainted(a: &str, b: &str) -> (Two, Pair, Path) {
    let two = two();
    let p = pair(a, b);
    let path = two.a.path(b);
    let marks = Marks::default();
    for (from, p) in [(&two.a, p), (&two.b, turned(p))] {
        let path = from.path(&p.remote.ip().to_string());
        let sent = from
            .ip
            .send_udp(after(1.0), &path, p, &[b"x"], None, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
    }
    two.run(after(1.0));
    two.a.seen.take();
    two.b.seen.take();
    (two, p, path)
}

#[test]
fn a_large_datagram_arrives_in_any_order() {
    for (a, b) in PAIRS {
        let (two, p, path) = acquainted(a, b);
        let payload: Vec<u8> = (0..5001).map(|n| (n % 253) as u8).collect();
        let parts = [&payload[..7], &payload[7..3000], &[], &payload[3000..]];
        let marks = Marks::default();
        let sent = two
            .a
            .ip
            .send_udp(after(1.0), &path, p, &parts, None, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        let frames = two.a.wire.take();
        assert_eq!(frames.len(), 4);
        for (meta, f) in &frames {
            assert_eq!(*meta, FrameMeta::default());
            assert!(f.len() <= 1514);
        }
        for n in [2, 0, 2, 3, 1] {
            assert_eq!(two.b.seen.take(), []);
            two.b.receive(after(1.0), &frames[n].0, &frames[n].1);
        }
        let told = two.b.seen.take();
        assert_eq!(told, [Upcall::Udp(turned(p), payload, None)], "{a}");
        let (oks, creates) = match p.local.is_ipv4() {
            true => (Mib::IpReasmOks, Mib::IpFragCreates),
            false => (Mib::Ip6ReasmOks, Mib::Ip6FragCreates),
        };
        assert_eq!((two.b.count(oks), two.a.count(creates)), (1, 4));
    }
}

#[test]
fn a_changed_fragment_is_seen_by_the_sum() {
    for (a, b) in PAIRS {
        let (two, p, path) = acquainted(a, b);
        let marks = Marks::default();
        let _ = two
            .a
            .ip
            .send_udp(after(1.0), &path, p, &[&[7; 2000]], None, &marks);
        let mut frames = two.a.wire.take();
        frames[1].1[100] ^= 1;
        for (_, f) in &frames {
            // Whatever the device says of a fragment.
            let meta = FrameMeta {
                flags: FrameMeta::DATA_VALID,
                ..FrameMeta::default()
            };
            two.b.receive(after(1.0), &meta, f);
        }
        assert_eq!(two.b.seen.take(), []);
    }
}

#[test]
fn marks_say_what_may_be_cut() {
    for (a, b) in PAIRS {
        let (two, p, mut path) = acquainted(a, b);
        path.mtu = 1400;
        let size = 1450 - if p.local.is_ipv4() { 28 } else { 48 };
        let payload = vec![1; size];
        for (pmtu, frames) in [
            (Pmtu::Dont, Ok(2)),
            (Pmtu::Want, Ok(2)),
            (Pmtu::Do, Err(SendError::TooBig(1400))),
            (Pmtu::Probe, Ok(1)),
            (Pmtu::Interface, Ok(1)),
            (Pmtu::Omit, Ok(1)),
        ] {
            let marks = Marks {
                pmtu,
                ..Marks::default()
            };
            let sent = two
                .a
                .ip
                .send_udp(after(1.0), &path, p, &[&payload], None, &marks);
            let got = two.a.wire.take();
            assert_eq!(sent.map(|_| got.len()), frames, "{pmtu:?}");
            if let (true, Some((_, f))) = (p.local.is_ipv4(), got.first()) {
                let df = f[20] & 0x40 != 0;
                let wanted = matches!(pmtu, Pmtu::Probe) || pmtu == Pmtu::Want && got.len() == 1;
                assert_eq!(df, wanted, "{pmtu:?}");
            }
        }
        let (most, too_long) = if p.local.is_ipv4() {
            (65_507, 65_508)
        } else {
            (65_527, 65_528)
        };
        let marks = Marks::default();
        let all = vec![0; too_long];
        let sent = two
            .a
            .ip
            .send_udp(after(1.0), &path, p, &[&all[..most]], None, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        two.run(after(1.0));
        assert_eq!(two.b.seen.take().len(), 1);
        let sent = two
            .a
            .ip
            .send_udp(after(1.0), &path, p, &[&all], None, &marks);
        assert!(matches!(sent, Err(SendError::TooBig(_))));
    }
}

#[test]
fn what_is_not_whole_in_time_is_told() {
    for ((a, b), seconds) in PAIRS.into_iter().zip([30.0, 60.0]) {
        let (two, p, path) = acquainted(a, b);
        let marks = Marks::default();
        let _ = two
            .a
            .ip
            .send_udp(after(1.0), &path, p, &[&[7; 4000]], None, &marks);
        let frames = two.a.wire.take();
        two.b.receive(after(1.0), &frames[0].0, &frames[0].1);
        two.b.ip.timer(after(2.0), &two.b.seen);
        assert_eq!(two.b.ip.deadline(), Some(after(1.0 + seconds)));
        two.b.ip.timer(after(1.0 + seconds), &two.b.seen);
        two.run(after(1.0 + seconds));
        let told = two.a.seen.take();
        let [Upcall::Error(about, error, from)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(
            (about.pair, error.kind, *from),
            (p, ErrorKind::TimeExceeded, ip(b))
        );
        // Without the first one nothing is told.
        two.b.receive(after(100.0), &frames[1].0, &frames[1].1);
        two.b.ip.timer(after(200.0), &two.b.seen);
        two.run(after(200.0));
        assert_eq!(two.a.seen.take(), []);
    }
}

#[test]
fn large_echoes_are_answered() {
    for (a, b) in PAIRS {
        let (two, _, path) = acquainted(a, b);
        let mut message = vec![0; 4000];
        message[0] = if path.source.is_ipv4() { 8 } else { 128 };
        let marks = Marks::default();
        let sent = two
            .a
            .ip
            .send_icmp(after(1.0), &path, ip(a), ip(b), &message, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        two.run(after(1.0));
        let told = two.a.seen.take();
        assert!(matches!(&told[..], [Upcall::Icmp(_, _, m)] if m.len() == 4000));
    }
}

#[test]
fn extension_headers_are_passed_or_refused() {
    let (two, p, path) = acquainted("2001:db8::1", "2001:db8::2");
    let marks = Marks::default();
    let _ = two
        .a
        .ip
        .send_udp(after(1.0), &path, p, &[b"x"], None, &marks);
    let (meta, mut frame) = two.a.wire.take().remove(0);
    Two::finish(&meta, &mut frame);
    let with = |headers: &[u8], first: u8| {
        let mut f = frame.clone();
        f[20] = first;
        let len = wire::be16(&f, 18) + headers.len() as u16;
        f[18..20].copy_from_slice(&len.to_be_bytes());
        f.splice(54..54, headers.iter().copied());
        two.b.receive(after(1.0), &FrameMeta::default(), &f);
        two.run(after(1.0));
        (two.b.seen.take().len(), two.a.seen.take())
    };
    assert_eq!(with(&[17, 0, 5, 2, 0, 0, 1, 0], 0), (1, vec![]));
    assert_eq!(with(&[17, 0, 0, 0, 0, 0, 0, 9], 44), (1, vec![]));
    let (got, told) = with(&[17, 0, 0, 1, 0, 0, 0, 0], 43);
    let [Upcall::Error(about, error, _)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((got, about.pair), (0, p));
    assert_eq!((error.kind, error.info), (ErrorKind::ParameterProblem, 42));
    let (got, told) = with(&[200, 0, 1, 4, 0, 0, 0, 0], 60);
    let [Upcall::Error(_, error, _)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((got, error.code, error.info), (0, 1, 40));
}

#[test]
fn a_large_packet_that_no_router_takes_is_told() {
    for (a, b) in PAIRS {
        let (two, p, path) = acquainted(a, b);
        let h = tcp::Header {
            seq: tcp::Seq(77),
            ..tcp::Header::default()
        };
        let marks = Marks::default();
        let _ = two
            .a
            .ip
            .send_tcp(after(1.0), &path, p, &h, &[&[0; 1000]], 1400, &marks);
        let (_, frame) = two.a.wire.take().remove(0);
        let quote = &frame[14..14 + 100];
        // From a router on the way.
        let v4 = p.local.is_ipv4();
        let mut m = if v4 {
            vec![3, 4, 0, 0, 0, 0, 0x05, 0x14]
        } else {
            vec![2, 0, 0, 0, 0, 0, 0x05, 0x14]
        };
        m.extend_from_slice(quote);
        let back = two.b.path(a);
        let sent = two
            .b
            .ip
            .send_icmp(after(1.0), &back, ip(b), ip(a), &m, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        two.run(after(1.0));
        let told = two.a.seen.take();
        let [Upcall::Error(about, error, _)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((about.pair, about.tcp_seq), (p, Some(tcp::Seq(77))));
        assert_eq!(error.kind, ErrorKind::PacketTooBig(1300));
        assert_eq!(two.a.path(b).mtu, 1500, "not yet believed");
        two.a.ip.path_mtu_learnt(after(1.0), ip(b), 1300);
        assert_eq!(two.a.path(b).mtu, 1300);
        // What this host cannot have sent is not spoken of.
        let mut forged = m.clone();
        let source = if v4 { 8 + 12 } else { 8 + 8 };
        forged[source] ^= 0x40;
        let sent = two
            .b
            .ip
            .send_icmp(after(1.0), &back, ip(b), ip(a), &forged, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        two.run(after(1.0));
        assert_eq!(two.a.seen.take(), []);
    }
}

#[test]
fn fragments_are_not_put_together_twice() {
    let h = Host::quiet(&setup(B_MAC, 2));
    let (IpAddr::V6(from), IpAddr::V6(to)) = (ip("2001:db8::1"), ip("2001:db8::2")) else {
        unreachable!()
    };
    // The data of both is the beginning of another fragment.
    for (first, more) in [(0, 1_u16), (16, 0)] {
        let mut head = wire::Head::new();
        head.ethernet(B_MAC, A_MAC, wire::TYPE_IPV6);
        wire::V6 {
            tos: 0,
            flow: 0,
            len: 24,
            next: 44,
            ttl: 64,
            from,
            to,
        }
        .write(&mut head);
        head.push(&[44, 0]);
        head.push(&(first | more).to_be_bytes());
        head.push(&[0, 0, 0, 9]);
        head.push(&[17, 0, 0, 1, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
        h.receive(after(1.0), &FrameMeta::default(), head.bytes());
    }
    assert_eq!((h.count(Mib::Ip6ReasmOks), h.ip.held()), (1, 0));
    assert_eq!(h.count(Mib::Ip6InHdrErrors), 1);
}

proptest! {
    #[test]
    fn what_is_sent_in_any_parts_arrives_in_any_order(
        parts in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..3000), 0..15),
        v4: bool, seed: u64, mtu in 1280..1501_u32,
    ) {
        let (a, b) = PAIRS[usize::from(!v4)];
        let (two, p, mut path) = acquainted(a, b);
        path.mtu = mtu;
        let parts: Vec<&[u8]> = parts.iter().map(|p| &p[..]).collect();
        let marks = Marks::default();
        let sent = two.a.ip.send_udp(after(1.0), &path, p, &parts, None, &marks);
        prop_assert_eq!(sent, Ok(Sent::Yes));
        let mut frames = two.a.wire.take();
        prop_assert!(frames.iter().all(|(_, f)| f.len() <= 14 + mtu as usize));
        let key = keyed::Keyed::new([0; 16], 1);
        frames.sort_by_key(|(_, f)| key.hash((seed, f)));
        for (meta, f) in &frames {
            two.b.receive(after(1.0), meta, f);
        }
        prop_assert_eq!(two.b.seen.take(), [Upcall::Udp(turned(p), parts.concat(), None)]);
    }
}
