//! Requests and replies.
//!
//! A request is: version, a list of handles to close, names to look at afterwards ([`Seen`]), an operation's number,
//! its fields. A reply is: version, an error number (0: done), and only then the operation's fields.

use crate::wire::{MAX_ALSO, MAX_CLOSES, MAX_NAMES, Reader, VERSION, Writer};
use abi::attr::{NewNode, Perm, SetAttr, Stat, StatFs};
use abi::errno::EBADMSG;
use abi::{Errno, Result};

/// A file that the server holds for the client: an index with a generation. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(pub u64);

/// A file's attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attr {
    pub stat: Stat,
    /// Whether it has a POSIX ACL; `None` where that is not known.
    pub acl: Option<bool>,
}

/// The attribute that holds an ACL.
pub const ACL: &[u8] = b"system.posix_acl_access";

impl Attr {
    fn encode(&self, w: &mut Writer) {
        let s = &self.stat;
        w.u64(s.dev);
        w.u64(s.ino);
        for v in [s.mode, s.nlink, s.uid, s.gid] {
            w.u32(v);
        }
        w.u64(s.rdev);
        w.u64(s.size);
        w.u32(s.blksize);
        w.u64(s.blocks);
        for t in [s.atime, s.mtime, s.ctime, s.btime] {
            w.i64(t);
        }
        w.u8(self.acl.map_or(2, u8::from));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Attr> {
        let stat = Stat {
            dev: r.u64()?,
            ino: r.u64()?,
            mode: r.u32()?,
            nlink: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            rdev: r.u64()?,
            size: r.u64()?,
            blksize: r.u32()?,
            blocks: r.u64()?,
            atime: r.i64()?,
            mtime: r.i64()?,
            ctime: r.i64()?,
            btime: r.i64()?,
        };
        let acl = match r.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Ok(Attr { stat, acl })
    }
}

/// What a walk is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Then {
    Nothing,
    /// The file at its end is read: the reply may bring a descriptor for it.
    Read,
}

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A regular file.
    Read,
    /// A regular file.
    ReadWrite,
    /// A regular file, a directory or a symbolic link, for its attributes alone (`O_PATH`).
    Look,
}

/// A request. Names are checked by the server. Ids of `u32::MAX` in a [`NewNode`] are left to the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Nop,
    /// The root of this name.
    Attach {
        root: Vec<u8>,
    },
    /// Walks names one after the other, and stops at the first that is no directory.
    Walk {
        from: Handle,
        names: Vec<Vec<u8>>,
        /// Other names in `from`, looked up on the way as far as there is room for them.
        beside: Vec<Vec<u8>>,
        /// With a descriptor of a regular file at the end, where it can be had.
        then: Then,
    },
    GetAttr {
        file: Handle,
    },
    SetAttr {
        file: Handle,
        attr: SetAttr,
    },
    Open {
        file: Handle,
        access: Access,
    },
    Create {
        dir: Handle,
        name: Vec<u8>,
        new: NewNode,
    },
    Mkdir {
        dir: Handle,
        name: Vec<u8>,
        new: NewNode,
    },
    /// A FIFO or a socket: `new.mode` has its type.
    Mknod {
        dir: Handle,
        name: Vec<u8>,
        new: NewNode,
    },
    Symlink {
        dir: Handle,
        name: Vec<u8>,
        target: Vec<u8>,
        new: NewNode,
    },
    TmpFile {
        dir: Handle,
        new: NewNode,
    },
    Link {
        file: Handle,
        dir: Handle,
        name: Vec<u8>,
    },
    Unlink {
        dir: Handle,
        name: Vec<u8>,
    },
    Rmdir {
        dir: Handle,
        name: Vec<u8>,
    },
    Rename {
        dir: Handle,
        name: Vec<u8>,
        new_dir: Handle,
        new_name: Vec<u8>,
        flags: u32,
    },
    Readlink {
        file: Handle,
    },
    /// Entries from a cookie on (0: from the start).
    ReadDir {
        dir: Handle,
        cookie: u64,
    },
    StatFs {
        file: Handle,
    },
    Sync {
        file: Handle,
    },
    GetXattr {
        file: Handle,
        name: Vec<u8>,
    },
    SetXattr {
        file: Handle,
        name: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
    },
    ListXattr {
        file: Handle,
    },
    RemoveXattr {
        file: Handle,
        name: Vec<u8>,
    },
}

