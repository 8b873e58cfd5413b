//! Files of the host, through the Gofer: an inode tree over [`gofer::Client`].
//!
//! In *exclusive* mode the container owns the tree alone (its root file system): names, missing
//! names, attributes and directory listings are cached until the container itself changes them, and
//! host descriptors stay open, so that a second `open` or `stat` asks nobody. In *shared* mode
//! everything is as it is on the host at the time of the call.
//!
//! # Shared mode
//!
//! The Gofer is asked for the first uses of a file. For one that is used again it donates an
//! `O_PATH` descriptor, where the file system is local and the Gofer's mounts are its own (else: it
//! is asked each time). By that, `fstat(2)` gives
//!
//! - a file's attributes of this moment (chmod and chown through another name of it, too; but the
//!   permissions of a directory where walks begin are as last asked for, as long as there is no
//!   descriptor of it);
//! - a directory's *version*: its change time, which nobody can set, and which every change of its
//!   names sets. A name that was looked up **after** the version was read is true for as long as
//!   the version is the same, if a change after that moment must have had another time. Since Linux
//!   6.13 this is so on file systems with multigrain timestamps: what was looked at is told from
//!   what comes next (*fine* times). Before, and on others, the time is the host clock's last tick,
//!   and must be at least 40 ms old. (A clock that is set back to the very nanosecond of an earlier
//!   change would break this; time that goes back otherwise does not.) Where that does not hold, or
//!   the time is a whole second (some file systems keep no more), the Gofer is asked.
//!
//! Where the container itself makes, removes or renames a name, and times are fine, the Gofer reads
//! the version after that, looks at the name again, and tells: the next use of the name asks
//! nobody. So it does with a few other names of the directory that were asked for again after
//! earlier changes (`inode/known.rs`): a database looks for the same three files around each change
//! of one.
//!
//! So a walk costs an `fstat` for each component, which tells its permissions, too, and no request.
//! What is made is not looked up before, where nothing is known of the name: the host says that it
//! is there.
//!
//! # Requests
//!
//! A walk of which a file is read brings the descriptor with it, so the first open of a file is one
//! request. In exclusive mode it brings the whole path, and other names of a directory through
//! which a program goes (`inode/order.rs`). Descriptors are kept for the next use, of all mounts in
//! one ring ([`Kept`]).
//!
//! Data never passes through the Gofer: it donates a descriptor, and reads and writes are host
//! calls between the file and the application's memory.
//!
//! What is appended goes to the host as such (`RWF_APPEND`): in one step with the host's other
//! writers, as long as it lies in at most 1024 pieces of memory (4 MiB in pages apart from each
//! other). The position behind it is that of the descriptor; where nobody else changes the file,
//! the length is known, and nothing is asked.
//!
//! Devices, sockets and FIFOs of the host are only shown. A device node opens the *Sentry's* device
//! of that number; a FIFO or socket works among the container's own processes.
//!
//! # Lock order
//!
//! Below the VFS's locks, of which that of attributes is in [`locks`]:
//!
//! - `GoferInode::write_lock` → the address spaces' locks: the writer's, whose memory is read, and
//!   those of all that have the file mapped, where it is cut short;
//! - an address space's lock → what `backing` takes: `cached`, `fds`, one after the other;
//! - `GoferFs::inodes` → `devs`; `listing` → `cached`; `known` → `fds`;
//! - leaves: `acl`, `cached`, `fds`, `mappable`, `order`, the ring of descriptors.
//!
//! The client is called with none of them held, but with that of attributes and `write_lock`, of
//! the one file that is being changed, and with the address space's whose page is asked for.
#![forbid(unsafe_code)]

mod inode;
mod locks;
mod open;

pub use inode::GoferInode;
pub use open::OpenHostFile;

use abi::Result;
use abi::errno::{ENFILE, EOVERFLOW};
use gofer::proto::Attr;
use gofer::{Client, Handle};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vfs::dentry::{Caching, ReadOnly, StatFs};
use vfs::ucounts::Kind;
use vfs::{Caller, Credentials, Dentry, FileSystem, SuperBlock, Vfs};

/// The others that may change the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Nobody.
    Exclusive,
    /// The host, or other containers.
    Shared,
}

