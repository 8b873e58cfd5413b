//! The mappers of a file: for the implementors of [`Mappable`](crate::Mappable).

use crate::MappingObserver;
use abi::Va;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Weak;

/// The mappings of one file. `add`, `remove` and `invalidate` cost O(log n) and what they find.
///
/// Lock order: its lock is a leaf; observers are called without it.
#[derive(Default)]
pub struct MappingRegistry {
    inner: Mutex<Inner>,
}

struct Mapping {
    observer: Weak<dyn MappingObserver>,
    offset: u64,
    len: u64,
}

/// An observer's address (it is not reused while a `Weak` exists) and the address in it.
type Key = (usize, u64);

#[derive(Default)]
struct Inner {
    by_va: BTreeMap<Key, Mapping>,
    /// Per size class (lengths below `2 << class`) by offset: what overlaps a range starts in it or
    /// at most one class's length before it.
    by_offset: BTreeMap<u32, BTreeMap<(u64, Key), u64>>,
}

fn address(observer: &Weak<dyn MappingObserver>) -> usize {
    observer.as_ptr().cast::<()>().addr()
}

impl Inner {
    fn insert(&mut self, key: Key, m: Mapping) {
        // A stale mapping at the same place is replaced.
        self.take(key);
        self.by_offset
            .entry(m.len.ilog2())
            .or_default()
            .insert((m.offset, key), m.len);
        self.by_va.insert(key, m);
    }

    fn take(&mut self, key: Key) -> Option<Mapping> {
        let m = self.by_va.remove(&key)?;
        let class = m.len.ilog2();
        if let Some(map) = self.by_offset.get_mut(&class) {
            map.remove(&(m.offset, key));
            if map.is_empty() {
                self.by_offset.remove(&class);
            }
        }
        Some(m)
    }
}

impl MappingRegistry {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Mappable::add_mapping`](crate::Mappable::add_mapping).
    pub fn add(&self, observer: Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        if len > 0 {
            let key = (address(&observer), va.0);
            self.inner.lock().insert(
                key,
                Mapping {
                    observer,
                    offset,
                    len,
                },
            );
        }
    }

    /// As [`Mappable::remove_mapping`](crate::Mappable::remove_mapping): `[va, va + len)` may be
    /// part of a mapping that was added, or cover several.
    pub fn remove(&self, observer: &Weak<dyn MappingObserver>, va: Va, _offset: u64, len: u64) {
        let who = address(observer);
        let end = va.0.saturating_add(len);
        let mut inner = self.inner.lock();
        while let Some((&key, m)) = inner.by_va.range((who, 0)..(who, end)).next_back()
            && key.1.saturating_add(m.len) > va.0
        {
            let Some(m) = inner.take(key) else { break };
            let m_end = key.1.saturating_add(m.len);
            if key.1 < va.0 {
                let len = va.0 - key.1;
                let head = Mapping {
                    observer: m.observer.clone(),
                    offset: m.offset,
                    len,
                };
                inner.insert(key, head);
            }
            if m_end > end {
                let skip = end - key.1;
                let tail = Mapping {
                    observer: m.observer,
                    offset: m.offset + skip,
                    len: m_end - end,
                };
                inner.insert((who, end), tail);
            }
        }
    }

    /// Tells the mappers of a part of `[offset, offset + len)`. Call it after the file has changed,
    /// and without any lock that [`Mappable::backing`](crate::Mappable::backing) takes.
    pub fn invalidate(&self, offset: u64, len: u64) {
        self.ask(&[(offset, len)], |o, places| {
            o.invalidate(places);
            ControlFlow::Continue(())
        });
    }

    /// As [`MappingRegistry::invalidate`], where the file ends before `offset` now.
    pub fn truncated(&self, offset: u64) {
        self.ask(&[(offset, u64::MAX - offset)], |o, places| {
            o.truncated(places);
            ControlFlow::Continue(())
        });
    }

    /// As [`MappingObserver::release`], of all that map some of these parts (offsets and lengths),
    /// until it is over.
    pub(crate) fn release(&self, parts: &[(u64, u64)], is_over: &dyn Fn() -> bool) {
        self.ask(parts, |o, places| {
            if is_over() {
                return ControlFlow::Break(());
            }
            o.release(places);
            ControlFlow::Continue(())
        });
    }

    /// Asks all that map some of these parts, each once, however many mappings it has.
    fn ask(
        &self,
        parts: &[(u64, u64)],
        mut f: impl FnMut(&dyn MappingObserver, &[(Va, u64)]) -> ControlFlow<()>,
    ) {
        type Asked = (Weak<dyn MappingObserver>, Vec<(Va, u64)>);
        let mut asked: BTreeMap<usize, Asked> = BTreeMap::new();
        for (offset, len) in parts {
            for (observer, va, len) in self.found(*offset, *len) {
                let key = address(&observer);
                let entry = asked.entry(key).or_insert_with(|| (observer, Vec::new()));
                entry.1.push((va, len));
            }
        }
        for (observer, places) in asked.into_values() {
            if let Some(o) = observer.upgrade()
                && f(&*o, &places).is_break()
            {
                break;
            }
        }
    }

    /// The mappers of a part of `[offset, offset + len)`, and where.
    fn found(&self, offset: u64, len: u64) -> Vec<(Weak<dyn MappingObserver>, Va, u64)> {
        let end = offset.saturating_add(len);
        let mut found: Vec<(Weak<dyn MappingObserver>, Va, u64)> = Vec::new();
        {
            let inner = self.inner.lock();
            for (&class, map) in &inner.by_offset {
                let from = offset.saturating_sub((2u64 << class.min(62)) - 1);
                for (&(at, key), &m_len) in map.range((from, (0, 0))..(end, (0, 0))) {
                    let (s, e) = (at.max(offset), at.saturating_add(m_len).min(end));
                    if s < e
                        && let Some(m) = inner.by_va.get(&key)
                    {
                        found.push((m.observer.clone(), Va(key.1 + (s - at)), e - s));
                    }
                }
            }
        }
        found
    }

    /// Whether nobody maps the file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.lock().by_va.is_empty()
    }
}
