//! Descriptors: installing, closing, duplicating, fcntl; files that only descriptors reach (memfd).

use super::SysResult;
use super::args::*;
use super::locks::{LockCmd, LockOwner, LockWhat, fcntl_lock};
use crate::task::{Context, sigio};
use abi::errno::*;
use abi::linux::{F_RDLCK, F_UNLCK, F_WRLCK, FD_CLOEXEC, O_NOATIME, O_NONBLOCK, O_PATH};
use abi::{Result, Va};
use std::sync::Arc;
use vfs::FileFlags;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, FileOps, O_APPEND, O_ASYNC};
use vfs::fs::tmpfs;
use vfs::leases::Asker;
use vfs::locks::LockKind;
use vfs::ops::Wait;
use vfs::sigio::OwnerKind;
use vfs::watch::dnotify::DnotifyMask;

flags! {
    /// Of close_range(2).
    struct CloseRangeFlags: u32, refused {
        CLOSE_RANGE_UNSHARE = 1 << 1,
        CLOSE_RANGE_CLOEXEC = 1 << 2,
    }
}

flags! {
    /// Of memfd_create(2); tmpfs checks them.
    struct MemfdFlags: u32, kept {
        MFD_CLOEXEC,
        MFD_ALLOW_SEALING,
        MFD_HUGETLB,
        MFD_NOEXEC_SEAL,
        MFD_EXEC,
    }
}

/// Installs an anonymous file; O_NONBLOCK and O_CLOEXEC are taken from `flags`.
pub fn install(cx: &Context, ops: Arc<dyn FileOps>, mode: u32, flags: u32) -> SysResult {
    let f = File::new(ops, mode | (flags & O_NONBLOCK), None, cx.cred());
    cx.files()
        .install(f, CloseOnExec::from_flags(flags), &cx.room())
        .map(|n| n as usize)
}

/// Writes two descriptors' numbers to the application, and installs the files when that worked.
pub fn install_pair(
    cx: &Context,
    out: UserOut<[i32; 2]>,
    files: [Arc<File>; 2],
    flags: u32,
) -> SysResult {
    files.iter().try_for_each(|f| f.may_stay())?;
    let (table, limit) = (cx.files(), &cx.room());
    let (a, b) = (table.reserve(limit)?, table.reserve(limit)?);
    out.write(&cx.mm(), &[a.number(), b.number()])?;
    let [x, y] = files;
    let c = CloseOnExec::from_flags(flags);
    a.install(x, c);
    b.install(y, c);
    Ok(0)
}

/// Lets go of a file that was closed. Where that was its last reference, SO_LINGER may have its
/// closer wait; a signal ends that, and nobody is told (`tcp_close`).
pub(super) fn let_go(cx: &Context, file: Arc<File>) {
    let Some(l) = file.ops::<net::Socket>().and_then(net::Socket::lingering) else {
        return;
    };
    let left = Arc::downgrade(&file);
    drop(file);
    if left.strong_count() > 0 {
        return;
    }
    let deadline = wait::deadline_after(l.time());
    let _ = cx.task.block(&[l.queue()], deadline, || l.is_over());
}

fn close(cx: &mut Context, fd: Fd) -> SysResult {
    let (file, r) = cx.files().take(fd.0)?;
    let_go(cx, file);
    r.map(|()| 0)
}

/// `close_range(first, last, flags)`.
fn close_range(cx: &mut Context, first: u32, last: u32, flags: CloseRangeFlags) -> SysResult {
    if first > last {
        return Err(EINVAL);
    }
    if flags.contains(CloseRangeFlags::CLOSE_RANGE_UNSHARE) {
        crate::task::lanes::slots::end_read_slots(&cx.mm());
        let own = cx.files().fork(&cx.cred())?;
        cx.task.set_files(own);
    }
    if flags.contains(CloseRangeFlags::CLOSE_RANGE_CLOEXEC) {
        cx.files().cloexec_range(first, last);
    } else {
        for f in cx.files().take_range(first, last) {
            let_go(cx, f);
        }
    }
    Ok(0)
}

