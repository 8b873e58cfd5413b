//! Wake-ups that are made after the answer to the call that made them.
//!
//! A task that has woken another has to be answered, too; and soon its Sentry thread sleeps until
//! the next call. Where all share a CPU, the order decides how often that CPU changes hands. If the
//! other is woken first, it runs at once in the waker's place, and the waker's thread comes back
//! just to answer and to sleep: six switches for each step of a ring of pipes. If the answer is
//! first, its application often has made the next call before the thread looks for it: five.
//!
//! But who is answered may run at once, too, in the place of the Sentry thread, and for as long as
//! it likes; meanwhile nobody has woken the other, though a CPU be idle. So this is done only
//!
//! - for calls that return after their wake-up, and wait for nothing ([`fits`]): see
//!   [`wait::wakes`];
//! - for tasks whose last calls that woke somebody were each followed by the next soon:
//!   [`wait::spin::table::DEFERRED`] is their budget. One that was not, and it is over until there
//!   were as many again.

use abi::linux::{FUTEX_CMD_MASK, FUTEX_WAKE, FUTEX_WAKE_BITSET};
use abi::nr;
use ipc::{EventFd, PipeEnd};
use net::Socket;
use net::sys::MSG_WAITALL;
use vfs::FdTable;

/// What is read or written at once: nothing is copied, and no file asked, after the wake-up.
const SMALL: u64 = 4096;

/// Whether a call's wake-ups may wait for its answer: it moves little between memory and a pipe, an
/// eventfd or a socket of our own, from one place in memory, mostly in one piece, or wakes a futex.
/// What comes after its wake-up takes locks that nobody sleeps with, or sleeps in a
/// [`wait::Parker`], which makes the wake-up first; files that came with bytes, and an area for
/// read slots, are closed and made without deferral ([`wait::wakes::without_deferral`]).
#[must_use]
pub fn fits(files: &FdTable, nr: u64, args: &[u64; 6]) -> bool {
    let [fd, op, len, ..] = *args;
    let wake = || {
        matches!(
            op as u32 & FUTEX_CMD_MASK as u32,
            FUTEX_WAKE | FUTEX_WAKE_BITSET
        )
    };
    let small = || {
        let mut fits = false;
        files.holding(fd as i32, |f| {
            fits = f.ops::<PipeEnd>().is_some()
                || f.ops::<EventFd>().is_some()
                || f.ops::<Socket>().is_some_and(Socket::is_own);
        });
        fits && len <= SMALL
    };
    match nr as u32 {
        nr::READ | nr::WRITE => small(),
        // Without an address; not until there are many pieces.
        nr::SENDTO | nr::RECVFROM => {
            args[4] == 0 && args[3] & u64::from(MSG_WAITALL) == 0 && small()
        }
        nr::FUTEX => wake(),
        _ => false,
    }
}
