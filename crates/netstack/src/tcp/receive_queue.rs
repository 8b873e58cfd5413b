//! The bytes that came: those in order, for the reader, and those that came too early.
//!
//! A payload is kept as it is where it is long; a short one is copied, for its slice would pin a
//! whole chunk of received frames. Copies of neighbours share a vector.
//!
//! # What holds
//!
//! - `islands` has what came too early as ranges that do not touch; `early` has their bytes in
//!   pieces that do not overlap and cover exactly these ranges. All lies after `next`.
//! - There are at most as many early pieces as [`ReceiveQueue::new`] was told. What would make more
//!   is dropped as if it had been lost.
//! - Each byte is kept once: of bytes that come twice the first ones count.

use bytes::{Buf, Bytes};
use std::collections::{BTreeMap, VecDeque};

/// Lengths of vectors that copies share.
const COPIES: usize = 16 << 10;
/// No shorter payload is shared, for a piece has its own cost.
const LEAST_SHARED: usize = 2 << 10;
/// What a piece costs beyond its bytes.
const OVERHEAD: usize = 96;

enum Body {
    Shared(Bytes),
    Copied { data: Vec<u8>, from: usize },
}

struct Piece {
    body: Body,
    /// What it was counted with in `memory`.
    charge: usize,
}

impl Piece {
    fn new(payload: Bytes, share_from: usize, capacity: usize) -> Piece {
        let body = if payload.len() >= share_from {
            Body::Shared(payload)
        } else {
            let mut data = Vec::with_capacity(capacity.max(payload.len()));
            data.extend_from_slice(&payload);
            Body::Copied { data, from: 0 }
        };
        let charge = OVERHEAD
            + match &body {
                Body::Shared(b) => b.len().next_multiple_of(2 * share_from),
                Body::Copied { data, .. } => data.capacity(),
            };
        Piece { body, charge }
    }

    fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Shared(b) => b,
            Body::Copied { data, from } => &data[*from..],
        }
    }

    fn advance(&mut self, n: usize) {
        match &mut self.body {
            Body::Shared(b) => b.advance(n),
            Body::Copied { from, .. } => *from += n,
        }
    }

    /// Whether `bytes` were put behind its own without moving them.
    fn append(&mut self, bytes: &[u8]) -> bool {
        match &mut self.body {
            Body::Copied { data, .. } if data.capacity() - data.len() >= bytes.len() => {
                data.extend_from_slice(bytes);
                true
            }
            _ => false,
        }
    }
}

/// What became of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Inserted {
    /// It came in order. `filled`: with it something that had come too early.
    InOrder { filled: bool },
    /// It came too early, and lies in this island.
    Early { left: u64, right: u64 },
    /// All of it had come.
    Duplicate,
    /// There is no place for it.
    Dropped,
}

/// See the module.
pub(super) struct ReceiveQueue {
    ready: VecDeque<Piece>,
    early: BTreeMap<u64, Piece>,
    islands: BTreeMap<u64, u64>,
    /// The first byte that the reader has not taken, and the first that has not come.
    read: u64,
    next: u64,
    early_bytes: u64,
    memory: usize,
    share_from: usize,
}

impl ReceiveQueue {
    pub fn new(next: u64, share_from: usize) -> ReceiveQueue {
        ReceiveQueue {
            ready: VecDeque::new(),
            early: BTreeMap::new(),
            islands: BTreeMap::new(),
            read: next,
            next,
            early_bytes: 0,
            memory: 0,
            share_from: share_from.max(LEAST_SHARED),
        }
    }

    pub fn next(&self) -> u64 {
        self.next
    }
    pub fn read_place(&self) -> u64 {
        self.read
    }
    pub fn readable(&self) -> usize {
        (self.next - self.read) as usize
    }
    pub fn has_early(&self) -> bool {
        !self.islands.is_empty()
    }
    #[cfg(test)]
    pub fn early_bytes(&self) -> u64 {
        self.early_bytes
    }
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// The island that has `place`.
    pub fn island(&self, place: u64) -> Option<(u64, u64)> {
        let (&l, &r) = self.islands.range(..=place).next_back()?;
        (r > place).then_some((l, r))
    }

    /// The islands after `place`, from low to high.
    pub fn islands_after(&self, place: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.islands.range(place..).map(|(&l, &r)| (l, r))
    }

    /// The end of the highest island.
    pub fn highest(&self) -> Option<u64> {
        self.islands.last_key_value().map(|(_, &r)| r)
    }

