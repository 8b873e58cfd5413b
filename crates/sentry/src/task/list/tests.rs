//! Groups, sessions and numbers, without tasks.

use super::*;
use crate::task::limits::Limits;
use crate::task::signal::Actions;
use parking_lot::RwLock;

/// Groups and sessions do not look at it.
fn container() -> Arc<crate::container::Container> {
    let uts = crate::ns::uts::Uts {
        nodename: Vec::new(),
        domainname: Vec::new(),
    };
    let cgroups = crate::cgroup::Hierarchy::new().initial_namespace();
    crate::container::Container::new(crate::container::Parts {
        clas: clas::Clas::new().unwrap(),
        ns: crate::ns::NsProxy::initial(uts, net::NetNamespace::new(), cgroups),
        devpts: crate::fs::terminals::Terminals::new().new_devpts(),
        seccomp: Vec::new(),
        is_managed: false,
        control: hostcall::HostFd::from_raw(-1),
        limits: config::Limits::default(),
        memory_bound: u64::MAX,
    })
}

fn add(l: &mut TaskList, parent: i32, pgid: i32, sid: i32) -> i32 {
    let pid = l.new_pid(&PidNs::initial(), &[]).unwrap();
    let id = pid.id;
    let actions = Arc::new(RwLock::new(Actions::default()));
    let group = ThreadGroup::new(pid, &container(), actions, Limits::default());
    l.add_process(Process {
        parent,
        pgid: if pgid == 0 { id } else { pgid },
        sid: if sid == 0 { id } else { sid },
        ..Process::leading(group)
    });
    id
}

#[test]
fn groups_and_sessions_are_known_by_their_id() {
    let mut l = TaskList::default();
    let init = add(&mut l, 0, 0, 0);
    let a = add(&mut l, init, init, init);
    let b = add(&mut l, a, init, init);
    assert_eq!(l.group_members(init).len(), 3);
    l.set_group(a, a);
    l.set_group(b, a);
    assert_eq!(l.session_of_group(a), Some(init));
    assert!(!l.is_orphaned(a, None));
    // The leader is gone, its group and its number stay in use.
    l.reparent(a, init);
    drop(l.reap(a));
    assert!(l.group_exists(a));
    assert_eq!(l.new_session(b), Ok(b));
    assert!(!l.group_exists(a));
    assert_eq!(l.new_session(b), Err(EPERM));
    drop(l.reap(b));
    assert_eq!((l.groups.len(), l.sessions.len()), (1, 1));
    // Numbers in use are jumped over after a wrap.
    l.last = PID_MAX - 1;
    let c = add(&mut l, init, 0, 0);
    assert_eq!(c, RESERVED);
    l.last = RESERVED - 1;
    assert_eq!(l.new_tid(), Ok(RESERVED + 1));
}

/// Numbers that nobody got are free again; those that are kept are the task's.
#[test]
fn numbers_go_back_by_themselves() {
    let mut l = TaskList::default();
    let cred = Credentials::root();
    let registry = vfs::userns::Registry::default();
    let ns = PidNs::initial().create(&registry, &cred).unwrap();
    let first = l.take_number(&ns).unwrap();
    assert_eq!(first.pid().own(), 1);
    let id = first.pid().id;
    drop(first);
    assert_eq!((ns.id_of(1), l.number(id, &ns)), (None, 0));
    let kept = l.take_number(&ns).unwrap().keep();
    assert_eq!(ns.id_of(kept.own()), Some(kept.id));
    assert_eq!(l.number(kept.id, &ns), kept.own());
}

/// An id that is used again is told from what it was.
#[test]
fn an_id_that_is_used_again_is_anothers() {
    let mut l = TaskList::default();
    let ns = PidNs::initial();
    let id = l.take_number(&ns).unwrap().keep().id;
    let birth = l.birth(id);
    assert_ne!(birth, 0);
    l.release(id);
    assert_eq!(l.birth(id), 0);
    l.last = id - 1;
    assert_eq!(l.take_number(&ns).unwrap().keep().id, id);
    assert!(![0, birth].contains(&l.birth(id)));
}
