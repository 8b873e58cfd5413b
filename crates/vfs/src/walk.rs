//! The path walk: from a path name to a [`Path`] (`path_resolution(7)`, Linux's fs/namei.c).
//!
//! A [`Walker`] stands at a place and has path text left, its own and that of symbolic links on the
//! way. It can walk to the end, or stop before the last component (for operations that make or
//! remove a name) and go on from there (for `O_CREAT` on a symbolic link).

use crate::context::{At, PathCx};
use crate::dentry::Dentry;
use crate::file::File;
use crate::inode::{Follow, NextNames};
use crate::mode::{FileType, Want};
use crate::mount::{MountFlags, Path};
use crate::{NAME_MAX, PATH_MAX};
use abi::Result;
use abi::errno::{EAGAIN, EINVAL, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EXDEV};
use std::borrow::Cow;
use std::sync::Arc;

bitflags::bitflags! {
    /// How to walk.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Walk: u32 {
        /// Follow a symbolic link in the last component.
        const FOLLOW = 1;
        /// The end must be a directory.
        const DIRECTORY = 2;
        /// An empty path names the start itself (`AT_EMPTY_PATH`).
        const EMPTY = 4;
        const NO_XDEV = 8;
        const NO_MAGICLINKS = 16;
        const NO_SYMLINKS = 32;
        const BENEATH = 64;
        const IN_ROOT = 128;
        /// The file at the end is to be opened for reading.
        const READS = 256;
    }
}

impl Walk {
    /// From openat2(2)'s `resolve`.
    pub fn from_resolve(resolve: u64) -> Result<Walk> {
        use abi::linux::{
            RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS,
            RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
        };
        let mut w = Walk::empty();
        let mut left = resolve;
        for (bit, flag) in [
            (RESOLVE_NO_XDEV, Walk::NO_XDEV),
            (RESOLVE_NO_MAGICLINKS, Walk::NO_MAGICLINKS),
            (
                RESOLVE_NO_SYMLINKS,
                Walk::NO_SYMLINKS.union(Walk::NO_MAGICLINKS),
            ),
            (RESOLVE_BENEATH, Walk::BENEATH),
            (RESOLVE_IN_ROOT, Walk::IN_ROOT),
        ] {
            if left & u64::from(bit) != 0 {
                w |= flag;
                left &= !u64::from(bit);
            }
        }
        if left & u64::from(RESOLVE_CACHED) != 0 {
            // "May fail": the caller tries again without it.
            return Err(EAGAIN);
        }
        if left != 0 || w.contains(Walk::BENEATH | Walk::IN_ROOT) {
            return Err(EINVAL);
        }
        Ok(w)
    }
    fn scoped(self) -> bool {
        self.intersects(Walk::BENEATH | Walk::IN_ROOT)
    }
}

/// The last component of a path name, not yet walked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Last {
    Name(Vec<u8>),
    Dot,
    DotDot,
    /// The path was only slashes.
    Root,
}

/// The directory of a path name's last component, and that component.
pub struct Parent {
    pub dir: Path,
    pub last: Last,
    /// The name had slashes behind it.
    pub slashes: bool,
}

/// Symbolic links in one walk (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

struct Frame<'a> {
    text: Cow<'a, [u8]>,
    pos: usize,
}

/// What the walk found at the next component.
enum Next {
    End,
    Dot,
    DotDot,
    /// A name, `text[start..end]` of the top frame.
    Name(usize, usize),
}

pub(crate) struct Walker<'a> {
    cx: PathCx<'a>,
    flags: Walk,
    root: Path,
    pub here: Path,
    frames: Vec<Frame<'a>>,
    links: u32,
    /// The last component had slashes behind it.
    pub slashes: bool,
    /// Whether the component just taken was the last.
    last: bool,
}

