//! A transport's message to packets, fragments and frames.

use super::Ip;
use super::device::Dev;
use super::rules::Locality;
use super::segment;
use super::table::Table;
use super::types::{Cast, FrameMeta, Marks, Pair, Path, Pmtu, Raw, SendError, Sent};
use super::wire::{
    DONT_FRAGMENT, ETHERNET, Head, ICMP, ICMPV6, MORE_FRAGMENTS, Sum, TCP, UDP, V4, V6, be16, be32,
};
use crate::counters::Mib;
use crate::tcp::{Flags, Header};
use crate::time::Instant;
use netfilter::conntrack::Track;
use netfilter::packet::Meta;
use netfilter::rewrite::Checksum;
use std::net::{IpAddr, Ipv4Addr};

/// The most parts of a frame, its headers included.
pub(super) const PARTS: usize = 16;
/// The longest IP packet.
const LONGEST: usize = 65_535;
/// Linux's `UDP_MAX_SEGMENTS`.
const UDP_SEGMENTS: usize = 128;

/// The most bytes of a message that rules see, beyond its header; all of a shorter one.
const SHOWN: usize = 1536;

/// What is left to the device.
#[derive(Clone, Copy, Default)]
pub(super) struct Offload {
    /// The checksum: its place in the transport's header, which has the pseudo header's sum.
    pub checksum: Option<u16>,
    /// The kind of super-segment and the payload of each segment.
    cut: Option<(u8, u16)>,
}

/// A message of a transport.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: u8,
    /// The transport's header.
    pub head: &'a [u8],
    pub payload: &'a [&'a [u8]],
    pub offload: Offload,
    /// What rules know of it.
    pub track: &'a Meta,
}

impl Message<'_> {
    pub fn len(&self) -> usize {
        self.head.len() + total(self.payload)
    }

    /// A copy of its packet's beginning, with how long the IP header is, and how many bytes of the
    /// payload are in it: of a segment none, of others those of its first part.
    pub fn beginning(&self, marks: &Marks) -> Result<(Vec<u8>, usize, usize), SendError> {
        let mut head = Head::new();
        ip_header(&mut head, self, marks, 0)?;
        let header = head.packet().len();
        let first = self.payload.first().filter(|_| self.protocol != TCP);
        let first = first.map_or(&[][..], |p| &p[..p.len().min(SHOWN)]);
        let b = [head.packet(), self.head, first].concat();
        Ok((b, header, first.len()))
    }
}

pub(super) fn total(parts: &[&[u8]]) -> usize {
    parts.iter().map(|p| p.len()).sum()
}

/// The length of an IP header of this family, without options.
fn header_of(ip: IpAddr) -> usize {
    if ip.is_ipv4() { 20 } else { 40 }
}

/// The largest packet that is sent whole.
fn limit(path: &Path, marks: &Marks) -> usize {
    let mtu = match marks.pmtu {
        Pmtu::Dont | Pmtu::Want | Pmtu::Do => path.mtu,
        Pmtu::Probe | Pmtu::Interface | Pmtu::Omit => path.link_mtu,
    };
    mtu as usize
}

/// RFC 3168: a network may mark the packet.
const CAPABLE: u8 = 2;

impl Ip {
    /// Sends a segment: where its payload, of at most 15 parts, is longer than `mss`, the device
    /// cuts it. The frame stays below `Path::gso_max` and the segments within the path's MTU, or
    /// it is refused with `TooBig`.
    pub fn send_tcp(
        &self,
        now: Instant,
        path: &Path,
        pair: Pair,
        header: &Header,
        payload: &[&[u8]],
        mss: u16,
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let (from, to) = (pair.local.ip(), pair.remote.ip());
        let mut head = [0; segment::LONGEST];
        let bytes = total(payload);
        let len = segment_header(header, pair, bytes, &mut head);
        let kind = match from {
            IpAddr::V4(_) => FrameMeta::GSO_TCPV4,
            IpAddr::V6(_) => FrameMeta::GSO_TCPV6,
        };
        let cut = (bytes > usize::from(mss)).then_some((kind, mss));
        let message = Message {
            from,
            to,
            protocol: TCP,
            head: &head[..len],
            payload,
            offload: Offload {
                checksum: Some(16),
                cut: cut.filter(|(_, mss)| *mss > 0),
            },
            track: &Meta::default(),
        };
        let capable = if header.can_be_marked { CAPABLE } else { 0 };
        let marks = Marks {
            tos: marks.tos & !3 | capable,
            ..*marks
        };
        self.send(now, path, &message, &marks)
    }

