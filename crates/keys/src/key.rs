//! A key: its type, its owner, what it holds.

use abi::errno::{EINVAL, ENODEV, EPERM};
use abi::{Errno, Result};
use std::collections::{BTreeMap, BTreeSet};
use vfs::ucounts::Charge;
use vfs::userns::{INVALID, OVERFLOW, UserNs};

/// A key's number.
pub type Serial = i32;

/// What `expiry` says of a key that does not expire.
pub(crate) const NEVER: i64 = i64::MAX;
/// What a link counts in the quota of its keyring's owner (`KEYQUOTA_LINK_BYTES`).
pub(crate) const LINK_QUOTA: u64 = 4;

/// The types of keys that there are. Keyrings are the first, so that they are together among the
/// links of a keyring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Type {
    Keyring,
    User,
    Logon,
    BigKey,
}

impl Type {
    const ALL: [Type; 4] = [Type::Keyring, Type::User, Type::Logon, Type::BigKey];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Type::Keyring => "keyring",
            Type::User => "user",
            Type::Logon => "logon",
            Type::BigKey => "big_key",
        }
    }
    /// The type of this name; `ENODEV`.
    pub fn named(name: &[u8]) -> Result<Type> {
        let is_it = |t: &Type| t.name().as_bytes() == name;
        Type::ALL.into_iter().find(is_it).ok_or(ENODEV)
    }
    pub(crate) fn is_readable(self) -> bool {
        self != Type::Logon
    }
    pub(crate) fn is_updatable(self) -> bool {
        self != Type::Keyring
    }
    /// Whether a key can have this description.
    pub(crate) fn vet(self, description: &[u8]) -> Result<()> {
        let colon = description.iter().position(|b| *b == b':');
        match (self, colon) {
            // A service, and a name there (`logon_vet_description`).
            (Type::Logon, None | Some(0)) => Err(EINVAL),
            _ if description.is_empty() => Err(EINVAL),
            _ => Ok(()),
        }
    }
    /// Whether a key can hold so many bytes.
    pub(crate) fn check_payload(self, len: usize) -> Result<()> {
        let good = match self {
            Type::Keyring => len == 0,
            Type::User | Type::Logon => (1..=32_767).contains(&len),
            Type::BigKey => (1..=1 << 20).contains(&len),
        };
        if good { Ok(()) } else { Err(EINVAL) }
    }
    /// What so many bytes count in the owner's quota.
    pub(crate) fn quota_of(self, len: usize) -> u64 {
        match self {
            Type::BigKey => 16,
            _ => len as u64,
        }
    }
    /// The permissions of a new key (`KEY_PERM_UNDEF`).
    pub(crate) fn permissions(self) -> u32 {
        let mut own = VIEW | SEARCH | LINK | SETATTR | WRITE;
        if self.is_readable() {
            own |= READ;
        }
        own << POSSESSOR | VIEW << USER
    }
    /// A name of a type as add_key(2) may say it.
    pub fn check_name(name: &[u8]) -> Result<()> {
        match name.first() {
            None => Err(EINVAL),
            Some(b'.') => Err(EPERM),
            Some(_) => Ok(()),
        }
    }
}

// Permissions, in six bits for each kind of caller.
pub(crate) const VIEW: u32 = 1;
pub(crate) const READ: u32 = 2;
pub(crate) const WRITE: u32 = 4;
pub(crate) const SEARCH: u32 = 8;
pub(crate) const LINK: u32 = 16;
pub(crate) const SETATTR: u32 = 32;
const EACH: u32 = 63;
// Where they stand.
pub(crate) const POSSESSOR: u32 = 24;
pub(crate) const USER: u32 = 16;
pub(crate) const GROUP: u32 = 8;
/// All that there are.
pub(crate) const ALL: u32 = EACH << POSSESSOR | EACH << USER | EACH << GROUP | EACH;
/// The possessor's.
pub(crate) const POSSESSOR_ALL: u32 = EACH << POSSESSOR;

/// By what a keyring finds a key.
pub(crate) type Index = (Type, Box<[u8]>);

#[derive(Debug)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    Links(BTreeMap<Index, Serial>),
}

/// Whether it counts in its owner's quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quota {
    In,
    /// It counts, but is made even where there is no room.
    Overrun,
    Not,
}

#[derive(Debug)]
pub(crate) struct Key {
    pub kind: Type,
    pub description: Box<[u8]>,
    pub uid: u32,
    /// `userns::INVALID`: no group.
    pub gid: u32,
    pub permissions: u32,
    /// Seconds of the real time.
    pub expiry: i64,
    pub revoked: bool,
    pub invalidated: bool,
    /// It says that there is no such key: by this error.
    pub negative: Option<Errno>,
    /// One of those that a user has by himself (`KEY_FLAG_UID_KEYRING`).
    pub is_users: bool,
    pub in_quota: bool,
    /// What it counts in the quota, and what of that is its contents.
    pub quota: u64,
    pub data_quota: u64,
    pub content: Content,
    /// It takes no more links (`KEYCTL_RESTRICT_KEYRING`).
    pub is_restricted: bool,
    /// The keyrings that have a link to it.
    pub parents: BTreeSet<Serial>,
    /// How often it is held otherwise: by tasks, and as a register.
    pub holds: usize,
    /// The user namespace in which its name can be joined.
    pub names_in: u32,
    /// How many keys were made before it.
    pub made: u64,
    /// What it takes, as its maker's.
    pub memory: Charge,
}

/// What a key takes of the kernel's memory beyond its description and contents, and a link, bytes.
pub(crate) const KEY: usize = 512;
const LINK_BYTES: usize = 128;

impl Key {
    pub fn links(&self) -> Option<&BTreeMap<Index, Serial>> {
        match &self.content {
            Content::Links(l) => Some(l),
            Content::Bytes(_) => None,
        }
    }
    /// Its group's number in a user namespace.
    pub fn gid_shown(&self, ns: &UserNs) -> u32 {
        match self.gid {
            INVALID => OVERFLOW,
            gid => ns.gid_shown(gid),
        }
    }
    pub fn index(&self) -> Index {
        (self.kind, self.description.clone())
    }
    pub fn has_expired(&self, now: i64) -> bool {
        now >= self.expiry
    }
    /// How many bytes it holds, or keys.
    pub fn len(&self) -> usize {
        match &self.content {
            Content::Bytes(b) => b.len(),
            Content::Links(l) => l.len(),
        }
    }
    /// Charges what it takes with contents of so many bytes or keys; whether there is room.
    #[must_use]
    pub fn charge_for(&mut self, len: usize) -> bool {
        let each = match self.content {
            Content::Bytes(_) => 1,
            Content::Links(_) => LINK_BYTES,
        };
        let bytes = KEY + 2 * self.description.len() + len * each;
        self.memory.resize(bytes as u64)
    }
}
