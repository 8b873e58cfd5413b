//! `inotify(7)`: the file object, and the list of a file's watches.
//!
//! A [`WatchList`] is attached to an inode at its first watch, beside [`vfs::watch::Watchers`], by
//! which the VFS tells it what happens to the file, or in the directory with a name. A watch is in
//! its instance and in one list: it leaves both, or its list ended, or its instance.

use crate::{FIONREAD, anon_stat};
use abi::errno::{EAGAIN, EEXIST, EINVAL, EMFILE, ENOSPC, ENOTTY};
use abi::{Result, Va};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use vfs::attachments::Attachable;
use vfs::file::IoctlContext;
use vfs::ops::Marked;
use vfs::ucounts::{Charge, Kind};
use vfs::watch::{IN_EXCL_UNLINK, IN_UNMOUNT, Watched, Watcher};
use vfs::{Credentials, File, FileOps, Sink, Stat};
use wait::later::drop_later;
use wait::{Events, WaitQueue};

pub const IN_Q_OVERFLOW: u32 = 0x4000;
pub const IN_IGNORED: u32 = 0x8000;
pub const IN_MASK_CREATE: u32 = 0x1000_0000;
pub const IN_MASK_ADD: u32 = 0x2000_0000;
pub const IN_ISDIR: u32 = 0x4000_0000;
pub const IN_ONESHOT: u32 = 0x8000_0000;
const IN_ALL_EVENTS: u32 = 0xfff;

/// `/proc/sys/fs/inotify/max_queued_events`.
const MAX_QUEUED: usize = 16384;

/// An inotify instance.
pub struct Inotify {
    me: Weak<Inotify>,
    /// Taken after a list's `watchers`; else a leaf. No watch is dropped under it.
    state: Mutex<State>,
    queue: WaitQueue,
    /// Counts it for its user, who its watches count for, too.
    instance: Charge,
}

#[derive(Default)]
struct State {
    last_wd: i32,
    watches: BTreeMap<i32, Watch>,
    events: VecDeque<Event>,
    /// The memory of `events`, its user's.
    memory: Option<Charge>,
}

impl State {
    /// Whether there may be one more event of this size.
    fn has_room(&mut self, bytes: u64) -> bool {
        let memory = self.memory.as_mut();
        self.events.len() < MAX_QUEUED && memory.is_none_or(|m| m.grow(bytes, u64::MAX))
    }
    /// The first event leaves.
    fn pop(&mut self) {
        if let (Some(e), Some(m)) = (self.events.pop_front(), &mut self.memory) {
            m.shrink(e.memory());
        }
    }
}

struct Watch {
    _counted: Charge,
    /// For the file that it keeps in use.
    _held: Option<Charge>,
    /// Dropped without locks, as all of this.
    kept: Watched,
    mask: u32,
    list: Weak<WatchList>,
}

#[derive(PartialEq, Eq)]
struct Event {
    wd: i32,
    mask: u32,
    cookie: u32,
    name: Vec<u8>,
}

impl Event {
    /// Some were lost.
    fn overflow() -> Event {
        Event {
            wd: -1,
            mask: IN_Q_OVERFLOW,
            cookie: 0,
            name: Vec::new(),
        }
    }
    /// The name with its terminator, rounded up to the header's size, as Linux pads it.
    fn name_len(&self) -> usize {
        if self.name.is_empty() {
            0
        } else {
            (self.name.len() + 1).next_multiple_of(16)
        }
    }
    fn size(&self) -> usize {
        16 + self.name_len()
    }
    /// What it takes of the kernel's memory. That nothing more fits costs nothing: there is one
    /// such event.
    fn memory(&self) -> u64 {
        match self.mask {
            IN_Q_OVERFLOW => 0,
            _ => (size_of::<Event>() + self.name.len() + 16) as u64,
        }
    }
    fn encode(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(self.size());
        v.extend_from_slice(&self.wd.to_le_bytes());
        v.extend_from_slice(&self.mask.to_le_bytes());
        v.extend_from_slice(&self.cookie.to_le_bytes());
        v.extend_from_slice(&(self.name_len() as u32).to_le_bytes());
        v.extend_from_slice(&self.name);
        v.resize(self.size(), 0);
        v
    }
}

