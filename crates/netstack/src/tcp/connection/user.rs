//! What the socket does: write, read, close.

use super::{Changes, Connection, Failure, Record, State, Unreachable};
use crate::counters::Mib;
use crate::tcp::segment::{Flags, Seq};
use crate::time::Instant;

/// Whether a read takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    Out,
    /// Leaves all, and begins after so many bytes.
    Peek {
        skip: usize,
    },
}

/// Where the peer's urgent data ends (RFC 6093).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Urgent {
    /// How many bytes are before the urgent one.
    pub ahead: usize,
    pub byte: UrgentByte,
}

/// How many records a connection knows at most.
pub(super) const RECORDS: usize = 1024;

/// The peer's urgent byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UrgentByte {
    /// It was announced.
    NotYet,
    There(u8),
    /// [`Connection::read_urgent`] took it.
    Taken,
}

impl Connection {
    /// Has `fill` write to pieces of the send buffer's free space, until it fills one not wholly or
    /// there is no more; tells how many bytes were written. An error of the first piece is
    /// returned.
    ///
    /// # Errors
    /// What `fill` gives.
    pub fn write<E>(
        &mut self,
        fill: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let room = self.send_room();
        let n = self.snd.buffer.fill(room, fill)?;
        self.snd.pushed = self.snd.buffer.end();
        self.let_go();
        self.make_room();
        Ok(n)
    }

    /// The same, of what is to be followed by more (MSG_MORE): see `Sender::holds`.
    ///
    /// # Errors
    /// What `fill` gives.
    pub fn write_more<E>(
        &mut self,
        fill: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let room = self.send_room();
        let n = self.snd.buffer.fill(room, fill)?;
        self.snd.holds |= n > 0;
        self.make_room();
        Ok(n)
    }

    /// Nothing is held back where nothing more can be written (Linux: tcp_sendmsg_locked before it
    /// waits for memory).
    fn make_room(&mut self) {
        if self.is_corked() && self.send_room() == 0 {
            self.send_partial();
        }
    }

    /// What was written last is the end of a record (MSG_EOR). Of more than so many the later ones
    /// go as if they were one.
    pub fn end_record(&mut self) {
        let end = self.snd.buffer.end();
        if self.snd.records.len() < RECORDS {
            let ends_write = self.snd.pushed == end;
            self.snd.records.push_back(Record { end, ends_write });
        }
    }

    /// The end of what goes in one piece of `[start, end)`: that of a record, if one is in it.
    pub(super) fn within_record(&self, start: u64, end: u64) -> u64 {
        let records = &self.snd.records;
        let next = records.partition_point(|r| r.end <= start);
        records.get(next).map_or(end, |r| end.min(r.end))
    }

    /// Where what ends at `end` begins, `start` or later: after the record before.
    pub(super) fn start_of_record(&self, start: u64, end: u64) -> u64 {
        let records = &self.snd.records;
        let before = records.partition_point(|r| r.end < end).checked_sub(1);
        before.map_or(start, |n| start.max(records[n].end))
    }

    /// What waits goes in spite of a cork, Nagle's rule and MSG_MORE: TCP_NODELAY is set
    /// (`tcp(7)`), or it has waited for long.
    pub fn send_partial(&mut self) {
        if self.never_sent() > 0 {
            self.due.partial = true;
        }
    }

    /// What waited for more does so no longer.
    pub fn let_go(&mut self) {
        if std::mem::take(&mut self.snd.holds) && !self.config.cork {
            self.timers.cork = None;
        }
    }

    /// The last byte that was written is urgent.
    pub fn mark_urgent(&mut self) {
        self.snd.urgent = Some(self.snd.buffer.end());
    }

    /// How many bytes may be written now.
    pub fn send_room(&self) -> usize {
        let may = matches!(self.standing(), State::Established | State::CloseWait) && !self.snd.fin;
        if !may {
            return 0;
        }
        let room = self
            .config
            .send_buffer
            .saturating_sub(self.snd.buffer.len());
        match self.config.notsent_lowat {
            Some(most) => room.min(self.unsent_room(most)),
            None => room,
        }
    }

    /// How many bytes may be written until `most` are unsent, beside those that go at once. A write
    /// is cut in large pieces only, as Linux's is by what its packets take: half of the largest
    /// window (`tcp_bound_to_half_wnd`).
    fn unsent_room(&self, most: usize) -> usize {
        const PIECE: u64 = 64 << 10;
        let piece = (self.snd.most_window / 2).min(PIECE);
        let piece = (piece / self.mss()).max(1) * self.mss();
        let may_go = self.window.cwnd.saturating_sub(self.in_flight());
        let may_go = may_go.min(self.snd.edge().saturating_sub(self.snd.nxt)) as usize;
        let held = self.never_sent().saturating_sub(may_go);
        if held >= most {
            return 0;
        }
        may_go
            .saturating_sub(self.never_sent())
            .saturating_add(most.max(piece as usize) - held)
    }

