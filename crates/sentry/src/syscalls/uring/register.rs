//! io_uring_register(2).

use super::super::SysResult;
use super::super::args::*;
use super::tables::{Update, buffers, files, one_by_one, rsrc, update_buffers, update_files};
use super::{ops, ring_file, ring_of};
use crate::task::Context;
use crate::task::uring::abi::{self as uring_abi, Setup};
use crate::task::uring::buffers::{ENTRY, Place};
use crate::task::uring::cancel::{CancelFlags, CancelTarget};
use crate::task::uring::work::RING_FDS;
use crate::task::uring::{Restrictions, Ring};
use abi::errno::*;
use abi::time::Timespec;
use abi::{PAGE_SIZE, Result, Va};
use mm::Access;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vfs::ring::RingMemory;
use vfs::ucounts::{Charge, Kind};
use wait::Events;

named! {
    /// What io_uring_register(2) does (`IORING_REGISTER_*`).
    pub(super) struct RegisterOp(u32) {
        BUFFERS = 0,
        UNREGISTER_BUFFERS = 1,
        FILES = 2,
        UNREGISTER_FILES = 3,
        EVENTFD = 4,
        UNREGISTER_EVENTFD = 5,
        FILES_UPDATE = 6,
        EVENTFD_ASYNC = 7,
        PROBE = 8,
        PERSONALITY = 9,
        UNREGISTER_PERSONALITY = 10,
        RESTRICTIONS = 11,
        ENABLE_RINGS = 12,
        FILES2 = 13,
        FILES_UPDATE2 = 14,
        BUFFERS2 = 15,
        BUFFERS_UPDATE = 16,
        IOWQ_AFF = 17,
        UNREGISTER_IOWQ_AFF = 18,
        IOWQ_MAX_WORKERS = 19,
        RING_FDS = 20,
        UNREGISTER_RING_FDS = 21,
        PBUF_RING = 22,
        UNREGISTER_PBUF_RING = 23,
        SYNC_CANCEL = 24,
        FILE_ALLOC_RANGE = 25,
        PBUF_STATUS = 26,
        NAPI = 27,
        UNREGISTER_NAPI = 28,
        CLOCK = 29,
        CLONE_BUFFERS = 30,
    }
}

/// `IORING_REGISTER_USE_REGISTERED_RING`.
const USE_REGISTERED: u32 = 1 << 31;
/// `IORING_REGISTER_LAST`.
const LAST: u32 = 31;

/// What is registered: where its description lies, and how many there are.
#[derive(Clone, Copy)]
pub(super) struct RegisterArg {
    pub(super) at: Va,
    pub(super) n: u32,
}

impl RegisterArg {
    /// `EINVAL` unless there is just so much.
    fn exactly(self, n: u32, there: bool) -> Result<()> {
        let fine = self.n == n && (self.at.0 != 0) == there;
        fine.then_some(()).ok_or(EINVAL)
    }
}

pub(super) fn register(cx: &mut Context, fd: Fd, op: RegisterOp, at: Va, n: u32) -> SysResult {
    let registered = op.0 & USE_REGISTERED != 0;
    let op = RegisterOp(op.0 & !USE_REGISTERED);
    if op.0 >= LAST {
        return Err(EINVAL);
    }
    let f = ring_file(cx, fd, registered)?;
    let ring = ring_of(&f)?.ring.clone();
    if ring.has(Setup::SINGLE_ISSUER) && !ring.is_disabled() && !ring.is_issuer(&cx.task) {
        return Err(EEXIST);
    }
    if let Some(r) = &*ring.restrictions.lock()
        && r.holds
        && r.registers >> op.0 & 1 == 0
    {
        return Err(EACCES);
    }
    let given = RegisterArg { at, n };
    match op {
        RegisterOp::BUFFERS => buffers(cx, &ring, given, Va(0)),
        RegisterOp::FILES => files(cx, &ring, given, Va(0)),
        RegisterOp::FILES2 => rsrc(cx, &ring, given, files),
        RegisterOp::BUFFERS2 => rsrc(cx, &ring, given, buffers),
        RegisterOp::UNREGISTER_BUFFERS => {
            given.exactly(0, false)?;
            ring.resources.buffers.unregister().map(|()| 0)
        }
        RegisterOp::UNREGISTER_FILES => {
            given.exactly(0, false)?;
            ring.resources.files.unregister().map(|()| 0)
        }
        RegisterOp::FILES_UPDATE => {
            if n == 0 {
                return Err(EINVAL);
            }
            let u = Update::read_short(cx, at)?;
            update_files(cx, &ring, u.offset, (u.data, 0), n)
        }
        RegisterOp::FILES_UPDATE2 | RegisterOp::BUFFERS_UPDATE => {
            let u = Update::read(cx, given)?;
            match op {
                RegisterOp::FILES_UPDATE2 => {
                    update_files(cx, &ring, u.offset, (u.data, u.tags), u.n)
                }
                _ => update_buffers(cx, &ring, &u),
            }
        }
        RegisterOp::FILE_ALLOC_RANGE => {
            given.exactly(0, true)?;
            let [off, resv] = cx.mm().read_obj::<[u64; 2]>(at)?;
            if resv != 0 {
                return Err(EINVAL);
            }
            let (from, len) = (off as u32, (off >> 32) as u32);
            ring.resources.files.set_range(from, len).map(|()| 0)
        }
        RegisterOp::PBUF_RING | RegisterOp::UNREGISTER_PBUF_RING | RegisterOp::PBUF_STATUS => {
            pbufs(cx, &ring, op, given)
        }
        RegisterOp::RING_FDS | RegisterOp::UNREGISTER_RING_FDS => ring_fds(cx, op, given),
        RegisterOp::SYNC_CANCEL => sync_cancel(cx, &ring, given),
        _ => settings(cx, &ring, op, given),
    }
}

