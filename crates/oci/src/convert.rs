//! From a bundle's words to what the sandbox is told.
//!
//! Each word is honoured, warned of by its name, or refused by its name.

use crate::spec::{self, Capabilities, IdMapping, Mount, Rlimit, Spec};
use crate::{Failure, Overlay, Tried};
use rustix::fs::{Mode, OFlags};
use sandbox::{Access, RootSpec};
use sentry::boot::config::{
    CapSets, ContainerSpec, DeviceNode, IdRange, Layer, MountKind, MountSpec, ProcessSpec, RootFs,
};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a bundle becomes.
#[derive(Debug)]
pub struct Plan {
    pub roots: Vec<RootSpec>,
    pub container: ContainerSpec,
    pub init: ProcessSpec,
    pub terminal: Option<(u16, u16)>,
    /// A network namespace of its own: made, or joined.
    pub network: Network,
    /// Whether that network's sockets are passed through.
    pub host_network: bool,
    /// The root file system on the host.
    pub rootfs: PathBuf,
    /// The directory that has room for the root's changes, where they do not go to memory.
    pub layer_dir: Option<PathBuf>,
    /// The sandbox that it joins, if it is not the first container of one.
    pub pod: Option<Pod>,
    /// What is not honoured, a sentence each.
    pub warnings: Vec<String>,
}

/// A container's place in a sandbox that exists. A namespace that is not its own is the sandbox's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// The container that the sandbox began with.
    pub sandbox: String,
    pub own_pids: bool,
    pub own_uts: bool,
    pub own_ipc: bool,
    pub own_net: bool,
}

/// The annotations of container managers that tell what a container is in a pod, and which pod it is.
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
pub fn sandbox_id(spec: &Spec) -> Result<Option<&str>, Failure> {
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

fn refuse(text: impl Into<String>) -> Failure {
    Failure(text.into())
}

const RDONLY: u32 = libc::MS_RDONLY as u32;

/// Reads the plan out of a bundle.
///
/// `sandbox`: the container whose sandbox it joins, and the process that stands for it on the host.
pub fn plan(
    bundle: &Path,
    spec: &Spec,
    overlay: Overlay,
    host_network: bool,
    sandbox: Option<(&str, i32)>,
) -> Result<Plan, Failure> {
    let mut warnings = Vec::new();
    check_version(&spec.oci_version)?;
    let root = spec
        .root
        .as_ref()
        .ok_or_else(|| refuse("config.json has no root"))?;
    let rootfs = bundle.join(&root.path);
    let rootfs = rootfs
        .canonicalize()
        .map_err(|e| Failure(format!("cannot find the root {}: {e}", rootfs.display())))?;
    if !rootfs.is_dir() {
        return Err(Failure(format!(
            "the root {} is not a directory",
            rootfs.display()
        )));
    }
    let (layer, layer_dir) = match overlay {
        Overlay::Memory => (Layer::Memory, None),
        Overlay::Itself => (Layer::File, Some(rootfs.clone())),
        Overlay::Dir(dir) => (Layer::File, Some(dir)),
        Overlay::None => (Layer::None, None),
    };
    let linux = spec.linux.clone().unwrap_or_default();
    let writable = layer == Layer::None && !root.readonly;
    let mut roots = vec![RootSpec {
        path: c_path(&rootfs)?,
        access: access(writable),
        recursive: true,
    }];
    let network = namespaces(&linux, sandbox.map(|s| s.1), &mut warnings)?;
    let has_own = |kind| {
        linux
            .namespaces
            .iter()
            .any(|n| n.kind == kind && n.path.is_empty())
    };
    let pod = sandbox.map(|(id, _)| Pod {
        sandbox: id.to_owned(),
        own_pids: has_own("pid"),
        own_uts: has_own("uts"),
        own_ipc: has_own("ipc"),
        own_net: has_own("network"),
    });
    // An ordinary user's new network namespace is the Sentry's own: there is nothing in it to pass through.
    let host_network =
        host_network && (network != Network::New || rustix::process::geteuid().is_root());
    if !host_network && pod.is_none() {
        warnings.extend(loopback_only(&network));
    }
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
    if linux.time_offsets.is_some() {
        return Err(refuse("linux.timeOffsets: there are no time namespaces"));
    }
    match linux.rootfs_propagation.as_str() {
        "" | "private" | "rprivate" | "unbindable" | "runbindable" => {}
        p @ ("shared" | "rshared" | "slave" | "rslave") => warnings.push(format!(
            "linux.rootfsPropagation {p} has no effect: mounts inside never reach the host"
        )),
        p => {
            return Err(refuse(format!(
                "linux.rootfsPropagation: {p:?} is not known"
            )));
        }
    }
    let uids = id_ranges(&linux.uid_mappings, "uidMappings")?;
    let gids = id_ranges(&linux.gid_mappings, "gidMappings")?;
    if !rustix::process::geteuid().is_root() && uids.iter().chain(&gids).any(|r| r.count > 1) {
        warnings.push(
            "linux.uidMappings: newuidmap is not used: on the host, all files are this user's"
                .into(),
        );
    }
    let mut mounts = Vec::new();
    for m in &spec.mounts {
        if let Some(made) = mount(bundle, m, &mut roots, &mut warnings)? {
            mounts.push(made);
        }
    }
    let devices = linux
        .devices
        .iter()
        .map(device)
        .collect::<Result<Vec<_>, _>>()?;
    let process = spec.process.clone().unwrap_or_default();
    let terminal = process.terminal.then(|| window(&process));
    let init = self::process(&process, &mut warnings)?;
    let seccomp = linux
        .seccomp
        .as_ref()
        .map(crate::seccomp::compile)
        .transpose()?;
    Ok(Plan {
        roots,
        container: ContainerSpec {
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
            masked: linux.masked_paths,
            read_only: linux.readonly_paths,
            sysctls: linux.sysctl.into_iter().collect(),
            pids_limit: linux
                .resources
                .as_ref()
                .and_then(|r| r.pids.as_ref()?.limit)
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0),
            seccomp: seccomp.unwrap_or_default(),
        },
        init,
        terminal,
        network,
        host_network,
        rootfs,
        layer_dir,
        pod,
        warnings,
    })
}

