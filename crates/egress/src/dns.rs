//! Questions for names, and their answers (RFC 1035, RFC 6891).
//!
//! Nothing passes as it came. A question is read, and one with its name and type only is asked; of
//! an answer the records of the answer section are kept, less the addresses that may not be
//! reached.

use crate::rule::normal;
use simple_dns::rdata::{A, AAAA, OPT, RData};
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE,
};
use std::net::IpAddr;

/// The longest message: what a TCP frame can say.
pub const MAX: usize = 65_535;
/// What a client without EDNS takes by UDP.
const PLAIN: usize = 512;
/// What we say that we take, and the most that we send by UDP: no fragments (RFC 9715).
const ROOM: u16 = 1232;
/// The most records of an answer that are passed on.
const RECORDS: usize = 128;
/// The most records that are looked at, and the longest answer: names in them may refer to others
/// before, each as long as the message.
const LOOKED_AT: u16 = 512;
const LONGEST: usize = 16 << 10;

/// What stands in front of a message.
struct Head {
    id: u16,
    is_answer: bool,
    /// Questions, answers, authorities, additional records.
    counts: [u32; 4],
}

impl Head {
    fn of(bytes: &[u8]) -> Option<Head> {
        let head = bytes.first_chunk::<12>()?;
        let word = |n: usize| u16::from_be_bytes([head[2 * n], head[2 * n + 1]]);
        Some(Head {
            id: word(0),
            is_answer: word(1) & 0x8000 != 0,
            counts: [2, 3, 4, 5].map(|n| word(n).into()),
        })
    }
}

/// How a message came, and its answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Udp,
    Tcp,
    /// Where there is no other way: of what does not fit, a part is given, and called the whole.
    UdpAlone,
}

/// A question that was understood.
#[derive(Clone, Debug)]
pub struct DnsQuery {
    id: u16,
    /// As [`normal`] gives it.
    pub name: String,
    kind: QTYPE,
    recursion: bool,
    edns: bool,
    /// The longest answer, in bytes.
    room: usize,
    by: Transport,
}

/// Why it was not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unasked {
    /// It is no question: nothing is answered.
    Nothing,
    /// The answer that says so.
    Answer(Vec<u8>),
}

/// Whether programs ask for records of this type: a number that nobody uses would be two bytes that
/// leave with each question. (The parser refuses numbers that it does not know, TLSA's and SSHFP's
/// among them.)
fn has_use(t: TYPE) -> bool {
    !matches!(t, TYPE::Unknown(_) | TYPE::NULL | TYPE::OPT)
}

/// Reads a question.
pub fn question(bytes: &[u8], by: Transport) -> Result<DnsQuery, Unasked> {
    // Before anything is parsed: what a stub of a C library writes is short, and has one question.
    let Some(head) = Head::of(bytes) else {
        return Err(Unasked::Nothing);
    };
    if head.is_answer || bytes.len() > usize::from(ROOM) {
        return Err(Unasked::Nothing);
    }
    if head.counts[0] != 1 || head.counts[1] + head.counts[2] != 0 || head.counts[3] > 1 {
        return Err(Unasked::Answer(bare(head.id, RCODE::FormatError)));
    }
    let packet = match Packet::parse(bytes) {
        Ok(p) if !p.has_flags(PacketFlag::RESPONSE) => p,
        _ => return Err(Unasked::Nothing),
    };
    let refuse = |code| Err(Unasked::Answer(bare(packet.id(), code)));
    if packet.opcode() != OPCODE::StandardQuery {
        return refuse(RCODE::NotImplemented);
    }
    let [q] = &packet.questions[..] else {
        return refuse(RCODE::FormatError);
    };
    let is_plain = matches!(q.qclass, QCLASS::CLASS(CLASS::IN))
        && matches!(q.qtype, QTYPE::TYPE(t) if has_use(t));
    if !is_plain {
        return refuse(RCODE::NotImplemented);
    }
    let Some(name) = normal(&q.qname.to_string()) else {
        return refuse(RCODE::NameError);
    };
    let offered = packet.opt().map(|o| usize::from(o.udp_packet_size));
    Ok(DnsQuery {
        id: packet.id(),
        name,
        kind: q.qtype,
        recursion: packet.has_flags(PacketFlag::RECURSION_DESIRED),
        edns: offered.is_some(),
        room: match by {
            Transport::Tcp => MAX,
            Transport::Udp | Transport::UdpAlone => {
                offered.unwrap_or(PLAIN).clamp(PLAIN, usize::from(ROOM))
            }
        },
        by,
    })
}

