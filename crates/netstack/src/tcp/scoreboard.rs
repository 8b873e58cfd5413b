//! The retransmission queue: what became of each range of sent bytes (RFC 2018, RFC 6675).
//!
//! A record is a range of the stream whose bytes were last sent at the same time and have the same
//! fate. It is split where an acknowledgement cuts it. Neighbours that are acknowledged selectively
//! become one, so that a block that is told again and again costs one look-up.
//!
//! # What holds
//!
//! - Records cover the stream from the first byte that is not acknowledged to the last one sent.
//! - `by_time` has exactly the records in flight, by when they were sent; `lost` exactly those that
//!   are lost and not sent again. No operation of an acknowledgement looks at a record whose fate
//!   it does not change, but for two at its edges.
//! - There are at most [`MOST`] records: an acknowledgement that would make more is not believed.

use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// How many records there are at most.
pub(super) const MOST: usize = 8 << 10;
/// How many are joined at most to be sent again at once.
const JOINED: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Flight,
    Sacked,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    end: u64,
    /// When it was sent last.
    at: Instant,
    fate: Fate,
    retransmitted: bool,
}

/// A range that has arrived at the peer, as an acknowledgement tells for the first time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub start: u64,
    pub end: u64,
    pub at: Instant,
    pub retransmitted: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Scoreboard {
    records: BTreeMap<u64, Record>,
    /// When sent and the start.
    by_time: BTreeSet<(Instant, u64)>,
    lost: BTreeSet<u64>,
    flight: u64,
    sacked: u64,
    lost_bytes: u64,
    /// Of `flight`, what was sent more than once.
    resent: u64,
}

impl Scoreboard {
    /// Bytes that are believed to be in the network (RFC 6675's pipe).
    pub fn flight(&self) -> u64 {
        self.flight
    }
    pub fn sacked(&self) -> u64 {
        self.sacked
    }
    pub fn lost(&self) -> u64 {
        self.lost_bytes
    }
    pub fn resent(&self) -> u64 {
        self.resent
    }
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
    pub fn is_full(&self) -> bool {
        self.records.len() >= MOST
    }
    pub fn memory(&self) -> usize {
        self.records.len() * 96
    }

    fn put(&mut self, start: u64, r: Record) {
        let n = r.end - start;
        match r.fate {
            Fate::Flight => {
                self.by_time.insert((r.at, start));
                self.flight += n;
                if r.retransmitted {
                    self.resent += n;
                }
            }
            Fate::Sacked => self.sacked += n,
            Fate::Lost => {
                self.lost.insert(start);
                self.lost_bytes += n;
            }
        }
        self.records.insert(start, r);
    }

    fn take(&mut self, start: u64) -> Option<Record> {
        let r = self.records.remove(&start)?;
        let n = r.end - start;
        match r.fate {
            Fate::Flight => {
                self.by_time.remove(&(r.at, start));
                self.flight -= n;
                if r.retransmitted {
                    self.resent -= n;
                }
            }
            Fate::Sacked => self.sacked -= n,
            Fate::Lost => {
                self.lost.remove(&start);
                self.lost_bytes -= n;
            }
        }
        Some(r)
    }

    /// Makes `place` an edge. False where there would be too many.
    fn try_split(&mut self, place: u64) -> bool {
        let inside = self
            .records
            .range(..place)
            .next_back()
            .is_some_and(|(_, r)| r.end > place);
        if inside && self.is_full() {
            return false;
        }
        self.split(place);
        true
    }

    fn split(&mut self, place: u64) {
        if let Some((&start, &r)) = self.records.range(..place).next_back()
            && r.end > place
        {
            self.take(start);
            self.put(start, Record { end: place, ..r });
            self.put(place, r);
        }
    }

    /// New bytes were sent.
    pub fn send(&mut self, start: u64, end: u64, at: Instant) {
        if let Some(mut last) = self.records.last_entry()
            && let r = last.get_mut()
            && r.end == start
            && r.at == at
            && r.fate == Fate::Flight
            && !r.retransmitted
        {
            r.end = end;
            self.flight += end - start;
            return;
        }
        self.put(
            start,
            Record {
                end,
                at,
                fate: Fate::Flight,
                retransmitted: false,
            },
        );
    }

    /// Bytes from [`Self::first_lost`] or [`Self::tail`] were sent again.
    pub fn resend(&mut self, start: u64, end: u64, at: Instant) {
        self.split(start);
        self.split(end);
        let mut place = start;
        while let Some((&s, r)) = self.records.range(place..end).next() {
            place = r.end;
            self.take(s);
        }
        self.put(
            start,
            Record {
                end,
                at,
                fate: Fate::Flight,
                retransmitted: true,
            },
        );
    }

    /// The peer has all before `una`.
    pub fn ack(&mut self, una: u64, mut on: impl FnMut(Delivery)) {
        while let Some((&start, &r)) = self.records.first_key_value()
            && start < una
        {
            self.take(start);
            let end = r.end.min(una);
            if r.fate != Fate::Sacked {
                on(Delivery {
                    start,
                    end,
                    at: r.at,
                    retransmitted: r.retransmitted,
                });
            }
            if end < r.end {
                self.put(end, r);
            }
        }
    }

