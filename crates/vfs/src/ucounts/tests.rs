//! Limits hold for one user and for the owners of its namespaces, and are exact.

use super::*;
use crate::cred::Credentials;
use crate::userns::Registry;
use abi::errno::ENFILE;

#[test]
fn a_user_of_a_namespace_counts_for_its_owner_too() {
    let user = Credentials::user(77_000, 77_000, vec![]);
    let inside = UserNs::create(&Registry::default(), &user).unwrap();
    let (out, own) = (user.ucounts(), inside.ucounts());
    assert_eq!(out.count(Kind::UserNamespaces), 1);
    let a = own.charge(Kind::Processes, 3, 3).unwrap();
    assert_eq!(
        (own.count(Kind::Processes), out.count(Kind::Processes)),
        (3, 3)
    );
    assert!(own.charge(Kind::Processes, 1, 3).is_none());
    assert_eq!(
        (own.count(Kind::Processes), out.count(Kind::Processes)),
        (3, 3)
    );
    // The limit of one user is not the other's.
    assert!(out.charge(Kind::Processes, 1, 4).is_some());
    drop(a);
    assert_eq!(
        (own.count(Kind::Processes), out.count(Kind::Processes)),
        (0, 0)
    );
    // The limit of the namespace above holds below.
    let most = UserNs::default().limits().get(Kind::InotifyInstances) as u64;
    let b = own.charge(Kind::InotifyInstances, most, u64::MAX).unwrap();
    assert!(own.charge(Kind::InotifyInstances, 1, u64::MAX).is_none());
    assert!(out.charge(Kind::InotifyInstances, 1, u64::MAX).is_none());
    let other = Credentials::user(77_001, 77_001, vec![]);
    assert!(
        other
            .ucounts()
            .charge(Kind::InotifyInstances, 1, u64::MAX)
            .is_some()
    );
    drop(b);
}

#[test]
fn who_has_many_host_files_open_is_refused_alone() {
    UserNs::default().limits().set(Kind::HostFiles, 1000);
    let user = Credentials::user(77_020, 77_020, vec![]);
    let held = user.ucounts().force(Kind::HostFiles, 999);
    user.may_hold_host_file().unwrap();
    let last = user.ucounts().force(Kind::HostFiles, 1);
    assert_eq!(user.may_hold_host_file(), Err(ENFILE));
    // A namespace is no way past it.
    let inside = UserNs::create(&Registry::default(), &user).unwrap();
    assert!(!inside.ucounts().has_room(Kind::HostFiles, 1));
    let other = Credentials::user(77_021, 77_021, vec![]);
    other.may_hold_host_file().unwrap();
    Credentials::root().may_hold_host_file().unwrap();
    drop(last);
    user.may_hold_host_file().unwrap();
    drop(held);
}

#[test]
fn namespaces_are_no_way_past_the_sandboxs_ceilings() {
    let user = Credentials::user(77_010, 77_010, vec![]);
    let registry = Registry::default();
    let two = [0, 1].map(|_| UserNs::create(&registry, &user).unwrap().ucounts().clone());
    for (k, most) in [
        (Kind::Tasks, TASKS),
        (Kind::Processes, PROCESSES),
        (Kind::FilesInFlight, FILES_IN_FLIGHT),
    ] {
        let most = most as u64;
        assert!(two[0].charge(k, most + 1, u64::MAX).is_none());
        let all = two[0].charge(k, most, u64::MAX).unwrap();
        assert!(two[1].charge(k, 1, u64::MAX).is_none(), "{k:?}");
        assert!(user.ucounts().charge(k, 1, u64::MAX).is_none());
        drop(all);
        assert!(two[1].charge(k, 1, u64::MAX).is_some());
    }
    let _held = two[0].force(Kind::PipePages, 10);
    assert_eq!(two[1].most(Kind::PipePages), 10);
    let _files = two[0].force(Kind::FilesInFlight, 10);
    assert!(two[1].has_more_than(Kind::FilesInFlight, 9));
    assert!(!two[1].has_more_than(Kind::FilesInFlight, 10));
    let _many = two[0].force(Kind::FilesInFlight, FILES_IN_FLIGHT as u64);
    assert!(two[1].has_more_than(Kind::FilesInFlight, i64::MAX));
}

