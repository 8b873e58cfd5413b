use super::*;
use crate::devices::{Address, How, LinkRequest, NewKind};
use crate::sys::{AF_INET, SOCK_STREAM};
use crate::testing::World;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use vfs::Credentials;

fn until(what: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !what() {
        assert!(std::time::Instant::now() < end, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two namespaces that a veth joins, at 10.1.0.1 and 10.1.0.2.
fn two_worlds() -> [World; 2] {
    let mut here = World::new();
    here.cred = Arc::new(Credentials::root());
    let mut there = World::new();
    (there.ns, there.cred) = (
        here.ns.sibling(&vfs::userns::UserNs::default()),
        here.cred.clone(),
    );
    let end = |name: &str, ns| LinkRequest {
        name: Some(name.into()),
        ns,
        up: Some(true),
        ..LinkRequest::default()
    };
    let (near, far) = (end("near", None), end("far", Some(there.ns.clone())));
    here.ns.add_link(NewKind::Veth, &near, &far, None).unwrap();
    for (w, name, last) in [(&here, "near", 1), (&there, "far", 2)] {
        let index = w.ns.device_by_name(name.as_bytes()).unwrap();
        let new = How {
            create: true,
            ..How::default()
        };
        let a = Address::new(IpAddr::from([10, 1, 0, last]), 24);
        w.ns.add_address(index, a, new, None).unwrap();
    }
    [here, there]
}

/// What comes while somebody looks at the connection is not left behind: its peer has no reason to
/// say it again.
#[test]
fn what_comes_while_somebody_looks_is_taken() {
    let [here, there] = two_worlds();
    let at = |last: u8, port| Endpoint {
        ip: IpAddr::from([10, 1, 0, last]),
        port,
    };
    let l = there.socket(AF_INET, SOCK_STREAM);
    l.bind(&there.who(), &at(2, 80).encode(AF_INET)).unwrap();
    l.listen(&there.who(), 1).unwrap();
    let c = here.socket(AF_INET, SOCK_STREAM);
    c.bind(&here.who(), &at(1, 4000).encode(AF_INET)).unwrap();
    here.connect(&c, &at(2, 80).encode(AF_INET)).unwrap_err();
    until(|| crate::testing::poll(&c).contains(Events::OUT));
    until(|| crate::testing::poll(&l).contains(Events::IN));
    let peer = l.accept().unwrap();
    let pair = Pair {
        local: SocketAddr::from(([10, 1, 0, 1], 4000)),
        remote: SocketAddr::from(([10, 1, 0, 2], 80)),
    };
    let remote = here.ns.stack().unwrap().connections.get(&pair).unwrap();
    let is_left = || !remote.backlog.lock().all.is_empty();
    for _ in 0..20 {
        remote.look(|s| {
            // As a send does, but nothing is left to a timer.
            let fill = |to: &mut [u8]| {
                to[..2].copy_from_slice(b"it");
                Ok::<_, ()>(2)
            };
            assert_eq!(s.engine.write(fill), Ok(2));
            let mut out = Out {
                stack: &remote.stack,
                pair,
                path: &s.path,
                marks: &s.marks,
                now: now(),
            };
            s.told |= s.engine.transmit(now(), &mut out);
            until(is_left);
        });
        until(|| !is_left());
        assert_eq!(remote.unsent(), 0);
        assert_eq!(crate::testing::bytes(&peer, 100).unwrap(), b"it");
    }
}
