//! The path MTUs that have been learnt (RFC 1191, RFC 8201).

use super::icmp::{LEAST_V4, LEAST_V6};
use super::keyed::Keyed;
use crate::time::Instant;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Linux's `mtu_expires`.
const KEPT: Duration = Duration::from_secs(600);
const MOST: usize = 1024;

pub(super) struct PathMtus {
    learnt: HashMap<IpAddr, Learnt, Keyed>,
}

/// What is known of the path to one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Learnt {
    pub mtu: u32,
    pub expires: Instant,
}

impl PathMtus {
    pub(super) fn new(key: Keyed) -> PathMtus {
        PathMtus {
            learnt: HashMap::with_hasher(key),
        }
    }

    /// Keeps an MTU; the one that expires next gives way to it where there are too many. Tells
    /// whether something has changed.
    pub(super) fn learn(&mut self, now: Instant, to: IpAddr, mtu: u32) -> bool {
        let least = if to.is_ipv4() { LEAST_V4 } else { LEAST_V6 };
        let mtu = mtu.max(least);
        let known = self.get(now, to);
        if known.is_some_and(|k| k.mtu < mtu) {
            // A larger one is found by trying when the time has come.
            return false;
        }
        if !self.learnt.contains_key(&to) && self.learnt.len() >= MOST {
            let next = self.learnt.iter().min_by_key(|(_, l)| l.expires);
            if let Some(next) = next.map(|(to, _)| *to) {
                self.learnt.remove(&next);
            }
        }
        let expires = now + KEPT;
        self.learnt.insert(to, Learnt { mtu, expires });
        known.is_none_or(|k| k.mtu != mtu)
    }

    pub(super) fn get(&self, now: Instant, to: IpAddr) -> Option<Learnt> {
        let learnt = self.learnt.get(&to)?;
        (now < learnt.expires).then_some(*learnt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(s: u64) -> Instant {
        Instant(0) + Duration::from_secs(s)
    }

    #[test]
    fn it_shrinks_and_is_forgotten() {
        let mut p = PathMtus::new(Keyed::new([0; 16], 0));
        let to = IpAddr::from([10, 0, 0, 1]);
        assert!(p.learn(after(0), to, 1400));
        assert!(!p.learn(after(1), to, 1450), "larger");
        assert!(p.learn(after(2), to, 68), "as small as nobody may say");
        assert_eq!(p.get(after(3), to).map(|l| l.mtu), Some(LEAST_V4));
        assert_eq!(p.get(after(602), to), None);
    }

    #[test]
    fn it_is_bounded() {
        let mut p = PathMtus::new(Keyed::new([0; 16], 0));
        for n in 0..5000_u32 {
            p.learn(after(u64::from(n)), IpAddr::from(n.to_be_bytes()), 1000);
        }
        assert_eq!(p.learnt.len(), MOST);
    }
}
