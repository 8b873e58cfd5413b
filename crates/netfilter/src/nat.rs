//! Translation of addresses and ports (Linux's `nf_nat`).
//!
//! A connection's translation is decided by its first packet, once for its source and once for its
//! destination; it is what differs between the original tuple and the inverse of the reply's.

use crate::conntrack::{DST_NAT, Direction, Flow, Flows, SRC_NAT, Track, Tuple};
use crate::packet::{Hook, ICMP, ICMPV6, Packet, TCP, UDP, Version, parse};
use std::net::IpAddr;
use std::sync::Arc;

/// Which end is translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manip {
    Source = 0,
    Destination = 1,
}

impl Manip {
    /// What is translated in a hook.
    #[must_use]
    pub fn of(hook: Hook) -> Option<Manip> {
        match hook {
            Hook::Prerouting | Hook::Output => Some(Manip::Destination),
            Hook::Input | Hook::Postrouting => Some(Manip::Source),
            Hook::Forward => None,
        }
    }
}

/// What has been decided of a connection.
#[derive(Clone, Copy, Default)]
pub struct Translation {
    source: bool,
    destination: bool,
}

impl Translation {
    fn of(&mut self, m: Manip) -> &mut bool {
        match m {
            Manip::Source => &mut self.source,
            Manip::Destination => &mut self.destination,
        }
    }
}

/// The addresses and ports that an end may get.
#[derive(Clone, Copy, Default)]
pub struct NatRange {
    pub ips: Option<(IpAddr, IpAddr)>,
    pub ports: Option<(u16, u16)>,
}

impl NatRange {
    /// The address of the device by which a packet leaves. (Without one: the unspecified address.)
    #[must_use]
    pub fn masquerade(p: &Packet<'_>, ports: Option<(u16, u16)>) -> NatRange {
        let ip = p.output.and_then(|d| p.host.address_on(d.index, p.to));
        let ip = ip.unwrap_or_else(|| unspecified(p.to));
        NatRange {
            ips: Some((ip, ip)),
            ports,
        }
    }

    /// This host: the address of the device by which a packet came, or the loopback's.
    #[must_use]
    pub fn redirect(p: &Packet<'_>, ports: Option<(u16, u16)>) -> NatRange {
        let ip = match p.input {
            Some(d) => p.host.address_on(d.index, p.from),
            None if p.version == Version::V4 => Some(IpAddr::from([127, 0, 0, 1])),
            None => Some(std::net::Ipv6Addr::LOCALHOST.into()),
        };
        let ip = ip.unwrap_or_else(|| unspecified(p.to));
        NatRange {
            ips: Some((ip, ip)),
            ports,
        }
    }

    /// Whether there is no address to give.
    #[must_use]
    pub fn is_impossible(&self) -> bool {
        self.ips.is_some_and(|(a, _)| a.is_unspecified())
    }

