//! The broker of `--net=user`: it connects, by policy, and is the resolver.
//!
//! It stays in the network namespace that the starter is in, without capabilities and files, and
//! serves a Sentry that may have been taken over. What leaves, it has sent itself: it makes
//! sockets, asks [`egress::Guard`] before it connects them, and passes the TCP ones. Datagrams it
//! relays ([`relay`]); names it resolves ([`resolver`]).
//!
//! # What holds
//!
//! - No descriptor is passed of which the peer was not allowed, and none that can be given another
//!   peer.
//! - Nothing blocks: sockets do not, and what finds no room is lost, or closed. One turn takes at
//!   most [`TURN`] packets of each source, so that no socket's traffic keeps others waiting.
//! - All tables are bounded: flows, questions, clients of the resolver, lines of the log. Of each,
//!   one user inside has at most a quarter.

mod refusal_log;
mod relay;
mod resolver;

use crate::privilege::{self as own, Standing};
use crate::spawn::REPORT;
use crate::{Error, step};
use abi::Result;
use abi::errno::{EACCES, EAGAIN, EINPROGRESS, EINVAL};
use egress::{Guard, Protocol, Refusal};
use hostcall::inet::{self, Interest, Watch};
use hostcall::table::Process;
use hostcall::{HostFd, RawFd, process, sock, time};
use net::Endpoint;
use net::user::is_hosts;
use net::user::wire::{self, Answer, Datagrams, Request, ToBroker, ToSentry, User};
pub use refusal_log::HINT;
use refusal_log::RefusalLog;
use relay::Relay;
use resolver::{Origin, Resolver};
use slab::Slab;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;

/// What the broker is started with. Descriptors are the starter's.
#[derive(Clone, Debug, Default)]
pub struct UserNetwork {
    pub policy: egress::Policy,
    /// The host's name servers.
    pub name_servers: Vec<IpAddr>,
    /// Whether the host has a way to the internet by IPv6.
    pub ipv6: bool,
    pub published: Vec<Published>,
    /// Where refusals are told, a line of JSON each.
    pub log: Option<RawFd>,
    /// A pipe that does not block: what was refused first, for the person.
    pub told: Option<RawFd>,
}

/// A port of the host that leads to one of the sandbox.
#[derive(Clone, Debug)]
pub struct Published {
    /// It listens, and does not block.
    pub listener: RawFd,
    /// Inside.
    pub port: u16,
}

impl UserNetwork {
    /// The descriptors that the broker needs, in the order in which it takes them.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let listeners = self.published.iter().map(|p| p.listener);
        listeners.chain(self.log).chain(self.told).collect()
    }
}

/// Packets of one source in a turn.
const TURN: usize = 64;
/// The part of a table that one user may have.
const SHARE: usize = 4;
/// The port of name servers.
const DNS: u16 = 53;

/// Who a watched descriptor is.
enum Source {
    Requests,
    Events,
    Listener { fd: HostFd, port: u16 },
    Flow(relay::Flow),
    Query(resolver::Query),
    Client(resolver::Client),
}

/// The broker's state. Its one thread owns it.
struct Broker {
    watch: Watch,
    requests: HostFd,
    events: HostFd,
    guard: Guard,
    sources: Slab<Source>,
    relay: Relay,
    resolver: Resolver,
    told: RefusalLog,
}

