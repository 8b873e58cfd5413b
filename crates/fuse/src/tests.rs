//! Servers that answer as they like, without files.

use crate::connection::{Answer, Call, Charged, Connection};
use crate::harness::{DEVICE, Me, ROOM, connection};
use crate::proto::{EntryOut, InHeader, InitOut, Op, OpenOut, OutHeader, parse};
use abi::Result;
use abi::errno::{EAGAIN, ECONNABORTED, EINTR, EINVAL, EIO, ENODEV, ENOENT, ENOSYS, ENOTCONN};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// What the server reads next.
fn read(c: &Connection) -> Result<(InHeader, Vec<u8>)> {
    let bytes = c.next(DEVICE, ROOM)?;
    let (h, body) = parse::<InHeader>(&bytes)?;
    assert_eq!(h.len as usize, bytes.len());
    Ok((h, body.to_vec()))
}

fn header(unique: u64, error: i32, len: usize) -> OutHeader {
    OutHeader {
        len: (size_of::<OutHeader>() + len) as u32,
        error,
        unique,
    }
}

fn answer(c: &Arc<Connection>, unique: u64, error: i32, body: &[u8]) -> Result<()> {
    let h = header(unique, error, body.len());
    let n = c.expects(DEVICE, &h)?;
    c.answer(DEVICE, &h, body[..n].to_vec())
}

fn started() -> Arc<Connection> {
    let c = connection();
    let (init, _) = read(&c).unwrap();
    assert_eq!(init.op, Op::Init as u32);
    let out = InitOut {
        major: 7,
        minor: 31,
        max_write: 8192,
        ..InitOut::default()
    };
    answer(&c, init.unique, 0, out.as_bytes()).unwrap();
    c
}

const QUESTION: Call<'static> = Call {
    op: Op::Readlink,
    node: 3,
    parts: &[b"abc"],
    answer: Answer::UpTo(4),
};

/// A thread that asks; its task, and what it gets.
fn ask(c: &Arc<Connection>) -> (Arc<Me>, std::thread::JoinHandle<Result<Vec<u8>>>) {
    let me = Arc::new(Me::default());
    let (task, c) = (me.clone(), c.clone());
    let asks = std::thread::spawn(move || {
        let _acting = task.acts();
        c.call(None, &QUESTION)
    });
    (me, asks)
}

/// What the server reads, once there is something.
fn await_request(c: &Connection) -> (InHeader, Vec<u8>) {
    loop {
        match read(c) {
            Err(EAGAIN) => std::thread::yield_now(),
            r => return r.unwrap(),
        }
    }
}

#[test]
fn a_question_is_answered() {
    let c = started();
    let (_, asks) = ask(&c);
    let (h, body) = await_request(&c);
    assert_eq!((h.op, h.node, h.uid, h.gid, h.pid), (5, 3, 7, 8, 42));
    assert_eq!(body, b"abc");
    answer(&c, h.unique, 0, b"xyz").unwrap();
    assert_eq!(asks.join().unwrap(), Ok(b"xyz".to_vec()));
    // Once only.
    assert_eq!(answer(&c, h.unique, 0, b"xyz"), Err(ENOENT));
}

#[test]
fn bad_answers_are_errors_for_who_asked() {
    let c = started();
    for (error, body, said) in [
        (0, &b"12345"[..], Err(EINVAL)),
        (-5, b"1", Err(EINVAL)),
        (-38, b"", Ok(())),
    ] {
        let (_, asks) = ask(&c);
        let (h, _) = await_request(&c);
        assert_eq!(answer(&c, h.unique, 5, b""), Err(EINVAL));
        assert_eq!(answer(&c, h.unique, -512, b""), Err(EINVAL));
        let other = header(h.unique, 0, 0);
        assert_eq!(c.expects(DEVICE + 1, &other), Err(ENOENT));
        assert_eq!(answer(&c, h.unique, error, body), said);
        let e = if said.is_ok() { ENOSYS } else { EIO };
        assert_eq!(asks.join().unwrap(), Err(e));
    }
}

#[test]
fn threads_of_the_kernel_do_not_wait() {
    assert_eq!(started().call(None, &QUESTION), Err(EIO));
}

