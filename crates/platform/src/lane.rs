//! The lanes of patched call sites, seen from the Sentry: trampolines, a thread's mailbox, and what
//! its registers are where a signal stopped it in the stub's code. See [`stub::lane`] for the other
//! side.
//!
//! ## Invariants
//!
//! - What the application may write (its threads' areas) is believed in nothing but what concerns
//!   it.
//! - Who may spin for a mailbox, [`wait::spin`] tells.
//! - Who spins for a mailbox also looks, every few microseconds, whether the thread has come
//!   another way.

use crate::Regs;
use crate::frame::{put_u64, u64_at};
use crate::sites::Sites;
use crate::words::{mailbox, signals};
use abi::{AltStack, nr};
use hostcall::MemSlice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stub::area;
use stub::lane::{self, Place};
use wait::spin::table::{FIRST_LIMIT, HOT_SITE_CALLS, LATE_ANSWER_COSTS, LOOK_ASIDE, MAILBOX};
use wait::spin::{End, SpinBudget, Spinners};
use zerocopy::IntoBytes;

const _: () =
    assert!(lane::USER_END < crate::USER_MAX && crate::USER_MAX - lane::USER_END <= 0x1000);
// The stub is by itself.
const _: () = {
    use abi::signal::{MINSIGSTKSZ, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK};
    assert!(lane::SS_ONSTACK == SS_ONSTACK && lane::SS_DISABLE == SS_DISABLE);
    assert!(lane::SS_AUTODISARM == SS_AUTODISARM && lane::MINSIGSTKSZ == MINSIGSTKSZ);
    assert!(lane::STACK_LEN as usize == size_of::<AltStack>());
};

/// The zero flag.
const ZF: u64 = 0x40;

/// The calls that may be answered by what is offered beside the program.
pub const OFFERED: [u32; 3] = [lane::OFFERED[0].0, lane::OFFERED[1].0, lane::OFFERED[2].0];

/// The call that may be answered there, too, with one of its commands: ioctl(2) with FIONREAD.
pub const COUNTED: u32 = lane::COUNTED;
pub const FIONREAD: u32 = lane::FIONREAD;

