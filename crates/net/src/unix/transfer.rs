//! Bytes, messages and files through UNIX sockets.

use super::{Link, UnixSock};
use crate::addr::UnixName;
use crate::control::{Control, Ucred};
use crate::inflight::InFlight;
use crate::msgqueue::{Msg, take_all};
use crate::options::{SO_PASSCRED, SO_PASSPIDFD};
use crate::protocol::{Caller, Received};
use crate::socket::Socket;
use crate::stream::{AllButLast, End, ReaderGone, Take, Urgency, Writers};
use crate::sys::{MSG_OOB, MSG_TRUNC};
use abi::Result;
use abi::errno::{
    ECONNREFUSED, EINVAL, EISCONN, EMSGSIZE, ENOTCONN, EOPNOTSUPP, EPERM, EPIPE, EPROTOTYPE,
};
use std::sync::atomic::Ordering;
use vfs::{Caps, Sink, Source};
use wait::Events;

/// The identity that goes with what is sent: the caller's real ids, or what it claims and may
/// claim.
fn identity(who: &Caller<'_>, claimed: Option<Ucred>) -> Result<Ucred> {
    let c = who.cred;
    let Some(u) = claimed else {
        return Ok(Ucred {
            pid: who.pid,
            uid: c.uid,
            gid: c.gid,
        });
    };
    let pid = u.pid == who.pid || who.any_pid;
    let uid = [c.uid, c.euid, c.suid].contains(&u.uid) || c.has_own(Caps::SETUID);
    let gid = [c.gid, c.egid, c.sgid].contains(&u.gid) || c.has_own(Caps::SETGID);
    if pid && uid && gid { Ok(u) } else { Err(EPERM) }
}

impl UnixSock {
    pub(super) fn transfer_out(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: Control,
        flags: u32,
    ) -> Result<usize> {
        // Streams alone have urgent bytes.
        if flags & MSG_OOB != 0 && !(self.is_stream() && src.remaining() > 0) {
            return Err(EOPNOTSUPP);
        }
        // For UNIX sockets other SOL_SOCKET messages are errors, other levels are passed over.
        if control
            .other
            .iter()
            .any(|(level, ..)| *level == crate::sys::SOL_SOCKET)
        {
            return Err(EINVAL);
        }
        let cred = identity(who, control.cred)?;
        if self.is_stream() {
            return self.send_stream(who, src, dest, cred, (&control, flags));
        }
        self.send_packet(who, src, dest, cred, &control)
    }

    fn send_stream(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        cred: Ucred,
        (control, flags): (&Control, u32),
    ) -> Result<usize> {
        // Declared before the guard: what is not sent is dropped after it.
        let mut files: Option<InFlight> = None;
        let s = self.state.read();
        let Link::Stream { tx, .. } = &s.link else {
            return Err(if dest.is_some() { EOPNOTSUPP } else { ENOTCONN });
        };
        if dest.is_some() {
            return Err(EISCONN);
        }
        if !control.files.is_empty() {
            files = self.in_flight(who, control, tx.holder)?;
        }
        let mut all_but_last;
        let src: &mut dyn Source = match flags & MSG_OOB {
            0 => src,
            _ if src.remaining() == 1 => return tx.write_aside(src, cred, &mut files),
            _ => {
                all_but_last = AllButLast(src);
                &mut all_but_last
            }
        };
        tx.write(
            src,
            ReaderGone::Epipe,
            Urgency::Plain,
            Some((cred, &mut files)),
        )
    }

    /// The files of a message to the queue of socket `holder`; `None` for no files.
    fn in_flight(&self, who: &Caller<'_>, c: &Control, holder: u64) -> Result<Option<InFlight>> {
        if c.files.is_empty() {
            return Ok(None);
        }
        let registry = &self.common.ns.in_flight;
        let limit = who.paths.files_limit();
        let new = InFlight::new(who.cred, limit, registry, &c.files, holder, Socket::unix_id);
        new.map(Some)
    }

    fn send_packet(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        cred: Ucred,
        control: &Control,
    ) -> Result<usize> {
        let (from, connected) = {
            let s = self.state.read();
            if s.shut_write {
                return Err(EPIPE);
            }
            let from = if s.name == UnixName::Unnamed {
                Vec::new()
            } else {
                s.name.encode()
            };
            let connected = match &s.link {
                Link::Packet { tx, peer } => Some((tx.clone(), peer.sock.clone())),
                _ => None,
            };
            (from, connected)
        };
        self.common.take_error()?;
        let dest = dest.filter(|_| self.is_dgram());
        let (to, target) = match (dest, connected) {
            (Some(d), _) => {
                let target = self.find(who, &UnixName::parse(d)?)?;
                if !target.is_dgram() {
                    return Err(EPROTOTYPE);
                }
                if target.peer().is_some() && !target.is_connected_to(self) {
                    return Err(EPERM);
                }
                if !self.is_connected_to(&target) {
                    UnixSock::may_reach(who, &target)?;
                }
                (target.rx.clone(), Some(target))
            }
            (None, Some((tx, peer))) => (tx, peer.upgrade()),
            (None, None) => return Err(ENOTCONN),
        };
        let sndbuf = self.common.sndbuf.load(Ordering::Relaxed) as usize;
        if src.remaining() > sndbuf.saturating_sub(32) {
            return Err(EMSGSIZE);
        }
        // Sockets that are each other's peers are limited by bytes alone.
        let mutual = target.is_some_and(|t| t.is_connected_to(self));
        let max_msgs = if mutual || !self.is_dgram() {
            usize::MAX
        } else {
            self.common.ns.max_dgram_qlen.load(Ordering::Relaxed) as usize
        };
        let files = self.in_flight(who, control, to.holder)?;
        let mut files = Some(files);
        let r = to.send(&self.common, sndbuf, max_msgs, || {
            let data = take_all(src)?;
            Ok(Msg {
                data,
                cred,
                files: files.take().flatten(),
                from,
                shown: false,
            })
        });
        match r {
            Err(ECONNREFUSED) if !self.is_dgram() => Err(EPIPE),
            Err(ECONNREFUSED) if dest.is_none() => {
                // The peer is gone: the socket is unconnected now.
                self.state.write().link = Link::None;
                Err(ECONNREFUSED)
            }
            r => r,
        }
    }

