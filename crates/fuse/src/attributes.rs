//! Attributes of files, and what of their data this kernel knows: how both change.

use crate::connection::Answer;
use crate::inode::FuseInode;
use crate::known::{Valid, kind_of, stat};
use crate::pages::Pages;
use crate::proto::{AttrOut, GetattrIn, Op, SetattrIn, fattr, parse};
use abi::errno::{EAGAIN, EINTR, EIO, EOVERFLOW};
use abi::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Credentials, FileType, SetAttr, Stat};
use wait::{Events, UntilKilled, block_until};
use zerocopy::IntoBytes;

impl FuseInode {
    // Writes that nobody waits for

    /// One more is on its way.
    pub fn posts(&self) {
        self.posted.lock().0 += 1;
    }
    /// One has come to its end.
    pub fn was_posted(&self, e: Option<Errno>) {
        let mut posted = self.posted.lock();
        posted.0 -= 1;
        posted.1 = posted.1.or(e);
        let all = posted.0 == 0;
        drop(posted);
        if all {
            self.settled.notify(Events::IN);
        }
    }
    /// Waits until the server has all that was written: before it is asked what is there.
    pub fn settle(&self) -> Result<()> {
        if self.posted.lock().0 == 0 {
            return Ok(());
        }
        let client = vfs::caller::client()?;
        let all = || match self.posted.lock().0 {
            0 => Ok(()),
            _ => Err(EAGAIN),
        };
        let queue = [(&self.settled, Events::IN)];
        block_until(&UntilKilled(&*client), &queue, None, all).map_err(|_| EINTR)
    }
    /// What was written through a mapping could not be given to the server.
    pub fn lost_writes(&self) {
        self.posted.lock().1.get_or_insert(EIO);
    }
    /// The error of writes that nobody waited for, once.
    pub fn take_error(&self) -> Result<()> {
        self.posted.lock().1.take().map_or(Ok(()), Err)
    }

    // Attributes

