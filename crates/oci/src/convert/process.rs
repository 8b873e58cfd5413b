//! What runs: a process with its user, limits and capabilities.

use super::{check_depth, refuse};
use crate::Error;
use crate::spec::{self, Capabilities, Rlimit};
use config::{CapSets, ProcessSpec};

/// Rows and columns that a terminal begins with.
#[must_use]
pub fn window(p: &spec::Process) -> (u16, u16) {
    p.console_size
        .as_ref()
        .filter(|s| s.height != 0 && s.width != 0)
        .map_or(hostcall::term::DEFAULT_WINDOW, |s| (s.height, s.width))
}

/// `process`.
pub fn process(p: &spec::Process, warnings: &mut Vec<String>) -> Result<ProcessSpec, Error> {
    if p.args.is_empty() {
        return Err(refuse("process.args is empty"));
    }
    if !p.cwd.starts_with('/') {
        return Err(refuse(format!(
            "process.cwd {:?} is not an absolute path",
            p.cwd
        )));
    }
    check_depth("process.cwd", &p.cwd)?;
    for text in p.args.iter().chain(&p.env).chain([&p.cwd]) {
        if text.contains('\0') {
            return Err(refuse("process: a text has a zero byte"));
        }
    }
    for (word, is_set) in [
        ("apparmorProfile", !p.apparmor_profile.is_empty()),
        ("selinuxLabel", !p.selinux_label.is_empty()),
        ("ioPriority", p.io_priority.is_some()),
        ("scheduler", p.scheduler.is_some()),
        ("execCPUAffinity", p.exec_cpu_affinity.is_some()),
    ] {
        if is_set {
            warnings.push(format!(
                "process.{word} has no effect: the application never meets the host's kernel"
            ));
        }
    }
    let mut envp: Vec<Vec<u8>> = p.env.iter().map(|e| e.clone().into_bytes()).collect();
    if !envp.iter().any(|e| e.starts_with(b"HOME=")) {
        // As runc: the image's password file would tell better, but a program that minds sets it.
        let home: &[u8] = if p.user.uid == 0 {
            b"HOME=/root"
        } else {
            b"HOME=/"
        };
        envp.push(home.to_vec());
    }
    Ok(ProcessSpec {
        argv: p.args.iter().map(|a| a.clone().into_bytes()).collect(),
        envp,
        cwd: p.cwd.clone().into_bytes(),
        uid: p.user.uid,
        gid: p.user.gid,
        groups: groups(&p.user.additional_gids),
        rlimits: rlimits(&p.rlimits)?,
        umask: p.user.umask.unwrap_or(0o022) & 0o777,
        // None of the runtime's caller.
        ignored: 0,
        blocked: 0,
        caps: Some(caps(p.capabilities.as_ref(), warnings)),
        no_new_privs: p.no_new_privileges,
        oom_score_adj: p.oom_score_adj.unwrap_or(0).clamp(-1000, 1000),
        make_cwd: true,
    })
}

/// Each once.
fn groups(gids: &[u32]) -> Vec<u32> {
    let mut all = gids.to_vec();
    all.sort_unstable();
    all.dedup();
    all
}

/// `RLIMIT_*` by number (`include/uapi/asm-generic/resource.h`).
const RLIMITS: [&str; 16] = [
    "CPU",
    "FSIZE",
    "DATA",
    "STACK",
    "CORE",
    "RSS",
    "NPROC",
    "NOFILE",
    "MEMLOCK",
    "AS",
    "LOCKS",
    "SIGPENDING",
    "MSGQUEUE",
    "NICE",
    "RTPRIO",
    "RTTIME",
];

fn rlimits(asked: &[Rlimit]) -> Result<Vec<(u32, u64, u64)>, Error> {
    let mut all: Vec<(u32, u64, u64)> = Vec::new();
    for r in asked {
        let name = r.kind.strip_prefix("RLIMIT_").unwrap_or_default();
        let n = RLIMITS
            .iter()
            .position(|l| *l == name)
            .ok_or_else(|| refuse(format!("rlimit {:?} is not known", r.kind)))?
            as u32;
        if all.iter().any(|l| l.0 == n) {
            return Err(refuse(format!("rlimit {} is given twice", r.kind)));
        }
        if r.soft > r.hard {
            return Err(refuse(format!("rlimit {}: soft is above hard", r.kind)));
        }
        all.push((n, r.soft, r.hard));
    }
    Ok(all)
}

/// Capabilities by number (`include/uapi/linux/capability.h`).
const CAPS: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The number of a capability, by its name with or without `CAP_`.
#[must_use]
pub fn capability(name: &str) -> Option<u32> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    CAPS.iter().position(|c| *c == bare).map(|n| n as u32)
}

fn caps(c: Option<&Capabilities>, warnings: &mut Vec<String>) -> CapSets {
    let Some(c) = c else {
        return CapSets::default();
    };
    let mut set = |names: &[String]| {
        let mut bits = 0;
        for n in names {
            match capability(n) {
                Some(bit) => bits |= 1 << bit,
                None => {
                    let text = format!("capability {n:?} is not known and is left out");
                    if !warnings.contains(&text) {
                        warnings.push(text);
                    }
                }
            }
        }
        bits
    };
    CapSets {
        bounding: set(&c.bounding),
        effective: set(&c.effective),
        permitted: set(&c.permitted),
        inheritable: set(&c.inheritable),
        ambient: set(&c.ambient),
    }
}

/// The names of all capabilities, for `features`.
pub fn capability_names() -> impl Iterator<Item = String> {
    CAPS.iter().map(|c| format!("CAP_{c}"))
}
