//! All rules of a sandbox, and what they say.

use crate::Protocol;
use crate::address::{Class, canonical, class, embedded};
use crate::refusal::Reason;
use crate::rule::{Rule, Target};
use std::net::IpAddr;

/// What may be reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    allow: Vec<Rule>,
    deny: Vec<Rule>,
    /// This host's addresses.
    own: Vec<IpAddr>,
}

impl Policy {
    /// Without a rule that allows, all is allowed but special addresses.
    #[must_use]
    pub fn new(allow: Vec<Rule>, deny: Vec<Rule>) -> Policy {
        let own = Vec::new();
        Policy { allow, deny, own }
    }

    /// With this host's addresses, which are special: what listens there was not meant for guests.
    #[must_use]
    pub fn on(mut self, own: impl IntoIterator<Item = IpAddr>) -> Policy {
        self.own = own.into_iter().map(canonical).collect();
        self
    }

    fn class(&self, ip: IpAddr) -> Class {
        if self.own.contains(&ip) {
            return Class::Special;
        }
        class(ip)
    }

    /// Whether only what a rule allows is allowed.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        !self.allow.is_empty()
    }

    /// Whether a rule denies a name, whatever the port: no answer may lead there.
    #[must_use]
    pub fn denies_name(&self, name: &str) -> bool {
        let whole = |r: &&Rule| r.ports.is_none() && r.protocol.is_none();
        self.deny.iter().filter(whole).any(|r| r.names(name))
    }

    /// Whether a name may be asked for; as [`crate::rule::normal`] gives it. Ports do not count
    /// here: a name of which one port may be reached can be asked for.
    pub fn name(&self, name: &str) -> Result<(), Reason> {
        if self.denies_name(name) {
            return Err(Reason::Denied);
        }
        if !self.is_strict() || self.allow.iter().any(|r| r.names(name)) {
            return Ok(());
        }
        Err(Reason::NotAllowed)
    }

    /// Whether an answer may give this address: what no connection could reach is left out.
    #[must_use]
    pub fn may_answer(&self, ip: IpAddr) -> bool {
        self.each_form(ip, |ip| {
            let by_net = |r: &Rule| r.lifts(ip);
            match self.class(ip) {
                Class::Public => true,
                Class::Private => !self.is_strict() || self.allow.iter().any(by_net),
                Class::Special => self.allow.iter().any(by_net),
            }
        })
    }

    /// Whether a peer may be reached; `names` are those that the address was given for, and still
    /// is.
    pub fn peer(
        &self,
        protocol: Protocol,
        ip: IpAddr,
        port: u16,
        names: &[&str],
    ) -> Result<(), Reason> {
        let mut reason = Reason::NotAllowed;
        let fine = self.each_form(ip, |ip| match self.form(protocol, ip, port, names) {
            Ok(()) => true,
            Err(r) => {
                reason = r;
                false
            }
        });
        if fine { Ok(()) } else { Err(reason) }
    }

    /// The address, and the one that is embedded in it.
    fn each_form(&self, ip: IpAddr, mut fine: impl FnMut(IpAddr) -> bool) -> bool {
        let ip = canonical(ip);
        fine(ip) && embedded(ip).is_none_or(fine)
    }

    fn form(
        &self,
        protocol: Protocol,
        ip: IpAddr,
        port: u16,
        names: &[&str],
    ) -> Result<(), Reason> {
        let covers = |r: &&Rule| r.covers(protocol, port);
        let by_net = |r: &Rule| r.names_address(ip);
        let by_name = |r: &Rule| names.iter().any(|n| r.names(n));
        let all = |r: &Rule| r.target == Target::All;
        let denies = |r: &Rule| by_net(r) || by_name(r) || all(r);
        if self.deny.iter().filter(covers).any(denies) {
            return Err(Reason::Denied);
        }
        let class = self.class(ip);
        let allows = |r: &Rule| match class {
            Class::Public => r.names_address(ip),
            Class::Private | Class::Special => r.lifts(ip),
        };
        if self.allow.iter().filter(covers).any(allows) {
            return Ok(());
        }
        match class {
            Class::Special => Err(Reason::Special),
            _ if !self.is_strict() => Ok(()),
            Class::Private => Err(Reason::Private),
            Class::Public => {
                let allows = |r: &Rule| by_name(r) || all(r);
                if self.allow.iter().filter(covers).any(allows) {
                    Ok(())
                } else {
                    Err(Reason::NotAllowed)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol::{Icmp, Tcp, Udp};

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let rules = |all: &[&str]| all.iter().map(|r| r.parse().unwrap()).collect();
        Policy::new(rules(allow), rules(deny))
    }
    fn ip(s: &str) -> IpAddr {
        s.parse().unwrap()
    }

    #[test]
    fn without_rules() {
        let p = policy(&[], &[]);
        assert_eq!(p.peer(Tcp, ip("1.1.1.1"), 443, &[]), Ok(()));
        assert_eq!(p.peer(Tcp, ip("10.0.0.1"), 443, &[]), Ok(()));
        for special in [
            "169.254.169.254",
            "127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fd00:ec2::254",
        ] {
            assert_eq!(
                p.peer(Tcp, ip(special), 80, &[]),
                Err(Reason::Special),
                "{special}"
            );
            assert!(!p.may_answer(ip(special)), "{special}");
        }
        assert_eq!(p.name("any.org"), Ok(()));
    }

    #[test]
    fn one_rule_that_allows_closes_the_rest() {
        let p = policy(
            &["pypi.org:443", "*.hosted.org", "10.1.0.0/16"],
            &["10.1.9.0/24", "bad.hosted.org"],
        );
        let v = ip("93.184.216.34");
        assert_eq!(p.peer(Tcp, v, 443, &["pypi.org"]), Ok(()));
        assert_eq!(p.peer(Tcp, v, 80, &["pypi.org"]), Err(Reason::NotAllowed));
        assert_eq!(p.peer(Tcp, v, 443, &[]), Err(Reason::NotAllowed));
        assert_eq!(p.peer(Tcp, v, 443, &["other.org"]), Err(Reason::NotAllowed));
        assert_eq!(p.peer(Udp, v, 9, &["a.hosted.org"]), Ok(()));
        assert_eq!(
            p.peer(Tcp, v, 443, &["bad.hosted.org"]),
            Err(Reason::Denied)
        );
        assert_eq!(p.peer(Tcp, ip("10.1.2.3"), 5432, &[]), Ok(()));
        assert_eq!(p.peer(Tcp, ip("10.1.9.3"), 5432, &[]), Err(Reason::Denied));
        assert_eq!(
            p.peer(Tcp, ip("10.2.2.3"), 443, &["pypi.org"]),
            Err(Reason::Private)
        );
        assert_eq!(p.peer(Icmp, v, 0, &["a.hosted.org"]), Ok(()));
        assert_eq!(p.peer(Icmp, v, 0, &["pypi.org"]), Err(Reason::NotAllowed));
        assert_eq!(p.name("pypi.org"), Ok(()));
        assert_eq!(p.name("evil.org"), Err(Reason::NotAllowed));
        assert_eq!(p.name("hosted.org"), Err(Reason::NotAllowed));
        assert_eq!(p.name("bad.hosted.org"), Err(Reason::Denied));
    }

    #[test]
    fn a_name_leads_to_no_private_address() {
        let p = policy(&["pypi.org"], &[]);
        for a in [
            "10.0.0.1",
            "127.0.0.1",
            "192.168.0.1",
            "fd00::1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
        ] {
            assert!(!p.may_answer(ip(a)), "{a}");
            assert!(p.peer(Tcp, ip(a), 443, &["pypi.org"]).is_err(), "{a}");
        }
        assert!(p.may_answer(ip("93.184.216.34")));
    }

    #[test]
    fn this_host_and_wide_networks() {
        let own = [ip("198.51.100.7"), ip("10.0.0.7")];
        let p = policy(&[], &[]).on(own);
        for a in ["198.51.100.7", "10.0.0.7", "::ffff:198.51.100.7"] {
            assert_eq!(p.peer(Tcp, ip(a), 22, &[]), Err(Reason::Special), "{a}");
            assert!(!p.may_answer(ip(a)), "{a}");
        }
        let q = policy(&["198.51.100.7:22"], &[]).on(own);
        assert_eq!(q.peer(Tcp, ip("198.51.100.7"), 22, &[]), Ok(()));
        // Who allows everything has not named what lies within.
        let r = policy(&["0.0.0.0/0", "::/0"], &["::ffff:192.0.2.0/120"]);
        assert_eq!(r.peer(Tcp, ip("93.184.216.34"), 443, &[]), Ok(()));
        for a in ["127.0.0.1", "169.254.169.254", "10.0.0.1", "192.0.2.1"] {
            assert!(r.peer(Tcp, ip(a), 443, &[]).is_err(), "{a}");
        }
    }

    #[test]
    fn the_star_is_no_way_to_special_addresses() {
        let p = policy(&["*"], &["*:25"]);
        assert_eq!(p.peer(Tcp, ip("1.1.1.1"), 443, &[]), Ok(()));
        assert_eq!(p.peer(Tcp, ip("1.1.1.1"), 25, &[]), Err(Reason::Denied));
        assert_eq!(
            p.peer(Tcp, ip("169.254.169.254"), 80, &[]),
            Err(Reason::Special)
        );
        assert_eq!(p.peer(Tcp, ip("10.0.0.1"), 80, &[]), Err(Reason::Private));
        let q = policy(&["169.254.169.254:80"], &[]);
        assert_eq!(q.peer(Tcp, ip("169.254.169.254"), 80, &[]), Ok(()));
    }
}
