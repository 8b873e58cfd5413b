//! All keys of a container: made, linked, counted, and gone when nobody holds them.

use crate::key::*;
use crate::limits::Limits;
use abi::errno::{
    EDEADLK, EDQUOT, EINVAL, EKEYREVOKED, ELOOP, ENOENT, ENOKEY, ENOMEM, ENOTDIR, EPERM,
};
use abi::{Errno, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vfs::Credentials;

/// How deep searches go (`KEYRING_SEARCH_MAX_DEPTH`).
pub(crate) const DEPTH_MAX: usize = 6;
/// How many keyrings one call looks at. All keys have one lock, and nobody's keyrings, however
/// many, may keep others waiting for it; Linux has no such bound, but lets others go on meanwhile.
pub(crate) const VISITS_MAX: usize = 1024;

/// What a user's keys count.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Owner {
    pub keys: u64,
    pub counted_keys: u64,
    pub counted_bytes: u64,
}

/// Keyrings that hold those which a user namespace's users have by themselves.
#[derive(Default, Debug)]
pub(crate) struct Registers {
    pub users: Option<Serial>,
    pub persistent: Option<Serial>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub keys: BTreeMap<Serial, Key>,
    pub owners: BTreeMap<u32, Owner>,
    /// Of each user namespace; gone with it ([`crate::own::Registered`]).
    pub registers: BTreeMap<u32, Registers>,
    /// Keyrings by the user namespace and the name; those of one name in the order of their making.
    names: BTreeMap<(u32, Box<[u8]>, u64), Serial>,
    /// How many keys were made.
    made: u64,
    /// When keys expire; of a revoked key, when it was revoked.
    ends: BTreeSet<(i64, Serial)>,
    limits: Arc<Limits>,
}

/// What a new key is.
pub(crate) struct New<'a> {
    pub kind: Type,
    pub description: &'a [u8],
    pub uid: u32,
    pub gid: u32,
    pub permissions: u32,
    pub quota: Quota,
}

