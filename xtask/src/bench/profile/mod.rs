//! Where the time goes: what missed its aim is run once more on Cloister, under perf.
//!
//! Two perf processes record at once ([`record`]): samples of the CPU clock with their stacks, and
//! every 29th host call, context switch and page fault. [`samples`] reads what they recorded,
//! [`roles`] tells whose it was, and here it becomes a flame graph and the counts of a table.
//!
//! Invariants:
//! - perf runs in the process namespace of the measuring process. What does not belong to this run
//!   has no number there: it is counted as others', and is in no graph.
//! - Only what happened while the line was measured counts: from the line before it (or, of a line
//!   in milliseconds, from so long before it) to it. Both clocks are CLOCK_MONOTONIC.
//! - What was recorded is deleted when the profile is done, and lies in the run's own directory
//!   until then.
//! - A profile that cannot be made is a sentence in the report, and never ends the run.

mod record;
mod roles;
mod samples;
mod told;

use super::aims::Target;
use super::command::{Stop, now};
use super::experiments::{self, What};
use super::peers::Net;
use super::place::Place;
use super::results::{Line, Profile, Results, lines};
use super::turns::{Turn, last_cpu, owned};
use super::{Plan, Result, aims, plot};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

pub use record::usable;
pub use told::told;

/// What is profiled after the run.
#[derive(clap::ValueEnum, Serialize, Deserialize, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Each line that missed its aim, and of applications each that took more than 1.3 times native
    /// or longer than runsc
    Missed,
    /// Each line that has an aim, and each of an application, of the experiments chosen
    Aims,
    /// Each experiment chosen, as a whole
    Experiments,
}

/// How long one line is measured: three times this, about.
const BUDGET_MS: u32 = 1000;
/// What is timed from outside is repeated for so long.
const REPEATED: Duration = Duration::from_secs(3);

/// Profiles what is asked for on the first of Cloister's peers.
pub fn all(plan: &Plan, place: &Place, stop: &Stop, which: Which, results: &mut Results) {
    let ours = |p: &&super::Peer| p.is_ours() && p.missing.is_none();
    let Some(peer) = plan.peers.iter().find(ours) else {
        return;
    };
    let mut targets = match which {
        Which::Missed => aims::missed(results, &peer.name),
        Which::Aims => aims::with_aim(results, &peer.name),
        Which::Experiments => plan.experiments.iter().map(|e| Target::whole(e)).collect(),
    };
    if plan.smoke {
        targets = vec![Target {
            line: Some("Sentry call: lseek".to_owned()),
            ..Target::whole("calls")
        }];
    }
    let count = targets.len();
    for (i, t) in targets.into_iter().enumerate() {
        let Some(e) = experiments::named(&t.experiment) else {
            continue;
        };
        // Its aim is about memory.
        if matches!(e.what, What::Idle) {
            continue;
        }
        let line = t.line.as_deref().unwrap_or("all");
        let cpu = if t.pinned { ", one CPU" } else { "" };
        eprintln!(
            "bench: profile {}/{count}: {}{cpu}: {line}",
            i + 1,
            t.experiment
        );
        let turn = Turn {
            plan,
            place,
            peer,
            stop,
            limit: e.limit + Duration::from_secs(30),
            cpu: t.pinned.then(last_cpu),
            memory: None,
        };
        let made = one(&turn, e, &t);
        if stop.is_set() {
            return;
        }
        let profile = made.unwrap_or_else(|why| {
            eprintln!("bench:   failed: {why}");
            Profile {
                failed: Some(why),
                ..named(&t, &peer.name)
            }
        });
        results.profiles.push(profile);
    }
}

/// One without figures.
fn named(t: &Target, peer: &str) -> Profile {
    Profile {
        experiment: t.experiment.clone(),
        pinned: t.pinned,
        line: t.line.clone().unwrap_or_default(),
        peer: peer.to_owned(),
        ..Profile::default()
    }
}

/// What a profiled turn told.
struct Told {
    window: (f64, f64),
    value: Option<(f64, String)>,
    rounds: Option<f64>,
}

