//! What `/proc` tells.

use crate::hands::clusters;
use crate::room::Layout;
use crate::state::State;
use crate::types::MapName;
use crate::vma::{FileRef, Vma, VmaFlags};
use crate::{Mm, PAGE};
use clas::{Backing, Cla};
use platform::{Prot, USER_MAX};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// One line of `/proc/PID/maps`.
#[derive(Clone)]
pub struct VmaInfo {
    pub start: u64,
    pub end: u64,
    pub prot: Prot,
    pub max_prot: Prot,
    pub flags: VmaFlags,
    /// In the file; zero for anonymous memory.
    pub offset: u64,
    file: Option<Arc<FileRef>>,
    special: &'static str,
    /// What the program calls it.
    label: Option<Arc<[u8]>>,
}

impl VmaInfo {
    /// `rwxp`, as `/proc/PID/maps` writes it.
    #[must_use]
    pub fn perms(&self) -> [u8; 4] {
        let bit = |p: Prot, c: u8| if self.prot.contains(p) { c } else { b'-' };
        let s = if self.flags.contains(VmaFlags::SHARED) {
            b's'
        } else {
            b'p'
        };
        [
            bit(Prot::READ, b'r'),
            bit(Prot::WRITE, b'w'),
            bit(Prot::EXEC, b'x'),
            s,
        ]
    }

    fn map_name(&self) -> Option<&Arc<dyn MapName>> {
        self.file.as_ref()?.name.as_ref()
    }

    /// The path, `[heap]`, `[stack]` or a name in brackets; empty for other anonymous memory.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        let labelled = |kind: &[u8]| {
            let label = self.label.as_deref()?;
            Some([b"[", kind, b":", label, b"]"].concat())
        };
        match (self.map_name(), self.special) {
            (Some(n), _) => labelled(b"anon_shmem").unwrap_or_else(|| n.path()),
            (None, "") => labelled(b"anon").unwrap_or_default(),
            (None, special) => special.as_bytes().to_vec(),
        }
    }

    /// Device and inode number; zeros for anonymous memory.
    #[must_use]
    pub fn dev_ino(&self) -> (u64, u64) {
        self.map_name().map_or((0, 0), |n| n.dev_ino())
    }

    /// Whether it maps a file (shared anonymous memory does).
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// The open file that is mapped, as it was given to mmap.
    #[must_use]
    pub fn open_file(&self) -> Option<Arc<dyn std::any::Any + Send + Sync>> {
        self.file.as_ref()?.keep.clone()
    }
}

/// What serves a VMA now, in bytes.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct VmaUsage {
    pub rss: u64,
    /// Of it: frames of this address space's own or copied on write.
    pub anonymous: u64,
    /// Of `anonymous`: shared with other address spaces until written.
    pub shared: u64,
    /// Of `rss`: of files in memory, and shared memory.
    pub of_memory_files: u64,
    /// Swapped out (not in `rss`).
    pub swapped: u64,
}

/// What others found when they looked at all of it, and until when that is told again.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    usage: VmaUsage,
    until: Instant,
}

/// So many times as long as a look took nobody from outside looks again.
const REST: u32 = 9;
/// How much of [`State::usage`] is looked at under one lock: pages, and mappings.
const PAGES_AT_ONCE: u64 = 4096;
const MAPPINGS_AT_ONCE: usize = 256;
/// How often that is done at most: 256 GB.
const LOOKS: u32 = 1 << 14;

/// The sizes in `/proc/PID/status`, in bytes.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Usage {
    pub size: u64,
    pub peak: u64,
    pub data: u64,
    pub stack: u64,
    pub exec: u64,
    pub locked: u64,
    pub rss: u64,
    pub rss_anon: u64,
    pub rss_shmem: u64,
    /// Swapped out.
    pub swapped: u64,
    pub mappings: usize,
    /// Faults served by the Sentry.
    pub faults: u64,
}

/// What of an address space's frames is where. In bytes.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// What it has mapped.
    pub size: u64,
    /// In frames that have a page.
    pub resident: u64,
    /// Of `resident`: in frames that others have, too.
    pub shared: u64,
    /// `resident`, with each shared frame divided by how many have it.
    pub proportional: u64,
    pub swapped: u64,
}

