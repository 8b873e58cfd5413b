//! Application addresses.

use core::fmt;

/// The page size of x86-64 and of everything here, in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// An address in an application's address space. Only a number: it can be read and written through
/// the application's `Mm` alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Va(pub u64);

impl Va {
    pub const NULL: Va = Va(0);

    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
    #[must_use]
    pub const fn page_down(self) -> Va {
        Va(self.0 & !(PAGE_SIZE - 1))
    }
    #[must_use]
    pub const fn is_page_aligned(self) -> bool {
        self.0.is_multiple_of(PAGE_SIZE)
    }
    #[must_use]
    pub const fn checked_add(self, n: u64) -> Option<Va> {
        match self.0.checked_add(n) {
            Some(v) => Some(Va(v)),
            None => None,
        }
    }
    /// Adds, wrapping: for offsets inside a struct whose access is checked later.
    #[must_use]
    pub const fn offset(self, n: u64) -> Va {
        Va(self.0.wrapping_add(n))
    }
}

impl fmt::Debug for Va {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A range of addresses, `start <= end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VaRange {
    pub start: Va,
    pub end: Va,
}

impl VaRange {
    /// `None` where `start + len` wraps.
    #[must_use]
    pub const fn new(start: Va, len: u64) -> Option<VaRange> {
        match start.checked_add(len) {
            Some(end) => Some(VaRange { start, end }),
            None => None,
        }
    }
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end.0 - self.start.0
    }
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.end.0 == self.start.0
    }
    #[must_use]
    pub const fn contains(&self, va: Va) -> bool {
        self.start.0 <= va.0 && va.0 < self.end.0
    }
}
