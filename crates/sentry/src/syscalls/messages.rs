//! Messages of sockets: sending and receiving, with addresses and ancillary data.

use super::SysResult;
use super::args::*;
use super::io::{call, user_ranges};
use super::sockets::{AddressOut, MAX_ADDR, addr_in, as_caller, shown, socket_of};
use super::time::timespec_arg;
use crate::task::Context;
use abi::errno::*;
use abi::time::Timespec;
use abi::{Result, Va};
use mm::{Mm, UserIo, UserRange};
use net::sys::{AF_UNIX, MSG_CMSG_CLOEXEC, MSG_CTRUNC, MSG_DONTWAIT, SCM_PIDFD, SOL_SOCKET};
use net::{Control, Received, Socket, Ucred};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfs::fd_table::CloseOnExec;
use vfs::file::File;
use wait::deadline_after;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

flags! {
    /// Of sending and receiving.
    struct MsgFlags: u32, kept {
        MSG_OOB = 0x1,
        MSG_PEEK = 0x2,
        MSG_DONTROUTE = 0x4,
        MSG_TRUNC = 0x20,
        MSG_DONTWAIT = 0x40,
        MSG_EOR = 0x80,
        MSG_WAITALL = 0x100,
        MSG_ERRQUEUE = 0x2000,
        MSG_NOSIGNAL = 0x4000,
        MSG_MORE = 0x8000,
        MSG_WAITFORONE = 0x10000,
        MSG_FASTOPEN = 0x2000_0000,
        MSG_CMSG_CLOEXEC = 0x4000_0000,
        MSG_CMSG_COMPAT = 0x8000_0000,
    }
}

/// `net.core.optmem_max`: the most ancillary data of one message.
const MAX_CONTROL: usize = 131_072;
/// `UIO_MAXIOV`.
const MAX_IOV: usize = 1024;
const MSG_WAITFORONE: u32 = MsgFlags::MSG_WAITFORONE.bits();
/// Flags of send that only the kernel itself may use (`MSG_INTERNAL_SENDMSG_FLAGS`): taken away.
pub(super) const INTERNAL: u32 = 0x0811_0000;
const MAX_RW: usize = 0x7fff_f000;

impl MsgFlags {
    /// Of sendmsg(2) and its kin: `EINVAL` for what 32-bit programs' calls are marked with.
    fn native(self) -> Result<u32> {
        if self.contains(MsgFlags::MSG_CMSG_COMPAT) {
            return Err(EINVAL);
        }
        Ok(self.bits())
    }
}

/// Sends, with SIGPIPE for the thread that wrote to a stream without a reader.
pub(super) fn send_on(
    cx: &Context,
    f: &File,
    src: &mut UserIo<'_>,
    dest: Option<&[u8]>,
    control: Control,
    flags: u32,
) -> SysResult {
    let s = socket_of(f)?;
    let io = call(cx, f, f.nonblocking() || flags & MSG_DONTWAIT != 0);
    as_caller(cx, |who| s.send_all(&io, who, src, dest, control, flags))
}

/// `sendto(fd, buf, len, flags, addr, addrlen)`.
fn sendto(
    cx: &mut Context,
    fd: Fd,
    buf: BytesIn,
    flags: MsgFlags,
    to: Option<AddressIn<i32>>,
) -> SysResult {
    let f = fd.file(cx)?;
    socket_of(&f)?;
    let mm = cx.mm();
    let dest = to.map(|to| addr_in(&mm, to)).transpose()?;
    // For UNIX sockets an empty address is none.
    let dest =
        dest.filter(|d| !d.is_empty() || f.ops::<Socket>().is_some_and(|s| s.family() != AF_UNIX));
    let mut src = UserIo::new(&mm, buf.va, buf.len.min(MAX_RW));
    send_on(
        cx,
        &f,
        &mut src,
        dest.as_deref(),
        Control::default(),
        flags.bits() & !INTERNAL,
    )
}

/// `struct user_msghdr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MsgHdr {
    name: u64,
    name_len: i32,
    pad: u32,
    iov: u64,
    iov_len: u64,
    control: u64,
    control_len: u64,
    flags: u32,
    pad2: u32,
}

