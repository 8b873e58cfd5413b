//! The code itself, in assembly: one piece, made of the files beside this one in their order, since
//! its parts jump to each other.

use super::*;
use abi::nr;
use core::arch::global_asm;

global_asm!(
    include_str!("code/macros.s"),
    include_str!("code/zygote.s"),
    include_str!("code/threads.s"),
    include_str!("code/lanes.s"),
    include_str!("code/read_slots.s"),
    include_str!("code/answers.s"),
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
    l_slot_hits = const area::SLOT_HITS,
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
    cmd_slots = const CMD_READ_SLOTS,
    read_slots = const READ_SLOTS,
    slots = const READ_SLOTS + read_slots::SLOTS,
    slot_shift = const read_slots::SLOT_SHIFT,
    slot_at = const read_slots::SLOT_AT,
    slot_behind = const read_slots::SLOT_BEHIND,
    untold = const read_slots::UNTOLD as i32,
    live = const read_slots::LIVE,
    closed = const read_slots::CLOSED,
    then_empty = const read_slots::THEN_EMPTY,
    then_more = const read_slots::THEN_MORE,
    len_shift = const read_slots::LEN_SHIFT,
    taken_shift = const read_slots::TAKEN_SHIFT,
    len_mask = const read_slots::LEN_MASK,
    eagain = const -11,
    o_epoll = const read_slots::EPOLL,
    o_laid = const read_slots::LAID,
    o_taken = const read_slots::TAKEN,
    o_states = const read_slots::STATES,
    o_in = const read_slots::IN,
    o_out = const read_slots::OUT,
    o_ring = const read_slots::RING,
    ring_len = const read_slots::RING_LEN,
    ring_data = const read_slots::RING_DATA,
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