impl DnsQuery {
    /// The question as it is asked: of the first one only name and type.
    #[must_use]
    pub fn ask(&self, id: u16) -> Vec<u8> {
        let mut p = Packet::new_query(id);
        p.set_flags(PacketFlag::RECURSION_DESIRED);
        p.questions.extend(self.question());
        *p.opt_mut() = Some(edns());
        p.build_bytes_vec().unwrap_or_default()
    }

    /// An answer without records.
    #[must_use]
    pub fn answer_with(&self, code: RCODE) -> Vec<u8> {
        self.build(code, Vec::new(), false)
    }

    /// What the upstream server's answer is for the one that asked. `None`: it is none to this
    /// question, go on waiting. `Err`: it did not fit there, ask by TCP.
    ///
    /// `denied` says of a name on the way (CNAME) whether it may not be reached; then there is no
    /// address. `keep` says whether an address may be given; it hears the seconds that it holds.
    pub fn answer(
        &self,
        bytes: &[u8],
        id: u16,
        by: Transport,
        denied: impl Fn(&str) -> bool,
        mut keep: impl FnMut(IpAddr, u64) -> bool,
    ) -> Result<Option<Vec<u8>>, Truncated> {
        if by == Transport::Udp && bytes.len() > usize::from(ROOM) {
            return Err(Truncated);
        }
        let head = Head::of(bytes).filter(|h| h.counts.iter().sum::<u32>() <= LOOKED_AT.into());
        if bytes.len() > LONGEST || head.is_none() {
            return Ok(None);
        }
        let Ok(p) = Packet::parse(bytes) else {
            return Ok(None);
        };
        let same = matches!(&p.questions[..], [q] if q.qtype == self.kind
            && normal(&q.qname.to_string()).as_deref() == Some(&self.name));
        if p.id() != id || !p.has_flags(PacketFlag::RESPONSE) || !same {
            return Ok(None);
        }
        if p.has_flags(PacketFlag::TRUNCATION) && by == Transport::Udp {
            return Err(Truncated);
        }
        let leads_to_denied = p.answers.iter().any(|r| match &r.rdata {
            RData::CNAME(c) => normal(&c.0.to_string()).is_none_or(|n| denied(&n)),
            _ => false,
        });
        if leads_to_denied {
            return Ok(Some(self.answer_with(RCODE::NameError)));
        }
        let mut records = Vec::new();
        for r in p
            .answers
            .iter()
            .filter(|r| r.class == CLASS::IN)
            .take(RECORDS)
        {
            let ip = match &r.rdata {
                RData::A(A { address }) => Some(IpAddr::V4((*address).into())),
                RData::AAAA(AAAA { address }) => Some(IpAddr::V6((*address).into())),
                _ => None,
            };
            if ip.is_none_or(|ip| keep(ip, r.ttl.into())) {
                records.push(r.clone());
            }
        }
        Ok(Some(self.build(p.rcode(), records, true)))
    }

