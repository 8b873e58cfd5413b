//! Questions for names under way, to the resolvers and to Docker's name server.
//!
//! Each goes by a port of its own, which no socket has, and with a number of its own. A user has
//! at most a quarter of those that wait; what it asks beyond is lost, as datagrams may be.

use super::{Gate, seconds};
use crate::addr::Endpoint;
use crate::stack::names::Names;
use crate::stack::{Stack, pair};
use crate::user::Inside;
use crate::user::wire::User;
use abi::Errno;
use egress::Question;
use egress::dns::DnsQuery;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// The most that wait.
const MOST: usize = 512;
const OF_USER: usize = MOST / 4;
/// Seconds that one waits.
const PATIENCE: u64 = 10;
/// The first port that one may have.
const FIRST_PORT: u16 = 1024;

/// See the module.
#[derive(Default)]
pub(crate) struct Questions {
    waiting: Mutex<PendingQuestions>,
    /// Those to Docker's name server, the oldest first.
    docker: Mutex<VecDeque<(u64, Arc<ToDocker>)>>,
}

#[derive(Default)]
struct PendingQuestions {
    by_port: HashMap<u16, Pending>,
    /// The same ports, the oldest first; some may have been answered, and used again.
    order: VecDeque<(u64, u16)>,
}

struct Pending {
    asked: DnsQuery,
    id: u16,
    server: Endpoint,
    from: Weak<dyn Inside>,
    user: User,
    until: u64,
}

fn random() -> [u8; 4] {
    let mut seed = [0; 4];
    hostcall::time::random(&mut seed);
    seed
}

impl PendingQuestions {
    /// Lets those go that have waited long.
    fn forget(&mut self, now: u64) {
        while let Some((until, port)) = self.order.front().copied()
            && (until <= now || self.order.len() > 2 * MOST)
        {
            self.order.pop_front();
            if self.by_port.get(&port).is_some_and(|p| p.until == until) {
                self.by_port.remove(&port);
            }
        }
    }

    /// Keeps it by that port; not, if that is taken, or its user has too many.
    fn add(&mut self, port: u16, p: Pending, now: u64) -> bool {
        self.forget(now);
        let of_user = self.by_port.values().filter(|o| o.user == p.user).count();
        if self.by_port.len() >= MOST || of_user >= OF_USER || self.by_port.contains_key(&port) {
            return false;
        }
        self.order.push_back((p.until, port));
        self.by_port.insert(port, p);
        true
    }
}

impl Stack {
    /// Asks a resolver.
    pub(super) fn send_question(&self, from: &Arc<dyn Inside>, server: Endpoint, asked: DnsQuery) {
        let Some(ns) = self.ns.upgrade() else { return };
        let path = self.path(server.ip, None);
        // (Who is behind a device that programs made answers what he likes.)
        let Ok(path) = path.map_err(drop).and_then(|p| {
            let leaves = self.ports.is_taken(p.index);
            leaves.then_some(p).ok_or(())
        }) else {
            return;
        };
        let at = |port| Endpoint {
            ip: path.source,
            port,
        };
        let [a, b, c, d] = random();
        let id = u16::from_ne_bytes([c, d]);
        let first = u16::from_ne_bytes([a, b]);
        // (Few ports are taken: some try is free.)
        let tries = (0..64).map(|n| first.wrapping_add(n * 997).max(FIRST_PORT));
        let free = |p: &u16| ns.udp.lookup(at(*p), None, |_| Some(0)).is_none();
        let Some(port) = tries.into_iter().find(free) else {
            return;
        };
        let now = seconds();
        let message = asked.ask(id);
        let pending = Pending {
            asked,
            id,
            server,
            from: Arc::downgrade(from),
            user: from.user(),
            until: now + PATIENCE,
        };
        if self.gate.questions.waiting.lock().add(port, pending, now) {
            let marks = netstack::ip::Marks::default();
            let ends = pair(at(port), server, &path);
            let _ = self
                .ip
                .send_udp(crate::clock::now(), &path, ends, &[&message], None, &marks);
            self.timers.look_at(self.ip.deadline());
        }
    }

    /// A datagram has come: whether it is for a question, whoever sent it.
    pub fn answer_came(&self, from: Endpoint, port: u16, data: &[u8]) -> bool {
        let mut w = self.gate.questions.waiting.lock();
        let Some(p) = w.by_port.get(&port).filter(|p| p.server == from) else {
            return false;
        };
        let Some(answer) = self.gate.answer(&p.asked, data, p.id) else {
            return true;
        };
        let found = w.by_port.remove(&port);
        drop(w);
        if let Some(p) = found
            && let Some(to) = p.from.upgrade()
        {
            to.received(p.server, &answer);
        }
        true
    }

    /// A question to Docker's name server.
    pub fn ask_docker(&self, names: &Arc<Names>, from: &Arc<dyn Inside>, message: &[u8]) {
        if !self.gate.is_on() {
            return names.ask(from, message);
        }
        match self.gate.question(message) {
            Question::Drop => {}
            Question::Answer(answer, _) => from.received(Names::SERVER, &answer),
            Question::Ask(asked) => {
                let [a, b, ..] = random();
                let id = u16::from_ne_bytes([a, b]);
                let message = asked.ask(id);
                let question = Arc::new(ToDocker {
                    gate: self.gate.clone(),
                    asked,
                    id,
                    from: Arc::downgrade(from),
                    number: from.number(),
                    user: from.user(),
                });
                if self.gate.questions.keep(&question) {
                    let question: Arc<dyn Inside> = question;
                    names.ask(&question, &message);
                }
            }
        }
    }
}

impl Questions {
    /// Whether there is room for it. It stays until its time is over.
    fn keep(&self, q: &Arc<ToDocker>) -> bool {
        let now = seconds();
        let mut all = self.docker.lock();
        while all.front().is_some_and(|(until, _)| *until <= now) {
            all.pop_front();
        }
        let of_user = all.iter().filter(|(_, o)| o.user == q.user).count();
        let has_room = all.len() < MOST && of_user < OF_USER;
        if has_room {
            all.push_back((now + PATIENCE, q.clone()));
        }
        has_room
    }

    fn answered(&self, q: &ToDocker) {
        let of = |o: &Arc<ToDocker>| std::ptr::eq(Arc::as_ptr(o), q);
        self.docker.lock().retain(|(_, o)| !of(o));
    }
}

/// Who asks Docker's name server, in the place of a program's socket.
struct ToDocker {
    gate: Arc<Gate>,
    asked: DnsQuery,
    id: u16,
    from: Weak<dyn Inside>,
    number: u64,
    user: User,
}

impl Inside for ToDocker {
    fn number(&self) -> u64 {
        self.number
    }
    fn user(&self) -> User {
        self.user
    }
    fn received(&self, from: Endpoint, data: &[u8]) {
        if let Some(answer) = self.gate.answer(&self.asked, data, self.id)
            && let Some(to) = self.from.upgrade()
        {
            to.received(from, &answer);
        }
        self.gate.questions.answered(self);
    }
    fn failed(&self, _: Endpoint, _: Errno) {}
}
