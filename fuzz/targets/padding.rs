//! A page of an application's code, in which the Sentry looks for room for a call site's second jump: decoded, whatever it
//! is. Where there is room, it is where `mm::padding` says, and the page's bytes say nothing of its neighbours.
#![no_main]

use mm::padding::{JUMP, slot};

libfuzzer_sys::fuzz_target!(|input: (u16, Vec<u8>)| {
    let (call, mut page) = input;
    page.truncate(4096);
    let call = usize::from(call) % 4096;
    if let Some(at) = slot(&page, call) {
        assert!(at > call && (at + JUMP).is_multiple_of(16) && at + JUMP <= page.len());
        assert!(at - (call + 2) <= 127);
    }
});
