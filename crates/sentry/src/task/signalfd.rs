//! signalfds (`signalfd(2)`): signals as something to read.
//!
//! Linux reads and polls the queues of *whoever calls*. A read comes with its caller
//! ([`FileOps::read_as`]), and poll and select look through the caller's own view
//! ([`SignalFd::view`]). Where no caller is known (epoll, splice) the file stands for its
//! *watcher*: the task that made it, or the process that last added it to an epoll.
//!
//! Lock order: `SignalFd::watcher` → the watcher's signal queues' wait queues → `Relay::queue`.

use super::{Task, ThreadGroup, task_of};
use abi::errno::{EAGAIN, EINVAL};
use abi::signal::{
    SI_KERNEL, SI_TIMER, SI_USER, SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGIO, SIGSEGV, SIGSYS, SIGTRAP,
};
use abi::{Result, SigInfo, SigSet};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::Stat;
use vfs::file::{File, FileOps, Io, Sink};
use wait::{Events, Listener, Ticket, WaitQueue};

/// `sizeof(struct signalfd_siginfo)`.
const INFO: usize = 128;

/// Passes what two signal queues tell on to those who wait for the file.
#[derive(Default)]
struct Relay {
    queue: WaitQueue,
}

impl Listener for Relay {
    fn notify(&self, events: Events) {
        self.queue.notify(events);
    }
}

/// A task whose signals are watched, with its registrations.
struct Watcher {
    task: Weak<Task>,
    group: Arc<ThreadGroup>,
    own: Ticket,
    shared: Ticket,
}

impl Watcher {
    fn new(task: &Arc<Task>, relay: &Arc<Relay>) -> Watcher {
        Watcher {
            own: task.pending.wait.register(relay.clone(), Events::READABLE),
            shared: task
                .group
                .shared
                .wait
                .register(relay.clone(), Events::READABLE),
            task: Arc::downgrade(task),
            group: task.group.clone(),
        }
    }
    /// The signals that wait for it.
    fn pending(&self) -> SigSet {
        let own = self
            .task
            .upgrade()
            .map_or(SigSet::EMPTY, |t| t.pending.bits());
        own.union(self.group.shared.bits())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(t) = self.task.upgrade() {
            t.pending.wait.unregister(self.own);
        }
        self.group.shared.wait.unregister(self.shared);
    }
}

/// The open file.
pub struct SignalFd {
    mask: Arc<AtomicU64>,
    relay: Arc<Relay>,
    watcher: Mutex<Watcher>,
}

impl SignalFd {
    #[must_use]
    pub fn new(task: &Arc<Task>, mask: SigSet) -> Arc<SignalFd> {
        Self::with(task, Arc::new(AtomicU64::new(mask.0)))
    }
    fn with(task: &Arc<Task>, mask: Arc<AtomicU64>) -> Arc<SignalFd> {
        let relay = Arc::new(Relay::default());
        Arc::new(SignalFd {
            mask,
            watcher: Mutex::new(Watcher::new(task, &relay)),
            relay,
        })
    }
    fn mask(&self) -> SigSet {
        SigSet(self.mask.load(Ordering::SeqCst))
    }
    /// `signalfd(2)` on an existing one.
    pub fn set_mask(&self, mask: SigSet) {
        self.mask.store(mask.0, Ordering::SeqCst);
        self.relay.queue.notify(Events::READABLE);
    }
    /// The file as `task` sees it, for poll(2) and select(2).
    #[must_use]
    pub fn view(&self, task: &Arc<Task>, of: &File) -> Arc<File> {
        File::new(
            Self::with(task, self.mask.clone()),
            of.flags(),
            None,
            of.cred.clone(),
        )
    }
    /// From now on the file stands for this task where no caller is known.
    pub fn watch_for(&self, task: &Arc<Task>) {
        let new = Watcher::new(task, &self.relay);
        let old = {
            let mut w = self.watcher.lock();
            if Arc::ptr_eq(&w.group, &task.group) && w.task.strong_count() > 0 {
                return;
            }
            std::mem::replace(&mut *w, new)
        };
        drop(old);
        self.relay.queue.notify(Events::READABLE);
    }
}

fn put_all(
    dst: &mut dyn Sink,
    first: SigInfo,
    mut next: impl FnMut() -> Option<SigInfo>,
) -> Result<usize> {
    let mut done = 0;
    let mut info = Some(first);
    while let Some(i) = info {
        match dst.put(&encode(&i)) {
            Ok(INFO) => done += INFO,
            Ok(_) | Err(_) if done > 0 => break,
            Ok(_) => return Err(abi::errno::EFAULT),
            Err(e) => return Err(e),
        }
        info = if dst.remaining() < INFO { None } else { next() };
    }
    Ok(done)
}

