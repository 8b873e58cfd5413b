//! Credentials (`credentials(7)`, `capabilities(7)`).

use crate::landlock::Domain;
use crate::ucounts::{self, Charge, Kind, Ucounts};
use crate::userns::UserNs;
use abi::Result;
use abi::errno::ENFILE;
use std::sync::Arc;

bitflags::bitflags! {
    /// Capabilities, bit N for capability number N (`include/uapi/linux/capability.h`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Caps: u64 {
        const CHOWN = 1 << 0;
        const DAC_OVERRIDE = 1 << 1;
        const DAC_READ_SEARCH = 1 << 2;
        const FOWNER = 1 << 3;
        const FSETID = 1 << 4;
        const KILL = 1 << 5;
        const SETGID = 1 << 6;
        const SETUID = 1 << 7;
        const SETPCAP = 1 << 8;
        const LINUX_IMMUTABLE = 1 << 9;
        const NET_BIND_SERVICE = 1 << 10;
        const NET_BROADCAST = 1 << 11;
        const NET_ADMIN = 1 << 12;
        const NET_RAW = 1 << 13;
        const IPC_LOCK = 1 << 14;
        const IPC_OWNER = 1 << 15;
        const SYS_MODULE = 1 << 16;
        const SYS_RAWIO = 1 << 17;
        const SYS_CHROOT = 1 << 18;
        const SYS_PTRACE = 1 << 19;
        const SYS_PACCT = 1 << 20;
        const SYS_ADMIN = 1 << 21;
        const SYS_BOOT = 1 << 22;
        const SYS_NICE = 1 << 23;
        const SYS_RESOURCE = 1 << 24;
        const SYS_TIME = 1 << 25;
        const SYS_TTY_CONFIG = 1 << 26;
        const MKNOD = 1 << 27;
        const LEASE = 1 << 28;
        const AUDIT_WRITE = 1 << 29;
        const AUDIT_CONTROL = 1 << 30;
        const SETFCAP = 1 << 31;
        const SYSLOG = 1 << 34;
        const BPF = 1 << 39;
        const CHECKPOINT_RESTORE = 1 << 40;
    }
}

impl Caps {
    /// All that Linux 6.18 knows: 0..=40.
    pub const FULL: Caps = Caps::from_bits_retain((1 << 41) - 1);
}

/// A task's credentials: immutable, replaced whole, as the kernel's `struct cred`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    pub uid: u32,
    pub euid: u32,
    pub suid: u32,
    pub fsuid: u32,
    pub gid: u32,
    pub egid: u32,
    pub sgid: u32,
    pub fsgid: u32,
    /// Supplementary groups, sorted.
    pub groups: Vec<u32>,
    pub permitted: Caps,
    pub effective: Caps,
    pub inheritable: Caps,
    pub bounding: Caps,
    pub ambient: Caps,
    /// `prctl(PR_SET_SECUREBITS)`.
    pub securebits: u32,
    /// Where the capabilities hold. The ids are the initial namespace's, see [`crate::userns`].
    pub user_ns: UserNs,
    /// What they are confined to.
    pub landlock: Option<Domain>,
    /// What their user holds.
    pub counts: ucounts::Cell,
}

impl Credentials {
    /// A user with these ids everywhere, and with all capabilities if it is root.
    #[must_use]
    pub fn user(uid: u32, gid: u32, groups: Vec<u32>) -> Credentials {
        let caps = if uid == 0 { Caps::FULL } else { Caps::empty() };
        let mut groups = groups;
        groups.sort_unstable();
        Credentials {
            uid,
            euid: uid,
            suid: uid,
            fsuid: uid,
            gid,
            egid: gid,
            sgid: gid,
            fsgid: gid,
            groups,
            permitted: caps,
            effective: caps,
            inheritable: Caps::empty(),
            bounding: Caps::FULL,
            ambient: Caps::empty(),
            securebits: 0,
            user_ns: UserNs::default(),
            landlock: None,
            counts: Default::default(),
        }
    }
    /// Root with every capability.
    #[must_use]
    pub fn root() -> Credentials {
        Self::user(0, 0, vec![0])
    }
    /// Whether a capability holds over what belongs to no namespace below the initial one
    /// (`capable`).
    #[must_use]
    pub fn has(&self, c: Caps) -> bool {
        self.user_ns.is_initial() && self.effective.contains(c)
    }
    /// The same without a domain of Landlock's.
    #[must_use]
    pub fn unconfined(self: &Arc<Self>) -> Arc<Credentials> {
        match self.landlock {
            None => self.clone(),
            Some(_) => Arc::new(Credentials {
                landlock: None,
                ..Credentials::clone(self)
            }),
        }
    }
    /// Whether `gid` is the file-system group or a supplementary one.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.binary_search(&gid).is_ok()
    }
}

