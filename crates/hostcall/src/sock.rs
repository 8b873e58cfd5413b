//! Sockets between our own processes: bounded packets that can carry descriptors. And pipes.

use crate::{HostFd, RawFd, sys};
use abi::Result;
use abi::errno::{EBADMSG, EINVAL};

/// Descriptors that one packet carries at most.
pub const MAX_FDS: usize = 64;

/// Room for a control message with [`MAX_FDS`] descriptors: a `cmsghdr` is 16 bytes.
const CONTROL_WORDS: usize = 2 + MAX_FDS / 2;

/// A pair of connected `SOCK_SEQPACKET` sockets, close-on-exec.
pub fn seqpacket_pair() -> Result<(HostFd, HostFd)> {
    let mut fds = [0i32; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors.
    unsafe { sys!(Socketpair, libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }?;
    Ok((HostFd::from_raw(fds[0]), HostFd::from_raw(fds[1])))
}

/// A pair of connected stream sockets that do not block, close-on-exec.
pub fn stream_pair() -> Result<(HostFd, HostFd)> {
    let mut fds = [0i32; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: room for two descriptors.
    unsafe { sys!(Socketpair, libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }?;
    Ok((HostFd::from_raw(fds[0]), HostFd::from_raw(fds[1])))
}

/// A pipe's two ends, to read from and to write to, close-on-exec.
pub fn pipe() -> Result<(HostFd, HostFd)> {
    let mut fds = [0i32; 2];
    // SAFETY: room for two descriptors.
    unsafe { sys!(Pipe2, fds.as_mut_ptr(), libc::O_CLOEXEC) }?;
    Ok((HostFd::from_raw(fds[0]), HostFd::from_raw(fds[1])))
}

/// Sends one packet with descriptors.
pub fn send(fd: RawFd, bytes: &[u8], fds: &[RawFd]) -> Result<usize> {
    send_with(fd, bytes, fds, 0)
}

/// As [`send`]; `EAGAIN` where there is no room for the packet: the other side does not read.
pub fn try_send(fd: RawFd, bytes: &[u8], fds: &[RawFd]) -> Result<usize> {
    send_with(fd, bytes, fds, libc::MSG_DONTWAIT)
}

fn send_with(fd: RawFd, bytes: &[u8], fds: &[RawFd], flags: i32) -> Result<usize> {
    if fds.len() > MAX_FDS {
        return Err(EINVAL);
    }
    let mut control = [0u64; CONTROL_WORDS];
    control[0] = 16 + 4 * fds.len() as u64;
    control[1] = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
    for (i, f) in fds.iter().enumerate() {
        control[2 + i / 2] |= u64::from(*f as u32) << (32 * (i % 2));
    }
    let mut iov = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { core::mem::zeroed() };
    msg.msg_iov = &raw mut iov;
    msg.msg_iovlen = 1;
    if !fds.is_empty() {
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = (16 + 4 * fds.len()).next_multiple_of(8);
    }
    loop {
        // SAFETY: the header points to what outlives the call.
        match unsafe { sys!(Sendmsg, fd, &raw const msg, libc::MSG_NOSIGNAL | flags) } {
            Err(abi::errno::EINTR) => {}
            r => return r,
        }
    }
}

/// Receives one packet; 0 bytes at the end. `EBADMSG` where it did not fit. Descriptors that do not
/// fit, or for which this process has no number left, are missing.
pub fn recv(fd: RawFd, buf: &mut [u8]) -> Result<(usize, Vec<HostFd>)> {
    recv_with(fd, buf, 0)
}

/// As [`recv`]; `EAGAIN` where no packet is there.
pub fn try_recv(fd: RawFd, buf: &mut [u8]) -> Result<(usize, Vec<HostFd>)> {
    recv_with(fd, buf, libc::MSG_DONTWAIT)
}

fn recv_with(fd: RawFd, buf: &mut [u8], flags: i32) -> Result<(usize, Vec<HostFd>)> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { core::mem::zeroed() };
    msg.msg_iov = &raw mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of_val(&control);
    let n = loop {
        // SAFETY: the header points to what outlives the call.
        match unsafe { sys!(Recvmsg, fd, &raw mut msg, libc::MSG_CMSG_CLOEXEC | flags) } {
            Err(abi::errno::EINTR) => {}
            r => break r?,
        }
    };
    let mut fds = Vec::new();
    let len = control[0] as usize;
    let is_rights = control[1] == libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
    if msg.msg_controllen >= 16 && is_rights && len >= 16 && len <= size_of_val(&control) {
        for i in 0..(len - 16) / 4 {
            let f = (control[2 + i / 2] >> (32 * (i % 2))) as u32 as RawFd;
            fds.push(HostFd::from_raw(f));
        }
    }
    if msg.msg_flags & libc::MSG_TRUNC != 0 {
        return Err(EBADMSG);
    }
    Ok((n, fds))
}
