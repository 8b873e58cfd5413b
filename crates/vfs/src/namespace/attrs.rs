//! Changing what mounts forbid, and with whom they share.

use super::{ATIME, MountNamespace, Recursive, subtree};
use crate::mount::{Mount, MountFlags, Path};
use crate::peers::Propagation;
use abi::Result;
use abi::errno::{EBUSY, EINVAL, EPERM};
use std::sync::Arc;

/// What mount_setattr(2) does to each mount: `clear`, then `set`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttrChange {
    pub set: MountFlags,
    pub clear: MountFlags,
    pub propagation: Option<Propagation>,
}

/// Whether a mount may have these flags: none that is locked goes, and access times stay where
/// anything is (`can_change_locked_flags`).
fn may_have(m: &Mount, flags: MountFlags) -> Result<()> {
    let kept = m.kept();
    let access = m.flags().symmetric_difference(flags) & ATIME;
    if !flags.contains(kept - ATIME) || kept.intersects(ATIME) && !access.is_empty() {
        return Err(EPERM);
    }
    Ok(())
}

/// Gives mounts their flags, all or none: `EBUSY` where one that is to be read-only is written to.
fn apply(changes: &[(Arc<Mount>, MountFlags)]) -> Result<()> {
    let old: Vec<_> = changes.iter().map(|(m, _)| m.flags()).collect();
    for (m, f) in changes {
        m.set_flags(*f);
    }
    // Who opens for writing counts first and looks at the flags afterwards.
    let busy = changes
        .iter()
        .zip(&old)
        .any(|((m, f), old)| (*f - *old).contains(MountFlags::RDONLY) && m.has_writers());
    if busy {
        for ((m, _), old) in changes.iter().zip(&old) {
            m.set_flags(*old);
        }
        return Err(EBUSY);
    }
    Ok(())
}

impl MountNamespace {
    /// `MS_REMOUNT|MS_BIND`: changes one mount's flags. (How access times go stays as it is if
    /// `new` was not asked to say it: [`MountFlags::remounted`].)
    pub fn set_flags(&self, path: &Path, flags: MountFlags) -> Result<()> {
        let _g = self.registry.lock.lock();
        if !path.is_mount_root() || !self.owns(&path.mnt) {
            return Err(EINVAL);
        }
        may_have(&path.mnt, flags)?;
        apply(&[(
            path.mnt.clone(),
            flags | path.mnt.flags() & MountFlags::OURS,
        )])?;
        self.core.changed.tell();
        Ok(())
    }

    /// Whether [`MountNamespace::set_flags`] would be allowed.
    pub fn may_set_flags(&self, path: &Path, flags: MountFlags) -> Result<()> {
        if !path.is_mount_root() || !self.owns(&path.mnt) {
            return Err(EINVAL);
        }
        may_have(&path.mnt, flags)
    }

    /// mount_setattr(2), for one mount or a tree: all of it or nothing.
    pub fn change(&self, path: &Path, c: AttrChange, recursive: Recursive) -> Result<()> {
        let _g = self.registry.lock.lock();
        let m = &path.mnt;
        if !path.is_mount_root() || !self.owns(m) && self.detached_root(m).is_none() {
            return Err(EINVAL);
        }
        let all = match recursive {
            Recursive::Yes => subtree(m),
            Recursive::No => vec![m.clone()],
        };
        let mut changes = Vec::with_capacity(all.len());
        for m in &all {
            let new = (m.flags() - c.clear) | c.set;
            may_have(m, new)?;
            changes.push((m.clone(), new));
        }
        apply(&changes)?;
        if let Some(p) = c.propagation {
            all.iter().for_each(|m| self.propagate(m, p));
        }
        self.core.changed.tell();
        Ok(())
    }

    /// `MS_SHARED` and its kin, for one mount or a tree.
    pub fn set_propagation(&self, path: &Path, p: Propagation, recursive: Recursive) -> Result<()> {
        let _g = self.registry.lock.lock();
        if !path.is_mount_root() || path.mnt.namespace() == 0 {
            return Err(EINVAL);
        }
        let all = match recursive {
            Recursive::Yes => subtree(&path.mnt),
            Recursive::No => vec![path.mnt.clone()],
        };
        all.iter().for_each(|m| self.propagate(m, p));
        Ok(())
    }

    /// `change_mnt_propagation`. Under the mount lock; nothing where its tree has begun to end.
    fn propagate(&self, m: &Arc<Mount>, p: Propagation) {
        let peers = &self.registry.peers;
        let change = || {
            let mut f = m.flags();
            match p {
                Propagation::Shared => {
                    f -= MountFlags::UNBINDABLE;
                    peers.share(m);
                }
                Propagation::Slave => peers.make_slave(m),
                Propagation::Private | Propagation::Unbindable => {
                    f.set(MountFlags::UNBINDABLE, p == Propagation::Unbindable);
                    peers.leave(m);
                }
            }
            m.set_flags(f);
        };
        if let Some(core) = self.core_of(m) {
            core.while_alive(change);
        }
    }
}
