//! The task service: containerd's requests (`containerd.task.v2.Task`), each decoded and handed on.

use crate::bootstrap::{Address, Group};
use crate::container::{Container, error, failed, unknown};
use crate::events::Publisher;
use crate::io::StdioRequest;
use crate::paused::Programs;
use crate::process::Phase;
use crate::reaper::Reaper;
use crate::settings::Settings;
use crate::{metrics, mounts};
use containerd_shim_protos::api::{
    CheckpointTaskRequest, CloseIORequest, ConnectRequest, ConnectResponse, CreateTaskRequest,
    CreateTaskResponse, DeleteRequest, DeleteResponse, Empty, ExecProcessRequest, KillRequest,
    PauseRequest, PidsRequest, PidsResponse, ResizePtyRequest, ResumeRequest, ShutdownRequest,
    StartRequest, StartResponse, StateRequest, StateResponse, StatsRequest, StatsResponse,
    UpdateTaskRequest, WaitRequest, WaitResponse,
};
use containerd_shim_protos::events::task::{TaskCreate, TaskIO, TaskPaused, TaskResumed};
use containerd_shim_protos::protobuf::MessageField;
use containerd_shim_protos::shim::oci::ProcessDetails;
use containerd_shim_protos::ttrpc::{self, Code, TtrpcContext};
use containerd_shim_protos::types::task::{ProcessInfo, Status};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

/// How long a container that was announced by `start` may take to come, before the shim ends
/// without it.
pub const COMING: Duration = Duration::from_secs(10);

/// All containers of this shim: one, or a pod's.
pub struct Service {
    own: Weak<Service>,
    namespace: String,
    reaper: Arc<Reaper>,
    events: Publisher,
    containers: Mutex<All>,
    address: Address,
    /// Ends the shim.
    over: Sender<()>,
}

struct All {
    by_id: BTreeMap<String, Arc<Container>>,
    /// Those that came lately, and when.
    came: BTreeMap<String, SystemTime>,
    /// The shim ends: none can come any more. Set once, with the group's lock held.
    closing: bool,
}

/// How long one that was announced then may still take. (A clock that was set back does not hold it
/// up.)
fn left(announced: SystemTime) -> Option<Duration> {
    let left = (announced + COMING).duration_since(SystemTime::now()).ok();
    left.filter(|l| *l <= COMING)
}

impl All {
    /// A container has come.
    fn note(&mut self, id: &str) {
        self.came.retain(|_, at| left(*at).is_some());
        self.came.insert(id.into(), SystemTime::now());
    }
}

