//! A container in the shim, and its processes: the first one and those that `Exec` adds.
//!
//! # Invariants
//!
//! - A process that is `Creating`, `Starting` or `Deleting` belongs to one request. No lock is held
//!   while a helper works: what else comes for the process meanwhile is refused, and its end is
//!   kept until the request is done. So `TaskStart` is always published before `TaskExit`.
//! - The end of a process is published once (`announced`), and every `Wait` is answered then, or
//!   when the process is deleted: whichever comes first.
//! - `TaskExit` of the first process comes after those of the others, which end with it, and
//!   `TaskOOM` never comes after it.
//! - Whether it is paused only the runtime knows: a request that failed may have been done, later.
//! - A start without an answer (a helper that was lost) may have been done. Of a first process the
//!   runtime tells; a program of `Exec` counts as killed, and never is started again.
//! - Events are queued under the container's lock: in the order of what happened.
//! - Lock order: the service's map, then one container.

use crate::events::{Event, Publisher};
use crate::helper::{self, Done, Failed, Work};
use crate::io::{Io, StdioRequest};
use crate::oom;
use crate::paused::{Paused, Programs};
use crate::process::{Exit, Phase, Process};
use crate::reaper::Reaper;
use crate::settings::Settings;
use containerd_shim_protos::events::task::{
    TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskOOM, TaskStart,
};
use containerd_shim_protos::protobuf::MessageField;
use containerd_shim_protos::ttrpc::{self, Code};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How long the end of a container that is deleted may take to be told.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How long the ends of its other programs may take after that of its first.
const EXECS_LIMIT: Duration = Duration::from_secs(5);
/// The exit status of what SIGKILL has ended.
const KILLED: u32 = 128 + 9;

pub fn error(code: Code, text: impl ToString) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(ttrpc::get_status(code, text))
}

pub fn unknown(text: String) -> ttrpc::Error {
    error(Code::UNKNOWN, text)
}

fn not_found(what: &str) -> ttrpc::Error {
    error(Code::NOT_FOUND, format!("{what}: not found"))
}

fn precondition(text: &str) -> ttrpc::Error {
    error(Code::FAILED_PRECONDITION, text)
}

/// What the runtime says, with the code for it.
pub fn failed(f: &oci::Error) -> ttrpc::Error {
    let code = match f.cause() {
        oci::Error::NotFound(_) => Code::NOT_FOUND,
        oci::Error::Exists => Code::ALREADY_EXISTS,
        oci::Error::NotRunning | oci::Error::NoProcess => Code::FAILED_PRECONDITION,
        _ => Code::UNKNOWN,
    };
    error(code, f)
}

fn told(f: &Failed) -> ttrpc::Error {
    match f {
        Failed::Refused(f) => failed(f),
        Failed::Lost(text) => unknown(text.clone()),
    }
}

/// What changes of a container.
#[derive(Debug)]
pub struct State {
    pub init: Process,
    execs: BTreeMap<String, Process>,
    /// The first process has ended, and the others' ends are waited for.
    ending: bool,
    /// They are waited for no longer.
    late: bool,
    /// Tasks inside, at most; 0 for no limit.
    pub pids_limit: u64,
}

impl State {
    /// The first process for the empty name.
    pub fn process(&mut self, exec: &str) -> ttrpc::Result<&mut Process> {
        if exec.is_empty() {
            return Ok(&mut self.init);
        }
        self.execs
            .get_mut(exec)
            .ok_or_else(|| not_found(&format!("process {exec}")))
    }

    /// Those that are there, with their names.
    pub fn running(&self) -> impl Iterator<Item = (&str, u32)> {
        std::iter::once(("", &self.init))
            .chain(self.execs.iter().map(|(n, p)| (n.as_str(), p)))
            .filter(|(_, p)| p.pid != 0 && p.exit.is_none())
            .map(|(n, p)| (n, p.pid))
    }
}

/// A container.
pub struct Container {
    pub id: String,
    pub bundle: PathBuf,
    pub settings: Settings,
    reaper: Arc<Reaper>,
    events: Publisher,
    state: Mutex<State>,
    /// An end was told.
    changed: Condvar,
    memory: OnceLock<Arc<oom::Watch>>,
    /// Numbers for the sockets of consoles.
    consoles: AtomicU64,
    paused: Arc<Paused>,
}

