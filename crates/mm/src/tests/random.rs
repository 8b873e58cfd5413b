//! Random operations, checked against a byte array.

use super::*;
use abi::linux::{MADV_DONTNEED, MADV_PAGEOUT, MAP_NORESERVE, MREMAP_FIXED, MREMAP_MAYMOVE};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

/// Pages of the arena that all operations are in.
const N: usize = 40;
const BASE: u64 = 0x10_0000_0000;

type Bytes = Rc<RefCell<Vec<u8>>>;

#[derive(Clone)]
struct Page {
    prot: u32,
    shared: bool,
    /// Private file mappings: what DONTNEED brings back.
    file: Option<Bytes>,
    data: Bytes,
    /// Whether `data` is this page's own, if private.
    own: bool,
}

#[derive(Clone, Default)]
struct Model {
    pages: Vec<Option<Page>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Anon,
    Noreserve,
    AnonShared,
    PrivateHost,
    PrivateFrames,
    SharedHost,
    SharedFrames,
}

#[derive(Clone, Debug)]
enum Op {
    Map(Kind, usize, usize, u32),
    Unmap(usize, usize),
    Protect(usize, usize, u32),
    Fork,
    Exit,
    Out(usize, usize, usize, u8),
    In(usize, usize, usize),
    Slices(usize, usize, usize, u8),
    Store(usize, u8),
    Load(usize),
    DontNeed(usize, usize),
    Remap(usize, usize, usize),
    DropAll,
    Trim,
    SendOut(u64, Pick),
    SendFiles(u64),
    Age,
    PageOut(usize, usize),
    /// Pages that may be here, and that stay.
    Bound(u64, u64),
    Fail(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        4 => Just(Kind::Anon),
        2 => Just(Kind::Noreserve),
        1 => Just(Kind::AnonShared),
        2 => Just(Kind::PrivateHost),
        2 => Just(Kind::PrivateFrames),
        1 => Just(Kind::SharedHost),
        1 => Just(Kind::SharedFrames),
    ];
    let prot = prop_oneof![5 => Just(3u32), 2 => Just(1u32), 1 => Just(0u32)];
    let prot2 = prot.clone();
    let span = || (0..N, 1..14usize).prop_map(|(a, l)| (a, l.min(N - a)));
    let bytes = || (0..N, 0..4096usize, 1..20_000usize);
    prop_oneof![
        5 => (kind, span(), prot).prop_map(|(k, (a, l), p)| Op::Map(k, a, l, p)),
        2 => span().prop_map(|(a, l)| Op::Unmap(a, l)),
        3 => (span(), prot2).prop_map(|((a, l), p)| Op::Protect(a, l, p)),
        2 => Just(Op::Fork),
        1 => Just(Op::Exit),
        5 => (bytes(), any::<u8>()).prop_map(|((a, o, l), b)| Op::Out(a, o, l, b)),
        4 => bytes().prop_map(|(a, o, l)| Op::In(a, o, l)),
        3 => (bytes(), any::<u8>()).prop_map(|((a, o, l), b)| Op::Slices(a, o, l * 6, b)),
        6 => (0..N, any::<u8>()).prop_map(|(a, b)| Op::Store(a, b)),
        6 => (0..N).prop_map(Op::Load),
        1 => span().prop_map(|(a, l)| Op::DontNeed(a, l)),
        2 => (0..N, 1..8usize, 0..N).prop_map(|(a, l, t)| Op::Remap(a, l, t)),
        1 => Just(Op::DropAll),
        2 => Just(Op::Trim),
        5 => (1..40u64, pick()).prop_map(|(n, p)| Op::SendOut(n, p)),
        3 => (1..40u64).prop_map(Op::SendFiles),
        2 => Just(Op::Age),
        2 => span().prop_map(|(a, l)| Op::PageOut(a, l)),
        1 => (24..40u64, 0..20u64).prop_map(|(l, r)| Op::Bound(l, r)),
        1 => (1..4u32).prop_map(Op::Fail),
    ]
}

fn new_page() -> Bytes {
    Rc::new(RefCell::new(vec![0; 4096]))
}

impl Model {
    fn write(&mut self, at: usize, offset: usize, b: u8) {
        let p = self.pages[at].as_mut().unwrap();
        if !p.shared && (!p.own || Rc::strong_count(&p.data) > 1) {
            let copy = p.data.borrow().clone();
            p.data = Rc::new(RefCell::new(copy));
            p.own = true;
        }
        p.data.borrow_mut()[offset] = b;
    }
    fn may(&self, at: usize, prot: u32) -> bool {
        self.pages
            .get(at)
            .is_some_and(|p| p.as_ref().is_some_and(|p| p.prot & prot == prot))
    }
    /// How many of the bytes can be accessed.
    fn reach(&self, start: usize, len: usize, prot: u32) -> usize {
        let mut done = 0;
        while done < len && self.may((start + done) / 4096, prot) {
            done = ((start + done) / 4096 * 4096 + 4096 - start).min(len);
        }
        done
    }
}

