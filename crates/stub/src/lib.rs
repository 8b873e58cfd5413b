//! Code that lives inside each application address space.
//!
//! It is position-independent, uses **no memory but registers** outside the signal handler, and is mapped
//! read-only and executable at [`TEXT`], above what an application may map. Three kinds of thread run it:
//!
//! - the **spawner**, the process's first thread: sleeps on a futex in the command page and clones what the
//!   Sentry asks for (new processes in the zygote, threads elsewhere). It has no listener of its own, because
//!   a thread that has one cannot make threads that get theirs. It tells a new thread's id by the position
//!   (lseek) of a file: all memory that it can write, application code can write, too.
//! - the **service thread**: makes the memory calls. Application code never runs on it. It takes batches of
//!   calls from the command page and hands the result back as arguments of the next notification, so that
//!   the application can falsify neither (the page is read-only here, registers are its own).
//! - **application threads**: run application code; they come here through signals ([`Symbol::Handler`]).
//!
//! All signals are blocked but on application threads that have run: a thread gets its mask from its first
//! frame, when its filter is on.
//!
//! Every instruction here may be jumped to by the application. That is harmless: on an application thread
//! the filter allows from here only rt_sigreturn, exit, sched_yield, FUTEX_WAKE, the thread's own CPU time, and what asks
//! the Sentry: the event call, and the slow lane's one instruction, whose calls are treated as application code's.
//!
//! ## Command page (read-only here, written by the Sentry)
//!
//! | offset | what |
//! |---|---|
//! | 0 | `u32` sequence: the spawner's futex |
//! | 8 | the spawner's operation: 1 process, 2 thread |
//! | 16.. | clone flags; 0; a thread's start address or a process's area offset; thread area; command page offset; control fd |
//! | 128 | how many descriptors have a slot at [`OFFERS`] |
//! | 256.. | service batch: up to [`BATCH_MAX`] entries of 7 words: number and six arguments |
//! | 8192.. | counts of who waits for futexes: [`WAITERS`] |
#![no_std]

pub mod lane;

use abi::nr;
use core::arch::global_asm;

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
/// How many wait for futexes of the process alone, by [`waiters_slot`]: `u32` each, behind the command page.
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
/// What is answered beside the Sentry, read-write; see [`lane`] and [`offers`].
pub const OFFERS: u64 = 0x7ffe_3800_0000;
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

/// Offsets in a thread area.
pub mod area {
    /// `stack_t` for sigaltstack(2).
    pub const STACK_T: u64 = 0;
    /// `u32`: set to 1 and futex-woken when the thread is up.
    pub const READY: u64 = 0x20;
    /// `u32`: how many calls got something by what is at [`super::OFFERS`], wrapping.
    pub const OFFERED: u64 = 0x24;
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
    /// What calls without arguments give: `u32` each, [`super::lane::ASK`] where the Sentry must be asked.
    pub const PID: u64 = 0xb0;
    pub const TID: u64 = 0xb4;
    pub const UID: u64 = 0xb8;
    pub const EUID: u64 = 0xbc;
    pub const GID: u64 = 0xc0;
    pub const EGID: u64 = 0xc4;
    pub const PPID: u64 = 0xc8;
    pub const PGID: u64 = 0xcc;
    pub const SID: u64 = 0xd0;
    /// Whether rt_sigprocmask(2), futex(2), sched_yield(2), uname(2) and sigaltstack(2) may be done where they are made:
    /// `u32` each, 0 where they may.
    pub const MASKS_OPEN: u64 = 0xd4;
    pub const WAKES_OPEN: u64 = 0xd8;
    pub const YIELDS_OPEN: u64 = 0xdc;
    pub const NAMES_OPEN: u64 = 0xe0;
    pub const STACKS_OPEN: u64 = 0xe4;
    /// The blocked signals, while the thread is in application code.
    pub const MASK: u64 = 0xe8;
    /// Signals that wait and may be for this thread. What is not blocked of them, the Sentry must be told of.
    pub const PENDING: u64 = 0xf0;
    /// What is about to be the mask: once the old one has been given out, it is.
    pub const NEW_MASK: u64 = 0xf8;
    /// Where the words end that are zero, or [`super::lane::ASK`], in a new thread.
    pub const WORDS_END: u64 = 0x100;
    /// Which of the two at [`STACKS`] is the application's alternate signal stack, while the thread is in application
    /// code: `u32`, 0 or [`super::lane::STACK_LEN`]. The other is made first, then this changes: one step.
    pub const STACK_AT: u64 = 0x100;
    /// Two of `stack_t`.
    pub const STACKS: u64 = 0x108;
    /// `struct new_utsname`: what uname(2) gives. Written while the thread is not in application code only.
    pub const NAMES: u64 = 0x140;
    pub const NAMES_LEN: u64 = 6 * 65;
    /// `struct timespec`: the thread's CPU time when it began to serve again, put there by [`super::REPLY_CLOCK`].
    pub const CPU_BEGIN: u64 = 0x2d0;
    /// Where the first register frame (a `ucontext`) is laid out.
    pub const FIRST_UC: u64 = 0x300;
    /// Where FP state can be laid out by the Sentry; 64-byte aligned.
    pub const FIRST_FP: u64 = 0x480;
    /// The alternate stack lies in `[STACK, AREA_LEN)`.
    pub const STACK: u64 = 0x480;
}

/// In the reply to an event: end the thread.
pub const REPLY_EXIT: u64 = 1;
/// In the reply to an event: load FS and GS bases from the thread area first.
pub const REPLY_BASES: u64 = 2;
/// In the reply to an event: note the thread's CPU time in its area.
pub const REPLY_CLOCK: u64 = 4;

