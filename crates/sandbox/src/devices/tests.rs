//! In network namespaces of their own: `outside`, and what is taken over, joined by a pair of
//! devices. As root, where there is an ip(8); else each says that it was skipped.

use super::*;
use hostcall::{HostFd, path, start as host};
use netstack::setup::{Address, Device, Neighbour, Route, RouteKind};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

const SETUP: &str = "
    ip link set lo up
    ip link add name eth0 index 7 mtu 1400 address 02:00:00:00:00:02 type veth \
        peer name out mtu 1400 netns OUTSIDE
    ip link set eth0 up
    ip addr add 10.1.0.2/24 brd + dev eth0
    ip addr add 10.1.0.3/24 brd + dev eth0
    ip addr add 2001:db8::2/64 dev eth0 nodad
    ip route add default via 10.1.0.1
    ip route add 10.7.0.0/16 via 10.1.0.9 src 10.1.0.3 metric 30 mtu 1300
    ip route add blackhole 10.8.0.0/16
    ip route add default via fe80::1 dev eth0 metric 99
    ip route add 10.9.0.0/16 via 10.1.0.1 table 100
    ip neigh add 10.1.0.77 lladdr 02:00:00:00:00:77 dev eth0 nud permanent
    ip link add name idle type veth peer name unused
";

