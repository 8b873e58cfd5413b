//! POSIX message queues: the queue is `ipc::mqueue`'s, its file `fs::mqueue`'s.

use super::SysResult;
use super::args::*;
use super::sockets::socket_of;
use super::time::{SigEvent, timespec_arg};
use crate::fs::mqueue::{
    COOKIE, Event, Notification, OpenQueue, QueueLimits, make, message_limit, root,
};
use crate::task::Context;
use crate::task::futex::instant_of;
use abi::errno::{
    EACCES, EBADF, EBUSY, EFAULT, EINVAL, EMSGSIZE, ENAMETOOLONG, ENFILE, ENOENT, ENOMEM,
};
use abi::linux::{
    CLOCK_REALTIME, O_ACCMODE, O_CREAT, O_EXCL, O_NONBLOCK, SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD,
};
use abi::time::Timespec;
use abi::{Result, Signal, Va};
use ipc::mqueue::{MESSAGE, Message, PRIO_MAX, Patience, Urgency};
use net::NetlinkInbox;
use std::sync::Arc;
use vfs::File;
use vfs::fd_table::CloseOnExec;
use vfs::file::SETFL_MASK;
use vfs::ops::OpenHow;
use vfs::walk::Walk;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct mq_attr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MqAttr {
    flags: i64,
    max_messages: i64,
    size: i64,
    messages: i64,
    reserved: [i64; 4],
}

impl Pointee for MqAttr {
    fn text(&self) -> Option<String> {
        Some(format!(
            "{{mq_flags={:#o}, mq_maxmsg={}, mq_msgsize={}, mq_curmsgs={}}}",
            self.flags, self.max_messages, self.size, self.messages
        ))
    }
}

/// A queue's name (`getname`).
fn name_arg(cx: &Context, name: PathPtr) -> Result<Vec<u8>> {
    let name = name.read(cx)?;
    if name.is_empty() {
        Err(ENOENT)
    } else {
        Ok(name)
    }
}

/// It is one name of a directory (`lookup_one_len`).
fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"." | b".." => Err(EACCES),
        n if n.contains(&b'/') => Err(EACCES),
        n if n.len() > vfs::NAME_MAX => Err(ENAMETOOLONG),
        _ => Ok(()),
    }
}

/// `mq_open(name, flags, mode, attr)`.
fn mq_open(
    cx: &mut Context,
    name: PathPtr,
    flags: OpenFlags,
    mode: Mode,
    attr: Option<UserIn<MqAttr>>,
) -> SysResult {
    const KEPT: u32 = O_ACCMODE | O_CREAT | O_EXCL | SETFL_MASK;
    let attr = attr.map(|a| a.read(&cx.mm())).transpose()?;
    let name = name_arg(cx, name)?;
    cx.cred().may_take_more(ENFILE)?;
    let files = cx.files();
    let slot = files.reserve(&cx.room())?;
    check_name(&name)?;
    let asked = QueueLimits {
        attr: attr.map(|a| (a.max_messages, a.size)),
        limit: message_limit(cx),
    };
    let how = OpenHow {
        flags: flags.bits() & KEPT,
        mode: mode.0 & 0o7777,
        resolve: Walk::empty(),
    };
    let dir = root(&cx.kernel.vfs, &cx.ns().ipc);
    let f = cx.task.with_paths(|p| {
        p.open_name(&dir, &name, how, |new| {
            make(&dir, &p.caller, &name, new, asked)
        })
    })?;
    Ok(slot.install(f, CloseOnExec::Yes) as usize)
}

fn mq_unlink(cx: &mut Context, name: PathPtr) -> SysResult {
    let name = name_arg(cx, name)?;
    check_name(&name)?;
    let dir = root(&cx.kernel.vfs, &cx.ns().ipc);
    cx.task.with_paths(|p| p.unlink_name(&dir, &name))?;
    Ok(0)
}

/// An open queue; `EBADF` for all else.
fn queue_of(f: &File) -> Result<&OpenQueue> {
    f.ops::<OpenQueue>().ok_or(EBADF)
}

/// How the caller waits at a file, at most until `limit`, a time of CLOCK_REALTIME.
fn patience(f: &File, limit: Option<i64>) -> Patience {
    if f.nonblocking() {
        return Patience::None;
    }
    Patience::Until(limit.and_then(|t| instant_of(CLOCK_REALTIME as i32, t)))
}

