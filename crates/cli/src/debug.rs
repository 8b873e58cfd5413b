//! `cloister debug`: what Cloister is made of, from the tables that it is made of.

use crate::args::Form;
use hostcall::HostCall;
use hostcall::table::Process;
use sentry::syscalls::{Call, TABLE};
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

/// The calls on an allow-list, in the table's order.
fn listed() -> impl Iterator<Item = &'static HostCall> {
    let on = |c: &&HostCall| c.allowed(Process::Sentry) || c.allowed(Process::Gofer);
    HostCall::ALL.iter().filter(on)
}

pub fn host_calls(json: bool) -> ExitCode {
    if json {
        let item = |c: &HostCall| {
            format!(
                "{{\"name\": {}, \"number\": {}, \"sentry\": {}, \"gofer\": {}, \"why\": {}}}",
                quoted(c.name()),
                *c as u32,
                c.allowed(Process::Sentry),
                c.allowed(Process::Gofer),
                quoted(c.why())
            )
        };
        return print(&array(listed().map(item)));
    }
    let mut t = String::new();
    let number = |p: Process| p.allow_list().len();
    let _ = writeln!(
        t,
        "Once it is confined, the Sentry may make {} host calls and the Gofer {}; the host ends whichever \
         tries another.\n\n{:<18} {:<7} {:<6} why",
        number(Process::Sentry),
        number(Process::Gofer),
        "call",
        "Sentry",
        "Gofer"
    );
    let mark = |on| if on { "yes" } else { "-" };
    for c in listed() {
        let (s, g) = (c.allowed(Process::Sentry), c.allowed(Process::Gofer));
        let _ = writeln!(
            t,
            "{:<18} {:<7} {:<6} {}",
            c.name(),
            mark(s),
            mark(g),
            c.why()
        );
    }
    print(&t)
}

pub fn syscalls(form: Form) -> ExitCode {
    let calls = || TABLE.iter().flatten().copied();
    if form.json {
        let item = |c: &Call| {
            format!(
                "{{\"number\": {}, \"name\": {}, \"missing\": {}}}",
                c.nr,
                quoted(c.name),
                quoted(c.note)
            )
        };
        return print(&array(calls().map(item)));
    }
    let mut t = String::new();
    let whole = calls().filter(|c| c.note.is_empty()).count();
    let all = calls().count();
    let head = format!(
        "Programs can make {all} system calls, {whole} of them with nothing known to be missing; every \
         other gives ENOSYS."
    );
    if form.markdown {
        let _ = writeln!(
            t,
            "# System calls\n\n{head}\n\n| number | call | missing |\n|---:|---|---|"
        );
        for c in calls() {
            let _ = writeln!(t, "| {} | `{}` | {} |", c.nr, c.name, c.note);
        }
    } else {
        let _ = writeln!(t, "{head}\n\n{:>6}  {:<24} missing", "number", "call");
        for c in calls() {
            let line = format!("{:>6}  {:<24} {}", c.nr, c.name, c.note);
            let _ = writeln!(t, "{}", line.trim_end());
        }
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
}
