//! Matches.

use super::{Bytes, needs_protocol};
use crate::conntrack::{DST_NAT, Direction, SRC_NAT, Track};
use crate::expr::{Bucket, Run, Scope};
use crate::packet::{DCCP, ICMP, ICMPV6, Packet, SCTP, TCP, UDP, UDPLITE, Version, be16};
use crate::rewrite::mss_at;
use abi::Result;
use abi::errno::{EDOM, EINVAL, ERANGE};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A range, and whether what is outside of it matches.
#[derive(Clone, Copy)]
pub struct Ports(u16, u16, bool);

impl Ports {
    fn read(b: Bytes<'_>, at: usize, not: u8) -> Result<Ports> {
        Ok(Ports(b.u16(at)?, b.u16(at + 2)?, not != 0))
    }
    fn has(&self, port: u16) -> bool {
        (self.0..=self.1).contains(&port) != self.2
    }
}

/// See the module.
pub enum Match {
    Tcp {
        from: Ports,
        to: Ports,
        /// Of the flags those that are looked at, and what they are to be.
        flags: (u8, u8, bool),
        option: (u8, bool),
    },
    Udp {
        from: Ports,
        to: Ports,
    },
    Icmp {
        protocol: u8,
        kind: u8,
        codes: (u8, u8),
        not: bool,
    },
    Conntrack(Box<Conntrack>),
    AddrType(AddrType),
    Comment,
    Multiport {
        ends: u8,
        ports: Vec<(u16, u16)>,
        not: bool,
    },
    Owner {
        users: (u32, u32),
        groups: (u32, u32),
        what: u8,
        not: u8,
    },
    Mark {
        of_flow: bool,
        mark: u32,
        mask: u32,
        not: bool,
    },
    Limit {
        cost: u64,
        bucket: Bucket,
    },
    PacketType {
        cast: u32,
        not: bool,
    },
    IpRange {
        from: Option<(IpAddr, IpAddr, bool)>,
        to: Option<(IpAddr, IpAddr, bool)>,
    },
    /// With a chance of so many of 2^31.
    Random {
        chance: u32,
        not: bool,
    },
    /// One of so many.
    Nth {
        every: u32,
        at: u32,
        not: bool,
        count: AtomicU32,
    },
    Length {
        least: u16,
        most: u16,
        not: bool,
    },
    /// TTL or hop limit: equal, not equal, less, greater.
    Ttl {
        mode: u8,
        ttl: u8,
    },
    /// Bits of the type of service or traffic class.
    Tos {
        mask: u8,
        value: u8,
        not: bool,
    },
    /// What a TCP header asks for.
    Mss {
        least: u16,
        most: u16,
        not: bool,
    },
    /// So many bytes.
    Quota {
        left: AtomicU64,
        not: bool,
    },
}

impl Match {
    pub(super) fn read(
        scope: &Scope<'_>,
        name: &str,
        revision: u32,
        b: Bytes<'_>,
    ) -> Result<Match> {
        Ok(match name {
            "tcp" => {
                let not = inverted(b.byte(11)?, 15)?;
                Match::Tcp {
                    from: Ports::read(b, 0, not & 1)?,
                    to: Ports::read(b, 4, not & 2)?,
                    flags: (b.byte(9)?, b.byte(10)?, not & 4 != 0),
                    option: (b.byte(8)?, not & 8 != 0),
                }
            }
            "udp" => {
                let not = inverted(b.byte(8)?, 3)?;
                Match::Udp {
                    from: Ports::read(b, 0, not & 1)?,
                    to: Ports::read(b, 4, not & 2)?,
                }
            }
            "icmp" | "icmp6" => Match::Icmp {
                protocol: if name == "icmp" { ICMP } else { ICMPV6 },
                kind: b.byte(0)?,
                codes: (b.byte(1)?, b.byte(2)?),
                not: inverted(b.byte(3)?, 1)? != 0,
            },
            "conntrack" => Match::Conntrack(Box::new(Conntrack::read(scope, revision, b)?)),
            "state" => Match::Conntrack(Box::new(Conntrack::of_states(b.u32(0)?))),
            "addrtype" => Match::AddrType(AddrType::read(revision, b)?),
            "comment" => Match::Comment,
            "multiport" => {
                needs_protocol(scope, &[TCP, UDP, UDPLITE, SCTP, DCCP])?;
                read_multiport(b)?
            }
            "owner" => Match::Owner {
                users: (b.u32(0)?, b.u32(4)?),
                groups: (b.u32(8)?, b.u32(12)?),
                what: b.byte(16)?,
                not: b.byte(17)?,
            },
            "mark" | "connmark" => Match::Mark {
                of_flow: name == "connmark",
                mark: b.u32(0)?,
                mask: b.u32(4)?,
                not: b.byte(8)? != 0,
            },
            "limit" => read_limit(b)?,
            "pkttype" => Match::PacketType {
                cast: b.u32(0)?,
                not: b.u32(4)? != 0,
            },
            "iprange" => read_ip_range(b, scope.family.version())?,
            "statistic" => read_statistic(b)?,
            _ => Match::read_field(scope, name, b)?,
        })
    }

