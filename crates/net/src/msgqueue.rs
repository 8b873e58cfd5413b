//! A queue of messages with their boundaries: UNIX datagrams and sequenced packets, and netlink.

use crate::control::Ucred;
use crate::filters::Packet;
use crate::inflight::InFlight;
use crate::options::Common;
use crate::peeks;
use crate::stream::Take;
use abi::errno::{EAGAIN, ECONNREFUSED, ENOBUFS, EPIPE};
use abi::{Errno, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vfs::ucounts::{Charge, Kind};
use vfs::{File, Sink, Source};
use wait::Events;

/// What a message costs beyond its bytes: with it, small messages fill a queue at the same number
/// as on Linux.
const OVERHEAD: usize = 767;

/// A waiting message.
pub struct Msg {
    pub data: Vec<u8>,
    pub cred: Ucred,
    pub files: Option<InFlight>,
    /// The sender's address, encoded.
    pub from: Vec<u8>,
    /// Of an empty one: a peek has shown it.
    pub shown: bool,
}

impl peeks::Message for Msg {
    fn bytes(&self) -> usize {
        self.data.len()
    }
    fn shown(&mut self) -> &mut bool {
        &mut self.shown
    }
}

/// What a receive gives.
pub struct ReceivedMessage {
    /// Bytes that fitted.
    pub n: usize,
    /// Bytes in the message, from where the receive begins.
    pub len: usize,
    pub cred: Ucred,
    pub files: Vec<Arc<File>>,
    pub from: Vec<u8>,
}

/// See the module.
pub struct MsgQueue {
    pub owner: Arc<Common>,
    /// The owner's number, for files in flight.
    pub holder: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    msgs: VecDeque<Msg>,
    /// With the overhead of each.
    bytes: usize,
    /// The same, as the owner's.
    memory: Option<Charge>,
    /// No more will come; what is there can be read.
    ended: bool,
    /// The owner reads no more.
    shut: bool,
    /// The owner is gone.
    closed: bool,
    /// Senders that found no room.
    waiters: Vec<Weak<Common>>,
}

impl MsgQueue {
    pub fn new(owner: &Arc<Common>, holder: u64) -> Arc<MsgQueue> {
        Arc::new(MsgQueue {
            owner: owner.clone(),
            holder,
            state: Mutex::new(State::default()),
        })
    }

    fn full(s: &State, max_bytes: usize, max_msgs: usize) -> bool {
        !s.msgs.is_empty() && (s.bytes >= max_bytes || s.msgs.len() > max_msgs)
    }

    fn wait(s: &mut State, sender: &Arc<Common>) {
        s.waiters.retain(|w| w.strong_count() > 0);
        if !s.waiters.iter().any(|w| w.as_ptr() == Arc::as_ptr(sender)) {
            s.waiters.push(Arc::downgrade(sender));
        }
    }

    /// Whether a message could be sent now; if not, the sender is told (OUT) when one can.
    pub fn has_room(&self, sender: &Arc<Common>, max_bytes: usize, max_msgs: usize) -> bool {
        let mut s = self.state.lock();
        if s.closed || s.shut || !Self::full(&s, max_bytes, max_msgs) {
            return true;
        }
        Self::wait(&mut s, sender);
        false
    }

    /// Appends the message that `make` builds, once it is sure that there is room.
    pub fn send(
        &self,
        sender: &Arc<Common>,
        max_bytes: usize,
        max_msgs: usize,
        make: impl FnOnce() -> Result<Msg>,
    ) -> Result<usize> {
        let mut s = self.state.lock();
        Self::takes(&s)?;
        if Self::full(&s, max_bytes, max_msgs) {
            Self::wait(&mut s, sender);
            return Err(EAGAIN);
        }
        let (m, n);
        if self.owner.filter.is_on() {
            // A program may take a while: nobody waits for it. (Meanwhile others may use the room:
            // there is one message more for each that sends just now.)
            drop(s);
            let mut whole = make()?;
            n = whole.data.len();
            if !self.admits(&mut whole) {
                // Who sends is not told.
                return Ok(n);
            }
            m = whole;
            s = self.state.lock();
        } else {
            m = make()?;
            n = m.data.len();
        }
        // The files of one that is refused are dropped without the lock.
        let refused = self.append(&mut s, m);
        drop(s);
        if let Some((e, _)) = refused {
            return Err(e);
        }
        self.owner.notify(Events::READABLE);
        Ok(n)
    }

    /// Puts one at the end, or gives it back.
    fn append(&self, s: &mut State, m: Msg) -> Option<(Errno, Msg)> {
        if let Err(e) = Self::takes(s) {
            return Some((e, m));
        }
        let size = m.data.len() + OVERHEAD;
        if !self.charge(s, size) {
            return Some((ENOBUFS, m));
        }
        s.bytes += size;
        s.msgs.push_back(m);
        None
    }

    /// Whether anything may come.
    fn takes(s: &State) -> Result<()> {
        if s.closed {
            return Err(ECONNREFUSED);
        }
        if s.shut || s.ended {
            return Err(EPIPE);
        }
        Ok(())
    }

    /// Whether the owner's filter lets it in, which may cut it.
    fn admits(&self, m: &mut Msg) -> bool {
        let filter = &self.owner.filter;
        if !filter.is_on() {
            return true;
        }
        let p = Packet::without_device(&m.data);
        let n = filter.admits(&p, 1);
        m.data.truncate(n.unwrap_or(0));
        n.is_some()
    }

    /// Whether the owner may have so much more in its queue.
    fn charge(&self, s: &mut State, n: usize) -> bool {
        if s.memory.is_none() {
            s.memory = self.owner.user.get().map(|u| u.force(Kind::Kmem, 0));
        }
        s.memory.as_mut().is_none_or(|m| m.grow(n as u64, u64::MAX))
    }

    /// Appends one of the kernel's own answers. An owner that does not read them gets `ENOBUFS` for
    /// those that find its buffer full (`netlink_overrun`).
    pub fn push(&self, mut m: Msg) {
        if !self.admits(&mut m) {
            return;
        }
        {
            let mut s = self.state.lock();
            let most = self.owner.rcvbuf.load(Ordering::Relaxed) as usize;
            let n = m.data.len() + OVERHEAD;
            if (!s.msgs.is_empty() && s.bytes + n > most) || !self.charge(&mut s, n) {
                drop(s);
                self.owner.set_error(ENOBUFS);
                self.owner.notify(Events::READABLE | Events::ERR);
                return;
            }
            s.bytes += m.data.len() + OVERHEAD;
            s.msgs.push_back(m);
        }
        self.owner.notify(Events::READABLE);
    }

    /// The first message, or that where a peek begins which passes over `skip` bytes; `None` at
    /// the end.
    pub fn receive(
        &self,
        dst: &mut dyn Sink,
        take: Take,
        skip: Option<usize>,
    ) -> Result<Option<ReceivedMessage>> {
        let (r, waiters, dropped) = {
            let mut s = self.state.lock();
            let ended = s.ended || s.shut || s.closed;
            let Some((m, past)) = peeks::find(&mut s.msgs, skip) else {
                if ended {
                    return Ok(None);
                }
                self.owner.take_error()?;
                return Err(EAGAIN);
            };
            let data = &m.data[past..];
            let n = put_all(dst, data)?;
            let mut t = ReceivedMessage {
                n,
                len: data.len(),
                cred: m.cred,
                files: Vec::new(),
                from: m.from.clone(),
            };
            if take == Take::Peek {
                t.files = m.files.as_ref().map(InFlight::peek).unwrap_or_default();
                return Ok(Some(t));
            }
            let m = s.msgs.pop_front();
            if let Some(m) = &m {
                s.bytes -= m.data.len() + OVERHEAD;
                let left = s.bytes as u64;
                if let Some(c) = &mut s.memory {
                    c.set(left);
                }
            }
            (t, std::mem::take(&mut s.waiters), m)
        };
        let mut t = r;
        if let Some(f) = dropped.and_then(|m| m.files) {
            t.files = f.take();
        }
        wake(&waiters);
        Ok(Some(t))
    }

    pub fn len(&self) -> usize {
        self.state.lock().msgs.len()
    }
    /// The size of the first message.
    pub fn first_len(&self) -> usize {
        self.state.lock().msgs.front().map_or(0, |m| m.data.len())
    }
    /// All bytes that wait.
    pub fn bytes(&self) -> usize {
        self.state.lock().msgs.iter().map(|m| m.data.len()).sum()
    }
    /// Whether reads give the end once it is empty.
    pub fn is_ended(&self) -> bool {
        let s = self.state.lock();
        s.ended || s.shut
    }
    pub fn is_shut(&self) -> bool {
        let s = self.state.lock();
        s.shut || s.closed
    }
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
    /// No more will come.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.owner
            .notify(Events::READABLE | Events::RDHUP | Events::HUP);
    }
    /// The owner reads no more.
    pub fn shut(&self) {
        let waiters = {
            let mut s = self.state.lock();
            s.shut = true;
            std::mem::take(&mut s.waiters)
        };
        self.owner
            .notify(Events::READABLE | Events::RDHUP | Events::HUP);
        wake(&waiters);
    }
    /// The owner goes; whether messages were left.
    pub fn close(&self) -> bool {
        let (msgs, waiters) = {
            let mut s = self.state.lock();
            s.closed = true;
            s.bytes = 0;
            s.memory = None;
            (std::mem::take(&mut s.msgs), std::mem::take(&mut s.waiters))
        };
        wake(&waiters);
        !msgs.is_empty()
    }
    /// Throws away what came from others (a datagram socket was connected anew).
    pub fn take_in_flight(&self) -> Vec<InFlight> {
        self.state
            .lock()
            .msgs
            .iter_mut()
            .filter_map(|m| m.files.take())
            .collect()
    }
}

