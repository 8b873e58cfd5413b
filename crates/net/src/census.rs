//! What sockets there are in a namespace, for `ss` and `/proc/net`.

use crate::addr::{Endpoint, any_ip};
use crate::bindings::Binding;
use crate::clock::now;
use crate::inet::{TCP_CONGESTION, congestion};
use crate::ns::NetNamespace;
use crate::options::Common;
use crate::receivers::UdpReceiver;
use crate::sys::{AF_INET, AF_INET6};
use crate::tcp::Outside;
use crate::unix_names::UnixSocket;
use crate::user::stream::Stream;
use netstack::ip::{DeviceCounts, NeighbourInfo};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Numbers of states (`net/tcp_states.h`).
pub(crate) const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;
pub(crate) const TIME_WAIT: u8 = 6;
pub(crate) const CLOSE: u8 = 7;
pub(crate) const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
pub(crate) const LISTEN: u8 = 10;
const CLOSING: u8 = 11;

/// A socket of IPv4 or IPv6.
pub(crate) struct InetSocket {
    pub family: u16,
    pub state: u8,
    pub local: Endpoint,
    pub remote: Option<Endpoint>,
    pub device: i32,
    pub receive_queue: u32,
    pub send_queue: u32,
    pub uid: u32,
    /// 0 where no file stands for it.
    pub ino: u64,
    pub v6_only: bool,
    /// Of sending and of receiving, in bytes.
    pub buffers: (u32, u32),
    /// `struct tcp_info`, where packets are sent.
    pub info: Option<Vec<u8>>,
    pub congestion: &'static str,
}

/// What is the same for all: without queues, not connected.
fn socket(common: &Common, local: Endpoint) -> InetSocket {
    let load = |n: &std::sync::atomic::AtomicU32| n.load(Ordering::Relaxed);
    InetSocket {
        family: common.family,
        state: CLOSE,
        local,
        remote: None,
        device: common.device(),
        receive_queue: 0,
        send_queue: 0,
        uid: common.creator.get().map_or(0, |c| c.uid),
        ino: common.ino,
        v6_only: false,
        buffers: (load(&common.sndbuf), load(&common.rcvbuf)),
        info: None,
        congestion: "cubic",
    }
}

