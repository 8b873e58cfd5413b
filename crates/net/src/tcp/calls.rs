//! What the socket interface does with a TCP socket.

use super::deferred::First;
use super::ends::bindable;
use super::fast_open::Opens;
use super::shown::Shown;
use super::stamped;
use super::{AcceptQueue, Connection, ExplicitBind, Listener, Phase, Tcp};
use crate::addr::{Endpoint, any_ip, family_of};
use crate::bindings::Rule;
use crate::control::Control;
use crate::inet::{IP_BIND_ADDRESS_NO_PORT, TCP_INQ, TCP_SAVED_SYN};
use crate::lingering::Lingering;
use crate::options::{
    Chosen, SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF, SO_DETACH_REUSEPORT_BPF, SO_ERROR,
    SO_KEEPALIVE, SO_OOBINLINE, SO_SELECT_ERR_QUEUE, int_of,
};
use crate::protocol::{Answer, Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::stamps::{SO_TIMESTAMPING, SO_TIMESTAMPING_NEW, StampOf};
use crate::stream::{End, ReaderGone, Take, Urgency};
use crate::sys::*;
use crate::work::Ticket;
use abi::Result;
use abi::errno::{EAGAIN, EINVAL, ENOTCONN, EPIPE};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vfs::{Credentials, Sink, Source};
use wait::Events;
use wait::read_slots::SlotSource;

impl Tcp {
    /// When the bytes came is told, if asked for. With TCP_INQ, how much is left is told; of
    /// nothing that is the end, 1 (`tcp_inq_hint`).
    fn with_unread(&self, mut r: Received) -> Received {
        if self.common.stamps.of_arrivals() && r.n > 0 {
            let at = match &self.state.read().phase {
                Phase::Connected(c) => c.rx.came.load(Ordering::Relaxed),
                Phase::Outside(o) => o.came(),
                _ => 0,
            };
            if at != 0 {
                let c = &mut r.control;
                self.common.stamps.tell(at, StampOf::Datagram, c);
            }
        }
        if self.options.on(SOL_TCP, TCP_INQ) {
            let left = match self.unread().unwrap_or(0) {
                0 if self.poll().contains(Events::RDHUP) => 1,
                n => i32::try_from(n).unwrap_or(i32::MAX),
            };
            let v = left.to_le_bytes().to_vec();
            r.control.other.push((SOL_TCP, TCP_INQ, v));
        }
        r
    }

    /// MSG_OOB, which never waits (`tcp_recv_urg`).
    fn receive_urgent(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        let n = match &self.state.read().phase {
            Phase::Connected(c) => c.rx.read_urgent(dst, Take::by(flags))?,
            Phase::Listening(_) => return Err(ENOTCONN),
            _ => return Err(EINVAL),
        };
        let cut = if n == 0 { MSG_TRUNC } else { 0 };
        Ok(Received {
            n,
            flags: MSG_OOB | cut,
            ..Received::default()
        })
    }
}

impl Tcp {
    /// Numbers of bytes begin with what is not acknowledged; of nothing they cannot begin.
    fn set_stamps(&self, name: i32, v: &[u8]) -> Result<()> {
        let (int, stamps) = (int_of(v)?, &self.common.stamps);
        let begins = stamps.begins_numbers(int as u32);
        let s = self.state.read();
        if begins && matches!(s.phase, Phase::Idle | Phase::Listening(_) | Phase::Refused) {
            return Err(EINVAL);
        }
        stamps.set(name, int)?;
        if begins {
            stamps.begin_after(match &s.phase {
                Phase::Outside(o) => o.unsent(),
                _ => 0,
            });
        }
        Ok(())
    }

    fn send_bytes(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        flags: u32,
    ) -> Result<usize> {
        // Nothing is sent with the lock held: memory of the program may take its time.
        let (outside, awaits) = match &self.state.read().phase {
            Phase::Outside(o) => (Some(o.clone()), false),
            phase => (None, matches!(phase, Phase::AwaitsData(_))),
        };
        let opens = flags & MSG_FASTOPEN != 0 || awaits;
        if let Some(o) = outside.filter(|_| !opens) {
            return o.send(src, flags);
        }
        if opens {
            if let Some(went) = self.open_by_sending(who, src, dest, flags)? {
                return Ok(went);
            }
            return self.send_bytes(who, src, None, flags & !MSG_FASTOPEN);
        }
        self.common.take_error()?;
        let write = |c: &Connection| {
            let ns = &*self.common.ns;
            let urgency = match flags & MSG_OOB {
                0 => Urgency::Plain,
                _ => Urgency::Last,
            };
            let r = if ns.taps.is_used() {
                let (connection, inner) = (c, &mut *src);
                let mut src = Shown {
                    ns,
                    connection,
                    inner,
                };
                c.tx.write(&mut src, ReaderGone::ResetLater, urgency, None)
            } else {
                c.tx.write(src, ReaderGone::ResetLater, urgency, None)
            };
            if matches!(r, Ok(1..)) {
                c.says(First::Said);
            }
            // A reset that comes back is the next read's, too.
            if self.common.has_error() {
                c.rx.revoke_slot();
            }
            r
        };
        self.connection(write, EPIPE)
    }
}

impl Protocol for Tcp {
    fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        let at = bindable(&self.common, &self.options, who, addr)?;
        let mut s = self.state.write();
        match &s.phase {
            Phase::Idle => {}
            Phase::Connected(c) if c.is_dead() => s.unconnect(&self.common),
            _ => return Err(EINVAL),
        }
        if s.binding.is_some() {
            return Err(EINVAL);
        }
        let mut local = at;
        if at.port != 0 || !self.options.on(SOL_IP, IP_BIND_ADDRESS_NO_PORT) {
            let asked = self.options.asked(at, &self.common, who.cred.euid);
            let b = self.common.ns.tcp.bind(&asked, Rule::Tcp, None)?;
            local.port = b.port;
            s.binding = Some(b);
        }
        s.local = Some(local);
        s.bound = ExplicitBind {
            ip: Some(at.ip).filter(|ip| !ip.is_unspecified()),
            port: at.port != 0,
        };
        s.phase = Phase::Idle;
        Ok(())
    }

    fn connect(&self, who: &Caller<'_>, addr: &[u8], block: Block) -> Result<()> {
        if family_of(addr)? == AF_UNSPEC {
            self.disconnect();
            return Ok(());
        }
        self.start(self.state.write(), who, addr, block, Opens::Plainly)
    }

    fn listen(&self, who: &Caller<'_>, backlog: i32) -> Result<()> {
        let max = self.common.ns.somaxconn.load(Ordering::Relaxed);
        // A negative backlog is a huge one.
        let backlog = (backlog as u32).min(max) as usize;
        let mut s = self.state.write();
        match &s.phase {
            Phase::Idle => {}
            Phase::Listening(l) => {
                let l = l.clone();
                drop(s);
                l.queue.lock().backlog = backlog;
                Tcp::admit(&l);
                return Ok(());
            }
            _ => return Err(EINVAL),
        }
        let table = &self.common.ns.tcp;
        let binding = match &s.binding {
            Some(b) => b.clone(),
            None => {
                let ip = s.bound.ip.unwrap_or_else(|| any_ip(self.common.family));
                let asked =
                    self.options
                        .asked(Endpoint { ip, port: 0 }, &self.common, who.cred.euid);
                let b = table.bind(&asked, Rule::Tcp, None)?;
                s.local = Some(Endpoint { ip, port: b.port });
                s.binding = Some(b.clone());
                b
            }
        };
        let l = Arc::new(Listener {
            common: self.common.clone(),
            options: self.options.clone(),
            binding: binding.clone(),
            queue: Mutex::new(AcceptQueue {
                backlog,
                ..AcceptQueue::default()
            }),
            half_open: AtomicUsize::new(0),
            cookie_at: AtomicU64::new(0),
            ticket: Ticket::default(),
            early: Mutex::default(),
        });
        self.listens_fast(backlog);
        table.set_target(&binding, l.clone())?;
        s.phase = Phase::Listening(l);
        Ok(())
    }

    fn accept(&self) -> Result<Parts> {
        let l = match &self.state.read().phase {
            Phase::Listening(l) => l.clone(),
            _ => return Err(EINVAL),
        };
        let got = {
            let mut q = l.queue.lock();
            if q.closed {
                return Err(EINVAL);
            }
            q.ready.pop_front().ok_or(EAGAIN)?
        };
        Tcp::admit(&l);
        if let Some(o) = got.outside() {
            o.accepted();
        }
        Ok(Parts::new(got.common.clone(), got))
    }

    fn local_name(&self) -> Result<Vec<u8>> {
        let l = self.state.read().local;
        Ok(l.unwrap_or_else(|| Endpoint::any(self.common.family))
            .encode(self.common.family))
    }

    fn peer_name(&self) -> Result<Vec<u8>> {
        match &self.state.read().phase {
            Phase::Connected(c) if !c.is_dead() => Ok(c.remote.encode(self.common.family)),
            Phase::Outside(o) => Ok(o.peer()?.encode(self.common.family)),
            _ => Err(ENOTCONN),
        }
    }

    fn accepted_name(&self) -> Result<Vec<u8>> {
        match &self.state.read().phase {
            Phase::Connected(c) => Ok(c.remote.encode(self.common.family)),
            Phase::Outside(o) => Ok(o.remote().encode(self.common.family)),
            _ => Err(ENOTCONN),
        }
    }

    fn is_outside(&self) -> bool {
        self.common.ns.has_way_out() && self.outside().is_some()
    }

    fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: Control,
        flags: u32,
    ) -> Result<usize> {
        let asks = match self.common.stamps.flags() == 0 && control.other.is_empty() {
            true => None,
            false => Some(stamped::asked(&self.common, &control)?),
        };
        match asks {
            None => self.send_bytes(who, src, dest, flags),
            Some(asks) => self.send_stamped(src, asks, flags, |src| {
                self.send_bytes(who, src, dest, flags)
            }),
        }
    }

    fn finish_opening(&self) -> Result<()> {
        self.try_finish_opening()
    }

    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        if flags & MSG_ERRQUEUE != 0 {
            let errors = self.errors.get().ok_or(EAGAIN)?;
            return errors.receive(dst, |_, _| ());
        }
        let peeks = &self.common.peeks;
        if let Some(o) = self.outside() {
            let r = o.receive(dst, flags)?;
            if flags & MSG_OOB == 0 {
                peeks.received(flags, r.n);
            }
            return Ok(self.with_unread(r));
        }
        if flags & MSG_OOB != 0 {
            return self.receive_urgent(dst, flags);
        }
        let (n, ends) = self.connection(
            |c| {
                let n = if flags & MSG_TRUNC != 0 && flags & MSG_PEEK == 0 {
                    c.rx.discard(dst.remaining())
                } else {
                    c.rx.read(dst, Take::by(flags), peeks.skip(flags).unwrap_or(0))
                }?;
                Ok((n, c.rx.is_at_mark()))
            },
            ENOTCONN,
        )?;
        peeks.received(flags, n);
        Ok(self.with_unread(Received {
            n,
            ends,
            ..Received::default()
        }))
    }

    fn slot_source(&self) -> Option<&dyn SlotSource> {
        Some(self)
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        if let Some(o) = self.outside() {
            if o.is_connecting() {
                self.disconnect();
                return Ok(());
            }
            o.shutdown(how)?;
            let changed = Events::WRITABLE | Events::READABLE | Events::HUP;
            self.common.notify(changed);
            return Ok(());
        }
        {
            let s = self.state.read();
            match &s.phase {
                Phase::Connected(c) if !c.is_dead() => {
                    if how.write {
                        c.show_end(&self.common.ns, End::Fin);
                        c.tx.finish(End::Fin);
                        c.says(First::Said);
                    }
                    if how.read {
                        c.rx.shut_reader();
                    }
                    self.common
                        .notify(Events::WRITABLE | Events::READABLE | Events::HUP);
                    return Ok(());
                }
                Phase::Listening(_) if !how.read => return Ok(()),
                Phase::Listening(_) | Phase::Connecting { .. } | Phase::AwaitsData(_) => {}
                _ => return Err(ENOTCONN),
            }
        }
        self.disconnect();
        Ok(())
    }

    fn poll(&self) -> Events {
        let mut e = Events::empty();
        match &self.state.read().phase {
            Phase::Idle => e |= Events::WRITABLE | Events::HUP,
            Phase::Connecting { .. } => {}
            Phase::AwaitsData(_) => e |= Events::WRITABLE,
            Phase::Outside(o) => e |= o.poll(),
            Phase::Refused => {
                e |= Events::WRITABLE | Events::READABLE | Events::RDHUP | Events::HUP;
            }
            Phase::Listening(l) => {
                if !l.queue.lock().ready.is_empty() {
                    e |= Events::READABLE;
                }
            }
            Phase::Connected(c) => {
                let (rx, tx) = (c.rx.view(), c.tx.ends());
                let no_receive = rx.end != End::Open || rx.reader_shut;
                let no_send = tx.end != End::Open || tx.writer_dead;
                if no_receive {
                    e |= Events::READABLE | Events::RDHUP;
                }
                if no_receive && no_send {
                    e |= Events::HUP;
                }
                if rx.len >= self.common.rcvlowat() + usize::from(rx.urgent.passes) {
                    e |= Events::READABLE;
                }
                if rx.urgent.unread {
                    e |= Events::PRI;
                }
                if no_send || tx.writable {
                    e |= Events::WRITABLE;
                }
            }
        }
        if self.common.has_error() {
            e |= Events::ERR;
        }
        if self.errors.get().is_some_and(|q| !q.is_empty()) {
            e |= Events::ERR;
            if self.common.flag(SO_SELECT_ERR_QUEUE) {
                e |= Events::PRI;
            }
        }
        e
    }

    fn has_error_queue(&self) -> bool {
        true
    }

    fn set_option(&self, cred: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        self.set_by_level(cred, level, name, v)
    }

    /// An error of the host's connection is the host's to tell.
    fn socket_option(&self, name: i32) -> Option<Result<Vec<u8>>> {
        if name != SO_ERROR || !self.common.ns.has_way_out() {
            return None;
        }
        let e = self.outside()?.take_error()?;
        Some(Ok(e.raw().to_le_bytes().to_vec()))
    }

    fn set_socket_option(&self, name: i32, v: &[u8]) -> Option<Result<()>> {
        match name {
            SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => return Some(self.set_stamps(name, v)),
            SO_ATTACH_FILTER => return self.need_segments().err().map(Err),
            SO_ATTACH_REUSEPORT_CBPF | SO_DETACH_REUSEPORT_BPF => {
                let bound = match self.state.read().phase {
                    Phase::Listening(_) => Chosen::After,
                    _ => Chosen::Before,
                };
                return Some(self.common.set_chooser(name, v, bound));
            }
            _ => {}
        }
        if name == SO_OOBINLINE {
            // What is in a read slot, and how connections by packets read, goes by it.
            if let Some(o) = self.outside() {
                let _ = o.set_option(SOL_SOCKET, name, v);
            }
        }
        if name == SO_KEEPALIVE
            && self.common.ns.has_way_out()
            && let Some(o) = self.outside()
        {
            let _ = o.set_option(SOL_SOCKET, name, v);
            // It goes by these, which may have been set before.
            for (level, name, value) in self.options.set_values() {
                if level == SOL_TCP && (4..=6).contains(&name) {
                    let _ = o.set_option(level, name, &value.to_ne_bytes());
                }
            }
        }
        None
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        self.get_by_level(level, name)
    }

    fn answer(&self, level: i32, name: i32, room: usize) -> Option<Answer> {
        if (level, name) != (SOL_TCP, TCP_SAVED_SYN) {
            return None;
        }
        let saved = self.outside().map(|o| o.saved_syn(room));
        Some(match saved.unwrap_or(Ok(Vec::new())) {
            Ok(bytes) => Answer {
                told: bytes.len(),
                bytes,
                error: None,
            },
            Err(told) => Answer {
                bytes: Vec::new(),
                told,
                error: Some(EINVAL),
            },
        })
    }

    fn unread(&self) -> Result<usize> {
        match &self.state.read().phase {
            Phase::Connected(c) => {
                let v = c.rx.view();
                let inline = self.common.flag(SO_OOBINLINE);
                Ok(v.urgent.ahead.filter(|_| !inline).unwrap_or(v.len))
            }
            Phase::Outside(o) => o.unread(),
            Phase::Listening(_) => Err(EINVAL),
            _ => Ok(0),
        }
    }
    fn is_at_mark(&self) -> Result<bool> {
        match &self.state.read().phase {
            Phase::Connected(c) => Ok(c.rx.is_at_mark()),
            Phase::Outside(o) => o.is_at_mark(),
            Phase::Listening(_) => Err(EINVAL),
            _ => Ok(false),
        }
    }
    fn unsent(&self) -> usize {
        match &self.state.read().phase {
            Phase::Connected(c) => c.tx.view().len,
            Phase::Outside(o) => o.unsent(),
            _ => 0,
        }
    }

    fn lingering(&self) -> Option<Lingering> {
        match &self.state.read().phase {
            Phase::Connected(c) => Lingering::new(&self.common, c.tx.clone()),
            Phase::Outside(o) => Lingering::new(&self.common, o.clone()),
            _ => None,
        }
    }

    fn close(&self) {
        let (phase, binding) = {
            let mut s = self.state.write();
            (
                std::mem::replace(&mut s.phase, Phase::Idle),
                s.binding.take(),
            )
        };
        let free = match &phase {
            Phase::Outside(o) => {
                if self.common.closes_by_reset() {
                    o.reset();
                }
                o.close(binding)
            }
            _ => binding,
        };
        if let Some(b) = free {
            self.common.ns.tcp.unbind(&b);
        }
        self.leave(phase);
    }
}
