use super::*;
use containerd_shim_protos::topics::*;

/// One whose first process runs, as pid 7, and an exec `e`, as pid 8.
fn running() -> (Arc<Container>, Publisher) {
    let events = Publisher::kept();
    let c = Arc::new(Container::new(
        "c",
        "/nowhere".into(),
        Settings::default(),
        StdioRequest::default(),
        Arc::default(),
        events.clone(),
    ));
    {
        let mut s = c.lock();
        (s.init.pid, s.init.phase) = (7, Phase::Running);
        let mut e = Process::new(StdioRequest::default(), Phase::Running, None);
        e.pid = 8;
        s.execs.insert("e".into(), e);
    }
    (c, events)
}

fn exit(e: ttrpc::Result<Exit>) -> u32 {
    e.unwrap().status
}

#[test]
fn the_first_process_ends_last() {
    let (c, events) = running();
    c.exited("", 3);
    assert!(events.topics().is_empty());
    assert!(c.start("e").is_err() && c.kill("", 9, oci::Scope::First).is_err());
    assert!(
        c.add("f", StdioRequest::default(), oci::spec::Process::default())
            .is_err()
    );
    c.exited("e", 137);
    assert_eq!(events.topics(), [TASK_EXIT_EVENT_TOPIC; 2]);
    assert_eq!((exit(c.wait("")), exit(c.wait("e"))), (3, 137));
    // Told again, they are not published again.
    c.exited("", 4);
    assert_eq!((exit(c.wait("")), events.topics().len()), (3, 0));
}

#[test]
fn an_exec_whose_end_is_never_told_does_not_hold_the_rest() {
    let (c, events) = running();
    let own = Arc::clone(&c);
    let waits = std::thread::spawn(move || exit(own.wait("")));
    c.exited("", 3);
    assert_eq!(waits.join().unwrap(), 3);
    assert_eq!(events.topics(), [TASK_EXIT_EVENT_TOPIC]);
}

#[test]
fn an_end_waits_for_the_answer_to_a_start() {
    let (c, events) = running();
    c.lock().init.phase = Phase::Starting;
    c.exited("e", 0);
    c.exited("", 1);
    assert_eq!(events.topics().len(), 1);
    let mut s = c.lock();
    s.init.phase = Phase::Running;
    c.conclude(&mut s);
    assert_eq!((events.topics().len(), s.init.phase), (1, Phase::Stopped));
}

#[test]
fn a_delete_that_fails_publishes_nothing_twice() {
    let (c, events) = running();
    c.exited("e", 0);
    c.exited("", 1);
    assert_eq!(events.topics().len(), 2);
    // The helper is this test, which does not understand the order.
    assert!(c.delete("").is_err());
    assert_eq!(c.lock().init.phase, Phase::Stopped);
    assert!(events.topics().is_empty());
    assert_eq!(exit(c.wait("")), 1);
}

#[test]
fn who_waits_while_it_is_deleted_is_answered() {
    let (c, events) = running();
    c.exited("e", 0);
    let waiting = |exec: &'static str| {
        let own = Arc::clone(&c);
        let t = std::thread::spawn(move || own.wait(exec).map(|e| e.status));
        while c.lock().process(exec).unwrap().waiters.is_empty() {
            std::thread::yield_now();
        }
        t
    };
    c.add(
        "never",
        StdioRequest::default(),
        oci::spec::Process::default(),
    )
    .unwrap();
    c.lock().init.phase = Phase::Deleting;
    let (first, never) = (waiting(""), waiting("never"));
    assert!(c.delete("").is_err(), "one at a time");
    c.exited("", 9);
    assert_eq!(first.join().unwrap().unwrap(), 9);
    assert_eq!(c.lock().init.phase, Phase::Deleting);
    c.delete("never").unwrap();
    assert!(never.join().unwrap().is_err());
    events.topics();
    // A creation that failed.
    let (c, _) = running();
    c.lock().init.phase = Phase::Creating;
    let own = Arc::clone(&c);
    let t = std::thread::spawn(move || own.wait(""));
    while c.lock().init.waiters.is_empty() {
        std::thread::yield_now();
    }
    c.abandon();
    assert!(t.join().unwrap().is_err() && c.wait("").is_err());
}

#[test]
fn a_start_that_was_lost_is_not_tried_again() {
    let (c, events) = running();
    c.add("f", StdioRequest::default(), oci::spec::Process::default())
        .unwrap();
    events.topics();
    // The helper is this test, which does not understand the order, and ends.
    assert!(c.start("f").is_err());
    assert_eq!(exit(c.wait("f")), 137);
    assert!(c.start("f").is_err() && events.topics().is_empty());
    assert_eq!(c.delete("f").unwrap().1.status, 137);
    // Of the first one nothing is known to have been done.
    c.lock().init.phase = Phase::Created;
    assert!(c.start("").is_err());
    assert_eq!(c.lock().init.phase, Phase::Created);
}
