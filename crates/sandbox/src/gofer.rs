//! The Gofer's side of the start.

use crate::privilege::{self as own, Network, Standing};
use crate::spawn::{self, REPORT};
use crate::{Access, Confine, Error, RootSpec, Spec, step};
use abi::Result;
use abi::errno::{EINVAL, ENOSYS, EPERM};
use gofer::kernel_fs::{self, Kind};
use gofer::server::Mounts;
use hostcall::landlock::{self, Ruleset};
use hostcall::start::{self as host, Below};
use hostcall::table::Process;
use hostcall::{HostFd, file, path, process};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;

const MOUNT_ATTR_RDONLY: u64 = 1;

/// What the Gofer starts with.
pub struct GoferSide {
    /// To the Sentry.
    pub channel: HostFd,
    /// As in the [`Spec`]. Opened with `O_PATH`.
    pub roots: Vec<(HostFd, Access)>,
    /// How many descriptors this process may hold.
    pub max_descriptors: u64,
    pub mounts: Mounts,
    /// What a procfs among the roots shows as `net`.
    pub network: Option<HostFd>,
    /// To be called before the first message is read.
    pub confine: Confine,
}

pub fn prepare(
    spec: &Spec,
    standing: Standing,
    network: Network,
    fds: Vec<HostFd>,
) -> std::result::Result<GoferSide, Error> {
    let [report, channel] = <[HostFd; 2]>::try_from(fds).map_err(|_| Error::NoDescriptors)?;
    if standing == Standing::Privileged {
        spawn::await_admission(&report)?;
    }
    // It stays open as long as the process.
    let _ = report.into_raw();
    step("leave the terminal", host::setsid())?;
    step("leave its directory", host::chdir(c"/"))?;
    step("follow the starter", own::die_with_starter(REPORT))?;
    let max_descriptors = match standing {
        Standing::Privileged => step("read its limits", host::rlimit(libc::RLIMIT_NOFILE))?.0,
        Standing::Ordinary { .. } => own::raise_limits(standing, 0),
    };
    let roots = match standing {
        Standing::Privileged => own_view(spec, network)?,
        Standing::Ordinary { .. } => host_view(spec)?,
    };
    let limits = match standing {
        Standing::Privileged => None,
        Standing::Ordinary { .. } => step("limit itself to its files", limits(spec, &roots))?,
    };
    let network = roots.iter().find_map(|(fd, _)| network_in(fd));
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
        mounts: match standing {
            Standing::Privileged => Mounts::Own,
            Standing::Ordinary { .. } => Mounts::Hosts,
        },
        network,
        confine,
    })
}

/// Those that files need. Nothing is written where no root is writable.
fn capabilities(spec: &Spec) -> u64 {
    let writes = spec.roots.iter().any(|r| r.access == Access::Writable);
    own::CAP_DAC_READ_SEARCH
        | if writes {
            own::CAP_DAC_OVERRIDE | own::CAP_CHOWN | own::CAP_FOWNER | own::CAP_FSETID
        } else {
            0
        }
}

/// Opens a root by its path, and tells what its files are.
fn named(path: &CStr) -> std::result::Result<(HostFd, Kind), Error> {
    let shown = path.to_string_lossy();
    let what = format!("open {shown}");
    let fd = step(&what, plain(path))?;
    match step(&what, kernel_fs::of(&fd))? {
        (Kind::Closed, name) => Err(Error::NotShown {
            path: shown.into(),
            why: format!("it is the host's {}", name.unwrap_or_default()),
        }),
        (Kind::Proc, _) => match step(&what, within_proc(path))? {
            Some(fd) => Ok((fd, Kind::Proc)),
            None => Err(Error::NotShown {
                path: shown.into(),
                why: "of the host's procfs it shows no processes, keys and memory".into(),
            }),
        },
        (kind, _) => Ok((fd, kind)),
    }
}

/// A path within a procfs, if it is among what is shown of that.
fn within_proc(path: &CStr) -> Result<Option<HostFd>> {
    let bytes = path.to_bytes();
    let ends = (1..bytes.len()).rev().filter(|i| bytes[*i] == b'/');
    for end in ends {
        let above = CString::new(&bytes[..end]).map_err(|_| EINVAL)?;
        let top = plain(&above)?;
        match kernel_fs::of(&top)?.0 {
            Kind::ProcTop => {
                let rest = &bytes[end + 1..];
                let name = rest.split(|b| *b == b'/').next().unwrap_or_default();
                if name == kernel_fs::NET || !kernel_fs::is_shown(name) {
                    return Ok(None);
                }
                let rest = CString::new(rest).map_err(|_| EINVAL)?;
                let resolve = abi::linux::RESOLVE_BENEATH
                    | abi::linux::RESOLVE_NO_XDEV
                    | abi::linux::RESOLVE_NO_SYMLINKS;
                let flags = (libc::O_PATH | libc::O_NOFOLLOW) as u64;
                return path::openat2(top.raw(), &rest, flags, 0, resolve.into()).map(Some);
            }
            Kind::Proc => {}
            _ => break,
        }
    }
    Ok(None)
}

