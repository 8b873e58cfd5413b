//! What its socket does with a connection.

use super::pressure::UNDER_PRESSURE;
use super::{
    ORPHANS_MOST, Orphan, Progress, Remote, STAMPED_MOST, State, endpoint, is_connected,
    is_connecting, may_receive, may_send,
};
use crate::addr::Endpoint;
use crate::bindings::Binding;
use crate::clock::now;
use crate::inet;
use crate::options::{SO_KEEPALIVE, SO_OOBINLINE};
use crate::protocol::{Block, Received, Shutdown};
use crate::stack::{info, options};
use crate::sys::*;
use crate::tcp::{Listener, Outside, Stamped};
use abi::errno::{EAGAIN, ECONNABORTED, EINVAL, EISCONN, ENOBUFS, ENOTCONN, EPIPE};
use abi::{Errno, Result};
use netstack::counters::Mib;
use netstack::tcp::{State as Phase, Take, UrgentByte};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Sink, Source};
use wait::Events;

impl Outside for Remote {
    fn local(&self) -> Endpoint {
        endpoint(self.pair.local)
    }

    fn remote(&self) -> Endpoint {
        endpoint(self.pair.remote)
    }

    fn mss(&self) -> Option<i32> {
        let mss = self.look(|s| s.engine.info().send_mss);
        i32::try_from(mss).ok()
    }

    fn peer(&self) -> Result<Endpoint> {
        if is_connected(self.look(|s| s.engine.standing())) {
            Ok(endpoint(self.pair.remote))
        } else {
            Err(ENOTCONN)
        }
    }

    fn again(&self) -> Option<Result<()>> {
        let (state, first) = self.look(|s| {
            let state = s.engine.standing();
            let first = !s.announced;
            s.announced |= !is_connecting(state);
            (state, first)
        });
        if is_connecting(state) {
            return Some(Err(EAGAIN));
        }
        match (is_connected(state), first) {
            (true, true) => Some(Ok(())),
            (true, false) => Some(Err(EISCONN)),
            (false, true) => Some(Err(self.common.take_error().err().unwrap_or(ECONNABORTED))),
            (false, false) => None,
        }
    }

    fn send(&self, src: &mut dyn Source, flags: u32) -> Result<usize> {
        self.common.take_error()?;
        self.work_by_program(|s| {
            self.resize(s);
            let state = s.engine.standing();
            if is_connecting(state) {
                if flags & MSG_DONTWAIT == 0 {
                    s.engine.await_to_write();
                }
                return Err(EAGAIN);
            }
            if !may_send(state) {
                return Err(EPIPE);
            }
            if src.remaining() == 0 {
                return Ok(0);
            }
            self.relieve(s);
            if self.common.is_pressed() && s.engine.memory() > UNDER_PRESSURE {
                // What is acknowledged makes room.
                return Err(if s.engine.unsent() > 0 {
                    EAGAIN
                } else {
                    ENOBUFS
                });
            }
            let written = match flags & MSG_MORE {
                0 => s.engine.write(|piece| src.take(piece))?,
                _ => s.engine.write_more(|piece| src.take(piece))?,
            };
            match written {
                0 => Err(EAGAIN),
                n => {
                    if flags & MSG_OOB != 0 {
                        s.engine.mark_urgent();
                    }
                    if flags & MSG_EOR != 0 && src.remaining() == 0 {
                        s.engine.end_record();
                    }
                    Ok(n)
                }
            }
        })
    }

