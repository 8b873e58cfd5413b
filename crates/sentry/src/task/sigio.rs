//! Signals of files that became ready: `fcntl(2)`'s O_ASYNC, F_SETOWN and F_SETSIG (`fs/fcntl.c`).
//!
//! An [`Async`] listens on its file's wait queue, where it only notes what it was told. The signal
//! is sent when the thread that told it holds no lock ([`wait::later`]): at that task's boundary,
//! or by a service thread.

use super::list::TaskList;
use super::{Context, Task};
use crate::Kernel;
use abi::errno::ESRCH;
use abi::signal::{
    SI_KERNEL, SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGIO, SIGSEGV, SIGSYS, SIGTRAP, SIGURG,
};
use abi::{Result, SigInfo, Signal};
use ipc::pipe::PipeEnd;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use vfs::File;
use vfs::landlock::{Scope, is_kept_from};
use vfs::sigio::{Messenger, Owner, OwnerKind};
use wait::later::{self, Later};
use wait::{Events, Listener};

/// Why a file's owner is signalled: `si_code` and `si_band` (`band_table`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reason {
    code: i32,
    band: Events,
}

const IN: Reason = Reason {
    code: 1,
    band: Events::READABLE,
};
const OUT: Reason = Reason {
    code: 2,
    band: Events::WRITABLE.union(Events::WRBAND),
};
/// A lease is wanted back, or something happened in a directory.
const MSG: Reason = Reason {
    code: 3,
    band: Events::READABLE.union(Events::MSG),
};
const ERR: Reason = Reason {
    code: 4,
    band: Events::ERR,
};
const PRI: Reason = Reason {
    code: 5,
    band: Events::PRI.union(Events::RDBAND),
};
const HUP: Reason = Reason {
    code: 6,
    band: Events::HUP.union(Events::ERR),
};

/// For signals whose codes mean something else.
const SI_SIGIO: i32 = -5;
const OWN_CODES: [Signal; 7] = [SIGILL, SIGFPE, SIGSEGV, SIGBUS, SIGTRAP, SIGCHLD, SIGSYS];

/// An open file with O_ASYNC.
struct Async {
    me: Weak<Async>,
    kernel: Weak<Kernel>,
    file: Weak<File>,
    /// As which it was set.
    fd: i32,
    /// What came and was not sent yet. Where it is not empty, somebody is to send it.
    came: AtomicU32,
    /// The end of data was told.
    ended: AtomicBool,
}

impl Listener for Async {
    fn notify(&self, events: Events) {
        if events.contains(Events::OPENED) {
            return;
        }
        if self.came.fetch_or(events.bits(), Ordering::SeqCst) == 0
            && let Some(me) = self.me.upgrade()
        {
            later::put(me);
        }
    }
}

impl Later for Async {
    fn run(&self) {
        let came = Events::from_bits_retain(self.came.swap(0, Ordering::SeqCst));
        let Some((k, f)) = self.kernel.upgrade().zip(self.file.upgrade()) else {
            return;
        };
        let owner = f.sigio.owner();
        if owner.id == 0 {
            return;
        }
        for why in self.reasons(&f, came) {
            k.signal_owner(&owner, f.sigio.signal(), why, self.fd);
        }
    }
    fn elsewhere(self: Arc<Self>) {
        // Where it is lost, what comes next tries again.
        if !later::by_service(self.clone()) {
            self.came.store(0, Ordering::SeqCst);
        }
    }
}

impl Async {
    /// What Linux says of it. A pipe's ends know only their own direction; of the others an end
    /// that hung up has nothing else to tell.
    fn reasons(&self, f: &File, came: Events) -> SmallVec<[Reason; 3]> {
        let has = |e| came.intersects(e);
        if f.ops::<PipeEnd>().is_some() {
            let reads = f.readable() && has(Events::READABLE | Events::HUP);
            let writes = f.writable() && has(Events::WRITABLE | Events::ERR);
            let all = [reads.then_some(IN), writes.then_some(OUT)];
            return all.into_iter().flatten().collect();
        }
        let now = f.poll(Events::all());
        for (event, why) in [(Events::HUP, HUP), (Events::ERR, ERR)] {
            if has(event) && now.contains(event) {
                return smallvec![why];
            }
        }
        // The other end went, in one direction or both; here only the end of data is seen.
        let went = has(Events::HUP | Events::RDHUP);
        let again = went && self.ended.swap(true, Ordering::SeqCst);
        // Urgent data has a signal of its own; only who has chosen one is told so, too.
        let own_signal = f.sigio.signal() == 0 && f.ops::<net::Socket>().is_some();
        let all = [
            (has(Events::READABLE) && !again).then_some(IN),
            (has(Events::WRITABLE) && !went).then_some(OUT),
            (has(Events::PRI) && !own_signal).then_some(PRI),
        ];
        all.into_iter().flatten().collect()
    }
}

