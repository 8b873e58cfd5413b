//! The engine as its users see it: messages in, packets through.

use crate::attr::{Out, Selection};
use crate::conntrack::{CONFIRMED, Direction};
use crate::engine::{Engine, Outcome};
use crate::nft::{self, Message, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, Transaction, kind};
use crate::packet::{Device, Hook, Host, Meta, Packet};
use crate::rewrite::{Checksum, apply};
use crate::set::Equal;
use abi::Result;
use abi::errno::{E2BIG, EBUSY, EEXIST, EMLINK, ENOENT, EOPNOTSUPP};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

pub(crate) struct Here;

impl Host for Here {
    fn kind_of(&self, ip: IpAddr) -> u8 {
        let own = ip.is_loopback() || ip == IpAddr::from([10, 0, 0, 1]);
        if own { 2 } else { 1 }
    }
    fn mtu_towards(&self, _: IpAddr) -> u32 {
        1400
    }
    fn address_on(&self, device: u32, _: IpAddr) -> Option<IpAddr> {
        (device == 2).then(|| IpAddr::from([10, 0, 0, 1]))
    }
}

pub(crate) const OUT: Device<'static> = Device {
    index: 2,
    name: "eth0",
    hardware: 1,
    guarded: true,
};

type End = ([u8; 4], u16);

/// A segment of TCP, its checksums right.
pub(crate) fn tcp(from: End, to: End, flags: u8) -> Vec<u8> {
    let mut b = vec![0; 40];
    b[0] = 0x45;
    b[3] = 40;
    (b[8], b[9]) = (64, 6);
    b[12..16].copy_from_slice(&from.0);
    b[16..20].copy_from_slice(&to.0);
    b[20..22].copy_from_slice(&from.1.to_be_bytes());
    b[22..24].copy_from_slice(&to.1.to_be_bytes());
    (b[32], b[33]) = (0x50, flags);
    let sum = sum(&b[..20]);
    b[10..12].copy_from_slice(&(!sum).to_be_bytes());
    let sum = !transport_sum(&b);
    b[36..38].copy_from_slice(&sum.to_be_bytes());
    b
}

fn sum(b: &[u8]) -> u16 {
    let mut n: u32 = 0;
    for w in b.chunks(2) {
        n += u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0));
    }
    while n >> 16 != 0 {
        n = (n & 0xffff) + (n >> 16);
    }
    n as u16
}

fn transport_sum(b: &[u8]) -> u16 {
    let mut pseudo = b[12..20].to_vec();
    pseudo.extend_from_slice(&[0, b[9]]);
    pseudo.extend_from_slice(&((b.len() - 20) as u16).to_be_bytes());
    pseudo.extend_from_slice(&b[20..]);
    sum(&pseudo)
}

fn message(o: impl FnOnce(&mut Out)) -> Vec<u8> {
    let mut out = Out::default();
    o(&mut out);
    out.0
}

/// Changes rules of the family `ip`, all or none.
fn change(e: &Engine, all: &[(u8, u16, Vec<u8>)]) -> Result<()> {
    let c = e.change();
    let mut t = Transaction::new(&c.rules(), 0);
    for (kind, flags, attrs) in all {
        t.apply(&Message {
            kind: *kind,
            flags: *flags,
            family: 2,
            attrs,
        })?;
    }
    c.commit(t.finish())
}

fn table(name: &str) -> (u8, u16, Vec<u8>) {
    (kind::NEWTABLE, NLM_F_CREATE, message(|o| o.text(1, name)))
}

/// A chain; with a hook and a priority a base chain of the type.
fn chain(name: &str, base: Option<(&str, Hook, i32)>) -> (u8, u16, Vec<u8>) {
    let m = message(|o| {
        o.text(1, "t");
        o.text(3, name);
        if let Some((kind, hook, priority)) = base {
            o.nest(4, |o| {
                o.be32(1, hook as u32);
                o.be32(2, priority as u32);
            });
            o.text(7, kind);
        }
    });
    (kind::NEWCHAIN, NLM_F_CREATE, m)
}

fn expr(o: &mut Out, name: &str, data: impl FnOnce(&mut Out)) {
    o.nest(1, |o| {
        o.text(1, name);
        o.nest(2, data);
    });
}

fn rule(chain: &str, exprs: impl FnOnce(&mut Out)) -> (u8, u16, Vec<u8>) {
    let m = message(|o| {
        o.text(1, "t");
        o.text(2, chain);
        o.nest(4, exprs);
    });
    (kind::NEWRULE, NLM_F_CREATE | NLM_F_APPEND, m)
}

