//! wait4(2) and waitid(2).

use super::Context;
use super::list::{Process, TaskList};
use super::signal::{CLD_CONTINUED, CLD_DUMPED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, CLD_TRAPPED};
use super::trace::Keep;
use super::trace::links::Dead;
use crate::ns::pid::Pid;
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
    /// It is a stop of a tracee's.
    pub traced: bool,
}

impl Change {
    /// As waitid(2) tells it.
    #[must_use]
    pub fn info(&self) -> SigInfo {
        let s = self.status;
        let (code, value) = if s == 0xffff {
            (CLD_CONTINUED, SIGCONT.number())
        } else if s & 0xff == 0x7f {
            let why = if self.traced {
                CLD_TRAPPED
            } else {
                CLD_STOPPED
            };
            (why, s >> 8)
        } else if s & 0x7f == 0 {
            (CLD_EXITED, s >> 8)
        } else if s & super::coredump::DUMPED != 0 {
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

/// What a wait looks for.
struct Looking<'a> {
    cx: &'a Context,
    who: Who,
    options: u32,
    /// Whether there is anybody who may have something to tell later.
    any: bool,
}

/// What was found, and what is to be done about it without the list's lock.
enum Found {
    Change(Change),
    /// A zombie that was waited for.
    Reaped(Change, Unlinked),
}

/// What goes when the lock is let go.
#[derive(Default)]
struct Unlinked {
    _process: Option<Box<Process>>,
    _thread: Option<Box<Dead>>,
    /// Its parent, another process, is to see it now.
    untraced: Option<i32>,
}

fn look(cx: &Context, who: Who, options: u32) -> Result<Option<Change>> {
    let mut w = Looking {
        cx,
        who,
        options,
        any: false,
    };
    let found = {
        let mut l = cx.kernel.tasks.lock();
        w.children(&mut l).or_else(|| w.tracees(&mut l))
    };
    match found {
        Some(Found::Change(c)) => Ok(Some(c)),
        Some(Found::Reaped(c, gone)) => {
            if let Some(tgid) = gone.untraced {
                cx.kernel.untraced_zombie(tgid, &cx.group);
            }
            Ok(Some(c))
        }
        None if w.any => Ok(None),
        None => Err(ECHILD),
    }
}

impl Looking<'_> {
    fn has(&self, option: u32) -> bool {
        self.options & option != 0
    }

    fn keep(&self) -> Keep {
        match self.has(WNOWAIT) {
            true => Keep::Yes,
            false => Keep::No,
        }
    }

    fn change(&self, pid: &Pid, uid: u32, status: i32) -> Change {
        Change {
            pid: pid.seen_in(&self.cx.pid.ns),
            uid: self.cx.cred().user_ns.uid_shown(uid),
            status,
            cpu: Default::default(),
            traced: false,
        }
    }

    fn children(&mut self, l: &mut TaskList) -> Option<Found> {
        let me = self.cx.group.tgid;
        let children: Vec<i32> = match self.who {
            Who::Pid(p) if l.parent(p) != me || l.process(p).is_none() => return None,
            Who::Pid(p) => vec![p],
            _ => l
                .process(me)
                .map(|p| p.children.iter().copied().collect())
                .unwrap_or_default(),
        };
        children.into_iter().find_map(|c| self.child(l, c))
    }

    fn child(&mut self, l: &mut TaskList, c: i32) -> Option<Found> {
        // What its tracer sees first, and whether that is the caller.
        let tracer = l.tracer_group(c);
        let traced = tracer.is_some();
        let mine = tracer.is_some_and(|g| g.tgid == self.cx.group.tgid);
        let p = l.process(c)?;
        if let Who::Group(g) = self.who
            && p.pgid != g
        {
            return None;
        }
        // Of another thread, as long as that is there.
        let other = p.maker != self.cx.tid
            && l.process(self.cx.group.tgid)
                .is_some_and(|me| me.threads.contains_key(&p.maker));
        if self.has(__WNOTHREAD) && other {
            return None;
        }
        // A "clone" child is one whose end sends another signal than SIGCHLD.
        let is_clone = p.exit_signal != SIGCHLD.number();
        if !mine && !self.has(__WALL) && is_clone != self.has(__WCLONE) {
            return None;
        }
        if p.zombie.is_some() {
            return self.zombie(
                l,
                c,
                if mine {
                    !l.links.has_dead_of(c)
                } else {
                    !traced
                },
            );
        }
        self.any = true;
        if mine {
            // It shows its group's stop by its own.
            return self.stopped(l, c).or_else(|| self.continued(l, c));
        }
        let (stop, keep) = (self.has(WSTOPPED), self.has(WNOWAIT));
        let p = l.process_mut(c)?;
        if stop && let Some(s) = p.stop_report {
            if !keep {
                p.stop_report = None;
            }
            let (pid, uid) = (p.group.pid.clone(), p.uid());
            return Some(Found::Change(self.change(&pid, uid, (s << 8) | 0x7f)));
        }
        self.continued(l, c)
    }

    /// A process that has ended; `ready`: and nobody is to see that first.
    fn zombie(&mut self, l: &mut TaskList, c: i32, ready: bool) -> Option<Found> {
        let p = l.process(c)?;
        let status = p.zombie?;
        // It has nothing to tell to those who do not ask for ends.
        self.any |= self.has(WEXITED);
        if !self.has(WEXITED) || !ready {
            return None;
        }
        let mut change = self.change(&p.group.pid, p.uid(), status);
        change.cpu = p.cpu + p.group.cpu_children.get();
        if self.has(WNOWAIT) {
            return Some(Found::Change(change));
        }
        if p.parent != self.cx.group.tgid {
            // Its tracer has seen it.
            l.links.remove(c);
            let gone = Unlinked {
                untraced: Some(c),
                ..Unlinked::default()
            };
            return Some(Found::Reaped(change, gone));
        }
        self.cx.group.cpu_children.add(change.cpu);
        let gone = Unlinked {
            _process: l.reap(c).map(Box::new),
            ..Unlinked::default()
        };
        Some(Found::Reaped(change, gone))
    }

    fn stopped(&self, l: &TaskList, id: i32) -> Option<Found> {
        let t = l.task(id)?;
        let status = t.trace.tell(self.keep())?;
        let mut change = self.change(&t.pid, t.cred().uid, status);
        change.traced = true;
        Some(Found::Change(change))
    }

    fn continued(&self, l: &mut TaskList, tgid: i32) -> Option<Found> {
        let (wanted, keep) = (self.has(WCONTINUED), self.has(WNOWAIT));
        let p = l
            .process_mut(tgid)
            .filter(|p| wanted && p.continue_report)?;
        if !keep {
            p.continue_report = false;
        }
        let (pid, uid) = (p.group.pid.clone(), p.uid());
        Some(Found::Change(self.change(&pid, uid, 0xffff)))
    }

    /// Those whom the caller's threads trace, whoever's children they are.
    fn tracees(&mut self, l: &mut TaskList) -> Option<Found> {
        if l.links.is_empty() {
            return None;
        }
        let threads = &l.process(self.cx.group.tgid)?.threads;
        let waits = |t: &i32| !self.has(__WNOTHREAD) || *t == self.cx.tid;
        if let Who::Pid(p) = self.who {
            let tracer = l.links.tracer(p)?;
            if !threads.contains_key(&tracer) || !waits(&tracer) {
                return None;
            }
            return self.tracee(l, p);
        }
        let tracers = threads.keys().filter(|t| waits(t));
        let ids: Vec<i32> = tracers.flat_map(|t| l.links.tracees(*t)).collect();
        ids.into_iter().find_map(|id| self.tracee(l, id))
    }

    fn tracee(&mut self, l: &mut TaskList, id: i32) -> Option<Found> {
        let tgid = match (l.task(id), l.links.dead(id)) {
            (Some(t), _) => t.group.tgid,
            (None, Some(d)) => d.group.tgid,
            (None, None) => id,
        };
        let in_group = match self.who {
            Who::Group(g) => l.pgid(tgid) == g,
            _ => true,
        };
        // Children were looked at.
        if !in_group || id == tgid && l.parent(tgid) == self.cx.group.tgid {
            return None;
        }
        if l.task(id).is_some() {
            self.any = true;
            return self.stopped(l, id);
        }
        if let Some(d) = l.links.dead(id) {
            self.any |= self.has(WEXITED);
            if !self.has(WEXITED) {
                return None;
            }
            let change = self.change(&d.pid, d.cred.uid, d.status);
            if self.has(WNOWAIT) {
                return Some(Found::Change(change));
            }
            let gone = Unlinked {
                _thread: l.bury(id).map(Box::new),
                ..Unlinked::default()
            };
            return Some(Found::Reaped(change, gone));
        }
        // A main thread: its process's end is its own.
        match l.process(id)?.zombie {
            Some(_) => {
                let ready = !l.links.has_dead_of(id);
                self.zombie(l, id, ready)
            }
            None => {
                self.any = true;
                None
            }
        }
    }
}
