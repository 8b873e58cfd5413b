extern crate std;

use super::GapTree;
use proptest::prelude::*;
use std::vec::Vec;

const END: u64 = 4000;

/// The naive model: who owns each unit.
struct Model(Vec<(u64, u64, u32)>);

impl Model {
    fn free(&self, s: u64, e: u64) -> bool {
        self.0.iter().all(|r| r.1 <= s || e <= r.0)
    }
    fn lowest(&self, len: u64, lo: u64, hi: u64) -> Option<u64> {
        let starts = self.0.iter().map(|r| r.1).chain([lo]);
        starts
            .filter(|s| *s >= lo && s + len <= hi && self.free(*s, s + len))
            .min()
    }
    fn highest(&self, len: u64, lo: u64, hi: u64) -> Option<u64> {
        let ends = self.0.iter().map(|r| r.0).chain([hi]);
        ends.filter(|e| *e <= hi && *e >= lo + len && self.free(e - len, *e))
            .max()
            .map(|e| e - len)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64),
    Remove(u64),
    Split(u64),
    Resize(u64, u64, u64),
    Gap(u64, u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..END, 1u64..12).prop_map(|(s, l)| Op::Insert(s, l)),
        2 => (0..END).prop_map(Op::Remove),
        2 => (0..END).prop_map(Op::Split),
        1 => (0..END, 0u64..20, 0u64..20).prop_map(|(p, a, b)| Op::Resize(p, a, b)),
        3 => (1u64..40, 0..END, 0..END).prop_map(|(l, a, b)| Op::Gap(l, a.min(b), a.max(b))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_naive_model(ops in prop::collection::vec(op(), 1..900)) {
        let mut t = GapTree::new();
        let mut m = Model(Vec::new());
        for (n, op) in ops.into_iter().enumerate() {
            let value = n as u32;
            match op {
                Op::Insert(s, l) => {
                    let free = m.free(s, s + l);
                    prop_assert_eq!(t.insert(s..s + l, value).is_ok(), free);
                    if free {
                        m.0.push((s, s + l, value));
                    }
                }
                Op::Remove(p) => {
                    let at = m.0.iter().position(|r| r.0 <= p && p < r.1);
                    let want = at.map(|i| m.0.swap_remove(i)).map(|(s, e, v)| (s..e, v));
                    prop_assert_eq!(t.remove(p), want);
                }
                Op::Split(p) => {
                    t.split(p, |_, _| value);
                    if let Some(i) = m.0.iter().position(|r| r.0 < p && p < r.1) {
                        let e = m.0[i].1;
                        m.0[i].1 = p;
                        m.0.push((p, e, value));
                    }
                }
                Op::Resize(p, a, b) => {
                    if let Some(i) = m.0.iter().position(|r| r.0 <= p && p < r.1) {
                        let new = ((m.0[i].0 + 10).saturating_sub(a), (m.0[i].1 + b).saturating_sub(10));
                        let old = m.0.swap_remove(i);
                        let ok = new.0 < new.1 && m.free(new.0, new.1)
                            && m.0.iter().all(|r| (r.1 <= old.0) == (r.1 <= new.0));
                        prop_assert_eq!(t.resize(p, new.0..new.1), ok);
                        m.0.push(if ok { (new.0, new.1, old.2) } else { old });
                    }
                }
                Op::Gap(l, lo, hi) => {
                    prop_assert_eq!(t.lowest_gap(l, lo..hi), m.lowest(l, lo, hi));
                    prop_assert_eq!(t.highest_gap(l, lo..hi), m.highest(l, lo, hi));
                    let below = m.0.iter().filter(|r| r.0 < lo).max().map(|r| r.2);
                    prop_assert_eq!(t.last_below(lo).map(|r| *r.1), below);
                    let mut want: Vec<_> = m.0.iter().filter(|r| lo < hi && r.1 > lo && r.0 < hi).copied().collect();
                    want.sort_unstable();
                    let got: Vec<_> = t.range(lo..hi).map(|(r, v)| (r.start, r.end, *v)).collect();
                    prop_assert_eq!(&got, &want);
                    let mut seen = Vec::new();
                    t.for_each_mut(lo..hi, |r, v| seen.push((r.start, r.end, *v)));
                    prop_assert_eq!(&seen, &want);
                }
            }
            t.check();
        }
        prop_assert_eq!(t.len(), m.0.len());
        prop_assert_eq!(t.iter().count(), m.0.len());
    }
}

#[test]
fn a_hundred_thousand_ranges() {
    let mut t = GapTree::new();
    for i in 0..100_000u64 {
        // A scattered order.
        let at = (i * 77_777) % 100_000;
        t.insert(at * 4..at * 4 + 2, at).unwrap();
    }
    t.check();
    assert_eq!(t.highest_gap(3, 0..400_000), None);
    assert_eq!(t.remove(200_001), Some((200_000..200_002, 50_000)));
    assert_eq!(t.highest_gap(3, 0..400_000), Some(200_001));
    assert_eq!(t.lowest_gap(3, 0..400_000), Some(199_998));
    for i in 0..100_000u64 {
        t.remove(i * 4);
    }
    assert!(t.is_empty());
    t.check();
}
