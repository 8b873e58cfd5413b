//! The Sentry's accesses to application memory.
//!
//! Every access honours VMAs as the application's own would, and stops at the first byte that
//! cannot be reached; what was done before stays done.

use crate::resolve::Effort;
use crate::state::State;
use crate::types::{Access, Bad};
use crate::user::UserRange;
use crate::vma::{FileRef, Vma, VmaFlags};
use crate::{Mm, PAGE, Result};
use abi::errno::{EFAULT, EINTR, EINVAL, ENAMETOOLONG};
use abi::{Errno, Va};
use clas::{Backing, Cla, Clas};
use hostcall::MemSlice;
use platform::Prot;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// What an access wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Read,
    Write,
    /// As a debugger: what protection forbids is allowed, as far as `FOLL_FORCE` goes.
    ForceRead,
    ForceWrite,
}

impl Mode {
    fn is_write(self) -> bool {
        matches!(self, Mode::Write | Mode::ForceWrite)
    }
    fn of(access: Access) -> Mode {
        if access == Access::Write {
            Mode::Write
        } else {
            Mode::Read
        }
    }
    fn allowed(self, vma: &Vma) -> bool {
        match self {
            Mode::Read => vma.allows(Access::Read),
            Mode::Write => vma.allows(Access::Write),
            Mode::ForceRead => vma.allows(Access::Read) || vma.max_prot.contains(Prot::READ),
            // Only where it makes a private copy.
            Mode::ForceWrite => {
                vma.allows(Access::Write)
                    || (!vma.is_shared() && vma.max_prot.contains(Prot::WRITE))
            }
        }
    }
}

/// Longer transfers do not hold the lock while they run.
const HOLD: usize = 64 << 10;
/// The longest piece of a host file that goes through a buffer of ours at a time.
const BOUNCE: u64 = 64 << 10;

type Slices<'a> = SmallVec<[MemSlice<'a>; 8]>;
type Pins = SmallVec<[(Cla, u64); 8]>;

/// A piece of a mapped host file.
struct HostPiece {
    fd: i32,
    offset: u64,
    len: usize,
    /// What is there, where that is known already: code whose patches must not be seen.
    bytes: Option<Vec<u8>>,
    /// Keeps the descriptor open: the lock is let go before it is used, and another thread may
    /// unmap the file.
    _file: Option<Arc<FileRef>>,
    /// Keeps frames of another CLAS: another thread may cut the file short, and they would become
    /// others'.
    _pin: Option<ForeignPin>,
}

/// References to frames of another CLAS.
struct ForeignPin {
    clas: Arc<Clas>,
    at: Cla,
    pages: u64,
}

impl ForeignPin {
    fn new(clas: &Arc<Clas>, at: Cla, len: u64) -> ForeignPin {
        let page = at.0 & !(PAGE - 1);
        let pages = (at.0 + len - page).div_ceil(PAGE);
        clas.incref(Cla(page), pages);
        ForeignPin {
            clas: clas.clone(),
            at: Cla(page),
            pages,
        }
    }
}

impl Drop for ForeignPin {
    fn drop(&mut self) {
        self.clas.decref(self.at, self.pages);
    }
}

/// What a list of ranges begins with.
struct Gathered<'a> {
    slices: Slices<'a>,
    bytes: usize,
    /// Set if it begins with a piece of a host file, and then nothing else is.
    host: Option<HostPiece>,
    fault: bool,
}

