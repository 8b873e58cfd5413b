//! What a monitor receives from a Sentry, and from its clients.
#![no_main]

use sandbox::control::{self, Answer, ChildMessage};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match control::decode(bytes) {
        // Shown to people: nothing plays tricks with their terminal.
        ChildMessage::Failed(text, _) | ChildMessage::Answer(Answer::Refused { text, .. }) => {
            assert!(!text.chars().any(char::is_control));
        }
        _ => {}
    }
    let _ = oci::check_request(bytes);
});
