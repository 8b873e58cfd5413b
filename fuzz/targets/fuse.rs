//! What a server of files answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuse::harness::answers(bytes));
