//! Sequences of calls with what Linux 6.18 answered to them: results, and poll's bits after each.

use super::*;
use abi::errno::*;

/// A result as text: bytes, a count, or the error's name.
fn show<T: std::fmt::Debug>(r: Result<T>) -> String {
    match r {
        Ok(v) => format!("{v:?}"),
        Err(e) => e.name().into(),
    }
}
fn p(s: &Arc<Socket>) -> u32 {
    poll(s).bits()
}
fn r(s: &Socket) -> String {
    show(bytes(s, 9).map(|b| String::from_utf8(b).unwrap()))
}

fn tcp(w: &World) -> (Arc<Socket>, Arc<Socket>, Arc<Socket>) {
    let l = w.socket(AF_INET, SOCK_STREAM);
    l.listen(&w.who(), 5).unwrap();
    let c = w.socket(AF_INET, SOCK_STREAM);
    w.connect(&c, &l.local_name().unwrap()).unwrap();
    let s = l.accept().unwrap();
    (c, s, l)
}

#[test]
fn tcp_ends() {
    let w = World::new();
    let (c, s, _l) = tcp(&w);
    w.send(&c, b"lost").unwrap();
    w.send(&s, b"kept").unwrap();
    drop(s);
    assert_eq!(p(&c), 0x201d);
    assert_eq!([r(&c), r(&c), r(&c)], ["\"kept\"", "ECONNRESET", "\"\""]);
    assert_eq!(show(w.send(&c, b"x")), "EPIPE");

    let (c, s, _l) = tcp(&w);
    drop(s);
    assert_eq!((r(&c).as_str(), p(&c)), ("\"\"", 0x2005));
    assert_eq!((show(w.send(&c, b"first")), p(&c)), ("5".into(), 0x201d));
    assert_eq!(
        (int(&c, SOL_SOCKET, 4), show(w.send(&c, b"x"))),
        (32, "EPIPE".into())
    );
    assert_eq!((r(&c).as_str(), p(&c)), ("\"\"", 0x2015));

    let (c, s, _l) = tcp(&w);
    c.shutdown(SHUT_WR).unwrap();
    assert_eq!((p(&s), p(&c)), (0x2005, 4));
    s.shutdown(SHUT_WR).unwrap();
    assert_eq!(
        (p(&s), p(&c), c.peer_name()),
        (0x2015, 0x2015, Err(ENOTCONN))
    );

    let (c, s, _l) = tcp(&w);
    c.shutdown(SHUT_RD).unwrap();
    assert_eq!(
        (p(&c), p(&s), show(w.send(&s, b"xx"))),
        (0x2005, 4, "2".into())
    );
    assert_eq!([r(&c), r(&c)], ["\"xx\"", "\"\""]);
    assert_eq!(p(&c), 0x2005);
}

#[test]
fn tcp_beginnings() {
    let w = World::new();
    let (_c, s, l) = tcp(&w);
    let f = w.socket(AF_INET, SOCK_STREAM);
    assert_eq!((p(&f), p(&l)), (0x14, 0));
    assert_eq!(
        (show(w.send(&f, b"x")), r(&f)),
        ("EPIPE".into(), "ENOTCONN".into())
    );
    assert_eq!(
        (show(w.send(&l, b"x")), r(&l)),
        ("EPIPE".into(), "ENOTCONN".into())
    );
    assert_eq!(
        (f.shutdown(SHUT_RDWR), f.accept().err()),
        (Err(ENOTCONN), Some(EINVAL))
    );
    assert_eq!(
        (l.listen(&w.who(), 3), s.listen(&w.who(), 3)),
        (Ok(()), Err(EINVAL))
    );
    assert_eq!(receive(&s, 1, MSG_OOB).err(), Some(EINVAL));
    let nobody = crate::addr::Endpoint::new("127.0.0.1".parse().unwrap(), 9).encode(AF_INET);
    let connect = |f: &Socket, a: &[u8]| show(f.connect(&w.who(), a, Block::No));
    assert_eq!(
        (connect(&f, &nobody).as_str(), p(&f)),
        ("EINPROGRESS", 0x201d)
    );
    assert_eq!((int(&f, SOL_SOCKET, 4), p(&f)), (111, 0x2015));
    assert_eq!(connect(&f, &nobody), "ECONNABORTED");
    assert_eq!(
        (show(w.send(&f, b"x")), r(&f)),
        ("EPIPE".into(), "ENOTCONN".into())
    );
    let f = w.socket(AF_INET, SOCK_STREAM);
    let at = l.local_name().unwrap();
    assert_eq!((connect(&f, &at).as_str(), p(&f)), ("EINPROGRESS", 4));
    assert_eq!(
        (connect(&f, &at).as_str(), connect(&f, &at).as_str()),
        ("()", "EISCONN")
    );
    drop(l);
    assert_eq!((r(&f).as_str(), p(&f)), ("ECONNRESET", 0x2015));
}