/// Who watches one inode.
#[derive(Default)]
pub struct WatchList {
    /// The length of `watchers`.
    count: AtomicU32,
    /// Taken before an instance's state.
    watchers: Mutex<Vec<(Weak<Inotify>, i32)>>,
}

impl WatchList {
    #[must_use]
    pub fn new() -> Arc<WatchList> {
        Arc::default()
    }
    /// The list of what `path` names, made at the first call, and what keeps the file for a watch.
    pub fn of(path: &vfs::Path) -> Result<(Arc<WatchList>, Watched)> {
        vfs::watch::watcher(path)
    }
    fn remove(&self, inotify: &Weak<Inotify>, wd: i32) {
        let mut w = self.watchers.lock();
        w.retain(|(i, n)| *n != wd || !Weak::ptr_eq(i, inotify));
        self.count.store(w.len() as u32, Ordering::Release);
    }
}

impl Attachable for WatchList {}

impl Watcher for WatchList {
    fn event(&self, mask: u32, cookie: u32, name: &[u8]) {
        notify(self, mask, cookie, name);
    }
    /// Each watch ends with IN_IGNORED (after IN_DELETE_SELF or IN_UNMOUNT).
    fn end(&self) {
        let all = std::mem::take(&mut *self.watchers.lock());
        self.count.store(0, Ordering::Release);
        for (i, wd) in all {
            if let Some(i) = i.upgrade() {
                i.ignored(wd);
            }
        }
    }
}

/// Tells those who watch the inode. `name`: of the entry in a watched directory, else empty;
/// `cookie` joins the two halves of a rename.
pub fn notify(list: &WatchList, mask: u32, cookie: u32, name: &[u8]) {
    if list.count.load(Ordering::Acquire) == 0 {
        return;
    }
    let all = list.watchers.lock().clone();
    for (i, wd) in all {
        if let Some(i) = i.upgrade() {
            i.event(wd, mask, cookie, name);
        }
    }
}

impl Inotify {
    /// `EMFILE` where the user has too many (`fs.inotify.max_user_instances`).
    pub fn new(cred: &Credentials) -> Result<Arc<Inotify>> {
        let user = cred.ucounts();
        let instance = user.charge(Kind::InotifyInstances, 1, u64::MAX);
        let instance = instance.ok_or(EMFILE)?;
        Ok(Arc::new_cyclic(|me| Inotify {
            me: me.clone(),
            state: Mutex::new(State {
                memory: Some(user.force(Kind::Kmem, 0)),
                ..State::default()
            }),
            queue: WaitQueue::new(),
            instance,
        }))
    }

    /// `inotify_add_watch(2)` on the inode with this list; `held` is what the watch counts for by
    /// keeping that ([`vfs::Credentials::hold`]), `kept` what keeps it. Path flags (IN_ONLYDIR,
    /// IN_DONT_FOLLOW) are the caller's.
    pub fn add_watch(
        &self,
        (list, kept): (&Arc<WatchList>, Watched),
        mask: u32,
        held: Option<Charge>,
    ) -> Result<i32> {
        if mask == 0 || (mask & IN_MASK_ADD != 0 && mask & IN_MASK_CREATE != 0) {
            return Err(EINVAL);
        }
        let keep = mask & (IN_ALL_EVENTS | IN_ONESHOT | IN_EXCL_UNLINK);
        let mut watchers = list.watchers.lock();
        let mut s = self.state.lock();
        if let Some((_, wd)) = watchers.iter().find(|(i, _)| Weak::ptr_eq(i, &self.me)) {
            if mask & IN_MASK_CREATE != 0 {
                return Err(EEXIST);
            }
            if let Some(w) = s.watches.get_mut(wd) {
                w.mask = if mask & IN_MASK_ADD != 0 {
                    w.mask | keep
                } else {
                    keep
                };
            }
            return Ok(*wd);
        }
        let counted = self
            .instance
            .user()
            .charge(Kind::InotifyWatches, 1, u64::MAX)
            .ok_or(ENOSPC)?;
        if s.last_wd == i32::MAX {
            return Err(ENOSPC);
        }
        s.last_wd += 1;
        let wd = s.last_wd;
        s.watches.insert(
            wd,
            Watch {
                _counted: counted,
                _held: held,
                kept,
                mask: keep,
                list: Arc::downgrade(list),
            },
        );
        watchers.push((self.me.clone(), wd));
        list.count.store(watchers.len() as u32, Ordering::Release);
        Ok(wd)
    }

