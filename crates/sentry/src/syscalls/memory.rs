//! Memory.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use crate::task::access::{self, By};
use crate::task::exec::map_file;
use crate::task::persona::Persona;
use abi::errno::*;
use abi::linux::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_TYPE, PROT_EXEC, PROT_READ};
use abi::{Result, Va};
use mm::{MapFile, Mm, MmapRequest};
use std::sync::Arc;
use vfs::file::File;
use vfs::fs::dev::MemFile;

flags! {
    /// What a mapping allows; [`mm`] checks it.
    struct Prot: u32, kept {
        PROT_NONE,
        PROT_READ,
        PROT_WRITE,
        PROT_EXEC,
    }
}

flags! {
    /// Flags of mmap(2); [`mm`] checks them.
    struct MapFlags: u32, kept {
        MAP_SHARED_VALIDATE,
        MAP_SHARED,
        MAP_PRIVATE,
        MAP_DROPPABLE,
        MAP_FIXED,
        MAP_ANONYMOUS,
        MAP_32BIT,
        MAP_GROWSDOWN,
        MAP_DENYWRITE,
        MAP_EXECUTABLE,
        MAP_LOCKED,
        MAP_NORESERVE,
        MAP_POPULATE,
        MAP_NONBLOCK,
        MAP_STACK,
        MAP_HUGETLB,
        MAP_SYNC,
        MAP_FIXED_NOREPLACE,
    }
}

flags! {
    /// Flags of mremap(2); [`mm`] checks them.
    struct RemapFlags: u32, kept {
        MREMAP_MAYMOVE,
        MREMAP_FIXED,
        MREMAP_DONTUNMAP,
    }
}

flags! {
    /// Flags of msync(2); [`mm`] checks them.
    struct SyncFlags: u32, kept {
        MS_ASYNC,
        MS_INVALIDATE,
        MS_SYNC,
    }
}

flags! {
    /// Flags of mlock2(2); [`mm`] checks them.
    struct LockFlags: u32, kept {
        MLOCK_ONFAULT,
    }
}

flags! {
    /// Flags of mlockall(2); [`mm`] checks them.
    struct LockAllFlags: u32, kept {
        MCL_CURRENT,
        MCL_FUTURE,
        MCL_ONFAULT,
    }
}

named! {
    /// What madvise(2) says.
    pub(super) struct Advice(u32) {
        MADV_NORMAL,
        MADV_RANDOM,
        MADV_SEQUENTIAL,
        MADV_WILLNEED,
        MADV_DONTNEED,
        MADV_FREE,
        MADV_REMOVE,
        MADV_DONTFORK,
        MADV_DOFORK,
        MADV_HWPOISON,
        MADV_MERGEABLE,
        MADV_UNMERGEABLE,
        MADV_HUGEPAGE,
        MADV_NOHUGEPAGE,
        MADV_DONTDUMP,
        MADV_DODUMP,
        MADV_WIPEONFORK,
        MADV_KEEPONFORK,
        MADV_COLD,
        MADV_PAGEOUT,
        MADV_POPULATE_READ,
        MADV_POPULATE_WRITE,
        MADV_DONTNEED_LOCKED,
        MADV_COLLAPSE,
        MADV_CONFIDENTIAL = abi::own::MADV_CONFIDENTIAL,
    }
}

/// Whether what may be read may be run (`READ_IMPLIES_EXEC`).
fn implies_exec(cx: &Context, prot: u32) -> bool {
    prot & PROT_READ != 0 && cx.persona().contains(Persona::READ_IMPLIES_EXEC)
}

/// `mmap(addr, len, prot, flags, fd, offset)`.
fn mmap(
    cx: &mut Context,
    addr: Va,
    len: u64,
    prot: Prot,
    flags: MapFlags,
    fd: Fd,
    offset: u64,
) -> SysResult {
    if !offset.is_multiple_of(abi::PAGE_SIZE) {
        return Err(EINVAL);
    }
    if !flags.contains(MapFlags::MAP_ANONYMOUS) {
        // The file's last mapped byte must have an offset.
        let end = offset.checked_add(len).ok_or(EOVERFLOW)?;
        if end > i64::MAX as u64 {
            return Err(EOVERFLOW);
        }
    }
    let mut kind = flags.bits();
    let file = if flags.contains(MapFlags::MAP_ANONYMOUS) {
        None
    } else {
        let f = fd.file(cx)?;
        crate::task::uring::file::check_map(&f, offset)?;
        let shared = kind & MAP_TYPE != MAP_PRIVATE;
        if shared && f.writable() && f.is_flagged(vfs::FileFlags::APPEND) {
            return Err(EACCES);
        }
        if shared {
            f.ops.may_map_shared()?;
        }
        match f.ops::<MemFile>().is_some_and(MemFile::is_zero) {
            true => zeros(cx, &f, len, &mut kind)?,
            false => Some(map_file(&f, &cx.fs().root())?),
        }
    };
    let mut prot = prot.bits();
    let may_run = file.as_ref().is_none_or(|f| !f.noexec);
    if may_run && implies_exec(cx, prot) {
        prot |= PROT_EXEC;
    }
    let req = MmapRequest {
        addr,
        len,
        prot,
        flags: kind,
        offset,
        file,
    };
    cx.mm().mmap(req).map(|va| va.0 as usize)
}