impl State {
    /// What serves `va`, and for how many bytes on (at most `max`).
    pub(crate) fn piece(
        &mut self,
        va: u64,
        max: u64,
        mode: Mode,
        effort: Effort,
    ) -> std::result::Result<(Backing, u64), Bad> {
        if self.vmas.get(va).is_none() {
            self.grow_stack(va)?;
        }
        let Some((vr, vma)) = self.vmas.get(va) else {
            return Err(Bad::Unmapped);
        };
        if !mode.allowed(vma) {
            return Err(Bad::Forbidden);
        }
        let ready = self
            .pmas
            .get(va)
            .filter(|(_, p)| p.is_here() && (!mode.is_write() || p.writable()));
        let (r, pma) = match ready {
            Some((pr, p)) => {
                let start = pr.start.max(vr.start);
                (start..pr.end.min(vr.end), p.after(start - pr.start))
            }
            None => {
                let vma = vma.clone();
                self.resolve(va, &vr, &vma, mode.is_write(), effort)?
            }
        };
        Ok((pma.after(va - r.start).backing, max.min(r.end - va)))
    }

    /// Copies application memory to `dst`; gives the bytes done.
    pub(crate) fn read(&mut self, va: u64, dst: &mut [u8], mode: Mode) -> usize {
        let mut done = 0;
        while done < dst.len() {
            let Some(at) = va.checked_add(done as u64) else {
                break;
            };
            let Ok((backing, n)) = self.piece(at, (dst.len() - done) as u64, mode, Effort::Needed)
            else {
                break;
            };
            let part = &mut dst[done..done + n as usize];
            match backing {
                Backing::Frames(at) => {
                    self.clas.slice(at, part.len()).copy_to(part);
                }
                Backing::Host { fd, offset } => {
                    if read_file(fd, offset, part).is_err() {
                        break;
                    }
                }
            }
            done += n as usize;
        }
        done
    }

    /// As [`State::read`], with patched code as the application knows it.
    fn read_original(&mut self, va: Va, dst: &mut [u8], mode: Mode) -> usize {
        let n = self.read(va.0, dst, mode);
        self.patches.show_original(va.0, &mut dst[..n]);
        n
    }

    /// Copies `src` to application memory; gives the bytes done.
    pub(crate) fn write(&mut self, va: u64, src: &[u8], mode: Mode) -> usize {
        let mut done = 0;
        while done < src.len() {
            let Some(at) = va.checked_add(done as u64) else {
                break;
            };
            let Ok((backing, n)) = self.piece(at, (src.len() - done) as u64, mode, Effort::Needed)
            else {
                break;
            };
            let part = &src[done..done + n as usize];
            match backing {
                Backing::Frames(at) => {
                    self.clas.slice(at, part.len()).copy_from(part);
                }
                Backing::Host { fd, offset } => {
                    if write_file(fd, offset, part).is_err() {
                        break;
                    }
                }
            }
            done += n as usize;
        }
        done
    }

    /// As [`State::piece`], where `before` are used already: who waits for room gives up what
    /// nobody has touched, but none of these.
    fn next_piece(
        &mut self,
        va: u64,
        max: u64,
        mode: Mode,
        before: &Pins,
    ) -> std::result::Result<(Backing, u64), Bad> {
        if before.is_empty() {
            return self.piece(va, max, mode, Effort::Needed);
        }
        match self.piece(va, max, mode, Effort::Guess) {
            Err(Bad::Memory) => {
                self.clas.incref_all(before);
                let found = self.piece(va, max, mode, Effort::Needed);
                self.clas.decref_all(before);
                found
            }
            found => found,
        }
    }

    /// A copy of patched code as the application knows it, up to `n` bytes.
    fn unpatched(&mut self, va: u64, n: u64, mode: Mode) -> HostPiece {
        let mut bytes = vec![0; n.min(BOUNCE) as usize];
        let n = self.read(va, &mut bytes, mode);
        bytes.truncate(n);
        self.patches.show_original(va, &mut bytes);
        HostPiece {
            fd: -1,
            offset: 0,
            len: n,
            bytes: Some(bytes),
            _file: None,
            _pin: None,
        }
    }

