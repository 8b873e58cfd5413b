//! The text of `/proc/net/*`.

use crate::addr::{Endpoint, any_ip};
use crate::ns::{Binding, NetNamespace, PortTable};
use crate::sys::{AF_INET, AF_INET6};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn hex(e: Endpoint, family: u16) -> String {
    let mut s = String::new();
    let octets = match (e.ip, family) {
        (IpAddr::V4(a), AF_INET) => a.octets().to_vec(),
        (IpAddr::V4(a), _) if a.is_unspecified() => vec![0; 16],
        (IpAddr::V4(a), _) => a.to_ipv6_mapped().octets().to_vec(),
        (IpAddr::V6(a), _) => a.octets().to_vec(),
    };
    for w in octets.chunks_exact(4) {
        let _ = write!(s, "{:08X}", u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    }
    let _ = write!(s, ":{:04X}", e.port);
    s
}

/// The lines of one table; `state` gives the state of a binding that has a target and of one
/// without.
fn table<T>(t: &PortTable<T>, family: u16, states: (u8, u8)) -> String {
    let (local, remote) = if family == AF_INET6 {
        (
            format!("{:<37}", "local_address"),
            format!("{:<37}", "remote_address"),
        )
    } else {
        ("local_address".into(), "rem_address  ".into())
    };
    let mut s = format!(
        "  sl  {local} {remote} st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n",
    );
    let mut all: Vec<_> = t
        .all()
        .into_iter()
        .filter(|b| b.common.family == family)
        .collect();
    all.sort_by_key(|b| (b.port, b.common.ino));
    for (i, b) in all.iter().enumerate() {
        let b: &Binding<T> = b;
        let remote = *b.remote.lock();
        let state = match remote {
            Some(_) => 1,
            None if b.has_target() => states.0,
            None => states.1,
        };
        let _ = writeln!(
            s,
            "{i:4}: {} {} {state:02X} 00000000:00000000 00:00000000 00000000 {:5}        0 {} 1 0000000000000000 100 0 0 10 0",
            hex(
                Endpoint {
                    ip: b.ip,
                    port: b.port
                },
                family
            ),
            hex(
                remote.unwrap_or(Endpoint {
                    ip: any_ip(family),
                    port: 0
                }),
                family
            ),
            b.uid,
            b.common.ino
        );
    }
    s
}

/// The files of `/proc/net` that [`NetNamespace::proc_net`] knows.
pub const PROC_NET: [&str; 21] = [
    "snmp6",
    "dev",
    "igmp",
    "igmp6",
    "tcp",
    "tcp6",
    "udp",
    "udp6",
    "unix",
    "if_inet6",
    "route",
    "ipv6_route",
    "raw",
    "raw6",
    "arp",
    "packet",
    "snmp",
    "netstat",
    "sockstat",
    "sockstat6",
    "protocols",
];

impl NetNamespace {
    /// The content of `/proc/net/<name>`, where there is such a file.
    #[must_use]
    pub fn proc_net(&self, name: &str) -> Option<String> {
        Some(match name {
            "tcp" => table(&self.tcp, AF_INET, (0x0A, 0x07)),
            "tcp6" => table(&self.tcp, AF_INET6, (0x0A, 0x07)),
            "udp" => table(&self.udp, AF_INET, (0x07, 0x07)),
            "udp6" => table(&self.udp, AF_INET6, (0x07, 0x07)),
            "unix" => {
                let mut s =
                    String::from("Num       RefCount Protocol Flags    Type St Inode Path\n");
                let names = self.abstract_names.lock().clone();
                for (n, w) in names {
                    if let Some(u) = w.upgrade() {
                        let (listens, connected) = u.status();
                        let _ = writeln!(
                            s,
                            "0000000000000000: 00000002 00000000 {:08X} {:04X} {:02} {:5} @{}",
                            if listens { 0x10000 } else { 0 },
                            u.common.kind,
                            if connected { 3 } else { 1 },
                            u.common.ino,
                            String::from_utf8_lossy(&n).replace('\0', "@")
                        );
                    }
                }
                s
            }
            "dev" => self.devices(),
            "igmp" => self.igmp(),
            "igmp6" => self.igmp6(),
            "route" => self.route_table(),
            "if_inet6" => {
                let mut s = String::new();
                for i in self.interfaces() {
                    for (ip, prefix) in &i.addresses {
                        let IpAddr::V6(a) = ip else { continue };
                        let (index, name) = (i.index, &i.name);
                        let scope = scope_v6(*a);
                        let hex = hex_v6(*a);
                        let _ =
                            writeln!(s, "{hex} {index:02x} {prefix:02x} {scope:02x} 80 {name:>8}");
                    }
                }
                s
            }
            "arp" => String::from(
                "IP address       HW type     Flags       HW address            Mask     Device\n",
            ),
            "packet" => {
                String::from("sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n")
            }
            "snmp" => self.snmp(),
            "snmp6" => snmp6(),
            "netstat" => netstat(),
            "sockstat" => self.sockstat(AF_INET),
            "sockstat6" => self.sockstat(AF_INET6),
            "protocols" => self.protocols(),
            "ipv6_route" | "raw" | "raw6" => String::new(),
            _ => return None,
        })
    }
}

fn hex_v6(a: Ipv6Addr) -> String {
    a.octets().iter().map(|b| format!("{b:02x}")).collect()
}

/// `IPV6_ADDR_*`, as `if6_seq_show` tells it.
fn scope_v6(a: Ipv6Addr) -> u8 {
    if a.is_loopback() {
        0x10
    } else if a.is_unicast_link_local() {
        0x20
    } else {
        0
    }
}

impl NetNamespace {
    /// `/proc/net/dev`.
    fn devices(&self) -> String {
        let mut s = String::from(
            "Inter-|   Receive                                                |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
        );
        for i in self.interfaces() {
            let _ = writeln!(
                s,
                "{:>6}: {:7} {:7} {:4} {:4} {:4} {:5} {:10} {:9} {:8} {:7} {:4} {:4} {:4} {:5} {:7} {:10}",
                i.name, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
            );
        }
        s
    }

    /// `/proc/net/igmp`: as `igmp_mc_seq_show`. No timer runs that could be told.
    fn igmp(&self) -> String {
        let mut s =
            String::from("Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n");
        let all = self.groups.all();
        for i in self.interfaces() {
            let everybody = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
            let joined = all
                .iter()
                .rev()
                .filter(|(d, g, _)| *d == i.index && g.is_ipv4());
            let mut groups: Vec<_> = joined.map(|(_, g, n)| (*g, *n)).collect();
            let more = groups.iter().find(|(g, _)| *g == everybody);
            let users = more.map_or(1, |(_, n)| n + 1);
            groups.retain(|(g, _)| *g != everybody);
            groups.push((everybody, users));
            let (index, name, count) = (i.index, &i.name, groups.len());
            let _ = writeln!(s, "{index}\t{name:<10}: {count:5}      V3");
            for (group, users) in groups {
                let IpAddr::V4(g) = group else { continue };
                let bits = g.to_bits().swap_bytes();
                let _ = writeln!(s, "\t\t\t\t{bits:08X} {users:5} 0:00000000\t\t0");
            }
        }
        s
    }

    /// `/proc/net/igmp6`.
    fn igmp6(&self) -> String {
        let mut s = String::new();
        let all = self.groups.all();
        for i in self.interfaces() {
            for (_, group, users) in all.iter().filter(|(d, _, _)| *d == i.index) {
                let IpAddr::V6(g) = group else { continue };
                let (index, name, g) = (i.index, &i.name, hex_v6(*g));
                let _ = writeln!(s, "{index:<4} {name:<15} {g} {users:5} 00000004 0");
            }
        }
        s
    }

    /// `/proc/net/route`: as `fib_route_seq_show`, numbers in the host's byte order.
    fn route_table(&self) -> String {
        const UP: u32 = 1;
        const GATEWAY: u32 = 2;
        const HOST: u32 = 4;
        let mut s = String::from(
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
        );
        s = format!("{s:<127}\n");
        let all = self.interfaces();
        for r in self.routes() {
            let IpAddr::V4(to) = r.to else { continue };
            let swapped = |a: Ipv4Addr| a.to_bits().swap_bytes();
            let via = match r.via {
                Some(IpAddr::V4(a)) => a,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            let mask = u32::MAX.checked_shl(32 - u32::from(r.prefix)).unwrap_or(0);
            let mut flags = UP;
            if r.via.is_some() {
                flags |= GATEWAY;
            }
            if r.prefix == 32 {
                flags |= HOST;
            }
            let device = all.iter().find(|i| i.index == r.device);
            let row = format!(
                "{}\t{:08X}\t{:08X}\t{flags:04X}\t0\t0\t{}\t{:08X}\t{}\t0\t0",
                device.map_or("*", |i| &i.name),
                swapped(to),
                swapped(via),
                r.metric,
                mask.swap_bytes(),
                r.mtu,
            );
            let _ = writeln!(s, "{row:<127}");
        }
        s
    }
}

/// Bindings of one family.
fn count<T>(t: &PortTable<T>, family: u16) -> usize {
    let all = t.all();
    all.iter().filter(|b| b.common.family == family).count()
}

/// A table of two lines: names, and a value for each (`snmp_seq_show`).
fn pair(name: &str, fields: &str, value: impl Fn(&str) -> i64) -> String {
    let values: Vec<String> = fields
        .split_ascii_whitespace()
        .map(|f| value(f).to_string())
        .collect();
    format!("{name}: {fields}\n{name}: {}\n", values.join(" "))
}

impl NetNamespace {
    /// `/proc/net/snmp`. Packets are not counted: data moves in memory.
    fn snmp(&self) -> String {
        let established = |t: &PortTable<_>| {
            let all = t.all();
            all.iter().filter(|b| b.remote.lock().is_some()).count() as i64
        };
        let ip = "Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams \
                  InUnknownProtos InDiscards InDelivers OutRequests OutDiscards OutNoRoutes \
                  ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs FragFails FragCreates \
                  OutTransmits";
        let icmp = "InMsgs InErrors InCsumErrors InDestUnreachs InTimeExcds InParmProbs \
                    InSrcQuenchs InRedirects InEchos InEchoReps InTimestamps InTimestampReps \
                    InAddrMasks InAddrMaskReps OutMsgs OutErrors OutRateLimitGlobal \
                    OutRateLimitHost OutDestUnreachs OutTimeExcds OutParmProbs OutSrcQuenchs \
                    OutRedirects OutEchos OutEchoReps OutTimestamps OutTimestampReps \
                    OutAddrMasks OutAddrMaskReps";
        let tcp = "RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails \
                   EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors";
        let udp = "InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors \
                   InCsumErrors IgnoredMulti MemErrors";
        let none = |_: &str| 0;
        pair("Ip", ip, |f| match f {
            "Forwarding" => 2,
            "DefaultTTL" => 64,
            _ => 0,
        }) + &pair("Icmp", icmp, none)
            + "IcmpMsg:\nIcmpMsg:\n"
            + &pair("Tcp", tcp, |f| match f {
                "RtoAlgorithm" => 1,
                "RtoMin" => 200,
                "RtoMax" => 120_000,
                "MaxConn" => -1,
                "CurrEstab" => established(&self.tcp),
                _ => 0,
            })
            + &pair("Udp", udp, none)
            + &pair("UdpLite", udp, none)
    }

    /// `/proc/net/sockstat` and `sockstat6`. Unix sockets are not counted.
    fn sockstat(&self, family: u16) -> String {
        let (tcp, udp) = (count(&self.tcp, family), count(&self.udp, family));
        if family == AF_INET6 {
            return format!(
                "TCP6: inuse {tcp}\nUDP6: inuse {udp}\nUDPLITE6: inuse 0\nRAW6: inuse 0\n\
                 FRAG6: inuse 0 memory 0\n"
            );
        }
        let used = tcp + udp + count(&self.tcp, AF_INET6) + count(&self.udp, AF_INET6);
        format!(
            "sockets: used {used}\nTCP: inuse {tcp} orphan 0 tw 0 alloc {tcp} mem 0\n\
             UDP: inuse {udp} mem 0\nUDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n"
        )
    }

    /// `/proc/net/protocols`: those that there are. (Sizes are those of Linux's objects.)
    fn protocols(&self) -> String {
        let mut s = String::from(
            "protocol  size sockets  memory press maxhdr  slab module     \
             cl co di ac io in de sh ss gs se re bi br ha uh gp em\n",
        );
        let all = [
            (
                "UDPv6",
                1472,
                count(&self.udp, AF_INET6),
                "y y y n y y y n y y y y n n y y y n",
            ),
            (
                "TCPv6",
                2432,
                count(&self.tcp, AF_INET6),
                "y y y y y y y y y y y y y n y y y y",
            ),
            ("UNIX", 1152, 0, "y n n n n n n n n n n n n n n n n n"),
            (
                "UDP",
                1280,
                count(&self.udp, AF_INET),
                "y y y n y y y n y y y y n n y y y n",
            ),
            (
                "TCP",
                2240,
                count(&self.tcp, AF_INET),
                "y y y y y y y y y y y y y n y y y y",
            ),
            ("NETLINK", 1112, 0, "n n n n n n n n n n n n n n n n n n"),
        ];
        for (name, size, sockets, has) in all {
            let has = has.replace(' ', "  ");
            let _ = writeln!(
                s,
                "{name:<9} {size:4} {sockets:6}  {:6}   NI  {:6}   yes  kernel      {has}",
                -1, 0
            );
        }
        s
    }
}

/// `/proc/net/netstat`: the fields that tools look for.
fn netstat() -> String {
    let tcp = "SyncookiesSent SyncookiesRecv SyncookiesFailed EmbryonicRsts PruneCalled \
               RcvPruned OfoPruned OutOfWindowIcmps LockDroppedIcmps ArpFilter TW TWRecycled \
               TWKilled PAWSActive PAWSEstab DelayedACKs DelayedACKLocked DelayedACKLost \
               ListenOverflows ListenDrops TCPHPHits TCPPureAcks TCPHPAcks TCPLostRetransmit \
               TCPFastRetrans TCPTimeouts TCPAbortOnData TCPAbortOnClose TCPAbortOnMemory \
               TCPAbortOnTimeout TCPMemoryPressures TCPBacklogDrop TCPRcvCollapsed \
               TCPOFOQueue TCPReqQFullDoCookies TCPReqQFullDrop TCPRetransFail \
               TCPRcvQDrop TCPSynRetrans TCPOrigDataSent";
    let ip = "InNoRoutes InTruncatedPkts InMcastPkts OutMcastPkts InBcastPkts OutBcastPkts \
              InOctets OutOctets InMcastOctets OutMcastOctets InBcastOctets OutBcastOctets \
              InCsumErrors InNoECTPkts InECT1Pkts InECT0Pkts InCEPkts ReasmOverlaps";
    pair("TcpExt", tcp, |_| 0) + &pair("IpExt", ip, |_| 0)
}

/// `/proc/net/snmp6`: as in `snmp`, packets are not counted.
fn snmp6() -> String {
    const NAMES: &str = "\
    Ip6InReceives Ip6InHdrErrors Ip6InTooBigErrors Ip6InNoRoutes Ip6InAddrErrors Ip6InUnknownProtos \
    Ip6InTruncatedPkts Ip6InDiscards Ip6InDelivers Ip6OutForwDatagrams Ip6OutRequests Ip6OutDiscards \
    Ip6OutNoRoutes Ip6ReasmTimeout Ip6ReasmReqds Ip6ReasmOKs Ip6ReasmFails Ip6FragOKs Ip6FragFails \
    Ip6FragCreates Ip6InMcastPkts Ip6OutMcastPkts Ip6InOctets Ip6OutOctets Ip6InMcastOctets \
    Ip6OutMcastOctets Ip6InBcastOctets Ip6OutBcastOctets Ip6InNoECTPkts Ip6InECT1Pkts Ip6InECT0Pkts \
    Ip6InCEPkts Ip6OutTransmits Icmp6InMsgs Icmp6InErrors Icmp6OutMsgs Icmp6OutErrors Icmp6InCsumErrors \
    Icmp6OutRateLimitHost Icmp6InDestUnreachs Icmp6InPktTooBigs Icmp6InTimeExcds Icmp6InParmProblems \
    Icmp6InEchos Icmp6InEchoReplies Icmp6InGroupMembQueries Icmp6InGroupMembResponses \
    Icmp6InGroupMembReductions Icmp6InRouterSolicits Icmp6InRouterAdvertisements Icmp6InNeighborSolicits \
    Icmp6InNeighborAdvertisements Icmp6InRedirects Icmp6InMLDv2Reports Icmp6OutDestUnreachs \
    Icmp6OutPktTooBigs Icmp6OutTimeExcds Icmp6OutParmProblems Icmp6OutEchos Icmp6OutEchoReplies \
    Icmp6OutGroupMembQueries Icmp6OutGroupMembResponses Icmp6OutGroupMembReductions \
    Icmp6OutRouterSolicits Icmp6OutRouterAdvertisements Icmp6OutNeighborSolicits \
    Icmp6OutNeighborAdvertisements Icmp6OutRedirects Icmp6OutMLDv2Reports Udp6InDatagrams Udp6NoPorts \
    Udp6InErrors Udp6OutDatagrams Udp6RcvbufErrors Udp6SndbufErrors Udp6InCsumErrors Udp6IgnoredMulti \
    Udp6MemErrors UdpLite6InDatagrams UdpLite6NoPorts UdpLite6InErrors UdpLite6OutDatagrams \
    UdpLite6RcvbufErrors UdpLite6SndbufErrors UdpLite6InCsumErrors UdpLite6MemErrors";
    let line = |name: &str| format!("{name:<32}\t0\n");
    NAMES.split_ascii_whitespace().map(line).collect()
}
