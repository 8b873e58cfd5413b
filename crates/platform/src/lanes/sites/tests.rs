use super::*;
use crate::Regs;
use crate::lanes::area::ThreadArea;
use crate::lanes::unwind::{Stopped, Why, outside};

const BACK: u64 = 0x40_1234;

fn with_unit(f: impl FnOnce(MemSlice<'_>)) {
    let mut bytes = vec![0u8; stub::AREA_LEN as usize];
    hostcall::mem::with_slice_mut(&mut bytes, f);
}

fn stop(unit: MemSlice<'_>, sites: &Sites, rip: u64, why: Why) -> (Stopped, u64) {
    let mut r = Regs {
        rip,
        ..Regs::default()
    };
    let s = outside(ThreadArea::of(unit), sites, &mut r, why, None);
    (s, r.rip)
}

#[test]
fn a_trampoline_is_left_before_the_call_or_traps() {
    with_unit(|unit| {
        let mut sites = Sites::default();
        let site = Site::new(BACK - 7, BACK, &[0xb8, 39, 0, 0, 0]).unwrap();
        assert_eq!(sites.add(unit, site), Some(TABLE as u32));
        // The same site is not added twice.
        assert_eq!(sites.add(unit, site), Some(TABLE as u32));
        let code = site.code(trampoline(0));
        let traps = code.iter().position(|b| *b == 0xcc).unwrap() as u64 + 1;
        for live in [true, false] {
            for offset in 0..TRAMPOLINE_LEN {
                let at = |why| stop(unit, &sites, trampoline(0) + offset, why);
                let call = match offset {
                    0 => (Stopped::Inside, BACK - 7),
                    _ => (Stopped::Inside, BACK - 2),
                };
                let trapped = if offset == traps {
                    (Stopped::Trap, BACK)
                } else {
                    call
                };
                assert_eq!(at(Why::Int3), trapped, "at {offset}");
                assert_eq!(at(Why::Other), call, "at {offset}");
                let step = match offset {
                    0 => (Stopped::Between, trampoline(0)),
                    _ => call,
                };
                assert_eq!(at(Why::Step), step, "at {offset}");
            }
            if live {
                sites.retire(&(BACK - 7..BACK));
            }
        }
        for i in 0..TRAMPOLINES_MAX as u64 + 5 {
            let site = Site::new(i, i + 7, &[0x90; 5]).unwrap();
            let fits = (i as usize) < TRAMPOLINES_MAX - 1;
            assert_eq!(sites.add(unit, site).is_some(), fits, "{i}");
        }
        assert!(Site::new(0, 9, &[0; MOVED_MAX + 1]).is_none());
    });
}

#[test]
fn only_live_sites_have_places() {
    with_unit(|unit| {
        let mut sites = Sites::default();
        let p = Site::new(BACK - 7, BACK, &[0xb8, 39, 0, 0, 0]).unwrap();
        let k = Site::by_slot(BACK + 0x1000, BACK + 0x1040);
        let at = |s: &Sites, rip, why| stop(unit, s, rip, why);
        for _ in 0..2 {
            sites.add(unit, p);
            sites.add(unit, k);
            assert!(sites.has_live(&(BACK - 2..BACK)) && !sites.has_live(&(0..BACK - 2)));
            assert_eq!(at(&sites, BACK - 1, Why::Int3), (Stopped::Trap, BACK));
            for why in [Why::Other, Why::Step] {
                assert_eq!(at(&sites, BACK - 1, why), (Stopped::Outside, BACK - 1));
                assert_eq!(at(&sites, BACK - 2, why), (Stopped::Outside, BACK - 2));
            }
            let slot = BACK + 0x1040;
            let call = (Stopped::Inside, BACK + 0x1000);
            assert_eq!(at(&sites, slot, Why::Other), call);
            let stepped = (Stopped::Trap, BACK + 0x1002);
            assert_eq!(at(&sites, slot, Why::Step), stepped);
            // No int3 of ours lies there.
            let own = (Stopped::Outside, BACK + 0x1001);
            assert_eq!(at(&sites, BACK + 0x1001, Why::Int3), own);
            assert!(sites.retire(&(0..BACK + 0x1041)) && !sites.retire(&(0..u64::MAX)));
            for rip in [BACK - 1, slot] {
                for why in [Why::Int3, Why::Other, Why::Step] {
                    assert_eq!(at(&sites, rip, why), (Stopped::Outside, rip));
                }
            }
        }
    });
}
