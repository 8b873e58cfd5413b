//! Fragments to packets (RFC 791 3.2, RFC 8200 4.5; Linux's net/ipv4/inet_fragment.c).
//!
//! # What holds
//!
//! - What overlaps ends the whole datagram (RFC 5722; Linux does so for IPv4, too); what has come
//!   before is passed over.
//! - A datagram has at most [`MOST_PIECES`] pieces; all together take at most [`MOST_BYTES`] and
//!   are at most [`MOST`]. Where there is no room, the oldest datagram of the source that holds
//!   most gives way.
//! - Pieces are copies: a small one does not keep the frame's chunk.

use super::keyed::Keyed;
use crate::time::Instant;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

pub(crate) const MOST_PIECES: usize = 64;
pub(crate) const MOST_BYTES: usize = 4 << 20;
pub(crate) const MOST: usize = 1024;
/// Linux's `ipfrag_time`, and RFC 8200's.
const TIME_V4: Duration = Duration::from_secs(30);
const TIME_V6: Duration = Duration::from_secs(60);
/// What is charged for a datagram and for a piece beside their bytes.
const OVERHEAD: usize = 128;

/// Whose pieces belong together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub from: IpAddr,
    pub to: IpAddr,
    pub id: u32,
    /// IPv4 tells datagrams apart by it, too; 0 for IPv6.
    pub protocol: u8,
    /// The device's index.
    pub device: u32,
}

/// A fragment that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// Where its data belongs.
    pub offset: usize,
    /// Whether more follow.
    pub more: bool,
    pub data: &'a [u8],
    /// Of the first one: the headers of the whole packet.
    pub head: &'a [u8],
    /// All headers, as they came.
    pub came: &'a [u8],
    /// Whether a router on the way was congested.
    pub congestion: bool,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Others are missing.
    Kept,
    /// It had come before.
    Again,
    /// It does not fit to the others: the whole datagram is dropped.
    Dropped,
    Whole(Whole),
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Whole {
    /// Headers of the first fragment, then all data.
    pub packet: Vec<u8>,
    pub head: usize,
    pub congestion: bool,
}

/// A datagram of which the time is over; the beginning of its first fragment, if it came.
pub(crate) struct Expired {
    pub key: Key,
    pub first: Option<Vec<u8>>,
}

struct Partial {
    due: Instant,
    head: Vec<u8>,
    came: Vec<u8>,
    /// By their place; none overlaps.
    pieces: Vec<(usize, Box<[u8]>)>,
    /// Where the last one ends, once it has come.
    end: Option<usize>,
    received: usize,
    charge: usize,
    congestion: bool,
}

pub(crate) struct Reassembly {
    partial: HashMap<Key, Partial, Keyed>,
    by_source: HashMap<IpAddr, usize, Keyed>,
    bytes: usize,
}

impl Reassembly {
    pub(crate) fn new(key: Keyed) -> Reassembly {
        Reassembly {
            partial: HashMap::with_hasher(key),
            by_source: HashMap::with_hasher(key),
            bytes: 0,
        }
    }

    /// Bytes that are charged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the datagram of a piece that came now is due.
    pub(crate) fn due(now: Instant, key: &Key) -> Instant {
        now + if key.from.is_ipv4() { TIME_V4 } else { TIME_V6 }
    }

