//! `--strace`: system calls as strace(1) shows them.
//!
//! One line a call, written when it has ended, with the thread's id and the time it took:
//! `[   12] openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3 <0.000042>`. Calls that do not return
//! (exit, execve that succeeds) are shown when they begin.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::time::Timespec;
use abi::{SigInfo, Signal, Va};
use hostcall::RawFd;
use std::fmt::Write as _;
use std::time::Instant;

/// Where traces go and what is traced.
pub struct Strace {
    fd: RawFd,
    /// Names; empty for all.
    filter: Vec<String>,
}

/// The most bytes of a string or buffer that are shown, as strace's `-s 32`.
const SHOWN: usize = 32;

/// What was seen at entry: the arguments that the call may overwrite.
pub struct Entered {
    start: Instant,
    shown: Vec<String>,
}

impl Strace {
    #[must_use]
    pub fn new(fd: RawFd, filter: Vec<String>) -> Strace {
        Strace { fd, filter }
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
    pub fn enter(&self, cx: &Context, call: &Call, args: &Args) -> Entered {
        let shown: Vec<String> = call
            .args
            .iter()
            .enumerate()
            .map(|(i, a)| show(cx, *a, args, i, None))
            .collect();
        if matches!(
            call.name,
            "exit" | "exit_group" | "rt_sigreturn" | "execve" | "execveat"
        ) {
            self.line(cx.tid, &format!("{}({}) ...", call.name, shown.join(", ")));
        }
        Entered {
            start: Instant::now(),
            shown,
        }
    }
    /// Writes the line.
    pub fn exit(&self, cx: &Context, call: &Call, args: &Args, e: Entered, r: &SysResult) {
        let took = e.start.elapsed();
        let shown: Vec<String> = call
            .args
            .iter()
            .enumerate()
            .map(|(i, a)| match a {
                Arg::Out | Arg::Stat | Arg::IntOut | Arg::FdPair => show(cx, *a, args, i, Some(r)),
                _ => e.shown[i].clone(),
            })
            .collect();
        let result = match r {
            Ok(v) if *v > 0x1_0000_0000 => format!("{v:#x}"),
            Ok(v) => format!("{}", *v as i64),
            Err(e) if e.is_restart() => format!("? {} (to be restarted)", e.name()),
            Err(e) => format!("-1 {}", e.name()),
        };
        let s = took.as_secs_f64();
        self.line(
            cx.tid,
            &format!("{}({}) = {result} <{s:.6}>", call.name, shown.join(", ")),
        );
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
    let has = |f: fn(&Arg) -> bool| call.args.iter().any(f);
    match class {
        "file" => has(|a| matches!(a, Arg::Path)),
        "desc" => has(|a| matches!(a, Arg::Fd | Arg::DirFd)),
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
            has(|a| matches!(a, Arg::SockAddr(_)))
                || call.name.starts_with("s") && call.name.contains("sock")
        }
        _ => false,
    }
}

/// A call that is not in the table.
pub fn unknown(cx: &Context, nr: u64, args: &Args) {
    let Some(t) = &cx.kernel.strace else { return };
    let name = abi::syscalls::name(nr).map_or_else(|| format!("syscall_{nr}"), Into::into);
    if t.filter.is_empty() || t.filter.contains(&name) {
        let all = args.0.map(|a| format!("{a:#x}")).join(", ");
        let text = format!("{name}({all}) = -1 ENOSYS (not in Cloister)");
        t.line(cx.tid, &text);
    }
}

/// A signal that is acted on.
pub fn signal(cx: &Context, info: &SigInfo) {
    if let Some(t) = &cx.kernel.strace {
        let name = info.signal().map_or("?".into(), |s| format!("{s:?}"));
        t.line(
            cx.tid,
            &format!(
                "--- {name} {{si_code={}, si_pid={}}} ---",
                info.code,
                info.pid()
            ),
        );
    }
}

fn quoted(bytes: &[u8], cut: bool) -> String {
    let mut s = String::from("\"");
    for b in bytes {
        match b {
            b'\n' => s.push_str("\\n"),
            b'\t' => s.push_str("\\t"),
            b'\r' => s.push_str("\\r"),
            b'"' => s.push_str("\\\""),
            b'\\' => s.push_str("\\\\"),
            0x20..=0x7e => s.push(*b as char),
            _ => {
                let _ = write!(s, "\\{b:o}");
            }
        }
    }
    s.push('"');
    if cut {
        s.push_str("...");
    }
    s
}

fn bytes_at(cx: &Context, va: u64, len: usize) -> String {
    let mut buf = vec![0u8; len.min(SHOWN)];
    let n = cx.mm().read_bytes(Va(va), &mut buf);
    if n == 0 && len > 0 {
        format!("{va:#x}")
    } else {
        quoted(&buf[..n], len > SHOWN)
    }
}

fn flags(v: u64, names: &[(u64, &str)]) -> String {
    let mut left = v;
    let mut out: Vec<String> = Vec::new();
    for (bit, name) in names {
        if *bit != 0 && left & bit == *bit {
            out.push((*name).to_string());
            left &= !bit;
        }
    }
    if left != 0 || out.is_empty() {
        match names.iter().find(|(b, _)| *b == 0).filter(|_| left == 0) {
            Some((_, zero)) => out.push((*zero).to_string()),
            None => out.push(format!("{left:#x}")),
        }
    }
    out.join("|")
}

const OPEN_FLAGS: &[(u64, &str)] = &[
    (0o100, "O_CREAT"),
    (0o200, "O_EXCL"),
    (0o400, "O_NOCTTY"),
    (0o1000, "O_TRUNC"),
    (0o2000, "O_APPEND"),
    (0o4000, "O_NONBLOCK"),
    (0o20000, "O_ASYNC"),
    (0o40000, "O_DIRECT"),
    (0o100000, "O_LARGEFILE"),
    (0o20200000, "O_TMPFILE"),
    (0o200000, "O_DIRECTORY"),
    (0o400000, "O_NOFOLLOW"),
    (0o1000000, "O_NOATIME"),
    (0o2000000, "O_CLOEXEC"),
    (0o4010000, "O_SYNC"),
    (0o10000, "O_DSYNC"),
    (0o10000000, "O_PATH"),
];

fn show(cx: &Context, a: Arg, args: &Args, i: usize, result: Option<&SysResult>) -> String {
    let v = args.0[i];
    let int = v as u32 as i32;
    match a {
        Arg::Int => format!("{int}"),
        Arg::Uint => format!("{v}"),
        Arg::Hex => format!("{v:#x}"),
        Arg::Ptr => {
            if v == 0 {
                "NULL".into()
            } else {
                format!("{v:#x}")
            }
        }
        Arg::Fd => format!("{int}"),
        Arg::DirFd if int == abi::linux::AT_FDCWD => "AT_FDCWD".into(),
        Arg::DirFd => format!("{int}"),
        Arg::Path if v == 0 => "NULL".into(),
        Arg::Path => match cx.mm().read_cstr(Va(v), vfs::PATH_MAX) {
            Ok(p) => quoted(&p, false),
            Err(_) => format!("{v:#x}"),
        },
        Arg::Mode => format!("{:#o}", v as u32),
        Arg::In(n) => bytes_at(cx, v, args.usize(usize::from(n))),
        Arg::Out => match result {
            Some(Ok(n)) => bytes_at(cx, v, *n),
            _ => format!("{v:#x}"),
        },
        Arg::Flags(names) => flags(v, names),
        Arg::Enum(names) => names
            .iter()
            .find(|(n, _)| *n == v)
            .map_or_else(|| format!("{v:#x}"), |(_, s)| (*s).to_string()),
        Arg::Signal => Signal::new(int).map_or_else(|| format!("{int}"), |s| format!("{s:?}")),
        Arg::SigSet => match cx.mm().read_obj::<u64>(Va(v)) {
            Ok(m) if v != 0 => {
                let names: Vec<String> = (1..=64)
                    .filter(|n| m >> (n - 1) & 1 != 0)
                    .filter_map(Signal::new)
                    .map(|s| format!("{s:?}").trim_start_matches("SIG").to_string())
                    .collect();
                format!("[{}]", names.join(" "))
            }
            _ => {
                if v == 0 {
                    "NULL".into()
                } else {
                    format!("{v:#x}")
                }
            }
        },
        Arg::Timespec => match cx.mm().read_obj::<Timespec>(Va(v)) {
            Ok(t) if v != 0 => format!("{{tv_sec={}, tv_nsec={}}}", t.sec, t.nsec),
            _ => {
                if v == 0 {
                    "NULL".into()
                } else {
                    format!("{v:#x}")
                }
            }
        },
        Arg::SockAddr(n) => sockaddr(cx, v, args.usize(usize::from(n))),
        Arg::Strings => strings(cx, v),
        Arg::FdPair => match result {
            Some(Ok(_)) => match cx.mm().read_obj::<[i32; 2]>(Va(v)) {
                Ok([x, y]) => format!("[{x}, {y}]"),
                Err(_) => format!("{v:#x}"),
            },
            _ => format!("{v:#x}"),
        },
        Arg::OpenFlags => {
            let mode = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"][(v & 3) as usize];
            let rest = v & !3;
            if rest == 0 {
                mode.into()
            } else {
                format!("{mode}|{}", flags(rest & 0xffff_ffff, OPEN_FLAGS))
            }
        }
        Arg::Stat => match result {
            Some(Ok(_)) => match cx.mm().read_obj::<[u64; 8]>(Va(v)) {
                Ok(s) => format!("{{st_mode={:#o}, st_size={}, ...}}", s[3] as u32, s[6]),
                Err(_) => format!("{v:#x}"),
            },
            _ => format!("{v:#x}"),
        },
        Arg::IntOut => match result {
            Some(Ok(_)) if v != 0 => match cx.mm().read_obj::<i32>(Va(v)) {
                Ok(n) => format!("[{n}]"),
                Err(_) => format!("{v:#x}"),
            },
            _ => {
                if v == 0 {
                    "NULL".into()
                } else {
                    format!("{v:#x}")
                }
            }
        },
        Arg::Iovec(n) => iovec(cx, v, args.usize(usize::from(n))),
    }
}

fn sockaddr(cx: &Context, va: u64, len: usize) -> String {
    let mut b = [0u8; 110];
    let n = cx.mm().read_bytes(Va(va), &mut b[..len.min(110)]);
    if n < 2 {
        return if va == 0 {
            "NULL".into()
        } else {
            format!("{va:#x}")
        };
    }
    let port = || u16::from_be_bytes([b[2], b[3]]);
    match u16::from_le_bytes([b[0], b[1]]) {
        1 => format!(
            "{{sa_family=AF_UNIX, sun_path={}}}",
            quoted(b[2..n].split(|c| *c == 0).next().unwrap_or(&[]), false)
        ),
        2 if n >= 8 => format!(
            "{{sa_family=AF_INET, sin_port={}, sin_addr={}.{}.{}.{}}}",
            port(),
            b[4],
            b[5],
            b[6],
            b[7]
        ),
        10 => format!("{{sa_family=AF_INET6, sin6_port={}}}", port()),
        f => format!("{{sa_family={f}}}"),
    }
}

fn strings(cx: &Context, va: u64) -> String {
    let mut out = Vec::new();
    for i in 0..16u64 {
        match cx.mm().read_obj::<u64>(Va(va.wrapping_add(8 * i))) {
            Ok(0) | Err(_) => return format!("[{}]", out.join(", ")),
            Ok(p) => match cx.mm().read_cstr(Va(p), 4096) {
                Ok(s) => out.push(quoted(&s[..s.len().min(SHOWN)], s.len() > SHOWN)),
                Err(_) => out.push(format!("{p:#x}")),
            },
        }
    }
    format!("[{}, ...]", out.join(", "))
}

fn iovec(cx: &Context, va: u64, count: usize) -> String {
    let mut out = Vec::new();
    for i in 0..count.min(4) {
        match cx
            .mm()
            .read_obj::<[u64; 2]>(Va(va.wrapping_add(16 * i as u64)))
        {
            Ok([base, len]) => {
                out.push(format!(
                    "{{iov_base={}, iov_len={len}}}",
                    bytes_at(cx, base, len as usize)
                ));
            }
            Err(_) => return format!("{va:#x}"),
        }
    }
    format!(
        "[{}{}]",
        out.join(", "),
        if count > 4 { ", ..." } else { "" }
    )
}
