//! The open file of a socket, and the calls of the socket interface on one.

use crate::control::Control;
use crate::inflight::{self, InFlight};
use crate::landlock;
use crate::lingering::Lingering;
use crate::ns::NetNamespace;
use crate::options::{Common, SO_ATTACH_FILTER, SO_MEMINFO};
use crate::protocol::{Answer, Block, Caller, Parts, PathNames, Protocol, Received, Shutdown};
use crate::sys::*;
use abi::Result;
use abi::errno::{EAGAIN, EINVAL, EPIPE};
use clas::Mappable;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vfs::file::Io;
use vfs::file::IoctlContext;
use vfs::{Credentials, File, FileOps, Sink, Source, Stat};
use wait::lead::Ask;
use wait::read_slots::{ReadSlots, SlotSource};
use wait::{Events, WaitQueue};

/// `st_dev` of sockets.
const SOCKFS_DEV: u64 = 9;
/// The most bytes that one address may have (`struct sockaddr_storage`).
const MAX_ADDR: usize = 128;

/// A socket as an open file. Dropping it closes it.
pub struct Socket {
    pub(crate) common: Arc<Common>,
    protocol: Arc<dyn Protocol>,
}

impl Socket {
    pub(crate) fn new(parts: Parts) -> Socket {
        Socket {
            common: parts.common,
            protocol: parts.protocol,
        }
    }
    /// Its inode's number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.common.ino
    }
    /// The number of the UNIX socket that a file is: files can travel to it.
    pub(crate) fn unix_id(f: &File) -> Option<u64> {
        let common = &f.ops::<Socket>()?.common;
        (common.family == AF_UNIX).then_some(common.ino)
    }
    /// What waits in the queues of a file that is a socket, which gives it up.
    pub(crate) fn give_up(f: &File) -> Vec<InFlight> {
        let socket = f.ops::<Socket>();
        socket.map_or_else(Vec::new, |s| s.protocol.take_in_flight())
    }
    /// Its protocol as its own type.
    pub(crate) fn downcast<P: Protocol>(&self) -> Option<&P> {
        let any: &dyn Any = &*self.protocol;
        any.downcast_ref()
    }

    #[must_use]
    pub fn family(&self) -> u16 {
        self.common.family
    }
    /// SOCK_*.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.common.kind
    }
    /// SO_RCVTIMEO: how long a blocking receive or accept waits.
    #[must_use]
    pub fn receive_timeout(&self) -> Option<Duration> {
        match self.common.rcvtimeo.load(Ordering::Relaxed) {
            0 => None,
            n => Some(Duration::from_nanos(n as u64)),
        }
    }
    /// SO_RCVLOWAT: how many bytes a blocking receive from a stream waits for.
    #[must_use]
    pub fn receive_low_water(&self) -> usize {
        self.common.rcvlowat()
    }
    /// SO_SNDTIMEO: how long a blocking send or connect waits.
    #[must_use]
    pub fn send_timeout(&self) -> Option<Duration> {
        match self.common.sndtimeo.load(Ordering::Relaxed) {
            0 => None,
            n => Some(Duration::from_nanos(n as u64)),
        }
    }

    pub fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        check_addr(addr)?;
        landlock::may_bind(&self.common, who.cred, addr)?;
        self.catch_up(Ask::Surely);
        self.protocol.bind(who, addr)
    }
    /// With `Block::Yes`, `EAGAIN`: wait for OUT and call again.
    pub fn connect(&self, who: &Caller<'_>, addr: &[u8], block: Block) -> Result<()> {
        check_addr(addr)?;
        landlock::may_connect(&self.common, who.cred, addr)?;
        self.catch_up(Ask::Surely);
        self.then_pass(self.protocol.connect(who, addr, block))
    }
    /// What a call has said to somebody of this host comes to him.
    fn then_pass<R>(&self, r: R) -> R {
        if self.common.family != AF_UNIX {
            self.common.ns.pass_inside();
        }
        r
    }
    /// What a peer has sent before a call counts for it. Whether there was something.
    fn catch_up(&self, ask: Ask) -> bool {
        let stack = || self.common.ns.stack();
        self.common.family != AF_UNIX && stack().is_some_and(|s| s.catch_up(ask))
    }
    pub fn listen(&self, who: &Caller<'_>, backlog: i32) -> Result<()> {
        self.protocol.listen(who, backlog)
    }
    /// The next connection; its address is its `accepted_name`.
    pub fn accept(&self) -> Result<Arc<Socket>> {
        let next = match self.protocol.accept() {
            Err(abi::errno::EAGAIN) if self.catch_up(Ask::Quickly) => self.protocol.accept(),
            r => r,
        };
        next.map(Socket::new).map(Arc::new)
    }
    /// `getsockname(2)`.
    pub fn local_name(&self) -> Result<Vec<u8>> {
        self.protocol.local_name()
    }
    /// Fills the descriptor's read slot with what the next reads give, where that is simple.
    pub fn fill_slot(&self, file: &File, slots: &Arc<dyn ReadSlots>, slot: u32) {
        if self.common.kind == SOCK_STREAM
            && let Some(s) = self.protocol.slot_source()
        {
            s.fill_slot(slots, slot, &|| file.nonblocking());
        }
    }
    /// What it does from now on with what comes is by what is set now.
    fn revoke_slot(&self) {
        if let Some(s) = self.protocol.slot_source() {
            s.revoke_slot();
        }
    }
    /// Whether nobody outside of the sandbox has to do with it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        let ns = &self.common.ns;
        self.common.family == AF_UNIX || ns.host.is_none() && !self.protocol.is_outside()
    }
    /// Who was at the other end when it was accepted; it may have gone by now.
    pub fn accepted_name(&self) -> Result<Vec<u8>> {
        self.protocol.accepted_name()
    }
    /// `getpeername(2)`.
    pub fn peer_name(&self) -> Result<Vec<u8>> {
        self.catch_up(Ask::Surely);
        self.protocol.peer_name()
    }
    /// `sendmsg(2)` and its kin. `EPIPE`: the caller raises SIGPIPE for streams, unless
    /// MSG_NOSIGNAL. `EAGAIN` leaves the source untouched, but takes the control data: parse it
    /// again.
    pub fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: Control,
        flags: u32,
    ) -> Result<usize> {
        if let Some(d) = dest {
            check_addr(d)?;
            if flags & MSG_FASTOPEN != 0 {
                // It connects.
                landlock::may_connect(&self.common, who.cred, d)?;
            }
        }
        self.then_pass(self.protocol.send(who, src, dest, control, flags))
    }
    /// `recvmsg(2)` and its kin.
    pub fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        if flags & MSG_ERRQUEUE != 0 && !self.protocol.has_error_queue() {
            return Err(abi::errno::EAGAIN);
        }
        match self.then_pass(self.protocol.receive(dst, flags)) {
            Err(abi::errno::EAGAIN) if self.catch_up(Ask::Quickly) => {
                self.protocol.receive(dst, flags)
            }
            r => r,
        }
    }
    /// A caller's whole send: a stream that blocks goes on until all is taken. SIGPIPE for a stream
    /// whose reader is gone, unless MSG_NOSIGNAL.
    pub fn send_all(
        &self,
        io: &Io<'_>,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: Control,
        flags: u32,
    ) -> Result<usize> {
        let now = if io.nonblocking { MSG_DONTWAIT } else { 0 };
        let stream = self.common.kind == SOCK_STREAM;
        let total = src.remaining();
        let mut done = 0;
        // What went with a SYN counts once the connection is there.
        let (mut opens, mut failed) = (false, false);
        let r = io.wait(Events::WRITABLE, self.send_timeout(), || {
            loop {
                if opens {
                    let opened = self.protocol.finish_opening();
                    failed = opened.is_err() && opened != Err(EAGAIN);
                    opened?;
                    opens = false;
                    if done >= total {
                        return Ok(());
                    }
                }
                // Descriptors and credentials go with the first bytes.
                let (c, these) = match done {
                    0 => (control.again(), flags),
                    _ => (Control::default(), flags & !MSG_FASTOPEN),
                };
                let n = self.send(who, src, dest, c, these & !MSG_NOSIGNAL | now)?;
                done += n;
                opens = self.common.takes_opens_by_send();
                let is_all = !stream || n == 0 || done >= total;
                // Who does not wait has sent all that goes now.
                if is_all && !opens || opens && now != 0 {
                    return Ok(());
                }
            }
        });
        match r {
            _ if done > 0 && !failed => Ok(done),
            Err(EPIPE) if stream && flags & MSG_NOSIGNAL == 0 => {
                io.caller.broken_pipe();
                Err(EPIPE)
            }
            r => r.map(|()| 0),
        }
    }
    /// A caller's whole receive: MSG_WAITALL and SO_RCVLOWAT make a stream wait for more than the
    /// first bytes.
    pub fn receive_all(&self, io: &Io<'_>, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        // These never wait.
        if flags & (MSG_ERRQUEUE | MSG_OOB) != 0 {
            return self.receive(dst, flags);
        }
        let room = dst.remaining();
        let target = if self.common.kind != SOCK_STREAM || flags & MSG_PEEK != 0 {
            1
        } else if flags & MSG_WAITALL != 0 {
            room
        } else {
            self.receive_low_water().min(room)
        };
        let mut got: Option<Received> = None;
        let r = io.wait(Events::READABLE, self.receive_timeout(), || {
            loop {
                let r = self.receive(dst, flags)?;
                let (n, ends) = (r.n, r.ends || !r.control.files.is_empty());
                let all = match &mut got {
                    None => {
                        got = Some(r);
                        n
                    }
                    Some(g) => {
                        g.n += n;
                        g.control.files.extend(r.control.files);
                        g.control.other = r.control.other;
                        g.n
                    }
                };
                // Descriptors end a read, so that it is clear which bytes they came with.
                if n == 0 || ends || all >= target || dst.remaining() == 0 {
                    return Ok(());
                }
            }
        });
        match got {
            Some(g) => Ok(g),
            None => r.map(|()| Received::default()),
        }
    }
    pub fn shutdown(&self, how: u32) -> Result<()> {
        let how = match how {
            SHUT_RD => Shutdown {
                read: true,
                write: false,
            },
            SHUT_WR => Shutdown {
                read: false,
                write: true,
            },
            SHUT_RDWR => Shutdown {
                read: true,
                write: true,
            },
            _ => return Err(EINVAL),
        };
        self.catch_up(Ask::Surely);
        self.then_pass(self.protocol.shutdown(how))
    }
    pub fn set_option(&self, cred: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        let r = if level == SOL_SOCKET {
            let own = self.protocol.set_socket_option(name, v);
            own.unwrap_or_else(|| self.common.set(name, v, cred))
        } else {
            self.protocol.set_option(cred, level, name, v)
        };
        self.revoke_slot();
        r
    }
    /// The whole value; the caller cuts it to what the application has room for.
    pub fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        const SO_PEERNAME: i32 = 28;
        self.catch_up(Ask::Surely);
        if level == SOL_SOCKET {
            if name == SO_PEERNAME {
                return self.protocol.peer_name();
            }
            if name == SO_MEMINFO {
                return Ok(self.memory_info());
            }
            if let Some(r) = self.protocol.socket_option(name) {
                return r;
            }
            if let Some(r) = self.common.get(name) {
                return r;
            }
        }
        self.protocol.get_option(level, name)
    }
    /// SO_MEMINFO: what waits, what may, and what was lost (`SK_MEMINFO_VARS`).
    fn memory_info(&self) -> Vec<u8> {
        let load = |n: &std::sync::atomic::AtomicU32| n.load(Ordering::Relaxed);
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let unread = small(self.protocol.unread().unwrap_or(0));
        let unsent = small(self.protocol.unsent());
        let (send, receive) = (load(&self.common.sndbuf), load(&self.common.rcvbuf));
        let lost = self.protocol.lost();
        let all = [unread, receive, unsent, send, 0, unsent, 0, 0, lost];
        all.iter().flat_map(|n| n.to_le_bytes()).collect()
    }
    /// The same for an option whose answer goes by the room for it; `None` for all others.
    #[must_use]
    pub fn answer(&self, level: i32, name: i32, room: usize) -> Option<Answer> {
        if (level, name) == (SOL_SOCKET, SO_ATTACH_FILTER) {
            return Some(self.filter(room));
        }
        self.protocol.answer(level, name, room)
    }
    /// SO_GET_FILTER: room and length are numbers of instructions (`sk_get_filter`).
    fn filter(&self, room: usize) -> Answer {
        let bytes = self
            .common
            .filter
            .get()
            .map_or_else(Vec::new, |f| f.bytes());
        let n = bytes.len() / crate::filters::INSN;
        match room {
            _ if room >= n && room > 0 => Answer {
                bytes,
                told: n,
                error: None,
            },
            _ => Answer {
                bytes: Vec::new(),
                told: if room == 0 { n } else { room },
                error: (room > 0).then_some(EINVAL),
            },
        }
    }
    /// The same for an option that is asked for with a value; `None` for all others.
    #[must_use]
    pub fn option_of(&self, level: i32, name: i32, v: &[u8]) -> Option<Result<Vec<u8>>> {
        self.protocol.option_of(level, name, v)
    }
    /// What its close waits for, if SO_LINGER says so: to be asked before.
    #[must_use]
    pub fn lingering(&self) -> Option<Lingering> {
        self.common.lingers()?;
        self.protocol.lingering()
    }
    #[must_use]
    pub fn namespace(&self) -> &Arc<NetNamespace> {
        &self.common.ns
    }
}

