//! Files, as their server tells of them: names and attributes.

use crate::connection::{Answer, Call, Connection, REQUEST};
use crate::dir::OpenDir;
use crate::file::{Handle, OpenFile, owes};
use crate::known::{Known, NameKey, Valid, kind_of, stat};
use crate::pages::Pages;
use crate::proto::{
    AccessIn, CreateIn, EntryOut, GetxattrIn, LinkIn, MkdirIn, MknodIn, NAME_MAX, Op, OpenIn,
    OpenOut, ROOT, Rename2In, RenameIn, SetxattrIn, parse, with_nul,
};
use abi::errno::{
    EACCES, EINTR, EINVAL, EIO, ENAMETOOLONG, ENOENT, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM, EXDEV,
};
use abi::linux::{O_CLOEXEC, O_CREAT, O_EXCL, O_NOCTTY, O_TRUNC, S_ISVTX};
use abi::{Errno, Result};
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::acl::acl_permission;
use vfs::caller::Client;
use vfs::file::FileOps;
use vfs::inode::{Opened, Seen, downcast, downcast_arc};
use vfs::mode::Want;
use vfs::ucounts::Charge;
use vfs::{
    Caller, Credentials, FileType, Inode, InodeExt, NewNode, Perm, RenameFlags, SetAttr, Stat,
};
use wait::WaitQueue;
use zerocopy::IntoBytes;

/// What a file takes of the kernel's memory, with a name and a dentry, bytes.
const NODE: usize = 1024;
/// The longest text of a link, and the longest value of an attribute and list of their names.
const LINK_MAX: usize = 4095;
const XATTR_MAX: usize = 64 << 10;
/// What of open(2)'s flags a server does not see (`fuse_send_open`).
const NOT_TOLD: u32 = O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC;

/// A file. All names that lead to one node are one.
pub struct FuseInode {
    pub conn: Arc<Connection>,
    pub node: u64,
    generation: u64,
    pub(crate) kind: FileType,
    /// Look-ups that the server counts: told to it when this goes.
    lookups: AtomicU64,
    pub(crate) known: Mutex<Known>,
    /// How often the names of this directory were forgotten.
    pub(crate) forgotten: AtomicU64,
    /// Whether the server has contradicted itself (`fuse_make_bad`).
    bad: AtomicBool,
    /// Changes of the data that this kernel knows of: what was read ahead before is void.
    pub changes: AtomicU64,
    /// Held by who appends, while the server is asked: the end of the file stays where it is.
    pub appends: Mutex<()>,
    /// Writes of its pages that nobody waits for, on their way; and the first error of them since
    /// somebody asked.
    pub(crate) posted: Mutex<(usize, Option<Errno>)>,
    /// Who waits until there are none.
    pub(crate) settled: WaitQueue,
    /// Its pages, while it is mapped.
    pub(crate) pages: Mutex<Weak<Pages>>,
    /// Open files by which pages can be written.
    pub writers: Mutex<Vec<Weak<Handle>>>,
    ext: InodeExt,
    _charge: Option<Charge>,
}

impl Drop for FuseInode {
    fn drop(&mut self) {
        if self.node == ROOT {
            return;
        }
        let mut all = self.conn.inodes.lock();
        // Not a younger one's place.
        if all.get(&self.node).is_some_and(|w| w.strong_count() == 0) {
            all.remove(&self.node);
        }
        drop(all);
        self.conn.forget(self.node, *self.lookups.get_mut());
    }
}

impl Connection {
    /// The file in use with this node.
    pub fn find(&self, node: u64) -> Option<Arc<FuseInode>> {
        self.inodes.lock().get(&node)?.upgrade()
    }
    /// The root, of which nothing is known but its type.
    pub fn root_inode(self: &Arc<Self>, mode: u32, kind: FileType) -> Arc<FuseInode> {
        let told = Stat {
            dev: self.dev,
            ino: ROOT,
            mode,
            nlink: 1,
            blksize: abi::PAGE_SIZE as u32,
            ..Stat::default()
        };
        let root = self.inode(ROOT, 0, kind, told, None);
        self.inodes.lock().insert(ROOT, Arc::downgrade(&root));
        root
    }
    fn inode(
        self: &Arc<Self>,
        node: u64,
        generation: u64,
        kind: FileType,
        stat: Stat,
        charge: Option<Charge>,
    ) -> Arc<FuseInode> {
        Arc::new(FuseInode {
            conn: self.clone(),
            node,
            generation,
            kind,
            lookups: AtomicU64::new(0),
            known: Mutex::new(Known {
                stat,
                valid: Valid::No,
                version: 0,
                name: None,
            }),
            forgotten: AtomicU64::new(0),
            bad: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            appends: Mutex::new(()),
            posted: Mutex::default(),
            settled: WaitQueue::new(),
            pages: Mutex::default(),
            writers: Mutex::default(),
            ext: InodeExt::default(),
            _charge: charge,
        })
    }

