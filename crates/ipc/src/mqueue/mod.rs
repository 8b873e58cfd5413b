//! POSIX message queues (`mq_overview(7)`; Linux's `ipc/mqueue.c`).
//!
//! A [`Queue`] holds messages by priority, and in one of the same priority as they came. A caller
//! that finds it full, or empty, stands in a line: the most urgent first, of the same urgency the
//! one that came first. Who makes room, or brings a message, serves the first of the line itself
//! (Linux's `pipelined_send`), so nobody who comes later is faster, and a queue with a line of
//! receivers holds no message.
//!
//! What a process asked to be told of the next message that finds the queue empty is an `N`, which
//! the sender gets to deliver. [`Limits`] are an ipc namespace's.
//!
//! Invariants: a line of senders only where the queue is full, one of receivers only where it is
//! empty; a waiter is in a line until it is served or leaves, under the queue's lock. Lock order:
//! the queue, then a waiter's place, then wait queues. A message's memory is its sender's.

mod limits;

pub use limits::{Attr, Limits, Privilege, Setting};

use abi::Result;
use abi::errno::EAGAIN;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use vfs::Credentials;
use vfs::ucounts::Charge;
use wait::{Blocker, Events, WaitQueue, block_until};

/// The queues of an ipc namespace.
pub struct Queues {
    pub limits: Arc<Limits>,
    /// The user and the group of the file system's root.
    pub owner: (u32, u32),
    root: OnceLock<vfs::Path>,
}

impl Queues {
    #[must_use]
    pub fn made_by(maker: &Credentials) -> Queues {
        Queues {
            limits: Arc::default(),
            owner: (maker.fsuid, maker.fsgid),
            root: OnceLock::new(),
        }
    }
    /// The root of their file system, which `make` makes once; it does not keep the namespace.
    pub fn root(&self, make: impl FnOnce() -> vfs::Path) -> vfs::Path {
        self.root.get_or_init(make).clone()
    }
}

/// The number of priorities (`MQ_PRIO_MAX`).
pub const PRIO_MAX: u32 = 32_768;
/// What a message takes of the kernel's memory beside its bytes.
pub const MESSAGE: usize = 96;

/// A message.
#[derive(Debug)]
pub struct Message {
    pub priority: u32,
    pub data: Vec<u8>,
    /// What it takes, as its sender's; `None` in tests.
    pub memory: Option<Charge>,
}

/// How urgent a caller is, as Linux's `task->prio`: less is more urgent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Urgency(pub i32);

/// How a caller waits.
#[derive(Clone, Copy)]
pub enum Patience {
    /// It does not (`O_NONBLOCK`).
    None,
    /// Until then; for ever without a time.
    Until(Option<Instant>),
}

/// What a transfer was like.
#[derive(Debug)]
pub struct TransferOutcome<T, N> {
    pub it: T,
    /// Whether the caller stood in line; then it changed nothing itself.
    pub waited: bool,
    /// What is to be delivered.
    pub notice: Option<N>,
}

/// Where a waiter is served.
struct Place {
    /// Set once, by who serves it: a receiver's message, nothing for a sender.
    served: Mutex<Option<Option<Message>>>,
    wake: WaitQueue,
}

impl Place {
    fn serve(&self, m: Option<Message>) {
        *self.served.lock() = Some(m);
        self.wake.notify(Events::IN);
    }
}

/// A place in a line: urgency, then order of arrival.
type Turn = (Urgency, u64);

/// Those that wait, with what the senders bring.
#[derive(Default)]
struct Line(BTreeMap<Turn, (Option<Message>, Arc<Place>)>);

impl Line {
    fn enter(&mut self, turn: Turn, brings: Option<Message>) -> Arc<Place> {
        let place = Arc::new(Place {
            served: Mutex::new(None),
            wake: WaitQueue::new(),
        });
        self.0.insert(turn, (brings, place.clone()));
        place
    }
    fn first(&mut self) -> Option<(Option<Message>, Arc<Place>)> {
        self.0.pop_first().map(|(_, w)| w)
    }
}

/// A queue.
pub struct Queue<N> {
    attr: Attr,
    state: Mutex<State<N>>,
    /// Of poll(2): IN when a message came, OUT when one went.
    watchers: WaitQueue,
}

struct State<N> {
    messages: BTreeMap<u32, VecDeque<Message>>,
    count: usize,
    bytes: usize,
    senders: Line,
    receivers: Line,
    arrivals: u64,
    notice: Option<N>,
}

impl<N> State<N> {
    fn insert(&mut self, m: Message) {
        self.count += 1;
        self.bytes += m.data.len();
        self.messages.entry(m.priority).or_default().push_back(m);
    }
    fn take(&mut self) -> Option<Message> {
        let mut highest = self.messages.last_entry()?;
        let m = highest.get_mut().pop_front()?;
        if highest.get().is_empty() {
            highest.remove();
        }
        self.count -= 1;
        self.bytes -= m.data.len();
        Some(m)
    }
    fn turn(&mut self, u: Urgency) -> Turn {
        self.arrivals += 1;
        (u, self.arrivals)
    }
}

