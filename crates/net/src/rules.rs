//! Rules for packets (netfilter) in a namespace.
//!
//! The stack asks them ([`netstack`], `ip::rules`). While there are some, connections and
//! datagrams between sockets of this host go by the stack's loopback device as packets, too, so
//! that each hook sees them. A connection that was begun before is joined in memory as long as it
//! lasts: rules do not see it.
//!
//! A namespace whose sockets are the host's or the broker's has no packets, and no rules.

use crate::addr::Endpoint;
use crate::clock::now;
use crate::ns::NetNamespace;
use crate::stack::{Stack, random};
use abi::Result;
use abi::errno::{ENOENT, ENOMEM};
use netfilter::conntrack::{Flows, ONE, Tuple};
use netfilter::table::Ruleset;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::ucounts::{Kind, Ucounts};

impl NetNamespace {
    /// Whether there may be rules here.
    #[must_use]
    pub fn takes_rules(&self) -> bool {
        !self.has_outside()
    }

    /// The stack, where what goes to this endpoint of this host is packets.
    pub(crate) fn packets_to(&self, to: Endpoint) -> Option<&Arc<Stack>> {
        let stack = self.stack().filter(|_| self.rules.is_on())?;
        let inside = self.is_local(to.ip) && self.names_at(to).is_none();
        inside.then_some(stack)
    }

    /// The same, for a connection at whose segments somebody looks.
    pub(crate) fn packets_inside(&self, to: Endpoint) -> Option<&Arc<Stack>> {
        let stack = self
            .stack()
            .filter(|_| self.ruled.load(Ordering::Acquire))?;
        let inside = self.is_local(to.ip) && self.names_at(to).is_none();
        inside.then_some(stack)
    }

    /// Connections inside may be packets from now on: `ENOMEM` where none can be.
    pub(crate) fn begin_packets(self: &Arc<Self>) -> Result<()> {
        if !self.takes_rules() {
            return Err(ENOMEM);
        }
        self.begin_rules();
        Ok(())
    }

    /// Takes in what passes inside as packets. Its caller holds no lock.
    pub(crate) fn pass_inside(&self) {
        if self.has_rules.load(Ordering::Relaxed)
            && let Some(s) = self.stack()
        {
            s.pass_inside();
        }
    }

    /// Has other rules hold, which are `owner`'s memory from now on.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where he may have no more; those of `commit`, which has them hold.
    pub(crate) fn charge_rules(
        self: &Arc<Self>,
        new: Ruleset,
        owner: Option<&Arc<Ucounts>>,
        commit: impl FnOnce(Ruleset) -> Result<()>,
    ) -> Result<()> {
        // (Those that there are stay known when no rule asks for them any more.)
        let known = &self.rules.flows;
        let flows = if new.tracks() || known.count() > 0 {
            known.most() * ONE
        } else {
            0
        };
        let bytes = (new.bytes() + flows) as u64;
        let charge = match owner {
            Some(u) => Some(u.charge(Kind::Kmem, bytes, u64::MAX).ok_or(ENOMEM)?),
            None => None,
        };
        self.begin_rules();
        commit(new)?;
        *self.rules_memory.lock() = charge;
        Ok(())
    }

    /// How many connections are known to rules, and how many may be
    /// (`net.netfilter.nf_conntrack_max`).
    #[must_use]
    pub fn known_connections(&self) -> (usize, usize) {
        (self.rules.flows.count(), self.rules.flows.most())
    }

    /// So many may be known; 0, or more than there may be at all: the most.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where whoever made the rules may have no more memory.
    pub fn set_most_known_connections(&self, most: usize) -> Result<()> {
        let flows = &self.rules.flows;
        let asked = Flows::bounded(most);
        let more = asked.saturating_sub(flows.most()) * ONE;
        if let Some(c) = &mut *self.rules_memory.lock()
            && !c.grow(more as u64, u64::MAX)
        {
            return Err(ENOMEM);
        }
        flows.set_most(asked);
        Ok(())
    }

    /// The stack has the loopback device from now on. Whoever else begins just now waits until it
    /// has, for the table.
    fn begin_rules(self: &Arc<Self>) {
        let table = self.table.lock();
        if self.has_loopback() {
            self.apply(&table);
        }
    }

    /// The same, before the table, which is locked, is applied; whether it is news.
    pub(crate) fn has_loopback(&self) -> bool {
        if self.has_rules.swap(true, Ordering::Relaxed) {
            return false;
        }
        let seed = u128::from_ne_bytes(random()) as u64;
        self.rules.flows.set_seed(seed);
        true
    }

    /// Where a connection was to go that rules have sent to `local` (`SO_ORIGINAL_DST`).
    pub(crate) fn original_destination(&self, local: Endpoint, peer: Endpoint) -> Result<Endpoint> {
        let tuple = Tuple {
            from: (local.ip, local.port),
            to: (peer.ip, peer.port),
            protocol: 6,
        };
        let (flow, _) = self.rules.flows.get(&tuple, now().0).ok_or(ENOENT)?;
        let (ip, port) = flow.original.to;
        Ok(Endpoint { ip, port })
    }
}
