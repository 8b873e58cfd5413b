//! State directories: `ROOT/ID` with `state.json`, the lock, and the monitor's socket.

use crate::files::{self, TO_READ};
use crate::spec::Hook;
use crate::{Error, Result, Tried};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use sandbox::devices::Kept;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The form of `state.json`; a later version reads older ones.
const VERSION: u32 = 1;

/// The longest record that is read: it holds a part of a `config.json`.
const RECORD_MAX: u64 = 32 << 20;

/// What the name begins with of a directory that is being removed: no container's does
/// ([`check_id`]).
const REMOVED: &str = "~";
/// So often one is tried.
const SWEEPS: u32 = 10;
const PRIVATE: Mode = Mode::RWXU;

const LOCK: &str = "lock";
/// Of a pod's member: locked as long as the sandbox that it has joined may run its programs.
const JOINED: &str = "joined";
/// The record while it is written.
const NEW: &str = "state.json.new";
/// Where a container's monitor counts the processes that its limit of memory has ended.
pub const KILLS_FOR_MEMORY: &str = "kills-for-memory";
/// What the container's network namespace had before its devices were taken over.
const NETWORK: &str = "network.json";

/// What is known of a container, besides its status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    pub version: u32,
    pub oci_version: String,
    pub id: String,
    /// The monitor's, and when it started (`/proc/PID/stat`, in ticks): a number may be used again.
    pub pid: i32,
    pub pid_start: u64,
    pub bundle: PathBuf,
    pub rootfs: PathBuf,
    /// RFC 3339.
    pub created: String,
    /// The user that created it.
    pub owner: String,
    pub annotations: BTreeMap<String, String>,
    pub start_container: Vec<Hook>,
    pub poststart: Vec<Hook>,
    pub poststop: Vec<Hook>,
    /// The environment and directory that `exec` begins with.
    pub process: crate::spec::Process,
    /// The host's cgroups, to be removed with the container.
    pub cgroups: crate::cgroup::Cgroups,
    /// What it has joined.
    pub sandbox: Option<Sandbox>,
    pub devices: Owner,
    /// What may leave by them.
    pub leaving: crate::Leaving,
}

/// Whose the devices of a container's network namespace are, once it has started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    #[default]
    Host,
    /// The sandbox's: see [`crate::network`]. The namespace is the monitor's, which may have joined
    /// it by this path.
    Sandbox { namespace: Option<PathBuf> },
}

/// A sandbox that others join: the container that it began with, and the process that stands for
/// it. Another container may come to have its name, and another process its number.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sandbox {
    pub id: String,
    pub pid: i32,
    pub pid_start: u64,
}

/// `state.status` of the specification, and runc's `paused`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Creating,
    Created,
    Running,
    Paused,
    Stopped,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Status::Creating => "creating",
            Status::Created => "created",
            Status::Running => "running",
            Status::Paused => "paused",
            Status::Stopped => "stopped",
        })
    }
}

/// A container's directory.
#[derive(Debug)]
pub struct Dir {
    path: PathBuf,
    fd: OwnedFd,
}

/// Held while a container changes.
#[derive(Debug)]
pub struct Lock(OwnedFd);