fn dup(cx: &mut Context, old: Fd) -> SysResult {
    let f = old.any_file(cx)?;
    cx.files()
        .install(f, CloseOnExec::No, &cx.room())
        .map(|n| n as usize)
}
fn dup2(cx: &mut Context, old: Fd, new: Fd) -> SysResult {
    let f = old.any_file(cx)?;
    if old != new {
        replace(cx, new, f, CloseOnExec::No)?;
    }
    Ok(new.0 as usize)
}
fn dup3(cx: &mut Context, old: Fd, new: Fd, flags: CloexecFlag) -> SysResult {
    if old == new {
        return Err(EINVAL);
    }
    let f = old.any_file(cx)?;
    let close = CloseOnExec::from_flags(flags.bits());
    replace(cx, new, f, close)?;
    Ok(new.0 as usize)
}

/// Gives a number to a file, in place of what has it.
fn replace(cx: &Context, new: Fd, f: Arc<File>, close: CloseOnExec) -> Result<()> {
    let before = new.any_file(cx).ok();
    cx.files().install_at(new.0, f, close, &cx.room())?;
    before.into_iter().for_each(|f| let_go(cx, f));
    Ok(())
}

/// Makes a file's owner whom a number means: a process, or negative a process group; 0 nobody
/// (`f_setown`). `ESRCH` for one that is not to be seen.
pub(super) fn set_owner(cx: &Context, f: &Arc<File>, n: i32) -> Result<()> {
    let kind = match n {
        0.. => OwnerKind::Process,
        _ => OwnerKind::Group,
    };
    let number = n.checked_abs().ok_or(EINVAL)?;
    cx.set_owner(f, cx.owner_of(kind, number)?);
    Ok(())
}

/// The other way round; 0 where it is not to be seen.
pub(super) fn owner_number(cx: &Context, f: &File) -> i32 {
    let owner = f.sigio.owner();
    let n = cx.owner_number(&owner);
    match owner.kind {
        OwnerKind::Group => -n,
        OwnerKind::Thread | OwnerKind::Process => n,
    }
}

named! {
    /// fcntl(2)'s command.
    struct FcntlOp(u32) {
        F_DUPFD,
        F_GETFD,
        F_SETFD,
        F_GETFL,
        F_SETFL,
        F_GETLK,
        F_SETLK,
        F_SETLKW,
        F_SETOWN,
        F_GETOWN,
        F_SETSIG,
        F_GETSIG,
        F_SETOWN_EX,
        F_GETOWN_EX,
        F_OFD_GETLK,
        F_OFD_SETLK,
        F_OFD_SETLKW,
        F_SETLEASE,
        F_GETLEASE,
        F_NOTIFY,
        F_DUPFD_QUERY = 1027,
        F_CREATED_QUERY = 1028,
        F_DUPFD_CLOEXEC,
        F_SETPIPE_SZ,
        F_GETPIPE_SZ,
        F_ADD_SEALS,
        F_GET_SEALS,
    }
}

/// What fcntl(2) is to do, with its argument.
#[derive(Clone, Copy)]
enum FcntlCmd {
    Dup {
        from: u64,
        close: CloseOnExec,
    },
    /// Whether this descriptor has the same file open.
    IsSame(Fd),
    /// Whether opening the file made it.
    WasMade,
    GetFd,
    SetFd(CloseOnExec),
    GetFlags,
    SetFlags(u32),
    Lock(LockCmd),
    SetOwner(i32),
    GetOwner,
    SetOwnerEx(UserIn<[i32; 2]>),
    GetOwnerEx(UserOut<[i32; 2]>),
    SetSignal(i32),
    GetSignal,
    SetPipeSize(u32),
    GetPipeSize,
    AddSeals(u32),
    GetSeals,
    SetLease(i32),
    GetLease,
    Notify(u32),
}

