//! What has become of a namespace since its devices were taken over.

use super::Setup;
use super::kept::{Kept, KeptDevice, Key, Message};
use super::read::{self, Seen, goes_by};
use netlink_packet_route::RouteNetlinkMessage as Rtnl;
use netstack::setup::{Device, Neighbour, RouteKind};

/// What is new, and what has gone.
pub struct Difference {
    /// The indices of devices that are there no more.
    pub gone: Vec<u32>,
    /// Those that are there still, and have new addresses or another MTU.
    pub stays: Vec<Device>,
    /// Those that have come; of all, new routes and neighbours.
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
        let all = kept.devices.iter().map(|d| d.index);
        let gone: Vec<u32> = all.filter(|i| old(*i).is_none()).collect();
        let Seen {
            mut setup,
            kept: now,
            warnings,
        } = seen;
        let (stays, come): (Vec<Device>, Vec<Device>) = setup
            .devices
            .into_iter()
            .partition(|d| old(d.index).is_some());
        let is_other = |d: &Device| old(d.index).is_some_and(|o| o.mtu != d.mtu);
        let stays: Vec<Device> = stays
            .into_iter()
            .filter(|d| !d.addresses.is_empty() || is_other(d))
            .collect();
        setup.devices = come;
        // Those that lead somewhere went with the addresses: what is there now is new.
        let is_new =
            |r: &netstack::setup::Route| r.kind == RouteKind::Unicast || !kept.nowhere.contains(r);
        setup.routes.retain(is_new);
        let known: Vec<Neighbour> = kept.neighbours.iter().filter_map(neighbour).collect();
        setup.neighbours.retain(|n| !known.contains(n));
        let is_nothing = gone.is_empty()
            && stays.is_empty()
            && setup.devices.is_empty()
            && setup.routes.is_empty()
            && setup.neighbours.is_empty();
        if is_nothing && !new_names {
            return None;
        }
        let merged = merged(kept, &there, &now, &stays);
        let still = there.into_iter().map(|d| KeptDevice {
            // It was turned off before.
            ipv6: Some(false),
            ..d
        });
        let is_come = |d: &KeptDevice| setup.devices.iter().any(|c| c.index == d.index);
        let new = now.devices.into_iter().filter(is_come);
        let taken = Kept {
            devices: new.chain(still).collect(),
            nowhere: Vec::new(),
            ..now
        };
        Some(Difference {
            gone,
            stays,
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
fn merged(kept: &Kept, there: &[KeptDevice], now: &Kept, stays: &[Device]) -> Kept {
    let is_there = |index: u32| there.iter().any(|d| d.index == index);
    let mut devices = there.to_vec();
    for d in &mut devices {
        if let Some(s) = stays.iter().find(|s| s.index == d.index) {
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
    // What was told again counts once, by its last words.
    let both = |old: &[Message], new: &[Message]| {
        let mut all = new.to_vec();
        let keys: Vec<Option<Key>> = new.iter().map(Message::key).collect();
        let rest = old.iter().filter(is_of_those);
        all.extend(rest.filter(|m| !keys.contains(&m.key())).cloned());
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
