//! Interfaces, addresses, routes and neighbours as netlink messages (`rtnetlink(7)`).

use super::message::{Builder, Request};
use super::{RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWROUTE, RTM_NEWRULE};
use crate::devices::{Address, LOWER_UP, LinkInfo};
use crate::interface;
use crate::route::Route;
use crate::sys::{AF_INET, AF_INET6};
use netstack::ip::{DeviceCounts, NeighbourInfo};
use std::net::IpAddr;

pub(super) fn link(
    req: &Request<'_>,
    flags: u16,
    port: u32,
    info: &LinkInfo,
    counts: &DeviceCounts,
) -> Vec<u8> {
    let i = &info.interface;
    let stats = stats(counts);
    let narrow: Vec<u8> = stats[..24]
        .iter()
        .flat_map(|n| (*n as u32).to_le_bytes())
        .collect();
    let wide: Vec<u8> = stats.iter().flat_map(|n| n.to_le_bytes()).collect();
    const IFF_UP: u32 = 1;
    let kind = i.hardware_kind();
    let mut head = vec![0, 0];
    head.extend_from_slice(&kind.to_le_bytes());
    head.extend_from_slice(&i.index.to_le_bytes());
    let up = i.flags & IFF_UP != 0;
    let broadcast = [if kind == interface::ETHERNET { 0xff } else { 0 }; 6];
    let lower = if up && info.carrier { LOWER_UP } else { 0 };
    // IF_OPER_UNKNOWN, _UP, _LOWERLAYERDOWN of a pair whose other end is down, _DOWN.
    let state = match (up, info.carrier, info.peer) {
        (true, ..) if info.linkless => 0,
        (true, true, _) => 6,
        (true, false, Some((_, true))) => 3,
        _ => 2,
    };
    let queueing: &[u8] = match info.kind {
        _ if !info.started => b"noop\0",
        Some("tun") => b"pfifo_fast\0",
        _ => b"noqueue\0",
    };
    head.extend_from_slice(&(i.flags | lower).to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    let mut b = Builder::new(RTM_NEWLINK, flags, req, port)
        .bytes(&head)
        .attr(3, &with_zero(&i.name)) // IFNAME
        .attr32(13, info.queue) // TXQLEN
        .attr(16, &[state]) // OPERSTATE
        .attr(17, &[0]) // LINKMODE
        .attr32(4, i.mtu) // MTU
        .attr32(27, info.group) // GROUP
        .attr32(30, 0) // PROMISCUITY
        .attr32(31, 1) // NUM_TX_QUEUES
        .attr32(40, 65535) // GSO_MAX_SEGS
        .attr32(41, 65536) // GSO_MAX_SIZE
        .attr32(32, 1) // NUM_RX_QUEUES
        .attr(33, &[info.carrier.into()]) // CARRIER
        .attr(6, queueing) // QDISC
        .attr(23, &wide) // STATS64
        .attr(7, &narrow); // STATS
    if kind != interface::NO_HEADER {
        b = b.attr(1, &i.mac).attr(2, &broadcast); // ADDRESS, BROADCAST
    }
    if let Some(m) = info.master {
        b = b.attr32(10, m as u32); // MASTER
    }
    if let Some((index, here)) = info.peer {
        b = b.attr32(5, index as u32); // LINK
        if !here {
            b = b.attr32(37, 0); // LINK_NETNSID
        }
    }
    if info.kind.is_some() || info.master.is_some() {
        let mut nested = Vec::new();
        if let Some(k) = info.kind {
            push(&mut nested, 1, &with_zero(k)); // INFO_KIND
        }
        if info.master.is_some() {
            push(&mut nested, 4, b"bridge\0"); // INFO_SLAVE_KIND
        }
        b = b.attr(18, &nested); // LINKINFO
    }
    b.finish()
}

/// A nested attribute.
fn push(to: &mut Vec<u8>, kind: u16, data: &[u8]) {
    to.extend_from_slice(&((4 + data.len()) as u16).to_le_bytes());
    to.extend_from_slice(&kind.to_le_bytes());
    to.extend_from_slice(data);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// A port of a bridge, as `bridge link` asks for it.
pub(super) fn bridge_port(req: &Request<'_>, flags: u16, port: u32, info: &LinkInfo) -> Vec<u8> {
    const NESTED: u16 = 0x8000;
    const FORWARDING: u8 = 3;
    let i = &info.interface;
    let mut inner = Vec::new();
    push(&mut inner, 1, &[FORWARDING]); // BRPORT_STATE
    push(&mut inner, 2, &32u16.to_le_bytes()); // BRPORT_PRIORITY
    push(&mut inner, 3, &2u32.to_le_bytes()); // BRPORT_COST
    let lower = if info.carrier { LOWER_UP } else { 0 };
    Builder::new(RTM_NEWLINK, flags, req, port)
        .bytes(&[7, 0, 1, 0])
        .bytes(&i.index.to_le_bytes())
        .bytes(&(i.flags | lower).to_le_bytes())
        .bytes(&[0; 4])
        .attr(3, &with_zero(&i.name))
        .attr32(4, i.mtu)
        .attr32(10, info.master.unwrap_or(0) as u32)
        .attr32(5, info.peer.map_or(i.index, |p| p.0) as u32)
        .attr(16, &[if info.carrier { 6 } else { 2 }])
        .attr(1, &i.mac)
        .attr(NESTED | 12, &inner) // PROTINFO
        .finish()
}

/// An address that a bridge has seen.
pub(super) fn bridge_address(
    req: &Request<'_>,
    flags: u16,
    port: u32,
    (bridge, device): (i32, i32),
    mac: [u8; 6],
) -> Vec<u8> {
    const REACHABLE: u16 = 2;
    Builder::new(RTM_NEWNEIGH, flags, req, port)
        .bytes(&[7, 0, 0, 0])
        .bytes(&device.to_le_bytes())
        .bytes(&REACHABLE.to_le_bytes())
        .bytes(&[0, 0])
        .attr(2, &mac) // LLADDR
        .attr32(9, bridge as u32) // MASTER
        .finish()
}

/// The rules that there are always: `struct fib_rule_hdr` and its attributes.
pub(super) fn rules(req: &Request<'_>, flags: u16, port: u32) -> Vec<Vec<u8>> {
    const TO_TABLE: u8 = 1;
    let of = |family: u16, table: u8, priority: u32| {
        let mut b = Builder::new(RTM_NEWRULE, flags, req, port)
            .bytes(&[family as u8, 0, 0, 0, table, 0, 0, TO_TABLE, 0, 0, 0, 0])
            .attr32(15, table.into()) // TABLE
            .attr32(14, u32::MAX) // SUPPRESS_PREFIXLEN
            .attr(21, &[2]); // PROTOCOL: the kernel's
        if priority > 0 {
            b = b.attr32(6, priority);
        }
        b.finish()
    };
    let mut all = Vec::new();
    let family = u16::from(req.family());
    for f in [AF_INET, AF_INET6] {
        if family == f || family == 0 {
            all.push(of(f, 255, 0));
            all.push(of(f, 254, 32_766));
            if f == AF_INET {
                all.push(of(f, 253, 32_767));
            }
        }
    }
    all
}

/// `struct rtnl_link_stats64`.
fn stats(c: &DeviceCounts) -> [u64; 25] {
    let mut all = [0; 25];
    all[..9].copy_from_slice(&[
        c.rx_packets,
        c.tx_packets,
        c.rx_bytes,
        c.tx_bytes,
        c.rx_errors,
        0,
        c.rx_dropped,
        c.tx_dropped,
        c.multicast,
    ]);
    all
}

/// `struct ndmsg` and its attributes.
pub(super) fn neighbour(req: &Request<'_>, flags: u16, port: u32, n: &NeighbourInfo) -> Vec<u8> {
    const NTF_ROUTER: u8 = 0x80;
    const TYPE_UNICAST: u8 = 1;
    let router = if n.router { NTF_ROUTER } else { 0 };
    let mut b = Builder::new(RTM_NEWNEIGH, flags, req, port)
        .bytes(&[inet_of(n.ip), 0, 0, 0])
        .bytes(&n.device.to_le_bytes())
        .bytes(&(n.state as u16).to_le_bytes())
        .bytes(&[router, TYPE_UNICAST])
        .attr(1, &octets(n.ip)); // DST
    if let Some(mac) = n.mac {
        b = b.attr(2, &mac); // LLADDR
    }
    b.attr(3, &[0; 16]).attr32(4, 0).finish() // CACHEINFO, PROBES
}

pub(super) fn with_zero(name: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0"].concat()
}

pub(super) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

pub(super) fn inet_of(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() { AF_INET } else { AF_INET6 }) as u8
}

pub(super) fn address(
    req: &Request<'_>,
    flags: u16,
    port: u32,
    (index, name): (i32, &str),
    a: &Address,
) -> Vec<u8> {
    let mut b = Builder::new(RTM_NEWADDR, flags, req, port)
        .bytes(&[inet_of(a.ip), a.prefix, a.flags as u8, a.scope])
        .bytes(&index.to_le_bytes())
        .attr(1, &octets(a.peer.unwrap_or(a.ip))); // ADDRESS
    if a.ip.is_ipv4() || a.peer.is_some() {
        b = b.attr(2, &octets(a.ip)); // LOCAL
    }
    if let Some(last) = a.broadcast {
        b = b.attr(4, &octets(last)); // BROADCAST
    }
    if a.ip.is_ipv4() {
        b = b.attr(3, &with_zero(a.label.as_deref().unwrap_or(name))); // LABEL
    }
    let mut cache = vec![0xff; 8]; // Valid and preferred for ever.
    cache.extend_from_slice(&[0; 8]);
    b.attr32(8, a.flags).attr(6, &cache).finish() // FLAGS, CACHEINFO
}

/// The way to an address, as IPv4 tells it to who asks for one (`rt_fill_info`): no entry of a
/// table, but what came of them. Some programs look at the first attributes alone.
pub(super) fn way(req: &Request<'_>, port: u32, (ip, uid): (IpAddr, u32), r: &Route) -> Vec<u8> {
    const LOOKUP_TABLE: u32 = 0x1000;
    const CLONED: u32 = 0x200;
    const TABLE_MAIN: u8 = 254;
    const TABLE_LOCAL: u8 = 255;
    const LOCAL: u8 = 2;
    /// `RTCF_LOCAL`, `RTCF_BROADCAST`, `RTCF_MULTICAST`, by kinds of routes.
    const FLAGS: [(u8, u32); 3] = [(LOCAL, 1 << 31), (3, 1 << 28), (5, 1 << 29)];
    let asked = req.body().get(8..12).and_then(|b| b.first_chunk());
    let asked = asked.map_or(0, |b| u32::from_ne_bytes(*b));
    // (Linux keeps this host's own in the main one's trie, while there are no rules.)
    let table = match (asked & LOOKUP_TABLE, r.table) {
        (0, _) | (_, TABLE_LOCAL) => TABLE_MAIN,
        (_, other) => other,
    };
    let known = FLAGS.iter().find(|(kind, _)| *kind == r.kind);
    let flags = CLONED | known.map_or(0, |(_, f)| *f);
    let mut b = Builder::new(RTM_NEWROUTE, 0, req, port)
        .bytes(&[inet_of(ip), 32, 0, 0, table, 0, 0, r.kind])
        .bytes(&flags.to_le_bytes())
        .attr32(15, u32::from(table)) // TABLE
        .attr(1, &octets(ip)); // DST
    if r.has_device() {
        b = b.attr(4, &r.device.to_le_bytes()); // OIF
    }
    if let Some(source) = r.source {
        b = b.attr(7, &octets(source)); // PREFSRC
    }
    if let Some(via) = r.via {
        b = b.attr(5, &octets(via)); // GATEWAY
    }
    if r.mtu > 0 {
        let mut metrics = Vec::new();
        push(&mut metrics, 2, &r.mtu.to_le_bytes());
        b = b.attr(8, &metrics); // METRICS
    }
    // UID, and CACHEINFO: used by one.
    let mut cache = [0; 32];
    cache[0] = 1;
    b.attr32(25, uid).attr(12, &cache).finish()
}

pub(super) fn route(req: &Request<'_>, flags: u16, port: u32, r: &Route) -> Vec<u8> {
    const ON_LINK: u32 = 4;
    let mut b = Builder::new(RTM_NEWROUTE, flags, req, port)
        .bytes(&[
            inet_of(r.to),
            r.prefix,
            0,
            0,
            r.table,
            r.protocol,
            r.scope,
            r.kind,
        ])
        .bytes(&(r.flags | if r.on_link { ON_LINK } else { 0 }).to_le_bytes())
        .attr32(15, u32::from(r.table)); // TABLE
    if r.prefix > 0 {
        b = b.attr(1, &octets(r.to)); // DST
    }
    if let Some(via) = r.via {
        b = b.attr(5, &octets(via)); // GATEWAY
    }
    if let Some(source) = r.source {
        b = b.attr(7, &octets(source)); // PREFSRC
    }
    if r.metric > 0 {
        b = b.attr32(6, r.metric); // PRIORITY
    }
    if r.mtu > 0 {
        let mut metrics = Vec::new();
        push(&mut metrics, 2, &r.mtu.to_le_bytes());
        b = b.attr(8, &metrics); // METRICS
    }
    if r.to.is_ipv6() {
        b = b.attr(20, &[0]); // PREF: medium
    }
    if r.has_device() {
        b = b.attr(4, &r.device.to_le_bytes()); // OIF
    }
    b.finish()
}
