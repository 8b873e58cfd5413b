//! The lanes of patched call sites, seen from the Sentry: trampolines, a thread's mailbox, and what its registers
//! are where a signal stopped it in the stub's code. See [`stub::lane`] for the other side.
//!
//! ## Invariants
//!
//! - A trampoline, once handed out, is not changed as long as the address space lives: a thread may be anywhere
//!   in it.
//! - What the application may write (its threads' areas) is believed in nothing but what concerns it.
//! - In the whole Sentry, fewer threads spin for their mailboxes than there are CPUs; one that finds itself
//!   pre-empted makes all stop for a while.

use crate::{Identity, Regs};
use hostcall::MemSlice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stub::area;
use stub::lane::{self, Place, TABLE, TABLE_LEN, TRAMPOLINE_LEN, TRAMPOLINES_MAX};

/// The calls that may be answered where they are made.
pub const LOCAL: [u32; 6] = {
    let mut out = [0; 6];
    let mut i = 0;
    while i < out.len() {
        out[i] = lane::LOCAL[i].0;
        i += 1;
    }
    out
};

/// The longest that is displaced from a site to its trampoline.
pub const DISPLACED_MAX: usize = 8;

/// What a site's bytes become: `jmp qword ptr [entry]`.
#[must_use]
pub fn jump(entry: u32) -> [u8; 7] {
    let [a, b, c, d] = entry.to_le_bytes();
    [0xff, 0x24, 0x25, a, b, c, d]
}

/// One trampoline as its maker remembers it: the application's memory cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where the displaced instruction was.
    pub start: u64,
    /// Where the call returns to: behind the `syscall` instruction.
    pub back: u64,
    /// Where a jump lies that the site jumps to first; 0 where it has none.
    slot: u64,
    displaced: [u8; DISPLACED_MAX],
    displaced_len: u8,
}

impl Site {
    /// A site whose instruction before the call is displaced; `None` if that is too long.
    #[must_use]
    pub fn new(start: u64, back: u64, displaced: &[u8]) -> Option<Site> {
        let mut bytes = [0; DISPLACED_MAX];
        bytes.get_mut(..displaced.len())?.copy_from_slice(displaced);
        Some(Site {
            start,
            back,
            slot: 0,
            displaced: bytes,
            displaced_len: displaced.len() as u8,
        })
    }

    /// A site where only the `syscall` instruction is replaced, by a short jump to `slot`.
    #[must_use]
    pub fn by_slot(call: u64, slot: u64) -> Site {
        Site {
            start: call,
            back: call + 2,
            slot,
            displaced: [0; DISPLACED_MAX],
            displaced_len: 0,
        }
    }

    fn code(&self, at: u64) -> [u8; TRAMPOLINE_LEN as usize] {
        let mut out = Vec::with_capacity(TRAMPOLINE_LEN as usize);
        out.extend_from_slice(&self.displaced[..usize::from(self.displaced_len)]);
        // rdgsbase r11; rorx rcx, r11, 30; lea ecx, [rcx - (AREAS >> 30)]; jrcxz +1
        out.extend_from_slice(&[0xf3, 0x49, 0x0f, 0xae, 0xcb]);
        out.extend_from_slice(&[0xc4, 0xc3, 0xfb, 0xf0, 0xcb, 30]);
        out.extend_from_slice(&[0x8d, 0x89]);
        out.extend_from_slice(&(-((stub::AREAS >> 30) as i32)).to_le_bytes());
        out.extend_from_slice(&[0xe3, 1]);
        // int3: GS is the application's own.
        out.push(0xcc);
        // movabs rcx, back; jmp lane
        out.extend_from_slice(&[0x48, 0xb9]);
        out.extend_from_slice(&self.back.to_le_bytes());
        out.push(0xe9);
        let from = at + out.len() as u64 + 4;
        let distance = lane::entry().wrapping_sub(from) as i64;
        out.extend_from_slice(&i32::try_from(distance).expect("near").to_le_bytes());
        out.resize(TRAMPOLINE_LEN as usize, 0xcc);
        out.try_into().expect("it fits")
    }

