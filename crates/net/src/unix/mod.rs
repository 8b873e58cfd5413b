//! UNIX domain sockets (`unix(7)`).
//!
//! Streams are two [`Half`]s, like TCP. Datagram and sequenced-packet sockets own a [`MsgQueue`]
//! each, and send into their peer's. A name in the file system is a node that refers to the socket.

mod connect;
mod transfer;

use crate::addr::UnixName;
use crate::census;
use crate::control::Ucred;
use crate::inflight::InFlight;
use crate::msgqueue::MsgQueue;
use crate::ns::NetNamespace;
use crate::options::Common;
use crate::protocol::{Caller, Parts};
use crate::stream::{End, Half};
use crate::sys::{AF_UNIX, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM};
use crate::unix_names::{Named, UnixSocket};
use abi::Result;
use abi::errno::{ECONNREFUSED, ECONNRESET, EINVAL, EPERM};
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use vfs::landlock::Scope;
use wait::Events;

/// A UNIX socket.
pub struct UnixSock {
    me: Weak<UnixSock>,
    pub(crate) common: Arc<Common>,
    /// What others sent (datagrams and packets).
    rx: Arc<MsgQueue>,
    /// Serialises bind and connect; taken before everything else.
    naming: Mutex<()>,
    /// Never held together with another socket's.
    state: RwLock<State>,
}

struct State {
    name: UnixName,
    link: Link,
    /// `shutdown(SHUT_WR)` of a datagram or packet socket.
    shut_write: bool,
}

enum Link {
    None,
    Listening(Arc<Listener>),
    Stream {
        rx: Arc<Half>,
        tx: Arc<Half>,
        peer: Peer,
    },
    /// A connected datagram socket or a sequenced-packet connection.
    Packet {
        tx: Arc<MsgQueue>,
        peer: Peer,
    },
}

struct Peer {
    sock: Weak<UnixSock>,
    cred: Ucred,
}

/// A listening socket, as connects see it.
struct Listener {
    common: Arc<Common>,
    /// Who called listen.
    cred: Ucred,
    queue: Mutex<AcceptQueue>,
}

#[derive(Default)]
struct AcceptQueue {
    ready: VecDeque<Arc<UnixSock>>,
    backlog: usize,
    closed: bool,
    /// Connects that found no room.
    waiters: Vec<Weak<Common>>,
}

impl AcceptQueue {
    /// Tells a connect that finds no room when there is some.
    fn wait(&mut self, connect: &Arc<Common>) {
        self.waiters.retain(|w| w.strong_count() > 0);
        let is_there = |w: &Weak<Common>| w.as_ptr() == Arc::as_ptr(connect);
        if !self.waiters.iter().any(is_there) {
            self.waiters.push(Arc::downgrade(connect));
        }
    }
}

fn make(common: Arc<Common>, name: UnixName) -> Arc<UnixSock> {
    let (ns, ino) = (common.ns.clone(), common.ino);
    let sock = Arc::new_cyclic(|me| UnixSock {
        me: me.clone(),
        rx: MsgQueue::new(&common, common.ino),
        common,
        naming: Mutex::new(()),
        state: RwLock::new(State {
            name,
            link: Link::None,
            shut_write: false,
        }),
    });
    ns.unix.add(ino, sock.named());
    sock
}

impl Drop for UnixSock {
    fn drop(&mut self) {
        self.common.ns.unix.remove(self.common.ino);
    }
}

pub fn new(ns: &Arc<NetNamespace>, kind: u32) -> Parts {
    let common = Common::new(ns, AF_UNIX, kind, 0);
    let sock = make(common.clone(), UnixName::Unnamed);
    Parts::new(common, sock)
}

/// Joins two new sockets (`socketpair(2)`).
pub fn join(a: &UnixSock, b: &UnixSock, cred: Ucred) {
    let peer = |s: &UnixSock| Peer {
        sock: s.me.clone(),
        cred,
    };
    if a.common.kind == SOCK_STREAM {
        let ab = Half::new(&a.common, &b.common, b.common.ino);
        let ba = Half::new(&b.common, &a.common, a.common.ino);
        a.state.write().link = Link::Stream {
            rx: ba.clone(),
            tx: ab.clone(),
            peer: peer(b),
        };
        b.state.write().link = Link::Stream {
            rx: ab,
            tx: ba,
            peer: peer(a),
        };
    } else {
        a.state.write().link = Link::Packet {
            tx: b.rx.clone(),
            peer: peer(b),
        };
        b.state.write().link = Link::Packet {
            tx: a.rx.clone(),
            peer: peer(a),
        };
    }
}

impl Named for UnixSock {
    fn describe(&self) -> UnixSocket {
        let s = self.state.read();
        let mut queues = (self.rx.bytes(), 0);
        let (state, peer) = match &s.link {
            Link::None => (census::CLOSE, None),
            Link::Listening(l) => {
                let q = l.queue.lock();
                queues = (q.ready.len(), q.backlog);
                (census::LISTEN, None)
            }
            Link::Stream { rx, tx, peer } => {
                queues = (rx.view().len, tx.view().len);
                (census::ESTABLISHED, peer.sock.upgrade())
            }
            Link::Packet { peer, .. } => (census::ESTABLISHED, peer.sock.upgrade()),
        };
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let name = s.name.encode().split_off(2);
        drop(s);
        UnixSocket {
            kind: self.common.kind,
            state,
            ino: self.common.ino,
            name,
            peer: peer.map(|p| p.common.ino),
            receive_queue: small(queues.0),
            send_queue: small(queues.1),
            uid: self.common.creator.get().map_or(0, |c| c.uid),
        }
    }
}

