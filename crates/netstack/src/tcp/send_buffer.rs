//! The bytes that are written and not yet acknowledged, by their place in the stream.
//!
//! They lie in chunks that are filled one after another and never moved. A chunk is 4 KiB where
//! little is written, 64 KiB where much is, so that a super-segment is few slices. Chunks whose
//! bytes are acknowledged are used again, the last one first: it is still in the cache.

use std::collections::VecDeque;

const SMALL: usize = 4 << 10;
const MIDDLE: usize = 16 << 10;
const LARGE: usize = 64 << 10;
/// How many bytes of empty chunks are kept at most.
const SPARE: usize = 1 << 20;

struct Chunk {
    /// The place of its first byte.
    start: u64,
    data: Vec<u8>,
    /// How many are written.
    len: usize,
}

/// See the module.
pub(super) struct SendBuffer {
    chunks: VecDeque<Chunk>,
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
    /// Chunk bytes, without the spare ones.
    held: usize,
    /// The first byte that is not acknowledged, and the place after the last one.
    start: u64,
    end: u64,
}

impl SendBuffer {
    pub fn new(start: u64) -> SendBuffer {
        SendBuffer {
            chunks: VecDeque::new(),
            spare: Vec::new(),
            spare_bytes: 0,
            held: 0,
            start,
            end: start,
        }
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Bytes of memory, used or not.
    pub fn memory(&self) -> usize {
        self.held + self.spare_bytes
    }

    /// Whether empty chunks are kept that a quiet connection should not hold.
    pub fn has_spare(&self) -> bool {
        self.spare_bytes > SMALL
    }

    /// Gives empty chunks back, but a small one.
    pub fn trim(&mut self) {
        self.spare.retain(|c| c.len() <= SMALL);
        self.spare.truncate(1);
        self.spare.shrink_to_fit();
        self.spare_bytes = self.spare.iter().map(Vec::len).sum();
    }

    /// Has at most `room` bytes filled in; see [`super::Connection::write`].
    pub fn fill<E>(
        &mut self,
        room: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut done = 0;
        while done < room {
            if self.chunks.back().is_none_or(|c| c.len == c.data.len()) {
                self.grow(room - done);
            }
            let Some(chunk) = self.chunks.back_mut() else {
                break;
            };
            let free = (chunk.data.len() - chunk.len).min(room - done);
            let piece = &mut chunk.data[chunk.len..][..free];
            let n = match fill(piece) {
                Ok(n) => n.min(free),
                Err(_) if done > 0 => break,
                Err(e) => {
                    self.drop_empty();
                    return Err(e);
                }
            };
            chunk.len += n;
            self.end += n as u64;
            done += n;
            if n < free {
                break;
            }
        }
        self.drop_empty();
        Ok(done)
    }

    /// A chunk more at the end.
    fn grow(&mut self, room: usize) {
        let data = self.spare.pop().inspect(|c| self.spare_bytes -= c.len());
        let data = data.unwrap_or_else(|| {
            let last = self.chunks.back().map_or(0, |c| c.data.len());
            let size = match last {
                0 => SMALL,
                SMALL => MIDDLE,
                _ => LARGE,
            };
            vec![0; if room < SMALL { SMALL } else { size }]
        });
        self.held += data.len();
        self.chunks.push_back(Chunk {
            start: self.end,
            data,
            len: 0,
        });
    }

    /// Takes away a last chunk that nothing was written to.
    fn drop_empty(&mut self) {
        if self.chunks.back().is_some_and(|c| c.len == 0)
            && let Some(c) = self.chunks.pop_back()
        {
            self.recycle(c.data);
        }
    }

    fn recycle(&mut self, data: Vec<u8>) {
        self.held -= data.len();
        if self.spare_bytes + data.len() <= SPARE {
            self.spare_bytes += data.len();
            self.spare.push(data);
        }
    }

    /// All before `place` is acknowledged.
    pub fn release(&mut self, place: u64) {
        let place = place.clamp(self.start, self.end);
        self.start = place;
        while let Some(c) = self.chunks.front()
            && c.start + c.len as u64 <= place
        {
            // The last chunk is filled on where it has room.
            if self.chunks.len() == 1 && c.len < c.data.len() && self.end > place {
                break;
            }
            if let Some(c) = self.chunks.pop_front() {
                self.recycle(c.data);
            }
        }
    }

    /// Hands out the bytes from `from` to `to` as slices. What is not there is left out.
    pub fn slices<R>(&self, from: u64, to: u64, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        let (from, to) = (from.max(self.start), to.min(self.end));
        let first = self
            .chunks
            .partition_point(|c| c.start + c.len as u64 <= from);
        let mut few: [&[u8]; 4] = [&[]; 4];
        let mut many: Vec<&[u8]> = Vec::new();
        let mut n = 0;
        for c in self.chunks.range(first..) {
            if c.start >= to {
                break;
            }
            let a = from.saturating_sub(c.start) as usize;
            let b = ((to - c.start) as usize).min(c.len);
            let piece = &c.data[a..b];
            if n < few.len() {
                few[n] = piece;
            } else {
                if many.is_empty() {
                    many.extend_from_slice(&few);
                }
                many.push(piece);
            }
            n += 1;
        }
        f(if many.is_empty() { &few[..n] } else { &many })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(b: &mut SendBuffer, bytes: &[u8]) -> usize {
        let mut at = 0;
        b.fill::<()>(usize::MAX >> 1, |to| {
            let n = to.len().min(bytes.len() - at);
            to[..n].copy_from_slice(&bytes[at..at + n]);
            at += n;
            Ok(n)
        })
        .unwrap()
    }

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut b = SendBuffer::new(7);
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i * 7) as u8).collect();
        assert_eq!(write(&mut b, &bytes), bytes.len());
        b.release(7 + 5_000);
        for (from, to) in [(5_000, 5_001), (10_000, 75_000), (5_000, 300_000)] {
            let got = b.slices(7 + from as u64, 7 + to as u64, |s| s.concat());
            assert_eq!(got, bytes[from..to]);
        }
        let n = b.slices(100_000, 165_000, |s| s.len());
        assert!(n <= 3, "{n} slices");
        b.release(7 + 300_000);
        assert_eq!(b.len(), 0);
        assert!(b.has_spare());
        b.trim();
        assert!(b.memory() <= SMALL);
    }

    #[test]
    fn a_refused_fill_leaves_nothing() {
        let mut b = SendBuffer::new(0);
        assert_eq!(b.fill(10, |_| Err(5)), Err(5));
        assert_eq!(b.fill::<()>(10, |to| Ok(to.len())), Ok(10));
        assert_eq!(b.len(), 10);
    }
}
