//! Numbers of which the lowest free one is given (Linux's `ida`, lib/idr.c).
//!
//! Invariant: `free` has those below `next` that nobody has, and `next - 1` is not one of them. So
//! nothing is kept of numbers above the highest in use.

use std::collections::BTreeSet;

/// Who has which number is its owner's to know.
#[derive(Debug, Default)]
pub struct Ida {
    free: BTreeSet<u32>,
    next: u32,
}

impl Ida {
    /// Numbers from `first` on.
    #[must_use]
    pub fn starting_at(first: u32) -> Ida {
        Ida {
            free: BTreeSet::new(),
            next: first,
        }
    }

    /// The lowest that nobody has.
    pub fn alloc(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Gives back one that was given.
    pub fn free(&mut self, n: u32) {
        self.free.insert(n);
        while self.next > 0 && self.free.remove(&(self.next - 1)) {
            self.next -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_given() {
        let mut ida = Ida::starting_at(1);
        assert_eq!([1, 2, 3, 4].map(|_| ida.alloc()), [1, 2, 3, 4]);
        ida.free(2);
        ida.free(3);
        assert_eq!(ida.free.len(), 2);
        assert_eq!(ida.alloc(), 2);
        ida.free(4);
        assert!(ida.free.is_empty());
        assert_eq!([(); 2].map(|()| ida.alloc()), [3, 4]);
        for n in [1, 3, 4, 2] {
            ida.free(n);
        }
        assert_eq!((ida.next, ida.free.len()), (1, 0));
    }
}
