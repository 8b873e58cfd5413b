//! Mounts and devices.

use super::{RDONLY, access, c_path, check_depth, refuse};
use crate::Error;
use crate::spec::{self, Mount};
use config::{DeviceNode, MountKind, MountSpec};
use sandbox::RootSpec;
use std::path::Path;

/// `MS_NOSYMFOLLOW` (mount(2)).
const NOSYMFOLLOW: libc::c_ulong = 256;

/// A mount's options, read.
#[derive(Default)]
struct MountOptions {
    flags: u32,
    bind: Option<bool>,
    data: Vec<String>,
    exclusive: bool,
}

fn mount_options(m: &Mount, warnings: &mut Vec<String>) -> Result<MountOptions, Error> {
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
            "nosymfollow" | "rnosymfollow" => (true, NOSYMFOLLOW),
            "symfollow" | "rsymfollow" => (false, NOSYMFOLLOW),
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
            // A container's mounts are private, and no mount of the host's comes to it later.
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

/// Options that new file systems have, and bind mounts have not.
const OF_FILE_SYSTEMS: [&str; 5] = ["mode", "size", "nr_inodes", "uid", "gid"];

/// Those of a bundle, in order; what they need of the host is added to `roots`.
pub fn all(
    bundle: &Path,
    mounts: &[Mount],
    roots: &mut Vec<RootSpec>,
    warnings: &mut Vec<String>,
) -> Result<Vec<MountSpec>, Error> {
    let mut all = Vec::new();
    for m in mounts {
        all.extend(mount(bundle, m, roots, warnings)?);
    }
    Ok(all)
}

/// `None` for what is not mounted.
fn mount(
    bundle: &Path,
    m: &Mount,
    roots: &mut Vec<RootSpec>,
    warnings: &mut Vec<String>,
) -> Result<Option<MountSpec>, Error> {
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
    let mut made = MountSpec {
        target,
        kind: MountKind::Fs(kind.to_owned()),
        source: m.source.clone().unwrap_or_else(|| kind.to_owned()),
        flags: o.flags,
        data: String::new(),
        optional: false,
    };
    if kind == "bind" || o.bind.is_some() {
        return bind(bundle, made, &o, roots, warnings).map(Some);
    }
    made.data = match kind {
        "tmpfs" | "ramfs" => {
            made.kind = MountKind::Fs("tmpfs".into());
            o.data.join(",")
        }
        "proc" | "devpts" => o.data.join(","),
        "sysfs" | "mqueue" => String::new(),
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

/// A bind mount of what `made.source` names on the host: one more root of the Gofer's.
fn bind(
    bundle: &Path,
    mut made: MountSpec,
    o: &MountOptions,
    roots: &mut Vec<RootSpec>,
    warnings: &mut Vec<String>,
) -> Result<MountSpec, Error> {
    let path = bundle.join(&made.source);
    let path = path.canonicalize().map_err(|e| {
        Error::new(format!(
            "mount {}: cannot find {}: {e}",
            made.target,
            path.display()
        ))
    })?;
    for word in &o.data {
        // mount(2) looks at none for a bind mount. Some bundles have those of the file system that
        // they mean.
        if !OF_FILE_SYSTEMS.contains(&word.split_once('=').map_or("", |w| w.0)) {
            return Err(refuse(format!(
                "mount {}: option {word} is not known for a bind mount",
                made.target
            )));
        }
        warnings.push(format!(
            "mount {}: {word} has no effect: a bind mount shows the files as they are",
            made.target
        ));
    }
    made.kind = MountKind::Host {
        root: roots.len() as u32,
        exclusive: o.exclusive,
    };
    made.source = path.display().to_string();
    let path = c_path(&path)?;
    if made.flags & RDONLY == 0
        && let Some(fs) = sandbox::kernel_fs(&path)
    {
        made.flags |= RDONLY;
        warnings.push(format!(
            "mount {}: it is read-only, since {} is the host's {fs}",
            made.target, made.source
        ));
    }
    roots.push(RootSpec {
        path,
        access: access(made.flags & RDONLY == 0),
        recursive: o.bind.unwrap_or(true),
    });
    Ok(made)
}

pub fn device(d: &spec::Device) -> Result<DeviceNode, Error> {
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
