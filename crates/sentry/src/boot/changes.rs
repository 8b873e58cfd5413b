//! What a container changed in its root, as a layer of an image: a tar archive with whiteouts (OCI
//! image specification, "Image Layer Filesystem Changeset").
//!
//! Files whose own names begin with the whiteouts' prefix cannot be told from whiteouts in such an
//! archive: they are left out and counted, with all that lies below them; so are paths that are
//! longer than any that can be named. Sockets are left out, too: an archive has no word for them.
//!
//! Of a file with holes, only the data is in the archive, as GNU tar's `--sparse` writes it (old
//! GNU format).

use crate::container::Root;
use abi::errno::{EINVAL, EIO, ENXIO};
use hostcall::HostFd;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tar::{Builder, EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};
use vfs::file::{BufSink, File, O_NONBLOCK, O_RDONLY};
use vfs::fs::root_layer::{Change, changes};
use vfs::inode::Inode;
use vfs::mode::FileType;
use vfs::{Caller, Credentials, Stat};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Bytes that are moved at once.
const CHUNK: usize = 256 << 10;

/// Writes the archive, and gives how many changes it had to leave out. `EINVAL` where the container
/// writes to the host's directory itself.
pub fn write(root: &Root, out: &HostFd) -> abi::Result<u32> {
    let root = root.overlay.as_ref().ok_or(EINVAL)?;
    let mut archive = Archive {
        to: Builder::new(io::BufWriter::with_capacity(CHUNK, Output(out))),
        cred: Arc::new(Credentials::root()),
        links: HashMap::new(),
    };
    let mut left_out = 0u32;
    changes(root, &mut |path, change| {
        if matches!(change, Change::TooDeep) || looks_like_whiteout(path) {
            left_out = left_out.saturating_add(1);
            return Ok(());
        }
        let told = match change {
            Change::Hidden => archive.mark(&beside(path, WHITEOUT)),
            Change::Opaque => archive.mark(&[path, b"/", OPAQUE].concat()),
            Change::File(i) => archive.file(path, i)?,
            Change::TooDeep => Ok(()),
        };
        told.map_err(errno)
    })?;
    let mut to = archive.to.into_inner().map_err(errno)?;
    to.flush().map_err(errno)?;
    Ok(left_out)
}

/// Whether a name on the path begins as marks do.
fn looks_like_whiteout(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|n| n.starts_with(WHITEOUT))
}

fn errno(e: io::Error) -> abi::Errno {
    e.raw_os_error().and_then(abi::Errno::new).unwrap_or(EIO)
}

/// The path with `prefix` before its last name.
fn beside(path: &[u8], prefix: &[u8]) -> Vec<u8> {
    let at = path.iter().rposition(|b| *b == b'/').map_or(0, |s| s + 1);
    [&path[..at], prefix, &path[at..]].concat()
}

struct Output<'a>(&'a HostFd);

impl Write for Output<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        hostcall::file::write(self.0.raw(), buf).map_err(|e| io::Error::from_raw_os_error(e.raw()))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where a file has data, in ascending order; all of it where its file system cannot tell. Short
/// holes count as data: readers of archives are slow with many parts.
fn extents(file: &File, size: u64) -> Vec<Range<u64>> {
    /// Where there are more, longer holes count as data, too.
    const MOST: usize = 4096;
    /// Bytes: what holes are at least.
    const HOLE: u64 = 64 << 10;
    const SEEK_DATA: u32 = 3;
    const SEEK_HOLE: u32 = 4;
    /// Bytes of a part: the walk goes on, whatever is done to the file beside it.
    const LEAST: u64 = 4096;
    let mut found: Vec<Range<u64>> = Vec::new();
    let (mut at, mut hole) = (0, HOLE);
    while at < size {
        let offset = i64::try_from(at).unwrap_or(i64::MAX);
        let from = match file.ops.seek_from(SEEK_DATA, offset) {
            Ok(n) if n >= at => n,
            Err(ENXIO) => break,
            _ => at,
        };
        let offset = i64::try_from(from).unwrap_or(i64::MAX);
        let to = file.ops.seek_from(SEEK_HOLE, offset).unwrap_or(size);
        // (Where a hole was made meanwhile, or the file was cut off, its zeros are taken for data.)
        let to = to.max(from.saturating_add(LEAST)).min(size);
        if from < to {
            join(&mut found, from..to, hole);
        }
        while found.len() > MOST {
            hole *= 2;
            for r in std::mem::take(&mut found) {
                join(&mut found, r, hole);
            }
        }
        at = to.max(from);
    }
    found
}

