//! What a thread's registers are where a signal stopped it in the stub's code or at a patched site:
//! the application must never see that it was there. Its frame shows a call as not begun, its
//! registers as before, or as done, behind its site and with the result.
//!
//! What is read from the area the application may have forged: it then gets registers of its own
//! making, which a signal frame of its own would give it, too.

use super::area::ThreadArea;
use super::sites::Sites;
use crate::Regs;
use std::sync::atomic::Ordering;
use stub::lane::{self, Place};

const _: () =
    assert!(lane::USER_END < crate::USER_MAX && crate::USER_MAX - lane::USER_END <= 0x1000);

/// The zero flag.
const ZF: u64 = 0x40;
/// The arithmetic flags.
const FLAGS: u64 = 0x8d5;

/// What to do with a thread that a signal stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its registers are the application's.
    Outside,
    /// They have been made so: the call has not begun; or it is done.
    Inside,
    /// It is at what stands for a system call: its registers are those of one.
    Trap,
    /// It goes step by step, and this is none of its steps: it must go on as it is.
    Between,
    /// Its call is done, and there are signals that it does not block any more.
    Look,
}

/// Why a thread was stopped, as far as that makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// By `int3`.
    Int3,
    /// It had the trap flag set.
    Step,
    /// An access to memory failed.
    Access,
    Other,
}

impl Why {
    #[must_use]
    pub fn of(signal: i32, code: i32) -> Why {
        match (signal, code) {
            (libc::SIGTRAP, libc::SI_KERNEL) => Why::Int3,
            (libc::SIGTRAP, libc::TRAP_TRACE) => Why::Step,
            (libc::SIGSEGV | libc::SIGBUS, code) if code > 0 => Why::Access,
            _ => Why::Other,
        }
    }
}

/// Makes the application's registers of those of a thread that was stopped; `pending`: the result
/// of a call that the Sentry has taken from the mailbox and not answered yet.
pub fn outside(
    area: ThreadArea<'_>,
    sites: &Sites,
    regs: &mut Regs,
    why: Why,
    pending: Option<u64>,
) -> Stopped {
    if let Some(stopped) = in_trampoline(sites, regs, why) {
        return stopped;
    }
    match lane::place(regs.rip) {
        Some(place) => in_lane(area, place, regs, why, pending),
        None => at_site(sites, regs, why),
    }
}

/// In a site's trampoline; `None`: it is in none.
fn in_trampoline(sites: &Sites, regs: &mut Regs, why: Why) -> Option<Stopped> {
    let (site, offset) = sites.trampoline(regs.rip)?;
    // Any signal may stop it behind the int3: that is also where the test of the GS base jumps to.
    if why == Why::Int3 && site.is_trap(offset) {
        regs.rip = site.back;
        return Some(Stopped::Trap);
    }
    if offset == 0 {
        // The application's step is the displaced instruction, which comes now.
        if why == Why::Step && site.displaces() {
            return Some(Stopped::Between);
        }
        regs.rip = site.start;
    } else {
        regs.rip = site.call();
    }
    Some(Stopped::Inside)
}

/// In code of the application's: at a patched site, perhaps.
fn at_site(sites: &Sites, regs: &mut Regs, why: Why) -> Stopped {
    if let Some(site) = sites.traps(regs.rip.wrapping_sub(1))
        && why == Why::Int3
    {
        regs.rip = site.back;
        return Stopped::Trap;
    }
    // At the second jump: as if before the first, or, where that was its step, at the call.
    match sites.slot(regs.rip) {
        Some(s) if why == Why::Step => {
            regs.rip = s.back;
            Stopped::Trap
        }
        Some(s) => {
            regs.rip = s.start;
            Stopped::Inside
        }
        None => Stopped::Outside,
    }
}

/// In the stub's code.
fn in_lane(
    area: ThreadArea<'_>,
    place: Place,
    regs: &mut Regs,
    why: Why,
    pending: Option<u64>,
) -> Stopped {
    let back = if place == Place::Entry {
        regs.rcx
    } else {
        area.back()
    };
    // cmpxchg has just said whether the claim is its own.
    let place = match place {
        Place::Claimed if regs.eflags & ZF != 0 => Place::Taken,
        Place::Claimed => Place::Saved,
        p => p,
    };
    let result = result(area, place, regs, pending);
    put_back(area, place, regs);
    match result {
        Some(v) => {
            regs.rax = v;
            regs.rip = back;
        }
        None => {
            if !matches!(place, Place::Entry | Place::Back) {
                regs.rax = area.number();
            }
            if matches!(place, Place::Access | Place::Saved) && why == Why::Access {
                regs.rip = back;
                return Stopped::Trap;
            }
            regs.rip = back.wrapping_sub(2);
        }
    }
    if place == Place::Masked && why == Why::Int3 {
        return Stopped::Look;
    }
    Stopped::Inside
}

/// The result of the call; `None` where it has not begun.
fn result(area: ThreadArea<'_>, place: Place, regs: &Regs, pending: Option<u64>) -> Option<u64> {
    let answered = || area.state().load(Ordering::SeqCst) & lane::ANSWERED != 0;
    match place {
        Place::Taken | Place::Done => Some(area.result()),
        Place::Asked if pending.is_some() => pending,
        Place::Asked => answered().then(|| area.result()),
        Place::Masked => {
            area.take_new_mask();
            Some(0)
        }
        Place::Called => Some(regs.rax),
        _ => None,
    }
}

