//! The keyrings of a task.

use crate::Keys;
use crate::key::Serial;
use std::sync::Arc;

/// Holds a key.
#[derive(Debug)]
struct KeyRef {
    keys: Arc<Keys>,
    serial: Serial,
}

impl Drop for KeyRef {
    fn drop(&mut self) {
        self.keys.state.lock().unhold(self.serial);
    }
}

/// A task's hold of a key.
#[derive(Clone, Debug)]
pub struct Handle(Arc<KeyRef>);

impl Handle {
    /// Of a key that was held for it.
    pub(crate) fn of_held(keys: Arc<Keys>, serial: Serial) -> Handle {
        Handle(Arc::new(KeyRef { keys, serial }))
    }
    pub(crate) fn serial(&self) -> Serial {
        self.0.serial
    }
}

/// What another task takes over of a task's keyrings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survives {
    /// To another process, or to another program: the session's alone.
    Session,
    /// To another thread: all but the thread's own.
    Process,
}

/// The keyrings of a task.
#[derive(Debug, Default)]
pub struct Rings {
    pub(crate) thread: Option<Handle>,
    pub(crate) process: Option<Handle>,
    pub(crate) session: Option<Handle>,
    /// Where keys go that are made on request (`KEY_REQKEY_DEFL_*`).
    pub(crate) destination: i32,
}

impl Rings {
    /// Those that another task, or program, begins with.
    #[must_use]
    pub fn inherit(&self, what: Survives) -> Rings {
        let process = match what {
            Survives::Session => None,
            Survives::Process => self.process.clone(),
        };
        Rings {
            thread: None,
            process,
            session: self.session.clone(),
            destination: self.destination,
        }
    }
    /// Whether a new thread gets a keyring of its own, since its maker has one.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.thread.is_some()
    }
    /// The session's keyring, for another task.
    #[must_use]
    pub fn session(&self) -> Option<Handle> {
        self.session.clone()
    }
    /// Another task gave it this session; gives the old one.
    pub fn set_session(&mut self, session: Handle) -> Option<Handle> {
        self.session.replace(session)
    }
}

/// Which of a task's keyrings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskRing {
    Thread,
    Process,
    Session,
}
