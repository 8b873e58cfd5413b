//! Running application code.
//!
//! A [`Platform`] makes [`AddressSpace`]s; an address space holds host mappings (a cache that the memory
//! manager fills and drops) and [`AppThread`]s. The trait assumes neither a host process per address space
//! nor signals, so that KVM fits beside [`notify`] and [`ptrace`].
//!
//! One Sentry thread drives one `AppThread`: it resumes the application with [`AppThread::run`] and gets the
//! next [`Event`]. All lanes end in the same events.

pub mod frame;
mod kick;
pub mod lane;
pub mod notify;
pub mod offers;
mod process;
pub mod ptrace;
mod recycle;
pub mod sites;
mod words;
mod zygote;

use abi::{AltStack, Result};
use hostcall::RawFd;
use std::sync::Arc;

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

/// What calls give that are answered where they are made, as long as the Sentry says nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    words: [u32; stub::lane::WORDS],
    names: Names,
}

/// `struct new_utsname`: what uname(2) gives.
pub type Names = [u8; stub::area::NAMES_LEN as usize];

impl Local {
    /// `word` gives the answer to a call, by its number, where it may be given: 0 for those that are done and have no
    /// answer of their own. Calls that share a word ([`lane::LOCAL`]) give the same, or one of them `None`.
    #[must_use]
    pub fn new(mut word: impl FnMut(u32) -> Option<u32>) -> Local {
        let mut words = [None; stub::lane::WORDS];
        for (nr, _, at) in stub::lane::LOCAL {
            let w = word(nr).unwrap_or(stub::lane::ASK);
            let slot = &mut words[((at - stub::area::PID) / 4) as usize];
            *slot = Some(match *slot {
                Some(stub::lane::ASK) => stub::lane::ASK,
                _ => w,
            });
        }
        Local {
            words: words.map(|w| w.unwrap_or(stub::lane::ASK)),
            names: [0; stub::area::NAMES_LEN as usize],
        }
    }

    /// What uname(2) gives, if it is answered.
    #[must_use]
    pub fn with_names(self, names: Names) -> Local {
        Local { names, ..self }
    }
}

/// Makes address spaces.
pub trait Platform: Send + Sync {
    /// The name that `--platform` takes.
    fn name(&self) -> &'static str;
    /// An empty address space: only the stub's own area is mapped.
    fn new_address_space(&self) -> Result<Arc<dyn AddressSpace>>;
    /// Where it is counted who is awake and who spins; `None` where nobody spins. Each task counts itself there.
    fn spinners(&self) -> Option<Arc<wait::Spinners>> {
        None
    }
    /// Where the host's vDSO image is mapped in every address space, if it is: our own vDSO may call it.
    fn host_vdso(&self) -> Option<u64> {
        None
    }
    /// A descriptor that becomes readable when the platform can make no address spaces any more: a process
    /// that it needs has ended. The sandbox must end then.
    fn end(&self) -> Option<RawFd> {
        None
    }
    /// Waits until nothing is mapped any more of address spaces that were dropped before, `limit` at most; whether
    /// that came about.
    fn settle(&self, _limit: std::time::Duration) -> bool {
        true
    }
}

/// A change of an address space's host mappings. Ranges are page-aligned and lie in
/// `[USER_MIN, USER_MAX)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapOp {
    /// Maps `[va, va + len)` from the descriptor, replacing what was there. `Shared`: writes go to the file
    /// (the memory file always); `Private`: never writable here, only read (and executed).
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

/// One application's address space on the host.
pub trait AddressSpace: Send + Sync {
    /// Applies the changes in order, in as few hand-overs as possible. Stops at the first that fails, but for
    /// advice, and gives its error (`ENOMEM`: the host's mapping count or memory is exhausted; the caller drops mappings
    /// and tries again; `ESRCH`: the application side is gone).
    fn apply(&self, ops: &[MapOp]) -> Result<()>;
    /// A new thread in this address space. It runs nothing until the Sentry thread that owns it calls
    /// [`AppThread::run`].
    fn new_thread(&self) -> Result<Box<dyn AppThread>>;
    /// Ends every thread of it, wherever they are: their `run` gives [`Event::Gone`].
    fn kill(&self);
    /// Whether [`AddressSpace::kill`] was called, by the platform itself or by others, and has ended it: else, if its
    /// threads are gone, the host has.
    fn was_killed(&self) -> bool {
        true
    }
    /// Nobody needs it any more, and no thread of it will run: soon after it is dropped, nothing of what it had
    /// mapped is mapped any more; then `then` is called, by whatever thread. Where that gives back many `bytes`, it
    /// has come about when the address space is dropped.
    fn retire(&self, bytes: u64, then: Box<dyn FnOnce() + Send>);
    /// Makes a trampoline for a call site, which is live from now on: gives the address of the pointer to it, for
    /// [`sites::jump`]. `None` where the platform has no lanes, or no more trampolines.
    fn add_site(&self, _site: sites::Site) -> Option<u32> {
        None
    }
    /// The sites of `r` are live no more. The caller has unmapped their pages, and maps them again, with what was
    /// there before, afterwards: this returns when no thread stands at a place that only a live site explains.
    fn retire_sites(&self, _r: std::ops::Range<u64>) {}
    /// There are no lanes any more: no site is live, and what lies at the table's place is unmapped.
    fn drop_sites(&self) {}
    /// The sites that have trampolines.
    fn sites(&self) -> Option<Arc<sites::Sites>> {
        None
    }
    /// Gives this address space, where nothing has run yet, the sites of the one that it is made a copy of.
    fn inherit_sites(&self, _parent: &Arc<sites::Sites>) -> Result<()> {
        Ok(())
    }
    /// Where what its reads may find is offered, and changes of an epoll are laid: mapped now if it was not. `None` where
    /// the platform has no lanes, or [`AddressSpace::end_offers`] was called first.
    fn offers(&self) -> Option<Arc<offers::Area>> {
        None
    }
    /// Nothing is offered here any more, for as long as it lives: the Sentry is asked.
    fn end_offers(&self) {}
    /// How much there is to be read is not told here any more: the Sentry is asked (ioctl(2) with FIONREAD).
    fn end_counts(&self) {}
    /// One more (`1`), or one less (`-1`), waits for a futex word of this address space: counted before the word is looked
    /// at. Where nobody waits, a wake-up may do nothing without the Sentry.
    fn count_waiter(&self, _va: u64, _by: i32) {}
    /// CPU time that its threads have used on the host, in nanoseconds; 0 where that cannot be told.
    fn cpu_nanos(&self) -> u64 {
        0
    }
}

