//! /sys: what programs look for in it.

use crate::Kernel;
use crate::boot::MadeBy;
use crate::fs::terminals::task_of;
use std::fmt::Write as _;
use std::sync::Arc;
use vfs::Caller;
use vfs::fs::dynamic::{DynFs, StaticDir};

/// `SYSFS_MAGIC`.
const MAGIC: u64 = 0x6265_6572;

/// Registers sysfs.
pub fn register(k: &Arc<Kernel>) {
    let cpus = k.cpus.max(1);
    k.vfs.register_fs(
        "sysfs",
        Arc::new(MadeBy(move |vfs: &Arc<vfs::Vfs>, cx: &Caller<'_>| {
            // It shows the devices of a network namespace.
            if let Some(t) = task_of(cx.task)
                && !cx.cred.has_in(&t.ns().net.user, vfs::Caps::SYS_ADMIN)
            {
                return Err(abi::errno::EPERM);
            }
            Ok(DynFs::mountable(vfs, "sysfs", MAGIC, Arc::new(root(cpus))))
        })),
    );
}

fn root(cpus: u32) -> StaticDir {
    let range = if cpus == 1 {
        "0\n".to_string()
    } else {
        format!("0-{}\n", cpus - 1)
    };
    let mut cpu = StaticDir::new()
        .text("online", range.clone())
        .text("possible", range.clone())
        .text("present", range.clone())
        .text("offline", "\n")
        .text("kernel_max", "8191\n");
    for n in 0..cpus {
        let mut siblings = String::new();
        let _ = writeln!(siblings, "{n}");
        let topology = StaticDir::new()
            .text("core_id", format!("{n}\n"))
            .text("physical_package_id", "0\n")
            .text("thread_siblings_list", siblings.clone())
            .text("core_siblings_list", range.clone());
        let mut one = StaticDir::new().dir("topology", topology);
        if n > 0 {
            one = one.text("online", "1\n");
        }
        cpu = cpu.dir(&format!("cpu{n}"), one);
    }
    let node0 = StaticDir::new().text("cpulist", range.clone());
    let node = StaticDir::new()
        .text("online", "0\n")
        .text("possible", "0\n")
        .dir("node0", node0);
    let system = StaticDir::new().dir("cpu", cpu).dir("node", node);
    let lo = StaticDir::new()
        .text("address", "00:00:00:00:00:00\n")
        .text("mtu", "65536\n")
        .text("ifindex", "1\n")
        .text("operstate", "unknown\n")
        .text("flags", "0x9\n");
    let thp = StaticDir::new()
        .text("enabled", "always madvise [never]\n")
        .text("defrag", "always defer defer+madvise madvise [never]\n")
        .text("hpage_pmd_size", "2097152\n")
        .text(
            "shmem_enabled",
            "always within_size advise [never] deny force\n",
        );
    StaticDir::new()
        .dir("block", StaticDir::new())
        .dir("bus", StaticDir::new())
        .dir(
            "class",
            StaticDir::new().dir("net", StaticDir::new().dir("lo", lo)),
        )
        .dir("dev", StaticDir::new())
        .dir("devices", StaticDir::new().dir("system", system))
        .dir("firmware", StaticDir::new())
        .dir("fs", StaticDir::new().dir("cgroup", StaticDir::new()))
        .dir(
            "kernel",
            StaticDir::new().dir("mm", StaticDir::new().dir("transparent_hugepage", thp)),
        )
        .dir("module", StaticDir::new())
        .dir("power", StaticDir::new())
}