    /// Those of one field of a header, or of the length.
    fn read_field(scope: &Scope<'_>, name: &str, b: Bytes<'_>) -> Result<Match> {
        Ok(match name {
            "ttl" | "hl" => Match::Ttl {
                mode: inverted(b.byte(0)?, 3)?,
                ttl: b.byte(1)?,
            },
            "tos" => Match::Tos {
                mask: b.byte(0)?,
                value: b.byte(1)?,
                not: b.byte(2)? != 0,
            },
            "dscp" => {
                let dscp = b.byte(0)?;
                if dscp > 0x3f {
                    return Err(EDOM);
                }
                Match::Tos {
                    mask: 0xfc,
                    value: dscp << 2,
                    not: b.byte(1)? != 0,
                }
            }
            "tcpmss" => {
                needs_protocol(scope, &[TCP])?;
                Match::Mss {
                    least: b.u16(0)?,
                    most: b.u16(2)?,
                    not: b.byte(4)? != 0,
                }
            }
            "quota" => {
                let flags = b.u32(0)?;
                if flags & !1 != 0 {
                    return Err(EINVAL);
                }
                Match::Quota {
                    left: u64::from_ne_bytes(b.array(8)?).into(),
                    not: flags != 0,
                }
            }
            "length" => Match::Length {
                least: b.u16(0)?,
                most: b.u16(2)?,
                not: b.byte(4)? != 0,
            },
            _ => return Err(EINVAL),
        })
    }

    pub(super) fn tracks(&self) -> bool {
        match self {
            Match::Conntrack(_) => true,
            Match::Mark { of_flow, .. } => *of_flow,
            _ => false,
        }
    }

    /// What a transport's header says; the others say yes.
    fn header_matches(&self, p: &Packet<'_>) -> bool {
        match self {
            Match::Tcp {
                from,
                to,
                flags: (mask, want, not),
                option: (option, without),
            } => {
                let (Some((a, b)), Some(flags)) = (p.ports(), p.tcp_flags()) else {
                    return false;
                };
                let has = *option == 0 || has_option(p.body(), *option) != *without;
                from.has(a) && to.has(b) && (flags & mask == *want) != *not && has
            }
            Match::Udp { from, to } => {
                let ports = p.ports().filter(|_| p.protocol == UDP);
                ports.is_some_and(|(a, b)| from.has(a) && to.has(b))
            }
            Match::Icmp {
                protocol,
                kind,
                codes,
                not,
            } => {
                let [k, c, ..] = p.body() else { return false };
                let all = *kind == 0xff && *protocol == ICMP;
                let one = k == kind && (codes.0..=codes.1).contains(c);
                p.protocol == *protocol && (all || one) != *not
            }
            Match::Multiport { ends, ports, not } => {
                let Some((from, to)) = p.ports() else {
                    return false;
                };
                let has = |n: u16| ports.iter().any(|(a, b)| (*a..=*b).contains(&n));
                let found = match ends {
                    0 => has(from),
                    1 => has(to),
                    _ => has(from) || has(to),
                };
                found != *not
            }
            _ => true,
        }
    }

