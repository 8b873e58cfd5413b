//! The person's terminal, as the starter sees it.

use crate::{RawFd, sys};
use abi::Result;

/// A terminal's settings, to be put back later.
#[derive(Clone, Copy)]
pub struct Settings(libc::termios);

/// The settings of the terminal; `ENOTTY` if it is none.
pub fn settings(fd: RawFd) -> Result<Settings> {
    let mut t = core::mem::MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: the kernel's struct termios is shorter than libc's and laid out as its beginning.
    unsafe { sys!(Ioctl, fd, libc::TCGETS, t.as_mut_ptr()) }?;
    // SAFETY: zeroed, then filled; all bit patterns are valid.
    Ok(Settings(unsafe { t.assume_init() }))
}

/// Changes them once all output is out.
pub fn set_settings(fd: RawFd, s: &Settings) -> Result<()> {
    // SAFETY: as in `settings`.
    unsafe { sys!(Ioctl, fd, libc::TCSETSW, &raw const s.0) }?;
    Ok(())
}

impl Settings {
    /// The same terminal as a plain pipe of bytes: no echo, no lines, no signals, no translation.
    #[must_use]
    pub fn raw(&self) -> Settings {
        let mut t = self.0;
        t.c_iflag &= !(libc::IGNBRK
            | libc::BRKINT
            | libc::PARMRK
            | libc::ISTRIP
            | libc::INLCR
            | libc::IGNCR
            | libc::ICRNL
            | libc::IXON);
        t.c_oflag &= !libc::OPOST;
        t.c_lflag &= !(libc::ECHO | libc::ECHONL | libc::ICANON | libc::ISIG | libc::IEXTEN);
        t.c_cflag = t.c_cflag & !(libc::CSIZE | libc::PARENB) | libc::CS8;
        t.c_cc[libc::VMIN] = 1;
        t.c_cc[libc::VTIME] = 0;
        Settings(t)
    }
}

/// Rows and columns of a terminal that does not tell.
pub const DEFAULT_WINDOW: (u16, u16) = (24, 80);

/// Rows and columns.
pub fn window(fd: RawFd) -> Result<(u16, u16)> {
    let mut w = [0u16; 4];
    // SAFETY: room for a struct winsize.
    unsafe { sys!(Ioctl, fd, libc::TIOCGWINSZ, w.as_mut_ptr()) }?;
    Ok((w[0], w[1]))
}

/// Whether the calling process belongs to the terminal's foreground.
#[must_use]
pub fn in_foreground(fd: RawFd) -> bool {
    let mut group = 0i32;
    // SAFETY: room for a pid.
    let r = unsafe { sys!(Ioctl, fd, libc::TIOCGPGRP, &raw mut group) };
    // SAFETY: no pointers.
    let own = unsafe { sys!(Getpgid, 0) };
    r.is_ok() && own == Ok(group as usize)
}
