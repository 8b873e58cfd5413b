//! The file of a filter's listener (`seccomp_notify_ops`): its commands are `ioctl(2)`s.

use super::notify::{AddFd, Notifications, Reply};
use crate::task::{Task, task_of};
use abi::errno::{E2BIG, EBADF, EFAULT, EINVAL, ENOENT};
use abi::{Result, Va};
use seccomp::bpf::Data;
use std::any::Any;
use std::sync::Arc;
use vfs::Stat;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, FileOps, IoctlContext, O_CLOEXEC, O_PATH, O_RDWR, anon_stat};
use wait::{Events, WaitQueue};

/// The sizes of `struct seccomp_notif`, `seccomp_notif_resp` and `seccomp_data`, as
/// `SECCOMP_GET_NOTIF_SIZES` tells them.
pub const SIZES: [u16; 3] = [NOTIF as u16, RESPONSE as u16, size_of::<Data>() as u16];
const NOTIF: usize = 16 + size_of::<Data>();
const RESPONSE: usize = 24;
/// `struct seccomp_notif_addfd`, in its first version, and the one we know.
const ADDFD: usize = 24;

// Commands. The size of ADDFD's argument is no part of it.
const RECV: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const ID_VALID: u32 = 0x4008_2102;
/// As the first kernels defined it (`SECCOMP_IOCTL_NOTIF_ID_VALID_WRONG_DIR`).
const ID_VALID_OLD: u32 = 0x8008_2102;
const ADD_FD: u32 = 0x2103;
const SET_FLAGS: u32 = 0x4008_2104;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u32 = 1;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: a hint on which CPU to go on, which is the host's matter.
const SYNC_WAKE_UP: u64 = 1;
/// `SECCOMP_ADDFD_FLAG_SETFD`.
const SETFD: u32 = 1;
/// `SECCOMP_ADDFD_FLAG_SEND`.
const AS_REPLY: u32 = 2;

/// The open file.
pub struct Listener(Arc<Notifications>);

impl Listener {
    /// Of a filter that is still to be installed.
    #[must_use]
    pub fn open(n: &Arc<Notifications>, task: &Task) -> Arc<File> {
        let ops = Arc::new(Listener(n.clone()));
        File::new(ops, O_RDWR, None, task.cred())
    }

    /// `SECCOMP_IOCTL_NOTIF_RECV`. O_NONBLOCK does not matter.
    fn receive(&self, task: &Task, cx: &dyn IoctlContext, at: Va) -> Result<()> {
        let mut buf = [0; NOTIF];
        cx.copy_in(at, &mut buf)?;
        if buf.iter().any(|b| *b != 0) {
            return Err(EINVAL);
        }
        let n = &self.0;
        let events = Events::READABLE | Events::HUP;
        task.block(&[(&n.queue, events)], None, || n.take_request())?;
        let told = n.receive()?;
        let pid = task.number_of(told.tid) as u32;
        buf[..8].copy_from_slice(&told.id.to_le_bytes());
        buf[8..12].copy_from_slice(&pid.to_le_bytes());
        for (to, word) in buf[16..].chunks_exact_mut(4).zip(told.data) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        cx.copy_out(at, &buf).map_err(|_| {
            n.put_back(told.id);
            EFAULT
        })
    }

    /// `SECCOMP_IOCTL_NOTIF_SEND`.
    fn send(&self, cx: &dyn IoctlContext, at: Va) -> Result<()> {
        let mut buf = [0; RESPONSE];
        cx.copy_in(at, &mut buf)?;
        let [id, value] = [u64_at(&buf, 0), u64_at(&buf, 8)];
        let [error, flags] = [u32_at(&buf, 16), u32_at(&buf, 20)];
        if flags & !CONTINUE != 0 || flags != 0 && (error != 0 || value != 0) {
            return Err(EINVAL);
        }
        let reply = match (flags, error) {
            (0, 0) => Reply::Result(value),
            (0, e) => Reply::Result(e as i32 as u64),
            _ => Reply::Continue,
        };
        self.0.send(id, reply)
    }

    /// `SECCOMP_IOCTL_NOTIF_ADDFD`, whose argument has this size.
    fn add_fd(&self, task: &Task, cx: &dyn IoctlContext, at: Va, size: usize) -> Result<i32> {
        if !(ADDFD..abi::PAGE_SIZE as usize).contains(&size) {
            return Err(EINVAL);
        }
        let mut buf = vec![0; size];
        cx.copy_in(at, &mut buf)?;
        if buf[ADDFD..].iter().any(|b| *b != 0) {
            return Err(E2BIG);
        }
        let [flags, source, number, fd_flags] = [8, 12, 16, 20].map(|n| u32_at(&buf, n));
        if fd_flags & !O_CLOEXEC != 0
            || flags & !(SETFD | AS_REPLY) != 0
            || number != 0 && flags & SETFD == 0
        {
            return Err(EINVAL);
        }
        let file = task.fd(source as i32)?;
        if file.flags() & O_PATH != 0 {
            return Err(EBADF);
        }
        let mut add = AddFd::new(file, CloseOnExec::from_flags(fd_flags));
        add.at = (flags & SETFD != 0).then_some(number as i32);
        add.is_reply = flags & AS_REPLY != 0;
        self.0.add_fd(task, u64_at(&buf, 0), add)
    }
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    let word = b[at..].first_chunk().copied().unwrap_or_default();
    u32::from_le_bytes(word)
}

impl FileOps for Listener {
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        let task = task_of(cx.task()).ok_or(EINVAL)?;
        let at = Va(arg);
        match cmd {
            RECV => self.receive(task, cx, at)?,
            SEND => self.send(cx, at)?,
            ID_VALID | ID_VALID_OLD => {
                let mut id = [0; 8];
                cx.copy_in(at, &mut id)?;
                if !self.0.is_valid(u64::from_le_bytes(id)) {
                    return Err(ENOENT);
                }
            }
            SET_FLAGS if arg & !SYNC_WAKE_UP == 0 => {}
            // Whatever its direction and its size.
            c if c & 0xffff == ADD_FD => {
                let size = (c >> 16 & 0x3fff) as usize;
                return self.add_fd(task, cx, at, size).map(|fd| fd as u64);
            }
            _ => return Err(EINVAL),
        }
        Ok(0)
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        self.0.ready() & (mask | Events::ALWAYS)
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.0.queue)
    }
    fn stat(&self) -> Result<Stat> {
        Ok(anon_stat())
    }
    fn describe(&self) -> String {
        "anon_inode:seccomp notify".into()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.close();
    }
}
