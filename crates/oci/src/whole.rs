//! Files that are there as a whole or not at all, in directories that others may write to.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Result, Write};
use std::path::Path;

/// Writes a file aside and gives it its name. What lies in the way of either is replaced, not written to: it may be a
/// link.
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
        crate::lifecycle::write_pid(&path, 17).unwrap();
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
