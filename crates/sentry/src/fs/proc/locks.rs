//! `/proc/locks` (Linux's `locks_show`): locks and leases whose process its reader sees, and those
//! that are no process's. Who waits for one is not shown.

use crate::container::Container;
use crate::ns::pid::PidNs;
use crate::task::task_of;
use crate::{Kernel, Task};
use std::fmt::Write as _;
use std::sync::{Arc, Weak};
use vfs::file::File;
use vfs::fs::dynamic::DynFile;
use vfs::inode::Inode;
use vfs::leases::Shown;
use vfs::locks::{LockKind, OFFSET_MAX};
use vfs::{Caller, major, minor};

pub(super) struct Locks;

/// The same of its opener.
struct OfOpener(Weak<Task>);

impl DynFile for Locks {
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn bound(&self, cx: &Caller<'_>) -> abi::Result<Option<Arc<dyn DynFile>>> {
        let opener = task_of(cx.task).map(Arc::downgrade).unwrap_or_default();
        Ok(Some(Arc::new(OfOpener(opener))))
    }
}

impl DynFile for OfOpener {
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let mut all = Text::default();
        if let Some(t) = self.0.upgrade() {
            let reader = Reader {
                kernel: &t.kernel,
                ns: &t.pid.ns,
                container: &t.group.container,
            };
            vfs::listed::for_each(|i| all.file(&reader, i));
        }
        Ok(all.text.into_bytes())
    }
}

struct Reader<'a> {
    kernel: &'a Kernel,
    ns: &'a PidNs,
    container: &'a Arc<Container>,
}

impl Reader<'_> {
    /// The number of a process; `None` where it is not to be seen.
    fn number(&self, id: i32) -> Option<i32> {
        if id < 0 {
            // (Whose they are is not known.)
            return Arc::ptr_eq(self.container, &self.kernel.root).then_some(-1);
        }
        let l = self.kernel.tasks.lock();
        let g = l.group(id)?;
        drop(l);
        let n = g.pid.seen_in(self.ns);
        (n != 0 && Arc::ptr_eq(&g.container, self.container)).then_some(n)
    }
}

#[derive(Default)]
struct Text {
    text: String,
    count: usize,
}

const fn word(kind: Option<LockKind>) -> &'static str {
    match kind {
        Some(LockKind::Read) => "READ",
        Some(LockKind::Write) => "WRITE",
        None => "UNLCK",
    }
}

impl Text {
    fn file(&mut self, to: &Reader<'_>, inode: &dyn Inode) {
        let locks = inode.ext().existing_locks().map(|l| l.all());
        let (locks, leases) = (locks.unwrap_or_default(), inode.ext().shown_leases());
        if locks.is_empty() && leases.is_empty() {
            return;
        }
        let Ok(s) = inode.known_stat() else { return };
        let (ma, mi) = (major(s.dev), minor(s.dev));
        let place = format!("{ma:02x}:{mi:02x}:{}", s.ino);
        for (range, kind, pid) in locks {
            let Some(n) = to.number(pid) else { continue };
            let what = match (range, pid) {
                (None, _) => "FLOCK ",
                (Some(_), -1) => "OFDLCK",
                (Some(_), _) => "POSIX ",
            };
            let bytes = match range {
                Some(r) if r.end < OFFSET_MAX => format!("{} {}", r.start, r.end),
                Some(r) => format!("{} EOF", r.start),
                None => "0 EOF".into(),
            };
            self.line(
                what,
                "ADVISORY ",
                Some(kind),
                &format!("{n} {place} {bytes}"),
            );
        }
        for Shown {
            target,
            breaking,
            pid,
        } in leases
        {
            let Some(n) = to.number(pid) else { continue };
            let state = if breaking { "BREAKING " } else { "ACTIVE   " };
            self.line("LEASE ", state, target, &format!("{n} {place} 0 EOF"));
        }
    }

    fn line(&mut self, what: &str, state: &str, kind: Option<LockKind>, rest: &str) {
        self.count += 1;
        let kind = word(kind);
        let _ = writeln!(self.text, "{}: {what} {state} {kind} {rest}", self.count);
    }
}
