//! What is known of a packet beside its bytes: devices, marks, its connection.

use super::{Reg, Run, Step, Value};
use crate::attr::{Bag, Out};
use crate::conntrack::{Direction, Tuple};
use crate::packet::{Device, Version};
use abi::Result;
use abi::errno::{EINVAL, EOPNOTSUPP};
use std::net::IpAddr;

const LEN: u32 = 0;
const PROTOCOL: u32 = 1;
const PRIORITY: u32 = 2;
const MARK: u32 = 3;
const IIF: u32 = 4;
const OIF: u32 = 5;
const IIFNAME: u32 = 6;
const OIFNAME: u32 = 7;
const IIFTYPE: u32 = 8;
const OIFTYPE: u32 = 9;
const SKUID: u32 = 10;
const SKGID: u32 = 11;
const NFTRACE: u32 = 12;
const NFPROTO: u32 = 15;
const L4PROTO: u32 = 16;
const PKTTYPE: u32 = 19;
const CPU: u32 = 20;
const IIFGROUP: u32 = 21;
const OIFGROUP: u32 = 22;
const CGROUP: u32 = 23;
const PRANDOM: u32 = 24;

/// `NFT_META_*`, to a register or from one.
pub struct Meta {
    key: u32,
    to: Option<Reg>,
    from: Option<Reg>,
}

/// A device's name as registers have it.
fn name(d: Option<Device<'_>>) -> Value {
    let mut v = [0; 16];
    let name = d.map_or("", |d| d.name).as_bytes();
    let n = name.len().min(15);
    v[..n].copy_from_slice(&name[..n]);
    Value::new(&v)
}

impl Meta {
    pub fn read(b: &Bag<'_>) -> Result<Meta> {
        let key = b.need32(2)?;
        let len = match key {
            PROTOCOL | IIFTYPE | OIFTYPE => 2,
            IIFNAME | OIFNAME => 16,
            NFPROTO | L4PROTO | PKTTYPE | NFTRACE => 1,
            LEN | PRIORITY | MARK | IIF | OIF | SKUID | SKGID | CPU => 4,
            IIFGROUP | OIFGROUP | CGROUP | PRANDOM => 4,
            _ => return Err(EOPNOTSUPP),
        };
        let from = Reg::maybe(b, 3, len)?;
        if from.is_some() {
            if !matches!(key, MARK | PRIORITY | NFTRACE | PKTTYPE) {
                return Err(EOPNOTSUPP);
            }
            return Ok(Meta {
                key,
                to: None,
                from,
            });
        }
        let to = Some(Reg::read(b, 1, len)?);
        Ok(Meta {
            key,
            to,
            from: None,
        })
    }

    pub fn write(&self, o: &mut Out) {
        o.be32(2, self.key);
        Reg::write_maybe(self.to, o, 1);
        Reg::write_maybe(self.from, o, 3);
    }

    fn value(&self, r: &Run<'_, '_>) -> Option<Value> {
        let p = r.packet;
        let word = |n: u32| Some(Value::from(n));
        match self.key {
            LEN => word(p.len as u32),
            PROTOCOL => {
                let kind: u16 = match p.version {
                    Version::V4 => 0x0800,
                    Version::V6 => 0x86dd,
                };
                Some(Value::new(&kind.to_be_bytes()))
            }
            MARK => word(r.meta.mark),
            IIF => word(p.input.map_or(0, |d| d.index)),
            OIF => word(p.output.map_or(0, |d| d.index)),
            IIFNAME => Some(name(p.input)),
            OIFNAME => Some(name(p.output)),
            IIFTYPE => Some(Value::new(&p.input?.hardware.to_ne_bytes())),
            OIFTYPE => Some(Value::new(&p.output?.hardware.to_ne_bytes())),
            SKUID => word(p.owner?.0),
            SKGID => word(p.owner?.1),
            NFPROTO => Some(Value::new(&[match p.version {
                Version::V4 => 2,
                Version::V6 => 10,
            }])),
            L4PROTO => Some(Value::new(&[p.protocol])),
            PKTTYPE => Some(Value::new(&[p.cast as u8])),
            IIFGROUP => p.input.and(word(0)),
            OIFGROUP => p.output.and(word(0)),
            PRANDOM => word(r.flows.random()),
            // PRIORITY, CPU, CGROUP, NFTRACE: nothing here has others.
            _ => word(0),
        }
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        if let Some(from) = self.from {
            if self.key == MARK {
                r.meta.mark = r.word(from);
            }
            return Step::Next;
        }
        let value = self.value(r);
        r.put(self.to, value)
    }
}

