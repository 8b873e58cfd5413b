//! What the starter tells the Sentry: the configuration of a sandbox, of a container and of a
//! program, their limits, and the words of the control channels. Types only, so that a starter of
//! sandboxes need not know the kernel.
#![forbid(unsafe_code)]

pub mod control;
mod memory;
mod resources;

pub use memory::{
    Confidential, MapCell, MapProcess, MemoryMap, MemoryProcess, MemoryReport, Pressure, StallTime,
};
pub use resources::{BoundsSpec, LEAST_MEMORY, Limits, MemoryChange, Replacement};

use hostcall::{HostFd, RawFd};
use net::devices::{Gate, Link, Setup};
use seccomp::bpf::Insn;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How application code is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PlatformKind {
    #[default]
    Notify,
    Ptrace,
}

/// The most devices of a network that a sandbox takes over.
pub const DEVICES_MAX: usize = 32;

/// The network that the application sees.
#[derive(Default)]
pub enum Net {
    /// Only a loopback of its own.
    #[default]
    None,
    /// The host's sockets.
    Host {
        /// Makes them.
        broker: HostFd,
        interfaces: Vec<net::interface::Interface>,
    },
    /// What a broker connects, by policy.
    User {
        /// Is asked, and answers.
        requests: HostFd,
        /// On which both say what they have.
        events: HostFd,
        /// The host's.
        name_servers: Vec<std::net::IpAddr>,
        /// Whether the host has a way to the internet by IPv6.
        ipv6: bool,
    },
    /// Devices that were taken over from the host.
    Devices(Box<Devices>),
}

/// What a network namespace of the host had, and the sockets for it.
#[derive(Debug)]
pub struct Devices {
    pub setup: Setup,
    /// In the order of the setup's devices.
    pub links: Vec<Link>,
    /// A UDP socket there that is connected to Docker's name server, where there is one.
    pub names: Option<HostFd>,
    /// What may leave by them.
    pub gate: Gate,
}

/// Where a program's standard streams lead. `D` names a descriptor: it is one of this process's
/// numbers (`RawFd`), the descriptor itself (`HostFd`), or, in a request, the word that one follows
/// ([`Follows`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stdio<D> {
    /// A terminal of the sandbox, joined to a terminal of the host that is in raw mode. The Sentry
    /// copies between this descriptor and its pty.
    Terminal {
        host: D,
        /// At the start.
        rows: u16,
        cols: u16,
        /// Where standard error leads elsewhere (`2>file`).
        stderr: Option<D>,
    },
    /// Descriptors of the host, as they are. A closed one is `None`.
    Inherited([Option<D>; 3]),
}

impl Default for Stdio<RawFd> {
    /// This process's own.
    fn default() -> Stdio<RawFd> {
        Stdio::Inherited([Some(0), Some(1), Some(2)])
    }
}

impl<D> Stdio<D> {
    /// The same streams by the names that `f` gives, in the order of [`Stdio::descriptors`]. One
    /// without a name is closed; without their terminal, all are.
    pub fn filter_map<E>(self, mut f: impl FnMut(D) -> Option<E>) -> Stdio<E> {
        match self {
            Stdio::Inherited(fds) => Stdio::Inherited(fds.map(|d| d.and_then(&mut f))),
            Stdio::Terminal {
                host,
                rows,
                cols,
                stderr,
            } => match f(host) {
                Some(host) => Stdio::Terminal {
                    host,
                    rows,
                    cols,
                    stderr: stderr.and_then(f),
                },
                None => Stdio::Inherited([None, None, None]),
            },
        }
    }

    /// The descriptors in the order in which they are handed over.
    pub fn descriptors(self) -> impl Iterator<Item = D> {
        let fds = match self {
            Stdio::Inherited(fds) => fds,
            Stdio::Terminal { host, stderr, .. } => [Some(host), stderr, None],
        };
        fds.into_iter().flatten()
    }

    /// As the request says it that the descriptors come with.
    pub fn follows(self) -> Stdio<Follows> {
        self.filter_map(|_| Some(Follows::Next))
    }
}

impl Stdio<Follows> {
    /// Takes the descriptors from those that came; `None` where there are too few.
    pub fn take<E>(self, given: &mut impl Iterator<Item = E>) -> Option<Stdio<E>> {
        let mut missing = false;
        let taken = self.filter_map(|Follows::Next| {
            let next = given.next();
            missing |= next.is_none();
            next
        });
        (!missing).then_some(taken)
    }
}

