//! What the Sentry is told, in order, and without waiting for it.
//!
//! The control socket holds a few hundred packets. A Sentry that is busy, or whose machine is, may
//! be that far behind without any fault: what does not fit waits here.
//!
//! # Invariants
//!
//! - Messages go out in the order in which they were put in.
//! - Of a client at most one message waits: the monitor reads nothing more of it meanwhile. So the
//!   number of clients bounds the box, and a client that is faster than the Sentry is slowed down,
//!   not refused.
//! - Of the monitor's own messages no two that mean the same wait.
//! - What waits of a client that has gone is dropped.

use abi::Result;
use abi::errno::EAGAIN;
use config::control::{Recipient, ToSentry};
use hostcall::{HostFd, RawFd};
use sandbox::Running;
use std::collections::VecDeque;

/// Something to tell the Sentry.
#[derive(Debug)]
pub enum Message {
    Signal {
        signal: i32,
        to: Recipient,
    },
    /// A terminal's size.
    Window {
        rows: u16,
        cols: u16,
        process: u32,
    },
    Limits(Vec<u8>),
    /// A program that was made ready begins: the first (0), with the devices that it gets, or one
    /// of `exec`.
    Begin {
        process: u32,
        given: Vec<HostFd>,
    },
    /// A question (see [`Running::ask`]), with the descriptors that belong to it.
    Ask {
        kind: ToSentry,
        number: u32,
        given: Vec<HostFd>,
    },
}

impl Message {
    /// `EAGAIN` where there is no room.
    pub fn send(&self, r: &Running) -> Result<()> {
        match self {
            Message::Signal { signal, to } => r.send_signal(*signal, *to),
            Message::Window {
                rows,
                cols,
                process,
            } => r.send_window(*rows, *cols, *process),
            Message::Limits(body) => r.set_limits(body),
            Message::Begin { process, given } => r.begin(*process, &raw(given)),
            Message::Ask {
                kind,
                number,
                given,
            } => r.ask(*kind, *number, &raw(given)),
        }
    }

    /// Whether `later`, told behind this one, makes this one needless.
    fn is_replaced_by(&self, later: &Message) -> bool {
        match (self, later) {
            (Message::Signal { signal, to }, Message::Signal { signal: s, to: t }) => {
                (signal, to) == (s, t)
            }
            (Message::Window { process, .. }, Message::Window { process: p, .. }) => process == p,
            _ => false,
        }
    }
}

fn raw(fds: &[HostFd]) -> Vec<RawFd> {
    fds.iter().map(HostFd::raw).collect()
}

/// Whose a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// `None` for the monitor itself.
    pub client: Option<u64>,
    /// Whether the client is to learn that the message went out.
    pub is_confirmed: bool,
}

impl Sender {
    /// The monitor.
    pub const OWN: Sender = Sender {
        client: None,
        is_confirmed: false,
    };

    /// A client that learns that its message went out.
    pub fn confirmed(client: u64) -> Sender {
        Sender {
            client: Some(client),
            is_confirmed: true,
        }
    }

    /// A client that does not: it is answered later, or not at all.
    pub fn silent(client: u64) -> Sender {
        Sender {
            client: Some(client),
            is_confirmed: false,
        }
    }
}

/// A message, and whose it is.
#[derive(Debug)]
pub struct QueuedMessage {
    pub sender: Sender,
    pub message: Message,
}

