//! What `ip` and its user say to each other.

use crate::tcp;
use crate::time::Instant;
use abi::errno::{self, Errno};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};

/// What a device and its user tell each other with a frame: `struct virtio_net_hdr`, as AF_PACKET
/// has it (`PACKET_VNET_HDR`): 10 bytes of the machine's byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameMeta {
    /// [`FrameMeta::NEEDS_CSUM`], [`FrameMeta::DATA_VALID`].
    pub flags: u8,
    pub gso_type: u8,
    /// Ethernet, IP and transport headers together, in bytes.
    pub hdr_len: u16,
    /// The payload of each segment but the last, in bytes.
    pub gso_size: u16,
    /// Where summing begins, from the frame's start.
    pub csum_start: u16,
    /// Where the sum goes, from `csum_start`.
    pub csum_offset: u16,
}

impl FrameMeta {
    pub const LEN: usize = 10;
    /// The transport's checksum is that of the pseudo header only; what comes so is right.
    pub const NEEDS_CSUM: u8 = 1;
    /// The transport's checksum is right.
    pub const DATA_VALID: u8 = 2;
    pub const GSO_NONE: u8 = 0;
    pub const GSO_TCPV4: u8 = 1;
    /// A datagram that is larger than the device's MTU.
    pub const GSO_UDP: u8 = 3;
    pub const GSO_TCPV6: u8 = 4;
    /// Several datagrams in one.
    pub const GSO_UDP_L4: u8 = 5;
    pub const GSO_ECN: u8 = 0x80;

    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0] = self.flags;
        b[1] = self.gso_type;
        b[2..4].copy_from_slice(&self.hdr_len.to_ne_bytes());
        b[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        b[6..8].copy_from_slice(&self.csum_start.to_ne_bytes());
        b[8..10].copy_from_slice(&self.csum_offset.to_ne_bytes());
        b
    }

    #[must_use]
    pub fn from_bytes(b: &[u8; Self::LEN]) -> FrameMeta {
        let word = |at: usize| u16::from_ne_bytes([b[at], b[at + 1]]);
        FrameMeta {
            flags: b[0],
            gso_type: b[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        }
    }

    /// Whether the transport's checksum needs no look.
    #[must_use]
    pub fn is_summed(&self) -> bool {
        self.flags & (Self::NEEDS_CSUM | Self::DATA_VALID) != 0
    }

    /// The kind of super-segment, without the ECN bit.
    #[must_use]
    pub fn gso_kind(&self) -> u8 {
        self.gso_type & !Self::GSO_ECN
    }
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    Yes,
    /// The device has no room now: nothing was sent.
    Full,
}

/// The devices.
pub trait Link: Send + Sync {
    /// Sends a frame by the device of this index: the headers are the first of `parts`, which are
    /// at most 16. It is called without any lock held.
    fn send(&self, device: u32, meta: &FrameMeta, parts: &[&[u8]]) -> Sent;
    /// A frame passes by the loopback device, out and in.
    fn looped(&self, _meta: &FrameMeta, _frame: &[u8]) {}
    /// Whether what may leave at all includes this packet, which rules of the namespace have sent
    /// elsewhere than its sender said, by a guarded device. It begins with its IP header and has
    /// all headers.
    fn permits(&self, _packet: &[u8]) -> bool {
        true
    }
    /// Whether it forbids this packet whatever came before: that it answers one does not help.
    fn denies(&self, _packet: &[u8]) -> bool {
        false
    }
}

/// To how many a packet was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cast {
    #[default]
    Unicast,
    Broadcast,
    Multicast,
}

/// Of a packet that came, what is not in its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// The index of the device.
    pub device: u32,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class, with the ECN bits.
    pub tos: u8,
    pub cast: Cast,
    /// IPv6's flow label.
    pub flow: u32,
    /// Of the transport.
    pub protocol: u8,
    /// The bytes before the transport's header: IP's header with options or extension headers.
    pub header: u16,
    /// Rules say that somebody else has sent it than its header said.
    pub renamed: bool,
}