impl Lock {
    /// In a clone of the process that holds it: closes the copy, so that the lock ends with its
    /// holder, also where that is killed. To be called once, by a process that never drops the
    /// lock.
    pub fn leave_to_parent(&self) {
        drop(hostcall::HostFd::from_raw(self.0.as_raw_fd()));
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Whether a container may have this name (runc's rule).
pub fn check_id(id: &str) -> Result<()> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"_+-.".contains(&b);
    if id.is_empty() || id.len() > 255 || id == "." || id == ".." || !id.bytes().all(fine) {
        return Err(Error::new(format!(
            "{id:?} is no container ID: letters, digits and _+-. make one"
        )));
    }
    Ok(())
}

/// Opens the directory of all containers. Their state is believed: nobody else may have made it,
/// nor the link that leads there. (An ordinary user's may lie in /tmp, where anybody can be there
/// first.)
fn open_root(root: &Path) -> Result<OwnedFd> {
    let what = format!("open {}", root.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(root, flags, Mode::empty()).tried(&what)?;
    let link = rustix::fs::lstat(root).tried(&what)?;
    let s = rustix::fs::fstat(&fd).tried(&what)?;
    let own = |uid: u32| uid == 0 || uid == rustix::process::geteuid().as_raw();
    if !own(s.st_uid) || !own(link.st_uid) || s.st_mode & 0o022 != 0 {
        return Err(Error::new(format!(
            "{} is another user's, or others may write there: name a directory of yours with --root",
            root.display()
        )));
    }
    Ok(fd)
}

impl Dir {
    /// Makes the directory; fails where there is one.
    pub fn create(root: &Path, id: &str) -> Result<(Dir, Lock)> {
        use std::os::unix::fs::DirBuilderExt;
        check_id(id)?;
        let private = |p: &Path| {
            std::fs::DirBuilder::new()
                .recursive(true)
                // A process that reaches the socket there rules the container.
                .mode(0o700)
                .create(p)
        };
        private(root).tried(&format!("make {}", root.display()))?;
        let all = open_root(root)?;
        let what = format!("make {}", root.join(id).display());
        match rustix::fs::mkdirat(&all, id, Mode::from_raw_mode(0o700)) {
            Err(rustix::io::Errno::EXIST) => return Err(Error::Exists),
            r => r.tried(&what)?,
        }
        let opened = Dir::open_at(&all, root, id)
            .tried(&what)
            .and_then(|d| Ok((d.lock()?, d)));
        match opened {
            Ok((lock, dir)) => Ok((dir, lock)),
            Err(e) => {
                let _ = rustix::fs::unlinkat(&all, id, rustix::fs::AtFlags::REMOVEDIR);
                Err(e)
            }
        }
    }

    /// An existing one.
    pub fn open(root: &Path, id: &str) -> Result<Dir> {
        check_id(id)?;
        let none = || Error::NotFound(id.to_owned());
        if !root.is_dir() {
            return Err(none());
        }
        use rustix::io::Errno;
        match Dir::open_at(&open_root(root)?, root, id) {
            // A link, or no directory.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(none()),
            d => d.tried(&format!("open {}", root.join(id).display())),
        }
    }

    fn open_at(all: &OwnedFd, root: &Path, id: &str) -> rustix::io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(all, id, flags, Mode::empty())?;
        let path = root.join(id);
        Ok(Dir { path, fd })
    }

    /// Waits for the lock. Its last holder may have removed the directory, and another container
    /// may have its name since: that is an error.
    pub fn lock(&self) -> Result<Lock> {
        let fd = self.open_lock()?;
        while let Err(e) = rustix::fs::flock(&fd, FlockOperation::LockExclusive) {
            if e != rustix::io::Errno::INTR {
                return Err(Error::new(format!("could not lock the container: {e}")));
            }
        }
        self.still_there(Lock(fd))
    }

    /// The same; `None` where it is not to be had in time.
    pub fn lock_within(&self, limit: Duration) -> Result<Option<Lock>> {
        let fd = self.open_lock()?;
        let locked = flock_within(&fd, limit).tried("lock the container")?;
        locked.then(|| self.still_there(Lock(fd))).transpose()
    }

    fn still_there(&self, lock: Lock) -> Result<Lock> {
        if self.is_there() {
            Ok(lock)
        } else {
            Err(Error::new(format!("{} is gone", self.path.display())))
        }
    }

    /// For a pod's member: what the Sentry that takes it in is given, and closes when no program of
    /// it runs any more. Locked until then: a lock belongs to the open file, whichever of its
    /// holders ends.
    pub fn lock_for_sandbox(&self) -> Result<OwnedFd> {
        let what = "lock the container for its sandbox";
        // Nothing can be written by it.
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, JOINED, flags, Mode::from_raw_mode(0o600));
        let fd = fd.tried(what)?;
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).tried(what)?;
        Ok(fd)
    }

