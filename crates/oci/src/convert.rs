//! From a bundle's words to what the sandbox is told.
//!
//! Each word is honoured, warned of by its name, or refused by its name.

mod mounts;
mod process;

pub use process::{capability, capability_names, process, window};

use crate::cgroup::weight;
use crate::spec::{self, IdMapping, Spec};
use crate::start::Plan;
use crate::state::{Owner, Sandbox};
use crate::{Error, Net, Overlay, Tried};
use config::{ContainerSpec, IdRange, Layer, Limits, Propagation, RootFs, TimeOffset, TimeOffsets};
use mounts::device;
use rustix::fs::{Mode, OFlags};
use sandbox::{Access, Outside, RootSpec};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a bundle becomes.
#[derive(Debug)]
pub struct Converted {
    pub plan: Plan,
    /// The size of the program's terminal, if it wants one.
    pub terminal: Option<(u16, u16)>,
    /// A network namespace of its own: made, or joined.
    pub network: Network,
    /// Whose that namespace's devices are to be.
    pub devices: Owner,
    /// The root file system on the host.
    pub rootfs: PathBuf,
    /// The directory that has room for the root's changes, where they do not go to memory.
    pub layer_dir: Option<PathBuf>,
    /// The directory of the file for the sandbox's swap.
    pub swap_dir: Option<PathBuf>,
    /// The sandbox that it joins, if it is not the first container of one.
    pub pod: Option<Pod>,
    /// What is not honoured, a sentence each.
    pub warnings: Vec<String>,
}

/// A container's place in a sandbox that exists. A namespace that is not its own is the sandbox's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub sandbox: Sandbox,
    pub own_pids: bool,
    pub own_uts: bool,
    pub own_ipc: bool,
    pub own_net: bool,
}

/// The annotations of container managers that tell what a container is in a pod, and which pod it
/// is.
const POD_ANNOTATIONS: [(&str, &str); 2] = [
    (
        "io.kubernetes.cri.container-type",
        "io.kubernetes.cri.sandbox-id",
    ),
    (
        "io.kubernetes.cri-o.ContainerType",
        "io.kubernetes.cri-o.SandboxID",
    ),
];

/// The container whose sandbox this one is to join.
pub fn sandbox_id(spec: &Spec) -> Result<Option<&str>, Error> {
    for (kind, id) in POD_ANNOTATIONS {
        match spec.annotations.get(kind).map(String::as_str) {
            None | Some("sandbox") => {}
            Some("container") => {
                let id = spec.annotations.get(id).map(String::as_str);
                let missing = || {
                    refuse(format!(
                        "annotation {kind} is container, but there is no sandbox id"
                    ))
                };
                return id.map(Some).ok_or_else(missing);
            }
            Some(other) => {
                return Err(refuse(format!(
                    "annotation {kind} is {other:?}: it is sandbox or container"
                )));
            }
        }
    }
    Ok(None)
}

/// The host's side of the container's network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Network {
    /// The host's own namespace: the bundle names no network namespace.
    Host,
    /// A new one.
    New,
    /// One that exists.
    Join(PathBuf),
}

fn refuse(text: impl Into<String>) -> Error {
    Error::Refused(text.into())
}

const RDONLY: u32 = libc::MS_RDONLY as u32;

/// What a plan is made from.
#[derive(Debug)]
pub struct PlanRequest<'a> {
    /// The bundle's directory: relative paths begin there.
    pub bundle: &'a Path,
    pub spec: &'a Spec,
    /// Where writes to the root go.
    pub overlay: Overlay,
    pub net: Net,
    /// What it joins.
    pub sandbox: Option<&'a Sandbox>,
}

