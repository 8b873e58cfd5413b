//! Measuring: every experiment on every peer, in one run, in turns.
//!
//! It runs as two processes. The first builds and finds what is needed ([`setup`]), starts the
//! second, waits for it, and writes the report. The second, which has mount and process namespaces
//! of its own, makes the one root file system that all peers get ([`place`]) and measures
//! ([`turns`]).
//!
//! Invariants:
//! - Nothing is left behind, however the run ends: mounts and processes belong to namespaces that
//!   end with the second process; that process ends when the pipe from the first one does (Ctrl-C,
//!   or the first one's own death), deletes the containers that still are there, and is killed if
//!   it does not.
//! - All peers run the same program with the same files at the same places.
//! - What one peer cannot do is a cell of the report, and never ends the run.

mod aims;
mod command;
mod experiments;
mod footprint;
mod outside;
mod peers;
mod place;
mod plot;
mod profile;
mod promises;
mod report;
mod results;
mod setup;
mod turns;
mod wire;

use command::Stop;
use experiments::Experiment;
use peers::Peer;
use results::Results;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// What went wrong, in one sentence for a person.
pub type Result<T> = std::result::Result<T, String>;

#[derive(clap::Args)]
#[command(after_help = "\
PEERS are native, crun, runc, runsc (systrap), runsc-ptrace, notify and ptrace (Cloister's platforms), and, for starts
and idle memory, do and do-ptrace (`cloister do`, of this machine's programs). A peer may
have options of its own for the runtime, which make it one more column:
  --peers native,runsc,notify --peer 'notify --debug-drop=7'
Another build of Cloister is a peer as well: what a change costs, in turns:
  --peers native,notify@/tmp/before/cloister,notify --only calls,memory

PROFILES are of the first of Cloister's peers, need perf (Debian: linux-perf), and take some seconds each; perf stores
up to 3 GB in /var/tmp meanwhile. Other work on the machine is told from the sandbox's, but takes its CPUs. What costs
a fork, whatever its aim, and where the time of git's lines goes:
  --profile=aims --only memory,app-git --peers native,notify --runs 1
flame-*.svg are beside the report: open them in a browser; a click enlarges, Ctrl-F searches.
")]
pub struct Args {
    /// Runs only the experiments whose names contain one of these words
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leaves out the experiments whose names contain one of these words
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
    /// The peers that are measured [default: all]
    #[arg(long, value_delimiter = ',')]
    peers: Option<Vec<String>>,
    /// One more peer, whose options may have commas; may be given several times
    #[arg(long)]
    peer: Vec<String>,
    /// Where report.md, results.json and the plots go
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// How often each peer has its turn at each experiment
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// The same for series, imports and applications [default: as --runs, at most 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    long_runs: Option<u32>,
    /// How long one small measurement goes on, in milliseconds
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    budget: u32,
    /// Then runs what missed its aim once more on Cloister under perf: flame graphs, and counts in
    /// the report
    #[arg(
        long,
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "missed",
        value_name = "WHAT"
    )]
    profile: Option<profile::Which>,
    /// Lists the experiments
    #[arg(long)]
    list: bool,
    /// Measures what SPECIFICATION.md promises, and fails if a promise is not kept
    #[arg(long, conflicts_with_all = ["only", "skip", "peers"])]
    check: bool,
    /// Does it work? Each experiment once with tiny counts, native, notify and do
    #[arg(long)]
    smoke: bool,
    /// Installs nothing: what is missing is left out
    #[arg(long)]
    no_install: bool,
    /// Writes the report and the plots anew from results.json in --out
    #[arg(long)]
    report: bool,
    /// The command to measure [default: what $CLOISTER names, or built from this source]
    #[arg(long)]
    cloister: Option<PathBuf>,
}

impl Args {
    fn peers(&self) -> Result<Vec<String>> {
        let default = if self.smoke {
            "native,notify,do"
        } else {
            "native,crun,runc,runsc,runsc-ptrace,notify,ptrace"
        };
        let named = match &self.peers {
            Some(named) => named.clone(),
            None if self.check && !self.smoke => promises::peers()?,
            None => default.split(',').map(str::to_owned).collect(),
        };
        Ok(named.into_iter().chain(self.peer.iter().cloned()).collect())
    }
}

/// What the second process is to do.
#[derive(Serialize, Deserialize)]
struct Plan {
    peers: Vec<Peer>,
    experiments: Vec<String>,
    /// Experiments that cannot be done, and why.
    left_out: Vec<(String, String)>,
    runs: u32,
    long_runs: u32,
    budget_ms: u32,
    smoke: bool,
    profile: Option<profile::Which>,
    /// A directory of this run.
    scratch: PathBuf,
    /// The compiled programs, the scripts and what else goes into the root file system.
    material: setup::Material,
    results: PathBuf,
}