/// In a request: the next descriptor beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Follows {
    Next,
}

/// Ids of a user namespace: `count` ids from `inside` on are the host's from `outside` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// Where writes to the root file system go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layer {
    /// To memory, gone with the container.
    #[default]
    Memory,
    /// To [`Config::layer`], gone with the container.
    File,
    /// To the root directory itself.
    None,
}

/// What may be done with a container's mounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    #[default]
    Private,
    /// Nobody can show the root at another place.
    Unbindable,
    /// Nor what is mounted below it.
    AllUnbindable,
}

/// The root file system.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RootFs {
    /// The Gofer's root number.
    pub root: u32,
    pub layer: Layer,
    pub read_only: bool,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountKind {
    /// A host directory or file: one of the Gofer's roots.
    Host {
        root: u32,
        /// Nobody but this container changes it: what was learnt of it is kept.
        exclusive: bool,
    },
    /// One of the Gofer's roots, a directory, beneath a layer in memory that takes all changes.
    Layered { root: u32 },
    /// A file system of this kernel, by its type's name.
    Fs(String),
    /// A device directory with the standard nodes.
    Devices,
}

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    pub target: String,
    pub kind: MountKind,
    /// As /proc/mounts shows it.
    pub source: String,
    /// `MS_*` of mount(2).
    pub flags: u32,
    /// mount(2)'s data.
    pub data: String,
    /// Where the directory is missing, there is no such mount, and no complaint.
    pub optional: bool,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    pub path: String,
    /// With the type's bits.
    pub mode: u32,
    pub major: u32,
    pub minor: u32,
    pub uid: u32,
    pub gid: u32,
}

/// What one of a container's clocks has more than the host's, in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeOffset {
    pub secs: i64,
    pub nanosecs: u32,
}

/// The clocks of a time namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeOffsets {
    pub monotonic: TimeOffset,
    pub boottime: TimeOffset,
}

/// What a container sees, besides its processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub hostname: String,
    pub domainname: String,
    pub root: RootFs,
    pub uids: Vec<IdRange>,
    pub gids: Vec<IdRange>,
    /// In the order in which they are mounted.
    pub mounts: Vec<MountSpec>,
    pub devices: Vec<DeviceNode>,
    /// The standard nodes and links in /dev, whatever is mounted there.
    pub standard_devices: bool,
    pub propagation: Propagation,
    /// Paths that show nothing.
    pub masked: Vec<String>,
    /// Paths that nobody can write below.
    pub read_only: Vec<String>,
    /// `kernel.hostname`-like names, and values.
    pub sysctls: Vec<(String, String)>,
    /// A time namespace of its own.
    #[serde(default)]
    pub time: Option<TimeOffsets>,
    pub limits: Limits,
    /// The seccomp filter of every program that is started from outside, and so of all; empty for
    /// none.
    pub seccomp: Vec<Insn>,
    #[serde(default)]
    pub confidential: Confidential,
}

/// Tracing wishes.
#[derive(Clone, Debug, Default)]
pub struct TraceConfig {
    /// `--strace`.
    pub strace: bool,
    /// Only these system calls (names or `%file`-like classes); empty for all.
    pub filter: Vec<String>,
    /// Where traces and logs go; standard error if none. Opened by the starter.
    pub log_fd: Option<i32>,
    /// `--log=debug` and the like: 0 errors … 3 trace.
    pub verbosity: u8,
}

/// Capability sets, bit N for capability number N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapSets {
    pub bounding: u64,
    pub effective: u64,
    pub permitted: u64,
    pub inheritable: u64,
    pub ambient: u64,
}

/// A program that is started from outside.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessSpec {
    pub argv: Vec<Vec<u8>>,
    pub envp: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Resource limits to begin with: (RLIMIT_*, soft, hard).
    pub rlimits: Vec<(u32, u64, u64)>,
    pub umask: u32,
    /// Signals that it ignores and blocks from the start, as execve(2) keeps them: bit n - 1 for
    /// signal n.
    #[serde(default)]
    pub ignored: u64,
    #[serde(default)]
    pub blocked: u64,
    /// `None`: all for root, none for others.
    pub caps: Option<CapSets>,
    pub no_new_privs: bool,
    pub oom_score_adj: i32,
    /// Make the working directory where it is missing.
    pub make_cwd: bool,
}

