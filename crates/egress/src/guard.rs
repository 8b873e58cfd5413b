//! What the broker, or the stack, asks before anything leaves.

use crate::Protocol;
use crate::counts::Counts;
use crate::dns::{DnsQuery, Transport, Truncated, Unasked, question};
use crate::pins::Pins;
use crate::policy::Policy;
use crate::refusal::{Reason, Refusal};
use simple_dns::RCODE;
use std::net::IpAddr;

/// The most names of an address that a refusal tells.
const TOLD: usize = 8;

/// The policy of a sandbox, with what it has been told of names.
pub struct Guard {
    policy: Policy,
    pins: Pins,
    counts: Counts,
}

/// What becomes of a question for a name.
#[derive(Debug)]
pub enum Question {
    /// It is asked, as [`DnsQuery::ask`] has it.
    Ask(DnsQuery),
    /// This is its answer; with what was refused, if that is why.
    Answer(Vec<u8>, Option<Refusal>),
    /// It is none.
    Drop,
}

impl Guard {
    #[must_use]
    pub fn new(policy: Policy) -> Guard {
        Guard {
            policy,
            pins: Pins::default(),
            counts: Counts::default(),
        }
    }

    /// From now on these rules hold. Which names an address has stays known.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Something was refused that the guard was not asked for.
    pub fn count_refused(&mut self, refusal: &Refusal) {
        self.counts.refused(refusal);
    }

    /// The names that an address has now.
    pub fn names(&mut self, ip: IpAddr, now: u64) -> Vec<String> {
        let names = self.pins.of(crate::address::canonical(ip), now);
        names.into_iter().map(str::to_owned).collect()
    }

    /// Whether a rule denies a peer: rather than that none allows it.
    pub fn denies(&mut self, protocol: Protocol, ip: IpAddr, port: u16, now: u64) -> bool {
        let ip = crate::address::canonical(ip);
        let names = self.pins.of(ip, now);
        self.policy.peer(protocol, ip, port, &names) == Err(Reason::Denied)
    }

    /// Whether a peer that was reached by these names, or by its address, may still be.
    #[must_use]
    pub fn still_allows(
        &self,
        protocol: Protocol,
        ip: IpAddr,
        port: u16,
        names: &[String],
    ) -> bool {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.policy.peer(protocol, ip, port, &names).is_ok()
    }

    /// Whether a peer may be reached. `now` in seconds.
    pub fn peer(
        &mut self,
        protocol: Protocol,
        ip: IpAddr,
        port: u16,
        now: u64,
    ) -> Result<(), Refusal> {
        let ip = crate::address::canonical(ip);
        let names = self.pins.of(ip, now);
        match self.policy.peer(protocol, ip, port, &names) {
            Ok(()) => {
                self.counts.allowed(&names);
                Ok(())
            }
            Err(reason) => {
                let refusal = Refusal::Peer {
                    protocol,
                    address: ip,
                    port,
                    names: names.into_iter().take(TOLD).map(str::to_owned).collect(),
                    reason,
                };
                self.counts.refused(&refusal);
                Err(refusal)
            }
        }
    }

    /// What becomes of a question.
    pub fn question(&mut self, bytes: &[u8], by: Transport) -> Question {
        let asked = match question(bytes, by) {
            Ok(a) => a,
            Err(Unasked::Nothing) => return Question::Drop,
            Err(Unasked::Answer(a)) => return Question::Answer(a, None),
        };
        match self.policy.name(&asked.name) {
            Ok(()) => {
                self.counts.asked(&asked.name);
                Question::Ask(asked)
            }
            Err(reason) => {
                let answer = asked.answer_with(RCODE::NameError);
                let name = asked.name;
                let refusal = Refusal::Name { name, reason };
                self.counts.refused(&refusal);
                Question::Answer(answer, Some(refusal))
            }
        }
    }

