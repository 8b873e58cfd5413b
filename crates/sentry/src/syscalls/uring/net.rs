//! Operations on sockets (`io_uring/net.c`).

use super::super::SysResult;
use super::super::args::*;
use super::super::io::buffer;
use super::super::messages::{INTERNAL, Outgoing, send_on};
use super::super::sockets::{
    AddressOut, Family, SocketFlags, SocketType, addr_in, as_caller, file_of, new_socket, socket_of,
};
use super::files::{install, unused};
use super::rw::{AT_ONCE, again, select, used_of};
use super::{Prepared, by, call, weighed};
use crate::task::Context;
use crate::task::uring::abi::{CQE_MORE, CQE_NOTIF, CQE_SOCK_NONEMPTY, FILE_INDEX_ALLOC, SqeFlags};
use crate::task::uring::buffers::SelectedBuffer;
use crate::task::uring::{Cqe, Done, Outcome, Request, Ring, Sqe, result};
use abi::errno::*;
use abi::{Result, Va};
use mm::UserIo;
use net::sys::{AF_INET, AF_INET6, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_STREAM};
use net::{Block, Control};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vfs::fd_table::CloseOnExec;
use vfs::{File, Source};
use wait::Events;

bitflags::bitflags! {
    /// `IORING_RECVSEND_*` and `IORING_SEND_ZC_*`, in the entry's priority.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) struct NetFlags: u16 {
        const POLL_FIRST = 1;
        const MULTISHOT = 2;
        const FIXED_BUF = 4;
        const ZC_REPORT_USAGE = 8;
    }
}

bitflags::bitflags! {
    /// `IORING_ACCEPT_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct AcceptFlags: u16 {
        const MULTISHOT = 1;
        const DONTWAIT = 2;
        const POLL_FIRST = 4;
    }
}

pub(super) const MSG_WAITALL: u32 = 0x100;
const MSG_CMSG_COMPAT: u32 = 0x8000_0000;

/// What a transfer is: from where or to where, by which flags, and how far it has come.
pub(super) struct Transfer {
    pub(super) e: Sqe,
    pub(super) net: NetFlags,
    pub(super) flags: u32,
    pub(super) done: AtomicUsize,
    /// The provided buffer that a part of it is in, or came from.
    held: Mutex<Option<SelectedBuffer>>,
}

impl Transfer {
    pub(super) fn new(e: &Sqe, known: NetFlags) -> Result<Transfer> {
        let net = NetFlags::from_bits(e.ioprio).filter(|f| known.contains(*f));
        if e.op_flags & MSG_CMSG_COMPAT != 0 {
            return Err(EINVAL);
        }
        Ok(Transfer {
            e: *e,
            net: net.ok_or(EINVAL)?,
            flags: e.op_flags,
            done: AtomicUsize::new(0),
            held: Mutex::new(None),
        })
    }
    /// A provided buffer, for at most `most` bytes (0: all): that of an earlier part, or one that
    /// is taken now.
    pub(super) fn buffer(&self, r: &Request, most: u32) -> Result<(Va, u32, SelectedBuffer)> {
        match self.held.lock().take() {
            Some(b) => Ok((Va(b.buffer.addr), used_of(&b, most), b)),
            None => select(r, most),
        }
    }
    /// What becomes of the buffer by what an attempt came to: told, kept for the next, or given
    /// back.
    pub(super) fn after(&self, r: &Request, taken: Option<SelectedBuffer>, o: Outcome) -> Outcome {
        let Some(b) = taken else { return o };
        match o {
            // (What ends without a byte has used none.)
            Outcome::Done(d) if d.res > 0 => Outcome::Done(Done {
                flags: d.flags | b.flags(),
                ..d
            }),
            Outcome::Wait(..) if self.done.load(Ordering::Relaxed) > 0 => {
                *self.held.lock() = Some(b);
                o
            }
            o => {
                r.ring.groups.give_back(b);
                o
            }
        }
    }
    pub(super) fn waits(&self) -> bool {
        self.flags & MSG_DONTWAIT == 0
    }
    /// The first attempt is to wait for the file.
    pub(super) fn polls_first(&self, f: &Arc<File>, events: Events) -> Option<Outcome> {
        let first = self.net.contains(NetFlags::POLL_FIRST)
            && (f.poll(events) & (events | Events::ALWAYS)).is_empty();
        first.then(|| Outcome::Wait(f.clone(), events))
    }
    /// What an attempt comes to, of `whole` bytes: with MSG_WAITALL all are wanted of a stream
    /// (`io_net_retry`).
    pub(super) fn outcome(
        &self,
        f: Arc<File>,
        r: SysResult,
        whole: usize,
        events: Events,
    ) -> Outcome {
        let before = self.done.load(Ordering::Relaxed);
        match r {
            Err(EAGAIN) if self.waits() => Outcome::Wait(f, events),
            Ok(n) if n > 0 && n < whole && self.is_whole(&f) => {
                self.done.store(before + n, Ordering::Relaxed);
                Outcome::Wait(f, events)
            }
            Ok(n) => Outcome::Done(Done {
                res: result(Ok(before + n)),
                failed: n < whole && self.flags & MSG_WAITALL != 0,
                ..Done::default()
            }),
            Err(_) if before > 0 => Outcome::Done(Done {
                res: result(Ok(before)),
                failed: true,
                ..Done::default()
            }),
            Err(e) => e.into(),
        }
    }
    fn is_whole(&self, f: &File) -> bool {
        let stream = socket_of(f).is_ok_and(|s| s.kind() == SOCK_STREAM);
        stream && self.flags & MSG_WAITALL != 0
    }
}

