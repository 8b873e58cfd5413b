//! Looking up, by point and by gap.

use crate::node::{Entry, Node};
use core::ops::Range;

pub(crate) fn first_from<V>(mut node: &Node<V>, point: u64) -> Option<&Entry<V>> {
    loop {
        match node {
            Node::Leaf(v) => return v.get(v.partition_point(|e| e.end <= point)),
            Node::Inner(v) => node = &v.get(v.partition_point(|c| c.span.end <= point))?.node,
        }
    }
}

pub(crate) fn first_from_mut<V>(mut node: &mut Node<V>, point: u64) -> Option<&mut Entry<V>> {
    loop {
        match node {
            Node::Leaf(v) => {
                let at = v.partition_point(|e| e.end <= point);
                return v.get_mut(at);
            }
            Node::Inner(v) => {
                let at = v.partition_point(|c| c.span.end <= point);
                node = &mut v.get_mut(at)?.node;
            }
        }
    }
}

pub(crate) fn last_below<V>(mut node: &Node<V>, point: u64) -> Option<&Entry<V>> {
    loop {
        match node {
            Node::Leaf(v) => {
                return v.get(v.partition_point(|e| e.start < point).checked_sub(1)?);
            }
            Node::Inner(v) => {
                let at = v.partition_point(|c| c.span.start < point).checked_sub(1)?;
                node = &v.get(at)?.node;
            }
        }
    }
}

/// What is asked for: `len` free units inside `within`.
struct Want {
    len: u64,
    within: Range<u64>,
}

impl Want {
    /// The part of a gap that may be used, if it is long enough.
    fn fit(&self, start: u64, end: u64) -> Option<Range<u64>> {
        let s = start.max(self.within.start);
        let e = end.min(self.within.end);
        (e > s && e - s >= self.len).then_some(s..e)
    }
    fn of(len: u64, within: Range<u64>) -> Option<Want> {
        (len > 0 && within.start < within.end).then_some(Want { len, within })
    }
}

/// The first and the last border.
fn borders<V>(root: &Node<V>) -> Option<(u64, u64)> {
    match root {
        Node::Leaf(v) => Some((v.first()?.start, v.last()?.end)),
        Node::Inner(v) => Some((v.first()?.span.start, v.last()?.span.end)),
    }
}

pub(crate) fn lowest_gap<V>(root: &Node<V>, len: u64, within: Range<u64>) -> Option<u64> {
    let want = Want::of(len, within)?;
    let Some((first, last)) = borders(root) else {
        return want.fit(0, u64::MAX).map(|g| g.start);
    };
    want.fit(0, first)
        .or_else(|| lowest_inside(root, &want))
        .or_else(|| want.fit(last, u64::MAX))
        .map(|g| g.start)
}

fn lowest_inside<V>(node: &Node<V>, want: &Want) -> Option<Range<u64>> {
    match node {
        Node::Leaf(v) => {
            // The gap before the first entry that ends after the lower limit may still be usable.
            let at = v.partition_point(|e| e.end <= want.within.start).max(1);
            for i in at..v.len() {
                if v[i - 1].end >= want.within.end {
                    return None;
                }
                if let Some(g) = want.fit(v[i - 1].end, v[i].start) {
                    return Some(g);
                }
            }
            None
        }
        Node::Inner(v) => {
            let at = v.partition_point(|c| c.span.end <= want.within.start);
            for i in at..v.len() {
                if i > 0
                    && let Some(g) = want.fit(v[i - 1].span.end, v[i].span.start)
                {
                    return Some(g);
                }
                if v[i].span.start >= want.within.end {
                    return None;
                }
                // Only at the two ends of `within` can a subtree with a long gap disappoint.
                if v[i].span.max_gap >= want.len
                    && let Some(g) = lowest_inside(&v[i].node, want)
                {
                    return Some(g);
                }
            }
            None
        }
    }
}

pub(crate) fn highest_gap<V>(root: &Node<V>, len: u64, within: Range<u64>) -> Option<u64> {
    let want = Want::of(len, within)?;
    let Some((first, last)) = borders(root) else {
        return want.fit(0, u64::MAX).map(|g| g.end - len);
    };
    want.fit(last, u64::MAX)
        .or_else(|| highest_inside(root, &want))
        .or_else(|| want.fit(0, first))
        .map(|g| g.end - len)
}

fn highest_inside<V>(node: &Node<V>, want: &Want) -> Option<Range<u64>> {
    match node {
        Node::Leaf(v) => {
            let above = v.partition_point(|e| e.start < want.within.end);
            for i in (1..(above + 1).min(v.len())).rev() {
                if v[i].start <= want.within.start {
                    return None;
                }
                if let Some(g) = want.fit(v[i - 1].end, v[i].start) {
                    return Some(g);
                }
            }
            None
        }
        Node::Inner(v) => {
            let above = v.partition_point(|c| c.span.start < want.within.end);
            for i in (0..above).rev() {
                if let Some(next) = v.get(i + 1)
                    && let Some(g) = want.fit(v[i].span.end, next.span.start)
                {
                    return Some(g);
                }
                if v[i].span.end <= want.within.start {
                    return None;
                }
                if v[i].span.max_gap >= want.len
                    && let Some(g) = highest_inside(&v[i].node, want)
                {
                    return Some(g);
                }
            }
            None
        }
    }
}