fn check_addr(addr: &[u8]) -> Result<()> {
    if addr.len() > MAX_ADDR {
        Err(EINVAL)
    } else {
        Ok(())
    }
}

/// Names for calls that can need none.
struct NoPaths;
impl PathNames for NoPaths {
    fn bind(&self, _: &[u8], _: Arc<dyn Any + Send + Sync>) -> Result<()> {
        Err(EINVAL)
    }
    fn lookup(&self, _: &[u8]) -> Result<Arc<dyn Any + Send + Sync>> {
        Err(EINVAL)
    }
}

impl FileOps for Socket {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        if dst.remaining() == 0 && self.common.kind == SOCK_STREAM {
            return Ok(0);
        }
        // Descriptors that come with the bytes are lost, as with read(2) on Linux.
        self.protocol.receive(dst, 0).map(|r| r.n)
    }
    /// Descriptors that come with the bytes are lost, as on Linux.
    fn read_as(&self, io: &Io<'_>, dst: &mut dyn Sink) -> Result<usize> {
        let flags = if io.nonblocking { MSG_DONTWAIT } else { 0 };
        self.receive_all(io, dst, flags)
            .map(Received::without_files)
    }
    fn write_as(&self, io: &Io<'_>, src: &mut dyn Source) -> Result<usize> {
        let (pid, number) = io.caller.process();
        let who = Caller {
            pid,
            number,
            any_pid: false,
            cred: &io.caller.credentials(),
            paths: &NoPaths,
            has_signal: &|| io.caller.interrupted(),
        };
        self.send_all(io, &who, src, None, Control::default(), 0)
    }
    /// Who calls is unknown here, so what is sent carries the creator's pid.
    fn write(&self, file: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        let pid = self.common.creator.get().map_or(0, |c| c.pid);
        let who = Caller {
            pid,
            number: pid,
            any_pid: false,
            cred: &file.cred,
            paths: &NoPaths,
            // Nor whether it waits: what takes long ends soon.
            has_signal: &|| true,
        };
        self.send(&who, src, None, Control::default(), 0)
    }
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        self.protocol.mappable()
    }
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            dev: SOCKFS_DEV,
            ino: self.common.ino,
            mode: 0o140_777,
            nlink: 1,
            blksize: 4096,
            ..Stat::default()
        })
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        self.protocol.poll() & (mask | Events::ALWAYS)
    }
    fn can_splice(&self) -> bool {
        true
    }
    fn signals_owner(&self) -> bool {
        true
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.common.queue)
    }
    fn flags_changed(&self, _: &File, _: u32) {
        self.revoke_slot();
    }
    fn slot_source(&self) -> Option<&dyn SlotSource> {
        self.protocol.slot_source()
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        crate::ioctl::ioctl(&self.common, &*self.protocol, cx, cmd, arg)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        format!("socket:[{}]", self.common.ino)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.protocol.close();
        if self.common.family == AF_UNIX {
            inflight::after_close(&self.common.ns.in_flight, Socket::give_up);
        }
    }
}
