//! What may leave by the stack: the rules of `egress`, which `--net=user` goes by, too.
//!
//! # What holds
//!
//! - Without rules nothing is looked at: one load for each connection and datagram.
//! - With rules, what a program of the sandbox begins leaves only if a rule lets it: connections,
//!   when they begin and when rules change; datagrams and what raw sockets make, one by one.
//!   Frames that programs make (AF_PACKET) do not leave.
//! - Who speaks first from outside, by a device of the host's, is answered: connections that were
//!   accepted; datagrams to who sent one to that port, for [`HEARD_FOR`] seconds, unless a rule
//!   denies it. Who speaks by a device that programs made is one of them, whatever his address:
//!   rules are asked about him, too, since a route that changes would have what is sent to him
//!   leave.
//! - A name's addresses are learnt from answers that have come to a question of this gate's own
//!   ([`questions`]): by a port and a number that nobody foresees, and a device of the host's,
//!   from a resolver that was named from outside the sandbox.
//! - All that is kept is bounded.

pub(crate) mod questions;

use super::Stack;
use crate::addr::Endpoint;
use crate::clock::now;
use abi::Result;
use abi::errno::EACCES;
use egress::counts::Counts;
use egress::dns::{DnsQuery, Transport};
use egress::journal::Journal;
use egress::packet::To;
use egress::{Guard, Protocol, Question, Reason, Refusal, Rules};
use hostcall::HostFd;
use parking_lot::Mutex;
use questions::Questions;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Seconds that who sent a datagram is answered.
pub(crate) const HEARD_FOR: u64 = 180;
/// Seconds after a change of rules in which nobody is heard.
const DEAF_FOR: u64 = 2;
/// The most of them; the one that spoke first goes first.
const HEARD_MOST: usize = 4096;
/// The port of name servers.
const DNS: u16 = 53;

/// What a gate starts with.
#[derive(Debug, Default)]
pub struct Start {
    pub rules: Rules,
    /// Where refusals are told, a line of JSON each. It does not block.
    pub log: Option<HostFd>,
}

/// See the module.
pub(crate) struct Gate {
    on: AtomicBool,
    /// Counts changes of the rules.
    generation: AtomicU64,
    /// Leaf lock.
    state: Mutex<State>,
    log: OnceLock<HostFd>,
    pub questions: Questions,
}

struct State {
    rules: Rules,
    guard: Guard,
    journal: Journal,
    heard: Heard,
}

/// Who has sent datagrams, by the port that they came to.
#[derive(Default)]
struct Heard {
    until: HashMap<(u16, Endpoint), u64>,
    /// The same, in the order in which they came first. Those that were heard again have more time.
    order: VecDeque<(u16, Endpoint)>,
    /// Nobody is heard before.
    from: u64,
}

impl Heard {
    /// All are forgotten, and for some time nobody is heard: what comes still may answer what was
    /// sent by other rules.
    fn forget(&mut self, now: u64) {
        *self = Heard {
            from: now + DEAF_FOR,
            ..Heard::default()
        };
    }

    fn hear(&mut self, key: (u16, Endpoint), now: u64) {
        if now < self.from {
            return;
        }
        if self.until.insert(key, now + HEARD_FOR).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > HEARD_MOST
            && let Some(first) = self.order.pop_front()
        {
            self.until.remove(&first);
        }
    }

    fn knows(&self, key: (u16, Endpoint), now: u64) -> bool {
        self.until.get(&key).is_some_and(|until| *until > now)
    }
}

/// Seconds of the stack's clock.
fn seconds() -> u64 {
    now().millis() / 1000
}

impl Gate {
    pub fn new(start: Start) -> Gate {
        let rules = start.rules;
        Gate {
            on: AtomicBool::new(!rules.is_empty()),
            generation: AtomicU64::new(0),
            state: Mutex::new(State {
                guard: Guard::new(rules.policy()),
                journal: Journal::default(),
                heard: Heard::default(),
                rules,
            }),
            log: start.log.map_or_else(OnceLock::new, OnceLock::from),
            questions: Questions::default(),
        }
    }

    /// Whether there are rules.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What is told of it: the rules, and how often what was allowed and refused.
    pub fn report(&self) -> (Rules, Counts) {
        let s = self.state.lock();
        let rules = Rules {
            own: Vec::new(),
            ..s.rules.clone()
        };
        (rules, s.guard.counts().clone())
    }

    /// Whether questions to this server are looked at, and answers of it believed.
    pub fn resolves(&self, to: Endpoint) -> bool {
        to.port == DNS && self.is_on() && self.state.lock().rules.resolvers.contains(&to.ip)
    }

