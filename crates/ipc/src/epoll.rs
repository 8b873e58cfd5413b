//! `epoll(7)` (Linux's `fs/eventpoll.c`).
//!
//! An [`Epoll`] holds items, one per (descriptor, file). A watched file's queue calls the item,
//! which puts itself at the end of the ready list and wakes who waits. A wait takes items from the
//! front, asks each file what holds (the list is only a hint), and puts level-triggered ones back
//! at the end: so a small `maxevents` serves all in turn.
//!
//! An item does not keep its file alive; when the file's last reference goes, the item dies.
//!
//! What a watched queue refers to (items and [`Shared`]) takes no locks when it is dropped, since
//! that can happen under any lock.

use crate::anon_stat;
use crate::poll::Wait;
use abi::Result;
use abi::errno::{
    EAGAIN, EEXIST, EINTR, EINVAL, ELOOP, ENOENT, ENOSPC, EPERM, ERESTARTSYS, ETIMEDOUT,
};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::file::ReleaseListener;
use vfs::ucounts::{Charge, Kind, Ucounts};
use vfs::{Credentials, File, FileOps, Stat};
use wait::{Blocker, Events, Listener, Ticket, WaitQueue, block_until};

pub const EPOLL_CTL_ADD: u32 = 1;
pub const EPOLL_CTL_DEL: u32 = 2;
pub const EPOLL_CTL_MOD: u32 = 3;

pub const EPOLLEXCLUSIVE: u32 = 1 << 28;
pub const EPOLLWAKEUP: u32 = 1 << 29;
pub const EPOLLONESHOT: u32 = 1 << 30;
pub const EPOLLET: u32 = 1 << 31;
const PRIVATE: u32 = EPOLLEXCLUSIVE | EPOLLWAKEUP | EPOLLONESHOT | EPOLLET;
/// What may go with EPOLLEXCLUSIVE: IN, OUT, ERR, HUP, WAKEUP, ET.
const EXCLUSIVE_OK: u32 = 0x1 | 0x4 | 0x8 | 0x10 | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;

/// How many steps a chain of epolls that watch each other may have (Linux's EP_MAX_NESTS).
const MAX_NESTS: usize = 4;

/// How many ways a change may take up through epolls that watch each other: a change walks all of
/// them. (Linux bounds each length: `path_limits`.)
const MAX_PATHS: usize = 500;

/// What a wait gives: `struct epoll_event` without its packing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpollEvent {
    pub events: u32,
    pub data: u64,
    /// The descriptor that was added.
    pub fd: i32,
}

/// Serialises changes to who watches whom among epolls, so that two of them cannot close a loop
/// together.
static NESTING: Mutex<()> = Mutex::new(());

/// An epoll instance.
pub struct Epoll {
    me: Weak<Epoll>,
    /// Linux's `ep->mtx`: held while the ready list is scanned, and so while files are polled.
    items: Mutex<Items>,
    shared: Arc<Shared>,
    /// Epolls that watch this one, once for each item.
    watchers: Mutex<Vec<Weak<Epoll>>>,
    /// How often its set was changed; changed under `items`.
    changes: AtomicU64,
    /// Who made it: its items count for that user.
    user: Arc<Ucounts>,
}

/// What items reach.
struct Shared {
    ready: Mutex<Ready>,
    queue: WaitQueue,
    /// Keys of items whose file is gone, not yet taken out of `items`.
    dead: Mutex<Vec<(i32, u64)>>,
}

/// The ready list, in order of arrival.
#[derive(Default)]
struct Ready {
    last: u64,
    list: BTreeMap<u64, Arc<Item>>,
}

/// By descriptor and `File::id`.
type Items = HashMap<(i32, u64), Arc<Item>>;

