//! Old tables as their users see them: blobs in, packets through, blobs out.

use super::{Get, Kind, Legacy, Replacement, add_counters, entries, info};
use crate::engine::{Engine, Outcome};
use crate::packet::{Hook, Meta, Packet};
use crate::reject::Reject;
use crate::table::Family;
use crate::tests::{Here, OUT, tcp};
use abi::Result;
use abi::errno::{EAGAIN, EINVAL, ELOOP};
use proptest::prelude::*;
use std::sync::Arc;

const ACCEPT: i32 = -2;
const DROP: i32 = -1;
const RETURN: i32 = -5;
/// Of an entry with a verdict alone.
const PLAIN: usize = 152;

fn part(name: &[u8], info: &[u8], revision: u8) -> Vec<u8> {
    let mut b = ((32 + info.len()) as u16).to_ne_bytes().to_vec();
    b.extend_from_slice(name);
    b.resize(31, 0);
    b.push(revision);
    b.extend_from_slice(info);
    b
}

fn verdict(v: i32) -> Vec<u8> {
    let mut info = v.to_ne_bytes().to_vec();
    info.resize(8, 0);
    part(b"", &info, 0)
}

/// An entry for a protocol (0: for all), with matches and a target.
fn entry(protocol: u8, matches: &[u8], target: &[u8]) -> Vec<u8> {
    let mut b = vec![0; 80];
    b.extend_from_slice(&[protocol, 0, 0, 0, 0, 0, 0, 0]);
    b.extend_from_slice(&((112 + matches.len()) as u16).to_ne_bytes());
    b.extend_from_slice(&((112 + matches.len() + target.len()) as u16).to_ne_bytes());
    b.resize(112, 0);
    b.extend_from_slice(matches);
    b.extend_from_slice(target);
    b
}

fn plain(v: i32) -> Vec<u8> {
    entry(0, &[], &verdict(v))
}

fn head(text: &[u8]) -> Vec<u8> {
    let mut info = text.to_vec();
    info.resize(32, 0);
    entry(0, &[], &part(b"ERROR", &info, 0))
}

fn to_port(port: u16) -> Vec<u8> {
    let mut info = [0, 0, 0xff, 0xff].to_vec();
    info.extend_from_slice(&port.to_ne_bytes());
    info.extend_from_slice(&port.to_ne_bytes());
    info.resize(16, 0);
    part(b"tcp", &info, 0)
}

/// `struct ipt_replace` of `filter`: begins and policies of input, forward and output by the
/// places of their entries.
fn replacement(all: &[Vec<u8>], begins: [usize; 3], policies: [usize; 3], old: u32) -> Vec<u8> {
    let at = |n: usize| all[..n].iter().map(Vec::len).sum::<usize>() as u32;
    let size = all.iter().map(Vec::len).sum::<usize>() as u32;
    let mut b = b"filter".to_vec();
    b.resize(32, 0);
    let five = |n: [usize; 3]| [0, at(n[0]), at(n[1]), at(n[2]), 0];
    let words = [0xe, all.len() as u32, size].into_iter();
    let words = words.chain(five(begins)).chain(five(policies)).chain([old]);
    words.for_each(|w| b.extend_from_slice(&w.to_ne_bytes()));
    b.extend_from_slice(&[0; 8]);
    all.iter().for_each(|e| b.extend_from_slice(e));
    b
}

/// Puts a table into the place of the one that there is.
fn replace(e: &Engine, value: &[u8]) -> Result<Vec<u8>> {
    let new = Replacement::read(Family::V4, value)?;
    let c = e.change();
    let mut rules = (*c.rules()).clone();
    let old = match rules.legacy(Family::V4, new.kind()?) {
        Some(t) => t.clone(),
        None => Arc::new(Legacy::empty(new.kind()?, Family::V4)?),
    };
    rules.legacy = vec![Arc::new(new.instead_of(&old)?)];
    c.commit_legacy(rules)?;
    Ok(old.counters())
}

fn told(e: &Engine) -> Vec<u8> {
    let rules = e.rules();
    let t = rules.legacy(Family::V4, Kind::Filter).unwrap();
    let mut head = info(b"filter", t);
    let size = u32::from_ne_bytes(head[80..84].try_into().unwrap());
    head.truncate(40);
    entries(&head, size as usize, t).unwrap()[40..].to_vec()
}

/// Of each entry the packets that it has counted.
fn counted(e: &Engine) -> Vec<u64> {
    let rules = e.rules();
    let t = rules.legacy(Family::V4, Kind::Filter).unwrap();
    let all = t.counters();
    let (pairs, _) = all.as_chunks::<16>();
    let first = |b: &[u8; 16]| u64::from_ne_bytes(*b.first_chunk().unwrap());
    pairs.iter().map(first).collect()
}

