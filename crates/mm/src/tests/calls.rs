//! Single calls and their errors.

use super::*;
use abi::errno::{EACCES, EAGAIN, EEXIST, EINVAL, ENAMETOOLONG, EPERM};
use abi::linux::*;
use abi::signal::{SIGBUS, SIGSEGV};

fn app() -> App {
    App::new(&Clas::new().unwrap())
}

const RW: u32 = PROT_READ | PROT_WRITE;

#[test]
fn eager_mappings_merge_top_down() {
    let a = app();
    let first = a.anon(3 * P, RW, 0).unwrap();
    let second = a.anon(5 * P, RW, 0).unwrap();
    assert_eq!(second.0 + 5 * P, first.0);
    assert_eq!(a.mm.vmas().len(), 1);
    assert_eq!(a.space.pages.lock().len(), 8);
    // One run of frames serves both.
    assert_eq!(a.mm.state.lock().pmas.len(), 1);
    a.store(first.0, 1).unwrap();
    assert_eq!(a.mm.sizes().faults, 0);
    a.check();
}

#[test]
fn mmap_errors() {
    let a = app();
    let err = |addr, len, prot, flags, offset| {
        a.mm.mmap(MmapRequest {
            addr: Va(addr),
            len,
            prot,
            flags,
            offset,
            file: None,
        })
        .unwrap_err()
    };
    let anon = MAP_PRIVATE | MAP_ANONYMOUS;
    assert_eq!(err(0, 0, RW, anon, 0), EINVAL);
    assert_eq!(err(0, u64::MAX, RW, anon, 0), ENOMEM);
    assert_eq!(err(0, 1 << 48, RW, anon, 0), ENOMEM);
    assert_eq!(err(0, P, RW, MAP_ANONYMOUS, 0), EINVAL);
    assert_eq!(
        err(0, P, RW, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, 0),
        EINVAL
    );
    assert_eq!(err(0, P, RW, anon, 5), EINVAL);
    assert_eq!(err(0, P, RW, anon | MAP_HUGETLB, 0), ENOMEM);
    assert_eq!(err(0x1000, P, RW, anon | MAP_FIXED, 0), EPERM);
    assert_eq!(err(0x10_0001, P, RW, anon | MAP_FIXED, 0), EINVAL);
    assert_eq!(err(USER_MAX, P, RW, anon | MAP_FIXED, 0), ENOMEM);
    let at = a.anon(P, RW, 0).unwrap();
    assert_eq!(err(at.0, P, RW, anon | MAP_FIXED_NOREPLACE, 0), EEXIST);
    a.mm.set_limits(Limits {
        address_space: 4 * P,
        ..Limits::default()
    });
    assert_eq!(err(0, 4 * P, RW, anon, 0), ENOMEM);
    // Replacing makes room.
    a.map(at, 4 * P, RW, MAP_FIXED | MAP_ANONYMOUS, None)
        .unwrap();
    a.mm.set_limits(Limits {
        memlock: P,
        ..Limits::default()
    });
    assert_eq!(err(0, 2 * P, RW, anon | MAP_LOCKED, 0), EAGAIN);
    a.mm.set_limits(Limits {
        memlock: 0,
        ..Limits::default()
    });
    assert_eq!(err(0, 2 * P, RW, anon | MAP_LOCKED, 0), EPERM);
    let f = TestFile::host(a.mm.clas(), P);
    let ro = MapFile {
        writable: false,
        ..f.file()
    };
    assert_eq!(
        a.map(Va(0), P, RW, MAP_SHARED, Some(ro.clone()))
            .unwrap_err(),
        EACCES
    );
    let m = a.map(Va(0), P, PROT_READ, MAP_SHARED, Some(ro)).unwrap();
    assert_eq!(a.mm.mprotect(m, P, RW), Err(EACCES));
    let noexec = MapFile {
        noexec: true,
        ..f.file()
    };
    assert_eq!(
        a.map(Va(0), P, PROT_EXEC, 0, Some(noexec)).unwrap_err(),
        EPERM
    );
    a.mm.munmap(Va(0), USER_MAX).unwrap();
    a.mm.set_limits(Limits::default());
    a.mm.set_max_map_count(2);
    let at = a.anon(3 * P, RW, 0).unwrap();
    a.mm.mprotect(at, P, PROT_READ).unwrap();
    assert_eq!(a.mm.mprotect(Va(at.0 + P), P, PROT_NONE), Err(ENOMEM));
    assert_eq!(a.mm.munmap(Va(at.0 + P), P), Ok(()));
    a.check();
}

