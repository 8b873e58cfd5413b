//! What a reader of `fanotify(7)` gets: numbers of processes as it sees them, and descriptors.

use super::pidfd::PidFd;
use super::{Task, task_of};
use crate::ns::pid::Pid;
use abi::errno::ESRCH;
use abi::{Errno, Result};
use ipc::fanotify::{Needs, Numbers, Tasks};
use std::any::Any;
use std::sync::Arc;
use vfs::File;
use vfs::fd_table::{CloseOnExec, Reserved};

const FAN_NOFD: i32 = -1;
const FAN_NOPIDFD: i32 = -1;
const FAN_EPIDFD: i32 = -2;

/// Of all groups.
pub struct Readers;

/// A file that is a reader's when it has been told.
struct Ready<'a>(Reserved<'a>, Arc<File>, CloseOnExec);

impl Tasks for Readers {
    fn deliver(
        &self,
        reader: &dyn Any,
        needs: &Needs<'_>,
        copy: &mut dyn FnMut(Numbers) -> Result<()>,
    ) -> Result<()> {
        let t = task_of(reader).ok_or(ESRCH)?;
        let files = t.files();
        let told = |e: Errno| -e.raw();
        let (mut numbers, mut ready) = (Numbers::NONE, Vec::new());
        let who = needs.who.and_then(|w| w.clone().downcast::<Pid>().ok());
        if let Some(who) = &who {
            let own = Arc::ptr_eq(who, &t.group.pid);
            numbers.pid = match needs.only_own && !own {
                true => 0,
                false => who.seen_in(&t.pid.ns),
            };
        }
        if let Some((path, flags)) = needs.open {
            let open = || {
                let slot = files.reserve(&t.room())?;
                let f = t.with_paths(|p| p.open_watched(path.clone(), flags))?;
                t.heed_confidential(&f)?;
                Ok((slot, f))
            };
            match open() {
                Ok((slot, f)) => {
                    numbers.fd = slot.number();
                    ready.push(Ready(slot, f, CloseOnExec::from_flags(flags)));
                }
                Err(e) if needs.tells_errors => numbers.fd = told(e),
                Err(e) => return Err(e),
            }
        } else {
            numbers.fd = FAN_NOFD;
        }
        if needs.pidfd {
            let made = who.filter(|_| numbers.pid != 0).ok_or(ESRCH);
            let made = made.and_then(|w| {
                let slot = files.reserve(&t.room())?;
                Ok((slot, pidfd(t, &w)?))
            });
            numbers.pidfd = match made {
                Ok((slot, f)) => {
                    let n = slot.number();
                    ready.push(Ready(slot, f, CloseOnExec::Yes));
                    n
                }
                Err(e) if needs.tells_errors => told(e),
                Err(ESRCH) => FAN_NOPIDFD,
                Err(_) => FAN_EPIDFD,
            };
        }
        copy(numbers)?;
        for Ready(slot, f, close) in ready {
            slot.install(f, close);
        }
        Ok(())
    }
}

/// A file of a process that has not been waited for.
fn pidfd(t: &Task, who: &Arc<Pid>) -> Result<Arc<File>> {
    let g = t.kernel.tasks.lock().group(who.id);
    let g = g.filter(|g| Arc::ptr_eq(&g.pid, who)).ok_or(ESRCH)?;
    Ok(PidFd::file(&t.kernel, &g, &t.cred(), 0))
}
