//! The entries of a table as programs lay them out (`struct ipt_entry`, `struct ip6t_entry`,
//! `struct xt_entry_match`, `struct xt_entry_target`; `include/uapi/linux/netfilter*`).

use crate::packet::{Packet, Version};
use crate::table::Family;
use abi::Result;
use abi::errno::EINVAL;
use std::net::IpAddr;

/// `struct xt_entry_match` and `struct xt_entry_target`: length, name, revision.
pub(super) const PART: usize = 32;
const NAME: usize = 29;
/// What is told at the beginning of a chain, and its end.
const ERROR_TEXT: usize = 30;
/// `XT_RETURN`.
const RETURN: i32 = -5;
const IFNAMSIZ: usize = 16;

const GOTO_V4: u8 = 2;
const GOTO_V6: u8 = 4;
const KNOWN_V4: u8 = 3;
const KNOWN_V6: u8 = 7;
const KNOWN_INVERSIONS: u8 = 0x7f;
const NOT_INPUT: u8 = 1;
const NOT_OUTPUT: u8 = 2;
const NOT_FROM: u8 = 8;
const NOT_TO: u8 = 0x10;
const NOT_FRAGMENT: u8 = 0x20;
const NOT_PROTOCOL: u8 = 0x40;
/// The flag of fragments (IPv4), and of a protocol (IPv6).
const FRAGMENT: u8 = 1;
const PROTOCOL: u8 = 1;

/// Where the fields of an entry are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub family: Family,
    /// Bytes of what describes packets.
    pub header: usize,
    pub target_offset: usize,
    pub hooks: usize,
    pub counters: usize,
    /// Bytes before the first match.
    pub size: usize,
}

impl Layout {
    pub fn of(family: Family) -> Layout {
        let (header, target_offset, counters) = match family {
            Family::V6 => (136, 140, 152),
            _ => (84, 88, 96),
        };
        Layout {
            family,
            header,
            target_offset,
            hooks: target_offset + 4,
            counters,
            size: counters + 16,
        }
    }

    fn version(&self) -> Version {
        self.family.version()
    }

    /// Of one address.
    fn address(&self) -> usize {
        match self.version() {
            Version::V4 => 4,
            Version::V6 => 16,
        }
    }
}

fn u16_at(b: &[u8], at: usize) -> usize {
    let b = b.get(at..).and_then(|b| b.first_chunk());
    u16::from_ne_bytes(b.copied().unwrap_or_default()).into()
}

/// A match or a target of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    /// Where it begins in its table.
    pub at: usize,
    bytes: &'a [u8],
}

impl<'a> Part<'a> {
    pub fn len(&self) -> usize {
        u16_at(self.bytes, 0)
    }

    /// Without the zero that ends it; `EINVAL` if there is none, or it is no text.
    pub fn name(&self) -> Result<&'a str> {
        let b = self.bytes.get(2..2 + NAME).ok_or(EINVAL)?;
        let end = b.iter().position(|c| *c == 0).ok_or(EINVAL)?;
        std::str::from_utf8(&b[..end]).map_err(|_| EINVAL)
    }

    fn is(&self, name: &[u8]) -> bool {
        let b = &self.bytes[2..];
        b.starts_with(name) && b.get(name.len()) == Some(&0)
    }

    pub fn revision(&self) -> u8 {
        self.bytes.get(PART - 1).copied().unwrap_or(0)
    }

    pub fn info(&self) -> &'a [u8] {
        self.bytes.get(PART..self.len()).unwrap_or_default()
    }
}

