//! What a group is told, and how a reader sees it (`fanotify_alloc_event`, `copy_event_to_user`).

use super::{FAN_REPORT_PIDFD, FAN_REPORT_TID};
use std::any::Any;
use std::sync::Arc;
use vfs::Path;
use vfs::caller::actor;
use vfs::ops::Handle;
use vfs::ucounts::Charge;
use vfs::watch::marks::{
    Matched, PERMISSION, REPORT_ANY_FID, REPORT_DIR_FID, REPORT_FID, REPORT_NAME, REPORT_TARGET_FID,
};
use vfs::watch::{DIRENT, FS_RENAME, Happening};

/// `sizeof(struct fanotify_event_metadata)`.
pub const METADATA: usize = 24;
const VERSION: u8 = 3;
const FAN_Q_OVERFLOW: u32 = 0x4000;
const FAN_ONDIR: u32 = 0x4000_0000;

/// Kinds of records (`FAN_EVENT_INFO_TYPE_*`).
const FID: u8 = 1;
const DFID_NAME: u8 = 2;
const DFID: u8 = 3;
const PIDFD: u8 = 4;
const OLD_DFID_NAME: u8 = 10;
const NEW_DFID_NAME: u8 = 12;

/// What an event is told by.
pub enum About {
    /// A descriptor that the reader gets.
    Path(Path),
    /// A handle.
    Fid(Option<Handle>),
    Names(Names),
    /// Nothing: events were lost.
    Overflow,
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Names {
    dir: Option<Handle>,
    name: Vec<u8>,
    /// Where it went.
    to: Option<(Handle, Vec<u8>)>,
    child: Option<Handle>,
}

/// What is the same of two events that are told as one (`fanotify_should_merge`).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    about: KeyAbout,
    fsid: u64,
    who: usize,
    /// Whether to a directory, and whether a rename.
    kinds: u32,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum KeyAbout {
    Path(usize, usize),
    Fid(Handle),
    Names(Names),
}

/// By which numbers a reader knows an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    pub fd: i32,
    pub pid: i32,
    pub pidfd: i32,
}

impl Numbers {
    pub const NONE: Numbers = Numbers {
        fd: -1,
        pid: 0,
        pidfd: -1,
    };
}

pub struct Event {
    pub mask: u32,
    pub about: About,
    pub who: Option<Arc<dyn Any + Send + Sync>>,
    /// Somebody waits for the answer.
    pub asks: bool,
    fsid: u64,
    /// For the file that it keeps in use.
    pub held: Option<Charge>,
}

impl Event {
    pub fn overflow() -> Event {
        Event {
            mask: FAN_Q_OVERFLOW,
            about: About::Overflow,
            who: None,
            asks: false,
            fsid: 0,
            held: None,
        }
    }

    pub fn new(flags: u32, h: &Happening<'_>, mask: u32, matched: Matched, fsid: u64) -> Event {
        let actor = actor();
        let who = match flags & FAN_REPORT_TID {
            0 => actor.map(|a| a.process),
            _ => actor.map(|a| a.thread),
        };
        let about = match (flags & REPORT_ANY_FID, h.mnt) {
            (0, Some(mnt)) => About::Path(Path::new(mnt.clone(), h.what.clone())),
            (fids, _) => by_handles(fids, h, mask, matched),
        };
        Event {
            mask,
            about,
            who,
            asks: mask & PERMISSION != 0,
            fsid,
            held: None,
        }
    }

    /// What it takes of the kernel's memory. That events were lost costs nothing: there is one such
    /// event.
    pub fn memory(&self) -> u64 {
        let names = match &self.about {
            About::Overflow => return 0,
            // The directory entry that it keeps.
            About::Path(_) => 256,
            About::Fid(_) => 0,
            About::Names(n) => 2 * (n.name.len() + n.to.as_ref().map_or(0, |t| t.1.len())),
        };
        (size_of::<Event>() + size_of::<Key>() + 64 + names) as u64
    }

    /// `None` for one that no other joins.
    pub fn key(&self) -> Option<Key> {
        if self.asks {
            return None;
        }
        let about = match &self.about {
            About::Path(p) => {
                KeyAbout::Path(Arc::as_ptr(&p.mnt).addr(), Arc::as_ptr(&p.dentry).addr())
            }
            About::Fid(Some(h)) => KeyAbout::Fid(*h),
            About::Names(n) if n.dir.is_some() => KeyAbout::Names(n.clone()),
            _ => return None,
        };
        Some(Key {
            about,
            fsid: self.fsid,
            who: self
                .who
                .as_ref()
                .map_or(0, |w| Arc::as_ptr(w).cast::<()>().addr()),
            kinds: self.mask & (FAN_ONDIR | FS_RENAME),
        })
    }

