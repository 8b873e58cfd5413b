//! System V IPC: the objects are in `ipc::sysv`; the application's structures and its mappings are
//! here.

use super::SysResult;
use super::args::*;
use super::time::timespec_arg;
use crate::task::Context;
use crate::task::exec::map_file;
use abi::errno::*;
use abi::linux::{MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};
use abi::time::Timespec;
use abi::{PAGE_SIZE, Result, Va};
use ipc::sysv::msg::{
    MSG_COPY, MSG_EXCEPT, MSG_INFO, MSG_STAT, MSG_STAT_ANY, MSGMNB, Msg, MsgQueue, Want,
};
use ipc::sysv::sem::{
    GETALL, GETNCNT, GETPID, GETVAL, GETZCNT, SEM_INFO, SEM_STAT, SEM_STAT_ANY, SEMOPM, SEMVMX,
    SETALL, SETVAL, SemOp, SemSet,
};
use ipc::sysv::shm::{
    Attachment, Locked, SHM_EXEC, SHM_HUGETLB, SHM_INFO, SHM_LOCK, SHM_RDONLY, SHM_REMAP, SHM_RND,
    SHM_STAT, SHM_STAT_ANY, SHM_UNLOCK, Shm,
};
use ipc::sysv::{
    IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, IpcNamespace, Limit, Object, Perm, READ,
    Registry,
};
use mm::{MapFile, MmapRequest};
use std::sync::Arc;
use wait::deadline_after;
use zerocopy::IntoBytes;

flags! {
    /// Of shmget(2): below them lie permission bits.
    struct ShmGetFlags: u32, kept {
        IPC_CREAT = 0o1000,
        IPC_EXCL = 0o2000,
        SHM_HUGETLB = SHM_HUGETLB,
    }
}

flags! {
    /// Of semget(2) and msgget(2): below them lie permission bits.
    struct IpcGetFlags: u32, kept {
        IPC_CREAT = 0o1000,
        IPC_EXCL = 0o2000,
    }
}

flags! {
    /// Of shmat(2).
    struct ShmAtFlags: u32, kept {
        SHM_RDONLY = SHM_RDONLY,
        SHM_RND = SHM_RND,
        SHM_REMAP = SHM_REMAP,
        SHM_EXEC = SHM_EXEC,
    }
}

flags! {
    /// Of msgsnd(2) and msgrcv(2).
    struct MessageFlags: u32, kept {
        IPC_NOWAIT = IPC_NOWAIT,
        MSG_NOERROR = 0o10_000,
        MSG_EXCEPT = MSG_EXCEPT,
        MSG_COPY = MSG_COPY,
    }
}

named! {
    /// What shmctl(2) does.
    struct ShmCtl(u32) {
        IPC_RMID = IPC_RMID,
        IPC_SET = IPC_SET,
        IPC_STAT = IPC_STAT,
        IPC_INFO = IPC_INFO,
        SHM_LOCK = SHM_LOCK,
        SHM_UNLOCK = SHM_UNLOCK,
        SHM_STAT = SHM_STAT,
        SHM_INFO = SHM_INFO,
        SHM_STAT_ANY = SHM_STAT_ANY,
    }
}

named! {
    /// What semctl(2) does.
    struct SemCtl(u32) {
        IPC_RMID = IPC_RMID,
        IPC_SET = IPC_SET,
        IPC_STAT = IPC_STAT,
        IPC_INFO = IPC_INFO,
        GETPID = GETPID,
        GETVAL = GETVAL,
        GETALL = GETALL,
        GETNCNT = GETNCNT,
        GETZCNT = GETZCNT,
        SETVAL = SETVAL,
        SETALL = SETALL,
        SEM_STAT = SEM_STAT,
        SEM_INFO = SEM_INFO,
        SEM_STAT_ANY = SEM_STAT_ANY,
    }
}