    fn question(&self) -> Option<simple_dns::Question<'_>> {
        let name = Name::new(&self.name).ok()?;
        Some(simple_dns::Question::new(
            name,
            self.kind,
            CLASS::IN.into(),
            false,
        ))
    }

    fn build(&self, code: RCODE, records: Vec<ResourceRecord<'_>>, recursed: bool) -> Vec<u8> {
        let mut p = Packet::new_reply(self.id);
        if self.recursion {
            p.set_flags(PacketFlag::RECURSION_DESIRED);
        }
        if recursed {
            p.set_flags(PacketFlag::RECURSION_AVAILABLE);
        }
        // (What needs more than four bits needs EDNS.)
        let code = if (code as u16) < 16 {
            code
        } else {
            RCODE::ServerFailure
        };
        *p.rcode_mut() = code;
        p.questions.extend(self.question());
        if self.edns {
            *p.opt_mut() = Some(edns());
        }
        p.answers = records;
        loop {
            let whole = p.build_bytes_vec_compressed().unwrap_or_default();
            if !whole.is_empty() && whole.len() <= self.room {
                return whole;
            }
            if self.by != Transport::UdpAlone || p.answers.is_empty() {
                break;
            }
            // (At most `RECORDS` times: an eighth less each time.)
            p.answers
                .truncate(p.answers.len() - p.answers.len().div_ceil(8));
        }
        p.answers.clear();
        p.set_flags(PacketFlag::TRUNCATION);
        p.build_bytes_vec_compressed().unwrap_or_default()
    }
}

/// The answer did not fit into a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncated;

fn edns() -> OPT<'static> {
    OPT {
        opt_codes: Vec::new(),
        udp_packet_size: ROOM,
        version: 0,
    }
}