/// In parts, it is as if it were one count: also where one thread takes and another gives back.
#[test]
fn memory_is_counted_by_many_threads() {
    let user = Credentials::user(77_004, 77_004, vec![]);
    let u = user.ucounts();
    let most = UserNs::default().limits().get(Kind::Kmem) as u64;
    std::thread::scope(|s| {
        for _ in 0..Parts::COUNT + 3 {
            s.spawn(|| {
                for n in 1..1000 {
                    u.take(n);
                }
            });
        }
    });
    let held = 499_500 * (Parts::COUNT as u64 + 3);
    assert_eq!(u.count(Kind::Kmem) as u64, held);
    // Limits are exact.
    let rest = u.charge(Kind::Kmem, most - held, u64::MAX).unwrap();
    assert!(u.charge(Kind::Kmem, 1, u64::MAX).is_none() && !u.is_over(Kind::Kmem));
    u.take(1);
    assert!(u.is_over(Kind::Kmem) && u.is_tight(Kind::Kmem));
    u.give_back(1);
    drop(rest);
    u.give_back(held);
    assert_eq!(u.count(Kind::Kmem), 0);
    assert!(!u.is_over(Kind::Kmem) && !u.is_tight(Kind::Kmem));
}

#[test]
fn users_without_anything_are_forgotten() {
    let uid = 77_002;
    drop(UserNs::default().ucounts(uid));
    assert!(!INITIAL.0.0.lock().contains_key(&(0, uid)));
    let u = UserNs::default().ucounts(uid);
    assert!(Arc::ptr_eq(&u, &UserNs::default().ucounts(uid)));
}

#[test]
fn a_user_of_another_container_is_another() {
    let (a, b) = (UserNs::of_container(1), UserNs::of_container(2));
    assert_eq!(a, b);
    let (u, v) = (a.ucounts(77_005), b.ucounts(77_005));
    let most = a.limits().get(Kind::Kmem) as u64;
    let all = u.charge(Kind::Kmem, most, u64::MAX).unwrap();
    assert!(u.charge(Kind::Kmem, 1, u64::MAX).is_none());
    assert_eq!(v.count(Kind::Kmem), 0);
    assert!(v.charge(Kind::Kmem, most, u64::MAX).is_some());
    // What it makes in a namespace of its own counts for it, and not for its namesake.
    drop(all);
    let cred = Credentials {
        user_ns: a,
        ..Credentials::user(77_005, 77_005, vec![])
    };
    let inside = UserNs::create(&Default::default(), &cred).unwrap();
    let _some = inside.ucounts().force(Kind::Kmem, 5);
    assert_eq!((u.count(Kind::Kmem), v.count(Kind::Kmem)), (5, 0));
}

#[test]
fn only_who_passes_limits_goes_over_the_kernels_memory() {
    let user = Credentials::user(77_003, 77_003, vec![]);
    let most = UserNs::default().limits().get(Kind::Kmem) as usize;
    let mut all = user.kmem(most, abi::errno::ENOMEM).unwrap();
    assert_eq!(
        user.kmem(1, abi::errno::ENOMEM).err(),
        Some(abi::errno::ENOMEM)
    );
    assert!(!all.resize(most as u64 + 1) && all.resize(5) && all.amount() == 5);
    assert!(
        Credentials::root()
            .kmem(most + 1, abi::errno::ENOMEM)
            .is_ok()
    );
}

/// What users of a container hold counts within its limit, but not that of others.
#[test]
fn the_kernels_memory_counts_in_the_container() {
    let clas = clas::Clas::new().unwrap();
    count_in(&clas);
    let user = UserNs::of_container(clas.number()).ucounts(7);
    let other = UserNs::of_container(clas.number() + 1000).ucounts(7);
    let charge = user.charge(Kind::Kmem, 10 << 20, u64::MAX).unwrap();
    let _beside = other.charge(Kind::Kmem, 1 << 20, u64::MAX).unwrap();
    assert_eq!(clas.kernel_memory(), 10 << 20);
    assert_eq!(clas.here(), 10 << 20);
    // A namespace's users count once.
    drop(charge);
    assert_eq!(clas.kernel_memory(), 0);
}
