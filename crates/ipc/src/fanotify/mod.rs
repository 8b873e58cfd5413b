//! `fanotify(7)`: the file object of a group (Linux's `fs/notify/fanotify`).
//!
//! A group has marks ([`marks`]), of which the VFS tells it what happened ([`vfs::watch::marks`]);
//! that queues ([`events`]) until somebody reads it. What a group of a higher class is asked waits
//! for the answer that is written to it ([`questions`]).
//!
//! Invariants:
//! - The queue's lock is a leaf: it may be taken under whatever locks those hold to whom something
//!   happened. Nothing of the VFS is dropped under it.
//! - Who asks holds no lock while it waits, and waits as only its end ends it. When the last
//!   descriptor of the group goes, all that was asked is allowed, and nothing is asked any more.
//! - Each event is its user's memory until it is read; where that has no more, or there are too
//!   many, one event says that some are lost.
//! - An event that was told already and not read takes in the next of the same file, name and
//!   process: so a program that writes much does not fill the queue. Questions are never joined.

mod events;
pub mod marks;
mod questions;

pub use events::Numbers;

use crate::{FIONREAD, anon_stat};
use abi::errno::{EAGAIN, EFAULT, EINVAL, EMFILE, ENOTTY};
use abi::{Result, Va};
use events::{About, Event, Key};
use marks::Entry;
use parking_lot::Mutex;
use questions::Question;
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use vfs::file::{Io, IoctlContext, ReleaseListener};
use vfs::ucounts::{Charge, Kind};
use vfs::userns::UserNs;
use vfs::watch::Happening;
use vfs::watch::marks::{Group, Mark, Matched, REPORT_ANY_FID};
use vfs::{Credentials, File, FileOps, Path, Sink, Source, Stat};
use wait::later::drop_later;
use wait::{Blocker, Events, WaitQueue};

pub const FAN_CLASS_CONTENT: u32 = 4;
pub const FAN_CLASS_PRE_CONTENT: u32 = 8;
pub const FAN_UNLIMITED_QUEUE: u32 = 0x10;
pub const FAN_UNLIMITED_MARKS: u32 = 0x20;
pub const FAN_ENABLE_AUDIT: u32 = 0x40;
pub const FAN_REPORT_PIDFD: u32 = 0x80;
pub const FAN_REPORT_TID: u32 = 0x100;
pub const FAN_REPORT_FD_ERROR: u32 = 0x2000;
/// The flags of fanotify_init(2) that `/proc/PID/fdinfo` shows (`FANOTIFY_INIT_FLAGS`).
const SHOWN: u32 = 0x7fbf;

/// `fs.fanotify.max_queued_events`, of new groups.
pub static MAX_QUEUED: AtomicI64 = AtomicI64::new(16384);

/// What only the kernel of tasks can do for a reader.
pub trait Tasks: Send + Sync {
    /// Has `copy` copy an event out with the numbers that the reader knows it by. Descriptors are
    /// the reader's if that worked.
    fn deliver(
        &self,
        reader: &dyn Any,
        needs: &Needs<'_>,
        copy: &mut dyn FnMut(Numbers) -> Result<()>,
    ) -> Result<()>;
}

/// What a reader needs for an event.
pub struct Needs<'a> {
    /// To be opened, with these flags of open(2).
    pub open: Option<(&'a Path, u32)>,
    /// Who did it: a pid of the kernel's.
    pub who: Option<&'a Arc<dyn Any + Send + Sync>>,
    /// Whether a pidfd of that process.
    pub pidfd: bool,
    /// Whether only the reader's own process is told.
    pub only_own: bool,
    /// Whether errors are told in place of descriptors (FAN_REPORT_FD_ERROR).
    pub tells_errors: bool,
}

/// What the maker of a group may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// All: it has CAP_SYS_ADMIN.
    Admin,
    /// Its group tells no pids of others, and marks files alone (`FANOTIFY_UNPRIV`).
    Unprivileged,
}

/// A group.
pub struct Fanotify {
    me: Weak<Fanotify>,
    /// Those of fanotify_init(2).
    flags: u32,
    /// With which files of events are opened.
    event_flags: u32,
    privilege: Privilege,
    pub user_ns: UserNs,
    cred: Arc<Credentials>,
    tasks: Arc<dyn Tasks>,
    most: usize,
    state: Mutex<State>,
    /// By the marks' numbers. Taken before the lists that the marks are in; what is taken out is
    /// dropped without it, as it may be what keeps a file whose marks then end.
    entries: Mutex<BTreeMap<u64, Entry>>,
    /// Who reads.
    queue: WaitQueue,
    /// Who waits for an answer.
    answers: WaitQueue,
    /// Counts it for its user, who its marks count for, too.
    instance: Charge,
}

