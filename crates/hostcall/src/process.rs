//! Processes, threads and signals of the host.

use crate::{HostFd, RawFd, sys};
use abi::Result;

/// Sends `signal` to one thread; 0 only asks whether it is there.
pub fn tgkill(tgid: i32, tid: i32, signal: i32) -> Result<()> {
    // SAFETY: no pointers; the table says which processes are in reach.
    unsafe { sys!(Tgkill, tgid, tid, signal) }?;
    Ok(())
}

/// `gettid(2)`.
#[must_use]
pub fn gettid() -> i32 {
    // SAFETY: no memory is involved.
    unsafe { sys!(Gettid) }.map_or(0, |n| n as i32)
}

/// Sends `signal` to a process.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: as above.
    unsafe { sys!(Kill, pid, signal) }?;
    Ok(())
}

/// Sends `signal` to a process by its descriptor, which no later one with the same number is taken
/// for; 0 only asks whether it is there.
pub fn pidfd_kill(fd: RawFd, signal: i32) -> Result<()> {
    // SAFETY: no information beside the number.
    unsafe { sys!(PidfdSendSignal, fd, signal, 0, 0) }?;
    Ok(())
}

/// `wait4(2)`: the id and the status word.
pub fn wait(pid: i32, options: i32) -> Result<(i32, i32)> {
    let mut status = 0i32;
    // SAFETY: room for the status.
    let id = unsafe { sys!(Wait4, pid, &raw mut status, options, 0) }?;
    Ok((id as i32, status))
}

/// `prctl(2)` with integer arguments.
pub fn prctl(op: i32, a: usize, b: usize) -> Result<usize> {
    // SAFETY: only used with operations that take integers.
    unsafe { sys!(Prctl, op, a, b, 0, 0) }
}

/// Sleeps while the word is `expected`, at most `millis`. Spurious returns happen.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, millis: u64) -> Result<()> {
    let ts = libc::timespec {
        tv_sec: (millis / 1000) as i64,
        tv_nsec: (millis % 1000 * 1_000_000) as i64,
    };
    // SAFETY: the word and the timeout outlive the call.
    unsafe {
        sys!(
            Futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const ts
        )
    }?;
    Ok(())
}

/// Wakes up to `n` sleepers on the word, also in other processes that map it.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32, n: i32) {
    // SAFETY: the word is valid.
    let _ = unsafe { sys!(Futex, word.as_ptr(), libc::FUTEX_WAKE, n) };
}

/// Ends the calling process at once.
pub fn exit_group(status: i32) -> ! {
    // SAFETY: ends everything.
    let _ = unsafe { sys!(ExitGroup, status) };
    unreachable!("exit_group returned")
}

/// `close_range(2)`: closes every descriptor from `first` on.
pub fn close_from(first: RawFd) -> Result<()> {
    // SAFETY: the caller owns no descriptors there any more.
    unsafe { sys!(CloseRange, first, u32::MAX, 0) }?;
    Ok(())
}

/// `dup3(2)` onto a number.
pub fn dup_onto(fd: RawFd, onto: RawFd) -> Result<HostFd> {
    // SAFETY: no pointers.
    unsafe { sys!(Dup3, fd, onto, 0) }?;
    Ok(HostFd::from_raw(onto))
}

const RECV: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const ID_VALID: u32 = 0x4008_2102;
const SET_FLAGS: u32 = 0x4008_2104;

/// `PIDFD_GET_INFO` with the first version of its struct (64 bytes).
const GET_INFO: u32 = 0xc040_ff0b;

/// The requests of ioctl(2) that confined processes make.
pub const IOCTLS: [u32; 6] = [
    RECV,
    SEND,
    ID_VALID,
    SET_FLAGS,
    GET_INFO,
    libc::FIONREAD as u32,
];

/// `SECCOMP_IOCTL_NOTIF_RECV`: fills `notif`, which must be zero before.
pub fn notif_recv(fd: RawFd, notif: &mut libc::seccomp_notif) -> Result<()> {
    // SAFETY: room for the struct.
    unsafe { sys!(Ioctl, fd, RECV, core::ptr::from_mut(notif)) }?;
    Ok(())
}

