//! The one way to start: from a plan, which a bundle or the options of `cloister do` have made, to
//! a container's processes.

use crate::convert::Pod;
use crate::error::Tried;
use crate::state::Dir;
use crate::{Error, Result, client, files};
use config::{
    Config, ContainerSpec, Devices, ExecSpec, JoinSpec, Net, PlatformKind, ProcessSpec, Stdio,
    TraceConfig, limits,
};
use gofer::server::{Root, Server, Writable};
use hostcall::{HostFd, RawFd};
use net::devices::Gate;
use sandbox::devices::Link;
use sandbox::{
    Access, Away, Broker, GoferSide, HandOver, JoinSide, Kernel, Outside, RootSpec, Running,
    SentryMain, SentrySide, Spec,
};
use std::convert::Infallible;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

/// What is to be started.
#[derive(Debug)]
pub struct Plan {
    /// The Gofer's roots, in their order.
    pub roots: Vec<RootSpec>,
    pub container: ContainerSpec,
    pub init: ProcessSpec,
    /// Where sockets lead.
    pub network: Outside,
}

/// How a kernel runs programs.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    pub platform: PlatformKind,
    pub lanes: platform::Lanes,
    /// System calls to write down: names and classes, all where there are none; `None` for none.
    pub strace: Option<Vec<String>>,
    /// 0 for errors, up to 3.
    pub verbosity: u8,
    /// For testing: drops a random host mapping at every Nth memory operation, and has swap refuse
    /// every Nth page; 0 never.
    pub debug_drop: u32,
}

/// When the first program begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begins {
    AtOnce,
    /// On [`config::control::ToSentry::Start`].
    WhenTold,
}

/// The sandbox that the container gets.
pub enum Place<'a> {
    /// One of its own. `away` is what [`sandbox::go_ahead`] gave, if it was asked before.
    Own { away: Option<Away> },
    /// That of a pod; its kernel is there already.
    Pod(Member<'a>),
}

/// A container that joins a pod's sandbox.
pub struct Member<'a> {
    pub(crate) pod: Pod,
    /// Of the pod's first container.
    pub(crate) first: Dir,
    pub(crate) own: &'a Dir,
}

/// The descriptors that the Sentry gets. Numbers are this process's, which keeps its copies.
#[derive(Debug, Default)]
pub struct SentryFds {
    pub stdio: Stdio<RawFd>,
    /// Where traces go: standard error if there is none.
    pub log: Option<File>,
    /// The file for the root's changes.
    pub layer: Option<OwnedFd>,
    /// The file for the sandbox's swap.
    pub swap: Option<OwnedFd>,
    /// The first program's 3 and up.
    pub preserved: Vec<RawFd>,
}

impl SentryFds {
    /// As the Sentry of a sandbox of its own gets them.
    fn all(&self) -> Vec<RawFd> {
        let mut fds: Vec<RawFd> = self.stdio.descriptors().collect();
        fds.extend(self.log.as_ref().map(AsRawFd::as_raw_fd));
        fds.extend(self.layer.as_ref().map(AsRawFd::as_raw_fd));
        fds.extend(self.swap.as_ref().map(AsRawFd::as_raw_fd));
        fds.extend(&self.preserved);
        fds
    }

    /// As a sandbox that is joined gets them.
    fn for_pod(&self) -> Vec<RawFd> {
        let mut fds: Vec<RawFd> = self.layer.iter().map(AsRawFd::as_raw_fd).collect();
        fds.extend(self.stdio.descriptors());
        fds.extend(&self.preserved);
        fds
    }
}

/// All that a start needs.
pub struct Start<'a> {
    pub plan: Plan,
    /// Of no effect in a [`Place::Pod`].
    pub kernel: &'a KernelOptions,
    pub given: &'a SentryFds,
    pub begins: Begins,
    pub place: Place<'a>,
}

/// Starts the container's processes.
///
/// # Errors
///
/// Why there is none; nothing is left of it then.
pub fn start(s: Start<'_>) -> Result<Running> {
    let (mut plan, given) = (s.plan, s.given);
    let spec = Spec {
        roots: std::mem::take(&mut plan.roots),
        descriptors: given.all(),
        network: plan.network.clone(),
        traces: s.kernel.platform == PlatformKind::Ptrace,
    };
    let kernel = match s.place {
        Place::Own { away } => Kernel::Own {
            main: sentry_main(plan, s.kernel, given, s.begins),
            away,
        },
        Place::Pod(member) => Kernel::Running(hand_over(plan, given, member)),
    };
    sandbox::start(&spec, Box::new(run_gofer), kernel)
}

