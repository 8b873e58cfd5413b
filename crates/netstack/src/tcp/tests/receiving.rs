//! What is acknowledged when, windows, urgent data.

use super::script::{Script, THEIRS};
use crate::tcp::{Changes, Config, Flags, Take, Timestamps, UrgentByte};

fn quiet(config: Config) -> Script {
    let mut s = Script::established(config);
    // Past the acknowledgements of the start.
    for i in 0..20 {
        s.data(i, b"x");
        s.sent();
    }
    s.read();
    s.wait();
    s
}

#[test]
fn the_first_are_acknowledged_at_once() {
    let mut s = Script::established(Config::default());
    s.data(0, b"x");
    assert_eq!(Script::acked(&s.sent()[0]), 1);
}

#[test]
fn one_waits_40_ms_and_two_do_not() {
    let mut s = quiet(Config::default());
    let full = [7u8; 1460];
    s.data(20, &full);
    s.sent();
    s.data(1480, &full);
    let out = s.sent();
    assert_eq!(Script::acked(&out[0]), 2940);
    s.data(2940, b"x");
    assert!(s.sent().is_empty());
    assert_eq!(s.left().as_millis(), 40);
    assert_eq!(Script::acked(&s.wait().1[0]), 2941);
}

#[test]
fn a_small_one_that_was_read_does_not_wait() {
    // Its sender may hold the next one back until then (Nagle).
    let mut s = quiet(Config::default());
    s.data(20, &[7; 1460]);
    s.sent();
    s.data(1480, &[7; 1460]);
    s.sent();
    s.data(2940, b"x");
    assert!(s.sent().is_empty());
    s.read();
    assert_eq!(Script::acked(&s.sent()[0]), 2941);
    // But what is answered carries it.
    s.write(1);
    s.sent();
    s.segment(s.header(2941, 1, Flags::ACK), b"x");
    s.read();
    assert!(s.sent().is_empty());
}

#[test]
fn who_reads_acknowledges_what_was_joined() {
    let config = Config {
        receive_buffer: 4 << 20,
        ..Config::default()
    };
    let mut s = quiet(config);
    let (large, len) = (vec![7; 44 * 1460], 44 * 1460);
    let put = |s: &mut Script, n: u32| {
        s.joined(s.header(20 + n * len, 0, Flags::ACK), &large, 44);
        s.sent()
    };
    // What comes first is read before it is acknowledged, and the window opens.
    for n in 0..4 {
        assert!(put(&mut s, n).is_empty(), "{n}");
    }
    s.read();
    let out = s.sent();
    assert_eq!(out.len(), 1);
    assert_eq!(Script::acked(&out[0]), 20 + 4 * len as i32);
    // A reader that is slow does not keep the sender waiting for ever.
    let sent: Vec<_> = (4..24).map(|n| put(&mut s, n).len()).collect();
    assert_eq!(sent.iter().sum::<usize>(), 2, "{sent:?}");
    assert_eq!(s.left().as_millis(), 40);
}

#[test]
fn an_answer_carries_the_acknowledgement() {
    let mut s = quiet(Config::default());
    s.data(20, b"ask");
    s.write(5);
    let out = s.sent();
    assert_eq!((out.len(), Script::acked(&out[0])), (1, 23));
    assert_eq!(
        s.c.deadline().map(|d| d.since(s.now).as_millis() > 40),
        Some(true)
    );
}

#[test]
fn a_hole_is_told_at_once_with_what_came() {
    let mut s = quiet(Config::default());
    s.data(30, b"0123456789");
    let out = s.sent();
    assert_eq!(Script::acked(&out[0]), 20);
    let at = |n: u32| THEIRS.plus(1).plus(n);
    assert_eq!(out[0].header.options.sack[0], Some((at(30), at(40))));
    s.data(50, b"x");
    let sack = s.sent()[0].header.options.sack;
    assert_eq!(sack[..2], [Some((at(50), at(51))), Some((at(30), at(40)))]);
    // The first again: a duplicate (RFC 2883), and the islands.
    s.data(30, b"01234");
    let sack = s.sent()[0].header.options.sack;
    assert_eq!(sack[0], Some((at(30), at(35))));
    assert_eq!(sack[1..3], [Some((at(50), at(51))), Some((at(30), at(40)))]);
    assert!(s.data(20, b"abcdefghij").contains(Changes::READABLE));
    assert_eq!(Script::acked(&s.sent()[0]), 40);
    assert_eq!(s.read(), b"abcdefghij0123456789");
}

#[test]
fn what_came_before_is_told_as_a_duplicate() {
    let mut s = quiet(Config::default());
    s.data(10, b"xxxxx");
    let out = s.sent();
    let at = |n: u32| THEIRS.plus(1).plus(n);
    assert_eq!(out[0].header.options.sack[0], Some((at(10), at(15))));
    assert_eq!(Script::acked(&out[0]), 20);
}

