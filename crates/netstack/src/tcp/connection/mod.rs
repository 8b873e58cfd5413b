//! One end of a connection: its state and what its parts share.
//!
//! Places in the two streams are 64-bit offsets, so that no order is ever ambiguous: the SYN lies
//! at [`BASE`], the first byte after it, the FIN after the last byte. Only what is read from and
//! written to segments is a [`Seq`].
//!
//! ```text
//! synchronize   the handshake           input      is a segment acceptable, what its bits do
//! ack           what the peer has       recovery   losses, time-outs, what was spurious
//! data          what the peer sends     acking     when and what is acknowledged, the window
//! transmit      all that is sent        timers     what happens without segments
//! opening       bytes that go with a SYN
//! user          write, read, close      info       what TCP_INFO tells
//! black_hole    large segments that vanish
//! ecn           marks of networks that are full
//! ```
//!
//! # What holds
//!
//! - `snd.una <= snd.nxt <= snd.limit()`. The scoreboard covers `una..nxt` without the SYN.
//! - The right edge of the offered window, `rcv.edge`, never goes back.
//! - While something is unacknowledged, or waits for a window or a device, a timer is set.

mod ack;
mod acking;
mod black_hole;
mod data;
mod ecn;
mod info;
mod input;
mod opening;
mod recovery;
mod synchronize;
mod timers;
mod transmit;
mod user;

pub use info::{Busy, Info, Phase};
pub use user::{Take, Urgent, UrgentByte};

use super::config::Config;
use super::congestion::Window;
use super::rack::Rack;
use super::receive_queue::ReceiveQueue;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::segment::{Header, Options, Segment, Seq};
use super::send_buffer::SendBuffer;
use super::time_wait::TimeWait;
use crate::counters::{Mib, Tally};
use crate::time::Instant;
use acking::Acking;
use recovery::Recovery;
use std::collections::VecDeque;
use timers::Timers;

/// Where a SYN lies. High enough that no distance leads below zero.
const BASE: u64 = 1 << 32;
/// The option of timestamps with its padding.
const TIMESTAMPS_LEN: u64 = 12;
/// The smallest segments that a peer or a path can force (Linux: TCP_MIN_SND_MSS).
const LEAST_MSS: u16 = 48;
/// What a peer takes that does not say (RFC 9293 3.7.1).
const DEFAULT_MSS: u16 = 536;

/// RFC 9293 3.3.2, without LISTEN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Why a connection ended before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// ECONNREFUSED: the SYN was answered by a reset.
    Refused,
    /// ECONNRESET.
    Reset,
    /// EPIPE: a reset after the peer's FIN.
    Pipe,
    /// ETIMEDOUT.
    TimedOut,
    /// An errno that [`Connection::unreachable`] was told.
    Unreachable(i32),
}

/// How certain it is that the peer cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// May pass: it ends a connection that is being made on Linux's terms, else it only explains a
    /// time-out.
    Soft(i32),
    /// Ends a connection that is being made, and else explains a time-out.
    Hard(i32),
}

bitflags::bitflags! {
    /// What an event has changed for the socket.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Changes: u16 {
        /// There is more to read.
        const READABLE = 1;
        /// There is room to write again.
        const WRITABLE = 2;
        const ESTABLISHED = 4;
        /// All is over: the state is [`State::Closed`]; [`Connection::take_failure`] has the
        /// reason.
        const ENDED = 8;
        /// The peer's FIN came: after what is readable the stream ends.
        const FIN = 16;
        /// A new urgent mark.
        const URGENT = 32;
        /// The state is [`State::TimeWait`] now: [`Connection::time_wait`] may replace it.
        const TIME_WAIT = 64;
    }
}

/// Sends what a connection has to send.
pub trait Output {
    /// `payload` are pieces of the send buffer. Where they are longer than `mss` together, the
    /// device cuts them there.
    fn emit(&mut self, header: &Header, payload: &[&[u8]], mss: u16) -> Emitted;
}

/// What became of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emitted {
    Sent,
    /// The device takes no more. Nothing counts as sent; it is tried again about 1 ms later
    /// ([`Connection::deadline`]).
    Full,
}

