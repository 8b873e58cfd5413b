//! Links out of `/proc/PID`: to its namespaces (`ns`), to its directories and its program (`cwd`,
//! `root`, `exe`).

use super::Subject;
use crate::ns::nsfs::NsRef;
use crate::task::task_of;
use abi::Result;
use abi::errno::{EACCES, ENOENT};
use std::sync::Arc;
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynLink, DynNode};
use vfs::{Caller, FileType, Path, Perm};

/// `ns`.
pub(super) struct NsDir(pub(super) Subject);

impl DynDir for NsDir {
    fn perm(&self) -> Perm {
        self.0.perm(0o511)
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        let name = NsRef::NAMES
            .into_iter()
            .find(|n| n.as_bytes() == name)
            .ok_or(ENOENT)?;
        Ok(DynNode::Link(Arc::new(NsLink(self.0.clone(), name))))
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        Ok(NsRef::NAMES
            .into_iter()
            .map(|n| DynEntry::new(n, FileType::Symlink))
            .collect())
    }
}

struct NsLink(Subject, &'static str);

impl NsLink {
    fn namespace(&self, cx: &Caller<'_>) -> Result<NsRef> {
        self.0
            .guarded(cx, |t| NsRef::of(t, self.1.as_bytes()).ok_or(ENOENT))
    }
}

impl DynLink for NsLink {
    fn perm(&self) -> Perm {
        self.0.perm(0o777)
    }
    fn read(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        self.namespace(cx).map(|n| n.text().into_bytes())
    }
    fn jump(&self, cx: &Caller<'_>) -> Result<Option<Path>> {
        let n = self.namespace(cx)?;
        Ok(Some(n.place(&self.0.kernel()?.vfs)))
    }
}

/// `cwd`, `exe`, `root`.
pub(super) struct PlaceLink {
    pub(super) me: Subject,
    pub(super) what: u8,
}

impl PlaceLink {
    fn place(&self, cx: &Caller<'_>) -> Result<Path> {
        self.me.guarded(cx, |t| match self.what {
            b'e' => t.group.exe.read().clone().ok_or(ENOENT),
            b'c' => Ok(t.fs().cwd()),
            _ => Ok(t.fs().root()),
        })
    }
}

impl DynLink for PlaceLink {
    fn perm(&self) -> Perm {
        self.me.perm(0o777)
    }
    fn read(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        let p = self.place(cx)?;
        let root = task_of(cx.task).ok_or(EACCES)?.fs().root();
        Ok(p.describe(&root).display())
    }
    fn jump(&self, cx: &Caller<'_>) -> Result<Option<Path>> {
        self.place(cx).map(Some)
    }
}
