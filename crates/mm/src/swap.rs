//! Sending out what was not used lately, and bringing it in again.
//!
//! # Invariants
//!
//! - What is sent out is private and is not mapped on the host. All its references are those of
//!   PMAs whose address spaces are locked, which every access needs that has no reference of its
//!   own. So nobody sees it go. It becomes [`PmaKind::Swapped`] in all of them in the same step.
//! - Who shares frames since a fork is found among the family ([`Kin`]), at the same address: where
//!   that does not explain all references, they stay. The lock of a second address space is only
//!   tried.
//! - A frame that is away is [`PmaKind::Swapped`] wherever it is: fork(2) copies that, mremap(2)
//!   moves it. What another address space has brought in may still be so here; bringing it in again
//!   is nothing. Where that one has given it up since, it is in memory and no hand passes by it: a
//!   *stray*, which is looked for where little else goes.
//! - Locked and confidential memory stays, and what is within a reservation ([`crate::bounds`]).
//!
//! # Which memory
//!
//! Whatever the host has mapped was used since the hand passed the last time: what is not mapped
//! costs a fault, which maps a cluster around it. So the hand goes round through the address space
//! and sends out clusters that are not mapped; those that are lose their mapping, and have until
//! the next round to be used (second chance).

use crate::hands::clusters;
use crate::pma::{Pma, PmaKind, window};
use crate::state::State;
use crate::types::Bad;
use crate::vma::VmaFlags;
use crate::{Mm, PAGE};
use abi::Va;
use abi::errno::ENOMEM;
use clas::{AccountId, Cla};
use parking_lot::MutexGuard;
use platform::USER_MAX;
use std::ops::Range;
use std::time::Duration;

/// So many times what is wanted is looked at; where all of that was used lately, the first of it
/// goes.
const LOOK: u64 = 8;

/// What a hand has passed.
#[derive(Default)]
pub(crate) struct Round {
    /// Clusters that were not used lately, and those that were.
    pub(crate) unused: Vec<Range<u64>>,
    pub(crate) used: Vec<Range<u64>>,
    /// It came to the end of what it was to look at.
    at_end: bool,
}

/// Which of an address space's memory goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// By second chance, all round; what was used lately goes only where nothing else would.
    SecondChance,
    /// By second chance, until the hand comes to the end of the address space; a part at a time.
    Lap,
    /// What was not used for so many generations ([`Mm::age`]).
    Older(u32),
    /// What is here though all that have it take it for swapped out: it counts for none of them.
    Strays,
}

/// What went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapOut {
    pub bytes: u64,
    /// Of [`Pick::Lap`]: the lap is over.
    pub at_end: bool,
}

impl SwapOut {
    /// Nothing, and there is no more.
    const NOTHING: SwapOut = SwapOut {
        bytes: 0,
        at_end: true,
    };
}

/// Which of what others have mapped, too, is sent out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Others {
    /// What they do not have mapped; else they lose their mapping, this time.
    Unused,
    All,
}

impl Mm {
    /// Sends out up to so many bytes that were not used lately, as `pick` has it, of frames that
    /// this account or one below pays for, but nothing of its reservation. For who holds the
    /// address space it waits so long (else a busy process would give nothing, and others more);
    /// where that one waits for room, it is asked to do it, later.
    pub fn send_out(&self, bytes: u64, of: AccountId, pick: Pick, patience: Duration) -> SwapOut {
        let held = || (!self.waiter.waits()).then(|| self.state.try_lock_for(patience));
        let Some(mut st) = self.state.try_lock().or_else(|| held().flatten()) else {
            if self.waiter.ask(bytes, of) {
                self.clas.wake_waiters();
            }
            return SwapOut::NOTHING;
        };
        st.swap.of = of;
        let whole = |bytes| SwapOut {
            bytes,
            at_end: true,
        };
        let sent = match pick {
            Pick::SecondChance => whole(st.give(bytes)),
            Pick::Lap => st.send_lap(bytes),
            Pick::Older(age) => whole(st.send_older(bytes, age)),
            Pick::Strays => whole(st.send_strays(bytes)),
        };
        st.swap.of = AccountId::ROOT;
        let met = std::mem::take(&mut st.met);
        drop(st);
        drop(met);
        sent
    }

