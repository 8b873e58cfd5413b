//! pidfds (`pidfd_open(2)`): readable when the process has ended.

use super::task_of;
use crate::ns::pid::PidNs;
use crate::{Context, Task, ThreadGroup};
use abi::errno::{EINVAL, ENOTTY, ESRCH};
use abi::{Result, Va};
use bitflags::bitflags;
use std::any::Any;
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, FileOps, IoctlContext, O_NONBLOCK, O_RDWR};
use vfs::{Credentials, Stat};
use wait::{Events, WaitQueue};
use zerocopy::{Immutable, IntoBytes};

/// `PIDFD_GET_INFO`, without the size of its struct.
const GET_INFO: u32 = 0xc000_ff0b;

bitflags! {
    /// What of an [`Info`] is told. (Control groups and core dumps are not.)
    #[derive(Clone, Copy)]
    struct Mask: u64 {
        const PID = 1 << 0;
        const CREDS = 1 << 1;
        const EXIT = 1 << 3;
    }
}

/// `struct pidfd_info`, its first version.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Info {
    mask: u64,
    cgroup: u64,
    pid: i32,
    tgid: i32,
    ppid: i32,
    /// Real, effective, saved, of files: each a user and a group.
    owners: [[u32; 2]; 4],
    exit_code: i32,
}

impl Info {
    /// Of a process that is not reaped, as the caller sees it.
    fn tell(&mut self, group: &ThreadGroup, c: &Credentials, parent: i32, caller: &Task) {
        let user = &caller.cred().user_ns;
        let ids = [
            (c.uid, c.gid),
            (c.euid, c.egid),
            (c.suid, c.sgid),
            (c.fsuid, c.fsgid),
        ];
        self.mask |= (Mask::PID | Mask::CREDS).bits();
        self.owners = ids.map(|(u, g)| [user.uid_shown(u), user.gid_shown(g)]);
        self.tgid = group.pid.seen_in(&caller.pid.ns);
        self.pid = self.tgid;
        self.ppid = parent;
    }
}

/// The open file.
pub struct PidFd {
    group: Arc<ThreadGroup>,
    kernel: std::sync::Weak<crate::Kernel>,
}

impl PidFd {
    /// A new one; of the flags O_NONBLOCK counts.
    #[must_use]
    pub fn file(
        k: &Arc<crate::Kernel>,
        g: &Arc<ThreadGroup>,
        cred: &Arc<Credentials>,
        flags: u32,
    ) -> Arc<File> {
        let ops = Arc::new(PidFd {
            group: g.clone(),
            kernel: Arc::downgrade(k),
        });
        File::new(ops, O_RDWR | (flags & O_NONBLOCK), None, cred.clone())
    }
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
    /// `PIDFD_GET_INFO` (`pidfd_info`), of those bytes that the caller has room for.
    fn get_info(&self, cx: &dyn IoctlContext, room: usize, at: Va) -> Result<u64> {
        if at.0 == 0 {
            return Err(EINVAL);
        }
        let caller = task_of(cx.task()).ok_or(ESRCH)?;
        let mut mask = [0; 8];
        cx.copy_in(at, &mut mask)?;
        let wants = Mask::from_bits_retain(u64::from_ne_bytes(mask));
        let ns = &caller.pid.ns;
        if self.group.pid.seen_in(ns) == 0 {
            return Err(ESRCH);
        }
        let mut info = Info::default();
        let status = self.group.reaped_status.get();
        if wants.contains(Mask::EXIT)
            && let Some(status) = status
        {
            info.mask |= Mask::EXIT.bits();
            info.exit_code = *status;
        }
        match self.living(caller) {
            Some((cred, parent)) => info.tell(&self.group, &cred, parent, caller),
            None if info.mask == 0 => return Err(ESRCH),
            None => {}
        }
        let mut out = info.as_bytes().to_vec();
        out.resize(room, 0);
        cx.copy_out(at, &out)?;
        Ok(0)
    }

    /// Its credentials and its parent, until it is reaped.
    fn living(&self, caller: &Task) -> Option<(Arc<Credentials>, i32)> {
        let l = caller.kernel.tasks.lock();
        let g = self.group(&l)?;
        let p = l.process(g.tgid)?;
        let cred = match l.some_thread(g.tgid) {
            Some(t) => t.cred(),
            None => p.ended.as_ref()?.cred.clone(),
        };
        let parent = l.number(p.parent, &caller.pid.ns);
        Some((cred, parent))
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
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        // The size is the caller's: later versions of the struct are longer.
        let room = (cmd >> 16 & 0x3fff) as usize;
        match cmd & !(0x3fff << 16) {
            GET_INFO if room >= size_of::<Info>() => self.get_info(cx, room, Va(arg)),
            _ => Err(ENOTTY),
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
    let f = PidFd::file(&cx.kernel, group, &cx.cred(), flags);
    let room = cx.room();
    cx.files().install(f, CloseOnExec::Yes, &room)
}
