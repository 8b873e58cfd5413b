//! What targets share: a thread's area as its application may have left it.
#![forbid(unsafe_code)]

use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// Bytes that the application wrote into its thread's area, each somewhere.
#[derive(Arbitrary, Debug)]
pub struct Forged(Vec<(u16, Vec<u8>)>);

impl Forged {
    /// The area's bytes.
    pub fn area(&self) -> Vec<u8> {
        let mut area = vec![0; stub::AREA_LEN as usize];
        for (at, bytes) in &self.0 {
            let at = usize::from(*at) % area.len();
            let n = bytes.len().min(area.len() - at);
            area[at..at + n].copy_from_slice(&bytes[..n]);
        }
        area
    }
}
