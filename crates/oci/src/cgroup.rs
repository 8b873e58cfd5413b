//! The host's cgroups that hold a sandbox: version 1, version 2, and both beside each other.
//!
//! All processes of a sandbox are in them, the Sentry included. Limits of processes and of memory
//! are the container's own (the Sentry keeps them); the host's are larger: an application's thread
//! is several threads of the host, and the sandbox needs memory of its own ([`own_memory`]), which
//! no application can take.
//!
//! Sources: cgroups(7), `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/`, and
//! config-linux.md of the specification for the words.

use crate::spec::{BlockIo, Cpu, HugepageLimit, Memory, Network, Resources, Throttle};
use crate::{Error, Result, Tried};
use config::LEAST_MEMORY;
use hostcall::start as host;
use sandbox::cgroups::Hierarchies;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Host threads for an application's thread, at most; and those that every sandbox has.
const HOST_THREADS: i64 = 4;
const OWN_THREADS: i64 = 64;
/// What a sandbox needs beside a container's memory, for its processes and its page tables: so
/// much, and a part of the limit.
const OWN_MEMORY: i64 = 32 << 20;
const OWN_PART: i64 = 16;

/// By how much the host's limit of memory is above a container's own.
fn own_memory(limit: i64) -> i64 {
    OWN_MEMORY + limit / OWN_PART
}

/// What the host is to keep; `None` leaves it as it is.
struct HostMemory {
    limit: Option<i64>,
    /// Of memory and swap together.
    swap: Option<i64>,
    reservation: Option<i64>,
}

/// Undoes [`own_memory`].
fn without_own_memory(limit: u64) -> u64 {
    let (own, part) = (OWN_MEMORY as u64, OWN_PART as u64);
    let both = u128::from(limit.saturating_sub(own)) * u128::from(part) / u128::from(part + 1);
    both as u64
}

/// How long the processes of a killed sandbox may take to leave; and before they are killed once
/// more.
const EMPTY_LIMIT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_millis(200);

/// Whether a bundle asks for limits, or for a place of its groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    Yes,
    No,
}

/// A container's groups. Kept in its record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroups {
    /// Version 1: the directory of each controller.
    v1: BTreeMap<String, PathBuf>,
    v2: Option<PathBuf>,
    /// Whether version 2 has the controllers.
    unified: bool,
    /// Bytes of the sandbox's own swap, which lies in memory of the host's.
    own_swap: u64,
    /// What is made for it, parents first; removed with the container.
    made: Vec<PathBuf>,
    /// Every directory on the way of each hierarchy, whether it was there or not.
    #[serde(skip)]
    levels: Vec<Vec<PathBuf>>,
}

/// The path below the hierarchies that a bundle names.
fn relative(path: &str, id: &str, words: PathWords) -> Result<PathBuf> {
    let p = if words == PathWords::Systemd && path.contains(':') {
        let parts: Vec<&str> = path.split(':').collect();
        let [slice, prefix, name] = parts[..] else {
            return Err(Error::new(format!(
                "cgroupsPath {path:?} is not slice:prefix:name"
            )));
        };
        let slice = if slice.is_empty() {
            "system.slice"
        } else {
            slice
        };
        // a-b.slice lies in a.slice.
        let stem = slice.trim_end_matches(".slice");
        let mut dir = PathBuf::new();
        let mut so_far = String::new();
        for part in stem.split('-').filter(|p| !p.is_empty()) {
            if !so_far.is_empty() {
                so_far.push('-');
            }
            so_far.push_str(part);
            dir.push(format!("{so_far}.slice"));
        }
        let unit = if prefix.is_empty() {
            format!("{name}.scope")
        } else {
            format!("{prefix}-{name}.scope")
        };
        dir.join(unit)
    } else if path.is_empty() {
        PathBuf::from("cloister").join(id)
    } else {
        PathBuf::from(path.trim_start_matches('/'))
    };
    let plain = |c: std::path::Component<'_>| matches!(c, std::path::Component::Normal(_));
    if p.as_os_str().is_empty() || !p.components().all(plain) {
        return Err(Error::new(format!(
            "cgroupsPath {path:?} is not a plain path"
        )));
    }
    Ok(p)
}