/// What the routes say of an address: `fib saddr type`, `fib daddr type`.
pub struct Fib {
    to: Reg,
    flags: u32,
}

const SADDR: u32 = 1;
const DADDR: u32 = 2;
const ADDRTYPE: u32 = 3;

impl Fib {
    pub fn read(b: &Bag<'_>) -> Result<Fib> {
        let (result, flags) = (b.need32(2)?, b.need32(3)?);
        if result != ADDRTYPE {
            return Err(EOPNOTSUPP);
        }
        if flags & (SADDR | DADDR) == SADDR | DADDR || flags & (SADDR | DADDR) == 0 {
            return Err(EINVAL);
        }
        // Marks and devices choose no routes here.
        if flags & !(SADDR | DADDR | 8 | 16) != 0 {
            return Err(EOPNOTSUPP);
        }
        let to = Reg::read(b, 1, 4)?;
        Ok(Fib { to, flags })
    }

    pub fn write(&self, o: &mut Out) {
        self.to.write(o, 1);
        o.be32(2, ADDRTYPE);
        o.be32(3, self.flags);
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        let p = r.packet;
        let ip = if self.flags & SADDR != 0 {
            p.from
        } else {
            p.to
        };
        let kind = u32::from(p.host.kind_of(ip));
        r.store(self.to, &kind.to_ne_bytes());
        Step::Next
    }
}

/// `NFT_CT_*`.
pub struct Ct {
    key: u32,
    direction: Option<Direction>,
    to: Option<Reg>,
    from: Option<Reg>,
}

mod ct {
    pub const STATE: u32 = 0;
    pub const DIRECTION: u32 = 1;
    pub const STATUS: u32 = 2;
    pub const MARK: u32 = 3;
    pub const EXPIRATION: u32 = 5;
    pub const L3PROTOCOL: u32 = 7;
    pub const SRC: u32 = 8;
    pub const DST: u32 = 9;
    pub const PROTOCOL: u32 = 10;
    pub const PROTO_SRC: u32 = 11;
    pub const PROTO_DST: u32 = 12;
    pub const PACKETS: u32 = 14;
    pub const BYTES: u32 = 15;
    pub const AVERAGE: u32 = 16;
    pub const ZONE: u32 = 17;
    pub const EVENTS: u32 = 18;
    pub const SRC_IP: u32 = 19;
    pub const DST_IP: u32 = 20;
    pub const SRC_IP6: u32 = 21;
    pub const DST_IP6: u32 = 22;
    pub const ID: u32 = 23;
}