    /// Takes bytes that lie at `start`, of which `most_early` pieces may come too early.
    pub fn insert(&mut self, start: u64, mut payload: Bytes, most_early: usize) -> Inserted {
        let end = start + payload.len() as u64;
        if end <= self.next {
            return Inserted::Duplicate;
        }
        if start > self.next {
            return self.insert_early(start, payload, most_early);
        }
        payload.advance((self.next - start) as usize);
        if self.islands.is_empty() {
            self.next = end;
            self.push(payload);
            return Inserted::InOrder { filled: false };
        }
        // Early bytes that it covers go: what is longer comes anew, which costs a copy less.
        let reach = self
            .islands
            .range(..=end)
            .next_back()
            .map_or(end, |(_, &r)| r.max(end));
        self.next = end;
        self.push(payload);
        let filled = self.islands.range(..=end).next().is_some();
        while let Some((&l, _)) = self.islands.range(..=end).next() {
            let Some(r) = self.islands.remove(&l) else {
                break;
            };
            self.early_bytes -= r - l;
        }
        while let Some((&s, _)) = self.early.range(..reach).next() {
            let Some(mut p) = self.early.remove(&s) else {
                break;
            };
            let n = p.bytes().len() as u64;
            self.memory -= p.charge;
            if s + n <= self.next {
                continue;
            }
            p.advance((self.next - s) as usize);
            self.next = s + n;
            self.push_piece(p);
        }
        Inserted::InOrder { filled }
    }

    fn push(&mut self, payload: Bytes) {
        if payload.len() < self.share_from
            && self.ready.back_mut().is_some_and(|p| p.append(&payload))
        {
            return;
        }
        // In proportion, so that little does not cost much.
        let capacity = match self.ready.back().map(|p| &p.body) {
            Some(Body::Copied { data, .. }) => (data.capacity() * 2).min(COPIES),
            _ => 0,
        };
        let piece = Piece::new(payload, self.share_from, capacity);
        self.memory += piece.charge;
        self.ready.push_back(piece);
    }

    fn push_piece(&mut self, piece: Piece) {
        if piece.bytes().len() < COPIES / 4 {
            let short = piece.bytes();
            if self.ready.back_mut().is_some_and(|p| p.append(short)) {
                return;
            }
            let p = Piece::new(Bytes::copy_from_slice(short), usize::MAX, COPIES);
            self.memory += p.charge;
            self.ready.push_back(p);
            return;
        }
        self.memory += piece.charge;
        self.ready.push_back(piece);
    }

    fn insert_early(&mut self, start: u64, payload: Bytes, most: usize) -> Inserted {
        let end = start + payload.len() as u64;
        if self.island(start).is_some_and(|(_, r)| r >= end) {
            return Inserted::Duplicate;
        }
        // The parts that are missing lie between islands.
        let mut place = self.island(start).map_or(start, |(_, r)| r);
        while place < end {
            let next = self
                .islands
                .range(place..)
                .next()
                .map_or(u64::MAX, |(&l, _)| l);
            let to = next.min(end);
            if to > place {
                let part = payload.slice((place - start) as usize..(to - start) as usize);
                if !self.add_early(place, part, most) {
                    break;
                }
            }
            place = self.island(to).map_or(to, |(_, r)| r);
        }
        match self.island(start) {
            Some((left, right)) => Inserted::Early { left, right },
            None => Inserted::Dropped,
        }
    }

    /// Adds bytes of which none is there. False where there are too many pieces.
    fn add_early(&mut self, start: u64, payload: Bytes, most: usize) -> bool {
        let (len, end) = (payload.len(), start + payload.len() as u64);
        let mut room = 0;
        if let Some((&s, p)) = self.early.range_mut(..start).next_back()
            && s + p.bytes().len() as u64 == start
        {
            if len < self.share_from && p.append(&payload) {
                self.early_grew(start, end);
                return true;
            }
            // Where one follows the other there will be more; in proportion, so that little does
            // not cost much.
            room = (p.bytes().len() * 2).min(COPIES);
        }
        if self.early.len() >= most {
            return false;
        }
        let gap = self
            .islands
            .range(end..)
            .next()
            .map_or(u64::MAX, |(&l, _)| l - start);
        room = room.min(usize::try_from(gap).unwrap_or(usize::MAX));
        let piece = Piece::new(payload, self.share_from, room);
        self.memory += piece.charge;
        self.early.insert(start, piece);
        self.early_grew(start, end);
        true
    }

    /// `start..end` belongs to an island now.
    fn early_grew(&mut self, start: u64, end: u64) {
        self.early_bytes += end - start;
        let (mut l, mut r) = (start, end);
        if let Some((&a, &b)) = self.islands.range(..start).next_back()
            && b == start
        {
            l = a;
        }
        if let Some(b) = self.islands.remove(&end) {
            r = b;
        }
        self.islands.insert(l, r);
    }

