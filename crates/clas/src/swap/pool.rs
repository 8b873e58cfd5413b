//! Pages that were swapped out, compressed, in memory.
//!
//! # Invariants
//!
//! - The pool's memory is cut into blocks; a block has objects of one size. An object is free, or
//!   holds one page: its compressed length (two bytes), then so many bytes.
//! - A [`Slot`] names an object that is not free. It belongs to who was given it: contents are
//!   written before the slot is handed out, and read before it is freed. So they are copied without
//!   the lock, which protects what is free alone.
//! - The lock is a leaf.

use super::{PAGE, Slot, Store};
use crate::{Cla, Clas};
use abi::errno::EIO;
use abi::{PAGE_SIZE, Result};
use hostcall::mem::memfd;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sizes of objects are multiples of this, in bytes.
const STEP: usize = 256;
/// How many sizes there are: the largest object holds a page that did not become smaller.
const SIZES: usize = PAGE / STEP + 1;
/// Pages of a block.
const BLOCK: u64 = 16;
/// Objects of a block, at most.
const OBJECTS: u32 = 256;
/// Bytes before the contents.
const HEAD: usize = 2;

/// The pool.
pub(crate) struct Pool {
    memory: Arc<Clas>,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    /// By number; `None` for one that was given back.
    all: Vec<Option<Block>>,
    /// Numbers that are `None` in `all`.
    unused: Vec<u32>,
    /// For each size, the blocks that have a free object. Low ones fill first, so that high ones
    /// become empty.
    open: [BTreeSet<u32>; SIZES],
}

struct Block {
    at: Cla,
    size: usize,
    /// A bit an object.
    used: [u64; OBJECTS as usize / 64],
    count: u32,
}

impl Block {
    fn most(&self) -> u32 {
        (BLOCK * PAGE_SIZE) as u32 / bytes_of(self.size) as u32
    }

    fn take(&mut self) -> u32 {
        let free = (0..self.most()).find(|i| self.used[*i as usize / 64] & 1 << (i % 64) == 0);
        let i = free.expect("a free object in an open block");
        self.used[i as usize / 64] |= 1 << (i % 64);
        self.count += 1;
        i
    }

    fn object(&self, i: u32) -> Cla {
        self.at.add(i as u64 * bytes_of(self.size) as u64)
    }
}

/// The size that holds so many bytes of contents.
fn size_for(len: usize) -> usize {
    ((len + HEAD).div_ceil(STEP) - 1).min(SIZES - 1)
}

/// The bytes of an object of this size.
const fn bytes_of(size: usize) -> usize {
    (size + 1) * STEP
}

impl Pool {
    /// An empty pool, with a memory file of its own.
    pub(crate) fn new() -> Result<Pool> {
        Ok(Pool {
            memory: Clas::in_memory(memfd(c"cloister-swap")?)?,
            blocks: Mutex::default(),
        })
    }

    /// A free object of this size, and where it is.
    fn take(&self, size: usize) -> Option<(Slot, Cla)> {
        let mut b = self.blocks.lock();
        let number = match b.open[size].first() {
            Some(n) => *n,
            None => b.open_block(&self.memory, size)?,
        };
        let block = b.all[number as usize].as_mut()?;
        let i = block.take();
        let (at, is_full) = (block.object(i), block.count == block.most());
        if is_full {
            b.open[size].remove(&number);
        }
        Some((Slot::new(number * OBJECTS + i)?, at))
    }

    fn place(&self, slot: Slot) -> (Cla, usize) {
        let b = self.blocks.lock();
        let (number, i) = (slot.number() / OBJECTS, slot.number() % OBJECTS);
        let block = b.all[number as usize].as_ref().expect("a block in use");
        (block.object(i), bytes_of(block.size))
    }
}

