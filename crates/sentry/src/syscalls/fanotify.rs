//! fanotify(7).

use super::SysResult;
use super::args::*;
use crate::task::Context;
use crate::task::fanotify::Readers;
use abi::Result;
use abi::errno::*;
use abi::linux::{O_ACCMODE, O_APPEND, O_CLOEXEC, O_DSYNC, O_LARGEFILE, O_NOATIME, O_NONBLOCK};
use abi::linux::{O_RDWR, O_SYNC};
use ipc::fanotify::marks::{Change, Fsid, To};
use ipc::fanotify::{
    FAN_CLASS_CONTENT, FAN_CLASS_PRE_CONTENT, FAN_ENABLE_AUDIT, FAN_REPORT_FD_ERROR,
    FAN_REPORT_PIDFD, FAN_REPORT_TID, FAN_UNLIMITED_MARKS, FAN_UNLIMITED_QUEUE, Fanotify,
    Privilege,
};
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::file::O_PATH;
use vfs::mode::Want;
use vfs::userns::UserNs;
use vfs::walk::Walk;
use vfs::watch::marks::{Kind, REPORT_ANY_FID, REPORT_DIR_FID, REPORT_FID, REPORT_NAME};
use vfs::watch::marks::{ON_CHILD, PERMISSION, REPORT_TARGET_FID};
use vfs::{At, Caps, File, FileType, Path, PathCx};

flags! {
    /// Of fanotify_init(2).
    struct InitFlags: u32, kept {
        FAN_CLOEXEC = 1,
        FAN_NONBLOCK = 2,
        FAN_CLASS_CONTENT = FAN_CLASS_CONTENT,
        FAN_CLASS_PRE_CONTENT = FAN_CLASS_PRE_CONTENT,
        FAN_UNLIMITED_QUEUE = FAN_UNLIMITED_QUEUE,
        FAN_UNLIMITED_MARKS = FAN_UNLIMITED_MARKS,
        FAN_ENABLE_AUDIT = FAN_ENABLE_AUDIT,
        FAN_REPORT_PIDFD = FAN_REPORT_PIDFD,
        FAN_REPORT_TID = FAN_REPORT_TID,
        FAN_REPORT_FID = REPORT_FID,
        FAN_REPORT_DIR_FID = REPORT_DIR_FID,
        FAN_REPORT_NAME = REPORT_NAME,
        FAN_REPORT_TARGET_FID = REPORT_TARGET_FID,
        FAN_REPORT_FD_ERROR = FAN_REPORT_FD_ERROR,
    }
}

flags! {
    /// Of fanotify_mark(2).
    struct MarkFlags: u32, kept {
        FAN_MARK_ADD = 1,
        FAN_MARK_REMOVE = 2,
        FAN_MARK_DONT_FOLLOW = 4,
        FAN_MARK_ONLYDIR = 8,
        FAN_MARK_MOUNT = 0x10,
        FAN_MARK_IGNORED_MASK = 0x20,
        FAN_MARK_IGNORED_SURV_MODIFY = 0x40,
        FAN_MARK_FLUSH = 0x80,
        FAN_MARK_FILESYSTEM = 0x100,
        FAN_MARK_EVICTABLE = 0x200,
        FAN_MARK_IGNORE = 0x400,
    }
}

flags! {
    /// Events of fanotify_mark(2).
    struct EventMask: u64, kept {
        FAN_ACCESS = 1,
        FAN_MODIFY = 2,
        FAN_ATTRIB = 4,
        FAN_CLOSE_WRITE = 8,
        FAN_CLOSE_NOWRITE = 0x10,
        FAN_OPEN = 0x20,
        FAN_MOVED_FROM = 0x40,
        FAN_MOVED_TO = 0x80,
        FAN_CREATE = 0x100,
        FAN_DELETE = 0x200,
        FAN_DELETE_SELF = 0x400,
        FAN_MOVE_SELF = 0x800,
        FAN_OPEN_EXEC = 0x1000,
        FAN_FS_ERROR = 0x8000,
        FAN_OPEN_PERM = 0x1_0000,
        FAN_ACCESS_PERM = 0x2_0000,
        FAN_OPEN_EXEC_PERM = 0x4_0000,
        FAN_PRE_ACCESS = 0x10_0000,
        FAN_EVENT_ON_CHILD = 0x800_0000,
        FAN_RENAME = 0x1000_0000,
        FAN_ONDIR = 0x4000_0000,
    }
}

