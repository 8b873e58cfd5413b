//! Fast Open: bytes that go with a SYN.

use super::script::{OURS, Out, Script, THEIRS, options};
use crate::tcp::fast_open::{Cookie, Failed, FastOpen, Form, Learnt};
use crate::tcp::{
    Changes, Config, Connection, Failure, Flags, Header, Options, Segment, State, Unreachable,
};
use bytes::Bytes;

fn cookie() -> FastOpen {
    FastOpen {
        cookie: Cookie::new(&[1, 2, 3, 4, 5, 6, 7, 8]),
        form: Form::Standard,
    }
}

const ASKS: FastOpen = FastOpen {
    cookie: None,
    form: Form::Standard,
};

/// A client that shows a cookie, with so many bytes for the SYN.
fn client(n: usize) -> (Script, Out) {
    let mut s = Script::connect(Config::default());
    s.c.set_fast_open_option(Some(cookie()));
    let mut left = n;
    let went = s.c.write_with_syn(1460, |to| {
        let n = to.len().min(left);
        left -= n;
        Ok::<_, ()>(n)
    });
    assert_eq!(went, Ok(n.min(1420)));
    let syn = s.sent().remove(0);
    assert_eq!(syn.header.flags, Flags::SYN);
    assert_eq!(syn.header.options.fast_open, Some(cookie()));
    s.pass(10);
    (s, syn)
}

/// The answer to the SYN that acknowledges so many of its bytes.
fn answer(s: &mut Script, ack: u32, payload: &[u8]) -> Changes {
    let mut h = s.header(0, ack, Flags::SYN | Flags::ACK);
    h.seq = THEIRS;
    h.options = options();
    s.segment(h, payload)
}

#[test]
fn bytes_go_with_a_syn() {
    let (mut s, syn) = client(5000);
    assert_eq!(syn.payload.len(), 1420);
    assert!(answer(&mut s, 1420, b"hello").contains(Changes::ESTABLISHED | Changes::READABLE));
    let out = s.sent();
    assert_eq!((out.len(), Script::acked(&out[0])), (1, 5));
    assert_eq!(s.read(), b"hello");
    let i = s.c.info();
    assert!(i.syn_data && i.fast_open_failed.is_none());
    assert_eq!((i.unacked, i.total_retransmitted), (0, 0));
    let learnt = Learnt {
        mss: 1460,
        cookie: None,
        refused: None,
    };
    assert_eq!(s.c.take_learnt(), Some(learnt));
    // What is written then follows.
    s.write(100);
    let out = s.sent();
    assert_eq!((Script::at(&out[0]), out[0].payload.len()), (1420, 100));
}

#[test]
fn what_is_not_acknowledged_goes_again() {
    for acked in [0, 700] {
        let (mut s, _) = client(1000);
        assert!(answer(&mut s, acked, b"").contains(Changes::ESTABLISHED));
        let out = s.sent();
        assert_eq!(out.len(), 1, "{out:?}");
        assert_eq!(Script::at(&out[0]), acked as i32);
        assert_eq!(out[0].payload.len(), 1000 - acked as usize);
        assert_eq!(out[0].header.flags, Flags::ACK | Flags::PSH);
        assert_eq!(s.c.info().fast_open_failed, Some(Failed::DataNotAcked));
        s.ack(1000);
        assert_eq!(s.c.unsent(), 0);
        // No loss that says anything of the network.
        assert_eq!(s.c.info().slow_start_threshold, u64::MAX);
    }
}

#[test]
fn a_syn_goes_again_alone() {
    let (mut s, _) = client(1000);
    let (_, out) = s.wait();
    assert_eq!(out[0].header.flags, Flags::SYN);
    assert_eq!(
        (out[0].header.options.fast_open, out[0].payload.len()),
        (None, 0)
    );
    // The first one may have arrived all the same.
    answer(&mut s, 1000, b"");
    assert!(s.c.info().syn_data);
    assert_eq!(s.sent().len(), 1);
}

#[test]
fn more_than_was_sent_is_reset() {
    let (mut s, _) = client(100);
    assert!(answer(&mut s, 101, b"").is_empty());
    assert_eq!(s.sent()[0].header.flags, Flags::RST);
    assert_eq!(s.state(), State::SynSent);
}

#[test]
fn a_path_that_is_too_narrow_gets_the_syn_alone() {
    let (mut s, _) = client(1000);
    s.c.path_mtu(760);
    let out = s.sent();
    assert_eq!((out.len(), out[0].payload.len()), (1, 0));
    assert_eq!(out[0].header.options.mss, Some(760));
    answer(&mut s, 0, b"");
    assert_eq!(
        s.sent().iter().map(|o| o.payload.len()).sum::<usize>(),
        1000
    );
}

