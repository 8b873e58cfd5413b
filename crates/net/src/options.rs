//! Socket options that mean the same for all kinds of sockets (`socket(7)`), and the part of a
//! socket that its protocol and its peers share.

use crate::addr::is_inet;
use crate::control::Ucred;
use crate::filters::{Filter, Membership, SocketFilter};
use crate::ns::NetNamespace;
use crate::peeks::PeekOffset;
use crate::stamps::Stamps;
use crate::sys::{AF_NETLINK, AF_UNIX, SOCK_DGRAM, SOCK_RAW, SOCK_STREAM};
use crate::tcp_memory::Level;
use abi::Result;
use abi::errno::{
    EACCES, EDOM, EINVAL, ENFILE, ENODEV, ENOENT, ENOPROTOOPT, EOPNOTSUPP, EPERM, Errno,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vfs::landlock::Domain;
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
pub const SO_OOBINLINE: i32 = 10;
const SO_NO_CHECK: i32 = 11;
pub const SO_PRIORITY: i32 = 12;
pub const SO_LINGER: i32 = 13;
const SO_BSDCOMPAT: i32 = 14;
pub const SO_REUSEPORT: i32 = 15;
pub const SO_PASSCRED: i32 = 16;
pub const SO_PEERCRED: i32 = 17;
const SO_RCVLOWAT: i32 = 18;
const SO_SNDLOWAT: i32 = 19;
const SO_RCVTIMEO: i32 = 20;
const SO_SNDTIMEO: i32 = 21;
pub const SO_BINDTODEVICE: i32 = 25;
pub const SO_ATTACH_FILTER: i32 = 26;
pub const SO_DETACH_FILTER: i32 = 27;
const SO_PEERNAME: i32 = 28;
pub const SO_ACCEPTCONN: i32 = 30;
const SO_PEERSEC: i32 = 31;
const SO_SNDBUFFORCE: i32 = 32;
const SO_RCVBUFFORCE: i32 = 33;
const SO_PASSSEC: i32 = 34;
pub const SO_MARK: i32 = 36;
const SO_PROTOCOL: i32 = 38;
const SO_DOMAIN: i32 = 39;
pub const SO_RXQ_OVFL: i32 = 40;
const SO_WIFI_STATUS: i32 = 41;
const SO_PEEK_OFF: i32 = 42;
const SO_NOFCS: i32 = 43;
pub const SO_LOCK_FILTER: i32 = 44;
pub const SO_SELECT_ERR_QUEUE: i32 = 45;
const SO_BUSY_POLL: i32 = 46;
const SO_MAX_PACING_RATE: i32 = 47;
const SO_BPF_EXTENSIONS: i32 = 48;
const SO_INCOMING_CPU: i32 = 49;
pub const SO_ATTACH_BPF: i32 = 50;
pub const SO_ATTACH_REUSEPORT_CBPF: i32 = 51;
pub const SO_ATTACH_REUSEPORT_EBPF: i32 = 52;
pub const SO_DETACH_REUSEPORT_BPF: i32 = 68;
const SO_CNX_ADVICE: i32 = 53;
pub const SO_MEMINFO: i32 = 55;
const SO_INCOMING_NAPI_ID: i32 = 56;
const SO_COOKIE: i32 = 57;
pub const SO_PEERGROUPS: i32 = 59;
const SO_ZEROCOPY: i32 = 60;
pub const SO_TXTIME: i32 = 61;
const SO_BINDTOIFINDEX: i32 = 62;
const SO_RCVTIMEO_NEW: i32 = 66;
const SO_SNDTIMEO_NEW: i32 = 67;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
const SO_NETNS_COOKIE: i32 = 71;
const SO_BUF_LOCK: i32 = 72;
const SO_RESERVE_MEM: i32 = 73;
const SO_TXREHASH: i32 = 74;
/// `SOCK_SNDBUF_LOCK`, `SOCK_RCVBUF_LOCK`.
const SNDBUF_LOCK: u32 = 1;
const RCVBUF_LOCK: u32 = 2;
pub const SO_RCVMARK: i32 = 75;
pub const SO_PASSPIDFD: i32 = 76;
pub const SO_PEERPIDFD: i32 = 77;
pub const SO_RCVPRIORITY: i32 = 82;

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
    /// What whoever that was is confined to.
    pub landlock: OnceLock<Domain>,
    /// UNIX: whose groups SO_PEERGROUPS tells.
    peer: OnceLock<Arc<Credentials>>,
    /// Whose memory its buffers are: the creator's, the listener's. None in tests, and for the
    /// kernel's own.
    pub user: OnceLock<Arc<Ucounts>>,
    /// What a connection takes that no open file stands for yet: its maker's.
    memory: OnceLock<Charge>,
    pub queue: WaitQueue,
    /// SO_ERROR: what the next call must report, 0 for nothing.
    error: AtomicI32,
    /// TCP: the last send has put bytes into a SYN. A call that does not wait ends after these; one
    /// that waits succeeds when the connection does.
    opens_by_send: AtomicBool,
    flags: Flags,
    pub sndbuf: AtomicU32,
    pub rcvbuf: AtomicU32,
    /// SO_LINGER's seconds, which outlast its being off. The flag says whether it is on.
    linger: AtomicU32,
    /// Nanoseconds; 0 for no limit.
    pub rcvtimeo: AtomicI64,
    pub sndtimeo: AtomicI64,
    rcvlowat: AtomicI32,
    priority: AtomicI32,
    mark: AtomicI32,
    device: AtomicI32,
    pub stamps: Stamps,
    /// SO_ATTACH_FILTER, and SO_ATTACH_REUSEPORT_CBPF.
    pub filter: SocketFilter,
    pub chooser: Membership,
    /// SO_PEEK_OFF.
    pub peeks: PeekOffset,
    /// SO_MAX_PACING_RATE, bytes a second.
    pacing: AtomicU64,
    /// SO_TXTIME: a clock and flags.
    txtime: AtomicU64,
    /// SO_BUF_LOCK: which sizes of buffers were set.
    locked: AtomicU32,
    others: Mutex<Vec<(i32, i32)>>,
}

