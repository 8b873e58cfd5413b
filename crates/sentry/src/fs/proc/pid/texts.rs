//! The files of text in a process's directory: the table of all, and those of a few lines.

use super::super::sysctl::number_of;
use super::map_query;
use super::maps::{maps, numa_maps, smaps, smaps_rollup};
use super::status::{stat, statm, status};
use super::{Kind, Subject};
use crate::Task;
use crate::task::limits;
use crate::task::task_of;
use abi::errno::{EACCES, EINVAL, ENOTTY, EPERM, ERANGE};
use abi::{Errno, Result};
use config::IdRange;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::file::{File, FileOps, IoctlContext};
use vfs::fs::dynamic::DynFile;
use vfs::mode::{Want, generic_permission};
use vfs::notice::Notice;
use vfs::userns::{IdKind, UserNs};
use vfs::{Caller, Caps, FileType, Perm};

type Make = fn(&Subject) -> Result<Vec<u8>>;

/// For whom a file's text is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Everybody who may open it.
    All,
    /// Those who may look into the process when they open it; it is about the memory of that
    /// moment, whatever the process runs later.
    Memory,
    /// As `Memory`, and the text is that of the moment, too.
    Opened,
    /// Those who may look into the process when it is read; others get this error.
    Inspectors(Errno),
}

