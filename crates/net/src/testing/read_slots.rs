//! Bytes in a read slot: whatever is done to the socket, they are had once.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use vfs::FileOps;
use vfs::file::O_NONBLOCK;
use wait::read_slots::{ReadSlots, Remainder};

/// An address space's slots, of which one is used, and a reader that takes of it.
#[derive(Default)]
struct OneSlot {
    state: Mutex<State>,
    /// What [`ReadSlots::revoke`] says was taken beyond what was.
    forged: AtomicUsize,
}

#[derive(Default)]
struct State {
    number: u32,
    live: bool,
    data: Vec<u8>,
    taken: usize,
    then: Option<Remainder>,
}

impl ReadSlots for OneSlot {
    fn fill(&self, slot: u32, parts: [&[u8]; 2], then: Remainder) -> Option<u32> {
        assert_eq!(slot, 5);
        let mut s = self.state.lock();
        if s.live {
            return None;
        }
        *s = State {
            number: s.number + 1,
            live: true,
            data: parts.concat(),
            taken: 0,
            then: Some(then),
        };
        Some(s.number)
    }
    fn revoke(&self, slot: u32, number: u32) -> usize {
        let mut s = self.state.lock();
        assert_eq!((slot, number, s.live), (5, s.number, true));
        s.live = false;
        s.taken + self.forged.load(Ordering::Relaxed)
    }
}

impl OneSlot {
    /// A read of the program's; `None`: it asks.
    fn read(&self, n: usize) -> Option<Result<Vec<u8>>> {
        let mut s = self.state.lock();
        if !s.live {
            return None;
        }
        let left = &s.data[s.taken..];
        let got = left[..n.min(left.len())].to_vec();
        if got.is_empty() {
            return (s.then == Some(Remainder::Empty)).then_some(Err(abi::errno::EAGAIN));
        }
        if n > left.len() && matches!(s.then, Some(Remainder::More(_))) {
            return None;
        }
        s.taken += got.len();
        Some(Ok(got))
    }
    /// How much there is to be read, for who asks the program's side.
    fn count(&self) -> Option<usize> {
        let s = self.state.lock();
        let behind = match s.then {
            Some(Remainder::More(n)) => n as usize,
            _ => 0,
        };
        s.live.then(|| s.data.len() - s.taken + behind)
    }
}

struct Case {
    world: World,
    reader: Arc<Socket>,
    writer: Arc<Socket>,
    file: Arc<File>,
    slots: Arc<OneSlot>,
    as_dyn: Arc<dyn ReadSlots>,
}

impl Case {
    fn fill_slot(&self) {
        self.reader.fill_slot(&self.file, &self.as_dyn, 5);
    }
    fn send(&self, b: &[u8]) {
        assert_eq!(self.world.send(&self.writer, b), Ok(b.len()));
    }
    fn live(&self) -> bool {
        self.slots.state.lock().live
    }
}

fn cases(f: impl Fn(Case)) {
    for tcp in [false, true] {
        let world = World::new();
        let (reader, writer) = if tcp {
            super::inet::connected(&world)
        } else {
            world.pair(SOCK_STREAM)
        };
        let flags = O_RDWR | O_NONBLOCK;
        let file = File::new(reader.clone(), flags, None, world.cred.clone());
        let slots = Arc::new(OneSlot::default());
        f(Case {
            world,
            reader,
            writer,
            file,
            as_dyn: slots.clone(),
            slots,
        });
    }
}

#[test]
fn what_was_taken_is_gone_from_the_queue() {
    cases(|c| {
        c.send(b"0123456789");
        c.fill_slot();
        assert_eq!(c.slots.read(3), Some(Ok(b"012".to_vec())));
        assert_eq!(bytes(&c.reader, 4).unwrap(), b"3456");
        assert!(!c.live());
        c.fill_slot();
        assert_eq!(c.slots.read(9), Some(Ok(b"789".to_vec())));
        assert_eq!(c.slots.read(9), Some(Err(abi::errno::EAGAIN)));
        // It is asked for events, which are none.
        assert!(!poll(&c.reader).contains(Events::IN));
        assert!(!c.live() && c.slots.read(9).is_none());
    });
}

