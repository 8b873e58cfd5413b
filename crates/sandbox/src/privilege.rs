//! What the starter may do, and giving it up.

use crate::{Error, Spec, kernel, step};
use abi::errno::{EINVAL, EIO, EPERM};
use abi::{Errno, Result};
use hostcall::bpf::{self, AllThreads};
use hostcall::table::Process;
use hostcall::{HostFd, RawFd, file, path, process, start as host};
use std::ffi::CStr;

/// Capabilities that the start and the Gofer know (`linux/capability.h`).
pub const CAP_CHOWN: u64 = 1 << 0;
pub const CAP_DAC_OVERRIDE: u64 = 1 << 1;
pub const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
pub const CAP_FOWNER: u64 = 1 << 3;
pub const CAP_FSETID: u64 = 1 << 4;
pub const CAP_KILL: u64 = 1 << 5;
pub const CAP_SETGID: u64 = 1 << 6;
pub const CAP_SETUID: u64 = 1 << 7;
pub const CAP_SETPCAP: u64 = 1 << 8;
pub const CAP_NET_BIND_SERVICE: u64 = 1 << 10;
pub const CAP_SYS_ADMIN: u64 = 1 << 21;
pub const CAP_SETFCAP: u64 = 1 << 31;

/// The user and group that a Sentry runs as where the starter is root.
pub const NOBODY: u32 = 65534;

const ALL_BUT_USER: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// The maker of a child's network namespace, which has nothing in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// The child.
    Own,
    /// The starter: the child is in it from its beginning, with the other one.
    Given,
}

/// A starter that is in a new network namespace, to clone children there.
pub struct Away {
    home: HostFd,
}

impl Away {
    /// Goes there; `None` where there is no way back: in a user namespace that has not the network
    /// namespace that it is in.
    pub(crate) fn go() -> std::result::Result<Option<Away>, Error> {
        let home = step("find the network namespace", host::network_namespace())?;
        if host::enter_network(&home).is_err() {
            return Ok(None);
        }
        let made = host::unshare(libc::CLONE_NEWNET);
        step("make a network namespace", made)?;
        Ok(Some(Away { home }))
    }
    /// Comes back.
    pub(crate) fn come_back(self) -> std::result::Result<(), Error> {
        let r = host::enter_network(&self.home);
        step("return to the network namespace", r)
    }
}

/// The namespaces (`CLONE_NEW*`) that a process begins in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Namespaces {
    pub needed: i32,
    /// Left out where the host does not allow them.
    pub wished: i32,
}

impl Namespaces {
    fn needed(needed: i32) -> Namespaces {
        Namespaces { needed, wished: 0 }
    }
}

/// How the starter stands towards the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It may make namespaces and mounts, and change its user.
    Privileged,
    /// It may do so only in a user namespace, which maps this user and group.
    Ordinary { uid: u32, gid: u32 },
}

impl Standing {
    pub fn of_caller() -> std::result::Result<Standing, Error> {
        const NEEDED: u64 = CAP_SYS_ADMIN | CAP_SETUID | CAP_SETGID | CAP_SETPCAP;
        let caps = step(
            "read the capabilities of this process",
            host::capabilities(),
        )?;
        let (uid, gid) = path::effective_ids();
        Ok(if caps & NEEDED == NEEDED {
            Standing::Privileged
        } else {
            Standing::Ordinary { uid, gid }
        })
    }
    /// The namespaces that must be made with the process itself.
    ///
    /// In a user namespace of its own a Gofer can copy mounts with all that is mounted below them
    /// only.
    pub fn gofer_namespaces(self, spec: &Spec) -> Namespaces {
        match self {
            Standing::Privileged if spec.roots.iter().all(|r| r.recursive) => self.with_user(),
            Standing::Privileged => Namespaces::needed(libc::CLONE_NEWPID),
            Standing::Ordinary { .. } => Namespaces::needed(0),
        }
    }
    /// As above.
    pub fn broker_namespaces(self) -> Namespaces {
        Namespaces::needed(match self {
            Standing::Privileged => libc::CLONE_NEWPID,
            Standing::Ordinary { .. } => libc::CLONE_NEWPID | libc::CLONE_NEWUSER,
        })
    }
    /// As above.
    pub fn sentry_namespaces(self) -> Namespaces {
        match self {
            Standing::Privileged => self.with_user(),
            Standing::Ordinary { .. } => self.broker_namespaces(),
        }
    }
    /// Those of root's processes. Their user namespace knows root, too, which only a starter with
    /// CAP_SETFCAP may give it.
    fn with_user(self) -> Namespaces {
        let maps = host::capabilities().is_ok_and(|c| c & CAP_SETFCAP != 0);
        Namespaces {
            needed: libc::CLONE_NEWPID,
            wished: if maps { libc::CLONE_NEWUSER } else { 0 },
        }
    }
}