    /// Forgets what files serve at these places, where that need not stay. It waits for nobody: who
    /// waits for room with this locked gives it when asked ([`State::free_some`]).
    pub(crate) fn give_files(&self, places: &[(Va, u64)]) {
        let Some(mut st) = self.state.try_lock() else {
            return;
        };
        for (va, len) in places {
            let r = va.0..va.0.saturating_add(*len);
            let is_reserved = st.bounds.get().reserve > 0 && !st.may_lose(r.end - r.start);
            if !st.stays(&r) && !is_reserved {
                st.forget_file(r);
            }
        }
        st.host.flush();
        let freed = st.take_freed();
        drop(st);
        freed.decref(&self.clas);
    }

    /// Bytes of frames that its mappings have and that are not swapped out.
    #[must_use]
    pub fn charged_here(&self) -> u64 {
        self.charged.all().saturating_sub(self.charged.swapped())
    }
}

impl State {
    /// See [`Mm::send_out`]. Only where all was looked at it may be nothing.
    pub(crate) fn give(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut done = self.send_out(self.spare(bytes));
        if done < bytes {
            done += self.send_strays(bytes - done);
        }
        done
    }

    /// Sends out what others have brought in of what is swapped out here: they may have given it up
    /// since, so that no other hand finds it.
    fn send_strays(&mut self, bytes: u64) -> u64 {
        if !self.can_send() {
            return 0;
        }
        let strays = self.strays(bytes);
        let steps = [(&strays, Others::Unused), (&strays, Others::All)];
        self.send_steps(&steps, bytes)
    }

    /// Sends out up to so many bytes that are here, of its reservation, too.
    pub(crate) fn send_out(&mut self, bytes: u64) -> u64 {
        let mut done = 0;
        for _ in 0..self.rounds(bytes) {
            if done > 0 || bytes == 0 || !self.can_send() {
                break;
            }
            done = self.send_next(bytes);
        }
        done
    }

    /// In so many rounds all is looked at, twice.
    pub(crate) fn rounds(&self, bytes: u64) -> u64 {
        self.pmas.charged().all() / bytes.saturating_mul(LOOK).max(PAGE) + 2
    }

    pub(crate) fn can_send(&self) -> bool {
        !self.host.is_gone() && self.clas.can_swap()
    }

    /// Where such strays lie, until there are so many bytes. Looks only if some have come since
    /// there were none.
    fn strays(&mut self, bytes: u64) -> Vec<Range<u64>> {
        let (mut out, mut found) = (Vec::new(), 0);
        let came = self.clas.came_shared();
        if came == self.swap.no_strays_at {
            return out;
        }
        for (r, pma) in self.pmas.iter().filter(|(_, p)| !p.is_here()) {
            let Some(frame) = pma.frames() else { continue };
            let (mut at, pages) = (0, (r.end - r.start) / PAGE);
            while let Some(here) = self.clas.next_here(frame.add(at * PAGE), pages - at) {
                let start = r.start + (at + here.start) * PAGE;
                at += here.end;
                found += (here.end - here.start) * PAGE;
                out.push(start..r.start + at * PAGE);
                if found >= bytes {
                    return out;
                }
            }
        }
        if out.is_empty() {
            self.swap.no_strays_at = came;
        }
        out
    }

    fn send_next(&mut self, bytes: u64) -> u64 {
        let Some(round) = self.next_round(bytes, is_private) else {
            return 0;
        };
        let steps = [
            (&round.unused, Others::Unused),
            (&round.unused, Others::All),
            (&round.used, Others::All),
        ];
        self.send_steps(&steps, bytes)
    }

