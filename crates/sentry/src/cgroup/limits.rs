//! The limits of a container, as the files of its group tell them.
//!
//! The host's control groups enforce CPU time and CPU sets; memory and tasks are limited here, with
//! the host's limit of memory above; the starter tells the same
//! values here, first with the container and then with each update, so that a runtime that sizes
//! itself (Java, Go, Node, .NET) reads what it has. The files are those that version 2 shows at the
//! root of a container's cgroup namespace. They cannot be written from inside: the values are the
//! host's.
//!
//! Groups below the root have limits of their own ([`super::memory`], `pids.max`).

use super::Cgroup;
use crate::{Kernel, Task};
use config::Limits;
use std::sync::atomic::Ordering;

/// The period of CPU time, microseconds, and the weight, where nothing is asked for.
const PERIOD: u64 = 100_000;
pub(super) const WEIGHT: u64 = 100;

/// The text of a file that only tells a limit.
fn file(l: &Limits, name: &str, cpus: u32) -> Option<String> {
    let bytes = |n: Option<i64>, none: &str| match n.and_then(|n| u64::try_from(n).ok()) {
        // As the kernel does, in whole pages.
        Some(n) => format!("{}\n", n & !(abi::PAGE_SIZE - 1)),
        None => format!("{none}\n"),
    };
    Some(match name {
        "memory.max" => bytes(l.memory, "max"),
        "memory.low" => bytes(l.reservation, "0"),
        "memory.high" | "memory.swap.high" => "max\n".into(),
        "memory.min" | "memory.oom.group" => "0\n".into(),
        "memory.swap.max" if l.swap.is_some() => bytes(l.swap, "max"),
        "memory.swap.max" => {
            let swap = l.memory.zip(l.memory_and_swap);
            bytes(
                swap.filter(|s| s.0 >= 0 && s.1 >= s.0).map(|s| s.1 - s.0),
                "max",
            )
        }
        "cpu.max" => {
            let quota = l.quota.filter(|n| *n > 0);
            let quota = quota.map_or("max".into(), |n| n.to_string());
            format!("{quota} {}\n", l.period.unwrap_or(PERIOD))
        }
        "cpu.weight" => format!("{}\n", l.weight.unwrap_or(WEIGHT)),
        "cpuset.cpus" => match l.cpus {
            Some(_) => format!("{}\n", crate::fs::cpu_list(l.cpus(cpus))),
            None => "\n".into(),
        },
        "cpuset.mems" => if l.mems.is_some() { "0\n" } else { "\n" }.into(),
        "cpuset.cpus.effective" => format!("{}\n", crate::fs::cpu_list(l.cpus(cpus))),
        "cpuset.mems.effective" => "0\n".into(),
        "pids.max" => match l.task_limit() {
            0 => "max\n".into(),
            n => format!("{n}\n"),
        },
        _ => return None,
    })
}

impl Cgroup {
    /// Takes over new limits.
    pub fn update_limits(&self, new: Limits) {
        self.limits.lock().update(new);
    }

    /// The limit of memory, bytes.
    #[must_use]
    pub fn memory_max(&self) -> Option<u64> {
        self.limits.lock().memory_max()
    }

    /// The limit of frames, bytes.
    #[must_use]
    pub fn frames_max(&self) -> Option<u64> {
        self.limits.lock().frames_max()
    }

    /// The limit of each process's frames, bytes.
    #[must_use]
    pub fn process_max(&self) -> Option<u64> {
        self.limits.lock().process_max()
    }

    /// How it is chosen what is swapped out.
    #[must_use]
    pub fn replacement(&self) -> config::Replacement {
        self.limits.lock().replacement.unwrap_or_default()
    }

    /// How many CPUs there are, of `all`.
    #[must_use]
    pub fn cpus(&self, all: u32) -> u32 {
        self.limits.lock().cpus(all)
    }