fn one(turn: &Turn, e: &experiments::Experiment, t: &Target) -> Result<Profile> {
    let recording = record::Recording::start(&turn.plan.scratch.join("profile"), turn.stop)?;
    let told = match &e.what {
        What::Inside(args) => inside(turn, args, t.line.as_deref()),
        _ => repeated(turn, e, t.line.as_deref()),
    };
    let recorded = recording.finish(turn.stop)?;
    let told = told?;
    let found = samples::read(&recorded, told.window, turn.cpu, turn.stop)?;
    if found.samples == 0 {
        return Err("perf took no sample of it".to_owned());
    }
    let mut profile = Profile {
        value: told.value,
        rounds: told.rounds,
        seconds: told.window.1 - told.window.0,
        ..named(t, &turn.peer.name)
    };
    found.tell(&mut profile);
    let out = turn.plan.results.parent().unwrap_or(Path::new("."));
    let name = t.line.as_deref().unwrap_or("all");
    profile.graph = format!("flame-{}", plot::file_name(&t.experiment, t.pinned, name));
    graph(&found, &profile, &out.join(&profile.graph))?;
    Ok(profile)
}

/// A program in the container; only this line of it, if it can do so.
fn inside(turn: &Turn, args: &[&str], line: Option<&str>) -> Result<Told> {
    let budget = if turn.plan.smoke { 200 } else { BUDGET_MS };
    let mut words = owned(&["/usr/bin/env"]);
    words.push(format!("BENCH_BUDGET_MS={budget}"));
    words.extend(line.map(|l| format!("BENCH_LINE={l}")));
    words.extend(owned(args));
    let began = now();
    let output = turn.output(&words, Net::Own)?;
    let mut told = Told {
        window: (began, now()),
        value: None,
        rounds: None,
    };
    let (mut at, mut before, mut found) = (0, began, line.is_none());
    for text in output.out.split_inclusive('\n') {
        at += text.len();
        let when = output.told_at(at).unwrap_or(told.window.1);
        match lines(text).pop() {
            Some(Line::Value(name, n, _)) if name == "rounds" => {
                *told.rounds.get_or_insert(0.0) += n;
                continue;
            }
            Some(Line::Value(name, value, unit)) if Some(name.as_str()) == line => {
                // A program that makes this line again and again goes on.
                let from = if found { told.window.0 } else { before };
                let from = if unit == "ms" {
                    when - value / 1e3
                } else {
                    from
                };
                told.window = (from, when);
                told.value = Some((value, unit));
                found = true;
            }
            Some(Line::Failed(name, why)) if Some(name.as_str()) == line => return Err(why),
            Some(_) => {}
            None => continue,
        }
        before = when;
    }
    if found {
        Ok(told)
    } else {
        Err("the program did not tell this line".to_owned())
    }
}

/// What is timed from outside, again and again.
fn repeated(turn: &Turn, e: &experiments::Experiment, line: Option<&str>) -> Result<Told> {
    let (began, start) = (now(), Instant::now());
    let mut values = Vec::new();
    let mut unit = String::new();
    let mut rounds = 0.0;
    loop {
        for l in turn.take(e)? {
            match l {
                Line::Value(name, v, u) if Some(name.as_str()) == line => {
                    values.push(v);
                    unit = u;
                }
                _ => {}
            }
        }
        rounds += 1.0;
        // These take their time by themselves.
        let once = turn.plan.smoke || !e.what.is_start();
        if once || start.elapsed() > REPEATED || turn.stop.is_set() {
            break;
        }
    }
    values.sort_by(f64::total_cmp);
    Ok(Told {
        window: (began, now()),
        value: values.get(values.len() / 2).map(|&v| (v, unit)),
        rounds: e.what.is_start().then_some(rounds),
    })
}

fn graph(found: &samples::Found, p: &Profile, to: &Path) -> Result<()> {
    let mut options = inferno::flamegraph::Options::default();
    let cpu = if p.pinned { ", on one CPU" } else { "" };
    options.title = match p.line.as_str() {
        "" => format!("{}{cpu}", p.experiment),
        line => format!("{line} ({}{cpu})", p.experiment),
    };
    options.subtitle = Some(format!("{}: CPU time of the sandbox's processes", p.peer));
    options.colors =
        inferno::flamegraph::Palette::Multi(inferno::flamegraph::color::MultiPalette::Rust);
    options.hash = true;
    options.min_width = 0.2;
    let stacks = found.folded();
    let file = std::fs::File::create(to).map_err(|e| format!("{}: {e}", to.display()))?;
    inferno::flamegraph::from_lines(
        &mut options,
        stacks.iter().map(String::as_str),
        std::io::BufWriter::new(file),
    )
    .map_err(|e| format!("{}: {e}", to.display()))
}