named! {
    /// What msgctl(2) does.
    struct MsgCtl(u32) {
        IPC_RMID = IPC_RMID,
        IPC_SET = IPC_SET,
        IPC_STAT = IPC_STAT,
        IPC_INFO = IPC_INFO,
        MSG_STAT = MSG_STAT,
        MSG_INFO = MSG_INFO,
        MSG_STAT_ANY = MSG_STAT_ANY,
    }
}

opaque! { SemOp }

/// What IPC_INFO tells of things that Linux does not have.
const SEMMNS: i32 = 32_000 * 32_000;
const MSGPOOL: i32 = 32_000 * 16_384 / 1024;

fn ns(cx: &Context) -> Arc<IpcNamespace> {
    Arc::clone(&cx.ns().ipc)
}

/// Makes the ids in an encoded structure the caller's numbers: the owners', and the processes' at
/// these places.
fn with_numbers(cx: &Context, mut bytes: Vec<u8>, places: &[usize]) -> Vec<u8> {
    let ns = &cx.cred().user_ns;
    for (at, user) in [(4, true), (8, false), (12, true), (16, false)] {
        if let Some(b) = bytes.get_mut(at..at + 4) {
            let id = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            let n = if user {
                ns.uid_shown(id)
            } else {
                ns.gid_shown(id)
            };
            b.copy_from_slice(&n.to_le_bytes());
        }
    }
    for &at in places {
        if let Some(b) = bytes.get_mut(at..at + 4) {
            let id = i32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            b.copy_from_slice(&cx.number_of(id).to_le_bytes());
        }
    }
    bytes
}

/// What the number of a `*_STAT` command is.
#[derive(Clone, Copy)]
enum NumberIs {
    Id,
    /// A place in the table.
    Place,
}

/// What the `*_STAT` commands find: by identifier, or by place in the table, which gives the
/// identifier.
fn stat_of<T: Object>(r: &Registry<T>, n: i32, is: NumberIs) -> Result<(usize, Arc<T>)> {
    match is {
        NumberIs::Id => r.get(n).map(|t| (0, t)),
        NumberIs::Place => r.at(n).map(|(id, t)| (id as usize, t)),
    }
}

/// The `ipc_perm` part of IPC_SET's argument, for who `may` set it.
fn perm_arg(cx: &Context, va: Va, may: impl FnOnce() -> Result<()>) -> Result<[u8; Perm::SIZE]> {
    let mut raw = [0; Perm::SIZE];
    cx.mm().copy_in(va, &mut raw)?;
    may()?;
    let ns = &cx.cred().user_ns;
    let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    let (uid, gid) = (ns.uid_from(word(4))?, ns.gid_from(word(8))?);
    raw[4..8].copy_from_slice(&uid.to_le_bytes());
    raw[8..12].copy_from_slice(&gid.to_le_bytes());
    Ok(raw)
}

/// `shmget(key, size, flags)`.
fn shmget(cx: &mut Context, key: i32, size: u64, flags: ShmGetFlags) -> SysResult {
    let cred = cx.cred();
    let make = |id, perm| {
        if !(1..=ns(cx).limits.get(Limit::ShmMax)).contains(&size) {
            return Err(EINVAL);
        }
        if flags.contains(ShmGetFlags::SHM_HUGETLB) {
            return Err(ENOMEM);
        }
        let name = format!("SYSV{key:08x}");
        let file = cx.kernel.shm.file(name.as_bytes(), size, &cred)?;
        Shm::new(&ns(cx), id, perm, size, file, cx.group.tgid)
    };
    ns(cx)
        .shm
        .get_or_make(key, flags.bits(), &cred, |s| s.fits(size), make)
        .map(|id| id as usize)
}

