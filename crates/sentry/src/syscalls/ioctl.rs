//! ioctl: what concerns every descriptor, and how a file's own commands reach the caller's memory.

use super::SysResult;
use super::args::*;
use super::descriptors::{owner_number, set_owner};
use super::io::blocking;
use crate::task::{Context, sigio};
use abi::errno::*;
use abi::linux::*;
use abi::{Result, Va};
use std::any::Any;
use std::sync::Arc;
use vfs::FileFlags;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, IoctlContext, O_ASYNC};
use vfs::mode::FileType;
use wait::Events;

named! {
    /// A command: those that concern every descriptor, and some that people see often.
    struct IoctlCmd(u32) {
        TCGETS = 0x5401,
        TCSETS = 0x5402,
        TIOCGWINSZ = 0x5413,
        FIGETBSZ = 2,
        FIONREAD = platform::lanes::FIONREAD,
        FIONBIO = 0x5421,
        TIOCGPTPEER = 0x5441,
        FIONCLEX = 0x5450,
        FIOCLEX = 0x5451,
        FIOASYNC = 0x5452,
        FIOQSIZE = 0x5460,
        FIOSETOWN = 0x8901,
        SIOCSPGRP = 0x8902,
        FIOGETOWN = 0x8903,
        SIOCGPGRP = 0x8904,
        FS_IOC_GETFLAGS = 0x8008_6601,
        FS_IOC_SETFLAGS = 0x4008_6602,
        FS_IOC_FSGETXATTR = 0x801c_581f,
        FS_IOC_FSSETXATTR = 0x401c_5820,
    }
}

struct Caller<'a>(&'a Context);

impl IoctlContext for Caller<'_> {
    fn copy_in(&self, va: Va, dst: &mut [u8]) -> Result<()> {
        self.0.mm().copy_in_now(va, dst)
    }
    fn copy_out(&self, va: Va, src: &[u8]) -> Result<()> {
        self.0.mm().copy_out_now(va, src)
    }
    fn credentials(&self) -> Arc<vfs::Credentials> {
        self.0.cred()
    }
    fn file(&self, fd: i32) -> Result<Arc<File>> {
        self.0.files().get(fd)
    }
    fn task(&self) -> &dyn Any {
        &self.0.task
    }
}