    /// What `ranges` begin with, up to `max` bytes, and which frames these are (`pins`, empty).
    fn gather<'a>(
        &mut self,
        clas: &'a Clas,
        ranges: &[UserRange],
        max: usize,
        mode: Mode,
        pins: &mut Pins,
    ) -> Gathered<'a> {
        let mut g = Gathered {
            slices: Slices::new(),
            bytes: 0,
            host: None,
            fault: false,
        };
        for r in ranges {
            let mut done = 0u64;
            while done < r.len && g.bytes < max {
                let want = (r.len - done).min((max - g.bytes) as u64);
                let piece = match r.va.0.checked_add(done) {
                    Some(at) => self.next_piece(at, want, mode, pins),
                    None => Err(Bad::Unmapped),
                };
                let Ok((backing, n)) = piece else {
                    g.fault = true;
                    return g;
                };
                let va = r.va.0.wrapping_add(done);
                if !mode.is_write() && self.patches.touch(va, n) {
                    if g.bytes == 0 {
                        let piece = self.unpatched(va, n, mode);
                        g.bytes = piece.len;
                        g.host = Some(piece);
                    }
                    return g;
                }
                match backing {
                    Backing::Frames(at) => {
                        if g.slices.len() == hostcall::file::IOV_MAX {
                            return g;
                        }
                        g.slices.push(clas.slice(at, n as usize));
                        let page = at.0 & !(PAGE - 1);
                        pins.push((Cla(page), (at.0 + n - page).div_ceil(PAGE)));
                    }
                    Backing::Host { fd, offset } => {
                        if g.bytes == 0 {
                            g.bytes = n.min(BOUNCE) as usize;
                            let vma = self.vmas.get(r.va.0.wrapping_add(done));
                            let file = vma.and_then(|(_, v)| v.file.as_ref());
                            let pin = self
                                .pmas
                                .foreign_frames(backing)
                                .map(|(c, at)| ForeignPin::new(c, at, g.bytes as u64));
                            g.host = Some(HostPiece {
                                fd,
                                offset,
                                len: g.bytes,
                                bytes: None,
                                _file: file.map(|f| f.file.clone()),
                                _pin: pin,
                            });
                        }
                        return g;
                    }
                }
                g.bytes += n as usize;
                done += n;
            }
        }
        g
    }
}

