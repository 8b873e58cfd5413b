//! How connections begin.

use super::script::{OURS, Script, THEIRS, options};
use crate::tcp::secret::{Ends, Secret};
use crate::tcp::{
    Changes, Config, Connection, Emitted, Failure, Flags, Header, Output, Segment, Seq, State,
    Unreachable, reset_for,
};
use crate::time::Instant;

#[test]
fn a_syn_asks_for_all_options() {
    let mut s = Script::connect(Config::default());
    let syn = s.sent().remove(0).header;
    assert_eq!((syn.seq, syn.flags), (OURS, Flags::SYN));
    let o = syn.options;
    assert_eq!(
        (o.mss, o.window_scale, o.sack_permitted),
        (Some(1460), Some(7), true)
    );
    assert!(o.timestamps.is_some());
    assert_eq!(s.state(), State::SynSent);
}

#[test]
fn a_syn_goes_again_until_it_is_given_up() {
    let mut s = Script::connect(Config {
        syn_retries: 2,
        ..Config::default()
    });
    s.sent();
    // Four time-outs double nothing; together they are as long as 1, 2 and 4 s.
    for wait in [1, 1, 1, 1, 1] {
        assert_eq!(s.left().as_secs(), wait);
        let (_, out) = s.wait();
        assert_eq!(out[0].header.flags, Flags::SYN);
    }
    assert_eq!(s.left().as_secs(), 2);
    assert_eq!(s.wait().0 & Changes::ENDED, Changes::ENDED);
    assert_eq!(s.c.take_failure(), Some(Failure::TimedOut));
    assert_eq!(s.c.deadline(), None);
}

#[test]
fn a_reset_refuses() {
    let mut s = Script::connect(Config::default());
    s.sent();
    // One that does not acknowledge the SYN does nothing.
    let h = s.header(0, 7, Flags::RST | Flags::ACK);
    assert!(s.segment(h, b"").is_empty());
    let h = s.header(0, 0, Flags::RST | Flags::ACK);
    assert!(s.segment(h, b"").contains(Changes::ENDED));
    assert_eq!(s.c.take_failure(), Some(Failure::Refused));
    assert!(s.sent().is_empty());
}

#[test]
fn an_old_answer_is_reset() {
    let mut s = Script::connect(Config::default());
    s.sent();
    let h = s.header(0, 99, Flags::SYN | Flags::ACK);
    s.segment(h, b"");
    let out = s.sent();
    assert_eq!(out[0].header.flags, Flags::RST);
    assert_eq!(out[0].header.seq, h.ack);
    assert_eq!(s.state(), State::SynSent);
}

#[test]
fn unreachable_ends_what_is_being_made() {
    let mut s = Script::connect(Config::default());
    s.sent();
    assert!(
        s.c.unreachable(s.now, OURS.plus(5), Unreachable::Hard(113))
            .is_empty()
    );
    assert!(
        s.c.unreachable(s.now, OURS, Unreachable::Hard(113))
            .contains(Changes::ENDED)
    );
    assert_eq!(s.c.take_failure(), Some(Failure::Unreachable(113)));
}

#[test]
fn both_open_at_once() {
    let mut s = Script::connect(Config::default());
    s.sent();
    let mut h = s.header(0, 0, Flags::SYN);
    (h.seq, h.options) = (THEIRS, options());
    s.segment(h, b"");
    assert_eq!(s.state(), State::SynReceived);
    let out = s.sent();
    assert_eq!(out[0].header.flags, Flags::SYN | Flags::ACK);
    assert_eq!(out[0].header.seq, OURS);
    let mut h = s.header(0, 0, Flags::SYN | Flags::ACK);
    (h.seq, h.options) = (THEIRS, options());
    assert!(s.segment(h, b"").contains(Changes::ESTABLISHED));
    assert_eq!(s.state(), State::Established);
}

struct Sink(Vec<Header>);

impl Output for Sink {
    fn emit(&mut self, header: &Header, _: &[&[u8]], _: u16) -> Emitted {
        self.0.push(*header);
        Emitted::Sent
    }
}

