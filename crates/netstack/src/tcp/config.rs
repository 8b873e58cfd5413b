//! What a connection is told from outside.

use std::time::Duration;

/// SO_KEEPALIVE and its three times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    pub is_on: bool,
    /// The silence after which the first probe goes.
    pub idle: Duration,
    pub interval: Duration,
    /// How many probes remain without an answer before the connection is given up.
    pub count: u32,
}

impl Default for KeepAlive {
    fn default() -> KeepAlive {
        KeepAlive {
            is_on: false,
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            count: 9,
        }
    }
}

/// Which algorithm grows the congestion window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Congestion {
    #[default]
    Cubic,
    Reno,
}

/// Whether explicit congestion notification is used (net.ipv4.tcp_ecn).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    Off,
    Asks,
    /// Where the peer asks.
    #[default]
    Answers,
}

/// What a connection is told from outside: options of its socket, the path, the system's settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The largest payload without options that the path's MTU permits (MTU - IP header - 20).
    pub mss: u16,
    /// The most payload bytes of one emitted piece, floored to a multiple of what a segment takes.
    /// 0: one segment each.
    pub gso_max: u32,
    /// How many bytes the send buffer holds now.
    pub send_buffer: usize,
    /// How many bytes are received beyond what is read, now.
    pub receive_buffer: usize,
    /// Up to which `send_buffer` grows by itself.
    pub send_most: usize,
    /// Up to which `receive_buffer` grows by itself.
    pub receive_most: usize,
    /// A window that the scale is to be enough for, beside that of `receive_most`.
    pub scale_for: usize,
    /// A received payload of at least this length is kept without copying. It is to be at least
    /// half of the chunks that payloads are slices of: no more than twice the payload is pinned.
    pub share_from: usize,
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// TCP_CORK: no partial segment until a time-out is over.
    pub cork: bool,
    pub keep_alive: KeepAlive,
    /// TCP_USER_TIMEOUT.
    pub user_timeout: Option<Duration>,
    /// For as long as so many doublings of a second take, and the first time-outs that are not
    /// doubled, a SYN is sent again (`tcp_write_timeout`).
    pub syn_retries: u8,
    /// How many time-outs of a SYN double nothing (tcp_syn_linear_timeouts).
    pub syn_linear: u8,
    /// tcp_retries2: after how many doublings of 200 ms unanswered data end the connection.
    pub retries: u8,
    /// TCP_LINGER2: how long an orphan waits for the peer's FIN; none: 60 s, zero: not at all.
    pub linger2: Option<Duration>,
    pub congestion: Congestion,
    /// TCP_QUICKACK: no acknowledgement is delayed.
    pub quick_ack: bool,
    /// What is added to the milliseconds of the clock ([`super::secret`]).
    pub timestamp_offset: u32,
    /// TCP_WINDOW_CLAMP: the largest window that is offered.
    pub window_clamp: Option<u32>,
    /// TCP_NOTSENT_LOWAT: not writable while more is unsent.
    pub notsent_lowat: Option<usize>,
    /// SO_OOBINLINE: the urgent byte stays in the stream.
    pub urgent_inline: bool,
    /// Which options are asked for and granted (net.ipv4.tcp_timestamps, tcp_sack,
    /// tcp_window_scaling).
    pub timestamps: bool,
    pub sack: bool,
    pub window_scaling: bool,
    /// Whether what came twice is told of (net.ipv4.tcp_dsack).
    pub dsack: bool,
    pub ecn: Ecn,
    /// How many times the answer to a SYN is sent again (net.ipv4.tcp_synack_retries).
    pub answer_retries: u8,
    /// After how many doublings of 200 ms an orphan's unanswered data end it
    /// (net.ipv4.tcp_orphan_retries; Linux takes 8 for 0).
    pub orphan_retries: u8,
    /// How many repetitions of the last acknowledgement tell of a loss where there are no
    /// selective ones (net.ipv4.tcp_reordering).
    pub repetitions: u32,
    /// Whether the tail is probed (net.ipv4.tcp_early_retrans: 3, 4).
    pub tail_probes: bool,
    /// Whether the window begins anew after silence (net.ipv4.tcp_slow_start_after_idle).
    pub slow_start_after_idle: bool,
    pub bursts: Bursts,
}

/// How large a piece is: what goes in a millisecond at most, so that bursts are short. And below
/// which share of the window it waits for an acknowledgement, to be larger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bursts {
    /// That share: one part in so many (net.ipv4.tcp_tso_win_divisor); 0: three segments.
    pub share: u32,
    /// It may have so many segments in any case (net.ipv4.tcp_min_tso_segs).
    pub least: u32,
    /// The rate: this many hundredths of the window in a round trip, in slow start and later
    /// (net.ipv4.tcp_pacing_ss_ratio, tcp_pacing_ca_ratio).
    pub slow_start: u32,
    pub avoidance: u32,
}

impl Default for Bursts {
    fn default() -> Bursts {
        Bursts {
            share: 3,
            least: 2,
            slow_start: 200,
            avoidance: 120,
        }
    }
}

impl Default for Config {
    /// Linux's defaults over Ethernet and IPv4.
    fn default() -> Config {
        Config {
            mss: 1460,
            gso_max: 0,
            send_buffer: 16 << 10,
            receive_buffer: 64 << 10,
            send_most: 4 << 20,
            receive_most: 6 << 20,
            scale_for: 0,
            share_from: 32 << 10,
            no_delay: false,
            cork: false,
            keep_alive: KeepAlive::default(),
            user_timeout: None,
            syn_retries: 6,
            syn_linear: 4,
            retries: 15,
            linger2: None,
            congestion: Congestion::Cubic,
            quick_ack: false,
            timestamp_offset: 0,
            window_clamp: None,
            notsent_lowat: None,
            urgent_inline: false,
            timestamps: true,
            sack: true,
            window_scaling: true,
            dsack: true,
            ecn: Ecn::Answers,
            answer_retries: 5,
            orphan_retries: 8,
            repetitions: 3,
            tail_probes: true,
            slow_start_after_idle: true,
            bursts: Bursts::default(),
        }
    }
}
