//! Attributes of files and of file systems, as the VFS and the Gofer's protocol hold them.
//!
//! The layouts that a system call copies out are made from these where it is answered.

/// What `stat(2)` and `statx(2)` tell. Times are nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// As `st_dev` (Linux's `new_encode_dev`).
    pub dev: u64,
    pub ino: u64,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// As `st_rdev`.
    pub rdev: u64,
    /// In bytes.
    pub size: u64,
    /// In bytes.
    pub blksize: u32,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    /// Zero where the file system does not keep it.
    pub btime: i64,
}

impl Stat {
    /// The same, with another's owner and mode.
    #[must_use]
    pub fn owned_as(self, other: &Stat) -> Stat {
        Stat {
            uid: other.uid,
            gid: other.gid,
            mode: other.mode,
            ..self
        }
    }
    /// Owner and permission bits.
    #[must_use]
    pub fn perm(&self) -> Perm {
        Perm {
            mode: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
        }
    }
}

/// Who may do what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perm {
    /// The permission bits, with set-id and sticky bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// The attributes of a file to be made: umask, set-group-id and defaults are already in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Permission bits only.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Attributes to change; all checked. The change time becomes now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits only.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// In bytes.
    pub size: Option<u64>,
    /// Nanoseconds since the epoch.
    pub atime: Option<i64>,
    pub mtime: Option<i64>,
    /// Whether these are the time of the change (`UTIME_NOW`), which another's clock may tell better.
    pub atime_now: bool,
    pub mtime_now: bool,
    /// What the change was decided by. `EBUSY` where a file system that others change, too, finds
    /// it different: nothing is changed then, and it is to be decided again.
    pub seen: Option<Perm>,
}

/// What `statfs(2)` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// `f_type`.
    pub magic: u64,
    /// In bytes: what transfers are best made of.
    pub bsize: u64,
    /// In bytes, the unit of other sizes; 0: `bsize`.
    pub frsize: u64,
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub fsid: u64,
    /// In bytes.
    pub namelen: u64,
    /// `ST_*`; the mount's own flags are added by the VFS.
    pub flags: u64,
}