/// `fds`: the report, the two channels, and [`UserNetwork::descriptors`].
pub fn run(
    standing: Standing,
    net: &UserNetwork,
    fds: Vec<HostFd>,
) -> std::result::Result<Infallible, Error> {
    let mut fds = fds.into_iter();
    let (Some(report), Some(requests), Some(events)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(Error::NoDescriptors);
    };
    // It stays open as long as the process.
    let _ = report.into_raw();
    let descriptors = own::raise_limits(standing, 0) as usize;
    own::leave_host(standing, 0)?;
    let mut b = Broker {
        watch: step("watch sockets", Watch::new())?,
        requests,
        events,
        guard: Guard::new(net.policy.clone()),
        sources: Slab::new(),
        relay: Relay::new(descriptors),
        resolver: Resolver::new(net.name_servers.clone()),
        told: RefusalLog::default(),
    };
    for p in &net.published {
        let fd = fds.next().ok_or(Error::NoDescriptors)?;
        let raw = fd.raw();
        let source = Source::Listener { fd, port: p.port };
        step("watch a published port", b.add(raw, source, Interest::Read))?;
    }
    b.told.log = net.log.and_then(|_| fds.next());
    b.told.first = net.told.and_then(|_| fds.next());
    for (fd, source) in [
        (b.requests.raw(), Source::Requests),
        (b.events.raw(), Source::Events),
    ] {
        step("watch the Sentry", b.add(fd, source, Interest::Read))?;
    }
    step(
        "confine itself",
        own::lock_down(Process::UserBroker, REPORT),
    )?;
    b.serve()
}

/// How many things each user has of a table.
#[derive(Default)]
struct Shares(HashMap<User, usize>);

impl Shares {
    /// Whether one more of `all` is within the user's part.
    fn has_room(&self, user: User, all: usize) -> bool {
        self.0.get(&user).copied().unwrap_or(0) < all / SHARE
    }
    fn add(&mut self, user: User) {
        *self.0.entry(user).or_default() += 1;
    }
    fn remove(&mut self, user: User) {
        if let Some(n) = self.0.get_mut(&user) {
            *n -= 1;
            if *n == 0 {
                self.0.remove(&user);
            }
        }
    }
}

/// Seconds since some moment.
fn now() -> u64 {
    time::clock_nanos(libc::CLOCK_MONOTONIC) as u64 / 1_000_000_000
}

impl Broker {
    /// Watches a descriptor that `source` holds.
    fn add(&mut self, fd: RawFd, source: Source, interest: Interest) -> Result<usize> {
        let token = self.sources.insert(source);
        if let Err(e) = self.watch.add(fd, token as u64, interest) {
            self.sources.remove(token);
            return Err(e);
        }
        Ok(token)
    }

    fn serve(mut self) -> ! {
        let mut packet = vec![0; wire::MAX];
        loop {
            let wait = self.resolver.wait(now());
            for token in self.watch.wait(wait).unwrap_or_default() {
                let token = token as usize;
                match self.sources.get(token) {
                    Some(Source::Requests) => self.hear_request(),
                    Some(Source::Events) => self.hear_events(&mut packet),
                    Some(Source::Listener { .. }) => self.accept(token),
                    Some(Source::Flow(_)) => self.flow_ready(token, &mut packet),
                    Some(Source::Query(_)) => self.query_ready(token, &mut packet),
                    Some(Source::Client(_)) => self.client_ready(token, &mut packet),
                    // It went in this turn.
                    None => {}
                }
            }
            self.questions_late();
            self.streams_go_on();
            self.relay_idle();
        }
    }

    fn hear_request(&mut self) {
        let mut m = [0; wire::REQUEST_MAX];
        let (n, given) = match sock::recv(self.requests.raw(), &mut m) {
            Ok((0, _)) | Err(_) => process::exit_group(0),
            Ok(r) => r,
        };
        let (answer, made) = match self.answer(&m[..n], &given) {
            Ok(Some((fd, local))) => (
                Answer {
                    errno: 0,
                    local: Some(local),
                },
                Some(fd),
            ),
            Ok(None) => (
                Answer {
                    errno: 0,
                    local: None,
                },
                None,
            ),
            Err(e) => (
                Answer {
                    errno: e.raw(),
                    local: None,
                },
                None,
            ),
        };
        let fds: Vec<_> = made.iter().map(HostFd::raw).collect();
        // (It asks one thing at a time: there is room, if it reads.)
        if sock::try_send(self.requests.raw(), &answer.encode(), &fds).is_err() {
            process::exit_group(0);
        }
    }

