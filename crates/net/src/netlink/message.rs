//! Netlink messages as bytes (`netlink(7)`).

pub(super) const HEADER: usize = 16;

/// A number of the message; 0 where it is too short.
pub(super) fn word(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4)
        .map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Builds one netlink message.
pub(super) struct Builder(Vec<u8>);

impl Builder {
    pub fn new(kind: u16, flags: u16, req: &Request<'_>, port: u32) -> Builder {
        let mut v = vec![0; 4];
        v.extend_from_slice(&kind.to_le_bytes());
        v.extend_from_slice(&flags.to_le_bytes());
        v.extend_from_slice(&req.seq.to_le_bytes());
        v.extend_from_slice(&port.to_le_bytes());
        Builder(v)
    }
    pub fn bytes(mut self, b: &[u8]) -> Builder {
        self.0.extend_from_slice(b);
        self
    }
    pub fn attr(mut self, kind: u16, data: &[u8]) -> Builder {
        self.0
            .extend_from_slice(&((4 + data.len()) as u16).to_le_bytes());
        self.0.extend_from_slice(&kind.to_le_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
    pub fn attr32(self, kind: u16, v: u32) -> Builder {
        self.attr(kind, &v.to_le_bytes())
    }
    /// What follows begins at a multiple of four.
    pub fn aligned(mut self) -> Builder {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
    pub fn finish(mut self) -> Vec<u8> {
        let n = self.0.len() as u32;
        self.0[..4].copy_from_slice(&n.to_le_bytes());
        self.0
    }
}

/// One request as it came.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub kind: u16,
    pub flags: u16,
    pub seq: u32,
    pub whole: &'a [u8],
}

impl Request<'_> {
    pub fn body(&self) -> &[u8] {
        &self.whole[HEADER..]
    }
    pub fn family(&self) -> u8 {
        self.body().first().copied().unwrap_or(0)
    }
    /// An attribute after a fixed part of `fixed` bytes.
    pub fn attr(&self, fixed: usize, kind: u16) -> Option<&[u8]> {
        attribute(self.body().get(fixed..)?, kind)
    }
}

/// The messages of what was sent, one after the other.
pub(super) struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Request<'a>;

    fn next(&mut self) -> Option<Request<'a>> {
        let len = word(self.0, 0) as usize;
        if len < HEADER || len > self.0.len() {
            return None;
        }
        let whole = &self.0[..len];
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Request {
            kind: u16::from_le_bytes([whole[4], whole[5]]),
            flags: u16::from_le_bytes([whole[6], whole[7]]),
            seq: word(whole, 8),
            whole,
        })
    }
}

/// An attribute among others.
pub(super) fn attribute(mut b: &[u8], kind: u16) -> Option<&[u8]> {
    while b.len() >= 4 {
        let len = usize::from(u16::from_le_bytes([b[0], b[1]]));
        if len < 4 || len > b.len() {
            return None;
        }
        if u16::from_le_bytes([b[2], b[3]]) & 0x3fff == kind {
            return Some(&b[4..len]);
        }
        b = b.get(len.next_multiple_of(4)..)?;
    }
    None
}
