//! Values of what is sent in messages: of each row of the tables, from numbers that a test gives.

use crate::proto::{Entry, Handle, Seen};
use crate::wire::{MAX_ALSO, MAX_NAMES};
use abi::Errno;

/// Names that lead somewhere, nowhere, and out; and those of attributes.
const NAMES: [&[u8]; 24] = [
    b"rw",
    b"ro",
    b"f",
    b"dir",
    b"sub",
    b"up",
    b"abs",
    b"magic",
    b"new",
    b"new2",
    b"..",
    b".",
    b"",
    b"/",
    b"../out/f",
    b"dir/f",
    b"a\0b",
    b"/etc/passwd",
    &[b'n'; 300],
    b"user.a",
    b"user.b",
    b"trusted.a",
    b"security.capability",
    crate::proto::ACL,
];

/// Where values come from. Behind the last number are zeros.
pub struct Samples<'a> {
    numbers: std::slice::Iter<'a, u64>,
    handles: &'a [Handle],
}

impl<'a> Samples<'a> {
    /// `handles` are those that the server gave.
    pub fn new(numbers: &'a [u64], handles: &'a [Handle]) -> Samples<'a> {
        let numbers = numbers.iter();
        Samples { numbers, handles }
    }
    fn next(&mut self) -> u64 {
        self.numbers.next().copied().unwrap_or_default()
    }
    /// One of these.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.next() as usize % all.len()]
    }
}

pub trait Sample: Sized {
    fn sample(s: &mut Samples<'_>) -> Self;
    fn sample_all(s: &mut Samples<'_>) -> Vec<Self> {
        let n = s.pick(&[0, 1, 2, 3, 4, MAX_NAMES]);
        (0..n).map(|_| Self::sample(s)).collect()
    }
}

impl Sample for u8 {
    fn sample(s: &mut Samples<'_>) -> Self {
        s.next() as u8
    }
    fn sample_all(s: &mut Samples<'_>) -> Vec<Self> {
        match s.next() as usize % (NAMES.len() + 3) {
            n if n < NAMES.len() => NAMES[n].to_vec(),
            n => (NAMES.len()..=n)
                .flat_map(|_| s.next().to_le_bytes())
                .collect(),
        }
    }
}

impl Sample for u16 {
    fn sample(s: &mut Samples<'_>) -> Self {
        s.next() as u16
    }
}

/// Flags, ids, and modes of each type: of a FIFO, too.
impl Sample for u32 {
    fn sample(s: &mut Samples<'_>) -> Self {
        let any = s.next() as u32;
        s.pick(&[u32::MAX, 0, 1, 2, 4, 0o010_644, any & 0o177_777, any])
    }
}

impl Sample for u64 {
    fn sample(s: &mut Samples<'_>) -> Self {
        let any = s.next();
        s.pick(&[0, any & 0xffff, any])
    }
}

impl Sample for i64 {
    fn sample(s: &mut Samples<'_>) -> Self {
        u64::sample(s) as i64
    }
}

impl Sample for bool {
    fn sample(s: &mut Samples<'_>) -> Self {
        s.pick(&[false, true])
    }
}

/// Most are known.
impl Sample for Handle {
    fn sample(s: &mut Samples<'_>) -> Self {
        let handles = s.handles;
        match s.next() as usize % (handles.len() + 2) {
            n if n < handles.len() => handles[n],
            _ => Handle(s.next()),
        }
    }
}

impl Sample for Option<Errno> {
    fn sample(s: &mut Samples<'_>) -> Self {
        Errno::new(s.next() as i32 % 134)
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(s: &mut Samples<'_>) -> Self {
        bool::sample(s).then(|| T::sample(s))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(s: &mut Samples<'_>) -> Self {
        T::sample_all(s)
    }
}

impl Sample for Entry {
    fn sample(s: &mut Samples<'_>) -> Self {
        Entry {
            ino: Sample::sample(s),
            kind: Sample::sample(s),
            name: Sample::sample(s),
        }
    }
}

impl Sample for Seen {
    fn sample(s: &mut Samples<'_>) -> Self {
        let mut names: Vec<_> = Sample::sample(s);
        names.truncate(1 + MAX_ALSO);
        let version = Sample::sample(s);
        Seen { version, names }
    }
}
