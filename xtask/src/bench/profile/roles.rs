//! Whose time it was: processes by what they ran, and the host's kernel by what it did.
//!
//! Cloister's processes all come from one binary and have its name, but for the Sentry's threads.
//! So a process is told by what its samples show: see [`Marks::role`].

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// A stub process: the program's code, and the stub's.
    Application,
    Sentry,
    Gofer,
    /// The command, the monitor, the zygote: they start the others, and end with them.
    Starter,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Application, Role::Sentry, Role::Gofer, Role::Starter];

    pub fn name(self) -> &'static str {
        match self {
            Role::Application => "application",
            Role::Sentry => "Sentry",
            Role::Gofer => "Gofer",
            Role::Starter => "command, start and end",
        }
    }
}

/// What a process was seen with.
#[derive(Default, Clone, Copy)]
pub struct Marks {
    named: bool,
    /// A thread of a name that only the Sentry's have.
    sentry: bool,
    gofer: bool,
    /// Code of the stub, or a call of its own that the host handed over.
    stub: bool,
    /// Functions of the binary.
    binary: bool,
    /// A start of another program, which stub processes never make.
    exec: bool,
}

/// The Sentry's threads (`sentry::task`, `platform::recycle`, `mm`).
const THREADS: &[&str] = &["task", "reaper", "huge-pages"];

impl Marks {
    pub fn comm(&mut self, comm: &str) {
        self.named |= comm == "cloister";
        self.sentry |= THREADS.contains(&comm);
    }

    pub fn frame(&mut self, name: &str, dso: &str) {
        self.stub |= dso.contains("cloister-stub") || name.starts_with("seccomp_do_user_notif");
        self.gofer |= name.starts_with("gofer::server");
        self.binary |= dso.ends_with("/cloister");
        self.exec |= name == "bprm_execve" || name.starts_with("do_execveat");
    }

    /// None: not of the sandbox. A stub process begins as a copy of the zygote, so what it became
    /// counts first; one that was sampled in nothing but the host's kernel is one, too: the others
    /// all have code of their own.
    pub fn role(self) -> Option<Role> {
        match self {
            Marks { sentry: true, .. } => Some(Role::Sentry),
            Marks { named: false, .. } => None,
            Marks { gofer: true, .. } => Some(Role::Gofer),
            Marks { stub: true, .. } => Some(Role::Application),
            Marks { binary: true, .. } | Marks { exec: true, .. } => Some(Role::Starter),
            _ => Some(Role::Application),
        }
    }
}

/// What the host's kernel did: the first of these that has a function of the stack. Beginnings of
/// names.
const KINDS: &[(&str, &[&str])] = &[
    (
        "sleeping and waking",
        &[
            "schedule",
            "__schedule",
            "try_to_wake_up",
            "wake_up",
            "__wake_up",
            "finish_task_switch",
            "ttwu_",
            "default_wake_function",
        ],
    ),
    ("page faults", &["exc_page_fault", "asm_exc_page_fault"]),
    (
        "making and ending processes",
        &[
            "kernel_clone",
            "do_exit",
            "do_group_exit",
            "do_execveat",
            "bprm_execve",
            "do_wait",
            "ret_from_fork",
        ],
    ),
    (
        "memory calls",
        &[
            "__x64_sys_mmap",
            "ksys_mmap",
            "__x64_sys_munmap",
            "__vm_munmap",
            "__x64_sys_mprotect",
            "do_mprotect",
            "__x64_sys_madvise",
            "do_madvise",
            "__x64_sys_mremap",
            "__x64_sys_fallocate",
            "vfs_fallocate",
            "__x64_sys_process_madvise",
        ],
    ),
    (
        "seccomp: notifications, filters",
        &["seccomp_", "__seccomp_filter", "__secure_computing"],
    ),
    (
        "mounts, namespaces, cgroups",
        &[
            "path_mount",
            "do_mount",
            "path_umount",
            "__x64_sys_move_mount",
            "__x64_sys_fsmount",
            "__x64_sys_open_tree",
            "ksys_unshare",
            "copy_net_ns",
            "create_new_namespaces",
            "cgroup_",
            "kernfs_",
            "__x64_sys_pivot_root",
            "namespace_unlock",
            "__x64_sys_setns",
        ],
    ),
    ("futex", &["__x64_sys_futex", "do_futex"]),
    (
        "sockets",
        &[
            "__sys_send",
            "__sys_recv",
            "__x64_sys_send",
            "__x64_sys_recv",
            "sock_",
            "unix_",
        ],
    ),
    (
        "files",
        &[
            "vfs_",
            "ksys_read",
            "ksys_write",
            "ksys_p",
            "__x64_sys_pread",
            "__x64_sys_pwrite",
            "do_readv",
            "do_writev",
            "do_preadv",
            "do_pwritev",
            "path_",
            "do_filp_open",
            "do_sys_open",
            "__x64_sys_stat",
            "__x64_sys_new",
            "__do_sys_new",
            "do_statx",
            "__x64_sys_close",
            "__x64_sys_unlink",
            "__x64_sys_getdents",
            "__fput",
            "fput",
        ],
    ),
    (
        "interrupts",
        &[
            "asm_sysvec",
            "sysvec_",
            "asm_common_interrupt",
            "handle_softirqs",
            "__irq_exit",
        ],
    ),
    ("other calls", &["__x64_sys", "__do_sys", "__se_sys"]),
    (
        "entry and exit",
        &["do_syscall_64", "entry_SYSCALL", "syscall_", "entry_"],
    ),
];