/// The body of [`control::ToSentry::Exec`], as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecSpec {
    pub process: ProcessSpec,
    /// Which of the standard streams follow the body.
    pub stdio: Stdio<Follows>,
    /// How many descriptors follow them: they become 3 and up.
    pub preserved: u32,
}

/// The body of [`control::ToSentry::Join`], as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinSpec {
    pub container: ContainerSpec,
    pub first: ExecSpec,
    /// Which namespaces are its own, rather than the sandbox's.
    pub own_pids: bool,
    pub own_uts: bool,
    pub own_ipc: bool,
    pub own_net: bool,
    /// A file for the root's changes comes with the request.
    pub has_layer: bool,
}

/// The body of [`control::ToSentry::Start`] where the first program starts with devices, as JSON:
/// they were taken over from the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DevicesSpec {
    pub setup: Setup,
    /// The sockets' [`Link::receive_buffer`], in the order in which they follow the body: that of
    /// the setup's devices.
    pub receive_buffers: Vec<u32>,
    /// [`Devices::names`] follows them.
    pub has_names: bool,
    /// What may leave; none: all.
    #[serde(default)]
    pub rules: egress::Rules,
    /// The log of what was refused comes last.
    #[serde(default)]
    pub has_log: bool,
}

impl DevicesSpec {
    /// With the sockets that followed the body. `None` where they are not those that it says, or
    /// more than [`DEVICES_MAX`].
    #[must_use]
    pub fn with_sockets(self, mut sockets: Vec<HostFd>) -> Option<Devices> {
        let log = self.has_log.then(|| sockets.pop());
        let names = self.has_names.then(|| sockets.pop());
        let count = sockets.len();
        let (devices, buffers) = (self.setup.devices.len(), self.receive_buffers.len());
        if count > DEVICES_MAX || count != devices || count != buffers {
            return None;
        }
        let links = sockets.into_iter().zip(self.receive_buffers);
        let links = links.map(|(fd, receive_buffer)| Link { fd, receive_buffer });
        Some(Devices {
            setup: self.setup,
            links: links.collect(),
            names: names.flatten(),
            gate: Gate {
                rules: self.rules,
                log: log.flatten(),
            },
        })
    }
}

/// The body of [`control::ToSentry::Refresh`], as JSON: what has become of the devices since the
/// start, or since the last such word.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DevicesChange {
    /// Those that were told of and are there still: their indices and hardware addresses on the
    /// host. All others have gone.
    pub there: Vec<(u32, [u8; 6])>,
    /// Those that are up or have something new, whose sockets follow: of those that were there the
    /// addresses that are new, of those that have come all; and of all, new routes and neighbours.
    /// Its rules and its log are for a sandbox that had no devices.
    pub now: DevicesSpec,
}

/// All of it.
pub struct Config {
    pub platform: PlatformKind,
    /// Which of its faster ways system calls may take, where nobody wants to see them all.
    pub lanes: platform::Lanes,
    /// The channel to the Gofer.
    pub gofer: HostFd,
    pub container: ContainerSpec,
    /// How much memory containers without a limit of their own may have each, bytes.
    pub memory_bound: u64,
    /// For [`Layer::File`]: an empty file without a name, on the host.
    pub layer: Option<HostFd>,
    /// Where its swap is kept, encrypted: an empty file without a name, on the host. In memory if
    /// there is none.
    pub swap: Option<HostFd>,
    pub net: Net,
    pub stdio: Stdio<HostFd>,
    /// Descriptors that the first program gets as 3 and up.
    pub preserved: Vec<HostFd>,
    /// A `SOCK_SEQPACKET` socket to the starter: see [`control`].
    pub control: HostFd,
    pub init: ProcessSpec,
    /// Make all ready, say so, and wait for [`control::ToSentry::Start`].
    pub held: bool,
    pub trace: TraceConfig,
    /// Debugging: drop a random host mapping on every Nth memory operation, and have swap refuse
    /// every Nth page; 0 never.
    pub random_drop: u32,
    /// How long after the first program's end its remaining output is waited for.
    pub drain: Duration,
    /// The last step of the Sentry's confinement: an empty root, no capabilities, the allow-list.
    /// To be called once the platform is made (that needs `/proc`) and before application code
    /// runs, with one thread (`EBUSY` otherwise): capabilities are a thread's own.
    pub seal: Box<dyn FnOnce() -> abi::Result<()> + Send>,
}

