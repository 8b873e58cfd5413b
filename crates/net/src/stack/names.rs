//! Docker's name server at 127.0.0.11: it listens on the loopback device of the namespace of the
//! host that the container has been given, behind address translation of that namespace. What
//! programs send there goes by one socket of the host's that is connected to it.
//!
//! Questions of all programs share the socket: each gets a number of its own on the way, by which
//! the answer finds back. A user has at most [`MOST`] that wait for an answer, for [`PATIENCE`]:
//! what it asks beyond is lost.

use crate::addr::Endpoint;
use crate::user::Inside;
use crate::user::wire::User;
use hostcall::{HostFd, file, inet, mem};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

/// Questions of one user that wait, and of all.
const MOST: usize = 256;
const MOST_OF_ALL: usize = 16_384;
/// How long one waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest message by UDP.
const MESSAGE: usize = 65_535;

/// See the module.
pub(crate) struct Names {
    socket: HostFd,
    waiting: Mutex<PendingQuestions>,
    served: Once,
}

#[derive(Default)]
struct PendingQuestions {
    by_number: HashMap<u16, Question>,
    /// The same numbers, the oldest first. Some may have been answered.
    order: VecDeque<(Instant, u16)>,
    by_user: HashMap<User, usize>,
}

struct Question {
    /// As the program knows it.
    number: u16,
    from: Weak<dyn Inside>,
    user: User,
    asked: Instant,
}

impl Names {
    pub const SERVER: Endpoint = Endpoint {
        ip: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11)),
        port: 53,
    };

    /// `socket` is connected to the name server.
    pub fn new(socket: HostFd) -> Arc<Names> {
        Arc::new(Names {
            socket,
            waiting: Mutex::default(),
            served: Once::new(),
        })
    }

    pub fn is_for(to: Endpoint) -> bool {
        to == Self::SERVER
    }

    /// Passes a question on; what is none is lost, as datagrams may be.
    pub fn ask(self: &Arc<Self>, from: &Arc<dyn Inside>, message: &[u8]) {
        let Some((number, rest)) = message.split_first_chunk() else {
            return;
        };
        let number = self.waiting.lock().add(Question {
            number: u16::from_be_bytes(*number),
            from: Arc::downgrade(from),
            user: from.user(),
            asked: Instant::now(),
        });
        let Some(number) = number else { return };
        self.served.call_once(|| {
            let me = self.clone();
            let run = move || me.serve();
            // Without a thread no answer comes, as if the server were gone.
            let _ = std::thread::Builder::new()
                .name("network-names".into())
                .stack_size(128 << 10)
                .spawn(run);
        });
        let mut bytes = [&number.to_be_bytes()[..], rest].concat();
        let fd = self.socket.raw();
        let _ = mem::with_slice_mut(&mut bytes, |m| inet::send(fd, &[m], None, &[], 0));
    }

    fn serve(&self) {
        const POLLIN: i16 = 1;
        let fd = self.socket.raw();
        let mut bytes = vec![0; MESSAGE];
        loop {
            let mut p = [file::PollFd {
                fd,
                events: POLLIN,
                revents: 0,
            }];
            let _ = file::poll(&mut p, -1);
            // An error is a question that nobody took.
            let got = mem::with_slice_mut(&mut bytes, |m| inet::receive(fd, &[m], 0));
            let Ok(n) = got.map(|m| m.n) else { continue };
            let Some((number, _)) = bytes[..n].split_first_chunk() else {
                continue;
            };
            let found = self.waiting.lock().take(u16::from_be_bytes(*number));
            let Some(q) = found else { continue };
            if let Some(from) = q.from.upgrade() {
                bytes[..2].copy_from_slice(&q.number.to_be_bytes());
                from.received(Self::SERVER, &bytes[..n]);
            }
        }
    }
}

impl PendingQuestions {
    fn take(&mut self, number: u16) -> Option<Question> {
        let q = self.by_number.remove(&number)?;
        if let Some(n) = self.by_user.get_mut(&q.user) {
            *n -= 1;
            if *n == 0 {
                self.by_user.remove(&q.user);
            }
        }
        Some(q)
    }

    /// A number that no other question has, and nobody foresees; `None` where its user has too
    /// many.
    fn add(&mut self, q: Question) -> Option<u16> {
        while let Some((asked, number)) = self.order.front().copied()
            && (q.asked.duration_since(asked) > PATIENCE || self.order.len() >= MOST_OF_ALL)
        {
            self.order.pop_front();
            if self
                .by_number
                .get(&number)
                .is_some_and(|o| o.asked == asked)
            {
                self.take(number);
            }
        }
        let of_user = self.by_user.entry(q.user).or_default();
        if *of_user >= MOST {
            return None;
        }
        *of_user += 1;
        let mut seed = [0; 2];
        hostcall::time::random(&mut seed);
        let mut number = u16::from_ne_bytes(seed);
        while self.by_number.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        self.order.push_back((q.asked, number));
        self.by_number.insert(number, q);
        Some(number)
    }
}
