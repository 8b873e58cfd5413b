//! A fake address space, a naive model, and random operations on both.

mod bounds;
mod calls;
mod predict;
mod race;
mod random;

use crate::*;
use abi::errno::{EFAULT, ENOMEM, ENOSYS, EPERM, ESRCH};
use abi::linux::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_SHARED};
use clas::{Access as FileAccess, Backing, Cla, Mappable, MappingRegistry};
use hostcall::HostFd;
use parking_lot::Mutex;
use platform::{AppThread, MapOp, Sharing};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

pub(crate) const P: u64 = abi::PAGE_SIZE;

/// What the host has mapped at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HostPage {
    fd: i32,
    offset: u64,
    prot: Prot,
    sharing: Sharing,
}

/// An address space that only takes note, and fails when it is told to.
#[derive(Default)]
pub(crate) struct FakeSpace {
    pages: Mutex<BTreeMap<u64, HostPage>>,
    /// Operations until the next one fails; zero for never.
    fail_in: Mutex<u32>,
    /// A descriptor that cannot be mapped.
    pub(crate) refused: Mutex<Option<i32>>,
    /// What it is told to unmap it keeps: a host that does not do as it is told.
    pub(crate) keeps: AtomicBool,
    /// Its process has been ended: nothing can be changed any more.
    pub(crate) ended: AtomicBool,
    /// What is to be done when nothing of it runs.
    pub(crate) late: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl AddressSpace for FakeSpace {
    fn apply(&self, ops: &[MapOp]) -> abi::Result<()> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(ESRCH);
        }
        let mut pages = self.pages.lock();
        for op in ops {
            let unmap_all = matches!(op, MapOp::Unmap { len, .. } if *len > 1 << 45);
            let mut fail = self.fail_in.lock();
            if *fail > 0 && !unmap_all {
                *fail -= 1;
                if *fail == 0 {
                    return Err(ENOMEM);
                }
            }
            match *op {
                MapOp::Map {
                    va,
                    len,
                    prot,
                    fd,
                    offset,
                    sharing,
                } => {
                    if *self.refused.lock() == Some(fd) {
                        return Err(EPERM);
                    }
                    assert!(va % P == 0 && len % P == 0 && len > 0 && offset % P == 0);
                    assert!(va >= USER_MIN && va + len <= USER_MAX);
                    assert!(sharing == Sharing::Shared || !prot.contains(Prot::WRITE));
                    for i in 0..(len / P).min(1 << 15) {
                        pages.insert(
                            va / P + i,
                            HostPage {
                                fd,
                                offset: offset + i * P,
                                prot,
                                sharing,
                            },
                        );
                    }
                }
                MapOp::Unmap { .. } if self.keeps.load(Ordering::Relaxed) => {}
                MapOp::Unmap { va, len } => {
                    let gone: Vec<u64> =
                        pages.range(va / P..(va + len) / P).map(|e| *e.0).collect();
                    for p in gone {
                        pages.remove(&p);
                    }
                }
                MapOp::Protect { va, len, prot } => {
                    for p in va / P..(va + len) / P {
                        pages.get_mut(&p).expect("mapped").prot = prot;
                    }
                }
                MapOp::Advise { .. } => {}
            }
        }
        Ok(())
    }
    fn new_thread(&self) -> abi::Result<Box<dyn AppThread>> {
        Err(ENOSYS)
    }
    fn kill(&self) {
        self.pages.lock().clear();
    }
    fn retire(&self, _bytes: u64, then: Box<dyn FnOnce() + Send>) {
        self.pages.lock().clear();
        if self.ended.load(Ordering::Relaxed) {
            self.late.lock().push(then);
        } else {
            then();
        }
    }
}

/// An application: an address space and its fake host side.
pub(crate) struct App {
    mm: Arc<Mm>,
    space: Arc<FakeSpace>,
}

impl App {
    pub(crate) fn new(clas: &Arc<Clas>) -> App {
        let space = Arc::new(FakeSpace::default());
        App {
            mm: Mm::new(clas.clone(), space.clone()),
            space,
        }
    }

    pub(crate) fn fork(&self) -> App {
        let space = Arc::new(FakeSpace::default());
        App {
            mm: self.mm.fork(space.clone(), Writers::None, None).unwrap(),
            space,
        }
    }

    pub(crate) fn anon(&self, len: u64, prot: u32, flags: u32) -> Result<Va> {
        self.map(Va(0), len, prot, flags | MAP_ANONYMOUS, None)
    }

    pub(crate) fn map(
        &self,
        addr: Va,
        len: u64,
        prot: u32,
        flags: u32,
        file: Option<MapFile>,
    ) -> Result<Va> {
        let kind = if flags & MAP_SHARED != 0 {
            0
        } else {
            MAP_PRIVATE
        };
        self.mm.mmap(MmapRequest {
            addr,
            len,
            prot,
            flags: flags | kind,
            offset: 0,
            file,
        })
    }