/// Two ends, as this host sees them. The scope of a link-local IPv6 address is the device's index,
/// of all others 0; flow labels are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Pair {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// Whether somebody wanted what came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    Yes,
    No,
    /// Somebody did who has no room for it.
    Lost,
    /// Somebody did whose filter does not want it.
    Refused,
}

/// Which packet of ours an ICMP error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    pub protocol: u8,
    /// Where its transport's header begins.
    pub header: u16,
    /// Ports are 0 where the protocol has none. Of an echo request the local port is its
    /// identifier.
    pub pair: Pair,
    /// Of a TCP segment its sequence number, which tells a forged error.
    pub tcp_seq: Option<tcp::Seq>,
}

/// Who tells of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// This stack: a neighbour that does not answer.
    Local,
    /// An ICMP message (`SO_EE_ORIGIN_ICMP`, `SO_EE_ORIGIN_ICMP6` by family).
    Icmp,
}

/// How a transport that has a connection takes an error (RFC 1122 4.2.3.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The next try may succeed: told only to those who ask (`IP_RECVERR`).
    Soft,
    /// The socket fails with it.
    Hard,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    Unreachable,
    /// The largest packet, which the caller believes after a look at the pair and at `tcp_seq`
    /// (`Ip::path_mtu_learnt`).
    PacketTooBig(u32),
    TimeExceeded,
    ParameterProblem,
    SourceQuench,
}

/// An ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    pub kind: ErrorKind,
    /// What Linux makes of it (`icmp_err_convert`, `icmpv6_err_convert`).
    pub errno: Errno,
    pub severity: Severity,
    pub origin: Origin,
    pub icmp_type: u8,
    pub code: u8,
    /// `ee_info`: an MTU, a pointer, or 0.
    pub info: u32,
}

/// The transports. It is called without any lock held.
pub trait Upper {
    /// A TCP segment to an address of ours. `No`: it is answered with a reset.
    fn tcp(&self, now: Instant, pair: Pair, segment: tcp::Segment, info: &Info) -> Taken;
    /// A datagram; several of `gro` bytes each (the last may be shorter) where
    /// [`Upper::wants_joined`] said so. `No`: it is answered with ICMP's "port unreachable".
    fn udp(&self, now: Instant, pair: Pair, payload: Bytes, gro: Option<u16>, info: &Info)
    -> Taken;
    /// Whether the socket of this pair takes several datagrams at once (`UDP_GRO`).
    fn wants_joined(&self, _pair: &Pair) -> bool {
        false
    }
    /// An error about a packet that may have been ours: the quoted packet's source is a local
    /// address. `quoted` begins with its IP header and is cut somewhere; `info` is of the message.
    fn icmp_error(
        &self,
        now: Instant,
        about: About,
        error: IcmpError,
        offender: IpAddr,
        quoted: &[u8],
        info: &Info,
    );
    /// Every other ICMP message (echo replies above all).
    fn icmp(&self, now: Instant, from: IpAddr, to: IpAddr, message: Bytes, info: &Info);
    /// A whole IP packet for this host, for raw sockets: asked only if [`Upper::wants_raw`].
    /// `Yes`: a protocol that is not known here is not refused.
    fn raw(&self, now: Instant, packet: &[u8], info: &Info) -> Taken;
    fn wants_raw(&self) -> bool;
}

/// A way to an address. It holds until [`crate::ip::Ip::generation`] changes or `expires` passes;
/// then it is asked for anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The place in `Setup::devices`.
    pub device: usize,
    /// The device's index.
    pub index: u32,
    pub to: IpAddr,
    pub source: IpAddr,
    pub next_hop: IpAddr,
    /// Whether the next hop is a router.
    pub gateway: Gateway,
    pub cast: Cast,
    /// The largest IP packet: what has been learnt of the path, the route's, the device's.
    pub mtu: u32,
    /// The largest IP packet of the device alone.
    pub link_mtu: u32,
    /// Frames stay below this length, in bytes with all headers; 0: the device cuts nothing.
    pub gso_max: u32,
    pub generation: u64,
    /// Of source and destination, keyed: identifications are counted by it.
    pub(super) ident: u64,
    /// When a path MTU that has been learnt is forgotten.
    pub expires: Option<Instant>,
}

