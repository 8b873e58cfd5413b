//! What only the start of a sandbox needs: processes, namespaces, capabilities, limits.
//!
//! None of these calls is on an allow-list.

use crate::{HostFd, RawFd, sys};
use abi::Result;
use abi::errno::{EBUSY, EINTR, EINVAL};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

/// Which side of [`clone_process`] this is.
#[derive(Debug)]
pub enum Side {
    Parent { pid: i32, pidfd: HostFd },
    Child,
}

/// Whether the calling process has one thread only. Needs `/proc`.
#[must_use]
pub fn is_single_threaded() -> bool {
    use std::os::unix::fs::MetadataExt;
    // A directory's links: itself, its parent, and one directory a thread.
    std::fs::metadata("/proc/self/task").is_ok_and(|m| m.nlink() == 3)
}

/// A copy of the calling process, as `fork(2)` makes it, in new namespaces (`CLONE_NEW*`).
///
/// `EBUSY` where other threads run: what they hold would stay held in the copy for ever. In the
/// child, every [`HostFd`] of the parent exists a second time; it must end without returning to
/// code that could drop what it does not know.
pub fn clone_process(namespaces: i32) -> Result<Side> {
    clone_into(namespaces, None)
}

/// As [`clone_process`]; the child begins in this cgroup of version 2, a directory. To move there
/// later would wait for a grace period of the host's RCU, some 10 ms. `ENOSYS` before Linux 5.7.
pub fn clone_into(namespaces: i32, cgroup: Option<RawFd>) -> Result<Side> {
    const NAMESPACES: i32 = libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    if namespaces & !NAMESPACES != 0 {
        return Err(EINVAL);
    }
    if !is_single_threaded() {
        return Err(EBUSY);
    }
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    let flags = namespaces as u32 as u64 | libc::CLONE_PIDFD as u64;
    let mut pidfd: i32 = -1;
    let pid = match cgroup {
        None => {
            let flags = flags | libc::SIGCHLD as u64;
            // SAFETY: no memory is shared with the child, the stack is copied, and no other thread
            // exists.
            unsafe { sys!(Clone, flags, 0, &raw mut pidfd, 0, 0) }?
        }
        Some(fd) => {
            // SAFETY: all-zero arguments are valid.
            let mut a: libc::clone_args = unsafe { core::mem::zeroed() };
            a.flags = flags | CLONE_INTO_CGROUP;
            a.pidfd = (&raw mut pidfd) as u64;
            a.exit_signal = libc::SIGCHLD as u64;
            a.cgroup = fd as u64;
            // SAFETY: as above.
            unsafe { sys!(Clone3, &raw const a, size_of::<libc::clone_args>()) }?
        }
    };
    if pid == 0 {
        return Ok(Side::Child);
    }
    Ok(Side::Parent {
        pid: pid as i32,
        pidfd: HostFd::from_raw(pidfd),
    })
}

/// `unshare(2)`.
pub fn unshare(namespaces: i32) -> Result<()> {
    // SAFETY: no pointers; descriptors stay as they are.
    unsafe { sys!(Unshare, namespaces & !libc::CLONE_FILES) }?;
    Ok(())
}

/// The calling thread's network namespace: to be kept while the thread is in another one.
pub fn network_namespace() -> Result<HostFd> {
    crate::path::openat2(libc::AT_FDCWD, c"/proc/self/ns/net", 0, 0, 0)
}

/// Goes to a network namespace (`setns(2)`).
pub fn enter_network(namespace: &HostFd) -> Result<()> {
    // SAFETY: no pointers; memory and descriptors stay as they are.
    unsafe { sys!(Setns, namespace.raw(), libc::CLONE_NEWNET) }?;
    Ok(())
}

/// `setsid(2)`.
pub fn setsid() -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(Setsid) }?;
    Ok(())
}

/// A descriptor's copy with a number of at least `least`, close-on-exec.
pub fn dup_above(fd: RawFd, least: RawFd) -> Result<HostFd> {
    // SAFETY: no pointers.
    let n = unsafe { sys!(Fcntl, fd, libc::F_DUPFD_CLOEXEC, least) }?;
    Ok(HostFd::from_raw(n as RawFd))
}

