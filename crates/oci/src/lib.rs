//! The OCI runtime: bundles, and the life of containers.
//!
//! # Processes
//!
//! ```text
//! cloister create   reads the bundle, makes the state directory, starts the monitor, leaves
//!    └─ monitor     the container's process on the host: its pid is the pid of the state; it started the
//!         │         Sentry and the Gofer, watches over them, answers on control.sock, and ends as the
//!         │         container's first program ends, so that a waiter for the pid learns the status
//!         ├─ Sentry
//!         └─ Gofer
//! cloister exec     asks the monitor; with --detach an *exec monitor* does so, and ends as the program ends
//! ```
//!
//! `run` in the foreground is `create` and `start`; then the command passes signals and window
//! sizes on, waits for the monitor, ends as it does, and deletes the container.
//!
//! # Modules
//!
//! Each stands on those below it, and calls none above, but for two: `convert` makes a
//! [`start::Plan`], and `error` knows how long a word for the monitor may be ([`client`]).
//!
//! ```text
//! lifecycle                         the commands, and `run`
//! exec, create                      one more program; a bundle to a monitor
//! launch                            the monitor's beginning and end
//! start                             a plan to processes; also that of `cloister do`
//! monitor (outbox), delete          while the container lives; its end
//! network                           the devices of its network namespace
//! leaving                           what may leave by those
//! container                         a container that exists: directory, record, status
//! client, hooks, convert, terminal  words for the monitor; hooks; a bundle to a plan
//! reach                             a monitor as a process of the host
//! state                             state directories and records
//! cgroup, seccomp                   the host's groups; profiles
//! spec, log, files, deadline, error `config.json`; messages; files; moments; what went wrong
//! ```
//!
//! # Invariants
//!
//! - The state directory is made by mkdir(2), once, and is locked while it changes: of two `create`
//!   of one name, one fails.
//! - A container is *stopped* when its monitor is gone (its pid and start time tell), whatever else
//!   was written; what a killed command left behind, `delete --force` takes away.
//! - The monitor has one thread, and holds none of the container's standard streams once it runs.
//! - Nothing of the container's namespaces is entered by a process of the host: what `exec` and the
//!   startContainer hooks run, runs behind the Sentry. (But its network namespace, by `start` and
//!   `delete`: see [`network`].)
#![forbid(unsafe_code)]

mod cgroup;
mod client;
mod container;
pub mod convert;
mod create;
mod deadline;
mod delete;
mod error;
mod exec;
pub mod files;
mod hooks;
mod launch;
mod leaving;
mod lifecycle;
pub mod log;
pub mod memory;
mod monitor;
mod network;
mod outbox;
mod reach;
mod seccomp;
pub mod spec;
pub mod start;
mod state;
mod terminal;

pub use cgroup::Cgroups;
pub use client::check_request;
pub use container::Info;
pub use convert::nameless_file;
pub use create::{Create, Created, create};
pub use delete::{Force, delete, delete_of};
pub use error::{Error, Result};
pub use exec::{Detached, Exec, base, exec, exec_detached};
pub use leaving::{complete, open_log, resolvers};
pub use lifecycle::{
    After, Ps, Scope, cgroups, change_memory, events, kill, kill_process, kills_for_memory, list,
    memory_map, memory_report, network_report, pause, ps, refresh_network, resume, run, set_rules,
    start, state, tar, update, wait,
};
pub use log::{Format, Log, in_words};
pub use seccomp::features as seccomp_features;
pub use state::{Status, check_id};

use error::Tried;
use std::path::PathBuf;

/// Where a container's writes to its root go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Overlay {
    /// To memory: the host's files stay as they are.
    Memory,
    /// To a file without a name on the file system that the root directory lies on.
    Itself,
    /// To a file without a name in this directory.
    Dir(PathBuf),
    /// To the root directory on the host, as runc's do: container managers keep what is written
    /// there.
    #[default]
    None,
}

/// What the annotations of a bundle may choose. Their writer may be one that may not
/// choose directories of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Annotated {
    /// Where a container's writes go, but for a directory of the host ([`OVERLAY_ANNOTATION`]).
    pub overlay: bool,
    /// That, too.
    pub overlay_dir: bool,
    /// The sandbox that a container joins.
    pub pod: bool,
    /// That its network is closed further ([`ALLOW_ANNOTATION`], [`DENY_ANNOTATION`]).
    pub network: bool,
    /// A file of the host for the packets of its devices ([`PCAP_ANNOTATION`]).
    pub pcap: bool,
}

