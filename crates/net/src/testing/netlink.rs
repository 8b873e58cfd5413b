use super::*;
use abi::errno::*;

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut v = ((16 + body.len()) as u32).to_le_bytes().to_vec();
    v.extend_from_slice(&kind.to_le_bytes());
    v.extend_from_slice(&(flags | 1).to_le_bytes());
    v.extend_from_slice(&77u32.to_le_bytes());
    v.extend_from_slice(&[0; 4]);
    v.extend_from_slice(body);
    v
}
fn kind(m: &[u8]) -> u16 {
    u16::from_le_bytes([m[4], m[5]])
}

#[test]
fn tells_of_the_loopback_interface() {
    let w = World::new();
    let s = w.socket(AF_NETLINK, SOCK_RAW);
    s.bind(&w.who(), &[16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .unwrap();
    assert_eq!(s.local_name().unwrap()[4], 42);
    w.send(&s, &request(18, 0x300, &[0; 16])).unwrap();
    let m = bytes(&s, 9000).unwrap();
    assert_eq!((kind(&m), m[8]), (16, 77));
    assert!(m.windows(3).any(|x| x == b"lo\0"));
    assert_eq!(kind(&bytes(&s, 9000).unwrap()), 3);
    w.send(&s, &request(22, 0x300, &[0; 8])).unwrap();
    let m = bytes(&s, 9000).unwrap();
    let first = u32::from_le_bytes([m[0], m[1], m[2], m[3]]) as usize;
    assert_eq!((m[16], m[first + 16]), (2, 10));
    bytes(&s, 9000).unwrap();
    w.send(&s, &request(16, 4, &[0; 16])).unwrap();
    let m = bytes(&s, 9000).unwrap();
    assert_eq!(kind(&m), 2);
    assert_eq!(m[16..20], (-EPERM.raw()).to_le_bytes());
    assert_eq!(
        socket(&w.ns, 16, SOCK_RAW, 9, &w.who()).err(),
        Some(EPROTONOSUPPORT)
    );
}

#[test]
fn what_is_made_is_acknowledged() {
    let w = World::new();
    let s = w.socket(AF_NETLINK, SOCK_RAW);
    // RTM_NEWADDR with NLM_F_CREATE, NLM_F_EXCL and NLM_F_ACK: no dump.
    w.send(&s, &request(20, 0x604, &[0; 8])).unwrap();
    assert_eq!(kind(&bytes(&s, 9000).unwrap()), 2);
}

/// A dump of sockets: `struct inet_diag_req_v2`, or of unix sockets.
fn diag(family: u8, protocol: u8) -> Vec<u8> {
    let mut body = vec![family, protocol, 0xff, 0, 0xff, 0xff, 0, 0];
    body.resize(56, 0);
    request(20, 0x300, &body)
}

#[test]
fn a_long_dump_waits_for_its_reader() {
    const MANY: usize = 4000;
    let w = World::new();
    let s = socket(&w.ns, 16, SOCK_RAW, 4, &w.who()).unwrap();
    let any = crate::addr::Endpoint::any(AF_INET).encode(AF_INET);
    let all: Vec<_> = (0..MANY)
        .map(|_| {
            let u = w.socket(AF_INET, SOCK_DGRAM);
            u.bind(&w.who(), &any).unwrap();
            u
        })
        .collect();
    w.send(&s, &diag(2, 17)).unwrap();
    let (mut found, mut held) = (0, 0);
    loop {
        let m = bytes(&s, 9000).unwrap();
        held = held.max(m.len());
        let mut rest = &m[..];
        while !rest.is_empty() {
            if kind(rest) == 3 {
                assert_eq!(found, MANY);
                drop(all);
                assert!(held < 4096);
                return;
            }
            assert_eq!((kind(rest), rest[16], rest[17]), (20, 2, 7));
            found += 1;
            let len = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            rest = &rest[len.next_multiple_of(4)..];
        }
    }
}

#[test]
fn tells_of_unix_sockets_and_of_none() {
    let w = World::new();
    let s = socket(&w.ns, 16, SOCK_RAW, 4, &w.who()).unwrap();
    let pair = w.pair(SOCK_STREAM);
    w.send(&s, &diag(1, 0)).unwrap();
    let m = bytes(&s, 9000).unwrap();
    assert_eq!((kind(&m), m[16], m[17], m[18]), (20, 1, 1, 1));
    drop(pair);
    bytes(&s, 9000).unwrap();
    w.send(&s, &diag(1, 0)).unwrap();
    assert_eq!(kind(&bytes(&s, 9000).unwrap()), 3);
    // SCTP.
    w.send(&s, &diag(2, 132)).unwrap();
    let m = bytes(&s, 9000).unwrap();
    assert_eq!(
        (kind(&m), &m[16..20]),
        (2, &(-ENOENT.raw()).to_le_bytes()[..])
    );
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_harmless(b in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let w = World::new();
        let s = w.socket(AF_NETLINK, SOCK_RAW);
        let _ = w.send(&s, &b);
        let _ = w.send(&s, &request(u16::from(b.first().copied().unwrap_or(0)), 0x300, &b));
        let _ = w.send(&s, &request(26, 4, &b));
        let s = socket(&w.ns, 16, SOCK_RAW, 4, &w.who()).unwrap();
        let _ = w.send(&s, &request(20, 0x300, &b));
        let _ = w.send(&s, &request(20, 4, &b));
    }
}
