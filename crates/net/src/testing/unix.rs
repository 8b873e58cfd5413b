use super::*;
use crate::control::Ucred;
use abi::errno::*;
use std::sync::Weak;

fn path(p: &str) -> Vec<u8> {
    let mut v = AF_UNIX.to_le_bytes().to_vec();
    v.extend_from_slice(p.as_bytes());
    v
}

#[test]
fn pairs() {
    let w = World::new();
    let (a, b) = w.pair(SOCK_STREAM);
    w.send(&a, b"one").unwrap();
    w.send(&a, b"two").unwrap();
    assert_eq!(bytes(&b, 99).unwrap(), b"onetwo");
    assert_eq!(w.send_to(&a, b"x", &path("/x")), Err(EISCONN));
    drop(a);
    assert!(poll(&b).contains(Events::HUP | Events::IN));
    assert_eq!(bytes(&b, 99).unwrap(), b"");
    assert_eq!(w.send(&b, b"x"), Err(EPIPE));
    for kind in [SOCK_DGRAM, SOCK_SEQPACKET] {
        let (a, b) = w.pair(kind);
        w.send(&a, b"one").unwrap();
        w.send(&a, b"").unwrap();
        w.send(&a, b"two").unwrap();
        let (got, r) = receive(&b, 2, 0).unwrap();
        assert_eq!((got, r.flags), (b"on".to_vec(), MSG_TRUNC));
        assert_eq!(bytes(&b, 99).unwrap(), b"");
        assert_eq!(receive(&b, 1, MSG_TRUNC).unwrap().1.n, 3);
        drop(a);
        if kind == SOCK_SEQPACKET {
            assert_eq!(bytes(&b, 9).unwrap(), b"");
            assert_eq!(w.send(&b, b"x"), Err(EPIPE));
        } else {
            assert_eq!(bytes(&b, 9), Err(EAGAIN));
            assert_eq!(w.send(&b, b"x"), Err(ECONNREFUSED));
            assert_eq!(w.send(&b, b"x"), Err(ENOTCONN));
        }
    }
    let (a, b) = w.pair(SOCK_STREAM);
    w.send(&b, b"unread").unwrap();
    drop(a);
    assert_eq!(bytes(&b, 9), Err(ECONNRESET));
    assert_eq!(bytes(&b, 9).unwrap(), b"");
}

/// A connection that waits to be accepted is the memory of who made it, though its own socket is
/// gone.
#[test]
fn waiting_connections_are_charged_to_who_connects() {
    use vfs::ucounts::Kind;
    let mut w = World::new();
    w.cred = Arc::new(Credentials::user(77_150, 77_150, vec![]));
    let u = w.cred.ucounts().clone();
    for (family, own, to) in [
        (AF_UNIX, path("\0waiting"), path("\0waiting")),
        (
            AF_INET,
            [2u8, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0].into(),
            Vec::new(),
        ),
    ] {
        let l = w.socket(family, SOCK_STREAM);
        l.bind(&w.who(), &own).unwrap();
        l.listen(&w.who(), 100).unwrap();
        let to = if to.is_empty() {
            l.local_name().unwrap()
        } else {
            to
        };
        let before = u.count(Kind::Kmem);
        for _ in 0..50 {
            w.connect(&w.socket(family, SOCK_STREAM), &to).unwrap();
        }
        assert!(u.count(Kind::Kmem) >= before + 50 * 1024);
        let rest = w.cred.user_ns.limits().get(Kind::Kmem) as u64;
        let full = u.force(Kind::Kmem, rest);
        let late = w.socket(family, SOCK_STREAM);
        let refused = if family == AF_UNIX { ENOMEM } else { ENOBUFS };
        assert_eq!(w.connect(&late, &to), Err(refused));
        drop(full);
        assert_eq!(w.connect(&late, &to), Ok(()));
        drop((late, l));
        assert_eq!(u.count(Kind::Kmem), 0);
    }
}

