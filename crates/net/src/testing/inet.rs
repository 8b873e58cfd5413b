use super::*;
use crate::addr::Endpoint;
use abi::errno::*;

const SO_ERROR: i32 = 4;

fn v4(a: &str, port: u16) -> Vec<u8> {
    Endpoint::new(a.parse().unwrap(), port).encode(AF_INET)
}
fn v6(a: &str, port: u16) -> Vec<u8> {
    let mut v = Endpoint {
        ip: a.parse().unwrap(),
        port,
    }
    .encode(AF_INET6);
    if let Ok(std::net::IpAddr::V6(a)) = a.parse() {
        v[8..24].copy_from_slice(&a.octets());
    }
    v
}
fn port_of(s: &Socket) -> u16 {
    let n = s.local_name().unwrap();
    u16::from_be_bytes([n[2], n[3]])
}
fn listener(w: &World, backlog: i32) -> (Arc<Socket>, Vec<u8>) {
    let l = w.socket(AF_INET, SOCK_STREAM);
    l.bind(&w.who(), &v4("127.0.0.1", 0)).unwrap();
    l.listen(&w.who(), backlog).unwrap();
    let a = l.local_name().unwrap();
    (l, a)
}
pub fn connected(w: &World) -> (Arc<Socket>, Arc<Socket>) {
    let (l, a) = listener(w, 5);
    let c = w.socket(AF_INET, SOCK_STREAM);
    w.connect(&c, &a).unwrap();
    (c, l.accept().unwrap())
}

#[test]
fn streams_both_ways_with_half_close() {
    let w = World::new();
    let (c, s) = connected(&w);
    let text = w.ns.proc_net("tcp").unwrap();
    let want = format!(
        ": 0100007F:{:04X} 0100007F:{:04X} 01 ",
        port_of(&c),
        port_of(&s)
    );
    assert!(text.contains(&want), "{text}");
    assert_eq!(c.local_name(), s.peer_name());
    assert_eq!(c.peer_name(), s.local_name());
    assert_eq!(bytes(&s, 5), Err(EAGAIN));
    w.send(&c, b"hello").unwrap();
    assert_eq!(receive(&s, 9, MSG_PEEK).unwrap().0, b"hello");
    assert_eq!(bytes(&s, 2).unwrap(), b"he");
    c.shutdown(SHUT_WR).unwrap();
    assert_eq!(w.send(&c, b"x"), Err(EPIPE));
    assert!(poll(&s).contains(Events::RDHUP | Events::IN | Events::OUT));
    assert!(!poll(&s).contains(Events::HUP));
    assert_eq!(bytes(&s, 9).unwrap(), b"llo");
    assert_eq!(bytes(&s, 9).unwrap(), b"");
    w.send(&s, b"answer").unwrap();
    assert_eq!(bytes(&c, 9).unwrap(), b"answer");
    s.shutdown(SHUT_WR).unwrap();
    assert!(poll(&s).contains(Events::HUP));
    assert_eq!(bytes(&c, 9).unwrap(), b"");
}

#[test]
fn close_with_unread_bytes_resets() {
    let w = World::new();
    let (c, s) = connected(&w);
    w.send(&c, b"lost").unwrap();
    w.send(&s, b"kept").unwrap();
    drop(s);
    assert!(poll(&c).contains(Events::ERR | Events::HUP | Events::IN));
    assert_eq!(bytes(&c, 9).unwrap(), b"kept");
    assert_eq!(bytes(&c, 9), Err(ECONNRESET));
    assert_eq!(bytes(&c, 9).unwrap(), b"");
    assert_eq!(w.send(&c, b"x"), Err(EPIPE));
    assert_eq!(c.peer_name(), Err(ENOTCONN));
}

#[test]
fn writing_to_a_closed_peer() {
    let w = World::new();
    let (c, s) = connected(&w);
    drop(s);
    assert_eq!(bytes(&c, 9).unwrap(), b"");
    assert_eq!(w.send(&c, b"first is taken"), Ok(14));
    assert_eq!(int(&c, SOL_SOCKET, SO_ERROR), EPIPE.raw());
    assert_eq!(w.send(&c, b"x"), Err(EPIPE));
    assert_eq!(bytes(&c, 9).unwrap(), b"");
    // SO_LINGER with zero resets even when all was read.
    let (c, s) = connected(&w);
    let linger = [1, 0, 0, 0, 0, 0, 0, 0];
    s.set_option(&w.cred, SOL_SOCKET, 13, &linger).unwrap();
    drop(s);
    assert_eq!(bytes(&c, 1), Err(ECONNRESET));
}