impl<N> Queue<N> {
    #[must_use]
    pub fn new(attr: Attr) -> Queue<N> {
        Queue {
            attr,
            state: Mutex::new(State {
                messages: BTreeMap::new(),
                count: 0,
                bytes: 0,
                senders: Line::default(),
                receivers: Line::default(),
                arrivals: 0,
                notice: None,
            }),
            watchers: WaitQueue::new(),
        }
    }
    #[must_use]
    pub fn attr(&self) -> Attr {
        self.attr
    }
    /// How many messages wait, and their bytes.
    #[must_use]
    pub fn usage(&self) -> (usize, usize) {
        let s = self.state.lock();
        (s.count, s.bytes)
    }
    #[must_use]
    pub fn watchers(&self) -> &WaitQueue {
        &self.watchers
    }
    #[must_use]
    pub fn poll(&self) -> Events {
        let n = self.usage().0;
        let mut e = Events::empty();
        if n > 0 {
            e |= Events::READABLE;
        }
        if n < self.attr.max_messages {
            e |= Events::WRITABLE;
        }
        e
    }

    /// `mq_timedsend(3)`; the caller has checked priority and size. `EAGAIN`, `ETIMEDOUT`,
    /// `ERESTARTSYS`.
    pub fn send(
        &self,
        b: &dyn Blocker,
        urgency: Urgency,
        m: Message,
        patience: Patience,
    ) -> Result<TransferOutcome<(), N>> {
        let mut s = self.state.lock();
        if s.count >= self.attr.max_messages {
            let Patience::Until(deadline) = patience else {
                return Err(EAGAIN);
            };
            let turn = s.turn(urgency);
            let place = s.senders.enter(turn, Some(m));
            drop(s);
            let leave = |s: &mut State<N>| s.senders.0.remove(&turn).map(drop).is_some();
            self.stand(b, &place, deadline, leave)?;
            return Ok(TransferOutcome {
                it: (),
                waited: true,
                notice: None,
            });
        }
        let mut notice = None;
        if let Some((_, receiver)) = s.receivers.first() {
            receiver.serve(Some(m));
        } else {
            s.insert(m);
            if s.count == 1 {
                notice = s.notice.take();
            }
            drop(s);
            self.watchers.notify(Events::READABLE);
        }
        Ok(TransferOutcome {
            it: (),
            waited: false,
            notice,
        })
    }

    /// `mq_timedreceive(3)`: the oldest message of the highest priority.
    pub fn receive(
        &self,
        b: &dyn Blocker,
        urgency: Urgency,
        patience: Patience,
    ) -> Result<TransferOutcome<Message, N>> {
        let mut s = self.state.lock();
        let Some(it) = s.take() else {
            let Patience::Until(deadline) = patience else {
                return Err(EAGAIN);
            };
            let turn = s.turn(urgency);
            let place = s.receivers.enter(turn, None);
            drop(s);
            let leave = |s: &mut State<N>| s.receivers.0.remove(&turn).is_some();
            let it = self.stand(b, &place, deadline, leave)?;
            return Ok(TransferOutcome {
                it: it.ok_or(EAGAIN)?,
                waited: true,
                notice: None,
            });
        };
        if let Some((brings, sender)) = s.senders.first() {
            // Whoever waits for room finds none.
            if let Some(m) = brings {
                s.insert(m);
            }
            sender.serve(None);
        } else {
            drop(s);
            self.watchers.notify(Events::WRITABLE);
        }
        Ok(TransferOutcome {
            it,
            waited: false,
            notice: None,
        })
    }

    /// Waits to be served. Who is served in the last moment has not left.
    fn stand(
        &self,
        b: &dyn Blocker,
        place: &Place,
        deadline: Option<Instant>,
        leave: impl FnOnce(&mut State<N>) -> bool,
    ) -> Result<Option<Message>> {
        let served = || place.served.lock().take().ok_or(EAGAIN);
        block_until(b, &[(&place.wake, Events::IN)], deadline, served).or_else(|e| {
            if leave(&mut self.state.lock()) {
                return Err(e);
            }
            served()
        })
    }

    /// Asks to be told of the next message that finds the queue empty, and nobody waiting; gives
    /// `n` back where somebody has asked (`EBUSY`).
    pub fn ask(&self, n: N) -> core::result::Result<(), N> {
        let mut s = self.state.lock();
        match &s.notice {
            Some(_) => Err(n),
            None => {
                s.notice = Some(n);
                Ok(())
            }
        }
    }
    /// Takes what was asked for back, if it is of this kind.
    pub fn take_back(&self, is: impl FnOnce(&N) -> bool) -> Option<N> {
        let mut s = self.state.lock();
        if s.notice.as_ref().is_some_and(is) {
            s.notice.take()
        } else {
            None
        }
    }
    /// Looks at what was asked for.
    pub fn asked<R>(&self, look: impl FnOnce(Option<&N>) -> R) -> R {
        look(self.state.lock().notice.as_ref())
    }
}

#[cfg(test)]
mod tests;