/// A socket that has an owner: of urgent data it is told by SIGURG, with or without O_ASYNC
/// (`send_sigurg`).
struct Urgent {
    me: Weak<Urgent>,
    kernel: Weak<Kernel>,
    file: Weak<File>,
    /// Somebody is to send it.
    came: AtomicBool,
}

impl Listener for Urgent {
    fn notify(&self, events: Events) {
        if events.contains(Events::PRI)
            && !self.came.swap(true, Ordering::SeqCst)
            && let Some(me) = self.me.upgrade()
        {
            later::put(me);
        }
    }
}

impl Later for Urgent {
    fn run(&self) {
        self.came.store(false, Ordering::SeqCst);
        if let Some((k, f)) = self.kernel.upgrade().zip(self.file.upgrade()) {
            k.signal_owner_plainly(&f.sigio.owner(), SIGURG);
        }
    }
    fn elsewhere(self: Arc<Self>) {
        if !later::by_service(self.clone()) {
            self.came.store(false, Ordering::SeqCst);
        }
    }
}

/// Tells a file's owner of what no readiness tells (`POLL_MSG`).
struct Messages {
    kernel: Weak<Kernel>,
    file: Weak<File>,
    /// The descriptor by which it was asked for.
    fd: i32,
    /// Those that were not sent yet. Where there are some, somebody is to send them.
    due: AtomicU32,
}

impl Messages {
    /// More at once are no more than these: real-time signals would not find room.
    const MOST: u32 = 4096;
}

impl Messenger for Messages {
    fn message(self: Arc<Self>) {
        if self.due.fetch_add(1, Ordering::SeqCst) == 0 {
            later::put(self);
        }
    }
}

impl Later for Messages {
    fn run(&self) {
        let due = self.due.swap(0, Ordering::SeqCst).min(Self::MOST);
        let Some((k, f)) = self.kernel.upgrade().zip(self.file.upgrade()) else {
            return;
        };
        let owner = f.sigio.owner();
        if owner.id == 0 {
            return;
        }
        for _ in 0..due {
            k.signal_owner(&owner, f.sigio.signal(), MSG, self.fd);
        }
    }
    fn elsewhere(self: Arc<Self>) {
        if !later::by_service(self.clone()) {
            self.due.store(0, Ordering::SeqCst);
        }
    }
}

/// Sends a signal to one of an owner's.
type Send<'a> = dyn Fn(SigInfo) -> Result<()> + 'a;

/// Whether an owner's id names who it did. Somebody else may have it by now.
fn is_there(l: &TaskList, o: &Owner) -> bool {
    l.birth(o.id) == o.birth
}

/// Whether who made it the owner may signal it (`sigio_perm`).
fn may_signal(o: &Owner, t: &Task) -> bool {
    let c = t.cred();
    let ids = o.euid == 0 || [o.euid, o.uid].iter().any(|u| [c.suid, c.uid].contains(u));
    ids && !is_kept_from(o.domain.as_ref(), c.landlock.as_ref(), Scope::SIGNAL)
}

fn info(signal: Signal, why: Reason, fd: i32) -> SigInfo {
    let code = match OWN_CODES.contains(&signal) {
        true => SI_SIGIO,
        false => why.code,
    };
    let mut i = SigInfo::new(signal, code);
    (i.fields[0], i.fields[1]) = (why.band.bits().into(), fd as u32 as u64);
    i
}

impl Kernel {
    /// `send_sigio`.
    fn signal_owner(&self, o: &Owner, signal: i32, why: Reason, fd: i32) {
        let plain = SigInfo::new(SIGIO, SI_KERNEL);
        // Where it cannot be queued, what needs no place (`send_sigio_to_task`).
        let told = Signal::new(signal).map(|s| info(s, why, fd));
        self.to_owner(o, &|to| {
            if told.is_none_or(|i| to(i).is_err()) {
                let _ = to(plain);
            }
        });
    }

    /// A signal without information.
    fn signal_owner_plainly(&self, o: &Owner, signal: Signal) {
        if o.id != 0 {
            self.to_owner(o, &|to| {
                let _ = to(SigInfo::new(signal, SI_KERNEL));
            });
        }
    }

