//! One last host call of any kind, for tests of the walls: what a process that has been taken over
//! would try.

use core::arch::asm;

/// The exit status of a process whose call was not stopped.
pub const NOT_STOPPED: i32 = 99;

/// Makes host call `number` with any arguments, which the table may not know. Where the wall
/// stands, the host ends this process; else it ends by itself with [`NOT_STOPPED`], in the
/// instructions that follow the call.
///
/// To be called with one thread.
pub fn attempt(number: u64, args: [u64; 6]) -> ! {
    // SAFETY: whatever the call does to this process, no code but `exit_group` runs after it: not
    // in a child that it made either, nor on memory that it has taken away (these instructions use
    // none).
    unsafe {
        asm!(
            "syscall",
            "2:",
            "mov edi, {status}",
            "mov eax, {exit_group}",
            "syscall",
            "jmp 2b",
            status = const NOT_STOPPED,
            exit_group = const libc::SYS_exit_group,
            in("rax") number,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            options(noreturn, nostack)
        )
    }
}

/// As [`attempt`], through the gate of 32-bit programs: their numbers mean other calls.
pub fn attempt_32_bit(number: u32) -> ! {
    // SAFETY: as above.
    unsafe {
        asm!(
            "int 0x80",
            "2:",
            "mov edi, {status}",
            "mov eax, {exit_group}",
            "syscall",
            "jmp 2b",
            status = const NOT_STOPPED,
            exit_group = const libc::SYS_exit_group,
            in("eax") number,
            options(noreturn, nostack)
        )
    }
}
