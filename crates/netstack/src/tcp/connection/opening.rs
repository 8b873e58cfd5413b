//! Fast Open from both sides (RFC 7413): bytes that go with a SYN.
//!
//! # What holds
//!
//! - Bytes go with the first SYN only. What the answer to it does not acknowledge is lost, and goes
//!   again when the connection is there.
//! - The option goes once: a SYN or an answer that goes again is a plain one.
//! - A server's end that a SYN has opened (`began_early`) has all that an established one has, while its
//!   state is [`State::SynReceived`]: its socket reads and writes. Until the peer acknowledges the
//!   answer, that alone is sent again.

use super::ack::Progress;
use super::{BASE, Changes, Connection, State};
use crate::counters::Mib;
use crate::tcp::config::Config;
use crate::tcp::fast_open::{Failed, FastOpen, Form, Learnt};
use crate::tcp::segment::{Segment, Seq};
use crate::time::Instant;

/// What the largest header of a SYN takes beyond one without options (Linux:
/// MAX_TCP_OPTION_SPACE).
const OPTIONS: u16 = 40;

/// How a connection opens.
#[derive(Default)]
pub(super) struct Opening {
    /// The option of the next SYN, or of the answer to one.
    pub option: Option<FastOpen>,
    /// The form in which it was, where there was one.
    form: Option<Form>,
    /// Whether bytes went with the SYN.
    has_data: bool,
    /// Whether the answer acknowledged all of them; of a server's end, whether some came.
    pub syn_data: bool,
    pub failed: Option<Failed>,
    learnt: Option<Learnt>,
    /// Somebody waits for the connection, to send more.
    is_awaited: bool,
    /// A server's end that may be used before the handshake is done.
    pub began_early: bool,
    /// That somebody has accepted.
    is_accepted: bool,
}

impl Connection {
    /// The option of the next SYN: a client's asks for a cookie or shows one, a server's answer gives
    /// one.
    pub fn set_fast_open_option(&mut self, option: Option<FastOpen>) {
        self.opening.form = option.map(|o| o.form);
        self.opening.option = option;
        if option.is_some_and(|o| o.cookie.is_none()) {
            self.opening.failed = Some(Failed::CookieUnavailable);
        }
    }

    /// Has `fill` write what goes with the SYN, which was not sent: as much as a segment of a peer
    /// that takes `mss` has room for. Tells how many bytes these are.
    ///
    /// # Errors
    /// What `fill` gives.
    pub fn write_with_syn<E>(
        &mut self,
        mss: u16,
        fill: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if self.state != State::SynSent || self.snd.nxt != BASE || self.opening.has_data {
            return Ok(0);
        }
        let room = self.config.mss.min(mss).saturating_sub(OPTIONS);
        let n = self.snd.buffer.fill(usize::from(room), fill)?;
        self.snd.pushed = self.snd.buffer.end();
        self.opening.has_data = n > 0;
        if n > 0 {
            // It stays a segment of its own.
            self.end_record();
        }
        Ok(n)
    }

    /// The bytes that go with the SYN went.
    pub(super) fn syn_data_went(&mut self, now: Instant, len: u64) {
        let end = BASE + 1 + len;
        self.snd.board.send(BASE + 1, end, now);
        self.snd.nxt = end;
        self.snd.last = now;
        self.counts.data_out += 1;
        self.counts.bytes_out += len;
        self.note(Mib::ExtOrigDataSent);
    }

    /// The answer to a SYN of ours came, and was taken: what it says of the bytes that went with
    /// that, and those that it brings.
    pub(super) fn answer_came(&mut self, now: Instant, segment: &Segment) -> Changes {
        let h = &segment.header;
        if self.opening.form.is_none() && !self.opening.has_data {
            return Changes::empty();
        }
        let was_resent = self.counts.resent > 0;
        let form = self.opening.form;
        let answer = h.options.fast_open.filter(|_| form.is_some());
        let is_refused = answer.is_none() && !was_resent && !self.opening.has_data;
        self.opening.learnt = Some(Learnt {
            mss: self.snd.peer_mss,
            cookie: answer.filter(|o| o.cookie.is_some()),
            refused: form.filter(|_| is_refused),
        });
        if self.opening.has_data {
            let ack = self.snd.place(h.ack);
            self.take_deliveries(now, h, ack, &mut Progress::default());
            self.opening.syn_data = self.snd.una == self.snd.nxt;
            if self.opening.syn_data {
                self.note(Mib::ExtFastOpenActive);
                // It is one with its SYN (`tcp_rcv_fastopen_synack`).
                self.counts.delivered = 0;
            } else {
                self.note(Mib::ExtFastOpenActiveFail);
                self.opening.failed = Some(match was_resent {
                    true => Failed::SynRetransmitted,
                    false => Failed::DataNotAcked,
                });
                // No sign of congestion.
                self.snd.board.lose_all();
            }
        }
        self.take_text(now, segment.clone(), BASE + 1)
    }

    /// Somebody waits for the connection, to send more: that acknowledges the answer to the SYN, too
    /// (`tcp_rcv_synsent_state_process`).
    pub fn await_to_write(&mut self) {
        self.opening.is_awaited = self.state == State::SynSent;
    }

    /// Acknowledges the answer to the SYN.
    pub(super) fn acknowledge_answer(&mut self, now: Instant) {
        self.acking.offer(self.rcv.next());
        match self.opening.is_awaited {
            true => self.acknowledge_later(now),
            false => self.acking.now(),
        }
    }

    /// What the answer to its SYN has told for the next connection to the peer, once.
    pub fn take_learnt(&mut self) -> Option<Learnt> {
        self.opening.learnt.take()
    }

    /// The answer to a SYN that was found to be good for this: the connection can be used at once.
    /// What came with it is there to be read.
    #[must_use]
    pub fn accept_fast(config: Config, iss: Seq, now: Instant, syn: &Segment) -> Connection {
        let mut c = Connection::accept(config, iss, now, syn);
        c.opening.began_early = true;
        c.opening.syn_data = !syn.payload.is_empty();
        (c.snd.una, c.snd.nxt) = (BASE + 1, BASE + 1);
        c.rcv.edge = c.target_edge();
        c.rcv.tuning.start(now, c.rcv.next());
        if c.opening.syn_data {
            c.counts.data_in += 1;
            let _ = c.take_payload(now, syn.payload.clone(), BASE + 1, 1);
        }
        c
    }

    /// Whether its socket may be used before its handshake is done.
    #[must_use]
    pub fn is_open_early(&self) -> bool {
        self.opening.began_early && self.state == State::SynReceived
    }

    /// The state, as its socket's calls go by it.
    #[must_use]
    pub fn standing(&self) -> State {
        match self.is_open_early() {
            true if self.snd.fin => State::FinWait1,
            true => State::Established,
            false => self.state,
        }
    }

    /// Somebody has accepted it: errors end it no more easily than one that is established
    /// (`tcp_v4_err`).
    pub fn accepted(&mut self) {
        self.opening.is_accepted = true;
    }

    /// Whether it ends when the peer is said not to be reached.
    pub(super) fn is_being_made(&self) -> bool {
        match self.state {
            State::SynSent => true,
            State::SynReceived => !self.opening.began_early || !self.opening.is_accepted,
            _ => false,
        }
    }
}
