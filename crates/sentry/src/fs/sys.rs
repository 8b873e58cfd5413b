//! /sys: what programs look for in it.
//!
//! The machine is one package of `Kernel::cpus` cores with a thread each, one memory node, and no
//! devices but those of the kernel's own and those of the network. Sizes of caches are the
//! processor's, by CPUID; nothing tells which of the host's CPUs they are.

mod cpu;
mod net;

use crate::Kernel;
use crate::container::Container;
use crate::fs::made_by::MadeBy;
use crate::ns::NetNs;
use crate::task::task_of;
use std::sync::{Arc, Weak};
use vfs::Caller;
use vfs::fs::dynamic::{DynFs, StaticDir};

/// `SYSFS_MAGIC`.
const MAGIC: u64 = 0x6265_6572;

/// Registers sysfs.
pub fn register(k: &Arc<Kernel>) {
    let kernel = Arc::downgrade(k);
    k.vfs.register_fs(
        "sysfs",
        Arc::new(MadeBy(
            move |vfs: &Arc<vfs::Vfs>, cx: &Caller<'_>| {
                // It shows the devices of a network namespace.
                if let Some(t) = task_of(cx.task)
                    && !cx.cred.has_in(&t.ns().net.user, vfs::Caps::SYS_ADMIN)
                {
                    return Err(abi::errno::EPERM);
                }
                let k = kernel.upgrade().ok_or(abi::errno::ENOENT)?;
                let machine = Machine {
                    cpus: k.cpus.max(1),
                    kernel: kernel.clone(),
                    container: Arc::downgrade(&k.container_of(cx.task)),
                    net: task_of(cx.task).map(|t| t.ns().net.clone()),
                };
                Ok(DynFs::mountable(
                    vfs,
                    "sysfs",
                    MAGIC,
                    Arc::new(root(machine)),
                ))
            },
            &[],
        )),
    );
}

/// What is shown: of which kernel and container. Not held: the container's own mounts hold this.
struct Machine {
    cpus: u32,
    kernel: Weak<Kernel>,
    container: Weak<Container>,
    /// The mounting task's.
    net: Option<Arc<NetNs>>,
}

impl Machine {
    /// Memory in all and free, bytes.
    fn memory(&self) -> impl Fn() -> (u64, u64) + Send + Sync + 'static {
        let (kernel, container) = (self.kernel.clone(), self.container.clone());
        move || match (kernel.upgrade(), container.upgrade()) {
            (Some(k), Some(c)) => super::meminfo(&k, &c),
            _ => (0, 0),
        }
    }
}

fn root(m: Machine) -> StaticDir {
    let cpus = m.cpus;
    let bus = cpu::Lazy::new(move || bus(cpus));
    let net = net::Devices(m.net.clone());
    let system = cpu::Lazy::new(move || {
        StaticDir::new()
            .dir("cpu", cpu::all(m.cpus))
            .dir("node", cpu::nodes(&m))
    });
    let thp = StaticDir::new()
        .text("enabled", "always madvise [never]\n")
        .text("defrag", "always defer defer+madvise madvise [never]\n")
        .text("hpage_pmd_size", "2097152\n")
        .text(
            "shmem_enabled",
            "always within_size advise [never] deny force\n",
        );
    let class = ["block", "mem", "misc", "power_supply", "thermal", "tty"]
        .iter()
        .fold(StaticDir::new(), |d, name| d.dir(name, StaticDir::new()))
        .dir("net", net);
    let dev = StaticDir::new()
        .dir("block", StaticDir::new())
        .dir("char", StaticDir::new());
    let mm = StaticDir::new().dir("transparent_hugepage", thp);
    StaticDir::new()
        .dir("block", StaticDir::new())
        .dir("bus", bus)
        .dir("class", class)
        .dir("dev", dev)
        .dir("devices", StaticDir::new().dir("system", system))
        .dir("firmware", StaticDir::new())
        .dir("fs", StaticDir::new().dir("cgroup", StaticDir::new()))
        .dir("kernel", StaticDir::new().dir("mm", mm))
        .dir("module", StaticDir::new())
        .dir("power", StaticDir::new())
}

/// `/sys/bus`: CPUs and the memory node are found there, too.
fn bus(cpus: u32) -> StaticDir {
    let links = |kind: &str, n: u32| {
        let devices = (0..n).fold(StaticDir::new(), |d, i| {
            let to = format!("../../../devices/system/{kind}/{kind}{i}");
            d.link(&format!("{kind}{i}"), &to)
        });
        StaticDir::new()
            .dir("devices", devices)
            .dir("drivers", StaticDir::new())
    };
    StaticDir::new()
        .dir("cpu", links("cpu", cpus))
        .dir("node", links("node", 1))
        .dir(
            "pci",
            StaticDir::new()
                .dir("devices", StaticDir::new())
                .dir("drivers", StaticDir::new()),
        )
}
