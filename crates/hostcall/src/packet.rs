//! Packet sockets (`packet(7)`): all frames of one device, each behind a virtio header that says
//! what is left to be done for it (checksum, segmentation).
//!
//! A socket is opened, limited and bound before the allow-lists. What is left for later is
//! [`receive`] and [`send`], which do not wait, and [`wait`]: readv(2), sendmsg(2), poll(2).
//!
//! # Invariants
//!
//! - Frames of one device only: nothing comes in before the socket is bound.
//! - What comes in is for the device's address, for all or for a group, and has no VLAN tag. The
//!   filter that says so is locked. It goes by what the host calls the frame, so it stays right
//!   when the device gets another address.
//! - What the socket sends itself does not come back.

use crate::bpf::Insn;
use crate::{HostFd, RawFd, inet, sys};
use abi::Result;
use abi::errno::{EINTR, EINVAL, EIO};
use std::io::IoSlice;

/// `struct virtio_net_hdr`, in this machine's byte order.
pub const HEADER: usize = 10;
/// The most pieces of one frame.
pub const PARTS_MAX: usize = 31;
/// The most sockets to wait for at once.
pub const WAIT_MAX: usize = 32;

/// Bytes of frames that wait to be received. The host counts its own overhead, too: half of it is
/// payload at least. A small one stands still under load: see [`Link::receive_buffer`].
const RECEIVE_BUFFER: i32 = 8 << 20;
/// Bytes of frames that wait for the device.
const SEND_BUFFER: i32 = 4 << 20;

/// A device's socket.
#[derive(Debug)]
pub struct Link {
    pub fd: HostFd,
    /// What the host gave, in bytes as it counts them. Without the right to more it is
    /// `net.core.rmem_max`, which may be too little for a window.
    pub receive_buffer: u32,
}

/// Opens the socket of a device of this network namespace, by its index.
///
/// # Errors
///
/// `EPERM` without the right to (CAP_NET_RAW), `ENODEV` where there is no such device.
pub fn open(device: u32) -> Result<Link> {
    // Without a protocol it receives nothing.
    let fd = inet::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    let set =
        |level, name, value: i32| inet::set_option(fd.raw(), level, name, &value.to_ne_bytes());
    set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    let buffer = |force, name, bytes| {
        set(libc::SOL_SOCKET, force, bytes).or_else(|_| set(libc::SOL_SOCKET, name, bytes))
    };
    buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_BUFFER)?;
    buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER)?;
    attach(fd.raw(), &filter())?;
    set(libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)?;
    let given = inet::option(fd.raw(), libc::SOL_SOCKET, libc::SO_RCVBUF, 4)?;
    let given = given.try_into().map_err(|_| EIO)?;
    bind(fd.raw(), device)?;
    // SAFETY: no pointers.
    unsafe { sys!(Fcntl, fd.raw(), libc::F_SETFL, libc::O_NONBLOCK) }?;
    Ok(Link {
        fd,
        receive_buffer: u32::from_ne_bytes(given),
    })
}

/// Bytes of frames that wait for who looks on ([`watch`]).
pub const WATCH_BUFFER: i32 = 16 << 20;

/// Opens a socket that is shown all frames of a device of this network namespace, with their
/// times: to be read by [`look`].
///
/// # Errors
///
/// As of [`open`].
pub fn watch(device: u32) -> Result<HostFd> {
    let fd = inet::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    let set =
        |name, value: i32| inet::set_option(fd.raw(), libc::SOL_SOCKET, name, &value.to_ne_bytes());
    set(libc::SO_RCVBUFFORCE, WATCH_BUFFER).or_else(|_| set(libc::SO_RCVBUF, WATCH_BUFFER))?;
    set(libc::SO_TIMESTAMPNS, 1)?;
    bind(fd.raw(), device)?;
    Ok(fd)
}

/// The next frame of such a socket: as many bytes as there is room for, and how many there are.
/// Does not wait.
pub fn look(fd: RawFd, room: &mut [u8]) -> Result<inet::Message> {
    crate::mem::with_slice_mut(room, |m| inet::receive_plainly(fd, &[m], libc::MSG_TRUNC))
}

/// Whether a frame left by its device: by the address that it came with.
#[must_use]
pub fn is_outgoing(from: &[u8]) -> bool {
    const KIND: usize = core::mem::offset_of!(libc::sockaddr_ll, sll_pkttype);
    from.get(KIND) == Some(&libc::PACKET_OUTGOING)
}

