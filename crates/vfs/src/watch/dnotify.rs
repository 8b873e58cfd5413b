//! Requests to hear of changes in directories: fcntl(2)'s F_NOTIFY (Linux's `fs/notify/dnotify`).
//!
//! An open directory's owner is signalled when something of the kind that was asked for happens in
//! the directory (not below it). A request is one of a descriptor table on an open file, as a
//! record lock is: it goes at any close of the file by that table.
//!
//! Invariants:
//! - A request is there at most once for a file and a table; its mask is not empty.
//! - [`File`] knows whether it ever had one: a close of another costs one load.
//! - The lock is a leaf. Nobody is signalled, and nothing of a file is dropped, under it.

use super::kept::Counted;
use super::{
    FS_RENAME, IN_ACCESS, IN_ATTRIB, IN_CREATE, IN_DELETE, IN_ISDIR, IN_MODIFY, IN_MOVED_FROM,
    IN_MOVED_TO, existing, watchers_at,
};
use crate::file::File;
use crate::sigio::{Messenger, Owner};
use crate::ucounts::Charge;
use crate::{Credentials, mode::FileType};
use abi::Result;
use abi::errno::{EINVAL, ENOMEM, ENOTDIR};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// `fs.dir-notify-enable`.
pub static ENABLED: AtomicI64 = AtomicI64::new(1);
/// What a request takes of the kernel's memory, bytes.
const REQUEST: u64 = 256;

bitflags::bitflags! {
    /// What F_NOTIFY asks for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DnotifyMask: u32 {
        const ACCESS = 1;
        const MODIFY = 2;
        const CREATE = 4;
        const DELETE = 8;
        const RENAME = 0x10;
        const ATTRIB = 0x20;
        /// It stays when it has been told of something.
        const MULTISHOT = 0x8000_0000;
    }
}

impl DnotifyMask {
    /// As events (`convert_arg`).
    fn events(self) -> u32 {
        const OF: [(DnotifyMask, u32); 6] = [
            (DnotifyMask::ACCESS, IN_ACCESS),
            (DnotifyMask::MODIFY, IN_MODIFY),
            (DnotifyMask::CREATE, IN_CREATE | IN_MOVED_TO),
            (DnotifyMask::DELETE, IN_DELETE | IN_MOVED_FROM),
            (DnotifyMask::RENAME, FS_RENAME),
            (DnotifyMask::ATTRIB, IN_ATTRIB),
        ];
        let asked = OF.iter().filter(|(w, _)| self.contains(*w));
        asked.fold(0, |all, (_, e)| all | e)
    }
}

struct Request {
    /// [`File::id`], and [`crate::FdTable::id`].
    of: (u64, u64),
    events: u32,
    stays: bool,
    messenger: Arc<dyn Messenger>,
    _charge: Charge,
    /// For a file of the host's that it keeps in use.
    _held: Option<Charge>,
    _counted: Counted,
}

/// The requests for one directory.
#[derive(Default)]
pub(crate) struct Requests {
    /// All events that any of them wants. Stored under the list's lock; who asks before an event
    /// needs none.
    events: AtomicU32,
    /// A leaf.
    list: Mutex<Vec<Request>>,
}

impl Requests {
    fn recount(&self, list: &[Request]) {
        let all = list.iter().fold(0, |all, n| all | n.events);
        self.events.store(all, Ordering::SeqCst);
    }

    /// Something happened to the directory (`name` empty) or in it (`dnotify_handle_event`).
    pub(crate) fn event(&self, mask: u32, name: &[u8]) {
        if self.events.load(Ordering::SeqCst) & mask == 0 {
            return;
        }
        if name.is_empty() && mask & IN_ISDIR == 0 {
            return;
        }
        let mut list = self.list.lock();
        let wants = |n: &Request| n.events & mask != 0;
        let all = list.iter().filter(|n| wants(n));
        let told: Vec<_> = all.map(|n| n.messenger.clone()).collect();
        let gone: Vec<_> = list.extract_if(.., |n| wants(n) && !n.stays).collect();
        self.recount(&list);
        drop(list);
        told.into_iter().for_each(Messenger::message);
        drop(gone);
    }

    fn remove(&self, of: (u64, u64)) {
        let mut list = self.list.lock();
        let gone: Vec<_> = list.extract_if(.., |n| n.of == of).collect();
        self.recount(&list);
        drop(list);
        drop(gone);
    }
}

impl File {
    /// `F_NOTIFY` by a descriptor of the table `table`; nothing but MULTISHOT takes it back.
    /// `owner` becomes the file's, unless it has one: before the request is there, which may be
    /// told at once.
    pub fn notify_of(
        self: &Arc<Self>,
        table: u64,
        wanted: DnotifyMask,
        owner: Owner,
        messenger: Arc<dyn Messenger>,
        cred: &Credentials,
    ) -> Result<()> {
        if ENABLED.load(Ordering::Relaxed) == 0 {
            return Err(EINVAL);
        }
        let of = (self.id, table);
        if (wanted - DnotifyMask::MULTISHOT).is_empty() {
            self.end_requests(table);
            return Ok(());
        }
        let place = self.path.as_ref().ok_or(ENOTDIR)?;
        let inode = place.inode()?;
        if inode.file_type() != FileType::Directory {
            return Err(ENOTDIR);
        }
        cred.may_take_more(ENOMEM)?;
        let charge = cred.ucounts().force(crate::ucounts::Kind::Kmem, REQUEST);
        let held = cred.hold(inode.host_user())?;
        let (watchers, counted) = (watchers_at(place)?, Counted::new(place.mnt.sb()));
        let (events, stays) = (wanted.events(), wanted.contains(DnotifyMask::MULTISHOT));
        self.set_noted();
        self.sigio.set_owner_if_none(owner);
        let mut list = watchers.requests.list.lock();
        if let Some(n) = list.iter_mut().find(|n| n.of == of) {
            n.events |= events;
            n.stays |= stays;
            let _old = std::mem::replace(&mut n.messenger, messenger);
            watchers.requests.recount(&list);
            drop(list);
            return Ok(());
        }
        list.push(Request {
            of,
            events,
            stays,
            messenger,
            _charge: charge,
            _held: held,
            _counted: counted,
        });
        watchers.requests.recount(&list);
        Ok(())
    }

    /// A close(2) through the table `table`.
    pub fn end_requests(&self, table: u64) {
        if self.is_noted()
            && let Some(i) = self.path.as_ref().and_then(|p| p.inode().ok())
            && let Some(w) = existing(&**i)
        {
            w.requests.remove((self.id, table));
        }
    }
}
