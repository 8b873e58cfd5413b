//! The zygote: the process that every stub process is cloned from.
//!
//! It starts as a copy of the (still single-threaded) Sentry, arranges signal handlers, filters and
//! the stub's own area, and then leaves everything else behind: it jumps into the stub, which
//! unmaps the rest.

use crate::process::{Drive, KICK, base_filter};
use abi::Result;
use hostcall::bpf::{AllThreads, install};
use hostcall::{HostFd, process as host, sys};
use stub::Symbol;

/// The kernel's `struct sigaction` (`include/linux/signal_types.h`).
#[repr(C)]
struct KernelSigaction {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

/// The signals that application threads take through the stub's handler.
const HANDLED: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    KICK,
];

/// A piece of the host's vDSO or of its data.
#[derive(Clone, Copy, Debug)]
pub struct VdsoPiece {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) is_code: bool,
}

/// Where the host's vDSO and its data lie in this process.
pub fn host_vdso() -> Vec<VdsoPiece> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines()
        .filter_map(|l| {
            let (range, rest) = l.split_once(' ')?;
            let name = rest.rsplit(' ').next()?;
            if !name.starts_with("[vvar") && name != "[vdso]" {
                return None;
            }
            let (a, b) = range.split_once('-')?;
            let start = u64::from_str_radix(a, 16).ok()?;
            let end = u64::from_str_radix(b, 16).ok()?;
            Some(VdsoPiece {
                start,
                len: end - start,
                is_code: name == "[vdso]",
            })
        })
        .collect()
}

/// Where the last of the pieces will end.
fn vdso_end(pieces: &[VdsoPiece]) -> u64 {
    let lowest = pieces.iter().map(|p| p.start).min().unwrap_or(0);
    let end = pieces.iter().map(|p| p.start + p.len).max().unwrap_or(0);
    stub::HOST_VDSO + (end - lowest)
}

/// Where the vDSO's image will be in stub processes; `None` where the host has none.
pub fn moved_vdso(pieces: &[VdsoPiece]) -> Option<u64> {
    let lowest = pieces.iter().map(|p| p.start).min()?;
    let code = pieces.iter().find(|p| p.is_code)?;
    Some(stub::HOST_VDSO + (code.start - lowest))
}

/// Clones the zygote; gives a descriptor that becomes readable when it ends.
pub fn start(
    text: &HostFd,
    control: &HostFd,
    command_offset: u64,
    area_offset: u64,
    vdso: &[VdsoPiece],
    drive: Drive,
) -> Result<HostFd> {
    let filter = base_filter();
    let rseq = rseq_area();
    let flags = libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut pidfd: i32 = -1;
    // SAFETY: a fork; the child uses only what is set up here, and never returns.
    let pid = unsafe { sys!(Clone, flags, 0, &raw mut pidfd, 0, 0) }?;
    if pid != 0 {
        return Ok(HostFd::from_raw(pidfd));
    }
    let r = child(
        text,
        control,
        command_offset,
        area_offset,
        vdso,
        &filter,
        rseq,
        drive,
    );
    let _ = r;
    host::exit_group(1)
}

#[allow(clippy::too_many_arguments, reason = "called once")]
fn child(
    text: &HostFd,
    control: &HostFd,
    command_offset: u64,
    area_offset: u64,
    vdso: &[VdsoPiece],
    filter: &hostcall::bpf::Program,
    rseq: Option<u64>,
    drive: Drive,
) -> Result<()> {
    let _ = host::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize, 0);
    if drive == Drive::Notify {
        // A hostile program can make its process crash as it likes. Whoever the host has read core
        // files shall not read these.
        host::prctl(libc::PR_SET_DUMPABLE, 0, 0)?;
    }
    host::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
    // The Sentry still has some, for its own confinement; no stub process may ever.
    hostcall::start::set_capabilities(0)?;
    take_over_signals(rseq)?;
    map_stub(text, control, command_offset, area_offset, vdso)?;
    install(filter, AllThreads::No)?;
    // SAFETY: the stub's code is mapped there; it uses no memory of this program.
    unsafe {
        core::arch::asm!(
            "jmp {entry}",
            entry = in(reg) stub::address(Symbol::Zygote),
            in("r12") 0u64,
            in("r13") vdso_end(vdso),
            options(noreturn)
        )
    }
}

/// The stub's handler takes all signals from here on, and libc has registered nothing any more.
fn take_over_signals(rseq: Option<u64>) -> Result<()> {
    let handler = KernelSigaction {
        handler: stub::address(Symbol::Handler),
        // SA_RESTORER | SA_SIGINFO | SA_ONSTACK | SA_RESTART
        flags: 0x0400_0000 | 4 | 0x0800_0000 | 0x1000_0000,
        restorer: stub::address(Symbol::Restorer),
        mask: !0,
    };
    let all = !0u64;
    // SAFETY: every pointer is to a local; the process does not return to code that could miss what
    // is changed.
    unsafe {
        for s in HANDLED {
            sys!(RtSigaction, s, &raw const handler, 0, 8)?;
        }
        // Threads inherit it, and run no application code before they have put it back.
        sys!(RtSigprocmask, libc::SIG_SETMASK, &raw const all, 0, 8)?;
        if let Some(area) = rseq {
            // RSEQ_FLAG_UNREGISTER, glibc's size and signature.
            let _ = sys!(Rseq, area, 32, 1, 0x5305_3053u32);
        }
        sys!(SetRobustList, 0, 24)?;
    }
    Ok(())
}

/// Maps the stub's code, its command page and its first area, and moves the vDSO to its place.
fn map_stub(
    text: &HostFd,
    control: &HostFd,
    command_offset: u64,
    area_offset: u64,
    vdso: &[VdsoPiece],
) -> Result<()> {
    // SAFETY: every mapping goes to the stub's area, where this process has nothing.
    unsafe {
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let code = libc::PROT_READ | libc::PROT_EXEC;
        sys!(Mmap, stub::TEXT, stub::TEXT_LEN, code, fixed, text.raw(), 0)?;
        let (command, len) = (stub::COMMAND, stub::COMMAND_LEN);
        sys!(
            Mmap,
            command,
            len,
            libc::PROT_READ,
            fixed,
            control.raw(),
            command_offset
        )?;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        sys!(
            Mmap,
            stub::AREAS,
            stub::AREA_LEN,
            rw,
            fixed,
            control.raw(),
            area_offset
        )?;
        if let Some(lowest) = vdso.iter().map(|p| p.start).min() {
            for p in vdso {
                let to = stub::HOST_VDSO + (p.start - lowest);
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let _ = sys!(Mremap, p.start, p.len, p.len, flags, to);
            }
        }
    }
    Ok(())
}

/// Where libc registered this thread's rseq area: the kernel would write there after it is
/// unmapped.
fn rseq_area() -> Option<u64> {
    // SAFETY: a NUL-terminated name; the symbol, where it exists, is a `ptrdiff_t`.
    let offset = unsafe {
        let p = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        (!p.is_null()).then(|| p.read())
    }?;
    let thread: u64;
    // SAFETY: on x86-64 the thread control block's first word points to itself.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly)) };
    Some(thread.wrapping_add_signed(offset as i64))
}