impl Path {
    /// The largest payload of a super-segment: a multiple of `mss`, and at least one.
    /// `headers` are the bytes of the IP and the transport header.
    #[must_use]
    pub fn largest_payload(&self, mss: u16, headers: usize) -> usize {
        let mss = usize::from(mss.max(1));
        let frame = (self.gso_max as usize).saturating_sub(1);
        let room = frame.saturating_sub(super::wire::ETHERNET).min(65_535);
        mss * (room.saturating_sub(headers) / mss).max(1)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gateway {
    Yes,
    No,
}

/// Why an address is not reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRoute {
    /// ENETUNREACH.
    Network,
    /// EHOSTUNREACH: a route says so.
    Host,
    /// EACCES.
    Prohibited,
    /// EINVAL, as Linux has it.
    Blackhole,
    /// The address is one of this host's: packets to it do not leave.
    Local,
    /// The source is no address of this host: EINVAL.
    Source,
    /// There is no such device, or it is down: ENODEV.
    Device,
}

impl NoRoute {
    /// What Linux answers; `Local` has none of its own.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            NoRoute::Network | NoRoute::Local => errno::ENETUNREACH,
            NoRoute::Host => errno::EHOSTUNREACH,
            NoRoute::Prohibited => errno::EACCES,
            NoRoute::Blackhole | NoRoute::Source => errno::EINVAL,
            NoRoute::Device => errno::ENODEV,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// EMSGSIZE, and the largest packet.
    TooBig(u32),
    /// The source is no address of this host: EINVAL.
    Source,
    /// Headers or lengths that cannot be: EINVAL.
    Invalid,
    /// The device has gone or is down: ENETDOWN.
    Device,
    /// No more neighbours are kept: ENOBUFS.
    NoBuffers,
    /// Rules refuse it: EPERM.
    Denied,
}

impl SendError {
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            SendError::TooBig(_) => errno::EMSGSIZE,
            SendError::Source | SendError::Invalid => errno::EINVAL,
            SendError::Device => errno::ENETDOWN,
            SendError::NoBuffers => errno::ENOBUFS,
            SendError::Denied => errno::EPERM,
        }
    }
}

/// What a sender thinks of fragments (`IP_MTU_DISCOVER`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pmtu {
    /// Fragments at the path's MTU, and routers may cut further.
    Dont,
    /// What is larger than the path's MTU is cut here, all else may not be cut.
    #[default]
    Want,
    /// What is larger than the path's MTU is refused.
    Do,
    /// What is larger than the device's MTU is refused; the path's is not looked at.
    Probe,
    /// As `Probe`, but routers may cut.
    Interface,
    /// Cut at the device's MTU; routers may cut further.
    Omit,
}

/// What is in an IP header by a socket's options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    pub ttl: u8,
    pub tos: u8,
    /// IPv6's flow label: 20 bits.
    pub flow: u32,
    pub pmtu: Pmtu,
    /// `SO_MARK`, which rules see and change.
    pub mark: u32,
    /// The user and group of the socket.
    pub owner: Option<(u32, u32)>,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks {
            ttl: 64,
            tos: 0,
            flow: 0,
            pmtu: Pmtu::Want,
            mark: 0,
            owner: None,
        }
    }
}

/// A packet of a raw socket.
#[derive(Clone, Copy, Debug)]
pub enum Raw<'a> {
    /// With its header (`IP_HDRINCL`): length, checksum, and where they are 0 source and
    /// identification of an IPv4 header are filled in.
    Whole(&'a [u8]),
    Payload {
        from: IpAddr,
        to: IpAddr,
        protocol: u8,
        payload: &'a [u8],
    },
}
