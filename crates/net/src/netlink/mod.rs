//! Netlink sockets: NETLINK_ROUTE (`rtnetlink(7)`: what can be asked about interfaces, addresses,
//! routes and neighbours, and what can be set of the loopback interface) and NETLINK_SOCK_DIAG
//! ([`diag`]), NETLINK_NETFILTER ([`filter`], [`log`]), and NETLINK_KOBJECT_UEVENT, where nothing
//! is ever told.
//!
//! What answers a dump and finds no room in the receive queue waits for its reader, as its owner's
//! memory.

mod change;
mod diag;
mod filter;
mod groups;
mod log;
mod message;
mod objects;
mod route;

use crate::control::{Control, Ucred};
use crate::msgqueue::{Msg, MsgQueue, take_all};
use crate::ns::NetNamespace;
use crate::options::{Common, SO_ACCEPTCONN};
use crate::protocol::{Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::stream::Take;
use crate::sys::*;
use abi::Result;
use abi::errno::{EINVAL, EMSGSIZE, ENOBUFS, ENOPROTOOPT, EOPNOTSUPP, EPERM, Errno};
use groups::{FILTER_GROUPS, GROUPS, Member};
use message::{Builder, HEADER, Messages, Request, word};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::ucounts::{Charge, Kind};
use vfs::{Caps, Credentials, Sink, Source};
use wait::Events;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_MIN_TYPE: u16 = 16;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const RTM_NEWRULE: u16 = 32;
const RTM_GETRULE: u16 = 34;
const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;

/// Why a request is refused, with what NETLINK_EXT_ACK tells.
#[derive(Clone, Copy, Debug)]
struct Refused {
    errno: Errno,
    text: Option<&'static str>,
    /// Where in the message the attribute lies that it is about.
    at: Option<usize>,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused {
            errno,
            text: None,
            at: None,
        }
    }
}

impl Refused {
    fn with(errno: Errno, text: &'static str) -> Refused {
        Refused {
            text: Some(text),
            ..errno.into()
        }
    }

    /// With a text for one error.
    fn if_is(errno: Errno, one: Errno, text: &'static str) -> Refused {
        Refused {
            text: (errno == one).then_some(text),
            ..errno.into()
        }
    }
}

/// Which subsystem a socket talks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subsystem {
    Route = 0,
    SockDiag = 4,
    Netfilter = 12,
    /// NETLINK_KOBJECT_UEVENT: devices come and go. None does here: it is silent.
    Uevent = 15,
}

/// The most that one send may carry.
const MAX_REQUEST: usize = 65536;
/// How full a message with several answers may be.
const BATCH: usize = 3800;

/// A netlink socket.
pub struct Netlink {
    common: Arc<Common>,
    subsystem: Subsystem,
    rx: Arc<MsgQueue>,
    member: Arc<Member>,
    state: Mutex<State>,
    /// Before the receive queue's lock.
    pending: Mutex<Pending>,
    /// The groups whose packets it is told of. Before netfilter's own lock of them.
    listening: Mutex<Vec<(u16, Arc<log::Listening>)>>,
}

/// Answers that wait for room.
#[derive(Default)]
struct Pending {
    all: VecDeque<Vec<u8>>,
    memory: Option<Charge>,
}

#[derive(Default)]
struct State {
    /// Its address; 0 until bound.
    port: u32,
    /// Options of SOL_NETLINK that are only kept: bit N for option N.
    options: u32,
    connected: bool,
}

pub fn new(ns: &Arc<NetNamespace>, kind: u32, subsystem: Subsystem) -> Parts {
    let common = Common::new(ns, AF_NETLINK, kind, subsystem as i32);
    let rx = MsgQueue::new(&common, 0);
    let member = Arc::new(Member {
        rx: rx.clone(),
        groups: AtomicU64::new(0),
    });
    let nl = Netlink {
        common: common.clone(),
        subsystem,
        rx,
        member,
        state: Mutex::new(State::default()),
        pending: Mutex::default(),
        listening: Mutex::default(),
    };
    Parts::new(common, Arc::new(nl))
}

/// Where the kernel sends a netlink socket messages of its own, as mq_notify(2) has it do. It does
/// not keep the socket open.
pub struct Inbox(Arc<MsgQueue>);