    /// Accesses memory as application code would.
    fn access(
        &self,
        va: u64,
        access: Access,
        f: &mut dyn FnMut(HostPage),
    ) -> std::result::Result<(), Fault> {
        let need = if access == Access::Write {
            Prot::WRITE
        } else {
            Prot::READ
        };
        for _ in 0..4 {
            if self.touch(va, need, f) {
                return Ok(());
            }
            self.mm.handle_fault(FaultInfo {
                addr: Va(va),
                access: Some(access),
                bus: false,
            })?;
        }
        panic!("a fault that does not go away");
    }

    /// Does it if the page is mapped so, as a processor does: whoever unmaps the page waits for it.
    fn touch(&self, va: u64, need: Prot, f: &mut dyn FnMut(HostPage)) -> bool {
        let pages = self.space.pages.lock();
        let page = pages.get(&(va / P)).filter(|p| p.prot.contains(need));
        page.copied().map(f).is_some()
    }

    /// Sends out up to so many pages.
    pub(crate) fn send(&self, pages: u64, pick: Pick) -> SwapOut {
        let at_once = std::time::Duration::ZERO;
        self.mm
            .send_out(pages * P, clas::AccountId::ROOT, pick, at_once)
    }

    /// A generation ends.
    pub(crate) fn age(&self) {
        let late = std::time::Instant::now() + std::time::Duration::from_secs(10);
        self.mm.age(late);
    }

    /// How many of these pages are not swapped out.
    pub(crate) fn here(&self, va: u64, pages: u64) -> usize {
        let st = self.mm.state.lock();
        let is_here = |i: &u64| st.pmas.get(va + i * P).is_some_and(|(_, p)| p.is_here());
        (0..pages).filter(is_here).count()
    }

    pub(crate) fn load(&self, va: u64) -> std::result::Result<u8, Fault> {
        let mut b = [0];
        self.access(va, Access::Read, &mut |p| {
            let n = hostcall::file::pread(p.fd, &mut b, p.offset + va % P).unwrap();
            b[0] *= n as u8;
        })?;
        Ok(b[0])
    }

    pub(crate) fn store(&self, va: u64, b: u8) -> std::result::Result<(), Fault> {
        self.access(va, Access::Write, &mut |p| {
            hostcall::file::pwrite(p.fd, &[b], p.offset + va % P).unwrap();
        })
    }

    /// Checks the central invariant.
    pub(crate) fn check(&self) {
        self.check_with(true);
    }

    /// As [`App::check`], while something else may hold references to frames for a moment.
    pub(crate) fn check_but_references(&self) {
        self.check_with(false);
    }

    fn check_with(&self, references: bool) {
        let st = self.mm.state.lock();
        assert!(st.host.is_flushed() && !st.pmas.has_freed() && !st.vmas.has_dropped());
        st.vmas.check();
        st.pmas.check();
        st.host.check();
        let pages = self.space.pages.lock();
        let mapped: u64 = st.host.iter().map(|(r, _)| (r.end - r.start) / P).sum();
        assert_eq!(mapped, pages.len() as u64);
        for (page, h) in pages.iter() {
            let va = page * P;
            assert_eq!(st.host.get(va).map(|e| *e.1), Some(h.prot));
            let (vr, vma) = st.vmas.get(va).expect("a VMA for what is mapped");
            let (pr, pma) = st.pmas.get(va).expect("a PMA for what is mapped");
            assert!(crate::host::effective(vma, pma).contains(h.prot));
            match pma.after(va - pr.start).backing {
                Backing::Frames(at) => {
                    assert_eq!((h.fd, h.offset), (st.clas.memory_fd(), at.0));
                    if references && h.prot.contains(Prot::WRITE) && vma.is_private_anon() {
                        assert!(
                            st.clas.is_exclusive(at, 1),
                            "a writable mapping of shared frames"
                        );
                    }
                }
                Backing::Host { fd, offset } => {
                    assert_eq!((h.fd, h.offset), (fd, offset));
                    assert!(vma.is_shared() || !h.prot.contains(Prot::WRITE));
                }
            }
            assert!(vr.contains(&va));
        }
        let charged = st.pmas.iter().filter(|(_, p)| p.frames().is_some());
        let charged: u64 = charged.map(|(r, _)| r.end - r.start).sum();
        assert_eq!(charged, self.mm.charged());
        let swapped = st.pmas.iter().filter(|(_, p)| !p.is_here());
        let swapped: u64 = swapped.map(|(r, _)| r.end - r.start).sum();
        assert_eq!(charged - swapped, self.mm.charged_here());
        for (r, _) in st.pmas.iter() {
            let covered: u64 = st
                .vmas
                .range(r.clone())
                .map(|(v, _)| v.end.min(r.end) - v.start.max(r.start))
                .sum();
            assert_eq!(covered, r.end - r.start, "a PMA outside of VMAs");
        }
        let total: u64 = st.vmas.iter().map(|(r, _)| (r.end - r.start) / P).sum();
        assert_eq!(st.vmas.counts().total, total);
        let data: u64 = st
            .vmas
            .iter()
            .filter(|(_, v)| crate::vma::Vma::is_data(v.prot, v.flags))
            .map(|(r, _)| (r.end - r.start) / P)
            .sum();
        assert_eq!(st.vmas.counts().data, data);
    }
}