pub(super) fn outcome(r: Result<Outcome>) -> Outcome {
    r.unwrap_or_else(Outcome::from)
}

/// The address that a send names; for UNIX sockets an empty one is none.
fn destination(cx: &Context, e: &Sqe) -> Result<Option<Vec<u8>>> {
    if e.file_index >> 16 != 0 {
        return Err(EINVAL);
    }
    let addr = AddressIn {
        va: Va(e.off),
        len: (e.file_index & 0xffff) as i32,
    };
    let named = e.off != 0;
    named.then(|| addr_in(&cx.mm(), addr)).transpose()
}

pub(super) fn send(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    let t = Transfer::new(e, NetFlags::POLL_FIRST)?;
    let dest = destination(cx, e)?;
    by(move |cx, r| outcome(do_send(cx, r, &t, dest.as_deref())))
}

fn do_send(cx: &Context, r: &Arc<Request>, t: &Transfer, dest: Option<&[u8]>) -> Result<Outcome> {
    let f = r.file()?;
    let s = socket_of(&f)?;
    if let Some(o) = t.polls_first(&f, Events::WRITABLE) {
        return Ok(o);
    }
    let mm = cx.mm();
    let (va, len, taken) = match t.e.has(SqeFlags::BUFFER_SELECT) {
        true => {
            let (va, len, taken) = t.buffer(r, t.e.len)?;
            (va, len as usize, Some(taken))
        }
        false => (Va(t.e.addr), t.e.len as usize, None),
    };
    if t.net.contains(NetFlags::FIXED_BUF) && mm.is_secret(va, len as u64) {
        return Err(EFAULT);
    }
    let done = t.done.load(Ordering::Relaxed);
    let mut src = buffer(&mm, va.offset(done as u64), len.saturating_sub(done))?;
    let whole = Source::remaining(&src);
    let dest = dest.filter(|d| !d.is_empty() || s.family() != AF_UNIX);
    let flags = t.flags & !INTERNAL | MSG_NOSIGNAL | MSG_DONTWAIT;
    let sent = send_on(cx, &f, &mut src, dest, Control::default(), flags);
    let o = t.outcome(f, sent, whole, Events::WRITABLE);
    Ok(t.after(r, taken, o))
}

pub(super) fn sendmsg(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.off, e.file_index.into()])?;
    let t = Transfer::new(e, NetFlags::POLL_FIRST)?;
    let m = Outgoing::gather(cx, Va(e.addr))?;
    let weight = m.weight();
    let op = by(move |cx, r| outcome(do_sendmsg(cx, r, &t, &m)));
    weighed(weight, op)
}

fn do_sendmsg(cx: &Context, r: &Arc<Request>, t: &Transfer, m: &Outgoing) -> Result<Outcome> {
    let f = r.file()?;
    socket_of(&f)?;
    if let Some(o) = t.polls_first(&f, Events::WRITABLE) {
        return Ok(o);
    }
    let mm = cx.mm();
    let mut src = UserIo::vectored(&mm, m.ranges.iter().copied());
    let _before = src.split(t.done.load(Ordering::Relaxed));
    let whole = Source::remaining(&src);
    let flags = t.flags | MSG_NOSIGNAL | MSG_DONTWAIT;
    let sent = m.send(cx, &f, &mut src, flags);
    Ok(t.outcome(f, sent, whole, Events::WRITABLE))
}