/// Reads a plan out of a bundle.
///
/// # Errors
///
/// A word that cannot be honoured, by its name; or the root is not there.
pub fn convert(asked: &PlanRequest<'_>) -> Result<Converted, Error> {
    let spec = asked.spec;
    let mut warnings = Vec::new();
    check_version(&spec.oci_version)?;
    let root = spec.root.as_ref();
    let root = root.ok_or_else(|| refuse("config.json has no root"))?;
    let rootfs = root_directory(asked.bundle, root)?;
    let (layer, layer_dir) = layer(&asked.overlay, root, &rootfs);
    let linux = spec.linux.clone().unwrap_or_default();
    let mut roots = vec![RootSpec {
        path: c_path(&rootfs)?,
        access: access(layer == Layer::None),
        recursive: true,
    }];
    let sandbox_pid = asked.sandbox.map(|s| s.pid);
    let network = namespaces(&linux, sandbox_pid, &mut warnings)?;
    let pod = asked.sandbox.map(|s| Pod::new(s, &linux));
    let host_network = is_passed_through(asked.net, &network);
    if !host_network && pod.is_none() {
        warnings.extend(loopback_only(&network, asked.net));
    }
    check_words(&linux, &mut warnings)?;
    let propagation = propagation(&linux.rootfs_propagation, &mut warnings)?;
    let time = time(&linux)?;
    let (uids, gids) = ids(&linux, &mut warnings)?;
    let mounts = mounts::all(asked.bundle, &spec.mounts, &mut roots, &mut warnings)?;
    let devices: Result<Vec<_>, _> = linux.devices.iter().map(device).collect();
    let devices = devices?;
    let process = spec.process.clone().unwrap_or_default();
    let terminal = process.terminal.then(|| window(&process));
    let init = self::process(&process, &mut warnings)?;
    let seccomp = linux.seccomp.as_ref().map(crate::seccomp::compile);
    let seccomp = seccomp.transpose()?;
    let container = ContainerSpec {
        hostname: match spec.hostname.as_str() {
            "" => HOSTNAME.to_owned(),
            name => host_name(name, "hostname")?,
        },
        domainname: host_name(&spec.domainname, "domainname")?,
        root: RootFs {
            root: 0,
            layer,
            read_only: root.readonly,
        },
        uids,
        gids,
        mounts,
        devices,
        standard_devices: true,
        propagation,
        masked: linux.masked_paths,
        read_only: linux.readonly_paths,
        confidential: crate::memory::confidential(spec)?,
        time,
        sysctls: linux.sysctl.into_iter().collect(),
        limits: linux.resources.as_ref().map(limits).unwrap_or_default(),
        seccomp: seccomp.unwrap_or_default(),
    };
    let devices = owner(asked, &network);
    Ok(Converted {
        plan: Plan {
            roots,
            container,
            init,
            network: if host_network {
                Outside::Host
            } else {
                Outside::Nowhere
            },
        },
        terminal,
        network,
        devices,
        rootfs,
        layer_dir,
        swap_dir: None,
        pod,
        warnings,
    })
}

/// Whether sockets are the host's. An ordinary user's new network namespace is the Sentry's own:
/// there is nothing in it to pass through.
fn is_passed_through(net: Net, network: &Network) -> bool {
    net == Net::Host && (*network != Network::New || rustix::process::geteuid().is_root())
}

/// The root directory on the host, without links.
fn root_directory(bundle: &Path, root: &spec::Root) -> Result<PathBuf, Error> {
    let path = bundle.join(&root.path);
    let path = path
        .canonicalize()
        .map_err(|e| Error::new(format!("cannot find the root {}: {e}", path.display())))?;
    if !path.is_dir() {
        return Err(Error::new(format!(
            "the root {} is not a directory",
            path.display()
        )));
    }
    Ok(path)
}

/// What the root's changes are kept in, and the directory that has room for them.
fn layer(overlay: &Overlay, root: &spec::Root, rootfs: &Path) -> (Layer, Option<PathBuf>) {
    match overlay {
        Overlay::Memory => (Layer::Memory, None),
        Overlay::Itself => (Layer::File, Some(rootfs.to_owned())),
        Overlay::Dir(dir) => (Layer::File, Some(dir.clone())),
        // Nothing is written: what is made at the start (mount points, devices) need not stay on
        // the host.
        Overlay::None if root.readonly => (Layer::Memory, None),
        Overlay::None => (Layer::None, None),
    }
}

impl Pod {
    fn new(sandbox: &Sandbox, linux: &spec::Linux) -> Pod {
        let has_own = |kind| {
            let mut all = linux.namespaces.iter();
            all.any(|n| n.kind == kind && n.path.is_empty())
        };
        Pod {
            sandbox: sandbox.clone(),
            own_pids: has_own("pid"),
            own_uts: has_own("uts"),
            own_ipc: has_own("ipc"),
            own_net: has_own("network"),
        }
    }
}

/// Refuses, or warns of, words that do nothing else.
fn check_words(linux: &spec::Linux, warnings: &mut Vec<String>) -> Result<(), Error> {
    for (word, is_set) in [
        ("linux.mountLabel", !linux.mount_label.is_empty()),
        ("linux.intelRdt", linux.intel_rdt.is_some()),
    ] {
        if is_set {
            warnings.push(format!(
                "{word} has no effect: the host's labels and classes do not apply inside"
            ));
        }
    }
    let foreign = |p: &serde_json::Value| {
        p["domain"] != "LINUX" || p["flags"].as_array().is_some_and(|f| !f.is_empty())
    };
    if linux.personality.as_ref().is_some_and(foreign) {
        return Err(refuse(
            "linux.personality: only LINUX without flags is there",
        ));
    }
    Ok(())
}

