//! `cloister`: runs programs behind a Linux kernel of their own.
//!
//! The process has one thread from start to end: the sandbox's processes are copies of it.
#![forbid(unsafe_code)]

mod args;
mod debug;
mod described_late;
mod network;
mod oci;
mod run;
mod signals;
mod stdio;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: hostcall::scrub::Allocator = hostcall::scrub::Allocator;

fn main() -> ExitCode {
    let parsed = args::Cloister::command()
        .try_get_matches()
        .and_then(|m| Ok((args::Cloister::from_arg_matches(&m)?, m)));
    let (args, matches) = match parsed {
        Ok(p) => p,
        Err(e) => {
            // Help and version come this way, too.
            let failed = e.use_stderr();
            let _ = e.print();
            if let Some(name) = misplaced(&e) {
                let is_do = std::env::args_os().nth(1).is_some_and(|a| a == "do");
                complain(&match is_do {
                    true => format!("{name} is for containers: see cloister do --help"),
                    false => {
                        format!("{name} comes before the command: cloister {name} ... COMMAND ...")
                    }
                });
            }
            return ExitCode::from(if failed { sandbox::EXIT_NOT_STARTED } else { 0 });
        }
    };
    if !matches!(args.command, args::Command::Oci(_))
        && let Some(name) = given_for_containers(&matches)
    {
        complain(&format!(
            "--{name} before the command is for containers: see cloister do --help for what may follow it"
        ));
        return ExitCode::from(sandbox::EXIT_NOT_STARTED);
    }
    match args.command {
        args::Command::Do(a) => run::run(a.0),
        args::Command::Oci(c) => oci::run(args.runtime, c),
        args::Command::Debug(d) => match d.0 {
            args::Debug::HostCalls { json } => debug::host_calls(match json {
                true => debug::Listing::Json,
                false => debug::Listing::Table,
            }),
            args::Debug::Syscalls(form) => debug::syscalls(form),
        },
    }
}

/// The options of [`oci::RuntimeArgs`].
fn runtime_options() -> clap::Command {
    oci::RuntimeArgs::augment_args(clap::Command::new("options"))
}

/// One of them that was given.
fn given_for_containers(matches: &clap::ArgMatches) -> Option<String> {
    runtime_options()
        .get_arguments()
        .filter(|a| matches.value_source(a.get_id().as_str()) == Some(ValueSource::CommandLine))
        .find_map(|a| a.get_long().map(str::to_owned))
}

/// One of them that followed a command.
fn misplaced(e: &clap::Error) -> Option<&str> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(given))) =
        (e.kind(), e.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let name = given.strip_prefix("--")?;
    let is_one = runtime_options()
        .get_arguments()
        .any(|a| a.get_long() == Some(name));
    is_one.then_some(given)
}

/// Tells the person, in one sentence.
fn complain(text: &str) {
    use std::io::Write;
    // Standard error may be closed: then there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "cloister: {}", ::oci::in_words(text));
}
