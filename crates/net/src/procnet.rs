//! The text of `/proc/net/*`.

use crate::addr::{Endpoint, any_ip};
use crate::bindings::PortTable;
use crate::census::{self, InetSocket};
use crate::ns::NetNamespace;
use crate::sys::{AF_INET, AF_INET6};
use crate::tables::{proc_known, proc_names};
use netfilter::packet::Version;
use netfilter::table::Family;
use netfilter::xt::Role;
use std::collections::HashMap;
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

/// Which table of sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Streams,
    Datagrams,
}

/// The lines of one table (`tcp4_seq_show`, `udp4_seq_show`, `raw_seq_show`, and IPv6's).
fn table(all: &[InetSocket], family: u16, kind: Table) -> String {
    let (local, remote) = if family == AF_INET6 {
        (
            format!("{:<37}", "local_address"),
            format!("{:<37}", "remote_address"),
        )
    } else {
        ("local_address".into(), "rem_address  ".into())
    };
    let more = match kind {
        Table::Streams => "",
        Table::Datagrams => " ref pointer drops",
    };
    let mut s = format!(
        "  sl  {local} {remote} st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode{more}\n",
    );
    let none = Endpoint {
        ip: any_ip(family),
        port: 0,
    };
    let all = all.iter().filter(|s| s.family == family);
    for (i, x) in all.enumerate() {
        let rest = match kind {
            Table::Streams => "1 0000000000000000 100 0 0 10 0",
            Table::Datagrams => "2 0000000000000000 0",
        };
        let _ = writeln!(
            s,
            "{i:4}: {} {} {:02X} {:08X}:{:08X} 00:00000000 00000000 {:5}        0 {} {rest}",
            hex(x.local, family),
            hex(x.remote.unwrap_or(none), family),
            x.state,
            // Of a listener it is how many may wait, which is not told here.
            if x.state == census::LISTEN {
                0
            } else {
                x.send_queue
            },
            x.receive_queue,
            x.uid,
            x.ino
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

/// Those that the root of the namespace's user namespace may read.
pub const PROC_NET_OF_ROOT: [&str; 6] = [
    "ip_tables_names",
    "ip_tables_matches",
    "ip_tables_targets",
    "ip6_tables_names",
    "ip6_tables_matches",
    "ip6_tables_targets",
];

impl NetNamespace {
    /// The packet sockets (`packet_seq_show`).
    fn packet(&self) -> String {
        let mut s =
            String::from("sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n");
        for x in self.taps.census() {
            let user = x.common.user.get().map_or(0, |u| u.uid());
            let _ = writeln!(
                s,
                "0000000000000000 {:<6} {:<4} {:04x}   {:<5} {} {:<6} {:<6} {:<6}",
                3,
                x.kind,
                x.protocol,
                x.device,
                u8::from(x.protocol != 0),
                x.bytes,
                user,
                x.common.ino,
            );
        }
        s
    }

    /// The content of `/proc/net/<name>`, where there is such a file.
    #[must_use]
    pub fn proc_net(&self, name: &str) -> Option<String> {
        Some(match name {
            "tcp" => table(&self.tcp_sockets(), AF_INET, Table::Streams),
            "tcp6" => table(&self.tcp_sockets(), AF_INET6, Table::Streams),
            "udp" => table(&self.udp_sockets(), AF_INET, Table::Datagrams),
            "udp6" => table(&self.udp_sockets(), AF_INET6, Table::Datagrams),
            "raw" => table(&self.raw_sockets(), AF_INET, Table::Datagrams),
            "raw6" => table(&self.raw_sockets(), AF_INET6, Table::Datagrams),
            "unix" => {
                let mut s =
                    String::from("Num       RefCount Protocol Flags    Type St Inode Path\n");
                for u in self.unix_sockets() {
                    let listens = u.state == census::LISTEN;
                    let name = match &u.name[..] {
                        [] => String::new(),
                        [0, rest @ ..] => {
                            format!(" @{}", String::from_utf8_lossy(rest).replace('\0', "@"))
                        }
                        path => {
                            let path = path.strip_suffix(b"\0").unwrap_or(path);
                            format!(" {}", String::from_utf8_lossy(path))
                        }
                    };
                    let _ = writeln!(
                        s,
                        "0000000000000000: 00000002 00000000 {:08X} {:04X} {:02} {:5}{name}",
                        if listens { 0x10000 } else { 0 },
                        u.kind,
                        if u.state == census::ESTABLISHED { 3 } else { 1 },
                        u.ino,
                    );
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
            "arp" => self.arp(),
            "packet" => self.packet(),
            "snmp" => self.snmp(),
            "snmp6" => self.snmp6(),
            "netstat" => self.netstat(),
            "sockstat" => self.sockstat(AF_INET),
            "sockstat6" => self.sockstat(AF_INET6),
            "protocols" => self.protocols(),
            "ipv6_route" => self.ipv6_routes(),
            "ip_tables_names" => proc_names(&self.rules.rules(), Family::V4),
            "ip_tables_matches" => proc_known(Version::V4, Role::Match),
            "ip_tables_targets" => proc_known(Version::V4, Role::Target),
            "ip6_tables_names" => proc_names(&self.rules.rules(), Family::V6),
            "ip6_tables_matches" => proc_known(Version::V6, Role::Match),
            "ip6_tables_targets" => proc_known(Version::V6, Role::Target),
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
            let c = self.device_counts(i.index);
            let _ = writeln!(
                s,
                "{:>6}: {:7} {:7} {:4} {:4} {:4} {:5} {:10} {:9} {:8} {:7} {:4} {:4} {:4} {:5} {:7} {:10}",
                i.name,
                c.rx_bytes,
                c.rx_packets,
                c.rx_errors,
                c.rx_dropped,
                0,
                0,
                0,
                c.multicast,
                c.tx_bytes,
                c.tx_packets,
                0,
                c.tx_dropped,
                0,
                0,
                0,
                0
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
fn count<T: ?Sized>(t: &PortTable<T>, family: u16) -> usize {
    let all = t.all();
    all.iter().filter(|b| b.common.family == family).count()
}

/// Values by group and name, as one word.
struct Counters(HashMap<String, i64>);

impl Counters {
    /// 0 for what nobody counts.
    fn get(&self, group: &str, name: &str) -> i64 {
        self.0.get(&format!("{group}{name}")).map_or(0, |n| *n)
    }
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
    /// The stack's counters. What moves in memory is not counted.
    fn counters(&self) -> Counters {
        let counts = self.stack().map(|s| s.ip.counters().mib);
        let key = |(group, name)| format!("{group}{name}");
        let all = counts.into_iter().flatten();
        Counters(all.map(|(m, n)| (key(m.name()), n as i64)).collect())
    }

    /// `/proc/net/snmp`.
    fn snmp(&self) -> String {
        let counters = self.counters();
        let count = |group, f: &str| counters.get(group, f);
        let tcp = self.tcp_sockets();
        // CLOSE_WAIT counts, too.
        let established = tcp
            .iter()
            .filter(|s| matches!(s.state, census::ESTABLISHED | census::CLOSE_WAIT))
            .count() as i64;
        let none = |_: &str| 0;
        pair("Ip", IP, |f| match f {
            "Forwarding" => 2,
            "DefaultTTL" => 64,
            "OutTransmits" => count("Ip", "OutRequests"),
            f => count("Ip", f),
        }) + &pair("Icmp", ICMP, |f| count("Icmp", f))
            // (Without a message there are no lines of IcmpMsg: `icmpmsg_put`.)
            + &pair("Tcp", TCP, |f| match f {
                "RtoAlgorithm" => 1,
                "RtoMin" => 200,
                "RtoMax" => 120_000,
                "MaxConn" => -1,
                "CurrEstab" => established,
                f => count("Tcp", f),
            })
            + &pair("Udp", UDP, |f| count("Udp", f))
            + &pair("UdpLite", UDP, none)
    }

    /// `/proc/net/sockstat` and `sockstat6`.
    fn sockstat(&self, family: u16) -> String {
        let (tcp, udp, raw) = (self.tcp_sockets(), self.udp_sockets(), self.raw_sockets());
        let of = |all: &[InetSocket]| {
            let there = |s: &&InetSocket| s.family == family && s.state != census::TIME_WAIT;
            all.iter().filter(there).count()
        };
        let held = self.stack().map_or(0, |s| s.ip.held());
        let (t, u, r) = (of(&tcp), of(&udp), of(&raw));
        if family == AF_INET6 {
            return format!(
                "TCP6: inuse {t}\nUDP6: inuse {u}\nUDPLITE6: inuse 0\nRAW6: inuse {r}\n\
                 FRAG6: inuse 0 memory 0\n"
            );
        }
        let left = tcp.iter().filter(|s| s.state == census::TIME_WAIT).count();
        let orphans = tcp.iter().filter(|s| s.ino == 0).count() - left;
        let open = tcp.len() - left;
        let memory = self.tcp_memory.pages();
        let used = open + udp.len() + raw.len() + self.unix.count();
        format!(
            "sockets: used {used}\nTCP: inuse {t} orphan {orphans} tw {left} alloc {open} mem {memory}\n\
             UDP: inuse {u} mem 0\nUDPLITE: inuse 0\nRAW: inuse {r}\n\
             FRAG: inuse 0 memory {held}\n"
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
            (
                "UNIX",
                1152,
                self.unix.count(),
                "y n n n n n n n n n n n n n n n n n",
            ),
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

impl NetNamespace {
    /// `/proc/net/arp` (`arp_format_neigh_entry`).
    fn arp(&self) -> String {
        let mut s = String::from(
            "IP address       HW type     Flags       HW address            Mask     Device\n",
        );
        let all = self.interfaces();
        for n in self.neighbours().iter().filter(|n| n.ip.is_ipv4()) {
            use netstack::ip::NeighbourState as State;
            let flags = match n.state {
                State::Permanent => 6,
                State::Incomplete | State::Failed => 0,
                _ => 2,
            };
            let m = n.mac.unwrap_or_default();
            let mac = m.map(|b| format!("{b:02x}")).join(":");
            let device = all.iter().find(|i| i.index == n.device as i32);
            let (ip, device) = (n.ip.to_string(), device.map_or("*", |i| &i.name));
            let _ = writeln!(
                s,
                "{ip:<16} 0x{:<10x}0x{flags:<10x}{mac:<17}     *        {device}",
                1
            );
        }
        s
    }

    /// `/proc/net/ipv6_route` (`ipv6_route_native_seq_show`): the devices' and those to this host.
    fn ipv6_routes(&self) -> String {
        const UP: u32 = 1;
        const GATEWAY: u32 = 2;
        const LOCAL: u32 = 0x8000_0000;
        let (none, all) = (Ipv6Addr::UNSPECIFIED, self.interfaces());
        let mut s = String::new();
        let mut row = |to: Ipv6Addr,
                       prefix: u8,
                       via: Ipv6Addr,
                       metric: u32,
                       flags: u32,
                       name: &str| {
            let (to, from, via) = (hex_v6(to), hex_v6(none), hex_v6(via));
            let _ = writeln!(
                s,
                "{to} {prefix:02x} {from} 00 {via} {metric:08x} 00000001 00000000 {flags:08x} {name:>8}"
            );
        };
        for r in self.routes() {
            let IpAddr::V6(to) = r.to else { continue };
            let (via, flags) = match r.via {
                Some(IpAddr::V6(a)) => (a, UP | GATEWAY),
                _ => (none, UP),
            };
            let metric = if r.metric == 0 { 1024 } else { r.metric };
            let device = all.iter().find(|i| i.index == r.device);
            row(
                to,
                r.prefix,
                via,
                metric,
                flags,
                device.map_or("lo", |i| &i.name),
            );
        }
        for i in &all {
            for (ip, _) in &i.addresses {
                if let IpAddr::V6(a) = ip {
                    row(*a, 128, none, 0, UP | LOCAL, &i.name);
                }
            }
        }
        s
    }

    /// `/proc/net/netstat`.
    fn netstat(&self) -> String {
        let counters = self.counters();
        let of = |group, names| pair(group, names, |f| counters.get(group, f));
        of("TcpExt", TCP_EXT) + &of("IpExt", IP_EXT)
    }

    /// `/proc/net/snmp6`.
    fn snmp6(&self) -> String {
        let counters = self.counters();
        let line = |word: &str| format!("{word:<32}\t{}\n", counters.get("", word));
        SNMP6.split_ascii_whitespace().map(line).collect()
    }
}

/// The names of `Ip` (`snmp_seq_show`).
const IP: &str = "\
    Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos \
    InDiscards InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds \
    ReasmOKs ReasmFails FragOKs FragFails FragCreates OutTransmits";

/// The names of `Icmp` (`snmp_seq_show`).
const ICMP: &str = "\
    InMsgs InErrors InCsumErrors InDestUnreachs InTimeExcds InParmProbs InSrcQuenchs \
    InRedirects InEchos InEchoReps InTimestamps InTimestampReps InAddrMasks InAddrMaskReps \
    OutMsgs OutErrors OutRateLimitGlobal OutRateLimitHost OutDestUnreachs OutTimeExcds \
    OutParmProbs OutSrcQuenchs OutRedirects OutEchos OutEchoReps OutTimestamps \
    OutTimestampReps OutAddrMasks OutAddrMaskReps";

/// The names of `Tcp` (`snmp_seq_show`).
const TCP: &str = "\
    RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets \
    CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors";

/// The names of `Udp` (`snmp_seq_show`).
const UDP: &str = "\
    InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors \
    IgnoredMulti MemErrors";

/// The names of `TcpExt` (`snmp4_net_list`). What is not counted is 0.
const TCP_EXT: &str = "\
    SyncookiesSent SyncookiesRecv SyncookiesFailed EmbryonicRsts PruneCalled RcvPruned \
    OfoPruned OutOfWindowIcmps LockDroppedIcmps ArpFilter TW TWRecycled TWKilled PAWSActive \
    PAWSEstab BeyondWindow TSEcrRejected PAWSOldAck PAWSTimewait DelayedACKs \
    DelayedACKLocked DelayedACKLost ListenOverflows ListenDrops TCPHPHits TCPPureAcks \
    TCPHPAcks TCPRenoRecovery TCPSackRecovery TCPSACKReneging TCPSACKReorder TCPRenoReorder \
    TCPTSReorder TCPFullUndo TCPPartialUndo TCPDSACKUndo TCPLossUndo TCPLostRetransmit \
    TCPRenoFailures TCPSackFailures TCPLossFailures TCPFastRetrans TCPSlowStartRetrans \
    TCPTimeouts TCPLossProbes TCPLossProbeRecovery TCPRenoRecoveryFail TCPSackRecoveryFail \
    TCPRcvCollapsed TCPBacklogCoalesce TCPDSACKOldSent TCPDSACKOfoSent TCPDSACKRecv \
    TCPDSACKOfoRecv TCPAbortOnData TCPAbortOnClose TCPAbortOnMemory TCPAbortOnTimeout \
    TCPAbortOnLinger TCPAbortFailed TCPMemoryPressures TCPMemoryPressuresChrono \
    TCPSACKDiscard TCPDSACKIgnoredOld TCPDSACKIgnoredNoUndo TCPSpuriousRTOs TCPMD5NotFound \
    TCPMD5Unexpected TCPMD5Failure TCPSackShifted TCPSackMerged TCPSackShiftFallback \
    TCPBacklogDrop PFMemallocDrop TCPMinTTLDrop TCPDeferAcceptDrop IPReversePathFilter \
    TCPTimeWaitOverflow TCPReqQFullDoCookies TCPReqQFullDrop TCPRetransFail TCPRcvCoalesce \
    TCPOFOQueue TCPOFODrop TCPOFOMerge TCPChallengeACK TCPSYNChallenge TCPFastOpenActive \
    TCPFastOpenActiveFail TCPFastOpenPassive TCPFastOpenPassiveFail \
    TCPFastOpenListenOverflow TCPFastOpenCookieReqd TCPFastOpenBlackhole \
    TCPSpuriousRtxHostQueues BusyPollRxPackets TCPAutoCorking TCPFromZeroWindowAdv \
    TCPToZeroWindowAdv TCPWantZeroWindowAdv TCPSynRetrans TCPOrigDataSent \
    TCPHystartTrainDetect TCPHystartTrainCwnd TCPHystartDelayDetect TCPHystartDelayCwnd \
    TCPACKSkippedSynRecv TCPACKSkippedPAWS TCPACKSkippedSeq TCPACKSkippedFinWait2 \
    TCPACKSkippedTimeWait TCPACKSkippedChallenge TCPWinProbe TCPKeepAlive TCPMTUPFail \
    TCPMTUPSuccess TCPDelivered TCPDeliveredCE TCPAckCompressed TCPZeroWindowDrop \
    TCPRcvQDrop TCPWqueueTooBig TCPFastOpenPassiveAltKey TcpTimeoutRehash \
    TcpDuplicateDataRehash TCPDSACKRecvSegs TCPDSACKIgnoredDubious TCPMigrateReqSuccess \
    TCPMigrateReqFailure TCPPLBRehash TCPAORequired TCPAOBad TCPAOKeyNotFound TCPAOGood \
    TCPAODroppedIcmps";

/// The names of `IpExt` (`snmp4_ipextstats_list`).
const IP_EXT: &str = "\
    InNoRoutes InTruncatedPkts InMcastPkts OutMcastPkts InBcastPkts OutBcastPkts InOctets \
    OutOctets InMcastOctets OutMcastOctets InBcastOctets OutBcastOctets InCsumErrors \
    InNoECTPkts InECT1Pkts InECT0Pkts InCEPkts ReasmOverlaps";

/// The names of `/proc/net/snmp6` (`snmp6_seq_show`).
const SNMP6: &str = "\
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

#[cfg(test)]
mod tests {
    use super::*;
    use netstack::counters::Mib;

    /// A counter whose name is misspelt would be 0 for ever.
    #[test]
    fn all_counters_are_shown() {
        let has = |list: &str, word: &str| list.split_ascii_whitespace().any(|w| w == word);
        let shown = |(group, name): (&str, &str)| match group {
            "Ip" => has(IP, name),
            "Icmp" => has(ICMP, name),
            "Tcp" => has(TCP, name),
            "Udp" => has(UDP, name),
            "TcpExt" => has(TCP_EXT, name),
            "IpExt" => has(IP_EXT, name),
            _ => has(SNMP6, &format!("{group}{name}")),
        };
        for mib in Mib::ALL {
            assert!(shown(mib.name()), "{mib:?}");
        }
    }
}