/// In the position of the file that tells what the spawner's clone(2) of a thread gave (its id): set where it failed,
/// above the errno.
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

/// Offset of how many descriptors have a slot at [`OFFERS`]: `u32`, 0 where nothing is mapped there.
pub const CMD_OFFERS: u64 = 0x80;

/// The area at [`OFFERS`]: what the Sentry offers to the address space's reads, and the changes of an epoll that lie
/// there for it. The application may write all of it.
pub mod offers {
    /// Its length.
    pub const LEN: u64 = 32 * super::AREA_LEN;
    /// `u32`: the descriptor of the epoll whose changes may lie here; [`NO_EPOLL`] for none.
    pub const EPOLL: u64 = 0;
    pub const NO_EPOLL: u32 = u32::MAX;
    /// `u32`: how many changes were ever laid here, and how many of them were taken.
    pub const LAID: u64 = 4;
    pub const TAKEN: u64 = 8;
    /// A byte for each descriptor: [`ASK`], [`OUT`] or [`IN`].
    pub const STATES: u64 = 0x100;
    /// The Sentry is asked.
    pub const ASK: u8 = 0;
    /// Not in the epoll's set.
    pub const OUT: u8 = 1;
    /// In its set.
    pub const IN: u8 = 2;
    /// The changes: `u32` operation, descriptor, events; data at [`RING_DATA`].
    pub const RING: u64 = 0x400;
    pub const RING_DATA: u64 = 16;
    pub const RING_ENTRY: u64 = 32;
    /// How many may lie there.
    pub const RING_LEN: u64 = 64;
    /// Descriptor `i`'s slot is at `SLOTS + i * SLOT_LEN`: a `u64` word, a `u32` that says where here the data are, one that
    /// says how many more bytes there are than those ([`UNTOLD`]: ask), and room for data.
    pub const SLOTS: u64 = 0x1000;
    pub const SLOT_SHIFT: u64 = 11;
    pub const SLOT_LEN: u64 = 1 << SLOT_SHIFT;
    pub const SLOT_AT: u64 = 8;
    pub const SLOT_BEHIND: u64 = 12;
    pub const SLOT_DATA: u64 = 64;
    pub const UNTOLD: u32 = u32::MAX;
    /// Room for more data than a slot has: smaller pieces, and larger ones behind them.
    pub const PIECES: u64 = SLOTS + COUNT * SLOT_LEN;
    pub const SMALL: u64 = 0x2000;
    pub const SMALL_COUNT: u64 = 24;
    pub const LARGE: u64 = 0x10000;
    pub const LARGE_COUNT: u64 = 5;
    /// How many descriptors have one.
    pub const COUNT: u64 = 240;
    /// In the word: there is an offer.
    pub const LIVE: u64 = 1;
    /// When all is taken, the answer is EAGAIN.
    pub const THEN_EMPTY: u64 = 2;
    /// Nothing more may be taken.
    pub const CLOSED: u64 = 4;
    /// A read of more than is left asks: there is more.
    pub const THEN_MORE: u64 = 8;
    /// Seventeen bits: bytes that were taken.
    pub const TAKEN_SHIFT: u64 = 4;
    /// Seventeen bits: bytes that there were.
    pub const LEN_SHIFT: u64 = 21;
    pub const LEN_MASK: u64 = 0x1_ffff;
    /// The rest: the offer's number, so that a claim is of the offer that was read.
    pub const NUMBER_SHIFT: u64 = 38;
    /// The most bytes of an offer in its slot, and of any.
    pub const OWN: u64 = SLOT_LEN - SLOT_DATA;
    pub const MAX: u64 = LARGE;
    const _: () = assert!(MAX <= LEN_MASK && COUNT <= RING - STATES);
    const _: () = assert!(RING + RING_LEN * RING_ENTRY <= SLOTS);
    const _: () = assert!(PIECES + SMALL_COUNT * SMALL + LARGE_COUNT * LARGE <= LEN);
    const _: () = assert!(super::OFFERS + LEN <= super::AREAS);
}

/// The event argument of a thread that has just started.
pub const EVENT_START: u64 = 0x100;
/// The event argument of a thread that has waited long enough for the answer to what lies in its mailbox.
pub const EVENT_PARK: u64 = 0x102;
/// The event argument of the service thread.
pub const EVENT_SERVICE: u64 = 0x101;

