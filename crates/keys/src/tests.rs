use crate::key::ALL;
use crate::*;
use abi::errno::*;

const SESSION: i32 = -3;
const PROCESS: i32 = -2;
const THREAD: i32 = -1;

struct Task {
    keys: Arc<Keys>,
    cred: Credentials,
    rings: Rings,
    now: i64,
}

impl Task {
    fn new(uid: u32) -> Task {
        Task {
            keys: Arc::default(),
            cred: Credentials::user(uid, uid, vec![]),
            rings: Rings::default(),
            now: 1000,
        }
    }
    fn act(&mut self) -> Act<'_> {
        self.keys.act_at(&self.cred, &mut self.rings, self.now)
    }
    fn count(&self) -> usize {
        self.keys.state.lock().keys.len()
    }
}

#[test]
fn a_key_lives_as_long_as_it_is_held() {
    let mut t = Task::new(1000);
    let k = t.act().add(b"user", b"a", b"12".to_vec(), PROCESS).unwrap();
    assert_eq!(t.act().read(k, 0), Ok(b"12".to_vec()));
    assert_eq!(t.count(), 2);
    let child = t.rings.inherit(Survives::Process);
    t.rings = Rings::default();
    assert_eq!(t.count(), 2);
    assert_eq!(t.act().read(k, 0), Err(EACCES));
    drop(child);
    assert_eq!(t.count(), 0);
    assert!(t.keys.state.lock().owners.is_empty());
}

#[test]
fn a_namespaces_users_keyrings_end_with_it() {
    const USERS: i32 = -4;
    let mut t = Task::new(1000);
    t.cred = vfs::userns::UserNs::create(&Default::default(), &t.cred).unwrap();
    let ring = t.act().keyring_id(USERS, Create::Yes).unwrap();
    t.act().add(b"user", b"a", b"12".to_vec(), ring).unwrap();
    t.act().persistent(1000).unwrap();
    assert!(t.count() > 5);
    t.rings = Rings::default();
    t.cred = Credentials::user(1000, 1000, vec![]);
    assert_eq!(t.count(), 0);
    assert!(t.keys.state.lock().registers.is_empty());
}

#[test]
fn a_long_chain_goes_without_a_deep_stack() {
    let mut t = Task::new(0);
    let mut ring = t.act().keyring_id(PROCESS, Create::Yes).unwrap();
    for i in 0..20_000 {
        let name = format!("r{i}");
        let new = t.act().add(b"keyring", name.as_bytes(), vec![], THREAD);
        let new = new.unwrap();
        // Of those that are deep below it possesses none.
        t.act().set_permissions(new, ALL).unwrap();
        t.act().link(new, ring).unwrap();
        t.act().unlink(new, THREAD).unwrap();
        ring = new;
    }
    t.rings = Rings::default();
    assert_eq!(t.count(), 0);
}

#[test]
fn links_make_no_circle() {
    let mut t = Task::new(1000);
    let a = t.act().add(b"keyring", b"a", vec![], SESSION).unwrap();
    let b = t.act().add(b"keyring", b"b", vec![], a).unwrap();
    assert_eq!(t.act().link(a, b), Err(EDEADLK));
    assert_eq!(t.act().link(a, a), Err(EDEADLK));
    assert_eq!(t.act().link(b, SESSION), Ok(()));
    let mut top = b;
    for i in 0..7 {
        let name = format!("r{i}");
        top = t
            .act()
            .add(b"keyring", name.as_bytes(), vec![], top)
            .unwrap();
    }
    let other = t.act().add(b"keyring", b"o", vec![], THREAD).unwrap();
    assert_eq!(t.act().link(b, other), Err(ELOOP));
}

#[test]
fn quotas_are_kept_and_given_back() {
    let mut t = Task::new(1000);
    t.act().keyring_id(SESSION, Create::Yes).unwrap();
    let big = vec![1; 15_000];
    let k = t.act().add(b"user", b"a", big.clone(), SESSION).unwrap();
    assert_eq!(
        t.act().add(b"user", b"b", big.clone(), SESSION),
        Err(EDQUOT)
    );
    assert_eq!(t.act().update(k, vec![1; 25_000]), Err(EDQUOT));
    assert_eq!(t.act().read(k, 0).unwrap().len(), 15_000);
    t.act().revoke(k).unwrap();
    assert!(t.act().add(b"user", b"b", big, SESSION).is_ok());
    let mut n = 0;
    while t
        .act()
        .add(b"user", format!("n{n}").as_bytes(), vec![1], SESSION)
        .is_ok()
    {
        n += 1;
    }
    let owner = t.keys.state.lock().owners[&1000];
    assert_eq!(owner.counted_keys, 200);
    t.rings = Rings::default();
    let left = t.keys.state.lock().owners[&1000];
    // The user's own.
    assert_eq!((left.keys, left.counted_keys), (2, 2));
}