    /// The peer says that it has `left..right`.
    pub fn sack(&mut self, left: u64, right: u64, mut on: impl FnMut(Delivery)) {
        let Some((&first, _)) = self.records.first_key_value() else {
            return;
        };
        let left = left.max(first);
        let mut place = left;
        while place < right {
            let Some((_, &r)) = self.records.range(..=place).next_back() else {
                break;
            };
            if r.end <= place {
                break;
            }
            if r.fate == Fate::Sacked {
                place = r.end;
                continue;
            }
            let end = r.end.min(right);
            if !(self.try_split(place) && self.try_split(end)) {
                place = r.end;
                continue;
            }
            let Some(r) = self.take(place) else { break };
            on(Delivery {
                start: place,
                end: r.end,
                at: r.at,
                retransmitted: r.retransmitted,
            });
            let next = r.end;
            self.put_sacked(place, r);
            place = next;
        }
    }

    /// Puts a record that is acknowledged selectively, as one with such neighbours.
    fn put_sacked(&mut self, mut start: u64, mut r: Record) {
        r.fate = Fate::Sacked;
        if let Some((&s, b)) = self.records.range(..start).next_back()
            && b.end == start
            && b.fate == Fate::Sacked
        {
            self.take(s);
            start = s;
        }
        if self
            .records
            .get(&r.end)
            .is_some_and(|a| a.fate == Fate::Sacked)
            && let Some(a) = self.take(r.end)
        {
            r.end = a.end;
        }
        self.put(start, r);
    }

    /// The earliest sent of what is in flight: when, and its end.
    pub fn oldest(&self) -> Option<(Instant, u64)> {
        let &(at, start) = self.by_time.first()?;
        self.records.get(&start).map(|r| (at, r.end))
    }

    /// When the first range that is not acknowledged was sent last.
    pub fn first_sent(&self) -> Option<Instant> {
        self.records.first_key_value().map(|(_, r)| r.at)
    }

    /// What [`Self::oldest`] told is lost.
    pub fn lose_oldest(&mut self) -> Option<u64> {
        let &(_, start) = self.by_time.first()?;
        let r = self.take(start)?;
        self.put(
            start,
            Record {
                fate: Fate::Lost,
                ..r
            },
        );
        Some(r.end - start)
    }

    /// The first range that is not acknowledged is lost, of at most `most` bytes. Tells how many.
    pub fn lose_head(&mut self, most: u64) -> u64 {
        let Some((&start, r)) = self.records.first_key_value() else {
            return 0;
        };
        if r.fate != Fate::Flight {
            return 0;
        }
        self.split(start.saturating_add(most));
        let Some(r) = self.take(start) else { return 0 };
        self.put(
            start,
            Record {
                fate: Fate::Lost,
                ..r
            },
        );
        r.end - start
    }

    /// All in flight is lost.
    pub fn lose_all(&mut self) {
        while self.lose_oldest().is_some() {}
    }

    /// What was held for lost is in flight yet.
    pub fn unlose(&mut self) {
        while let Some(&start) = self.lost.first()
            && let Some(r) = self.take(start)
        {
            self.put(
                start,
                Record {
                    fate: Fate::Flight,
                    ..r
                },
            );
        }
    }

    /// Whether the peer has given up what it had told to have (RFC 2018 8).
    pub fn is_reneged(&self) -> bool {
        self.records
            .first_key_value()
            .is_some_and(|(_, r)| r.fate == Fate::Sacked)
    }

    /// What was acknowledged selectively is lost.
    pub fn forget_sacks(&mut self) {
        let starts: Vec<u64> = self
            .records
            .iter()
            .filter(|(_, r)| r.fate == Fate::Sacked)
            .map(|(&s, _)| s)
            .collect();
        for start in starts {
            if let Some(r) = self.take(start) {
                self.put(
                    start,
                    Record {
                        fate: Fate::Lost,
                        ..r
                    },
                );
            }
        }
    }

    /// The first range that is lost, joined with some of those right after it, of at most `most`
    /// bytes.
    pub fn first_lost(&self, most: u64) -> Option<(u64, u64)> {
        let &start = self.lost.first()?;
        let mut end = start;
        for (&s, r) in self.records.range(start..).take(JOINED) {
            if r.fate != Fate::Lost || s - start >= most {
                break;
            }
            end = r.end;
        }
        Some((start, end.min(start + most)))
    }

    /// The last range that was sent, of at most `most` bytes; none where the peer has it.
    pub fn tail(&self, most: u64) -> Option<(u64, u64)> {
        let (&start, r) = self.records.last_key_value()?;
        (r.fate != Fate::Sacked).then(|| (start.max(r.end.saturating_sub(most)), r.end))
    }