const CLASS: u32 = FAN_CLASS_CONTENT | FAN_CLASS_PRE_CONTENT;
/// Flags that only the machine's administrator may use (`FANOTIFY_ADMIN_INIT_FLAGS`).
const OF_ADMIN: u32 = CLASS
    | FAN_REPORT_TID
    | FAN_REPORT_PIDFD
    | FAN_REPORT_FD_ERROR
    | FAN_UNLIMITED_QUEUE
    | FAN_UNLIMITED_MARKS;
/// Flags with which files of events may be opened (`FANOTIFY_INIT_ALL_EVENT_F_BITS`).
const EVENT_FLAGS: u32 =
    O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC | O_DSYNC | O_CLOEXEC | O_LARGEFILE | O_NOATIME;

impl InitFlags {
    /// As Linux does, in its order.
    fn check(self, event_flags: u32, privilege: Privilege) -> Result<()> {
        let flags = self.bits();
        let fids = flags & REPORT_ANY_FID;
        if privilege == Privilege::Unprivileged && (flags & OF_ADMIN != 0 || fids == 0) {
            return Err(EPERM);
        }
        let unknown = !InitFlags::all().contains(self);
        let both = flags & FAN_REPORT_PIDFD != 0 && flags & FAN_REPORT_TID != 0;
        if unknown || both || event_flags & !EVENT_FLAGS != 0 {
            return Err(EINVAL);
        }
        let with_class = fids != 0 && flags & CLASS != 0;
        let name_alone = fids & REPORT_NAME != 0 && fids & REPORT_DIR_FID == 0;
        let needed = REPORT_NAME | REPORT_FID;
        let target_alone = fids & REPORT_TARGET_FID != 0 && fids & needed != needed;
        let no_mode = event_flags & O_ACCMODE == O_ACCMODE;
        if with_class || name_alone || target_alone || no_mode {
            return Err(EINVAL);
        }
        Ok(())
    }
}

/// `fanotify_init(flags, event_f_flags)`.
fn fanotify_init(cx: &mut Context, flags: InitFlags, event_flags: OpenFlags) -> SysResult {
    let cred = cx.cred();
    let privilege = match cred.has(Caps::SYS_ADMIN) {
        true => Privilege::Admin,
        false => Privilege::Unprivileged,
    };
    let event_flags = event_flags.bits();
    flags.check(event_flags, privilege)?;
    let bits = flags.bits();
    let readers = Arc::new(Readers);
    let group = Fanotify::new(bits, event_flags | O_LARGEFILE, privilege, &cred, readers)?;
    if bits & CLASS == CLASS {
        return Err(EINVAL);
    }
    if bits & FAN_ENABLE_AUDIT != 0 && !cred.has(Caps::AUDIT_WRITE) {
        return Err(EPERM);
    }
    let nonblocking = match flags.contains(InitFlags::FAN_NONBLOCK) {
        true => O_NONBLOCK,
        false => 0,
    };
    let close = match flags.contains(InitFlags::FAN_CLOEXEC) {
        true => CloseOnExec::Yes,
        false => CloseOnExec::No,
    };
    let f = File::new(group.clone(), O_RDWR | nonblocking, None, cred);
    group.watch_end(&f);
    cx.files().install(f, close, &cx.room()).map(|n| n as usize)
}

type E = EventMask;
/// What comes with a file to open (`FANOTIFY_FD_EVENTS`).
const BY_FD: E = E::FAN_ACCESS
    .union(E::FAN_MODIFY)
    .union(E::FAN_CLOSE_WRITE)
    .union(E::FAN_CLOSE_NOWRITE)
    .union(E::FAN_OPEN)
    .union(E::FAN_OPEN_EXEC)
    .union(PERMS);
