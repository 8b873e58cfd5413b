//! User namespaces (`user_namespaces(7)`): whose ids are meant, and how far a capability reaches.
//!
//! Inside the kernel every id is one of the initial namespace's (Linux's `kuid_t`): credentials,
//! files and messages carry those. A system call translates where it takes a number from the
//! application ([`UserNs::uid_from`]) and where it shows one ([`UserNs::uid_shown`]). An id that
//! has no number in a namespace is shown as [`OVERFLOW`].
//!
//! Invariants: a map is written at most once and never changes after; an extent's `lower` is an id
//! of the initial namespace; a namespace is at most [`DEPTH_MAX`] levels deep. The maps need no
//! lock.

use crate::cred::{Caps, Credentials};
use crate::ucounts::{Charge, Kind, Limits, Users};
use abi::Result;
use abi::errno::{EINVAL, ENOSPC, EPERM};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// What stands for an id without a number (`kernel.overflowuid`).
pub const OVERFLOW: u32 = 65534;
/// No id (`INVALID_UID`).
pub const INVALID: u32 = u32::MAX;
/// How deep namespaces may nest (`create_user_ns`).
pub const DEPTH_MAX: u32 = 32;
/// Lines of a map (`UID_GID_MAP_MAX_EXTENTS`).
const EXTENTS_MAX: usize = 340;
/// Numbers namespaces of every kind.
#[derive(Debug)]
pub struct Registry {
    next: AtomicU32,
}

impl Default for Registry {
    fn default() -> Self {
        Registry {
            next: AtomicU32::new(0xf000_0100),
        }
    }
}

impl Registry {
    /// The identity of a new namespace, which counts for its maker; `ENOSPC` where that has too
    /// many.
    pub fn new_id(&self, kind: Kind, maker: &Credentials) -> Result<NsId> {
        let charge = maker.user_ns.ucounts(maker.euid).charge(kind, 1, u64::MAX);
        Ok(NsId {
            _charge: Some(charge.ok_or(ENOSPC)?),
            ino: self.next.fetch_add(1, Ordering::Relaxed),
        })
    }
}

/// The identity of a namespace: its inode number in nsfs.
#[derive(Debug)]
pub struct NsId {
    pub ino: u32,
    _charge: Option<Charge>,
}

impl NsId {
    /// That of an initial namespace, which Linux has fixed (`include/linux/proc_ns.h`).
    #[must_use]
    pub const fn initial(ino: u32) -> NsId {
        NsId { ino, _charge: None }
    }
}

/// Which of a namespace's maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdKind {
    User,
    Group,
    Project,
}

/// `count` ids from `first` on are the initial namespace's from `lower` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub first: u32,
    pub lower: u32,
    pub count: u32,
}

#[derive(Debug)]
struct Map {
    /// As written.
    lines: Vec<Extent>,
    /// By `first`, and by `lower`.
    down: Vec<Extent>,
    up: Vec<Extent>,
}

fn find(sorted: &[Extent], id: u32, start: impl Fn(&Extent) -> u32) -> Option<&Extent> {
    let at = sorted.partition_point(|e| start(e) <= id).checked_sub(1)?;
    sorted.get(at).filter(|e| id - start(e) < e.count)
}

impl Map {
    fn new(lines: Vec<Extent>) -> Map {
        let (mut down, mut up) = (lines.clone(), lines.clone());
        down.sort_unstable_by_key(|e| e.first);
        up.sort_unstable_by_key(|e| e.lower);
        Map { lines, down, up }
    }
    fn down(&self, id: u32, count: u32) -> Option<u32> {
        let e = find(&self.down, id, |e| e.first)?;
        let at = id - e.first;
        (count <= e.count - at).then(|| e.lower + at)
    }
    fn up(&self, id: u32) -> Option<u32> {
        find(&self.up, id, |e| e.lower).map(|e| e.first + (id - e.lower))
    }
}

#[derive(Debug)]
struct Inner {
    id: NsId,
    parent: UserNs,
    level: u32,
    /// Its maker: an id of the initial namespace.
    owner: u32,
    maps: [OnceLock<Map>; 3],
    /// Whether setgroups(2) is allowed (`/proc/PID/setgroups`).
    setgroups: AtomicBool,
    /// Whether its maker had CAP_SETFCAP there: needed to map the parent's root.
    parent_could_setfcap: bool,
    users: Users,
    limits: Limits,
    at_end: Mutex<Vec<(usize, Box<dyn AtEnd>)>>,
}

/// What ends with a user namespace, by being dropped ([`UserNs::at_end`]).
pub trait AtEnd: std::fmt::Debug + Send + Sync {}

