//! The bounds: whatever the application writes there, what is taken is bounded, in order, and once.

use super::*;
use crate::{Lanes, Platform, notify::Notify};

/// With the area of a process that has no application code yet: the test is that.
fn with_area(f: impl FnOnce(&Area)) {
    let platform = Notify::new(Lanes::All).unwrap();
    let space = platform.new_address_space().unwrap();
    // None on a CPU without BMI2.
    if let Some(a) = space.lanes().and_then(|l| l.read_slots()) {
        f(&a);
    }
}

impl Area {
    fn bytes(&self, range: std::ops::Range<u64>) -> Vec<u8> {
        let len = (range.end - range.start) as usize;
        let mut b = vec![0; len];
        self.memory().sub(range.start as usize, len).copy_to(&mut b);
        b
    }

    /// How many descriptors the process sees to have a slot.
    fn told(&self) -> u32 {
        let u = self.command.lock().unwrap();
        let word = self.factory.unit(u).sub(stub::CMD_READ_SLOTS as usize, 4);
        word.atomic_u32().unwrap().load(Ordering::SeqCst)
    }

    fn lay(&self, index: u32, words: [u32; 3], data: u64) {
        let entry = at::RING + u64::from(index) % at::RING_LEN * at::RING_ENTRY;
        for (i, w) in words.into_iter().enumerate() {
            self.word(entry + 4 * i as u64).store(w, Ordering::SeqCst);
        }
        let m = self.memory().sub((entry + at::RING_DATA) as usize, 8);
        m.copy_from(&data.to_le_bytes());
    }

    fn taken_now(&self) -> Vec<Change> {
        let mut all = Vec::new();
        self.take_changes(|c| all.push(c));
        all
    }
}

const LAST: u32 = at::COUNT as u32 - 1;

#[test]
fn a_fill_writes_its_slot_and_nothing_else() {
    with_area(|a| {
        let all = 0..stub::read_slots::LEN;
        for slot in [0, 7, LAST] {
            let before = a.bytes(all.clone());
            let parts: [&[u8]; 2] = [&[1; 1000], &[2; at::OWN as usize - 1000]];
            let n = a.fill(slot, parts, Remainder::Empty).unwrap();
            let now = a.bytes(all.clone());
            let from = (at::SLOTS + u64::from(slot) * at::SLOT_LEN) as usize;
            let (own, len) = (from..from + at::SLOT_LEN as usize, at::OWN as usize);
            assert_eq!(now[..own.start], before[..own.start]);
            assert_eq!(now[own.end..], before[own.end..]);
            let data = &now[from + at::SLOT_DATA as usize..own.end];
            assert_eq!(data, [parts[0], parts[1]].concat());
            let word = u64::from_le_bytes(now[from..from + 8].try_into().unwrap());
            assert_eq!(word >> at::NUMBER_SHIFT, u64::from(n));
            assert_eq!(
                (word >> at::LEN_SHIFT & at::LEN_MASK) as usize,
                len,
                "{word:#x}"
            );
            assert_eq!(word & 0xf, at::LIVE | at::THEN_EMPTY);
            // One at a time.
            assert_eq!(a.fill(slot, [b"x", b""], Remainder::Ask), None);
            assert_eq!(ReadSlots::revoke(a, slot, n), 0);
            let next = a.fill(slot, [b"x", b""], Remainder::Ask).unwrap();
            assert_ne!(next, n);
        }
    });
}

/// What a filled slot says: how many bytes more there are, and those that it holds.
fn laid(a: &Area, slot: u32) -> (u32, Vec<u8>) {
    let from = at::SLOTS + u64::from(slot) * at::SLOT_LEN;
    let word = u64::from_le_bytes(a.bytes(from..from + 8).try_into().unwrap());
    let half = |at: u64| u32::from_le_bytes(a.bytes(at..at + 4).try_into().unwrap());
    let data = u64::from(half(from + at::SLOT_AT));
    let len = word >> at::LEN_SHIFT & at::LEN_MASK;
    (half(from + at::SLOT_BEHIND), a.bytes(data..data + len))
}

