//! FUSE as a type for mount(2), and `/dev/fuse`: what the `fuse` crate asks of tasks.

use crate::Kernel;
use crate::task::{Task, task_of};
use abi::Result;
use abi::errno::{EINVAL, ENOENT};
use fuse::device::OpenDevice;
use fuse::mount::Made;
use std::sync::{Arc, Weak};
use vfs::fs::tmpfs::{self, Tmpfs};
use vfs::params::{Param, Params};
use vfs::vfs::{FsType, Vfs};
use vfs::{Caller, Dentry};

/// Makes both known.
pub fn register(k: &Arc<Kernel>) {
    let device = Arc::new(OpenDevice);
    k.vfs.devices.register(10, Some(229), device);
    k.vfs
        .register_fs("fuse", Arc::new(FuseType(Arc::downgrade(k))));
}

struct FuseType(Weak<Kernel>);

impl FsType for FuseType {
    fn parameters(&self) -> &'static [&'static str] {
        fuse::mount::PARAMETERS
    }
    fn parse(&self, cx: &Caller<'_>, p: Param) -> Result<Param> {
        fuse::mount::check(cx, &p)?;
        Ok(p)
    }
    /// The server's device is among the caller's descriptors; its requests tell tasks by the
    /// caller's pid namespace.
    fn mount(
        &self,
        vfs: &Arc<Vfs>,
        cx: &Caller<'_>,
        _: &str,
        params: &Params,
    ) -> Result<Arc<Dentry>> {
        let k = self.0.upgrade().ok_or(ENOENT)?;
        let t = task_of(cx.task).ok_or(EINVAL)?;
        let fd = fuse::mount::descriptor(params)?;
        let file = t.files().get(fd).map_err(|_| EINVAL)?;
        let clas = &k.container_of(cx.task).clas;
        let (cache, _) = Tmpfs::new(vfs.new_dev(), clas, tmpfs::Options::default());
        let ns = t.pid.ns.clone();
        let made = Made {
            dev: vfs.new_dev(),
            numbers: Box::new(move |task| {
                let task = task.downcast_ref::<Task>();
                task.map_or(0, |t| t.pid.seen_in(&ns) as u32)
            }),
            cache,
        };
        fuse::mount::mount(cx, params, &file, made)
    }
}
