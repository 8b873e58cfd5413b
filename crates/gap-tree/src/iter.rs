//! Walking upwards, without allocating.

use crate::node::{Child, Entry, Node};
use core::ops::Range;

/// More levels than a tree that fits in memory has (`MIN^16` entries).
const DEPTH: usize = 16;

/// Ranges in order. See [`GapTree::iter_from`](crate::GapTree::iter_from).
pub struct Iter<'a, V> {
    /// What is left of the current leaf.
    leaf: &'a [Entry<V>],
    /// What is left of the inner nodes above it, the root first.
    above: [&'a [Child<V>]; DEPTH],
    depth: usize,
    end: u64,
}

impl<'a, V> Iter<'a, V> {
    pub(crate) fn new(mut node: &'a Node<V>, point: u64, end: u64) -> Self {
        let mut it = Iter {
            leaf: &[],
            above: [&[]; DEPTH],
            depth: 0,
            end,
        };
        loop {
            match node {
                Node::Leaf(v) => {
                    it.leaf = &v[v.partition_point(|e| e.end <= point)..];
                    return it;
                }
                Node::Inner(v) => {
                    let at = v.partition_point(|c| c.span.end <= point);
                    let Some(c) = v.get(at) else { return it };
                    it.above[it.depth] = &v[at + 1..];
                    it.depth += 1;
                    node = &c.node;
                }
            }
        }
    }

    /// Goes to the next leaf.
    fn step(&mut self) -> Option<()> {
        while self.depth > 0 {
            let rest = self.above[self.depth - 1];
            let Some((c, rest)) = rest.split_first() else {
                self.depth -= 1;
                continue;
            };
            self.above[self.depth - 1] = rest;
            let mut node = &*c.node;
            loop {
                match node {
                    Node::Leaf(v) => {
                        self.leaf = v;
                        return Some(());
                    }
                    Node::Inner(v) => {
                        let (c, rest) = v.split_first()?;
                        self.above[self.depth] = rest;
                        self.depth += 1;
                        node = &c.node;
                    }
                }
            }
        }
        None
    }
}

impl<'a, V> Iterator for Iter<'a, V> {
    type Item = (Range<u64>, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        if self.leaf.is_empty() {
            self.step()?;
        }
        let (e, rest) = self.leaf.split_first()?;
        if e.start >= self.end {
            self.leaf = &[];
            self.depth = 0;
            return None;
        }
        self.leaf = rest;
        Some((e.range(), &e.value))
    }
}