/// An entry whose offsets are known to be good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// Where it begins in its table.
    pub at: usize,
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> Entry<'a> {
    /// The one that begins there (`check_entry_size_and_hooks`, `xt_check_entry_offsets`).
    ///
    /// # Errors
    ///
    /// `EINVAL`.
    pub fn read(table: &'a [u8], at: usize, layout: Layout) -> Result<Entry<'a>> {
        let rest = table.get(at..).ok_or(EINVAL)?;
        if !at.is_multiple_of(8) || layout.size >= rest.len() {
            return Err(EINVAL);
        }
        let len = u16_at(rest, layout.target_offset + 2);
        let bytes = rest.get(..len).ok_or(EINVAL)?;
        if len < layout.size + PART {
            return Err(EINVAL);
        }
        let e = Entry { at, bytes, layout };
        let known = match layout.version() {
            Version::V4 => KNOWN_V4,
            Version::V6 => KNOWN_V6,
        };
        if e.flags() & !known != 0 || e.inversions() & !KNOWN_INVERSIONS != 0 {
            return Err(EINVAL);
        }
        e.check_target()?;
        e.check_matches()?;
        Ok(e)
    }

    fn check_target(&self) -> Result<()> {
        let at = self.target_offset();
        if at < self.layout.size || at + PART > self.len() {
            return Err(EINVAL);
        }
        let t = self.target();
        if t.len() < PART || at + t.len() > self.len() {
            return Err(EINVAL);
        }
        if t.is(b"") {
            // (A verdict has four bytes, whatever length is said.)
            let end = (at + PART + 4).next_multiple_of(8);
            let verdict = self.bytes.get(at + PART..).and_then(|b| b.first_chunk());
            let verdict = i32::from_ne_bytes(*verdict.ok_or(EINVAL)?);
            let known = verdict > 0 || matches!(verdict, RETURN | -4 | -2 | -1);
            if end != self.len() || !known {
                return Err(EINVAL);
            }
        } else if self.is_error() {
            let text = t.info();
            let ends = text.len() >= ERROR_TEXT && text[..ERROR_TEXT].contains(&0);
            if t.len() != (PART + ERROR_TEXT).next_multiple_of(8) || !ends {
                return Err(EINVAL);
            }
        }
        Ok(())
    }

    fn check_matches(&self) -> Result<()> {
        let mut at = self.layout.size;
        let end = self.target_offset();
        while at < end {
            let len = u16_at(self.bytes, at);
            if !at.is_multiple_of(8) || end - at < PART || len < PART || len > end - at {
                return Err(EINVAL);
            }
            at += len;
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn target_offset(&self) -> usize {
        u16_at(self.bytes, self.layout.target_offset)
    }

    pub fn target(&self) -> Part<'a> {
        self.part(self.target_offset())
    }

    fn part(&self, at: usize) -> Part<'a> {
        Part {
            at: self.at + at,
            bytes: &self.bytes[at..],
        }
    }

    pub fn matches(&self) -> impl Iterator<Item = Part<'a>> {
        let mut at = self.layout.size;
        std::iter::from_fn(move || {
            let found = (at < self.target_offset()).then(|| self.part(at))?;
            at += found.len();
            Some(found)
        })
    }

    /// The verdict, where this is the target (`XT_STANDARD_TARGET`).
    pub fn verdict(&self) -> Option<i32> {
        let t = self.target();
        let b = t.is(b"").then(|| t.bytes.get(PART..)?.first_chunk())??;
        Some(i32::from_ne_bytes(*b))
    }

    /// Whether it begins a chain, or ends the table (`XT_ERROR_TARGET`).
    pub fn is_error(&self) -> bool {
        self.target().is(b"ERROR")
    }

    /// What describes packets.
    pub fn header(&self) -> &'a [u8] {
        &self.bytes[..self.layout.header]
    }

    fn byte(&self, from_end: usize) -> u8 {
        // (IPv6's is filled up to a multiple of four.)
        let end = match self.layout.version() {
            Version::V4 => 84,
            Version::V6 => 133,
        };
        self.bytes[end - from_end]
    }

    fn flags(&self) -> u8 {
        self.byte(2)
    }

    fn inversions(&self) -> u8 {
        self.byte(1)
    }

    /// Whether its verdict is to go on with the next entry, as of a rule that only counts.
    pub fn goes_on(&self) -> bool {
        let next = self.at + self.len();
        self.verdict().is_some_and(|v| v > 0 && v as usize == next)
    }

    pub fn is_goto(&self) -> bool {
        let goto = match self.layout.version() {
            Version::V4 => GOTO_V4,
            Version::V6 => GOTO_V6,
        };
        self.flags() & goto != 0
    }

    /// Whether it is about all packets.
    pub fn is_unconditional(&self) -> bool {
        self.target_offset() == self.layout.size && self.header().iter().all(|b| *b == 0)
    }

    /// Whether its verdict ends a chain whatever comes.
    pub fn ends(&self) -> bool {
        self.is_unconditional() && self.verdict().is_some_and(|v| v < 0)
    }

    /// Whether it may be a policy, and which (`check_underflow`).
    pub fn policy(&self) -> Option<bool> {
        let v = self.verdict().filter(|_| self.is_unconditional())?;
        matches!(v, -1 | -2).then_some(v == -2)
    }

    /// The protocol that its packets are of; inverted: of which they are not.
    pub fn protocol(&self) -> (u16, bool) {
        let at = self.layout.address() * 4 + IFNAMSIZ * 4;
        let protocol = u16_at(self.bytes, at) as u16;
        (protocol, self.inversions() & NOT_PROTOCOL != 0)
    }
}