    /// As it is read.
    pub fn encode(&self, flags: u32, numbers: Numbers) -> Vec<u8> {
        let mut v = vec![0; METADATA];
        self.encode_handles(flags & REPORT_ANY_FID, &mut v);
        if flags & FAN_REPORT_PIDFD != 0 {
            v.extend_from_slice(&[PIDFD, 0, 8, 0]);
            v.extend_from_slice(&numbers.pidfd.to_le_bytes());
        }
        let len = v.len() as u32;
        v[..4].copy_from_slice(&len.to_le_bytes());
        v[4] = VERSION;
        v[6..8].copy_from_slice(&(METADATA as u16).to_le_bytes());
        v[8..16].copy_from_slice(&u64::from(self.mask).to_le_bytes());
        v[16..20].copy_from_slice(&numbers.fd.to_le_bytes());
        v[20..24].copy_from_slice(&numbers.pid.to_le_bytes());
        v
    }

    /// The records of handles, in their order (`copy_info_records_to_user`).
    fn encode_handles(&self, fids: u32, v: &mut Vec<u8>) {
        let (object, mut told) = match &self.about {
            About::Path(_) | About::Overflow => return,
            About::Fid(h) => (*h, false),
            About::Names(n) => {
                if let Some(d) = n.dir {
                    let kind = match (self.mask & FS_RENAME, n.name.is_empty()) {
                        (0, true) => DFID,
                        (0, false) => DFID_NAME,
                        _ => OLD_DFID_NAME,
                    };
                    self.record(v, kind, d, &n.name);
                }
                if let Some((d, name)) = &n.to {
                    self.record(v, NEW_DFID_NAME, *d, name);
                }
                (n.child, n.dir.is_some() || n.to.is_some())
            }
        };
        told |= fids == REPORT_FID;
        let Some(h) = object else { return };
        let on_dir = self.mask & FAN_ONDIR != 0;
        if told {
            self.record(v, FID, h, b"");
        } else if fids & REPORT_NAME != 0 && on_dir {
            self.record(v, DFID_NAME, h, b".");
        } else if self.mask & DIRENT != 0 || on_dir {
            self.record(v, DFID, h, b"");
        } else {
            self.record(v, FID, h, b"");
        }
    }

    /// A `struct fanotify_event_info_fid`, with the handle and a name.
    fn record(&self, v: &mut Vec<u8>, kind: u8, h: Handle, name: &[u8]) {
        let start = v.len();
        v.extend_from_slice(&[kind, 0, 0, 0]);
        v.extend_from_slice(&self.fsid.to_le_bytes());
        v.extend_from_slice(&(h.bytes.len() as u32).to_le_bytes());
        v.extend_from_slice(&h.kind.to_le_bytes());
        v.extend_from_slice(&h.bytes);
        if !name.is_empty() {
            v.extend_from_slice(name);
            v.push(0);
        }
        let len = (v.len() - start).next_multiple_of(4);
        v.resize(start + len, 0);
        v[start + 2..start + 4].copy_from_slice(&(len as u16).to_le_bytes());
    }
}

/// Which handles and names tell of it (`fanotify_alloc_event`).
fn by_handles(fids: u32, h: &Happening<'_>, mask: u32, matched: Matched) -> About {
    let dirent = mask & DIRENT != 0;
    let on_dir = mask & FAN_ONDIR != 0;
    let dir = h.dir.map(|(d, _)| d);
    let mut object = match dirent && fids & REPORT_TARGET_FID == 0 {
        true => dir.unwrap_or(h.what),
        false => h.what,
    };
    let in_dir = if !dirent && h.what.is_dir() {
        Some(h.what)
    } else {
        dir
    };
    let Some(d) = in_dir.filter(|_| fids & REPORT_DIR_FID != 0) else {
        return About::Fid(Handle::fid(object));
    };
    let tells_child = match dirent {
        true => fids & REPORT_TARGET_FID != 0,
        false => fids & REPORT_FID != 0 && !on_dir,
    };
    let child = (tells_child && !Arc::ptr_eq(object, d)).then_some(object);
    object = d;
    let named = fids & REPORT_NAME != 0;
    let by_name = if named {
        dirent || !on_dir
    } else {
        child.is_some()
    };
    let name = h.dir.map(|(_, n)| n).filter(|_| named);
    let (mut old, mut new) = (true, false);
    if mask & FS_RENAME != 0 {
        // Who watches only one of the directories hears only of that.
        let all = matched.contains(Matched::FILE_SYSTEM);
        old = all || matched.contains(Matched::INODE);
        new = all || matched.contains(Matched::TARGET);
    }
    let name = name.filter(|_| old);
    if !by_name || name.is_none() && !new && child.is_none() {
        return About::Fid(Handle::fid(object));
    }
    let to = h.to.filter(|_| new);
    About::Names(Names {
        dir: Handle::fid(d).filter(|_| old),
        name: name.unwrap_or_default().to_vec(),
        to: to.and_then(|(d, n)| Some((Handle::fid(d)?, n.to_vec()))),
        child: child.and_then(|c| Handle::fid(c)),
    })
}