fn opt<T: Default>(w: &mut Writer, v: Option<T>, put: impl Fn(&mut Writer, T)) {
    w.u8(u8::from(v.is_some()));
    put(w, v.unwrap_or_default());
}

fn get_opt<'a, T>(
    r: &mut Reader<'a>,
    get: impl Fn(&mut Reader<'a>) -> Result<T>,
) -> Result<Option<T>> {
    let there = r.u8()?;
    let v = get(r)?;
    match there {
        0 => Ok(None),
        1 => Ok(Some(v)),
        _ => Err(EBADMSG),
    }
}

fn put_perm(w: &mut Writer, p: Perm) {
    w.u32(p.uid);
    w.u32(p.gid);
    w.u32(p.mode);
}

fn get_perm(r: &mut Reader<'_>) -> Result<Perm> {
    Ok(Perm {
        uid: r.u32()?,
        gid: r.u32()?,
        mode: r.u32()?,
    })
}

fn put_new(w: &mut Writer, n: NewNode) {
    w.u32(n.mode);
    w.u32(n.uid);
    w.u32(n.gid);
}

fn get_new(r: &mut Reader<'_>) -> Result<NewNode> {
    Ok(NewNode {
        mode: r.u32()?,
        uid: r.u32()?,
        gid: r.u32()?,
    })
}

/// What is sent with a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Riders {
    /// Handles to close first.
    pub closes: Vec<Handle>,
    /// Where names of a directory are changed: others in it to look at afterwards (for a rename, in the new
    /// directory).
    pub also: Vec<Vec<u8>>,
}

