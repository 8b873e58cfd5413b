//! Rings of received packets (PACKET_RX_RING of `packet(7)`; Linux's
//! Documentation/networking/packet_mmap.rst): TPACKET_V1 and V2, a frame a packet, and TPACKET_V3,
//! blocks of packets.
//!
//! # What holds
//!
//! - Where a packet goes is decided by what is kept here, never by what the memory says. From the
//!   memory one word is read: whether the application has given a frame or a block back.
//! - A frame's or a block's status is written after all else of it.

use super::receive::Mode;
use crate::taps::Seen;
use abi::errno::EINVAL;
use abi::{PAGE_SIZE, Result};
use hostcall::MemSlice;
use netstack::time::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vfs::ring::RingMemory;

/// `enum tpacket_versions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Version {
    #[default]
    V1 = 0,
    V2 = 1,
    V3 = 2,
}

const ALIGN: usize = 16;
/// `struct sockaddr_ll`.
const ADDRESS: usize = 20;
/// `struct tpacket_block_desc`.
const BLOCK: usize = 48;
/// The most memory of one ring.
const MOST: u64 = 256 << 20;

/// `TP_STATUS_*`.
const USER: u32 = 1;
const LOSING: u32 = 4;
pub(super) const CSUM_NOT_READY: u32 = 8;
const BLOCK_TIMEOUT: u32 = 0x20;
pub(super) const CSUM_VALID: u32 = 0x80;

impl Version {
    pub fn of(n: i32) -> Result<Version> {
        match n {
            0 => Ok(Version::V1),
            1 => Ok(Version::V2),
            2 => Ok(Version::V3),
            _ => Err(EINVAL),
        }
    }

    /// `sizeof(struct tpacket_hdr)` and its kin.
    pub fn header(self) -> usize {
        match self {
            Version::V1 | Version::V2 => 32,
            Version::V3 => 48,
        }
    }

    /// `TPACKET_HDRLEN` and its kin.
    fn with_address(self) -> usize {
        self.header() + ADDRESS
    }
}

/// `struct tpacket_req3`; of the older versions the first four words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Request {
    block_size: u32,
    pub block_nr: u32,
    frame_size: u32,
    frame_nr: u32,
    /// Milliseconds.
    timeout: u32,
    private: u32,
}

impl Request {
    pub fn read(v: &[u8], version: Version) -> Result<Request> {
        let len = if version == Version::V3 { 28 } else { 16 };
        if v.len() < len {
            return Err(EINVAL);
        }
        let word = |n: usize| match v.get(4 * n..4 * n + 4) {
            Some(b) if n < len / 4 => u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            _ => 0,
        };
        Ok(Request {
            block_size: word(0),
            block_nr: word(1),
            frame_size: word(2),
            frame_nr: word(3),
            timeout: word(4),
            private: word(5),
        })
    }

    /// Whether it asks for no frames.
    pub fn is_empty(&self) -> bool {
        self.frame_nr == 0
    }

    /// Whether it asks for what a ring of frames to be sent does not have.
    pub fn asks_for_blocks(&self) -> bool {
        self.timeout != 0 || self.private != 0
    }

    /// The bytes of the whole ring; `EINVAL` for what `packet_set_ring` refuses.
    pub fn check(&self, version: Version, reserve: usize) -> Result<u64> {
        let (block, frame) = (u64::from(self.block_size), u64::from(self.frame_size));
        let least = (version.with_address() + reserve) as u64;
        let private = (BLOCK as u64) + u64::from(self.private).next_multiple_of(8);
        let per_block = block.checked_div(frame).unwrap_or(0);
        let wrong = block == 0
            || block > i32::MAX as u64
            || !block.is_multiple_of(PAGE_SIZE)
            || version == Version::V3 && block < private + least
            || frame < least
            || !frame.is_multiple_of(ALIGN as u64)
            || per_block == 0
            || per_block * u64::from(self.block_nr) != u64::from(self.frame_nr);
        if wrong {
            return Err(EINVAL);
        }
        let all = block * u64::from(self.block_nr);
        if all > MOST {
            return Err(abi::errno::ENOMEM);
        }
        Ok(all)
    }
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Put {
    /// It lies there, and the application can see it.
    Shown,
    /// It lies in a block that is still being filled.
    Kept,
    Full,
}

/// A ring.
pub(super) struct Ring {
    memory: Arc<RingMemory>,
    version: Version,
    request: Request,
    reserve: usize,
    /// The frame or the block that comes next.
    head: u32,
    block: Block,
    /// TPACKET_V3: how often it found no free block.
    pub freezes: u32,
}

/// TPACKET_V3: the block that is being filled.
#[derive(Default)]
struct Block {
    open: bool,
    frozen: bool,
    packets: u32,
    /// Where the next packet goes, and where the last one is: from the block's start.
    next: usize,
    last: usize,
    sequence: u64,
    /// When it was opened, and the last packet's time.
    due: Option<Instant>,
    first_time: i64,
    last_time: i64,
}

fn store(m: MemSlice<'_>, at: usize, bytes: &[u8]) {
    if at + bytes.len() <= m.len() {
        m.sub(at, bytes.len()).copy_from(bytes);
    }
}

fn seconds(time: i64, unit: i64) -> [u8; 8] {
    let mut b = [0; 8];
    b[..4].copy_from_slice(&((time / 1_000_000_000) as u32).to_le_bytes());
    b[4..].copy_from_slice(&((time % 1_000_000_000 / unit) as u32).to_le_bytes());
    b
}

/// Gives a frame or a block to the application.
pub(super) fn set_status(m: MemSlice<'_>, at: usize, status: u32) {
    if let Some(s) = m.sub(at, 4).atomic_u32() {
        s.store(status, Ordering::Release);
    }
}

/// Of a ring of frames to be sent, which all are of one size.
impl Ring {
    pub fn frames(&self) -> u32 {
        self.request.frame_nr
    }
    pub fn head_slot(&self) -> MemSlice<'_> {
        self.frame(self.head)
    }
    pub fn advance(&mut self) {
        self.head = (self.head + 1) % self.request.frame_nr;
    }
    pub fn header(&self) -> usize {
        self.version.header()
    }
    /// Where a frame's status is, and its length and the two offsets.
    pub fn status_at(&self) -> usize {
        match self.version {
            Version::V3 => 20,
            _ => 0,
        }
    }
    pub fn lengths_at(&self) -> (usize, usize) {
        match self.version {
            Version::V1 => (8, 16),
            Version::V2 => (4, 12),
            Version::V3 => (16, 24),
        }
    }
    pub fn has_next_offset(&self) -> bool {
        self.version == Version::V3
    }
    fn frame(&self, n: u32) -> MemSlice<'_> {
        let block = u64::from(self.request.block_size);
        let (per, frame) = (self.frames_per_block(), self.request.frame_size);
        let at = u64::from(n / per) * block + u64::from(n % per) * u64::from(frame);
        self.memory.slice(at, frame as usize)
    }
}