/// A device's name, and which of its bits count: `eth+` has four bytes of them.
#[derive(Clone, Copy, Debug)]
struct Name {
    bits: u128,
    mask: u128,
}

impl Name {
    fn read(b: &[u8], at: usize) -> Name {
        let word = |at: usize| {
            let b = b.get(at..).and_then(|b| b.first_chunk());
            u128::from_ne_bytes(b.copied().unwrap_or_default())
        };
        Name {
            bits: word(at),
            mask: word(at + IFNAMSIZ * 2),
        }
    }

    /// Without a device, the name is empty.
    fn has(&self, name: &str) -> bool {
        let mut b = [0; IFNAMSIZ];
        for (to, from) in b.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        (u128::from_ne_bytes(b) ^ self.bits) & self.mask == 0
    }
}

/// What an entry says itself of its packets (`struct ipt_ip`, `struct ip6t_ip6`): addresses,
/// devices, protocol, fragments.
#[derive(Clone, Debug)]
pub struct Header {
    version: Version,
    /// Source and destination, each with its mask.
    ends: [(u128, u128); 2],
    input: Name,
    output: Name,
    protocol: Option<u16>,
    /// Whether packets are to be what is left of a fragmented one.
    fragment: bool,
    not: u8,
}

impl Header {
    pub(super) fn read(e: &Entry<'_>) -> Header {
        let (b, version, len) = (e.header(), e.layout.version(), e.layout.address());
        let ip = |n: usize| -> u128 {
            let b = &b[n * len..(n + 1) * len];
            b.iter().fold(0, |all, one| all << 8 | u128::from(*one))
        };
        // (IPv4 has both addresses before both masks; so has IPv6.)
        let names = len * 4;
        let (protocol, _) = e.protocol();
        let by_protocol = match version {
            Version::V4 => protocol != 0,
            Version::V6 => {
                e.flags() & PROTOCOL != 0 && (protocol != 0 || e.inversions() & NOT_PROTOCOL != 0)
            }
        };
        Header {
            version,
            ends: [(ip(0), ip(2)), (ip(1), ip(3))],
            input: Name::read(b, names),
            output: Name::read(b, names + IFNAMSIZ),
            protocol: by_protocol.then_some(protocol),
            fragment: version == Version::V4 && e.flags() & FRAGMENT != 0,
            not: e.inversions(),
        }
    }

    /// Whether a packet is so (`ip_packet_match`, `ip6_packet_match`).
    #[must_use]
    pub fn matches(&self, p: &Packet<'_>) -> bool {
        let is = |bit: u8, found: bool| found != (self.not & bit != 0);
        let name = |d: Option<crate::packet::Device<'_>>, want: &Name| {
            want.mask == 0 || want.has(d.map_or("", |d| d.name))
        };
        let protocol = self
            .protocol
            .is_none_or(|n| is(NOT_PROTOCOL, u16::from(p.protocol) == n));
        let fragment =
            self.version == Version::V6 || is(NOT_FRAGMENT, !self.fragment || p.is_rest());
        protocol
            && fragment
            && is(NOT_FROM, self.has(0, p.from))
            && is(NOT_TO, self.has(1, p.to))
            && is(NOT_INPUT, name(p.input, &self.input))
            && is(NOT_OUTPUT, name(p.output, &self.output))
    }

    fn has(&self, end: usize, ip: IpAddr) -> bool {
        let (want, mask) = self.ends[end];
        match ip {
            // (Bits of the address that the mask has not are never those of a packet.)
            IpAddr::V4(a) => u128::from(a.to_bits()) & mask == want,
            IpAddr::V6(a) => (a.to_bits() ^ want) & mask == 0,
        }
    }
}