/// Runs commands in this thread's network namespace; what they print.
fn sh(text: &str) -> String {
    let ran = Command::new("sh").args(["-ec", text]).output().unwrap();
    assert!(ran.status.success(), "{text}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// All that there is, but for times, and how an address was checked.
fn state() -> Vec<String> {
    // Link-local addresses are checked for a moment.
    sh("while ip addr | grep -q tentative; do sleep 0.05; done");
    let text = sh(
        "ip -o addr | sed 's/ *valid_lft.*//; s/ nodad//; s/^[0-9]*: //'; ip route show table all; \
                   ip -6 route show table all; ip neigh show nud permanent",
    );
    let mut lines: Vec<String> = text.lines().map(|l| l.trim_end().to_owned()).collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Runs a test in the namespace that is to be taken over; it gets the one outside.
fn between(test: impl FnOnce(&Place) + Send + 'static) {
    let run = move || {
        if let Err(e) = host::unshare(libc::CLONE_NEWNET) {
            eprintln!("SKIPPED, not tested: no network namespace can be made ({e})");
            return;
        }
        if Command::new("ip").arg("-V").output().is_err() {
            eprintln!("SKIPPED, not tested: there is no ip(8)");
            return;
        }
        let outside = this_namespace();
        host::unshare(libc::CLONE_NEWNET).unwrap();
        let file = format!("/proc/{}/fd/{}", std::process::id(), outside.raw());
        sh(&SETUP.replace("OUTSIDE", &file));
        let outside = Place::File(outside);
        let up = "ip link set out up; ip addr add 10.1.0.1/24 dev out; \
                  ip addr add 2001:db8::1/64 dev out nodad; \
                  for ip in 10.1.0.2 2001:db8::2; do \
                    ip neigh add $ip lladdr 02:00:00:00:00:02 dev out nud permanent; done";
        inside(&outside, || sh(up)).unwrap().unwrap();
        // Link-local addresses come a moment after the carrier.
        let ready =
            |d| format!("until ip -6 addr show dev {d} | grep -q fe80; do sleep 0.05; done");
        inside(&outside, || sh(&ready("out"))).unwrap().unwrap();
        sh(&ready("eth0"));
        state();
        test(&outside);
    };
    std::thread::spawn(run).join().unwrap();
}

fn this_namespace() -> HostFd {
    path::openat2(libc::AT_FDCWD, c"/proc/thread-self/ns/net", 0, 0, 0).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What becomes of a connection from outside to a port that nobody listens on.
fn connect(outside: &Place, to: &str, patience: Duration) -> ErrorKind {
    let to = SocketAddr::new(ip(to), 81);
    let connect = || TcpStream::connect_timeout(&to, patience);
    inside(outside, connect)
        .unwrap()
        .unwrap()
        .unwrap_err()
        .kind()
}

/// Takes over; what was kept comes by way of JSON.
fn take() -> (OwnedDevices, Kept) {
    let mut kept = None;
    let outcome = take_over::<Error>(|k| {
        kept = Some(serde_json::to_vec(k).unwrap());
        Ok(())
    });
    let Ok(Outcome::Taken(taken)) = outcome else {
        panic!("{outcome:?}");
    };
    (*taken, serde_json::from_slice(&kept.unwrap()).unwrap())
}

#[test]
fn all_comes_over() {
    between(|_| {
        let (taken, _) = take();
        let s = taken.setup;
        assert_eq!((s.devices.len(), taken.links.len()), (1, 1));
        let d = &s.devices[0];
        assert_eq!((d.name.as_str(), d.index, d.mtu), ("eth0", 7, 1400));
        assert_eq!(d.mac, [2, 0, 0, 0, 0, 2]);
        assert!(d.gso_max >= 65536 && d.flags & libc::IFF_UP as u32 != 0);
        let address = |text, prefix, broadcast: Option<&str>, scope| Address {
            ip: ip(text),
            prefix,
            broadcast: broadcast.map(ip),
            scope,
        };
        assert_eq!(
            d.addresses,
            [
                address("10.1.0.2", 24, Some("10.1.0.255"), 0),
                address("10.1.0.3", 24, Some("10.1.0.255"), 0),
                address("2001:db8::2", 64, None, 0),
                address("fe80::ff:fe00:2", 64, None, 253),
            ]
        );
        let route = |network, prefix, gateway: Option<&str>, metric| Route {
            network: ip(network),
            prefix,
            gateway: gateway.map(ip),
            device: 7,
            source: None,
            metric,
            mtu: 0,
            kind: RouteKind::Unicast,
        };
        for r in [
            route("0.0.0.0", 0, Some("10.1.0.1"), 0),
            Route {
                source: Some(ip("10.1.0.2")),
                ..route("10.1.0.0", 24, None, 0)
            },
            Route {
                source: Some(ip("10.1.0.3")),
                mtu: 1300,
                ..route("10.7.0.0", 16, Some("10.1.0.9"), 30)
            },
            Route {
                kind: RouteKind::Blackhole,
                device: 0,
                ..route("10.8.0.0", 16, None, 0)
            },
            route("::", 0, Some("fe80::1"), 99),
            route("2001:db8::", 64, None, 256),
            route("fe80::", 64, None, 256),
        ] {
            assert!(s.routes.contains(&r), "{r:?} is not in {:#?}", s.routes);
        }
        assert_eq!(s.routes.len(), 7, "{:#?}", s.routes);
        let n = Neighbour {
            device: 7,
            ip: ip("10.1.0.77"),
            mac: [2, 0, 0, 0, 0, 0x77],
        };
        assert_eq!(s.neighbours, [n]);
        assert_eq!(taken.warnings.len(), 1, "{:?}", taken.warnings);
    });
}

#[test]
fn the_host_answers_nothing() {
    between(|outside| {
        const OURS: [&str; 2] = ["10.1.0.2", "2001:db8::2"];
        // An answer may wait for neighbours to be found, and a first packet be lost meanwhile.
        const LONG: Duration = Duration::from_secs(10);
        const SHORT: Duration = Duration::from_millis(300);
        for a in OURS {
            let told = connect(outside, a, LONG);
            assert_eq!(told, ErrorKind::ConnectionRefused, "{a}");
        }
        let (taken, kept) = take();
        assert!(!sh("ip -o addr show dev eth0").contains("inet"));
        for a in OURS {
            assert_eq!(connect(outside, a, SHORT), ErrorKind::TimedOut, "{a}");
        }
        // 10.1.0.3 is no neighbour that was set: it is asked for, and nobody answers.
        let asked = connect(outside, "10.1.0.3", SHORT);
        assert!(matches!(
            asked,
            ErrorKind::TimedOut | ErrorKind::HostUnreachable
        ));
        let told = inside(outside, || sh("ip neigh show 10.1.0.3")).unwrap();
        assert!(!told.unwrap().contains("lladdr"));
        // All of it came in by the socket.
        let (mut header, mut buf) = ([0; 10], vec![0; 70_000]);
        let mut kinds = std::collections::BTreeSet::new();
        let fd = taken.links[0].fd.raw();
        let has_one = || {
            let (events, revents) = (libc::POLLIN, 0);
            let poll = &mut [libc::pollfd {
                fd,
                events,
                revents,
            }];
            hostcall::file::poll(poll, 100) == Ok(1)
        };
        while has_one() && hostcall::packet::receive(fd, &mut header, &mut buf).is_ok() {
            kinds.insert(u16::from_be_bytes([buf[12], buf[13]]));
        }
        let all = [0x0800, 0x0806, 0x86dd];
        assert!(all.iter().all(|k| kinds.contains(k)), "{kinds:x?}");
        drop(taken);
        kept.put_back().unwrap();
        for a in OURS {
            let told = connect(outside, a, LONG);
            assert_eq!(told, ErrorKind::ConnectionRefused, "{a}");
        }
    });
}

#[test]
fn all_is_put_back() {
    between(|_| {
        let before = state();
        for _ in 0..2 {
            let (taken, kept) = take();
            assert_ne!(state(), before);
            drop(taken);
            kept.put_back().unwrap();
            assert_eq!(state(), before);
        }
        // What is there already is no obstacle.
        let (_, kept) = take();
        sh("ip addr add 10.1.0.2/24 brd + dev eth0; ip route add default via 10.1.0.1");
        kept.put_back().unwrap();
        assert_eq!(state(), before);
        // Nor is a device that is gone; another namespace is one.
        sh("ip link del eth0");
        kept.put_back().unwrap();
        host::unshare(libc::CLONE_NEWNET).unwrap();
        assert!(kept.put_back().is_err());
    });
}

/// Looks again; what was handed over, if anything. What is kept comes by way of JSON.
fn look(saved: &RefCell<Kept>) -> Option<(Vec<u32>, Setup)> {
    let mut told = None;
    let done = look_with(saved, |c| {
        told = Some((c.there.iter().map(|d| d.0).collect(), c.setup.clone()));
        Ok(())
    });
    done.unwrap();
    told
}

fn look_with(
    saved: &RefCell<Kept>,
    hand_over: impl FnOnce(&Change) -> Result<(), Error>,
) -> Result<(), Error> {
    let kept = saved.borrow().clone();
    let keep = |k: &Kept| {
        let text = serde_json::to_vec(k).unwrap();
        *saved.borrow_mut() = serde_json::from_slice(&text).unwrap();
        Ok(())
    };
    refresh(kept, keep, hand_over)
}

/// A second device, and more on the first.
const COMES: &str = "ip link add eth1 index 9 mtu 1300 type veth peer name peer1; ip link set eth1 up; \
    ip addr add 10.2.0.2/24 dev eth1; ip route add 10.3.0.0/16 via 10.2.0.1; \
    ip addr add 10.1.0.9/24 dev eth0; ip link set eth0 mtu 1300; \
    ip neigh add 10.2.0.77 lladdr 02:00:00:00:00:77 dev eth1 nud permanent";
const LEFT: &str = "ip -o addr show scope global; ip route show type unicast";

#[test]
fn what_changes_is_found() {
    between(|_| {
        let saved = RefCell::new(take().1);
        assert!(look(&saved).is_none());
        sh(COMES);
        let (there, new) = look(&saved).unwrap();
        assert_eq!(there, [7]);
        let of = |d: &Device| (d.index, d.mtu, d.addresses[0].ip);
        let devices: Vec<_> = new.devices.iter().map(of).collect();
        assert_eq!(
            devices,
            [(7, 1300, ip("10.1.0.9")), (9, 1300, ip("10.2.0.2"))]
        );
        let to = |r: &Route| (r.network, r.device);
        let ways: Vec<_> = new.routes.iter().map(to).collect();
        for way in [("10.1.0.0", 7), ("10.2.0.0", 9), ("10.3.0.0", 9)] {
            assert!(ways.contains(&(ip(way.0), way.1)), "{ways:?}");
        }
        // The blackhole was told of before.
        assert!(!ways.contains(&(ip("10.8.0.0"), 0)), "{ways:?}");
        assert_eq!(new.neighbours.len(), 1);
        assert_eq!(sh(LEFT), "");
        assert!(look(&saved).is_none());
        sh("ip link del eth1");
        assert_eq!(look(&saved).unwrap().0, [7]);
        assert!(look(&saved).is_none());
        saved.borrow().put_back().unwrap();
        let back = sh(LEFT);
        for word in ["10.1.0.2/24", "10.1.0.9/24", "default via 10.1.0.1"] {
            assert!(back.contains(word), "{back}");
        }
        assert!(!back.contains("10.2.0"), "{back}");
    });
}

#[test]
fn devices_that_come_first_are_taken_by_the_same_way() {
    between(|_| {
        let saved = RefCell::new(Kept::nothing().unwrap());
        let before = state();
        look_with(&saved, |_| Err(Error::step("say no", abi::errno::EIO))).unwrap_err();
        assert_eq!(state(), before);
        let (there, new) = look(&saved).unwrap();
        assert_eq!((there, new.devices.len()), (vec![], 1));
        assert_eq!(sh(LEFT), "");
        assert!(look(&saved).is_none());
        saved.borrow().put_back().unwrap();
        assert_eq!(state(), before);
    });
}

#[test]
fn what_is_not_handed_over_is_the_hosts_again() {
    between(|_| {
        let saved = RefCell::new(take().1);
        sh(COMES);
        let (changed, before) = (state(), saved.borrow().clone());
        let refused = |_: &Change| Err(Error::step("say no", abi::errno::EIO));
        look_with(&saved, refused).unwrap_err();
        assert_eq!(state(), changed);
        assert_eq!(*saved.borrow(), before);
        // Killed before it has the answer.
        let written = RefCell::new(None);
        look_with(&saved, |_| {
            *written.borrow_mut() = Some(saved.borrow().clone());
            Ok(())
        })
        .unwrap();
        let killed = RefCell::new(written.take().unwrap());
        assert_eq!(sh(LEFT), "");
        // All is given back ...
        killed.borrow().put_back().unwrap();
        let back = sh(LEFT);
        for word in ["10.1.0.2/24", "10.1.0.9/24", "10.2.0.2/24", "10.3.0.0/16"] {
            assert!(back.contains(word), "{back}");
        }
        killed
            .borrow()
            .clear(&mut Rtnetlink::open().unwrap(), &mut Vec::new())
            .unwrap();
        // ... or found again.
        let (there, again) = look(&killed).unwrap();
        assert_eq!((there, again.devices.len()), (vec![7], 2));
        assert_eq!(sh(LEFT), "");
        assert!(look(&killed).is_none());
    });
}

#[test]
fn where_it_is_refused() {
    between(|outside| {
        let before = state();
        let stopped = take_over::<Error>(|_| Err(Error::NoDescriptors));
        assert!(matches!(stopped, Err(Error::NoDescriptors)));
        assert_eq!(state(), before);
        let lo = || {
            host::unshare(libc::CLONE_NEWNET).unwrap();
            take_over::<Error>(|_| Ok(()))
        };
        let nothing = inside(outside, lo).unwrap().unwrap();
        assert!(matches!(nothing, Ok(Outcome::Nothing)), "{nothing:?}");
        // Here already.
        let here = inside(&Place::File(this_namespace()), || ());
        assert!(matches!(here, Err(Error::HostsNetwork)), "{here:?}");
        const CAP_NET_RAW: u64 = 1 << 13;
        for rights in [CAP_NET_RAW, 0] {
            host::set_capabilities(rights).unwrap();
            let not = take_over::<Error>(|_| panic!("nothing is to be kept"));
            assert!(matches!(not, Ok(Outcome::NotAllowed)), "{not:?}");
            let no_way = inside(outside, || ());
            assert!(matches!(no_way, Ok(None)), "{no_way:?}");
        }
        assert_eq!(state(), before);
    });
}

#[test]
fn never_the_initial_namespace() {
    if !namespace::is_initial().unwrap() {
        eprintln!("SKIPPED, not tested: this is not the initial network namespace");
        return;
    }
    let refused = take_over::<Error>(|_| panic!("nothing is to be kept"));
    assert!(matches!(refused, Err(Error::HostsNetwork)), "{refused:?}");
}
