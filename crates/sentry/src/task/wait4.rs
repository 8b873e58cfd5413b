//! wait4(2) and waitid(2).

use super::Context;
use super::signal::{CLD_CONTINUED, CLD_DUMPED, CLD_EXITED, CLD_KILLED, CLD_STOPPED};
use abi::errno::{EAGAIN, ECHILD, EINVAL};
use abi::linux::{__WALL, __WCLONE, __WNOTHREAD, WCONTINUED, WEXITED, WNOHANG, WNOWAIT, WSTOPPED};
use abi::signal::{SIGCHLD, SIGCONT};
use abi::{Result, SigInfo};
use wait::Events;

/// Which children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Any,
    Pid(i32),
    Group(i32),
}

/// A child's change of state.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Its number as the waiter sees it.
    pub pid: i32,
    pub uid: u32,
    /// The status word of wait4(2).
    pub status: i32,
    /// CPU time of an ended child and those that it waited for.
    pub cpu: super::cpu::Cpu,
}

impl Change {
    /// As waitid(2) tells it.
    #[must_use]
    pub fn info(&self) -> SigInfo {
        let s = self.status;
        let (code, value) = if s == 0xffff {
            (CLD_CONTINUED, SIGCONT.number())
        } else if s & 0xff == 0x7f {
            (CLD_STOPPED, s >> 8)
        } else if s & 0x7f == 0 {
            (CLD_EXITED, s >> 8)
        } else if s & 0x80 != 0 {
            (CLD_DUMPED, s & 0x7f)
        } else {
            (CLD_KILLED, s & 0x7f)
        };
        let mut i = SigInfo::child(code, self.pid, self.uid, value);
        i.signo = SIGCHLD.number();
        i
    }
}

/// Waits for a change of a child. `None` with WNOHANG where nothing changed.
pub fn wait(cx: &Context, who: Who, options: u32) -> Result<Option<Change>> {
    let known =
        WNOHANG | WEXITED | WSTOPPED | WCONTINUED | WNOWAIT | __WALL | __WCLONE | __WNOTHREAD;
    if options & !known != 0 {
        return Err(EINVAL);
    }
    let q = &cx.group.child_wait;
    let attempt = || look(cx, who, options)?.map_or(Err(EAGAIN), |c| Ok(Some(c)));
    if options & WNOHANG != 0 {
        return match attempt() {
            Err(EAGAIN) => Ok(None),
            r => r,
        };
    }
    cx.block(&[(q, Events::IN)], None, attempt)
}

fn look(cx: &Context, who: Who, options: u32) -> Result<Option<Change>> {
    let mut l = cx.kernel.tasks.lock();
    let me = cx.group.tgid;
    let children: Vec<i32> = match who {
        Who::Pid(p) => {
            if l.parent(p) != me || l.process(p).is_none() {
                return Err(ECHILD);
            }
            vec![p]
        }
        _ => l
            .process(me)
            .map(|p| p.children.iter().copied().collect())
            .unwrap_or_default(),
    };
    let mut any = false;
    for c in children {
        let Some(p) = l.process_mut(c) else { continue };
        if let Who::Group(g) = who
            && p.pgid != g
        {
            continue;
        }
        // A "clone" child is one whose end sends another signal than SIGCHLD.
        let is_clone = p.exit_signal != SIGCHLD.number();
        if options & __WALL == 0 && is_clone != (options & __WCLONE != 0) {
            continue;
        }
        // A zombie has nothing to tell to those who do not ask for ends.
        any |= p.zombie.is_none() || options & WEXITED != 0;
        let number = p.group.pid.seen_in(&cx.pid.ns);
        let keep = options & WNOWAIT != 0;
        let uid = p.uid();
        let uid = cx.cred().user_ns.uid_shown(uid);
        if let Some(status) = p.zombie {
            if options & WEXITED == 0 {
                continue;
            }
            let change = Change {
                pid: number,
                uid,
                status,
                cpu: p.cpu + p.group.cpu_children.get(),
            };
            if !keep {
                cx.group.cpu_children.add(change.cpu);
                let gone = l.reap(c);
                drop(l);
                drop(gone);
            }
            return Ok(Some(change));
        }
        if options & WSTOPPED != 0
            && let Some(s) = p.stop_report
        {
            if !keep {
                p.stop_report = None;
            }
            return Ok(Some(Change {
                pid: number,
                uid,
                status: (s << 8) | 0x7f,
                cpu: Default::default(),
            }));
        }
        if options & WCONTINUED != 0 && p.continue_report {
            if !keep {
                p.continue_report = false;
            }
            return Ok(Some(Change {
                pid: number,
                uid,
                status: 0xffff,
                cpu: Default::default(),
            }));
        }
    }
    if any { Ok(None) } else { Err(ECHILD) }
}
