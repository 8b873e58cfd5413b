//! Segments as values.

use super::fast_open::FastOpen;
use bytes::Bytes;
use std::fmt;

/// A sequence number: compared by the shorter way around (RFC 9293 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Seq(pub u32);

impl Seq {
    #[must_use]
    pub const fn plus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }
    /// How far it is behind `earlier`, at most half of the numbers; negative where it is before it.
    #[must_use]
    pub const fn distance(self, earlier: Seq) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }
    #[must_use]
    pub const fn is_before(self, other: Seq) -> bool {
        self.distance(other) < 0
    }
    #[must_use]
    pub const fn is_after(self, other: Seq) -> bool {
        self.distance(other) > 0
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

bitflags::bitflags! {
    /// The control bits of a TCP header, as they lie there.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Flags: u8 {
        const FIN = 1;
        const SYN = 2;
        const RST = 4;
        const PSH = 8;
        const ACK = 16;
        const URG = 32;
        const ECE = 64;
        const CWR = 128;
    }
}

/// RFC 7323.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamps {
    pub value: u32,
    pub echo: u32,
}

/// RFC 2018: ranges `(left, right)`, the right edge excluded; the first free place ends them.
pub type SackBlocks = [Option<(Seq, Seq)>; 4];

/// The options that are known. Unknown ones are passed over when read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    pub mss: Option<u16>,
    /// As it is on the wire: up to 255.
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    pub sack: SackBlocks,
    pub timestamps: Option<Timestamps>,
    /// Of a SYN.
    pub fast_open: Option<FastOpen>,
}

/// A TCP header without ports and checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    pub seq: Seq,
    /// Of no meaning without [`Flags::ACK`].
    pub ack: Seq,
    pub flags: Flags,
    /// Not scaled.
    pub window: u16,
    /// Of no meaning without [`Flags::URG`].
    pub urgent: u16,
    pub options: Options,
    /// Of its packet: that networks may mark it (RFC 3168's ECT). It is no part of the header.
    pub can_be_marked: bool,
}

/// A segment that came. Of a device that joins them it can be up to 64 KiB long.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    pub header: Header,
    pub payload: Bytes,
    /// The congestion-experienced mark of its IP header (RFC 3168).
    pub congestion: bool,
    /// How many segments of the wire the device has joined to this one: 1 or more.
    pub joined: u16,
    /// Its headers, from IP's on, while somebody may look at them.
    pub headers: Bytes,
}