#[test]
fn larger_fills_have_pieces_of_their_own() {
    with_area(|a| {
        let parts = |len: usize, b: u8| (vec![b; len / 3], vec![b; len - len / 3]);
        let mut live = Vec::new();
        for (slot, len) in (0..).zip([5000, 1, 1984, 1985, 8192, 8193, 65_536]) {
            let (x, y) = parts(len, slot as u8 + 1);
            let n = a
                .fill(slot, [&x, &y], Remainder::More(70_000 + slot))
                .unwrap();
            live.push((slot, n, len));
        }
        for (slot, _, len) in &live {
            assert_eq!(laid(a, *slot), (70_000 + slot, vec![*slot as u8 + 1; *len]));
        }
        // As many large ones as there are, and small ones in their place.
        let mut more = 0;
        while let Some(n) = a.fill(10 + more, [&[7; 8193], b""], Remainder::Ask) {
            live.push((10 + more, n, 8193));
            more += 1;
        }
        assert_eq!(u64::from(more), at::LARGE_COUNT - 2);
        while let Some(n) = a.fill(10 + more, [&[8; 8192], b""], Remainder::Ask) {
            live.push((10 + more, n, 8192));
            more += 1;
        }
        assert_eq!(u64::from(more), at::LARGE_COUNT - 2 + at::SMALL_COUNT - 3);
        assert!(
            a.fill(100, [&[9; at::OWN as usize], b""], Remainder::Ask)
                .is_some()
        );
        for (slot, n, len) in live {
            assert_eq!(laid(a, slot).1.len(), len);
            assert_eq!(ReadSlots::revoke(a, slot, n), 0);
        }
        assert_eq!(a.free.load(Ordering::SeqCst), ALL);
    });
}

#[test]
fn counts_end_for_good() {
    with_area(|a| {
        a.fill(1, [b"x", b""], Remainder::More(5)).unwrap();
        assert_eq!(laid(a, 1).0, 5);
        a.end_counts();
        assert_eq!(laid(a, 1), (at::UNTOLD, b"x".to_vec()));
        a.fill(2, [b"y", b""], Remainder::More(5)).unwrap();
        assert_eq!(laid(a, 2), (at::UNTOLD, b"y".to_vec()));
    });
}

#[test]
fn what_has_no_room_is_not_filled_in() {
    with_area(|a| {
        let before = a.bytes(0..stub::read_slots::LEN);
        let much = [0xff; at::MAX as usize + 1];
        assert_eq!(a.fill(0, [&much, b""], Remainder::Ask), None);
        assert_eq!(a.fill(0, [&much[1..], b"x"], Remainder::Ask), None);
        for slot in [LAST + 1, 1 << 21, u32::MAX] {
            assert_eq!(a.fill(slot, [b"x", b""], Remainder::Ask), None);
            assert_eq!(ReadSlots::revoke(a, slot, 1 << 31), 0);
        }
        assert_eq!(a.bytes(0..stub::read_slots::LEN), before);
    });
}

#[test]
fn a_forged_word_tells_no_more_than_a_number_of_bytes() {
    with_area(|a| {
        for forged in [0, !0, at::LIVE, !at::LIVE, 5 << at::TAKEN_SHIFT, 1 << 63] {
            let n = a.fill(3, [b"hello", b""], Remainder::Ask).unwrap();
            a.slot(3).1.store(forged, Ordering::SeqCst);
            // Another fill is not revoked.
            assert_eq!(ReadSlots::revoke(a, 3, n ^ 1), 0);
            assert_eq!(ReadSlots::revoke(a, 3, 0), 0);
            assert_eq!(a.slot(3).1.load(Ordering::SeqCst), forged);
            let taken = (forged >> at::TAKEN_SHIFT & at::LEN_MASK) as usize;
            assert_eq!(ReadSlots::revoke(a, 3, n), taken);
            // It is over, whatever stood there, and stands there now.
            assert_eq!(a.slot(3).1.load(Ordering::SeqCst), 0);
            a.slot(3).1.store(forged, Ordering::SeqCst);
            assert_eq!(ReadSlots::revoke(a, 3, n), 0);
            assert_eq!(ReadSlots::revoke(a, 3, 0), 0);
        }
    });
}

