//! Leases of files: fcntl(2)'s F_SETLEASE (Linux's `fs/locks.c`).
//!
//! Who has a file open for itself, or for reading among readers, may ask to be told before that
//! changes. An open(2) or truncate(2) that would change it *breaks* the lease: it has the holder
//! signalled, and waits until the holder has given the lease up (or has made a read lease of a
//! write lease, where that is enough), at most `fs.lease-break-time` seconds. Then the lease is
//! taken.
//!
//! What the host's other programs do with a file is not seen, as they are not told of these leases.
//!
//! Invariants:
//! - An open file has at most one lease; beside a write lease there is no other.
//! - Who opens a file counts (as a writer or reader of the inode) before it looks for leases, and
//!   who takes a lease puts it in place before it looks at the counts for the last time: one of
//!   the two sees the other.
//! - `InodeExt::leased` is the number of leases: an open of a file without any costs one load.
//! - Who is to be signalled is known when the lease is there, as it may be broken at once.
//! - Under the lock the file's owner may be set; else it is a leaf. Nobody is told, nobody waits
//!   and nothing of a file is dropped under it.

use crate::attachments::Attachable;
use crate::cred::{Caps, Credentials};
use crate::file::File;
use crate::inode::InodeExt;
use crate::locks::LockKind;
use crate::mode::FileType;
use crate::sigio::{Messenger, Owner};
use crate::ucounts::Charge;
use abi::Result;
use abi::errno::{EACCES, EAGAIN, EINVAL, ETIMEDOUT};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use wait::{Blocker, Events, WaitQueue, block_until};

/// `fs.leases-enable`.
pub static ENABLED: AtomicI64 = AtomicI64::new(1);
/// `fs.lease-break-time`, in seconds; 0: none is taken from its holder.
pub static BREAK_TIME: AtomicI64 = AtomicI64::new(45);
/// What a lease takes of the kernel's memory, bytes.
const LEASE: u64 = 256;

/// Until when somebody waits.
#[derive(Clone, Copy)]
enum Deadline {
    Never,
    At(Instant),
}

impl Deadline {
    fn instant(self) -> Option<Instant> {
        match self {
            Deadline::Never => None,
            Deadline::At(t) => Some(t),
        }
    }
}

struct Lease {
    /// [`File::id`].
    file: u64,
    of: Weak<File>,
    kind: LockKind,
    /// The process that took it.
    pid: i32,
    holder: Arc<dyn Messenger>,
    /// A writer waits for it to go (`FL_UNLOCK_PENDING`).
    unlock_by: Option<Deadline>,
    /// A reader waits for it to become a read lease (`FL_DOWNGRADE_PENDING`).
    downgrade_by: Option<Deadline>,
    _charge: Charge,
}

/// Who asks for a lease.
pub struct Asker<'a> {
    /// Its process.
    pub pid: i32,
    /// Becomes the file's owner, unless it has one.
    pub owner: Owner,
    /// Tells that owner.
    pub messenger: Arc<dyn Messenger>,
    pub cred: &'a Credentials,
}

impl Lease {
    fn conflicts(&self, with: LockKind) -> bool {
        self.kind == LockKind::Write || with == LockKind::Write
    }
    /// What it is, or is to become; `None`: nothing.
    fn target(&self) -> Option<LockKind> {
        match (self.unlock_by, self.downgrade_by) {
            (Some(_), _) => None,
            (None, Some(_)) => Some(LockKind::Read),
            (None, None) => Some(self.kind),
        }
    }
    fn is_breaking(&self) -> bool {
        self.unlock_by.is_some() || self.downgrade_by.is_some()
    }
    fn becomes(&mut self, kind: LockKind) {
        self.kind = kind;
        if kind == LockKind::Read {
            self.downgrade_by = None;
        }
    }
}

/// As `/proc/locks` shows one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// `None`: it goes.
    pub target: Option<LockKind>,
    pub breaking: bool,
    pub pid: i32,
}

/// The leases of one file.
#[derive(Default)]
pub struct Leases {
    /// In the order in which they came. Locked as the module says.
    list: Mutex<Vec<Lease>>,
    queue: WaitQueue,
}

fn is_past(deadline: Option<Deadline>, now: Instant) -> bool {
    deadline
        .and_then(Deadline::instant)
        .is_some_and(|t| t <= now)
}

impl Attachable for Leases {}

