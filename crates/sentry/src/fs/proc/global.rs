//! The files of /proc that concern the whole system.

use super::Text;
use super::sysctl::owned;
use crate::Kernel;
use crate::container::Container;
use crate::fs::pressure::PressureFile;
use crate::ns::NetNs;
use crate::ns::uts::{RELEASE, VERSION};
use crate::task::{Task, task_of};
use abi::linux::{CLOCK_BOOTTIME, CLOCK_REALTIME};
use hostcall::time::clock_nanos;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vfs::file::File;
use vfs::fs::dynamic::{DynFile, StaticDir};
use vfs::{Caller, Perm};

/// A file made from the kernel's state.
pub(super) fn text(
    k: &Arc<Kernel>,
    f: impl Fn(&Kernel) -> String + Send + Sync + 'static,
) -> Text<impl Fn() -> Vec<u8> + Send + Sync + 'static> {
    let weak: Weak<Kernel> = Arc::downgrade(k);
    Text(move || {
        weak.upgrade()
            .map(|k| f(&k).into_bytes())
            .unwrap_or_default()
    })
}

/// What tells of the time since the start, by the clock of its opener.
struct TimedFile {
    kernel: Weak<Kernel>,
    make: fn(&Kernel, i64) -> String,
    /// What the opener's time namespace adds to CLOCK_BOOTTIME.
    shift: i64,
}

impl TimedFile {
    fn new(k: &Arc<Kernel>, make: fn(&Kernel, i64) -> String) -> TimedFile {
        TimedFile {
            kernel: Arc::downgrade(k),
            make,
            shift: 0,
        }
    }
}

impl DynFile for TimedFile {
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let k = self.kernel.upgrade();
        let text = k.map(|k| (self.make)(&k, self.shift));
        Ok(text.unwrap_or_default().into_bytes())
    }
    fn bound(&self, cx: &Caller<'_>) -> abi::Result<Option<Arc<dyn DynFile>>> {
        let opener = crate::task::task_of(cx.task);
        Ok(Some(Arc::new(TimedFile {
            kernel: self.kernel.clone(),
            shift: opener.map_or(0, |t| t.clock_offset(CLOCK_BOOTTIME as i32)),
            ..*self
        })))
    }
}

/// What a task sees of keys.
#[derive(Clone, Copy)]
struct KeyFile(fn(&mut keys::Act<'_>) -> Vec<u8>);

/// The same of its opener.
struct OpenKeyFile(KeyFile, Weak<Task>);

impl DynFile for KeyFile {
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn bound(&self, cx: &Caller<'_>) -> abi::Result<Option<Arc<dyn DynFile>>> {
        let opener = task_of(cx.task).map(Arc::downgrade).unwrap_or_default();
        Ok(Some(Arc::new(OpenKeyFile(*self, opener))))
    }
}

impl DynFile for OpenKeyFile {
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let show = self.0.0;
        let text = self.1.upgrade().map(|t| t.with_keys(show));
        Ok(text.unwrap_or_default())
    }
}

/// Files that never change, of a container.
pub fn files(k: &Arc<Kernel>, c: &Arc<Container>) -> StaticDir {
    // Not held: its own mounts hold this.
    let container = Arc::downgrade(c);
    let (of, own, swap_of) = (container.clone(), container.clone(), container.clone());
    StaticDir::new()
        .file(
            "cgroups",
            text(k, move |_| {
                of.upgrade().map(|c| cgroups(&c)).unwrap_or_default()
            }),
        )
        .text("cmdline", "cloister\n")
        .file("cpuinfo", text(k, |k| cpuinfo(k.cpus)))
        .text(
            "devices",
            "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/ptmx\n136 pts\n\nBlock devices:\n",
        )
        .file("filesystems", text(k, |k| k.vfs.filesystems()))
        .file("loadavg", text(k, loadavg))
        .file(
            "meminfo",
            text(k, move |k| {
                let c = container.upgrade();
                c.map(|c| meminfo(k, &c)).unwrap_or_default()
            }),
        )
        // No block devices, no hardware: nothing but the headings.
        .text("diskstats", "")
        .text("partitions", "major minor  #blocks  name\n\n")
        .file("interrupts", text(k, |k| interrupts(k.cpus)))
        .file("softirqs", text(k, |k| softirqs(k.cpus)))
        .file("schedstat", text(k, |k| schedstat(k.cpus)))
        .text("consoles", "")
        .text("execdomains", "0-0\tLinux           \t[kernel]\n")
        .dir("pressure", pressure(c))
        .file("keys", KeyFile(|a| a.show_keys()))
        .file("key-users", KeyFile(|a| a.show_users()))
        .file("locks", super::locks::Locks)
        .text("modules", "")
        .link("mounts", "self/mounts")
        .link("net", "self/net")
        .file("stat", TimedFile::new(k, stat))
        .file(
            "swaps",
            text(k, move |_| swaps(swap_of.upgrade().as_deref())),
        )
        .file("uptime", TimedFile::new(k, uptime))
        .text(
            "version",
            format!("Linux version {RELEASE} (cloister) {VERSION}\n"),
        )
        .file("vmstat", text(k, move |_| vmstat(own.upgrade().as_deref())))
        .dir("sys", super::sysctl::Sysctl(Arc::downgrade(k)))
        .file("config.gz", Text(super::config::compressed))
        .dir("sysvipc", super::sysvipc::files())
}

/// `/proc/schedstat`: what only the host counts says 0.
fn schedstat(cpus: u32) -> String {
    let mut s = format!(
        "version 16\ntimestamp {}\n",
        clock_nanos(CLOCK_BOOTTIME as i32) / 4_000_000
    );
    for n in 0..cpus {
        let _ = writeln!(s, "cpu{n} 0 0 0 0 0 0 0 0 0");
    }
    s
}

/// `/proc/net/softnet_stat`: no packets move; the last but two is the CPU's number
/// (`softnet_seq_show`).
fn softnet_stat(cpus: u32) -> String {
    let zeros = |n: usize| vec!["00000000"; n].join(" ");
    (0..cpus)
        .map(|n| format!("{} {n:08x} {}\n", zeros(12), zeros(2)))
        .collect()
}

/// A file of `/proc/PID/net` that the root of its user namespace may read (`xt_proto_init`).
struct OfRoot(Arc<NetNs>, &'static str);

impl DynFile for OfRoot {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o440,
            ..owned(&self.0.user)
        }
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(self.0.proc_net(self.1).unwrap_or_default().into_bytes())
    }
}

