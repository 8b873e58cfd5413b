//! The socket options (`include/uapi/linux/netfilter_ipv4/ip_tables.h`, `netfilter/x_tables.h`).

use super::build::{self, Said, Tabled};
use super::{Kind, Legacy, MOST};
use crate::table::Family;
use crate::xt::{self, Role};
use abi::Result;
use abi::errno::{EAGAIN, EINVAL, ENOENT, ENOMEM};
use std::sync::atomic::Ordering::Relaxed;

/// `XT_TABLE_MAXNAMELEN`.
const NAME: usize = 32;
/// `struct ipt_getinfo`.
pub const INFO: usize = 84;
/// `struct ipt_get_entries` without the entries.
pub const ENTRIES_HEAD: usize = 40;
/// `struct xt_get_revision`.
const REVISION: usize = 30;
/// `struct ipt_replace`, `struct xt_counters_info`, `struct xt_counters`.
const REPLACE: usize = 96;
const COUNTERS_HEAD: usize = 40;
const COUNTER: usize = 16;
/// `XT_MAX_TABLE_SIZE`.
const MAX_TABLE: u64 = 512 << 20;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Get {
    Info,
    Entries,
    Match,
    Target,
}

impl Get {
    /// By the option's number at the family's level.
    #[must_use]
    pub fn by_number(family: Family, n: i32) -> Option<Get> {
        // (IPv6's own options have two of the numbers.)
        let more = if family == Family::V6 { 2 } else { 0 };
        Some(match n {
            64 => Get::Info,
            65 => Get::Entries,
            n if n == 66 + more => Get::Match,
            n if n == 67 + more => Get::Target,
            _ => return None,
        })
    }

    /// How many bytes it is asked with, by a program that has room for so many.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it has another length.
    pub fn asks(self, room: usize) -> Result<usize> {
        let (asks, fits) = match self {
            Get::Info => (INFO, room == INFO),
            Get::Entries => (ENTRIES_HEAD, room >= ENTRIES_HEAD),
            Get::Match | Get::Target => (REVISION, room == REVISION),
        };
        if fits { Ok(asks) } else { Err(EINVAL) }
    }
}

/// What is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Set {
    Replace,
    AddCounters,
}

impl Set {
    #[must_use]
    pub fn by_number(n: i32) -> Option<Set> {
        match n {
            64 => Some(Set::Replace),
            65 => Some(Set::AddCounters),
            _ => None,
        }
    }
}

fn u32_at(b: &[u8], at: usize) -> Result<u32> {
    let b = b.get(at..).and_then(|b| b.first_chunk()).ok_or(EINVAL)?;
    Ok(u32::from_ne_bytes(*b))
}

fn u64_at(b: &[u8], at: usize) -> Result<u64> {
    let b = b.get(at..).and_then(|b| b.first_chunk()).ok_or(EINVAL)?;
    Ok(u64::from_ne_bytes(*b))
}

fn five(b: &[u8], at: usize) -> Result<[u32; 5]> {
    let mut all = [0; 5];
    for (n, one) in all.iter_mut().enumerate() {
        *one = u32_at(b, at + 4 * n)?;
    }
    Ok(all)
}

/// A name's bytes up to its end, which is the last of `most` at the latest.
fn name(b: &[u8], most: usize) -> &[u8] {
    let b = &b[..b.len().min(most - 1)];
    let end = b.iter().position(|c| *c == 0).unwrap_or(b.len());
    &b[..end]
}

/// The table that an option names first of all.
///
/// # Errors
///
/// `ENOENT`: there is none.
pub fn named(b: &[u8]) -> Result<Kind> {
    Kind::by_name(name(b, NAME)).ok_or(ENOENT)
}

/// What there is of a table (`get_info`).
#[must_use]
pub fn info(asked: &[u8], t: &Legacy) -> Vec<u8> {
    let mut b = name(asked, NAME).to_vec();
    b.resize(NAME, 0);
    let words = [t.kind.valid_hooks()].into_iter();
    let words = words.chain(t.begins).chain(t.policies);
    let words = words.chain([t.places.len() as u32, t.blob.len() as u32]);
    words.for_each(|w| b.extend_from_slice(&w.to_ne_bytes()));
    b
}

/// How many bytes of entries are asked for; the structure has `room` bytes as a whole.
///
/// # Errors
///
/// `EINVAL`: these are not so many.
pub fn entries_asked(head: &[u8], room: usize) -> Result<usize> {
    let size = u32_at(head, NAME)? as usize;
    if room == ENTRIES_HEAD + size {
        Ok(size)
    } else {
        Err(EINVAL)
    }
}

