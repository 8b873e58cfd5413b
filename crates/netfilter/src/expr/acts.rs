//! What rules do beside comparing: count, limit, refuse, translate.

use super::{NAME, Reg, Run, Scope, Step, Verdict};
use crate::attr::{Bag, Out};
use crate::log::Logged;
use crate::nat::{Manip, NatRange};
use crate::packet::{Hook, Version};
use crate::table::Family;
use crate::xt;
use abi::Result;
use abi::errno::{EAFNOSUPPORT, EINVAL, EOPNOTSUPP, EOVERFLOW};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many bytes.
pub struct Quota {
    bytes: u64,
    flags: u32,
    used: AtomicU64,
}

impl Quota {
    pub fn read(b: &Bag<'_>) -> Result<Quota> {
        let flags = b.be32(2)?.unwrap_or(0);
        if flags & !1 != 0 {
            return Err(EINVAL);
        }
        Ok(Quota {
            bytes: b.be64(1)?.ok_or(EINVAL)?,
            flags,
            used: b.be64(4)?.unwrap_or(0).into(),
        })
    }

    pub fn write(&self, o: &mut Out) {
        o.be64(1, self.bytes);
        o.be32(2, self.flags);
        o.be64(4, self.used.load(Relaxed).min(self.bytes));
    }

    pub fn run(&self, r: &Run<'_, '_>) -> Step {
        let n = r.packet.len as u64;
        let over = self.used.fetch_add(n, Relaxed) + n > self.bytes;
        Step::of(over == (self.flags & 1 != 0))
    }

    pub fn reset(&self) {
        self.used.store(0, Relaxed);
    }
}

/// So many packets or bytes in a time: a bucket of nanoseconds, as Linux's.
pub struct Limit {
    rate: u64,
    unit: u64,
    burst: u32,
    kind: u32,
    flags: u32,
    bucket: Bucket,
}

/// Tokens that come with the time.
pub struct Bucket {
    most: u64,
    /// What it holds, and since when.
    state: Mutex<(u64, u64)>,
}

impl Bucket {
    pub fn new(most: u64, now: u64) -> Bucket {
        Bucket {
            most,
            state: Mutex::new((most, now)),
        }
    }

    pub fn take(&self, cost: u64, now: u64) -> bool {
        let mut s = self.state.lock();
        let (tokens, last) = *s;
        let tokens = tokens
            .saturating_add(now.saturating_sub(last))
            .min(self.most);
        let left = tokens.checked_sub(cost);
        *s = (left.unwrap_or(tokens), now.max(last));
        left.is_some()
    }
}

impl Limit {
    pub fn read(b: &Bag<'_>) -> Result<Limit> {
        const SECOND: u64 = 1_000_000_000;
        let rate = b.be64(1)?.ok_or(EINVAL)?;
        let unit = b.be64(2)?.ok_or(EINVAL)?;
        let kind = b.be32(4)?.unwrap_or(0);
        let flags = b.be32(5)?.unwrap_or(0);
        let mut burst = b.be32(3)?.unwrap_or(0);
        if rate == 0 || kind > 1 || flags & !1 != 0 {
            return Err(EINVAL);
        }
        let time = unit.checked_mul(SECOND).ok_or(EOVERFLOW)?;
        let most = if kind == 0 {
            if burst == 0 {
                burst = 5;
            }
            (time / rate).checked_mul(u64::from(burst))
        } else {
            let all = rate.checked_add(u64::from(burst)).ok_or(EOVERFLOW)?;
            u64::try_from(u128::from(time) * u128::from(all) / u128::from(rate)).ok()
        };
        Ok(Limit {
            rate,
            unit,
            burst,
            kind,
            flags,
            bucket: Bucket::new(most.ok_or(EOVERFLOW)?, 0),
        })
    }

    pub fn write(&self, o: &mut Out) {
        o.be64(1, self.rate);
        o.be64(2, self.unit);
        o.be32(3, self.burst);
        o.be32(4, self.kind);
        o.be32(5, self.flags);
    }

    pub fn run(&self, r: &Run<'_, '_>) -> Step {
        let time = u128::from(self.unit) * 1_000_000_000;
        let many = if self.kind == 0 {
            1
        } else {
            r.packet.len as u128
        };
        let cost = time * many / u128::from(self.rate);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        Step::of(self.bucket.take(cost, r.packet.now) == (self.flags & 1 == 0))
    }
}

/// What is to be logged: nobody reads it here.
pub struct Log {
    pub prefix: Box<[u8]>,
    group: Option<u16>,
    snap: Option<u32>,
    threshold: Option<u16>,
    level: Option<u32>,
    flags: Option<u32>,
}

