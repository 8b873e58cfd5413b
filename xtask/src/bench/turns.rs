//! Measuring in turns: each repetition of an experiment goes through all peers before the next one
//! does, so that a change of the machine's load meets all of them.

use super::command::{Output, Stop, run};
use super::experiments::{self, Experiment, Memory, Turns, What};
use super::outside;
use super::peers::{Kind, Net, Peer};
use super::place::Place;
use super::results::{Line, Results, lines, load};
use super::{Plan, Result, footprint, profile, wire};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a turn needs.
pub struct Turn<'a> {
    pub plan: &'a Plan,
    pub place: &'a Place,
    pub peer: &'a Peer,
    pub stop: &'a Stop,
    pub limit: Duration,
    /// The only CPU that may be used.
    pub cpu: Option<usize>,
    /// What the container may have of memory.
    pub memory: Option<Memory>,
}

pub fn all(plan: &Plan, place: &Place, stop: &Stop) -> Result<()> {
    let began = Instant::now();
    let mut results = Results::new(plan);
    let chosen: Vec<&Experiment> = plan
        .experiments
        .iter()
        .filter_map(|n| experiments::named(n))
        .collect();
    for (i, e) in chosen.iter().enumerate() {
        let cpus: &[Option<usize>] = if e.turns == Turns::Short {
            &[None, Some(last_cpu())]
        } else {
            &[None]
        };
        for &cpu in cpus {
            let where_ = if cpu.is_some() { ", one CPU" } else { "" };
            eprintln!(
                "bench: {}/{} {}{where_} ({:.1} min)",
                i + 1,
                chosen.len(),
                e.name,
                began.elapsed().as_secs_f64() / 60.0
            );
            experiment(plan, place, stop, e, cpu, &mut results);
            results.machine.load_after = load();
            results
                .loads
                .push((e.name.to_owned(), cpu.is_some(), load()));
            results.machine.minutes = began.elapsed().as_secs_f64() / 60.0;
            results.save(&plan.results)?;
            if stop.is_set() {
                return Ok(());
            }
        }
    }
    results.finished = true;
    if let Some(which) = plan.profile {
        // What was measured is kept, however this ends.
        results.save(&plan.results)?;
        profile::all(plan, place, stop, which, &mut results);
    }
    results.save(&plan.results)
}

fn experiment(
    plan: &Plan,
    place: &Place,
    stop: &Stop,
    e: &Experiment,
    cpu: Option<usize>,
    results: &mut Results,
) {
    let runs = if e.turns == Turns::Long {
        plan.long_runs
    } else {
        plan.runs
    };
    // Before long ones only the host's page cache is warmed, which all share: by the first peer,
    // and where installed programs are read.
    let long = e.turns == Turns::Long;
    let warm_up = u32::from(!plan.smoke && (!long || !e.needs.is_empty()));
    let here: Vec<&Peer> = plan
        .peers
        .iter()
        .filter(|p| p.missing.is_none() && takes_part(p, e))
        .collect();
    let mut failed = vec![false; here.len()];
    for round in 0..runs + warm_up {
        for (i, (peer, failed)) in here.iter().zip(&mut failed).enumerate() {
            if *failed || (long && round < warm_up && i > 0) {
                continue;
            }
            let began = Instant::now();
            let turn = Turn {
                plan,
                place,
                peer,
                stop,
                limit: e.limit,
                cpu,
                memory: None,
            };
            let told = turn.take(e);
            if stop.is_set() {
                return;
            }
            let pinned = cpu.is_some();
            match told {
                Ok(lines) => {
                    for line in lines {
                        if round >= warm_up {
                            results.add(e.name, pinned, &peer.name, line);
                        }
                    }
                    eprintln!(
                        "bench:   {}/{} {} {:.1} s",
                        round + 1,
                        runs + warm_up,
                        peer.name,
                        began.elapsed().as_secs_f64()
                    );
                }
                Err(why) => {
                    eprintln!("bench:   {} failed: {why}", peer.name);
                    results.add(e.name, pinned, &peer.name, Line::Failed(String::new(), why));
                    *failed = true;
                }
            }
        }
    }
}

/// What crun runs is native code, as with runc: only its start is of interest. `do` runs programs
/// of this machine only.
fn takes_part(peer: &Peer, e: &Experiment) -> bool {
    match (peer.kind, &e.what) {
        (kind, What::Wire(e)) => wire::takes_part(kind, e.way),
        (kind, What::WireIdle) => wire::takes_part(kind, wire::Way::Device),
        (Kind::Do, What::Start(args)) => !args[0].starts_with("/bench"),
        (Kind::Do, what) => matches!(what, What::Idle),
        (Kind::Cloister, _) => true,
        (Kind::Native, What::Within(..)) => true,
        (_, What::Within(m, _)) => m.swap.is_none() && peer.kind == Kind::Runc,
        (_, What::HostCalls | What::Footprint) => false,
        (Kind::Crun, what) => what.is_start(),
        _ => true,
    }
}