    pub(super) fn transfer_in(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        if flags & MSG_OOB != 0 && !self.is_stream() {
            return Err(EOPNOTSUPP);
        }
        let take = Take::by(flags);
        let pass = self.common.flag(SO_PASSCRED);
        let pass_pidfd = self.common.flag(SO_PASSPIDFD);
        if self.is_stream() {
            let rx = match &self.state.read().link {
                Link::Stream { rx, .. } => rx.clone(),
                _ if flags & MSG_OOB != 0 => return Err(EINVAL),
                _ => {
                    return Err(if self.common.has_error() {
                        self.pending()
                    } else {
                        EINVAL
                    });
                }
            };
            let of = match pass || pass_pidfd {
                true => Writers::One,
                false => Writers::Any,
            };
            let got = match flags & MSG_OOB {
                0 => rx.read_unix(dst, (take, self.common.peeks.skip(flags)), of)?,
                _ => rx.read_aside(dst, take)?,
            };
            if flags & MSG_OOB == 0 {
                self.common.peeks.received(flags, got.n);
            }
            let ends = rx.is_at_mark();
            let control = Control {
                files: got.files,
                cred: got.cred.filter(|_| pass),
                pidfd: got.cred.filter(|_| pass_pidfd).map(|c| c.pid),
                ..Control::default()
            };
            return Ok(Received {
                n: got.n,
                control,
                flags: flags & MSG_OOB,
                ends,
                ..Received::default()
            });
        }
        if !self.is_dgram() && !matches!(self.state.read().link, Link::Packet { .. }) {
            return Err(ENOTCONN);
        }
        self.common.take_error()?;
        let peeks = &self.common.peeks;
        let Some(t) = self.rx.receive(dst, take, peeks.skip(flags))? else {
            return Ok(Received::default());
        };
        // What is read is counted whole, what is peeked at as far as it was shown.
        peeks.received(flags, if take == Take::Peek { t.n } else { t.len });
        let control = Control {
            files: t.files,
            cred: Some(t.cred).filter(|_| pass),
            pidfd: Some(t.cred.pid).filter(|_| pass_pidfd),
            ..Control::default()
        };
        Ok(Received {
            n: if flags & MSG_TRUNC != 0 { t.len } else { t.n },
            addr: t.from,
            control,
            flags: if t.n < t.len { MSG_TRUNC } else { 0 },
            ..Received::default()
        })
    }

    fn pending(&self) -> abi::Errno {
        self.common.take_error().err().unwrap_or(EINVAL)
    }

    pub(super) fn ready(&self) -> Events {
        let mut e = Events::empty();
        if self.common.has_error() {
            e |= Events::ERR;
        }
        let sndbuf = self.common.sndbuf.load(Ordering::Relaxed) as usize;
        let out = Events::WRITABLE | Events::WRBAND;
        let mut peer_queue = None;
        {
            let s = self.state.read();
            match &s.link {
                Link::Listening(l) => {
                    if !l.queue.lock().ready.is_empty() {
                        e |= Events::READABLE;
                    }
                    return e;
                }
                Link::Stream { rx, tx, .. } => {
                    let (r, t) = (rx.view(), tx.ends());
                    let no_receive = r.end != End::Open || r.reader_shut;
                    let no_send = t.end != End::Open || t.reader_closed || t.reader_shut;
                    if no_receive {
                        e |= Events::READABLE | Events::RDHUP;
                    }
                    if no_receive && no_send {
                        e |= Events::HUP;
                    }
                    if r.len > 0 || r.urgent.some {
                        e |= Events::READABLE;
                    }
                    if r.urgent.unread {
                        e |= Events::PRI;
                    }
                    if t.writable {
                        e |= out;
                    }
                    return e;
                }
                Link::None if !self.is_dgram() => return e | out | Events::HUP,
                Link::None => {}
                Link::Packet { tx, peer } => peer_queue = Some((tx.clone(), peer.sock.clone())),
            }
            if self.rx.is_ended() {
                e |= Events::READABLE | Events::RDHUP;
                let peer_gone = peer_queue.as_ref().is_some_and(|(q, _)| q.is_shut());
                if s.shut_write || (peer_gone && !self.is_dgram()) {
                    e |= Events::HUP;
                }
            }
        }
        if self.rx.len() > 0 {
            e |= Events::READABLE;
        }
        let room = peer_queue.is_none_or(|(q, p)| {
            let mutual = !self.is_dgram() || p.upgrade().is_some_and(|p| p.is_connected_to(self));
            let msgs = self.common.ns.max_dgram_qlen.load(Ordering::Relaxed) as usize;
            q.has_room(&self.common, sndbuf, if mutual { usize::MAX } else { msgs })
        });
        if room {
            e |= out;
        }
        e
    }
}
