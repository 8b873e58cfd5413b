//! Any bytes, and frames that are nearly right.

use super::*;
use proptest::prelude::*;

/// Frames of every kind from one host to another.
fn frames() -> Vec<(FrameMeta, Vec<u8>)> {
    let a = Host::new(&setup(A_MAC, 1));
    let mut all = Vec::new();
    let mut s = setup(A_MAC, 1);
    s.neighbours = ["10.0.0.2", "2001:db8::2", "fe80::2"]
        .into_iter()
        .map(|n| Neighbour {
            device: INDEX,
            ip: ip(n),
            mac: B_MAC,
        })
        .collect();
    a.ip.set(&s);
    a.ip.timer(Instant(0), &a.seen);
    let marks = Marks::default();
    for (from, to) in [
        ("10.0.0.1", "10.0.0.2"),
        ("2001:db8::1", "2001:db8::2"),
        ("fe80::1", "fe80::2"),
    ] {
        let p = pair(from, to);
        let path = a.path(to);
        let now = after(1.0);
        let big = [7; 5000];
        let _ =
            a.ip.send_tcp(now, &path, p, &syn(), &[b"abc"], 1400, &marks);
        let _ = a.ip.send_tcp(now, &path, p, &syn(), &[&big], 1400, &marks);
        let _ = a.ip.send_udp(now, &path, p, &[b"abc"], None, &marks);
        let _ = a.ip.send_udp(now, &path, p, &[&big], None, &marks);
        let _ = a.ip.send_udp(now, &path, p, &[&big], Some(1000), &marks);
        for kind in [0, 3, 8, 11, 1, 2, 4, 128, 129, 130, 134, 135, 136, 137] {
            let mut m = vec![0; 60];
            m[0] = kind;
            m[8] = 0x45;
            let _ = a.ip.send_icmp(now, &path, ip(from), ip(to), &m, &marks);
        }
        let table = a.ip.table();
        a.ip.ask(&table, &table.devices[0], ip(to), neighbour::Ask::All);
    }
    all.append(&mut a.wire.take());
    all
}

/// Bytes of all that is kept, about.
fn bounded(h: &Host, now: Instant) {
    assert!(h.ip.neighbours(now).len() <= neighbour::MOST);
    assert!(h.ip.held() <= reassembly::MOST_BYTES + neighbour::MOST_WAITING);
}

fn meta() -> impl Strategy<Value = FrameMeta> {
    (any::<[u8; 10]>(), any::<bool>()).prop_map(|(b, plain)| {
        if plain {
            FrameMeta::default()
        } else {
            FrameMeta::from_bytes(&b)
        }
    })
}

proptest! {
    #[test]
    fn any_frame_is_received(
        meta in meta(),
        kind in prop::sample::select(vec![0x0800_u16, 0x0806, 0x86dd, 0x8100, 7]),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let h = Host::quiet(&setup(B_MAC, 2));
        h.receive(after(1.0), &meta, &bytes);
        let frame = [&B_MAC[..], &A_MAC, &kind.to_be_bytes(), &bytes].concat();
        h.receive(after(1.0), &meta, &frame);
        bounded(&h, after(1.0));
    }

    #[test]
    fn changed_frames_are_received(
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0..4_u8),
            1..40),
        metas in proptest::collection::vec(meta(), 40),
        refuses: bool,
        summed: bool,
    ) {
        let frames = frames();
        let h = Host::quiet(&setup(B_MAC, 2));
        h.seen.refuses.store(refuses, Relaxed);
        let mut now = after(1.0);
        for ((which, place, byte, kind), meta) in changes.into_iter().zip(metas) {
            let (own, mut f) = frames[which.index(frames.len())].clone();
            // The headers are where it matters.
            let n = f.len().min(100);
            match kind {
                0 => f[place.index(n)] ^= byte,
                1 => f.truncate(place.index(f.len())),
                2 => { f.insert(place.index(n), byte); }
                _ => {}
            }
            let mut meta = if byte & 1 == 0 { own } else { meta };
            if summed {
                meta.flags |= FrameMeta::DATA_VALID;
                fix(&mut f);
            }
            h.receive(now, &meta, &f);
            now = now + Duration::from_millis(u64::from(byte) * 40);
            h.ip.timer(now, &h.seen);
            bounded(&h, now);
        }
    }
}

/// Makes an IPv4 header's checksum right.
fn fix(f: &mut [u8]) {
    if f.len() >= 34 && f[12..14] == [8, 0] {
        let header = (usize::from(f[14] & 15) * 4).clamp(20, f.len() - 14);
        f[24..26].fill(0);
        let sum = wire::Sum::default().add(&f[14..14 + header]).finish();
        f[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

#[test]
fn a_flood_of_fragments_is_bounded() {
    let h = Host::quiet(&setup(B_MAC, 2));
    for n in 0..20_000_u32 {
        let mut head = wire::Head::new();
        head.ethernet(B_MAC, A_MAC, wire::TYPE_IPV4);
        let IpAddr::V4(to) = ip("10.0.0.2") else {
            unreachable!()
        };
        wire::V4 {
            tos: 0,
            total: 20 + 1400,
            id: n as u16,
            fragment: wire::MORE_FRAGMENTS | (n % 7) as u16,
            ttl: 64,
            protocol: wire::UDP,
            from: std::net::Ipv4Addr::from_bits(0x0b00_0000 + n % 999),
            to,
        }
        .write(&mut head, &[]);
        let f = [head.bytes(), &[0; 1400]].concat();
        h.receive(after(1.0), &FrameMeta::default(), &f);
    }
    bounded(&h, after(1.0));
    h.ip.timer(after(40.0), &h.seen);
    assert_eq!(h.ip.reassembly.lock().bytes(), 0);
    // Errors about them are few.
    assert!(h.count(Mib::IcmpOutMsgs) <= 51);
}

#[test]
fn a_full_device_is_told() {
    let two = two();
    let p = pair("10.0.0.1", "10.0.0.2");
    let path = two.a.path("10.0.0.2");
    let marks = Marks::default();
    let send = || {
        two.a
            .ip
            .send_udp(after(1.0), &path, p, &[b"x"], None, &marks)
    };
    assert_eq!(send(), Ok(Sent::Yes));
    two.run(after(1.0));
    two.a.wire.full.store(true, Relaxed);
    assert_eq!(send(), Ok(Sent::Full));
    two.a.wire.full.store(false, Relaxed);
    assert_eq!(send(), Ok(Sent::Yes));
}