#[test]
fn hints() {
    let a = app();
    let hint = Va(0x5000_0000_0123);
    let at = a.map(hint, P, RW, MAP_ANONYMOUS, None).unwrap();
    assert_eq!(at, hint.page_down());
    assert_ne!(a.map(hint, P, RW, MAP_ANONYMOUS, None).unwrap(), at);
    let low = a.anon(P, RW, MAP_32BIT).unwrap();
    assert!((0x4000_0000..0x8000_0000).contains(&low.0));
}

#[test]
fn a_stack_grows_and_keeps_its_gap() {
    let a = app();
    let top = 0x7000_0000_0000u64;
    a.map(
        Va(top - P),
        P,
        RW,
        FIXED | MAP_ANONYMOUS | MAP_GROWSDOWN,
        None,
    )
    .unwrap();
    a.store(top - 200 * P, 1).unwrap();
    assert_eq!(a.load(top - 200 * P).unwrap(), 1);
    // The Sentry's copies grow it too.
    a.mm.copy_out(Va(top - 300 * P), b"x").unwrap();
    let f = a.store(top - (8 << 20) - 1, 1).unwrap_err();
    assert_eq!((f.signal, f.code), (SIGSEGV, 1));
    let start = a.mm.find_vma(Va(top - P)).unwrap().start;
    // Another mapping keeps away, and stops it 256 pages before.
    let hint = Va(start - 10 * P);
    assert_ne!(a.map(hint, P, RW, MAP_ANONYMOUS, None).unwrap(), hint);
    a.map(hint, P, RW, FIXED | MAP_ANONYMOUS, None).unwrap();
    assert!(a.store(start - 1, 1).is_err());
    a.check();
}

#[test]
fn faults_tell_why() {
    let a = app();
    let f = a.load(0x1234).unwrap_err();
    assert_eq!((f.signal, f.code, f.addr), (SIGSEGV, 1, Va(0x1234)));
    let at = a.anon(2 * P, PROT_READ, 0).unwrap();
    let f = a.store(at.0, 1).unwrap_err();
    assert_eq!((f.signal, f.code), (SIGSEGV, 2));
    let file = TestFile::host(a.mm.clas(), P + 1);
    let m = a
        .map(Va(0), 4 * P, RW, MAP_SHARED, Some(file.file()))
        .unwrap();
    a.store(m.0 + P, 1).unwrap();
    assert_eq!(a.load(m.0 + 2 * P).unwrap_err().signal, SIGBUS);
    // Truncated after it was mapped.
    file.truncate(P);
    assert_eq!(a.load(m.0 + P).unwrap_err().signal, SIGBUS);
    assert_eq!(a.mm.copy_out(Va(m.0 + P - 1), b"ab"), Err(EFAULT));
    a.check();
}

#[test]
fn cow_after_the_child_is_gone_copies_nothing() {
    let a = app();
    let at = a.anon(1 << 20, RW, 0).unwrap();
    a.store(at.0, 1).unwrap();
    let before = a.mm.state.lock().pmas.get(at.0).map(|e| *e.1);
    let child = a.fork();
    assert_eq!(child.load(at.0).unwrap(), 1);
    child.store(at.0, 2).unwrap();
    assert_eq!((a.load(at.0).unwrap(), child.load(at.0).unwrap()), (1, 2));
    drop(child);
    a.store(at.0 + P, 3).unwrap();
    assert_eq!(a.mm.state.lock().pmas.get(at.0).map(|e| *e.1), before);
    assert_eq!(a.mm.clas().stats().allocated, 1 << 20);
    a.check();
}

#[test]
fn brk_moves_and_stops() {
    let a = app();
    a.mm.update_layout(|l| (l.start_brk, l.brk) = (0x1000_0800, 0x1000_0800));
    assert_eq!(a.mm.brk(Va(0)), Va(0x1000_0800));
    assert_eq!(a.mm.brk(Va(0x1000_4001)), Va(0x1000_4001));
    a.store(0x1000_4fff, 1).unwrap();
    assert_eq!(a.mm.find_vma(Va(0x1000_1000)).unwrap().name(), b"[heap]");
    a.mm.set_limits(Limits {
        data: 0x5000,
        ..Limits::default()
    });
    assert_eq!(a.mm.brk(Va(0x1000_9000)), Va(0x1000_4001));
    assert_eq!(a.mm.brk(Va(0x1000_1000)), Va(0x1000_1000));
    assert!(a.load(0x1000_2000).is_err());
    a.map(Va(0x1000_3000), P, RW, FIXED | MAP_ANONYMOUS, None)
        .unwrap();
    assert_eq!(a.mm.brk(Va(0x1000_2001)), Va(0x1000_1000));
    a.check();
}

