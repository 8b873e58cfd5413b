//! Watching for out-of-memory kills: the container's own, which its monitor counts in a file, and
//! the host's in its cgroup.
//!
//! Version 1: an eventfd joined to `memory.oom_control` (cgroup-v1/memory.rst, chapter 10), which
//! counts before a process is killed. Version 2: the file `memory.events` polls as changed
//! (cgroup-v2.rst), and its count rises before the kill. So a caller that has learnt of the end of
//! a process, and asks then, misses no kill that was its cause. Both wake up, too, when the cgroup
//! is removed: then the thread ends.

use oci::Cgroups;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::inotify::{CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One cgroup's.
#[derive(Debug)]
pub struct Watch {
    dir: PathBuf,
    kind: Kind,
    own: Option<KillCounter>,
}

/// The container's own kills.
#[derive(Debug)]
struct KillCounter {
    /// Of the monitor's file: told when it changes.
    inotify: OwnedFd,
    count: File,
    /// What it was when it was last looked at.
    seen: AtomicU64,
}

impl KillCounter {
    fn open(path: &Path) -> std::io::Result<KillCounter> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let inotify = rustix::fs::inotify::init(flags)?;
        rustix::fs::inotify::add_watch(&inotify, path, WatchFlags::MODIFY)?;
        Ok(KillCounter {
            inotify,
            count: File::open(path)?,
            seen: AtomicU64::new(0),
        })
    }

    fn happened(&self) -> bool {
        let mut events = [0; 4096];
        while rustix::io::read(&self.inotify, &mut events).is_ok_and(|n| n > 0) {}
        let now = self.count.metadata().map_or(0, |m| m.len());
        now > self.seen.fetch_max(now, Ordering::Relaxed)
    }
}

#[derive(Debug)]
enum Kind {
    /// Counts.
    V1(OwnedFd),
    /// `memory.events`, and what it counted when it was last looked at.
    V2(File, AtomicU64),
}

/// `None` where the host has no such thing. `own`: the monitor's file, if it has one.
pub fn open(groups: &Cgroups, own: Option<&Path>) -> Option<Arc<Watch>> {
    let dir = groups.controller("memory")?.to_path_buf();
    let kind = if groups.is_unified() {
        let file = File::open(dir.join("memory.events")).ok()?;
        Kind::V2(file, AtomicU64::new(0))
    } else {
        Kind::V1(eventfd(&dir).ok()?)
    };
    let own = own.and_then(|p| KillCounter::open(p).ok());
    Some(Arc::new(Watch { dir, kind, own }))
}

fn eventfd(dir: &Path) -> std::io::Result<OwnedFd> {
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let control = File::open(dir.join("memory.oom_control"))?;
    let words = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
    std::fs::write(dir.join("cgroup.event_control"), words)?;
    Ok(event)
}

impl Watch {
    /// Whether it has happened since this was asked last. Never waits.
    pub fn happened(&self) -> bool {
        // (Both are asked.)
        let own = self.own.as_ref().is_some_and(KillCounter::happened);
        self.host_did() || own
    }

    fn host_did(&self) -> bool {
        match &self.kind {
            Kind::V1(event) => {
                let mut count = [0; 8];
                rustix::io::read(event, &mut count).is_ok() && self.dir.exists()
            }
            Kind::V2(file, seen) => {
                // Read through the descriptor that is polled: that arms it.
                let mut text = vec![0; 4096];
                let Ok(n) = std::os::unix::fs::FileExt::read_at(file, &mut text, 0) else {
                    return false;
                };
                let now = kills(&String::from_utf8_lossy(&text[..n]));
                now > seen.fetch_max(now, Ordering::Relaxed)
            }
        }
    }

    /// Waits until it may have happened; false when the cgroup is gone.
    fn wait(&self) -> bool {
        let (fd, what) = match &self.kind {
            Kind::V1(event) => (event.as_fd(), PollFlags::IN),
            Kind::V2(file, _) => (file.as_fd(), PollFlags::PRI),
        };
        let mut fds = vec![PollFd::from_borrowed_fd(fd, what)];
        if let Some(own) = &self.own {
            fds.push(PollFd::new(&own.inotify, PollFlags::IN));
        }
        loop {
            match rustix::event::poll(&mut fds, None) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) => return self.dir.exists(),
            }
        }
    }

    /// Calls `look`, which is to ask whether it happened, from a thread of its own whenever that
    /// may be, until the cgroup is gone or `look` gives false.
    pub fn attend(self: &Arc<Self>, look: impl Fn() -> bool + Send + 'static) {
        let own = Arc::clone(self);
        let thread = std::thread::Builder::new().name("oom".into());
        let started = thread.spawn(move || while look() && own.wait() {});
        if let Err(e) = started {
            crate::log::warning(&format!("out-of-memory kills are not watched for: {e}"));
        }
    }
}

/// The line `oom_kill N`.
fn kills(text: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(kills("low 0\noom 3\noom_kill 2\noom_group_kill 7\n"), 2);
        assert_eq!(kills(""), 0);
    }

    #[test]
    fn each_kill_is_told_once() {
        let dir = std::env::temp_dir().join(format!("shim-oom-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let at = dir.join("memory.events");
        std::fs::write(&at, "oom_kill 0\n").unwrap();
        let w = Watch {
            dir: dir.clone(),
            kind: Kind::V2(File::open(&at).unwrap(), AtomicU64::new(0)),
            own: None,
        };
        assert!(!w.happened());
        std::fs::write(&at, "oom_kill 2\n").unwrap();
        assert!(w.happened() && !w.happened());
        let event = rustix::event::eventfd(3, EventfdFlags::NONBLOCK).unwrap();
        let w = Watch {
            dir: dir.clone(),
            kind: Kind::V1(event),
            own: None,
        };
        assert!(w.wait() && w.happened() && !w.happened());
        let count = dir.join("kills");
        std::fs::write(&count, "").unwrap();
        let w = Watch {
            dir: dir.clone(),
            kind: Kind::V1(rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap()),
            own: Some(KillCounter::open(&count).unwrap()),
        };
        assert!(!w.happened());
        std::fs::write(&count, "3").unwrap();
        assert!(w.wait() && w.happened() && !w.happened());
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(!w.happened());
    }
}