/// `/proc/PID/net`.
pub fn net(ns: &Arc<NetNs>, cpus: u32) -> StaticDir {
    let softnet = Text(move || softnet_stat(cpus).into_bytes());
    let dir = StaticDir::new()
        .with_identity(u64::from(ns.id.ino))
        .file("softnet_stat", softnet);
    let dir = net::PROC_NET.into_iter().fold(dir, |d, name| {
        let ns = ns.clone();
        let text = move || ns.proc_net(name).unwrap_or_default().into_bytes();
        d.file(name, Text(text))
    });
    net::PROC_NET_OF_ROOT
        .into_iter()
        .fold(dir, |d, name| d.file(name, OfRoot(ns.clone(), name)))
}

fn uptime(k: &Kernel, shift: i64) -> String {
    let up = (clock_nanos(CLOCK_BOOTTIME as i32) - k.boot + shift).max(0) as f64 / 1e9;
    format!("{up:.2} {:.2}\n", up * f64::from(k.cpus))
}

fn loadavg(k: &Kernel) -> String {
    let l = k.tasks.lock();
    let all: Vec<_> = l.processes().flat_map(|p| p.threads.values()).collect();
    let running = all.iter().filter(|t| t.state_letter() == 'R').count();
    format!(
        "0.00 0.00 0.00 {}/{} {}\n",
        running.max(1),
        all.len(),
        l.last_pid()
    )
}

/// `/proc/interrupts`: there are no devices that interrupt.
fn interrupts(cpus: u32) -> String {
    let mut s = " ".repeat(11);
    for n in 0..cpus {
        let _ = write!(s, "{:<11}", format!("CPU{n}"));
    }
    s.push('\n');
    for (name, what) in [
        ("NMI", "Non-maskable interrupts"),
        ("LOC", "Local timer interrupts"),
        ("RES", "Rescheduling interrupts"),
        ("CAL", "Function call interrupts"),
        ("TLB", "TLB shootdowns"),
    ] {
        let counts = format!("{:>10} ", 0).repeat(cpus as usize);
        let _ = writeln!(s, "{name:>3}: {counts}  {what}");
    }
    s.push_str("ERR:          0\nMIS:          0\n");
    s
}

/// `/proc/softirqs`.
fn softirqs(cpus: u32) -> String {
    let mut s = " ".repeat(20);
    for n in 0..cpus {
        let _ = write!(s, "{:<11}", format!("CPU{n}"));
    }
    s.push('\n');
    for name in [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ] {
        let counts = format!(" {:>10}", 0).repeat(cpus as usize);
        let _ = writeln!(s, "{name:>12}:{counts}");
    }
    s
}

/// `/proc/pressure`: of memory what the container's threads lose; the host's stalls for its CPUs
/// and devices are not told.
fn pressure(c: &Arc<Container>) -> StaticDir {
    StaticDir::new()
        .file("cpu", PressureFile::new(c, false))
        .file("io", PressureFile::new(c, false))
        .file("memory", PressureFile::new(c, true))
}

/// All controllers are of version 2, whose hierarchy is 0.
fn cgroups(c: &Container) -> String {
    let n = c.ns.cgroup.descendants() + 1;
    let mut s = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n".to_string();
    for name in [
        "cpuset", "cpu", "cpuacct", "blkio", "memory", "devices", "freezer", "pids",
    ] {
        let _ = writeln!(s, "{name}\t0\t{n}\t1");
    }
    s
}

