use super::*;
use crate::devices::{LinkRequest, NewKind};
use abi::errno::*;
use std::time::{Duration, Instant};

fn root() -> World {
    let mut w = World::new();
    w.cred = Arc::new(Credentials::root());
    w
}

fn named(name: &str) -> LinkRequest {
    LinkRequest {
        name: Some(name.into()),
        ..LinkRequest::default()
    }
}

fn pair(a: &Arc<NetNamespace>, b: &Arc<NetNamespace>) -> i32 {
    let far = LinkRequest {
        ns: Some(b.clone()),
        ..named("far")
    };
    a.add_link(NewKind::Veth, &named("near"), &far, None)
        .unwrap()
}

fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !what() {
        assert!(Instant::now() < end, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_pair_ends_together() {
    let w = root();
    let other = w.ns.sibling(&vfs::userns::UserNs::default());
    let near = pair(&w.ns, &other);
    assert!(other.has_link("far"));
    w.ns.delete_link(near).unwrap();
    assert!(!other.has_link("far") && !w.ns.has_link("near"));
    // With a namespace its devices go, and their other ends.
    pair(&w.ns, &other);
    drop(other);
    until(|| !w.ns.has_link("near"));
}

#[test]
fn what_exists_is_bounded() {
    let w = root();
    let mut last = Ok(0);
    for _ in 0..300 {
        last = w.ns.add_link(
            NewKind::Bridge,
            &LinkRequest::default(),
            &LinkRequest::default(),
            None,
        );
        if last.is_err() {
            break;
        }
    }
    assert_eq!(last, Err(ENOSPC));
    assert!(w.ns.interfaces().len() <= 258);
}

#[test]
fn frames_that_nobody_takes_are_bounded() {
    let w = root();
    let other = w.ns.sibling(&vfs::userns::UserNs::default());
    let near = pair(&w.ns, &other);
    let up = LinkRequest {
        up: Some(true),
        ..LinkRequest::default()
    };
    w.ns.change_link(near, &up).unwrap();
    let far = other.device_by_name(b"far").unwrap();
    other.change_link(far, &up).unwrap();
    let i = w.ns.interface(near).unwrap();
    let frame = [&[0xff; 6][..], &i.mac, &[0x88, 0xb5], &[0; 1000]].concat();
    let started = Instant::now();
    let mut full = 0;
    for _ in 0..20_000 {
        match w.ns.send_frame(&i, 0, &frame) {
            Ok(()) => {}
            Err(e) => {
                assert_eq!(e, ENOBUFS);
                full += 1;
            }
        }
    }
    assert!(started.elapsed() < Duration::from_secs(20));
    // All that were taken arrive.
    let sent = w.ns.device_counts(near).tx_packets;
    // (With what the device says for itself: groups, neighbours.)
    assert!((20_000..20_010).contains(&(sent + full)), "{sent} {full}");
    until(|| other.device_counts(far).rx_packets >= sent);
}

#[test]
fn a_bridge_sends_each_frame_where_it_belongs() {
    let w = root();
    let bridge = w.ns.add_link(
        NewKind::Bridge,
        &named("br0"),
        &LinkRequest::default(),
        None,
    );
    let port = LinkRequest {
        up: Some(true),
        master: Some(bridge.unwrap()),
        ..LinkRequest::default()
    };
    let up = LinkRequest {
        up: Some(true),
        ..LinkRequest::default()
    };
    w.ns.change_link(bridge.unwrap(), &up).unwrap();
    let ends: Vec<_> = (0..3)
        .map(|n| {
            let ns = w.ns.sibling(&vfs::userns::UserNs::default());
            let far = LinkRequest {
                ns: Some(ns.clone()),
                up: Some(true),
                // Nothing is said of itself.
                link_local: Some(false),
                ..named("far")
            };
            let near = LinkRequest {
                link_local: Some(false),
                ..named(&format!("p{n}"))
            };
            let near = w.ns.add_link(NewKind::Veth, &near, &far, None).unwrap();
            w.ns.change_link(near, &port).unwrap();
            let index = ns.device_by_name(b"far").unwrap();
            (ns, index)
        })
        .collect();
    let mac = |n: usize| ends[n].0.interface(ends[n].1).unwrap().mac;
    let came = |n: usize| ends[n].0.device_counts(ends[n].1).rx_packets;
    let send = |from: usize, to: [u8; 6]| {
        let (ns, index) = &ends[from];
        let i = ns.interface(*index).unwrap();
        let frame = [&to[..], &i.mac, &[0x88, 0xb5], &[0; 50]].concat();
        ns.send_frame(&i, 0, &frame).unwrap();
    };
    // To all, which tells where 0 is; then to it alone.
    let before = [came(0), came(1), came(2)];
    send(0, [0xff; 6]);
    until(|| came(1) > before[1] && came(2) > before[2]);
    let quiet = came(2);
    send(1, mac(0));
    until(|| came(0) > before[0]);
    assert_eq!(came(2), quiet);
}

proptest::proptest! {
    /// Whatever a program says to netlink is answered or not, and breaks nothing.
    #[test]
    fn any_request_is_survived(
        kind in 16u16..36,
        flags in 0u16..0x1000,
        mut body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120),
        small in proptest::collection::vec(0u8..24, 120),
        mask in proptest::prelude::any::<u64>(),
    ) {
        // Many bytes are small numbers, as lengths and kinds of attributes are.
        for (i, b) in body.iter_mut().enumerate() {
            if mask >> (i % 64) & 1 == 1 {
                *b = small[i];
            }
        }
        let w = root();
        let s = w.socket(AF_NETLINK, SOCK_RAW);
        let mut v = ((16 + body.len()) as u32).to_le_bytes().to_vec();
        v.extend_from_slice(&kind.to_le_bytes());
        v.extend_from_slice(&(flags | 5).to_le_bytes());
        v.extend_from_slice(&[0; 8]);
        v.extend_from_slice(&body);
        let _ = w.send(&s, &v);
        let _ = receive(&s, 9000, 0);
    }
}
