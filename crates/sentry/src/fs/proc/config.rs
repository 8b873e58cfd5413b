//! `/proc/config.gz`: what this kernel has, by the names of Linux's options. Programs read it to
//! learn whether to expect a feature. An option that is not here is not built in.

use crate::ns::uts::RELEASE;
use std::fmt::Write as _;
use std::sync::OnceLock;

/// Options that are built in, without their prefix.
const BUILT_IN: &[&str] = &[
    "64BIT",
    "X86",
    "X86_64",
    "MMU",
    "SMP",
    "NUMA",
    "HZ_250",
    "HIGH_RES_TIMERS",
    "POSIX_TIMERS",
    "MULTIUSER",
    "IKCONFIG",
    "IKCONFIG_PROC",
    // Processes.
    "SYSVIPC",
    "SYSVIPC_SYSCTL",
    "POSIX_MQUEUE",
    "POSIX_MQUEUE_SYSCTL",
    "CROSS_MEMORY_ATTACH",
    "CHECKPOINT_RESTORE",
    "KCMP",
    "PROC_CHILDREN",
    "PSI",
    "BINFMT_ELF",
    "BINFMT_SCRIPT",
    "NAMESPACES",
    "UTS_NS",
    "TIME_NS",
    "IPC_NS",
    "USER_NS",
    "PID_NS",
    "NET_NS",
    "CGROUPS",
    "CGROUP_PIDS",
    "MEMCG",
    "SECCOMP",
    "SECCOMP_FILTER",
    "KEYS",
    "BIG_KEYS",
    "PERSISTENT_KEYRINGS",
    "SECURITY",
    "SECURITY_LANDLOCK",
    // Memory.
    "SWAP",
    "SHMEM",
    "ADVISE_SYSCALLS",
    "MEMBARRIER",
    "HAVE_ARCH_MMAP_RND_BITS",
    "MEMFD_CREATE",
    "SECRETMEM",
    "PROC_PAGE_MONITOR",
    // Events.
    "FUTEX",
    "FUTEX_PI",
    "EPOLL",
    "SIGNALFD",
    "TIMERFD",
    "EVENTFD",
    "AIO",
    "IO_URING",
    // Files.
    "FILE_LOCKING",
    "FHANDLE",
    "DNOTIFY",
    "INOTIFY_USER",
    "FANOTIFY",
    "FANOTIFY_ACCESS_PERMISSIONS",
    "QUOTA",
    "QUOTACTL",
    "PROC_FS",
    "PROC_SYSCTL",
    "SYSFS",
    "SYSFS_SYSCALL",
    "TMPFS",
    "TMPFS_POSIX_ACL",
    "TMPFS_XATTR",
    "OVERLAY_FS",
    "UNIX98_PTYS",
    // Networks.
    "NET",
    "UNIX",
    "AF_UNIX_OOB",
    "UNIX_DIAG",
    "PACKET",
    "INET",
    "INET_DIAG",
    "INET_TCP_DIAG",
    "INET_UDP_DIAG",
    "IPV6",
    "IP_MULTICAST",
    "NETFILTER",
    "NETFILTER_XTABLES",
    "NF_CONNTRACK",
    "NF_NAT",
    "NF_TABLES",
    "NF_TABLES_INET",
    "NF_TABLES_IPV4",
    "NF_TABLES_IPV6",
    "IP_NF_IPTABLES",
    "IP_NF_FILTER",
    "IP_NF_NAT",
    "IP6_NF_IPTABLES",
    "BRIDGE",
    "VETH",
    "TUN",
];

fn text() -> String {
    let mut s = format!("#\n# Linux/x86 {RELEASE} Kernel Configuration\n#\n");
    for name in BUILT_IN {
        let _ = writeln!(s, "CONFIG_{name}=y");
    }
    s.push_str("CONFIG_HZ=250\nCONFIG_DEFAULT_HOSTNAME=\"(none)\"\n# CONFIG_MODULES is not set\n");
    s
}

/// The file: one block that is stored as it is (RFC 1951, 1952).
pub(super) fn compressed() -> Vec<u8> {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let text = text();
        let len = text.len() as u16;
        // Deflate, no name, no time; the last block, stored.
        let mut v = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
        v.extend(len.to_le_bytes());
        v.extend((!len).to_le_bytes());
        v.extend(text.as_bytes());
        v.extend(crc32(text.as_bytes()).to_le_bytes());
        v.extend((text.len() as u32).to_le_bytes());
        v
    };
    FILE.get_or_init(make).clone()
}

/// That of gzip.
fn crc32(data: &[u8]) -> u32 {
    let byte = |crc: u32, b: &u8| {
        (0..8).fold(crc ^ u32::from(*b), |c, _| {
            (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg())
        })
    };
    !data.iter().fold(!0, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_and_length() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        // One block holds it.
        assert!(text().len() <= usize::from(u16::MAX));
        let file = compressed();
        assert_eq!(file.len(), text().len() + 23);
    }
}
