use super::msg::{Msg, MsgQueue, Want};
use super::sem::{GETNCNT, GETVAL, SEM_UNDO, SemOp, SemSet};
use super::*;
use crate::testing::Me;
use abi::errno::{E2BIG, EAGAIN, EFBIG, EIDRM, ENOMSG, ERANGE};

fn root() -> Credentials {
    Credentials::root()
}
fn op(num: u16, op: i16, flags: u32) -> SemOp {
    SemOp {
        num,
        op,
        flags: flags as i16,
    }
}

fn make_sem(ns: &IpcNamespace, key: i32, n: usize, flags: u32) -> Result<i32> {
    ns.sem.get_or_make(
        key,
        flags,
        &root(),
        |_| Ok(()),
        |id, p| SemSet::new(ns, id, p, n, &root()),
    )
}

#[test]
fn keys_and_numbers() {
    let ns = IpcNamespace::new();
    assert_eq!(make_sem(&ns, 5, 1, 0o600), Err(ENOENT));
    let id = make_sem(&ns, 5, 1, 0o600 | IPC_CREAT).unwrap();
    assert_eq!(make_sem(&ns, 5, 1, 0o600 | IPC_CREAT), Ok(id));
    assert_eq!(make_sem(&ns, 5, 1, IPC_CREAT | IPC_EXCL), Err(EEXIST));
    let a = make_sem(&ns, IPC_PRIVATE, 1, 0o600).unwrap();
    assert_ne!(make_sem(&ns, IPC_PRIVATE, 1, 0o600).unwrap(), a);
    ns.sem.get(id).unwrap().remove(&root()).unwrap();
    assert_eq!(ns.sem.get(id).err(), Some(EINVAL));
    let again = make_sem(&ns, 5, 1, 0o600 | IPC_CREAT).unwrap();
    assert_ne!(again, id);
    let other = Credentials::user(7, 7, vec![]);
    let s = ns.sem.get(again).unwrap();
    assert_eq!(s.remove(&other), Err(EPERM));
    assert_eq!(s.get(&other, 0, GETVAL), Err(EACCES));
}

#[test]
fn semaphores_do_all_or_nothing() {
    let ns = IpcNamespace::new();
    let s = ns.sem.get(make_sem(&ns, 0, 2, 0o600).unwrap()).unwrap();
    let me = Me::new();
    let run = |ops: &[SemOp]| s.operate(&me, &root(), 1, ops, None);
    assert_eq!(run(&[op(0, 3, 0)]), Ok(()));
    assert_eq!(
        run(&[op(0, -1, IPC_NOWAIT), op(1, -1, IPC_NOWAIT)]),
        Err(EAGAIN)
    );
    assert_eq!(s.get(&root(), 0, GETVAL), Ok(3));
    assert_eq!(run(&[op(2, 1, 0)]), Err(EFBIG));
    assert_eq!(run(&[op(0, 32767, 0)]), Err(ERANGE));
    assert_eq!(run(&[op(0, 0, IPC_NOWAIT)]), Err(EAGAIN));
    assert_eq!(run(&[op(0, -3, SEM_UNDO as u32), op(0, 0, 0)]), Ok(()));
    ns.process_ended(1);
    assert_eq!(s.get_all(&root()), Ok(vec![3, 0]));
    ns.process_ended(1);
    assert_eq!(s.get_all(&root()), Ok(vec![3, 0]));
    let soon = Instant::now() + std::time::Duration::from_millis(3);
    assert_eq!(
        s.operate(&me, &root(), 1, &[op(1, -1, 0)], Some(soon)),
        Err(EAGAIN)
    );
    let s2 = s.clone();
    let t = std::thread::spawn(move || s2.operate(&Me::new(), &root(), 2, &[op(1, -1, 0)], None));
    while s.get(&root(), 1, GETNCNT) != Ok(1) {
        std::thread::yield_now();
    }
    s.set_value(&root(), 1, 1, 1).unwrap();
    assert_eq!(t.join().unwrap(), Ok(()));
    let s2 = s.clone();
    let t = std::thread::spawn(move || s2.operate(&Me::new(), &root(), 2, &[op(1, -1, 0)], None));
    while s.get(&root(), 1, GETNCNT) != Ok(1) {
        std::thread::yield_now();
    }
    s.remove(&root()).unwrap();
    assert_eq!(t.join().unwrap(), Err(EIDRM));
}

use std::time::Instant;

#[test]
fn messages_by_type() {
    let ns = IpcNamespace::new();
    let id = ns
        .msg
        .get_or_make(
            9,
            IPC_CREAT | 0o600,
            &root(),
            |_| Ok(()),
            |id, p| MsgQueue::new(&ns, id, p, &root()),
        )
        .unwrap();
    let q = ns.msg.get(id).unwrap();
    let me = Me::new();
    let send = |kind, n: usize| {
        q.send(
            &me,
            &root(),
            1,
            Msg {
                kind,
                data: vec![kind as u8; n],
            },
            IPC_NOWAIT,
        )
    };
    let get = |kind, room, flags| {
        q.receive(
            &me,
            &root(),
            1,
            room,
            Want::new(kind, flags),
            flags | IPC_NOWAIT,
        )
        .map(|m| (m.kind, m.data.len()))
    };
    for k in [5, 3, 4, 3] {
        send(k, 8).unwrap();
    }
    assert_eq!(get(0, 8, msg::MSG_COPY), Ok((5, 8)));
    assert_eq!(get(3, 4, 0), Err(E2BIG));
    assert_eq!(get(3, 4, msg::MSG_NOERROR), Ok((3, 4)));
    assert_eq!(get(-4, 8, 0), Ok((3, 8)));
    assert_eq!(get(4, 8, msg::MSG_EXCEPT), Ok((5, 8)));
    assert_eq!(get(0, 8, 0), Ok((4, 8)));
    assert_eq!(get(0, 8, 0), Err(ENOMSG));
    send(1, 8192).unwrap();
    send(1, 8192).unwrap();
    assert_eq!(send(1, 1), Err(EAGAIN));
    assert_eq!(q.usage(), (2, 16384));
}
