//! The resolver: questions for names, by datagram and by stream, to the host's name servers.
//!
//! Each question that the policy lets through is asked anew, by a socket and with a number of its
//! own, so that nobody off the path can guess what to forge. A server that says nothing for
//! [`TRY`] seconds is left for the next.

use super::{Broker, Shares, Source, now};
use abi::Result;
use abi::errno::{EAGAIN, EINPROGRESS, ENOBUFS};
use egress::dns::{DnsQuery, MAX, Transport};
use egress::{Guard, Question};
use hostcall::inet::{self, Interest};
use hostcall::{HostFd, mem, sock, time};
use net::Endpoint;
use net::user::wire::{ToSentry, User};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// Seconds that a server has for an answer.
const TRY: u64 = 3;
/// How often each server is asked.
const ROUNDS: usize = 2;
/// The most questions that wait, and those of one stream.
const QUESTIONS: usize = 256;
const OF_CLIENT: usize = 16;
/// What stands in front of a message, in bytes: none is shorter.
const HEAD: usize = 12;
/// The most streams.
const CLIENTS: usize = 64;
/// The most bytes that wait for one that does not read.
const UNREAD: usize = 4 * MAX;

/// See the module.
pub struct Resolver {
    servers: Vec<IpAddr>,
    /// When the questions that wait are late, in seconds.
    late: BTreeSet<(u64, usize)>,
    /// Questions by user, and streams.
    questions: Shares,
    streams: Shares,
    clients: usize,
    /// How many there have been.
    serial: u64,
    /// Streams of which a question is answered: the next ones may be asked.
    go_on: Vec<Stream>,
}

/// A stream. Its token may be another's later, its number is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    token: usize,
    serial: u64,
}

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A datagram of that socket, to that server.
    Udp {
        socket: u64,
        server: Endpoint,
    },
    Client(Stream),
}

/// A question that has no answer yet.
#[derive(Clone)]
struct Pending {
    asked: DnsQuery,
    user: User,
    origin: Origin,
    /// How many tries there were before.
    tries: usize,
}

/// One that a server has been asked.
pub struct Query {
    fd: HostFd,
    pending: Pending,
    id: u16,
    until: u64,
    way: Way,
}

/// How it is asked.
enum Way {
    Udp,
    /// What is to be sent still, and what has come.
    Tcp {
        out: Vec<u8>,
        came: Vec<u8>,
    },
}

/// A stream on which questions come, each behind its length.
pub struct Client {
    fd: HostFd,
    user: User,
    serial: u64,
    came: Vec<u8>,
    out: Vec<u8>,
    questions: usize,
    /// It asks no more, and hears what it has asked for.
    is_done: bool,
}