/// `mq_timedsend(fd, message, priority, deadline)`.
fn mq_timedsend(
    cx: &mut Context,
    fd: Fd,
    message: BytesIn,
    priority: u32,
    deadline: Option<UserIn<Timespec>>,
) -> SysResult {
    let limit = timespec_arg(cx, deadline)?;
    if priority >= PRIO_MAX {
        return Err(EINVAL);
    }
    let f = fd.file(cx)?;
    let q = queue_of(&f)?;
    if !f.writable() {
        return Err(EBADF);
    }
    if message.len > q.attr().size {
        return Err(EMSGSIZE);
    }
    let memory = cx.cred().kmem(message.len + MESSAGE, ENOMEM)?;
    let mut data = vec![0; message.len];
    cx.mm().copy_in(message.va, &mut data)?;
    let m = Message {
        priority,
        data,
        memory: Some(memory),
    };
    let urgency = Urgency(cx.urgency());
    let done = q.queue().send(&*cx.task, urgency, m, patience(&f, limit))?;
    if !done.waited {
        q.changed();
    }
    if let Some(n) = done.notice {
        n.deliver(cx);
    }
    Ok(0)
}

/// `mq_timedreceive(fd, buffer, priority, deadline)`.
fn mq_timedreceive(
    cx: &mut Context,
    fd: Fd,
    buffer: BytesOut,
    priority: Option<UserOut<u32>>,
    deadline: Option<UserIn<Timespec>>,
) -> SysResult {
    let limit = timespec_arg(cx, deadline)?;
    let f = fd.file(cx)?;
    let q = queue_of(&f)?;
    if !f.readable() {
        return Err(EBADF);
    }
    if buffer.len < q.attr().size {
        return Err(EMSGSIZE);
    }
    let urgency = Urgency(cx.urgency());
    let done = q.queue().receive(&*cx.task, urgency, patience(&f, limit))?;
    if !done.waited {
        q.changed();
    }
    let mm = cx.mm();
    if let Some(out) = priority {
        out.write(&mm, &done.it.priority)?;
    }
    mm.copy_out(buffer.va, &done.it.data)?;
    Ok(done.it.data.len())
}

/// What a `struct sigevent` asks mq_notify(2) for.
fn event_arg(cx: &Context, e: &SigEvent) -> Result<Event> {
    match u32::try_from(e.notify) {
        Ok(SIGEV_NONE) => Ok(Event::None),
        Ok(SIGEV_SIGNAL) => Ok(Event::Signal {
            signal: match e.signo {
                0 => None,
                n => Some(Signal::new(n).ok_or(EINVAL)?),
            },
            value: e.value,
        }),
        Ok(SIGEV_THREAD) => {
            let mut cookie = [0; COOKIE];
            cx.mm()
                .copy_in(Va(e.value), &mut cookie)
                .map_err(|_| EFAULT)?;
            let socket = Fd(e.signo).file(cx)?;
            let inbox = NetlinkInbox::of(socket_of(&socket)?)?;
            Ok(Event::Thread { inbox, cookie })
        }
        _ => Err(EINVAL),
    }
}

/// `mq_notify(fd, event)`.
fn mq_notify(cx: &mut Context, fd: Fd, event: Option<UserIn<SigEvent>>) -> SysResult {
    let event = event
        .map(|e| event_arg(cx, &e.read(&cx.mm())?))
        .transpose()?;
    let f = fd.file(cx)?;
    let q = queue_of(&f)?;
    match event {
        None => {
            if let Some(old) = q.queue().take_back(|n| n.is_of(cx)) {
                old.removed();
                q.used();
            }
        }
        Some(e) => {
            let new = Notification::new(cx, e);
            q.queue().ask(new).map_err(|_| EBUSY)?;
            q.used();
        }
    }
    Ok(0)
}

/// `mq_getsetattr(fd, new, old)`.
fn mq_getsetattr(
    cx: &mut Context,
    fd: Fd,
    new: Option<UserIn<MqAttr>>,
    old: Option<UserOut<MqAttr>>,
) -> SysResult {
    let mm = cx.mm();
    let nonblock = i64::from(O_NONBLOCK);
    let new = new.map(|a| a.read(&mm)).transpose()?;
    if new.is_some_and(|a| a.flags & !nonblock != 0) {
        return Err(EINVAL);
    }
    let f: Arc<File> = fd.file(cx)?;
    let q = queue_of(&f)?;
    let attr = q.attr();
    let was = MqAttr {
        flags: i64::from(f.flags() & O_NONBLOCK),
        max_messages: attr.max_messages as i64,
        size: attr.size as i64,
        messages: q.queue().usage().0 as i64,
        reserved: [0; 4],
    };
    if let Some(a) = new {
        f.set_flags((f.flags() & !O_NONBLOCK) | a.flags as u32);
        q.used();
    }
    if let Some(old) = old {
        old.write(&mm, &was)?;
    }
    Ok(0)
}

calls! {
    mq_open,
    mq_unlink,
    mq_timedsend,
    mq_timedreceive,
    mq_notify,
    mq_getsetattr,
}