impl Plan {
    /// The file for the root's changes. It never has a name, so it is gone with its last user.
    pub fn layer_file(&self) -> Result<Option<OwnedFd>, Failure> {
        let Some(dir) = &self.layer_dir else {
            return Ok(None);
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let f = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).tried(&format!(
            "make a file for the root's changes in {}",
            dir.display()
        ))?;
        Ok(Some(f))
    }
}

fn check_version(v: &str) -> Result<(), Failure> {
    // Any 1.x: later ones only add words, and those are told.
    match v.split('.').next() {
        Some("1") => Ok(()),
        _ => Err(refuse(format!(
            "ociVersion {v:?}: this runtime knows {}",
            spec::VERSION
        ))),
    }
}

/// A container's name where the bundle has none: the host's, which runc's container would keep, need not be known.
const HOSTNAME: &str = "cloister";

fn host_name(name: &str, word: &str) -> Result<String, Failure> {
    // __NEW_UTS_LEN
    if name.len() > 64 || name.contains('\0') {
        return Err(refuse(format!("{word} is longer than 64 bytes")));
    }
    Ok(name.to_owned())
}

fn c_path(p: &Path) -> Result<CString, Failure> {
    CString::new(p.as_os_str().as_bytes())
        .map_err(|_| Failure(format!("{} has a zero byte", p.display())))
}

