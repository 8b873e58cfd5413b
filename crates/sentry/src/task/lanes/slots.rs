//! What is answered beside the Sentry: reads of sockets, and changes of an epoll's set
//! ([`platform::lanes::read_slots`]).
//!
//! ## Read slots
//!
//! After a read that came from a patched call site, and where a wait says that such a descriptor is
//! readable, the socket is asked to fill its read slot ([`net::Socket::fill_slot`]); it revokes the
//! slot before it looks at its queue again. The descriptor table's lock is held meanwhile, so that
//! a number never reads what another file put there.
//!
//! A slot is a number's, in an address space. So all who run there must have one descriptor table:
//! a clone with CLONE_VM and without CLONE_FILES, and whoever gets a table of its own, end it for
//! good. So does a seccomp filter that looks at these calls, in [`Task::withdraw_local`]. With a
//! log of calls there are none.
//!
//! ## Changes that wait
//!
//! epoll_ctl(2) lays its change where the Sentry takes it before anything else that this task does:
//! its next call by any way, a fault, a signal, a stop ([`apply_deferred`] in the task's loop).
//! That is allowed ([`review`], before the task goes on) only where
//!
//! - the task is alone: nobody else has its descriptor table or runs in its address space;
//! - nobody else has changed the epoll since ([`Epoll::changes`]): who was given it, changed it,
//!   and let it go during one call of the task's is not seen by the other conditions;
//! - the epoll's file has no reference but that table's: no other descriptor, process, or message
//!   in flight has it;
//! - it is not watched by another epoll;
//! - the descriptor is a socket's of our own stack, whose state does not depend on who watches it;
//! - the result is certain: not in the set and to be added, or in it, not EPOLLEXCLUSIVE, and to be
//!   changed or taken out. The user has room for many more watches than changes can wait
//!   ([`ROOM`]): what others of the user's tasks take of it meanwhile does not take back what was
//!   promised.
//!
//! **Nobody sees that it happens later.** An epoll's set is looked at by who waits for it, changes
//! it, or reads its fdinfo. The first two need a descriptor of it. While the task is in application
//! code only it has one, and it comes to the Sentry to use it, when [`apply_deferred`] has run;
//! whom it makes by a clone, who may run before it goes on, finds no deferral ([`end`]); who takes
//! one from outside (`pidfd_getfd`), or reads fdinfo, has [`look`] run first, and in the first case
//! it is not deferred any more. What remains is what the file did meanwhile, between the change's
//! true time T and its time here, D. Say that nobody waits meanwhile, as was said.
//!
//! - *ADD, and MOD with EPOLLET or without*: Linux asks the file at T, and is told of what comes
//!   after T. Here the file is asked at D. Whatever became ready up to D and still is, is found;
//!   what was ready and is not any more, Linux has on its list, asks the file again when somebody
//!   waits, and drops. For EPOLLET, all edges up to the wait are one event there, too, and MOD arms
//!   it again in both cases. An edge from T on is reported once, at the wait.
//! - *EPOLLONESHOT*: an item is silenced by an event given to a wait, which there is none of
//!   between T and D. So MOD arms what the last wait silenced, in both.
//! - *DEL*: what the item found between T and D is dropped with it.
//!
//! Items that became ready between T and D may stand on the ready list in another order than
//! Linux's. No order is promised, and each gets its turn.
//!
//! If the task is killed between T and D, its changes are lost, with the epoll.
//!
//! Lock order: `Deferrals::of` → `platform::lanes::read_slots::Area::taken` → the epoll's.

use crate::task::epoll::control;
use crate::task::{Context, Task};
use ipc::Epoll;
use ipc::epoll::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLEXCLUSIVE, EpollEvent, Room};
use mm::Mm;
use net::Socket;
use parking_lot::Mutex;
use platform::lanes::read_slots::{Area, InSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::FdTable;
use vfs::fd_table::ChangedFds;
use vfs::file::File;
use wait::read_slots::ReadSlots;

/// The epoll whose changes may wait.
pub struct Deferral {
    area: Arc<Area>,
    epfd: i32,
    ep: Weak<File>,
    files: Weak<FdTable>,
    /// The epoll's [`Epoll::changes`] that were this task's, and those before it began. Another
    /// number says that somebody else has changed the set, however shortly he had the epoll: then
    /// what the application was told of it is not true.
    own: AtomicU64,
}

/// A task's.
#[derive(Default)]
pub(super) struct Deferrals {
    of: Mutex<Option<Deferral>>,
    /// Whether there is one; changed by this task.
    any: AtomicBool,
}

/// Who takes the changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The task itself, which stands still.
    Itself,
    Another,
}