/// `IORING_OP_SEND_ZC` and `IORING_OP_SENDMSG_ZC`: copies, and says so in a second completion.
pub(super) fn send_zc(cx: &mut Context, ring: &Arc<Ring>, e: &Sqe) -> Prepared {
    let known = NetFlags::POLL_FIRST | NetFlags::FIXED_BUF | NetFlags::ZC_REPORT_USAGE;
    let t = zero_copy(e, known)?;
    if e.addr3 != 0 {
        return Err(EINVAL);
    }
    let fixed = t.net.contains(NetFlags::FIXED_BUF);
    if fixed {
        let node = ring.resources.buffers.get(e.buf_index.into());
        node.ok_or(EFAULT)?.what().part(Va(e.addr), e.len.into())?;
    }
    let dest = destination(cx, e)?;
    by(move |cx, r| {
        let o = outcome(supports(r).and_then(|()| do_send(cx, r, &t, dest.as_deref())));
        notify(r, &t, o)
    })
}

pub(super) fn sendmsg_zc(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.off, e.file_index.into()])?;
    let t = zero_copy(e, NetFlags::POLL_FIRST | NetFlags::ZC_REPORT_USAGE)?;
    let m = Outgoing::gather(cx, Va(e.addr))?;
    let weight = m.weight();
    let op = by(move |cx, r| {
        let o = outcome(supports(r).and_then(|()| do_sendmsg(cx, r, &t, &m)));
        notify(r, &t, o)
    });
    weighed(weight, op)
}

fn zero_copy(e: &Sqe, known: NetFlags) -> Result<Transfer> {
    if e.has(SqeFlags::CQE_SKIP_SUCCESS) || e.pad != 0 {
        return Err(EINVAL);
    }
    Transfer::new(e, known)
}

/// Which sockets have the operation (`SOCK_SUPPORT_ZC`).
fn supports(r: &Request) -> Result<()> {
    let f = r.file()?;
    match socket_of(&f)?.family() {
        AF_INET | AF_INET6 => Ok(()),
        _ => Err(EOPNOTSUPP),
    }
}

/// The buffer is free as soon as the result is there: that is told first, with more to come.
fn notify(r: &Arc<Request>, t: &Transfer, o: Outcome) -> Outcome {
    const COPIED: i32 = i32::MIN;
    let Outcome::Done(d) = o else { return o };
    r.ring.complete_for(Cqe {
        user_data: r.sqe.user_data,
        res: d.res,
        flags: d.flags | CQE_MORE,
        ..Cqe::default()
    });
    let usage = t.net.contains(NetFlags::ZC_REPORT_USAGE);
    Outcome::Done(Done {
        res: if usage { COPIED } else { 0 },
        flags: CQE_NOTIF,
        failed: d.failed,
        ..Done::default()
    })
}

/// Whether there is more, as a completion tells it of TCP.
pub(super) fn more_waits(f: &File) -> u32 {
    let tcp = socket_of(f)
        .is_ok_and(|s| matches!(s.family(), AF_INET | AF_INET6) && s.kind() == SOCK_STREAM);
    match tcp && f.poll(Events::READABLE).contains(Events::IN) {
        true => CQE_SOCK_NONEMPTY,
        false => 0,
    }
}

/// Where a socket that an operation has made goes.
#[derive(Clone, Copy)]
struct NewFile {
    flags: SocketFlags,
    /// A registered file's, counted from 1; 0 for a descriptor.
    slot: u32,
}

impl NewFile {
    fn new(raw: u32, slot: u32) -> Result<NewFile> {
        let flags = SocketFlags::from_bits(raw).ok_or(EINVAL)?;
        if slot != 0 && flags.contains(SocketFlags::SOCK_CLOEXEC) {
            return Err(EINVAL);
        }
        Ok(NewFile { flags, slot })
    }
    /// Gives a file its number; `make` makes it when there is one.
    fn give(
        self,
        cx: &Context,
        r: &Request,
        make: impl FnOnce() -> Result<Arc<File>>,
    ) -> SysResult {
        cx.cred().may_take_more(ENFILE)?;
        if self.slot != 0 {
            return install(&r.ring, make()?, self.slot);
        }
        let table = cx.files();
        let number = table.reserve(&cx.room())?;
        let close = CloseOnExec::from_flags(self.flags.bits());
        Ok(number.install(make()?, close) as usize)
    }
}