impl Request {
    /// Whether the reply may come with a descriptor.
    #[must_use]
    pub fn brings_fd(&self) -> bool {
        match self {
            Request::Open { .. } | Request::Create { .. } | Request::TmpFile { .. } => true,
            Request::Walk { then, .. } => *then == Then::Read,
            _ => false,
        }
    }
    /// Whether it changes something on the host, or frees it (`Nop`, which brings handles to close).
    #[must_use]
    pub fn changes(&self) -> bool {
        use Request::*;
        !matches!(
            self,
            Attach { .. }
                | Walk { .. }
                | GetAttr { .. }
                | Open { .. }
                | Readlink { .. }
                | ReadDir { .. }
                | StatFs { .. }
                | GetXattr { .. }
                | ListXattr { .. }
        )
    }
    /// The message, with handles to close on the way (at most [`MAX_CLOSES`]).
    #[must_use]
    pub fn encode(&self, closes: &[Handle]) -> Vec<u8> {
        self.encode_with(closes, &[])
    }
    /// As [`Request::encode`], with names to look at (at most [`MAX_ALSO`]).
    #[must_use]
    pub fn encode_with(&self, closes: &[Handle], also: &[Vec<u8>]) -> Vec<u8> {
        let mut w = Writer::default();
        w.u16(VERSION);
        w.u16(closes.len() as u16);
        for h in closes {
            w.u64(h.0);
        }
        w.u8(also.len() as u8);
        also.iter().for_each(|n| w.bytes(n));
        let w = &mut w;
        let op = |w: &mut Writer, n: u8, h: Handle| {
            w.u8(n);
            w.u64(h.0);
        };
        match self {
            Request::Nop => w.u8(0),
            Request::Attach { root } => {
                w.u8(1);
                w.bytes(root);
            }
            Request::Walk {
                from,
                names,
                beside,
                then,
            } => {
                op(w, 2, *from);
                w.u8(*then as u8);
                w.u16(beside.len() as u16);
                beside.iter().for_each(|n| w.bytes(n));
                w.u16(names.len() as u16);
                names.iter().for_each(|n| w.bytes(n));
            }
            Request::GetAttr { file } => op(w, 3, *file),
            Request::SetAttr { file, attr } => {
                op(w, 4, *file);
                opt(w, attr.mode, Writer::u32);
                opt(w, attr.uid, Writer::u32);
                opt(w, attr.gid, Writer::u32);
                opt(w, attr.size, Writer::u64);
                opt(w, attr.atime, Writer::i64);
                opt(w, attr.mtime, Writer::i64);
                opt(w, attr.seen, put_perm);
            }
            Request::Open { file, access } => {
                op(w, 5, *file);
                w.u8(match access {
                    Access::Read => 0,
                    Access::ReadWrite => 1,
                    Access::Look => 2,
                });
            }
            Request::Create { dir, name, new } => {
                op(w, 6, *dir);
                w.bytes(name);
                put_new(w, *new);
            }
            Request::Mkdir { dir, name, new } => {
                op(w, 7, *dir);
                w.bytes(name);
                put_new(w, *new);
            }
            Request::Mknod { dir, name, new } => {
                op(w, 8, *dir);
                w.bytes(name);
                put_new(w, *new);
            }
            Request::Symlink {
                dir,
                name,
                target,
                new,
            } => {
                op(w, 9, *dir);
                w.bytes(name);
                w.bytes(target);
                put_new(w, *new);
            }
            Request::TmpFile { dir, new } => {
                op(w, 10, *dir);
                put_new(w, *new);
            }
            Request::Link { file, dir, name } => {
                op(w, 11, *file);
                w.u64(dir.0);
                w.bytes(name);
            }
            Request::Unlink { dir, name } => {
                op(w, 12, *dir);
                w.bytes(name);
            }
            Request::Rmdir { dir, name } => {
                op(w, 13, *dir);
                w.bytes(name);
            }
            Request::Rename {
                dir,
                name,
                new_dir,
                new_name,
                flags,
            } => {
                op(w, 14, *dir);
                w.bytes(name);
                w.u64(new_dir.0);
                w.bytes(new_name);
                w.u32(*flags);
            }
            Request::Readlink { file } => op(w, 15, *file),
            Request::ReadDir { dir, cookie } => {
                op(w, 16, *dir);
                w.u64(*cookie);
            }
            Request::StatFs { file } => op(w, 17, *file),
            Request::Sync { file } => op(w, 18, *file),
            Request::GetXattr { file, name } => {
                op(w, 19, *file);
                w.bytes(name);
            }
            Request::SetXattr {
                file,
                name,
                value,
                flags,
            } => {
                op(w, 20, *file);
                w.bytes(name);
                w.bytes(value);
                w.u32(*flags);
            }
            Request::ListXattr { file } => op(w, 21, *file),
            Request::RemoveXattr { file, name } => {
                op(w, 22, *file);
                w.bytes(name);
            }
        }
        std::mem::take(&mut w.0)
    }