#[test]
fn mremap_grows_moves_and_duplicates() {
    let a = app();
    let at = Va(0x2000_0000);
    a.map(at, 2 * P, RW, FIXED | MAP_ANONYMOUS, None).unwrap();
    a.store(at.0 + P, 7).unwrap();
    assert_eq!(a.mm.mremap(at, 2 * P, 4 * P, 0, Va(0)), Ok(at));
    a.map(Va(at.0 + 4 * P), P, PROT_READ, FIXED | MAP_ANONYMOUS, None)
        .unwrap();
    assert_eq!(a.mm.mremap(at, 4 * P, 5 * P, 0, Va(0)), Err(ENOMEM));
    let to =
        a.mm.mremap(at, 4 * P, 64 * P, MREMAP_MAYMOVE, Va(0))
            .unwrap();
    assert_eq!(a.load(to.0 + P).unwrap(), 7);
    assert!(a.load(at.0).is_err());
    assert_eq!(a.mm.mremap(to, 64 * P, P, 0, Va(0)), Ok(to));
    assert_eq!(a.mm.mremap(to, 0, P, MREMAP_MAYMOVE, Va(0)), Err(EINVAL));
    assert_eq!(
        a.mm.mremap(to, 2 * P, 3 * P, MREMAP_MAYMOVE, Va(0)),
        Err(EFAULT)
    );
    let dont = MREMAP_MAYMOVE | MREMAP_DONTUNMAP;
    a.store(to.0, 9).unwrap();
    let moved = a.mm.mremap(to, P, P, dont, Va(0)).unwrap();
    assert_eq!((a.load(moved.0).unwrap(), a.load(to.0).unwrap()), (9, 0));
    let s = a.anon(P, RW, MAP_SHARED).unwrap();
    let twin = a.mm.mremap(s, 0, P, MREMAP_MAYMOVE, Va(0)).unwrap();
    a.store(s.0, 5).unwrap();
    assert_eq!(a.load(twin.0).unwrap(), 5);
    a.check();
}

#[test]
fn advice() {
    let a = app();
    let at = a.anon(4 * P, RW, 0).unwrap();
    a.store(at.0, 1).unwrap();
    let ops = a.space.pages.lock().len();
    a.mm.madvise(at, P, MADV_DONTNEED).unwrap();
    // Emptied in place: no host mapping was touched.
    assert_eq!(a.space.pages.lock().len(), ops);
    assert_eq!(a.load(at.0).unwrap(), 0);
    assert_eq!(a.mm.madvise(at, 8 * P, MADV_DONTNEED), Err(ENOMEM));
    assert_eq!(a.mm.madvise(at, P, 77), Err(EINVAL));
    assert_eq!(a.mm.madvise(Va(at.0 + 1), P, MADV_DONTNEED), Err(EINVAL));
    a.mm.madvise(at, P, MADV_WIPEONFORK).unwrap();
    a.mm.madvise(Va(at.0 + P), P, MADV_DONTFORK).unwrap();
    (0..4).for_each(|i| a.store(at.0 + i * P, 3).unwrap());
    let c = a.fork();
    assert_eq!(c.load(at.0).unwrap(), 0);
    assert!(c.load(at.0 + P).is_err());
    assert_eq!(c.load(at.0 + 2 * P).unwrap(), 3);
    a.mm.mlock(at, P, 0).unwrap();
    assert_eq!(a.mm.sizes().locked, P);
    assert_eq!(a.mm.madvise(at, P, MADV_DONTNEED), Err(EINVAL));
    a.mm.munlock(at, P).unwrap();
    let s = a.anon(2 * P, RW, MAP_SHARED).unwrap();
    a.store(s.0, 1).unwrap();
    a.mm.madvise(s, P, MADV_REMOVE).unwrap();
    assert_eq!(a.load(s.0).unwrap(), 0);
    assert_eq!(a.mm.madvise(at, P, MADV_REMOVE), Err(EINVAL));
    a.mm.madvise(at, 2 * P, MADV_POPULATE_WRITE).unwrap();
    assert_eq!(a.mm.msync(at, P, MS_SYNC | MS_ASYNC), Err(EINVAL));
    assert_eq!(a.mm.msync(at, 400 * P, MS_SYNC), Err(ENOMEM));
    let mut seen = Vec::new();
    a.mm.mincore(s, 2 * P, &mut |b| {
        seen.extend_from_slice(b);
        Ok(())
    })
    .unwrap();
    assert_eq!(seen.len(), 2);
    a.check();
}

