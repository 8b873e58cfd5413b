//! Limits and reservations of single address spaces.

use super::*;
use abi::linux::MAP_NORESERVE;

const ANON: u32 = MAP_PRIVATE | MAP_ANONYMOUS;

fn map(app: &App, pages: u64, flags: u32, file: Option<MapFile>) -> u64 {
    let req = MmapRequest {
        addr: Va(0),
        len: pages * P,
        prot: 3,
        flags,
        offset: 0,
        file,
    };
    app.mm.mmap(req).unwrap().0
}

fn bound(app: &App, limit: u64, reserve: u64) {
    app.mm.set_bounds(Bounds {
        limit: limit * P,
        reserve: reserve * P,
    });
}

fn app_with_swap(pages: u64) -> (Arc<Clas>, App) {
    let clas = Clas::new().unwrap();
    if pages > 0 {
        clas.swap_in_memory(pages * P).unwrap();
    }
    let app = App::new(&clas);
    (clas, app)
}

fn shrunk(app: &App) -> bool {
    loop {
        if let Some(within) = app.mm.shrink() {
            return within;
        }
    }
}

/// Who waits for its end is let go.
fn end_those_exhausted(clas: &Arc<Clas>, app: &App) {
    let (weak, mm) = (Arc::downgrade(clas), Arc::downgrade(&app.mm));
    clas.on_shortage(Box::new(move || {
        if let (Some(c), Some(mm)) = (weak.upgrade(), mm.upgrade())
            && c.take_exhausted()
            && mm.is_exhausted()
        {
            mm.doom();
        }
    }));
}

#[test]
fn what_is_above_the_own_limit_is_refused() {
    let (clas, app) = app_with_swap(0);
    end_those_exhausted(&clas, &app);
    bound(&app, 64, 0);
    let a = map(&app, 1000, ANON | MAP_NORESERVE, None);
    for i in 0..64 {
        app.store(a + i * P, 1).unwrap();
        assert!(app.mm.charged_here() <= 64 * P);
    }
    let fault = app.store(a + 64 * P, 1).unwrap_err();
    assert_eq!(fault.signal, abi::signal::SIGKILL);
    assert!(app.mm.is_exhausted());
    // What is there stays readable; what goes makes room.
    assert_eq!(app.load(a + 5 * P), Ok(1));
    bound(&app, 65, 0);
    assert!(!app.mm.is_exhausted());
    app.store(a + 64 * P, 1).unwrap();
    app.mm.munmap(Va(a), 32 * P).unwrap();
    app.store(a + 65 * P, 1).unwrap();
    app.check();
}

#[test]
fn the_kernels_copies_stop_at_the_own_limit() {
    let (_clas, app) = app_with_swap(0);
    bound(&app, 16, 0);
    let a = map(&app, 100, ANON, None);
    let n = app.mm.write_bytes(Va(a), &vec![7; 100 * P as usize]);
    assert_eq!(n as u64, 16 * P);
    assert!(app.mm.is_exhausted());
    app.check();
}

#[test]
fn files_frames_are_let_go_of() {
    let (clas, app) = app_with_swap(0);
    bound(&app, 16, 0);
    let file = TestFile::frames(&clas, 100);
    let a = map(&app, 100, MAP_SHARED, Some(file.file()));
    for i in 0..100 {
        app.store(a + i * P, i as u8).unwrap();
        assert!(app.mm.charged_here() <= 16 * P);
    }
    for i in 0..100 {
        assert_eq!(app.load(a + i * P), Ok(i as u8));
    }
    app.check();
    let b = map(&app, 100, MAP_SHARED | MAP_ANONYMOUS, None);
    for i in 0..100 {
        app.store(b + i * P, i as u8).unwrap();
    }
    for i in 0..100 {
        assert_eq!(app.load(b + i * P), Ok(i as u8));
    }
    assert!(app.mm.charged_here() <= 16 * P);
    app.check();
}

#[test]
fn with_swap_the_own_limit_holds_and_nothing_is_lost() {
    let (_clas, app) = app_with_swap(1000);
    bound(&app, 32, 0);
    let a = map(&app, 200, ANON, None);
    for round in 0..3u8 {
        for i in 0..200 {
            if round > 0 {
                assert_eq!(app.load(a + i * P), Ok(i as u8 + round - 1));
            }
            app.store(a + i * P, i as u8 + round).unwrap();
            assert!(app.mm.charged_here() <= 32 * P);
        }
    }
    app.check();
}

#[test]
fn others_take_nothing_of_a_reservation() {
    let (_clas, app) = app_with_swap(1000);
    bound(&app, u64::MAX / P, 50);
    let a = map(&app, 80, ANON, None);
    for i in 0..80 {
        app.store(a + i * P, 1).unwrap();
    }
    for _ in 0..20 {
        app.send(40, Pick::SecondChance);
        assert!(app.mm.charged_here() >= 50 * P);
    }
    assert_eq!(app.mm.charged_here(), 50 * P);
    // Nor by way of a child that shares it.
    let child = app.fork();
    assert_eq!(child.mm.bounds().reserve, 0);
    for _ in 0..20 {
        child.send(40, Pick::SecondChance);
    }
    assert_eq!(app.mm.charged_here(), 50 * P);
    app.check();
    child.check();
}

#[test]
fn what_is_shared_is_told_in_parts() {
    let (clas, app) = app_with_swap(1000);
    let a = map(&app, 10, ANON | MAP_NORESERVE, None);
    (0..8).for_each(|i| app.store(a + i * P, 1).unwrap());
    let file = TestFile::frames(&clas, 4);
    file.put(0, &vec![1; 4 * P as usize]);
    let b = map(&app, 4, MAP_SHARED, Some(file.file()));
    (0..4).for_each(|i| assert_eq!(app.load(b + i * P), Ok(1)));
    let of = |app: &App| {
        let f = app.mm.footprint();
        [f.size, f.resident, f.shared, f.proportional, f.swapped].map(|n| n / P)
    };
    assert_eq!(of(&app), [14, 12, 0, 12, 0]);
    let child = app.fork();
    assert_eq!(of(&app), [14, 12, 12, 6, 0]);
    assert_eq!(of(&child), [14, 12, 12, 6, 0]);
    // A page of its own.
    child.store(a, 2).unwrap();
    let (one, two) = (of(&app), of(&child));
    assert_eq!(one[1] + two[1], 24);
    assert_eq!(one[3] + two[3], clas.stats().resident / P);
    drop(child);
    app.mm
        .madvise(Va(a), 10 * P, abi::linux::MADV_PAGEOUT)
        .unwrap();
    assert_eq!(of(&app)[1], 4);
    assert_eq!(of(&app)[4] * P, app.mm.charged() - app.mm.charged_here());
    app.check();
}

#[test]
fn a_lower_limit_is_reached_at_once_where_that_can_be() {
    let (_clas, app) = app_with_swap(30);
    let a = map(&app, 80, ANON | MAP_NORESERVE, None);
    let noise: Vec<u8> = (0..80 * P)
        .map(|i| ((i * i % 251 * i) >> 7) as u8)
        .collect();
    app.mm.write_bytes(Va(a), &noise);
    bound(&app, 60, 0);
    assert!(shrunk(&app));
    assert!(app.mm.charged_here() <= 60 * P);
    bound(&app, 20, 0);
    // More than there is swap for.
    assert!(!shrunk(&app));
    app.check();
}