fn of_binding<T: ?Sized>(b: &Binding<T>) -> InetSocket {
    let local = Endpoint {
        ip: b.ip,
        port: b.port,
    };
    InetSocket {
        uid: b.uid,
        v6_only: b.is_v6_only(),
        ..socket(&b.common, local)
    }
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl NetNamespace {
    /// Those that listen or have a peer, and what is left of closed ones.
    pub(crate) fn tcp_sockets(&self) -> Vec<InetSocket> {
        let mut all = Vec::new();
        if let Some(stack) = self.stack() {
            for c in stack.live() {
                let s = socket(&c.common, c.local());
                let info = c.info().unwrap_or_default();
                let state = info.first().copied().unwrap_or(CLOSE);
                // A FIN counts, too: the peer's, and this host's until it is acknowledged.
                let fin_came = u32::from(matches!(state, CLOSE_WAIT | LAST_ACK | CLOSING));
                let fin_sent = u32::from(matches!(state, FIN_WAIT1 | LAST_ACK | CLOSING));
                all.push(InetSocket {
                    state,
                    remote: Some(c.remote()),
                    receive_queue: small(c.unread().unwrap_or(0)).saturating_add(fin_came),
                    send_queue: small(c.unsent()).saturating_add(fin_sent),
                    ino: if c.is_orphan() { 0 } else { s.ino },
                    info: Some(info),
                    congestion: c.congestion(),
                    ..s
                });
            }
            for (local, remote) in stack.left() {
                all.push(time_wait(local, remote));
            }
        }
        let streams = self.way_out.iter().flat_map(|u| u.streams());
        all.extend(streams.map(|s| by_broker(&s)));
        let outside: HashSet<_> = all.iter().map(|s| (s.local, s.remote)).collect();
        for b in self.tcp.all() {
            let remote = *b.remote.lock();
            let s = of_binding(&b);
            if let Some(l) = b.target() {
                let (receive_queue, send_queue) = l.load();
                let level = crate::sys::SOL_TCP;
                let place = l.options().value(level, TCP_CONGESTION) as usize;
                all.push(InetSocket {
                    state: LISTEN,
                    receive_queue,
                    send_queue,
                    congestion: congestion(place),
                    ..s
                });
            } else if let Some(r) = remote
                && !outside.contains(&(s.local, remote))
                // (What led out and is over is no connection, though its socket is still open.)
                && !self.is_outside(r.ip)
            {
                let state = ESTABLISHED;
                all.push(InetSocket { state, remote, ..s });
            }
        }
        all.sort_by_key(|s| (s.local.port, s.ino, s.remote.map(|r| r.port)));
        all
    }

    pub(crate) fn udp_sockets(&self) -> Vec<InetSocket> {
        let mut all: Vec<_> = self.udp.all().iter().map(udp).collect();
        all.sort_by_key(|s| (s.local.port, s.ino));
        all
    }

    /// Their ports are their protocols.
    pub(crate) fn raw_sockets(&self) -> Vec<InetSocket> {
        let mut all: Vec<_> = self
            .raw
            .census()
            .into_iter()
            .map(|raw| {
                let ip = raw.local.unwrap_or_else(|| any_ip(raw.common.family));
                let port = raw.protocol.into();
                InetSocket {
                    state: if raw.peer.is_some() {
                        ESTABLISHED
                    } else {
                        CLOSE
                    },
                    remote: raw.peer.map(|ip| Endpoint { ip, port: 0 }),
                    receive_queue: small(raw.bytes),
                    ..socket(&raw.common, Endpoint { ip, port })
                }
            })
            .collect();
        all.sort_by_key(|s| (s.local.port, s.ino));
        all
    }

    pub(crate) fn unix_sockets(&self) -> Vec<UnixSocket> {
        let mut all = self.unix.describe();
        all.sort_by_key(|s| s.ino);
        all
    }

    /// What was counted of a device; of loopback nothing is.
    pub(crate) fn device_counts(&self, index: i32) -> DeviceCounts {
        let counts = self.stack().map(|s| s.ip.counters().devices);
        let mut all = counts.into_iter().flatten();
        all.find(|(i, _)| *i as i32 == index)
            .map_or_else(DeviceCounts::default, |(_, c)| c)
    }

    pub(crate) fn neighbours(&self) -> Vec<NeighbourInfo> {
        let mut all = self
            .stack()
            .map_or_else(Vec::new, |s| s.ip.neighbours(now()));
        all.sort_by_key(|n| (n.device, n.ip));
        all
    }
}

/// A connection of the host's that the broker made.
fn by_broker(s: &Stream) -> InetSocket {
    /// `tcpi_notsent_bytes`.
    const NOT_SENT: usize = 144;
    // (The broker's resolver is no TCP socket, and has none.)
    let info = s.info().ok();
    let word = |at: usize| {
        let bytes = info.as_ref()?.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_ne_bytes)
    };
    let state = info.as_ref().and_then(|i| i.first().copied());
    InetSocket {
        state: state.unwrap_or(ESTABLISHED),
        remote: Some(s.remote()),
        receive_queue: small(s.unread().unwrap_or(0)),
        send_queue: word(NOT_SENT).unwrap_or(0),
        info,
        ..socket(s.common(), s.local())
    }
}

fn udp(b: &Arc<Binding<dyn UdpReceiver>>) -> InetSocket {
    let mut s = of_binding(b);
    if let Some(rx) = b.target() {
        let (local, remote, queued) = rx.census();
        s.local.ip = local.unwrap_or(s.local.ip);
        s.state = if remote.is_some() { ESTABLISHED } else { CLOSE };
        s.remote = remote;
        s.receive_queue = small(queued);
    }
    s
}

fn time_wait(local: Endpoint, remote: Endpoint) -> InetSocket {
    InetSocket {
        family: if local.ip.is_ipv4() {
            AF_INET
        } else {
            AF_INET6
        },
        state: TIME_WAIT,
        local,
        remote: Some(remote),
        device: 0,
        receive_queue: 0,
        send_queue: 0,
        uid: 0,
        ino: 0,
        v6_only: false,
        buffers: (0, 0),
        info: None,
        congestion: "cubic",
    }
}
