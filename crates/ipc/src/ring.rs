//! A growing ring of bytes: the store of pipes and stream sockets.
//!
//! It starts empty, doubles when needed and keeps its memory, so that the hot path allocates nothing. Its
//! owner decides how much may be in it; the ring itself knows no limit.

use abi::Result;
use vfs::{Sink, Source};

/// See the module.
#[derive(Default)]
pub struct ByteRing {
    /// Length zero or a power of two.
    buf: Vec<u8>,
    head: usize,
    len: usize,
}

const FIRST: usize = 4096;

impl ByteRing {
    #[must_use]
    pub const fn new() -> ByteRing {
        ByteRing {
            buf: Vec::new(),
            head: 0,
            len: 0,
        }
    }
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub fn clear(&mut self) {
        self.head = 0;
        self.len = 0;
    }
    /// Forgets everything and gives the memory back.
    pub fn release(&mut self) {
        *self = ByteRing::new();
    }

    fn mask(&self, i: usize) -> usize {
        i & self.buf.len().wrapping_sub(1)
    }

    fn reserve(&mut self, more: usize) {
        let want = self.len + more;
        if want <= self.buf.len() {
            return;
        }
        let mut new = vec![0; want.next_power_of_two().max(FIRST)];
        let (a, b) = self.slices(0, self.len);
        new[..a.len()].copy_from_slice(a);
        new[a.len()..a.len() + b.len()].copy_from_slice(b);
        self.buf = new;
        self.head = 0;
    }

    /// Bytes `[from, from + n)` of the content as two slices; both must be inside.
    fn slices(&self, from: usize, n: usize) -> (&[u8], &[u8]) {
        if n == 0 {
            return (&[], &[]);
        }
        let at = self.mask(self.head + from);
        let first = n.min(self.buf.len() - at);
        (&self.buf[at..at + first], &self.buf[..n - first])
    }

    /// All that is in it, in two pieces.
    #[must_use]
    pub fn content(&self) -> (&[u8], &[u8]) {
        self.slices(0, self.len)
    }

    /// Takes up to `max` bytes from `src`; fewer where it has fewer or faults.
    pub fn push_from(&mut self, src: &mut dyn Source, max: usize) -> Result<usize> {
        let n = max.min(src.remaining());
        self.reserve(n);
        let mut done = 0;
        while done < n {
            let at = self.mask(self.head + self.len);
            let end = (at + n - done).min(self.buf.len());
            match src.take(&mut self.buf[at..end]) {
                Ok(0) => break,
                Ok(k) => {
                    let k = k.min(end - at);
                    self.len += k;
                    done += k;
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Takes the last `n` bytes back.
    pub fn drop_back(&mut self, n: usize) {
        self.len -= n.min(self.len);
    }

    /// Appends all of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let at = self.mask(self.head + self.len);
        let first = bytes.len().min(self.buf.len() - at);
        self.buf[at..at + first].copy_from_slice(&bytes[..first]);
        self.buf[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        self.len += bytes.len();
    }

    /// Puts `bytes` before the first: what a splice took and could not deliver.
    pub fn push_front(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.reserve(bytes.len());
        self.head = self.mask(self.head.wrapping_sub(bytes.len()));
        let first = bytes.len().min(self.buf.len() - self.head);
        self.buf[self.head..self.head + first].copy_from_slice(&bytes[..first]);
        self.buf[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        self.len += bytes.len();
    }

    /// Copies up to `max` bytes, from the `from`-th on, to `dst` without taking them out.
    pub fn peek_into(&self, dst: &mut dyn Sink, from: usize, max: usize) -> Result<usize> {
        let from = from.min(self.len);
        let n = max.min(self.len - from).min(dst.remaining());
        let (a, b) = self.slices(from, n);
        let mut done = 0;
        for part in [a, b] {
            if part.is_empty() {
                continue;
            }
            match dst.put(part) {
                Ok(k) => {
                    done += k.min(part.len());
                    if k < part.len() {
                        break;
                    }
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Drops the first `n` bytes (at most all).
    pub fn consume(&mut self, n: usize) {
        let n = n.min(self.len);
        self.len -= n;
        // An empty ring starts at the front again: the next bytes lie in warm cache lines, in one piece.
        self.head = if self.len == 0 {
            0
        } else {
            self.mask(self.head + n)
        };
    }

    /// Moves up to `max` bytes to `dst`.
    pub fn pop_into(&mut self, dst: &mut dyn Sink, max: usize) -> Result<usize> {
        let n = self.peek_into(dst, 0, max)?;
        self.consume(n);
        Ok(n)
    }

    /// Appends the first `n` bytes of `other` without taking them out there.
    pub fn push_copy(&mut self, other: &ByteRing, n: usize) {
        let (a, b) = other.slices(0, n.min(other.len));
        self.push(a);
        self.push(b);
    }

    /// The first `n` bytes (at most all), taken out.
    #[must_use]
    pub fn pop_vec(&mut self, n: usize) -> Vec<u8> {
        let n = n.min(self.len);
        let (a, b) = self.slices(0, n);
        let mut v = Vec::with_capacity(n);
        v.extend_from_slice(a);
        v.extend_from_slice(b);
        self.consume(n);
        v
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use vfs::file::{BufSink, BufSource};

    proptest! {
        #[test]
        fn behaves_as_a_queue(ops in proptest::collection::vec((0u8..4, 0usize..9000), 1..60)) {
            let mut ring = ByteRing::new();
            let mut model: VecDeque<u8> = VecDeque::new();
            let mut next = 0u8;
            for (op, n) in ops {
                match op {
                    0 | 1 => {
                        let bytes: Vec<u8> = (0..n).map(|_| { next = next.wrapping_add(7); next }).collect();
                        if op == 0 { ring.push(&bytes) } else {
                            prop_assert_eq!(ring.push_from(&mut BufSource::new(&bytes), n).unwrap(), n);
                        }
                        model.extend(&bytes);
                    }
                    2 => {
                        let mut v = vec![0; n];
                        let got = ring.pop_into(&mut BufSink::new(&mut v), usize::MAX).unwrap();
                        let want: Vec<u8> = model.drain(..n.min(model.len())).collect();
                        prop_assert_eq!(&v[..got], &want[..]);
                    }
                    _ => {
                        let v = ring.pop_vec(n);
                        ring.push_front(&v);
                    }
                }
                prop_assert_eq!(ring.len(), model.len());
            }
        }
    }
}
