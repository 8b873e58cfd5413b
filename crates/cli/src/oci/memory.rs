//! `cloister memory`.

use super::map::{MapArgs, map};
use super::show::{in_a_row, line_of_plain, pretty_and_plain, print, seconds, table_text};
use clap::{ArgGroup, Args, Subcommand};
use config::{BoundsSpec, MemoryChange, MemoryProcess, MemoryReport, Replacement};
use oci::memory::amount;
use oci::{Error, Runtime};
use std::io::IsTerminal;

#[derive(Subcommand, Debug)]
pub enum MemoryCommand {
    /// Shows who has a container's memory
    Show(ShowArgs),
    /// Draws what lies where in a container's memory, and whose it is
    Map(MapArgs),
    /// Changes what a process may have and what is kept for it, or how it is chosen what is swapped
    /// out
    Set(SetArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "\
COUNTED is what limits count: memory that was made for a process and is not swapped out, touched or not;
RESIDENT what of it has a page. SHARED is the part of that which other processes or files have, too; PROPORTIONAL
divides each such page by how many have it. Files on disks are the host's, and are not shown.

Examples:
  cloister memory show web
  cloister memory show --watch --interval 2s web
  cloister memory show --json web | jq '.processes[] | {pid, swapped}'")]
pub struct ShowArgs {
    /// Only this process, by its number in the container
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// As JSON; with --watch a line each time
    #[arg(long)]
    json: bool,
    /// Again and again, until the container ends
    #[arg(long)]
    watch: bool,
    /// How often, with --watch
    #[arg(long, value_name = "SECONDS", default_value = "1s")]
    interval: String,
    id: String,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("bounds").args(["limit", "reserve"]).multiple(true)))]
#[command(group(ArgGroup::new("change").args(["pid", "replacement"]).multiple(true).required(true)))]
#[command(after_help = "\
A process that needs more than its limit has what it did not use lately swapped out, where the container
has swap, or is ended; its children have the same limit, each for itself. What is reserved stays in memory
while others are swapped out: where the container has a limit, no more than that can be reserved. Nothing
of that is passed on to children. What is not said stays as it is. The policies of --replacement are those of
cloister do.

Examples:
  cloister memory set web --pid 7 --limit 64M
  cloister memory set web --pid 7 --reserve 32M
  cloister memory set web --pid 7 --limit max --reserve 0
  cloister memory set web --replacement lru")]
pub struct SetArgs {
    /// The process's number in the container, as cloister ps shows it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..),
          requires = "bounds")]
    pid: Option<i32>,
    /// What it may have in memory, as in 64M; max for no limit
    #[arg(long, value_name = "SIZE", value_parser = or_max, requires = "pid")]
    limit: Option<u64>,
    /// What of it stays in memory, as in 32M; 0 for nothing
    #[arg(long, value_name = "SIZE", value_parser = amount, requires = "pid")]
    reserve: Option<u64>,
    /// How it is chosen what is swapped out: reservation, lru, clock, priority or working-set
    #[arg(long, value_name = "POLICY")]
    replacement: Option<Replacement>,
    id: String,
}

fn or_max(s: &str) -> Result<u64, String> {
    if s == "max" { Ok(u64::MAX) } else { amount(s) }
}

pub fn run(rt: &Runtime, command: &MemoryCommand) -> oci::Result<()> {
    match command {
        MemoryCommand::Show(a) => show(rt, a),
        MemoryCommand::Map(a) => map(rt, a),
        MemoryCommand::Set(a) => {
            let bounds = |pid| BoundsSpec {
                pid,
                limit: a.limit,
                reserve: a.reserve,
            };
            let change = MemoryChange {
                process: a.pid.map(bounds),
                replacement: a.replacement,
            };
            oci::change_memory(rt, &a.id, &change)
        }
    }
}

fn show(rt: &Runtime, a: &ShowArgs) -> oci::Result<()> {
    let every = seconds(&a.interval)?;
    let mut report = report(rt, a)?;
    loop {
        let text = match (a.json, a.watch) {
            (true, false) => pretty_and_plain(&report),
            (true, true) => line_of_plain(&report),
            (false, _) => as_text(&report),
        };
        if a.watch && !a.json && std::io::stdout().is_terminal() {
            // The screen, from its first line on.
            print("\x1b[H\x1b[2J");
        }
        print(text.trim_end());
        if !a.watch {
            return Ok(());
        }
        std::thread::sleep(every);
        report = match self::report(rt, a) {
            // It has ended, or is about to: its processes are gone before its monitor is.
            Err(e) if *e.cause() == Error::NotRunning || has_ended(rt, &a.id) => return Ok(()),
            r => r?,
        };
    }
}

fn has_ended(rt: &Runtime, id: &str) -> bool {
    oci::state(rt, id).map_or(true, |s| s.status == oci::Status::Stopped)
}

/// With the asked process alone, if one is asked for.
fn report(rt: &Runtime, a: &ShowArgs) -> oci::Result<MemoryReport> {
    let mut r = oci::memory_report(rt, &a.id)?;
    if let Some(pid) = a.pid {
        r.processes.retain(|p| p.pid == pid);
        if r.processes.is_empty() {
            return Err(Error::new(format!("there is no process {pid}")));
        }
    }
    Ok(r)
}

/// Megabytes with a decimal place.
fn mb(n: u64) -> String {
    format!("{:.1}M", n as f64 / f64::from(1 << 20))
}

fn most(n: Option<u64>) -> String {
    n.map_or_else(|| "-".into(), mb)
}

fn row(p: &MemoryProcess) -> Vec<String> {
    vec![
        p.pid.to_string(),
        mb(p.size),
        mb(p.counted),
        mb(p.resident),
        mb(p.shared),
        mb(p.proportional),
        mb(p.swapped),
        mb(p.reserved),
        most(p.limit),
        in_a_row(&p.command),
    ]
}

fn as_text(r: &MemoryReport) -> String {
    let mut t = format!(
        "memory: {} counted, {} of it the kernel's, {} resident",
        mb(r.counted),
        mb(r.kernel),
        mb(r.resident)
    );
    if let Some(n) = r.limit {
        t += &format!(", of {}", mb(n));
    }
    if r.swap_limit > 0 {
        let (used, limit, takes) = (mb(r.swapped), mb(r.swap_limit), mb(r.swap_memory));
        t += &format!("; swap: {used} of {limit}, in {takes}");
    }
    if r.swap_limit > 0 {
        t += &format!("; replacement: {}", r.replacement.name());
    }
    if r.pressure.some.total_us > 0 {
        let [ten, ..] = r.pressure.some.averages;
        t += &format!("; stalled {ten:.1}% of the last 10 s");
    }
    if r.ended > 0 {
        t += &format!("; ended for lack of memory: {}", r.ended);
    }
    t += "\n\n";
    let head = [
        "PID",
        "SIZE",
        "COUNTED",
        "RESIDENT",
        "SHARED",
        "PROPORTIONAL",
        "SWAPPED",
        "RESERVED",
        "LIMIT",
        "CMD",
    ];
    t + &table_text(&head, r.processes.iter().map(row))
}