#[test]
fn what_is_droppable_is_nobody_elses() {
    let a = app();
    let map = |flags| {
        a.mm.mmap(MmapRequest {
            addr: Va(0),
            len: 2 * P,
            prot: RW,
            flags: MAP_DROPPABLE | MAP_ANONYMOUS | flags,
            offset: 0,
            file: None,
        })
    };
    for bad in [MAP_LOCKED, MAP_GROWSDOWN, MAP_HUGETLB] {
        assert_eq!(map(bad), Err(EINVAL));
    }
    let at = map(0).unwrap();
    (0..2).for_each(|i| a.store(at.0 + i * P, 3).unwrap());
    assert_eq!(a.mm.madvise(at, P, MADV_KEEPONFORK), Err(EINVAL));
    assert_eq!(a.mm.madvise(at, P, MADV_DODUMP), Err(EINVAL));
    a.mm.mlock(at, P, 0).unwrap();
    assert_eq!(a.mm.sizes().locked, 0);
    let c = a.fork();
    assert_eq!((c.load(at.0).unwrap(), a.load(at.0).unwrap()), (0, 3));
    c.store(at.0, 4).unwrap();
    let d = c.fork();
    assert_eq!((d.load(at.0).unwrap(), d.load(at.0 + P).unwrap()), (0, 0));
    assert_eq!(a.load(at.0).unwrap(), 3);
    a.check();
}

#[test]
fn strings_objects_and_futexes() {
    let a = app();
    let at = a.anon(2 * P, RW, 0).unwrap();
    let end = at.0 + 2 * P;
    a.mm.copy_out(Va(end - 4), b"abc\0").unwrap();
    assert_eq!(a.mm.read_cstr(Va(end - 4), 4096).unwrap(), b"abc");
    assert_eq!(a.mm.read_cstr(Va(end - 4), 3), Err(ENAMETOOLONG));
    a.mm.copy_out(Va(end - 1), b"d").unwrap();
    assert_eq!(a.mm.read_cstr(Va(end - 4), 4096), Err(EFAULT));
    a.mm.write_obj(at, &0x1122_3344u32).unwrap();
    assert_eq!(a.mm.read_obj::<u32>(at), Ok(0x1122_3344));
    assert_eq!(a.mm.load_u32(at), Ok(0x1122_3344));
    assert_eq!(a.mm.load_u32(Va(at.0 + 2)), Err(EINVAL));
    let s = a.anon(P, RW, MAP_SHARED).unwrap();
    let c = a.fork();
    let key = |m: &App, va| m.mm.futex_key_shared(va, Access::Write).unwrap();
    assert_eq!(key(&a, s), key(&c, s));
    assert_ne!(key(&a, at), key(&c, at));
    assert_ne!(
        a.mm.futex_key_private(at).unwrap(),
        c.mm.futex_key_private(at).unwrap()
    );
    // A debugger writes where the application cannot.
    a.mm.mprotect(at, P, PROT_READ).unwrap();
    assert_eq!(a.mm.copy_out(at, b"x"), Err(EFAULT));
    assert_eq!(a.mm.write_forced(at, b"x"), 1);
    assert_eq!(c.mm.read_obj::<u8>(at), Ok(0x44));
    a.check();
}

#[test]
fn many_mappings_stay_fast() {
    let a = app();
    a.mm.set_max_map_count(1 << 20);
    let start = std::time::Instant::now();
    for i in 0..50_000u32 {
        a.anon(
            P,
            if i % 2 == 0 { PROT_NONE } else { PROT_READ },
            MAP_NORESERVE,
        )
        .unwrap();
    }
    assert_eq!(a.mm.vmas().len(), 50_000);
    assert!(start.elapsed().as_secs() < 5);
}