global_asm!(
    r#"
    .section .rodata.cloister_stub,"a",@progbits
    .balign 64
    .globl cloister_stub_begin
    .globl cloister_stub_end
    .globl cloister_stub_zygote
    .globl cloister_stub_thread
    .globl cloister_stub_thread_traced
    .globl cloister_stub_service
    .globl cloister_stub_handler
    .globl cloister_stub_restorer
    .globl cloister_stub_exit
    .globl cloister_lane
    .globl cloister_lane_nr
    .globl cloister_lane_flags
    .globl cloister_lane_chosen
    .globl cloister_lane_out
    .globl cloister_lane_mailbox
    .globl cloister_lane_asked
    .globl cloister_lane_answered
    .globl cloister_lane_slow
    .globl cloister_lane_called
    .globl cloister_lane_offers
    .globl cloister_lane_offers_saved
    .globl cloister_lane_offers_claimed
    .globl cloister_lane_offers_taken
    .globl cloister_lane_offers_change
    .globl cloister_lane_offers_laid
    .globl cloister_lane_mask
    .globl cloister_lane_mask_load
    .globl cloister_lane_mask_loaded
    .globl cloister_lane_mask_store
    .globl cloister_lane_mask_given
    .globl cloister_lane_wake
    .globl cloister_lane_yielded
    .globl cloister_lane_names
    .globl cloister_lane_names_store
    .globl cloister_lane_names_stored
    .globl cloister_lane_stack
    .globl cloister_lane_stack_store
    .globl cloister_lane_stack_stored
    .globl cloister_lane_stack_set
    .globl cloister_lane_stack_load
    .globl cloister_lane_stack_loaded
    .globl cloister_lane_stack_done
    .globl cloister_lane_end
    // The arguments of a system call, in the thread's area at r11.
    .macro save_args
    mov qword ptr [r11 + {l_args}], rdi
    mov qword ptr [r11 + {l_args} + 8], rsi
    mov qword ptr [r11 + {l_args} + 16], rdx
    mov qword ptr [r11 + {l_args} + 24], r10
    mov qword ptr [r11 + {l_args} + 32], r8
    mov qword ptr [r11 + {l_args} + 40], r9
    .endm
    .macro load_args
    mov rdi, qword ptr [r11 + {l_args}]
    mov rsi, qword ptr [r11 + {l_args} + 8]
    mov rdx, qword ptr [r11 + {l_args} + 16]
    mov r10, qword ptr [r11 + {l_args} + 24]
    mov r8, qword ptr [r11 + {l_args} + 32]
    mov r9, qword ptr [r11 + {l_args} + 40]
    .endm
    // The offer to the descriptor in eax: its slot in rdi, its word in rax. None that lives: 224.
    .macro find_offer
    shl eax, {slot_shift}
    movabs rdi, {slots}
    add rdi, rax
    mov rax, qword ptr [rdi]
    mov ecx, eax
    and ecx, {live} + {closed}
    cmp ecx, {live}
    jne 224b
    .endm
    // What is left of the offer with the word rax: so many bytes in r8d, behind r9d that were taken.
    .macro count_left
    mov r8, rax
    shr r8, {len_shift}
    and r8d, {len_mask}
    mov r9, rax
    shr r9, {taken_shift}
    and r9d, {len_mask}
    sub r8d, r9d
    jb 224b
    .endm
cloister_stub_begin:

    // ---- zygote: r12 = sequence already seen, r13 = end of the host's vDSO. Unmaps everything but the
    // stub's own pieces. What was the Sentry's may lie anywhere, also between them: its stack does.
    .macro unmap_to end
    movabs rsi, \end
    sub rsi, rdi
    mov eax, {nr_munmap}
    syscall
    test rax, rax
    jnz 33f
    .endm
cloister_stub_zygote:
    xor edi, edi
    unmap_to {text}
    movabs rdi, {text_end}
    unmap_to {command}
    movabs rdi, {command_end}
    unmap_to {host_vdso}
    mov rdi, r13
    unmap_to {areas}
    movabs rdi, {area0_end}
    unmap_to 0x7ffffffff000
    movabs r15, {command}
    jmp 20f

    // ---- spawner loop: r15 = command page, r12d = last sequence seen
20:
    mov eax, dword ptr [r15]
    cmp eax, r12d
    jne 21f
    mov rdi, r15
    xor esi, esi                    // FUTEX_WAIT (shared)
    mov edx, r12d
    xor r10d, r10d
    mov eax, {nr_futex}
    syscall
    jmp 20b
21:
    mov r12d, eax
    mov rbx, qword ptr [r15 + 8]    // operation
    mov rdi, qword ptr [r15 + 16]   // clone flags
    mov rdx, qword ptr [r15 + 24]   // parent tid address
    mov rbp, qword ptr [r15 + 32]   // start address
    mov r13, qword ptr [r15 + 40]   // thread area
    mov r14, qword ptr [r15 + 48]   // offset of the new command page
    mov r9,  qword ptr [r15 + 56]   // control descriptor
    cmp rbx, {op_position}
    jne 26f
    lea rdi, [rip + cloister_stub_position_name]
    mov esi, 1                      // MFD_CLOEXEC
    mov eax, {nr_memfd_create}
    syscall
    jmp 24f
26: xor esi, esi
    xor r10d, r10d
    mov r8, r9                      // tls argument: unused without CLONE_SETTLS; keeps r9 across
    mov eax, {nr_clone}
    syscall
    test rax, rax
    jz 23f
    cmp rbx, 2
    jne 24f
    mov rdi, r9                     // a thread: the result goes where no application code can write, into
    mov rsi, rax                    // a file's position; an error is above all thread ids
    test rax, rax
    jns 25f
    neg rsi
    bts rsi, {failed_bit}
25: mov ebx, eax
    xor edx, edx                    // SEEK_SET
    mov eax, {nr_lseek}
    syscall
    test ebx, ebx                   // a thread says itself that it is up
    jns 20b
24: mov dword ptr [r13 + {a_result}], eax
    mov dword ptr [r13 + {a_ready}], 1
    lea rdi, [r13 + {a_ready}]
    mov esi, 1                      // FUTEX_WAKE
    mov edx, 1
    mov eax, {nr_futex}
    syscall
    jmp 20b
23:
    cmp rbx, 2
    jne 22f
    jmp rbp                         // new thread
22:                                 // new process: map its own command page and first area over ours
    mov rdi, r15
    mov esi, {command_len}
    mov edx, 1                      // PROT_READ
    mov r10d, 0x11                  // MAP_SHARED | MAP_FIXED
    // r8 already holds the control descriptor
    mov r9, r14
    mov eax, {nr_mmap}
    syscall
    cmp rax, -4095
    jae 33f
    movabs rdi, {areas}
    mov esi, {area_len}
    mov edx, 3                      // PROT_READ | PROT_WRITE
    mov r9, rbp
    mov eax, {nr_mmap}
    syscall
    cmp rax, -4095
    jae 33f
    xor r12d, r12d
    jmp 20b

    // ---- application thread: r13 = its area
cloister_stub_thread:
    mov rdi, r13
    xor esi, esi
    mov eax, {nr_sigaltstack}
    syscall
    mov edi, 1                      // SECCOMP_SET_MODE_FILTER
    mov esi, {listener_flags}
    movabs rdx, {app_filter}
    mov eax, {nr_seccomp}
    syscall
    mov ebx, eax
    mov dword ptr [r13 + {a_listener}], eax
    mov dword ptr [r13 + {a_ready}], 1
    lea rdi, [r13 + {a_ready}]
    mov esi, 1                      // FUTEX_WAKE
    mov edx, 1
    mov eax, {nr_futex}
    syscall
    test ebx, ebx                   // without its filter it may not reach application code
    js 33f
    mov edi, {event_start}
    xor esi, esi
    lea rdx, [r13 + {a_first_uc}]
    mov r12, rdx
    jmp 30f

    // ---- application thread under ptrace: waits to be seized; the tracer sets its registers
cloister_stub_thread_traced:
    mov rdi, r13
    xor esi, esi
    mov eax, {nr_sigaltstack}
    syscall
    mov dword ptr [r13 + {a_ready}], 1
    lea rdi, [r13 + {a_ready}]
    mov esi, 1
    mov edx, 1
    mov eax, {nr_futex}
    syscall
40:
    lea rdi, [r13 + {a_ready}]
    xor esi, esi
    mov edx, 1
    xor r10d, r10d
    mov eax, {nr_futex}
    syscall
    jmp 40b

    // ---- signal handler: rdi = signal, rsi = siginfo, rdx = ucontext; on the alternate stack
cloister_stub_handler:
    mov r12, rdx
    mov r13, rsp
    and r13, -{area_len}
    lock and dword ptr [r13 + {l_state}], ~{spins}  // who spins shall look for this instead
    rdfsbase r10
    rdgsbase r8
30:
    mov eax, {event_nr}
    syscall
    test eax, eax                   // nobody answers: there is no filter, or no Sentry
    js 33f
    test eax, {reply_exit}
    jnz 33f
    test eax, {reply_bases}
    jz 32f
    mov rcx, qword ptr [r13 + {a_fs}]
    wrfsbase rcx
    mov rcx, qword ptr [r13 + {a_gs}]
    wrgsbase rcx
32:
    test eax, {reply_clock}
    jz 34f
    mov edi, 3                      // CLOCK_THREAD_CPUTIME_ID
    lea rsi, [r13 + {a_cpu_begin}]
    mov eax, {nr_clock_gettime}
    syscall
34:
    mov rsp, r12
cloister_stub_restorer:
    mov eax, {nr_rt_sigreturn}
    syscall
33:
cloister_stub_exit:
    xor edi, edi
    mov eax, {nr_exit}
    syscall
    hlt

    // ---- service thread: r13 = its area (used only to say that it is up)
cloister_stub_service:
    mov edi, 1
    mov esi, {listener_flags}
    movabs rdx, {service_filter}
    mov eax, {nr_seccomp}
    syscall
    mov ebx, eax
    mov dword ptr [r13 + {a_listener}], eax
    mov dword ptr [r13 + {a_ready}], 1
    lea rdi, [r13 + {a_ready}]
    mov esi, 1
    mov edx, 1
    mov eax, {nr_futex}
    syscall
    test ebx, ebx
    js 33b
    movabs r15, {command}
    xor r14d, r14d                  // last result
    xor ebp, ebp                    // index of the call that failed
50:
    mov edi, {event_service}
    mov rsi, r14
    mov rdx, rbp
    mov eax, {event_nr}
    syscall
    mov rbx, rax                    // number of calls in the batch
    xor r14d, r14d
    xor ebp, ebp
    lea r12, [r15 + 256]
51:
    cmp rbp, rbx
    jae 50b
    mov rax, qword ptr [r12]
    mov rdi, qword ptr [r12 + 8]
    mov rsi, qword ptr [r12 + 16]
    mov rdx, qword ptr [r12 + 24]
    mov r10, qword ptr [r12 + 32]
    mov r8,  qword ptr [r12 + 40]
    mov r9,  qword ptr [r12 + 48]
    syscall
    cmp rax, -4095
    jae 52f
    add r12, 56
    inc rbp
    jmp 51b
52:
    mov r14, rax
    jmp 50b

    // ---- lanes: see the module `lane`. r11 = the thread's area, rcx = where the call returns to; all else
    // is the application's. rcx and r11 are what a system call destroys.
cloister_lane:
    mov qword ptr [r11 + {l_back}], rcx
cloister_lane_nr:
    mov qword ptr [r11 + {l_nr}], rax
cloister_lane_flags:
    lahf
    seto al
    mov word ptr [r11 + {l_flags}], ax
cloister_lane_chosen:
    mov rax, qword ptr [r11 + {l_nr}]
    cmp rax, {kinds}
    jae 80f
    lea rcx, [rip + cloister_stub_begin + {kinds_at}]
    movzx ecx, byte ptr [rcx + rax]
    cmp ecx, {kind_trap}
    jb 70f
    je 80f
    mov eax, ecx
    sub eax, {kind_read}
    cmp eax, 4
    jb 220f
    cmp ecx, {kinds_special}
    jb 60f
    test cl, {kind_own}
    jz 61f
    test edi, edi                   // of the caller itself
    jnz 70f
    dec ecx
61:
    mov ecx, dword ptr [r11 + rcx]
    cmp ecx, {ask}
    je 70f
    mov qword ptr [r11 + {l_result}], rcx
cloister_lane_out:
    mov ax, word ptr [r11 + {l_flags}]
    add al, 0x7f
    sahf
    mov rcx, qword ptr [r11 + {l_back}]
    mov rax, qword ptr [r11 + {l_result}]
    jmp rcx
cloister_lane_mailbox:
70:
    cmp dword ptr [r11 + {l_state}], {spins}
    jne 80f
    save_args
    mov eax, {spins}
    mov ecx, {spins} + {asked}
    lock cmpxchg dword ptr [r11 + {l_state}], ecx
cloister_lane_asked:
    jne 80f
    mov ecx, {patience}
71:
    test dword ptr [r11 + {l_state}], {answered}
    jnz 74f
    pause
    dec ecx
    jnz 71b
72:
    lock or dword ptr [r11 + {l_state}], {parked}
    test dword ptr [r11 + {l_state}], {answered}
    jnz 74f
    mov edi, {event_park}
    mov eax, {event_nr}
    syscall
    rdgsbase r11
    mov rdi, qword ptr [r11 + {l_args}]
    test dword ptr [r11 + {l_state}], {answered}
    jz 72b
cloister_lane_answered:
74:
    lock and dword ptr [r11 + {l_state}], {spins}
    jmp cloister_lane_out
cloister_lane_slow:
80:
    lock and dword ptr [r11 + {l_state}], ~{spins}
    mov ax, word ptr [r11 + {l_flags}]
    add al, 0x7f
    sahf
    mov rax, qword ptr [r11 + {l_nr}]
    syscall
cloister_lane_called:
    rdgsbase r11
    mov rcx, qword ptr [r11 + {l_back}]
    jmp rcx

    // ---- reads of what is offered, and changes of an epoll: see the module `lane`. ecx = which.
cloister_lane_offers:
220:
    cmp ecx, {kind_recv}
    jb 221f
    ja 222f
    test r10d, r10d                 // recvfrom(2) with flags, or for the address, asks the Sentry
    jnz 70b
    test r8, r8
    jnz 70b
221:
    mov eax, edi
    jmp 223f
222:
    cmp ecx, {kind_ioctl}
    jne 231f
    cmp esi, {fionread}
    je 221b
    jmp 70b
231:
    mov eax, edx
223:
    movabs rcx, {command}
    cmp eax, dword ptr [rcx + {cmd_offers}]
    jae 70b
    save_args
cloister_lane_offers_saved:
    cmp dword ptr [r11 + {l_nr}], {nr_epoll_ctl}
    je 235f
    cmp dword ptr [r11 + {l_nr}], {nr_ioctl}
    je 240f
    jmp 225f
224:                                // not here: as if nothing had been tried
    load_args
    jmp 70b
225:                                // eax = the descriptor, rsi = buffer, rdx = its length
    find_offer
    movabs rcx, {user_end}          // nothing of the stub's is the application's
    cmp rsi, rcx
    jae 224b
    mov r8, rdx
    shr r8, 30
    jnz 224b
    test edx, edx
    jz 224b
    count_left
    jz 229f
    cmp edx, r8d
    jbe 232f
    test eax, {then_more}
    jnz 224b
    mov edx, r8d
232:
    lea r10, [rsi + rdx]
    cmp r10, rcx
    ja 224b
    mov ecx, dword ptr [rdi + {slot_at}]
    movabs r10, {offers}
    add r10, rcx
    add r9, r10
    mov r10d, edx
233:                                // the direction flag is the application's: no string instructions
    cmp r10d, 32
    jb 226f
    mov rcx, qword ptr [r9]
    mov r8, qword ptr [r9 + 8]
    mov qword ptr [rsi], rcx
    mov qword ptr [rsi + 8], r8
    mov rcx, qword ptr [r9 + 16]
    mov r8, qword ptr [r9 + 24]
    mov qword ptr [rsi + 16], rcx
    mov qword ptr [rsi + 24], r8
    add r9, 32
    add rsi, 32
    sub r10d, 32
    jmp 233b
226:
    cmp r10d, 8
    jb 227f
    mov rcx, qword ptr [r9]
    mov qword ptr [rsi], rcx
    add r9, 8
    add rsi, 8
    sub r10d, 8
    jmp 226b
227:
    test r10d, r10d
    jz 228f
    mov cl, byte ptr [r9]
    mov byte ptr [rsi], cl
    inc r9
    inc rsi
    dec r10d
    jmp 227b
228:
    mov ecx, edx
    mov qword ptr [r11 + {l_result}], rcx
    shl rcx, {taken_shift}
    add rcx, rax
    lock cmpxchg qword ptr [rdi], rcx
cloister_lane_offers_claimed:
    jne 224b
cloister_lane_offers_taken:
    inc dword ptr [r11 + {l_offered}]
230:
    load_args
    jmp cloister_lane_out
cloister_lane_offers_change:
229:
    test eax, {then_empty}
    jz 224b
    mov qword ptr [r11 + {l_result}], {eagain}
    jmp 230b
240:                                // FIONREAD: eax = the descriptor, rdx = where to. Done again, it is as it was.
    find_offer
    movabs rcx, {user_end}
    cmp rdx, rcx
    jae 224b
    count_left
    mov ecx, dword ptr [rdi + {slot_behind}]
    cmp ecx, {untold}
    je 224b
    add r8d, ecx
    cmp rax, qword ptr [rdi]        // both are of one offer
    jne 224b
    mov dword ptr [rdx], r8d
    mov qword ptr [r11 + {l_result}], 0
    inc dword ptr [r11 + {l_offered}]
    jmp 230b
235:                                // edi = epoll, esi = operation, eax = descriptor, r10 = event
    movabs r8, {offers}
    cmp edi, dword ptr [r8 + {o_epoll}]
    jne 224b
    cmp edi, dword ptr [rcx + {cmd_offers}]
    jae 224b
    movzx ecx, byte ptr [r8 + rax + {o_states}]
    mov edx, eax
    xor r9d, r9d
    xor edi, edi
    mov eax, {o_in}                 // the state behind it
    cmp esi, 2
    je 236f
    ja 237f
    cmp esi, 1
    jne 224b
    cmp ecx, {o_out}
    jne 224b
    jmp 238f
236:
    mov eax, {o_out}
    cmp ecx, {o_in}
    jne 224b
    jmp 239f
237:
    cmp esi, 3
    jne 224b
    cmp ecx, {o_in}
    jne 224b
238:
    movabs rcx, {user_end}
    cmp r10, rcx
    jae 224b
    mov r9d, dword ptr [r10]
    mov rdi, qword ptr [r10 + 4]
    test r9d, {odd}
    jnz 224b
239:
    mov ecx, dword ptr [r8 + {o_laid}]
    mov r10d, ecx
    sub r10d, dword ptr [r8 + {o_taken}]
    cmp r10d, {ring_len}
    jae 224b
    mov r10d, ecx
    and r10d, {ring_len} - 1
    shl r10d, 5
    lea r10, [r8 + r10 + {o_ring}]
    mov dword ptr [r10], esi
    mov dword ptr [r10 + 4], edx
    mov dword ptr [r10 + 8], r9d
    mov qword ptr [r10 + {ring_data}], rdi
    mov qword ptr [r11 + {l_result}], 0
    inc ecx
    mov dword ptr [r8 + {o_laid}], ecx
cloister_lane_offers_laid:
    inc dword ptr [r11 + {l_offered}]
    // What the Sentry finds there is done. It sets the state itself if this does not come to it.
    mov byte ptr [r8 + rdx + {o_states}], al
    jmp 230b
    // ---- calls with arguments that are done here. ecx = which.
cloister_lane_mask:
60:
    cmp ecx, {kind_wake}
    je 95f
    ja 94f
    // rt_sigprocmask(edi = how, rsi = set, rdx = old, r10 = length)
    cmp dword ptr [r11 + {l_masks_open}], 0
    jne 70b
    cmp r10, 8
    jne 70b
    test rsi, rsi
    jz 91f
    cmp edi, 2
    ja 70b
    lea rax, [rsi + 7]
    shr rax, 32
    cmp eax, {user_high}            // nothing of the stub's is the application's
    jae 70b
cloister_lane_mask_load:
    mov rcx, qword ptr [rsi]
cloister_lane_mask_loaded:
    cmp edi, 1
    ja 92f
    je 90f
    or rcx, qword ptr [r11 + {l_mask}]      // SIG_BLOCK
    jmp 92f
90: not rcx                                 // SIG_UNBLOCK
91: mov rax, qword ptr [r11 + {l_mask}]
    test rsi, rsi
    cmovz rcx, rax
    and rcx, rax
    jmp 93f
92: mov rax, qword ptr [r11 + {l_mask}]
93: btr rcx, 8                              // SIGKILL
    btr rcx, 18                             // SIGSTOP
    mov qword ptr [r11 + {l_new_mask}], rcx
    test rdx, rdx
    jz cloister_lane_mask_given
    lea rcx, [rdx + 7]
    shr rcx, 32
    cmp ecx, {user_high}
    jae 70b
cloister_lane_mask_store:
    mov qword ptr [rdx], rax
cloister_lane_mask_given:
    // From here on the call is done, but for what this code still does, or the Sentry in its place.
    mov rcx, qword ptr [r11 + {l_new_mask}]
    mov rax, rcx
    xchg qword ptr [r11 + {l_mask}], rax    // a fence: senders set the bit, then look at the mask
    not rcx
    test qword ptr [r11 + {l_pending}], rcx
    jnz 99f
    mov qword ptr [r11 + {l_result}], 0
    jmp cloister_lane_out
99: int3                                    // the Sentry makes it: done
    jmp 99b

cloister_lane_wake:
    // futex(rdi = word, esi = operation, ..., r9d = bits)
95:
    cmp dword ptr [r11 + {l_wakes_open}], 0
    jne 70b
    cmp esi, {wake_private}
    je 97f
    cmp esi, {wake_bits_private}
    jne 70b
    test r9d, r9d
    jz 70b
97:
    test edi, 3
    jnz 70b
    mov rcx, rdi
    shr rcx, 32
    cmp ecx, {user_high}
    jae 70b
    mov rax, rdi
    mov rcx, rdi
    shr rax, 2
    shr rcx, 12
    xor eax, ecx
    and eax, {waiters_slots} - 1
    mov qword ptr [r11 + {l_result}], 0
    lock or dword ptr [r11 + {l_wakes_open}], 0     // a fence: who waits counts itself, then looks at the word
    movabs rcx, {waiters}
    cmp dword ptr [rcx + 4 * rax], 0
    jne 70b
    jmp cloister_lane_out

94:
    cmp ecx, {kind_names}
    je 98f
    ja 120f

    // sched_yield()
96:
    cmp dword ptr [r11 + {l_yields_open}], 0
    jne 70b
    mov qword ptr [r11 + {l_result}], 0
    mov eax, {nr_yield}
    syscall
cloister_lane_yielded:
    rdgsbase r11
    jmp cloister_lane_out

cloister_lane_names:
    // uname(rdi = names)
98:
    cmp dword ptr [r11 + {l_names_open}], 0
    jne 70b
    lea rax, [rdi + {names_len} - 1]
    shr rax, 32
    cmp eax, {user_high}
    jae 70b
    mov qword ptr [r11 + {l_result}], 0
    xor ecx, ecx
cloister_lane_names_store:
127:
    mov rax, qword ptr [r11 + rcx + {l_names}]
    mov qword ptr [rdi + rcx], rax
    add ecx, 8
    cmp ecx, {names_len} - 6
    jb 127b
    mov eax, dword ptr [r11 + rcx + {l_names}]
    mov dword ptr [rdi + rcx], eax
    movzx eax, word ptr [r11 + rcx + {l_names} + 4]
    mov word ptr [rdi + rcx + 4], ax
cloister_lane_names_stored:
    jmp cloister_lane_out

cloister_lane_stack:
    // sigaltstack(rdi = new, rsi = old): one of both. rsp is the application's. What is not done here needs registers:
    // it traps.
120:
    cmp dword ptr [r11 + {l_stacks_open}], 0
    jne 80b
    mov rax, rdi
    test rdi, rdi
    cmovz rax, rsi
    add rax, {stack_len} - 1
    shr rax, 32
    cmp eax, {user_high}
    jae 80b
    mov qword ptr [r11 + {l_result}], 0
    mov ecx, dword ptr [r11 + {l_stack_at}]
    mov rax, rsp                            // on_sig_stack
    sub rax, qword ptr [r11 + rcx + {l_stacks}]
    jbe 121f
    cmp rax, qword ptr [r11 + rcx + {l_stacks} + 16]
    ja 121f
    test dword ptr [r11 + rcx + {l_stacks} + 8], {ss_autodisarm}
    mov eax, {ss_onstack}
    jz 122f
121:
    xor eax, eax
122:                                        // eax: SS_ONSTACK if it is on it
    test rdi, rdi
    jnz 124f
    test rsi, rsi
    jz cloister_lane_out
    cmp qword ptr [r11 + rcx + {l_stacks} + 16], 0
    jne 123f
    mov eax, {ss_disable}
123:
    test dword ptr [r11 + rcx + {l_stacks} + 8], {ss_autodisarm}
    jz cloister_lane_stack_store
    bts eax, 31
cloister_lane_stack_store:
    mov qword ptr [rsi + 8], rax            // and what pads it
    mov rax, qword ptr [r11 + rcx + {l_stacks}]
    mov qword ptr [rsi], rax
    mov rax, qword ptr [r11 + rcx + {l_stacks} + 16]
    mov qword ptr [rsi + 16], rax
cloister_lane_stack_stored:
    jmp cloister_lane_out
cloister_lane_stack_set:
124:
    // With both, what is given out may lie where the new one is read again if that faults.
    test rsi, rsi
    jnz 80b
    test eax, eax                           // EPERM
    jnz 80b
    xor ecx, {stack_len}
cloister_lane_stack_load:
    mov rax, qword ptr [rdi]
    mov qword ptr [r11 + rcx + {l_stacks}], rax
    mov rax, qword ptr [rdi + 16]
    mov qword ptr [r11 + rcx + {l_stacks} + 16], rax
    mov eax, dword ptr [rdi + 8]
cloister_lane_stack_loaded:
    mov qword ptr [r11 + rcx + {l_stacks} + 8], rax
    btr eax, 31                             // SS_AUTODISARM
    cmp eax, {ss_disable}
    ja 80b                                  // EINVAL
    je 125f
    cmp qword ptr [r11 + rcx + {l_stacks} + 16], {minsigstksz}
    jb 80b                                  // ENOMEM
    jmp 126f
125:
    mov qword ptr [r11 + rcx + {l_stacks}], 0
    mov qword ptr [r11 + rcx + {l_stacks} + 16], 0
126:
    mov dword ptr [r11 + {l_stack_at}], ecx
cloister_lane_stack_done:
    jmp cloister_lane_out
cloister_lane_end:
    hlt
cloister_stub_position_name:
    .asciz "cloister-start"

cloister_stub_end:
    .previous
    "#,
    text = const TEXT,
    text_end = const TEXT + TEXT_LEN,
    command = const COMMAND,
    command_end = const COMMAND + COMMAND_LEN,
    host_vdso = const HOST_VDSO,
    area0_end = const AREAS + AREA_LEN,
    failed_bit = const FAILED_BIT,
    op_position = const OP_POSITION,
    command_len = const COMMAND_LEN,
    app_filter = const APP_PROG,
    service_filter = const SERVICE_PROG,
    listener_flags = const LISTENER_FLAGS,
    a_listener = const area::LISTENER,
    a_ready = const area::READY,
    a_first_uc = const area::FIRST_UC,
    a_fs = const area::FS_BASE,
    a_gs = const area::GS_BASE,
    area_len = const AREA_LEN,
    areas = const AREAS,
    a_result = const area::RESULT,
    event_nr = const EVENT_NR,
    event_start = const EVENT_START,
    event_service = const EVENT_SERVICE,
    reply_exit = const REPLY_EXIT,
    reply_bases = const REPLY_BASES,
    reply_clock = const REPLY_CLOCK,
    a_cpu_begin = const area::CPU_BEGIN,
    event_park = const EVENT_PARK,
    l_state = const area::LANE_STATE,
    l_offered = const area::OFFERED,
    l_flags = const area::LANE_FLAGS,
    l_nr = const area::LANE_NR,
    l_back = const area::LANE_BACK,
    l_result = const area::LANE_RESULT,
    l_args = const area::LANE_ARGS,
    kinds = const lane::KINDS,
    kinds_at = const lane::KINDS_AT - TEXT,
    kind_trap = const lane::KIND_TRAP,
    kind_read = const lane::KIND_READ,
    kind_recv = const lane::KIND_RECV,
    nr_epoll_ctl = const nr::EPOLL_CTL,
    kind_ioctl = const lane::KIND_IOCTL,
    nr_ioctl = const nr::IOCTL,
    fionread = const lane::FIONREAD,
    cmd_offers = const CMD_OFFERS,
    offers = const OFFERS,
    slots = const OFFERS + offers::SLOTS,
    slot_shift = const offers::SLOT_SHIFT,
    slot_at = const offers::SLOT_AT,
    slot_behind = const offers::SLOT_BEHIND,
    untold = const offers::UNTOLD as i32,
    live = const offers::LIVE,
    closed = const offers::CLOSED,
    then_empty = const offers::THEN_EMPTY,
    then_more = const offers::THEN_MORE,
    len_shift = const offers::LEN_SHIFT,
    taken_shift = const offers::TAKEN_SHIFT,
    len_mask = const offers::LEN_MASK,
    eagain = const -11,
    o_epoll = const offers::EPOLL,
    o_laid = const offers::LAID,
    o_taken = const offers::TAKEN,
    o_states = const offers::STATES,
    o_in = const offers::IN,
    o_out = const offers::OUT,
    o_ring = const offers::RING,
    ring_len = const offers::RING_LEN,
    ring_data = const offers::RING_DATA,
    odd = const lane::EPOLL_ODD,
    user_end = const lane::USER_END,
    kind_wake = const lane::KIND_WAKE,
    kind_names = const lane::KIND_NAMES,
    stack_len = const lane::STACK_LEN,
    names_len = const area::NAMES_LEN,
    l_names = const area::NAMES,
    l_names_open = const area::NAMES_OPEN,
    l_stacks = const area::STACKS,
    l_stack_at = const area::STACK_AT,
    l_stacks_open = const area::STACKS_OPEN,
    ss_onstack = const lane::SS_ONSTACK,
    ss_disable = const lane::SS_DISABLE,
    ss_autodisarm = const lane::SS_AUTODISARM,
    minsigstksz = const lane::MINSIGSTKSZ,
    kinds_special = const lane::KINDS_SPECIAL,
    kind_own = const lane::KIND_OWN,
    user_high = const STUB_HIGH,
    wake_private = const 1 | 128,
    wake_bits_private = const 10 | 128,
    nr_yield = const nr::SCHED_YIELD,
    nr_clock_gettime = const nr::CLOCK_GETTIME,
    nr_clone = const nr::CLONE,
    nr_exit = const nr::EXIT,
    nr_futex = const nr::FUTEX,
    nr_lseek = const nr::LSEEK,
    nr_memfd_create = const nr::MEMFD_CREATE,
    nr_mmap = const nr::MMAP,
    nr_munmap = const nr::MUNMAP,
    nr_rt_sigreturn = const nr::RT_SIGRETURN,
    nr_seccomp = const nr::SECCOMP,
    nr_sigaltstack = const nr::SIGALTSTACK,
    waiters = const COMMAND + WAITERS,
    waiters_slots = const WAITERS_SLOTS,
    l_masks_open = const area::MASKS_OPEN,
    l_wakes_open = const area::WAKES_OPEN,
    l_yields_open = const area::YIELDS_OPEN,
    l_mask = const area::MASK,
    l_pending = const area::PENDING,
    l_new_mask = const area::NEW_MASK,
    ask = const lane::ASK as i32,
    spins = const lane::SPINS,
    asked = const lane::ASKED,
    answered = const lane::ANSWERED,
    parked = const lane::PARKED,
    patience = const lane::PATIENCE,
);

