//! Fast Open (RFC 7413, `tcp(7)`): how a socket asks for it, and how many connections a listener has
//! that began so. What a namespace knows for it is in [`crate::fast_open`], what goes by segments in
//! `netstack::tcp::connection::opening`; connections that are joined in memory have no SYN, and are
//! as those of a client without a cookie.
//!
//! # What holds
//!
//! - A connection that began so counts for its listener ([`EarlyOpen`]) until its handshake is
//!   done. One that was reset before counts on for [`RESET_COUNTS`]: who sends SYNs by others' names
//!   cannot have more than `TCP_FASTOPEN` says (RFC 7413 5.1).

use super::{Listener, Outside, Phase, State, Tcp};
use crate::addr::family_of;
use crate::fast_open::{
    ALL_LISTENERS, Attempt, CLIENT, CLIENT_WITHOUT_COOKIE, SERVER, SERVER_WITHOUT_COOKIE,
};
use crate::inet::{TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE};
use crate::protocol::{Block, Caller};
use crate::sys::*;
use abi::Result;
use abi::errno::{EAGAIN, EINVAL, EISCONN, EOPNOTSUPP};
use netstack::counters::Mib;
use netstack::ip::Pair;
use netstack::tcp::Segment;
use netstack::tcp::fast_open::{Cookie, FastOpen};
use netstack::time::Instant;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Source;

/// How many connections of a listener are open early at most, whatever TCP_FASTOPEN says.
const EARLY_MOST: usize = 4096;
/// How long a connection counts that was reset before its handshake was done, in seconds (Linux:
/// reqsk_fastopen_remove).
const RESET_COUNTS: u64 = 60;

/// A listener's connections that began so.
#[derive(Default)]
pub(super) struct Queue {
    /// Those that are there.
    open: usize,
    /// Those that were reset, by the second when that was.
    reset: VecDeque<(u64, usize)>,
}

impl Queue {
    /// Whether one more may begin so, of `most` (`tcp_fastopen_queue_check`); it counts then.
    fn take(&mut self, most: usize, now: Instant) -> bool {
        let may = self.has_room(most, now);
        self.open += usize::from(may);
        may
    }

    fn has_room(&mut self, most: usize, now: Instant) -> bool {
        self.forget(now);
        let reset: usize = self.reset.iter().map(|(_, n)| n).sum();
        self.open + reset < most
    }

    /// One of those that are there was reset.
    fn was_reset(&mut self, now: Instant) {
        self.open -= 1;
        self.forget(now);
        let second = now.millis() / 1000;
        match self.reset.back_mut() {
            Some((at, n)) if *at == second => *n += 1,
            _ => self.reset.push_back((second, 1)),
        }
    }

    fn forget(&mut self, now: Instant) {
        let least = (now.millis() / 1000).saturating_sub(RESET_COUNTS);
        while self.reset.front().is_some_and(|(at, _)| *at < least) {
            self.reset.pop_front();
        }
    }
}

/// A connection that counts for its listener.
pub(crate) struct EarlyOpen {
    listener: Arc<Listener>,
    is_over: bool,
}

impl EarlyOpen {
    /// It was reset before its handshake was done.
    pub fn was_reset(mut self, now: Instant) {
        self.is_over = true;
        self.listener.early.lock().was_reset(now);
    }
}

impl Drop for EarlyOpen {
    fn drop(&mut self) {
        if !self.is_over {
            self.listener.early.lock().open -= 1;
        }
    }
}

/// What a listener makes of a SYN.
#[derive(Default)]
pub(crate) struct Greeting {
    /// The connection is there at once.
    pub early: Option<EarlyOpen>,
    /// The option of the answer.
    pub option: Option<FastOpen>,
    /// What is counted where the connection is not there at once.
    pub missed: Option<Mib>,
}

impl Greeting {
    fn missed(mib: Mib) -> Greeting {
        Greeting {
            missed: Some(mib),
            ..Greeting::default()
        }
    }
}