/// Whether a program that chooses comes before the socket takes what comes, or after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chosen {
    Before,
    After,
}

/// What a connection takes of the kernel's memory while it waits to be accepted.
const CONNECTION: u64 = 2048;

/// The most that a buffer can be set to, even with force or by a namespace's settings: it is the
/// sandbox's memory.
const BUFFER_MOST: u32 = 32 << 20;

/// What a TCP socket's buffers are to begin with: to send, to receive (`net.ipv4.tcp_wmem`'s and
/// `tcp_rmem`'s middle).
fn tcp_buffers(ns: &NetNamespace) -> (u32, u32) {
    let kept = |name| {
        let kept = ns.kept_at(name, 1).and_then(|n| u32::try_from(n).ok());
        kept.map(|n| n.min(BUFFER_MOST))
    };
    (
        kept("tcp_wmem").unwrap_or(TCP_BUFFERS.0),
        kept("tcp_rmem").unwrap_or(TCP_BUFFERS.1),
    )
}

impl Common {
    pub fn new(ns: &Arc<NetNamespace>, family: u16, kind: u32, protocol: i32) -> Arc<Common> {
        let tcp = kind == SOCK_STREAM && crate::addr::is_inet(family);
        let (send, receive) = match tcp {
            true => tcp_buffers(ns),
            false => (BUF_DEFAULT, BUF_DEFAULT),
        };
        Arc::new(Common {
            ns: ns.clone(),
            family,
            kind,
            protocol,
            ino: ns.next_ino(),
            creator: OnceLock::new(),
            landlock: OnceLock::new(),
            peer: OnceLock::new(),
            user: OnceLock::new(),
            memory: OnceLock::new(),
            queue: WaitQueue::new(),
            error: AtomicI32::new(0),
            opens_by_send: AtomicBool::new(false),
            flags: Flags::default(),
            sndbuf: AtomicU32::new(send),
            rcvbuf: AtomicU32::new(receive),
            linger: AtomicU32::new(0),
            rcvtimeo: AtomicI64::new(0),
            sndtimeo: AtomicI64::new(0),
            rcvlowat: AtomicI32::new(1),
            priority: AtomicI32::new(0),
            mark: AtomicI32::new(0),
            device: AtomicI32::new(0),
            stamps: Stamps::default(),
            filter: SocketFilter::default(),
            chooser: Membership::default(),
            peeks: PeekOffset::default(),
            pacing: AtomicU64::new(u64::MAX),
            txtime: AtomicU64::new(0),
            locked: AtomicU32::new(0),
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
        c.locked
            .store(from.locked.load(Ordering::Relaxed), Ordering::Relaxed);
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
        c.peeks.set(from.peeks.get());
        if from.filter.is_on() {
            c.filter.set(from.filter.get());
        }
        c.stamps.inherit(&from.stamps);
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
    /// Whether all connections together hold what they may.
    pub(crate) fn lacks_tcp_memory(&self) -> bool {
        self.ns.tcp_memory.level() == Level::None
    }
    /// Whether its user has all the memory that it may have.
    pub(crate) fn is_pressed(&self) -> bool {
        self.user.get().is_some_and(|u| u.is_over(Kind::Kmem))
    }
    /// Tells it once.
    pub fn takes_opens_by_send(&self) -> bool {
        let opens = self.opens_by_send.load(Ordering::Relaxed);
        if opens {
            self.opens_by_send.store(false, Ordering::Relaxed);
        }
        opens
    }
    pub fn sets_opens_by_send(&self) {
        self.opens_by_send.store(true, Ordering::Relaxed);
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
        self.check(name, on)?;
        match name {
            SO_BSDCOMPAT => {}
            SO_TXTIME => self.set_txtime(v, cred)?,
            SO_DEBUG if on && !cred.has(Caps::NET_ADMIN) => return Err(EACCES),
            SO_DEBUG | SO_REUSEADDR | SO_REUSEPORT | SO_DONTROUTE | SO_BROADCAST | SO_KEEPALIVE
            | SO_OOBINLINE | SO_NO_CHECK | SO_PASSSEC | SO_RXQ_OVFL | SO_SELECT_ERR_QUEUE
            | SO_WIFI_STATUS | SO_NOFCS => self.set_flag(name, on),
            SO_LOCK_FILTER if self.flag(name) && !on => return Err(EPERM),
            SO_LOCK_FILTER => self.set_flag(name, on),
            _ if Stamps::has(name) => self.stamps.set(name, int)?,
            SO_PASSCRED | SO_PASSPIDFD => self.set_flag(name, on),
            SO_ZEROCOPY => {
                if !(0..=1).contains(&int) {
                    return Err(EINVAL);
                }
                self.set_flag(name, on);
            }
            SO_SNDBUF | SO_SNDBUFFORCE | SO_RCVBUF | SO_RCVBUFFORCE => {
                self.set_buffer(name, int, cred)?;
            }
            SO_RCVPRIORITY => self.set_flag(name, on),
            SO_RCVMARK if !self.may_mark(cred) => return Err(EPERM),
            SO_RCVMARK => self.set_flag(name, on),
            SO_PRIORITY | SO_MARK => self.set_routing(name, int, cred)?,
            SO_LINGER => self.set_linger(v)?,
            SO_RCVLOWAT => {
                let n = if int < 0 { i32::MAX } else { int.max(1) };
                self.rcvlowat.store(n, Ordering::Relaxed);
                self.notify(Events::READABLE);
            }
            SO_RCVTIMEO | SO_RCVTIMEO_NEW => self.rcvtimeo.store(timeout(v)?, Ordering::Relaxed),
            SO_SNDTIMEO | SO_SNDTIMEO_NEW => self.sndtimeo.store(timeout(v)?, Ordering::Relaxed),
            SO_PEEK_OFF => self.peeks.set(int),
            SO_BINDTOIFINDEX => {
                // (Linux takes one that there is not.)
                if int < 0 {
                    return Err(EINVAL);
                }
                self.set_device(int, cred)?;
            }
            SO_MAX_PACING_RATE => self.pacing.store(rate(v, int), Ordering::Relaxed),
            SO_CNX_ADVICE => {}
            _ if kept::has(name) => {
                let n = kept::check(name, int, || cred.has_in(&self.ns.user, Caps::NET_ADMIN))?;
                let mut o = self.others.lock();
                o.retain(|(n, _)| *n != name);
                o.push((name, n));
            }
            SO_RESERVE_MEM if int < 0 => return Err(EINVAL),
            SO_RESERVE_MEM => return Err(abi::errno::EOPNOTSUPP),
            SO_BUF_LOCK => {
                if int & !3 != 0 {
                    return Err(EINVAL);
                }
                self.locked.store(int as u32, Ordering::Relaxed);
            }
            _ => return self.set_program(name, v),
        }
        Ok(())
    }

    /// Whether the sizes of its buffers, to send and to receive, are left to the kernel.
    pub(crate) fn tunes(&self) -> (bool, bool) {
        let locked = self.locked.load(Ordering::Relaxed);
        (locked & SNDBUF_LOCK == 0, locked & RCVBUF_LOCK == 0)
    }

    /// How large the send buffer of a TCP connection is. One that is left to the kernel becomes as
    /// large as Linux's does once there is a peer (`tcp_sndbuf_expand`).
    pub(crate) fn connected_sndbuf(&self) -> u32 {
        let set = self.sndbuf.load(Ordering::Relaxed);
        if set >= TCP_BUFFERS.0 || !self.tunes().0 {
            return set;
        }
        let most = self.ns.kept_at("tcp_wmem", 2);
        let most = most.and_then(|n| u32::try_from(n).ok());
        set.max(most.map_or(TCP_BUFFERS.0, |n| n.min(TCP_BUFFERS.0)))
    }

    fn set_buffer(&self, name: i32, int: i32, cred: &Credentials) -> Result<()> {
        let n = self.buffer(matches!(name, SO_SNDBUFFORCE | SO_RCVBUFFORCE), int, cred)?;
        if matches!(name, SO_SNDBUF | SO_SNDBUFFORCE) {
            self.sndbuf.store(n.max(SNDBUF_MIN), Ordering::Relaxed);
            self.locked.fetch_or(SNDBUF_LOCK, Ordering::Relaxed);
            self.notify(Events::WRITABLE);
        } else {
            self.rcvbuf.store(n.max(RCVBUF_MIN), Ordering::Relaxed);
            self.locked.fetch_or(RCVBUF_LOCK, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Those of programs that look at what comes.
    fn set_program(&self, name: i32, v: &[u8]) -> Result<()> {
        match name {
            SO_ATTACH_FILTER => self.filter.set(Some(Arc::new(self.program(v)?))),
            SO_DETACH_FILTER if self.flag(SO_LOCK_FILTER) => return Err(EPERM),
            SO_DETACH_FILTER => self.filter.detach()?,
            // Nobody can make programs of the larger kind for sockets.
            SO_ATTACH_BPF | SO_ATTACH_REUSEPORT_EBPF | SO_ATTACH_REUSEPORT_CBPF
                if self.flag(SO_LOCK_FILTER) =>
            {
                return Err(EPERM);
            }
            SO_ATTACH_BPF | SO_ATTACH_REUSEPORT_EBPF => return Err(EINVAL),
            // The sockets that share ports say so themselves.
            SO_ATTACH_REUSEPORT_CBPF | SO_DETACH_REUSEPORT_BPF => return Err(EINVAL),
            _ => return Err(ENOPROTOOPT),
        }
        Ok(())
    }

    /// A program, checked: `EPERM` where the socket's is locked.
    fn program(&self, v: &[u8]) -> Result<Filter> {
        if self.flag(SO_LOCK_FILTER) {
            return Err(EPERM);
        }
        Filter::new(v, self.user.get())
    }

    /// Has a program choose who of those at its port gets what comes
    /// (`reuseport_attach_prog`). One that shares its port has a group from when it is bound.
    pub fn set_chooser(&self, name: i32, v: &[u8], bound: Chosen) -> Result<()> {
        let has_group = self.chooser.get().is_some();
        let shares = self.flag(SO_REUSEPORT);
        if name == SO_DETACH_REUSEPORT_BPF {
            int_of(v)?;
            let old = self.chooser.detach().map(drop);
            return old.ok_or(if shares { ENOENT } else { EINVAL });
        }
        let program = self.program(v)?;
        let may = match bound {
            Chosen::Before => shares,
            Chosen::After => has_group,
        };
        if !may {
            return Err(EINVAL);
        }
        self.chooser.attach(program);
        Ok(())
    }

    /// What sockets of some kinds do not have.
    fn check(&self, name: i32, on: bool) -> Result<()> {
        let is_unix = self.family == AF_UNIX;
        let is_tcp = self.kind == SOCK_STREAM && is_inet(self.family);
        let has = match name {
            SO_REUSEPORT => !on || is_inet(self.family),
            SO_PASSCRED | SO_PASSSEC => is_unix || self.family == AF_NETLINK,
            SO_PASSPIDFD => is_unix,
            SO_ZEROCOPY => is_tcp || self.kind == SOCK_DGRAM && is_inet(self.family),
            SO_TXREHASH => is_tcp,
            SO_PEEK_OFF => is_unix || is_inet(self.family) && self.kind != SOCK_RAW,
            _ => true,
        };
        has.then_some(()).ok_or(EOPNOTSUPP)
    }

    /// `SO_TXTIME`: a clock, and flags. No device here sends later.
    fn set_txtime(&self, v: &[u8], cred: &Credentials) -> Result<()> {
        const CLOCK_MONOTONIC: u32 = 1;
        const FLAGS: u32 = 3;
        let v: [u8; 8] = v.try_into().map_err(|_| EINVAL)?;
        let v = u64::from_le_bytes(v);
        if (v >> 32) as u32 & !FLAGS != 0 {
            return Err(EINVAL);
        }
        if v as u32 != CLOCK_MONOTONIC && !cred.has_in(&self.ns.user, Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        self.txtime.store(v, Ordering::Relaxed);
        self.set_flag(SO_TXTIME, true);
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

    /// Who is at the other end of a UNIX connection.
    pub fn set_peer(&self, cred: &Arc<Credentials>) {
        let _ = self.peer.set(cred.clone());
    }
    pub fn peer(&self) -> Option<&Arc<Credentials>> {
        self.peer.get()
    }

    /// `SO_PRIORITY`.
    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Whether it takes what comes by a device.
    pub fn takes_from(&self, device: i32) -> bool {
        let only = self.device();
        only == 0 || only == device
    }

    /// Whether its packets may have any mark and priority (`sk_set_prio_allowed`).
    pub fn may_mark(&self, cred: &Credentials) -> bool {
        let may = |cap| cred.has_in(&self.ns.user, cap);
        may(Caps::NET_RAW) || may(Caps::NET_ADMIN)
    }

    /// What packets are marked with: `SO_PRIORITY`, `SO_MARK`.
    fn set_routing(&self, name: i32, int: i32, cred: &Credentials) -> Result<()> {
        let is_free = name == SO_PRIORITY && (0..=6).contains(&int);
        if !is_free && !self.may_mark(cred) {
            return Err(EPERM);
        }
        let mark = match name {
            SO_PRIORITY => &self.priority,
            _ => &self.mark,
        };
        mark.store(int, Ordering::Relaxed);
        Ok(())
    }

    /// `SO_LINGER`: a `struct linger`. A negative time is a long one.
    fn set_linger(&self, v: &[u8]) -> Result<()> {
        if v.len() < 8 {
            return Err(EINVAL);
        }
        let on = int_of(v)? != 0;
        if on {
            let secs = match int_of(&v[4..])? {
                0.. => int_of(&v[4..])?,
                // The longest that Linux waits, as it tells it with 250 ticks a second.
                _ => (i64::MAX / 250) as i32,
            };
            self.linger.store(secs as u32, Ordering::Relaxed);
        }
        self.set_flag(SO_LINGER, on);
        Ok(())
    }

    /// How long its close waits for what is not acknowledged. No time at all: a reset.
    pub fn lingers(&self) -> Option<Duration> {
        let secs = self.linger.load(Ordering::Relaxed);
        self.flag(SO_LINGER)
            .then(|| Duration::from_secs(secs.into()))
    }

    /// Whether its close is a reset.
    pub fn closes_by_reset(&self) -> bool {
        self.lingers() == Some(Duration::ZERO)
    }

    /// Linux doubles what it is asked for, to account for its own overhead.
    fn buffer(&self, force: bool, int: i32, cred: &Credentials) -> Result<u32> {
        if force && !cred.has(Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        let max = if force { i32::MAX as u32 / 2 } else { BUF_MAX };
        let asked = if force { int.max(0) as u32 } else { int as u32 };
        Ok(asked.min(max).min(BUFFER_MOST / 2) * 2)
    }

    /// `getsockopt(2)` at SOL_SOCKET; `None` for the protocol's own.
    pub fn get(&self, name: i32) -> Option<Result<Vec<u8>>> {
        let int = |v: i32| Some(Ok(v.to_le_bytes().to_vec()));
        if !matches!(name, SO_REUSEPORT | SO_ZEROCOPY)
            && let Err(e) = self.check(name, true)
        {
            return Some(Err(e));
        }
        match name {
            SO_BSDCOMPAT => int(0),
            SO_TXTIME => Some(Ok(self
                .txtime
                .load(Ordering::Relaxed)
                .to_le_bytes()
                .to_vec())),
            SO_BUSY_POLL_BUDGET => Some(Err(ENOPROTOOPT)),
            SO_DEBUG | SO_REUSEADDR | SO_REUSEPORT | SO_DONTROUTE | SO_BROADCAST | SO_KEEPALIVE
            | SO_OOBINLINE | SO_NO_CHECK | SO_PASSSEC | SO_RXQ_OVFL | SO_LOCK_FILTER
            | SO_SELECT_ERR_QUEUE | SO_PASSCRED | SO_PASSPIDFD | SO_ZEROCOPY | SO_RCVMARK
            | SO_RCVPRIORITY | SO_WIFI_STATUS | SO_NOFCS => int(i32::from(self.flag(name))),
            _ if Stamps::has(name) => Some(Ok(self.stamps.get(name))),
            SO_TYPE => int(self.kind as i32),
            SO_DOMAIN => int(i32::from(self.family)),
            SO_PROTOCOL => int(self.protocol),
            SO_ERROR => int(self.error.swap(0, Ordering::AcqRel)),
            SO_SNDBUF => int(self.sndbuf.load(Ordering::Relaxed) as i32),
            SO_RCVBUF => int(self.rcvbuf.load(Ordering::Relaxed) as i32),
            SO_PRIORITY => int(self.priority.load(Ordering::Relaxed)),
            SO_MARK => int(self.mark.load(Ordering::Relaxed)),
            SO_LINGER => {
                let mut v = i32::from(self.flag(name)).to_le_bytes().to_vec();
                v.extend_from_slice(&self.linger.load(Ordering::Relaxed).to_le_bytes());
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
            SO_PEEK_OFF => int(self.peeks.get()),
            SO_BINDTODEVICE => {
                let name = self.ns.device_name(self.device());
                Some(Ok(
                    name.map_or_else(Vec::new, |n| [n.as_bytes(), b"\0"].concat())
                ))
            }
            SO_BINDTOIFINDEX => int(self.device()),
            SO_MAX_PACING_RATE => {
                let rate = self.pacing.load(Ordering::Relaxed);
                Some(Ok(rate.to_le_bytes().to_vec()))
            }
            _ if kept::has(name) => {
                let o = self.others.lock();
                let set = o.iter().find(|(n, _)| *n == name);
                int(set.map_or(kept::default(name), |(_, v)| *v))
            }
            SO_BUF_LOCK => int(self.locked.load(Ordering::Relaxed) as i32),
            SO_RESERVE_MEM | SO_INCOMING_NAPI_ID => int(0),
            SO_BPF_EXTENSIONS => int(BPF_EXTENSIONS),
            SO_COOKIE => Some(Ok(self.ino.to_le_bytes().to_vec())),
            SO_NETNS_COOKIE => Some(Ok(1u64.to_le_bytes().to_vec())),
            SO_PEERCRED if self.family != crate::sys::AF_UNIX => Some(Ok(Ucred::NOBODY.encode())),
            SO_PEERSEC => Some(Err(ENOPROTOOPT)),
            SO_PEERGROUPS => Some(match self.peer() {
                Some(c) => Ok(c.groups.iter().flat_map(|g| g.to_le_bytes()).collect()),
                None => Err(abi::errno::ENODATA),
            }),
            // The descriptor is the system-call layer's to make.
            SO_PEERPIDFD if self.family != crate::sys::AF_UNIX => Some(Ok(Ucred::NOBODY.encode())),
            SO_ACCEPTCONN | SO_PEERCRED | SO_PEERPIDFD | SO_PEERNAME => None,
            _ => Some(Err(ENOPROTOOPT)),
        }
    }
}

/// Options that are checked, kept and told: what they would change, our devices do not have.
mod kept {
    use super::*;

    pub fn has(name: i32) -> bool {
        matches!(
            name,
            SO_BUSY_POLL
                | SO_INCOMING_CPU
                | SO_PREFER_BUSY_POLL
                | SO_BUSY_POLL_BUDGET
                | SO_TXREHASH
        )
    }

    pub fn default(name: i32) -> i32 {
        match name {
            SO_INCOMING_CPU => -1,
            SO_BUSY_POLL_BUDGET => BUDGET,
            SO_TXREHASH => 1,
            _ => 0,
        }
    }

    /// How many packets a busy poll takes.
    const BUDGET: i32 = 8;

    pub fn check(name: i32, n: i32, is_admin: impl Fn() -> bool) -> Result<i32> {
        match name {
            SO_BUSY_POLL if n < 0 => Err(EINVAL),
            SO_PREFER_BUSY_POLL if n != 0 && !is_admin() => Err(EPERM),
            SO_PREFER_BUSY_POLL => Ok(i32::from(n != 0)),
            SO_BUSY_POLL_BUDGET if n > BUDGET && !is_admin() => Err(EPERM),
            SO_BUSY_POLL_BUDGET if !(0..=0xffff).contains(&n) => Err(EINVAL),
            SO_TXREHASH if !(-1..=1).contains(&n) => Err(EINVAL),
            SO_TXREHASH => Ok(if n == -1 { 1 } else { n }),
            _ => Ok(n),
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

/// A rate, bytes a second: an unsigned long, or an int, whose largest value is no limit either.
fn rate(v: &[u8], int: i32) -> u64 {
    match v.first_chunk() {
        Some(v) => u64::from_le_bytes(*v),
        None if int == -1 => u64::MAX,
        None => u64::from(int as u32),
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
