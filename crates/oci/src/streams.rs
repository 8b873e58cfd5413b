//! Which descriptors a program gets as its standard streams.

use hostcall::{HostFd, RawFd};

/// Where standard input, output and error come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Streams {
    /// This process's own.
    #[default]
    Own,
    /// These, which become the monitor's: it closes its copies once the program has them. `None` is a closed
    /// stream. They are not 0, 1 or 2.
    Given([Option<RawFd>; 3]),
}

impl Streams {
    #[must_use]
    pub(crate) fn descriptors(self) -> [Option<RawFd>; 3] {
        match self {
            Streams::Own => [Some(0), Some(1), Some(2)],
            Streams::Given(fds) => fds,
        }
    }

    /// In a monitor: who reads their other ends must see the program's end.
    pub(crate) fn let_go(self) {
        if let Streams::Given(fds) = self {
            for (n, fd) in fds.iter().enumerate() {
                // One descriptor may be two streams.
                if let Some(fd) = fd.filter(|_| !fds[..n].contains(fd)) {
                    drop(HostFd::from_raw(fd));
                }
            }
        }
    }
}
