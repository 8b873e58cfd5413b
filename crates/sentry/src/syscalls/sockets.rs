//! Sockets (`net/socket.c`): the objects are in the `net` crate, with their time limits; the caller's numbers and the
//! application's memory are here.

use super::events::{install_pair, real_fd};
use super::io::{call, iovec};
use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::errno::*;
use abi::linux::{O_NONBLOCK, O_RDWR};
use abi::time::Timespec;
use abi::{Result, Va};
use mm::{Mm, UserIo};
use net::sys::{AF_UNIX, MSG_CMSG_CLOEXEC, MSG_CTRUNC, MSG_DONTWAIT};
use net::{Block, Control, PathNames, Received, Socket, Ucred};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfs::fd_table::CloseOnExec;
use vfs::file::File;
use vfs::{At, Credentials};
use wait::{Events, deadline_after};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const SOCK_CLOEXEC: u32 = vfs::file::O_CLOEXEC;
const SOCK_NONBLOCK: u32 = O_NONBLOCK;
/// `sizeof(struct sockaddr_storage)`.
const MAX_ADDR: usize = 128;
/// `net.core.optmem_max`: the most ancillary data of one message.
const MAX_CONTROL: usize = 131_072;
/// `UIO_MAXIOV`.
const MAX_IOV: usize = 1024;
const MSG_WAITFORONE: u32 = 0x10000;
const MSG_CMSG_COMPAT: u32 = 0x8000_0000;
/// Flags of send that only the kernel itself may use (`MSG_INTERNAL_SENDMSG_FLAGS`): taken away.
const INTERNAL: u32 = 0x0811_0000;
const MAX_RW: usize = 0x7fff_f000;

/// UNIX sockets' names, from the caller's root and working directory.
struct Names<'a>(&'a Context);

impl PathNames for Names<'_> {
    fn bind(&self, path: &[u8], endpoint: Arc<dyn Any + Send + Sync>) -> Result<()> {
        let weak = Arc::downgrade(&endpoint);
        self.0
            .task
            .with_paths(|p| p.bind_socket(&At::Cwd, path, 0o777, weak))
            .map(|_| ())
            .map_err(|e| if e == EEXIST { EADDRINUSE } else { e })
    }
    fn lookup(&self, path: &[u8]) -> Result<Arc<dyn Any + Send + Sync>> {
        self.0.task.with_paths(|p| p.find_socket(&At::Cwd, path))
    }
    fn files_limit(&self) -> u64 {
        self.0.nofile_limit()
    }
}

/// Runs a call with the caller's identity.
fn as_caller<R>(cx: &Context, f: impl FnOnce(&net::Caller<'_>) -> R) -> R {
    let cred: Arc<Credentials> = cx.cred();
    f(&net::Caller {
        pid: cx.group.tgid,
        number: cx.group.pid.own(),
        any_pid: cred.has_in(&cx.pid.ns.user, vfs::Caps::SYS_ADMIN),
        cred: &cred,
        paths: &Names(cx),
    })
}

fn socket_of(f: &File) -> Result<&Socket> {
    f.ops::<Socket>().ok_or(ENOTSOCK)
}

/// Copies an address in (`move_addr_to_kernel`).
fn addr_in(mm: &Mm, va: Va, len: i32) -> Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| EINVAL)?;
    if len > MAX_ADDR {
        return Err(EINVAL);
    }
    let mut v = vec![0; len];
    mm.copy_in(va, &mut v)?;
    Ok(v)
}

/// Copies an address out, cut to the room there is, and its whole length (`move_addr_to_user`).
fn addr_out(mm: &Mm, addr: &[u8], va: Va, len_va: Va) -> Result<()> {
    let room: i32 = mm.read_obj(len_va)?;
    let room = usize::try_from(room).map_err(|_| EINVAL)?;
    mm.copy_out(va, &addr[..addr.len().min(room)])?;
    mm.write_obj(len_va, &(addr.len() as i32))
}

/// `SOCK_*` flags, and the type without them.
fn kind_and_flags(raw: u32) -> Result<(u32, u32)> {
    let flags = raw & !0xf;
    if flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        Err(EINVAL)
    } else {
        Ok((raw & 0xf, flags))
    }
}

fn file_of(cx: &Context, s: Arc<Socket>, flags: u32) -> Arc<File> {
    File::new(s, O_RDWR | (flags & SOCK_NONBLOCK), None, cx.cred())
}

