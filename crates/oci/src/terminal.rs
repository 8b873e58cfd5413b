//! A terminal of the host for a container's program: its master goes to the caller
//! (`--console-socket`), its other end, in raw mode, to the Sentry, which joins it to a terminal
//! inside.

use crate::{Result, Tried};
use config::Stdio;
use hostcall::{RawFd, sock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Winsize};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Makes one, with a size of rows and columns, and hands its master over.
pub fn hand_over(socket: &Path, (rows, cols): (u16, u16)) -> Result<OwnedFd> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).tried("make a terminal")?;
    rustix::pty::unlockpt(&master).tried("unlock the terminal")?;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).tried("open the terminal")?;
    let mut settings = rustix::termios::tcgetattr(&slave).tried("read the terminal's settings")?;
    settings.make_raw();
    rustix::termios::tcsetattr(&slave, OptionalActions::Now, &settings)
        .tried("set the terminal")?;
    let size = Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&slave, size).tried("set the terminal's size")?;
    let kind = (
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
    );
    let s = rustix::net::socket_with(kind.0, kind.1, kind.2, None).tried("make a socket")?;
    let to = SocketAddrUnix::new(socket).tried("name the console socket")?;
    rustix::net::connect(&s, &to)
        .tried(&format!("reach the console socket {}", socket.display()))?;
    sock::send(s.as_raw_fd(), b"/dev/ptmx", &[master.as_raw_fd()])
        .tried("hand the terminal over")?;
    Ok(slave)
}

/// A program's streams that are this terminal.
pub fn stdio(host: RawFd, (rows, cols): (u16, u16)) -> Stdio<RawFd> {
    Stdio::Terminal {
        host,
        rows,
        cols,
        stderr: None,
    }
}

/// Makes it the controlling terminal of this process, which leads a session: its size changes come
/// as SIGWINCH, and its end, as the session's, hangs it up for all its holders.
pub fn control(slave: &OwnedFd) -> Result<()> {
    rustix::process::ioctl_tiocsctty(slave).tried("take the terminal")
}

/// Its size now.
#[must_use]
pub fn size(fd: &OwnedFd) -> Option<(u16, u16)> {
    let s = rustix::termios::tcgetwinsize(fd).ok()?;
    Some((s.ws_row, s.ws_col))
}
