//! Credentials (`credentials(7)`, `capabilities(7)`).

use crate::userns::UserNs;

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
    /// What their user holds.
    pub counts: crate::ucounts::Cell,
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
            counts: Default::default(),
        }
    }
    /// Root with every capability.
    #[must_use]
    pub fn root() -> Credentials {
        Self::user(0, 0, vec![0])
    }
    /// Whether a capability holds over what belongs to no namespace below the initial one (`capable`).
    #[must_use]
    pub fn has(&self, c: Caps) -> bool {
        self.user_ns.is_initial() && self.effective.contains(c)
    }
    /// Whether `gid` is the file-system group or a supplementary one.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.binary_search(&gid).is_ok()
    }
}
