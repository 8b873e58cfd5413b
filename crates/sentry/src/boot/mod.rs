//! Starting the kernel: from a [`config::Config`] to the first program.
//!
//! Order: the platform first, because the zygote is cloned while the process has one thread; the
//! memory file and the network's sockets; `seal` (the empty root, no capabilities, the allow-list);
//! the Gofer's first answer; the kernel, its mounts, the first program.

mod changes;
mod join;
mod launch;
mod mounts;
mod network;
mod serve;

use crate::fs::terminals::Terminals;
use crate::kernel::{Kernel, Parts};
use crate::ns::time::Offsets;
use crate::strace::Strace;
use crate::task::launch::Launch;
use abi::Result;
use clas::Clas;
use config::control::ToStarter;
use config::{Config, Devices, PlatformKind, TimeOffsets};
use gofer::client::Client;
use hostcall::HostFd;
use hostcall::time::Laps;
use ipc::timer::TimerService;
use net::NetNamespace;
use net::host::HostNetwork;
use net::user::UserNetwork;
use platform::Platform;
use std::num::NonZeroU32;
use std::sync::Arc;
use vfs::Vfs;
use vfs::ucounts::Kind;

/// The exit status of a Sentry that could not start its program.
const CANNOT_START: i32 = 1;

/// Runs the Sentry in this process. Never returns.
pub fn run(config: Config) -> ! {
    hostcall::process::limit_arenas();
    let control = config.control.duplicate();
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| start(config)));
    let (kind, why) = match r {
        Ok(Ok((kernel, held))) => (ToStarter::Crash, serve::serve(&kernel, held)),
        Ok(Err(e)) => (e.kind, e.text),
        Err(_) => (
            ToStarter::Crash,
            "the Sentry failed while it started (a bug in Cloister); the trace is above".into(),
        ),
    };
    if let Ok(c) = control {
        let mut m = kind.to_le_bytes().to_vec();
        m.extend_from_slice(why.as_bytes());
        let _ = hostcall::file::write(c.raw(), &m);
    }
    hostcall::process::exit_group(CANNOT_START)
}

/// What went wrong.
pub(crate) struct Failure {
    kind: ToStarter,
    /// One sentence for the person.
    text: String,
}

impl<T: Into<String>> From<T> for Failure {
    fn from(text: T) -> Failure {
        Failure {
            kind: ToStarter::Error,
            text: text.into(),
        }
    }
}

fn or<T>(r: Result<T>, what: &str) -> core::result::Result<T, Failure> {
    r.map_err(|e| format!("cannot {what}: {e}").into())
}

/// `refuses`: see [`Config::random_drop`].
fn memory_file(refuses: u32) -> Result<Arc<Clas>> {
    let clas = Clas::new()?;
    if let Some(every) = NonZeroU32::new(refuses) {
        clas.refuse_swap(every);
    }
    Ok(clas)
}

/// So many bytes of it: in the file, or in memory.
fn make_swap(
    clas: &Clas,
    bytes: Option<u64>,
    file: Option<HostFd>,
) -> core::result::Result<(), Failure> {
    match (bytes, file) {
        (Some(n), Some(file)) => clas.swap_in_file(file, n),
        (Some(n), None) => or(clas.swap_in_memory(n), "make the swap")?,
        (None, _) => {}
    }
    Ok(())
}