/// What maps `/dev/zero` (`mmap_zero`): privately, anonymous memory; shared, an unnamed file of
/// its own that is as long as the mapping.
fn zeros(cx: &Context, f: &Arc<File>, len: u64, kind: &mut u32) -> Result<Option<MapFile>> {
    if !f.readable() {
        return Err(EACCES);
    }
    if *kind & MAP_TYPE == MAP_PRIVATE {
        *kind |= MAP_ANONYMOUS;
        return Ok(None);
    }
    let size = len.checked_next_multiple_of(abi::PAGE_SIZE).ok_or(ENOMEM)?;
    let of_its_own = cx.kernel.shm.file(b"dev/zero", size, &cx.cred())?;
    Ok(Some(MapFile {
        readable: true,
        writable: f.writable(),
        ..map_file(&of_its_own, &cx.fs().root())?
    }))
}
fn munmap(cx: &mut Context, addr: Va, len: u64) -> SysResult {
    cx.mm().munmap(addr, len).map(|()| 0)
}
fn mprotect(cx: &mut Context, addr: Va, len: u64, prot: Prot) -> SysResult {
    let prot = prot.bits();
    let implied = if implies_exec(cx, prot) { PROT_EXEC } else { 0 };
    let r = cx.mm().mprotect_implying(addr, len, prot, implied);
    r.map(|()| 0)
}
/// No protection keys: only key -1.
fn pkey_mprotect(cx: &mut Context, addr: Va, len: u64, prot: Prot, key: i32) -> SysResult {
    if key != -1 {
        return Err(EINVAL);
    }
    mprotect(cx, addr, len, prot)
}
fn mremap(
    cx: &mut Context,
    old: Va,
    old_len: u64,
    new_len: u64,
    flags: RemapFlags,
    new: Va,
) -> SysResult {
    cx.mm()
        .mremap(old, old_len, new_len, flags.bits(), new)
        .map(|va| va.0 as usize)
}
fn brk(cx: &mut Context, end: Va) -> SysResult {
    Ok(cx.mm().brk(end).0 as usize)
}
fn madvise(cx: &mut Context, addr: Va, len: u64, advice: Advice) -> SysResult {
    cx.mm().madvise(addr, len, advice.0).map(|()| 0)
}
fn msync(cx: &mut Context, addr: Va, len: u64, flags: SyncFlags) -> SysResult {
    cx.mm().msync(addr, len, flags.bits()).map(|()| 0)
}
fn mincore(cx: &mut Context, addr: Va, len: u64, pages: Va) -> SysResult {
    let mm = cx.mm();
    let mut to = pages;
    mm.mincore(addr, len, &mut |bytes| {
        mm.copy_out(to, bytes)?;
        to = to.offset(bytes.len() as u64);
        Ok(())
    })?;
    Ok(0)
}
fn mlock(cx: &mut Context, addr: Va, len: u64) -> SysResult {
    cx.mm().mlock(addr, len, 0).map(|()| 0)
}
fn mlock2(cx: &mut Context, addr: Va, len: u64, flags: LockFlags) -> SysResult {
    cx.mm().mlock(addr, len, flags.bits()).map(|()| 0)
}
fn mseal(cx: &mut Context, addr: Va, len: u64, flags: u64) -> SysResult {
    cx.mm().mseal(addr, len, flags).map(|()| 0)
}
fn munlock(cx: &mut Context, addr: Va, len: u64) -> SysResult {
    cx.mm().munlock(addr, len).map(|()| 0)
}
/// `remap_file_pages(addr, size, prot, pgoff, flags)`.
fn remap_file_pages(
    cx: &mut Context,
    addr: Va,
    len: u64,
    prot: u64,
    pgoff: u64,
    flags: MapFlags,
) -> SysResult {
    if prot != 0 {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    mm.remap_file_pages(addr, len, pgoff, flags.bits())
        .map(|()| 0)
}

/// `cachestat(fd, range, out, flags)`: which pages of a file are in memory. Of files in memory
/// alone; others' pages are the host's.
fn cachestat(
    cx: &mut Context,
    fd: Fd,
    range: UserIn<[u64; 2]>,
    out: UserOut<[u64; 5]>,
    flags: u32,
) -> SysResult {
    let f = fd.file(cx)?;
    let [from, len] = range.read(&cx.mm())?;
    if !cx.task.with_paths(|p| p.may_see_cache(&f)) {
        return Err(EPERM);
    }
    if flags != 0 {
        return Err(EINVAL);
    }
    let end = match len {
        0 => u64::MAX,
        n => from.saturating_add(n),
    };
    // None of them is written anywhere.
    let cached = f
        .ops
        .cached_pages(from / abi::PAGE_SIZE, end.div_ceil(abi::PAGE_SIZE))?;
    out.write(&cx.mm(), &[cached, 0, 0, 0, 0])?;
    Ok(0)
}

fn mlockall(cx: &mut Context, flags: LockAllFlags) -> SysResult {
    cx.mm().mlockall(flags.bits()).map(|()| 0)
}
fn munlockall(cx: &mut Context) -> SysResult {
    cx.mm().munlockall();
    Ok(0)
}

/// A list of buffers for process_vm_readv(2).
#[derive(Clone, Copy)]
struct Buffers {
    at: UserArray<[u64; 2]>,
    count: u64,
}

impl Buffers {
    const fn new(va: Va, count: u64) -> Buffers {
        Buffers {
            at: UserArray::new(va),
            count,
        }
    }
    /// `EINVAL` where one has a negative length (`iovec_from_user`).
    fn read(self, mm: &Mm) -> Result<Vec<[u64; 2]>> {
        if self.count > 1024 {
            return Err(EINVAL);
        }
        let one = |i| match self.at.at(i).read(mm)? {
            [_, len] if (len as i64) < 0 => Err(EINVAL),
            buffer => Ok(buffer),
        };
        (0..self.count).map(one).collect()
    }
}

/// Which way process_vm_readv(2) and process_vm_writev(2) copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    FromOther,
    ToOther,
}

