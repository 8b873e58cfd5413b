//! Words that several files' calls take.

use super::{Argument, Show, flags, named, text};
use abi::Result;
use abi::linux::O_ACCMODE;

flags! {
    /// Flags of the calls with a directory's descriptor.
    pub struct AtFlags: u32, kept {
        AT_SYMLINK_NOFOLLOW,
        AT_EACCESS,
        AT_SYMLINK_FOLLOW,
        AT_NO_AUTOMOUNT,
        AT_EMPTY_PATH,
        AT_STATX_FORCE_SYNC,
        AT_STATX_DONT_SYNC,
    }
}

flags! {
    /// Of calls that make a descriptor, and know no other flag.
    pub struct CloexecFlag: u32, refused {
        O_CLOEXEC,
    }
}

flags! {
    /// Of calls that make a file of their own.
    pub struct NewFileFlags: u32, refused {
        O_NONBLOCK,
        O_CLOEXEC,
    }
}

flags! {
    /// Of the calls that wait for a clock.
    pub struct TimerFlags: u32, kept {
        TIMER_ABSTIME,
    }
}

/// Flags of open(2): two bits are an access mode, the others flags.
///
/// ```text
///  31                       2 1    0
/// +--------------------------+------+
/// | O_CREAT, O_CLOEXEC, ...  | mode |  0 O_RDONLY, 1 O_WRONLY, 2 O_RDWR
/// +--------------------------+------+
/// ```
///
/// open(2) ignores the bits that it does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFlags(u32);

impl OpenFlags {
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

flags! {
    /// Those without the access mode, by name.
    struct OpenBits: u32, kept {
        O_CREAT,
        O_EXCL,
        O_NOCTTY,
        O_TRUNC,
        O_APPEND,
        O_NONBLOCK,
        O_ASYNC = vfs::file::O_ASYNC,
        O_DIRECT,
        O_LARGEFILE,
        O_TMPFILE,
        O_DIRECTORY,
        O_NOFOLLOW,
        O_NOATIME,
        O_CLOEXEC,
        O_SYNC,
        O_DSYNC,
        O_PATH,
    }
}

impl Argument for OpenFlags {
    const SHOW: Show = Show::Words(|raw| {
        let word = raw[0] as u32;
        let mode = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"][(word & O_ACCMODE) as usize];
        match (word & !O_ACCMODE, OpenBits::SHOW) {
            (0, _) => mode.into(),
            (bits, Show::Words(show)) => format!("{mode}|{}", show(&[bits.into()])),
            (bits, _) => format!("{mode}|{}", text::hex(bits.into())),
        }
    });
    #[inline(always)]
    fn decode(raw: &[u64]) -> Result<Self> {
        Ok(OpenFlags(raw[0] as u32))
    }
}

named! {
    /// A clock. Negative numbers are somebody's CPU clock.
    pub struct ClockId(i32) {
        CLOCK_REALTIME,
        CLOCK_MONOTONIC,
        CLOCK_PROCESS_CPUTIME_ID,
        CLOCK_THREAD_CPUTIME_ID,
        CLOCK_MONOTONIC_RAW,
        CLOCK_REALTIME_COARSE,
        CLOCK_MONOTONIC_COARSE,
        CLOCK_BOOTTIME,
        CLOCK_REALTIME_ALARM,
        CLOCK_BOOTTIME_ALARM,
        CLOCK_TAI,
    }
}
