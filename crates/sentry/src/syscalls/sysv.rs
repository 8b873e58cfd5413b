//! System V IPC: the objects are in `ipc::sysv`; the application's structures and its mappings are here.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use crate::task::exec::map_file;
use abi::errno::*;
use abi::linux::{MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_SHARED};
use abi::{PAGE_SIZE, Result, Va};
use ipc::sysv::msg::{
    self, MSG_COPY, MSG_EXCEPT, MSG_INFO, MSG_STAT, MSG_STAT_ANY, MSGMAX, MSGMNB, Msg, MsgQueue,
    Want,
};
use ipc::sysv::sem::{
    GETALL, GETNCNT, GETPID, GETVAL, GETZCNT, SEM_INFO, SEM_STAT, SEM_STAT_ANY, SEMMSL, SEMOPM,
    SEMVMX, SETALL, SETVAL, SemOp, SemSet,
};
use ipc::sysv::shm::{
    Attachment, SHM_EXEC, SHM_HUGETLB, SHM_INFO, SHM_LOCK, SHM_RDONLY, SHM_REMAP, SHM_RND,
    SHM_STAT, SHM_STAT_ANY, SHM_UNLOCK, SHMALL, SHMMAX, Shm,
};
use ipc::sysv::{
    IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, IpcNamespace, MAX_OBJECTS, Object, Perm,
    READ, Registry,
};
use mm::{MapFile, MmapRequest};
use std::sync::Arc;
use wait::deadline_after;
use zerocopy::IntoBytes;

fn ns(cx: &Context) -> Arc<IpcNamespace> {
    Arc::clone(&cx.ns().ipc)
}

/// Makes the ids in an encoded structure the caller's numbers: the owners', and the processes' at these places.
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