impl FcntlCmd {
    /// `EINVAL` for what there is not.
    fn new(op: FcntlOp, arg: u64) -> Result<FcntlCmd> {
        let lock = |owner, what| {
            let at = UserPtr::new(Va(arg));
            FcntlCmd::Lock(LockCmd { owner, what, at })
        };
        Ok(match op {
            FcntlOp::F_DUPFD => FcntlCmd::Dup {
                from: (arg as u32).into(),
                close: CloseOnExec::No,
            },
            FcntlOp::F_DUPFD_CLOEXEC => FcntlCmd::Dup {
                from: (arg as u32).into(),
                close: CloseOnExec::Yes,
            },
            FcntlOp::F_DUPFD_QUERY => FcntlCmd::IsSame(Fd(arg as i32)),
            FcntlOp::F_CREATED_QUERY => FcntlCmd::WasMade,
            FcntlOp::F_GETFD => FcntlCmd::GetFd,
            FcntlOp::F_SETFD => FcntlCmd::SetFd(match arg as u32 & FD_CLOEXEC {
                0 => CloseOnExec::No,
                _ => CloseOnExec::Yes,
            }),
            FcntlOp::F_GETFL => FcntlCmd::GetFlags,
            FcntlOp::F_SETFL => FcntlCmd::SetFlags(arg as u32),
            FcntlOp::F_GETLK => lock(LockOwner::Process, LockWhat::Get),
            FcntlOp::F_SETLK => lock(LockOwner::Process, LockWhat::Set(Wait::No)),
            FcntlOp::F_SETLKW => lock(LockOwner::Process, LockWhat::Set(Wait::Yes)),
            FcntlOp::F_OFD_GETLK => lock(LockOwner::OpenFile, LockWhat::Get),
            FcntlOp::F_OFD_SETLK => lock(LockOwner::OpenFile, LockWhat::Set(Wait::No)),
            FcntlOp::F_OFD_SETLKW => lock(LockOwner::OpenFile, LockWhat::Set(Wait::Yes)),
            FcntlOp::F_SETOWN => FcntlCmd::SetOwner(arg as i32),
            FcntlOp::F_GETOWN => FcntlCmd::GetOwner,
            FcntlOp::F_SETOWN_EX => FcntlCmd::SetOwnerEx(UserIn::new(Va(arg))),
            FcntlOp::F_GETOWN_EX => FcntlCmd::GetOwnerEx(UserOut::new(Va(arg))),
            FcntlOp::F_SETSIG if (0..=64).contains(&(arg as i32)) => {
                FcntlCmd::SetSignal(arg as i32)
            }
            FcntlOp::F_GETSIG => FcntlCmd::GetSignal,
            FcntlOp::F_SETPIPE_SZ => FcntlCmd::SetPipeSize(arg as u32),
            FcntlOp::F_GETPIPE_SZ => FcntlCmd::GetPipeSize,
            FcntlOp::F_ADD_SEALS => FcntlCmd::AddSeals(arg as u32),
            FcntlOp::F_GET_SEALS => FcntlCmd::GetSeals,
            FcntlOp::F_SETLEASE => FcntlCmd::SetLease(arg as i32),
            FcntlOp::F_GETLEASE => FcntlCmd::GetLease,
            FcntlOp::F_NOTIFY => FcntlCmd::Notify(arg as u32),
            _ => return Err(EINVAL),
        })
    }

    /// Whether a descriptor that only names a place will do (`check_fcntl_cmd`).
    const fn works_on_places(self) -> bool {
        matches!(
            self,
            FcntlCmd::Dup { .. }
                | FcntlCmd::IsSame(_)
                | FcntlCmd::WasMade
                | FcntlCmd::GetFd
                | FcntlCmd::SetFd(_)
                | FcntlCmd::GetFlags
        )
    }
}

