//! flock(2) and fcntl(2)'s record locks, from an open file.

use crate::context::PathCx;
use crate::file::File;
use crate::locks::{Conflict, FileLocks, LockKind, LockRange, Owner};
use abi::Result;
use abi::errno::{EBADF, ENOLCK};

/// Whether to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    No,
    Yes,
}

fn locks(file: &File) -> Result<&FileLocks> {
    if file.flags() & crate::file::O_PATH != 0 {
        return Err(EBADF);
    }
    match &file.path {
        Some(p) => Ok(p.inode()?.ext().locks()),
        None => Ok(file.own_locks()),
    }
}

/// It is to have one, which `/proc/locks` shows.
fn list(file: &File) {
    if let Some(Ok(inode)) = file.path.as_ref().map(crate::Path::inode) {
        crate::listed::list(inode);
    }
}

impl PathCx<'_> {
    /// `flock(2)`: `None` unlocks. `pid` is the caller's process.
    pub fn flock(&self, file: &File, kind: Option<LockKind>, pid: i32, wait: Wait) -> Result<()> {
        let blocker = (wait == Wait::Yes).then_some(self.blocker);
        let locks = locks(file)?;
        if kind.is_some() {
            list(file);
        }
        locks.flock(file.id, kind, pid, blocker)
    }
    /// `F_GETLK`, `F_OFD_GETLK`.
    pub fn get_lock(
        &self,
        file: &File,
        owner: Owner,
        kind: LockKind,
        range: LockRange,
    ) -> Result<Option<Conflict>> {
        Ok(locks(file)?.test(owner, kind, range))
    }
    /// `F_SETLK`, `F_SETLKW` and their OFD kin: `None` unlocks. `pid` is what `F_GETLK` shall show
    /// (-1 for an open file's). `ENOLCK` where the caller's user has no more memory.
    pub fn set_lock(
        &self,
        file: &File,
        owner: Owner,
        kind: Option<LockKind>,
        range: LockRange,
        pid: i32,
        wait: Wait,
    ) -> Result<()> {
        let l = locks(file)?;
        match kind {
            None => l.unlock(owner, range),
            Some(LockKind::Read) if !file.readable() => Err(EBADF),
            Some(LockKind::Write) if !file.writable() => Err(EBADF),
            Some(k) => {
                self.cred().may_take_more(ENOLCK)?;
                list(file);
                let user = self.cred().ucounts();
                if wait == Wait::No {
                    return l.lock(owner, k, range, pid, user);
                }
                let (graph, blocker) = (&self.vfs.lock_waits, self.blocker);
                l.lock_wait(owner, k, range, pid, user, graph, blocker)
            }
        }
    }
}
