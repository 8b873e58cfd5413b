//! A file's attributes: what is known of them, and how they are asked for and changed.

use super::GoferInode;
use crate::{GoferFs, Sharing};
use abi::Result;
use abi::errno::EBUSY;
use gofer::proto::{ACL, Attr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::acl::Acl;
use vfs::{Perm, Stat};

pub(super) struct Cached {
    pub(super) attr: Attr,
    /// Whether something was done that changed the attributes on the host.
    pub(super) stale: bool,
    /// Owner and group as the host has them.
    pub(super) ids: (u32, u32),
    /// How often they were set, or said to be stale: what was fetched before is not stored after.
    pub(super) changes: u64,
}

impl Cached {
    /// Stores what the host told.
    fn set(&mut self, fs: &GoferFs, told: Attr) {
        (self.attr, self.ids) = (fs.seen(told), (told.stat.uid, told.stat.gid));
        self.stale = false;
    }
    /// Stores what was asked for when there had been `since` changes.
    pub(super) fn fetched(&mut self, fs: &GoferFs, told: Attr, since: u64) {
        if self.changes == since {
            self.set(fs, told);
        }
    }
}

impl GoferInode {
    /// Stores what was asked for when there had been `since` changes in this file system.
    pub(crate) fn set_attrs(&self, attr: Attr, since: u64) {
        let mut c = self.cached.lock();
        if self.fs.changes.load(Ordering::Relaxed) == since {
            c.set(&self.fs, attr);
        } else {
            c.stale = true;
        }
        c.changes += 1;
    }
    /// Stores what the host told after a change of them, when there had been `since` changes
    /// before that. What others have asked for at the same time may be older: where two are told
    /// of two changes, neither is stored for good.
    pub(super) fn set_changed(&self, attr: Attr, since: u64) {
        let mut c = self.cached.lock();
        // In one step, under the lock: which of two comes later here says nothing of the host's
        // order.
        let order = Ordering::Relaxed;
        let alone = self
            .fs
            .changes
            .compare_exchange(since, since + 1, order, order)
            .is_ok();
        if alone {
            c.set(&self.fs, attr);
        } else {
            c.stale = true;
            self.fs.changes.fetch_add(1, order);
        }
        c.changes += 1;
    }
    /// Something was done that changed the attributes.
    pub(crate) fn changed(&self) {
        let mut c = self.cached.lock();
        c.stale = true;
        c.changes += 1;
        self.fs.changes.fetch_add(1, Ordering::Relaxed);
    }
    /// The attributes, asked for where what is known may be wrong.
    pub(crate) fn attrs(&self) -> Result<Attr> {
        let since = {
            let c = self.cached.lock();
            let live = self.mapped_writable.load(Ordering::Relaxed);
            if self.fs.options.sharing == Sharing::Exclusive && !c.stale && !live {
                return Ok(c.attr);
            }
            c.changes
        };
        match self.ask_attrs() {
            Ok(a) => {
                self.cached.lock().fetched(&self.fs, a, since);
                Ok(self.fs.seen(a))
            }
            Err(e) => {
                self.changed();
                Err(e)
            }
        }
    }
    /// The attributes as the host has them now.
    fn ask_attrs(&self) -> Result<Attr> {
        match self.any_fd().or_else(|| Some(self.look()?.fd)) {
            Some(fd) => hostcall::file::fstat(fd.raw()).map(|s| self.stat_to_attr(&s)),
            None => self.fs.client.get_attr(self.handle),
        }
    }
    /// What a change was decided by, as the host has it: ids that look the same may be different
    /// there.
    pub(super) fn before(&self, seen: Perm) -> Result<Perm> {
        let (a, (uid, gid)) = {
            let c = self.cached.lock();
            (c.attr, c.ids)
        };
        if a.stat.perm() == seen {
            return Ok(Perm { uid, gid, ..seen });
        }
        let told = self.ask_attrs()?;
        if self.fs.seen(told).stat.perm() != seen {
            self.changed();
            return Err(EBUSY);
        }
        Ok(told.stat.perm())
    }
    pub(super) fn stat_to_attr(&self, s: &hostcall::file::HostStat) -> Attr {
        let now = hostcall::file::attributes(s);
        let (btime, acl) = {
            let c = self.cached.lock();
            // A change of it would show.
            let same = c.attr.stat.ctime == now.ctime;
            (c.attr.stat.btime, c.attr.acl.filter(|_| same))
        };
        Attr {
            stat: Stat { btime, ..now },
            acl,
        }
    }
    /// Asks for the ACL.
    pub(super) fn fetch_acl(&self) -> Option<Arc<Acl>> {
        let raw = match self.fs.client.get_xattr(self.handle, ACL) {
            Ok(raw) => raw,
            // Not to be had, or gone: the host has the last word.
            Err(_) => return None,
        };
        let uid = |id| self.fs.seen_uid(id);
        Acl::decode(&raw, uid, |id| self.fs.seen_gid(id)).map(Arc::new)
    }
    /// Sets the size.
    pub(crate) fn resize(&self, size: u64) -> Result<()> {
        let mut length = self.write_lock.lock();
        *length = None;
        let fd = self.write_fd()?;
        let old = self.attrs()?.stat.size;
        hostcall::file::ftruncate(fd.raw(), size)?;
        self.grew(size);
        self.changed();
        if size < old {
            let from = size.next_multiple_of(abi::PAGE_SIZE);
            self.mappings.truncated(from);
        }
        Ok(())
    }
}

#[cfg(test)]
impl GoferInode {
    /// See [`GoferInode::set_changed`]: the answer to a change comes now.
    pub(crate) fn test_told(&self, attr: Attr, since: u64) -> bool {
        self.set_changed(attr, since);
        self.test_is_stale()
    }
    pub(crate) fn test_is_stale(&self) -> bool {
        self.cached.lock().stale
    }
}