    /// Sends a segment of no connection.
    ///
    /// # Errors
    /// See [`Self::send`].
    pub fn send_answer(
        &self,
        now: Instant,
        path: &Path,
        pair: Pair,
        header: &Header,
    ) -> Result<Sent, SendError> {
        self.snmp.count(Mib::TcpOutSegs);
        if header.flags.contains(Flags::RST) {
            self.snmp.count(Mib::TcpOutRsts);
        }
        self.send_tcp(now, path, pair, header, &[], 0, &Marks::default())
    }

    /// Sends a reset that answers a packet of a connection, by an address of this host's (`own`),
    /// or to who is on a device that is not guarded by whatever name: rules speak for the host that
    /// it asked for.
    pub(super) fn send_reset(
        &self,
        now: Instant,
        path: &Path,
        (pair, reset): (Pair, &Header),
        own: Locality,
        track: &Track,
    ) -> Result<Sent, SendError> {
        let (from, to) = (pair.local.ip(), pair.remote.ip());
        let mut head = [0; segment::LONGEST];
        let len = segment_header(reset, pair, 0, &mut head);
        let known = Meta {
            track: track.of_answer(),
            ..Meta::default()
        };
        let message = Message {
            from,
            to,
            protocol: TCP,
            head: &head[..len],
            payload: &[],
            offload: Offload {
                checksum: Some(16),
                cut: None,
            },
            track: &known,
        };
        let marks = Marks::default();
        let table = self.table();
        let dev = device_of(&table, path)?;
        if own == Locality::Local || dev.is_loopback() {
            return self.send(now, path, &message, &marks);
        }
        if table.is_guarded(dev.index) {
            return Err(SendError::Source);
        }
        self.send_one(now, (&table, dev), path, &message, &marks)
    }

