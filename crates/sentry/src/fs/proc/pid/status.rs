//! `/proc/PID/stat`, `statm` and `status`: the state of a process and what it uses.

use super::Subject;
use crate::Kernel;
use crate::task::list::Ended;
use crate::task::sched::Scheduling;
use crate::task::signal::{SIG_DFL, SIG_IGN};
use crate::task::{Task, ThreadGroup, limits};
use abi::Result;
use abi::linux::CLOCK_BOOTTIME;
use std::fmt::Write as _;
use std::sync::Arc;

/// `R`, `S`, `D`, `T`, `t` or `Z`.
fn state(k: &Kernel, me: &Subject) -> char {
    let l = k.tasks.lock();
    match l.process(me.tgid) {
        Some(p) if p.zombie.is_some() => 'Z',
        // (A main thread that has ended is one, too.)
        Some(p) => l.task(me.tid).map_or('Z', |t| {
            if t.trace.is_stopped() {
                't'
            } else if p.group.is_stopping() && !t.trace.is_on() {
                'T'
            } else {
                t.state_letter()
            }
        }),
        None => 'Z',
    }
}

pub(super) fn stat(me: &Subject) -> Result<Vec<u8>> {
    let k = me.kernel()?;
    let st = state(&k, me);
    let t = me.task().ok().or_else(|| me.task.upgrade());
    let (ppid, pgid, sid, threads, exit_signal) = {
        let l = k.tasks.lock();
        let exit_signal = match me.tid == me.tgid {
            true => l.process(me.tgid).map_or(0, |p| p.exit_signal),
            false => -1,
        };
        (
            l.parent(me.tgid),
            l.pgid(me.tgid),
            l.sid(me.tgid),
            l.thread_count(me.tgid),
            exit_signal,
        )
    };
    let told = me.told()?;
    let number = |id| k.tasks.lock().number(id, &me.ns);
    let tty = k.terminals.of(&*me.group()?, sid);
    let [ppid, pgid, sid] = [ppid, pgid, sid].map(number);
    let tty_nr = tty
        .as_ref()
        .map_or(0, |p| vfs::makedev(136, p.index) as i64);
    let tpgid = tty.as_ref().and_then(|p| p.foreground()).map_or(-1, number);
    let g = me.group()?;
    let cpu = k.cpu_time(&g);
    let children = g.cpu_children.get();
    let [utime, stime, cutime, cstime] =
        [cpu.user, cpu.system, children.user, children.system].map(|n| n / 10_000_000);
    let (size, rss, layout) = match (&t, st) {
        (Some(t), s) if s != 'Z' => {
            let mm = t.mm();
            let u = usage(me, &mm);
            // Where things lie is for those who may look inside.
            let layout = if me.shows_all {
                mm.layout()
            } else {
                mm::Layout {
                    start_code: 1,
                    end_code: 1,
                    ..mm::Layout::default()
                }
            };
            (u.size, u.rss / 4096, layout)
        }
        _ => (0, 0, mm::Layout::default()),
    };
    let nice = told.nice;
    let reader = me.reader.upgrade();
    let shift = reader.map_or(0, |t| t.clock_offset(CLOCK_BOOTTIME as i32));
    let start = (told.start - k.boot + shift).max(0) / 10_000_000;
    let rsslim = g.limits.lock().0[limits::RSS].current;
    let mask = told.mask.0;
    let pending = t.as_ref().map_or(0, |t| t.pending.bits().0);
    let scheduling = t
        .as_ref()
        .map_or_else(Scheduling::default, |t| *t.scheduling.read());
    let s = format!(
        "{} ({}) {st} {ppid} {pgid} {sid} {tty_nr} {tpgid} 0 0 0 0 0 {utime} {stime} {cutime} {cstime} {} {nice} {threads} 0 {start} {size} {rss} {rsslim} {} {} {} 0 0 {pending} {mask} 0 0 0 0 0 {exit_signal} 0 {} {} 0 0 0 {} {} {} {} {} {} {} 0\n",
        number(me.tid),
        String::from_utf8_lossy(&told.comm),
        // From the least urgent of the real-time priorities on.
        scheduling.urgency(nice) - 100,
        layout.start_code,
        layout.end_code,
        layout.start_stack,
        scheduling.priority,
        scheduling.policy,
        layout.start_data,
        layout.end_data,
        layout.start_brk,
        layout.arg_start,
        layout.arg_end,
        layout.env_start,
        layout.env_end,
    );
    Ok(s.into_bytes())
}

