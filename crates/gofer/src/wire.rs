//! Bytes of messages: little-endian numbers and counted strings, read with checks.

mod field;

use abi::Result;
use abi::errno::EBADMSG;
pub use field::Field;
pub(crate) use field::{fields, get_list, tagged};

/// The protocol's version: both sides come from one release, and refuse any other.
pub const VERSION: u16 = 1;
/// The longest message, in bytes.
pub const MAX_MESSAGE: usize = 72 << 10;
/// What most messages take at most, in bytes.
const USUAL: usize = 256;
/// The longest string in a message.
pub const MAX_STRING: usize = 66 << 10;
/// Names that one walk takes.
pub const MAX_NAMES: usize = 32;
/// Handles that one request can close.
pub const MAX_CLOSES: usize = 64;
/// Sibling names that one request has looked at.
pub const MAX_ALSO: usize = 4;
/// Connections that a server has at least: some may wait for a disk. One for each CPU up to
/// [`MAX_CONNECTIONS`].
pub const MIN_CONNECTIONS: usize = 4;
pub const MAX_CONNECTIONS: usize = 8;

/// Which of `n` connections is for callers on this CPU.
#[must_use]
pub fn connection_of(cpu: u32, n: usize) -> usize {
    cpu as usize % n.max(1)
}

/// The first message, from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub version: u16,
    /// Handles that the client may hold.
    pub max_handles: u32,
    /// The server's user on the host.
    pub uid: u32,
    pub gid: u32,
}

impl Hello {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.put(&mut w);
        w.0
    }
    /// `EBADMSG` where it is malformed, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Hello> {
        let r = &mut Reader::new(bytes);
        let h = Hello::get(r)?;
        r.end()?;
        if h.version == VERSION {
            Ok(h)
        } else {
            Err(EBADMSG)
        }
    }
}

fields! { Hello { version, max_handles, uid, gid } }

/// Writes a message.
#[derive(Clone)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// With room for what most messages take.
    #[must_use]
    pub fn new() -> Writer {
        Writer(Vec::with_capacity(USUAL))
    }
    pub fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    pub fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub fn i64(&mut self, v: i64) {
        self.u64(v as u64);
    }
    /// A string of at most [`MAX_STRING`] bytes; what is longer is a fault of the writer, and the
    /// reader will refuse it.
    pub fn bytes(&mut self, v: &[u8]) {
        self.u32(v.len() as u32);
        self.0.extend_from_slice(v);
    }
}

/// Reads a message; everything that is not as it should be is `EBADMSG`.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.0.len() {
            return Err(EBADMSG);
        }
        let (a, b) = self.0.split_at(n);
        self.0 = b;
        Ok(a)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| EBADMSG)
    }
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub fn i64(&mut self) -> Result<i64> {
        Ok(self.u64()? as i64)
    }
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.u32()? as usize;
        if n > MAX_STRING {
            return Err(EBADMSG);
        }
        self.take(n)
    }
    /// Nothing may be left.
    pub fn end(&self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(EBADMSG)
        }
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