    /// The file that an answer names, one look-up more (`fuse_iget`).
    fn file_of(
        self: &Arc<Self>,
        cred: &Credentials,
        e: &EntryOut,
        asked: u64,
    ) -> Result<Arc<FuseInode>> {
        let Some(kind) = kind_of(&e.attr).filter(|_| e.node != ROOT) else {
            match self.find(e.node).filter(|_| e.node == ROOT) {
                Some(root) if kind_of(&e.attr) != Some(root.kind) => root.mark_bad(),
                _ => self.forget(e.node, 1),
            }
            return Err(EIO);
        };
        let told = stat(&e.attr, self.dev, &self.user_ns);
        let charge = cred
            .kmem(NODE, ENOMEM)
            .inspect_err(|_| self.forget(e.node, 1))?;
        let fits = |i: &Arc<FuseInode>| i.kind == kind && i.generation == e.generation;
        let (inode, other) = {
            let mut all = self.inodes.lock();
            match all.get(&e.node).and_then(Weak::upgrade) {
                Some(i) if fits(&i) => (i, None),
                other => {
                    let new = self.inode(e.node, e.generation, kind, told, Some(charge));
                    all.insert(e.node, Arc::downgrade(&new));
                    (new, other)
                }
            }
        };
        // (Its last reference may go here, without the lock.)
        if let Some(old) = other {
            old.mark_bad();
        }
        inode.looked_up(e, told, asked);
        Ok(inode)
    }
}

fn umask() -> u32 {
    vfs::caller::client().map_or(0, |c: Arc<dyn Client>| c.umask())
}

fn hash(name: &[u8]) -> u64 {
    let mut h = SipHasher13::new();
    h.write(name);
    h.finish()
}