/// Each of these revokes the slot, and a part that was taken is dropped first.
#[test]
fn whatever_looks_at_the_queue_ends_it() {
    let all: [fn(&Case); 8] = [
        |c| c.send(b"more"),
        |c| assert_eq!(receive(&c.reader, 2, MSG_PEEK).unwrap().0, b"cd"),
        |c| assert!(poll(&c.reader).contains(Events::IN)),
        |c| c.writer.shutdown(SHUT_WR).unwrap(),
        |c| c.reader.shutdown(SHUT_RD).unwrap(),
        |c| c.file.set_flags(O_RDWR),
        |c| c.world.set(&c.reader, SOL_SOCKET, 18, 7).unwrap(),
        |c| c.reader.slot_source().unwrap().revoke_slot(),
    ];
    for look in all {
        cases(|c| {
            c.send(b"abcdef");
            c.fill_slot();
            assert_eq!(c.slots.read(2), Some(Ok(b"ab".to_vec())));
            look(&c);
            assert!(!c.live());
            let got = bytes(&c.reader, 100).unwrap();
            assert!(got.starts_with(b"cdef"), "{got:?}");
        });
    }
}

/// Nothing that the writer does but writing ends it, and what the writer sees is the same.
#[test]
fn the_writer_goes_on() {
    cases(|c| {
        c.send(&[7; 1500]);
        c.fill_slot();
        assert!(poll(&c.writer).contains(Events::OUT));
        assert!(c.live());
        assert_eq!(c.slots.read(1000).unwrap().unwrap().len(), 1000);
        assert!(poll(&c.writer).contains(Events::OUT));
        c.send(b"x");
        assert_eq!(bytes(&c.reader, 2000).unwrap().len(), 501);
    });
}

#[test]
fn a_slot_gives_only_what_a_read_would() {
    cases(|c| {
        // Empty, and one who waits.
        c.file.set_flags(O_RDWR);
        c.fill_slot();
        assert!(!c.live());
        c.send(b"a");
        c.fill_slot();
        assert_eq!(c.slots.read(9), Some(Ok(b"a".to_vec())));
        assert_eq!(c.slots.read(9), None);
        c.file.set_flags(O_RDWR | O_NONBLOCK);
        // Much, to who has read little so far.
        c.send(&[1; 20_000]);
        c.fill_slot();
        assert!(!c.live());
        // And to who reads much at a time.
        bytes(&c.reader, 9000).unwrap();
        c.fill_slot();
        assert!(!c.live());
        bytes(&c.reader, 20_000).unwrap();
        c.world.set(&c.reader, SOL_SOCKET, 18, 2).unwrap();
        c.send(b"a");
        c.fill_slot();
        assert!(!c.live());
        c.world.set(&c.reader, SOL_SOCKET, 18, 1).unwrap();
        c.fill_slot();
        assert!(c.live());
        c.writer.shutdown(SHUT_WR).unwrap();
        c.fill_slot();
        assert!(!c.live());
    });
    let w = World::new();
    let (a, b) = w.pair(SOCK_STREAM);
    let file = w.file(a.clone());
    let slots = Arc::new(OneSlot::default());
    let as_dyn: Arc<dyn ReadSlots> = slots.clone();
    w.send(&b, b"x").unwrap();
    w.send_files(&b, b"y", vec![w.file(b.clone())]).unwrap();
    a.fill_slot(&file, &as_dyn, 5);
    assert!(!slots.state.lock().live);
}