impl Blocks {
    fn open_block(&mut self, memory: &Clas, size: usize) -> Option<u32> {
        let at = memory.allocate(BLOCK, None).ok()?;
        let block = Block {
            at,
            size,
            used: [0; OBJECTS as usize / 64],
            count: 0,
        };
        let number = match self.unused.pop() {
            Some(n) => {
                self.all[n as usize] = Some(block);
                n
            }
            None => {
                self.all.push(Some(block));
                self.all.len() as u32 - 1
            }
        };
        self.open[size].insert(number);
        Some(number)
    }
}

impl Store for Pool {
    fn put(&self, page: &[u8; PAGE]) -> Option<Slot> {
        let mut buf = [0; HEAD + lz4_flex::block::get_maximum_output_size(PAGE)];
        let squeezed = lz4_flex::block::compress_into(page, &mut buf[HEAD..]).ok();
        let len = match squeezed.filter(|n| size_for(*n) < SIZES - 1) {
            Some(n) => n,
            None => {
                buf[HEAD..HEAD + PAGE].copy_from_slice(page);
                PAGE
            }
        };
        buf[..HEAD].copy_from_slice(&(len as u16).to_le_bytes());
        let (slot, at) = self.take(size_for(len))?;
        let whole = &buf[..HEAD + len];
        self.memory.slice(at, whole.len()).copy_from(whole);
        Some(slot)
    }

    fn get(&self, slot: Slot, page: &mut [u8; PAGE]) -> Result<()> {
        let (at, room) = self.place(slot);
        let mut buf = [0; HEAD + PAGE];
        let room = room.min(buf.len());
        self.memory.slice(at, room).copy_to(&mut buf[..room]);
        let len = usize::from(u16::from_le_bytes([buf[0], buf[1]]));
        let contents = buf.get(HEAD..HEAD + len).ok_or(EIO)?;
        if len == PAGE {
            page.copy_from_slice(contents);
            return Ok(());
        }
        match lz4_flex::block::decompress_into(contents, page) {
            Ok(PAGE) => Ok(()),
            _ => Err(EIO),
        }
    }

    fn free(&self, slot: Slot) {
        if hostcall::scrub::has_begun() {
            // It may have been marked since it came here.
            let (at, room) = self.place(slot);
            self.memory.slice(at, room).zero();
        }
        let mut b = self.blocks.lock();
        let (number, i) = (slot.number() / OBJECTS, slot.number() % OBJECTS);
        let Some(block) = b.all[number as usize].as_mut() else {
            return;
        };
        block.used[i as usize / 64] &= !(1 << (i % 64));
        block.count -= 1;
        let (at, size, is_empty) = (block.at, block.size, block.count == 0);
        if is_empty {
            b.all[number as usize] = None;
            b.unused.push(number);
            b.open[size].remove(&number);
            drop(b);
            self.memory.decref(at, BLOCK);
        } else {
            b.open[size].insert(number);
        }
    }

    fn memory(&self) -> u64 {
        self.memory.stats().resident
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn page(seed: u64, noise: usize) -> [u8; PAGE] {
        let mut p = [seed as u8; PAGE];
        let mut x = seed | 1;
        for b in &mut p[..noise] {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            *b = x as u8;
        }
        p
    }

    #[test]
    fn pages_of_all_sizes_come_back() {
        let pool = Pool::new().unwrap();
        let mut kept = HashMap::new();
        for round in 0..3u64 {
            for n in 0..600u64 {
                let noise = (n as usize * 7) % (PAGE + 1);
                let p = page(n + round * 1000 + 1, noise);
                kept.insert(pool.put(&p).unwrap(), p);
            }
            let gone: Vec<Slot> = kept
                .keys()
                .copied()
                .filter(|s| s.number() % 3 == 0)
                .collect();
            for s in gone {
                let mut back = [0; PAGE];
                pool.get(s, &mut back).unwrap();
                assert!(back == kept.remove(&s).unwrap());
                pool.free(s);
            }
        }
        for (s, p) in kept {
            let mut back = [0; PAGE];
            pool.get(s, &mut back).unwrap();
            assert!(back == p);
            pool.free(s);
        }
        assert_eq!(pool.memory.stats().allocated, 0);
    }
}