    /// Whether that comes in time; also where it was never given.
    pub fn is_left_within(&self, limit: Duration) -> Result<bool> {
        let what = "ask whether the sandbox has ended the container";
        match rustix::fs::openat(&self.fd, JOINED, TO_READ | OFlags::NOFOLLOW, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(true),
            fd => flock_within(&fd.tried(what)?, limit).tried(what),
        }
    }

    /// Whether nobody can hold its lock: there is something else in its place, or there is none,
    /// and no room for one. Any other failure to lock it may be the caller's own.
    #[must_use]
    pub fn is_unlockable(&self) -> bool {
        use rustix::fs::FileType;
        match rustix::fs::statat(&self.fd, LOCK, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(s) => FileType::from_raw_mode(s.st_mode) != FileType::RegularFile,
            Err(e) => e == rustix::io::Errno::NOENT,
        }
    }

    /// Whether there is nothing with this process or the host that keeps it from reading the
    /// record.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        use rustix::io::Errno;
        let flags = TO_READ | OFlags::NOFOLLOW;
        !matches!(
            rustix::fs::openat(&self.fd, "state.json", flags, Mode::empty()),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO | Errno::ACCESS)
        )
    }

    /// Whether it is still where it was: another may have its name by now.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let same =
            |a: rustix::fs::Stat, b: rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        match (rustix::fs::fstat(&self.fd), rustix::fs::lstat(&self.path)) {
            (Ok(a), Ok(b)) => same(a, b),
            _ => false,
        }
    }

    /// Whether there is no container of this name, as far as can be seen.
    #[must_use]
    pub fn is_missing(root: &Path, id: &str) -> bool {
        matches!(
            rustix::fs::lstat(root.join(id)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR)
        )
    }

    fn open_lock(&self) -> Result<OwnedFd> {
        rustix::fs::openat(
            &self.fd,
            LOCK,
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::from_raw_mode(0o600),
        )
        .tried("open the container's lock")
    }

    /// A path of the monitor's socket that is short enough for its address.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.file("control.sock")
    }

    /// Writes the record, whole or not at all.
    pub fn save(&self, r: &Record) -> Result<()> {
        let text = serde_json::to_vec(r).tried("write the state")?;
        let what = format!("write {}", self.path.join("state.json").display());
        // What a command that was killed has left.
        let _ = rustix::fs::unlinkat(&self.fd, NEW, rustix::fs::AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let f =
            rustix::fs::openat(&self.fd, NEW, flags, Mode::from_raw_mode(0o600)).tried(&what)?;
        std::io::Write::write_all(&mut std::fs::File::from(f), &text).tried(&what)?;
        // Exchanged and not replaced: file systems on disks write out a file that replaces another
        // at once.
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        match rustix::fs::renameat_with(&self.fd, NEW, &self.fd, "state.json", exchange) {
            Ok(()) => {
                let _ = rustix::fs::unlinkat(&self.fd, NEW, rustix::fs::AtFlags::empty());
                Ok(())
            }
            // The first one, or a file system that cannot.
            Err(_) => rustix::fs::renameat(&self.fd, NEW, &self.fd, "state.json").tried(&what),
        }
    }

    /// The record; `None` where `create` never came so far.
    pub fn load(&self) -> Result<Option<Record>> {
        let path = self.path.join("state.json");
        let opened = rustix::fs::openat(
            &self.fd,
            "state.json",
            TO_READ | OFlags::NOFOLLOW,
            Mode::empty(),
        );
        let read = opened
            .map_err(std::io::Error::from)
            .and_then(|f| files::read_opened(f, RECORD_MAX));
        let text = match read {
            Ok(t) => t,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                return Err(Error::new(format!(
                    "could not read {}: {e}",
                    path.display()
                )));
            }
        };
        let r: Record = serde_json::from_slice(&text)
            .map_err(|e| Error::new(format!("{} is not understood: {e}", path.display())))?;
        if r.version > VERSION {
            return Err(Error::new(format!(
                "{} was written by a later version of this runtime",
                path.display()
            )));
        }
        Ok(Some(r))
    }

    /// Writes what its network namespace had, whole or not at all.
    pub fn save_network(&self, kept: &Kept) -> Result<()> {
        let what = "write down the network's devices";
        let text = serde_json::to_vec(kept).tried(what)?;
        files::write(&self.file(NETWORK), &text).tried(what)
    }

    /// What was written; `None` where nothing is to be given back.
    pub fn load_network(&self) -> Result<Option<Kept>> {
        let what = "read what the network's devices were";
        match files::read(&self.file(NETWORK), RECORD_MAX) {
            Ok(text) => serde_json::from_slice(&text).map(Some).tried(what),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).tried(what),
        }
    }

    /// It was given back.
    pub fn remove_network(&self) -> Result<()> {
        match rustix::fs::unlinkat(&self.fd, NETWORK, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            r => r.tried("forget the network's devices"),
        }
    }

    /// A new file, empty.
    pub fn new_file(&self, name: &str) -> Result<std::fs::File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600));
        fd.map(std::fs::File::from)
            .tried(&format!("make {}", self.path.join(name).display()))
    }

    /// A file in it, wherever its name leads by now.
    fn file(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()).into()
    }

    /// Removes it with all that it holds. Where that fails when it has lost its name
    /// ([`Dir::is_there`]), the container is gone all the same. First its name goes, at once, so
    /// that other commands find all of it or nothing. One that has opened it may still make a lock
    /// there, and then sees that it is gone.
    pub fn remove(&self) -> Result<()> {
        let what = format!("remove {}", self.path.display());
        let root = self.path.parent().unwrap_or(Path::new("/"));
        let pid = std::process::id();
        for n in 0u32.. {
            use rustix::io::Errno;
            let aside = root.join(format!("{REMOVED}{pid}.{n}"));
            let rename = rustix::fs::RenameFlags::NOREPLACE;
            let renamed = match rustix::fs::renameat_with(CWD, &self.path, CWD, &aside, rename) {
                // A file system that cannot: an empty directory is replaced, none that another has
                // renamed.
                Err(Errno::INVAL | Errno::NOSYS) => replace_empty(&self.path, &aside),
                r => r,
            };
            match renamed {
                // What a command that was killed has left has the name.
                Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                r => {
                    r.tried(&what)?;
                    let removed = remove_all(&aside);
                    // What cannot be removed now (as NFS keeps what is open), a later one may take.
                    sweep(root);
                    return removed.tried(&format!("remove {}", aside.display()));
                }
            }
        }
        unreachable!("there is a free name")
    }
}