#[test]
fn private_copies_end_with_the_file() {
    let a = app();
    let other = Clas::new().unwrap();
    for f in [
        TestFile::frames(a.mm.clas(), 4),
        TestFile::frames(&other, 4),
        TestFile::host(a.mm.clas(), 4 * P),
    ] {
        let at = a.map(Va(0), 4 * P, RW, 0, Some(f.file())).unwrap().0;
        for page in 0..4 {
            a.store(at + page * P, 7).unwrap();
        }
        let c = a.fork();
        f.cut(P + 1);
        for m in [&a, &c] {
            assert_eq!(m.load(at + P), Ok(7));
            for page in 2..4 {
                assert_eq!(m.load(at + page * P).map_err(|e| e.signal), Err(SIGBUS));
                assert_eq!(m.mm.copy_out(Va(at + page * P), b"x"), Err(EFAULT));
            }
            m.check();
        }
        // The file grew again: as the file.
        f.cut(4 * P);
        assert_eq!(a.load(at + 3 * P), Ok(0));
        a.mm.munmap(Va(at), 4 * P).unwrap();
    }
}

#[test]
fn sealed_files_are_not_mapped_for_writing() {
    let a = app();
    let f = TestFile::frames(a.mm.clas(), 4);
    let map = |prot| a.map(Va(0), 4 * P, prot, MAP_SHARED, Some(f.file()));
    let at = map(PROT_READ).unwrap();
    let writers = || *f.writers.lock();
    assert_eq!(writers(), 1);
    // Pieces and copies count with it until the last of them goes.
    a.mm.mprotect(Va(at.0 + P), P, RW).unwrap();
    let c = a.fork();
    a.mm.munmap(at, 4 * P).unwrap();
    assert_eq!(writers(), 1);
    c.mm.munmap(at, 3 * P).unwrap();
    assert_eq!(writers(), 1);
    c.mm.munmap(at, 4 * P).unwrap();
    assert_eq!(writers(), 0);
    *f.sealed.lock() = true;
    assert_eq!(map(RW), Err(EPERM));
    let at = map(PROT_READ).unwrap();
    assert_eq!(a.mm.mprotect(at, P, RW), Err(EACCES));
    assert!(a.map(Va(0), P, RW, 0, Some(f.file())).is_ok());
    assert_eq!(writers(), 0);
    a.mm.munmap(at, 4 * P).unwrap();
    a.mm.munmap(Va(0), USER_MAX).unwrap();
}

#[test]
fn a_file_that_the_host_does_not_map_is_copied() {
    let a = app();
    let f = TestFile::host(a.mm.clas(), 40 * P);
    f.put(0, b"a");
    f.put(39 * P, b"z");
    *a.space.refused.lock() = f.host.as_ref().map(|h| h.raw());
    let at = a
        .map(Va(0), 40 * P, PROT_READ, 0, Some(f.file()))
        .unwrap()
        .0;
    assert_eq!(a.load(at), Ok(b'a'));
    assert_eq!(a.load(at + 39 * P), Ok(b'z'));
    let s = a
        .map(Va(0), P, PROT_READ, MAP_SHARED, Some(f.file()))
        .unwrap();
    assert_eq!(a.load(s.0).map_err(|e| e.signal), Err(SIGBUS));
    a.check();
    a.mm.munmap(Va(0), USER_MAX).unwrap();
}

#[test]
fn mremap_refuses_what_wraps() {
    let a = app();
    let at = a.anon(2 * P, RW, 0).unwrap();
    let to = Va(at.0 - 64 * P);
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    for old_len in [0u64.wrapping_sub(P), USER_MAX] {
        assert_eq!(a.mm.mremap(at, old_len, P, flags, to), Err(EINVAL));
    }
    assert_eq!(a.mm.vmas().len(), 1);
}

#[test]
fn faults_of_an_unknown_kind() {
    let a = app();
    let at = a.anon(P, PROT_READ, 0).unwrap().0;
    let fault = || {
        a.mm.handle_fault(FaultInfo {
            addr: Va(at),
            access: None,
            bus: false,
        })
    };
    a.load(at).unwrap();
    // Several threads that faulted at once are served one after the other: the first has mapped it.
    std::thread::scope(|s| {
        for _ in 0..3 {
            assert_eq!(s.spawn(fault).join().unwrap(), Ok(()));
        }
    });
    // One that faults again does what is forbidden, unless the mapping went in between.
    assert_eq!(fault(), Ok(()));
    a.mm.drop_host_mappings();
    a.load(at).unwrap();
    assert_eq!(fault(), Ok(()));
    assert_eq!(fault().map_err(|e| e.signal), Err(SIGSEGV));
}

