//! perf: whether it is there, and two of it recording at once.

use crate::bench::Result;
use crate::bench::command::{Group, Stop, run};
use crate::bench::setup::which;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Every so many host calls, switches and faults of a CPU are one record: recording each made
/// hand-overs 2.5 times as slow. A prime, so that calls that alternate are both met.
pub const EVERY: u64 = 29;
/// Samples a second of each CPU; beside what others do every 1, 2 or 4 ms.
const RATE: &str = "997";
/// Of the stack, for DWARF's unwinding: the release build keeps no frame pointers. With 4 KiB,
/// system calls that walk paths or fork were cut.
const CLOCK: &str = "cpu-clock/call-graph=dwarf,stack-size=16384/";
/// Of one recording: what comes after is lost.
const MOST: &str = "--max-size=3G";
const EVENTS: &[&str] = &[
    "raw_syscalls:sys_enter",
    "sched:sched_switch",
    "exceptions:page_fault_user",
];

/// Why there is no profile on this machine, if so.
pub fn usable(stop: &Stop) -> Result<()> {
    if which("perf").is_none() {
        return Err("perf is not installed (Debian: linux-perf)".to_owned());
    }
    let mut probe = Command::new("perf");
    probe.args(["record", "-q", "-a", "-B", "-N", "-o", "/dev/null", "-e"]);
    probe.arg("cpu-clock");
    EVENTS.iter().for_each(|&e| {
        probe.args(["-e", e]);
    });
    probe.args(["--", "true"]);
    let told = run(&mut probe, Duration::from_secs(20), stop)?;
    if told.status.success() {
        return Ok(());
    }
    let why = told.err.lines().find(|l| !l.trim().is_empty());
    let why = why.unwrap_or("it does not say why").trim();
    Err(format!("perf may not record here: {why}"))
}

/// What two perf processes recorded; deleted when dropped.
pub struct Recorded {
    dir: PathBuf,
}

impl Recorded {
    pub fn stacks(&self) -> PathBuf {
        self.dir.join("stacks")
    }

    pub fn events(&self) -> PathBuf {
        self.dir.join("events")
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub struct Recording {
    // In this order: the processes end first.
    both: [Perf; 2],
    recorded: Recorded,
}

impl Recording {
    /// Both record when this returns.
    pub fn start(dir: &Path, stop: &Stop) -> Result<Recording> {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let recorded = Recorded {
            dir: dir.to_owned(),
        };
        let stacks = Perf::start(&recorded.stacks(), &["-F", RATE, "-e", CLOCK])?;
        // With a period in the records the host makes one of every event.
        let every = EVERY.to_string();
        let mut words = vec!["-c", &every, "--no-period"];
        EVENTS.iter().for_each(|e| words.extend(["-e", e]));
        let mut both = [stacks, Perf::start(&recorded.events(), &words)?];
        for perf in &mut both {
            perf.ask("enable", stop)?;
        }
        Ok(Recording { both, recorded })
    }

    /// Both have ended, and what they recorded is complete.
    pub fn finish(mut self, stop: &Stop) -> Result<Recorded> {
        for perf in &mut self.both {
            perf.ask("disable", stop)?;
        }
        for perf in &mut self.both {
            perf.end(stop)?;
        }
        Ok(self.recorded)
    }
}

/// One perf, which is told what to do by a FIFO and answers by another.
struct Perf {
    process: Group,
    tell: File,
    answers: File,
    said: PathBuf,
}

impl Perf {
    fn start(data: &Path, what: &[&str]) -> Result<Perf> {
        let beside = |end: &str| data.with_extension(end);
        let fifo = |end: &str| -> Result<File> {
            let path = beside(end);
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                .map_err(|e| format!("{}: {e}", path.display()))?;
            // With both directions, so that neither side waits for the other.
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
                .open(&path)
                .map_err(|e| format!("{}: {e}", path.display()))
        };
        let (tell, answers, said) = (fifo("tell")?, fifo("answers")?, beside("said"));
        let (t, a) = (beside("tell"), beside("answers"));
        let mut command = Command::new("perf");
        command
            .args(["record", "-q", "-a", "-B", "-N", "-k", "CLOCK_MONOTONIC"])
            .args(["-D", "-1", MOST])
            .arg(format!("--control=fifo:{},{}", t.display(), a.display()))
            .arg("-o")
            .arg(data)
            .args(what)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?);
        Ok(Perf {
            process: Group::start(&mut command)?,
            tell,
            answers,
            said,
        })
    }

    /// Tells it something, and waits until it did so.
    fn ask(&mut self, word: &str, stop: &Stop) -> Result<()> {
        self.tell
            .write_all(format!("{word}\n").as_bytes())
            .map_err(|e| format!("perf's FIFO: {e}"))?;
        let until = Instant::now() + Duration::from_secs(30);
        let mut answer = [0; 64];
        loop {
            if matches!(self.answers.read(&mut answer), Ok(n) if n > 0) {
                return Ok(());
            }
            if stop.is_set() {
                return Err("interrupted".to_owned());
            }
            // (One that reached its largest size has ended, and well.)
            if let Ok(Some(status)) = self.process.0.try_wait() {
                return if status.success() {
                    Ok(())
                } else {
                    Err(self.words())
                };
            }
            if Instant::now() > until {
                return Err("perf does not answer".to_owned());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(&mut self, stop: &Stop) -> Result<()> {
        if matches!(self.process.0.try_wait(), Ok(Some(_))) {
            return Ok(());
        }
        let _ = self.tell.write_all(b"stop\n");
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(status) = self.process.0.try_wait().map_err(|e| e.to_string())? {
                return if status.success() {
                    Ok(())
                } else {
                    Err(self.words())
                };
            }
            if stop.is_set() || Instant::now() > until {
                return Err("perf does not end".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn words(&self) -> String {
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        let line = said.lines().find(|l| !l.trim().is_empty());
        format!("perf: {}", line.unwrap_or("it ended").trim())
    }
}