    /// Whether `offset` in its trampoline is behind the `int3`.
    fn is_trap(&self, offset: u64) -> bool {
        offset == u64::from(self.displaced_len) + 5 + 6 + 6 + 2 + 1
    }
}

// AREAS is aligned so that the trampolines' test of the GS base is exact.
const _: () = assert!(stub::AREAS.is_multiple_of(1 << 30) && stub::HIGH - stub::AREAS >= 1 << 30);

/// Where trampoline `i` is.
fn trampoline(i: usize) -> u64 {
    stub::TRAMPOLINES + i as u64 * TRAMPOLINE_LEN
}

/// The trampolines of an address space, written to its unit: the table first, then the code.
#[derive(Clone, Debug, Default)]
pub struct Sites(Vec<Site>);

impl Sites {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, i: usize) -> Option<&Site> {
        self.0.get(i)
    }

    /// Adds one; gives the address of its entry in the table.
    pub fn add(&mut self, unit: MemSlice<'_>, site: Site) -> Option<u32> {
        let i = self.0.iter().position(|s| *s == site).or_else(|| {
            let i = self.0.len();
            (i < TRAMPOLINES_MAX).then(|| {
                self.write(unit, i, &site);
                self.0.push(site);
                i
            })
        })?;
        Some((TABLE + 8 * i as u64) as u32)
    }

    fn write(&self, unit: MemSlice<'_>, i: usize, site: &Site) {
        let at = trampoline(i);
        let offset = (TABLE_LEN + at - stub::TRAMPOLINES) as usize;
        unit.sub(offset, TRAMPOLINE_LEN as usize)
            .copy_from(&site.code(at));
        unit.sub(8 * i, 8).copy_from(&at.to_le_bytes());
    }

    /// The same in another address space's unit.
    pub fn copy_to(&self, unit: MemSlice<'_>) {
        for (i, s) in self.0.iter().enumerate() {
            self.write(unit, i, s);
        }
    }

    /// The site whose `syscall` instruction was at `ip`.
    pub fn at_call(&self, ip: u64) -> Option<&Site> {
        self.0.iter().find(|s| s.back.wrapping_sub(2) == ip)
    }

    /// The site whose trampoline `ip` is in, and the offset there.
    fn find(&self, ip: u64) -> Option<(Site, u64)> {
        let offset = ip.checked_sub(stub::TRAMPOLINES)?;
        let site = self.get((offset / TRAMPOLINE_LEN) as usize)?;
        Some((*site, offset % TRAMPOLINE_LEN))
    }
}

/// What to do with a thread that a signal stopped in the lanes' code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its registers are the application's.
    Outside,
    /// They have been made so: the call has not begun; or it is done.
    Inside,
    /// It is at an `int3` that stands for a system call: its registers are those of one.
    Trap,
}