struct Item {
    shared: Arc<Shared>,
    file: Weak<File>,
    key: (i32, u64),
    /// Changed under `Epoll::items`.
    events: AtomicU32,
    /// Changed under `Epoll::items`.
    data: AtomicU64,
    /// Its place in the ready list, 0 if none. Protected by `Shared::ready`.
    place: AtomicU64,
    dead: AtomicBool,
    ticket: Mutex<Option<Ticket>>,
    /// One of its user's watches, and the memory that it takes.
    _counted: [Charge; 2],
}

/// What an item takes of the kernel's memory, with its places in the tables and the file's queue,
/// bytes.
const ITEM: u64 = 512;

/// Whether a new watch must find room among its user's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Needed,
    Promised,
}

impl Item {
    fn mask(&self) -> Events {
        Events::from_bits_retain(self.events.load(Ordering::Acquire) & !PRIVATE)
    }
    /// Dead, or fired once (EPOLLONESHOT) and not armed again.
    fn silent(&self) -> bool {
        self.events.load(Ordering::Acquire) & !PRIVATE == 0 || self.dead.load(Ordering::Acquire)
    }
    /// What of its mask holds.
    fn poll(&self, file: &File) -> Events {
        let mask = self.mask();
        file.poll(mask) & mask
    }
    fn make_ready(self: &Arc<Self>) {
        {
            let mut r = self.shared.ready.lock();
            if self.place.load(Ordering::Relaxed) == 0 {
                r.last += 1;
                let at = r.last;
                self.place.store(at, Ordering::Relaxed);
                r.list.insert(at, self.clone());
            }
        }
        self.shared.queue.notify(Events::READABLE);
    }
    fn unready(&self) {
        let mut r = self.shared.ready.lock();
        let at = self.place.swap(0, Ordering::Relaxed);
        r.list.remove(&at);
    }
    fn watch(self: &Arc<Self>, file: &File) {
        let mut t = self.ticket.lock();
        if let Some(q) = file.ops.wait_queue() {
            if let Some(old) = t.take() {
                q.unregister(old);
            }
            let hook = Arc::new(Hook(self.clone()));
            let exclusive = self.events.load(Ordering::Relaxed) & EPOLLEXCLUSIVE != 0;
            *t = Some(if exclusive {
                q.register_exclusive(hook, self.mask())
            } else {
                q.register(hook, self.mask())
            });
        }
    }
    fn unwatch(&self, file: &File) {
        self.dead.store(true, Ordering::Release);
        if let (Some(q), Some(t)) = (file.ops.wait_queue(), self.ticket.lock().take()) {
            q.unregister(t);
        }
    }
}

/// An item as its file's queue calls it.
struct Hook(Arc<Item>);

impl Listener for Hook {
    fn notify(&self, _: Events) {
        if !self.0.silent() {
            self.0.make_ready();
        }
    }
    /// Of several epolls, one that has a waiter (or is watched itself) is enough
    /// (`ep_poll_callback`).
    fn notify_exclusive(&self, events: Events) -> bool {
        let waits = self.0.shared.queue.is_watched();
        self.notify(events);
        waits && !self.0.silent()
    }
}

impl ReleaseListener for Item {
    fn released(&self, file: &File, _: u64) {
        self.unwatch(file);
        self.unready();
        self.shared.dead.lock().push(self.key);
    }
}

fn as_release(item: &Arc<Item>) -> Weak<dyn ReleaseListener> {
    let w: Weak<Item> = Arc::downgrade(item);
    w
}

impl Epoll {
    #[must_use]
    pub fn new(cred: &Credentials) -> Arc<Epoll> {
        Arc::new_cyclic(|me| Epoll {
            user: cred.ucounts().clone(),
            me: me.clone(),
            items: Mutex::new(HashMap::new()),
            shared: Arc::new(Shared {
                ready: Mutex::new(Ready::default()),
                queue: WaitQueue::new(),
                dead: Mutex::new(Vec::new()),
            }),
            watchers: Mutex::new(Vec::new()),
            changes: AtomicU64::new(0),
        })
    }

