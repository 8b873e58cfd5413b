//! A container's memory by places (`cloister memory map`).

use super::Kernel;
use crate::container::Container;
use abi::PAGE_SIZE;
use config::{MapCell, MapProcess, MemoryMap};
use std::collections::HashMap;
use std::sync::Arc;

/// Cells of a map, at most.
const CELLS: usize = 2048;

/// What one cell's mappers have of it, in pages.
#[derive(Default)]
struct Mapped {
    used: u64,
    by: HashMap<i32, u64>,
}

impl Kernel {
    /// What lies where in a container's memory, and whose it is.
    pub fn memory_map(&self, c: &Arc<Container>) -> MemoryMap {
        let map = c.clas.map(CELLS);
        let mut mapped: HashMap<u64, Mapped> = HashMap::new();
        let mut out = MemoryMap {
            cell: map.cell,
            ..MemoryMap::default()
        };
        for h in self.holders(c) {
            let pid = h.group.pid.seen_in(&c.ns.pid_for_children);
            let command = h.command(self);
            out.processes.push(MapProcess { pid, command });
            h.mm.for_each_frame(|at, n, used| {
                for (number, part) in map.cells_of(at, n) {
                    let m = mapped.entry(number).or_default();
                    m.used += if used { part } else { 0 };
                    *m.by.entry(pid).or_default() += part;
                }
            });
        }
        out.cells = (map.cells.into_iter())
            .map(|(number, c)| {
                let m = mapped.remove(&number).unwrap_or_default();
                let most = m.by.into_iter().max_by_key(|(pid, n)| (*n, -*pid));
                MapCell {
                    number,
                    frames: c.frames * PAGE_SIZE,
                    resident: c.resident * PAGE_SIZE,
                    swapped: c.swapped * PAGE_SIZE,
                    shared: c.shared * PAGE_SIZE,
                    files: c.files * PAGE_SIZE,
                    confidential: c.confidential * PAGE_SIZE,
                    used: m.used.min(c.resident) * PAGE_SIZE,
                    pid: most.map(|m| m.0),
                }
            })
            .collect();
        out
    }
}
