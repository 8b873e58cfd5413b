//! Terminals and job control: what the line discipline asks of the task list.

use crate::Kernel;
use crate::task::ThreadGroup;
use crate::task::task_of;
use abi::signal::{SI_KERNEL, SIGCONT, SIGHUP};
use abi::{SigInfo, Signal};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use tty::{Devpts, JobControl, Process, Pty};

/// The terminals of a sandbox.
pub struct Terminals {
    jobs: Arc<Jobs>,
}

/// Sessions and their controlling terminals.
#[derive(Default)]
pub struct Jobs {
    kernel: OnceLock<Weak<Kernel>>,
    sessions: Mutex<HashMap<i32, Arc<Pty>>>,
    /// Foreground groups to be told when the leader of a session whose terminal hung up exits.
    hung_up: Mutex<HashMap<i32, i32>>,
}

impl Terminals {
    #[must_use]
    pub fn new() -> Terminals {
        Terminals {
            jobs: Arc::default(),
        }
    }
    /// The terminals of one container.
    #[must_use]
    pub fn new_devpts(&self) -> Arc<Devpts> {
        Devpts::new(self.jobs.clone())
    }
    /// Once, when the kernel is made.
    pub fn attach(&self, k: &Arc<Kernel>) {
        let _ = self.jobs.kernel.set(Arc::downgrade(k));
    }
    /// The controlling terminal of a process of this session.
    #[must_use]
    pub fn of(&self, group: &ThreadGroup, sid: i32) -> Option<Arc<Pty>> {
        let has = !group.without_terminal.load(Ordering::Relaxed);
        has.then(|| self.of_session(sid)).flatten()
    }
    /// The controlling terminal of a session.
    #[must_use]
    pub fn of_session(&self, sid: i32) -> Option<Arc<Pty>> {
        self.jobs.sessions.lock().get(&sid).cloned()
    }
    /// Gives a session its terminal.
    pub fn adopt(&self, sid: i32, pty: &Arc<Pty>) {
        pty.adopt(sid, sid);
        self.jobs.sessions.lock().insert(sid, pty.clone());
    }
}

impl Jobs {
    fn kernel(&self) -> Option<Arc<Kernel>> {
        self.kernel.get()?.upgrade()
    }
}

impl JobControl for Jobs {
    fn process(&self, task: &dyn Any) -> Process {
        let Some(t) = task_of(task) else {
            return Process::default();
        };
        // `do`'s program is alone in its session, but never asked to lead one (`signal->leader`):
        // Linux would let it have no terminal but that which it began with.
        let (id, c) = (t.group.tgid, &t.group.container);
        let leads = c.is_managed || c.first() != id || self.sessions.lock().contains_key(&id);
        let l = t.kernel.tasks.lock();
        let (session, group) = (l.sid(t.group.tgid), l.pgid(t.group.tgid));
        Process {
            session,
            group,
            leader: leads && session == id,
            orphaned: l.is_orphaned(group, None),
            admin: t.cred().has(vfs::Caps::SYS_ADMIN),
        }
    }
    fn ignores(&self, task: &dyn Any, signal: Signal) -> bool {
        task_of(task)
            .is_some_and(|t| t.mask().contains(signal) || t.group.actions().read().ignores(signal))
    }
    fn signal_group(&self, group: i32, signal: Signal) {
        if let Some(k) = self.kernel() {
            k.send_to_pgrp(group, SigInfo::new(signal, SI_KERNEL));
        }
    }
    fn number_for(&self, task: &dyn Any, id: i32) -> i32 {
        task_of(task).map_or(0, |t| t.number_of(id))
    }
    fn number_from(&self, task: &dyn Any, id: i32) -> i32 {
        task_of(task).and_then(|t| t.id_of(id).ok()).unwrap_or(0)
    }
    fn session_of(&self, group: i32) -> Option<i32> {
        self.kernel()?.tasks.lock().session_of_group(group)
    }
    fn controlling(&self, task: &dyn Any) -> Option<Arc<Pty>> {
        let t = task_of(task)?;
        let sid = t.kernel.tasks.lock().sid(t.group.tgid);
        t.kernel.terminals.of(&t.group, sid)
    }
    fn set_controlling(&self, task: &dyn Any, tty: Option<Arc<Pty>>) {
        let Some(t) = task_of(task) else { return };
        let sid = t.kernel.tasks.lock().sid(t.group.tgid);
        match tty {
            Some(p) => {
                self.sessions.lock().insert(sid, p);
            }
            // The others of the session keep it.
            None if sid != t.group.tgid => t.group.without_terminal.store(true, Ordering::Relaxed),
            None => {
                self.sessions.lock().remove(&sid);
            }
        }
    }
    fn clear_session(&self, session: i32) {
        self.sessions.lock().remove(&session);
    }
    fn hang_up(&self, session: i32, foreground: i32) {
        self.sessions.lock().remove(&session);
        self.hung_up.lock().insert(session, foreground);
        let Some(k) = self.kernel() else { return };
        let leader = k.tasks.lock().group(session);
        if let Some(g) = leader {
            let _ = k.send_to_group(&g, SigInfo::new(SIGHUP, SI_KERNEL));
            let _ = k.send_to_group(&g, SigInfo::new(SIGCONT, SI_KERNEL));
        }
    }
}

impl Kernel {
    /// A session's leader has ended: its terminal lets go (`disassociate_ctty`).
    pub fn end_session(&self, sid: i32) {
        let jobs = &self.terminals.jobs;
        let old = jobs.hung_up.lock().remove(&sid);
        let foreground = match jobs.sessions.lock().remove(&sid) {
            Some(pty) => {
                let f = pty.foreground();
                pty.release_session();
                f
            }
            None => old,
        };
        if let Some(g) = foreground {
            self.send_to_pgrp(g, SigInfo::new(SIGHUP, SI_KERNEL));
            self.send_to_pgrp(g, SigInfo::new(SIGCONT, SI_KERNEL));
        }
    }
}
