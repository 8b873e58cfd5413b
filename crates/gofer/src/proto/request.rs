//! What the Sentry asks for.

use super::Reply;
use crate::wire::{Field, MAX_ALSO, MAX_CLOSES, Reader, VERSION, Writer, get_list, tagged};
use abi::Result;
use abi::attr::{NewNode, SetAttr};
use abi::errno::EBADMSG;

/// A file that the server holds for the client: an index with a generation. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(pub u64);

tagged! {
    /// What a walk is for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum WalkPurpose {
        0 = Nothing,
        /// The file at its end is read: the reply may bring a descriptor for it.
        1 = Read,
    }
}

tagged! {
    /// How to open a file.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Access {
        /// A regular file.
        0 = Read,
        /// A regular file.
        1 = ReadWrite,
        /// A regular file, a directory or a symbolic link, for its attributes alone (`O_PATH`).
        2 = Look,
    }
}

/// Whether a request changes something on the host, or frees it.
enum Effect {
    Reads,
    Changes,
}

/// The table of requests: the number, the name and the fields, as [`tagged`] takes them; the kind
/// of the reply; and what it does to the host.
macro_rules! requests {
    ($(
        $(#[$doc:meta])* $number:literal = $name:ident $({$($fields:tt)+})?
            -> $reply:ident, $effect:ident;
    )+) => {
        tagged! {
            /// A request. Names are checked by the server. Ids of `u32::MAX` in a [`NewNode`] are
            /// left to the host.
            #[derive(Clone, PartialEq, Eq, Debug)]
            pub enum Request {$(
                $(#[$doc])* $number = $name $({$($fields)+})?
            ),+}
        }

        impl Request {
            /// Its name in the table, for people.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {$(Request::$name { .. } => stringify!($name)),+}
            }
            /// Whether it changes something on the host, or frees it.
            #[must_use]
            pub fn changes(&self) -> bool {
                let effect = match self {$(Request::$name { .. } => Effect::$effect),+};
                matches!(effect, Effect::Changes)
            }
            /// Whether a reply is of the kind that belongs to it.
            #[must_use]
            pub fn is_answered_by(&self, reply: &Reply) -> bool {
                match self {$(
                    Request::$name { .. } => matches!(reply, Reply::$reply { .. })
                ),+}
            }
        }
    };
}

requests! {
    /// It brings handles to close, whose files may end by that.
    0 = Nop -> Done, Changes;
    /// The root of this name.
    1 = Attach { root: Vec<u8> } -> Node, Reads;
    /// Walks names one after the other, and stops at the first that is no directory.
    2 = Walk {
        from: Handle,
        /// With a descriptor of a regular file at the end, where it can be had.
        then: WalkPurpose,
        /// Other names in `from`, looked up on the way as far as there is room for them.
        siblings: Vec<Vec<u8>>,
        names: Vec<Vec<u8>>,
    } -> Walked, Reads;
    3 = GetAttr { file: Handle } -> Attr, Reads;
    /// The reply has the attributes afterwards.
    4 = SetAttr { file: Handle, attr: SetAttr } -> Attr, Changes;
    5 = Open { file: Handle, access: Access } -> Opened, Reads;
    6 = Create { dir: Handle, name: Vec<u8>, new: NewNode } -> Node, Changes;
    7 = Mkdir { dir: Handle, name: Vec<u8>, new: NewNode } -> Node, Changes;
    /// A FIFO or a socket: `new.mode` has its type.
    8 = Mknod { dir: Handle, name: Vec<u8>, new: NewNode } -> Node, Changes;
    9 = Symlink { dir: Handle, name: Vec<u8>, target: Vec<u8>, new: NewNode } -> Node, Changes;
    10 = TmpFile { dir: Handle, new: NewNode } -> Node, Changes;
    11 = Link { file: Handle, dir: Handle, name: Vec<u8> } -> Changed, Changes;
    12 = Unlink { dir: Handle, name: Vec<u8> } -> Changed, Changes;
    13 = Rmdir { dir: Handle, name: Vec<u8> } -> Changed, Changes;
    14 = Rename {
        dir: Handle,
        name: Vec<u8>,
        new_dir: Handle,
        new_name: Vec<u8>,
        /// Of `renameat2(2)`.
        flags: u32,
    } -> Changed, Changes;
    15 = Readlink { file: Handle } -> Bytes, Reads;
    /// Entries from a cookie on (0: from the start).
    16 = ReadDir { dir: Handle, cookie: u64 } -> Entries, Reads;
    17 = StatFs { file: Handle } -> StatFs, Reads;
    18 = Sync { file: Handle } -> Done, Changes;
    19 = GetXattr { file: Handle, name: Vec<u8> } -> Bytes, Reads;
    /// Flags are those of `setxattr(2)`.
    20 = SetXattr { file: Handle, name: Vec<u8>, value: Vec<u8>, flags: u32 } -> Done, Changes;
    /// The names, with a NUL behind each.
    21 = ListXattr { file: Handle } -> Bytes, Reads;
    22 = RemoveXattr { file: Handle, name: Vec<u8> } -> Done, Changes;
}

/// What is sent with a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Piggybacked {
    /// Handles to close first.
    pub closes: Vec<Handle>,
    /// Where names of a directory are changed: others in it to look at afterwards (for a rename,
    /// in the new directory).
    pub also: Vec<Vec<u8>>,
}

impl Request {
    /// Whether the reply may come with a descriptor.
    #[must_use]
    pub fn brings_fd(&self) -> bool {
        match self {
            Request::Open { .. } | Request::Create { .. } | Request::TmpFile { .. } => true,
            Request::Walk { then, .. } => *then == WalkPurpose::Read,
            _ => false,
        }
    }
    /// The message, with handles to close on the way (at most [`MAX_CLOSES`]).
    #[must_use]
    pub fn encode(&self, closes: &[Handle]) -> Vec<u8> {
        self.encode_with(closes, &[])
    }
    /// As [`Request::encode`], with names to look at (at most [`MAX_ALSO`]).
    #[must_use]
    pub fn encode_with(&self, closes: &[Handle], also: &[Vec<u8>]) -> Vec<u8> {
        let mut w = Writer::new();
        w.u16(VERSION);
        w.u16(closes.len() as u16);
        closes.iter().for_each(|h| h.put(&mut w));
        w.u8(also.len() as u8);
        also.iter().for_each(|n| n.put(&mut w));
        self.put(&mut w);
        w.0
    }
    /// The request and what came with it. `EBADMSG` where it is malformed.
    pub fn decode(bytes: &[u8]) -> Result<(Request, Piggybacked)> {
        let r = &mut Reader::new(bytes);
        if r.u16()? != VERSION {
            return Err(EBADMSG);
        }
        let n = r.u16()?;
        let closes = get_list(r, n.into(), MAX_CLOSES)?;
        let n = r.u8()?;
        let also = get_list(r, n.into(), MAX_ALSO)?;
        let request = Request::get(r)?;
        r.end()?;
        Ok((request, Piggybacked { closes, also }))
    }
}