/// What is to be dropped without the list's lock.
type Ended = Vec<(Lease, Option<Arc<File>>)>;

/// A lease is over: its file has no owner to signal any more, and no signal of its own
/// (`lease_modify`). Under the list's lock, as the next lease of the file may bring an owner.
fn end(l: Lease) -> (Lease, Option<Arc<File>>) {
    let file = l.of.upgrade();
    if let Some(f) = &file {
        f.sigio.set_owner(Owner::default());
        f.sigio.set_signal(0);
    }
    (l, file)
}

impl InodeExt {
    /// The leases, made at first use.
    fn leases(&self) -> Arc<Leases> {
        self.attachments.get_or_make()
    }
    fn count_leases(&self, list: &[Lease]) {
        self.leased.store(list.len() as u32, Ordering::SeqCst);
    }

    /// Does something with the leases, without those whose time is over.
    fn with_leases<R>(&self, f: impl FnOnce(&mut Vec<Lease>) -> R) -> R {
        let l = self.leases();
        let mut list = l.list.lock();
        let gone = time_out(&mut list);
        let r = f(&mut list);
        self.count_leases(&list);
        drop(list);
        if !gone.is_empty() {
            l.queue.notify(Events::IN);
        }
        drop(gone);
        r
    }

    /// `EAGAIN` where the file's opens do not allow such a lease (`check_conflicting_open`).
    fn may_lease(&self, file: &File, kind: LockKind) -> Result<()> {
        let (writers, readers) = self.opens();
        let own = match (file.writable(), file.readable()) {
            (true, _) => (1, 0),
            (false, true) => (0, 1),
            (false, false) => (0, 0),
        };
        let fine = match kind {
            LockKind::Read => writers <= 0,
            LockKind::Write => (writers, readers) == own,
        };
        fine.then_some(()).ok_or(EAGAIN)
    }

    fn take_lease(&self, file: &Arc<File>, kind: LockKind, asker: Asker<'_>) -> Result<()> {
        let Asker {
            pid,
            owner,
            messenger: holder,
            cred,
        } = asker;
        let charge = cred.ucounts().force(crate::ucounts::Kind::Kmem, LEASE);
        cred.may_take_more(abi::errno::ENOMEM)?;
        let enabled = ENABLED.load(Ordering::Relaxed) != 0;
        let mut old = None;
        let r = self.with_leases(|list| {
            self.may_lease(file, kind)?;
            let others = |l: &&Lease| l.file != file.id;
            let in_the_way = |l: &Lease| kind == LockKind::Write || l.unlock_by.is_some();
            if list.iter().filter(others).any(in_the_way) {
                return Err(EAGAIN);
            }
            if let Some(l) = list.iter_mut().find(|l| l.file == file.id) {
                l.becomes(kind);
                old = Some(std::mem::replace(&mut l.holder, holder));
                file.sigio.set_owner_if_none(owner);
                return Ok(());
            }
            if !enabled {
                return Err(EINVAL);
            }
            list.push(Lease {
                file: file.id,
                of: Arc::downgrade(file),
                kind,
                pid,
                holder,
                unlock_by: None,
                downgrade_by: None,
                _charge: charge,
            });
            // Who opens it from now on sees the lease; who did before is counted by now.
            self.count_leases(list);
            let again = self.may_lease(file, kind);
            match again {
                Ok(()) => file.sigio.set_owner_if_none(owner),
                Err(_) => drop(list.pop()),
            }
            again
        });
        if old.is_some() {
            self.leases().queue.notify(Events::IN);
        }
        r
    }

    fn end_lease(&self, id: u64) -> Result<()> {
        let gone = self.with_leases(|list| {
            let at = list.iter().position(|l| l.file == id).ok_or(EAGAIN)?;
            Ok(end(list.remove(at)))
        })?;
        self.leases().queue.notify(Events::IN);
        drop(gone);
        Ok(())
    }