struct World {
    clas: Arc<Clas>,
    apps: Vec<(App, Model)>,
    files: Vec<(Arc<TestFile>, Vec<Bytes>)>,
    has_room_outside: bool,
}

fn va(page: usize) -> u64 {
    BASE + page as u64 * P
}

impl World {
    fn new(drop_every: u32) -> World {
        let clas = Clas::new().unwrap();
        let app = App::new(&clas);
        app.mm.set_random_drop(7, drop_every);
        // Private mappings of a file that changes are unspecified: so those files never do.
        let files = (0..4)
            .map(|i| {
                let f = if i % 2 == 0 {
                    TestFile::host(&clas, N as u64 * P)
                } else {
                    TestFile::frames(&clas, N as u64)
                };
                let pages: Vec<Bytes> = (0..N).map(|_| new_page()).collect();
                for (n, p) in pages.iter().enumerate() {
                    p.borrow_mut().fill(n as u8 + i * 50);
                    f.put(n as u64 * P, &p.borrow());
                }
                (f, pages)
            })
            .collect();
        World {
            clas,
            apps: vec![(
                app,
                Model {
                    pages: vec![None; N],
                },
            )],
            files,
            has_room_outside: false,
        }
    }

    fn step(&mut self, op: Op, who: usize) {
        let who = who % self.apps.len();
        match op {
            Op::Fork if self.apps.len() < 4 => {
                let (app, model) = &self.apps[who];
                let child = app.fork();
                child.mm.set_random_drop(11, 5);
                let mut model = model.clone();
                for p in model.pages.iter_mut().flatten() {
                    p.own = false;
                }
                self.apps[who]
                    .1
                    .pages
                    .iter_mut()
                    .flatten()
                    .for_each(|p| p.own = false);
                self.apps.push((child, model));
                return;
            }
            Op::Exit if self.apps.len() > 1 => {
                self.apps.swap_remove(who);
                return;
            }
            _ => {}
        }
        let (app, model) = &mut self.apps[who];
        match op {
            Op::Map(kind, at, len, prot) => {
                let (file, shared) = match kind {
                    Kind::Anon | Kind::Noreserve => (None, false),
                    Kind::AnonShared => (None, true),
                    Kind::PrivateHost => (Some(0), false),
                    Kind::PrivateFrames => (Some(1), false),
                    Kind::SharedHost => (Some(2), true),
                    Kind::SharedFrames => (Some(3), true),
                };
                let mut flags = FIXED | if shared { MAP_SHARED } else { MAP_PRIVATE };
                if file.is_none() {
                    flags |= MAP_ANONYMOUS;
                }
                if matches!(kind, Kind::Noreserve) {
                    flags |= MAP_NORESERVE;
                }
                // Half of them out of line with the file.
                let offset = if file.is_some() {
                    (at / 2) as u64 * P
                } else {
                    0
                };
                let req = MmapRequest {
                    addr: Va(va(at)),
                    len: len as u64 * P,
                    prot,
                    flags,
                    offset,
                    file: file.map(|i: usize| self.files[i].0.file()),
                };
                app.mm.mmap(req).unwrap();
                for i in 0..len {
                    let backing = file.map(|f| self.files[f].1[at / 2 + i].clone());
                    model.pages[at + i] = Some(Page {
                        prot,
                        shared,
                        data: backing.clone().unwrap_or_else(new_page),
                        file: backing,
                        own: false,
                    });
                }
            }
            Op::Unmap(at, len) => {
                app.mm.munmap(Va(va(at)), len as u64 * P).unwrap();
                model.pages[at..at + len].fill(None);
            }
            Op::Protect(at, len, prot) => {
                let mapped = model.pages[at..at + len]
                    .iter()
                    .take_while(|p| p.is_some())
                    .count();
                let r = app.mm.mprotect(Va(va(at)), len as u64 * P, prot);
                assert_eq!(r.is_ok(), mapped == len);
                model.pages[at..at + mapped]
                    .iter_mut()
                    .flatten()
                    .for_each(|p| p.prot = prot);
            }
            Op::Out(at, offset, len, b) => {
                let start = at * 4096 + offset;
                let n = app.mm.write_bytes(Va(BASE + start as u64), &vec![b; len]);
                assert_eq!(n, model.reach(start, len, 2));
                (start..start + n).for_each(|i| model.write(i / 4096, i % 4096, b));
            }
            Op::In(at, offset, len) => {
                let start = at * 4096 + offset;
                let mut buf = vec![0; len];
                let n = app.mm.read_bytes(Va(BASE + start as u64), &mut buf);
                assert_eq!(n, model.reach(start, len, 1));
                for (i, b) in buf[..n].iter().enumerate() {
                    let i = start + i;
                    assert_eq!(
                        *b,
                        model.pages[i / 4096].as_ref().unwrap().data.borrow()[i % 4096]
                    );
                }
            }
            Op::Slices(at, offset, len, b) => {
                let start = at * 4096 + offset;
                let mut io = UserIo::new(&app.mm, Va(BASE + start as u64), len);
                let mut done = 0;
                let fill = |iov: &[hostcall::MemSlice<'_>]| {
                    let full = vec![b; len];
                    Ok(iov.iter().map(|s| s.copy_from(&full)).sum())
                };
                while let Ok(n) = vfs::Sink::fill(&mut io, len, &mut { fill }) {
                    done += n;
                    if n == 0 {
                        break;
                    }
                }
                assert_eq!(done, model.reach(start, len, 2));
                (start..start + done).for_each(|i| model.write(i / 4096, i % 4096, b));
            }
            Op::Store(at, b) => {
                let r = app.store(va(at) + 100, b);
                assert_eq!(r.is_ok(), model.may(at, 2));
                if r.is_ok() {
                    model.write(at, 100, b);
                }
            }
            Op::Load(at) => {
                let want = model
                    .may(at, 1)
                    .then(|| model.pages[at].as_ref().unwrap().data.borrow()[100]);
                assert_eq!(app.load(va(at) + 100).ok(), want);
            }
            Op::DontNeed(at, len) => {
                let whole = model.pages[at..at + len].iter().all(Option::is_some);
                let r = app.mm.madvise(Va(va(at)), len as u64 * P, MADV_DONTNEED);
                assert_eq!(r.is_ok(), whole);
                for p in model.pages[at..at + len]
                    .iter_mut()
                    .flatten()
                    .filter(|p| !p.shared)
                {
                    p.data = p.file.clone().unwrap_or_else(new_page);
                    p.own = false;
                }
            }
            Op::Remap(at, len, to) => {
                let len = len.min(N - at).min(N - to);
                let one = app
                    .mm
                    .find_vma(Va(va(at)))
                    .is_some_and(|v| v.start <= va(at) && va(at + len) <= v.end);
                if !one || at < to + len && to < at + len {
                    return;
                }
                let size = len as u64 * P;
                let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
                app.mm
                    .mremap(Va(va(at)), size, size, flags, Va(va(to)))
                    .unwrap();
                for i in 0..len {
                    model.pages[to + i] = model.pages[at + i].take();
                }
            }
            Op::DropAll => app.mm.drop_host_mappings(),
            Op::Trim => {
                app.mm.trim();
            }
            Op::SendOut(pages, pick) => {
                app.send(pages, pick);
            }
            Op::SendFiles(pages) => {
                let pick = clas::FilePick {
                    of: clas::AccountId::ROOT,
                    may_go: &mut |_| true,
                    is_over: &|| false,
                };
                self.clas.send_files(pages * P, pick);
            }
            Op::Age => app.age(),
            Op::PageOut(at, len) => {
                let _ = app.mm.madvise(Va(va(at)), len as u64 * P, MADV_PAGEOUT);
            }
            // Where all of it can be sent out.
            Op::Bound(limit, reserve) if self.has_room_outside => {
                app.mm.set_bounds(Bounds {
                    limit: limit * P,
                    reserve: reserve * P,
                });
                *app.space.fail_in.lock() = 0;
                while app.mm.shrink().inspect(|w| assert!(*w)).is_none() {}
            }
            Op::Bound(..) => {}
            Op::Fail(n) => *app.space.fail_in.lock() = n,
            Op::Fork | Op::Exit => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_byte_array(
        ops in prop::collection::vec((op(), any::<u8>()), 1..120),
        drop_every in 0u32..6,
        is_limited in any::<bool>(),
        swap in prop_oneof![Just(0u64), 1..50u64, Just(1000u64)],
    ) {
        let mut w = World::new(drop_every);
        if is_limited {
            // Far away: what is made is smaller, and what nobody touched can be given back.
            w.clas.set_limit(1 << 40);
        }
        if swap > 0 {
            w.clas.swap_in_memory(swap * P).unwrap();
            w.has_room_outside = swap == 1000;
        }
        for (op, who) in ops {
            w.step(op, who as usize);
            w.apps.iter().for_each(|(a, _)| {
                a.check();
                assert!(a.mm.charged_here() <= a.mm.bounds().limit);
            });
        }
        // Everything is given back.
        w.apps.clear();
        let left = w.clas.stats().allocated;
        prop_assert_eq!(left, 2 * N as u64 * P);
        prop_assert_eq!(w.clas.swap_stats().used, 0);
        w.files.clear();
        prop_assert_eq!(w.clas.stats().allocated, 0);
    }
}
fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        Just(Pick::SecondChance),
        Just(Pick::Lap),
        (1..4u32).prop_map(Pick::Older),
        Just(Pick::Strays),
    ]
}