/// `struct signalfd_siginfo`: which fields of the union are meant follows from signal and code
/// (`siginfo_layout`).
fn encode(i: &SigInfo) -> [u8; INFO] {
    let mut b = [0; INFO];
    let mut put32 = |at: usize, v: u32| b[at..at + 4].copy_from_slice(&v.to_le_bytes());
    let low = |n: usize| i.fields[n] as u32;
    let high = |n: usize| (i.fields[n] >> 32) as u32;
    put32(0, i.signo as u32);
    put32(4, i.errno as u32);
    put32(8, i.code as u32);
    let s = i.signal();
    let kernel = i.code > SI_USER && i.code < SI_KERNEL;
    let is = |of: &[abi::Signal]| kernel && s.is_some_and(|s| of.contains(&s));
    let (mut pointer, mut times, mut addr, mut call) = (None, None, None, None);
    if is(&[SIGILL, SIGFPE, SIGSEGV, SIGBUS, SIGTRAP]) {
        addr = Some(i.fields[0]);
    } else if is(&[SIGCHLD]) {
        put32(12, low(0));
        put32(16, high(0));
        put32(40, low(1));
        times = Some((i.fields[2], i.fields[3]));
    } else if is(&[SIGIO]) {
        put32(28, low(0));
        put32(20, low(1));
    } else if is(&[SIGSYS]) {
        call = Some(i.fields[0]);
        put32(84, low(1));
        put32(96, high(1));
    } else if i.code == SI_TIMER {
        put32(24, low(0));
        put32(32, high(0));
        pointer = Some(i.fields[1]);
    } else {
        put32(12, low(0));
        put32(16, high(0));
        pointer = (i.code < 0).then_some(i.fields[1]);
    }
    if let Some(p) = pointer {
        put32(44, p as u32);
    }
    let mut put64 = |at: usize, v: Option<u64>| {
        if let Some(v) = v {
            b[at..at + 8].copy_from_slice(&v.to_le_bytes());
        }
    };
    put64(48, pointer);
    put64(56, times.map(|t| t.0));
    put64(64, times.map(|t| t.1));
    put64(72, addr);
    put64(88, call);
    b
}

impl FileOps for SignalFd {
    /// By the calling task: as many as fit, at least one.
    fn read_as(&self, io: &Io<'_>, dst: &mut dyn Sink) -> Result<usize> {
        if dst.remaining() < INFO {
            return Err(EINVAL);
        }
        let t = task_of(io.caller.task()).ok_or(EINVAL)?;
        let take = || t.take_signal(self.mask()).ok_or(EAGAIN);
        let first = if io.nonblocking {
            take()?
        } else {
            // The file's own queue too: its mask may change.
            let q = [
                (&t.pending.wait, Events::READABLE),
                (&t.group.shared.wait, Events::READABLE),
                (&self.relay.queue, Events::READABLE),
            ];
            io.block(&q, None, take)?
        };
        put_all(dst, first, || t.take_signal(self.mask()))
    }
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        if dst.remaining() < INFO {
            return Err(EINVAL);
        }
        let (task, group) = {
            let w = self.watcher.lock();
            (w.task.upgrade(), w.group.clone())
        };
        let take = || match &task {
            Some(t) => t.take_signal(self.mask()),
            None => group.shared.take(self.mask()),
        };
        put_all(dst, take().ok_or(EAGAIN)?, take)
    }
    fn ignores_seek(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            ino: 1,
            mode: 0o600,
            nlink: 1,
            blksize: 4096,
            ..Stat::default()
        })
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        let pending = self.watcher.lock().pending();
        if pending.0 & self.mask().0 != 0 {
            mask & Events::IN
        } else {
            Events::empty()
        }
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.relay.queue)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "anon_inode:[signalfd]".into()
    }
    fn fdinfo(&self) -> String {
        format!("sigmask:\t{:016x}\n", self.mask().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::signal::{SI_QUEUE, SIGUSR1};

    #[test]
    fn what_is_read() {
        let mut i = SigInfo::from_sender(SIGUSR1, SI_QUEUE, 7, 8);
        i.fields[1] = 0x1_2345_6789;
        let b = encode(&i);
        assert_eq!(
            &b[..20],
            [10u32, 0, u32::MAX, 7, 8]
                .map(u32::to_le_bytes)
                .as_flattened()
        );
        assert_eq!(
            &b[44..56],
            &[0x89, 0x67, 0x45, 0x23, 0x89, 0x67, 0x45, 0x23, 1, 0, 0, 0]
        );
        let b = encode(&SigInfo::child(1, 7, 8, 3));
        assert_eq!((b[12], b[16], b[40]), (7, 8, 3));
        let b = encode(&SigInfo::fault(SIGSEGV, 1, 0x1234));
        assert_eq!(&b[72..74], &[0x34, 0x12]);
    }
}