    /// How many bytes are written and not acknowledged.
    pub fn unsent(&self) -> usize {
        self.snd.buffer.len()
    }

    /// Places in the stream: after the last byte that was written, that was sent, that the peer
    /// has.
    pub fn written_until(&self) -> u64 {
        self.snd.buffer.end()
    }
    pub fn sent_until(&self) -> u64 {
        self.snd.nxt
    }
    pub fn acknowledged_until(&self) -> u64 {
        self.snd.una
    }

    /// How many bytes are written and were never sent.
    pub fn never_sent(&self) -> usize {
        self.snd
            .buffer
            .end()
            .saturating_sub(self.snd.nxt.max(super::BASE + 1)) as usize
    }

    /// Whether a poller is told that it may write: a third of the buffer is free (Linux:
    /// sk_stream_is_writeable), and no more is unsent than TCP_NOTSENT_LOWAT permits.
    pub fn is_writable(&self) -> bool {
        let room = self.send_room();
        room > 0
            && room >= self.snd.buffer.len() / 2
            && self
                .config
                .notsent_lowat
                .is_none_or(|most| self.never_sent() < most.div_ceil(2))
    }

    /// How many bytes came and were not read, the urgent one with them unless the reader stands
    /// before it.
    pub fn available(&self) -> usize {
        let past = usize::from(self.mark() == Some(0));
        self.rcv.queue.readable().saturating_sub(past)
    }

    /// How many bytes can be read until the urgent mark.
    pub fn readable(&self) -> usize {
        let all = self.rcv.queue.readable();
        match self.mark() {
            Some(0) => all.saturating_sub(1),
            Some(ahead) => all.min(ahead),
            None => all,
        }
    }

    /// Whether all that the peer sent has been read, and it said that it sends no more.
    pub fn is_at_end(&self) -> bool {
        self.rcv.fin_came && self.rcv.queue.readable() == 0
    }

    /// Whether the peer's FIN came.
    pub fn has_fin(&self) -> bool {
        self.rcv.fin_came
    }

    /// How many bytes are before the urgent one, where that is not in the stream.
    fn mark(&self) -> Option<usize> {
        self.urgent_place().filter(|_| !self.config.urgent_inline)
    }

    /// The same, also where it is.
    fn urgent_place(&self) -> Option<usize> {
        let place = self.rcv.urgent?.checked_sub(1)?;
        let read = self.rcv.queue.read_place();
        (place >= read && place < self.rcv.queue.next()).then(|| (place - read) as usize)
    }

    /// Has `put` take what has come, until it takes a piece not wholly or there is no more; tells
    /// how many bytes were taken. A read ends at the urgent mark. [`Self::transmit`] after it tells
    /// the peer where that is worthwhile.
    ///
    /// # Errors
    /// What `put` gives for the first piece.
    pub fn read<E>(
        &mut self,
        take: Take,
        put: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mark = self.mark();
        let stop = self.urgent_place().filter(|&m| m > 0);
        match take {
            Take::Peek { skip } => {
                let past = usize::from(mark == Some(0));
                let most = stop.map_or(usize::MAX, |m| m.saturating_sub(skip));
                self.rcv.queue.peek(skip + past, most, put)
            }
            Take::Out => {
                if mark == Some(0) {
                    self.rcv.queue.discard(1);
                }
                let most = stop.unwrap_or(usize::MAX);
                let n = self.rcv.queue.read(most, put)?;
                self.was_read();
                Ok(n)
            }
        }
    }

    /// Takes at most `n` bytes away unread; tells how many there were.
    pub fn discard(&mut self, n: usize) -> usize {
        let n = self.rcv.queue.discard(n.min(self.readable()));
        self.was_read();
        n
    }

    /// The peer's urgent mark, where it is not behind the reader.
    pub fn urgent(&self) -> Option<Urgent> {
        let place = self.rcv.urgent?.checked_sub(1)?;
        let ahead = place.checked_sub(self.rcv.queue.read_place())? as usize;
        Some(Urgent {
            ahead,
            byte: self.rcv.urgent_byte,
        })
    }

    /// The urgent byte (MSG_OOB); none where there is no mark.
    pub fn read_urgent(&mut self, take: Take) -> Option<UrgentByte> {
        let byte = self.urgent()?.byte;
        if matches!((take, byte), (Take::Out, UrgentByte::There(_))) {
            self.rcv.urgent_byte = UrgentByte::Taken;
        }
        Some(byte)
    }

