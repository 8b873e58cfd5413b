//! What a container changed in its root, as a layer of an image: a tar archive with whiteouts (OCI image
//! specification, "Image Layer Filesystem Changeset").
//!
//! Files whose own names begin with the whiteouts' prefix cannot be told from whiteouts in such an archive:
//! they are left out, as are sockets.

use crate::container::Root;
use abi::errno::{EINVAL, EIO};
use hostcall::HostFd;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tar::{Builder, EntryType, Header};
use vfs::file::{BufSink, File, O_NONBLOCK, O_RDONLY};
use vfs::fs::overlay::{Change, changes};
use vfs::inode::{FileType, Inode};
use vfs::{Caller, Credentials, Stat};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Bytes that are moved at once.
const CHUNK: usize = 256 << 10;

/// Writes the archive. `EINVAL` where the container writes to the host's directory itself.
pub fn write(root: &Root, out: &HostFd) -> abi::Result<()> {
    let root = root.overlay.as_ref().ok_or(EINVAL)?;
    let mut archive = Archive {
        to: Builder::new(io::BufWriter::with_capacity(CHUNK, Output(out))),
        cred: Arc::new(Credentials::root()),
        links: HashMap::new(),
    };
    changes(root, &mut |path, change| {
        let told = match change {
            Change::Hidden => archive.mark(&beside(path, WHITEOUT)),
            Change::Opaque => archive.mark(&[path, b"/", OPAQUE].concat()),
            Change::File(i) => archive.file(path, i)?,
        };
        told.map_err(errno)
    })?;
    archive
        .to
        .into_inner()
        .and_then(|mut w| w.flush())
        .map_err(errno)
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

/// A file's contents.
struct Contents {
    file: Arc<File>,
    at: u64,
}

impl Read for Contents {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut sink = BufSink::new(buf);
        let n = self.file.ops.read(&self.file, &mut sink, self.at);
        let n = n.map_err(|e| io::Error::from_raw_os_error(e.raw()))?;
        self.at += n as u64;
        Ok(n)
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
        let last = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        let kind = inode.file_type();
        if last.starts_with(WHITEOUT) || kind == FileType::Socket {
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
                h.set_entry_type(EntryType::Regular);
                h.set_size(s.size);
                let file = File::new(
                    inode.open(&caller, O_RDONLY | O_NONBLOCK)?,
                    O_RDONLY,
                    None,
                    cred,
                );
                // One that shrinks meanwhile is filled up: the header has told its size.
                let all = Contents { file, at: 0 }.chain(io::repeat(0)).take(s.size);
                return Ok(self.to.append_data(&mut h, name(path), all));
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
