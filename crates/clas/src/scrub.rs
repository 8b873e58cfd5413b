//! Confidential memory: its contents are gone as soon as it is given up.
//!
//! ContainerVisor, section III.D: a page that is given back to the host keeps its contents there
//! until somebody else uses it. What is confidential is overwritten with zeros first.
//!
//! # Invariants
//!
//! - A frame is marked before anything confidential is written to it, and stays so until it is
//!   freed. A copy of it is marked before it has any contents.
//! - No page of a marked frame is given back to the host with its contents: not when it is freed,
//!   by whatever end its last reference comes to, nor when it is emptied in place.
//! - It is never swapped out.
//! - Since the first mark, contents of files in memory and what the Sentry itself frees are
//!   scrubbed as well ([`hostcall::scrub`]): both may be copies.

use crate::accounts::Owner;
use crate::{Cla, Clas};
use abi::PAGE_SIZE;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Who keeps the memory file may be busy: so often it is told, with so long between.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);
/// What is overwritten at once: more would be in the Sentry's page tables than it may have
/// ([`Clas::limit_view`]).
const PIECE: u64 = 1 << 20;

/// Whether something of a container is confidential. Atomics, each for itself.
#[derive(Default)]
pub(crate) struct Secrets {
    /// Something was, ever.
    some: AtomicBool,
    /// Who is told of it ([`Clas::on_confidential`]), and whether that was done.
    keeper: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    is_told: AtomicBool,
}

impl Secrets {
    /// There is something from now on.
    fn begin(&self) {
        if !self.some.swap(true, Ordering::Relaxed) {
            hostcall::scrub::begin();
        }
        if let Some(tell) = self.keeper.get()
            && !self.is_told.load(Ordering::Relaxed)
        {
            let is_told = (0..TRIES).any(|_| {
                tell() || {
                    std::thread::sleep(PAUSE);
                    false
                }
            });
            self.is_told.store(is_told, Ordering::Relaxed);
        }
    }

    fn are_some(&self) -> bool {
        self.some.load(Ordering::Relaxed)
    }
}

impl Clas {
    /// The contents of `pages` frames are confidential from now on.
    ///
    /// # Panics
    /// Where one of them is not allocated.
    pub fn mark_confidential(&self, at: Cla, pages: u64) {
        let (start, end) = (at.page(), at.page() + pages);
        self.secrets.begin();
        let mut inner = self.inner.lock();
        if !(inner.refs).all_owners(start, end, Owner::is_confidential) {
            (inner.refs).change_owners(start, end, Owner::confidential);
        }
    }

    /// Has somebody told, once something is confidential, who overwrites the memory file when this
    /// process cannot any more; whether that worked. Called with an address space's lock held.
    pub fn on_confidential(&self, tell: Box<dyn Fn() -> bool + Send + Sync>) {
        let _ = self.secrets.keeper.set(tell);
    }

    /// Whether something was confidential, ever.
    pub(crate) fn has_secrets(&self) -> bool {
        self.secrets.are_some()
    }

    /// Whether some of `pages` frames are confidential.
    #[must_use]
    pub fn is_confidential(&self, at: Cla, pages: u64) -> bool {
        let (start, end) = (at.page(), at.page() + pages);
        self.secrets.are_some()
            && !(self.inner.lock().refs).all_owners(start, end, |o| !o.is_confidential())
    }

    /// How many of the first of `pages` frames are not confidential.
    pub(crate) fn open_prefix(&self, at: Cla, pages: u64) -> u64 {
        if !self.secrets.are_some() {
            return pages;
        }
        let end = at.page() + pages;
        let inner = self.inner.lock();
        let mut runs = inner.refs.from(at.page()).take_while(|r| r.0 < end);
        let marked = runs.find(|r| r.2.is_confidential());
        marked.map_or(pages, |r| r.0.max(at.page()) - at.page())
    }

    /// Whether what was confidential may be in frames of this owner.
    pub(crate) fn is_to_scrub(&self, owner: Owner) -> bool {
        owner.is_confidential() || (owner.is_file() && hostcall::scrub::has_begun())
    }

