//! Memory.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use crate::task::access::{self, By};
use crate::task::exec::map_file;
use abi::errno::*;
use abi::linux::{MAP_ANONYMOUS, O_PATH};
use mm::MmapRequest;

const PROT: &[(u64, &str)] = &[
    (1, "PROT_READ"),
    (2, "PROT_WRITE"),
    (4, "PROT_EXEC"),
    (0, "PROT_NONE"),
];
const MAP: &[(u64, &str)] = &[
    (3, "MAP_SHARED_VALIDATE"),
    (1, "MAP_SHARED"),
    (2, "MAP_PRIVATE"),
    (8, "MAP_DROPPABLE"),
    (0x10, "MAP_FIXED"),
    (0x20, "MAP_ANONYMOUS"),
    (0x100, "MAP_GROWSDOWN"),
    (0x800, "MAP_DENYWRITE"),
    (0x2000, "MAP_LOCKED"),
    (0x4000, "MAP_NORESERVE"),
    (0x8000, "MAP_POPULATE"),
    (0x2_0000, "MAP_STACK"),
    (0x10_0000, "MAP_FIXED_NOREPLACE"),
];

/// `mmap(addr, len, prot, flags, fd, offset)`.
fn mmap(cx: &mut Context, a: &Args) -> SysResult {
    let (flags, offset) = (a.u32(3), a.u64(5));
    if offset % abi::PAGE_SIZE != 0 {
        return Err(EINVAL);
    }
    if flags & MAP_ANONYMOUS == 0 {
        // The file's last mapped byte must have an offset.
        let end = offset.checked_add(a.u64(1)).ok_or(EOVERFLOW)?;
        if end > i64::MAX as u64 {
            return Err(EOVERFLOW);
        }
    }
    let file = if flags & MAP_ANONYMOUS != 0 {
        None
    } else {
        let f = cx.fd(a.i32(4))?;
        if f.flags() & O_PATH != 0 {
            return Err(EBADF);
        }
        Some(map_file(&f, &cx.fs().root())?)
    };
    let req = MmapRequest {
        addr: a.va(0),
        len: a.u64(1),
        prot: a.u32(2),
        flags,
        offset,
        file,
    };
    cx.mm().mmap(req).map(|va| va.0 as usize)
}
fn munmap(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm().munmap(a.va(0), a.u64(1)).map(|()| 0)
}
fn mprotect(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm().mprotect(a.va(0), a.u64(1), a.u32(2)).map(|()| 0)
}
/// No protection keys: only key -1.
fn pkey_mprotect(cx: &mut Context, a: &Args) -> SysResult {
    if a.i32(3) != -1 {
        return Err(EINVAL);
    }
    mprotect(cx, a)
}
fn mremap(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm()
        .mremap(a.va(0), a.u64(1), a.u64(2), a.u32(3), a.va(4))
        .map(|va| va.0 as usize)
}
fn brk(cx: &mut Context, a: &Args) -> SysResult {
    Ok(cx.mm().brk(a.va(0)).0 as usize)
}
fn madvise(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm().madvise(a.va(0), a.u64(1), a.u32(2)).map(|()| 0)
}
fn msync(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm().msync(a.va(0), a.u64(1), a.u32(2)).map(|()| 0)
}
fn mincore(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let mut to = a.va(2);
    mm.mincore(a.va(0), a.u64(1), &mut |bytes| {
        mm.copy_out(to, bytes)?;
        to = to.offset(bytes.len() as u64);
        Ok(())
    })?;
    Ok(0)
}
fn mlock(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm().mlock(a.va(0), a.u64(1), 0).map(|()| 0)
}
fn mlock2(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm().mlock(a.va(0), a.u64(1), a.u32(2)).map(|()| 0)
}
fn munlock(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm().munlock(a.va(0), a.u64(1)).map(|()| 0)
}
fn mlockall(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm().mlockall(a.u32(0)).map(|()| 0)
}
fn munlockall(cx: &mut Context, _: &Args) -> SysResult {
    cx.mm().munlockall();
    Ok(0)
}