/// The starter's network namespace as a procfs shows it, if this is the top of one that shows the
/// starter. (Its number there is asked of that procfs: it may be of another pid namespace than the
/// one on `/proc`.)
fn network_in(root: &HostFd) -> Option<HostFd> {
    if kernel_fs::of(root).ok()?.0 != Kind::ProcTop {
        return None;
    }
    let stat = path::openat2(root.raw(), c"self/stat", 0, 0, 0).ok()?;
    let mut text = [0u8; 512];
    let n = file::read(stat.raw(), &mut text).ok()?;
    // pid (comm) state ppid ...
    let text = std::str::from_utf8(&text[..n]).ok()?;
    let starter = text.rsplit(')').next()?.split_whitespace().nth(1)?;
    let net = CString::new(format!("{starter}/net")).ok()?;
    let flags = (libc::O_PATH | libc::O_NOFOLLOW | libc::O_DIRECTORY) as u64;
    path::openat2(root.raw(), &net, flags, 0, 0).ok()
}

/// Makes the kernel's own file systems read-only in this process's mount namespace. (The server
/// refuses to write there by itself: this stands behind it.)
fn close_kernel_mounts() {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    for line in table.split(|b| *b == b'\n') {
        let Some(path) = line.split(|b| *b == b' ').nth(4) else {
            continue;
        };
        let opened = CString::new(unescaped(path)).map_err(|_| EINVAL);
        let Ok(at) = opened.and_then(|p| plain(&p)) else {
            continue;
        };
        if kernel_fs::of(&at).is_ok_and(|(kind, _)| !kind.is_plain()) {
            let _ = host::set_mount_attributes(&at, MOUNT_ATTR_RDONLY);
        }
    }
}

/// A path of mountinfo, in which `\ooo` is a byte.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, more)) = rest.split_first() {
        let octal = more.get(..3).filter(|_| *first == b'\\');
        let byte = octal.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[3..] } else { more };
    }
    out
}

/// By a path without links: one that is put there after the path was resolved is not followed.
fn plain(path: &CStr) -> Result<HostFd> {
    let flags = (libc::O_PATH | libc::O_NOFOLLOW) as u64;
    let resolve = abi::linux::RESOLVE_NO_SYMLINKS | abi::linux::RESOLVE_NO_MAGICLINKS;
    path::openat2(libc::AT_FDCWD, path, flags, 0, resolve.into())
}

/// The roots as everybody sees them.
fn host_view(spec: &Spec) -> std::result::Result<Vec<(HostFd, Access)>, Error> {
    let open = |r: &RootSpec| Ok((named(&r.path)?.0, r.access));
    spec.roots.iter().map(open).collect()
}

/// The roots as mount trees of our own.
fn own_view(spec: &Spec, network: Network) -> std::result::Result<Vec<(HostFd, Access)>, Error> {
    step("make its namespaces", own::own_namespaces(network))?;
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let r = host::mount(None, c"/", None, private, None);
    step("detach its mounts", r)?;
    let cloned = |r: &RootSpec| {
        let what = format!("open {}", r.path.to_string_lossy());
        let (at, kind) = named(&r.path)?;
        Ok((step(&what, tree(r, at, kind))?, r.access))
    };
    if spec
        .roots
        .iter()
        .any(|r| r.recursive && r.access == Access::Writable)
    {
        close_kernel_mounts();
    }
    let mut roots = Vec::new();
    for r in &spec.roots {
        roots.push((!r.is_host_root()).then(|| cloned(r)).transpose()?);
    }
    // The sandbox has its own of these; the host's would show processes and devices. What was
    // asked for below them is cloned by now. (In a user namespace of its own it may cover them,
    // but not take them away.)
    let covered = spec.roots.iter().any(RootSpec::is_host_root);
    let hidden = [c"/proc", c"/sys", c"/dev"].into_iter();
    let hidden: Vec<_> = hidden.filter(|p| covered && plain(p).is_ok()).collect();
    for p in &hidden {
        step("cover the host's files", own::cover(p))?;
    }
    let roots = roots
        .into_iter()
        .zip(&spec.roots)
        .map(|(made, r)| made.map_or_else(|| cloned(r), Ok))
        .collect::<std::result::Result<Vec<_>, Error>>()?;
    // Its own /proc is needed for a while.
    for p in &hidden {
        step("uncover them", host::umount_detach(p))?;
    }
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
fn tree(root: &RootSpec, at: HostFd, kind: Kind) -> Result<HostFd> {
    const MOUNT_ATTR_NOSUID: u64 = 2;
    const MOUNT_ATTR_NODEV: u64 = 4;
    let mut attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if root.access == Access::ReadOnly || !kind.is_plain() {
        attributes |= MOUNT_ATTR_RDONLY;
    }
    let below = if root.recursive {
        Below::All
    } else {
        Below::Nothing
    };
    let made = host::clone_mounts(&at, below)
        .and_then(|t| host::harden_mounts(&t, attributes).map(|()| t));
    match made {
        // Linux before 5.12, or a container that does not allow it: the Gofer's own checks stand
        // alone.
        Err(ENOSYS | EPERM) => Ok(at),
        r => r,
    }
}

/// What stands in for mount trees of our own where they cannot be made: nothing can be written but
/// below the writable roots, and nothing be read below the host's `/proc`, `/sys` and `/dev`.
/// `None` where the host (before Linux 6.2) cannot do that.
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