/// `sizeof(struct mmsghdr)`, and where its `msg_len` is.
const MMSG: u64 = 64;
const MMSG_LEN: u64 = 56;
/// Where `msg_namelen`, `msg_controllen` and `msg_flags` are.
const NAME_LEN: u64 = 8;
const CONTROL_LEN: u64 = 40;
const FLAGS: u64 = 48;

fn header(mm: &Mm, va: Va) -> Result<MsgHdr> {
    let mut h: MsgHdr = mm.read_obj(va)?;
    if h.name == 0 {
        h.name_len = 0;
    }
    if h.name_len < 0 {
        return Err(EINVAL);
    }
    h.name_len = h.name_len.min(MAX_ADDR as i32);
    if h.iov_len > MAX_IOV as u64 {
        return Err(EMSGSIZE);
    }
    Ok(h)
}

/// The process and the ids that a claimed `struct ucred` means.
fn claimed(cx: &Context, u: Ucred) -> Result<Ucred> {
    let cred = cx.cred();
    let (uid, gid) = (cred.user_ns.uid_from(u.uid)?, cred.user_ns.gid_from(u.gid)?);
    // No number of a process: only who may claim any is told so.
    if u.pid <= 0 {
        let any = cred.has_in(&cx.pid.ns.user, vfs::Caps::SYS_ADMIN);
        return Err(if any { ESRCH } else { EPERM });
    }
    let pid = cx.id_of(u.pid)?;
    Ok(Ucred { pid, uid, gid })
}

/// A file that is to be sent: not a ring, of whose requests it could become one
/// (`scm_fp_copy`).
fn travels(cx: &Context, fd: i32) -> Result<Arc<File>> {
    let f = Fd(fd).file(cx)?;
    match f.ops::<crate::task::uring::RingFile>() {
        None => Ok(f),
        Some(_) => Err(EINVAL),
    }
}

/// A message that is to be sent, as it was gathered from the application.
pub(super) struct Outgoing {
    dest: Option<Vec<u8>>,
    pub(super) ranges: SmallVec<[UserRange; 8]>,
    control: Vec<u8>,
}

impl Outgoing {
    /// Reads the message's header at `va`, and what that names but for the bytes themselves.
    pub(super) fn gather(cx: &Context, va: Va) -> Result<Outgoing> {
        let mm = cx.mm();
        let h = header(&mm, va)?;
        let addr = AddressIn {
            va: Va(h.name),
            len: h.name_len,
        };
        let named = h.name != 0 && h.name_len != 0;
        let dest = named.then(|| addr_in(&mm, addr)).transpose()?;
        let ranges = user_ranges(&mm, Va(h.iov), h.iov_len as usize)?;
        if h.control_len > MAX_CONTROL as u64 {
            return Err(ENOBUFS);
        }
        let mut control = vec![0; h.control_len as usize];
        mm.copy_in(Va(h.control), &mut control)?;
        Ok(Outgoing {
            dest,
            ranges,
            control,
        })
    }
    /// What it takes of the kernel's memory, bytes.
    pub(super) fn weight(&self) -> u64 {
        (size_of_val(&*self.ranges) + self.control.len()) as u64
    }
    pub(super) fn send(
        &self,
        cx: &Context,
        f: &File,
        src: &mut UserIo<'_>,
        flags: u32,
    ) -> SysResult {
        let mut control = Control::parse(&self.control, &mut |fd| travels(cx, fd))?;
        if let Some(u) = &mut control.cred {
            *u = claimed(cx, *u)?;
        }
        send_on(cx, f, src, self.dest.as_deref(), control, flags & !INTERNAL)
    }
}

fn send_message(cx: &Context, f: &File, va: Va, flags: u32) -> SysResult {
    let m = Outgoing::gather(cx, va)?;
    let mm = cx.mm();
    let mut src = UserIo::vectored(&mm, m.ranges.iter().copied());
    m.send(cx, f, &mut src, flags)
}

/// `sendmsg(fd, msg, flags)`.
fn sendmsg(cx: &mut Context, fd: Fd, msg: Va, flags: MsgFlags) -> SysResult {
    let flags = flags.native()?;
    let f = fd.file(cx)?;
    socket_of(&f)?;
    send_message(cx, &f, msg, flags)
}

