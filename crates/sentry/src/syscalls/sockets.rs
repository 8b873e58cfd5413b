//! Sockets (`net/socket.c`): the objects are in the `net` crate, with their time limits; the
//! caller's numbers and the application's memory are here.

use super::SysResult;
use super::args::*;
use super::events::install_pair;
use super::io::{call, iovec};
use super::time::timespec_arg;
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

named! {
    /// A family of addresses.
    struct Family(i32) {
        AF_UNSPEC = 0,
        AF_UNIX = 1,
        AF_INET = 2,
        AF_INET6 = 10,
        AF_NETLINK = 16,
        AF_PACKET = 17,
    }
}

flags! {
    /// Of accept4(2), and with a socket's type.
    struct SocketFlags: u32, kept {
        SOCK_NONBLOCK = O_NONBLOCK,
        SOCK_CLOEXEC = vfs::file::O_CLOEXEC,
    }
}

named! {
    /// A socket's type, without flags.
    struct SocketKind(u32) {
        SOCK_STREAM = 1,
        SOCK_DGRAM = 2,
        SOCK_RAW = 3,
        SOCK_RDM = 4,
        SOCK_SEQPACKET = 5,
    }
}

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

named! {
    /// What shutdown(2) ends.
    struct ShutdownHow(u32) {
        SHUT_RD = 0,
        SHUT_WR = 1,
        SHUT_RDWR = 2,
    }
}

named! {
    /// Whose an option is.
    struct OptionLevel(i32) {
        SOL_IP = 0,
        SOL_SOCKET = 1,
        SOL_TCP = 6,
        SOL_UDP = 17,
        SOL_IPV6 = 41,
        SOL_NETLINK = 270,
    }
}

/// `sizeof(struct sockaddr_storage)`.
const MAX_ADDR: usize = 128;
/// `net.core.optmem_max`: the most ancillary data of one message.
const MAX_CONTROL: usize = 131_072;
/// `UIO_MAXIOV`.
const MAX_IOV: usize = 1024;
const MSG_WAITFORONE: u32 = MsgFlags::MSG_WAITFORONE.bits();
/// Flags of send that only the kernel itself may use (`MSG_INTERNAL_SENDMSG_FLAGS`): taken away.
const INTERNAL: u32 = 0x0811_0000;
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
fn addr_in(mm: &Mm, from: AddressIn<i32>) -> Result<Vec<u8>> {
    let len = usize::try_from(from.len).map_err(|_| EINVAL)?;
    if len > MAX_ADDR {
        return Err(EINVAL);
    }
    let mut v = vec![0; len];
    mm.copy_in(from.va, &mut v)?;
    Ok(v)
}

/// Where an address goes, and where its length is told, before and after.
#[derive(Clone, Copy)]
struct AddressOut {
    va: Va,
    len: UserPtr<i32>,
}

impl AddressOut {
    /// Copies an address out, cut to the room there is, and its whole length (`move_addr_to_user`).
    fn write(self, mm: &Mm, addr: &[u8]) -> Result<()> {
        let room = usize::try_from(self.len.read(mm)?).map_err(|_| EINVAL)?;
        mm.copy_out(self.va, &addr[..addr.len().min(room)])?;
        self.len.write(mm, &(addr.len() as i32))
    }
}

impl Nullable for AddressOut {}

impl Argument for AddressOut {
    const WORDS: usize = 2;
    const KIND: Kind = Kind::Address;
    const SHOW: Show = Show::Written(|mm, raw, result| {
        let len = mm.read_obj::<i32>(Va(raw[1]));
        match (result, len) {
            (Some(_), Ok(len)) if raw[0] != 0 => {
                let shown = text::sockaddr_at(mm, raw[0], len.max(0) as usize);
                format!("{shown}, [{len}]")
            }
            _ => format!("{}, {}", text::pointer(raw[0]), text::pointer(raw[1])),
        }
    });
    fn decode(raw: &[u64]) -> Result<Self> {
        Ok(AddressOut {
            va: Va(raw[0]),
            len: UserPtr::new(Va(raw[1])),
        })
    }
}

/// A socket's type, and flags with it.
///
/// ```text
///  31                        4 3      0
/// +---------------------------+--------+
/// | SOCK_CLOEXEC, SOCK_NONBL. |  type  |
/// +---------------------------+--------+
/// ```
///
/// Other flags give `EINVAL` before anything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SocketType {
    kind: SocketKind,
    flags: SocketFlags,
}