/// A file in frames, as tmpfs has them, or on the host.
pub(crate) struct TestFile {
    clas: Arc<Clas>,
    host: Option<HostFd>,
    pub(crate) frames: Mutex<Option<(Cla, u64)>>,
    registry: MappingRegistry,
    size: Mutex<u64>,
    /// Shared mappings that may write.
    pub(crate) writers: Mutex<u32>,
    pub(crate) sealed: Mutex<bool>,
}

impl TestFile {
    pub(crate) fn frames(clas: &Arc<Clas>, pages: u64) -> Arc<TestFile> {
        let at = clas.allocate(pages, None).unwrap();
        Arc::new(TestFile {
            clas: clas.clone(),
            host: None,
            frames: Mutex::new(Some((at, pages))),
            registry: MappingRegistry::new(),
            size: Mutex::new(pages * P),
            writers: Mutex::default(),
            sealed: Mutex::default(),
        })
    }
    pub(crate) fn host(clas: &Arc<Clas>, size: u64) -> Arc<TestFile> {
        let fd = hostcall::mem::memfd(c"test").unwrap();
        hostcall::file::ftruncate(fd.raw(), size).unwrap();
        Arc::new(TestFile {
            clas: clas.clone(),
            host: Some(fd),
            frames: Mutex::new(None),
            registry: MappingRegistry::new(),
            size: Mutex::new(size),
            writers: Mutex::default(),
            sealed: Mutex::default(),
        })
    }
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) {
        match &self.host {
            Some(fd) => {
                hostcall::file::pwrite(fd.raw(), bytes, offset).unwrap();
            }
            None => {
                let at = self.frames.lock().unwrap().0;
                self.clas
                    .slice(at.add(offset), bytes.len())
                    .copy_from(bytes);
            }
        }
    }
    pub(crate) fn truncate(&self, size: u64) {
        *self.size.lock() = size;
        if let Some(fd) = &self.host {
            hostcall::file::ftruncate(fd.raw(), size).unwrap();
        }
        self.registry.invalidate(size.next_multiple_of(P), u64::MAX);
    }
    /// As the file systems do.
    pub(crate) fn cut(&self, size: u64) {
        self.truncate(size);
        self.registry.truncated(size.next_multiple_of(P));
    }
    pub(crate) fn file(self: &Arc<TestFile>) -> MapFile {
        MapFile {
            mappable: self.clone(),
            name: None,
            keep: None,
            readable: true,
            writable: true,
            noexec: false,
        }
    }
}

impl Mappable for TestFile {
    fn memory(&self) -> Option<&Arc<Clas>> {
        Some(&self.clas)
    }
    fn backing(&self, offset: u64, len: u64, _access: FileAccess) -> abi::Result<(Backing, u64)> {
        let end = self.size.lock().next_multiple_of(P);
        if offset >= end {
            return Err(EFAULT);
        }
        let len = len.min(end - offset);
        if let Some(fd) = &self.host {
            return Ok((
                Backing::Host {
                    fd: fd.raw(),
                    offset,
                },
                len,
            ));
        }
        let at = self.frames.lock().unwrap().0.add(offset);
        self.clas.incref(at, len / P);
        Ok((Backing::Frames(at), len))
    }
    fn add_mapping(&self, observer: Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.registry.add(observer, va, offset, len);
    }
    fn remove_mapping(&self, observer: &Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.registry.remove(observer, va, offset, len);
    }
    fn map_writable(&self) -> abi::Result<()> {
        if *self.sealed.lock() {
            return Err(EPERM);
        }
        *self.writers.lock() += 1;
        Ok(())
    }
    fn unmap_writable(&self) {
        *self.writers.lock() -= 1;
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        assert!(self.registry.is_empty());
        if let Some((at, pages)) = *self.frames.lock() {
            self.clas.decref(at, pages);
        }
    }
}

pub(crate) const FIXED: u32 = MAP_FIXED;
