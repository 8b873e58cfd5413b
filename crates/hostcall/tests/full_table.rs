//! A packet arrives though the process has no descriptor number left for what came with it. (Alone
//! in its process: the limit is the process's.)

use hostcall::sock;

#[test]
fn a_packet_without_its_descriptors() {
    let (a, b) = sock::seqpacket_pair().unwrap();
    let fds = [a.raw(), b.raw()];
    sock::send(a.raw(), b"one", &fds).unwrap();
    sock::send(a.raw(), b"two", &fds).unwrap();
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for a struct rlimit.
    let r = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut old) };
    assert_eq!(r, 0);
    let set = |l: libc::rlimit| {
        // SAFETY: a struct rlimit.
        let r = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const l) };
        assert_eq!(r, 0);
    };
    set(libc::rlimit { rlim_cur: 3, ..old });
    let mut buf = [0u8; 16];
    let (n, got) = sock::recv(b.raw(), &mut buf).unwrap();
    assert_eq!((&buf[..n], got.len()), (&b"one"[..], 0));
    set(old);
    let (n, got) = sock::recv(b.raw(), &mut buf).unwrap();
    assert_eq!((&buf[..n], got.len()), (&b"two"[..], 2));
}
