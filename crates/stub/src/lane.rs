//! The lanes of patched call sites.
//!
//! A patched site jumps through the table at [`TABLE`] to its trampoline, which does what the
//! site's bytes did before, finds the thread's area by the GS base, and comes to `cloister_lane`
//! with where the call returns to. From there:
//!
//! - **local**: calls whose result stands in the thread's area, uname's among them, and four that
//!   are done here: rt_sigprocmask and sigaltstack, since mask and stack are in the area while the
//!   thread is in application code; a futex's wake-up where nobody waits; sched_yield;
//! - **read slots**: reads of what the Sentry has laid beside the program ([`super::read_slots`]),
//!   which the call then claims; how much there is to be read; and changes of an epoll that nobody
//!   else can look at, which it lays there for the Sentry;
//! - **mailbox**: where the thread of the Sentry's spins ([`SPINS`]), the call is laid into the
//!   area, and its answer awaited there; after [`PATIENCE`] rounds by the event call
//!   ([`super::EVENT_PARK`]);
//! - **slow**: else, and for calls that need all registers, a system call is made here, whose
//!   filter treats it as the application's.
//!
//! The code destroys rcx and r11, as system calls do, and nothing else: it touches no stack, and
//! keeps the flags. Everything that it reads from the area the application can forge; it can
//! thereby deceive itself.
//!
//! ## The state word
//!
//! ```text
//!        Sentry: will spin          site: asks                Sentry: answers
//!   0 ──────────────────► SPINS ──────────────► SPINS|ASKED ─────────────────► ANSWERED (|SPINS)
//!                           │ Sentry: gives up      │ site: waits no more            │ site: takes it
//!                           ▼                       ▼                                ▼
//!                           0                   ... | PARKED                       0 or SPINS
//! ```
//!
//! Every step is one atomic operation; who gives up spinning looks at what it took away.
//!
//! A signal may interrupt anywhere here. The application must never see that: its frame shows the
//! call either as not begun (its registers as before, at the site) or as done (behind the site,
//! with the result); which, [`Place`] tells.

use super::{TEXT, area};
use abi::nr;

/// Where the table of trampolines' addresses is mapped, read-only: in reach of an absolute 32-bit
/// operand. Its bytes in `jmp qword ptr [TABLE + 8 * i]` are chosen: where the `syscall`
/// instruction was, `int3` comes to lie.
pub const TABLE: u64 = 0x3fcc_0000;
/// Its length.
pub const TABLE_LEN: u64 = 0x1000;
/// Bytes of a trampoline.
pub const TRAMPOLINE_LEN: u64 = 64;
/// How many there are; with the table they fill a unit.
pub const TRAMPOLINES_MAX: usize = ((super::AREA_LEN - TABLE_LEN) / TRAMPOLINE_LEN) as usize;

/// The Sentry spins, or is about to look.
pub const SPINS: u32 = 1;
/// A call waits for its answer.
pub const ASKED: u32 = 2;
/// It has been given.
pub const ANSWERED: u32 = 4;
/// The application waits no more, but by the event call.
pub const PARKED: u32 = 8;
/// How often a site looks for its answer: some fifty microseconds.
pub const PATIENCE: u32 = 1500;

/// In place of a published number: ask the Sentry.
pub const ASK: u32 = u32::MAX;