impl Ring {
    pub fn new(
        memory: Arc<RingMemory>,
        version: Version,
        request: Request,
        reserve: usize,
    ) -> Ring {
        Ring {
            memory,
            version,
            request,
            reserve,
            head: 0,
            block: Block::default(),
            freezes: 0,
        }
    }

    pub fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    fn frames_per_block(&self) -> u32 {
        self.request.block_size / self.request.frame_size
    }

    /// Of which there are as many as `head` counts.
    fn count(&self) -> u32 {
        match self.version {
            Version::V3 => self.request.block_nr,
            _ => self.request.frame_nr,
        }
    }

    /// A frame, or a block.
    fn slot(&self, n: u32) -> MemSlice<'_> {
        let block = u64::from(self.request.block_size);
        if self.version == Version::V3 {
            return self.memory.slice(u64::from(n) * block, block as usize);
        }
        self.frame(n)
    }

    /// Whether the application has given it back.
    fn is_free(&self, n: u32) -> bool {
        let m = self.slot(n);
        let at = if self.version == Version::V3 { 8 } else { 0 };
        if m.len() < at + 8 {
            return false;
        }
        let status = m.sub(at, 4).atomic_u32();
        status.is_some_and(|s| s.load(Ordering::Acquire) == 0)
    }

    /// Whether the frame, or the block, a quarter of the ring ahead is free.
    pub fn has_room(&self) -> bool {
        let ahead = match self.version {
            Version::V3 => self.head + 1,
            _ => self.head + self.count() / 4,
        };
        self.is_free(ahead % self.count())
    }

    /// Whether there is something to read: what was filled last is the application's.
    pub fn is_readable(&self) -> bool {
        let last = self.head.checked_sub(1).unwrap_or(self.count() - 1);
        !self.is_free(last)
    }

    /// Where a packet's bytes and its network header go, from its header on.
    fn places(&self, seen: &Seen<'_>, mode: Mode) -> (usize, usize) {
        let (full, header) = (self.version.with_address(), seen.network);
        if mode == Mode::Raw {
            let network = (full + header.max(16)).next_multiple_of(ALIGN) + self.reserve;
            (network - header, network)
        } else {
            let at = full.next_multiple_of(ALIGN) + 16 + self.reserve;
            (at, at)
        }
    }

    /// Lays a packet in: `data` is what the socket gets of its `len` bytes. `drops`: how many
    /// before it had no room, and have not been told of.
    pub fn put(
        &mut self,
        seen: &Seen<'_>,
        mode: Mode,
        (data, len): (&[u8], usize),
        drops: u32,
    ) -> Put {
        let (mac, network) = self.places(seen, mode);
        if network > usize::from(u16::MAX) {
            return Put::Full;
        }
        match self.version {
            Version::V3 => self.put_in_block(seen, (mac, network), data, len),
            _ => self.put_in_frame(seen, (mac, network), data, len, drops),
        }
    }

    fn put_in_frame(
        &mut self,
        seen: &Seen<'_>,
        (mac, network): (usize, usize),
        data: &[u8],
        len: usize,
        drops: u32,
    ) -> Put {
        if !self.is_free(self.head) {
            return Put::Full;
        }
        let m = self.slot(self.head);
        let data = &data[..data.len().min(m.len().saturating_sub(mac))];
        store(m, mac, data);
        let (nets, unit, time) = match self.version {
            Version::V1 => (16, 1000, 20),
            _ => (12, 1, 16),
        };
        let lens = nets - 8;
        store(m, lens, &(len as u32).to_le_bytes());
        store(m, lens + 4, &(data.len() as u32).to_le_bytes());
        store(m, nets, &(mac as u16).to_le_bytes());
        store(m, nets + 2, &(network as u16).to_le_bytes());
        store(m, time, &seconds(seen.time, unit));
        if self.version == Version::V2 {
            store(m, 24, &[0; 8]);
        }
        store(m, self.version.header(), &seen.address());
        let losing = if drops > 0 { LOSING } else { 0 };
        set_status(m, 0, USER | losing | seen.sums());
        self.head = (self.head + 1) % self.count();
        Put::Shown
    }

    /// From where packets begin in a block.
    fn first(&self) -> usize {
        BLOCK + (self.request.private as usize).next_multiple_of(8)
    }

    /// How long a block with packets stays the kernel's.
    fn patience(&self) -> Duration {
        let millis = match self.request.timeout {
            0 => 8,
            n => n.min(60_000),
        };
        Duration::from_millis(millis.into())
    }

    fn open_block(&mut self, seen: &Seen<'_>) {
        let next = self.first();
        self.block = Block {
            open: true,
            next,
            sequence: self.block.sequence + 1,
            due: Some(seen.now + self.patience()),
            first_time: seen.time,
            last_time: seen.time,
            ..Block::default()
        };
    }

    /// Gives the block that is being filled to the application.
    fn close_block(&mut self, why: u32) {
        let (m, b) = (self.slot(self.head), &self.block);
        store(m, 0, &2u32.to_le_bytes());
        store(m, 4, &(BLOCK as u32).to_le_bytes());
        store(m, 12, &b.packets.to_le_bytes());
        store(m, 16, &(self.first() as u32).to_le_bytes());
        store(m, 20, &(b.next as u32).to_le_bytes());
        store(m, 24, &b.sequence.to_le_bytes());
        store(m, 32, &seconds(b.first_time, 1));
        store(m, 40, &seconds(b.last_time, 1));
        if b.packets > 0 {
            store(m, b.last, &[0; 4]);
        }
        set_status(m, 8, USER | why);
        self.block.open = false;
        self.head = (self.head + 1) % self.count();
    }

    /// Whether there is a block to fill; the first time that there is none is counted.
    fn has_block(&mut self, seen: &Seen<'_>) -> bool {
        if self.block.open {
            return true;
        }
        if self.is_free(self.head) {
            self.open_block(seen);
            return true;
        }
        if !self.block.frozen {
            self.block.frozen = true;
            self.freezes += 1;
        }
        false
    }

    fn put_in_block(
        &mut self,
        seen: &Seen<'_>,
        (mac, network): (usize, usize),
        data: &[u8],
        len: usize,
    ) -> Put {
        let size = self.request.block_size as usize;
        // A packet that no block holds is cut (`max_frame_len`).
        let room = ((size - self.first()).saturating_sub(8) & !7).saturating_sub(mac);
        let data = &data[..data.len().min(room)];
        let whole = (mac + data.len()).next_multiple_of(8);
        if !self.has_block(seen) {
            return Put::Full;
        }
        let mut shown = false;
        if self.block.next + whole >= size && self.block.packets > 0 {
            self.close_block(0);
            shown = true;
            if !self.has_block(seen) {
                return Put::Full;
            }
        }
        let at = self.block.next;
        let Some(left) = size.checked_sub(at) else {
            return Put::Full;
        };
        let m = self.slot(self.head).sub(at, left);
        store(m, mac, &data[..data.len().min(left.saturating_sub(mac))]);
        store(m, 0, &(whole as u32).to_le_bytes());
        store(m, 4, &seconds(seen.time, 1));
        store(m, 12, &(data.len() as u32).to_le_bytes());
        store(m, 16, &(len as u32).to_le_bytes());
        store(m, 20, &(USER | seen.sums()).to_le_bytes());
        store(m, 24, &(mac as u16).to_le_bytes());
        store(m, 26, &(network as u16).to_le_bytes());
        store(m, 28, &[0; 20]);
        store(m, 48, &seen.address());
        let b = &mut self.block;
        (b.last, b.next, b.last_time) = (at, at + whole, seen.time);
        b.packets += 1;
        if shown { Put::Shown } else { Put::Kept }
    }

    /// When a block is to be given to the application although it is not full.
    pub fn due(&self) -> Option<Instant> {
        let b = &self.block;
        b.due.filter(|_| b.open && b.packets > 0)
    }

    /// Gives a block whose time is over to the application; whether there was one.
    pub fn expire(&mut self, now: Instant) -> bool {
        let over = self.due().is_some_and(|d| d <= now);
        if over {
            self.close_block(BLOCK_TIMEOUT);
        }
        over
    }
}