impl Service {
    pub fn new(
        namespace: &str,
        reaper: Arc<Reaper>,
        events: Publisher,
        address: Address,
        over: Sender<()>,
    ) -> Arc<Service> {
        Arc::new_cyclic(|own| Service {
            own: own.clone(),
            namespace: namespace.into(),
            reaper,
            events,
            containers: Mutex::new(All {
                by_id: BTreeMap::new(),
                came: BTreeMap::new(),
                closing: false,
            }),
            address,
            over,
        })
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.containers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn container(&self, id: &str) -> ttrpc::Result<Arc<Container>> {
        let found = self.lock().by_id.get(id).cloned();
        found.ok_or_else(|| error(Code::NOT_FOUND, format!("container {id}: not found")))
    }

    fn create_task(&self, r: &CreateTaskRequest, stdio: StdioRequest) -> ttrpc::Result<u32> {
        // It has come, whatever becomes of it.
        self.lock().note(&r.id);
        let bundle = PathBuf::from(&r.bundle);
        let (spec, _): (oci::spec::Spec, _) = oci::spec::read(&bundle.join("config.json"))
            .map_err(|e| error(Code::INVALID_ARGUMENT, e))?;
        let linux = spec.linux.unwrap_or_default();
        let settings = Settings::new(&r.options, &self.namespace, &bundle, &linux.cgroups_path)
            .map_err(|e| error(Code::INVALID_ARGUMENT, e))?;
        let container = Arc::new(Container::new(
            &r.id,
            bundle.clone(),
            settings.clone(),
            stdio,
            Arc::clone(&self.reaper),
            self.events.clone(),
        ));
        let limit = linux.resources.and_then(|r| r.pids).and_then(|p| p.limit);
        container.lock().pids_limit = limit.and_then(|n| n.try_into().ok()).unwrap_or(0);
        {
            let mut all = self.lock();
            if all.closing {
                return Err(error(Code::UNAVAILABLE, "the shim ends"));
            }
            if all.by_id.contains_key(&r.id) {
                return Err(error(
                    Code::ALREADY_EXISTS,
                    format!("container {} is there already", r.id),
                ));
            }
            all.by_id.insert(r.id.clone(), Arc::clone(&container));
        }
        // From here on the bundle is this container's.
        let rootfs = bundle.join("rootfs");
        let made = settings
            .save(&bundle)
            .and_then(|()| mounts::mount_all(&r.rootfs, &rootfs))
            .map_err(unknown)
            .and_then(|()| {
                container.create(|events, pid| {
                    events.publish(&TaskCreate {
                        container_id: r.id.clone(),
                        bundle: r.bundle.clone(),
                        rootfs: r.rootfs.clone(),
                        io: MessageField::some(TaskIO {
                            stdin: r.stdin.clone(),
                            stdout: r.stdout.clone(),
                            stderr: r.stderr.clone(),
                            terminal: r.terminal,
                            ..TaskIO::default()
                        }),
                        pid,
                        ..TaskCreate::default()
                    });
                })
            });
        let pid = match made {
            Ok(pid) => pid,
            Err(e) => {
                container.abandon();
                // The name is free only when nothing is left of it.
                unmount(&rootfs);
                self.lock().by_id.remove(&r.id);
                return Err(e);
            }
        };
        // Without a record it has been deleted meanwhile.
        if let Ok(rt) = container.settings.runtime()
            && let Ok(groups) = oci::cgroups(&rt, &r.id)
        {
            let own = oci::kills_for_memory(&rt, &r.id).ok();
            container.watch_memory(&groups, own.as_deref());
        }
        Ok(pid)
    }

    /// Ends the shim, unless containers of the group are there or, by `start`'s word, on their way.
    fn close(&self, now: bool) {
        let stays = |all: &All| all.closing || !(now || all.by_id.is_empty());
        // (Taking the lock makes its file anew.)
        if stays(&self.lock()) {
            return;
        }
        // `start` waits meanwhile: it finds this shim as it will stay, or none.
        let group = self.address.lock();
        let announced = group.as_ref().map(Group::announced).unwrap_or_default();
        let coming = {
            let mut all = self.lock();
            if stays(&all) {
                return;
            }
            let left = announced
                .iter()
                .filter(|(id, at)| !now && all.came.get(*id).is_none_or(|came| came < at))
                .filter_map(|(_, at)| left(*at))
                .max();
            all.closing = left.is_none();
            left
        };
        match coming {
            None => {
                self.address.remove();
                drop(group);
                let _ = self.over.send(());
            }
            Some(left) => {
                drop(group);
                let own = self.own.clone();
                let thread = std::thread::Builder::new().name("close".into());
                let started = thread.spawn(move || {
                    std::thread::sleep(left);
                    if let Some(s) = own.upgrade() {
                        s.close(false);
                    }
                });
                if started.is_err() {
                    self.close(true);
                }
            }
        }
    }
}

fn unmount(rootfs: &Path) {
    if let Err(e) = mounts::unmount_all(rootfs) {
        crate::log::error(&e);
    }
}

fn check(words: &[&str]) -> ttrpc::Result<()> {
    let wrong = |e: oci::Error| error(Code::INVALID_ARGUMENT, e);
    words
        .iter()
        .try_for_each(|w| oci::check_id(w).map_err(wrong))
}

impl containerd_shim_protos::Task for Service {
    fn state(&self, _: &TtrpcContext, r: StateRequest) -> ttrpc::Result<StateResponse> {
        let c = self.container(&r.id)?;
        let paused = r.exec_id.is_empty() && c.is_paused();
        let mut state = c.lock();
        let p = state.process(&r.exec_id)?;
        let status = match p.phase {
            // What can be deleted, or is being so, has ended: by itself, or because it never will
            // run.
            Phase::Stopped | Phase::Deleting | Phase::Deleted => Status::STOPPED,
            Phase::Running if paused => Status::PAUSED,
            Phase::Running => Status::RUNNING,
            Phase::Starting if p.exit.is_some() => Status::STOPPED,
            Phase::Creating | Phase::Created | Phase::Starting => Status::CREATED,
        };
        Ok(StateResponse {
            id: r.id,
            bundle: c.bundle.display().to_string(),
            pid: p.pid,
            status: status.into(),
            stdin: p.stdio.stdin.clone(),
            stdout: p.stdio.stdout.clone(),
            stderr: p.stdio.stderr.clone(),
            terminal: p.stdio.terminal,
            exit_status: p.exit.map_or(0, |e| e.status),
            exited_at: p.exit.map(|e| e.at.into()).into(),
            exec_id: r.exec_id,
            ..StateResponse::default()
        })
    }

