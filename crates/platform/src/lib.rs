//! Running application code.
//!
//! A [`Platform`] makes [`AddressSpace`]s; an address space holds host mappings (a cache that the
//! memory manager fills and drops) and [`AppThread`]s. The trait assumes neither a host process per
//! address space nor signals, so that KVM fits beside [`notify`] and [`ptrace`].
//!
//! One Sentry thread drives one `AppThread`: it resumes the application with [`AppThread::run`] and
//! gets the next [`Event`]. Fast paths are apart ([`lanes`]): a platform may have none.

pub mod frame;
pub mod lanes;
pub mod notify;
mod process;
pub mod ptrace;
pub mod xstate;

use abi::Result;
use hostcall::RawFd;
use lanes::{RemoteLanes, SpaceLanes, ThreadLanes};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The lowest address that an application may map (`vm.mmap_min_addr` is at most this).
pub const USER_MIN: u64 = 0x1_0000;
/// The end of the application's part of the address space. What lies above belongs to the stub.
pub const USER_MAX: u64 = 0x7ff0_0000_0000;

/// The addresses below [`USER_MAX`] that lanes need: what an application maps there ends them.
#[must_use]
pub const fn stub_table() -> std::ops::Range<u64> {
    stub::lane::TABLE..stub::lane::TABLE + stub::lane::TABLE_LEN
}

/// Which lanes beside a trapped call there are, where the platform has them and the CPU can do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Lanes {
    /// None: every call traps.
    None,
    /// Call sites are patched, and some calls answered without the Sentry.
    Local,
    /// And others may be laid into a mailbox.
    #[default]
    All,
    /// For tests: always, whatever the machine does.
    Mailbox,
}

impl Lanes {
    /// What of it can be: a site's code uses BMI2's rotation, which keeps the flags.
    fn possible(self) -> Lanes {
        if std::arch::is_x86_feature_detected!("bmi2") {
            self
        } else {
            Lanes::None
        }
    }
}

/// Makes address spaces.
pub trait Platform: Send + Sync {
    /// The name that `--platform` takes.
    fn name(&self) -> &'static str;
    /// An empty address space: only the stub's own area is mapped.
    fn new_address_space(&self) -> Result<Arc<dyn AddressSpace>>;
    /// Where it is counted who is awake and who spins; `None` where nobody spins. Each task counts
    /// itself there.
    fn spinners(&self) -> Option<Arc<wait::Spinners>> {
        None
    }
    /// Where the host's vDSO image is mapped in every address space, if it is: our own vDSO may
    /// call it.
    fn host_vdso(&self) -> Option<u64> {
        None
    }
    /// Whether [`AddressSpace::own_clocks`] can be had.
    fn has_own_clocks(&self) -> bool {
        true
    }
    /// A descriptor that becomes readable when the platform can make no address spaces any more: a
    /// process that it needs has ended. The sandbox must end then.
    fn end(&self) -> Option<RawFd> {
        None
    }
    /// Has `f` called once nothing has ended for a while after ends: what is remembered of them can
    /// be let go of. On a thread of the platform's, before it gives unused memory back to the host.
    /// Once.
    fn when_quiet(&self, _f: Box<dyn Fn() + Send + Sync>) {}
    /// Waits until nothing is mapped any more of address spaces that were dropped before, `limit`
    /// at most; whether that came about.
    fn wait_unmapped(&self, _limit: std::time::Duration) -> bool {
        true
    }
}

/// A change of an address space's host mappings. Ranges are page-aligned and lie in
/// `[USER_MIN, USER_MAX)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapOp {
    /// Maps `[va, va + len)` from the descriptor, replacing what was there. `Shared`: writes go to
    /// the file (the memory file always); `Private`: never writable here, only read (and executed).
    Map {
        va: u64,
        len: u64,
        prot: Prot,
        fd: RawFd,
        offset: u64,
        sharing: Sharing,
    },
    /// Drops what is mapped there; nothing mapped is no error.
    Unmap { va: u64, len: u64 },
    /// Changes the protection of what is mapped there; nothing may be unmapped inside.
    Protect { va: u64, len: u64, prot: Prot },
    /// `madvise(2)` of what is mapped there: only MADV_COLLAPSE, MADV_POPULATE_READ and _WRITE.
    Advise { va: u64, len: u64, advice: i32 },
}

/// How a host mapping relates to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    Shared,
    Private,
}

/// Protection bits with PROT_*'s numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Prot(pub u32);

impl Prot {
    pub const NONE: Prot = Prot(0);
    pub const READ: Prot = Prot(1);
    pub const WRITE: Prot = Prot(2);
    pub const EXEC: Prot = Prot(4);
    pub const RW: Prot = Prot(3);
    #[must_use]
    pub const fn contains(self, o: Prot) -> bool {
        self.0 & o.0 == o.0
    }
    #[must_use]
    pub const fn union(self, o: Prot) -> Prot {
        Prot(self.0 | o.0)
    }
    #[must_use]
    pub const fn without(self, o: Prot) -> Prot {
        Prot(self.0 & !o.0)
    }
}

/// What ended an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceEnd {
    /// [`AddressSpace::kill`], called by the platform itself or by others.
    Killed,
    /// The host: with this wait status, where it can be told.
    Host(Option<i32>),
}

