//! `/proc/sys/kernel`: what an ipc namespace allows of System V objects (`ipc/ipc_sysctl.c`), and
//! which identifier the next one is to have.

use super::{integer, owned, permission};
use crate::ns::IpcNs;
use abi::Result;
use abi::errno::EINVAL;
use ipc::sysv::{IpcNamespace, Limit};
use std::sync::Arc;
use vfs::file::File;
use vfs::fs::dynamic::{DynFile, StaticDir};
use vfs::mode::Want;
use vfs::{Caller, Caps, Perm};

/// A file.
#[derive(Clone, Copy)]
enum What {
    One(Limit),
    /// Four limits in a line.
    Sem,
    Next(NextId),
}

/// Where the identifier of the next object of a kind is read and written.
#[derive(Clone, Copy)]
struct NextId {
    get: fn(&IpcNamespace) -> i32,
    set: fn(&IpcNamespace, i32) -> Result<()>,
}

const NEXT: [(&str, NextId); 3] = [
    (
        "msg_next_id",
        NextId {
            get: |ns| ns.msg.next_id(),
            set: |ns, id| ns.msg.set_next_id(id),
        },
    ),
    (
        "sem_next_id",
        NextId {
            get: |ns| ns.sem.next_id(),
            set: |ns, id| ns.sem.set_next_id(id),
        },
    ),
    (
        "shm_next_id",
        NextId {
            get: |ns| ns.shm.next_id(),
            set: |ns, id| ns.shm.set_next_id(id),
        },
    ),
];

struct Setting {
    ns: Arc<IpcNs>,
    what: What,
}

/// A number that may have 64 bits, from what was written.
fn long(word: &str) -> Result<u64> {
    word.parse().map_err(|_| EINVAL)
}

impl Setting {
    /// The file `sem`: as many of its numbers as are there.
    fn set_sem(&self, data: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(data).map_err(|_| EINVAL)?;
        for (limit, word) in Limit::OF_SEM.into_iter().zip(text.split_ascii_whitespace()) {
            self.ns.limits.set(limit, long(word)?)?;
        }
        Ok(())
    }
}

impl DynFile for Setting {
    fn perm(&self) -> Perm {
        let mode = match self.what {
            What::Next(_) => 0o444,
            _ => 0o644,
        };
        Perm {
            mode,
            ..owned(&self.ns.user)
        }
    }
    /// For the namespace's root, whatever its capabilities; identifiers are for who restores
    /// processes (`ipc_permissions`).
    fn permission(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        let restores = Caps::CHECKPOINT_RESTORE | Caps::SYS_ADMIN;
        let may_write = match self.what {
            What::Next(_) => restores
                .iter()
                .any(|cap| cx.cred.has_in(&self.ns.user, cap)),
            _ => cx.cred.euid == self.perm().uid,
        };
        permission(want, may_write)
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        let limits = &self.ns.limits;
        let text = match self.what {
            What::One(l) => limits.get(l).to_string(),
            What::Sem => Limit::OF_SEM.map(|l| limits.get(l).to_string()).join("\t"),
            What::Next(id) => (id.get)(&self.ns).to_string(),
        };
        Ok((text + "\n").into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> Result<usize> {
        match self.what {
            What::One(l @ (Limit::ShmMax | Limit::ShmAll)) => {
                let text = std::str::from_utf8(data).map_err(|_| EINVAL)?;
                self.ns.limits.set(l, long(text.trim())?)?;
            }
            What::One(l) => {
                let n = u64::try_from(integer(data)?).map_err(|_| EINVAL)?;
                self.ns.limits.set(l, n)?;
            }
            What::Sem => self.set_sem(data)?,
            What::Next(id) => (id.set)(&self.ns, integer(data)?)?,
        }
        Ok(data.len())
    }
    fn identity(&self) -> u64 {
        u64::from(self.ns.id.ino)
    }
}

/// Adds the files to those of `kernel.*`.
pub(super) fn settings(dir: StaticDir, ns: &Arc<IpcNs>) -> StaticDir {
    let file = |what| Setting {
        ns: ns.clone(),
        what,
    };
    let dir = Limit::FILES
        .into_iter()
        .fold(dir, |d, (name, l)| d.file(name, file(What::One(l))));
    let dir = NEXT
        .into_iter()
        .fold(dir, |d, (name, id)| d.file(name, file(What::Next(id))));
    dir.file("sem", file(What::Sem))
}
