//! Explicit congestion notification (RFC 3168; Linux's `tcp_ecn.h`).
//!
//! Both ends say in their SYNs that they can. Then new data goes in packets that a network may mark
//! instead of dropping them; who gets a marked one says so in all it sends (ECE) until its peer
//! says that it has slowed down (CWR), which it does once in a window, as for a loss. What is sent
//! again, and what carries no data, is not to be marked (6.1.4, 6.1.5).

use super::{Connection, State};
use crate::tcp::config::Ecn;
use crate::tcp::segment::{Flags, Header, Segment};

/// See the module.
#[derive(Default)]
pub(super) struct Marks {
    /// Both ends can.
    pub is_on: bool,
    /// A mark came that the peer has not answered by slowing down: it is told of it.
    is_told: bool,
    /// The peer's packets can be marked.
    is_seen: bool,
    /// The peer is to know that we have slowed down.
    slowed: bool,
}

impl Marks {
    pub fn is_seen(&self) -> bool {
        self.is_seen
    }
}

/// A SYN that asks for it.
const ASKS: Flags = Flags::ECE.union(Flags::CWR);

impl Connection {
    /// What the peer's SYN says of it. (A SYN that may be marked itself says nothing.)
    pub(super) fn take_syn_marks(&mut self, syn: &Header) {
        let said = syn.flags & ASKS;
        self.marks.is_on = match (self.state, syn.flags.contains(Flags::ACK)) {
            (State::SynSent, true) => self.config.ecn == Ecn::Asks && said == Flags::ECE,
            (State::SynSent, false) => self.config.ecn == Ecn::Asks && said == ASKS,
            _ => self.config.ecn != Ecn::Off && said == ASKS && !syn.can_be_marked,
        };
    }

    /// What a SYN of ours says. One that is sent again does not ask: some networks drop those that
    /// do (6.1.1.1).
    pub(super) fn syn_marks(&self) -> Flags {
        let is_first = self.counts.syn_retransmits == 0;
        match self.state {
            State::SynReceived if self.marks.is_on => Flags::ECE,
            State::SynSent if self.config.ecn == Ecn::Asks && is_first => ASKS,
            _ => Flags::empty(),
        }
    }

    /// What each segment says.
    pub(super) fn told_marks(&self) -> Flags {
        match self.marks.is_told {
            true => Flags::ECE,
            false => Flags::empty(),
        }
    }

    /// New data may be marked, and says that we have slowed down.
    pub(super) fn mark_new(&self, h: &mut Header) {
        if self.marks.is_on {
            h.can_be_marked = true;
            if self.marks.slowed {
                h.flags |= Flags::CWR;
            }
        }
    }

    /// New data went.
    pub(super) fn new_went(&mut self) {
        self.marks.slowed = false;
    }

    /// Whether the next piece is to be one segment: only that one says that we have slowed down.
    pub(super) fn says_slowed(&self) -> bool {
        self.marks.slowed
    }

    /// We have slowed down.
    pub(super) fn slowed(&mut self) {
        self.marks.slowed = self.marks.is_on;
    }

    /// Data came (`tcp_ecn_accept_cwr`, `tcp_data_ecn_check`).
    pub(super) fn take_marks(&mut self, segment: &Segment) {
        if !self.marks.is_on || segment.payload.is_empty() {
            return;
        }
        let h = &segment.header;
        if h.flags.contains(Flags::CWR) {
            self.marks.is_told = false;
            // Its window may be as small as one segment.
            self.acking.now();
        }
        if segment.congestion {
            if !self.marks.is_told {
                self.acking.quicken_by(2);
                self.acking.now();
            }
            self.marks.is_told = true;
        } else if !h.can_be_marked && self.marks.is_seen {
            // It is probably sent again.
            self.acking.quicken_by(2);
        }
        self.marks.is_seen |= h.can_be_marked;
    }

    /// Whether an acknowledgement says that the network is full.
    pub(super) fn is_told_full(&self, h: &Header) -> bool {
        self.marks.is_on && h.flags & (Flags::ECE | Flags::SYN) == Flags::ECE
    }
}
