//! Whether a file may get another parent (`current_check_refer_path`).
//!
//! A file that comes to another directory is found by the rules above that one. So besides the
//! rights to make and remove the names, and `REFER` on both sides, no layer may grant more in the
//! new place than it did in the old one. The common mount is where both ways up meet.

use super::{End, ascend, grant, to_make};
use crate::context::PathCx;
use crate::dentry::Dentry;
use crate::inode::RenameFlags;
use crate::landlock::{Domain, FsAccess, Missing};
use crate::mode::FileType;
use crate::mount::Path;
use abi::Result;
use abi::errno::{EACCES, EXDEV};
use std::sync::Arc;

/// What removing a name needs; nothing where there is none.
fn to_remove(d: &Dentry) -> FsAccess {
    match d.file_type() {
        None => FsAccess::empty(),
        Some(FileType::Directory) => FsAccess::REMOVE_DIR,
        Some(_) => FsAccess::REMOVE_FILE,
    }
}

/// A file that is linked or renamed; or, in an exchange, each of the two.
struct Moved<'a> {
    file: &'a Arc<Dentry>,
    /// What its own rules leave.
    own: Missing,
}

impl<'a> Moved<'a> {
    fn new(domain: &Domain, file: &'a Arc<Dentry>) -> Moved<'a> {
        let mut own = Missing::new(domain, FsAccess::all());
        grant(&mut own, domain, file);
        Moved { file, own }
    }
    /// Whether it has no more rights at `to` than it had at `from`.
    fn gains_nothing(&self, from: &Missing, to: &Missing) -> bool {
        let these = match self.file.is_dir() {
            true => FsAccess::all(),
            false => FsAccess::OF_FILES,
        };
        to.covers(from, &self.own, these)
    }
}

/// One of the two directories.
struct Side {
    missing: Missing,
    needed: FsAccess,
}

impl Side {
    /// With what is granted from `dir` up to the root of the mount.
    fn new(domain: &Domain, top: &Arc<Dentry>, dir: Arc<Dentry>, needed: FsAccess) -> Side {
        let mut missing = Missing::new(domain, FsAccess::all());
        let mut at = Some(dir);
        while let Some(d) = at.filter(|_| !missing.is_empty()) {
            grant(&mut missing, domain, &d);
            at = d.parent().filter(|_| !Arc::ptr_eq(&d, top));
        }
        Side { missing, needed }
    }
    /// Whether something but `REFER` is denied.
    fn denies_access(&self) -> bool {
        let needed = self.needed - FsAccess::REFER;
        self.missing.all().intersects(needed)
    }
}

/// The directory that a file is found in: itself, where it is a mount's root.
pub(in crate::ops) fn directory_of(p: &Path) -> Arc<Dentry> {
    let above = p.dentry.parent().filter(|_| !p.is_mount_root());
    above.unwrap_or_else(|| p.dentry.clone())
}

/// A link or rename, by its dentries.
pub(in crate::ops) struct Reparent<'a> {
    pub file: &'a Arc<Dentry>,
    /// The directory that it is found in.
    pub from: Arc<Dentry>,
    pub to: &'a Path,
    /// What stands at the new name of a rename; negative for nothing.
    pub target: Option<&'a Arc<Dentry>>,
    pub flags: RenameFlags,
}

impl Reparent<'_> {
    fn exchanged(&self) -> Option<&Arc<Dentry>> {
        let exchange = self.flags.contains(RenameFlags::EXCHANGE);
        self.target.filter(|_| exchange)
    }
    /// What it needs of the old directory, and of the new one.
    fn needs(&self) -> (FsAccess, FsAccess) {
        let make = |d: &Dentry| d.file_type().map_or(FsAccess::empty(), to_make);
        let (mut old, mut new) = (FsAccess::empty(), make(self.file));
        if let Some(other) = self.exchanged() {
            old |= make(other);
        }
        if let Some(target) = self.target {
            old |= to_remove(self.file);
            new |= to_remove(target);
        }
        (old, new)
    }
}

impl PathCx<'_> {
    /// Whether the caller's domain lets it be: `EACCES` where rights are missing, `EXDEV` where
    /// only the change of parents is.
    pub(in crate::ops) fn landlock_refer(&self, r: &Reparent<'_>) -> Result<()> {
        let Some(domain) = self.files_domain() else {
            return Ok(());
        };
        let (old, new) = r.needs();
        if Arc::ptr_eq(&r.from, &r.to.dentry) {
            return self.landlock(r.to, old | new);
        }
        let top = Path::root_of(&r.to.mnt);
        let refer = FsAccess::REFER;
        let mut from = Side::new(domain, &top.dentry, r.from.clone(), old | refer);
        let mut to = Side::new(domain, &top.dentry, r.to.dentry.clone(), new | refer);
        if from.missing.is_empty() && to.missing.is_empty() {
            return Ok(());
        }
        let child = Moved::new(domain, r.file);
        let other = r.exchanged().map(|d| Moved::new(domain, d));
        let mut compared = false;
        let end = ascend(&top, |d| {
            let done = |a: &Side, b: &Side| a.missing.is_empty() && b.missing.is_empty();
            let fits = |from: &Side, to: &Side| {
                child.gains_nothing(&from.missing, &to.missing)
                    && other
                        .as_ref()
                        .is_none_or(|o| o.gains_nothing(&to.missing, &from.missing))
            };
            if !compared && fits(&from, &to) {
                // From here on only what is needed counts.
                compared = true;
                from.missing.keep(from.needed);
                to.missing.keep(to.needed);
            }
            if !done(&from, &to) {
                grant(&mut from.missing, domain, d);
                grant(&mut to.missing, domain, d);
            }
            done(&from, &to)
        });
        match end {
            End::Granted | End::Internal => Ok(()),
            End::Root if from.denies_access() || to.denies_access() => Err(EACCES),
            End::Root => Err(EXDEV),
        }
    }
}
