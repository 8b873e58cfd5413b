//! The children of the shim: its helpers, and what they leave behind, since it is the subreaper of
//! all.
//!
//! One thread waits for any child. Nothing else in the process may wait for one: it would never
//! learn. So whatever runs programs and waits for them (hooks) is done by a helper.
//!
//! A process is reaped with the lock held, and taken out of the list under the same lock: until
//! then its number cannot be another's, so that a listener is told of the process that was meant.
//!
//! While a helper is at work, the ends of those that nobody watches are kept: it may be killed
//! after it has told of a monitor that it started, and the monitor end before it is watched.

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions};
use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type OnExit = Box<dyn FnOnce(u32) + Send>;

/// The listeners, by the process whose end they are told.
#[derive(Default)]
pub struct Reaper {
    state: Mutex<State>,
    spawned: Condvar,
}

#[derive(Default)]
struct State {
    watched: BTreeMap<i32, OnExit>,
    /// Children started, to wake the thread when there was none.
    count: u64,
    /// Calls of helpers under way.
    calls: usize,
    /// The exit status of what ended meanwhile, and nobody watched.
    ends: BTreeMap<i32, u32>,
}

/// A helper's call: as long as it lasts, a process that has ended can still be watched.
pub struct Call<'a>(&'a Reaper);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.calls -= 1;
        if state.calls == 0 {
            state.ends.clear();
        }
    }
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

    /// To be made before the helper is started.
    pub fn call(&self) -> Call<'_> {
        self.lock().calls += 1;
        Call(self)
    }

    /// `told` gets the exit status, as a shell has it, once. The process is one that was started in
    /// a call that lasts.
    pub fn watch(&self, pid: i32, told: OnExit) {
        let mut state = self.lock();
        // One that is there is not the one of that number which has ended.
        let ended = match state.ends.remove(&pid) {
            Some(code) if !is_there(pid) => Some(code),
            _ => None,
        };
        match ended {
            Some(code) => {
                drop(state);
                told(code);
            }
            None => {
                state.watched.insert(pid, told);
            }
        }
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
            let pid = pid.as_raw_nonzero().get();
            let told = state.watched.remove(&pid);
            if told.is_none() && state.calls > 0 {
                state.ends.insert(pid, code);
            }
            (code, told)
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

fn is_there(pid: i32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid);
    pid.is_some_and(|p| rustix::process::test_kill_process(p) != Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn who_has_ended_before_it_is_watched_is_told_of() {
        let reaper = Reaper::start().unwrap();
        let call = reaper.call();
        let start = |script: &str| {
            let mut c = Command::new("sh");
            reaper.spawn(c.args(["-c", script])).unwrap().id() as i32
        };
        let watched = |pid: i32| {
            let (tell, told) = channel();
            reaper.watch(pid, Box::new(move |code| tell.send(code).unwrap()));
            told.recv_timeout(LONG)
        };
        let (early, late) = (start("exit 5"), start("sleep 0.2; exit 6"));
        while is_there(early) {
            std::thread::yield_now();
        }
        assert_eq!((watched(early), watched(late)), (Ok(5), Ok(6)));
        let never = start("exit 7");
        while is_there(never) {
            std::thread::yield_now();
        }
        drop(call);
        assert!(reaper.lock().ends.is_empty() && reaper.lock().watched.is_empty());
    }
}