fn write(dir: &Path, file: &str, value: &str) -> Result<()> {
    let path = dir.join(file);
    std::fs::write(&path, value).tried(&format!("set {} to {value}", path.display()))
}

fn read(dir: &Path, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(dir.join(file)).ok()?;
    Some(text.trim().to_owned())
}

/// The form of a bundle's `cgroupsPath`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathWords {
    Path,
    /// slice:prefix:name
    Systemd,
}

/// Where a process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// In its cgroup of version 2.
    Inside,
    Outside,
}

impl Cgroups {
    /// What a container will have; nothing is made. To be kept in its record before
    /// [`Cgroups::make`], so that a command that was killed in between leaves nothing that nobody
    /// knows of.
    pub fn plan(
        path: &str,
        id: &str,
        words: PathWords,
        warnings: &mut Vec<String>,
    ) -> Result<Cgroups> {
        let relative = relative(path, id, words)?;
        if words == PathWords::Systemd {
            warnings
                .push("--systemd-cgroup: systemd is not asked, the cgroup is made directly".into());
        }
        let h = Hierarchies::of_host();
        let mut c = Cgroups {
            unified: h
                .v1
                .iter()
                .all(|(_, names)| names.iter().any(|n| n.starts_with("name="))),
            ..Cgroups::default()
        };
        for (at, names) in &h.v1 {
            // The same hierarchy is often mounted at two places.
            if names.iter().all(|n| c.v1.contains_key(n)) {
                continue;
            }
            let dir = c.plan_one(&at.at, &relative);
            for n in names {
                c.v1.insert(n.clone(), dir.clone());
            }
        }
        if let Some(at) = &h.v2 {
            c.v2 = Some(c.plan_one(&at.at, &relative));
        }
        Ok(c)
    }

    fn plan_one(&mut self, at: &Path, relative: &Path) -> PathBuf {
        let mut dir = at.to_path_buf();
        let mut levels = Vec::new();
        for part in relative.components() {
            dir.push(part);
            if !dir.exists() {
                self.made.push(dir.clone());
            }
            levels.push(dir.clone());
        }
        self.levels.push(levels);
        dir
    }

    /// Makes the directories. Where the host does not let us, there are none then, and `warnings`
    /// says so if they were asked for; that is an error only for root with a path.
    pub fn make(&mut self, path: &str, wanted: Wanted, warnings: &mut Vec<String>) -> Result<()> {
        // Another container's end may take a parent away that was there.
        let mut made = self.make_all();
        for _ in 0..100 {
            match &made {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => made = self.make_all(),
                _ => break,
            }
        }
        if let Err(e) = made {
            let _ = self.remove();
            let e = Error::new(format!("could not make the cgroups: {e}"));
            if rustix::process::geteuid().is_root() && !path.is_empty() {
                return Err(e);
            }
            if wanted == Wanted::Yes {
                warnings.push(format!(
                    "there is no cgroup, limits of resources are not kept: {e}"
                ));
            }
            *self = Cgroups::default();
        }
        Ok(())
    }

