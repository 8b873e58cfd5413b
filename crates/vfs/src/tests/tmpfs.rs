use super::*;
use crate::fs::tmpfs::{ShmFs, add_seals, get_seals};
use abi::Va;
use abi::errno::*;
use abi::linux::*;
use clas::{Access, Backing, MappingObserver};
use proptest::prelude::*;
use std::sync::Mutex;

#[derive(Clone, Debug)]
enum Op {
    Write(u64, Vec<u8>),
    Truncate(u64),
    Punch(u64, u64),
    Allocate(u64, u64),
    Read(u64, usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = || 0u64..40_000;
    let op = prop_oneof![
        (at(), proptest::collection::vec(any::<u8>(), 1..9000)).prop_map(|(o, v)| Op::Write(o, v)),
        at().prop_map(Op::Truncate),
        (at(), 1u64..20_000).prop_map(|(o, n)| Op::Punch(o, n)),
        (at(), 1u64..20_000).prop_map(|(o, n)| Op::Allocate(o, n)),
        (at(), 1usize..20_000).prop_map(|(o, n)| Op::Read(o, n)),
    ];
    proptest::collection::vec(op, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_file_is_an_array_of_bytes(ops in ops()) {
        let r = Rig::new();
        let f = r.open("/f", O_CREAT | O_RDWR).unwrap();
        let mut model: Vec<u8> = Vec::new();
        for op in ops {
            match op {
                Op::Write(at, v) => {
                    f.seek(at as i64, 0).unwrap();
                    prop_assert_eq!(write(&f, &v), Ok(v.len()));
                    let end = at as usize + v.len();
                    if model.len() < end { model.resize(end, 0); }
                    model[at as usize..end].copy_from_slice(&v);
                }
                Op::Truncate(n) => {
                    r.cx().ftruncate(&f, n as i64).unwrap();
                    model.resize(n as usize, 0);
                }
                Op::Punch(at, n) => {
                    let mode = (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) as i32;
                    f.ops.allocate(mode, at, n).unwrap();
                    let end = (at + n).min(model.len() as u64) as usize;
                    if (at as usize) < end { model[at as usize..end].fill(0); }
                }
                Op::Allocate(at, n) => {
                    f.ops.allocate(0, at, n).unwrap();
                    let end = (at + n) as usize;
                    if model.len() < end { model.resize(end, 0); }
                }
                Op::Read(at, n) => {
                    f.seek(at as i64, 0).unwrap();
                    let from = (at as usize).min(model.len());
                    let to = (from + n).min(model.len());
                    prop_assert_eq!(&read(&f, n).unwrap()[..], &model[from..to]);
                }
            }
            prop_assert_eq!(f.ops.stat().unwrap().size, model.len() as u64);
        }
        f.seek(0, 0).unwrap();
        let all = read(&f, 100_000).unwrap();
        prop_assert_eq!(all, model);
        drop(f);
        r.unlink("/f").unwrap();
        prop_assert_eq!(r.clas.stats().allocated, 0);
    }
}

#[test]
fn holes() {
    let r = Rig::new();
    let f = r.open("/f", O_CREAT | O_RDWR).unwrap();
    f.seek(8192, 0).unwrap();
    write(&f, b"data").unwrap();
    r.cx().ftruncate(&f, 20_000).unwrap();
    assert_eq!(f.seek(0, 3), Ok(8192));
    assert_eq!(f.seek(0, 4), Ok(0));
    assert_eq!(f.seek(8200, 4), Ok(12_288));
    assert_eq!(f.seek(8200, 3), Ok(8200));
    assert_eq!(f.seek(13_000, 3), Err(ENXIO));
    assert_eq!(f.seek(20_000, 4), Err(ENXIO));
    assert_eq!(f.ops.stat().unwrap().blocks, 8);
    assert_eq!(f.seek(-1, 2), Ok(19_999));
    assert_eq!(
        f.ops.allocate(FALLOC_FL_COLLAPSE_RANGE as i32, 0, 4096),
        Err(EOPNOTSUPP)
    );
    // All or nothing.
    let before = r.clas.stats().allocated;
    assert!(f.ops.allocate(0, 0, 1 << 62).is_err());
    assert_eq!(f.ops.stat().unwrap().blocks, 8);
    assert_eq!(r.clas.stats().allocated, before);
    let a = r.open("/f", O_APPEND | O_WRONLY).unwrap();
    write(&a, b"end").unwrap();
    assert_eq!(f.ops.stat().unwrap().size, 20_003);
}

#[derive(Default)]
struct Seen(Mutex<Vec<(u64, u64)>>);
impl MappingObserver for Seen {
    fn invalidate(&self, places: &[(Va, u64)]) {
        let places = places.iter().map(|(va, len)| (va.0, *len));
        self.0.lock().unwrap().extend(places);
    }
}

#[test]
fn mappings_are_told_of_truncation() {
    let r = Rig::new();
    let f = r.open("/f", O_CREAT | O_RDWR).unwrap();
    write(&f, &[7; 10_000]).unwrap();
    let m = f.ops.mappable().unwrap();
    let seen = Arc::new(Seen::default());
    let weak: std::sync::Weak<dyn MappingObserver> = Arc::downgrade(&(seen.clone() as Arc<_>));
    m.add_mapping(weak.clone(), Va(0x10_0000), 0, 65536);
    let (Backing::Frames(cla), n) = m.backing(4096, 65536, Access::Read).unwrap() else {
        panic!()
    };
    assert_eq!(n, 8192);
    let mut b = [0; 1];
    r.clas.slice(cla, 1).copy_to(&mut b);
    assert_eq!(b, [7]);
    r.clas.decref(cla, 2);
    assert_eq!(m.backing(12_288, 4096, Access::Read).err(), Some(EFAULT));
    r.cx().ftruncate(&f, 4097).unwrap();
    assert_eq!(seen.0.lock().unwrap()[..], [(0x10_2000, 65536 - 8192)]);
    r.cx().ftruncate(&f, 8192).unwrap();
    f.seek(4096, 0).unwrap();
    assert_eq!(read(&f, 2).unwrap(), [7, 0]);
    m.remove_mapping(&weak, Va(0x10_0000), 0, 65536);
}

/// What is swapped out of a file is read, written, cut and mapped as if it were not.
#[test]
fn contents_that_are_away() {
    const P: u64 = 4096;
    let r = Rig::new();
    r.clas.swap_in_memory(1 << 20).unwrap();
    let f = r.open("/f", O_CREAT | O_RDWR).unwrap();
    let send = |pages: u64| {
        let pick = clas::FilePick {
            of: clas::AccountId::ROOT,
            may_go: &mut |_| true,
            is_over: &|| false,
        };
        r.clas.send_files(pages * P, pick) / P
    };
    let mut all: Vec<u8> = (0..40 * P).map(|i| (i / P + 1) as u8).collect();
    write(&f, &all).unwrap();
    // (It was just used: the first half of it stays for once.)
    assert_eq!(send(100), 40);
    let check = |all: &[u8]| {
        f.seek(0, 0).unwrap();
        assert_eq!(read(&f, all.len() + 10).unwrap(), all);
    };
    check(&all);
    assert_eq!(send(100), 40);
    // A part of a page, and more than one.
    f.seek(5 * P as i64 + 100, 0).unwrap();
    write(&f, &[0xaa; 5000]).unwrap();
    all[5 * P as usize + 100..][..5000].fill(0xaa);
    check(&all);
    assert_eq!(send(100), 40);
    f.ops
        .allocate(
            (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) as i32,
            7 * P + 5,
            2 * P,
        )
        .unwrap();
    all[7 * P as usize + 5..][..2 * P as usize].fill(0);
    check(&all);
    send(100);
    r.cx().ftruncate(&f, 20 * P as i64 + 10).unwrap();
    r.cx().ftruncate(&f, 21 * P as i64).unwrap();
    all.truncate(21 * P as usize);
    all[20 * P as usize + 10..].fill(0);
    check(&all);
    assert_eq!(f.ops.stat().unwrap().blocks, 20 * 8);
    // Who maps it gets what is here in a row, and keeps it.
    send(100);
    let m = f.ops.mappable().unwrap();
    let (Backing::Frames(cla), n) = m.backing(3 * P, 10 * P, Access::Read).unwrap() else {
        panic!()
    };
    assert_eq!(n, P);
    assert_eq!(send(100), 0);
    let mut b = [0; 1];
    r.clas.slice(cla, 1).copy_to(&mut b);
    assert_eq!(b, [4]);
    r.clas.decref(cla, 1);
    // Without room for any of it: a cut that needs some is refused, and changes nothing.
    assert_eq!(send(100), 1);
    r.clas.set_limit(P);
    let other = r.open("/g", O_CREAT | O_RDWR).unwrap();
    write(&other, &[1; P as usize]).unwrap();
    check(&all);
    assert_eq!(r.cx().ftruncate(&f, 10), Err(ENOMEM));
    f.seek(0, 0).unwrap();
    assert_eq!(write(&f, b"x"), Err(ENOMEM));
    check(&all);
    r.clas.set_limit(u64::MAX);
    r.cx().ftruncate(&f, 0).unwrap();
    assert_eq!(r.clas.swap_stats().used, 0);
}

#[test]
fn seals() {
    let r = Rig::new();
    let shm = ShmFs::new(&r.vfs, &r.clas);
    let f = shm.memfd(b"x", MFD_ALLOW_SEALING, &r.cred).unwrap();
    assert_eq!(
        f.path.as_ref().unwrap().describe(&r.fs.root()).display(),
        b"/memfd:x (deleted)"
    );
    write(&f, &[1; 5000]).unwrap();
    assert_eq!(get_seals(&f), Ok(0));
    add_seals(&f, F_SEAL_SHRINK).unwrap();
    assert_eq!(r.cx().ftruncate(&f, 10), Err(EPERM));
    assert_eq!(r.cx().ftruncate(&f, 6000), Ok(()));
    add_seals(&f, F_SEAL_GROW).unwrap();
    assert_eq!(r.cx().ftruncate(&f, 7000), Err(EPERM));
    f.seek(5999, 0).unwrap();
    assert_eq!(write(&f, b"12"), Err(EPERM));
    let m = f.ops.mappable().unwrap();
    m.map_writable().unwrap();
    assert_eq!(add_seals(&f, F_SEAL_WRITE), Err(EBUSY));
    m.unmap_writable();
    add_seals(&f, F_SEAL_WRITE | F_SEAL_SEAL).unwrap();
    assert_eq!(m.map_writable(), Err(EPERM));
    f.seek(0, 0).unwrap();
    assert_eq!(write(&f, b"1"), Err(EPERM));
    assert_eq!(add_seals(&f, F_SEAL_EXEC), Err(EPERM));
    let g = shm.memfd(b"x", 0, &r.cred).unwrap();
    assert_eq!(get_seals(&g), Ok(F_SEAL_SEAL));
    assert_eq!(shm.memfd(b"x", 0x8000, &r.cred).err(), Some(EINVAL));
}

#[test]
fn busy_programs() {
    let r = Rig::new();
    r.put("/prog", b"#!").unwrap();
    r.cx().chmod(&At::Cwd, b"/prog", 0o755, 0).unwrap();
    let walk = crate::walk::Walk::FOLLOW;
    let running = r.cx().open_exec(&At::Cwd, b"/prog", walk).unwrap();
    assert_eq!(r.open("/prog", O_WRONLY).err(), Some(ETXTBSY));
    assert_eq!(r.cx().truncate(b"/prog", 0), Err(ETXTBSY));
    drop(running);
    let w = r.open("/prog", O_WRONLY).unwrap();
    assert_eq!(
        r.cx().open_exec(&At::Cwd, b"/prog", walk).err(),
        Some(ETXTBSY)
    );
    drop(w);
    assert!(r.cx().open_exec(&At::Cwd, b"/prog", walk).is_ok());
}

#[test]
fn memory_devices() {
    let r = Rig::new();
    let dev = |n: &str, minor| {
        let mode = S_IFCHR | 0o666;
        r.cx()
            .mknod(&At::Cwd, n.as_bytes(), mode, crate::makedev(1, minor))
            .unwrap();
    };
    dev("/null", 3);
    dev("/zero", 5);
    dev("/full", 7);
    dev("/urandom", 9);
    dev("/unknown", 99);
    let open = |n: &str| r.open(n, O_RDWR).unwrap();
    assert_eq!(read(&open("/null"), 10), Ok(vec![]));
    assert_eq!(write(&open("/null"), b"xyz"), Ok(3));
    assert_eq!(read(&open("/zero"), 3), Ok(vec![0; 3]));
    assert_eq!(write(&open("/full"), b"xyz"), Err(ENOSPC));
    assert_ne!(read(&open("/urandom"), 32), Ok(vec![0; 32]));
    assert_eq!(r.open("/unknown", O_RDWR).err(), Some(ENXIO));
    assert_eq!(crate::ops::fstat(&open("/null")).unwrap().rdev, 0x103);
}

#[test]
fn an_inode_is_paid_for_by_who_makes_it() {
    use crate::ucounts::Kind;
    use crate::userns::UserNs;
    let r = Rig::new();
    let outside = Credentials::user(72_000, 72_000, vec![]);
    let held = |c: &Credentials| c.ucounts().count(Kind::Kmem);
    let mut inside = UserNs::create(&crate::userns::Registry::default(), &outside).unwrap();
    // A user of a range that its maker was given.
    let other = Credentials::user(72_001, 72_001, vec![]);
    (inside.uid, inside.fsuid) = (72_001, 72_001);
    inside.counts = Default::default();
    r.mkdir("/all").unwrap();
    r.cx().chmod(&At::Cwd, b"/all", 0o777, 0).unwrap();
    let dir = r.open("/all", O_DIRECTORY).unwrap();
    let dir = dir.path.as_ref().unwrap().inode().unwrap();
    let cred = Arc::new(inside);
    let caller = Caller {
        cred: &cred,
        task: &(),
    };
    let new = crate::NewNode {
        mode: 0o600,
        uid: 72_001,
        gid: 72_001,
    };
    let (before, others) = (held(&outside), held(&other));
    let made = dir.create(&caller, b"f", new).unwrap();
    made.set_xattr(b"security.capability", &[0; 1000], 0)
        .unwrap();
    let with = held(&outside);
    assert!(with > before + 1000);
    assert_eq!(held(&other), others);
    // Which goes with the attribute.
    made.forget_capabilities();
    assert!(held(&outside) <= with - 1000);
    assert_eq!(made.get_xattr(b"security.capability").err(), Some(ENODATA));
}