    /// Has `send` send to the owner, to each of a group.
    fn to_owner(&self, o: &Owner, send: &dyn Fn(&Send)) {
        match o.kind {
            OwnerKind::Thread => {
                let l = self.tasks.lock();
                let t = l.task(o.id).filter(|_| is_there(&l, o));
                drop(l);
                if let Some(t) = t.filter(|t| may_signal(o, t)) {
                    send(&|i| self.send_to_task(&t, i));
                }
            }
            OwnerKind::Process => {
                let l = self.tasks.lock();
                let g = l.group(o.id).filter(|_| is_there(&l, o));
                drop(l);
                let Some(g) = g else { return };
                if self.owner_may_signal(o, o.id) {
                    send(&|i| self.send_to_group(&g, i));
                }
            }
            OwnerKind::Group => self.send_to_all(
                |l| match is_there(l, o) {
                    true => l.group_members(o.id),
                    false => Vec::new(),
                },
                |g| {
                    if self.owner_may_signal(o, g.tgid) {
                        send(&|i| self.send_to_group(g, i));
                    }
                },
            ),
        }
    }

    fn owner_may_signal(&self, o: &Owner, tgid: i32) -> bool {
        let main = self.tasks.lock().some_thread(tgid);
        main.is_some_and(|t| may_signal(o, &t))
    }
}

/// O_ASYNC is taken back (`fasync`).
pub fn stop_async(f: &File) {
    f.set_watch(None);
}

impl Context {
    /// The caller as the owner of files of its own.
    pub fn as_owner(&self, kind: OwnerKind, id: i32) -> Owner {
        let c = self.cred();
        let l = self.kernel.tasks.lock();
        let birth = l.birth(id);
        // Its own process may be signalled whatever domains its threads have.
        let own = match kind {
            OwnerKind::Thread => l.task(id),
            _ => None,
        };
        drop(l);
        let own = own.is_some_and(|t| Arc::ptr_eq(&t.group, &self.group))
            || kind == OwnerKind::Process && id == self.group.tgid;
        Owner {
            kind,
            id,
            birth,
            uid: c.uid,
            euid: c.euid,
            domain: c.landlock.clone().filter(|_| !own),
        }
    }

    /// F_SETOWN_EX: `ESRCH` where nobody has the number. 0 is nobody's.
    pub fn owner_of(&self, kind: OwnerKind, number: i32) -> Result<Owner> {
        if number == 0 {
            return Ok(self.as_owner(kind, 0));
        }
        let id = self.id_of(number)?;
        let l = self.kernel.tasks.lock();
        let used = l.is_used(id);
        drop(l);
        used.then(|| self.as_owner(kind, id)).ok_or(ESRCH)
    }

    /// Makes somebody the owner of a file.
    pub fn set_owner(&self, f: &Arc<File>, owner: Owner) {
        let somebody = owner.id != 0;
        f.sigio.set_owner(owner);
        if somebody && f.ops::<net::Socket>().is_some() {
            f.watch_urgent(|| {
                Arc::new_cyclic(|me| Urgent {
                    me: me.clone(),
                    kernel: Arc::downgrade(&self.kernel),
                    file: Arc::downgrade(f),
                    came: AtomicBool::new(false),
                })
            });
        }
    }

    /// The number of a file's owner, as the caller sees it; 0 where it is no more, or not to be
    /// seen.
    #[must_use]
    pub fn owner_number(&self, o: &Owner) -> i32 {
        let there = {
            let l = self.kernel.tasks.lock();
            let has_kind = match o.kind {
                OwnerKind::Thread => l.task(o.id).is_some(),
                OwnerKind::Process => l.process(o.id).is_some(),
                OwnerKind::Group => l.group_exists(o.id),
            };
            has_kind && is_there(&l, o)
        };
        if there { self.number_of(o.id) } else { 0 }
    }

    /// Who tells the owner of the file that `fd` stands for of leases and notices.
    #[must_use]
    pub fn messenger(&self, f: &Arc<File>, fd: i32) -> Arc<dyn Messenger> {
        Arc::new(Messages {
            kernel: Arc::downgrade(&self.kernel),
            file: Arc::downgrade(f),
            fd,
            due: AtomicU32::new(0),
        })
    }

    /// The caller's process, as an owner.
    #[must_use]
    pub fn own_process(&self) -> Owner {
        self.as_owner(OwnerKind::Process, self.group.tgid)
    }

    /// O_ASYNC is set (`fasync`).
    pub fn start_async(&self, f: &Arc<File>, fd: i32) {
        if let Some(tty) = tty::of(f) {
            // Who reads it is told, unless another was said.
            f.sigio.set_owner_if_none(match tty.foreground() {
                Some(group) => self.as_owner(OwnerKind::Group, group),
                None => self.as_owner(OwnerKind::Process, self.group.tgid),
            });
        }
        f.set_watch(Some(Arc::new_cyclic(|me| Async {
            me: me.clone(),
            kernel: Arc::downgrade(&self.kernel),
            file: Arc::downgrade(f),
            fd,
            came: AtomicU32::new(0),
            ended: AtomicBool::new(false),
        })));
    }
}
