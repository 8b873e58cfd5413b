use super::*;
use abi::errno::*;

const ALL: i32 = 0x0300;

fn root() -> World {
    let mut w = World::new();
    w.cred = Arc::new(Credentials::root());
    let memory = clas::Clas::new().unwrap();
    w.ns.set_memory(&memory);
    w
}

fn tap(w: &World, kind: u32) -> Arc<Socket> {
    socket(&w.ns, i32::from(AF_PACKET), kind, ALL, &w.who()).unwrap()
}

/// A datagram over the loopback device.
fn talk(w: &World, data: &[u8]) {
    let s = w.socket(AF_INET, SOCK_DGRAM);
    let to = [2, 0, 0x12, 0x34, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    w.send_to(&s, data, &to).unwrap();
}

#[test]
fn only_the_entitled_see_packets() {
    let w = World::new();
    let made = socket(&w.ns, i32::from(AF_PACKET), SOCK_RAW, ALL, &w.who());
    assert_eq!(made.err(), Some(EPERM));
}

#[test]
fn namespaces_are_apart() {
    let w = root();
    let s = tap(&w, SOCK_RAW);
    let other = World {
        ns: w.ns.sibling(&vfs::userns::UserNs::default()),
        names: Names::default(),
        cred: w.cred.clone(),
    };
    other.ns.set_loopback(crate::Link::Up).unwrap();
    talk(&other, b"theirs");
    assert_eq!(bytes(&s, 100), Err(EAGAIN));
    talk(&w, b"ours");
    let f = bytes(&s, 100).unwrap();
    assert_eq!(f[42..], *b"ours");
    assert_eq!(f[12..14], [8, 0]);
}

#[test]
fn a_queue_is_bounded() {
    let w = root();
    let s = tap(&w, SOCK_DGRAM);
    w.set(&s, SOL_SOCKET, 8, 4000).unwrap();
    for _ in 0..100 {
        talk(&w, &[7; 500]);
    }
    let told = s.get_option(SOL_PACKET, 6).unwrap();
    let word = |at: usize| u32::from_le_bytes(told[at..at + 4].try_into().unwrap());
    assert_eq!(word(0), 200);
    assert!(word(4) > 180, "{}", word(4));
}

#[test]
fn a_ring_belies_nobody() {
    let w = root();
    for version in 0..3 {
        let s = tap(&w, SOCK_RAW);
        w.set(&s, SOL_PACKET, 10, version).unwrap();
        let req: Vec<u8> = [4096u32, 2, 256, 32, 1, 8, 0]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        s.set_option(&w.cred, SOL_PACKET, 5, &req).unwrap();
        let map = vfs::FileOps::mappable(&*s).unwrap();
        let memory = map.memory().unwrap().clone();
        let (backing, len) = map.backing(0, 8192, clas::Access::Write).unwrap();
        assert_eq!(len, 8192);
        let clas::Backing::Frames(at) = backing else {
            panic!("no frames");
        };
        let all = memory.slice(at, 8192);
        // The application overwrites everything, again and again.
        for round in 0..40u8 {
            talk(&w, &vec![1; usize::from(round) * 200]);
            let fill = if round % 3 == 0 { 0 } else { 0xff };
            all.copy_from(&vec![fill; 8192]);
        }
        all.zero();
        memory.decref(at, 2);
        talk(&w, b"x");
    }
}
