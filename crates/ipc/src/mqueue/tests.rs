use super::*;
use crate::testing::Me;
use abi::errno::{EINVAL, ENOSPC, ETIMEDOUT};
use std::time::Duration;

const PLAIN: Urgency = Urgency(120);

fn message(priority: u32, text: &str) -> Message {
    Message {
        priority,
        data: text.as_bytes().to_vec(),
        memory: None,
    }
}

fn queue(max_messages: usize) -> Arc<Queue<u32>> {
    Arc::new(Queue::new(Attr {
        max_messages,
        size: 16,
    }))
}

fn text(m: &Message) -> &str {
    std::str::from_utf8(&m.data).unwrap()
}

#[test]
fn the_highest_priority_first_then_the_oldest() {
    let (q, me) = (queue(8), Me::new());
    for (p, t) in [(1, "a"), (3, "b"), (1, "c"), (3, "d"), (2, "e")] {
        q.send(&me, PLAIN, message(p, t), Patience::None).unwrap();
    }
    assert_eq!(q.usage(), (5, 5));
    for t in ["b", "d", "e", "a", "c"] {
        let m = q.receive(&me, PLAIN, Patience::None).unwrap();
        assert_eq!(text(&m.it), t);
    }
    assert_eq!(q.receive(&me, PLAIN, Patience::None).unwrap_err(), EAGAIN);
    assert_eq!(q.usage(), (0, 0));
}

#[test]
fn a_notice_is_for_the_first_message_and_goes_with_it() {
    let (q, me) = (queue(2), Me::new());
    q.ask(7).unwrap();
    assert_eq!(q.ask(8), Err(8));
    let send = || q.send(&me, PLAIN, message(0, "x"), Patience::None).unwrap();
    assert_eq!(send().notice, Some(7));
    q.ask(9).unwrap();
    // It does not find the queue empty.
    assert_eq!(send().notice, None);
    assert_eq!(q.take_back(|n| *n == 1), None);
    assert_eq!(q.take_back(|n| *n == 9), Some(9));
    let full = q.send(&me, PLAIN, message(0, "y"), Patience::None);
    assert_eq!(full.unwrap_err(), EAGAIN);
}

#[test]
fn a_deadline_takes_the_waiter_out_of_line() {
    let (q, me) = (queue(1), Me::new());
    let soon = || Patience::Until(Some(Instant::now() + Duration::from_millis(5)));
    assert_eq!(q.receive(&me, PLAIN, soon()).unwrap_err(), ETIMEDOUT);
    q.send(&me, PLAIN, message(0, "a"), Patience::None).unwrap();
    let late = q.send(&me, PLAIN, message(9, "b"), soon());
    assert_eq!(late.unwrap_err(), ETIMEDOUT);
    let s = q.state.lock();
    assert!(s.senders.0.is_empty() && s.receivers.0.is_empty());
    assert_eq!(s.count, 1);
}

fn wait_for(f: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !f() {
        assert!(Instant::now() < end, "timed out");
        std::thread::yield_now();
    }
}

#[test]
fn lines_are_served_by_urgency_then_by_arrival() {
    let (q, me) = (queue(1), Me::new());
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for (i, u) in [120, 110, 120, 90].into_iter().enumerate() {
        let (q2, order) = (q.clone(), order.clone());
        threads.push(std::thread::spawn(move || {
            let m = q2.receive(&Me::new(), Urgency(u), Patience::Until(None));
            order.lock().push((text(&m.unwrap().it).to_owned(), i));
        }));
        wait_for(|| q.state.lock().receivers.0.len() == i + 1);
    }
    for (n, t) in ["0", "1", "2", "3"].into_iter().enumerate() {
        q.send(&me, PLAIN, message(0, t), Patience::None).unwrap();
        wait_for(|| order.lock().len() == n + 1);
        // Handed on: the queue holds nothing.
        assert_eq!(q.usage().0, 0);
    }
    for t in threads {
        t.join().unwrap();
    }
    let got: Vec<usize> = order.lock().iter().map(|(_, i)| *i).collect();
    assert_eq!(got, [3, 1, 0, 2]);
}

#[test]
fn a_waiting_sender_is_first_when_there_is_room() {
    let (q, me) = (queue(1), Me::new());
    q.send(&me, PLAIN, message(0, "a"), Patience::None).unwrap();
    let q2 = q.clone();
    let t = std::thread::spawn(move || {
        let sent = q2.send(&Me::new(), PLAIN, message(5, "b"), Patience::Until(None));
        assert!(sent.unwrap().waited);
    });
    wait_for(|| q.state.lock().senders.0.len() == 1);
    let m = q.receive(&me, PLAIN, Patience::None).unwrap();
    assert_eq!(text(&m.it), "a");
    // Its message is there before it runs.
    assert_eq!(q.usage().0, 1);
    t.join().unwrap();
    let m = q.receive(&me, PLAIN, Patience::None).unwrap();
    assert_eq!((text(&m.it), m.it.priority), ("b", 5));
}

#[test]
fn limits_are_those_of_linux() {
    let l = Limits::default();
    let none = Privilege::None;
    let attr = |a| l.attr(a, none).map(|a| (a.max_messages, a.size));
    assert_eq!(attr(None), Ok((10, 8192)));
    assert_eq!(attr(Some((10, 8192))), Ok((10, 8192)));
    for bad in [(0, 1), (1, 0), (-1, 1), (11, 1), (1, 8193), (1, i64::MAX)] {
        assert_eq!(attr(Some(bad)), Err(EINVAL), "{bad:?}");
    }
    let most = l.attr(Some((65_536, 16 << 20)), Privilege::Resource);
    assert!(most.is_ok());
    assert!(l.attr(Some((65_537, 1)), Privilege::Resource).is_err());
    l.set(Setting::MsgMax, 3).unwrap();
    assert_eq!(attr(None), Ok((3, 8192)));
    assert_eq!(l.set(Setting::MsgMax, 0), Err(EINVAL));
    assert_eq!(l.set(Setting::MsgSizeMax, 127), Err(EINVAL));
    l.set(Setting::QueuesMax, 1).unwrap();
    l.add_queue(none).unwrap();
    assert_eq!(l.add_queue(none), Err(ENOSPC));
    l.add_queue(Privilege::Resource).unwrap();
    l.drop_queue();
    l.drop_queue();
    l.add_queue(none).unwrap();
}

#[test]
fn a_queue_counts_its_messages_and_their_heads() {
    let a = Attr {
        max_messages: 10,
        size: 8192,
    };
    assert_eq!(a.counted(), Ok(10 * 8192 + 10 * 48 + 10 * 48));
    let many = Attr {
        max_messages: 40_000,
        size: 1,
    };
    assert_eq!(many.counted(), Ok(40_000 * 49 + 32_768 * 48));
}