    /// Sends a datagram, in fragments where `marks` allow it; with `segment` several datagrams of
    /// as many bytes (`UDP_SEGMENT`), which the device cuts if it can.
    pub fn send_udp(
        &self,
        now: Instant,
        path: &Path,
        pair: Pair,
        payload: &[&[u8]],
        segment: Option<u16>,
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let (from, to) = (pair.local.ip(), pair.remote.ip());
        let len = 8 + total(payload);
        let header = header_of(to);
        if header + len > LONGEST && to.is_ipv4() || len > LONGEST {
            return Err(SendError::TooBig(path.mtu));
        }
        let cut = match segment {
            Some(0) => return Err(SendError::Invalid),
            Some(size) if len - 8 > usize::from(size) => {
                if (len - 8).div_ceil(usize::from(size)) > UDP_SEGMENTS {
                    return Err(SendError::Invalid);
                }
                if ETHERNET + header + len >= path.gso_max as usize {
                    return self.send_apart(now, path, pair, payload, size, marks);
                }
                Some((FrameMeta::GSO_UDP_L4, size))
            }
            _ => None,
        };
        let mut head = [0; 8];
        head[0..2].copy_from_slice(&pair.local.port().to_be_bytes());
        head[2..4].copy_from_slice(&pair.remote.port().to_be_bytes());
        head[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        let whole = cut.is_some() || header + len <= limit(path, marks);
        let sum = Sum::pseudo(from, to, UDP, len);
        let sum = if whole {
            sum.partial()
        } else {
            let sum = sum.add(&head);
            let sum = payload.iter().fold(sum, |sum, p| sum.add(p)).finish();
            // 0 says that there is none.
            if sum == 0 { 0xffff } else { sum }
        };
        head[6..8].copy_from_slice(&sum.to_be_bytes());
        let message = Message {
            from,
            to,
            protocol: UDP,
            head: &head,
            payload,
            offload: Offload {
                checksum: whole.then_some(6),
                cut,
            },
            track: &Meta::default(),
        };
        let sent = self.send(now, path, &message, marks)?;
        if sent == Sent::Yes {
            let (v4, v6) = (Mib::UdpOutDatagrams, Mib::Udp6OutDatagrams);
            self.snmp.count_by(to.is_ipv4(), v4, v6);
        }
        Ok(sent)
    }

    /// Sends several datagrams that the device does not take as one.
    fn send_apart(
        &self,
        now: Instant,
        path: &Path,
        pair: Pair,
        payload: &[&[u8]],
        size: u16,
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let len = total(payload);
        for first in (0..len).step_by(usize::from(size)) {
            let mut parts = [&[][..]; PARTS - 1];
            let end = len.min(first + usize::from(size));
            let n = cut(payload, first..end, &mut parts);
            let sent = self.send_udp(now, path, pair, &parts[..n], None, marks)?;
            if sent == Sent::Full && first == 0 {
                return Ok(Sent::Full);
            }
            // What is behind it is lost, as where a queue on the way is full.
            if sent == Sent::Full {
                break;
            }
        }
        Ok(Sent::Yes)
    }

    /// Sends an ICMP message, from its type on; its checksum is filled in.
    pub fn send_icmp(
        &self,
        now: Instant,
        path: &Path,
        from: IpAddr,
        to: IpAddr,
        message: &[u8],
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let (first, rest) = message.split_first_chunk().ok_or(SendError::Invalid)?;
        let message = (*first, rest, &Meta::default());
        self.send_icmp_parts(now, path, (from, to), message, marks)
    }

    /// `ends`: the source and the destination. Of the message its beginning, the rest, and what
    /// rules know of it.
    pub(super) fn send_icmp_parts(
        &self,
        now: Instant,
        path: &Path,
        ends: (IpAddr, IpAddr),
        (mut head, rest, track): ([u8; 8], &[u8], &Meta),
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let (from, to) = ends;
        if rest.len() > LONGEST {
            return Err(SendError::TooBig(path.mtu));
        }
        head[2..4].fill(0);
        let (protocol, sum) = match to {
            IpAddr::V4(_) => (ICMP, Sum::default()),
            IpAddr::V6(_) => {
                let len = head.len() + rest.len();
                (ICMPV6, Sum::pseudo(from, to, ICMPV6, len))
            }
        };
        let sum = sum.add(&head).add(rest).finish();
        head[2..4].copy_from_slice(&sum.to_be_bytes());
        let message = Message {
            from,
            to,
            protocol,
            head: &head,
            payload: &[rest],
            offload: Offload::default(),
            track,
        };
        let sent = self.send(now, path, &message, marks)?;
        if sent == Sent::Yes {
            self.count_icmp(to.is_ipv4(), head[0]);
        }
        Ok(sent)
    }

    fn count_icmp(&self, is_v4: bool, kind: u8) {
        self.snmp
            .count_by(is_v4, Mib::IcmpOutMsgs, Mib::Icmp6OutMsgs);
        let counter = match (is_v4, kind) {
            (true, 0) => Mib::IcmpOutEchoReps,
            (true, 3) => Mib::IcmpOutDestUnreachs,
            (true, 8) => Mib::IcmpOutEchos,
            (true, 11) => Mib::IcmpOutTimeExcds,
            (true, 12) => Mib::IcmpOutParmProbs,
            (false, 1) => Mib::Icmp6OutDestUnreachs,
            (false, 3) => Mib::Icmp6OutTimeExcds,
            (false, 4) => Mib::Icmp6OutParmProblems,
            (false, 128) => Mib::Icmp6OutEchos,
            (false, 129) => Mib::Icmp6OutEchoReplies,
            _ => return,
        };
        self.snmp.count(counter);
    }

    /// Sends a raw socket's packet.
    pub fn send_raw(
        &self,
        now: Instant,
        path: &Path,
        packet: Raw<'_>,
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        match packet {
            Raw::Whole(packet) => self.send_whole(now, path, packet, marks),
            Raw::Payload {
                from,
                to,
                protocol,
                payload,
            } => {
                let message = Message {
                    from,
                    to,
                    protocol,
                    head: &[],
                    payload: &[payload],
                    offload: Offload::default(),
                    track: &Meta::default(),
                };
                self.send(now, path, &message, marks)
            }
        }
    }

    /// A packet with its header is sent as it is (`raw_send_hdrinc`): never in fragments.
    fn send_whole(
        &self,
        now: Instant,
        path: &Path,
        packet: &[u8],
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let table = self.table();
        let dev = device_of(&table, path)?;
        let mut head = Head::new();
        let header = match packet.first().map(|b| (b >> 4, usize::from(b & 15) * 4)) {
            Some((4, header)) if header >= 20 && packet.len() >= header => header,
            Some((6, _)) if packet.len() >= 40 => 40,
            _ => return Err(SendError::Invalid),
        };
        if packet.len() > path.link_mtu as usize {
            return Err(SendError::TooBig(path.link_mtu));
        }
        if header == 40 && packet[0] >> 4 == 6 {
            let mut octets = [0; 16];
            octets.copy_from_slice(&packet[8..24]);
            check_source(&table, dev, path, IpAddr::V6(octets.into()))?;
            head.push(&packet[..40]);
        } else {
            let mut from = Ipv4Addr::from_bits(be32(packet, 12));
            if let (true, IpAddr::V4(source)) = (from.is_unspecified(), path.source) {
                from = source;
            }
            let to = Ipv4Addr::from_bits(be32(packet, 16));
            check_source(&table, dev, path, IpAddr::V4(from))?;
            let id = match be16(packet, 4) {
                0 => self.ident(path, IpAddr::V4(from), IpAddr::V4(to)) as u16,
                id => id,
            };
            let v4 = V4 {
                tos: packet[1],
                total: packet.len() as u16,
                id,
                fragment: be16(packet, 6),
                ttl: packet[8],
                protocol: packet[9],
                from,
                to,
            };
            v4.write(&mut head, &packet[20..header]);
        }
        if !self.rules.is_on() {
            let whole = (&FrameMeta::default(), &mut head, &[&packet[header..]][..]);
            return self.emit(now, (&table, dev), path, whole, &Meta::default());
        }
        let mut b = [head.packet(), &packet[header..]].concat();
        let len = b.len();
        let sum = Checksum::Whole;
        let (at, whole, known) = ((now, &*table), (&mut b[..], len, sum), Meta::default());
        let (path, track) = self.go_out(at, path, whole, marks, &known)?;
        let dev = device_of(&table, &path)?;
        if b.len() > path.link_mtu as usize {
            return Err(SendError::TooBig(path.link_mtu));
        }
        let mut head = Head::new();
        head.push(&b[..header]);
        let whole = (&FrameMeta::default(), &mut head, &[&b[header..]][..]);
        self.emit(now, (&table, dev), &path, whole, &track)
    }

    /// Sends a packet by a device, or turns it round where it stays on this host. `packet`: what is
    /// left to the device, the headers, the payload.
    fn emit(
        &self,
        now: Instant,
        (table, dev): (&Table, &Dev),
        path: &Path,
        packet: (&FrameMeta, &mut Head, &[&[u8]]),
        track: &Meta,
    ) -> Result<Sent, SendError> {
        let (meta, head, payload) = packet;
        if dev.is_loopback() {
            return Ok(self.turn_round((now, dev), meta, (head, payload), track));
        }
        self.output(now, table, dev, path, meta, head, payload)
    }

    fn send(
        &self,
        now: Instant,
        path: &Path,
        m: &Message<'_>,
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let table = self.table();
        let dev = device_of(&table, path)?;
        if m.from.is_ipv4() != m.to.is_ipv4() || m.payload.len() >= PARTS {
            return Err(SendError::Invalid);
        }
        check_source(&table, dev, path, m.from)?;
        if self.rules.is_on() {
            self.send_by_rules(now, &table, path, m, marks)
        } else {
            self.send_message(now, (&table, dev), path, m, marks)
        }
    }

    /// Sends a message whose ends have been looked at.
    pub(super) fn send_message(
        &self,
        now: Instant,
        at: (&Table, &Dev),
        path: &Path,
        m: &Message<'_>,
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let header = header_of(m.to);
        let len = header + m.len();
        let limit = limit(path, marks);
        if let Some((_, size)) = m.offload.cut {
            let segment = header + m.head.len() + usize::from(size);
            if segment > limit {
                return Err(SendError::TooBig(limit as u32));
            }
            let gso_max = path.gso_max as usize;
            if ETHERNET + len >= gso_max || len > LONGEST {
                return Err(SendError::TooBig(path.gso_max));
            }
            return self.send_one(now, at, path, m, marks);
        }
        if len <= limit {
            return self.send_one(now, at, path, m, marks);
        }
        let refused = matches!(marks.pmtu, Pmtu::Do | Pmtu::Probe | Pmtu::Interface);
        if refused || m.offload.checksum.is_some() || m.len() > LONGEST {
            return Err(SendError::TooBig(limit as u32));
        }
        self.send_fragments(now, at, path, m, (marks, limit))
    }

    /// A packet that is sent whole.
    fn send_one(
        &self,
        now: Instant,
        at: (&Table, &Dev),
        path: &Path,
        m: &Message<'_>,
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let mut head = Head::new();
        let id = match m.from {
            IpAddr::V4(_) => self.ident(path, m.from, m.to) as u16,
            IpAddr::V6(_) => 0,
        };
        ip_header(&mut head, m, marks, id)?;
        let mut meta = FrameMeta::default();
        if let Some(offset) = m.offload.checksum {
            meta.flags = FrameMeta::NEEDS_CSUM;
            meta.csum_start = head.len() as u16;
            meta.csum_offset = offset;
        }
        head.push(m.head);
        if let Some((kind, size)) = m.offload.cut {
            meta.gso_type = kind;
            meta.gso_size = size;
            meta.hdr_len = head.len() as u16;
        }
        let whole = (&meta, &mut head, m.payload);
        self.emit(now, at, path, whole, m.track)
    }

    /// Cuts a message (RFC 791, RFC 8200 4.5). `how`: the marks, and the largest packet.
    fn send_fragments(
        &self,
        now: Instant,
        at: (&Table, &Dev),
        path: &Path,
        m: &Message<'_>,
        how: (&Marks, usize),
    ) -> Result<Sent, SendError> {
        let (marks, limit) = how;
        let (v4, len) = (m.to.is_ipv4(), m.len());
        let headers = if v4 { 20 } else { 48 };
        let piece = limit.saturating_sub(headers) / 8 * 8;
        // IPv6's length does not count its header.
        if piece == 0 || len + if v4 { 20 } else { 0 } > LONGEST {
            return Err(SendError::TooBig(limit as u32));
        }
        let id = self.ident(path, m.from, m.to);
        for first in (0..len).step_by(piece) {
            let end = len.min(first + piece);
            let mut head = Head::new();
            fragment_header(&mut head, m, marks, id, (first, end - first, end < len));
            // The transport's header is in the first one: no MTU is as small.
            let data = if first == 0 {
                head.push(m.head);
                0..end - m.head.len()
            } else {
                first - m.head.len()..end - m.head.len()
            };
            let mut parts = [&[][..]; PARTS - 1];
            let n = cut(m.payload, data, &mut parts);
            let meta = FrameMeta::default();
            // Where there is no room for a later one, the whole is sent again under another
            // identification.
            let whole = (&meta, &mut head, &parts[..n]);
            if self.emit(now, at, path, whole, m.track)? == Sent::Full {
                self.snmp.count_by(v4, Mib::IpFragFails, Mib::Ip6FragFails);
                return Ok(Sent::Full);
            }
            self.snmp
                .count_by(v4, Mib::IpFragCreates, Mib::Ip6FragCreates);
        }
        self.snmp.count_by(v4, Mib::IpFragOks, Mib::Ip6FragOks);
        Ok(Sent::Yes)
    }
}

/// The device of a path, as it is now.
pub(super) fn device_of<'a>(table: &'a Table, path: &Path) -> Result<&'a Dev, SendError> {
    let dev = table.devices.get(path.device);
    let dev = dev.filter(|d| d.index == path.index && d.is_up());
    dev.map(|d| &**d).ok_or(SendError::Device)
}

