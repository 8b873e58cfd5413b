//! Extended attributes (`xattr(7)`).

use crate::context::{At, PathCx};
use crate::cred::Caps;
use crate::file::File;
use crate::inode::Inode;
use crate::mode::{FileType, Want, owner_or_capable};
use crate::mount::Path;
use crate::walk::Walk;
use abi::Result;
use abi::errno::{E2BIG, EBADF, EINVAL, ENODATA, EOPNOTSUPP, EPERM, ERANGE};
use abi::linux::{S_ISVTX, XATTR_CREATE, XATTR_NAME_MAX, XATTR_REPLACE, XATTR_SIZE_MAX};

/// What an attribute's operation is on.
pub enum XattrOf<'a> {
    Path { at: At, path: &'a [u8], walk: Walk },
    File(&'a File),
}

impl PathCx<'_> {
    fn xattr_place(&self, of: &XattrOf<'_>) -> Result<Path> {
        match of {
            XattrOf::Path { at, path, walk } => self.resolve(at, path, *walk),
            XattrOf::File(f) if f.flags() & crate::file::O_PATH != 0 => Err(EBADF),
            XattrOf::File(f) => f.path.clone().ok_or(EOPNOTSUPP),
        }
    }

    /// `xattr_permission`, and the capabilities' module's part of it.
    fn xattr_permission(&self, p: &Path, name: &[u8], want: Want) -> Result<()> {
        let write = want.contains(Want::WRITE);
        let refused = if write { EPERM } else { ENODATA };
        if write {
            p.want_write()?;
            super::file_flags::may_change(&**p.inode()?)?;
        }
        let inode = p.inode()?;
        if name.starts_with(b"security.") {
            let cap = if name == b"security.capability" {
                Caps::SETFCAP
            } else {
                Caps::SYS_ADMIN
            };
            let perm = inode.perm()?;
            let may = if cap == Caps::SETFCAP {
                self.cred().has_over(cap, perm.uid, perm.gid)
            } else {
                self.cred().has(cap)
            };
            return if write && !may { Err(EPERM) } else { Ok(()) };
        }
        if name.starts_with(b"system.") {
            return Ok(());
        }
        if name.starts_with(b"trusted.") {
            return if self.cred().has(Caps::SYS_ADMIN) {
                Ok(())
            } else {
                Err(refused)
            };
        }
        if name.starts_with(b"user.") {
            let kind = inode.file_type();
            if !matches!(kind, FileType::Regular | FileType::Directory) {
                return Err(refused);
            }
            let perm = inode.perm()?;
            if kind == FileType::Directory
                && perm.mode & S_ISVTX != 0
                && write
                && !owner_or_capable(perm, self.cred())
            {
                return Err(EPERM);
            }
        }
        self.permission(p, want)
    }

    /// `getxattr(2)` and its kin.
    pub fn get_xattr(&self, of: &XattrOf<'_>, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        let p = self.xattr_place(of)?;
        self.xattr_permission(&p, name, Want::READ)?;
        known(&**p.inode()?, name)?;
        p.inode()?.get_xattr(name)
    }

    /// `setxattr(2)` and its kin.
    pub fn set_xattr(&self, of: &XattrOf<'_>, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        if flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
            return Err(EINVAL);
        }
        check_name(name)?;
        if value.len() > XATTR_SIZE_MAX as usize {
            return Err(E2BIG);
        }
        let p = self.xattr_place(of)?;
        let inode = p.inode()?;
        let _held = inode.lock_attributes();
        self.xattr_permission(&p, name, Want::WRITE)?;
        known(&**inode, name)?;
        inode.set_xattr(name, value, flags)?;
        crate::watch::happened(&p.dentry, crate::watch::IN_ATTRIB);
        Ok(())
    }

    /// `removexattr(2)` and its kin.
    pub fn remove_xattr(&self, of: &XattrOf<'_>, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let p = self.xattr_place(of)?;
        let inode = p.inode()?;
        let _held = inode.lock_attributes();
        self.xattr_permission(&p, name, Want::WRITE)?;
        known(&**inode, name)?;
        inode.remove_xattr(name)?;
        crate::watch::happened(&p.dentry, crate::watch::IN_ATTRIB);
        Ok(())
    }

    /// `listxattr(2)` and its kin: the names, each with a NUL behind it.
    pub fn list_xattr(&self, of: &XattrOf<'_>) -> Result<Vec<u8>> {
        let p = self.xattr_place(of)?;
        let mut out = Vec::new();
        for name in p.inode()?.list_xattr()? {
            if name.starts_with(b"trusted.") && !self.cred().has(Caps::SYS_ADMIN) {
                continue;
            }
            out.extend_from_slice(&name);
            out.push(0);
        }
        if out.len() > XATTR_SIZE_MAX as usize {
            return Err(E2BIG);
        }
        Ok(out)
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX as usize {
        Err(ERANGE)
    } else {
        Ok(())
    }
}

/// The name spaces that exist here; ACLs (`system.`) do not, but where the file's server has them.
fn known(inode: &dyn Inode, name: &[u8]) -> Result<()> {
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match spaces.iter().find(|s| name.starts_with(s)) {
        Some(s) if name.len() == s.len() => Err(EINVAL),
        Some(_) => Ok(()),
        None if inode.takes_any_xattr() => Ok(()),
        None => Err(EOPNOTSUPP),
    }
}
