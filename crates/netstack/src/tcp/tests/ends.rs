//! How connections end.

use super::script::{OURS, Script, THEIRS};
use crate::tcp::{
    Changes, Config, Failure, Flags, Header, Segment, Seq, State, TimeWaitAnswer, Timestamps,
};
use std::time::Duration;

fn fin(s: &mut Script, from: u32, ack: u32) -> Changes {
    let h = s.header(from, ack, Flags::FIN | Flags::ACK);
    s.segment(h, b"")
}

#[test]
fn a_fin_alone_pushes_nothing() {
    let mut s = Script::established(Config::default());
    s.c.close_write();
    assert_eq!(s.sent()[0].header.flags, Flags::FIN | Flags::ACK);
}

#[test]
fn a_reset_has_a_timestamp() {
    let mut s = Script::with_timestamps(Config::default());
    s.c.abort();
    let out = s.sent();
    assert_eq!(out[0].header.flags, Flags::RST | Flags::ACK);
    assert!(out[0].header.options.timestamps.is_some());
}

#[test]
fn we_close_first() {
    let mut s = Script::established(Config::default());
    s.write(3);
    s.c.close_write();
    assert_eq!(s.state(), State::FinWait1);
    let out = s.sent();
    assert_eq!(out[0].header.flags, Flags::FIN | Flags::PSH | Flags::ACK);
    assert_eq!(out[0].payload.len(), 3);
    s.ack(4);
    assert_eq!(s.state(), State::FinWait2);
    assert_eq!(s.c.deadline(), None);
    assert!(
        s.segment(s.header(0, 4, Flags::ACK), b"bye")
            .contains(Changes::READABLE)
    );
    let changes = fin(&mut s, 3, 4);
    assert!(changes.contains(Changes::FIN | Changes::TIME_WAIT));
    assert_eq!(Script::acked(&s.sent()[0]), 4);
    assert_eq!(s.read(), b"bye");
    assert!(s.c.is_at_end());
    assert_eq!(s.left(), Duration::from_secs(60));
    let (changes, out) = s.wait();
    assert!(changes.contains(Changes::ENDED) && out.is_empty());
    assert_eq!((s.state(), s.c.take_failure()), (State::Closed, None));
}

#[test]
fn the_peer_closes_first() {
    let mut s = Script::established(Config::default());
    assert!(fin(&mut s, 0, 0).contains(Changes::FIN));
    assert_eq!(s.state(), State::CloseWait);
    assert_eq!(Script::acked(&s.sent()[0]), 1);
    assert_eq!(s.write(10), 10);
    s.c.close_write();
    assert_eq!(s.state(), State::LastAck);
    s.sent();
    assert!(
        s.segment(s.header(1, 11, Flags::ACK), b"")
            .contains(Changes::ENDED)
    );
    assert_eq!(s.c.take_failure(), None);
    assert_eq!(s.c.deadline(), None);
}

#[test]
fn both_close_at_once() {
    let mut s = Script::established(Config::default());
    s.c.close_write();
    s.sent();
    fin(&mut s, 0, 0);
    assert_eq!(s.state(), State::Closing);
    s.sent();
    assert!(
        s.segment(s.header(1, 1, Flags::ACK), b"")
            .contains(Changes::TIME_WAIT)
    );
}

#[test]
fn a_lost_fin_goes_again() {
    let mut s = Script::established(Config::default());
    s.c.close_write();
    s.sent();
    let (_, out) = s.wait();
    assert!(out[0].header.flags.contains(Flags::FIN));
    let (_, out) = s.wait();
    assert!(out[0].header.flags.contains(Flags::FIN));
}

#[test]
fn unread_data_resets() {
    let mut s = Script::established(Config::default());
    s.data(0, b"unread");
    s.sent();
    assert!(s.c.close().contains(Changes::ENDED));
    let out = s.sent();
    assert_eq!(out[0].header.flags, Flags::RST | Flags::ACK);
    assert_eq!((Script::at(&out[0]), Script::acked(&out[0])), (0, 6));
}

#[test]
fn data_for_nobody_resets() {
    let mut s = Script::established(Config::default());
    s.c.close();
    s.c.orphan(s.now);
    s.sent();
    s.ack(1);
    assert_eq!(s.state(), State::FinWait2);
    assert!(
        s.segment(s.header(0, 1, Flags::ACK), b"late")
            .contains(Changes::ENDED)
    );
    assert!(s.sent()[0].header.flags.contains(Flags::RST));
}