/// One application's address space on the host.
pub trait AddressSpace: Send + Sync {
    /// Applies the changes in order, in as few hand-overs as possible. Stops at the first that
    /// fails, but for advice, and gives its error (`ENOMEM`: the host's mapping count or memory is
    /// exhausted; the caller drops mappings and tries again; `ESRCH`: the application side is
    /// gone).
    fn apply(&self, ops: &[MapOp]) -> Result<()>;
    /// A new thread in this address space. It runs nothing until the Sentry thread that owns it
    /// calls [`AppThread::run`].
    fn new_thread(&self) -> Result<Box<dyn AppThread>>;
    /// Ends every thread of it, wherever they are: their `run` gives [`Event::Gone`].
    fn kill(&self);
    /// What has ended it, where its threads are gone.
    fn end(&self) -> SpaceEnd {
        SpaceEnd::Killed
    }
    /// Nobody needs it any more, and no thread of it will run: soon after it is dropped, nothing of
    /// what it had mapped is mapped any more; then `then` is called, by whatever thread. Where that
    /// gives back many `bytes`, it has come about when the address space is dropped.
    fn retire(&self, bytes: u64, then: Box<dyn FnOnce() + Send>);
    /// CPU time that its threads have used on the host, in nanoseconds; 0 where that cannot be
    /// told.
    fn cpu_nanos(&self) -> u64 {
        0
    }
    /// From here on the application asks the Sentry for the time of clocks that can be shifted: no
    /// image of the host's answers. `EOPNOTSUPP` where that cannot be had.
    fn own_clocks(&self) -> Result<()> {
        Ok(())
    }
    /// Its fast paths; `None` where it has none.
    fn lanes(&self) -> Option<&dyn SpaceLanes> {
        None
    }
}

/// The general registers: the kernel's `struct user_regs_struct`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Regs {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// The page-fault error code where the platform cannot tell it.
pub const ERROR_UNKNOWN: u64 = 1 << 63;

/// Why application code stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It made a system call. `ip` is the address after the instruction.
    Syscall { nr: u64, args: [u64; 6], ip: u64 },
    /// It faulted (or trapped): the signal that Linux would raise, its code, and the address for
    /// memory faults. For SIGSEGV, `error` holds the x86 page-fault error code (bit 1: write, bit
    /// 4: fetch).
    Fault {
        signal: i32,
        code: i32,
        addr: u64,
        error: u64,
    },
    /// [`Interrupter::interrupt`] was called, or registers were asked for: it stands still,
    /// registers known.
    Interrupted,
    /// It made a system call in a way that x86-64 applications do not (int 0x80, x32).
    ForeignSyscall,
    /// The application side died (killed from outside, or it destroyed its own stub).
    Gone,
}

/// One application thread, driven by one Sentry thread.
pub trait AppThread: Send {
    /// Resumes the application until the next event. The result of a system call is what
    /// [`AppThread::set_return`] set (0 if it was not called).
    fn run(&mut self) -> Event;

    /// The result of the system call that stopped it: `rax` when it goes on.
    fn set_return(&mut self, value: u64);

    /// Whether the registers are known now. After [`Event::Syscall`] on a lane that carries only
    /// arguments they are not; after every other event they are.
    fn has_regs(&self) -> bool;

    /// After a system call whose registers are not known: lets it return (with the value set),
    /// stops it at once, before any application instruction, and gives [`Event::Interrupted`] (or
    /// `Gone`). Where they are known: gives `Interrupted` at once.
    fn fetch_regs(&mut self) -> Event;

    /// Makes sure that the thread stands still until [`AppThread::run`]: on a lane where it waits
    /// for its call's result by looking for it, it only says so. `Gone` where that cannot be had,
    /// else `Interrupted`.
    fn hold(&mut self) -> Event {
        Event::Interrupted
    }

    /// The registers. After a system call, `rax` is what `set_return` set, and `orig_rax` its
    /// number.
    ///
    /// # Panics
    /// Where [`AppThread::has_regs`] is false.
    fn regs(&self) -> Regs;
    /// Replaces the registers (untrusted values are made safe: flags, segments).
    ///
    /// # Panics
    /// As [`AppThread::regs`].
    fn set_regs(&mut self, regs: &Regs);

    /// The extended state in the XSAVE format of signal frames (legacy area, header, and the
    /// components of `xfeatures`), appended to `out`. Registers must be known.
    fn fp_state(&self, out: &mut Vec<u8>);
    /// Replaces it; an empty or malformed one gives `EINVAL` and, as on Linux, changes nothing.
    /// `None` resets it to the initial state (execve).
    fn set_fp_state(&mut self, state: Option<&[u8]>) -> Result<()>;

    /// Interrupts this thread from another.
    fn interrupter(&self) -> Arc<dyn Interrupter>;

    /// The CPU time that this thread uses.
    fn cpu_clock(&self) -> CpuClock;

    /// Its fast paths; `None` where it has none.
    fn lanes(&mut self) -> Option<&mut dyn ThreadLanes> {
        None
    }
}

/// A thread's CPU time, in nanoseconds. May be asked from any thread.
#[derive(Clone)]
pub struct CpuClock {
    /// In application code; 0 when the thread has ended.
    pub application: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// What the thread that runs it spun away while application code ran. It looked for the next
    /// call, which nobody asked for: a thread cannot use two CPUs.
    pub spun: Arc<AtomicU64>,
}

impl CpuClock {
    /// Of a thread for which nobody spins.
    pub fn new(application: impl Fn() -> u64 + Send + Sync + 'static) -> CpuClock {
        CpuClock {
            application: Arc::new(application),
            spun: Arc::default(),
        }
    }
}

/// Stops application code from another thread.
pub trait Interrupter: Send + Sync {
    /// Makes the thread's current or next stay in application code end with [`Event::Interrupted`],
    /// soon. May be called at any time; too many calls give at worst spurious events.
    fn interrupt(&self);
    /// The fast paths of the thread; `None` where it has none, or has ended.
    fn lanes(&self) -> Option<&dyn RemoteLanes> {
        None
    }
}
