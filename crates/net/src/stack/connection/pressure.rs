//! What a connection holds, as its user's and as the sandbox's, and what it does where there is
//! little memory ([`crate::tcp_memory`]).

use super::{Orphan, Out, Remote, State};
use crate::options::Common;
use crate::tcp_memory::{LEAST, Level, Share};
use bytes::Bytes;
use netstack::counters::Mib;
use netstack::tcp::{Flags, Segment};
use netstack::time::Instant;
use std::time::Duration;
use vfs::ucounts::{Charge, Kind};

/// What a connection may hold of a user's memory that is used up; at most its buffers grow to it.
pub(super) const UNDER_PRESSURE: usize = 64 << 10;
/// How long a connection without a socket waits for a peer that takes nothing.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(60);

/// What its queues hold.
pub(super) struct QueueMemory {
    /// As its user's.
    user: Option<Charge>,
    /// As the sandbox's.
    share: Share,
    /// How much memory there was when its buffers were sized.
    level: Level,
}

impl QueueMemory {
    pub fn new(common: &Common) -> QueueMemory {
        QueueMemory {
            user: common.user.get().map(|u| u.force(Kind::Kmem, 0)),
            share: Share::new(&common.ns.tcp_memory),
            level: Level::Enough,
        }
    }

    pub fn set(&mut self, bytes: usize) {
        self.share.set(bytes);
        if let Some(u) = &mut self.user {
            u.set(bytes as u64);
        }
    }
}

impl Remote {
    /// Buffers of a user that has all the memory that it may have grow no more by themselves
    /// (Linux: `tcp_under_memory_pressure`).
    pub(super) fn relieve(&self, s: &mut State) {
        let level = self.common.ns.tcp_memory.level();
        if level < s.held.level {
            // There is more again: buffers are as they were set, and tune themselves.
            s.engine
                .configure(|c| super::super::options::set_buffers(c, &self.common));
        }
        s.held.level = level;
        if s.engine.memory() > UNDER_PRESSURE
            && (level == Level::Pressure || self.common.is_pressed())
        {
            s.engine.configure(|c| {
                c.send_most = c.send_most.min(UNDER_PRESSURE);
                c.send_buffer = c.send_buffer.min(UNDER_PRESSURE);
                c.receive_most = c.receive_most.min(UNDER_PRESSURE);
            });
        }
        if level == Level::None {
            s.engine.configure(|c| {
                (c.send_most, c.send_buffer) = (LEAST, LEAST);
                (c.receive_most, c.receive_buffer) = (LEAST, LEAST);
            });
            s.engine.drop_early();
            s.held.set(s.engine.memory());
        }
    }

    /// Ends an orphan whose peer takes nothing, whatever it answers; or where there is no memory
    /// (`tcp_out_of_resources`).
    pub(super) fn hurry_orphan(&self, s: &mut State, t: Instant) {
        let Some(o) = &mut s.orphan else { return };
        let unsent = s.engine.unsent();
        if unsent == 0 || unsent != o.unsent {
            *o = Orphan { unsent, since: t };
        } else if (t.since(o.since) > ORPHAN_PATIENCE || s.held.level == Level::None) && !s.over {
            self.stack.ip.count(match s.held.level {
                Level::None => Mib::ExtAbortOnMemory,
                _ => Mib::ExtAbortOnTimeout,
            });
            s.told |= s.engine.abort();
            let mut out = Out {
                stack: &self.stack,
                pair: self.pair,
                path: &s.path,
                marks: &s.marks,
                now: t,
            };
            s.told |= s.engine.transmit(t, &mut out);
        }
    }
}

/// There is no memory: a segment brings as much as a queue that holds `held` bytes may have at
/// least. What is cut comes again.
pub(super) fn shorten(segment: &mut Segment, held: usize) {
    let most = LEAST.saturating_sub(held);
    if segment.payload.len() > most {
        segment.payload = Bytes::copy_from_slice(&segment.payload[..most]);
        segment.header.flags.remove(Flags::FIN);
    }
}