    /// The request and what came with it.
    pub fn decode(bytes: &[u8]) -> Result<(Request, Riders)> {
        let r = &mut Reader::new(bytes);
        if r.u16()? != VERSION {
            return Err(EBADMSG);
        }
        let n = usize::from(r.u16()?);
        if n > MAX_CLOSES {
            return Err(EBADMSG);
        }
        let closes = (0..n)
            .map(|_| Ok(Handle(r.u64()?)))
            .collect::<Result<Vec<_>>>()?;
        let n = usize::from(r.u8()?);
        if n > MAX_ALSO {
            return Err(EBADMSG);
        }
        let also = (0..n)
            .map(|_| Ok(r.bytes()?.to_vec()))
            .collect::<Result<Vec<_>>>()?;
        let op = r.u8()?;
        let h = |r: &mut Reader<'_>| Ok(Handle(r.u64()?));
        let s = |r: &mut Reader<'_>| Ok(r.bytes()?.to_vec());
        let request = match op {
            0 => Request::Nop,
            1 => Request::Attach { root: s(r)? },
            2 => {
                let from = h(r)?;
                let then = match r.u8()? {
                    0 => Then::Nothing,
                    1 => Then::Read,
                    _ => return Err(EBADMSG),
                };
                let names = |r: &mut Reader<'_>| {
                    let n = usize::from(r.u16()?);
                    if n > MAX_NAMES {
                        return Err(EBADMSG);
                    }
                    (0..n).map(|_| s(r)).collect::<Result<Vec<_>>>()
                };
                let beside = names(r)?;
                Request::Walk {
                    from,
                    names: names(r)?,
                    beside,
                    then,
                }
            }
            3 => Request::GetAttr { file: h(r)? },
            4 => Request::SetAttr {
                file: h(r)?,
                attr: SetAttr {
                    mode: get_opt(r, Reader::u32)?,
                    uid: get_opt(r, Reader::u32)?,
                    gid: get_opt(r, Reader::u32)?,
                    size: get_opt(r, Reader::u64)?,
                    atime: get_opt(r, Reader::i64)?,
                    mtime: get_opt(r, Reader::i64)?,
                    seen: get_opt(r, get_perm)?,
                },
            },
            5 => {
                let file = h(r)?;
                let access = match r.u8()? {
                    0 => Access::Read,
                    1 => Access::ReadWrite,
                    2 => Access::Look,
                    _ => return Err(EBADMSG),
                };
                Request::Open { file, access }
            }
            6 => Request::Create {
                dir: h(r)?,
                name: s(r)?,
                new: get_new(r)?,
            },
            7 => Request::Mkdir {
                dir: h(r)?,
                name: s(r)?,
                new: get_new(r)?,
            },
            8 => Request::Mknod {
                dir: h(r)?,
                name: s(r)?,
                new: get_new(r)?,
            },
            9 => Request::Symlink {
                dir: h(r)?,
                name: s(r)?,
                target: s(r)?,
                new: get_new(r)?,
            },
            10 => Request::TmpFile {
                dir: h(r)?,
                new: get_new(r)?,
            },
            11 => Request::Link {
                file: h(r)?,
                dir: h(r)?,
                name: s(r)?,
            },
            12 => Request::Unlink {
                dir: h(r)?,
                name: s(r)?,
            },
            13 => Request::Rmdir {
                dir: h(r)?,
                name: s(r)?,
            },
            14 => Request::Rename {
                dir: h(r)?,
                name: s(r)?,
                new_dir: h(r)?,
                new_name: s(r)?,
                flags: r.u32()?,
            },
            15 => Request::Readlink { file: h(r)? },
            16 => Request::ReadDir {
                dir: h(r)?,
                cookie: r.u64()?,
            },
            17 => Request::StatFs { file: h(r)? },
            18 => Request::Sync { file: h(r)? },
            19 => Request::GetXattr {
                file: h(r)?,
                name: s(r)?,
            },
            20 => Request::SetXattr {
                file: h(r)?,
                name: s(r)?,
                value: s(r)?,
                flags: r.u32()?,
            },
            21 => Request::ListXattr { file: h(r)? },
            22 => Request::RemoveXattr {
                file: h(r)?,
                name: s(r)?,
            },
            _ => return Err(EBADMSG),
        };
        r.end()?;
        Ok((request, Riders { closes, also }))
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

/// A directory's entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub ino: u64,
    /// `DT_*`.
    pub kind: u8,
    pub name: Vec<u8>,
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    Unknown,
    Missing,
    /// By device and number.
    File(u64, u64),
}

