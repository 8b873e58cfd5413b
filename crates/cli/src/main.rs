//! `cloister`: runs programs behind a Linux kernel of their own.
//!
//! The process has one thread from start to end: the sandbox's processes are copies of it.
#![forbid(unsafe_code)]

mod args;
mod debug;
mod oci;
mod run;
mod signals;
mod stdio;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Cloister::try_parse() {
        Ok(a) => a,
        Err(e) => {
            // Help and version come this way, too.
            let failed = e.use_stderr();
            let _ = e.print();
            return ExitCode::from(if failed { sandbox::EXIT_NOT_STARTED } else { 0 });
        }
    };
    match args.command {
        args::Command::Do(a) => run::run(a),
        args::Command::Oci(c) => oci::run(args.runtime, c),
        args::Command::Debug(args::Debug::HostCalls { json }) => debug::host_calls(json),
        args::Command::Debug(args::Debug::Syscalls(form)) => debug::syscalls(form),
    }
}

/// Tells the person, in one sentence.
fn complain(text: &str) {
    use std::io::Write;
    // Standard error may be closed: then there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "cloister: {text}");
}
