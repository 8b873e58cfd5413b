//! How much of a path is used, in simulated time.
//!
//! A window that is halved by each loss averages sqrt(1.5 / p) segments (Mathis et al. 1997), and
//! CUBIC with short round trips has the same by design (RFC 9438 4.3). On a path that loses at
//! random no such window fills a link that takes more.

use super::sim::{MS, Path, Program, Sim};
use crate::tcp::{Config, Congestion};

/// A path's use: of the link's rate, and of what the losses permit.
struct Use {
    /// Sent again and not lost.
    needless: u64,
    lost: u64,
    /// Bytes a second.
    rate: u64,
    link: f64,
    possible: f64,
}

struct Case {
    /// Bytes a second.
    rate: u64,
    loss: f64,
    /// How much is reordered by how much later arrival.
    jitter: u32,
    congestion: Congestion,
    has_sack: bool,
    bytes: u64,
    /// How many bytes wait before the link; 0: 20 ms.
    queue: u64,
}

const MSS: u16 = 1460;

fn measure(name: &str, case: &Case) -> Use {
    let config = Config {
        mss: MSS,
        gso_max: 65_000,
        congestion: case.congestion,
        sack: case.has_sack,
        ..Config::default()
    };
    let queue = match case.queue {
        0 => (case.rate / 50).max(50_000),
        n => n,
    };
    let forth = Path {
        loss: (case.loss * 1e6) as u64,
        jitter: MS * case.jitter,
        rate: case.rate,
        queue,
        ..Path::default()
    };
    let program = Program {
        total: case.bytes,
        ..Program::default()
    };
    let (forth, back) = (
        forth,
        Path {
            joins: true,
            ..Path::default()
        },
    );
    let mut sim = Sim::new(
        [config.clone(), config],
        [forth, back],
        [program, Program::default()],
        11,
    );
    let began = sim.now;
    sim.run(|s| s.ends[1].read == case.bytes);
    assert_eq!(sim.ends[1].read, case.bytes);
    let took = sim.now.since(began).as_secs_f64();
    let got = case.bytes as f64 / took;
    let link = case.rate as f64 * 1448.0 / 1514.0;
    let window = (1.5 / case.loss.max(1e-9)).sqrt() * 1448.0;
    let possible = link.min(window / 0.020);
    let i = sim.ends[0].c.as_ref().unwrap().info();
    println!(
        "{name}: {:.2} of the link, {:.2} of what is possible; {} sent again ({} lost), \
         {} time-outs, {} undone, {} twice, {:.1} MB/s at last",
        got / link,
        got / possible,
        i.total_retransmitted,
        sim.lost,
        i.timeouts,
        i.undone,
        i.duplicates_told,
        i.delivery_rate as f64 / 1e6,
    );
    Use {
        needless: i.total_retransmitted.saturating_sub(sim.lost),
        lost: sim.lost,
        rate: i.delivery_rate,
        link: got / link,
        possible: got / possible,
    }
}

const FAST: u64 = 12_500_000;
const CLEAN: Case = Case {
    rate: FAST,
    loss: 0.0,
    jitter: 0,
    congestion: Congestion::Cubic,
    has_sack: true,
    bytes: 60_000_000,
    queue: 0,
};

#[test]
fn a_clean_path_is_filled() {
    let u = measure("cubic, 100 Mbit/s", &CLEAN);
    assert!(u.link > 0.9 && u.needless < 10, "{} {}", u.link, u.needless);
    assert!((FAST / 2..FAST * 2).contains(&u.rate), "{}", u.rate);
    let u = measure(
        "reno, 100 Mbit/s",
        &Case {
            congestion: Congestion::Reno,
            ..CLEAN
        },
    );
    assert!(u.link > 0.9 && u.needless < 10, "{} {}", u.link, u.needless);
    assert!((FAST / 2..FAST * 2).contains(&u.rate), "{}", u.rate);
}

#[test]
fn rare_losses_cost_little() {
    let slow = Case {
        rate: FAST / 10,
        loss: 0.001,
        bytes: 20_000_000,
        ..CLEAN
    };
    let u = measure("0.1 % loss, 10 Mbit/s", &slow);
    assert!(u.link > 0.8, "{}", u.link);
    let u = measure(
        "0.1 % loss, 100 Mbit/s",
        &Case {
            loss: 0.001,
            ..CLEAN
        },
    );
    assert!(u.possible > 0.8, "{}", u.possible);
    let u = measure(
        "1 % loss, 100 Mbit/s",
        &Case {
            loss: 0.01,
            bytes: 20_000_000,
            ..CLEAN
        },
    );
    assert!(u.possible > 0.7, "{}", u.possible);
}

#[test]
fn selective_acknowledgements_are_not_needed() {
    let u = measure(
        "0.1 % loss, 100 Mbit/s, no SACK",
        &Case {
            loss: 0.001,
            has_sack: false,
            ..CLEAN
        },
    );
    assert!(u.possible > 0.7, "{}", u.possible);
}

#[test]
fn reordering_costs_little() {
    let u = measure(
        "4 ms of reordering, 100 Mbit/s",
        &Case { jitter: 4, ..CLEAN },
    );
    assert!(u.link > 0.7, "{}", u.link);
}

#[test]
fn a_short_queue_is_not_run_over() {
    let short = Case {
        rate: FAST / 5,
        bytes: 4_000_000,
        queue: 30_000,
        ..CLEAN
    };
    let u = measure("20 Mbit/s, a queue of 12 ms", &short);
    assert!(u.link > 0.9 && u.lost < 60, "{} {}", u.link, u.lost);
}
