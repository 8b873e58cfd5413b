//! open(2), openat2(2), opening for execve(2), and bound sockets.

use super::counts::{ExecGuard, ReadAccess, WriteAccess};
use super::file_flags;
use crate::context::{At, PathCx};
use crate::file::{
    File, FileOps, O_ACCMODE, O_CREAT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW, O_NONBLOCK,
    O_PATH, O_RDONLY, O_RDWR, O_TMPFILE, O_TRUNC, O_WRONLY,
};
use crate::inode::{Inode, NewNode};
use crate::landlock::{Denied, FsAccess};
use crate::locks::LockKind;
use crate::mode::{FileType, Want, owner_or_capable};
use crate::mount::{MountFlags, Path};
use crate::vfs::DeviceOpen;
use crate::walk::{Last, Walk, Walker};
use crate::watch;
use crate::{Dentry, Stat};
use abi::Result;
use abi::errno::{
    EACCES, EBADF, ECONNREFUSED, EEXIST, EINVAL, EISDIR, ELOOP, ENOTDIR, ENXIO, EPERM,
};
use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The bit of `O_TMPFILE` that is its own.
const TMPFILE_BIT: u32 = O_TMPFILE & !O_DIRECTORY;
/// Every flag that open(2) knows (`VALID_OPEN_FLAGS`).
const VALID: u64 = 0o37777703 | (O_CREAT | O_EXCL) as u64;
/// What stays beside `O_PATH`.
const PATH_FLAGS: u32 = O_DIRECTORY | O_NOFOLLOW | O_PATH | crate::file::O_CLOEXEC;

/// How to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenHow {
    pub flags: u32,
    /// Permission bits for a new file, before the umask.
    pub mode: u32,
    pub resolve: Walk,
}

impl OpenHow {
    /// open(2) and openat(2): flags that nobody knows are ignored.
    #[must_use]
    pub fn new(flags: u32, mode: u32) -> OpenHow {
        let mut flags = (u64::from(flags) & VALID) as u32;
        if flags & O_PATH != 0 {
            flags &= PATH_FLAGS;
        }
        let mode = if flags & (O_CREAT | TMPFILE_BIT) != 0 {
            mode & 0o7777
        } else {
            0
        };
        OpenHow {
            flags,
            mode,
            resolve: Walk::empty(),
        }
    }
    /// openat2(2): everything is checked.
    pub fn strict(flags: u64, mode: u64, resolve: u64) -> Result<OpenHow> {
        if flags & !VALID != 0 || mode & !0o7777 != 0 {
            return Err(EINVAL);
        }
        let flags = flags as u32;
        if flags & (O_CREAT | TMPFILE_BIT) == 0 && mode != 0 {
            return Err(EINVAL);
        }
        if flags & O_PATH != 0 && flags & !PATH_FLAGS != 0 {
            return Err(EINVAL);
        }
        Ok(OpenHow {
            flags,
            mode: mode as u32,
            resolve: Walk::from_resolve(resolve)?,
        })
    }
}

/// What access the flags ask for.
fn wanted(flags: u32) -> Want {
    let mut w = match flags & O_ACCMODE {
        O_RDONLY => Want::READ,
        O_WRONLY => Want::WRITE,
        _ => Want::READ | Want::WRITE,
    };
    if flags & O_TRUNC != 0 {
        w |= Want::WRITE;
    }
    w
}

/// What rights of Landlock's the flags ask for (`get_required_file_open_access`).
fn asked(kind: FileType, flags: u32) -> FsAccess {
    let reads = match kind {
        FileType::Directory => FsAccess::READ_DIR,
        _ => FsAccess::READ_FILE,
    };
    match flags & O_ACCMODE {
        O_RDONLY => reads,
        O_WRONLY => FsAccess::WRITE_FILE,
        O_RDWR => reads | FsAccess::WRITE_FILE,
        _ => FsAccess::empty(),
    }
}

/// Whether devices can be opened there (`may_open_dev`): on no file system that somebody in a user
/// namespace mounted, unless its nodes are the kernel's (`SB_I_NODEV`, which devpts takes away).
fn shows_devices(p: &Path) -> bool {
    let sb = p.mnt.sb();
    !p.mnt.flags().contains(MountFlags::NODEV)
        && (sb.owner().is_initial() || sb.fs.name() == "devpts")
}

/// A file that was made, and what making opened.
type Made = (Path, Option<Arc<dyn FileOps>>);

/// Whether opening made the file, and what that opened.
enum Creation {
    No,
    Yes(Option<Arc<dyn FileOps>>),
}

