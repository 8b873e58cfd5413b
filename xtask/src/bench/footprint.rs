//! What the container-level address space says of memory, beside what the host has; and what the
//! sandbox takes for itself (ContainerVisor's paper: footprints, and memory overhead by blocks).
//!
//! The host is asked without Cloister: which pages the memory file has (lseek(2), `SEEK_DATA`), and
//! which of them the sandbox's processes have in their page tables (`/proc/PID/pagemap`).

use super::Result;
use super::command::{Group, run};
use super::outside::processes;
use super::peers::Net;
use super::results::Line;
use super::turns::{Turn, owned};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// How long a program is waited for until its memory does not change any more.
const SETTLES: Duration = Duration::from_secs(120);
const BETWEEN: Duration = Duration::from_millis(700);
/// Bits of an entry of pagemap.
const PRESENT: u64 = 1 << 63;
/// Two in three of these lists are the child's, too, until it changes them.
const FAMILY: &str = "import os, time
data = [list(range(i, i + 1000)) for i in range(3000)]
if os.fork() == 0: data[:1000] = [[0] * 1000 for _ in range(1000)]
time.sleep(1000)";
/// Megabytes of sysbench's block.
const BLOCKS: [u64; 4] = [64, 128, 256, 512];

const PROGRAMS: [(&str, &[&str]); 3] = [
    ("an idle shell", &["/bin/sh", "-c", "sleep 1000; :"]),
    (
        "a process and its fork",
        &["/usr/bin/python3", "-c", FAMILY],
    ),
    (
        "redis",
        &["/usr/bin/redis-server", "--port", "7997", "--save", ""],
    ),
];

/// Pages, by numbers of cells.
type Cells = BTreeMap<u64, u64>;

/// What there is of one sandbox.
struct Look {
    /// Pages of the memory file.
    host: u64,
    /// Those that the CLAS says are somebody's.
    listed: u64,
    /// Pages that processes have, and nobody is said to have; and the other way round.
    missed: u64,
    extra: u64,
    /// KiB of the sandbox's own: anonymous memory and page tables of all its processes.
    own: u64,
}

pub fn measure(turn: &Turn) -> Result<Vec<Line>> {
    let mut found = Vec::new();
    let mut line = |name: String, value: u64, unit: &str| {
        found.push(Line::Value(name, value as f64, unit.to_owned()));
    };
    let mut idle = None;
    for (name, args) in PROGRAMS {
        let l = look(turn, &owned(args))?;
        let idle = *idle.get_or_insert(l.own);
        line(format!("{name}: on the host"), l.host, "pages");
        line(format!("{name}: listed"), l.listed, "pages");
        line(format!("{name}: missed"), l.missed, "pages");
        line(format!("{name}: extra"), l.extra, "pages");
        line(format!("{name}: own"), l.own.saturating_sub(idle), "KiB");
    }
    for mb in BLOCKS {
        let size = format!("--memory-block-size={mb}M");
        let sysbench = ["/usr/bin/sysbench", "memory", "--time=1000", &size];
        let rest = ["--memory-total-size=100T", "run"];
        let l = look(turn, &owned(&[&sysbench[..], &rest[..]].concat()))?;
        let own = l.own.saturating_sub(idle.unwrap_or_default());
        line(
            format!("sysbench, missed, by size of a block (MB)@{mb}"),
            l.missed,
            "pages",
        );
        line(
            format!("sysbench, extra, by size of a block (MB)@{mb}"),
            l.extra,
            "pages",
        );
        line(
            format!("sysbench, own, by size of a block (MB)@{mb}"),
            own,
            "KiB",
        );
    }
    Ok(found)
}

/// Looks at a sandbox in which this runs, once its memory does not change any more.
fn look(turn: &Turn, args: &[String]) -> Result<Look> {
    let before = processes();
    let (mut command, id) = turn.command(args, Net::Own, &[])?;
    let quiet = || Stdio::null();
    command.stdin(quiet()).stdout(quiet()).stderr(quiet());
    let group = Group::start(&mut command)?;
    let looked = settled(turn, &before).and_then(|(file, pids)| compare(turn, &id, &file, &pids));
    drop(group);
    turn.peer.delete(turn.plan, &id);
    looked.map_err(|e| format!("{}: {e}", args[0]))
}

/// The sandbox's memory file and its processes, once the file has kept its size for a while.
fn settled(turn: &Turn, before: &BTreeSet<u32>) -> Result<(File, BTreeSet<u32>)> {
    let (until, mut last) = (Instant::now() + SETTLES, None);
    while Instant::now() < until {
        if turn.stop.is_set() {
            return Err("interrupted".to_owned());
        }
        std::thread::sleep(BETWEEN);
        let pids: BTreeSet<u32> = processes().difference(before).copied().collect();
        let Some(file) = pids.iter().find_map(|&p| memory_file(p)) else {
            continue;
        };
        let now = Some((on_the_host(&file)?.len(), pids.clone()));
        if now == last {
            return Ok((file, pids));
        }
        last = now;
    }
    let (pages, pids) = last.unwrap_or_default();
    Err(format!(
        "its memory does not settle: {pages} pages, {} processes",
        pids.len()
    ))
}

