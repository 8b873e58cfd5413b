//! A bundle's config.json: a plan or one sentence.
#![no_main]

use oci::convert::PlanRequest;
use oci::spec::{Spec, parse};
use oci::{Net, Overlay};
use std::path::Path;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok((spec, _)) = parse::<Spec>(bytes) {
        let _ = oci::convert::convert(&PlanRequest {
            bundle: Path::new("/"),
            spec: &spec,
            overlay: Overlay::Memory,
            net: Net::Sandbox,
            sandbox: None,
        });
    }
});