impl Inbox {
    /// The socket's; `EINVAL` for one of another family.
    pub fn of(s: &crate::Socket) -> Result<Inbox> {
        let nl = s.downcast::<Netlink>().ok_or(EINVAL)?;
        Ok(Inbox(nl.rx.clone()))
    }
    pub fn send(&self, data: Vec<u8>) {
        if self.0.is_closed() {
            return;
        }
        self.0.push(Msg {
            data,
            cred: Ucred::default(),
            files: None,
            from: sockaddr(0, 0),
            shown: false,
        });
    }
}

fn sockaddr(port: u32, groups: u32) -> Vec<u8> {
    let mut v = u32::from(AF_NETLINK).to_le_bytes().to_vec();
    v.extend_from_slice(&port.to_le_bytes());
    v.extend_from_slice(&groups.to_le_bytes());
    v
}

fn parse(addr: &[u8]) -> Result<(u32, u32)> {
    if addr.len() < 12 || crate::addr::family_of(addr)? != AF_NETLINK {
        return Err(EINVAL);
    }
    Ok((word(addr, 4), word(addr, 8)))
}

impl Netlink {
    fn port(&self, pid: i32) -> u32 {
        let mut s = self.state.lock();
        if s.port == 0 {
            s.port = if pid > 0 {
                pid as u32
            } else {
                self.common
                    .ns
                    .next_netlink_port
                    .fetch_add(1, Ordering::Relaxed)
            };
        }
        s.port
    }

    /// `EPERM` for who may not administer the socket's namespace.
    fn may_administer(&self, who: &Caller<'_>) -> Result<()> {
        if who.cred.has_in(&self.common.ns.user, Caps::NET_ADMIN) {
            Ok(())
        } else {
            Err(EPERM)
        }
    }

    /// Has answers read, one after the other.
    fn queue(&self, answers: Vec<Vec<u8>>) -> Result<()> {
        let mut p = self.pending.lock();
        let n: usize = answers.iter().map(Vec::len).sum();
        if p.memory.is_none() {
            p.memory = self.common.user.get().map(|u| u.force(Kind::Kmem, 0));
        }
        let memory = p.memory.as_mut();
        if memory.is_some_and(|m| !m.grow(n as u64, u64::MAX)) {
            return Err(ENOBUFS);
        }
        p.all.extend(answers);
        drop(p);
        self.refill();
        Ok(())
    }

    /// Moves answers that wait to the receive queue, as far as there is room.
    fn refill(&self) {
        let mut p = self.pending.lock();
        while let Some(next) = p.all.front() {
            let room = self.common.rcvbuf.load(Ordering::Relaxed) as usize / 2;
            if self.rx.len() > 0 && self.rx.bytes() + next.len() > room {
                return;
            }
            let Some(data) = p.all.pop_front() else {
                return;
            };
            self.reply(data);
        }
        p.memory = None;
    }

    fn reply(&self, data: Vec<u8>) {
        let (cred, from) = (Ucred::default(), sockaddr(0, 0));
        self.rx.push(Msg {
            data,
            cred,
            files: None,
            from,
            shown: false,
        });
    }

    fn set_groups(&self, groups: u64) {
        self.member.groups.store(groups, Ordering::Relaxed);
        let ns = &self.common.ns;
        if self.subsystem == Subsystem::Netfilter {
            let who: Weak<Member> = Arc::downgrade(&self.member);
            ns.rules.flows.events.set(self.common.ino, groups, who);
        }
        match self.subsystem {
            _ if groups == 0 => {}
            Subsystem::Route => ns.listeners.add(self.member.clone()),
            Subsystem::Netfilter => ns.rule_listeners.add(self.member.clone()),
            Subsystem::SockDiag | Subsystem::Uevent => {}
        }
    }

    /// Who listens to changes of rules must be one who may make some (`netlink_allowed`).
    fn may_listen(&self, cred: &Credentials) -> Result<()> {
        let ns = &self.common.ns;
        match self.subsystem {
            Subsystem::Netfilter if !cred.has_in(&ns.user, Caps::NET_ADMIN) => Err(EPERM),
            _ => Ok(()),
        }
    }

    /// How many groups there are.
    fn groups(&self) -> u32 {
        match self.subsystem {
            Subsystem::Netfilter => FILTER_GROUPS,
            _ => GROUPS,
        }
    }

