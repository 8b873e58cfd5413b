//! What is counted, as `/proc/net/dev`, `/proc/net/snmp` and `/proc/net/snmp6` show it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! device_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Of one device. A super-segment counts as one packet.
        #[derive(Default)]
        pub(crate) struct DeviceCounters {
            $(pub $name: AtomicU64,)*
        }

        /// What a device's counters say.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct DeviceCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl DeviceCounters {
            pub(crate) fn read(&self) -> DeviceCounts {
                DeviceCounts {
                    $($name: self.$name.load(Relaxed),)*
                }
            }
        }
    };
}

device_counters! {
    rx_packets,
    rx_bytes,
    /// Frames that are cut.
    rx_errors,
    /// Frames for others, of unknown protocols, with a VLAN's tag.
    rx_dropped,
    /// Multicast frames that came.
    multicast,
    /// Of `rx_dropped`, those with a VLAN's tag.
    rx_vlan,
    tx_packets,
    tx_bytes,
    /// Packets that waited for a neighbour in vain, or for which the device had no room.
    tx_dropped,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

macro_rules! snmp {
    ($($name:ident $group:literal $word:literal,)*) => {
        /// A counter of the whole stack.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mib {
            $($name,)*
        }

        impl Mib {
            pub const ALL: &[Mib] = &[$(Mib::$name,)*];

            /// Its group and name in `/proc/net/snmp` (`Ip`, `Icmp`, `Udp`), `/proc/net/netstat`
            /// (`IpExt`) and `/proc/net/snmp6` (`Ip6`, `Icmp6`, `Udp6`: both as one word).
            #[must_use]
            pub const fn name(self) -> (&'static str, &'static str) {
                match self {
                    $(Mib::$name => ($group, $word),)*
                }
            }
        }
    };
}