impl<'a> Walker<'a> {
    pub fn new(cx: PathCx<'a>, at: &At, path: &'a [u8], flags: Walk) -> Result<Walker<'a>> {
        if path.len() >= PATH_MAX {
            return Err(ENAMETOOLONG);
        }
        if path.is_empty() && !flags.contains(Walk::EMPTY) {
            return Err(ENOENT);
        }
        let absolute = path.first() == Some(&b'/');
        let mut root = cx.fs.root();
        let here = if flags.scoped() {
            let start = at.path(cx.fs)?;
            if absolute && flags.contains(Walk::BENEATH) {
                return Err(EXDEV);
            }
            root = start.clone();
            start
        } else if absolute {
            root.clone()
        } else {
            at.path(cx.fs)?
        };
        if !path.is_empty() && !here.is_dir() {
            return Err(ENOTDIR);
        }
        Ok(Walker {
            cx,
            flags,
            root,
            here,
            frames: vec![Frame {
                text: Cow::Borrowed(path),
                pos: 0,
            }],
            links: 0,
            slashes: false,
            last: false,
        })
    }

    /// Takes the next component, and sets `self.last`.
    fn next(&mut self) -> Next {
        loop {
            let Some(f) = self.frames.last_mut() else {
                return Next::End;
            };
            let text = &f.text;
            let start = f.pos + text[f.pos..].iter().take_while(|b| **b == b'/').count();
            if start == text.len() {
                self.frames.pop();
                continue;
            }
            let end = start + text[start..].iter().take_while(|b| **b != b'/').count();
            let slashes = text[end..].iter().take_while(|b| **b == b'/').count();
            f.pos = end + slashes;
            let exhausted = f.pos == text.len();
            let next = match &text[start..end] {
                b"." => Next::Dot,
                b".." => Next::DotDot,
                _ => Next::Name(start, end),
            };
            // Frames below have something left: those that had not were popped when a link was
            // pushed.
            self.last = exhausted && self.frames.len() == 1;
            if self.last && slashes > 0 {
                self.slashes = true;
            }
            return next;
        }
    }

    /// Whether the caller may look up names where the walk stands.
    fn may_search(&self) -> Result<()> {
        let inode = self.here.inode()?;
        if inode.file_type() != FileType::Directory {
            return Err(ENOTDIR);
        }
        inode.permission(&self.cx.caller, Want::EXEC)
    }

    /// The name `text[start..end]` of the top frame, where the walk stands.
    fn step(&self, start: usize, end: usize) -> Result<Arc<Dentry>> {
        if end - start > NAME_MAX {
            self.may_search()?;
            return Err(ENAMETOOLONG);
        }
        if !self.here.is_dir() {
            return Err(ENOTDIR);
        }
        let f = self.frames.last().ok_or(ENOENT)?;
        let next = NextNames {
            rest: &f.text[end..],
            reads: self.flags.contains(Walk::READS) && self.frames.len() == 1,
            siblings: 0,
        };
        self.here
            .dentry
            .search(&self.cx.caller, &f.text[start..end], next)
    }

    fn crossed(&self) -> Result<()> {
        if self.flags.contains(Walk::NO_XDEV) {
            Err(EXDEV)
        } else {
            Ok(())
        }
    }

    fn up(&mut self) -> Result<()> {
        match self.here.up(&self.root) {
            None if self.flags.contains(Walk::BENEATH) => return Err(EXDEV),
            None => return Ok(()),
            Some(p) => {
                if !Arc::ptr_eq(&p.mnt, &self.here.mnt) {
                    self.crossed()?;
                }
                self.here = p;
            }
        }
        if self.here.follow_down() {
            self.crossed()?;
        }
        // A rename or a mount may have moved us out from under the root.
        if self.flags.scoped() && !self.here.is_under(&self.root) {
            return Err(EAGAIN);
        }
        Ok(())
    }

    /// Leads the walk through the symbolic link `link`, which lies in `self.here`.
    pub fn follow(&mut self, link: &Path) -> Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS || self.flags.contains(Walk::NO_SYMLINKS) {
            return Err(ELOOP);
        }
        if link.mnt.flags().contains(MountFlags::NOSYMFOLLOW) {
            return Err(ELOOP);
        }
        if self.last {
            self.cx.may_follow(&self.here, link)?;
        }
        match link.inode()?.follow(&self.cx.caller)? {
            Follow::Jump(p) => {
                if self.flags.contains(Walk::NO_MAGICLINKS) {
                    return Err(ELOOP);
                }
                if self.flags.scoped() {
                    return Err(EXDEV);
                }
                if !Arc::ptr_eq(&p.mnt, &self.here.mnt) {
                    self.crossed()?;
                }
                self.here = p;
            }
            Follow::Target(text) => {
                if text.is_empty() {
                    return Err(ENOENT);
                }
                if text.len() >= PATH_MAX {
                    return Err(ENAMETOOLONG);
                }
                if text[0] == b'/' {
                    if self.flags.contains(Walk::BENEATH) {
                        return Err(EXDEV);
                    }
                    if !Arc::ptr_eq(&self.here.mnt, &self.root.mnt) {
                        self.crossed()?;
                    }
                    self.here = self.root.clone();
                }
                if self.frames.last().is_some_and(|f| f.pos == f.text.len()) {
                    self.frames.pop();
                }
                self.frames.push(Frame {
                    text: Cow::Owned(text),
                    pos: 0,
                });
            }
        }
        Ok(())
    }

    /// Walks to the end.
    pub fn walk_to_end(&mut self) -> Result<()> {
        loop {
            let next = self.next();
            match next {
                Next::End => break,
                Next::Dot => self.may_search()?,
                Next::DotDot => {
                    self.may_search()?;
                    self.up()?;
                }
                Next::Name(start, end) => {
                    let d = self.step(start, end)?;
                    let mut p = Path {
                        mnt: self.here.mnt.clone(),
                        dentry: d,
                    };
                    if p.follow_down() {
                        self.crossed()?;
                    }
                    match p.dentry.file_type() {
                        None => return Err(ENOENT),
                        Some(FileType::Symlink)
                            if !self.last || self.slashes || self.flags.contains(Walk::FOLLOW) =>
                        {
                            self.follow(&p)?;
                        }
                        Some(_) => self.here = p,
                    }
                }
            }
        }
        if (self.slashes || self.flags.contains(Walk::DIRECTORY)) && !self.here.is_dir() {
            return Err(ENOTDIR);
        }
        Ok(())
    }

    /// Walks up to the last component, which is given and not looked up.
    pub fn walk_to_last(&mut self) -> Result<Last> {
        loop {
            let next = self.next();
            match next {
                Next::End => return Ok(Last::Root),
                Next::Dot => {
                    self.may_search()?;
                    if self.last {
                        return Ok(Last::Dot);
                    }
                }
                Next::DotDot => {
                    self.may_search()?;
                    if self.last {
                        return Ok(Last::DotDot);
                    }
                    self.up()?;
                }
                Next::Name(start, end) => {
                    if self.last {
                        self.may_search()?;
                        if end - start > NAME_MAX {
                            return Err(ENAMETOOLONG);
                        }
                        let Some(f) = self.frames.last() else {
                            return Ok(Last::Root);
                        };
                        return Ok(Last::Name(f.text[start..end].to_vec()));
                    }
                    let d = self.step(start, end)?;
                    let mut p = Path {
                        mnt: self.here.mnt.clone(),
                        dentry: d,
                    };
                    if p.follow_down() {
                        self.crossed()?;
                    }
                    match p.dentry.file_type() {
                        None => return Err(ENOENT),
                        Some(FileType::Symlink) => self.follow(&p)?,
                        Some(_) => self.here = p,
                    }
                }
            }
        }
    }

    /// Whether path text is left: after following a link, whether it was an ordinary one.
    pub fn has_more(&self) -> bool {
        self.frames.iter().any(|f| f.pos < f.text.len())
    }

    /// What a name looked up in `self.here` is, with what is mounted on it.
    pub fn mounted(&self, mut p: Path) -> Result<Path> {
        if p.follow_down() {
            self.crossed()?;
        }
        Ok(p)
    }
}

