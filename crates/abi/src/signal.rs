//! Signals (`signal(7)`).

use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A signal number, 1..=64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

impl Signal {
    #[must_use]
    pub const fn new(n: i32) -> Option<Signal> {
        if n >= 1 && n <= 64 {
            Some(Signal(n as u8))
        } else {
            None
        }
    }
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0 as i32
    }
    /// Real-time signals queue; the standard ones, 1..=31, are pending once.
    #[must_use]
    pub const fn is_realtime(self) -> bool {
        self.0 >= 32
    }
    #[must_use]
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 32] = [
            "",
            "SIGHUP",
            "SIGINT",
            "SIGQUIT",
            "SIGILL",
            "SIGTRAP",
            "SIGABRT",
            "SIGBUS",
            "SIGFPE",
            "SIGKILL",
            "SIGUSR1",
            "SIGSEGV",
            "SIGUSR2",
            "SIGPIPE",
            "SIGALRM",
            "SIGTERM",
            "SIGSTKFLT",
            "SIGCHLD",
            "SIGCONT",
            "SIGSTOP",
            "SIGTSTP",
            "SIGTTIN",
            "SIGTTOU",
            "SIGURG",
            "SIGXCPU",
            "SIGXFSZ",
            "SIGVTALRM",
            "SIGPROF",
            "SIGWINCH",
            "SIGIO",
            "SIGPWR",
            "SIGSYS",
        ];
        if self.0 < 32 {
            NAMES[self.0 as usize]
        } else {
            "SIGRT"
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_realtime() {
            write!(f, "SIGRT_{}", self.0 - 32)
        } else {
            f.write_str(self.name())
        }
    }
}

macro_rules! signals {
    ($($name:ident = $n:literal),* $(,)?) => { $(pub const $name: Signal = Signal($n);)* };
}
signals! {
    SIGHUP = 1, SIGINT = 2, SIGQUIT = 3, SIGILL = 4, SIGTRAP = 5, SIGABRT = 6, SIGBUS = 7, SIGFPE = 8,
    SIGKILL = 9, SIGUSR1 = 10, SIGSEGV = 11, SIGUSR2 = 12, SIGPIPE = 13, SIGALRM = 14, SIGTERM = 15,
    SIGSTKFLT = 16, SIGCHLD = 17, SIGCONT = 18, SIGSTOP = 19, SIGTSTP = 20, SIGTTIN = 21, SIGTTOU = 22,
    SIGURG = 23, SIGXCPU = 24, SIGXFSZ = 25, SIGVTALRM = 26, SIGPROF = 27, SIGWINCH = 28, SIGIO = 29,
    SIGPWR = 30, SIGSYS = 31,
}

/// `stack_t` of sigaltstack(2): an alternate signal stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AltStack {
    pub sp: u64,
    pub flags: u32,
    pub pad: u32,
    pub size: u64,
}

pub const SS_ONSTACK: u32 = 1;
pub const SS_DISABLE: u32 = 2;
pub const SS_AUTODISARM: u32 = 1 << 31;
/// The smallest alternate stack.
pub const MINSIGSTKSZ: u64 = 2048;

