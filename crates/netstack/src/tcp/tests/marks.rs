//! Explicit congestion notification.

use super::script::{Out, Script, THEIRS, options};
use crate::tcp::{
    Changes, Config, Connection, Ecn, Emitted, Flags, Header, Options, Output, Phase, Segment, Seq,
};
use crate::time::Instant;

const MARKS: Flags = Flags::ECE.union(Flags::CWR);

fn config(ecn: Ecn) -> Config {
    Config {
        ecn,
        ..Config::default()
    }
}

#[derive(Default)]
struct Headers(Vec<Header>);

impl Output for Headers {
    fn emit(&mut self, header: &Header, _: &[&[u8]], _: u16) -> Emitted {
        self.0.push(*header);
        Emitted::Sent
    }
}

/// What a SYN with these flags is answered by.
fn answer_to(ecn: Ecn, flags: Flags, can_be_marked: bool) -> Flags {
    let header = Header {
        seq: THEIRS,
        flags,
        can_be_marked,
        options: options(),
        ..Header::default()
    };
    let syn = Segment {
        header,
        joined: 1,
        ..Segment::default()
    };
    let now = Instant(5_000_000_000);
    let mut c = Connection::accept(config(ecn), Seq(1), now, &syn);
    let mut out = Headers::default();
    let _ = c.transmit(now, &mut out);
    out.0[0].flags & MARKS
}

#[test]
fn who_is_asked_says_whether_it_can() {
    let asks = Flags::SYN | MARKS;
    let none = Flags::empty();
    assert_eq!(answer_to(Ecn::Answers, asks, false), Flags::ECE);
    assert_eq!(answer_to(Ecn::Asks, asks, false), Flags::ECE);
    assert_eq!(answer_to(Ecn::Off, asks, false), none);
    assert_eq!(answer_to(Ecn::Answers, asks, true), none);
    assert_eq!(
        answer_to(Ecn::Answers, Flags::SYN | Flags::ECE, false),
        none
    );
    assert_eq!(answer_to(Ecn::Answers, Flags::SYN, false), none);
}

/// A connection that began with ours asking, and was answered by these flags.
fn connected(flags: Flags) -> Script {
    connected_by(flags, options())
}

fn connected_by(flags: Flags, options: Options) -> Script {
    let mut s = Script::connect(Config {
        gso_max: 0,
        ..config(Ecn::Asks)
    });
    let out = s.sent();
    assert_eq!(out[0].header.flags & MARKS, MARKS);
    assert!(!out[0].header.can_be_marked);
    s.pass(10);
    let mut h = s.header(0, 0, Flags::SYN | Flags::ACK | flags);
    (h.seq, h.options) = (THEIRS, options);
    assert!(s.segment(h, b"").contains(Changes::ESTABLISHED));
    assert_eq!(s.sent().len(), 1);
    s
}

fn has(o: &Out, flag: Flags) -> bool {
    o.header.flags.contains(flag)
}

#[test]
fn a_syn_that_is_sent_again_asks_no_more() {
    let mut s = Script::connect(config(Ecn::Asks));
    s.sent();
    let (_, out) = s.wait();
    assert_eq!(out[0].header.flags & MARKS, Flags::empty());
}

#[test]
fn who_answers_otherwise_has_none() {
    for flags in [Flags::empty(), MARKS] {
        let mut s = connected(flags);
        s.write(1000);
        assert!(!s.sent()[0].header.can_be_marked);
    }
}

#[test]
fn new_data_may_be_marked_and_nothing_else() {
    let mut s = connected(Flags::ECE);
    s.write(3000);
    let out = s.sent();
    assert!(out.iter().all(|o| o.header.can_be_marked));
    // What is sent again may not, nor acknowledgements.
    let (_, again) = s.wait();
    let again: Vec<_> = again.iter().filter(|o| !o.payload.is_empty()).collect();
    assert!(!again.is_empty() && again.iter().all(|o| !o.header.can_be_marked));
    s.data(0, b"x");
    let out = s.sent();
    assert!(out.iter().all(|o| !o.header.can_be_marked), "{out:?}");
}

#[test]
fn a_mark_is_told_until_the_peer_slows_down() {
    let mut s = connected(Flags::ECE);
    let marked = |s: &mut Script, from: u32, flags: Flags, congestion: bool| {
        let mut header = s.header(from, 0, Flags::ACK | flags);
        header.can_be_marked = true;
        let segment = Segment {
            header,
            payload: bytes::Bytes::from_static(b"x"),
            congestion,
            joined: 1,
            ..Segment::default()
        };
        s.c.segment(s.now, segment);
        s.sent().iter().any(|o| has(o, Flags::ECE))
    };
    let none = Flags::empty();
    assert!(!marked(&mut s, 0, none, false));
    assert!(marked(&mut s, 1, none, true));
    assert!(marked(&mut s, 2, none, false));
    assert!(!marked(&mut s, 3, Flags::CWR, false));
    // It may be marked that says so.
    assert!(marked(&mut s, 4, Flags::CWR, true));
}

#[test]
fn one_slows_down_once_in_a_window() {
    let mut s = connected(Flags::ECE);
    s.write(14_600);
    assert_eq!(s.sent().len(), 10);
    let before = s.c.info().congestion_window;
    s.pass(10);
    let echo = |s: &mut Script, n: u32| {
        let h = s.header(0, n, Flags::ACK | Flags::ECE);
        s.segment(h, b"")
    };
    s.write(50_000);
    echo(&mut s, 2920);
    let threshold = s.c.info().slow_start_threshold;
    assert!(threshold < before, "{threshold} {before}");
    let out = s.sent();
    assert!(has(&out[0], Flags::CWR) && out[1..].iter().all(|o| !has(o, Flags::CWR)));
    echo(&mut s, 5840);
    assert_eq!(s.c.info().slow_start_threshold, threshold);
    assert!(s.sent().iter().all(|o| !has(o, Flags::CWR)));
    // All that was out then has come, and no more: what is told is the same mark still.
    echo(&mut s, 14_600);
    assert_eq!(s.c.info().slow_start_threshold, threshold);
    assert_eq!(s.c.info().phase, Phase::Slowed);
    assert!(s.sent().iter().all(|o| !has(o, Flags::CWR)));
    // More has: the window is what it was to come down to, and this is another mark.
    echo(&mut s, 16_060);
    assert!(s.c.info().slow_start_threshold < threshold);
    assert_eq!(s.c.info().bytes_retransmitted, 0);
}

#[test]
fn a_mark_is_no_loss() {
    // Of a peer without selective acknowledgements.
    let plain = Options {
        sack_permitted: false,
        ..options()
    };
    let mut s = connected_by(Flags::ECE, plain);
    s.write(14_600);
    s.sent();
    s.pass(10);
    let h = s.header(0, 1460, Flags::ACK | Flags::ECE);
    s.segment(h, b"");
    assert_eq!(s.c.info().phase, Phase::Slowed);
    for n in 2..8 {
        let h = s.header(0, n * 1460, Flags::ACK);
        s.segment(h, b"");
        s.sent();
    }
    let i = s.c.info();
    assert_eq!((i.bytes_retransmitted, i.phase), (0, Phase::Slowed));
    // What is repeated tells of a loss, for which it does not slow down again.
    let threshold = i.slow_start_threshold;
    for _ in 0..3 {
        let h = s.header(0, 7 * 1460, Flags::ACK);
        s.segment(h, b"");
    }
    let i = s.c.info();
    assert_eq!(
        (i.slow_start_threshold, i.phase),
        (threshold, Phase::Recovery)
    );
    assert!(!s.sent().is_empty());
}