/// Appends a part, or makes the last one longer where the hole between them is shorter than `hole`.
fn join(parts: &mut Vec<Range<u64>>, next: Range<u64>, hole: u64) {
    match parts.last_mut() {
        Some(last) if next.start - last.end < hole => last.end = next.end,
        _ => parts.push(next),
    }
}

/// The parts of a file that are data, one behind the other. What was cut off meanwhile reads as
/// zeros: the header has told the length.
struct Contents {
    file: Arc<File>,
    parts: std::vec::IntoIter<Range<u64>>,
    part: Range<u64>,
}

impl Contents {
    fn new(file: Arc<File>, parts: Vec<Range<u64>>) -> Contents {
        Contents {
            file,
            parts: parts.into_iter(),
            part: 0..0,
        }
    }
}

impl Read for Contents {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.next() {
                Some(p) => self.part = p,
                None => return Ok(0),
            }
        }
        let left = usize::try_from(self.part.end - self.part.start).unwrap_or(usize::MAX);
        let wanted = left.min(buf.len());
        let buf = &mut buf[..wanted];
        let read = {
            let mut sink = BufSink::new(buf);
            self.file.ops.read(&self.file, &mut sink, self.part.start)
        };
        let n = match read.map_err(|e| io::Error::from_raw_os_error(e.raw()))? {
            0 => {
                buf.fill(0);
                wanted
            }
            n => n,
        };
        self.part.start += n as u64;
        Ok(n)
    }
}

/// Makes `h` that of a file with holes, whose data is at `parts`, and gives what of the map does
/// not fit into it. ("GNU tar: Basic Tar Format", Sparse Formats, Old GNU Format.)
fn sparse(h: &mut Header, size: u64, parts: &[Range<u64>]) -> Vec<u8> {
    h.set_entry_type(EntryType::GNUSparse);
    h.set_size(parts.iter().map(|p| p.end - p.start).sum());
    // (The end of the last entry is the file's.)
    let end = size..size;
    let mut map = parts.iter().chain(std::iter::once(&end)).peekable();
    let mut more = Vec::new();
    if let Some(gnu) = h.as_gnu_mut() {
        gnu.set_real_size(size);
        fill(&mut gnu.sparse, &mut map);
        gnu.set_is_extended(map.peek().is_some());
    }
    while map.peek().is_some() {
        let mut next = GnuExtSparseHeader::new();
        fill(&mut next.sparse, &mut map);
        next.set_is_extended(map.peek().is_some());
        more.extend_from_slice(next.as_bytes());
    }
    more
}

fn fill<'a>(slots: &mut [GnuSparseHeader], map: &mut impl Iterator<Item = &'a Range<u64>>) {
    // (The slots are first: a part is taken only where there is one.)
    for (slot, part) in slots.iter_mut().zip(map) {
        slot.set_offset(part.start);
        slot.set_length(part.end - part.start);
    }
}

struct Archive<W: Write> {
    to: Builder<W>,
    cred: Arc<Credentials>,
    /// The first names of files with several, by number.
    links: HashMap<u64, Vec<u8>>,
}

impl<W: Write> Archive<W> {
    /// An empty file that means something.
    fn mark(&mut self, path: &[u8]) -> io::Result<()> {
        let mut h = Header::new_gnu();
        h.set_entry_type(EntryType::Regular);
        h.set_size(0);
        self.to.append_data(&mut h, name(path), io::empty())
    }