#[test]
fn unix_ends() {
    let w = World::new();
    let u = w.socket(AF_UNIX, SOCK_STREAM);
    assert_eq!(p(&u), 0x14);
    assert_eq!(
        (show(w.send(&u, b"x")), r(&u)),
        ("ENOTCONN".into(), "EINVAL".into())
    );
    assert_eq!(w.send_to(&u, b"x", b"\x01\0/x"), Err(EOPNOTSUPP));
    assert_eq!(
        (u.shutdown(SHUT_RDWR), u.peer_name()),
        (Ok(()), Err(ENOTCONN))
    );
    // Closed: poll of the other, its send, its two receives.
    let closed = |kind, unread: bool| {
        let (a, b) = w.pair(kind);
        if unread {
            w.send(&b, b"z").unwrap();
        }
        drop(a);
        let bits = p(&b);
        if kind == SOCK_SEQPACKET {
            let (x, y) = (r(&b), r(&b));
            return (bits, show(w.send(&b, b"x")), x, y);
        }
        (bits, show(w.send(&b, b"x")), r(&b), r(&b))
    };
    let (none, reset) = ("\"\"".to_string(), "ECONNRESET".to_string());
    let (pipe, again) = ("EPIPE".to_string(), "EAGAIN".to_string());
    assert_eq!(
        closed(SOCK_STREAM, false),
        (0x2015, pipe.clone(), none.clone(), none.clone())
    );
    assert_eq!(
        closed(SOCK_STREAM, true),
        (0x201d, pipe.clone(), reset.clone(), none.clone())
    );
    assert_eq!(
        closed(SOCK_SEQPACKET, false),
        (0x2015, pipe.clone(), none.clone(), none.clone())
    );
    assert_eq!(
        closed(SOCK_SEQPACKET, true),
        (0x201d, pipe.clone(), reset, none.clone())
    );
    assert_eq!(
        closed(SOCK_DGRAM, false),
        (4, "ECONNREFUSED".into(), again.clone(), again)
    );
    // Shut: poll of the one, poll of the other, a send that fails, a receive.
    for kind in [SOCK_STREAM, SOCK_SEQPACKET] {
        let (a, b) = w.pair(kind);
        a.shutdown(SHUT_RD).unwrap();
        assert_eq!(
            (p(&a), p(&b), show(w.send(&b, b"x")), r(&a)),
            (0x2005, 4, pipe.clone(), none.clone())
        );
        let (a, b) = w.pair(kind);
        a.shutdown(SHUT_WR).unwrap();
        assert_eq!(
            (p(&a), p(&b), show(w.send(&a, b"x")), r(&b)),
            (4, 0x2005, pipe.clone(), none.clone())
        );
    }
    let (a, b) = w.pair(SOCK_DGRAM);
    a.shutdown(SHUT_RD).unwrap();
    assert_eq!(
        (p(&a), p(&b), show(w.send(&b, b"x"))),
        (0x2005, 4, pipe.clone())
    );
    let (a, b) = w.pair(SOCK_DGRAM);
    a.shutdown(SHUT_WR).unwrap();
    assert_eq!(
        (p(&a), p(&b), show(w.send(&a, b"x")), r(&b)),
        (4, 4, pipe, "EAGAIN".into())
    );
    let (a, _b) = w.pair(SOCK_DGRAM);
    assert_eq!(
        (0..999).take_while(|_| w.send(&a, b"x").is_ok()).count(),
        278
    );
}