/// How many numbers of calls [`KINDS_AT`] knows; others go slowly.
pub const KINDS: u64 = 512;
/// A byte for each call: 0 mailbox, [`KIND_TRAP`], what is below [`KINDS_SPECIAL`], else the offset
/// of its result in the thread's area, perhaps with [`KIND_OWN`].
pub const KINDS_AT: u64 = super::FILTERS + 0x0e00;
/// Never by the mailbox.
pub const KIND_TRAP: u8 = 1;
/// rt_sigprocmask(2).
pub const KIND_MASK: u8 = 2;
/// futex(2): wakes nobody where nobody waits.
pub const KIND_WAKE: u8 = 3;
/// sched_yield(2).
pub const KIND_YIELD: u8 = 4;
/// uname(2).
pub const KIND_NAMES: u8 = 5;
/// sigaltstack(2).
pub const KIND_STACK: u8 = 6;
/// Bytes of a `stack_t`.
pub const STACK_LEN: u64 = 24;
/// Linux's.
pub const SS_ONSTACK: u32 = 1;
pub const SS_DISABLE: u32 = 2;
pub const SS_AUTODISARM: u32 = 1 << 31;
pub const MINSIGSTKSZ: u64 = 2048;
/// Where those end that are no offsets.
pub const KINDS_SPECIAL: u8 = 16;
/// Only where the first argument is 0: the caller itself.
pub const KIND_OWN: u8 = 1;
/// read(2), recvfrom(2), epoll_ctl(2): by what is at [`super::READ_SLOTS`], if that answers them.
pub const KIND_READ: u8 = 8;
pub const KIND_RECV: u8 = 9;
pub const KIND_EPOLL_CTL: u8 = 10;
/// ioctl(2): the same, with FIONREAD.
pub const KIND_IOCTL: u8 = 11;
// `answers.s` and `lanes.s` choose by this order: what is above KIND_STACK and below KIND_READ
// would be taken for sigaltstack(2).
const _: () = {
    let kinds = [KIND_MASK, KIND_WAKE, KIND_YIELD, KIND_NAMES, KIND_STACK];
    let mut i = 1;
    while i < kinds.len() {
        assert!(kinds[i] == kinds[i - 1] + 1);
        i += 1;
    }
    assert!(KIND_STACK < KIND_READ && KIND_IOCTL == KIND_READ + 3 && KIND_IOCTL < KINDS_SPECIAL);
    let mut i = 0;
    while i < LOCAL.len() {
        let (_, kind, word) = LOCAL[i];
        assert!(kind <= KIND_STACK || word < 256 && kind as u64 & !(KIND_OWN as u64) == word);
        i += 1;
    }
};
/// Its number, and the command that asks how many bytes can be read.
pub const COUNTED: u32 = nr::IOCTL;
pub const FIONREAD: u32 = 0x541b;
/// These calls, with their kinds.
pub const SLOT_CALLS: [(u32, u8); 3] = [
    (nr::READ, KIND_READ),
    (nr::RECVFROM, KIND_RECV),
    (nr::EPOLL_CTL, KIND_EPOLL_CTL),
];
/// EPOLLEXCLUSIVE and EPOLLWAKEUP: the Sentry is asked.
pub const EPOLL_ODD: u32 = 0x3000_0000;
/// From here on nothing is read or written for the application: less than a page may be left of its
/// part of the address space.
pub const USER_END: u64 = 0x7ff0_0000_0000 - 0x1000;
const _: () = assert!(KINDS_AT + KINDS == TEXT + super::TEXT_LEN);
const _: () = assert!(area::SID < 256 && area::MASK.is_multiple_of(8));
const _: () = assert!(area::STACKS + 2 * STACK_LEN <= area::NAMES);
const _: () = assert!(area::NAMES + area::NAMES_LEN <= area::FIRST_UC);

/// How many words tell what is answered where it is made, from [`area::PID`] on.
pub const WORDS: usize = 14;

/// The calls that are answered where they are made, with their kinds, and their words: 0 or the
/// answer, or [`ASK`].
pub const LOCAL: [(u32, u8, u64); 15] = [
    (nr::RT_SIGPROCMASK, KIND_MASK, area::MASKS_OPEN),
    (nr::SCHED_YIELD, KIND_YIELD, area::YIELDS_OPEN),
    (nr::GETPID, area::PID as u8, area::PID),
    (nr::UNAME, KIND_NAMES, area::NAMES_OPEN),
    (nr::GETUID, area::UID as u8, area::UID),
    (nr::GETGID, area::GID as u8, area::GID),
    (nr::GETEUID, area::EUID as u8, area::EUID),
    (nr::GETEGID, area::EGID as u8, area::EGID),
    (nr::GETPPID, area::PPID as u8, area::PPID),
    (nr::GETPGRP, area::PGID as u8, area::PGID),
    (nr::GETPGID, area::PGID as u8 | KIND_OWN, area::PGID),
    (nr::GETSID, area::SID as u8 | KIND_OWN, area::SID),
    (nr::SIGALTSTACK, KIND_STACK, area::STACKS_OPEN),
    (nr::GETTID, area::TID as u8, area::TID),
    (nr::FUTEX, KIND_WAKE, area::WAKES_OPEN),
];

unsafe extern "C" {
    static cloister_lane: u8;
    static cloister_lane_nr: u8;
    static cloister_lane_flags: u8;
    static cloister_lane_chosen: u8;
    static cloister_lane_out: u8;
    static cloister_lane_mailbox: u8;
    static cloister_lane_asked: u8;
    static cloister_lane_answered: u8;
    static cloister_lane_slow: u8;
    static cloister_lane_called: u8;
    static cloister_lane_slots: u8;
    static cloister_lane_slots_saved: u8;
    static cloister_lane_slots_claimed: u8;
    static cloister_lane_slots_taken: u8;
    static cloister_lane_slots_change: u8;
    static cloister_lane_slots_laid: u8;
    static cloister_lane_mask: u8;
    static cloister_lane_mask_load: u8;
    static cloister_lane_mask_loaded: u8;
    static cloister_lane_mask_store: u8;
    static cloister_lane_mask_given: u8;
    static cloister_lane_wake: u8;
    static cloister_lane_yielded: u8;
    static cloister_lane_names: u8;
    static cloister_lane_names_store: u8;
    static cloister_lane_names_stored: u8;
    static cloister_lane_stack: u8;
    static cloister_lane_stack_store: u8;
    static cloister_lane_stack_stored: u8;
    static cloister_lane_stack_set: u8;
    static cloister_lane_stack_load: u8;
    static cloister_lane_stack_loaded: u8;
    static cloister_lane_stack_done: u8;
    static cloister_lane_end: u8;
}