/// Reads a mapped part of a host file; past its end it is zero.
fn read_file(fd: i32, offset: u64, dst: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < dst.len() {
        match hostcall::file::pread(fd, &mut dst[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    dst[done..].fill(0);
    Ok(())
}

/// Writes a mapped part of a host file; past its end nothing is written, as a mapping would not.
fn write_file(fd: i32, offset: u64, src: &[u8]) -> Result<()> {
    let size = hostcall::file::fstat(fd)?.st_size as u64;
    let mut src = &src[..src.len().min(size.saturating_sub(offset) as usize)];
    let mut offset = offset;
    while !src.is_empty() {
        match hostcall::file::pwrite(fd, src, offset) {
            Ok(0) => return Err(abi::errno::EIO),
            Ok(n) => {
                src = &src[n..];
                offset += n as u64;
            }
            Err(EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn whole(done: usize, len: usize) -> Result<()> {
    if done == len { Ok(()) } else { Err(EFAULT) }
}

impl Mm {
    /// Copies from the application; `EFAULT` unless all of it can be read.
    pub fn copy_in(&self, va: Va, dst: &mut [u8]) -> Result<()> {
        whole(self.read_bytes(va, dst), dst.len())
    }
    /// Copies to the application; `EFAULT` unless all of it can be written (a part may have been).
    pub fn copy_out(&self, va: Va, src: &[u8]) -> Result<()> {
        whole(self.write_bytes(va, src), src.len())
    }
    /// As [`Mm::copy_in`], for objects that may hold locks: see [`Mm::ask_for`].
    pub fn copy_in_now(&self, va: Va, dst: &mut [u8]) -> Result<()> {
        whole(self.read_now(va, dst), dst.len())
    }
    /// As [`Mm::copy_out`], for objects that may hold locks.
    pub fn copy_out_now(&self, va: Va, src: &[u8]) -> Result<()> {
        whole(self.write_now(va, src), src.len())
    }
    /// Copies from the application; gives how many bytes could be read.
    pub fn read_bytes(&self, va: Va, dst: &mut [u8]) -> usize {
        self.with_filled(|st| st.read_original(va, dst, Mode::Read))
    }
    /// Copies to the application; gives how many bytes could be written.
    pub fn write_bytes(&self, va: Va, src: &[u8]) -> usize {
        self.with_filled(|st| st.write(va.0, src, Mode::Write))
    }
    /// As [`Mm::read_bytes`], for objects that hold locks meanwhile: what a program must be asked for
    /// ends it ([`Mm::ask_for`] before).
    pub(crate) fn read_now(&self, va: Va, dst: &mut [u8]) -> usize {
        self.with(|st| st.read_original(va, dst, Mode::Read))
    }
    /// As [`Mm::write_bytes`], as [`Mm::read_now`] does it.
    pub(crate) fn write_now(&self, va: Va, src: &[u8]) -> usize {
        self.with(|st| st.write(va.0, src, Mode::Write))
    }
    /// As [`Mm::read_forced`], what is there: nobody waits for those who serve another's files.
    pub fn read_present(&self, va: Va, dst: &mut [u8]) -> usize {
        self.read_present_before(va, dst, VmaFlags::SECRET)
    }
    /// As [`Mm::read_present`], up to what is in no core ([`VmaFlags::NOT_DUMPED`]).
    pub fn read_dumped(&self, va: Va, dst: &mut [u8]) -> usize {
        self.read_present_before(va, dst, VmaFlags::NOT_DUMPED)
    }
    /// Copies up to the first VMA with any of these flags.
    fn read_present_before(&self, va: Va, dst: &mut [u8], flags: VmaFlags) -> usize {
        self.with(|st| {
            let n = st.before(va.0, dst.len(), flags);
            st.read_original(va, &mut dst[..n], Mode::ForceRead)
        })
    }
    /// As [`Mm::read_bytes`], by its address in another process: up to what is secret.
    pub fn read_shown(&self, va: Va, dst: &mut [u8]) -> usize {
        self.read_not_secret(va, dst, Mode::Read)
    }
    fn read_not_secret(&self, va: Va, dst: &mut [u8], mode: Mode) -> usize {
        self.with_filled(|st| {
            let shown = st.before(va.0, dst.len(), VmaFlags::SECRET);
            st.read_original(va, &mut dst[..shown], mode)
        })
    }
    /// As [`Mm::write_bytes`], by its address in another process: up to what is secret.
    pub fn write_shown(&self, va: Va, src: &[u8]) -> usize {
        self.with_filled(|st| {
            let n = st.shown(va.0, src.len());
            st.write(va.0, &src[..n], Mode::Write)
        })
    }
    /// As [`Mm::read_bytes`], as a debugger does: protection does not matter.
    pub fn read_forced(&self, va: Va, dst: &mut [u8]) -> usize {
        self.read_not_secret(va, dst, Mode::ForceRead)
    }
    /// As [`Mm::write_bytes`], as a debugger does: private read-only memory is copied and written.
    pub fn write_forced(&self, va: Va, src: &[u8]) -> usize {
        self.with_filled(|st| {
            let src = &src[..st.shown(va.0, src.len())];
            st.unpatch(&(va.0..va.0.saturating_add(src.len() as u64)));
            st.write(va.0, src, Mode::ForceWrite)
        })
    }
    /// Zeros `[va, va + len)`; `EFAULT` unless all of it can be written.
    pub fn zero_out(&self, va: Va, len: u64) -> Result<()> {
        let zeros = [0u8; PAGE as usize];
        self.with_filled(|st| {
            let mut done = 0;
            while done < len {
                let n = (len - done).min(PAGE) as usize;
                let at = va.0.checked_add(done).ok_or(EFAULT)?;
                whole(st.write(at, &zeros[..n], Mode::Write), n)?;
                done += n as u64;
            }
            Ok(())
        })
    }
    /// A struct from the application.
    pub fn read_obj<T: FromBytes + FromZeros + IntoBytes>(&self, va: Va) -> Result<T> {
        let mut v = T::new_zeroed();
        self.copy_in(va, v.as_mut_bytes())?;
        Ok(v)
    }
    /// A struct to the application.
    pub fn write_obj<T: IntoBytes + Immutable>(&self, va: Va, v: &T) -> Result<()> {
        self.copy_out(va, v.as_bytes())
    }

    /// The string at `va`, without its NUL, which must be among the first `max` bytes: else
    /// `ENAMETOOLONG`; `EFAULT` if memory ends first.
    pub fn read_cstr(&self, va: Va, max: usize) -> Result<Vec<u8>> {
        let mut out: Vec<u8> = Vec::new();
        self.with_filled(|st| {
            let mut chunk = [0u8; 256];
            while out.len() < max {
                let at = va.0.checked_add(out.len() as u64).ok_or(EFAULT)?;
                // Not over the page's end: what lies behind need not be mapped, nor should it be
                // touched.
                let in_page = (PAGE - at % PAGE) as usize;
                let n = chunk.len().min(max - out.len()).min(in_page);
                let n = st.read(at, &mut chunk[..n], Mode::Read);
                if n == 0 {
                    return Err(EFAULT);
                }
                if let Some(end) = chunk[..n].iter().position(|b| *b == 0) {
                    out.extend_from_slice(&chunk[..end]);
                    return Ok(());
                }
                out.extend_from_slice(&chunk[..n]);
            }
            Err(ENAMETOOLONG)
        })?;
        Ok(out)
    }

    /// Offers `[va, va + len)` itself to `f`, as far as it can be accessed; gives what `f` gives.
    /// `EFAULT` if not even the first byte can be.
    ///
    /// `f` must not touch application memory otherwise (the lock may be held).
    pub fn with_slices(
        &self,
        va: Va,
        len: usize,
        access: Access,
        f: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        let r = UserRange {
            va,
            len: len as u64,
        };
        self.with_ranges(&[r], len, access, f)
    }

    /// As [`Mm::with_slices`], for the first `max` bytes of a list. It may offer less than that;
    /// the caller asks again for the rest.
    pub fn with_ranges(
        &self,
        ranges: &[UserRange],
        max: usize,
        access: Access,
        f: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        let mode = Mode::of(access);
        let mut pins = Pins::new();
        // Recursive: `f` may be a transfer to another address space, or to this one.
        let shared = (max > HOLD).then(|| self.pins.read_recursive());
        let (held, g) = self.with(|st| {
            let g = st.gather(&self.clas, ranges, max, mode, &mut pins);
            if g.fault && g.bytes == 0 {
                return (Err(EFAULT), g);
            }
            if shared.is_some() {
                self.clas.incref_all(&pins);
            } else if g.host.is_none() {
                return (f(&g.slices).map(|n| Some(n.min(g.bytes))), g);
            }
            (Ok(None), g)
        });
        if let Some(n) = held? {
            return Ok(n);
        }
        let done = match g.host {
            None => f(&g.slices).map(|n| n.min(g.bytes)),
            Some(mut h) => bounce(&mut h, mode, f),
        };
        if shared.is_some() {
            drop(shared);
            self.clas.decref_all(&pins);
        }
        done
    }

    /// Runs `f` on the 32-bit word at `va` as an atomic. `EINVAL` if it is not aligned, `EFAULT`
    /// if it cannot be accessed.
    pub fn with_atomic_u32<R>(
        &self,
        va: Va,
        access: Access,
        f: impl FnOnce(&AtomicU32) -> R,
    ) -> Result<R> {
        if !va.0.is_multiple_of(4) {
            return Err(EINVAL);
        }
        let mut f = Some(f);
        self.with_filled(|st| {
            let (backing, _) = st
                .piece(va.0, 4, Mode::of(access), Effort::Needed)
                .map_err(|_| EFAULT)?;
            let f = f.take().ok_or(EFAULT)?;
            self.atomic_u32_in(st, backing, f)
        })
    }

    /// As [`Mm::with_atomic_u32`], but for callers that hold what others need: `None` where the
    /// address space is being changed, where the page is not present, and where it may not be
    /// accessed. The caller lets go of what it holds, calls [`Mm::with_atomic_u32`], which waits
    /// and says what is wrong, and tries again.
    pub fn try_atomic_u32<R>(
        &self,
        va: Va,
        access: Access,
        f: impl FnOnce(&AtomicU32) -> R,
    ) -> Option<R> {
        if !va.0.is_multiple_of(4) {
            return None;
        }
        let mode = Mode::of(access);
        let st = self.state.try_lock()?;
        let (vr, vma) = st.vmas.get(va.0)?;
        let (pr, p) = st.pmas.get(va.0)?;
        if !mode.allowed(vma) || !p.is_here() || (mode.is_write() && !p.writable()) {
            return None;
        }
        debug_assert!(vr.contains(&va.0));
        let backing = p.after(va.0 - pr.start).backing;
        self.atomic_u32_in(&st, backing, f).ok()
    }

    /// The word that `backing` begins with.
    fn atomic_u32_in<R>(
        &self,
        st: &State,
        backing: Backing,
        f: impl FnOnce(&AtomicU32) -> R,
    ) -> Result<R> {
        match backing {
            Backing::Frames(at) => Ok(f(self.clas.slice(at, 4).atomic_u32().ok_or(EINVAL)?)),
            b if let Some((c, at)) = st.pmas.foreign_frames(b) => {
                Ok(f(c.slice(at, 4).atomic_u32().ok_or(EINVAL)?))
            }
            // Mapping the file here would let whoever cuts it short on the host end the Sentry by
            // SIGBUS. So this is atomic towards the Sentry's other threads only.
            Backing::Host { fd, offset } => {
                let mut word = [0; 4];
                read_file(fd, offset, &mut word).map_err(|_| EFAULT)?;
                let old = u32::from_ne_bytes(word);
                let atomic = AtomicU32::new(old);
                let r = f(&atomic);
                let new = atomic.into_inner();
                if new != old {
                    write_file(fd, offset, &new.to_ne_bytes()).map_err(|_| EFAULT)?;
                }
                Ok(r)
            }
        }
    }

    /// The 32-bit word at `va`, read atomically.
    pub fn load_u32(&self, va: Va) -> Result<u32> {
        self.with_atomic_u32(va, Access::Read, |a| {
            a.load(std::sync::atomic::Ordering::SeqCst)
        })
    }

    /// Makes `[va, va + len)` accessible as far as it can be; gives the bytes. For calls that must
    /// not fail half-way.
    pub fn prefault(&self, va: Va, len: u64, access: Access) -> u64 {
        self.ask(va.0..va.0.saturating_add(len));
        self.with_filled(|st| {
            let mut done = 0;
            while done < len {
                let at = va.0.checked_add(done);
                match at
                    .ok_or(Bad::Unmapped)
                    .and_then(|at| st.piece(at, len - done, Mode::of(access), Effort::Needed))
                {
                    Ok((_, n)) => done += n,
                    Err(_) => break,
                }
            }
            done
        })
    }
}

/// Offers a buffer of ours in the place of a piece of a host file.
fn bounce(
    h: &mut HostPiece,
    mode: Mode,
    f: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
) -> std::result::Result<usize, Errno> {
    let known = h.bytes.take();
    let is_known = known.is_some();
    let mut buf = known.unwrap_or_else(|| vec![0; h.len]);
    if !mode.is_write() && !is_known {
        read_file(h.fd, h.offset, &mut buf).map_err(|_| EFAULT)?;
    }
    let n = hostcall::mem::with_slice_mut(&mut buf, |s| f(&[s]))?.min(h.len);
    if mode.is_write() {
        write_file(h.fd, h.offset, &buf[..n]).map_err(|_| EFAULT)?;
    }
    Ok(n)
}
