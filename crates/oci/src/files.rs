//! Small files: read up to a bound and without waiting, written as a whole or not at all, or
//! without a name.
//!
//! Others may write to the directories that they lie in.

use crate::Tried;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opening never waits, as that of a FIFO would.
pub(crate) const TO_READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Reads a regular file of at most `max` bytes.
pub(crate) fn read(path: &Path, max: u64) -> Result<Vec<u8>> {
    read_opened(rustix::fs::open(path, TO_READ, Mode::empty())?, max)
}

/// As [`read`], from an open file ([`TO_READ`]).
pub(crate) fn read_opened(fd: OwnedFd, max: u64) -> Result<Vec<u8>> {
    let f = File::from(fd);
    let m = f.metadata()?;
    if !m.is_file() {
        return Err(Error::other("it is not a regular file"));
    }
    if m.len() > max {
        return Err(Error::other(format!("it is longer than {max} bytes")));
    }
    let mut text = Vec::new();
    f.take(max).read_to_end(&mut text)?;
    Ok(text)
}

/// Writes a file aside and gives it its name. What lies in the way of either is replaced, not
/// written to: it may be a link.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    // What a command that was killed has left.
    match std::fs::remove_file(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // O_EXCL: no link is followed.
    let mut f = OpenOptions::new().write(true).create_new(true).open(&new)?;
    let done = f
        .write_all(bytes)
        .and_then(|()| std::fs::rename(&new, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    done
}

/// Writes a pid file, whole or not at all.
pub(crate) fn write_pid(path: &Path, pid: i32) -> crate::Result<()> {
    let written = write(path, pid.to_string().as_bytes());
    written.tried(&format!("write {}", path.display()))
}

/// A file in memory with these bytes, to be passed on, and read from its beginning.
pub(crate) fn in_memory(bytes: &[u8]) -> crate::Result<OwnedFd> {
    let fd =
        rustix::fs::memfd_create("request", MemfdFlags::CLOEXEC).tried("make a file in memory")?;
    let mut f = File::from(fd);
    f.write_all(bytes)
        .and_then(|()| f.rewind())
        .tried("write a file in memory")?;
    Ok(f.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_the_way_is_replaced() {
        let dir = std::env::temp_dir().join(format!("oci-whole-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let (elsewhere, path) = (dir.join("elsewhere"), dir.join("pid"));
        std::fs::write(&elsewhere, "kept").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.join(".pid.new")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        write_pid(&path, 17).unwrap();
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "kept");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "17");
        assert!(path.symlink_metadata().unwrap().is_file());
        // Nor is a FIFO waited for.
        let fifo = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, dir.join(".pid.new"), fifo, mode, 0).unwrap();
        write(&path, b"18").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "18");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