impl Creation {
    fn parts(self) -> (bool, Option<Arc<dyn FileOps>>) {
        match self {
            Creation::No => (false, None),
            Creation::Yes(opened) => (true, opened),
        }
    }
}

impl PathCx<'_> {
    /// `openat(2)` and `openat2(2)`.
    pub fn open(&self, at: &At, path: &[u8], how: OpenHow) -> Result<Arc<File>> {
        let flags = how.flags;
        let want = wanted(flags);
        let mut walk = how.resolve;
        if flags & TMPFILE_BIT != 0 {
            if flags & O_TMPFILE != O_TMPFILE || flags & O_CREAT != 0 || !want.contains(Want::WRITE)
            {
                return Err(EINVAL);
            }
        } else if flags & O_CREAT != 0 && flags & O_DIRECTORY != 0 {
            return Err(EINVAL);
        }
        if flags & O_NOFOLLOW == 0 {
            walk |= Walk::FOLLOW;
        }
        if flags & O_DIRECTORY != 0 {
            walk |= Walk::DIRECTORY;
        }
        if flags & TMPFILE_BIT != 0 {
            let dir = self.resolve(at, path, walk)?;
            return self.open_tmpfile(&dir, flags, how.mode);
        }
        if flags & O_CREAT == 0 {
            if want == Want::READ && flags & (O_PATH | O_DIRECTORY) == 0 {
                walk |= Walk::READS;
            }
            let p = self.resolve(at, path, walk)?;
            return self.open_at(p, flags, want, Creation::No);
        }
        self.open_create(at, path, walk, how)
    }

    fn open_create(&self, at: &At, path: &[u8], walk: Walk, how: OpenHow) -> Result<Arc<File>> {
        let flags = how.flags;
        let want = wanted(flags);
        let mut w = Walker::new(*self, at, path, walk)?;
        loop {
            let last = w.walk_to_last()?;
            let Last::Name(name) = last else {
                return Err(if flags & O_EXCL != 0 { EEXIST } else { EISDIR });
            };
            if w.slashes {
                return Err(EISDIR);
            }
            let dir = w.here.clone();
            // Where others change names, only the making itself can tell; and asking costs.
            let old = if dir.dentry.sb().revalidates() {
                dir.dentry.peek(&name)
            } else {
                Some(dir.dentry.lookup(&self.caller, &name)?)
            };
            let d = match old.filter(|d| !d.is_negative()) {
                Some(d) => d,
                None => match self.create_locked(&dir, &name, how)? {
                    Ok((made, ops)) => {
                        let file = self.open_at(made, flags, want, Creation::Yes(ops))?;
                        file.set_made();
                        return Ok(file);
                    }
                    // It was there, or someone else was faster.
                    Err(other) => other,
                },
            };
            if flags & O_EXCL != 0 {
                return Err(EEXIST);
            }
            let p = w.mounted(Path {
                mnt: dir.mnt.clone(),
                dentry: d,
            })?;
            if p.dentry.file_type() == Some(FileType::Symlink) {
                if flags & O_NOFOLLOW != 0 {
                    return Err(ELOOP);
                }
                w.follow(&p)?;
                if !w.has_more() {
                    // A magic link leads to a place that exists.
                    self.may_reuse(&dir, &w.here)?;
                    return self.open_at(w.here.clone(), flags, want, Creation::No);
                }
                continue;
            }
            self.may_reuse(&dir, &p)?;
            return self.open_at(p, flags, want, Creation::No);
        }
    }

    /// Makes a regular file; or gives the dentry that is there.
    fn create_locked(
        &self,
        dir: &Path,
        name: &[u8],
        how: OpenHow,
    ) -> Result<std::result::Result<Made, Arc<Dentry>>> {
        let _g = dir.dentry.lock_dir();
        let others = dir.dentry.sb().tells_by_making();
        if !others {
            let d = dir.dentry.lookup_locked(&self.caller, name)?;
            if !d.is_negative() {
                return Ok(Err(d));
            }
        }
        let new = match self.may_make(dir, how.mode, FileType::Regular) {
            // A file that is there may be opened where none may be made.
            Err(e) if others => {
                let d = dir.dentry.lookup_locked(&self.caller, name)?;
                return if d.is_negative() { Err(e) } else { Ok(Err(d)) };
            }
            r => r?,
        };
        let mut tries = 0;
        let (inode, ops) = loop {
            match dir.inode()?.create_open(&self.caller, name, new, how.flags) {
                // A host's file system may say something else than EEXIST of a name that is there.
                Err(e) if others => {
                    let d = dir.dentry.lookup_locked(&self.caller, name)?;
                    if !d.is_negative() {
                        return Ok(Err(d));
                    }
                    // Gone again; and a program that makes and removes it all the time is not
                    // waited for.
                    if e != EEXIST || tries == 16 {
                        return Err(e);
                    }
                    tries += 1;
                }
                r => break r?,
            }
        };
        file_flags::inherit(dir, &*inode)?;
        let dentry = dir.dentry.attach(name, Some(inode));
        watch::created(&dir.dentry, &dentry);
        let path = Path {
            mnt: dir.mnt.clone(),
            dentry,
        };
        Ok(Ok((path, ops)))
    }

    /// Opens the file `name` of `dir` as mq_open(2) does it: `make` makes it where there is none
    /// and O_CREAT asks for one. Nothing is followed, nothing truncated, and looking the name up
    /// needs no right.
    pub fn open_name(
        &self,
        dir: &Path,
        name: &[u8],
        how: OpenHow,
        make: impl FnOnce(NewNode) -> Result<Arc<dyn Inode>>,
    ) -> Result<Arc<File>> {
        let within = |dentry| Path {
            mnt: dir.mnt.clone(),
            dentry,
        };
        let p = {
            let _g = dir.dentry.lock_dir();
            let old = dir.dentry.lookup_locked(&self.caller, name)?;
            match old.inode() {
                Ok(_) if how.flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL => return Err(EEXIST),
                Ok(_) if how.flags & O_ACCMODE == O_ACCMODE => return Err(EINVAL),
                Ok(inode) => {
                    self.cred().hold(inode.host_user())?;
                    let p = within(old.clone());
                    self.permission(&p, wanted(how.flags & O_ACCMODE))?;
                    p
                }
                Err(e) if how.flags & O_CREAT == 0 => return Err(e),
                Err(_) => {
                    let inode = make(self.may_make_unnamed(dir, how.mode, FileType::Regular)?)?;
                    let made = dir.dentry.attach(name, Some(inode));
                    watch::created(&dir.dentry, &made);
                    within(made)
                }
            }
        };
        let denied =
            self.landlock_open(&p, FileType::Regular, asked(FileType::Regular, how.flags))?;
        let ops = p.inode()?.clone().open(&self.caller, how.flags)?;
        watch::used(&p, watch::IN_OPEN);
        let file = File::new(ops, how.flags, Some(p), self.cred().clone());
        file.set_denied(denied);
        Ok(file)
    }

    /// Removes the file `name` of `dir`, as mq_unlink(2) does it.
    pub fn unlink_name(&self, dir: &Path, name: &[u8]) -> Result<()> {
        self.unlink_in(dir, name, |_| Ok(()))
    }

    fn open_tmpfile(&self, dir: &Path, flags: u32, mode: u32) -> Result<Arc<File>> {
        dir.want_write()?;
        self.permission(dir, Want::WRITE | Want::EXEC)?;
        let new = self.new_node(dir, mode, FileType::Regular)?;
        let (inode, ops) = dir.inode()?.tmpfile_open(&self.caller, new, flags)?;
        file_flags::inherit(dir, &*inode)?;
        inode
            .ext()
            .linkable
            .store(flags & O_EXCL == 0, Ordering::Relaxed);
        let name = format!("#{}", inode.stat()?.ino);
        let dentry = Dentry::new_unnamed_in(&dir.dentry, inode, name.as_bytes());
        let p = Path {
            mnt: dir.mnt.clone(),
            dentry,
        };
        self.open_at(
            p,
            flags & !TMPFILE_BIT & !O_DIRECTORY,
            wanted(flags),
            Creation::Yes(ops),
        )
    }

    /// Opens what was found otherwise than by a name.
    pub(super) fn open_place(&self, p: Path, how: OpenHow) -> Result<Arc<File>> {
        self.open_at(p, how.flags, wanted(how.flags), Creation::No)
    }

    /// Opens what was found or made (`do_open`, `may_open`).
    fn open_at(&self, p: Path, mut flags: u32, want: Want, made: Creation) -> Result<Arc<File>> {
        let inode = p.inode()?.clone();
        let kind = inode.file_type();
        let (is_made, opened) = made.parts();
        if flags & O_CREAT != 0 && !is_made && kind == FileType::Directory {
            return Err(EISDIR);
        }
        if flags & O_DIRECTORY != 0 && kind != FileType::Directory {
            return Err(ENOTDIR);
        }
        // Not for what was just made: that is the caller's already, and was allowed.
        if !is_made {
            self.cred().hold(inode.host_user())?;
        }
        if flags & O_PATH != 0 {
            let ops = Arc::new(PathOnly(inode));
            return Ok(File::new(ops, flags, Some(p), self.cred().clone()));
        }
        match kind {
            FileType::Symlink => return Err(ELOOP),
            FileType::Directory if want.contains(Want::WRITE) => return Err(EISDIR),
            FileType::Char | FileType::Block if !shows_devices(&p) => return Err(EACCES),
            FileType::Regular | FileType::Directory => {}
            _ => flags &= !O_TRUNC,
        }
        if is_made {
            flags &= !O_TRUNC;
        } else {
            self.permission(&p, want)?;
            file_flags::may_open(&*inode, flags)?;
        }
        if flags & O_NOATIME != 0 && !owner_or_capable(inode.perm()?, self.cred()) {
            return Err(EPERM);
        }
        let writes = flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0;
        if writes && !kind.is_special() {
            p.want_write()?;
        }
        let regular = kind == FileType::Regular;
        let counted = regular && flags & O_ACCMODE != O_RDONLY;
        let guard = counted.then(|| WriteAccess::new(&inode)).transpose()?;
        let reader = (regular && !counted).then(|| ReadAccess::new(&inode));
        let denied = self.landlock_open(&p, kind, asked(kind, flags))?;
        let asks = p.mnt.sb().may_be_forbidden();
        watch::may(&p, watch::FAN_OPEN_PERM, self.blocker)?;
        self.break_leases(&inode, flags)?;
        if flags & O_TRUNC != 0 {
            if denied.contains(Denied::TRUNCATE) {
                return Err(EACCES);
            }
            let _short = if counted {
                None
            } else {
                Some(WriteAccess::new(&inode)?)
            };
            if !inode.truncates_when_opened() {
                self.change_size(&p, 0)?;
            }
        }
        let ops = opened.map_or_else(|| self.open_inode(&p, inode, flags), Ok)?;
        let file = File::new(ops, flags, Some(p), self.cred().clone());
        file.set_denied(denied);
        if let Some(g) = guard {
            g.give_to(&file);
        }
        if let Some(r) = reader {
            r.give_to(&file);
        }
        if asks {
            file.set_asks();
        }
        if let Some(p) = &file.path {
            // Whoever makes it read-only meanwhile sees this writer, or is seen.
            if counted {
                p.want_write()?;
            }
            watch::used(p, watch::IN_OPEN);
        }
        Ok(file)
    }

    /// Opens what something has happened to, for one who watches (`dentry_open_nonotify`): no
    /// rights to it are needed but those of the reader's Landlock domain, and nobody hears of it.
    pub fn open_watched(&self, p: Path, flags: u32) -> Result<Arc<File>> {
        let inode = p.inode()?.clone();
        let counted = inode.file_type() == FileType::Regular && flags & O_ACCMODE != O_RDONLY;
        let guard = counted.then(|| WriteAccess::new(&inode)).transpose()?;
        if counted {
            p.want_write()?;
        }
        let reader = (!counted).then(|| ReadAccess::new(&inode));
        let kind = inode.file_type();
        let denied = self.landlock_open(&p, kind, asked(kind, flags))?;
        self.break_leases(&inode, flags)?;
        let ops = self.open_inode(&p, inode, flags)?;
        let file = File::new(ops, flags, Some(p), self.cred().clone());
        file.set_denied(denied);
        file.set_quiet();
        file.show_cloexec(flags);
        if let Some(g) = guard {
            g.give_to(&file);
        }
        if let Some(r) = reader {
            r.give_to(&file);
        }
        match &file.path {
            // Whoever makes it read-only meanwhile sees this writer, or is seen.
            Some(p) if counted => p.want_write()?,
            _ => {}
        }
        Ok(file)
    }

    /// Before a file is opened, by who is counted: waits for those that must know it before.
    fn break_leases(&self, inode: &Arc<dyn Inode>, flags: u32) -> Result<()> {
        let want = match flags & O_ACCMODE {
            O_RDONLY => LockKind::Read,
            _ => LockKind::Write,
        };
        let blocker = (flags & O_NONBLOCK == 0).then_some(self.blocker);
        inode.ext().break_leases(want, blocker)
    }

    fn open_inode(&self, p: &Path, inode: Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn FileOps>> {
        match inode.file_type() {
            FileType::Regular | FileType::Directory => {
                inode.is_used_at(&p.dentry);
                inode.open(&self.caller, flags)
            }
            FileType::Fifo => {
                self.vfs
                    .special()?
                    .open_fifo(&inode.ext().fifo, flags, self.cred(), self.blocker)
            }
            FileType::Char => {
                let rdev = inode.stat()?.rdev;
                let open = DeviceOpen {
                    rdev,
                    path: p,
                    flags,
                    caller: self.caller,
                };
                self.vfs.devices.open(&open)
            }
            FileType::Block | FileType::Socket => Err(ENXIO),
            FileType::Symlink => Err(ELOOP),
        }
    }

    /// Finds a program or its interpreter for execve(2): a regular file with a right to execute it,
    /// on a mount that allows it.
    pub fn find_exec(&self, at: &At, path: &[u8], flags: Walk) -> Result<Path> {
        let p = self.resolve(at, path, flags | Walk::READS)?;
        let inode = p.inode()?;
        match inode.file_type() {
            FileType::Regular => {}
            FileType::Symlink => return Err(ELOOP),
            _ => return Err(EACCES),
        }
        if p.mnt.flags().contains(MountFlags::NOEXEC) || p.mnt.sb().fs.no_exec() {
            return Err(EACCES);
        }
        inode.permission(&self.caller, Want::EXEC)?;
        Ok(p)
    }

    /// Opens it (`do_open_execat`). The guard keeps writers out while it lives.
    pub fn open_exec(&self, at: &At, path: &[u8], flags: Walk) -> Result<(Arc<File>, ExecGuard)> {
        let p = self.find_exec(at, path, flags)?;
        let inode = p.inode()?.clone();
        let run = FsAccess::READ_FILE | FsAccess::EXECUTE;
        let denied = self.landlock_open(&p, FileType::Regular, run)?;
        let reader = ReadAccess::new(&inode);
        let asks = p.mnt.sb().may_be_forbidden();
        watch::may(&p, watch::FAN_OPEN_EXEC_PERM, self.blocker)?;
        watch::may(&p, watch::FAN_OPEN_PERM, self.blocker)?;
        self.break_leases(&inode, O_RDONLY)?;
        let guard = ExecGuard::new(&inode)?;
        let ops = inode.open(&self.caller, O_RDONLY)?;
        let file = File::new(ops, O_RDONLY, Some(p), self.cred().clone());
        file.set_denied(denied);
        reader.give_to(&file);
        if asks {
            file.set_asks();
        }
        if let Some(p) = &file.path {
            watch::used(p, watch::IN_OPEN | watch::FAN_OPEN_EXEC);
        }
        Ok((file, guard))
    }

    /// bind(2) of a Unix socket: makes the name, and hangs `socket` on it. `EEXIST` becomes the
    /// caller's `EADDRINUSE`.
    pub fn bind_socket(
        &self,
        at: &At,
        path: &[u8],
        mode: u32,
        socket: Weak<dyn Any + Send + Sync>,
    ) -> Result<Path> {
        let p = self.mknod(at, path, abi::linux::S_IFSOCK | (mode & 0o7777), 0)?;
        p.inode()?.ext().socket.set(socket);
        Ok(p)
    }

    /// connect(2) to a Unix socket's name: what is bound there.
    pub fn find_socket(&self, at: &At, path: &[u8]) -> Result<Arc<dyn Any + Send + Sync>> {
        let p = self.resolve(at, path, Walk::FOLLOW)?;
        self.permission(&p, Want::WRITE)?;
        let inode = p.inode()?;
        if inode.file_type() != FileType::Socket {
            return Err(ECONNREFUSED);
        }
        inode.ext().socket.any().ok_or(ECONNREFUSED)
    }
}