    fn make_all(&self) -> std::io::Result<()> {
        let cpuset = self.v1.get("cpuset");
        for levels in &self.levels {
            let leaf = levels.last();
            for dir in levels {
                let named = |e: std::io::Error| {
                    std::io::Error::new(e.kind(), format!("{}: {e}", dir.display()))
                };
                match std::fs::create_dir(dir) {
                    Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                        return Err(named(e));
                    }
                    _ => {}
                }
                let Some(parent) = dir.parent() else { continue };
                if leaf.is_some() && leaf == cpuset {
                    inherit_cpuset(dir, parent).map_err(named)?;
                }
                if self.unified && leaf == self.v2.as_ref() {
                    enable_controllers(parent);
                }
            }
        }
        Ok(())
    }

    fn directories(&self) -> BTreeSet<&PathBuf> {
        self.v1.values().chain(&self.v2).collect()
    }

    /// A clone of this process that begins in the cgroup of version 2, if there is one and the host
    /// can do that; and whether it is there.
    pub fn clone_process(&self) -> abi::Result<(host::Side, Begun)> {
        let dir = self.v2.as_ref().and_then(|d| std::fs::File::open(d).ok());
        if let Some(d) = dir
            && let Ok(side) = host::clone_into(0, Some(d.as_raw_fd()))
        {
            return Ok((side, Begun::Inside));
        }
        host::clone_process(0).map(|side| (side, Begun::Outside))
    }

    /// Moves this process, which has one thread, and so what it will start, into them.
    pub fn enter(&self, begun: Begun) -> Result<()> {
        for d in self.directories() {
            if self.v2.as_ref() == Some(d) {
                if begun == Begun::Outside {
                    write(d, "cgroup.procs", "0")?;
                }
            } else if write(d, "tasks", "0").is_err() {
                // A thread that moves itself alone waits for nobody (`cgroup_procs_write_start`).
                write(d, "cgroup.procs", "0")?;
            }
        }
        Ok(())
    }

    /// Sets what is asked for; the rest stays.
    pub fn apply(&self, r: &Resources, warnings: &mut Vec<String>) -> Result<()> {
        if r.rdma.is_some() {
            warnings.push("linux.resources.rdma has no effect".into());
        }
        if self.directories().is_empty() {
            return Ok(());
        }
        if let Some(p) = r.pids.as_ref().and_then(|p| p.limit) {
            let max = if p > 0 {
                (p.saturating_mul(HOST_THREADS))
                    .saturating_add(OWN_THREADS)
                    .to_string()
            } else {
                "max".into()
            };
            self.set("pids", "pids.max", &max)?;
        }
        if let Some(m) = &r.memory {
            self.memory(m, warnings)?;
        }
        if let Some(c) = &r.cpu {
            self.cpu(c, warnings)?;
        }
        if let Some(b) = &r.block_io {
            self.block_io(b, warnings)?;
        }
        for h in &r.hugepage_limits {
            self.huge_pages(h)?;
        }
        if let Some(n) = &r.network {
            self.network(n, warnings)?;
        }
        match &r.unified {
            Some(u) if self.unified => {
                let dir = self.v2.as_deref().unwrap_or(Path::new("/"));
                for (file, value) in u {
                    if file.contains('/') || file.starts_with("cgroup.") {
                        return Err(Error::new(format!(
                            "linux.resources.unified: {file:?} may not be set"
                        )));
                    }
                    write(dir, file, value)?;
                }
            }
            Some(u) if !u.is_empty() => {
                return Err(Error::new(
                    "linux.resources.unified: this host's cgroups are version 1",
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// The directory that has a controller.
    fn of(&self, controller: &str) -> Result<&Path> {
        let dir = if self.unified {
            self.v2.as_ref()
        } else {
            self.v1.get(controller)
        };
        dir.map(PathBuf::as_path)
            .ok_or_else(|| Error::new(format!("this host has no cgroup controller {controller}")))
    }

    fn set(&self, controller: &str, file: &str, value: &str) -> Result<()> {
        write(self.of(controller)?, file, value)
    }

    fn huge_pages(&self, h: &HugepageLimit) -> Result<()> {
        // It becomes part of a file's name.
        if !h.page_size.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(Error::new(format!(
                "linux.resources.hugepageLimits: {:?} is no page size",
                h.page_size
            )));
        }
        let word = if self.unified {
            "max"
        } else {
            "limit_in_bytes"
        };
        let file = format!("hugetlb.{}.{word}", h.page_size);
        self.set("hugetlb", &file, &h.limit.to_string())
    }

    /// What the host's sockets are marked with (`--net=host`). Version 2 has no such controllers.
    fn network(&self, n: &Network, warnings: &mut Vec<String>) -> Result<()> {
        if self.unified {
            warnings.push("linux.resources.network has no effect: version 2 of cgroups has no such controllers".into());
            return Ok(());
        }
        if let Some(id) = n.class_id.filter(|id| *id != 0) {
            self.set("net_cls", "net_cls.classid", &id.to_string())?;
        }
        for p in &n.priorities {
            let line = format!("{} {}", p.name, p.priority);
            self.set("net_prio", "net_prio.ifpriomap", &line)?;
        }
        Ok(())
    }

    /// The sandbox's own swap has so many bytes.
    pub fn set_own_swap(&mut self, bytes: u64) {
        self.own_swap = bytes;
    }

    /// The host's value for `n` bytes of a container with this limit; what is no limit stays.
    fn above(&self, n: i64, limit: i64) -> i64 {
        let swap = i64::try_from(self.own_swap).unwrap_or(i64::MAX);
        if n > 0 && limit > 0 {
            n.saturating_add(own_memory(limit)).saturating_add(swap)
        } else {
            n
        }
    }

    /// A container's own limit, of the host's; what is no limit stays.
    #[must_use]
    pub fn own_limit(&self, host: u64) -> u64 {
        const UNLIMITED: u64 = 1 << 60;
        if host >= UNLIMITED {
            host
        } else {
            without_own_memory(host.saturating_sub(self.own_swap))
        }
    }

    fn memory(&self, m: &Memory, warnings: &mut Vec<String>) -> Result<()> {
        for (word, set) in [
            ("kernel", m.kernel.is_some_and(|n| n != 0)),
            ("kernelTCP", m.kernel_tcp.is_some_and(|n| n != 0)),
        ] {
            if set {
                warnings.push(format!("linux.resources.memory.{word} has no effect"));
            }
        }
        let asked = m.limit.filter(|n| *n != 0);
        let is_too_little = |n: &i64| u64::try_from(*n).is_ok_and(|n| n < LEAST_MEMORY);
        if let Some(n) = asked.filter(is_too_little) {
            return Err(Error::new(format!(
                "linux.resources.memory.limit: {n} bytes are too few for any program"
            )));
        }
        let swap = m.swap.filter(|n| *n != 0);
        let host = HostMemory {
            limit: asked.map(|n| self.above(n, n)),
            // (Without a limit beside it, it is taken for one.)
            swap: swap.map(|s| self.above(s, asked.unwrap_or(s))),
            reservation: m.reservation.filter(|n| *n != 0),
        };
        if self.unified {
            self.memory_v2(&host)
        } else {
            self.memory_v1(&host, m, warnings)
        }
    }

    fn memory_v2(&self, host: &HostMemory) -> Result<()> {
        let max = |n: i64| {
            if n < 0 {
                "max".to_owned()
            } else {
                n.to_string()
            }
        };
        if let Some(n) = host.limit {
            self.set("memory", "memory.max", &max(n))?;
        }
        // The word means memory and swap together; the file, swap alone.
        match (host.swap, host.limit) {
            (Some(s), _) if s < 0 => self.set("memory", "memory.swap.max", "max")?,
            (Some(s), Some(n)) if n > 0 => {
                if s < n {
                    return Err(Error::new("linux.resources.memory.swap is below the limit"));
                }
                self.set("memory", "memory.swap.max", &(s - n).to_string())?;
            }
            _ => {}
        }
        if let Some(n) = host.reservation {
            self.set("memory", "memory.low", &max(n))?;
        }
        Ok(())
    }

    fn memory_v1(&self, host: &HostMemory, m: &Memory, warnings: &mut Vec<String>) -> Result<()> {
        let dir = self.of("memory")?;
        let now = |file: &str| read(dir, file).and_then(|s| s.parse::<i64>().ok());
        // The limit may never be above that of both: which one goes first depends.
        let memsw = "memory.memsw.limit_in_bytes";
        let has_swap = dir.join(memsw).exists();
        let is_above = |n: i64| n < 0 || now(memsw).is_some_and(|s| n > s);
        let raises = host.limit.is_some_and(is_above);
        if let (Some(s), true, true) = (host.swap, has_swap, raises) {
            write(dir, memsw, &s.to_string())?;
        }
        if let Some(n) = host.limit {
            write(dir, "memory.limit_in_bytes", &n.to_string())?;
        }
        match host.swap {
            Some(s) if has_swap && !raises => write(dir, memsw, &s.to_string())?,
            Some(s) if !has_swap && s > 0 => {
                warnings.push("linux.resources.memory.swap: this host does not count swap".into());
            }
            _ => {}
        }
        if let Some(n) = host.reservation {
            write(dir, "memory.soft_limit_in_bytes", &n.to_string())?;
        }
        if let Some(n) = m.swappiness.filter(|n| *n <= 200) {
            write(dir, "memory.swappiness", &n.to_string())?;
        }
        if m.disable_oom_killer == Some(true) {
            write(dir, "memory.oom_control", "1")?;
        }
        Ok(())
    }

    fn cpu(&self, c: &Cpu, warnings: &mut Vec<String>) -> Result<()> {
        if c.realtime_runtime.is_some_and(|n| n != 0) || c.realtime_period.is_some_and(|n| n != 0) {
            warnings.push(
                "linux.resources.cpu.realtimeRuntime has no effect: nothing runs in real time"
                    .into(),
            );
        }
        let shares = c.shares.filter(|n| *n != 0);
        let period = c.period.filter(|n| *n != 0);
        let quota = c.quota.filter(|n| *n != 0);
        if self.unified {
            if let Some(n) = shares {
                self.set("cpu", "cpu.weight", &weight(n).to_string())?;
            }
            if quota.is_some() || period.is_some() {
                let quota = quota
                    .filter(|n| *n > 0)
                    .map_or("max".into(), |n| n.to_string());
                let text = match period {
                    Some(p) => format!("{quota} {p}"),
                    None => quota,
                };
                self.set("cpu", "cpu.max", &text)?;
            }
            if let Some(n) = c.burst {
                self.set("cpu", "cpu.max.burst", &n.to_string())?;
            }
        } else {
            if let Some(n) = shares {
                self.set("cpu", "cpu.shares", &n.to_string())?;
            }
            if let Some(n) = period {
                self.set("cpu", "cpu.cfs_period_us", &n.to_string())?;
            }
            if let Some(n) = quota {
                self.set("cpu", "cpu.cfs_quota_us", &n.to_string())?;
            }
            if let Some(n) = c.burst {
                self.set("cpu", "cpu.cfs_burst_us", &n.to_string())?;
            }
        }
        if let Some(n) = c.idle {
            self.set("cpu", "cpu.idle", &n.to_string())?;
        }
        for (file, value) in [("cpuset.cpus", &c.cpus), ("cpuset.mems", &c.mems)] {
            if let Some(v) = value.as_ref().filter(|v| !v.is_empty()) {
                self.set("cpuset", file, v)?;
            }
        }
        Ok(())
    }

    fn block_io(&self, b: &BlockIo, warnings: &mut Vec<String>) -> Result<()> {
        if b.leaf_weight.is_some_and(|n| n != 0) || !b.weight_device.is_empty() {
            warnings
                .push("linux.resources.blockIO.leafWeight and weightDevice have no effect".into());
        }
        let controller = if self.unified { "io" } else { "blkio" };
        if let Some(n) = b.weight.filter(|n| *n != 0) {
            let dir = self.of(controller)?;
            let (plain, bfq) = if self.unified {
                ("io.weight", "io.bfq.weight")
            } else {
                ("blkio.weight", "blkio.bfq.weight")
            };
            // Which of them is there depends on the host's scheduler.
            match [plain, bfq].iter().find(|f| dir.join(f).exists()) {
                Some(f) => write(dir, f, &n.to_string())?,
                None => warnings.push(
                    "linux.resources.blockIO.weight: this host's scheduler has no weights".into(),
                ),
            }
        }
        for (rates, v1, v2) in [
            (
                &b.throttle_read_bps_device,
                "blkio.throttle.read_bps_device",
                "rbps",
            ),
            (
                &b.throttle_write_bps_device,
                "blkio.throttle.write_bps_device",
                "wbps",
            ),
            (
                &b.throttle_read_iops_device,
                "blkio.throttle.read_iops_device",
                "riops",
            ),
            (
                &b.throttle_write_iops_device,
                "blkio.throttle.write_iops_device",
                "wiops",
            ),
        ] {
            for Throttle { major, minor, rate } in rates {
                if self.unified {
                    self.set("io", "io.max", &format!("{major}:{minor} {v2}={rate}"))?;
                } else {
                    self.set("blkio", v1, &format!("{major}:{minor} {rate}"))?;
                }
            }
        }
        Ok(())
    }

    /// Whether the controllers are version 2's.
    #[must_use]
    pub fn is_unified(&self) -> bool {
        self.unified
    }

    /// The directory that has a controller, to read from.
    #[must_use]
    pub fn controller(&self, name: &str) -> Option<&Path> {
        self.of(name).ok()
    }

    /// What the sandbox uses, as runc's `events` words it.
    #[must_use]
    pub fn stats(&self) -> serde_json::Value {
        let number = |controller: &str, v1: &str, v2: &str| -> u64 {
            let file = if self.unified { v2 } else { v1 };
            let text = self.of(controller).ok().and_then(|d| read(d, file));
            text.and_then(|t| t.parse().ok()).unwrap_or(0)
        };
        let cpu = if self.unified {
            let text = self.of("cpu").ok().and_then(|d| read(d, "cpu.stat"));
            let line = text
                .as_deref()
                .unwrap_or_default()
                .lines()
                .find_map(|l| l.strip_prefix("usage_usec ")?.parse::<u64>().ok());
            line.unwrap_or(0) * 1000
        } else {
            number("cpuacct", "cpuacct.usage", "")
        };
        serde_json::json!({
            "cpu": {"usage": {"total": cpu}},
            "memory": {"usage": {
                "limit": number("memory", "memory.limit_in_bytes", "memory.max"),
                "usage": number("memory", "memory.usage_in_bytes", "memory.current"),
                "max": number("memory", "memory.max_usage_in_bytes", "memory.peak"),
            }},
            "pids": {
                "current": number("pids", "pids.current", "pids.current"),
                "limit": number("pids", "pids.max", "pids.max"),
            },
        })
    }

    /// Removes what was made, once the last process has left. What stays longer (what a hook has
    /// left behind) is killed. An error where that does not end.
    pub fn remove(&self) -> Result<()> {
        let started = Instant::now();
        for d in self.made.iter().rev() {
            loop {
                match std::fs::remove_dir(d) {
                    Err(e)
                        if e.kind() == std::io::ErrorKind::ResourceBusy
                            && started.elapsed() < EMPTY_LIMIT
                            && self.directories().contains(d) =>
                    {
                        if started.elapsed() > PATIENCE {
                            kill_all(d);
                        }
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    Err(e)
                        if e.kind() == std::io::ErrorKind::ResourceBusy
                            && self.directories().contains(d) =>
                    {
                        return Err(Error::new(format!(
                            "a process in {} was killed and does not end",
                            d.display()
                        )));
                    }
                    // A parent may hold other containers; what is gone is gone.
                    _ => break,
                }
            }
        }
        Ok(())
    }
}

/// cpu.shares (2..262144) as cpu.weight (1..10000), as the specification's converters do.
pub fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// Kills what is in a cgroup that was made for one container.
fn kill_all(dir: &Path) {
    for line in read(dir, "cgroup.procs").unwrap_or_default().lines() {
        // A process of another pid namespace is shown as 0.
        if let Some(pid) = line
            .parse()
            .ok()
            .filter(|p| *p > 0)
            .and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// A new cpuset of version 1 holds nothing, and no process may enter it.
fn inherit_cpuset(dir: &Path, parent: &Path) -> std::io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let empty = read(dir, file).is_none_or(|v| v.is_empty());
        if let (true, Some(v)) = (empty, read(parent, file).filter(|v| !v.is_empty())) {
            std::fs::write(dir.join(file), v)?;
        }
    }
    Ok(())
}

/// Lets the children of a group of version 2 have its controllers, as many as it may give.
fn enable_controllers(parent: &Path) {
    for name in read(parent, "cgroup.controllers")
        .unwrap_or_default()
        .split(' ')
    {
        if matches!(name, "cpu" | "cpuset" | "io" | "memory" | "pids") {
            let _ = write(parent, "cgroup.subtree_control", &format!("+{name}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        use PathWords::{Path, Systemd};
        let p = |s: &str, words| relative(s, "id", words).map(|p| p.display().to_string());
        assert_eq!(p("/docker/x", Path).unwrap(), "docker/x");
        assert_eq!(p("", Path).unwrap(), "cloister/id");
        assert_eq!(
            p("a-b.slice:cri:7", Systemd).unwrap(),
            "a.slice/a-b.slice/cri-7.scope"
        );
        assert_eq!(p(":d:7", Systemd).unwrap(), "system.slice/d-7.scope");
        for bad in ["/", "../x", "/a/../../b", "/a/./.."] {
            assert!(p(bad, Path).is_err(), "{bad}");
        }
        assert!(p("a:b", Systemd).is_err());
        assert_eq!((weight(2), weight(1024), weight(262_144)), (1, 39, 10000));
    }
}
