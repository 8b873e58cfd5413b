//! `struct tcp_info` (`linux/tcp.h`).

use crate::inet::INFO_LEN;
use netstack::ip::Path;
use netstack::tcp::{Info, Phase, State};
use netstack::time::Instant;
use std::time::Duration;

/// What the option of timestamps takes of a segment.
const TIMESTAMPS: u16 = 12;

/// The state's number (`net/tcp_states.h`).
pub(super) fn number(s: State) -> u8 {
    match s {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

fn micros(d: Duration) -> u32 {
    u32::try_from(d.as_micros()).unwrap_or(u32::MAX)
}

fn millis(now: Instant, then: Instant) -> u32 {
    u32::try_from(now.since(then).as_millis()).unwrap_or(u32::MAX)
}

fn small(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// What is told in single bytes, and in their bits.
fn put_bytes(i: &Info, v: &mut [u8]) {
    v[0] = number(i.state);
    v[1] = match i.phase {
        Phase::Open => 0,
        Phase::Slowed => 2,
        Phase::Recovery => 3,
        Phase::Loss => 4,
    };
    v[2] = i.backoff.min(255) as u8;
    v[3] = i.probes.min(255) as u8;
    v[4] = i.backoff.min(255) as u8;
    v[5] = u8::from(i.timestamps) | u8::from(i.sack) << 1 | u8::from(i.window_scaling) << 2;
    v[5] |= u8::from(i.ecn) << 3 | u8::from(i.ecn_seen) << 4 | u8::from(i.syn_data) << 5;
    v[6] = i.send_scale & 15 | i.receive_scale << 4;
    v[7] = i.fast_open_failed.map_or(0, |f| (f as u8) << 1);
}

/// All of it that there is; what is not measured is 0.
pub(super) fn encode(i: &Info, path: &Path, now: Instant) -> Vec<u8> {
    let mut v = vec![0; INFO_LEN];
    put_bytes(i, &mut v);
    let mss = i.send_mss.max(1);
    let segments = |bytes: u64| match bytes {
        // No threshold yet.
        u64::MAX => 0x7fff_ffff,
        n => small(n.div_ceil(mss)),
    };
    let stamps = if i.timestamps { TIMESTAMPS } else { 0 };
    let advertised = i.advertised_mss.saturating_sub(stamps);
    for (at, n) in [
        (8, micros(i.timeout)),
        (12, micros(i.delayed_ack)),
        (16, small(i.send_mss)),
        (20, small(i.receive_mss)),
        (24, small(i.unacked)),
        (28, small(i.sacked)),
        (32, small(i.lost)),
        (36, small(i.retransmitted)),
        (44, millis(now, i.last_data_sent)),
        (52, millis(now, i.last_data_received)),
        (56, millis(now, i.last_ack_received)),
        (60, path.mtu),
        (64, small(i.receive_window)),
        (68, micros(i.rtt)),
        (72, micros(i.rtt_variance)),
        (76, segments(i.slow_start_threshold)),
        (80, segments(i.congestion_window)),
        (84, advertised.into()),
        (88, i.reordering),
        (92, micros(i.receive_rtt)),
        (96, small(i.receive_space)),
        (100, small(i.total_retransmitted)),
        (136, small(i.segments_out)),
        (140, small(i.segments_in)),
        (144, small(i.unsent)),
        (148, micros(i.least_rtt)),
        (152, small(i.data_segments_in)),
        (156, small(i.data_segments_out)),
        (
            192,
            segments(i.bytes_delivered) + u32::from(i.syn_delivered),
        ),
        (216, small(i.duplicates_told)),
        (220, i.reordering_seen.into()),
        (224, small(i.out_of_order)),
        (228, small(i.send_window)),
        (232, small(i.receive_window)),
        (240, i.timeouts.min(u16::MAX.into()) as u32),
        (248, small(i.congestion_marks)),
    ] {
        v[at..at + 4].copy_from_slice(&n.to_le_bytes());
    }
    let (busy, by_window) = i.busy.times(now);
    for (at, n) in [
        (104, i.pacing_rate),
        // Pacing has no limit.
        (112, u64::MAX),
        (120, i.bytes_acked),
        (128, i.bytes_received),
        (160, i.delivery_rate),
        (168, busy.as_micros() as u64),
        (176, by_window.as_micros() as u64),
        (200, i.bytes_sent),
        (208, i.bytes_retransmitted),
    ] {
        v[at..at + 8].copy_from_slice(&n.to_le_bytes());
    }
    v
}
