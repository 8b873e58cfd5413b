use super::*;
use crate::FdTable;
use crate::fd_table::CloseOnExec;
use crate::locks::{LockKind, LockRange, Owner};
use crate::ops::Wait;
use abi::errno::*;
use abi::linux::*;
use proptest::prelude::*;
use std::time::Duration;

fn range(start: u64, end: u64) -> LockRange {
    LockRange { start, end }
}

#[test]
fn ranges_from_struct_flock() {
    assert_eq!(LockRange::new(10, -4, 0), Ok(range(6, i64::MAX as u64)));
    assert_eq!(LockRange::new(10, 0, 5), Ok(range(10, 14)));
    assert_eq!(LockRange::new(10, 0, -5), Ok(range(5, 9)));
    assert_eq!(LockRange::new(10, -11, 1), Err(EINVAL));
    assert_eq!(LockRange::new(0, i64::MAX, 2), Err(EOVERFLOW));
}

#[test]
fn any_close_releases_posix_locks_and_the_last_one_the_others() {
    let r = Rig::new();
    r.put("/f", b"").unwrap();
    let (a, b) = (FdTable::new(), FdTable::new());
    let open = || r.open("/f", O_RDWR).unwrap();
    let (f, g, h) = (open(), open(), open());
    let room = crate::fd_table::Room {
        limit: 10,
        cred: r.cred.clone(),
    };
    let second = a.install(open(), CloseOnExec::No, &room).unwrap();
    let c = r.cx();
    let (pa, pb) = (Owner::Posix(a.id()), Owner::Posix(b.id()));
    let w = Some(LockKind::Write);
    c.set_lock(&f, pa, w, range(0, 9), 1, Wait::No).unwrap();
    c.set_lock(&g, pb, w, range(20, 29), 2, Wait::No).unwrap();
    assert_eq!(c.set_lock(&g, pb, w, range(9, 9), 2, Wait::No), Err(EAGAIN));
    let got = c
        .get_lock(&g, pb, LockKind::Read, range(0, 100))
        .unwrap()
        .unwrap();
    assert_eq!((got.pid, got.range), (1, range(0, 9)));
    a.close(second).unwrap();
    assert_eq!(c.get_lock(&g, pb, LockKind::Write, range(0, 100)), Ok(None));
    // Open-file locks and flock, until the last reference goes.
    let of = Owner::OpenFile(h.id);
    assert_eq!(
        c.set_lock(&h, of, w, range(25, 25), -1, Wait::No),
        Err(EAGAIN)
    );
    c.set_lock(&h, of, w, range(0, 0), -1, Wait::No).unwrap();
    c.flock(&h, w, 1, Wait::No).unwrap();
    assert_eq!(c.flock(&f, Some(LockKind::Read), 1, Wait::No), Err(EAGAIN));
    drop(h);
    c.flock(&f, Some(LockKind::Read), 1, Wait::No).unwrap();
    c.flock(&g, Some(LockKind::Read), 1, Wait::No).unwrap();
    assert_eq!(c.get_lock(&g, pb, LockKind::Write, range(0, 10)), Ok(None));
    let ro = r.open("/f", O_RDONLY).unwrap();
    assert_eq!(c.set_lock(&ro, pa, w, range(0, 0), 1, Wait::No), Err(EBADF));
}