impl AltStack {
    /// What a container's first process has: none, and no flags. That is what is left by the
    /// runtimes that start one natively, whose threads have such stacks (execve keeps the flags).
    pub const FIRST: AltStack = AltStack {
        sp: 0,
        flags: 0,
        pad: 0,
        size: 0,
    };
    /// None (`sas_ss_reset`).
    pub const RESET: AltStack = AltStack {
        flags: SS_DISABLE,
        ..AltStack::FIRST
    };
    /// What execve(2) leaves of it: its flags (`begin_new_exec`).
    #[must_use]
    pub const fn after_exec(self) -> AltStack {
        AltStack {
            flags: self.flags,
            ..AltStack::FIRST
        }
    }
    /// Whether `sp` lies on it and it is not disarmed there (`on_sig_stack`).
    #[must_use]
    pub const fn holds(&self, sp: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && self.contains(sp)
    }
    /// Whether `sp` lies within it (`__on_sig_stack`).
    #[must_use]
    pub const fn contains(&self, sp: u64) -> bool {
        sp > self.sp && sp - self.sp <= self.size
    }
    #[must_use]
    pub const fn is_disabled(&self) -> bool {
        self.size == 0
    }
    /// What a thread has that asks for this one (`do_sigaltstack`) and has `old`, which is allowed
    /// whatever it is. The flags are kept as they were given.
    pub const fn checked(self, old: &AltStack) -> crate::Result<AltStack> {
        if self.sp == old.sp && self.size == old.size && self.flags == old.flags {
            return Ok(*old);
        }
        let (sp, size) = match self.flags & !SS_AUTODISARM {
            SS_DISABLE => (0, 0),
            0 | SS_ONSTACK if self.size < MINSIGSTKSZ => return Err(crate::errno::ENOMEM),
            0 | SS_ONSTACK => (self.sp, self.size),
            _ => return Err(crate::errno::EINVAL),
        };
        Ok(AltStack {
            sp,
            size,
            pad: 0,
            ..self
        })
    }
    /// What the call shows of it to a thread whose stack pointer is `sp` (`sas_ss_flags`).
    #[must_use]
    pub const fn shown(self, sp: u64) -> AltStack {
        let state = match self.is_disabled() {
            true => SS_DISABLE,
            false if self.holds(sp) => SS_ONSTACK,
            false => 0,
        };
        AltStack {
            flags: state | self.flags & SS_AUTODISARM,
            pad: 0,
            ..self
        }
    }
}

/// A set of signals: bit `n - 1` is signal `n`, as in the kernel's `sigset_t`.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct SigSet(pub u64);

impl SigSet {
    pub const EMPTY: SigSet = SigSet(0);
    pub const ALL: SigSet = SigSet(!0);
    /// SIGKILL and SIGSTOP: never blocked, ignored or caught.
    pub const UNBLOCKABLE: SigSet = SigSet((1 << 8) | (1 << 18));

    #[must_use]
    pub const fn of(s: Signal) -> SigSet {
        SigSet(1 << (s.0 - 1))
    }
    #[must_use]
    pub const fn contains(self, s: Signal) -> bool {
        self.0 & Self::of(s).0 != 0
    }
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    pub const fn insert(&mut self, s: Signal) {
        self.0 |= Self::of(s).0;
    }
    pub const fn remove(&mut self, s: Signal) {
        self.0 &= !Self::of(s).0;
    }
    #[must_use]
    pub const fn union(self, o: SigSet) -> SigSet {
        SigSet(self.0 | o.0)
    }
    #[must_use]
    pub const fn minus(self, o: SigSet) -> SigSet {
        SigSet(self.0 & !o.0)
    }
    /// The lowest-numbered signal in the set.
    #[must_use]
    pub const fn first(self) -> Option<Signal> {
        if self.0 == 0 {
            None
        } else {
            Some(Signal(self.0.trailing_zeros() as u8 + 1))
        }
    }
}

/// `siginfo_t`: 128 bytes. `fields` is the union `_sifields`, which starts at byte 16.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SigInfo {
    pub signo: i32,
    pub errno: i32,
    pub code: i32,
    pub pad: i32,
    pub fields: [u64; 14],
}

pub const SI_USER: i32 = 0;
pub const SI_KERNEL: i32 = 0x80;
pub const SI_QUEUE: i32 = -1;
pub const SI_TIMER: i32 = -2;
/// `mq_notify(2)`.
pub const SI_MESGQ: i32 = -3;
pub const SI_TKILL: i32 = -6;

