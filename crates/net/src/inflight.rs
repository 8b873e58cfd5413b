//! Files on their way in SCM_RIGHTS messages.
//!
//! A message that waits in a receive queue holds its files through an [`InFlight`]. Two dangers
//! live here:
//!
//! * **Cycles.** A socket in its own receive queue is held for ever. Linux collects such garbage,
//!   and so does [`collect`]: sockets that only messages refer to, and whose messages no reachable
//!   socket holds, lose their queued files.
//! * **Depth.** Dropping a file can close a socket, whose queue drops files, and so on, as deep as
//!   a program likes. Files from queues are therefore dropped by one loop, the graveyard's, never
//!   by recursion.
//!
//! An `InFlight` must not be dropped under a lock.
//!
//! What is a UNIX socket among the files, and what waits in its queues, says who knows sockets: a
//! [`UnixId`] and a [`GiveUp`] come with the calls.

use abi::Result;
use abi::errno::ETOOMANYREFS;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vfs::ucounts::{Charge, FILES_IN_FLIGHT, Kind};
use vfs::{Credentials, File};

/// What one takes of the kernel's memory, bytes.
const ENTRY: usize = 128;

/// The registry of one sandbox: see [`crate::NetNamespace`]. Its lock is a leaf.
#[derive(Default)]
pub struct InFlightRegistry {
    state: Mutex<State>,
    /// Entries that are UNIX sockets: without any there is nothing to collect.
    sockets: AtomicUsize,
    closes: AtomicUsize,
    collecting: AtomicBool,
    graveyard: Mutex<Graveyard>,
}

#[derive(Default)]
struct State {
    next: u64,
    entries: HashMap<u64, Entry>,
    /// Sockets that wait to be accepted, and the listener that has them: what is in their queues,
    /// it holds.
    embryos: HashMap<u64, u64>,
}

struct Entry {
    file: Weak<File>,
    /// The UNIX socket that the file is.
    socket: Option<u64>,
    /// The UNIX socket whose queue holds it.
    holder: u64,
}

#[derive(Default)]
struct Graveyard {
    files: Vec<Arc<File>>,
    draining: bool,
}

/// The files of one waiting message.
pub struct InFlight {
    registry: Arc<InFlightRegistry>,
    files: Vec<Arc<File>>,
    ids: Vec<u64>,
    /// The sender's, and their memory.
    _counted: [Charge; 2],
}

impl InFlightRegistry {
    /// A UNIX socket waits in a listener's queue.
    pub fn waits(&self, embryo: u64, listener: u64) {
        self.state.lock().embryos.insert(embryo, listener);
    }
    /// It was accepted, or has ended.
    pub fn waits_no_more(&self, embryo: u64) {
        self.state.lock().embryos.remove(&embryo);
    }
}

/// The number of the UNIX socket that a file is.
pub type UnixId = fn(&File) -> Option<u64>;
/// What waits in the queues of a file that is a socket, which gives it up: it is garbage.
pub type GiveUp = fn(&File) -> Vec<InFlight>;

impl InFlight {
    /// Registers files that go to the queue of socket `holder`. `ETOOMANYREFS` where those of the
    /// sender's user are more than `limit`, its RLIMIT_NOFILE (`too_many_unix_fds`).
    pub fn new(
        cred: &Credentials,
        limit: u64,
        registry: &Arc<InFlightRegistry>,
        files: &[Arc<File>],
        holder: u64,
        unix_id: UnixId,
    ) -> Result<InFlight> {
        let user = cred.ucounts();
        let own = i64::try_from(limit).unwrap_or(i64::MAX);
        let many = user.has_more_than(Kind::FilesInFlight, own.min(FILES_IN_FLIGHT));
        if many && !cred.passes_limits() {
            return Err(ETOOMANYREFS);
        }
        let n = files.len() as u64;
        let memory = cred.kmem(files.len() * ENTRY, ETOOMANYREFS)?;
        let counted = [user.force(Kind::FilesInFlight, n), memory];
        let r = registry;
        let mut s = r.state.lock();
        let mut ids = Vec::with_capacity(files.len());
        for f in files {
            let socket = unix_id(f);
            if socket.is_some() {
                r.sockets.fetch_add(1, Ordering::Relaxed);
            }
            s.next += 1;
            let id = s.next;
            s.entries.insert(
                id,
                Entry {
                    file: Arc::downgrade(f),
                    socket,
                    holder,
                },
            );
            ids.push(id);
        }
        Ok(InFlight {
            registry: registry.clone(),
            files: files.to_vec(),
            ids,
            _counted: counted,
        })
    }
    /// The files, for MSG_PEEK.
    pub fn peek(&self) -> Vec<Arc<File>> {
        self.files.clone()
    }
    /// The files: they have arrived.
    pub fn take(mut self) -> Vec<Arc<File>> {
        std::mem::take(&mut self.files)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let r = &self.registry;
        let mut gone = Vec::with_capacity(self.ids.len());
        {
            let mut s = r.state.lock();
            for id in &self.ids {
                if let Some(e) = s.entries.remove(id) {
                    if e.socket.is_some() {
                        r.sockets.fetch_sub(1, Ordering::Relaxed);
                    }
                    gone.push(e);
                }
            }
        }
        drop(gone);
        bury(&self.registry, std::mem::take(&mut self.files));
    }
}