#[test]
fn a_full_window_closes_and_opens_when_it_is_worthwhile() {
    let fixed = Config {
        receive_buffer: 10_000,
        receive_most: 10_000,
        window_scaling: false,
        ..Config::default()
    };
    let mut s = Script::established(fixed);
    for i in 0..10 {
        s.data(i * 1000, &[1; 1000]);
        s.sent();
    }
    assert_eq!(s.c.info().receive_window, 0);
    // Beyond the window.
    s.data(10_000, &[1; 1000]);
    let out = s.sent();
    assert_eq!((Script::acked(&out[0]), out[0].header.window), (10_000, 0));
    s.c.discard(100);
    assert!(s.sent().is_empty());
    s.c.discard(5000);
    let out = s.sent();
    assert_eq!(out[0].header.window, 5100);
    // What fits only in part is taken in part.
    s.data(10_000, &[2; 8000]);
    assert_eq!(Script::acked(&s.sent()[0]), 15_100);
}

#[test]
fn a_buffer_grows_with_what_is_read_in_a_round_trip() {
    let mut s = Script::with_timestamps(Config {
        receive_buffer: 20_000,
        ..Config::default()
    });
    let mut at = 0;
    for _ in 0..20 {
        for _ in 0..10 {
            let h = s.header(at, 0, Flags::ACK);
            s.segment(h, &[0; 1448]);
            at += 1448;
            s.read();
            s.sent();
        }
        s.pass(10);
    }
    let i = s.c.info();
    assert!(
        (28_000..200_000).contains(&i.receive_buffer),
        "{}",
        i.receive_buffer
    );
    assert!(i.receive_rtt.as_millis() >= 1);
}

#[test]
fn an_old_timestamp_is_refused() {
    let mut s = Script::with_timestamps(Config::default());
    s.data(0, b"abc");
    s.sent();
    s.pass(1000);
    let mut h = s.header(3, 0, Flags::ACK);
    h.options.timestamps = h.options.timestamps.map(|t| Timestamps {
        value: t.value - 5000,
        ..t
    });
    assert!(s.segment(h, b"old").is_empty());
    assert_eq!(Script::acked(&s.sent()[0]), 3);
    assert_eq!(s.c.info().too_old, 1);
    assert!(s.data(3, b"new").contains(Changes::READABLE));
    assert_eq!(s.read(), b"abcnew");
}

#[test]
fn what_an_attacker_guesses_is_challenged() {
    let mut s = Script::established(Config::default());
    // In the window, but not the next byte: RFC 5961.
    let h = s.header(100, 0, Flags::RST);
    assert!(s.segment(h, b"").is_empty());
    assert_eq!(s.sent().len(), 1);
    // Not again so soon.
    let h = s.header(7, 0, Flags::SYN);
    s.segment(h, b"");
    assert!(s.sent().is_empty());
    s.pass(600);
    s.segment(h, b"");
    assert_eq!(s.sent()[0].header.flags, Flags::ACK);
    let h = s.header(0, 0, Flags::RST);
    assert!(s.segment(h, b"").contains(Changes::ENDED));
}

#[test]
fn peeking_leaves_all() {
    let mut s = Script::established(Config::default());
    s.data(0, b"abcdef");
    let mut got = Vec::new();
    let n = s.c.read::<()>(Take::Peek { skip: 2 }, |b| {
        got.extend_from_slice(b);
        Ok(b.len())
    });
    assert_eq!((n, &got[..]), (Ok(4), &b"cdef"[..]));
    assert_eq!(s.read(), b"abcdef");
}

#[test]
fn the_urgent_byte_is_beside_the_stream() {
    let mut s = Script::established(Config::default());
    let mut h = s.header(0, 0, Flags::ACK | Flags::URG);
    h.urgent = 4;
    assert!(s.segment(h, b"abc!def").contains(Changes::URGENT));
    let u = s.c.urgent().unwrap();
    assert_eq!((u.ahead, u.byte), (3, UrgentByte::There(b'!')));
    assert_eq!(s.read(), b"abc");
    assert_eq!(s.c.urgent().unwrap().ahead, 0);
    let peek = Take::Peek { skip: 0 };
    assert_eq!(s.c.read_urgent(peek), Some(UrgentByte::There(b'!')));
    assert_eq!(s.c.read_urgent(Take::Out), Some(UrgentByte::There(b'!')));
    assert_eq!(s.c.read_urgent(Take::Out), Some(UrgentByte::Taken));
    // What comes later leaves it taken.
    s.segment(s.header(7, 0, Flags::ACK), b"gh");
    assert_eq!(s.c.read_urgent(peek), Some(UrgentByte::Taken));
    assert_eq!(s.read(), b"defgh");
    assert_eq!(s.c.urgent(), None);
    assert_eq!(s.c.read_urgent(Take::Out), None);
    s.write(3);
    s.c.mark_urgent();
    let out = s.sent();
    assert!(out[0].header.flags.contains(Flags::URG));
    assert_eq!(out[0].header.urgent, 3);
}
