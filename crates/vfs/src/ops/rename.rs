//! renameat2(2).

use super::AsDir;
use super::landlock::Reparent;
use crate::context::{At, PathCx};
use crate::dentry::Dentry;
use crate::inode::RenameFlags;
use crate::mode::Want;
use crate::mount::Path;
use crate::walk::Last;
use crate::watch;
use abi::Result;
use abi::errno::{EBUSY, EEXIST, EINVAL, ENOENT, ENOTDIR, ENOTEMPTY, EXDEV};
use std::sync::Arc;

impl PathCx<'_> {
    /// `renameat2(2)`.
    pub fn rename(
        &self,
        old_at: &At,
        old: &[u8],
        new_at: &At,
        new: &[u8],
        flags: u32,
    ) -> Result<()> {
        let flags = RenameFlags::from_bits(flags).ok_or(EINVAL)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags.intersects(RenameFlags::NOREPLACE | RenameFlags::WHITEOUT) {
            return Err(EINVAL);
        }
        let from = self.resolve_parent(old_at, old)?;
        let to = self.resolve_parent(new_at, new)?;
        if !Arc::ptr_eq(&from.dir.mnt, &to.dir.mnt) {
            return Err(EXDEV);
        }
        let Last::Name(name) = &from.last else {
            return Err(EBUSY);
        };
        let Last::Name(new_name) = &to.last else {
            return Err(if flags.contains(RenameFlags::NOREPLACE) {
                EEXIST
            } else {
                EBUSY
            });
        };
        from.dir.want_write()?;
        let (old_dir, new_dir) = (&from.dir, &to.dir);
        let same_dir = Arc::ptr_eq(&old_dir.dentry, &new_dir.dentry);
        let sb = old_dir.dentry.sb().clone();
        let _rename = (!same_dir).then(|| sb.lock_rename());
        let _locks = lock_both(&old_dir.dentry, &new_dir.dentry);

        let child = old_dir.dentry.lookup_locked(&self.caller, name)?;
        let inode = child.inode()?.clone();
        let target = new_dir.dentry.lookup_locked(&self.caller, new_name)?;
        let plan = Plan {
            old_dir,
            new_dir,
            child: &child,
            target: &target,
            flags,
        };
        plan.fits([from.slashes, to.slashes])?;
        self.landlock_refer(&Reparent {
            file: &child,
            from: old_dir.dentry.clone(),
            to: new_dir,
            target: Some(&target),
            flags,
        })?;
        // Two names of one file: nothing to do.
        if let Ok(t) = target.inode()
            && Arc::ptr_eq(t, &inode)
        {
            return Ok(());
        }
        self.may_rename(&plan)?;
        self.not_mounted(old_dir, &child)?;
        if !target.is_negative() {
            self.not_mounted(new_dir, &target)?;
        }
        // Nobody makes a name in a directory that is being replaced.
        let _t = (target.is_dir() && !exchange).then(|| target.lock_dir());
        old_dir.inode()?.rename(
            &self.caller,
            name,
            &inode,
            new_dir.inode()?,
            new_name,
            target.inode().ok(),
            flags,
        )?;
        plan.done(name, new_name);
        Ok(())
    }

    /// Whether the caller may.
    fn may_rename(&self, p: &Plan<'_>) -> Result<()> {
        self.may_delete(p.old_dir, p.child, kind(p.child))?;
        if p.target.is_negative() {
            self.may_create(p.new_dir)?;
        } else {
            let as_dir = kind(if p.exchange() { p.target } else { p.child });
            self.may_delete(p.new_dir, p.target, as_dir)?;
        }
        if !Arc::ptr_eq(&p.old_dir.dentry, &p.new_dir.dentry) {
            // Their `..` changes.
            if p.child.is_dir() {
                self.permission(&on(p.old_dir, p.child), Want::WRITE)?;
            }
            if p.exchange() && p.target.is_dir() {
                self.permission(&on(p.new_dir, p.target), Want::WRITE)?;
            }
        }
        Ok(())
    }
}

/// What is renamed, to what; both directories are locked.
struct Plan<'a> {
    old_dir: &'a Path,
    new_dir: &'a Path,
    child: &'a Arc<Dentry>,
    /// What stands at the new name; negative for nothing.
    target: &'a Arc<Dentry>,
    flags: RenameFlags,
}

impl Plan<'_> {
    fn exchange(&self) -> bool {
        self.flags.contains(RenameFlags::EXCHANGE)
    }

    /// Whether what there is can be renamed so. `slashes`: after the old name, after the new one.
    fn fits(&self, slashes: [bool; 2]) -> Result<()> {
        let (child, target, exchange) = (self.child, self.target, self.exchange());
        if self.flags.contains(RenameFlags::NOREPLACE) && !target.is_negative() {
            return Err(EEXIST);
        }
        if exchange {
            if target.is_negative() {
                return Err(ENOENT);
            }
            if !target.is_dir() && slashes[1] {
                return Err(ENOTDIR);
            }
        }
        if !child.is_dir() && (slashes[0] || (!exchange && slashes[1])) {
            return Err(ENOTDIR);
        }
        if child.is_dir() && self.new_dir.dentry.is_below(child) {
            return Err(EINVAL);
        }
        if target.is_dir() && self.old_dir.dentry.is_below(target) {
            return Err(if exchange { EINVAL } else { ENOTEMPTY });
        }
        Ok(())
    }

    /// The file system has done it: names move, and watches are told.
    fn done(&self, name: &[u8], new_name: &[u8]) {
        let (old_dir, new_dir) = (&self.old_dir.dentry, &self.new_dir.dentry);
        if self.exchange() {
            Dentry::exchanged(self.child, self.target);
            watch::moved(old_dir, name, new_dir, self.child, None);
            watch::moved(new_dir, new_name, old_dir, self.target, None);
            return;
        }
        old_dir.moved(self.child, new_dir, new_name);
        let over = (!self.target.is_negative()).then_some(self.target);
        watch::moved(old_dir, name, new_dir, self.child, over);
        if self.flags.contains(RenameFlags::WHITEOUT) {
            // A whiteout stands at the old name now: look it up again.
            old_dir.forget(name);
        }
    }
}

fn kind(d: &Arc<Dentry>) -> AsDir {
    if d.is_dir() { AsDir::Yes } else { AsDir::No }
}

fn on(dir: &Path, d: &Arc<Dentry>) -> Path {
    Path {
        mnt: dir.mnt.clone(),
        dentry: d.clone(),
    }
}

/// Locks two directories: an ancestor before its descendant, else by address.
fn lock_both<'a>(
    a: &'a Arc<Dentry>,
    b: &'a Arc<Dentry>,
) -> (
    parking_lot::MutexGuard<'a, ()>,
    Option<parking_lot::MutexGuard<'a, ()>>,
) {
    if Arc::ptr_eq(a, b) {
        return (a.lock_dir(), None);
    }
    let a_first = if b.is_below(a) {
        true
    } else if a.is_below(b) {
        false
    } else {
        Arc::as_ptr(a).addr() < Arc::as_ptr(b).addr()
    };
    let (first, second) = if a_first { (a, b) } else { (b, a) };
    let g = first.lock_dir();
    (g, Some(second.lock_dir()))
}
