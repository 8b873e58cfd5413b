//! A container in the shim, and its processes: the first one and those that `Exec` adds.
//!
//! # Invariants
//!
//! - A process that is `Busy` belongs to one request. No lock is held while a helper works: what else comes
//!   for the process meanwhile is refused, and its end is kept until the request is done. So `TaskStart` is
//!   always published before `TaskExit`.
//! - Events are queued under the container's lock: in the order of what happened.
//! - Lock order: the service's map, then one container.

use crate::events::Publisher;
use crate::helper::{self, Done, Work};
use crate::io::{Io, Stdio};
use crate::reaper::Reaper;
use crate::settings::Settings;
use containerd_shim_protos::events::task::{
    TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskStart,
};
use containerd_shim_protos::protobuf::MessageField;
use containerd_shim_protos::ttrpc::{self, Code};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the end of a container that was deleted before it started may take to be told.
const END_LIMIT: Duration = Duration::from_secs(10);

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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Created,
    Busy,
    Running,
    Stopped,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    pub status: u32,
    pub at: SystemTime,
}

/// One process.
#[derive(Debug)]
pub struct Process {
    /// Its monitor's; 0 before it was started.
    pub pid: u32,
    /// Its own inside.
    pub inside: u32,
    pub stdio: Stdio,
    pub phase: Phase,
    pub exit: Option<Exit>,
    pub io: Option<Io>,
    /// `CloseIO` came: maybe before there was an `io`.
    input_over: bool,
    /// What `Exec` asked for.
    spec: Option<Box<oci::spec::Process>>,
    waiters: Vec<Sender<Exit>>,
}

impl Process {
    fn new(stdio: Stdio, phase: Phase, spec: Option<Box<oci::spec::Process>>) -> Process {
        Process {
            pid: 0,
            inside: 0,
            stdio,
            phase,
            exit: None,
            io: None,
            input_over: false,
            spec,
            waiters: Vec::new(),
        }
    }

