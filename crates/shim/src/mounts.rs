//! The root file system: mounts that a snapshotter asks for, at the bundle's `rootfs`.

use containerd_shim_protos::types::mount::Mount;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    UnmountFlags,
};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// mount(2) takes a page of options, the final zero included.
const DATA_MAX: usize = 4095;
/// Mounts on one directory that are taken away, at most.
const STACKED_MAX: u32 = 64;

/// Words of fstab(5) that are flags: set or cleared.
fn flag(word: &str) -> Option<(MountFlags, bool)> {
    Some(match word {
        "ro" => (MountFlags::RDONLY, true),
        "rw" => (MountFlags::RDONLY, false),
        "nosuid" => (MountFlags::NOSUID, true),
        "suid" => (MountFlags::NOSUID, false),
        "nodev" => (MountFlags::NODEV, true),
        "dev" => (MountFlags::NODEV, false),
        "noexec" => (MountFlags::NOEXEC, true),
        "exec" => (MountFlags::NOEXEC, false),
        "sync" => (MountFlags::SYNCHRONOUS, true),
        "async" => (MountFlags::SYNCHRONOUS, false),
        "dirsync" => (MountFlags::DIRSYNC, true),
        "noatime" => (MountFlags::NOATIME, true),
        "atime" => (MountFlags::NOATIME, false),
        "nodiratime" => (MountFlags::NODIRATIME, true),
        "diratime" => (MountFlags::NODIRATIME, false),
        "relatime" => (MountFlags::RELATIME, true),
        "norelatime" => (MountFlags::RELATIME, false),
        "strictatime" => (MountFlags::STRICTATIME, true),
        "nostrictatime" => (MountFlags::STRICTATIME, false),
        _ => return None,
    })
}

#[derive(PartialEq, Eq, Debug)]
struct Plan {
    bind: bool,
    recursive: bool,
    flags: MountFlags,
    propagation: Option<MountPropagationFlags>,
    data: Vec<String>,
}

fn plan(m: &Mount) -> Result<Plan, String> {
    let mut p = Plan {
        bind: m.type_ == "bind",
        recursive: false,
        flags: MountFlags::empty(),
        propagation: None,
        data: Vec::new(),
    };
    for o in &m.options {
        match o.as_str() {
            "bind" => p.bind = true,
            "rbind" => (p.bind, p.recursive) = (true, true),
            "defaults" | "" => {}
            "loop" => {
                return Err(
                    "mounts by a loop device are not supported: use another snapshotter".into(),
                );
            }
            "private" | "rprivate" => p.propagation = Some(MountPropagationFlags::PRIVATE),
            "slave" | "rslave" => p.propagation = Some(MountPropagationFlags::DOWNSTREAM),
            "shared" | "rshared" => p.propagation = Some(MountPropagationFlags::SHARED),
            "unbindable" | "runbindable" => p.propagation = Some(MountPropagationFlags::UNBINDABLE),
            o => match flag(o) {
                Some((f, true)) => p.flags |= f,
                Some((f, false)) => p.flags &= !f,
                None => p.data.push(o.into()),
            },
        }
    }
    Ok(p)
}

/// Makes the mounts, one upon the other; none remains where one fails.
pub fn mount_all(mounts: &[Mount], rootfs: &Path) -> Result<(), String> {
    if mounts.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(rootfs)
        .map_err(|e| format!("could not make {}: {e}", rootfs.display()))?;
    for m in mounts {
        if let Err(e) = one(m, rootfs) {
            return match unmount_all(rootfs) {
                Ok(()) => Err(e),
                Err(more) => Err(format!("{e}; {more}")),
            };
        }
    }
    Ok(())
}

