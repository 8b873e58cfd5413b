//! The host's cgroups that hold a sandbox.

use std::path::PathBuf;

/// Removes the directories, deepest first; what is not empty or not there stays.
pub fn remove(dirs: &[PathBuf]) {
    for d in dirs {
        let _ = std::fs::remove_dir(d);
    }
}
