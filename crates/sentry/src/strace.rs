//! `--strace`: system calls as strace(1) shows them.
//!
//! One line a call, written when it has ended, with the thread's id and the time it took:
//! `[   12] openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3 <0.000042>`. Calls that do not
//! return (exit, execve that succeeds) are shown when they begin.

use crate::syscalls::args::{Kind, Param, Raw, Show};
use crate::syscalls::{Call, SysResult};
use crate::task::Context;
use abi::SigInfo;
use hostcall::RawFd;
use mm::Mm;
use std::time::Instant;

/// Where traces go and what is traced.
pub struct Strace {
    fd: RawFd,
    /// Names; empty for all.
    filter: Vec<String>,
}

/// What was seen at entry: the arguments that the call may overwrite, and none for what it writes.
pub struct Entered {
    start: Instant,
    shown: Vec<Option<String>>,
}

impl Strace {
    #[must_use]
    pub fn new(fd: RawFd, filter: Vec<String>) -> Strace {
        Strace { fd, filter }
    }
    /// A signal that task `tid` acts on.
    pub fn signal(&self, tid: i32, info: &SigInfo) {
        let name = info.signal().map_or("?".into(), |s| format!("{s:?}"));
        let (code, pid) = (info.code, info.pid());
        self.line(
            tid,
            &format!("--- {name} {{si_code={code}, si_pid={pid}}} ---"),
        );
    }
    #[must_use]
    pub fn wants(&self, call: &Call) -> bool {
        self.filter.is_empty()
            || self.filter.iter().any(|f| match f.strip_prefix('%') {
                Some(class) => in_class(call, class),
                None => f == call.name,
            })
    }
    fn line(&self, tid: i32, text: &str) {
        let _ = hostcall::file::write(self.fd, format!("[{tid:5}] {text}\n").as_bytes());
    }
    /// Decodes what the call reads.
    #[must_use]
    pub fn enter(&self, cx: &Context, call: &Call, raw: &Raw) -> Entered {
        let mm = cx.mm();
        let shown = each(call.params, raw, |_, show, words| before(&mm, show, words));
        if matches!(
            call.name,
            "exit" | "exit_group" | "rt_sigreturn" | "execve" | "execveat"
        ) {
            let known: Vec<String> = shown.iter().flatten().cloned().collect();
            self.line(cx.tid, &format!("{}({}) ...", call.name, known.join(", ")));
        }
        Entered {
            start: Instant::now(),
            shown,
        }
    }
    /// Writes the line.
    pub fn exit(&self, cx: &Context, call: &Call, raw: &Raw, e: Entered, r: &SysResult) {
        let took = e.start.elapsed();
        let mm = cx.mm();
        let shown = each(call.params, raw, |i, show, words| match &e.shown[i] {
            Some(s) => s.clone(),
            None => after(&mm, show, words, r.ok()),
        });
        let s = took.as_secs_f64();
        let (name, result) = (call.name, result(r));
        self.line(
            cx.tid,
            &format!("{name}({}) = {result} <{s:.6}>", shown.join(", ")),
        );
    }
}

/// Goes through the parameters, each with its words.
fn each<T>(params: &[Param], raw: &Raw, mut f: impl FnMut(usize, Show, &[u64]) -> T) -> Vec<T> {
    let mut words = raw.as_slice();
    let each = params.iter().enumerate().map(|(i, p)| {
        let (own, rest) = words.split_at(p.words);
        words = rest;
        f(i, p.show, own)
    });
    each.collect()
}

/// What is known of an argument before the call.
fn before(mm: &Mm, show: Show, words: &[u64]) -> Option<String> {
    match show {
        Show::Words(show) => Some(show(words)),
        Show::Read(show) => Some(show(mm, words)),
        Show::Written(_) => None,
    }
}

/// And of the others after it.
fn after(mm: &Mm, show: Show, words: &[u64], result: Option<usize>) -> String {
    match show {
        Show::Words(show) => show(words),
        Show::Read(show) => show(mm, words),
        Show::Written(show) => show(mm, words, result),
    }
}

fn result(r: &SysResult) -> String {
    match r {
        Ok(v) if *v > 0x1_0000_0000 => format!("{v:#x}"),
        Ok(v) => format!("{}", *v as i64),
        Err(e) if e.is_restart() => format!("? {} (to be restarted)", e.name()),
        Err(e) => format!("-1 {}", e.name()),
    }
}

/// strace's classes that people use most.
/// What [`Strace::new`] takes behind `%`.
pub const CLASSES: [&str; 7] = [
    "file", "desc", "memory", "process", "signal", "net", "network",
];

/// Whether a filter may name this: a system call of Linux's, or a class of them.
#[must_use]
pub fn is_known(name: &str) -> bool {
    match name.strip_prefix('%') {
        Some(class) => CLASSES.contains(&class),
        None => abi::syscalls::NAMES.iter().any(|n| n.name == name),
    }
}

fn in_class(call: &Call, class: &str) -> bool {
    let has = |kind| call.params.iter().any(|p| p.kind == kind);
    match class {
        "file" => has(Kind::Path),
        "desc" => has(Kind::Descriptor),
        "memory" => {
            matches!(
                call.name,
                "mmap" | "munmap" | "mprotect" | "mremap" | "brk" | "madvise" | "msync"
            )
        }
        "process" => matches!(
            call.name,
            "clone"
                | "clone3"
                | "fork"
                | "vfork"
                | "execve"
                | "execveat"
                | "exit"
                | "exit_group"
                | "wait4"
                | "waitid"
                | "kill"
                | "tgkill"
                | "tkill"
        ),
        "signal" => call.name.contains("sig") || call.name.contains("kill"),
        "net" | "network" => {
            has(Kind::Address) || call.name.starts_with("s") && call.name.contains("sock")
        }
        _ => false,
    }
}

/// A call that is not in the table.
pub fn unknown(cx: &Context, nr: u64, args: &Raw) {
    let Some(t) = &cx.kernel.strace else { return };
    let name = abi::syscalls::name(nr).map_or_else(|| format!("syscall_{nr}"), Into::into);
    if t.filter.is_empty() || t.filter.contains(&name) {
        let all = args.map(|a| format!("{a:#x}")).join(", ");
        let text = format!("{name}({all}) = -1 ENOSYS (not in Cloister)");
        t.line(cx.tid, &text);
    }
}
