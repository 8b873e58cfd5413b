//! pidfds (`pidfd_open(2)`): readable when the process has ended.

use crate::ns::pid::PidNs;
use crate::{Context, ThreadGroup};
use abi::Result;
use std::any::Any;
use std::sync::Arc;
use vfs::Stat;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, FileOps, O_NONBLOCK, O_RDWR};
use wait::{Events, WaitQueue};

/// The open file.
pub struct PidFd {
    group: Arc<ThreadGroup>,
    kernel: std::sync::Weak<crate::Kernel>,
}

impl PidFd {
    /// What `/proc/PID/fdinfo` tells, in a pid namespace's numbers.
    #[must_use]
    pub fn info(&self, ns: &PidNs) -> String {
        let ended = self
            .kernel
            .upgrade()
            .is_none_or(|k| self.group(&k.tasks.lock()).is_none());
        if ended {
            return "Pid:\t-1\nNSpid:\t-1\n".into();
        }
        let pid = self.group.pid.seen_in(ns);
        let all: Vec<String> = match pid {
            0 => vec!["0".into()],
            _ => self
                .group
                .pid
                .from_level(ns)
                .iter()
                .map(ToString::to_string)
                .collect(),
        };
        format!("Pid:\t{pid}\nNSpid:\t{}\n", all.join("\t"))
    }
    /// The id of the process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.group.tgid
    }
    /// The process, as long as it has not been waited for: its number may be another's by then.
    #[must_use]
    pub fn group(&self, l: &crate::task::list::TaskList) -> Option<Arc<ThreadGroup>> {
        l.group(self.pid()).filter(|g| Arc::ptr_eq(g, &self.group))
    }
    fn has_ended(&self) -> bool {
        self.kernel.upgrade().is_none_or(|k| {
            let l = k.tasks.lock();
            l.process(self.group.tgid)
                .is_none_or(|p| p.zombie.is_some() || !Arc::ptr_eq(&p.group, &self.group))
        })
    }
}

impl FileOps for PidFd {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            mode: 0o600,
            nlink: 1,
            blksize: 4096,
            ino: self.group.tgid as u64,
            ..Stat::default()
        })
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        if self.has_ended() {
            Events::READABLE & mask
        } else {
            Events::empty()
        }
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.group.exit_wait)
    }
    fn describe(&self) -> String {
        "anon_inode:[pidfd]".into()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Opens one; it is close-on-exec.
pub fn open(cx: &Context, group: &Arc<ThreadGroup>, flags: u32) -> Result<i32> {
    let ops = Arc::new(PidFd {
        group: group.clone(),
        kernel: Arc::downgrade(&cx.kernel),
    });
    let f = File::new(ops, O_RDWR | (flags & O_NONBLOCK), None, cx.cred());
    let room = cx.room();
    cx.files().install(f, CloseOnExec::Yes, &room)
}