/// What the `*_STAT` commands find: by identifier, or by place in the table, which gives the identifier.
fn stat_of<T: Object>(r: &Registry<T>, id: i32, by_index: bool) -> Result<(usize, Arc<T>)> {
    if by_index {
        r.at(id).map(|(id, t)| (id as usize, t))
    } else {
        r.get(id).map(|t| (0, t))
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
fn shmget(cx: &mut Context, a: &Args) -> SysResult {
    let (key, size, flags) = (a.i32(0), a.u64(1), a.u32(2));
    let cred = cx.cred();
    let make = |id, perm| {
        if !(1..=SHMMAX).contains(&size) {
            return Err(EINVAL);
        }
        if flags & SHM_HUGETLB != 0 {
            return Err(ENOMEM);
        }
        let name = format!("SYSV{key:08x}");
        let file = cx.kernel.shm.file(name.as_bytes(), size, &cred)?;
        Ok(Shm::new(&ns(cx), id, perm, size, file, cx.group.tgid))
    };
    ns(cx)
        .shm
        .get_or_make(key, flags, &cred, |s| s.fits(size), make)
        .map(|id| id as usize)
}

/// `shmat(id, addr, flags)`.
fn shmat(cx: &mut Context, a: &Args) -> SysResult {
    let (id, flags) = (a.i32(0), a.u32(2));
    let mut addr = a.u64(1);
    let mut map = MAP_SHARED;
    if !addr.is_multiple_of(PAGE_SIZE) {
        if flags & SHM_RND == 0 {
            return Err(EINVAL);
        }
        addr -= addr % PAGE_SIZE;
        if addr == 0 && flags & SHM_REMAP != 0 {
            return Err(EINVAL);
        }
    }
    if addr != 0 {
        map |= if flags & SHM_REMAP != 0 {
            MAP_FIXED
        } else {
            MAP_FIXED_NOREPLACE
        };
    } else if flags & SHM_REMAP != 0 {
        return Err(EINVAL);
    }
    let shm = ns(cx).shm.get(id)?;
    let attachment = shm.attach(&cx.cred(), flags, cx.group.tgid)?;
    let write = flags & SHM_RDONLY == 0;
    let prot = 1 | if write { 2 } else { 0 } | if flags & SHM_EXEC != 0 { 4 } else { 0 };
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
fn shmdt(cx: &mut Context, a: &Args) -> SysResult {
    let addr = a.u64(0);
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
    let mut spaces: Vec<Arc<mm::Mm>> = Vec::new();
    let threads: Vec<_> = {
        let l = cx.kernel.tasks.lock();
        l.processes()
            .filter_map(|p| l.some_thread(p.group.tgid))
            .collect()
    };
    for t in threads {
        let mm = t.mm();
        if !spaces.iter().any(|m| m.id() == mm.id()) {
            spaces.push(mm);
        }
    }
    let mut n = 0;
    for m in spaces {
        m.for_each_vma(|v| {
            let f = v.open_file().and_then(|f| f.downcast::<Attachment>().ok());
            n += u64::from(f.is_some_and(|f| Arc::ptr_eq(&f.shm, shm)));
        });
    }
    n
}

/// `shmctl(id, cmd, buf)`.
fn shmctl(cx: &mut Context, a: &Args) -> SysResult {
    let (id, cmd, buf) = (a.i32(0), a.u32(1), a.va(2));
    let (mm, cred) = (cx.mm(), cx.cred());
    if id < 0 {
        return Err(EINVAL);
    }
    match cmd {
        IPC_INFO => {
            let n = MAX_OBJECTS as u64;
            mm.write_obj(buf, &[SHMMAX, 1, n, n, SHMALL, 0, 0, 0, 0])?;
            Ok(ns(cx).shm.highest())
        }
        SHM_INFO => {
            let all = ns(cx).shm.all();
            let pages: u64 = all.iter().map(|s| s.size.div_ceil(PAGE_SIZE)).sum();
            mm.write_obj(buf, &[all.len() as u64, pages, 0, 0, 0, 0])?;
            Ok(ns(cx).shm.highest())
        }
        IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
            let (r, s) = stat_of(&ns(cx).shm, id, cmd != IPC_STAT)?;
            if cmd != SHM_STAT_ANY {
                s.perm(|p| p.check(&cred, READ))?;
            }
            let bytes = with_numbers(cx, s.encode(attached(cx, &s)), &[80, 84]);
            mm.copy_out(buf, &bytes)?;
            Ok(r)
        }
        IPC_SET => {
            let may = || ns(cx).shm.get(id)?.perm(|p| p.check_owner(&cred));
            let raw = perm_arg(cx, buf, may)?;
            ns(cx).shm.get(id)?.set(&cred, &raw).map(|()| 0)
        }
        IPC_RMID => ns(cx).shm.get(id)?.remove(&cred).map(|()| 0),
        SHM_LOCK | SHM_UNLOCK => ns(cx).shm.get(id)?.lock(&cred, cmd == SHM_LOCK).map(|()| 0),
        _ => Err(EINVAL),
    }
}

/// `semget(key, nsems, flags)`.
fn semget(cx: &mut Context, a: &Args) -> SysResult {
    let count = usize::try_from(a.i32(1))
        .ok()
        .filter(|n| *n <= SEMMSL)
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
        .get_or_make(a.i32(0), a.u32(2), &cx.cred(), fits, make)
        .map(|id| id as usize)
}

fn do_semop(cx: &Context, a: &Args, timeout: Option<i64>) -> SysResult {
    let count = a.u32(2) as usize;
    if count < 1 || a.i32(0) < 0 {
        return Err(EINVAL);
    }
    if count > SEMOPM {
        return Err(E2BIG);
    }
    let mut ops = vec![SemOp::default(); count];
    cx.mm()
        .copy_in(a.va(1), ops.as_mut_slice().as_mut_bytes())?;
    let set = ns(cx).sem.get(a.i32(0))?;
    let deadline = timeout.and_then(|n| deadline_after(std::time::Duration::from_nanos(n as u64)));
    set.operate(&*cx.task, &cx.cred(), cx.group.tgid, &ops, deadline)
        .map(|()| 0)
}
/// `semop(id, ops, count)`.
fn semop(cx: &mut Context, a: &Args) -> SysResult {
    do_semop(cx, a, None)
}
/// `semtimedop(id, ops, count, timeout)`.
fn semtimedop(cx: &mut Context, a: &Args) -> SysResult {
    let timeout = super::time::timespec_arg(cx, a.va_opt(3))?;
    do_semop(cx, a, timeout)
}

/// `semctl(id, num, cmd, arg)`.
fn semctl(cx: &mut Context, a: &Args) -> SysResult {
    let (id, num, cmd, arg) = (a.i32(0), a.i32(1), a.u32(2), a.va(3));
    let (mm, cred, pid) = (cx.mm(), cx.cred(), cx.group.tgid);
    if id < 0 {
        return Err(EINVAL);
    }
    match cmd {
        IPC_INFO | SEM_INFO => {
            let all = ns(cx).sem.all();
            let sems: usize = all.iter().map(|s| s.len()).sum();
            let most = (MAX_OBJECTS * SEMMSL) as i32;
            let (used, total) = if cmd == SEM_INFO {
                (all.len() as i32, sems as i32)
            } else {
                (20, SEMVMX)
            };
            let (sets, each, ops) = (MAX_OBJECTS as i32, SEMMSL as i32, SEMOPM as i32);
            mm.write_obj(
                arg,
                &[most, sets, most, most, each, ops, ops, used, SEMVMX, total],
            )?;
            Ok(ns(cx).sem.highest())
        }
        IPC_STAT | SEM_STAT | SEM_STAT_ANY => {
            let (r, s) = stat_of(&ns(cx).sem, id, cmd != IPC_STAT)?;
            if cmd != SEM_STAT_ANY {
                s.perm(|p| p.check(&cred, READ))?;
            }
            mm.copy_out(arg, &with_numbers(cx, s.encode(), &[]))?;
            Ok(r)
        }
        GETPID => {
            let id = ns(cx).sem.get(id)?.get(&cred, num, cmd)?;
            Ok(cx.number_of(id as i32) as usize)
        }
        GETVAL | GETNCNT | GETZCNT => ns(cx).sem.get(id)?.get(&cred, num, cmd),
        GETALL => {
            let values = ns(cx).sem.get(id)?.get_all(&cred)?;
            mm.copy_out(arg, values.as_slice().as_bytes())?;
            Ok(0)
        }
        SETVAL => ns(cx)
            .sem
            .get(id)?
            .set_value(&cred, num, arg.0 as i32, pid)
            .map(|()| 0),
        SETALL => {
            let s = ns(cx).sem.get(id)?;
            let mut values = vec![0u16; s.len()];
            mm.copy_in(arg, values.as_mut_slice().as_mut_bytes())?;
            s.set_all(&cred, &values, pid).map(|()| 0)
        }
        IPC_SET => {
            let may = || ns(cx).sem.get(id)?.perm(|p| p.check_owner(&cred));
            let raw = perm_arg(cx, arg, may)?;
            ns(cx).sem.get(id)?.set(&cred, &raw).map(|()| 0)
        }
        IPC_RMID => ns(cx).sem.get(id)?.remove(&cred).map(|()| 0),
        _ => Err(EINVAL),
    }
}

/// `msgget(key, flags)`.
fn msgget(cx: &mut Context, a: &Args) -> SysResult {
    let cred = cx.cred();
    let make = |id, perm| MsgQueue::new(&ns(cx), id, perm, &cred);
    ns(cx)
        .msg
        .get_or_make(a.i32(0), a.u32(1), &cx.cred(), |_| Ok(()), make)
        .map(|id| id as usize)
}

/// `msgsnd(id, msg, size, flags)`.
fn msgsnd(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let kind: i64 = mm.read_obj(a.va(1))?;
    if a.u64(2) > MSGMAX as u64 || a.i32(0) < 0 || kind < 1 {
        return Err(EINVAL);
    }
    let mut data = vec![0; a.usize(2)];
    mm.copy_in(a.va(1).offset(8), &mut data)?;
    let q = ns(cx).msg.get(a.i32(0))?;
    let msg = Msg { kind, data };
    q.send(&*cx.task, &cx.cred(), cx.group.tgid, msg, a.u32(3))
        .map(|()| 0)
}

/// `msgrcv(id, msg, size, type, flags)`.
fn msgrcv(cx: &mut Context, a: &Args) -> SysResult {
    let (id, flags) = (a.i32(0), a.u32(4));
    if id < 0 || a.i64(2) < 0 {
        return Err(EINVAL);
    }
    if flags & MSG_COPY != 0 && (flags & MSG_EXCEPT != 0 || flags & IPC_NOWAIT == 0) {
        return Err(EINVAL);
    }
    let q = ns(cx).msg.get(id)?;
    let want = Want::new(a.i64(3), flags);
    let m = q.receive(
        &*cx.task,
        &cx.cred(),
        cx.group.tgid,
        a.usize(2),
        want,
        flags,
    )?;
    let mm = cx.mm();
    mm.write_obj(a.va(1), &m.kind)?;
    mm.copy_out(a.va(1).offset(8), &m.data)?;
    Ok(m.data.len())
}

/// `msgctl(id, cmd, buf)`.
fn msgctl(cx: &mut Context, a: &Args) -> SysResult {
    /// Where `msg_qbytes` is in `struct msqid64_ds`.
    const QBYTES: u64 = 88;
    let (id, cmd, buf) = (a.i32(0), a.u32(1), a.va(2));
    let (mm, cred) = (cx.mm(), cx.cred());
    if id < 0 {
        return Err(EINVAL);
    }
    match cmd {
        IPC_INFO | MSG_INFO => {
            let (max, queues) = (MSGMNB as i32, MAX_OBJECTS as i32);
            let (pool, map, tql) = if cmd == MSG_INFO {
                let all = ns(cx).msg.all();
                let used = all
                    .iter()
                    .map(|q| q.usage())
                    .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
                (all.len() as i32, used.0 as i32, used.1 as i32)
            } else {
                ((MAX_OBJECTS * MSGMNB / 1024) as i32, max, max)
            };
            mm.write_obj(
                buf,
                &[pool, map, msg::MSGMAX as i32, max, queues, 16, tql, 0xffff],
            )?;
            Ok(ns(cx).msg.highest())
        }
        IPC_STAT | MSG_STAT | MSG_STAT_ANY => {
            let (r, q) = stat_of(&ns(cx).msg, id, cmd != IPC_STAT)?;
            if cmd != MSG_STAT_ANY {
                q.perm(|p| p.check(&cred, READ))?;
            }
            mm.copy_out(buf, &with_numbers(cx, q.encode(), &[96, 100]))?;
            Ok(r)
        }
        IPC_SET => {
            let may = || ns(cx).msg.get(id)?.perm(|p| p.check_owner(&cred));
            let raw = perm_arg(cx, buf, may)?;
            let max: u64 = mm.read_obj(buf.offset(QBYTES))?;
            ns(cx).msg.get(id)?.set(&cred, &raw, max).map(|()| 0)
        }
        IPC_RMID => ns(cx).msg.get(id)?.remove(&cred).map(|()| 0),
        _ => Err(EINVAL),
    }
}

const GET: &[(u64, &str)] = &[
    (0o1000, "IPC_CREAT"),
    (0o2000, "IPC_EXCL"),
    (0o4000, "SHM_HUGETLB"),
];
const AT: &[(u64, &str)] = &[
    (0o10000, "SHM_RDONLY"),
    (0o20000, "SHM_RND"),
    (0o40000, "SHM_REMAP"),
    (0o100_000, "SHM_EXEC"),
];
const MESSAGE: &[(u64, &str)] = &[
    (0o4000, "IPC_NOWAIT"),
    (0o10000, "MSG_NOERROR"),
    (0o20000, "MSG_EXCEPT"),
    (0o40000, "MSG_COPY"),
];
const CTL: &[(u64, &str)] = &[
    (0, "IPC_RMID"),
    (1, "IPC_SET"),
    (2, "IPC_STAT"),
    (3, "IPC_INFO"),
];
const SEMCTL: &[(u64, &str)] = &[
    (0, "IPC_RMID"),
    (1, "IPC_SET"),
    (2, "IPC_STAT"),
    (3, "IPC_INFO"),
    (11, "GETPID"),
    (12, "GETVAL"),
    (13, "GETALL"),
    (14, "GETNCNT"),
    (15, "GETZCNT"),
    (16, "SETVAL"),
    (17, "SETALL"),
];

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(
        29,
        "shmget",
        &[Arg::Hex, Arg::Uint, Arg::Flags(GET)],
        shmget,
    )
    .note("no huge pages"),
    Call::new(30, "shmat", &[Arg::Int, Arg::Ptr, Arg::Flags(AT)], shmat),
    Call::new(31, "shmctl", &[Arg::Int, Arg::Enum(CTL), Arg::Ptr], shmctl)
        .note("SHM_LOCK pins nothing"),
    Call::new(64, "semget", &[Arg::Hex, Arg::Int, Arg::Flags(GET)], semget),
    Call::new(65, "semop", &[Arg::Int, Arg::Ptr, Arg::Uint], semop),
    Call::new(
        66,
        "semctl",
        &[Arg::Int, Arg::Int, Arg::Enum(SEMCTL), Arg::Hex],
        semctl,
    ),
    Call::new(67, "shmdt", &[Arg::Ptr], shmdt),
    Call::new(68, "msgget", &[Arg::Hex, Arg::Flags(GET)], msgget),
    Call::new(
        69,
        "msgsnd",
        &[Arg::Int, Arg::Ptr, Arg::Uint, Arg::Flags(MESSAGE)],
        msgsnd,
    ),
    Call::new(
        70,
        "msgrcv",
        &[Arg::Int, Arg::Ptr, Arg::Uint, Arg::Int, Arg::Flags(MESSAGE)],
        msgrcv,
    ),
    Call::new(71, "msgctl", &[Arg::Int, Arg::Enum(CTL), Arg::Ptr], msgctl),
    Call::new(
        220,
        "semtimedop",
        &[Arg::Int, Arg::Ptr, Arg::Uint, Arg::Timespec],
        semtimedop,
    ),
];
