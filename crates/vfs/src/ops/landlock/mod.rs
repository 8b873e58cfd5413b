//! What a domain says of operations on files and names (`security/landlock/fs.c`).
//!
//! Whether a file may get another parent is [`refer`]. Each look goes from the file up to its root,
//! over mounts, until all is granted. Where the caller has no domain it costs one look at a
//! pointer.

mod refer;

pub(super) use refer::{Reparent, directory_of};

use crate::context::PathCx;
use crate::cred::Credentials;
use crate::dentry::Dentry;
use crate::file::File;
use crate::landlock::{Denied, Domain, FileKey, FsAccess, Missing, Ruleset, Subject};
use crate::mode::FileType;
use crate::mount::Path;
use abi::Result;
use abi::errno::{EACCES, EBADFD, EINVAL, ENOMEM, EPERM};
use std::sync::Arc;

/// What making a name of this type needs.
pub(super) fn to_make(kind: FileType) -> FsAccess {
    match kind {
        FileType::Symlink => FsAccess::MAKE_SYM,
        FileType::Directory => FsAccess::MAKE_DIR,
        FileType::Char => FsAccess::MAKE_CHAR,
        FileType::Block => FsAccess::MAKE_BLOCK,
        FileType::Fifo => FsAccess::MAKE_FIFO,
        FileType::Socket => FsAccess::MAKE_SOCK,
        FileType::Regular => FsAccess::MAKE_REG,
    }
}

/// `LANDLOCK_RULE_PATH_BENEATH`: grants rights at a place and below it. `EBADFD` for places that
/// nobody can mount.
pub fn allow_beneath(
    rules: &Ruleset,
    p: &Path,
    allowed: FsAccess,
    cred: &Credentials,
) -> Result<()> {
    if p.mnt.is_internal() {
        return Err(EBADFD);
    }
    if !p.is_dir() && !FsAccess::OF_FILES.contains(allowed) {
        return Err(EINVAL);
    }
    let inode = p.inode()?;
    let file = Subject {
        key: FileKey::of(inode),
        _dentry: p.dentry.clone(),
        _held: cred.hold(inode.host_user())?,
    };
    rules.allow_file(file, allowed, &|n| cred.kmem(n, ENOMEM))
}

/// Takes away what the rules for the file of `at` grant.
fn grant(missing: &mut Missing, domain: &Domain, at: &Dentry) {
    if let Ok(inode) = at.inode() {
        missing.grant(domain, FileKey::of(inode));
    }
}

/// Where a way up ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Nothing was left to be asked.
    Granted,
    /// Nobody can have mounted it: namespaces, pipes, memory files.
    Internal,
    /// The root of what is mounted.
    Root,
}

/// Goes from `p` up, until `done` is so.
pub(super) fn ascend(p: &Path, mut done: impl FnMut(&Arc<Dentry>) -> bool) -> End {
    // A mount of the kernel's own with names in it is like any other (mqueue).
    if p.mnt.is_internal() && (p.is_mount_root() || p.dentry.parent().is_none()) {
        return End::Internal;
    }
    let mut p = p.clone();
    loop {
        if done(&p.dentry) {
            return End::Granted;
        }
        // What a mount hides is not asked.
        while p.is_mount_root() {
            match p.mnt.parent() {
                Some((mnt, at)) => p = Path { mnt, dentry: at },
                None => return End::Root,
            }
        }
        match p.dentry.parent() {
            Some(d) => p.dentry = d,
            // It was moved out of what is mounted: go on from there.
            None => p.dentry = p.mnt.root.clone(),
        }
    }
}

/// What of `wanted` the domain denies at `p`.
fn denied(domain: &Domain, p: &Path, wanted: FsAccess) -> FsAccess {
    let mut missing = Missing::new(domain, wanted);
    if missing.is_empty() {
        return FsAccess::empty();
    }
    let end = ascend(p, |d| {
        grant(&mut missing, domain, d);
        missing.is_empty()
    });
    match end {
        End::Granted | End::Internal => FsAccess::empty(),
        End::Root => missing.all(),
    }
}

impl PathCx<'_> {
    /// The caller's domain, if it is about files.
    pub(super) fn files_domain(&self) -> Option<&Domain> {
        let domain = self.caller.cred.landlock.as_ref();
        domain.filter(|d| d.confines_files())
    }

    /// `EACCES` where the caller's domain denies any of `wanted` at `p`.
    pub(crate) fn landlock(&self, p: &Path, wanted: FsAccess) -> Result<()> {
        match self.files_domain() {
            Some(d) if !denied(d, p, wanted).is_empty() => Err(EACCES),
            _ => Ok(()),
        }
    }

    /// `EPERM` where the caller's domain is about files: what it denies by place must stay where it
    /// is.
    pub fn landlock_mounts(&self) -> Result<()> {
        may_change_mounts(self.caller.cred)
    }

    /// `EACCES` where `p` may not be opened so (`hook_file_open`). Gives what the open file may not
    /// do.
    pub(crate) fn landlock_open(
        &self,
        p: &Path,
        kind: FileType,
        wanted: FsAccess,
    ) -> Result<Denied> {
        let Some(domain) = self.files_domain() else {
            return Ok(Denied::default());
        };
        let mut later = FsAccess::TRUNCATE;
        if matches!(kind, FileType::Char | FileType::Block) {
            later |= FsAccess::IOCTL_DEV;
        }
        let denied = denied(domain, p, wanted | later);
        if denied.intersects(wanted) {
            return Err(EACCES);
        }
        let mut left = Denied::empty();
        left.set(Denied::TRUNCATE, denied.contains(FsAccess::TRUNCATE));
        left.set(Denied::IOCTL, denied.contains(FsAccess::IOCTL_DEV));
        Ok(left)
    }
}

/// See [`PathCx::landlock_mounts`].
pub(crate) fn may_change_mounts(cred: &Credentials) -> Result<()> {
    match &cred.landlock {
        Some(d) if d.confines_files() => Err(EPERM),
        _ => Ok(()),
    }
}

/// Commands for devices that are the same for all files (`is_masked_device_ioctl`).
const EVERY_FILES: [u32; 14] = [
    0x5450,      // FIONCLEX
    0x5451,      // FIOCLEX
    0x5421,      // FIONBIO
    0x5452,      // FIOASYNC
    0x5460,      // FIOQSIZE
    0xc004_5877, // FIFREEZE
    0xc004_5878, // FITHAW
    0xc020_660b, // FS_IOC_FIEMAP
    2,           // FIGETBSZ
    0x4004_9409, // FICLONE
    0x4020_940d, // FICLONERANGE
    0xc018_9436, // FIDEDUPERANGE
    0x8011_1500, // FS_IOC_GETFSUUID
    0x8081_1501, // FS_IOC_GETFSSYSFSPATH
];

impl File {
    /// `EACCES` for a command of a device's that whoever opened it was denied.
    pub fn may_control(&self, command: u32) -> Result<()> {
        if self.denied().contains(Denied::IOCTL) && !EVERY_FILES.contains(&command) {
            return Err(EACCES);
        }
        Ok(())
    }
}
