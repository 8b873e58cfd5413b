//! Making and removing names: mkdir, mknod, symlink, link, unlink, rmdir; and working directories.

use super::landlock::{Reparent, directory_of};
use super::{AsDir, file_flags};
use crate::context::{At, PathCx};
use crate::cred::Caps;
use crate::dentry::Dentry;
use crate::inode::{Inode, NewNode, RenameFlags};
use crate::landlock::FsAccess;
use crate::mode::{FileType, Want};
use crate::mount::Path;
use crate::vfs::{DeviceUse, DeviceWant};
use crate::walk::{Last, Place, Walk};
use crate::watch;
use abi::Result;
use abi::errno::{
    EBUSY, EEXIST, EINVAL, EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, EXDEV,
};
use abi::linux::{AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, S_IFMT, S_ISVTX};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl PathCx<'_> {
    /// Makes a name at the end of `path` (`filename_create`): `make` is called with the directory,
    /// the name and what the file shall be like.
    fn make(
        &self,
        at: &At,
        path: &[u8],
        mode: u32,
        kind: FileType,
        make: impl FnOnce(&Path, &[u8], NewNode) -> Result<Arc<dyn Inode>>,
    ) -> Result<Path> {
        let parent = self.resolve_parent(at, path)?;
        let Last::Name(name) = parent.last else {
            return Err(EEXIST);
        };
        let dir = parent.dir;
        let _g = dir.dentry.lock_dir();
        self.expect_missing(&dir, &name)?;
        let new = if parent.slashes && kind != FileType::Directory {
            Err(ENOENT)
        } else {
            self.may_make(&dir, mode, kind)
        };
        let new = new.map_err(|e| self.not_made(&dir, &name, e))?;
        let inode = make(&dir, &name, new).map_err(|e| self.not_made(&dir, &name, e))?;
        file_flags::inherit(&dir, &*inode)?;
        let dentry = dir.dentry.attach(&name, Some(inode));
        watch::created(&dir.dentry, &dentry);
        Ok(Path {
            mnt: dir.mnt.clone(),
            dentry,
        })
    }

    /// `mkdirat(2)`.
    pub fn mkdir(&self, at: &At, path: &[u8], mode: u32) -> Result<Path> {
        let mode = mode & (0o777 | S_ISVTX);
        self.make(at, path, mode, FileType::Directory, |dir, name, new| {
            dir.inode()?.mkdir(&self.caller, name, new)
        })
    }

    /// `mknodat(2)`; `rdev` as [`crate::makedev`] encodes it.
    pub fn mknod(&self, at: &At, path: &[u8], mode: u32, rdev: u64) -> Result<Path> {
        let kind = match mode & S_IFMT {
            0 => FileType::Regular,
            m => FileType::from_mode(m).ok_or(EINVAL)?,
        };
        match kind {
            FileType::Directory => return Err(EPERM),
            FileType::Symlink => return Err(EINVAL),
            // A character device 0:0 is overlayfs' whiteout, which anyone may make.
            FileType::Char | FileType::Block
                if !self.cred().has(Caps::MKNOD) && (kind == FileType::Block || rdev != 0) =>
            {
                return Err(EPERM);
            }
            _ => {}
        }
        // Asked before anything is locked, and heard where Linux asks.
        let allowed = if kind == FileType::Block || kind == FileType::Char && rdev != 0 {
            self.vfs.devices.may(|| {
                Ok(DeviceUse {
                    kind,
                    rdev,
                    want: DeviceWant::MKNOD,
                    caller: self.caller,
                })
            })
        } else {
            Ok(())
        };
        self.make(at, path, mode, kind, |dir, name, new| {
            let d = dir.inode()?;
            allowed?;
            match kind {
                FileType::Regular => d.create(&self.caller, name, new),
                _ => d.mknod(&self.caller, name, kind, rdev, new),
            }
        })
    }

    /// `symlinkat(2)`.
    pub fn symlink(&self, target: &[u8], at: &At, path: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Err(ENOENT);
        }
        if target.len() >= crate::PATH_MAX {
            return Err(ENAMETOOLONG);
        }
        self.make(at, path, 0o777, FileType::Symlink, |dir, name, new| {
            dir.inode()?.symlink(&self.caller, name, target, new)
        })?;
        Ok(())
    }

    /// `linkat(2)`; `flags`: `AT_SYMLINK_FOLLOW`, `AT_EMPTY_PATH`.
    pub fn link(&self, old_at: &At, old: &[u8], new_at: &At, new: &[u8], flags: u32) -> Result<()> {
        if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(EINVAL);
        }
        let mut walk = Walk::empty();
        if flags & AT_SYMLINK_FOLLOW != 0 {
            walk |= Walk::FOLLOW;
        }
        if flags & AT_EMPTY_PATH != 0 {
            // Or the file must have been opened with these credentials.
            let same = old_at
                .file()
                .is_ok_and(|f| Arc::ptr_eq(&f.cred, self.cred()));
            if old.is_empty() && !same && !self.cred().has(Caps::DAC_READ_SEARCH) {
                return Err(ENOENT);
            }
            walk |= Walk::EMPTY;
        }
        let source = match self.resolve_or_file(old_at, old, walk)? {
            Place::Path(p) => p,
            Place::File(_) => return Err(EXDEV),
        };
        let parent = self.resolve_parent(new_at, new)?;
        let Last::Name(name) = parent.last else {
            return Err(EEXIST);
        };
        let dir = parent.dir;
        let _g = dir.dentry.lock_dir();
        self.expect_missing(&dir, &name)?;
        let inode = source.inode()?;
        let nameless = &inode.ext().linkable;
        let may = || {
            if parent.slashes {
                return Err(ENOENT);
            }
            dir.want_write()?;
            if !Arc::ptr_eq(&source.mnt, &dir.mnt) {
                return Err(EXDEV);
            }
            self.may_link(&**inode)?;
            self.landlock_refer(&Reparent {
                file: &source.dentry,
                from: directory_of(&source),
                to: &dir,
                target: None,
                flags: RenameFlags::empty(),
            })?;
            self.may_create(&dir)?;
            if inode.file_type() == FileType::Directory {
                return Err(EPERM);
            }
            if !Arc::ptr_eq(source.dentry.sb(), dir.dentry.sb()) {
                return Err(EXDEV);
            }
            file_flags::may_change(&**inode)?;
            if !nameless.load(Ordering::Relaxed) && inode.stat()?.nlink == 0 {
                return Err(ENOENT);
            }
            Ok(())
        };
        may().map_err(|e| self.not_made(&dir, &name, e))?;
        dir.inode()?
            .link(&self.caller, &name, inode)
            .map_err(|e| self.not_made(&dir, &name, e))?;
        nameless.store(false, Ordering::Relaxed);
        let made = dir.dentry.attach(&name, Some(inode.clone()));
        watch::changed(&source.dentry, watch::IN_ATTRIB);
        watch::created(&dir.dentry, &made);
        watch::linked(&source.dentry, &made);
        Ok(())
    }

    /// `unlinkat(2)` without `AT_REMOVEDIR`.
    pub fn unlink(&self, at: &At, path: &[u8]) -> Result<()> {
        let parent = self.resolve_parent(at, path)?;
        let Last::Name(name) = parent.last else {
            return Err(EISDIR);
        };
        let slashes = parent.slashes;
        self.unlink_in(&parent.dir, &name, |victim| {
            match (slashes, victim.is_dir()) {
                (false, _) => {}
                (true, true) => return Err(EISDIR),
                (true, false) => return Err(ENOTDIR),
            }
            parent.dir.want_write()?;
            self.landlock(&parent.dir, FsAccess::REMOVE_FILE)
        })
    }

    /// Removes a file's name from a directory, if `fits` says so.
    pub(super) fn unlink_in(
        &self,
        dir: &Path,
        name: &[u8],
        fits: impl FnOnce(&Dentry) -> Result<()>,
    ) -> Result<()> {
        let (victim, inode);
        {
            let _g = dir.dentry.lock_dir();
            victim = dir.dentry.lookup_locked(&self.caller, name)?;
            inode = victim.inode()?.clone();
            fits(&victim)?;
            dir.want_write()?;
            self.may_delete(dir, &victim, AsDir::No)?;
            self.not_mounted(dir, &victim)?;
            dir.inode()?.unlink(&self.caller, name, &inode)?;
            dir.dentry.removed(&victim);
            watch::removed(&dir.dentry, &victim);
        }
        // The last references go without the lock: freeing a large file takes time.
        drop((victim, inode));
        Ok(())
    }

    /// `rmdir(2)`, `unlinkat(AT_REMOVEDIR)`.
    pub fn rmdir(&self, at: &At, path: &[u8]) -> Result<()> {
        let parent = self.resolve_parent(at, path)?;
        let name = match parent.last {
            Last::Name(n) => n,
            Last::DotDot => return Err(ENOTEMPTY),
            Last::Dot => return Err(EINVAL),
            Last::Root => return Err(EBUSY),
        };
        let dir = parent.dir;
        let _g = dir.dentry.lock_dir();
        let victim = dir.dentry.lookup_locked(&self.caller, &name)?;
        let inode = victim.inode()?;
        dir.want_write()?;
        self.landlock(&dir, FsAccess::REMOVE_DIR)?;
        self.may_delete(&dir, &victim, AsDir::Yes)?;
        self.not_mounted(&dir, &victim)?;
        // Its lock: nobody makes a name in it between the check for emptiness and the removal.
        let _v = victim.lock_dir();
        dir.inode()?.rmdir(&self.caller, &name, inode)?;
        dir.dentry.removed(&victim);
        watch::removed(&dir.dentry, &victim);
        Ok(())
    }

    /// `EBUSY` where something is mounted on `d` in this namespace.
    pub(super) fn not_mounted(&self, dir: &Path, d: &Arc<Dentry>) -> Result<()> {
        if !d.is_mountpoint() {
            return Ok(());
        }
        if dir.mnt.child_at(d).is_some() {
            return Err(EBUSY);
        }
        let ns = self.fs.ns();
        let busy = ns
            .mounts()
            .iter()
            .any(|m| m.parent().is_some_and(|(_, at)| Arc::ptr_eq(&at, d)));
        if busy { Err(EBUSY) } else { Ok(()) }
    }

    /// `readlinkat(2)`: an empty path names an `O_PATH` descriptor of a link.
    pub fn readlink(&self, at: &At, path: &[u8]) -> Result<Vec<u8>> {
        let p = self.resolve(at, path, Walk::EMPTY)?;
        let inode = p.inode()?;
        if inode.file_type() != FileType::Symlink {
            return Err(if path.is_empty() { ENOENT } else { EINVAL });
        }
        inode.touch();
        inode.readlink(&self.caller)
    }

    /// `getcwd(2)`.
    pub fn getcwd(&self) -> Result<Vec<u8>> {
        let name = self.fs.cwd().describe(&self.fs.root());
        if name.deleted {
            return Err(ENOENT);
        }
        if !name.reachable {
            let mut v = b"(unreachable)".to_vec();
            v.extend_from_slice(&name.name);
            return Ok(v);
        }
        Ok(name.name)
    }

    /// `chdir(2)`.
    pub fn chdir(&self, path: &[u8]) -> Result<()> {
        let p = self.resolve(&At::Cwd, path, Walk::FOLLOW | Walk::DIRECTORY)?;
        self.access_permission(&p, Want::EXEC)?;
        self.fs.set_cwd(p);
        Ok(())
    }

    /// `fchdir(2)`.
    pub fn fchdir(&self, file: &crate::File) -> Result<()> {
        let p = file.path.clone().ok_or(ENOTDIR)?;
        if !p.is_dir() {
            return Err(ENOTDIR);
        }
        self.access_permission(&p, Want::EXEC)?;
        self.fs.set_cwd(p);
        Ok(())
    }

    /// `chroot(2)`.
    pub fn chroot(&self, path: &[u8]) -> Result<()> {
        let p = self.resolve(&At::Cwd, path, Walk::FOLLOW | Walk::DIRECTORY)?;
        self.access_permission(&p, Want::EXEC)?;
        if !self.cred().has_own(Caps::SYS_CHROOT) {
            return Err(EPERM);
        }
        self.fs.set_root(p);
        Ok(())
    }
}