#[test]
fn what_ended_goes_after_a_while() {
    let mut t = Task::new(1000);
    let k = t.act().add(b"user", b"a", vec![1], PROCESS).unwrap();
    t.act().set_timeout(k, 10).unwrap();
    t.now += 10;
    assert_eq!(t.act().read(k, 0), Err(EKEYEXPIRED));
    assert_eq!(t.act().find(PROCESS, b"user", b"a", 0), Err(EKEYEXPIRED));
    t.now += 300;
    assert_eq!(t.act().read(k, 0), Err(ENOKEY));
    assert_eq!(t.count(), 1);
}

#[test]
fn nobody_makes_keys_on_request() {
    let mut t = Task::new(1000);
    t.act().keyring_id(PROCESS, Create::Yes).unwrap();
    assert_eq!(
        t.act().request(b"user", b"a", Callout::None, 0),
        Err(ENOKEY)
    );
    assert_eq!(
        t.act().request(b"user", b"a", Callout::Given, 0),
        Err(ENOKEY)
    );
    assert_eq!(
        t.act().request(b"user", b"a", Callout::Given, 0),
        Err(ENOKEY)
    );
    t.now += 60;
    assert_eq!(
        t.act().request(b"user", b"a", Callout::None, 0),
        Err(ENOKEY)
    );
    let k = t.act().add(b"user", b"a", vec![3], PROCESS).unwrap();
    assert_eq!(t.act().request(b"user", b"a", Callout::None, 0), Ok(k));
}

#[test]
fn containers_do_not_share() {
    let (mut a, mut b) = (Task::new(0), Task::new(0));
    let k = a.act().add(b"user", b"a", vec![1], SESSION).unwrap();
    assert_eq!(b.act().read(k, 0), Err(ENOKEY));
}

/// Makes so many keyrings.
fn make_rings(t: &mut Task, number: usize, inside: i32) -> Vec<i32> {
    let mut make = |i| {
        let name = format!("many{i}");
        t.act().add(b"keyring", name.as_bytes(), vec![], inside)
    };
    (0..number).map(|i| make(i).unwrap()).collect()
}

#[test]
fn possession_is_told_with_many_keyrings() {
    let mut t = Task::new(0);
    let all = make_rings(&mut t, 1500, SESSION);
    // Beside many.
    assert_eq!(t.act().describe(all[1499]).map(|_| ()), Ok(()));
    let k = t.act().add(b"user", b"a", vec![1], all[1499]).unwrap();
    t.act().set_permissions(k, ALL & 0xff00_0000).unwrap();
    assert_eq!(t.act().read(k, 0), Ok(vec![1]));
    // In many.
    for r in &all {
        t.act().link(k, *r).unwrap();
    }
    t.act().link(k, PROCESS).unwrap();
    let mut other = Rings::default();
    std::mem::swap(&mut t.rings, &mut other);
    t.act().keyring_id(PROCESS, Create::Yes).unwrap();
    assert_eq!(t.act().read(k, 0), Err(EACCES));
    std::mem::swap(&mut t.rings, &mut other);
    assert_eq!(t.act().read(k, 0), Ok(vec![1]));
    // Too many to look at.
    assert_eq!(t.act().find(SESSION, b"user", b"b", 0), Err(ENOMEM));
    let session = t.act().keyring_id(SESSION, Create::No).unwrap();
    assert_eq!(t.act().link(session, THREAD), Err(ELOOP));
    let text = String::from_utf8(t.act().show_keys()).unwrap();
    assert!(text.lines().count() > 1500);
}

#[test]
fn what_a_moved_key_replaces_may_hold_where_it_was() {
    let mut t = Task::new(0);
    let to = t.act().keyring_id(PROCESS, Create::Yes).unwrap();
    let old = t.act().add(b"keyring", b"x", vec![], to).unwrap();
    let from = t.act().add(b"keyring", b"from", vec![], old).unwrap();
    let k = t.act().add(b"keyring", b"x", vec![], from).unwrap();
    assert_eq!(t.act().move_link(k, from, to, Move::Replace), Ok(()));
    assert_eq!(t.count(), 2);
}
