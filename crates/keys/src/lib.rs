//! Keys that programs keep in the kernel, and the keyrings that hold them (keyrings(7),
//! `security/keys` of Linux 6.12).
//!
//! A key has a type, a description, an owner and permissions; a keyring is a key whose contents are
//! links to others. A task has keyrings of its own ([`Rings`]): what can be reached from these by
//! links that may be searched it *possesses*, which is the strongest right. User keyrings belong to
//! a user of a user namespace, and are found by name in a register there.
//!
//! Each container has [`Keys`] of its own: on Linux keys are no matter of namespaces, but a sandbox
//! must not let containers see each other's. There is no program that makes keys on request
//! (`/sbin/request-key` is run outside of containers), so a request that would need it fails as
//! where it finds nothing (where it is missing, Linux says `ENOENT` the first time).
//!
//! Always:
//! - links make no cycle, and a key's `parents` are the keyrings with a link to it;
//! - a key lives as long as it has a parent or is held; there is nothing else that keeps it;
//! - an owner's counts are the sums of its keys', which memory of the kernel is charged for besides
//!   (`vfs::ucounts`).
//!
//! All keys of a container are under one lock, a leaf but for the counts of users. What it is held
//! for is bounded: a search looks at a keyring once for each depth at most, and depths are bounded.
//! A [`Handle`] takes it when it is dropped, so none is dropped under it ([`Act`] keeps those that
//! were replaced until the end). So does a user namespace that had registers (`own::Registered`),
//! and none ends under it: the state keeps none, also not by what its keys are charged to
//! ([`vfs::ucounts`]), and who acts has credentials in its own. A task's [`Rings`] are locked before
//! it.
//!
//! The modules, each on those behind it: `show`, `ops` → `make` → `lookup` → `possession` →
//! `search` → `own` → `access` → `act` → `rings` → `state` → `key`, `limits`.
#![forbid(unsafe_code)]

mod access;
mod act;
mod key;
mod limits;
mod lookup;
mod make;
mod ops;
mod own;
mod possession;
mod rings;
mod search;
mod show;
mod state;
#[cfg(test)]
mod tests;

pub use act::Act;
pub use key::{Serial, Type};
pub use limits::{Limits, Setting};
pub use make::Callout;
pub use ops::{Create, Move};
pub use rings::{Handle, Rings, Survives};

use parking_lot::Mutex;
use state::State;
use std::sync::Arc;
use vfs::Credentials;

/// The keys of a container.
#[derive(Debug)]
pub struct Keys {
    state: Mutex<State>,
    pub limits: Arc<Limits>,
}

impl Default for Keys {
    fn default() -> Keys {
        let limits = Arc::new(Limits::default());
        Keys {
            state: Mutex::new(State::new(limits.clone())),
            limits,
        }
    }
}

impl Keys {
    /// Begins what a task with these credentials and keyrings does.
    pub fn act<'a>(self: &'a Arc<Self>, cred: &'a Credentials, rings: &'a mut Rings) -> Act<'a> {
        self.act_at(cred, rings, now())
    }
    pub(crate) fn act_at<'a>(
        self: &'a Arc<Self>,
        cred: &'a Credentials,
        rings: &'a mut Rings,
        now: i64,
    ) -> Act<'a> {
        let mut state = self.state.lock();
        state.collect(now);
        Act {
            state,
            keys: self,
            cred,
            rings,
            now,
            replaced: Vec::new(),
        }
    }
}

/// Seconds of the real time.
fn now() -> i64 {
    const CLOCK_REALTIME: i32 = 0;
    hostcall::time::clock_nanos(CLOCK_REALTIME) / 1_000_000_000
}
