//! The files of /proc that concern the whole system.

use super::Text;
use crate::Kernel;
use crate::container::Container;
use crate::ns::uts::{RELEASE, VERSION};
use crate::ns::{NetNs, NsProxy, UtsNs};
use crate::task::task_of;
use abi::linux::{CLOCK_BOOTTIME, CLOCK_REALTIME};
use hostcall::time::clock_nanos;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynFile, DynNode, StaticDir};
use vfs::mode::Want;
use vfs::ucounts::Kind;
use vfs::userns::UserNs;
use vfs::vfs::Protections;
use vfs::{Caller, Perm};

/// A file made from the kernel's state.
fn text(
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

/// Files that never change, of a container.
pub fn files(k: &Arc<Kernel>, c: &Arc<Container>) -> StaticDir {
    // Not held: its own mounts hold this.
    let container = Arc::downgrade(c);
    let of = container.clone();
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
        .dir("pressure", pressure())
        .text("modules", "")
        .link("mounts", "self/mounts")
        .link("net", "self/net")
        .file("stat", text(k, stat))
        .text(
            "swaps",
            "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
        )
        .file("uptime", text(k, uptime))
        .text(
            "version",
            format!("Linux version {RELEASE} (cloister) {VERSION}\n"),
        )
        // What the host pages, and for whom, is not told.
        .text(
            "vmstat",
            "nr_free_pages 0\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\npgfault 0\npgmajfault 0\noom_kill 0\n",
        )
        .dir("sys", Sysctl(Arc::downgrade(k)))
        .dir("sysvipc", sysvipc())
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

/// `/proc/net/softnet_stat`: no packets move; the last but two is the CPU's number (`softnet_seq_show`).
fn softnet_stat(cpus: u32) -> String {
    let zeros = |n: usize| vec!["00000000"; n].join(" ");
    (0..cpus)
        .map(|n| format!("{} {n:08x} {}\n", zeros(12), zeros(2)))
        .collect()
}

/// `/proc/PID/net`.
pub fn net(ns: &Arc<NetNs>, cpus: u32) -> StaticDir {
    let softnet = Text(move || softnet_stat(cpus).into_bytes());
    let dir = StaticDir::new()
        .with_identity(u64::from(ns.id.ino))
        .file("softnet_stat", softnet);
    net::PROC_NET.into_iter().fold(dir, |d, name| {
        let ns = ns.clone();
        let text = move || ns.proc_net(name).unwrap_or_default().into_bytes();
        d.file(name, Text(text))
    })
}

fn uptime(k: &Kernel) -> String {
    let up = (clock_nanos(CLOCK_BOOTTIME as i32) - k.boot) as f64 / 1e9;
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

/// `/proc/pressure`: the host's stalls are not told.
fn pressure() -> StaticDir {
    let line = |who| format!("{who} avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    let both = line("some") + &line("full");
    ["cpu", "io", "memory"]
        .iter()
        .fold(StaticDir::new(), |d, name| d.text(name, both.clone()))
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

fn meminfo(k: &Kernel, c: &Container) -> String {
    let (total, free) = crate::fs::meminfo(k, c);
    let (t, f) = (total / 1024, free / 1024);
    let used = t - f;
    let mut s = String::new();
    for (name, v) in [
        ("MemTotal", t),
        ("MemFree", f),
        ("MemAvailable", f),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", used),
        ("Inactive", 0),
        ("Active(anon)", used),
        ("Inactive(anon)", 0),
        ("Active(file)", 0),
        ("Inactive(file)", 0),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", used),
        ("Mapped", 0),
        ("Shmem", 0),
        ("KReclaimable", 0),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
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

fn stat(k: &Kernel) -> String {
    let l = k.tasks.lock();
    let n = l.task_count();
    drop(l);
    let boot = (clock_nanos(CLOCK_REALTIME as i32) - (clock_nanos(CLOCK_BOOTTIME as i32) - k.boot))
        / abi::time::NSEC_PER_SEC;
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

/// Numbers of a network namespace that can be set: some mean something here, the others are kept for who reads
/// them back.
struct Numbers {
    ns: Arc<NetNs>,
    what: Number,
}

enum Number {
    UnprivilegedPortStart,
    MaxConnections,
    /// As many numbers as it begins with. There are no ping sockets: their groups stand here.
    Kept(&'static str, &'static [i64]),
}

impl DynFile for Numbers {
    fn perm(&self) -> Perm {
        owned(&self.ns.user)
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let text = match &self.what {
            Number::UnprivilegedPortStart => self
                .ns
                .unprivileged_port_start
                .load(Ordering::Relaxed)
                .to_string(),
            Number::MaxConnections => self.ns.somaxconn.load(Ordering::Relaxed).to_string(),
            Number::Kept(name, first) => {
                let kept = self.ns.kept.lock();
                let v = kept.get(name).map_or(*first, Vec::as_slice);
                let all: Vec<String> = v.iter().map(ToString::to_string).collect();
                all.join("\t")
            }
        };
        Ok(format!("{text}\n").into_bytes())
    }
    fn write(&self, file: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        const EINVAL: abi::Errno = abi::errno::EINVAL;
        if !file.cred.has_in(&self.ns.user, vfs::Caps::NET_ADMIN) {
            return Err(abi::errno::EPERM);
        }
        let text = std::str::from_utf8(&data[..data.len().min(256)]).map_err(|_| EINVAL)?;
        let given = text
            .split_ascii_whitespace()
            .map(|w| w.parse::<i64>().map_err(|_| EINVAL))
            .collect::<abi::Result<Vec<_>>>()?;
        match (&self.what, given.as_slice()) {
            (Number::UnprivilegedPortStart, [n]) => {
                let n = u16::try_from(*n).map_err(|_| EINVAL)?;
                self.ns.unprivileged_port_start.store(n, Ordering::Relaxed);
            }
            (Number::MaxConnections, [n]) => {
                let n = u32::try_from(*n).map_err(|_| EINVAL)?;
                self.ns.somaxconn.store(n, Ordering::Relaxed);
            }
            (Number::Kept(name, first), all) if all.len() == first.len() => {
                self.ns.kept.lock().insert(name, given);
            }
            _ => return Err(EINVAL),
        }
        Ok(data.len())
    }
}

/// A setting of a namespace belongs to the root of the user namespace that owns it.
fn owned(user: &vfs::userns::UserNs) -> Perm {
    let id = user.root_uid();
    Perm {
        mode: 0o644,
        uid: if id == vfs::userns::INVALID { 0 } else { id },
        gid: 0,
    }
}

/// `fs.protected_*`: for the machine's root, whatever its capabilities (`sysctl_perm`).
struct Protected {
    kernel: Weak<Kernel>,
    level: fn(&Protections) -> &AtomicU8,
    most: u8,
}

impl DynFile for Protected {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o644,
            uid: 0,
            gid: 0,
        }
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> abi::Result<()> {
        if want == Want::READ || cx.cred.euid == 0 && !want.contains(Want::EXEC) {
            Ok(())
        } else {
            Err(abi::errno::EACCES)
        }
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let k = self.kernel.upgrade().ok_or(abi::errno::ENOENT)?;
        let level = (self.level)(&k.vfs.protections).load(Ordering::Relaxed);
        Ok(format!("{level}\n").into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        let text = std::str::from_utf8(data).map_err(|_| abi::errno::EINVAL)?;
        let level = text.trim().parse().ok().filter(|n| *n <= self.most);
        let k = self.kernel.upgrade().ok_or(abi::errno::ENOENT)?;
        let level = level.ok_or(abi::errno::EINVAL)?;
        (self.level)(&k.vfs.protections).store(level, Ordering::Relaxed);
        Ok(data.len())
    }
}

/// The host name and the domain name, writable.
struct Hostname(Arc<UtsNs>, Name, Weak<Kernel>);

#[derive(Clone, Copy)]
enum Name {
    Host,
    Domain,
}

impl DynFile for Hostname {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o644,
            uid: 0,
            gid: 0,
        }
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let u = self.0.get();
        let mut n = match self.1 {
            Name::Host => u.nodename,
            Name::Domain => u.domainname,
        };
        n.push(b'\n');
        Ok(n)
    }
    fn write(&self, file: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        if !file.cred.has_in(&self.0.user, vfs::Caps::SYS_ADMIN) {
            return Err(abi::errno::EPERM);
        }
        let line = data.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = line[..line.len().min(64)].to_vec();
        let kernel = self.2.upgrade().ok_or(abi::errno::ENOENT)?;
        self.0.change(&kernel, |u| match self.1 {
            Name::Host => u.nodename = line,
            Name::Domain => u.domainname = line,
        });
        Ok(data.len())
    }
}

/// `/proc/sys`: the settings of the namespaces that its reader is in.
struct Sysctl(Weak<Kernel>);

impl DynDir for Sysctl {
    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> abi::Result<DynNode> {
        let k = self.0.upgrade().ok_or(abi::errno::ENOENT)?;
        let ns = task_of(cx.task).map_or_else(|| k.initial.clone(), |t| t.ns());
        sysctl(&k, &ns).lookup(cx, name)
    }
    fn list(&self, file: &File) -> abi::Result<Vec<DynEntry>> {
        let k = self.0.upgrade().ok_or(abi::errno::ENOENT)?;
        sysctl(&k, &k.initial).list(file)
    }
    fn subdirs(&self) -> u32 {
        5
    }
}

/// A limit of every user, of the sandbox's initial user namespace.
struct UserLimit(Kind);

/// A setting that the kernel keeps in one place.
struct Own(&'static AtomicI64);

const SETTING: Perm = Perm {
    mode: 0o644,
    uid: 0,
    gid: 0,
};

/// A whole number that is not negative, from what was written to a setting.
fn number(data: &[u8]) -> abi::Result<i64> {
    let text = std::str::from_utf8(data).map_err(|_| abi::errno::EINVAL)?;
    let n: i32 = text.trim().parse().map_err(|_| abi::errno::EINVAL)?;
    u32::try_from(n)
        .map(i64::from)
        .map_err(|_| abi::errno::EINVAL)
}

impl DynFile for UserLimit {
    fn perm(&self) -> Perm {
        SETTING
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let n = UserNs::default().limits().get(self.0);
        Ok(format!("{n}\n").into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        UserNs::default().limits().set(self.0, number(data)?);
        Ok(data.len())
    }
}

impl DynFile for Own {
    fn perm(&self) -> Perm {
        SETTING
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(format!("{}\n", self.0.load(Ordering::Relaxed)).into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        self.0.store(number(data)?, Ordering::Relaxed);
        Ok(data.len())
    }
}

fn uuid(b: &[u8; 16]) -> String {
    let h: String = b.iter().fold(String::new(), |mut s, x| {
        let _ = write!(s, "{x:02x}");
        s
    });
    format!(
        "{}-{}-4{}-a{}-{}\n",
        &h[..8],
        &h[8..12],
        &h[13..16],
        &h[17..20],
        &h[20..]
    )
}

fn sysctl(k: &Arc<Kernel>, ns: &NsProxy) -> StaticDir {
    let boot_id = uuid(&k.boot_id);
    let random = StaticDir::new()
        .text("boot_id", boot_id)
        .file(
            "uuid",
            Text(|| {
                let mut b = [0u8; 16];
                hostcall::time::random(&mut b);
                uuid(&b).into_bytes()
            }),
        )
        .text("entropy_avail", "256\n")
        .text("poolsize", "256\n");
    let name = |n| Hostname(ns.uts.clone(), n, Arc::downgrade(k));
    let kernel = StaticDir::new()
        .text("cap_last_cap", "40\n")
        .file("hostname", name(Name::Host))
        .file("domainname", name(Name::Domain))
        .text("msgmax", "8192\n")
        .text("msgmnb", "16384\n")
        .text("msgmni", "32000\n")
        .text("ngroups_max", "65536\n")
        .text("osrelease", format!("{RELEASE}\n"))
        .text("ostype", "Linux\n")
        .text("overflowgid", "65534\n")
        .text("overflowuid", "65534\n")
        .text("pid_max", format!("{}\n", crate::task::list::PID_MAX))
        .dir(
            "pty",
            StaticDir::new()
                .text("max", "4096\n")
                .text("reserve", "1024\n"),
        )
        .dir("random", random)
        .text("randomize_va_space", "2\n")
        .text("sem", "32000\t1024000000\t500\t32000\n")
        .text("shmall", "18446744073692774399\n")
        .text("shmmax", "18446744073692774399\n")
        .text("shmmni", "4096\n")
        .text("threads-max", format!("{}\n", k.tasks_max))
        .text("version", format!("{VERSION}\n"));
    let protected = |level, most| Protected {
        kernel: Arc::downgrade(k),
        level,
        most,
    };
    let fs = StaticDir::new()
        .file("protected_fifos", protected(|p| &p.fifos, 2))
        .file("protected_hardlinks", protected(|p| &p.hardlinks, 1))
        .file("protected_regular", protected(|p| &p.regular, 2))
        .file("protected_symlinks", protected(|p| &p.symlinks, 1))
        .text("file-max", "1048576\n")
        .file(
            "file-nr",
            text(k, |_| format!("{}\t0\t1048576\n", vfs::file::open_files())),
        )
        .text("nr_open", "1048576\n")
        .text("pipe-max-size", "1048576\n")
        .file("pipe-user-pages-soft", Own(&ipc::pipe::USER_PAGES_SOFT))
        .file("pipe-user-pages-hard", Own(&ipc::pipe::USER_PAGES_HARD))
        .dir(
            "epoll",
            StaticDir::new().file("max_user_watches", UserLimit(Kind::EpollWatches)),
        )
        .dir(
            "inotify",
            StaticDir::new()
                .text("max_queued_events", "16384\n")
                .file("max_user_instances", UserLimit(Kind::InotifyInstances))
                .file("max_user_watches", UserLimit(Kind::InotifyWatches)),
        );
    let user = StaticDir::new()
        .file("max_cgroup_namespaces", UserLimit(Kind::CgroupNamespaces))
        .file("max_inotify_instances", UserLimit(Kind::InotifyInstances))
        .file("max_inotify_watches", UserLimit(Kind::InotifyWatches))
        .file("max_ipc_namespaces", UserLimit(Kind::IpcNamespaces))
        .file("max_mnt_namespaces", UserLimit(Kind::MntNamespaces))
        .file("max_net_namespaces", UserLimit(Kind::NetNamespaces))
        .file("max_pid_namespaces", UserLimit(Kind::PidNamespaces))
        .file("max_user_namespaces", UserLimit(Kind::UserNamespaces))
        .file("max_uts_namespaces", UserLimit(Kind::UtsNamespaces));
    let vm = StaticDir::new()
        .text("max_map_count", "1048576\n")
        .text("mmap_min_addr", "65536\n")
        .text("overcommit_memory", "0\n")
        .text("overcommit_ratio", "50\n")
        .text("swappiness", "60\n");
    let kept = |name, first| Numbers {
        ns: ns.net.clone(),
        what: Number::Kept(name, first),
    };
    let ipv4 = StaticDir::new()
        .text("ip_local_port_range", "32768\t60999\n")
        .file(
            "ip_unprivileged_port_start",
            Numbers {
                ns: ns.net.clone(),
                what: Number::UnprivilegedPortStart,
            },
        )
        .file("ping_group_range", kept("ping_group_range", &[1, 0]))
        .file("ip_forward", kept("ip_forward", &[0]))
        .file("tcp_keepalive_time", kept("tcp_keepalive_time", &[7200]))
        .file("tcp_keepalive_intvl", kept("tcp_keepalive_intvl", &[75]))
        .file("tcp_keepalive_probes", kept("tcp_keepalive_probes", &[9]))
        .file("tcp_syncookies", kept("tcp_syncookies", &[1]))
        .file("tcp_fin_timeout", kept("tcp_fin_timeout", &[60]))
        .file("tcp_max_syn_backlog", kept("tcp_max_syn_backlog", &[1024]))
        .text("tcp_rmem", "4096\t131072\t6291456\n")
        .text("tcp_wmem", "4096\t16384\t4194304\n")
        .text("tcp_fastopen", "1\n");
    let core = StaticDir::new()
        .file(
            "somaxconn",
            Numbers {
                ns: ns.net.clone(),
                what: Number::MaxConnections,
            },
        )
        .text("rmem_max", "212992\n")
        .text("wmem_max", "212992\n")
        .text("rmem_default", "212992\n")
        .text("wmem_default", "212992\n");
    let ipv6 = StaticDir::new().dir(
        "conf",
        StaticDir::new()
            .dir("all", StaticDir::new().text("disable_ipv6", "0\n"))
            .dir("lo", StaticDir::new().text("disable_ipv6", "0\n")),
    );
    let net = StaticDir::new()
        .dir("core", core)
        .dir("ipv4", ipv4)
        .dir("ipv6", ipv6);
    StaticDir::new()
        .dir("fs", fs)
        .dir("kernel", kernel.with_identity(u64::from(ns.uts.id.ino)))
        .dir("net", net.with_identity(u64::from(ns.net.id.ino)))
        .dir("user", user)
        .dir("vm", vm)
}

fn sysvipc() -> StaticDir {
    StaticDir::new()
        .text("msg", "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n")
        .text("sem", "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n")
        .text("shm", "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n")
}
