//! What a stub process may ask of the host.

use abi::nr;
use abi::syscalls::X32;
use hostcall::bpf::{self, Program};

/// The high half of every stub address.
pub(super) const STUB_HIGH_HALF: u32 = (stub::TEXT >> 32) as u32;

/// Skips the `n` instructions that follow unless the call comes from the stub's code.
pub(super) fn unless_from_stub(p: &mut Program, n: u8) {
    let low = stub::TEXT as u32;
    let end = low + (stub::FILTERS - stub::TEXT) as u32;
    p.load(bpf::IP_HIGH).skip_if_ne(STUB_HIGH_HALF, n + 3);
    p.load(bpf::IP_LOW)
        .skip_if_lt(low, n + 1)
        .skip_if_ge(end, n);
}

/// Calls that need the full registers: they trap instead of notifying. (Those that end a thread:
/// one that waits in the handler ends by an answer.)
pub const TRAPPED: [u32; 12] = [
    nr::CLONE,
    nr::CLONE3,
    nr::FORK,
    nr::VFORK,
    nr::EXECVE,
    nr::EXECVEAT,
    nr::RT_SIGRETURN,
    nr::EXIT,
    nr::EXIT_GROUP,
    nr::ARCH_PRCTL,
    nr::SIGALTSTACK,
    nr::RT_SIGSUSPEND,
];

/// Calls that wait long: nobody should spin for their end.
pub(super) const LONG: [u32; 4] = [
    nr::PAUSE,
    nr::NANOSLEEP,
    nr::CLOCK_NANOSLEEP,
    nr::EXIT_GROUP,
];

/// Skips the `n` instructions that follow if the call is one that the slow lane makes for the
/// application.
pub(super) fn if_from_lane(p: &mut Program, n: u8) {
    p.load(bpf::IP_LOW)
        .skip_if_eq(stub::lane::called() as u32, n);
}

/// The filter of application threads.
///
/// From the stub's code: what the slow lane calls is the application's; the event call asks the
/// Sentry; rt_sigreturn, exit, sched_yield and the thread's own CPU time concern the thread alone;
/// FUTEX_WAKE can at most wake somebody who looks again. From anywhere else: ask the Sentry.
pub(super) fn app_filter() -> Program {
    let mut stub_part = Program::new();
    stub_part
        .load(bpf::NR)
        .ret_if_eq(stub::EVENT_NR, bpf::USER_NOTIF)
        .ret_if_eq(nr::RT_SIGRETURN, bpf::ALLOW)
        .ret_if_eq(nr::EXIT, bpf::ALLOW)
        .ret_if_eq(nr::SCHED_YIELD, bpf::ALLOW)
        .skip_if_ne(nr::FUTEX, 4)
        .load(bpf::arg_low(1))
        .ret_if_eq(libc::FUTEX_WAKE as u32, bpf::ALLOW)
        .ret(bpf::KILL)
        .skip_if_ne(nr::CLOCK_GETTIME, 3)
        .load(bpf::arg_low(0))
        .ret_if_eq(libc::CLOCK_THREAD_CPUTIME_ID as u32, bpf::ALLOW)
        .ret(bpf::KILL);
    let mut p = Program::new();
    p.load(bpf::ARCH)
        .skip_if_eq(bpf::ARCH_X86_64, 1)
        .ret(bpf::TRAP);
    unless_from_stub(&mut p, stub_part.len() as u8 + 2);
    if_from_lane(&mut p, stub_part.len() as u8);
    p.append(&stub_part);
    p.load(bpf::NR).skip_if_lt(X32, 1).ret(bpf::TRAP);
    for nr in TRAPPED {
        p.ret_if_eq(nr, bpf::TRAP);
    }
    p.ret(bpf::USER_NOTIF);
    p
}

/// The filter of the service thread: memory calls, its process's CPU clocks and the event call,
/// from the stub's code only.
pub(super) fn service_filter() -> Program {
    let mut stub_part = Program::new();
    stub_part
        .load(bpf::NR)
        .ret_if_eq(stub::EVENT_NR, bpf::USER_NOTIF);
    for nr in [
        nr::MMAP,
        nr::MUNMAP,
        nr::MPROTECT,
        nr::MADVISE,
        nr::FUTEX,
        nr::CLOCK_GETTIME,
        nr::EXIT,
    ] {
        stub_part.ret_if_eq(nr, bpf::ALLOW);
    }
    let mut p = Program::new();
    p.load(bpf::ARCH)
        .skip_if_eq(bpf::ARCH_X86_64, 1)
        .ret(bpf::KILL);
    unless_from_stub(&mut p, stub_part.len() as u8);
    p.append(&stub_part);
    p.ret(bpf::KILL);
    p
}