impl FuseInode {
    pub(crate) fn mark_bad(&self) {
        self.bad.store(true, Ordering::Relaxed);
    }
    /// `EIO` after the server has contradicted itself.
    pub fn good(&self) -> Result<()> {
        if self.bad.load(Ordering::Relaxed) {
            return Err(EIO);
        }
        Ok(())
    }
    /// An answer names it: one look-up more, and what that tells.
    fn looked_up(&self, e: &EntryOut, told: Stat, asked: u64) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        self.learn(told, Valid::told(e.attr_valid, e.attr_valid_nsec), asked);
    }
    /// A question about it.
    pub(crate) fn question<'a>(
        &self,
        op: Op,
        parts: &'a [&'a [u8]],
        answer: Answer,
    ) -> Result<Call<'a>> {
        self.good()?;
        let node = self.node;
        Ok(Call {
            op,
            node,
            parts,
            answer,
        })
    }
    /// Asks in the name of `cred`, or of whom the thread acts for.
    pub(crate) fn call(
        &self,
        cred: Option<&Credentials>,
        op: Op,
        parts: &[&[u8]],
        answer: Answer,
    ) -> Result<Vec<u8>> {
        self.conn.call(cred, &self.question(op, parts, answer)?)
    }
    /// As [`FuseInode::call`], of what a server need not know.
    pub fn call_known(
        &self,
        cred: Option<&Credentials>,
        op: Op,
        parts: &[&[u8]],
        answer: Answer,
        otherwise: Errno,
    ) -> Result<Vec<u8>> {
        let call = self.question(op, parts, answer)?;
        self.conn.call_known(cred, &call, otherwise)
    }
    /// `EACCES` for whom the mount is not.
    fn admit(&self, cred: &Credentials) -> Result<()> {
        if self.conn.admits(cred) {
            Ok(())
        } else {
            Err(EACCES)
        }
    }

    // Names

    fn key(&self, name: &[u8]) -> NameKey {
        NameKey {
            dir: self.node,
            forgotten: self.forgotten.load(Ordering::Relaxed),
            hash: hash(name),
        }
    }
    /// Asks for a name. `ENOENT`, too, where the server tells that there is none.
    fn ask_name(&self, cx: &Caller<'_>, name: &[u8]) -> Result<(EntryOut, u64)> {
        if name.len() > NAME_MAX {
            return Err(ENAMETOOLONG);
        }
        let asked = self.conn.version();
        let answer = Answer::Exactly(size_of::<EntryOut>());
        let a = self.call(Some(cx.cred), Op::Lookup, &[&with_nul(name)], answer)?;
        let (e, _) = parse::<EntryOut>(&a)?;
        if e.node == 0 {
            return Err(ENOENT);
        }
        Ok((e, asked))
    }
    /// The name leads to that file, as the server has told.
    fn names(&self, name: &[u8], e: &EntryOut, child: &FuseInode) {
        let valid = Valid::told(e.entry_valid, e.entry_valid_nsec);
        child.known.lock().name = Some((self.key(name), valid));
    }
    /// Whether the name still leads there as far as is known.
    fn still_names(&self, name: &[u8], child: &FuseInode) -> bool {
        let (key, k) = (self.key(name), child.known.lock());
        k.name.is_some_and(|(n, valid)| n == key && valid.holds())
    }
    /// A file that the server has made here.
    fn made(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        kind: FileType,
        answer: &[u8],
        asked: u64,
    ) -> Result<Arc<FuseInode>> {
        let (e, _) = parse::<EntryOut>(answer)?;
        if e.node == 0 {
            return Err(EIO);
        }
        let inode = self.conn.file_of(cx.cred, &e, asked)?;
        if inode.kind != kind {
            return Err(EIO);
        }
        self.names(name, &e, &inode);
        self.attributes_changed();
        Ok(inode)
    }
    /// Asks for a new file.
    fn make(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        kind: FileType,
        op: Op,
        parts: &[&[u8]],
    ) -> Result<Arc<FuseInode>> {
        let asked = self.conn.version();
        let answer = Answer::Exactly(size_of::<EntryOut>());
        let a = self.call(Some(cx.cred), op, parts, answer)?;
        self.made(cx, name, kind, &a, asked)
    }
    /// CREATE, TMPFILE, which open what they make. `otherwise`: the server does not know it.
    fn make_open(
        &self,
        cx: &Caller<'_>,
        op: Op,
        name: &[u8],
        (new, flags): (NewNode, u32),
        otherwise: Errno,
    ) -> Result<Opened> {
        let question = CreateIn {
            flags: flags & !(O_NOCTTY | O_CLOEXEC),
            mode: FileType::Regular.bits() | new.mode,
            umask: umask(),
            open_flags: 0,
        };
        let asked = self.conn.version();
        let answer = Answer::Exactly(size_of::<EntryOut>() + size_of::<OpenOut>());
        let parts = [question.as_bytes(), &with_nul(name)];
        let a = self.call_known(Some(cx.cred), op, &parts, answer, otherwise)?;
        let (e, opened) = parse::<EntryOut>(&a)?;
        let (opened, _) = parse::<OpenOut>(opened)?;
        let flags = flags & !NOT_TOLD;
        match self.made(cx, name, FileType::Regular, &a, asked) {
            Ok(inode) => {
                let ops = OpenFile::open(inode.clone(), Handle::new(&inode, opened, flags));
                Ok((inode, Some(ops)))
            }
            Err(e_) => {
                let owed = Some(owes(REQUEST));
                self.conn
                    .release(Op::Release, e.node, opened.fh, flags, owed);
                Err(e_)
            }
        }
    }
    /// OPEN, OPENDIR.
    fn ask_open(self: &Arc<Self>, cx: &Caller<'_>, flags: u32) -> Result<Handle> {
        let op = match self.kind {
            FileType::Directory => Op::Opendir,
            _ => Op::Open,
        };
        let truncates = if self.conn.limits().truncates {
            flags & O_TRUNC
        } else {
            0
        };
        let question = OpenIn {
            flags: flags & !NOT_TOLD | truncates,
            open_flags: 0,
        };
        let answer = Answer::Exactly(size_of::<OpenOut>());
        match self.call_known(Some(cx.cred), op, &[question.as_bytes()], answer, ENOSYS) {
            Err(ENOSYS) => Ok(Handle::none(self, flags)),
            r => {
                let (out, _) = parse::<OpenOut>(&r?)?;
                Ok(Handle::new(self, out, flags))
            }
        }
    }
}