fn verdict(o: &mut Out, code: i32, chain: Option<&str>) {
    expr(o, "immediate", |o| {
        o.be32(1, 0);
        o.nest(2, |o| {
            o.nest(2, |o| {
                o.be32(1, code as u32);
                if let Some(c) = chain {
                    o.text(2, c);
                }
            });
        });
    });
}

fn jump(from: &str, to: &str) -> (u8, u16, Vec<u8>) {
    rule(from, |o| verdict(o, -3, Some(to)))
}

/// `tcp dport N`.
fn port(o: &mut Out, port: u16) {
    expr(o, "payload", |o| {
        o.be32(1, 1);
        o.be32(2, 2);
        o.be32(3, 2);
        o.be32(4, 2);
    });
    expr(o, "cmp", |o| {
        o.be32(1, 1);
        o.be32(2, 0);
        o.nest(3, |o| o.put(1, &port.to_be_bytes()));
    });
}

fn run(e: &Engine, hook: Hook, b: &[u8], meta: &mut Meta) -> Outcome {
    let mut p = Packet::new(b, b.len(), 1, &Here).unwrap();
    match hook {
        Hook::Prerouting | Hook::Input => p.input = Some(OUT),
        Hook::Forward => (p.input, p.output) = (Some(OUT), Some(OUT)),
        Hook::Output | Hook::Postrouting => p.output = Some(OUT),
    }
    e.run(hook, &p, meta)
}

const A: End = ([10, 0, 0, 1], 4000);
const B: End = ([192, 0, 2, 1], 80);

#[test]
fn a_rule_drops_what_it_matches() {
    let e = Engine::default();
    assert!(!e.is_on());
    change(
        &e,
        &[
            table("t"),
            chain("in", Some(("filter", Hook::Input, 0))),
            rule("in", |o| {
                port(o, 80);
                verdict(o, 0, None);
            }),
        ],
    )
    .unwrap();
    assert!(e.is_on());
    let drops = |n: u16| run(&e, Hook::Input, &tcp(B, (A.0, n), 2), &mut Meta::default());
    assert_eq!(drops(80), Outcome::Drop);
    assert_eq!(drops(81), Outcome::Accept(None));
    let m = message(|o| o.text(1, "t"));
    change(&e, &[(kind::DELTABLE, 0, m)]).unwrap();
    assert!(!e.is_on());
}

#[test]
fn a_transaction_is_whole_or_nothing() {
    let e = Engine::default();
    let bad = rule("none", |o| verdict(o, 1, None));
    assert_eq!(change(&e, &[table("t"), bad]), Err(ENOENT));
    assert!(e.rules().tables.is_empty());
    change(
        &e,
        &[
            table("t"),
            chain("a", None),
            chain("b", None),
            jump("a", "b"),
        ],
    )
    .unwrap();
    let (k, _, m) = table("t");
    assert_eq!(
        change(&e, &[(k, NLM_F_CREATE | NLM_F_EXCL, m)]),
        Err(EEXIST)
    );
    let del = |name: &str| {
        let m = message(|o| {
            o.text(1, "t");
            o.text(3, name);
        });
        (kind::DELCHAIN, 0, m)
    };
    assert_eq!(change(&e, &[del("b")]), Err(EBUSY));
    change(&e, &[del("a"), del("b")]).unwrap();
    assert_eq!(e.rules().generation, 3);
}

#[test]
fn circles_depth_and_cost_are_bounded() {
    let e = Engine::default();
    let base = chain("in", Some(("filter", Hook::Input, 0)));
    let circle = [
        table("t"),
        chain("a", None),
        chain("b", None),
        jump("a", "b"),
        jump("b", "a"),
    ];
    assert_eq!(change(&e, &circle), Err(EMLINK));
    let names: Vec<String> = (0..18).map(|n| format!("c{n}")).collect();
    let mut deep = vec![table("t"), base.clone()];
    deep.extend(names.iter().map(|n| chain(n, None)));
    deep.extend(names.windows(2).map(|w| jump(&w[0], &w[1])));
    deep.push(jump("in", "c0"));
    assert_eq!(change(&e, &deep), Err(EMLINK));
    // Ten chains that lead to the next twelve times each: 12^10 rules for a packet.
    let mut dear = vec![table("t"), base];
    dear.extend(names[..10].iter().map(|n| chain(n, None)));
    for w in names[..10].windows(2) {
        dear.extend((0..12).map(|_| jump(&w[0], &w[1])));
    }
    dear.push(jump("in", "c0"));
    assert_eq!(change(&e, &dear), Err(E2BIG));
    assert!(e.rules().tables.is_empty());
}

