//! Keys made and asked for: add_key(2), request_key(2), and what gives a key contents.

use crate::access::Ref;
use crate::act::Act;
use crate::key::*;
use crate::lookup::{Lookup, Need};
use crate::rings::TaskRing;
use crate::search::{Query, Target};
use crate::state::New;
use abi::Result;
use abi::errno::{EAGAIN, EINVAL, ENODEV, ENOKEY, ENOTDIR, EOPNOTSUPP, EPERM};

/// For how long a key says that there is none (`key_negative_timeout`), seconds.
const NEGATIVE: i64 = 60;

// `KEY_REQKEY_DEFL_*`.
const DEFAULT: i32 = 0;
const THREAD: i32 = 1;
const PROCESS: i32 = 2;
const SESSION: i32 = 3;
const USERS: i32 = 4;
const USERS_SESSION: i32 = 5;
const REQUESTOR: i32 = 7;

impl Act<'_> {
    /// add_key(2), with a type's name and a description that are checked: makes a key in a keyring,
    /// or gives one that is there new contents.
    pub fn add(
        &mut self,
        kind: &[u8],
        description: &[u8],
        payload: Vec<u8>,
        ring: i32,
    ) -> Result<Serial> {
        let ring = self.lookup(ring, Lookup::CREATE, Need::Rights(WRITE))?;
        let kind = Type::named(kind)?;
        if self.state.key(ring.serial)?.kind != Type::Keyring {
            return Err(ENOTDIR);
        }
        kind.check_payload(payload.len())?;
        if description.is_empty() {
            return Err(EINVAL);
        }
        let index = (kind, description.into());
        self.state.may_link(ring.serial, &index)?;
        if let Some(k) = self.updatable(ring, &index) {
            return self.fill(k, payload).map(|()| k.serial);
        }
        let new = self.new_key(kind, description);
        let k = self.state.make(self.cred, new)?;
        let filled = match kind {
            Type::Keyring => Ok(()),
            _ => self.state.fill(k, payload),
        };
        match filled.and_then(|()| self.state.link(ring.serial, k)) {
            Ok(()) => Ok(k),
            Err(e) => {
                self.state.let_go(k);
                Err(e)
            }
        }
    }
    fn new_key<'a>(&self, kind: Type, description: &'a [u8]) -> New<'a> {
        New {
            kind,
            description,
            uid: self.cred.fsuid,
            gid: self.cred.fsgid,
            permissions: kind.permissions(),
            quota: Quota::In,
        }
    }
    /// The key of a keyring that a new one would only update (`find_key_to_update`).
    fn updatable(&self, ring: Ref, index: &Index) -> Option<Ref> {
        if !index.0.is_updatable() {
            return None;
        }
        let serial = *self.state.key(ring.serial).ok()?.links()?.get(index)?;
        let key = self.state.key(serial).ok()?;
        let possessed = ring.possessed;
        (!key.revoked && !key.invalidated).then_some(Ref { serial, possessed })
    }
    fn fill(&mut self, k: Ref, payload: Vec<u8>) -> Result<()> {
        self.permits(k, WRITE)?;
        self.state.fill(k.serial, payload)
    }
    /// `KEYCTL_UPDATE`.
    pub fn update(&mut self, id: i32, payload: Vec<u8>) -> Result<()> {
        let k = self.lookup(id, Lookup::empty(), Need::Rights(WRITE))?;
        let kind = self.state.key(k.serial)?.kind;
        if !kind.is_updatable() {
            return Err(EOPNOTSUPP);
        }
        kind.check_payload(payload.len())?;
        self.fill(k, payload)
    }
    /// request_key(2): a key that the task possesses, with a link to it in a keyring. With
    /// `callout`, a program is asked to make one, which there is not: `ENOKEY`, and for a while
    /// there is a key that says so.
    pub fn request(
        &mut self,
        kind: &[u8],
        description: &[u8],
        callout: Callout,
        ring: i32,
    ) -> Result<Serial> {
        let ring = match ring {
            0 => None,
            id => Some(self.lookup(id, Lookup::CREATE, Need::Rights(WRITE))?.serial),
        };
        let kind = Type::named(kind).map_err(|_| ENOKEY)?;
        let found = self.search_own(&Query {
            target: Target::Named(kind, description),
            checks_state: true,
            skips_expired: true,
        });
        match found {
            Ok(k) => {
                if let Some(ring) = ring {
                    self.permits(k, LINK)?;
                    self.state.link(ring, k.serial)?;
                }
                Ok(k.serial)
            }
            Err(EAGAIN) if callout == Callout::None => Err(ENOKEY),
            Err(EAGAIN) => Err(self.make_negative(kind, description, ring)),
            Err(e) => Err(e),
        }
    }
    /// Why no key was made on request.
    fn make_negative(
        &mut self,
        kind: Type,
        description: &[u8],
        ring: Option<Serial>,
    ) -> abi::Errno {
        let make = |act: &mut Self| {
            if kind == Type::Keyring {
                return Err(EPERM);
            }
            let ring = match ring {
                Some(r) => r,
                None => act.destination()?,
            };
            let new = act.new_key(kind, description);
            let k = act.state.make(act.cred, new)?;
            let until = act.now + NEGATIVE;
            let linked = act.state.negate(k, ENOKEY, until);
            let linked = linked.and_then(|()| act.state.link(ring, k));
            act.state.let_go(k);
            linked
        };
        make(self).err().unwrap_or(ENOKEY)
    }
    /// Where keys go that are made on request (`construct_get_dest_keyring`).
    fn destination(&mut self) -> Result<Serial> {
        let d = self.rings.destination;
        let from = match d {
            PROCESS => 1,
            SESSION => 2,
            USERS | USERS_SESSION => 3,
            _ => 0,
        };
        let rings = [TaskRing::Thread, TaskRing::Process, TaskRing::Session];
        let own = rings[from..].iter().find_map(|which| self.ring(*which));
        let k = match own {
            Some(k) => k,
            None if d == USERS => self.user_rings()?.0,
            None => self.user_rings()?.1,
        };
        self.permits(Ref::possessed(k), WRITE).map(|()| k)
    }
    /// `KEYCTL_SET_REQKEY_KEYRING`: gives what was set.
    pub fn set_destination(&mut self, to: i32) -> Result<i32> {
        let old = self.rings.destination;
        match to {
            -1 => return Ok(old),
            THREAD if self.rings.thread.is_none() => drop(self.install_new(TaskRing::Thread)?),
            PROCESS if self.rings.process.is_none() => drop(self.install_new(TaskRing::Process)?),
            DEFAULT | THREAD | PROCESS | SESSION | USERS | USERS_SESSION | REQUESTOR => {}
            _ => return Err(EINVAL),
        }
        self.rings.destination = to;
        Ok(old)
    }
    /// A type that keys of `KEYCTL_SEARCH` can have: `ENOKEY`.
    pub(crate) fn type_to_find(kind: &[u8]) -> Result<Type> {
        Type::named(kind).map_err(|e| if e == ENODEV { ENOKEY } else { e })
    }
}

/// Whether a program may be asked to make a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callout {
    None,
    Given,
}
