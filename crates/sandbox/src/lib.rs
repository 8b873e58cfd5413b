//! Starting a sandbox's processes, and watching over them.
//!
//! The starter (the CLI) makes two copies of itself, without `execve(2)`: the **Gofer**, which sees
//! host paths, and the **Sentry**, which runs the application. Both are cloned while the starter
//! has one thread.
//!
//! | | Gofer | Sentry |
//! |---|---|---|
//! | namespaces | as root: pid, mount, ipc, uts, cgroup, user (where the host allows it); else none, so that owners of files stay true | pid (it is pid 1), mount, net, ipc, uts, cgroup, user (as root: where the host allows it) |
//! | network | as root: an empty namespace, both in the same one, which costs half as much; neither may make a socket | else: its own |
//! | user | the starter's | as root: nobody; else the starter's |
//! | root directory | as root: empty; it holds descriptors of cloned mount trees | empty |
//! | capabilities | those that reading (and, for writable roots, changing) files needs | none |
//! | host calls | its allow-list | its allow-list |
//!
//! The starter itself can be confined once both run ([`Running::confine`]), as the monitor of a
//! container is.
//!
//! As root, the mount trees that the Gofer works on are its own copies: the host's root without
//! `/proc`, `/sys` and `/dev`, read-only as the kernel enforces it, without devices and set-uid
//! programs. Otherwise Landlock keeps it from writing outside the writable roots, and from reading
//! in those three.
//!
//! # Invariants
//!
//! - A child never returns into the starter's code: it ends by `exit_group`, also when it panics.
//! - Each of the three has a socket to the starter or to each other, and its other end closes with
//!   the process that holds it: when one dies, the others learn of it and end. `PR_SET_PDEATHSIG`
//!   ends both children with the starter; the Sentry's pid namespace ends every stub process with
//!   the Sentry.
//! - The children hold no descriptor but those given to them.
//!
//! # Confinement in two steps
//!
//! [`SentrySide::seal`] and [`GoferSide::confine`] are called by the child itself, once it has what
//! it needs from `/proc`, and before it looks at anything that comes from the other side of a wall.
//! They must be called with one thread: capabilities are a thread's own.
#![forbid(unsafe_code)]

mod broker;
pub mod capture;
pub mod cgroups;
pub mod control;
pub mod devices;
mod gofer;
mod kernel;
mod privilege;
mod running;
mod spawn;

pub use broker::interfaces;
pub use broker::user::{HINT, Published, UserNetwork};
pub use control::Answer;
pub use gofer::GoferSide;
pub use kernel::SentrySide;
pub use net::interface::Interface;
pub use privilege::Away;
pub use running::{Attendant, Ending, Running};
pub use spawn::Who;

use abi::{Errno, Result};
use hostcall::{HostFd, RawFd, sock, start as host};
use privilege::{Network, Standing};
use std::convert::Infallible;
use std::ffi::CString;

/// The starter's exit status when the sandbox could not start, or could not go on and said why.
pub const EXIT_NOT_STARTED: u8 = 125;
/// The starter's exit status when the program is there and cannot be executed.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
/// The starter's exit status when there is no such program.
pub const EXIT_NOT_FOUND: u8 = 127;
/// The starter's exit status when a process of the sandbox itself failed.
pub const EXIT_BROKEN: u8 = 70;

/// The same, where it was killed by SIGKILL: from outside, or because memory ran out.
pub const EXIT_KILLED: u8 = 71;

/// Takes a process's last step of confinement; to be called once, with one thread.
pub type Confine = Box<dyn FnOnce() -> Result<()> + Send>;

/// Whether the application may change what lies below a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    ReadOnly,
    Writable,
}

/// A host directory or file that the Gofer offers.
#[derive(Clone, Debug)]
pub struct RootSpec {
    /// Absolute, without symbolic links.
    pub path: CString,
    pub access: Access,
    /// With what is mounted below it.
    pub recursive: bool,
}

impl RootSpec {
    /// Whether it is the host's root directory: shown without `/proc`, `/sys` and `/dev`.
    fn is_host_root(&self) -> bool {
        self.path.as_bytes() == b"/"
    }
}

