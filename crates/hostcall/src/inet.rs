//! Sockets of the host's network, for sandboxes that are given it. None of these calls blocks:
//! every such socket is made non-blocking.

use crate::{HostFd, MemSlice, RawFd, sys};
use abi::Result;
use abi::errno::{EINTR, EINVAL};
use core::mem::MaybeUninit;

/// The longest address (`struct sockaddr_storage`).
pub const ADDR_MAX: usize = 128;
/// The most ancillary data of one message that is passed on.
pub const CONTROL_MAX: usize = 1024;

/// `socket(2)`.
pub fn socket(family: i32, kind: i32, protocol: i32) -> Result<HostFd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { sys!(Socket, family, kind, protocol) }?;
    Ok(HostFd::from_raw(fd as RawFd))
}

/// `bind(2)`.
pub fn bind(fd: RawFd, addr: &[u8]) -> Result<()> {
    // SAFETY: the address is as long as said.
    unsafe { sys!(Bind, fd, addr.as_ptr(), addr.len()) }?;
    Ok(())
}

/// `connect(2)`.
pub fn connect(fd: RawFd, addr: &[u8]) -> Result<()> {
    // SAFETY: the address is as long as said.
    unsafe { sys!(Connect, fd, addr.as_ptr(), addr.len()) }?;
    Ok(())
}

/// `listen(2)`.
pub fn listen(fd: RawFd, backlog: i32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(Listen, fd, backlog) }?;
    Ok(())
}

/// `accept4(2)`.
pub fn accept(fd: RawFd) -> Result<HostFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no address is asked for.
    let fd = unsafe { sys!(Accept4, fd, 0, 0, flags) }?;
    Ok(HostFd::from_raw(fd as RawFd))
}

/// `shutdown(2)`.
pub fn shutdown(fd: RawFd, how: i32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(Shutdown, fd, how) }?;
    Ok(())
}

/// `getsockname(2)`.
pub fn local_name(fd: RawFd) -> Result<Vec<u8>> {
    let (mut buf, mut len) = ([0u8; ADDR_MAX], ADDR_MAX as u32);
    // SAFETY: room for the longest address, and its length.
    unsafe { sys!(Getsockname, fd, buf.as_mut_ptr(), &raw mut len) }?;
    Ok(buf[..(len as usize).min(ADDR_MAX)].to_vec())
}

/// `getpeername(2)`.
pub fn peer_name(fd: RawFd) -> Result<Vec<u8>> {
    let (mut buf, mut len) = ([0u8; ADDR_MAX], ADDR_MAX as u32);
    // SAFETY: as above.
    unsafe { sys!(Getpeername, fd, buf.as_mut_ptr(), &raw mut len) }?;
    Ok(buf[..(len as usize).min(ADDR_MAX)].to_vec())
}

/// `setsockopt(2)`.
pub fn set_option(fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    // SAFETY: the value is as long as said.
    unsafe { sys!(Setsockopt, fd, level, name, value.as_ptr(), value.len()) }?;
    Ok(())
}

/// `getsockopt(2)`, into at most `room` bytes.
pub fn option(fd: RawFd, level: i32, name: i32, room: usize) -> Result<Vec<u8>> {
    let mut buf = vec![0u8; room];
    let mut len = u32::try_from(room).map_err(|_| EINVAL)?;
    // SAFETY: room as long as said.
    unsafe { sys!(Getsockopt, fd, level, name, buf.as_mut_ptr(), &raw mut len) }?;
    buf.truncate(len as usize);
    Ok(buf)
}

