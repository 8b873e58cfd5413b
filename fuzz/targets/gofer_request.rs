//! What a Gofer receives from a Sentry: decoded or refused, and what is decoded is told again in
//! the same way.
#![no_main]

use gofer::proto::Request;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok((request, piggybacked)) = Request::decode(bytes) {
        let again = request.encode_with(&piggybacked.closes, &piggybacked.also);
        let (same, also_same) = Request::decode(&again).expect("what is encoded can be decoded");
        assert_eq!(same, request);
        assert_eq!((also_same.closes, also_same.also), (piggybacked.closes, piggybacked.also));
    }
});