impl Record {
    #[must_use]
    pub fn new() -> Record {
        Record {
            version: VERSION,
            oci_version: crate::spec::VERSION.into(),
            created: crate::log::now(),
            owner: user_name(),
            ..Record::default()
        }
    }
}

/// Whether it could be locked in time.
fn flock_within(fd: &OwnedFd, limit: Duration) -> rustix::io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= deadline => return Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(5)),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

fn user_name() -> String {
    let uid = rustix::process::getuid();
    if uid.is_root() {
        "root".into()
    } else {
        uid.as_raw().to_string()
    }
}

/// Fields of `/proc/PID/stat` after the name: the state, and the start time in ticks. `None` where
/// there is no such process.
fn stat(pid: i32) -> std::io::Result<Option<(char, u64)>> {
    let text = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(t) => t,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok(text.rsplit_once(')').and_then(|(_, rest)| {
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        Some((state, fields.nth(18)?.parse().ok()?))
    }))
}

/// When a process of ours started, which has not been waited for. What has no such time could not
/// be found again.
pub fn start_time(pid: i32) -> Result<u64> {
    let found = stat(pid).tried("look when the monitor started")?;
    found
        .map(|s| s.1)
        .ok_or_else(|| Error::new("the container's monitor ended unexpectedly"))
}

/// Whether it is this process, and has not ended. One that cannot be looked at, for want of a
/// descriptor, counts as alive.
#[must_use]
pub fn is_alive(pid: i32, started: u64) -> bool {
    look(pid, started).unwrap_or(true)
}