/// How long the end of a container may take, step by step. The waiter for a step has more patience
/// than it takes, so that an end in order is never cut off:
///
/// | waiter | waits for | at most |
/// |---|---|---|
/// | the Sentry | processes that were killed | [`OBEY`](limits::OBEY) |
/// | | the same, with what they run ended under them | [`FORCED`](limits::FORCED) |
/// | | where it has devices: what its connections have not said, which is sent again meanwhile | [`LAST_WORDS`](limits::LAST_WORDS) |
/// | | the last output | [`DRAIN`](limits::DRAIN) |
/// | | nothing of theirs mapped any more: files of the host are let go of | [`UNMAP`](limits::UNMAP) |
/// | a monitor | all of these, after SIGKILL to its container or to a program of `exec` | [`KILL`](limits::KILL) |
/// | that of a pod's member | the same once more, now without its Gofer, before the whole pod ends | [`KILL`](limits::KILL) |
pub mod limits {
    use std::time::Duration;

    pub const OBEY: Duration = Duration::from_secs(3);
    pub const FORCED: Duration = Duration::from_secs(1);
    pub const LAST_WORDS: Duration = Duration::from_secs(3);
    pub const DRAIN: Duration = Duration::from_secs(1);
    pub const UNMAP: Duration = Duration::from_secs(1);
    pub const KILL: Duration = Duration::from_secs(7);

    const _: () = assert!(
        KILL.as_secs() > OBEY.as_secs() + FORCED.as_secs() + DRAIN.as_secs() + UNMAP.as_secs()
    );
    // The root container's end does not wait for processes that do not obey.
    const _: () = assert!(
        KILL.as_secs()
            > FORCED.as_secs() + LAST_WORDS.as_secs() + DRAIN.as_secs() + UNMAP.as_secs()
    );
}

/// What a container does and uses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Census {
    pub processes: Vec<CensusProcess>,
    /// Bytes of the memory file in use.
    pub memory: u64,
    /// CPU time of all of it, nanoseconds.
    pub cpu: u64,
    pub threads: u64,
    /// What the Sentry's threads have spun, those of all its containers; `None` where none ever
    /// spins.
    #[serde(default)]
    pub spinning: Option<Spinning>,
}

/// What has been spun (`wait::spin`), by what was waited for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spinning {
    /// Wake-ups, by tasks about to sleep.
    pub sleep: Turns,
    /// Calls that are laid into a mailbox.
    pub mailbox: Turns,
}

/// Turns of spinning since the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Turns {
    pub begun: u64,
    /// What was waited for came.
    pub won: u64,
    /// It did not, in time.
    pub given_up: u64,
    /// What they took, nanoseconds.
    pub nanos: u64,
}

/// One process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CensusProcess {
    pub pid: i32,
    pub ppid: i32,
    pub uid: u32,
    pub threads: u32,
    /// Nanoseconds.
    pub cpu: u64,
    /// Seconds since the Epoch.
    pub start: i64,
    pub tty: String,
    pub command: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_keep_their_order_on_the_way() {
        let terminal = |stderr| Stdio::Terminal {
            host: 7,
            rows: 24,
            cols: 80,
            stderr,
        };
        for (streams, fds) in [
            (Stdio::Inherited([Some(4), None, Some(6)]), vec![4, 6]),
            (Stdio::Inherited([None, None, None]), vec![]),
            (terminal(None), vec![7]),
            (terminal(Some(8)), vec![7, 8]),
        ] {
            let given: Vec<i32> = streams.descriptors().collect();
            assert_eq!(given, fds);
            let text = serde_json::to_string(&streams.follows()).unwrap();
            let heard: Stdio<Follows> = serde_json::from_str(&text).unwrap();
            assert_eq!(heard.take(&mut given.iter().copied()), Some(streams));
            let missing = heard.take(&mut given.iter().skip(1).copied());
            assert_eq!(missing.is_none(), !fds.is_empty());
        }
    }
}
