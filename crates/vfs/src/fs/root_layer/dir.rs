//! Reading merged directories.

use super::inode::LayerInode;
use super::is_whiteout;
use crate::file::{DataOnly, File, FileOps, O_DIRECTORY, Sink};
use crate::fs::Listing;
use crate::inode::Inode;
use crate::mode::FileType;
use crate::{DirEntry, Stat};
use abi::Result;
use abi::errno::{EINVAL, EISDIR, ENOTEMPTY};
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

pub(super) struct Entry {
    pub(super) name: Arc<[u8]>,
    pub(super) ino: u64,
    pub(super) kind: u8,
}

impl LayerInode {
    /// Every name of the directory: what differs, and what shows through from below.
    pub(super) fn entries(&self) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        let mut seen: HashSet<Arc<[u8]>> = HashSet::new();
        {
            let s = self.state.read();
            for (name, to) in &s.delta {
                seen.insert(name.clone());
                if let Some(i) = to {
                    all.push(Entry {
                        name: name.clone(),
                        ino: i.ino,
                        kind: i.kind.dt(),
                    });
                }
            }
        }
        // The order of a hash map says nothing; make it at least stable.
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let single = self.lowers.len() == 1;
        let caller = self.fs.caller();
        for l in &self.lowers {
            let dev = l.stat()?.dev;
            let ops = l.clone().open(&caller, O_DIRECTORY)?;
            let file = File::new(ops, O_DIRECTORY, None, self.fs.cred.clone());
            let mut pos = 0;
            let mut found: Vec<Entry> = Vec::new();
            loop {
                let before = pos;
                file.ops.read_dir(&file, &mut pos, &mut |e| {
                    if e.name != b"." && e.name != b".." {
                        let ino = self.fs.lower_ino((dev, e.ino));
                        found.push(Entry {
                            name: Arc::from(e.name),
                            ino,
                            kind: e.kind,
                        });
                    }
                    true
                })?;
                if pos == before {
                    break;
                }
            }
            for e in found {
                let new = if single && seen.is_empty() {
                    true
                } else if single {
                    !seen.contains(&e.name)
                } else {
                    seen.insert(e.name.clone())
                };
                if !new {
                    continue;
                }
                if self.fs.layered && e.kind == FileType::Char.dt() {
                    let i = l.lookup(&caller, &e.name);
                    if i.as_ref().is_ok_and(is_whiteout) {
                        continue;
                    }
                }
                all.push(e);
            }
        }
        Ok(all)
    }

    pub(super) fn check_empty(&self) -> Result<()> {
        if self.entries()?.is_empty() {
            Ok(())
        } else {
            Err(ENOTEMPTY)
        }
    }
}

/// An open directory: it shows the names that were there when it was last read from its start.
pub struct OpenOvlDir {
    inode: Arc<LayerInode>,
    list: Listing<Entry>,
}

impl OpenOvlDir {
    pub(super) fn new(inode: Arc<LayerInode>) -> OpenOvlDir {
        OpenOvlDir {
            inode,
            list: Listing::default(),
        }
    }
}

impl FileOps for OpenOvlDir {
    fn read(&self, _: &File, _: &mut dyn Sink, _: u64) -> Result<usize> {
        Err(EISDIR)
    }
    fn read_dir(
        &self,
        file: &File,
        pos: &mut u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.list.read(
            file,
            self.inode.ino,
            pos,
            emit,
            || Ok(self.inode.entries()?.into()),
            |e| (e.ino, e.kind, &e.name),
        )
    }
    fn seekable(&self) -> bool {
        true
    }
    fn seek_from(&self, _: u32, _: i64) -> Result<u64> {
        Err(EINVAL)
    }
    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }
    fn sync(&self, _: DataOnly) -> Result<()> {
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
