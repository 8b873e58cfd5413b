//! What a Gofer receives from a Sentry: decoded or refused, and what is decoded is told again in the same way.
#![no_main]

use gofer::proto::Request;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok((request, closes)) = Request::decode(bytes) {
        let again = Request::decode(&request.encode(&closes));
        assert_eq!(again, Ok((request, closes)));
    }
});
