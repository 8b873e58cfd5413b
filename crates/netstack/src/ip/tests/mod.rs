//! Two hosts on one link, in simulated time.

mod basic;
mod forwarding;
mod fragments;
mod hostile;
mod membership;
mod neighbours;
mod refusals;
mod routes;

use super::*;
use crate::setup::{Address, Device, Neighbour, Route, RouteKind, Setup};
use crate::tcp::{self, Segment};
use bytes::Bytes;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

pub const A_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
pub const B_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
pub const INDEX: u32 = 7;

pub fn ip(s: &str) -> IpAddr {
    s.parse().expect("an address")
}

pub fn at(s: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(s), port)
}

/// A device that keeps what is sent.
#[derive(Default)]
pub struct Wire {
    pub frames: Mutex<Vec<(FrameMeta, Vec<u8>)>>,
    pub full: AtomicBool,
}

impl Wire {
    pub fn take(&self) -> Vec<(FrameMeta, Vec<u8>)> {
        std::mem::take(&mut *self.frames.lock())
    }
}

impl Link for Wire {
    fn send(&self, _device: u32, meta: &FrameMeta, parts: &[&[u8]]) -> Sent {
        assert!(parts.len() <= 16 && parts.iter().all(|p| !p.is_empty()));
        if self.full.load(Relaxed) {
            return Sent::Full;
        }
        self.frames.lock().push((*meta, parts.concat()));
        Sent::Yes
    }
}

/// What a transport was told.
#[derive(Clone, PartialEq, Debug)]
pub enum Upcall {
    Tcp(Pair, Segment),
    Udp(Pair, Vec<u8>, Option<u16>),
    Error(About, IcmpError, IpAddr),
    Icmp(IpAddr, IpAddr, Vec<u8>),
    Raw(Vec<u8>, Info),
}

#[derive(Default)]
pub struct Seen {
    pub told: Mutex<Vec<Upcall>>,
    pub refuses: AtomicBool,
    pub raw: AtomicBool,
    pub joined: AtomicBool,
}

impl Seen {
    pub fn take(&self) -> Vec<Upcall> {
        std::mem::take(&mut *self.told.lock())
    }

    fn tell(&self, told: Upcall) -> Taken {
        self.told.lock().push(told);
        if self.refuses.load(Relaxed) {
            Taken::No
        } else {
            Taken::Yes
        }
    }
}

impl Upper for Seen {
    fn tcp(&self, _: Instant, pair: Pair, segment: Segment, _: &Info) -> Taken {
        self.tell(Upcall::Tcp(pair, segment))
    }
    fn udp(&self, _: Instant, pair: Pair, payload: Bytes, gro: Option<u16>, _: &Info) -> Taken {
        self.tell(Upcall::Udp(pair, payload.to_vec(), gro))
    }
    fn wants_joined(&self, _: &Pair) -> bool {
        self.joined.load(Relaxed)
    }
    fn icmp_error(
        &self,
        _: Instant,
        about: About,
        error: IcmpError,
        from: IpAddr,
        _: &[u8],
        _: &Info,
    ) {
        self.tell(Upcall::Error(about, error, from));
    }
    fn icmp(&self, _: Instant, from: IpAddr, to: IpAddr, message: Bytes, _: &Info) {
        self.tell(Upcall::Icmp(from, to, message.to_vec()));
    }
    fn raw(&self, _: Instant, packet: &[u8], info: &Info) -> Taken {
        self.tell(Upcall::Raw(packet.to_vec(), *info))
    }
    fn wants_raw(&self) -> bool {
        self.raw.load(Relaxed)
    }
}

pub fn address(ip: &str, prefix: u8) -> Address {
    let ip: IpAddr = ip.parse().expect("an address");
    let local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    Address {
        ip,
        prefix,
        broadcast: None,
        scope: if local { 253 } else { 0 },
    }
}

pub fn route(network: &str, prefix: u8, gateway: Option<&str>) -> Route {
    Route {
        network: ip(network),
        prefix,
        gateway: gateway.map(ip),
        device: INDEX,
        source: None,
        metric: 0,
        mtu: 0,
        kind: RouteKind::Unicast,
    }
}