impl Default for Annotated {
    fn default() -> Annotated {
        Annotated {
            overlay: true,
            overlay_dir: false,
            pod: true,
            network: true,
            pcap: false,
        }
    }
}

impl std::str::FromStr for Annotated {
    type Err = String;
    /// Words with commas between them: overlay, overlay-dir, pod, network, pcap; or none.
    fn from_str(s: &str) -> std::result::Result<Annotated, String> {
        let mut a = Annotated {
            overlay: false,
            overlay_dir: false,
            pod: false,
            network: false,
            pcap: false,
        };
        for word in s.split(',') {
            match word {
                "none" | "" => {}
                "overlay" => a.overlay = true,
                "overlay-dir" => (a.overlay, a.overlay_dir) = (true, true),
                "pod" => a.pod = true,
                "network" => a.network = true,
                "pcap" => a.pcap = true,
                _ => {
                    return Err(format!(
                        "{word:?} is not known: write overlay, overlay-dir, pod, network and pcap with commas between them, or none"
                    ));
                }
            }
        }
        Ok(a)
    }
}

/// The annotation that says the same as `--overlay` for one container.
pub const OVERLAY_ANNOTATION: &str = "dev.cloister.overlay";

/// Annotations that say the same as `--allow` and `--deny` for one container. They only close:
/// where the runtime has rules that allow, no annotation adds another.
pub const ALLOW_ANNOTATION: &str = "dev.cloister.network.allow";
pub const DENY_ANNOTATION: &str = "dev.cloister.network.deny";
/// The annotation that says the same as `--pcap` for one container.
pub const PCAP_ANNOTATION: &str = "dev.cloister.network.pcap";

/// What may leave by a container's devices, and where it is told what may not.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Leaving {
    pub rules: egress::Rules,
    /// Gets a line of JSON for each refusal.
    pub log: Option<PathBuf>,
    /// Where what passes on the devices is written down; `%i` in it is the container's name.
    pub pcap: Option<PathBuf>,
}

impl std::str::FromStr for Overlay {
    type Err = String;
    fn from_str(s: &str) -> std::result::Result<Overlay, String> {
        match s {
            "memory" | "root:memory" => Ok(Overlay::Memory),
            "self" | "root:self" => Ok(Overlay::Itself),
            "none" => Ok(Overlay::None),
            _ => match s.strip_prefix("root:dir=").or(s.strip_prefix("dir=")) {
                Some(dir) if dir.starts_with('/') => Ok(Overlay::Dir(dir.into())),
                Some(_) => Err("write the whole path of a directory: root:dir=/PATH".into()),
                None => Err("write root:memory, root:self, root:dir=/PATH or none".into()),
            },
        }
    }
}

/// What all commands share.
#[derive(Debug)]
pub struct Runtime {
    /// Where the state of containers is.
    pub root: PathBuf,
    pub log: Log,
    pub systemd_cgroup: bool,
    pub kernel: start::KernelOptions,
    pub overlay: Overlay,
    pub annotated: Annotated,
    pub net: Net,
    pub leaving: Leaving,
    pub memory: memory::MemoryOptions,
}

/// The network that containers get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Net {
    /// A loopback of their own.
    None,
    /// The devices of the network namespace that they are in, taken over, beside it.
    #[default]
    Sandbox,
    /// The sockets of the network namespace that they are in.
    Host,
}

impl std::str::FromStr for Net {
    type Err = String;
    fn from_str(s: &str) -> std::result::Result<Net, String> {
        match s {
            "none" => Ok(Net::None),
            "sandbox" => Ok(Net::Sandbox),
            "host" => Ok(Net::Host),
            _ => Err("write none, sandbox or host".into()),
        }
    }
}

/// Where state is kept if nothing is said.
#[must_use]
pub fn default_root() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/run/cloister".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(d) if !d.is_empty() => PathBuf::from(d).join("cloister"),
        _ => std::env::temp_dir().join(format!("cloister-{}", rustix::process::geteuid().as_raw())),
    }
}