/// The high half of the lowest address of the stub's.
const STUB_HIGH: u64 = LOW >> 32;
const _: () = assert!(LOW.is_multiple_of(1 << 32));

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`.
const LISTENER_FLAGS: u64 = (1 << 3) | (1 << 5);
/// Where the `sock_fprog` of application threads lies.
pub const APP_PROG: u64 = FILTERS;
/// Where the `sock_fprog` of the service thread lies.
pub const SERVICE_PROG: u64 = FILTERS + 16;
/// Where the filters' instructions start.
pub const FILTER_CODE: u64 = FILTERS + 32;

unsafe extern "C" {
    static cloister_stub_begin: u8;
    static cloister_stub_end: u8;
    static cloister_stub_zygote: u8;
    static cloister_stub_thread: u8;
    static cloister_stub_thread_traced: u8;
    static cloister_stub_service: u8;
    static cloister_stub_handler: u8;
    static cloister_stub_restorer: u8;
    static cloister_stub_exit: u8;
}

/// An entry point of the stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    Zygote,
    Thread,
    ThreadTraced,
    Service,
    Handler,
    Restorer,
    Exit,
}

/// The code, to be copied to [`TEXT`].
#[must_use]
pub fn image() -> &'static [u8] {
    let begin = &raw const cloister_stub_begin;
    let end = &raw const cloister_stub_end;
    // SAFETY: both symbols delimit one read-only section of this program.
    unsafe { core::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// The address of `s` where the stub is mapped.
#[must_use]
pub fn address(s: Symbol) -> u64 {
    let at = match s {
        Symbol::Zygote => &raw const cloister_stub_zygote,
        Symbol::Thread => &raw const cloister_stub_thread,
        Symbol::ThreadTraced => &raw const cloister_stub_thread_traced,
        Symbol::Service => &raw const cloister_stub_service,
        Symbol::Handler => &raw const cloister_stub_handler,
        Symbol::Restorer => &raw const cloister_stub_restorer,
        Symbol::Exit => &raw const cloister_stub_exit,
    };
    TEXT + (at.addr() - (&raw const cloister_stub_begin).addr()) as u64
}