pub fn device(mac: [u8; 6], addresses: Vec<Address>) -> Device {
    Device {
        name: "eth0".into(),
        index: INDEX,
        mac,
        flags: 0x1003,
        mtu: 1500,
        gso_max: 65_536,
        addresses,
        conf: Default::default(),
    }
}

/// Host number `n` of 10.0.0.0/24 and 2001:db8::/64; the others are behind 10.0.0.254.
pub fn setup(mac: [u8; 6], n: u8) -> Setup {
    let addresses = vec![
        address(&format!("10.0.0.{n}"), 24),
        address(&format!("2001:db8::{n}"), 64),
        address(&format!("fe80::{n}"), 64),
    ];
    Setup {
        devices: vec![device(mac, addresses)],
        routes: vec![
            route("10.0.0.0", 24, None),
            route("0.0.0.0", 0, Some("10.0.0.254")),
            route("2001:db8::", 64, None),
            route("fe80::", 64, None),
        ],
        neighbours: Vec::new(),
        forwards: Default::default(),
    }
}

pub struct Host {
    pub ip: Ip,
    pub wire: Arc<Wire>,
    pub seen: Seen,
}

impl Host {
    pub fn new(setup: &Setup) -> Host {
        let wire = Arc::new(Wire::default());
        let ip = Ip::new(setup, wire.clone(), [7; 16], Arc::default());
        Host {
            ip,
            wire,
            seen: Seen::default(),
        }
    }

    /// A host whose announcements are over.
    pub fn quiet(setup: &Setup) -> Host {
        let h = Host::new(setup);
        for seconds in 0..2 {
            h.ip.timer(Instant(seconds * 1_000_000_000), &h.seen);
        }
        h.wire.take();
        h
    }

    pub fn receive(&self, now: Instant, meta: &FrameMeta, frame: &[u8]) {
        let frame = Bytes::copy_from_slice(frame);
        self.ip.receive(now, INDEX, meta, frame, &self.seen);
    }

    pub fn path(&self, to: &str) -> Path {
        self.ip.path(ip(to), None, None).expect("a path")
    }

    pub fn count(&self, mib: Mib) -> u64 {
        self.ip.counters().get(mib)
    }
}

pub struct Two {
    pub a: Host,
    pub b: Host,
}

pub fn two() -> Two {
    Two {
        a: Host::quiet(&setup(A_MAC, 1)),
        b: Host::quiet(&setup(B_MAC, 2)),
    }
}

impl Two {
    /// Carries frames until none is left; gives all, in order.
    pub fn run(&self, now: Instant) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let (from_a, from_b) = (self.a.wire.take(), self.b.wire.take());
            if from_a.is_empty() && from_b.is_empty() {
                return all;
            }
            for (meta, f) in from_a {
                self.b.receive(now, &meta, &f);
                all.push(f);
            }
            for (meta, f) in from_b {
                self.a.receive(now, &meta, &f);
                all.push(f);
            }
        }
    }

    /// What the device of the other side does to unfinished checksums.
    pub fn finish(meta: &FrameMeta, frame: &mut [u8]) {
        if meta.flags & FrameMeta::NEEDS_CSUM != 0 {
            let start = usize::from(meta.csum_start);
            let sum = wire::Sum::default().add(&frame[start..]).finish();
            let sum = if sum == 0 { 0xffff } else { sum };
            let to = start + usize::from(meta.csum_offset);
            frame[to..to + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

pub fn after(s: f64) -> Instant {
    Instant(0) + Duration::from_secs_f64(s)
}

pub fn pair(local: &str, remote: &str) -> Pair {
    Pair {
        local: at(local, 1000),
        remote: at(remote, 2000),
    }
}

pub fn turned(p: Pair) -> Pair {
    Pair {
        local: p.remote,
        remote: p.local,
    }
}

pub fn syn() -> tcp::Header {
    tcp::Header {
        seq: tcp::Seq(5),
        flags: tcp::Flags::SYN,
        ..tcp::Header::default()
    }
}