/// `fcntl(fd, cmd, arg)`.
fn fcntl(cx: &mut Context, fd: Fd, op: FcntlOp, arg: Bits) -> SysResult {
    let f = fd.any_file(cx)?;
    let cmd = FcntlCmd::new(op, arg.0);
    if f.flags() & O_PATH != 0 && !cmd.is_ok_and(FcntlCmd::works_on_places) {
        return Err(EBADF);
    }
    let files = cx.files();
    match cmd? {
        FcntlCmd::Dup { from, close } => {
            let room = &cx.room();
            if (from as i32) < 0 || from >= room.limit {
                return Err(EINVAL);
            }
            let new = files.install_from(from as i32, f, close, room)?;
            return Ok(new as usize);
        }
        FcntlCmd::IsSame(other) => return Ok(Arc::ptr_eq(&f, &other.any_file(cx)?).into()),
        FcntlCmd::WasMade => return Ok(f.made().into()),
        FcntlCmd::GetFd => return Ok((files.cloexec(fd.0)? == CloseOnExec::Yes).into()),
        FcntlCmd::SetFd(close) => files.set_cloexec(fd.0, close)?,
        FcntlCmd::GetFlags => return Ok(f.flags_told() as usize),
        FcntlCmd::SetFlags(new) => set_flags(cx, fd, &f, new)?,
        FcntlCmd::Lock(cmd) => fcntl_lock(cx, fd, &f, cmd)?,
        FcntlCmd::SetOwner(n) => set_owner(cx, &f, n)?,
        FcntlCmd::GetOwner => return Ok(owner_number(cx, &f) as usize),
        FcntlCmd::SetOwnerEx(from) => {
            let [kind, number] = from.read(&cx.mm())?;
            let kind = match kind {
                F_OWNER_TID => OwnerKind::Thread,
                F_OWNER_PID => OwnerKind::Process,
                F_OWNER_PGRP => OwnerKind::Group,
                _ => return Err(EINVAL),
            };
            cx.set_owner(&f, cx.owner_of(kind, number)?);
        }
        FcntlCmd::GetOwnerEx(out) => {
            let owner = f.sigio.owner();
            let kind = match owner.kind {
                OwnerKind::Thread => F_OWNER_TID,
                OwnerKind::Process => F_OWNER_PID,
                OwnerKind::Group => F_OWNER_PGRP,
            };
            out.write(&cx.mm(), &[kind, cx.owner_number(&owner)])?;
        }
        FcntlCmd::SetSignal(signal) => f.sigio.set_signal(signal),
        FcntlCmd::GetSignal => return Ok(f.sigio.signal() as usize),
        FcntlCmd::SetPipeSize(size) => return set_pipe_size(cx, &f, size),
        FcntlCmd::GetPipeSize => {
            let pipe = f.ops::<ipc::pipe::PipeEnd>().ok_or(EBADF)?;
            return Ok(pipe.capacity());
        }
        FcntlCmd::AddSeals(seals) => tmpfs::add_seals(&f, seals)?,
        FcntlCmd::GetSeals => return tmpfs::get_seals(&f).map(|s| s as usize),
        FcntlCmd::SetLease(kind) => set_lease(cx, fd, &f, kind)?,
        FcntlCmd::GetLease => return Ok(lease_number(f.lease()) as usize),
        FcntlCmd::Notify(wanted) => notify(cx, fd, &f, wanted)?,
    }
    Ok(0)
}

const fn lease_number(kind: Option<LockKind>) -> u32 {
    match kind {
        Some(LockKind::Read) => F_RDLCK,
        Some(LockKind::Write) => F_WRLCK,
        None => F_UNLCK,
    }
}

/// `F_SETLEASE`.
fn set_lease(cx: &Context, fd: Fd, f: &Arc<File>, kind: i32) -> Result<()> {
    let all = [None, Some(LockKind::Read), Some(LockKind::Write)];
    let asked = all.into_iter().find(|k| lease_number(*k) as i32 == kind);
    let kind = asked.ok_or(EINVAL)?;
    let asker = Asker {
        pid: cx.group.tgid,
        owner: cx.own_process(),
        messenger: cx.messenger(f, fd.0),
        cred: &cx.cred(),
    };
    f.set_lease(kind, asker)
}

/// `F_NOTIFY`.
fn notify(cx: &Context, fd: Fd, f: &Arc<File>, wanted: u32) -> Result<()> {
    let wanted = DnotifyMask::from_bits_truncate(wanted);
    let table = cx.files().id();
    let (owner, messenger) = (cx.own_process(), cx.messenger(f, fd.0));
    f.notify_of(table, wanted, owner, messenger, &cx.cred())?;
    // A close of the descriptor in the meantime found nothing to end.
    if !fd.any_file(cx).is_ok_and(|now| Arc::ptr_eq(&now, f)) {
        f.end_requests(table);
    }
    Ok(())
}