/// What is sent.
struct Sender {
    iss: Seq,
    /// The first place that is not acknowledged, and the first that was not sent.
    una: u64,
    nxt: u64,
    /// The peer's window from `una`, the largest it has offered, and of which place its segment
    /// was.
    window: u64,
    most_window: u64,
    window_from: u64,
    scale: u8,
    /// What the peer takes in a segment, without options.
    peer_mss: u16,
    buffer: SendBuffer,
    /// A FIN follows the last byte.
    fin: bool,
    board: Scoreboard,
    /// The end of the last segment that was not full (Minshall's variant of Nagle's rule).
    small_end: u64,
    /// The end of the last write that was not to be followed by more.
    pushed: u64,
    /// The last write is to be followed by more: what is no whole segment waits for it, or until
    /// the peer says something.
    holds: bool,
    /// Ends of records (MSG_EOR) that are not acknowledged, in their order, at most
    /// [`user::RECORDS`]: no segment has bytes of two.
    records: VecDeque<Record>,
    /// The place after the urgent byte.
    urgent: Option<u64>,
    /// When data was sent last.
    last: Instant,
    /// Whether the congestion window was what stopped the last transmission, and the most that
    /// was out since the last acknowledgement.
    is_limited: bool,
    most_flight: u64,
    usage_until: u64,
}

/// The end of what was written with MSG_EOR.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    end: u64,
    /// That was not to be followed by more.
    ends_write: bool,
}

impl Sender {
    fn new(iss: Seq, now: Instant) -> Sender {
        Sender {
            iss,
            una: BASE,
            nxt: BASE,
            window: 0,
            most_window: 0,
            window_from: 0,
            scale: 0,
            peer_mss: DEFAULT_MSS,
            buffer: SendBuffer::new(BASE + 1),
            fin: false,
            board: Scoreboard::default(),
            small_end: 0,
            pushed: 0,
            holds: false,
            records: VecDeque::new(),
            urgent: None,
            last: now,
            is_limited: false,
            most_flight: 0,
            usage_until: 0,
        }
    }

    fn seq(&self, place: u64) -> Seq {
        self.iss.plus((place - BASE) as u32)
    }

    fn place(&self, seq: Seq) -> u64 {
        self.una
            .wrapping_add_signed(i64::from(seq.distance(self.seq(self.una))))
    }

    /// The place after the last byte, and the FIN where there is one.
    fn limit(&self) -> u64 {
        self.buffer.end() + u64::from(self.fin)
    }

    fn edge(&self) -> u64 {
        self.una + self.window
    }
}

/// What is received.
struct Receiver {
    irs: Seq,
    queue: ReceiveQueue,
    /// The right edge of the offered window.
    edge: u64,
    scale: u8,
    /// The place of the peer's FIN, and whether all before it came.
    fin: Option<u64>,
    fin_came: bool,
    /// Nobody will read: data is answered by a reset.
    is_shut: bool,
    /// The last timestamp that counts (RFC 7323 4.3), and when it came.
    recent: u32,
    recent_at: Instant,
    /// The place after the urgent byte, and the byte.
    urgent: Option<u64>,
    urgent_byte: UrgentByte,
    /// When data came last.
    last: Instant,
    tuning: acking::Tuning,
}

impl Receiver {
    fn next(&self) -> u64 {
        self.queue.next() + u64::from(self.fin_came)
    }

    fn seq(&self, place: u64) -> Seq {
        self.irs.plus((place - BASE) as u32)
    }

    fn place(&self, seq: Seq) -> u64 {
        let next = self.next();
        next.wrapping_add_signed(i64::from(seq.distance(self.seq(next))))
    }
}

/// What the next transmission has to send beside data.
#[derive(Default)]
struct Due {
    /// The SYN, or the answer to one.
    syn: bool,
    /// A segment that asks for an answer: of a keep-alive or a window probe.
    probe: bool,
    /// A last probe of the tail.
    tail: bool,
    /// A partial segment in spite of a cork, Nagle's rule and MSG_MORE.
    partial: bool,
    /// Of a closed window: as much of a segment as it takes.
    sliver: bool,
    /// A reset of this connection, or the answer to a segment that does not fit.
    reset: Option<Header>,
}

/// Which options both ends use.
#[derive(Clone, Copy, Default)]
struct Agreed {
    timestamps: bool,
    sack: bool,
    scaling: bool,
}

/// See the module.
pub struct Connection {
    config: Config,
    state: State,
    failure: Option<Failure>,
    /// What explains a time-out.
    soft: Option<Failure>,
    /// The last time that was told.
    clock: Instant,
    agreed: Agreed,
    snd: Sender,
    rcv: Receiver,
    acking: Acking,
    window: Window,
    recovery: Recovery,
    rack: Rack,
    rtt: Rtt,
    timers: Timers,
    due: Due,
    black_hole: black_hole::BlackHole,
    opening: opening::Opening,
    marks: ecn::Marks,
    /// No socket has it any more.
    is_orphan: bool,
    /// Whether it could be written to when that was told last.
    was_writable: bool,
    counts: info::Counts,
}