/// What is no table.
fn settings(cx: &mut Context, ring: &Arc<Ring>, op: RegisterOp, given: RegisterArg) -> SysResult {
    match op {
        RegisterOp::EVENTFD | RegisterOp::EVENTFD_ASYNC => {
            if given.n != 1 {
                return Err(EINVAL);
            }
            let fd: i32 = cx.mm().read_obj(given.at)?;
            let f = Fd(fd).file(cx)?;
            f.ops::<ipc::EventFd>().ok_or(EINVAL)?;
            let only_async = op == RegisterOp::EVENTFD_ASYNC;
            ring.set_eventfd(Some((f, only_async)))
                .then_some(0)
                .ok_or(EBUSY)
        }
        RegisterOp::UNREGISTER_EVENTFD => {
            given.exactly(0, false)?;
            ring.set_eventfd(None).then_some(0).ok_or(ENXIO)
        }
        RegisterOp::PROBE => probe(cx, given),
        RegisterOp::PERSONALITY => personality(cx, ring, given),
        RegisterOp::UNREGISTER_PERSONALITY => {
            if given.at.0 != 0 {
                return Err(EINVAL);
            }
            let id = u16::try_from(given.n).map_err(|_| EINVAL)?;
            let old = ring.personalities.lock().all.remove(&id);
            old.map(|_| 0).ok_or(EINVAL)
        }
        RegisterOp::ENABLE_RINGS => {
            given.exactly(0, false)?;
            if !ring.is_disabled() {
                return Err(EBADFD);
            }
            if ring.has(Setup::SINGLE_ISSUER) {
                ring.is_issuer(&cx.task);
            }
            ring.enable();
            Ok(0)
        }
        RegisterOp::RESTRICTIONS => restrict(cx, ring, given),
        RegisterOp::IOWQ_AFF => {
            if given.at.0 == 0 || given.n == 0 {
                return Err(EINVAL);
            }
            let mut mask = vec![0; given.n.min(128) as usize];
            cx.mm().copy_in(given.at, &mut mask)?;
            Ok(0)
        }
        RegisterOp::UNREGISTER_IOWQ_AFF => given.exactly(0, false).map(|()| 0),
        RegisterOp::IOWQ_MAX_WORKERS => workers(cx, ring, given),
        RegisterOp::CLOCK => {
            given.exactly(0, true)?;
            let [clock, a, b, c] = cx.mm().read_obj::<[u32; 4]>(given.at)?;
            if a != 0 || b != 0 || c != 0 || !matches!(clock, 1 | 7) {
                return Err(EINVAL);
            }
            ring.clock.store(clock, Ordering::Relaxed);
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

/// The caller's credentials get a number.
fn personality(cx: &Context, ring: &Ring, given: RegisterArg) -> SysResult {
    given.exactly(0, false)?;
    let charge = table_charge(ring, 2)?;
    let mut p = ring.personalities.lock();
    let next = (1..=u16::MAX)
        .map(|i| p.last.wrapping_add(i))
        .find(|n| *n != 0 && !p.all.contains_key(n));
    let id = next.ok_or(ENOMEM)?;
    p.last = id;
    p.all.insert(id, (cx.cred(), charge));
    Ok(id.into())
}

/// How many workers there may be, of bounded and of unbounded work: kept, and told.
fn workers(cx: &Context, ring: &Ring, given: RegisterArg) -> SysResult {
    given.exactly(2, true)?;
    let mm = cx.mm();
    let new: [u32; 2] = mm.read_obj(given.at)?;
    if new.iter().any(|n| *n > i32::MAX as u32) {
        return Err(EINVAL);
    }
    let most = cx.group.limits.lock().0[crate::task::limits::NPROC].current;
    let first = [
        cx.kernel.cpus.max(1) * 4,
        u32::try_from(most).unwrap_or(u32::MAX),
    ];
    let mut w = ring.workers.lock();
    let old: [u32; 2] = std::array::from_fn(|i| if w[i] == 0 { first[i] } else { w[i] });
    for i in 0..2 {
        if new[i] != 0 {
            w[i] = new[i];
        }
    }
    drop(w);
    mm.write_obj(given.at, &old)?;
    Ok(0)
}

/// What a slot of a table takes of the kernel's memory.
pub(super) const SLOT: u64 = 64;

pub(super) fn table_charge(ring: &Ring, n: u32) -> Result<Charge> {
    let charge = ring.user.charge(Kind::Kmem, u64::from(n) * SLOT, u64::MAX);
    charge.ok_or(ENOMEM)
}

/// `struct io_uring_probe`: which operations there are.
fn probe(cx: &Context, given: RegisterArg) -> SysResult {
    const SUPPORTED: u16 = 1;
    const HEADER: usize = 16;
    if given.at.0 == 0 || given.n > 256 {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let mut raw = vec![0u8; HEADER + given.n as usize * 8];
    mm.copy_in(given.at, &mut raw)?;
    if raw.iter().any(|b| *b != 0) {
        return Err(EINVAL);
    }
    let n = given.n.min(u32::from(uring_abi::op::LAST)) as u8;
    (raw[0], raw[1]) = (uring_abi::op::LAST - 1, n);
    for op in 0..n {
        let at = HEADER + usize::from(op) * 8;
        raw[at] = op;
        let flags = if ops::find(op).is_some() {
            SUPPORTED
        } else {
            0
        };
        raw[at + 2..at + 4].copy_from_slice(&flags.to_le_bytes());
    }
    mm.copy_out(given.at, &raw).map(|()| 0)
}

/// `struct io_uring_restriction`s, before the ring is enabled.
fn restrict(cx: &Context, ring: &Ring, given: RegisterArg) -> SysResult {
    const MOST: u32 = 31 + 58;
    if given.at.0 == 0 || given.n > MOST {
        return Err(EINVAL);
    }
    if !ring.is_disabled() {
        return Err(EBADFD);
    }
    if ring.restrictions.lock().is_some() {
        return Err(EBUSY);
    }
    let mut new = Restrictions::default();
    for i in 0..given.n {
        let at = given.at.offset(u64::from(i) * 16);
        let [first, _] = cx.mm().read_obj::<[u64; 2]>(at)?;
        let (opcode, what) = (first as u16, (first >> 16) as u8);
        match opcode {
            0 if u32::from(what) < LAST => new.registers |= 1 << what,
            1 if what < uring_abi::op::LAST => new.ops |= 1 << what,
            2 => new.flags_allowed = what,
            3 => new.flags_required = what,
            _ => return Err(EINVAL),
        }
    }
    *ring.restrictions.lock() = Some(new);
    Ok(0)
}

/// Rings of provided buffers (`struct io_uring_buf_reg`).
fn pbufs(cx: &Context, ring: &Ring, op: RegisterOp, given: RegisterArg) -> SysResult {
    const MMAP: u16 = 1;
    given.exactly(1, true)?;
    let mm = cx.mm();
    if op == RegisterOp::PBUF_STATUS {
        let [group, _, rest @ ..] = mm.read_obj::<[u32; 10]>(given.at)?;
        if rest != [0; 8] {
            return Err(EINVAL);
        }
        let head = ring.groups.head(group as u16)?;
        mm.write_obj(given.at.offset(4), &u32::from(head))?;
        return Ok(0);
    }
    let raw: [u64; 5] = mm.read_obj(given.at)?;
    let [addr, second, ..] = raw;
    let (entries, group, flags) = (second as u32, (second >> 32) as u16, (second >> 48) as u16);
    if raw[2..].iter().any(|w| *w != 0) {
        return Err(EINVAL);
    }
    if op == RegisterOp::UNREGISTER_PBUF_RING {
        if flags != 0 {
            return Err(EINVAL);
        }
        return ring.groups.unregister(group).map(|()| 0);
    }
    if flags & !MMAP != 0 {
        return Err(EINVAL);
    }
    let kernels = flags & MMAP != 0;
    if kernels && addr != 0 {
        return Err(EINVAL);
    }
    if !kernels && addr == 0 {
        return Err(EFAULT);
    }
    if !addr.is_multiple_of(PAGE_SIZE) || !entries.is_power_of_two() {
        return Err(EINVAL);
    }
    if entries >= 65536 {
        return Err(EINVAL);
    }
    let size = (u64::from(entries) * ENTRY).next_multiple_of(PAGE_SIZE);
    let charge = |n| ring.user.charge(Kind::Kmem, n, u64::MAX).ok_or(ENOMEM);
    let place = if kernels {
        Place::Kernel(RingMemory::new(mm.clas(), size, Some(charge(size)?))?)
    } else {
        if mm.is_secret(Va(addr), size) || mm.prefault(Va(addr), size, Access::Write) < size {
            return Err(EFAULT);
        }
        Place::User(Arc::downgrade(&mm), Va(addr))
    };
    let own = charge(SLOT * 4)?;
    ring.groups.register(group, place, entries, own).map(|()| 0)
}

/// `IORING_REGISTER_RING_FDS`: names of rings that are no descriptors.
fn ring_fds(cx: &Context, op: RegisterOp, given: RegisterArg) -> SysResult {
    if given.n == 0 || given.n as usize > RING_FDS {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let one = |i: u32| -> Result<()> {
        let at = given.at.offset(u64::from(i) * 16);
        let [first, data] = mm.read_obj::<[u64; 2]>(at)?;
        let (offset, resv) = (first as u32, first >> 32);
        if resv != 0 {
            return Err(EINVAL);
        }
        if op == RegisterOp::UNREGISTER_RING_FDS {
            if data != 0 || offset as usize >= RING_FDS {
                return Err(EINVAL);
            }
            let old = cx
                .task
                .uring
                .with_registered(|all| all.get_mut(offset as usize).and_then(Option::take));
            drop(old);
            return Ok(());
        }
        let f = Fd(data as i32).file(cx)?;
        ring_of(&f)?;
        let slot = cx.task.uring.with_registered(|all| {
            all.resize(RING_FDS, None);
            let free = |i: &usize| all[*i].is_none();
            let slot = match offset {
                u32::MAX => (0..RING_FDS).find(free).ok_or(EBUSY)?,
                n if n as usize >= RING_FDS => return Err(EINVAL),
                n => Some(n as usize).filter(free).ok_or(EBUSY)?,
            };
            all[slot] = Some(f);
            Ok(slot)
        })?;
        let told = mm.write_obj(at, &(slot as u32));
        if told.is_err() {
            let old = cx.task.uring.with_registered(|all| all[slot].take());
            drop(old);
        }
        told
    };
    one_by_one(cx, given.n, one)
}

/// `IORING_REGISTER_SYNC_CANCEL`: cancels, and waits until what was busy has ended.
fn sync_cancel(cx: &Context, ring: &Ring, given: RegisterArg) -> SysResult {
    given.exactly(1, true)?;
    let raw: [u64; 8] = cx.mm().read_obj(given.at)?;
    let [user_data, second, sec, nsec, third, ..] = raw;
    let (fd, flags) = (second as i32, CancelFlags::from_bits((second >> 32) as u32));
    let flags = flags.ok_or(EINVAL)?;
    if third >> 8 != 0 || raw[5..].iter().any(|w| *w != 0) {
        return Err(EINVAL);
    }
    CancelTarget::check(flags)?;
    let file = match flags.contains(CancelFlags::FD) {
        false => None,
        true if flags.contains(CancelFlags::FD_FIXED) => {
            let node = ring.resources.files.get(fd as u32).ok_or(EBADF)?;
            Some(node.what().clone())
        }
        true => Some(Fd(fd).file(cx)?),
    };
    let wanted = CancelTarget {
        flags,
        user_data,
        file,
        opcode: third as u8,
        but: u64::MAX,
    };
    let time = Timespec {
        sec: sec as i64,
        nsec: nsec as i64,
    };
    let deadline = match (time.sec, time.nsec) {
        (-1, -1) => None,
        _ => {
            let nanos = time.to_nanos().unwrap_or(0).max(0);
            wait::deadline_after(Duration::from_nanos(nanos as u64))
        }
    };
    let queues = [(&ring.queue, Events::READABLE)];
    let mut busy = false;
    let r = cx
        .task
        .block(&queues, deadline, || match wanted.cancel(ring, None) {
            Err(EALREADY) => {
                busy = true;
                Err(EAGAIN)
            }
            Err(ENOENT) if busy => Ok(0),
            r => r,
        });
    match r {
        Err(ETIMEDOUT) => Err(ETIME),
        Err(e) if e.is_restart() => Err(EINTR),
        r => r,
    }
}
