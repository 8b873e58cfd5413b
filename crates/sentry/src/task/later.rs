//! Who does what is put off until no lock is held ([`wait::later`]): a task at its boundary, and
//! for threads that have none a service thread.

use super::Task;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use wait::later::{Boundary, Later};

/// Does what no task does: a thread from the first on.
#[derive(Default)]
pub struct Service(Mutex<Option<Sender<Arc<dyn Later>>>>);

impl Service {
    /// Has it done; false where the host gives no thread for that.
    pub fn send(&self, l: Arc<dyn Later>) -> bool {
        let mut service = self.0.lock();
        if service.is_none() {
            *service = start();
        }
        service.as_ref().is_some_and(|s| s.send(l).is_ok())
    }
}

fn start() -> Option<Sender<Arc<dyn Later>>> {
    const STACK: usize = 256 << 10;
    let (sender, todo) = channel::<Arc<dyn Later>>();
    let made = std::thread::Builder::new()
        .name("later".into())
        .stack_size(STACK)
        .spawn(move || todo.iter().for_each(|l| l.run()));
    made.ok().map(|_| sender)
}

impl Boundary for Task {
    fn ask(&self) {
        self.attention.store(true, Ordering::SeqCst);
    }
}
