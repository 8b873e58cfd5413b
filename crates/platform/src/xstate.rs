//! The extended state of this machine's CPU, as debuggers see it: the XSAVE area in its standard
//! format, with all that the host has enabled (Intel SDM volume 1, 13.4; `arch/x86/kernel/fpu`).
//!
//! A signal frame's state ([`crate::AppThread::fp_state`]) has the same format and may be shorter:
//! components that a program has to ask for (AMX) are not in it.

use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// The legacy area and the header.
pub const LEGACY: usize = 512;
pub const HEADER: usize = 64;
/// Where the kernel tells a debugger what is enabled: in the legacy area's part that software may
/// use (`USER_XSTATE_XCR0_WORD`).
pub const SOFTWARE: usize = 464;

/// What is enabled.
#[derive(Debug)]
pub struct XState {
    /// XCR0: a bit for each component.
    pub features: u64,
    /// Of the whole area.
    pub size: usize,
    /// The components beyond the legacy area: their bits and where they lie.
    pub parts: Vec<(u64, std::ops::Range<usize>)>,
}

impl XState {
    /// A CPU without XSAVE.
    fn legacy() -> XState {
        XState {
            features: 3,
            size: LEGACY + HEADER,
            parts: Vec::new(),
        }
    }

    fn ask() -> XState {
        if !std::arch::is_x86_feature_detected!("xsave") {
            return XState::legacy();
        }
        // SAFETY: it has XSAVE, and the host has enabled it, as was detected.
        let features = unsafe { enabled() };
        let all = __cpuid_count(0xd, 0);
        let parts = (2..63).filter(|n| features >> n & 1 != 0).map(|n| {
            let leaf = __cpuid_count(0xd, n);
            let (len, at) = (leaf.eax as usize, leaf.ebx as usize);
            (1 << n, at..at + len)
        });
        XState {
            features,
            size: (all.ebx as usize).max(LEGACY + HEADER),
            parts: parts.collect(),
        }
    }

    /// This machine's.
    #[must_use]
    pub fn host() -> &'static XState {
        static HOST: OnceLock<XState> = OnceLock::new();
        HOST.get_or_init(XState::ask)
    }
}

/// XCR0.
///
/// # Safety
/// The CPU has XSAVE, and it is enabled.
#[target_feature(enable = "xsave")]
unsafe fn enabled() -> u64 {
    // SAFETY: as the caller promises; XCR0 is always there then.
    unsafe { _xgetbv(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_lie_within_the_area() {
        let x = XState::host();
        assert_eq!(x.features & 3, 3);
        assert!(x.size >= LEGACY + HEADER && x.size <= 1 << 16);
        for (bit, r) in &x.parts {
            assert!(x.features & bit != 0);
            assert!(r.start >= LEGACY + HEADER && r.end <= x.size, "{r:?}");
        }
    }
}
