//! What a network is and does, for who looks at a sandbox from outside.

use crate::census::{self, InetSocket};
use crate::ns::NetNamespace;
use egress::counts::Counts;
use netstack::ip::DeviceCounts;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The most sockets that are told of; those that listen come first.
pub const SOCKETS_MOST: usize = 16_384;

/// The most devices, routes and neighbours of each kind that are told of, and addresses of a
/// device: programs make as many as they like, and what is told is read whole.
pub const OTHERS_MOST: usize = 1024;
pub const ADDRESSES_MOST: usize = 64;

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    pub mode: Mode,
    pub devices: Vec<Device>,
    pub routes: Vec<Route>,
    pub neighbours: Vec<Neighbour>,
    pub sockets: Vec<Socket>,
    /// Where rules say what may leave.
    pub policy: Option<Policy>,
    /// Sockets beyond [`SOCKETS_MOST`].
    pub sockets_left_out: u64,
    /// Devices, routes and neighbours beyond [`OTHERS_MOST`].
    pub others_left_out: u64,
}

/// Rules, and how often what was allowed and refused by them and those before.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Policy {
    pub rules: egress::Rules,
    pub counts: Counts,
}

/// Where sockets lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// To the loopback device.
    #[default]
    None,
    /// By our own packets on devices that were taken over.
    Sandbox,
    /// By a broker.
    User,
    /// They are the host's; what they do is not known here.
    Host,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    pub index: i32,
    pub up: bool,
    pub mtu: u32,
    pub mac: [u8; 6],
    /// With the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Where packets pass that are counted.
    #[serde(default)]
    pub counters: Option<DeviceCounts>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// A network, and the length of its prefix.
    pub to: (IpAddr, u8),
    pub via: Option<IpAddr>,
    pub device: i32,
    pub source: Option<IpAddr>,
    pub metric: u32,
    pub mtu: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Neighbour {
    pub device: u32,
    pub ip: IpAddr,
    pub mac: Option<[u8; 6]>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Socket {
    pub protocol: Protocol,
    pub state: String,
    pub local: (IpAddr, u16),
    pub peer: Option<(IpAddr, u16)>,
    /// Bytes; of a listener those that wait to be accepted, and how many may.
    pub receive_queue: u32,
    pub send_queue: u32,
    /// Segments that were sent again; `None` where that is not known.
    pub retransmits: Option<u32>,
    /// Of its maker.
    pub uid: u32,
    /// 0 where no file stands for it.
    pub inode: u64,
    /// Who has it open.
    pub owners: Vec<Owner>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Tcp,
    Udp,
    Raw,
}

/// A process that has a socket open, as it is known inside.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    pub pid: i32,
    pub fd: i32,
    pub command: String,
}

/// The word of `ss` for a state.
fn word(state: u8) -> &'static str {
    match state {
        census::ESTABLISHED => "established",
        2 => "syn-sent",
        3 => "syn-received",
        4 => "fin-wait-1",
        5 => "fin-wait-2",
        census::TIME_WAIT => "time-wait",
        census::CLOSE_WAIT => "close-wait",
        9 => "last-ack",
        census::LISTEN => "listening",
        11 => "closing",
        _ => "unconnected",
    }
}

fn of_socket(protocol: Protocol, s: &InetSocket, owners: &HashMap<u64, Vec<Owner>>) -> Socket {
    /// `tcpi_total_retrans`.
    const RETRANSMITS: usize = 100;
    let sent_again = |info: &Vec<u8>| {
        let bytes = info.get(RETRANSMITS..RETRANSMITS + 4)?;
        bytes.try_into().ok().map(u32::from_ne_bytes)
    };
    Socket {
        protocol,
        state: word(s.state).into(),
        local: (s.local.ip, s.local.port),
        peer: s.remote.map(|r| (r.ip, r.port)),
        receive_queue: s.receive_queue,
        send_queue: s.send_queue,
        retransmits: s.info.as_ref().and_then(sent_again),
        uid: s.uid,
        inode: s.ino,
        owners: owners.get(&s.ino).cloned().unwrap_or_default(),
    }
}

impl NetNamespace {
    /// What there is now; `owners` has those of sockets by their inodes.
    #[must_use]
    pub fn report(self: &Arc<Self>, owners: &HashMap<u64, Vec<Owner>>) -> Report {
        fn cut<T>(all: &mut Vec<T>) -> u64 {
            let left_out = all.len().saturating_sub(OTHERS_MOST) as u64;
            all.truncate(OTHERS_MOST);
            left_out
        }
        let (sockets, sockets_left_out) = self.told_sockets(owners);
        let (mut devices, mut routes) = (self.told_devices(), self.told_routes());
        let mut neighbours = self.told_neighbours();
        Report {
            mode: self.mode(),
            others_left_out: cut(&mut devices) + cut(&mut routes) + cut(&mut neighbours),
            devices,
            routes,
            neighbours,
            sockets,
            policy: self.told_policy(),
            sockets_left_out,
        }
    }

    fn told_neighbours(&self) -> Vec<Neighbour> {
        let all = self.neighbours().into_iter().map(|n| Neighbour {
            device: n.device,
            ip: n.ip,
            mac: n.mac,
        });
        all.collect()
    }

    fn told_policy(&self) -> Option<Policy> {
        let (rules, counts) = self.stack()?.gate.report();
        let is_one = !rules.is_empty() || counts != Counts::default();
        is_one.then_some(Policy { rules, counts })
    }

    fn mode(&self) -> Mode {
        if self.host.is_some() {
            Mode::Host
        } else if self.way_out.is_some() {
            Mode::User
        } else if self.stack().is_some() {
            Mode::Sandbox
        } else {
            Mode::None
        }
    }

    fn told_devices(&self) -> Vec<Device> {
        let has_packets = |loopback: bool| self.stack().is_some() && !loopback;
        let all = self.interfaces().into_iter().map(|i| Device {
            counters: has_packets(i.is_loopback()).then(|| self.device_counts(i.index)),
            up: i.is_up(),
            name: i.name,
            index: i.index,
            mtu: i.mtu,
            mac: i.mac,
            addresses: i.addresses.into_iter().take(ADDRESSES_MOST).collect(),
        });
        all.collect()
    }

    fn told_routes(&self) -> Vec<Route> {
        let all = self.routes().into_iter().map(|r| Route {
            to: (r.to, r.prefix),
            via: r.via,
            device: r.device,
            source: r.source,
            metric: r.metric,
            mtu: r.mtu,
        });
        all.collect()
    }

    /// The sockets that are told of, and how many there are besides.
    fn told_sockets(&self, owners: &HashMap<u64, Vec<Owner>>) -> (Vec<Socket>, u64) {
        let of = |protocol, all: Vec<InetSocket>| {
            let told = all.iter().map(|s| of_socket(protocol, s, owners));
            told.collect::<Vec<_>>()
        };
        let mut all = of(Protocol::Tcp, self.tcp_sockets());
        all.sort_by_key(|s| s.state != word(census::LISTEN));
        all.extend(of(Protocol::Udp, self.udp_sockets()));
        all.extend(of(Protocol::Raw, self.raw_sockets()));
        let left_out = all.len().saturating_sub(SOCKETS_MOST) as u64;
        all.truncate(SOCKETS_MOST);
        (all, left_out)
    }
}
