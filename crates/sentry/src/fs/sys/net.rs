//! `/sys/class/net`: the devices of a network namespace, as they are when they are looked at.

use crate::ns::NetNs;
use crate::task::task_of;
use abi::Result;
use abi::errno::{EINVAL, ENOENT};
use net::{SYS_NET, SYS_NET_STATISTICS};
use std::any::Any;
use std::sync::Arc;
use vfs::fs::dynamic::{DynDir, DynEntry, DynFile, DynNode, StaticDir};
use vfs::mode::FileType;
use vfs::{Caller, File};

/// The namespace of the task that mounted it; without one, of who looks.
pub struct Devices(pub Option<Arc<NetNs>>);

impl Devices {
    fn ns(&self, task: &dyn Any) -> Option<Arc<NetNs>> {
        match &self.0 {
            Some(ns) => Some(ns.clone()),
            None => task_of(task).map(|t| t.ns().net.clone()),
        }
    }
}

impl DynDir for Devices {
    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        let ns = self.ns(cx.task).ok_or(ENOENT)?;
        let all = ns.device_names().into_iter();
        let name = all
            .into_iter()
            .find(|n| n.as_bytes() == name)
            .ok_or(ENOENT)?;
        Ok(DynNode::Dir(Arc::new(device(&ns, &name))))
    }

    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        Ok(self.0.as_ref().map_or_else(Vec::new, entries))
    }

    fn list_as(&self, _: &File, reader: &Caller<'_>) -> Result<Vec<DynEntry>> {
        let ns = self.ns(reader.task);
        Ok(ns.as_ref().map_or_else(Vec::new, entries))
    }
}

fn entries(ns: &Arc<NetNs>) -> Vec<DynEntry> {
    let all = ns.device_names().into_iter();
    all.map(|name| DynEntry {
        name: name.into_bytes(),
        kind: FileType::Directory,
    })
    .collect()
}

fn device(ns: &Arc<NetNs>, name: &str) -> StaticDir {
    let file = |of| Attribute {
        ns: ns.clone(),
        device: name.into(),
        of,
    };
    let statistics = SYS_NET_STATISTICS
        .into_iter()
        .fold(StaticDir::new(), |d, f| d.file(f, file(Of::Statistics(f))));
    SYS_NET
        .into_iter()
        .fold(StaticDir::new(), |d, f| d.file(f, file(Of::Device(f))))
        .dir("statistics", statistics)
}

#[derive(Clone, Copy)]
enum Of {
    Device(&'static str),
    Statistics(&'static str),
}

/// One file.
struct Attribute {
    ns: Arc<NetNs>,
    device: String,
    of: Of,
}

impl DynFile for Attribute {
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        let text = match self.of {
            Of::Device(f) => self.ns.device_text(&self.device, f),
            Of::Statistics(f) => self.ns.device_statistic(&self.device, f),
        };
        text.map(String::into_bytes).ok_or(EINVAL)
    }
}
