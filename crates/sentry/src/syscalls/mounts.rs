//! Mounts.

use super::paths::{CWD, with};
use crate::syscalls::{Arg, Args, Call, SysResult, path_arg};
use crate::task::Context;
use abi::Va;
use vfs::ops::MountArgs;

/// `mount(source, target, type, flags, data)`.
fn mount(cx: &mut Context, a: &Args) -> SysResult {
    let text = |va: Va| {
        if va.is_null() {
            Ok(Vec::new())
        } else {
            path_arg(cx, va)
        }
    };
    let (source, fs_type, data) = (text(a.va(0))?, text(a.va(2))?, text(a.va(4))?);
    let target = path_arg(cx, a.va(1))?;
    let args = MountArgs {
        source: &source,
        fs_type: &fs_type,
        data: &data,
    };
    cx.task
        .with_paths(|p| p.mount(&target, a.u64(3), args))
        .map(|()| 0)
}
fn umount2(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, _, path| p.umount(path, a.u32(1))).map(|()| 0)
}
fn pivot_root(cx: &mut Context, a: &Args) -> SysResult {
    let (new, old) = (path_arg(cx, a.va(0))?, path_arg(cx, a.va(1))?);
    cx.task.with_paths(|p| p.pivot_root(&new, &old)).map(|()| 0)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(155, "pivot_root", &[Arg::Path, Arg::Path], pivot_root),
    Call::new(
        165,
        "mount",
        &[Arg::Path, Arg::Path, Arg::Path, Arg::Hex, Arg::Ptr],
        mount,
    ),
    Call::new(166, "umount2", &[Arg::Path, Arg::Hex], umount2),
];