#[test]
fn refused_unreachable_and_in_progress() {
    let w = World::new();
    let c = w.socket(AF_INET, SOCK_STREAM);
    assert_eq!(poll(&c), Events::OUT | Events::HUP);
    assert_eq!(w.connect(&c, &v4("127.0.0.1", 9)), Err(ECONNREFUSED));
    assert_eq!(w.connect(&c, &v4("10.0.0.1", 9)), Err(ENETUNREACH));
    let e = c.connect(&w.who(), &v4("127.0.0.1", 9), Block::No);
    assert_eq!(e, Err(EINPROGRESS));
    assert!(poll(&c).contains(Events::ERR | Events::HUP | Events::OUT));
    assert_eq!(int(&c, SOL_SOCKET, SO_ERROR), ECONNREFUSED.raw());
    let (l, a) = listener(&w, 1);
    let c = w.socket(AF_INET, SOCK_STREAM);
    assert_eq!(c.connect(&w.who(), &a, Block::No), Err(EINPROGRESS));
    assert_eq!(poll(&c), Events::OUT);
    assert_eq!(int(&c, SOL_SOCKET, SO_ERROR), 0);
    assert_eq!(c.connect(&w.who(), &a, Block::No), Ok(()));
    assert_eq!(c.connect(&w.who(), &a, Block::No), Err(EISCONN));
    assert_eq!(int(&l, SOL_SOCKET, 30), 1);
    // Closing the listener resets what was not accepted.
    drop(l);
    assert_eq!(bytes(&c, 1), Err(ECONNRESET));
}

#[test]
fn connects_that_give_up_are_forgotten() {
    let w = World::new();
    let (l, a) = listener(&w, 0);
    let first = w.socket(AF_INET, SOCK_STREAM);
    assert_eq!(w.connect(&first, &a), Ok(()));
    let waits = |c: &Arc<Socket>| assert_eq!(w.connect(c, &a), Err(EAGAIN));
    for _ in 0..10 {
        let gone = w.socket(AF_INET, SOCK_STREAM);
        waits(&gone);
    }
    let late = w.socket(AF_INET, SOCK_STREAM);
    waits(&late);
    // One accept makes room for one who is still there.
    l.accept().unwrap();
    assert_eq!(poll(&late), Events::OUT);
    // A higher backlog makes room too.
    let later = w.socket(AF_INET, SOCK_STREAM);
    waits(&later);
    l.listen(&w.who(), 4).unwrap();
    assert_eq!(poll(&later), Events::OUT);
}

#[test]
fn a_full_backlog_makes_connects_wait() {
    let w = World::new();
    let (l, a) = listener(&w, 0);
    let c: Vec<_> = (0..3).map(|_| w.socket(AF_INET, SOCK_STREAM)).collect();
    assert_eq!(w.connect(&c[0], &a), Ok(()));
    assert_eq!(w.connect(&c[1], &a), Err(EAGAIN));
    assert_eq!(c[2].connect(&w.who(), &a, Block::No), Err(EINPROGRESS));
    assert_eq!(c[2].connect(&w.who(), &a, Block::No), Err(EALREADY));
    assert_eq!(w.send(&c[2], b"x"), Err(EAGAIN));
    assert_eq!(poll(&c[2]), Events::empty());
    l.accept().unwrap();
    assert_eq!(w.connect(&c[1], &a), Ok(()));
    l.accept().unwrap();
    assert_eq!(poll(&c[2]), Events::OUT);
    l.accept().unwrap();
    assert_eq!(l.accept().err(), Some(EAGAIN));
    // A waiting connect is refused when the listener goes.
    assert_eq!(w.connect(&w.socket(AF_INET, SOCK_STREAM), &a), Ok(()));
    let late = w.socket(AF_INET, SOCK_STREAM);
    assert_eq!(w.connect(&late, &a), Err(EAGAIN));
    drop(l);
    assert_eq!(w.connect(&late, &a), Err(ECONNREFUSED));
}