/// Its sizes. The process itself is told what is so now.
fn usage(me: &Subject, mm: &Arc<mm::Mm>) -> mm::Usage {
    let is_own = (me.reader.upgrade()).is_some_and(|r| Arc::ptr_eq(&r.mm(), mm));
    match is_own {
        true => mm.usage(),
        false => mm.usage_from_outside(),
    }
}

pub(super) fn statm(me: &Subject) -> Result<Vec<u8>> {
    let Ok(t) = me.task() else {
        return Ok(b"0 0 0 0 0 0 0\n".to_vec());
    };
    let u = usage(me, &t.mm());
    let p = |b: u64| b / 4096;
    let shared = u.rss.saturating_sub(u.rss_anon);
    Ok(format!(
        "{} {} {} {} 0 {} 0\n",
        p(u.size),
        p(u.rss),
        p(shared),
        p(u.exec),
        p(u.data)
    )
    .into_bytes())
}

pub(super) fn status(me: &Subject) -> Result<Vec<u8>> {
    let k = me.kernel()?;
    let st = state(&k, me);
    let told = me.told()?;
    let group = me.group()?;
    let task = me.task().ok().or_else(|| me.task.upgrade());
    // What a zombie has no more.
    let alive = task.as_ref().filter(|_| st != 'Z');
    let mut s = String::new();
    identity(&mut s, me, &k, (st, &told), alive);
    if let Some(t) = alive {
        memory(&mut s, &usage(me, &t.mm()), group.core.is_dumping());
    }
    let threads = k.tasks.lock().thread_count(me.tgid);
    let _ = writeln!(s, "Threads:\t{threads}");
    let pending = task.as_ref().map_or(0, |t| t.pending.bits().0);
    signals(&mut s, &group, &told, pending);
    let c = &told.cred;
    for (name, set) in [
        ("Inh", c.inheritable),
        ("Prm", c.permitted),
        ("Eff", c.effective),
        ("Bnd", c.bounding),
        ("Amb", c.ambient),
    ] {
        let _ = writeln!(s, "Cap{name}:\t{:016x}", set.bits());
    }
    let (mask, list) = cpus_allowed(&told.cpus);
    let _ = writeln!(
        s,
        "NoNewPrivs:\t{}\nSeccomp:\t{}\nSeccomp_filters:\t{}\n\
         Speculation_Store_Bypass:\tvulnerable\nCpus_allowed:\t{mask}\nCpus_allowed_list:\t{list}\n\
         Mems_allowed:\t1\nMems_allowed_list:\t0\n\
         voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0",
        i32::from(told.no_new_privs),
        told.seccomp.0,
        told.seccomp.1
    );
    Ok(s.into_bytes())
}

/// From `Name` to `NSsid`.
fn identity(
    s: &mut String,
    me: &Subject,
    k: &Kernel,
    (state, told): (char, &Ended),
    alive: Option<&Arc<Task>>,
) {
    let (ppid, tgid, pid, tracer, numbers) = {
        let l = k.tasks.lock();
        let tracer = l.links.tracer(me.tid).unwrap_or(0);
        let ids = [me.tgid, me.tid, l.pgid(me.tgid), l.sid(me.tgid)];
        (
            l.number(l.parent(me.tgid), &me.ns),
            l.number(me.tgid, &me.ns),
            l.number(me.tid, &me.ns),
            l.number(tracer, &me.ns),
            ids.map(|i| {
                let v = l.numbers_from(i, &me.ns);
                let all: Vec<String> = v.iter().map(ToString::to_string).collect();
                all.join("\t")
            }),
        )
    };
    let long = match state {
        'R' => "running",
        'S' => "sleeping",
        'D' => "disk sleep",
        'T' => "stopped",
        't' => "tracing stop",
        _ => "zombie",
    };
    let _ = writeln!(s, "Name:\t{}", String::from_utf8_lossy(&told.comm));
    if let Some(t) = alive {
        let _ = writeln!(s, "Umask:\t{:04o}", t.fs().umask());
    }
    let _ = writeln!(
        s,
        "State:\t{state} ({long})\nTgid:\t{tgid}\nNgid:\t0\nPid:\t{pid}\nPPid:\t{ppid}\nTracerPid:\t{tracer}"
    );
    let c = &told.cred;
    let [u, e, v, f] = [c.uid, c.euid, c.suid, c.fsuid].map(|u| me.viewer.uid_shown(u));
    let _ = writeln!(s, "Uid:\t{u}\t{e}\t{v}\t{f}");
    let [u, e, v, f] = [c.gid, c.egid, c.sgid, c.fsgid].map(|g| me.viewer.gid_shown(g));
    let _ = writeln!(s, "Gid:\t{u}\t{e}\t{v}\t{f}");
    let size = alive.map_or(0, |t| t.files().capacity());
    let groups: String = c
        .groups
        .iter()
        .map(|g| format!("{} ", me.viewer.gid_shown(*g)))
        .collect();
    let _ = writeln!(s, "FDSize:\t{size}\nGroups:\t{groups}");
    for (name, n) in ["tgid", "pid", "pgid", "sid"].iter().zip(&numbers) {
        let _ = writeln!(s, "NS{name}:\t{n}");
    }
}

