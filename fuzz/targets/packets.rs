//! Frames from a network: Ethernet, ARP, IP and all above, to a host of our stack that sends
//! meanwhile.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use netstack::ip::{
    About, FrameMeta, IcmpError, Info, Ip, Link, Marks, Pair, Raw, Sent, Taken, Upper,
};
use netstack::setup::{Address, Device, Route, RouteKind, Setup};
use netstack::tcp::{Header, Segment};
use netstack::time::Instant;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const INDEX: u32 = 2;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    refuses: bool,
    raw: bool,
    steps: Vec<Step<'a>>,
}

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Frame(&'a [u8]),
    /// Behind an Ethernet header for this host; `ours`: the destination is put right, too.
    Packet {
        kind: Kind,
        meta: [u8; FrameMeta::LEN],
        ours: u8,
        bytes: &'a [u8],
    },
    Wait(u16),
    Send {
        to: u8,
        len: u16,
        segment: u8,
    },
    Join(u8),
    Leave(u8),
    Again,
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Kind {
    V4,
    V6,
    Arp,
}

struct Wire;

impl Link for Wire {
    fn send(&self, device: u32, meta: &FrameMeta, parts: &[&[u8]]) -> Sent {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        assert!(device == INDEX && parts.len() <= 16 && (14..65_536).contains(&len));
        assert!(meta.gso_type != 0 || len <= 1514);
        assert_eq!(parts[0][6..12], MAC);
        // Now and then there is no room.
        if len % 13 == 12 {
            Sent::Full
        } else {
            Sent::Yes
        }
    }
}

struct Host {
    refuses: bool,
    raw: bool,
    /// So that payloads are looked at.
    seen: AtomicU64,
}

impl Host {
    fn take(&self, bytes: &[u8]) -> Taken {
        let sum: u64 = bytes.iter().map(|b| u64::from(*b)).sum();
        self.seen.fetch_add(sum, Relaxed);
        if self.refuses { Taken::No } else { Taken::Yes }
    }
}

impl Upper for Host {
    fn tcp(&self, _: Instant, _: Pair, segment: Segment, _: &Info) -> Taken {
        assert!(segment.joined > 0);
        self.take(&segment.payload)
    }
    fn udp(&self, _: Instant, _: Pair, payload: Bytes, _: Option<u16>, _: &Info) -> Taken {
        self.take(&payload)
    }
    fn icmp_error(
        &self,
        _: Instant,
        about: About,
        _: IcmpError,
        _: IpAddr,
        quoted: &[u8],
        _: &Info,
    ) {
        assert!(ours().contains(&about.pair.local.ip()));
        assert!(usize::from(about.header) <= quoted.len());
        self.take(quoted);
    }
    fn icmp(&self, _: Instant, _: IpAddr, _: IpAddr, message: Bytes, _: &Info) {
        self.take(&message);
    }
    fn raw(&self, _: Instant, packet: &[u8], info: &Info) -> Taken {
        assert!(usize::from(info.header) <= packet.len());
        self.take(packet)
    }
    fn wants_raw(&self) -> bool {
        self.raw
    }
}

fn ours() -> [IpAddr; 3] {
    ["10.0.0.1", "2001:db8::1", "fe80::1"].map(|a| a.parse().expect("an address"))
}

fn others(n: u8) -> IpAddr {
    let all = [
        "10.0.0.2",
        "2001:db8::2",
        "fe80::2",
        "8.8.8.8",
        "224.1.1.1",
        "ff02::5",
    ];
    all[usize::from(n) % all.len()].parse().expect("an address")
}

fn setup() -> Setup {
    let addresses = ours().map(|ip| Address {
        ip,
        prefix: if ip.is_ipv4() { 24 } else { 64 },
        broadcast: None,
        scope: 0,
    });
    let route = |network: IpAddr, prefix, gateway| Route {
        network,
        prefix,
        gateway,
        device: INDEX,
        source: None,
        metric: 0,
        mtu: 0,
        kind: RouteKind::Unicast,
    };
    let mut routes: Vec<Route> = addresses
        .iter()
        .map(|a| route(a.ip, a.prefix, None))
        .collect();
    routes.push(route(
        IpAddr::from([0; 4]),
        0,
        Some(IpAddr::from([10, 0, 0, 254])),
    ));
    Setup {
        devices: vec![Device {
            name: "eth0".into(),
            index: INDEX,
            mac: MAC,
            flags: 1,
            mtu: 1500,
            gso_max: 65_536,
            conf: Default::default(),
            addresses: addresses.to_vec(),
        }],
        routes,
        neighbours: Vec::new(),
        forwards: Default::default(),
    }
}

/// A frame around a packet; what is checked first is made right.
fn frame(kind: Kind, ours: u8, bytes: &[u8]) -> Vec<u8> {
    let ethertype = match kind {
        Kind::V4 => 0x0800_u16,
        Kind::V6 => 0x86dd,
        Kind::Arp => 0x0806,
    };
    let from = [2, 0, 0, 0, 0, 2];
    let mut f = [&MAC[..], &from, &ethertype.to_be_bytes(), bytes].concat();
    let p = &mut f[14..];
    match kind {
        Kind::V4 if p.len() >= 20 => {
            p[0] = 0x40 | (p[0] & 15).max(5);
            let header = usize::from(p[0] & 15) * 4;
            if ours & 1 != 0 {
                let len = p.len() as u16;
                p[2..4].copy_from_slice(&len.to_be_bytes());
                p[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
            }
            if header <= p.len() {
                p[10..12].fill(0);
                let sum = p[..header]
                    .chunks_exact(2)
                    .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                    .sum::<u32>();
                let sum = (sum >> 16) + (sum & 0xffff);
                let sum = !((sum >> 16) + sum) as u16;
                p[10..12].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Kind::V6 if p.len() >= 40 => {
            p[0] = 0x60 | p[0] & 15;
            if ours & 1 != 0 {
                let len = p.len() as u16 - 40;
                p[4..6].copy_from_slice(&len.to_be_bytes());
                let IpAddr::V6(to) = self::ours()[1 + usize::from(ours >> 7)] else {
                    unreachable!()
                };
                let mut from = to.octets();
                from[15] = 2;
                p[8..24].copy_from_slice(&from);
                p[24..40].copy_from_slice(&to.octets());
            }
        }
        _ => {}
    }
    f
}

fn send(ip: &Ip, now: Instant, to: IpAddr, len: u16, segment: u8) {
    let Ok(path) = ip.path(to, None, None) else {
        return;
    };
    let pair = Pair {
        local: SocketAddr::new(path.source, 1),
        remote: SocketAddr::new(to, 2),
    };
    let payload = vec![1; usize::from(len)];
    let (one, marks) = ([&payload[..]], Marks::default());
    let _ = match segment {
        0 => ip.send_udp(now, &path, pair, &one, None, &marks),
        1 => ip.send_icmp(now, &path, path.source, to, &payload, &marks),
        2 => ip.send_raw(now, &path, Raw::Whole(&payload), &marks),
        3..30 => ip.send_tcp(now, &path, pair, &Header::default(), &one, 1400, &marks),
        n => ip.send_udp(now, &path, pair, &one, Some(u16::from(n) * 6), &marks),
    };
    ip.confirm(now, &path);
}

libfuzzer_sys::fuzz_target!(|i: Input<'_>| {
    let ip = Ip::new(&setup(), Arc::new(Wire), [3; 16], Arc::default());
    let host = Host {
        refuses: i.refuses,
        raw: i.raw,
        seen: AtomicU64::new(0),
    };
    let mut now = Instant(0);
    for step in i.steps {
        match step {
            Step::Frame(f) => {
                let f = Bytes::copy_from_slice(f);
                ip.receive(now, INDEX, &FrameMeta::default(), f, &host);
            }
            Step::Packet {
                kind,
                meta,
                ours,
                bytes,
            } => {
                let mut meta = FrameMeta::from_bytes(&meta);
                if ours & 2 != 0 {
                    meta.flags = FrameMeta::DATA_VALID;
                }
                ip.receive(now, INDEX, &meta, frame(kind, ours, bytes).into(), &host);
            }
            Step::Wait(millis) => {
                now = Instant(now.0 + u64::from(millis) * 1_000_000);
                ip.timer(now, &host);
                assert!(ip.deadline().is_none_or(|d| d >= now));
            }
            Step::Send { to, len, segment } => send(&ip, now, others(to), len, segment),
            Step::Join(n) => drop(ip.join(INDEX, others(n))),
            Step::Leave(n) => ip.leave(INDEX, others(n)),
            Step::Again => ip.set(&setup()),
        }
        assert!(ip.held() <= 5 << 20);
        assert!(ip.neighbours(now).len() <= 1024);
    }
    let _ = (ip.counters(), ip.routes(), ip.devices());
});
