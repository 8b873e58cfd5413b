//! Neighbours that are asked for, answer, move and fall silent.

use super::neighbour::NeighbourState::*;
use super::*;

fn state(h: &Host, now: Instant, of: &str) -> Option<NeighbourState> {
    let all = h.ip.neighbours(now);
    all.iter().find(|n| n.ip == ip(of)).map(|n| n.state)
}

fn send(h: &Host, now: Instant, to: &str) -> Result<Sent, SendError> {
    let path = h.path(to);
    let p = Pair {
        local: SocketAddr::new(path.source, 1),
        remote: at(to, 2),
    };
    h.ip.send_udp(now, &path, p, &[b"x"], None, &Marks::default())
}

#[test]
fn addresses_are_announced_at_the_start() {
    let h = Host::new(&setup(A_MAC, 1));
    assert_eq!(h.ip.deadline(), Some(Instant(0)));
    h.ip.timer(after(0.0), &h.seen);
    let frames = h.wire.take();
    let kinds: Vec<_> = frames.iter().map(|(_, f)| wire::be16(f, 12)).collect();
    let report = wire::TYPE_IPV6;
    assert_eq!(
        kinds,
        [wire::TYPE_ARP, wire::TYPE_IPV6, wire::TYPE_IPV6, report]
    );
    h.ip.timer(after(1.0), &h.seen);
    assert_eq!(h.ip.deadline(), None);
}

#[test]
fn silence_is_told_after_three_questions() {
    for to in ["10.0.0.9", "2001:db8::9"] {
        let h = Host::quiet(&setup(A_MAC, 1));
        assert_eq!(send(&h, after(1.0), to), Ok(Sent::Yes));
        assert_eq!(send(&h, after(1.0), to), Ok(Sent::Yes));
        assert_eq!(h.wire.take().len(), 1);
        assert_eq!(state(&h, after(1.0), to), Some(Incomplete));
        for s in [2.0, 3.0] {
            assert_eq!(h.ip.deadline(), Some(after(s)));
            h.ip.timer(after(s), &h.seen);
            assert_eq!(h.wire.take().len(), 1);
            assert_eq!(h.seen.take(), []);
        }
        h.ip.timer(after(4.0), &h.seen);
        assert_eq!(h.wire.take(), []);
        assert_eq!(h.ip.deadline(), None);
        assert_eq!(state(&h, after(4.0), to), Some(Failed));
        let told = h.seen.take();
        assert_eq!(told.len(), 2);
        let Upcall::Error(about, error, _) = told[0] else {
            panic!("{told:?}")
        };
        assert_eq!(about.pair.remote, at(to, 2));
        assert_eq!(error.errno, abi::errno::EHOSTUNREACH);
        assert_eq!(error.origin, Origin::Local);
        // The next packet asks again.
        assert_eq!(send(&h, after(9.0), to), Ok(Sent::Yes));
        assert_eq!(h.wire.take().len(), 1);
    }
}

#[test]
fn what_waits_goes_when_the_answer_comes() {
    for to in ["10.0.0.2", "2001:db8::2", "fe80::2"] {
        let two = two();
        assert_eq!(send(&two.a, after(1.0), to), Ok(Sent::Yes));
        assert_eq!(send(&two.a, after(1.0), to), Ok(Sent::Yes));
        two.run(after(1.0));
        assert_eq!(two.b.seen.take().len(), 2, "{to}");
        assert_eq!(state(&two.a, after(1.0), to), Some(Reachable));
        assert_eq!(two.a.ip.neighbours(after(1.0))[0].mac, Some(B_MAC));
    }
}