const PERMS: E = E::FAN_OPEN_PERM
    .union(E::FAN_ACCESS_PERM)
    .union(E::FAN_OPEN_EXEC_PERM)
    .union(E::FAN_PRE_ACCESS);
const FLAGS: E = E::FAN_EVENT_ON_CHILD.union(E::FAN_ONDIR);
/// What only directories have (`FANOTIFY_DIRONLY_EVENT_BITS`).
const OF_DIRS: E = E::FAN_MOVED_FROM
    .union(E::FAN_MOVED_TO)
    .union(E::FAN_CREATE)
    .union(E::FAN_DELETE)
    .union(E::FAN_RENAME)
    .union(FLAGS);

/// What fanotify_mark(2) is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    Add,
    Remove,
    Flush,
}

/// A call of it, decoded and checked as far as it goes without a group.
#[derive(Clone, Copy, Debug)]
struct Marking {
    command: Command,
    kind: Kind,
    to: To,
    flags: MarkFlags,
    mask: EventMask,
}

impl Marking {
    fn new(flags: MarkFlags, mask: EventMask) -> Result<Marking> {
        use MarkFlags as M;
        if mask.bits() >> 32 != 0 || !M::all().contains(flags) {
            return Err(EINVAL);
        }
        let types = M::FAN_MARK_MOUNT | M::FAN_MARK_FILESYSTEM;
        let kind = match flags & types {
            f if f.is_empty() => Kind::Inode,
            M::FAN_MARK_MOUNT => Kind::Mount,
            M::FAN_MARK_FILESYSTEM => Kind::FileSystem,
            _ => return Err(EINVAL),
        };
        let commands = M::FAN_MARK_ADD | M::FAN_MARK_REMOVE | M::FAN_MARK_FLUSH;
        let command = match flags & commands {
            M::FAN_MARK_ADD => Command::Add,
            M::FAN_MARK_REMOVE => Command::Remove,
            M::FAN_MARK_FLUSH if (flags - types) == M::FAN_MARK_FLUSH => Command::Flush,
            _ => return Err(EINVAL),
        };
        if command != Command::Flush && mask.is_empty() || !E::all().contains(mask) {
            return Err(EINVAL);
        }
        let ignores = M::FAN_MARK_IGNORE | M::FAN_MARK_IGNORED_MASK;
        let (to, mask) = match flags & ignores {
            f if f.is_empty() => (To::Tell, mask),
            M::FAN_MARK_IGNORED_MASK => (To::Ignore, mask - FLAGS),
            M::FAN_MARK_IGNORE => (To::IgnoreWithFlags, mask),
            _ => return Err(EINVAL),
        };
        Ok(Marking {
            command,
            kind,
            to,
            flags,
            mask,
        })
    }

    fn evictable(&self) -> bool {
        self.flags.contains(MarkFlags::FAN_MARK_EVICTABLE)
    }
    fn survives(&self) -> bool {
        self.flags.contains(MarkFlags::FAN_MARK_IGNORED_SURV_MODIFY)
    }

    /// What its group does not allow.
    fn fits(&self, cx: &Context, g: &Fanotify) -> Result<()> {
        use vfs::watch::marks::Group as _;
        if !cx.cred().has_in(&g.user_ns, Caps::SYS_ADMIN) && self.kind != Kind::Inode {
            return Err(EPERM);
        }
        let class = g.flags() & CLASS;
        let asks = self.mask.intersects(PERMS) && class == 0;
        let before = self.mask.contains(E::FAN_PRE_ACCESS) && class == FAN_CLASS_CONTENT;
        let error = self.mask.contains(E::FAN_FS_ERROR) && self.kind != Kind::FileSystem;
        let evicts = self.evictable() && self.kind != Kind::Inode;
        let by_fid = self.mask.intersects(!(BY_FD | FLAGS));
        let no_fid = by_fid && (g.fids() == 0 || self.kind == Kind::Mount);
        let no_name = self.mask.contains(E::FAN_RENAME) && g.fids() & REPORT_NAME == 0;
        let of_dirs = self.mask.contains(E::FAN_PRE_ACCESS | E::FAN_ONDIR);
        let unfit = [asks, before, error, evicts, no_fid, no_name, of_dirs];
        if unfit.contains(&true) {
            Err(EINVAL)
        } else {
            Ok(())
        }
    }