/// Puts what the code uses of the application's registers back from the area.
fn put_back(area: ThreadArea<'_>, place: Place, regs: &mut Regs) {
    let args = area.args();
    match place {
        Place::Asked => regs.rdi = args[0],
        Place::Saved | Place::Taken => {
            [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        }
        _ => {}
    }
    let own = [Place::Entry, Place::Back, Place::Number, Place::Called];
    if !own.contains(&place) {
        regs.eflags = regs.eflags & !FLAGS | area.flags();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall::MemSlice;
    use stub::area;

    const BACK: u64 = 0x40_1234;

    fn with_area(f: impl FnOnce(MemSlice<'_>)) {
        let mut bytes = vec![0u8; stub::AREA_LEN as usize];
        hostcall::mem::with_slice_mut(&mut bytes, |area| {
            let put = |at: u64, v: u64| area.sub(at as usize, 8).copy_from(&v.to_le_bytes());
            put(area::LANE_BACK, BACK);
            put(area::LANE_NR, 8);
            put(area::LANE_RESULT, 99);
            for i in 0..6 {
                put(area::LANE_ARGS + 8 * i, 5 + i);
            }
            put(area::NEW_MASK, 0x1234);
            // CF and OF.
            area.sub(area::LANE_FLAGS as usize, 2).copy_from(&[1, 1]);
            f(area);
        });
    }

    /// Where the application goes on that was stopped at a place, and with which result.
    fn expected(place: Place, why: Why, pending: Option<u64>, word: u32, zf: u64) -> (u64, u64) {
        match place {
            Place::Masked => (BACK, 0),
            Place::Access if why == Why::Access => (BACK, 8),
            Place::Called => (BACK, 8),
            Place::Done | Place::Taken => (BACK, 99),
            Place::Claimed if zf != 0 => (BACK, 99),
            Place::Asked if pending.is_some() => (BACK, 7),
            Place::Asked if word & lane::ANSWERED != 0 => (BACK, 99),
            _ => (BACK - 2, 8),
        }
    }

    /// Wherever the lane's code is stopped, the application is before the call or behind it.
    #[test]
    fn the_lane_is_never_seen() {
        let mut places = std::collections::BTreeSet::new();
        with_area(|area| {
            for state_word in [0, lane::SPINS, lane::SPINS | lane::ASKED, lane::ANSWERED] {
                let mut ip = lane::entry();
                while let Some(place) = lane::place(ip) {
                    ThreadArea::of(area)
                        .state()
                        .store(state_word, Ordering::SeqCst);
                    let whys = [Why::Other, Why::Step, Why::Access, Why::Int3];
                    let cases = whys.iter().flat_map(|w| {
                        [(None, 0), (Some(7), 0), (None, ZF)].map(|(p, z)| (*w, p, z))
                    });
                    for (why, pending, zf) in cases {
                        // Where all arguments are in the area, the registers hold something else.
                        let own = !matches!(place, Place::Saved | Place::Claimed | Place::Taken);
                        let arg = |i: u64| if own { 5 + i } else { 0xbad };
                        ThreadArea::of(area).put_mask(0, || 0);
                        let mut r = Regs {
                            rip: ip,
                            rcx: BACK,
                            rax: 8,
                            rdi: arg(0),
                            rsi: arg(1),
                            rdx: arg(2),
                            r10: arg(3),
                            r8: arg(4),
                            r9: arg(5),
                            eflags: 0x202 | zf,
                            ..Regs::default()
                        };
                        let claimed = place == Place::Claimed && zf != 0;
                        let s = outside(
                            ThreadArea::of(area),
                            &Sites::default(),
                            &mut r,
                            why,
                            pending,
                        );
                        let rest = (r.rsi, r.rdx, r.r10, r.r8, r.r9);
                        assert_eq!(rest, (6, 7, 8, 9, 10), "{place:?}");
                        places.insert(format!("{place:?}"));
                        let open = matches!(place, Place::Saved | Place::Claimed) && !claimed;
                        if open && why == Why::Access {
                            assert_eq!((s, r.rip, r.rax, r.rdi), (Stopped::Trap, BACK, 8, 5));
                            continue;
                        }
                        let stopped = match (place, why) {
                            (Place::Access, Why::Access) => Stopped::Trap,
                            (Place::Masked, Why::Int3) => Stopped::Look,
                            _ => Stopped::Inside,
                        };
                        assert_eq!(s, stopped);
                        let masked = if place == Place::Masked { 0x1234 } else { 0 };
                        assert_eq!(ThreadArea::of(area).mask(), masked);
                        let expected = expected(place, why, pending, state_word, zf);
                        assert_eq!(
                            (r.rip, r.rax, r.rdi),
                            (expected.0, expected.1, 5),
                            "{place:?}"
                        );
                        let own = [Place::Entry, Place::Back, Place::Number, Place::Called];
                        let saved = !own.contains(&place);
                        let flags = if saved { 0xa03 } else { 0x202 | zf };
                        assert_eq!(r.eflags, flags, "{place:?}");
                    }
                    ip += 1;
                }
                assert!(ip > lane::called());
            }
        });
        assert_eq!(places.len(), 12);
    }
}
