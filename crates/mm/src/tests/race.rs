//! Frames go out while applications, their forks and the Sentry use them: nothing may be lost.
//!
//! `RACE_PAGES=1000000 cargo test --release -p mm race -- --nocapture` has a million pages go.

use super::*;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Pages that all have, by fork.
const N: usize = 24;
const BASE: u64 = 0x10_0000_0000;
/// Where in a page the application, the Sentry and a child write.
const APPLICATION: u64 = 0;
const SENTRY: u64 = 100;
const CHILD: u64 = 200;
/// A step of an application ends: a fault comes again each time that its page has gone meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

struct Race {
    apps: Vec<App>,
    clas: Arc<Clas>,
    /// Pages that went.
    gone: AtomicU64,
    over: AtomicBool,
}

/// What was found in place of what had been written.
#[derive(Debug)]
struct Lost;

/// Numbers that look random.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % n
    }
}

/// What follows a byte; never zero, which a lost page has.
fn after(b: u8) -> u8 {
    b % 250 + 1
}

fn at(page: usize, offset: u64) -> u64 {
    BASE + page as u64 * P + offset
}

/// As application code.
fn access(app: &App, va: u64, access: Access, f: &mut dyn FnMut(HostPage)) {
    let need = match access {
        Access::Write => Prot::WRITE,
        _ => Prot::READ,
    };
    let late = Instant::now() + PATIENCE;
    while !app.touch(va, need, f) {
        assert!(Instant::now() < late, "a fault that does not go away");
        let fault = FaultInfo {
            addr: Va(va),
            access: Some(access),
            bus: false,
        };
        app.mm.handle_fault(fault).unwrap();
    }
}

fn expect(app: &App, va: u64, want: u8) -> std::result::Result<(), Lost> {
    let mut b = [0];
    access(app, va, Access::Read, &mut |p| {
        hostcall::file::pread(p.fd, &mut b, p.offset + va % P).unwrap();
    });
    if b[0] == want { Ok(()) } else { Err(Lost) }
}

fn store(app: &App, va: u64, b: u8) {
    access(app, va, Access::Write, &mut |p| {
        hostcall::file::pwrite(p.fd, &[b], p.offset + va % P).unwrap();
    });
}

impl Race {
    /// A parent and its children, with memory that they share by copy-on-write.
    fn new(swap_refuses: u32) -> Race {
        let clas = Clas::new().unwrap();
        if let Some(every) = NonZeroU32::new(swap_refuses) {
            clas.refuse_swap(every);
        }
        clas.swap_in_memory(1000 * P).unwrap();
        let parent = App::new(&clas);
        let fixed = MAP_ANONYMOUS | MAP_FIXED;
        parent.map(Va(BASE), N as u64 * P, 3, fixed, None).unwrap();
        for page in 0..N {
            store(&parent, at(page, APPLICATION), 1);
            store(&parent, at(page, SENTRY), 1);
        }
        let (one, two) = (parent.fork(), parent.fork());
        Race {
            apps: vec![parent, one, two],
            clas,
            gone: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// An application that uses its memory, and forks.
    fn application(&self, who: usize) -> std::result::Result<(), Lost> {
        let (app, mut wanted) = (&self.apps[who], [1u8; N]);
        let mut random = Xorshift(who as u64 + 1);
        while self.goes_on() {
            let page = random.below(N);
            expect(app, at(page, APPLICATION), wanted[page])?;
            if random.below(3) > 0 {
                wanted[page] = after(wanted[page]);
                store(app, at(page, APPLICATION), wanted[page]);
            }
            if random.below(64) == 0 {
                let child = app.fork();
                for page in (0..N).filter(|page| page % 3 == who) {
                    expect(&child, at(page, APPLICATION), wanted[page])?;
                    store(&child, at(page, CHILD), 7);
                    expect(app, at(page, CHILD), 0)?;
                    expect(&child, at(page, CHILD), 7)?;
                }
            }
        }
        (0..N).try_for_each(|page| expect(app, at(page, APPLICATION), wanted[page]))
    }

    /// The Sentry, which reads and writes there for system calls.
    fn sentry(&self, who: usize) -> std::result::Result<(), Lost> {
        let (app, mut wanted) = (&self.apps[who], [1u8; N]);
        let mut random = Xorshift(who as u64 + 100);
        while self.goes_on() {
            let page = random.below(N);
            let (va, mut found) = (Va(at(page, SENTRY)), [0]);
            assert_eq!(app.mm.read_bytes(va, &mut found), 1);
            if found[0] != wanted[page] {
                return Err(Lost);
            }
            wanted[page] = after(wanted[page]);
            assert_eq!(app.mm.write_bytes(va, &[wanted[page]]), 1);
        }
        Ok(())
    }

    /// Whoever makes room.
    fn room(&self, seed: u64, until: u64) {
        let mut random = Xorshift(seed);
        while self.goes_on() {
            let app = &self.apps[random.below(self.apps.len())];
            let pick = match random.below(4) {
                0 => Pick::Lap,
                1 => Pick::Older(1),
                2 => Pick::Strays,
                _ => Pick::SecondChance,
            };
            if pick == Pick::Older(1) {
                app.age();
            }
            let went = app.send(random.below(16) as u64 + 1, pick).bytes / P;
            if self.gone.fetch_add(went, Ordering::Relaxed) + went >= until {
                self.over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Until so many pages have gone, or one was lost.
    fn run(&self, until: u64) -> std::result::Result<(), Lost> {
        std::thread::scope(|s| {
            let users: Vec<_> = (0..self.apps.len())
                .flat_map(|who| {
                    let ends = move |r| {
                        self.over.store(true, Ordering::Relaxed);
                        r
                    };
                    [
                        s.spawn(move || ends(self.application(who))),
                        s.spawn(move || ends(self.sentry(who))),
                    ]
                })
                .collect();
            for seed in [1000, 2000] {
                s.spawn(move || self.room(seed, until));
            }
            let all = users.into_iter().map(|u| u.join().unwrap());
            all.fold(Ok(()), std::result::Result::and)
        })
    }
}

fn pages() -> u64 {
    let set = std::env::var("RACE_PAGES").ok();
    set.map_or(5000, |n| n.parse().expect("a number of pages"))
}

#[test]
fn nothing_is_lost() {
    for swap_refuses in [0, 7] {
        let mut race = Race::new(swap_refuses);
        let begin = Instant::now();
        race.run(pages()).expect("no page is lost");
        let (gone, swap) = (race.gone.load(Ordering::Relaxed), race.clas.swap_stats());
        println!("{gone} pages went in {:?}: {swap:?}", begin.elapsed());
        race.apps.iter().for_each(App::check);
        race.apps.clear();
        assert_eq!(race.clas.stats().allocated, 0);
        assert_eq!(race.clas.swap_stats().used, 0);
    }
}

/// The other way round: what one host keeps mapped is lost, and that is seen.
#[test]
fn a_mapping_that_stays_is_found() {
    let race = Race::new(0);
    race.apps[1].space.keeps.store(true, Ordering::Relaxed);
    assert!(race.run(1_000_000).is_err());
}