impl Connection {
    fn new(config: Config, state: State, iss: Seq, now: Instant) -> Connection {
        let mss = u64::from(config.mss.max(LEAST_MSS));
        let scale = scale_for(&config);
        let share_from = config.share_from;
        Connection {
            window: Window::new(config.congestion, mss),
            state,
            failure: None,
            soft: None,
            clock: now,
            agreed: Agreed::default(),
            snd: Sender::new(iss, now),
            rcv: Receiver {
                irs: Seq(0),
                queue: ReceiveQueue::new(BASE + 1, share_from),
                edge: BASE + 1,
                scale,
                fin: None,
                fin_came: false,
                is_shut: false,
                recent: 0,
                recent_at: now,
                urgent: None,
                urgent_byte: UrgentByte::NotYet,
                last: now,
                tuning: acking::Tuning::new(now),
            },
            acking: Acking::new(now),
            recovery: Recovery::default(),
            rack: Rack::default(),
            rtt: Rtt::default(),
            timers: Timers::default(),
            due: Due {
                syn: true,
                ..Due::default()
            },
            black_hole: black_hole::BlackHole::default(),
            opening: opening::Opening::default(),
            marks: ecn::Marks::default(),
            is_orphan: false,
            was_writable: false,
            counts: info::Counts::new(now),
            config,
        }
    }

    /// A connection that is being made: its SYN goes by [`Self::transmit`].
    #[must_use]
    pub fn connect(config: Config, iss: Seq, now: Instant) -> Connection {
        Connection::new(config, State::SynSent, iss, now)
    }

    /// The answer to a SYN: it goes by [`Self::transmit`].
    #[must_use]
    pub fn accept(config: Config, iss: Seq, now: Instant, syn: &Segment) -> Connection {
        let mut c = Connection::new(config, State::SynReceived, iss, now);
        c.take_syn(now, &syn.header);
        c
    }

    /// A connection whose SYN was answered by a cookie ([`super::secret::Secret::check`]): it is to
    /// be given the segment that brought the cookie back.
    #[must_use]
    pub fn accept_cookie(
        config: Config,
        cookie: &super::secret::Cookie,
        now: Instant,
    ) -> Connection {
        let mut c = Connection::new(config, State::SynReceived, cookie.iss, now);
        let syn = Header {
            seq: cookie.irs,
            options: cookie.options,
            ..Header::default()
        };
        c.take_syn(now, &syn);
        c.due.syn = false;
        c.snd.nxt = BASE + 1;
        c.rcv.edge = c.target_edge();
        c
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Why it ended, once.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes options. What follows from them is sent by [`Self::transmit`].
    pub fn configure(&mut self, f: impl FnOnce(&mut Config)) {
        let (mss, keep_alive) = (self.config.mss, self.config.keep_alive);
        let cork = self.config.cork;
        f(&mut self.config);
        if self.config.congestion != self.window.kind {
            self.window.kind = self.config.congestion;
        }
        if self.config.mss != mss {
            let to = std::mem::replace(&mut self.config.mss, mss);
            self.path_mtu(to);
        }
        if self.config.keep_alive != keep_alive {
            self.set_keep_alive(self.clock);
        }
        if cork && !self.config.cork {
            self.let_go();
            self.timers.cork = None;
        }
        if self.config.quick_ack {
            self.acking.quicken();
        }
    }

    /// What it has counted since it was asked last.
    pub fn take_counts(&mut self) -> Option<Tally> {
        self.counts.tally.take()
    }

    fn note(&mut self, mib: Mib) {
        self.counts.tally.add(mib, 1);
    }

    /// What its queues hold, in bytes of memory.
    pub fn memory(&self) -> usize {
        let records = self.snd.records.capacity() * size_of::<Record>();
        self.snd.buffer.memory() + self.snd.board.memory() + records + self.rcv.queue.memory()
    }

    /// What its receive queue holds of that.
    pub fn receive_memory(&self) -> usize {
        self.rcv.queue.memory()
    }

    /// Forgets what came too early, where there is no memory for it; the peer sends it again
    /// (Linux: tcp_prune_ofo_queue).
    pub fn drop_early(&mut self) {
        if self.rcv.queue.has_early() {
            self.note(Mib::ExtOfoPruned);
        }
        self.rcv.queue.drop_early();
    }

    /// What is left of it in TIME_WAIT. It takes the connection's segments from then on; what is
    /// unread stays here.
    pub fn time_wait(&self) -> Option<TimeWait> {
        let deadline = self.timers.life.filter(|_| self.state == State::TimeWait)?;
        Some(TimeWait::new(
            self.plain_ack(),
            self.agreed.timestamps.then_some(self.rcv.recent),
            deadline,
        ))
    }

    /// The payload of a segment without other options.
    fn mss(&self) -> u64 {
        let path = self
            .black_hole
            .size
            .unwrap_or(u16::MAX)
            .min(self.config.mss);
        let mss = u64::from(self.snd.peer_mss.min(path).max(LEAST_MSS));
        let options = if self.agreed.timestamps {
            TIMESTAMPS_LEN
        } else {
            0
        };
        let mss = mss - options;
        // A window that never was two segments wide: half of it (Linux: tcp_bound_to_half_wnd).
        let most = self.snd.most_window;
        if most > 0 && most < 2 * mss {
            let half = if most > u64::from(DEFAULT_MSS) {
                most / 2
            } else {
                most
            };
            return mss.min(half.max(u64::from(LEAST_MSS) - options));
        }
        mss
    }

    /// The clock of the timestamps.
    fn stamp(&self, now: Instant) -> u32 {
        (now.millis() as u32).wrapping_add(self.config.timestamp_offset)
    }

    /// Whether data may be sent in this state.
    fn is_synchronized(&self) -> bool {
        !matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Closed
        )
    }