    /// Overwrites what has pages of a part of the file.
    pub(crate) fn scrub(&self, at: u64, to: u64) {
        if hostcall::scrub::part(self.file.raw(), at, to).is_ok() {
            return;
        }
        // (By a signal.) What has no page gets one, and loses it again.
        for from in (at..to).step_by(PIECE as usize) {
            let len = (to - from).min(PIECE);
            self.slice(Cla(from), len as usize).zero();
        }
    }

    /// The same of frames that stay allocated, if something confidential may be in them.
    pub(crate) fn scrub_some(&self, at: Cla, pages: u64) {
        let (start, end) = (at.page(), at.page() + pages);
        let is_clean = |o: Owner| !self.is_to_scrub(o);
        if hostcall::scrub::has_begun()
            && !(self.inner.lock().refs).all_owners(start, end, is_clean)
        {
            self.scrub(at.0, at.0 + pages * PAGE_SIZE);
        }
    }

    /// Before the memory file goes: nothing is left of what its frames had, if something was
    /// confidential. Nobody accesses them any more. (Who was given the file may have it still: it
    /// has no page then.)
    pub(crate) fn scrub_all(&self) {
        if self.secrets.are_some() {
            let all = self.mapped.load(Ordering::Acquire);
            self.scrub(0, all);
            let _ = hostcall::mem::punch_hole(self.file.raw(), 0, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlacementHint;
    use abi::Va;

    const P: u64 = PAGE_SIZE;
    const SECRET: &[u8] = b"a secret that is nowhere else";

    /// Has the page of a frame looked at when it is given back: by way of the file, which still has
    /// it then.
    fn holds(c: &Clas, at: Cla) -> bool {
        let mut page = vec![0; P as usize];
        c.read_frames(at, &mut page).unwrap();
        page.windows(SECRET.len()).any(|w| w == SECRET)
    }

    fn anon(c: &Clas, pages: u64) -> Cla {
        let at = c
            .allocate_anon(pages, PlacementHint::default(), Va(0))
            .unwrap();
        c.slice(at, SECRET.len()).copy_from(SECRET);
        at
    }

    #[test]
    fn marks_go_with_frames_and_copies() {
        let c = Clas::new().unwrap();
        let at = anon(&c, 4);
        c.mark_confidential(at, 2);
        assert!(c.is_confidential(at, 1) && c.is_confidential(at, 4));
        assert!(!c.is_confidential(at.add(2 * P), 2));
        let copy = c.copy_of(at, 4, PlacementHint::default()).unwrap();
        assert!(c.is_confidential(copy, 1) && holds(&c, copy));
        // Its end is not that of the mark: others still have it.
        c.incref(at, 4);
        c.decref(at, 4);
        assert!(c.is_confidential(at, 2));
        c.decref(at, 4);
        c.decref(copy, 4);
        // What comes in its place is not.
        let next = c.allocate(4, Some(at.add(4 * P))).unwrap();
        assert!(!c.is_confidential(next, 4));
        c.decref(next, 4);
    }

    #[test]
    fn it_is_overwritten_before_it_is_given_back() {
        let c = Clas::new().unwrap();
        // As many as are not kept for the next to come; most have no page, and get none.
        let at = anon(&c, 2000);
        c.slice(at.add(999 * P), SECRET.len()).copy_from(SECRET);
        c.mark_confidential(at, 2000);
        assert!(holds(&c, at) && holds(&c, at.add(999 * P)));
        let before = c.stats().resident;
        c.scrub_some(at, 2000);
        assert!(!holds(&c, at) && !holds(&c, at.add(999 * P)));
        assert_eq!(c.stats().resident, before);
        c.decref(at, 2000);
        assert_eq!(c.stats().resident, 0);
        // Files are scrubbed as well by now.
        let owner = Owner::new(crate::AccountId::ROOT, crate::accounts::Use::File);
        assert!(c.is_to_scrub(owner));
    }

    #[test]
    fn it_is_not_sent_out() {
        let c = Clas::new().unwrap();
        c.swap_in_memory(100 * P).unwrap();
        let at = anon(&c, 3);
        c.mark_confidential(at.add(P), 1);
        assert_eq!(c.send_out(at, 3), 1);
        assert_eq!(c.send_out(at.add(P), 2), 0);
        assert_eq!(c.send_out(at.add(2 * P), 1), 1);
        c.decref(at, 3);
    }
}
