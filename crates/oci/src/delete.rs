//! `delete`: the end of a container, and of what it has left.
//!
//! # Invariants
//!
//! - The state goes last: as long as anything of the container may run, it can be found, and
//!   deleted again.
//! - Nothing of it runs once its monitor is gone, whose death takes along all that it started, and,
//!   of a pod's member, the Sentry that it joined has let go of its lock
//!   ([`Dir::lock_for_sandbox`]). A Sentry that does not is ended, with the whole pod.

use crate::container::Container;
use crate::reach::{END_LIMIT, end_process};
use crate::state::{self, Dir, Lock, Record, Status, check_id};
use crate::{Error, Result, Runtime, hooks, network};
use config::limits;
use std::path::Path;
use std::time::Duration;

/// How long another command may hold a container that is to go by force.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// Whether a container that runs, or of which only a part is left, is deleted, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Force {
    No,
    Yes,
}

impl From<bool> for Force {
    /// From an option of a command line.
    fn from(is_given: bool) -> Force {
        if is_given { Force::Yes } else { Force::No }
    }
}

/// `delete`.
///
/// # Errors
///
/// There is no such container, it runs, or it does not end. With [`Force::Yes`] a container that is
/// missing is none.
pub fn delete(rt: &Runtime, id: &str, force: Force) -> Result<()> {
    delete_of(rt, id, force, None)
}

/// The same; with a bundle, only the container that was made from it: one of that name from another
/// is somebody else's, and for this caller there is none.
pub fn delete_of(rt: &Runtime, id: &str, force: Force, bundle: Option<&Path>) -> Result<()> {
    let force = force == Force::Yes;
    let dir = match Dir::open(&rt.root, id) {
        Ok(d) => d,
        // Only where there is none: one that cannot be reached is not deleted.
        Err(_) if force && check_id(id).is_ok() && Dir::is_missing(&rt.root, id) => {
            // A command that was killed may have taken its name, and no more.
            state::sweep(&rt.root);
            return Ok(());
        }
        Err(e) => return Err(e),
    };
    let is_foreign =
        |r: &Record| bundle.is_some_and(|b| b.canonicalize().is_ok_and(|b| b != r.bundle));
    let locked = if force {
        lock_by_force(&dir, &is_foreign)
    } else {
        dir.lock()
    };
    let lock = match locked {
        Ok(l) => Some(l),
        // Another command has deleted it meanwhile.
        Err(_) if force && !dir.is_there() => return Ok(()),
        // No command works on it, and none can come.
        Err(e) if force && dir.is_unlockable() => {
            rt.log.warning(&e.to_string());
            None
        }
        Err(e) => return Err(e),
    };
    let record = match dir.load() {
        Ok(Some(r)) if is_foreign(&r) => {
            return if force {
                Ok(())
            } else {
                Err(Error::NotFound(id.to_owned()))
            };
        }
        Ok(Some(r)) => r,
        // `create` was killed before it had a monitor.
        Ok(None) if force => return remove(&dir, lock),
        Ok(None) => return Err(Error::Incomplete(id.to_owned())),
        // A record that makes no sense goes; one that cannot be read now may tell of a container
        // that runs.
        Err(e) if !force || !dir.is_readable() => return Err(e),
        Err(e) => {
            rt.log.warning(&e.to_string());
            return remove(&dir, lock);
        }
    };
    let c = Container { dir, record };
    if force {
        // A monitor that does not answer ends as well.
        end(&c)?;
    } else {
        match c.status() {
            Status::Stopped | Status::Created => end(&c)?,
            s => {
                return Err(Error::new(format!(
                    "cannot delete container {id} that is not stopped: {s}"
                )));
            }
        }
    }
    network::give_back(rt, &c);
    if let Err(e) = clean_up(&c.dir, &c.record) {
        if c.dir.is_there() {
            return Err(e);
        }
        // Gone, but for files that are left.
        rt.log.warning(&e.to_string());
    }
    drop(lock);
    if let Err(e) = hooks::run("poststop", &c.record.poststop, &c.record, Status::Stopped) {
        rt.log.warning(&e.to_string());
    }
    Ok(())
}

/// The lock's holder may wait for what does not come as long as the container lives: the end of a
/// hook.
fn lock_by_force(dir: &Dir, is_foreign: &dyn Fn(&Record) -> bool) -> Result<Lock> {
    if let Some(l) = dir.lock_within(LOCK_LIMIT)? {
        return Ok(l);
    }
    if let Ok(Some(r)) = dir.load()
        && !is_foreign(&r)
    {
        end_process(r.pid, r.pid_start)?;
    }
    let lock = dir.lock_within(LOCK_LIMIT)?;
    lock.ok_or_else(|| Error::new("another command works on the container, and does not end"))
}

fn remove(dir: &Dir, lock: Option<Lock>) -> Result<()> {
    dir.remove()?;
    drop(lock);
    Ok(())
}

/// Ends all that runs of a container.
fn end(Container { dir, record }: &Container) -> Result<()> {
    end_process(record.pid, record.pid_start)?;
    let Some(s) = &record.sandbox else {
        return Ok(());
    };
    // As long as its Sentry may take to end it, and see that it has ended.
    if dir.is_left_within(limits::KILL)? {
        return Ok(());
    }
    end_process(s.pid, s.pid_start)?;
    if dir.is_left_within(END_LIMIT)? {
        Ok(())
    } else {
        Err(Error::new(format!(
            "the sandbox {} does not end the container: nothing was deleted",
            s.id
        )))
    }
}

/// Removes what a container without a monitor has left.
pub fn clean_up(dir: &Dir, record: &Record) -> Result<()> {
    record.cgroups.remove()?;
    dir.remove()
}