impl Deferral {
    fn apply(&self, task: &Arc<Task>, by: By) {
        let (Some(ep), Some(files)) = (self.ep.upgrade(), self.files.upgrade()) else {
            return;
        };
        let before = self.changes();
        let mut done = 0;
        self.area.take_changes(|c| {
            let event = EpollEvent {
                events: c.events,
                data: c.data,
                fd: c.fd,
            };
            let r = control(task, &files, &ep, c.op, event, Room::Promised);
            done += u64::from(r.is_ok());
            // Another leaves the states as they are, and the changes as not the task's: it asks
            // when it goes on.
            if by == By::Itself {
                self.area.set_state(c.fd, state(c.op, c.events, r.is_ok()));
            }
        });
        if by == By::Itself && before == Some(self.own.load(Ordering::Relaxed)) {
            self.own.fetch_add(done, Ordering::Relaxed);
        }
    }

    fn changes(&self) -> Option<u64> {
        Some(self.ep.upgrade()?.ops::<Epoll>()?.changes())
    }

    /// Whether nobody but this task can see the epoll, or change what it stands for.
    fn is_alone(&self) -> bool {
        !self.area.has_ended()
            && self.ep.strong_count() == 1
            && self.files.strong_count() == 1
            && self.ep.upgrade().is_some_and(|f| is_plain(&f))
            && self.changes() == Some(self.own.load(Ordering::Relaxed))
    }
}

/// So many watches more than there are must be allowed where changes wait.
const ROOM: u64 = 1 << 10;

fn is_plain(ep: &File) -> bool {
    ep.ops::<Epoll>()
        .is_some_and(|e| e.is_unwatched() && e.has_room(ROOM))
}

/// What is known of a descriptor behind a change.
fn state(op: u32, events: u32, done: bool) -> InSet {
    match op {
        _ if !done || events & EPOLLEXCLUSIVE != 0 => InSet::Unknown,
        EPOLL_CTL_ADD | EPOLL_CTL_MOD => InSet::Yes,
        EPOLL_CTL_DEL => InSet::No,
        _ => InSet::Unknown,
    }
}

/// The task has come out of application code: what it laid there is done now.
pub fn apply_deferred(task: &Arc<Task>) {
    if task.lanes.deferral.any.load(Ordering::Relaxed)
        && let Some(d) = &*task.lanes.deferral.of.lock()
    {
        d.apply(task, By::Itself);
    }
}

/// The task is about to go on: changes may wait only where nobody else can look by now.
pub fn review(task: &Task) {
    if !task.lanes.deferral.any.load(Ordering::Relaxed) {
        return;
    }
    let mut deferral = task.lanes.deferral.of.lock();
    let Some(d) = &*deferral else { return };
    let fine = d.is_alone()
        && match d.files.upgrade().map(|f| f.take_changed()) {
            Some(ChangedFds::None) => true,
            Some(ChangedFds::One(fd)) if fd != d.epfd => {
                d.area.set_state(fd, InSet::Unknown);
                true
            }
            _ => false,
        };
    if !fine {
        end_of(task, &mut deferral);
    }
}

fn end_of(task: &Task, deferral: &mut Option<Deferral>) {
    if let Some(d) = deferral.take() {
        d.area.defer_for(None);
    }
    task.lanes.deferral.any.store(false, Ordering::Relaxed);
}

/// The task, which is in a call, is about to share what it has: its epoll, its table, or its
/// memory. The other may run before the task goes on.
pub fn end(task: &Task) {
    if task.lanes.deferral.any.load(Ordering::Relaxed) {
        end_of(task, &mut task.lanes.deferral.of.lock());
    }
}

/// Another is about to look at an epoll of the task's.
pub fn look(task: &Arc<Task>) {
    if let Some(d) = &*task.lanes.deferral.of.lock() {
        d.apply(task, By::Another);
    }
}

/// Another has taken a reference to a file of the task's.
pub fn taken(task: &Arc<Task>, file: &File) {
    if file.ops::<Epoll>().is_none() {
        return;
    }
    {
        let deferral = task.lanes.deferral.of.lock();
        let Some(d) = &*deferral else { return };
        d.area.defer_for(None);
        d.apply(task, By::Another);
        // It ends with the task's next review.
        d.own.store(u64::MAX / 2, Ordering::Relaxed);
    }
    // One more may be laid by a call that had begun: the task takes it when it comes out, now.
    task.kick();
}

/// The task has another address space.
pub fn forget(task: &Task) {
    *task.lanes.deferral.of.lock() = None;
    task.lanes.deferral.any.store(false, Ordering::Relaxed);
}

/// Whether the call just given came from a patched site.
fn by_lane(cx: &mut Context) -> bool {
    cx.thread.lanes().is_some_and(|l| l.by_lane())
}