/// How far the capabilities reach.
impl Credentials {
    /// Whether a capability reaches into `ns` (`cap_capable`): held in it or above it; the maker of
    /// a namespace has all in it.
    #[must_use]
    pub fn has_in(&self, ns: &UserNs, cap: Caps) -> bool {
        let mut at = ns.clone();
        loop {
            if at == self.user_ns {
                return self.effective.contains(cap);
            }
            if at.level() <= self.user_ns.level() {
                return false;
            }
            let Some(parent) = at.parent() else {
                return false;
            };
            if parent == self.user_ns && at.owner() == self.euid {
                return true;
            }
            at = parent;
        }
    }
    /// Whether a capability holds in the own namespace (`ns_capable(current_user_ns())`).
    #[must_use]
    pub fn has_own(&self, cap: Caps) -> bool {
        self.effective.contains(cap)
    }
    /// Whether a capability holds over a file of this owner (`inode_owner_or_capable`).
    #[must_use]
    pub fn has_over_user(&self, cap: Caps, uid: u32) -> bool {
        self.effective.contains(cap)
            && (self.user_ns.is_initial() || self.user_ns.uid_number(uid).is_some())
    }
    /// Whether a capability holds over a file of these owners: both have numbers here
    /// (`capable_wrt_inode_uidgid`).
    #[must_use]
    pub fn has_over(&self, cap: Caps, uid: u32, gid: u32) -> bool {
        self.effective.contains(cap)
            && (self.user_ns.is_initial()
                || self.user_ns.uid_number(uid).is_some() && self.user_ns.gid_number(gid).is_some())
    }
}

/// What their user holds, and may hold.
impl Credentials {
    /// What the real user of these credentials holds. Credentials that are in use do not change.
    pub fn ucounts(&self) -> &Arc<Ucounts> {
        self.counts.get_or_init(|| self.user_ns.ucounts(self.uid))
    }
    /// Whether limits of users do not hold for it: root, or who may pass limits, of the initial
    /// namespace.
    #[must_use]
    pub fn passes_limits(&self) -> bool {
        self.has(Caps::SYS_RESOURCE) || self.has(Caps::SYS_ADMIN)
    }
    /// `e` where their user has more of the kernel's memory than it may.
    pub fn may_take_more(&self, e: abi::Errno) -> Result<()> {
        if self.ucounts().is_over(Kind::Kmem) && !self.passes_limits() {
            return Err(e);
        }
        Ok(())
    }
    /// Whether they may hold as many of the host's descriptors as there are.
    #[must_use]
    pub fn may_hold_all_host_files(&self) -> bool {
        self.ucounts().is_root() || self.passes_limits()
    }
    /// `ENFILE` where their user has as many of the host's descriptors as it may.
    pub fn may_hold_host_file(&self) -> Result<()> {
        if self.ucounts().has_room(Kind::HostFiles, 1) || self.may_hold_all_host_files() {
            return Ok(());
        }
        Err(ENFILE)
    }
    /// For something of theirs that keeps a file in use (a mount, a watch, an open file): what it
    /// counts for where another is `charged` for the file's descriptor
    /// ([`crate::Inode::host_user`]). `ENFILE` as above.
    pub fn hold(&self, charged: Option<Arc<Ucounts>>) -> Result<Option<Charge>> {
        let charge = self.ucounts().hold(charged);
        if charge.is_some() && self.ucounts().is_over(Kind::HostFiles) {
            self.may_hold_host_file()?;
        }
        Ok(charge)
    }
    /// Charges bytes of the kernel's memory; `e` where the user has no more. A user that passes
    /// limits is counted only.
    pub fn kmem(&self, bytes: usize, e: abi::Errno) -> Result<Charge> {
        let u = self.ucounts();
        if self.passes_limits() {
            return Ok(u.force(Kind::Kmem, bytes as u64));
        }
        u.charge(Kind::Kmem, bytes as u64, u64::MAX).ok_or(e)
    }
}