#[test]
fn bind_conflicts() {
    let w = World::new();
    let tcp = |family| w.socket(family, SOCK_STREAM);
    let bind = |s: &Socket, a: &[u8]| s.bind(&w.who(), a);
    let a = tcp(AF_INET);
    assert_eq!(bind(&a, &v4("127.0.0.1", 80)), Err(EACCES));
    assert_eq!(bind(&a, &v4("8.8.8.8", 8000)), Err(EADDRNOTAVAIL));
    assert_eq!(bind(&a, &v6("::1", 8000)), Err(EAFNOSUPPORT));
    bind(&a, &v4("0.0.0.0", 8000)).unwrap();
    assert_eq!(bind(&a, &v4("0.0.0.0", 8001)), Err(EINVAL));
    assert_eq!(bind(&tcp(AF_INET), &v4("127.0.0.1", 8000)), Err(EADDRINUSE));
    assert_eq!(bind(&tcp(AF_INET6), &v6("::", 8000)), Err(EADDRINUSE));
    assert_eq!(bind(&tcp(AF_INET6), &v6("::1", 8000)), Ok(()));
    let b = tcp(AF_INET6);
    w.set(&b, SOL_IPV6, 26, 1).unwrap();
    assert_eq!(bind(&b, &v6("::", 8000)), Ok(()));
    drop(a);
    assert_eq!(bind(&tcp(AF_INET), &v4("127.0.0.1", 8000)), Ok(()));
    // SO_REUSEADDR shares a port that nobody listens on; SO_REUSEPORT shares among listeners.
    let (c, d) = (tcp(AF_INET), tcp(AF_INET));
    for s in [&c, &d] {
        w.set(s, SOL_SOCKET, 2, 1).unwrap();
        bind(s, &v4("127.0.0.1", 8100)).unwrap();
    }
    c.listen(&w.who(), 1).unwrap();
    assert_eq!(d.listen(&w.who(), 1), Err(EADDRINUSE));
    let e = tcp(AF_INET);
    w.set(&e, SOL_SOCKET, 2, 1).unwrap();
    assert_eq!(bind(&e, &v4("127.0.0.1", 8100)), Err(EADDRINUSE));
    let (f, g) = (tcp(AF_INET), tcp(AF_INET));
    for s in [&f, &g] {
        w.set(s, SOL_SOCKET, 15, 1).unwrap();
        bind(s, &v4("127.0.0.1", 8200)).unwrap();
        s.listen(&w.who(), 5).unwrap();
    }
    for _ in 0..4 {
        w.connect(&tcp(AF_INET), &v4("127.0.0.1", 8200)).unwrap();
    }
    // By chance.
    let of = |s: &Socket| std::iter::from_fn(|| s.accept().ok()).count();
    assert_eq!(of(&f) + of(&g), 4);
}

#[test]
fn both_families() {
    let w = World::new();
    let l = w.socket(AF_INET6, SOCK_STREAM);
    l.bind(&w.who(), &v6("::", 0)).unwrap();
    l.listen(&w.who(), 5).unwrap();
    let port = port_of(&l);
    assert!(w.ns.local_ports().contains(port));
    let c = w.socket(AF_INET, SOCK_STREAM);
    w.connect(&c, &v4("0.0.0.0", port)).unwrap();
    let s = l.accept().unwrap();
    assert_eq!(
        &s.peer_name().unwrap()[8..24],
        &"::ffff:127.0.0.1"
            .parse::<std::net::Ipv6Addr>()
            .unwrap()
            .octets()
    );
    let c6 = w.socket(AF_INET6, SOCK_STREAM);
    w.connect(&c6, &v6("::", port)).unwrap();
    let s6 = l.accept().unwrap();
    assert_eq!(s6.local_name().unwrap(), v6("::1", port));
    let m = w.socket(AF_INET6, SOCK_STREAM);
    w.connect(&m, &v6("::ffff:127.0.0.1", port)).unwrap();
    l.accept().unwrap();
    w.send(&m, b"x").unwrap();
}

#[test]
fn a_full_window_stops_the_sender() {
    let w = World::new();
    let (c, s) = connected(&w);
    let big = vec![7; 1 << 20];
    let mut sent = 0;
    while let Ok(n) = w.send(&c, &big) {
        sent += n;
    }
    assert!((131_072..1 << 20).contains(&sent));
    assert!(!poll(&c).contains(Events::OUT));
    let mut got = 0;
    while let Ok(b) = bytes(&s, 50_000) {
        assert!(b.iter().all(|&x| x == 7));
        got += b.len();
    }
    assert_eq!(got, sent);
    assert!(poll(&c).contains(Events::OUT));
    assert_eq!(receive(&s, 5, MSG_TRUNC).err(), Some(EAGAIN));
    w.send(&c, b"0123456789").unwrap();
    assert_eq!(receive(&s, 5, MSG_TRUNC).unwrap().1.n, 5);
    assert_eq!(bytes(&s, 50).unwrap(), b"56789");
}