    /// A FIN follows what is written: shutdown(SHUT_WR).
    pub fn close_write(&mut self) -> Changes {
        if self.snd.fin {
            return Changes::empty();
        }
        match self.state {
            State::SynSent => return self.end(None),
            // The state follows once it is established.
            State::SynReceived => (),
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => return Changes::empty(),
        }
        self.snd.fin = true;
        Changes::empty()
    }

    /// close(2): nobody reads. A FIN follows what is written; where something is unread, a reset
    /// instead (RFC 2525 2.17).
    pub fn close(&mut self) -> Changes {
        self.rcv.is_shut = true;
        let is_unread = self.rcv.queue.readable() > 0;
        self.rcv.queue.clear();
        if is_unread && !matches!(self.state, State::Closed | State::TimeWait) {
            self.note(Mib::ExtAbortOnClose);
            self.reset_peer();
            return self.end(None);
        }
        self.close_write()
    }

    /// Resets the connection.
    pub fn abort(&mut self) -> Changes {
        match self.state {
            State::Closed => return Changes::empty(),
            State::SynSent | State::TimeWait => (),
            _ => self.reset_peer(),
        }
        self.end(None)
    }

    /// Its socket is gone: it lasts as long as it takes the peer to answer, and no longer than an
    /// orphan may.
    pub fn orphan(&mut self, now: Instant) -> Changes {
        self.is_orphan = true;
        self.rcv.is_shut = true;
        if self.state == State::FinWait2 {
            self.await_fin(now)
        } else {
            Changes::empty()
        }
    }

    /// A reset goes with the next transmission.
    pub(super) fn reset_peer(&mut self) {
        let mut h = self.plain_ack();
        h.flags = Flags::RST | Flags::ACK;
        h.window = 0;
        if self.agreed.timestamps {
            h.options.timestamps = Some(self.timestamps(self.clock));
        }
        self.due.reset = Some(h);
    }

    /// The path's MTU has changed: `mss` is the largest payload without options from now on. Where
    /// it is less, what is out is sent again in smaller pieces.
    pub fn path_mtu(&mut self, mss: u16) {
        let before = self.config.mss;
        self.set_mss(|c| {
            c.black_hole = super::black_hole::BlackHole::default();
            c.config.mss = mss.max(super::LEAST_MSS);
        });
        let has_data = self.snd.nxt > super::BASE + 1;
        if self.state == State::SynSent && has_data && mss < before {
            // The SYN was too large by what went with it: it goes again, without.
            self.due.syn = true;
            self.counts.resent += 1;
        }
    }

    /// `change` gives segments another size.
    pub(super) fn set_mss(&mut self, change: impl FnOnce(&mut Connection)) {
        let before = self.mss();
        change(self);
        let now = self.mss();
        if now == before {
            return;
        }
        self.window.set_mss(now);
        if now < before && self.is_synchronized() {
            // No sign of congestion.
            self.snd.board.lose_all();
        }
    }

    /// How far what was sent is acknowledged, from the SYN on.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.snd.una
    }

    /// The first place that is not acknowledged; the SYN's, where its answer can be used early.
    fn first_out(&self) -> u64 {
        match self.is_open_early() {
            true => super::BASE,
            false => self.snd.una,
        }
    }

    /// Whether a byte at `seq` is sent and not acknowledged: what a stranger who tells of it has to
    /// know.
    #[must_use]
    pub fn is_outstanding(&self, seq: Seq) -> bool {
        let place = self.snd.place(seq);
        self.state != State::Closed && self.first_out() <= place && place < self.snd.nxt
    }

    /// An ICMP message said that the peer cannot be reached, of the segment that lay at `seq`.
    pub fn unreachable(&mut self, now: Instant, seq: Seq, how: Unreachable) -> Changes {
        self.clock = now;
        let place = self.snd.place(seq);
        if self.state == State::Closed || place < self.first_out() || place > self.snd.nxt {
            self.note(Mib::ExtOutOfWindowIcmps);
            return Changes::empty();
        }
        let is_made = self.is_being_made();
        match how {
            // (Linux: `tcp_v4_err`, whatever the error is.)
            Unreachable::Hard(errno) | Unreachable::Soft(errno) if is_made => {
                self.end(Some(Failure::Unreachable(errno)))
            }
            Unreachable::Hard(errno) | Unreachable::Soft(errno) => {
                self.soft = Some(Failure::Unreachable(errno));
                Changes::empty()
            }
        }
    }
}
