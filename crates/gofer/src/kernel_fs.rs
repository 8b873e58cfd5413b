//! File systems by which the host's kernel tells of itself and is told what to do: procfs, sysfs,
//! cgroups, debugfs.
//!
//! # Invariants
//!
//! - What a file system is follows from a descriptor (`fstatfs(2)`), never from a path: such a
//!   file system may be mounted, or bound, anywhere beneath a root.
//! - Nothing in one of them is writable, whatever the root is.
//! - A file is opened only if everybody on the host may read it: the Gofer's rights count for
//!   nothing here.
//! - The top directory of a procfs has the names in [`SHOWN`] only. No process of the host is
//!   among them: `self` would be the Gofer. Other files of a procfs are reached from its top only;
//!   what is bound elsewhere is closed.
//! - Nothing is opened in those that only debug, trace, or configure ([`Kind::Closed`]).

use abi::Result;
use hostcall::{HostFd, file, path};

/// What the files of a file system are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Data.
    Plain,
    /// The top directory of a procfs.
    ProcTop,
    /// What lies below it.
    Proc,
    /// sysfs, cgroups and the like: numbers to read, and to steer the kernel by.
    Report,
    /// Attributes are all that can be seen.
    Closed,
}

const PROC: i64 = 0x9fa0;
/// The inode number of a procfs's top (`PROC_ROOT_INO`).
const PROC_TOP: u64 = 1;

/// The file systems that are not data: type (`linux/magic.h`), name, and what their files are.
const KINDS: [(i64, &str, Kind); 24] = [
    (PROC, "procfs", Kind::Proc),
    (0x6265_6572, "sysfs", Kind::Report),
    (0x0027_e0eb, "cgroup", Kind::Report),
    (0x6367_7270, "cgroup2", Kind::Report),
    (0x0765_5821, "resctrl", Kind::Report),
    (0x6573_5543, "fusectl", Kind::Closed),
    (0x6462_6720, "debugfs", Kind::Closed),
    (0x7472_6163, "tracefs", Kind::Closed),
    (0x7363_6673, "securityfs", Kind::Closed),
    (0xcafe_4a11, "bpf", Kind::Closed),
    (0x6265_6570, "configfs", Kind::Closed),
    (0xf97c_ff8c, "selinuxfs", Kind::Closed),
    (0x4341_5d53, "smackfs", Kind::Closed),
    (0xde5e_81e4, "efivarfs", Kind::Closed),
    (0x6165_676c, "pstore", Kind::Closed),
    (0x6e73_6673, "nsfs", Kind::Closed),
    (0x5049_4446, "pidfs", Kind::Closed),
    (0x4249_4e4d, "binfmt_misc", Kind::Closed),
    (0x1980_0202, "mqueue", Kind::Closed),
    (0x0000_1cd1, "devpts", Kind::Closed),
    (0x6759_6969, "rpc_pipefs", Kind::Closed),
    (0x6e66_7364, "nfsd", Kind::Closed),
    (0xabba_1974, "xenfs", Kind::Closed),
    (0x0000_9fa2, "usbfs", Kind::Closed),
];

/// What is shown of a procfs: what monitors read, and what says nothing of processes, keys or
/// addresses.
const SHOWN: [&[u8]; 32] = [
    b"buddyinfo",
    b"cgroups",
    b"cmdline",
    b"config.gz",
    b"consoles",
    b"cpuinfo",
    b"crypto",
    b"devices",
    b"diskstats",
    b"dma",
    b"execdomains",
    b"fb",
    b"filesystems",
    b"interrupts",
    b"loadavg",
    b"mdstat",
    b"meminfo",
    b"misc",
    NET,
    b"pagetypeinfo",
    b"partitions",
    b"pressure",
    b"schedstat",
    b"slabinfo",
    b"softirqs",
    b"spl",
    b"stat",
    b"swaps",
    b"sys",
    b"uptime",
    b"version",
    b"vmstat",
];

/// A link to `self/net` on Linux. Shown as the directory of a network namespace that was asked
/// for, or not at all.
pub const NET: &[u8] = b"net";

/// Whether the top directory of a procfs has this name here.
#[must_use]
pub fn is_shown(name: &[u8]) -> bool {
    SHOWN.contains(&name)
}

/// What a file is, and its file system's name if that is one of the kernel's.
pub fn of(fd: &HostFd) -> Result<(Kind, Option<&'static str>)> {
    // The field is signed, the numbers are 32 bits wide.
    let magic = path::fstatfs(fd.raw())?.f_type & 0xffff_ffff;
    Ok(match KINDS.iter().find(|k| k.0 == magic) {
        Some((PROC, name, _)) if file::fstat(fd.raw())?.st_ino == PROC_TOP => {
            (Kind::ProcTop, Some(*name))
        }
        Some((_, name, kind)) => (*kind, Some(*name)),
        None => (Kind::Plain, None),
    })
}

/// The file system that a file lies on, beside its directory's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    Same,
    Other,
}

impl Kind {
    /// Whether files can be changed at all.
    #[must_use]
    pub fn is_plain(self) -> bool {
        self == Kind::Plain
    }
    /// Whether a file of this mode may be opened for reading, or a directory be searched.
    #[must_use]
    pub fn opens(self, mode: u32) -> bool {
        let needed = if mode & libc::S_IFMT == libc::S_IFDIR {
            0o005
        } else {
            0o004
        };
        match self {
            Kind::Plain => true,
            Kind::Closed => false,
            Kind::ProcTop | Kind::Proc | Kind::Report => mode & needed == needed,
        }
    }
    /// What a file is that was found in a directory of this kind.
    pub fn below(self, fd: &HostFd, device: Device) -> Result<Kind> {
        if device == Device::Same && matches!(self, Kind::ProcTop | Kind::Proc) {
            // A procfs, or a process's directory, may be bound within itself.
            return Ok(match of(fd)?.0 {
                Kind::ProcTop => Kind::Closed,
                _ => Kind::Proc,
            });
        }
        if device == Device::Same {
            return Ok(self);
        }
        Ok(match of(fd)?.0 {
            // Bound there: of a process, for all that is known.
            Kind::Proc => Kind::Closed,
            kind => kind,
        })
    }
}
