//! Whatever a relay does: all bytes arrive in order and once, and both ends come to an end.

use super::sim::{End, MS, Path, Program, Sim};
use crate::tcp::{Config, Congestion, Ecn, Failure, KeepAlive, State};
use proptest::prelude::*;
use std::time::Duration;

fn path() -> impl Strategy<Value = Path> {
    (
        (0..60u64, prop_oneof![Just(0), 0..5u64, 0..80u64]),
        prop_oneof![2 => Just(0u64), 1 => 0..200_000u64],
        prop_oneof![2 => Just(0u64), 1 => 0..200u64],
        prop_oneof![2 => Just((0, 0)), 1 => (20_000..5_000_000u64, 20_000..300_000u64)],
        any::<bool>(),
        prop_oneof![3 => Just(0u64), 1 => 0..300u64],
        prop_oneof![3 => Just(None), 1 => (0..100u64, 100..1400u16).prop_map(Some)],
    )
        .prop_map(
            |((delay, jitter), loss, twice, (rate, queue), joins, full, narrows)| Path {
                delay: MS * delay as u32,
                jitter: MS * jitter as u32,
                loss,
                twice,
                rate,
                queue,
                joins,
                full,
                narrows,
                ..Path::default()
            },
        )
}

fn config() -> impl Strategy<Value = Config> {
    (
        prop_oneof![Just(1460u16), Just(1220), Just(8960), 48..1500u16],
        prop_oneof![Just(0u32), Just(65_000), 0..20_000u32],
        (1_000..100_000usize, 2_000..100_000usize),
        (0..1_000_000usize, 0..1_000_000usize),
        any::<[bool; 7]>(),
        any::<u32>(),
        prop_oneof![Just(1usize), Just(1000), Just(32 << 10)],
    )
        .prop_map(|(mss, gso_max, now, more, b, offset, share_from)| Config {
            mss,
            gso_max,
            send_buffer: now.0,
            receive_buffer: now.1,
            send_most: now.0 + more.0,
            receive_most: now.1 + more.1,
            no_delay: b[0],
            timestamps: b[1] || b[5],
            sack: b[2] || b[6],
            window_scaling: b[3],
            ecn: if b[1] { Ecn::Asks } else { Ecn::Answers },
            congestion: if b[4] {
                Congestion::Cubic
            } else {
                Congestion::Reno
            },
            timestamp_offset: offset,
            share_from,
            syn_retries: 30,
            retries: 30,
            ..Config::default()
        })
}

fn program() -> impl Strategy<Value = Program> {
    (
        prop_oneof![Just(0u64), 0..2_000u64, 0..400_000u64],
        prop_oneof![2 => Just((0usize, 0u64)), 1 => (500..50_000usize, 1..300u64)],
    )
        .prop_map(|(total, (read, pause))| Program {
            total,
            read,
            pause: MS * pause as u32,
            ..Program::default()
        })
}

/// No failure; or a reset where it had sent its FIN again for so long that the peer's TIME_WAIT was
/// over.
fn is_good(e: &End) -> bool {
    matches!(e.failure, None | Some(Failure::Reset)) && e.saw_fin
}

fn simulate(sim: &mut Sim) {
    let end = sim.now + Duration::from_secs(50_000);
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sim.run(|s| {
            let is_done = |i: usize| {
                let c = s.ends[i].c.as_ref();
                c.is_some_and(|c| c.state() == State::Closed && c.readable() == 0)
            };
            (is_done(0) && is_done(1)) || s.now > end
        });
    }));
    if let Err(e) = r {
        sim.print();
        std::panic::resume_unwind(e);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150)
    ))]

    #[test]
    fn all_arrives(
        paths in [path(), path()],
        configs in [config(), config()],
        programs in [program(), program()],
        seed in any::<u64>(),
    ) {
        let most = [0, 1].map(|i| (configs[i].send_most, configs[i].receive_most));
        let totals = [0, 1].map(|i| programs[i].total);
        let mut sim = Sim::new(configs, paths, programs, seed);
        simulate(&mut sim);
        let bad = (0..2).any(|i| {
            let e = &sim.ends[i];
            e.read != totals[1 - i] || !e.saw_fin || !e.ended || !is_good(e)
        });
        if bad {
            sim.print();
        }
        for i in 0..2 {
            let e = &sim.ends[i];
            prop_assert_eq!(e.read, totals[1 - i]);
            prop_assert!(e.saw_fin && e.ended);
            prop_assert!(is_good(e));
            let (send, receive) = most[i];
            prop_assert!(e.send_memory < send * 3 + (136 << 10), "{} of {send}", e.send_memory);
            let held = e.receive_memory;
            prop_assert!(held < receive * 9 / 4 + (24 << 10), "{held} of {receive}");
        }
    }

    /// Ends that close whenever they want: nobody waits for ever.
    #[test]
    fn all_ends(
        paths in [path(), path()],
        configs in [config(), config()],
        programs in [program(), program()],
        closes in [proptest::option::of(0..100_000u64), proptest::option::of(0..100_000u64)],
        aborts in any::<[bool; 2]>(),
        seed in any::<u64>(),
    ) {
        let [mut a, mut b] = programs;
        [a.aborts, b.aborts] = aborts;
        a.close_after = closes[0];
        b.close_after = closes[1];
        // Where a reset is lost and nothing is outstanding, only a keep-alive finds out.
        let (idle, interval) = (MS * 100_000, MS * 10_000);
        let keep_alive = KeepAlive { is_on: true, idle, interval, count: 20 };
        let configs = configs.map(|c| Config { keep_alive, ..c });
        let mut sim = Sim::new(configs, paths, [a, b], seed);
        simulate(&mut sim);
        for i in 0..2 {
            let e = &sim.ends[i];
            if !e.c.as_ref().is_none_or(|c| c.state() == State::Closed) {
                sim.print();
                prop_assert!(false, "end {} is stuck", i);
            }
        }
    }
}
