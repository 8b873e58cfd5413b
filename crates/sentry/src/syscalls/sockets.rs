//! Sockets (`net/socket.c`): making and connecting them, their options. The objects are in the
//! `net` crate, with their time limits; the caller's numbers and the application's memory are here.
//! What they send is in [`super::messages`].

use super::SysResult;
use super::args::*;
use super::descriptors::install_pair;
use super::io::call;
use crate::task::Context;
use abi::errno::*;
use abi::linux::{O_NONBLOCK, O_RDWR};
use abi::{Result, Va};
use mm::Mm;
use net::sys::AF_UNIX;
use net::{Block, PathNames, Socket, TableChange, TableQuery, Ucred};
use std::any::Any;
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::file::File;
use vfs::ucounts;
use vfs::{At, Credentials};
use wait::Events;

named! {
    /// A family of addresses.
    pub(super) struct Family(i32) {
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
    pub(super) struct SocketFlags: u32, kept {
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
    pub(super) struct OptionLevel(i32) {
        SOL_IP = 0,
        SOL_SOCKET = 1,
        SOL_TCP = 6,
        SOL_UDP = 17,
        SOL_IPV6 = 41,
        SOL_NETLINK = 270,
    }
}

/// `sizeof(struct sockaddr_storage)`.
pub(super) const MAX_ADDR: usize = 128;
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
    fn net_namespace(&self, of: net::NamespaceOf) -> Result<Arc<net::NetNamespace>> {
        let cx = self.0;
        match of {
            net::NamespaceOf::Process(n) => {
                let net = cx.task.find_task(n)?.ns().net.clone();
                Ok(Arc::clone(&**net))
            }
            net::NamespaceOf::File(n) => {
                let f = Fd(n).any_file(cx)?;
                match f.ops::<crate::ns::nsfs::NsFile>().map(|f| &f.0) {
                    Some(crate::ns::nsfs::NsRef::Net(n)) => Ok(Arc::clone(&***n)),
                    _ => Err(EINVAL),
                }
            }
        }
    }
    fn command(&self) -> String {
        String::from_utf8_lossy(&self.0.comm()).into_owned()
    }
    fn files_limit(&self) -> u64 {
        self.0.nofile_limit()
    }
}

/// Runs a call with the caller's identity.
pub(super) fn as_caller<R>(cx: &Context, f: impl FnOnce(&net::Caller<'_>) -> R) -> R {
    let cred: Arc<Credentials> = cx.cred();
    f(&net::Caller {
        pid: cx.group.tgid,
        number: cx.group.pid.own(),
        any_pid: cred.has_in(&cx.pid.ns.user, vfs::Caps::SYS_ADMIN),
        cred: &cred,
        paths: &Names(cx),
        has_signal: &|| cx.has_signal_work(),
    })
}

pub(super) fn socket_of(f: &File) -> Result<&Socket> {
    f.ops::<Socket>().ok_or(ENOTSOCK)
}

/// Copies an address in (`move_addr_to_kernel`).
pub(super) fn addr_in(mm: &Mm, from: AddressIn<i32>) -> Result<Vec<u8>> {
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
pub(super) struct AddressOut {
    pub va: Va,
    pub len: UserPtr<i32>,
}

impl AddressOut {
    /// Copies an address out, cut to the room there is, and its whole length (`move_addr_to_user`).
    pub fn write(self, mm: &Mm, addr: &[u8]) -> Result<()> {
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
pub(super) struct SocketType {
    kind: SocketKind,
    pub(super) flags: SocketFlags,
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

pub(super) fn file_of(cx: &Context, s: Arc<Socket>, flags: SocketFlags) -> Arc<File> {
    let flags = (flags & SocketFlags::SOCK_NONBLOCK).bits();
    File::new(s, O_RDWR | flags, None, cx.cred())
}

/// `socket(family, type, protocol)`.
fn socket(cx: &mut Context, family: Family, of: SocketType, protocol: i32) -> SysResult {
    let f = new_socket(cx, family, of, protocol)?;
    cx.files()
        .install(f, CloseOnExec::from_flags(of.flags.bits()), &cx.room())
        .map(|n| n as usize)
}

pub(super) fn new_socket(
    cx: &Context,
    family: Family,
    of: SocketType,
    protocol: i32,
) -> Result<Arc<File>> {
    let s = as_caller(cx, |who| {
        net::socket(&cx.ns().net, family.0, of.kind.0, protocol, who)
    })?;
    Ok(file_of(cx, s, of.flags))
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
    let f = fd.file(cx)?;
    if !SocketFlags::all().contains(flags) {
        return Err(EINVAL);
    }
    let s = socket_of(&f)?;
    // The number first: a full table must not lose a connection.
    let table = cx.files();
    cx.cred().may_take_more(ENFILE)?;
    let slot = table.reserve(&cx.room())?;
    let new =
        call(cx, &f, f.nonblocking()).wait(Events::READABLE, s.receive_timeout(), || s.accept())?;
    if let Some(out) = peer {
        let name = new.accepted_name().map_err(|_| ECONNABORTED)?;
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

/// An option that is asked for without a value, as the caller sees it.
pub(super) fn option_of(
    cx: &Context,
    s: &net::Socket,
    level: OptionLevel,
    name: i32,
) -> Result<Vec<u8>> {
    let v = s.get_option(level.0, name)?;
    if level == OptionLevel::SOL_SOCKET && name == net::SO_PEERPIDFD {
        let u = Ucred::decode(&v).filter(|u| u.pid != 0).ok_or(ENODATA)?;
        let fd = super::pidfd::of_process(cx, u.pid)?;
        return Ok(fd.to_le_bytes().to_vec());
    }
    if level == OptionLevel::SOL_SOCKET && name == net::SO_PEERGROUPS {
        let ns = &cx.cred().user_ns;
        let groups = v.as_chunks::<4>().0.iter();
        let shown = groups.map(|g| ns.gid_shown(u32::from_le_bytes(*g)));
        return Ok(shown.flat_map(u32::to_le_bytes).collect());
    }
    let is_peer = level == OptionLevel::SOL_SOCKET && name == net::SO_PEERCRED;
    let peer = is_peer.then(|| Ucred::decode(&v)).flatten();
    Ok(peer.map_or(v, |u| shown(cx, u).encode()))
}

/// A `struct ucred` in the caller's numbers.
pub(super) fn shown(cx: &Context, u: Ucred) -> Ucred {
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

/// `shutdown(fd, how)`.
fn shutdown(cx: &mut Context, fd: Fd, how: ShutdownHow) -> SysResult {
    let f = fd.file(cx)?;
    socket_of(&f)?.shutdown(how.0).map(|()| 0)
}

/// The longest option value that is looked at: a `struct group_filter` of 64 sources is of 8,336
/// bytes.
const MAX_OPTION: usize = 16 << 10;

/// `setsockopt(fd, level, name, value, len)`.
fn setsockopt(
    cx: &mut Context,
    fd: Fd,
    level: OptionLevel,
    name: i32,
    value: BytesIn<i32>,
) -> SysResult {
    let f = fd.file(cx)?;
    set_option(cx, socket_of(&f)?, level, name, value)
}

pub(super) fn set_option(
    cx: &Context,
    s: &Socket,
    level: OptionLevel,
    name: i32,
    value: BytesIn<i32>,
) -> SysResult {
    let len = usize::try_from(value.len).map_err(|_| EINVAL)?;
    if let Some(t) = s.table_change(level.0, name) {
        return change_table(cx, &t, value.va, len);
    }
    let mut v = vec![0; len.min(MAX_OPTION)];
    cx.mm().copy_in(value.va, &mut v)?;
    if level.0 == net::sys::SOL_PACKET && name == net::PACKET_FANOUT_DATA {
        v = filter(cx, &v)?;
    }
    if level == OptionLevel::SOL_SOCKET {
        match name {
            net::SO_ATTACH_FILTER | net::SO_ATTACH_REUSEPORT_CBPF => v = filter(cx, &v)?,
            net::SO_ATTACH_BPF | net::SO_ATTACH_REUSEPORT_EBPF if v.len() == 4 => {
                let number = v.first_chunk().map_or(-1, |b| i32::from_le_bytes(*b));
                Fd(number).file(cx)?;
            }
            _ => {}
        }
    }
    s.set_option(&cx.cred(), level.0, name, &v).map(|()| 0)
}

/// An option that changes iptables' tables: its value is long, and tells where counters go.
fn change_table(cx: &Context, t: &TableChange<'_>, from: Va, len: usize) -> SysResult {
    t.may(&cx.cred())?;
    if len > TableChange::MOST {
        return Err(ENOMEM);
    }
    let work = len as u64 * TableChange::WORK;
    let charge = cx
        .cred()
        .ucounts()
        .charge(ucounts::Kind::Kmem, work, u64::MAX);
    let _charge = charge.ok_or(ENOMEM)?;
    let mut v = vec![0; len];
    cx.mm().copy_in(from, &mut v)?;
    if let Some(old) = t.apply(&v)? {
        // (The new table is in place, whether or not they can be told.)
        let _ = cx.mm().copy_out(Va(old.to), &old.bytes);
    }
    Ok(0)
}

/// The value of an option that asks for iptables' tables, with what it is asked with.
fn table_of(cx: &Context, t: &TableQuery<'_>, at: Va, room: usize) -> Result<Vec<u8>> {
    let mut asked = vec![0; t.asks(&cx.cred(), room)?];
    cx.mm().copy_in(at, &mut asked)?;
    t.value(&asked, room)
}

/// The instructions of a `struct sock_fprog`.
fn filter(cx: &Context, v: &[u8]) -> Result<Vec<u8>> {
    let v: [u8; 16] = v.try_into().map_err(|_| EINVAL)?;
    let ([a, b, ..], code) = v.split_at(8) else {
        return Err(EINVAL);
    };
    let len = usize::from(u16::from_le_bytes([*a, *b]));
    let code = code.try_into().map_err(|_| EINVAL)?;
    if len == 0 || len > net::FILTER_MOST || code == [0; 8] {
        return Err(EINVAL);
    }
    let mut insns = vec![0; len * net::FILTER_INSN];
    cx.mm().copy_in(Va(u64::from_le_bytes(code)), &mut insns)?;
    Ok(insns)
}

/// `GROUP_FILTER_SIZE(0)`: what a filter of a group is asked for with.
const GROUP_FILTER: usize = 144;
/// The room that SO_BINDTODEVICE wants for a device's name.
const IFNAMSIZ: usize = 16;

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
    if let Some(a) = s.answer(level.0, name, room) {
        mm.copy_out(value, &a.bytes)?;
        len.write(&mm, &(a.told as i32))?;
        return a.error.map_or(Ok(0), Err);
    }
    // Some are asked for with a value.
    let mut asked = [0; GROUP_FILTER];
    let n = match (level.0, name) {
        (net::sys::SOL_PACKET, _) => room.min(4),
        (net::sys::SOL_IP | net::sys::SOL_IPV6, net::IP_MSFILTER | net::MCAST_MSFILTER) => {
            room.min(asked.len())
        }
        _ => 0,
    };
    mm.copy_in(value, &mut asked[..n])?;
    let by_value = (n > 0)
        .then(|| s.option_of(level.0, name, &asked[..n]))
        .flatten();
    let v = match (s.table_query(level.0, name), by_value) {
        (Some(t), _) => table_of(cx, &t, value, room)?,
        (None, Some(v)) => v?,
        (None, None) => option_of(cx, s, level, name)?,
    };
    let is_name = level == OptionLevel::SOL_SOCKET && name == net::SO_BINDTODEVICE;
    if is_name && !v.is_empty() && room < IFNAMSIZ {
        return Err(EINVAL);
    }
    let is_groups = level == OptionLevel::SOL_SOCKET && name == net::SO_PEERGROUPS;
    if is_groups && v.len() > room {
        len.write(&mm, &(v.len() as i32))?;
        return Err(ERANGE);
    }
    let n = v.len().min(room);
    mm.copy_out(value, &v[..n])?;
    len.write(&mm, &(n as i32))?;
    Ok(0)
}

calls! {
    socket: "AF_UNIX, AF_INET and AF_INET6 over loopback and devices, AF_PACKET, NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_NETFILTER (nf_tables, conntrack) and NETLINK_KOBJECT_UEVENT (silent)",
    connect,
    accept,
    shutdown,
    bind,
    listen,
    getsockname,
    getpeername,
    socketpair,
    setsockopt: "no TCP_REPAIR, _MD5SIG, _AO_*, _ULP, _RTO_*, TCP_SAVE_SYN with link headers; no SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_EBPF, SO_RESERVE_MEM; SO_ATTACH_FILTER of TCP not for a connection inside that was begun before; no IP_OPTIONS, IP_ROUTER_ALERT, IPsec policies; no sticky IPv6 extension headers, IPV6_MTU, IPV6_RECVPATHMTU's message; SO_TIMESTAMPING tells of what UDP and TCP sent alone; no PACKET_FANOUT_FLAG_DEFRAG, PACKET_VNET_HDR",
    getsockopt: "what setsockopt lacks",
    accept4,
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
