//! What a container's cgroup counts, in containerd's messages of version 1 and 2.
//!
//! Memory, time and input and output are the whole sandbox's. Tasks are those inside: the host's
//! would count the Sentry's threads, too.

use containerd_shim_protos::cgroups::metrics as v1;
use containerd_shim_protos::cgroups_v2::metrics as v2;
use containerd_shim_protos::protobuf::MessageField;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use oci::Cgroups;
use std::collections::BTreeMap;
use std::path::Path;

/// Nanoseconds of one tick in `cpuacct.stat` (USER_HZ is 100 on x86-64).
const TICK: u64 = 10_000_000;

/// A cgroup's files of one controller, and the groups that it belongs to.
struct Files<'a>(Option<&'a Path>, &'a Cgroups);

impl Files<'_> {
    fn text(&self, file: &str) -> String {
        self.0
            .and_then(|d| std::fs::read_to_string(d.join(file)).ok())
            .unwrap_or_default()
    }
    /// One number; `max` is the largest.
    fn number(&self, file: &str) -> u64 {
        match self.text(file).trim() {
            "max" => u64::MAX,
            n => n.parse().unwrap_or(0),
        }
    }
    /// Lines of a name and a number.
    fn table(&self, file: &str) -> BTreeMap<String, u64> {
        let text = self.text(file);
        let pair = |l: &str| {
            let (k, v) = l.split_once(' ')?;
            Some((k.to_owned(), v.trim().parse().ok()?))
        };
        text.lines().filter_map(pair).collect()
    }
}

/// `tasks` are those inside, with their limit (0 for none).
pub fn of(groups: &Cgroups, tasks: (u64, u64)) -> Any {
    let files = |name| Files(groups.controller(name), groups);
    if groups.is_unified() {
        crate::events::pack(&version2(&files("memory"), tasks))
    } else {
        crate::events::pack(&version1(&files, tasks))
    }
}

fn entry(f: &Files<'_>, prefix: &str) -> MessageField<v1::MemoryEntry> {
    let of = |name: &str| f.number(&format!("memory.{prefix}{name}"));
    // Memory with swap is above the container's by as much as memory is.
    let host = f.number("memory.limit_in_bytes");
    MessageField::some(v1::MemoryEntry {
        limit: of("limit_in_bytes").saturating_sub(host - f.1.own_limit(host)),
        usage: of("usage_in_bytes"),
        max: of("max_usage_in_bytes"),
        failcnt: of("failcnt"),
        ..v1::MemoryEntry::default()
    })
}

fn version1<'a>(files: &dyn Fn(&'static str) -> Files<'a>, tasks: (u64, u64)) -> v1::Metrics {
    let memory = files("memory");
    let oom = memory.table("memory.oom_control");
    let io = |file: &str| blkio(&files("blkio").text(file));
    v1::Metrics {
        pids: MessageField::some(v1::PidsStat {
            current: tasks.0,
            limit: tasks.1,
            ..v1::PidsStat::default()
        }),
        cpu: MessageField::some(cpu1(&files("cpu"), &files("cpuacct"))),
        memory: MessageField::some(memory1(&memory)),
        blkio: MessageField::some(v1::BlkIOStat {
            io_service_bytes_recursive: io("blkio.throttle.io_service_bytes_recursive"),
            io_serviced_recursive: io("blkio.throttle.io_serviced_recursive"),
            ..v1::BlkIOStat::default()
        }),
        memory_oom_control: MessageField::some(v1::MemoryOomControl {
            oom_kill_disable: entry_of(&oom, "oom_kill_disable"),
            under_oom: entry_of(&oom, "under_oom"),
            oom_kill: entry_of(&oom, "oom_kill"),
            ..v1::MemoryOomControl::default()
        }),
        ..v1::Metrics::default()
    }
}

/// A number of a table, 0 where it is not there.
fn entry_of(table: &BTreeMap<String, u64>, name: &str) -> u64 {
    table.get(name).copied().unwrap_or(0)
}

fn cpu1(cpu: &Files<'_>, acct: &Files<'_>) -> v1::CPUStat {
    let throttled = cpu.table("cpu.stat");
    let times = acct.table("cpuacct.stat");
    let per_cpu = acct.text("cpuacct.usage_percpu");
    v1::CPUStat {
        usage: MessageField::some(v1::CPUUsage {
            total: acct.number("cpuacct.usage"),
            kernel: entry_of(&times, "system") * TICK,
            user: entry_of(&times, "user") * TICK,
            per_cpu: per_cpu
                .split_whitespace()
                .filter_map(|n| n.parse().ok())
                .collect(),
            ..v1::CPUUsage::default()
        }),
        throttling: MessageField::some(v1::Throttle {
            periods: entry_of(&throttled, "nr_periods"),
            throttled_periods: entry_of(&throttled, "nr_throttled"),
            throttled_time: entry_of(&throttled, "throttled_time"),
            ..v1::Throttle::default()
        }),
        ..v1::CPUStat::default()
    }
}

