//! Which names an address was given for.
//!
//! An answer holds as long as it says, but at least [`LEAST`]: programs connect some time after they asked, and to
//! each address in turn. The table is bounded; what runs out first goes first.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Seconds that an answer holds at least.
pub const LEAST: u64 = 60;
/// Seconds that it holds at most.
pub const MOST: u64 = 24 * 3600;
/// The most pairs of an address and a name.
const PAIRS: usize = 16 << 10;

/// See the module.
#[derive(Default)]
pub struct Pins {
    /// By address: names, and until when.
    names: HashMap<IpAddr, Vec<(String, u64)>>,
    /// By when they run out.
    ends: BTreeSet<(u64, IpAddr, String)>,
}

impl Pins {
    /// An answer gave this address for this name, for `ttl` seconds from `now`.
    pub fn pin(&mut self, ip: IpAddr, name: &str, ttl: u64, now: u64) {
        self.forget(now);
        let until = now + ttl.clamp(LEAST, MOST);
        let list = self.names.entry(ip).or_default();
        match list.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) if *old >= until => return,
            Some((_, old)) => {
                self.ends.remove(&(*old, ip, name.to_owned()));
                *old = until;
            }
            None => list.push((name.to_owned(), until)),
        }
        self.ends.insert((until, ip, name.to_owned()));
        while self.ends.len() > PAIRS {
            self.drop_first();
        }
    }

    /// The names that an address has now.
    pub fn of(&mut self, ip: IpAddr, now: u64) -> Vec<&str> {
        self.forget(now);
        let list = self.names.get(&ip).map_or(&[][..], Vec::as_slice);
        list.iter().map(|(n, _)| n.as_str()).collect()
    }

    fn forget(&mut self, now: u64) {
        while self.ends.first().is_some_and(|(until, ..)| *until <= now) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some((_, ip, name)) = self.ends.pop_first() else {
            return;
        };
        if let Some(list) = self.names.get_mut(&ip) {
            list.retain(|(n, _)| *n != name);
            if list.is_empty() {
                self.names.remove(&ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_long_as_it_says() {
        let mut p = Pins::default();
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        p.pin(ip, "a.org", 300, 1000);
        p.pin(ip, "b.org", 0, 1000);
        assert_eq!(p.of(ip, 1000), ["a.org", "b.org"]);
        assert_eq!(p.of(ip, 1000 + LEAST), ["a.org"]);
        // A shorter answer does not shorten the one before.
        p.pin(ip, "a.org", 1, 1100);
        assert_eq!(p.of(ip, 1299), ["a.org"]);
        assert_eq!(p.of(ip, 1300), [""; 0]);
        assert!(p.names.is_empty() && p.ends.is_empty());
    }

    #[test]
    fn bounded() {
        let mut p = Pins::default();
        for n in 0..2 * PAIRS as u32 {
            p.pin(IpAddr::V4(n.into()), "a.org", u64::from(n % 1000), 0);
        }
        assert_eq!(p.ends.len(), PAIRS);
        assert_eq!(p.names.values().map(Vec::len).sum::<usize>(), PAIRS);
    }
}