#[test]
fn a_stale_neighbour_is_probed_when_it_is_used() {
    for to in ["10.0.0.2", "2001:db8::2"] {
        let two = two();
        let _ = send(&two.a, after(1.0), to);
        two.run(after(1.0));
        two.a.ip.timer(after(2.0), &two.a.seen);
        assert_eq!(two.a.ip.deadline(), None, "an idle link has no timer");
        assert_eq!(state(&two.a, after(60.0), to), Some(Stale));
        let _ = send(&two.a, after(60.0), to);
        assert_eq!(state(&two.a, after(60.0), to), Some(Delay));
        two.run(after(60.0));
        assert_eq!(two.a.ip.deadline(), Some(after(65.0)));
        two.a.ip.timer(after(65.0), &two.a.seen);
        assert_eq!(state(&two.a, after(65.0), to), Some(Probe));
        let frames = two.run(after(65.0));
        assert_eq!(frames[0][..6], B_MAC, "asked alone");
        assert_eq!(state(&two.a, after(65.0), to), Some(Reachable));
        // A transport's progress does as well.
        let _ = send(&two.a, after(200.0), to);
        two.a.ip.confirm(after(201.0), &two.a.path(to));
        assert_eq!(state(&two.a, after(201.0), to), Some(Reachable));
        two.a.wire.take();
        two.a.ip.timer(after(206.0), &two.a.seen);
        assert_eq!(two.a.wire.take(), []);
        // Who does not answer is gone.
        let _ = send(&two.a, after(300.0), to);
        for s in [305.0, 306.0, 307.0, 308.0] {
            two.a.ip.timer(after(s), &two.a.seen);
        }
        assert_eq!(state(&two.a, after(308.0), to), Some(Failed));
    }
}

#[test]
fn strangers_do_not_push_out_those_in_use() {
    let two = two();
    let _ = send(&two.a, after(1.0), "10.0.0.2");
    two.run(after(1.0));
    // The router, of which no answer has come.
    let _ = send(&two.a, after(1.0), "192.0.2.1");
    for n in 0..3000_u32 {
        let mac = [2, 9, 0, 0, (n >> 8) as u8, n as u8];
        let heard = neighbour::Heard {
            mac,
            how: neighbour::How::Request,
            router: None,
        };
        let from = IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0100 + n));
        let table = two.a.ip.table();
        two.a.ip.heard(after(2.0), &table.devices[0], from, heard);
    }
    let all = two.a.ip.neighbours(after(2.0));
    assert_eq!(all.len(), neighbour::MOST);
    assert!(all.iter().any(|n| n.ip == ip("10.0.0.2")));
    assert!(all.iter().any(|n| n.ip == ip("10.0.0.254")));
    // Our own new ones still find a place.
    let _ = send(&two.a, after(3.0), "10.0.0.77");
    assert_eq!(state(&two.a, after(3.0), "10.0.0.77"), Some(Incomplete));
}

#[test]
fn a_scan_of_ours_is_bounded() {
    let mut s = setup(A_MAC, 1);
    s.devices[0].addresses[0].prefix = 16;
    s.routes[0] = route("10.0.0.0", 16, None);
    let h = Host::quiet(&s);
    let mut refused = 0;
    for n in 2..3000_u32 {
        let to = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).to_string();
        refused += u32::from(send(&h, after(1.0), &to) == Err(SendError::NoBuffers));
    }
    assert_eq!(h.ip.neighbours(after(1.0)).len(), neighbour::MOST);
    assert_eq!(refused, 2998 - neighbour::MOST as u32);
    h.ip.timer(after(2.0), &h.seen);
    assert_eq!(
        send(&h, after(2.0), "10.0.200.1"),
        Ok(Sent::Yes),
        "the silent give way"
    );
    for s in [3.0, 4.0] {
        h.ip.timer(after(s), &h.seen);
    }
    assert_eq!(send(&h, after(5.0), "10.0.100.1"), Ok(Sent::Yes));
}