impl Mm {
    /// Looks at all its frames, and asks the host which have pages. Pages that the host keeps for
    /// files are not told.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        self.with(|st| st.footprint())
    }

    /// Calls `f` with the frames that its mappings have, piece by piece: where, how many pages, and
    /// whether the host has them mapped, so that they were used lately. Without any lock.
    pub fn for_each_frame(&self, mut f: impl FnMut(Cla, u64, bool)) {
        let all: Vec<_> = self.with(|st| st.frames());
        all.into_iter().for_each(|(at, n, used)| f(at, n, used));
    }

    #[must_use]
    pub fn layout(&self) -> Layout {
        self.state.lock().room.layout().clone()
    }

    /// The beginning of its arguments, so many bytes at most, with spaces between them.
    #[must_use]
    pub fn arguments(&self, most: u64) -> Vec<u8> {
        let l = self.layout();
        let mut words = vec![0; l.arg_end.saturating_sub(l.arg_start).min(most) as usize];
        let n = self.read_present(abi::Va(l.arg_start), &mut words);
        words.truncate(n);
        words
            .iter_mut()
            .filter(|b| **b == 0)
            .for_each(|b| *b = b' ');
        words
    }

    /// Changes the layout (the loader; `prctl(PR_SET_MM)`).
    pub fn update_layout(&self, f: impl FnOnce(&mut Layout)) {
        f(self.state.lock().room.layout_mut());
    }

    /// All VMAs, upwards.
    #[must_use]
    pub fn vmas(&self) -> Vec<VmaInfo> {
        let st = self.state.lock();
        st.vmas.iter().map(|(r, v)| st.describe(r, v)).collect()
    }

    /// Calls `f` with every VMA, upwards, without any lock.
    pub fn for_each_vma(&self, mut f: impl FnMut(&VmaInfo)) {
        self.vmas().iter().for_each(&mut f);
    }

    /// The VMA that holds `va`, or else the next.
    #[must_use]
    pub fn find_vma(&self, va: abi::Va) -> Option<VmaInfo> {
        let st = self.state.lock();
        st.vmas.first_from(va.0).map(|(r, v)| st.describe(r, v))
    }

    /// What serves `[start, end)`; asks the host, page by page. The lock is let go again and again:
    /// whoever looks at much holds nobody up for long.
    #[must_use]
    pub fn vma_usage(&self, start: u64, end: u64) -> VmaUsage {
        let (mut u, mut at) = (VmaUsage::default(), start);
        // (Who moves his memory on before the look does not keep it going.)
        for _ in 0..LOOKS {
            if at >= end {
                break;
            }
            at = self.with(|st| st.usage(at..end, &mut u));
        }
        u
    }

    /// What `/proc/PID/pagemap` says of the pages from `start` on: bit 63 for one that is there,
    /// bit 62 for one that is swapped out, bit 61 for one of a file. There are no frame numbers:
    /// they would be the host's.
    pub fn page_map(&self, start: u64, pages: &mut [u64]) {
        let end = start
            .saturating_add(pages.len() as u64 * PAGE)
            .min(USER_MAX);
        pages.fill(0);
        if start < end {
            self.with(|st| st.page_map(start..end, pages));
        }
    }

    /// The first page of `[from, end)` of which there may be something; `end` where there is none.
    #[must_use]
    pub fn next_there(&self, from: u64, end: u64) -> u64 {
        let st = self.state.lock();
        let mut all = st.pmas.range(from..end);
        all.next().map_or(end, |(r, _)| r.start.max(from))
    }

    /// The sizes without those that need the host (`rss` is zero).
    #[must_use]
    pub fn sizes(&self) -> Usage {
        let st = self.state.lock();
        let c = st.vmas.counts();
        Usage {
            size: c.total * PAGE,
            peak: c.peak * PAGE,
            data: c.data * PAGE,
            stack: c.stack * PAGE,
            exec: c.exec * PAGE,
            locked: c.locked * PAGE,
            rss: 0,
            rss_anon: 0,
            rss_shmem: 0,
            swapped: self.charged.swapped(),
            mappings: st.vmas.len(),
            faults: st.faults,
        }
    }

    /// All sizes; asks the host what is in memory.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage_with(self.vma_usage(0, USER_MAX))
    }

    /// The same for another process, and for files that everybody may read (`stat`, `statm`,
    /// `status`): what was found a moment ago may be told again, so that those who look have the
    /// lock for a tenth of the time at most, all together. (`smaps` and its like are for who may
    /// look into the process, and could stop it.)
    #[must_use]
    pub fn usage_from_outside(&self) -> Usage {
        let mut seen = self.seen.lock();
        let begin = Instant::now();
        let usage = match *seen {
            Some(s) if begin < s.until => s.usage,
            _ => {
                let usage = self.vma_usage(0, USER_MAX);
                let end = Instant::now();
                let until = end + (end - begin) * REST;
                *seen = Some(Seen { usage, until });
                usage
            }
        };
        drop(seen);
        self.usage_with(usage)
    }

    fn usage_with(&self, r: VmaUsage) -> Usage {
        Usage {
            rss: r.rss,
            rss_anon: r.anonymous,
            rss_shmem: r.of_memory_files,
            ..self.sizes()
        }
    }

    /// A limit of mappings for this address space, in place of `vm.max_map_count`.
    pub fn set_max_map_count(&self, n: usize) {
        self.state.lock().quota.set_max(n);
    }
}