/// Another file of the same server; `EXDEV` where it is of none.
fn of_fuse(inode: &Arc<dyn Inode>) -> Result<&FuseInode> {
    downcast::<FuseInode>(inode).ok_or(EXDEV)
}

impl Inode for FuseInode {
    fn file_type(&self) -> FileType {
        self.kind
    }
    fn ext(&self) -> &InodeExt {
        &self.ext
    }
    /// `EACCES` for whom it is not (`fuse_getattr`).
    fn stat(&self) -> Result<Stat> {
        if let Ok(c) = vfs::caller::client() {
            self.admit(&c.credentials())?;
        }
        self.fresh(None)
    }
    fn known_stat(&self) -> Result<Stat> {
        Ok(self.known.lock().stat)
    }
    fn stat_at_once(&self) -> Result<Stat> {
        self.known_stat()
    }
    fn is_nameless(&self) -> Result<bool> {
        Ok(self.known.lock().stat.nlink == 0)
    }
    /// What is known. Sticky directories are the server's business, where all rights are.
    fn perm(&self) -> Result<Perm> {
        let mut p = self.known.lock().stat.perm();
        if !self.conn.options.default_permissions {
            p.mode &= !S_ISVTX;
        }
        Ok(p)
    }
    /// `fuse_permission`.
    fn permission(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        self.good()?;
        self.admit(cx.cred)?;
        let by_mode = self.conn.options.default_permissions;
        let runs = want.contains(Want::EXEC) && self.kind == FileType::Regular;
        if !by_mode && !runs {
            return Ok(());
        }
        let may = |s: Stat| match by_mode {
            true => acl_permission(s.perm(), self.kind, cx.cred, want, || None),
            false if s.mode & 0o111 == 0 => Err(EACCES),
            false => Ok(()),
        };
        // What was known may be out of date.
        let known = self.known.lock().valid.holds();
        match may(self.fresh(Some(cx.cred))?) {
            Err(EACCES) if known => may(self.ask_attributes(Some(cx.cred))?),
            r => r,
        }
    }
    /// ACCESS, where the server decides about rights.
    fn access(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        if self.conn.options.default_permissions {
            return self.permission(cx, want);
        }
        self.admit(cx.cred)?;
        let question = AccessIn {
            mask: want.bits(),
            unused: 0,
        };
        let parts = [question.as_bytes()];
        match self.call_known(
            Some(cx.cred),
            Op::Access,
            &parts,
            Answer::Exactly(0),
            ENOSYS,
        ) {
            Err(ENOSYS) => Ok(()),
            r => r.map(|_| ()),
        }
    }

    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let (e, asked) = self.ask_name(cx, name)?;
        let inode = self.conn.file_of(cx.cred, &e, asked)?;
        self.names(name, &e, &inode);
        Ok(inode)
    }
    /// `fuse_dentry_revalidate`.
    fn revalidate(&self, cx: &Caller<'_>, name: &[u8], child: Option<&Arc<dyn Inode>>) -> bool {
        self.same(cx, name, child)
            .is_ok_and(|seen| seen == Seen::Same)
    }
    fn peek(&self, name: &[u8], child: Option<&Arc<dyn Inode>>) -> Seen {
        match child.and_then(downcast::<FuseInode>) {
            Some(c) if self.still_names(name, c) => Seen::Same,
            _ => Seen::Unknown,
        }
    }
    fn search(&self, cx: &Caller<'_>, name: &[u8], child: Option<&Arc<dyn Inode>>) -> Result<Seen> {
        self.permission(cx, Want::EXEC)?;
        self.same(cx, name, child)
    }
    fn create(&self, cx: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.mknod(cx, name, FileType::Regular, 0, new)
    }
    fn create_open(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        new: NewNode,
        flags: u32,
    ) -> Result<Opened> {
        match self.make_open(cx, Op::Create, name, (new, flags), ENOSYS) {
            Err(ENOSYS) => Ok((self.create(cx, name, new)?, None)),
            r => r,
        }
    }
    /// The name is that of Linux's dentry.
    fn tmpfile_open(&self, cx: &Caller<'_>, new: NewNode, flags: u32) -> Result<Opened> {
        self.make_open(cx, Op::Tmpfile, b"/", (new, flags), EOPNOTSUPP)
    }
    fn truncates_when_opened(&self) -> bool {
        true
    }
    fn decides_changes(&self) -> bool {
        !self.conn.options.default_permissions
    }
    fn takes_any_xattr(&self) -> bool {
        true
    }
    fn takes_umask(&self) -> bool {
        !self.conn.limits().masks
    }
    fn mkdir(&self, cx: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        let question = MkdirIn {
            mode: new.mode,
            umask: umask(),
        };
        let parts = [question.as_bytes(), &with_nul(name)];
        Ok(self.make(cx, name, FileType::Directory, Op::Mkdir, &parts)?)
    }
    fn mknod(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        kind: FileType,
        rdev: u64,
        new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        let question = MknodIn {
            mode: kind.bits() | new.mode,
            rdev: rdev as u32,
            umask: umask(),
            unused: 0,
        };
        let parts = [question.as_bytes(), &with_nul(name)];
        Ok(self.make(cx, name, kind, Op::Mknod, &parts)?)
    }
    fn symlink(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        target: &[u8],
        _: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        let parts: [&[u8]; 2] = [&with_nul(name), &with_nul(target)];
        Ok(self.make(cx, name, FileType::Symlink, Op::Symlink, &parts)?)
    }
    fn link(&self, cx: &Caller<'_>, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let old = of_fuse(target)?;
        let question = LinkIn { node: old.node };
        let parts = [question.as_bytes(), &with_nul(name)];
        let asked = self.conn.version();
        let answer = Answer::Exactly(size_of::<EntryOut>());
        let made = self
            .call_known(Some(cx.cred), Op::Link, &parts, answer, EPERM)
            .and_then(|a| self.made(cx, name, old.kind, &a, asked));
        // (What the server told of the new name is of the same file, where it says so.)
        if made.as_ref().err() == Some(&EINTR) {
            old.attributes_changed();
        }
        made.map(|_| ())
    }
    fn unlink(&self, cx: &Caller<'_>, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        self.remove(cx, Op::Unlink, name, child)
    }
    fn rmdir(&self, cx: &Caller<'_>, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        self.remove(cx, Op::Rmdir, name, child)
    }
    fn rename(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        child: &Arc<dyn Inode>,
        new_dir: &Arc<dyn Inode>,
        new_name: &[u8],
        target: Option<&Arc<dyn Inode>>,
        flags: RenameFlags,
    ) -> Result<()> {
        let to = of_fuse(new_dir)?;
        let (name, new_name) = (with_nul(name), with_nul(new_name));
        let r = if flags.is_empty() {
            let question = RenameIn { dir: to.node };
            let parts = [question.as_bytes(), &name, &new_name];
            self.call(Some(cx.cred), Op::Rename, &parts, Answer::Exactly(0))
        } else {
            let question = Rename2In {
                dir: to.node,
                flags: flags.bits(),
                unused: 0,
            };
            let parts = [question.as_bytes(), &name, &new_name];
            self.call_known(
                Some(cx.cred),
                Op::Rename2,
                &parts,
                Answer::Exactly(0),
                EINVAL,
            )
        };
        if r.is_ok() || r == Err(EINTR) {
            for i in [self, to].into_iter().chain(downcast(child)) {
                i.attributes_changed();
            }
            match target.and_then(downcast::<FuseInode>) {
                Some(t) if flags.contains(RenameFlags::EXCHANGE) => t.known.lock().name = None,
                Some(t) => t.lost_name(),
                None => {}
            }
            if let Some(c) = downcast::<FuseInode>(child) {
                c.known.lock().name = None;
            }
        }
        r.map(|_| ())
    }
    fn readlink(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        if self.kind != FileType::Symlink {
            return Err(EINVAL);
        }
        let answer = Answer::UpTo(LINK_MAX);
        let mut text = self.call(Some(cx.cred), Op::Readlink, &[], answer)?;
        // As a C string.
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        text.truncate(end);
        Ok(text)
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, flags: u32) -> Result<Arc<dyn FileOps>> {
        let handle = self.ask_open(cx, flags)?;
        if flags & O_TRUNC != 0 {
            match self.conn.limits().truncates {
                true => self.was_emptied(),
                false => {
                    let perm = self.known_stat()?.perm();
                    let empty = SetAttr {
                        size: Some(0),
                        mode: vfs::ops::without_privileges(perm, cx.cred),
                        ..SetAttr::default()
                    };
                    self.change(Some(cx.cred), &empty, None)?;
                }
            }
        }
        Ok(match self.kind {
            FileType::Directory => Arc::new(OpenDir::new(self, handle)),
            _ => {
                if !handle.keeps_data() {
                    self.data_changed(0, u64::MAX);
                }
                OpenFile::open(self, handle)
            }
        })
    }
    fn set_attr(&self, cx: &Caller<'_>, a: &SetAttr) -> Result<()> {
        self.admit(cx.cred)?;
        self.change(Some(cx.cred), a, None)
    }
    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.admitted()?;
        let question = GetxattrIn {
            size: XATTR_MAX as u32,
            unused: 0,
        };
        let parts = [question.as_bytes(), &with_nul(name)];
        self.call_known(
            None,
            Op::Getxattr,
            &parts,
            Answer::UpTo(XATTR_MAX),
            EOPNOTSUPP,
        )
    }
    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.admitted()?;
        let question = SetxattrIn {
            size: value.len() as u32,
            flags,
        };
        let parts = [question.as_bytes(), &with_nul(name), value];
        self.call_known(None, Op::Setxattr, &parts, Answer::Exactly(0), EOPNOTSUPP)?;
        self.attributes_changed();
        Ok(())
    }
    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.admitted()?;
        let parts: [&[u8]; 1] = [&with_nul(name)];
        self.call_known(
            None,
            Op::Removexattr,
            &parts,
            Answer::Exactly(0),
            EOPNOTSUPP,
        )?;
        self.attributes_changed();
        Ok(())
    }
    fn list_xattr(&self) -> Result<Vec<Vec<u8>>> {
        self.admitted()?;
        let question = GetxattrIn {
            size: XATTR_MAX as u32,
            unused: 0,
        };
        let answer = Answer::UpTo(XATTR_MAX);
        let list = self.call_known(
            None,
            Op::Listxattr,
            &[question.as_bytes()],
            answer,
            EOPNOTSUPP,
        )?;
        // Each ends with a NUL (`fuse_verify_xattr_list`).
        let names: Vec<Vec<u8>> = list
            .split_inclusive(|b| *b == 0)
            .map(|n| {
                n.strip_suffix(&[0])
                    .filter(|n| !n.is_empty())
                    .map(<[u8]>::to_vec)
            })
            .collect::<Option<_>>()
            .ok_or(EIO)?;
        Ok(names)
    }
}

