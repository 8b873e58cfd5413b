//! The options of `cloister do` as a plan.

use crate::args::{Do, real_path};
use config::{ContainerSpec, Limits, MountKind, MountSpec, ProcessSpec, RootFs};
use hostcall::{path, start as host};
use oci::start::Plan;
use oci::{Error, Result};
use sandbox::{Access, Outside, RootSpec};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What is to be started.
pub fn plan(args: &Do, network: Outside) -> Result<Plan> {
    let process = args.process_memory.and_then(|n| u64::try_from(n).ok());
    if args.swap.is_some()
        && args.memory.is_none()
        && !oci::memory::is_used(process, args.replacement)
    {
        return Err(Error::new(
            "--swap needs a limit, else nothing is swapped out: say --memory or --process-memory, \
             or --replacement=working-set"
                .to_owned(),
        ));
    }
    let init = init_process(args)?;
    let Shown { roots, mounts } = shown(args, &init.cwd)?;
    Ok(Plan {
        roots,
        container: ContainerSpec {
            hostname: args.hostname.clone(),
            root: RootFs::default(),
            mounts,
            limits: Limits {
                memory: args.memory,
                frames: args.memory,
                swap: args.swap,
                replacement: args.replacement,
                process: args.process_memory,
                ..Limits::default()
            },
            confidential: args.confidential.clone().unwrap_or_default(),
            ..ContainerSpec::default()
        },
        init,
        network,
    })
}

/// What the program gets: the caller's, but for what the command line says.
fn init_process(args: &Do) -> Result<ProcessSpec> {
    let mut envp: Vec<Vec<u8>> = std::env::vars_os()
        .map(|(k, v)| [k.as_bytes(), b"=", v.as_bytes()].concat())
        .collect();
    for (name, value) in &args.env {
        let start = format!("{name}=").into_bytes();
        envp.retain(|e| !e.starts_with(&start));
        envp.push([start.as_slice(), value.as_bytes()].concat());
    }
    let cwd = match &args.cwd {
        Some(d) if d.is_absolute() => d.clone(),
        Some(d) => {
            return Err(Error::Refused(format!(
                "--cwd {} is not an absolute path: write where the program shall start",
                d.display()
            )));
        }
        None => std::env::current_dir().map_err(|e| {
            Error::new(format!(
                "cannot find the current directory ({e}): name one with --cwd"
            ))
        })?,
    };
    let (uid, gid, groups) = match args.user {
        Some((u, g)) => (u, g, Vec::new()),
        None => {
            let (u, g) = path::effective_ids();
            let groups =
                host::groups().map_err(|e| Error::new(format!("cannot read your groups: {e}")))?;
            (u, g, groups)
        }
    };
    let umask = path::umask(0o22);
    path::umask(umask);
    // RLIM_NLIMITS
    let rlimits = (0..16)
        .filter_map(|r| host::rlimit(r).ok().map(|(soft, hard)| (r, soft, hard)))
        .collect();
    let blocked = host::blocked_signals()
        .map_err(|e| Error::new(format!("cannot read your blocked signals: {e}")))?;
    Ok(ProcessSpec {
        ignored: host::inherited_ignored_signals().bits(),
        blocked: blocked.bits(),
        argv: args.command.iter().map(|a| a.clone().into_vec()).collect(),
        envp,
        cwd: cwd.into_os_string().into_vec(),
        uid,
        gid,
        groups,
        rlimits,
        umask,
        ..ProcessSpec::default()
    })
}