    /// What a file system, or a file, does not allow (`fanotify_events_supported`).
    fn is_supported(&self, g: &Fanotify, p: &Path) -> Result<()> {
        let dir = p.is_dir();
        if self.mask.contains(E::FAN_PRE_ACCESS) {
            // As of file systems that keep nothing elsewhere.
            return Err(EOPNOTSUPP);
        }
        // (`FS_DISALLOW_NOTIFY_PERM`)
        if self.mask.bits() as u32 & PERMISSION != 0 && p.mnt.sb().fs.name() == "proc" {
            return Err(EINVAL);
        }
        if self.kind != Kind::Inode && p.mnt.is_internal() {
            return Err(EINVAL);
        }
        let strict = g.fids() & REPORT_TARGET_FID != 0
            || self.mask.contains(E::FAN_RENAME)
            || self.to == To::IgnoreWithFlags;
        if strict && self.kind == Kind::Inode && !dir && self.mask.intersects(OF_DIRS) {
            return Err(ENOTDIR);
        }
        Ok(())
    }

    /// The number of the file system, as groups that hear of files by handles are told it.
    fn fsid(&self, p: &Path) -> Result<Fsid> {
        let (sb, inode) = (p.mnt.sb(), p.inode()?);
        let number = vfs::ops::statfs_path(p)?.fsid;
        let weak = number == 0;
        if self.kind != Kind::Inode {
            if weak {
                return Err(ENODEV);
            }
            // Who watches all of it wants to find files by their handles.
            if sb.fs.handle(&**inode).is_none() {
                return Err(EOPNOTSUPP);
            }
        }
        let dev = sb.dev;
        Ok(Fsid { number, weak, dev })
    }

    /// Whether the caller may watch all of that.
    fn may_watch(&self, cx: &Context, p: &Path) -> Result<()> {
        let user: UserNs = match self.kind {
            Kind::Inode => return Ok(()),
            Kind::Mount => cx.task.fs().ns().owner_of(&p.mnt),
            Kind::FileSystem => p.mnt.sb().owner(),
        };
        let may = cx.cred().has_in(&user, Caps::SYS_ADMIN);
        may.then_some(()).ok_or(EPERM)
    }

    /// The change of a mark of what is at `p`; `None` where it changes nothing.
    fn change(&self, g: &Fanotify, p: &Path) -> Result<Option<Change>> {
        let inode = p.inode()?;
        let of_inode = self.kind == Kind::Inode;
        let dir = of_inode && inode.file_type() == FileType::Directory;
        let ignores = self.to != To::Tell;
        if self.command == Command::Add && ignores && !self.survives() {
            if self.to == To::IgnoreWithFlags && (!of_inode || dir) {
                return Err(if of_inode { EISDIR } else { EINVAL });
            }
            // What is being modified would be told at once again.
            if of_inode && inode.ext().is_open_for_write() {
                return Ok(None);
            }
        }
        let mut events = self.mask.bits() as u32;
        let mut stay = match self.to {
            To::Ignore => FLAGS.bits() as u32,
            _ => 0,
        };
        if !dir {
            events &= !ON_CHILD;
            stay = ON_CHILD;
            // Such a group is told of the directory, too.
            let wants_dir = g.fids() & REPORT_DIR_FID != 0;
            if wants_dir && self.command == Command::Add && !ignores {
                events |= ON_CHILD;
            }
        }
        Ok(Some(Change {
            kind: self.kind,
            events,
            to: self.to,
            survives: self.survives(),
            evictable: self.evictable(),
            stay,
        }))
    }
}

