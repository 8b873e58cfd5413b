//! `cloister debug`: what Cloister is made of, from the tables that it is made of.

use crate::args::Form;
use abi::syscalls::{GONE, NAMES};
use hostcall::HostCall;
use hostcall::table::Process;
use sentry::syscalls::{Call, TABLE, lookup};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Writes a report; a reader that went away is no error.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            crate::complain(&format!("could not write: {e}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// A JSON string.
fn quoted(s: &str) -> String {
    let mut out = String::from('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `[a, b]` with one item a line.
fn array(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|i| format!("  {i}")).collect();
    format!("[\n{}\n]\n", items.join(",\n"))
}

/// The processes that have an allow-list, as a table's columns and as JSON's words.
const COLUMNS: [(Process, &str, &str); 9] = [
    (Process::Sentry, "Sentry", "sentry"),
    (
        Process::SentryOnHostNetwork,
        "+net",
        "sentry_on_host_network",
    ),
    (Process::SentryWithBroker, "+user", "sentry_with_broker"),
    (Process::TracingSentry, "+trace", "sentry_on_ptrace"),
    (Process::Gofer, "Gofer", "gofer"),
    (Process::Broker, "broker", "broker"),
    (Process::UserBroker, "+user", "user_broker"),
    (Process::Monitor, "monitor", "monitor"),
    (Process::Capture, "pcap", "capture"),
];

/// The calls on an allow-list, in the table's order.
fn listed() -> impl Iterator<Item = &'static HostCall> {
    let on = |c: &&HostCall| Process::ALL.iter().any(|p| c.allowed(*p));
    HostCall::ALL.iter().filter(on)
}

/// How something is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listing {
    Table,
    Json,
}

pub fn host_calls(listing: Listing) -> ExitCode {
    if listing == Listing::Json {
        let item = |c: &HostCall| {
            let who: String = COLUMNS
                .iter()
                .map(|(p, _, word)| format!("\"{word}\": {}, ", c.allowed(*p)))
                .collect();
            format!(
                "{{\"name\": {}, \"number\": {}, {who}\"why\": {}}}",
                quoted(c.name()),
                *c as u32,
                quoted(c.why())
            )
        };
        return print(&array(listed().map(item)));
    }
    let mut t = String::new();
    let number = |p: Process| p.allow_list().len();
    let _ = write!(
        t,
        "Once it is confined, the Sentry may make {} host calls ({} with --net=host, {} with \
         --net=user), the Gofer {}, the broker of --net=host {}, that of --net=user {}, a container's monitor {}, and who writes packets down (--pcap) {}; the host ends whichever tries another.\n\n{:<18}",
        number(Process::Sentry),
        number(Process::SentryOnHostNetwork),
        number(Process::SentryWithBroker),
        number(Process::Gofer),
        number(Process::Broker),
        number(Process::UserBroker),
        number(Process::Monitor),
        number(Process::Capture),
        "call",
    );
    for (_, name, _) in COLUMNS {
        let _ = write!(t, " {name:<7}");
    }
    let _ = writeln!(t, " why");
    for c in listed() {
        let _ = write!(t, "{:<18}", c.name());
        for (p, _, _) in COLUMNS {
            let _ = write!(t, " {:<7}", if c.allowed(p) { "yes" } else { "-" });
        }
        let _ = writeln!(t, " {}", c.why());
    }
    print(&t)
}

/// How much of a system call there is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Nothing is known to be missing.
    Complete,
    /// The note says what is missing.
    Partial,
    /// Linux has it, we give `ENOSYS`.
    Missing,
    /// Linux has only its name, and gives `ENOSYS`, too.
    Gone,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Status::Complete => "complete",
            Status::Partial => "partial",
            Status::Missing => "missing",
            Status::Gone => "gone",
        }
    }
}

/// One line of the compatibility page.
struct Line {
    nr: u32,
    name: &'static str,
    status: Status,
    note: &'static str,
}

/// What we have, and what Linux has beyond it, by number.
fn lines() -> Vec<Line> {
    let ours = TABLE.iter().flatten().map(|c: &&Call| Line {
        nr: c.nr,
        name: c.name,
        status: if c.note.is_empty() {
            Status::Complete
        } else {
            Status::Partial
        },
        note: c.note,
    });
    let others = NAMES.iter().filter(|n| lookup(n.nr.into()).is_none());
    let others = others.map(|n| Line {
        nr: n.nr,
        name: n.name,
        status: if GONE.contains(&n.nr) {
            Status::Gone
        } else {
            Status::Missing
        },
        note: "",
    });
    let mut all: Vec<Line> = ours.chain(others).collect();
    all.sort_by_key(|l| l.nr);
    all
}

/// `docs/compatibility.md`.
fn markdown(lines: &[Line]) -> String {
    let count = |s| lines.iter().filter(|l| l.status == s).count();
    let mut t = format!(
        "# Compatibility: system calls\n\n\
         Of the {} system calls of Linux 6.12 on x86-64, programs can make {}: {} are complete as far as \
         is known (`complete`), of {} something is missing, and the note says what (`partial`). {} give \
         `ENOSYS` (`missing`). {} more names give `ENOSYS` on Linux as well (`gone`). 32-bit and x32 calls \
         give `ENOSYS`.\n\n\
         This page is written by `cloister debug syscalls --markdown > docs/compatibility.md`, from the \
         table that the dispatcher uses; a test fails when it is out of date.\n\n\
         | number | system call | status | note |\n|---:|---|---|---|\n",
        lines.len() - count(Status::Gone),
        count(Status::Complete) + count(Status::Partial),
        count(Status::Complete),
        count(Status::Partial),
        count(Status::Missing),
        count(Status::Gone),
    );
    for l in lines {
        let note = l.note.replace('|', "\\|");
        let line = format!("| {} | `{}` | {} | {note} |", l.nr, l.name, l.status.word());
        let _ = writeln!(t, "{}", line.replace("|  |", "| |"));
    }
    t
}

pub fn syscalls(form: Form) -> ExitCode {
    let mut lines = lines();
    if let Some(n) = form
        .names
        .iter()
        .find(|n| lines.iter().all(|l| l.name != **n))
    {
        crate::complain(&format!("Linux has no system call {n}"));
        return ExitCode::from(2);
    }
    lines.retain(|l| form.names.is_empty() || form.names.iter().any(|n| *n == l.name));
    if form.markdown {
        return print(&markdown(&lines));
    }
    if form.json {
        let item = |l: &Line| {
            format!(
                "{{\"number\": {}, \"name\": {}, \"status\": {}, \"missing\": {}}}",
                l.nr,
                quoted(l.name),
                quoted(l.status.word()),
                quoted(l.note)
            )
        };
        return print(&array(lines.iter().map(item)));
    }
    let mut t = format!("{:>6}  {:<24} {:<9} note\n", "number", "call", "status");
    for l in &lines {
        let line = format!(
            "{:>6}  {:<24} {:<9} {}",
            l.nr,
            l.name,
            l.status.word(),
            l.note
        );
        let _ = writeln!(t, "{}", line.trim_end());
    }
    print(&t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }

    #[test]
    fn the_compatibility_page_is_up_to_date() {
        assert!(
            markdown(&lines()) == include_str!("../../../docs/compatibility.md"),
            "run: cargo run -- debug syscalls --markdown > docs/compatibility.md"
        );
    }

    #[test]
    fn names_are_linux_names() {
        for c in TABLE.iter().flatten() {
            let linux = NAMES.iter().find(|n| n.nr == c.nr).map(|n| n.name);
            assert_eq!(linux, Some(c.name), "{}", c.nr);
        }
    }
}
