//! The register frame that an event call names, in an area that the application writes.
#![no_main]

use cloister_fuzz::Forged;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use platform::frame::Frame;

#[derive(Arbitrary, Debug)]
struct Event {
    forged: Forged,
    /// Where the frame is said to lie: an offset, or anything.
    offset: u16,
    anywhere: Option<u64>,
    /// What the FP state is to become.
    state: Option<Vec<u8>>,
}

libfuzzer_sys::fuzz_target!(|e: Event| {
    let mut area = e.forged.area();
    let base = stub::AREAS;
    let uc = e.anywhere.unwrap_or(base + u64::from(e.offset));
    hostcall::mem::with_slice_mut(&mut area, |area| {
        let Some(f) = Frame::new(area, base, uc) else {
            return;
        };
        assert!(
            uc >= base + stub::area::FIRST_UC
                && uc + platform::frame::UC_LEN as u64 <= base + area.len() as u64
        );
        let regs = f.regs();
        let mut before = Vec::new();
        f.fp_state(&mut before);
        assert!(before.len() <= area.len());
        if f.set_fp_state(e.state.as_deref()).is_ok() && e.state.is_some() {
            let mut after = Vec::new();
            f.fp_state(&mut after);
            checked(&before, &after);
        }
        f.set_regs(&regs);
        let _ = f.error_code();
    });
});

/// What the host's rt_sigreturn would fault at is not in the state.
fn checked(before: &[u8], after: &[u8]) {
    let word = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"));
    if before.len() < 512 || after.len() < 512 {
        return;
    }
    let mask = match word(before, 28) {
        0 => 0xffbf,
        m => m,
    };
    assert_eq!(word(after, 24) & !mask, 0, "MXCSR");
    assert_eq!(
        before[464..512],
        after[464..512],
        "the host's software bytes"
    );
    if after.len() >= 576 {
        assert!(
            after[520..576].iter().all(|b| *b == 0),
            "the header's reserved bytes"
        );
    }
}
