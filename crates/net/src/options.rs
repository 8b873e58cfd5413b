//! Socket options that mean the same for all kinds of sockets (`socket(7)`), and the part of a
//! socket that its protocol and its peers share.

use crate::control::Ucred;
use crate::ns::NetNamespace;
use crate::sys::SOCK_STREAM;
use abi::Result;
use abi::errno::{EDOM, EINVAL, ENFILE, ENODEV, ENOPROTOOPT, EPERM, Errno};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use vfs::ucounts::{Charge, Kind, Ucounts};
use vfs::{Caps, Credentials};
use wait::{Events, WaitQueue};

const SO_DEBUG: i32 = 1;
pub const SO_REUSEADDR: i32 = 2;
const SO_TYPE: i32 = 3;
pub const SO_ERROR: i32 = 4;
const SO_DONTROUTE: i32 = 5;
pub const SO_BROADCAST: i32 = 6;
const SO_SNDBUF: i32 = 7;
const SO_RCVBUF: i32 = 8;
pub const SO_KEEPALIVE: i32 = 9;
const SO_OOBINLINE: i32 = 10;
const SO_NO_CHECK: i32 = 11;
const SO_PRIORITY: i32 = 12;
pub const SO_LINGER: i32 = 13;
pub const SO_REUSEPORT: i32 = 15;
pub const SO_PASSCRED: i32 = 16;
pub const SO_PEERCRED: i32 = 17;
const SO_RCVLOWAT: i32 = 18;
const SO_SNDLOWAT: i32 = 19;
const SO_RCVTIMEO: i32 = 20;
const SO_SNDTIMEO: i32 = 21;
pub const SO_BINDTODEVICE: i32 = 25;
pub const SO_ATTACH_FILTER: i32 = 26;
const SO_DETACH_FILTER: i32 = 27;
const SO_PEERNAME: i32 = 28;
pub const SO_TIMESTAMP: i32 = 29;
pub const SO_ACCEPTCONN: i32 = 30;
const SO_PEERSEC: i32 = 31;
const SO_SNDBUFFORCE: i32 = 32;
const SO_RCVBUFFORCE: i32 = 33;
const SO_PASSSEC: i32 = 34;
pub const SO_TIMESTAMPNS: i32 = 35;
const SO_MARK: i32 = 36;
const SO_PROTOCOL: i32 = 38;
const SO_DOMAIN: i32 = 39;
const SO_RXQ_OVFL: i32 = 40;
const SO_PEEK_OFF: i32 = 42;
const SO_LOCK_FILTER: i32 = 44;
const SO_SELECT_ERR_QUEUE: i32 = 45;
const SO_BUSY_POLL: i32 = 46;
const SO_MAX_PACING_RATE: i32 = 47;
const SO_BPF_EXTENSIONS: i32 = 48;
const SO_INCOMING_CPU: i32 = 49;
const SO_ATTACH_BPF: i32 = 50;
const SO_COOKIE: i32 = 57;
const SO_PEERGROUPS: i32 = 59;
const SO_ZEROCOPY: i32 = 60;
const SO_BINDTOIFINDEX: i32 = 62;
const SO_RCVTIMEO_NEW: i32 = 66;
const SO_SNDTIMEO_NEW: i32 = 67;
const SO_NETNS_COOKIE: i32 = 71;
const SO_PASSPIDFD: i32 = 76;

/// `net.core.{r,w}mem_default` and `_max`.
pub const BUF_DEFAULT: u32 = 212_992;
pub const BUF_MAX: u32 = 212_992;
/// Those of TCP, for sending and receiving, where nobody has set them.
pub const TCP_BUFFERS: (u32, u32) = (87_040, 131_072);
/// `SKF_AD_MAX`: how much beyond a packet filters may load.
const BPF_EXTENSIONS: i32 = 64;
/// The smallest buffers: SOCK_MIN_SNDBUF, SOCK_MIN_RCVBUF.
const SNDBUF_MIN: u32 = 4608;
const RCVBUF_MIN: u32 = 2304;

/// On/off options: bit N for option N, which are all below 128.
#[derive(Default)]
struct Flags([AtomicU32; 4]);