/// Makes the application's registers of those of a thread that was stopped; `pending`: the result of a call that
/// the Sentry has taken from the mailbox and not answered yet.
pub fn outside(
    area: MemSlice<'_>,
    sites: &Sites,
    regs: &mut Regs,
    signal: i32,
    pending: Option<u64>,
) -> Stopped {
    if let Some((site, offset)) = sites.find(regs.rip) {
        // Any signal may stop it there: that is also where the test of the GS base jumps to.
        if signal == libc::SIGTRAP && site.is_trap(offset) {
            regs.rip = site.back;
            return Stopped::Trap;
        }
        regs.rip = if offset == 0 {
            site.start
        } else {
            site.back.wrapping_sub(2)
        };
        return Stopped::Inside;
    }
    let Some(place) = lane::place(regs.rip) else {
        // Between what fills the site up and the jump, or at the second jump: as if at its start.
        let inside = |s: &&Site| {
            s.start < regs.rip && regs.rip < s.back.wrapping_sub(2)
                || s.slot != 0 && s.slot == regs.rip
        };
        return match sites.0.iter().find(inside) {
            Some(s) => {
                regs.rip = s.start;
                Stopped::Inside
            }
            None => Stopped::Outside,
        };
    };
    let word = |at: u64| {
        let mut b = [0; 8];
        area.sub(at as usize, 8).copy_to(&mut b);
        u64::from_le_bytes(b)
    };
    let back = if place == Place::Entry {
        regs.rcx
    } else {
        word(area::LANE_BACK)
    };
    let state = state(area).load(Ordering::SeqCst);
    let result = match place {
        Place::Asked if pending.is_some() => pending,
        Place::Asked => (state & lane::ANSWERED != 0).then(|| word(area::LANE_RESULT)),
        Place::Done => Some(word(area::LANE_RESULT)),
        Place::Called => Some(regs.rax),
        _ => None,
    };
    if place == Place::Asked {
        regs.rdi = word(area::LANE_ARGS);
    }
    if matches!(place, Place::Flags | Place::Asked | Place::Done) {
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
            if matches!(place, Place::Number | Place::Flags | Place::Asked) {
                regs.rax = word(area::LANE_NR);
            }
            regs.rip = back.wrapping_sub(2);
        }
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
    let mut b = [0; 8 * 9];
    let at = area::LANE_NR as usize;
    area.sub(at, b.len()).copy_to(&mut b);
    let word = |at: u64| {
        let i = at as usize - area::LANE_NR as usize;
        u64::from_le_bytes(b[i..i + 8].try_into().expect("8 bytes"))
    };
    let args = core::array::from_fn(|i| word(area::LANE_ARGS + 8 * i as u64));
    // The kernel looks at the low half only.
    let nr = u64::from(word(area::LANE_NR) as u32);
    (nr, args, word(area::LANE_BACK))
}

/// Where the call that a slow lane makes returns to.
pub fn back(area: MemSlice<'_>) -> u64 {
    let mut b = [0; 8];
    area.sub(area::LANE_BACK as usize, 8).copy_to(&mut b);
    u64::from_le_bytes(b)
}

/// Lays a call's result into the mailbox.
pub fn put_result(area: MemSlice<'_>, value: u64) {
    area.sub(area::LANE_RESULT as usize, 8)
        .copy_from(&value.to_le_bytes());
}

/// Writes what calls without arguments give.
pub fn publish(area: MemSlice<'_>, identity: Option<Identity>) {
    let words = identity.map_or([lane::ASK; 6], |i| {
        [i.pid, i.tid, i.uid, i.euid, i.gid, i.egid]
    });
    for (at, w) in (area::PID as usize..).step_by(4).zip(words) {
        let word = area.sub(at, 4).atomic_u32().expect("aligned");
        word.store(w, Ordering::SeqCst);
    }
}

/// How long a thread spins after an answer.
const SPIN: Duration = Duration::from_micros(30);
/// How long it spins for a thread that is woken on another CPU.
const WAKE: Duration = Duration::from_micros(200);
/// A gap like this between two looks: something else wanted the CPU.
const PREEMPTED: Duration = Duration::from_micros(200);
/// Then nobody spins for so long.
const BACK_OFF: Duration = Duration::from_millis(2);
/// The next call comes soon if it comes within this.
const SOON: Duration = Duration::from_micros(20);
/// After so many calls that came soon a thread spins.
const WARM: u8 = 16;

/// Who may spin, in the whole Sentry.
#[derive(Debug)]
pub struct Spinners {
    most: u32,
    now: AtomicU32,
    began: Instant,
    /// Nobody spins before this, in microseconds since `began`.
    not_before: AtomicU64,
    /// Whatever the machine does.
    always: bool,
}

