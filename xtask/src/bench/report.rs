//! The report: report.md and its plots, from the results alone.

use super::results::{Results, Row, is_rate, times};
use super::{Result, aims, experiments, plot, profile};
use std::fmt::Write;
use std::path::Path;

pub fn write(r: &Results, out: &Path) -> Result<()> {
    let plots = plot::all(r, out)?;
    let mut text = String::new();
    head(r, &mut text);
    aim_table(r, &mut text);
    for p in plots.iter().filter(|p| p.experiment.is_empty()) {
        let _ = writeln!(text, "\n![{}]({})", p.title, p.file);
    }
    profile::told(r, &mut text);
    for (experiment, pinned) in parts(r) {
        let about = experiments::named(&experiment).map_or("", |e| e.about);
        let cpus = if pinned { ", on one CPU" } else { "" };
        let _ = writeln!(text, "\n## {experiment}: {about}{cpus}\n");
        if let Some((_, _, load)) = r
            .loads
            .iter()
            .find(|(e, p, _)| *e == experiment && *p == pinned)
        {
            let _ = writeln!(text, "Load at the end: {load}.\n");
        }
        table(r, &experiment, pinned, &mut text);
        for p in plots
            .iter()
            .filter(|p| p.experiment == experiment && p.pinned == pinned)
        {
            let _ = writeln!(text, "\n![{}]({})", p.title, p.file);
        }
    }
    if !r.mmaps.is_empty() {
        text.push_str(
            "\n## How often an import calls mmap, natively\n\n| module | calls |\n|---|---:|\n",
        );
        for (m, n) in &r.mmaps {
            let _ = writeln!(text, "| {m} | {n} |");
        }
    }
    if !r.left_out.is_empty() {
        text.push_str("\n## Left out\n\n");
        for (what, why) in &r.left_out {
            let _ = writeln!(text, "- {what}: {why}");
        }
    }
    let file = out.join("report.md");
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
}

/// Experiments with their pinnings, in the order of the run.
pub fn parts(r: &Results) -> Vec<(String, bool)> {
    let mut all: Vec<(String, bool)> = Vec::new();
    for row in &r.rows {
        let part = (row.experiment.clone(), row.pinned);
        if !all.contains(&part) {
            all.push(part);
        }
    }
    all
}

/// Lines of an experiment with their units, in the order told.
pub fn lines(r: &Results, experiment: &str, pinned: bool) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for row in r
        .rows
        .iter()
        .filter(|x| x.experiment == experiment && x.pinned == pinned && !x.line.is_empty())
    {
        match all.iter_mut().find(|(l, _)| *l == row.line) {
            Some((_, unit)) if unit.is_empty() => unit.clone_from(&row.unit),
            Some(_) => {}
            None => all.push((row.line.clone(), row.unit.clone())),
        }
    }
    all
}

fn head(r: &Results, text: &mut String) {
    let m = &r.machine;
    let virt = if m.hardware_virtualisation {
        "with"
    } else {
        "no"
    };
    let _ = writeln!(text, "# Cloister beside native runs and its peers\n");
    let _ = writeln!(
        text,
        "{} CPUs ({}), {virt} hardware virtualisation, Linux {}. Load {} before, {} after; {:.0} minutes. Each peer \
         had {} turns (series, imports and applications {}), in turns with the others. Medians; below them the least and the most, \
         and how many times as costly it is as a native run. Quote ratios: the numbers are of this machine and hour.",
        m.cpus, m.model, m.kernel, m.load_before, m.load_after, m.minutes, r.runs, r.long_runs
    );
    if !r.finished {
        let _ = writeln!(text, "\n**The run ended early: what is here is not all.**");
    }
    text.push_str("\n| peer | |\n|---|---|\n");
    for p in &r.peers {
        let what = match (&p.missing, p.name.as_str()) {
            (Some(why), _) => format!("left out: {why}"),
            (None, "native") => {
                "namespaces of its own and a root directory; no filter, no limits".to_owned()
            }
            _ => p.version.clone(),
        };
        let _ = writeln!(text, "| {} | {what} |", p.name);
    }
}

fn peer_header(r: &Results, first: &str, text: &mut String) {
    let names: Vec<&str> = r.peers.iter().map(|p| p.name.as_str()).collect();
    let _ = writeln!(text, "| {first} | {} |", names.join(" | "));
}

fn aim_table(r: &Results, text: &mut String) {
    let judged = aims::judge(r);
    if judged.is_empty() {
        return;
    }
    text.push_str("\n## Aims\n\n");
    text.push_str(
        "\"Here\" is the aim times what a peer takes here and took on the machine that the aims were set on.\n\n",
    );
    peer_header(r, "| aim | here", text);
    let _ = writeln!(text, "|---|---|---:|{}", "---:|".repeat(r.peers.len()));
    for j in judged {
        let cells: Vec<String> = j
            .values
            .iter()
            .zip(j.reached.iter().zip(&j.reached_here))
            .map(|(v, reached)| {
                let value = v.map_or("-".to_owned(), |v| format!("{} {}", number(v), j.unit));
                match reached {
                    (Some(true), _) => format!("{value}, **reached**"),
                    (Some(false), Some(true)) => format!("{value}, **reached here**"),
                    (Some(false), _) => format!("{value}, missed"),
                    (None, _) => value,
                }
            })
            .collect();
        let here = j
            .here
            .map_or("".to_owned(), |h| format!("{} {}", number(h), j.unit));
        let cells = cells.join(" | ");
        let _ = writeln!(text, "| {} | {} | {here} | {cells} |", j.what, j.limit);
    }
}

