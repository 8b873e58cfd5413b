//! Who is told of changes: sockets in multicast groups (`RTNLGRP_*`, `NFNLGRP_*`). A queue that is
//! full loses what comes, and its reader gets ENOBUFS (`netlink_overrun`).

use super::message::{Builder, Request};
use super::objects::{address, link, neighbour, route};
use super::sockaddr;
use crate::control::Ucred;
use crate::devices::{Listener, News};
use crate::msgqueue::{Msg, MsgQueue};
use crate::ns::NetNamespace;
use netfilter::events::{Event, Hears};
use netstack::ip::DeviceCounts;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many groups there are, and of netfilter (a whole word of them).
pub(super) const GROUPS: u32 = 36;
pub(super) const FILTER_GROUPS: u32 = 32;
const LINK: u32 = 1;
const NEIGHBOUR: u32 = 3;
const ADDRESS_V4: u32 = 5;
const ROUTE_V4: u32 = 7;
const ADDRESS_V6: u32 = 9;
const ROUTE_V6: u32 = 11;
/// `NFNLGRP_NFTABLES`, among those of netfilter.
const RULES: u32 = 7;

/// A socket that may be in groups: bit N - 1 for the group N.
pub(super) struct Member {
    pub rx: Arc<MsgQueue>,
    pub groups: AtomicU64,
}

impl Listener for Member {
    fn wants(&self, news: &News) -> bool {
        self.groups.load(Ordering::Relaxed) >> (group(news) - 1) & 1 == 1
    }

    fn encode(&self, ns: &NetNamespace, news: &News) -> Vec<u8> {
        encode(ns, news)
    }

    fn hear(&self, news: &News, message: Vec<u8>) {
        self.rx.push(Msg {
            data: message,
            cred: Ucred::default(),
            files: None,
            from: sockaddr(0, 1 << (group(news) - 1)),
            shown: false,
        });
    }
}

/// Connections that rules know.
impl Hears for Member {
    fn hear(&self, event: Event, family: u8, attrs: &[u8]) {
        const CONNTRACK: u16 = 1 << 8;
        const DELETE: u16 = 2;
        /// `NLM_F_CREATE | NLM_F_EXCL`.
        const IS_NEW: u16 = 0x600;
        let (kind, flags) = match event {
            Event::New => (CONNTRACK, IS_NEW),
            Event::Changed => (CONNTRACK, 0),
            Event::Gone => (CONNTRACK | DELETE, 0),
        };
        let nobody = Request {
            kind: 0,
            flags: 0,
            seq: 0,
            whole: &[0; super::HEADER],
        };
        let data = Builder::new(kind, flags, &nobody, 0)
            .bytes(&[family, 0, 0, 0])
            .bytes(attrs)
            .finish();
        self.rx.push(Msg {
            data,
            cred: Ucred::default(),
            files: None,
            from: sockaddr(0, 1 << (event as u32 - 1)),
            shown: false,
        });
    }
}

fn group(news: &News) -> u32 {
    match news {
        News::Link(_) | News::LinkGone(_) => LINK,
        News::Neighbour(_) | News::NeighbourGone(_) => NEIGHBOUR,
        News::Address(_, _, a) | News::AddressGone(_, _, a) if a.ip.is_ipv4() => ADDRESS_V4,
        News::Address(..) | News::AddressGone(..) => ADDRESS_V6,
        News::Route(r) | News::RouteGone(r) if r.to.is_ipv4() => ROUTE_V4,
        News::Route(_) | News::RouteGone(_) => ROUTE_V6,
        News::Rules(_) => RULES,
    }
}

fn encode(ns: &NetNamespace, news: &News) -> Vec<u8> {
    let nobody = Request {
        kind: 0,
        flags: 0,
        seq: 0,
        whole: &[0; super::HEADER],
    };
    let counts = |index: i32| -> DeviceCounts { ns.device_counts(index) };
    let (mut data, gone) = match news {
        News::Link(i) => (link(&nobody, 0, 0, i, &counts(i.interface.index)), false),
        News::LinkGone(i) => (link(&nobody, 0, 0, i, &DeviceCounts::default()), true),
        News::Address(d, name, a) => (address(&nobody, 0, 0, (*d, name), a), false),
        News::AddressGone(d, name, a) => (address(&nobody, 0, 0, (*d, name), a), true),
        News::Route(r) => (route(&nobody, 0, 0, r), false),
        News::RouteGone(r) => (route(&nobody, 0, 0, r), true),
        News::Neighbour(n) => (neighbour(&nobody, 0, 0, n), false),
        News::NeighbourGone(n) => (neighbour(&nobody, 0, 0, n), true),
        News::Rules(message) => (message.clone(), false),
    };
    if gone {
        // RTM_DEL* is one more than RTM_NEW*.
        data[4] += 1;
    }
    data
}
