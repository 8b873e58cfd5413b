//! Which names an address was given for.
//!
//! An answer holds as long as it says, but at least [`LEAST`]: programs connect some time after
//! they asked, and to each address in turn. All is bounded, so that no name and no address can
//! take what others have: a name has at most [`ADDRESSES`], an address the last [`NAMES`]; of all
//! pairs the one that was given first goes first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// Seconds that an answer holds at least.
pub const LEAST: u64 = 60;
/// Seconds that it holds at most.
pub const MOST: u64 = 3600;
/// The most pairs of an address and a name.
const PAIRS: usize = 16 << 10;
/// The most addresses of a name at a time.
const ADDRESSES: usize = 256;
/// The most names of an address.
const NAMES: usize = 32;

/// See the module.
#[derive(Default)]
pub struct Pins {
    /// By address: what it was given for, the oldest first.
    names: HashMap<IpAddr, Vec<Pin>>,
    /// All pairs, by when they run out, and in the order in which they were given.
    ends: BTreeSet<(u64, u64)>,
    order: BTreeMap<u64, (IpAddr, String)>,
    /// How many addresses each name has.
    addresses: HashMap<String, usize>,
    serial: u64,
}

struct Pin {
    name: String,
    until: u64,
    serial: u64,
}

impl Pins {
    /// An answer gives this address for this name, for `ttl` seconds from `now`. Whether it is
    /// kept: a name that has many already gets no more.
    pub fn pin(&mut self, ip: IpAddr, name: &str, ttl: u64, now: u64) -> bool {
        self.forget(now);
        let until = now + ttl.clamp(LEAST, MOST);
        let list = self.names.get(&ip).map_or(&[][..], Vec::as_slice);
        let old = list.iter().find(|p| p.name == name);
        let old = old.map(|p| (p.serial, p.until));
        let until = old.map_or(until, |(_, before)| until.max(before));
        match old {
            Some((serial, _)) => self.remove(serial),
            None if self.addresses.get(name).is_some_and(|n| *n >= ADDRESSES) => return false,
            None if list.len() >= NAMES => self.remove(list[0].serial),
            None => {}
        }
        if self.order.len() >= PAIRS
            && let Some((first, _)) = self.order.first_key_value()
        {
            self.remove(*first);
        }
        self.serial += 1;
        let serial = self.serial;
        let name = name.to_owned();
        *self.addresses.entry(name.clone()).or_default() += 1;
        self.ends.insert((until, serial));
        self.order.insert(serial, (ip, name.clone()));
        let pin = Pin {
            name,
            until,
            serial,
        };
        self.names.entry(ip).or_default().push(pin);
        true
    }

    /// The names that an address has now.
    pub fn of(&mut self, ip: IpAddr, now: u64) -> Vec<&str> {
        self.forget(now);
        let list = self.names.get(&ip).map_or(&[][..], Vec::as_slice);
        list.iter().map(|p| p.name.as_str()).collect()
    }

    fn forget(&mut self, now: u64) {
        while let Some((until, serial)) = self.ends.first().copied()
            && until <= now
        {
            self.remove(serial);
        }
    }

    fn remove(&mut self, serial: u64) {
        let Some((ip, name)) = self.order.remove(&serial) else {
            return;
        };
        if let Some(list) = self.names.get_mut(&ip)
            && let Some(at) = list.iter().position(|p| p.serial == serial)
        {
            self.ends.remove(&(list.remove(at).until, serial));
            if list.is_empty() {
                self.names.remove(&ip);
            }
        }
        if let Some(n) = self.addresses.get_mut(&name) {
            *n -= 1;
            if *n == 0 {
                self.addresses.remove(&name);
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
        assert!(p.pin(ip, "a.org", 300, 1000) && p.pin(ip, "b.org", 0, 1000));
        assert_eq!(p.of(ip, 1000), ["a.org", "b.org"]);
        assert_eq!(p.of(ip, 1000 + LEAST), ["a.org"]);
        // A shorter answer does not shorten the one before.
        p.pin(ip, "a.org", 1, 1100);
        assert_eq!(p.of(ip, 1299), ["a.org"]);
        assert_eq!(p.of(ip, 1300), [""; 0]);
        assert!(p.names.is_empty() && p.ends.is_empty());
        assert!(p.order.is_empty() && p.addresses.is_empty());
    }

    #[test]
    fn nobody_takes_the_others_room() {
        let mut p = Pins::default();
        let good: IpAddr = "192.0.2.1".parse().unwrap();
        let address = |n: u32| IpAddr::V4((0x0a00_0000 + n).into());
        p.pin(good, "good.org", 100, 0);
        // One name with many addresses; one address with many names.
        let kept = (0..1000)
            .filter(|n| p.pin(address(*n), "evil.org", MOST, 0))
            .count();
        assert_eq!(kept, ADDRESSES);
        for n in 0..1000 {
            p.pin(address(0), &format!("{n}.evil.org"), MOST, 0);
        }
        assert_eq!(p.of(address(0), 0).len(), NAMES);
        assert_eq!(p.of(good, 0), ["good.org"]);
        // Many of both: the oldest go, what is given again is the newest.
        for n in 0..2 * PAIRS as u32 {
            p.pin(address(n), &format!("{n}.evil.org"), MOST, 0);
            if n % 1000 == 0 {
                p.pin(good, "good.org", 1, 0);
            }
        }
        assert_eq!(p.of(good, 0), ["good.org"]);
        assert_eq!((p.order.len(), p.ends.len()), (PAIRS, PAIRS));
        assert_eq!(p.names.values().map(Vec::len).sum::<usize>(), PAIRS);
        assert_eq!(p.addresses.values().sum::<usize>(), PAIRS);
    }
}
