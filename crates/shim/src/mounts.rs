//! The root file system: mounts that a snapshotter asks for, at the bundle's `rootfs`.

use containerd_shim_protos::types::mount::Mount;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    UnmountFlags,
};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// mount(2) takes a page of options, the final zero included.
const DATA_MAX: usize = 4095;
/// Mounts on one directory that are taken away, at most.
const STACKED_MAX: u32 = 64;
/// Looks at a path in which directories are being renamed, at most.
const RENAMED_MAX: u32 = 128;

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

/// A place to mount on.
struct Target {
    fd: OwnedFd,
}

impl Target {
    /// Where `below` leads in the root file system. An image's links lead nowhere else: its `/etc`
    /// is not the host's.
    fn find(rootfs: &Path, below: &Path) -> rustix::io::Result<Target> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(rootfs, flags | OFlags::DIRECTORY, Mode::empty())?;
        if below.as_os_str().is_empty() {
            return Ok(Target { fd: root });
        }
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let fd = rustix::io::retry_on_intr(|| {
            // Something was renamed meanwhile.
            let find = || rustix::fs::openat2(&root, below, flags, Mode::empty(), within);
            (0..RENAMED_MAX)
                .map(|_| find())
                .find(|r| !matches!(r, Err(Errno::AGAIN)))
                .unwrap_or(Err(Errno::AGAIN))
        })?;
        Ok(Target { fd })
    }
    /// A path for mount(2) to what was found, whatever is at its name by now.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }
}

fn one(m: &Mount, rootfs: &Path) -> Result<(), String> {
    let p = plan(m)?;
    let below = Path::new(&m.target);
    let plain = |c| matches!(c, Component::Normal(_) | Component::RootDir);
    if !below.components().all(plain) {
        return Err(format!(
            "the mount's target {:?} is not a plain path",
            m.target
        ));
    }
    let failed = |e: Errno| {
        let target = rootfs.join(below.strip_prefix("/").unwrap_or(below));
        format!(
            "could not mount {} ({}) on {}: {e}",
            m.source,
            m.type_,
            target.display()
        )
    };
    let find = || Target::find(rootfs, below).map_err(failed);
    let found = find()?;
    let target = found.path();
    let data = p.data.join(",");
    if p.bind {
        let flags = p.flags;
        match p.recursive {
            true => rustix::mount::mount_bind_recursive(m.source.as_str(), &target),
            false => rustix::mount::mount_bind(m.source.as_str(), &target),
        }
        .map_err(failed)?;
        if !flags.is_empty() {
            // The descriptor is of what lies under the mount: the place is looked up again.
            let mounted = find()?;
            let flags = MountFlags::BIND | flags;
            rustix::mount::mount_remount(mounted.path(), flags, "").map_err(failed)?;
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
        let mounted = find()?;
        rustix::mount::mount_change(mounted.path(), f).map_err(failed)?;
    }
    Ok(())
}

/// An overlay of more layers than a page of options names: option by option (Linux 6.5's
/// `lowerdir+`).
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
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS,
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

    const INSIDE: &str = "MOUNTS_TEST_INSIDE";

    /// In a mount namespace of its own, below `$MOUNTS_TEST_INSIDE`.
    #[test]
    fn an_images_links_do_not_lead_out() {
        let Ok(dir) = std::env::var(INSIDE) else {
            return apart("mounts::tests::an_images_links_do_not_lead_out");
        };
        let dir = Path::new(&dir);
        let (rootfs, outside) = (dir.join("rootfs"), dir.join("outside"));
        let within = format!("{}{}", rootfs.display(), outside.display());
        std::fs::create_dir_all(&within).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, rootfs.join("data")).unwrap();
        std::os::unix::fs::symlink("/nowhere", rootfs.join("broken")).unwrap();
        let mount = |kind: &str, target: &str, options: &[&str]| Mount {
            type_: kind.into(),
            source: outside.display().to_string(),
            target: target.into(),
            options: options.iter().map(|o| (*o).into()).collect(),
            ..Mount::default()
        };
        let long = "x".repeat(DATA_MAX + 1);
        mount_all(&[mount("tmpfs", "/data", &["noexec"])], &rootfs).unwrap();
        mount_all(&[mount("bind", "/data/../data", &[])], &rootfs).unwrap_err();
        mount_all(
            &[mount("bind", "/data", &["rbind", "ro", "private"])],
            &rootfs,
        )
        .unwrap();
        one(&mount("tmpfs", "/data", &[&long]), &rootfs).unwrap_err();
        one(&mount("tmpfs", "/broken", &[]), &rootfs).unwrap_err();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours: Vec<&str> = table.lines().filter(|l| l.contains(INSIDE)).collect();
        assert!(ours.len() >= 2, "{table}");
        let at = |l: &&str| l.split(' ').nth(4).unwrap().to_owned();
        assert!(ours.iter().all(|l| at(l) == within), "{ours:?}");
        let last = ours.last().unwrap().split(' ').nth(5).unwrap();
        assert!(last.starts_with("ro"), "{ours:?}");
    }

    /// Runs a test of this name where mounts are nobody else's.
    fn apart(test: &str) {
        let dir = std::env::temp_dir().join(format!("{INSIDE}.{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let done = std::process::Command::new("unshare")
            .args(["-rm", "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, &dir)
            .output()
            .unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
}
