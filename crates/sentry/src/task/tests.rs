//! Tasks without a program: the loop, signals' queues, waiting for children.

use super::signal::SigAction;
use super::wait4::{self, Who};
use super::{Sleep, run};
use crate::testing::{call, context, kernel, process};
use abi::errno::{EAGAIN, ECHILD, EINVAL, ENOSYS, ERESTARTSYS, ETIMEDOUT};
use abi::linux::{__WALL, __WCLONE, WEXITED, WNOHANG, WNOWAIT};
use abi::signal::{SI_QUEUE, SI_USER, SIGCHLD, SIGKILL, SIGSEGV, SIGTERM, SIGUSR1, SIGUSR2};
use abi::{SigInfo, SigSet, Signal, nr};
use std::time::{Duration, Instant};

const NO_WAIT: u32 = WNOHANG | WEXITED;

/// A process makes some calls, ends, and its parent is told how.
#[test]
fn the_life_of_a_process() {
    let k = kernel();
    let init = process(&k, 0, SIGCHLD.number());
    let child = process(&k, init.tid, SIGCHLD.number());
    let events = [
        call(nr::GETPID, &[]),
        call(nr::GETPPID, &[]),
        call(9_999, &[]),
        call(nr::CLOSE, &[7]),
        call(nr::EXIT_GROUP, &[3]),
    ];
    let (cx, results) = context(&child, &events);
    let number = child.tid;
    // Else it is ignored.
    init.set_mask(SigSet::of(SIGCHLD));
    drop(child);
    run::run(cx);
    let neg = |e: abi::Errno| -i64::from(e.raw()) as u64;
    let expected = [
        number as u64,
        init.tid as u64,
        neg(ENOSYS),
        neg(abi::errno::EBADF),
    ];
    assert_eq!(*results.lock(), expected);
    assert!(init.group.shared.bits().contains(SIGCHLD));
    let (cx, _) = context(&init, &[]);
    let change = wait4::wait(&cx, Who::Any, NO_WAIT).unwrap().unwrap();
    assert_eq!((change.pid, change.status), (number, 3 << 8));
    assert!(matches!(wait4::wait(&cx, Who::Any, NO_WAIT), Err(ECHILD)));
}

/// What is killed ends at its next boundary, whatever it was about to do.
#[test]
fn an_end_comes_first() {
    let k = kernel();
    let init = process(&k, 0, SIGCHLD.number());
    let child = process(&k, init.tid, SIGCHLD.number());
    let (cx, results) = context(&child, &[call(nr::GETPID, &[])]);
    k.kill_group(&child.group, SIGKILL.number());
    run::run(cx);
    assert!(results.lock().is_empty());
    let (cx, _) = context(&init, &[]);
    let change = wait4::wait(&cx, Who::Pid(child.tid), NO_WAIT).unwrap();
    assert_eq!(change.unwrap().status, SIGKILL.number());
}

/// Which children wait4(2) tells of: by who they are, by the signal of their end, and by what is
/// asked of them.
#[test]
fn who_is_waited_for() {
    let k = kernel();
    let init = process(&k, 0, SIGCHLD.number());
    let child = process(&k, init.tid, SIGCHLD.number());
    let clone = process(&k, init.tid, SIGUSR1.number());
    let stranger = process(&k, child.tid, SIGCHLD.number());
    let (cx, _) = context(&init, &[]);
    let found = |who, options| wait4::wait(&cx, who, options).map(|c| c.map(|c| c.pid));
    assert_eq!(found(Who::Any, 1 << 10), Err(EINVAL));
    assert_eq!(found(Who::Any, NO_WAIT), Ok(None));
    assert_eq!(found(Who::Pid(stranger.tid), NO_WAIT), Err(ECHILD));
    assert_eq!(found(Who::Group(stranger.tid), NO_WAIT), Err(ECHILD));
    for t in [&child, &clone] {
        k.kill_group(&t.group, SIGKILL.number());
        run::run(context(t, &[]).0);
    }
    // What is left is told first, then taken.
    let keep = NO_WAIT | WNOWAIT;
    assert_eq!(
        found(Who::Group(clone.tid), keep | __WCLONE),
        Ok(Some(clone.tid))
    );
    assert_eq!(found(Who::Pid(clone.tid), NO_WAIT), Err(ECHILD));
    assert_eq!(found(Who::Pid(child.tid), NO_WAIT | __WCLONE), Err(ECHILD));
    // A zombie has nothing to tell to those who do not ask for ends.
    assert_eq!(found(Who::Pid(child.tid), WNOHANG | __WALL), Err(ECHILD));
    assert_eq!(found(Who::Any, NO_WAIT), Ok(Some(child.tid)));
    assert_eq!(found(Who::Any, NO_WAIT | __WALL), Ok(Some(clone.tid)));
    // Whose parent has ended is a child of process 1.
    assert_eq!(found(Who::Pid(stranger.tid), NO_WAIT), Ok(None));
}

