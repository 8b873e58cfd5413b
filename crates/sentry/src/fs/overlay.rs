//! overlay as a type for mount(2): its options (`Documentation/filesystems/overlayfs.rst`).

use crate::Kernel;
use crate::task::task_of;
use abi::Result;
use abi::errno::{EINVAL, EPERM};
use std::sync::Arc;
use vfs::fs::overlayfs::{Layers, Overlayfs};
use vfs::vfs::{FsType, Vfs};
use vfs::walk::Walk;
use vfs::{At, Caller, Dentry};

struct OverlayType;

/// Registers it.
pub fn register(k: &Arc<Kernel>) {
    k.vfs.register_fs("overlay", Arc::new(OverlayType));
}

/// A list of paths between colons; a backslash takes a colon's meaning.
fn split(list: &str) -> Vec<String> {
    let (mut all, mut now, mut chars) = (Vec::new(), String::new(), list.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => now.extend(chars.next()),
            ':' => all.push(std::mem::take(&mut now)),
            c => now.push(c),
        }
    }
    all.push(now);
    all
}

impl FsType for OverlayType {
    fn mount(&self, vfs: &Arc<Vfs>, cx: &Caller<'_>, _: &str, data: &str) -> Result<Arc<Dentry>> {
        // Paths are the caller's.
        let t = task_of(cx.task).ok_or(EINVAL)?;
        let place =
            |path: &str| t.with_paths(|p| p.resolve(&At::Cwd, path.as_bytes(), Walk::FOLLOW));
        let (mut lowers, mut upper, mut work, mut user_xattrs) = (Vec::new(), None, None, false);
        for option in data.split(',').filter(|o| !o.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("lowerdir", v) => {
                    lowers = split(v).iter().map(|p| place(p)).collect::<Result<_>>()?;
                }
                ("upperdir", v) => upper = Some(place(v)?),
                ("workdir", v) => work = Some(place(v)?),
                ("userxattr", "") => user_xattrs = true,
                ("volatile", "") => {}
                ("index" | "metacopy" | "nfs_export" | "uuid", "off") => {}
                ("xino", "off" | "auto") => {}
                ("redirect_dir", "off" | "nofollow") => {}
                _ => return Err(EINVAL),
            }
        }
        let upper = match (upper, work) {
            (Some(u), Some(w)) => Some((u, w)),
            (None, _) => None,
            (Some(_), None) => return Err(EINVAL),
        };
        // Marks of the trusted kind need rights that the administrator of a user namespace lacks.
        let user_xattrs = user_xattrs || !cx.cred.has(vfs::Caps::SYS_ADMIN);
        if !cx.cred.has_own(vfs::Caps::SYS_ADMIN) {
            return Err(EPERM);
        }
        let layers = Layers {
            lowers,
            upper,
            user_xattrs,
            options: format!(",{data}"),
        };
        Overlayfs::mountable(vfs, cx.cred, layers)
    }
}