    fn create(&self, _: &TtrpcContext, r: CreateTaskRequest) -> ttrpc::Result<CreateTaskResponse> {
        check(&[&r.id])?;
        if !Path::new(&r.bundle).is_absolute() {
            return Err(error(
                Code::INVALID_ARGUMENT,
                "the bundle is not an absolute path",
            ));
        }
        if !r.checkpoint.is_empty() {
            return Err(error(
                Code::UNIMPLEMENTED,
                "restoring a checkpoint is not supported",
            ));
        }
        let stdio = StdioRequest {
            terminal: r.terminal,
            stdin: r.stdin.clone(),
            stdout: r.stdout.clone(),
            stderr: r.stderr.clone(),
        };
        let pid = self.create_task(&r, stdio)?;
        Ok(CreateTaskResponse {
            pid,
            ..CreateTaskResponse::default()
        })
    }

    fn start(&self, _: &TtrpcContext, r: StartRequest) -> ttrpc::Result<StartResponse> {
        let pid = self.container(&r.id)?.start(&r.exec_id)?;
        Ok(StartResponse {
            pid,
            ..StartResponse::default()
        })
    }

    fn delete(&self, _: &TtrpcContext, r: DeleteRequest) -> ttrpc::Result<DeleteResponse> {
        let c = self.container(&r.id)?;
        let (pid, exit) = c.delete(&r.exec_id)?;
        if r.exec_id.is_empty() {
            unmount(&c.bundle.join("rootfs"));
            self.lock().by_id.remove(&r.id);
        }
        Ok(DeleteResponse {
            pid,
            exit_status: exit.status,
            exited_at: MessageField::some(exit.at.into()),
            ..DeleteResponse::default()
        })
    }

    fn pids(&self, _: &TtrpcContext, r: PidsRequest) -> ttrpc::Result<PidsResponse> {
        let c = self.container(&r.id)?;
        let state = c.lock();
        let one = |(exec, pid): (&str, u32)| ProcessInfo {
            pid,
            info: (!exec.is_empty())
                .then(|| {
                    crate::events::pack(&ProcessDetails {
                        exec_id: exec.into(),
                        ..ProcessDetails::default()
                    })
                })
                .into(),
            ..ProcessInfo::default()
        };
        Ok(PidsResponse {
            processes: state.running().map(one).collect(),
            ..PidsResponse::default()
        })
    }