/// `process_vm_readv` and `process_vm_writev` between processes of one user.
fn process_vm(cx: &Context, tid: Tid, local: Buffers, remote: Buffers, way: Way) -> SysResult {
    let mm = cx.mm();
    let local = local.read(&mm)?;
    let is_ours = |[base, len]: &[u64; 2]| {
        base.checked_add(*len)
            .is_some_and(|end| end <= mm::USER_MAX)
    };
    if !local.iter().all(is_ours) {
        return Err(EFAULT);
    }
    // Whom it would be of, is not asked then.
    if local.iter().all(|[_, len]| *len == 0) {
        return Ok(0);
    }
    let remote = remote.read(&mm)?;
    let t = tid.task(cx)?;
    let other = access::memory(cx, &t, By::Real)?;
    let mut buf = vec![0u8; 64 << 10];
    let (mut li, mut lo, mut done) = (0usize, 0u64, 0usize);
    // MAX_RW_COUNT; nothing on the way could be interrupted.
    let most = 0x7fff_f000;
    for [base, len] in remote {
        let mut at = 0;
        while at < len && li < local.len() && done < most {
            let [lbase, llen] = local[li];
            if lo >= llen {
                li += 1;
                lo = 0;
                continue;
            }
            let n = (len - at).min(llen - lo).min(buf.len() as u64) as usize;
            let n = n.min(most - done);
            let (src, dst) = (Va(base).offset(at), Va(lbase).offset(lo));
            let got = if way == Way::ToOther {
                mm.read_bytes(dst, &mut buf[..n])
            } else {
                other.read_shown(src, &mut buf[..n])
            };
            let put = if way == Way::ToOther {
                other.write_shown(src, &buf[..got])
            } else {
                mm.write_bytes(dst, &buf[..got])
            };
            done += put;
            if put < n {
                return if done == 0 { Err(EFAULT) } else { Ok(done) };
            }
            at += n as u64;
            lo += n as u64;
        }
    }
    Ok(done)
}
fn process_vm_readv(
    cx: &mut Context,
    tid: Tid,
    local: IovecOut<u64>,
    remote: IovecOut<u64>,
    flags: u64,
) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    let (local, remote) = (
        Buffers::new(local.va, local.len),
        Buffers::new(remote.va, remote.len),
    );
    process_vm(cx, tid, local, remote, Way::FromOther)
}
fn process_vm_writev(
    cx: &mut Context,
    tid: Tid,
    local: IovecIn<u64>,
    remote: IovecOut<u64>,
    flags: u64,
) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    let (local, remote) = (
        Buffers::new(local.va, local.len),
        Buffers::new(remote.va, remote.len),
    );
    process_vm(cx, tid, local, remote, Way::ToOther)
}

calls! {
    mmap: "no huge pages",
    mprotect,
    munmap,
    brk,
    mremap,
    msync,
    mincore,
    madvise,
    remap_file_pages,
    cachestat: "of tmpfs and memfds; others' pages are the host's (EOPNOTSUPP)",
    mlock: "accounted, not pinned on the host",
    munlock,
    mlockall: "accounted, not pinned on the host",
    munlockall,
    process_vm_readv,
    process_vm_writev,
    mlock2,
    pkey_mprotect: "no protection keys",
    mseal,
}