    pub(super) fn matches(&self, r: &mut Run<'_, '_>) -> bool {
        let p = r.packet;
        match self {
            Match::Tcp { .. }
            | Match::Udp { .. }
            | Match::Icmp { .. }
            | Match::Multiport { .. } => self.header_matches(p),
            Match::Conntrack(c) => c.matches(p, &r.meta.track),
            Match::AddrType(a) => a.matches(p),
            Match::Comment => true,
            Match::Owner {
                users,
                groups,
                what,
                not,
            } => is_owned(p, (*users, *groups), *what, *not),
            Match::Mark {
                of_flow,
                mark,
                mask,
                not,
            } => {
                let found = match (of_flow, r.meta.track.flow()) {
                    (false, _) => r.meta.mark,
                    (true, Some(f)) => f.mark(),
                    (true, None) => return false,
                };
                (found & mask == *mark) != *not
            }
            Match::Limit { cost, bucket } => bucket.take(*cost, p.now),
            Match::PacketType { cast, not } => (p.cast as u32 == *cast) != *not,
            Match::IpRange { from, to } => {
                let within = |range: &Option<(IpAddr, IpAddr, bool)>, ip: IpAddr| {
                    range.is_none_or(|(a, b, not)| (a <= ip && ip <= b) != not)
                };
                within(from, p.from) && within(to, p.to)
            }
            Match::Random { chance, not } => (r.flows.random() >> 1 < *chance) != *not,
            Match::Nth {
                every,
                at,
                not,
                count,
            } => {
                let n = count.fetch_add(1, Relaxed);
                (u64::from(n) % (u64::from(*every) + 1) == u64::from(*at)) != *not
            }
            Match::Ttl { mode, ttl } => match mode {
                0 => p.ttl() == *ttl,
                1 => p.ttl() != *ttl,
                2 => p.ttl() < *ttl,
                _ => p.ttl() > *ttl,
            },
            Match::Tos { mask, value, not } => (p.tos() & mask == *value) != *not,
            Match::Mss { least, most, not } => {
                let mss = mss_at(p.body()).and_then(|at| be16(p.body(), at));
                mss.is_some_and(|n| (*least..=*most).contains(&n)) != *not
            }
            Match::Quota { left, not } => {
                // What is too much uses all up.
                let n = p.len as u64;
                let less = |l: u64| Some(l.saturating_sub(n));
                let had = left.fetch_update(Relaxed, Relaxed, less).unwrap_or(0);
                (had >= n) != *not
            }
            Match::Length { least, most, not } => {
                let len = match p.version {
                    Version::V4 => p.len,
                    Version::V6 => p.len.saturating_sub(40),
                };
                (usize::from(*least)..=usize::from(*most)).contains(&len) != *not
            }
        }
    }
}

/// Whether the socket that sends a packet is one of these users' and groups'.
fn is_owned(p: &Packet<'_>, of: ((u32, u32), (u32, u32)), what: u8, not: u8) -> bool {
    let (users, groups) = of;
    let within = |n: u32, (a, b): (u32, u32)| (a..=b).contains(&n);
    let Some((uid, gid)) = p.owner else {
        return (what ^ not) & what == 0;
    };
    let fits = |bit: u8, is: bool| what & bit == 0 || is != (not & bit != 0);
    fits(1, within(uid, users)) && fits(2, within(gid, groups)) && fits(4, true)
}

/// Which parts of a match are inverted; `EINVAL` for parts that it has not.
fn inverted(not: u8, known: u8) -> Result<u8> {
    if not & !known == 0 {
        Ok(not)
    } else {
        Err(EINVAL)
    }
}

fn read_ip_range(b: Bytes<'_>, version: Version) -> Result<Match> {
    let flags = b.byte(64)?;
    let range = |bit: u8, at: usize| -> Result<Option<(IpAddr, IpAddr, bool)>> {
        if flags & bit == 0 {
            return Ok(None);
        }
        let not = flags & bit << 4 != 0;
        Ok(Some((b.ip(at, version)?, b.ip(at + 16, version)?, not)))
    };
    Ok(Match::IpRange {
        from: range(1, 0)?,
        to: range(2, 32)?,
    })
}