/// Its slots are for one descriptor table only, and there is to be another: they end for good.
pub fn end_read_slots(mm: &Mm) {
    if let Some(l) = mm.address_space().lanes() {
        l.end_read_slots();
    }
}

impl Context {
    /// This address space's read slots, made now if `by_lane`. `None`: it has none.
    fn read_slots(&mut self) -> Option<Arc<Area>> {
        if self.lanes.read_slots.is_none() {
            if !by_lane(self) {
                return None;
            }
            let mm = self.mm();
            let lanes = mm.address_space().lanes()?;
            let allowed = self.kernel.strace.is_none();
            let area = if allowed && self.seccomp.allows_read_slots() {
                // It may have to be made.
                wait::wakes::without_deferral(|| lanes.read_slots())
            } else {
                None
            };
            // A filter that another thread has set meanwhile: it ends them before or after this.
            if area.is_some() && !self.seccomp.allows_read_slots() {
                lanes.end_read_slots();
            }
            if area.is_some() && !self.seccomp.allows_counts() {
                lanes.end_counts();
            }
            self.lanes.read_slots = Some(area);
        }
        self.lanes.read_slots.clone().flatten()
    }
}

fn fill_slot(cx: &Context, area: &Arc<Area>, fd: i32) {
    let slots: Arc<dyn ReadSlots> = area.clone();
    cx.files().holding(fd, |f| {
        if let Some(s) = f.ops::<Socket>() {
            s.fill_slot(f, &slots, fd as u32);
        }
    });
}

/// A read of a socket is over: the next may find something beside the program.
pub fn after_read(cx: &mut Context, fd: i32, f: &File) {
    let Some(s) = f.ops::<Socket>() else { return };
    if s.kind() != net::sys::SOCK_STREAM || !s.is_own() {
        return;
    }
    if !by_lane(cx) {
        cx.lanes.site_pays |= f.nonblocking();
        return;
    }
    let Some(area) = cx.read_slots() else { return };
    area.want(fd);
    fill_slot(cx, &area, fd);
}

/// How much there is to be read of a socket was asked: the next call may be told beside the
/// program.
pub fn after_count(cx: &mut Context, f: &File) {
    let own = |s: &Socket| s.kind() == net::sys::SOCK_STREAM && s.is_own();
    if !by_lane(cx) && f.ops::<Socket>().is_some_and(own) {
        cx.lanes.site_pays |= f.nonblocking();
    }
}

/// A wait has said that these are readable.
pub fn after_wait(cx: &mut Context, fds: impl Iterator<Item = i32>) {
    if let Some(Some(area)) = &cx.lanes.read_slots {
        for fd in fds {
            if area.wants(fd) {
                fill_slot(cx, area, fd);
            }
        }
    }
}

/// An epoll's set has been changed by a call. `ep` is the epoll's file, as the call holds it.
pub fn after_change(cx: &mut Context, epfd: i32, op: u32, fd: i32, events: u32, ep: &Arc<File>) {
    let files = cx.files();
    // The table's reference and the call's; the task's and the one here.
    let alone = Arc::strong_count(ep) == 2 && Arc::strong_count(&files) == 2 && is_plain(ep);
    let mut own = false;
    files.holding(fd, |f| {
        own = f.ops::<Socket>().is_some_and(Socket::is_own);
    });
    let is_it = |d: &&Deferral| d.epfd == epfd && Weak::ptr_eq(&d.ep, &Arc::downgrade(ep));
    if let Some(d) = cx.task.lanes.deferral.of.lock().as_ref().filter(is_it) {
        d.own.fetch_add(1, Ordering::Relaxed);
        let known = match own {
            true => state(op, events, true),
            false => InSet::Unknown,
        };
        d.area.set_state(fd, known);
        return;
    }
    if !alone || !own {
        return;
    }
    if !by_lane(cx) {
        cx.lanes.site_pays = true;
        return;
    }
    let Some(area) = cx.read_slots() else { return };
    let mut deferral = cx.task.lanes.deferral.of.lock();
    let changes = ep.ops::<Epoll>().map(Epoll::changes);
    if let (None, Some(changes)) = (&*deferral, changes) {
        files.take_changed();
        // Nothing is known of any descriptor yet, not even of this one.
        area.defer_for(None);
        area.defer_for(Some(epfd));
        *deferral = Some(Deferral {
            area,
            epfd,
            ep: Arc::downgrade(ep),
            files: Arc::downgrade(&files),
            own: AtomicU64::new(changes),
        });
        cx.task.lanes.deferral.any.store(true, Ordering::Relaxed);
    }
}