pub fn last_cpu() -> usize {
    rustix::thread::sched_getaffinity(None)
        .ok()
        .and_then(|set| {
            (0..rustix::thread::CpuSet::MAX_CPU)
                .rev()
                .find(|&c| set.is_set(c))
        })
        .unwrap_or(0)
}

static SERIAL: AtomicU32 = AtomicU32::new(0);

impl Turn<'_> {
    pub fn take(&self, e: &Experiment) -> Result<Vec<Line>> {
        match &e.what {
            What::Inside(args) => self.inside(&owned(args), Net::Own),
            What::Within(memory, args) => self.within(*memory, &owned(args)),
            What::Start(args) => self.start(&owned(args)),
            What::StartBusy(args) => outside::beside_loops(|| self.start(&owned(args))),
            What::Rate(threads) => outside::rate(self, threads),
            What::Idle => outside::idle(self),
            What::Footprint => footprint::measure(self),
            What::HostCalls => outside::host_calls(self),
            What::HostDownload => outside::download(self),
            What::Wire(ends) => wire::ends(self, ends),
            What::WireIdle => wire::idle(self),
        }
    }

    /// The command that runs these words in a container, and the container's name.
    pub fn command(
        &self,
        args: &[String],
        net: Net,
        before: &[String],
    ) -> Result<(Command, String)> {
        let id = format!(
            "bench-{}-{}",
            std::process::id(),
            SERIAL.fetch_add(1, Ordering::Relaxed)
        );
        let bundle = self.place.bundle(args, net, self.memory)?;
        let mut words: Vec<String> = self.peer.prefix().iter().map(|&w| w.to_owned()).collect();
        if let Some(cpu) = self.cpu {
            words.extend(["taskset".to_owned(), "-c".to_owned(), cpu.to_string()]);
        }
        words.extend_from_slice(before);
        words.extend(self.peer.words(self.plan, &bundle, &id, net, args));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if self.peer.kind == Kind::Native {
            command.env_clear().envs(self.place.env.iter().cloned());
        }
        Ok((command, id))
    }

    /// Runs a program that tells its measurements.
    pub fn inside(&self, args: &[String], net: Net) -> Result<Vec<Line>> {
        let output = self.output(args, net)?;
        let found = lines(&output.out);
        if found.is_empty() {
            return Err(format!(
                "the program told nothing: {}",
                output.words(&self.peer.name)
            ));
        }
        Ok(found)
    }

    /// The same within a limit of memory.
    fn within(&self, memory: Memory, args: &[String]) -> Result<Vec<Line>> {
        let mut peer = self.peer.clone();
        if let (Kind::Cloister, Some(mb)) = (peer.kind, memory.swap) {
            peer.options.push(format!("--swap={mb}M"));
        }
        let turn = Turn {
            peer: &peer,
            memory: Some(memory),
            ..*self
        };
        turn.inside(args, Net::Own)
    }

    /// Runs a program in a container. What it told, if it ended well.
    pub fn output(&self, args: &[String], net: Net) -> Result<Output> {
        let (mut command, id) = self.command(args, net, &[])?;
        let output = run(&mut command, self.limit, self.stop)
            .inspect_err(|_| self.peer.delete(self.plan, &id))?;
        if output.status.success() {
            Ok(output)
        } else {
            Err(output.words(&self.peer.name))
        }
    }

    /// How long a container takes, timed by a small program: an own fork of this one would cost
    /// more.
    fn start(&self, args: &[String]) -> Result<Vec<Line>> {
        let spawn = self
            .plan
            .material
            .dir
            .join("bin/spawn")
            .to_string_lossy()
            .into_owned();
        let (mut command, id) = self.command(args, Net::Own, &[spawn])?;
        let output = run(&mut command, self.limit, self.stop)
            .inspect_err(|_| self.peer.delete(self.plan, &id))?;
        let told = output.ok("spawn")?;
        let mut words = told.split_whitespace();
        let ns: f64 = words
            .next()
            .and_then(|w| w.parse().ok())
            .ok_or("spawn told nothing")?;
        if words.next() != Some("0") {
            // Once more, for its words.
            let (mut command, _) = self.command(args, Net::Own, &[])?;
            let output = run(&mut command, self.limit, self.stop)?;
            return Err(output.words(&self.peer.name));
        }
        Ok(vec![Line::Value(
            format!("run of {}", args[0]),
            ns / 1e6,
            "ms".to_owned(),
        )])
    }
}

pub fn owned(args: &[&str]) -> Vec<String> {
    args.iter().map(|&a| a.to_owned()).collect()
}