/// `shmat(id, addr, flags)`.
fn shmat(cx: &mut Context, id: i32, addr: Va, flags: ShmAtFlags) -> SysResult {
    let remap = flags.contains(ShmAtFlags::SHM_REMAP);
    let mut addr = addr.0;
    let mut map = MAP_SHARED;
    if !addr.is_multiple_of(PAGE_SIZE) {
        if !flags.contains(ShmAtFlags::SHM_RND) {
            return Err(EINVAL);
        }
        addr -= addr % PAGE_SIZE;
        if addr == 0 && remap {
            return Err(EINVAL);
        }
    }
    if addr != 0 {
        map |= if remap {
            MAP_FIXED
        } else {
            MAP_FIXED_NOREPLACE
        };
    } else if remap {
        return Err(EINVAL);
    }
    let shm = ns(cx).shm.get(id)?;
    let attachment = shm.attach(&cx.cred(), flags.bits(), cx.group.tgid)?;
    let write = !flags.contains(ShmAtFlags::SHM_RDONLY);
    let exec = flags.contains(ShmAtFlags::SHM_EXEC);
    let prot = PROT_READ | if write { PROT_WRITE } else { 0 } | if exec { PROT_EXEC } else { 0 };
    let file = MapFile {
        keep: Some(attachment),
        writable: write,
        noexec: false,
        ..map_file(&shm.file, &cx.fs().root())?
    };
    let len = shm.size.checked_next_multiple_of(PAGE_SIZE).ok_or(ENOMEM)?;
    let req = MmapRequest {
        addr: Va(addr),
        len,
        prot,
        flags: map,
        offset: 0,
        file: Some(file),
    };
    // A place that is taken is another error than for mmap(2).
    cx.mm()
        .mmap(req)
        .map(|va| va.0 as usize)
        .map_err(|e| if e == EEXIST { EINVAL } else { e })
}