/// A user namespace; the default is the initial one.
///
/// The initial one is one for all containers, but each container's users are counted for
/// themselves: see [`UserNs::of_container`].
#[derive(Clone, Debug, Default)]
pub struct UserNs {
    /// `None`: the initial one.
    inner: Option<Arc<Inner>>,
    /// Whose users are meant in the initial one; 0 in others.
    container: u32,
}

impl PartialEq for UserNs {
    fn eq(&self, other: &UserNs) -> bool {
        match (&self.inner, &other.inner) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for UserNs {}

impl UserNs {
    /// The initial one as a container's processes see it: the same as that of others, but their
    /// users' counts are not these users'. The number is that of the container's memory
    /// (`Clas::number`).
    #[must_use]
    pub fn of_container(container: u32) -> UserNs {
        UserNs {
            inner: None,
            container,
        }
    }
    pub(crate) fn container(&self) -> u32 {
        self.container
    }
    /// Makes a child of the caller's, and gives the caller's credentials in it (`create_user_ns`).
    pub fn create(registry: &Registry, cred: &Credentials) -> Result<Credentials> {
        let parent = &cred.user_ns;
        let level = parent.level() + 1;
        if level > DEPTH_MAX + 1 {
            return Err(ENOSPC);
        }
        if parent.uid_number(cred.euid).is_none() || parent.gid_number(cred.egid).is_none() {
            return Err(EPERM);
        }
        let inner = Inner {
            id: registry.new_id(Kind::UserNamespaces, cred)?,
            parent: parent.clone(),
            level,
            owner: cred.euid,
            maps: Default::default(),
            setgroups: AtomicBool::new(parent.setgroups_allowed()),
            parent_could_setfcap: cred.effective.contains(Caps::SETFCAP),
            users: Users::default(),
            limits: Limits::none(),
            at_end: Mutex::default(),
        };
        let new = UserNs {
            inner: Some(Arc::new(inner)),
            container: 0,
        };
        Ok(new.enter(cred))
    }
    /// What `make` gives is dropped when the namespace ends, by whoever leaves it last, under
    /// whatever locks; one for each `whose` (a container's keys: a process of another container in
    /// the same pod may enter the namespace). The initial namespace does not end.
    pub fn at_end(&self, whose: usize, make: impl FnOnce() -> Box<dyn AtEnd>) {
        let Some(i) = &self.inner else { return };
        let mut all = i.at_end.lock();
        if all.iter().all(|e| e.0 != whose) {
            all.push((whose, make()));
        }
    }
    /// Credentials with all rights in this namespace, and none elsewhere (`set_cred_user_ns`).
    #[must_use]
    pub fn enter(&self, cred: &Credentials) -> Credentials {
        let mut c = cred.clone();
        c.securebits = 0;
        c.inheritable = Caps::empty();
        c.permitted = Caps::FULL;
        c.effective = Caps::FULL;
        c.ambient = Caps::empty();
        c.bounding = Caps::FULL;
        c.user_ns = self.clone();
        c
    }
    pub(crate) fn own_users(&self) -> Option<&Users> {
        self.inner.as_ref().map(|i| &i.users)
    }
    pub(crate) fn own_limits(&self) -> Option<&Limits> {
        self.inner.as_ref().map(|i| &i.limits)
    }
    #[must_use]
    pub fn is_initial(&self) -> bool {
        self.inner.is_none()
    }
    #[must_use]
    pub fn ino(&self) -> u32 {
        self.inner.as_ref().map_or(0xefff_fffd, |i| i.id.ino)
    }
    #[must_use]
    pub fn level(&self) -> u32 {
        self.inner.as_ref().map_or(0, |i| i.level)
    }
    #[must_use]
    pub fn parent(&self) -> Option<UserNs> {
        self.inner.as_ref().map(|i| i.parent.clone())
    }
    /// Its maker: an id of the initial namespace.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.inner.as_ref().map_or(0, |i| i.owner)
    }
    /// Whether it is `other` or below it.
    #[must_use]
    pub fn is_below(&self, other: &UserNs) -> bool {
        let mut at = self.clone();
        while at.level() > other.level() {
            match at.parent() {
                Some(p) => at = p,
                None => return false,
            }
        }
        at == *other
    }

    fn to_kernel(&self, kind: IdKind, id: u32, count: u32) -> Option<u32> {
        match &self.inner {
            None => (id != INVALID && count <= INVALID - id).then_some(id),
            Some(i) => i.maps[kind as usize].get()?.down(id, count),
        }
    }
    fn number(&self, kind: IdKind, id: u32) -> Option<u32> {
        match &self.inner {
            None => (id != INVALID).then_some(id),
            Some(i) => i.maps[kind as usize].get()?.up(id),
        }
    }
    /// The user that a number from the application means; `EINVAL` for one that the namespace does
    /// not have.
    pub fn uid_from(&self, n: u32) -> Result<u32> {
        self.to_kernel(IdKind::User, n, 1).ok_or(EINVAL)
    }
    pub fn gid_from(&self, n: u32) -> Result<u32> {
        self.to_kernel(IdKind::Group, n, 1).ok_or(EINVAL)
    }
    #[must_use]
    pub fn uid_number(&self, id: u32) -> Option<u32> {
        self.number(IdKind::User, id)
    }
    #[must_use]
    pub fn gid_number(&self, id: u32) -> Option<u32> {
        self.number(IdKind::Group, id)
    }
    /// The number to show (`from_kuid_munged`).
    #[must_use]
    pub fn uid_shown(&self, id: u32) -> u32 {
        match &self.inner {
            None => id,
            Some(_) => self.uid_number(id).unwrap_or(OVERFLOW),
        }
    }
    #[must_use]
    pub fn gid_shown(&self, id: u32) -> u32 {
        match &self.inner {
            None => id,
            Some(_) => self.gid_number(id).unwrap_or(OVERFLOW),
        }
    }
    /// The user that root is here; nobody where 0 is not mapped.
    #[must_use]
    pub fn root_uid(&self) -> u32 {
        self.to_kernel(IdKind::User, 0, 1).unwrap_or(INVALID)
    }
    /// Whether the number space of both maps is there.
    #[must_use]
    pub fn setgroups_allowed(&self) -> bool {
        self.inner
            .as_ref()
            .is_none_or(|i| i.setgroups.load(Ordering::Acquire))
    }
    /// Whether setgroups(2) may be called (`userns_may_setgroups`).
    #[must_use]
    pub fn may_setgroups(&self) -> bool {
        self.inner
            .as_ref()
            .is_none_or(|i| i.maps[IdKind::Group as usize].get().is_some())
            && self.setgroups_allowed()
    }
    /// What is written to `/proc/PID/setgroups` (`proc_setgroups_write`).
    pub fn set_setgroups(&self, text: &[u8]) -> Result<()> {
        let text = text.trim_ascii_end();
        match (&self.inner, text) {
            (_, b"allow") if self.setgroups_allowed() => Ok(()),
            (_, b"allow") | (None, b"deny") => Err(EPERM),
            (Some(i), b"deny") => {
                if i.maps[IdKind::Group as usize].get().is_some() {
                    return Err(EPERM);
                }
                i.setgroups.store(false, Ordering::Release);
                Ok(())
            }
            _ => Err(EINVAL),
        }
    }

    /// `/proc/PID/uid_map` and its kin, as somebody of `viewer` sees it.
    #[must_use]
    pub fn map_text(&self, kind: IdKind, viewer: &UserNs) -> String {
        let whole = [Extent {
            first: 0,
            lower: 0,
            count: INVALID,
        }];
        let lines = match &self.inner {
            None => &whole[..],
            Some(i) => i.maps[kind as usize]
                .get()
                .map_or(&[][..], |m| m.lines.as_slice()),
        };
        let below = match self.parent() {
            Some(p) if viewer == self => p,
            _ => viewer.clone(),
        };
        lines
            .iter()
            .map(|e| {
                let lower = below.number(kind, e.lower).unwrap_or(INVALID);
                format!("{:>10} {lower:>10} {:>10}\n", e.first, e.count)
            })
            .collect()
    }

    /// What is written to such a file, by `cred` (`map_write`).
    pub fn set_map(&self, kind: IdKind, cred: &Credentials, text: &[u8]) -> Result<()> {
        let Some(inner) = &self.inner else {
            return Err(EPERM);
        };
        if cred.user_ns != *self && cred.user_ns != inner.parent {
            return Err(EPERM);
        }
        if text.len() >= abi::PAGE_SIZE as usize {
            return Err(EINVAL);
        }
        let slot = &inner.maps[kind as usize];
        if slot.get().is_some() || kind != IdKind::Project && !cred.has_in(self, Caps::SYS_ADMIN) {
            return Err(EPERM);
        }
        let mut lines = parse(text)?;
        if !self.may_map(inner, kind, cred, &lines) {
            return Err(EPERM);
        }
        for e in &mut lines {
            e.lower = inner
                .parent
                .to_kernel(kind, e.lower, e.count)
                .ok_or(EPERM)?;
        }
        slot.set(Map::new(lines)).map_err(|_| EPERM)
    }

    /// `new_idmap_permitted`.
    fn may_map(&self, inner: &Inner, kind: IdKind, cred: &Credentials, lines: &[Extent]) -> bool {
        let parent = &inner.parent;
        let cap = match kind {
            IdKind::User => Caps::SETUID,
            IdKind::Group => Caps::SETGID,
            IdKind::Project => return true,
        };
        if kind == IdKind::User && lines.iter().any(|e| e.lower == 0) {
            let may = if cred.user_ns == *self {
                inner.parent_could_setfcap
            } else {
                cred.has_in(parent, Caps::SETFCAP)
            };
            if !may {
                return false;
            }
        }
        if let [one] = lines
            && one.count == 1
            && inner.owner == cred.euid
        {
            let own = match kind {
                IdKind::User => parent.to_kernel(kind, one.lower, 1) == Some(cred.euid),
                _ => {
                    !self.setgroups_allowed()
                        && parent.to_kernel(kind, one.lower, 1) == Some(cred.egid)
                }
            };
            if own {
                return true;
            }
        }
        cred.has_in(parent, cap)
    }
}

fn parse(text: &[u8]) -> Result<Vec<Extent>> {
    let text = std::str::from_utf8(text).map_err(|_| EINVAL)?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut v: Vec<Extent> = Vec::new();
    for line in text.split('\n') {
        let mut words = line.split_ascii_whitespace();
        let mut number = || -> Result<u32> {
            let w = words.next().ok_or(EINVAL)?;
            if !w.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(EINVAL);
            }
            w.parse().map_err(|_| EINVAL)
        };
        let e = Extent {
            first: number()?,
            lower: number()?,
            count: number()?,
        };
        let wraps = |start: u32| start == INVALID || start.checked_add(e.count).is_none();
        let overlaps = |a: u32, b: u32, n: u32| a < b + n && b < a + e.count;
        if words.next().is_some()
            || e.count == 0
            || wraps(e.first)
            || wraps(e.lower)
            || v.len() == EXTENTS_MAX
            || v.iter()
                .any(|o| overlaps(e.first, o.first, o.count) || overlaps(e.lower, o.lower, o.count))
        {
            return Err(EINVAL);
        }
        v.push(e);
    }
    Ok(v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_capabilities_follow_the_tree() {
        let r = Registry::default();
        let user = Credentials::user(1000, 1000, vec![]);
        let inside = UserNs::create(&r, &user).unwrap();
        let ns = inside.user_ns.clone();
        assert_eq!(ns.uid_shown(1000), OVERFLOW);
        assert!(inside.has_own(Caps::SYS_ADMIN) && !inside.has(Caps::SYS_ADMIN));
        assert!(user.has_in(&ns, Caps::SYS_ADMIN));
        assert!(!Credentials::user(1001, 1001, vec![]).has_in(&ns, Caps::SYS_ADMIN));
        // Only oneself, without privilege in the parent.
        assert_eq!(ns.set_map(IdKind::User, &inside, b"0 0 1\n"), Err(EPERM));
        assert_eq!(ns.set_map(IdKind::User, &inside, b"0 1000 2\n"), Err(EPERM));
        assert_eq!(ns.set_map(IdKind::User, &inside, b"0 1000\n"), Err(EINVAL));
        assert_eq!(ns.set_map(IdKind::User, &inside, b"0 1000 1"), Ok(()));
        assert_eq!(ns.set_map(IdKind::User, &inside, b"0 1000 1"), Err(EPERM));
        assert_eq!(ns.set_map(IdKind::Group, &inside, b"0 1000 1"), Err(EPERM));
        assert_eq!(ns.set_setgroups(b"deny\n"), Ok(()));
        assert_eq!(ns.set_map(IdKind::Group, &inside, b"0 1000 1"), Ok(()));
        assert_eq!((ns.uid_shown(1000), ns.uid_shown(0)), (0, OVERFLOW));
        assert_eq!(ns.uid_from(1), Err(EINVAL));
        assert!(inside.has_over(Caps::CHOWN, 1000, 1000) && !inside.has_over(Caps::CHOWN, 0, 0));
        assert_eq!(
            ns.map_text(IdKind::User, &ns),
            "         0       1000          1\n"
        );
        // A child below: its map goes through its parent's.
        let deeper = UserNs::create(&r, &inside).unwrap();
        let low = deeper.user_ns.clone();
        assert_eq!(low.set_map(IdKind::User, &inside, b"5 0 1"), Ok(()));
        assert_eq!(low.uid_from(5), Ok(1000));
        assert_eq!(
            low.map_text(IdKind::User, &UserNs::default()),
            "         5       1000          1\n"
        );
        assert!(inside.has_in(&low, Caps::KILL) && !deeper.has_in(&ns, Caps::KILL));
    }

    #[test]
    fn overlapping_and_wrapping_lines_are_refused() {
        assert_eq!(parse(b"0 0 10\n5 100 1\n"), Err(EINVAL));
        assert_eq!(parse(b"0 0 10\n50 9 1\n"), Err(EINVAL));
        assert_eq!(parse(b"0 4294967295 1\n"), Err(EINVAL));
        assert_eq!(parse(b"4294967294 0 5\n"), Err(EINVAL));
        assert_eq!(parse(b""), Err(EINVAL));
        assert_eq!(parse(b"0 0 4294967295\n").map(|v| v.len()), Ok(1));
    }
}