/// What a directory was seen to hold after names in it were changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The directory's change time, by which the client remembers names.
    pub version: i64,
    /// What was seen **after** that time was read: the name that was changed, then those that came with the request
    /// ([`Riders::also`]).
    pub names: Vec<Named>,
}

impl Seen {
    fn encode(this: Option<&Seen>, w: &mut Writer) {
        w.u8(u8::from(this.is_some()));
        let Some(s) = this else { return };
        w.i64(s.version);
        w.u8(s.names.len() as u8);
        for n in &s.names {
            match n {
                Named::Unknown => w.u8(0),
                Named::Missing => w.u8(1),
                Named::File(dev, ino) => {
                    w.u8(2);
                    w.u64(*dev);
                    w.u64(*ino);
                }
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Option<Seen>> {
        match r.u8()? {
            0 => return Ok(None),
            1 => {}
            _ => return Err(EBADMSG),
        }
        let version = r.i64()?;
        let n = usize::from(r.u8()?);
        if n > 1 + MAX_ALSO {
            return Err(EBADMSG);
        }
        let named = |_| {
            Ok(match r.u8()? {
                0 => Named::Unknown,
                1 => Named::Missing,
                2 => Named::File(r.u64()?, r.u64()?),
                _ => return Err(EBADMSG),
            })
        };
        let names = (0..n).map(named).collect::<Result<_>>()?;
        Ok(Some(Seen { version, names }))
    }
}

/// A reply; descriptors are beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Done,
    Attr(Attr),
    /// A new handle, and whether what is below it may be changed.
    Node {
        attr: Attr,
        handle: Handle,
        writable: bool,
        /// Of the directory that it was made in, where the client remembers its names.
        dir: Option<Seen>,
    },
    /// Names were changed; as in `Node`.
    Changed {
        dir: Option<Seen>,
        /// Of a rename's old directory, and name.
        old: Option<Seen>,
    },
    /// A descriptor is beside it.
    Opened {
        /// For [`Access::Look`]: each change of the file that is seen has a change time of its own.
        fine: bool,
    },
    /// The steps that were made, and what stopped the walk: `ENOENT` for a missing name.
    Walked {
        steps: Vec<Step>,
        stopped: Option<Errno>,
        /// The other names, in their order: `None` for what was not looked up.
        beside: Vec<Option<Step>>,
    },
    Bytes(Vec<u8>),
    Entries {
        list: Vec<Entry>,
        next: u64,
        end: bool,
    },
    StatFs(StatFs),
}

/// An error as it is sent: 0 is none.
fn errno(raw: u32) -> Result<Option<Errno>> {
    match raw {
        0 => Ok(None),
        n => Errno::new(i32::try_from(n).map_err(|_| EBADMSG)?)
            .map(Some)
            .ok_or(EBADMSG),
    }
}

impl Reply {
    #[must_use]
    pub fn encode(result: &Result<Reply>) -> Vec<u8> {
        let mut w = Writer::default();
        w.u16(VERSION);
        w.u32(result.as_ref().err().map_or(0, |e| e.raw() as u32));
        let w = &mut w;
        match result {
            Err(_) => {}
            Ok(Reply::Done) => w.u8(0),
            Ok(Reply::Attr(a)) => {
                w.u8(1);
                a.encode(w);
            }
            Ok(Reply::Node {
                attr,
                handle,
                writable,
                dir,
            }) => {
                w.u8(2);
                attr.encode(w);
                w.u64(handle.0);
                w.u8(u8::from(*writable));
                Seen::encode(dir.as_ref(), w);
            }
            Ok(Reply::Changed { dir, old }) => {
                w.u8(7);
                Seen::encode(dir.as_ref(), w);
                Seen::encode(old.as_ref(), w);
            }
            Ok(Reply::Opened { fine }) => {
                w.u8(8);
                w.u8(u8::from(*fine));
            }
            Ok(Reply::Walked {
                steps,
                stopped,
                beside,
            }) => {
                let step = |w: &mut Writer, s: &Step| {
                    s.attr.encode(w);
                    w.u64(s.handle.0);
                    w.u8(u8::from(s.target.is_some()));
                    w.bytes(s.target.as_deref().unwrap_or_default());
                };
                w.u8(3);
                w.u32(stopped.map_or(0, |e| e.raw() as u32));
                w.u16(steps.len() as u16);
                steps.iter().for_each(|s| step(w, s));
                w.u16(beside.len() as u16);
                for s in beside {
                    w.u8(u8::from(s.is_some()));
                    if let Some(s) = s {
                        step(w, s);
                    }
                }
            }
            Ok(Reply::Bytes(b)) => {
                w.u8(4);
                w.bytes(b);
            }
            Ok(Reply::Entries { list, next, end }) => {
                w.u8(5);
                w.u64(*next);
                w.u8(u8::from(*end));
                for e in list {
                    w.u64(e.ino);
                    w.u8(e.kind);
                    w.bytes(&e.name);
                }
            }
            Ok(Reply::StatFs(s)) => {
                w.u8(6);
                for v in [
                    s.magic, s.bsize, s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.namelen,
                ] {
                    w.u64(v);
                }
            }
        }
        std::mem::take(&mut w.0)
    }

    /// The reply, or the error that the server gave. `EBADMSG` where it is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Reply> {
        let r = &mut Reader::new(bytes);
        if r.u16()? != VERSION {
            return Err(EBADMSG);
        }
        if let Some(e) = errno(r.u32()?)? {
            r.end()?;
            return Err(e);
        }
        let reply = match r.u8()? {
            0 => Reply::Done,
            1 => Reply::Attr(Attr::decode(r)?),
            2 => Reply::Node {
                attr: Attr::decode(r)?,
                handle: Handle(r.u64()?),
                writable: r.u8()? != 0,
                dir: Seen::decode(r)?,
            },
            3 => {
                let stopped = errno(r.u32()?)?;
                let count = |r: &mut Reader<'_>| {
                    let n = usize::from(r.u16()?);
                    if n > MAX_NAMES { Err(EBADMSG) } else { Ok(n) }
                };
                let step = |r: &mut Reader<'_>| {
                    let attr = Attr::decode(r)?;
                    let handle = Handle(r.u64()?);
                    let link = r.u8()? != 0;
                    let text = r.bytes()?;
                    Ok(Step {
                        attr,
                        handle,
                        target: link.then(|| text.to_vec()),
                    })
                };
                let steps = (0..count(r)?).map(|_| step(r)).collect::<Result<_>>()?;
                let found = |r: &mut Reader<'_>| (r.u8()? != 0).then(|| step(r)).transpose();
                Reply::Walked {
                    steps,
                    stopped,
                    beside: (0..count(r)?).map(|_| found(r)).collect::<Result<_>>()?,
                }
            }
            4 => Reply::Bytes(r.bytes()?.to_vec()),
            5 => {
                let next = r.u64()?;
                let end = r.u8()? != 0;
                let mut list = Vec::new();
                while !r.is_empty() {
                    list.push(Entry {
                        ino: r.u64()?,
                        kind: r.u8()?,
                        name: r.bytes()?.to_vec(),
                    });
                }
                Reply::Entries { list, next, end }
            }
            6 => Reply::StatFs(StatFs {
                magic: r.u64()?,
                bsize: r.u64()?,
                blocks: r.u64()?,
                bfree: r.u64()?,
                bavail: r.u64()?,
                files: r.u64()?,
                ffree: r.u64()?,
                namelen: r.u64()?,
                ..StatFs::default()
            }),
            7 => Reply::Changed {
                dir: Seen::decode(r)?,
                old: Seen::decode(r)?,
            },
            8 => Reply::Opened { fine: r.u8()? != 0 },
            _ => return Err(EBADMSG),
        };
        r.end()?;
        Ok(reply)
    }
}