/// The name of the kernel's own file system (procfs, sysfs, cgroup2, ...) that a path lies in:
/// nothing there can be made writable. `None` for all others.
#[must_use]
pub fn kernel_fs(path: &std::ffi::CStr) -> Option<&'static str> {
    let flags = libc::O_PATH as u64;
    let fd = hostcall::path::openat2(libc::AT_FDCWD, path, flags, 0, 0).ok()?;
    ::gofer::kernel_fs::of(&fd).ok()?.1
}

/// Where the application's sockets lead beside the sandbox.
#[derive(Clone, Debug, Default)]
pub enum Outside {
    #[default]
    Nowhere,
    /// To the starter's network namespace, in which a broker makes them.
    Host,
    /// To what a policy allows, by a broker that connects them.
    User(UserNetwork),
    /// To devices that were taken over ([`devices::take_over`]).
    Devices(Devices),
}

/// Devices with their sockets, which are the starter's until the Sentry has its copies.
#[derive(Clone, Debug)]
pub struct Devices {
    pub setup: devices::Setup,
    /// In the order of the setup's devices, each with its [`devices::Link::receive_buffer`].
    pub sockets: Vec<(RawFd, u32)>,
    /// See [`config::Devices::names`].
    pub names: Option<RawFd>,
    /// What may leave, and where it is told what may not.
    pub rules: egress::Rules,
    pub log: Option<RawFd>,
}

impl Devices {
    /// The descriptors in the order in which they are handed over.
    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let links = self.sockets.iter().map(|(fd, _)| *fd);
        links.chain(self.names).chain(self.log)
    }
}

/// The Sentry's channels to its broker.
#[derive(Debug)]
pub enum Broker {
    None,
    Host(HostFd),
    /// See [`net::user::Start`].
    User {
        requests: HostFd,
        events: HostFd,
    },
}

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// The Gofer's roots, in their order. The host's root directory is shown without `/proc`,
    /// `/sys` and `/dev`.
    pub roots: Vec<RootSpec>,
    /// Descriptors for the Sentry, besides its sockets: it finds copies of them in the same order.
    pub descriptors: Vec<RawFd>,
    /// Where sockets lead.
    pub network: Outside,
    /// Whether the Sentry traces the application's processes: the ptrace platform.
    pub traces: bool,
}

/// Why there is no sandbox: a sentence for the person. What fails in a child follows on its name
/// ("the Gofer").
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A host call failed.
    #[error("could not {step}: {errno}")]
    Step { step: String, errno: Errno },
    /// The same, of a file.
    #[error("could not {step}: {source}")]
    File {
        step: String,
        source: std::io::Error,
    },
    /// The starter and its child do not agree on what the child is given.
    #[error("could not find its descriptors")]
    NoDescriptors,
    /// The starter has ended, or said something else.
    #[error("was not admitted by the starter")]
    NotAdmitted,
    #[error(
        "could not make namespaces for the {who} ({errno}): run it as root, or allow user namespaces \
         (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns); in a container, give it CAP_SYS_ADMIN"
    )]
    NoNamespaces { who: Who, errno: Errno },
    /// A copy of this process would not be whole.
    #[error("could not start the {0}: /proc is not mounted, or this process has several threads")]
    NotAlone(Who),
    /// Both in bytes.
    #[error(
        "the address space of a process is limited to {} MiB (ulimit -v), and a sandbox reserves {} MiB: raise the \
         limit, and set the program's own inside",
        .limit >> 20,
        .needed >> 20
    )]
    AddressSpace { limit: u64, needed: u64 },
    /// A root that no application may see.
    #[error("does not show {path}: {why}")]
    NotShown { path: String, why: String },
    #[error(
        "the network namespace is the host's own, and taking over its devices would cut the host off"
    )]
    HostsNetwork,
    #[error(
        "the network namespace has {count} devices, and a sandbox takes over {} at most",
        config::DEVICES_MAX
    )]
    TooManyDevices { count: usize },
}

impl Error {
    /// The step that a host call failed in.
    pub fn step(step: &str, errno: Errno) -> Error {
        let step = step.to_owned();
        Error::Step { step, errno }
    }

    fn file(step: &str, source: std::io::Error) -> Error {
        let step = step.to_owned();
        Error::File { step, source }
    }
}