/// `socket(family, type, protocol)`.
fn socket(cx: &mut Context, a: &Args) -> SysResult {
    let (kind, flags) = kind_and_flags(a.u32(1))?;
    let s = as_caller(cx, |who| {
        net::socket(&cx.ns().net, a.i32(0), kind, a.i32(2), who)
    })?;
    let f = file_of(cx, s, flags);
    cx.files()
        .install(f, CloseOnExec::from_flags(flags), &cx.room())
        .map(|n| n as usize)
}

/// `socketpair(family, type, protocol, fds)`.
fn socketpair(cx: &mut Context, a: &Args) -> SysResult {
    let (kind, flags) = kind_and_flags(a.u32(1))?;
    let (x, y) = as_caller(cx, |who| {
        net::socketpair(&cx.ns().net, a.i32(0), kind, a.i32(2), who)
    })?;
    install_pair(
        cx,
        a.va(3),
        [file_of(cx, x, flags), file_of(cx, y, flags)],
        flags,
    )
}

/// `bind(fd, addr, len)`.
fn bind(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    let s = socket_of(&f)?;
    let addr = addr_in(&cx.mm(), a.va(1), a.i32(2))?;
    as_caller(cx, |who| s.bind(who, &addr)).map(|()| 0)
}

/// `connect(fd, addr, len)`.
fn connect(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    let s = socket_of(&f)?;
    let addr = addr_in(&cx.mm(), a.va(1), a.i32(2))?;
    let nb = f.nonblocking();
    let block = if nb { Block::No } else { Block::Yes };
    let r = call(cx, &f, nb).wait(Events::WRITABLE, s.send_timeout(), || {
        as_caller(cx, |who| s.connect(who, &addr, block))
    });
    match r {
        // A connection that took too long goes on without us.
        Err(EAGAIN) if !nb && s.family() != AF_UNIX => Err(EINPROGRESS),
        r => r.map(|()| 0),
    }
}

/// `listen(fd, backlog)`.
fn listen(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    let s = socket_of(&f)?;
    as_caller(cx, |who| s.listen(who, a.i32(1))).map(|()| 0)
}

fn do_accept(cx: &Context, a: &Args, flags: u32) -> SysResult {
    if flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        return Err(EINVAL);
    }
    let f = real_fd(cx, a.i32(0))?;
    let s = socket_of(&f)?;
    // The number first: a full table must not lose a connection.
    let table = cx.files();
    cx.cred().may_take_more(ENFILE)?;
    let slot = table.reserve(&cx.room())?;
    let new =
        call(cx, &f, f.nonblocking()).wait(Events::READABLE, s.receive_timeout(), || s.accept())?;
    if let Some(va) = a.va_opt(1) {
        let name = new.peer_name().map_err(|_| ECONNABORTED)?;
        addr_out(&cx.mm(), &name, va, a.va(2))?;
    }
    Ok(slot.install(file_of(cx, new, flags), CloseOnExec::from_flags(flags)) as usize)
}
/// `accept(fd, addr, len)`.
fn accept(cx: &mut Context, a: &Args) -> SysResult {
    do_accept(cx, a, 0)
}
/// `accept4(fd, addr, len, flags)`.
fn accept4(cx: &mut Context, a: &Args) -> SysResult {
    do_accept(cx, a, a.u32(3))
}

/// `getsockname(fd, addr, len)`.
fn getsockname(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    let name = socket_of(&f)?.local_name()?;
    addr_out(&cx.mm(), &name, a.va(1), a.va(2)).map(|()| 0)
}
/// `getpeername(fd, addr, len)`.
fn getpeername(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    let name = socket_of(&f)?.peer_name()?;
    addr_out(&cx.mm(), &name, a.va(1), a.va(2)).map(|()| 0)
}

