//! Message queues (`msgget(2)`, `msgsnd(2)`, `msgrcv(2)`).

use super::{IPC_NOWAIT, IpcNamespace, Limit, Numbers, Object, Perm, READ, WRITE, now};
use abi::Result;
use abi::errno::{E2BIG, EAGAIN, EIDRM, ENOMEM, ENOMSG, EPERM, ERESTARTNOHAND, ERESTARTSYS};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use vfs::ucounts::Charge;
use vfs::{Caps, Credentials};
use wait::{Blocker, Events, WaitQueue, block_until};

pub const MSG_NOERROR: u32 = 0o10000;
pub const MSG_EXCEPT: u32 = 0o20000;
pub const MSG_COPY: u32 = 0o40000;
pub const MSG_STAT: u32 = 11;
pub const MSG_INFO: u32 = 12;
pub const MSG_STAT_ANY: u32 = 13;

/// `kernel.msgmax`, `kernel.msgmnb` at first.
pub const MSGMAX: usize = 8192;
pub const MSGMNB: usize = 16_384;

/// What a message takes beyond its bytes.
const MSG: usize = 64;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Msg {
    pub kind: i64,
    pub data: Vec<u8>,
}

/// A queue.
pub struct MsgQueue {
    pub id: i32,
    ns: Weak<IpcNamespace>,
    state: Mutex<State>,
    /// IN when a message came, OUT when one went.
    queue: WaitQueue,
}

struct State {
    perm: Perm,
    msgs: VecDeque<Msg>,
    bytes: usize,
    /// What the messages take, as the maker's of the queue.
    memory: Charge,
    max_bytes: usize,
    stime: i64,
    rtime: i64,
    ctime: i64,
    lspid: i32,
    lrpid: i32,
    removed: bool,
}

/// Which message a receiver wants (`convert_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Any,
    Equal(i64),
    NotEqual(i64),
    /// The lowest type up to this one.
    UpTo(i64),
    /// A copy of the message at this place (MSG_COPY).
    Number(i64),
}

impl Want {
    #[must_use]
    pub fn new(kind: i64, flags: u32) -> Want {
        match kind {
            n if flags & MSG_COPY != 0 => Want::Number(n),
            0 => Want::Any,
            i64::MIN => Want::UpTo(i64::MAX),
            n if n < 0 => Want::UpTo(-n),
            n if flags & MSG_EXCEPT != 0 => Want::NotEqual(n),
            n => Want::Equal(n),
        }
    }
    fn find(self, msgs: &VecDeque<Msg>) -> Option<usize> {
        match self {
            Want::Any => (!msgs.is_empty()).then_some(0),
            Want::Equal(k) => msgs.iter().position(|m| m.kind == k),
            Want::NotEqual(k) => msgs.iter().position(|m| m.kind != k),
            Want::UpTo(k) => {
                let low = msgs.iter().map(|m| m.kind).filter(|m| *m <= k).min()?;
                msgs.iter().position(|m| m.kind == low)
            }
            Want::Number(n) => usize::try_from(n).ok().filter(|n| *n < msgs.len()),
        }
    }
}

impl Object for MsgQueue {
    fn perm<R>(&self, f: impl FnOnce(&Perm) -> R) -> R {
        f(&self.state.lock().perm)
    }
    fn removed(&self) {
        self.state.lock().removed = true;
        self.queue.notify(Events::IN | Events::OUT);
    }
}

fn interrupted<T>(r: Result<T>) -> Result<T> {
    r.map_err(|e| if e == ERESTARTSYS { ERESTARTNOHAND } else { e })
}

impl MsgQueue {
    /// `ENOMEM` where its maker has no more of the kernel's memory.
    pub fn new(
        ns: &IpcNamespace,
        id: i32,
        perm: Perm,
        cred: &Credentials,
    ) -> Result<Arc<MsgQueue>> {
        let memory = cred.kmem(size_of::<MsgQueue>(), ENOMEM)?;
        Ok(Arc::new(MsgQueue {
            id,
            ns: ns.me.clone(),
            state: Mutex::new(State {
                perm,
                msgs: VecDeque::new(),
                bytes: 0,
                memory,
                max_bytes: ns.limits.bounded(Limit::MsgMnb),
                stime: 0,
                rtime: 0,
                ctime: now(),
                lspid: 0,
                lrpid: 0,
                removed: false,
            }),
            queue: WaitQueue::new(),
        }))
    }