/// The general registers, in the order of the kernel's `struct user_regs_struct`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// It faulted (or trapped): the signal that Linux would raise, its code, and the address for memory
    /// faults. For SIGSEGV, `error` holds the x86 page-fault error code (bit 1: write, bit 4: fetch).
    Fault {
        signal: i32,
        code: i32,
        addr: u64,
        error: u64,
    },
    /// [`Interrupter::interrupt`] was called, or registers were asked for: it stands still, registers known.
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

    /// As [`AppThread::run`]; the caller's wake-ups that wait are made when the application has been let go on, before
    /// anybody waits for it; by a platform that does not know when that is, before.
    fn run_then_wake(&mut self, held: Option<wait::wakes::Hold>) -> Event {
        drop(held);
        self.run()
    }

    /// The result of the system call that stopped it: `rax` when it goes on.
    fn set_return(&mut self, value: u64);

    /// Whether the registers are known now. After [`Event::Syscall`] on a lane that carries only arguments
    /// they are not; after every other event they are.
    fn has_regs(&self) -> bool;

    /// After a system call whose registers are not known: lets it return (with the value set), stops it at
    /// once, before any application instruction, and gives [`Event::Interrupted`] (or `Gone`). Where they
    /// are known: gives `Interrupted` at once.
    fn fetch_regs(&mut self) -> Event;

    /// Makes sure that the thread stands still until [`AppThread::run`]: on a lane where it waits for its call's
    /// result by looking for it, it only says so. `Gone` where that cannot be had, else `Interrupted`.
    fn hold(&mut self) -> Event {
        Event::Interrupted
    }

    /// The registers. After a system call, `rax` is what `set_return` set, and `orig_rax` its number.
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
    /// Replaces it; an empty or malformed one gives `EINVAL` and, as on Linux, changes nothing. `None`
    /// resets it to the initial state (execve).
    fn set_fp_state(&mut self, state: Option<&[u8]>) -> Result<()>;

    /// The address behind a `syscall` instruction that is run often and not patched, once: the event just given
    /// came from it.
    fn hot_site(&mut self) -> Option<u64> {
        None
    }
    /// Whether the call just given came from a patched site.
    fn by_lane(&self) -> bool {
        false
    }
    /// The call just given could have been answered where it was made: notes its site. As [`AppThread::hot_site`], where
    /// it has become hot by that.
    fn note_site(&mut self) -> Option<u64> {
        None
    }
    /// The call just given would have been answered where it was made, but memory that it names was not mapped on the
    /// host: the access that failed there, by address and the processor's error code.
    fn missed(&mut self) -> Option<(u64, u64)> {
        None
    }
    /// Whether calls are ever answered where they are made.
    fn answers(&self) -> bool {
        false
    }
    /// What calls give that are answered where they are made; `None`: the Sentry is asked.
    fn publish(&mut self, _local: Option<Local>) {}
    /// Before [`AppThread::run`]: the blocked signals, and how to know which wait and may be for this thread. The
    /// application may change what it blocks without the Sentry, as long as nothing waits that it blocks no more;
    /// [`Interrupter::mask`] tells, and [`AppThread::mask`] when it has come out.
    fn put_mask(&mut self, _mask: u64, _pending: &dyn Fn() -> u64) {}
    /// What the application blocks by now; `None` where only the Sentry changes that. Any number may come.
    fn mask(&self) -> Option<u64> {
        None
    }

    /// Before [`AppThread::run`]: its alternate signal stack. The application may change it without the Sentry;
    /// [`AppThread::stack`] tells when it has come out.
    fn put_stack(&mut self, _stack: &AltStack) {}
    /// The alternate signal stack by now; `None` where only the Sentry changes that. Anything may come.
    fn stack(&self) -> Option<AltStack> {
        None
    }

    /// Interrupts this thread from another.
    fn interrupter(&self) -> Arc<dyn Interrupter>;

    /// Tells the CPU time that this thread has used in application code.
    fn cpu_clock(&self) -> CpuClock;
}

/// A thread's CPU time in application code, nanoseconds; 0 when it has ended. May be asked from any thread.
pub type CpuClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Stops application code from another thread.
pub trait Interrupter: Send + Sync {
    /// Makes the thread's current or next stay in application code end with [`Event::Interrupted`], soon. May
    /// be called at any time; too many calls give at worst spurious events.
    fn interrupt(&self);
    /// As [`AppThread::publish`] of `None`, from another thread.
    fn withdraw_local(&self) {}
    /// As [`AppThread::mask`], of a thread in application code.
    fn mask(&self) -> Option<u64> {
        None
    }
    /// These signals wait, and it may be this thread that takes them when it blocks them no more: then it comes out. To
    /// be called between queueing and a look at [`Interrupter::mask`].
    fn note_pending(&self, _set: u64) {}
}
