//! What a Gofer receives from a Sentry: decoded or refused, and what is decoded is told again in the same way.
#![no_main]

use gofer::proto::Request;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok((request, riders)) = Request::decode(bytes) {
        let again = request.encode_with(&riders.closes, &riders.also);
        let (same, beside) = Request::decode(&again).expect("what is encoded can be decoded");
        assert_eq!(same, request);
        assert_eq!((beside.closes, beside.also), (riders.closes, riders.also));
    }
});
