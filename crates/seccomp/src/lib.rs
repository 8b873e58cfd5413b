//! Filters of system calls as Linux words them: programs of classic BPF, which are checked and run
//! here, and what they answer (`seccomp(2)`). Who installs which is the kernel's
//! (`sentry::task::seccomp`); what a bundle's profile becomes, the runtime's (`oci::seccomp`).
#![forbid(unsafe_code)]

pub mod bpf;

// `SECCOMP_RET_*`.
pub const KILL_PROCESS: u32 = 0x8000_0000;
pub const KILL_THREAD: u32 = 0;
pub const TRAP: u32 = 0x0003_0000;
pub const ERRNO: u32 = 0x0005_0000;
pub const USER_NOTIF: u32 = 0x7fc0_0000;
pub const TRACE: u32 = 0x7ff0_0000;
pub const LOG: u32 = 0x7ffc_0000;
pub const ALLOW: u32 = 0x7fff_0000;
