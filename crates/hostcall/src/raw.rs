//! The one place where a host system call is made.

use crate::HostCall;
use abi::{Errno, Result};
use core::arch::asm;

/// Makes host call `c`.
///
/// # Safety
/// The arguments must be valid for the call: pointers to memory of the right size that outlives it,
/// and no effect that breaks what Rust assumes (unmapping live memory, closing another's
/// descriptor).
#[inline]
pub unsafe fn call(c: HostCall, args: [usize; 6]) -> Result<usize> {
    let ret: isize;
    // SAFETY: the kernel clobbers rcx, r11 and rax only; the caller vouches for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") c as u32 as usize => ret,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    if (-4095..0).contains(&ret) {
        Err(Errno::new(-ret as i32).expect("1..=4095"))
    } else {
        Ok(ret as usize)
    }
}

/// `sys!(Read, fd, ptr, len)`: [`call`] with the arguments as `usize`, the rest zero. Must stand in
/// an `unsafe` block.
#[macro_export]
macro_rules! sys {
    ($c:ident $(, $a:expr)* $(,)?) => {{
        #[allow(clippy::as_conversions)]
        let given: &[usize] = &[$(($a) as usize),*];
        let mut args = [0usize; 6];
        args[..given.len()].copy_from_slice(given);
        $crate::raw::call($crate::HostCall::$c, args)
    }};
}
