//! Names and connections of UNIX sockets.

use super::{AcceptQueue, Link, Listener, Peer, UnixSock, make};
use crate::addr::{UnixName, family_of};
use crate::control::{Control, Ucred};
use crate::inflight::InFlight;
use crate::msgqueue::MsgQueue;
use crate::options::{Common, SO_ACCEPTCONN, SO_PASSCRED, SO_PEERCRED, SO_PEERPIDFD};
use crate::protocol::{Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::stream::{End, Half};
use crate::sys::{AF_UNSPEC, SOL_SOCKET};
use abi::Result;
use abi::errno::{
    EADDRINUSE, EAGAIN, ECONNREFUSED, EINVAL, EISCONN, ENOENT, ENOMEM, ENOPROTOOPT, ENOTCONN,
    EOPNOTSUPP, EPERM, EPROTOTYPE,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Sink, Source};
use wait::Events;
use wait::read_slots::{ReadSlots, SlotSource};

impl UnixSock {
    fn autobind_for_credentials(&self) -> Result<()> {
        if self.common.flag(SO_PASSCRED) {
            self.autobind()
        } else {
            Ok(())
        }
    }

    fn connect_dgram(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        if family_of(addr)? == AF_UNSPEC {
            self.state.write().link = Link::None;
            self.common.notify(Events::WRITABLE);
            return Ok(());
        }
        let name = UnixName::parse(addr)?;
        self.autobind_for_credentials()?;
        let target = self.find(who, &name)?;
        if !target.is_dgram() {
            return Err(EPROTOTYPE);
        }
        if target.peer().is_some() && !target.is_connected_to(self) {
            return Err(EPERM);
        }
        if !self.is_connected_to(&target) {
            UnixSock::may_reach(who, &target)?;
        }
        if target.rx.is_closed() {
            return Err(ECONNREFUSED);
        }
        let peer = Peer {
            sock: target.me.clone(),
            cred: Ucred::NOBODY,
        };
        self.state.write().link = Link::Packet {
            tx: target.rx.clone(),
            peer,
        };
        self.common.notify(Events::WRITABLE);
        Ok(())
    }

    fn connect_listener(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        let name = UnixName::parse(addr)?;
        match &self.state.read().link {
            Link::None => {}
            Link::Listening(_) => return Err(EINVAL),
            _ => return Err(EISCONN),
        }
        self.autobind_for_credentials()?;
        let target = self.find(who, &name)?;
        if target.common.kind != self.common.kind {
            return Err(EPROTOTYPE);
        }
        who.cred.may_take_more(ENOMEM)?;
        let (l, theirs_name) = {
            let t = target.state.read();
            match &t.link {
                Link::Listening(l) => (l.clone(), t.name.clone()),
                _ => return Err(ECONNREFUSED),
            }
        };
        let link = {
            let mut q = l.queue.lock();
            if q.closed {
                return Err(ECONNREFUSED);
            }
            if q.ready.len() > q.backlog {
                q.wait(&self.common);
                return Err(EAGAIN);
            }
            UnixSock::may_reach(who, &target)?;
            let server = make(Common::inherit(&l.common, &self.common), theirs_name);
            let (ours, theirs) = self.join(who, &server, l.cred);
            server.common.set_peer(who.cred);
            if let Some(c) = l.common.peer() {
                self.common.set_peer(c);
            }
            server.state.write().link = theirs;
            let ns = &self.common.ns;
            ns.in_flight.waits(server.common.ino, l.common.ino);
            q.ready.push_back(server);
            ours
        };
        self.state.write().link = link;
        l.common.notify(Events::READABLE);
        self.common.notify(Events::WRITABLE);
        Ok(())
    }

    /// What joins this socket and the listener's new one: the link of each. `cred` is the
    /// listener's.
    fn join(&self, who: &Caller<'_>, server: &Arc<UnixSock>, cred: Ucred) -> (Link, Link) {
        let to_them = Peer {
            sock: server.me.clone(),
            cred,
        };
        let to_us = Peer {
            sock: self.me.clone(),
            cred: who.ucred(),
        };
        if self.is_stream() {
            let out = Half::new(&self.common, &server.common, server.common.ino);
            let back = Half::new(&server.common, &self.common, self.common.ino);
            let ours = Link::Stream {
                rx: back.clone(),
                tx: out.clone(),
                peer: to_them,
            };
            let theirs = Link::Stream {
                rx: out,
                tx: back,
                peer: to_us,
            };
            (ours, theirs)
        } else {
            let ours = Link::Packet {
                tx: server.rx.clone(),
                peer: to_them,
            };
            let theirs = Link::Packet {
                tx: self.rx.clone(),
                peer: to_us,
            };
            (ours, theirs)
        }
    }
}

impl SlotSource for UnixSock {
    fn fill_slot(&self, slots: &Arc<dyn ReadSlots>, slot: u32, nonblocking: &dyn Fn() -> bool) {
        if let Link::Stream { rx, .. } = &self.state.read().link {
            rx.fill_slot(slots, slot, nonblocking);
        }
    }

    fn revoke_slot(&self) {
        if let Link::Stream { rx, .. } = &self.state.read().link {
            rx.revoke_slot();
        }
    }
}

impl Protocol for UnixSock {
    fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        let name = UnixName::parse(addr)?;
        let _naming = self.naming.lock();
        if name == UnixName::Unnamed {
            return self.autobind();
        }
        if self.state.read().name != UnixName::Unnamed {
            // Linux makes the node before it looks at the socket: a name that exists is told first.
            return Err(match &name {
                UnixName::Path(p) => match who.paths.lookup(p) {
                    Err(ENOENT) => EINVAL,
                    Ok(_) | Err(ECONNREFUSED) => EADDRINUSE,
                    Err(e) => e,
                },
                _ => EINVAL,
            });
        }
        match &name {
            UnixName::Abstract(n) => self.claim_abstract(n)?,
            UnixName::Path(p) => {
                let me = self.me.upgrade().ok_or(EINVAL)?;
                who.paths.bind(p, me)?;
            }
            UnixName::Unnamed => {}
        }
        self.state.write().name = name;
        Ok(())
    }

    fn connect(&self, who: &Caller<'_>, addr: &[u8], _: Block) -> Result<()> {
        let _naming = self.naming.lock();
        if self.is_dgram() {
            self.connect_dgram(who, addr)
        } else {
            self.connect_listener(who, addr)
        }
    }

    fn listen(&self, who: &Caller<'_>, backlog: i32) -> Result<()> {
        if self.is_dgram() {
            return Err(EOPNOTSUPP);
        }
        let max = self.common.ns.somaxconn.load(Ordering::Relaxed);
        let backlog = (backlog as u32).min(max) as usize;
        let mut s = self.state.write();
        if s.name == UnixName::Unnamed {
            return Err(EINVAL);
        }
        match &s.link {
            Link::None => {
                // Who listens is the peer of who connects, and of itself.
                self.common.set_peer(who.cred);
                s.link = Link::Listening(Arc::new(Listener {
                    common: self.common.clone(),
                    cred: who.ucred(),
                    queue: Mutex::new(AcceptQueue {
                        backlog,
                        ..AcceptQueue::default()
                    }),
                }));
                Ok(())
            }
            Link::Listening(l) => {
                let mut q = l.queue.lock();
                q.backlog = backlog;
                let waiters = std::mem::take(&mut q.waiters);
                drop(q);
                // Who is woken asks for the state.
                drop(s);
                for w in waiters.iter().filter_map(|w| w.upgrade()) {
                    w.notify(Events::WRITABLE);
                }
                Ok(())
            }
            _ => Err(EINVAL),
        }
    }

    fn accept(&self) -> Result<Parts> {
        let l = match &self.state.read().link {
            Link::Listening(l) => l.clone(),
            _ if self.is_dgram() => return Err(EOPNOTSUPP),
            _ => return Err(EINVAL),
        };
        let (got, waiters) = {
            let mut q = l.queue.lock();
            if q.closed {
                return Err(EINVAL);
            }
            let got = q.ready.pop_front().ok_or(EAGAIN)?;
            (got, std::mem::take(&mut q.waiters))
        };
        for w in waiters.iter().filter_map(|w| w.upgrade()) {
            w.notify(Events::WRITABLE);
        }
        self.common.ns.in_flight.waits_no_more(got.common.ino);
        Ok(Parts::new(got.common.clone(), got))
    }

    fn local_name(&self) -> Result<Vec<u8>> {
        Ok(self.state.read().name.encode())
    }
    fn peer_name(&self) -> Result<Vec<u8>> {
        let (peer, _) = self.peer().ok_or(ENOTCONN)?;
        let name = peer.upgrade().map(|p| p.state.read().name.clone());
        Ok(name.unwrap_or(UnixName::Unnamed).encode())
    }

    fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: Control,
        flags: u32,
    ) -> Result<usize> {
        if self.common.flag(SO_PASSCRED) && self.state.read().name == UnixName::Unnamed {
            let _naming = self.naming.lock();
            self.autobind()?;
        }
        self.transfer_out(who, src, dest, control, flags)
    }
    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        self.transfer_in(dst, flags)
    }

    fn slot_source(&self) -> Option<&dyn SlotSource> {
        Some(self)
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        let mut peer_queue: Option<Arc<MsgQueue>> = None;
        {
            let mut s = self.state.write();
            match &s.link {
                Link::Stream { rx, tx, .. } => {
                    if how.write {
                        tx.finish(End::Fin);
                    }
                    if how.read {
                        rx.shut_reader();
                    }
                }
                Link::Packet { tx, .. } if !self.is_dgram() => peer_queue = Some(tx.clone()),
                _ => {}
            }
            s.shut_write |= how.write;
        }
        if how.read {
            self.rx.shut();
        }
        if let (Some(q), true) = (peer_queue, how.write) {
            q.end();
        }
        self.common
            .notify(Events::READABLE | Events::WRITABLE | Events::HUP | Events::RDHUP);
        Ok(())
    }

    fn poll(&self) -> Events {
        self.ready()
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        if level != SOL_SOCKET {
            return Err(EOPNOTSUPP);
        }
        match name {
            SO_ACCEPTCONN => {
                let on = matches!(self.state.read().link, Link::Listening(_));
                Ok(i32::from(on).to_le_bytes().to_vec())
            }
            SO_PEERCRED | SO_PEERPIDFD => {
                let c = match &self.state.read().link {
                    Link::Listening(l) => l.cred,
                    Link::Stream { peer, .. } | Link::Packet { peer, .. } => peer.cred,
                    Link::None => Ucred::NOBODY,
                };
                Ok(c.encode())
            }
            _ => Err(ENOPROTOOPT),
        }
    }
    fn set_option(&self, _: &vfs::Credentials, _: i32, _: i32, _: &[u8]) -> Result<()> {
        Err(EOPNOTSUPP)
    }

    fn unread(&self) -> Result<usize> {
        match &self.state.read().link {
            Link::Listening(_) => Err(EINVAL),
            Link::Stream { rx, .. } => Ok(rx.view().len),
            _ if self.is_dgram() => Ok(self.rx.first_len()),
            _ => Ok(self.rx.bytes()),
        }
    }
    fn is_at_mark(&self) -> Result<bool> {
        match &self.state.read().link {
            Link::Stream { rx, .. } => Ok(rx.is_at_mark()),
            _ => Ok(false),
        }
    }
    fn unsent(&self) -> usize {
        match &self.state.read().link {
            Link::Stream { tx, .. } => tx.view().len,
            Link::Packet { tx, .. } => tx.bytes(),
            _ => 0,
        }
    }
    fn close(&self) {
        self.end(false);
    }
    fn take_in_flight(&self) -> Vec<InFlight> {
        UnixSock::take_in_flight(self)
    }
}
