//! Nodes, and what changes them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// The most items of a node, and the fewest of one that is not the root.
pub(crate) const CAP: usize = 16;
pub(crate) const MIN: usize = 6;

pub(crate) struct Entry<V> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) value: V,
}

impl<V> Entry<V> {
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// What a subtree covers, and its largest inner gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) max_gap: u64,
}

pub(crate) struct Child<V> {
    pub(crate) span: Span,
    pub(crate) node: Box<Node<V>>,
}

pub(crate) enum Node<V> {
    Leaf(Vec<Entry<V>>),
    Inner(Vec<Child<V>>),
}

impl<V> Node<V> {
    pub(crate) const fn empty() -> Self {
        Node::Leaf(Vec::new())
    }

    fn len(&self) -> usize {
        match self {
            Node::Leaf(v) => v.len(),
            Node::Inner(v) => v.len(),
        }
    }

    fn span(&self) -> Span {
        fn join(spans: impl Iterator<Item = Span>) -> Span {
            spans
                .reduce(|a, b| Span {
                    start: a.start,
                    end: b.end,
                    max_gap: a.max_gap.max(b.max_gap).max(b.start - a.end),
                })
                .unwrap_or_default()
        }
        match self {
            Node::Leaf(v) => join(v.iter().map(|e| Span {
                start: e.start,
                end: e.end,
                max_gap: 0,
            })),
            Node::Inner(v) => join(v.iter().map(|c| c.span)),
        }
    }

    /// Takes the upper half off a node that is too full.
    fn halve(&mut self) -> Option<Child<V>> {
        if self.len() <= CAP {
            return None;
        }
        let at = self.len() / 2;
        let node = Box::new(match self {
            Node::Leaf(v) => Node::Leaf(v.split_off(at)),
            Node::Inner(v) => Node::Inner(v.split_off(at)),
        });
        Some(Child {
            span: node.span(),
            node,
        })
    }
}

impl<V> Child<V> {
    fn refresh(&mut self) {
        self.span = self.node.span();
    }
}

/// Where in the children the subtree of `point` is: the first that ends after it.
fn position<V>(children: &[Child<V>], point: u64) -> usize {
    children.partition_point(|c| c.span.end <= point)
}

fn insert<V>(node: &mut Node<V>, e: Entry<V>) -> Option<Child<V>> {
    match node {
        Node::Leaf(v) => {
            let at = v.partition_point(|o| o.end <= e.start);
            if v.capacity() == 0 {
                v.reserve_exact(CAP + 1);
            }
            v.insert(at, e);
        }
        Node::Inner(v) => {
            let at = position(v, e.start).min(v.len() - 1);
            let more = insert(&mut v[at].node, e);
            v[at].refresh();
            if let Some(c) = more {
                v.insert(at + 1, c);
            }
        }
    }
    node.halve()
}

pub(crate) fn insert_root<V>(root: &mut Node<V>, e: Entry<V>) {
    if let Some(upper) = insert(root, e) {
        let node = Box::new(core::mem::replace(root, Node::empty()));
        let lower = Child {
            span: node.span(),
            node,
        };
        let mut v = Vec::with_capacity(CAP + 1);
        v.push(lower);
        v.push(upper);
        *root = Node::Inner(v);
    }
}

/// Refills the child at `at`, which has too few items, from a neighbour, or joins the two.
fn refill<V>(children: &mut Vec<Child<V>>, at: usize) {
    let low = if at > 0 { at - 1 } else { at };
    if low + 1 >= children.len() {
        return;
    }
    let mut upper = children.remove(low + 1);
    let lower = &mut children[low];
    let keep = match (&mut *lower.node, &mut *upper.node) {
        (Node::Leaf(a), Node::Leaf(b)) => share(a, b),
        (Node::Inner(a), Node::Inner(b)) => share(a, b),
        _ => unreachable!("leaves have the same depth"),
    };
    lower.refresh();
    if keep {
        upper.refresh();
        children.insert(low + 1, upper);
    }
}

/// Spreads the items of two neighbours evenly, or moves all into the first; whether the second has
/// any.
fn share<T>(a: &mut Vec<T>, b: &mut Vec<T>) -> bool {
    let total = a.len() + b.len();
    if total <= CAP {
        a.append(b);
        return false;
    }
    let half = total / 2;
    if a.len() > half {
        let moved = a.split_off(half);
        b.splice(0..0, moved);
    } else {
        a.extend(b.drain(..half - a.len()));
    }
    true
}

fn remove<V>(node: &mut Node<V>, point: u64) -> Option<Entry<V>> {
    match node {
        Node::Leaf(v) => {
            let at = v.partition_point(|e| e.end <= point);
            (v.get(at)?.start <= point).then(|| v.remove(at))
        }
        Node::Inner(v) => {
            let at = position(v, point);
            let child = v.get_mut(at)?;
            let e = remove(&mut child.node, point)?;
            child.refresh();
            if child.node.len() < MIN {
                refill(v, at);
            }
            Some(e)
        }
    }
}

pub(crate) fn remove_root<V>(root: &mut Node<V>, point: u64) -> Option<Entry<V>> {
    let e = remove(root, point)?;
    if let Node::Inner(v) = root
        && v.len() == 1
        && let Some(only) = v.pop()
    {
        *root = *only.node;
    }
    Some(e)
}

pub(crate) fn resize<V>(node: &mut Node<V>, point: u64, new: &Range<u64>) -> bool {
    match node {
        Node::Leaf(v) => {
            let at = v.partition_point(|e| e.end <= point);
            match v.get_mut(at) {
                Some(e) if e.start <= point => {
                    e.start = new.start;
                    e.end = new.end;
                    true
                }
                _ => false,
            }
        }
        Node::Inner(v) => {
            let at = position(v, point);
            let Some(child) = v.get_mut(at) else {
                return false;
            };
            let done = resize(&mut child.node, point, new);
            child.refresh();
            done
        }
    }
}

pub(crate) fn for_each_mut<V>(
    node: &mut Node<V>,
    range: &Range<u64>,
    f: &mut impl FnMut(Range<u64>, &mut V),
) {
    match node {
        Node::Leaf(v) => {
            let at = v.partition_point(|e| e.end <= range.start);
            for e in v[at..].iter_mut().take_while(|e| e.start < range.end) {
                f(e.start..e.end, &mut e.value);
            }
        }
        Node::Inner(v) => {
            let at = position(v, range.start);
            for c in v[at..].iter_mut().take_while(|c| c.span.start < range.end) {
                for_each_mut(&mut c.node, range, f);
            }
        }
    }
}

/// Depth and number of entries; `None` for an empty root.
pub(crate) fn check<V>(node: &Node<V>, root: bool) -> Option<(usize, usize)> {
    assert!(node.len() <= CAP);
    assert!(root || node.len() >= MIN);
    match node {
        Node::Leaf(v) => {
            assert!(v.iter().all(|e| e.start < e.end));
            assert!(v.is_sorted_by(|a, b| a.end <= b.start));
            (!v.is_empty()).then_some((1, v.len()))
        }
        Node::Inner(v) => {
            assert!(v.len() >= 2);
            assert!(v.is_sorted_by(|a, b| a.span.end <= b.span.start));
            let mut all = None;
            for c in v {
                assert_eq!(c.span, c.node.span());
                let (depth, n) = check(&c.node, false).expect("entries");
                let (d, sum) = all.unwrap_or((depth, 0));
                assert_eq!(d, depth);
                all = Some((d, sum + n));
            }
            all.map(|(d, n)| (d + 1, n))
        }
    }
}
