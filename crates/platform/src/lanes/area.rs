//! A thread's area as the lanes use it: the words that the stub's code reads and writes, typed.
//!
//! The area is memory of the application's. Whatever is read here it can forge; what it can deceive
//! by that is itself. Layout: [`stub::area`].

use super::words::signals;
use crate::frame::{put_u64, u64_at};
use abi::AltStack;
use hostcall::MemSlice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use stub::area;
use stub::lane;
use zerocopy::IntoBytes;

// The stub is by itself.
const _: () = {
    use abi::signal::{MINSIGSTKSZ, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK};
    assert!(lane::SS_ONSTACK == SS_ONSTACK && lane::SS_DISABLE == SS_DISABLE);
    assert!(lane::SS_AUTODISARM == SS_AUTODISARM && lane::MINSIGSTKSZ == MINSIGSTKSZ);
    assert!(lane::STACK_LEN as usize == size_of::<AltStack>());
};

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

/// The area of one thread.
#[derive(Clone, Copy)]
pub struct ThreadArea<'a>(MemSlice<'a>);

/// What lies in a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub nr: u64,
    pub args: [u64; 6],
    /// Where the call returns to.
    pub back: u64,
}

impl<'a> ThreadArea<'a> {
    #[must_use]
    pub fn of(area: MemSlice<'a>) -> Self {
        ThreadArea(area)
    }

