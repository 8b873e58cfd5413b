//! What a socket's options mean for a connection of the stack.

use crate::inet::{
    self, InetOptions, TCP_CONGESTION, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_SYNCNT,
};
use crate::options::{Common, SO_KEEPALIVE, SO_OOBINLINE};
use crate::sys::*;
use netstack::ip::{Marks, Pair, Path, Pmtu};
use netstack::tcp::{Config, Congestion, Ecn};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) const TCP_NODELAY: i32 = 1;
const TCP_MAXSEG: i32 = 2;
pub(super) const TCP_CORK: i32 = 3;
const TCP_LINGER2: i32 = 8;
const TCP_WINDOW_CLAMP: i32 = 10;
const TCP_QUICKACK: i32 = 12;
const TCP_USER_TIMEOUT: i32 = 18;
const TCP_NOTSENT_LOWAT: i32 = 25;

/// Up to which buffers tune themselves: `net.ipv4.tcp_wmem`'s and `tcp_rmem`'s last, where nobody
/// has set these.
const SEND_MOST: usize = 4 << 20;
const RECEIVE_MOST: usize = 6 << 20;
/// What they may be set to is bounded here, beside by the user's memory.
const MOST: usize = 64 << 20;
/// `net.core.rmem_max`.
const RMEM_MAX: usize = 212_992;

/// The largest payload of a segment without options on this way.
pub(super) fn mss(path: &Path, pair: Pair) -> u16 {
    let headers = if pair.remote.is_ipv4() { 40 } else { 60 };
    let most = path.mtu.saturating_sub(headers);
    u16::try_from(most).unwrap_or(u16::MAX).max(64)
}

/// The sizes of a connection's buffers, and whether they are left to the kernel: see
/// [`Common::tunes`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Buffers {
    send: u32,
    receive: u32,
    tunes: (bool, bool),
}

/// The sizes of its buffers: as they are set, or as the kernel makes them.
pub(super) fn buffers(common: &Common) -> Buffers {
    Buffers {
        send: common.connected_sndbuf(),
        receive: common.rcvbuf.load(Ordering::Relaxed),
        tunes: common.tunes(),
    }
}

/// Takes the sizes over: those that nobody has set tune themselves.
pub(super) fn set_buffers(c: &mut Config, common: &Common) {
    let Buffers {
        send,
        receive,
        tunes: (tunes_send, tunes_receive),
    } = buffers(common);
    let most = |name, default| {
        let kept = common.ns.kept_at(name, 2);
        let kept = kept.and_then(|n| usize::try_from(n).ok());
        kept.map_or(default, |n| n.min(MOST))
    };
    c.send_buffer = send as usize;
    c.send_most = match tunes_send {
        true => most("tcp_wmem", SEND_MOST).max(send as usize),
        false => send as usize,
    };
    // Half of it is for what the kernel keeps beside the bytes (`tcp_adv_win_scale`).
    c.receive_buffer = receive as usize / 2;
    (c.receive_most, c.scale_for) = match tunes_receive {
        true => {
            let most = most("tcp_rmem", RECEIVE_MOST);
            let grown = match common.ns.kept_number("tcp_moderate_rcvbuf") {
                Some(0) => receive as usize,
                _ => most.max(receive as usize),
            };
            // `tcp_select_initial_window` takes all of it.
            (grown / 2, most.max(RMEM_MAX))
        }
        false => (receive as usize / 2, 0),
    };
}

/// What a connection begins with.
pub(super) fn config(
    secret: u32,
    path: &Path,
    pair: Pair,
    common: &Common,
    options: &InetOptions,
) -> Config {
    let mut c = Config {
        mss: mss(path, pair),
        gso_max: path.gso_max,
        timestamp_offset: secret,
        ..Config::default()
    };
    set_by_namespace(&mut c, common);
    set_buffers(&mut c, common);
    for (level, name, value) in options.set_values() {
        set(&mut c, level, name, value);
    }
    c.urgent_inline = common.flag(SO_OOBINLINE);
    c.keep_alive.is_on = common.flag(SO_KEEPALIVE);
    c
}

