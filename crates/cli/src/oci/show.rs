//! What the commands print.

use oci::{Error, Runtime};
use serde_json::json;
use std::io::Write;
use std::time::Duration;

pub fn pretty<T: serde::Serialize>(v: &T) -> String {
    serde_json::to_string_pretty(v).unwrap_or_default()
}

/// The same, where text may be a program's: no character is left that a terminal obeys (JSON itself
/// escapes only those below a space).
pub fn pretty_and_plain<T: serde::Serialize>(v: &T) -> String {
    plain(&pretty(v))
}

/// As [`pretty_and_plain`], in a line.
pub fn line_of_plain<T: serde::Serialize>(v: &T) -> String {
    plain(&serde_json::to_string(v).unwrap_or_default())
}

fn plain(json: &str) -> String {
    // Those that change the direction of what follows are not controls to Unicode.
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    json.chars().fold(String::new(), |mut text, c| {
        if (c.is_control() && c != '\n') || turns(c) {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
        text
    })
}

/// Writes a text to standard output. If it is closed, nobody wants the text.
pub fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub fn list_ids(rt: &Runtime) {
    oci::list(rt).iter().for_each(|c| print(&c.id));
}

pub fn list(rt: &Runtime, format: &str) -> oci::Result<()> {
    let all = oci::list(rt);
    match format {
        "json" => print(&serde_json::to_string(&all).unwrap_or_default()),
        "table" => {
            let rows = all.iter().map(|c| {
                vec![
                    c.id.clone(),
                    c.pid.to_string(),
                    c.status.to_string(),
                    c.bundle.display().to_string(),
                    c.created.clone(),
                    c.owner.clone(),
                ]
            });
            table(&["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"], rows);
        }
        f => {
            return Err(Error::new(format!("{f} is no format: write table or json")));
        }
    }
    Ok(())
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    print(table_text(head, rows).trim_end_matches('\n'));
}

/// Columns that are as wide as their widest cell.
pub fn table_text(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = String::new();
    let head = head.iter().map(ToString::to_string).collect();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |n: usize| all.iter().map(|r| r[n].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..all[0].len()).map(width).collect();
    for r in &all {
        let line: Vec<String> = r
            .iter()
            .zip(&widths)
            .map(|(c, w)| format!("{c:w$}"))
            .collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// A program's command line as a cell: it may have written anything there.
pub fn in_a_row(command: &str) -> String {
    command.chars().filter(|c| !c.is_control()).collect()
}

pub fn ps(rt: &Runtime, format: &str, id: &str) -> oci::Result<()> {
    let p = oci::ps(rt, id)?;
    match format {
        // What container managers look up among the host's processes.
        "json" => print(&json!([p.monitor]).to_string()),
        "json-inside" => print(&pretty_and_plain(&p.census)),
        "table" => {
            let rows = p.census.processes.iter().map(|p| {
                vec![
                    p.uid.to_string(),
                    p.pid.to_string(),
                    p.ppid.to_string(),
                    p.tty.clone(),
                    format!("{:.2}", p.cpu as f64 / 1e9),
                    in_a_row(&p.command),
                ]
            });
            table(&["UID", "PID", "PPID", "TTY", "TIME", "CMD"], rows);
        }
        f => {
            return Err(Error::new(format!(
                "{f} is no format: write table, json or json-inside"
            )));
        }
    }
    Ok(())
}

/// The words of `--interval`.
pub fn seconds(interval: &str) -> oci::Result<Duration> {
    let seconds: Option<f64> = interval.trim_end_matches('s').parse().ok();
    seconds
        .filter(|s| (0.01..1e6).contains(s))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| Error::new(format!("--interval {interval}: write seconds, as in 5s")))
}

/// Once, or again and again.
pub fn events(rt: &Runtime, id: &str, every: Option<Duration>) -> oci::Result<()> {
    loop {
        print(&oci::events(rt, id)?.to_string());
        match every {
            Some(d) => std::thread::sleep(d),
            None => return Ok(()),
        }
    }
}
