//! Profiles in the report.

use crate::bench::report::number;
use crate::bench::results::{Event, Profile, Results};
use std::fmt::Write;

/// What is less of the sandbox's time is not told by name, in percent.
const LEAST: f64 = 1.0;

pub fn told(r: &Results, text: &mut String) {
    if r.profiles.is_empty() {
        return;
    }
    text.push_str(
        "\n## Where the time goes\n\n\
         Under perf, once each: samples of the CPU clock, in percent of the CPU time of the sandbox's processes; every \
         29th host call, context switch (away from a thread) and page fault, told 29 times. Where the host's kernel has \
         interrupts off, its time counts for the function that allows them again. A call that the stub's filter hands \
         over is no host call of the application's.\n",
    );
    for p in &r.profiles {
        one(p, text);
    }
}

fn one(p: &Profile, text: &mut String) {
    let line = if p.line.is_empty() { "all" } else { &p.line };
    let cpus = if p.pinned { ", one CPU" } else { "" };
    let _ = writeln!(text, "\n### {}{cpus}: {line}\n", p.experiment);
    if let Some(why) = &p.failed {
        let _ = writeln!(text, "No profile: {why}.");
        return;
    }
    let value = p.value.as_ref();
    let value = value.map_or(String::new(), |(v, unit)| {
        format!(", {} {unit}", number(*v))
    });
    let rounds = p
        .rounds
        .map_or(String::new(), |n| format!(", {} rounds", number(n)));
    let all = (p.samples + p.idle + p.others).max(1) as f64;
    let _ = writeln!(
        text,
        "{}{value} under perf; {:.1} s{rounds}. Of {} the sandbox had {:.0} %, nobody {:.0} %, others {:.0} %. \
         [Flame graph]({}).\n",
        p.peer,
        p.seconds,
        if p.pinned { "that CPU" } else { "all CPUs" },
        100.0 * p.samples as f64 / all,
        100.0 * p.idle as f64 / all,
        100.0 * p.others as f64 / all,
        p.graph
    );
    let (per, each) = match p.rounds {
        Some(n) if n > 0.0 => (n, "a round"),
        _ => (p.seconds.max(1e-9), "a second"),
    };
    let percent = |n: u64| 100.0 * n as f64 / p.samples.max(1) as f64;
    let _ = writeln!(
        text,
        "| | own code | stub | host kernel | host calls {each} | switches | page faults |\n\
         |---|---:|---:|---:|---:|---:|---:|"
    );
    for part in &p.parts {
        let share = |n| format!("{:.1} %", percent(n));
        let events = |n: u64| number(n as f64 / per);
        let cells = [
            share(part.own),
            share(part.stub),
            share(part.kernel),
            events(part.calls),
            events(part.switches),
            events(part.faults),
        ];
        let _ = writeln!(text, "| {} | {} |", part.role, cells.join(" | "));
    }
    let list = |events: &[Event], of: &dyn Fn(&Event) -> Option<String>| {
        let words = |e: &Event| {
            Some(format!(
                "{} {} ({})",
                e.name.replace('|', "\\|"),
                of(e)?,
                e.role
            ))
        };
        events
            .iter()
            .filter_map(words)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let share = |e: &Event| {
        Some(percent(e.count))
            .filter(|&s| s >= LEAST)
            .map(|s| format!("{s:.1} %"))
    };
    let count = |e: &Event| Some(number(e.count as f64 / per)).filter(|n| n != "0");
    let _ = writeln!(text, "\n- Host kernel: {}", list(&p.kinds, &share));
    let _ = writeln!(text, "- Functions: {}", list(&p.functions, &share));
    let _ = writeln!(text, "- Host calls {each}: {}", list(&p.calls, &count));
}