/// What the namespace's settings say, where they were set (`net.ipv4.tcp_*`). Those of buffers:
/// [`set_buffers`]; what a new socket's options begin with: `net::tcp::new`; what counts before
/// there is a connection: `stack::passive`, `tcp::outside`, `net::fast_open`.
fn set_by_namespace(c: &mut Config, common: &Common) {
    let all = common.ns.kept.lock();
    if all.is_empty() {
        return;
    }
    let kept = |name: &str| all.get(name).and_then(|v| v.first()).copied();
    for (name, on) in [
        ("tcp_timestamps", &mut c.timestamps),
        ("tcp_sack", &mut c.sack),
        ("tcp_dsack", &mut c.dsack),
        ("tcp_window_scaling", &mut c.window_scaling),
        ("tcp_slow_start_after_idle", &mut c.slow_start_after_idle),
    ] {
        *on = kept(name).is_none_or(|n| n != 0);
    }
    c.ecn = match kept("tcp_ecn") {
        Some(0) => Ecn::Off,
        Some(1) => Ecn::Asks,
        _ => Ecn::Answers,
    };
    c.tail_probes = kept("tcp_early_retrans").is_none_or(|n| n >= 3);
    c.notsent_lowat = kept("tcp_notsent_lowat")
        .filter(|n| *n < u32::MAX.into())
        .and_then(|n| usize::try_from(n).ok());
    for (name, to) in [
        ("tcp_tso_win_divisor", &mut c.bursts.share),
        ("tcp_min_tso_segs", &mut c.bursts.least),
        ("tcp_pacing_ss_ratio", &mut c.bursts.slow_start),
        ("tcp_pacing_ca_ratio", &mut c.bursts.avoidance),
    ] {
        if let Some(n) = kept(name).and_then(|n| u32::try_from(n).ok()) {
            *to = n;
        }
    }
    for (name, to) in [
        ("tcp_syn_retries", &mut c.syn_retries),
        ("tcp_syn_linear_timeouts", &mut c.syn_linear),
        ("tcp_synack_retries", &mut c.answer_retries),
        ("tcp_retries2", &mut c.retries),
    ] {
        if let Some(n) = kept(name).and_then(|n| u8::try_from(n).ok()) {
            *to = n;
        }
    }
    // (None would be never.)
    let repetitions = kept("tcp_reordering").and_then(|n| u32::try_from(n).ok());
    c.repetitions = repetitions.map_or(c.repetitions, |n| n.max(1));
    let orphan = kept("tcp_orphan_retries").and_then(|n| u8::try_from(n).ok());
    if let Some(n) = orphan.filter(|n| *n > 0) {
        c.orphan_retries = n;
    }
    if let Some(n) = kept("tcp_fin_timeout").and_then(|n| u64::try_from(n).ok()) {
        c.linger2 = Some(Duration::from_secs(n));
    }
}

fn seconds(n: i32) -> Duration {
    Duration::from_secs(n.max(0) as u64)
}

/// One option, with a value that was checked.
pub(super) fn set(c: &mut Config, level: i32, name: i32, value: i32) {
    let on = value != 0;
    if (level, name) == (SOL_SOCKET, SO_OOBINLINE) {
        c.urgent_inline = on;
    }
    if (level, name) == (SOL_SOCKET, SO_KEEPALIVE) {
        c.keep_alive.is_on = on;
    }
    if level != SOL_TCP {
        return;
    }
    match name {
        TCP_NODELAY => c.no_delay = on,
        TCP_CORK => c.cork = on,
        TCP_MAXSEG if value > 0 => c.mss = c.mss.min(u16::try_from(value).unwrap_or(u16::MAX)),
        TCP_SYNCNT => (c.syn_retries, c.answer_retries) = (value as u8, value as u8),
        TCP_KEEPIDLE => c.keep_alive.idle = seconds(value.max(1)),
        TCP_KEEPINTVL => c.keep_alive.interval = seconds(value.max(1)),
        TCP_KEEPCNT => c.keep_alive.count = value as u32,
        TCP_QUICKACK => c.quick_ack = on,
        TCP_LINGER2 => c.linger2 = (value >= 0).then(|| seconds(value)),
        TCP_WINDOW_CLAMP => c.window_clamp = u32::try_from(value).ok().filter(|n| *n > 0),
        TCP_NOTSENT_LOWAT => c.notsent_lowat = usize::try_from(value).ok().filter(|n| *n > 0),
        TCP_CONGESTION => {
            c.congestion = match value {
                1 => Congestion::Reno,
                _ => Congestion::Cubic,
            };
        }
        TCP_USER_TIMEOUT => {
            c.user_timeout = on.then(|| Duration::from_millis(value.max(0) as u64));
        }
        _ => {}
    }
}

/// What its packets carry.
pub(crate) fn marks(common: &Common, options: &InetOptions, to: IpAddr) -> Marks {
    let v4 = |name| options.value(SOL_IP, name);
    let v6 = |name| options.value(SOL_IPV6, name);
    let group = to.is_multicast();
    let (ttl, tos, pmtu) = if to.is_ipv4() {
        let ttl = if group {
            inet::IP_MULTICAST_TTL
        } else {
            inet::IP_TTL
        };
        (v4(ttl), v4(inet::IP_TOS), v4(inet::IP_MTU_DISCOVER))
    } else {
        let hops = if group {
            inet::IPV6_MULTICAST_HOPS
        } else {
            inet::IPV6_UNICAST_HOPS
        };
        // IPV6_DONTFRAG does as IP_PMTUDISC_DO.
        let pmtu = match v6(inet::IPV6_DONTFRAG) {
            0 => v6(inet::IPV6_MTU_DISCOVER),
            _ => 2,
        };
        (v6(hops), v6(inet::IPV6_TCLASS), pmtu)
    };
    Marks {
        ttl: u8::try_from(ttl).unwrap_or(64),
        tos: tos as u8,
        pmtu: match pmtu {
            0 => Pmtu::Dont,
            2 => Pmtu::Do,
            3 => Pmtu::Probe,
            4 => Pmtu::Interface,
            5 => Pmtu::Omit,
            _ => Pmtu::Want,
        },
        mark: common.mark() as u32,
        owner: common.creator.get().map(|c| (c.uid, c.gid)),
        ..Marks::default()
    }
}