    /// A connection begins: the names by which its peer is reached. `EACCES` where no rule lets it.
    pub fn connect(&self, to: Endpoint) -> Result<Vec<String>> {
        if !self.is_on() {
            return Ok(Vec::new());
        }
        if self.resolves(to) {
            return Err(self.refused(Protocol::Tcp, to, Reason::NamesByTcp));
        }
        self.ask(Protocol::Tcp, to)?;
        Ok(self.state.lock().guard.names(to.ip, seconds()))
    }

    /// Whether a connection that was begun so may go on.
    pub fn still_allows(&self, to: Endpoint, names: &[String]) -> bool {
        let s = self.state.lock();
        !self.is_on() || s.guard.still_allows(Protocol::Tcp, to.ip, to.port, names)
    }

    /// A datagram of a port of this host's.
    pub fn datagram(&self, port: u16, to: Endpoint) -> Result<()> {
        if !self.is_on() {
            return Ok(());
        }
        let (now, mut s) = (seconds(), self.state.lock());
        let known = s.heard.knows((port, to), now);
        if known && !s.guard.denies(Protocol::Udp, to.ip, to.port, now) {
            return Ok(());
        }
        drop(s);
        self.ask(Protocol::Udp, to)
    }

    /// Somebody has sent a datagram to a port of this host's.
    pub fn heard(&self, port: u16, from: Endpoint) {
        if self.is_on() {
            self.state.lock().heard.hear((port, from), seconds());
        }
    }

    /// A packet that a program made, as [`egress::packet`] understands it; `hop` is whom it is
    /// given to on its way, as far as the program says.
    pub fn packet(&self, hop: IpAddr, found: Option<To>) -> Result<()> {
        if !self.is_on() {
            return Ok(());
        }
        let Some(to) = found else {
            let to = Endpoint { ip: hop, port: 0 };
            return Err(self.refused(Protocol::Other, to, Reason::Malformed));
        };
        let (ip, port) = (to.ip, to.port);
        self.ask(to.protocol, Endpoint { ip, port })?;
        if hop != to.ip {
            self.ask(to.protocol, Endpoint { ip: hop, port })?;
        }
        Ok(())
    }

    /// Whether nothing may be sent there, not even an answer.
    pub fn denies(&self, to: To) -> bool {
        let mut s = self.state.lock();
        s.guard.denies(to.protocol, to.ip, to.port, seconds())
    }

    /// `EACCES` where no rule lets it, which is told.
    fn ask(&self, protocol: Protocol, to: Endpoint) -> Result<()> {
        let refusal = {
            let mut s = self.state.lock();
            match s.guard.peer(protocol, to.ip, to.port, seconds()) {
                Ok(()) => return Ok(()),
                Err(r) => r,
            }
        };
        self.tell(&refusal);
        Err(EACCES)
    }

    fn refused(&self, protocol: Protocol, to: Endpoint, reason: Reason) -> abi::Errno {
        let refusal = Refusal::Peer {
            protocol,
            address: to.ip,
            port: to.port,
            names: Vec::new(),
            reason,
        };
        self.state.lock().guard.count_refused(&refusal);
        self.tell(&refusal);
        EACCES
    }

    fn tell(&self, refusal: &Refusal) {
        const CLOCK_REALTIME: i32 = 0;
        let Some(log) = self.log.get() else { return };
        let time = hostcall::time::clock_nanos(CLOCK_REALTIME) as u64 / 1_000_000_000;
        let line = self.state.lock().journal.line(refusal, seconds(), time);
        if let Some(text) = line {
            let _ = hostcall::file::write(log.raw(), text.as_bytes());
        }
    }

    /// What becomes of a question for a name.
    fn question(&self, bytes: &[u8]) -> Question {
        let asked = self.state.lock().guard.question(bytes, Transport::UdpAlone);
        if let Question::Answer(_, Some(refusal)) = &asked {
            self.tell(refusal);
        }
        asked
    }

    /// A resolver's answer, as the program gets it; `None` where it is none to this question.
    fn answer(&self, asked: &DnsQuery, bytes: &[u8], id: u16) -> Option<Vec<u8>> {
        let mut s = self.state.lock();
        let by = Transport::UdpAlone;
        s.guard.answer(asked, bytes, id, by, seconds()).ok()?
    }

    /// Where refusals are told from now on, if nobody has said it.
    pub fn tell_to(&self, log: Option<HostFd>) {
        if let Some(log) = log {
            let _ = self.log.set(log);
        }
    }