#[test]
fn names_and_credentials() {
    let w = World::new();
    let l = w.socket(AF_UNIX, SOCK_STREAM);
    assert_eq!(l.listen(&w.who(), 1), Err(EINVAL));
    l.bind(&w.who(), &path("/run/x")).unwrap();
    assert_eq!(l.bind(&w.who(), &path("/run/y")), Err(EINVAL));
    assert_eq!(
        w.socket(AF_UNIX, SOCK_STREAM)
            .bind(&w.who(), &path("/run/x")),
        Err(EADDRINUSE)
    );
    let c = w.socket(AF_UNIX, SOCK_STREAM);
    assert_eq!(w.connect(&c, &path("/run/x")), Err(ECONNREFUSED));
    assert_eq!(w.connect(&c, &path("/nowhere")), Err(ENOENT));
    assert_eq!(w.connect(&c, &path("\0nobody")), Err(ECONNREFUSED));
    l.listen(&w.who(), 0).unwrap();
    assert_eq!(
        w.connect(&w.socket(AF_UNIX, SOCK_DGRAM), &path("/run/x")),
        Err(EPROTOTYPE)
    );
    w.connect(&c, &path("/run/x")).unwrap();
    assert_eq!(c.peer_name().unwrap(), path("/run/x\0"));
    let late = w.socket(AF_UNIX, SOCK_STREAM);
    assert_eq!(w.connect(&late, &path("/run/x")), Err(EAGAIN));
    let s = l.accept().unwrap();
    assert_eq!(s.peer_name().unwrap(), path(""));
    assert_eq!(w.connect(&late, &path("/run/x")), Ok(()));
    let me = Ucred {
        pid: 42,
        uid: 1000,
        gid: 100,
    }
    .encode();
    assert_eq!(s.get_option(SOL_SOCKET, 17).unwrap(), me);
    assert_eq!(c.get_option(SOL_SOCKET, 17).unwrap(), me);
    drop(l);
    assert_eq!(bytes(&late, 1), Err(ECONNRESET));
    // Abstract names end with their socket; autobind makes one.
    let a = w.socket(AF_UNIX, SOCK_DGRAM);
    a.bind(&w.who(), &path("")).unwrap();
    assert_eq!(a.local_name().unwrap(), path("\x0000000"));
    let b = w.socket(AF_UNIX, SOCK_DGRAM);
    b.bind(&w.who(), &path("\0b\0c")).unwrap();
    w.send_to(&b, b"hi", &path("\x0000000")).unwrap();
    let (_, r) = receive(&a, 9, 0).unwrap();
    assert_eq!(r.addr, path("\0b\0c"));
    assert!(r.control.cred.is_none());
    w.set(&a, SOL_SOCKET, 16, 1).unwrap();
    w.connect(&b, &path("\x0000000")).unwrap();
    w.send(&b, b"hi").unwrap();
    assert_eq!(
        receive(&a, 9, 0).unwrap().1.control.cred,
        Some(Ucred {
            pid: 42,
            uid: 1000,
            gid: 100
        })
    );
    let claim = Control {
        cred: Some(Ucred {
            pid: 1,
            uid: 0,
            gid: 0,
        }),
        ..Control::default()
    };
    assert_eq!(
        b.send(&w.who(), &mut BufSource::new(b"x"), None, claim, 0),
        Err(EPERM)
    );
    // A full queue stops the sender until somebody reads.
    while w.send(&b, b"x").is_ok() {}
    assert_eq!(a.downcast::<crate::unix::UnixSock>().unwrap().queued(), 11);
    assert!(!poll(&b).contains(Events::OUT));
    bytes(&a, 1).unwrap();
    assert!(poll(&b).contains(Events::OUT));
    drop(a);
    assert_eq!(w.send(&b, b"x"), Err(ECONNREFUSED));
    assert_eq!(
        w.socket(AF_UNIX, SOCK_DGRAM)
            .bind(&w.who(), &path("\x0000000")),
        Ok(())
    );
}

