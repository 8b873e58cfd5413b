use super::*;
use crate::MappingObserver;
use abi::Va;
use hostcall::MemSlice;
use parking_lot::Mutex as Lock;

const P: u64 = PAGE_SIZE;

/// A file of one run.
struct OneRun {
    clas: Arc<Clas>,
    run: Lock<(Cla, u64)>,
    mappers: MappingRegistry,
    was_used: std::sync::atomic::AtomicBool,
}

impl OneRun {
    fn new(clas: &Arc<Clas>, pages: u64) -> (Arc<OneRun>, Option<Listed>) {
        let at = clas.allocate(pages, None).unwrap();
        for i in 0..pages {
            clas.slice(at.add(i * P), 8)
                .copy_from(&(i + 1).to_le_bytes());
        }
        let f = Arc::new(OneRun {
            clas: clas.clone(),
            run: Lock::new((at, pages)),
            mappers: MappingRegistry::new(),
            was_used: false.into(),
        });
        let file: Weak<OneRun> = Arc::downgrade(&f);
        let listed = clas.list_file(file);
        (f, listed)
    }

    /// Reads the word of a page, as who has the lock.
    fn word(&self, page: u64) -> u64 {
        let run = self.run.lock();
        let mut buf = [0; 8];
        hostcall::mem::with_slice_mut(&mut buf, |to: MemSlice<'_>| {
            self.clas.read_out(run.0.add(page * P), to)
        })
        .unwrap();
        u64::from_le_bytes(buf)
    }
}

impl Pageable for OneRun {
    fn each_run(&self, page: u64, tell: &mut dyn FnMut(u64, Cla, u64) -> bool) {
        if let Some(run) = self.run.try_lock()
            && page < run.1
        {
            tell(0, run.0, run.1);
        }
    }
    fn mappers(&self) -> Option<&MappingRegistry> {
        Some(&self.mappers)
    }
    fn take_use(&self) -> bool {
        self.was_used.swap(false, Ordering::Relaxed)
    }
}

impl Drop for OneRun {
    fn drop(&mut self) {
        let (at, pages) = *self.run.get_mut();
        self.clas.decref(at, pages);
    }
}

fn send(c: &Clas, pages: u64) -> u64 {
    let pick = FilePick {
        of: AccountId::ROOT,
        may_go: &mut |_| true,
        is_over: &|| false,
    };
    c.send_files(pages * P, pick) / P
}

fn with_swap(pages: u64) -> Arc<Clas> {
    let c = Clas::new().unwrap();
    c.swap_in_memory(pages * P).unwrap();
    c
}

#[test]
fn files_go_and_are_read_again() {
    let c = with_swap(1000);
    let (f, _listed) = OneRun::new(&c, 100);
    let (g, _other) = OneRun::new(&c, 3);
    assert_eq!(send(&c, 40), 40);
    assert_eq!(c.here(), 63 * P);
    assert_eq!(c.files_here(AccountId::ROOT), 63 * P);
    // From where the hand is; then those of the other, which are all that is left.
    assert_eq!(send(&c, 100), 63);
    assert_eq!(send(&c, 1), 0);
    assert_eq!(c.here(), 0);
    assert!((0..100).all(|i| f.word(i) == i + 1));
    assert!((0..3).all(|i| g.word(i) == i + 1));
    assert_eq!(c.here(), 103 * P);
    assert_eq!(c.swap_stats().used, 0);
}

#[test]
fn what_has_no_room_is_read_where_it_is() {
    let c = with_swap(1000);
    let (f, _listed) = OneRun::new(&c, 50);
    assert_eq!(send(&c, 50), 50);
    c.set_limit(P);
    // (One comes, and takes the room.)
    for _ in 0..2 {
        assert!((0..50).all(|i| f.word(i) == i + 1));
        assert_eq!(c.here(), P);
    }
    let at = f.run.lock().0;
    assert_eq!(c.bring_first(at, 50, 4), Ok(1));
    assert_eq!(c.bring_first(at.add(P), 1, 1), Err(abi::errno::ENOMEM));
}

#[test]
fn what_was_used_goes_last() {
    let c = with_swap(1000);
    let (f, _listed) = OneRun::new(&c, 30);
    let (_g, _other) = OneRun::new(&c, 30);
    f.was_used.store(true, Ordering::Relaxed);
    assert_eq!(send(&c, 30), 30);
    let at = f.run.lock().0;
    assert_eq!(c.next_here(at, 30), Some(0..30));
    f.was_used.store(true, Ordering::Relaxed);
    assert_eq!(send(&c, 10), 10);
}

