//! How much memory an address space may have here, and how much of it stays.
//!
//! # Invariants
//!
//! - What is *here* is counted by PMAs ([`Charged`]): frames that serve its mappings, touched or
//!   not. What others have, too, counts for each; what was swapped out does not, nor do files that
//!   the host keeps.
//! - Where there is a limit, what comes here is asked for first ([`State::fits`]), under the same
//!   lock: so never more is here, but for what was here before the limit was set.
//! - Who needs room below its own limit makes it itself, of this address space alone
//!   ([`State::make_own_room`]); nobody else waits. Where it cannot, its process is to be ended.
//! - Others take nothing of what is within the reservation ([`State::spare`],
//!   [`State::may_lose`]). Who has it may send it out: for a limit of its own, or by madvise(2).
//!
//! [`Charged`]: crate::state::pmas::Charged

use crate::pma::{Pma, PmaKind};
use crate::resolve::Effort;
use crate::state::State;
use crate::swap::Others;
use crate::types::Bad;
use crate::{Mm, PAGE};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// What of an address space's memory is here at most, and what of it stays here. In bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Never more is here; `u64::MAX` for no limit.
    pub limit: u64,
    /// While no more than this is here, others cannot have it sent out.
    pub reserve: u64,
}

impl Bounds {
    /// What a fork's child has: the limit, of what is its own then; what is guaranteed is not
    /// guaranteed twice.
    #[must_use]
    pub fn inherited(self) -> Bounds {
        Bounds { reserve: 0, ..self }
    }
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            limit: u64::MAX,
            reserve: 0,
        }
    }
}

/// The same, as it may change while it is read: each for itself.
#[derive(Debug)]
pub(crate) struct Bounded {
    limit: AtomicU64,
    reserve: AtomicU64,
}

impl Default for Bounded {
    fn default() -> Bounded {
        let none = Bounds::default();
        Bounded {
            limit: AtomicU64::new(none.limit),
            reserve: AtomicU64::new(none.reserve),
        }
    }
}

impl Bounded {
    pub(crate) fn set(&self, b: Bounds) {
        self.limit.store(b.limit, Ordering::Relaxed);
        self.reserve.store(b.reserve, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Bounds {
        Bounds {
            limit: self.limit.load(Ordering::Relaxed),
            reserve: self.reserve.load(Ordering::Relaxed),
        }
    }
}

impl Mm {
    /// Changes its bounds. What is here above the limit goes with [`Mm::shrink`], or as soon as
    /// something more is needed.
    pub fn set_bounds(&self, b: Bounds) {
        self.bounds.set(b);
        self.waiter.recover();
    }

    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.bounds.get()
    }

    /// Whether it needed more than its own limit leaves, and could give up nothing for it.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.waiter.is_exhausted()
    }

    /// Gives up what is here above its limit: whether all of that went; `None` where somebody is
    /// busy with it, or there is more than can go at once.
    #[must_use]
    pub fn shrink(&self) -> Option<bool> {
        /// Others wait for the caller.
        const BATCHES: u32 = 8;
        let is_over = || self.charged_here() > self.bounds().limit;
        if !is_over() {
            return Some(true);
        }
        let mut st = self.state.try_lock()?;
        let mut went = true;
        for _ in 0..BATCHES {
            went = went && is_over() && st.make_own_room();
        }
        st.host.flush();
        let freed = st.take_freed();
        let met = std::mem::take(&mut st.met);
        drop(st);
        freed.decref(&self.clas);
        drop(met);
        match is_over() {
            true if went => None,
            is_over => Some(!is_over),
        }
    }
}

impl State {
    fn here(&self) -> u64 {
        let c = self.pmas.charged();
        c.all().saturating_sub(c.swapped())
    }

    /// So many bytes more may be here.
    pub(crate) fn own_room(&self) -> u64 {
        self.bounds.get().limit.saturating_sub(self.here())
    }

    /// Whether so many bytes more may be here.
    pub(crate) fn fits(&self, bytes: u64) -> std::result::Result<(), Bad> {
        if bytes <= self.own_room() {
            Ok(())
        } else {
            Err(Bad::Limit)
        }
    }

    /// As [`clas::Clas::at_once`], within the own limit: of at most `most` bytes.
    pub(crate) fn own_at_once(&self, most: u64) -> u64 {
        clas::part_of_room(self.own_room(), most)
    }

    /// What of so many bytes others may have of it.
    pub(crate) fn spare(&self, bytes: u64) -> u64 {
        bytes.min(self.here().saturating_sub(self.bounds.get().reserve))
    }

    /// Whether so many bytes can go without a part of the reservation.
    pub(crate) fn may_lose(&self, bytes: u64) -> bool {
        self.spare(bytes) == bytes
    }

    /// The own limit leaves no room, and `effort` says what that is worth: room was made, and the
    /// caller tries again, or the process has to end.
    pub(crate) fn at_own_limit(&mut self, effort: Effort) -> std::result::Result<(), Bad> {
        if effort == Effort::Guess {
            return Err(Bad::Memory);
        }
        let clas = self.clas.clone();
        let stall = clas.stall();
        let some_went = self.make_own_room();
        drop(stall);
        if some_went {
            return Ok(());
        }
        self.waiter.exhaust();
        self.clas.tell_of_exhausted();
        Err(Bad::Limit)
    }

    /// Has something here go: to swap, or untouched, or of files, which keep it. Whether anything
    /// went.
    fn make_own_room(&mut self) -> bool {
        let batch = clas::kept_free(self.bounds.get().limit).max(PAGE);
        let before = self.here();
        // (What nobody touched goes out as well, for nothing.)
        if self.can_send() || self.trim() == 0 {
            self.let_go(batch);
        }
        if self.here() == before {
            self.trim();
        }
        self.here() < before
    }

    /// Up to so many bytes go that were not used lately, of files and, where there is swap, of its
    /// own: by one hand, so that neither displaces the other.
    fn let_go(&mut self, bytes: u64) {
        let swaps = self.can_send();
        let goes = |pma: &Pma| match pma.kind {
            PmaKind::Anon | PmaKind::AnonCow => swaps,
            PmaKind::File | PmaKind::FileWritable => pma.frames().is_some(),
            PmaKind::Swapped => false,
        };
        for _ in 0..self.rounds(bytes) {
            let Some(round) = self.next_round(bytes, goes) else {
                return;
            };
            for ranges in [round.unused, round.used] {
                let files = self.forget_frames(&ranges, bytes);
                let steps = [(&ranges, Others::Unused), (&ranges, Others::All)];
                if files + self.send_steps(&steps, bytes - files) > 0 {
                    return;
                }
            }
        }
    }

    /// Forgets frames that files keep: up to so many bytes of these parts of PMAs; how many went.
    pub(crate) fn forget_frames(&mut self, parts: &[Range<u64>], bytes: u64) -> u64 {
        let mut done = 0;
        for r in parts {
            let is_file = self.pmas.get(r.start).is_some_and(|(_, p)| p.is_file());
            let part = r.start..r.end.min(r.start.saturating_add(bytes - done));
            if is_file && !part.is_empty() {
                done += part.end - part.start;
                self.pma_remove(part);
            }
        }
        done
    }
}