/// Of much, a reader in pieces finds the first bytes in its slot: more each time that all are
/// taken, fewer where not.
#[test]
fn pieces_of_much() {
    cases(|c| {
        let all: Vec<u8> = (0..90_000u32).map(|i| (i % 251) as u8).collect();
        c.send(&all);
        let mut got = Vec::new();
        let call = |got: &mut Vec<u8>| got.extend(bytes(&c.reader, 4000).unwrap());
        let left = |got: &Vec<u8>| all.len() - got.len();
        for filled in [16 << 10, 32 << 10] {
            call(&mut got);
            c.fill_slot();
            assert_eq!(c.slots.count(), Some(left(&got)));
            let begin = got.len();
            while let Some(b) = c.slots.read(4000) {
                got.extend(b.unwrap());
                assert_eq!(c.slots.count(), Some(left(&got)));
            }
            // What is left of it is less than a read asks for.
            assert_eq!(got.len() - begin, filled / 4000 * 4000);
            got.extend(c.slots.read(filled % 4000).unwrap().unwrap());
            assert_eq!(c.slots.read(1), None);
        }
        // It is not wanted.
        for _ in 0..5 {
            call(&mut got);
            c.fill_slot();
        }
        assert!(!c.live());
        assert_eq!(c.slots.count(), None);
        while left(&got) > 0 {
            call(&mut got);
        }
        assert_eq!(got, all);
    });
}

/// What is taken of a slot does not change whether the writer may write, also where it waits for
/// room.
#[test]
fn a_writer_that_waits_is_told_in_time() {
    cases(|c| {
        while c.world.send(&c.writer, &[5; 30_000]).is_ok() {}
        let may_write = || poll(&c.writer).contains(Events::OUT);
        let mut taken = 0;
        while !may_write() {
            taken += bytes(&c.reader, 3000).unwrap().len();
            if may_write() {
                break;
            }
            c.fill_slot();
            while let Some(Ok(b)) = c.slots.read(3000) {
                taken += b.len();
                assert!(c.live() && !may_write());
            }
        }
        let all = taken + bytes(&c.reader, 10_000_000).unwrap().len();
        // With a third free, and a read more at most.
        assert!(
            taken * 3 >= all - 3 && (taken - 6000) * 3 <= all,
            "{taken} of {all}"
        );
    });
}

/// Whatever is written, read and put into slots: all bytes come once, in order, the count is
/// theirs, and the writer sees no difference.
#[test]
fn many_steps_by_both_ways() {
    let world = World::new();
    let (reader, writer) = super::inet::connected(&world);
    let file = File::new(
        reader.clone(),
        O_RDWR | O_NONBLOCK,
        None,
        world.cred.clone(),
    );
    let slots = Arc::new(OneSlot::default());
    let as_dyn: Arc<dyn ReadSlots> = slots.clone();
    let may_write = || poll(&writer).contains(Events::OUT);
    let (mut sent, mut got) = (0usize, 0usize);
    let byte = |i: usize| (i % 251) as u8;
    let mut seed = 1u32;
    let mut random = |n: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % n
    };
    let take = |got: &mut usize, b: Vec<u8>| {
        assert!(b.iter().enumerate().all(|(i, x)| *x == byte(*got + i)));
        *got += b.len();
    };
    for _ in 0..20_000 {
        match random(6) {
            0 => {
                let n = [100, 5000, 40_000, 300_000][random(4) as usize];
                let b: Vec<u8> = (sent..sent + n).map(byte).collect();
                sent += world.send(&writer, &b).unwrap_or(0);
            }
            1 => take(&mut got, bytes(&reader, 3000).unwrap_or_default()),
            2 => reader.fill_slot(&file, &as_dyn, 5),
            _ => {
                if let Some(Ok(b)) = slots.read(3000) {
                    take(&mut got, b);
                }
            }
        }
        if let Some(n) = slots.count() {
            assert_eq!(n, sent - got);
        }
        // Whether or not it is known what was taken.
        let before = may_write();
        if random(20) == 0 {
            reader.slot_source().unwrap().revoke_slot();
            assert_eq!(may_write(), before);
        }
    }
    while let Ok(b) = bytes(&reader, 100_000)
        && !b.is_empty()
    {
        take(&mut got, b);
    }
    assert_eq!(got, sent);
}

/// More than a slot was filled with cannot be taken.
#[test]
fn a_forged_count_is_bounded() {
    cases(|c| {
        c.send(b"abc");
        c.fill_slot();
        c.slots.forged.store(2000, Ordering::Relaxed);
        c.send(b"later");
        assert_eq!(bytes(&c.reader, 100).unwrap(), b"later");
    });
}
