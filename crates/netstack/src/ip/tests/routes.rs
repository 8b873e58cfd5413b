//! Ways and sources.

use super::*;

fn host(change: impl FnOnce(&mut Setup)) -> Host {
    let mut s = setup(A_MAC, 1);
    change(&mut s);
    Host::quiet(&s)
}

#[test]
fn the_longest_prefix_and_the_lowest_metric_win() {
    let h = host(|s| {
        let mut second = route("10.1.0.0", 16, Some("10.0.0.3"));
        second.metric = 20;
        s.routes.push(second);
        let mut first = route("10.1.0.0", 16, Some("10.0.0.2"));
        first.metric = 10;
        s.routes.push(first);
        s.routes.push(route("10.1.2.0", 24, Some("10.0.0.4")));
    });
    let next = |to: &str| h.path(to).next_hop;
    assert_eq!(next("10.1.1.1"), ip("10.0.0.2"));
    assert_eq!(next("10.1.2.3"), ip("10.0.0.4"));
    assert_eq!(next("10.0.0.7"), ip("10.0.0.7"));
    assert_eq!(next("8.8.8.8"), ip("10.0.0.254"));
    assert_eq!(h.path("8.8.8.8").gateway, Gateway::Yes);
    assert_eq!(next("fe80::77"), ip("fe80::77"));
}

#[test]
fn refusals_are_linuxs() {
    let h = host(|s| {
        for (net, kind) in [
            ("10.1.0.0", RouteKind::Blackhole),
            ("10.2.0.0", RouteKind::Unreachable),
            ("10.3.0.0", RouteKind::Prohibit),
        ] {
            let mut r = route(net, 16, None);
            r.kind = kind;
            s.routes.push(r);
        }
    });
    let path = |to: &str| h.ip.path(ip(to), None, None).map(|p| p.next_hop);
    assert_eq!(path("10.1.0.1"), Err(NoRoute::Blackhole));
    assert_eq!(path("10.2.0.1"), Err(NoRoute::Host));
    assert_eq!(path("10.3.0.1"), Err(NoRoute::Prohibited));
    assert_eq!(path("2001:db9::1"), Err(NoRoute::Network));
    assert_eq!(path("10.0.0.1"), Err(NoRoute::Local));
    assert_eq!(path("127.0.0.1"), Err(NoRoute::Network));
    assert_eq!(path("::ffff:10.0.0.2"), Err(NoRoute::Network));
    let from = Some(ip("10.9.9.9"));
    assert_eq!(h.ip.path(ip("10.0.0.2"), from, None), Err(NoRoute::Source));
    assert_eq!(
        h.ip.path(ip("10.0.0.2"), None, Some(99)),
        Err(NoRoute::Device)
    );
}

#[test]
fn multicast_and_broadcast_find_a_device() {
    let h = host(|s| s.routes.clear());
    let p = h.path("224.0.0.251");
    assert_eq!((p.cast, p.source), (Cast::Multicast, ip("10.0.0.1")));
    let p = h.path("ff02::fb");
    assert_eq!((p.cast, p.source), (Cast::Multicast, ip("fe80::1")));
    assert_eq!(h.path("255.255.255.255").cast, Cast::Broadcast);
    // A device alone is a way for IPv4 (SO_BINDTODEVICE).
    assert!(h.ip.path(ip("9.9.9.9"), None, Some(INDEX)).is_ok());
    assert!(h.ip.is_broadcast(ip("10.0.0.255")));
    assert!(!h.ip.is_broadcast(ip("10.0.0.254")));
}

#[test]
fn sources_are_rfc_6724s() {
    let h = host(|s| {
        let a = &mut s.devices[0].addresses;
        a.push(address("fd00::1", 64));
        a.push(address("2001:db8:5::1", 64));
        s.routes.push(route("::", 0, Some("fe80::ff")));
    });
    let source = |to: &str| h.path(to).source;
    assert_eq!(source("2001:db8:5::9"), ip("2001:db8:5::1"));
    assert_eq!(source("2001:db8::9"), ip("2001:db8::1"));
    assert_eq!(source("fd00:1::9"), ip("fd00::1"));
    assert_eq!(source("fe80::9"), ip("fe80::1"));
    assert_eq!(source("ff05::9"), ip("2001:db8::1"));
}