    /// What the server tells now; of the version `asked` on. Data that changed elsewhere are no
    /// longer what was read.
    pub(crate) fn learn(&self, told: Stat, valid: Valid, asked: u64) {
        if FileType::from_mode(told.mode) != Some(self.kind) {
            self.mark_bad();
            return;
        }
        let (before, cut) = {
            let mut k = self.known.lock();
            if k.version > asked {
                return;
            }
            let before = k.stat;
            k.version = self.conn.new_version();
            (k.stat, k.valid) = (told, valid);
            (before, told.size < before.size)
        };
        let auto = !self.conn.limits().explicit;
        if before.size != told.size || auto && before.mtime != told.mtime {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        if self.kind == FileType::Regular
            && let Some(p) = self.pages()
        {
            if cut {
                p.cut(told.size);
            }
            if auto && (before.mtime != told.mtime || before.size != told.size) {
                p.forget(0, u64::MAX);
            }
        }
    }
    /// They are asked for again.
    pub fn attributes_changed(&self) {
        self.known.lock().ask_again(self.conn.new_version());
    }
    /// Its data were changed elsewhere.
    pub fn data_changed(&self, offset: u64, len: u64) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if let Some(p) = self.pages() {
            p.forget(offset, len);
        }
    }
    /// Its data were written, up to `end`, by this kernel.
    pub fn written(&self, offset: u64, data: &[u8]) {
        self.grew_to(offset.saturating_add(data.len() as u64));
        self.changes.fetch_add(1, Ordering::Relaxed);
        if let Some(p) = self.pages() {
            p.put(offset, data);
        }
    }
    /// Some of what was written through mappings goes to the server.
    pub fn pages_were_written(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.attributes_changed();
    }
    /// The server has no more data than that, of a size that was known at `changes`
    /// (`fuse_read_update_size`).
    pub fn ends_at(&self, size: u64, changes: u64) {
        let mut k = self.known.lock();
        if self.changes.load(Ordering::Relaxed) == changes && size < k.stat.size {
            k.stat.size = size;
            k.ask_again(self.conn.new_version());
        }
    }
    /// The names in it are asked for again.
    pub fn forget_names(&self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
        self.attributes_changed();
    }
    pub fn known_size(&self) -> u64 {
        self.known.lock().stat.size
    }
    /// The size, asked for where it may be another.
    pub fn size(&self) -> Result<u64> {
        Ok(self.fresh(None)?.size)
    }
    /// The attributes, asked for where they may be others.
    pub(crate) fn fresh(&self, cred: Option<&Credentials>) -> Result<Stat> {
        {
            let k = self.known.lock();
            if k.valid.holds() {
                return Ok(k.stat);
            }
        }
        self.ask_attributes(cred)
    }
    pub(crate) fn ask_attributes(&self, cred: Option<&Credentials>) -> Result<Stat> {
        self.settle()?;
        let asked = self.conn.version();
        let question = GetattrIn::default();
        let answer = Answer::Exactly(size_of::<AttrOut>());
        let a = self.call(cred, Op::Getattr, &[question.as_bytes()], answer)?;
        self.told(&a, asked)
    }
    /// An answer that is attributes.
    pub(crate) fn told(&self, answer: &[u8], asked: u64) -> Result<Stat> {
        let (out, _) = parse::<AttrOut>(answer)?;
        if kind_of(&out.attr) != Some(self.kind) {
            self.mark_bad();
            return Err(EIO);
        }
        let told = stat(&out.attr, self.conn.dev, &self.conn.user_ns);
        self.learn(told, Valid::told(out.valid, out.valid_nsec), asked);
        Ok(told)
    }
    /// SETATTR; `fh` where it is done by an open file.
    pub fn change(&self, cred: Option<&Credentials>, a: &SetAttr, fh: Option<u64>) -> Result<()> {
        const SECOND: i64 = 1_000_000_000;
        let ns = &self.conn.user_ns;
        let mut s = SetattrIn::default();
        if let Some(mode) = a.mode {
            s.valid |= fattr::MODE;
            s.mode = self.kind.bits() | mode;
        }
        if let Some(uid) = a.uid {
            s.valid |= fattr::UID;
            s.uid = ns.uid_number(uid).ok_or(EOVERFLOW)?;
        }
        if let Some(gid) = a.gid {
            s.valid |= fattr::GID;
            s.gid = ns.gid_number(gid).ok_or(EOVERFLOW)?;
        }
        if let Some(size) = a.size {
            s.valid |= fattr::SIZE;
            s.size = size;
        }
        if let Some(t) = a.atime {
            s.valid |= fattr::ATIME;
            s.valid |= if a.atime_now { fattr::ATIME_NOW } else { 0 };
            (s.atime, s.atime_nsec) = (t.div_euclid(SECOND) as u64, t.rem_euclid(SECOND) as u32);
        }
        if let Some(t) = a.mtime {
            s.valid |= fattr::MTIME;
            s.valid |= if a.mtime_now { fattr::MTIME_NOW } else { 0 };
            (s.mtime, s.mtime_nsec) = (t.div_euclid(SECOND) as u64, t.rem_euclid(SECOND) as u32);
        }
        if let Some(fh) = fh {
            s.valid |= fattr::FH;
            s.fh = fh;
        }
        let asked = self.conn.version();
        let answer = Answer::Exactly(size_of::<AttrOut>());
        let r = self.call(cred, Op::Setattr, &[s.as_bytes()], answer);
        if r == Err(EINTR) {
            self.attributes_changed();
        }
        self.told(&r?, asked)?;
        if let Some(size) = a.size {
            self.was_cut(size);
        }
        Ok(())
    }
    /// It has this size now, whatever it was before.
    pub(crate) fn was_cut(&self, size: u64) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if let Some(p) = self.pages() {
            p.cut(size);
        }
    }
    /// It was opened with O_TRUNC by a server that truncates.
    pub(crate) fn was_emptied(&self) {
        {
            let mut k = self.known.lock();
            k.stat.size = 0;
            k.ask_again(self.conn.new_version());
        }
        self.was_cut(0);
    }
    /// It has at least this size: it was made so long.
    pub fn grew_to(&self, size: u64) {
        let mut k = self.known.lock();
        k.stat.size = k.stat.size.max(size);
        k.ask_again(self.conn.new_version());
    }

    // Pages

    /// Its pages, if it is mapped.
    pub fn pages(&self) -> Option<Arc<Pages>> {
        self.pages.lock().upgrade()
    }
    /// Its pages, made by `make` where it is not mapped yet.
    pub fn pages_or(&self, make: impl FnOnce() -> Result<Arc<Pages>>) -> Result<Arc<Pages>> {
        let mut slot = self.pages.lock();
        if let Some(p) = slot.upgrade() {
            return Ok(p);
        }
        let p = make()?;
        *slot = Arc::downgrade(&p);
        Ok(p)
    }
}
