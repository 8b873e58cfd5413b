//! The Gofer's side of the start.

use crate::privilege::{self as own, Network, Standing};
use crate::spawn::REPORT;
use crate::{Access, Confine, Failure, RootSpec, Spec, step};
use abi::Result;
use abi::errno::{ENOSYS, EPERM};
use hostcall::landlock::{self, Ruleset};
use hostcall::table::Process;
use hostcall::{HostFd, file, path, process, start as host};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;

/// What the Gofer starts with.
pub struct GoferSide {
    /// To the Sentry.
    pub channel: HostFd,
    /// As in the [`Spec`]. Opened with `O_PATH`.
    pub roots: Vec<(HostFd, Access)>,
    /// How many descriptors this process may hold.
    pub max_descriptors: u64,
    /// Whether its mounts are its own, out of reach of what is mounted on the host from now on.
    pub own_mounts: bool,
    /// To be called before the first message is read.
    pub confine: Confine,
}

pub fn prepare(
    spec: &Spec,
    standing: Standing,
    network: Network,
    fds: Vec<HostFd>,
) -> std::result::Result<GoferSide, Failure> {
    let [report, channel] = <[HostFd; 2]>::try_from(fds)
        .map_err(|_| Failure("could not find its descriptors".into()))?;
    // It stays open as long as the process.
    let _ = report.into_raw();
    step("leave the terminal", host::setsid())?;
    step("leave its directory", host::chdir(c"/"))?;
    step("follow the starter", own::die_with_starter(REPORT))?;
    let max_descriptors = own::raise_limits(standing);
    let roots = match standing {
        Standing::Privileged => own_view(spec, network)?,
        Standing::Ordinary { .. } => host_view(spec)?,
    };
    let limits = match standing {
        Standing::Privileged => None,
        Standing::Ordinary { .. } => step("limit itself to its files", limits(spec, &roots))?,
    };
    let keep = capabilities(spec);
    let confine: Confine = Box::new(move || {
        if standing == Standing::Privileged {
            own::empty_root()?;
        }
        own::keep_capabilities(keep)?;
        if let Some(rules) = limits {
            process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
            rules.restrict_self()?;
        }
        own::lock_down(Process::Gofer, REPORT)
    });
    Ok(GoferSide {
        channel,
        roots,
        max_descriptors,
        own_mounts: standing == Standing::Privileged,
        confine,
    })
}

/// Those that files need. Nothing is written where no root is writable.
fn capabilities(spec: &Spec) -> u64 {
    let writes = spec.roots.iter().any(|r| r.access == Access::Writable);
    own::CAP_DAC_READ_SEARCH
        | if writes {
            own::CAP_DAC_OVERRIDE
                | own::CAP_CHOWN
                | own::CAP_FOWNER
                | own::CAP_FSETID
                | own::CAP_MKNOD
        } else {
            0
        }
}

fn open(path: &CStr) -> std::result::Result<HostFd, Failure> {
    let what = || format!("open {}", path.to_string_lossy());
    plain(path).map_err(|e| Failure::new(&what(), e))
}

/// By a path without links: who puts one there after the path was resolved gets nothing opened.
fn plain(path: &CStr) -> Result<HostFd> {
    let flags = (libc::O_PATH | libc::O_NOFOLLOW) as u64;
    let resolve = abi::linux::RESOLVE_NO_SYMLINKS | abi::linux::RESOLVE_NO_MAGICLINKS;
    path::openat2(libc::AT_FDCWD, path, flags, 0, resolve.into())
}

/// The roots as everybody sees them.
fn host_view(spec: &Spec) -> std::result::Result<Vec<(HostFd, Access)>, Failure> {
    let open = |r: &RootSpec| Ok((open(&r.path)?, r.access));
    spec.roots.iter().map(open).collect()
}