/// Containers of one sandbox share memory: each maps the frames of the other's CLAS.
#[test]
fn frames_of_another_clas() {
    let (a, other) = (app(), Clas::new().unwrap());
    let b = App::new(&other);
    let f = TestFile::frames(&other, 4);
    f.put(P, b"hello");
    let at = a.map(Va(0), 4 * P, RW, MAP_SHARED, Some(f.file())).unwrap();
    let there = b.map(Va(0), 4 * P, RW, MAP_SHARED, Some(f.file())).unwrap();
    // Both see one memory, through copies and through the host's mapping.
    assert_eq!(a.load(at.0 + P), Ok(b'h'));
    a.store(at.0 + P, 7).unwrap();
    assert_eq!(b.load(there.0 + P), Ok(7));
    b.mm.copy_out(Va(there.0 + 2 * P), b"there").unwrap();
    let mut buf = [0; 5];
    a.mm.copy_in(Va(at.0 + 2 * P), &mut buf).unwrap();
    assert_eq!(&buf, b"there");
    // A word is one word for both, also as an atomic.
    let word = Va(at.0 + 3 * P);
    let add = |m: &App, va| {
        m.mm.with_atomic_u32(va, Access::Write, |w| w.fetch_add(1, Ordering::Relaxed))
    };
    assert_eq!(add(&a, word), Ok(0));
    assert_eq!(add(&b, Va(there.0 + 3 * P)), Ok(1));
    assert_eq!(
        a.mm.futex_key_shared(word, Access::Read),
        b.mm.futex_key_shared(Va(there.0 + 3 * P), Access::Read)
    );
    // A private copy is in the own CLAS.
    let mine = a.map(Va(0), 4 * P, RW, 0, Some(f.file())).unwrap();
    a.store(mine.0, 9).unwrap();
    assert_eq!(b.load(there.0), Ok(0));
    // Nothing refers to frames that the file gives back.
    f.cut(P);
    assert_eq!(a.load(at.0 + 2 * P).map_err(|e| e.signal), Err(SIGBUS));
    a.check();
    b.check();
    drop((a, b, f));
    assert_eq!(other.stats().allocated, 0);
}

/// What is mapped of another CLAS stays where it is until nobody can reach it: while the Sentry
/// transfers to it, and where fork(2) or mremap(2) has copied or moved a mapping that a truncation
/// does not find.
#[test]
fn frames_of_another_clas_are_held() {
    let (a, other) = (app(), Clas::new().unwrap());
    let f = TestFile::frames(&other, 1);
    let at = a.map(Va(0), P, RW, MAP_SHARED, Some(f.file())).unwrap();
    let lose = || {
        f.truncate(0);
        let (old, pages) = f.frames.lock().take().unwrap();
        other.decref(old, pages);
        old
    };
    let mut lost = None;
    let n = a.mm.with_slices(at, 5, Access::Write, &mut |s| {
        lost = Some(lose());
        let new = other.allocate(1, None).unwrap();
        assert_ne!(Some(new), lost, "somebody else has it already");
        other.decref(new, 1);
        s[0].copy_from(b"wrong");
        Ok(5)
    });
    assert_eq!(n, Ok(5));
    assert_eq!(other.stats().allocated, 0);

    let f = TestFile::frames(&other, 1);
    let at = a.map(Va(0), P, RW, MAP_SHARED, Some(f.file())).unwrap();
    a.store(at.0, 1).unwrap();
    let child =
        a.mm.fork(a.mm.address_space().clone(), Writers::Others, None)
            .unwrap();
    let (frame, _) = f.frames.lock().unwrap();
    assert_eq!(other.exclusive_prefix(frame, 1), 0);
    other.incref(frame, 1);
    f.truncate(0);
    let (frame, pages) = f.frames.lock().take().unwrap();
    other.decref(frame, pages);
    assert!(other.is_exclusive(frame, 1), "no mapping is left");
    other.decref(frame, 1);
    drop(child);

    // A truncation that looks for a mapping where it no longer is.
    let f = TestFile::frames(&other, 1);
    let at = a.map(Va(0), P, RW, MAP_SHARED, Some(f.file())).unwrap();
    a.store(at.0, 1).unwrap();
    let moved = a.mm.mremap(at, P, 2 * P, MREMAP_MAYMOVE, Va(0)).unwrap();
    let (frame, pages) = f.frames.lock().take().unwrap();
    other.decref(frame, pages);
    a.mm.invalidate(&[(at, P)]);
    if moved != at {
        assert_eq!(other.stats().allocated, P);
    }
    a.mm.munmap(moved, 2 * P).unwrap();
    assert_eq!(other.stats().allocated, 0);
}