/// When a frame passed, in nanoseconds since 1970: by the control data that it came with.
#[must_use]
pub fn time_of(control: &[u8]) -> Option<u64> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let word = |at: usize| {
        let bytes = control.get(at..at + 8)?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    };
    // (It is the first, and the only one that was asked for.)
    let kind = [libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS].map(i32::to_ne_bytes);
    (control.get(8..HEADER)? == kind.as_flattened()).then_some(())?;
    word(HEADER)?
        .checked_mul(1_000_000_000)?
        .checked_add(word(HEADER + 8)?)
}

/// How many frames found no room in a socket, since it was asked last.
pub fn drops(fd: RawFd) -> Result<u32> {
    let v = inet::option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, 8)?;
    let drops = v.get(4..8).and_then(|b| b.try_into().ok());
    drops.map(u32::from_ne_bytes).ok_or(EIO)
}

fn bind(fd: RawFd, device: u32) -> Result<()> {
    // SAFETY: an all-zero address is valid.
    let mut at: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    at.sll_family = libc::AF_PACKET as u16;
    at.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    at.sll_ifindex = i32::try_from(device).map_err(|_| EINVAL)?;
    // SAFETY: the address is as long as said.
    unsafe { sys!(Bind, fd, &raw const at, size_of_val(&at)) }?;
    Ok(())
}

/// What is received: see the module's invariants.
fn filter() -> [Insn; 8] {
    const LOAD: u16 = 0x20;
    const LOAD_HALF: u16 = 0x28;
    const EQUAL: u16 = 0x15;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    // `SKF_AD_OFF` and what follows it.
    const HAS_TAG: u32 = (-0x1000i32 + 48) as u32;
    const KIND: u32 = (-0x1000i32 + 4) as u32;
    /// `PACKET_HOST`, `PACKET_BROADCAST` and `PACKET_MULTICAST` are below it.
    const PACKET_OTHERHOST: u32 = 3;
    const ETHERTYPE: u32 = 12;
    let insn = |code, jt, jf, k| Insn { code, jt, jf, k };
    [
        insn(LOAD, 0, 0, HAS_TAG),
        insn(EQUAL, 0, 4, 0),
        insn(LOAD, 0, 0, KIND),
        insn(AT_LEAST, 2, 0, PACKET_OTHERHOST),
        insn(LOAD_HALF, 0, 0, ETHERTYPE),
        // A tag that is still in the frame (802.1ad's is 0x88a8, and always taken out by the host).
        insn(EQUAL, 0, 1, libc::ETH_P_8021Q as u32),
        insn(RETURN, 0, 0, 0),
        insn(RETURN, 0, 0, u32::MAX),
    ]
}

fn attach(fd: RawFd, code: &[Insn]) -> Result<()> {
    let program = libc::sock_fprog {
        len: code.len() as u16,
        filter: code.as_ptr().cast_mut().cast(),
    };
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the program outlives the call; `Insn` is laid out as `sock_filter`.
    unsafe {
        sys!(
            Setsockopt,
            fd,
            level,
            name,
            &raw const program,
            size_of_val(&program)
        )
    }?;
    Ok(())
}

/// What came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// So many bytes behind the virtio header. One that is longer than the buffer is cut off.
    Frame(usize),
    /// A frame that the virtio header has no words for. It is gone: go on with the next one.
    Unknown,
}

/// Receives a frame.
///
/// # Errors
///
/// `EAGAIN` where there is none. `ENETDOWN` once each time that the device goes down, or is gone.
pub fn receive(fd: RawFd, header: &mut [u8; HEADER], frame: &mut [u8]) -> Result<Received> {
    let parts = [
        libc::iovec {
            iov_base: header.as_mut_ptr().cast(),
            iov_len: HEADER,
        },
        libc::iovec {
            iov_base: frame.as_mut_ptr().cast(),
            iov_len: frame.len(),
        },
    ];
    loop {
        // SAFETY: both pieces are ours to write for as long as the call takes.
        match unsafe { sys!(Readv, fd, parts.as_ptr(), parts.len()) } {
            Err(EINTR) => {}
            Err(EINVAL) => return Ok(Received::Unknown),
            Ok(n) => {
                return Ok(n
                    .checked_sub(HEADER)
                    .map_or(Received::Unknown, Received::Frame));
            }
            Err(e) => return Err(e),
        }
    }
}

