//! Rights, and what of them is not granted yet.

use super::{Domain, FileKey, MAX_LAYERS};

bitflags::bitflags! {
    /// `LANDLOCK_ACCESS_FS_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct FsAccess: u16 {
        const EXECUTE = 1 << 0;
        const WRITE_FILE = 1 << 1;
        const READ_FILE = 1 << 2;
        const READ_DIR = 1 << 3;
        const REMOVE_DIR = 1 << 4;
        const REMOVE_FILE = 1 << 5;
        const MAKE_CHAR = 1 << 6;
        const MAKE_DIR = 1 << 7;
        const MAKE_REG = 1 << 8;
        const MAKE_SOCK = 1 << 9;
        const MAKE_FIFO = 1 << 10;
        const MAKE_BLOCK = 1 << 11;
        const MAKE_SYM = 1 << 12;
        const REFER = 1 << 13;
        const TRUNCATE = 1 << 14;
        const IOCTL_DEV = 1 << 15;
    }
}

impl FsAccess {
    /// What a rule on anything but a directory may grant.
    pub const OF_FILES: FsAccess = FsAccess::EXECUTE
        .union(FsAccess::WRITE_FILE)
        .union(FsAccess::READ_FILE)
        .union(FsAccess::TRUNCATE)
        .union(FsAccess::IOCTL_DEV);
}

bitflags::bitflags! {
    /// `LANDLOCK_ACCESS_NET_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct NetAccess: u16 {
        const BIND_TCP = 1 << 0;
        const CONNECT_TCP = 1 << 1;
    }
}

bitflags::bitflags! {
    /// `LANDLOCK_SCOPE_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Scope: u16 {
        const ABSTRACT_UNIX_SOCKET = 1 << 0;
        const SIGNAL = 1 << 1;
    }
}

/// What a ruleset is about: what its rules do not grant is denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handled {
    pub fs: FsAccess,
    pub net: NetAccess,
    pub scoped: Scope,
}

impl Handled {
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Handled::default()
    }
    pub(super) fn or(self, o: Handled) -> Handled {
        Handled {
            fs: self.fs | o.fs,
            net: self.net | o.net,
            scoped: self.scoped | o.scoped,
        }
    }
}

bitflags::bitflags! {
    /// What an open file was denied when it was opened, whoever has it now.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Denied: u8 {
        const TRUNCATE = 1;
        /// Commands of a device's own.
        const IOCTL = 2;
    }
}

/// What each layer of a domain has not granted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing([FsAccess; MAX_LAYERS]);

impl Missing {
    /// All of `wanted` that the domain denies where no rule grants it; `REFER` by every layer
    /// (`_LANDLOCK_ACCESS_FS_INITIALLY_DENIED`).
    pub fn new(domain: &Domain, wanted: FsAccess) -> Missing {
        let mut by = [FsAccess::empty(); MAX_LAYERS];
        for l in domain.layers() {
            by[l.depth() - 1] = (l.handled().fs | FsAccess::REFER) & wanted;
        }
        Missing(by)
    }
    /// Takes away what the rules for one file grant.
    pub fn grant(&mut self, domain: &Domain, at: FileKey) {
        for l in domain.layers() {
            let left = &mut self.0[l.depth() - 1];
            if !left.is_empty() {
                *left -= l.0.rules.of_file(at);
            }
        }
    }
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
    /// What is denied by any layer.
    pub fn all(&self) -> FsAccess {
        let all = self.0.iter();
        all.fold(FsAccess::empty(), |sum, by| sum | *by)
    }
    /// Forgets all but `wanted`.
    pub fn keep(&mut self, wanted: FsAccess) {
        self.0.iter_mut().for_each(|by| *by &= wanted);
    }
    /// Whether each layer denies, of `these` rights, all that it denies by `place` and `own` both.
    pub fn covers(&self, place: &Missing, own: &Missing, these: FsAccess) -> bool {
        let layers = self.0.iter().zip(&place.0).zip(&own.0);
        layers
            .into_iter()
            .all(|((here, there), own)| here.contains(*there & *own & these))
    }
}
