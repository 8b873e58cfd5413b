//! Options of TCP sockets, and TCP_INFO (`tcp(7)`).

use super::{Phase, Tcp};
use crate::fast_open::Keys;
use crate::inet::*;
use crate::ns::NetNamespace;
use crate::options::{SO_ACCEPTCONN, int_of};
use crate::protocol::Protocol;
use crate::stream::End;
use crate::sys::*;
use abi::Result;
use abi::errno::{EADDRNOTAVAIL, EINVAL, ENOENT, ENOPROTOOPT, EOPNOTSUPP, EPERM};
use vfs::Credentials;

/// `net.ipv4.tcp_congestion_control`.
#[must_use]
pub fn default_congestion(ns: &NetNamespace) -> &'static str {
    let n = ns.kept_number(DEFAULT_CONGESTION).unwrap_or(0);
    CONGESTION[usize::try_from(n).unwrap_or(0)]
}

/// Sets it: `ENOENT` where there is none of this name.
pub fn set_default_congestion(ns: &NetNamespace, name: &[u8]) -> Result<()> {
    let n = CONGESTION.iter().position(|c| c.as_bytes() == name);
    let n = n.ok_or(ENOENT)? as i64;
    ns.kept.lock().insert(DEFAULT_CONGESTION, vec![n]);
    Ok(())
}

impl Tcp {
    /// The largest segment: the connection's, else what was set, else what all take (536 bytes).
    fn maxseg(&self) -> i32 {
        let set = self.options.set_values();
        let set = set.iter().find(|v| (v.0, v.1) == (SOL_TCP, TCP_MAXSEG));
        let s = self.state.read();
        match &s.phase {
            Phase::Outside(o) => o.mss().unwrap_or(536),
            // Half of the first window (`tcp_bound_to_half_wnd`).
            Phase::Connected(_) => 32_768,
            _ => set.map(|v| v.2).filter(|n| *n > 0).unwrap_or(536),
        }
    }

    fn set_congestion(&self, v: &[u8]) -> Result<()> {
        let name = v.split(|&b| b == 0).next().unwrap_or(&[]);
        let n = CONGESTION.iter().position(|c| c.as_bytes() == name);
        let n = n.ok_or(ENOENT)? as i32;
        self.options.keep(SOL_TCP, TCP_CONGESTION, n);
        match self.outside() {
            Some(o) => o.set_option(SOL_TCP, TCP_CONGESTION, &n.to_ne_bytes()),
            None => Ok(()),
        }
    }

    fn info(&self) -> Vec<u8> {
        let mut v = vec![0; INFO_LEN];
        v[0] = match &self.state.read().phase {
            Phase::Idle | Phase::Refused => 7,
            Phase::Listening(_) => 10,
            Phase::Connecting { .. } | Phase::AwaitsData(_) => 2,
            Phase::Connected(c) if c.is_dead() => 7,
            Phase::Connected(c) => match (c.rx.ends().end, c.tx.ends().end) {
                (End::Open, End::Open) => 1,
                (End::Open, _) => 5,
                (_, End::Open) => 8,
                _ => 7,
            },
            Phase::Outside(_) => 1,
        };
        let mut put = |at: usize, n: u32| v[at..at + 4].copy_from_slice(&n.to_le_bytes());
        put(8, 204_000); // rto
        put(12, 40_000); // ato
        put(16, 65_483); // snd_mss
        put(20, 65_483); // rcv_mss
        put(60, 65_535); // pmtu
        put(64, 65_483); // rcv_ssthresh
        put(68, 20); // rtt
        put(72, 10); // rttvar
        put(76, 0x7fff_ffff); // snd_ssthresh
        put(80, 10); // snd_cwnd
        put(84, 65_483); // advmss
        put(88, 3); // reordering
        put(96, 65_483); // rcv_space
        v
    }

    pub(super) fn set_by_level(
        &self,
        cred: &Credentials,
        level: i32,
        name: i32,
        v: &[u8],
    ) -> Result<()> {
        const TCP_REPAIR: i32 = 19;
        const TCP_ULP: i32 = 31;
        match (level, name) {
            (SOL_IPV6, _) if self.common.family == AF_INET => return Err(ENOPROTOOPT),
            (SOL_IPV6, IPV6_V6ONLY) if self.state.read().binding.is_some() => return Err(EINVAL),
            (SOL_TCP, TCP_CONGESTION | TCP_ULP) if v.is_empty() => return Err(EINVAL),
            (SOL_TCP, TCP_CONGESTION) => return self.set_congestion(v),
            (SOL_TCP, TCP_FASTOPEN_KEY) => {
                self.options.keep_fast_open_keys(Keys::of_bytes(v)?);
                return Ok(());
            }
            (SOL_TCP, TCP_REPAIR) => return Err(EPERM),
            (SOL_TCP, TCP_ULP) => return Err(ENOENT),
            (SOL_UDP, _) => return Err(ENOPROTOOPT),
            (SOL_TCP, _) if v.len() < 4 => return Err(EINVAL),
            _ => {}
        }
        self.check(level, name, v)?;
        if (level, name) == (SOL_TCP, TCP_SAVE_SYN) && int_of(v)? == 1 {
            // A connection that is there has begun already: nothing is kept.
            let _ = self.need_segments();
        }
        let may_mark = || self.common.may_mark(cred);
        self.options.set(level, name, v, &may_mark)?;
        if (level, name) == (SOL_TCP, TCP_FASTOPEN) {
            self.bound_fast_open();
        }
        if matches!((level, name), (SOL_IP, IP_TOS) | (SOL_IPV6, IPV6_TCLASS)) {
            // The lowest bits are TCP's own (ECN).
            let n = self.options.value(level, name);
            self.options.keep(level, name, n & !3);
        }
        match self.outside() {
            Some(o) => o.set_option(level, name, v),
            None => Ok(()),
        }
    }