    /// All is over.
    fn end(&mut self, failure: Option<Failure>) -> Changes {
        match self.state {
            State::SynSent if failure.is_some() => self.note(Mib::TcpAttemptFails),
            State::Established | State::CloseWait => self.note(Mib::TcpEstabResets),
            _ => {}
        }
        self.state = State::Closed;
        if self.failure.is_none() {
            self.failure = failure;
        }
        self.timers = Timers::default();
        self.due = Due {
            reset: self.due.reset.take(),
            ..Due::default()
        };
        self.acking.done();
        self.counts.busy.set(self.clock, info::Doing::Nothing);
        self.snd.records = VecDeque::new();
        let end = self.snd.limit();
        self.snd.buffer.release(end);
        self.snd.buffer.trim();
        self.snd.board = Scoreboard::default();
        self.snd.una = end.max(self.snd.nxt);
        self.snd.nxt = self.snd.una;
        if self.rcv.is_shut {
            self.rcv.queue.clear();
        }
        Changes::ENDED | Changes::READABLE | Changes::WRITABLE
    }

    fn enter_time_wait(&mut self, now: Instant) -> Changes {
        // (An orphan in FIN_WAIT2 has been counted: `inet_twsk_schedule`.)
        if self.timers.life.is_none() {
            self.note(Mib::ExtTw);
        }
        self.state = State::TimeWait;
        let life = Some(now + super::time_wait::LENGTH);
        self.timers = Timers {
            life,
            delayed_ack: self.timers.delayed_ack,
            ..Timers::default()
        };
        self.snd.buffer.trim();
        Changes::TIME_WAIT
    }

    /// The options that a SYN of ours carries.
    fn syn_options(&self, now: Instant) -> Options {
        let answer = self.state == State::SynReceived;
        let config = &self.config;
        let has = |asked: bool, agreed: bool| asked && (!answer || agreed);
        let timestamps = has(config.timestamps, self.agreed.timestamps);
        Options {
            mss: Some(config.mss),
            window_scale: has(config.window_scaling, self.agreed.scaling).then_some(self.rcv.scale),
            sack_permitted: has(config.sack, self.agreed.sack),
            timestamps: timestamps.then(|| self.timestamps(now)),
            fast_open: self.opening.option,
            ..Options::default()
        }
    }
}

/// The scale with which all can be offered that it may have room for (RFC 7323 2).
pub(in crate::tcp) fn scale_for(config: &Config) -> u8 {
    if !config.window_scaling {
        return 0;
    }
    let most = config.receive_most.max(config.receive_buffer);
    let most = most.max(config.scale_for);
    (0..14)
        .find(|s| most >> s <= usize::from(u16::MAX))
        .unwrap_or(14)
}
