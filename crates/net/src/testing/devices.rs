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

/// A device of the host's, with an address.
fn of_host(index: u32, name: &str, ip: &str, mtu: u32) -> netstack::setup::Device {
    netstack::setup::Device {
        name: name.into(),
        index,
        mac: [2, 0, 0, 0, 0, index as u8],
        // IFF_UP, _BROADCAST, _RUNNING, _MULTICAST.
        flags: 0x1043,
        mtu,
        gso_max: 65_536,
        addresses: vec![netstack::setup::Address {
            ip: ip.parse().unwrap(),
            prefix: 24,
            broadcast: None,
            scope: 0,
        }],
        conf: Default::default(),
    }
}

fn by_gateway(device: u32, via: &str) -> netstack::setup::Route {
    netstack::setup::Route {
        network: "0.0.0.0".parse().unwrap(),
        prefix: 0,
        gateway: Some(via.parse().unwrap()),
        device,
        source: None,
        metric: 0,
        mtu: 0,
        kind: Default::default(),
    }
}

#[test]
fn devices_of_the_host_come_and_go() {
    use crate::devices::{Bells, Change, Gate, Link, Setup};
    let w = root();
    w.ns.set_bells(Bells::new().unwrap());
    // A program has the name and the index.
    let own = LinkRequest {
        index: 7,
        ..named("eth7")
    };
    let none = LinkRequest::default();
    w.ns.add_link(NewKind::Dummy, &own, &none, None).unwrap();
    let mut far = Vec::new();
    type Devices<'a> = &'a [netstack::setup::Device];
    let mut change = |there: Devices<'_>, devices: Devices<'_>, routes| {
        let mut link = |_| {
            let (ours, theirs) = hostcall::sock::seqpacket_pair().unwrap();
            far.push(theirs);
            Link {
                fd: ours,
                receive_buffer: 0,
            }
        };
        w.ns.change_devices(Change {
            there: there.iter().map(|d| (d.index, d.mac)).collect(),
            setup: Setup {
                devices: devices.to_vec(),
                routes,
                ..Setup::default()
            },
            links: devices.iter().map(&mut link).collect(),
            names: None,
            gate: Gate::default(),
        })
    };
    let seen = |ip: &str| {
        let ip: std::net::IpAddr = ip.parse().unwrap();
        let has = |i: &crate::interface::Interface| i.addresses.iter().any(|a| a.0 == ip);
        w.ns.interfaces().into_iter().find(has)
    };
    let ways = || -> Vec<(i32, Option<std::net::IpAddr>)> {
        let t = w.ns.table.lock();
        t.routes.iter().map(|(r, _)| (r.device, r.via)).collect()
    };
    let (a, b) = (
        of_host(7, "eth7", "10.7.0.2", 1500),
        of_host(8, "eth8", "10.8.0.2", 1400),
    );
    let both = [a.clone(), b.clone()];
    change(&[], &both, vec![by_gateway(7, "10.7.0.1")]).unwrap();
    let first = seen("10.7.0.2").unwrap();
    assert!(first.index != 7 && first.name == "eth0", "{first:?}");
    let second = seen("10.8.0.2").unwrap();
    assert_eq!(
        (second.index, &second.name[..], second.mtu),
        (8, "eth8", 1400)
    );
    assert_eq!(ways(), [(first.index, Some("10.7.0.1".parse().unwrap()))]);
    // What is told twice is there once.
    change(
        &both,
        std::slice::from_ref(&a),
        vec![by_gateway(7, "10.7.0.1")],
    )
    .unwrap();
    assert_eq!(ways().len(), 1);
    // Another address, another MTU, another gateway.
    let more = of_host(8, "eth8", "10.9.0.2", 1300);
    change(&both, &[more], vec![by_gateway(8, "10.8.0.1")]).unwrap();
    assert_eq!(seen("10.9.0.2").unwrap().mtu, 1300);
    assert!(ways().contains(&(8, Some("10.8.0.1".parse().unwrap()))));
    assert!(!ways().iter().any(|w| w.0 == first.index), "{:?}", ways());
    assert!(w.ns.is_local("10.8.0.2".parse().unwrap()));
    // One that goes is not told of any more.
    change(std::slice::from_ref(&a), &[], Vec::new()).unwrap();
    assert!(seen("10.8.0.2").is_none() && ways().is_empty());
    assert!(!w.ns.is_local("10.8.0.2".parse().unwrap()));
    assert!(seen("10.7.0.2").is_some());
    // Too many: none of them.
    let many: Vec<_> = (100..140)
        .map(|n| of_host(n, &format!("m{n}"), &format!("10.{n}.0.2"), 1500))
        .collect();
    let there = std::slice::from_ref(&a);
    assert_eq!(change(there, &many, Vec::new()), Err(ENOSPC));
    assert!(seen("10.100.0.2").is_none() && seen("10.7.0.2").is_some());
    // What was never told of is not there.
    assert_eq!(
        change(&both, std::slice::from_ref(&b), Vec::new()),
        Err(ENODEV)
    );
    // Another card by the same index is another device; the old one's addresses go.
    let mut other = of_host(7, "eth7", "10.7.0.9", 1500);
    other.mac[5] ^= 1;
    change(&[], &[other], Vec::new()).unwrap();
    assert!(seen("10.7.0.2").is_none() && seen("10.7.0.9").is_some());
}
