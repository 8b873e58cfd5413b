//! The program's standard streams: the person's terminal, or descriptors as they are.

use config::Stdio;
use hostcall::term::{self, Settings};
use hostcall::{RawFd, file};

/// Those of this process. Where standard input and output are one terminal, and this process is in
/// its foreground, the program gets a terminal of its own, joined to this one; anything else is
/// passed as it is.
pub fn of_caller() -> Stdio<RawFd> {
    match (terminal(0), terminal(1)) {
        (Some(i), Some(o)) if i == o && term::in_foreground(0) => {
            let (rows, cols) = term::window(0).unwrap_or(term::DEFAULT_WINDOW);
            Stdio::Terminal {
                host: 0,
                rows,
                cols,
                stderr: (terminal(2) != Some(i)).then_some(2),
            }
        }
        _ => Stdio::default(),
    }
}

/// The terminal's identity.
fn terminal(fd: RawFd) -> Option<(u64, u64)> {
    term::settings(fd).ok()?;
    let st = file::fstat(fd).ok()?;
    Some((st.st_dev, st.st_ino))
}

/// Raw mode of the terminal on standard input: put back when dropped, so also by a panic. (No
/// signal that is sent ends this process but SIGKILL and a crash's: the others are read, not
/// suffered. After those the shell puts its terminal back, or `stty sane` does. A helper that did
/// it would race with the shell.)
pub struct RawMode(Settings);

impl RawMode {
    pub fn enter() -> abi::Result<RawMode> {
        let before = term::settings(0)?;
        term::set_settings(0, &before.raw())?;
        Ok(RawMode(before))
    }
    /// Shows the person's terminal as it was while `f` runs.
    pub fn pause(&self, f: impl FnOnce()) {
        let _ = term::set_settings(0, &self.0);
        f();
        let _ = term::set_settings(0, &self.0.raw());
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = term::set_settings(0, &self.0);
    }
}
