//! The names of a directory, and those that come next.
//!
//! A program that looks up names one after the other goes through the directory in the order of its
//! listing (find, rm) or in that of the names (a shell's patterns, git). Where nobody else changes
//! it, the names next in both orders are looked up by the same request; how many, the VFS says by
//! how many were used before ([`vfs::inode::NextNames::siblings`]).

use super::GoferInode;
use crate::Listed;
use abi::Result;
use abi::errno::EIO;
use gofer::proto::Entry;
use std::collections::HashSet;
use std::sync::Arc;

/// The most names of one directory that are held in memory.
const MAX_ENTRIES: usize = 1 << 22;

/// The names of a directory that nobody else changes, in the order of its listing and in their own.
#[derive(Clone, Default)]
pub(super) enum Order {
    #[default]
    Unknown,
    Sorted(Arc<[Entry]>, Arc<[u32]>),
    /// Not worth it: too many.
    Vast,
}

/// Requests for a directory's names, for [`Order`].
const LISTED: usize = 2;
/// Names that are looked at in each order for those that come next.
const SCANNED: usize = 256;

impl GoferInode {
    /// The whole directory.
    pub(crate) fn entries(&self) -> Result<Arc<[Entry]>> {
        self.entries_in(usize::MAX)?.ok_or(EIO)
    }
    /// The whole directory, where so many requests are enough.
    fn entries_in(&self, requests: usize) -> Result<Option<Arc<[Entry]>>> {
        let exclusive = self.fs.exclusive();
        if exclusive && let Some((l, _)) = &*self.listing.lock() {
            return Ok(Some(l.clone()));
        }
        let mut left = requests;
        let since = self.cached.lock().changes;
        let mut all = Vec::new();
        let mut cookie = 0;
        let mut seen = HashSet::new();
        loop {
            let (mut list, next, end) = self.fs.client.read_dir(self.handle, cookie)?;
            all.append(&mut list);
            if end || next == cookie {
                break;
            }
            // A file system may lie: its directory may never end, or lead back to where it was.
            if all.len() > MAX_ENTRIES || !seen.insert(next) {
                return Err(EIO);
            }
            cookie = next;
            left -= 1;
            if left == 0 {
                return Ok(None);
            }
        }
        let all: Arc<[Entry]> = all.into();
        if exclusive && let Some(room) = Listed::room(&self.fs.options.kept, all.len()) {
            let mut listing = self.listing.lock();
            if self.cached.lock().changes == since {
                *listing = Some((all.clone(), room));
            }
        }
        Ok(Some(all))
    }

    /// The names of a directory that nobody else changes, in two orders.
    fn order(&self) -> Order {
        let known = self.order.lock().clone();
        if !matches!(known, Order::Unknown) {
            return known;
        }
        let new = match self.entries_in(LISTED) {
            // Counted as the listing, with which it goes.
            Ok(Some(list)) if self.listing.lock().is_some() => {
                let mut sorted: Vec<u32> = (0..list.len() as u32).collect();
                sorted.sort_unstable_by_key(|i| &list[*i as usize].name);
                Order::Sorted(list, sorted.into())
            }
            _ => Order::Vast,
        };
        *self.order.lock() = new.clone();
        new
    }
    /// Up to `most` other names that come next, where programs go through a directory in the order
    /// of its listing or in that of the names, and whose files are not in use.
    pub(super) fn sibling_names(&self, name: &[u8], most: usize) -> Vec<Vec<u8>> {
        let Order::Sorted(list, sorted) = self.order() else {
            return Vec::new();
        };
        let Ok(at) = sorted.binary_search_by_key(&name, |i| &list[*i as usize].name) else {
            return Vec::new();
        };
        let mut by_name = sorted[at + 1..].iter().copied().take(SCANNED);
        let mut by_list = (sorted[at] + 1..list.len() as u32).take(SCANNED);
        let mut picked: Vec<u32> = Vec::with_capacity(most);
        let inodes = self.fs.inodes.lock();
        while picked.len() < most {
            let new = |i: &u32| {
                let key = (self.key.0, list[*i as usize].ino);
                let in_use = inodes.get(&key).is_some_and(|w| w.strong_count() > 0);
                !in_use && !picked.contains(i)
            };
            let first = by_name.find(new);
            let other = by_list.find(|i| Some(*i) != first && new(i));
            if first.is_none() && other.is_none() {
                break;
            }
            picked.extend(first);
            picked.extend(other);
        }
        picked.truncate(most);
        drop(inodes);
        let name = |i: u32| list[i as usize].name.clone();
        picked.into_iter().map(name).collect()
    }
}