/// No packet leaves with another's address. One without an address may be sent to all: that is how
/// an address is asked for (DHCP).
pub(super) fn check_source(
    table: &Table,
    dev: &Dev,
    path: &Path,
    from: IpAddr,
) -> Result<(), SendError> {
    let nobody = from == IpAddr::V4(Ipv4Addr::UNSPECIFIED) && path.cast == Cast::Broadcast;
    // What stays on this host may have come to look as an answer of somebody else.
    if nobody || dev.is_loopback() || table.is_own(from, dev) {
        Ok(())
    } else {
        Err(SendError::Source)
    }
}

/// A segment's header, with the sum of its pseudo header; its length. `bytes`: those behind it.
fn segment_header(
    header: &Header,
    pair: Pair,
    bytes: usize,
    head: &mut [u8; segment::LONGEST],
) -> usize {
    let len = segment::write(header, pair.local.port(), pair.remote.port(), head);
    let (from, to) = (pair.local.ip(), pair.remote.ip());
    let sum = Sum::pseudo(from, to, TCP, len + bytes).partial();
    head[16..18].copy_from_slice(&sum.to_be_bytes());
    len
}

/// The IP header of a message that is sent whole.
fn ip_header(head: &mut Head, m: &Message<'_>, marks: &Marks, id: u16) -> Result<(), SendError> {
    let len = m.len();
    match (m.from, m.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let fragment = match marks.pmtu {
                Pmtu::Want | Pmtu::Do | Pmtu::Probe => DONT_FRAGMENT,
                Pmtu::Dont | Pmtu::Interface | Pmtu::Omit => 0,
            };
            let v4 = V4 {
                tos: marks.tos,
                total: (20 + len) as u16,
                id,
                fragment,
                ttl: marks.ttl,
                protocol: m.protocol,
                from,
                to,
            };
            v4.write(head, &[]);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let v6 = V6 {
                tos: marks.tos,
                flow: marks.flow,
                len: len as u16,
                next: m.protocol,
                ttl: marks.ttl,
                from,
                to,
            };
            v6.write(head);
        }
        _ => return Err(SendError::Invalid),
    }
    Ok(())
}