/// `SECCOMP_IOCTL_NOTIF_SEND`: the value that the waiting call returns.
pub fn notif_send(fd: RawFd, id: u64, val: i64) -> Result<()> {
    let mut r = libc::seccomp_notif_resp {
        id,
        val,
        error: 0,
        flags: 0,
    };
    loop {
        // SAFETY: room for the struct.
        match unsafe { sys!(Ioctl, fd, SEND, &raw mut r) } {
            // It waits for the listener's lock (`mutex_lock_interruptible`), and has done nothing.
            Err(abi::errno::EINTR) => {}
            r => return r.map(|_| ()),
        }
    }
}

/// How a listener and its thread wake each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WakeUp {
    /// Where the other runs best.
    Plain = 0,
    /// On the CPU of the waker, which is about to sleep (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`).
    Synchronous = 1,
}

/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS` (Linux 6.6; `EINVAL` before).
pub fn notif_wake_up(fd: RawFd, how: WakeUp) -> Result<()> {
    // SAFETY: the flags go by value.
    unsafe { sys!(Ioctl, fd, SET_FLAGS, how as usize) }?;
    Ok(())
}

/// The wait status of the ended process of a descriptor, reaped or not (`PIDFD_GET_INFO` with
/// `PIDFD_INFO_EXIT`, Linux 6.15). `None` where it has not ended, or the host cannot tell.
#[must_use]
pub fn pidfd_status(fd: RawFd) -> Option<i32> {
    const EXIT: u64 = 1 << 3;
    // `struct pidfd_info`: the mask, and at the end the status.
    let mut info = [0u64; 8];
    info[0] = EXIT;
    // SAFETY: room for the struct of this version.
    unsafe { sys!(Ioctl, fd, GET_INFO, info.as_mut_ptr()) }.ok()?;
    (info[0] & EXIT != 0).then_some((info[7] >> 32) as i32)
}

/// Whether `fd` is a seccomp listener.
#[must_use]
pub fn is_listener(fd: RawFd) -> bool {
    let id = 0u64;
    // SAFETY: room for the id.
    let r = unsafe { sys!(Ioctl, fd, ID_VALID, &raw const id) };
    // A file system's or a device's own answer may be the same: but they have a type.
    r == Err(abi::errno::ENOENT)
        && crate::file::fstat(fd).is_ok_and(|st| st.st_mode & libc::S_IFMT == 0)
}

/// `ptrace(2)` requests whose address and data are integers.
pub fn ptrace(request: u32, tid: i32, addr: usize, data: usize) -> Result<()> {
    // SAFETY: used with requests that read and write no memory of ours.
    unsafe { sys!(Ptrace, request, tid, addr, data) }?;
    Ok(())
}

/// `ptrace(2)` requests that fill or read a struct of ours.
///
/// # Safety
/// `data` is what the request expects.
pub unsafe fn ptrace_data<T>(request: u32, tid: i32, addr: usize, data: *mut T) -> Result<()> {
    // SAFETY: the caller vouches for it.
    unsafe { sys!(Ptrace, request, tid, addr, data) }?;
    Ok(())
}

/// Has the host reap this process's children: SIGCHLD is ignored (`sigaction(2)`, SA_NOCLDWAIT).
pub fn reap_children_by_host() -> Result<()> {
    // handler SIG_IGN, flags SA_NOCLDWAIT, no restorer, empty mask
    let act: [u64; 4] = [1, 2, 0, 0];
    // SAFETY: the layout of the kernel's struct sigaction.
    unsafe { sys!(RtSigaction, libc::SIGCHLD, act.as_ptr(), 0, 8) }?;
    Ok(())
}

/// `membarrier(MEMBARRIER_CMD_GLOBAL)`.
pub fn membarrier_global() -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(Membarrier, 1, 0, 0) }?;
    Ok(())
}

/// The host's memory, bytes.
#[must_use]
pub fn total_memory() -> u64 {
    memory_and_swap().0
}

/// The host's memory and its swap, bytes (sysinfo(2)).
#[must_use]
pub fn memory_and_swap() -> (u64, u64) {
    // SAFETY: plain numbers.
    let mut s: libc::sysinfo = unsafe { core::mem::zeroed() };
    // SAFETY: `s` is what is asked for. (It fails for bad addresses alone.)
    unsafe { libc::sysinfo(&mut s) };
    let bytes = |n: u64| n.saturating_mul(s.mem_unit.max(1).into());
    (bytes(s.totalram).max(abi::PAGE_SIZE), bytes(s.totalswap))
}

/// CPUs, as many as the kernel has at most (`CONFIG_NR_CPUS`).
const CPU_WORDS: usize = 128;

/// The CPUs that this thread may use, of the first 8192.
#[must_use]
pub fn cpus() -> Vec<u32> {
    let mut mask = [0u64; CPU_WORDS];
    // SAFETY: the mask is as long as is said.
    let n = unsafe { sys!(SchedGetaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    // As many bytes as the kernel has of it: some, of a thousand.
    let bits = 0..8 * n.unwrap_or(0).min(size_of_val(&mask)) as u32;
    bits.filter(|c| mask[*c as usize / 64] >> (c % 64) & 1 == 1)
        .collect()
}

/// Keeps this thread on some CPUs.
pub fn stay_on(cpus: &[u32]) -> Result<()> {
    keep_on(0, cpus.iter().copied())
}

/// Keeps a thread on some CPUs; 0 is this one. One that sleeps is put on one of them when it wakes
/// up.
pub fn keep_on(tid: i32, cpus: impl IntoIterator<Item = u32>) -> Result<()> {
    let mut mask = [0u64; CPU_WORDS];
    for c in cpus {
        if let Some(w) = mask.get_mut(c as usize / 64) {
            *w |= 1 << (c % 64);
        }
    }
    // SAFETY: as above.
    unsafe { sys!(SchedSetaffinity, tid, size_of_val(&mask), mask.as_ptr()) }.map(drop)
}

/// The CPU that this thread is on, at this moment; never by a host call.
#[must_use]
pub fn current_cpu() -> u32 {
    // Where the host has no vDSO, the C library would ask it.
    // SAFETY: both calls take no memory of ours.
    let cpu = unsafe {
        if libc::getauxval(libc::AT_SYSINFO_EHDR) == 0 {
            return 0;
        }
        libc::sched_getcpu()
    };
    u32::try_from(cpu).unwrap_or(0)
}

/// Whether the host is of this version of Linux, or of a younger one.
#[must_use]
pub fn is_linux(major: u32, minor: u32) -> bool {
    // SAFETY: all zeros is a valid utsname, and the call fills it.
    let mut u: libc::utsname = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { sys!(Uname, &raw mut u) }.is_err() {
        return false;
    }
    let release = u
        .release
        .iter()
        .map_while(|c| (*c != 0).then_some(*c as u8));
    let release: Vec<u8> = release.collect();
    let mut numbers = release
        .split(|c| !c.is_ascii_digit())
        .map(|n| String::from_utf8_lossy(n).parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next()) >= (major, minor)
}

/// How many CPUs this process may use. Asked of the host once: it reads several files of its
/// cgroups.
#[must_use]
pub fn cpu_count() -> u32 {
    static COUNT: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32))
}

/// Gives the host the pages that the C library's allocator keeps and nothing uses. Takes the
/// arenas' locks for as long as a look at what is free takes: some milliseconds where that is some
/// ten MB.
pub fn trim_allocator() {
    // SAFETY: unused memory only. (It does not shrink arenas: see `limit_arenas`.)
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Limits the arenas that the C library's allocator has. Left to itself it counts CPUs by opening a
/// file of /sys when threads contend, and asks /proc whether memory is overcommitted when it gives
/// back the end of an arena, which an allow-list does not let it do. An arena's end is at most 64
/// MB.
///
/// More arenas than CPUs serve nobody, and each keeps what is free in it.
pub fn limit_arenas() {
    let arenas = cpus().len().clamp(2, 4) as libc::c_int;
    // SAFETY: tuning calls; before threads contend.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, arenas);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 20);
        // Setting one threshold ends the adaptation of this one.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}