/// Waits until a socket has a frame, or an error to tell, or the bell is rung; so many milliseconds
/// at most, where the number is not negative. What was rung is over then.
///
/// # Errors
///
/// `EINTR`; `ENOMEM` where the host has none; `EINVAL` for more than [`WAIT_MAX`] sockets.
pub fn wait(
    sockets: impl ExactSizeIterator<Item = RawFd>,
    bell: Option<&Bell>,
    most: i32,
) -> Result<()> {
    let count = sockets.len();
    let mut all = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; WAIT_MAX + 1];
    let (first, rest) = all.split_first_mut().ok_or(EINVAL)?;
    first.fd = bell.map_or(-1, |b| b.0.raw());
    let rest = rest.get_mut(..count).ok_or(EINVAL)?;
    for (to, fd) in rest.iter_mut().zip(sockets) {
        to.fd = fd;
    }
    crate::file::poll(&mut all[..=count], most)?;
    if let (Some(b), true) = (bell, all[0].revents != 0) {
        b.still();
    }
    Ok(())
}

/// What ends a [`wait`].
#[derive(Debug)]
pub struct Bell(HostFd);

impl Bell {
    /// To be made before the allow-lists.
    pub fn new() -> Result<Bell> {
        // SAFETY: no pointers.
        let fd = unsafe { sys!(Eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }?;
        Ok(Bell(HostFd::from_raw(fd as RawFd)))
    }

    /// Ends the wait that is under way, or the next one.
    pub fn ring(&self) {
        // (It is full after 2^64 rings that nobody heard.)
        let _ = crate::file::write(self.0.raw(), &1u64.to_ne_bytes());
    }

    fn still(&self) {
        let _ = crate::file::read(self.0.raw(), &mut [0; 8]);
    }
}

/// Sends a frame, whose pieces follow each other.
///
/// # Errors
///
/// `EAGAIN` where the socket's buffer is full, `ENOBUFS` where the device's queue is; `ENETDOWN`
/// and `ENXIO` where the device is down or gone; `EINVAL` for a header that does not fit, or more
/// than [`PARTS_MAX`] pieces.
pub fn send(fd: RawFd, header: &[u8; HEADER], parts: &[IoSlice<'_>]) -> Result<()> {
    let mut all = [IoSlice::new(&[]); PARTS_MAX + 1];
    all[0] = IoSlice::new(header);
    let rest = all.get_mut(1..=parts.len()).ok_or(EINVAL)?;
    rest.copy_from_slice(parts);
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { core::mem::zeroed() };
    msg.msg_iov = all.as_mut_ptr().cast();
    msg.msg_iovlen = parts.len() + 1;
    loop {
        // SAFETY: `IoSlice` is laid out as `iovec`, and the pieces live as long as the call.
        match unsafe { sys!(Sendmsg, fd, &raw const msg, libc::MSG_DONTWAIT) } {
            Err(EINTR) => {}
            r => return r.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::errno::EAGAIN;
    use std::process::Command;

    const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

    /// Runs on a thread in a network namespace of its own, with two devices that are joined: their
    /// indices are 2 and 3.
    fn with_devices(test: impl FnOnce() + Send + 'static) {
        let run = move || {
            if let Err(e) = crate::start::unshare(libc::CLONE_NEWNET) {
                eprintln!("SKIPPED, not tested: no network namespace can be made ({e})");
                return;
            }
            if Command::new("ip").arg("-V").output().is_err() {
                eprintln!("SKIPPED, not tested: there is no ip(8)");
                return;
            }
            let text = "ip link add name one index 2 address 02:00:00:00:00:0a type veth \
                        peer name two index 3 address 02:00:00:00:00:0b; \
                        for d in one two; do \
                          echo 1 >/proc/sys/net/ipv6/conf/$d/disable_ipv6; ip link set $d up; \
                        done";
            let made = Command::new("sh").args(["-ec", text]).status();
            assert!(made.unwrap().success());
            test();
        };
        std::thread::spawn(run).join().unwrap();
    }

    fn frame(to: [u8; 6], from: [u8; 6], kind: u16, body: &[u8]) -> Vec<u8> {
        [&to, &from, &kind.to_be_bytes()[..], body].concat()
    }

    fn next(l: &Link) -> Result<Vec<u8>> {
        let mut p = [libc::pollfd {
            fd: l.fd.raw(),
            events: libc::POLLIN,
            revents: 0,
        }];
        if crate::file::poll(&mut p, 0)? == 0 {
            return Err(EAGAIN);
        }
        let (mut header, mut buf) = ([0; HEADER], vec![0; 70_000]);
        match receive(l.fd.raw(), &mut header, &mut buf)? {
            Received::Frame(n) => Ok(buf[..n].to_vec()),
            Received::Unknown => Err(EINVAL),
        }
    }

    #[test]
    fn what_is_received() {
        with_devices(|| {
            let (a, b) = (open(2).unwrap(), open(3).unwrap());
            assert!(a.receive_buffer >= 4 << 20, "{}", a.receive_buffer);
            let put = |f: &[u8]| {
                let (head, body) = f.split_at(14);
                let parts = [IoSlice::new(head), IoSlice::new(body)];
                send(b.fd.raw(), &[0; HEADER], &parts).unwrap();
            };
            assert_eq!(next(&a), Err(EAGAIN));
            const KIND: u16 = 0x88b5;
            let for_a = frame(A, B, KIND, &[7; 60]);
            let for_all = frame([0xff; 6], B, KIND, &[8; 60]);
            let group = frame([1, 0, 0x5e, 0, 0, 1], B, KIND, &[9; 60]);
            let other = frame([2, 9, 9, 9, 9, 9], B, KIND, &[1; 60]);
            let tagged = frame(A, B, 0x8100, &[0, 5, 0x88, 0xb5, 1, 1, 1, 1]);
            for f in [&other, &for_a, &tagged, &for_all, &other, &group] {
                put(f);
            }
            for f in [for_a, for_all, group] {
                assert_eq!(next(&a), Ok(f));
            }
            assert_eq!(next(&a), Err(EAGAIN));
            // Its own do not come back.
            assert_eq!(next(&b), Err(EAGAIN));
            // The filter stays.
            let (level, name) = (libc::SOL_SOCKET, libc::SO_DETACH_FILTER);
            let detached = inet::set_option(a.fd.raw(), level, name, &[0; 4]);
            assert_eq!(detached, Err(abi::errno::EPERM));
            let none = [IoSlice::new(&[]); PARTS_MAX + 1];
            assert_eq!(send(a.fd.raw(), &[0; HEADER], &none), Err(EINVAL));
        });
    }

    #[test]
    fn a_large_segment_arrives_as_one() {
        with_devices(|| {
            let (a, b) = (open(2).unwrap(), open(3).unwrap());
            // IPv4 and TCP, whose checksum is left to the device: a pseudo header's is there.
            let payload = vec![0x55; 20_000];
            let mut ip = [
                0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
            ];
            ip[2..4].copy_from_slice(&(40 + 20_000u16).to_be_bytes());
            let mut tcp = [0; 20];
            tcp[12] = 5 << 4;
            let head = frame(A, B, 0x0800, &[&ip[..], &tcp].concat());
            // NEEDS_CSUM from byte 34 on, at 16 in there; GSO_TCPV4 with 54 bytes of headers, by
            // 1448.
            let words = [54u16, 1448, 34, 16].map(u16::to_ne_bytes).concat();
            let header: [u8; HEADER] = [&[1, 1][..], &words].concat().try_into().unwrap();
            let parts = [IoSlice::new(&head), IoSlice::new(&payload)];
            send(b.fd.raw(), &header, &parts).unwrap();
            let (mut got, mut buf) = ([0; HEADER], vec![0; 70_000]);
            let n = receive(a.fd.raw(), &mut got, &mut buf).unwrap();
            assert_eq!(n, Received::Frame(head.len() + payload.len()));
            assert_eq!(got, header);
            assert!(buf[head.len()..][..payload.len()] == payload);
        });
    }

    #[test]
    fn devices_that_go() {
        with_devices(|| {
            assert_eq!(open(77).unwrap_err(), abi::errno::ENODEV);
            let a = open(2).unwrap();
            let ip = |words: &str| {
                let done = Command::new("ip").args(words.split(' ')).status();
                assert!(done.unwrap().success());
            };
            ip("link set one down");
            assert_eq!(next(&a), Err(abi::errno::ENETDOWN));
            assert_eq!(next(&a), Err(EAGAIN));
            let parts = [IoSlice::new(&[0; 64])];
            let sent = send(a.fd.raw(), &[0; HEADER], &parts);
            assert_eq!(sent, Err(abi::errno::ENETDOWN));
            ip("link del one");
            let sent = send(a.fd.raw(), &[0; HEADER], &parts);
            assert_eq!(sent, Err(abi::errno::ENXIO));
        });
    }
}