impl State {
    pub fn new(limits: Arc<Limits>) -> State {
        State {
            keys: BTreeMap::new(),
            owners: BTreeMap::new(),
            registers: BTreeMap::new(),
            names: BTreeMap::new(),
            made: 0,
            ends: BTreeSet::new(),
            limits,
        }
    }
    pub fn key(&self, k: Serial) -> Result<&Key> {
        self.keys.get(&k).ok_or(ENOKEY)
    }
    pub fn key_mut(&mut self, k: Serial) -> Result<&mut Key> {
        self.keys.get_mut(&k).ok_or(ENOKEY)
    }
    /// A number that no key has.
    fn new_serial(&self) -> Serial {
        loop {
            let mut b = [0; 4];
            hostcall::time::random(&mut b);
            let n = i32::from_le_bytes(b) & i32::MAX;
            if n >= 3 && !self.keys.contains_key(&n) {
                return n;
            }
        }
    }
    /// Makes a key without contents, which nobody holds yet: `EINVAL`, `EDQUOT`, `ENOMEM`.
    pub fn make(&mut self, cred: &Credentials, new: New<'_>) -> Result<Serial> {
        new.kind.vet(new.description)?;
        let quota = new.description.len() as u64 + 1;
        let memory = cred.kmem(KEY + 2 * new.description.len(), ENOMEM)?;
        let owner = self.owners.get(&new.uid).copied().unwrap_or_default();
        if new.quota == Quota::In && !self.has_room(new.uid, owner, 1, quota) {
            return Err(EDQUOT);
        }
        let serial = self.new_serial();
        let in_quota = new.quota != Quota::Not;
        let o = self.owners.entry(new.uid).or_default();
        o.keys += 1;
        if in_quota {
            o.counted_keys += 1;
            o.counted_bytes += quota;
        }
        let names_in = cred.user_ns.ino();
        if new.kind == Type::Keyring && new.description.first() != Some(&b'.') {
            let name = (names_in, new.description.into(), self.made);
            self.names.insert(name, serial);
        }
        let key = Key {
            kind: new.kind,
            description: new.description.into(),
            uid: new.uid,
            gid: new.gid,
            permissions: new.permissions,
            expiry: NEVER,
            revoked: false,
            invalidated: false,
            negative: None,
            is_users: false,
            in_quota,
            quota,
            data_quota: 0,
            content: match new.kind {
                Type::Keyring => Content::Links(BTreeMap::new()),
                _ => Content::Bytes(Vec::new()),
            },
            is_restricted: false,
            parents: BTreeSet::new(),
            holds: 0,
            names_in,
            made: self.made,
            memory,
        };
        self.made += 1;
        self.keys.insert(serial, key);
        Ok(serial)
    }
    /// Whether a user may have so much more.
    pub fn has_room(&self, uid: u32, owner: Owner, keys: u64, bytes: u64) -> bool {
        let (most_keys, most_bytes) = self.limits.of(uid);
        owner.counted_keys + keys <= most_keys && owner.counted_bytes + bytes <= most_bytes
    }
    /// Counts a key's contents as so much (`key_payload_reserve`): `EDQUOT`.
    pub fn reserve(&mut self, k: Serial, data: u64) -> Result<()> {
        let key = self.key(k)?;
        let (uid, counted, old) = (key.uid, key.in_quota, key.data_quota);
        if counted {
            let owner = self.owners.get(&uid).copied().unwrap_or_default();
            if data > old && !self.has_room(uid, owner, 0, data - old) {
                return Err(EDQUOT);
            }
            if let Some(o) = self.owners.get_mut(&uid) {
                o.counted_bytes = (o.counted_bytes + data).saturating_sub(old);
            }
        }
        let key = self.key_mut(k)?;
        key.data_quota = data;
        if counted {
            key.quota = (key.quota + data).saturating_sub(old);
        }
        Ok(())
    }
    /// Gives a key of bytes its contents.
    pub fn fill(&mut self, k: Serial, payload: Vec<u8>) -> Result<()> {
        let key = self.key_mut(k)?;
        let (was, quota) = (key.len(), key.kind.quota_of(payload.len()));
        if !key.charge_for(payload.len()) {
            return Err(ENOMEM);
        }
        if let Err(e) = self.reserve(k, quota) {
            let _ = self.key_mut(k)?.charge_for(was);
            return Err(e);
        }
        let key = self.key_mut(k)?;
        key.negative = None;
        key.content = Content::Bytes(payload);
        self.set_expiry(k, NEVER)
    }
    pub fn set_expiry(&mut self, k: Serial, expiry: i64) -> Result<()> {
        let key = self.key_mut(k)?;
        let old = std::mem::replace(&mut key.expiry, expiry);
        self.ends.remove(&(old, k));
        if expiry != NEVER {
            self.ends.insert((expiry, k));
        }
        Ok(())
    }
    /// What ended long ago goes out of all keyrings (`keyring_gc`).
    pub fn collect(&mut self, now: i64) {
        let before = now.saturating_sub(self.limits.gc_delay());
        while let Some((end, k)) = self.ends.first().copied()
            && end <= before
        {
            self.ends.remove(&(end, k));
            self.unlink_everywhere(k);
        }
    }

