//! Words that no other kernel has: it refuses them with `EINVAL`, which harms nobody.
//!
//! `sdk/cloister.h` has the same numbers.

/// `madvise(2)`: what is and comes in a range is confidential.
pub const MADV_CONFIDENTIAL: u32 = 0x436c_6f01;

/// `prctl(2)`: with 1, all memory of the process is, of its children and of the programs that it
/// becomes.
pub const PR_SET_CONFIDENTIAL: i32 = 0x436c_6f01;
/// The same: whether it is.
pub const PR_GET_CONFIDENTIAL: i32 = 0x436c_6f02;
