//! The aims, and whether a run reached them.

use super::results::{Results, times};

struct Aim {
    what: &'static str,
    experiment: &'static str,
    line: &'static str,
    pinned: bool,
    limit: Limit,
}

enum Limit {
    /// In the line's unit.
    Most(f64),
    /// So many times what the peer takes.
    Times(f64, &'static str),
    /// So many times what another line of the same peer takes.
    TimesLine(f64, &'static str),
}

use Limit::{Most, Times, TimesLine};

const fn aim(
    what: &'static str,
    experiment: &'static str,
    line: &'static str,
    limit: Limit,
) -> Aim {
    Aim {
        what,
        experiment,
        line,
        pinned: false,
        limit,
    }
}

const AIMS: &[Aim] = &[
    aim(
        "getpid, answered beside the program",
        "calls",
        "getpid, wrapper",
        Most(10.0),
    ),
    aim(
        "a Sentry call, an idle CPU",
        "calls",
        "Sentry call: lseek",
        Most(500.0),
    ),
    aim(
        "the same, beside runsc",
        "calls",
        "Sentry call: lseek",
        Times(0.5, "runsc"),
    ),
    Aim {
        pinned: true,
        ..aim(
            "a Sentry call, one CPU",
            "calls",
            "Sentry call: lseek",
            Most(4500.0),
        )
    },
    aim(
        "open+close, bind mount",
        "files-bind",
        "open+close",
        Most(5000.0),
    ),
    aim("open+close, root", "files-root", "open+close", Most(2000.0)),
    aim(
        "open+close, tmpfs inside",
        "files-inner",
        "open+close",
        Most(2000.0),
    ),
    aim(
        "read 4 KB, bind mount",
        "files-bind",
        "read@4096",
        Most(2000.0),
    ),
    aim(
        "read 4 KB, tmpfs inside",
        "files-inner",
        "read@4096",
        Most(1000.0),
    ),
    aim(
        "mmap anonymous 4 KB, 20,000, never unmapped",
        "memory",
        "mmap anonymous 4 KB, never unmapped",
        Most(4000.0),
    ),
    aim(
        "mmap private file: 50,000 against 5,000",
        "mmap-counts",
        "4 KB, private@50000",
        TimesLine(1.2, "4 KB, private@5000"),
    ),
    aim(
        "mmap private file: 500,000 against 5,000",
        "mmap-counts",
        "4 KB, private@500000",
        TimesLine(1.2, "4 KB, private@5000"),
    ),
    aim(
        "mmap+munmap 64 KB",
        "memory",
        "mmap+munmap 64 KB",
        Most(10_000.0),
    ),
    aim(
        "the same, 16 pages touched",
        "memory",
        "mmap, touch 16 pages, munmap",
        Most(45_000.0),
    ),
    aim(
        "first touch of a page, 64 MB",
        "memory",
        "first touch of a page, 64 MB",
        Most(1600.0),
    ),
    aim("fork+wait", "memory", "fork+wait", Most(400.0)),
    aim("vfork+exec+wait", "memory", "vfork+exec+wait", Most(900.0)),
    aim("pipe ping-pong", "switches", "pipe ping-pong", Most(27.0)),
    aim(
        "Python imports, nine modules",
        "imports-root",
        "all nine",
        Times(2.0, "native"),
    ),
    aim(
        "`run` of a static program",
        "start-static",
        "run of /bench/bin/nothing",
        Most(8.0),
    ),
    aim(
        "idle sandbox, PSS of all its processes",
        "idle",
        "PSS of one",
        Most(8.0),
    ),
];

/// What the table says of one aim.
pub struct Judged {
    pub what: String,
    pub limit: String,
    pub unit: String,
    /// By peer, in the results' order; for aims between lines of one peer, the ratio.
    pub values: Vec<Option<f64>>,
    /// Of Cloister's peers; `None` if there is no number. What failed, if only in one turn, reaches nothing.
    pub reached: Vec<Option<bool>>,
}

/// All aims of which something was measured.
pub fn judge(r: &Results) -> Vec<Judged> {
    let mut all: Vec<Judged> = AIMS.iter().filter_map(|a| one(r, a)).collect();
    all.extend(applications(
        r,
        "native",
        1.3,
        "applications: the worst, beside native",
    ));
    all.extend(applications(
        r,
        "runsc",
        1.0,
        "applications: the worst, beside runsc",
    ));
    all
}

fn one(r: &Results, a: &Aim) -> Option<Judged> {
    let value = |peer: &str, line: &str| r.median(a.experiment, a.pinned, peer, line);
    let unit = r
        .rows
        .iter()
        .find(|x| x.experiment == a.experiment && x.line == a.line && !x.unit.is_empty())?
        .unit
        .clone();
    let values: Vec<Option<f64>> = r
        .peers
        .iter()
        .map(|p| match a.limit {
            TimesLine(_, other) => Some(value(&p.name, a.line)? / value(&p.name, other)?),
            _ => value(&p.name, a.line),
        })
        .collect();
    let (most, limit) = match a.limit {
        Most(m) => (Some(m), format!("≤ {} {unit}", super::report::number(m))),
        Times(t, peer) => (value(peer, a.line).map(|v| v * t), format!("≤ {t}x {peer}")),
        TimesLine(t, _) => (Some(t), format!("within {t} times")),
    };
    let unit = if matches!(a.limit, TimesLine(..)) {
        "times".to_owned()
    } else {
        unit
    };
    Some(Judged {
        what: a.what.to_owned(),
        limit,
        unit,
        reached: reached(r, &values, most, |peer| {
            let failed = |line: &str| r.failed(a.experiment, a.pinned, peer, line);
            failed(a.line) || matches!(a.limit, TimesLine(_, other) if failed(other))
        }),
        values,
    })
}

fn reached(
    r: &Results,
    values: &[Option<f64>],
    most: Option<f64>,
    failed: impl Fn(&str) -> bool,
) -> Vec<Option<bool>> {
    let judge = |v: &Option<f64>| Some((*v)? <= most?);
    r.peers
        .iter()
        .zip(values)
        .map(|(p, v)| match p.ours {
            true if failed(&p.name) => Some(false),
            true => judge(v),
            false => None,
        })
        .collect()
}

/// The worst ratio of all lines of whole applications that both have. One that the other has, and that fails on
/// Cloister, is no better than a slow one.
fn applications(r: &Results, beside: &str, most: f64, what: &str) -> Option<Judged> {
    let worst = |peer: &str| {
        let ratio = |x: &super::results::Row| {
            let other = r.median(&x.experiment, false, beside, &x.line)?;
            Some(times(x.median()?, other, &x.unit))
        };
        let rows = r
            .rows
            .iter()
            .filter(|x| x.peer == peer && x.experiment.starts_with("app-") && !x.pinned);
        rows.filter_map(ratio)
            .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))))
    };
    let values: Vec<Option<f64>> = r.peers.iter().map(|p| worst(&p.name)).collect();
    values.iter().any(Option::is_some).then(|| Judged {
        what: what.to_owned(),
        limit: format!("within {most} times"),
        unit: "times".to_owned(),
        reached: reached(r, &values, Some(most), |peer| {
            r.rows.iter().any(|x| {
                let app = x.experiment.starts_with("app-") && !x.pinned;
                app && x.peer == peer && x.failed.is_some()
            })
        }),
        values,
    })
}

