//! Who is told for a request, and by whom.

use super::Ring;
use super::request::Request;
use std::cell::Cell;
use std::sync::{Arc, Weak};
use wait::later::{self, Later};
use wait::{Events, Listener};

/// A request on a file's queue. It keeps nothing alive: its end leaves the queue first.
pub struct Arm(pub(super) Weak<Request>);

impl Listener for Arm {
    fn notify(&self, events: Events) {
        if events.contains(Events::OPENED) {
            return;
        }
        let Some(r) = self.0.upgrade() else { return };
        if is_by(&r.ring) {
            r.set_own();
        }
        if !r.wake() && !r.is_deferred() {
            // Its task has gone: nobody can try it.
            later::put(Arc::new(Lost(Arc::downgrade(&r))));
        }
    }
}

/// A request that came to be work when its task had gone.
struct Lost(Weak<Request>);

impl Later for Lost {
    fn run(&self) {
        if let Some(r) = self.0.upgrade() {
            let _ = r.cancel();
        }
    }
    fn elsewhere(self: Arc<Self>) {
        let _ = later::by_service(self);
    }
}

thread_local! {
    /// The ring whose completion this thread tells just now, by its address.
    static BY_RING: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Whether this thread tells of a completion of this ring just now.
pub(super) fn is_by(ring: &Ring) -> bool {
    BY_RING.get() == Some(std::ptr::from_ref(ring).addr())
}

/// Tells of a ring's completion: what of the same ring is told by that, through an eventfd or an
/// epoll, sees it (Linux's `EPOLL_URING_WAKE`).
pub(super) fn by_ring<R>(ring: &Ring, f: impl FnOnce() -> R) -> R {
    let before = BY_RING.replace(Some(std::ptr::from_ref(ring).addr()));
    let r = f();
    BY_RING.set(before);
    r
}
