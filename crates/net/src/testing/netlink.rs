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

proptest::proptest! {
    #[test]
    fn any_bytes_are_harmless(b in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let w = World::new();
        let s = w.socket(AF_NETLINK, SOCK_RAW);
        let _ = w.send(&s, &b);
        let _ = w.send(&s, &request(u16::from(b.first().copied().unwrap_or(0)), 0x300, &b));
        let _ = w.send(&s, &request(26, 4, &b));
    }
}