/// What the program's root has beside the host's files.
fn own_mounts() -> Vec<MountSpec> {
    const QUIET: u32 = (libc::MS_NOSUID | libc::MS_NODEV) as u32;
    const NOEXEC: u32 = libc::MS_NOEXEC as u32;
    let fs = |target: &str, kind: &str, data: &str, flags: u32| MountSpec {
        target: target.into(),
        kind: MountKind::Fs(kind.into()),
        source: kind.into(),
        flags,
        data: data.into(),
        // A host without the directory simply has no such mount.
        optional: true,
    };
    vec![
        fs("/proc", "proc", "", QUIET | NOEXEC),
        fs("/sys", "sysfs", "", QUIET | NOEXEC | libc::MS_RDONLY as u32),
        fs("/sys/fs/cgroup", "cgroup2", "", QUIET | NOEXEC),
        MountSpec {
            kind: MountKind::Devices,
            ..fs("/dev", "devtmpfs", "mode=755", libc::MS_NOSUID as u32)
        },
        fs(
            "/dev/pts",
            "devpts",
            "gid=5,mode=620,ptmxmode=666",
            libc::MS_NOSUID as u32 | NOEXEC,
        ),
        fs("/dev/shm", "tmpfs", "mode=1777", QUIET),
        fs("/dev/mqueue", "mqueue", "", QUIET),
        fs("/tmp", "tmpfs", "mode=1777", QUIET),
    ]
}

/// The Gofer's roots, of which the first is the host's root directory, and where they appear.
struct Shown {
    roots: Vec<RootSpec>,
    mounts: Vec<MountSpec>,
}

impl Shown {
    fn push(&mut self, path: std::ffi::CString, access: Access, mount: MountSpec) {
        self.roots.push(RootSpec {
            path,
            access,
            recursive: true,
        });
        self.mounts.push(mount);
    }

    /// The number of the next root.
    fn next(&self) -> u32 {
        self.roots.len() as u32
    }

    /// Shows a file or directory at `target`, or where it is.
    fn bind(&mut self, source: &Path, target: Option<&str>, access: Access) -> Result<()> {
        let path = real_path(source)?;
        let target = match target {
            Some(t) => t.to_owned(),
            None => path
                .to_str()
                .map_err(|_| Error::Refused(format!("{} is not UTF-8", source.display())))?
                .to_owned(),
        };
        if access == Access::Writable
            && let Some(fs) = sandbox::kernel_fs(&path)
        {
            return Err(Error::Refused(format!(
                "{} is the host's {fs}, which a sandbox can only read: name it with --volume, without :rw",
                source.display()
            )));
        }
        let mount = MountSpec {
            target,
            kind: MountKind::Host {
                root: self.next(),
                exclusive: false,
            },
            source: "host".into(),
            flags: match access {
                Access::Writable => 0,
                Access::ReadOnly => libc::MS_RDONLY as u32,
            },
            data: String::new(),
            optional: false,
        };
        self.push(path, access, mount);
        Ok(())
    }

    /// The sandbox has a /tmp of its own. A caller that works beneath /tmp still sees its
    /// directory.
    fn working_directory(&mut self, cwd: &[u8]) -> Result<()> {
        let here = Path::new(OsStr::from_bytes(cwd));
        if !here.starts_with("/tmp") || !here.is_dir() {
            return Ok(());
        }
        let path = real_path(here)?;
        let Ok(target) = path.to_str().map(str::to_owned) else {
            return Ok(());
        };
        let mount = MountSpec {
            target,
            kind: MountKind::Layered { root: self.next() },
            source: "overlay".into(),
            flags: (libc::MS_NOSUID | libc::MS_NODEV) as u32,
            data: String::new(),
            optional: false,
        };
        self.push(path, Access::ReadOnly, mount);
        Ok(())
    }
}

fn shown(args: &Do, cwd: &[u8]) -> Result<Shown> {
    let mut shown = Shown {
        roots: vec![RootSpec {
            path: c"/".into(),
            access: Access::ReadOnly,
            recursive: true,
        }],
        mounts: own_mounts(),
    };
    shown.working_directory(cwd)?;
    for w in &args.writable {
        shown.bind(w, None, Access::Writable)?;
    }
    for v in &args.volume {
        shown.bind(&v.source, Some(&v.target), v.access)?;
    }
    Ok(shown)
}