impl Argument for SocketType {
    const SHOW: Show = Show::Words(|raw| {
        let (kind, flags) = (raw[0] & 0xf, raw[0] as u32 as u64 & !0xf);
        match (SocketKind::SHOW, SocketFlags::SHOW) {
            (Show::Words(show), _) if flags == 0 => show(&[kind]),
            (Show::Words(kind_text), Show::Words(flags_text)) => {
                format!("{}|{}", kind_text(&[kind]), flags_text(&[flags]))
            }
            _ => text::hex(raw[0]),
        }
    });
    fn decode(raw: &[u64]) -> Result<Self> {
        let raw = raw[0] as u32;
        Ok(SocketType {
            kind: SocketKind(raw & 0xf),
            flags: SocketFlags::from_bits(raw & !0xf).ok_or(EINVAL)?,
        })
    }
}

fn file_of(cx: &Context, s: Arc<Socket>, flags: SocketFlags) -> Arc<File> {
    let flags = (flags & SocketFlags::SOCK_NONBLOCK).bits();
    File::new(s, O_RDWR | flags, None, cx.cred())
}

/// `socket(family, type, protocol)`.
fn socket(cx: &mut Context, family: Family, of: SocketType, protocol: i32) -> SysResult {
    let s = as_caller(cx, |who| {
        net::socket(&cx.ns().net, family.0, of.kind.0, protocol, who)
    })?;
    let f = file_of(cx, s, of.flags);
    cx.files()
        .install(f, CloseOnExec::from_flags(of.flags.bits()), &cx.room())
        .map(|n| n as usize)
}

/// `socketpair(family, type, protocol, fds)`.
fn socketpair(
    cx: &mut Context,
    family: Family,
    of: SocketType,
    protocol: i32,
    fds: UserOut<[i32; 2]>,
) -> SysResult {
    let (x, y) = as_caller(cx, |who| {
        net::socketpair(&cx.ns().net, family.0, of.kind.0, protocol, who)
    })?;
    let files = [file_of(cx, x, of.flags), file_of(cx, y, of.flags)];
    install_pair(cx, fds, files, of.flags.bits())
}

/// `bind(fd, addr, len)`.
fn bind(cx: &mut Context, fd: Fd, addr: AddressIn<i32>) -> SysResult {
    let f = fd.file(cx)?;
    let s = socket_of(&f)?;
    let addr = addr_in(&cx.mm(), addr)?;
    as_caller(cx, |who| s.bind(who, &addr)).map(|()| 0)
}

