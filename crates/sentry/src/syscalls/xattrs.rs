//! Extended attributes.

use crate::syscalls::{Arg, Args, Call, SysResult, path_arg};
use crate::task::Context;
use abi::errno::*;
use abi::{Result, Va};
use vfs::ops::XattrOf;
use vfs::walk::Walk;
use vfs::{At, PathCx};

/// The longest name and value of an extended attribute.
const XATTR_NAME: usize = 255;
const XATTR_VALUE: usize = 65_536;

fn xattr_name(cx: &Context, va: Va) -> Result<Vec<u8>> {
    let n = cx
        .mm()
        .read_cstr(va, XATTR_NAME + 1)
        .map_err(|e| if e == ENAMETOOLONG { ERANGE } else { e })?;
    if n.is_empty() { Err(ERANGE) } else { Ok(n) }
}
/// Runs `f` on what the first argument names: a path, a link itself, or a descriptor.
fn on<R>(
    cx: &Context,
    a: &Args,
    kind: Of,
    f: impl FnOnce(&PathCx<'_>, &XattrOf<'_>) -> Result<R>,
) -> Result<R> {
    if kind == Of::Fd {
        let file = cx.fd(a.i32(0))?;
        return cx.task.with_paths(|p| f(p, &XattrOf::File(&file)));
    }
    let path = path_arg(cx, a.va(0))?;
    let walk = if kind == Of::Path {
        Walk::FOLLOW
    } else {
        Walk::empty()
    };
    cx.task.with_paths(|p| {
        f(
            p,
            &XattrOf::Path {
                at: At::Cwd,
                path: &path,
                walk,
            },
        )
    })
}
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Path,
    Link,
    Fd,
}
fn give(cx: &Context, v: &[u8], va: Va, size: usize) -> SysResult {
    if size == 0 {
        return Ok(v.len());
    }
    if v.len() > size {
        return Err(ERANGE);
    }
    cx.mm().copy_out(va, v)?;
    Ok(v.len())
}
fn do_getxattr(cx: &Context, a: &Args, kind: Of) -> SysResult {
    let name = xattr_name(cx, a.va(1))?;
    let v = on(cx, a, kind, |p, of| p.get_xattr(of, &name))?;
    give(cx, &v, a.va(2), a.usize(3))
}
fn do_setxattr(cx: &Context, a: &Args, kind: Of) -> SysResult {
    if a.u32(4) & !3 != 0 {
        return Err(EINVAL);
    }
    let name = xattr_name(cx, a.va(1))?;
    if a.usize(3) > XATTR_VALUE {
        return Err(E2BIG);
    }
    let mut v = vec![0u8; a.usize(3)];
    cx.mm().copy_in(a.va(2), &mut v)?;
    on(cx, a, kind, |p, of| p.set_xattr(of, &name, &v, a.u32(4))).map(|()| 0)
}
fn do_listxattr(cx: &Context, a: &Args, kind: Of) -> SysResult {
    let v = on(cx, a, kind, |p, of| p.list_xattr(of))?;
    give(cx, &v, a.va(1), a.usize(2))
}
fn do_removexattr(cx: &Context, a: &Args, kind: Of) -> SysResult {
    let name = xattr_name(cx, a.va(1))?;
    on(cx, a, kind, |p, of| p.remove_xattr(of, &name)).map(|()| 0)
}
macro_rules! xattr_calls {
    ($($name:ident = $f:ident $kind:ident;)*) => {
        $(fn $name(cx: &mut Context, a: &Args) -> SysResult { $f(cx, a, Of::$kind) })*
    };
}
xattr_calls! {
    setxattr = do_setxattr Path;
    lsetxattr = do_setxattr Link;
    fsetxattr = do_setxattr Fd;
    getxattr = do_getxattr Path;
    lgetxattr = do_getxattr Link;
    fgetxattr = do_getxattr Fd;
    listxattr = do_listxattr Path;
    llistxattr = do_listxattr Link;
    flistxattr = do_listxattr Fd;
    removexattr = do_removexattr Path;
    lremovexattr = do_removexattr Link;
    fremovexattr = do_removexattr Fd;
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(
        188,
        "setxattr",
        &[Arg::Path, Arg::Path, Arg::In(3), Arg::Uint, Arg::Hex],
        setxattr,
    ),
    Call::new(
        189,
        "lsetxattr",
        &[Arg::Path, Arg::Path, Arg::In(3), Arg::Uint, Arg::Hex],
        lsetxattr,
    ),
    Call::new(
        190,
        "fsetxattr",
        &[Arg::Fd, Arg::Path, Arg::In(3), Arg::Uint, Arg::Hex],
        fsetxattr,
    ),
    Call::new(
        191,
        "getxattr",
        &[Arg::Path, Arg::Path, Arg::Ptr, Arg::Uint],
        getxattr,
    ),
    Call::new(
        192,
        "lgetxattr",
        &[Arg::Path, Arg::Path, Arg::Ptr, Arg::Uint],
        lgetxattr,
    ),
    Call::new(
        193,
        "fgetxattr",
        &[Arg::Fd, Arg::Path, Arg::Ptr, Arg::Uint],
        fgetxattr,
    ),
    Call::new(
        194,
        "listxattr",
        &[Arg::Path, Arg::Ptr, Arg::Uint],
        listxattr,
    ),
    Call::new(
        195,
        "llistxattr",
        &[Arg::Path, Arg::Ptr, Arg::Uint],
        llistxattr,
    ),
    Call::new(
        196,
        "flistxattr",
        &[Arg::Fd, Arg::Ptr, Arg::Uint],
        flistxattr,
    ),
    Call::new(197, "removexattr", &[Arg::Path, Arg::Path], removexattr),
    Call::new(198, "lremovexattr", &[Arg::Path, Arg::Path], lremovexattr),
    Call::new(199, "fremovexattr", &[Arg::Fd, Arg::Path], fremovexattr),
];