impl Ct {
    pub fn read(b: &Bag<'_>) -> Result<Ct> {
        let key = b.need32(2)?;
        let direction = match b.byte(3)? {
            None => None,
            Some(0) => Some(Direction::Original),
            Some(1) => Some(Direction::Reply),
            Some(_) => return Err(EINVAL),
        };
        let len = match key {
            ct::DIRECTION | ct::L3PROTOCOL | ct::PROTOCOL => 1,
            ct::PROTO_SRC | ct::PROTO_DST | ct::ZONE => 2,
            ct::STATE | ct::STATUS | ct::MARK | ct::EXPIRATION | ct::ID | ct::EVENTS => 4,
            ct::SRC_IP | ct::DST_IP => 4,
            ct::PACKETS | ct::BYTES | ct::AVERAGE => 8,
            ct::SRC | ct::DST | ct::SRC_IP6 | ct::DST_IP6 => 16,
            _ => return Err(EOPNOTSUPP),
        };
        let needs = matches!(key, ct::SRC | ct::DST | ct::PROTO_SRC..=ct::PROTO_DST);
        let needs = needs || (ct::SRC_IP..=ct::DST_IP6).contains(&key);
        if needs && direction.is_none() {
            return Err(EINVAL);
        }
        let from = Reg::maybe(b, 4, len)?;
        if from.is_some() && !matches!(key, ct::MARK | ct::EVENTS) {
            return Err(EOPNOTSUPP);
        }
        let to = match from {
            Some(_) => None,
            // IPv4's addresses take four bytes only, wherever there is room for them.
            None if matches!(key, ct::SRC | ct::DST) => Some(Reg::read(b, 1, 4)?),
            None => Some(Reg::read(b, 1, len)?),
        };
        Ok(Ct {
            key,
            direction,
            to,
            from,
        })
    }

    pub fn write(&self, o: &mut Out) {
        Reg::write_maybe(self.to, o, 1);
        o.be32(2, self.key);
        if let Some(d) = self.direction {
            o.put(3, &[d as u8]);
        }
        Reg::write_maybe(self.from, o, 4);
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        if let Some(from) = self.from {
            let mark = r.word(from);
            if let (ct::MARK, Some(f)) = (self.key, r.meta.track.flow()) {
                f.set_mark(mark);
            }
            return Step::Next;
        }
        let value = self.value(r);
        r.put(self.to, value)
    }

    fn value(&self, r: &Run<'_, '_>) -> Option<Value> {
        let word = |n: u32| Some(Value::from(n));
        let track = &r.meta.track;
        if self.key == ct::STATE {
            return word(track.bits());
        }
        let f = track.flow()?;
        let tuple = || -> Option<Tuple> { Some(f.tuple(self.direction?)) };
        let v4 = |ip: IpAddr| ip.is_ipv4().then(|| ip.into());
        let v6 = |ip: IpAddr| ip.is_ipv6().then(|| ip.into());
        match self.key {
            ct::DIRECTION => Some(Value::new(&[track.direction() as u8])),
            ct::STATUS => word(f.status()),
            ct::MARK => word(f.mark()),
            ct::EXPIRATION => word(f.left(r.packet.now)),
            ct::L3PROTOCOL => Some(Value::new(&[if f.original.from.0.is_ipv4() {
                2
            } else {
                10
            }])),
            ct::PROTOCOL => Some(Value::new(&[f.original.protocol])),
            ct::SRC => Some(tuple()?.from.0.into()),
            ct::DST => Some(tuple()?.to.0.into()),
            ct::SRC_IP => v4(tuple()?.from.0),
            ct::DST_IP => v4(tuple()?.to.0),
            ct::SRC_IP6 => v6(tuple()?.from.0),
            ct::DST_IP6 => v6(tuple()?.to.0),
            ct::PROTO_SRC => Some(Value::new(&tuple()?.from.1.to_be_bytes())),
            ct::PROTO_DST => Some(Value::new(&tuple()?.to.1.to_be_bytes())),
            ct::PACKETS | ct::BYTES | ct::AVERAGE => {
                let (packets, bytes) = f.counters(self.direction);
                let n = match self.key {
                    ct::PACKETS => packets,
                    ct::BYTES => bytes,
                    _ => bytes.checked_div(packets).unwrap_or(0),
                };
                Some(Value::new(&n.to_ne_bytes()))
            }
            ct::ZONE => Some(Value::new(&[0, 0])),
            ct::ID => word(f.id),
            _ => None,
        }
    }
}