/// `sendmmsg(fd, msgs, count, flags)`.
fn sendmmsg(cx: &mut Context, fd: Fd, msgs: Va, count: u32, flags: MsgFlags) -> SysResult {
    let flags = flags.native()?;
    let f = fd.file(cx)?;
    socket_of(&f)?;
    let count = u64::from(count).min(MAX_IOV as u64);
    let mut sent = 0;
    while sent < count {
        let at = msgs.offset(sent * MMSG);
        let r = send_message(cx, &f, at, flags)
            .and_then(|n| cx.mm().write_obj(at.offset(MMSG_LEN), &(n as u32)));
        match r {
            Ok(()) => sent += 1,
            Err(_) if sent > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(sent as usize)
}

/// Receives as [`Socket::receive_all`].
pub(super) fn receive_on(
    cx: &Context,
    f: &File,
    dst: &mut UserIo<'_>,
    flags: u32,
) -> Result<Received> {
    let s = socket_of(f)?;
    let io = call(cx, f, f.nonblocking() || flags & MSG_DONTWAIT != 0);
    s.receive_all(&io, dst, flags)
}

/// `recvfrom(fd, buf, len, flags, addr, addrlen)`.
fn recvfrom(
    cx: &mut Context,
    fd: Fd,
    buf: BytesOut,
    flags: MsgFlags,
    from: Option<AddressOut>,
) -> SysResult {
    let f = fd.file(cx)?;
    socket_of(&f)?;
    let mm = cx.mm();
    let mut dst = UserIo::new(&mm, buf.va, buf.len.min(MAX_RW));
    let r = receive_on(cx, &f, &mut dst, flags.bits());
    let plain = flags.is_empty() && from.is_none();
    if plain && matches!(&r, Ok(Received { n: 1.., .. }) | Err(EAGAIN)) {
        crate::task::lanes::slots::after_read(cx, fd.0, &f);
    }
    let r = r?;
    if let Some(out) = from {
        out.write(&mm, &r.addr)?;
    }
    Ok(r.without_files())
}

/// Where a message that comes goes to, as the application has said.
pub(super) struct Incoming {
    va: Va,
    header: MsgHdr,
    /// As it was given, whether there is a place for it or not.
    name_room: u32,
    pub(super) ranges: SmallVec<[UserRange; 8]>,
}

impl Incoming {
    pub(super) fn gather(cx: &Context, va: Va) -> Result<Incoming> {
        let mm = cx.mm();
        let name_room = mm.read_obj(va.offset(NAME_LEN))?;
        let header = header(&mm, va)?;
        let ranges = user_ranges(&mm, Va(header.iov), header.iov_len as usize)?;
        Ok(Incoming {
            va,
            header,
            name_room,
            ranges,
        })
    }
    /// What it takes of the kernel's memory, bytes.
    pub(super) fn weight(&self) -> u64 {
        size_of_val(&*self.ranges) as u64
    }
    /// Room for the address and for ancillary data.
    pub(super) fn room(&self) -> (usize, usize) {
        let name = (self.name_room as usize).min(MAX_CONTROL);
        (name, (self.header.control_len as usize).min(MAX_CONTROL))
    }
    pub(super) fn receive(
        &self,
        cx: &Context,
        f: &File,
        dst: &mut UserIo<'_>,
        flags: u32,
    ) -> SysResult {
        let mm = cx.mm();
        let (h, va) = (&self.header, self.va);
        let r = receive_on(cx, f, dst, flags)?;
        if h.name != 0 {
            let out = AddressOut {
                va: Va(h.name),
                len: UserPtr::new(va.offset(NAME_LEN)),
            };
            out.write(&mm, &r.addr)?;
        }
        let room = match h.control {
            0 => 0,
            _ => self.room().1,
        };
        let n = r.n;
        let got = control_out(cx, r, room, flags);
        let written = mm
            .copy_out(Va(h.control), &got.bytes)
            .and_then(|()| mm.write_obj(va.offset(FLAGS), &got.flags))
            .and_then(|()| mm.write_obj(va.offset(CONTROL_LEN), &(got.bytes.len() as u64)));
        if written.is_err() {
            got.take_back(cx);
        }
        written.map(|()| n)
    }
}

/// The ancillary data of a message, as the application is to have it.
pub(super) struct ControlOut {
    pub(super) bytes: Vec<u8>,
    /// `msg_flags`.
    pub(super) flags: u32,
    new: Vec<i32>,
}

impl ControlOut {
    /// The application will not learn the descriptors' numbers.
    pub(super) fn take_back(&self, cx: &Context) {
        for fd in &self.new {
            let _ = cx.files().close(*fd);
        }
    }
}

/// Gives the files of a message descriptors, and its ancillary data a form of at most `room` bytes.
pub(super) fn control_out(cx: &Context, mut r: Received, room: usize, flags: u32) -> ControlOut {
    if let Some(u) = &mut r.control.cred {
        *u = shown(cx, *u);
    }
    let cloexec = if flags & MSG_CMSG_CLOEXEC != 0 {
        CloseOnExec::Yes
    } else {
        CloseOnExec::No
    };
    let (table, growth) = (cx.files(), cx.room());
    let mut new = Vec::new();
    let pidfd = r.control.pidfd;
    let (mut bytes, mut cut) = r.control.encode(room, &mut |file| {
        cx.task.heed_confidential(&file)?;
        let fd = table.install(file, cloexec, &growth)?;
        new.push(fd);
        Ok(fd)
    });
    if let Some(id) = pidfd {
        cut |= put_pidfd(cx, id, room, &mut bytes, &mut new);
    }
    let cut = if cut { MSG_CTRUNC } else { 0 };
    ControlOut {
        bytes,
        flags: r.flags | (flags & MSG_CMSG_CLOEXEC) | cut,
        new,
    }
}

/// SCM_PIDFD, behind all others; an error in place of the descriptor where there is none
/// (`scm_pidfd_recv`). Whether there was no room.
fn put_pidfd(cx: &Context, id: i32, room: usize, to: &mut Vec<u8>, new: &mut Vec<i32>) -> bool {
    const LEN: usize = 20;
    if room.saturating_sub(to.len()) < LEN {
        return true;
    }
    let fd = super::pidfd::of_process(cx, id).unwrap_or_else(|e| -e.raw());
    if fd >= 0 {
        new.push(fd);
    }
    net::control::put(to, room, SOL_SOCKET, SCM_PIDFD, &fd.to_le_bytes())
}

fn receive_message(cx: &Context, f: &File, va: Va, flags: u32) -> SysResult {
    let m = Incoming::gather(cx, va)?;
    let mm = cx.mm();
    let mut dst = UserIo::vectored(&mm, m.ranges.iter().copied());
    m.receive(cx, f, &mut dst, flags)
}

/// `recvmsg(fd, msg, flags)`.
fn recvmsg(cx: &mut Context, fd: Fd, msg: Va, flags: MsgFlags) -> SysResult {
    let flags = flags.native()?;
    let f = fd.file(cx)?;
    socket_of(&f)?;
    receive_message(cx, &f, msg, flags)
}

/// `recvmmsg(fd, msgs, count, flags, timeout)`. As on Linux, the time is looked at only between
/// messages.
fn recvmmsg(
    cx: &mut Context,
    fd: Fd,
    msgs: Va,
    count: u32,
    flags: MsgFlags,
    timeout: Option<UserPtr<Timespec>>,
) -> SysResult {
    let mut flags = flags.native()?;
    let mm = cx.mm();
    let limit = timespec_arg(cx, timeout.map(UserPtr::input))?;
    let deadline = limit.and_then(|n| deadline_after(Duration::from_nanos(n as u64)));
    let f = fd.file(cx)?;
    socket_of(&f)?;
    let count = u64::from(count);
    let wait_for_one = flags & MSG_WAITFORONE != 0;
    flags &= !MSG_WAITFORONE;
    let mut got = 0;
    while got < count {
        let at = msgs.offset(got * MMSG);
        let r = receive_message(cx, &f, at, flags)
            .and_then(|n| mm.write_obj(at.offset(MMSG_LEN), &(n as u32)));
        match r {
            Ok(()) => got += 1,
            Err(_) if got > 0 => break,
            Err(e) => return Err(e),
        }
        if wait_for_one {
            flags |= MSG_DONTWAIT;
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            break;
        }
    }
    if let (Some(out), Some(d)) = (timeout, deadline) {
        let left = d.saturating_duration_since(Instant::now()).as_nanos() as i64;
        out.write(&mm, &Timespec::from_nanos(left))?;
    }
    Ok(got as usize)
}

calls! {
    sendto,
    recvfrom,
    sendmsg,
    recvmsg,
    recvmmsg,
    sendmmsg,
}