/// Names the step that failed.
fn step<T>(what: &str, r: Result<T>) -> std::result::Result<T, Error> {
    r.map_err(|e| Error::step(what, e))
}

/// A started Gofer, and the sockets to it.
struct Gofer {
    child: spawn::Child,
    /// The Sentry's end of the channel.
    channel: HostFd,
    /// What it has to say of itself, and the end that it says it on.
    report: HostFd,
    reports: HostFd,
}

fn start_gofer(
    spec: &Spec,
    standing: Standing,
    network: Network,
    null: &HostFd,
    main: GoferMain<'_>,
) -> std::result::Result<Gofer, Error> {
    let (channel, gofer_end) = step("make a channel", sock::seqpacket_pair())?;
    let (report, reports) = step("make a channel", sock::seqpacket_pair())?;
    let child = spawn::child(
        spawn::Who::Gofer,
        standing.gofer_namespaces(spec),
        null,
        // Its report socket comes first, in all processes.
        &[reports.raw(), gofer_end.raw()],
        |fds| gofer::prepare(spec, standing, network, fds).and_then(main),
    )?;
    let child = child.admit(standing, &report)?;
    Ok(Gofer {
        child,
        channel,
        report,
        reports,
    })
}

/// What can be done before it is known what to start: goes to the network namespace of the
/// sandbox's processes. `None` where each of them makes its own.
pub fn go_ahead() -> std::result::Result<Option<Away>, Error> {
    match Standing::of_caller()? {
        Standing::Privileged => Away::go(),
        Standing::Ordinary { .. } => Ok(None),
    }
}

/// What a child runs. It returns only what made it fail.
pub type GoferMain<'a> = Box<dyn FnOnce(GoferSide) -> std::result::Result<Infallible, Error> + 'a>;
/// The same, of the Sentry.
pub type SentryMain<'a> =
    Box<dyn FnOnce(SentrySide) -> std::result::Result<Infallible, Error> + 'a>;
/// Gives a container to a running Sentry.
pub type HandOver<'a, E> = Box<dyn FnOnce(JoinSide) -> std::result::Result<(), E> + 'a>;

/// The kernel that a container gets.
pub enum Kernel<'a, E> {
    /// A Sentry of its own, which runs `main`. `away` is what [`go_ahead`] gave, if it was asked
    /// before (never with a broker).
    Own {
        main: SentryMain<'a>,
        away: Option<Away>,
    },
    /// That of a running sandbox.
    Running(HandOver<'a, E>),
}

/// Starts a container's processes: its Gofer, which runs `gofer`, and a Sentry if it gets one of
/// its own.
///
/// # Errors
///
/// A step that failed. What was started is ended by then.
pub fn start<E: From<Error>>(
    spec: &Spec,
    gofer: GoferMain<'_>,
    kernel: Kernel<'_, E>,
) -> std::result::Result<Running, E> {
    match kernel {
        Kernel::Own { main, away } => Ok(start_alone(spec, away, gofer, main)?),
        Kernel::Running(hand_over) => join(spec, gofer, hand_over),
    }
}

fn start_alone(
    spec: &Spec,
    away: Option<Away>,
    gofer: GoferMain<'_>,
    sentry: SentryMain<'_>,
) -> std::result::Result<Running, Error> {
    let away = match away {
        None if matches!(spec.network, Outside::Nowhere | Outside::Devices(_)) => go_ahead()?,
        away => away,
    };
    let standing = Standing::of_caller()?;
    check_address_space()?;
    let Some(away) = away else {
        return start_both(spec, standing, Network::Own, gofer, sentry);
    };
    let running = start_both(spec, standing, Network::Given, gofer, sentry);
    away.come_back()?;
    running
}

/// Address space is no memory, but without it nothing can be mapped.
fn check_address_space() -> std::result::Result<(), Error> {
    /// Bytes: the smallest that is reserved for the memory of applications (8 GiB), what the Sentry
    /// has beside it, and some room.
    const LEAST: u64 = 16 << 30;
    let (soft, hard) = step("read its limits", host::rlimit(libc::RLIMIT_AS))?;
    // By trying: a capability in a user namespace does not count for this.
    let raised = || host::set_rlimit(libc::RLIMIT_AS, soft, hard + 1).is_ok();
    if hard >= LEAST || raised() && host::set_rlimit(libc::RLIMIT_AS, soft, hard).is_ok() {
        return Ok(());
    }
    Err(Error::AddressSpace {
        limit: hard,
        needed: LEAST,
    })
}