snmp! {
    IpInReceives "Ip" "InReceives",
    IpInHdrErrors "Ip" "InHdrErrors",
    IpInAddrErrors "Ip" "InAddrErrors",
    IpInUnknownProtos "Ip" "InUnknownProtos",
    IpInDiscards "Ip" "InDiscards",
    IpInDelivers "Ip" "InDelivers",
    IpOutRequests "Ip" "OutRequests",
    IpOutDiscards "Ip" "OutDiscards",
    IpOutNoRoutes "Ip" "OutNoRoutes",
    IpReasmTimeout "Ip" "ReasmTimeout",
    IpReasmReqds "Ip" "ReasmReqds",
    IpReasmOks "Ip" "ReasmOKs",
    IpReasmFails "Ip" "ReasmFails",
    IpFragOks "Ip" "FragOKs",
    IpFragFails "Ip" "FragFails",
    IpFragCreates "Ip" "FragCreates",
    IpExtInTruncatedPkts "IpExt" "InTruncatedPkts",
    IpExtInCsumErrors "IpExt" "InCsumErrors",
    IcmpInMsgs "Icmp" "InMsgs",
    IcmpInErrors "Icmp" "InErrors",
    IcmpInCsumErrors "Icmp" "InCsumErrors",
    IcmpInDestUnreachs "Icmp" "InDestUnreachs",
    IcmpInTimeExcds "Icmp" "InTimeExcds",
    IcmpInParmProbs "Icmp" "InParmProbs",
    IcmpInRedirects "Icmp" "InRedirects",
    IcmpInEchos "Icmp" "InEchos",
    IcmpInEchoReps "Icmp" "InEchoReps",
    IcmpOutMsgs "Icmp" "OutMsgs",
    IcmpOutErrors "Icmp" "OutErrors",
    IcmpOutRateLimitGlobal "Icmp" "OutRateLimitGlobal",
    IcmpOutRateLimitHost "Icmp" "OutRateLimitHost",
    IcmpOutDestUnreachs "Icmp" "OutDestUnreachs",
    IcmpOutTimeExcds "Icmp" "OutTimeExcds",
    IcmpOutParmProbs "Icmp" "OutParmProbs",
    IcmpOutEchos "Icmp" "OutEchos",
    IcmpOutEchoReps "Icmp" "OutEchoReps",
    TcpInCsumErrors "Tcp" "InCsumErrors",
    TcpInErrs "Tcp" "InErrs",
    UdpInCsumErrors "Udp" "InCsumErrors",
    UdpInErrors "Udp" "InErrors",
    UdpInDatagrams "Udp" "InDatagrams",
    UdpNoPorts "Udp" "NoPorts",
    UdpOutDatagrams "Udp" "OutDatagrams",
    Ip6InReceives "Ip6" "InReceives",
    Ip6InHdrErrors "Ip6" "InHdrErrors",
    Ip6InAddrErrors "Ip6" "InAddrErrors",
    Ip6InUnknownProtos "Ip6" "InUnknownProtos",
    Ip6InTruncatedPkts "Ip6" "InTruncatedPkts",
    Ip6InDiscards "Ip6" "InDiscards",
    Ip6InDelivers "Ip6" "InDelivers",
    Ip6OutRequests "Ip6" "OutRequests",
    Ip6OutDiscards "Ip6" "OutDiscards",
    Ip6OutNoRoutes "Ip6" "OutNoRoutes",
    Ip6ReasmTimeout "Ip6" "ReasmTimeout",
    Ip6ReasmReqds "Ip6" "ReasmReqds",
    Ip6ReasmOks "Ip6" "ReasmOKs",
    Ip6ReasmFails "Ip6" "ReasmFails",
    Ip6FragOks "Ip6" "FragOKs",
    Ip6FragFails "Ip6" "FragFails",
    Ip6FragCreates "Ip6" "FragCreates",
    Icmp6InMsgs "Icmp6" "InMsgs",
    Icmp6InErrors "Icmp6" "InErrors",
    Icmp6InCsumErrors "Icmp6" "InCsumErrors",
    Icmp6InDestUnreachs "Icmp6" "InDestUnreachs",
    Icmp6InPktTooBigs "Icmp6" "InPktTooBigs",
    Icmp6InTimeExcds "Icmp6" "InTimeExcds",
    Icmp6InParmProblems "Icmp6" "InParmProblems",
    Icmp6InEchos "Icmp6" "InEchos",
    Icmp6InEchoReplies "Icmp6" "InEchoReplies",
    Icmp6InRouterSolicits "Icmp6" "InRouterSolicits",
    Icmp6InRouterAdvertisements "Icmp6" "InRouterAdvertisements",
    Icmp6InNeighborSolicits "Icmp6" "InNeighborSolicits",
    Icmp6InNeighborAdvertisements "Icmp6" "InNeighborAdvertisements",
    Icmp6InRedirects "Icmp6" "InRedirects",
    Icmp6OutMsgs "Icmp6" "OutMsgs",
    Icmp6OutErrors "Icmp6" "OutErrors",
    Icmp6OutRateLimitHost "Icmp6" "OutRateLimitHost",
    Icmp6OutDestUnreachs "Icmp6" "OutDestUnreachs",
    Icmp6OutTimeExcds "Icmp6" "OutTimeExcds",
    Icmp6OutParmProblems "Icmp6" "OutParmProblems",
    Icmp6OutEchos "Icmp6" "OutEchos",
    Icmp6OutEchoReplies "Icmp6" "OutEchoReplies",
    Icmp6OutNeighborSolicits "Icmp6" "OutNeighborSolicits",
    Icmp6OutNeighborAdvertisements "Icmp6" "OutNeighborAdvertisements",
    Icmp6OutMldv2Reports "Icmp6" "OutMLDv2Reports",
    Udp6InCsumErrors "Udp6" "InCsumErrors",
    Udp6InErrors "Udp6" "InErrors",
    Udp6InDatagrams "Udp6" "InDatagrams",
    Udp6NoPorts "Udp6" "NoPorts",
    Udp6OutDatagrams "Udp6" "OutDatagrams",
}

const MIBS: usize = Mib::ALL.len();

/// The counters of the whole stack.
pub(crate) struct Snmp([AtomicU64; MIBS]);

impl Snmp {
    pub(crate) fn new() -> Snmp {
        Snmp([const { AtomicU64::new(0) }; MIBS])
    }

    pub(crate) fn count(&self, mib: Mib) {
        count(&self.0[mib as usize]);
    }

    /// The first for IPv4, the second for IPv6.
    pub(crate) fn count_by(&self, is_v4: bool, v4: Mib, v6: Mib) {
        self.count(if is_v4 { v4 } else { v6 });
    }

    pub(crate) fn get(&self, mib: Mib) -> u64 {
        self.0[mib as usize].load(Relaxed)
    }
}

/// What all counters say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// By the device's index.
    pub devices: Vec<(u32, DeviceCounts)>,
    pub mib: Vec<(Mib, u64)>,
}

impl Counts {
    /// One counter's value.
    #[must_use]
    pub fn get(&self, mib: Mib) -> u64 {
        let found = self.mib.iter().find(|(m, _)| *m == mib);
        found.map_or(0, |(_, n)| *n)
    }
}