    /// The lane's state word.
    #[must_use]
    pub fn state(self) -> &'a AtomicU32 {
        self.word32(area::LANE_STATE)
    }

    /// What lies in the mailbox.
    #[must_use]
    pub fn request(self) -> Request {
        Request {
            // The kernel looks at the low half only.
            nr: u64::from(self.get(area::LANE_NR) as u32),
            args: self.args(),
            back: self.back(),
        }
    }

    /// The arguments of the call that a lane holds.
    #[must_use]
    pub fn args(self) -> [u64; 6] {
        core::array::from_fn(|i| self.get(area::LANE_ARGS + 8 * i as u64))
    }

    /// Where the call that a slow lane makes returns to.
    #[must_use]
    pub fn back(self) -> u64 {
        self.get(area::LANE_BACK)
    }

    /// The number of the call that a lane holds, as `rax` had it.
    #[must_use]
    pub fn number(self) -> u64 {
        self.get(area::LANE_NR)
    }

    /// The result that a lane has for its call.
    #[must_use]
    pub fn result(self) -> u64 {
        self.get(area::LANE_RESULT)
    }

    /// Lays a call's result into the mailbox.
    pub fn put_result(self, value: u64) {
        put_u64(self.0, area::LANE_RESULT as usize, value);
    }

    /// The application's arithmetic flags, as a lane has put them away.
    #[must_use]
    pub fn flags(self) -> u64 {
        let saved = self.get(area::LANE_FLAGS);
        // lahf: SF, ZF, AF, PF, CF; seto: OF.
        (saved >> 8 & 0xd5) | (saved & 1) << 11
    }

    /// Writes what calls give that are answered where they are made. With names only while the
    /// thread stands still: it copies them in many steps.
    pub fn publish(self, local: Option<Local>) {
        if let Some(l) = &local {
            self.0
                .sub(area::NAMES as usize, l.names.len())
                .copy_from(&l.names);
        }
        let words = local.map_or([lane::ASK; lane::WORDS], |l| l.words);
        for (at, w) in (area::PID..).step_by(4).zip(words) {
            self.word32(at).store(w, Ordering::SeqCst);
        }
    }

    /// How many calls were answered by read slots and what is laid beside them, wrapping; any
    /// number may stand there.
    #[must_use]
    pub fn slot_hits(self) -> u32 {
        self.word32(area::SLOT_HITS).load(Ordering::Relaxed)
    }

    /// The blocked signals of a thread in application code, or that has just come out. Any number
    /// may stand there.
    #[must_use]
    pub fn mask(self) -> u64 {
        self.word64(area::MASK).load(Ordering::SeqCst)
    }

    /// A thread is about to go into application code with this mask: see [`signals::enter`].
    pub fn put_mask(self, mask: u64, pending: impl Fn() -> u64) {
        let (own, told) = (self.word64(area::MASK), self.word64(area::PENDING));
        signals::enter(own, told, mask, pending);
    }

    /// What a lane was about to make the mask has become it.
    pub fn take_new_mask(self) {
        put_u64(self.0, area::MASK as usize, self.get(area::NEW_MASK));
    }

    /// Signals wait that this thread may be the one to take, when it blocks them no more.
    pub fn note_pending(self, set: u64) {
        signals::note(self.word64(area::PENDING), set);
    }

    /// The alternate signal stack of a thread that has just come out of application code. Anything
    /// may stand there.
    #[must_use]
    pub fn stack(self) -> AltStack {
        let mut which = [0; 4];
        self.0.sub(area::STACK_AT as usize, 4).copy_to(&mut which);
        // The application's number: any but that of the second is the first's.
        let at = match u64::from(u32::from_le_bytes(which)) {
            lane::STACK_LEN => area::STACKS + lane::STACK_LEN,
            _ => area::STACKS,
        };
        let mut s = AltStack::RESET;
        self.0
            .sub(at as usize, size_of::<AltStack>())
            .copy_to(s.as_mut_bytes());
        s
    }

    /// A thread is about to go into application code with this one.
    pub fn put_stack(self, new: &AltStack) {
        let which = self.word32(area::STACK_AT);
        let known = [0, lane::STACK_LEN as u32].contains(&which.load(Ordering::SeqCst));
        if !known || self.stack() != *new {
            which.store(0, Ordering::SeqCst);
            self.0
                .sub(area::STACKS as usize, size_of::<AltStack>())
                .copy_from(new.as_bytes());
        }
    }

    fn get(self, at: u64) -> u64 {
        u64_at(self.0, at as usize)
    }
    fn word32(self, at: u64) -> &'a AtomicU32 {
        self.0.sub(at as usize, 4).atomic_u32().expect("aligned")
    }
    fn word64(self, at: u64) -> &'a AtomicU64 {
        self.0.sub(at as usize, 8).atomic_u64().expect("aligned")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::nr;

    fn with_area(f: impl FnOnce(MemSlice<'_>)) {
        let mut bytes = vec![0u8; stub::AREA_LEN as usize];
        hostcall::mem::with_slice_mut(&mut bytes, f);
    }

    fn told(area: MemSlice<'_>) -> u64 {
        ThreadArea(area)
            .word64(area::PENDING)
            .load(Ordering::SeqCst)
    }

    /// What was there before an entry is forgotten, what comes beside it is not.
    #[test]
    fn what_waits_is_told() {
        with_area(|area| {
            ThreadArea(area).note_pending(!0);
            ThreadArea(area).put_mask(5, || 3);
            assert_eq!((ThreadArea(area).mask(), told(area)), (5, 3));
            ThreadArea(area).note_pending(8);
            ThreadArea(area).put_mask(5, || 11);
            assert_eq!(told(area), 11);
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
            ThreadArea(area).put_stack(&one);
            assert_eq!(ThreadArea(area).stack(), one);
            // Made beside it, then chosen.
            one.sp = 0x9000;
            let other = area.sub((area::STACKS + lane::STACK_LEN) as usize, 24);
            other.copy_from(one.as_bytes());
            assert_eq!(ThreadArea(area).stack().sp, 0x1000);
            let choose = |n: u32| {
                let which = area.sub(area::STACK_AT as usize, 4);
                which.copy_from(&n.to_le_bytes());
            };
            choose(24);
            assert_eq!(ThreadArea(area).stack(), one);
            for n in [1, 23, 25, 48, 0x7f00, u32::MAX] {
                choose(n);
                assert_eq!(ThreadArea(area).stack().sp, 0x1000);
            }
            choose(24);
            ThreadArea(area).put_stack(&one);
            assert_eq!(ThreadArea(area).stack(), one);
            one.flags = abi::signal::SS_AUTODISARM;
            ThreadArea(area).put_stack(&one);
            assert_eq!(ThreadArea(area).stack(), one);
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
            let names: Names = core::array::from_fn(|i| i as u8);
            ThreadArea(area).publish(Some(Local::new(|_| Some(0)).with_names(names)));
            let mut got = [0; 390];
            area.sub(area::NAMES as usize, 390).copy_to(&mut got);
            assert_eq!((got, open(area)), (names, 0));
            ThreadArea(area).publish(None);
            assert_eq!(open(area), lane::ASK);
            ThreadArea(area).publish(Some(Local::new(|nr| (nr != nr::UNAME).then_some(0))));
            assert_eq!(open(area), lane::ASK);
        });
    }
}