/// Name, mode, for whom, and the text.
pub(super) type Entry = (&'static str, u32, For, Make);

/// A text about a process.
pub(super) struct About {
    pub(super) me: Subject,
    pub(super) kind: Kind,
    pub(super) entry: &'static Entry,
    /// What it says, if that was fixed when it was opened.
    pub(super) text: Option<Vec<u8>>,
    /// Of an open one: who is told when it changes.
    pub(super) notice: Option<Arc<Notice>>,
}

impl About {
    /// Mounts' files tell of the namespace that the process had when they were opened.
    fn changes(&self) -> Option<Arc<Notice>> {
        let fs = match self.entry.0 {
            "mounts" | "mountinfo" => self.me.task().ok()?.fs(),
            _ => return None,
        };
        Some(fs.ns().changed().clone())
    }
    fn set_id_map(&self, file: &File, kind: Option<IdKind>, data: &[u8]) -> Result<()> {
        let ns = self.me.task()?.cred().user_ns.clone();
        match kind {
            Some(kind) => ns.set_map(kind, &file.cred, data),
            None if !file.cred.has_in(&ns, Caps::SYS_ADMIN) => Err(EPERM),
            None if data.len() >= 8 => Err(EINVAL),
            None => ns.set_setgroups(data),
        }
    }
    /// `timens_offsets_write`: of the namespace of the process's children.
    fn set_time_offsets(&self, file: &File, data: &[u8]) -> Result<usize> {
        // (A write moves no position.)
        if data.len() >= abi::PAGE_SIZE as usize {
            return Err(EINVAL);
        }
        let ns = self.me.task()?.ns().time_for_children.clone();
        ns.set(data, || file.cred.has_in(&ns.user, Caps::SYS_TIME))
    }
    /// `comm_write`: a process names its own threads only.
    fn set_comm(&self, name: &[u8]) -> Result<()> {
        let t = self.me.task()?;
        let writer = self.me.reader.upgrade().ok_or(EINVAL)?;
        if !Arc::ptr_eq(&writer.group, &t.group) {
            return Err(EINVAL);
        }
        t.set_comm(name);
        Ok(())
    }
    /// `__set_oom_adj`: below what a privileged process set last needs privilege.
    fn set_oom_score_adj(&self, file: &File, text: &str) -> Result<()> {
        let v = integer(text.trim())?;
        if !(-1000..=1000).contains(&v) {
            return Err(EINVAL);
        }
        let g = self.me.group()?;
        let privileged = file.cred.has(Caps::SYS_RESOURCE);
        if v < g.oom_score_adj_min.load(Ordering::Relaxed) && !privileged {
            return Err(EACCES);
        }
        g.oom_score_adj.store(v, Ordering::Relaxed);
        if privileged {
            g.oom_score_adj_min.store(v, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A number with a sign, of base 8 after `0`, 16 after `0x` (`kstrtoint` with base 0); `ERANGE`
/// where it is too large.
fn integer(text: &str) -> Result<i32> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (digits, base) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return Err(EINVAL);
    }
    let n = i32::from_str_radix(digits, base).map_err(|_| ERANGE)?;
    Ok(if text.starts_with('-') { -n } else { n })
}

impl DynFile for About {
    fn perm(&self) -> Perm {
        self.me.perm(self.entry.1)
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        // Threads name each other (`proc_tid_comm_permission`).
        if self.entry.0 == "comm" && self.kind == Kind::Thread && self.me.is_own(cx) {
            return Ok(());
        }
        generic_permission(self.perm(), FileType::Regular, cx.cred, want)
    }
    fn bound(&self, cx: &Caller<'_>) -> Result<Option<Arc<dyn DynFile>>> {
        let mm = match self.entry.2 {
            For::Memory | For::Opened => Some(self.me.open_memory(cx)?),
            _ => None,
        };
        let me = Subject {
            reader: task_of(cx.task).map(Arc::downgrade).unwrap_or_default(),
            mm,
            ..self.me.clone()
        };
        let text = (self.entry.2 == For::Opened).then(|| (self.entry.3)(&me));
        Ok(Some(Arc::new(About {
            me,
            text: text.transpose()?,
            notice: self.changes(),
            ..*self
        })))
    }
    fn ioctl(&self, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        match self.entry.0 {
            "maps" => map_query::ioctl(&self.me, cx, cmd, arg),
            _ => Err(ENOTTY),
        }
    }
    fn notice(&self) -> Option<&Arc<Notice>> {
        self.notice.as_ref()
    }
    fn generate(&self, file: &File) -> Result<Vec<u8>> {
        let me = Subject {
            viewer: file.cred.user_ns.clone(),
            shows_all: self.me.shows_all(file),
            ..self.me.clone()
        };
        // `proc_pid_stack`: before the question whose process it is.
        if self.entry.0 == "stack" && !file.cred.has(Caps::SYS_ADMIN) {
            return Err(EACCES);
        }
        match (&self.entry.2, &self.text) {
            (_, Some(text)) => Ok(text.clone()),
            (For::Inspectors(e), _) if !me.shows_all => Err(*e),
            _ => (self.entry.3)(&me),
        }
    }
    fn write(&self, file: &File, data: &[u8], offset: u64) -> Result<usize> {
        let map = match self.entry.0 {
            "uid_map" => Some(IdKind::User),
            "gid_map" => Some(IdKind::Group),
            "projid_map" => Some(IdKind::Project),
            _ => None,
        };
        if map.is_some() || self.entry.0 == "setgroups" {
            if offset != 0 {
                return Err(EINVAL);
            }
            self.set_id_map(file, map, data)?;
            return Ok(data.len());
        }
        if self.entry.0 == "timens_offsets" {
            return self.set_time_offsets(file, data);
        }
        let text = crate::fs::written(data)?.trim_end();
        match self.entry.0 {
            "comm" => self.set_comm(text.as_bytes())?,
            "coredump_filter" => {
                let bits = number_of(text).filter(|n| *n >= 0).ok_or(EINVAL)?;
                let bits = u32::try_from(bits).map_err(|_| ERANGE)?;
                self.me.task()?.mm().privacy().set_dump_filter(bits);
            }
            "oom_score_adj" => self.set_oom_score_adj(file, text)?,
            "timerslack_ns" => {
                let n: u64 = text.trim().parse().map_err(|_| EINVAL)?;
                slack_of(&self.me)?.set_timer_slack(n);
            }
            _ => return Err(EPERM),
        }
        Ok(data.len())
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        let writes = flags & vfs::file::O_ACCMODE != 0;
        if writes && self.entry.0 == "setgroups" {
            let ns = self.me.task()?.cred().user_ns.clone();
            if !cx.cred.has_in(&ns, Caps::SYS_ADMIN) {
                return Err(EACCES);
            }
        }
        Ok(None)
    }
}

pub(super) static FILES: &[Entry] = &[
    ("auxv", 0o400, For::Opened, auxv),
    ("cgroup", 0o444, For::All, cgroup),
    ("cmdline", 0o444, For::All, cmdline),
    ("comm", 0o644, For::All, comm),
    ("coredump_filter", 0o644, For::All, |s| {
        let filter = s.task()?.mm().privacy().dump_filter();
        Ok(format!("{filter:08x}\n").into_bytes())
    }),
    ("environ", 0o400, For::Memory, environ),
    ("gid_map", 0o644, For::All, |s| id_map(s, IdKind::Group)),
    ("io", 0o400, For::Inspectors(EACCES), io),
    ("limits", 0o444, For::All, limits_text),
    ("loginuid", 0o644, For::All, |_| Ok(b"4294967295".to_vec())),
    ("maps", 0o444, For::Memory, maps),
    ("mountinfo", 0o444, For::All, mountinfo),
    ("mounts", 0o444, For::All, mounts),
    ("numa_maps", 0o444, For::Memory, numa_maps),
    ("oom_adj", 0o644, For::All, |_| Ok(b"0\n".to_vec())),
    ("oom_score", 0o444, For::All, |_| Ok(b"0\n".to_vec())),
    ("oom_score_adj", 0o644, For::All, oom_score_adj),
    ("personality", 0o400, For::Inspectors(EPERM), personality),
    ("projid_map", 0o644, For::All, |s| {
        id_map(s, IdKind::Project)
    }),
    ("sched", 0o644, For::All, sched),
    ("schedstat", 0o444, For::All, schedstat),
    ("sessionid", 0o444, For::All, |_| Ok(b"4294967295".to_vec())),
    ("setgroups", 0o644, For::All, |s| {
        let allowed = s.task()?.cred().user_ns.setgroups_allowed();
        Ok(if allowed {
            b"allow\n".to_vec()
        } else {
            b"deny\n".to_vec()
        })
    }),
    ("smaps", 0o444, For::Memory, smaps),
    ("smaps_rollup", 0o444, For::Memory, smaps_rollup),
    // Nobody's kernel stack is the kernel's: there is nothing to show.
    ("stack", 0o400, For::Inspectors(EPERM), |_| Ok(Vec::new())),
    ("stat", 0o444, For::All, stat),
    ("statm", 0o444, For::All, statm),
    ("status", 0o444, For::All, status),
    ("timens_offsets", 0o644, For::All, |s| {
        Ok(s.task()?.ns().time_for_children.text().into_bytes())
    }),
    ("timerslack_ns", 0o666, For::All, timer_slack),
    ("uid_map", 0o644, For::All, |s| id_map(s, IdKind::User)),
    ("wchan", 0o444, For::All, |_| Ok(b"0".to_vec())),
];

/// A range of a process's memory: its arguments, its environment.
fn range(mm: &mm::Mm, f: fn(&mm::Layout) -> (u64, u64)) -> Vec<u8> {
    let (start, end) = f(&mm.layout());
    let mut b = vec![0u8; end.saturating_sub(start).min(2 << 20) as usize];
    let n = mm.read_present(abi::Va(start), &mut b);
    b.truncate(n);
    b
}
/// A process's command line as one line of text.
pub fn command_line(t: &Arc<Task>) -> String {
    let words = t.mm().arguments(4096);
    let text = String::from_utf8_lossy(&words);
    if text.trim().is_empty() {
        format!("[{}]", String::from_utf8_lossy(&t.comm()))
    } else {
        text.trim_end().to_owned()
    }
}

fn cmdline(me: &Subject) -> Result<Vec<u8>> {
    // A zombie has none.
    Ok(me.task().map_or_else(
        |_| Vec::new(),
        |t| range(&t.mm(), |l| (l.arg_start, l.arg_end)),
    ))
}
fn environ(me: &Subject) -> Result<Vec<u8>> {
    Ok(me
        .pinned()
        .map_or_else(Vec::new, |mm| range(&mm, |l| (l.env_start, l.env_end))))
}
fn auxv(me: &Subject) -> Result<Vec<u8>> {
    let bytes = me.pinned().map(|mm| mm.layout().auxv_bytes());
    Ok(bytes.unwrap_or_default())
}
fn comm(me: &Subject) -> Result<Vec<u8>> {
    let mut c = me.told()?.comm.clone();
    c.push(b'\n');
    Ok(c)
}
fn personality(me: &Subject) -> Result<Vec<u8>> {
    Ok(format!("{:08x}\n", me.task()?.persona().bits()).into_bytes())
}
fn oom_score_adj(me: &Subject) -> Result<Vec<u8>> {
    Ok(format!("{}\n", me.group()?.oom_score_adj.load(Ordering::Relaxed)).into_bytes())
}
/// The task whose timer slack may be told and set: the reader's own, or that of a process that it
/// may give a priority.
fn slack_of(me: &Subject) -> Result<Arc<Task>> {
    let (reader, t) = (me.reader.upgrade().ok_or(EPERM)?, me.task()?);
    let may = Arc::ptr_eq(&reader, &t) || reader.cred().has_in(&t.cred().user_ns, Caps::SYS_NICE);
    may.then_some(t).ok_or(EPERM)
}
fn timer_slack(me: &Subject) -> Result<Vec<u8>> {
    let n = slack_of(me)?.timer_slack.load(Ordering::Relaxed);
    Ok(format!("{n}\n").into_bytes())
}
/// CPU time of the thread, nanoseconds.
fn cpu_of(me: &Subject) -> Result<u64> {
    Ok(me.task()?.cpu.get().total())
}
/// Time that it ran, time that it waited for a CPU, and how often it ran. The host schedules it,
/// and counts the last two.
fn schedstat(me: &Subject) -> Result<Vec<u8>> {
    Ok(format!("{} 0 0\n", cpu_of(me)?).into_bytes())
}
fn sched(me: &Subject) -> Result<Vec<u8>> {
    let (k, t) = (me.kernel()?, me.task()?);
    let ran = cpu_of(me)?;
    let millis = |n: u64| format!("{}.{:06}", n / 1_000_000, n % 1_000_000);
    let nice = t.nice.load(Ordering::Relaxed);
    let (number, threads) = {
        let l = k.tasks.lock();
        (l.number(t.tid, &me.ns), l.threads(me.tgid).len())
    };
    let comm = t.comm();
    let mut s = format!(
        "{} ({number}, #threads: {threads})\n{}\n",
        String::from_utf8_lossy(&comm),
        "-".repeat(67)
    );
    for (name, value) in [
        ("se.exec_start", millis((t.start - k.boot).max(0) as u64)),
        ("se.vruntime", millis(ran)),
        ("se.sum_exec_runtime", millis(ran)),
        ("se.nr_migrations", "0".into()),
        ("nr_switches", "0".into()),
        ("nr_voluntary_switches", "0".into()),
        ("nr_involuntary_switches", "0".into()),
        ("policy", "0".into()),
        ("prio", (120 + nice).to_string()),
    ] {
        let _ = writeln!(s, "{name:<45}:{value:>21}");
    }
    Ok(s.into_bytes())
}
/// As the task sees it that opened the file.
fn cgroup(me: &Subject) -> Result<Vec<u8>> {
    let k = me.kernel()?;
    let root = me
        .reader
        .upgrade()
        .map_or_else(|| k.initial.cgroup.clone(), |t| t.ns().cgroup.clone());
    let mut text = b"0::".to_vec();
    text.extend(me.group()?.cgroup().path_from(&root));
    text.push(b'\n');
    Ok(text)
}
fn id_map(me: &Subject, kind: IdKind) -> Result<Vec<u8>> {
    let task = me.task()?;
    let ns = task.cred().user_ns.clone();
    // The Gofer translates a container's ids: its first namespace has them all, and the host those
    // of the bundle.
    if ns == me.viewer
        && ns == UserNs::default()
        && let Some(root) = task.group.container.root()
        && let Some(ids) = match kind {
            IdKind::User => Some(&root.ids[0]),
            IdKind::Group => Some(&root.ids[1]),
            IdKind::Project => None,
        }
        && !ids.is_empty()
    {
        let line = |r: &IdRange| format!("{:>10} {:>10} {:>10}\n", r.inside, r.outside, r.count);
        return Ok(ids.iter().map(line).collect::<String>().into_bytes());
    }
    Ok(ns.map_text(kind, &me.viewer).into_bytes())
}
fn io(_: &Subject) -> Result<Vec<u8>> {
    Ok(b"rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n".to_vec())
}
fn mountinfo(me: &Subject) -> Result<Vec<u8>> {
    let fs = me.task()?.fs();
    Ok(fs.ns().mountinfo(&fs.root()))
}
fn mounts(me: &Subject) -> Result<Vec<u8>> {
    let fs = me.task()?.fs();
    Ok(fs.ns().proc_mounts(&fs.root()))
}

fn limits_text(me: &Subject) -> Result<Vec<u8>> {
    const NAMES: [(&str, &str); limits::COUNT] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let l = me.group()?.limits.lock().clone();
    let show = |v: u64| {
        if v == u64::MAX {
            "unlimited".to_string()
        } else {
            v.to_string()
        }
    };
    let mut s = format!(
        "{:<25} {:<20} {:<20} {:<10}\n",
        "Limit", "Soft Limit", "Hard Limit", "Units"
    );
    for (n, l) in NAMES.iter().zip(l.0) {
        let _ = writeln!(
            s,
            "{:<25} {:<20} {:<20} {}",
            n.0,
            show(l.current),
            show(l.max),
            // Priorities have no unit, and no room for one.
            if n.1.is_empty() {
                String::new()
            } else {
                format!("{:<10}", n.1)
            }
        );
    }
    Ok(s.into_bytes())
}