/// Sends, with SIGPIPE for the thread that wrote to a stream without a reader.
fn send_on(
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
fn sendto(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    socket_of(&f)?;
    let mm = cx.mm();
    let dest = match a.va_opt(4) {
        Some(va) => Some(addr_in(&mm, va, a.i32(5))?),
        None => None,
    };
    // For UNIX sockets an empty address is none.
    let dest =
        dest.filter(|d| !d.is_empty() || f.ops::<Socket>().is_some_and(|s| s.family() != AF_UNIX));
    let mut src = UserIo::new(&mm, a.va(1), a.usize(2).min(MAX_RW));
    send_on(
        cx,
        &f,
        &mut src,
        dest.as_deref(),
        Control::default(),
        a.u32(3) & !INTERNAL,
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

/// A `struct ucred` in the caller's numbers.
fn shown(cx: &Context, u: Ucred) -> Ucred {
    if u == Ucred::NOBODY {
        return u;
    }
    let ns = &cx.cred().user_ns;
    Ucred {
        pid: cx.number_of(u.pid),
        uid: ns.uid_shown(u.uid),
        gid: ns.gid_shown(u.gid),
    }
}

fn send_message(cx: &Context, f: &File, va: Va, flags: u32) -> SysResult {
    let mm = cx.mm();
    let h = header(&mm, va)?;
    let dest = if h.name == 0 || h.name_len == 0 {
        None
    } else {
        Some(addr_in(&mm, Va(h.name), h.name_len)?)
    };
    let mut src = iovec(&mm, Va(h.iov), h.iov_len as usize)?;
    if h.control_len > MAX_CONTROL as u64 {
        return Err(ENOBUFS);
    }
    let mut raw = vec![0; h.control_len as usize];
    mm.copy_in(Va(h.control), &mut raw)?;
    let mut control = Control::parse(&raw, &mut |fd| real_fd(cx, fd))?;
    if let Some(u) = &mut control.cred {
        *u = claimed(cx, *u)?;
    }
    send_on(cx, f, &mut src, dest.as_deref(), control, flags & !INTERNAL)
}

/// `sendmsg(fd, msg, flags)`.
fn sendmsg(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(2) & MSG_CMSG_COMPAT != 0 {
        return Err(EINVAL);
    }
    let f = real_fd(cx, a.i32(0))?;
    socket_of(&f)?;
    send_message(cx, &f, a.va(1), a.u32(2))
}

/// `sendmmsg(fd, msgs, count, flags)`.
fn sendmmsg(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(3) & MSG_CMSG_COMPAT != 0 {
        return Err(EINVAL);
    }
    let f = real_fd(cx, a.i32(0))?;
    socket_of(&f)?;
    let count = u64::from(a.u32(2)).min(MAX_IOV as u64);
    let mut sent = 0;
    while sent < count {
        let at = a.va(1).offset(sent * MMSG);
        let r = send_message(cx, &f, at, a.u32(3))
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
fn receive_on(cx: &Context, f: &File, dst: &mut UserIo<'_>, flags: u32) -> Result<Received> {
    let s = socket_of(f)?;
    let io = call(cx, f, f.nonblocking() || flags & MSG_DONTWAIT != 0);
    s.receive_all(&io, dst, flags)
}

/// `recvfrom(fd, buf, len, flags, addr, addrlen)`.
fn recvfrom(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    socket_of(&f)?;
    let mm = cx.mm();
    let mut dst = UserIo::new(&mm, a.va(1), a.usize(2).min(MAX_RW));
    let r = receive_on(cx, &f, &mut dst, a.u32(3));
    if a.u32(3) == 0 && a.u64(4) == 0 && matches!(&r, Ok(Received { n: 1.., .. }) | Err(EAGAIN)) {
        crate::task::lanes::slots::after_read(cx, a.i32(0), &f);
    }
    let r = r?;
    if let Some(va) = a.va_opt(4) {
        addr_out(&mm, &r.addr, va, a.va(5))?;
    }
    Ok(r.without_files())
}

fn receive_message(cx: &Context, f: &File, va: Va, flags: u32) -> SysResult {
    let mm = cx.mm();
    let h = header(&mm, va)?;
    let mut dst = iovec(&mm, Va(h.iov), h.iov_len as usize)?;
    let mut r = receive_on(cx, f, &mut dst, flags)?;
    if let Some(u) = &mut r.control.cred {
        *u = shown(cx, *u);
    }
    if h.name != 0 {
        addr_out(&mm, &r.addr, Va(h.name), va.offset(NAME_LEN))?;
    }
    let room = if h.control == 0 {
        0
    } else {
        (h.control_len as usize).min(MAX_CONTROL)
    };
    let cloexec = if flags & MSG_CMSG_CLOEXEC != 0 {
        CloseOnExec::Yes
    } else {
        CloseOnExec::No
    };
    let (table, growth) = (cx.files(), cx.room());
    let mut new = Vec::new();
    let (bytes, cut) = r.control.encode(room, &mut |file| {
        let fd = table.install(file, cloexec, &growth)?;
        new.push(fd);
        Ok(fd)
    });
    let out = r.flags | (flags & MSG_CMSG_CLOEXEC) | if cut { MSG_CTRUNC } else { 0 };
    let written = mm
        .copy_out(Va(h.control), &bytes)
        .and_then(|()| mm.write_obj(va.offset(FLAGS), &out))
        .and_then(|()| mm.write_obj(va.offset(CONTROL_LEN), &(bytes.len() as u64)));
    if written.is_err() {
        // The application will not learn their numbers.
        for fd in new {
            let _ = table.close(fd);
        }
    }
    written.map(|()| r.n)
}

/// `recvmsg(fd, msg, flags)`.
fn recvmsg(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(2) & MSG_CMSG_COMPAT != 0 {
        return Err(EINVAL);
    }
    let f = real_fd(cx, a.i32(0))?;
    socket_of(&f)?;
    receive_message(cx, &f, a.va(1), a.u32(2))
}

/// `recvmmsg(fd, msgs, count, flags, timeout)`. As on Linux, the time is looked at only between messages.
fn recvmmsg(cx: &mut Context, a: &Args) -> SysResult {
    let mut flags = a.u32(3);
    if flags & MSG_CMSG_COMPAT != 0 {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let limit = match a.va_opt(4) {
        None => None,
        Some(va) => Some(mm.read_obj::<Timespec>(va)?.to_nanos().ok_or(EINVAL)?),
    };
    let deadline = limit.and_then(|n| deadline_after(Duration::from_nanos(n as u64)));
    let f = real_fd(cx, a.i32(0))?;
    socket_of(&f)?;
    let count = u64::from(a.u32(2));
    let wait_for_one = flags & MSG_WAITFORONE != 0;
    flags &= !MSG_WAITFORONE;
    let mut got = 0;
    while got < count {
        let at = a.va(1).offset(got * MMSG);
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
    if let (Some(va), Some(d)) = (a.va_opt(4), deadline) {
        let left = d.saturating_duration_since(Instant::now()).as_nanos() as i64;
        mm.write_obj(va, &Timespec::from_nanos(left))?;
    }
    Ok(got as usize)
}

/// `shutdown(fd, how)`.
fn shutdown(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    socket_of(&f)?.shutdown(a.u32(1)).map(|()| 0)
}

/// The longest option value that is looked at.
const MAX_OPTION: usize = 4096;

/// `setsockopt(fd, level, name, value, len)`.
fn setsockopt(cx: &mut Context, a: &Args) -> SysResult {
    let len = usize::try_from(a.i32(4)).map_err(|_| EINVAL)?;
    let f = real_fd(cx, a.i32(0))?;
    let s = socket_of(&f)?;
    let mut v = vec![0; len.min(MAX_OPTION)];
    cx.mm().copy_in(a.va(3), &mut v)?;
    s.set_option(&cx.cred(), a.i32(1), a.i32(2), &v).map(|()| 0)
}

/// `getsockopt(fd, level, name, value, len)`.
fn getsockopt(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    let s = socket_of(&f)?;
    let mm = cx.mm();
    let room: i32 = mm.read_obj(a.va(4))?;
    let room = usize::try_from(room).map_err(|_| EINVAL)?;
    let mut v = s.get_option(a.i32(1), a.i32(2))?;
    if (a.i32(1), a.i32(2)) == (1, net::SO_PEERCRED)
        && let Some(u) = Ucred::decode(&v)
    {
        v = shown(cx, u).encode();
    }
    let n = v.len().min(room);
    mm.copy_out(a.va(3), &v[..n])?;
    mm.write_obj(a.va(4), &(n as i32))?;
    Ok(0)
}

const FAMILIES: &[(u64, &str)] = &[
    (0, "AF_UNSPEC"),
    (1, "AF_UNIX"),
    (2, "AF_INET"),
    (10, "AF_INET6"),
    (16, "AF_NETLINK"),
    (17, "AF_PACKET"),
];
/// Types are numbers in the low bits, shown whole where no flag is with them.
const TYPES: &[(u64, &str)] = &[
    (1, "SOCK_STREAM"),
    (2, "SOCK_DGRAM"),
    (3, "SOCK_RAW"),
    (5, "SOCK_SEQPACKET"),
    (0o2000001, "SOCK_STREAM|SOCK_CLOEXEC"),
    (0o2000002, "SOCK_DGRAM|SOCK_CLOEXEC"),
    (0o2000003, "SOCK_RAW|SOCK_CLOEXEC"),
    (0o4001, "SOCK_STREAM|SOCK_NONBLOCK"),
    (0o4002, "SOCK_DGRAM|SOCK_NONBLOCK"),
    (0o2004001, "SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK"),
    (0o2004002, "SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK"),
];
const SOCK_FLAGS: &[(u64, &str)] = &[(0o4000, "SOCK_NONBLOCK"), (0o2000000, "SOCK_CLOEXEC")];
const MSG: &[(u64, &str)] = &[
    (0, "0"),
    (1, "MSG_OOB"),
    (2, "MSG_PEEK"),
    (4, "MSG_DONTROUTE"),
    (0x20, "MSG_TRUNC"),
    (0x40, "MSG_DONTWAIT"),
    (0x80, "MSG_EOR"),
    (0x100, "MSG_WAITALL"),
    (0x2000, "MSG_ERRQUEUE"),
    (0x4000, "MSG_NOSIGNAL"),
    (0x8000, "MSG_MORE"),
    (0x10000, "MSG_WAITFORONE"),
    (0x2000_0000, "MSG_FASTOPEN"),
    (0x4000_0000, "MSG_CMSG_CLOEXEC"),
];
const HOW: &[(u64, &str)] = &[(0, "SHUT_RD"), (1, "SHUT_WR"), (2, "SHUT_RDWR")];
const LEVELS: &[(u64, &str)] = &[
    (0, "SOL_IP"),
    (1, "SOL_SOCKET"),
    (6, "SOL_TCP"),
    (17, "SOL_UDP"),
    (41, "SOL_IPV6"),
    (270, "SOL_NETLINK"),
];

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(
        41,
        "socket",
        &[Arg::Enum(FAMILIES), Arg::Enum(TYPES), Arg::Int],
        socket,
    )
    .note("AF_UNIX, AF_INET and AF_INET6 over loopback, NETLINK_ROUTE"),
    Call::new(
        42,
        "connect",
        &[Arg::Fd, Arg::SockAddr(2), Arg::Int],
        connect,
    ),
    Call::new(43, "accept", &[Arg::Fd, Arg::Ptr, Arg::Ptr], accept),
    Call::new(
        44,
        "sendto",
        &[
            Arg::Fd,
            Arg::In(2),
            Arg::Uint,
            Arg::Flags(MSG),
            Arg::SockAddr(5),
            Arg::Int,
        ],
        sendto,
    ),
    Call::new(
        45,
        "recvfrom",
        &[
            Arg::Fd,
            Arg::Out,
            Arg::Uint,
            Arg::Flags(MSG),
            Arg::Ptr,
            Arg::Ptr,
        ],
        recvfrom,
    ),
    Call::new(
        46,
        "sendmsg",
        &[Arg::Fd, Arg::Ptr, Arg::Flags(MSG)],
        sendmsg,
    ),
    Call::new(
        47,
        "recvmsg",
        &[Arg::Fd, Arg::Ptr, Arg::Flags(MSG)],
        recvmsg,
    ),
    Call::new(48, "shutdown", &[Arg::Fd, Arg::Enum(HOW)], shutdown),
    Call::new(49, "bind", &[Arg::Fd, Arg::SockAddr(2), Arg::Int], bind),
    Call::new(50, "listen", &[Arg::Fd, Arg::Int], listen),
    Call::new(
        51,
        "getsockname",
        &[Arg::Fd, Arg::Ptr, Arg::Ptr],
        getsockname,
    ),
    Call::new(
        52,
        "getpeername",
        &[Arg::Fd, Arg::Ptr, Arg::Ptr],
        getpeername,
    ),
    Call::new(
        53,
        "socketpair",
        &[Arg::Enum(FAMILIES), Arg::Enum(TYPES), Arg::Int, Arg::FdPair],
        socketpair,
    ),
    Call::new(
        54,
        "setsockopt",
        &[Arg::Fd, Arg::Enum(LEVELS), Arg::Int, Arg::In(4), Arg::Int],
        setsockopt,
    ),
    Call::new(
        55,
        "getsockopt",
        &[Arg::Fd, Arg::Enum(LEVELS), Arg::Int, Arg::Ptr, Arg::Ptr],
        getsockopt,
    ),
    Call::new(
        288,
        "accept4",
        &[Arg::Fd, Arg::Ptr, Arg::Ptr, Arg::Flags(SOCK_FLAGS)],
        accept4,
    ),
    Call::new(
        299,
        "recvmmsg",
        &[Arg::Fd, Arg::Ptr, Arg::Uint, Arg::Flags(MSG), Arg::Timespec],
        recvmmsg,
    ),
    Call::new(
        307,
        "sendmmsg",
        &[Arg::Fd, Arg::Ptr, Arg::Uint, Arg::Flags(MSG)],
        sendmmsg,
    ),
];
