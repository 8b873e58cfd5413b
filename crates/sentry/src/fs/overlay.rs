//! overlay as a type for mount(2): its options (`Documentation/filesystems/overlayfs.rst`).

use crate::Kernel;
use crate::task::task_of;
use abi::Result;
use abi::errno::{EINVAL, EPERM};
use std::sync::Arc;
use vfs::fs::overlayfs::{Layers, Overlayfs};
use vfs::params::{Param, Params, Value};
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

/// The parameters that name layers.
const LAYERS: [&str; 4] = ["lowerdir", "lowerdir+", "upperdir", "workdir"];

impl FsType for OverlayType {
    fn parameters(&self) -> &'static [&'static str] {
        &[
            "lowerdir",
            "lowerdir+",
            "upperdir",
            "workdir",
            "userxattr",
            "volatile",
            "index",
            "metacopy",
            "nfs_export",
            "uuid",
            "xino",
            "redirect_dir",
        ]
    }
    fn escapes_commas(&self) -> bool {
        true
    }
    /// Paths are the caller's, when it gives them (`ovl_parse_layer`).
    fn parse(&self, cx: &Caller<'_>, p: Param) -> Result<Param> {
        let key = p.key.as_str();
        match (key, &p.value) {
            ("lowerdir", Value::Text(t)) if !t.is_empty() => Ok(p),
            (key, Value::Text(t)) if LAYERS.contains(&key) && !t.is_empty() => {
                let value = Value::Place(place(cx, t)?, t.clone());
                Ok(Param { value, ..p })
            }
            (key, Value::Place(..)) if LAYERS[1..].contains(&key) => Ok(p),
            ("userxattr" | "volatile", Value::Flag) => Ok(p),
            ("index" | "metacopy" | "nfs_export", Value::Text(t)) if t == "off" => Ok(p),
            ("uuid", Value::Text(t)) if matches!(&**t, "off" | "auto" | "null") => Ok(p),
            ("xino", Value::Text(t)) if matches!(&**t, "off" | "auto") => Ok(p),
            ("redirect_dir", Value::Text(t)) if matches!(&**t, "off" | "nofollow") => Ok(p),
            _ => Err(EINVAL),
        }
    }
    fn mount(
        &self,
        vfs: &Arc<Vfs>,
        cx: &Caller<'_>,
        _: &str,
        params: &Params,
    ) -> Result<Arc<Dentry>> {
        let (mut lowers, mut upper, mut work, mut user_xattrs) = (Vec::new(), None, None, false);
        for p in &params.0 {
            match (p.key.as_str(), &p.value) {
                ("lowerdir", Value::Text(v)) => {
                    lowers = split(v)
                        .iter()
                        .map(|p| place(cx, p))
                        .collect::<Result<_>>()?;
                }
                ("lowerdir+", Value::Place(p, _)) => lowers.push(p.clone()),
                ("upperdir", Value::Place(p, _)) => upper = Some(p.clone()),
                ("workdir", Value::Place(p, _)) => work = Some(p.clone()),
                ("userxattr", _) => user_xattrs = true,
                _ => {}
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
            options: params.shown(),
        };
        Overlayfs::mountable(vfs, cx.cred, layers)
    }
}

fn place(cx: &Caller<'_>, path: &str) -> Result<vfs::Path> {
    let t = task_of(cx.task).ok_or(EINVAL)?;
    t.with_paths(|p| p.resolve(&At::Cwd, path.as_bytes(), Walk::FOLLOW))
}
