//! Handles of files: name_to_handle_at(2), open_by_handle_at(2) (Linux's fs/fhandle.c).
//!
//! A handle has the file's number, by which a file system that has handles finds the file again
//! ([`crate::FileSystem::find`]). A file that has no name any more is not found: `ESTALE`.

use crate::context::{At, PathCx};
use crate::cred::Caps;
use crate::dentry::Dentry;
use crate::file::File;
use crate::inode::NextNames;
use crate::mount::Path;
use crate::ops::OpenHow;
use crate::walk::Walk;
use abi::Result;
use abi::errno::{EOPNOTSUPP, EPERM, ESTALE};
use std::fmt::Write;
use std::sync::Arc;

/// The type of tmpfs's handles, and of those that only tell files apart (`FILEID_INO64_GEN`).
const NUMBER: i32 = 1;
const NUMBER_ONLY: i32 = 0x81;

/// What a handle is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Open,
    /// To tell files apart (`AT_HANDLE_FID`).
    Compare,
}

/// A file's handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle {
    pub kind: i32,
    pub bytes: [u8; 12],
}

/// How `/proc/PID/fdinfo` tells of a watched file.
pub struct Marked {
    ino: u64,
    dev: u64,
    handle: Option<Handle>,
}

impl Marked {
    /// May be a question to the host.
    pub fn of(d: &Dentry) -> Result<Marked> {
        let s = d.inode()?.stat()?;
        Ok(Marked {
            ino: s.ino,
            dev: s.dev,
            handle: Handle::fid(d),
        })
    }
    /// The file's numbers.
    #[must_use]
    pub fn numbers(&self) -> String {
        format!("ino:{:x} sdev:{:x}", self.ino, internal_dev(self.dev))
    }
    /// Its handle, with a space before it (`show_mark_fhandle`).
    #[must_use]
    pub fn fhandle(&self) -> String {
        let Some(h) = self.handle else {
            return String::new();
        };
        let (len, kind) = (h.bytes.len(), h.kind);
        let mut s = format!(" fhandle-bytes:{len:x} fhandle-type:{kind:x} f_handle:");
        for b in h.bytes {
            let _ = write!(s, "{b:02x}");
        }
        s
    }
}

/// A device's number as the kernel has it inside (`MKDEV`).
#[must_use]
pub fn internal_dev(dev: u64) -> u64 {
    u64::from(crate::major(dev)) << 20 | u64::from(crate::minor(dev))
}

impl Handle {
    /// Of tmpfs: a generation, of which there is one, and the number.
    fn of_number(number: u64) -> Handle {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&number.to_ne_bytes());
        Handle {
            kind: NUMBER,
            bytes,
        }
    }
    fn to_compare(number: u64) -> Handle {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&number.to_ne_bytes());
        Handle {
            kind: NUMBER_ONLY,
            bytes,
        }
    }
    /// That tells a file from others: of `AT_HANDLE_FID`.
    #[must_use]
    pub fn fid(d: &Dentry) -> Option<Handle> {
        let inode = d.inode().ok()?;
        match d.sb().fs.handle(&**inode) {
            Some(n) => Some(Handle::of_number(n)),
            None => Some(Handle::to_compare(inode.stat().ok()?.ino)),
        }
    }
    /// The number in a handle of [`Handle::of_number`]. Linux's tmpfs does not look at the type.
    fn number(bytes: &[u8]) -> Option<u64> {
        let number = bytes.get(4..12).filter(|_| bytes[..4] == [0; 4])?;
        Some(u64::from_ne_bytes(number.try_into().ok()?))
    }
}

impl PathCx<'_> {
    /// The handle of what is there, and its mount.
    pub fn handle(
        &self,
        at: &At,
        path: &[u8],
        w: Walk,
        purpose: Purpose,
    ) -> Result<(Handle, Path)> {
        let p = self.resolve(at, path, w)?;
        let (fs, inode) = (&p.mnt.sb().fs, p.inode()?);
        let handle = match (fs.handle(&**inode), purpose) {
            (Some(n), _) => Handle::of_number(n),
            (None, Purpose::Compare) => Handle::to_compare(inode.stat()?.ino),
            (None, Purpose::Open) => return Err(EOPNOTSUPP),
        };
        Ok((handle, p))
    }

    /// `open_by_handle_at(2)`: on the file system of `at`. `EPERM` without CAP_DAC_READ_SEARCH in
    /// the initial user namespace: a handle passes by all directories.
    pub fn open_by_handle(&self, at: &At, handle: &[u8], flags: u32) -> Result<Arc<File>> {
        let anchor = self.resolve(at, b"", Walk::EMPTY);
        if !self.cred().has(Caps::DAC_READ_SEARCH) {
            return Err(EPERM);
        }
        // A file without a place (a pipe) has no others beside it.
        let anchor = anchor.map_err(|_| ESTALE)?;
        let mut d = anchor.mnt.root.clone();
        while let Some(up) = d.parent() {
            d = up;
        }
        let number = Handle::number(handle).ok_or(ESTALE)?;
        let fs = &anchor.mnt.sb().fs;
        let names = fs.find(&**d.inode()?, number).ok_or(ESTALE)?;
        for name in names {
            let next = NextNames {
                rest: &[],
                reads: false,
                siblings: 0,
            };
            d = Dentry::search(&d, &self.caller, &name, next).map_err(|_| ESTALE)?;
        }
        let there = d.inode().map_err(|_| ESTALE)?;
        if fs.handle(&**there) != Some(number) {
            return Err(ESTALE);
        }
        self.open_place(Path::new(anchor.mnt, d), OpenHow::new(flags, 0))
    }
}
