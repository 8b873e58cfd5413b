//! What a server told of a file, and for how long that holds.

use crate::proto::Attr;
use std::time::{Duration, Instant};
use vfs::userns::UserNs;
use vfs::{FileType, Stat};

/// Nobody: an id that has no number in the server's user namespace (`INVALID_UID`).
const NOBODY: u32 = u32::MAX;

/// Until when something holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Valid {
    No,
    Until(Instant),
    Always,
}

impl Valid {
    /// From now on, so long as the server says. A time that cannot be reckoned is for ever.
    pub fn told(secs: u64, nanos: u32) -> Valid {
        let time = Duration::from_secs(secs)
            .checked_add(Duration::from_nanos(u64::from(nanos.min(999_999_999))));
        match time {
            Some(Duration::ZERO) => Valid::No,
            Some(t) => Instant::now()
                .checked_add(t)
                .map_or(Valid::Always, Valid::Until),
            None => Valid::Always,
        }
    }
    pub fn holds(self) -> bool {
        match self {
            Valid::No => false,
            Valid::Until(t) => Instant::now() < t,
            Valid::Always => true,
        }
    }
}

/// A name by which a file is known: its directory's node, how often that one's names were
/// forgotten, and a hash of the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameKey {
    pub dir: u64,
    pub forgotten: u64,
    pub hash: u64,
}

/// What is known of a file.
pub struct Known {
    pub stat: Stat,
    /// Of the attributes.
    pub valid: Valid,
    /// Which of all changes of attributes the last one was: an answer to a question that was asked
    /// before says nothing.
    pub version: u64,
    /// The name that it was looked up by last, and until when that holds.
    pub name: Option<(NameKey, Valid)>,
}

impl Known {
    /// It was changed here, by the change with this version: the server is asked for the rest.
    pub fn ask_again(&mut self, version: u64) {
        self.valid = Valid::No;
        self.version = version;
    }
}

/// Whether a server may tell such attributes (`fuse_invalid_attr`).
pub fn kind_of(a: &Attr) -> Option<FileType> {
    let fits = i64::try_from(a.size).is_ok();
    FileType::from_mode(a.mode).filter(|_| fits)
}

fn nanos(secs: u64, nsec: u32) -> i64 {
    (secs as i64)
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::from(nsec.min(999_999_999)))
}

/// Attributes as the VFS has them; ids are those of `ns`.
pub fn stat(a: &Attr, dev: u64, ns: &UserNs) -> Stat {
    Stat {
        dev,
        ino: a.ino,
        mode: a.mode,
        nlink: a.nlink,
        uid: ns.uid_from(a.uid).unwrap_or(NOBODY),
        gid: ns.gid_from(a.gid).unwrap_or(NOBODY),
        rdev: u64::from(a.rdev),
        size: a.size,
        blksize: match a.blksize {
            0 => abi::PAGE_SIZE as u32,
            n => 1 << n.ilog2(),
        },
        blocks: a.blocks,
        atime: nanos(a.atime, a.atime_nsec),
        mtime: nanos(a.mtime, a.mtime_nsec),
        ctime: nanos(a.ctime, a.ctime_nsec),
        btime: 0,
    }
}