/// `process_vm_readv` and `process_vm_writev` between processes of one user.
fn process_vm(cx: &Context, a: &Args, write: bool) -> SysResult {
    if a.u64(5) != 0 {
        return Err(EINVAL);
    }
    let t = cx.find_task(a.i32(0))?;
    let (mm, other) = (cx.mm(), access::memory(cx, &t, By::Real)?);
    let list = |va, n: u64| -> abi::Result<Vec<[u64; 2]>> {
        if n > 1024 {
            return Err(EINVAL);
        }
        let mut v = Vec::new();
        for i in 0..n {
            v.push(mm.read_obj::<[u64; 2]>(abi::Va(va).offset(16 * i))?);
        }
        Ok(v)
    };
    let (local, remote) = (list(a.u64(1), a.u64(2))?, list(a.u64(3), a.u64(4))?);
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
            let (src, dst) = (abi::Va(base).offset(at), abi::Va(lbase).offset(lo));
            let got = if write {
                mm.read_bytes(dst, &mut buf[..n])
            } else {
                other.read_bytes(src, &mut buf[..n])
            };
            let put = if write {
                other.write_bytes(src, &buf[..got])
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
fn process_vm_readv(cx: &mut Context, a: &Args) -> SysResult {
    process_vm(cx, a, false)
}
fn process_vm_writev(cx: &mut Context, a: &Args) -> SysResult {
    process_vm(cx, a, true)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(
        9,
        "mmap",
        &[
            Arg::Ptr,
            Arg::Uint,
            Arg::Flags(PROT),
            Arg::Flags(MAP),
            Arg::Fd,
            Arg::Hex,
        ],
        mmap,
    )
    .note("no huge pages"),
    Call::new(
        10,
        "mprotect",
        &[Arg::Ptr, Arg::Uint, Arg::Flags(PROT)],
        mprotect,
    ),
    Call::new(11, "munmap", &[Arg::Ptr, Arg::Uint], munmap),
    Call::new(12, "brk", &[Arg::Ptr], brk),
    Call::new(
        25,
        "mremap",
        &[Arg::Ptr, Arg::Uint, Arg::Uint, Arg::Hex, Arg::Ptr],
        mremap,
    ),
    Call::new(26, "msync", &[Arg::Ptr, Arg::Uint, Arg::Hex], msync),
    Call::new(27, "mincore", &[Arg::Ptr, Arg::Uint, Arg::Ptr], mincore),
    Call::new(28, "madvise", &[Arg::Ptr, Arg::Uint, Arg::Int], madvise),
    Call::new(149, "mlock", &[Arg::Ptr, Arg::Uint], mlock)
        .note("accounted, not pinned on the host"),
    Call::new(150, "munlock", &[Arg::Ptr, Arg::Uint], munlock),
    Call::new(151, "mlockall", &[Arg::Hex], mlockall).note("accounted, not pinned on the host"),
    Call::new(152, "munlockall", &[], munlockall),
    Call::new(
        310,
        "process_vm_readv",
        &[Arg::Int, Arg::Ptr, Arg::Uint, Arg::Ptr, Arg::Uint, Arg::Hex],
        process_vm_readv,
    ),
    Call::new(
        311,
        "process_vm_writev",
        &[Arg::Int, Arg::Ptr, Arg::Uint, Arg::Ptr, Arg::Uint, Arg::Hex],
        process_vm_writev,
    ),
    Call::new(325, "mlock2", &[Arg::Ptr, Arg::Uint, Arg::Hex], mlock2),
    Call::new(
        329,
        "pkey_mprotect",
        &[Arg::Ptr, Arg::Uint, Arg::Flags(PROT), Arg::Int],
        pkey_mprotect,
    )
    .note("no protection keys"),
];
