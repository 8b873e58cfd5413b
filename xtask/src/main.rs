//! The project's own tasks: `cargo xtask bench` measures Cloister beside native runs and its peers.
#![forbid(unsafe_code)]

mod bench;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's own tasks
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measures Cloister beside native runs, runc and gVisor's runsc, in one run
    Bench(bench::Args),
    /// The part of bench that runs in namespaces of its own
    #[command(hide = true)]
    Measure { plan: std::path::PathBuf },
}

fn main() -> ExitCode {
    let done = match Xtask::parse().task {
        Task::Bench(args) => bench::bench(&args),
        Task::Measure { plan } => bench::measure(&plan),
    };
    match done {
        Ok(code) => code,
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}
