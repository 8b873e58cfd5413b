//! Names of anonymous memory (`PR_SET_VMA_ANON_NAME`, PR_SET_VMA(2const); Linux's mm/madvise.c).
//!
//! A VMA's flags have its name's number among those of the address space, so VMAs with different
//! names are not joined, and whatever copies flags copies the name. A child has its parent's names.
//!
//! Protected by `Mm::state`. Invariant: a number in a VMA's flags is that of a name in the list,
//! until none has it.

use crate::vma::VmaFlags;
use std::collections::HashSet;
use std::sync::Arc;

/// The longest name, with its NUL (`ANON_VMA_NAME_MAX_LEN`).
pub const MAX_LEN: usize = 80;
/// Names of one address space, besides those that nothing has any more: what it takes of the
/// kernel's memory is bounded by that.
const NAMES: usize = 1024;
const SHIFT: u32 = VmaFlags::NAME.bits().trailing_zeros();
// Each has a number, from 1 on.
const _: () = assert!(NAMES as u64 <= VmaFlags::NAME.bits() >> SHIFT);

/// The names of an address space. A number is an index, from 1 on.
#[derive(Clone, Default)]
pub(crate) struct Names(Vec<Option<Arc<[u8]>>>);

impl VmaFlags {
    pub(crate) fn name_number(self) -> usize {
        ((self & VmaFlags::NAME).bits() >> SHIFT) as usize
    }
    pub(crate) fn with_name(self, number: usize) -> VmaFlags {
        (self - VmaFlags::NAME) | VmaFlags::from_bits_retain((number as u64) << SHIFT)
    }
}

impl Names {
    pub(crate) fn of(&self, flags: VmaFlags) -> Option<Arc<[u8]>> {
        self.0.get(flags.name_number().checked_sub(1)?)?.clone()
    }
    fn position(&self, name: &[u8]) -> Option<usize> {
        self.0.iter().position(|n| n.as_deref() == Some(name))
    }
    /// The number of a name, new or not; `None` where there is no room.
    pub(crate) fn add(&mut self, name: &[u8]) -> Option<usize> {
        if let Some(i) = self.position(name) {
            return Some(i + 1);
        }
        let new = Some(Arc::from(name));
        if let Some(i) = self.0.iter().position(Option::is_none) {
            self.0[i] = new;
            return Some(i + 1);
        }
        if self.0.len() == NAMES {
            return None;
        }
        self.0.push(new);
        Some(self.0.len())
    }
    /// Forgets all others.
    pub(crate) fn keep(&mut self, used: &HashSet<usize>) {
        for (i, n) in self.0.iter_mut().enumerate() {
            if !used.contains(&(i + 1)) {
                *n = None;
            }
        }
    }
}

/// Whether a byte may be in a name (`is_valid_name_char`).
#[must_use]
pub fn is_valid(b: u8) -> bool {
    b > 0x1f && b < 0x7f && !b"\\`$[]".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        let mut n = Names::default();
        assert_eq!(
            (n.add(b"a"), n.add(b"b"), n.add(b"a")),
            (Some(1), Some(2), Some(1))
        );
        let f = VmaFlags::LOCKED.with_name(2);
        assert_eq!(n.of(f).as_deref(), Some(&b"b"[..]));
        assert_eq!(n.of(f.with_name(0)), None);
        assert!(f.contains(VmaFlags::LOCKED));
        n.0[0] = None;
        assert_eq!(n.add(b"c"), Some(1));
        for i in 0..2 * NAMES {
            let _ = n.add(i.to_string().as_bytes());
        }
        assert_eq!(n.0.len(), NAMES);
    }

    #[test]
    fn some_bytes_are_not_for_names() {
        assert!(is_valid(b'a') && is_valid(b' ') && is_valid(b':'));
        assert!(!is_valid(b'[') && !is_valid(b'\n') && !is_valid(0x7f) && !is_valid(b'$'));
    }
}
