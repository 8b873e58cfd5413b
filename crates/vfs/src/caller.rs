//! The caller.

use crate::cred::Credentials;
use abi::Result;
use abi::errno::EIO;
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use wait::Blocker;

/// The caller, as file systems see it.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub cred: &'a Arc<Credentials>,
    /// The task, for `/proc/self` and terminals: downcast in the Sentry.
    pub task: &'a dyn Any,
}

/// One who waits for a program that serves a file system: a task.
pub trait Client: Blocker + Send + Sync {
    fn credentials(&self) -> Arc<Credentials>;
    fn umask(&self) -> u32;
    /// Whether it, which is killed, ends of its own will and has time left in which it waits until
    /// programs have heard of that.
    fn waits_at_end(&self) -> bool;
    /// The task: downcast in the Sentry.
    fn task(&self) -> &dyn Any;
}

/// Who a thread acts for: who is said to have done what is told to those who watch files. Objects
/// of the Sentry.
#[derive(Clone)]
pub struct Actor {
    pub thread: Arc<dyn Any + Send + Sync>,
    pub process: Arc<dyn Any + Send + Sync>,
    pub client: Arc<dyn Client>,
}

thread_local! {
    static ACTOR: RefCell<Option<Actor>> = const { RefCell::new(None) };
}

/// As long as it lives, its thread acts for somebody.
#[must_use]
pub struct Acting(());

impl Acting {
    pub fn new(a: Actor) -> Acting {
        ACTOR.with_borrow_mut(|o| *o = Some(a));
        Acting(())
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        let _ = ACTOR.try_with(|o| o.take());
    }
}

/// As long as it lives, its thread acts for nobody, as a worker of the kernel.
#[must_use]
pub(crate) struct ActsForNobody(Option<Actor>);

impl ActsForNobody {
    pub(crate) fn begin() -> ActsForNobody {
        ActsForNobody(ACTOR.take())
    }
}

impl Drop for ActsForNobody {
    fn drop(&mut self) {
        ACTOR.set(self.0.take());
    }
}

/// Who waits in this thread. `EIO` for a thread of the kernel's own, which must not wait for a
/// program.
pub fn client() -> Result<Arc<dyn Client>> {
    Ok(actor().ok_or(EIO)?.client)
}

/// Whom this thread acts for.
#[must_use]
pub fn actor() -> Option<Actor> {
    ACTOR.try_with(|o| o.borrow().clone()).ok().flatten()
}