/// `sendmsg(2)`: `control` as it lies in memory. `EPIPE` without a signal.
pub fn send(
    fd: RawFd,
    data: &[MemSlice<'_>],
    to: Option<&[u8]>,
    control: &[u8],
    flags: i32,
) -> Result<usize> {
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    msg.msg_iov = data.as_ptr().cast_mut().cast();
    msg.msg_iovlen = data.len().min(1024);
    if let Some(a) = to {
        msg.msg_name = a.as_ptr().cast_mut().cast();
        msg.msg_namelen = a.len() as u32;
    }
    if !control.is_empty() {
        msg.msg_control = control.as_ptr().cast_mut().cast();
        msg.msg_controllen = control.len();
    }
    let flags = flags | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    loop {
        // SAFETY: the header points to what outlives the call; `MemSlice` is laid out as `iovec`.
        match unsafe { sys!(Sendmsg, fd, &raw const msg, flags) } {
            Err(EINTR) => {}
            r => return r,
        }
    }
}

/// What [`receive`] gives besides the bytes.
#[derive(Debug, Default)]
pub struct Message {
    pub n: usize,
    pub from: Vec<u8>,
    /// As it lies in memory.
    pub control: Vec<u8>,
    pub flags: i32,
}

/// `recvmsg(2)`. Descriptors cannot come with what the host's network sends.
pub fn receive(fd: RawFd, data: &[MemSlice<'_>], flags: i32) -> Result<Message> {
    receive_plainly(fd, data, flags | libc::MSG_CMSG_CLOEXEC)
}

/// The same, of packet sockets, which take few flags and bring no descriptors.
pub(crate) fn receive_plainly(fd: RawFd, data: &[MemSlice<'_>], flags: i32) -> Result<Message> {
    let mut name = [0u8; ADDR_MAX];
    let mut control = [0u64; CONTROL_MAX / 8];
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    msg.msg_iov = data.as_ptr().cast_mut().cast();
    msg.msg_iovlen = data.len().min(1024);
    msg.msg_name = name.as_mut_ptr().cast();
    msg.msg_namelen = ADDR_MAX as u32;
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = CONTROL_MAX;
    let flags = flags | libc::MSG_DONTWAIT;
    let n = loop {
        // SAFETY: the header points to what outlives the call; `MemSlice` is laid out as `iovec`.
        match unsafe { sys!(Recvmsg, fd, &raw mut msg, flags) } {
            Err(EINTR) => {}
            r => break r?,
        }
    };
    let bytes = control.iter().flat_map(|w| w.to_ne_bytes());
    Ok(Message {
        n,
        from: name[..(msg.msg_namelen as usize).min(ADDR_MAX)].to_vec(),
        control: bytes.take(msg.msg_controllen.min(CONTROL_MAX)).collect(),
        flags: msg.msg_flags,
    })
}

/// A set of descriptors whose readiness is told once for each change (`epoll(7)`, edge-triggered).
#[derive(Debug)]
pub struct Edges(HostFd);

impl Edges {
    pub fn new() -> Result<Edges> {
        // SAFETY: no pointers.
        let fd = unsafe { sys!(EpollCreate1, libc::EPOLL_CLOEXEC) }?;
        Ok(Edges(HostFd::from_raw(fd as RawFd)))
    }
    /// Adds a descriptor, which leaves when its last copy is closed.
    pub fn add(&self, fd: RawFd, token: u64) -> Result<()> {
        let wanted =
            libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut e = libc::epoll_event {
            events: wanted as u32,
            u64: token,
        };
        // SAFETY: one event.
        unsafe { sys!(EpollCtl, self.0.raw(), libc::EPOLL_CTL_ADD, fd, &raw mut e) }?;
        Ok(())
    }
    /// Waits for changes: tokens and `EPOLL*` bits.
    pub fn wait(&self) -> Result<Vec<(u64, u32)>> {
        const MANY: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MANY];
        // SAFETY: room for as many events as said.
        let n = unsafe { sys!(EpollWait, self.0.raw(), events.as_mut_ptr(), MANY, -1i64) }?;
        Ok(events[..n.min(MANY)]
            .iter()
            .map(|e| (e.u64, e.events))
            .collect())
    }
}

/// A set of descriptors that is asked which of them are ready (`epoll(7)`, level-triggered).
#[derive(Debug)]
pub struct Watch(HostFd);

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    Read,
    /// And to be written to.
    ReadWrite,
    Write,
    /// Only errors are told.
    Nothing,
}

impl Interest {
    fn event(self, token: u64) -> libc::epoll_event {
        let events = match self {
            Interest::Read => libc::EPOLLIN,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLOUT,
            Interest::Write => libc::EPOLLOUT,
            Interest::Nothing => 0,
        };
        libc::epoll_event {
            events: events as u32,
            u64: token,
        }
    }
}

impl Watch {
    pub fn new() -> Result<Watch> {
        // SAFETY: no pointers.
        let fd = unsafe { sys!(EpollCreate1, libc::EPOLL_CLOEXEC) }?;
        Ok(Watch(HostFd::from_raw(fd as RawFd)))
    }
    /// Adds a descriptor, which leaves when its last copy is closed.
    pub fn add(&self, fd: RawFd, token: u64, interest: Interest) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest.event(token))
    }
    pub fn change(&self, fd: RawFd, token: u64, interest: Interest) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest.event(token))
    }
    fn control(&self, what: i32, fd: RawFd, mut e: libc::epoll_event) -> Result<()> {
        // SAFETY: one event.
        unsafe { sys!(EpollCtl, self.0.raw(), what, fd, &raw mut e) }?;
        Ok(())
    }
    /// The tokens of those that are ready, at most 64; after `timeout` milliseconds none (-1:
    /// never).
    pub fn wait(&self, timeout: i32) -> Result<Vec<u64>> {
        const MANY: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MANY];
        let wait = i64::from(timeout);
        // SAFETY: room for as many events as said.
        let n = unsafe { sys!(EpollWait, self.0.raw(), events.as_mut_ptr(), MANY, wait) }?;
        Ok(events[..n.min(MANY)].iter().map(|e| e.u64).collect())
    }
}

