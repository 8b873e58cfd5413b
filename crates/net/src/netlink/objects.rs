//! Interfaces, addresses, routes and neighbours as netlink messages (`rtnetlink(7)`).

use super::message::{Builder, Request};
use super::{RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWROUTE};
use crate::interface::Interface;
use crate::route::Route;
use crate::sys::{AF_INET, AF_INET6};
use netstack::ip::{DeviceCounts, NeighbourInfo};
use std::net::IpAddr;

pub(super) fn link(
    req: &Request<'_>,
    flags: u16,
    port: u32,
    i: &Interface,
    counts: &DeviceCounts,
) -> Vec<u8> {
    let stats = stats(counts);
    let narrow: Vec<u8> = stats[..24]
        .iter()
        .flat_map(|n| (*n as u32).to_le_bytes())
        .collect();
    let wide: Vec<u8> = stats.iter().flat_map(|n| n.to_le_bytes()).collect();
    const IFF_UP: u32 = 1;
    const IFF_LOOPBACK: u32 = 8;
    const IFF_LOWER_UP: u32 = 0x1_0000;
    const ARPHRD_ETHER: u16 = 1;
    const ARPHRD_LOOPBACK: u16 = 772;
    let kind = if i.flags & IFF_LOOPBACK != 0 {
        ARPHRD_LOOPBACK
    } else {
        ARPHRD_ETHER
    };
    let mut info = vec![0, 0];
    info.extend_from_slice(&kind.to_le_bytes());
    info.extend_from_slice(&i.index.to_le_bytes());
    let up = i.flags & IFF_UP != 0;
    let broadcast = [if kind == ARPHRD_ETHER { 0xff } else { 0 }; 6];
    let lower = if up { IFF_LOWER_UP } else { 0 };
    // Unknown, as Linux has it for lo; down; up.
    let state = match (kind, up) {
        (ARPHRD_LOOPBACK, true) => 0,
        (_, false) => 2,
        (_, true) => 6,
    };
    info.extend_from_slice(&(i.flags | lower).to_le_bytes());
    info.extend_from_slice(&[0; 4]);
    Builder::new(RTM_NEWLINK, flags, req, port)
        .bytes(&info)
        .attr(3, &with_zero(&i.name)) // IFNAME
        .attr32(13, 1000) // TXQLEN
        .attr(16, &[state]) // OPERSTATE
        .attr(17, &[0]) // LINKMODE
        .attr32(4, i.mtu) // MTU
        .attr32(27, 0) // GROUP
        .attr32(30, 0) // PROMISCUITY
        .attr32(31, 1) // NUM_TX_QUEUES
        .attr32(40, 65535) // GSO_MAX_SEGS
        .attr32(41, 65536) // GSO_MAX_SIZE
        .attr32(32, 1) // NUM_RX_QUEUES
        .attr(33, &[1]) // CARRIER
        .attr(6, b"noqueue\0") // QDISC
        .attr(1, &i.mac) // ADDRESS
        .attr(2, &broadcast) // BROADCAST
        .attr(23, &wide) // STATS64
        .attr(7, &narrow) // STATS
        .finish()
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
    i: &Interface,
    (ip, prefix): (IpAddr, u8),
) -> Vec<u8> {
    const PERMANENT: u8 = 0x80;
    const SCOPE_GLOBAL: u8 = 0;
    const SCOPE_LINK: u8 = 253;
    const SCOPE_HOST: u8 = 254;
    let scope = match ip {
        _ if ip.is_loopback() => SCOPE_HOST,
        IpAddr::V4(a) if a.is_link_local() => SCOPE_LINK,
        IpAddr::V6(a) if a.is_unicast_link_local() => SCOPE_LINK,
        _ => SCOPE_GLOBAL,
    };
    let mut b = Builder::new(RTM_NEWADDR, flags, req, port)
        .bytes(&[inet_of(ip), prefix, PERMANENT, scope])
        .bytes(&i.index.to_le_bytes())
        .attr(1, &octets(ip)); // ADDRESS
    if let IpAddr::V4(a) = ip {
        b = b.attr(2, &octets(ip)); // LOCAL
        if !ip.is_loopback() && prefix < 31 {
            let last = a.to_bits() | (u32::MAX >> prefix);
            b = b.attr(4, &last.to_be_bytes()); // BROADCAST
        }
        b = b.attr(3, &with_zero(&i.name)); // LABEL
    }
    let mut cache = vec![0xff; 8]; // Valid and preferred for ever.
    cache.extend_from_slice(&[0; 8]);
    b.attr32(8, u32::from(PERMANENT)).attr(6, &cache).finish() // FLAGS, CACHEINFO
}

pub(super) fn route(req: &Request<'_>, flags: u16, port: u32, r: &Route) -> Vec<u8> {
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
        .bytes(&r.flags.to_le_bytes())
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
    if r.to.is_ipv6() {
        b = b.attr(20, &[0]); // PREF: medium
    }
    b.attr(4, &r.device.to_le_bytes()).finish() // OIF
}