    /// `inotify_rm_watch(2)`.
    pub fn remove_watch(&self, wd: i32) -> Result<()> {
        let list = self
            .state
            .lock()
            .watches
            .get(&wd)
            .ok_or(EINVAL)?
            .list
            .clone();
        if let Some(l) = list.upgrade() {
            l.remove(&self.me, wd);
        }
        self.ignored(wd);
        Ok(())
    }

    fn ignored(&self, wd: i32) {
        let gone = self.state.lock().watches.remove(&wd);
        if gone.is_some() {
            self.push(Event {
                wd,
                mask: IN_IGNORED,
                cookie: 0,
                name: Vec::new(),
            });
        }
    }

    fn event(&self, wd: i32, mask: u32, cookie: u32, name: &[u8]) {
        let mut once = None;
        {
            let s = self.state.lock();
            let Some(w) = s.watches.get(&wd) else { return };
            if w.mask & mask & IN_ALL_EVENTS == 0 && mask & IN_UNMOUNT == 0
                || w.mask & mask & IN_EXCL_UNLINK != 0
            {
                return;
            }
            if w.mask & IN_ONESHOT != 0 {
                once = Some(w.list.clone());
            }
        }
        self.push(Event {
            wd,
            mask: mask & !IN_EXCL_UNLINK,
            cookie,
            name: name.to_vec(),
        });
        if let Some(l) = once {
            if let Some(l) = l.upgrade() {
                l.remove(&self.me, wd);
            }
            self.ignored(wd);
        }
    }

    fn push(&self, e: Event) {
        {
            let mut s = self.state.lock();
            // An event equal to the last that nobody has read yet adds nothing.
            if s.events.back() == Some(&e) {
                return;
            }
            let e = if s.has_room(e.memory()) {
                e
            } else if s.events.back().is_none_or(|l| l.mask != IN_Q_OVERFLOW) {
                Event::overflow()
            } else {
                return;
            };
            s.events.push_back(e);
        }
        self.queue.notify(Events::READABLE);
    }
}

impl FileOps for Inotify {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        let mut done = 0;
        loop {
            let bytes = {
                let mut s = self.state.lock();
                match s.events.front() {
                    None if done == 0 => return Err(EAGAIN),
                    None => return Ok(done),
                    Some(e) if e.size() > dst.remaining() => {
                        return if done == 0 { Err(EINVAL) } else { Ok(done) };
                    }
                    Some(e) => {
                        let b = e.encode();
                        s.pop();
                        b
                    }
                }
            };
            match dst.put(&bytes) {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
        }
    }
    fn ignores_seek(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Ok(anon_stat())
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        if self.state.lock().events.is_empty() {
            Events::empty()
        } else {
            mask & Events::READABLE
        }
    }
    fn signals_owner(&self) -> bool {
        true
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue)
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        if cmd != FIONREAD {
            return Err(ENOTTY);
        }
        let n: usize = self.state.lock().events.iter().map(Event::size).sum();
        cx.copy_out(Va(arg), &(n as i32).to_le_bytes())?;
        Ok(0)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "anon_inode:inotify".into()
    }
    fn fdinfo(&self) -> String {
        // Asked of the files without the lock.
        let all: Vec<_> = {
            let s = self.state.lock();
            let watches = s.watches.iter();
            watches
                .map(|(wd, w)| (*wd, w.mask, w.kept.file()))
                .collect()
        };
        let mut out = String::new();
        // The last one first.
        for (wd, mask, file) in all.into_iter().rev() {
            let Some(Ok(m)) = file.map(|d| Marked::of(&d)) else {
                continue;
            };
            let (numbers, fhandle) = (m.numbers(), m.fhandle());
            let _ = writeln!(
                out,
                "inotify wd:{wd:x} {numbers} mask:{mask:x} ignored_mask:0{fhandle}"
            );
        }
        out
    }
}