    fn reap(&self, items: &mut Items) {
        for key in std::mem::take(&mut *self.shared.dead.lock()) {
            if items
                .get(&key)
                .is_some_and(|i| i.dead.load(Ordering::Acquire))
            {
                items.remove(&key);
            }
        }
    }

    /// Whether its owner may have `n` watches more.
    #[must_use]
    pub fn has_room(&self, n: u64) -> bool {
        self.user.has_room(Kind::EpollWatches, n) && self.user.has_room(Kind::Kmem, n * ITEM)
    }

    /// `epoll_ctl(2)` on descriptor `fd`, which stands for `file`. `event` is ignored by
    /// EPOLL_CTL_DEL.
    pub fn control(&self, op: u32, fd: i32, file: &Arc<File>, event: EpollEvent) -> Result<()> {
        self.change(op, fd, file, event, Room::Needed)
    }

    /// The same, where there was room for it ([`Epoll::has_room`]) when the application was told
    /// that it is done.
    pub fn change(
        &self,
        op: u32,
        fd: i32,
        file: &Arc<File>,
        event: EpollEvent,
        room: Room,
    ) -> Result<()> {
        if file.ops.wait_queue().is_none() {
            return Err(EPERM);
        }
        let target = file.ops::<Epoll>();
        if target.is_some_and(|t| std::ptr::eq(t, self)) {
            return Err(EINVAL);
        }
        if op != EPOLL_CTL_DEL && event.events & EPOLLEXCLUSIVE != 0 {
            let fine = op == EPOLL_CTL_ADD && target.is_none() && event.events & !EXCLUSIVE_OK == 0;
            if !fine {
                return Err(EINVAL);
            }
        }
        let _nesting = target.map(|_| NESTING.lock());
        if let (EPOLL_CTL_ADD, Some(t)) = (op, target) {
            self.check_nesting(t)?;
        }
        let key = (fd, file.id);
        let mut items = self.items.lock();
        self.reap(&mut items);
        let found = items.get(&key).cloned();
        let events = event.events | Events::ALWAYS.bits();
        let item = match (op, found) {
            (EPOLL_CTL_ADD, Some(_)) => return Err(EEXIST),
            (EPOLL_CTL_ADD, None) => {
                let item = self.item(key, file, event, room)?;
                items.insert(key, item.clone());
                file.add_release_listener(fd as u64, as_release(&item));
                if let Some(t) = target {
                    let mut w = t.watchers.lock();
                    w.retain(|w| w.strong_count() > 0);
                    w.push(self.me.clone());
                }
                item
            }
            (EPOLL_CTL_DEL | EPOLL_CTL_MOD, None) => return Err(ENOENT),
            (EPOLL_CTL_DEL, Some(item)) => {
                items.remove(&key);
                item.unwatch(file);
                item.unready();
                file.remove_release_listener(fd as u64, &as_release(&item));
                if let Some(t) = target {
                    let mut w = t.watchers.lock();
                    if let Some(at) = w.iter().position(|w| Weak::ptr_eq(w, &self.me)) {
                        w.swap_remove(at);
                    }
                }
                self.changes.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            (EPOLL_CTL_MOD, Some(item)) => {
                if item.events.load(Ordering::Relaxed) & EPOLLEXCLUSIVE != 0 {
                    return Err(EINVAL);
                }
                item.events.store(events, Ordering::Release);
                item.data.store(event.data, Ordering::Relaxed);
                item
            }
            _ => return Err(EINVAL),
        };
        self.changes.fetch_add(1, Ordering::SeqCst);
        item.watch(file);
        if !item.poll(file).is_empty() {
            item.make_ready();
        }
        Ok(())
    }

    /// An item that is in no set yet.
    fn item(
        &self,
        key: (i32, u64),
        file: &Arc<File>,
        event: EpollEvent,
        room: Room,
    ) -> Result<Arc<Item>> {
        // `fs.epoll.max_user_watches`.
        let charge = |k, n| match room {
            Room::Needed => self.user.charge(k, n, u64::MAX).ok_or(ENOSPC),
            Room::Promised => Ok(self.user.force(k, n)),
        };
        let counted = [charge(Kind::EpollWatches, 1)?, charge(Kind::Kmem, ITEM)?];
        Ok(Arc::new(Item {
            shared: self.shared.clone(),
            file: Arc::downgrade(file),
            key,
            events: AtomicU32::new(event.events | Events::ALWAYS.bits()),
            data: AtomicU64::new(event.data),
            place: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            ticket: Mutex::new(None),
            _counted: counted,
        }))
    }

    /// How often its set was changed: once by each call that succeeded.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Whether no other epoll watches it.
    #[must_use]
    pub fn is_unwatched(&self) -> bool {
        let mut w = self.watchers.lock();
        w.retain(|w| w.strong_count() > 0);
        w.is_empty()
    }

    /// `ELOOP` where watching `target` closes a loop or makes a chain too deep. `NESTING` is held.
    fn check_nesting(&self, target: &Epoll) -> Result<()> {
        let mut keep = Vec::new();
        let mut seen = HashMap::new();
        let below = target.depth_below(self, &mut seen, &mut keep, 0)?;
        let above = self.depth_above(&mut HashMap::new(), 0);
        if below + 1 + above > MAX_NESTS {
            return Err(ELOOP);
        }
        // With the new watch, every way up from here is one more way up from the target.
        let new = self.paths_above(&mut HashMap::new());
        if target.widest_below(&mut HashMap::new(), &mut Vec::new()) + new > MAX_PATHS {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// How many chains of watches end here, with the empty one.
    fn paths_above(&self, seen: &mut HashMap<*const Epoll, usize>) -> usize {
        if let Some(&n) = seen.get(&std::ptr::from_ref(self)) {
            return n;
        }
        let watchers = self.watchers.lock().clone();
        let above = watchers.iter().filter_map(Weak::upgrade);
        let n = above.fold(1usize, |n, w| n.saturating_add(w.paths_above(seen)));
        seen.insert(std::ptr::from_ref(self), n);
        n
    }

    /// The most chains that end at this epoll or at one below it.
    fn widest_below(
        &self,
        seen: &mut HashMap<*const Epoll, usize>,
        keep: &mut Vec<Arc<File>>,
    ) -> usize {
        if let Some(&n) = seen.get(&std::ptr::from_ref(self)) {
            return n;
        }
        let files = self.watched();
        let mut n = self.paths_above(&mut HashMap::new());
        for e in files.iter().filter_map(|f| f.ops::<Epoll>()) {
            n = n.max(e.widest_below(seen, keep));
        }
        keep.extend(files);
        seen.insert(std::ptr::from_ref(self), n);
        n
    }

    /// The files that it watches, as far as they are open.
    fn watched(&self) -> Vec<Arc<File>> {
        let items = self.items.lock();
        items.values().filter_map(|i| i.file.upgrade()).collect()
    }

    fn depth_below(
        &self,
        forbidden: &Epoll,
        seen: &mut HashMap<*const Epoll, usize>,
        keep: &mut Vec<Arc<File>>,
        level: usize,
    ) -> Result<usize> {
        if std::ptr::eq(self, forbidden) || level > MAX_NESTS {
            return Err(ELOOP);
        }
        if let Some(&d) = seen.get(&std::ptr::from_ref(self)) {
            return Ok(d);
        }
        let files = self.watched();
        let mut depth = 0;
        for f in &files {
            if let Some(e) = f.ops::<Epoll>() {
                depth = depth.max(1 + e.depth_below(forbidden, seen, keep, level + 1)?);
            }
        }
        keep.extend(files);
        seen.insert(std::ptr::from_ref(self), depth);
        Ok(depth)
    }

    fn depth_above(&self, seen: &mut HashMap<*const Epoll, usize>, level: usize) -> usize {
        if level > MAX_NESTS {
            return level;
        }
        if let Some(&d) = seen.get(&std::ptr::from_ref(self)) {
            return d;
        }
        let watchers = self.watchers.lock().clone();
        let mut depth = 0;
        for w in watchers.iter().filter_map(Weak::upgrade) {
            depth = depth.max(1 + w.depth_above(seen, level + 1));
        }
        seen.insert(std::ptr::from_ref(self), depth);
        depth
    }

    /// The first item of the ready list, taken out, with its place.
    fn pop_ready(&self) -> Option<(u64, Arc<Item>)> {
        let mut r = self.shared.ready.lock();
        let (at, item) = r.list.pop_first()?;
        // Before the file is asked: a change after that puts it back.
        item.place.store(0, Ordering::Relaxed);
        Some((at, item))
    }

    /// Up to `max` events that hold now; `EAGAIN` if none. Wait on IN of the file's queue.
    pub fn try_wait(&self, max: usize) -> Result<Vec<EpollEvent>> {
        let mut out = Vec::new();
        // Files that we hold: dropped after the lock, since the last reference may be among them.
        let mut keep = Vec::new();
        let more = {
            let mut items = self.items.lock();
            self.reap(&mut items);
            let mut left = self.shared.ready.lock().list.len();
            while out.len() < max && left > 0 {
                left -= 1;
                let Some((_, item)) = self.pop_ready() else {
                    break;
                };
                let Some(file) = item.file.upgrade() else {
                    continue;
                };
                let held = if item.silent() {
                    Events::empty()
                } else {
                    item.poll(&file)
                };
                keep.push(file);
                if held.is_empty() {
                    continue;
                }
                let events = item.events.load(Ordering::Relaxed);
                out.push(EpollEvent {
                    events: held.bits(),
                    data: item.data.load(Ordering::Relaxed),
                    fd: item.key.0,
                });
                if events & EPOLLONESHOT != 0 {
                    item.events.store(events & PRIVATE, Ordering::Release);
                } else if events & EPOLLET == 0 {
                    let mut r = self.shared.ready.lock();
                    if item.place.load(Ordering::Relaxed) == 0 {
                        r.last += 1;
                        let at = r.last;
                        item.place.store(at, Ordering::Relaxed);
                        r.list.insert(at, item);
                    }
                }
            }
            !out.is_empty() && !self.shared.ready.lock().list.is_empty()
        };
        if more {
            self.shared.queue.notify(Events::READABLE);
        }
        if out.is_empty() { Err(EAGAIN) } else { Ok(out) }
    }

    /// `epoll_wait(2)`: no events when the time is over; `EINTR` when a signal comes.
    pub fn wait(&self, b: &dyn Blocker, max: usize, wait: Wait) -> Result<Vec<EpollEvent>> {
        let r = match wait {
            Wait::No => self.try_wait(max),
            Wait::Until(d) => block_until(b, &[(&self.shared.queue, Events::IN)], Some(d), || {
                self.try_wait(max)
            }),
            Wait::Forever => block_until(b, &[(&self.shared.queue, Events::IN)], None, || {
                self.try_wait(max)
            }),
        };
        match r {
            Err(EAGAIN | ETIMEDOUT) => Ok(Vec::new()),
            Err(ERESTARTSYS) => Err(EINTR),
            r => r,
        }
    }

    fn any_ready(&self) -> bool {
        let mut keep = Vec::new();
        let mut items = self.items.lock();
        self.reap(&mut items);
        let mut found = false;
        while let Some((at, item)) = self.pop_ready() {
            let Some(file) = item.file.upgrade() else {
                continue;
            };
            let held = !item.silent() && !item.poll(&file).is_empty();
            keep.push(file);
            if held {
                let mut r = self.shared.ready.lock();
                if item.place.load(Ordering::Relaxed) == 0 {
                    item.place.store(at, Ordering::Relaxed);
                    r.list.insert(at, item);
                }
                found = true;
                break;
            }
        }
        drop(items);
        found
    }
}

impl Epoll {
    /// The file that is watched under a number; of several, in some order, the `nth`.
    #[must_use]
    pub fn watched_as(&self, fd: i32, nth: u32) -> Option<Arc<File>> {
        let items = self.items.lock();
        let mut of: Vec<_> = items.values().filter(|i| i.key.0 == fd).collect();
        of.retain(|i| !i.dead.load(Ordering::Acquire));
        of.sort_unstable_by_key(|i| i.key);
        let file = of.get(nth as usize).map(|i| i.file.clone());
        drop(items);
        file?.upgrade()
    }
}

impl FileOps for Epoll {
    fn ignores_seek(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Ok(anon_stat())
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        if mask.intersects(Events::READABLE) && self.any_ready() {
            mask & Events::READABLE
        } else {
            Events::empty()
        }
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.shared.queue)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "anon_inode:[eventpoll]".into()
    }
    fn fdinfo(&self) -> String {
        let mut s = String::new();
        for i in self
            .items
            .lock()
            .values()
            .filter(|i| !i.dead.load(Ordering::Acquire))
        {
            let (events, data) = (
                i.events.load(Ordering::Relaxed),
                i.data.load(Ordering::Relaxed),
            );
            let _ = writeln!(s, "tfd: {:8} events: {events:8x} data: {data:16x}", i.key.0);
        }
        s
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        for (key, item) in std::mem::take(self.items.get_mut()) {
            if let Some(file) = item.file.upgrade() {
                item.unwatch(&file);
                file.remove_release_listener(key.0 as u64, &as_release(&item));
            }
        }
        // Items refer to `shared`, and its ready list to them.
        let list = std::mem::take(&mut self.shared.ready.lock().list);
        drop(list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use crate::{EventFd, new_pipe};

    const IN: u32 = 1;
    const OUT: u32 = 4;

    fn ev(events: u32, data: u64) -> EpollEvent {
        EpollEvent {
            events,
            data,
            fd: 3,
        }
    }
    fn of(fd: i32, e: EpollEvent) -> EpollEvent {
        EpollEvent { fd, ..e }
    }
    fn pipe() -> (Arc<File>, Arc<File>) {
        let (r, w) = new_pipe(&vfs::Credentials::root()).unwrap();
        (file(r, 0), file(w, 1))
    }

    #[test]
    fn level_edge_oneshot() {
        let ep = Epoll::new(&vfs::Credentials::root());
        let (r, w) = pipe();
        ep.control(EPOLL_CTL_ADD, 3, &r, ev(IN, 7)).unwrap();
        assert_eq!(ep.try_wait(9), Err(EAGAIN));
        write(&w, b"ab").unwrap();
        assert_eq!(ep.try_wait(9), Ok(vec![ev(IN, 7)]));
        assert_eq!(ep.try_wait(9), Ok(vec![ev(IN, 7)]));
        ep.control(EPOLL_CTL_MOD, 3, &r, ev(IN | EPOLLET, 8))
            .unwrap();
        assert_eq!(ep.try_wait(9), Ok(vec![ev(IN, 8)]));
        assert_eq!(ep.try_wait(9), Err(EAGAIN));
        write(&w, b"c").unwrap();
        assert_eq!(ep.try_wait(9), Ok(vec![ev(IN, 8)]));
        assert_eq!(ep.try_wait(9), Err(EAGAIN));
        ep.control(EPOLL_CTL_MOD, 3, &r, ev(IN | EPOLLONESHOT, 9))
            .unwrap();
        assert_eq!(ep.try_wait(9), Ok(vec![ev(IN, 9)]));
        write(&w, b"d").unwrap();
        assert_eq!(ep.try_wait(9), Err(EAGAIN));
        ep.control(EPOLL_CTL_MOD, 3, &r, ev(IN | EPOLLONESHOT, 9))
            .unwrap();
        assert_eq!(ep.try_wait(9), Ok(vec![ev(IN, 9)]));
        drop(w);
        ep.control(EPOLL_CTL_MOD, 3, &r, ev(0, 9)).unwrap();
        assert_eq!(ep.try_wait(9), Ok(vec![ev(0x10, 9)]));
    }

    #[test]
    fn errors() {
        let ep = Epoll::new(&vfs::Credentials::root());
        let (r, _w) = pipe();
        let epf = file(ep.clone(), 2);
        assert_eq!(ep.control(EPOLL_CTL_ADD, 1, &epf, ev(IN, 0)), Err(EINVAL));
        assert_eq!(ep.control(EPOLL_CTL_MOD, 1, &r, ev(IN, 0)), Err(ENOENT));
        assert_eq!(ep.control(EPOLL_CTL_DEL, 1, &r, ev(IN, 0)), Err(ENOENT));
        assert_eq!(ep.control(EPOLL_CTL_ADD, 1, &r, ev(IN, 0)), Ok(()));
        assert_eq!(ep.control(EPOLL_CTL_ADD, 1, &r, ev(IN, 0)), Err(EEXIST));
        assert_eq!(ep.control(EPOLL_CTL_ADD, 2, &r, ev(IN, 0)), Ok(()));
        assert_eq!(ep.control(9, 1, &r, ev(IN, 0)), Err(EINVAL));
        assert_eq!(
            ep.control(EPOLL_CTL_MOD, 1, &r, ev(IN | EPOLLEXCLUSIVE, 0)),
            Err(EINVAL)
        );
        assert_eq!(
            ep.control(EPOLL_CTL_ADD, 3, &r, ev(IN | EPOLLEXCLUSIVE, 0)),
            Ok(())
        );
        assert_eq!(ep.control(EPOLL_CTL_MOD, 3, &r, ev(IN, 0)), Err(EINVAL));
        assert_eq!(ep.control(EPOLL_CTL_DEL, 1, &r, ev(0, 0)), Ok(()));
    }

    #[test]
    fn items_die_with_their_file_and_queues_forget_them() {
        let ep = Epoll::new(&vfs::Credentials::root());
        let (r, w) = pipe();
        ep.control(EPOLL_CTL_ADD, 3, &r, ev(IN, 1)).unwrap();
        ep.control(EPOLL_CTL_ADD, 4, &w, ev(OUT, 2)).unwrap();
        write(&w, b"x").unwrap();
        drop(r);
        assert!(w.ops.wait_queue().unwrap().is_watched());
        assert_eq!(ep.try_wait(9), Ok(vec![of(4, ev(OUT | 8, 2))]));
        assert_eq!(ep.items.lock().len(), 1);
        drop(ep);
        assert!(!w.ops.wait_queue().unwrap().is_watched());
    }

    #[test]
    fn small_waits_serve_all_in_turn() {
        let ep = Epoll::new(&vfs::Credentials::root());
        let files: Vec<_> = (0..5).map(|_| file(EventFd::new(1, 0), 2)).collect();
        for (i, f) in files.iter().enumerate() {
            ep.control(EPOLL_CTL_ADD, i as i32, f, ev(IN, i as u64))
                .unwrap();
        }
        let got: Vec<u64> = (0..10).map(|_| ep.try_wait(1).unwrap()[0].data).collect();
        assert_eq!(got, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn nesting() {
        let (r, w) = pipe();
        let eps: Vec<_> = (0..6)
            .map(|_| Epoll::new(&vfs::Credentials::root()))
            .collect();
        let files: Vec<_> = eps.iter().map(|e| file(e.clone(), 2)).collect();
        eps[4].control(EPOLL_CTL_ADD, 9, &r, ev(IN, 99)).unwrap();
        for i in 0..4 {
            eps[i]
                .control(EPOLL_CTL_ADD, 1, &files[i + 1], ev(IN, i as u64))
                .unwrap();
        }
        assert_eq!(
            eps[4].control(EPOLL_CTL_ADD, 1, &files[5], ev(IN, 0)),
            Err(ELOOP)
        );
        assert_eq!(
            eps[5].control(EPOLL_CTL_ADD, 1, &files[0], ev(IN, 0)),
            Err(ELOOP)
        );
        assert_eq!(
            eps[3].control(EPOLL_CTL_ADD, 5, &files[0], ev(IN, 0)),
            Err(ELOOP)
        );
        assert_eq!(eps[0].try_wait(1), Err(EAGAIN));
        write(&w, b"x").unwrap();
        assert_eq!(eps[0].try_wait(1), Ok(vec![of(1, ev(IN, 0))]));
        read(&r, 1).unwrap();
        assert_eq!(eps[0].try_wait(1), Err(EAGAIN));
        assert_eq!(files[0].poll(Events::IN), Events::empty());
        write(&w, b"x").unwrap();
        assert_eq!(files[0].poll(Events::IN), Events::IN);
        assert_eq!(eps[4].try_wait(1), Ok(vec![of(9, ev(IN, 99))]));
    }

    #[test]
    fn many_ways_through_epolls_are_refused() {
        // 30 epolls watch one, which 30 others watch: as many ways as their product.
        let low: Vec<_> = (0..30)
            .map(|_| Epoll::new(&vfs::Credentials::root()))
            .collect();
        let bottom = Epoll::new(&vfs::Credentials::root());
        let bottom_file = file(bottom.clone(), 2);
        for (i, e) in low.iter().enumerate() {
            let ok = e.control(EPOLL_CTL_ADD, i as i32, &bottom_file, ev(IN, 0));
            assert_eq!(ok, Ok(()));
        }
        let files: Vec<_> = low.iter().map(|e| file(e.clone(), 2)).collect();
        let mut refused = 0;
        let high: Vec<_> = (0..30)
            .map(|_| Epoll::new(&vfs::Credentials::root()))
            .collect();
        for h in &high {
            for (i, f) in files.iter().enumerate() {
                match h.control(EPOLL_CTL_ADD, i as i32, f, ev(IN, 0)) {
                    Ok(()) => {}
                    Err(e) => {
                        assert_eq!(e, EINVAL);
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused > 300, "{refused}");
    }

    #[test]
    fn exclusive_ones_are_told_one_at_a_time() {
        let (r, w) = pipe();
        let eps: Vec<_> = (0..3)
            .map(|_| Epoll::new(&vfs::Credentials::root()))
            .collect();
        for e in &eps {
            e.control(EPOLL_CTL_ADD, 3, &r, ev(IN | EPOLLEXCLUSIVE, 1))
                .unwrap();
        }
        // The first has no waiter and the second has one.
        let me = Me::new();
        let t = eps[1]
            .wait_queue()
            .unwrap()
            .register(me.parker().clone(), Events::IN);
        write(&w, b"x").unwrap();
        let ready = |i: usize| eps[i].shared.ready.lock().list.len();
        assert_eq!([ready(0), ready(1), ready(2)], [1, 1, 0]);
        eps[1].wait_queue().unwrap().unregister(t);
    }

    #[test]
    fn wakes_a_waiter() {
        let ep = Epoll::new(&vfs::Credentials::root());
        let (r, w) = pipe();
        ep.control(EPOLL_CTL_ADD, 3, &r, ev(IN | EPOLLET, 5))
            .unwrap();
        let me = Me::new();
        assert_eq!(ep.wait(&me, 4, Wait::No), Ok(vec![]));
        let t = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(3));
            write(&w, b"x").unwrap();
            w
        });
        assert_eq!(ep.wait(&me, 4, Wait::Forever), Ok(vec![ev(IN, 5)]));
        t.join().unwrap();
    }
}