/// The calls that may be answered where they are made.
pub const LOCAL: [u32; lane::LOCAL.len()] = {
    let mut out = [0; lane::LOCAL.len()];
    let mut i = 0;
    while i < out.len() {
        out[i] = lane::LOCAL[i].0;
        i += 1;
    }
    out
};

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
    area: MemSlice<'_>,
    sites: &Sites,
    regs: &mut Regs,
    why: Why,
    pending: Option<u64>,
) -> Stopped {
    if let Some((site, offset)) = sites.trampoline(regs.rip) {
        // Any signal may stop it behind the int3: that is also where the test of the GS base jumps
        // to.
        if why == Why::Int3 && site.is_trap(offset) {
            regs.rip = site.back;
            return Stopped::Trap;
        }
        if offset == 0 {
            // The application's step is the displaced instruction, which comes now.
            if why == Why::Step && site.displaces() {
                return Stopped::Between;
            }
            regs.rip = site.start;
        } else {
            regs.rip = site.call();
        }
        return Stopped::Inside;
    }
    let Some(place) = lane::place(regs.rip) else {
        if let Some(site) = sites.traps(regs.rip.wrapping_sub(1))
            && why == Why::Int3
        {
            regs.rip = site.back;
            return Stopped::Trap;
        }
        // At the second jump: as if before the first, or, where that was its step, at the call.
        return match sites.slot(regs.rip) {
            Some(s) if why == Why::Step => {
                regs.rip = s.back;
                Stopped::Trap
            }
            Some(s) => {
                regs.rip = s.start;
                Stopped::Inside
            }
            None => Stopped::Outside,
        };
    };
    let word = |at: u64| u64_at(area, at as usize);
    let back = if place == Place::Entry {
        regs.rcx
    } else {
        word(area::LANE_BACK)
    };
    let state = state(area).load(Ordering::SeqCst);
    // cmpxchg has just said whether the claim is its own.
    let place = match place {
        Place::Claimed if regs.eflags & ZF != 0 => Place::Taken,
        Place::Claimed => Place::Saved,
        p => p,
    };
    let result = match place {
        Place::Taken => Some(word(area::LANE_RESULT)),
        Place::Asked if pending.is_some() => pending,
        Place::Asked => (state & lane::ANSWERED != 0).then(|| word(area::LANE_RESULT)),
        Place::Done => Some(word(area::LANE_RESULT)),
        Place::Masked => {
            put_u64(area, area::MASK as usize, word(area::NEW_MASK));
            Some(0)
        }
        Place::Called => Some(regs.rax),
        _ => None,
    };
    if place == Place::Asked {
        regs.rdi = word(area::LANE_ARGS);
    }
    if matches!(place, Place::Saved | Place::Taken) {
        let args = [
            &mut regs.rdi,
            &mut regs.rsi,
            &mut regs.rdx,
            &mut regs.r10,
            &mut regs.r8,
            &mut regs.r9,
        ];
        for (at, r) in (area::LANE_ARGS..).step_by(8).zip(args) {
            *r = word(at);
        }
    }
    if !matches!(
        place,
        Place::Entry | Place::Back | Place::Number | Place::Called
    ) {
        let saved = word(area::LANE_FLAGS);
        // lahf: SF, ZF, AF, PF, CF; seto: OF.
        let flags = (saved >> 8 & 0xd5) | (saved & 1) << 11;
        regs.eflags = regs.eflags & !0x8d5 | flags;
    }
    match result {
        Some(v) => {
            regs.rax = v;
            regs.rip = back;
        }
        None => {
            if !matches!(place, Place::Entry | Place::Back) {
                regs.rax = word(area::LANE_NR);
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

/// The lane's state word in a thread's area.
pub fn state(area: MemSlice<'_>) -> &AtomicU32 {
    area.sub(area::LANE_STATE as usize, 4)
        .atomic_u32()
        .expect("aligned")
}

/// What lies in a mailbox: number, arguments, and where the call returns to.
pub fn request(area: MemSlice<'_>) -> (u64, [u64; 6], u64) {
    let word = |at: u64| u64_at(area, at as usize);
    let args = core::array::from_fn(|i| word(area::LANE_ARGS + 8 * i as u64));
    // The kernel looks at the low half only.
    let nr = u64::from(word(area::LANE_NR) as u32);
    (nr, args, back(area))
}

/// Where the call that a slow lane makes returns to.
pub fn back(area: MemSlice<'_>) -> u64 {
    u64_at(area, area::LANE_BACK as usize)
}

/// Lays a call's result into the mailbox.
pub fn put_result(area: MemSlice<'_>, value: u64) {
    put_u64(area, area::LANE_RESULT as usize, value);
}

/// What calls give that are answered where they are made, as long as the Sentry says nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    pub(crate) words: [u32; stub::lane::WORDS],
    pub(crate) names: Names,
}

/// `struct new_utsname`: what uname(2) gives.
pub type Names = [u8; stub::area::NAMES_LEN as usize];

impl Local {
    /// `word` gives the answer to a call, by its number, where it may be given: 0 for those that
    /// are done and have no answer of their own. Calls that share a word ([`lane::LOCAL`]) give the
    /// same, or one of them `None`.
    #[must_use]
    pub fn new(mut word: impl FnMut(u32) -> Option<u32>) -> Local {
        let mut words = [None; stub::lane::WORDS];
        for (nr, _, at) in stub::lane::LOCAL {
            let w = word(nr).unwrap_or(stub::lane::ASK);
            let slot = &mut words[((at - stub::area::PID) / 4) as usize];
            *slot = Some(match *slot {
                Some(stub::lane::ASK) => stub::lane::ASK,
                _ => w,
            });
        }
        Local {
            words: words.map(|w| w.unwrap_or(stub::lane::ASK)),
            names: [0; stub::area::NAMES_LEN as usize],
        }
    }

    /// What uname(2) gives, if it is answered.
    #[must_use]
    pub fn with_names(self, names: Names) -> Local {
        Local { names, ..self }
    }
}

/// Writes what calls give that are answered where they are made. With names only while the thread
/// stands still: it copies them in many steps.
pub fn publish(area: MemSlice<'_>, local: Option<Local>) {
    if let Some(l) = &local {
        area.sub(area::NAMES as usize, l.names.len())
            .copy_from(&l.names);
    }
    let words = local.map_or([lane::ASK; lane::WORDS], |l| l.words);
    for (at, w) in (area::PID as usize..).step_by(4).zip(words) {
        let word = area.sub(at, 4).atomic_u32().expect("aligned");
        word.store(w, Ordering::SeqCst);
    }
}

fn word64(area: MemSlice<'_>, at: u64) -> &AtomicU64 {
    area.sub(at as usize, 8).atomic_u64().expect("aligned")
}

/// How many calls have got something done by offers and what is laid beside them, wrapping; any
/// number may stand there.
pub fn offered(area: MemSlice<'_>) -> u32 {
    let word = area.sub(area::OFFERED as usize, 4);
    word.atomic_u32().expect("aligned").load(Ordering::Relaxed)
}

/// The blocked signals of a thread in application code, or that has just come out. Any number may
/// stand there.
pub fn mask(area: MemSlice<'_>) -> u64 {
    word64(area, area::MASK).load(Ordering::SeqCst)
}

/// A thread is about to go into application code with this mask: see [`signals::enter`].
pub fn put_mask(area: MemSlice<'_>, mask: u64, pending: impl Fn() -> u64) {
    let (own, told) = (word64(area, area::MASK), word64(area, area::PENDING));
    signals::enter(own, told, mask, pending);
}

/// Signals wait that this thread may be the one to take, when it blocks them no more.
pub fn note_pending(area: MemSlice<'_>, set: u64) {
    signals::note(word64(area, area::PENDING), set);
}

/// The alternate signal stack of a thread that has just come out of application code. Anything may
/// stand there.
pub fn stack(area: MemSlice<'_>) -> AltStack {
    let mut which = [0; 4];
    area.sub(area::STACK_AT as usize, 4).copy_to(&mut which);
    // The application's number: any but that of the second is the first's.
    let at = match u64::from(u32::from_le_bytes(which)) {
        lane::STACK_LEN => area::STACKS + lane::STACK_LEN,
        _ => area::STACKS,
    };
    let mut s = AltStack::RESET;
    area.sub(at as usize, size_of::<AltStack>())
        .copy_to(s.as_mut_bytes());
    s
}

/// A thread is about to go into application code with this one.
pub fn put_stack(area: MemSlice<'_>, new: &AltStack) {
    const _: () = assert!(size_of::<AltStack>() as u64 == lane::STACK_LEN);
    let which = area.sub(area::STACK_AT as usize, 4);
    let which = which.atomic_u32().expect("aligned");
    let known = [0, lane::STACK_LEN as u32].contains(&which.load(Ordering::SeqCst));
    if !known || stack(area) != *new {
        which.store(0, Ordering::SeqCst);
        area.sub(area::STACKS as usize, size_of::<AltStack>())
            .copy_from(new.as_bytes());
    }
}

/// Whether a call has got something done, by its result: waits that end with nothing, and what
/// fails, may be made the more often the longer others take.
pub fn achieves(nr: u64, result: u64) -> bool {
    let waits = [
        nr::POLL,
        nr::PPOLL,
        nr::SELECT,
        nr::PSELECT6,
        nr::EPOLL_WAIT,
        nr::EPOLL_PWAIT,
        nr::EPOLL_PWAIT2,
        nr::FUTEX,
        nr::NANOSLEEP,
        nr::CLOCK_NANOSLEEP,
    ];
    result as i64 > 0 || result == 0 && !waits.contains(&(nr as u32))
}

/// The spinning of one thread of the Sentry for its application thread's mailbox.
#[derive(Debug)]
pub struct MailboxSpin {
    budget: SpinBudget,
    /// When the last answer was given; `None` where that says nothing of the next call.
    answered: Option<Instant>,
    /// It is among the spinners.
    pub spins: bool,
    /// It has just begun to: the other side is being woken on another CPU.
    first: bool,
}

impl Default for MailboxSpin {
    fn default() -> MailboxSpin {
        MailboxSpin {
            budget: SpinBudget::new(&MAILBOX),
            answered: None,
            spins: false,
            first: false,
        }
    }
}

impl MailboxSpin {
    /// A call has come, but not from the mailbox. Whether it came soon after the answer to the one
    /// before.
    pub fn called(&mut self, by_lane: bool) -> bool {
        let answered = self.answered.take();
        let soon = answered.is_some_and(|t| self.budget.is_soon(t.elapsed()));
        if soon && by_lane {
            self.budget.came_soon();
        }
        soon
    }

    /// An answer is about to be given. Whether the thread begins to spin with it.
    pub fn answering(&mut self, all: &Spinners) -> bool {
        if self.spins {
            return false;
        }
        self.answered = all.possible().then(Instant::now);
        if (self.budget.suffices() || all.always()) && all.has_idle_cpu() && all.enter() {
            self.spins = true;
            self.first = true;
            return true;
        }
        false
    }

    /// A call from the mailbox is about to be answered. Whether the thread spins for the next.
    pub fn again(&mut self, all: &Spinners) -> bool {
        self.spins = self.spins || (self.budget.has_any() || all.always()) && all.enter();
        self.spins
    }

    /// Spins until the state has [`lane::ASKED`]; whether it has. If not, it spins no more.
    /// `elsewhere`: whether the other has come another way, which the state need not tell.
    pub fn spin(
        &mut self,
        state: &AtomicU32,
        all: &Spinners,
        mut elsewhere: impl FnMut() -> bool,
    ) -> bool {
        let limit = match std::mem::take(&mut self.first) {
            true => FIRST_LIMIT,
            false if all.always() => MAILBOX.limit,
            false => self.budget.limit(),
        };
        // No more spun for: it comes another way.
        let done = || state.load(Ordering::Acquire) & (lane::ASKED | lane::SPINS) != lane::SPINS;
        let mut looked = Duration::ZERO;
        let aside = |now: Duration| {
            let due = now - looked > LOOK_ASIDE;
            if due {
                looked = now;
            }
            due && elsewhere()
        };
        let (end, t) = all.spin(limit, done, aside);
        if end == End::Found && state.load(Ordering::Acquire) & lane::ASKED != 0 {
            self.budget.found(all, t);
            // The call may take long: others may spin meanwhile.
            self.spins = false;
            all.leave();
            return true;
        }
        self.budget.in_vain(all, t);
        self.rest(all);
        // A call that comes from a site that is not patched yet comes soon, too.
        self.answered = Instant::now().checked_sub(t);
        // Asked in the last moment: it is answered as any other.
        mailbox::give_up(state)
    }

    /// The answer came so late that the other looks for it no more.
    pub fn late(&mut self, all: &Spinners) {
        self.budget.pay(LATE_ANSWER_COSTS);
        self.rest(all);
    }

    /// Spins no more.
    pub fn rest(&mut self, all: &Spinners) {
        if std::mem::take(&mut self.spins) {
            all.leave();
        }
        self.budget.tell(all);
        self.answered = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Wherever the lane's code is stopped, the application is before the call or behind it.
    #[test]
    fn the_lane_is_never_seen() {
        let mut places = std::collections::BTreeSet::new();
        with_area(|area| {
            for state_word in [0, lane::SPINS, lane::SPINS | lane::ASKED, lane::ANSWERED] {
                let mut ip = lane::entry();
                while let Some(place) = lane::place(ip) {
                    state(area).store(state_word, Ordering::SeqCst);
                    let whys = [Why::Other, Why::Step, Why::Access, Why::Int3];
                    let cases = whys.iter().flat_map(|w| {
                        [(None, 0), (Some(7), 0), (None, ZF)].map(|(p, z)| (*w, p, z))
                    });
                    for (why, pending, zf) in cases {
                        // Where all arguments are in the area, the registers hold something else.
                        let own = !matches!(place, Place::Saved | Place::Claimed | Place::Taken);
                        let arg = |i: u64| if own { 5 + i } else { 0xbad };
                        put_mask(area, 0, || 0);
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
                        let s = outside(area, &Sites::default(), &mut r, why, pending);
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
                        assert_eq!(mask(area), masked);
                        let expected = match place {
                            Place::Masked => (BACK, 0),
                            Place::Access if why == Why::Access => (BACK, 8),
                            Place::Called => (BACK, 8),
                            Place::Done | Place::Taken => (BACK, 99),
                            Place::Claimed if claimed => (BACK, 99),
                            Place::Asked if pending.is_some() => (BACK, 7),
                            Place::Asked if state_word & lane::ANSWERED != 0 => (BACK, 99),
                            _ => (BACK - 2, 8),
                        };
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

    /// What was there before an entry is forgotten, what comes beside it is not.
    #[test]
    fn what_waits_is_told() {
        with_area(|area| {
            note_pending(area, !0);
            put_mask(area, 5, || 3);
            assert_eq!(
                (
                    mask(area),
                    word64(area, area::PENDING).load(Ordering::SeqCst)
                ),
                (5, 3)
            );
            note_pending(area, 8);
            put_mask(area, 5, || 11);
            assert_eq!(word64(area, area::PENDING).load(Ordering::SeqCst), 11);
        });
    }

    /// The alternate stack is what was put, or what the application has made; of what it forges,
    /// one of the two.
    #[test]
    fn the_stack_is_the_one_that_is_chosen() {
        with_area(|area| {
            let mut one = AltStack {
                sp: 0x1000,
                flags: 0,
                pad: 0,
                size: 4096,
            };
            put_stack(area, &one);
            assert_eq!(stack(area), one);
            // Made beside it, then chosen.
            one.sp = 0x9000;
            let other = area.sub((area::STACKS + lane::STACK_LEN) as usize, 24);
            other.copy_from(one.as_bytes());
            assert_eq!(stack(area).sp, 0x1000);
            let choose = |n: u32| {
                let which = area.sub(area::STACK_AT as usize, 4);
                which.copy_from(&n.to_le_bytes());
            };
            choose(24);
            assert_eq!(stack(area), one);
            for n in [1, 23, 25, 48, 0x7f00, u32::MAX] {
                choose(n);
                assert_eq!(stack(area).sp, 0x1000);
            }
            choose(24);
            put_stack(area, &one);
            assert_eq!(stack(area), one);
            one.flags = abi::signal::SS_AUTODISARM;
            put_stack(area, &one);
            assert_eq!(stack(area), one);
        });
    }

    /// Nothing of what is published is seen when it is withdrawn, and names are whole.
    #[test]
    fn names_are_published_and_withdrawn() {
        let open = |area: MemSlice<'_>| {
            let word = area.sub(area::NAMES_OPEN as usize, 4);
            word.atomic_u32().unwrap().load(Ordering::SeqCst)
        };
        with_area(|area| {
            let names: crate::lane::Names = core::array::from_fn(|i| i as u8);
            publish(area, Some(Local::new(|_| Some(0)).with_names(names)));
            let mut got = [0; 390];
            area.sub(area::NAMES as usize, 390).copy_to(&mut got);
            assert_eq!((got, open(area)), (names, 0));
            publish(area, None);
            assert_eq!(open(area), lane::ASK);
            publish(area, Some(Local::new(|nr| (nr != nr::UNAME).then_some(0))));
            assert_eq!(open(area), lane::ASK);
        });
    }

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

    fn spinning(all: &Spinners) -> MailboxSpin {
        assert!(all.enter());
        MailboxSpin {
            spins: true,
            first: true,
            ..MailboxSpin::default()
        }
    }

    #[test]
    fn a_thread_that_spins_looks_aside() {
        let all = Spinners::new(2, false);
        let state = AtomicU32::new(lane::SPINS);
        let mut looks = 0;
        let mut m = spinning(&all);
        let asked = m.spin(&state, &all, || {
            looks += 1;
            looks == 2
        });
        assert!(!asked && !m.spins && looks <= 2);
        assert_eq!(state.load(Ordering::Relaxed), 0);
        // Both CPUs can be had again.
        assert!(all.enter() && all.enter());
    }

    /// A thread that spins in vain again and again needs many calls for each time.
    #[test]
    fn spinning_is_paid_for() {
        let all = Spinners::new(8, false);
        while !all.has_idle_cpu() {
            std::thread::yield_now();
        }
        let mut m = MailboxSpin::default();
        let mut begun = 0;
        for _ in 0..2000 {
            m.budget.came_soon();
            if m.answering(&all) {
                begun += 1;
                let state = AtomicU32::new(lane::SPINS);
                assert!(!m.spin(&state, &all, || false));
                assert!(!m.budget.suffices());
            }
        }
        // Each takes 200 us, 100 calls' worth, unless the host pre-empted it.
        assert!((1..=40).contains(&begun), "{begun}");
        // One that no neighbour has made stop.
        let all = Spinners::new(8, false);
        let state = AtomicU32::new(lane::SPINS | lane::ASKED);
        while m.budget.left() < 100 {
            assert!(all.enter());
            (m.spins, m.first) = (true, true);
            assert!(m.spin(&state, &all, || false));
        }
        assert!(m.again(&all));
    }
}
