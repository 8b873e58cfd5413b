//! What was measured.

use super::{Plan, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Serialize, Deserialize)]
pub struct Results {
    pub machine: Machine,
    pub peers: Vec<PeerInfo>,
    pub runs: u32,
    pub long_runs: u32,
    pub budget_ms: u32,
    /// Experiments, and why they were not done.
    pub left_out: Vec<(String, String)>,
    /// Modules, and how often importing them natively calls mmap.
    pub mmaps: Vec<(String, usize)>,
    pub rows: Vec<Row>,
    /// Experiments, whether on one CPU, and the machine's load when they ended: others may work on
    /// it.
    #[serde(default)]
    pub loads: Vec<(String, bool, f64)>,
    /// Where the time goes.
    #[serde(default)]
    pub profiles: Vec<Profile>,
    /// False if the run ended early.
    pub finished: bool,
}

#[derive(Serialize, Deserialize)]
pub struct Machine {
    pub cpus: usize,
    pub model: String,
    pub kernel: String,
    pub hardware_virtualisation: bool,
    pub load_before: f64,
    pub load_after: f64,
    pub minutes: f64,
}

#[derive(Serialize, Deserialize)]
pub struct PeerInfo {
    pub name: String,
    pub version: String,
    pub missing: Option<String>,
    pub ours: bool,
}

/// One line of one experiment on one peer.
#[derive(Serialize, Deserialize)]
pub struct Row {
    pub experiment: String,
    /// Empty: the experiment failed as a whole.
    pub line: String,
    pub unit: String,
    /// On one CPU.
    pub pinned: bool,
    pub peer: String,
    pub values: Vec<f64>,
    pub failed: Option<String>,
}

/// One line of an experiment, or all of it, under perf.
#[derive(Serialize, Deserialize, Default)]
pub struct Profile {
    pub experiment: String,
    pub pinned: bool,
    /// Empty: all of it.
    pub line: String,
    pub peer: String,
    /// What the line told, with perf beside it.
    pub value: Option<(f64, String)>,
    /// How often what is measured was done.
    pub rounds: Option<f64>,
    pub seconds: f64,
    /// The flame graph, beside the report.
    pub graph: String,
    /// Of the CPU clock: in the sandbox's processes, in nobody, in all others.
    pub samples: u64,
    pub idle: u64,
    pub others: u64,
    pub parts: Vec<Part>,
    /// Samples in the host's kernel, by what it did.
    pub kinds: Vec<Event>,
    /// Samples by the innermost function: the most frequent.
    pub functions: Vec<Event>,
    /// Host calls by name: the most frequent.
    pub calls: Vec<Event>,
    /// Why there is none.
    pub failed: Option<String>,
}

/// What one role did: samples by where they were, and events.
#[derive(Serialize, Deserialize)]
pub struct Part {
    pub role: String,
    pub own: u64,
    pub stub: u64,
    pub kernel: u64,
    pub calls: u64,
    pub switches: u64,
    pub faults: u64,
}

#[derive(Serialize, Deserialize)]
pub struct Event {
    pub role: String,
    pub name: String,
    pub count: u64,
}

impl Row {
    pub fn median(&self) -> Option<f64> {
        let mut v = self.values.clone();
        v.sort_by(f64::total_cmp);
        let n = v.len();
        match n {
            0 => None,
            _ if n % 2 == 1 => Some(v[n / 2]),
            _ => Some((v[n / 2 - 1] + v[n / 2]) / 2.0),
        }
    }

    pub fn least(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub fn most(&self) -> f64 {
        self.values
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max)
    }
}

/// More is better.
pub fn is_rate(unit: &str) -> bool {
    unit.ends_with("/s")
}

/// How many times as costly `a` is as `b`.
pub fn times(a: f64, b: f64, unit: &str) -> f64 {
    if is_rate(unit) { b / a } else { a / b }
}

/// A line that a measuring program told.
pub enum Line {
    Value(String, f64, String),
    Failed(String, String),
}

/// The lines of a program's output; other lines are passed over.
pub fn lines(out: &str) -> Vec<Line> {
    out.lines()
        .filter_map(|l| {
            let mut columns = l.split('\t');
            let (name, value, unit) = (columns.next()?, columns.next()?, columns.next()?);
            if value == "failed" {
                return Some(Line::Failed(name.to_owned(), unit.to_owned()));
            }
            let value: f64 = value.parse().ok()?;
            value
                .is_finite()
                .then(|| Line::Value(name.to_owned(), value, unit.to_owned()))
        })
        .collect()
}

impl Results {
    pub fn new(plan: &Plan) -> Results {
        let info = |p: &super::Peer| PeerInfo {
            name: p.name.clone(),
            version: p.version.clone(),
            missing: p.missing.clone(),
            ours: p.is_ours(),
        };
        Results {
            machine: Machine::this(),
            peers: plan.peers.iter().map(info).collect(),
            runs: plan.runs,
            long_runs: plan.long_runs,
            budget_ms: plan.budget_ms,
            left_out: plan.left_out.clone(),
            mmaps: plan.material.mmaps.clone(),
            rows: Vec::new(),
            loads: Vec::new(),
            profiles: Vec::new(),
            finished: false,
        }
    }