fn wake(waiters: &[Weak<Common>]) {
    for w in waiters {
        if let Some(c) = w.upgrade() {
            c.notify(Events::WRITABLE);
        }
    }
}

/// Copies as much of `data` as fits.
pub fn put_all(dst: &mut dyn Sink, data: &[u8]) -> Result<usize> {
    let n = data.len().min(dst.remaining());
    if n == 0 { Ok(0) } else { dst.put(&data[..n]) }
}

/// Takes the whole source as one message.
pub fn take_all(src: &mut dyn Source) -> Result<Vec<u8>> {
    let mut v = vec![0; src.remaining()];
    let mut at = 0;
    while at < v.len() {
        match src.take(&mut v[at..])? {
            0 => return Err(abi::errno::EFAULT),
            n => at += n,
        }
    }
    Ok(v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::Filter;
    use crate::ns::NetNamespace;
    use crate::sys::{AF_UNIX, SOCK_DGRAM};

    #[test]
    fn no_program_runs_with_the_lock() {
        let common = Common::new(&NetNamespace::new(), AF_UNIX, SOCK_DGRAM, 0);
        let q = MsgQueue::new(&common, 1);
        let send = |b: &[u8]| {
            let mut is_free = false;
            let r = q.send(&common, 4096, 10, || {
                is_free = q.state.try_lock().is_some();
                Ok(Msg {
                    data: b.to_vec(),
                    cred: Ucred::default(),
                    files: None,
                    from: Vec::new(),
                    shown: false,
                })
            });
            (r, is_free)
        };
        assert_eq!(send(b"first"), (Ok(5), false));
        // Three bytes.
        let code = [6, 0, 0, 0, 3, 0, 0, 0];
        common
            .filter
            .set(Some(Arc::new(Filter::new(&code, None).unwrap())));
        assert_eq!(send(b"second"), (Ok(6), true));
        let s = q.state.lock();
        assert_eq!(s.bytes, 8 + 2 * OVERHEAD);
        drop(s);
        q.state.lock().shut = true;
        assert_eq!(send(b"third"), (Err(EPIPE), false));
    }
}