impl Listener {
    /// `tcp_try_fastopen`.
    pub(crate) fn greet(self: &Arc<Self>, pair: Pair, syn: &Segment, now: Instant) -> Greeting {
        let asked = syn.header.options.fast_open;
        if asked.is_none() && syn.payload.is_empty() {
            return Greeting::default();
        }
        let ns = &self.common.ns;
        let setting = ns.fast_open_setting();
        let most = self.most_early();
        if setting & SERVER == 0 || most == 0 {
            return Greeting::default();
        }
        if !self.early.lock().has_room(most, now) {
            return Greeting::missed(Mib::ExtFastOpenListenOverflow);
        }
        let needs_cookie = setting & SERVER_WITHOUT_COOKIE == 0
            && !self.options.on(SOL_TCP, TCP_FASTOPEN_NO_COOKIE);
        if !needs_cookie {
            return Greeting {
                early: self.open_early(now),
                ..Greeting::default()
            };
        }
        let Some(asked) = asked else {
            return Greeting::default();
        };
        let keys = self.options.fast_open_keys();
        let keys = keys.unwrap_or_else(|| ns.fast_open.keys());
        let made = |key| Cookie::made(key, pair.remote.ip(), pair.local.ip());
        let active = made(&keys.active);
        let is_of = |c: &Cookie| asked.cookie == Some(*c);
        let is_new = is_of(&active);
        let is_good = is_new || keys.backup.as_ref().map(made).is_some_and(|c| is_of(&c));
        let answer = FastOpen {
            cookie: Some(active),
            form: asked.form,
        };
        Greeting {
            early: if is_good { self.open_early(now) } else { None },
            option: Some(answer).filter(|_| !is_new),
            missed: match asked.cookie {
                None => Some(Mib::ExtFastOpenCookieReqd),
                Some(_) => (!is_good).then_some(Mib::ExtFastOpenPassiveFail),
            },
        }
    }

    fn most_early(&self) -> usize {
        let most = self.options.value(SOL_TCP, TCP_FASTOPEN);
        usize::try_from(most).unwrap_or(0).min(EARLY_MOST)
    }

    /// One more begins so, if it may. Where memory lacks, none does: what its SYN brought comes again.
    fn open_early(self: &Arc<Self>, now: Instant) -> Option<EarlyOpen> {
        if self.common.lacks_tcp_memory() || self.common.is_pressed() {
            return None;
        }
        let may = self.early.lock().take(self.most_early(), now);
        may.then(|| EarlyOpen {
            listener: self.clone(),
            is_over: false,
        })
    }
}

/// How a connection begins.
pub(super) enum Opens<'a> {
    /// By `connect`.
    Plainly,
    /// By a send: what it has goes with the SYN. It is told for which segments of which connection,
    /// where some may go: the SYN waits for that then.
    BySend(&'a mut Option<(u16, Arc<dyn Outside>)>),
}

impl Tcp {
    /// What a SYN of this socket may do.
    pub(super) fn attempt(&self, local: IpAddr, remote: IpAddr) -> Attempt {
        let ns = &self.common.ns;
        let needs_cookie = ns.fast_open_setting() & CLIENT_WITHOUT_COOKIE == 0
            && !self.options.on(SOL_TCP, TCP_FASTOPEN_NO_COOKIE);
        ns.fast_open.attempt(local, remote, needs_cookie)
    }

    /// A send that begins a connection, or completes a connect: how many bytes went with the SYN;
    /// none where it is to go on as any send.
    pub(super) fn open_by_sending(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        flags: u32,
    ) -> Result<Option<usize>> {
        let before = src.remaining();
        let dest = dest.unwrap_or_default();
        if flags & MSG_FASTOPEN != 0 {
            let is_off = self.common.ns.fast_open_setting() & CLIENT == 0;
            if is_off || family_of(dest) == Ok(AF_UNSPEC) {
                return Err(EOPNOTSUPP);
            }
        }
        let block = match flags & MSG_DONTWAIT {
            0 => Block::Yes,
            _ => Block::No,
        };
        let mut data = None;
        let opens = Opens::BySend(&mut data);
        let mut s = self.state.write();
        let begun = match std::mem::replace(&mut s.phase, Phase::Idle) {
            Phase::AwaitsData(between) => self.begin(s, &between, block, opens),
            phase => {
                s.phase = phase;
                if flags & MSG_FASTOPEN == 0 {
                    // Another has begun it.
                    return Ok(None);
                }
                self.start(s, who, dest, block, opens)
            }
        };
        if let Some((mss, o)) = data
            && o.send_with_syn(mss, src, block) > 0
        {
            self.common.sets_opens_by_send();
            return Ok(Some(before - src.remaining()));
        }
        begun.map(|()| None)
    }

