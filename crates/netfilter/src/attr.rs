//! Attributes of netlink (`struct nlattr`): read without trust, and written.

use abi::Result;
use abi::errno::{EINVAL, ERANGE};

const NESTED: u16 = 0x8000;
const KIND: u16 = 0x3fff;
/// The highest attribute that any message here has, and one more.
const MOST: usize = 28;

/// Attributes one after the other.
#[derive(Clone, Copy)]
pub struct Attrs<'a>(pub &'a [u8]);

impl<'a> Iterator for Attrs<'a> {
    type Item = (u16, &'a [u8]);
    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let b = self.0;
        let len = usize::from(u16::from_ne_bytes([*b.first()?, *b.get(1)?]));
        let kind = u16::from_ne_bytes([*b.get(2)?, *b.get(3)?]) & KIND;
        if len < 4 || len > b.len() {
            return None;
        }
        self.0 = b.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, &b[4..len]))
    }
}

/// Attributes by their kinds; of several of one kind the last.
#[derive(Clone, Copy)]
pub struct Bag<'a>([Option<&'a [u8]>; MOST]);

impl<'a> Bag<'a> {
    #[must_use]
    pub fn new(b: &'a [u8]) -> Bag<'a> {
        let mut all = [None; MOST];
        for (kind, data) in Attrs(b) {
            if let Some(place) = all.get_mut(usize::from(kind)) {
                *place = Some(data);
            }
        }
        Bag(all)
    }

    #[must_use]
    pub fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.0.get(usize::from(kind)).copied().flatten()
    }

    /// Where it lies: for who points at what is wrong.
    #[must_use]
    pub fn address(&self, kind: u16) -> usize {
        self.get(kind).map_or(0, |b| b.as_ptr().addr())
    }

    pub fn need(&self, kind: u16) -> Result<&'a [u8]> {
        self.get(kind).ok_or(EINVAL)
    }

    #[must_use]
    pub fn has(&self, kind: u16) -> bool {
        self.get(kind).is_some()
    }

    /// What is nested there.
    #[must_use]
    pub fn nested(&self, kind: u16) -> Option<Bag<'a>> {
        self.get(kind).map(Bag::new)
    }

    fn array<const N: usize>(&self, kind: u16) -> Result<Option<[u8; N]>> {
        match self.get(kind) {
            None => Ok(None),
            Some(b) => {
                let b = b.first_chunk().ok_or(ERANGE)?;
                Ok(Some(*b))
            }
        }
    }

    pub fn byte(&self, kind: u16) -> Result<Option<u8>> {
        Ok(self.array(kind)?.map(|[b]: [u8; 1]| b))
    }

    pub fn be16(&self, kind: u16) -> Result<Option<u16>> {
        Ok(self.array(kind)?.map(u16::from_be_bytes))
    }

    pub fn be32(&self, kind: u16) -> Result<Option<u32>> {
        Ok(self.array(kind)?.map(u32::from_be_bytes))
    }

    pub fn be64(&self, kind: u16) -> Result<Option<u64>> {
        Ok(self.array(kind)?.map(u64::from_be_bytes))
    }

    pub fn need32(&self, kind: u16) -> Result<u32> {
        self.be32(kind)?.ok_or(EINVAL)
    }

    /// A name of at most `most` bytes, its end included.
    pub fn text(&self, kind: u16, most: usize) -> Result<Option<&'a str>> {
        let Some(b) = self.get(kind) else {
            return Ok(None);
        };
        let end = b.iter().position(|c| *c == 0).unwrap_or(b.len());
        if end >= most {
            return Err(ERANGE);
        }
        let text = core::str::from_utf8(&b[..end]).map_err(|_| EINVAL)?;
        Ok(Some(text))
    }

    pub fn need_text(&self, kind: u16, most: usize) -> Result<&'a str> {
        self.text(kind, most)?.ok_or(EINVAL)
    }
}

/// Of how many things a message asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    One,
    /// All of a kind (`NLM_F_DUMP`).
    All,
}

/// An answer to a message: its kind, its family, its attributes.
#[derive(Debug)]
pub struct Answer {
    pub kind: u8,
    pub family: u8,
    pub attrs: Vec<u8>,
}

/// Attributes that are written.
#[derive(Default)]
pub struct Out(pub Vec<u8>);

impl Out {
    /// Longer ones than an attribute has room for are cut: none that was read is.
    pub fn put(&mut self, kind: u16, data: &[u8]) {
        let data = &data[..data.len().min(usize::from(u16::MAX) - 4)];
        self.0
            .extend_from_slice(&(4 + data.len() as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    pub fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Out)) {
        let mut o = Out::default();
        inner(&mut o);
        self.put(kind | NESTED, &o.0);
    }

    pub fn text(&mut self, kind: u16, s: &str) {
        let mut b = s.as_bytes().to_vec();
        b.push(0);
        self.put(kind, &b);
    }

    pub fn be32(&mut self, kind: u16, n: u32) {
        self.put(kind, &n.to_be_bytes());
    }

    pub fn be64(&mut self, kind: u16, n: u64) {
        self.put(kind, &n.to_be_bytes());
    }
}
