//! What a Sentry receives from a Gofer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = gofer::wire::Hello::decode(bytes);
    let reply = gofer::proto::Reply::decode(bytes);
    if reply.is_ok() {
        let again = gofer::proto::Reply::encode(&reply);
        assert_eq!(gofer::proto::Reply::decode(&again), reply);
    }
});
