//! The files of text in a process's directory: the table of all, and those of a few lines.

use super::Subject;
use super::maps::{maps, smaps, smaps_rollup};
use super::status::{stat, statm, status};
use crate::Task;
use crate::fs::terminals::task_of;
use crate::task::limits;
use abi::Result;
use abi::errno::{EACCES, EINVAL, EPERM};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::file::{File, FileOps};
use vfs::fs::dynamic::DynFile;
use vfs::userns::IdKind;
use vfs::{Caller, Caps, Perm};

type Make = fn(&Subject) -> Result<Vec<u8>>;

/// A text about a process.
pub(super) struct About {
    pub(super) me: Subject,
    pub(super) name: &'static str,
    pub(super) mode: u32,
    pub(super) make: Make,
    /// Only for those who may look inside.
    pub(super) private: bool,
}

impl DynFile for About {
    fn perm(&self) -> Perm {
        self.me.perm(self.mode)
    }
    fn bound(&self, cx: &Caller<'_>) -> Option<Arc<dyn DynFile>> {
        let reader = task_of(cx.task).map(Arc::downgrade).unwrap_or_default();
        Some(Arc::new(About {
            me: Subject {
                reader,
                ..self.me.clone()
            },
            ..*self
        }))
    }
    fn generate(&self, file: &File) -> Result<Vec<u8>> {
        let me = Subject {
            viewer: file.cred.user_ns.clone(),
            ..self.me.clone()
        };
        (self.make)(&me)
    }
    fn write(&self, file: &File, data: &[u8], offset: u64) -> Result<usize> {
        let map = match self.name {
            "uid_map" => Some(IdKind::User),
            "gid_map" => Some(IdKind::Group),
            "projid_map" => Some(IdKind::Project),
            _ => None,
        };
        if map.is_some() || self.name == "setgroups" {
            if offset != 0 {
                return Err(EINVAL);
            }
            let ns = self.me.task()?.cred().user_ns.clone();
            match map {
                Some(kind) => ns.set_map(kind, &file.cred, data)?,
                None if !file.cred.has_in(&ns, Caps::SYS_ADMIN) => return Err(EPERM),
                None if data.len() >= 8 => return Err(EINVAL),
                None => ns.set_setgroups(data)?,
            }
            return Ok(data.len());
        }
        let text = std::str::from_utf8(data).map_err(|_| EINVAL)?.trim_end();
        if self.name == "comm" {
            self.me.task()?.set_comm(text.as_bytes());
            return Ok(data.len());
        }
        if self.name == "oom_score_adj" {
            let v: i32 = text.parse().map_err(|_| EINVAL)?;
            if !(-1000..=1000).contains(&v) {
                return Err(EINVAL);
            }
            self.me.group()?.oom_score_adj.store(v, Ordering::Relaxed);
            return Ok(data.len());
        }
        Err(EPERM)
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        if self.private {
            self.me.check(cx)?;
        }
        let writes = flags & vfs::file::O_ACCMODE != 0;
        if writes && self.name == "setgroups" {
            let ns = self.me.task()?.cred().user_ns.clone();
            if !cx.cred.has_in(&ns, Caps::SYS_ADMIN) {
                return Err(EACCES);
            }
        }
        Ok(None)
    }
}

/// Name, mode, whether private, and the text.
pub(super) const FILES: &[(&str, u32, bool, Make)] = &[
    ("auxv", 0o400, true, auxv),
    ("cgroup", 0o444, false, cgroup),
    ("cmdline", 0o444, false, cmdline),
    ("comm", 0o644, false, comm),
    ("coredump_filter", 0o644, false, |_| {
        Ok(b"00000033\n".to_vec())
    }),
    ("environ", 0o400, true, environ),
    ("gid_map", 0o644, false, |s| id_map(s, IdKind::Group)),
    ("io", 0o400, true, io),
    ("limits", 0o444, false, limits_text),
    ("loginuid", 0o644, false, |_| Ok(b"4294967295".to_vec())),
    ("maps", 0o444, true, maps),
    ("mountinfo", 0o444, false, mountinfo),
    ("mounts", 0o444, false, mounts),
    ("oom_adj", 0o644, false, |_| Ok(b"0\n".to_vec())),
    ("oom_score", 0o444, false, |_| Ok(b"0\n".to_vec())),
    ("oom_score_adj", 0o644, false, oom_score_adj),
    ("personality", 0o400, true, |_| Ok(b"00000000\n".to_vec())),
    ("projid_map", 0o644, false, |s| id_map(s, IdKind::Project)),
    ("sessionid", 0o444, false, |_| Ok(b"4294967295".to_vec())),
    ("setgroups", 0o644, false, |s| {
        let allowed = s.task()?.cred().user_ns.setgroups_allowed();
        Ok(if allowed {
            b"allow\n".to_vec()
        } else {
            b"deny\n".to_vec()
        })
    }),
    ("smaps", 0o444, true, smaps),
    ("smaps_rollup", 0o444, true, smaps_rollup),
    ("stat", 0o444, false, stat),
    ("statm", 0o444, false, statm),
    ("status", 0o444, false, status),
    ("uid_map", 0o644, false, |s| id_map(s, IdKind::User)),
    ("wchan", 0o444, false, |_| Ok(b"0".to_vec())),
];

/// A range of the process's own memory: its arguments, its environment.
fn range(me: &Subject, f: fn(&mm::Layout) -> (u64, u64)) -> Result<Vec<u8>> {
    let mm = me.task()?.mm();
    let (start, end) = f(&mm.layout());
    let mut b = vec![0u8; end.saturating_sub(start).min(2 << 20) as usize];
    let n = mm.read_forced(abi::Va(start), &mut b);
    b.truncate(n);
    Ok(b)
}
/// A process's command line as one line of text.
pub fn command_line(t: &Arc<Task>) -> String {
    let mm = t.mm();
    let l = mm.layout();
    let mut b = vec![0u8; l.arg_end.saturating_sub(l.arg_start).min(4096) as usize];
    let n = mm.read_forced(abi::Va(l.arg_start), &mut b);
    b.truncate(n);
    let text = String::from_utf8_lossy(&b).replace('\0', " ");
    if text.trim().is_empty() {
        format!("[{}]", String::from_utf8_lossy(&t.comm()))
    } else {
        text.trim_end().to_owned()
    }
}

fn cmdline(me: &Subject) -> Result<Vec<u8>> {
    // A zombie has none.
    Ok(range(me, |l| (l.arg_start, l.arg_end)).unwrap_or_default())
}
fn environ(me: &Subject) -> Result<Vec<u8>> {
    range(me, |l| (l.env_start, l.env_end))
}
fn auxv(me: &Subject) -> Result<Vec<u8>> {
    let l = me.task()?.mm().layout();
    let mut out = Vec::new();
    for (k, v) in l.auxv {
        out.extend_from_slice(&k.to_le_bytes());
        out.extend_from_slice(&v.to_le_bytes());
    }
    Ok(out)
}
fn comm(me: &Subject) -> Result<Vec<u8>> {
    let mut c = me.task()?.comm();
    c.push(b'\n');
    Ok(c)
}
fn oom_score_adj(me: &Subject) -> Result<Vec<u8>> {
    Ok(format!("{}\n", me.group()?.oom_score_adj.load(Ordering::Relaxed)).into_bytes())
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
    let ns = me.task()?.cred().user_ns.clone();
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
