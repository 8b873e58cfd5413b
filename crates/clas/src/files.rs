//! Contents of files in memory, and shared memory: what of them is sent out.
//!
//! # Invariants
//!
//! - A file holds one reference to each of its frames. Who maps them has more, and so has who looks
//!   at them without the file's lock.
//! - Frames go while the file's lock is held ([`Pageable::each_run`]), and only those that have one
//!   reference, which is the file's: so nobody has them mapped, looks at them, or can begin to.
//!   Who takes frames from a file, under its lock, has them brought in first
//!   ([`Clas::bring_first`]), or reads them where they are ([`Clas::read_out`]).
//! - Mappings are taken away without the file's lock, and only from address spaces that are free:
//!   nobody is waited for ([`MappingObserver::release`]).
//! - A file is in the list as long as its [`Listed`] is.
//! - Once something is confidential, files stay: they may have copies of it.
//!
//! The list's lock is a leaf.
//!
//! # Which of them
//!
//! A hand goes round through all files. What is mapped loses its mapping, and goes when the hand
//! comes again, if nobody has mapped it since (second chance). Of what is read and written it is
//! known by file alone: one that was used since the hand passed is passed by once. Where little
//! else would go, the first of these goes.
//!
//! [`MappingObserver::release`]: crate::MappingObserver::release

use crate::registry::MappingRegistry;
use crate::{AccountId, Cla, Clas};
use abi::PAGE_SIZE;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What goes, or loses its mapping, as one: pages.
const CLUSTER: u64 = 16;
/// What goes under one hold of a file's lock, in pages: others wait meanwhile.
const HOLD: u64 = 64;
/// So many times what is wanted is looked at; where all of that was used lately, the first of it
/// goes.
const LOOK: u64 = 8;

/// A file in memory.
pub trait Pageable: Send + Sync {
    /// Tells its runs of frames, in order, from this page of the file on or from the one that it is
    /// in: the run's first page and frame, and its length. As long as `tell` says so, under the
    /// lock that everybody needs who takes frames from the file; none where that is not free.
    fn each_run(&self, page: u64, tell: &mut dyn FnMut(u64, Cla, u64) -> bool);
    /// Who maps it, if anybody can.
    fn mappers(&self) -> Option<&MappingRegistry>;
    /// Whether it was read or written since this was asked the last time.
    fn take_use(&self) -> bool {
        false
    }
}

/// A file's place in the list of those that can be sent out.
pub struct Listed {
    clas: Weak<Clas>,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(c) = self.clas.upgrade() {
            c.files.lock().all.remove(&self.number);
        }
    }
}

#[derive(Default)]
pub(crate) struct Files {
    all: BTreeMap<u64, Weak<dyn Pageable>>,
    last: u64,
    /// Where the hand is: a file's number, and its page.
    hand: (u64, u64),
}

impl Files {
    /// The file that the hand is at, and the page; its number.
    fn at_hand(&mut self) -> Option<(u64, Arc<dyn Pageable>, u64)> {
        let (number, page) = self.hand;
        let mut round = self.all.range(number..).chain(self.all.range(..number));
        let (n, f) = round.find_map(|(n, f)| Some((*n, f.upgrade()?)))?;
        Some((n, f, if n == number { page } else { 0 }))
    }
}

/// How far ahead of who goes through a file its pages are brought in: twice as far as the last time
/// where that has just been used up. The last part's end and length, in pages, in one word.
#[derive(Default)]
pub struct Ahead(AtomicU64);

impl Ahead {
    /// How many pages from this one on are brought in now.
    pub fn plan(&self, page: u64) -> u64 {
        let last = self.0.load(Ordering::Relaxed);
        let is_next = last >> 8 == page;
        let n = if is_next {
            (2 * (last & 0xff)).clamp(1, CLUSTER)
        } else {
            1
        };
        self.0.store((page + n) << 8 | n, Ordering::Relaxed);
        n
    }
}

/// Whose files are sent out, and until when.
pub struct FilePick<'a> {
    /// Frames that this account or one below pays for.
    pub of: AccountId,
    /// Whether an account's may go.
    pub may_go: &'a mut dyn FnMut(AccountId) -> bool,
    pub is_over: &'a dyn Fn() -> bool,
}

/// A part of a file: its pages.
type PartOf = (Arc<dyn Pageable>, Range<u64>);

/// What a look at a part of a file came to.
#[derive(Default)]
struct Pass {
    sent: u64,
    looked: u64,
    /// Parts that somebody has mapped, or looks at.
    mapped: Vec<Range<u64>>,
    /// Where it stopped, if that is not the end.
    next: Option<u64>,
}