    /// Removes its links in all keyrings. It may be gone then.
    fn unlink_everywhere(&mut self, k: Serial) {
        let Ok(key) = self.key(k) else { return };
        let (index, parents) = (key.index(), key.parents.clone());
        for p in parents {
            self.cut(p, &index);
        }
    }
    /// Removes a link of a keyring's that there is.
    fn cut(&mut self, ring: Serial, index: &Index) {
        let Some(Content::Links(links)) = self.keys.get_mut(&ring).map(|k| &mut k.content) else {
            return;
        };
        let Some(child) = links.remove(index) else {
            return;
        };
        self.recount_links(ring);
        if let Some(c) = self.keys.get_mut(&child) {
            c.parents.remove(&ring);
        }
        self.let_go(child);
    }
    /// Less is never refused.
    fn recount_links(&mut self, ring: Serial) {
        let Some(key) = self.keys.get_mut(&ring) else {
            return;
        };
        let len = key.len();
        let _ = key.charge_for(len);
        let _ = self.reserve(ring, len as u64 * LINK_QUOTA);
    }
    /// A key goes that nobody holds; then what it held, and so on: one by one, since a chain of
    /// keyrings may be long.
    pub fn let_go(&mut self, k: Serial) {
        let mut look = vec![k];
        while let Some(k) = look.pop() {
            let is_held = |key: &Key| key.holds > 0 || !key.parents.is_empty();
            if self.keys.get(&k).is_none_or(is_held) {
                continue;
            }
            let Some(key) = self.keys.remove(&k) else {
                continue;
            };
            self.ends.remove(&(key.expiry, k));
            self.uncount(&key);
            self.unname(&key);
            if let Content::Links(links) = key.content {
                for child in links.into_values() {
                    if let Some(c) = self.keys.get_mut(&child) {
                        c.parents.remove(&k);
                    }
                    look.push(child);
                }
            }
        }
    }
    fn uncount(&mut self, key: &Key) {
        let Some(o) = self.owners.get_mut(&key.uid) else {
            return;
        };
        o.keys -= 1;
        if key.in_quota {
            o.counted_keys -= 1;
            o.counted_bytes = o.counted_bytes.saturating_sub(key.quota);
        }
        if o.keys == 0 {
            self.owners.remove(&key.uid);
        }
    }
    fn unname(&mut self, key: &Key) {
        if key.kind == Type::Keyring {
            let name = (key.names_in, key.description.clone(), key.made);
            self.names.remove(&name);
        }
    }
    /// The keyrings of this name in a user namespace, the oldest first.
    pub fn rings_named(&self, ns: u32, name: &[u8]) -> impl Iterator<Item = Serial> {
        let at = |n| (ns, Box::from(name), n);
        let all = self.names.range(at(0)..=at(u64::MAX));
        all.map(|(_, k)| *k)
    }
    pub fn hold(&mut self, k: Serial) {
        if let Some(key) = self.keys.get_mut(&k) {
            key.holds += 1;
        }
    }
    pub fn unhold(&mut self, k: Serial) {
        if let Some(key) = self.keys.get_mut(&k) {
            key.holds -= 1;
        }
        self.let_go(k);
    }
}

/// What a walk over keyrings has seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// At which depth.
    pub depths: BTreeMap<Serial, usize>,
    /// How many links to keyrings it followed.
    pub visits: usize,
}