impl Log {
    /// Tells of a packet, if it is to a group.
    pub fn run(&self, r: &Run<'_, '_>) {
        let Some(group) = self.group else { return };
        let prefix = self.prefix.strip_suffix(b"\0").unwrap_or(&self.prefix);
        r.log(&Logged {
            group,
            prefix,
            snap: self.snap.filter(|n| *n > 0),
        });
    }

    pub fn read(b: &Bag<'_>) -> Result<Log> {
        b.text(2, 128)?;
        let level = b.be32(5)?;
        let group = b.be16(1)?;
        if level.is_some() && group.is_some() {
            return Err(EINVAL);
        }
        if level.is_some_and(|l| l > 8) {
            return Err(EINVAL);
        }
        Ok(Log {
            prefix: b.get(2).unwrap_or_default().into(),
            group,
            snap: b.be32(3)?,
            threshold: b.be16(4)?,
            level,
            flags: b.be32(6)?,
        })
    }

    pub fn write(&self, o: &mut Out) {
        if !self.prefix.is_empty() {
            o.put(2, &self.prefix);
        }
        match self.group {
            Some(g) => {
                o.put(1, &g.to_be_bytes());
                if let Some(n) = self.snap.filter(|n| *n > 0) {
                    o.be32(3, n);
                }
                if let Some(n) = self.threshold.filter(|n| *n > 0) {
                    o.put(4, &n.to_be_bytes());
                }
            }
            None => {
                o.be32(5, self.level.unwrap_or(4));
                if let Some(n) = self.flags.filter(|n| *n > 0) {
                    o.be32(6, n);
                }
            }
        }
    }
}

pub(super) fn read_reject(scope: &Scope<'_>, b: &Bag<'_>) -> Result<super::Expr> {
    let kind = b.need32(1)?;
    let code = match kind {
        0 | 2 => b.byte(2)?.ok_or(EINVAL)?,
        1 => 0,
        _ => return Err(EINVAL),
    };
    if kind == 2 && (code > 3 || scope.family != Family::Inet) {
        return Err(EINVAL);
    }
    Ok(super::Expr::Reject(kind, code))
}

/// Which translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatKind {
    Nat,
    Masquerade,
    Redirect,
}

impl NatKind {
    /// The attributes of the first address (0: there is none), the first port, and the flags.
    fn attributes(self) -> (u16, u16, u16) {
        match self {
            NatKind::Nat => (3, 5, 7),
            NatKind::Masquerade => (0, 2, 1),
            NatKind::Redirect => (0, 1, 3),
        }
    }
}

/// Translation of addresses.
pub struct Nat {
    kind: NatKind,
    manip: Manip,
    family: u32,
    /// Registers of the addresses, and of the ports: the first and the last.
    ips: [Option<Reg>; 2],
    ports: [Option<Reg>; 2],
    flags: Option<u32>,
}

impl Nat {
    pub fn read(scope: &Scope<'_>, kind: NatKind, b: &Bag<'_>) -> Result<Nat> {
        let (manip, family) = match kind {
            NatKind::Nat => {
                let manip = match b.need32(1)? {
                    0 => Manip::Source,
                    1 => Manip::Destination,
                    _ => return Err(EINVAL),
                };
                (manip, b.need32(2)?)
            }
            NatKind::Masquerade => (Manip::Source, 0),
            NatKind::Redirect => (Manip::Destination, 0),
        };
        let len = match (kind, family) {
            (NatKind::Nat, 2) => 4,
            (NatKind::Nat, 10) => 16,
            (NatKind::Nat, _) => return Err(EAFNOSUPPORT),
            _ => 0,
        };
        if let (NatKind::Nat, true) = (kind, scope.family != Family::Inet)
            && family != scope.family as u32
        {
            return Err(EOPNOTSUPP);
        }
        let (ip, port, flags) = kind.attributes();
        let pair = |first: u16, len: usize| -> Result<[Option<Reg>; 2]> {
            if first == 0 {
                return Ok([None, None]);
            }
            let one = Reg::maybe(b, first, len)?;
            Ok([one, Reg::maybe(b, first + 1, len)?.or(one)])
        };
        let flags = b.be32(flags)?;
        // (NETMAP maps prefixes; the others are about how ports are chosen.)
        if flags.unwrap_or(0) & !0x1f != 0 {
            return Err(EOPNOTSUPP);
        }
        Ok(Nat {
            kind,
            manip,
            family,
            ips: pair(ip, len)?,
            ports: pair(port, 2)?,
            flags,
        })
    }