#[test]
fn deadlocks_are_found_and_waiters_are_woken() {
    let r = Arc::new(Rig::new());
    r.put("/f", b"").unwrap();
    let f = r.open("/f", O_RDWR).unwrap();
    let w = Some(LockKind::Write);
    let (a, b) = (Owner::Posix(1001), Owner::Posix(1002));
    r.cx().set_lock(&f, a, w, range(0, 0), 1, Wait::No).unwrap();
    r.cx().set_lock(&f, b, w, range(1, 1), 2, Wait::No).unwrap();
    let (r2, f2) = (r.user(0, 0), f.clone());
    let waiter = std::thread::spawn(move || r2.cx().set_lock(&f2, b, w, range(0, 0), 2, Wait::Yes));
    // Until the other waits, this is a plain conflict; afterwards it is a deadlock.
    loop {
        std::thread::sleep(Duration::from_millis(5));
        if r.cx().set_lock(&f, a, w, range(1, 1), 1, Wait::No) != Err(EAGAIN) {
            panic!("the lock is held");
        }
        if waiter.is_finished() {
            panic!("it must wait");
        }
        let locks = f.path.as_ref().unwrap().inode().unwrap().ext().locks();
        if locks.is_waited_for() {
            break;
        }
    }
    assert_eq!(
        r.cx().set_lock(&f, a, w, range(1, 1), 1, Wait::Yes),
        Err(EDEADLK)
    );
    r.cx()
        .set_lock(&f, a, None, range(0, 0), 1, Wait::No)
        .unwrap();
    assert_eq!(waiter.join().unwrap(), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn record_locks_are_bytes(ops in proptest::collection::vec((0u64..3, 0u8..3, 0u64..30, 0u64..10), 1..60)) {
        let locks = crate::locks::FileLocks::default();
        // Per byte and owner: 0 none, 1 read, 2 write.
        let mut model = [[0u8; 3]; 40];
        for (who, kind, start, len) in ops {
            let r = range(start, start + len);
            let owner = Owner::Posix(who);
            let bytes = start as usize..=(start + len) as usize;
            if kind == 0 {
                locks.unlock(owner, r).unwrap();
                for b in bytes { model[b][who as usize] = 0; }
                continue;
            }
            let k = if kind == 1 { LockKind::Read } else { LockKind::Write };
            let clash = bytes.clone().any(|b| (0..3).any(|o| {
                o != who as usize && model[b][o] != 0 && (kind == 2 || model[b][o] == 2)
            }));
            prop_assert_eq!(locks.test(owner, k, r).is_some(), clash);
            let got = locks.lock(owner, k, r, 0, crate::Credentials::root().ucounts());
            prop_assert_eq!(got, if clash { Err(EAGAIN) } else { Ok(()) });
            if !clash {
                for b in bytes { model[b][who as usize] = kind; }
            }
        }
    }
}

/// Counts what a holder is told.
#[derive(Default)]
struct MessageCount(std::sync::atomic::AtomicU32);

impl crate::sigio::Messenger for MessageCount {
    fn message(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn leases_are_broken_and_taken_in_time() {
    use std::sync::atomic::Ordering::SeqCst;
    let r = Rig::new();
    r.put("/f", b"text").unwrap();
    let cred = Credentials::root();
    let told = Arc::new(MessageCount::default());
    let f = r.open("/f", O_RDONLY).unwrap();
    let take = |kind| {
        let asker = crate::leases::Asker {
            pid: 7,
            owner: crate::sigio::Owner::default(),
            messenger: told.clone(),
            cred: &cred,
        };
        f.set_lease(kind, asker)
    };
    let nonblocking = |flags| r.open("/f", flags | O_NONBLOCK).map(|_| ());
    assert_eq!(take(None), Err(EAGAIN));
    take(Some(LockKind::Write)).unwrap();
    assert_eq!(nonblocking(O_RDONLY), Err(EAGAIN));
    assert_eq!(nonblocking(O_RDONLY), Err(EAGAIN));
    assert_eq!((told.0.load(SeqCst), f.lease()), (1, Some(LockKind::Read)));
    take(Some(LockKind::Read)).unwrap();
    assert_eq!(nonblocking(O_RDONLY), Ok(()));
    assert_eq!(nonblocking(O_WRONLY), Err(EAGAIN));
    assert_eq!((told.0.load(SeqCst), f.lease()), (2, None));
    let shown = f
        .path
        .as_ref()
        .unwrap()
        .inode()
        .unwrap()
        .ext()
        .shown_leases();
    assert!(shown.iter().all(|s| s.breaking && s.pid == 7) && shown.len() == 1);
    take(None).unwrap();
    assert_eq!(nonblocking(O_WRONLY), Ok(()));
    // Its holder does not give it up: it is taken.
    crate::leases::BREAK_TIME.store(1, SeqCst);
    take(Some(LockKind::Read)).unwrap();
    let start = std::time::Instant::now();
    let w = r.open("/f", O_WRONLY).unwrap();
    crate::leases::BREAK_TIME.store(45, SeqCst);
    assert!(start.elapsed() >= Duration::from_millis(900));
    assert_eq!((take(None), f.lease()), (Err(EAGAIN), None));
    drop(w);
    take(Some(LockKind::Write)).unwrap();
    drop(f);
    assert_eq!(nonblocking(O_RDWR), Ok(()));
}