/// Whether a TCP header has an option.
fn has_option(body: &[u8], option: u8) -> bool {
    let len = body.get(12).map_or(0, |b| usize::from(b >> 4) * 4);
    let Some(mut b) = body.get(20..len) else {
        return false;
    };
    while let [kind, rest @ ..] = b {
        if *kind == option {
            return true;
        }
        let n = match (kind, rest) {
            (0 | 1, _) => 1,
            (_, [n, ..]) if *n >= 2 => usize::from(*n),
            _ => return false,
        };
        b = b.get(n..).unwrap_or_default();
    }
    false
}

fn read_multiport(b: Bytes<'_>) -> Result<Match> {
    let (ends, count) = (b.byte(0)?, usize::from(b.byte(1)?));
    if ends > 2 || count > 15 {
        return Err(EINVAL);
    }
    let mut ports = Vec::new();
    let mut n = 0;
    while n < count {
        let first = b.u16(2 + 2 * n)?;
        let is_range = b.byte(32 + n)? != 0;
        if is_range && n + 1 >= count {
            return Err(EINVAL);
        }
        n += usize::from(is_range);
        ports.push((first, b.u16(2 + 2 * n)?));
        n += 1;
    }
    Ok(Match::Multiport {
        ends,
        ports,
        not: b.byte(47)? != 0,
    })
}

/// `xt_rateinfo`: ten thousandths of a second between packets.
fn read_limit(b: Bytes<'_>) -> Result<Match> {
    const UNIT: u64 = 100_000;
    let (every, burst) = (b.u32(0)?, b.u32(4)?);
    if burst == 0 || every.wrapping_mul(burst) < every {
        return Err(ERANGE);
    }
    let cost = u64::from(every) * UNIT;
    let most = cost.checked_mul(burst.into()).ok_or(ERANGE)?;
    Ok(Match::Limit {
        cost,
        bucket: Bucket::new(most, 0),
    })
}

fn read_statistic(b: Bytes<'_>) -> Result<Match> {
    let (mode, flags) = (b.u16(0)?, b.u16(2)?);
    let not = flags & 1 != 0;
    if flags & !1 != 0 {
        return Err(EINVAL);
    }
    Ok(match mode {
        0 => Match::Random {
            chance: b.u32(4)?,
            not,
        },
        1 => {
            let (every, at) = (b.u32(4)?, b.u32(8)?);
            Match::Nth {
                every,
                at: every.saturating_sub(at),
                not,
                count: AtomicU32::new(0),
            }
        }
        _ => return Err(EINVAL),
    })
}

/// `xt_conntrack_mtinfo*`.
pub struct Conntrack {
    what: u16,
    not: u16,
    states: u16,
    statuses: u16,
    protocol: u16,
    /// Address and mask of the original's source and destination, the reply's source and
    /// destination.
    ends: [Option<(IpAddr, IpAddr)>; 4],
    /// The first and the last port of each.
    ports: [(u16, u16); 4],
    /// Seconds that are left.
    expires: (u32, u32),
}

const STATE: u16 = 1;
const PROTOCOL: u16 = 2;
const STATUS: u16 = 0x40;
const EXPIRES: u16 = 0x80;
const DIRECTION: u16 = 0x1000;

impl Conntrack {
    fn of_states(states: u32) -> Conntrack {
        Conntrack {
            what: STATE,
            not: 0,
            states: states as u16,
            statuses: 0,
            protocol: 0,
            ends: [None; 4],
            ports: [(0, 0); 4],
            expires: (0, 0),
        }
    }

    fn read(scope: &Scope<'_>, revision: u32, b: Bytes<'_>) -> Result<Conntrack> {
        let version = scope.family.version();
        let (what, not) = (b.u16(146)?, b.u16(148)?);
        let (states, statuses) = match revision {
            1 => (u16::from(b.byte(150)?), u16::from(b.byte(151)?)),
            _ => (b.u16(150)?, b.u16(152)?),
        };
        let mut ends = [None; 4];
        let mut ports = [(0, 0); 4];
        for n in 0..4 {
            if what & 4 << n != 0 {
                ends[n] = Some((b.ip(n * 32, version)?, b.ip(n * 32 + 16, version)?));
            }
            // (Of the third revision they are of the machine's order, and have an end.)
            ports[n] = if revision == 3 {
                (b.u16(138 + 2 * n)?, b.u16(154 + 2 * n)?)
            } else {
                let port = b.be16(138 + 2 * n)?;
                (port, port)
            };
        }
        Ok(Conntrack {
            what,
            not,
            states,
            statuses,
            protocol: b.u16(136)?,
            ends,
            ports,
            expires: (b.u32(128)?, b.u32(132)?),
        })
    }

