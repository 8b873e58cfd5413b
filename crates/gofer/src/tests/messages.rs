//! Messages: what is sent arrives, and what is not as it should be is refused.

use super::*;
use crate::proto::{NameTarget, Piggybacked, Seen};
use crate::sample::{Sample, Samples};
use crate::wire::{MAX_ALSO, MAX_CLOSES, MAX_MESSAGE, MAX_NAMES, MAX_STRING};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn garbage_is_refused_and_the_connection_goes_on() {
    let dir = Temp::new();
    let (ours, server) = start(&dir.0, Writable::Yes);
    let mut buf = vec![0; MAX_MESSAGE + 100];
    let conns = Line::from_fds(sock::recv(ours.raw(), &mut buf).unwrap().1);
    let conn = &conns[0];
    let mut ask = |m: &[u8]| {
        conn.send(m).unwrap();
        if Request::decode(m).is_ok_and(|(r, _)| r.brings_fd()) {
            Reply::decode(conn.receive_with(&mut buf).unwrap().0)
        } else {
            Reply::decode(conn.receive(&mut buf).unwrap())
        }
    };
    // A simple generator: what matters is many near misses.
    let mut seed = 0x1234_5678_9abc_def0u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let root = match ask(&Request::Attach {
        root: b"root".to_vec(),
    }
    .encode(&[]))
    {
        Ok(Reply::Node { handle, .. }) => handle,
        r => panic!("{r:?}"),
    };
    let name = b"name".to_vec();
    let good: Vec<Vec<u8>> = [
        Request::Walk {
            from: root,
            names: vec![name.clone(); 3],
            siblings: vec![name.clone(); 2],
            then: WalkPurpose::Read,
        },
        Request::Create {
            dir: root,
            name: name.clone(),
            new: NEW,
        },
        Request::Rename {
            dir: root,
            name: name.clone(),
            new_dir: root,
            new_name: b"b".to_vec(),
            flags: 0,
        },
        Request::SetXattr {
            file: root,
            name: b"user.x".to_vec(),
            value: vec![1; 9],
            flags: 0,
        },
        Request::ReadDir {
            dir: root,
            cookie: 0,
        },
        Request::SetAttr {
            file: root,
            attr: SetAttr::default(),
        },
    ]
    .iter()
    .map(|r| r.encode(&[Handle(1), Handle(u64::MAX)]))
    .collect();
    for i in 0..4000 {
        let mut m = good[i % good.len()].clone();
        match random() % 4 {
            0 => m.truncate(random() as usize % (m.len() + 1)),
            1 => m.extend((0..random() % 50).map(|_| random() as u8)),
            _ => {
                for _ in 0..1 + random() % 4 {
                    let at = random() as usize % m.len();
                    m[at] = random() as u8;
                }
            }
        }
        if !m.is_empty() {
            let _ = ask(&m);
        }
    }
    assert_eq!(ask(&vec![0; MAX_MESSAGE + 50]), Err(EBADMSG));
    assert!(ask(&Request::Nop.encode(&[])).is_ok());
    drop(conns);
    server.join().unwrap();
}

proptest! {
    #[test]
    fn decoding_never_panics(bytes in vec(any::<u8>(), 0..300)) {
        let mut b = vec![1, 0, 0, 0, 0];
        b.extend(&bytes);
        let _ = Request::decode(&b);
        let mut b = vec![1, 0, 0, 0, 0, 0];
        b.extend(&bytes);
        let _ = Reply::decode(&b);
        if let Ok((r, with)) = Request::decode(&bytes) {
            let again = r.encode_with(&with.closes, &with.also);
            prop_assert_eq!(Request::decode(&again), Ok((r, with)));
        }
    }

    /// Each row of the tables: what is sent arrives, whole and with nothing behind it.
    #[test]
    fn messages_arrive_as_they_were_sent(numbers in vec(any::<u64>(), 0..80)) {
        let s = &mut Samples::new(&numbers, &[]);
        let request = Request::sample(s);
        let (closes, also) = (vec![Handle(1), Handle(2)], names("a/b"));
        let sent = request.encode_with(&closes, &also);
        prop_assert_eq!(Request::decode(&sent), Ok((request, Piggybacked { closes, also })));
        let reply = Ok(Reply::sample(s));
        let answered = Reply::encode(&reply);
        prop_assert_eq!(Reply::decode(&answered), reply.clone());
        for n in 0..sent.len() {
            prop_assert_eq!(Request::decode(&sent[..n]).err(), Some(EBADMSG));
        }
        prop_assert_eq!(Request::decode(&[&sent[..], &[0]].concat()).err(), Some(EBADMSG));
        // A list of entries ends with the message.
        if !matches!(reply, Ok(Reply::Entries { .. })) {
            for n in 0..answered.len() {
                prop_assert_eq!(Reply::decode(&answered[..n]).err(), Some(EBADMSG));
            }
        }
        prop_assert_eq!(Reply::decode(&[&answered[..], &[0]].concat()).err(), Some(EBADMSG));
    }
}

#[test]
fn lists_are_bounded() {
    let refused = |names, siblings| {
        let (from, then) = (Handle(1), WalkPurpose::Read);
        let names = vec![b"n".to_vec(); names];
        let siblings = vec![b"n".to_vec(); siblings];
        let walk = Request::Walk {
            from,
            then,
            siblings,
            names,
        };
        Request::decode(&walk.encode(&[])).err()
    };
    assert_eq!(refused(MAX_NAMES, MAX_NAMES), None);
    assert_eq!(refused(MAX_NAMES + 1, 0), Some(EBADMSG));
    assert_eq!(refused(0, MAX_NAMES + 1), Some(EBADMSG));
    let with = |closes, also| {
        let (closes, also) = (vec![Handle(1); closes], vec![Vec::new(); also]);
        Request::decode(&Request::Nop.encode_with(&closes, &also)).err()
    };
    assert_eq!(with(MAX_CLOSES, MAX_ALSO), None);
    assert_eq!(with(MAX_CLOSES + 1, 0), Some(EBADMSG));
    assert_eq!(with(0, MAX_ALSO + 1), Some(EBADMSG));
    let seen = |n| {
        let (version, names) = (1, vec![NameTarget::Missing; n]);
        let dir = Some(Seen { version, names });
        Reply::decode(&Reply::encode(&Ok(Reply::Changed { dir, old: None }))).err()
    };
    assert_eq!(seen(1 + MAX_ALSO), None);
    assert_eq!(seen(2 + MAX_ALSO), Some(EBADMSG));
    let long = Reply::Bytes(vec![0; MAX_STRING + 1]);
    assert_eq!(Reply::decode(&Reply::encode(&Ok(long))), Err(EBADMSG));
}