fn leaves(e: &Engine, port: u16) -> Outcome {
    let b = tcp(([10, 0, 0, 1], 4000), ([10, 0, 0, 2], port), 2);
    let mut p = Packet::new(&b, b.len(), 0, &Here).unwrap();
    p.output = Some(OUT);
    e.run(Hook::Output, &p, &mut Meta::default())
}

/// A chain that output leads to: 80 is dropped, 81 returns, 82 is refused.
fn with_a_chain() -> Vec<Vec<u8>> {
    let mut all = vec![plain(ACCEPT), plain(DROP)];
    let jump = 2 * PLAIN + PLAIN * 2 + head(b"OWN").len();
    all.push(plain(jump as i32));
    all.push(plain(ACCEPT));
    all.push(head(b"OWN"));
    all.push(entry(6, &to_port(80), &verdict(DROP)));
    all.push(entry(6, &to_port(81), &verdict(RETURN)));
    let reset = part(b"REJECT", &[7, 0, 0, 0, 0, 0, 0, 0], 0);
    all.push(entry(6, &to_port(82), &reset));
    all.push(plain(RETURN));
    all.push(head(b"ERROR"));
    all
}

#[test]
fn packets_go_through_chains() {
    let e = Engine::default();
    let all = with_a_chain();
    let value = replacement(&all, [0, 1, 2], [0, 1, 3], 4);
    assert_eq!(replace(&e, &value).unwrap().len(), 4 * 16);
    assert!(e.is_on());
    assert_eq!(leaves(&e, 80), Outcome::Drop);
    assert_eq!(leaves(&e, 81), Outcome::Accept(None));
    assert_eq!(leaves(&e, 82), Outcome::Reject(Reject::Reset));
    assert_eq!(leaves(&e, 83), Outcome::Accept(None));
    assert_eq!(counted(&e), [0, 0, 4, 2, 0, 1, 1, 1, 1, 0]);
    // Another table in its place tells what it has counted.
    let old = replace(&e, &replacement(&all, [0, 1, 2], [0, 1, 3], 10)).unwrap();
    assert_eq!(
        old[2 * 16..2 * 16 + 16],
        [4u64, 160].map(u64::to_ne_bytes).concat()
    );
    assert_eq!(counted(&e), [0; 10]);
    let again = replacement(&all, [0, 1, 2], [0, 1, 3], 9);
    assert_eq!(replace(&e, &again), Err(EAGAIN));
}

#[test]
fn entries_are_told_as_they_were_said() {
    let e = Engine::default();
    let all = with_a_chain();
    replace(&e, &replacement(&all, [0, 1, 2], [0, 1, 3], 4)).unwrap();
    let mut want: Vec<u8> = Vec::new();
    for (one, hooks) in all.iter().zip([2u8, 4, 8, 8, 0, 8, 8, 8, 8, 0]) {
        let at = want.len();
        want.extend_from_slice(one);
        want[at + 92] = hooks;
    }
    assert_eq!(told(&e), want);
    // Counters alone are changed.
    let mut more = b"filter".to_vec();
    more.resize(32, 0);
    more.extend_from_slice(&10u32.to_ne_bytes());
    more.resize(40, 0);
    (0..20u64).for_each(|n| more.extend_from_slice(&n.to_ne_bytes()));
    let rules = e.rules();
    let t = rules.legacy(Family::V4, Kind::Filter).unwrap();
    assert_eq!(add_counters(&more, t), Ok(()));
    assert_eq!(add_counters(&more, t), Ok(()));
    assert_eq!(counted(&e), [0, 4, 8, 12, 16, 20, 24, 28, 32, 36]);
}

#[test]
fn a_run_of_entries_leads_on_to_the_next() {
    // Output leads into the middle of its own chain, which others come to one by one.
    let e = Engine::default();
    let mut all = vec![plain(ACCEPT), plain(ACCEPT)];
    let policy = 2 * PLAIN + 200 + PLAIN;
    all.push(entry(6, &to_port(80), &verdict(policy as i32)));
    all.push(entry(17, &[], &verdict(policy as i32)));
    all.push(plain(ACCEPT));
    all.push(head(b"ERROR"));
    let value = replacement(&all, [0, 1, 2], [0, 1, 4], 4);
    replace(&e, &value).unwrap();
    assert_eq!(leaves(&e, 80), Outcome::Accept(None));
    assert_eq!(leaves(&e, 81), Outcome::Accept(None));
    assert_eq!(counted(&e), [0, 0, 1, 0, 2, 0]);
}

#[test]
fn rules_that_only_count_are_any_number() {
    // As iptables writes a rule without a target: its verdict is the next entry.
    let e = Engine::default();
    let mut all = vec![plain(ACCEPT), plain(ACCEPT)];
    all.extend((3..103).map(|next| plain((PLAIN * next) as i32)));
    all.extend([plain(DROP), head(b"ERROR")]);
    replace(&e, &replacement(&all, [0, 1, 2], [0, 1, 102], 4)).unwrap();
    assert_eq!(leaves(&e, 80), Outcome::Drop);
    assert_eq!(counted(&e)[2..103], [1; 101]);
}