/// containerd's own limit for `State` is 2 s.
const STATE_PATIENCE: Duration = Duration::from_secs(1);

impl Container {
    /// One whose first process is being created.
    pub fn new(
        id: &str,
        bundle: PathBuf,
        settings: Settings,
        stdio: StdioRequest,
        reaper: Arc<Reaper>,
        events: Publisher,
    ) -> Container {
        Container {
            id: id.into(),
            bundle,
            settings,
            reaper,
            events,
            state: Mutex::new(State {
                init: Process::new(stdio, Phase::Creating, None),
                execs: BTreeMap::new(),
                ending: false,
                late: false,
                pids_limit: 0,
            }),
            changed: Condvar::new(),
            memory: OnceLock::new(),
            consoles: AtomicU64::new(0),
            paused: Arc::default(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a helper do something that starts a process.
    fn launch(self: &Arc<Self>, work: Work, io: &Io, exec: &str) -> Result<Done, Failed> {
        let input = io.program_input().map_err(Failed::nothing_done)?;
        helper::call(&self.reaper, &self.settings, work, input, |done| {
            let (own, exec) = (Arc::clone(self), exec.to_owned());
            self.reaper
                .watch(done.pid, Box::new(move |status| own.exited(&exec, status)));
        })
    }

    /// Told by the reaper.
    fn exited(self: &Arc<Self>, exec: &str, status: u32) {
        let mut state = self.lock();
        let Ok(p) = state.process(exec) else { return };
        p.exit.get_or_insert_with(|| Exit::now(status));
        self.conclude(&mut state);
    }

    /// Publishes the ends that are to be published now: none before the request that starts its
    /// process is answered, and the first process's after those of all others, as it takes them
    /// along.
    fn conclude(self: &Arc<Self>, state: &mut State) {
        for (name, p) in &mut state.execs {
            self.announce(p, name);
        }
        let left = !state.late && state.execs.values().any(Process::is_left);
        if state.init.exit.is_some() && left && !state.init.announced {
            self.await_execs(state);
        } else {
            // What has ended it comes first.
            self.look_at_memory(state);
            self.announce(&mut state.init, "");
        }
        self.changed.notify_all();
    }

    fn await_execs(self: &Arc<Self>, state: &mut State) {
        if std::mem::replace(&mut state.ending, true) {
            return;
        }
        let own = Arc::clone(self);
        let thread = std::thread::Builder::new().name("execs".into());
        let started = thread.spawn(move || {
            let waits = |s: &mut State| !s.init.announced && s.execs.values().any(Process::is_left);
            let waited = own
                .changed
                .wait_timeout_while(own.lock(), EXECS_LIMIT, waits);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.late = true;
            own.conclude(&mut state);
        });
        if started.is_err() {
            state.late = true;
            self.look_at_memory(state);
            self.announce(&mut state.init, "");
        }
    }

    /// The end, to all waiters; once.
    fn announce(&self, p: &mut Process, exec: &str) {
        let Some(exit) = p.exit else { return };
        if p.announced || matches!(p.phase, Phase::Creating | Phase::Starting) {
            return;
        }
        p.announced = true;
        if matches!(p.phase, Phase::Created | Phase::Running) {
            p.phase = Phase::Stopped;
        }
        self.events.publish(&TaskExit {
            container_id: self.id.clone(),
            id: if exec.is_empty() {
                self.id.clone()
            } else {
                exec.into()
            },
            pid: p.pid,
            exit_status: exit.status,
            exited_at: MessageField::some(exit.at.into()),
            ..TaskExit::default()
        });
        for w in p.waiters.drain(..) {
            // A waiter that has gone need not know.
            let _ = w.send(exit);
        }
    }

    /// Has what memory does to the container told: the host's, and its own (`own` counts).
    pub fn watch_memory(self: &Arc<Self>, groups: &oci::Cgroups, own: Option<&Path>) {
        let Some(watch) = oom::open(groups, own) else {
            return;
        };
        let _ = self.memory.set(Arc::clone(&watch));
        let container = Arc::downgrade(self);
        watch.attend(move || {
            let Some(c) = container.upgrade() else {
                return false;
            };
            let state = c.lock();
            c.look_at_memory(&state);
            !state.init.announced
        });
    }

    /// Publishes that memory ran out, unless the container's end was published before.
    fn look_at_memory(&self, state: &State) {
        let happened = |w: &Arc<oom::Watch>| w.happened();
        if !state.init.announced && self.memory.get().is_some_and(happened) {
            self.events.publish(&TaskOOM {
                container_id: self.id.clone(),
                ..TaskOOM::default()
            });
        }
    }

    /// The name of a socket in the bundle that no other process's terminal comes by.
    fn console(&self) -> String {
        let n = self.consoles.fetch_add(1, Ordering::Relaxed);
        format!("console-{n}.sock")
    }

    /// The rest of `Create`; `created` publishes. Where it fails, nothing of the container is left.
    pub fn create(self: &Arc<Self>, created: impl FnOnce(&Publisher, u32)) -> ttrpc::Result<u32> {
        let stdio = self.lock().init.stdio.clone();
        let (mut io, program) =
            Io::prepare(&stdio, &self.bundle, &self.console()).map_err(unknown)?;
        let work = Work::Create {
            id: self.id.clone(),
            bundle: self.bundle.clone(),
            program: program.clone(),
        };
        let done = self.launch(work, &io, "").map_err(|e| {
            if let Failed::Lost(_) = e {
                self.clean_up();
            }
            told(&e)
        })?;
        let pid = done.pid as u32;
        {
            let mut state = self.lock();
            state.init.pid = pid;
            state.init.inside = done.inside;
        }
        let kept = Settings {
            pid,
            ..self.settings.clone()
        };
        if let Err(e) = io
            .join_terminal(&program)
            .and_then(|()| kept.save(&self.bundle))
        {
            self.clean_up();
            return Err(unknown(e));
        }
        let mut state = self.lock();
        created(&self.events, pid);
        state.init.join(io);
        state.init.phase = Phase::Created;
        self.conclude(&mut state);
        Ok(pid)
    }

    /// Takes away, by force, what a `Create` that failed has left; not what another's has.
    fn clean_up(&self) {
        if let Err(e) = self.remove(true) {
            crate::log::error(&format!("could not delete {}: {e}", self.id));
        }
    }

    /// What the runtime knows of it; nothing, where the name is another's.
    fn info(&self) -> Option<oci::Info> {
        let info = oci::state(&self.settings.runtime().ok()?, &self.id).ok()?;
        let own = self.bundle.canonicalize().ok();
        (Some(&info.bundle) == own.as_ref()).then_some(info)
    }

    /// After a `Create` that failed: it is no more, for all that have heard of it. Its settings
    /// stay only where it could not be taken away: `delete` finds it by them.
    pub fn abandon(&self) {
        let own = self.bundle.canonicalize().ok();
        let gone = self
            .settings
            .runtime()
            .is_ok_and(|rt| match oci::state(&rt, &self.id) {
                Ok(other) => Some(other.bundle) != own,
                Err(e) => matches!(e.cause(), oci::Error::NotFound(_)),
            });
        if gone {
            Settings::forget(&self.bundle);
        }
        self.lock().init.forget();
    }

    /// To be asked without the lock. Where the runtime takes more time than containerd has, what it
    /// said last.
    pub fn is_paused(self: &Arc<Self>) -> bool {
        if self.lock().init.phase != Phase::Running {
            return false;
        }
        let own = Arc::clone(self);
        self.paused.get(STATE_PATIENCE, move || {
            let info = own.info().filter(|i| !i.is_guessed)?;
            Some(info.status == oci::Status::Paused)
        })
    }

    /// Pauses it, or lets it go on.
    pub fn hold<E: Event>(&self, state: Programs, event: &E) -> ttrpc::Result<()> {
        let rt = self.settings.runtime().map_err(unknown)?;
        let act = match state {
            Programs::Paused => oci::pause,
            Programs::Running => oci::resume,
        };
        act(&rt, &self.id).map_err(|e| failed(&e))?;
        self.paused.set(state);
        self.events.publish(event);
        Ok(())
    }

    /// Has a helper delete the container; its first process, if it was only created, ends.
    fn remove(&self, force: bool) -> Result<(), Failed> {
        let work = Work::Delete {
            id: self.id.clone(),
            bundle: self.bundle.clone(),
            force,
        };
        helper::call(&self.reaper, &self.settings, work, None, |_| {}).map(|_| ())
    }

    pub fn start(self: &Arc<Self>, exec: &str) -> ttrpc::Result<u32> {
        let (stdio, spec) = {
            let mut state = self.lock();
            let there = matches!(state.init.phase, Phase::Running | Phase::Created);
            if !exec.is_empty() && (!there || state.init.exit.is_some()) {
                return Err(precondition("the container does not run"));
            }
            let p = state.process(exec)?;
            if p.phase != Phase::Created {
                return Err(precondition("the process was started before"));
            }
            p.phase = Phase::Starting;
            p.io.iter_mut().for_each(Io::admit);
            (p.stdio.clone(), p.spec.clone())
        };
        let started = match spec {
            None => self.start_init(),
            Some(spec) => self.start_exec(exec, &stdio, spec),
        };
        let started = match started {
            Err(Failed::Lost(text)) if exec.is_empty() => match self.info().map(|i| i.status) {
                None | Some(oci::Status::Creating | oci::Status::Created) => {
                    Err(Failed::Lost(text))
                }
                // It was done; and if it has ended since, that is told.
                Some(_) => Ok(None),
            },
            s => s,
        };
        let mut state = self.lock();
        let p = state.process(exec)?;
        if p.phase == Phase::Deleted {
            return Err(error(Code::NOT_FOUND, "the container was deleted"));
        }
        match started {
            Err(e) => {
                match e {
                    Failed::Lost(_) if !exec.is_empty() => p.lose(Exit::now(KILLED)),
                    _ => p.phase = Phase::Created,
                }
                self.conclude(&mut state);
                Err(told(&e))
            }
            Ok(new) => {
                if let Some((done, io)) = new {
                    (p.pid, p.inside) = (done.pid as u32, done.inside);
                    p.join(io);
                }
                p.io.iter_mut().for_each(Io::running);
                let pid = p.pid;
                if exec.is_empty() {
                    self.events.publish(&TaskStart {
                        container_id: self.id.clone(),
                        pid,
                        ..TaskStart::default()
                    });
                } else {
                    self.events.publish(&TaskExecStarted {
                        container_id: self.id.clone(),
                        exec_id: exec.into(),
                        pid,
                        ..TaskExecStarted::default()
                    });
                }
                p.phase = Phase::Running;
                self.conclude(&mut state);
                Ok(pid)
            }
        }
    }

    fn start_init(&self) -> Result<Option<(Done, Io)>, Failed> {
        let work = Work::Start {
            id: self.id.clone(),
        };
        helper::call(&self.reaper, &self.settings, work, None, |_| {}).map(|_| None)
    }

    fn start_exec(
        self: &Arc<Self>,
        exec: &str,
        stdio: &StdioRequest,
        process: Box<oci::spec::Process>,
    ) -> Result<Option<(Done, Io)>, Failed> {
        let (mut io, program) =
            Io::prepare(stdio, &self.bundle, &self.console()).map_err(Failed::nothing_done)?;
        io.admit();
        let work = Work::Exec {
            id: self.id.clone(),
            process,
            program: program.clone(),
        };
        let done = self.launch(work, &io, exec)?;
        if let Err(e) = io.join_terminal(&program) {
            // Its terminal is gone, and that ends it.
            crate::log::warning(&format!("exec {exec}: {e}"));
        }
        Ok(Some((done, io)))
    }

    /// `Exec`: one more process, to be started.
    pub fn add(
        self: &Arc<Self>,
        exec: &str,
        stdio: StdioRequest,
        spec: oci::spec::Process,
    ) -> ttrpc::Result<()> {
        let paused = self.is_paused();
        let mut state = self.lock();
        if state.execs.contains_key(exec) {
            return Err(error(
                Code::ALREADY_EXISTS,
                format!("process {exec} is there already"),
            ));
        }
        match state.init.phase {
            Phase::Stopped | Phase::Deleting | Phase::Deleted => {
                return Err(precondition("cannot exec in a stopped container"));
            }
            _ if state.init.exit.is_some() => {
                return Err(precondition("cannot exec in a stopped container"));
            }
            _ if paused => return Err(precondition("cannot exec in a paused container")),
            _ => {}
        }
        let p = Process::new(stdio, Phase::Created, Some(Box::new(spec)));
        state.execs.insert(exec.into(), p);
        self.events.publish(&TaskExecAdded {
            container_id: self.id.clone(),
            exec_id: exec.into(),
            ..TaskExecAdded::default()
        });
        Ok(())
    }

    /// Deletes a process that does not run; of the first one, the container. Gives its pid and end.
    pub fn delete(self: &Arc<Self>, exec: &str) -> ttrpc::Result<(u32, Exit)> {
        let mut state = self.lock();
        let p = state.process(exec)?;
        let before = p.phase;
        match before {
            Phase::Created | Phase::Stopped => {}
            Phase::Running => return Err(precondition("cannot delete a running process")),
            Phase::Creating | Phase::Starting => return Err(precondition("the process is busy")),
            Phase::Deleting => return Err(precondition("the process is being deleted")),
            Phase::Deleted => return Err(not_found("the process")),
        }
        if !exec.is_empty() {
            let gone = state.execs.remove(exec);
            drop(state);
            let Some(p) = gone else {
                return Err(not_found(&format!("process {exec}")));
            };
            p.io.into_iter().for_each(Io::finish);
            return Ok((p.pid, p.exit.unwrap_or_else(|| Exit::now(0))));
        }
        p.phase = Phase::Deleting;
        drop(state);
        if let Err(e) = self.remove(false) {
            let mut state = self.lock();
            // It may have ended meanwhile.
            state.init.phase = match state.init.announced {
                true => Phase::Stopped,
                false => before,
            };
            self.conclude(&mut state);
            return Err(told(&e));
        }
        let untold = |s: &mut State| !s.init.announced;
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), END_LIMIT, untold);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        // It was killed, and is gone.
        let exit = *state.init.exit.get_or_insert_with(|| Exit::now(KILLED));
        state.late = true;
        self.conclude(&mut state);
        let (io, pid) = (state.init.io.take(), state.init.pid);
        state.init.forget();
        // Nor are there any others.
        state.execs.values_mut().for_each(Process::forget);
        self.events.publish(&TaskDelete {
            container_id: self.id.clone(),
            pid,
            exit_status: exit.status,
            exited_at: MessageField::some(exit.at.into()),
            ..TaskDelete::default()
        });
        drop(state);
        io.into_iter().for_each(Io::finish);
        Ok((pid, exit))
    }

    /// Waits for the end of a process, however long it takes.
    pub fn wait(&self, exec: &str) -> ttrpc::Result<Exit> {
        let (told, end) = channel();
        {
            let mut state = self.lock();
            let p = state.process(exec)?;
            match p.exit {
                Some(e) if p.announced => return Ok(e),
                _ if p.phase == Phase::Deleted => return Err(not_found("the process")),
                _ => p.waiters.push(told),
            }
        }
        end.recv()
            .map_err(|_| error(Code::NOT_FOUND, "the process was deleted"))
    }

    pub fn kill(&self, exec: &str, signal: u32, scope: oci::Scope) -> ttrpc::Result<()> {
        let signal = i32::try_from(signal).unwrap_or(-1);
        if !(0..=64).contains(&signal) {
            return Err(error(
                Code::INVALID_ARGUMENT,
                format!("{signal} is no signal"),
            ));
        }
        let inside = {
            let mut state = self.lock();
            let p = state.process(exec)?;
            if p.exit.is_some() || p.phase == Phase::Deleted {
                return Err(error(Code::NOT_FOUND, "process already finished"));
            }
            if p.pid == 0 {
                return Err(precondition("the process was not started"));
            }
            p.inside
        };
        let rt = self.settings.runtime().map_err(unknown)?;
        let sent = if exec.is_empty() {
            oci::kill(&rt, &self.id, signal, scope)
        } else {
            oci::kill_process(&rt, &self.id, signal, inside)
        };
        sent.map_err(|e| match e.cause() {
            oci::Error::NotRunning | oci::Error::NoProcess => {
                error(Code::NOT_FOUND, "process already finished")
            }
            _ => failed(&e),
        })
    }
}

#[cfg(test)]
mod tests;