/// The filter of the zygote, inherited by every stub thread: what comes from the stub's code is
/// limited to what that code does (memfd_create is the zygote's own: `stub::OP_POSITION`), and no
/// other call is ever made. Application code has its thread's own filter, which is newer and so is
/// the one that notifies; where it should be missing, this one, which nobody listens to, gives
/// `ENOSYS`. (A traced call never gets here.)
pub fn base_filter() -> Program {
    let mut stub_part = Program::new();
    stub_part.load(bpf::NR);
    for nr in [
        nr::FUTEX,
        nr::RT_SIGRETURN,
        nr::SCHED_YIELD,
        nr::MMAP,
        nr::MUNMAP,
        nr::MPROTECT,
        nr::MADVISE,
        nr::CLOCK_GETTIME,
        nr::CLONE,
        nr::SIGALTSTACK,
        nr::SECCOMP,
        nr::LSEEK,
        nr::MEMFD_CREATE,
        nr::EXIT,
    ] {
        stub_part.ret_if_eq(nr, bpf::ALLOW);
    }
    stub_part
        .ret_if_eq(stub::EVENT_NR, bpf::USER_NOTIF)
        .ret(bpf::KILL);
    let mut p = Program::new();
    // The application threads' filter, which traps, goes before it.
    p.load(bpf::ARCH)
        .skip_if_eq(bpf::ARCH_X86_64, 1)
        .ret(bpf::NO_CALL);
    unless_from_stub(&mut p, stub_part.len() as u8 + 2);
    if_from_lane(&mut p, stub_part.len() as u8);
    p.append(&stub_part);
    p.ret(bpf::USER_NOTIF);
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter answers (classic BPF: the instructions that [`Program`] makes).
    fn verdict(p: &Program, nr: u32, ip: u64, args: [u32; 2]) -> u32 {
        let bytes = p.bytes();
        let code: Vec<&[u8]> = bytes.chunks(8).collect();
        let (mut pc, mut a) = (0usize, 0u32);
        loop {
            let i = code[pc];
            let op = u16::from_le_bytes([i[0], i[1]]);
            let k = u32::from_le_bytes([i[4], i[5], i[6], i[7]]);
            pc += 1;
            let skip = |yes: bool| usize::from(if yes { i[2] } else { i[3] });
            match op {
                0x20 if k == bpf::ARCH => a = bpf::ARCH_X86_64,
                0x20 if k == bpf::NR => a = nr,
                0x20 if k == bpf::IP_LOW => a = ip as u32,
                0x20 if k == bpf::IP_HIGH => a = (ip >> 32) as u32,
                0x20 if k == bpf::arg_low(0) => a = args[0],
                0x20 if k == bpf::arg_low(1) => a = args[1],
                0x15 => pc += skip(a == k),
                0x35 => pc += skip(a >= k),
                0x06 => return k,
                _ => panic!("instruction {op:#x} {k:#x}"),
            }
        }
    }

    #[test]
    fn filters_allow_no_more_than_they_say() {
        let (app, service, base) = (app_filter(), service_filter(), base_filter());
        let stub_ip = stub::TEXT + 0x40;
        for nr in (0..600).chain([stub::EVENT_NR, X32 | 1]) {
            let args = [0, 1, 3, 128, 129];
            for arg in args.into_iter().flat_map(|a| args.map(|b| [a, b])) {
                let wake = nr == nr::FUTEX && arg[1] == libc::FUTEX_WAKE as u32;
                let own_time = nr == nr::CLOCK_GETTIME && arg[0] == 3;
                let harmless = nr == nr::RT_SIGRETURN
                    || own_time
                    || nr == nr::EXIT
                    || nr == nr::SCHED_YIELD
                    || wake;
                let v = verdict(&app, nr, stub_ip, arg);
                assert_eq!(v == bpf::ALLOW, harmless, "call {nr} of the stub");
                let lane = stub::lane::called();
                assert_eq!(
                    verdict(&app, nr, lane, arg),
                    verdict(&app, nr, 0x40_0000, arg)
                );
                assert_ne!(verdict(&base, nr, lane, arg), bpf::ALLOW);
                assert_ne!(verdict(&service, nr, lane, arg), bpf::TRAP);
                for ip in [
                    0x40_0000,
                    stub::TEXT - 1,
                    stub::FILTERS,
                    stub::COMMAND,
                    stub::AREAS,
                    stub::TRAMPOLINES,
                ] {
                    assert_ne!(verdict(&app, nr, ip, arg), bpf::ALLOW);
                    assert_ne!(verdict(&base, nr, ip, arg), bpf::ALLOW);
                    assert_eq!(verdict(&service, nr, ip, arg), bpf::KILL);
                }
            }
            let none = [0; 2];
            assert_ne!(verdict(&service, nr::CLONE, stub_ip, none), bpf::ALLOW);
        }
    }
}
