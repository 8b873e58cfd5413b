//! Who may look into, or change, another process (`ptrace_may_access`, `kernel/ptrace.c`), and what
//! keeps the answer true.
//!
//! - All questions of this kind go through [`may_access`]; what differs is whose ids and
//!   capabilities of the caller's count ([`By`]).
//! - execve(2) installs the new memory and the new credentials in one step of
//!   [`ThreadGroup::exec_update`]. A caller that reads something of a process after a check holds
//!   it shared over both ([`guarded`]), so it never has new memory by the old credentials. Nothing
//!   under it sleeps.
//! - [`CredMutex`] is held from before execve(2) computes credentials until they are installed, and
//!   by whatever changes what another thread's credentials follow from
//!   (`SECCOMP_FILTER_FLAG_TSYNC`). execve(2) waits for the other threads' ends with it held; their
//!   sleeps on it end when they are killed.

use super::{Context, Task, ThreadGroup};
use abi::Result;
use abi::errno::{EAGAIN, EPERM, ERESTARTNOINTR};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::userns::UserNs;
use vfs::{Caps, Credentials};
use wait::{Events, WaitQueue};

/// What of the caller counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// File system ids and effective capabilities (`PTRACE_MODE_FSCREDS`): what is reached by a
    /// name in /proc.
    Fs,
    /// Real ids and permitted capabilities (`PTRACE_MODE_REALCREDS`): system calls.
    Real,
}

/// Whether `caller` may look into `target`; `EPERM`.
pub fn may_access(caller: &Task, target: &Task, by: By) -> Result<()> {
    if Arc::ptr_eq(&caller.group, &target.group) {
        return Ok(());
    }
    may_access_as(&caller.cred(), target, by)
}

/// As [`may_access`], for the holder of these credentials, who is no thread of the target's.
pub fn may_access_as(cred: &Credentials, target: &Task, by: By) -> Result<()> {
    let mm = target.mm();
    let privacy = mm.privacy();
    let owner = (!privacy.is_dumpable()).then(|| privacy.user_ns());
    check(cred, &target.real_cred(), owner.as_ref(), by)
}

/// As [`may_access_as`], for a process without memory, that ended with the credentials `it`.
pub fn may_access_ended(cred: &Credentials, it: &Credentials, by: By) -> Result<()> {
    check(cred, it, None, by)
}

/// The rule itself; `private` is the user namespace that owns the memory, where that is not
/// dumpable.
fn check(me: &Credentials, it: &Credentials, private: Option<&UserNs>, by: By) -> Result<()> {
    let ((uid, gid), caps) = match by {
        By::Fs => ((me.fsuid, me.fsgid), me.effective),
        By::Real => ((me.uid, me.gid), me.permitted),
    };
    let capable = |ns: &UserNs| me.has_in(ns, Caps::SYS_PTRACE);
    let same = [it.uid, it.euid, it.suid] == [uid; 3] && [it.gid, it.egid, it.sgid] == [gid; 3];
    let mine = same || capable(&it.user_ns);
    let open = private.is_none_or(capable);
    // Its user does not reach one that has more rights, or has them elsewhere
    // (`cap_ptrace_access_check`).
    let no_more = me.user_ns == it.user_ns && caps.contains(it.permitted);
    let within = vfs::landlock::may_trace(me.landlock.as_ref(), it.landlock.as_ref());
    if mine && open && (no_more || capable(&it.user_ns)) && within {
        Ok(())
    } else {
        Err(EPERM)
    }
}

/// What `read` gives of a task that `caller` may look into. No execve(2) comes between check and
/// reading; `read` must not sleep.
pub fn guarded<T>(
    caller: &Task,
    target: &Task,
    by: By,
    read: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let _same_program = target.group.exec_update.read();
    may_access(caller, target, by)?;
    read()
}

/// The memory of a task (`mm_access`): one's own always.
pub fn memory(caller: &Task, target: &Task, by: By) -> Result<Arc<mm::Mm>> {
    let _same_program = target.group.exec_update.read();
    let mm = target.mm();
    if !Arc::ptr_eq(&mm, &caller.mm()) {
        may_access(caller, target, by)?;
    }
    Ok(mm)
}

/// Whether `new` has no capability that `old` has not, or that is not `old`'s owner's to have
/// (`cred_cap_issubset`).
fn no_more_capable(old: &Credentials, new: &Credentials) -> bool {
    if old.user_ns == new.user_ns {
        return old.permitted.contains(new.permitted);
    }
    let mut at = new.user_ns.clone();
    while let Some(parent) = at.parent() {
        if parent == old.user_ns && at.owner() == old.euid {
            return true;
        }
        at = parent;
    }
    false
}