#[test]
fn options() {
    let w = World::new();
    let s = w.socket(AF_INET, SOCK_STREAM);
    w.set(&s, SOL_TCP, 1, 5).unwrap();
    assert_eq!(int(&s, SOL_TCP, 1), 1);
    assert_eq!(w.set(&s, SOL_TCP, 4, 0), Err(EINVAL));
    assert_eq!(w.set(&s, SOL_TCP, 99, 0), Err(ENOPROTOOPT));
    assert_eq!(w.set(&s, SOL_IPV6, 26, 0), Err(ENOPROTOOPT));
    assert_eq!(
        (
            int(&s, SOL_SOCKET, 3),
            int(&s, SOL_SOCKET, 39),
            int(&s, SOL_SOCKET, 38)
        ),
        (1, 2, 6)
    );
    w.set(&s, SOL_SOCKET, 8, 5000).unwrap();
    assert_eq!(int(&s, SOL_SOCKET, 8), 10000);
    assert_eq!(w.set(&s, SOL_SOCKET, 33, 5000), Err(EPERM));
    let mut tv = [0; 16];
    tv[0] = 2;
    s.set_option(&w.cred, SOL_SOCKET, 20, &tv).unwrap();
    assert_eq!(s.receive_timeout(), Some(std::time::Duration::from_secs(2)));
    assert_eq!(s.get_option(SOL_SOCKET, 20).unwrap(), tv);
    assert_eq!(s.get_option(SOL_TCP, 11).unwrap()[0], 7);
    for (f, k, p, e) in [
        (AF_INET, SOCK_RAW, 1, EPERM),
        (AF_INET, SOCK_STREAM, 17, EPROTONOSUPPORT),
        (AF_INET, SOCK_SEQPACKET, 0, ESOCKTNOSUPPORT),
        (AF_PACKET, SOCK_RAW, 0, EPERM),
        (40, SOCK_STREAM, 0, EAFNOSUPPORT),
    ] {
        assert_eq!(socket(&w.ns, i32::from(f), k, p, &w.who()).err(), Some(e));
    }
}

#[test]
fn udp() {
    let w = World::new();
    let a = w.socket(AF_INET, SOCK_DGRAM);
    a.bind(&w.who(), &v4("127.0.0.1", 0)).unwrap();
    let to = a.local_name().unwrap();
    let b = w.socket(AF_INET, SOCK_DGRAM);
    assert_eq!(w.send(&b, b"x"), Err(EDESTADDRREQ));
    assert_eq!(w.send_to(&b, b"hello", &to), Ok(5));
    assert_eq!(receive(&a, 2, MSG_PEEK | MSG_TRUNC).unwrap().1.n, 5);
    let (got, r) = receive(&a, 2, 0).unwrap();
    assert_eq!((got, r.n, r.flags), (b"he".to_vec(), 2, MSG_TRUNC));
    assert_eq!(r.addr, v4("127.0.0.1", port_of(&b)));
    assert_eq!(bytes(&a, 9), Err(EAGAIN));
    // Connected sockets take only their peer's.
    w.connect(&a, &r.addr).unwrap();
    let c = w.socket(AF_INET, SOCK_DGRAM);
    w.send_to(&c, b"stranger", &to).unwrap();
    assert_eq!(bytes(&a, 9), Err(EAGAIN));
    w.send_to(&b, b"", &to).unwrap();
    assert_eq!(bytes(&a, 9).unwrap(), b"");
    drop(b);
    assert_eq!(w.send(&a, b"x"), Ok(1));
    assert!(poll(&a).contains(Events::ERR));
    assert_eq!(bytes(&a, 9), Err(ECONNREFUSED));
    assert_eq!(w.send_to(&c, &[0; 65508], &to), Err(EMSGSIZE));
    assert_eq!(w.send_to(&c, b"x", &v4("192.168.1.1", 5)), Err(ENETUNREACH));
    // The source address and segments by control data.
    let d = w.socket(AF_INET6, SOCK_DGRAM);
    d.bind(&w.who(), &v6("::", 0)).unwrap();
    w.set(&d, SOL_IP, 8, 1).unwrap();
    let mut info = vec![0; 12];
    info[4..8].copy_from_slice(&[127, 0, 0, 9]);
    let control = Control {
        other: vec![(SOL_IP, 8, info), (SOL_UDP, 103, vec![3, 0])],
        ..Control::default()
    };
    let dest = v4("127.0.0.5", port_of(&d));
    c.send(
        &w.who(),
        &mut BufSource::new(b"abcdefg"),
        Some(&dest),
        control,
        0,
    )
    .unwrap();
    let (got, r) = receive(&d, 99, 0).unwrap();
    assert_eq!(got, b"abc");
    assert_eq!(
        r.addr[8..24],
        "::ffff:127.0.0.9"
            .parse::<std::net::Ipv6Addr>()
            .unwrap()
            .octets()
    );
    assert_eq!(r.control.other[0].2[8..], [127, 0, 0, 5]);
    assert_eq!(bytes(&d, 9).unwrap(), b"def");
    assert_eq!(bytes(&d, 9).unwrap(), b"g");
}

/// What is listed in /proc/net is there.
#[test]
fn files_of_proc_net_have_contents() {
    let w = World::new();
    for name in crate::PROC_NET {
        assert!(w.ns.proc_net(name).is_some(), "{name}");
    }
    assert_eq!(w.ns.proc_net("softnet_stat"), None);
}
