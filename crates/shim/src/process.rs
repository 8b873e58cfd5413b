//! One process of a container, as the shim knows it. What changes it is in [`crate::container`].

use crate::io::{Io, StdioRequest};
use std::sync::mpsc::Sender;
use std::time::SystemTime;

/// Where a process is in its life. `Creating`, `Starting` and `Deleting` are those of a request
/// that has not been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Creating,
    Created,
    Starting,
    Running,
    /// It has ended, and that is published.
    Stopped,
    Deleting,
    Deleted,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    pub status: u32,
    pub at: SystemTime,
}

impl Exit {
    pub fn now(status: u32) -> Exit {
        Exit {
            status,
            at: SystemTime::now(),
        }
    }
}

/// One process.
#[derive(Debug)]
pub struct Process {
    /// Its monitor's; 0 before it was started.
    pub pid: u32,
    /// Its own inside.
    pub inside: u32,
    pub stdio: StdioRequest,
    pub phase: Phase,
    pub exit: Option<Exit>,
    pub io: Option<Io>,
    /// `CloseIO` came: maybe before there was an `io`.
    input_over: bool,
    /// What `Exec` asked for.
    pub spec: Option<Box<oci::spec::Process>>,
    /// Its end is published, and nobody waits any more.
    pub announced: bool,
    pub waiters: Vec<Sender<Exit>>,
}

impl Process {
    pub fn new(
        stdio: StdioRequest,
        phase: Phase,
        spec: Option<Box<oci::spec::Process>>,
    ) -> Process {
        Process {
            pid: 0,
            inside: 0,
            stdio,
            phase,
            exit: None,
            io: None,
            input_over: false,
            spec,
            announced: false,
            waiters: Vec::new(),
        }
    }

    /// Whether its end is still to come, or to be published.
    pub fn is_left(&self) -> bool {
        self.phase == Phase::Starting || (self.pid != 0 && !self.announced)
    }

    /// It is no more: a waiter for its end waits in vain, and is told so.
    pub fn forget(&mut self) {
        self.phase = Phase::Deleted;
        self.announced = true;
        self.waiters.clear();
        self.io = None;
    }

    /// Nobody knows what became of it, and nobody will: it counts as ended, without an event, as it
    /// was never told to have started.
    pub fn lose(&mut self, exit: Exit) {
        self.phase = Phase::Stopped;
        self.exit = Some(exit);
        self.announced = true;
        for w in self.waiters.drain(..) {
            // A waiter that has gone need not know.
            let _ = w.send(exit);
        }
    }

    pub fn join(&mut self, mut io: Io) {
        if self.input_over {
            io.close_stdin();
        }
        self.io = Some(io);
    }

    /// `CloseIO`: a client is often done before the request that starts the process is.
    pub fn close_stdin(&mut self) {
        self.input_over = true;
        if let Some(io) = &mut self.io {
            io.close_stdin();
        }
    }
}