impl Task {
    /// Changes the task's own credentials (`commit_creds`): after a gain the memory is private, and
    /// the parent's death tells nothing any more. Its memory's limit of locks goes by them.
    pub fn commit_cred(&self, new: Credentials) {
        let old = self.cred();
        let ids = |c: &Credentials| [c.euid, c.fsuid, c.egid, c.fsgid];
        if ids(&old) != ids(&new) || !no_more_capable(&old, &new) {
            self.mm().privacy().set_dumpable(mm::Dumpable::No);
            self.pdeath_signal.store(0, Ordering::Relaxed);
        }
        let locks = |c: &Credentials| c.has(Caps::IPC_LOCK);
        let changes = locks(&old) != locks(&new);
        self.set_cred(new);
        if changes {
            self.mm().set_limits(self.mm_limits());
        }
    }
}

/// A mutex whose waiters can be killed (`signal_struct::cred_guard_mutex`).
#[derive(Default)]
pub struct CredMutex {
    held: AtomicBool,
    freed: WaitQueue,
}

/// [`CredMutex`], held.
pub struct CredMutexGuard(Arc<ThreadGroup>);

impl CredMutex {
    /// The caller's process's; `ERESTARTNOINTR` where something else must be looked at first, its
    /// end for one.
    pub fn lock(cx: &Context) -> Result<CredMutexGuard> {
        CredMutex::lock_of(cx, &cx.group)
    }

    /// As [`CredMutex::lock`], another's.
    pub fn lock_of(cx: &Context, group: &Arc<ThreadGroup>) -> Result<CredMutexGuard> {
        let me = &group.cred_mutex;
        let take = || match me.held.swap(true, Ordering::SeqCst) {
            false => Ok(()),
            true => Err(EAGAIN),
        };
        cx.block(&[(&me.freed, Events::IN)], None, take)
            .map_err(|_| ERESTARTNOINTR)?;
        Ok(CredMutexGuard(group.clone()))
    }
}

impl Drop for CredMutexGuard {
    fn drop(&mut self) {
        self.0.cred_mutex.held.store(false, Ordering::SeqCst);
        self.0.cred_mutex.freed.notify(Events::IN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::userns::Registry;

    fn may(me: &Credentials, it: &Credentials, by: By) -> bool {
        check(me, it, None, by).is_ok()
    }

    #[test]
    fn all_ids_and_capabilities_count() {
        let a = Credentials::user(1000, 1000, vec![]);
        let b = Credentials::user(1001, 1000, vec![]);
        let root = Credentials::root();
        assert!(may(&a, &a, By::Real) && may(&root, &a, By::Fs));
        assert!(!may(&a, &b, By::Real) && !may(&a, &root, By::Fs));
        for change in [
            |c: &mut Credentials| c.suid = 0,
            |c: &mut Credentials| c.euid = 0,
            |c: &mut Credentials| c.sgid = 0,
            |c: &mut Credentials| c.permitted = Caps::KILL,
        ] {
            let mut raised = a.clone();
            change(&mut raised);
            assert!(!may(&a, &raised, By::Real) && !may(&a, &raised, By::Fs));
        }
        // A set-uid program acts by its real ids in system calls, by its file system ids on names.
        let mut raised = a.clone();
        (raised.euid, raised.fsuid) = (1001, 1001);
        assert!(may(&raised, &a, By::Real) && !may(&raised, &a, By::Fs));
        assert!(may(&raised, &b, By::Fs) && !may(&raised, &b, By::Real));
    }

    #[test]
    fn user_namespaces_shut_their_makers_equals_out() {
        let r = Registry::default();
        let a = Credentials::user(1000, 1000, vec![]);
        let inside = UserNs::create(&r, &a).unwrap();
        let ns = inside.user_ns.clone();
        // Its owner reaches in; what is inside does not reach out, not even to its own user's.
        assert!(may(&a, &inside, By::Real) && !may(&inside, &a, By::Real));
        assert!(no_more_capable(&a, &inside) && !no_more_capable(&inside, &a));
        // Memory that is not dumpable belongs to a namespace.
        let own = UserNs::default();
        assert!(check(&a, &a, Some(&own), By::Fs).is_err());
        assert!(check(&inside, &inside, Some(&ns), By::Fs).is_ok());
        assert!(check(&inside, &inside, Some(&own), By::Fs).is_err());
        assert!(check(&Credentials::root(), &a, Some(&own), By::Fs).is_ok());
    }
}