impl UnixSock {
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.rx.len()
    }
    /// Itself, as its namespace knows it.
    fn named(&self) -> Weak<dyn Named> {
        self.me.clone()
    }
    fn is_stream(&self) -> bool {
        self.common.kind == SOCK_STREAM
    }
    fn is_dgram(&self) -> bool {
        self.common.kind == SOCK_DGRAM
    }

    /// The socket that a name means.
    fn find(&self, who: &Caller<'_>, name: &UnixName) -> Result<Arc<UnixSock>> {
        match name {
            UnixName::Unnamed => Err(EINVAL),
            UnixName::Abstract(n) => {
                let sock: Arc<dyn Any + Send + Sync> =
                    self.common.ns.unix.find(n).ok_or(ECONNREFUSED)?;
                sock.downcast().map_err(|_| ECONNREFUSED)
            }
            UnixName::Path(p) => {
                let sock = who.paths.lookup(p)?.downcast::<UnixSock>();
                sock.map_err(|_| ECONNREFUSED)
            }
        }
    }

    /// `EPERM` where the caller's domain keeps it from a socket with an abstract name.
    fn may_reach(who: &Caller<'_>, target: &UnixSock) -> Result<()> {
        let Some(domain) = &who.cred.landlock else {
            return Ok(());
        };
        let named = matches!(target.state.read().name, UnixName::Abstract(_));
        let theirs = target.common.landlock.get();
        if named && domain.keeps_from(theirs, Scope::ABSTRACT_UNIX_SOCKET) {
            return Err(EPERM);
        }
        Ok(())
    }

    fn claim_abstract(&self, name: &[u8]) -> Result<()> {
        self.common.ns.unix.claim(name, self.named())
    }

    /// Takes a free abstract name of five hexadecimal digits. `naming` is held.
    fn autobind(&self) -> Result<()> {
        if self.state.read().name != UnixName::Unnamed {
            return Ok(());
        }
        for _ in 0..1 << 20 {
            let name = self.common.ns.unix.suggest();
            if self.claim_abstract(&name).is_ok() {
                self.state.write().name = UnixName::Abstract(name);
                return Ok(());
            }
        }
        Err(abi::errno::ENOSPC)
    }

    /// The other side, if connected.
    fn peer(&self) -> Option<(Weak<UnixSock>, Ucred)> {
        match &self.state.read().link {
            Link::Stream { peer, .. } | Link::Packet { peer, .. } => {
                Some((peer.sock.clone(), peer.cred))
            }
            _ => None,
        }
    }

    /// Whether this socket is connected to `other`.
    fn is_connected_to(&self, other: &UnixSock) -> bool {
        self.peer()
            .is_some_and(|(p, _)| Weak::ptr_eq(&p, &other.me))
    }

    /// Closes what `link` was. `reset`: the other side learns that its bytes were not read.
    fn leave(&self, link: Link, reset: bool) {
        match link {
            Link::None => {}
            Link::Listening(l) => {
                let (ready, waiters) = {
                    let mut q = l.queue.lock();
                    q.closed = true;
                    (std::mem::take(&mut q.ready), std::mem::take(&mut q.waiters))
                };
                for s in ready {
                    self.common.ns.in_flight.waits_no_more(s.common.ino);
                    s.end(true);
                }
                for w in waiters.iter().filter_map(Weak::upgrade) {
                    w.notify(Events::WRITABLE);
                }
            }
            Link::Stream { rx, tx, .. } => {
                let unread = rx.close_reader();
                if unread || reset {
                    rx.writer.set_error(ECONNRESET);
                    tx.finish(End::Reset);
                } else {
                    tx.finish(End::Fin);
                }
                rx.writer
                    .notify(Events::ERR | Events::HUP | Events::WRITABLE);
            }
            Link::Packet { tx, .. } if self.common.kind == SOCK_SEQPACKET => {
                let unread = self.rx.close();
                if unread || reset {
                    tx.owner.set_error(ECONNRESET);
                }
                tx.end();
                tx.owner
                    .notify(Events::ERR | Events::HUP | Events::WRITABLE);
            }
            Link::Packet { .. } => {}
        }
    }

    /// The end of the socket.
    fn end(&self, reset: bool) {
        let (link, name) = {
            let mut s = self.state.write();
            (
                std::mem::replace(&mut s.link, Link::None),
                std::mem::replace(&mut s.name, UnixName::Unnamed),
            )
        };
        if let UnixName::Abstract(n) = name {
            // An accepted socket has its listener's name, but does not hold it.
            self.common.ns.unix.release(&n, &self.named());
        }
        self.leave(link, reset);
        self.rx.close();
    }

    /// Files that wait in its queues.
    pub fn take_in_flight(&self) -> Vec<InFlight> {
        let mut v = self.rx.take_in_flight();
        let s = self.state.read();
        match &s.link {
            Link::Stream { rx, .. } => v.extend(rx.take_in_flight()),
            Link::Listening(l) => {
                let ready: Vec<_> = l.queue.lock().ready.iter().cloned().collect();
                for e in ready {
                    v.extend(e.take_in_flight());
                }
            }
            _ => {}
        }
        v
    }
}
