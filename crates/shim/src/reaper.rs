//! The children of the shim: its helpers, and what they leave behind, since it is the subreaper of all.
//!
//! One thread waits for any child. Nothing else in the process may wait for one: it would never learn. So
//! whatever runs programs and waits for them (hooks) is done by a helper.
//!
//! A process is reaped with the lock held, and taken out of the list under the same lock: until then its number
//! cannot be another's, so that who is told is told of the process that was meant.

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions};
use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Told = Box<dyn FnOnce(u32) + Send>;

/// Who is told of whose end.
#[derive(Default)]
pub struct Reaper {
    state: Mutex<State>,
    spawned: Condvar,
}

#[derive(Default)]
struct State {
    watched: BTreeMap<i32, Told>,
    /// Children started, to wake the thread when there was none.
    count: u64,
}

impl Reaper {
    /// Makes this process a subreaper, and starts the thread.
    pub fn start() -> std::io::Result<Arc<Reaper>> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let r = Arc::new(Reaper::default());
        let own = Arc::clone(&r);
        std::thread::Builder::new()
            .name("reaper".into())
            .spawn(move || own.run())?;
        Ok(r)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn spawn(&self, c: &mut Command) -> std::io::Result<Child> {
        let child = c.spawn()?;
        self.lock().count += 1;
        self.spawned.notify_all();
        Ok(child)
    }

    /// `told` gets the exit status, as a shell has it, once. The process must not have been reaped before: its
    /// parent, which is not this process yet, is alive.
    pub fn watch(&self, pid: i32, told: Told) {
        self.lock().watched.insert(pid, told);
    }

    /// One that has ended.
    fn reap(&self) {
        let (code, told) = {
            let mut state = self.lock();
            let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) else {
                return;
            };
            let code = match (status.exit_status(), status.terminating_signal()) {
                (Some(c), _) => c as u32,
                (_, Some(s)) => 128 + s as u32,
                _ => return,
            };
            (code, state.watched.remove(&pid.as_raw_nonzero().get()))
        };
        if let Some(told) = told {
            told(code);
        }
    }

    fn run(&self) {
        loop {
            let seen = self.lock().count;
            // Only looks: the process stays a zombie, with its number.
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            match rustix::process::waitid(WaitId::All, ended) {
                Ok(_) => self.reap(),
                Err(Errno::INTR) => {}
                // No child: and what has none gets none but by starting it.
                Err(_) => {
                    let mut state = self.lock();
                    while state.count == seen {
                        state = self
                            .spawned
                            .wait(state)
                            .unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        }
    }
}