    fn ip(&self, old: IpAddr, n: u32) -> IpAddr {
        match self.ips {
            Some((IpAddr::V4(a), IpAddr::V4(b))) => {
                let (a, b) = (a.to_bits(), b.to_bits());
                let span = b.saturating_sub(a).saturating_add(1).max(1);
                IpAddr::V4((a.wrapping_add(n % span)).into())
            }
            Some((IpAddr::V6(a), IpAddr::V6(b))) => {
                let (a, b) = (a.to_bits(), b.to_bits());
                let span = b.saturating_sub(a).saturating_add(1).max(1);
                IpAddr::V6((a.wrapping_add(u128::from(n) % span)).into())
            }
            _ => old,
        }
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// How often a free port is looked for.
const TRIES: u32 = 512;

impl Flows {
    /// Decides a connection's translation by its first packet; false where no port is free.
    pub fn translate(&self, track: &Track, manip: Manip, wanted: &NatRange) -> bool {
        let Some(flow) = track.flow().filter(|_| track.is_new()) else {
            return true;
        };
        if flow.with_translation(|t, _, _| *t.of(manip)) {
            return true;
        }
        // What its packets look like now, seen from who began it.
        let now = flow.tuple(Direction::Reply).inverse();
        let Some(new) = self.unused(flow, &now, manip, wanted) else {
            return false;
        };
        flow.with_translation(|t, reply, status| {
            *t.of(manip) = true;
            if new != now {
                *reply = new.inverse();
                *status |= match manip {
                    Manip::Source => SRC_NAT,
                    Manip::Destination => DST_NAT,
                };
            }
        });
        true
    }

    /// Decides a connection's end that no rule has decided: it stays as it is, if that is no other
    /// connection's (`nf_nat_alloc_null_binding`). Whether it is decided then.
    pub fn bind_null(&self, track: &Track, manip: Manip) -> bool {
        !self.is_undecided(track, manip) || self.translate(track, manip, &NatRange::default())
    }

    /// Whether it is still to be decided.
    #[must_use]
    pub fn is_undecided(&self, track: &Track, manip: Manip) -> bool {
        let flow = track.flow().filter(|_| track.is_new());
        flow.is_some_and(|f| f.with_translation(|t, _, _| !*t.of(manip)))
    }

    /// A tuple whose answers are no other connection's.
    fn unused(
        &self,
        flow: &Arc<Flow>,
        now: &Tuple,
        manip: Manip,
        wanted: &NatRange,
    ) -> Option<Tuple> {
        let mut new = *now;
        let has_ports = matches!(now.protocol, TCP | UDP | ICMP | ICMPV6);
        let is_icmp = matches!(now.protocol, ICMP | ICMPV6);
        let is_free = |t: &Tuple| !self.is_taken(&t.inverse(), flow);
        let old = match manip {
            Manip::Source => now.from,
            Manip::Destination => now.to,
        };
        let ip = wanted.ip(old.0, hash(now.from.0));
        let set = |t: &mut Tuple, port: u16| match manip {
            Manip::Source => t.from = (ip, port),
            Manip::Destination => t.to = (ip, port),
        };
        let ports = wanted.ports.filter(|_| has_ports && !is_icmp);
        let fits = ports.is_none_or(|(a, b)| (a..=b).contains(&old.1));
        if fits {
            set(&mut new, old.1);
            // (To whom packets go may be shared; the answers differ by who began.)
            if manip == Manip::Destination || is_free(&new) {
                return Some(new);
            }
        }
        if !has_ports {
            return Some(new);
        }
        let (first, last) = ports.unwrap_or(match old.1 {
            _ if is_icmp => (0, u16::MAX),
            0..512 => (1, 511),
            512..1024 => (600, 1023),
            _ => (1024, u16::MAX),
        });
        let span = u32::from(last.saturating_sub(first)) + 1;
        let begin = if first == last { 0 } else { self.random() };
        for n in 0..span.min(TRIES) {
            let port = first.wrapping_add((begin.wrapping_add(n) % span) as u16);
            set(&mut new, port);
            if is_free(&new) {
                return Some(new);
            }
        }
        None
    }
}

fn hash(ip: IpAddr) -> u32 {
    let n = match ip {
        IpAddr::V4(a) => a.to_bits(),
        IpAddr::V6(a) => {
            let n = a.to_bits();
            (n ^ n >> 32 ^ n >> 64 ^ n >> 96) as u32
        }
    };
    n.wrapping_mul(0x9e37_79b1) >> 3
}

/// How a packet is to be written anew: its ends; of an ICMP error also those of the packet that it
/// is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rewrite {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
    pub protocol: u8,
    pub quoted: Option<Quoted>,
    /// The most that a SYN asks for.
    pub mss: Option<u16>,
    /// Whether it has other ends.
    pub is_translated: bool,
}

impl Rewrite {
    /// With the ends that it has.
    #[must_use]
    pub fn same(p: &Packet<'_>) -> Rewrite {
        let (from, to) = p.ports().unwrap_or_default();
        Rewrite {
            from: (p.from, from),
            to: (p.to, to),
            protocol: p.protocol,
            quoted: None,
            mss: None,
            is_translated: false,
        }
    }
}

/// The ends of a packet that an error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
}

/// How a packet of a connection is to look after a hook; none: as it does.
#[must_use]
pub fn rewritten(p: &Packet<'_>, track: &Track, manip: Manip) -> Option<Rewrite> {
    let flow = track.flow()?;
    let d = track.direction();
    let status = flow.status();
    // What is done to one end on the way there is undone to the other on the way back.
    let bit = match (manip, d) {
        (Manip::Source, Direction::Original) | (Manip::Destination, Direction::Reply) => SRC_NAT,
        (Manip::Destination, Direction::Original) | (Manip::Source, Direction::Reply) => DST_NAT,
    };
    if status & bit == 0 {
        return None;
    }
    let target = flow.tuple(d.other()).inverse();
    // (A reset that answers a packet looks as others of its connection.)
    if track.is_related() && matches!(p.protocol, ICMP | ICMPV6) {
        return related(p, &target, manip);
    }
    let now = Tuple::of_packet(p)?;
    let (mut from, to) = match manip {
        Manip::Source => (target.from, now.to),
        Manip::Destination => (now.from, target.to),
    };
    // An echo has one number, whichever end is translated.
    if matches!(p.protocol, ICMP | ICMPV6) {
        from.1 = target.from.1;
    }
    Some(Rewrite {
        from,
        to,
        protocol: p.protocol,
        quoted: None,
        mss: None,
        is_translated: true,
    })
}

/// The same for an error about a packet of it. `target`: its packets in the direction of the error,
/// as they look behind the hook.
fn related(p: &Packet<'_>, target: &Tuple, manip: Manip) -> Option<Rewrite> {
    let quoted = p.body().get(8..)?;
    let (from, to, protocol, at) = parse(quoted)?;
    let body = quoted.get(at?..)?;
    let port = |n: usize| -> u16 {
        let b = body.get(n..n + 2).filter(|_| matches!(protocol, TCP | UDP));
        b.map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
    };
    // The packet that is quoted went the other way.
    let (mut inner_from, mut inner_to) = ((from, port(0)), (to, port(2)));
    let (mut outer_from, mut outer_to) = (p.from, p.to);
    match manip {
        Manip::Source => {
            inner_to = target.from;
            outer_from = if p.from == to { target.from.0 } else { p.from };
        }
        Manip::Destination => {
            inner_from = target.to;
            outer_to = target.to.0;
        }
    }
    if matches!(protocol, ICMP | ICMPV6) {
        inner_from.1 = target.from.1;
    }
    Some(Rewrite {
        from: (outer_from, 0),
        to: (outer_to, 0),
        protocol: p.protocol,
        quoted: Some(Quoted {
            from: inner_from,
            to: inner_to,
        }),
        mss: None,
        is_translated: true,
    })
}