/// An address space that has mapped one frame.
struct Maps {
    clas: Arc<Clas>,
    frame: Lock<Option<Cla>>,
    is_busy: std::sync::atomic::AtomicBool,
}

impl MappingObserver for Maps {
    fn invalidate(&self, _: &[(Va, u64)]) {}
    fn release(&self, _: &[(Va, u64)]) {
        let is_busy = self.is_busy.load(Ordering::Relaxed);
        if !is_busy && let Some(at) = self.frame.lock().take() {
            self.clas.decref(at, 1);
        }
    }
}

#[test]
fn what_is_mapped_loses_that_first() {
    let c = with_swap(1000);
    let (f, _listed) = OneRun::new(&c, 2);
    let at = f.run.lock().0;
    c.incref(at, 1);
    let maps = Arc::new(Maps {
        clas: c.clone(),
        frame: Lock::new(Some(at)),
        is_busy: true.into(),
    });
    let observer: Weak<Maps> = Arc::downgrade(&maps);
    f.mappers.add(observer, Va(0), 0, P);
    // Who is busy keeps it.
    assert_eq!(send(&c, 2), 1);
    assert_eq!(send(&c, 2), 0);
    maps.is_busy.store(false, Ordering::Relaxed);
    assert_eq!(send(&c, 2), 1);
    assert!(maps.frame.lock().is_none());
    assert_eq!((f.word(0), f.word(1)), (1, 2));
}

#[test]
fn who_is_protected_or_gone_gives_nothing() {
    let c = with_swap(1000);
    let (f, listed) = OneRun::new(&c, 8);
    let pick = FilePick {
        of: AccountId::ROOT,
        may_go: &mut |_| false,
        is_over: &|| false,
    };
    assert_eq!(c.send_files(8 * P, pick), 0);
    let a = c.open_account(None).unwrap();
    let pick = FilePick {
        of: a.id(),
        may_go: &mut |_| true,
        is_over: &|| false,
    };
    assert_eq!(c.send_files(8 * P, pick), 0);
    drop(listed);
    assert_eq!(send(&c, 8), 0);
    let (_g, _other) = OneRun::new(&c, 8);
    assert_eq!(send(&c, 16), 8);
    assert_eq!(f.word(7), 8);
    // Those that have no swap keep no list.
    assert!(OneRun::new(&Clas::new().unwrap(), 1).1.is_none());
}

#[test]
fn what_is_discarded_while_it_is_away_reads_as_zeros() {
    let c = with_swap(1000);
    let (f, _listed) = OneRun::new(&c, 8);
    assert_eq!(send(&c, 8), 8);
    let at = f.run.lock().0;
    c.discard(at.add(2 * P), 3);
    assert_eq!(c.swap_stats().used, 5 * P);
    let words: Vec<u64> = (0..8).map(|i| f.word(i)).collect();
    assert_eq!(words, [1, 2, 0, 0, 0, 6, 7, 8]);
    drop(f);
    assert_eq!((c.swap_stats().used, c.stats().allocated), (0, 0));
}

/// Readers share the lock; what one of them brings in, or reads where it is, the others find.
#[test]
fn many_read_at_once() {
    let c = with_swap(1000);
    let at = c.allocate(64, None).unwrap();
    for i in 0..64 {
        c.slice(at.add(i * P), 8).copy_from(&i.to_le_bytes());
    }
    for limit in [u64::MAX, 16 * P] {
        assert_eq!(c.send_out(at, 64), 64);
        c.set_limit(limit);
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let c = &c;
                s.spawn(move || {
                    for i in (0..256).map(|i| (i * 7 + t * 16) % 64) {
                        let mut buf = [0; 8];
                        let from = at.add(i * P);
                        hostcall::mem::with_slice_mut(&mut buf, |to: MemSlice<'_>| {
                            c.read_out(from, to)
                        })
                        .unwrap();
                        assert_eq!(u64::from_le_bytes(buf), i);
                    }
                });
            }
        });
        assert!(c.here() <= limit);
        c.set_limit(u64::MAX);
        assert_eq!(
            c.bring_first(at, 1, 1),
            Ok(c.next_here(at, 64).unwrap().end.min(1))
        );
        for i in 0..4 {
            c.bring_in(at.add(i * 16 * P), 16).unwrap();
        }
    }
    c.decref(at, 64);
}

#[test]
fn ahead_grows_where_it_is_used_up() {
    let a = Ahead::default();
    assert_eq!([a.plan(5), a.plan(6), a.plan(8), a.plan(12)], [1, 2, 4, 8]);
    assert_eq!(
        [a.plan(20), a.plan(36), a.plan(3), a.plan(4)],
        [16, 16, 1, 2]
    );
}
