//! Code that lives inside each application address space.
//!
//! It is position-independent, uses **no memory but registers** outside the signal handler, and is
//! mapped read-only and executable at [`TEXT`], above what an application may map. Three kinds of
//! thread run it:
//!
//! - the **spawner**, the process's first thread: sleeps on a futex in the command page and clones
//!   what the Sentry asks for (new processes in the zygote, threads elsewhere). It has no listener
//!   of its own, because a thread that has one cannot make threads that get theirs. It tells a new
//!   thread's id by the position (lseek) of a file: all memory that it can write, application code
//!   can write, too.
//! - the **service thread**: makes the memory calls. Application code never runs on it. It takes
//!   batches of calls from the command page and hands the result back as arguments of the next
//!   notification, so that the application can falsify neither (the page is read-only here,
//!   registers are its own).
//! - **application threads**: run application code; they come here through signals
//!   ([`Symbol::Handler`]).
//!
//! All signals are blocked but on application threads that have run: a thread gets its mask from
//! its first frame, when its filter is on.
//!
//! Every instruction here may be jumped to by the application. That is harmless: on an application
//! thread the filter allows from here only rt_sigreturn, exit, sched_yield, FUTEX_WAKE, the
//! thread's own CPU time, and what asks the Sentry: the event call, and the slow lane's one
//! instruction, whose calls are treated as application code's.
//!
//! | where | what |
//! |---|---|
//! | `code.rs`, `code/*.s` | the code: zygote and spawner, threads, lanes |
//! | [`lane`] | what lanes are, and where in their code a thread may be stopped |
//! | [`area`] | a thread's area |
//! | [`read_slots`] | what the Sentry lays beside a program |
//!
//! ## Command page (read-only here, written by the Sentry)
//!
//! | offset | what |
//! |---|---|
//! | 0 | `u32` sequence: the spawner's futex |
//! | 8 | the spawner's operation: 1 process, 2 thread |
//! | 16.. | clone flags; 0; a thread's start address or a process's area offset; thread area; command page offset; control fd |
//! | 128 | how many descriptors have a slot at [`READ_SLOTS`] |
//! | 256.. | service batch: up to [`BATCH_MAX`] entries of 7 words: number and six arguments |
//! | 8192.. | counts of who waits for futexes: [`WAITERS`] |
#![no_std]

pub mod area;
mod code;
pub mod lane;
pub mod read_slots;

pub use code::{Symbol, address, image};

/// Where the stub's code is mapped.
pub const TEXT: u64 = 0x7ffe_0000_0000;
/// The length of the code mapping.
pub const TEXT_LEN: u64 = 0x2000;
/// Within [`TEXT`]: the filters' instructions, after the code.
pub const FILTERS: u64 = TEXT + 0x1000;
/// Where the command page of the address space is mapped, read-only.
pub const COMMAND: u64 = 0x7ffe_1000_0000;
/// The length of the command page, with the page of waiters.
pub const COMMAND_LEN: u64 = 0x3000;
/// How many wait for futexes of the process alone, by [`waiters_slot`]: `u32` each, behind the
/// command page.
pub const WAITERS: u64 = 0x2000;
/// How many counts there are.
pub const WAITERS_SLOTS: u64 = 1024;

/// Where those are counted that wait for the word at this address.
#[must_use]
pub const fn waiters_slot(va: u64) -> u64 {
    (va >> 2 ^ va >> 12) & (WAITERS_SLOTS - 1)
}
/// Trampolines of patched call sites, read-only and executable; see [`lane`].
pub const TRAMPOLINES: u64 = 0x7ffe_3000_0000;
/// What is answered beside the Sentry, read-write; see [`lane`] and [`read_slots`].
pub const READ_SLOTS: u64 = 0x7ffe_3800_0000;
/// Thread areas, read-write: area `i` is at `AREAS + i * AREA_LEN`.
pub const AREAS: u64 = 0x7ffe_4000_0000;
/// The size and alignment of a thread area: alternate signal stack and the words below.
pub const AREA_LEN: u64 = 0x8000;
/// Where the host's vDSO and its data are moved to, if they could be.
pub const HOST_VDSO: u64 = 0x7ffe_2000_0000;
/// Everything of the stub's lies in `[LOW, HIGH)`.
pub const LOW: u64 = TEXT;
/// See [`LOW`].
pub const HIGH: u64 = 0x7fff_0000_0000;

/// The number of the event call: not a Linux system call.
pub const EVENT_NR: u32 = 0x1c15;

/// In the reply to an event: end the thread.
pub const REPLY_EXIT: u64 = 1;
/// In the reply to an event: load FS and GS bases from the thread area first.
pub const REPLY_BASES: u64 = 2;
/// In the reply to an event: note the thread's CPU time in its area.
pub const REPLY_CLOCK: u64 = 4;

/// In the position of the file that tells what the spawner's clone(2) of a thread gave (its id):
/// set where it failed, above the errno.
pub const FAILED_BIT: u32 = 32;

/// Spawner operation: a new process.
pub const OP_PROCESS: u64 = 1;
/// Spawner operation: a new thread.
pub const OP_THREAD: u64 = 2;
/// The zygote's operation: a new file whose position will tell of the start of threads.
pub const OP_POSITION: u64 = 3;

/// Offset of the spawner's operation in the command page.
pub const CMD_OP: u64 = 8;
/// Offset of the spawner's arguments.
pub const CMD_ARGS: u64 = 16;
/// Offset of the service batch.
pub const CMD_BATCH: u64 = 256;
/// Entries in a service batch.
pub const BATCH_MAX: usize = ((WAITERS - CMD_BATCH) / 56) as usize;
const _: () = assert!(WAITERS + 4 * WAITERS_SLOTS == COMMAND_LEN);

/// Offset of how many descriptors have a slot at [`READ_SLOTS`]: `u32`, 0 where nothing is mapped
/// there.
pub const CMD_READ_SLOTS: u64 = 0x80;

/// The event argument of a thread that has just started.
pub const EVENT_START: u64 = 0x100;
/// The event argument of a thread that has waited long enough for the answer to what lies in its
/// mailbox.
pub const EVENT_PARK: u64 = 0x102;
/// The event argument of the service thread.
pub const EVENT_SERVICE: u64 = 0x101;
/// Where the `sock_fprog` of application threads lies.
pub const APP_PROG: u64 = FILTERS;
/// Where the `sock_fprog` of the service thread lies.
pub const SERVICE_PROG: u64 = FILTERS + 16;
/// Where the filters' instructions start.
pub const FILTER_CODE: u64 = FILTERS + 32;