    /// Takes a fragment. `more` and the length have been looked at: all but the last are
    /// multiples of 8 long.
    pub(crate) fn add(&mut self, now: Instant, key: Key, piece: &Piece<'_>) -> Outcome {
        let fits = self.partial.get(&key).map_or(Fit::New, |p| p.fit(piece));
        let fits = if piece.data.is_empty() {
            Fit::Not
        } else {
            fits
        };
        match fits {
            Fit::New => {}
            Fit::Again => return Outcome::Again,
            Fit::Not => {
                self.remove(&key);
                return Outcome::Dropped;
            }
        }
        let heads = if piece.offset == 0 {
            piece.head.len() + piece.came.len()
        } else {
            0
        };
        let mut charge = piece.data.len() + heads + OVERHEAD;
        if !self.partial.contains_key(&key) {
            charge += OVERHEAD;
        }
        self.make_room(&key, charge);
        let p = self
            .partial
            .entry(key)
            .or_insert_with(|| Partial::new(Reassembly::due(now, &key)));
        p.insert(piece, charge);
        self.bytes += charge;
        *self.by_source.entry(key.from).or_default() += charge;
        if p.end != Some(p.received) {
            return Outcome::Kept;
        }
        // IPv6's length does not count its header.
        let most = 65_535 + if key.from.is_ipv4() { 0 } else { 40 };
        match self.remove(&key) {
            Some(p) if p.head.len() + p.received <= most => Outcome::Whole(p.whole()),
            _ => Outcome::Dropped,
        }
    }

    /// What is due; and when the next is.
    pub(crate) fn timer(&mut self, now: Instant) -> (Vec<Expired>, Option<Instant>) {
        let due = self.partial.iter().filter(|(_, p)| p.due <= now);
        let due: Vec<Key> = due.map(|(key, _)| *key).collect();
        let mut expired = Vec::new();
        for key in due {
            if let Some(p) = self.remove(&key) {
                let first = p.pieces.first().filter(|(offset, _)| *offset == 0);
                let first = first.map(|(_, data)| [&p.came, &data[..]].concat());
                expired.push(Expired { key, first });
            }
        }
        (expired, self.partial.values().map(|p| p.due).min())
    }

    fn remove(&mut self, key: &Key) -> Option<Partial> {
        let p = self.partial.remove(key)?;
        self.bytes -= p.charge;
        if let Some(bytes) = self.by_source.get_mut(&key.from) {
            *bytes -= p.charge;
            if *bytes == 0 {
                self.by_source.remove(&key.from);
            }
        }
        Some(p)
    }

    /// Lets others go until there is room; the datagram of `for_key` is the last to go.
    fn make_room(&mut self, for_key: &Key, charge: usize) {
        let is_new = !self.partial.contains_key(for_key);
        while self.bytes + charge > MOST_BYTES || is_new && self.partial.len() >= MOST {
            let most = self.by_source.iter().max_by_key(|(_, bytes)| **bytes);
            let Some(source) = most.map(|(source, _)| *source) else {
                return;
            };
            let of_it = self.partial.iter().filter(|(k, _)| k.from == source);
            let oldest = of_it.min_by_key(|(k, p)| (*k == for_key, p.due));
            let Some(oldest) = oldest.map(|(k, _)| *k) else {
                return;
            };
            self.remove(&oldest);
        }
    }
}

/// How a piece fits to the others.
enum Fit {
    New,
    Again,
    Not,
}

impl Partial {
    fn new(due: Instant) -> Partial {
        Partial {
            due,
            head: Vec::new(),
            came: Vec::new(),
            pieces: Vec::new(),
            end: None,
            received: 0,
            charge: 0,
            congestion: false,
        }
    }

    fn fit(&self, piece: &Piece<'_>) -> Fit {
        let (first, end) = (piece.offset, piece.offset + piece.data.len());
        let furthest = self.pieces.last().map_or(0, |(at, d)| at + d.len());
        let ends = match (piece.more, self.end) {
            (false, Some(known)) => end == known,
            (false, None) => end >= furthest,
            (true, Some(known)) => end <= known,
            (true, None) => true,
        };
        if !ends || self.pieces.len() >= MOST_PIECES {
            return Fit::Not;
        }
        // Runs of pieces without a gap.
        let mut pieces = self.pieces.iter().peekable();
        while let Some((from, data)) = pieces.next() {
            let mut to = from + data.len();
            while let Some((_, next)) = pieces.next_if(|(at, _)| *at == to) {
                to += next.len();
            }
            if first < to && end > *from {
                return if first >= *from && end <= to {
                    Fit::Again
                } else {
                    Fit::Not
                };
            }
        }
        Fit::New
    }