#[test]
fn a_client_asks_for_a_cookie() {
    let mut s = Script::connect(Config::default());
    s.c.set_fast_open_option(Some(ASKS));
    assert_eq!(s.sent()[0].header.options.fast_open, Some(ASKS));
    let mut h = s.header(0, 0, Flags::SYN | Flags::ACK);
    h.seq = THEIRS;
    h.options = Options {
        fast_open: Some(cookie()),
        ..options()
    };
    // What comes with an answer is taken of whoever knows Fast Open.
    assert!(s.segment(h, b"x").contains(Changes::READABLE));
    let learnt = s.c.take_learnt().unwrap();
    assert_eq!((learnt.cookie, learnt.refused), (Some(cookie()), None));
    assert_eq!(s.c.info().fast_open_failed, Some(Failed::CookieUnavailable));
}

#[test]
fn a_peer_that_gives_no_cookie_is_remembered() {
    let mut s = Script::connect(Config::default());
    s.c.set_fast_open_option(Some(ASKS));
    s.sent();
    answer(&mut s, 0, b"");
    assert_eq!(s.c.take_learnt().unwrap().refused, Some(Form::Standard));
}

#[test]
fn without_it_nothing_comes_with_an_answer() {
    let mut s = Script::connect(Config::default());
    s.sent();
    assert!(!answer(&mut s, 0, b"early").contains(Changes::READABLE));
    assert_eq!(s.c.take_learnt(), None);
}

/// A server's end that was opened by a SYN with these bytes.
fn server(payload: &[u8]) -> Script {
    let mut s = Script::connect(Config::default());
    let syn = Segment {
        header: Header {
            seq: THEIRS,
            flags: Flags::SYN,
            window: 1000,
            options: options(),
            ..Header::default()
        },
        payload: Bytes::copy_from_slice(payload),
        joined: 1,
        ..Segment::default()
    };
    s.c = Connection::accept_fast(Config::default(), OURS, s.now, &syn);
    let out = s.sent();
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].header.flags, Flags::SYN | Flags::ACK);
    assert_eq!(Script::acked(&out[0]), payload.len() as i32);
    s
}

#[test]
fn a_server_answers_before_the_handshake_is_done() {
    let mut s = server(b"request");
    assert_eq!(
        (s.state(), s.c.standing()),
        (State::SynReceived, State::Established)
    );
    assert_eq!(s.read(), b"request");
    assert_eq!(s.write(1500), 1500);
    let out = s.sent();
    // As far as the SYN's window goes.
    let sent: usize = out.iter().map(|o| o.payload.len()).sum();
    assert_eq!(sent, 1000);
    assert_eq!(Script::at(&out[0]), 0);
    // The answer to the SYN alone goes again, until the peer has it.
    let (_, out) = s.wait();
    assert_eq!(out[0].header.flags, Flags::SYN | Flags::ACK);
    assert_eq!(out.len(), 1);
    let h = s.header(7, 1000, Flags::ACK);
    assert!(s.segment(h, b"").contains(Changes::ESTABLISHED));
    let out = s.sent();
    assert_eq!(out.iter().map(|o| o.payload.len()).sum::<usize>(), 500);
}

#[test]
fn what_was_lost_beside_the_answer_goes_again_later() {
    let mut s = server(b"request");
    s.write(500);
    assert_eq!(s.sent().len(), 1);
    let h = s.header(7, 0, Flags::ACK);
    assert!(s.segment(h, b"").contains(Changes::ESTABLISHED));
    s.sent();
    let (_, out) = s.wait();
    assert_eq!((Script::at(&out[0]), out[0].payload.len()), (0, 500));
}

#[test]
fn a_server_may_say_all_before_the_handshake_is_done() {
    let mut s = server(b"");
    s.write(10);
    s.c.close();
    let out = s.sent();
    assert!(out.last().unwrap().header.flags.contains(Flags::FIN));
    let h = s.header(0, 11, Flags::ACK);
    s.segment(h, b"");
    assert_eq!(s.state(), State::FinWait2);
}

#[test]
fn a_reset_leaves_what_came() {
    let mut s = server(b"request");
    let h = s.header(7, 0, Flags::RST | Flags::ACK);
    assert!(s.segment(h, b"").contains(Changes::ENDED));
    assert_eq!(s.c.take_failure(), Some(Failure::Reset));
    assert_eq!(s.read(), b"request");
}

#[test]
fn errors_end_what_nobody_has_accepted() {
    for accepted in [false, true] {
        let mut s = server(b"x");
        if accepted {
            s.c.accepted();
        }
        let changes = s.c.unreachable(s.now, OURS, Unreachable::Hard(113));
        assert_eq!(changes.contains(Changes::ENDED), !accepted);
    }
}

#[test]
fn an_answer_that_nobody_takes_ends_it() {
    let mut s = server(b"x");
    s.write(100);
    let mut rounds = 0;
    while s.state() != State::Closed {
        s.wait();
        rounds += 1;
    }
    // (One more than of others.)
    assert_eq!(rounds, 7);
    assert_eq!(s.c.take_failure(), Some(Failure::TimedOut));
    assert_eq!(s.c.deadline(), None);
}
