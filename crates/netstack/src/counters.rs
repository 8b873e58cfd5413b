//! What is counted of the whole stack, as `/proc/net/snmp`, `/proc/net/netstat` and
//! `/proc/net/snmp6` show it.
//!
//! A connection counts for itself, in its [`Tally`]; who works on it adds that to the stack's
//! counters when it is done. Names and meanings are Linux's (`include/uapi/linux/snmp.h`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! snmp {
    ($($name:ident $group:literal $word:literal,)*) => {
        /// A counter of the whole stack.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mib {
            $($name,)*
        }

        impl Mib {
            pub const ALL: &[Mib] = &[$(Mib::$name,)*];

            /// Its group and name in `/proc/net/snmp` (`Ip`, `Icmp`, `Tcp`, `Udp`),
            /// `/proc/net/netstat` (`TcpExt`, `IpExt`) and `/proc/net/snmp6` (`Ip6`, `Icmp6`, `Udp6`: both as one word).
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
    // What connections count: see [`Tally`].
    TcpAttemptFails "Tcp" "AttemptFails",
    TcpEstabResets "Tcp" "EstabResets",
    TcpOutSegs "Tcp" "OutSegs",
    TcpOutRsts "Tcp" "OutRsts",
    TcpRetransSegs "Tcp" "RetransSegs",
    ExtEmbryonicRsts "TcpExt" "EmbryonicRsts",
    ExtOfoPruned "TcpExt" "OfoPruned",
    ExtOutOfWindowIcmps "TcpExt" "OutOfWindowIcmps",
    ExtPawsActive "TcpExt" "PAWSActive",
    ExtPawsEstab "TcpExt" "PAWSEstab",
    ExtDelayedAcks "TcpExt" "DelayedACKs",
    ExtDelayedAckLost "TcpExt" "DelayedACKLost",
    ExtRenoRecovery "TcpExt" "TCPRenoRecovery",
    ExtSackRecovery "TcpExt" "TCPSackRecovery",
    ExtSackReneging "TcpExt" "TCPSACKReneging",
    ExtFullUndo "TcpExt" "TCPFullUndo",
    ExtPartialUndo "TcpExt" "TCPPartialUndo",
    ExtDsackUndo "TcpExt" "TCPDSACKUndo",
    ExtLossUndo "TcpExt" "TCPLossUndo",
    ExtFastRetrans "TcpExt" "TCPFastRetrans",
    ExtSlowStartRetrans "TcpExt" "TCPSlowStartRetrans",
    ExtTimeouts "TcpExt" "TCPTimeouts",
    ExtLossProbes "TcpExt" "TCPLossProbes",
    ExtLossProbeRecovery "TcpExt" "TCPLossProbeRecovery",
    ExtDsackOldSent "TcpExt" "TCPDSACKOldSent",
    ExtDsackOfoSent "TcpExt" "TCPDSACKOfoSent",
    ExtDsackRecv "TcpExt" "TCPDSACKRecv",
    ExtDsackOfoRecv "TcpExt" "TCPDSACKOfoRecv",
    ExtAbortOnData "TcpExt" "TCPAbortOnData",
    ExtAbortOnClose "TcpExt" "TCPAbortOnClose",
    ExtAbortOnTimeout "TcpExt" "TCPAbortOnTimeout",
    ExtAbortOnLinger "TcpExt" "TCPAbortOnLinger",
    ExtOfoQueue "TcpExt" "TCPOFOQueue",
    ExtOfoDrop "TcpExt" "TCPOFODrop",
    ExtChallengeAck "TcpExt" "TCPChallengeACK",
    ExtSynChallenge "TcpExt" "TCPSYNChallenge",
    ExtFastOpenActive "TcpExt" "TCPFastOpenActive",
    ExtFastOpenActiveFail "TcpExt" "TCPFastOpenActiveFail",
    ExtSynRetrans "TcpExt" "TCPSynRetrans",
    ExtOrigDataSent "TcpExt" "TCPOrigDataSent",
    ExtAckSkippedPaws "TcpExt" "TCPACKSkippedPAWS",
    ExtAckSkippedSeq "TcpExt" "TCPACKSkippedSeq",
    ExtAckSkippedChallenge "TcpExt" "TCPACKSkippedChallenge",
    ExtWinProbe "TcpExt" "TCPWinProbe",
    ExtKeepAlive "TcpExt" "TCPKeepAlive",
    ExtTw "TcpExt" "TW",
    ExtDelivered "TcpExt" "TCPDelivered",
    // Above is what connections count: the last one is [`OF_CONNECTION`]'s.
    TcpActiveOpens "Tcp" "ActiveOpens",
    TcpPassiveOpens "Tcp" "PassiveOpens",
    TcpInSegs "Tcp" "InSegs",
    ExtSyncookiesSent "TcpExt" "SyncookiesSent",
    ExtSyncookiesRecv "TcpExt" "SyncookiesRecv",
    ExtSyncookiesFailed "TcpExt" "SyncookiesFailed",
    ExtTwRecycled "TcpExt" "TWRecycled",
    ExtListenOverflows "TcpExt" "ListenOverflows",
    ExtListenDrops "TcpExt" "ListenDrops",
    ExtAbortOnMemory "TcpExt" "TCPAbortOnMemory",
    ExtBacklogDrop "TcpExt" "TCPBacklogDrop",
    ExtReqQFullDoCookies "TcpExt" "TCPReqQFullDoCookies",
    ExtReqQFullDrop "TcpExt" "TCPReqQFullDrop",
    ExtFastOpenPassive "TcpExt" "TCPFastOpenPassive",
    ExtFastOpenPassiveFail "TcpExt" "TCPFastOpenPassiveFail",
    ExtFastOpenListenOverflow "TcpExt" "TCPFastOpenListenOverflow",
    ExtFastOpenCookieReqd "TcpExt" "TCPFastOpenCookieReqd",
    IpExtInOctets "IpExt" "InOctets",
    IpExtOutOctets "IpExt" "OutOctets",
    UdpRcvbufErrors "Udp" "RcvbufErrors",
    UdpMemErrors "Udp" "MemErrors",
    Ip6InOctets "Ip6" "InOctets",
    Ip6OutOctets "Ip6" "OutOctets",
    Udp6RcvbufErrors "Udp6" "RcvbufErrors",
    Udp6MemErrors "Udp6" "MemErrors",
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
        self.add(mib, 1);
    }

    pub(crate) fn add(&self, mib: Mib, n: u64) {
        self.0[mib as usize].fetch_add(n, Relaxed);
    }

    pub(crate) fn add_all(&self, tally: &Tally) {
        for (total, &n) in self.0.iter().zip(&tally.counts) {
            if n > 0 {
                total.fetch_add(n.into(), Relaxed);
            }
        }
    }

    /// The first for IPv4, the second for IPv6.
    pub(crate) fn count_by(&self, is_v4: bool, v4: Mib, v6: Mib) {
        self.count(if is_v4 { v4 } else { v6 });
    }

    pub(crate) fn get(&self, mib: Mib) -> u64 {
        self.0[mib as usize].load(Relaxed)
    }
}

/// How many counters a connection has: the first ones.
const OF_CONNECTION: usize = Mib::ExtDelivered as usize + 1;

/// What a connection has counted since it was asked last. What is more than fits is not counted.
#[derive(Clone, Debug)]
pub struct Tally {
    counts: [u16; OF_CONNECTION],
    is_empty: bool,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            counts: [0; OF_CONNECTION],
            is_empty: true,
        }
    }
}

impl Tally {
    /// `mib` has to be one that connections count: others are not.
    pub(crate) fn add(&mut self, mib: Mib, n: u64) {
        if n == 0 {
            return;
        }
        let Some(c) = self.counts.get_mut(mib as usize) else {
            debug_assert!(false, "{mib:?} is none of a connection's");
            return;
        };
        *c = c.saturating_add(u16::try_from(n).unwrap_or(u16::MAX));
        self.is_empty = false;
    }

    /// What has been counted; it begins anew.
    pub(crate) fn take(&mut self) -> Option<Tally> {
        (!self.is_empty).then(|| std::mem::take(self))
    }
}