#[test]
fn who_is_killed_leaves_at_once() {
    let c = started();
    // One that the server has read, and one that it has not.
    for is_read in [true, false] {
        let (me, asks) = ask(&c);
        let unique = is_read.then(|| await_request(&c).0.unique);
        if !is_read {
            while c.readiness() != wait::Events::READABLE | wait::Events::WRITABLE {
                std::thread::yield_now();
            }
        }
        me.set(&me.killed);
        assert_eq!(asks.join().unwrap(), Err(EINTR));
        match unique {
            Some(u) => {
                let (h, body) = read(&c).unwrap();
                assert_eq!((h.op, h.unique), (Op::Interrupt as u32, u | 1));
                assert_eq!(body, u.to_ne_bytes());
                assert_eq!(answer(&c, u, 0, b"late"), Ok(()));
            }
            None => assert!(matches!(read(&c), Err(EAGAIN))),
        }
    }
}

#[test]
fn a_signal_makes_an_interrupt_and_the_wait_goes_on() {
    let c = started();
    let (me, asks) = ask(&c);
    let (h, _) = await_request(&c);
    me.set(&me.signal);
    let (i, _) = await_request(&c);
    assert_eq!((i.op, i.unique), (Op::Interrupt as u32, h.unique | 1));
    // It is asked to say so again.
    answer(&c, i.unique, -EAGAIN.raw(), b"").unwrap();
    assert_eq!(read(&c).unwrap().0.unique, i.unique);
    answer(&c, h.unique, -EINTR.raw(), b"").unwrap();
    assert_eq!(asks.join().unwrap(), Err(EINTR));
    assert!(matches!(read(&c), Err(EAGAIN)));
}

#[test]
fn what_is_given_to_who_is_gone_is_given_back() {
    let c = started();
    let me = Arc::new(Me::default());
    let (task, asks) = (me.clone(), c.clone());
    let asks = std::thread::spawn(move || {
        let _acting = task.acts();
        let both = size_of::<EntryOut>() + size_of::<OpenOut>();
        let call = Call {
            op: Op::Create,
            answer: Answer::Exactly(both),
            ..QUESTION
        };
        asks.call(None, &call)
    });
    let (h, _) = await_request(&c);
    me.set(&me.killed);
    assert_eq!(asks.join().unwrap(), Err(EINTR));
    assert_eq!(read(&c).unwrap().0.op, Op::Interrupt as u32);
    let entry = EntryOut {
        node: 77,
        ..EntryOut::default()
    };
    let opened = OpenOut {
        fh: 5,
        ..OpenOut::default()
    };
    let both = [entry.as_bytes(), opened.as_bytes()].concat();
    answer(&c, h.unique, 0, &both).unwrap();
    let mut given: Vec<_> = std::iter::from_fn(|| read(&c).ok()).collect();
    given.sort_by_key(|(h, _)| h.op);
    let ops: Vec<_> = given.iter().map(|(h, _)| (h.op, h.node)).collect();
    assert_eq!(ops, [(Op::Forget as u32, 77), (Op::Release as u32, 77)]);
}

#[test]
fn the_end_is_everybodys() {
    let c = started();
    let (_, first) = ask(&c);
    await_request(&c);
    let (_, second) = ask(&c);
    while c.readiness() != wait::Events::READABLE | wait::Events::WRITABLE {
        std::thread::yield_now();
    }
    c.remove_device(DEVICE);
    assert_eq!(first.join().unwrap(), Err(ECONNABORTED));
    assert_eq!(second.join().unwrap(), Err(ECONNABORTED));
    assert!(matches!(read(&c), Err(ENODEV)));
    let (_, later) = ask(&c);
    assert_eq!(later.join().unwrap(), Err(ENOTCONN));
    assert_eq!(c.readiness(), wait::Events::ERR);
}

#[test]
fn forgets_neither_starve_nor_are_starved() {
    let c = started();
    for n in 0..100 {
        c.forget(n + 10, 1);
        let call = Call {
            op: Op::Release,
            node: n,
            parts: &[],
            answer: Answer::Exactly(0),
        };
        c.post(&call, Charged::default());
    }
    let (mut forgets, mut releases, mut longest, mut row) = (0, 0, 0, 0);
    while let Ok((h, body)) = read(&c) {
        if h.op == Op::Release as u32 {
            (releases, row) = (releases + 1, row + 1);
        } else {
            forgets += match h.op == Op::Forget as u32 {
                true => 1,
                false => u32::from_ne_bytes(body[..4].try_into().unwrap()),
            };
            longest = row.max(longest);
            row = 0;
        }
    }
    assert_eq!((forgets, releases), (100, 100));
    assert!(longest <= 24, "{longest} releases in a row");
}