/// The same; an error where it cannot be told.
pub fn look(pid: i32, started: u64) -> std::io::Result<bool> {
    if pid <= 0 {
        return Ok(false);
    }
    let lives = |(state, s)| s == started && !matches!(state, 'Z' | 'X');
    Ok(stat(pid)?.is_some_and(lives))
}

/// Renames a directory over an empty one, which it makes.
fn replace_empty(from: &Path, to: &Path) -> rustix::io::Result<()> {
    rustix::fs::mkdir(to, PRIVATE)?;
    rustix::fs::rename(from, to).inspect_err(|_| {
        let _ = rustix::fs::rmdir(to);
    })
}

/// Removes a directory that has lost its name. Others may do so at once, and each command that
/// still has it open makes at most one file there.
fn remove_all(dir: &Path) -> std::io::Result<()> {
    use std::io::ErrorKind;
    let mut tries = 0;
    loop {
        match std::fs::remove_dir_all(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty && tries < SWEEPS => tries += 1,
            r => return r,
        }
    }
}

/// Removes what commands that were killed have left so.
pub fn sweep(root: &Path) {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    for e in entries {
        // Nothing else of that name: private, a directory, and this user's.
        let own = rustix::fs::lstat(e.path()).is_ok_and(|s| {
            s.st_mode & 0o170777 == 0o040700 && s.st_uid == rustix::process::geteuid().as_raw()
        });
        if own && is_removed(&e.file_name()) {
            let _ = remove_all(&e.path());
        }
    }
}

/// Whether [`Dir::remove`] gives such names.
fn is_removed(name: &std::ffi::OsStr) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let name = name.to_str().and_then(|n| n.strip_prefix(REMOVED));
    name.and_then(|n| n.split_once('.'))
        .is_some_and(|(pid, n)| digits(pid) && digits(n))
}

/// Waits for the right to take over, or give back, devices of network namespaces, of which several
/// containers may be in one. It is a lock on the directory of all containers, which nothing else
/// locks.
pub fn lock_networks(root: &Path) -> Result<Lock> {
    let fd = open_root(root)?;
    loop {
        match rustix::fs::flock(&fd, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            r => return r.map(|()| Lock(fd)).tried("lock the networks"),
        }
    }
}