    fn answer(&mut self, request: &[u8], given: &[HostFd]) -> Result<Option<(HostFd, Endpoint)>> {
        match Request::decode(request).ok_or(EINVAL)? {
            Request::Connect { user, to } => self.connect(user, to).map(Some),
            Request::SetOption { level, name, value } => {
                let [fd] = given else { return Err(EINVAL) };
                // With a time to linger, closing it here would wait.
                let resets = value == [1, 0, 0, 0, 0, 0, 0, 0];
                let lingers = (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) && !resets;
                if !is_hosts(level, name) || lingers {
                    return Err(EINVAL);
                }
                inet::set_option(fd.raw(), level, name, value).map(|()| None)
            }
        }
    }

    fn connect(&mut self, user: User, to: Endpoint) -> Result<(HostFd, Endpoint)> {
        if to.port == DNS && self.resolver.serves(to.ip) {
            return self.new_client(user);
        }
        self.allow(Protocol::Tcp, to)?;
        let addr = to.to_sockaddr();
        let family = i32::from(u16::from_le_bytes([addr[0], addr[1]]));
        let fd = inet::socket(family, libc::SOCK_STREAM, libc::IPPROTO_TCP)?;
        match inet::connect(fd.raw(), &addr) {
            Ok(()) | Err(EINPROGRESS) => {}
            Err(e) => return Err(e),
        }
        let local = Endpoint::from_sockaddr(&inet::local_name(fd.raw())?).ok_or(EINVAL)?;
        Ok((fd, local))
    }

    /// `EACCES` where the policy does not allow it, which is told.
    fn allow(&mut self, protocol: Protocol, to: Endpoint) -> Result<()> {
        self.guard
            .peer(protocol, to.ip, to.port, now())
            .map_err(|refusal| self.refuse(&refusal))
    }

    fn refuse(&mut self, refusal: &Refusal) -> abi::Errno {
        self.told.tell(refusal, now());
        EACCES
    }

    fn hear_events(&mut self, packet: &mut [u8]) {
        for _ in 0..TURN {
            let n = match sock::try_recv(self.events.raw(), packet) {
                Ok((0, _)) => process::exit_group(0),
                Ok((n, _)) => n,
                Err(_) => return,
            };
            match ToBroker::decode(&packet[..n]) {
                Some(ToBroker::Send {
                    user,
                    socket,
                    protocol,
                    to,
                    data,
                }) => {
                    let server = protocol == Datagrams::Udp && to.port == DNS;
                    if server && self.resolver.serves(to.ip) {
                        self.question(user, Origin::Udp { socket, server: to }, data);
                    } else {
                        self.relay(user, (socket, protocol, to), data);
                    }
                }
                Some(ToBroker::Close { socket }) => self.close_flows(socket),
                None => {}
            }
        }
    }

    /// Tells the Sentry; what finds no room there is lost.
    fn tell(&self, m: ToSentry<'_>, fds: &[RawFd]) {
        let _ = sock::try_send(self.events.raw(), &m.encode(), fds);
    }

    /// Published ports that were left alone for want of descriptors.
    fn listen_again(&self) {
        for (token, source) in &self.sources {
            if let Source::Listener { fd, .. } = source {
                let _ = self.watch.change(fd.raw(), token as u64, Interest::Read);
            }
        }
    }

    fn accept(&mut self, token: usize) {
        let Some(Source::Listener { fd, port }) = self.sources.get(token) else {
            return;
        };
        for _ in 0..TURN {
            let conn = match inet::accept(fd.raw()) {
                Ok(c) => c,
                Err(EAGAIN) => return,
                Err(_) => {
                    // No descriptor is free: it would be told of for ever. See `listen_again`.
                    let _ = self.watch.change(fd.raw(), token as u64, Interest::Nothing);
                    return;
                }
            };
            let peer = inet::peer_name(conn.raw()).ok();
            let Some(peer) = peer.as_deref().and_then(Endpoint::from_sockaddr) else {
                continue;
            };
            self.tell(ToSentry::Accepted { port: *port, peer }, &[conn.raw()]);
        }
    }
}
