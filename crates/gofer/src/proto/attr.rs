//! Attributes: `abi`'s, with what else the Gofer knows.

use crate::wire::fields;
use abi::attr::{NewNode, Perm, SetAttr, Stat, StatFs};

/// A file's attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attr {
    pub stat: Stat,
    /// Whether it has a POSIX ACL; `None` where that is not known.
    pub acl: Option<bool>,
}

/// The attribute that holds an ACL.
pub const ACL: &[u8] = b"system.posix_acl_access";

fields! { Attr { stat, acl } }
fields! {
    Stat {
        dev, ino, mode, nlink, uid, gid, rdev, size, blksize, blocks, atime, mtime, ctime, btime
    }
}
fields! { Perm { uid, gid, mode } }
fields! { NewNode { mode, uid, gid } }
fields! { SetAttr { mode, uid, gid, size, atime, mtime, seen, ..SetAttr::default() } }
fields! {
    // `fsid` and `flags` are the Sentry's.
    StatFs { magic, bsize, blocks, bfree, bavail, files, ffree, namelen, ..StatFs::default() }
}