impl Spinners {
    pub fn new(always: bool) -> Spinners {
        Spinners {
            most: hostcall::process::cpu_count() - 1,
            now: AtomicU32::new(0),
            began: Instant::now(),
            not_before: AtomicU64::new(0),
            always,
        }
    }

    fn enter(&self) -> bool {
        if self.always {
            self.now.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        if (self.began.elapsed().as_micros() as u64) < self.not_before.load(Ordering::Relaxed) {
            return false;
        }
        let one_more = |n: u32| (n < self.most).then_some(n + 1);
        self.now
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    fn back_off(&self) {
        let until = self.began.elapsed() + BACK_OFF;
        self.not_before
            .fetch_max(until.as_micros() as u64, Ordering::Relaxed);
    }
}

/// One thread's habits, and whether it is among the spinners.
#[derive(Debug, Default)]
pub struct Habits {
    /// Calls by a lane in a row that came soon after the answer to the one before.
    soon: u8,
    /// When the last answer was given; `None` where that says nothing of the next call.
    answered: Option<Instant>,
    /// Calls from the mailbox since it spins.
    streak: u32,
    pub spins: bool,
    /// It has just begun to: the other side is being woken on another CPU.
    first: bool,
}

impl Habits {
    /// A call has come by a lane, slowly.
    pub fn called(&mut self) {
        if let Some(t) = self.answered.take() {
            let soon = t.elapsed() < SOON;
            self.soon = if soon { self.soon.saturating_add(1) } else { 0 };
        }
    }

    /// An answer is about to be given. Whether the thread begins to spin with it.
    pub fn answering(&mut self, all: &Spinners) -> bool {
        if self.spins {
            return false;
        }
        self.answered = (all.most > 0).then(Instant::now);
        if (self.soon >= WARM || all.always) && all.enter() {
            self.spins = true;
            self.first = true;
            return true;
        }
        false
    }

    /// A call from the mailbox is about to be answered. Whether the thread spins for the next.
    pub fn again(&mut self, all: &Spinners) -> bool {
        self.spins = self.spins || all.enter();
        self.spins
    }

    /// Spins until the state has [`lane::ASKED`]; whether it has. If not, it spins no more.
    pub fn spin(&mut self, state: &AtomicU32, all: &Spinners) -> bool {
        let begin = Instant::now();
        let mut last = begin;
        let first = std::mem::take(&mut self.first);
        let limit = if first { WAKE } else { SPIN };
        loop {
            let mut given_up = false;
            for _ in 0..32 {
                let s = state.load(Ordering::Acquire);
                if s & lane::ASKED != 0 {
                    self.streak = self.streak.saturating_add(1);
                    // What is asked may take long: others may spin meanwhile.
                    self.spins = false;
                    all.leave();
                    return true;
                }
                // It comes another way.
                if s & lane::SPINS == 0 {
                    given_up = true;
                    break;
                }
                std::hint::spin_loop();
            }
            if given_up {
                break;
            }
            let now = Instant::now();
            if now - last > PREEMPTED && !all.always {
                all.back_off();
                break;
            }
            last = now;
            if now - begin > limit {
                break;
            }
        }
        self.rest(all);
        // Asked in the last moment: it is answered as any other.
        state.fetch_and(!lane::SPINS, Ordering::SeqCst) & lane::ASKED != 0
    }

    /// Spins no more.
    pub fn rest(&mut self, all: &Spinners) {
        if std::mem::take(&mut self.spins) {
            all.leave();
        }
        // Who had many calls was kept from the next by something else, perhaps: a few will tell.
        let many = std::mem::take(&mut self.streak) > 4 * u32::from(WARM);
        self.soon = if many { WARM - 2 } else { 0 };
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
            put(area::LANE_ARGS, 5);
            // CF and OF.
            area.sub(area::LANE_FLAGS as usize, 2).copy_from(&[1, 1]);
            f(area);
        });
    }

