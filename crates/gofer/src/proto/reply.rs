//! What the Gofer answers.

use super::{Attr, Handle};
use crate::wire::{Field, MAX_ALSO, Reader, VERSION, Writer, fields, get_list, tagged};
use abi::attr::StatFs;
use abi::errno::EBADMSG;
use abi::{Errno, Result};

tagged! {
    /// A reply; descriptors come with it.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Reply {
        0 = Done,
        1 = Attr(attr: Attr),
        /// A new handle, and whether what is below it may be changed.
        2 = Node {
            attr: Attr,
            handle: Handle,
            writable: bool,
            /// Of the directory that it was made in, where the client remembers its names.
            dir: Option<Seen>,
        },
        /// The steps that were made, and what stopped the walk: `ENOENT` for a missing name.
        3 = Walked {
            stopped: Option<Errno>,
            steps: Vec<Step>,
            /// The other names, in their order: `None` for what was not looked up.
            siblings: Vec<Option<Step>>,
        },
        4 = Bytes(bytes: Vec<u8>),
        5 = Entries {
            /// The cookie to go on from.
            next: u64,
            end: bool,
            list: Vec<Entry>,
        },
        6 = StatFs(stat: StatFs),
        /// Names were changed; as in `Node`.
        7 = Changed {
            dir: Option<Seen>,
            /// Of a rename's old directory, and name.
            old: Option<Seen>,
        },
        /// A descriptor comes with it.
        8 = Opened {
            /// For [`Access::Look`](super::Access::Look): each change of the file that is seen has
            /// a change time of its own.
            fine: bool,
        },
    }
}

/// One step of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub attr: Attr,
    pub handle: Handle,
    /// Where a symbolic link leads.
    pub target: Option<Vec<u8>>,
}

fields! { Step { attr, handle, target } }

/// A directory's entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub ino: u64,
    /// `DT_*`.
    pub kind: u8,
    pub name: Vec<u8>,
}

/// A list of them ends with the message.
impl Field for Entry {
    fn put(&self, w: &mut Writer) {
        w.u64(self.ino);
        w.u8(self.kind);
        w.bytes(&self.name);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Entry {
            ino: r.u64()?,
            kind: r.u8()?,
            name: Field::get(r)?,
        })
    }
    fn put_all(list: &[Self], w: &mut Writer) {
        list.iter().for_each(|e| e.put(w));
    }
    fn get_all(r: &mut Reader<'_>) -> Result<Vec<Self>> {
        let mut list = Vec::new();
        while !r.is_empty() {
            list.push(Entry::get(r)?);
        }
        Ok(list)
    }
}

tagged! {
    /// What a name leads to.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum NameTarget {
        0 = Unknown,
        1 = Missing,
        /// By device and number.
        2 = File(dev: u64, ino: u64),
    }
}

/// What a directory was seen to hold after names in it were changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The directory's change time, by which the client remembers names. Nanoseconds since the
    /// epoch.
    pub version: i64,
    /// What was seen **after** that time was read: the name that was changed, then those that came
    /// with the request ([`Piggybacked::also`](super::Piggybacked::also)).
    pub names: Vec<NameTarget>,
}

impl Field for Seen {
    fn put(&self, w: &mut Writer) {
        w.i64(self.version);
        w.u8(self.names.len() as u8);
        self.names.iter().for_each(|n| n.put(w));
    }
    fn get(r: &mut Reader<'_>) -> Result<Self> {
        let version = r.i64()?;
        let n = r.u8()?;
        let names = get_list(r, n.into(), 1 + MAX_ALSO)?;
        Ok(Seen { version, names })
    }
}

impl Reply {
    #[must_use]
    pub fn encode(result: &Result<Reply>) -> Vec<u8> {
        let mut w = Writer::new();
        w.u16(VERSION);
        result.as_ref().err().copied().put(&mut w);
        if let Ok(reply) = result {
            reply.put(&mut w);
        }
        w.0
    }
    /// The reply, or the error that the server gave. `EBADMSG` where it is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Reply> {
        let r = &mut Reader::new(bytes);
        if r.u16()? != VERSION {
            return Err(EBADMSG);
        }
        let error = Option::<Errno>::get(r)?;
        let reply = match error {
            None => Ok(Reply::get(r)?),
            Some(e) => Err(e),
        };
        r.end()?;
        reply
    }
}
