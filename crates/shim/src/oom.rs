//! Watching for the host's out-of-memory killer in a container's cgroup.
//!
//! Version 1: an eventfd joined to `memory.oom_control` (cgroup-v1/memory.rst, chapter 10). Version 2: the
//! file `memory.events` polls as changed (cgroup-v2.rst). Both wake up, too, when the cgroup is removed: then
//! the thread ends.

use oci::Cgroups;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Calls `told` for each time, from a thread of its own. Where the host has no such thing, nothing is watched.
pub fn watch(groups: &Cgroups, told: impl Fn() + Send + 'static) {
    let Some(dir) = groups.controller("memory") else {
        return;
    };
    let (dir, unified) = (dir.to_path_buf(), groups.is_unified());
    let thread = std::thread::Builder::new().name("oom".into());
    let started = thread.spawn(move || {
        if unified {
            events(&dir, &told);
        } else {
            let _ = eventfd(&dir, &told);
        }
    });
    if let Err(e) = started {
        crate::log::warning(&format!("out-of-memory kills are not watched for: {e}"));
    }
}

fn eventfd(dir: &Path, told: &dyn Fn()) -> std::io::Result<()> {
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
    let control = std::fs::File::open(dir.join("memory.oom_control"))?;
    let words = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
    std::fs::write(dir.join("cgroup.event_control"), words)?;
    loop {
        let mut count = [0; 8];
        match rustix::io::read(&event, &mut count) {
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
            Ok(_) => {}
        }
        if !dir.exists() {
            return Ok(());
        }
        told();
    }
}

/// The line `oom_kill N`.
fn kills(text: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

fn events(dir: &Path, told: &dyn Fn()) {
    let path = dir.join("memory.events");
    let mut seen = 0;
    let Ok(file) = std::fs::File::open(&path) else {
        return;
    };
    loop {
        // Read through the descriptor that is polled: that arms it.
        let mut text = vec![0; 4096];
        let Ok(n) = std::os::unix::fs::FileExt::read_at(&file, &mut text, 0) else {
            return;
        };
        let now = kills(&String::from_utf8_lossy(&text[..n]));
        if now > seen {
            told();
        }
        seen = now;
        let mut fds = [PollFd::new(&file, PollFlags::PRI)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if !path.exists() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines() {
        assert_eq!(
            super::kills("low 0\noom 3\noom_kill 2\noom_group_kill 7\n"),
            2
        );
        assert_eq!(super::kills(""), 0);
    }
}