/// What an instance leaves behind: files that it kept, which know it. It may end under the locks of
/// one that told it something.
struct Rest {
    of: Weak<Inotify>,
    state: State,
}

impl Drop for Rest {
    fn drop(&mut self) {
        for (wd, w) in &self.state.watches {
            if let Some(l) = w.list.upgrade() {
                l.remove(&self.of, *wd);
            }
        }
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        drop_later(Rest {
            of: self.me.clone(),
            state: std::mem::take(self.state.get_mut()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use wait::later;

    #[test]
    fn watches_events_overflow() {
        let i = Inotify::new(&Credentials::root()).unwrap();
        let f = file(i.clone(), 0);
        let dir = WatchList::new();
        assert_eq!(
            i.add_watch((&dir, Watched::default()), 0, None),
            Err(EINVAL)
        );
        let wd = i
            .add_watch((&dir, Watched::default()), 0x100 | 0x200, None)
            .unwrap();
        assert_eq!(
            i.add_watch((&dir, Watched::default()), 0x2 | IN_MASK_CREATE, None),
            Err(EEXIST)
        );
        assert_eq!(
            i.add_watch((&dir, Watched::default()), 0x2 | IN_MASK_ADD, None),
            Ok(wd)
        );
        notify(&dir, 0x1, 0, b"ignored");
        notify(&dir, 0x100, 0, b"new");
        notify(&dir, 0x100, 0, b"new");
        assert_eq!(read(&f, 16), Err(EINVAL));
        let got = read(&f, 500).unwrap();
        assert_eq!(got.len(), 32);
        assert_eq!(&got[4..8], &0x100u32.to_le_bytes());
        assert_eq!(&got[12..20], b"\x10\0\0\0new\0");
        for n in 0..MAX_QUEUED + 5 {
            notify(&dir, 0x100, 0, format!("{n}").as_bytes());
        }
        assert_eq!(i.state.lock().events.len(), MAX_QUEUED + 1);
        while read(&f, 1 << 20).is_ok() {}
        i.remove_watch(wd).unwrap();
        assert_eq!(i.remove_watch(wd), Err(EINVAL));
        assert_eq!(&read(&f, 99).unwrap()[4..8], &IN_IGNORED.to_le_bytes());
        assert_eq!(dir.count.load(Ordering::Relaxed), 0);
    }

    /// What nobody reads is its user's memory: where that has no more, events are lost, as where
    /// there are too many.
    #[test]
    fn events_are_charged_until_they_are_read() {
        let cred = Credentials::user(77_140, 77_140, vec![]);
        let u = cred.ucounts();
        let i = Inotify::new(&cred).unwrap();
        let f = file(i.clone(), 0);
        let dir = WatchList::new();
        i.add_watch((&dir, Watched::default()), 0x100, None)
            .unwrap();
        let own = u.count(Kind::Kmem);
        let event = |n: u32| notify(&dir, 0x100, 0, format!("{n:0>250}").as_bytes());
        (0..10).for_each(event);
        assert!(u.count(Kind::Kmem) >= own + 2500);
        let rest = cred.user_ns.limits().get(Kind::Kmem) - u.count(Kind::Kmem);
        let full = u.force(Kind::Kmem, rest as u64);
        (10..20).for_each(event);
        assert_eq!(i.state.lock().events.len(), 11);
        while read(&f, 1 << 20).is_ok() {}
        drop(full);
        assert_eq!(u.count(Kind::Kmem), own);
        event(0);
        assert_eq!(i.state.lock().events.len(), 1);
        // Without locks: who ends it may hold some.
        struct Here;
        impl later::Boundary for Here {
            fn ask(&self) {}
        }
        let _bounded = later::Bounded::by(Arc::new(Here));
        drop((i, f));
        assert!(u.count(Kind::Kmem) > 0 && dir.count.load(Ordering::Relaxed) == 1);
        later::run();
        assert_eq!(u.count(Kind::Kmem), 0);
        assert_eq!(dir.count.load(Ordering::Relaxed), 0);
    }
}
