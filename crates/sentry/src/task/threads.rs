//! Host threads for tasks. Making one, with its stack, costs the host a dozen calls; so those of tasks that ended
//! wait for the next.
//!
//! Nothing of a task stays on its host thread: at the top of its loop the stack holds nothing, and no state is kept
//! by thread.

use abi::Result;
use abi::errno::EAGAIN;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// A task's stay on a host thread.
type Stay = Box<dyn FnOnce() + Send>;

/// So many wait at most; their stacks' touched pages are what an idle sandbox pays for them.
const IDLE: usize = 4;
/// A stack: its depth is bounded by the system calls', and untouched pages cost nothing.
const STACK: usize = 512 << 10;

/// The threads that wait.
#[derive(Default)]
pub struct TaskThreads(Arc<Mutex<Vec<Sender<Stay>>>>);

impl TaskThreads {
    /// Runs `f` on a thread of its own. `EAGAIN` where the host gives none.
    pub fn run(&self, f: Stay) -> Result<()> {
        let waiting = self.0.lock().pop();
        match waiting {
            Some(w) => w.send(f).or_else(|back| self.spawn(back.0)),
            None => self.spawn(f),
        }
    }

    fn spawn(&self, f: Stay) -> Result<()> {
        let all = self.0.clone();
        std::thread::Builder::new()
            .name("task".into())
            .stack_size(STACK)
            .spawn(move || {
                let mut f = f;
                loop {
                    f();
                    let (send, receive) = channel();
                    {
                        let mut idle = all.lock();
                        if idle.len() >= IDLE {
                            return;
                        }
                        idle.push(send);
                    }
                    match receive.recv() {
                        Ok(next) => f = next,
                        Err(_) => return,
                    }
                }
            })
            .map(|_| ())
            .map_err(|_| EAGAIN)
    }
}