/// `piece`: where the fragment begins, its length, whether more follow.
fn fragment_header(
    head: &mut Head,
    m: &Message<'_>,
    marks: &Marks,
    id: u32,
    piece: (usize, usize, bool),
) {
    let (first, len, more) = piece;
    match (m.from, m.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => V4 {
            tos: marks.tos,
            total: (20 + len) as u16,
            id: id as u16,
            fragment: (first / 8) as u16 | if more { MORE_FRAGMENTS } else { 0 },
            ttl: marks.ttl,
            protocol: m.protocol,
            from,
            to,
        }
        .write(head, &[]),
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            V6 {
                tos: marks.tos,
                flow: marks.flow,
                len: (8 + len) as u16,
                next: 44,
                ttl: marks.ttl,
                from,
                to,
            }
            .write(head);
            head.push(&[m.protocol, 0]);
            head.push(&(first as u16 | u16::from(more)).to_be_bytes());
            head.push(&id.to_be_bytes());
        }
        _ => {}
    }
}

/// The parts of `range` of what lies in `from`; tells how many.
pub(super) fn cut<'a>(
    from: &[&'a [u8]],
    range: std::ops::Range<usize>,
    to: &mut [&'a [u8]],
) -> usize {
    let (mut at, mut n) = (0, 0);
    for part in from {
        let first = range.start.max(at);
        let end = range.end.min(at + part.len());
        if first < end && n < to.len() {
            to[n] = &part[first - at..end - at];
            n += 1;
        }
        at += part.len();
    }
    n
}