    fn pause(&self, _: &TtrpcContext, r: PauseRequest) -> ttrpc::Result<Empty> {
        let event = TaskPaused {
            container_id: r.id.clone(),
            ..TaskPaused::default()
        };
        self.container(&r.id)?.hold(Programs::Paused, &event)?;
        Ok(Empty::default())
    }

    fn resume(&self, _: &TtrpcContext, r: ResumeRequest) -> ttrpc::Result<Empty> {
        let event = TaskResumed {
            container_id: r.id.clone(),
            ..TaskResumed::default()
        };
        self.container(&r.id)?.hold(Programs::Running, &event)?;
        Ok(Empty::default())
    }

    fn checkpoint(&self, _: &TtrpcContext, _: CheckpointTaskRequest) -> ttrpc::Result<Empty> {
        Err(error(Code::UNIMPLEMENTED, "checkpoints are not supported"))
    }

    fn kill(&self, _: &TtrpcContext, r: KillRequest) -> ttrpc::Result<Empty> {
        let scope = if r.all {
            oci::Scope::All
        } else {
            oci::Scope::First
        };
        self.container(&r.id)?.kill(&r.exec_id, r.signal, scope)?;
        Ok(Empty::default())
    }

    fn exec(&self, _: &TtrpcContext, r: ExecProcessRequest) -> ttrpc::Result<Empty> {
        check(&[&r.exec_id])?;
        let c = self.container(&r.id)?;
        let mut spec: oci::spec::Process = serde_json::from_slice(&r.spec.value).map_err(|e| {
            error(
                Code::INVALID_ARGUMENT,
                format!("the process is not understood: {e}"),
            )
        })?;
        spec.terminal = r.terminal;
        let stdio = StdioRequest {
            terminal: r.terminal,
            stdin: r.stdin,
            stdout: r.stdout,
            stderr: r.stderr,
        };
        c.add(&r.exec_id, stdio, spec)?;
        Ok(Empty::default())
    }

    fn resize_pty(&self, _: &TtrpcContext, r: ResizePtyRequest) -> ttrpc::Result<Empty> {
        let c = self.container(&r.id)?;
        let size = |n: u32| {
            u16::try_from(n).map_err(|_| error(Code::INVALID_ARGUMENT, format!("{n} is no size")))
        };
        let (rows, cols) = (size(r.height)?, size(r.width)?);
        let mut state = c.lock();
        if let Some(io) = &state.process(&r.exec_id)?.io {
            io.resize(rows, cols).map_err(unknown)?;
        }
        Ok(Empty::default())
    }

    fn close_io(&self, _: &TtrpcContext, r: CloseIORequest) -> ttrpc::Result<Empty> {
        let c = self.container(&r.id)?;
        let mut state = c.lock();
        let p = state.process(&r.exec_id)?;
        if r.stdin {
            p.close_stdin();
        }
        Ok(Empty::default())
    }

    fn update(&self, _: &TtrpcContext, r: UpdateTaskRequest) -> ttrpc::Result<Empty> {
        let c = self.container(&r.id)?;
        let resources: oci::spec::Resources =
            serde_json::from_slice(&r.resources.value).map_err(|e| {
                error(
                    Code::INVALID_ARGUMENT,
                    format!("the resources are not understood: {e}"),
                )
            })?;
        let rt = c.settings.runtime().map_err(unknown)?;
        for w in oci::update(&rt, &c.id, &resources).map_err(|e| failed(&e))? {
            rt.log.warning(&w);
        }
        if let Some(n) = resources.pids.and_then(|p| p.limit) {
            c.lock().pids_limit = n.try_into().unwrap_or(0);
        }
        Ok(Empty::default())
    }

    fn wait(&self, _: &TtrpcContext, r: WaitRequest) -> ttrpc::Result<WaitResponse> {
        let exit = self.container(&r.id)?.wait(&r.exec_id)?;
        Ok(WaitResponse {
            exit_status: exit.status,
            exited_at: MessageField::some(exit.at.into()),
            ..WaitResponse::default()
        })
    }