#[test]
fn translations_are_where_they_may_be() {
    let e = Engine::default();
    let masq = |chain: &str| rule(chain, |o| expr(o, "masq", |_| {}));
    let filter = chain("in", Some(("filter", Hook::Input, 0)));
    assert_eq!(
        change(&e, &[table("t"), filter, masq("in")]),
        Err(EOPNOTSUPP)
    );
    let post = chain("post", Some(("nat", Hook::Postrouting, 100)));
    let way = [
        table("t"),
        post,
        chain("x", None),
        jump("post", "x"),
        masq("x"),
    ];
    change(&e, &way).unwrap();
}

/// `redirect to :N` for a port.
fn redirects(e: &Engine, from: u16, to: u16) {
    let out = chain("out", Some(("nat", Hook::Output, -100)));
    let r = rule("out", |o| {
        port(o, from);
        expr(o, "immediate", |o| {
            o.be32(1, 1);
            o.nest(2, |o| o.put(1, &to.to_be_bytes()));
        });
        expr(o, "redir", |o| o.be32(1, 1));
    });
    change(e, &[table("t"), out, r]).unwrap();
}

#[test]
fn a_connection_is_translated_both_ways() {
    let e = Engine::default();
    redirects(&e, 80, 15001);
    let (mut meta, syn) = (Meta::default(), tcp(A, B, 2));
    let Outcome::Accept(Some(r)) = run(&e, Hook::Output, &syn, &mut meta) else {
        panic!("not translated");
    };
    assert_eq!(r.to, (IpAddr::from([127, 0, 0, 1]), 15001));
    let mut b = syn.clone();
    apply(&mut b, &r, Checksum::Whole).unwrap();
    assert_eq!((sum(&b[..20]), transport_sum(&b)), (0xffff, 0xffff));
    assert_eq!(
        run(&e, Hook::Postrouting, &b, &mut meta),
        Outcome::Accept(None)
    );
    let flow = meta.track.flow().unwrap().clone();
    assert_eq!(flow.status() & CONFIRMED, CONFIRMED);
    // The answer gets the address back that was connected to.
    let (mut meta, back) = (Meta::default(), tcp(([127, 0, 0, 1], 15001), A, 0x12));
    assert_eq!(
        run(&e, Hook::Output, &back, &mut meta),
        Outcome::Accept(None)
    );
    let Outcome::Accept(Some(r)) = run(&e, Hook::Postrouting, &back, &mut meta) else {
        panic!("not translated");
    };
    assert_eq!(r.from, (IpAddr::V4(Ipv4Addr::from(B.0)), B.1));
    assert_eq!(meta.track.direction(), Direction::Reply);
    assert_eq!(e.flows.count(), 1);
    assert_eq!(
        crate::ct::ask(&e.flows, crate::ct::GET, 2, &[], Selection::All, 1)
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_full_table_makes_room() {
    let e = Engine::default();
    redirects(&e, 80, 15001);
    e.flows.set_most(64);
    for n in 0..1000u16 {
        let (mut meta, b) = (
            Meta::default(),
            tcp((A.0, 2000 + n), ([192, 0, 2, 2], 81), 2),
        );
        assert!(matches!(
            run(&e, Hook::Output, &b, &mut meta),
            Outcome::Accept(_)
        ));
        assert!(matches!(
            run(&e, Hook::Postrouting, &b, &mut meta),
            Outcome::Accept(_)
        ));
    }
    assert!(e.flows.count() <= 64);
}

/// Segments between A and B, in the order of time: what each is to its connection (`ct state`).
fn states(e: &Engine, all: &[(bool, u8)]) -> Vec<u32> {
    let one = |(forth, flags): &(bool, u8)| {
        let b = if *forth {
            tcp(A, B, *flags)
        } else {
            tcp(B, A, *flags)
        };
        let mut meta = Meta::default();
        let (first, last) = match forth {
            true => (Hook::Output, Hook::Postrouting),
            false => (Hook::Prerouting, Hook::Input),
        };
        run(e, first, &b, &mut meta);
        run(e, last, &b, &mut meta);
        meta.track.bits()
    };
    all.iter().map(one).collect()
}

#[test]
fn segments_are_what_linux_says() {
    const NEW: u32 = 8;
    const OLD: u32 = 2;
    const INVALID: u32 = 1;
    let (forth, back) = (true, false);
    let begin = [(forth, 2), (back, 0x12), (forth, 16)];
    let e = Engine::default();
    redirects(&e, 81, 1);
    assert_eq!(states(&e, &begin), [NEW, OLD, OLD]);
    // Nobody sends SYN with FIN, nor a SYN back in the middle.
    let odd = [(forth, 3), (back, 2), (forth, 0), (forth, 2)];
    assert_eq!(states(&e, &odd), [INVALID, INVALID, INVALID, OLD]);
    let end = [(forth, 17), (back, 17), (forth, 16)];
    assert_eq!(states(&e, &end), [OLD; 3]);
    let phase = |e: &Engine| e.flows.all(1)[0].phase().number();
    assert_eq!(phase(&e), 7);
    // Over: the same ends begin again.
    assert_eq!(states(&e, &begin), [NEW, OLD, OLD]);
    assert_eq!((phase(&e), e.flows.count()), (3, 1));
    // A connection that is reset at once is none.
    let e = Engine::default();
    redirects(&e, 81, 1);
    assert_eq!(states(&e, &[(forth, 2), (back, 20)]), [NEW, OLD]);
    assert!(e.flows.all(1).is_empty());
    // One that began before anybody looked is taken up; an end of one is not.
    assert_eq!(states(&e, &[(forth, 17), (back, 0x12)]), [INVALID; 2]);
    assert_eq!(states(&e, &[(forth, 16), (back, 16)]), [NEW, OLD]);
}

#[test]
fn sets_find_keys_intervals_and_all_others() {
    use crate::set::{CATCHALL, INTERVAL, Key, Place, Set, Shape, start};
    let set = |flags| Set {
        shape: Shape {
            name: "s".into(),
            handle: 1,
            flags,
            key_type: 0,
            key_len: 2,
            data_type: None,
            data_len: 0,
            timeout: 0,
            gc: 0,
            policy: 0,
            size: 0,
            fields: Vec::new(),
            userdata: Box::default(),
        },
        elements: Default::default(),
        asked: 0,
    };
    let of = |userdata: u8| crate::set::Element {
        data: None,
        userdata: [userdata].into(),
        exprs: [].into(),
        timeout: None,
        expires: None,
    };
    let at = |n: u8, place| Key {
        place,
        ..start(&[0, n])
    };
    let told = |s: &Set, n: u8| s.find(&[0, n], 0).map(|e| e.userdata[0]);
    let mut keys = set(0);
    keys.add(at(5, Place::Start), of(5), Equal::Refuses, 0)
        .unwrap();
    assert_eq!((told(&keys, 5), told(&keys, 6)), (Some(5), None));
    let mut ranges = set(INTERVAL);
    for (n, place) in [(0, Place::End), (10, Place::Start), (20, Place::End)] {
        ranges.add(at(n, place), of(n), Equal::Refuses, 0).unwrap();
    }
    let all = [9, 10, 19, 20].map(|n| told(&ranges, n));
    assert_eq!(all, [None, Some(10), Some(10), None]);
    let rest = Key {
        place: Place::CatchAll,
        ..start(&[])
    };
    ranges
        .add(rest, of(CATCHALL as u8), Equal::Refuses, 0)
        .unwrap();
    assert_eq!((told(&ranges, 20), told(&ranges, 12)), (Some(2), Some(10)));
}

proptest! {
    /// Whatever is sent to it, nothing but an error comes of it.
    #[test]
    fn hostile_messages(all in proptest::collection::vec(
        (0u8..34, any::<u16>(), 0u8..13, proptest::collection::vec(any::<u8>(), 0..200)), 1..8
    )) {
        let e = Engine::default();
        redirects(&e, 80, 1);
        let c = e.change();
        let mut t = Transaction::new(&c.rules(), 0);
        for (kind, flags, family, attrs) in &all {
            let m = Message { kind: *kind, flags: *flags, family: *family, attrs };
            let _ = t.apply(&m);
            let _ = nft::ask(&e.rules(), &m, Selection::All, 0, (1, "x"));
            let _ = crate::ct::ask(&e.flows, *kind, *family, attrs, Selection::One, 0);
        }
        let _ = c.commit(t.finish());
    }

    /// Known messages with bytes that were changed, and whatever packets by what comes of them.
    #[test]
    fn hostile_rules_and_packets(
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..4),
        packet in proptest::collection::vec(any::<u8>(), 0..120),
        v6: bool,
    ) {
        let e = Engine::default();
        let mut m = vec![
            table("t"), chain("out", Some(("nat", Hook::Output, -100))), chain("x", None),
            jump("out", "x"),
            rule("x", |o| { port(o, 80); expr(o, "redir", |_| {}); }),
            rule("x", |o| {
                expr(o, "bitwise", |o| {
                    o.be32(1, 1); o.be32(2, 9); o.be32(3, 8);
                    crate::expr::put_value(o, 4, &[1; 8]);
                    crate::expr::put_value(o, 5, &[0; 8]);
                });
            }),
        ];
        for (at, b) in changes {
            let n = usize::from(at) % m.len();
            let len = m[n].2.len();
            m[n].2[usize::from(at) / 7 % len] = b;
        }
        let _ = change(&e, &m);
        let mut packet = packet;
        if let Some(b) = packet.first_mut() {
            *b = if v6 { 0x60 } else { 0x45 };
        }
        if let Some(p) = Packet::new(&packet, packet.len(), 1, &Here) {
            let mut meta = Meta::default();
            for hook in Hook::ALL {
                if let Outcome::Accept(Some(r)) = e.run(hook, &p, &mut meta) {
                    let _ = apply(&mut packet.clone(), &r, Checksum::Whole);
                }
            }
        }
    }

    /// A translation there and back leaves the bytes as they were.
    #[test]
    fn checksums_stay_right(a: u32, b: u32, p: u16, q: u16) {
        use crate::nat::Rewrite;
        let first = tcp(A, B, 16);
        let mut bytes = first.clone();
        let there = Rewrite {
            from: (Ipv4Addr::from(a).into(), p), to: (Ipv4Addr::from(b).into(), q),
            protocol: 6, quoted: None,
            mss: None,
            is_translated: true,
        };
        let back = Rewrite {
            from: (Ipv4Addr::from(A.0).into(), A.1), to: (Ipv4Addr::from(B.0).into(), B.1),
            protocol: 6, quoted: None,
            mss: None,
            is_translated: true,
        };
        apply(&mut bytes, &there, Checksum::Whole).unwrap();
        prop_assert_eq!((sum(&bytes[..20]), transport_sum(&bytes)), (0xffff, 0xffff));
        apply(&mut bytes, &back, Checksum::Whole).unwrap();
        prop_assert_eq!((sum(&bytes[..20]), transport_sum(&bytes)), (0xffff, 0xffff));
    }
}

/// A SYN that asks for segments of 1460 bytes, with what lies before that.
fn asking(before: &[u8]) -> Vec<u8> {
    let options = [
        before,
        &[2, 4, 5, 180],
        &[0; 4][..(4 - before.len() % 4) % 4],
    ]
    .concat();
    let len = 40 + options.len();
    let mut b = vec![
        0x45, 0, 0, len as u8, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    b.extend_from_slice(&[0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0]);
    b.extend_from_slice(&[((20 + options.len()) as u8) << 2, 2, 1, 1, 0, 0, 0, 0]);
    b.extend_from_slice(&options);
    b
}

#[test]
fn a_syn_asks_for_less() {
    use crate::rewrite::{Checksum, apply, mss_at};
    for before in [&[][..], &[1], &[3, 3, 7], &[8, 10, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let mut b = asking(before);
        let sum = |b: &[u8]| {
            let words = b[20..]
                .chunks(2)
                .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
            let all: u32 = words.sum();
            (all & 0xffff) + (all >> 16)
        };
        // (Of this sum, without the pseudo header, nothing else changes.)
        let whole = !(sum(&b) as u16);
        b[36..38].copy_from_slice(&whole.to_be_bytes());
        assert_eq!(sum(&b) as u16, 0xffff);
        let p = Packet::new(&b, b.len(), 0, &Here).unwrap();
        let r = crate::nat::Rewrite {
            mss: Some(1200),
            ..crate::nat::Rewrite::same(&p)
        };
        let mut new = b.clone();
        apply(&mut new, &r, Checksum::Whole).unwrap();
        let at = 20 + mss_at(&new[20..]).unwrap();
        assert_eq!(new[at..at + 2], 1200u16.to_be_bytes(), "{before:?}");
        let folded = sum(&new);
        assert_eq!((folded & 0xffff) + (folded >> 16), 0xffff, "{before:?}");
        let more = crate::nat::Rewrite {
            mss: Some(9000),
            ..r
        };
        let mut same = b.clone();
        apply(&mut same, &more, Checksum::Whole).unwrap();
        assert_eq!(same, b);
    }
    assert_eq!(mss_at(&[0; 12]), None);
}
