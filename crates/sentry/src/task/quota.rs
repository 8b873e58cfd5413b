//! How many tasks there may be, and whose.
//!
//! A task costs up to four of the host's threads, which the sandbox has a bounded number of. Of
//! these, and of the places in the table of processes ([`PROCESSES_MAX`]):
//!
//! * nobody but who passes limits (root, CAP_SYS_RESOURCE or CAP_SYS_ADMIN of the initial user
//!   namespace) takes the last [`FOR_ROOT`], so that root can look, and end what goes too far;
//! * nobody but programs that were started from outside (`exec`), and what they start, takes the
//!   last [`FOR_EXEC`];
//! * one user takes at most [`OF_USER`] tasks (and half of the places), counted with the user
//!   namespaces that it owns, and one container of several at most [`OF_CONTAINER`].
//!
//! Before these come Linux's own limits: `RLIMIT_NPROC` by user and user namespace, the `pids`
//! controller. Counts are in [`vfs::ucounts`]; a task holds its part as a [`Counted`], and what is
//! left of it is the zombie's.

use super::Context;
use super::limits::NPROC;
use super::list::TaskList;
use abi::Result;
use abi::errno::{EAGAIN, ENOMEM};
use std::sync::atomic::Ordering;
use vfs::Credentials;
use vfs::ucounts::{Charge, Kind};

/// How many threads a sandbox may have (`kernel.threads-max`). Each costs up to four of the host's
/// (the Sentry's, the application's, and a process's spawner and service thread), and a host of
/// 32,768 process ids must survive a fork bomb.
pub const TASKS_MAX: usize = 4_000;
/// How many processes, with zombies that nobody has waited for: those cost the Sentry's memory
/// only.
pub const PROCESSES_MAX: usize = 32_000;
/// What is kept of the tasks for programs that are started from outside.
pub const FOR_EXEC: usize = 100;
/// What is kept of the others for who passes limits.
pub const FOR_ROOT: usize = 400;
/// The most tasks of one user that does not, and the most of a container that shares its sandbox.
pub const OF_USER: usize = vfs::ucounts::TASKS as usize;
pub const OF_CONTAINER: usize = 3_000;

/// What a task takes of memory: its threads on the host, here and in its process, and the area
/// between them: 87 KB, of which 60 are the host's kernel's (docs/decisions/0029). Bytes. What is
/// missing here must fit in what the host's limit is above the container's, for as many as there
/// may be.
const TASK_MEMORY: u64 = 80 << 10;

/// A task's part of what its user holds.
pub struct Counted {
    /// Until it has ended: itself, and what it takes of the kernel's memory.
    alive: Option<[Charge; 2]>,
    process: Charge,
}

impl Counted {
    /// Counts a task that nothing refuses.
    #[must_use]
    pub fn force(cred: &Credentials) -> Counted {
        let u = cred.ucounts();
        Counted {
            alive: Some([u.force(Kind::Tasks, 1), u.force(Kind::Kmem, TASK_MEMORY)]),
            process: u.force(Kind::Processes, 1),
        }
    }
    /// It has ended, and waits to be waited for.
    #[must_use]
    pub fn into_zombie(mut self) -> Counted {
        self.alive = None;
        self
    }
    /// Whether it counts for the user of these credentials.
    #[must_use]
    pub fn is_of(&self, cred: &Credentials) -> bool {
        std::sync::Arc::ptr_eq(self.process.user(), cred.ucounts())
    }
}

/// Whether RLIMIT_NPROC is not for these (`copy_process`).
fn is_exempt(cred: &Credentials) -> bool {
    cred.uid == 0 || cred.passes_limits()
}

/// How many tasks a process with so many descriptors may have: each takes three or more of them.
#[must_use]
pub fn tasks_for(descriptors: u64) -> usize {
    usize::try_from(descriptors / 5).map_or(TASKS_MAX, |n| n.clamp(16, TASKS_MAX))
}

/// How many of `max` tasks or processes are kept from whom.
fn kept(max: usize, from_outside: bool, exempt: bool) -> usize {
    let (exec, root) = (FOR_EXEC.min(max / 8), FOR_ROOT.min(max / 8));
    match (from_outside, exempt) {
        (true, _) => 0,
        (false, true) => exec,
        (false, false) => exec + root,
    }
}

/// Counts a task that the caller is about to make, which will have these credentials; `EAGAIN`
/// where there are enough.
pub fn admit(cx: &Context, l: &TaskList, cred: &Credentials) -> Result<Counted> {
    let exempt = is_exempt(&cx.cred());
    let outside = cx.group.from_outside.load(Ordering::Relaxed);
    let most = cx.kernel.tasks_max;
    if l.task_count() >= most - kept(most, outside, exempt)
        || l.process_count() >= PROCESSES_MAX - kept(PROCESSES_MAX, outside, exempt)
        || cx.group.container.is_full()
    {
        return Err(EAGAIN);
    }
    if exempt {
        return Ok(Counted::force(cred));
    }
    cred.may_take_more(ENOMEM)?;
    let limit = cx.group.limits.lock().0[NPROC].current;
    let u = cred.ucounts();
    let process = u.charge(Kind::Processes, 1, limit).ok_or(EAGAIN)?;
    let task = u.charge(Kind::Tasks, 1, u64::MAX).ok_or(EAGAIN)?;
    let memory = u.charge(Kind::Kmem, TASK_MEMORY, u64::MAX).ok_or(ENOMEM)?;
    Ok(Counted {
        alive: Some([task, memory]),
        process,
    })
}

/// Whether a process that has changed its user since then may not become another program: its user
/// has too many (`PF_NPROC_EXCEEDED`, execve(2)'s `EAGAIN`).
#[must_use]
pub fn is_over(t: &super::Task) -> bool {
    let cred = t.cred();
    let limit = t.group.limits.lock().0[NPROC].current;
    !is_exempt(&cred) && cred.ucounts().count(Kind::Processes) as u64 > limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_users_leave_room_for_root_and_exec() {
        assert!(2 * vfs::ucounts::PROCESSES as usize <= PROCESSES_MAX);
        assert_eq!(
            kept(TASKS_MAX, false, false),
            kept(TASKS_MAX, false, true) + FOR_ROOT
        );
        assert_eq!(
            kept(TASKS_MAX, false, true),
            kept(TASKS_MAX, true, false) + FOR_EXEC
        );
        assert_eq!(kept(TASKS_MAX, true, true), 0);
    }
}
