//! Sets and maps: keys, intervals, elements that end.

use crate::expr::{Data, Expr};
use abi::Result;
use abi::errno::{EBUSY, EEXIST, EINVAL, ENFILE, ENOTEMPTY};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

pub const ANONYMOUS: u32 = 1;
pub const CONSTANT: u32 = 2;
pub const INTERVAL: u32 = 4;
pub const MAP: u32 = 8;
pub const TIMEOUT: u32 = 0x10;
pub const CONCAT: u32 = 0x80;
pub const EXPR: u32 = 0x100;
/// The flags that are known here.
pub const KNOWN: u32 = ANONYMOUS | CONSTANT | INTERVAL | MAP | TIMEOUT | CONCAT | EXPR;
/// `NFT_SET_ELEM_INTERVAL_END`, `NFT_SET_ELEM_CATCHALL`.
pub const END: u32 = 1;
pub const CATCHALL: u32 = 2;

/// The most elements of one set.
const MOST: usize = 1 << 18;
/// The most elements of a set of several fields with ranges: each is looked at for a packet.
const MOST_RANGES: usize = 4096;

/// An element.
#[derive(Clone)]
pub struct Element {
    pub data: Option<Data>,
    pub userdata: Box<[u8]>,
    pub exprs: std::sync::Arc<[Expr]>,
    /// Nanoseconds that it lives, where it has a time of its own; and when it ends.
    pub timeout: Option<u64>,
    pub expires: Option<u64>,
}

impl Element {
    pub fn lives(&self, now: u64) -> bool {
        self.expires.is_none_or(|e| now < e)
    }
}

/// Where an element is in its set.
#[derive(Clone, Debug)]
pub struct Key {
    pub at: Box<[u8]>,
    /// Of an interval: its beginning, or what is behind its end.
    pub place: Place,
    /// The last key, of a set of several fields with ranges.
    pub last: Option<Box<[u8]>>,
}

/// A key, whoever owns its bytes: a look into a set needs no copy of them.
pub trait AsKey {
    fn parts(&self) -> (&[u8], Place, Option<&[u8]>);
}

impl AsKey for Key {
    fn parts(&self) -> (&[u8], Place, Option<&[u8]>) {
        (&self.at, self.place, self.last.as_deref())
    }
}

/// A single key, the beginning of an interval, or what all others match.
struct Probe<'a>(&'a [u8], Place);

impl AsKey for Probe<'_> {
    fn parts(&self) -> (&[u8], Place, Option<&[u8]>) {
        (self.0, self.1, None)
    }
}

impl Ord for dyn AsKey + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for dyn AsKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn AsKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn AsKey + '_ {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Key {}

impl<'a> Borrow<dyn AsKey + 'a> for Key {
    fn borrow(&self) -> &(dyn AsKey + 'a) {
        self
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    End,
    Start,
    /// What all others match.
    CatchAll,
}

/// What a set is made with.
#[derive(Clone)]
pub struct Shape {
    pub name: String,
    pub handle: u64,
    pub flags: u32,
    pub key_type: u32,
    pub key_len: usize,
    pub data_type: Option<u32>,
    pub data_len: usize,
    /// Milliseconds; 0: none.
    pub timeout: u64,
    pub gc: u32,
    pub policy: u32,
    /// The number of elements that it is made for.
    pub size: u32,
    /// The lengths of the fields of a key.
    pub fields: Vec<u32>,
    pub userdata: Box<[u8]>,
}

impl Shape {
    /// Whether its keys have several fields, each with a range.
    pub fn has_ranges(&self) -> bool {
        self.flags & (CONCAT | INTERVAL) == CONCAT | INTERVAL
    }
}

/// What an equal element that is there already does to one that is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Equal {
    /// It stays in its place.
    Stays,
    /// `EEXIST` (`NLM_F_EXCL`).
    Refuses,
}

/// A set.
#[derive(Clone)]
pub struct Set {
    pub shape: Shape,
    pub elements: BTreeMap<Key, Element>,
    /// How many rules ask it.
    pub asked: u32,
}

impl Set {
    pub fn is(&self, flag: u32) -> bool {
        self.shape.flags & flag != 0
    }