    /// The upstream server's answer, as [`DnsQuery::answer`]: its addresses are the name's from now
    /// on.
    pub fn answer(
        &mut self,
        asked: &DnsQuery,
        bytes: &[u8],
        id: u16,
        by: Transport,
        now: u64,
    ) -> Result<Option<Vec<u8>>, Truncated> {
        let (policy, pins) = (&self.policy, &mut self.pins);
        let denied = |name: &str| policy.denies_name(name);
        asked.answer(bytes, id, by, denied, |ip, ttl| {
            policy.may_answer(ip) && pins.pin(crate::address::canonical(ip), &asked.name, ttl, now)
        })
    }

    /// The answer where no server gave one.
    #[must_use]
    pub fn no_answer(asked: &DnsQuery) -> Vec<u8> {
        asked.answer_with(RCODE::ServerFailure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::rdata::{A, RData};
    use simple_dns::{CLASS, Name, Packet, ResourceRecord, TYPE};

    fn guard(allow: &[&str]) -> Guard {
        let allow = allow.iter().map(|r| r.parse().unwrap()).collect();
        Guard::new(Policy::new(allow, Vec::new()))
    }

    fn query(name: &str) -> Vec<u8> {
        let mut p = Packet::new_query(7);
        let name = Name::new(name).unwrap();
        p.questions.push(simple_dns::Question::new(
            name,
            TYPE::A.into(),
            CLASS::IN.into(),
            false,
        ));
        p.build_bytes_vec().unwrap()
    }

    /// Has the guard see an answer for a name.
    fn resolve(g: &mut Guard, name: &str, ip: [u8; 4], ttl: u32, now: u64) -> usize {
        let Question::Ask(asked) = g.question(&query(name), Transport::Udp) else {
            panic!("{name} is not asked for");
        };
        let sent = asked.ask(1);
        let mut p = Packet::parse(&sent).unwrap().into_reply();
        let address = u32::from_be_bytes(ip);
        let owner = Name::new("somewhere.else.net").unwrap();
        p.answers.push(ResourceRecord::new(
            owner,
            CLASS::IN,
            ttl,
            RData::A(A { address }),
        ));
        let bytes = p.build_bytes_vec().unwrap();
        let back = g
            .answer(&asked, &bytes, 1, Transport::Udp, now)
            .unwrap()
            .unwrap();
        Packet::parse(&back).unwrap().answers.len()
    }

    #[test]
    fn an_address_is_reached_while_an_allowed_name_has_it() {
        let mut g = guard(&["pypi.org:443"]);
        let ip: IpAddr = "151.101.0.223".parse().unwrap();
        assert!(g.peer(Protocol::Tcp, ip, 443, 0).is_err());
        assert_eq!(resolve(&mut g, "pypi.org", [151, 101, 0, 223], 100, 0), 1);
        assert_eq!(g.peer(Protocol::Tcp, ip, 443, 99), Ok(()));
        assert!(g.peer(Protocol::Tcp, ip, 80, 99).is_err());
        let mapped: IpAddr = "::ffff:151.101.0.223".parse().unwrap();
        assert_eq!(g.peer(Protocol::Tcp, mapped, 443, 99), Ok(()));
        assert!(g.peer(Protocol::Tcp, ip, 443, 100).is_err());
    }

    #[test]
    fn names_that_are_not_allowed_are_not_asked_for() {
        let mut g = guard(&["pypi.org"]);
        let Question::Answer(a, Some(Refusal::Name { name, reason })) =
            g.question(&query("secret.evil.org"), Transport::Udp)
        else {
            panic!("it is asked for");
        };
        assert_eq!(
            (name.as_str(), reason),
            ("secret.evil.org", Reason::NotAllowed)
        );
        assert_eq!(Packet::parse(&a).unwrap().rcode(), RCODE::NameError);
    }

    #[test]
    fn rebinding_does_not_help() {
        let mut g = guard(&["pypi.org"]);
        for ip in [[127, 0, 0, 1], [10, 0, 0, 1], [169, 254, 169, 254]] {
            assert_eq!(resolve(&mut g, "pypi.org", ip, 100, 0), 0);
            assert!(g.peer(Protocol::Tcp, ip.into(), 80, 1).is_err());
        }
    }
}
