//! Offsets in a thread area.

/// `stack_t` for sigaltstack(2).
pub const STACK_T: u64 = 0;
/// `u32`: set to 1 and futex-woken when the thread is up.
pub const READY: u64 = 0x20;
/// `u32`: how many calls got something by what is at [`super::READ_SLOTS`], wrapping.
pub const SLOT_HITS: u64 = 0x24;
/// `i32`: its notification descriptor.
pub const LISTENER: u64 = 0x28;
/// `i32`: what the zygote's clone(2) of a process gave.
pub const RESULT: u64 = 0x48;
/// `i32`: and its descriptor. In the zygote's area only.
pub const PIDFD: u64 = 0x4c;
/// `struct timespec`: the thread's CPU time, where the service thread's clock_gettime(2) puts it.
pub const CPU_TIME: u64 = 0x50;
/// FS base to load when the reply has [`super::REPLY_BASES`].
pub const FS_BASE: u64 = 0x38;
/// GS base, likewise.
pub const GS_BASE: u64 = 0x40;
/// The lane's words; see [`super::lane`]. `u32`: who is waited for.
pub const LANE_STATE: u64 = 0x60;
/// `u16`: the application's arithmetic flags, as `seto al; lahf` give them.
pub const LANE_FLAGS: u64 = 0x64;
/// The number of the call.
pub const LANE_NR: u64 = 0x68;
/// Where the call returns to.
pub const LANE_BACK: u64 = 0x70;
/// Its result.
pub const LANE_RESULT: u64 = 0x78;
/// Its six arguments.
pub const LANE_ARGS: u64 = 0x80;
/// What calls without arguments give: `u32` each, [`super::lane::ASK`] where the Sentry must be
/// asked.
pub const PID: u64 = 0xb0;
pub const TID: u64 = 0xb4;
pub const UID: u64 = 0xb8;
pub const EUID: u64 = 0xbc;
pub const GID: u64 = 0xc0;
pub const EGID: u64 = 0xc4;
pub const PPID: u64 = 0xc8;
pub const PGID: u64 = 0xcc;
pub const SID: u64 = 0xd0;
/// Whether rt_sigprocmask(2), futex(2), sched_yield(2), uname(2) and sigaltstack(2) may be done
/// where they are made: `u32` each, 0 where they may.
pub const MASKS_OPEN: u64 = 0xd4;
pub const WAKES_OPEN: u64 = 0xd8;
pub const YIELDS_OPEN: u64 = 0xdc;
pub const NAMES_OPEN: u64 = 0xe0;
pub const STACKS_OPEN: u64 = 0xe4;
/// The blocked signals, while the thread is in application code.
pub const MASK: u64 = PID + 4 * super::lane::WORDS as u64;
/// Signals that wait and may be for this thread. What is not blocked of them, the Sentry must be
/// told of.
pub const PENDING: u64 = MASK + 8;
/// What is about to be the mask: once the old one has been given out, it is.
pub const NEW_MASK: u64 = PENDING + 8;
/// Where the words end that are zero, or [`super::lane::ASK`], in a new thread.
pub const WORDS_END: u64 = NEW_MASK + 8;
/// Which of the two at [`STACKS`] is the application's alternate signal stack, while the thread is
/// in application code: `u32`, 0 or [`super::lane::STACK_LEN`]. The other is made first, then this
/// changes: one step.
pub const STACK_AT: u64 = WORDS_END;
/// Two of `stack_t`.
pub const STACKS: u64 = STACK_AT + 8;
/// `struct new_utsname`: what uname(2) gives. Written while the thread is not in application code
/// only.
pub const NAMES: u64 = 0x140;
pub const NAMES_LEN: u64 = 6 * 65;
/// `struct timespec`: the thread's CPU time when it began to serve again, put there by
/// [`super::REPLY_CLOCK`].
pub const CPU_BEGIN: u64 = 0x2d0;
/// Where the first register frame (a `ucontext`) is laid out.
pub const FIRST_UC: u64 = 0x300;
/// Where FP state can be laid out by the Sentry; 64-byte aligned.
pub const FIRST_FP: u64 = 0x480;
/// The alternate stack lies in `[STACK, AREA_LEN)`.
pub const STACK: u64 = 0x480;