    /// `msgsnd(2)`; the caller has checked type and size.
    pub fn send(
        &self,
        b: &dyn Blocker,
        cred: &Credentials,
        pid: i32,
        msg: Msg,
        flags: u32,
    ) -> Result<()> {
        let mut msg = Some(msg);
        let attempt = || {
            let mut s = self.state.lock();
            if s.removed {
                return Err(EIDRM);
            }
            s.perm.check(cred, WRITE)?;
            let n = msg.as_ref().map_or(0, |m| m.data.len());
            if n + s.bytes > s.max_bytes || s.msgs.len() + 1 > s.max_bytes {
                return Err(EAGAIN);
            }
            if !s.memory.grow((n + MSG) as u64, u64::MAX) {
                return Err(ENOMEM);
            }
            s.msgs.extend(msg.take());
            s.bytes += n;
            s.stime = now();
            s.lspid = pid;
            Ok(())
        };
        self.wait(b, Events::OUT, flags, attempt)?;
        self.queue.notify(Events::IN);
        Ok(())
    }

    /// `msgrcv(2)`: at most `room` bytes.
    pub fn receive(
        &self,
        b: &dyn Blocker,
        cred: &Credentials,
        pid: i32,
        room: usize,
        want: Want,
        flags: u32,
    ) -> Result<Msg> {
        let attempt = || {
            let mut s = self.state.lock();
            if s.removed {
                return Err(EIDRM);
            }
            s.perm.check(cred, READ)?;
            let at = want.find(&s.msgs).ok_or(EAGAIN)?;
            if s.msgs[at].data.len() > room && flags & MSG_NOERROR == 0 {
                return Err(E2BIG);
            }
            if let Want::Number(_) = want {
                return Ok(s.msgs[at].clone());
            }
            let m = s.msgs.remove(at).ok_or(EAGAIN)?;
            s.bytes -= m.data.len();
            let left = s.memory.amount() - (m.data.len() + MSG) as u64;
            s.memory.set(left);
            s.rtime = now();
            s.lrpid = pid;
            Ok(m)
        };
        let mut m = self
            .wait(b, Events::IN, flags, attempt)
            .map_err(|e| if e == EAGAIN { ENOMSG } else { e })?;
        m.data.truncate(room);
        self.queue.notify(Events::OUT);
        Ok(m)
    }

    fn wait<T>(
        &self,
        b: &dyn Blocker,
        events: Events,
        flags: u32,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        if flags & IPC_NOWAIT != 0 {
            return attempt();
        }
        interrupted(block_until(b, &[(&self.queue, events)], None, attempt))
    }

    /// IPC_RMID.
    pub fn remove(&self, cred: &Credentials) -> Result<()> {
        self.perm(|p| p.check_owner(cred))?;
        if let Some(ns) = self.ns.upgrade() {
            ns.msg.remove(self.id);
        }
        Ok(())
    }
    /// IPC_SET: more than the default needs CAP_SYS_RESOURCE.
    pub fn set(&self, cred: &Credentials, raw: &[u8; Perm::SIZE], max_bytes: u64) -> Result<()> {
        {
            let mut s = self.state.lock();
            s.perm.check_owner(cred)?;
            let most = self
                .ns
                .upgrade()
                .map_or(MSGMNB, |ns| ns.limits.bounded(Limit::MsgMnb));
            if max_bytes > most as u64 && !cred.has(Caps::SYS_RESOURCE) {
                return Err(EPERM);
            }
            s.perm.set(raw);
            s.max_bytes = usize::try_from(max_bytes)
                .unwrap_or(usize::MAX)
                .min(64 << 20);
            s.ctime = now();
        }
        self.queue.notify(Events::OUT | Events::IN);
        Ok(())
    }
    /// `struct msqid64_ds`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let s = self.state.lock();
        let mut v = s.perm.encode();
        for n in [
            s.stime,
            s.rtime,
            s.ctime,
            s.bytes as i64,
            s.msgs.len() as i64,
            s.max_bytes as i64,
        ] {
            v.extend_from_slice(&n.to_le_bytes());
        }
        v.extend_from_slice(&s.lspid.to_le_bytes());
        v.extend_from_slice(&s.lrpid.to_le_bytes());
        v.resize(120, 0);
        v
    }
    /// Its line of `/proc/sysvipc/msg`.
    #[must_use]
    pub fn line(&self, to: &dyn Numbers) -> String {
        let s = self.state.lock();
        let (head, owners) = s.perm.columns(self.id, to);
        let [last_sent, last_received] = [s.lspid, s.lrpid].map(|p| to.process(p));
        format!(
            "{head}  {:10} {:10} {last_sent:5} {last_received:5} {owners} {:10} {:10} {:10}\n",
            s.bytes,
            s.msgs.len(),
            s.stime,
            s.rtime,
            s.ctime
        )
    }
    /// Messages and bytes, for MSG_INFO.
    #[must_use]
    pub fn usage(&self) -> (usize, usize) {
        let s = self.state.lock();
        (s.msgs.len(), s.bytes)
    }
}