pub fn bench(args: &Args) -> Result<ExitCode> {
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::create_dir_all(&args.out).map_err(|e| format!("{}: {e}", args.out.display()))?;
    let out = args
        .out
        .canonicalize()
        .map_err(|e| format!("{}: {e}", args.out.display()))?;
    let results = out.join("results.json");
    if args.report {
        report::write(&Results::load(&results)?, &out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !rustix::process::geteuid().is_root() {
        // The other runtimes need root, and so do a root file system and mounts that all have in
        // common.
        println!("bench: left out: needs root");
        return Ok(if args.smoke {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    let stop = Stop::on_signals()?;
    let chosen = chosen(args)?;
    for name in args.peers()? {
        peers::known(&name)?;
    }
    let scratch = tempfile::Builder::new()
        .prefix("cloister-bench-")
        .tempdir_in("/var/tmp")
        .map_err(|e| format!("/var/tmp: {e}"))?;
    let plan = setup::plan(args, &chosen, scratch.path(), &results, &stop)?;
    let file = scratch.path().join("plan.json");
    std::fs::write(
        &file,
        serde_json::to_string(&plan).map_err(|e| e.to_string())?,
    )
    .map_err(|e| e.to_string())?;
    let _ = std::fs::remove_file(&results);
    let status = second_process(&file, &stop)?;
    let results = Results::load(&results)?;
    report::write(&results, &out)?;
    eprintln!("bench: {}", out.join("report.md").display());
    let mut bad = results.failed_experiments();
    if args.smoke {
        bad.extend(results.failed_lines());
        bad.extend(results.failed_profiles());
    }
    if (args.check || args.smoke) && !stop.is_set() {
        bad.extend(promises::broken(&results, args.smoke)?);
    }
    for words in &bad {
        eprintln!("bench: failed: {words}");
    }
    if stop.is_set() {
        return Ok(ExitCode::from(130));
    }
    if !status {
        return Err("the measuring process failed".to_owned());
    }
    if args.smoke {
        println!("{} passed, {} failed", results.measured(), bad.len());
        return Ok(ExitCode::from(u8::from(!bad.is_empty())));
    }
    Ok(ExitCode::from(u8::from(args.check && !bad.is_empty())))
}

fn list() {
    for e in experiments::ALL {
        println!("{:18} {}", e.name, e.about);
    }
}

fn chosen(args: &Args) -> Result<Vec<&'static Experiment>> {
    let promised = promises::all()?;
    let has = |e: &Experiment, words: &[String]| words.iter().any(|w| e.name.contains(w.as_str()));
    let chosen: Vec<_> = experiments::ALL
        .iter()
        .filter(|e| (args.only.is_empty() || has(e, &args.only)) && !has(e, &args.skip))
        .filter(|e| !args.smoke || e.smoke)
        .filter(|e| !args.check || promised.iter().any(|p| p.experiment == e.name))
        .collect();
    if chosen.is_empty() {
        return Err("no experiment has such a name: see --list".to_owned());
    }
    Ok(chosen)
}

/// Starts the second process and waits for it. Whether it ended well.
fn second_process(plan: &Path, stop: &Stop) -> Result<bool> {
    // A session of its own: a terminal's Ctrl-C is for the first process only, and where the
    // scheduler shares the CPUs among sessions, this one's share is not that of others at this
    // terminal.
    let mut command = Command::new("setsid");
    command.args([
        "unshare",
        "--mount",
        "--propagation=private",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
    ]);
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    // The shell is the first process there: it reaps what others leave.
    command
        .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(this)
        .arg("measure")
        .arg(plan);
    let mut child = command
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|e| format!("setsid: {e}"))?;
    let mut line = child.stdin.take();
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(status.success());
        }
        if stop.is_set() {
            drop(line.take());
            let since = *asked.get_or_insert_with(Instant::now);
            if since.elapsed() > Duration::from_secs(60) {
                let _ = child.kill();
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The second process.
pub fn measure(plan: &Path) -> Result<ExitCode> {
    let text = std::fs::read_to_string(plan).map_err(|e| format!("{}: {e}", plan.display()))?;
    let plan: Plan = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let stop = Stop::at_end_of_input();
    let place = place::Place::new(&plan, &stop)?;
    turns::all(&plan, &place, &stop)?;
    Ok(ExitCode::SUCCESS)
}
