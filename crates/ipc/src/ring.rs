//! A growing ring of bytes: the store of pipes and stream sockets.
//!
//! It starts empty, doubles when needed and keeps its memory, so that the hot path allocates
//! nothing. Its owner decides how much may be in it; the ring itself knows no limit but its user's
//! memory:
//!
//! * a large ring that becomes empty gives its memory back where its user has taken more than half
//!   of what it may: what is idle keeps nobody from the other half;
//! * a ring without memory for more takes what fits in the memory that it has, at least [`FIRST`];
//!   a full one is [`ByteRing::is_stuck`] until something leaves it, and its writer waits for that.

use abi::Result;
use abi::errno::{EAGAIN, ENOMEM};
use std::sync::Arc;
use vfs::ucounts::{Charge, Kind, Ucounts};
use vfs::{Sink, Source};

/// See the module.
#[derive(Default)]
pub struct ByteRing {
    /// Length zero or a power of two.
    buf: Vec<u8>,
    head: usize,
    len: usize,
    /// Whose memory it is.
    user: Option<Charge>,
    /// The last writer found it full, and no memory for more.
    stuck: bool,
}

/// The smallest memory of a ring, and the largest that an idle one always keeps.
const FIRST: usize = 4096;
const KEPT: usize = 16 << 10;

impl ByteRing {
    #[must_use]
    pub const fn new() -> ByteRing {
        ByteRing {
            buf: Vec::new(),
            head: 0,
            len: 0,
            user: None,
            stuck: false,
        }
    }
    /// One whose memory is charged to a user.
    #[must_use]
    pub fn of(user: &Arc<Ucounts>) -> ByteRing {
        ByteRing {
            user: Some(user.force(Kind::Kmem, 0)),
            ..ByteRing::new()
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
        self.stuck = false;
    }
    /// Whether a writer has to wait until something leaves, as its user has no memory for more.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }
    /// Forgets everything and gives the memory back.
    pub fn release(&mut self) {
        self.buf = Vec::new();
        self.clear();
        self.charge(0);
    }
    fn charge(&mut self, n: usize) {
        if let Some(u) = &mut self.user {
            u.set(n as u64);
        }
    }
    /// A writer found too little room, and no memory for more.
    pub fn set_stuck(&mut self) {
        self.stuck = true;
    }
    /// Makes room for `more` bytes that a program sends, or for fewer where its user has no more
    /// memory: `EAGAIN` where something must leave first. Pieces of up to `whole` bytes are not
    /// split. `ENOMEM` where the user is far beyond.
    pub fn make_room(&mut self, more: usize, whole: usize) -> Result<usize> {
        let want = self.len + more;
        if want > self.buf.len()
            && let Some(u) = &mut self.user
            && !u.resize(want.next_power_of_two().max(FIRST) as u64)
        {
            if self.buf.is_empty() {
                if !u.resize_at_need(FIRST as u64) {
                    return Err(ENOMEM);
                }
                self.reserve(FIRST);
            }
            let room = self.buf.len() - self.len;
            if room == 0 || (more <= whole && room < more) {
                self.set_stuck();
                return Err(EAGAIN);
            }
            return Ok(more.min(room));
        }
        self.reserve(more);
        Ok(more)
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
        self.charge(self.buf.len());
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

    /// The first `n` bytes (at most all), in two pieces.
    #[must_use]
    pub fn first(&self, n: usize) -> (&[u8], &[u8]) {
        self.slices(0, n.min(self.len))
    }

    /// Takes up to `max` bytes from `src`; fewer where it has fewer or faults, or there is no
    /// memory for more. `EAGAIN` where something must leave first.
    pub fn push_from(&mut self, src: &mut dyn Source, max: usize) -> Result<usize> {
        let n = self.make_room(max.min(src.remaining()), 0)?;
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
        self.stuck &= n == 0;
        if self.len == 0
            && self.buf.len() > KEPT
            && let Some(u) = &self.user
            && u.user().is_tight(Kind::Kmem)
        {
            self.release();
            return;
        }
        // An empty ring starts at the front again: the next bytes lie in warm cache lines, in one
        // piece.
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

    #[test]
    fn without_memory_a_ring_goes_on_in_little_and_an_idle_one_gives_back() {
        let user = vfs::Credentials::user(77_020, 77_020, vec![]);
        let u = user.ucounts();
        let most = vfs::userns::UserNs::default().limits().get(Kind::Kmem) as u64;
        let bytes = vec![7; 65_536];
        let push = |r: &mut ByteRing, n: usize, whole| {
            let n = r.make_room(n, whole)?;
            r.push_from(&mut BufSource::new(&bytes[..n]), n)
        };
        let mut big = ByteRing::of(u);
        assert_eq!(push(&mut big, 65_536, 0), Ok(65_536));
        big.consume(65_536);
        // With memory enough, it is kept.
        assert_eq!(big.buf.len(), 65_536);
        let mut rest = u.force(Kind::Kmem, most - 65_536);
        let mut r = ByteRing::of(u);
        assert_eq!(push(&mut r, 5000, 0), Ok(4096));
        assert_eq!(push(&mut r, 1, 0), Err(EAGAIN));
        assert!(r.is_stuck());
        r.consume(96);
        assert!(!r.is_stuck());
        // A piece that is to be whole waits.
        assert_eq!(push(&mut r, 4096, 4096), Err(EAGAIN));
        assert!(r.is_stuck());
        assert_eq!(push(&mut r, 4096, 0), Ok(96));
        r.consume(4096);
        assert_eq!(push(&mut r, 4096, 4096), Ok(4096));
        // The idle one gives back; what it gave is the other's.
        assert_eq!(push(&mut big, 65_536, 0), Ok(65_536));
        big.consume(65_536);
        assert_eq!(
            (big.buf.len(), u.count(Kind::Kmem) as u64),
            (0, most - 61_440)
        );
        assert_eq!(push(&mut r, 8192, 0), Ok(8192));
        // Far beyond there is nothing.
        rest.set(2 * most);
        assert_eq!(push(&mut big, 1, 0), Err(ENOMEM));
        drop((rest, r, big));
        assert_eq!(u.count(Kind::Kmem), 0);
    }
}