    /// A part of a lap ([`Pick::Lap`]).
    fn send_lap(&mut self, bytes: u64) -> SwapOut {
        let bytes = self.spare(bytes.next_multiple_of(PAGE));
        if bytes == 0 || !self.can_send() {
            return SwapOut::NOTHING;
        }
        let lap = self.swap.out..USER_MAX;
        let round = self.look([lap, 0..0], bytes, is_private);
        if !self.unmap_used(&round) {
            return SwapOut::NOTHING;
        }
        if round.at_end {
            self.swap.out = 0;
        }
        SwapOut {
            bytes: self.send_unused(&round.unused, bytes),
            at_end: round.at_end,
        }
    }

    /// Sends out what nobody else has mapped either; those that have lose their mapping.
    pub(crate) fn send_unused(&mut self, found: &Vec<Range<u64>>, bytes: u64) -> u64 {
        self.send_steps(&[(found, Others::Unused)], bytes)
    }

    /// Clusters from the hand on, all round, of PMAs that go (`goes`); none of them is mapped here
    /// any more. `None` where the host cannot unmap it.
    pub(crate) fn next_round(&mut self, bytes: u64, goes: impl Fn(&Pma) -> bool) -> Option<Round> {
        let start = self.swap.out;
        let round = self.look([start..USER_MAX, 0..start], bytes, goes);
        self.unmap_used(&round).then_some(round)
    }

    /// False where the host cannot.
    fn unmap_used(&mut self, round: &Round) -> bool {
        self.swap.matters = true;
        for r in &round.used {
            self.host.unmap(r.clone());
        }
        self.host.flush() && !self.host.is_gone()
    }

    /// Sends out up to so many bytes of what is not mapped here, step by step. What was used goes
    /// only where else nothing would.
    pub(crate) fn send_steps(&mut self, steps: &[(&Vec<Range<u64>>, Others)], bytes: u64) -> u64 {
        if steps.iter().all(|(ranges, _)| ranges.is_empty()) {
            return 0;
        }
        let kin = self.kin.all();
        let mut others: Vec<_> = kin.iter().filter_map(|m| m.state.try_lock()).collect();
        let mut done = 0;
        for (ranges, which) in steps {
            if done > 0 && *which == Others::All {
                break;
            }
            for r in *ranges {
                if done >= bytes {
                    break;
                }
                let part = r.start..r.end.min(r.start + (bytes - done));
                done += self.send_range(part, &mut others, *which);
            }
        }
        drop(others);
        self.met.extend(kin);
        done
    }

    /// Clusters of these places that could go, of PMAs that do (`goes`), until there are enough
    /// that were not used lately, or [`LOOK`] times as much was looked at. The hand moves on.
    fn look(&mut self, places: [Range<u64>; 2], bytes: u64, goes: impl Fn(&Pma) -> bool) -> Round {
        let mut round = Round::default();
        let (mut found, mut looked) = (0, 0);
        let mut end = self.swap.out;
        self.tell_clusters(places, goes, |st, part| {
            end = part.end;
            let len = part.end - part.start;
            looked += len;
            if st.host.overlaps(part.clone()) {
                round.used.push(part);
            } else {
                found += len;
                round.unused.push(part);
            }
            found < bytes && looked < bytes.saturating_mul(LOOK)
        });
        round.at_end = found < bytes && looked < bytes.saturating_mul(LOOK);
        self.swap.out = end;
        round
    }

    /// Clusters, all round, that are not mapped and of this age, until there are enough. The hand
    /// moves on.
    pub(crate) fn look_older(&mut self, bytes: u64, age: u32) -> Vec<Range<u64>> {
        let (mut out, mut found) = (Vec::new(), 0);
        let start = self.swap.out;
        let mut end = start;
        self.tell_clusters([start..USER_MAX, 0..start], is_private, |st, part| {
            if st.ages.of(part.start) >= age && !st.host.overlaps(part.clone()) {
                end = part.end;
                found += part.end - part.start;
                out.push(part);
            }
            found < bytes
        });
        self.swap.out = end;
        out
    }