#[test]
fn a_route_names_source_and_mtu() {
    let h = host(|s| {
        s.devices[0].addresses.push(address("10.0.0.50", 24));
        let mut r = route("10.1.0.0", 16, Some("10.0.0.254"));
        r.source = Some(ip("10.0.0.50"));
        r.mtu = 1280;
        s.routes.push(r);
    });
    let p = h.path("10.1.2.3");
    assert_eq!((p.source, p.mtu, p.link_mtu), (ip("10.0.0.50"), 1280, 1500));
    assert_eq!(h.path("10.2.2.3").source, ip("10.0.0.1"));
}

#[test]
fn another_setup_takes_the_place_of_the_first() {
    let h = host(|_| {});
    let old = h.path("10.0.0.2");
    let mut s = setup(A_MAC, 5);
    s.devices[0].index = INDEX + 1;
    for r in &mut s.routes {
        r.device = INDEX + 1;
    }
    h.ip.set(&s);
    assert_ne!(h.ip.generation(), old.generation);
    let p = pair("10.0.0.1", "10.0.0.2");
    let sent =
        h.ip.send_udp(after(1.0), &old, p, &[b"x"], None, &Marks::default());
    assert_eq!(sent, Err(SendError::Device));
    assert_eq!(h.path("10.0.0.2").source, ip("10.0.0.5"));
    assert_eq!(h.ip.devices()[0].index, INDEX + 1);
    assert_eq!(h.ip.routes().len(), 4);
}

#[test]
fn what_is_learnt_of_a_path_holds_for_ten_minutes() {
    let h = host(|_| {});
    let before = h.ip.generation();
    h.ip.path_mtu_learnt(after(1.0), ip("8.8.8.8"), 1300);
    assert_ne!(h.ip.generation(), before);
    let p = h.path("8.8.8.8");
    assert_eq!((p.mtu, p.link_mtu), (1300, 1500));
    assert_eq!(p.expires, Some(after(601.0)));
    assert_eq!(h.path("8.8.4.4").mtu, 1500);
    h.ip.timer(after(602.0), &h.seen);
    assert_eq!(h.path("8.8.8.8").mtu, 1500);
}

#[test]
fn addresses_of_a_link_are_its_own() {
    let h = host(|s| {
        let mut second = device([2, 0, 0, 0, 0, 0x1a], vec![address("fe80::a", 64)]);
        second.addresses.push(address("10.9.0.1", 24));
        second.index = INDEX + 1;
        s.devices.push(second);
    });
    let by = |n| {
        h.ip.path(ip("fe80::a"), None, Some(INDEX + n))
            .map(|p| p.source)
    };
    assert_eq!(by(0), Ok(ip("fe80::1")));
    assert_eq!(by(1), Err(NoRoute::Local));
    // Any other address is the host's on all (RFC 1122's weak model), in both directions.
    let other = Host::quiet(&setup(B_MAC, 2));
    let p = pair("10.0.0.2", "10.9.0.1");
    let mut path = other.path("10.0.0.1");
    path.to = ip("10.9.0.1");
    let marks = Marks::default();
    for local in ["10.0.0.2", "fe80::2"] {
        let v4 = ip(local).is_ipv4();
        let (to, mut path) = match v4 {
            true => ("10.9.0.1", path),
            false => ("fe80::a", other.path("fe80::1")),
        };
        path.next_hop = if v4 { ip("10.0.0.1") } else { ip("fe80::1") };
        let p = if v4 { p } else { pair(local, to) };
        let sent = other
            .ip
            .send_udp(after(1.0), &path, p, &[b"x"], None, &marks);
        assert_eq!(sent, Ok(Sent::Yes));
        loop {
            let (a, b) = (other.wire.take(), h.wire.take());
            if a.is_empty() && b.is_empty() {
                break;
            }
            a.iter().for_each(|(m, f)| h.receive(after(1.0), m, f));
            b.iter().for_each(|(m, f)| other.receive(after(1.0), m, f));
        }
        assert_eq!(h.seen.take().len(), usize::from(v4), "{to}");
    }
}