    /// Its states as these matches number them.
    fn bits(track: &Track) -> u16 {
        let bits = match track.bits() {
            64 => 256,
            n => n as u16,
        };
        let status = track.flow().map_or(0, |f| f.status());
        let translated = |bit: u32, to: u16| if status & bit != 0 { to } else { 0 };
        bits | translated(SRC_NAT, 64) | translated(DST_NAT, 128)
    }

    fn matches(&self, p: &Packet<'_>, track: &Track) -> bool {
        let fits = |bit: u16, is: bool| self.what & bit == 0 || is != (self.not & bit != 0);
        if !fits(STATE, Self::bits(track) & self.states != 0) {
            return false;
        }
        let Some(f) = track.flow() else {
            return self.what & !(STATE | 0x2000) == 0;
        };
        let is_original = track.direction() == Direction::Original;
        let (original, reply) = (f.original, f.tuple(Direction::Reply));
        let all = [original.from, original.to, reply.from, reply.to];
        let mut ok = fits(DIRECTION, is_original)
            && fits(PROTOCOL, u16::from(original.protocol) == self.protocol)
            && fits(STATUS, f.status() & u32::from(self.statuses) != 0);
        let left = f.left(p.now) / 1000;
        ok = ok && fits(EXPIRES, (self.expires.0..=self.expires.1).contains(&left));
        for (n, (ip, port)) in all.iter().enumerate() {
            let is = self.ends[n].is_none_or(|(want, mask)| is_masked(*ip, want, mask));
            let (first, last) = self.ports[n];
            ok = ok && fits(4 << n, is) && fits(0x100 << n, (first..=last).contains(port));
        }
        ok
    }
}

fn is_masked(ip: IpAddr, want: IpAddr, mask: IpAddr) -> bool {
    match (ip, want, mask) {
        (IpAddr::V4(a), IpAddr::V4(b), IpAddr::V4(m)) => {
            (a.to_bits() ^ b.to_bits()) & m.to_bits() == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b), IpAddr::V6(m)) => {
            (a.to_bits() ^ b.to_bits()) & m.to_bits() == 0
        }
        _ => false,
    }
}

/// `xt_addrtype_info*`: what addresses are here.
pub struct AddrType {
    from: u16,
    to: u16,
    not: (bool, bool),
    /// On the device by which a packet came, or leaves.
    on: (bool, bool),
}

impl AddrType {
    fn read(revision: u32, b: Bytes<'_>) -> Result<AddrType> {
        let (from, to) = (b.u16(0)?, b.u16(2)?);
        if revision == 0 {
            return Ok(AddrType {
                from,
                to,
                not: (b.u32(4)? != 0, b.u32(8)? != 0),
                on: (false, false),
            });
        }
        let flags = b.u32(4)?;
        if flags & 12 == 12 {
            return Err(EINVAL);
        }
        Ok(AddrType {
            from,
            to,
            not: (flags & 1 != 0, flags & 2 != 0),
            on: (flags & 4 != 0, flags & 8 != 0),
        })
    }

    fn matches(&self, p: &Packet<'_>) -> bool {
        let device = match self.on {
            (true, _) => p.input,
            (_, true) => p.output,
            _ => None,
        };
        let kind = |ip: IpAddr| {
            let kind = p.host.kind_of(ip);
            match (kind, device) {
                // An address of another device's is not one of this.
                (2, Some(d)) if p.host.address_on(d.index, ip) != Some(ip) => 1,
                (kind, _) => kind,
            }
        };
        let fits =
            |mask: u16, ip: IpAddr, not: bool| mask == 0 || (mask >> kind(ip) & 1 == 1) != not;
        fits(self.from, p.from, self.not.0) && fits(self.to, p.to, self.not.1)
    }
}