/// What is made on the way to a path is made one by one.
fn check_depth(word: &str, path: &str) -> Result<(), Failure> {
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
) -> Result<Network, Failure> {
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
            ("pid" | "mount" | "ipc" | "uts" | "user" | "cgroup", "") => {}
            // The process that stands for the sandbox on the host.
            ("pid" | "ipc" | "uts", path)
                if sandbox.is_some_and(|p| path.starts_with(&format!("/proc/{p}/ns/"))) => {}
            (kind @ ("pid" | "mount" | "ipc" | "uts" | "user" | "cgroup"), path) => {
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

/// What a person who set up a network wants to know.
fn loopback_only(n: &Network) -> Option<String> {
    let what = match n {
        Network::New => return None,
        Network::Host => "the host's network is not shown",
        Network::Join(_) => "the container's network is not used yet",
    };
    Some(format!(
        "{what}: the container has a loopback of its own (--net=host passes sockets through)"
    ))
}

fn id_ranges(maps: &[IdMapping], word: &str) -> Result<Vec<IdRange>, Failure> {
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

/// A mount's options, read.
#[derive(Default)]
struct MountOptions {
    flags: u32,
    bind: Option<bool>,
    data: Vec<String>,
    exclusive: bool,
}

fn mount_options(m: &Mount, warnings: &mut Vec<String>) -> Result<MountOptions, Failure> {
    let mut o = MountOptions::default();
    for word in m.options.iter().flatten() {
        let (set, bit) = match word.as_str() {
            "ro" | "rro" => (true, libc::MS_RDONLY),
            "rw" | "rrw" => (false, libc::MS_RDONLY),
            "nosuid" | "rnosuid" => (true, libc::MS_NOSUID),
            "suid" | "rsuid" => (false, libc::MS_NOSUID),
            "nodev" | "rnodev" => (true, libc::MS_NODEV),
            "dev" | "rdev" => (false, libc::MS_NODEV),
            "noexec" | "rnoexec" => (true, libc::MS_NOEXEC),
            "exec" | "rexec" => (false, libc::MS_NOEXEC),
            "noatime" | "rnoatime" => (true, libc::MS_NOATIME),
            "atime" | "ratime" => (false, libc::MS_NOATIME),
            "nodiratime" | "rnodiratime" => (true, libc::MS_NODIRATIME),
            "diratime" | "rdiratime" => (false, libc::MS_NODIRATIME),
            "relatime" | "rrelatime" => (true, libc::MS_RELATIME),
            "norelatime" | "rnorelatime" => (false, libc::MS_RELATIME),
            "strictatime" | "rstrictatime" => (true, libc::MS_STRICTATIME),
            "nostrictatime" | "rnostrictatime" => (false, libc::MS_STRICTATIME),
            "nosymfollow" | "rnosymfollow" => {
                return Err(refuse(format!(
                    "mount {}: option {word} is not there",
                    m.destination
                )));
            }
            "sync" => (true, libc::MS_SYNCHRONOUS),
            "async" => (false, libc::MS_SYNCHRONOUS),
            "dirsync" => (true, libc::MS_DIRSYNC),
            "bind" => {
                o.bind.get_or_insert(false);
                continue;
            }
            "rbind" => {
                o.bind = Some(true);
                continue;
            }
            "private" | "rprivate" | "unbindable" | "runbindable" | "defaults" | "slave"
            | "rslave" | "nofail" | "silent" | "loud" | "mand" | "nomand" | "iversion"
            | "noiversion" | "acl" | "noacl" => continue,
            "shared" | "rshared" => {
                warnings.push(format!(
                    "mount {}: {word} has no effect: mounts inside never reach the host",
                    m.destination
                ));
                continue;
            }
            "idmap" | "ridmap" => {
                return Err(refuse(format!(
                    "mount {}: {word} is not supported",
                    m.destination
                )));
            }
            "tmpcopyup" => {
                warnings.push(format!(
                    "mount {}: tmpcopyup has no effect: it begins empty",
                    m.destination
                ));
                continue;
            }
            // Of ours: nobody but the container changes it.
            "exclusive" => {
                o.exclusive = true;
                continue;
            }
            _ => {
                o.data.push(word.clone());
                continue;
            }
        };
        if set {
            o.flags |= bit as u32;
        } else {
            o.flags &= !(bit as u32);
        }
    }
    Ok(o)
}

/// `None` for what is not mounted.
fn mount(
    bundle: &Path,
    m: &Mount,
    roots: &mut Vec<RootSpec>,
    warnings: &mut Vec<String>,
) -> Result<Option<MountSpec>, Failure> {
    if m.destination.is_empty() {
        return Err(refuse("a mount has no destination"));
    }
    // Relative ones are of the root directory (older bundles have them).
    let target = format!("/{}", m.destination.trim_start_matches('/'));
    check_depth("mount", &target)?;
    let o = mount_options(m, warnings)?;
    if !m.uid_mappings.is_empty() || !m.gid_mappings.is_empty() {
        return Err(refuse(format!(
            "mount {target}: uidMappings are not supported"
        )));
    }
    let kind = m.kind.as_deref().unwrap_or("bind");
    let source = m.source.clone().unwrap_or_else(|| kind.to_owned());
    let mut made = MountSpec {
        target,
        kind: MountKind::Fs(kind.to_owned()),
        source: source.clone(),
        flags: o.flags,
        data: String::new(),
        optional: false,
    };
    if kind == "bind" || o.bind.is_some() {
        let path = bundle.join(&source);
        let path = path.canonicalize().map_err(|e| {
            Failure(format!(
                "mount {}: cannot find {}: {e}",
                made.target,
                path.display()
            ))
        })?;
        if let Some(word) = o.data.first() {
            return Err(refuse(format!(
                "mount {}: option {word} is not known for a bind mount",
                made.target
            )));
        }
        made.kind = MountKind::Host {
            root: roots.len() as u32,
            exclusive: o.exclusive,
        };
        made.source = path.display().to_string();
        roots.push(RootSpec {
            path: c_path(&path)?,
            access: access(o.flags & RDONLY == 0),
            recursive: o.bind.unwrap_or(true),
        });
        return Ok(Some(made));
    }
    made.data = match kind {
        "tmpfs" | "ramfs" => {
            made.kind = MountKind::Fs("tmpfs".into());
            o.data.join(",")
        }
        "proc" | "sysfs" => String::new(),
        "devpts" => o
            .data
            .iter()
            // Every devpts is an instance of its own.
            .filter(|w| *w != "newinstance")
            .cloned()
            .collect::<Vec<_>>()
            .join(","),
        "mqueue" => String::new(),
        "cgroup" | "cgroup2" => {
            made.kind = MountKind::Fs("cgroup2".into());
            made.source = "cgroup".into();
            String::new()
        }
        _ => {
            return Err(refuse(format!(
                "mount {}: file systems of type {kind} are not supported",
                made.target
            )));
        }
    };
    Ok(Some(made))
}

fn device(d: &spec::Device) -> Result<DeviceNode, Failure> {
    let kind = match d.kind.as_str() {
        "c" | "u" => libc::S_IFCHR,
        "b" => libc::S_IFBLK,
        "p" => libc::S_IFIFO,
        k => {
            return Err(refuse(format!(
                "device {}: type {k:?} is none of c, b, u, p",
                d.path
            )));
        }
    };
    if !d.path.starts_with('/') {
        return Err(refuse(format!(
            "device {}: the path is not absolute",
            d.path
        )));
    }
    let number = |n: i64| {
        u32::try_from(n)
            .ok()
            .filter(|n| *n < 1 << 20)
            .ok_or_else(|| refuse(format!("device {}: {n} is no device number", d.path)))
    };
    let fifo = kind == libc::S_IFIFO;
    Ok(DeviceNode {
        path: d.path.clone(),
        mode: kind | d.file_mode.unwrap_or(0o666) & 0o7777,
        major: if fifo { 0 } else { number(d.major)? },
        minor: if fifo { 0 } else { number(d.minor)? },
        uid: d.uid.unwrap_or(0),
        gid: d.gid.unwrap_or(0),
    })
}

/// Rows and columns that a terminal begins with.
#[must_use]
pub fn window(p: &spec::Process) -> (u16, u16) {
    p.console_size
        .as_ref()
        .filter(|s| s.height != 0 && s.width != 0)
        .map_or((24, 80), |s| (s.height, s.width))
}

/// `process`.
pub fn process(p: &spec::Process, warnings: &mut Vec<String>) -> Result<ProcessSpec, Failure> {
    if p.args.is_empty() {
        return Err(refuse("process.args is empty"));
    }
    if !p.cwd.starts_with('/') {
        return Err(refuse(format!(
            "process.cwd {:?} is not an absolute path",
            p.cwd
        )));
    }
    check_depth("process.cwd", &p.cwd)?;
    for text in p.args.iter().chain(&p.env).chain([&p.cwd]) {
        if text.contains('\0') {
            return Err(refuse("process: a text has a zero byte"));
        }
    }
    for (word, is_set) in [
        ("apparmorProfile", !p.apparmor_profile.is_empty()),
        ("selinuxLabel", !p.selinux_label.is_empty()),
        ("ioPriority", p.io_priority.is_some()),
        ("scheduler", p.scheduler.is_some()),
        ("execCPUAffinity", p.exec_cpu_affinity.is_some()),
    ] {
        if is_set {
            warnings.push(format!(
                "process.{word} has no effect: the application never meets the host's kernel"
            ));
        }
    }
    let mut envp: Vec<Vec<u8>> = p.env.iter().map(|e| e.clone().into_bytes()).collect();
    if !envp.iter().any(|e| e.starts_with(b"HOME=")) {
        // As runc: the image's password file would tell better, but a program that minds sets it.
        let home: &[u8] = if p.user.uid == 0 {
            b"HOME=/root"
        } else {
            b"HOME=/"
        };
        envp.push(home.to_vec());
    }
    Ok(ProcessSpec {
        argv: p.args.iter().map(|a| a.clone().into_bytes()).collect(),
        envp,
        cwd: p.cwd.clone().into_bytes(),
        uid: p.user.uid,
        gid: p.user.gid,
        groups: groups(&p.user.additional_gids),
        rlimits: rlimits(&p.rlimits)?,
        umask: p.user.umask.unwrap_or(0o022) & 0o777,
        // None of whoever called the runtime.
        ignored: 0,
        blocked: 0,
        caps: Some(caps(p.capabilities.as_ref(), warnings)),
        no_new_privs: p.no_new_privileges,
        oom_score_adj: p.oom_score_adj.unwrap_or(0).clamp(-1000, 1000),
        make_cwd: true,
    })
}

/// Each once.
fn groups(gids: &[u32]) -> Vec<u32> {
    let mut all = gids.to_vec();
    all.sort_unstable();
    all.dedup();
    all
}

/// `RLIMIT_*` by number (`include/uapi/asm-generic/resource.h`).
const RLIMITS: [&str; 16] = [
    "CPU",
    "FSIZE",
    "DATA",
    "STACK",
    "CORE",
    "RSS",
    "NPROC",
    "NOFILE",
    "MEMLOCK",
    "AS",
    "LOCKS",
    "SIGPENDING",
    "MSGQUEUE",
    "NICE",
    "RTPRIO",
    "RTTIME",
];

fn rlimits(asked: &[Rlimit]) -> Result<Vec<(u32, u64, u64)>, Failure> {
    let mut all: Vec<(u32, u64, u64)> = Vec::new();
    for r in asked {
        let name = r.kind.strip_prefix("RLIMIT_").unwrap_or_default();
        let n = RLIMITS
            .iter()
            .position(|l| *l == name)
            .ok_or_else(|| refuse(format!("rlimit {:?} is not known", r.kind)))?
            as u32;
        if all.iter().any(|l| l.0 == n) {
            return Err(refuse(format!("rlimit {} is given twice", r.kind)));
        }
        if r.soft > r.hard {
            return Err(refuse(format!("rlimit {}: soft is above hard", r.kind)));
        }
        all.push((n, r.soft, r.hard));
    }
    Ok(all)
}

/// Capabilities by number (`include/uapi/linux/capability.h`).
const CAPS: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The number of a capability, by its name with or without `CAP_`.
#[must_use]
pub fn capability(name: &str) -> Option<u32> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    CAPS.iter().position(|c| *c == bare).map(|n| n as u32)
}

fn caps(c: Option<&Capabilities>, warnings: &mut Vec<String>) -> CapSets {
    let Some(c) = c else {
        return CapSets::default();
    };
    let mut set = |names: &[String]| {
        let mut bits = 0;
        for n in names {
            match capability(n) {
                Some(bit) => bits |= 1 << bit,
                None => {
                    let text = format!("capability {n:?} is not known and is left out");
                    if !warnings.contains(&text) {
                        warnings.push(text);
                    }
                }
            }
        }
        bits
    };
    CapSets {
        bounding: set(&c.bounding),
        effective: set(&c.effective),
        permitted: set(&c.permitted),
        inheritable: set(&c.inheritable),
        ambient: set(&c.ambient),
    }
}

/// The names of all capabilities, for `features`.
pub fn capability_names() -> impl Iterator<Item = String> {
    CAPS.iter().map(|c| format!("CAP_{c}"))
}