/// What is to be marked: a file by a path, or without one that of the descriptor
/// (`fanotify_find_path`).
fn place(p: &PathCx<'_>, m: &Marking, at: &At, path: Option<&[u8]>) -> Result<Path> {
    let only_dir = m.flags.contains(MarkFlags::FAN_MARK_ONLYDIR);
    let found = match path {
        None => {
            let f = at.file()?;
            if f.flags() & O_PATH != 0 {
                return Err(EBADF);
            }
            let place = f.path.clone();
            if only_dir && !place.as_ref().is_some_and(Path::is_dir) {
                return Err(ENOTDIR);
            }
            place.ok_or(EINVAL)?
        }
        Some(path) => {
            let mut walk = Walk::empty();
            walk.set(
                Walk::FOLLOW,
                !m.flags.contains(MarkFlags::FAN_MARK_DONT_FOLLOW),
            );
            walk.set(Walk::DIRECTORY, only_dir);
            p.resolve(at, path, walk)?
        }
    };
    p.permission(&found, Want::READ)?;
    Ok(found)
}

/// `fanotify_mark(fd, flags, mask, dirfd, path)`.
fn fanotify_mark(
    cx: &mut Context,
    fd: Fd,
    flags: MarkFlags,
    mask: EventMask,
    dirfd: DirFd,
    path: Option<PathPtr>,
) -> SysResult {
    let m = Marking::new(flags, mask)?;
    let f = fd.file(cx)?;
    let g = f.ops::<Fanotify>().ok_or(EINVAL)?;
    m.fits(cx, g)?;
    if m.command == Command::Flush {
        g.flush_marks(m.kind);
        return Ok(0);
    }
    let path = path.map(|p| p.read(cx)).transpose()?;
    let at = match &path {
        Some(p) => At::new(&cx.files(), dirfd.0, p)?,
        None => At::scoped(&cx.files(), dirfd.0)?,
    };
    let cx = &*cx;
    cx.task.with_paths(|p| {
        let there = place(p, &m, &at, path.as_deref())?;
        if m.command == Command::Add {
            m.is_supported(g, &there)?;
        }
        let fsid = (g.fids() != 0).then(|| m.fsid(&there)).transpose()?;
        m.may_watch(cx, &there)?;
        match (m.change(g, &there)?, m.command) {
            (None, _) => Ok(()),
            (Some(c), Command::Remove) => g.remove_mark(&there, c),
            (Some(c), _) => g.add_mark(&there, c, fsid),
        }
    })?;
    Ok(0)
}

calls! {
    fanotify_init: "FAN_REPORT_MNT is missing; changes made outside of the sandbox are not seen",
    fanotify_mark: "FAN_MARK_MNTNS is missing; FAN_PRE_ACCESS on no file system",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_checked_as_linux_does() {
        use Privilege::{Admin, Unprivileged};
        let init =
            |bits, event, privilege| InitFlags::from_bits_retain(bits).check(event, privilege);
        assert_eq!(init(0, 0, Unprivileged), Err(EPERM));
        assert_eq!(init(REPORT_FID, 0, Unprivileged), Ok(()));
        assert_eq!(init(REPORT_NAME, 0, Admin), Err(EINVAL));
        assert_eq!(init(FAN_CLASS_CONTENT | REPORT_FID, 0, Admin), Err(EINVAL));
        assert_eq!(init(0, 3, Admin), Err(EINVAL));
        assert_eq!(init(1 << 20, 0, Admin), Err(EINVAL));
    }

    #[test]
    fn marks_are_decoded() {
        let new = |flags, mask| {
            Marking::new(
                MarkFlags::from_bits_retain(flags),
                EventMask::from_bits_retain(mask),
            )
        };
        assert!(new(1, 0).is_err() && new(3, 1).is_err() && new(1, 1 << 40).is_err());
        assert!(new(0x80 | 4, 0).is_err() && new(0x80 | 0x10, 0).is_ok());
        let m = new(1 | 0x20, 0x4000_0001).unwrap();
        assert_eq!((m.to, m.mask), (To::Ignore, E::FAN_ACCESS));
    }
}