// ---- Users and capabilities ----

/// The supplementary groups.
pub fn groups() -> Result<Vec<u32>> {
    let mut v = vec![0u32; 65536];
    // SAFETY: room for as many groups as Linux allows (NGROUPS_MAX).
    let n = unsafe { sys!(Getgroups, v.len(), v.as_mut_ptr()) }?;
    v.truncate(n);
    v.shrink_to_fit();
    Ok(v)
}

/// `setgroups(2)`.
pub fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the slice outlives the call.
    unsafe { sys!(Setgroups, groups.len(), groups.as_ptr()) }?;
    Ok(())
}

/// Real, effective and saved ids alike. The calling thread's only.
pub fn set_ids(uid: u32, gid: u32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe {
        sys!(Setresgid, gid, gid, gid)?;
        sys!(Setresuid, uid, uid, uid)?;
    }
    Ok(())
}

/// `_LINUX_CAPABILITY_VERSION_3`, and the calling thread.
const CAP_HEADER: [u32; 2] = [0x2008_0522, 0];

/// The calling thread's effective capabilities, bit n for capability n.
pub fn capabilities() -> Result<u64> {
    let mut data = [0u32; 6];
    // SAFETY: a header and two struct __user_cap_data.
    unsafe { sys!(Capget, CAP_HEADER.as_ptr(), data.as_mut_ptr()) }?;
    Ok(u64::from(data[0]) | u64::from(data[3]) << 32)
}

/// Makes `keep` the calling thread's effective and permitted capabilities, with none to inherit.
pub fn set_capabilities(keep: u64) -> Result<()> {
    let (low, high) = (keep as u32, (keep >> 32) as u32);
    let data = [low, low, 0, high, high, 0];
    // SAFETY: a header and two struct __user_cap_data.
    unsafe { sys!(Capset, CAP_HEADER.as_ptr(), data.as_ptr()) }?;
    Ok(())
}