    /// This host's addresses are these now. (It has some: who tells of none could not look.)
    fn change_own(&self, own: Vec<IpAddr>) -> bool {
        let mut s = self.state.lock();
        let is_other = !own.is_empty() && s.rules.own != own;
        if is_other {
            s.rules.own = own;
            let policy = s.rules.policy();
            s.guard.set_policy(policy);
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        is_other
    }

    fn change(&self, rules: Rules) {
        let mut s = self.state.lock();
        s.guard.set_policy(rules.policy());
        s.heard.forget(seconds());
        self.on.store(!rules.is_empty(), Ordering::Relaxed);
        s.rules = rules;
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl Stack {
    /// These rules hold from now on; connections that they do not allow end.
    ///
    /// (One that begins meanwhile is in the table before it looks whether the rules have changed:
    /// either is it seen here, or it sees the change.)
    pub fn set_rules(&self, rules: Rules) {
        self.gate.change(rules);
        self.end_what_is_refused();
    }

    /// These are this host's addresses: rules go by them.
    pub fn set_own_addresses(&self, own: Vec<IpAddr>) {
        if self.gate.change_own(own) {
            self.end_what_is_refused();
        }
    }

    fn end_what_is_refused(&self) {
        for c in self.live() {
            if c.is_ruled() && !self.gate.still_allows(c.peer_end(), c.names()) {
                crate::tcp::Outside::reset(&*c);
            }
        }
    }

    /// A question for a name to a resolver: it is asked anew, or answered here.
    pub fn ask_name(&self, from: &Arc<dyn crate::user::Inside>, server: Endpoint, message: &[u8]) {
        match self.gate.question(message) {
            Question::Drop => {}
            Question::Answer(answer, _) => from.received(server, &answer),
            Question::Ask(asked) => self.send_question(from, server, asked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(s: &str, port: u16) -> Endpoint {
        Endpoint {
            ip: s.parse().unwrap(),
            port,
        }
    }

    fn gate(allow: &[&str]) -> Gate {
        Gate::new(Start {
            rules: Rules {
                allow: allow.iter().map(|r| r.parse().unwrap()).collect(),
                resolvers: vec!["192.0.2.53".parse().unwrap()],
                ..Rules::default()
            },
            log: None,
        })
    }

    #[test]
    fn without_rules_all_may_leave() {
        let g = gate(&[]);
        assert!(!g.is_on() && !g.resolves(end("192.0.2.53", 53)));
        assert!(g.connect(end("192.0.2.53", 53)).is_ok());
        assert!(g.datagram(7, end("169.254.169.254", 80)).is_ok());
        assert!(g.packet("192.0.2.1".parse().unwrap(), None).is_ok());
    }

    #[test]
    fn who_spoke_first_is_answered() {
        let g = gate(&["192.0.2.1:443"]);
        let peer = end("198.51.100.7", 4000);
        assert_eq!(g.datagram(53, peer), Err(EACCES));
        g.heard(53, peer);
        assert_eq!(g.datagram(53, peer), Ok(()));
        // From that port, and to that one.
        assert_eq!(g.datagram(54, peer), Err(EACCES));
        assert_eq!(g.datagram(53, end("198.51.100.7", 4001)), Err(EACCES));
        for n in 0..2 * HEARD_MOST as u32 {
            let ip = std::net::Ipv4Addr::from(0x0b00_0000 + n).into();
            g.heard(53, Endpoint { ip, port: 1 });
        }
        let s = g.state.lock();
        assert_eq!(
            (s.heard.until.len(), s.heard.order.len()),
            (HEARD_MOST, HEARD_MOST)
        );
    }

    #[test]
    fn names_by_tcp_and_packets_are_refused() {
        let g = gate(&["192.0.2.0/24"]);
        assert_eq!(g.connect(end("192.0.2.53", 53)), Err(EACCES));
        assert_eq!(g.connect(end("192.0.2.54", 53)), Ok(Vec::new()));
        let hop: IpAddr = "198.51.100.7".parse().unwrap();
        let to = To {
            protocol: Protocol::Other,
            ip: "192.0.2.9".parse().unwrap(),
            port: 0,
        };
        assert_eq!(g.packet(to.ip, Some(to)), Ok(()));
        assert_eq!(g.packet(hop, Some(to)), Err(EACCES));
        assert_eq!(g.packet(to.ip, None), Err(EACCES));
        let (_, counts) = g.report();
        assert_eq!(counts.peers_refused, 3);
    }

    #[test]
    fn rules_that_change() {
        let g = gate(&["192.0.2.1"]);
        let to = end("192.0.2.1", 443);
        let before = g.generation();
        assert!(g.still_allows(to, &[]));
        g.change(Rules {
            allow: vec!["192.0.2.2".parse().unwrap()],
            ..Rules::default()
        });
        assert!(!g.still_allows(to, &[]) && g.generation() != before);
        g.change(Rules::default());
        assert!(g.still_allows(to, &[]) && !g.is_on());
    }
}
