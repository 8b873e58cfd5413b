//! Who is told of changes: sockets in multicast groups (`RTNLGRP_*`). A queue that is full loses what
//! comes, and its reader gets ENOBUFS (`netlink_overrun`).

use super::message::Request;
use super::objects::{address, link, neighbour, route};
use super::sockaddr;
use crate::control::Ucred;
use crate::devices::News;
use crate::msgqueue::{Msg, MsgQueue};
use crate::ns::NetNamespace;
use netstack::ip::DeviceCounts;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// How many groups there are.
pub(super) const GROUPS: u32 = 36;
const LINK: u32 = 1;
const NEIGHBOUR: u32 = 3;
const ADDRESS_V4: u32 = 5;
const ROUTE_V4: u32 = 7;
const ADDRESS_V6: u32 = 9;
const ROUTE_V6: u32 = 11;

/// A socket that may be in groups: bit N - 1 for the group N.
pub(crate) struct Listener {
    pub(super) rx: Arc<MsgQueue>,
    pub(super) groups: AtomicU64,
}

/// Those of a namespace.
#[derive(Default)]
pub(crate) struct Listeners {
    count: AtomicUsize,
    all: Mutex<Vec<Weak<Listener>>>,
}

impl Listeners {
    /// It may be in a group from now on.
    pub(super) fn add(&self, l: &Arc<Listener>) {
        let mut all = self.all.lock();
        all.retain(|w| w.strong_count() > 0 && w.as_ptr() != Arc::as_ptr(l));
        all.push(Arc::downgrade(l));
        self.count.store(all.len(), Ordering::Relaxed);
    }

    pub(crate) fn tell(&self, ns: &NetNamespace, news: &News) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let all: Vec<_> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        let group = group(news);
        let wants = |l: &&Arc<Listener>| l.groups.load(Ordering::Relaxed) >> (group - 1) & 1 == 1;
        let mut wanted = all.iter().filter(wants).peekable();
        if wanted.peek().is_none() {
            return;
        }
        let data = encode(ns, news);
        for l in wanted {
            l.rx.push(Msg {
                data: data.clone(),
                cred: Ucred::default(),
                files: None,
                from: sockaddr(0, 1 << (group - 1)),
            });
        }
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
    };
    if gone {
        // RTM_DEL* is one more than RTM_NEW*.
        data[4] += 1;
    }
    data
}