/// The Gofer's life, in its own process.
fn run_gofer(side: GoferSide) -> std::result::Result<Infallible, sandbox::Error> {
    let failed = sandbox::Error::step;
    let roots = side.roots.into_iter().enumerate().map(|(i, (fd, access))| {
        let writable = match access {
            Access::ReadOnly => Writable::No,
            Access::Writable => Writable::Yes,
        };
        Root::from_fd(&i.to_string(), fd, writable)
    });
    let server = Server::new(roots.collect(), side.max_descriptors)
        .map_err(|e| failed("start", e))?
        .with_mounts(side.mounts)
        .with_network(side.network);
    (side.confine)().map_err(|e| failed("confine itself", e))?;
    server.run(side.channel)
}

/// The Sentry's life, in its own process.
fn sentry_main<'a>(
    plan: Plan,
    kernel: &'a KernelOptions,
    given: &'a SentryFds,
    begins: Begins,
) -> SentryMain<'a> {
    let interfaces = match plan.network {
        Outside::Host => sandbox::interfaces(),
        Outside::Nowhere | Outside::User(_) | Outside::Devices(_) => Vec::new(),
    };
    Box::new(move |side: SentrySide| {
        let too_few = sandbox::Error::NoDescriptors;
        // In the order of `Given::all`.
        let mut fds = side.descriptors.into_iter();
        let stdio = given.stdio.follows().take(&mut fds).ok_or(too_few)?;
        let log = given.log.as_ref().and_then(|_| fds.next());
        let layer = given.layer.as_ref().and_then(|_| fds.next());
        let swap = given.swap.as_ref().and_then(|_| fds.next());
        sentry::boot::run(Config {
            platform: kernel.platform,
            lanes: kernel.lanes,
            gofer: side.gofer,
            container: plan.container,
            memory_bound: side.memory_bound,
            layer,
            swap,
            net: match (side.broker, plan.network) {
                (Broker::Host(broker), _) => Net::Host { broker, interfaces },
                (Broker::User { requests, events }, Outside::User(user)) => Net::User {
                    requests,
                    events,
                    name_servers: user.name_servers,
                    ipv6: user.ipv6,
                },
                (Broker::None, Outside::Devices(d)) => {
                    let mut fds = side.devices.into_iter();
                    let links = d.sockets.iter().zip(&mut fds);
                    let links = links.map(|((_, buffer), fd)| Link {
                        fd,
                        receive_buffer: *buffer,
                    });
                    Net::Devices(Box::new(Devices {
                        links: links.collect(),
                        setup: d.setup,
                        names: d.names.and_then(|_| fds.next()),
                        gate: Gate {
                            rules: d.rules,
                            log: d.log.and_then(|_| fds.next()),
                        },
                    }))
                }
                _ => Net::None,
            },
            stdio,
            preserved: fds.collect(),
            control: side.control,
            init: plan.init,
            held: begins == Begins::WhenTold,
            trace: TraceConfig {
                strace: kernel.strace.is_some(),
                filter: kernel.strace.clone().unwrap_or_default(),
                log_fd: log.map(HostFd::into_raw),
                verbosity: kernel.verbosity,
            },
            random_drop: kernel.debug_drop,
            drain: limits::DRAIN,
            seal: side.seal,
        })
    })
}

/// Gives the container to the Sentry of a running sandbox.
fn hand_over<'a>(plan: Plan, given: &'a SentryFds, member: Member<'a>) -> HandOver<'a, Error> {
    let pod = member.pod;
    let join = JoinSpec {
        container: plan.container,
        first: ExecSpec {
            process: plan.init,
            stdio: given.stdio.follows(),
            preserved: given.preserved.len() as u32,
        },
        own_pids: pod.own_pids,
        own_uts: pod.own_uts,
        own_ipc: pod.own_ipc,
        own_net: pod.own_net,
        has_layer: given.layer.is_some(),
    };
    Box::new(move |side: JoinSide| {
        let body = files::in_memory(&serde_json::to_vec(&join).tried("describe the container")?)?;
        let memory = hostcall::mem::memfd(c"cloister-memory").tried("make the memory file")?;
        // From here on it is the Sentry's alone: this process's copy ends before the container
        // does.
        let lock = member.own.lock_for_sandbox()?;
        let fds = [
            body.as_raw_fd(),
            side.gofer.raw(),
            side.control.raw(),
            memory.raw(),
            lock.as_raw_fd(),
        ];
        let c = client::Connection::open(&member.first)?;
        c.ask(
            &client::Request::Join,
            &[&fds, &given.for_pod()[..]].concat(),
        )
        .map(drop)
    })
}