    /// The text of a file that the root of a container's tree has, as `reader` sees it.
    pub(super) fn container_file(&self, k: &Kernel, reader: &Task, name: &str) -> String {
        if let Some(text) = file(&self.limits.lock(), name, k.cpus.max(1)) {
            return text;
        }
        let p = &self.pids;
        let clas = &reader.group.container.clas;
        let used = || clas.stats().resident + clas.kernel_memory();
        match name {
            "memory.current" => format!("{}\n", used()),
            "memory.swap.current" => {
                format!("{}\n", clas.swap_stats().used)
            }
            "memory.stat" => {
                let swap = clas.swap_stats();
                let (came, went) = (swap.pages_in, swap.pages_out);
                let files = clas.files_here(clas::AccountId::ROOT);
                memory_stat(used(), clas.kernel_memory(), files, came, went)
            }
            "memory.events" | "memory.events.local" => self.happened.text(name),
            "memory.pressure" => clas.pressure().to_string(),
            "memory.swap.events" => "high 0\nmax 0\nfail 0\n".into(),
            "memory.swap.peak" => format!("{}\n", clas.swap_peak()),
            "memory.peak" => format!("{}\n", clas.stats().peak),
            "pids.current" => format!("{}\n", p.current.load(Ordering::Relaxed)),
            "pids.peak" => format!("{}\n", p.peak.load(Ordering::Relaxed)),
            "pids.events" => format!("max {}\n", p.events.load(Ordering::Relaxed)),
            "pids.events.local" => format!("max {}\n", p.own_events.load(Ordering::Relaxed)),
            _ => String::new(),
        }
    }
}

/// `memory.stat`: of memory that is here, so much is the kernel's, and so much of files in memory, or
/// shared. Nothing is dropped from the memory file, so none of it is a cache.
pub(super) fn memory_stat(here: u64, kernel: u64, files: u64, came: u64, went: u64) -> String {
    let kernel = kernel.min(here);
    let files = files.min(here - kernel);
    let anon = here - kernel - files;
    let zero = [
        "kernel_stack",
        "pagetables",
        "sec_pagetables",
        "percpu",
        "sock",
        "vmalloc",
        "file_dirty",
        "file_writeback",
        "swapcached",
        "anon_thp",
        "file_thp",
        "shmem_thp",
        "inactive_anon",
    ];
    let swap = format!("pgscan {went}\npgsteal {went}\npswpin {came}\npswpout {went}\n");
    let first = format!("anon {anon}\nfile {files}\nkernel {kernel}\n");
    let shared = format!("shmem {files}\nfile_mapped 0\n");
    let last = [
        "inactive_file",
        "active_file",
        "unevictable",
        "slab_reclaimable",
        "slab_unreclaimable",
        "slab",
        "workingset_refault_anon",
        "workingset_refault_file",
        "workingset_activate_anon",
        "workingset_activate_file",
        "workingset_restore_anon",
        "workingset_restore_file",
        "workingset_nodereclaim",
        "pgfault",
        "pgmajfault",
        "pgrefill",
        "pgactivate",
        "pgdeactivate",
        "pglazyfree",
        "pglazyfreed",
        "thp_fault_alloc",
        "thp_collapse_alloc",
    ];
    let zeros = |names: &[&str]| names.iter().map(|n| format!("{n} 0\n")).collect::<String>();
    // (Shared memory lies on the lists of anonymous pages.)
    let lists = format!("active_anon {here}\n");
    first + &zeros(&zero) + &shared + &lists + &zeros(&last) + &swap
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_what_was_said_last() {
        let mut l = Limits::default();
        let of = |l: &Limits, name| file(l, name, 4).unwrap();
        assert_eq!(of(&l, "memory.max"), "max\n");
        assert_eq!(of(&l, "cpu.max"), "max 100000\n");
        assert_eq!(of(&l, "cpuset.cpus.effective"), "0-3\n");
        assert_eq!(of(&l, "pids.max"), "max\n");
        l.update(Limits {
            memory: Some((200 << 20) + 5),
            memory_and_swap: Some((300 << 20) + 5),
            quota: Some(50_000),
            cpus: Some("1,3".into()),
            pids: Some(7),
            ..Limits::default()
        });
        assert_eq!(of(&l, "memory.max"), "209715200\n");
        assert_eq!(of(&l, "memory.swap.max"), "104857600\n");
        assert_eq!(of(&l, "cpu.max"), "50000 100000\n");
        assert_eq!(of(&l, "cpuset.cpus.effective"), "0-1\n");
        assert_eq!((of(&l, "pids.max"), l.task_limit()), ("7\n".into(), 7));
        l.update(Limits {
            memory: Some(-1),
            period: Some(20_000),
            ..Limits::default()
        });
        assert_eq!(of(&l, "memory.max"), "max\n");
        assert_eq!(of(&l, "cpu.max"), "50000 20000\n");
        assert_eq!(l.memory_max(), None);
    }
}