/// How owners on the host look inside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ids {
    /// As they are: the Gofer is root, or in a user namespace that maps them.
    AsIs,
    /// What the Gofer's own user owns looks like root's: rootless, without a user namespace.
    OwnerIsRoot,
    /// By the maps of the container's user namespace.
    Mapped(Arc<IdMaps>),
}

/// Ids of a user namespace and the host's (`user_namespaces(7)`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdMaps {
    /// (first inside, first outside, how many).
    pub uids: Vec<(u32, u32, u32)>,
    pub gids: Vec<(u32, u32, u32)>,
}

/// What an id without a counterpart looks like (`kernel.overflowuid`).
const OVERFLOW_ID: u32 = 65534;

impl IdMaps {
    fn inside(map: &[(u32, u32, u32)], id: u32) -> u32 {
        map.iter()
            .find_map(|(i, o, n)| {
                id.checked_sub(*o)
                    .filter(|d| d < n)
                    .map(|d| i.saturating_add(d))
            })
            .unwrap_or(OVERFLOW_ID)
    }
    /// `None`: the container cannot name such an owner.
    fn outside(map: &[(u32, u32, u32)], id: u32) -> Option<u32> {
        map.iter().find_map(|(i, o, n)| {
            id.checked_sub(*i)
                .filter(|d| d < n)
                .map(|d| o.saturating_add(d))
        })
    }
}

/// How a root is mounted.
#[derive(Clone, Debug)]
pub struct Options {
    pub sharing: Sharing,
    pub ids: Ids,
    /// Host descriptors that are kept open though no open file uses them.
    pub kept: Arc<Kept>,
    /// The directory of the host that it shows, as `/proc/PID/mountinfo` tells it of a bind mount;
    /// empty for `/`.
    pub shown: String,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            sharing: Sharing::Exclusive,
            ids: Ids::AsIs,
            kept: Arc::new(Kept::new(1024)),
            shown: String::new(),
        }
    }
}

/// What is kept though nobody may be using it, of any number of mounts, which share one descriptor
/// table and one memory: inodes with host descriptors, and directories' listings.
#[derive(Debug)]
pub struct Kept {
    max: usize,
    /// Oldest first.
    ring: Mutex<VecDeque<Weak<GoferInode>>>,
    /// Inodes that ended while they were in the ring: their memory is held until they leave it.
    /// About.
    ended: AtomicUsize,
    /// Names in listings of directories that are remembered.
    listed: AtomicUsize,
    handles: Handles,
}

/// The Gofer's handles: as many as there are inodes, about.
#[derive(Debug)]
struct Handles {
    live: AtomicUsize,
    max: usize,
}

impl Handles {
    /// The last eighth is for root: then they are few, too.
    fn are_for_root(&self) -> bool {
        self.live.load(Ordering::Relaxed) >= self.max - self.max / 8
    }
    fn are_few(&self) -> bool {
        self.live.load(Ordering::Relaxed) >= self.max - self.max / 6
    }
}

/// Names in all remembered listings together: some 100 bytes each.
const MAX_LISTED: usize = 1 << 18;

/// Room for a directory's names among those, given back when it goes.
struct Listed {
    kept: Arc<Kept>,
    names: usize,
}

impl Listed {
    /// `None` where there is not as much left.
    fn room(kept: &Arc<Kept>, names: usize) -> Option<Listed> {
        let more = |n: usize| n.checked_add(names).filter(|n| *n <= MAX_LISTED);
        let order = Ordering::Relaxed;
        kept.listed.fetch_update(order, order, more).ok()?;
        let kept = kept.clone();
        Some(Listed { kept, names })
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.kept.listed.fetch_sub(self.names, Ordering::Relaxed);
    }
}

