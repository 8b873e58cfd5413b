//! A packet with other ends: addresses and ports, and what sums them up (RFC 1624).

use crate::nat::{Quoted, Rewrite};
use crate::packet::{DCCP, ICMP, ICMPV6, TCP, UDP, UDPLITE, be16, has_ports, parse};
use std::net::IpAddr;

/// What the checksum of a packet's transport is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// Finished.
    Whole,
    /// Of the pseudo header only: the device finishes it (NEEDS_CSUM).
    Partial,
}

/// Adds words as in a checksum.
#[derive(Clone, Copy, Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, b: &[u8]) {
        for w in b.chunks(2) {
            self.0 += u64::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)]));
        }
    }

    fn folded(self) -> u16 {
        let mut n = self.0;
        while n >> 16 != 0 {
            n = (n & 0xffff) + (n >> 16);
        }
        n as u16
    }
}

/// What was replaced by what.
#[derive(Clone, Copy, Default)]
struct Change {
    old: Sum,
    new: Sum,
}

impl Change {
    /// A checksum as it is after the change.
    fn of_whole(&self, sum: u16) -> u16 {
        // HC' = ~(~HC + ~m + m')
        let mut n = Sum(u64::from(!sum));
        n.0 += u64::from(!self.old.folded()) + u64::from(self.new.folded());
        !n.folded()
    }

    /// The same of one that is not inverted yet.
    fn of_partial(&self, sum: u16) -> u16 {
        let mut n = Sum(u64::from(sum));
        n.0 += u64::from(!self.old.folded()) + u64::from(self.new.folded());
        n.folded()
    }
}

fn put(b: &mut [u8], at: usize, v: &[u8], change: &mut Change) {
    if let Some(place) = b.get_mut(at..at + v.len()) {
        change.old.add(place);
        change.new.add(v);
        place.copy_from_slice(v);
    }
}

fn put16(b: &mut [u8], at: usize, v: u16) {
    if let Some(place) = b.get_mut(at..at + 2) {
        place.copy_from_slice(&v.to_be_bytes());
    }
}

/// Writes other addresses into an IP header, whose own checksum stays right.
fn addresses(b: &mut [u8], from: IpAddr, to: IpAddr) -> Option<Change> {
    let mut change = Change::default();
    match (b.first()? >> 4, from, to) {
        (4, IpAddr::V4(from), IpAddr::V4(to)) => {
            put(b, 12, &from.octets(), &mut change);
            put(b, 16, &to.octets(), &mut change);
            let sum = change.of_whole(be16(b, 10)?);
            put16(b, 10, sum);
        }
        (6, IpAddr::V6(from), IpAddr::V6(to)) => {
            put(b, 8, &from.octets(), &mut change);
            put(b, 24, &to.octets(), &mut change);
        }
        _ => return None,
    }
    Some(change)
}

/// Writes other ports at the beginning of a transport's header.
fn ports(body: &mut [u8], (from, to): (u16, u16), change: &mut Change) {
    put(body, 0, &from.to_be_bytes(), change);
    put(body, 2, &to.to_be_bytes(), change);
}

/// Where a transport has its checksum.
fn sum_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP | UDPLITE | DCCP => Some(6),
        ICMP | ICMPV6 => Some(2),
        _ => None,
    }
}

/// Writes a packet anew, which begins with its IP header and has all of its headers at least; of an
/// error about another one it is whole. What is cut stays as it is where it is cut.
pub fn apply(b: &mut [u8], r: &Rewrite, sum: Checksum) -> Option<()> {
    let (_, _, protocol, transport) = parse(b)?;
    let mut change = addresses(b, r.from.0, r.to.0)?;
    // Fragments that are not the first have no ports.
    let at = transport?;
    let body = b.get_mut(at..)?;
    let pseudo = change;
    match (&r.quoted, protocol) {
        (Some(q), _) => quoted(body.get_mut(8..)?, q, &mut change)?,
        (None, ICMP | ICMPV6) => put(body, 4, &r.from.1.to_be_bytes(), &mut change),
        (None, n) if has_ports(n) => ports(body, (r.from.1, r.to.1), &mut change),
        _ => {}
    }
    if let (Some(mss), TCP) = (r.mss, protocol) {
        set_mss(body, mss, &mut change);
    }
    let Some(place) = sum_at(protocol) else {
        return Some(());
    };
    let Some(old) = be16(body, place) else {
        return Some(());
    };
    let new = match (protocol, sum) {
        // It has none.
        (UDP, Checksum::Whole) if old == 0 => 0,
        // ICMP's first has no pseudo header.
        (ICMP, _) => Change {
            old: Sum(change.old.0 - pseudo.old.0),
            new: Sum(change.new.0 - pseudo.new.0),
        }
        .of_whole(old),
        (_, Checksum::Partial) => pseudo.of_partial(old),
        (UDP, Checksum::Whole) => match change.of_whole(old) {
            0 => 0xffff,
            n => n,
        },
        (_, Checksum::Whole) => change.of_whole(old),
    };
    put16(body, place, new);
    Some(())
}

/// The place of the largest segment that a TCP header asks for.
#[must_use]
pub fn mss_at(body: &[u8]) -> Option<usize> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const MSS: u8 = 2;
    let header = usize::from(body.get(12)? >> 4) * 4;
    let options = body.get(..header)?;
    let mut at = 20;
    loop {
        match *options.get(at)? {
            END => return None,
            NOTHING => at += 1,
            MSS if options.get(at + 1) == Some(&4) && at + 4 <= header => return Some(at + 2),
            _ => at += usize::from(*options.get(at + 1)?).max(2),
        }
    }
}

/// Writes a smaller one. What is summed up are words, which it may lie across.
fn set_mss(body: &mut [u8], mss: u16, change: &mut Change) {
    let Some(at) = mss_at(body) else { return };
    if be16(body, at).is_none_or(|old| old <= mss) {
        return;
    }
    let first = at & !1;
    let Some(words) = body.get(first..(at + 3) & !1) else {
        return;
    };
    let mut new = words.to_vec();
    new[at - first..at - first + 2].copy_from_slice(&mss.to_be_bytes());
    put(body, first, &new, change);
}

/// The packet that an error is about. All that changes in it is told to `outer`.
fn quoted(b: &mut [u8], q: &Quoted, outer: &mut Change) -> Option<()> {
    let (_, _, protocol, transport) = parse(b)?;
    let before = b.to_vec();
    let mut change = addresses(b, q.from.0, q.to.0)?;
    if let Some(body) = transport.and_then(|at| b.get_mut(at..)) {
        match protocol {
            n if has_ports(n) => ports(body, (q.from.1, q.to.1), &mut change),
            ICMP | ICMPV6 => {
                // An echo's number.
                let pseudo = change;
                put(body, 4, &q.from.1.to_be_bytes(), &mut change);
                if protocol == ICMP {
                    change.old.0 -= pseudo.old.0;
                    change.new.0 -= pseudo.new.0;
                }
            }
            _ => {}
        }
        if let Some(place) = sum_at(protocol)
            && let Some(old) = be16(body, place)
            && (protocol != UDP || old != 0)
        {
            put16(body, place, change.of_whole(old));
        }
    }
    outer.old.add(&before);
    outer.new.add(b);
    Some(())
}