impl Clas {
    /// Has a file sent out where there is no room, as long as what this gives is kept. `None` where
    /// there is no swap.
    pub fn list_file(self: &Arc<Self>, file: Weak<dyn Pageable>) -> Option<Listed> {
        if !self.has_swap() {
            return None;
        }
        let mut files = self.files.lock();
        files.last += 1;
        let number = files.last;
        files.all.insert(number, file);
        Some(Listed {
            clas: Arc::downgrade(self),
            number,
        })
    }

    /// Sends out up to so many bytes of files that were not used lately; how many went. It waits
    /// for nobody.
    pub fn send_files(&self, bytes: u64, mut pick: FilePick<'_>) -> u64 {
        let pages = bytes.div_ceil(PAGE_SIZE);
        let mut left = self.files.lock().all.len();
        let (mut sent, mut looked) = (0, 0);
        let mut used: Vec<PartOf> = Vec::new();
        while sent < pages && looked < pages * LOOK && left > 0 {
            if (pick.is_over)() || !self.can_swap() {
                break;
            }
            let Some((number, file, page)) = self.files.lock().at_hand() else {
                break;
            };
            let mut next = None;
            if page == 0 && file.take_use() {
                used.push((file, 0..u64::MAX));
            } else {
                let pass = self.pass(&*file, page..u64::MAX, pages - sent, &mut pick);
                next = pass.next;
                sent += pass.sent;
                looked += pass.looked;
                release(&*file, &pass.mapped, pick.is_over);
                used.extend(pass.mapped.into_iter().map(|r| (file.clone(), r)));
            }
            left -= usize::from(next.is_none());
            self.files.lock().hand = next.map_or((number + 1, 0), |p| (number, p));
        }
        // (A few pages that come back at once are no progress.)
        if sent < pages / 2 {
            sent += self.send_used(used, pages - sent, &mut pick);
        }
        sent * PAGE_SIZE
    }

    /// Sends out what was used lately.
    fn send_used(&self, used: Vec<PartOf>, pages: u64, pick: &mut FilePick<'_>) -> u64 {
        let mut sent = 0;
        for (file, part) in used {
            let mut at = Some(part.start);
            while let Some(start) = at
                && sent < pages
                && !(pick.is_over)()
            {
                let pass = self.pass(&*file, start..part.end, pages - sent, pick);
                sent += pass.sent;
                release(&*file, &pass.mapped, pick.is_over);
                at = pass.next;
            }
        }
        sent
    }

    /// Sends out what nobody has mapped of a part of a file, until so many pages went or the lock
    /// was held for long enough.
    fn pass(
        &self,
        file: &dyn Pageable,
        part: Range<u64>,
        pages: u64,
        pick: &mut FilePick<'_>,
    ) -> Pass {
        let mut p = Pass::default();
        let most = pages.min(HOLD);
        file.each_run(part.start, &mut |first, at, n| {
            let mut i = part.start.saturating_sub(first);
            while i < n && first + i < part.end {
                if p.sent >= most || p.looked >= most * LOOK || (pick.is_over)() {
                    p.next = Some(first + i);
                    return false;
                }
                if self.has_secrets() {
                    return false;
                }
                let n = (n - i).min(part.end - (first + i));
                let at = at.add(i * PAGE_SIZE);
                i += match self.first_here(at, n) {
                    // (Most of a large file may be away.)
                    None => n,
                    Some(0) => {
                        let n = n.min(CLUSTER).min(most - p.sent);
                        self.pass_cluster(&mut p, first + i, at, n, pick)
                    }
                    Some(away) => away,
                };
            }
            first + i < part.end
        });
        p
    }

    /// The first of these pages of a file, which are in a row; how many it has dealt with. The first
    /// is here.
    fn pass_cluster(
        &self,
        p: &mut Pass,
        page: u64,
        at: Cla,
        pages: u64,
        pick: &mut FilePick<'_>,
    ) -> u64 {
        let here = self.next_here(at, pages).unwrap_or(0..pages);
        let (refs, n) = self.shared_prefix(at, here.end);
        p.looked += n;
        let payer = self.payer_within(at, pick.of);
        if !payer.is_some_and(|a| (pick.may_go)(a)) {
            return n;
        }
        if refs > 1 {
            p.mapped.push(page..page + n);
            return n;
        }
        let went = self.send_out(at, n);
        p.sent += went;
        // (What is left is confidential, or the store is full.)
        if went > 0 { went } else { n }
    }
}

/// Takes the mappings of parts of a file away, as far as that can be now.
fn release(file: &dyn Pageable, parts: &[Range<u64>], is_over: &dyn Fn() -> bool) {
    let in_bytes = |r: &Range<u64>| (r.start * PAGE_SIZE, (r.end - r.start) * PAGE_SIZE);
    let parts: Vec<(u64, u64)> = parts.iter().map(in_bytes).collect();
    if let Some(m) = file.mappers().filter(|_| !parts.is_empty()) {
        m.release(&parts, is_over);
    }
}

#[cfg(test)]
mod tests;
