//! A group's marks: `fanotify_mark(2)`.

use super::{FAN_UNLIMITED_MARKS, Fanotify};
use abi::Result;
use abi::errno::{EEXIST, ENOENT, ENOSPC, EXDEV};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use vfs::Path;
use vfs::ops::{Marked, internal_dev};
use vfs::ucounts::Charge;
use vfs::watch::Watched;
use vfs::watch::marks::{Group, Keep, Kind, Mark, mark_at, marks_at};

const FAN_MARK_IGNORED_SURV_MODIFY: u32 = 0x40;
const FAN_MARK_EVICTABLE: u32 = 0x200;
const FAN_MARK_IGNORE: u32 = 0x400;

/// Whether a mark's events are told or ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    Tell,
    /// FAN_MARK_IGNORED_MASK.
    Ignore,
    /// FAN_MARK_IGNORE.
    IgnoreWithFlags,
}

/// A change of a mark.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub kind: Kind,
    pub events: u32,
    pub to: To,
    /// FAN_MARK_IGNORED_SURV_MODIFY.
    pub survives: bool,
    pub evictable: bool,
    /// Events that stay, and alone keep no mark.
    pub stay: u32,
}

/// A file system's number, for groups that are told it; not all have one that is theirs alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fsid {
    pub number: u64,
    pub weak: bool,
    /// `st_dev`.
    pub dev: u64,
}

/// A mark, as its group knows it.
pub(super) struct Entry {
    kind: Kind,
    pub(super) mark: Arc<Mark>,
    fsid: Option<Fsid>,
    place: Place,
    _counted: Option<Charge>,
}

impl Entry {
    /// Its line of `/proc/PID/fdinfo` (`fanotify_fdinfo`).
    pub(super) fn shown(&self) -> String {
        let a = self.mark.asks();
        let flag = |on, bit| if on { bit } else { 0 };
        let mflags = flag(a.survives, FAN_MARK_IGNORED_SURV_MODIFY)
            | flag(a.evictable, FAN_MARK_EVICTABLE)
            | flag(a.own_flags, FAN_MARK_IGNORE);
        let Place { of, fhandle, .. } = &self.place;
        let (mask, ignored) = (a.events, a.ignored);
        format!("{of} mflags:{mflags:x} mask:{mask:x} ignored_mask:{ignored:x}{fhandle}")
    }
}

/// What a mark is of, asked of the file before anything is locked: it may be a question to the
/// host.
struct Place {
    /// As `/proc/PID/fdinfo` shows it.
    of: String,
    fhandle: String,
    /// For the file that it keeps in use, and what keeps it.
    _held: Option<Charge>,
    _kept: Option<Watched>,
}

impl Fanotify {
    fn as_group(&self) -> Weak<dyn Group> {
        self.me.clone()
    }

    /// FAN_MARK_ADD; the change is checked.
    pub fn add_mark(&self, p: &Path, c: Change, fsid: Option<Fsid>) -> Result<()> {
        let keeps = if c.evictable { Keep::No } else { Keep::Yes };
        let (marks, kept) = marks_at(p, c.kind, keeps)?;
        let me = self.as_group();
        let place = self.place(p, c.kind, kept)?;
        let mut all = self.entries.lock();
        let (mark, is_new) = match marks.find(&me) {
            Some(m) => {
                let asks = m.asks();
                let evicts = c.evictable && !asks.evictable;
                let loses_flags = c.to == To::Ignore && asks.own_flags;
                let dies = c.to == To::IgnoreWithFlags && !c.survives && asks.survives;
                if evicts || loses_flags || dies {
                    return Err(EEXIST);
                }
                // From now on it keeps its file.
                if !c.evictable
                    && asks.evictable
                    && let Some(e) = all.get_mut(&m.number)
                {
                    e.place = place;
                }
                (m, false)
            }
            None => {
                let add = || marks.add(&me, p.mnt.sb(), fsid.map_or(0, |f| f.number));
                let e = self.new_entry(place, c.kind, fsid, &all, add)?;
                let m = e.mark.clone();
                all.insert(m.number, e);
                (m, true)
            }
        };
        mark.change(|a| {
            a.evictable = c.evictable && (is_new || a.evictable);
            match c.to {
                To::Tell => a.events |= c.events,
                To::Ignore | To::IgnoreWithFlags => {
                    a.ignored |= c.events;
                    a.survives |= c.survives;
                    a.own_flags |= c.to == To::IgnoreWithFlags;
                }
            }
        });
        Ok(())
    }

    fn place(&self, p: &Path, kind: Kind, kept: Option<Watched>) -> Result<Place> {
        let whole = |of| Place {
            of,
            fhandle: String::new(),
            _held: None,
            _kept: None,
        };
        Ok(match kind {
            Kind::Mount => whole(format!("mnt_id:{:x}", p.mnt.id)),
            Kind::FileSystem => whole(format!("sdev:{:x}", internal_dev(p.mnt.sb().dev))),
            Kind::Inode => {
                let file = Marked::of(&p.dentry)?;
                Place {
                    of: file.numbers(),
                    fhandle: file.fhandle(),
                    _held: self.cred.hold(p.inode()?.host_user())?,
                    _kept: kept,
                }
            }
        })
    }

    fn new_entry(
        &self,
        place: Place,
        kind: Kind,
        fsid: Option<Fsid>,
        all: &BTreeMap<u64, Entry>,
        add: impl FnOnce() -> Arc<Mark>,
    ) -> Result<Entry> {
        let counted = match self.flags & FAN_UNLIMITED_MARKS {
            0 => Some(self.count_mark()?),
            _ => None,
        };
        if let Some(new) = fsid {
            // Marks of different file systems must be told apart (`fanotify_set_mark_fsid`).
            let old = all.values().find_map(|e| e.fsid);
            if old.is_some_and(|o| o.weak != new.weak || new.weak && o != new) {
                return Err(EXDEV);
            }
        }
        Ok(Entry {
            kind,
            mark: add(),
            fsid,
            place,
            _counted: counted,
        })
    }

    /// `ENOSPC` where the user has too many (`fs.fanotify.max_user_marks`).
    fn count_mark(&self) -> Result<Charge> {
        let user = self.instance.user();
        let one = user.charge(vfs::ucounts::Kind::FanotifyMarks, 1, u64::MAX);
        one.ok_or(ENOSPC)
    }

    /// FAN_MARK_REMOVE.
    pub fn remove_mark(&self, p: &Path, c: Change) -> Result<()> {
        // Held to the end: who adds to the mark meanwhile would add to one that is gone.
        let mut all = self.entries.lock();
        let mark = mark_at(p, c.kind, &self.as_group()).ok_or(ENOENT)?;
        let ends = mark.change(|a| {
            match c.to {
                To::Tell => a.events &= !(c.events & !c.stay),
                To::Ignore | To::IgnoreWithFlags => a.ignored &= !(c.events & !c.stay),
            }
            (a.events | a.ignored) & !c.stay == 0
        });
        if ends {
            mark.detach();
            let gone = all.remove(&mark.number);
            drop(all);
            drop(gone);
        }
        Ok(())
    }

    /// FAN_MARK_FLUSH.
    pub fn flush_marks(&self, kind: Kind) {
        let mut all = self.entries.lock();
        let (gone, left): (BTreeMap<_, _>, _) = std::mem::take(&mut *all)
            .into_iter()
            .partition(|(_, e)| e.kind == kind);
        *all = left;
        drop(all);
        gone.values().for_each(|e| e.mark.detach());
    }
}
