//! A task's keyrings through its life (`copy_creds`, `prepare_exec_creds`, `commit_creds`).

use super::Task;
use super::clone::CloneFlags;
use abi::Result;
use abi::errno::EPERM;
use keys::{Act, Rings, Survives};
use std::sync::Arc;
use vfs::Credentials;

/// What is made of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewTask {
    Process,
    Thread,
}

impl NewTask {
    #[must_use]
    pub fn by(flags: CloneFlags) -> NewTask {
        match flags.contains(CloneFlags::CLONE_THREAD) {
            true => NewTask::Thread,
            false => NewTask::Process,
        }
    }
}

impl Task {
    /// Does something with keys as this task, of which it is the thread.
    pub fn with_keys<R>(&self, f: impl FnOnce(&mut Act<'_>) -> R) -> R {
        let cred = self.cred();
        let mut rings = self.keyrings.lock();
        f(&mut self.group.container.keys.act(&cred, &mut rings))
    }
    /// Those that a new task begins with. A thread gets one of its own if its maker has one.
    #[must_use]
    pub fn keyrings_of(&self, what: NewTask) -> Rings {
        let own = self.keyrings.lock();
        if what == NewTask::Process {
            return own.inherit(Survives::Session);
        }
        let mut new = own.inherit(Survives::Process);
        if own.has_threads() {
            // Without it where there is no memory for it.
            let _ = self
                .group
                .container
                .keys
                .act(&self.cred(), &mut new)
                .begin_thread();
        }
        new
    }
    /// Those that all threads of its process share.
    #[must_use]
    pub(super) fn shared_keyrings(&self) -> Rings {
        self.keyrings.lock().inherit(Survives::Process)
    }
    /// It ends, or another takes its place: it has none any more. Gives those that it had.
    pub(super) fn take_keyrings(&self) -> Rings {
        std::mem::take(&mut *self.keyrings.lock())
    }
    /// It becomes another program, which has the session's keyring alone.
    pub fn keep_session_keyring(&self) {
        let mut own = self.keyrings.lock();
        let new = own.inherit(Survives::Session);
        let old = std::mem::replace(&mut *own, new);
        drop(own);
        drop(old);
    }
    /// Its credentials changed: the thread's keyring is its user's.
    pub(super) fn keyring_follows(&self, old: &Credentials, new: &Credentials) {
        if (old.fsuid, old.fsgid) == (new.fsuid, new.fsgid) {
            return;
        }
        let mut rings = self.keyrings.lock();
        if rings.has_threads() {
            let keys = &self.group.container.keys;
            keys.act(new, &mut rings).owner_changed();
        }
    }
    /// The parent gets this task's session (`KEYCTL_SESSION_TO_PARENT`): `EPERM` where it is not
    /// the same user's.
    pub fn give_session_to_parent(&self) -> Result<()> {
        let (serial, owner) = self.with_keys(|a| a.session_to_give())?;
        let session = self.keyrings.lock().session().ok_or(EPERM)?;
        let parent = self.lone_parent().ok_or(EPERM)?;
        let theirs = parent.with_keys(|a| a.session_owner());
        if theirs.is_some_and(|(k, _)| k == serial) {
            return Ok(());
        }
        let (me, them) = (self.cred(), parent.cred());
        let owners = [Some(owner), theirs.map(|(_, uid)| uid)];
        if [them.uid, them.euid, them.suid] != [me.euid; 3]
            || [them.gid, them.egid, them.sgid] != [me.egid; 3]
            || owners.into_iter().flatten().any(|uid| uid != me.euid)
        {
            return Err(EPERM);
        }
        let old = parent.keyrings.lock().set_session(session);
        drop(old);
        Ok(())
    }
    /// The parent, if it has one thread and is not the first process.
    fn lone_parent(&self) -> Option<Arc<Task>> {
        let l = self.kernel.tasks.lock();
        let tgid = l.parent(self.group.tgid);
        let group = l.group(tgid)?;
        let same = Arc::ptr_eq(&group.container, &self.group.container);
        (tgid > 1 && same && l.thread_count(tgid) == 1)
            .then(|| l.some_thread(tgid))
            .flatten()
    }
}