/// What the protocol, the open file and the peers of a socket share.
pub struct Common {
    pub ns: Arc<NetNamespace>,
    pub family: u16,
    pub kind: u32,
    pub protocol: i32,
    /// Unique in the namespace: `st_ino`.
    pub ino: u64,
    /// Who called `socket(2)`.
    pub creator: OnceLock<Ucred>,
    /// Whose memory its buffers are: the creator's, the listener's. None in tests, and for the
    /// kernel's own.
    pub user: OnceLock<Arc<Ucounts>>,
    /// What a connection takes that no open file stands for yet: its maker's.
    memory: OnceLock<Charge>,
    pub queue: WaitQueue,
    /// SO_ERROR: what the next call must report, 0 for nothing.
    error: AtomicI32,
    flags: Flags,
    pub sndbuf: AtomicU32,
    pub rcvbuf: AtomicU32,
    /// Seconds; -1 when off.
    pub linger: AtomicI32,
    /// Nanoseconds; 0 for no limit.
    pub rcvtimeo: AtomicI64,
    pub sndtimeo: AtomicI64,
    rcvlowat: AtomicI32,
    priority: AtomicI32,
    mark: AtomicI32,
    device: AtomicI32,
    others: Mutex<Vec<(i32, i32)>>,
}

/// What a connection takes of the kernel's memory while it waits to be accepted.
const CONNECTION: u64 = 2048;

impl Common {
    pub fn new(ns: &Arc<NetNamespace>, family: u16, kind: u32, protocol: i32) -> Arc<Common> {
        let tcp = kind == SOCK_STREAM && crate::addr::is_inet(family);
        Arc::new(Common {
            ns: ns.clone(),
            family,
            kind,
            protocol,
            ino: ns.next_ino(),
            creator: OnceLock::new(),
            user: OnceLock::new(),
            memory: OnceLock::new(),
            queue: WaitQueue::new(),
            error: AtomicI32::new(0),
            flags: Flags::default(),
            sndbuf: AtomicU32::new(if tcp { TCP_BUFFERS.0 } else { BUF_DEFAULT }),
            rcvbuf: AtomicU32::new(if tcp { TCP_BUFFERS.1 } else { BUF_DEFAULT }),
            linger: AtomicI32::new(-1),
            rcvtimeo: AtomicI64::new(0),
            sndtimeo: AtomicI64::new(0),
            rcvlowat: AtomicI32::new(1),
            priority: AtomicI32::new(0),
            mark: AtomicI32::new(0),
            device: AtomicI32::new(0),
            others: Mutex::new(Vec::new()),
        })
    }

