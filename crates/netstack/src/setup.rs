//! What a stack starts with: devices, routes and neighbours, as the namespace had them that it
//! takes over.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// All of a namespace. Its loopback device is among them where packets are to pass by it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Setup {
    pub devices: Vec<Device>,
    pub routes: Vec<Route>,
    /// Those that somebody has set for ever; learnt ones are learnt again.
    pub neighbours: Vec<Neighbour>,
    #[serde(default)]
    pub forwards: Forwards,
}

/// Whether packets for others are sent on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Forwards {
    /// Of what comes by devices that do not keep it ([`Conf::keeps`]).
    pub v4: bool,
    pub v6: bool,
    /// The indices of devices by which none leaves that is not this host's, nor an answer to one
    /// that came by another. Rules for what may leave (`net::stack::gate`) count on it.
    pub guarded: Vec<u32>,
}

/// An Ethernet device, or the loopback one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    /// Its index, which programs see: 1 is the loopback's.
    pub index: u32,
    pub mac: [u8; 6],
    /// `IFF_*`.
    pub flags: u32,
    pub mtu: u32,
    /// The largest frame in bytes, with its headers, that it cuts into segments itself
    /// (`gso_max_size`); 0 where it cuts none.
    pub gso_max: u32,
    pub addresses: Vec<Address>,
    #[serde(default)]
    pub conf: Conf,
}

/// How a device takes IPv4's packets (`net.ipv4.conf`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Conf {
    /// What is for others is not sent on, whatever [`Forwards::v4`] says.
    pub keeps: bool,
    pub reverse_path: ReversePath,
    /// What is for 127.0.0.0/8 is taken (`route_localnet`).
    #[serde(default)]
    pub takes_loopback: bool,
    /// What is from an address of this host's is taken (`accept_local`).
    #[serde(default)]
    pub takes_own: bool,
    /// `arp_ignore`: 0 answers for each address of this host's, 1 for the device's own, 2 so to
    /// those of its network alone, 3 not for those that are this host's alone, 8 for none.
    #[serde(default)]
    pub arp_ignore: u8,
}

/// By which device the way to a packet's source must lead (RFC 3704).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ReversePath {
    #[default]
    Off,
    /// By the one that it came by.
    Strict,
    /// By any.
    Loose,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    pub ip: IpAddr,
    /// The length of the prefix that is reached without a gateway.
    pub prefix: u8,
    /// IPv4's broadcast address, where one is set.
    pub broadcast: Option<IpAddr>,
    /// `RT_SCOPE_*`: 0 everywhere, 253 on this link only.
    pub scope: u8,
}

/// A way to a network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The network's address; with a `prefix` of 0 the default route of its family.
    pub network: IpAddr,
    pub prefix: u8,
    /// The next hop; none: the network is on the device's link.
    pub gateway: Option<IpAddr>,
    /// The device's index.
    pub device: u32,
    /// The source address that is preferred.
    pub source: Option<IpAddr>,
    /// Of two to the same network the lower one is taken.
    pub metric: u32,
    /// The largest packet; 0: the device's.
    pub mtu: u32,
    pub kind: RouteKind,
}

/// What becomes of what a route takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RouteKind {
    #[default]
    Unicast,
    /// Dropped without a word.
    Blackhole,
    /// Refused with EHOSTUNREACH.
    Unreachable,
    /// Refused with EACCES.
    Prohibit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Neighbour {
    pub device: u32,
    pub ip: IpAddr,
    pub mac: [u8; 6],
}
