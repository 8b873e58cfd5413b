//! /proc (`proc(5)`): `global` has what is the kernel's, `pid` a process's directory, `options`
//! which processes a mount shows (hidepid, gid, subset).

mod config;
mod global;
mod locks;
mod options;
pub mod pid;
mod sysctl;
mod sysvipc;

pub use pid::command_line;
pub use sysvipc::attached;

use options::{ProcMount, Target};

use crate::ns::pid::PidNs;
use crate::task::task_of;
use crate::{Kernel, Task};
use abi::Result;
use abi::errno::{ENOENT, EPERM};
use std::sync::{Arc, Weak};
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynFile, DynFs, DynLink, DynNode, StaticDir, number};
use vfs::params::{Param, Params};
use vfs::vfs::FsType;
use vfs::{Caller, FileType};

/// `PROC_SUPER_MAGIC`.
const MAGIC: u64 = 0x9fa0;

/// Registers proc.
pub fn register(k: &Arc<Kernel>) {
    k.vfs
        .register_fs("proc", Arc::new(ProcType(Arc::downgrade(k))));
}

struct ProcType(Weak<Kernel>);

impl FsType for ProcType {
    fn parameters(&self) -> &'static [&'static str] {
        &["hidepid", "gid", "subset"]
    }
    fn parse(&self, cx: &Caller<'_>, p: Param) -> Result<Param> {
        ProcMount::new(&p.word(), cx.cred.user_ns.clone())?;
        Ok(p)
    }
    fn mount(
        &self,
        vfs: &Arc<vfs::Vfs>,
        cx: &Caller<'_>,
        _: &str,
        params: &Params,
    ) -> Result<Arc<vfs::Dentry>> {
        let k = self.0.upgrade().ok_or(ENOENT)?;
        // It shows the pid namespace of who mounts it.
        let ns = task_of(cx.task).map_or_else(
            || k.container_of(cx.task).ns.pid_for_children.clone(),
            |t| t.pid.ns.clone(),
        );
        if !cx.cred.has_in(&ns.user, vfs::Caps::SYS_ADMIN) {
            return Err(EPERM);
        }
        let mount = Arc::new(ProcMount::new(&params.joined(), cx.cred.user_ns.clone())?);
        let root = Root {
            kernel: self.0.clone(),
            ns,
            fixed: global::files(&k, &k.container_of(cx.task)),
            mount: mount.clone(),
        };
        Ok(DynFs::with_options(
            vfs,
            "proc",
            MAGIC,
            Arc::new(root),
            Some(mount),
        ))
    }
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
    mount: Arc<ProcMount>,
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
            return if self.mount.pids_only() {
                Err(ENOENT)
            } else {
                Ok(n.clone())
            };
        }
        let n = number(name).ok_or(ENOENT)?;
        let k = self.kernel.upgrade().ok_or(ENOENT)?;
        let (id, group, task) = {
            let l = k.tasks.lock();
            let id = self.ns.id_of(n).ok_or(ENOENT)?;
            let task = l.task(id);
            let group = l
                .group(id)
                .or_else(|| task.as_ref().map(|t| t.group.clone()))
                .ok_or(ENOENT)?;
            let task = task.or_else(|| l.some_thread(group.tgid));
            (id, group, task)
        };
        let target = || Target::new(&k, group.tgid, id);
        if !self.mount.shows(cx, target) {
            return Err(ENOENT);
        }
        let mount = self.mount.clone();
        Ok(DynNode::Dir(Arc::new(pid::PidDir::process(
            &k, &self.ns, &group, task, mount,
        ))))
    }
    /// As who has opened it.
    fn list(&self, file: &File) -> Result<Vec<DynEntry>> {
        self.list_as(
            file,
            &Caller {
                cred: &file.cred,
                task: &(),
            },
        )
    }
    fn list_as(&self, _: &File, reader: &Caller<'_>) -> Result<Vec<DynEntry>> {
        let k = self.kernel.upgrade().ok_or(ENOENT)?;
        let mut v = Vec::new();
        if !self.mount.pids_only() {
            v = self.fixed.entries();
        }
        v.push(DynEntry::new("self", FileType::Symlink));
        v.push(DynEntry::new("thread-self", FileType::Symlink));
        let mut all: Vec<(i32, i32)> = {
            let l = k.tasks.lock();
            l.processes()
                .map(|p| (p.group.pid.seen_in(&self.ns), p.group.tgid))
                .filter(|(n, _)| *n > 0)
                .collect()
        };
        all.retain(|&(_, tgid)| self.mount.shows(reader, || Target::new(&k, tgid, tgid)));
        all.sort_unstable_by_key(|(n, _)| *n);
        v.extend(
            all.into_iter()
                .map(|(n, _)| DynEntry::new(n.to_string(), FileType::Directory)),
        );
        Ok(v)
    }
}