    /// Where it may be, in chains of the type nat.
    pub(crate) fn hooks(&self) -> &'static [Hook] {
        match (self.manip, self.kind) {
            (Manip::Source, NatKind::Masquerade) => &[Hook::Postrouting],
            (Manip::Source, _) => &[Hook::Postrouting, Hook::Input],
            (Manip::Destination, _) => &[Hook::Prerouting, Hook::Output],
        }
    }

    pub fn name(&self) -> &'static str {
        match self.kind {
            NatKind::Nat => "nat",
            NatKind::Masquerade => "masq",
            NatKind::Redirect => "redir",
        }
    }

    pub fn write(&self, o: &mut Out) {
        if self.kind == NatKind::Nat {
            o.be32(1, self.manip as u32);
            o.be32(2, self.family);
        }
        let (ip, port, flags) = self.kind.attributes();
        for (n, r) in self.ips.iter().enumerate() {
            Reg::write_maybe(*r, o, ip + n as u16);
        }
        for (n, r) in self.ports.iter().enumerate() {
            Reg::write_maybe(*r, o, port + n as u16);
        }
        if let Some(f) = self.flags.filter(|f| *f != 0) {
            o.be32(flags, f);
        }
    }

    pub fn run(&self, r: &mut Run<'_, '_>) -> Step {
        let port = |reg: Option<Reg>| {
            let b = reg.and_then(|p| r.load(p, 2).first_chunk().copied());
            b.map(u16::from_be_bytes)
        };
        let ip = |reg: Option<Reg>| -> Option<IpAddr> {
            let reg = reg?;
            if self.family == 2 {
                let b: [u8; 4] = *r.load(reg, 4).first_chunk()?;
                Some(b.into())
            } else {
                let b: [u8; 16] = *r.load(reg, 16).first_chunk()?;
                Some(b.into())
            }
        };
        let ports = port(self.ports[0]).zip(port(self.ports[1]));
        let wanted = match self.kind {
            NatKind::Nat if (self.family == 2) != (r.packet.version == Version::V4) => {
                return Step::Break;
            }
            NatKind::Nat => NatRange {
                ips: ip(self.ips[0]).zip(ip(self.ips[1])),
                ports,
            },
            NatKind::Masquerade => NatRange::masquerade(r.packet, ports),
            NatKind::Redirect => NatRange::redirect(r.packet, ports),
        };
        translate(r, self.manip, &wanted)
    }
}

/// Translates a connection, whose packets all go so from now on.
pub fn translate(r: &mut Run<'_, '_>, manip: Manip, wanted: &NatRange) -> Step {
    if wanted.is_impossible() {
        return Step::Verdict(Verdict::Drop);
    }
    let done = r.flows.translate(&r.meta.track, manip, wanted);
    Step::Verdict(if done { Verdict::Accept } else { Verdict::Drop })
}

/// A match or a target of iptables.
pub struct Xt {
    name: String,
    revision: u32,
    info: Box<[u8]>,
    what: xt::What,
}

impl Xt {
    pub fn read(scope: &Scope<'_>, b: &Bag<'_>, role: xt::Role) -> Result<Xt> {
        let name = b.need_text(1, NAME)?;
        let revision = b.need32(2)?;
        let info = b.need(3)?;
        let what = xt::read(scope, name, revision, info, role)?;
        Ok(Xt {
            name: name.into(),
            revision,
            info: info.into(),
            what,
        })
    }

    /// One that is not told by attributes.
    #[must_use]
    pub(crate) fn untold(what: xt::What) -> Xt {
        Xt {
            name: String::new(),
            revision: 0,
            info: Box::default(),
            what,
        }
    }

    pub fn write(&self, o: &mut Out) {
        o.text(1, &self.name);
        o.be32(2, self.revision);
        o.put(3, &self.info);
    }

    pub fn matches(&self, r: &mut Run<'_, '_>) -> bool {
        xt::matches(&self.what, r)
    }

    pub fn act(&self, r: &mut Run<'_, '_>) -> Step {
        xt::act(&self.what, r)
    }

    pub fn tracks(&self) -> bool {
        self.what.tracks()
    }

    pub(crate) fn places(&self) -> crate::validate::Places {
        self.what.places()
    }

    pub fn bytes(&self) -> usize {
        128 + self.name.len() + self.info.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Bucket;

    #[test]
    fn a_bucket_fills_with_time() {
        let b = Bucket::new(10, 0);
        assert!(b.take(10, 0) && !b.take(1, 0));
        assert!(b.take(5, 5) && !b.take(1, 5));
        assert!(b.take(10, 1000) && !b.take(1, 1000));
    }
}