pub(super) fn accept(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.len.into(), e.buf_index.into()])?;
    let new = NewFile::new(e.op_flags, e.file_index)?;
    let flags = AcceptFlags::from_bits(e.ioprio).ok_or(EINVAL)?;
    let multi = flags.contains(AcceptFlags::MULTISHOT);
    if multi && new.slot != 0 && new.slot != FILE_INDEX_ALLOC {
        return Err(EINVAL);
    }
    let peer = (e.addr != 0).then(|| AddressOut {
        va: Va(e.addr),
        len: UserPtr::new(Va(e.off)),
    });
    by(move |cx, r| outcome(accept_some(cx, r, flags, new, peer)))
}

fn accept_some(
    cx: &Context,
    r: &Arc<Request>,
    flags: AcceptFlags,
    new: NewFile,
    peer: Option<AddressOut>,
) -> Result<Outcome> {
    let f = r.file()?;
    let s = socket_of(&f)?;
    for _ in 0..AT_ONCE {
        let accepted = new.give(cx, r, || {
            let conn = s.accept()?;
            if let Some(out) = peer {
                let name = conn.accepted_name().map_err(|_| ECONNABORTED)?;
                out.write(&cx.mm(), &name)?;
            }
            Ok(file_of(cx, conn, new.flags))
        });
        let n = match accepted {
            Ok(n) => n,
            Err(EAGAIN) if !flags.contains(AcceptFlags::DONTWAIT) => {
                return Ok(Outcome::Wait(f, Events::READABLE));
            }
            Err(e) => return Err(e),
        };
        let nonempty = more_waits(&f);
        if !flags.contains(AcceptFlags::MULTISHOT) {
            return Ok(Outcome::Done(Done {
                flags: nonempty,
                ..Done::plain(n as i32)
            }));
        }
        let c = Cqe {
            user_data: r.sqe.user_data,
            res: n as i32,
            flags: nonempty,
            ..Cqe::default()
        };
        if !r.ring.complete_more(c) {
            return Ok(Outcome::Done(Done {
                flags: nonempty,
                ..Done::plain(n as i32)
            }));
        }
    }
    again(r, f, Events::READABLE)
}

fn address(cx: &Context, e: &Sqe) -> Result<Vec<u8>> {
    let addr = AddressIn {
        va: Va(e.addr),
        len: e.off as i32,
    };
    addr_in(&cx.mm(), addr)
}

pub(super) fn connect(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.len.into(), e.buf_index.into(), e.op_flags.into()])?;
    unused(&[e.file_index.into()])?;
    let addr = address(cx, e)?;
    by(move |cx, r| {
        outcome(r.file().and_then(|f| {
            let s = socket_of(&f)?;
            match as_caller(cx, |who| s.connect(who, &addr, Block::Yes)) {
                Err(EAGAIN) => Ok(Outcome::Wait(f, Events::WRITABLE)),
                r => Ok(r.map(|()| 0).into()),
            }
        }))
    })
}

pub(super) fn bind(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.len.into(), e.buf_index.into(), e.op_flags.into()])?;
    unused(&[e.file_index.into()])?;
    let addr = address(cx, e)?;
    call(move |cx, r| {
        let f = r.file()?;
        let s = socket_of(&f)?;
        as_caller(cx, |who| s.bind(who, &addr)).map(|()| 0)
    })
}

pub(super) fn listen(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.addr, e.buf_index.into(), e.op_flags.into()])?;
    unused(&[e.file_index.into(), e.off])?;
    let backlog = e.len as i32;
    call(move |cx, r| {
        let f = r.file()?;
        let s = socket_of(&f)?;
        as_caller(cx, |who| s.listen(who, backlog)).map(|()| 0)
    })
}

pub(super) fn shutdown(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.off, e.addr, e.op_flags.into(), e.buf_index.into()])?;
    unused(&[e.file_index.into()])?;
    let how = e.len;
    call(move |_, r| socket_of(&*r.file()?)?.shutdown(how).map(|()| 0))
}

pub(super) fn socket(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.addr, e.op_flags.into(), e.buf_index.into()])?;
    let raw = e.off as u32;
    let new = NewFile::new(raw & !0xf, e.file_index)?;
    let of = SocketType::decode(&[u64::from(raw)])?;
    let (family, protocol) = (Family(e.fd), e.len as i32);
    call(move |cx, r| new.give(cx, r, || new_socket(cx, family, of, protocol)))
}
