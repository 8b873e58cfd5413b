//! `/proc/sysvipc`: the System V objects of the ipc namespace that the opener is in
//! (`sysvipc_proc_open`).

use crate::Kernel;
use crate::ns::IpcNs;
use crate::task::{Task, task_of};
use abi::Result;
use ipc::sysv::Numbers;
use ipc::sysv::shm::{Attachment, Shm};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use vfs::Caller;
use vfs::file::File;
use vfs::fs::dynamic::{DynFile, StaticDir};
use vfs::userns::UserNs;

/// How many mappings each segment has, in all processes, by its identity.
#[must_use]
pub fn attached(k: &Kernel) -> HashMap<*const Shm, u64> {
    let mut spaces: Vec<Arc<mm::Mm>> = Vec::new();
    let threads: Vec<_> = {
        let l = k.tasks.lock();
        l.processes()
            .filter_map(|p| l.some_thread(p.group.tgid))
            .collect()
    };
    for t in threads {
        let mm = t.mm();
        if !spaces.iter().any(|m| m.id() == mm.id()) {
            spaces.push(mm);
        }
    }
    let mut all = HashMap::new();
    for m in spaces {
        m.for_each_vma(|v| {
            if let Some(f) = v.open_file().and_then(|f| f.downcast::<Attachment>().ok()) {
                *all.entry(Arc::as_ptr(&f.shm)).or_default() += 1;
            }
        });
    }
    all
}

/// A file of the directory.
#[derive(Clone, Copy)]
enum Kind {
    Msg,
    Sem,
    Shm,
}

impl Kind {
    fn heading(self) -> &'static str {
        match self {
            Kind::Msg => {
                "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  \
                 cuid  cgid      stime      rtime      ctime\n"
            }
            Kind::Sem => {
                "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      \
                 ctime\n"
            }
            Kind::Shm => {
                "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  \
                 cuid  cgid      atime      dtime      ctime                   rss                  \
                 swap\n"
            }
        }
    }
}

impl DynFile for Kind {
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        Ok(self.heading().into())
    }
    fn bound(&self, cx: &Caller<'_>) -> Result<Option<Arc<dyn DynFile>>> {
        Ok(task_of(cx.task).map(|t| {
            let open = OpenFile {
                kind: *self,
                ns: t.ns().ipc.clone(),
                opener: Arc::downgrade(t),
            };
            Arc::new(open) as Arc<dyn DynFile>
        }))
    }
}

/// The same, of its opener.
struct OpenFile {
    kind: Kind,
    ns: Arc<IpcNs>,
    opener: Weak<Task>,
}

/// How the opener sees owners and processes.
struct Seen<'a>(&'a UserNs, &'a Task);

impl Numbers for Seen<'_> {
    fn uid(&self, id: u32) -> u32 {
        self.0.uid_shown(id)
    }
    fn gid(&self, id: u32) -> u32 {
        self.0.gid_shown(id)
    }
    fn process(&self, id: i32) -> i32 {
        self.1.number_of(id)
    }
}

impl DynFile for OpenFile {
    fn generate(&self, file: &File) -> Result<Vec<u8>> {
        let mut text = String::from(self.kind.heading());
        let Some(opener) = self.opener.upgrade() else {
            return Ok(text.into());
        };
        let to = Seen(&file.cred.user_ns, &opener);
        let ns = &self.ns;
        match self.kind {
            Kind::Msg => text.extend(ns.msg.all().iter().map(|q| q.line(&to))),
            Kind::Sem => text.extend(ns.sem.all().iter().map(|s| s.line(&to))),
            Kind::Shm => {
                let all = ns.shm.all();
                let attached = if all.iter().any(|s| s.is_attached()) {
                    attached(&opener.kernel)
                } else {
                    HashMap::new()
                };
                let of = |s: &Arc<Shm>| attached.get(&Arc::as_ptr(s)).copied().unwrap_or(0);
                text.extend(all.iter().map(|s| s.line(of(s), &to)));
            }
        }
        Ok(text.into())
    }
}

pub(super) fn files() -> StaticDir {
    StaticDir::new()
        .file("msg", Kind::Msg)
        .file("sem", Kind::Sem)
        .file("shm", Kind::Shm)
}