#[test]
fn a_neighbour_that_moves_is_followed() {
    let two = two();
    let _ = send(&two.a, after(1.0), "10.0.0.2");
    two.run(after(1.0));
    let mut s = setup([2, 0, 0, 0, 0, 0xc], 2);
    s.devices[0].mac = [2, 0, 0, 0, 0, 0xc];
    let c = Host::new(&s);
    c.ip.timer(after(3.0), &c.seen);
    for (meta, f) in c.wire.take() {
        two.a.receive(after(3.0), &meta, &f);
    }
    let all = two.a.ip.neighbours(after(3.0));
    assert_eq!(all.len(), 1, "announcements make no entries");
    assert_eq!(all[0].mac, Some([2, 0, 0, 0, 0, 0xc]));
    assert_eq!(all[0].state, Stale);
}

#[test]
fn fixed_neighbours_stay() {
    let mut s = setup(A_MAC, 1);
    s.neighbours = vec![Neighbour {
        device: INDEX,
        ip: ip("10.0.0.9"),
        mac: B_MAC,
    }];
    let h = Host::quiet(&s);
    let _ = send(&h, after(1.0), "10.0.0.9");
    let frames = h.wire.take();
    assert_eq!(frames[0].1[..6], B_MAC);
    h.ip.set(&setup(A_MAC, 1));
    assert_eq!(h.ip.neighbours(after(1.0)), []);
}

#[test]
fn a_probe_for_our_address_is_answered() {
    // RFC 5227: a probe has no sender.
    let h = Host::quiet(&setup(A_MAC, 1));
    let mut frame = vec![0xff; 6];
    frame.extend(B_MAC);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(B_MAC);
    frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
    h.receive(after(1.0), &FrameMeta::default(), &frame);
    let sent = h.wire.take();
    assert_eq!(sent.len(), 1);
    assert_eq!((&sent[0].1[..6], sent[0].1[21]), (&B_MAC[..], 2));
    assert_eq!(h.ip.neighbours(after(1.0)), []);
    // An announcement of it is answered with ours, once in ten seconds.
    frame[28..32].copy_from_slice(&[10, 0, 0, 1]);
    for _ in 0..3 {
        h.receive(after(1.0), &FrameMeta::default(), &frame);
    }
    let sent = h.wire.take();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1[..6], [0xff; 6]);
}

#[test]
fn routers_stay_when_others_are_long_unused() {
    let mut s = setup(A_MAC, 1);
    s.devices[0].addresses[0].prefix = 16;
    s.routes[0] = route("10.0.0.0", 16, None);
    let two = Two {
        a: Host::quiet(&s),
        b: Host::quiet(&setup(B_MAC, 2)),
    };
    let h = &two.a;
    let answer = |of: &str, now| {
        let heard = neighbour::Heard {
            mac: B_MAC,
            how: neighbour::How::Answer { overrides: true },
            router: None,
        };
        h.ip.heard(now, &h.ip.table().devices[0], ip(of), heard);
    };
    for (to, hop) in [("8.8.8.8", "10.0.0.254"), ("10.0.0.2", "10.0.0.2")] {
        assert_eq!(send(h, after(1.0), to), Ok(Sent::Yes));
        answer(hop, after(1.0));
    }
    // Ours fill the table, and one that was not used for a minute gives way.
    for n in 300..300 + neighbour::MOST as u32 - 1 {
        let to = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).to_string();
        assert_eq!(send(h, after(100.0), &to), Ok(Sent::Yes), "{n}");
    }
    assert_eq!(h.ip.neighbours(after(100.0)).len(), neighbour::MOST);
    assert_eq!(state(h, after(100.0), "10.0.0.2"), None);
    assert_eq!(state(h, after(100.0), "10.0.0.254"), Some(Stale));
    // A stranger takes nobody's place, not even that of one that is gone.
    for s in [101.0, 102.0, 103.0] {
        h.ip.timer(after(s), &h.seen);
    }
    let heard = neighbour::Heard {
        mac: B_MAC,
        how: neighbour::How::Request,
        router: None,
    };
    let stranger = "10.0.0.66";
    h.ip.heard(after(103.0), &h.ip.table().devices[0], ip(stranger), heard);
    assert_eq!(state(h, after(103.0), stranger), None);
    assert_eq!(send(h, after(103.0), stranger), Ok(Sent::Yes));
}