#[cfg(test)]
mod tests {
    use super::super::results::{Line, Machine, PeerInfo};
    use super::*;

    fn results(lines: Vec<(&str, &str, Line)>) -> Results {
        let peer = |name: &str, ours| PeerInfo {
            name: name.to_owned(),
            version: String::new(),
            missing: None,
            ours,
        };
        let mut r = Results {
            machine: Machine::this(),
            peers: vec![peer("native", false), peer("notify", true)],
            runs: 1,
            long_runs: 1,
            budget_ms: 1,
            left_out: Vec::new(),
            mmaps: Vec::new(),
            rows: Vec::new(),
            loads: Vec::new(),
            finished: true,
        };
        for (experiment, peer, line) in lines {
            r.add(experiment, false, peer, line);
        }
        r
    }

    fn told(ms: f64) -> Line {
        Line::Value("all".to_owned(), ms, "ms".to_owned())
    }

    #[test]
    fn what_fails_reaches_no_aim() {
        let both = |native, ours| {
            vec![
                ("app-git", "native", told(native)),
                ("app-git", "notify", told(ours)),
            ]
        };
        let of = |lines| judge(&results(lines))[0].reached[1];
        assert_eq!(of(both(10.0, 11.0)), Some(true));
        assert_eq!(of(both(10.0, 21.0)), Some(false));
        // Another one that told nothing, or the same one in a later turn.
        for failed in ["app-go", "app-git"] {
            let mut lines = both(10.0, 11.0);
            lines.push(("app-go", "native", told(5.0)));
            let why = Line::Failed(String::new(), "it ended".to_owned());
            lines.push((failed, "notify", why));
            assert_eq!(of(lines), Some(false), "{failed}");
        }
        let name = "fork+wait";
        let line = || Line::Value(name.to_owned(), 1.0, "us".to_owned());
        let lines = |more: Option<Line>| {
            let own = std::iter::once(line()).chain(more);
            own.map(|l| ("memory", "notify", l)).collect()
        };
        assert_eq!(of(lines(None)), Some(true));
        let failed = Line::Failed(name.to_owned(), "too slow".to_owned());
        assert_eq!(of(lines(Some(failed))), Some(false));
    }

    /// An aim that names nothing would never be missed.
    #[test]
    fn aims_name_experiments_and_lines() {
        let bench = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/programs");
        let mut sources = String::new();
        for f in std::fs::read_dir(bench).unwrap().flatten() {
            sources += &std::fs::read_to_string(f.path()).unwrap();
        }
        for a in AIMS {
            assert!(
                super::super::experiments::named(a.experiment).is_some(),
                "{}",
                a.experiment
            );
            // Series' names are put together as they run; starts and idle memory are measured from outside.
            let made = a.line.contains('@') || ["start-static", "idle"].contains(&a.experiment);
            assert!(made || sources.contains(a.line), "{}", a.line);
        }
    }
}
