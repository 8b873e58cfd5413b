//! Hashes keyed by the stack's secret: strangers cannot choose what falls together.

use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, Hash, Hasher};

#[derive(Clone, Copy)]
pub(crate) struct Keyed([u8; 16]);

impl Keyed {
    /// One of several independent hashes.
    pub(crate) fn new(secret: [u8; 16], purpose: u8) -> Keyed {
        let mut key = [0; 16];
        for (half, to) in key.chunks_exact_mut(8).enumerate() {
            let mut h = SipHasher13::new_with_key(&secret);
            h.write(&[purpose, half as u8]);
            to.copy_from_slice(&h.finish().to_le_bytes());
        }
        Keyed(key)
    }

    pub(crate) fn hash(&self, of: impl Hash) -> u64 {
        self.hash_one(of)
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}