/// Standard signals wait once, real-time ones queue; faults come first, then the lowest number,
/// then the oldest.
#[test]
fn what_waits_comes_in_order() {
    let k = kernel();
    let t = process(&k, 0, SIGCHLD.number());
    t.set_mask(SigSet::ALL);
    let rt = Signal::new(40).unwrap();
    let send = |s: Signal, value: u64| {
        let mut i = SigInfo::from_sender(s, SI_QUEUE, 1, 0);
        i.fields[1] = value;
        k.send_to_task(&t, i).unwrap();
    };
    for (s, v) in [
        (rt, 1),
        (SIGUSR2, 2),
        (SIGUSR1, 3),
        (SIGUSR1, 4),
        (rt, 5),
        (SIGSEGV, 6),
    ] {
        send(s, v);
    }
    let mut bits = SigSet::of(rt);
    for s in [SIGUSR1, SIGUSR2, SIGSEGV] {
        bits = bits.union(SigSet::of(s));
    }
    assert_eq!(t.pending.bits(), bits);
    assert!(!t.has_work(), "all of it is blocked");
    t.pending.discard(SigSet::of(SIGUSR2));
    let taken = std::iter::from_fn(|| t.take_signal(SigSet::ALL));
    let got: Vec<_> = taken.map(|i| (i.signo, i.fields[1])).collect();
    let expected = [(SIGSEGV, 6), (SIGUSR1, 3), (rt, 1), (rt, 5)].map(|(s, v)| (s.number(), v));
    assert_eq!(got, expected);
    assert_eq!(t.pending.bits(), SigSet::EMPTY);
}

/// A signal that is ignored is dropped when it is sent, unless it is blocked.
#[test]
fn ignored_signals_do_not_wait() {
    let k = kernel();
    let t = process(&k, 0, SIGCHLD.number());
    let send = |s| {
        k.send_to_task(&t, SigInfo::from_sender(s, SI_USER, 1, 0))
            .unwrap()
    };
    send(SIGCHLD);
    assert_eq!(t.pending.bits(), SigSet::EMPTY);
    t.set_mask(SigSet::of(SIGCHLD));
    send(SIGCHLD);
    assert!(t.pending.bits().contains(SIGCHLD) && !t.has_work());
    send(SIGTERM);
    assert!(t.has_work());
    // What cannot be blocked is not.
    t.set_mask(SigSet::ALL);
    assert!(!t.mask().contains(SIGKILL) && t.mask().contains(SIGTERM));
}

/// The one way to sleep: by what ends it, and what it shows meanwhile.
#[test]
fn sleeps_end_and_show() {
    let k = kernel();
    let t = process(&k, 0, SIGCHLD.number());
    // One that has no handler would end it.
    let handler = SigAction {
        handler: 0x1000,
        ..SigAction::default()
    };
    t.group.actions().write().set(SIGUSR1, handler);
    let soon = || Some(Instant::now() + Duration::from_millis(5));
    let never = || Err::<(), _>(EAGAIN);
    assert_eq!(t.block(&[], soon(), never), Err(ETIMEDOUT));
    assert_eq!(t.state_letter(), 'R');
    for (sleep, letter) in [
        (Sleep::Interruptible, 'S'),
        (Sleep::Killable, 'D'),
        (Sleep::Still, 'S'),
    ] {
        let sleeper = t.clone();
        let until = Instant::now() + Duration::from_secs(20);
        let s = std::thread::spawn(move || sleeper.block_as(sleep, &[], Some(until), never));
        while t.state_letter() != letter {
            assert!(!s.is_finished());
            std::thread::yield_now();
        }
        // A signal ends the one, an end the others.
        let info = SigInfo::from_sender(SIGUSR1, SI_USER, 1, 0);
        k.send_to_task(&t, info).unwrap();
        if sleep == Sleep::Interruptible {
            assert_eq!(s.join().unwrap(), Err(ERESTARTSYS));
            t.pending.discard(SigSet::ALL);
            continue;
        }
        std::thread::sleep(Duration::from_millis(5));
        assert!(!s.is_finished());
        t.kill();
        assert_eq!(s.join().unwrap(), Err(ERESTARTSYS));
        t.killed.store(false, std::sync::atomic::Ordering::SeqCst);
        t.pending.discard(SigSet::ALL);
        assert_eq!(t.state_letter(), 'R');
    }
}