/// An answer to what was not understood well enough to repeat the question.
fn bare(id: u16, code: RCODE) -> Vec<u8> {
    let mut p = Packet::new_reply(id);
    *p.rcode_mut() = code;
    p.build_bytes_vec().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use simple_dns::Question;
    use simple_dns::rdata::TXT;

    fn query(name: &str, kind: TYPE) -> Vec<u8> {
        let mut p = Packet::new_query(7);
        p.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new(name).unwrap();
        p.questions
            .push(Question::new(name, kind.into(), CLASS::IN.into(), false));
        p.build_bytes_vec().unwrap()
    }

    fn upstream(name: &str, kind: TYPE, id: u16, data: Vec<RData<'_>>) -> Vec<u8> {
        let mut p = Packet::new_reply(id);
        let name = Name::new(name).unwrap();
        p.questions.push(Question::new(
            name.clone(),
            kind.into(),
            CLASS::IN.into(),
            false,
        ));
        for d in data {
            p.answers
                .push(ResourceRecord::new(name.clone(), CLASS::IN, 60, d));
        }
        p.build_bytes_vec().unwrap()
    }

    #[test]
    fn there_and_back() {
        let asked = question(&query("PyPI.org", TYPE::A), Transport::Udp).unwrap();
        assert_eq!(asked.name, "pypi.org");
        let sent = asked.ask(99);
        let p = Packet::parse(&sent).unwrap();
        assert_eq!(
            (p.id(), p.questions[0].qname.to_string().as_str()),
            (99, "pypi.org")
        );
        let good = RData::A(A {
            address: 0x0101_0101,
        });
        let bad = RData::A(A {
            address: 0x7f00_0001,
        });
        let reply = upstream("pypi.org", TYPE::A, 99, vec![good, bad]);
        let mut seen = Vec::new();
        let keep = |ip: IpAddr, ttl| {
            seen.push((ip, ttl));
            !ip.to_string().starts_with("127.")
        };
        let back = asked
            .answer(&reply, 99, Transport::Udp, |_| false, keep)
            .unwrap()
            .unwrap();
        let p = Packet::parse(&back).unwrap();
        assert_eq!((p.id(), p.answers.len(), seen.len()), (7, 1, 2));
        assert_eq!(
            p.answers[0].rdata,
            RData::A(A {
                address: 0x0101_0101
            })
        );
    }

    #[test]
    fn numbers_without_use_do_not_leave() {
        for (kind, asked) in [
            (1, true),
            (28, true),
            (65, true),
            (52, false),
            (10, false),
            (41, false),
            (0x7365, false),
        ] {
            let q = question(&query("a.org", TYPE::from(kind)), Transport::Udp);
            assert_eq!(q.is_ok(), asked, "{kind}");
        }
    }

    #[test]
    fn another_s_answer_is_none() {
        let asked = question(&query("a.org", TYPE::A), Transport::Udp).unwrap();
        let a = || vec![RData::A(A { address: 1 })];
        for wrong in [
            upstream("a.org", TYPE::A, 98, a()),
            upstream("b.org", TYPE::A, 99, a()),
            upstream("a.org", TYPE::AAAA, 99, a()),
            query("a.org", TYPE::A),
            vec![1, 2, 3],
        ] {
            assert_eq!(
                asked.answer(&wrong, 99, Transport::Udp, |_| false, |_, _| true),
                Ok(None)
            );
        }
    }

    #[test]
    fn what_does_not_fit() {
        let asked = question(&query("a.org", TYPE::TXT), Transport::Udp).unwrap();
        let long = "x".repeat(200);
        let texts = || {
            (0..5)
                .map(|_| RData::TXT(TXT::new().with_string(&long).unwrap()))
                .collect()
        };
        let reply = upstream("a.org", TYPE::TXT, 1, texts());
        let back = asked
            .answer(&reply, 1, Transport::Udp, |_| false, |_, _| true)
            .unwrap()
            .unwrap();
        let p = Packet::parse(&back).unwrap();
        assert!(back.len() <= PLAIN && p.has_flags(PacketFlag::TRUNCATION) && p.answers.is_empty());
        let asked = question(&query("a.org", TYPE::TXT), Transport::Tcp).unwrap();
        let back = asked
            .answer(&reply, 1, Transport::Tcp, |_| false, |_, _| true)
            .unwrap()
            .unwrap();
        assert_eq!(Packet::parse(&back).unwrap().answers.len(), 5);
        let mut cut = Packet::parse(&reply).unwrap();
        cut.set_flags(PacketFlag::TRUNCATION);
        let cut = cut.build_bytes_vec().unwrap();
        assert_eq!(
            asked.answer(&cut, 1, Transport::Udp, |_| false, |_, _| true),
            Err(Truncated)
        );
    }

    #[test]
    fn what_is_no_question() {
        assert_eq!(question(&[], Transport::Udp).unwrap_err(), Unasked::Nothing);
        assert_eq!(
            question(&upstream("a.org", TYPE::A, 1, vec![]), Transport::Udp).unwrap_err(),
            Unasked::Nothing
        );
        let mut many = Packet::parse(&query("a.org", TYPE::A))
            .unwrap()
            .into_owned_twice();
        many.set_id(9);
        let bytes = many.build_bytes_vec().unwrap();
        let Err(Unasked::Answer(a)) = question(&bytes, Transport::Udp) else {
            panic!("two questions");
        };
        assert_eq!(Packet::parse(&a).unwrap().rcode(), RCODE::FormatError);
    }

    trait Twice {
        fn into_owned_twice(self) -> Packet<'static>;
    }
    impl Twice for Packet<'_> {
        fn into_owned_twice(self) -> Packet<'static> {
            let mut p = Packet::new_query(self.id());
            let q = self.questions[0].clone().into_owned();
            p.questions.extend([q.clone(), q]);
            p
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = question(&bytes, Transport::Udp);
            let asked = question(&query("a.org", TYPE::A), Transport::Udp).unwrap();
            let _ = asked.answer(&bytes, 1, Transport::Udp, |_| false, |_, _| true);
        }
        #[test]
        fn a_message_with_bytes_changed(
            at in proptest::collection::vec((0usize..80, any::<u8>()), 1..8),
        ) {
            let mut bytes = upstream("a.org", TYPE::A, 1, vec![RData::A(A { address: 1 })]);
            for (i, b) in at {
                let n = bytes.len();
                bytes[i % n] = b;
            }
            let asked = question(&query("a.org", TYPE::A), Transport::Udp).unwrap();
            let _ = asked.answer(&bytes, 1, Transport::Udp, |_| false, |_, _| true);
            let _ = question(&bytes, Transport::Tcp);
        }
    }
}