/// Starts the broker, if there is to be one; with the Sentry's ends of its channels.
fn start_broker(
    spec: &Spec,
    standing: Standing,
    null: &HostFd,
    gofer: &Gofer,
) -> std::result::Result<Option<(spawn::Child, Vec<HostFd>)>, Error> {
    let (channels, given) = match &spec.network {
        Outside::Nowhere | Outside::Devices(_) => return Ok(None),
        Outside::Host => (1, Vec::new()),
        Outside::User(user) => (2, user.descriptors()),
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..channels {
        let (a, b) = step("make a channel", sock::seqpacket_pair())?;
        ours.push(a);
        theirs.push(b);
    }
    // It reports on the Gofer's socket: what either says is told.
    let mut wanted = vec![gofer.reports.raw()];
    wanted.extend(theirs.iter().map(HostFd::raw));
    wanted.extend(given);
    let child = spawn::child(
        spawn::Who::Broker,
        standing.broker_namespaces(),
        null,
        &wanted,
        |fds| match &spec.network {
            Outside::User(user) => broker::user::run(standing, user, fds),
            _ => broker::run(standing, fds),
        },
    )?;
    Ok(Some((child, ours)))
}

fn start_both(
    spec: &Spec,
    standing: Standing,
    network: Network,
    gofer: GoferMain<'_>,
    sentry: SentryMain<'_>,
) -> std::result::Result<Running, Error> {
    let null = spawn::null()?;
    let gofer = start_gofer(spec, standing, network, &null, gofer)?;
    // Made after the Gofer: nobody but the Sentry and the starter has ever held an end of it.
    let (control, sentry_control) = step("make a channel", sock::seqpacket_pair())?;
    // Twice: what runs there may close its own, and can still be reported on.
    let mut wanted = vec![
        sentry_control.raw(),
        sentry_control.raw(),
        gofer.channel.raw(),
    ];
    let broker = match start_broker(spec, standing, &null, &gofer) {
        Ok(b) => b,
        Err(e) => {
            running::abandon(gofer.child);
            return Err(e);
        }
    };
    let (broker, channels) = broker.unzip();
    wanted.extend(channels.iter().flatten().map(HostFd::raw));
    drop(gofer.reports);
    if let Outside::Devices(d) = &spec.network {
        wanted.extend(d.descriptors());
    }
    wanted.extend_from_slice(&spec.descriptors);
    let sentry = spawn::child(
        spawn::Who::Sentry,
        standing.sentry_namespaces(),
        &null,
        &wanted,
        |fds| kernel::prepare(spec, standing, network, fds).and_then(sentry),
    );
    drop((sentry_control, gofer.channel, channels));
    let sentry = sentry.and_then(|child| child.admit(standing, &control));
    match sentry {
        Ok(sentry) => Ok(Running::new(
            control,
            gofer.report,
            sentry,
            gofer.child,
            broker,
        )),
        Err(e) => {
            running::abandon(gofer.child);
            if let Some(b) = broker {
                running::abandon(b);
            }
            Err(e)
        }
    }
}

/// What a container that joins a sandbox gives to its Sentry.
pub struct JoinSide {
    /// To the Gofer.
    pub gofer: HostFd,
    /// To the starter: see [`crate::control`].
    pub control: HostFd,
}

fn join<E: From<Error>>(
    spec: &Spec,
    gofer: GoferMain<'_>,
    hand_over: HandOver<'_, E>,
) -> std::result::Result<Running, E> {
    let gofer = start_gofer(
        spec,
        Standing::of_caller()?,
        Network::Own,
        &spawn::null()?,
        gofer,
    )?;
    drop(gofer.reports);
    let (control, sentry_control) = step("make a channel", sock::seqpacket_pair())?;
    // From here on the Gofer ends with it.
    let running = Running::joined(control, gofer.report, gofer.child);
    hand_over(JoinSide {
        gofer: gofer.channel,
        control: sentry_control,
    })?;
    Ok(running)
}