/// What a child has brought in and given up again is in memory, and its parent, which has not
/// noticed, can send it out anew.
#[test]
fn what_another_has_brought_in_goes_again() {
    let clas = Clas::new().unwrap();
    clas.swap_in_memory(1 << 20).unwrap();
    let a = App::new(&clas);
    let at = a.anon(16 * P, RW, 0).unwrap();
    for i in 0..16 {
        a.store(at.0 + i * P, i as u8 + 1).unwrap();
    }
    let here = || clas.stats().allocated - clas.swap_stats().used;
    assert_eq!(a.send(16, Pick::SecondChance).bytes, 16 * P);
    for ends in [true, false] {
        let child = a.fork();
        for i in 4..12 {
            assert_eq!(child.load(at.0 + i * P), Ok(i as u8 + 1));
        }
        // (Some more come with them.)
        let came = here();
        assert!(came >= 8 * P);
        if ends {
            drop(child);
            assert_eq!(a.send(16, Pick::SecondChance).bytes, came);
        } else {
            // A copy of its own: the frames that it gave up stay the parent's.
            for i in 4..12 {
                child.store(at.0 + i * P, 100).unwrap();
            }
            assert!(a.send(16, Pick::SecondChance).bytes >= 8 * P);
            assert_eq!(child.load(at.0 + 5 * P), Ok(100));
        }
    }
    for i in 0..16 {
        assert_eq!(a.load(at.0 + i * P), Ok(i as u8 + 1));
    }
    a.check();
}

/// What was used since the last generation began stays; the oldest goes.
#[test]
fn what_was_long_unused_goes_first() {
    let clas = Clas::new().unwrap();
    clas.swap_in_memory(8 << 20).unwrap();
    let a = App::new(&clas);
    // Three clusters, aligned.
    let at = (a.anon(64 * P, RW, 0).unwrap().0 + 16 * P - 1) & !(16 * P - 1);
    let send = |pages, age| a.send(pages, Pick::Older(age)).bytes;
    for i in 0..48 {
        a.store(at + i * P, i as u8 + 1).unwrap();
    }
    a.age();
    assert_eq!((a.mm.old(), send(48, 1)), ([0; 3], 0));
    a.load(at).unwrap();
    a.age();
    a.load(at + 16 * P).unwrap();
    a.age();
    // The third is two generations old now, and the others were used.
    let old = a.mm.old();
    assert!(old[1] >= 16 * P, "{old:?}");
    assert!(send(16, 2) >= 16 * P);
    assert_eq!(a.here(at + 32 * P, 16), 0);
    assert_eq!(a.here(at, 16), 16);
    // (What lies before and behind the three, as well.)
    while send(48, 2) > 0 {}
    assert_eq!(a.here(at, 32), 32);
    for i in 0..48 {
        assert_eq!(a.load(at + i * P), Ok(i as u8 + 1));
    }
    a.check();
}

/// A lap gives what was not used since the hand came by, and says when it is over.
#[test]
fn a_lap_takes_nothing_that_was_used() {
    let clas = Clas::new().unwrap();
    clas.swap_in_memory(8 << 20).unwrap();
    let a = App::new(&clas);
    let at = a.anon(64 * P, RW, 0).unwrap();
    for i in 0..64 {
        a.store(at.0 + i * P, 1).unwrap();
    }
    let lap = || a.send(64, Pick::Lap);
    assert_eq!(
        lap(),
        SwapOut {
            bytes: 0,
            at_end: true
        }
    );
    a.load(at.0).unwrap();
    let sent = lap();
    assert!(
        sent.at_end && sent.bytes > 0 && sent.bytes < 64 * P,
        "{sent:?}"
    );
    assert_eq!(a.here(at.0, 1), 1);
    a.check();
}