    fn stats(&self, _: &TtrpcContext, r: StatsRequest) -> ttrpc::Result<StatsResponse> {
        let c = self.container(&r.id)?;
        let rt = c.settings.runtime().map_err(unknown)?;
        let groups = oci::cgroups(&rt, &c.id).map_err(|e| failed(&e))?;
        // What has ended has no tasks.
        let tasks = oci::ps(&rt, &c.id).map_or(0, |p| p.census.threads);
        let limit = c.lock().pids_limit;
        Ok(StatsResponse {
            stats: MessageField::some(metrics::of(&groups, (tasks, limit))),
            ..StatsResponse::default()
        })
    }

    fn connect(&self, _: &TtrpcContext, r: ConnectRequest) -> ttrpc::Result<ConnectResponse> {
        let pid = match self.container(&r.id) {
            Ok(c) => c.lock().init.pid,
            Err(_) => 0,
        };
        Ok(ConnectResponse {
            shim_pid: std::process::id(),
            task_pid: pid,
            version: env!("CARGO_PKG_VERSION").into(),
            ..ConnectResponse::default()
        })
    }

    fn shutdown(&self, _: &TtrpcContext, r: ShutdownRequest) -> ttrpc::Result<Empty> {
        // Other containers of the pod may go on.
        self.close(r.now);
        Ok(Empty::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_name_and_an_end_come_once() {
        let dir = std::env::temp_dir().join(format!("shim-service-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("s")).unwrap();
        std::fs::write(dir.join("config.json"), r#"{"ociVersion":"1.0.2"}"#).unwrap();
        let (over, end) = channel();
        let address = Address::at(dir.join("s/s"));
        let s = Service::new(
            "ns",
            Arc::default(),
            Publisher::kept(),
            address.clone(),
            over,
        );
        let settings = Settings {
            pid: 77,
            ..Settings::default()
        };
        settings.save(&dir).unwrap();
        let there = Container::new(
            "c",
            dir.clone(),
            settings.clone(),
            StdioRequest::default(),
            Arc::default(),
            Publisher::kept(),
        );
        s.lock().by_id.insert("c".into(), Arc::new(there));
        let code = |id: &str| {
            let r = CreateTaskRequest {
                id: id.into(),
                bundle: dir.display().to_string(),
                ..CreateTaskRequest::default()
            };
            match s.create_task(&r, StdioRequest::default()) {
                Err(ttrpc::Error::RpcStatus(s)) => s.code(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(code("c"), Code::ALREADY_EXISTS);
        // The bundle is still the first one's.
        assert_eq!(Settings::load(&dir).unwrap().unwrap(), settings);
        // While it is there, the shim stays; then it ends, once, and takes no more.
        s.close(false);
        assert!(end.try_recv().is_err());
        s.lock().by_id.clear();
        std::fs::write(dir.join("s/s"), "").unwrap();
        s.close(false);
        s.close(true);
        assert!(end.try_recv().is_ok() && end.try_recv().is_err());
        assert_eq!(std::fs::read_dir(dir.join("s")).unwrap().count(), 0);
        assert_eq!(code("d"), Code::UNAVAILABLE);
        assert_eq!(Settings::load(&dir).unwrap().unwrap(), settings);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_announced_is_waited_for() {
        let dir = std::env::temp_dir().join(format!("shim-coming-{}", std::process::id()));
        let (over, end) = channel();
        let address = Address::at(dir.join("s"));
        let s = Service::new(
            "ns",
            Arc::default(),
            Publisher::kept(),
            address.clone(),
            over,
        );
        address.lock().unwrap().announce("a");
        address.lock().unwrap().announce("b");
        s.close(false);
        assert!(end.try_recv().is_err() && !s.lock().closing);
        // One has come, the other has not.
        s.lock().note("a");
        s.close(false);
        assert!(end.try_recv().is_err() && !s.lock().closing);
        s.close(true);
        assert!(end.try_recv().is_ok());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