/// What an `O_PATH` descriptor stands for: a place, not a file.
pub struct PathOnly(Arc<dyn Inode>);

impl PathOnly {
    #[must_use]
    pub fn new(inode: Arc<dyn Inode>) -> PathOnly {
        PathOnly(inode)
    }
}

impl FileOps for PathOnly {
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }
    // What is wrong with a read at an offset is that it is one.
    fn seekable(&self) -> bool {
        true
    }
    fn read(&self, _: &File, _: &mut dyn crate::Sink, _: u64) -> Result<usize> {
        Err(EBADF)
    }
    fn write(&self, _: &File, _: &mut dyn crate::Source, _: u64) -> Result<usize> {
        Err(EBADF)
    }
    fn ioctl(&self, _: &File, _: &dyn crate::file::IoctlContext, _: u32, _: u64) -> Result<u64> {
        Err(EBADF)
    }
    fn mappable(&self) -> Result<Arc<dyn clas::Mappable>> {
        Err(EBADF)
    }
    fn truncate(&self, _: u64) -> Result<()> {
        Err(EBADF)
    }
    fn allocate(&self, _: i32, _: u64, _: u64) -> Result<()> {
        Err(EBADF)
    }
    fn sync(&self, _: crate::file::DataOnly) -> Result<()> {
        Err(EBADF)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
