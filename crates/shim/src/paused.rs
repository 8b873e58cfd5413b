//! Whether a container is paused: only its runtime knows, which may take its time to tell.
//!
//! # Invariants
//!
//! - What this shim did itself ([`Paused::set`]) is never overwritten by an answer to an older
//!   question.
//! - One question is under way at a time; a caller that comes meanwhile waits for its answer, and
//!   not longer than it may.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a container's programs do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Programs {
    Running,
    Paused,
}

/// What is known.
#[derive(Debug, Default)]
pub struct Paused {
    known: Mutex<Known>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Known {
    paused: bool,
    /// How often it was set.
    changes: u64,
    /// A question is under way.
    asking: bool,
}

impl Paused {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was paused, or is no more.
    pub fn set(&self, state: Programs) {
        let mut k = self.lock();
        k.paused = state == Programs::Paused;
        k.changes += 1;
    }

    /// As `ask` says (`None`: there is no answer); where that takes longer than `patience`, as was
    /// known last.
    pub fn get<A>(self: &Arc<Self>, patience: Duration, ask: A) -> bool
    where
        A: FnOnce() -> Option<bool> + Send + 'static,
    {
        let mut k = self.lock();
        if !k.asking {
            let (own, before) = (Arc::clone(self), k.changes);
            let thread = std::thread::Builder::new().name("status".into());
            let started = thread.spawn(move || {
                let told = ask();
                let mut k = own.lock();
                if let (Some(paused), true) = (told, k.changes == before) {
                    k.paused = paused;
                }
                k.asking = false;
                drop(k);
                own.answered.notify_all();
            });
            k.asking = started.is_ok();
        }
        let waited = self.answered.wait_timeout_while(k, patience, |k| k.asking);
        waited.unwrap_or_else(PoisonError::into_inner).0.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    /// Its answer comes by the channel.
    fn slow(p: &Arc<Paused>) -> (std::sync::mpsc::Sender<Option<bool>>, bool) {
        let (tell, told) = channel();
        let known = p.get(SHORT, move || told.recv().unwrap());
        (tell, known)
    }

    fn answered(p: &Arc<Paused>) -> bool {
        while p.lock().asking {
            std::thread::yield_now();
        }
        p.lock().paused
    }

    #[test]
    fn an_old_answer_does_not_undo_what_was_done_since() {
        let p = Arc::new(Paused::default());
        p.set(Programs::Paused);
        let (tell, known) = slow(&p);
        assert!(known);
        p.set(Programs::Running);
        // A caller now is not told of before.
        assert!(!p.get(SHORT, || unreachable!()));
        tell.send(Some(true)).unwrap();
        assert!(!answered(&p));
        // Paused by somebody else.
        assert!(p.get(LONG, || Some(true)));
    }

    #[test]
    fn no_answer_changes_nothing() {
        let p = Arc::new(Paused::default());
        p.set(Programs::Paused);
        let (tell, _) = slow(&p);
        tell.send(None).unwrap();
        assert!(answered(&p) && p.get(LONG, || None));
    }

    #[test]
    fn who_comes_second_is_answered_too() {
        let p = Arc::new(Paused::default());
        let (tell, known) = slow(&p);
        let own = Arc::clone(&p);
        let second = std::thread::spawn(move || own.get(LONG, || unreachable!()));
        std::thread::sleep(SHORT);
        tell.send(Some(true)).unwrap();
        assert!(!known && second.join().unwrap());
    }
}