/// `ioctl(TIOCGPTPEER)`: opens the other side of a terminal, by its name where /dev/pts is mounted.
fn open_peer(cx: &Context, m: &tty::Master, flags: u32) -> SysResult {
    let files = cx.files();
    let slot = files.reserve(&cx.room())?;
    let flags = flags & (O_ACCMODE | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    let how = vfs::ops::OpenHow::new(flags, 0);
    let name = format!("/dev/pts/{}", m.pty().index);
    let is_peer = |f: &Arc<File>| {
        f.ops::<tty::Slave>()
            .is_some_and(|s| Arc::ptr_eq(s.pty(), m.pty()))
    };
    let named = cx
        .task
        .with_paths(|p| p.open(&vfs::At::Cwd, name.as_bytes(), how));
    if named.as_ref().err() == Some(&EACCES) && cx.cred().landlock.is_some() {
        return Err(EACCES);
    }
    let named = named.ok().filter(is_peer);
    let f = match named {
        Some(f) => f,
        None => File::new(m.pty().open(flags, &cx.task)?, flags, None, cx.cred()),
    };
    Ok(slot.install(f, CloseOnExec::from_flags(flags)) as usize)
}

/// `ioctl(fd, cmd, arg)`: what concerns every descriptor is here, the rest is the file's.
fn ioctl(cx: &mut Context, fd: Fd, cmd: IoctlCmd, arg: Va) -> SysResult {
    let f = fd.file(cx)?;
    f.may_control(cmd.0)?;
    match of_any_file(cx, fd, &f, cmd, arg)? {
        Some(result) => Ok(result),
        None => of_this_file(cx, &f, cmd, arg),
    }
}

/// `None` for a command that is the file's own.
fn of_any_file(
    cx: &Context,
    fd: Fd,
    f: &Arc<File>,
    cmd: IoctlCmd,
    arg: Va,
) -> Result<Option<usize>> {
    let is_socket = || f.ops::<net::Socket>().is_some();
    match cmd {
        IoctlCmd::FIONCLEX => cx.files().set_cloexec(fd.0, CloseOnExec::No)?,
        IoctlCmd::FIOCLEX => cx.files().set_cloexec(fd.0, CloseOnExec::Yes)?,
        IoctlCmd::FIONBIO => set_flag(f, O_NONBLOCK, cx.mm().read_obj(arg)?),
        IoctlCmd::FIOASYNC => set_async(cx, fd, f, cx.mm().read_obj(arg)?)?,
        IoctlCmd::FIOSETOWN | IoctlCmd::SIOCSPGRP if is_socket() => {
            set_owner(cx, f, cx.mm().read_obj(arg)?)?;
        }
        IoctlCmd::FIOGETOWN | IoctlCmd::SIOCGPGRP if is_socket() => {
            cx.mm().write_obj(arg, &owner_number(cx, f))?;
        }
        IoctlCmd::TIOCGPTPEER => {
            let master = f.ops::<tty::Master>();
            return master.map(|m| open_peer(cx, m, arg.0 as u32)).transpose();
        }
        IoctlCmd::FIGETBSZ => {
            let size = vfs::ops::fstatfs(f)?.bsize;
            cx.mm().write_obj(arg, &(size as i32))?;
        }
        IoctlCmd::FIOQSIZE => {
            let s = vfs::ops::fstat(f)?;
            match FileType::from_mode(s.mode) {
                Some(FileType::Regular | FileType::Directory) => {}
                _ => return Err(ENOTTY),
            }
            cx.mm().write_obj(arg, &((s.blocks * 512) as i64))?;
        }
        IoctlCmd::FS_IOC_GETFLAGS
        | IoctlCmd::FS_IOC_SETFLAGS
        | IoctlCmd::FS_IOC_FSGETXATTR
        | IoctlCmd::FS_IOC_FSSETXATTR
            if !f.ops.answers_flag_ioctls() =>
        {
            file_flags(cx, f, cmd, arg)?;
        }
        IoctlCmd::FS_IOC_SETFLAGS | IoctlCmd::FS_IOC_FSSETXATTR => {
            // As `vfs_fileattr_set` does it, before who serves the file is asked.
            if let Some(p) = &f.path {
                p.want_write()?;
                if !vfs::mode::owner_or_capable(p.inode()?.perm()?, &cx.cred()) {
                    return Err(EPERM);
                }
            }
            return Ok(None);
        }
        _ => return Ok(None),
    }
    Ok(Some(0))
}

/// `struct fsxattr`: flags by other numbers, and what only file systems of disks have.
type FsXattr = [u32; 7];

/// The flags of files, and their numbers in that.
const XFLAGS: [(FileFlags, u32); 4] = [
    (FileFlags::IMMUTABLE, 1 << 3),
    (FileFlags::APPEND, 1 << 4),
    (FileFlags::NOATIME, 1 << 6),
    (FileFlags::NODUMP, 1 << 7),
];

/// What chattr(1) and lsattr(1) ask for.
fn file_flags(cx: &Context, f: &Arc<File>, cmd: IoctlCmd, arg: Va) -> Result<()> {
    let mm = cx.mm();
    match cmd {
        IoctlCmd::FS_IOC_GETFLAGS => mm.write_obj(arg, &f.file_flags()?.bits()),
        IoctlCmd::FS_IOC_SETFLAGS => {
            let flags = mm.read_obj(arg)?;
            cx.task.with_paths(|p| p.set_file_flags(f, flags))
        }
        IoctlCmd::FS_IOC_FSGETXATTR => {
            let flags = f.file_flags()?;
            let all = XFLAGS.iter().filter(|(flag, _)| flags.contains(*flag));
            let mut x = FsXattr::default();
            x[0] = all.fold(0, |x, (_, bit)| x | bit);
            mm.write_obj(arg, &x)
        }
        _ => {
            let [xflags, others @ ..]: FsXattr = mm.read_obj(arg)?;
            let known = XFLAGS.iter().fold(0, |x, (_, bit)| x | bit);
            let [extsize, _, project, cowextsize, ..] = others;
            let all = XFLAGS.iter().filter(|(_, bit)| xflags & bit != 0);
            let flags = all.fold(FileFlags::empty(), |x, (flag, _)| x | *flag);
            let fits = xflags & !known == 0 && [extsize, project, cowextsize] == [0; 3];
            // What no file can have is refused after all else.
            let unknown = if fits { 0 } else { 1 };
            let flags = flags.bits() | unknown;
            cx.task.with_paths(|p| p.set_file_flags(f, flags))
        }
    }
}

/// `FIOASYNC` (`ioctl_fioasync`): `ENOTTY` where it would change what has no effect.
fn set_async(cx: &Context, fd: Fd, f: &Arc<File>, on: i32) -> Result<()> {
    if (f.flags() & O_ASYNC != 0) == (on != 0) {
        return Ok(());
    }
    if !f.ops.signals_owner() {
        return Err(ENOTTY);
    }
    match on {
        0 => sigio::stop_async(f),
        _ => cx.start_async(f, fd.0),
    }
    Ok(())
}

/// Sets a flag of the open file to what the application's `int` says.
fn set_flag(f: &File, bit: u32, on: i32) {
    let others = f.flags() & !bit;
    f.set_flags(if on != 0 { others | bit } else { others });
}

fn of_this_file(cx: &mut Context, f: &Arc<File>, cmd: IoctlCmd, arg: Va) -> SysResult {
    if cmd == IoctlCmd::FIONREAD {
        crate::task::lanes::slots::after_count(cx, f);
    }
    let nb = f.nonblocking();
    blocking(cx, f, Events::READABLE | Events::WRITABLE, nb, || {
        let most = mm::UserRange {
            va: arg,
            len: abi::PAGE_SIZE,
        };
        cx.mm().ask_for(&[most]);
        f.ops.ioctl(f, &Caller(cx), cmd.0, arg.0)
    })
    .or_else(|e| {
        // FIONREAD of a regular file: what is left.
        if e == ENOTTY && cmd == IoctlCmd::FIONREAD && f.ops.seekable() {
            let stat = f.ops.stat()?;
            if FileType::from_mode(stat.mode) != Some(FileType::Regular) {
                return Err(e);
            }
            let left = stat.size as i64 - f.position()? as i64;
            cx.mm().write_obj(arg, &(left as i32))?;
            return Ok(0);
        }
        Err(e)
    })
    .map(|v| v as usize)
}

calls! {
    ioctl,
}