/// An address of an interface of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub name: String,
    pub index: u32,
    /// `IFF_*`.
    pub flags: u32,
    pub address: std::net::IpAddr,
    pub prefix: u8,
}

/// The addresses of this network namespace (`getifaddrs(3)`). Opens a socket: only before the
/// allow-lists.
pub fn interfaces() -> Result<Vec<InterfaceAddress>> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let mut first: *mut libc::ifaddrs = core::ptr::null_mut();
    // SAFETY: room for one pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        let e = std::io::Error::last_os_error().raw_os_error();
        return Err(e.and_then(abi::Errno::new).unwrap_or(EINVAL));
    }
    /// SAFETY for callers: a valid `sockaddr`, as long as its family says.
    unsafe fn ip(a: *const libc::sockaddr) -> Option<IpAddr> {
        if a.is_null() {
            return None;
        }
        // SAFETY: valid, says the caller.
        match i32::from(unsafe { (*a).sa_family }) {
            libc::AF_INET => {
                // SAFETY: the family says that it is one.
                let a = unsafe { &*a.cast::<libc::sockaddr_in>() };
                Some(IpAddr::V4(Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes())))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says that it is one.
                let a = unsafe { &*a.cast::<libc::sockaddr_in6>() };
                Some(IpAddr::V6(Ipv6Addr::from(a.sin6_addr.s6_addr)))
            }
            _ => None,
        }
    }
    let mut all = Vec::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: an element of the list that getifaddrs(3) made.
        let i = unsafe { &*at };
        at = i.ifa_next;
        // SAFETY: the list's addresses are valid.
        let (Some(address), mask) = (unsafe { ip(i.ifa_addr) }, unsafe { ip(i.ifa_netmask) })
        else {
            continue;
        };
        // SAFETY: the list's names end with a zero.
        let name = unsafe { core::ffi::CStr::from_ptr(i.ifa_name) };
        let prefix = match mask {
            Some(IpAddr::V4(m)) => m.to_bits().count_ones(),
            Some(IpAddr::V6(m)) => m.to_bits().count_ones(),
            None => 0,
        };
        all.push(InterfaceAddress {
            name: name.to_string_lossy().into_owned(),
            // SAFETY: a string that ends with a zero.
            index: unsafe { libc::if_nametoindex(i.ifa_name) },
            flags: i.ifa_flags,
            address,
            prefix: prefix as u8,
        });
    }
    // SAFETY: the list, once.
    unsafe { libc::freeifaddrs(first) };
    Ok(all)
}