/// Makes the kernel; gives the first program if it is held.
fn start(config: Config) -> core::result::Result<(Arc<Kernel>, Option<Launch>), Failure> {
    let wanted = config.trace.verbosity > 0;
    let mut laps = wanted.then(Laps::start).unwrap_or_default();
    let platform = platform(&config)?;
    laps.lap("platform");
    let clas = or(memory_file(config.random_drop), "make the memory file")?;
    make_swap(&clas, config.container.limits.swap_max(), config.swap)?;
    let (net, devices) = network(config.net)?;
    net.set_memory(&clas);
    // Devices may come at the start, behind the walls.
    net.set_bells(or(net::devices::Bells::new(), "make bells")?);
    let total_memory = hostcall::process::total_memory();
    // Those it may run on: a quota of time is told by the control group's files.
    let cpus = hostcall::process::cpus().len().max(1) as u32;
    let (_, descriptors) = hostcall::start::rlimit(libc::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    laps.lap("memory");
    // Needs one thread, and the zygote cloned before.
    or((config.seal)(), "close the Sentry's walls")?;
    laps.lap("walls");
    let strace = strace(&config.trace);
    // Without the Gofer no file can be found any more: end, the starter says why.
    let lost = Box::new(|| hostcall::process::exit_group(71));
    let client = or(Client::connect(&config.gofer, lost), "reach the Gofer")?;
    laps.lap("Gofer");
    let handles = descriptors.min(client.server().max_handles.into());
    let tasks_max = crate::task::quota::tasks_for(descriptors);
    let vfs = Vfs::new();
    vfs::fs::dev::register_memory_devices(&vfs.devices);
    let kernel = Kernel::new(Parts {
        clas,
        vfs,
        net,
        timers: TimerService::new(),
        terminals: Terminals::new(),
        strace,
        control: config.control,
        hostname: config.container.hostname.clone(),
        time: clocks(&*platform, config.container.time.as_ref())?,
        platform,
        random_drop: config.random_drop,
        cpus,
        total_memory,
        kept_files: goferfs::Kept::for_limit(descriptors, handles),
        tasks_max,
        drain: config.drain,
        is_container: config.container.standard_devices,
        seccomp: config.container.seccomp.clone(),
        limits: config.container.limits.clone(),
        memory_bound: config.memory_bound,
    });
    limit_users(&kernel, (handles / 2).min(descriptors / 4));
    kernel.govern_memory(&kernel.root);
    kernel.terminals.attach(&kernel);
    serve_network(&kernel)?;
    if let Some(d) = devices {
        attach(&kernel, d)?;
    }
    mounts::register(&kernel);
    set_domain_name(&kernel, &config.container.domainname);
    laps.lap("kernel");
    let mounts = mounts::Builder {
        kernel: &kernel,
        container: &kernel.root,
        client: &client,
        spec: &config.container,
    };
    kernel.root.set_root(mounts.tree(config.layer)?);
    laps.lap("mounts");
    let (init, stdio, preserved) = (config.init, config.stdio, config.preserved);
    let program = launch::Program::new(init, stdio, preserved);
    let first = launch::prepare(&kernel, &kernel.root, program, |_| true)?;
    laps.lap("first program");
    tell_laps(&laps, config.trace.log_fd);
    if config.held {
        kernel.root.tell(ToStarter::Ready, &[]);
        return Ok((kernel, Some(first)));
    }
    or(first.start(), "start the first thread")?;
    Ok((kernel, None))
}

fn strace(asked: &config::TraceConfig) -> Option<Arc<Strace>> {
    asked
        .strace
        .then(|| Arc::new(Strace::new(asked.log_fd.unwrap_or(2), asked.filter.clone())))
}

fn set_domain_name(kernel: &Arc<Kernel>, name: &str) {
    kernel.initial.uts.change(kernel, |names| {
        names.domainname = match name {
            "" => b"(none)".to_vec(),
            d => d.as_bytes().to_vec(),
        };
    });
}

/// How long each part of the start took, where that was asked for.
fn tell_laps(laps: &Laps, log_fd: Option<i32>) {
    if !laps.told().is_empty() {
        let text = format!("cloister: the Sentry's start: {}\n", laps.told());
        let _ = hostcall::file::write(log_fd.unwrap_or(2), text.as_bytes());
    }
}

/// The platform that was asked for.
fn platform(config: &Config) -> core::result::Result<Arc<dyn Platform>, Failure> {
    // What is traced must come here.
    let lanes = if config.trace.strace {
        platform::Lanes::None
    } else {
        config.lanes
    };
    Ok(match config.platform {
        PlatformKind::Notify => Arc::new(or(
            platform::notify::Notify::new(lanes),
            "start the notify platform (Linux 5.19 or later with seccomp is needed; try --platform=ptrace)",
        )?),
        PlatformKind::Ptrace => Arc::new(or(
            platform::ptrace::Ptrace::new(),
            "start the ptrace platform",
        )?),
    })
}

/// The first network namespace, and the devices that are to be attached to it once there is a
/// kernel.
fn network(
    asked: config::Net,
) -> core::result::Result<(Arc<NetNamespace>, Option<Devices>), Failure> {
    let edges = || or(hostcall::inet::Edges::new(), "watch the host's sockets");
    let net = match asked {
        config::Net::None => NetNamespace::new(),
        config::Net::Devices(d) => return Ok((NetNamespace::new(), Some(*d))),
        config::Net::Host { broker, interfaces } => {
            NetNamespace::of_host(HostNetwork::new(broker, edges()?, interfaces))
        }
        config::Net::User {
            requests,
            events,
            name_servers,
            ipv6,
        } => {
            let start = net::user::Start {
                requests,
                events,
                name_servers,
                ipv6,
            };
            let way_out = UserNetwork::new(start, edges()?);
            NetNamespace::of_user(or(way_out, "watch the broker")?)
        }
    };
    Ok((net, None))
}

/// Gives the sandbox the devices that were taken over for it.
fn attach(kernel: &Kernel, d: Devices) -> core::result::Result<(), Failure> {
    let net = &kernel.initial.net;
    let attached = net.attach_devices(d.setup, d.links, d.names, d.gate);
    or(attached, "attach the network's devices")
}

/// Has the host's sockets served by a thread, where there are any.
fn serve_network(kernel: &Arc<Kernel>) -> core::result::Result<(), Failure> {
    let (k, net) = (kernel.clone(), kernel.initial.net.clone());
    if !net.has_outside() {
        return Ok(());
    }
    let made = std::thread::Builder::new()
        .name("host-network".into())
        .stack_size(64 << 10)
        .spawn(move || k.guard(|| net.serve_outside()));
    made.map_err(|_| "no thread can be made for the host's network")?;
    Ok(())
}

/// The first container's clocks, where it has some of its own.
fn clocks(
    platform: &dyn Platform,
    own: Option<&TimeOffsets>,
) -> core::result::Result<Option<Offsets>, Failure> {
    let Some(own) = own else {
        return Ok(None);
    };
    if !platform.has_own_clocks() {
        return Err("shift its clocks: this platform has those of the host alone".into());
    }
    or(Offsets::at_start(own), "shift its clocks").map(Some)
}

/// No user but root holds more of the host's files than this, half of the Gofer's or a quarter of
/// this process's; nor more than half of few tasks.
fn limit_users(kernel: &Kernel, host_files: u64) {
    let limits = vfs::userns::UserNs::default();
    let most = i64::try_from(host_files).unwrap_or(i64::MAX);
    limits.limits().set(Kind::HostFiles, most);
    let most = (kernel.tasks_max / 2).min(crate::task::quota::OF_USER);
    limits.limits().set(Kind::Tasks, most as i64);
}