#[test]
fn descriptors_travel() {
    let w = World::new();
    let (a, b) = w.pair(SOCK_STREAM);
    let (x, _y) = w.pair(SOCK_STREAM);
    let f = w.file(x);
    w.send(&a, b"plain").unwrap();
    w.send_files(&a, b"tagged", vec![f.clone()]).unwrap();
    w.send(&a, b"after").unwrap();
    assert_eq!(Arc::strong_count(&f), 2);
    // Bytes before a tagged piece join it; what comes after waits.
    let (got, r) = receive(&b, 99, MSG_PEEK).unwrap();
    assert_eq!((got, r.control.files.len()), (b"plaintagged".to_vec(), 1));
    drop(r);
    let (got, r) = receive(&b, 7, 0).unwrap();
    assert_eq!((got, r.control.files.len()), (b"plainta".to_vec(), 1));
    assert!(Arc::ptr_eq(&r.control.files[0], &f));
    assert_eq!(bytes(&b, 99).unwrap(), b"ggedafter");
    drop(r);
    w.send_files(&a, b"x", vec![f.clone()]).unwrap();
    drop(b);
    assert_eq!(Arc::strong_count(&f), 1);
    let (a, b) = w.pair(SOCK_DGRAM);
    w.send_files(&a, b"", vec![f.clone(), f.clone()]).unwrap();
    let (_, r) = receive(&b, 9, 0).unwrap();
    assert_eq!(r.control.files.len(), 2);
    // Writers are kept apart for those who ask who wrote.
    let (a, b) = w.pair(SOCK_STREAM);
    w.set(&b, SOL_SOCKET, 16, 1).unwrap();
    w.send(&a, b"1").unwrap();
    let other = Caller { pid: 43, ..w.who() };
    a.send(
        &other,
        &mut BufSource::new(b"2"),
        None,
        Control::default(),
        0,
    )
    .unwrap();
    let (got, r) = receive(&b, 9, 0).unwrap();
    assert_eq!((got, r.control.cred.unwrap().pid), (b"1".to_vec(), 42));
    assert_eq!(receive(&b, 9, 0).unwrap().1.control.cred.unwrap().pid, 43);
}

fn gone(w: &Weak<File>) -> bool {
    w.strong_count() == 0
}

fn collect(w: &World) {
    crate::inflight::collect(&w.ns.in_flight, Socket::give_up);
}

#[test]
fn a_listener_in_the_queue_of_its_own_connection_is_collected() {
    let w = World::new();
    let l = w.socket(AF_UNIX, SOCK_STREAM);
    l.bind(&w.who(), &path("\0cycle")).unwrap();
    l.listen(&w.who(), 5).unwrap();
    let f = w.file(l.clone());
    let weak = Arc::downgrade(&f);
    let c = w.socket(AF_UNIX, SOCK_STREAM);
    w.connect(&c, &path("\0cycle")).unwrap();
    w.send_files(&c, b"x", vec![f.clone()]).unwrap();
    drop((l, f, c));
    collect(&w);
    assert_eq!(weak.strong_count(), 0);
}

#[test]
fn cycles_are_collected_and_depth_is_harmless() {
    let w = World::new();
    let probe = |ops| {
        let f = w.file(ops);
        (Arc::downgrade(&f), f)
    };
    // A socket in its own queue.
    let (a, b) = w.pair(SOCK_STREAM);
    let (wa, fa) = probe(a.clone());
    let (wb, fb) = probe(b.clone());
    drop((a.clone(), b.clone()));
    w.send_files(&a, b"x", vec![fb.clone()]).unwrap();
    w.send_files(&b, b"x", vec![fa.clone()]).unwrap();
    drop((a, b));
    drop((fa, fb));
    assert!(!gone(&wa) && !gone(&wb));
    // A cycle that somebody can still receive from stays.
    let (c, d) = w.pair(SOCK_STREAM);
    let (x, y) = w.pair(SOCK_STREAM);
    let (wd, fd) = probe(d.clone());
    w.send_files(&c, b"x", vec![fd.clone()]).unwrap();
    w.send_files(&x, b"x", vec![fd]).unwrap();
    drop(d);
    collect(&w);
    assert!(gone(&wa) && gone(&wb));
    assert!(!gone(&wd));
    drop(y);
    collect(&w);
    assert!(gone(&wd));
    // A chain as long as one likes.
    let (mut head, first) = w.pair(SOCK_STREAM);
    let end = Arc::downgrade(&first);
    let mut next = w.file(first);
    for _ in 0..5000 {
        let (a, b) = w.pair(SOCK_STREAM);
        w.send_files(&a, b"x", vec![next]).unwrap();
        next = w.file(b);
        head = a;
    }
    drop(next);
    drop(head);
    assert_eq!(end.strong_count(), 0);
}