#[derive(Default)]
struct State {
    /// In the order in which they came.
    events: BTreeMap<u64, Event>,
    next: u64,
    /// Those that others may join.
    joinable: HashMap<Key, u64>,
    overflown: bool,
    memory: Option<Charge>,
    questions: BTreeMap<u64, Question>,
    /// Questions that were read, by the descriptor that was told.
    read: Vec<(i32, u64)>,
    closed: bool,
}

impl State {
    fn put(&mut self, e: Event) -> u64 {
        let n = self.next;
        self.next += 1;
        self.events.insert(n, e);
        n
    }
    /// Whether its user has memory for one more event.
    fn pays_for(&mut self, bytes: u64) -> bool {
        let memory = self.memory.as_mut();
        memory.is_none_or(|m| m.grow(bytes, u64::MAX))
    }
    /// Some are lost.
    fn overflow(&mut self) {
        if !self.overflown {
            self.overflown = true;
            self.put(Event::overflow());
        }
    }
    /// Takes an event out.
    fn take(&mut self, n: u64) -> Option<Event> {
        let e = self.events.remove(&n)?;
        if let Some(m) = &mut self.memory {
            m.shrink(e.memory());
        }
        if matches!(e.about, About::Overflow) {
            self.overflown = false;
        } else if let Some(k) = e.key() {
            self.joinable.remove(&k);
        }
        Some(e)
    }
}

impl Fanotify {
    /// `EMFILE` where the user has too many (`fs.fanotify.max_user_groups`). The flags are checked.
    pub fn new(
        flags: u32,
        event_flags: u32,
        privilege: Privilege,
        cred: &Arc<Credentials>,
        tasks: Arc<dyn Tasks>,
    ) -> Result<Arc<Fanotify>> {
        let user = cred.ucounts();
        let instance = user.charge(Kind::FanotifyGroups, 1, u64::MAX);
        let instance = instance.ok_or(EMFILE)?;
        let most = match flags & FAN_UNLIMITED_QUEUE {
            0 => MAX_QUEUED.load(Ordering::Relaxed).max(0) as usize,
            _ => usize::MAX,
        };
        Ok(Arc::new_cyclic(|me| Fanotify {
            me: me.clone(),
            flags,
            event_flags,
            privilege,
            user_ns: cred.user_ns.clone(),
            cred: cred.clone(),
            tasks,
            most,
            state: Mutex::new(State {
                memory: Some(user.force(Kind::Kmem, 0)),
                ..State::default()
            }),
            entries: Mutex::default(),
            queue: WaitQueue::new(),
            answers: WaitQueue::new(),
            instance,
        }))
    }

    /// The open file, whose end ends all that is asked.
    pub fn watch_end(self: &Arc<Self>, f: &File) {
        let l: Weak<dyn ReleaseListener> = self.me.clone();
        f.add_release_listener(0, l);
    }

    /// How many events may wait is bounded by memory alone where it is not by number.
    fn queue_event(&self, e: Event) {
        let mut left = None;
        let mut s = self.state.lock();
        if s.closed {
            return;
        }
        let key = e.key();
        let old = key.as_ref().and_then(|k| s.joinable.get(k).copied());
        if s.events.len() >= self.most {
            s.overflow();
            left = Some(e);
        } else if let Some(old) = old.and_then(|n| s.events.get_mut(&n)) {
            old.mask |= e.mask;
            left = Some(e);
        } else if s.pays_for(e.memory()) {
            let n = s.put(e);
            if let Some(k) = key {
                s.joinable.insert(k, n);
            }
        } else {
            s.overflow();
            left = Some(e);
        }
        drop(s);
        drop(left);
        self.queue.notify(Events::READABLE);
    }