    /// What streams do not have, or not in this state.
    fn check(&self, level: i32, name: i32, v: &[u8]) -> Result<()> {
        const FASTOPEN: [i32; 3] = [TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE];
        const IP_RECVFRAGSIZE: i32 = 25;
        let s = self.state.read();
        let phase = &s.phase;
        let is_new = matches!(phase, Phase::Idle | Phase::Listening(_) | Phase::Refused);
        match (level, name) {
            (SOL_IP, IP_RECVFRAGSIZE | IP_MULTICAST_TTL) => Err(EINVAL),
            (SOL_IPV6, IPV6_MULTICAST_IF | IPV6_MULTICAST_HOPS) => Err(ENOPROTOOPT),
            (SOL_TCP, TCP_FASTOPEN_CONNECT | TCP_FASTOPEN_NO_COOKIE)
                if !matches!(int_of(v), Ok(0 | 1)) =>
            {
                Err(EINVAL)
            }
            (SOL_TCP, n) if FASTOPEN.contains(&n) => self.check_fast_open(n, &s),
            (SOL_TCP, TCP_WINDOW_CLAMP) if int_of(v) == Ok(0) && !is_new => Err(EINVAL),
            (SOL_IP, IP_UNICAST_IF) | (SOL_IPV6, IPV6_UNICAST_IF) => {
                let device = i32::from_be_bytes(v.try_into().map_err(|_| EINVAL)?);
                let known = device == 0 || self.common.ns.has_device(device);
                known.then_some(()).ok_or(EADDRNOTAVAIL)
            }
            _ => Ok(()),
        }
    }

    /// Where the peer wanted to go before rules sent it here (`getorigdst`).
    fn original_destination(&self, level: i32) -> Result<Vec<u8>> {
        let s = self.state.read();
        let ends = match &s.phase {
            Phase::Connected(c) => Some((c.local, c.remote)),
            Phase::Outside(o) => Some((o.local(), o.remote())),
            _ => None,
        };
        drop(s);
        let (local, peer) = ends.ok_or(ENOENT)?;
        let family = if level == SOL_IP { AF_INET } else { AF_INET6 };
        if peer.ip.is_ipv4() != (family == AF_INET) {
            return Err(ENOENT);
        }
        let to = self.common.ns.original_destination(local, peer)?;
        Ok(to.encode(family))
    }

    pub(super) fn get_by_level(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        const TCP_INFO: i32 = 11;
        const TCP_CC_INFO: i32 = 26;
        const TCP_ULP: i32 = 31;
        const IP_MTU: i32 = 14;
        const IPV6_MTU: i32 = 24;
        /// Of netfilter, at both levels.
        const SO_ORIGINAL_DST: i32 = 80;
        match (level, name) {
            (SOL_SOCKET, SO_ACCEPTCONN) => {
                let on = matches!(self.state.read().phase, Phase::Listening(_));
                Ok(i32::from(on).to_le_bytes().to_vec())
            }
            (SOL_SOCKET, _) => Err(ENOPROTOOPT),
            (SOL_IPV6, _) if self.common.family == AF_INET => Err(EOPNOTSUPP),
            (SOL_TCP, TCP_INFO) => self.outside().map_or_else(|| Ok(self.info()), |o| o.info()),
            (SOL_TCP, TCP_FASTOPEN_KEY) => Ok(self.fast_open_key()),
            (SOL_TCP, TCP_MAXSEG) => Ok(self.maxseg().to_le_bytes().to_vec()),
            (SOL_TCP, TCP_CONGESTION) => {
                let n = self.options.value(SOL_TCP, TCP_CONGESTION);
                let name = congestion(n as usize);
                let mut v = name.as_bytes().to_vec();
                v.resize(16, 0);
                Ok(v)
            }
            (SOL_IP | SOL_IPV6, SO_ORIGINAL_DST) => self.original_destination(level),
            // Neither CUBIC nor Reno tells anything.
            (SOL_TCP, TCP_ULP | TCP_CC_INFO) => Ok(Vec::new()),
            (SOL_IP, IP_MTU) | (SOL_IPV6, IPV6_MTU) => {
                self.peer_name()?;
                let mtu = self.outside().map_or(65535, |o| o.mtu());
                Ok(mtu.to_le_bytes().to_vec())
            }
            (SOL_IP, IP_PROTOCOL) => {
                let port = self.state.read().local.map_or(0, |l| l.port);
                Ok(i32::from(port).to_le_bytes().to_vec())
            }
            (SOL_IP | SOL_IPV6 | SOL_TCP, _) => self.options.get(level, name),
            _ => Err(foreign(self.common.family)),
        }
    }
}