/// The other namespaces, made by the child: while one child waits for the host's, the other goes
/// on.
pub fn own_namespaces(network: Network) -> Result<()> {
    host::unshare(network.own())
}

impl Network {
    fn own(self) -> i32 {
        match self {
            Network::Own => ALL_BUT_USER,
            Network::Given => ALL_BUT_USER & !libc::CLONE_NEWNET,
        }
    }
}

/// Root's way: an unprivileged user, with the capabilities that the further steps need.
pub fn become_nobody(needed: u64) -> Result<()> {
    process::prctl(libc::PR_SET_KEEPCAPS, 1, 0)?;
    match host::set_groups(&[]) {
        // A user namespace in which groups cannot be changed (user_namespaces(7): `setgroups` is
        // `deny`): those that the user has anyway stay. Capabilities are no reason, they were
        // looked at before.
        Err(EPERM) => {}
        r => r?,
    }
    match host::set_ids(NOBODY, NOBODY) {
        // A user namespace that does not know nobody: the user there is no host's root.
        Err(EINVAL) => {}
        r => r?,
    }
    host::set_capabilities(needed)
}

/// Raises the limits that would hit the sandbox's own processes: the application's are kept by the
/// Sentry. Gives the number of descriptors that are allowed now. Of a child (0 for the caller)
/// whose limits are still the caller's.
pub fn raise_limits(standing: Standing, child: i32) -> u64 {
    let unlimited = libc::RLIM_INFINITY;
    for r in [
        libc::RLIMIT_AS,
        libc::RLIMIT_DATA,
        libc::RLIMIT_FSIZE,
        libc::RLIMIT_NPROC,
        libc::RLIMIT_MEMLOCK,
        libc::RLIMIT_CPU,
        libc::RLIMIT_SIGPENDING,
    ] {
        let raised = standing == Standing::Privileged
            && host::set_rlimit_of(child, r, unlimited, unlimited).is_ok();
        if let (false, Ok((_, hard))) = (raised, host::rlimit(r)) {
            let _ = host::set_rlimit_of(child, r, hard, hard);
        }
    }
    // A core file would hold the application's memory. 0 does not keep it from a program that
    // core_pattern names; 1 does (`fs/coredump.c`), and is too little for a file.
    let _ = host::set_rlimit_of(child, libc::RLIMIT_CORE, 1, 1)
        .or_else(|_| host::set_rlimit_of(child, libc::RLIMIT_CORE, 0, 0));
    let (soft, hard) = host::rlimit(libc::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open")
        .ok()
        .and_then(|s| s.trim().parse().ok())
        .filter(|_| standing == Standing::Privileged);
    for n in [most.unwrap_or(hard), hard] {
        if n >= hard && host::set_rlimit_of(child, libc::RLIMIT_NOFILE, n, n).is_ok() {
            return n;
        }
    }
    soft
}

/// Gives a child's user namespace the ids of the caller's, each as itself: the owners of files
/// that it sees are true.
pub fn map_as_here(child: i32) -> Result<()> {
    let failed = |e: std::io::Error| e.raw_os_error().and_then(Errno::new).unwrap_or(EIO);
    for file in ["uid_map", "gid_map"] {
        let here = std::fs::read_to_string(format!("/proc/self/{file}")).map_err(failed)?;
        let mut map = String::new();
        for line in here.lines() {
            let mut words = line.split_whitespace();
            if let (Some(first), Some(_), Some(count)) = (words.next(), words.next(), words.next())
            {
                map += &format!("{first} {first} {count}\n");
            }
        }
        std::fs::write(format!("/proc/{child}/{file}"), map).map_err(failed)?;
    }
    Ok(())
}

/// The way of a process that needs no file of the host's: out of its terminal, its files and its
/// namespaces but that of the network, and out of root's privileges but `keep`, which an ordinary
/// starter has not.
pub fn leave_host(standing: Standing, keep: u64) -> std::result::Result<(), Error> {
    step("leave the terminal", host::setsid())?;
    if let Standing::Ordinary { uid, gid } = standing {
        kernel::map_ids(uid, gid)?;
    }
    let own = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    step("make its namespaces", host::unshare(own))?;
    step("leave the host's files", empty_root())?;
    let kept = match standing {
        Standing::Privileged => {
            step("become nobody", become_nobody(keep | CAP_SETPCAP))?;
            keep
        }
        Standing::Ordinary { .. } => 0,
    };
    step("give up its capabilities", keep_capabilities(kept))
}

/// Mounts an empty directory that cannot be written over a directory.
pub fn cover(at: &CStr) -> Result<()> {
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let size = c"mode=555,size=4k,nr_inodes=2";
    host::mount(Some(c"none"), at, Some(c"tmpfs"), flags, Some(size))
}

/// Exchanges the root directory for an empty one that cannot be written, and lets the old one go.
pub fn empty_root() -> Result<()> {
    let private = libc::MS_REC | libc::MS_PRIVATE;
    host::mount(None, c"/", None, private, None)?;
    // Any directory that every host has; it is gone with the old root.
    let at = c"/proc";
    cover(at)?;
    host::chdir(at)?;
    match host::pivot_root_here() {
        Ok(()) => host::umount_detach(c".")?,
        // The root is the initial ramfs, which cannot be exchanged: lay the empty one over it.
        Err(EINVAL) => {
            host::mount(Some(c"."), c"/", None, libc::MS_MOVE, None)?;
            host::chroot_here()?;
        }
        Err(e) => return Err(e),
    }
    host::chdir(c"/")
}

/// Empties the bounding set, where the caller may: no program that is executed gains anything.
pub fn bound() -> Result<()> {
    if host::capabilities()? & CAP_SETPCAP != 0 {
        host::bound_capabilities(0)?;
    }
    Ok(())
}

/// Gives up all capabilities but `keep`, which stays permitted and effective only.
pub fn keep_capabilities(keep: u64) -> Result<()> {
    const PR_CAP_AMBIENT_CLEAR_ALL: usize = 4;
    let have = host::capabilities()?;
    bound()?;
    process::prctl(libc::PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0)?;
    host::set_capabilities(keep & have)
}

/// Has the host kill this process when the starter ends. `report` is a socket to the starter.
pub fn die_with_starter(report: RawFd) -> Result<()> {
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize, 0)?;
    // It may have ended before. Its pid would not tell: it is in another pid namespace.
    let mut fds = [libc::pollfd {
        fd: report,
        events: 0,
        revents: 0,
    }];
    file::poll(&mut fds, 0)?;
    if fds[0].revents != 0 {
        process::exit_group(i32::from(crate::EXIT_BROKEN));
    }
    Ok(())
}

/// The last step: no way back to privileges, no looking into this process, only the calls on its
/// list.
pub fn lock_down(process: Process, report: RawFd) -> Result<()> {
    die_with_starter(report)?;
    lock_down_alone(process)
}

/// The same, of a process that stays when its starter ends.
pub fn lock_down_alone(process: Process) -> Result<()> {
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0)?;
    process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
    bpf::install(&bpf::allow_list(process), AllThreads::Yes)
}