    /// Hands out bytes after the first `skip`, until `put` takes less than it is given.
    pub fn peek<E>(
        &self,
        mut skip: usize,
        most: usize,
        mut put: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut done = 0;
        for p in &self.ready {
            let bytes = p.bytes();
            if skip >= bytes.len() {
                skip -= bytes.len();
                continue;
            }
            let piece = &bytes[skip..];
            let piece = &piece[..piece.len().min(most - done)];
            skip = 0;
            if piece.is_empty() {
                break;
            }
            let n = match put(piece) {
                Ok(n) => n.min(piece.len()),
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            done += n;
            if n < piece.len() {
                break;
            }
        }
        Ok(done)
    }

    /// As [`Self::peek`], and what `put` takes is gone.
    pub fn read<E>(
        &mut self,
        most: usize,
        mut put: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut done = 0;
        while let Some(p) = self.ready.front() {
            let bytes = p.bytes();
            let piece = &bytes[..bytes.len().min(most - done)];
            if piece.is_empty() {
                break;
            }
            let given = piece.len();
            let n = match put(piece) {
                Ok(n) => n.min(given),
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            self.discard(n);
            done += n;
            if n < given {
                break;
            }
        }
        Ok(done)
    }

    /// Takes `n` bytes away, or as many as there are.
    pub fn discard(&mut self, n: usize) -> usize {
        let n = n.min(self.readable());
        let mut left = n;
        while let Some(p) = self.ready.front_mut() {
            let len = p.bytes().len();
            if left < len {
                p.advance(left);
                break;
            }
            left -= len;
            self.memory -= p.charge;
            self.ready.pop_front();
        }
        self.read += n as u64;
        n
    }

    /// Forgets what came too early: it comes again (RFC 2018 8).
    pub fn drop_early(&mut self) {
        for p in std::mem::take(&mut self.early).into_values() {
            self.memory -= p.charge;
        }
        self.islands.clear();
        self.early_bytes = 0;
    }

    /// Nobody will read.
    pub fn clear(&mut self) {
        self.discard(usize::MAX);
        self.ready = VecDeque::new();
        self.early.clear();
        self.islands.clear();
        self.early_bytes = 0;
        self.memory = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn byte(place: u64) -> u8 {
        (place * 7 + place / 251) as u8
    }

    fn payload(start: u64, len: u64) -> Bytes {
        (start..start + len).map(byte).collect()
    }

    proptest! {
        /// Whatever comes in which order: the bytes that are read are those that lie there.
        #[test]
        fn bytes_are_in_order(
            parts in proptest::collection::vec((0..400u64, 1..60u64, any::<bool>()), 1..120),
            share_from in 1..40usize,
        ) {
            let mut q = ReceiveQueue::new(0, 0);
            q.share_from = share_from;
            let mut have = std::collections::BTreeSet::new();
            for (start, len, read) in parts {
                let before = have.len();
                let went = q.insert(start, payload(start, len), usize::MAX);
                have.extend(start..start + len);
                prop_assert_eq!(went == Inserted::Duplicate, have.len() == before);
                let next = (0..).find(|p| !have.contains(p)).unwrap();
                prop_assert_eq!(q.next(), next);
                let islands: u64 = q.islands_after(0).map(|(l, r)| r - l).sum();
                prop_assert_eq!(islands, have.len() as u64 - next);
                prop_assert_eq!(islands, q.early_bytes());
                let pieces: u64 = q.early.values().map(|p| p.bytes().len() as u64).sum();
                prop_assert_eq!(islands, pieces);
                type All<'a, 'b> = &'a mut dyn Iterator<Item = &'b Piece>;
                let charges = |i: All| i.map(|p| p.charge).sum::<usize>();
                prop_assert_eq!(
                    q.memory,
                    charges(&mut q.ready.iter()) + charges(&mut q.early.values())
                );
                if start % 31 == 0 {
                    q.drop_early();
                    have.retain(|p| *p < next);
                    prop_assert_eq!((q.early_bytes(), q.has_early()), (0, false));
                    prop_assert_eq!(q.memory, charges(&mut q.ready.iter()));
                }
                if read {
                    let mut at = q.read_place();
                    let n = q.readable() / 2;
                    q.read::<()>(n, |b| {
                        for &b in b {
                            assert_eq!(b, byte(at));
                            at += 1;
                        }
                        Ok(b.len())
                    }).unwrap();
                }
            }
        }
    }

    #[test]
    fn single_bytes_pin_no_chunks() {
        let mut q = ReceiveQueue::new(0, 32 << 10);
        for i in (0..1 << 20).rev() {
            q.insert(1 + i * 2, payload(i, 1), 4096);
        }
        assert!(q.memory() < 4096 * 256, "{}", q.memory());
        let mut q = ReceiveQueue::new(0, 32 << 10);
        for i in 0..1 << 20 {
            q.insert(1 + i, payload(i, 1), 4096);
        }
        assert_eq!(q.early_bytes(), 1 << 20);
        assert!(q.memory() < 2 << 20, "{}", q.memory());
        q.insert(0, payload(0, 1), 4096);
        assert_eq!(q.readable(), (1 << 20) + 1);
        assert!(q.memory() < 2 << 20, "{}", q.memory());
    }
}