    fn join(&mut self, mut io: Io) {
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

/// What changes of a container.
#[derive(Debug)]
pub struct State {
    pub init: Process,
    execs: BTreeMap<String, Process>,
    pub paused: bool,
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
    changed: Condvar,
}

impl Container {
    /// One whose first process is being created.
    pub fn new(
        id: &str,
        bundle: PathBuf,
        settings: Settings,
        stdio: Stdio,
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
                init: Process::new(stdio, Phase::Busy, None),
                execs: BTreeMap::new(),
                paused: false,
                pids_limit: 0,
            }),
            changed: Condvar::new(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a helper do something that starts a process.
    fn launch(self: &Arc<Self>, work: Work, io: &Io, exec: &str) -> Result<Done, String> {
        let input = io.program_input()?;
        helper::call(&self.reaper, &self.settings, work, input, |done| {
            let (own, exec) = (Arc::clone(self), exec.to_owned());
            self.reaper
                .watch(done.pid, Box::new(move |status| own.exited(&exec, status)));
        })
    }

    /// Told by the reaper.
    fn exited(&self, exec: &str, status: u32) {
        let mut state = self.lock();
        let Ok(p) = state.process(exec) else { return };
        p.exit = Some(Exit {
            status,
            at: SystemTime::now(),
        });
        if p.phase != Phase::Busy {
            self.announce(p, exec);
        }
        self.changed.notify_all();
    }

    /// The end, to all who wait.
    fn announce(&self, p: &mut Process, exec: &str) {
        let Some(exit) = p.exit else { return };
        p.phase = Phase::Stopped;
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
            // Who no longer waits need not know.
            let _ = w.send(exit);
        }
    }

    /// Ends a request: the process is in `phase`, unless it has ended meanwhile.
    fn settle(&self, p: &mut Process, exec: &str, phase: Phase) {
        p.phase = phase;
        if p.exit.is_some() {
            self.announce(p, exec);
        }
    }

    /// The rest of `Create`; `created` publishes.
    pub fn create(self: &Arc<Self>, created: impl FnOnce(&Publisher, u32)) -> Result<u32, String> {
        let stdio = self.lock().init.stdio.clone();
        let (mut io, program) = Io::prepare(&stdio, &self.bundle, "pty.sock")?;
        let work = Work::Create {
            id: self.id.clone(),
            bundle: self.bundle.clone(),
            program: program.clone(),
        };
        let done = self.launch(work, &io, "")?;
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
        let ready = io.settle(&program).and_then(|()| kept.save(&self.bundle));
        if let Err(e) = ready {
            self.remove()?;
            return Err(e);
        }
        let mut state = self.lock();
        created(&self.events, pid);
        state.init.join(io);
        self.settle(&mut state.init, "", Phase::Created);
        Ok(pid)
    }

    /// Has a helper delete the container; its first process, if it was only created, ends.
    fn remove(&self) -> Result<(), String> {
        let work = Work::Delete {
            id: self.id.clone(),
        };
        helper::call(&self.reaper, &self.settings, work, None, |_| {}).map(|_| ())
    }

    pub fn start(self: &Arc<Self>, exec: &str) -> ttrpc::Result<u32> {
        let (stdio, spec) = {
            let mut state = self.lock();
            if !exec.is_empty() && !matches!(state.init.phase, Phase::Running | Phase::Created) {
                return Err(precondition("the container does not run"));
            }
            let p = state.process(exec)?;
            if p.phase != Phase::Created {
                return Err(precondition("the process was started before"));
            }
            p.phase = Phase::Busy;
            p.io.iter_mut().for_each(Io::admit);
            (p.stdio.clone(), p.spec.clone())
        };
        let started = match spec {
            None => self.start_init(),
            Some(spec) => self.start_exec(exec, &stdio, spec),
        };
        let mut state = self.lock();
        let p = state.process(exec)?;
        match started {
            Err(e) => {
                self.settle(p, exec, Phase::Created);
                Err(unknown(e))
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
                self.settle(p, exec, Phase::Running);
                Ok(pid)
            }
        }
    }

    fn start_init(&self) -> Result<Option<(Done, Io)>, String> {
        let work = Work::Start {
            id: self.id.clone(),
        };
        helper::call(&self.reaper, &self.settings, work, None, |_| {}).map(|_| None)
    }

    fn start_exec(
        self: &Arc<Self>,
        exec: &str,
        stdio: &Stdio,
        process: Box<oci::spec::Process>,
    ) -> Result<Option<(Done, Io)>, String> {
        let (mut io, program) = Io::prepare(stdio, &self.bundle, &format!("{exec:.64}.sock"))?;
        io.admit();
        let work = Work::Exec {
            id: self.id.clone(),
            process,
            program: program.clone(),
        };
        let done = self.launch(work, &io, exec)?;
        if let Err(e) = io.settle(&program) {
            // Its terminal is gone, and that ends it.
            crate::log::warning(&format!("exec {exec}: {e}"));
        }
        Ok(Some((done, io)))
    }

    /// `Exec`: one more process, to be started.
    pub fn add(&self, exec: &str, stdio: Stdio, spec: oci::spec::Process) -> ttrpc::Result<()> {
        let mut state = self.lock();
        if state.execs.contains_key(exec) {
            return Err(error(
                Code::ALREADY_EXISTS,
                format!("process {exec} is there already"),
            ));
        }
        match state.init.phase {
            Phase::Stopped => return Err(precondition("cannot exec in a stopped container")),
            _ if state.paused => return Err(precondition("cannot exec in a paused container")),
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
    pub fn delete(&self, exec: &str) -> ttrpc::Result<(u32, Exit)> {
        let before = {
            let mut state = self.lock();
            let p = state.process(exec)?;
            match p.phase {
                Phase::Created | Phase::Stopped => std::mem::replace(&mut p.phase, Phase::Busy),
                Phase::Running => return Err(precondition("cannot delete a running process")),
                Phase::Busy => return Err(precondition("the process is busy")),
            }
        };
        if exec.is_empty()
            && let Err(e) = self.remove()
        {
            let mut state = self.lock();
            self.settle(&mut state.init, "", before);
            return Err(unknown(e));
        }
        let mut state = self.lock();
        let never = Exit {
            status: 0,
            at: SystemTime::now(),
        };
        if exec.is_empty() {
            let ended = |s: &mut State| s.init.exit.is_none();
            let waited = self.changed.wait_timeout_while(state, END_LIMIT, ended);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if before == Phase::Created {
                self.announce(&mut state.init, "");
            }
            state.init.phase = Phase::Stopped;
            let (io, pid) = (state.init.io.take(), state.init.pid);
            let exit = state.init.exit.unwrap_or(never);
            self.events.publish(&TaskDelete {
                container_id: self.id.clone(),
                pid,
                exit_status: exit.status,
                exited_at: MessageField::some(exit.at.into()),
                ..TaskDelete::default()
            });
            drop(state);
            io.into_iter().for_each(Io::finish);
            return Ok((pid, exit));
        }
        let gone = state.execs.remove(exec);
        drop(state);
        let Some(p) = gone else {
            return Err(not_found(&format!("process {exec}")));
        };
        p.io.into_iter().for_each(Io::finish);
        Ok((p.pid, p.exit.unwrap_or(never)))
    }

    pub fn wait(&self, exec: &str) -> ttrpc::Result<Exit> {
        let (told, end) = channel();
        {
            let mut state = self.lock();
            let p = state.process(exec)?;
            match p.exit {
                Some(e) if p.phase == Phase::Stopped => return Ok(e),
                _ => p.waiters.push(told),
            }
        }
        end.recv().map_err(|_| not_found("the process was deleted"))
    }

    pub fn kill(&self, exec: &str, signal: u32, all: bool) -> ttrpc::Result<()> {
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
            if p.exit.is_some() || p.phase == Phase::Stopped {
                return Err(not_found("process already finished"));
            }
            if p.pid == 0 {
                return Err(precondition("the process was not started"));
            }
            p.inside
        };
        let rt = self.settings.runtime().map_err(unknown)?;
        let sent = if exec.is_empty() {
            oci::kill(&rt, &self.id, signal, all)
        } else {
            oci::kill_process(&rt, &self.id, signal, inside)
        };
        sent.map_err(|e| match e.0.as_str() {
            "container not running" | "no such process" => not_found("process already finished"),
            _ => unknown(e.0),
        })
    }
}
