//! `/sys/devices/system/cpu` and `node`: one package of cores with a thread each, and one memory
//! node.

use super::Machine;
use crate::fs::cpu_list;
use crate::fs::proc::Text;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::OnceLock;
use vfs::Caller;
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynNode, StaticDir};

/// A directory that is made when it is first looked into: what it shows is asked of the processor,
/// or is large.
pub struct Lazy<F> {
    make: F,
    made: OnceLock<StaticDir>,
}

impl<F: Fn() -> StaticDir + Send + Sync + 'static> Lazy<F> {
    pub fn new(make: F) -> Lazy<F> {
        Lazy {
            make,
            made: OnceLock::new(),
        }
    }
    fn get(&self) -> &StaticDir {
        self.made.get_or_init(&self.make)
    }
}

impl<F: Fn() -> StaticDir + Send + Sync + 'static> DynDir for Lazy<F> {
    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> abi::Result<DynNode> {
        self.get().lookup(cx, name)
    }
    fn list(&self, file: &File) -> abi::Result<Vec<DynEntry>> {
        self.get().list(file)
    }
    fn subdirs(&self) -> u32 {
        self.get().subdirs()
    }
}

/// CPUs as a mask, of a machine that has `all`: words of 32 bits in hexadecimal, the highest first
/// (`%*pb` of the kernel's printf).
fn map(cpus: Range<u32>, all: u32) -> String {
    let mut s = String::new();
    for word in (0..all.div_ceil(32)).rev() {
        let bits = (0..32).filter(|b| cpus.contains(&(word * 32 + b)));
        let value = bits.fold(0u32, |v, b| v | 1 << b);
        let digits = (all - word * 32).min(32).div_ceil(4) as usize;
        let _ = write!(s, "{value:0digits$x}");
        s.push(if word == 0 { '\n' } else { ',' });
    }
    s
}

/// `/sys/devices/system/cpu`.
pub fn all(cpus: u32) -> StaticDir {
    let range = format!("{}\n", cpu_list(cpus));
    let dir = StaticDir::new()
        .text("isolated", "\n")
        .text("kernel_max", "8191\n")
        .text("offline", "\n")
        .text("online", range.clone())
        .text("possible", range.clone())
        .text("present", range);
    (0..cpus).fold(dir, |d, n| {
        d.dir(&format!("cpu{n}"), Lazy::new(move || one(n, cpus)))
    })
}

/// A CPU.
fn one(n: u32, cpus: u32) -> StaticDir {
    let (me, everyone) = (
        (map(n..n + 1, cpus), format!("{n}\n")),
        (map(0..cpus, cpus), { format!("{}\n", cpu_list(cpus)) }),
    );
    let groups = [
        ("cluster_cpus", &me),
        ("core_cpus", &me),
        ("thread_siblings", &me),
        ("core_siblings", &everyone),
        ("die_cpus", &everyone),
        ("package_cpus", &everyone),
    ];
    let topology = groups.into_iter().fold(StaticDir::new(), |d, (name, set)| {
        d.text(name, set.0.clone())
            .text(&format!("{name}_list"), set.1.clone())
    });
    let topology = topology
        .text("cluster_id", format!("{n}\n"))
        .text("core_id", format!("{n}\n"))
        .text("die_id", "0\n")
        .text("physical_package_id", "0\n");
    let caches = hostcall::cpu::caches().into_iter().enumerate();
    let cache = caches.fold(StaticDir::new(), |d, (i, c)| {
        let shared = if c.level >= 3 { &everyone } else { &me };
        let id = if c.level >= 3 { 0 } else { n };
        let index = StaticDir::new()
            .text("coherency_line_size", format!("{}\n", c.line))
            .text("id", format!("{id}\n"))
            .text("level", format!("{}\n", c.level))
            .text("number_of_sets", format!("{}\n", c.sets))
            .text("physical_line_partition", format!("{}\n", c.partitions))
            .text("shared_cpu_list", shared.1.clone())
            .text("shared_cpu_map", shared.0.clone())
            .text("size", format!("{}K\n", c.size() / 1024))
            .text("type", format!("{}\n", c.kind))
            .text("ways_of_associativity", format!("{}\n", c.ways));
        d.dir(&format!("index{i}"), index)
    });
    let one = StaticDir::new()
        .dir("cache", cache)
        .link("node0", "../../node/node0")
        .link("subsystem", "../../../../bus/cpu")
        .dir("topology", topology);
    // The first cannot be taken away.
    if n == 0 {
        one
    } else {
        one.text("online", "1\n")
    }
}

/// `/sys/devices/system/node`.
pub fn nodes(m: &Machine) -> StaticDir {
    let cpus = m.cpus;
    let memory = m.memory();
    let meminfo = move || {
        let (total, free) = memory();
        let used = total.saturating_sub(free);
        let lines = [
            ("MemTotal", total),
            ("MemFree", free),
            ("MemUsed", used),
            ("Active", used),
            ("Inactive", 0),
            ("FilePages", 0),
            ("AnonPages", used),
        ];
        let text = lines
            .map(|(name, n)| format!("Node 0 {:<15} {:>8} kB\n", format!("{name}:"), n / 1024));
        text.concat().into_bytes()
    };
    let mut node0 = StaticDir::new()
        .text("cpulist", format!("{}\n", cpu_list(cpus)))
        .text("cpumap", map(0..cpus, cpus))
        .text("distance", "10\n")
        .file("meminfo", Text(meminfo))
        .text(
            "numastat",
            "numa_hit 0\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 0\nlocal_node 0\nother_node 0\n",
        );
    for n in 0..cpus {
        node0 = node0.link(&format!("cpu{n}"), &format!("../../cpu/cpu{n}"));
    }
    StaticDir::new()
        .text("has_cpu", "0\n")
        .text("has_memory", "0\n")
        .text("has_normal_memory", "0\n")
        .dir("node0", node0)
        .text("online", "0\n")
        .text("possible", "0\n")
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn maps_are_as_linux_prints_them() {
        assert_eq!(map(0..2, 2), "3\n");
        assert_eq!(map(1..2, 8), "02\n");
        assert_eq!(map(0..34, 34), "3,ffffffff\n");
        assert_eq!(map(33..34, 64), "00000002,00000000\n");
    }
}