/// What moves bytes, by the innermost function.
const COPIES: &[&str] = &[
    "clear_page",
    "copy_page",
    "copy_mc",
    "rep_movs",
    "rep_stos",
    "_copy_",
    "__memcpy",
    "__memset",
    "memcpy",
    "memset",
];

/// What the host's kernel did in this stack, innermost function first.
pub fn kind(frames: &[&str]) -> &'static str {
    let leaf = frames.first().copied().unwrap_or_default();
    if COPIES.iter().any(|c| leaf.starts_with(c)) {
        return "copying and clearing";
    }
    let has = |names: &[&str]| {
        frames
            .iter()
            .any(|f| names.iter().any(|n| f.starts_with(n)))
    };
    let found = KINDS.iter().find(|(_, names)| has(names));
    found.map_or("other", |(kind, _)| kind)
}

/// The host has nothing to do.
pub fn is_idle(frames: &[&str]) -> bool {
    let idle = ["do_idle", "cpu_startup_entry", "cpuidle_enter"];
    frames.iter().any(|f| idle.contains(f))
}

/// A host call by name; of those that are asked for two ends, which.
pub fn call(nr: u64, second: u64) -> String {
    const IOCTL: u64 = abi::nr::IOCTL as u64;
    match (nr, second) {
        // <linux/seccomp.h>
        (IOCTL, 0xc050_2100) => return "ioctl NOTIF_RECV".to_owned(),
        (IOCTL, 0xc018_2101) => return "ioctl NOTIF_SEND".to_owned(),
        (IOCTL, 0x4018_2103) => return "ioctl NOTIF_ADDFD".to_owned(),
        _ => {}
    }
    let known = u32::try_from(nr).ok();
    let found = abi::syscalls::NAMES.iter().find(|n| Some(n.nr) == known);
    found.map_or_else(|| format!("call {nr}"), |n| n.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(comm: &str, frames: &[(&str, &str)]) -> Option<Role> {
        let mut m = Marks::default();
        m.comm(comm);
        frames.iter().for_each(|(f, d)| m.frame(f, d));
        m.role()
    }

    #[test]
    fn processes_by_what_they_show() {
        let binary = "/x/cloister";
        assert_eq!(marks("task", &[("mm::x", binary)]), Some(Role::Sentry));
        assert_eq!(
            marks("cloister", &[("gofer::server::run", binary)]),
            Some(Role::Gofer)
        );
        assert_eq!(marks("cloister", &[("main", binary)]), Some(Role::Starter));
        assert_eq!(
            marks("cloister", &[("bprm_execve", "")]),
            Some(Role::Starter)
        );
        let stub = [
            ("zygote", binary),
            ("[unknown]", "/memfd:cloister-stub (deleted)"),
        ];
        assert_eq!(marks("cloister", &stub), Some(Role::Application));
        assert_eq!(
            marks("cloister", &[("exc_page_fault", "")]),
            Some(Role::Application)
        );
        assert_eq!(marks("rustc", &[("exc_page_fault", "")]), None);
    }

    #[test]
    fn kinds_of_the_kernels_work() {
        let fault = ["clear_page_erms", "do_anonymous_page", "exc_page_fault"];
        assert_eq!(kind(&fault), "copying and clearing");
        assert_eq!(kind(&fault[1..]), "page faults");
        let told = [
            "finish_task_switch",
            "schedule",
            "seccomp_do_user_notification",
            "do_syscall_64",
        ];
        assert_eq!(kind(&told), "sleeping and waking");
        assert_eq!(kind(&told[2..]), "seccomp: notifications, filters");
        assert_eq!(kind(&told[3..]), "entry and exit");
        assert!(is_idle(&["pv_native_safe_halt", "do_idle"]));
        assert_eq!(call(16, 0xc050_2100), "ioctl NOTIF_RECV");
        assert_eq!(call(39, 0), "getpid");
    }
}