/// The directories below `root`.
pub fn all(root: &Path) -> Vec<Dir> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut ids: Vec<String> = entries
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    ids.sort();
    ids.iter()
        .filter_map(|id| Dir::open(root, id).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        for good in ["a", "a.b_c+d-E9", &"x".repeat(255)] {
            assert!(check_id(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "../x", "a\0", &"x".repeat(256)] {
            assert!(check_id(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_locked() {
        let root = std::env::temp_dir().join(format!("oci-lock-{}", std::process::id()));
        let (d, lock) = Dir::create(&root, "one").unwrap();
        // Held, or refused by the host for now: a container's.
        assert!(!d.is_unlockable() && d.is_readable());
        drop(lock);
        assert!(!d.is_unlockable());
        std::fs::remove_file(root.join("one/lock")).unwrap();
        assert!(d.is_unlockable());
        std::fs::create_dir(root.join("one/lock")).unwrap();
        assert!(d.lock().is_err() && d.is_unlockable());
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn one_create_wins_and_records_survive() {
        let root = std::env::temp_dir().join(format!("oci-state-{}", std::process::id()));
        let (d, lock) = Dir::create(&root, "one").unwrap();
        assert!(Dir::create(&root, "one").is_err());
        assert!(d.load().unwrap().is_none());
        let mut r = Record::new();
        r.pid = std::process::id() as i32;
        r.pid_start = start_time(r.pid).unwrap();
        d.save(&r).unwrap();
        drop(lock);
        let again = Dir::open(&root, "one").unwrap();
        let got = again.load().unwrap().unwrap();
        assert!(is_alive(got.pid, got.pid_start));
        assert!(!is_alive(got.pid, got.pid_start + 1));
        // A later version's state is refused, an older one's without new words is read.
        std::fs::write(root.join("one/state.json"), r#"{"version":99}"#).unwrap();
        assert!(again.load().is_err());
        std::fs::write(root.join("one/state.json"), r#"{"version":0,"pid":7}"#).unwrap();
        assert_eq!(again.load().unwrap().unwrap().pid, 7);
        again.remove().unwrap();
        assert!(Dir::open(&root, "one").is_err());
        std::fs::remove_dir(&root).unwrap();
    }

    #[test]
    fn an_empty_directory_is_replaced() {
        let root = std::env::temp_dir().join(format!("oci-replaced-{}", std::process::id()));
        let at = |n: &str| root.join(n);
        std::fs::create_dir_all(at("from")).unwrap();
        replace_empty(&at("from"), &at("to")).unwrap();
        assert!(at("to").exists() && !at("from").exists());
        assert_eq!(
            replace_empty(&at("from"), &at("other")),
            Err(rustix::io::Errno::NOENT)
        );
        assert!(!at("other").exists());
        assert_eq!(
            replace_empty(&at("from"), &at("to")),
            Err(rustix::io::Errno::EXIST)
        );
        std::fs::remove_dir_all(&root).unwrap();
    }

    /// A command that has opened one that is removed makes no other one fail, and leaves nothing.
    #[test]
    fn removed_beside_who_has_it_open() {
        let root = std::env::temp_dir().join(format!("oci-removed-{}", std::process::id()));
        for _ in 0..200 {
            let (d, lock) = Dir::create(&root, "one").unwrap();
            let opened: Vec<Dir> = (0..3).map(|_| Dir::open(&root, "one").unwrap()).collect();
            std::thread::scope(|s| {
                for o in &opened {
                    s.spawn(|| assert!(o.lock().is_err() && !o.is_there()));
                }
                d.remove().unwrap();
                drop(lock);
            });
        }
        // One that was killed has left the first; the others are somebody's own.
        let left = root.join(format!("~{}.0", std::process::id()));
        let others = ["~old", "~1.x", "~1.2"].map(|n| root.join(n));
        for d in others.iter().chain([&left]) {
            rustix::fs::mkdir(d, PRIVATE).unwrap();
            std::fs::write(d.join("lock"), "").unwrap();
        }
        rustix::fs::chmod(&others[2], Mode::from_raw_mode(0o755)).unwrap();
        assert!(all(&root).is_empty());
        Dir::create(&root, "one").unwrap().0.remove().unwrap();
        assert!(!left.exists() && others.iter().all(|d| d.join("lock").exists()));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn links_and_others_directories_are_not_believed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = std::env::temp_dir().join(format!("oci-links-{}", std::process::id()));
        let (d, lock) = Dir::create(&root, "one").unwrap();
        drop(lock);
        let elsewhere = root.join("elsewhere.json");
        std::fs::write(&elsewhere, r#"{"version":1,"pid":7}"#).unwrap();
        symlink(&elsewhere, root.join("one/state.json")).unwrap();
        assert!(d.load().is_err());
        // What lies in the way is not written through, nor waited for.
        symlink(&elsewhere, root.join("one").join(NEW)).unwrap();
        d.save(&Record::new()).unwrap();
        assert_eq!(d.load().unwrap().unwrap().pid, 0);
        assert!(std::fs::read_to_string(&elsewhere).unwrap().contains('7'));
        symlink(root.join("one"), root.join("link")).unwrap();
        let e = Dir::open(&root, "link").unwrap_err();
        assert_eq!(e, Error::NotFound("link".into()));
        assert_eq!(Dir::create(&root, "one").unwrap_err(), Error::Exists);
        for mode in [0o770, 0o707, 0o777] {
            std::fs::set_permissions(&root, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(Dir::open(&root, "one").is_err(), "{mode:o}");
            assert!(Dir::create(&root, "two").is_err(), "{mode:o}");
        }
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Dir::open(&root, "one").is_ok());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