fn memory1(memory: &Files<'_>) -> v1::MemoryStat {
    let stat = memory.table("memory.stat");
    let m = |name: &str| entry_of(&stat, name);
    v1::MemoryStat {
        cache: m("cache"),
        rss: m("rss"),
        rss_huge: m("rss_huge"),
        mapped_file: m("mapped_file"),
        dirty: m("dirty"),
        writeback: m("writeback"),
        pg_pg_in: m("pgpgin"),
        pg_pg_out: m("pgpgout"),
        pg_fault: m("pgfault"),
        pg_maj_fault: m("pgmajfault"),
        inactive_anon: m("inactive_anon"),
        active_anon: m("active_anon"),
        inactive_file: m("inactive_file"),
        active_file: m("active_file"),
        unevictable: m("unevictable"),
        hierarchical_memory_limit: memory.1.own_limit(m("hierarchical_memory_limit")),
        hierarchical_swap_limit: m("hierarchical_memsw_limit"),
        total_cache: m("total_cache"),
        total_rss: m("total_rss"),
        total_rss_huge: m("total_rss_huge"),
        total_mapped_file: m("total_mapped_file"),
        total_dirty: m("total_dirty"),
        total_writeback: m("total_writeback"),
        total_pg_pg_in: m("total_pgpgin"),
        total_pg_pg_out: m("total_pgpgout"),
        total_pg_fault: m("total_pgfault"),
        total_pg_maj_fault: m("total_pgmajfault"),
        total_inactive_anon: m("total_inactive_anon"),
        total_active_anon: m("total_active_anon"),
        total_inactive_file: m("total_inactive_file"),
        total_active_file: m("total_active_file"),
        total_unevictable: m("total_unevictable"),
        usage: entry(memory, ""),
        swap: entry(memory, "memsw."),
        kernel: entry(memory, "kmem."),
        kernel_tcp: entry(memory, "kmem.tcp."),
        ..v1::MemoryStat::default()
    }
}

/// Lines `MAJOR:MINOR OP VALUE` (cgroup-v1/blkio-controller.rst).
fn blkio(text: &str) -> Vec<v1::BlkIOEntry> {
    let one = |l: &str| {
        let mut words = l.split_whitespace();
        let (major, minor) = words.next()?.split_once(':')?;
        Some(v1::BlkIOEntry {
            op: words.next()?.into(),
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            value: words.next()?.parse().ok()?,
            ..v1::BlkIOEntry::default()
        })
    };
    text.lines().filter_map(one).collect()
}

/// Lines `MAJOR:MINOR rbytes=N wbytes=N …` (cgroup-v2.rst).
fn io(text: &str) -> Vec<v2::IOEntry> {
    let one = |l: &str| {
        let mut words = l.split_whitespace();
        let (major, minor) = words.next()?.split_once(':')?;
        let mut e = v2::IOEntry {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            ..v2::IOEntry::default()
        };
        for (k, v) in words.filter_map(|w| w.split_once('=')) {
            let v = v.parse().ok()?;
            match k {
                "rbytes" => e.rbytes = v,
                "wbytes" => e.wbytes = v,
                "rios" => e.rios = v,
                "wios" => e.wios = v,
                _ => {}
            }
        }
        Some(e)
    };
    text.lines().filter_map(one).collect()
}

/// `stat` is `memory.stat`.
fn memory2(f: &Files<'_>, stat: &BTreeMap<String, u64>) -> v2::MemoryStat {
    let m = |name: &str| entry_of(stat, name);
    v2::MemoryStat {
        anon: m("anon"),
        file: m("file"),
        kernel_stack: m("kernel_stack"),
        slab: m("slab"),
        sock: m("sock"),
        shmem: m("shmem"),
        file_mapped: m("file_mapped"),
        file_dirty: m("file_dirty"),
        file_writeback: m("file_writeback"),
        anon_thp: m("anon_thp"),
        inactive_anon: m("inactive_anon"),
        active_anon: m("active_anon"),
        inactive_file: m("inactive_file"),
        active_file: m("active_file"),
        unevictable: m("unevictable"),
        slab_reclaimable: m("slab_reclaimable"),
        slab_unreclaimable: m("slab_unreclaimable"),
        pgfault: m("pgfault"),
        pgmajfault: m("pgmajfault"),
        workingset_refault: m("workingset_refault_anon") + m("workingset_refault_file"),
        workingset_activate: m("workingset_activate_anon") + m("workingset_activate_file"),
        workingset_nodereclaim: m("workingset_nodereclaim"),
        pgrefill: m("pgrefill"),
        pgscan: m("pgscan"),
        pgsteal: m("pgsteal"),
        pgactivate: m("pgactivate"),
        pgdeactivate: m("pgdeactivate"),
        pglazyfree: m("pglazyfree"),
        pglazyfreed: m("pglazyfreed"),
        thp_fault_alloc: m("thp_fault_alloc"),
        thp_collapse_alloc: m("thp_collapse_alloc"),
        usage: f.number("memory.current"),
        usage_limit: f.1.own_limit(f.number("memory.max")),
        max_usage: f.number("memory.peak"),
        swap_usage: f.number("memory.swap.current"),
        swap_limit: f.number("memory.swap.max"),
        swap_max_usage: f.number("memory.swap.peak"),
        ..v2::MemoryStat::default()
    }
}

