//! Connections that somebody outside begins.
//!
//! A listener has so many half-open connections at most ([`Listener::may_begin`]). Beyond that a
//! SYN is answered by a cookie, for which nothing is kept (RFC 4987): a flood of SYNs keeps nobody
//! out, and takes no memory. Those that Fast Open has opened early have a limit of their own
//! (`tcp::fast_open`).

use super::connection::{Incoming, Named, Remote, ends};
use super::table::Late;
use super::{Stack, endpoint, options};
use crate::addr::Endpoint;
use crate::bindings::Coming;
use crate::clock::now;
use crate::filters::Filter;
use crate::frames::Framed;
use crate::inet::InetOptions;
use crate::interface::stays;
use crate::ns::NetNamespace;
use crate::tcp::{Begin, Listener, Refusal};
use netstack::counters::Mib;
use netstack::ip::{Cast, Info, Pair, Path, Taken};
use netstack::tcp::{Config, Connection, Flags, Header, Segment, Seq, TimeWaitAnswer};
use netstack::time::Instant;
use std::sync::Arc;

impl Stack {
    /// A segment of no live connection.
    pub(super) fn stranger(
        &self,
        now: Instant,
        pair: Pair,
        segment: Segment,
        info: &Info,
    ) -> Taken {
        if info.cast != Cast::Unicast {
            return Taken::Yes;
        }
        let Some(ns) = self.ns.upgrade() else {
            return Taken::Yes;
        };
        let stamp = (now.millis() as u32).wrapping_add(self.secret.timestamp_offset(&ends(pair)));
        match self.connections.late(&ns, now, stamp, &pair, &segment) {
            Late::Unknown | Late::Answer(TimeWaitAnswer::Gone) => {
                self.begin(&ns, now, pair, segment, info, None)
            }
            Late::Answer(TimeWaitAnswer::Recycle(least)) => {
                self.begin(&ns, now, pair, segment, info, Some(least))
            }
            Late::Answer(TimeWaitAnswer::Acknowledge(header)) => {
                if let Ok(path) = self.path(pair.remote.ip(), Some(pair.local.ip()))
                    && !self.leads_out(&path, info)
                {
                    self.answer(now, &path, pair, &header);
                }
                Taken::Yes
            }
            Late::Answer(TimeWaitAnswer::Nothing) => Taken::Yes,
        }
    }

    /// Forgets a connection in TIME_WAIT from `from` to `to`, for a new one to follow it: its
    /// port, and the sequence number after all of its own. From port 0 it is the oldest of any
    /// port that only connections have, where that is allowed (`net.ipv4.tcp_tw_reuse`; on the
    /// loopback device, which is the default, nothing waits).
    pub(super) fn forget(
        &self,
        ns: &NetNamespace,
        from: Endpoint,
        to: Endpoint,
    ) -> Option<(u16, Seq)> {
        let path = self.path(to.ip, Some(from.ip)).ok()?;
        let mut pair = super::pair(from, to, &path);
        if from.port == 0 {
            if ns.kept_number("tcp_tw_reuse") != Some(1) {
                return None;
            }
            pair = self.connections.recyclable(now(), (from.ip, pair.remote))?;
        }
        let next = self.connections.recycle(ns, &pair)?;
        self.ip.count(Mib::ExtTwRecycled);
        Some((pair.local.port(), next))
    }

