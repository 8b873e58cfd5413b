//! What a platform's fast paths are to the kernel: the lanes' whole protocol.
//!
//! A *lane* carries a system call from the application to the Sentry by less than a trap, or
//! answers it where it is made. A platform that has lanes gives three objects beside an address
//! space ([`SpaceLanes`]), a thread ([`ThreadLanes`]) and its interrupter ([`RemoteLanes`]); one
//! without them (`ptrace`) implements none, and the kernel asks for nothing else then.
//!
//! ## The protocol
//!
//! 1. *A site becomes hot.* Calls that a lane may help are counted by where they come from (`hot`);
//!    [`ThreadLanes::came`] tells of a site once it is called often. The memory manager
//!    (`mm::patch`) makes a jump of its instructions to a *trampoline* of the stub's ([`sites`],
//!    [`SpaceLanes::add_site`]), which does what stood there before, finds the thread's *area* by
//!    the GS base, and enters the stub's code (`stub::lane`).
//! 2. *Answered there*, from words in the area (`area`): ids and names, as long as the Sentry has
//!    published them ([`ThreadLanes::publish`]); the signal mask and the alternate stack, which are
//!    the area's while the thread is in application code ([`ThreadLanes::put`],
//!    [`ThreadLanes::own`]); a futex's wake-up where nobody waits ([`SpaceLanes::count_waiter`]).
//! 3. *Answered from what was laid ready* ([`read_slots`]): reads of sockets from *read slots*,
//!    which the call claims by one exchange of the slot's word; how much there is to be read;
//!    changes of an epoll that only this address space looks at, which are laid down, and made when
//!    somebody looks.
//! 4. *Laid into the mailbox* of the thread's area, where the Sentry's thread spins for it
//!    (`spin`); the answer comes the same way. The words that both sides change, and their steps,
//!    are in `words`; `stub::lane` has the picture.
//! 5. *Else* the stub makes the system call, as the site would have.
//!
//! Who changes what was published (ids, a filter) first makes the change, then withdraws the
//! answers ([`RemoteLanes::withdraw`]): a call that began before sees the old state, as on Linux.
//!
//! A signal may stop a thread anywhere there. `unwind` makes its registers those of the
//! application, before the call or behind it; nothing between is ever seen.
//!
//! ## Invariants
//!
//! - A call is answered once: by a lane or by the Sentry, never by both, whatever order the two
//!   sides' steps take. The tests of `words` try all orders.
//! - A signal that the application does not block is never left waiting: a sender notes it
//!   ([`RemoteLanes::note_pending`]), then reads the mask; the application writes the mask, then
//!   looks at what was noted.
//! - A trampoline is not changed while its address space lives, and a thread that stands at a place
//!   that only a live site explains is known to, also when the site ends meanwhile ([`sites`]).
//! - What nobody calls costs nothing: no thread spins whose budget is used up ([`wait::spin`]), and
//!   a platform without lanes has no object that could be asked.
//! - All calls that the Sentry answers come out as [`Event::Syscall`], whichever way they took:
//!   `seccomp`, `strace` and the dispatcher see no difference. A call that a filter may refuse is
//!   never answered by a lane.
//!
//! ## The threat model
//!
//! The areas and what is laid ready are memory of the application's, and every instruction of the
//! stub may be jumped to. So what is read there is a claim, and is used only where a lie harms
//! nobody but its author:
//!
//! - numbers are bounded by whoever takes them: a claim of a read slot by the length of its fill, a
//!   change of an epoll by the checks of epoll_ctl(2), a mask by the signals that cannot be
//!   blocked;
//! - registers that are unwound are no more than what rt_sigreturn(2) could have set;
//! - a call in a mailbox is treated as any system call; one that needs registers is never asked
//!   this way, and ends the process;
//! - another task's thread believes nothing there: it asks the task's own ([`RemoteLanes`] reads
//!   the mask, for which a liar only misses its own signals' wake-up; the kick does not depend on
//!   it).

pub mod area;
pub(crate) mod hot;
pub mod read_slots;
pub mod sites;
pub(crate) mod spin;
pub mod unwind;
pub(crate) mod words;

use crate::Event;
use abi::{AltStack, Result};
pub use area::{Local, Names};
use std::sync::Arc;

/// The calls that may be answered by read slots and what is laid beside them.
pub const SLOT_CALLS: [u32; 3] = [
    stub::lane::SLOT_CALLS[0].0,
    stub::lane::SLOT_CALLS[1].0,
    stub::lane::SLOT_CALLS[2].0,
];

