//! Keyrings that tasks and users have by themselves, and how they come to be
//! (`security/keys/process_keys.c`, `persistent.c`).

use crate::Keys;
use crate::access::Ref;
use crate::act::Act;
use crate::key::*;
use crate::rings::TaskRing;
use crate::state::{New, Registers};
use abi::Result;
use abi::errno::{EAGAIN, EINVAL};
use std::sync::Arc;
use vfs::userns::{AtEnd, INVALID};

/// That a user namespace has registers, which end with it.
#[derive(Debug)]
pub(crate) struct Registered {
    keys: Arc<Keys>,
    ino: u32,
}

impl AtEnd for Registered {}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut state = self.keys.state.lock();
        let gone = state.registers.remove(&self.ino).unwrap_or_default();
        for k in [gone.users, gone.persistent].into_iter().flatten() {
            state.unhold(k);
        }
    }
}

impl Act<'_> {
    /// Makes a keyring that is the task's (`install_*_keyring_to_cred`).
    pub(crate) fn install_new(&mut self, which: TaskRing) -> Result<Serial> {
        let read = READ << USER;
        let (name, more, quota): (&[u8], _, _) = match which {
            TaskRing::Thread => (b"_tid", 0, Quota::Overrun),
            TaskRing::Process => (b"_pid", 0, Quota::Overrun),
            TaskRing::Session if self.rings.session.is_some() => (b"_ses", read, Quota::In),
            TaskRing::Session => (b"_ses", read, Quota::Overrun),
        };
        let new = New {
            kind: Type::Keyring,
            description: name,
            uid: self.cred.uid,
            gid: self.cred.gid,
            permissions: POSSESSOR_ALL | VIEW << USER | more,
            quota,
        };
        let serial = self.state.make(self.cred, new)?;
        self.install(which, serial);
        Ok(serial)
    }
    /// A new thread begins with a keyring of its own.
    pub fn begin_thread(&mut self) -> Result<()> {
        self.install_new(TaskRing::Thread).map(|_| ())
    }
    /// Joins a session: a new one, or that of a name (`join_session_keyring`).
    pub fn join_session(&mut self, name: Option<&[u8]>) -> Result<Serial> {
        let Some(name) = name else {
            return self.install_new(TaskRing::Session);
        };
        let found = self.named_ring(name);
        if found.is_some() && found == self.ring(TaskRing::Session) {
            return Ok(0);
        }
        let serial = match found {
            Some(s) => s,
            None => {
                let new = New {
                    kind: Type::Keyring,
                    description: name,
                    uid: self.cred.uid,
                    gid: self.cred.gid,
                    permissions: POSSESSOR_ALL | (VIEW | READ | LINK) << USER,
                    quota: Quota::In,
                };
                self.state.make(self.cred, new)?
            }
        };
        self.install(TaskRing::Session, serial);
        Ok(serial)
    }
    /// The keyring of this name that may be searched (`find_keyring_by_name`).
    fn named_ring(&self, name: &[u8]) -> Option<Serial> {
        let is_good = |k: &Serial| {
            let here = |key: &Key| self.cred.user_ns.uid_number(key.uid).is_some();
            let is_live = |key: &Key| !key.revoked && here(key);
            self.state.key(*k).is_ok_and(is_live)
                && self.permits(Ref::not_possessed(*k), SEARCH).is_ok()
        };
        let mut all = self.state.rings_named(self.cred.user_ns.ino(), name);
        all.find(is_good)
    }
    /// A user's number in the task's user namespace, as names of keyrings have it.
    fn number_of(&self, uid: u32) -> u32 {
        self.cred.user_ns.uid_number(uid).unwrap_or(INVALID)
    }
    /// The keyrings of the task's user (`look_up_user_keyrings`): its own, and its default session.
    pub(crate) fn user_rings(&mut self) -> Result<(Serial, Serial)> {
        let number = self.number_of(self.cred.uid);
        let register = self.register(
            |r| &mut r.users,
            b".user_reg",
            |ns| {
                let permissions = (WRITE | SEARCH) << POSSESSOR | (VIEW | READ) << USER;
                (ns.owner(), permissions, Quota::In)
            },
        )?;
        let user = format!("_uid.{number}");
        let (user, _) = self.user_ring(register, user.as_bytes())?;
        let session = format!("_uid_ses.{number}");
        let (session, is_new) = self.user_ring(register, session.as_bytes())?;
        if is_new {
            self.state.link(session, user)?;
        }
        Ok((user, session))
    }
    /// The user's default session, where there is one.
    pub(crate) fn user_session(&self) -> Option<Serial> {
        let ns = &self.cred.user_ns;
        let register = self.state.registers.get(&ns.ino())?.users?;
        let name = format!("_uid_ses.{}", self.number_of(self.cred.uid));
        self.registered(register, name.as_bytes()).ok()
    }
    /// A keyring of the register that is of use; `EAGAIN` where there is none.
    fn registered(&self, register: Serial, name: &[u8]) -> Result<Serial> {
        let links = self.state.key(register)?.links().ok_or(EINVAL)?;
        let index = (Type::Keyring, name.into());
        let k = *links.get(&index).ok_or(EAGAIN)?;
        self.validate(k).map(|()| k)
    }
    fn user_ring(&mut self, register: Serial, name: &[u8]) -> Result<(Serial, bool)> {
        match self.registered(register, name) {
            Err(EAGAIN) => {}
            r => return r.map(|k| (k, false)),
        }
        let new = New {
            kind: Type::Keyring,
            description: name,
            uid: self.cred.uid,
            gid: INVALID,
            permissions: POSSESSOR_ALL & !(SETATTR << POSSESSOR) | (POSSESSOR_ALL >> 8),
            quota: Quota::In,
        };
        let k = self.make_linked(register, new)?;
        self.state.key_mut(k)?.is_users = true;
        Ok((k, true))
    }
    /// A register of the task's user namespace.
    fn register(
        &mut self,
        of: fn(&mut Registers) -> &mut Option<Serial>,
        name: &[u8],
        how: fn(&vfs::userns::UserNs) -> (u32, u32, Quota),
    ) -> Result<Serial> {
        let ns = &self.cred.user_ns;
        if let Some(k) = self.state.registers.get_mut(&ns.ino()).and_then(|r| *of(r)) {
            return Ok(k);
        }
        let (uid, permissions, quota) = how(ns);
        let new = New {
            kind: Type::Keyring,
            description: name,
            uid,
            gid: INVALID,
            permissions,
            quota,
        };
        let k = self.state.make(self.cred, new)?;
        self.state.hold(k);
        let registers = self.state.registers.entry(ns.ino()).or_default();
        *of(registers) = Some(k);
        ns.at_end(Arc::as_ptr(self.keys).addr(), || {
            Box::new(Registered {
                keys: self.keys.clone(),
                ino: ns.ino(),
            })
        });
        Ok(k)
    }
    /// The keyring of a user that stays when all his processes have ended (`key_get_persistent`).
    pub(crate) fn persistent(&mut self, uid: u32) -> Result<Serial> {
        let number = self.number_of(uid);
        let permissions = POSSESSOR_ALL & !(SETATTR << POSSESSOR) | (VIEW | READ) << USER;
        let register = self.register(
            |r| &mut r.persistent,
            b".persistent_register",
            |ns| {
                let permissions = POSSESSOR_ALL & !(SETATTR << POSSESSOR) | (VIEW | READ) << USER;
                (ns.owner(), permissions, Quota::Not)
            },
        )?;
        let name = format!("_persistent.{number}");
        match self.registered(register, name.as_bytes()) {
            Ok(k) => return Ok(k),
            Err(EAGAIN) => {}
            // It has ended, and is made anew.
            Err(_) => {}
        }
        let new = New {
            kind: Type::Keyring,
            description: name.as_bytes(),
            uid,
            gid: INVALID,
            permissions,
            quota: Quota::Not,
        };
        self.make_linked(register, new)
    }
    /// Makes a key with a link in a keyring.
    fn make_linked(&mut self, ring: Serial, new: New<'_>) -> Result<Serial> {
        let k = self.state.make(self.cred, new)?;
        match self.state.link(ring, k) {
            Ok(()) => Ok(k),
            Err(e) => {
                self.state.let_go(k);
                Err(e)
            }
        }
    }
    /// The task's user or group for files changed: so does its thread's keyring's
    /// (`key_fsuid_changed`).
    pub fn owner_changed(&mut self) {
        if let Some(k) = self.ring(TaskRing::Thread) {
            let _ = self.state.set_owner(k, self.cred.fsuid);
            if let Ok(key) = self.state.key_mut(k) {
                key.gid = self.cred.fsgid;
            }
        }
    }
}