/// Its time namespace, if it has one, and `linux.timeOffsets`.
fn time(linux: &spec::Linux) -> Result<Option<TimeOffsets>, Error> {
    if !linux.namespaces.iter().any(|n| n.kind == "time") {
        return match linux.time_offsets.is_empty() {
            true => Ok(None),
            false => Err(refuse(
                "linux.timeOffsets: the container has no time namespace of its own",
            )),
        };
    }
    let mut all = TimeOffsets::default();
    for (clock, by) in &linux.time_offsets {
        if by.nanosecs >= 1_000_000_000 {
            return Err(refuse(format!(
                "linux.timeOffsets: {clock}: nanosecs are less than a second"
            )));
        }
        let offset = TimeOffset {
            secs: by.secs,
            nanosecs: by.nanosecs,
        };
        match clock.as_str() {
            "monotonic" => all.monotonic = offset,
            "boottime" => all.boottime = offset,
            _ => {
                return Err(refuse(format!(
                    "linux.timeOffsets: {clock:?} is no clock of a time namespace"
                )));
            }
        }
    }
    Ok(Some(all))
}

/// `linux.rootfsPropagation`.
fn propagation(word: &str, warnings: &mut Vec<String>) -> Result<Propagation, Error> {
    match word {
        "" | "private" | "rprivate" => Ok(Propagation::Private),
        "unbindable" => Ok(Propagation::Unbindable),
        "runbindable" => Ok(Propagation::AllUnbindable),
        "shared" | "rshared" | "slave" | "rslave" => {
            warnings.push(format!(
                "linux.rootfsPropagation {word} has no effect: mounts inside never reach the host"
            ));
            Ok(Propagation::Private)
        }
        p => Err(refuse(format!(
            "linux.rootfsPropagation: {p:?} is not known"
        ))),
    }
}

/// The ids of users and of groups.
fn ids(
    linux: &spec::Linux,
    warnings: &mut Vec<String>,
) -> Result<(Vec<IdRange>, Vec<IdRange>), Error> {
    let uids = id_ranges(&linux.uid_mappings, "uidMappings")?;
    let gids = id_ranges(&linux.gid_mappings, "gidMappings")?;
    if !rustix::process::geteuid().is_root() && uids.iter().chain(&gids).any(|r| r.count > 1) {
        warnings.push(
            "linux.uidMappings: newuidmap is not used: on the host, all files are this user's"
                .into(),
        );
    }
    Ok((uids, gids))
}

impl Converted {
    /// The file for the root's changes. It never has a name, so it is gone with its last user.
    pub fn layer_file(&self) -> Result<Option<OwnedFd>, Error> {
        let Some(dir) = &self.layer_dir else {
            return Ok(None);
        };
        nameless_file(dir, "the root's changes").map(Some)
    }

    /// The file for the sandbox's swap.
    pub fn swap_file(&self) -> Result<Option<OwnedFd>, Error> {
        let dir = self.swap_dir.as_deref();
        dir.map(|dir| nameless_file(dir, "swap")).transpose()
    }
}

/// An empty file without a name, so that it is gone with its last user.
pub fn nameless_file(dir: &Path, what: &str) -> Result<OwnedFd, Error> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    let step = format!("make a file for {what} in {}", dir.display());
    rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).tried(&step)
}

fn check_version(v: &str) -> Result<(), Error> {
    // Any 1.x: later ones only add words, and those are told.
    match v.split('.').next() {
        Some("1") => Ok(()),
        _ => Err(refuse(format!(
            "ociVersion {v:?}: this runtime knows {}",
            spec::VERSION
        ))),
    }
}

/// A container's name where the bundle has none: the host's, which runc's container would keep,
/// need not be known.
const HOSTNAME: &str = "cloister";

fn host_name(name: &str, word: &str) -> Result<String, Error> {
    // __NEW_UTS_LEN
    if name.len() > 64 || name.contains('\0') {
        return Err(refuse(format!("{word} is longer than 64 bytes")));
    }
    Ok(name.to_owned())
}

fn c_path(p: &Path) -> Result<CString, Error> {
    CString::new(p.as_os_str().as_bytes())
        .map_err(|_| Error::new(format!("{} has a zero byte", p.display())))
}

/// What is made on the way to a path is made one by one.
fn check_depth(word: &str, path: &str) -> Result<(), Error> {
    const DEEPEST: usize = 256;
    if path.split('/').filter(|p| !p.is_empty()).count() > DEEPEST {
        return Err(refuse(format!(
            "{word}: {path} has more than {DEEPEST} components"
        )));
    }
    Ok(())
}

fn access(writable: bool) -> Access {
    if writable {
        Access::Writable
    } else {
        Access::ReadOnly
    }
}