    /// See [`crate::protocol::Protocol::finish_opening`].
    pub(super) fn try_finish_opening(&self) -> Result<()> {
        let mut s = self.state.write();
        let Phase::Outside(o) = &s.phase else {
            return Ok(());
        };
        match o.again() {
            None | Some(Ok(()) | Err(EISCONN)) => Ok(()),
            Some(Err(EAGAIN)) => Err(EAGAIN),
            Some(failed) => {
                s.phase = Phase::Idle;
                s.unconnect(&self.common);
                failed
            }
        }
    }

    /// What a connect's SYN may do: by TCP_FASTOPEN_CONNECT it waits for what goes with it, or else
    /// asks for a cookie (`tcp_fastopen_defer_connect`).
    pub(super) fn plain_attempt(&self, local: IpAddr, remote: IpAddr) -> Attempt {
        match self.options.on(SOL_TCP, TCP_FASTOPEN_CONNECT) {
            true => self.attempt(local, remote),
            false => Attempt::default(),
        }
    }

    /// TCP_FASTOPEN_CONNECT, TCP_FASTOPEN: what is checked beside their ranges.
    pub(super) fn check_fast_open(&self, name: i32, s: &State) -> Result<()> {
        let is_off = self.common.ns.fast_open_setting() & CLIENT == 0;
        match (name, &s.phase) {
            (TCP_FASTOPEN_CONNECT, _) if is_off => Err(EOPNOTSUPP),
            (TCP_FASTOPEN_CONNECT, Phase::Listening(_)) => Err(EINVAL),
            (_, Phase::Idle | Phase::Refused | Phase::Listening(_)) => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// TCP_FASTOPEN was set: no more than may wait to be accepted.
    pub(super) fn bound_fast_open(&self) {
        let ns = &self.common.ns;
        let most = ns.somaxconn.load(Ordering::Relaxed);
        let asked = self.options.value(SOL_TCP, TCP_FASTOPEN) as u32;
        self.options
            .keep(SOL_TCP, TCP_FASTOPEN, asked.min(most) as i32);
        ns.fast_open.make_keys();
    }

    /// A socket begins to listen: some settings give it Fast Open (`inet_listen`).
    pub(super) fn listens_fast(&self, backlog: usize) {
        let setting = self.common.ns.fast_open_setting();
        let all = SERVER | ALL_LISTENERS;
        if setting & all == all && self.options.value(SOL_TCP, TCP_FASTOPEN) == 0 {
            let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
            self.options.keep(SOL_TCP, TCP_FASTOPEN, backlog);
            self.common.ns.fast_open.make_keys();
        }
    }

    /// TCP_FASTOPEN_KEY: the socket's own keys.
    pub(super) fn fast_open_key(&self) -> Vec<u8> {
        let keys = self.options.fast_open_keys();
        keys.map_or(Vec::new(), |k| k.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_count_for_a_minute() {
        let at = |s: u64| Instant(s * 1_000_000_000);
        let mut q = Queue::default();
        assert!(q.take(2, at(10)) && q.take(2, at(10)) && !q.take(2, at(10)));
        q.was_reset(at(11));
        q.open -= 1;
        // One was reset, one is over.
        assert!(q.take(2, at(12)) && !q.take(2, at(70)));
        assert!(q.take(2, at(72)) && !q.take(2, at(72)));
        // Many that are reset take no memory each.
        for n in 0..100_000 {
            assert!(q.take(usize::MAX, at(100 + n / 1000)));
            q.was_reset(at(100 + n / 1000));
        }
        assert!(q.reset.len() <= 62);
    }
}