#[test]
fn bad_blobs_are_refused() {
    let e = Engine::default();
    let all = with_a_chain();
    let good = replacement(&all, [0, 1, 2], [0, 1, 3], 4);
    let with = |at: usize, v: u8| {
        let mut b = good.clone();
        b[at] = v;
        replace(&e, &b).map(drop)
    };
    // (Where it may not refuse packets.)
    assert_eq!(with(0, b'F'), Err(EINVAL));
    assert_eq!(with(32, 0xf), Err(EINVAL));
    assert_eq!(with(36, 9), Err(EINVAL));
    assert_eq!(with(84, 5), Err(EAGAIN));
    assert_eq!(replace(&e, &good[..good.len() - 1]), Err(EINVAL));
    assert_eq!(replace(&e, &good[..95]), Err(EINVAL));
    let mut circle = all.clone();
    let own = 4 * PLAIN + head(b"OWN").len();
    circle[5] = entry(6, &to_port(80), &verdict(own as i32));
    let value = replacement(&circle, [0, 1, 2], [0, 1, 3], 4);
    assert_eq!(replace(&e, &value), Err(ELOOP));
    assert!(Get::Info.asks(83).is_err() && Get::Entries.asks(40) == Ok(40));
}

#[test]
fn all_tables_are_there_empty() {
    for kind in Kind::ALL {
        for family in [Family::V4, Family::V6] {
            let t = Legacy::empty(kind, family).unwrap();
            assert_eq!(t.counters.len(), kind.hooks().len() + 1);
            let bases = t.rules.chains.values().filter(|c| c.base.is_some());
            assert_eq!(bases.count(), kind.hooks().len());
        }
    }
}

proptest! {
    /// A good blob with bytes that were changed, and packets by what comes of it; what is accepted
    /// is accepted again as it is told.
    #[test]
    fn hostile_blobs(
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        ports in proptest::collection::vec(78u16..90, 0..6),
        cut in 0usize..64,
    ) {
        let e = Engine::default();
        let mut b = replacement(&with_a_chain(), [0, 1, 2], [0, 1, 3], 4);
        for (at, v) in changes {
            let n = b.len();
            b[usize::from(at) % n] = v;
        }
        b.truncate(b.len() - cut / 60);
        if replace(&e, &b).is_ok() && e.rules().legacy(Family::V4, Kind::Filter).is_some() {
            for p in ports {
                let _ = leaves(&e, p);
            }
            let n = told(&e).len();
            let (head, _) = b.split_at(96);
            let again = [head, &told(&e)].concat();
            prop_assert!(Replacement::read(Family::V4, &again).is_ok());
            prop_assert_eq!(n, told(&e).len());
        }
    }
}

/// What is said of a rule at one of the hooks: 0 is input, 2 output.
fn at_hook(hook: usize, rule: Vec<u8>) -> Result<()> {
    let mut all: Vec<_> = (0..3).map(|_| plain(ACCEPT)).collect();
    all.push(head(b"ERROR"));
    all.insert(hook, rule);
    let after = |n: usize| n + usize::from(n >= hook);
    let begins = [0, 1, 2].map(|n| if n == hook { n } else { after(n) });
    let blob = replacement(&all, begins, [0, 1, 2].map(after), 4);
    replace(&Engine::default(), &blob).map(drop)
}

#[test]
fn less_is_asked_for_in_syns_only() {
    let of = |hook: usize, mss: u16, flags: u8, inverted: u8| {
        let mut info = [0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff].to_vec();
        info.extend_from_slice(&[0, 0x17, flags, inverted, 0, 0, 0, 0]);
        let mut less = mss.to_ne_bytes().to_vec();
        less.resize(8, 0);
        let target = part(b"TCPMSS", &less, 0);
        at_hook(hook, entry(6, &part(b"tcp", &info, 0), &target))
    };
    assert_eq!((of(0, 500, 2, 0), of(2, 0xffff, 2, 0)), (Ok(()), Ok(())));
    assert_eq!(of(0, 500, 0, 0), Err(EINVAL));
    assert_eq!(of(0, 500, 2, 4), Err(EINVAL));
    assert_eq!(of(0, 0xffff, 2, 0), Err(EINVAL));
}

#[test]
fn a_quota_has_one_flag() {
    let of = |flags: u8| {
        let mut info = vec![0; 24];
        (info[0], info[8]) = (flags, 100);
        at_hook(2, entry(0, &part(b"quota", &info, 0), &verdict(DROP)))
    };
    assert_eq!([0, 1, 2].map(of), [Ok(()), Ok(()), Err(EINVAL)]);
}