#[test]
fn descriptors_without_a_place_are_nobodys() {
    with_area(|a| {
        let before = a.bytes(0..stub::read_slots::LEN);
        for fd in [-1, i32::MIN, LAST as i32 + 1, 0x100, i32::MAX] {
            a.want(fd);
            assert!(!a.wants(fd));
            a.set_state(fd, InSet::Yes);
        }
        assert_eq!(a.bytes(0..stub::read_slots::LEN), before);
        for fd in [0, 63, 64, LAST as i32] {
            assert!(!a.wants(fd));
            a.want(fd);
            assert!(a.wants(fd));
            a.set_state(fd, InSet::Yes);
            let state = at::STATES + fd as u64;
            assert_eq!(a.bytes(state..state + 1), [at::IN]);
        }
        assert!(!a.wants(1) && !a.wants(65));
        // States are before the changes.
        assert_eq!(
            a.bytes(at::STATES + at::COUNT..at::SLOTS),
            before[(at::STATES + at::COUNT) as usize..at::SLOTS as usize]
        );
    });
}

#[test]
fn changes_are_taken_once_in_order_and_not_more_than_there_is_room_for() {
    with_area(|a| {
        a.defer_for(Some(9));
        let ring = at::RING_LEN as u32;
        let mut laid = 0u32;
        // How many more are said to lie there, up to so many that the ring has been round often.
        for more in [1, 2, ring - 1, ring, ring + 1, 1 << 31, u32::MAX, 5, 0] {
            for i in 0..more.min(ring) {
                let fd = !i;
                a.lay(laid.wrapping_add(i), [i, fd, !0], u64::MAX - u64::from(i));
            }
            // What it says of what was taken is not asked.
            a.word(at::TAKEN).store(laid ^ 0x5555, Ordering::SeqCst);
            laid = laid.wrapping_add(more);
            a.word(at::LAID).store(laid, Ordering::SeqCst);
            let got = a.taken_now();
            assert_eq!(got.len() as u32, more.min(ring), "{more}");
            for (i, c) in (0..).zip(got) {
                let expected = Change {
                    op: i,
                    fd: !i as i32,
                    events: !0,
                    data: u64::MAX - u64::from(i),
                };
                assert_eq!(c, expected);
            }
            if more != 0 {
                assert_eq!(a.word(at::TAKEN).load(Ordering::SeqCst), laid);
            }
            assert_eq!(a.taken_now(), []);
        }
    });
}

/// What is laid while changes are taken is taken the next time: nobody is kept by one who goes on
/// laying.
#[test]
fn who_goes_on_laying_keeps_nobody() {
    with_area(|a| {
        a.defer_for(Some(9));
        a.word(at::LAID).store(3, Ordering::SeqCst);
        for _ in 0..2 {
            let mut n = 0;
            a.take_changes(|_| {
                n += 1;
                a.word(at::LAID).fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(n, 3);
        }
    });
}

#[test]
fn what_lay_there_before_a_deferral_is_nobodys() {
    with_area(|a| {
        for (laid, fd) in [(77, 0), (5, 200), (u32::MAX, i32::MAX)] {
            a.word(at::LAID).store(laid, Ordering::SeqCst);
            a.set_state(3, InSet::Yes);
            a.defer_for(None);
            assert_eq!(a.word(at::EPOLL).load(Ordering::SeqCst), at::NO_EPOLL);
            assert_eq!(a.bytes(at::STATES..at::STATES + 4), [at::ASK; 4]);
            a.defer_for(Some(fd));
            assert_eq!(a.word(at::EPOLL).load(Ordering::SeqCst), fd as u32);
            assert_eq!(a.taken_now(), []);
        }
    });
}

#[test]
fn an_end_is_final() {
    with_area(|a| {
        assert_eq!(a.told(), at::COUNT as u32);
        let n = a.fill(5, [b"hello", b""], Remainder::Ask).unwrap();
        a.defer_for(Some(4));
        Area::end(a);
        assert!(a.has_ended());
        assert_eq!(a.told(), 0);
        assert_eq!(a.word(at::EPOLL).load(Ordering::SeqCst), at::NO_EPOLL);
        let word = a.slot(5).1.load(Ordering::SeqCst);
        assert_ne!(word & at::CLOSED, 0);
        assert_eq!(a.fill(6, [b"x", b""], Remainder::Ask), None);
        // The source is told what was taken, all the same.
        let w = word + (2 << at::TAKEN_SHIFT);
        a.slot(5).1.store(w, Ordering::SeqCst);
        assert_eq!(ReadSlots::revoke(a, 5, n), 2);
        assert_eq!(a.fill(5, [b"x", b""], Remainder::Ask), None);
        a.unmapped();
        assert!(a.command.lock().is_none());
        // Without its process, too.
        Area::end(a);
    });
}
