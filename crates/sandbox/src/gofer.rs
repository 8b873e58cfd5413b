//! The Gofer's side of the start.

use crate::privilege::{self as own, Standing};
use crate::spawn::REPORT;
use crate::{Access, Confine, Failure, Spec, step};
use abi::Result;
use abi::errno::{ENOSYS, EPERM};
use hostcall::table::Process;
use hostcall::{HostFd, path, start as host};
use std::ffi::CStr;

/// What the Gofer starts with.
pub struct GoferSide {
    /// To the Sentry.
    pub channel: HostFd,
    /// Root 0 is the host's root directory; the others are as in the [`Spec`]. Opened with `O_PATH`.
    pub roots: Vec<(HostFd, Access)>,
    /// How many descriptors this process may hold.
    pub max_descriptors: u64,
    /// To be called before the first message is read.
    pub confine: Confine,
}

pub fn prepare(
    spec: &Spec,
    standing: Standing,
    fds: Vec<HostFd>,
) -> std::result::Result<GoferSide, Failure> {
    let [report, channel] = <[HostFd; 2]>::try_from(fds)
        .map_err(|_| Failure("could not find its descriptors".into()))?;
    // It stays open as long as the process.
    let _ = report.into_raw();
    step("leave the terminal", host::setsid())?;
    step("follow the starter", own::die_with_starter(REPORT))?;
    let max_descriptors = own::raise_limits(standing);
    let roots = match standing {
        Standing::Privileged => own_view(spec)?,
        Standing::Ordinary { .. } => host_view(spec)?,
    };
    let keep = capabilities(spec);
    let confine: Confine = Box::new(move || {
        if standing == Standing::Privileged {
            own::empty_root()?;
        }
        own::keep_capabilities(keep)?;
        own::lock_down(Process::Gofer, REPORT)
    });
    Ok(GoferSide {
        channel,
        roots,
        max_descriptors,
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
    let flags = (libc::O_PATH | libc::O_NOFOLLOW) as u64;
    let what = || format!("open {}", path.to_string_lossy());
    path::openat2(libc::AT_FDCWD, path, flags, 0, 0).map_err(|e| Failure::new(&what(), e))
}

/// The roots as everybody sees them.
fn host_view(spec: &Spec) -> std::result::Result<Vec<(HostFd, Access)>, Failure> {
    let mut roots = vec![(open(c"/")?, Access::ReadOnly)];
    for r in &spec.roots {
        roots.push((open(&r.path)?, r.access));
    }
    Ok(roots)
}

/// The roots as mount trees of our own.
fn own_view(spec: &Spec) -> std::result::Result<Vec<(HostFd, Access)>, Failure> {
    step("make its namespaces", own::own_namespaces())?;
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let r = host::mount(None, c"/", None, private, None);
    step("detach its mounts", r)?;
    let mut roots = Vec::new();
    for r in &spec.roots {
        let what = format!("open {}", r.path.to_string_lossy());
        roots.push((step(&what, tree(&r.path, r.access))?, r.access));
    }
    // The sandbox has its own; the host's would show processes and devices.
    for p in [c"/proc", c"/sys", c"/dev"] {
        // As many as are stacked there; each goes with what is mounted below it.
        for _ in 0..16 {
            if host::umount_detach(p).is_err() {
                break;
            }
        }
    }
    let root = step("open /", tree(c"/", Access::ReadOnly))?;
    roots.insert(0, (root, Access::ReadOnly));
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
fn tree(path: &CStr, access: Access) -> Result<HostFd> {
    const MOUNT_ATTR_RDONLY: u64 = 1;
    const MOUNT_ATTR_NOSUID: u64 = 2;
    const MOUNT_ATTR_NODEV: u64 = 4;
    let mut attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if access == Access::ReadOnly {
        attributes |= MOUNT_ATTR_RDONLY;
    }
    let made =
        host::clone_mounts(path).and_then(|t| host::harden_mounts(&t, attributes).map(|()| t));
    match made {
        // Linux before 5.12, or a container that does not allow it: the Gofer's own checks stand alone.
        Err(ENOSYS | EPERM) => {
            let flags = (libc::O_PATH | libc::O_NOFOLLOW) as u64;
            path::openat2(libc::AT_FDCWD, path, flags, 0, 0)
        }
        r => r,
    }
}