/// Links.
impl State {
    /// Whether a keyring may have a link to a key like this one, and there is room for it
    /// (`__key_link_begin`, and the restriction).
    pub fn may_link(&self, ring: Serial, index: &Index) -> Result<()> {
        let key = self.key(ring)?;
        let links = key.links().ok_or(ENOTDIR)?;
        if key.revoked {
            return Err(EKEYREVOKED);
        }
        let owner = self.owners.get(&key.uid).copied().unwrap_or_default();
        if key.in_quota
            && !links.contains_key(index)
            && !self.has_room(key.uid, owner, 0, LINK_QUOTA)
        {
            return Err(EDQUOT);
        }
        if key.is_restricted {
            return Err(EPERM);
        }
        Ok(())
    }
    /// Links a key to a keyring, in place of one of the same type and description (`key_link`).
    pub fn link(&mut self, ring: Serial, k: Serial) -> Result<()> {
        let key = self.key(k)?;
        let index = key.index();
        let is_ring = key.kind == Type::Keyring;
        self.may_link(ring, &index)?;
        if is_ring {
            let mut seen = Seen::default();
            self.look_for_cycle(k, ring, 0, &mut seen)?;
        }
        let owner = self.key_mut(ring)?;
        let len = owner.len();
        let Content::Links(links) = &mut owner.content else {
            return Err(ENOTDIR);
        };
        let replaced = match links.insert(index.clone(), k) {
            Some(old) if old == k => return Ok(()),
            old => old,
        };
        if replaced.is_none() && !owner.charge_for(len + 1) {
            if let Content::Links(links) = &mut owner.content {
                links.remove(&index);
            }
            return Err(ENOMEM);
        }
        self.recount_links(ring);
        self.key_mut(k)?.parents.insert(ring);
        if let Some(old) = replaced {
            if let Some(o) = self.keys.get_mut(&old) {
                o.parents.remove(&ring);
            }
            self.let_go(old);
        }
        Ok(())
    }
    /// Whether `ring` is `from` or below it (`keyring_detect_cycle`): `EDEADLK`, or `ELOOP` where
    /// that is too deep to say, or there are too many. A keyring is looked at once for each depth
    /// at most.
    fn look_for_cycle(
        &self,
        from: Serial,
        ring: Serial,
        depth: usize,
        seen: &mut Seen,
    ) -> Result<()> {
        if from == ring {
            return Err(EDEADLK);
        }
        if seen.depths.get(&from).is_some_and(|d| *d >= depth) {
            return Ok(());
        }
        seen.depths.insert(from, depth);
        let key = self.key(from)?;
        if key.revoked || key.invalidated {
            return Ok(());
        }
        for below in self.rings_in(key) {
            if below == ring {
                return Err(EDEADLK);
            }
            seen.visits += 1;
            if depth >= DEPTH_MAX || seen.visits > VISITS_MAX {
                return Err(ELOOP);
            }
            self.look_for_cycle(below, ring, depth + 1, seen)?;
        }
        Ok(())
    }
    /// The keyrings that a keyring has links to.
    pub fn rings_in<'a>(&self, key: &'a Key) -> impl Iterator<Item = Serial> + use<'a> {
        let links = key.links().into_iter().flatten();
        let rings = links.take_while(|((kind, _), _)| *kind == Type::Keyring);
        rings.map(|(_, k)| *k)
    }
    /// Removes a link: `ENOENT` where there is none.
    pub fn unlink(&mut self, ring: Serial, k: Serial) -> Result<()> {
        let index = self.key(k)?.index();
        let links = self.key(ring)?.links().ok_or(ENOTDIR)?;
        if links.get(&index) != Some(&k) {
            return Err(ENOENT);
        }
        self.cut(ring, &index);
        Ok(())
    }
    /// Removes all links of a keyring.
    pub fn clear(&mut self, ring: Serial) -> Result<()> {
        let links = self.key(ring)?.links().ok_or(ENOTDIR)?;
        let all: Vec<Index> = links.keys().cloned().collect();
        for index in all {
            self.cut(ring, &index);
        }
        Ok(())
    }
    /// It is of no more use, and has no contents (`key_revoke`).
    pub fn revoke(&mut self, k: Serial, now: i64) -> Result<()> {
        let key = self.key_mut(k)?;
        if std::mem::replace(&mut key.revoked, true) {
            return Ok(());
        }
        let expiry = key.expiry.min(now);
        match &mut key.content {
            Content::Bytes(b) => {
                *b = Vec::new();
                let _ = key.charge_for(0);
                self.reserve(k, 0)?;
            }
            Content::Links(_) => self.clear(k)?,
        }
        self.set_expiry(k, expiry)
    }
    /// It vanishes from all keyrings (`key_invalidate`).
    pub fn invalidate(&mut self, k: Serial) -> Result<()> {
        self.key_mut(k)?.invalidated = true;
        self.unlink_everywhere(k);
        Ok(())
    }
    /// Makes a key that says that there is none.
    pub fn negate(&mut self, k: Serial, error: Errno, until: i64) -> Result<()> {
        self.key_mut(k)?.negative = Some(error);
        self.set_expiry(k, until)
    }
    /// Gives a key to another user and group: `EDQUOT`.
    pub fn chown(&mut self, k: Serial, uid: u32, gid: u32) -> Result<()> {
        let key = self.key(k)?;
        let (old, counted, quota) = (key.uid, key.in_quota, key.quota);
        if uid != old {
            let to = self.owners.get(&uid).copied().unwrap_or_default();
            if counted && !self.has_room(uid, to, 1, quota) {
                return Err(EDQUOT);
            }
            self.set_owner(k, uid)?;
        }
        self.key_mut(k)?.gid = gid;
        Ok(())
    }
    /// The same of the user, whether there is room or not.
    pub fn set_owner(&mut self, k: Serial, uid: u32) -> Result<()> {
        let mut key = self.keys.remove(&k).ok_or(EINVAL)?;
        self.uncount(&key);
        key.uid = uid;
        let o = self.owners.entry(uid).or_default();
        o.keys += 1;
        if key.in_quota {
            o.counted_keys += 1;
            o.counted_bytes += key.quota;
        }
        self.keys.insert(k, key);
        Ok(())
    }
}
