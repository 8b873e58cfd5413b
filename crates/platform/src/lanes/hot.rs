//! Which call sites are worth patching.

use wait::spin::table::HOT_SITE_CALLS;

/// Counts how often calls come from sites that are not patched, in so many slots.
pub struct Hot<const SITES: usize> {
    counts: [(u64, u8); SITES],
    /// One that has just become hot.
    pub found: Option<u64>,
}

impl<const SITES: usize> Default for Hot<SITES> {
    fn default() -> Self {
        Hot {
            counts: [(0, 0); SITES],
            found: None,
        }
    }
}

impl<const SITES: usize> Hot<SITES> {
    pub fn note(&mut self, ip: u64) {
        let slot = ip.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let (at, n) = &mut self.counts[slot as usize % SITES];
        if *at != ip {
            // Of those that share a slot, the one that calls most often stays.
            if *n > 0 {
                *n -= 1;
                return;
            }
            *at = ip;
        }
        *n += 1;
        if *n == HOT_SITE_CALLS {
            self.found = Some(ip);
            // Told again after as many: what could not be patched with these arguments, others may
            // show.
            *n = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACK: u64 = 0x40_1234;

    /// A site is found by its 128th call, and one that shares its slot with others not by theirs.
    #[test]
    fn sites_get_hot() {
        let mut h = Hot::<16>::default();
        for i in 0..128 {
            assert_eq!(h.found, None, "{i}");
            h.note(BACK);
        }
        assert_eq!(h.found.take(), Some(BACK));
        for i in 0..127 {
            h.note(BACK);
            h.note(0x1000 + i);
        }
        assert_eq!(h.found, None);
    }
}