fn memory_file(pid: u32) -> Option<File> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let is_it = |p: &PathBuf| {
        let name = std::fs::read_link(p).unwrap_or_default();
        name.to_string_lossy().contains("memfd:cloister-memory")
    };
    let path = all.flatten().map(|e| e.path()).find(is_it)?;
    File::open(path).ok()
}

/// The numbers of the pages that the file has.
fn on_the_host(file: &File) -> Result<BTreeSet<u64>> {
    let (mut pages, mut at) = (BTreeSet::new(), 0);
    loop {
        let next = seek(file, SeekFrom::Data(at));
        match next.and_then(|from| Ok((from, seek(file, SeekFrom::Hole(from))?))) {
            Ok((from, to)) => {
                pages.extend(from / PAGE..to.div_ceil(PAGE));
                at = to;
            }
            Err(Errno::NXIO) => return Ok(pages),
            Err(e) => return Err(format!("the memory file: {e}")),
        }
    }
}

/// The pages of the memory file that application code has in its page tables. Whoever has mapped it
/// first is the Sentry, which may also see what is free.
fn mapped(pids: &BTreeSet<u32>) -> BTreeSet<u64> {
    let mappers = pids.iter().filter_map(|&p| {
        let maps = std::fs::read_to_string(format!("/proc/{p}/maps")).ok()?;
        let maps: Vec<_> = maps.lines().filter_map(of_memory_file).collect();
        (!maps.is_empty()).then_some((p, maps))
    });
    let mut pages = BTreeSet::new();
    for (pid, maps) in mappers.skip(1) {
        let Ok(table) = File::open(format!("/proc/{pid}/pagemap")) else {
            continue;
        };
        for (start, end, offset) in maps {
            let mut entries = vec![0; ((end - start) / PAGE * 8) as usize];
            if table.read_exact_at(&mut entries, start / PAGE * 8).is_ok() {
                let words = entries
                    .chunks_exact(8)
                    .map(|b| b.try_into().unwrap_or_default());
                let there = words.map(|b| u64::from_ne_bytes(b) & PRESENT != 0);
                let numbered = (offset / PAGE..).zip(there);
                pages.extend(numbered.filter(|(_, there)| *there).map(|(n, _)| n));
            }
        }
    }
    pages
}

/// Start, end and offset of a line of maps, if it is about the memory file.
fn of_memory_file(line: &str) -> Option<(u64, u64, u64)> {
    let mut words = line.split_whitespace();
    let (range, offset) = (words.next()?, words.nth(1)?);
    let (start, end) = range.split_once('-')?;
    let hex = |s| u64::from_str_radix(s, 16).ok();
    let is_it = line.contains("memfd:cloister-memory");
    is_it.then_some((hex(start)?, hex(end)?, hex(offset)?))
}

/// KiB of these fields of a process's status.
fn status(pid: u32, fields: &[&str]) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |l: &str| {
        let (name, rest) = l.split_once(':')?;
        fields.contains(&name).then_some(())?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    text.lines().filter_map(value).sum()
}

fn compare(turn: &Turn, id: &str, file: &File, pids: &BTreeSet<u32>) -> Result<Look> {
    let (host, mapped) = (on_the_host(file)?, mapped(pids));
    let mut command = std::process::Command::new(&turn.peer.program);
    command.args(&turn.peer.runtime(turn.plan, Net::Own)[1..]);
    command.args(["memory", "map", "--json", id]);
    let told = run(&mut command, turn.limit, turn.stop)?.ok("memory map")?;
    let map: serde_json::Value =
        serde_json::from_str(&told).map_err(|e| format!("memory map: {e}"))?;
    let number = |v: &serde_json::Value| v.as_u64().unwrap_or_default();
    let cell = number(&map["cell"]).max(PAGE);
    let cells = map["cells"].as_array().cloned().unwrap_or_default();
    let of = |name: &str| -> Cells {
        let pages = |c: &serde_json::Value| (number(&c["number"]), number(&c[name]) / PAGE);
        cells.iter().map(pages).collect()
    };
    let count = |pages: &BTreeSet<u64>| {
        let mut by_cell = Cells::new();
        for p in pages {
            *by_cell.entry(p * PAGE / cell).or_default() += 1;
        }
        by_cell
    };
    // In each cell, what one has more than the other.
    let beyond = |one: &Cells, other: &Cells| -> u64 {
        let more = |(n, pages): (&u64, &u64)| pages.saturating_sub(*other.get(n).unwrap_or(&0));
        one.iter().map(more).sum()
    };
    let listed = of("resident");
    let own = |&p: &u32| status(p, &["RssAnon", "VmPTE"]);
    Ok(Look {
        host: host.len() as u64,
        listed: listed.values().sum(),
        missed: beyond(&count(&mapped), &listed),
        extra: beyond(&listed, &count(&host)),
        own: pids.iter().map(own).sum(),
    })
}
