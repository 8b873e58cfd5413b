//! The aims, and whether a run reached them.

use super::results::{Results, times};

/// The aims in absolute figures were set on a reference machine. What a peer took there for a line
/// of the same experiment tells how fast another machine is.
#[derive(Clone, Copy)]
struct Reference {
    peer: &'static str,
    line: &'static str,
    value: f64,
}

struct Aim {
    what: &'static str,
    experiment: &'static str,
    line: &'static str,
    pinned: bool,
    limit: Limit,
    reference: Option<Reference>,
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
        reference: None,
    }
}

/// An aim in the line's unit, and what the same line took natively on the reference machine.
const fn beside(
    what: &'static str,
    experiment: &'static str,
    line: &'static str,
    most: f64,
    native: f64,
) -> Aim {
    Aim {
        reference: Some(Reference {
            peer: "native",
            line,
            value: native,
        }),
        ..aim(what, experiment, line, Most(most))
    }
}

/// Times native, at most.
const APPLICATION: f64 = 1.3;

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
        reference: Some(Reference {
            peer: "native",
            line: "bare hand-over, seccomp notification",
            value: 4183.0,
        }),
        ..aim(
            "a Sentry call, one CPU",
            "calls",
            "Sentry call: lseek",
            Most(4500.0),
        )
    },
    beside(
        "open+close, bind mount",
        "files-bind",
        "open+close",
        5000.0,
        2011.0,
    ),
    beside(
        "open+close, root",
        "files-root",
        "open+close",
        2000.0,
        1991.0,
    ),
    beside(
        "open+close, tmpfs inside",
        "files-inner",
        "open+close",
        2000.0,
        1971.0,
    ),
    beside(
        "read 4 KB, bind mount",
        "files-bind",
        "read@4096",
        2000.0,
        632.0,
    ),
    beside(
        "read 4 KB, tmpfs inside",
        "files-inner",
        "read@4096",
        1000.0,
        602.0,
    ),
    beside(
        "mmap anonymous 4 KB, 20,000, never unmapped",
        "memory",
        "mmap anonymous 4 KB, never unmapped",
        4000.0,
        1179.0,
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
    beside(
        "mmap+munmap 64 KB",
        "memory",
        "mmap+munmap 64 KB",
        10_000.0,
        3038.0,
    ),
    beside(
        "the same, 16 pages touched",
        "memory",
        "mmap, touch 16 pages, munmap",
        45_000.0,
        28_101.0,
    ),
    beside(
        "first touch of a page, 64 MB",
        "memory",
        "first touch of a page, 64 MB",
        1600.0,
        1419.0,
    ),
    beside("fork+wait", "memory", "fork+wait", 400.0, 114.0),
    beside("vfork+exec+wait", "memory", "vfork+exec+wait", 900.0, 458.0),
    beside("pipe ping-pong", "switches", "pipe ping-pong", 27.0, 26.8),
    aim(
        "Python imports, nine modules",
        "imports-root",
        "all nine",
        Times(2.0, "native"),
    ),
    Aim {
        reference: Some(Reference {
            peer: "crun",
            line: "run of /bench/bin/nothing",
            value: 5.6,
        }),
        ..aim(
            "`run` of a static program",
            "start-static",
            "run of /bench/bin/nothing",
            Most(8.0),
        )
    },
    aim(
        "`run` of /bin/true beside busy loops",
        "start-busy",
        "run of /bin/true, busy",
        Times(1.0, "runc"),
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
    /// The aim on this machine, in its unit, where it can be told.
    pub here: Option<f64>,
    pub unit: String,
    /// By peer, in the results' order; for aims between lines of one peer, the ratio.
    pub values: Vec<Option<f64>>,
    /// Of Cloister's peers; `None` if there is no number. What failed, if only in one turn, reaches
    /// nothing.
    pub reached: Vec<Option<bool>>,
    /// The same for the aim on this machine.
    pub reached_here: Vec<Option<bool>>,
}

/// What a profile is to show.
pub struct Target {
    pub experiment: String,
    pub pinned: bool,
    /// None: all of it.
    pub line: Option<String>,
}

impl Target {
    pub fn whole(experiment: &str) -> Target {
        Target {
            experiment: experiment.to_owned(),
            pinned: false,
            line: None,
        }
    }
}

/// The lines of one of Cloister's peers that are above their aim, also above that for this machine.
pub fn missed(r: &Results, peer: &str) -> Vec<Target> {
    let at = r.peers.iter().position(|p| p.name == peer);
    targets(r, peer, |a| {
        let judged = at.zip(one(r, a));
        judged.is_some_and(|(i, j)| {
            j.reached[i] == Some(false) && j.reached_here[i] != Some(true) && j.values[i].is_some()
        })
    })
    .chain(application_lines(r, peer, |x| {
        let slower = |than: &str, most: f64| {
            let other = r.median(&x.experiment, false, than, &x.line);
            x.median()
                .zip(other)
                .is_some_and(|(a, b)| times(a, b, &x.unit) > most)
        };
        slower("native", APPLICATION) || slower("runsc", 1.0)
    }))
    .collect()
}

/// The lines of this peer that have an aim, missed or not.
pub fn with_aim(r: &Results, peer: &str) -> Vec<Target> {
    targets(r, peer, |_| true)
        .chain(application_lines(r, peer, |_| true))
        .collect()
}

fn targets(r: &Results, peer: &str, of: impl Fn(&Aim) -> bool) -> impl Iterator<Item = Target> {
    let mut found: Vec<&Aim> = Vec::new();
    for a in AIMS {
        let there = r.median(a.experiment, a.pinned, peer, a.line).is_some();
        // Two aims may be about one line.
        let same = |b: &&Aim| (b.experiment, b.line, b.pinned) == (a.experiment, a.line, a.pinned);
        if there && of(a) && !found.iter().any(same) {
            found.push(a);
        }
    }
    found.into_iter().map(|a| Target {
        experiment: a.experiment.to_owned(),
        pinned: a.pinned,
        line: Some(a.line.to_owned()),
    })
}

fn application_lines(
    r: &Results,
    peer: &str,
    of: impl Fn(&super::results::Row) -> bool,
) -> impl Iterator<Item = Target> {
    let rows = r.rows.iter().filter(move |x| {
        let app = x.experiment.starts_with("app-") && !x.pinned && x.peer == peer;
        app && !x.values.is_empty() && of(x)
    });
    rows.map(|x| Target {
        experiment: x.experiment.clone(),
        pinned: false,
        line: Some(x.line.clone()),
    })
}

/// All aims of which something was measured.
pub fn judge(r: &Results) -> Vec<Judged> {
    let mut all: Vec<Judged> = AIMS.iter().filter_map(|a| one(r, a)).collect();
    all.extend(applications(
        r,
        "native",
        APPLICATION,
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
    let here = a.reference.and_then(|f| {
        let Most(m) = a.limit else { return None };
        Some(m * value(f.peer, f.line)? / f.value)
    });
    let failed = |peer: &str| {
        let failed = |line: &str| r.failed(a.experiment, a.pinned, peer, line);
        failed(a.line) || matches!(a.limit, TimesLine(_, other) if failed(other))
    };
    Some(Judged {
        what: a.what.to_owned(),
        limit,
        here,
        unit,
        reached: reached(r, &values, most, failed),
        reached_here: reached(r, &values, here, failed),
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

/// The worst ratio of all lines of whole applications that both have. One that the other has, and
/// that fails on Cloister, is no better than a slow one.
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
        here: None,
        reached_here: vec![None; values.len()],
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
            profiles: Vec::new(),
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

    /// On a machine that natively takes twice what the reference machine took, an aim is twice as
    /// high.
    #[test]
    fn aims_are_told_for_this_machine() {
        let line = |us| Line::Value("fork+wait".to_owned(), us, "us".to_owned());
        let of = |ours| {
            let j = judge(&results(vec![
                ("memory", "native", line(228.0)),
                ("memory", "notify", line(ours)),
            ]));
            (j[0].here, j[0].reached[1], j[0].reached_here[1])
        };
        assert_eq!(of(390.0), (Some(800.0), Some(true), Some(true)));
        assert_eq!(of(700.0), (Some(800.0), Some(false), Some(true)));
        assert_eq!(of(900.0), (Some(800.0), Some(false), Some(false)));
    }

    #[test]
    fn what_is_missed_is_profiled() {
        let line = |name: &str, v| Line::Value(name.to_owned(), v, "us".to_owned());
        let of = |fork, git| {
            let r = results(vec![
                ("memory", "native", line("fork+wait", 114.0)),
                ("memory", "notify", line("fork+wait", fork)),
                ("memory", "notify", line("vfork+exec+wait", 1.0)),
                ("app-git", "native", told(10.0)),
                ("app-git", "notify", told(git)),
            ]);
            let names = |t: Vec<Target>| t.into_iter().map(|t| t.experiment).collect::<Vec<_>>();
            (names(missed(&r, "notify")), with_aim(&r, "notify").len())
        };
        assert_eq!(of(300.0, 12.0), (vec![], 3));
        assert_eq!(of(500.0, 12.0), (vec!["memory".to_owned()], 3));
        assert_eq!(of(300.0, 14.0), (vec!["app-git".to_owned()], 3));
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
            // Series' names are put together as they run; starts and idle memory are measured from
            // outside.
            let made = a.line.contains('@')
                || ["start-static", "start-busy", "idle"].contains(&a.experiment);
            assert!(made || sources.contains(a.line), "{}", a.line);
            if let Some(f) = a.reference {
                assert!(made || sources.contains(f.line), "{}", f.line);
            }
        }
    }
}