fn one(m: &Mount, rootfs: &Path) -> Result<(), String> {
    let p = plan(m)?;
    let target: PathBuf = if m.target.is_empty() {
        rootfs.into()
    } else {
        let below = Path::new(&m.target);
        let plain = |c| {
            matches!(
                c,
                std::path::Component::Normal(_) | std::path::Component::RootDir
            )
        };
        if !below.components().all(plain) {
            return Err(format!(
                "the mount's target {:?} is not a plain path",
                m.target
            ));
        }
        rootfs.join(below.strip_prefix("/").unwrap_or(below))
    };
    let failed = |e: Errno| {
        format!(
            "could not mount {} ({}) on {}: {e}",
            m.source,
            m.type_,
            target.display()
        )
    };
    let data = p.data.join(",");
    if p.bind {
        let flags = p.flags;
        match p.recursive {
            true => rustix::mount::mount_bind_recursive(m.source.as_str(), &target),
            false => rustix::mount::mount_bind(m.source.as_str(), &target),
        }
        .map_err(failed)?;
        if !flags.is_empty() {
            rustix::mount::mount_remount(&target, MountFlags::BIND | flags, "").map_err(failed)?;
        }
    } else if data.len() > DATA_MAX {
        long(m, &p, &target).map_err(failed)?;
    } else {
        let data = CString::new(data).map_err(|_| failed(Errno::INVAL))?;
        rustix::mount::mount(
            m.source.as_str(),
            &target,
            m.type_.as_str(),
            p.flags,
            data.as_c_str(),
        )
        .map_err(failed)?;
    }
    if let Some(f) = p.propagation {
        rustix::mount::mount_change(&target, f).map_err(failed)?;
    }
    Ok(())
}

/// An overlay of more layers than a page of options names: option by option (Linux 6.5's `lowerdir+`).
fn long(m: &Mount, p: &Plan, target: &Path) -> rustix::io::Result<()> {
    use rustix::mount as mnt;
    let fs = mnt::fsopen(m.type_.as_str(), FsOpenFlags::FSOPEN_CLOEXEC)?;
    mnt::fsconfig_set_string(&fs, "source", m.source.as_str())?;
    if p.flags.contains(MountFlags::RDONLY) {
        mnt::fsconfig_set_flag(&fs, "ro")?;
    }
    for o in &p.data {
        match o.split_once('=') {
            Some(("lowerdir", layers)) if m.type_ == "overlay" => {
                for l in layers.split(':') {
                    mnt::fsconfig_set_string(&fs, "lowerdir+", l)?;
                }
            }
            Some((k, v)) => mnt::fsconfig_set_string(&fs, k, v)?,
            None => mnt::fsconfig_set_flag(&fs, o.as_str())?,
        }
    }
    mnt::fsconfig_create(&fs)?;
    let mut attributes = MountAttrFlags::empty();
    for (flag, attribute) in [
        (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
    ] {
        if p.flags.contains(flag) {
            attributes |= attribute;
        }
    }
    let tree = mnt::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    mnt::move_mount(
        &tree,
        "",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}

/// Takes away all that is mounted there.
pub fn unmount_all(rootfs: &Path) -> Result<(), String> {
    let unmount = |flags| rustix::mount::unmount(rootfs, UnmountFlags::NOFOLLOW | flags);
    for _ in 0..STACKED_MAX {
        let done = match unmount(UnmountFlags::empty()) {
            Err(Errno::BUSY) => unmount(UnmountFlags::DETACH),
            r => r,
        };
        match done {
            Ok(()) => {}
            // Nothing is mounted there; or it is not even there.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(e) => return Err(format!("could not unmount {}: {e}", rootfs.display())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans() {
        let m = |kind: &str, options: &[&str]| Mount {
            type_: kind.into(),
            options: options.iter().map(|o| (*o).into()).collect(),
            ..Mount::default()
        };
        let p = plan(&m("bind", &["rbind", "ro"])).unwrap();
        assert!(p.bind && p.recursive && p.flags == MountFlags::RDONLY && p.data.is_empty());
        let p = plan(&m(
            "overlay",
            &["index=off", "lowerdir=/a:/b", "nodev", "dev"],
        ))
        .unwrap();
        assert!(!p.bind && p.flags.is_empty());
        assert_eq!(p.data, ["index=off", "lowerdir=/a:/b"]);
        assert!(plan(&m("ext4", &["loop"])).is_err());
    }
}
