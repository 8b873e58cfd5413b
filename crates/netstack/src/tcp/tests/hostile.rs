//! A peer that sends whatever it likes: nothing panics, nothing grows.

use super::script::{OURS, Script, THEIRS, options};
use crate::tcp::{Config, Flags, Header, Options, Segment, Seq, State, Timestamps};
use bytes::Bytes;
use proptest::prelude::*;
use std::time::Duration;

/// A number near something that matters, or anywhere.
fn near() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 0..20u32,
        6 => (0..20u32).prop_map(u32::wrapping_neg),
        6 => 0..100_000u32,
        2 => (0..100_000u32).prop_map(u32::wrapping_neg),
        1 => (0..40u32).prop_map(|n| (1u32 << 31).wrapping_add(n).wrapping_sub(20)),
        1 => any::<u32>(),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Segment {
        header: Header,
        len: usize,
        joined: u16,
        relative: bool,
    },
    Timer,
    Pass(u64),
    Read(usize),
    Write(usize),
    CloseWrite,
    Mtu(u16),
    Buffer(usize),
}

fn segment() -> impl Strategy<Value = Step> {
    let sack = [(near(), near()), (near(), near()), (near(), near())];
    (
        (
            near(),
            near(),
            prop_oneof![6 => Just(16u8), 3 => Just(24), 1 => any::<u8>()],
        ),
        (any::<u16>(), any::<u16>(), sack, 0..4usize),
        (
            proptest::option::of((near(), near())),
            any::<u16>(),
            any::<u8>(),
        ),
        prop_oneof![4 => 0..3000usize, 1 => 0..65_000usize, 2 => Just(0)],
        (0..50u16, prop::bool::weighted(0.9)),
    )
        .prop_map(
            |((seq, ack, flags), (window, urgent, sack, n), more, len, (joined, relative))| {
                let (stamps, mss, scale) = more;
                let mut options = Options {
                    mss: Some(mss),
                    window_scale: Some(scale),
                    sack_permitted: true,
                    timestamps: stamps.map(|(value, echo)| Timestamps { value, echo }),
                    ..Options::default()
                };
                for (to, (l, r)) in options.sack.iter_mut().zip(sack).take(n) {
                    *to = Some((Seq(l), Seq(r)));
                }
                let (seq, ack) = (Seq(seq), Seq(ack));
                let flags = Flags::from_bits_truncate(flags);
                let header = Header {
                    seq,
                    ack,
                    flags,
                    window,
                    urgent,
                    options,
                    can_be_marked: urgent & 1 == 1,
                };
                Step::Segment {
                    header,
                    len,
                    joined,
                    relative,
                }
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => segment(),
        3 => Just(Step::Timer),
        3 => (0..500u64).prop_map(Step::Pass),
        2 => (0..100_000usize).prop_map(Step::Read),
        2 => (0..100_000usize).prop_map(Step::Write),
        1 => (0..20u8).prop_map(|n| if n == 0 { Step::CloseWrite } else { Step::Timer }),
        1 => any::<u16>().prop_map(Step::Mtu),
        1 => (0..1_000_000usize).prop_map(Step::Buffer),
    ]
}

fn take(s: &mut Script, step: Step) {
    match step {
        Step::Segment {
            mut header,
            len,
            joined,
            relative,
        } => {
            if relative {
                // From where the other end stands.
                let (una, next) = s.places;
                header.seq = Seq(next.0.wrapping_add(header.seq.0));
                header.ack = Seq(una.0.wrapping_add(header.ack.0));
                for b in header.options.sack.iter_mut().flatten() {
                    *b = (
                        Seq(una.0.wrapping_add(b.0.0)),
                        Seq(una.0.wrapping_add(b.1.0)),
                    );
                }
            }
            let payload = Bytes::from(vec![0; len]);
            s.c.segment(
                s.now,
                Segment {
                    header,
                    payload,
                    congestion: header.can_be_marked && header.seq.0 & 2 == 0,
                    joined,
                    ..Segment::default()
                },
            );
        }
        Step::Timer => {
            if let Some(d) = s.c.deadline() {
                s.now = s.now.max(d);
                s.c.timer(s.now);
            }
        }
        Step::Pass(n) => s.pass(n),
        Step::Read(n) => {
            s.c.discard(n);
        }
        Step::Write(n) => {
            s.write(n);
        }
        Step::CloseWrite => {
            s.c.close_write();
        }
        Step::Mtu(n) => s.c.path_mtu(n),
        Step::Buffer(n) => s.c.configure(|c| {
            c.receive_buffer = n.min(c.receive_most);
            c.send_buffer = n.min(c.send_most);
        }),
    }
    for o in s.sent() {
        if o.header.flags.contains(Flags::RST) {
            continue;
        }
        s.places.1 = o.header.ack;
        if o.payload.is_empty() {
            s.places.0 = Seq(o.header.seq.0.wrapping_sub(s.c.unsent() as u32));
        }
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_nothing_grows(
        steps in proptest::collection::vec(step(), 1..150),
        listens in any::<bool>(),
        stamped in any::<bool>(),
    ) {
        let most = (1 << 20, 1 << 19);
        let config = Config {
            send_buffer: most.0,
            send_most: most.0,
            receive_most: most.1,
            gso_max: 65_000,
            ..Config::default()
        };
        let timestamps = stamped.then_some(Timestamps { value: 5, echo: 0 });
        let mut s = if listens {
            Script::connect(config)
        } else {
            Script::with(config, Options { timestamps, window_scale: Some(7), ..options() })
        };
        s.places = (OURS.plus(1), THEIRS.plus(1));
        for step in steps {
            take(&mut s, step);
            let i = s.c.info();
            prop_assert!(i.send_memory < 3 * most.0 + (1 << 20), "{}", i.send_memory);
            prop_assert!(i.receive_memory < most.1 * 9 / 4 + (200 << 10), "{}", i.receive_memory);
            let waits = i.unacked > 0 && s.state() != State::Closed;
            prop_assert!(!waits || s.c.deadline().is_some(), "{:?}", i);
            let left = s.c.deadline().map(|d| d.since(s.now));
            prop_assert!(left.is_none_or(|l| l <= Duration::from_secs(121)), "{:?}", left);
        }
    }
}