impl FuseInode {
    fn admitted(&self) -> Result<()> {
        self.admit(&vfs::caller::client()?.credentials())
    }
    /// Whether a name still leads to the file that it led to: asked where that may have changed.
    fn same(&self, cx: &Caller<'_>, name: &[u8], child: Option<&Arc<dyn Inode>>) -> Result<Seen> {
        let Some(c) = child.and_then(downcast_arc::<FuseInode>) else {
            return Ok(Seen::Unknown);
        };
        if c.bad.load(Ordering::Relaxed) {
            return Ok(Seen::Unknown);
        }
        if self.still_names(name, &c) {
            return Ok(Seen::Same);
        }
        let (e, asked) = match self.ask_name(cx, name) {
            Ok(found) => found,
            Err(e @ (ENOMEM | EINTR)) => return Err(e),
            Err(_) => return Ok(Seen::Unknown),
        };
        let fits = e.node == c.node && e.generation == c.generation;
        if !fits || kind_of(&e.attr) != Some(c.kind) {
            self.conn.forget(e.node, 1);
            return Ok(Seen::Unknown);
        }
        let told = stat(&e.attr, self.conn.dev, &self.conn.user_ns);
        c.looked_up(&e, told, asked);
        self.names(name, &e, &c);
        Ok(Seen::Same)
    }
    fn remove(&self, cx: &Caller<'_>, op: Op, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        let r = self.call(Some(cx.cred), op, &[&with_nul(name)], Answer::Exactly(0));
        if r.is_ok() || r == Err(EINTR) {
            self.attributes_changed();
            if let Some(c) = downcast::<FuseInode>(child) {
                c.lost_name();
            }
        }
        r.map(|_| ())
    }
    /// A name of it was removed (`fuse_entry_unlinked`).
    fn lost_name(&self) {
        let mut k = self.known.lock();
        k.stat.nlink = match self.kind {
            FileType::Directory => 0,
            _ => k.stat.nlink.saturating_sub(1),
        };
        k.name = None;
        k.ask_again(self.conn.new_version());
    }
}
