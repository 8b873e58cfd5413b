//! TCP's connections as they are seen from between their ends (`tcp_conntracks` of
//! net/netfilter/nf_conntrack_proto_tcp.c). Sequence numbers are not looked at
//! (`nf_conntrack_tcp_be_liberal`).

use crate::conntrack::Direction;

/// `enum tcp_conntrack`, with its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Not TCP, or nothing has been seen yet.
    None = 0,
    SynSent = 1,
    SynReceived = 2,
    Established = 3,
    FinWait = 4,
    CloseWait = 5,
    LastAck = 6,
    TimeWait = 7,
    Close = 8,
    /// Both ends have begun.
    SynSent2 = 9,
}

impl Phase {
    /// Linux's number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// How long a connection is remembered in it (`tcp_timeouts`).
    pub(crate) fn seconds(self) -> u64 {
        match self {
            Phase::None => 600,
            Phase::SynSent | Phase::SynSent2 | Phase::FinWait | Phase::TimeWait => 120,
            Phase::SynReceived | Phase::CloseWait => 60,
            Phase::Established => 432_000,
            Phase::LastAck => 30,
            Phase::Close => 10,
        }
    }
}

/// How long a connection is remembered that was there before anybody looked, until its other end
/// has spoken (`nf_conntrack_tcp_timeout_unacknowledged`).
pub(crate) const UNANSWERED: u64 = 300;

/// A segment, by its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Syn,
    SynAck,
    Fin,
    Ack,
    Rst,
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const URG: u8 = 32;

impl Kind {
    /// None for flags that no end sends (`tcp_valid_flags`).
    #[must_use]
    pub fn of(flags: u8) -> Option<Kind> {
        const SYN_URG: u8 = SYN | URG;
        const SYN_ACK: u8 = SYN | ACK;
        const RST_ACK: u8 = RST | ACK;
        const FIN_ACK: u8 = FIN | ACK;
        const FIN_ACK_URG: u8 = FIN | ACK | URG;
        const ACK_URG: u8 = ACK | URG;
        match flags & (FIN | SYN | RST | ACK | URG) {
            SYN | SYN_URG => Some(Kind::Syn),
            SYN_ACK => Some(Kind::SynAck),
            RST | RST_ACK => Some(Kind::Rst),
            FIN_ACK | FIN_ACK_URG => Some(Kind::Fin),
            ACK | ACK_URG => Some(Kind::Ack),
            _ => None,
        }
    }
}

/// What a segment is to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    To(Phase),
    /// It passes, and says nothing.
    Ignored,
    /// It belongs to no connection.
    Invalid,
    /// Another connection begins between the same ends, if this one is over.
    Reopens,
}

/// What follows from a segment.
#[must_use]
pub fn after(old: Phase, kind: Kind, d: Direction) -> After {
    use After::{Ignored, Invalid, Reopens, To};
    use Direction::{Original, Reply};
    use Phase::{
        Close, CloseWait, Established, FinWait, LastAck, SynReceived, SynSent, SynSent2, TimeWait,
    };
    match (kind, d, old) {
        (Kind::Rst, _, Phase::None) => Invalid,
        (Kind::Rst, ..) => To(Close),
        (Kind::Syn, Original, Phase::None | SynSent) => To(SynSent),
        (Kind::Syn, Original, TimeWait | Close) | (Kind::Syn, Reply, TimeWait) => Reopens,
        (Kind::Syn, Original, SynSent2) | (Kind::Syn, Reply, SynSent | SynSent2) => To(SynSent2),
        (Kind::Syn, Original, _) => Ignored,
        (Kind::Syn, Reply, _) => Invalid,
        (Kind::SynAck, Original, SynReceived | SynSent2) => To(SynReceived),
        (Kind::SynAck, Reply, SynSent | SynSent2) => To(SynReceived),
        (Kind::SynAck, Original, _) | (Kind::SynAck, Reply, Phase::None) => Invalid,
        (Kind::SynAck, Reply, _) => Ignored,
        (Kind::Ack, Original, Phase::None | SynReceived) => To(Established),
        (Kind::Ack, Reply, SynReceived) => To(SynReceived),
        (Kind::Ack, Reply, SynSent | SynSent2) => Ignored,
        (Kind::Fin, _, SynReceived | Established) => To(FinWait),
        (Kind::Fin, _, FinWait | CloseWait | LastAck) => To(LastAck),
        (Kind::Ack, _, Established) => To(Established),
        (Kind::Ack, _, FinWait | CloseWait) => To(CloseWait),
        (Kind::Ack, _, LastAck) => To(TimeWait),
        (Kind::Fin | Kind::Ack, _, TimeWait | Close) => To(old),
        (Kind::Fin | Kind::Ack, _, Phase::None | SynSent | SynSent2) => Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 10] = [
        Phase::None,
        Phase::SynSent,
        Phase::SynReceived,
        Phase::Established,
        Phase::FinWait,
        Phase::CloseWait,
        Phase::LastAck,
        Phase::TimeWait,
        Phase::Close,
        Phase::SynSent2,
    ];

    /// Linux's table by rows of [`PHASES`]: a state's number, `-` for invalid, `i` for ignored.
    #[test]
    fn states_are_linux_s() {
        use Direction::{Original, Reply};
        let rows = [
            (Kind::Syn, Original, "11iiiii119"),
            (Kind::SynAck, Original, "--2------2"),
            (Kind::Fin, Original, "--4466678-"),
            (Kind::Ack, Original, "3-3355778-"),
            (Kind::Rst, Original, "-888888888"),
            (Kind::Syn, Reply, "-9-----1-9"),
            (Kind::SynAck, Reply, "-2iiiiiii2"),
            (Kind::Fin, Reply, "--4466678-"),
            (Kind::Ack, Reply, "-i2355778i"),
            (Kind::Rst, Reply, "-888888888"),
        ];
        for (kind, d, row) in rows {
            for (old, want) in PHASES.into_iter().zip(row.chars()) {
                let got = match after(old, kind, d) {
                    After::To(p) => char::from(b'0' + p.number()),
                    After::Ignored => 'i',
                    After::Invalid => '-',
                    After::Reopens => '1',
                };
                assert_eq!(got, want, "{kind:?} {d:?} in {old:?}");
            }
        }
    }

    #[test]
    fn flags_that_no_end_sends_are_none() {
        for flags in [
            0,
            FIN,
            SYN | FIN,
            SYN | RST,
            FIN | RST,
            FIN | SYN | ACK,
            URG,
        ] {
            assert_eq!(Kind::of(flags), None, "{flags}");
        }
        // PSH, ECE and CWR are anybody's.
        assert_eq!(Kind::of(SYN | 0xc0), Some(Kind::Syn));
        assert_eq!(Kind::of(FIN | ACK | 8), Some(Kind::Fin));
    }
}
