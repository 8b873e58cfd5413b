//! /proc (`proc(5)`).

mod global;
mod pid;

pub use pid::command_line;

use crate::boot::MadeBy;
use crate::fs::terminals::task_of;
use crate::ns::pid::PidNs;
use crate::{Kernel, Task};
use abi::Result;
use abi::errno::{ENOENT, EPERM};
use std::sync::{Arc, Weak};
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynFile, DynFs, DynLink, DynNode, StaticDir};
use vfs::{Caller, FileType};

/// `PROC_SUPER_MAGIC`.
const MAGIC: u64 = 0x9fa0;

/// Registers proc.
pub fn register(k: &Arc<Kernel>) {
    let kernel = Arc::downgrade(k);
    k.vfs.register_fs(
        "proc",
        Arc::new(MadeBy(move |vfs: &Arc<vfs::Vfs>, cx: &Caller<'_>| {
            let k = kernel.upgrade().ok_or(ENOENT)?;
            // It shows the pid namespace of who mounts it.
            let ns = task_of(cx.task).map_or_else(
                || k.container_of(cx.task).ns.pid_for_children.clone(),
                |t| t.pid.ns.clone(),
            );
            if !cx.cred.has_in(&ns.user, vfs::Caps::SYS_ADMIN) {
                return Err(EPERM);
            }
            let root = Root {
                kernel: kernel.clone(),
                ns,
                fixed: global::files(&k, &k.container_of(cx.task)),
            };
            Ok(DynFs::mountable(vfs, "proc", MAGIC, Arc::new(root)))
        })),
    );
}

/// A file whose text a function makes.
pub struct Text<F>(pub F);

impl<F: Fn() -> Vec<u8> + Send + Sync + 'static> DynFile for Text<F> {
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        Ok((self.0)())
    }
}

/// A link whose text depends on the caller.
struct SelfLink(Arc<PidNs>, fn(&Task, &PidNs) -> Option<String>);

impl DynLink for SelfLink {
    fn read(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        let t = task_of(cx.task).ok_or(ENOENT)?;
        // Who has no number here has no such link.
        (self.1)(t, &self.0).map(String::into_bytes).ok_or(ENOENT)
    }
}

struct Root {
    kernel: Weak<Kernel>,
    ns: Arc<PidNs>,
    fixed: StaticDir,
}

impl DynDir for Root {
    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        match name {
            b"self" => {
                let f = |t: &Task, ns: &PidNs| match t.group.pid.seen_in(ns) {
                    0 => None,
                    n => Some(n.to_string()),
                };
                return Ok(DynNode::Link(Arc::new(SelfLink(self.ns.clone(), f))));
            }
            b"thread-self" => {
                let f = |t: &Task, ns: &PidNs| match t.group.pid.seen_in(ns) {
                    0 => None,
                    n => Some(format!("{n}/task/{}", t.pid.seen_in(ns))),
                };
                return Ok(DynNode::Link(Arc::new(SelfLink(self.ns.clone(), f))));
            }
            _ => {}
        }
        if let Some(n) = self.fixed.get(name) {
            return Ok(n.clone());
        }
        let n: i32 = std::str::from_utf8(name)
            .ok()
            .filter(|s| !s.starts_with(['0', '+']))
            .and_then(|s| s.parse().ok())
            .ok_or(ENOENT)?;
        let k = self.kernel.upgrade().ok_or(ENOENT)?;
        let _ = cx;
        let (group, task) = {
            let l = k.tasks.lock();
            let n = self.ns.id_of(n).ok_or(ENOENT)?;
            let task = l.task(n);
            (
                l.group(n)
                    .or_else(|| task.as_ref().map(|t| t.group.clone())),
                task,
            )
        };
        let group = group.ok_or(ENOENT)?;
        let task = task.or_else(|| k.tasks.lock().some_thread(group.tgid));
        Ok(DynNode::Dir(Arc::new(pid::PidDir::process(
            &k, &self.ns, &group, task,
        ))))
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        let k = self.kernel.upgrade().ok_or(ENOENT)?;
        let mut v = self.fixed.entries();
        v.push(DynEntry::new("self", FileType::Symlink));
        v.push(DynEntry::new("thread-self", FileType::Symlink));
        let l = k.tasks.lock();
        let mut numbers: Vec<i32> = l
            .processes()
            .map(|p| p.group.pid.seen_in(&self.ns))
            .filter(|n| *n > 0)
            .collect();
        numbers.sort_unstable();
        v.extend(
            numbers
                .into_iter()
                .map(|n| DynEntry::new(n.to_string(), FileType::Directory)),
        );
        Ok(v)
    }
}