fn table(r: &Results, experiment: &str, pinned: bool, text: &mut String) {
    let all = lines(r, experiment, pinned);
    // A column for each peer that took part.
    let here = |p: &str| {
        r.rows
            .iter()
            .any(|x| x.experiment == experiment && x.pinned == pinned && x.peer == p)
    };
    let names: Vec<&str> = r
        .peers
        .iter()
        .map(|p| p.name.as_str())
        .filter(|p| here(p))
        .collect();
    let ours: Vec<&str> = r
        .peers
        .iter()
        .filter(|p| p.ours && here(&p.name))
        .map(|p| p.name.as_str())
        .collect();
    let with_runsc = here("runsc");
    let mut header = format!("| | {} |", names.join(" | "));
    let mut rule = format!("|---|{}", "---:|".repeat(names.len()));
    if with_runsc {
        for p in &ours {
            let _ = write!(header, " {p} / runsc |");
            rule.push_str("---:|");
        }
    }
    let _ = writeln!(text, "{header}\n{rule}");
    let mut whole: Vec<String> = Vec::new();
    for (line, unit) in &all {
        let cells: Vec<String> = names
            .iter()
            .map(|p| cell(r, experiment, pinned, p, line))
            .collect();
        let mut words = format!(
            "| {}, {unit} | {} |",
            line.replace('@', " @ "),
            cells.join(" | ")
        );
        if unit.is_empty() {
            words = format!("| {} | {} |", line.replace('@', " @ "), cells.join(" | "));
        }
        if with_runsc {
            for p in &ours {
                let ratio = r
                    .median(experiment, pinned, p, line)
                    .zip(r.median(experiment, pinned, "runsc", line))
                    .map_or("-".to_owned(), |(a, b)| ratio(times(a, b, unit)));
                let _ = write!(words, " {ratio} |");
            }
        }
        let _ = writeln!(text, "{words}");
    }
    for p in &names {
        if let Some(why) = r
            .find(experiment, pinned, p, "")
            .and_then(|x| x.failed.as_deref())
        {
            whole.push(format!("{p}: failed: {why}"));
        }
    }
    if all.iter().any(|(_, u)| is_rate(u)) {
        whole.insert(
            0,
            "Of what is told by the second, more is better; ratios are of cost: below 1 is better."
                .to_owned(),
        );
    }
    if !whole.is_empty() {
        text.push('\n');
        for w in whole {
            let _ = writeln!(text, "- {}", w.replace('|', "\\|"));
        }
    }
}

fn cell(r: &Results, experiment: &str, pinned: bool, peer: &str, line: &str) -> String {
    let Some(row) = r
        .find(experiment, pinned, peer, line)
        .filter(|x| !x.values.is_empty())
    else {
        let why = r
            .find(experiment, pinned, peer, line)
            .and_then(|x| x.failed.as_deref());
        return match (why, r.find(experiment, pinned, peer, "")) {
            (Some(why), _) => format!("failed: {}", why.replace('|', "\\|")),
            // Told once, below the table.
            (None, Some(_)) => "failed".to_owned(),
            (None, None) => "-".to_owned(),
        };
    };
    let median = row.median().unwrap_or(f64::NAN);
    let mut words = number(median) + &spread(row);
    if peer != "native"
        && let Some(native) = r.median(experiment, pinned, "native", line)
    {
        let _ = write!(words, "<br>{}", ratio(times(median, native, &row.unit)));
    }
    words
}

fn spread(row: &Row) -> String {
    if row.values.len() < 2 {
        String::new()
    } else {
        format!("<br>{}..{}", number(row.least()), number(row.most()))
    }
}

fn ratio(x: f64) -> String {
    if !x.is_finite() {
        return "-".to_owned();
    }
    match x {
        x if x >= 10.0 => format!("{x:.0}x"),
        x if x >= 0.1 => format!("{x:.2}x"),
        x => format!("{x:.3}x"),
    }
}

/// Three digits that matter; thousands apart.
pub fn number(x: f64) -> String {
    if x < 10.0 {
        let text = format!("{x:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    if x < 100.0 {
        return format!("{x:.1}").trim_end_matches(".0").to_owned();
    }
    let digits = format!("{x:.0}");
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 && digits.len() > 4 {
            text.push(',');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let all = [
            (0.0, "0"),
            (1.5, "1.5"),
            (9.999, "10"),
            (27.0, "27"),
            (27.46, "27.5"),
            (1047.2, "1047"),
            (14474.0, "14,474"),
            (1_234_567.0, "1,234,567"),
        ];
        for (x, text) in all {
            assert_eq!(number(x), text);
        }
    }

    #[test]
    fn ratios() {
        assert_eq!(ratio(216.4), "216x");
        assert_eq!(ratio(2.2), "2.20x");
        assert_eq!(ratio(0.057), "0.057x");
        assert_eq!(ratio(f64::INFINITY), "-");
    }
}
