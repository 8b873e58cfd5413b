//! Programs that were loaded by bpf(2), by their numbers. What they are attached to, other modules
//! say: [`crate::cgroup::devices`].
//!
//! A program is its holders' (descriptors, groups), and is paid by the user that loaded it. The
//! table's lock is a leaf, under which no program is dropped.

use abi::Result;
use abi::errno::{EAGAIN, ENOENT};
use bpf::extended;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use vfs::ucounts::Charge;

/// What a program was loaded with.
pub struct Loaded {
    pub purpose: extended::Purpose,
    pub program: extended::Program,
    pub name: [u8; 16],
    /// The user's number in the initial namespace.
    pub uid: u32,
    /// Nanoseconds since the start.
    pub time: i64,
    pub gpl_compatible: bool,
    pub memory: Charge,
}

/// A program that was loaded.
pub struct Program {
    pub id: u32,
    pub loaded: Loaded,
    of: Arc<Programs>,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.of.state.lock().all.remove(&self.id);
    }
}

/// A container's programs, by their numbers.
#[derive(Default)]
pub struct Programs {
    state: Mutex<Listed>,
}

#[derive(Default)]
struct Listed {
    last: u32,
    all: BTreeMap<u32, Weak<Program>>,
}

impl Programs {
    /// The largest number.
    const MOST: u32 = i32::MAX as u32;

    /// Gives a program a number, one after the other. `EAGAIN` where all are taken.
    pub fn add(self: &Arc<Self>, loaded: Loaded) -> Result<Arc<Program>> {
        let mut s = self.state.lock();
        let Listed { last, all } = &mut *s;
        let free = |id: &u32| !all.contains_key(id);
        let mut next = (*last + 1..=Self::MOST).chain(1..=*last);
        let id = next.find(free).ok_or(EAGAIN)?;
        *last = id;
        let p = Arc::new(Program {
            id,
            loaded,
            of: self.clone(),
        });
        all.insert(id, Arc::downgrade(&p));
        Ok(p)
    }
    /// `ENOENT` for a number that none has.
    pub fn get(&self, id: u32) -> Result<Arc<Program>> {
        let s = self.state.lock();
        s.all.get(&id).and_then(Weak::upgrade).ok_or(ENOENT)
    }
    /// The number after `id`; `ENOENT` after the last.
    pub fn next(&self, id: u32) -> Result<u32> {
        let s = self.state.lock();
        let mut after = s.all.range(id.saturating_add(1)..);
        // (Nothing is dropped here: that would take the lock again.)
        let live = after.find(|(_, p)| p.strong_count() > 0);
        live.map(|(id, _)| *id).ok_or(ENOENT)
    }
}
