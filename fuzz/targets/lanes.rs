//! A thread that a signal stopped in or near the lanes, with any registers and any bytes in its
//! area; and its mailbox.
#![no_main]

use cloister_fuzz::Forged;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use platform::Regs;
use platform::lanes::area::ThreadArea;
use platform::lanes::{sites, unwind};
use std::sync::atomic::Ordering;

#[derive(Arbitrary, Debug)]
enum At {
    Lane(u16),
    Trampolines(u16),
    Site(u8),
    Anywhere(u64),
}

#[derive(Arbitrary, Debug)]
struct Stop {
    forged: Forged,
    at: At,
    registers: [u64; 8],
    signal: u8,
    code: i32,
    pending: Option<u64>,
    blocks: u64,
}

/// Where the application's code is, in which two sites are patched.
const CODE: u64 = 0x40_0000;

libfuzzer_sys::fuzz_target!(|s: Stop| {
    let displaced = sites::Site::new(CODE, CODE + 7, &[0xb8, 1, 0, 0, 0]).expect("short");
    let by_slot = sites::Site::by_slot(CODE + 16, CODE + 32);
    let mut sites = sites::Sites::default();
    let mut unit = vec![0; stub::AREA_LEN as usize];
    hostcall::mem::with_slice_mut(&mut unit, |unit| {
        for site in [displaced, by_slot] {
            assert!(sites.add(unit, site).is_some());
        }
    });
    let mut area = s.forged.area();
    let [rax, rcx, rdi, rsi, rdx, r10, eflags, rsp] = s.registers;
    let mut regs = Regs {
        rip: match s.at {
            At::Lane(n) => stub::lane::entry() + u64::from(n),
            At::Trampolines(n) => stub::lane::TABLE + u64::from(n),
            At::Site(n) => CODE + u64::from(n),
            At::Anywhere(a) => a,
        },
        rax,
        rcx,
        rdi,
        rsi,
        rdx,
        r10,
        eflags,
        rsp,
        ..Regs::default()
    };
    let why = unwind::Why::of(i32::from(s.signal), s.code);
    hostcall::mem::with_slice_mut(&mut area, |area| {
        let area = ThreadArea::of(area);
        let before = regs;
        let stopped = unwind::outside(area, &sites, &mut regs, why, s.pending);
        if stopped == unwind::Stopped::Outside {
            assert_eq!(regs.rip, before.rip);
        }
        // What no lane may change.
        assert_eq!((regs.rsp, regs.fs_base), (before.rsp, before.fs_base));
        let _ = (area.request(), area.back(), area.slot_hits(), area.mask());
        let stack = area.stack();
        area.put_mask(s.blocks, || s.blocks);
        assert_eq!(area.mask(), s.blocks);
        area.publish(None);
        area.put_result(rax);
        let _ = (stack, area.state().load(Ordering::SeqCst));
    });
});
