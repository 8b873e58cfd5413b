use super::*;
use crate::FdTable;
use crate::fd_table::{CloseOnExec, Room};
use crate::ucounts::Kind;
use abi::errno::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Op {
    Install,
    From(i32),
    At(i32),
    Close(i32),
    Range(u32, u32),
    Reserve,
    Exec,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let fd = || prop_oneof![0i32..10, 0i32..200, 0..4300];
    let op = prop_oneof![
        4 => Just(Op::Install),
        2 => fd().prop_map(Op::From),
        2 => fd().prop_map(Op::At),
        3 => fd().prop_map(Op::Close),
        1 => (0u32..200, 0u32..200).prop_map(|(a, b)| Op::Range(a, b)),
        1 => Just(Op::Reserve),
        1 => Just(Op::Exec),
    ];
    proptest::collection::vec(op, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn descriptors_are_the_lowest_free(ops in ops(), dense in 0usize..5000) {
        let r = Rig::new();
        let file = r.open("/", 0).unwrap();
        let t = FdTable::new();
        let limit = 4200u64;
        let room = &Room { limit, cred: r.cred.clone() };
        let mut model: BTreeMap<i32, u64> = BTreeMap::new();
        let lowest = |m: &BTreeMap<i32, u64>, min: i32| (min..).find(|fd| !m.contains_key(fd)).unwrap();
        for i in 0..dense.min(limit as usize) {
            prop_assert_eq!(t.install(file.clone(), CloseOnExec::No, room), Ok(i as i32));
            model.insert(i as i32, 0);
        }
        for (n, op) in ops.into_iter().enumerate() {
            let cloexec = if n % 3 == 0 { CloseOnExec::Yes } else { CloseOnExec::No };
            let mark = u64::from(cloexec == CloseOnExec::Yes);
            match op {
                Op::Install => {
                    let fd = lowest(&model, 0);
                    let want = if (fd as u64) < limit { Ok(fd) } else { Err(EMFILE) };
                    prop_assert_eq!(t.install(file.clone(), cloexec, room), want);
                    if want.is_ok() { model.insert(fd, mark); }
                }
                Op::From(min) => {
                    let fd = lowest(&model, min);
                    let want = if min as u64 >= limit { Err(EINVAL) }
                        else if (fd as u64) < limit { Ok(fd) } else { Err(EMFILE) };
                    prop_assert_eq!(t.install_from(min, file.clone(), cloexec, room), want);
                    if want.is_ok() { model.insert(fd, mark); }
                }
                Op::At(fd) => {
                    let want = if (fd as u64) < limit { Ok(fd) } else { Err(EBADF) };
                    prop_assert_eq!(t.install_at(fd, file.clone(), cloexec, room), want);
                    if want.is_ok() { model.insert(fd, mark); }
                }
                Op::Close(fd) => {
                    let want = model.remove(&fd).map(|_| ()).ok_or(EBADF);
                    prop_assert_eq!(t.close(fd), want);
                }
                Op::Range(a, b) => {
                    t.close_range(a, b);
                    model.retain(|&fd, _| (fd as u32) < a || (fd as u32) > b);
                }
                Op::Reserve => {
                    if let Ok(res) = t.reserve(room) {
                        prop_assert_eq!(res.number(), lowest(&model, 0));
                        prop_assert_eq!(t.get(res.number()).err(), Some(EBADF));
                        prop_assert_eq!(t.install_at(res.number(), file.clone(), cloexec, room), Err(EBUSY));
                    }
                }
                Op::Exec => {
                    t.exec();
                    model.retain(|_, m| *m == 0);
                }
            }
        }
        prop_assert_eq!(t.list(0), model.keys().copied().collect::<Vec<_>>());
        let f = t.fork(&crate::Credentials::root()).unwrap();
        prop_assert_eq!(f.list(0), t.list(0));
        drop(t);
        f.close_all();
        prop_assert_eq!(Arc::strong_count(&file), 1);
    }
}

#[test]
fn a_large_table_is_its_users_whoever_opened_the_file() {
    const NR_OPEN: u64 = 1 << 20;
    let r = Rig::new();
    let file = r.open("/", 0).unwrap();
    let cred = Arc::new(Credentials::user(71_000, 71_000, vec![]));
    let room = Room {
        limit: NR_OPEN,
        cred: cred.clone(),
    };
    let held = |c: &Credentials| c.ucounts().count(Kind::Kmem);
    let mut tables = Vec::new();
    let refused = loop {
        let t = FdTable::new();
        if let Err(e) = t.install_at(NR_OPEN as i32 - 1, file.clone(), CloseOnExec::No, &room) {
            break e;
        }
        tables.push(t);
    };
    assert_eq!(refused, ENOMEM);
    assert_eq!(held(&cred), tables.len() as i64 * 8 * NR_OPEN as i64);
    assert_eq!(tables[0].fork(&cred).err(), Some(ENOMEM));
    // A copy has room for what is open.
    tables[0].install(file, CloseOnExec::No, &room).unwrap();
    tables[0].close(NR_OPEN as i32 - 1).unwrap();
    assert!(tables[0].fork(&cred).is_ok());
    tables.clear();
    assert_eq!(held(&cred), 0);
}

#[test]
fn a_copy_has_no_more_numbers_than_there_may_be() {
    let r = Rig::new();
    let file = r.open("/", 0).unwrap();
    let cred = Arc::new(Credentials::user(71_001, 71_001, vec![]));
    let room = Room {
        limit: 1000,
        cred: cred.clone(),
    };
    let t = FdTable::new();
    t.install_at(127, file.clone(), CloseOnExec::No, &room)
        .unwrap();
    let copy = |limit| t.copy(limit, |bytes| cred.kmem(bytes, ENOMEM)).err();
    assert_eq!(copy(128), None);
    assert_eq!(copy(65), None);
    assert_eq!(copy(64), Some(EMFILE));
    t.install_at(128, file, CloseOnExec::No, &room).unwrap();
    assert_eq!(copy(128), Some(EMFILE));
}