impl PathCx<'_> {
    /// The file at the end of `path`, which must exist.
    pub fn resolve(&self, at: &At, path: &[u8], flags: Walk) -> Result<Path> {
        let mut w = Walker::new(*self, at, path, flags)?;
        w.walk_to_end()?;
        Ok(w.here)
    }
    /// The directory that `path`'s last component is, or would be, in.
    pub fn resolve_parent(&self, at: &At, path: &[u8]) -> Result<Parent> {
        let mut w = Walker::new(*self, at, path, Walk::empty())?;
        let last = w.walk_to_last()?;
        Ok(Parent {
            dir: w.here,
            last,
            slashes: w.slashes,
        })
    }
    /// Like [`PathCx::resolve`] for system calls with `AT_EMPTY_PATH`: an open file without a path
    /// (a pipe, a socket) is given as itself.
    pub fn resolve_or_file(&self, at: &At, path: &[u8], flags: Walk) -> Result<Place> {
        if path.is_empty()
            && flags.contains(Walk::EMPTY)
            && let At::File(f) = at
        {
            return Ok(match &f.path {
                Some(p) => Place::Path(p.clone()),
                None => Place::File(f.clone()),
            });
        }
        Ok(Place::Path(self.resolve(at, path, flags)?))
    }
}

/// What a path name or a descriptor stands for.
pub enum Place {
    Path(Path),
    /// An open file that has no path.
    File(Arc<File>),
}
