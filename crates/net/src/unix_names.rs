//! The UNIX sockets of a namespace: all of them, and who has which abstract name (`unix(7)`).
//!
//! A socket is here as what has a name ([`Named`]), as it is in the file system; what else it is
//! only `unix` knows.

use abi::Result;
use abi::errno::EADDRINUSE;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// What may have a name: a UNIX socket.
pub(crate) trait Named: Any + Send + Sync {
    /// What `ss` tells of it.
    fn describe(&self) -> UnixSocket;
}

/// What is told of a UNIX socket.
pub(crate) struct UnixSocket {
    pub kind: u32,
    pub state: u8,
    pub ino: u64,
    /// As in `sun_path`.
    pub name: Vec<u8>,
    pub peer: Option<u64>,
    pub receive_queue: u32,
    pub send_queue: u32,
    pub uid: u32,
}

/// See the module. Its locks are leaves.
#[derive(Default)]
pub(crate) struct UnixNames {
    /// All, by their inodes.
    all: Mutex<HashMap<u64, Weak<dyn Named>>>,
    /// By their names, without the leading zero byte.
    names: Mutex<BTreeMap<Vec<u8>, Weak<dyn Named>>>,
    next: AtomicU32,
}

impl UnixNames {
    pub fn add(&self, ino: u64, socket: Weak<dyn Named>) {
        self.all.lock().insert(ino, socket);
    }

    pub fn remove(&self, ino: u64) {
        self.all.lock().remove(&ino);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.lock().len()
    }

    /// What is told of each.
    pub fn describe(&self) -> Vec<UnixSocket> {
        let all: Vec<_> = self.all.lock().values().cloned().collect();
        let of = |w: &Weak<dyn Named>| Some(w.upgrade()?.describe());
        all.iter().filter_map(of).collect()
    }

    /// Who has an abstract name.
    pub fn find(&self, name: &[u8]) -> Option<Arc<dyn Named>> {
        self.names.lock().get(name).and_then(Weak::upgrade)
    }

    /// Takes an abstract name: `EADDRINUSE`.
    pub fn claim(&self, name: &[u8], socket: Weak<dyn Named>) -> Result<()> {
        let mut names = self.names.lock();
        if names.get(name).is_some_and(|w| w.strong_count() > 0) {
            return Err(EADDRINUSE);
        }
        names.insert(name.to_vec(), socket);
        Ok(())
    }

    /// Gives an abstract name up, where it is this socket's.
    pub fn release(&self, name: &[u8], socket: &Weak<dyn Named>) {
        let mut names = self.names.lock();
        let is_it = |w: &Weak<dyn Named>| std::ptr::addr_eq(w.as_ptr(), socket.as_ptr());
        if names.get(name).is_some_and(is_it) {
            names.remove(name);
        }
    }

    /// A name that may be free: five hexadecimal digits.
    pub fn suggest(&self) -> Vec<u8> {
        let n = self.next.fetch_add(1, Ordering::Relaxed) & 0xf_ffff;
        format!("{n:05x}").into_bytes()
    }
}