    pub fn load(file: &Path) -> Result<Results> {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))
    }

    pub fn save(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| e.to_string())?;
        std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
    }

    fn row(&mut self, experiment: &str, pinned: bool, peer: &str, line: &str) -> &mut Row {
        let same = |r: &Row| {
            r.experiment == experiment && r.pinned == pinned && r.peer == peer && r.line == line
        };
        let at = self.rows.iter().position(same).unwrap_or_else(|| {
            self.rows.push(Row {
                experiment: experiment.to_owned(),
                line: line.to_owned(),
                unit: String::new(),
                pinned,
                peer: peer.to_owned(),
                values: Vec::new(),
                failed: None,
            });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    pub fn add(&mut self, experiment: &str, pinned: bool, peer: &str, line: Line) {
        match line {
            Line::Value(name, value, unit) => {
                let row = self.row(experiment, pinned, peer, &name);
                row.values.push(value);
                row.unit = unit;
            }
            Line::Failed(name, why) => self.row(experiment, pinned, peer, &name).failed = Some(why),
        }
    }

    /// The row of a line on a peer.
    pub fn find(&self, experiment: &str, pinned: bool, peer: &str, line: &str) -> Option<&Row> {
        self.rows.iter().find(|r| {
            r.experiment == experiment && r.pinned == pinned && r.peer == peer && r.line == line
        })
    }

    pub fn median(&self, experiment: &str, pinned: bool, peer: &str, line: &str) -> Option<f64> {
        self.find(experiment, pinned, peer, line)?.median()
    }

    /// Whether this line, or the experiment as a whole, failed on a peer in some turn: what others
    /// gave is not all.
    pub fn failed(&self, experiment: &str, pinned: bool, peer: &str, line: &str) -> bool {
        [line, ""].into_iter().any(|l| {
            let row = self.find(experiment, pinned, peer, l);
            row.is_some_and(|r| r.failed.is_some())
        })
    }

    pub fn measured(&self) -> usize {
        self.rows.iter().filter(|r| !r.values.is_empty()).count()
    }

    /// Experiments that failed as a whole natively or on Cloister: a peer may fail, these must not.
    pub fn failed_experiments(&self) -> Vec<String> {
        self.failures(|r| r.line.is_empty() && (r.peer == "native" || self.is_ours(&r.peer)))
    }

    /// Lines that failed on Cloister: with tiny counts nothing is too slow, and no limit is met.
    pub fn failed_lines(&self) -> Vec<String> {
        self.failures(|r| !r.line.is_empty() && self.is_ours(&r.peer))
    }

    pub fn failed_profiles(&self) -> Vec<String> {
        let words = |p: &Profile| {
            let why = p.failed.as_deref()?;
            Some(format!("profile of {} {}: {why}", p.experiment, p.line))
        };
        self.profiles.iter().filter_map(words).collect()
    }

    fn is_ours(&self, peer: &str) -> bool {
        self.peers.iter().any(|p| p.ours && p.name == peer)
    }

    fn failures(&self, of: impl Fn(&Row) -> bool) -> Vec<String> {
        let words = |r: &Row| {
            Some(format!(
                "{} {} on {}: {}",
                r.experiment,
                r.line,
                r.peer,
                r.failed.as_deref()?
            ))
        };
        self.rows
            .iter()
            .filter(|r| of(r))
            .filter_map(words)
            .collect()
    }
}

impl Machine {
    pub fn this() -> Machine {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let value = |key: &str| {
            let line = cpuinfo.lines().find(|l| l.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let flags = value("flags").unwrap_or_default();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            model: value("model name").unwrap_or_default(),
            kernel: release
                .trim()
                .split('.')
                .take(2)
                .collect::<Vec<_>>()
                .join("."),
            hardware_virtualisation: flags.split(' ').any(|f| f == "svm" || f == "vmx"),
            load_before: load(),
            load_after: 0.0,
            minutes: 0.0,
        }
    }
}

/// Of the last minute.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|w| w.parse().ok())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_program() {
        let found = lines("noise\nread@4096\t12.5\tns\nx\tfailed\tno memory\nbad\tNaN\tns\n");
        assert_eq!(found.len(), 2);
        assert!(
            matches!(&found[0], Line::Value(n, v, u) if n == "read@4096" && *v == 12.5 && u == "ns")
        );
        assert!(matches!(&found[1], Line::Failed(n, why) if n == "x" && why == "no memory"));
    }

    #[test]
    fn medians_and_ratios() {
        let row = |values: &[f64]| Row {
            experiment: String::new(),
            line: String::new(),
            unit: String::new(),
            pinned: false,
            peer: String::new(),
            values: values.to_vec(),
            failed: None,
        };
        assert_eq!(row(&[]).median(), None);
        assert_eq!(row(&[3.0, 1.0, 9.0]).median(), Some(3.0));
        assert_eq!(row(&[4.0, 1.0]).median(), Some(2.5));
        assert_eq!(times(20.0, 10.0, "ns"), 2.0);
        assert_eq!(times(20.0, 10.0, "MB/s"), 0.5);
    }
}
