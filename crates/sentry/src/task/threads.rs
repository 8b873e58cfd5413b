//! Host threads for tasks. Making one, with its stack, costs the host a dozen calls; so those of
//! tasks that ended wait for the next, for a while.
//!
//! Nothing of a task stays on its host thread: at the top of its loop the stack holds nothing, and
//! no state is kept by thread. What the host counts by thread is CPU time: `TaskCpu` notes where
//! its own begins.

use abi::Result;
use abi::errno::EAGAIN;
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A task's stay on a host thread.
type Stay = Box<dyn FnOnce() + Send>;

/// So many wait at most; their stacks' touched pages are what an idle sandbox pays for them.
const IDLE: usize = 4;
/// And so long.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// A stack: its depth is bounded by the system calls', and untouched pages cost nothing. (The C
/// library keeps 40 MB of stacks of threads that have ended, with some pages of each: the larger
/// they are, the fewer.)
const STACK: usize = 1 << 20;

/// The threads that wait. Dropped, it lets them end.
#[derive(Default)]
pub struct TaskThreads(Arc<Idle>);

type Idle = Mutex<Vec<(std::thread::ThreadId, Sender<Stay>)>>;

impl TaskThreads {
    /// Runs `f` on a thread of its own. `EAGAIN` where the host gives none.
    pub fn run(&self, f: Stay) -> Result<()> {
        let waiting = self.0.lock().pop();
        match waiting {
            Some((_, w)) => w.send(f).or_else(|back| self.spawn(back.0)),
            None => self.spawn(f),
        }
    }

    fn spawn(&self, f: Stay) -> Result<()> {
        let all = Arc::downgrade(&self.0);
        std::thread::Builder::new()
            .name("task".into())
            .stack_size(STACK)
            .spawn(move || {
                let mut f = f;
                loop {
                    f();
                    match next(&all) {
                        Some(next) => f = next,
                        None => return,
                    }
                }
            })
            .map(|_| ())
            .map_err(|_| EAGAIN)
    }
}

/// Waits for another task; `None` where the thread is to end.
fn next(all: &Weak<Idle>) -> Option<Stay> {
    let me = std::thread::current().id();
    let receive = wait_among(all, me)?;
    match receive.recv_timeout(IDLE_MAX) {
        Ok(f) => return Some(f),
        Err(RecvTimeoutError::Disconnected) => return None,
        Err(RecvTimeoutError::Timeout) => {}
    }
    {
        let all = all.upgrade()?;
        let mut idle = all.lock();
        let at = idle.iter().position(|(id, _)| *id == me);
        if let Some(at) = at {
            idle.remove(at);
            return None;
        }
    }
    // Somebody has just chosen this one.
    receive.recv().ok()
}

fn wait_among(all: &Weak<Idle>, me: std::thread::ThreadId) -> Option<Receiver<Stay>> {
    let all = all.upgrade()?;
    let mut idle = all.lock();
    if idle.len() >= IDLE {
        return None;
    }
    let (send, receive) = channel();
    idle.push((me, send));
    drop(idle);
    Some(receive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{ThreadId, current, sleep};

    fn ids(t: &TaskThreads) -> (ThreadId, usize) {
        let (tell, told) = channel();
        t.run(Box::new(move || tell.send(current().id()).unwrap()))
            .unwrap();
        let id = told.recv().unwrap();
        // Until it waits.
        while !t.0.lock().iter().any(|w| w.0 == id) {
            sleep(Duration::from_millis(1));
        }
        (id, t.0.lock().len())
    }

    #[test]
    fn threads_serve_again_and_end_with_the_kernel() {
        let t = TaskThreads::default();
        let first = ids(&t);
        assert_eq!(first.1, 1);
        assert_eq!(ids(&t), first);
        let all = Arc::downgrade(&t.0);
        drop(t);
        // The thread that waits does not hold it.
        assert!(all.upgrade().is_none());
    }
}
