//! How a number becomes a key (`lookup_user_key`).

use crate::access::Ref;
use crate::act::Act;
use crate::key::Serial;
use crate::rings::TaskRing;
use abi::Result;
use abi::errno::{EINVAL, ENOKEY};

/// What a caller wants of the key that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// These permissions.
    Rights(u32),
    /// To say which link goes: the key may be in any state, and of anybody.
    Unlink,
    /// The caller looks at the permissions itself (`KEY_DEFER_PERM_CHECK`).
    Later,
}

bitflags::bitflags! {
    /// How a key is looked up.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct Lookup: u8 {
        /// The task's keyrings are made where they are missing.
        const CREATE = 1;
        /// Keys that say that there is none are found, too.
        const PARTIAL = 2;
    }
}

// `KEY_SPEC_*`.
const THREAD: i32 = -1;
const PROCESS: i32 = -2;
const SESSION: i32 = -3;
const USERS: i32 = -4;
const USERS_SESSION: i32 = -5;
/// What a program would have that makes keys on request.
const REQKEY_AUTH: i32 = -7;
const REQUESTOR: i32 = -8;

impl Act<'_> {
    /// The key that a number means (`lookup_user_key`).
    pub(crate) fn lookup(&mut self, id: i32, how: Lookup, need: Need) -> Result<Ref> {
        let r = self.named(id, how)?;
        if need != Need::Unlink {
            match self.usable(r.serial, how) {
                Err(_) if need == Need::Later => {}
                state => state?,
            }
        }
        if let Need::Rights(rights) = need {
            self.permits(r, rights)?;
        }
        Ok(r)
    }
    fn usable(&self, k: Serial, how: Lookup) -> Result<()> {
        match self.state.key(k)?.negative {
            Some(e) if !how.contains(Lookup::PARTIAL) => Err(e),
            _ => self.validate(k),
        }
    }
    fn named(&mut self, id: i32, how: Lookup) -> Result<Ref> {
        let serial = match id {
            THREAD => self.own(TaskRing::Thread, how)?,
            PROCESS => self.own(TaskRing::Process, how)?,
            SESSION => self.session(how)?,
            USERS => self.user_rings()?.0,
            USERS_SESSION => self.user_rings()?.1,
            REQKEY_AUTH | REQUESTOR => return Err(ENOKEY),
            1.. => return self.numbered(id),
            _ => return Err(EINVAL),
        };
        Ok(Ref::possessed(serial))
    }
    fn own(&mut self, which: TaskRing, how: Lookup) -> Result<Serial> {
        match self.ring(which) {
            Some(k) => Ok(k),
            None if how.contains(Lookup::CREATE) => self.install_new(which),
            None => Err(ENOKEY),
        }
    }
    /// The session's keyring. A task that has none has its user's, until it would change it.
    fn session(&mut self, how: Lookup) -> Result<Serial> {
        let creates = how.contains(Lookup::CREATE);
        let Some(k) = self.ring(TaskRing::Session) else {
            let (_, users) = self.user_rings()?;
            if creates {
                return self.install_new(TaskRing::Session);
            }
            self.install(TaskRing::Session, users);
            return Ok(users);
        };
        if creates && self.state.key(k)?.is_users {
            return self.install_new(TaskRing::Session);
        }
        Ok(k)
    }
    fn numbered(&mut self, id: Serial) -> Result<Ref> {
        self.state.key(id)?;
        Ok(Ref {
            serial: id,
            possessed: self.possesses(id),
        })
    }
}
