//! ioctl: what concerns every descriptor, and how a file's own commands reach the caller's memory.

use super::descriptors::{owner_id, owner_number};
use super::io::blocking;
use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::errno::*;
use abi::linux::*;
use abi::{Result, Va};
use std::any::Any;
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, IoctlContext};
use vfs::mode::FileType;
use wait::Events;

struct Caller<'a>(&'a Context);

impl IoctlContext for Caller<'_> {
    fn copy_in(&self, va: Va, dst: &mut [u8]) -> Result<()> {
        self.0.mm().copy_in(va, dst)
    }
    fn copy_out(&self, va: Va, src: &[u8]) -> Result<()> {
        self.0.mm().copy_out(va, src)
    }
    fn credentials(&self) -> Arc<vfs::Credentials> {
        self.0.cred()
    }
    fn task(&self) -> &dyn Any {
        &self.0.task
    }
}

const TIOCGPTPEER: u32 = 0x5441;
const FIONREAD: u32 = platform::lanes::FIONREAD;

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
        .with_paths(|p| p.open(&vfs::At::Cwd, name.as_bytes(), how))
        .ok()
        .filter(is_peer);
    let f = match named {
        Some(f) => f,
        None => File::new(m.pty().open(flags, &cx.task)?, flags, None, cx.cred()),
    };
    Ok(slot.install(f, CloseOnExec::from_flags(flags)) as usize)
}

/// `ioctl(fd, cmd, arg)`: what concerns every descriptor is here, the rest is the file's.
fn ioctl(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if f.flags() & O_PATH != 0 {
        return Err(EBADF);
    }
    let cmd = a.u32(1);
    match cmd {
        // FIONCLEX, FIOCLEX
        0x5450 => {
            return cx
                .files()
                .set_cloexec(a.i32(0), CloseOnExec::No)
                .map(|()| 0);
        }
        0x5451 => {
            return cx
                .files()
                .set_cloexec(a.i32(0), CloseOnExec::Yes)
                .map(|()| 0);
        }
        // FIONBIO, FIOASYNC
        0x5421 | 0x5452 => {
            let on: i32 = cx.mm().read_obj(a.va(2))?;
            let bit = if cmd == 0x5421 {
                O_NONBLOCK
            } else {
                vfs::file::O_ASYNC
            };
            let flags = if on != 0 {
                f.flags() | bit
            } else {
                f.flags() & !bit
            };
            f.set_flags(flags);
            return Ok(0);
        }
        // FIOSETOWN, SIOCSPGRP; FIOGETOWN, SIOCGPGRP: of sockets only
        0x8901 | 0x8902 if f.ops::<net::Socket>().is_some() => {
            let owner = owner_id(cx, cx.mm().read_obj::<i32>(a.va(2))?)?;
            f.owner.lock().0 = owner;
            return Ok(0);
        }
        0x8903 | 0x8904 if f.ops::<net::Socket>().is_some() => {
            let owner = f.owner.lock().0;
            cx.mm().write_obj(a.va(2), &owner_number(cx, owner))?;
            return Ok(0);
        }
        TIOCGPTPEER => {
            if let Some(m) = f.ops::<tty::Master>() {
                return open_peer(cx, m, a.u32(2));
            }
        }
        _ => {}
    }
    if cmd == FIONREAD {
        crate::task::lanes::slots::after_count(cx, &f);
    }
    let nb = f.nonblocking();
    blocking(cx, &f, Events::READABLE | Events::WRITABLE, nb, || {
        f.ops.ioctl(&f, &Caller(cx), cmd, a.u64(2))
    })
    .or_else(|e| {
        // FIONREAD of a regular file: what is left.
        if e == ENOTTY && cmd == FIONREAD && f.ops.seekable() {
            let stat = f.ops.stat()?;
            if FileType::from_mode(stat.mode) != Some(FileType::Regular) {
                return Err(e);
            }
            let left = stat.size as i64 - f.position()? as i64;
            cx.mm().write_obj(a.va(2), &(left as i32))?;
            return Ok(0);
        }
        Err(e)
    })
    .map(|v| v as usize)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[Call::new(
    16,
    "ioctl",
    &[Arg::Fd, Arg::Hex, Arg::Hex],
    ioctl,
)];