impl Kept {
    /// At most `max` inodes: each has three descriptors or fewer, one as a rule.
    #[must_use]
    pub fn new(max: usize) -> Kept {
        Kept {
            max: max.max(1),
            ring: Mutex::default(),
            ended: AtomicUsize::new(0),
            listed: AtomicUsize::new(0),
            handles: Handles {
                live: AtomicUsize::new(0),
                max: usize::MAX,
            },
        }
    }
    /// For a process that may have `limit` descriptors (`RLIMIT_NOFILE`), and a Gofer of so many
    /// handles.
    #[must_use]
    pub fn for_limit(limit: u64, handles: u64) -> Kept {
        // Each holds a file, and often an inode, in the host's memory.
        const MOST: usize = 8192;
        let mut kept = Self::new(usize::try_from(limit / 8).map_or(MOST, |n| n.clamp(64, MOST)));
        kept.handles.max = usize::try_from(handles).unwrap_or(usize::MAX);
        kept
    }
    /// An inode ends that is in the ring. When half of the ring's have, they leave it.
    fn end(&self) {
        const FEW: usize = 64;
        let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        if ended < FEW {
            return;
        }
        let mut ring = self.ring.lock();
        if ended * 2 >= ring.len() {
            self.drop_ended(&mut ring);
        }
    }
    fn drop_ended(&self, ring: &mut VecDeque<Weak<GoferInode>>) {
        ring.retain(|i| i.strong_count() != 0);
        self.ended.store(0, Ordering::Relaxed);
    }
    /// Those that have ended leave the ring, which takes no more than it needs then.
    fn shrink(&self) {
        let mut ring = self.ring.lock();
        self.drop_ended(&mut ring);
        ring.shrink_to_fit();
    }
    /// `inode` holds a descriptor now, and the inode that was not used for longest gives up its
    /// own.
    fn add(&self, inode: &Arc<GoferInode>) {
        let mut one = Arc::downgrade(inode);
        // Bounded, so that one addition stays cheap.
        for _ in 0..16 {
            let old = {
                let mut ring = self.ring.lock();
                ring.push_back(one);
                if ring.len() <= self.max {
                    return;
                }
                ring.pop_front()
            };
            match old.as_ref().and_then(Weak::upgrade) {
                // One more round.
                Some(i) if i.take_used() => one = Arc::downgrade(&i),
                Some(i) => return i.drop_fds(),
                None => return,
            }
        }
        if let Some(i) = one.upgrade() {
            i.drop_fds();
        }
    }
}

/// One root of the host.
pub struct GoferFs {
    client: Arc<Client>,
    root: Handle,
    options: Options,
    /// `st_dev` here for each device of the host below the root.
    devs: Mutex<HashMap<u64, u64>>,
    vfs: Weak<Vfs>,
    dev: u64,
    /// Inodes in use, by the host's device and number: two names of one file are one inode.
    inodes: Mutex<HashMap<(u64, u64), Weak<GoferInode>>>,
    /// Names that shared directories remember, together.
    known: AtomicUsize,
    /// How often the container changed something.
    changes: AtomicU64,
}