/// The roots as mount trees of our own.
fn own_view(spec: &Spec, network: Network) -> std::result::Result<Vec<(HostFd, Access)>, Failure> {
    step("make its namespaces", own::own_namespaces(network))?;
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let r = host::mount(None, c"/", None, private, None);
    step("detach its mounts", r)?;
    let cloned = |r: &RootSpec| {
        let what = format!("open {}", r.path.to_string_lossy());
        Ok((step(&what, tree(r))?, r.access))
    };
    let mut roots = Vec::new();
    for r in &spec.roots {
        roots.push((!r.is_host_root()).then(|| cloned(r)).transpose()?);
    }
    // The sandbox has its own of these; the host's would show processes and devices. What was asked for below
    // them is cloned by now.
    if spec.roots.iter().any(RootSpec::is_host_root) {
        for p in [c"/proc", c"/sys", c"/dev"] {
            // As many as are stacked there; each goes with what is mounted below it.
            for _ in 0..16 {
                if host::umount_detach(p).is_err() {
                    break;
                }
            }
        }
    }
    let roots = roots
        .into_iter()
        .zip(&spec.roots)
        .map(|(made, r)| made.map_or_else(|| cloned(r), Ok))
        .collect::<std::result::Result<Vec<_>, Failure>>()?;
    if !std::fs::exists("/proc/self/fd").unwrap_or(false) {
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let proc = Some(c"proc");
        // Older hosts do not know the option.
        let r = host::mount(proc, c"/proc", proc, flags, Some(c"subset=pid"))
            .or_else(|_| host::mount(proc, c"/proc", proc, flags, None));
        step("mount its /proc", r)?;
    }
    Ok(roots)
}

/// The mounts at and below `path`: what the application may not do there is refused by the kernel.
fn tree(root: &RootSpec) -> Result<HostFd> {
    const MOUNT_ATTR_RDONLY: u64 = 1;
    const MOUNT_ATTR_NOSUID: u64 = 2;
    const MOUNT_ATTR_NODEV: u64 = 4;
    let mut attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if root.access == Access::ReadOnly {
        attributes |= MOUNT_ATTR_RDONLY;
    }
    let at = plain(&root.path)?;
    let made = host::clone_mounts(&at, root.recursive)
        .and_then(|t| host::harden_mounts(&t, attributes).map(|()| t));
    match made {
        // Linux before 5.12, or a container that does not allow it: the Gofer's own checks stand alone.
        Err(ENOSYS | EPERM) => Ok(at),
        r => r,
    }
}

/// What stands in for mount trees of our own where they cannot be made: nothing can be written but below the
/// writable roots, and nothing be read below the host's `/proc`, `/sys` and `/dev`. `None` where the host
/// (before Linux 6.2) cannot do that.
fn limits(spec: &Spec, roots: &[(HostFd, Access)]) -> Result<Option<Ruleset>> {
    const READ: u64 = landlock::READ_FILE | landlock::EXECUTE;
    if landlock::version() < 3 {
        return Ok(None);
    }
    let rules = Ruleset::new(landlock::ALL)?;
    let allow = |fd: &HostFd, rights: u64| {
        let kind = file::fstat(fd.raw())?.st_mode & libc::S_IFMT;
        match kind {
            libc::S_IFDIR => rules.allow(fd.raw(), rights),
            libc::S_IFREG => rules.allow(fd.raw(), rights & landlock::OF_FILES),
            _ => Ok(()),
        }
    };
    let mut host_root = None;
    for ((fd, access), asked) in roots.iter().zip(&spec.roots) {
        match access {
            Access::Writable => allow(fd, landlock::ALL)?,
            // Names may be listed everywhere.
            Access::ReadOnly if asked.is_host_root() => {
                allow(fd, landlock::READ_DIR)?;
                host_root = Some(fd);
            }
            Access::ReadOnly => allow(fd, READ | landlock::READ_DIR)?,
        }
    }
    let Some(host_root) = host_root else {
        return Ok(Some(rules));
    };
    for entry in std::fs::read_dir("/").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let kept = !matches!(name.as_bytes(), b"proc" | b"sys" | b"dev");
        if let (true, Ok(name)) = (kept, CString::new(name.as_bytes())) {
            let flags = (libc::O_PATH | libc::O_NOFOLLOW) as u64;
            if let Ok(fd) = path::openat2(host_root.raw(), &name, flags, 0, 0) {
                allow(&fd, READ | landlock::READ_DIR)?;
            }
        }
    }
    Ok(Some(rules))
}
