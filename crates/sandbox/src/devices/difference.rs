//! What has become of a namespace since its devices were taken over.

use super::Setup;
use super::kept::{Kept, KeptDevice, Key, Message};
use super::read::{self, Seen, goes_by};
use netlink_packet_route::RouteNetlinkMessage as Rtnl;
use netstack::setup::{Device, Neighbour, RouteKind};

/// What is new, and what has gone.
pub struct Difference {
    /// Devices that are there still: their indices and hardware addresses.
    pub there: Vec<(u32, [u8; 6])>,
    /// Those of them that are up or have something new; those that have come; of all, new routes
    /// and neighbours.
    pub setup: Setup,
    /// What is to be put back some time.
    pub kept: Kept,
    /// The part of it that is new, and is to be taken away.
    pub taken: Kept,
    pub warnings: Vec<String>,
}

impl Difference {
    /// `there` are the devices of `kept` that are still there. `None` where nothing is new, and
    /// nothing has gone.
    pub fn between(
        kept: &Kept,
        there: Vec<KeptDevice>,
        seen: Seen,
        new_names: bool,
    ) -> Option<Difference> {
        let old = |index: u32| there.iter().find(|d| d.index == index);
        let has_gone = kept.devices.iter().any(|d| old(d.index).is_none());
        let Seen {
            mut setup,
            kept: now,
            warnings,
        } = seen;
        // One that speaks IPv6 again has left the namespace and come back.
        let speaks = |d: &Device| {
            let of = now.devices.iter().find(|n| n.index == d.index);
            of.is_some_and(|n| n.ipv6 == Some(true))
        };
        let is_new = |d: &Device| {
            let other = |o: &KeptDevice| o.mtu != d.mtu || o.ipv6 == Some(true) && speaks(d);
            !d.addresses.is_empty() || old(d.index).is_none_or(other)
        };
        let has_devices = setup.devices.iter().any(is_new);
        // Those that lead somewhere went with the addresses: what is there now is new.
        let is_new =
            |r: &netstack::setup::Route| r.kind == RouteKind::Unicast || !kept.nowhere.contains(r);
        setup.routes.retain(is_new);
        let known: Vec<Neighbour> = kept.neighbours.iter().filter_map(neighbour).collect();
        setup
            .neighbours
            .retain(|n| old(n.device).is_none() || !known.contains(n));
        let is_nothing =
            !has_gone && !has_devices && setup.routes.is_empty() && setup.neighbours.is_empty();
        if is_nothing && !new_names {
            return None;
        }
        let merged = merged(kept, &there, &now);
        let taken = Kept {
            nowhere: Vec::new(),
            ..now
        };
        Some(Difference {
            there: there.iter().map(|d| (d.index, d.mac)).collect(),
            setup,
            kept: Kept {
                has_names: kept.has_names || new_names,
                ..merged
            },
            taken,
            warnings,
        })
    }
}

/// What is to be put back some time: of devices that are still there what was before, and what is
/// there now.
fn merged(kept: &Kept, there: &[KeptDevice], now: &Kept) -> Kept {
    let is_there = |index: u32| there.iter().any(|d| d.index == index);
    let mut devices = there.to_vec();
    for d in &mut devices {
        if let Some(s) = now.devices.iter().find(|s| s.index == d.index) {
            d.mtu = s.mtu;
        }
    }
    let come = now.devices.iter().filter(|d| !is_there(d.index));
    devices.extend(come.cloned());
    let is_of_those = |m: &&Message| match m.read() {
        Ok(Rtnl::NewAddress(a)) => is_there(a.header.index),
        Ok(Rtnl::NewNeighbour(n)) => is_there(n.header.ifindex),
        Ok(Rtnl::NewRoute(r)) => goes_by(&r, &is_there),
        _ => false,
    };
    // What was told again counts once, by its last words. What is put back later replaces what is
    // in its way, and the first address is the primary one.
    let both = |old: &[Message], new: &[Message]| {
        let keys: Vec<Option<Key>> = new.iter().map(Message::key).collect();
        let rest = old.iter().filter(is_of_those);
        let mut all: Vec<Message> = rest.filter(|m| !keys.contains(&m.key())).cloned().collect();
        all.extend_from_slice(new);
        all
    };
    Kept {
        namespace: kept.namespace,
        devices,
        addresses: both(&kept.addresses, &now.addresses),
        routes: both(&kept.routes, &now.routes),
        neighbours: both(&kept.neighbours, &now.neighbours),
        nowhere: now.nowhere.clone(),
        ..Kept::default()
    }
}

fn neighbour(m: &Message) -> Option<Neighbour> {
    match m.read() {
        Ok(Rtnl::NewNeighbour(n)) => read::neighbour(&n),
        _ => None,
    }
}