    fn file(&mut self, path: &[u8], inode: Arc<dyn Inode>) -> abi::Result<io::Result<()>> {
        let kind = inode.file_type();
        if kind == FileType::Socket {
            return Ok(Ok(()));
        }
        let s = inode.stat()?;
        let mut h = header(&s);
        if kind != FileType::Directory && s.nlink > 1 {
            if let Some(first) = self.links.get(&s.ino) {
                h.set_entry_type(EntryType::Link);
                h.set_size(0);
                return Ok(self.to.append_link(&mut h, name(path), name(first)));
            }
            self.links.insert(s.ino, path.to_vec());
        }
        let attributes = attributes(&*inode);
        let pairs = attributes.iter().map(|(n, v)| (n.as_str(), v.as_slice()));
        if let Err(e) = self.to.append_pax_extensions(pairs) {
            return Ok(Err(e));
        }
        let cred = self.cred.clone();
        let caller = Caller {
            cred: &cred,
            task: &(),
        };
        let empty = match kind {
            FileType::Regular => {
                let ops = inode.open(&caller, O_RDONLY | O_NONBLOCK)?;
                let file = File::new(ops, O_RDONLY, None, cred);
                return Ok(self.regular(path, h, file, s.size));
            }
            FileType::Symlink => {
                h.set_entry_type(EntryType::Symlink);
                let target = inode.readlink(&caller)?;
                return Ok(self.to.append_link(&mut h, name(path), name(&target)));
            }
            FileType::Directory => EntryType::Directory,
            FileType::Fifo => EntryType::Fifo,
            FileType::Char => EntryType::Char,
            FileType::Block => EntryType::Block,
            FileType::Socket => return Ok(Ok(())),
        };
        h.set_entry_type(empty);
        let (major, minor) = (vfs::major(s.rdev), vfs::minor(s.rdev));
        if let Err(e) = h
            .set_device_major(major)
            .and_then(|()| h.set_device_minor(minor))
        {
            return Ok(Err(e));
        }
        Ok(self.to.append_data(&mut h, name(path), io::empty()))
    }

    fn regular(
        &mut self,
        path: &[u8],
        mut h: Header,
        file: Arc<File>,
        size: u64,
    ) -> io::Result<()> {
        let parts = extents(&file, size);
        let data: u64 = parts.iter().map(|p| p.end - p.start).sum();
        let mut map = Vec::new();
        if data < size {
            map = sparse(&mut h, size, &parts);
        } else {
            h.set_entry_type(EntryType::Regular);
            h.set_size(size);
        }
        let all = map.as_slice().chain(Contents::new(file, parts));
        self.to.append_data(&mut h, name(path), all)
    }
}

fn name(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn header(s: &Stat) -> Header {
    let mut h = Header::new_gnu();
    h.set_mode(s.mode & 0o7777);
    h.set_uid(s.uid.into());
    h.set_gid(s.gid.into());
    h.set_mtime(u64::try_from(s.mtime / 1_000_000_000).unwrap_or(0));
    h.set_size(0);
    h
}

/// Extended attributes as tar words them. The values may be any bytes, the names are text.
fn attributes(inode: &dyn Inode) -> Vec<(String, Vec<u8>)> {
    let names = inode.list_xattr().unwrap_or_default();
    names
        .iter()
        .filter_map(|n| {
            let text = std::str::from_utf8(n).ok()?;
            Some((format!("SCHILY.xattr.{text}"), inode.get_xattr(n).ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn a_short_hole_is_data() {
        let mut parts = Vec::new();
        for r in [0..10, 15..20, 30..40] {
            join(&mut parts, r, 10);
        }
        assert_eq!(parts, [0..20, 30..40]);
        for r in std::mem::take(&mut parts) {
            join(&mut parts, r, 20);
        }
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0], 0..40);
    }
}
