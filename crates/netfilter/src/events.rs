//! Who is told of connections: that one has begun, has changed, is gone (`NFNLGRP_CONNTRACK_*`;
//! `net/netfilter/nf_conntrack_ecache.c`).
//!
//! Whoever brings a packet tells of it, without a lock of the connections': a listener takes what
//! it is told, or loses it.

use crate::conntrack::Flow;
use crate::ct;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// What has become of a connection: the number of its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    New = 1,
    Changed = 2,
    Gone = 3,
}

impl Event {
    fn bit(self) -> u8 {
        1 << (self as u8 - 1)
    }
}

/// The groups of connections, as a socket's word of groups has them.
pub const GROUPS: u64 = 7;

/// Who listens.
pub trait Hears: Send + Sync {
    /// What is told of a connection of a family (`NFPROTO_*`): attributes.
    fn hear(&self, event: Event, family: u8, attrs: &[u8]);
}

/// Those of a namespace.
#[derive(Default)]
pub struct Events {
    /// All groups that somebody is in: mostly none.
    wanted: AtomicU8,
    /// By their owners' numbers.
    all: RwLock<BTreeMap<u64, Listening>>,
}

struct Listening {
    groups: u8,
    who: Weak<dyn Hears>,
}

impl Events {
    /// `owner` is in these groups from now on, and in no other.
    pub fn set(&self, owner: u64, groups: u64, who: Weak<dyn Hears>) {
        let groups = (groups & GROUPS) as u8;
        let mut all = self.all.write();
        match groups {
            0 => drop(all.remove(&owner)),
            groups => drop(all.insert(owner, Listening { groups, who })),
        }
        let wanted = all.values().fold(0, |bits, l| bits | l.groups);
        self.wanted.store(wanted, Relaxed);
    }

    /// Whether somebody listens.
    pub fn is_heard(&self, event: Event) -> bool {
        self.wanted.load(Relaxed) & event.bit() != 0
    }

    /// Tells those who listen.
    pub fn tell(&self, event: Event, flow: &Flow, now: u64) {
        if !self.is_heard(event) {
            return;
        }
        let listening = |l: &Listening| {
            let wants = l.groups & event.bit() != 0;
            wants.then(|| l.who.upgrade()).flatten()
        };
        let all: Vec<Arc<dyn Hears>> = self.all.read().values().filter_map(listening).collect();
        let told = ct::told(flow, now);
        for who in all {
            who.hear(event, told.family, &told.attrs);
        }
    }
}