    /// An acknowledgement, or an error (`netlink_ack`).
    fn status(&self, req: &Request<'_>, port: u32, refused: Option<Refused>) {
        const CAPPED: u16 = 0x100;
        const WITH_TEXT: u16 = 0x200;
        let options = self.state.lock().options;
        let on = |option: i32| options >> option & 1 == 1;
        let (caps, extends) = (on(10), on(11));
        let text = refused.and_then(|r| r.text).filter(|_| extends);
        let at = refused.and_then(|r| r.at).filter(|_| extends);
        let short = refused.is_none() || caps;
        let mut flags = if short { CAPPED } else { 0 };
        if text.is_some() || at.is_some() {
            flags |= WITH_TEXT;
        }
        let error = refused.map_or(0, |r| -r.errno.raw());
        let mut b = Builder::new(NLMSG_ERROR, flags, req, port).bytes(&error.to_le_bytes());
        b = b.bytes(if short {
            &req.whole[..HEADER]
        } else {
            req.whole
        });
        if let Some(t) = text {
            b = b.aligned().attr(1, &[t.as_bytes(), b"\0"].concat());
        }
        if let Some(at) = at {
            b = b.aligned().attr32(2, at as u32);
        }
        self.reply(b.finish());
    }

    /// Whether all objects of a kind are asked for. (Where something is made, the same bits are
    /// others.)
    fn is_dump(&self, req: &Request<'_>) -> bool {
        let asks = match self.subsystem {
            Subsystem::Route => req.kind % 4 == 2,
            Subsystem::SockDiag => true,
            Subsystem::Netfilter => filter::may_dump(req),
            Subsystem::Uevent => false,
        };
        asks && req.flags & NLM_F_DUMP != 0
    }

    fn handle(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        port: u32,
    ) -> core::result::Result<(), Refused> {
        match self.subsystem {
            _ if self.is_dump(req) => Ok(self.answer_dump(who, req, port)?),
            Subsystem::Route => self.route_request(who, req, port),
            Subsystem::SockDiag => {
                self.reply(diag::one(&self.common.ns, req, port)?);
                Ok(())
            }
            Subsystem::Netfilter => self.filter_request(who, req, port),
            // (`uevent_net_rcv_skb`: who may, tells others of a device.)
            Subsystem::Uevent => {
                let may = who.cred.has_in(&self.common.ns.user, Caps::SYS_ADMIN);
                Err((if may { EOPNOTSUPP } else { EPERM }).into())
            }
        }
    }

    fn answer_dump(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        port: u32,
    ) -> core::result::Result<(), Errno> {
        let parts = match self.subsystem {
            Subsystem::Route => self.dump(req, port).ok_or(EOPNOTSUPP)?,
            Subsystem::SockDiag => diag::dump(&self.common.ns, req, port)?,
            Subsystem::Netfilter => self.filter_dump(who, req, port)?,
            Subsystem::Uevent => return Err(EOPNOTSUPP),
        };
        let (mut answers, mut batch) = (Vec::new(), Vec::new());
        for p in parts {
            if !batch.is_empty() && batch.len() + p.len() > BATCH {
                answers.push(std::mem::take(&mut batch));
            }
            batch.extend_from_slice(&p);
        }
        if !batch.is_empty() {
            answers.push(batch);
        }
        answers.push(
            Builder::new(NLMSG_DONE, NLM_F_MULTI, req, port)
                .bytes(&[0; 4])
                .finish(),
        );
        self.queue(answers)
    }
}

