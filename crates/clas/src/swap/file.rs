//! Pages that were swapped out, encrypted, in a file of the host.
//!
//! # Invariants
//!
//! - What is written is encrypted, each page by itself (ChaCha20-Poly1305, RFC 8439), with a key
//!   that is made with the store and is nowhere else: the file is worth nothing once the sandbox
//!   has ended. The file is the host's, and so is who may change it: a page that does not come back
//!   as it went is `EIO`, also one that went to another slot, or earlier.
//! - A page has a number of its own that no other ever had, from which its nonce is made: with one
//!   key no nonce is used twice.
//! - A [`Slot`] names a page of the file. What belongs to it is written before it is handed out,
//!   and read before it is freed: so files are written and read without the lock, which protects
//!   what is free and what is known of slots alone.
//! - The lock is a leaf.

use super::{PAGE, Slot, Store};
use abi::errno::EIO;
use abi::{PAGE_SIZE, Result};
use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce, Tag};
use hostcall::HostFd;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file as a store.
pub(crate) struct SwapFile {
    file: HostFd,
    cipher: ChaCha20Poly1305,
    /// The number of the next page. Atomic.
    next: AtomicU64,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    /// What belongs to each that was ever used.
    seals: Vec<Seal>,
    free: Vec<u32>,
}

/// What is needed to open a page again.
#[derive(Clone, Copy, Default)]
struct Seal {
    number: u64,
    tag: [u8; 16],
}

impl SwapFile {
    /// An empty file, which nobody else has.
    pub(crate) fn new(file: HostFd) -> SwapFile {
        let mut key = Key::default();
        hostcall::time::random(&mut key);
        let cipher = ChaCha20Poly1305::new(&key);
        key.fill(0);
        SwapFile {
            file,
            cipher,
            next: AtomicU64::new(0),
            slots: Mutex::default(),
        }
    }

    fn take(&self) -> Option<Slot> {
        let mut s = self.slots.lock();
        if let Some(n) = s.free.pop() {
            return Slot::new(n);
        }
        let n = u32::try_from(s.seals.len()).ok()?;
        let slot = Slot::new(n)?;
        s.seals.push(Seal::default());
        Some(slot)
    }
}

/// The number, and zeros.
fn nonce(number: u64) -> Nonce {
    let mut n = Nonce::default();
    n[..8].copy_from_slice(&number.to_le_bytes());
    n
}

fn place(slot: Slot) -> u64 {
    u64::from(slot.number()) * PAGE_SIZE
}

impl Store for SwapFile {
    fn put(&self, page: &[u8; PAGE]) -> Option<Slot> {
        let slot = self.take()?;
        let mut buf = *page;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let sealed = (self.cipher).encrypt_in_place_detached(&nonce(number), &[], &mut buf);
        let written = match sealed {
            Ok(tag) => {
                let tag = tag.into();
                self.slots.lock().seals[slot.number() as usize] = Seal { number, tag };
                super::write_all(&self.file, &buf, place(slot))
            }
            Err(_) => Err(EIO),
        };
        if written.is_err() {
            self.free(slot);
            return None;
        }
        Some(slot)
    }

    fn get(&self, slot: Slot, page: &mut [u8; PAGE]) -> Result<()> {
        let seal = self.slots.lock().seals[slot.number() as usize];
        super::read_all(&self.file, page, place(slot))?;
        let tag = Tag::from(seal.tag);
        (self.cipher)
            .decrypt_in_place_detached(&nonce(seal.number), &[], page, &tag)
            .map_err(|_| EIO)
    }

    fn free(&self, slot: Slot) {
        self.slots.lock().free.push(slot.number());
    }

    /// What it knows of slots; the host's own copies of the file go where it needs the room.
    fn memory(&self) -> u64 {
        let s = self.slots.lock();
        (s.seals.capacity() * size_of::<Seal>() + s.free.capacity() * size_of::<u32>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall::mem::memfd;

    fn page(n: u8) -> [u8; PAGE] {
        let mut p = [n; PAGE];
        p[..8].copy_from_slice(&u64::from(n).to_le_bytes());
        p
    }

    fn raw(s: &SwapFile, slot: Slot) -> [u8; PAGE] {
        let mut raw = [0; PAGE];
        super::super::read_all(&s.file, &mut raw, place(slot)).unwrap();
        raw
    }

    #[test]
    fn pages_come_back_and_are_unreadable_there() {
        let s = SwapFile::new(memfd(c"swap").unwrap());
        let slots: Vec<Slot> = (0..100).map(|n| s.put(&page(n)).unwrap()).collect();
        for (n, slot) in slots.iter().enumerate() {
            let mut back = [0; PAGE];
            s.get(*slot, &mut back).unwrap();
            assert!(back == page(n as u8));
            let there = raw(&s, *slot);
            assert!(!there.windows(8).any(|w| w == [n as u8; 8]));
        }
        // Equal pages are not equal there.
        s.free(slots[3]);
        let (a, b) = (s.put(&page(7)).unwrap(), s.put(&page(7)).unwrap());
        assert_eq!(a, slots[3]);
        assert!(raw(&s, a) != raw(&s, b) && raw(&s, a) != raw(&s, slots[7]));
    }

    #[test]
    fn what_somebody_changed_is_an_error() {
        let s = SwapFile::new(memfd(c"swap").unwrap());
        let (a, b) = (s.put(&page(1)).unwrap(), s.put(&page(2)).unwrap());
        let old = raw(&s, a);
        let is_lost = |slot| s.get(slot, &mut [0; PAGE]) == Err(EIO);
        // Another slot's.
        super::super::write_all(&s.file, &old, place(b)).unwrap();
        assert!(is_lost(b) && !is_lost(a));
        // One bit.
        let mut changed = old;
        changed[100] ^= 1;
        super::super::write_all(&s.file, &changed, place(a)).unwrap();
        assert!(is_lost(a));
        // One that was there earlier.
        s.free(a);
        let again = s.put(&page(3)).unwrap();
        assert_eq!(again, a);
        super::super::write_all(&s.file, &old, place(a)).unwrap();
        assert!(is_lost(a));
        // Cut short.
        hostcall::file::ftruncate(s.file.raw(), 0).unwrap();
        assert!(is_lost(a));
    }
}
