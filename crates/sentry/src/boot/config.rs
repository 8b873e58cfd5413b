//! What the starter tells the Sentry.

use hostcall::HostFd;
use std::time::Duration;

/// How application code is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PlatformKind {
    #[default]
    Notify,
    Ptrace,
}

/// The network that the application sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Net {
    /// Only a loopback of its own.
    #[default]
    None,
}

/// Where the first program's standard streams lead.
pub enum Stdio {
    /// A terminal of the sandbox, joined to the person's terminal, which the starter has put into raw mode.
    /// The Sentry copies between this descriptor and its pty. `rows`, `cols` at the start.
    /// `stderr` where standard error leads elsewhere (`2>file`).
    Terminal {
        host: HostFd,
        rows: u16,
        cols: u16,
        stderr: Option<HostFd>,
    },
    /// Descriptors of the host, as they are. A closed one is `None`.
    Inherited([Option<HostFd>; 3]),
}

/// A host directory or file shown in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindMount {
    /// The Gofer's root number.
    pub root: u32,
    /// Where it appears.
    pub target: String,
    pub writable: bool,
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

/// The first program.
pub struct InitProcess {
    pub argv: Vec<Vec<u8>>,
    pub envp: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Resource limits to begin with: (RLIMIT_*, soft, hard).
    pub rlimits: Vec<(u32, u64, u64)>,
    pub umask: u32,
    /// Signals that it ignores and blocks from the start, as execve(2) keeps them: bit n - 1 for signal n.
    pub ignored: u64,
    pub blocked: u64,
}

/// All of it.
pub struct Config {
    pub platform: PlatformKind,
    /// The channel to the Gofer; its root 0 is the host's root directory.
    pub gofer: HostFd,
    pub binds: Vec<BindMount>,
    pub net: Net,
    pub stdio: Stdio,
    /// A `SOCK_SEQPACKET` socket to the starter: see [`control`].
    pub control: HostFd,
    pub init: InitProcess,
    pub hostname: String,
    pub trace: TraceConfig,
    /// Debugging: drop a random host mapping on every Nth memory operation; 0 never.
    pub random_drop: u32,
    /// How long after the first program's end its remaining output is waited for.
    pub drain: Duration,
    /// The last step of the Sentry's confinement: an empty root, no capabilities, the allow-list. To be
    /// called once the platform is made (that needs `/proc`) and before application code runs, with one
    /// thread (`EBUSY` otherwise): capabilities are a thread's own.
    pub seal: Box<dyn FnOnce() -> abi::Result<()> + Send>,
}

/// Messages on the control socket, each one `SOCK_SEQPACKET` datagram: a `u32` kind and its payload,
/// little-endian. A packet is at most 2048 bytes long.
pub mod control {
    /// Sentry → starter: the first program has ended; `u32` wait status (as wait4(2) gives).
    pub const EXIT: u32 = 1;
    /// Starter → Sentry: the window changed; `u16` rows, `u16` columns.
    pub const WINDOW: u32 = 2;
    /// Starter → Sentry: send a signal to the first program; `u32` signal.
    pub const SIGNAL: u32 = 3;
    /// Sentry → starter: it cannot start or go on; UTF-8 text for the person, one sentence.
    pub const ERROR: u32 = 4;
    /// Sentry → starter: there is no such program; text as for [`ERROR`].
    pub const NOT_FOUND: u32 = 6;
    /// Sentry → starter: the program cannot be executed; text as for [`ERROR`].
    pub const NOT_EXECUTABLE: u32 = 7;
    /// Child → starter: it failed by a fault of its own (a panic); UTF-8 text.
    pub const CRASH: u32 = 5;
}
