//! The promises of SPECIFICATION.md, and whether a run keeps them.
//!
//! Its table names experiment and line in the first column, the peer in the second, and says in the
//! third what is promised: "at most 15 ms", or "at most 0.2x runsc", which is the same line of
//! another peer in the same run.

use super::Result;
use super::results::Results;
use std::path::Path;

/// Times are promised for machines on which crun starts a program in so long, in ms.
const CRUN_LIMIT: f64 = 8.0;

#[derive(Debug, PartialEq)]
pub struct Promise {
    pub experiment: String,
    line: String,
    pub peer: String,
    most: f64,
    of: Of,
}

#[derive(Debug, PartialEq)]
enum Of {
    Unit(String),
    Peer(String),
}

impl Promise {
    fn read(row: &str) -> Option<Promise> {
        let cells: Vec<&str> = row.strip_prefix('|')?.split('|').map(str::trim).collect();
        let (experiment, line) = cells[0].split_once(": ")?;
        let (most, of) = cells.get(2)?.strip_prefix("at most ")?.split_once(' ')?;
        let (most, of) = match most.strip_suffix('x') {
            Some(times) => (times, Of::Peer(of.to_owned())),
            None => (most, Of::Unit(of.to_owned())),
        };
        Some(Promise {
            experiment: experiment.to_owned(),
            line: line.to_owned(),
            peer: cells[1].to_owned(),
            most: most.parse().ok()?,
            of,
        })
    }

    /// Whose lines are needed.
    fn peers(&self) -> impl Iterator<Item = &str> {
        let other = match &self.of {
            Of::Peer(p) => Some(p.as_str()),
            Of::Unit(_) => None,
        };
        std::iter::once(self.peer.as_str()).chain(other)
    }

    /// Why it is not kept, or what is not judged; nothing if it is kept.
    fn judge(&self, results: &Results, times: Times) -> std::result::Result<(), Verdict> {
        let name = format!("{}: {}, {}", self.experiment, self.line, self.peer);
        let median = |peer: &str| results.median(&self.experiment, false, peer, &self.line);
        let row = results.find(&self.experiment, false, &self.peer, &self.line);
        let Some((row, value)) = row.and_then(|r| Some((r, r.median()?))) else {
            return Err(Verdict::Broken(format!("{name}: it was not measured")));
        };
        let most = match &self.of {
            Of::Unit(u) if *u != row.unit => {
                return Err(Verdict::Broken(format!(
                    "{name}: promised in {u}, measured in {}",
                    row.unit
                )));
            }
            Of::Unit(u) if times == Times::Ignored && u != "calls" => return Ok(()),
            Of::Unit(u) if times == Times::OfSlowMachine && u.ends_with('s') && u != "calls" => {
                return Ok(());
            }
            Of::Unit(_) => self.most,
            Of::Peer(_) if times == Times::Ignored => return Ok(()),
            Of::Peer(p) => match median(p) {
                Some(theirs) => self.most * theirs,
                None => {
                    let words = format!("{name}: not compared, {p} was not measured");
                    return Err(Verdict::NotJudged(words));
                }
            },
        };
        if value > most {
            let unit = &row.unit;
            return Err(Verdict::Broken(format!(
                "{name}: {value:.3} {unit}, promised {most:.3} {unit}"
            )));
        }
        Ok(())
    }
}

enum Verdict {
    Broken(String),
    NotJudged(String),
}

/// What is said of figures that depend on the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Judged,
    OfSlowMachine,
    /// Counts so tiny that they say nothing.
    Ignored,
}

/// All of them.
pub fn all() -> Result<Vec<Promise>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../SPECIFICATION.md");
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(text.lines().filter_map(Promise::read).collect())
}

/// The peers that they name, and crun, which tells how fast the machine is.
pub fn peers() -> Result<Vec<String>> {
    let mut found = vec!["crun".to_owned()];
    for p in all()? {
        for name in p.peers() {
            if !found.iter().any(|f| f == name) {
                found.push(name.to_owned());
            }
        }
    }
    Ok(found)
}

/// Those that a run did not keep, in words.
pub fn broken(results: &Results, smoke: bool) -> Result<Vec<String>> {
    let crun = results.median("start-true", false, "crun", "run of /bin/true");
    let times = match crun {
        _ if smoke => Times::Ignored,
        Some(ms) if ms > CRUN_LIMIT => {
            eprintln!(
                "bench: a slow machine, crun took {ms:.1} ms: only ratios, sizes and counts are judged"
            );
            Times::OfSlowMachine
        }
        _ => Times::Judged,
    };
    let mut broken = Vec::new();
    for p in all()? {
        // (A quick run leaves peers out.)
        if smoke && !results.peers.iter().any(|i| i.name == p.peer) {
            continue;
        }
        match p.judge(results, times) {
            Ok(()) => {}
            Err(Verdict::Broken(words)) => broken.push(words),
            Err(Verdict::NotJudged(words)) => eprintln!("bench: {words}"),
        }
    }
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::super::{experiments, peers};
    use super::*;

    #[test]
    fn rows_are_read() {
        let p =
            Promise::read("| idle: PSS of one | notify | at most 0.25x runsc | 0.2x | |").unwrap();
        assert_eq!((p.line.as_str(), p.most), ("PSS of one", 0.25));
        assert_eq!(p.peers().collect::<Vec<_>>(), ["notify", "runsc"]);
        let p =
            Promise::read("| calls: getpid, wrapper | notify | at most 100 ns | 9 | |").unwrap();
        assert_eq!(p.of, Of::Unit("ns".into()));
        assert_eq!(
            Promise::read("| bench | subject | promised | measured | |"),
            None
        );
    }

    #[test]
    fn they_are_of_experiments_and_peers_that_exist() {
        let all = all().unwrap();
        assert!(all.len() > 10, "{all:?}");
        for p in &all {
            assert!(experiments::named(&p.experiment).is_some(), "{p:?}");
            assert!(p.peers().all(|n| peers::known(n).is_ok()), "{p:?}");
        }
    }
}
