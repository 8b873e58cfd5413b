//! What a thread answers itself, in application code.
//!
//! Others change what it is, too, and call [`Task::withdraw_local`] then: they say that it is
//! stale, and then take back what has been told. `Context::publish` says that it is not stale, then
//! looks it up, tells it, and asks whether it is stale by now; so what was looked up before a
//! change does not stay told after it.

use crate::task::{Context, Task};
use abi::nr;
use platform::lanes::Local;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often what a thread may answer itself is looked up, where it changes meanwhile.
const PUBLISH_TRIES: usize = 4;

/// Whether what a task is has changed since its thread was told.
pub struct Stale(AtomicBool);

impl Default for Stale {
    /// Nothing was told yet.
    fn default() -> Stale {
        Stale(AtomicBool::new(true))
    }
}

impl Context {
    /// Tells the application thread what it may answer itself.
    pub(super) fn publish(&mut self) {
        // (Without lanes it stays stale, and nothing is looked up.)
        if !self.task.lanes.local.0.load(Ordering::SeqCst) || self.thread.lanes().is_none() {
            return;
        }
        for _ in 0..PUBLISH_TRIES {
            if !self.task.lanes.local.0.swap(false, Ordering::SeqCst) {
                return;
            }
            let local = self.local();
            if let Some(l) = self.thread.lanes() {
                l.publish(Some(local));
            }
        }
        // Somebody changes it again and again: so the Sentry is asked this time.
        if let Some(l) = self.thread.lanes() {
            l.publish(None);
        }
        self.task.local_is_stale();
    }

    /// What calls give that are answered where they are made.
    fn local(&self) -> Local {
        let allowed = self.task.seccomp.always();
        let cred = self.task.cred();
        // What another namespace shows changes with its maps.
        let known = cred.user_ns.is_initial();
        let (parent, pgid, sid) = {
            let l = self.task.kernel.tasks.lock();
            let number = |id| l.number(id, &self.task.pid.ns) as u32;
            let me = self.task.group.tgid;
            (number(l.parent(me)), number(l.pgid(me)), number(l.sid(me)))
        };
        let names = allowed(nr::UNAME).then(|| self.task.utsname());
        let local = Local::new(|nr| {
            let word = match nr {
                nr::GETPID => self.task.group.pid.own() as u32,
                nr::GETTID => self.task.pid.own() as u32,
                nr::GETPPID => parent,
                nr::GETPGRP | nr::GETPGID => pgid,
                nr::GETSID => sid,
                // Done where they are made.
                nr::RT_SIGPROCMASK | nr::SCHED_YIELD | nr::UNAME | nr::SIGALTSTACK | nr::FUTEX => 0,
                _ if !known => return None,
                nr::GETUID => cred.uid,
                nr::GETEUID => cred.euid,
                nr::GETGID => cred.gid,
                nr::GETEGID => cred.egid,
                _ => return None,
            };
            allowed(nr).then_some(word)
        });
        match names {
            Some(n) => local.with_names(n),
            None => local,
        }
    }
}

impl Task {
    /// By this task only, which stands still: it is told anew when it goes on.
    pub fn local_is_stale(&self) {
        self.lanes.local.0.store(true, Ordering::SeqCst);
    }

    /// What it is has changed by another's doing, or its filters have, which must see the calls,
    /// too, that are answered where they are made: when this returns, they ask the Sentry. After
    /// the change.
    pub fn withdraw_local(&self) {
        self.local_is_stale();
        if let Some(i) = &*self.interrupter.lock()
            && let Some(l) = i.lanes()
        {
            l.withdraw();
        }
        // Where they were published anew meanwhile, by what they are now, they are again.
        self.local_is_stale();
        let mm = self.mm();
        let Some(l) = mm.address_space().lanes() else {
            return;
        };
        if !self.seccomp.allows_read_slots() {
            l.end_read_slots();
        } else if !self.seccomp.allows_counts() {
            l.end_counts();
        }
    }
}
