//! The kernel.
#![forbid(unsafe_code)]