impl GoferFs {
    /// The root that the Gofer knows by `name`, ready to be mounted.
    pub fn mountable(
        vfs: &Arc<Vfs>,
        client: &Arc<Client>,
        name: &str,
        options: Options,
    ) -> Result<Arc<Dentry>> {
        let (attr, handle, writable) = client.attach(name)?;
        let dev = vfs.new_dev();
        let fs = Arc::new(GoferFs {
            client: client.clone(),
            root: handle,
            options,
            devs: Mutex::new(HashMap::from([(attr.stat.dev, dev)])),
            vfs: Arc::downgrade(vfs),
            dev,
            inodes: Mutex::default(),
            known: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
        });
        let root = fs.inode(attr, handle, None, 0, &Credentials::root());
        let sb = SuperBlock::new(dev, fs);
        if !writable {
            sb.set_read_only(ReadOnly::Yes);
        }
        Ok(Dentry::new_root(&sb, root))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
    fn exclusive(&self) -> bool {
        self.options.sharing == Sharing::Exclusive
    }

    /// `st_dev` here for a device of the host.
    fn map_dev(&self, host: u64) -> u64 {
        *self.devs.lock().entry(host).or_insert_with(|| {
            // A mount of the host below the root; without a VFS nobody looks any more.
            self.vfs.upgrade().map_or(self.dev, |v| v.new_dev())
        })
    }

    /// The attributes as the container sees them.
    fn seen(&self, mut a: Attr) -> Attr {
        a.stat.uid = self.seen_uid(a.stat.uid);
        a.stat.gid = self.seen_gid(a.stat.gid);
        a
    }
    fn seen_uid(&self, uid: u32) -> u32 {
        match &self.options.ids {
            Ids::OwnerIsRoot if uid == self.client.server().uid => 0,
            Ids::Mapped(m) => IdMaps::inside(&m.uids, uid),
            _ => uid,
        }
    }
    fn seen_gid(&self, gid: u32) -> u32 {
        match &self.options.ids {
            Ids::OwnerIsRoot if gid == self.client.server().gid => 0,
            Ids::Mapped(m) => IdMaps::inside(&m.gids, gid),
            _ => gid,
        }
    }

    /// A host uid for one of the container's; `EOVERFLOW` where it has none.
    fn host_uid(&self, id: u32) -> Result<u32> {
        match &self.options.ids {
            Ids::OwnerIsRoot if id == 0 => Ok(self.client.server().uid),
            Ids::Mapped(m) => IdMaps::outside(&m.uids, id).ok_or(EOVERFLOW),
            _ => Ok(id),
        }
    }

    /// As [`GoferFs::host_uid`].
    fn host_gid(&self, id: u32) -> Result<u32> {
        match &self.options.ids {
            Ids::OwnerIsRoot if id == 0 => Ok(self.client.server().gid),
            Ids::Mapped(m) => IdMaps::outside(&m.gids, id).ok_or(EOVERFLOW),
            _ => Ok(id),
        }
    }

    /// Before the Gofer is asked for another handle for the caller: `ENFILE` where its user has
    /// what it may, or all but root have. Names that nobody uses are forgotten first.
    fn may_hold(&self, cx: &Caller<'_>) -> Result<()> {
        let handles = &self.options.kept.handles;
        let user = cx.cred.ucounts();
        if cx.cred.may_hold_host_file().is_err() {
            user.make_room(|| user.count(Kind::HostFiles), vfs::dentry::shrink_all);
        } else if handles.are_few() {
            let live = || i64::try_from(handles.live.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
            user.make_room(live, vfs::dentry::shrink_all);
        } else {
            return Ok(());
        }
        if handles.are_for_root() && !cx.cred.may_hold_all_host_files() {
            return Err(ENFILE);
        }
        cx.cred.may_hold_host_file()
    }

    /// The inode of a file, of which `handle` is one more handle. The attributes were asked for
    /// when there had been `since` changes.
    fn inode(
        self: &Arc<Self>,
        attr: Attr,
        handle: Handle,
        target: Option<Vec<u8>>,
        since: u64,
        cred: &Credentials,
    ) -> Arc<GoferInode> {
        let key = (attr.stat.dev, attr.stat.ino);
        let mut inodes = self.inodes.lock();
        // What is dropped here may be the last reference, whose end takes the lock.
        let mut stale = None;
        if let Some(i) = inodes.get(&key).and_then(Weak::upgrade) {
            if i.is_type(attr.stat.mode) {
                drop(inodes);
                i.set_attrs(attr, since);
                self.client.close(handle);
                return i;
            }
            stale = Some(i);
        }
        let charge = cred.ucounts().force(Kind::HostFiles, 1);
        let i = GoferInode::new(self, attr, handle, target, charge);
        inodes.insert(key, Arc::downgrade(&i));
        drop(inodes);
        drop(stale);
        i
    }
}

impl FileSystem for GoferFs {
    fn name(&self) -> &'static str {
        "gofer"
    }
    fn stat_fs(&self) -> Result<StatFs> {
        Ok(StatFs {
            fsid: self.dev,
            ..self.client.stat_fs(self.root)?
        })
    }
    fn caching(&self) -> Caching {
        if self.exclusive() {
            Caching::Owned
        } else {
            Caching::Revalidate
        }
    }
    fn max_cached(&self) -> usize {
        // Each cached name may hold a handle, of which all mounts share what there is; leave some
        // for what is open.
        let mounts = self.client.attached().max(1);
        (self.client.server().max_handles as usize / 2 / mounts).min(1 << 15)
    }
    fn shrink(&self) {
        self.forget_all_known();
        self.options.kept.shrink();
    }
    fn shown_root(&self) -> &str {
        &self.options.shown
    }
    fn options(&self) -> String {
        String::from(if self.exclusive() {
            ",cache=exclusive"
        } else {
            ",cache=shared"
        })
    }
}

#[cfg(test)]
mod tests;