/// From `VmPeak` to `THP_enabled`.
fn memory(s: &mut String, u: &mm::Usage, dumps: bool) {
    for (name, bytes) in [
        ("VmPeak", u.peak),
        ("VmSize", u.size),
        ("VmLck", u.locked),
        ("VmPin", 0),
        ("VmHWM", u.rss),
        ("VmRSS", u.rss),
        ("RssAnon", u.rss_anon),
        ("RssFile", u.rss.saturating_sub(u.rss_anon + u.rss_shmem)),
        ("RssShmem", u.rss_shmem),
        ("VmData", u.data),
        ("VmStk", u.stack),
        ("VmExe", u.exec),
        ("VmLib", 0),
        ("VmPTE", 4096),
        ("VmSwap", u.swapped),
    ] {
        let _ = writeln!(s, "{name}:\t{:8} kB", bytes / 1024);
    }
    let dumps = i32::from(dumps);
    let _ = writeln!(s, "CoreDumping:\t{dumps}\nTHP_enabled:\t1");
}

/// From `SigQ` to `SigCgt`. `pending`: of the thread.
fn signals(s: &mut String, group: &ThreadGroup, told: &Ended, pending: u64) {
    let limit = group.limits.lock().0[limits::SIGPENDING].current;
    let queued = told.cred.ucounts().count(vfs::ucounts::Kind::Signals);
    let actions = group.actions();
    let (mut ign, mut cgt) = (0u64, 0u64);
    for sig in (1..=64).filter_map(abi::Signal::new) {
        let bit = 1 << (sig.number() - 1);
        match actions.read().get(sig).handler {
            SIG_DFL => {}
            SIG_IGN => ign |= bit,
            _ => cgt |= bit,
        }
    }
    let _ = writeln!(
        s,
        "SigQ:\t{queued}/{limit}\nSigPnd:\t{pending:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{:016x}\n\
         SigIgn:\t{ign:016x}\nSigCgt:\t{cgt:016x}",
        group.shared.bits().0,
        told.mask.0
    );
}

/// A mask of CPUs as words, the highest first, and as a list of ranges (`%*pb`, `%*pbl`).
fn cpus_allowed(mask: &[u8]) -> (String, String) {
    let has = |cpu: usize| mask.get(cpu / 8).is_some_and(|b| b >> (cpu % 8) & 1 != 0);
    let words = mask.rchunks(4).map(|w| {
        let bits = w.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
        format!("{bits:08x}")
    });
    let words = words.collect::<Vec<_>>().join(",");
    let mut list = String::new();
    for first in (0..mask.len() * 8).filter(|&c| has(c) && (c == 0 || !has(c - 1))) {
        let last = (first..).find(|&c| !has(c + 1)).unwrap_or(first);
        let comma = if list.is_empty() { "" } else { "," };
        let _ = match last - first {
            0 => write!(list, "{comma}{first}"),
            _ => write!(list, "{comma}{first}-{last}"),
        };
    }
    let short = words.trim_start_matches(['0', ',']);
    (short.to_owned(), list)
}

#[cfg(test)]
mod cpu_tests {
    use super::cpus_allowed;

    #[test]
    fn masks_of_cpus() {
        let told = |m: &[u8]| {
            let (mask, list) = cpus_allowed(m);
            format!("{mask} {list}")
        };
        assert_eq!(told(&[3, 0, 0, 0, 0, 0, 0, 0]), "3 0-1");
        assert_eq!(told(&[0b1011, 0, 0, 0, 0, 0, 0, 0]), "b 0-1,3");
        assert_eq!(
            told(&[0xff, 0, 0, 0x80, 1, 0, 0, 0]),
            "1,800000ff 0-7,31-32"
        );
    }
}