    /// Wherever the lane's code is stopped, the application is before the call or behind it.
    #[test]
    fn the_lane_is_never_seen() {
        with_area(|area| {
            for state_word in [0, lane::SPINS, lane::SPINS | lane::ASKED, lane::ANSWERED] {
                let mut ip = lane::entry();
                while let Some(place) = lane::place(ip) {
                    state(area).store(state_word, Ordering::SeqCst);
                    for pending in [None, Some(7)] {
                        let mut r = Regs {
                            rip: ip,
                            rcx: BACK,
                            rax: 8,
                            rdi: 5,
                            eflags: 0x202,
                            ..Regs::default()
                        };
                        let s = outside(area, &Sites::default(), &mut r, 0, pending);
                        assert_eq!(s, Stopped::Inside);
                        let expected = match place {
                            Place::Called => (BACK, 8),
                            Place::Done => (BACK, 99),
                            Place::Asked if pending.is_some() => (BACK, 7),
                            Place::Asked if state_word & lane::ANSWERED != 0 => (BACK, 99),
                            _ => (BACK - 2, 8),
                        };
                        assert_eq!(
                            (r.rip, r.rax, r.rdi),
                            (expected.0, expected.1, 5),
                            "{place:?}"
                        );
                        let saved = matches!(place, Place::Flags | Place::Asked | Place::Done);
                        assert_eq!(r.eflags, if saved { 0xa03 } else { 0x202 }, "{place:?}");
                    }
                    ip += 1;
                }
                assert!(ip > lane::called());
            }
        });
    }

    #[test]
    fn a_trampoline_is_left_before_the_call_or_traps() {
        let mut bytes = vec![0u8; stub::AREA_LEN as usize];
        hostcall::mem::with_slice_mut(&mut bytes, |unit| {
            let mut sites = Sites::default();
            let site = Site::new(BACK - 7, BACK, &[0xb8, 39, 0, 0, 0]).unwrap();
            assert_eq!(sites.add(unit, site), Some(TABLE as u32));
            // The same site is not added twice.
            assert_eq!(sites.add(unit, site), Some(TABLE as u32));
            let code = site.code(trampoline(0));
            let traps = code.iter().position(|b| *b == 0xcc).unwrap() as u64 + 1;
            for offset in 0..TRAMPOLINE_LEN {
                let mut r = Regs {
                    rip: trampoline(0) + offset,
                    rax: 39,
                    ..Regs::default()
                };
                let mut kicked = r;
                let s = outside(unit, &sites, &mut r, libc::SIGTRAP, None);
                let (expected, rip) = match offset {
                    0 => (Stopped::Inside, BACK - 7),
                    o if o == traps => (Stopped::Trap, BACK),
                    _ => (Stopped::Inside, BACK - 2),
                };
                assert_eq!((s, r.rip), (expected, rip), "at {offset}");
                let s = outside(unit, &sites, &mut kicked, libc::SIGUSR2, None);
                let rip = if offset == 0 { BACK - 7 } else { BACK - 2 };
                assert_eq!((s, kicked.rip), (Stopped::Inside, rip), "at {offset}");
            }
            assert_eq!(sites.at_call(BACK - 2), Some(&site));
            for i in 0..TRAMPOLINES_MAX as u64 + 5 {
                let site = Site::new(i, i + 7, &[0x90; 5]).unwrap();
                let fits = (i as usize) < TRAMPOLINES_MAX - 1;
                assert_eq!(sites.add(unit, site).is_some(), fits, "{i}");
            }
            assert!(Site::new(0, 9, &[0; 9]).is_none());
        });
    }

    #[test]
    fn fewer_spin_than_there_are_cpus() {
        let all = Spinners {
            most: 2,
            now: AtomicU32::new(0),
            began: Instant::now(),
            not_before: AtomicU64::new(0),
            always: false,
        };
        assert!(all.enter() && all.enter() && !all.enter());
        all.leave();
        assert!(all.enter());
        all.leave();
        all.back_off();
        assert!(!all.enter());
    }
}