/// `connect(fd, addr, len)`.
fn connect(cx: &mut Context, fd: Fd, addr: AddressIn<i32>) -> SysResult {
    let f = fd.file(cx)?;
    let s = socket_of(&f)?;
    let addr = addr_in(&cx.mm(), addr)?;
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
fn listen(cx: &mut Context, fd: Fd, backlog: i32) -> SysResult {
    let f = fd.file(cx)?;
    let s = socket_of(&f)?;
    as_caller(cx, |who| s.listen(who, backlog)).map(|()| 0)
}

/// `accept(fd, addr, len)`.
fn accept(cx: &mut Context, fd: Fd, peer: Option<AddressOut>) -> SysResult {
    accept4(cx, fd, peer, SocketFlags::empty())
}
/// `accept4(fd, addr, len, flags)`.
fn accept4(cx: &mut Context, fd: Fd, peer: Option<AddressOut>, flags: SocketFlags) -> SysResult {
    if !SocketFlags::all().contains(flags) {
        return Err(EINVAL);
    }
    let f = fd.file(cx)?;
    let s = socket_of(&f)?;
    // The number first: a full table must not lose a connection.
    let table = cx.files();
    cx.cred().may_take_more(ENFILE)?;
    let slot = table.reserve(&cx.room())?;
    let new =
        call(cx, &f, f.nonblocking()).wait(Events::READABLE, s.receive_timeout(), || s.accept())?;
    if let Some(out) = peer {
        let name = new.peer_name().map_err(|_| ECONNABORTED)?;
        out.write(&cx.mm(), &name)?;
    }
    let close = CloseOnExec::from_flags(flags.bits());
    Ok(slot.install(file_of(cx, new, flags), close) as usize)
}

/// `getsockname(fd, addr, len)`.
fn getsockname(cx: &mut Context, fd: Fd, out: AddressOut) -> SysResult {
    let f = fd.file(cx)?;
    let name = socket_of(&f)?.local_name()?;
    out.write(&cx.mm(), &name).map(|()| 0)
}
/// `getpeername(fd, addr, len)`.
fn getpeername(cx: &mut Context, fd: Fd, out: AddressOut) -> SysResult {
    let f = fd.file(cx)?;
    let name = socket_of(&f)?.peer_name()?;
    out.write(&cx.mm(), &name).map(|()| 0)
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
        Some(addr_in(
            &mm,
            AddressIn {
                va: Va(h.name),
                len: h.name_len,
            },
        )?)
    };
    let mut src = iovec(&mm, Va(h.iov), h.iov_len as usize)?;
    if h.control_len > MAX_CONTROL as u64 {
        return Err(ENOBUFS);
    }
    let mut raw = vec![0; h.control_len as usize];
    mm.copy_in(Va(h.control), &mut raw)?;
    let mut control = Control::parse(&raw, &mut |fd| Fd(fd).file(cx))?;
    if let Some(u) = &mut control.cred {
        *u = claimed(cx, *u)?;
    }
    send_on(cx, f, &mut src, dest.as_deref(), control, flags & !INTERNAL)
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
fn receive_on(cx: &Context, f: &File, dst: &mut UserIo<'_>, flags: u32) -> Result<Received> {
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

fn receive_message(cx: &Context, f: &File, va: Va, flags: u32) -> SysResult {
    let mm = cx.mm();
    let h = header(&mm, va)?;
    let mut dst = iovec(&mm, Va(h.iov), h.iov_len as usize)?;
    let mut r = receive_on(cx, f, &mut dst, flags)?;
    if let Some(u) = &mut r.control.cred {
        *u = shown(cx, *u);
    }
    if h.name != 0 {
        let out = AddressOut {
            va: Va(h.name),
            len: UserPtr::new(va.offset(NAME_LEN)),
        };
        out.write(&mm, &r.addr)?;
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
fn recvmsg(cx: &mut Context, fd: Fd, msg: Va, flags: MsgFlags) -> SysResult {
    let flags = flags.native()?;
    let f = fd.file(cx)?;
    socket_of(&f)?;
    receive_message(cx, &f, msg, flags)
}

/// `recvmmsg(fd, msgs, count, flags, timeout)`. As on Linux, the time is looked at only between messages.
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

/// `shutdown(fd, how)`.
fn shutdown(cx: &mut Context, fd: Fd, how: ShutdownHow) -> SysResult {
    let f = fd.file(cx)?;
    socket_of(&f)?.shutdown(how.0).map(|()| 0)
}

/// The longest option value that is looked at.
const MAX_OPTION: usize = 4096;

/// `setsockopt(fd, level, name, value, len)`.
fn setsockopt(
    cx: &mut Context,
    fd: Fd,
    level: OptionLevel,
    name: i32,
    value: BytesIn<i32>,
) -> SysResult {
    let len = usize::try_from(value.len).map_err(|_| EINVAL)?;
    let f = fd.file(cx)?;
    let s = socket_of(&f)?;
    let mut v = vec![0; len.min(MAX_OPTION)];
    cx.mm().copy_in(value.va, &mut v)?;
    s.set_option(&cx.cred(), level.0, name, &v).map(|()| 0)
}

/// `getsockopt(fd, level, name, value, len)`.
fn getsockopt(
    cx: &mut Context,
    fd: Fd,
    level: OptionLevel,
    name: i32,
    value: Va,
    len: UserPtr<i32>,
) -> SysResult {
    let f = fd.file(cx)?;
    let s = socket_of(&f)?;
    let mm = cx.mm();
    let room = usize::try_from(len.read(&mm)?).map_err(|_| EINVAL)?;
    let mut v = s.get_option(level.0, name)?;
    if level == OptionLevel::SOL_SOCKET
        && name == net::SO_PEERCRED
        && let Some(u) = Ucred::decode(&v)
    {
        v = shown(cx, u).encode();
    }
    let n = v.len().min(room);
    mm.copy_out(value, &v[..n])?;
    len.write(&mm, &(n as i32))?;
    Ok(0)
}

calls! {
    socket: "AF_UNIX, AF_INET and AF_INET6 over loopback, NETLINK_ROUTE",
    connect,
    accept,
    sendto,
    recvfrom,
    sendmsg,
    recvmsg,
    shutdown,
    bind,
    listen,
    getsockname,
    getpeername,
    socketpair,
    setsockopt,
    getsockopt,
    accept4,
    recvmmsg,
    sendmmsg,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_comes_with_flags() {
        let close = vfs::file::O_CLOEXEC;
        let of = SocketType::decode(&[u64::from(close | 2)]);
        assert_eq!(
            of,
            Ok(SocketType {
                kind: SocketKind::SOCK_DGRAM,
                flags: SocketFlags::SOCK_CLOEXEC
            })
        );
        // No such flag, whatever the type is.
        assert_eq!(SocketType::decode(&[0x11]), Err(EINVAL));
        let Show::Words(show) = SocketType::SHOW else {
            panic!("it shows memory");
        };
        assert_eq!(show(&[1]), "SOCK_STREAM");
        assert_eq!(show(&[u64::from(close | 1)]), "SOCK_STREAM|SOCK_CLOEXEC");
    }
}