/// The call that may be answered there, too, with one of its commands: ioctl(2) with FIONREAD.
pub const COUNTED: u32 = stub::lane::COUNTED;
pub const FIONREAD: u32 = stub::lane::FIONREAD;

/// The calls that may be answered where they are made.
pub const LOCAL: [u32; stub::lane::LOCAL.len()] = {
    let mut out = [0; stub::lane::LOCAL.len()];
    let mut i = 0;
    while i < out.len() {
        out[i] = stub::lane::LOCAL[i].0;
        i += 1;
    }
    out
};

/// What a thread changes of its own without the Sentry, as it was when it went on and is when it
/// comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalState {
    /// The blocked signals: any number may come out.
    pub mask: u64,
    /// The alternate signal stack: anything may come out.
    pub stack: AltStack,
}

/// How the call that was just given came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// The address behind its `syscall` instruction, told once, where that is run often and not
    /// patched.
    pub hot_site: Option<u64>,
    /// It would have been answered where it was made, but memory that it names was not mapped on
    /// the host: the access that failed there, by address and the processor's error code.
    pub missed: Option<(u64, u64)>,
}

/// The fast paths of one thread: for the Sentry thread that drives it.
pub trait ThreadLanes {
    /// What calls give that are answered where they are made; `None`: the Sentry is asked.
    fn publish(&mut self, local: Option<Local>);
    /// Before [`ThreadLanes::run`]: what the application may change without the Sentry, and how to
    /// know which signals wait and may be for this thread. It blocks what it likes as long as
    /// nothing waits that it blocks no more; [`RemoteLanes::mask`] tells what, and
    /// [`ThreadLanes::own`] when it has come out.
    fn put(&mut self, own: &LocalState, pending: &dyn Fn() -> u64);
    /// As [`crate::AppThread::run`]; the caller's wake-ups that are deferred are made when the
    /// application has been let go on, before anybody waits for it.
    fn run(&mut self, deferral: Option<wait::wakes::Deferral>) -> Event;
    /// What it is by now.
    fn own(&self) -> LocalState;
    /// After [`Event::Syscall`], once.
    fn came(&mut self) -> Came;
    /// Whether the call just given came from a patched site.
    fn by_lane(&self) -> bool;
    /// The call just given could have been answered where it was made: notes its site, and gives it
    /// where it has become hot by that.
    fn note_site(&mut self) -> Option<u64>;
}

/// The fast paths of one address space.
pub trait SpaceLanes {
    /// Makes a trampoline for a call site, which is live from now on: gives the address of the
    /// pointer to it, for [`sites::jump`]. `None` where there are no more trampolines.
    fn add_site(&self, site: sites::Site) -> Option<u32>;
    /// The sites of `r` are live no more. The caller has unmapped their pages, and maps them again,
    /// with what was there before, afterwards: this waits for no thread ([`sites`]).
    fn retire_sites(&self, r: std::ops::Range<u64>);
    /// There are no lanes any more: no site is live, and what lies at the table's place is
    /// unmapped.
    fn drop_sites(&self);
    /// The sites that have trampolines.
    fn sites(&self) -> Arc<sites::Sites>;
    /// Gives this address space, where nothing has run yet, the sites of the one that it is made a
    /// copy of.
    fn inherit_sites(&self, parent: &Arc<sites::Sites>) -> Result<()>;
    /// Its read slots, and where changes of an epoll are laid: mapped now if they were not. `None`
    /// if [`SpaceLanes::end_read_slots`] was called first.
    fn read_slots(&self) -> Option<Arc<read_slots::Area>>;
    /// No slot is filled here any more, for as long as it lives: the Sentry is asked.
    fn end_read_slots(&self);
    /// How much there is to be read is not told here any more: the Sentry is asked (ioctl(2) with
    /// FIONREAD).
    fn end_counts(&self);
    /// One more (`1`), or one less (`-1`), waits for a futex word of this address space: counted
    /// before the word is looked at. Where nobody waits, a wake-up may do nothing without the
    /// Sentry.
    fn count_waiter(&self, va: u64, by: i32);
}

/// The fast paths of one thread: for others, while it runs application code or not.
pub trait RemoteLanes {
    /// As [`ThreadLanes::publish`] of `None`.
    fn withdraw(&self);
    /// The signals that the thread blocks, which is in application code; `None` where it has just
    /// ended.
    fn mask(&self) -> Option<u64>;
    /// These signals wait, and it may be this thread that takes them when it blocks them no more:
    /// then it comes out. To be called between queueing and a look at [`RemoteLanes::mask`].
    fn note_pending(&self, set: u64);
}