    /// Adds an element; tells whether it is new.
    pub fn add(&mut self, key: Key, e: Element, equal: Equal, now: u64) -> Result<bool> {
        if let Some(old) = self.elements.get(&key)
            && old.lives(now)
        {
            let same = match (&old.data, &e.data) {
                (Some(a), Some(b)) => a == b,
                (a, b) => a.is_none() == b.is_none(),
            };
            return match (same, equal) {
                (false, _) => Err(EBUSY),
                (true, Equal::Refuses) => Err(EEXIST),
                (true, Equal::Stays) => Ok(false),
            };
        }
        let most = match self.shape.size {
            0 => MOST,
            n if key.place == Place::Start => (n as usize).min(MOST),
            _ => MOST,
        };
        let ranges = self.shape.has_ranges();
        if self.elements.len() >= most || ranges && self.elements.len() >= MOST_RANGES {
            return Err(ENFILE);
        }
        if key.last.is_some() != ranges && key.place != Place::CatchAll {
            return Err(EINVAL);
        }
        if self.is(INTERVAL) && !ranges {
            self.check_overlap(&key)?;
        }
        self.elements.insert(key, e);
        Ok(true)
    }

    /// Beginnings and ends of intervals take turns; `ENOTEMPTY` where one would lie in another.
    fn check_overlap(&self, key: &Key) -> Result<()> {
        let mut before = self
            .elements
            .range::<Key, _>(..key)
            .map(|(k, _)| k.place)
            .rev();
        let before = [before.next(), before.next()];
        match (key.place, before) {
            (Place::Start, [Some(Place::Start), _])
            | (Place::End, [Some(Place::Start), Some(Place::Start)]) => Err(ENOTEMPTY),
            _ => Ok(()),
        }
    }

    /// The element that a key matches.
    pub fn find(&self, key: &[u8], now: u64) -> Option<&Element> {
        let probe = Probe(key, Place::Start);
        let probe: &dyn AsKey = &probe;
        let found = match (self.is(INTERVAL), self.is(CONCAT)) {
            (false, _) => self.elements.get(probe),
            (true, false) => {
                let range = (Bound::Unbounded, Bound::Included(probe));
                let last = self.elements.range::<dyn AsKey, _>(range).next_back();
                last.filter(|(k, _)| k.place == Place::Start)
                    .map(|(_, e)| e)
            }
            (true, true) => self.find_fields(key, now),
        };
        let all = || {
            let all: &dyn AsKey = &Probe(&[], Place::CatchAll);
            self.elements.get(all)
        };
        found.or_else(all).filter(|e| e.lives(now))
    }

    fn find_fields(&self, key: &[u8], now: u64) -> Option<&Element> {
        let within = |k: &Key| {
            let Some(last) = &k.last else { return false };
            let mut at = 0;
            self.shape.fields.iter().all(|len| {
                let len = (*len as usize).next_multiple_of(4);
                let range = at..at + len;
                at += len;
                let parts = (
                    key.get(range.clone()),
                    k.at.get(range.clone()),
                    last.get(range),
                );
                matches!(parts, (Some(key), Some(a), Some(b)) if a <= key && key <= b)
            })
        };
        let mut all = self.elements.iter();
        all.find(|(k, e)| within(k) && e.lives(now)).map(|(_, e)| e)
    }

    /// What a look into it costs beyond one rule's: where elements are looked at one by one.
    pub fn steps(&self) -> u64 {
        if self.shape.has_ranges() {
            self.elements.len() as u64 / 8
        } else {
            0
        }
    }

    /// Those that have not ended, in the order in which they are told.
    pub fn living(&self, now: u64) -> impl Iterator<Item = (&Key, &Element)> {
        self.elements.iter().filter(move |(_, e)| e.lives(now))
    }

    /// Forgets those that have ended, and gives them.
    pub fn sweep(&mut self, now: u64) -> Vec<Element> {
        let over = self.elements.iter().filter(|(_, e)| !e.lives(now));
        let keys: Vec<Key> = over.map(|(k, _)| k.clone()).collect();
        keys.iter()
            .filter_map(|k| self.elements.remove(k))
            .collect()
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let one = 160 + self.shape.key_len * 2 + self.shape.data_len;
        let more: usize = self
            .elements
            .values()
            .map(|e| e.userdata.len() + e.exprs.len() * 64)
            .sum();
        512 + self.shape.userdata.len() + self.elements.len() * one + more
    }
}

/// A single key, or the beginning of an interval.
pub fn start(key: &[u8]) -> Key {
    Key {
        at: key.into(),
        place: Place::Start,
        last: None,
    }
}