/// The entries with their counters (`get_entries`).
///
/// # Errors
///
/// `EAGAIN`: they are not as many bytes as are asked for.
pub fn entries(head: &[u8], asked: usize, t: &Legacy) -> Result<Vec<u8>> {
    if t.blob.len() != asked {
        return Err(EAGAIN);
    }
    let mut b = head.to_vec();
    b.extend_from_slice(&t.blob);
    let at = super::entry::Layout::of(t.family).counters;
    for (place, c) in t.places.iter().zip(&t.counters) {
        let (packets, bytes) = c.get();
        let at = ENTRIES_HEAD + *place as usize + at;
        b[at..at + 8].copy_from_slice(&packets.to_ne_bytes());
        b[at + 8..at + 16].copy_from_slice(&bytes.to_ne_bytes());
    }
    Ok(b)
}

/// Whether there is a match or target of a revision.
///
/// # Errors
///
/// Those of [`xt::has_revision`].
pub fn revision(asked: &[u8], family: Family, what: Get) -> Result<()> {
    let revision = *asked.get(REVISION - 1).ok_or(EINVAL)?;
    let name = std::str::from_utf8(name(asked, REVISION - 1)).map_err(|_| ENOENT)?;
    let role = match what {
        Get::Target => Role::Target,
        _ => Role::Match,
    };
    xt::has_revision(name, revision.into(), family.version(), role)
}

/// A table that is to be in another's place.
pub struct Replacement {
    name: Box<[u8]>,
    family: Family,
    hooks: u32,
    table: Tabled,
    counters: u32,
    /// Where the other one's counters are to be written.
    pub counters_to: u64,
}

impl Replacement {
    /// Reads `struct ipt_replace` and what follows it.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`, and those of `build::table`.
    pub fn read(family: Family, b: &[u8]) -> Result<Replacement> {
        let head = b.get(..REPLACE).ok_or(EINVAL)?;
        let counters = u32_at(head, 84)?;
        if counters >= i32::MAX as u32 / COUNTER as u32 {
            return Err(ENOMEM);
        }
        if counters == 0 {
            return Err(EINVAL);
        }
        let size = u32_at(head, 40)? as usize;
        let blob = b.get(REPLACE..REPLACE + size).ok_or(EINVAL)?;
        if size > MOST {
            return Err(ENOMEM);
        }
        let said = Said {
            hooks: u32_at(head, NAME)?,
            entries: u32_at(head, 36)? as usize,
            begins: five(head, 44)?,
            policies: five(head, 64)?,
        };
        let name = name(head, NAME);
        let table = build::table(&String::from_utf8_lossy(name), family, &said, blob)?;
        if u64::from(counters) * COUNTER as u64 > MAX_TABLE {
            return Err(ENOMEM);
        }
        Ok(Replacement {
            name: name.into(),
            family,
            hooks: said.hooks,
            table,
            counters,
            counters_to: u64_at(head, 88)?,
        })
    }

    /// Which table it is for.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is none.
    pub fn kind(&self) -> Result<Kind> {
        named(&self.name)
    }

    /// The table, to be in the place of `old` (`__do_replace`).
    ///
    /// # Errors
    ///
    /// `ENOENT`: see [`Replacement::kind`]; `EINVAL`: it has other hooks; `EAGAIN`: `old` has not
    /// as many entries as the program has seen.
    pub fn instead_of(self, old: &Legacy) -> Result<Legacy> {
        let kind = self.kind()?;
        if self.hooks != kind.valid_hooks() {
            return Err(EINVAL);
        }
        if self.counters as usize != old.places.len() {
            return Err(EAGAIN);
        }
        Ok(self.table.of_kind(kind, self.family))
    }
}

impl Legacy {
    /// The counters as `struct xt_counters`.
    #[must_use]
    pub fn counters(&self) -> Vec<u8> {
        let each = self.counters.iter().map(|c| c.get());
        each.flat_map(|(packets, bytes)| [packets, bytes])
            .flat_map(u64::to_ne_bytes)
            .collect()
    }
}

/// Checks the length of `struct xt_counters_info` and what follows it (`xt_copy_counters`).
///
/// # Errors
///
/// `EINVAL`.
pub fn check_counters(b: &[u8]) -> Result<()> {
    let count = u64::from(u32_at(b, NAME)?);
    let whole = COUNTERS_HEAD as u64 + count * COUNTER as u64;
    if b.len() > COUNTERS_HEAD && b.len() as u64 == whole {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// Adds to a table's counters what has been checked (`do_add_counters`).
///
/// # Errors
///
/// `EINVAL`: the table has not so many.
pub fn add_counters(b: &[u8], t: &Legacy) -> Result<()> {
    let all = b.get(COUNTERS_HEAD..).ok_or(EINVAL)?;
    if u32_at(b, NAME)? as usize != t.counters.len() {
        return Err(EINVAL);
    }
    for (c, more) in t.counters.iter().zip(all.chunks_exact(COUNTER)) {
        c.packets.fetch_add(u64_at(more, 0)?, Relaxed);
        c.bytes.fetch_add(u64_at(more, 8)?, Relaxed);
    }
    Ok(())
}
