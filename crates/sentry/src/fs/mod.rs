//! What file systems show of tasks: proc, sys, terminals; and the vDSO's mapping.

pub mod console;
pub mod dev;
pub mod fuse;
pub mod host_stream;
pub mod made_by;
pub mod mqueue;
pub mod overlay;
pub mod pressure;
pub mod proc;
pub mod sys;
pub mod terminals;

use crate::Kernel;
use crate::container::Container;

/// Memory in all and free, bytes: a container's limit, or the host's size.
#[must_use]
pub fn meminfo(k: &Kernel, c: &Container) -> (u64, u64) {
    let s = c.clas.stats();
    let limit = c.ns.cgroup.memory_max().unwrap_or(u64::MAX);
    let frames = c.ns.cgroup.frames_max().unwrap_or(u64::MAX);
    let total = k.total_memory.min(frames).min(limit);
    let used = s.resident + c.clas.kernel_memory();
    (total, total.saturating_sub(used))
}

/// What was written to a file of the kernel's, which most of them take as a C string: up to its
/// first 0. `EINVAL` for what is no text.
pub fn written(data: &[u8]) -> abi::Result<&str> {
    let end = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    std::str::from_utf8(&data[..end]).map_err(|_| abi::errno::EINVAL)
}

/// All CPUs of a machine that has `n`, as lists of CPUs are written.
#[must_use]
pub fn cpu_list(n: u32) -> String {
    match n {
        0 | 1 => "0".into(),
        n => format!("0-{}", n - 1),
    }
}