impl State {
    fn describe(&self, r: Range<u64>, v: &Vma) -> VmaInfo {
        let l = self.room.layout();
        let special = if v.file.is_some() {
            ""
        } else if r.start <= l.brk && r.end >= l.start_brk && l.start_brk < l.brk {
            "[heap]"
        } else if r.start <= l.start_stack && l.start_stack < r.end {
            "[stack]"
        } else {
            ""
        };
        VmaInfo {
            start: r.start,
            end: r.end,
            prot: v.prot,
            max_prot: v.max_prot,
            flags: v.flags,
            offset: v.file.as_ref().map_or(0, |f| f.offset),
            file: v.file.as_ref().map(|f| f.file.clone()),
            special,
            label: self.names.of(v.flags),
        }
    }

    fn page_map(&self, r: Range<u64>, pages: &mut [u64]) {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const OF_FILE: u64 = 1 << 61;
        let mut there = vec![0u8; pages.len()];
        for (e, p) in self.pmas.range(r.clone()) {
            let (start, end) = (e.start.max(r.start), e.end.min(r.end));
            let at = ((start - r.start) / PAGE) as usize;
            let n = ((end - start) / PAGE) as usize;
            let there = &mut there[..n];
            match p.after(start - e.start).backing {
                Backing::Host { .. } => there.fill(1),
                Backing::Frames(cla) => self.clas.residency(cla, there),
            }
            let value = PRESENT | if p.is_file() { OF_FILE } else { 0 };
            let absent = if p.is_here() { 0 } else { SWAPPED };
            for (page, t) in pages[at..at + n].iter_mut().zip(there) {
                *page = if *t & 1 != 0 { value } else { absent };
            }
        }
    }

    /// See [`Mm::for_each_frame`].
    fn frames(&self) -> Vec<(Cla, u64, bool)> {
        let mut out: Vec<(Cla, u64, bool)> = Vec::new();
        for (r, p) in self.pmas.iter() {
            let Some(frames) = p.frames() else { continue };
            for part in clusters(r.clone()) {
                let (cla, pages) = (
                    frames.add(part.start - r.start),
                    (part.end - part.start) / PAGE,
                );
                let used = self.host.overlaps(part);
                match out.last_mut() {
                    Some((a, n, u)) if a.add(*n * PAGE) == cla && *u == used => *n += pages,
                    _ => out.push((cla, pages, used)),
                }
            }
        }
        out
    }

    fn footprint(&self) -> Footprint {
        let mut f = Footprint {
            size: self.vmas.counts().total * PAGE,
            ..Footprint::default()
        };
        for (r, p) in self.pmas.iter() {
            if !p.is_here() {
                f.swapped += r.end - r.start;
                continue;
            }
            let Some(frames) = p.frames() else { continue };
            let (mut at, pages) = (0, (r.end - r.start) / PAGE);
            while at < pages {
                let from = frames.add(at * PAGE);
                let (refs, n) = self.clas.shared_prefix(from, pages - at);
                let n = n.clamp(1, pages - at);
                // A file holds its frames itself.
                let owners = u64::from(refs)
                    .saturating_sub(u64::from(p.is_file()))
                    .max(1);
                let bytes = self.clas.resident(from, n);
                f.resident += bytes;
                f.proportional += bytes / owners;
                if owners > 1 {
                    f.shared += bytes;
                }
                at += n;
            }
        }
        f
    }

    /// Adds what serves a first part of `r` to `u`; where that ends.
    fn usage(&self, r: Range<u64>, u: &mut VmaUsage) -> u64 {
        let mut present = [0u8; PAGES_AT_ONCE as usize];
        let mut left = PAGES_AT_ONCE;
        for (seen, (e, p)) in self.pmas.range(r.clone()).enumerate() {
            let (s, end) = (e.start.max(r.start), e.end.min(r.end));
            if left == 0 || seen == MAPPINGS_AT_ONCE {
                return s;
            }
            let backing = p.after(s - e.start).backing;
            let pages = match backing {
                Backing::Host { .. } => (end - s) / PAGE,
                Backing::Frames(_) => left.min((end - s) / PAGE),
            };
            let len = pages * PAGE;
            let bytes = match backing {
                Backing::Host { .. } => len,
                Backing::Frames(at) => {
                    left -= pages;
                    let part = &mut present[..pages as usize];
                    self.clas.residency(at, part);
                    part.iter().filter(|b| **b & 1 != 0).count() as u64 * PAGE
                }
            };
            u.rss += bytes;
            if !p.is_here() {
                u.swapped += len - bytes;
            }
            if !p.is_file() {
                u.anonymous += bytes;
                if !p.writable() {
                    u.shared += bytes;
                }
            } else if matches!(backing, Backing::Frames(_)) {
                u.of_memory_files += bytes;
            }
            if s + len < end {
                return s + len;
            }
        }
        r.end
    }
}
