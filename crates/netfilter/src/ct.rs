//! conntrack as netlink speaks it (`NFNL_SUBSYS_CTNETLINK`): what `conntrack -L`, `-D`, `-F` and
//! `-E` need.

use crate::attr::{Answer, Bag, Out, Selection};
use crate::conntrack::{Direction, Flow, Flows, Phase, Tuple};
use crate::packet::{ICMP, ICMPV6};
use abi::Result;
use abi::errno::{EINVAL, ENOENT, EOPNOTSUPP};
use std::net::IpAddr;

pub const NEW: u8 = 0;
pub const GET: u8 = 1;
pub const DELETE: u8 = 2;
pub const GET_RESET: u8 = 3;
pub const STATS_CPU: u8 = 4;
pub const STATS: u8 = 5;

fn tuple(o: &mut Out, t: &Tuple) {
    o.nest(1, |o| match (t.from.0, t.to.0) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            o.put(1, &a.octets());
            o.put(2, &b.octets());
        }
        (a, b) => {
            for (kind, ip) in [(3, a), (4, b)] {
                if let IpAddr::V6(ip) = ip {
                    o.put(kind, &ip.octets());
                }
            }
        }
    });
    o.nest(2, |o| {
        o.put(1, &[t.protocol]);
        match t.protocol {
            ICMP | ICMPV6 => {
                let first = if t.protocol == ICMP { 4 } else { 7 };
                let [kind, code] = t.to.1.to_be_bytes();
                o.put(first, &t.from.1.to_be_bytes());
                o.put(first + 1, &[kind]);
                o.put(first + 2, &[code]);
            }
            _ => {
                o.put(2, &t.from.1.to_be_bytes());
                o.put(3, &t.to.1.to_be_bytes());
            }
        }
    });
}

fn family(f: &Flow) -> u8 {
    if f.original.from.0.is_ipv4() { 2 } else { 10 }
}

/// Whether it is told to who has asked, or to who listens: without what is not set, then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FlowMessage {
    Reply,
    Event,
}

fn flow(f: &Flow, now: u64, message: FlowMessage) -> Answer {
    let mut o = Out::default();
    o.nest(1, |o| tuple(o, &f.original));
    o.nest(2, |o| tuple(o, &f.tuple(Direction::Reply)));
    o.be32(3, f.status());
    if f.phase() != Phase::None {
        o.nest(4, |o| {
            o.nest(1, |o| {
                o.put(1, &[f.phase().number()]);
                o.put(2, &[0]);
                o.put(3, &[0]);
                o.put(4, &[0, 0]);
                o.put(5, &[0, 0]);
            });
        });
    }
    if f.left(now) > 0 {
        o.be32(7, f.left(now) / 1000);
    }
    if message == FlowMessage::Reply || f.mark() != 0 {
        o.be32(8, f.mark());
    }
    if message == FlowMessage::Reply {
        o.be32(11, 1);
    }
    o.be32(12, f.id);
    Answer {
        kind: NEW,
        family: family(f),
        attrs: o.0,
    }
}

/// What is told of one to who listens.
pub(crate) fn told(f: &Flow, now: u64) -> Answer {
    flow(f, now, FlowMessage::Event)
}

/// The tuple that attributes say.
fn read(b: &Bag<'_>) -> Result<Tuple> {
    let (ip, proto) = (b.nested(1).ok_or(EINVAL)?, b.nested(2).ok_or(EINVAL)?);
    let v4 = |kind| -> Option<IpAddr> {
        let b: [u8; 4] = *ip.get(kind)?.first_chunk()?;
        Some(b.into())
    };
    let v6 = |kind| -> Option<IpAddr> {
        let b: [u8; 16] = *ip.get(kind)?.first_chunk()?;
        Some(b.into())
    };
    let ends = v4(1).zip(v4(2)).or_else(|| v6(3).zip(v6(4)));
    let (from, to) = ends.ok_or(EINVAL)?;
    let protocol = proto.byte(1)?.ok_or(EINVAL)?;
    let (a, b) = match protocol {
        ICMP | ICMPV6 => {
            let first = if protocol == ICMP { 4 } else { 7 };
            let kind = proto.byte(first + 1)?.unwrap_or(0);
            let code = proto.byte(first + 2)?.unwrap_or(0);
            (
                proto.be16(first)?.unwrap_or(0),
                u16::from_be_bytes([kind, code]),
            )
        }
        _ => (proto.be16(2)?.unwrap_or(0), proto.be16(3)?.unwrap_or(0)),
    };
    Ok(Tuple {
        from: (from, a),
        to: (to, b),
        protocol,
    })
}

fn find(flows: &Flows, b: &Bag<'_>, now: u64) -> Result<std::sync::Arc<Flow>> {
    let t = b.nested(1).or_else(|| b.nested(2)).ok_or(EINVAL)?;
    let (f, _) = flows.get(&read(&t)?, now).ok_or(ENOENT)?;
    match b.be32(12)? {
        Some(id) if id != f.id => Err(ENOENT),
        _ => Ok(f),
    }
}

/// The answers to a message. `of`: which family's connections; 0 for all.
pub fn ask(
    flows: &Flows,
    kind: u8,
    of: u8,
    attrs: &[u8],
    asked: Selection,
    now: u64,
) -> Result<Vec<Answer>> {
    let b = Bag::new(attrs);
    match kind {
        GET | GET_RESET if asked == Selection::All => {
            let mark = b.be32(8)?;
            let mask = b.be32(21)?.unwrap_or(u32::MAX);
            let fits = |f: &Flow| {
                (of == 0 || family(f) == of) && mark.is_none_or(|m| f.mark() & mask == m)
            };
            let found = flows.all(now);
            Ok(found
                .iter()
                .filter(|f| fits(f))
                .map(|f| flow(f, now, FlowMessage::Reply))
                .collect())
        }
        GET | GET_RESET => Ok(vec![flow(&*find(flows, &b, now)?, now, FlowMessage::Reply)]),
        DELETE if b.has(1) || b.has(2) => {
            let f = find(flows, &b, now)?;
            flows.forget(now, |other| std::ptr::eq(other, &*f));
            Ok(Vec::new())
        }
        // By status, zones and the like nothing is found here.
        DELETE if b.has(3) || b.has(18) || b.has(25) => Err(EOPNOTSUPP),
        DELETE => {
            let mark = b.be32(8)?;
            let mask = b.be32(21)?.unwrap_or(u32::MAX);
            flows.forget(now, |f| {
                (of == 0 || family(f) == of) && mark.is_none_or(|m| f.mark() & mask == m)
            });
            Ok(Vec::new())
        }
        STATS => {
            let mut o = Out::default();
            o.be32(1, flows.count() as u32);
            o.be32(2, flows.most() as u32);
            Ok(vec![Answer {
                kind: STATS,
                family: of,
                attrs: o.0,
            }])
        }
        // Connections are made by packets alone.
        _ => Err(EOPNOTSUPP),
    }
}
