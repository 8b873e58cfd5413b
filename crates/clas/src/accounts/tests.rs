use super::*;
use abi::errno::ENOMEM;

const P: u64 = PAGE_SIZE;

/// What a thread does that pays with this account.
fn paying<T>(c: &Clas, account: &Account, f: impl FnOnce() -> T) -> T {
    let payer = Arc::new(Payer::new(c));
    payer.set(account.id());
    pay_with(&payer);
    let out = f();
    PAYER.set(None);
    out
}

#[test]
fn frames_count_for_who_made_them_and_all_above() {
    let c = Clas::new().unwrap();
    let a = c.open_account(None).unwrap();
    let b = c.open_account(Some(&a)).unwrap();
    let other = c.open_account(None).unwrap();
    let f = paying(&c, &b, || c.allocate(3, None).unwrap());
    let g = paying(&c, &a, || {
        c.allocate_anon(2, crate::PlacementHint::default(), abi::Va(0))
            .unwrap()
    });
    let h = c.allocate(1, None).unwrap();
    assert_eq!((b.here(), a.here(), other.here()), (3 * P, 5 * P, 0));
    assert_eq!(c.here(), 6 * P);
    assert_eq!((a.stats().files, b.stats().files), (3 * P, 3 * P));
    assert!(c.is_paid_by(f, a.id()) && !c.is_paid_by(g, b.id()));
    // Shared by a fork, they count once; what is left of them is their maker's.
    c.incref(f, 3);
    paying(&c, &other, || c.decref(f, 3));
    assert_eq!((b.here(), other.here()), (3 * P, 0));
    // A copy is its maker's.
    let copy = paying(&c, &other, || {
        c.copy_of(f, 3, crate::PlacementHint::default()).unwrap()
    });
    assert_eq!((b.here(), other.here()), (3 * P, 3 * P));
    for (at, n) in [(f, 3), (g, 2), (h, 1), (copy, 3)] {
        c.decref(at, n);
    }
    assert_eq!((a.here(), other.here(), c.here()), (0, 0, 0));
    assert_eq!(a.stats().peak, 5 * P);
}

#[test]
fn no_limit_on_the_way_up_is_passed() {
    let c = Clas::with_limit(100 * P).unwrap();
    let a = c.open_account(None).unwrap();
    let b = c.open_account(Some(&a)).unwrap();
    a.set_max(10 * P);
    b.set_max(20 * P);
    let f = paying(&c, &b, || {
        let f = c.allocate(8, None).unwrap();
        assert_eq!(c.allocate(3, None), Err(ENOMEM));
        assert!(c.has_room(2 * P) && !c.has_room(3 * P));
        // The first that is short from below.
        assert_eq!(c.at_once(64 * P), P);
        f
    });
    // Others are not concerned.
    let g = c.allocate(50, None).unwrap();
    a.set_max(4 * P);
    assert!(a.is_shrinking() && !b.is_shrinking());
    let told = c.shortages();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].account, told[0].is_awaited), (a.id(), true));
    c.decref(f, 8);
    assert!(!a.is_shrinking());
    assert_eq!(c.shortages(), []);
    c.decref(g, 50);
}

#[test]
fn what_an_account_leaves_counts_for_those_above() {
    let c = Clas::new().unwrap();
    let a = c.open_account(None).unwrap();
    let b = c.open_account(Some(&a)).unwrap();
    b.set_max(4 * P);
    let f = paying(&c, &b, || c.allocate(4, None).unwrap());
    let id = b.id();
    drop(b);
    assert_eq!(a.here(), 4 * P);
    // Its number is not used again, and who still pays with it does so for those above.
    assert_eq!(c.inner.lock().accounts.payer(id), id);
    let next = c.open_account(Some(&a)).unwrap();
    assert_ne!(next.id(), id);
    c.decref(f, 4);
    assert_eq!(c.inner.lock().accounts.payer(id), AccountId::ROOT);
    assert_eq!(a.here(), 0);
    drop((next, a));
    assert_eq!(c.inner.lock().accounts.others.len(), 0);
}

#[test]
fn who_brings_a_frame_in_pays_for_it_if_its_owner_cannot() {
    let c = Clas::new().unwrap();
    c.swap_in_memory(100 * P).unwrap();
    let [a, b] = [0, 1].map(|_| c.open_account(None).unwrap());
    let f = paying(&c, &a, || c.allocate(4, None).unwrap());
    c.slice(f, 2 * P as usize)
        .copy_from(&vec![7; 2 * P as usize]);
    assert_eq!(c.send_out(f, 4), 4);
    // Zeros take nothing of the store.
    assert_eq!((a.here(), a.stats().swapped), (0, 2 * P));
    b.set_max(P);
    a.set_max(0);
    paying(&c, &b, || {
        assert_eq!(c.bring_in(f, 1), Ok(true));
        assert_eq!(c.bring_in(f.add(P), 1), Err(ENOMEM));
    });
    assert_eq!((a.here(), b.here()), (0, P));
    assert_eq!((a.stats().swapped, b.stats().swapped), (P, 0));
    a.set_max(u64::MAX);
    paying(&c, &b, || assert_eq!(c.bring_in(f.add(P), 3), Ok(true)));
    assert_eq!((a.here(), b.here()), (3 * P, P));
    // The swap of an account ends before the container's.
    c.slice(f, 4 * P as usize)
        .copy_from(&vec![8; 4 * P as usize]);
    a.set_swap_max(2 * P);
    assert_eq!(c.send_out(f.add(P), 3), 2);
    assert_eq!((c.send_out(f.add(3 * P), 1), a.stats().swap_fails), (0, 1));
    assert_eq!((a.here(), a.stats().swapped), (P, 2 * P));
    c.decref(f, 4);
    assert_eq!(
        (a.stats().swapped, a.here(), b.here(), c.here()),
        (0, 0, 0, 0)
    );
}

#[test]
fn accounts_nest_so_deep_and_no_deeper() {
    let c = Clas::new().unwrap();
    let mut all = vec![c.open_account(None).unwrap()];
    let last = loop {
        match c.open_account(all.last()) {
            Ok(a) => all.push(a),
            Err(e) => break e,
        }
    };
    assert_eq!((all.len(), last), (DEPTH_MAX, EAGAIN));
}

#[test]
fn only_touched_frames_are_told() {
    let c = Clas::new().unwrap();
    let a = c.open_account(None).unwrap();
    let f = paying(&c, &a, || c.allocate(10, None).unwrap());
    c.slice(f.add(3 * P), P as usize).copy_from(&[1; 10]);
    assert_eq!((a.here(), a.untouched()), (10 * P, 9 * P));
    c.decref(f, 10);
}
