//! Extended attributes.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::Result;
use abi::errno::*;
use std::sync::Arc;
use vfs::File;
use vfs::ops::XattrOf;
use vfs::walk::Walk;
use vfs::{At, PathCx};

flags! {
    /// Of setxattr(2) and its kin.
    pub(super) struct XattrFlags: u32, refused {
        XATTR_CREATE,
        XATTR_REPLACE,
    }
}

/// The longest name and value of an extended attribute.
const XATTR_NAME: usize = 255;
const XATTR_VALUE: usize = 65_536;

fn xattr_name(cx: &Context, name: StrPtr) -> Result<Vec<u8>> {
    let n = cx
        .mm()
        .read_cstr(name.0, XATTR_NAME + 1)
        .map_err(|e| if e == ENAMETOOLONG { ERANGE } else { e })?;
    if n.is_empty() { Err(ERANGE) } else { Ok(n) }
}

/// What the attributes are of.
#[derive(Clone, Copy)]
pub(super) enum Of<'a> {
    Path(PathPtr),
    File(&'a Arc<File>),
    /// A link itself.
    Link(PathPtr),
    Fd(Fd),
}

impl Of<'_> {
    /// Runs `f` on it.
    fn with<R>(
        self,
        cx: &Context,
        f: impl FnOnce(&PathCx<'_>, &XattrOf<'_>) -> Result<R>,
    ) -> Result<R> {
        let (path, walk) = match self {
            Of::Fd(fd) => {
                let file = fd.any_file(cx)?;
                return cx.task.with_paths(|p| f(p, &XattrOf::File(&file)));
            }
            Of::File(file) => return cx.task.with_paths(|p| f(p, &XattrOf::File(file))),
            Of::Path(path) => (path.read(cx)?, Walk::FOLLOW),
            Of::Link(path) => (path.read(cx)?, Walk::empty()),
        };
        let of = XattrOf::Path {
            at: At::Cwd,
            path: &path,
            walk,
        };
        cx.task.with_paths(|p| f(p, &of))
    }
}

/// Copies out what there is, or tells only how long it is.
fn give(cx: &Context, v: &[u8], to: BytesOut) -> SysResult {
    if to.len == 0 {
        return Ok(v.len());
    }
    if v.len() > to.len {
        return Err(ERANGE);
    }
    cx.mm().copy_out(to.va, v)?;
    Ok(v.len())
}

pub(super) fn set(
    cx: &Context,
    of: Of<'_>,
    name: StrPtr,
    value: BytesIn,
    flags: XattrFlags,
) -> SysResult {
    let name = xattr_name(cx, name)?;
    if value.len > XATTR_VALUE {
        return Err(E2BIG);
    }
    let mut v = vec![0u8; value.len];
    cx.mm().copy_in(value.va, &mut v)?;
    of.with(cx, |p, of| p.set_xattr(of, &name, &v, flags.bits()))
        .map(|()| 0)
}
fn setxattr(
    cx: &mut Context,
    path: PathPtr,
    name: StrPtr,
    value: BytesIn,
    flags: XattrFlags,
) -> SysResult {
    set(cx, Of::Path(path), name, value, flags)
}
fn lsetxattr(
    cx: &mut Context,
    path: PathPtr,
    name: StrPtr,
    value: BytesIn,
    flags: XattrFlags,
) -> SysResult {
    set(cx, Of::Link(path), name, value, flags)
}
fn fsetxattr(
    cx: &mut Context,
    fd: Fd,
    name: StrPtr,
    value: BytesIn,
    flags: XattrFlags,
) -> SysResult {
    set(cx, Of::Fd(fd), name, value, flags)
}

pub(super) fn get(cx: &Context, of: Of<'_>, name: StrPtr, value: BytesOut) -> SysResult {
    let name = xattr_name(cx, name)?;
    let v = of.with(cx, |p, of| p.get_xattr(of, &name))?;
    give(cx, &v, value)
}
fn getxattr(cx: &mut Context, path: PathPtr, name: StrPtr, value: BytesOut) -> SysResult {
    get(cx, Of::Path(path), name, value)
}
fn lgetxattr(cx: &mut Context, path: PathPtr, name: StrPtr, value: BytesOut) -> SysResult {
    get(cx, Of::Link(path), name, value)
}
fn fgetxattr(cx: &mut Context, fd: Fd, name: StrPtr, value: BytesOut) -> SysResult {
    get(cx, Of::Fd(fd), name, value)
}

fn list(cx: &Context, of: Of<'_>, names: BytesOut) -> SysResult {
    let v = of.with(cx, |p, of| p.list_xattr(of))?;
    give(cx, &v, names)
}
fn listxattr(cx: &mut Context, path: PathPtr, names: BytesOut) -> SysResult {
    list(cx, Of::Path(path), names)
}
fn llistxattr(cx: &mut Context, path: PathPtr, names: BytesOut) -> SysResult {
    list(cx, Of::Link(path), names)
}
fn flistxattr(cx: &mut Context, fd: Fd, names: BytesOut) -> SysResult {
    list(cx, Of::Fd(fd), names)
}

fn remove(cx: &Context, of: Of<'_>, name: StrPtr) -> SysResult {
    let name = xattr_name(cx, name)?;
    of.with(cx, |p, of| p.remove_xattr(of, &name)).map(|()| 0)
}
fn removexattr(cx: &mut Context, path: PathPtr, name: StrPtr) -> SysResult {
    remove(cx, Of::Path(path), name)
}
fn lremovexattr(cx: &mut Context, path: PathPtr, name: StrPtr) -> SysResult {
    remove(cx, Of::Link(path), name)
}
fn fremovexattr(cx: &mut Context, fd: Fd, name: StrPtr) -> SysResult {
    remove(cx, Of::Fd(fd), name)
}

calls! {
    setxattr,
    lsetxattr,
    fsetxattr,
    getxattr,
    lgetxattr,
    fgetxattr,
    listxattr,
    llistxattr,
    flistxattr,
    removexattr,
    lremovexattr,
    fremovexattr,
}