/// `shmdt(addr)`: undoes all that is left of the mapping that began there.
fn shmdt(cx: &mut Context, addr: Va) -> SysResult {
    let addr = addr.0;
    if !addr.is_multiple_of(PAGE_SIZE) {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let mut found: Option<Arc<Attachment>> = None;
    let mut at = addr;
    while let Some(v) = mm.find_vma(Va(at)) {
        at = v.end;
        let of = v.open_file().and_then(|f| f.downcast::<Attachment>().ok());
        let in_place = v.start >= addr && v.start - addr == v.offset;
        match (&found, of) {
            (None, Some(f)) if in_place => {
                mm.munmap(Va(v.start), v.end - v.start)?;
                found = Some(f);
            }
            (Some(x), Some(f)) if in_place && Arc::ptr_eq(&x.shm, &f.shm) => {
                mm.munmap(Va(v.start), v.end - v.start)?;
            }
            _ => {}
        }
        let size = found.as_ref().map_or(u64::MAX, |f| f.shm.size);
        if at.saturating_sub(addr) >= size {
            break;
        }
    }
    found.ok_or(EINVAL)?.shm.detached_by(cx.group.tgid);
    Ok(0)
}

/// How many mappings of a segment there are, in all processes.
fn attached(cx: &Context, shm: &Arc<Shm>) -> u64 {
    if !shm.is_attached() {
        return 0;
    }
    let all = crate::fs::proc::attached(&cx.kernel);
    all.get(&Arc::as_ptr(shm)).copied().unwrap_or(0)
}

/// `shmctl(id, cmd, buf)`.
fn shmctl(cx: &mut Context, id: i32, cmd: ShmCtl, buf: Va) -> SysResult {
    let (mm, cred) = (cx.mm(), cx.cred());
    if id < 0 {
        return Err(EINVAL);
    }
    match cmd {
        ShmCtl::IPC_INFO => {
            let ns = ns(cx);
            let [max, most, all] =
                [Limit::ShmMax, Limit::ShmMni, Limit::ShmAll].map(|l| ns.limits.get(l));
            mm.write_obj(buf, &[max, 1, most, most, all, 0, 0, 0, 0])?;
            Ok(ns.shm.highest())
        }
        ShmCtl::SHM_INFO => {
            let all = ns(cx).shm.all();
            let pages: u64 = all.iter().map(|s| s.size.div_ceil(PAGE_SIZE)).sum();
            mm.write_obj(buf, &[all.len() as u64, pages, 0, 0, 0, 0])?;
            Ok(ns(cx).shm.highest())
        }
        ShmCtl::IPC_STAT | ShmCtl::SHM_STAT | ShmCtl::SHM_STAT_ANY => {
            let number = match cmd {
                ShmCtl::IPC_STAT => NumberIs::Id,
                _ => NumberIs::Place,
            };
            let (r, s) = stat_of(&ns(cx).shm, id, number)?;
            if cmd != ShmCtl::SHM_STAT_ANY {
                s.perm(|p| p.check(&cred, READ))?;
            }
            let bytes = with_numbers(cx, s.encode(attached(cx, &s)), &[80, 84]);
            mm.copy_out(buf, &bytes)?;
            Ok(r)
        }
        ShmCtl::IPC_SET => {
            let may = || ns(cx).shm.get(id)?.perm(|p| p.check_owner(&cred));
            let raw = perm_arg(cx, buf, may)?;
            ns(cx).shm.get(id)?.set(&cred, &raw).map(|()| 0)
        }
        ShmCtl::IPC_RMID => ns(cx).shm.get(id)?.remove(&cred).map(|()| 0),
        ShmCtl::SHM_LOCK => ns(cx)
            .shm
            .get(id)?
            .set_locked(&cred, Locked::Yes)
            .map(|()| 0),
        ShmCtl::SHM_UNLOCK => ns(cx)
            .shm
            .get(id)?
            .set_locked(&cred, Locked::No)
            .map(|()| 0),
        _ => Err(EINVAL),
    }
}

/// `semget(key, nsems, flags)`.
fn semget(cx: &mut Context, key: i32, count: i32, flags: IpcGetFlags) -> SysResult {
    let count = usize::try_from(count)
        .ok()
        .filter(|n| *n <= ns(cx).limits.bounded(Limit::SemMsl))
        .ok_or(EINVAL)?;
    let fits = |s: &SemSet| if count > s.len() { Err(EINVAL) } else { Ok(()) };
    let cred = cx.cred();
    let make = |id, perm| {
        if count == 0 {
            return Err(EINVAL);
        }
        SemSet::new(&ns(cx), id, perm, count, &cred)
    };
    ns(cx)
        .sem
        .get_or_make(key, flags.bits(), &cx.cred(), fits, make)
        .map(|id| id as usize)
}

fn do_semop(
    cx: &Context,
    id: i32,
    ops: UserArray<SemOp>,
    count: u32,
    timeout: Option<i64>,
) -> SysResult {
    let count = count as usize;
    if count < 1 || id < 0 {
        return Err(EINVAL);
    }
    if count > ns(cx).limits.bounded(Limit::SemOpm) {
        return Err(E2BIG);
    }
    let at = ops.va();
    let mut ops = vec![SemOp::default(); count];
    cx.mm().copy_in(at, ops.as_mut_slice().as_mut_bytes())?;
    let set = ns(cx).sem.get(id)?;
    let deadline = timeout.and_then(|n| deadline_after(std::time::Duration::from_nanos(n as u64)));
    set.operate(&*cx.task, &cx.cred(), cx.group.tgid, &ops, deadline)
        .map(|()| 0)
}
/// `semop(id, ops, count)`.
fn semop(cx: &mut Context, id: i32, ops: UserArray<SemOp>, count: u32) -> SysResult {
    do_semop(cx, id, ops, count, None)
}
/// `semtimedop(id, ops, count, timeout)`.
fn semtimedop(
    cx: &mut Context,
    id: i32,
    ops: UserArray<SemOp>,
    count: u32,
    timeout: Option<UserIn<Timespec>>,
) -> SysResult {
    let timeout = timespec_arg(cx, timeout)?;
    do_semop(cx, id, ops, count, timeout)
}

/// `semctl(id, num, cmd, arg)`.
fn semctl(cx: &mut Context, id: i32, num: i32, cmd: SemCtl, arg: Va) -> SysResult {
    let (mm, cred, pid) = (cx.mm(), cx.cred(), cx.group.tgid);
    if id < 0 {
        return Err(EINVAL);
    }
    match cmd {
        SemCtl::IPC_INFO | SemCtl::SEM_INFO => {
            let all = ns(cx).sem.all();
            let sems: usize = all.iter().map(|s| s.len()).sum();
            let limits = &ns(cx).limits;
            let [each, most, ops, sets] = Limit::OF_SEM.map(|l| limits.get(l) as i32);
            let (used, total) = if cmd == SemCtl::SEM_INFO {
                (all.len() as i32, sems as i32)
            } else {
                (20, SEMVMX)
            };
            // Of maps, of undo structures, of undo entries: Linux keeps none, and tells these.
            let (map, undo, entries) = (SEMMNS, SEMMNS, SEMOPM as i32);
            mm.write_obj(
                arg,
                &[
                    map, sets, most, undo, each, ops, entries, used, SEMVMX, total,
                ],
            )?;
            Ok(ns(cx).sem.highest())
        }
        SemCtl::IPC_STAT | SemCtl::SEM_STAT | SemCtl::SEM_STAT_ANY => {
            let number = match cmd {
                SemCtl::IPC_STAT => NumberIs::Id,
                _ => NumberIs::Place,
            };
            let (r, s) = stat_of(&ns(cx).sem, id, number)?;
            if cmd != SemCtl::SEM_STAT_ANY {
                s.perm(|p| p.check(&cred, READ))?;
            }
            mm.copy_out(arg, &with_numbers(cx, s.encode(), &[]))?;
            Ok(r)
        }
        SemCtl::GETPID => {
            let id = ns(cx).sem.get(id)?.get(&cred, num, cmd.0)?;
            Ok(cx.number_of(id as i32) as usize)
        }
        SemCtl::GETVAL | SemCtl::GETNCNT | SemCtl::GETZCNT => {
            ns(cx).sem.get(id)?.get(&cred, num, cmd.0)
        }
        SemCtl::GETALL => {
            let values = ns(cx).sem.get(id)?.get_all(&cred)?;
            mm.copy_out(arg, values.as_slice().as_bytes())?;
            Ok(0)
        }
        SemCtl::SETVAL => ns(cx)
            .sem
            .get(id)?
            .set_value(&cred, num, arg.0 as i32, pid)
            .map(|()| 0),
        SemCtl::SETALL => {
            let s = ns(cx).sem.get(id)?;
            let mut values = vec![0u16; s.len()];
            mm.copy_in(arg, values.as_mut_slice().as_mut_bytes())?;
            s.set_all(&cred, &values, pid).map(|()| 0)
        }
        SemCtl::IPC_SET => {
            let may = || ns(cx).sem.get(id)?.perm(|p| p.check_owner(&cred));
            let raw = perm_arg(cx, arg, may)?;
            ns(cx).sem.get(id)?.set(&cred, &raw).map(|()| 0)
        }
        SemCtl::IPC_RMID => ns(cx).sem.get(id)?.remove(&cred).map(|()| 0),
        _ => Err(EINVAL),
    }
}

/// `msgget(key, flags)`.
fn msgget(cx: &mut Context, key: i32, flags: IpcGetFlags) -> SysResult {
    let cred = cx.cred();
    let make = |id, perm| MsgQueue::new(&ns(cx), id, perm, &cred);
    ns(cx)
        .msg
        .get_or_make(key, flags.bits(), &cx.cred(), |_| Ok(()), make)
        .map(|id| id as usize)
}

/// `msgsnd(id, msg, size, flags)`.
fn msgsnd(cx: &mut Context, id: i32, msg: Va, size: usize, flags: MessageFlags) -> SysResult {
    let mm = cx.mm();
    let kind: i64 = mm.read_obj(msg)?;
    if size > ns(cx).limits.bounded(Limit::MsgMax) || id < 0 || kind < 1 {
        return Err(EINVAL);
    }
    // The sender's, as long as the queue has no room for it.
    let _charge = cx.cred().kmem(size, ENOMEM)?;
    let mut data = vec![0; size];
    mm.copy_in(msg.offset(8), &mut data)?;
    let q = ns(cx).msg.get(id)?;
    let msg = Msg { kind, data };
    q.send(&*cx.task, &cx.cred(), cx.group.tgid, msg, flags.bits())
        .map(|()| 0)
}

/// `msgrcv(id, msg, size, type, flags)`.
fn msgrcv(
    cx: &mut Context,
    id: i32,
    msg: Va,
    size: usize,
    kind: i64,
    flags: MessageFlags,
) -> SysResult {
    if id < 0 || (size as i64) < 0 {
        return Err(EINVAL);
    }
    if flags.contains(MessageFlags::MSG_COPY)
        && (flags.contains(MessageFlags::MSG_EXCEPT) || !flags.contains(MessageFlags::IPC_NOWAIT))
    {
        return Err(EINVAL);
    }
    let q = ns(cx).msg.get(id)?;
    let flags = flags.bits();
    let want = Want::new(kind, flags);
    let m = q.receive(&*cx.task, &cx.cred(), cx.group.tgid, size, want, flags)?;
    let mm = cx.mm();
    mm.write_obj(msg, &m.kind)?;
    mm.copy_out(msg.offset(8), &m.data)?;
    Ok(m.data.len())
}

/// `msgctl(id, cmd, buf)`.
fn msgctl(cx: &mut Context, id: i32, cmd: MsgCtl, buf: Va) -> SysResult {
    /// Where `msg_qbytes` is in `struct msqid64_ds`.
    const QBYTES: u64 = 88;
    let (mm, cred) = (cx.mm(), cx.cred());
    if id < 0 {
        return Err(EINVAL);
    }
    match cmd {
        MsgCtl::IPC_INFO | MsgCtl::MSG_INFO => {
            let limits = &ns(cx).limits;
            let [longest, max, queues] =
                [Limit::MsgMax, Limit::MsgMnb, Limit::MsgMni].map(|l| limits.get(l) as i32);
            let (pool, map, tql) = if cmd == MsgCtl::MSG_INFO {
                let all = ns(cx).msg.all();
                let used = all
                    .iter()
                    .map(|q| q.usage())
                    .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
                (all.len() as i32, used.0 as i32, used.1 as i32)
            } else {
                (MSGPOOL, MSGMNB as i32, MSGMNB as i32)
            };
            mm.write_obj(buf, &[pool, map, longest, max, queues, 16, tql, 0xffff])?;
            Ok(ns(cx).msg.highest())
        }
        MsgCtl::IPC_STAT | MsgCtl::MSG_STAT | MsgCtl::MSG_STAT_ANY => {
            let number = match cmd {
                MsgCtl::IPC_STAT => NumberIs::Id,
                _ => NumberIs::Place,
            };
            let (r, q) = stat_of(&ns(cx).msg, id, number)?;
            if cmd != MsgCtl::MSG_STAT_ANY {
                q.perm(|p| p.check(&cred, READ))?;
            }
            mm.copy_out(buf, &with_numbers(cx, q.encode(), &[96, 100]))?;
            Ok(r)
        }
        MsgCtl::IPC_SET => {
            let may = || ns(cx).msg.get(id)?.perm(|p| p.check_owner(&cred));
            let raw = perm_arg(cx, buf, may)?;
            let max: u64 = mm.read_obj(buf.offset(QBYTES))?;
            ns(cx).msg.get(id)?.set(&cred, &raw, max).map(|()| 0)
        }
        MsgCtl::IPC_RMID => ns(cx).msg.get(id)?.remove(&cred).map(|()| 0),
        _ => Err(EINVAL),
    }
}

calls! {
    shmget: "no huge pages",
    shmat,
    shmctl: "SHM_LOCK pins nothing",
    semget,
    semop,
    semctl,
    shmdt,
    msgget,
    msgsnd,
    msgrcv,
    msgctl,
    semtimedop,
}