    /// Breaks the leases that stand against who opens the file so (`Read`), or changes it
    /// (`Write`); the caller is counted already. `EAGAIN` where it would wait and has no blocker.
    pub(crate) fn break_leases(&self, want: LockKind, blocker: Option<&dyn Blocker>) -> Result<()> {
        if self.leased.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        if !self.ask_back(want) {
            return Ok(());
        }
        let Some(b) = blocker else { return Err(EAGAIN) };
        let leases = self.leases();
        let queue = [(&leases.queue, Events::IN)];
        loop {
            let until = self.with_leases(|list| {
                let of = |l: &Lease| match want {
                    LockKind::Write => l.unlock_by?.instant(),
                    LockKind::Read => l.unlock_by.or(l.downgrade_by)?.instant(),
                };
                list.iter()
                    .filter(|l| l.conflicts(want))
                    .filter_map(of)
                    .min()
            });
            let r = block_until(b, &queue, until, || {
                let waits = self.with_leases(|list| list.iter().any(|l| l.conflicts(want)));
                if waits { Err(EAGAIN) } else { Ok(()) }
            });
            if r != Err(ETIMEDOUT) {
                return r;
            }
        }
    }

    /// Tells the holders of what conflicts, once each; whether there are any.
    fn ask_back(&self, want: LockKind) -> bool {
        let seconds = BREAK_TIME.load(Ordering::Relaxed).max(0) as u64;
        let at = (seconds > 0)
            .then(|| wait::deadline_after(Duration::from_secs(seconds)))
            .flatten();
        let deadline = at.map_or(Deadline::Never, Deadline::At);
        let mut told = Vec::new();
        let any = self.with_leases(|list| {
            let mut any = false;
            for l in list.iter_mut().filter(|l| l.conflicts(want)) {
                any = true;
                let known = match want {
                    LockKind::Write => l.unlock_by.is_some(),
                    LockKind::Read => l.is_breaking(),
                };
                if known {
                    continue;
                }
                match want {
                    LockKind::Write => l.unlock_by = Some(deadline),
                    LockKind::Read => l.downgrade_by = Some(deadline),
                }
                told.push(l.holder.clone());
            }
            any
        });
        told.into_iter().for_each(Messenger::message);
        any
    }

    /// What `/proc/locks` shows.
    #[must_use]
    pub fn shown_leases(&self) -> Vec<Shown> {
        if self.leased.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let show = |l: &Lease| Shown {
            target: l.target(),
            breaking: l.is_breaking(),
            pid: l.pid,
        };
        self.with_leases(|list| list.iter().map(show).collect())
    }
}

/// Takes what was not given in time (`time_out_leases`).
fn time_out(list: &mut Vec<Lease>) -> Ended {
    if list.iter().all(|l| !l.is_breaking()) {
        return Vec::new();
    }
    let now = Instant::now();
    for l in list.iter_mut() {
        if is_past(l.downgrade_by, now) {
            l.becomes(LockKind::Read);
        }
    }
    let gone = list.extract_if(.., |l| is_past(l.unlock_by, now));
    gone.map(end).collect()
}

fn ext_of(file: &File) -> Option<&InodeExt> {
    let inode = file.path.as_ref()?.inode().ok()?;
    Some(inode.ext())
}

impl File {
    /// `F_SETLEASE`: `None` gives it up.
    pub fn set_lease(self: &Arc<Self>, kind: Option<LockKind>, asker: Asker<'_>) -> Result<()> {
        let cred = asker.cred;
        let (owner, file_type) = match &self.path {
            Some(p) => (p.inode()?.perm()?.uid, p.inode()?.file_type()),
            None => (self.ops.stat()?.uid, FileType::Fifo),
        };
        if owner != cred.fsuid && !cred.has(Caps::LEASE) {
            return Err(EACCES);
        }
        let regular = file_type == FileType::Regular;
        let ext = ext_of(self).filter(|_| regular).ok_or(EINVAL)?;
        match kind {
            Some(kind) => {
                let place = self.path.as_ref().ok_or(EINVAL)?;
                crate::listed::list(place.inode()?);
                ext.take_lease(self, kind, asker)
            }
            None if ext.leased.load(Ordering::SeqCst) == 0 => Err(EAGAIN),
            None => ext.end_lease(self.id),
        }
    }

    /// `F_GETLEASE`: what it is, or is to become.
    #[must_use]
    pub fn lease(&self) -> Option<LockKind> {
        let ext = ext_of(self).filter(|e| e.leased.load(Ordering::SeqCst) != 0)?;
        ext.with_leases(|list| list.iter().find(|l| l.file == self.id)?.target())
    }
}

/// The last reference to an open file went.
pub(crate) fn release_file(file: &File) {
    if let Some(ext) = ext_of(file).filter(|e| e.leased.load(Ordering::SeqCst) != 0) {
        let _ = ext.end_lease(file.id);
    }
}