#[test]
fn an_orphan_waits_a_minute_for_the_fin() {
    let wait = Some(Duration::from_secs(5));
    for (linger2, secs) in [(None, 60), (wait, 5)] {
        let mut s = Script::established(Config {
            linger2,
            ..Config::default()
        });
        s.c.close();
        s.c.orphan(s.now);
        s.sent();
        s.ack(1);
        assert_eq!(s.left().as_secs(), secs);
        assert!(s.wait().0.contains(Changes::ENDED));
    }
}

#[test]
fn an_orphan_gives_up_sooner() {
    let mut s = Script::established(Config::default());
    s.write(100);
    s.c.close();
    s.c.orphan(s.now);
    s.sent();
    let began = s.now;
    while s.state() != State::Closed {
        s.wait();
    }
    let took = s.now.since(began).as_secs();
    assert!((90..220).contains(&took), "{took} s");
}

#[test]
fn an_abort_resets() {
    let mut s = Script::established(Config::default());
    s.write(100_000);
    s.sent();
    assert!(s.c.abort().contains(Changes::ENDED));
    let out = s.sent();
    assert_eq!(out[0].header.flags, Flags::RST | Flags::ACK);
    assert_eq!(s.c.deadline(), None);
    assert!(s.c.memory() <= 4096);
    // A late segment finds nobody.
    s.data(0, b"late");
    assert_eq!(s.sent()[0].header.flags, Flags::RST);
}

#[test]
fn a_reset_is_told_by_where_it_found_us() {
    for (closed, failure) in [(false, Failure::Reset), (true, Failure::Pipe)] {
        let mut s = Script::established(Config::default());
        if closed {
            fin(&mut s, 0, 0);
        }
        let h = s.header(u32::from(closed), 0, Flags::RST);
        assert!(s.segment(h, b"").contains(Changes::ENDED));
        assert_eq!(s.c.take_failure(), Some(failure));
        assert_eq!(s.c.take_failure(), None);
    }
}

fn in_time_wait() -> Script {
    let mut s = Script::with_timestamps(Config::default());
    s.c.close_write();
    s.sent();
    s.ack(1);
    fin(&mut s, 0, 1);
    s.sent();
    s
}

#[test]
fn time_wait_answers_and_is_recycled() {
    let s = in_time_wait();
    let mut t = s.c.time_wait().unwrap();
    let stamp = s.now.millis() as u32;
    let give = |h: Header| Segment {
        header: h,
        joined: 1,
        ..Segment::default()
    };
    // The FIN again.
    let h = s.header(0, 1, Flags::FIN | Flags::ACK);
    let TimeWaitAnswer::Acknowledge(a) = t.segment(s.now, stamp, &give(h)) else {
        panic!()
    };
    assert_eq!((a.seq, a.ack), (OURS.plus(2), THEIRS.plus(2)));
    assert!(a.options.timestamps.is_some());
    // The last acknowledgement again.
    assert_eq!(
        t.segment(s.now, stamp, &give(s.header(1, 1, Flags::ACK))),
        TimeWaitAnswer::Nothing
    );
    // A new connection: a later timestamp, whatever its sequence number.
    let mut h = s.header(1, 0, Flags::SYN);
    h.seq = Seq(THEIRS.0.wrapping_sub(70_000));
    h.options.timestamps = Some(Timestamps {
        value: stamp + 50,
        echo: 0,
    });
    let TimeWaitAnswer::Recycle(iss) = t.segment(s.now, stamp, &give(h)) else {
        panic!()
    };
    assert!(iss.is_after(OURS.plus(65_535)));
    // An old duplicate of a SYN.
    h.options.timestamps = Some(Timestamps {
        value: stamp - 50,
        echo: 0,
    });
    let later = s.now + Duration::from_secs(1);
    assert!(matches!(
        t.segment(later, stamp, &give(h)),
        TimeWaitAnswer::Acknowledge(_)
    ));
    let h = s.header(1, 1, Flags::RST);
    assert_eq!(t.segment(s.now, stamp, &give(h)), TimeWaitAnswer::Gone);
}