    fn needs<'a>(&self, e: &'a Event) -> Needs<'a> {
        let path = match &e.about {
            About::Path(p) if self.privilege == Privilege::Admin => Some(p),
            _ => None,
        };
        Needs {
            open: path.map(|p| (p, self.event_flags)),
            who: e.who.as_ref(),
            pidfd: self.flags & FAN_REPORT_PIDFD != 0,
            only_own: self.privilege == Privilege::Unprivileged,
            tells_errors: self.flags & FAN_REPORT_FD_ERROR != 0,
        }
    }

    /// One event to a reader; `None` where there is none. (`EAGAIN` is of a file that cannot be
    /// opened.)
    fn read_one(&self, reader: &dyn Any, dst: &mut dyn Sink) -> Result<Option<usize>> {
        let (n, e) = {
            let mut s = self.state.lock();
            let Some((n, e)) = s.events.first_key_value() else {
                return Ok(None);
            };
            let n = *n;
            if e.encode(self.flags, Numbers::NONE).len() > dst.remaining() {
                return Err(EINVAL);
            }
            let e = s.take(n).ok_or(EAGAIN)?;
            if e.asks {
                s.is_read(n);
            }
            (n, e)
        };
        let (mut len, mut told) = (0, -1);
        let r = self.tasks.deliver(reader, &self.needs(&e), &mut |numbers| {
            let bytes = e.encode(self.flags, numbers);
            (len, told) = (bytes.len(), numbers.fd);
            if e.asks {
                // The answer may come as soon as it is read.
                self.is_told(n, numbers.fd);
            }
            match dst.put(&bytes)? {
                n if n == bytes.len() => Ok(()),
                _ => Err(EFAULT),
            }
        });
        if e.asks && (r.is_err() || told < 0) {
            self.deny(n);
        }
        r.map(|()| Some(len))
    }

    /// `EAGAIN` where there is nothing; else what read(2) gives.
    fn read_some(&self, reader: &dyn Any, dst: &mut dyn Sink) -> Result<Result<usize>> {
        let mut done = 0;
        loop {
            match self.read_one(reader, dst) {
                Ok(Some(n)) => done += n,
                Ok(None) if done == 0 => return Err(EAGAIN),
                Err(e) if done == 0 || e == EFAULT => return Ok(Err(e)),
                Ok(None) | Err(_) => return Ok(Ok(done)),
            }
        }
    }
}

impl Group for Fanotify {
    fn flags(&self) -> u32 {
        self.flags
    }
    fn priority(&self) -> u8 {
        (self.flags & (FAN_CLASS_CONTENT | FAN_CLASS_PRE_CONTENT)) as u8
    }
    fn tell(&self, h: &Happening<'_>, events: u32, matched: Matched, fsid: u64) {
        let mut e = Event::new(self.flags, h, events, matched, fsid);
        // A file that waits in the queue stays in memory.
        if let About::Path(p) = &e.about {
            let user = p.inode().ok().and_then(|i| i.host_user());
            match self.cred.hold(user) {
                Ok(held) => e.held = held,
                Err(_) => {
                    self.state.lock().overflow();
                    return self.queue.notify(Events::READABLE);
                }
            }
        }
        self.queue_event(e);
    }
    fn ask(&self, h: &Happening<'_>, events: u32, fsid: u64, b: &dyn Blocker) -> Result<()> {
        self.question(Event::new(self.flags, h, events, Matched::empty(), fsid), b)
    }
    fn forget(&self, mark: &Arc<Mark>) {
        let gone = self.entries.lock().remove(&mark.number);
        drop(gone);
    }
}

impl ReleaseListener for Fanotify {
    fn released(&self, _: &File, _: u64) {
        self.close();
    }
}

impl FileOps for Fanotify {
    fn read_as(&self, io: &Io<'_>, dst: &mut dyn Sink) -> Result<usize> {
        io.wait(Events::READABLE, None, || {
            self.read_some(io.caller.task(), dst)
        })?
    }
    fn write(&self, _: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        self.answer(src)
    }
    fn ignores_seek(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Ok(anon_stat())
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        match self.state.lock().events.is_empty() {
            true => Events::empty(),
            false => mask & Events::READABLE,
        }
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue)
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        if cmd != FIONREAD {
            return Err(ENOTTY);
        }
        let n = self.state.lock().events.len() * events::METADATA;
        cx.copy_out(Va(arg), &(n as i32).to_le_bytes())?;
        Ok(0)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "anon_inode:[fanotify]".into()
    }
    fn fdinfo(&self) -> String {
        let mut out = format!(
            "fanotify flags:{:x} event-flags:{:x}\n",
            self.flags & SHOWN,
            self.event_flags
        );
        for e in self.entries.lock().values() {
            let _ = writeln!(out, "fanotify {}", e.shown());
        }
        out
    }
}

impl Fanotify {
    /// Whether it hears of files by handles.
    #[must_use]
    pub fn fids(&self) -> u32 {
        self.flags & REPORT_ANY_FID
    }
}

/// What a group leaves behind: files and mounts that it kept, in whose lists its marks are. It may
/// end under the locks of one that told it something.
struct Rest {
    entries: BTreeMap<u64, Entry>,
    _state: State,
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.entries.values().for_each(|e| e.mark.detach());
    }
}

impl Drop for Fanotify {
    fn drop(&mut self) {
        drop_later(Rest {
            entries: std::mem::take(self.entries.get_mut()),
            _state: std::mem::take(self.state.get_mut()),
        });
    }
}