    fn send_with_syn(&self, mss: u16, src: &mut dyn Source, block: Block) -> usize {
        self.work_by_program(|s| {
            if self.common.lacks_tcp_memory() {
                return 0;
            }
            // What cannot be read does not go with it; the next send tells.
            let went = s.engine.write_with_syn(mss, |piece| src.take(piece));
            let went = went.unwrap_or(0);
            if block == Block::Yes && src.remaining() > 0 {
                s.engine.await_to_write();
            }
            went
        })
    }

    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        if flags & MSG_OOB != 0 {
            return self.receive_urgent(dst, flags);
        }
        let (n, ends) = self.work(|s, _| {
            self.resize(s);
            if is_connecting(s.engine.standing()) {
                return Err(EAGAIN);
            }
            if dst.remaining() == 0 {
                return Ok((0, false));
            }
            let skip = self.common.peeks.skip(flags).unwrap_or(0);
            if s.engine.readable() <= skip {
                if s.engine.readable() > 0 && s.engine.has_fin() {
                    return Ok((0, false));
                }
                return self.nothing_to_read(s).map(|n| (n, false));
            }
            if flags & MSG_TRUNC != 0 && flags & MSG_PEEK == 0 {
                let n = s.engine.discard(dst.remaining());
                return Ok((n, is_at_mark(s)));
            }
            let take = if flags & MSG_PEEK != 0 {
                Take::Peek { skip }
            } else {
                Take::Out
            };
            let n = s.engine.read(take, |piece| match dst.remaining() {
                0 => Ok(0),
                room => dst.put(&piece[..piece.len().min(room)]),
            })?;
            Ok((n, is_at_mark(s)))
        })?;
        Ok(Received {
            n,
            ends,
            ..Received::default()
        })
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.work(|s, _| {
            let state = s.engine.standing();
            if !is_connected(state) {
                return Err(ENOTCONN);
            }
            if how.read {
                s.read_shut = true;
            }
            if how.write {
                s.told |= s.engine.close_write();
            }
            Ok(())
        })
    }

    fn poll(&self) -> Events {
        self.look(|s| self.ready(s))
    }

    fn unread(&self) -> Result<usize> {
        Ok(self.look(|s| {
            let at_mark = is_at_mark(s) && !s.engine.config().urgent_inline;
            if at_mark { 0 } else { s.engine.readable() }
        }))
    }

    fn came(&self) -> i64 {
        self.came.load(Ordering::Relaxed)
    }

    fn is_at_mark(&self) -> Result<bool> {
        Ok(self.look(|s| is_at_mark(s)))
    }

    fn unsent(&self) -> usize {
        self.look(|s| s.engine.unsent())
    }

    fn info(&self) -> Result<Vec<u8>> {
        Ok(self.look(|s| info::encode(&s.engine.info(), &s.path, now())))
    }

    fn mtu(&self) -> u32 {
        self.look(|s| s.path.mtu)
    }

    fn set_option(&self, level: i32, name: i32, v: &[u8]) -> Result<()> {
        let value = crate::options::int_of(v).unwrap_or(0);
        self.work(|s, _| match (level, name) {
            (SOL_IP, inet::IP_TTL) | (SOL_IPV6, inet::IPV6_UNICAST_HOPS) => {
                s.marks.ttl = u8::try_from(value).unwrap_or(64);
            }
            (SOL_IP, inet::IP_TOS) | (SOL_IPV6, inet::IPV6_TCLASS) => s.marks.tos = value as u8,
            (SOL_TCP, _) | (SOL_SOCKET, SO_KEEPALIVE | SO_OOBINLINE) => {
                s.engine.configure(|c| options::set(c, level, name, value));
                match (level, name, value) {
                    (SOL_TCP, options::TCP_NODELAY, 1..) => s.engine.send_partial(),
                    (SOL_TCP, options::TCP_CORK, 0) => s.engine.let_go(),
                    _ => {}
                }
            }
            _ => {}
        });
        Ok(())
    }

    fn take_error(&self) -> Option<Errno> {
        None
    }

    fn tell_when_sent(&self, what: Stamped) {
        self.work(|s, _| {
            if !s.over && s.stamped.len() < STAMPED_MOST {
                let place = s.engine.written_until();
                s.stamped.push_back((place, Progress::Waits, what));
            }
        });
    }

    fn has_segments(&self) -> bool {
        true
    }

    fn saved_syn(&self, room: usize) -> std::result::Result<Vec<u8>, usize> {
        self.look(|s| match s.saved_syn.len() {
            n if n > room => Err(n),
            _ => Ok(std::mem::take(&mut s.saved_syn).into()),
        })
    }

    fn is_connecting(&self) -> bool {
        self.look(|s| is_connecting(s.engine.standing()))
    }

    fn accepted(&self) {
        self.look(|s| s.engine.accepted());
    }

    fn reset(&self) {
        self.work(|s, _| s.told |= s.engine.abort());
    }

    fn close(&self, binding: Option<Arc<Binding<Listener>>>) -> Option<Arc<Binding<Listener>>> {
        self.work(|s, t| {
            s.told |= s.engine.close() | s.engine.orphan(t);
            if s.engine.standing() == Phase::Closed {
                return binding;
            }
            s.binding = binding;
            s.orphan = Some(Orphan {
                unsent: s.engine.unsent(),
                since: t,
            });
            if self.stack.orphans.fetch_add(1, Ordering::Relaxed) >= ORPHANS_MOST {
                self.stack.ip.count(Mib::ExtAbortOnMemory);
                // Too many: it is reset, as Linux does (`tcp_max_orphans`).
                s.told |= s.engine.abort();
            }
            None
        })
    }
}