/// The messages that wait.
#[derive(Debug, Default)]
pub struct Outbox(VecDeque<QueuedMessage>);

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends a message, which is given back with what became of it; or keeps it, where there is no
    /// room.
    pub fn put(
        &mut self,
        w: QueuedMessage,
        send: impl FnOnce(&Message) -> Result<()>,
    ) -> Option<(QueuedMessage, Result<()>)> {
        if self.0.is_empty() {
            match send(&w.message) {
                Err(EAGAIN) => {}
                r => return Some((w, r)),
            }
        }
        if w.sender == Sender::OWN {
            let goes = |old: &QueuedMessage| {
                old.sender == Sender::OWN && old.message.is_replaced_by(&w.message)
            };
            self.0.retain(|old| !goes(old));
        }
        self.0.push_back(w);
        None
    }

    /// There may be room: sends what fits, and gives each with what became of it.
    pub fn flush(
        &mut self,
        mut send: impl FnMut(&Message) -> Result<()>,
    ) -> Vec<(QueuedMessage, Result<()>)> {
        let mut sent = Vec::new();
        while let Some(w) = self.0.pop_front() {
            match send(&w.message) {
                Err(EAGAIN) => {
                    self.0.push_front(w);
                    break;
                }
                r => sent.push((w, r)),
            }
        }
        sent
    }

    /// Drops what waits of a client that has gone, and gives the numbers of its questions.
    pub fn forget(&mut self, client: u64) -> Vec<u32> {
        let mut numbers = Vec::new();
        self.0.retain(|w| {
            let goes = w.sender.client == Some(client);
            if let (true, Message::Ask { number, .. }) = (goes, &w.message) {
                numbers.push(*number);
            }
            !goes
        });
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::errno::EPIPE;

    fn of(sender: Sender, signal: i32) -> QueuedMessage {
        let to = Recipient::First;
        let message = Message::Signal { signal, to };
        QueuedMessage { sender, message }
    }

    fn client(n: u64, signal: i32) -> QueuedMessage {
        of(Sender::confirmed(n), signal)
    }

    fn ask(client: u64, number: u32) -> QueuedMessage {
        let message = Message::Ask {
            kind: ToSentry::Census,
            number,
            given: Vec::new(),
        };
        QueuedMessage {
            sender: Sender::silent(client),
            message,
        }
    }

    fn full(_: &Message) -> Result<()> {
        Err(EAGAIN)
    }

    /// The signals that a socket takes which has room for so many.
    fn drain(o: &mut Outbox, room: usize) -> Vec<i32> {
        let mut seen = Vec::new();
        o.flush(|m| match m {
            Message::Signal { signal, .. } if seen.len() < room => {
                seen.push(*signal);
                Ok(())
            }
            _ => Err(EAGAIN),
        });
        seen
    }

    #[test]
    fn what_does_not_fit_waits_in_order() {
        let mut o = Outbox::default();
        assert!(matches!(o.put(client(1, 1), |_| Ok(())), Some((_, Ok(())))));
        assert!(o.put(client(1, 2), full).is_none());
        // There is room again, but not for a later one.
        let never = |_: &Message| unreachable!("out of order");
        assert!(o.put(client(2, 3), never).is_none());
        assert!(o.put(client(3, 4), never).is_none());
        assert_eq!(drain(&mut o, 2), [2, 3]);
        assert_eq!(drain(&mut o, 2), [4]);
        assert!(o.is_empty());
    }

    #[test]
    fn the_own_ones_stay_few() {
        let mut o = Outbox::default();
        for signal in [5, 6, 5, 5] {
            assert!(o.put(of(Sender::OWN, signal), full).is_none());
        }
        // A client's is confirmed, and stays.
        assert!(o.put(client(1, 5), full).is_none());
        assert!(o.put(of(Sender::OWN, 5), full).is_none());
        assert_eq!(drain(&mut o, 9), [6, 5, 5]);
    }

    #[test]
    fn who_has_gone_has_asked_for_nothing() {
        let mut o = Outbox::default();
        let begins = QueuedMessage {
            sender: Sender::silent(1),
            message: Message::Begin {
                process: 11,
                given: Vec::new(),
            },
        };
        for w in [ask(1, 10), client(2, 7), ask(3, 11), begins] {
            assert!(o.put(w, full).is_none());
        }
        // (A process's number is none of a question.)
        assert_eq!(o.forget(1), [10]);
        assert_eq!(o.forget(3), [11]);
        assert_eq!(drain(&mut o, 9), [7]);
    }

    #[test]
    fn a_broken_socket_is_told() {
        let mut o = Outbox::default();
        assert!(matches!(
            o.put(client(1, 1), |_| Err(EPIPE)),
            Some((_, Err(EPIPE)))
        ));
        assert!(o.put(client(2, 1), full).is_none());
        let sent = o.flush(|_| Err(EPIPE));
        assert!(matches!(&sent[..], [(w, Err(EPIPE))] if w.sender == Sender::confirmed(2)));
    }
}
