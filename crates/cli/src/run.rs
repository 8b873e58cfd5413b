//! `cloister do`.

mod plan;

use crate::args::Do;
use crate::complain;
use crate::network::Opened;
use crate::signals;
use crate::stdio::{self, RawMode};
use ::oci::start::{Begins, KernelOptions, Place, SentryFds, Start, start};
use ::oci::{Error, Result};
use config::Stdio;
use sandbox::{EXIT_NOT_FOUND, EXIT_NOT_STARTED, Ending};
use std::process::ExitCode;

pub fn run(args: Do) -> ExitCode {
    match try_run(&args) {
        Ok(code) => code,
        Err(e) => {
            complain(&e.to_string());
            ExitCode::from(EXIT_NOT_STARTED)
        }
    }
}

/// What a person may have meant by the name of a program that is not there.
fn hint(args: &Do) -> Option<String> {
    let program = args.command.first()?.to_str()?;
    if args.verbose > 0 && program.contains(":/") {
        return Some(format!(
            "-v says more; to show a directory, write --volume {program}"
        ));
    }
    (program.starts_with("/tmp/") && std::path::Path::new(program).exists()).then(|| {
        format!(
            "the sandbox has a /tmp of its own; to show yours, write --volume {program}:{program}"
        )
    })
}

fn try_run(args: &Do) -> Result<ExitCode> {
    let mut network = Opened::new(args)?;
    // Given back on every way out.
    let devices = network.devices.take();
    let pcap = network.pcap.take();
    let plan = plan::plan(args, std::mem::take(&mut network.outside))?;
    let given = SentryFds {
        stdio: stdio::of_caller(),
        log: args.log.as_deref().map(open_log).transpose()?,
        swap: (args.swap_dir.as_deref())
            .map(|dir| oci::nameless_file(dir, "swap"))
            .transpose()?,
        ..SentryFds::default()
    };
    let signals =
        signals::open().map_err(|e| Error::new(format!("could not watch signals: {e}")))?;
    // From here on the terminal is put back on every way out.
    let terminal = match given.stdio {
        Stdio::Terminal { .. } => Some(
            RawMode::enter().map_err(|e| Error::new(format!("could not set the terminal: {e}")))?,
        ),
        Stdio::Inherited(_) => None,
    };
    let running = start(Start {
        plan,
        kernel: &kernel(args),
        given: &given,
        begins: Begins::AtOnce,
        place: Place::Own { away: None },
    })?;
    drop(given);
    let refusals = network.started();
    let ending = running.wait(&mut signals::PassOn {
        signals: &signals,
        terminal: terminal.as_ref(),
    });
    drop(terminal);
    if let Some(p) = pcap {
        p.finish();
    }
    drop(devices);
    if let Some(text) = refusals.sentence() {
        complain(&text);
    }
    Ok(end(ending, hint(args).as_deref()))
}

fn kernel(args: &Do) -> KernelOptions {
    KernelOptions {
        platform: args.platform.into(),
        lanes: args.lanes.into(),
        strace: args.strace.as_deref().map(crate::args::strace_words),
        verbosity: args.verbose,
        debug_drop: args.debug_drop,
    }
}

/// Ends as the program did, and tells the person what else there is to tell.
fn end(ending: Ending, hint: Option<&str>) -> ExitCode {
    match ending {
        Ending::Program { status, note } => {
            if let Some(text) = note {
                complain(&text);
            }
            if libc::WIFSIGNALED(status) {
                let signal = libc::WTERMSIG(status);
                signals::die_by(signal);
                ExitCode::from((128 + signal) as u8)
            } else {
                ExitCode::from(libc::WEXITSTATUS(status) as u8)
            }
        }
        Ending::Broken { text, exit } => {
            match hint {
                Some(h) if exit == EXIT_NOT_FOUND => complain(&format!("{text} ({h})")),
                _ => complain(&text),
            }
            ExitCode::from(exit)
        }
    }
}

fn open_log(path: &std::path::Path) -> Result<std::fs::File> {
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|e| Error::new(format!("could not open the log {}: {e}", path.display())))
}