/// All controllers of version 2 share one directory.
fn version2(f: &Files<'_>, tasks: (u64, u64)) -> v2::Metrics {
    let of = |t: &BTreeMap<String, u64>, name: &str| t.get(name).copied().unwrap_or(0);
    let (cpu, stat, events) = (
        f.table("cpu.stat"),
        f.table("memory.stat"),
        f.table("memory.events"),
    );
    v2::Metrics {
        pids: MessageField::some(v2::PidsStat {
            current: tasks.0,
            limit: tasks.1,
            ..v2::PidsStat::default()
        }),
        cpu: MessageField::some(v2::CPUStat {
            usage_usec: of(&cpu, "usage_usec"),
            user_usec: of(&cpu, "user_usec"),
            system_usec: of(&cpu, "system_usec"),
            nr_periods: of(&cpu, "nr_periods"),
            nr_throttled: of(&cpu, "nr_throttled"),
            throttled_usec: of(&cpu, "throttled_usec"),
            nr_bursts: of(&cpu, "nr_bursts"),
            burst_usec: of(&cpu, "burst_usec"),
            ..v2::CPUStat::default()
        }),
        memory: MessageField::some(memory2(f, &stat)),
        io: MessageField::some(v2::IOStat {
            usage: io(&f.text("io.stat")),
            ..v2::IOStat::default()
        }),
        memory_events: MessageField::some(v2::MemoryEvents {
            low: of(&events, "low"),
            high: of(&events, "high"),
            max: of(&events, "max"),
            oom: of(&events, "oom"),
            oom_kill: of(&events, "oom_kill"),
            oom_group_kill: of(&events, "oom_group_kill"),
            ..v2::MemoryEvents::default()
        }),
        ..v2::Metrics::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions() {
        let dir = std::env::temp_dir().join(format!("shim-metrics-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let put = |f: &str, t: &str| std::fs::write(dir.join(f), t).unwrap();
        put("memory.usage_in_bytes", "4096\n");
        put("memory.stat", "cache 1\ntotal_rss 7\nanon 9\n");
        put("cpuacct.usage", "55\n");
        put("cpuacct.usage_percpu", "30 25 \n");
        put("cpuacct.stat", "user 2\nsystem 1\n");
        put(
            "blkio.throttle.io_serviced_recursive",
            "8:0 Read 3\n8:0 Write 4\nTotal 7\n",
        );
        put("memory.max", "max\n");
        put("memory.current", "12\n");
        put("cpu.stat", "usage_usec 8\nnr_periods 3\n");
        put(
            "io.stat",
            "254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0\n",
        );
        put("memory.events", "oom_kill 5\n");
        let groups = Cgroups::default();
        let m = version1(&|_| Files(Some(&dir), &groups), (2, 64));
        assert_eq!((m.pids.current, m.pids.limit), (2, 64));
        assert_eq!((m.cpu.usage.total, m.cpu.usage.user), (55, 2 * TICK));
        assert_eq!(
            (m.cpu.usage.per_cpu.as_slice(), m.cpu.throttling.periods),
            ([30, 25].as_slice(), 3)
        );
        assert_eq!(
            (m.memory.usage.usage, m.memory.total_rss, m.memory.cache),
            (4096, 7, 1)
        );
        let io = &m.blkio.io_serviced_recursive;
        assert_eq!(
            (io.len(), io[1].op.as_str(), io[1].value, io[1].major),
            (2, "Write", 4, 8)
        );
        let groups = Cgroups::default();
        let m = version2(&Files(Some(&dir), &groups), (1, 0));
        assert_eq!(
            (m.memory.usage, m.memory.usage_limit, m.memory.anon),
            (12, u64::MAX, 9)
        );
        assert_eq!((m.cpu.usage_usec, m.memory_events.oom_kill), (8, 5));
        assert_eq!((m.io.usage[0].major, m.io.usage[0].wios), (254, 4));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