    /// Tells clusters of PMAs that go, which could be sent out, for as long as they are wanted.
    fn tell_clusters(
        &self,
        places: [Range<u64>; 2],
        goes: impl Fn(&Pma) -> bool,
        mut tell: impl FnMut(&State, Range<u64>) -> bool,
    ) {
        for place in places {
            for (e, pma) in self.pmas.range(place.clone()) {
                if !goes(pma) {
                    continue;
                }
                for part in clusters(e.start.max(place.start)..e.end.min(place.end)) {
                    // (Clusters are mostly one account's.)
                    let frame = pma.after(part.start - e.start).frames();
                    let is_of = |f| self.clas.is_paid_by(f, self.swap.of);
                    if frame.is_none_or(is_of) && !self.stays(&part) && !tell(self, part) {
                        return;
                    }
                }
            }
        }
    }

    pub(crate) fn stays(&self, r: &Range<u64>) -> bool {
        const KEPT: VmaFlags = VmaFlags::LOCKED
            .union(VmaFlags::LOCKONFAULT)
            .union(VmaFlags::CONFIDENTIAL);
        let mut vmas = self.vmas.range(r.clone());
        vmas.any(|(_, v)| v.flags.intersects(KEPT))
    }

    /// Sends out what is here and can go of `r`, which is not mapped here; how many bytes.
    fn send_range(
        &mut self,
        r: Range<u64>,
        others: &mut [MutexGuard<'_, State>],
        which: Others,
    ) -> u64 {
        let mut done = 0;
        let mut at = r.start;
        while at < r.end {
            let Some((e, pma)) = self.pmas.get(at).map(|(e, p)| (e, *p)) else {
                break;
            };
            let mut end = e.end.min(r.end);
            let frame = pma.after(at - e.start).frames().filter(|_| !pma.is_file());
            let Some(frame) = frame else {
                at = end;
                continue;
            };
            if !pma.is_here() {
                // Somebody else has brought some in. (None can go meanwhile: that needs this lock.)
                match self.clas.next_here(frame, (end - at) / PAGE) {
                    Some(here) if here.start == 0 => end = at + here.end * PAGE,
                    Some(here) => {
                        at += here.start * PAGE;
                        continue;
                    }
                    None => {
                        at = end;
                        continue;
                    }
                }
            }
            // As far as everybody has it in one piece.
            let ends = others.iter().filter_map(|o| o.owner(at, frame));
            let end = ends.map(|e| e.end).fold(end, u64::min);
            let (refs, pages) = self.clas.shared_prefix(frame, (end - at) / PAGE);
            let part = at..at + pages * PAGE;
            // (All of them count for the same account.)
            let is_of = self.clas.is_paid_by(frame, self.swap.of);
            if pages == 0 || !is_of || !unmap_others(others, &part, frame, refs - 1, which) {
                at = part.end.max(at + PAGE);
                continue;
            }
            let went = self.clas.send_out(frame, pages) * PAGE;
            let gone = at..at + went;
            if went == 0 {
                break;
            }
            for o in others.iter_mut().filter(|_| refs > 1) {
                if o.is_owner(&gone, frame) {
                    o.pmas.set_kind(&gone, PmaKind::Swapped);
                }
            }
            self.pmas.set_kind(&gone, PmaKind::Swapped);
            done += went;
            if went < pages * PAGE {
                break;
            }
            at += went;
        }
        done
    }

    /// Where the PMA lies that serves `va` with the private frame `at`, if one does.
    fn owner(&self, va: u64, at: Cla) -> Option<Range<u64>> {
        let (e, p) = self.pmas.get(va)?;
        (!p.is_file() && p.after(va - e.start).frames() == Some(at)).then_some(e)
    }

    /// Whether one PMA serves `r`, with the private frames from `at` on.
    fn is_owner(&self, r: &Range<u64>, at: Cla) -> bool {
        self.owner(r.start, at).is_some_and(|e| r.end <= e.end)
    }

    /// Who holds this waits for room, and was asked to free some of what this account pays for.
    pub(crate) fn free_some(&mut self, bytes: u64, of: AccountId) {
        let clas = self.clas.clone();
        let _stall = clas.stall();
        self.swap.of = of;
        let given = self.give(bytes);
        self.swap.of = AccountId::ROOT;
        if given == 0 && self.trim() == 0 && self.free_files(bytes) == 0 {
            self.waiter.give_up();
        }
    }

    /// Forgets frames of files, which others send out then: at least so many bytes, if it has them;
    /// how many.
    fn free_files(&mut self, bytes: u64) -> u64 {
        if !self.can_send() {
            return 0;
        }
        let is_file = |p: &Pma| p.is_file() && p.frames().is_some();
        let mut given = 0;
        for _ in 0..self.rounds(bytes) {
            let Some(round) = self.next_round(bytes, is_file) else {
                break;
            };
            given += self.forget_frames(&round.unused, u64::MAX);
            given += self.forget_frames(&round.used, u64::MAX);
            if given >= bytes {
                break;
            }
        }
        self.host.flush();
        self.take_freed().decref(&self.clas);
        given
    }

    /// `MADV_PAGEOUT`.
    pub(crate) fn page_out(&mut self, r: Range<u64>) {
        if !self.can_send() || self.stays(&r) {
            return;
        }
        self.host.unmap(r.clone());
        if !self.host.flush() || self.host.is_gone() {
            return;
        }
        let found: Vec<Range<u64>> = self
            .pmas
            .range(r.clone())
            .map(|(e, _)| e.start.max(r.start)..e.end.min(r.end))
            .collect();
        // As on Linux, what others have as well stays.
        for part in found {
            self.send_range(part, &mut [], Others::All);
        }
    }

    /// Brings in what serves `va`, of `r`, which one PMA of kind `Swapped` serves.
    pub(crate) fn bring_in(&mut self, va: u64, r: Range<u64>) -> Result<(), Bad> {
        let Some((e, pma)) = self.pmas.get(va).map(|(e, p)| (e, *p)) else {
            return Err(Bad::Bus);
        };
        self.ages.note_use(va);
        let mut part = self.swap.inward(va, &r);
        if part.end - part.start > self.own_room() {
            part = window(va, PAGE, &r);
            self.fits(PAGE)?;
        }
        let mut found = self.bring_part(&e, pma, &part);
        if found == Err(ENOMEM) && part.end - part.start > PAGE {
            part = window(va, PAGE, &r);
            found = self.bring_part(&e, pma, &part);
        }
        let alone = found.map_err(|e| if e == ENOMEM { Bad::Memory } else { Bad::Bus })?;
        let kind = if alone {
            PmaKind::Anon
        } else {
            PmaKind::AnonCow
        };
        self.pmas.set_kind(&part, kind);
        Ok(())
    }

    /// Brings in the frames of `part`; whether nobody else has any of them.
    fn bring_part(
        &self,
        e: &Range<u64>,
        pma: crate::pma::Pma,
        part: &Range<u64>,
    ) -> crate::Result<bool> {
        let at = pma.after(part.start - e.start).frames();
        let at = at.ok_or(abi::errno::EIO)?;
        let pages = (part.end - part.start) / PAGE;
        self.clas.bring_in(at, pages)
    }
}

/// What can be sent out: a process's own memory.
pub(crate) fn is_private(p: &Pma) -> bool {
    matches!(p.kind, PmaKind::Anon | PmaKind::AnonCow)
}

/// Unmaps `r`, which is the frames from `at` on, in the others that have these. Whether those are
/// `refs`, all unlocked and above their reservations, and nothing is mapped there any more.
fn unmap_others(
    others: &mut [MutexGuard<'_, State>],
    r: &Range<u64>,
    at: Cla,
    refs: u32,
    which: Others,
) -> bool {
    if refs == 0 {
        return true;
    }
    let owners = others.iter_mut().filter(|o| o.is_owner(r, at));
    let mut owners: Vec<_> = owners.collect();
    let keeps = |o: &State| o.stays(r) || o.host.is_gone() || !o.may_lose(r.end - r.start);
    if owners.len() != refs as usize || owners.iter().any(|o| keeps(o)) {
        return false;
    }
    let mut was_used = false;
    for o in &mut owners {
        was_used |= o.host.overlaps(r.clone());
        o.host.unmap(r.clone());
        if !o.host.flush() || o.host.is_gone() {
            return false;
        }
    }
    which == Others::All || !was_used
}