/// Where in the lane's code a thread was stopped, and so where the application's state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not begun: the return address in rcx, all else in the registers.
    Entry,
    /// Not begun: the return address in the area.
    Back,
    /// Not begun: the call's number, too.
    Number,
    /// Not begun: the flags, too.
    Flags,
    /// Asked, and it may be answered: the first argument, too, is in the area.
    Asked,
    /// Not begun: all arguments are in the area. Where an access of the application's faults, the
    /// Sentry does the call.
    Saved,
    /// At the instruction behind the claim: it is done where the zero flag is set, else as
    /// [`Place::Saved`].
    Claimed,
    /// Done: the result is in the area, the arguments, too.
    Taken,
    /// As [`Place::Flags`], at an access to what the application's arguments point to: the Sentry
    /// does the call if that faults.
    Access,
    /// Done, with 0, as soon as the mask is what the area says that it will be. At an `int3`
    /// signals wait.
    Masked,
    /// Done: the result is in the area.
    Done,
    /// Done by a system call: the result is in rax, the flags in place.
    Called,
}

/// The address of the lane's code.
#[must_use]
pub fn entry() -> u64 {
    at(&raw const cloister_lane)
}

/// The instruction pointer that the slow lane's system calls show.
#[must_use]
pub fn called() -> u64 {
    at(&raw const cloister_lane_called)
}

fn at(symbol: *const u8) -> u64 {
    let begin = super::image().as_ptr();
    TEXT + (symbol.addr() - begin.addr()) as u64
}

/// The place of an instruction pointer; `None` outside of the lane's code.
#[must_use]
pub fn place(ip: u64) -> Option<Place> {
    // From the end on: the first border that is not above it.
    let borders = [
        (at(&raw const cloister_lane_end), None),
        (at(&raw const cloister_lane_stack_done), Some(Place::Done)),
        (
            at(&raw const cloister_lane_stack_loaded),
            Some(Place::Flags),
        ),
        (at(&raw const cloister_lane_stack_load), Some(Place::Access)),
        (at(&raw const cloister_lane_stack_set), Some(Place::Flags)),
        (at(&raw const cloister_lane_stack_stored), Some(Place::Done)),
        (
            at(&raw const cloister_lane_stack_store),
            Some(Place::Access),
        ),
        (at(&raw const cloister_lane_stack), Some(Place::Flags)),
        (at(&raw const cloister_lane_names_stored), Some(Place::Done)),
        (
            at(&raw const cloister_lane_names_store),
            Some(Place::Access),
        ),
        (at(&raw const cloister_lane_names), Some(Place::Flags)),
        (at(&raw const cloister_lane_yielded), Some(Place::Done)),
        (at(&raw const cloister_lane_wake), Some(Place::Flags)),
        (at(&raw const cloister_lane_mask_given), Some(Place::Masked)),
        (at(&raw const cloister_lane_mask_store), Some(Place::Access)),
        (at(&raw const cloister_lane_mask_loaded), Some(Place::Flags)),
        (at(&raw const cloister_lane_mask_load), Some(Place::Access)),
        (at(&raw const cloister_lane_mask), Some(Place::Flags)),
        (at(&raw const cloister_lane_slots_laid), Some(Place::Taken)),
        (
            at(&raw const cloister_lane_slots_change),
            Some(Place::Saved),
        ),
        (at(&raw const cloister_lane_slots_taken), Some(Place::Taken)),
        (
            at(&raw const cloister_lane_slots_claimed),
            Some(Place::Claimed),
        ),
        (at(&raw const cloister_lane_slots_saved), Some(Place::Saved)),
        (at(&raw const cloister_lane_slots), Some(Place::Flags)),
        (at(&raw const cloister_lane_called), Some(Place::Called)),
        (at(&raw const cloister_lane_slow), Some(Place::Flags)),
        (at(&raw const cloister_lane_answered), Some(Place::Done)),
        (at(&raw const cloister_lane_asked), Some(Place::Asked)),
        (at(&raw const cloister_lane_mailbox), Some(Place::Flags)),
        (at(&raw const cloister_lane_out), Some(Place::Done)),
        (at(&raw const cloister_lane_chosen), Some(Place::Flags)),
        (at(&raw const cloister_lane_flags), Some(Place::Number)),
        (at(&raw const cloister_lane_nr), Some(Place::Back)),
        (entry(), Some(Place::Entry)),
    ];
    borders.iter().find(|b| ip >= b.0).and_then(|b| b.1)
}