    /// It may begin a connection, or be the answer to a cookie.
    fn begin(
        &self,
        ns: &NetNamespace,
        now: Instant,
        pair: Pair,
        mut segment: Segment,
        info: &Info,
        least: Option<Seq>,
    ) -> Taken {
        let device = info.device as i32;
        let all = segment.header.flags;
        let flags = all & (Flags::SYN | Flags::ACK | Flags::RST);
        // Who listens does not answer these (RFC 9293 3.10.7.2; `tcp_rcv_state_process`).
        let is_passed_over = flags.is_empty() || flags == Flags::SYN && all.contains(Flags::FIN);
        if flags != Flags::SYN && flags != Flags::ACK && !is_passed_over {
            return Taken::No;
        }
        // Somebody on a device that programs made may go by another name's: routes change, and then
        // what is sent to him leaves.
        // (Whoever came by a device that programs made has what address they like.)
        let named = if !self.ports.is_taken(info.device) || info.renamed {
            Named::ByPrograms
        } else {
            Named::ByOthers
        };
        let fits = |l: &Listener| l.takes_from(device);
        let behind = segment.headers.len();
        let made = || Framed::whole(&[&segment.headers[..], &segment.payload].concat(), device);
        let ask = |f: &Filter| f.run(&made().behind(behind));
        let from = endpoint(pair.remote);
        let coming = Some(Coming { from, ask: &ask });
        let Some(l) = ns.tcp.lookup(endpoint(pair.local), coming, fits) else {
            return Taken::No;
        };
        if !super::admits(l.common(), &mut segment, info) {
            return Taken::Yes;
        }
        if is_passed_over {
            return Taken::Yes;
        }
        let path = self.path(pair.remote.ip(), Some(pair.local.ip()));
        let (Ok(path), Some(me)) = (path, self.me.upgrade()) else {
            return Taken::Yes;
        };
        if self.leads_out(&path, info) {
            return Taken::Yes;
        }
        let ruled = self.gate.is_on() && named == Named::ByPrograms && !stays(&path);
        if ruled && self.gate.connect(endpoint(pair.remote)).is_err() {
            return Taken::Yes;
        }
        if flags == Flags::ACK {
            return me.cookie_came_back(&l, now, (pair, named), path, segment);
        }
        match l.may_begin(now) {
            Begin::Yes => {
                let syn = Incoming {
                    pair,
                    path,
                    syn: &segment,
                    named,
                    least,
                };
                Remote::accept(&me, &l, now, syn);
            }
            Begin::ByCookie => {
                self.ip.count(Mib::ExtReqQFullDoCookies);
                self.ip.count(Mib::ExtSyncookiesSent);
                let config = self.config_for(&l, &path, pair);
                let header = self
                    .secret
                    .cookie(&ends(pair), &segment.header, now, &config);
                self.answer(now, &path, pair, &header);
            }
            // It is sent again by who wants to connect.
            Begin::No(why) => self.count_refusal(why),
        }
        Taken::Yes
    }

    /// Whether an answer would leave by a device of the host's to somebody who came by one that
    /// programs made, with whatever address (as `Ip::path_back`).
    fn leads_out(&self, path: &Path, info: &Info) -> bool {
        self.ports.is_taken(path.index) && !self.ports.is_taken(info.device)
    }

    fn cookie_came_back(
        self: &Arc<Self>,
        l: &Arc<Listener>,
        now: Instant,
        (pair, named): (Pair, Named),
        path: Path,
        segment: Segment,
    ) -> Taken {
        // Where none was sent for some minutes, none is believed.
        if !l.has_sent_cookies(now) {
            return Taken::No;
        }
        let config = self.config_for(l, &path, pair);
        let Some(cookie) = self.secret.check(&ends(pair), &segment, now, &config) else {
            self.ip.count(Mib::ExtSyncookiesFailed);
            return Taken::No;
        };
        self.ip.count(Mib::ExtSyncookiesRecv);
        if let Begin::No(why) = l.may_begin(now) {
            self.count_refusal(why);
        } else {
            let engine = Connection::accept_cookie(config, &cookie, now);
            if let Some(c) = Remote::half_open(self, (l, None), (pair, named), path, engine) {
                c.deliver(segment);
            }
        }
        Taken::Yes
    }

    fn count_refusal(&self, why: Refusal) {
        self.ip.count(match why {
            Refusal::AcceptQueueFull => Mib::ExtListenOverflows,
            Refusal::SynQueueFull => Mib::ExtReqQFullDrop,
        });
        self.ip.count(Mib::ExtListenDrops);
    }

    fn config_for(&self, l: &Listener, path: &Path, pair: Pair) -> Config {
        let offset = self.secret.timestamp_offset(&ends(pair));
        let options: &InetOptions = l.options();
        options::config(offset, path, pair, l.common(), options)
    }

    /// A segment without a connection.
    fn answer(&self, now: Instant, path: &Path, pair: Pair, header: &Header) {
        let _ = self.ip.send_answer(now, path, pair, header);
        self.timers.look_at(self.ip.deadline());
    }
}
