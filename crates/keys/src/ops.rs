//! What a task does with keys: the operations of keyctl(2), each as `security/keys/keyctl.c` has
//! it.

use crate::access::Ref;
use crate::act::Act;
use crate::key::*;
use crate::limits::Setting;
use crate::lookup::{Lookup, Need};
use crate::rings::TaskRing;
use crate::search::{Query, Target};
use crate::state::State;
use abi::Result;
use abi::errno::{EACCES, EAGAIN, EEXIST, EINVAL, ENOENT, ENOKEY, ENOTDIR, EOPNOTSUPP, EPERM};
use vfs::Caps;

/// How a link moves (`KEYCTL_MOVE_EXCL`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    Replace,
    Exclusive,
}

const PARTIAL: Lookup = Lookup::PARTIAL;
const BOTH: Lookup = Lookup::PARTIAL.union(Lookup::CREATE);

impl Act<'_> {
    fn is_admin(&self) -> bool {
        self.cred.has(Caps::SYS_ADMIN)
    }
    /// `KEYCTL_GET_KEYRING_ID`, which may make it.
    pub fn keyring_id(&mut self, id: i32, create: Create) -> Result<Serial> {
        let how = match create {
            Create::Yes => Lookup::CREATE,
            Create::No => Lookup::empty(),
        };
        self.lookup(id, how, Need::Rights(SEARCH)).map(|r| r.serial)
    }
    /// `KEYCTL_REVOKE`: who may write, or set attributes.
    pub fn revoke(&mut self, id: i32) -> Result<()> {
        let k = match self.lookup(id, Lookup::empty(), Need::Rights(WRITE)) {
            Err(EACCES) => self.lookup(id, Lookup::empty(), Need::Rights(SETATTR))?,
            r => r?,
        };
        self.state.revoke(k.serial, self.now)
    }
    /// `KEYCTL_INVALIDATE`.
    pub fn invalidate(&mut self, id: i32) -> Result<()> {
        let k = self.lookup(id, Lookup::empty(), Need::Rights(SEARCH))?;
        self.state.invalidate(k.serial)
    }
    /// `KEYCTL_CLEAR`.
    pub fn clear(&mut self, ring: i32) -> Result<()> {
        let r = self.lookup(ring, Lookup::CREATE, Need::Rights(WRITE))?;
        self.state.clear(r.serial)
    }
    /// `KEYCTL_LINK`.
    pub fn link(&mut self, id: i32, ring: i32) -> Result<()> {
        let ring = self.lookup(ring, Lookup::CREATE, Need::Rights(WRITE))?;
        let k = self.lookup(id, Lookup::CREATE, Need::Rights(LINK))?;
        self.state.link(ring.serial, k.serial)
    }
    /// `KEYCTL_UNLINK`.
    pub fn unlink(&mut self, id: i32, ring: i32) -> Result<()> {
        let ring = self.lookup(ring, Lookup::empty(), Need::Rights(WRITE))?;
        let k = self.lookup(id, PARTIAL, Need::Unlink)?;
        self.state.unlink(ring.serial, k.serial)
    }
    /// `KEYCTL_MOVE`.
    pub fn move_link(&mut self, id: i32, from: i32, to: i32, how: Move) -> Result<()> {
        let k = self.lookup(id, Lookup::CREATE, Need::Rights(LINK))?.serial;
        let from = self.lookup(from, Lookup::empty(), Need::Rights(WRITE))?;
        let to = self.lookup(to, Lookup::CREATE, Need::Rights(WRITE))?;
        let (from, to) = (from.serial, to.serial);
        if from == to {
            return Ok(());
        }
        let index = self.state.key(k)?.index();
        let links_of = |s: &State, ring| -> Result<Option<Serial>> {
            let links = s.key(ring)?.links().ok_or(ENOTDIR)?;
            Ok(links.get(&index).copied())
        };
        let (there, here) = (links_of(&self.state, from)?, links_of(&self.state, to)?);
        if there != Some(k) {
            return Err(ENOENT);
        }
        if here.is_some() && how == Move::Exclusive {
            return Err(EEXIST);
        }
        self.state.link(to, k)?;
        // What it took the place of may have been the last to hold that keyring.
        match self.state.unlink(from, k) {
            Err(ENOKEY) => Ok(()),
            r => r,
        }
    }
    /// `KEYCTL_DESCRIBE`: as text, without its end.
    pub fn describe(&mut self, id: i32) -> Result<Vec<u8>> {
        let k = self.lookup(id, PARTIAL, Need::Rights(VIEW))?;
        let key = self.state.key(k.serial)?;
        let ns = &self.cred.user_ns;
        let mut text = format!(
            "{};{};{};{:08x};",
            key.kind.name(),
            ns.uid_shown(key.uid) as i32,
            key.gid_shown(ns) as i32,
            key.permissions
        )
        .into_bytes();
        text.extend_from_slice(&key.description);
        Ok(text)
    }
    /// `KEYCTL_GET_SECURITY`: whether the caller may ask. No key has a label.
    pub fn may_view(&mut self, id: i32) -> Result<()> {
        self.lookup(id, PARTIAL, Need::Rights(VIEW)).map(|_| ())
    }
    /// `KEYCTL_READ`: a key's bytes, or the numbers of a keyring's keys, for a buffer of this size.
    /// What the task possesses it may read, too, where it may only search for it.
    pub fn read(&mut self, id: i32, room: usize) -> Result<Vec<u8>> {
        const PAGE: usize = abi::PAGE_SIZE as usize;
        let found = self.lookup(id, Lookup::empty(), Need::Later);
        let k = found.map_err(|_| ENOKEY)?;
        let key = self.state.key(k.serial)?;
        if let Some(e) = key.negative {
            return Err(e);
        }
        match self.permits(k, READ) {
            Err(EACCES) if k.possessed => {}
            r => r?,
        }
        if !key.kind.is_readable() {
            return Err(EOPNOTSUPP);
        }
        self.validate(k.serial)?;
        Ok(match &key.content {
            Content::Bytes(b) => b.clone(),
            Content::Links(_) if room <= PAGE && !room.is_multiple_of(size_of::<Serial>()) => {
                return Err(EINVAL);
            }
            Content::Links(l) => l.values().flat_map(|k| k.to_ne_bytes()).collect(),
        })
    }
    /// `KEYCTL_SEARCH`.
    pub fn find(&mut self, ring: i32, kind: &[u8], name: &[u8], to: i32) -> Result<Serial> {
        let ring = self.lookup(ring, Lookup::empty(), Need::Rights(SEARCH))?;
        let to = match to {
            0 => None,
            id => Some(self.lookup(id, Lookup::CREATE, Need::Rights(WRITE))?),
        };
        let kind = Self::type_to_find(kind)?;
        let found = self.search(
            ring,
            &Query {
                target: Target::Named(kind, name),
                checks_state: true,
                skips_expired: false,
            },
        );
        let k = found.map_err(|e| if e == EAGAIN { ENOKEY } else { e })?;
        if let Some(to) = to {
            self.permits(k, LINK)?;
            self.state.link(to.serial, k.serial)?;
        }
        Ok(k.serial)
    }
    /// `KEYCTL_CHOWN`: to ids of the initial user namespace; `None` keeps what is.
    pub fn chown(&mut self, id: i32, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let k = self.lookup(id, BOTH, Need::Rights(SETATTR))?.serial;
        let key = self.state.key(k)?;
        let (uid, gid) = (uid.unwrap_or(key.uid), gid.unwrap_or(key.gid));
        let gives = uid != key.uid || gid != key.gid && !self.cred.in_group(gid);
        if gives && !self.is_admin() {
            return Err(EACCES);
        }
        self.state.chown(k, uid, gid)
    }
    /// `KEYCTL_SETPERM`.
    pub fn set_permissions(&mut self, id: i32, permissions: u32) -> Result<()> {
        if permissions & !ALL != 0 {
            return Err(EINVAL);
        }
        let k = self.lookup(id, BOTH, Need::Rights(SETATTR))?.serial;
        if self.state.key(k)?.uid != self.cred.fsuid && !self.is_admin() {
            return Err(EACCES);
        }
        self.state.key_mut(k)?.permissions = permissions;
        Ok(())
    }
    /// `KEYCTL_SET_TIMEOUT`: in seconds; 0 for none.
    pub fn set_timeout(&mut self, id: i32, seconds: u32) -> Result<()> {
        let k = self.lookup(id, BOTH, Need::Rights(SETATTR))?;
        self.expire_in(k.serial, seconds.into())
    }
    fn expire_in(&mut self, k: Serial, seconds: i64) -> Result<()> {
        let end = match seconds {
            0 => NEVER,
            n => self.now.saturating_add(n),
        };
        self.state.set_expiry(k, end)
    }
    /// Whether the caller may restrict a key at all.
    pub fn may_restrict(&mut self, id: i32) -> Result<()> {
        self.lookup(id, Lookup::empty(), Need::Rights(SETATTR))
            .map(|_| ())
    }
    /// `KEYCTL_RESTRICT_KEYRING`: it takes no more links. With a type, what is linked would be
    /// checked, which is for types that there are not.
    pub fn restrict(&mut self, id: i32, kind: Option<&[u8]>) -> Result<()> {
        let k = self.lookup(id, Lookup::empty(), Need::Rights(SETATTR))?;
        let key = self.state.key_mut(k.serial)?;
        if key.kind != Type::Keyring {
            return Err(ENOTDIR);
        }
        if let Some(kind) = kind {
            Self::type_to_find(kind)?;
            return Err(ENOENT);
        }
        match std::mem::replace(&mut key.is_restricted, true) {
            true => Err(EEXIST),
            false => Ok(()),
        }
    }
    /// `KEYCTL_GET_PERSISTENT`: of this user, an id of the initial namespace.
    pub fn persistent_of(&mut self, uid: Option<u32>, ring: i32) -> Result<Serial> {
        let own = [self.cred.uid, self.cred.euid];
        let uid = uid.unwrap_or(self.cred.uid);
        if !own.contains(&uid) && !self.cred.has_own(Caps::SETUID) {
            return Err(EPERM);
        }
        let ring = self
            .lookup(ring, Lookup::CREATE, Need::Rights(WRITE))?
            .serial;
        if self.state.key(ring)?.kind != Type::Keyring {
            return Err(ENOTDIR);
        }
        let k = self.persistent(uid)?;
        self.permits(Ref::possessed(k), LINK)?;
        self.state.link(ring, k)?;
        let seconds = self.keys.limits.get(Setting::PersistentExpiry);
        self.expire_in(k, seconds)?;
        Ok(k)
    }
    /// `KEYCTL_SESSION_TO_PARENT`, the task's part: its session, and whose it is.
    pub fn session_to_give(&mut self) -> Result<(Serial, u32)> {
        const SESSION: i32 = -3;
        let k = self.lookup(SESSION, Lookup::empty(), Need::Rights(LINK))?;
        Ok((k.serial, self.state.key(k.serial)?.uid))
    }
    /// The session's keyring, and whose it is.
    #[must_use]
    pub fn session_owner(&self) -> Option<(Serial, u32)> {
        let k = self.ring(TaskRing::Session)?;
        self.state.key(k).ok().map(|key| (k, key.uid))
    }
}

/// Whether a task's keyring is made where it is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    Yes,
    No,
}