const F_OWNER_TID: i32 = abi::linux::F_OWNER_TID as i32;
const F_OWNER_PID: i32 = abi::linux::F_OWNER_PID as i32;
const F_OWNER_PGRP: i32 = abi::linux::F_OWNER_PGRP as i32;

/// `F_SETFL`.
fn set_flags(cx: &Context, fd: Fd, f: &Arc<File>, new: u32) -> Result<()> {
    if (new ^ f.flags()) & O_APPEND != 0 && f.is_flagged(FileFlags::APPEND) {
        return Err(EPERM);
    }
    if new & O_NOATIME & !f.flags() != 0
        && let Some(p) = &f.path
        && !vfs::mode::owner_or_capable(p.inode()?.perm()?, &cx.cred())
    {
        return Err(EPERM);
    }
    if (new ^ f.flags()) & O_ASYNC != 0 && f.ops.signals_owner() {
        match new & O_ASYNC {
            0 => sigio::stop_async(f),
            _ => cx.start_async(f, fd.0),
        }
    }
    f.set_flags(new);
    Ok(())
}

fn set_pipe_size(cx: &Context, f: &File, size: u32) -> SysResult {
    let pipe = f.ops::<ipc::pipe::PipeEnd>().ok_or(EBADF)?;
    let privileged = if cx.cred().has(vfs::Caps::SYS_RESOURCE) {
        ipc::pipe::Privileged::Yes
    } else {
        ipc::pipe::Privileged::No
    };
    pipe.set_capacity(size, privileged)
}

/// `memfd_secret(flags)`.
fn memfd_secret(cx: &mut Context, flags: CloexecFlag) -> SysResult {
    let f = cx.kernel.secrets.file(&cx.cred())?;
    let close = CloseOnExec::from_flags(flags.bits());
    cx.files().install(f, close, &cx.room()).map(|n| n as usize)
}

/// `memfd_create(name, flags)`.
fn memfd_create(cx: &mut Context, name: StrPtr, flags: MemfdFlags) -> SysResult {
    let name = cx
        .mm()
        .read_cstr(name.0, 250)
        .map_err(|e| if e == ENAMETOOLONG { EINVAL } else { e })?;
    let f = cx.kernel.shm.memfd(&name, flags.bits(), &cx.cred())?;
    let close = if flags.contains(MemfdFlags::MFD_CLOEXEC) {
        CloseOnExec::Yes
    } else {
        CloseOnExec::No
    };
    cx.files().install(f, close, &cx.room()).map(|n| n as usize)
}

calls! {
    close,
    dup,
    dup2,
    fcntl: "leases, notices of directories: what is done outside of the sandbox is not seen",
    dup3,
    memfd_create,
    memfd_secret,
    close_range,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_with_their_arguments() {
        let new = |op, arg| FcntlCmd::new(op, arg);
        assert!(matches!(
            new(FcntlOp::F_SETFD, 1),
            Ok(FcntlCmd::SetFd(CloseOnExec::Yes))
        ));
        assert!(matches!(
            new(FcntlOp::F_DUPFD_CLOEXEC, 7),
            Ok(FcntlCmd::Dup {
                from: 7,
                close: CloseOnExec::Yes
            })
        ));
        assert!(matches!(
            new(FcntlOp::F_OFD_SETLKW, 0x1000),
            Ok(FcntlCmd::Lock(LockCmd {
                owner: LockOwner::OpenFile,
                what: LockWhat::Set(Wait::Yes),
                ..
            }))
        ));
        assert_eq!(new(FcntlOp::F_SETSIG, 65).err(), Some(EINVAL));
        assert_eq!(new(FcntlOp(999), 0).err(), Some(EINVAL));
    }

    #[test]
    fn a_place_can_be_duplicated_and_asked() {
        let works = |op| FcntlCmd::new(op, 0).is_ok_and(FcntlCmd::works_on_places);
        assert!(works(FcntlOp::F_DUPFD) && works(FcntlOp::F_GETFL) && works(FcntlOp::F_SETFD));
        assert!(!works(FcntlOp::F_SETFL) && !works(FcntlOp::F_SETLK) && !works(FcntlOp::F_GETOWN));
    }
}
