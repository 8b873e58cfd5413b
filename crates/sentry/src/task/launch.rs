//! Tasks that are made from outside, and run when they are told to.

use super::{Task, clone};
use abi::{AltStack, Result};
use platform::AppThread;
use std::sync::Arc;

/// A program that is ready to run. Dropped unstarted, it leaves nothing behind.
pub struct Launch {
    task: Unready,
    /// `None` once it is started.
    thread: Option<Box<dyn AppThread>>,
}

impl Launch {
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.task.get().tid
    }
    /// Runs it.
    pub fn start(mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        clone::start(self.task.get().clone(), thread, AltStack::FIRST)?;
        self.task.0 = None;
        Ok(())
    }
}

/// A task in the list that has no program yet. Dropped, it leaves the list.
pub struct Unready(Option<Arc<Task>>);

impl Unready {
    #[must_use]
    pub fn new(task: &Arc<Task>) -> Unready {
        Unready(Some(task.clone()))
    }
    /// It has one, at whose first instruction the thread stands.
    #[must_use]
    pub fn ready(self, thread: Box<dyn AppThread>) -> Launch {
        Launch {
            task: self,
            thread: Some(thread),
        }
    }
    fn get(&self) -> &Arc<Task> {
        self.0.as_ref().expect("until it is started")
    }
}

impl Drop for Unready {
    fn drop(&mut self) {
        let Some(task) = self.0.take() else { return };
        drop(task.take_files());
        let mut l = task.kernel.tasks.lock();
        l.remove_task(&task);
        task.group.container.forget_first(task.tid);
        let gone = l.reap(task.tid);
        drop(l);
        drop(gone);
    }
}
