//! `cloister memory`.

use clap::{Args, Subcommand};
use config::BoundsSpec;
use oci::Runtime;
use oci::memory::amount;

#[derive(Subcommand, Debug)]
pub enum MemoryCommand {
    /// Changes what a process may have, and what is kept for it
    Set(SetArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "\
A process that needs more than its limit has what it did not use lately swapped out, where the container
has swap, or is ended; its children have the same limit, each for itself. What is reserved stays in memory
while others are swapped out: where the container has a limit, no more than that can be reserved. Nothing
of that is passed on to children. What is not said stays as it is.

Examples:
  cloister memory set web --pid 7 --limit 64M
  cloister memory set web --pid 7 --reserve 32M
  cloister memory set web --pid 7 --limit max --reserve 0")]
pub struct SetArgs {
    /// The process's number in the container, as cloister ps shows it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// What it may have in memory, as in 64M; max for no limit
    #[arg(long, value_name = "SIZE", value_parser = most, required_unless_present = "reserve")]
    limit: Option<u64>,
    /// What of it stays in memory, as in 32M; 0 for nothing
    #[arg(long, value_name = "SIZE", value_parser = amount)]
    reserve: Option<u64>,
    id: String,
}

fn most(s: &str) -> Result<u64, String> {
    if s == "max" { Ok(u64::MAX) } else { amount(s) }
}

pub fn run(rt: &Runtime, command: &MemoryCommand) -> oci::Result<()> {
    let MemoryCommand::Set(a) = command;
    let bounds = BoundsSpec {
        pid: a.pid,
        limit: a.limit,
        reserve: a.reserve,
    };
    oci::set_bounds(rt, &a.id, &bounds)
}
