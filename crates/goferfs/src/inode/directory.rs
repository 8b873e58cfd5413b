//! The names of a directory, as the Gofer tells them.

use super::order::Order;
use super::{GoferInode, Version};
use abi::Result;
use abi::errno::ENOENT;
use gofer::WalkPurpose;
use gofer::proto::Attr;
use std::sync::atomic::Ordering;
use vfs::{Caller, NewNode};

/// How much older than now a change time must be for the next change to have another one, where it
/// is no finer than the host's clock's ticks of at most 10 ms. Nanoseconds.
const STABLE: i64 = 40_000_000;
const SECOND: i64 = 1_000_000_000;

impl GoferInode {
    /// The names of this directory changed. Counted before the listing goes: see
    /// [`GoferInode::entries`].
    pub(super) fn names_changed(&self) {
        self.changed();
        *self.listing.lock() = None;
        // A program that changes names here asks for new ones: it would be listed for each.
        let mut order = self.order.lock();
        if !matches!(*order, Order::Unknown) {
            *order = Order::Vast;
        }
    }
    /// The change time of a shared directory, where it tells of every change of names.
    pub(crate) fn version(&self) -> Option<Version> {
        self.look_now()?.1
    }
    /// The attributes of this moment, and the version, where there is a descriptor for it.
    pub(super) fn look_now(&self) -> Option<(Attr, Option<Version>)> {
        let look = self.look()?;
        let since = self.cached.lock().changes;
        let s = hostcall::file::fstat(look.fd.raw()).ok()?;
        let attr = self.stat_to_attr(&s);
        let seen = self.fs.seen(attr);
        self.cached.lock().fetched(&self.fs, attr, since);
        // A file system that keeps whole seconds tells too little.
        let whole = attr.stat.ctime % SECOND == 0;
        let now = || hostcall::time::clock_nanos(abi::linux::CLOCK_REALTIME as i32);
        let version = (attr.stat.nlink > 0).then(|| Version {
            ctime: attr.stat.ctime,
            is_stable: !whole && (look.fine || now().saturating_sub(attr.stat.ctime) >= STABLE),
        });
        Some((seen, version))
    }
    /// Asks whether `name` still is `child`; the version is of before.
    pub(super) fn ask_again(
        &self,
        cx: &Caller<'_>,
        version: Option<Version>,
        name: &[u8],
        child: Option<&GoferInode>,
    ) -> bool {
        let since = self.fs.changes.load(Ordering::Relaxed);
        let names = vec![name.to_vec()];
        let asked = self
            .fs
            .client
            .walk(self.handle, names, Vec::new(), WalkPurpose::Nothing);
        let Ok(found) = asked else {
            return false;
        };
        let Some(step) = found.steps.into_iter().next() else {
            if found.stopped == Some(ENOENT) {
                self.asked_for(version, name, None);
            }
            return found.stopped == Some(ENOENT) && child.is_none();
        };
        // One more handle to a file that is known, most of the time.
        let found = self
            .fs
            .inode(step.attr, step.handle, step.target, since, cx.cred);
        self.asked_for(version, name, Some(&found));
        child.is_some_and(|c| std::ptr::eq(c, &*found))
    }
    pub(super) fn new_ids(&self, new: NewNode, kind: u32) -> Result<NewNode> {
        let me = self.fs.client.server();
        let (uid, gid) = (self.fs.host_uid(new.uid)?, self.fs.host_gid(new.gid)?);
        let same = (uid, gid) == (me.uid, me.gid);
        // Whose files the Gofer's are anyway needs no change of owner.
        let (uid, gid) = if same {
            (u32::MAX, u32::MAX)
        } else {
            (uid, gid)
        };
        Ok(NewNode {
            mode: new.mode | kind,
            uid,
            gid,
        })
    }
}