impl SigInfo {
    #[must_use]
    pub const fn new(s: Signal, code: i32) -> SigInfo {
        SigInfo {
            signo: s.number(),
            errno: 0,
            code,
            pad: 0,
            fields: [0; 14],
        }
    }
    /// `kill(2)`, `tgkill(2)`, `sigqueue(3)`: who sent it.
    #[must_use]
    pub const fn from_sender(s: Signal, code: i32, pid: i32, uid: u32) -> SigInfo {
        let mut i = Self::new(s, code);
        i.fields[0] = (pid as u32 as u64) | ((uid as u64) << 32);
        i
    }
    /// SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP: where.
    #[must_use]
    pub const fn fault(s: Signal, code: i32, addr: u64) -> SigInfo {
        let mut i = Self::new(s, code);
        i.fields[0] = addr;
        i
    }
    /// SIGCHLD: `utime` and `stime` in clock ticks.
    #[must_use]
    pub const fn child(code: i32, pid: i32, uid: u32, status: i32) -> SigInfo {
        let mut i = Self::from_sender(SIGCHLD, code, pid, uid);
        i.fields[1] = status as u32 as u64;
        i
    }
    /// `si_pid`, where the union holds one.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.fields[0] as u32 as i32
    }
    /// `si_uid`, where the union holds one.
    #[must_use]
    pub const fn uid(&self) -> u32 {
        (self.fields[0] >> 32) as u32
    }
    #[must_use]
    pub const fn signal(&self) -> Option<Signal> {
        Signal::new(self.signo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::{EINVAL, ENOMEM};

    #[test]
    fn alternate_stacks_are_as_do_sigaltstack_makes_them() {
        let stack = |flags, size| AltStack {
            sp: 0x10_0000,
            flags,
            pad: !0,
            size,
        };
        let none = AltStack::FIRST;
        for flags in [0, SS_ONSTACK, SS_AUTODISARM, SS_ONSTACK | SS_AUTODISARM] {
            let s = stack(flags, MINSIGSTKSZ).checked(&none).unwrap();
            assert_eq!((s.sp, s.flags, s.pad, s.size), (0x10_0000, flags, 0, 2048));
            assert_eq!(stack(flags, MINSIGSTKSZ - 1).checked(&none), Err(ENOMEM));
            let armed = flags & SS_AUTODISARM == 0;
            let inside = [0x10_0001, 0x10_0000 + 2048];
            assert!(inside.iter().all(|sp| s.holds(*sp) == armed));
            let outside = [0, 0x10_0000, 0x10_0000 + 2049, u64::MAX];
            assert!(!outside.iter().any(|sp| s.holds(*sp)));
            let on = if armed { SS_ONSTACK } else { 0 };
            let disarms = flags & SS_AUTODISARM;
            assert_eq!(s.shown(0x10_0008).flags, on | disarms);
            assert_eq!(s.shown(8).flags, disarms);
        }
        for flags in [SS_DISABLE, SS_DISABLE | SS_AUTODISARM] {
            let s = stack(flags, 5).checked(&none).unwrap();
            assert_eq!((s.sp, s.flags, s.size), (0, flags, 0));
            assert_eq!(s.shown(8).flags, flags);
            assert!(!s.holds(8));
        }
        for flags in [3, 4, 1 << 30, SS_AUTODISARM | 3] {
            assert_eq!(stack(flags, 1 << 20).checked(&none), Err(EINVAL));
        }
        // What one has is allowed; the first process has flags that nothing else gives.
        assert_eq!(AltStack::FIRST.checked(&none), Ok(AltStack::FIRST));
        assert_eq!(AltStack::FIRST.checked(&AltStack::RESET), Err(ENOMEM));
        assert_eq!(AltStack::RESET.checked(&none), Ok(AltStack::RESET));
        assert_eq!(AltStack::FIRST.shown(8).flags, SS_DISABLE);
        let gone = stack(SS_AUTODISARM, 4096).after_exec();
        assert_eq!((gone.sp, gone.size, gone.flags), (0, 0, SS_AUTODISARM));
    }
}