/// What the host pages, and for whom, is not told.
fn vmstat(c: Option<&Container>) -> String {
    let kills = c.map_or(0, |c| c.shortage.kills.load(Ordering::Relaxed));
    let swap = c.map_or_else(Default::default, |c| c.clas.swap_stats());
    let mut s = String::new();
    for (name, n) in [
        ("nr_free_pages", 0),
        ("pgpgin", 0),
        ("pgpgout", 0),
        ("pswpin", swap.pages_in),
        ("pswpout", swap.pages_out),
        ("pgfault", 0),
        ("pgmajfault", 0),
        ("oom_kill", kills),
    ] {
        let _ = writeln!(s, "{name} {n}");
    }
    s
}

/// The container's own swap, which is no file.
fn swaps(c: Option<&Container>) -> String {
    let mut s = String::from("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
    let swap = c.map_or_else(Default::default, |c| c.clas.swap_stats());
    if swap.limit > 0 {
        let (size, used) = (swap.limit / 1024, swap.used / 1024);
        let _ = writeln!(s, "/cloister{:31}partition\t{size}\t\t{used}\t\t-2", "");
    }
    s
}

fn meminfo(k: &Kernel, c: &Container) -> String {
    let (total, free) = crate::fs::meminfo(k, c);
    let (t, f) = (total / 1024, free / 1024);
    let swap = c.clas.swap_stats();
    let used = t - f;
    let kernel = (c.clas.kernel_memory() / 1024).min(used);
    let shared = (c.clas.files_here(clas::AccountId::ROOT) / 1024).min(used - kernel);
    let active = used - kernel;
    let mut s = String::new();
    for (name, v) in [
        ("MemTotal", t),
        ("MemFree", f),
        ("MemAvailable", f),
        ("Buffers", 0),
        ("Cached", shared),
        ("SwapCached", 0),
        ("Active", active),
        ("Inactive", 0),
        ("Active(anon)", active),
        ("Inactive(anon)", 0),
        ("Active(file)", 0),
        ("Inactive(file)", 0),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", swap.limit / 1024),
        ("SwapFree", swap.limit.saturating_sub(swap.used) / 1024),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", active - shared),
        ("Mapped", 0),
        ("Shmem", shared),
        ("KReclaimable", 0),
        ("Slab", kernel),
        ("SReclaimable", 0),
        ("SUnreclaim", kernel),
        ("KernelStack", 0),
        ("PageTables", 0),
        ("CommitLimit", t),
        ("Committed_AS", used),
        ("VmallocTotal", 34_359_738_367),
        ("VmallocUsed", 0),
        ("HugePages_Total", u64::MAX),
        ("Hugepagesize", 2048),
    ] {
        if v == u64::MAX {
            let _ = writeln!(s, "{:<15} {:>8}", format!("{name}:"), 0);
        } else {
            let _ = writeln!(s, "{:<15} {v:>8} kB", format!("{name}:"));
        }
    }
    s
}

fn stat(k: &Kernel, shift: i64) -> String {
    let l = k.tasks.lock();
    let n = l.task_count();
    drop(l);
    let up = clock_nanos(CLOCK_BOOTTIME as i32) - k.boot + shift;
    let boot = (clock_nanos(CLOCK_REALTIME as i32) - up) / abi::time::NSEC_PER_SEC;
    let up = (clock_nanos(CLOCK_BOOTTIME as i32) - k.boot) / 10_000_000;
    let mut s = format!("cpu  0 0 0 {} 0 0 0 0 0 0\n", up * i64::from(k.cpus));
    for c in 0..k.cpus {
        let _ = writeln!(s, "cpu{c} 0 0 0 {up} 0 0 0 0 0 0");
    }
    let forks = k.tasks.lock().last_pid();
    let _ = write!(
        s,
        "intr 0\nctxt 0\nbtime {boot}\nprocesses {forks}\nprocs_running {n}\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n"
    );
    s
}

fn cpuinfo(cpus: u32) -> String {
    let brand = hostcall::cpu::brand();
    let flags = hostcall::cpu::flags();
    let mut s = String::new();
    for n in 0..cpus {
        let _ = write!(
            s,
            "processor\t: {n}\nvendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: {brand}\nstepping\t: {}\ncpu MHz\t\t: 2000.000\ncache size\t: 1024 KB\nphysical id\t: 0\nsiblings\t: {cpus}\ncore id\t\t: {n}\ncpu cores\t: {cpus}\nfpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: 16\nwp\t\t: yes\nflags\t\t: {flags}\nbogomips\t: 4000.00\nclflush size\t: 64\ncache_alignment\t: 64\naddress sizes\t: 48 bits physical, 48 bits virtual\n\n",
            hostcall::cpu::vendor(),
            hostcall::cpu::family_model_stepping().0,
            hostcall::cpu::family_model_stepping().1,
            hostcall::cpu::family_model_stepping().2,
        );
    }
    s
}