/// Takes everything but `keep` out of the bounding set, for ever.
pub fn bound_capabilities(keep: u64) -> Result<()> {
    for cap in 0..64usize {
        if keep >> cap & 1 == 0 {
            match crate::process::prctl(libc::PR_CAPBSET_DROP, cap, 0) {
                Ok(_) => {}
                // The first number that the host does not know.
                Err(EINVAL) => break,
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

// ---- Mounts ----

fn pointer(s: Option<&CStr>) -> *const core::ffi::c_char {
    s.map_or(core::ptr::null(), CStr::as_ptr)
}

/// `mount(2)`.
pub fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: u64,
    data: Option<&CStr>,
) -> Result<()> {
    let (s, k, d) = (pointer(source), pointer(kind), pointer(data));
    // SAFETY: NUL-terminated strings or null.
    unsafe { sys!(Mount, s, target.as_ptr(), k, flags, d) }?;
    Ok(())
}

/// `umount2(2)` with MNT_DETACH.
pub fn umount_detach(target: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated path.
    unsafe { sys!(Umount2, target.as_ptr(), libc::MNT_DETACH) }?;
    Ok(())
}

/// `pivot_root(".", ".")`: the working directory becomes the root, with the old root on top of it.
pub fn pivot_root_here() -> Result<()> {
    let dot = c".".as_ptr();
    // SAFETY: NUL-terminated paths.
    unsafe { sys!(PivotRoot, dot, dot) }?;
    Ok(())
}

/// `chroot(".")`.
pub fn chroot_here() -> Result<()> {
    // SAFETY: a NUL-terminated path.
    unsafe { sys!(Chroot, c".".as_ptr()) }?;
    Ok(())
}

/// `chdir(2)`.
pub fn chdir(path: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated path.
    unsafe { sys!(Chdir, path.as_ptr()) }?;
    Ok(())
}

/// What of a tree of mounts is meant, beside its first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Below {
    /// All that is mounted below it.
    All,
    Nothing,
}

/// A copy of the mount that `at` (opened with `O_PATH`) lies in, from there on, and of those
/// `below` it; attached nowhere (`open_tree(2)`).
pub fn clone_mounts(at: &HostFd, below: Below) -> Result<HostFd> {
    const OPEN_TREE_CLONE: i32 = 1;
    const AT_RECURSIVE: i32 = 0x8000;
    let mut flags = OPEN_TREE_CLONE | libc::AT_EMPTY_PATH | libc::O_CLOEXEC;
    if below == Below::All {
        flags |= AT_RECURSIVE;
    }
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { sys!(OpenTree, at.raw(), c"".as_ptr(), flags) }?;
    Ok(HostFd::from_raw(fd as RawFd))
}

/// Sets attributes (`MOUNT_ATTR_*`) on a whole tree of mounts, and cuts it from all propagation.
pub fn harden_mounts(tree: &HostFd, attributes: u64) -> Result<()> {
    const AT_RECURSIVE: i32 = 0x8000;
    let attr = [attributes, 0, libc::MS_PRIVATE, 0];
    let flags = AT_RECURSIVE | libc::AT_EMPTY_PATH;
    let (path, len) = (c"".as_ptr(), size_of_val(&attr));
    // SAFETY: a struct mount_attr of its size.
    unsafe { sys!(MountSetattr, tree.raw(), path, flags, attr.as_ptr(), len) }?;
    Ok(())
}

/// Sets attributes (`MOUNT_ATTR_*`) on the one mount that `at` is the top of.
pub fn set_mount_attributes(at: &HostFd, attributes: u64) -> Result<()> {
    let attr = [attributes, 0, 0, 0];
    let (path, len) = (c"".as_ptr(), size_of_val(&attr));
    // SAFETY: a struct mount_attr of its size.
    unsafe {
        sys!(
            MountSetattr,
            at.raw(),
            path,
            libc::AT_EMPTY_PATH,
            attr.as_ptr(),
            len
        )
    }?;
    Ok(())
}

// ---- Limits ----

/// A resource limit of the calling process: soft and hard.
pub fn rlimit(resource: u32) -> Result<(u64, u64)> {
    let mut l = [0u64; 2];
    // SAFETY: room for a struct rlimit64.
    unsafe { sys!(Prlimit64, 0, resource, 0, l.as_mut_ptr()) }?;
    Ok((l[0], l[1]))
}

/// Sets it.
pub fn set_rlimit(resource: u32, soft: u64, hard: u64) -> Result<()> {
    set_rlimit_of(0, resource, soft, hard)
}

/// Sets that of a process; 0 is the calling one.
pub fn set_rlimit_of(pid: i32, resource: u32, soft: u64, hard: u64) -> Result<()> {
    let l = [soft, hard];
    // SAFETY: a struct rlimit64.
    unsafe { sys!(Prlimit64, pid, resource, l.as_ptr(), 0) }?;
    Ok(())
}

// ---- Signals of the starter ----

/// A set of signals, as the kernel's `sigset_t`.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// With the signal in it.
    #[must_use]
    pub fn with(self, signal: i32) -> SignalSet {
        SignalSet(self.0 | 1 << (signal - 1))
    }
    /// Bit n - 1 for signal n.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// The signals that the calling thread blocks.
pub fn blocked_signals() -> Result<SignalSet> {
    let mut set = SignalSet::default();
    // SAFETY: room for a sigset of 8 bytes.
    unsafe { sys!(RtSigprocmask, libc::SIG_BLOCK, 0, &raw mut set.0, 8) }?;
    Ok(set)
}

/// The signals that this process ignored when it was executed.
#[must_use]
pub fn inherited_ignored_signals() -> SignalSet {
    let pipe = PIPE_WAS_IGNORED.load(Ordering::Relaxed);
    (1..=64)
        .filter(|s| {
            if *s == libc::SIGPIPE {
                pipe
            } else {
                is_ignored(*s)
            }
        })
        .fold(SignalSet::default(), SignalSet::with)
}

/// Rust's start has SIGPIPE ignored before `main`; what the caller wanted is asked before that.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_pipe() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

// SAFETY: the C library calls what stands in this section before `main`; the function needs nothing
// set up.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_pipe;

/// Blocks the set, besides what is blocked already.
pub fn block_signals(set: SignalSet) -> Result<()> {
    // SAFETY: a sigset of 8 bytes.
    unsafe { sys!(RtSigprocmask, libc::SIG_BLOCK, &raw const set.0, 0, 8) }?;
    Ok(())
}

/// Lets the set through again.
pub fn unblock_signals(set: SignalSet) -> Result<()> {
    // SAFETY: a sigset of 8 bytes.
    unsafe { sys!(RtSigprocmask, libc::SIG_UNBLOCK, &raw const set.0, 0, 8) }?;
    Ok(())
}

/// Makes `words` what ps(1) shows as this process's command line: written over its arguments, as
/// far as there is room. For a process of one thread that does not look at its arguments any more.
/// Does nothing where /proc is not that of this process.
pub fn set_title(words: &[u8]) {
    let Some((start, end)) = arguments() else {
        return;
    };
    // The last byte stays zero: else the kernel shows what follows, too (`get_mm_cmdline`).
    let Some(room) = end.checked_sub(start + 1).filter(|n| *n < 1 << 20) else {
        return;
    };
    let n = words.len().min(room);
    let at = std::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: where the kernel put this process's arguments: room + 1 bytes on its stack, which
    // nobody else uses now.
    unsafe {
        at.copy_from_nonoverlapping(words.as_ptr(), n);
        at.add(n).write_bytes(0, room - n + 1);
    }
}

/// Where the arguments of this process are (proc_pid_stat(5): arg_start and arg_end, numbers 48 and
/// 49).
fn arguments() -> Option<(usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // (The name, in parentheses, may hold anything.)
    let (first, rest) = (stat.split_once(' ')?.0, stat.rsplit_once(") ")?.1);
    if first.parse() != Ok(std::process::id()) {
        return None;
    }
    let mut words = rest.split(' ').skip(48 - 3).map(|w| w.parse().ok());
    words.next()?.zip(words.next()?)
}

/// Has a command's program begin with no signal blocked, as programs expect it (the mask would be
/// inherited), and with its three streams alone: what the caller was given for others is not its
/// business.
pub fn begin_clean(c: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let clean = || {
        let none = SignalSet::default();
        // SAFETY: a sigset of 8 bytes.
        let unblocked = unsafe { sys!(RtSigprocmask, libc::SIG_SETMASK, &raw const none.0, 0, 8) };
        // SAFETY: no pointers. (Closed by exec: the parent hears through one of them if that
        // fails.)
        let closed = unsafe { sys!(CloseRange, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        match unblocked.and(closed) {
            Ok(_) => Ok(()),
            Err(e) => Err(std::io::Error::from_raw_os_error(e.raw())),
        }
    };
    // SAFETY: between fork and exec there are two system calls, and no memory is allocated.
    unsafe { c.pre_exec(clean) };
}

/// A descriptor from which blocked signals are read; non-blocking.
pub fn signalfd(set: SignalSet) -> Result<HostFd> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: a sigset of 8 bytes.
    let fd = unsafe { sys!(Signalfd4, -1i32, &raw const set.0, 8, flags) }?;
    Ok(HostFd::from_raw(fd as RawFd))
}

/// The next signal of a [`signalfd`]; `EAGAIN` if there is none.
pub fn next_signal(fd: &HostFd) -> Result<i32> {
    let mut info = [0u8; 128];
    loop {
        match crate::file::read(fd.raw(), &mut info) {
            Ok(n) if n == info.len() => {
                return Ok(u32::from_le_bytes([info[0], info[1], info[2], info[3]]) as i32);
            }
            Ok(_) => return Err(EINVAL),
            Err(EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether the signal is ignored.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let mut act = [0u64; 4];
    // SAFETY: room for the kernel's struct sigaction.
    let r = unsafe { sys!(RtSigaction, signal, 0, act.as_mut_ptr(), 8) };
    r.is_ok() && act[0] == libc::SIG_IGN as u64
}

/// Gives the signal its default effect again.
pub fn set_default_action(signal: i32) -> Result<()> {
    let act = [0u64; 4];
    // SAFETY: the kernel's struct sigaction: SIG_DFL, no flags, empty mask.
    unsafe { sys!(RtSigaction, signal, act.as_ptr(), 0, 8) }?;
    Ok(())
}