/// The message at the front of a stream's bytes, if it is there whole.
fn framed(came: &[u8]) -> Option<&[u8]> {
    let (length, rest) = came.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

fn frame(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(0);
    [&length.to_be_bytes()[..], message].concat()
}

impl Resolver {
    pub fn new(mut servers: Vec<IpAddr>) -> Resolver {
        // As the C library does without any (`resolv.conf(5)`).
        if servers.is_empty() {
            servers.push(Ipv4Addr::LOCALHOST.into());
        }
        Resolver {
            servers,
            late: BTreeSet::new(),
            questions: Shares::default(),
            streams: Shares::default(),
            clients: 0,
            serial: 0,
            go_on: Vec::new(),
        }
    }

    /// Whether what is sent there is for this resolver.
    pub fn serves(&self, ip: IpAddr) -> bool {
        self.servers.contains(&ip)
    }

    /// Milliseconds until there is something to do; -1 for never.
    pub fn wait(&self, now: u64) -> i32 {
        match self.late.first() {
            _ if !self.go_on.is_empty() => 0,
            Some((until, _)) => until.saturating_sub(now).clamp(1, 60) as i32 * 1000,
            None => -1,
        }
    }
}

impl Broker {
    /// Something asks for a name.
    pub fn question(&mut self, user: User, origin: Origin, bytes: &[u8]) {
        let by = match origin {
            Origin::Udp { .. } => Transport::Udp,
            Origin::Client(_) => Transport::Tcp,
        };
        match self.guard.question(bytes, by) {
            Question::Drop => {}
            Question::Answer(answer, refused) => {
                if let Some(r) = refused {
                    self.refuse(&r);
                }
                self.reply(origin, &answer);
            }
            Question::Ask(asked) => {
                if !self.resolver.questions.has_room(user, QUESTIONS) {
                    return self.reply(origin, &Guard::no_answer(&asked));
                }
                self.resolver.questions.add(user);
                if let Origin::Client(s) = origin
                    && let Some(c) = self.client(s)
                {
                    c.questions += 1;
                }
                let pending = Pending {
                    asked,
                    user,
                    origin,
                    tries: 0,
                };
                self.ask(pending, Transport::Udp);
            }
        }
    }

    /// Asks the next server; answers that there is no answer, if there is none.
    fn ask(&mut self, mut pending: Pending, by: Transport) {
        let servers = self.resolver.servers.len();
        while pending.tries < ROUNDS * servers && self.resolver.late.len() < QUESTIONS {
            let server = self.resolver.servers[pending.tries % servers];
            if self.begin(&pending, server, by).is_ok() {
                return;
            }
            pending.tries += 1;
        }
        let answer = Guard::no_answer(&pending.asked);
        self.done(&pending, &answer);
    }

    fn begin(&mut self, pending: &Pending, server: IpAddr, by: Transport) -> Result<()> {
        let addr = Endpoint::new(server, super::DNS).to_sockaddr();
        let family = i32::from(u16::from_le_bytes([addr[0], addr[1]]));
        let mut id = [0; 2];
        time::random(&mut id);
        let id = u16::from_le_bytes(id);
        let mut message = pending.asked.ask(id);
        let (fd, way, interest) = match by {
            Transport::Udp | Transport::UdpAlone => {
                let fd = inet::socket(family, libc::SOCK_DGRAM, libc::IPPROTO_UDP)?;
                inet::connect(fd.raw(), &addr)?;
                let raw = fd.raw();
                mem::with_slice_mut(&mut message, |m| inet::send(raw, &[m], None, &[], 0))?;
                (fd, Way::Udp, Interest::Read)
            }
            Transport::Tcp => {
                let fd = inet::socket(family, libc::SOCK_STREAM, libc::IPPROTO_TCP)?;
                match inet::connect(fd.raw(), &addr) {
                    Ok(()) | Err(EINPROGRESS) => {}
                    Err(e) => return Err(e),
                }
                let out = frame(&message);
                (
                    fd,
                    Way::Tcp {
                        out,
                        came: Vec::new(),
                    },
                    Interest::ReadWrite,
                )
            }
        };
        let raw = fd.raw();
        let until = now() + TRY;
        let query = Query {
            fd,
            pending: pending.clone(),
            id,
            until,
            way,
        };
        let token = self.add(raw, Source::Query(query), interest)?;
        self.resolver.late.insert((until, token));
        Ok(())
    }

    fn take_query(&mut self, token: usize) -> Option<Query> {
        match self.sources.try_remove(token) {
            Some(Source::Query(q)) => {
                self.resolver.late.remove(&(q.until, token));
                Some(q)
            }
            _ => None,
        }
    }

    /// A server has said something, or can be told something.
    pub fn query_ready(&mut self, token: usize, packet: &mut [u8]) {
        let Some(Source::Query(q)) = self.sources.get_mut(token) else {
            return;
        };
        let fd = q.fd.raw();
        let (by, message) = match &mut q.way {
            Way::Udp => match mem::with_slice_mut(packet, |m| inet::receive(fd, &[m], 0)) {
                Ok(got) => (Transport::Udp, packet[..got.n.min(packet.len())].to_vec()),
                Err(EAGAIN) => return,
                Err(_) => return self.next_server(token),
            },
            Way::Tcp { out, came } => match exchange(fd, out, came, packet) {
                Ok(Some(m)) => (Transport::Tcp, m),
                Ok(None) => {
                    if out.is_empty() {
                        let _ = self.watch.change(fd, token as u64, Interest::Read);
                    }
                    return;
                }
                Err(_) => return self.next_server(token),
            },
        };
        let asked = &q.pending.asked;
        match self.guard.answer(asked, &message, q.id, by, now()) {
            Ok(Some(answer)) => {
                if let Some(q) = self.take_query(token) {
                    self.done(&q.pending, &answer);
                }
            }
            // Somebody else's: the answer may come still.
            Ok(None) if by == Transport::Udp => {}
            Ok(None) => self.next_server(token),
            Err(_) => {
                if let Some(q) = self.take_query(token) {
                    self.ask(q.pending, Transport::Tcp);
                }
            }
        }
    }

    fn next_server(&mut self, token: usize) {
        if let Some(mut q) = self.take_query(token) {
            q.pending.tries += 1;
            self.ask(q.pending, Transport::Udp);
        }
    }

    /// Goes on with those whose server says nothing.
    pub fn questions_late(&mut self) {
        let now = now();
        while let Some((until, token)) = self.resolver.late.first().copied()
            && until <= now
        {
            self.next_server(token);
        }
    }

    /// A question that was asked has its answer.
    fn done(&mut self, pending: &Pending, answer: &[u8]) {
        self.resolver.questions.remove(pending.user);
        let origin = pending.origin;
        if let Origin::Client(s) = origin
            && let Some(c) = self.client(s)
        {
            c.questions = c.questions.saturating_sub(1);
            self.resolver.go_on.push(s);
        }
        self.reply(origin, answer);
    }

    fn client(&mut self, s: Stream) -> Option<&mut Client> {
        match self.sources.get_mut(s.token) {
            Some(Source::Client(c)) if c.serial == s.serial => Some(c),
            _ => None,
        }
    }

    /// Streams whose questions had to wait go on.
    pub fn streams_go_on(&mut self) {
        for s in std::mem::take(&mut self.resolver.go_on) {
            self.client_questions(s);
        }
    }

    fn reply(&mut self, origin: Origin, answer: &[u8]) {
        match origin {
            Origin::Udp { socket, server } => {
                let from = server;
                self.tell(
                    ToSentry::Received {
                        socket,
                        from,
                        data: answer,
                    },
                    &[],
                );
            }
            Origin::Client(s) => {
                let Some(c) = self.client(s) else { return };
                c.out.extend_from_slice(&frame(answer));
                self.flush(s.token);
            }
        }
    }

    /// A stream to the resolver: the end for the Sentry.
    pub fn new_client(&mut self, user: User) -> Result<(HostFd, Endpoint)> {
        let r = &self.resolver;
        if r.clients >= CLIENTS || !r.streams.has_room(user, CLIENTS) {
            return Err(ENOBUFS);
        }
        let (ours, theirs) = sock::stream_pair()?;
        let raw = ours.raw();
        self.resolver.serial += 1;
        let client = Client {
            fd: ours,
            user,
            serial: self.resolver.serial,
            came: Vec::new(),
            out: Vec::new(),
            questions: 0,
            is_done: false,
        };
        let token = self.add(raw, Source::Client(client), Interest::Read)?;
        self.resolver.clients += 1;
        self.resolver.streams.add(user);
        // There is no port: any that programs may have.
        let port = 32_768 + (token % 28_000) as u16;
        Ok((theirs, Endpoint::new(Ipv4Addr::LOCALHOST.into(), port)))
    }

    fn remove_client(&mut self, token: usize) {
        if let Some(Source::Client(c)) = self.sources.try_remove(token) {
            self.resolver.clients -= 1;
            self.resolver.streams.remove(c.user);
        }
    }

    /// A stream can be read from or written to.
    pub fn client_ready(&mut self, token: usize, packet: &mut [u8]) {
        let waits = match self.sources.get(token) {
            Some(Source::Client(c)) => !c.out.is_empty(),
            _ => return,
        };
        self.flush(token);
        let Some(Source::Client(c)) = self.sources.get_mut(token) else {
            return;
        };
        if c.is_done {
            // It could be written to; or else it hears no more either.
            return match waits {
                true => self.end_if_done(token),
                false => self.remove_client(token),
            };
        }
        let stream = Stream {
            token,
            serial: c.serial,
        };
        let room = (MAX + 2).saturating_sub(c.came.len());
        if room == 0 {
            // It sends on while what it has sent waits: no resolver of a C library does.
            return self.remove_client(token);
        }
        let fd = c.fd.raw();
        let into = &mut packet[..room.min(MAX)];
        // (Descriptors that come along are closed.)
        match sock::try_recv(fd, into).map(|(n, _)| n) {
            Ok(n) if n > 0 => c.came.extend_from_slice(&into[..n.min(into.len())]),
            Err(EAGAIN) => {}
            Ok(_) => {
                c.is_done = true;
                self.flush(token);
            }
            Err(_) => return self.remove_client(token),
        }
        self.client_questions(stream);
    }

    /// Lets a stream go that asks no more, and has all its answers.
    fn end_if_done(&mut self, token: usize) {
        if let Some(Source::Client(c)) = self.sources.get(token)
            && c.is_done
            && c.questions == 0
            && c.out.is_empty()
            && framed(&c.came).is_none()
        {
            self.remove_client(token);
        }
    }

    /// Takes the questions that have come whole, as long as few wait.
    fn client_questions(&mut self, stream: Stream) {
        let mut taken = 0;
        while let Some(c) = self.client(stream)
            && c.questions < OF_CLIENT
            && let Some(m) = framed(&c.came)
        {
            if m.len() < HEAD {
                return self.remove_client(stream.token);
            }
            let (user, message) = (c.user, m.to_vec());
            c.came.drain(..2 + message.len());
            self.question(user, Origin::Client(stream), &message);
            taken += 1;
            if taken == OF_CLIENT {
                // Others have their turn before it goes on.
                return self.resolver.go_on.push(stream);
            }
        }
        if self.client(stream).is_some() {
            self.end_if_done(stream.token);
        }
    }

    /// Writes what waits.
    fn flush(&mut self, token: usize) {
        let Some(Source::Client(c)) = self.sources.get_mut(token) else {
            return;
        };
        let fd = c.fd.raw();
        while !c.out.is_empty() {
            match mem::with_slice_mut(&mut c.out, |m| inet::send(fd, &[m], None, &[], 0)) {
                Ok(n) => drop(c.out.drain(..n)),
                Err(EAGAIN) if c.out.len() <= UNREAD => break,
                Err(_) => return self.remove_client(token),
            }
        }
        let interest = match (c.is_done, c.out.is_empty()) {
            (false, true) => Interest::Read,
            (false, false) => Interest::ReadWrite,
            (true, true) => Interest::Nothing,
            (true, false) => Interest::Write,
        };
        let _ = self.watch.change(fd, token as u64, interest);
    }
}

/// Sends what is left, and reads until there is a whole message.
fn exchange(
    fd: i32,
    out: &mut Vec<u8>,
    came: &mut Vec<u8>,
    packet: &mut [u8],
) -> Result<Option<Vec<u8>>> {
    if !out.is_empty() {
        match mem::with_slice_mut(out, |m| inet::send(fd, &[m], None, &[], 0)) {
            Ok(n) => drop(out.drain(..n)),
            Err(EAGAIN) => {}
            Err(e) => return Err(e),
        }
    }
    match mem::with_slice_mut(packet, |m| inet::receive(fd, &[m], 0)) {
        Ok(got) if got.n > 0 => came.extend_from_slice(&packet[..got.n.min(packet.len())]),
        Err(EAGAIN) => return Ok(None),
        Ok(_) => return Err(abi::errno::EIO),
        Err(e) => return Err(e),
    }
    if came.len() > MAX + 2 {
        return Err(abi::errno::EMSGSIZE);
    }
    Ok(framed(came).map(<[u8]>::to_vec))
}
