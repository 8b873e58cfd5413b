//! Searches (`search_nested_keyrings`, `search_cred_keyrings_rcu`): a keyring first, then those in
//! it that may be searched, and so on to a bounded depth. No more than [`VISITS_MAX`] keyrings are
//! looked at; a search that would look at more and has found nothing says `ENOMEM`.

use crate::access::Ref;
use crate::act::Act;
use crate::key::*;
use crate::rings::TaskRing;
use crate::state::{DEPTH_MAX, Seen, VISITS_MAX};
use abi::errno::{EACCES, EAGAIN, EKEYEXPIRED, EKEYREVOKED, ENOKEY, ENOMEM, ENOTDIR};
use abi::{Errno, Result};

/// What is searched for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    Named(Type, &'a [u8]),
    /// This very key: whether it is possessed.
    Exactly(Serial),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    pub target: Target<'a>,
    /// Keys that are of no use are passed over.
    pub checks_state: bool,
    /// As if those that have expired were not there.
    pub skips_expired: bool,
}

/// What a key is to a search.
enum Look {
    Found,
    /// It has the name, but cannot be given.
    Refused(Errno),
    Other,
}

/// A search that is under way.
struct Walk<'a> {
    query: &'a Query<'a>,
    index: Index,
    possessed: bool,
    /// What it says where nothing is found.
    error: Errno,
    /// The depth of each is the least at which it was looked at.
    seen: Seen,
}

impl Act<'_> {
    /// Searches a keyring that may be searched: `EAGAIN` where nothing was found.
    pub(crate) fn search(&self, ring: Ref, query: &Query<'_>) -> Result<Ref> {
        let key = self.state.key(ring.serial)?;
        if key.kind != Type::Keyring {
            return Err(ENOTDIR);
        }
        self.permits(ring, SEARCH)?;
        let index = match query.target {
            Target::Named(kind, name) => (kind, name.into()),
            Target::Exactly(k) => self.state.key(k)?.index(),
        };
        let mut walk = Walk {
            query,
            index,
            possessed: ring.possessed,
            error: EAGAIN,
            seen: Seen::default(),
        };
        let found = |serial| Ref {
            serial,
            possessed: ring.possessed,
        };
        if key.kind == walk.index.0 && key.description == walk.index.1 {
            match self.look(ring.serial, &walk) {
                Look::Found => return Ok(found(ring.serial)),
                Look::Refused(e) => return Err(e),
                Look::Other => {}
            }
        }
        let k = self.descend(ring.serial, 0, &mut walk);
        let error = match walk.seen.visits {
            ..=VISITS_MAX => walk.error,
            _ => ENOMEM,
        };
        k.map(found).ok_or(error)
    }
    fn look(&self, k: Serial, walk: &Walk<'_>) -> Look {
        let Ok(key) = self.state.key(k) else {
            return Look::Other;
        };
        let q = walk.query;
        if q.checks_state {
            if key.revoked || key.invalidated {
                return Look::Refused(EKEYREVOKED);
            }
            if key.has_expired(self.now) {
                return match q.skips_expired {
                    true => Look::Refused(walk.error),
                    false => Look::Refused(EKEYEXPIRED),
                };
            }
        }
        if matches!(q.target, Target::Exactly(this) if this != k) {
            return Look::Other;
        }
        let r = Ref {
            serial: k,
            possessed: walk.possessed,
        };
        match (self.permits(r, SEARCH), key.negative) {
            (Err(_), _) => Look::Refused(EACCES),
            (Ok(()), Some(e)) if q.checks_state => Look::Refused(e),
            _ => Look::Found,
        }
    }
    fn descend(&self, ring: Serial, depth: usize, walk: &mut Walk<'_>) -> Option<Serial> {
        let key = self.state.key(ring).ok()?;
        let depths = &mut walk.seen.depths;
        if key.revoked || key.invalidated || depths.get(&ring).is_some_and(|d| *d <= depth) {
            return None;
        }
        depths.insert(ring, depth);
        if let Some(k) = key.links()?.get(&walk.index) {
            match self.look(*k, walk) {
                Look::Found => return Some(*k),
                Look::Refused(e) => walk.error = e,
                Look::Other => {}
            }
        }
        if depth >= DEPTH_MAX {
            return None;
        }
        for below in self.state.rings_in(key) {
            walk.seen.visits += 1;
            if walk.seen.visits > VISITS_MAX {
                return None;
            }
            let r = Ref {
                serial: below,
                possessed: walk.possessed,
            };
            if self.permits(r, SEARCH).is_ok()
                && let Some(k) = self.descend(below, depth + 1, walk)
            {
                return Some(k);
            }
        }
        None
    }
    pub(crate) fn own_rings(&self) -> impl Iterator<Item = Serial> + use<> {
        let session = self.ring(TaskRing::Session).or_else(|| self.user_session());
        let rings = [
            self.ring(TaskRing::Thread),
            self.ring(TaskRing::Process),
            session,
        ];
        rings.into_iter().flatten()
    }
    /// Searches the task's own keyrings. Where nothing was found, `EAGAIN` or a key that says that
    /// there is none is told rather than that a keyring cannot be searched.
    pub(crate) fn search_own(&self, query: &Query<'_>) -> Result<Ref> {
        let (mut told, mut other) = (None, EAGAIN);
        for ring in self.own_rings() {
            match self.search(Ref::possessed(ring), query) {
                Ok(r) => return Ok(r),
                Err(EAGAIN) => told = told.or(Some(EAGAIN)),
                Err(ENOKEY) => told = Some(ENOKEY),
                Err(ENOMEM) => return Err(ENOMEM),
                Err(e) => other = e,
            }
        }
        Err(told.unwrap_or(other))
    }
}
