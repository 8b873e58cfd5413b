//! Packets for others.

use super::*;
use crate::setup::Forwards;

const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// A router between 10.0.0.0/24 and 10.1.0.0/24, where 10.1.0.2 is known.
fn router(forwards: Forwards) -> Host {
    let mut s = setup([2, 0, 0, 0, 0, 1], 1);
    let mut second = s.devices[0].clone();
    second.index = INDEX + 1;
    second.name = "eth1".into();
    second.mac = [2, 0, 0, 0, 0, 2];
    second.mtu = 1000;
    second.addresses.retain(|a| a.ip.is_ipv4());
    second.addresses[0].ip = "10.1.0.1".parse().unwrap();
    s.devices.push(second);
    let mut r = s.routes[0].clone();
    r.network = "10.1.0.0".parse().unwrap();
    r.device = INDEX + 1;
    s.routes.push(r);
    s.neighbours.push(crate::setup::Neighbour {
        device: INDEX + 1,
        ip: "10.1.0.2".parse().unwrap(),
        mac: OTHER,
    });
    s.forwards = forwards;
    Host::new(&s)
}

fn packet(ttl: u8, len: usize, dont_fragment: u8) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 8, 8, 0];
    let mut h = vec![
        0x45,
        0,
        0,
        0,
        0,
        7,
        dont_fragment,
        0,
        ttl,
        17,
        0,
        0,
        10,
        0,
        0,
        77,
        10,
        1,
        0,
        2,
    ];
    h[2..4].copy_from_slice(&((20 + len) as u16).to_be_bytes());
    let sum = super::super::wire::Sum::default().add(&h).finish();
    h[10..12].copy_from_slice(&sum.to_be_bytes());
    f.extend_from_slice(&h);
    f.resize(f.len() + len, 7);
    f
}

fn on() -> Forwards {
    Forwards {
        v4: true,
        ..Forwards::default()
    }
}

fn frames(h: &Host) -> Vec<Vec<u8>> {
    std::mem::take(&mut *h.wire.frames.lock())
        .into_iter()
        .map(|(_, f)| f)
        .collect()
}

#[test]
fn a_packet_goes_on_with_one_hop_less() {
    let h = router(on());
    frames(&h);
    h.receive(after(1.0), &FrameMeta::default(), &packet(64, 100, 0));
    let out = frames(&h);
    assert_eq!(out.len(), 1);
    assert_eq!(out[0][..6], OTHER);
    assert_eq!(out[0][22], 63);
    assert!(
        super::super::wire::Sum::default()
            .add(&out[0][14..34])
            .is_right()
    );
    assert_eq!(out[0][34..], packet(64, 100, 0)[34..]);
}

#[test]
fn none_goes_on_unasked_or_by_a_guarded_device() {
    let h = router(Forwards::default());
    frames(&h);
    h.receive(after(1.0), &FrameMeta::default(), &packet(64, 100, 0));
    assert!(frames(&h).is_empty());
    let h = router(Forwards {
        guarded: vec![INDEX + 1],
        ..on()
    });
    frames(&h);
    h.receive(after(1.0), &FrameMeta::default(), &packet(64, 100, 0));
    // It waits for its sender's MAC: an error, to nobody else.
    assert!(frames(&h).iter().all(|f| f[..6] != OTHER));
}

#[test]
fn what_cannot_go_on_is_told() {
    for (ttl, len, message) in [(1, 100, [11, 0]), (64, 1200, [3, 4])] {
        let h = router(on());
        frames(&h);
        // The sender's MAC is learnt from its question for us.
        let mut ask = vec![0xff; 6];
        ask.extend_from_slice(&[2, 0, 0, 0, 0, 8, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        ask.extend_from_slice(&[
            2, 0, 0, 0, 0, 8, 10, 0, 0, 77, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1,
        ]);
        h.receive(after(1.0), &FrameMeta::default(), &ask);
        frames(&h);
        h.receive(after(1.0), &FrameMeta::default(), &packet(ttl, len, 0x40));
        let out = frames(&h);
        assert_eq!(out.len(), 1, "{message:?}");
        assert_eq!(out[0][34..36], message);
        assert_eq!(out[0][..6], [2, 0, 0, 0, 0, 8]);
    }
}

#[test]
fn no_answer_leaves_by_a_guarded_device_to_who_came_by_another() {
    /// Of a host behind the second device, that came by the first: an echo, a datagram to a port
    /// that nobody has, a segment without a connection, a protocol that nobody knows, wrong
    /// options.
    fn forged() -> Vec<Vec<u8>> {
        let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1];
        let sum = super::super::wire::Sum::default().add(&echo).finish();
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        let udp = [0, 9, 0, 9, 0, 8, 0, 0];
        let mut tcp = vec![
            0, 9, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 9, 0, 0, 0, 0,
        ];
        let (from, to) = ("10.1.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap());
        let sum = super::super::wire::Sum::pseudo(from, to, 6, tcp.len())
            .add(&tcp)
            .finish();
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let frame = |protocol, options: &[u8], body: &[u8]| {
            let mut f = refusals::frame_v4("10.1.0.2", "10.0.0.1", protocol, options, body);
            f[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            f
        };
        vec![
            frame(1, &[], &echo),
            frame(17, &[], &udp),
            frame(6, &[], &tcp),
            frame(99, &[], &[0; 8]),
            frame(17, &[7, 1, 0, 0], &udp),
        ]
    }
    for (guarded, answers) in [
        (vec![], 5),
        (vec![INDEX + 1], 0),
        (vec![INDEX, INDEX + 1], 5),
    ] {
        let h = router(Forwards {
            guarded,
            ..Forwards::default()
        });
        h.seen.refuses.store(true, Relaxed);
        frames(&h);
        for f in forged() {
            h.receive(after(1.0), &FrameMeta::default(), &f);
        }
        let out = frames(&h);
        assert_eq!(out.iter().filter(|f| f[..6] == OTHER).count(), answers);
    }
}