/// Drops files without recursion.
fn bury(r: &InFlightRegistry, files: Vec<Arc<File>>) {
    if files.is_empty() {
        return;
    }
    {
        let mut g = r.graveyard.lock();
        g.files.extend(files);
        if g.draining {
            return;
        }
        g.draining = true;
    }
    loop {
        let next = {
            let mut g = r.graveyard.lock();
            let f = g.files.pop();
            if f.is_none() {
                g.draining = false;
            }
            f
        };
        match next {
            Some(f) => drop(f),
            None => return,
        }
    }
}

/// After a UNIX socket was closed: looks for garbage now and then, so that closing stays cheap on
/// average.
pub fn after_close(r: &InFlightRegistry, give_up: GiveUp) {
    let n = r.sockets.load(Ordering::Relaxed);
    if n == 0 || r.closes.fetch_add(1, Ordering::Relaxed) < n / 8 {
        return;
    }
    r.closes.store(0, Ordering::Relaxed);
    collect(r, give_up);
}

/// Frees sockets that only messages among themselves refer to.
pub fn collect(r: &InFlightRegistry, give_up: GiveUp) {
    if r.collecting.swap(true, Ordering::AcqRel) {
        return;
    }
    // Our own references: one for each file, dropped at the end, without locks.
    let mut held: HashMap<u64, (Arc<File>, usize)> = HashMap::new();
    let mut garbage: Vec<u64> = Vec::new();
    {
        let s = r.state.lock();
        // Who holds a reference to whom by a message: holder → sockets.
        let mut edges: HashMap<u64, Vec<u64>> = HashMap::new();
        for e in s.entries.values() {
            let Some(id) = e.socket else { continue };
            let holder = s.embryos.get(&e.holder).copied().unwrap_or(e.holder);
            edges.entry(holder).or_default().push(id);
            if let Some(h) = held.get_mut(&id) {
                h.1 += 1;
            } else if let Some(f) = e.file.upgrade() {
                held.insert(id, (f, 1));
            }
        }
        // Reachable: sockets that are not in flight at all, and those with references beyond
        // messages and ours.
        let mut work: Vec<u64> = edges
            .keys()
            .copied()
            .filter(|h| !held.contains_key(h))
            .collect();
        work.extend(
            held.iter()
                .filter(|(_, (f, n))| Arc::strong_count(f) > n + 1)
                .map(|(id, _)| *id),
        );
        let mut alive: HashSet<u64> = work.iter().copied().collect();
        while let Some(h) = work.pop() {
            for id in edges.get(&h).into_iter().flatten() {
                if alive.insert(*id) {
                    work.push(*id);
                }
            }
        }
        garbage.extend(held.keys().copied().filter(|id| !alive.contains(id)));
    }
    let mut dropped = Vec::new();
    for id in garbage {
        if let Some((f, _)) = held.get(&id) {
            dropped.extend(give_up(f));
        }
    }
    drop(dropped);
    bury(r, held.into_values().map(|(f, _)| f).collect());
    r.collecting.store(false, Ordering::Release);
}