fn syn() -> Segment {
    let header = Header {
        seq: THEIRS,
        flags: Flags::SYN,
        window: 1000,
        options: options(),
        ..Header::default()
    };
    Segment {
        header,
        joined: 1,
        ..Segment::default()
    }
}

#[test]
fn a_syn_is_answered_again() {
    let now = Instant(5_000_000_000);
    let mut c = Connection::accept(Config::default(), OURS, now, &syn());
    let mut out = Sink(Vec::new());
    let _ = c.transmit(now, &mut out);
    c.segment(now, syn());
    let _ = c.transmit(now, &mut out);
    assert_eq!(out.0.len(), 2);
    for h in &out.0 {
        assert_eq!(h.flags, Flags::SYN | Flags::ACK);
        assert_eq!((h.seq, h.ack), (OURS, THEIRS.plus(1)));
    }
    // An acknowledgement of something else is reset, and changes nothing.
    let mut ack = syn();
    ack.header = Header {
        seq: THEIRS.plus(1),
        ack: OURS.plus(2),
        flags: Flags::ACK,
        window: 1000,
        ..Header::default()
    };
    c.segment(now, ack.clone());
    out.0.clear();
    let _ = c.transmit(now, &mut out);
    assert_eq!((out.0[0].flags, out.0[0].seq), (Flags::RST, OURS.plus(2)));
    ack.header.ack = OURS.plus(1);
    ack.payload = b"hello"[..].into();
    let changes = c.segment(now, ack);
    assert!(changes.contains(Changes::ESTABLISHED | Changes::READABLE));
    assert_eq!(c.readable(), 5);
}

#[test]
fn a_reset_ends_a_half_open_connection() {
    let now = Instant(5_000_000_000);
    let mut c = Connection::accept(Config::default(), OURS, now, &syn());
    let mut s = syn();
    s.header = Header {
        seq: THEIRS.plus(1),
        flags: Flags::RST,
        ..Header::default()
    };
    assert!(c.segment(now, s).contains(Changes::ENDED));
}

#[test]
fn a_cookie_becomes_a_connection() {
    let secret = Secret::new([9; 16]);
    let ends = Ends {
        local: ([10, 0, 0, 1], 80).into(),
        remote: ([10, 0, 0, 2], 9).into(),
    };
    let (now, config) = (Instant(70_000_000_000), Config::default());
    let answer = secret.cookie(&ends, &syn().header, now, &config);
    let mut ack = Segment {
        joined: 1,
        ..Segment::default()
    };
    ack.header = Header {
        seq: THEIRS.plus(1),
        ack: answer.seq.plus(1),
        flags: Flags::ACK,
        window: 500,
        ..Header::default()
    };
    ack.payload = b"GET"[..].into();
    let cookie = secret.check(&ends, &ack, now, &config).unwrap();
    let mut c = Connection::accept_cookie(config, &cookie, now);
    assert!(
        c.segment(now, ack)
            .contains(Changes::ESTABLISHED | Changes::READABLE)
    );
    let mut out = Sink(Vec::new());
    let _ = c.transmit(now, &mut out);
    assert_eq!(
        (out.0[0].ack, out.0[0].seq),
        (THEIRS.plus(4), answer.seq.plus(1))
    );
    // Without timestamps nothing else was kept: no SACK, no scale.
    assert!(!c.info().sack);
    assert_eq!((c.info().send_scale, c.info().receive_scale), (0, 0));
}

#[test]
fn segments_of_no_connection_are_reset() {
    let mut s = syn();
    let r = reset_for(&s).unwrap();
    assert_eq!(
        (r.flags, r.seq, r.ack),
        (Flags::RST | Flags::ACK, Seq(0), THEIRS.plus(1))
    );
    s.header.flags = Flags::ACK;
    s.header.ack = Seq(77);
    assert_eq!(reset_for(&s).unwrap().seq, Seq(77));
    s.header.flags = Flags::RST;
    assert_eq!(reset_for(&s), None);
}