    fn insert(&mut self, piece: &Piece<'_>, charge: usize) {
        let place = self.pieces.partition_point(|(at, _)| *at < piece.offset);
        self.pieces
            .insert(place, (piece.offset, Box::from(piece.data)));
        self.received += piece.data.len();
        self.charge += charge;
        self.congestion |= piece.congestion;
        if piece.offset == 0 {
            self.head = piece.head.to_vec();
            self.came = piece.came.to_vec();
        }
        if !piece.more {
            self.end = Some(piece.offset + piece.data.len());
        }
    }

    fn whole(self) -> Whole {
        let mut packet = Vec::with_capacity(self.head.len() + self.received);
        packet.extend_from_slice(&self.head);
        for (_, data) in &self.pieces {
            packet.extend_from_slice(data);
        }
        Whole {
            packet,
            head: self.head.len(),
            congestion: self.congestion,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(id: u32) -> Key {
        Key {
            from: IpAddr::from([10, 0, 0, 1]),
            to: IpAddr::from([10, 0, 0, 2]),
            id,
            protocol: 17,
            device: 7,
        }
    }

    fn after(s: u64) -> Instant {
        Instant(0) + Duration::from_secs(s)
    }

    fn piece(offset: usize, data: &[u8], more: bool) -> Piece<'_> {
        Piece {
            offset,
            more,
            data,
            head: b"head",
            came: b"came",
            congestion: false,
        }
    }

    fn new() -> Reassembly {
        Reassembly::new(Keyed::new([0; 16], 0))
    }

    /// What a naive one makes of the same pieces: bytes that have come, by place.
    #[derive(Default)]
    struct Naive {
        bytes: Vec<Option<u8>>,
        pieces: usize,
        end: Option<usize>,
    }

    impl Naive {
        fn add(&mut self, offset: usize, data: &[u8], more: bool) -> Result<Option<Vec<u8>>, ()> {
            let end = offset + data.len();
            let ends = match (more, self.end) {
                (false, Some(known)) => end == known,
                (false, None) => end >= self.bytes.len(),
                (true, Some(known)) => end <= known,
                (true, None) => true,
            };
            if data.is_empty() || !ends || self.pieces == MOST_PIECES {
                return Err(());
            }
            if self.bytes.len() < end {
                self.bytes.resize(end, None);
            }
            let there = self.bytes[offset..end].iter().flatten().count();
            if there == data.len() {
                return Ok(None);
            }
            if there > 0 {
                return Err(());
            }
            self.pieces += 1;
            for (to, b) in self.bytes[offset..].iter_mut().zip(data) {
                *to = Some(*b);
            }
            if !more {
                self.end = Some(end);
            }
            let all: Option<Vec<u8>> = self.bytes.iter().copied().collect();
            Ok(all.filter(|_| self.end.is_some()))
        }
    }

    proptest! {
        #[test]
        fn it_does_what_a_naive_one_does(
            pieces in proptest::collection::vec(
                (0..12_usize, 1..5_usize, any::<bool>(), any::<u8>()), 1..40),
        ) {
            let (mut r, mut naive) = (new(), Naive::default());
            for (at, len, more, byte) in pieces {
                let data = vec![byte; len * 8];
                let got = r.add(after(0), key(1), &piece(at * 8, &data, more));
                match naive.add(at * 8, &data, more) {
                    Err(()) => {
                        prop_assert_eq!(got, Outcome::Dropped);
                        naive = Naive::default();
                    }
                    Ok(None) => prop_assert!(matches!(got, Outcome::Kept | Outcome::Again)),
                    Ok(Some(all)) => {
                        let Outcome::Whole(w) = got else {
                            return Err(TestCaseError::fail("not whole"));
                        };
                        prop_assert_eq!(&w.packet[..w.head], b"head");
                        prop_assert_eq!(&w.packet[w.head..], &all[..]);
                        naive = Naive::default();
                    }
                }
            }
        }

        #[test]
        fn any_order_makes_the_whole(
            len in 1..3000_usize, cut in 1..40_usize, seed: u64,
            again in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let data: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let mut pieces: Vec<(usize, &[u8])> = data
                .chunks((cut * 8).max(len / 60 / 8 * 8 + 8))
                .scan(0, |at, c| { *at += c.len(); Some((*at - c.len(), c)) })
                .collect();
            let k = Keyed::new([1; 16], 1);
            pieces.sort_by_key(|(at, _)| k.hash((seed, *at)));
            let last = pieces.pop().expect("at least one");
            let mut r = new();
            let mut add = |(at, d): (usize, &[u8])| {
                r.add(after(0), key(1), &piece(at, d, at + d.len() < len))
            };
            for (n, p) in pieces.iter().enumerate() {
                prop_assert_eq!(add(*p), Outcome::Kept);
                if let Some(i) = again.get(n) {
                    prop_assert_eq!(add(pieces[i.index(n + 1)]), Outcome::Again);
                }
            }
            let Outcome::Whole(w) = add(last) else {
                return Err(TestCaseError::fail("not whole"));
            };
            prop_assert_eq!(&w.packet[4..], &data[..]);
            prop_assert_eq!(r.bytes(), 0);
            prop_assert!(r.by_source.is_empty());
        }
    }

    #[test]
    fn memory_is_bounded_and_the_greedy_give_way() {
        let mut r = new();
        let data = vec![0; 60_000];
        let small = Key {
            from: IpAddr::from([10, 0, 0, 9]),
            ..key(1)
        };
        assert_eq!(
            r.add(after(0), small, &piece(0, &[1; 8], true)),
            Outcome::Kept
        );
        for id in 0..3000 {
            let len = if id % 2 == 0 { 60_000 } else { 8 };
            r.add(after(1), key(id), &piece(0, &data[..len], true));
            assert!(r.bytes() <= MOST_BYTES && r.partial.len() <= MOST);
        }
        let got = r.add(after(2), small, &piece(8, &[2; 8], false));
        assert!(matches!(got, Outcome::Whole(_)));
    }

    #[test]
    fn too_many_pieces_are_no_datagram() {
        let mut r = new();
        for n in 0..MOST_PIECES {
            let got = r.add(after(0), key(1), &piece(n * 8, &[0; 8], true));
            assert_eq!(got, Outcome::Kept);
        }
        let got = r.add(after(0), key(1), &piece(MOST_PIECES * 8, &[0; 8], false));
        assert_eq!((got, r.bytes()), (Outcome::Dropped, 0));
    }

    #[test]
    fn too_long_a_whole_is_no_packet() {
        let mut r = new();
        assert_eq!(
            r.add(after(0), key(1), &piece(0, &[0; 65_528], true)),
            Outcome::Kept
        );
        let got = r.add(after(0), key(1), &piece(65_528, &[0; 7], false));
        assert_eq!(got, Outcome::Dropped);
    }

    #[test]
    fn what_stays_away_is_told_after_its_time() {
        let mut r = new();
        let v6 = Key {
            from: IpAddr::from([0u16; 8]),
            ..key(2)
        };
        r.add(after(0), key(1), &piece(0, b"12345678", true));
        r.add(after(1), v6, &piece(8, b"12345678", true));
        let (expired, next) = r.timer(after(29));
        assert!(expired.is_empty());
        assert_eq!(next, Some(after(30)));
        let (expired, next) = r.timer(after(30));
        assert_eq!(expired[0].first.as_deref(), Some(&b"came12345678"[..]));
        assert_eq!(next, Some(after(61)));
        let (expired, next) = r.timer(after(61));
        assert_eq!(expired[0].first, None);
        assert_eq!((next, r.bytes()), (None, 0));
    }
}