    #[cfg(test)]
    pub fn check(&self) {
        let (mut flight, mut sacked, mut lost) = (0, 0, 0);
        let mut place = None;
        for (&s, r) in &self.records {
            assert!(s < r.end);
            assert!(place.is_none_or(|p| p == s), "a gap before {s}");
            place = Some(r.end);
            let n = r.end - s;
            match r.fate {
                Fate::Flight => {
                    flight += n;
                    assert!(self.by_time.contains(&(r.at, s)));
                }
                Fate::Sacked => sacked += n,
                Fate::Lost => {
                    lost += n;
                    assert!(self.lost.contains(&s));
                }
            }
        }
        assert_eq!(
            (flight, sacked, lost),
            (self.flight, self.sacked, self.lost_bytes)
        );
        let of = |f| self.records.values().filter(|r| r.fate == f).count();
        assert_eq!(
            (of(Fate::Flight), of(Fate::Lost)),
            (self.by_time.len(), self.lost.len())
        );
        assert!(self.records.len() <= MOST + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Send(u64),
        Ack(u64),
        Sack(u64, u64),
        Lose,
        LoseAll,
        Unlose,
        Resend(u64),
        Tail,
        Forget,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1..40u64).prop_map(Step::Send),
            2 => (0..100u64).prop_map(Step::Ack),
            6 => (0..100u64, 1..30u64).prop_map(|(a, n)| Step::Sack(a, n)),
            3 => Just(Step::Lose),
            1 => Just(Step::LoseAll),
            1 => Just(Step::Unlose),
            4 => (1..30u64).prop_map(Step::Resend),
            1 => Just(Step::Tail),
            1 => Just(Step::Forget),
        ]
    }

    proptest! {
        /// Against a list of bytes.
        #[test]
        fn is_a_list_of_bytes(steps in proptest::collection::vec(step(), 1..80)) {
            let mut board = Scoreboard::default();
            let (mut una, mut nxt) = (1000u64, 1000u64);
            let mut fates: BTreeMap<u64, Fate> = BTreeMap::new();
            for (i, step) in steps.into_iter().enumerate() {
                let now = Instant(i as u64 / 2);
                let mut told = 0;
                match step {
                    Step::Send(n) => {
                        board.send(nxt, nxt + n, now);
                        fates.extend((nxt..nxt + n).map(|b| (b, Fate::Flight)));
                        nxt += n;
                    }
                    Step::Ack(n) => {
                        una = (una + n).min(nxt);
                        board.ack(una, |d| told += d.end - d.start);
                        let rest = fates.split_off(&una);
                        let n = fates.values().filter(|&&f| f != Fate::Sacked).count();
                        prop_assert_eq!(told, n as u64);
                        fates = rest;
                    }
                    Step::Sack(a, n) => {
                        let (l, r) = (una + a, (una + a + n).min(nxt));
                        board.sack(l, r, |d| told += d.end - d.start);
                        let mut n = 0;
                        if l < r {
                            for (_, f) in fates.range_mut(l..r) {
                                n += u64::from(*f != Fate::Sacked);
                                *f = Fate::Sacked;
                            }
                        }
                        prop_assert_eq!(told, n);
                    }
                    Step::Lose => {
                        if let Some((_, end)) = board.oldest()
                            && let Some(n) = board.lose_oldest()
                        {
                            fates.extend((end - n..end).map(|b| (b, Fate::Lost)));
                        }
                    }
                    Step::LoseAll => {
                        board.lose_all();
                        fates.values_mut().for_each(|f| if *f == Fate::Flight { *f = Fate::Lost });
                    }
                    Step::Unlose => {
                        board.unlose();
                        fates.values_mut().for_each(|f| if *f == Fate::Lost { *f = Fate::Flight });
                    }
                    Step::Resend(n) => {
                        let first = fates.iter().find(|(_, f)| **f == Fate::Lost).map(|(&b, _)| b);
                        let got = board.first_lost(n);
                        prop_assert_eq!(first, got.map(|g| g.0));
                        if let Some((a, b)) = got {
                            prop_assert!(fates.range(a..b).all(|(_, f)| *f == Fate::Lost));
                            board.resend(a, b, now);
                            fates.extend((a..b).map(|b| (b, Fate::Flight)));
                        }
                    }
                    Step::Tail => {
                        if let Some((a, b)) = board.tail(10) {
                            prop_assert_eq!(b, nxt);
                            board.resend(a, b, now);
                            fates.extend((a..b).map(|b| (b, Fate::Flight)));
                        }
                    }
                    Step::Forget => {
                        board.forget_sacks();
                        fates.values_mut().for_each(|f| if *f == Fate::Sacked { *f = Fate::Lost });
                    }
                }
                board.check();
                let of = |f| fates.values().filter(|&&g| g == f).count() as u64;
                let want = (of(Fate::Flight), of(Fate::Sacked), of(Fate::Lost));
                prop_assert_eq!((board.flight(), board.sacked(), board.lost()), want);
            }
        }
    }

    #[test]
    fn a_hostile_peer_makes_no_more_than_most() {
        let mut board = Scoreboard::default();
        board.send(0, 8 << 20, Instant(1));
        for i in 0..(4 << 20) / 64 {
            board.sack(i * 128, i * 128 + 1, |_| ());
        }
        assert!(board.records.len() <= MOST);
        board.check();
        board.ack(8 << 20, |_| ());
        assert!(board.is_empty());
    }
}