    /// A connection that a listener gives to `to`: its options are the listener's, its memory is
    /// counted for who connects.
    pub fn inherit(from: &Common, to: &Common) -> Arc<Common> {
        let c = Common::new(&from.ns, from.family, from.kind, from.protocol);
        if let Some(u) = to.user.get() {
            let _ = c.memory.set(u.force(Kind::Kmem, CONNECTION));
        }
        for (a, b) in c.flags.0.iter().zip(&from.flags.0) {
            a.store(b.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        c.sndbuf
            .store(from.sndbuf.load(Ordering::Relaxed), Ordering::Relaxed);
        c.rcvbuf
            .store(from.rcvbuf.load(Ordering::Relaxed), Ordering::Relaxed);
        c.linger
            .store(from.linger.load(Ordering::Relaxed), Ordering::Relaxed);
        c.rcvtimeo
            .store(from.rcvtimeo.load(Ordering::Relaxed), Ordering::Relaxed);
        c.sndtimeo
            .store(from.sndtimeo.load(Ordering::Relaxed), Ordering::Relaxed);
        if let Some(u) = from.user.get() {
            let _ = c.user.set(u.clone());
        }
        if let Some(who) = from
            .creator
            .get()
            .filter(|_| crate::addr::is_inet(c.family))
        {
            let _ = c.creator.set(*who);
        }
        c.mark.store(from.mark(), Ordering::Relaxed);
        c.rcvlowat
            .store(from.rcvlowat.load(Ordering::Relaxed), Ordering::Relaxed);
        c
    }

    /// The user whose it is, as ids are outside of all user namespaces; root where it is nobody's.
    pub fn outermost_user(&self) -> u32 {
        self.user.get().map_or(0, |u| u.outermost().uid())
    }
    /// A descriptor of the host's for this socket: `ENFILE` where the user holds too many.
    pub fn charge_descriptor(&self) -> Result<Option<Charge>> {
        let Some(u) = self.user.get() else {
            return Ok(None);
        };
        let c = u.charge(Kind::HostFiles, 1, u64::MAX);
        c.map(Some).ok_or(ENFILE)
    }

    /// Whether an on/off option is on.
    pub fn flag(&self, name: i32) -> bool {
        self.flags.0[name as usize / 32 % 4].load(Ordering::Relaxed) & (1 << (name % 32)) != 0
    }
    fn set_flag(&self, name: i32, on: bool) {
        let word = &self.flags.0[name as usize / 32 % 4];
        if on {
            word.fetch_or(1 << (name % 32), Ordering::Relaxed);
        } else {
            word.fetch_and(!(1 << (name % 32)), Ordering::Relaxed);
        }
    }

    /// Takes the pending error.
    pub fn take_error(&self) -> Result<()> {
        if self.error.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        Errno::new(self.error.swap(0, Ordering::AcqRel)).map_or(Ok(()), Err)
    }
    pub fn has_error(&self) -> bool {
        self.error.load(Ordering::Acquire) != 0
    }
    /// Sets the pending error; the caller notifies.
    pub fn set_error(&self, e: Errno) {
        self.error.store(e.raw(), Ordering::Release);
    }
    pub fn notify(&self, e: Events) {
        self.queue.notify(e);
    }
    pub fn rcvlowat(&self) -> usize {
        self.rcvlowat.load(Ordering::Relaxed).max(1) as usize
    }

    /// `setsockopt(2)` at SOL_SOCKET.
    pub fn set(&self, name: i32, v: &[u8], cred: &Credentials) -> Result<()> {
        if name == SO_BINDTODEVICE {
            return self.bind_to_device(v, cred);
        }
        let int = int_of(v)?;
        let on = int != 0;
        match name {
            SO_DEBUG if on && !cred.has(Caps::NET_ADMIN) => return Err(abi::errno::EACCES),
            SO_DEBUG | SO_REUSEADDR | SO_REUSEPORT | SO_DONTROUTE | SO_BROADCAST | SO_KEEPALIVE
            | SO_OOBINLINE | SO_NO_CHECK | SO_PASSSEC | SO_RXQ_OVFL | SO_LOCK_FILTER
            | SO_SELECT_ERR_QUEUE => self.set_flag(name, on),
            SO_TIMESTAMP | SO_TIMESTAMPNS => {
                self.set_flag(SO_TIMESTAMP, on && name == SO_TIMESTAMP);
                self.set_flag(SO_TIMESTAMPNS, on && name == SO_TIMESTAMPNS);
            }
            SO_PASSCRED | SO_PASSPIDFD => {
                if self.family != crate::sys::AF_UNIX && self.family != crate::sys::AF_NETLINK {
                    return Err(abi::errno::EOPNOTSUPP);
                }
                self.set_flag(name, on);
            }
            SO_ZEROCOPY => {
                if !(0..=1).contains(&int) {
                    return Err(EINVAL);
                }
                self.set_flag(name, on);
            }
            SO_SNDBUF | SO_SNDBUFFORCE => {
                let n = self.buffer(name == SO_SNDBUFFORCE, int, cred)?;
                self.sndbuf.store(n.max(SNDBUF_MIN), Ordering::Relaxed);
                self.notify(Events::WRITABLE);
            }
            SO_RCVBUF | SO_RCVBUFFORCE => {
                let n = self.buffer(name == SO_RCVBUFFORCE, int, cred)?;
                self.rcvbuf.store(n.max(RCVBUF_MIN), Ordering::Relaxed);
            }
            SO_PRIORITY | SO_MARK => self.set_routing(name, int, cred)?,
            SO_LINGER => self.set_linger(v)?,
            SO_RCVLOWAT => {
                let n = if int < 0 { i32::MAX } else { int.max(1) };
                self.rcvlowat.store(n, Ordering::Relaxed);
                self.notify(Events::READABLE);
            }
            SO_RCVTIMEO | SO_RCVTIMEO_NEW => self.rcvtimeo.store(timeout(v)?, Ordering::Relaxed),
            SO_SNDTIMEO | SO_SNDTIMEO_NEW => self.sndtimeo.store(timeout(v)?, Ordering::Relaxed),
            SO_PEEK_OFF if int >= 0 => return Err(abi::errno::EOPNOTSUPP),
            SO_PEEK_OFF => {}
            SO_BINDTOIFINDEX => {
                if int < 0 {
                    return Err(EINVAL);
                }
                self.set_device(int, cred)?;
            }
            SO_BUSY_POLL | SO_MAX_PACING_RATE | SO_INCOMING_CPU => {
                let mut o = self.others.lock();
                o.retain(|(n, _)| *n != name);
                o.push((name, int));
            }
            // (Packet sockets have filters; here, what is joined in memory has no packets to
            // filter.)
            SO_ATTACH_FILTER | SO_ATTACH_BPF => return Err(EPERM),
            SO_DETACH_FILTER => return Err(abi::errno::ENOENT),
            _ => return Err(ENOPROTOOPT),
        }
        Ok(())
    }

    /// `SO_BINDTODEVICE`: the device's name, or none.
    fn bind_to_device(&self, v: &[u8], cred: &Credentials) -> Result<()> {
        const IFNAMSIZ: usize = 16;
        let v = &v[..v.len().min(IFNAMSIZ - 1)];
        let end = v.iter().position(|&b| b == 0).unwrap_or(v.len());
        let index = match &v[..end] {
            [] => 0,
            name => self.ns.device_by_name(name).ok_or(ENODEV)?,
        };
        self.set_device(index, cred)
    }

    /// Who is bound to a device needs CAP_NET_RAW to leave it.
    fn set_device(&self, index: i32, cred: &Credentials) -> Result<()> {
        if self.device() != 0 && !cred.has_in(&self.ns.user, Caps::NET_RAW) {
            return Err(EPERM);
        }
        if index != 0 && !self.ns.has_device(index) {
            return Err(ENODEV);
        }
        self.device.store(index, Ordering::Relaxed);
        Ok(())
    }

    /// The index of the only device that the socket uses; 0: all.
    pub fn device(&self) -> i32 {
        self.device.load(Ordering::Relaxed)
    }

    /// `SO_MARK`.
    pub fn mark(&self) -> i32 {
        self.mark.load(Ordering::Relaxed)
    }

    /// Whether it takes what comes by a device.
    pub fn takes_from(&self, device: i32) -> bool {
        let only = self.device();
        only == 0 || only == device
    }

    /// What packets are marked with: `SO_PRIORITY`, `SO_MARK`.
    fn set_routing(&self, name: i32, int: i32, cred: &Credentials) -> Result<()> {
        let is_free = name == SO_PRIORITY && (0..=6).contains(&int);
        if !is_free && !cred.has_in(&self.ns.user, Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        let mark = match name {
            SO_PRIORITY => &self.priority,
            _ => &self.mark,
        };
        mark.store(int, Ordering::Relaxed);
        Ok(())
    }

    /// `SO_LINGER`: a `struct linger`.
    fn set_linger(&self, v: &[u8]) -> Result<()> {
        if v.len() < 8 {
            return Err(EINVAL);
        }
        let secs = i32::from_le_bytes([v[4], v[5], v[6], v[7]]);
        let on = int_of(v)? != 0;
        let secs = if on { secs.max(0) } else { -1 };
        self.linger.store(secs, Ordering::Relaxed);
        Ok(())
    }

    /// Linux doubles what it is asked for, to account for its own overhead.
    fn buffer(&self, force: bool, int: i32, cred: &Credentials) -> Result<u32> {
        if force && !cred.has(Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        let max = if force { i32::MAX as u32 / 2 } else { BUF_MAX };
        let asked = if force { int.max(0) as u32 } else { int as u32 };
        // Even the forced size is bounded here: this memory is the sandbox's.
        Ok(asked.min(max).min(16 << 20) * 2)
    }

    /// `getsockopt(2)` at SOL_SOCKET; `None` for the protocol's own.
    pub fn get(&self, name: i32) -> Option<Result<Vec<u8>>> {
        let int = |v: i32| Some(Ok(v.to_le_bytes().to_vec()));
        match name {
            SO_DEBUG | SO_REUSEADDR | SO_REUSEPORT | SO_DONTROUTE | SO_BROADCAST | SO_KEEPALIVE
            | SO_OOBINLINE | SO_NO_CHECK | SO_PASSSEC | SO_RXQ_OVFL | SO_LOCK_FILTER
            | SO_SELECT_ERR_QUEUE | SO_TIMESTAMP | SO_TIMESTAMPNS | SO_PASSCRED | SO_PASSPIDFD
            | SO_ZEROCOPY => int(i32::from(self.flag(name))),
            SO_TYPE => int(self.kind as i32),
            SO_DOMAIN => int(i32::from(self.family)),
            SO_PROTOCOL => int(self.protocol),
            SO_ERROR => int(self.error.swap(0, Ordering::AcqRel)),
            SO_SNDBUF => int(self.sndbuf.load(Ordering::Relaxed) as i32),
            SO_RCVBUF => int(self.rcvbuf.load(Ordering::Relaxed) as i32),
            SO_PRIORITY => int(self.priority.load(Ordering::Relaxed)),
            SO_MARK => int(self.mark.load(Ordering::Relaxed)),
            SO_LINGER => {
                let l = self.linger.load(Ordering::Relaxed);
                let mut v = i32::from(l >= 0).to_le_bytes().to_vec();
                v.extend_from_slice(&l.max(0).to_le_bytes());
                Some(Ok(v))
            }
            SO_RCVLOWAT => int(self.rcvlowat.load(Ordering::Relaxed)),
            SO_SNDLOWAT => int(1),
            SO_RCVTIMEO | SO_RCVTIMEO_NEW => {
                Some(Ok(timeval(self.rcvtimeo.load(Ordering::Relaxed))))
            }
            SO_SNDTIMEO | SO_SNDTIMEO_NEW => {
                Some(Ok(timeval(self.sndtimeo.load(Ordering::Relaxed))))
            }
            SO_PEEK_OFF => int(-1),
            SO_BINDTODEVICE => {
                let name = self.ns.device_name(self.device());
                Some(Ok(
                    name.map_or_else(Vec::new, |n| [n.as_bytes(), b"\0"].concat())
                ))
            }
            SO_BINDTOIFINDEX => int(self.device()),
            SO_BUSY_POLL | SO_MAX_PACING_RATE | SO_INCOMING_CPU => {
                let o = self.others.lock();
                let default = if name == SO_BUSY_POLL { 0 } else { -1 };
                int(o
                    .iter()
                    .find(|(n, _)| *n == name)
                    .map_or(default, |(_, v)| *v))
            }
            SO_BPF_EXTENSIONS => int(BPF_EXTENSIONS),
            SO_COOKIE => Some(Ok(self.ino.to_le_bytes().to_vec())),
            SO_NETNS_COOKIE => Some(Ok(1u64.to_le_bytes().to_vec())),
            SO_PEERCRED if self.family != crate::sys::AF_UNIX => Some(Ok(Ucred::NOBODY.encode())),
            SO_PEERSEC => Some(Err(ENOPROTOOPT)),
            SO_PEERGROUPS => Some(Err(abi::errno::ENODATA)),
            SO_ACCEPTCONN | SO_PEERCRED | SO_PEERNAME => None,
            _ => Some(Err(ENOPROTOOPT)),
        }
    }
}

/// An `int` option value.
pub fn int_of(v: &[u8]) -> Result<i32> {
    match v {
        [a, b, c, d, ..] => Ok(i32::from_le_bytes([*a, *b, *c, *d])),
        _ => Err(EINVAL),
    }
}

/// A `struct timeval` as nanoseconds; 0 for no limit.
fn timeout(v: &[u8]) -> Result<i64> {
    if v.len() < 16 {
        return Err(EINVAL);
    }
    let word = |at: usize| {
        let mut b = [0; 8];
        b.copy_from_slice(&v[at..at + 8]);
        i64::from_le_bytes(b)
    };
    let (sec, usec) = (word(0), word(8));
    if !(0..1_000_000).contains(&usec) {
        return Err(EDOM);
    }
    if sec < 0 {
        // Linux: at once. The shortest wait that is not "no limit".
        return Ok(1);
    }
    Ok(sec
        .saturating_mul(1_000_000_000)
        .saturating_add(usec * 1000))
}

fn timeval(ns: i64) -> Vec<u8> {
    let mut v = (ns / 1_000_000_000).to_le_bytes().to_vec();
    v.extend_from_slice(&(ns % 1_000_000_000 / 1000).to_le_bytes());
    v
}
