//! What a platform's fast paths are to the kernel.
//!
//! A *lane* carries a system call from the application to the Sentry by less than a trap, or answers it where it is
//! made. A platform that has lanes gives these objects beside an address space, a thread and its interrupter; one
//! without them (`ptrace`) implements none, and the kernel asks for nothing else then.
//!
//! - A call site that is run often is *patched* ([`SpaceLanes::add_site`]): it jumps to a trampoline of the stub's.
//! - There some calls are answered from the thread's *area* ([`Local`], mask, alternate stack), others take what the
//!   Sentry has laid ready ([`crate::offers`]), and the rest is laid into a *mailbox* or traps after all.
//! - The area is memory of the application's: what comes from it is checked by whoever takes it.

pub use crate::lane::{Local, Names};
use crate::{Event, offers, sites};
use abi::{AltStack, Result};
use std::sync::Arc;

/// What a thread changes of its own without the Sentry, as it was when it went on and is when it comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// The blocked signals: any number may come out.
    pub mask: u64,
    /// The alternate signal stack: anything may come out.
    pub stack: AltStack,
}

/// How the call that was just given came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// The address behind its `syscall` instruction, told once, where that is run often and not patched.
    pub hot_site: Option<u64>,
    /// It would have been answered where it was made, but memory that it names was not mapped on the host: the access
    /// that failed there, by address and the processor's error code.
    pub missed: Option<(u64, u64)>,
}

/// The fast paths of one thread: for the Sentry thread that drives it.
pub trait ThreadLanes {
    /// What calls give that are answered where they are made; `None`: the Sentry is asked.
    fn publish(&mut self, local: Option<Local>);
    /// Before [`ThreadLanes::run`]: what the application may change without the Sentry, and how to know which signals
    /// wait and may be for this thread. It blocks what it likes as long as nothing waits that it blocks no more;
    /// [`RemoteLanes::mask`] tells what, and [`ThreadLanes::own`] when it has come out.
    fn put(&mut self, own: &Own, pending: &dyn Fn() -> u64);
    /// As [`crate::AppThread::run`]; the caller's wake-ups that are deferred are made when the application has been let
    /// go on, before anybody waits for it.
    fn run(&mut self, deferred: Option<wait::wakes::Hold>) -> Event;
    /// What it is by now.
    fn own(&self) -> Own;
    /// After [`Event::Syscall`], once.
    fn came(&mut self) -> Came;
    /// Whether the call just given came from a patched site.
    fn by_lane(&self) -> bool;
    /// The call just given could have been answered where it was made: notes its site, and gives it where it has become
    /// hot by that.
    fn note_site(&mut self) -> Option<u64>;
}

/// The fast paths of one address space.
pub trait SpaceLanes {
    /// Makes a trampoline for a call site, which is live from now on: gives the address of the pointer to it, for
    /// [`sites::jump`]. `None` where there are no more trampolines.
    fn add_site(&self, site: sites::Site) -> Option<u32>;
    /// The sites of `r` are live no more. The caller has unmapped their pages, and maps them again, with what was
    /// there before, afterwards: this returns when no thread stands at a place that only a live site explains.
    fn retire_sites(&self, r: std::ops::Range<u64>);
    /// There are no lanes any more: no site is live, and what lies at the table's place is unmapped.
    fn drop_sites(&self);
    /// The sites that have trampolines.
    fn sites(&self) -> Arc<sites::Sites>;
    /// Gives this address space, where nothing has run yet, the sites of the one that it is made a copy of.
    fn inherit_sites(&self, parent: &Arc<sites::Sites>) -> Result<()>;
    /// Where what its reads may find is offered, and changes of an epoll are laid: mapped now if it was not. `None`
    /// if [`SpaceLanes::end_offers`] was called first.
    fn offers(&self) -> Option<Arc<offers::Area>>;
    /// Nothing is offered here any more, for as long as it lives: the Sentry is asked.
    fn end_offers(&self);
    /// How much there is to be read is not told here any more: the Sentry is asked (ioctl(2) with FIONREAD).
    fn end_counts(&self);
    /// One more (`1`), or one less (`-1`), waits for a futex word of this address space: counted before the word is
    /// looked at. Where nobody waits, a wake-up may do nothing without the Sentry.
    fn count_waiter(&self, va: u64, by: i32);
}

/// The fast paths of one thread: for others, while it runs application code or not.
pub trait RemoteLanes {
    /// As [`ThreadLanes::publish`] of `None`.
    fn withdraw(&self);
    /// The signals that the thread blocks, which is in application code; `None` where it has just ended.
    fn mask(&self) -> Option<u64>;
    /// These signals wait, and it may be this thread that takes them when it blocks them no more: then it comes out. To
    /// be called between queueing and a look at [`RemoteLanes::mask`].
    fn note_pending(&self, set: u64);
}