impl Protocol for Netlink {
    fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        let (port, groups) = parse(addr)?;
        if groups != 0 {
            self.may_listen(who.cred)?;
        }
        let mut s = self.state.lock();
        if s.port != 0 && port != s.port {
            return Err(EINVAL);
        }
        if port != 0 {
            s.port = port;
        }
        drop(s);
        self.port(who.number);
        // The first 32 groups are said here.
        let others = self.member.groups.load(Ordering::Relaxed) & !0xffff_ffff;
        self.set_groups(others | u64::from(groups));
        Ok(())
    }
    fn connect(&self, who: &Caller<'_>, addr: &[u8], _: Block) -> Result<()> {
        if crate::addr::family_of(addr)? == AF_UNSPEC {
            self.state.lock().connected = false;
            return Ok(());
        }
        let (port, _) = parse(addr)?;
        if port != 0 {
            self.may_administer(who)?;
        }
        self.port(who.number);
        self.state.lock().connected = true;
        Ok(())
    }
    fn local_name(&self) -> Result<Vec<u8>> {
        let s = self.state.lock();
        let groups = self.member.groups.load(Ordering::Relaxed) as u32;
        Ok(sockaddr(s.port, groups))
    }
    fn peer_name(&self) -> Result<Vec<u8>> {
        Ok(sockaddr(0, 0))
    }
    fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        _control: Control,
        flags: u32,
    ) -> Result<usize> {
        if flags & MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        if let Some(d) = dest
            && parse(d)?.0 != 0
        {
            // Other processes' netlink sockets cannot be reached.
            return Err(abi::errno::ECONNREFUSED);
        }
        let most = match self.subsystem {
            // A batch may be as long as what a program may have sent.
            Subsystem::Netfilter => self.common.sndbuf.load(Ordering::Relaxed) as usize,
            _ => MAX_REQUEST,
        };
        if src.remaining() > most {
            return Err(EMSGSIZE);
        }
        let port = self.port(who.number);
        let data = take_all(src)?;
        if self.subsystem == Subsystem::Netfilter && filter::is_batch(&data) {
            self.batch(who, &data, port);
            return Ok(data.len());
        }
        for req in Messages(&data) {
            if req.flags & NLM_F_REQUEST != 0 && req.kind >= NLMSG_MIN_TYPE {
                match self.handle(who, &req, port) {
                    Err(e) => self.status(&req, port, Some(e)),
                    Ok(()) if req.flags & NLM_F_ACK != 0 && !self.is_dump(&req) => {
                        self.status(&req, port, None);
                    }
                    Ok(()) => {}
                }
            } else if req.flags & NLM_F_ACK != 0 {
                self.status(&req, port, None);
            }
            // Answers are bounded like any receive buffer.
            if self.rx.bytes() > self.common.rcvbuf.load(Ordering::Relaxed) as usize {
                return Err(abi::errno::ENOBUFS);
            }
        }
        Ok(data.len())
    }
    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        if flags & MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        // Who has lost something is told first.
        self.common.take_error()?;
        let take = if flags & MSG_PEEK != 0 {
            Take::Peek
        } else {
            Take::Out
        };
        let Some(t) = self.rx.receive(dst, take, None)? else {
            return Ok(Received::default());
        };
        self.refill();
        Ok(Received {
            n: if flags & MSG_TRUNC != 0 { t.len } else { t.n },
            addr: t.from,
            flags: if t.n < t.len { MSG_TRUNC } else { 0 },
            ..Received::default()
        })
    }
    fn shutdown(&self, _: Shutdown) -> Result<()> {
        Err(EOPNOTSUPP)
    }
    fn poll(&self) -> Events {
        let mut e = Events::WRITABLE;
        if self.rx.len() > 0 {
            e |= Events::READABLE;
        }
        if self.common.has_error() {
            e |= Events::ERR;
        }
        e
    }
    fn set_option(&self, cred: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        match (level, name) {
            // ADD_MEMBERSHIP, DROP_MEMBERSHIP.
            (SOL_NETLINK, 1 | 2) => {
                let group = crate::options::int_of(v)? as u32;
                self.may_listen(cred)?;
                if !(1..=self.groups()).contains(&group) {
                    return Err(EINVAL);
                }
                let (old, bit) = (self.member.groups.load(Ordering::Relaxed), 1 << (group - 1));
                self.set_groups(if name == 1 { old | bit } else { old & !bit });
                Ok(())
            }
            (SOL_NETLINK, 3..=5 | 8 | 10..=12) => {
                let on = crate::options::int_of(v)? != 0;
                let mut s = self.state.lock();
                s.options = (s.options & !(1 << name)) | (u32::from(on) << name);
                Ok(())
            }
            _ => Err(ENOPROTOOPT),
        }
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        match (level, name) {
            (SOL_SOCKET, SO_ACCEPTCONN) => Ok(vec![0; 4]),
            // LIST_MEMBERSHIPS.
            (SOL_NETLINK, 9) => {
                let groups = self.member.groups.load(Ordering::Relaxed);
                Ok(groups.to_le_bytes().to_vec())
            }
            (SOL_NETLINK, 3..=5 | 8 | 10..=12) => {
                let on = self.state.lock().options >> name & 1;
                Ok(on.to_le_bytes().to_vec())
            }
            _ => Err(ENOPROTOOPT),
        }
    }
    fn unread(&self) -> Result<usize> {
        Ok(self.rx.first_len())
    }
    fn close(&self) {
        let left = std::mem::take(&mut *self.pending.lock());
        drop(left);
        self.close_groups();
        self.rx.close();
    }
}