impl Remote {
    /// What holds of what poll(2) asks for.
    fn ready(&self, s: &State) -> Events {
        let state = s.engine.standing();
        let mut e = Events::empty();
        if is_connecting(state) {
            return e;
        }
        let no_receive = s.read_shut || !may_receive(state);
        let no_send = !may_send(state);
        if no_receive {
            e |= Events::READABLE | Events::RDHUP;
        }
        if no_receive && no_send {
            e |= Events::HUP;
        }
        if s.engine.available() >= self.common.rcvlowat() {
            e |= Events::READABLE;
        }
        if matches!(s.engine.urgent(), Some(u) if matches!(u.byte, UrgentByte::There(_))) {
            e |= Events::PRI;
        }
        if no_send || s.engine.is_writable() {
            e |= Events::WRITABLE;
        }
        e
    }
}

/// Whether the reader stands before the urgent byte, or where it was.
fn is_at_mark(s: &State) -> bool {
    s.engine.urgent().is_some_and(|u| u.ahead == 0)
}

impl Remote {
    /// MSG_OOB, which never waits (`tcp_recv_urg`).
    fn receive_urgent(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        let take = match flags & MSG_PEEK {
            0 => Take::Out,
            _ => Take::Peek { skip: 0 },
        };
        let byte = self.work(|s, _| {
            if s.engine.config().urgent_inline {
                return Err(EINVAL);
            }
            match s.engine.read_urgent(take).ok_or(EINVAL)? {
                UrgentByte::There(b) => Ok(Some(b)),
                UrgentByte::Taken => Err(EINVAL),
                UrgentByte::NotYet if s.engine.has_fin() || s.read_shut => Ok(None),
                UrgentByte::NotYet => Err(EAGAIN),
            }
        })?;
        let Some(byte) = byte else {
            return Ok(Received::default());
        };
        let n = match dst.remaining() {
            0 => 0,
            _ => dst.put(&[byte])?,
        };
        let cut = if n == 0 { MSG_TRUNC } else { 0 };
        Ok(Received {
            n,
            flags: MSG_OOB | cut,
            ..Received::default()
        })
    }

    /// What a read finds when there are no bytes.
    fn nothing_to_read(&self, s: &State) -> Result<usize> {
        if s.engine.is_at_end() {
            return Ok(0);
        }
        self.common.take_error()?;
        if s.read_shut {
            return Ok(0);
        }
        match s.engine.standing() {
            state if may_receive(state) => Err(EAGAIN),
            _ => Ok(0),
        }
    }
}