fn namespaces(
    linux: &spec::Linux,
    sandbox: Option<i32>,
    warnings: &mut Vec<String>,
) -> Result<Network, Error> {
    let mut network = Network::Host;
    let mut seen = Vec::new();
    for n in &linux.namespaces {
        if seen.contains(&n.kind.as_str()) {
            return Err(refuse(format!("namespace {} is named twice", n.kind)));
        }
        seen.push(n.kind.as_str());
        match (n.kind.as_str(), n.path.as_str()) {
            ("network", "") => network = Network::New,
            ("network", path) => network = Network::Join(path.into()),
            ("pid" | "mount" | "ipc" | "uts" | "user" | "cgroup" | "time", "") => {}
            // The process that stands for the sandbox on the host.
            ("pid" | "ipc" | "uts", path)
                if sandbox.is_some_and(|p| path.starts_with(&format!("/proc/{p}/ns/"))) => {}
            (kind @ ("pid" | "mount" | "ipc" | "uts" | "user" | "cgroup" | "time"), path) => {
                return Err(refuse(format!(
                    "namespace {kind} with path {path}: a sandbox cannot join a namespace of the host"
                )));
            }
            (kind, _) => {
                return Err(refuse(format!(
                    "namespace {kind}: there is no such thing here"
                )));
            }
        }
    }
    if sandbox.is_none() && !linux.namespaces.iter().any(|n| n.kind == "pid") {
        warnings
            .push("the host's processes are not shown: the container has pids of its own".into());
    }
    Ok(network)
}

/// The network was set up, and is not used: a person wants to know.
fn loopback_only(n: &Network, net: Net) -> Option<String> {
    let (what, way) = match (n, net) {
        (Network::Host, _) => ("the host's network is not shown", ""),
        (Network::Join(_), Net::None) => (
            "the container's network is not used",
            "--net=sandbox takes its devices over, ",
        ),
        _ => return None,
    };
    Some(format!(
        "{what}: the container has a loopback of its own ({way}--net=host passes sockets through)"
    ))
}

/// Whose the devices of the container's network namespace are to be.
fn owner(asked: &PlanRequest<'_>, network: &Network) -> Owner {
    match network {
        // A pod's members have its network.
        _ if asked.net != Net::Sandbox || asked.sandbox.is_some() => Owner::Host,
        Network::New if rustix::process::geteuid().is_root() => Owner::Sandbox { namespace: None },
        Network::Join(path) => Owner::Sandbox {
            namespace: Some(path.clone()),
        },
        Network::Host | Network::New => Owner::Host,
    }
}

fn id_ranges(maps: &[IdMapping], word: &str) -> Result<Vec<IdRange>, Error> {
    let fits = |start: u32, n: u32| u64::from(start) + u64::from(n) <= u64::from(u32::MAX);
    maps.iter()
        .map(|m| {
            if m.size == 0 || !fits(m.container_id, m.size) || !fits(m.host_id, m.size) {
                return Err(refuse(format!(
                    "linux.{word}: a range is empty or too large"
                )));
            }
            Ok(IdRange {
                inside: m.container_id,
                outside: m.host_id,
                count: m.size,
            })
        })
        .collect()
}
/// How many bytes of frames a container may have. Where the host swaps they are more than what may
/// be in memory, as far as the bundle says; what it does not say is left to the host.
fn frames(memory: &spec::Memory) -> Option<i64> {
    let limit = memory.limit.filter(|n| *n != 0)?;
    let swaps = rustix::system::sysinfo().totalswap > 0;
    Some(match memory.swap.filter(|n| *n != 0) {
        _ if !swaps || limit < 0 => limit,
        Some(both) => both,
        None => -1,
    })
}

/// What the container is told of its limits. It keeps those of memory and tasks itself, and the
/// host's cgroups the others.
pub fn limits(r: &spec::Resources) -> Limits {
    let memory = r.memory.clone().unwrap_or_default();
    let cpu = r.cpu.clone().unwrap_or_default();
    Limits {
        memory: memory.limit.filter(|n| *n != 0),
        memory_and_swap: memory.swap.filter(|n| *n != 0),
        reservation: memory.reservation.filter(|n| *n != 0),
        frames: frames(&memory),
        swap: None,
        replacement: None,
        process: None,
        quota: cpu.quota.filter(|n| *n != 0),
        period: cpu.period.filter(|n| *n != 0),
        weight: cpu.shares.filter(|n| *n != 0).map(weight),
        cpus: cpu.cpus.filter(|s| !s.is_empty()),
        mems: cpu.mems.filter(|s| !s.is_empty()),
        pids: r.pids.as_ref().and_then(|p| p.limit),
    }
}
