//! What a thread does when it holds no lock any more.
//!
//! A listener is told under its queue's lock, and under others'. What takes locks of its own (a
//! signal for a file's owner) is put here, and done at the thread's next boundary. That is before
//! the program goes on, as if it had been done at once.
//!
//! ## Invariants
//!
//! - What is put is done: by its thread at the boundary, or [elsewhere](Later::elsewhere), as a
//!   rule by a service thread ([`by_service`], [`by_long_service`]).
//! - Nothing waits for a sleeper: who goes to sleep gives away what it has, and what comes
//!   meanwhile ([`Away`]).

use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// Something to be done.
pub trait Later: Send + Sync {
    /// Does it. The caller holds no lock.
    fn run(&self);
    /// Has another thread do it ([`by_service`]; [`by_long_service`] where an application decides how
    /// much it is). The caller may hold any lock.
    fn elsewhere(self: Arc<Self>);
}

/// A thread that does what no other does: there from the first on.
type Service = Mutex<Option<Sender<Arc<dyn Later>>>>;

/// Of what is short. (Most is: what others wait for is told here.)
static SHORT: Service = Mutex::new(None);
/// Of what may take as long as an application has made it: its files' and rings' ends.
static LONG: Service = Mutex::new(None);

/// Has a thread do it that holds no lock; false where the host gives no thread for that. It must
/// not take long: what all applications are told goes by that thread. The caller may hold any lock.
#[must_use]
pub fn by_service(l: Arc<dyn Later>) -> bool {
    give(&SHORT, "later", l)
}

/// The same for what may take long.
#[must_use]
pub fn by_long_service(l: Arc<dyn Later>) -> bool {
    give(&LONG, "later-long", l)
}

fn give(to: &Service, name: &str, l: Arc<dyn Later>) -> bool {
    let service = {
        let mut s = to.lock();
        if s.is_none() {
            *s = start(name);
        }
        s.clone()
    };
    // (What cannot be sent is dropped, which may come here again.)
    service.is_some_and(|s| s.send(l).is_ok())
}

fn start(name: &str) -> Option<Sender<Arc<dyn Later>>> {
    const STACK: usize = 256 << 10;
    let (sender, todo) = channel::<Arc<dyn Later>>();
    let made = std::thread::Builder::new()
        .name(name.into())
        .stack_size(STACK)
        .spawn(move || todo.iter().for_each(|l| l.run()));
    made.ok().map(|_| sender)
}

/// Who does what is put on its thread, at a boundary.
pub trait Boundary {
    /// It is to look there. Called on its own thread.
    fn ask(&self);
}

#[derive(Default)]
struct QueuedWork {
    boundary: Option<Arc<dyn Boundary>>,
    /// It sleeps.
    away: bool,
    list: Vec<Arc<dyn Later>>,
}

thread_local! {
    static OWN: RefCell<QueuedWork> = RefCell::default();
}

/// To be done at this thread's boundary, or elsewhere if it has none.
pub fn put(l: Arc<dyn Later>) {
    let mut l = Some(l);
    // (A thread that ends has no list any more.)
    let _ = OWN.try_with(|o| {
        let o = &mut *o.borrow_mut();
        if let Some(b) = o.boundary.as_ref().filter(|_| !o.away) {
            b.ask();
            o.list.extend(l.take());
        }
    });
    if let Some(l) = l {
        l.elsewhere();
    }
}

/// Drops something at this thread's boundary, or elsewhere: what it is the last to keep may take
/// locks of its own, or long. The caller may hold any lock.
pub fn drop_later<T: Send + 'static>(t: T) {
    put(Arc::new(Dropped(Mutex::new(Some(t)))));
}

struct Dropped<T>(Mutex<Option<T>>);

impl<T: Send + 'static> Later for Dropped<T> {
    fn run(&self) {
        let gone = self.0.lock().take();
        drop(gone);
    }
    fn elsewhere(self: Arc<Self>) {
        // (Else it goes here.)
        let _ = by_long_service(self);
    }
}

/// Whether there is something for this thread to do.
#[must_use]
pub fn is_due() -> bool {
    OWN.with_borrow(|o| !o.list.is_empty())
}

/// Does what this thread has to do.
pub fn run() {
    let list = OWN.with_borrow_mut(|o| std::mem::take(&mut o.list));
    for l in list {
        l.run();
    }
}

/// As long as it lives, its thread has a boundary.
#[must_use]
#[derive(Debug)]
pub struct Bounded(());

impl Bounded {
    pub fn by(b: Arc<dyn Boundary>) -> Bounded {
        OWN.with_borrow_mut(|o| o.boundary = Some(b));
        Bounded(())
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        let own = OWN.with_borrow_mut(std::mem::take);
        own.list.into_iter().for_each(Later::elsewhere);
    }
}

/// As long as it lives, its thread sleeps.
pub(crate) struct Away(());

impl Away {
    pub(crate) fn begin() -> Away {
        let list = OWN.with_borrow_mut(|o| {
            o.away = true;
            std::mem::take(&mut o.list)
        });
        // (What these let go of may put something here.)
        list.into_iter().for_each(Later::elsewhere);
        Away(())
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        OWN.with_borrow_mut(|o| o.away = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[derive(Default)]
    struct Counts {
        asked: AtomicUsize,
        here: AtomicUsize,
        elsewhere: AtomicUsize,
    }
    impl Boundary for Counts {
        fn ask(&self) {
            self.asked.fetch_add(1, SeqCst);
        }
    }
    impl Later for Counts {
        fn run(&self) {
            self.here.fetch_add(1, SeqCst);
        }
        fn elsewhere(self: Arc<Self>) {
            self.elsewhere.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn what_is_put_is_done_once() {
        let c = Arc::new(Counts::default());
        let seen = || [&c.asked, &c.here, &c.elsewhere].map(|n| n.load(SeqCst));
        put(c.clone());
        assert_eq!(seen(), [0, 0, 1]);
        let bounded = Bounded::by(c.clone());
        put(c.clone());
        assert_eq!((seen(), is_due()), ([1, 0, 1], true));
        run();
        run();
        assert_eq!((seen(), is_due()), ([1, 1, 1], false));
        put(c.clone());
        let away = Away::begin();
        assert_eq!(seen(), [2, 1, 2]);
        put(c.clone());
        assert_eq!(seen(), [2, 1, 3]);
        drop(away);
        put(c.clone());
        assert_eq!(seen(), [3, 1, 3]);
        drop(bounded);
        assert_eq!((seen(), is_due()), ([3, 1, 4], false));
    }
}
