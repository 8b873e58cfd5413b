//! Mounts by descriptor: open_tree, move_mount, fsopen and what goes with them (their man pages;
//! Linux's fs/namespace.c, fs/fsopen.c).

use super::args::*;
use super::stat::path_or_empty;
use super::{SysResult, read_sized};
use crate::ns::nsfs::{NsFile, NsRef};
use crate::task::Context;
use abi::errno::*;
use abi::linux::O_RDWR;
use abi::{Result, Va};
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::namespace::{AttrChange, Beneath, Recursive};
use vfs::ops::{Exclusive, FsConfig, Target, attr_change, fsmount_flags};
use vfs::params::{Param, Value};
use vfs::walk::Walk;
use vfs::{At, File};
use zerocopy::IntoBytes;

flags! {
    /// Of open_tree(2).
    struct OpenTreeFlags: u32, refused {
        OPEN_TREE_CLONE,
        OPEN_TREE_CLOEXEC = abi::linux::O_CLOEXEC,
        AT_SYMLINK_NOFOLLOW,
        AT_NO_AUTOMOUNT,
        AT_EMPTY_PATH,
        AT_RECURSIVE,
    }
}

flags! {
    /// Of move_mount(2).
    struct MoveMountFlags: u32, kept {
        MOVE_MOUNT_F_SYMLINKS,
        MOVE_MOUNT_F_AUTOMOUNTS,
        MOVE_MOUNT_F_EMPTY_PATH,
        MOVE_MOUNT_T_SYMLINKS,
        MOVE_MOUNT_T_AUTOMOUNTS,
        MOVE_MOUNT_T_EMPTY_PATH,
        MOVE_MOUNT_SET_GROUP,
        MOVE_MOUNT_BENEATH,
    }
}

flags! {
    /// Of fsopen(2) and fsmount(2).
    struct FsOpenFlags: u32, kept {
        FSOPEN_CLOEXEC,
    }
}

flags! {
    /// Of fspick(2).
    struct FsPickFlags: u32, kept {
        FSPICK_CLOEXEC,
        FSPICK_SYMLINK_NOFOLLOW,
        FSPICK_NO_AUTOMOUNT,
        FSPICK_EMPTY_PATH,
    }
}

flags! {
    /// Of mount_setattr(2).
    struct SetAttrFlags: u32, refused {
        AT_SYMLINK_NOFOLLOW,
        AT_NO_AUTOMOUNT,
        AT_EMPTY_PATH,
        AT_RECURSIVE,
    }
}

flags! {
    /// What fsmount(2) is told of the mount.
    struct MountAttrs: u64, kept {
        MOUNT_ATTR_RDONLY,
        MOUNT_ATTR_NOSUID,
        MOUNT_ATTR_NODEV,
        MOUNT_ATTR_NOEXEC,
        MOUNT_ATTR_NOATIME,
        MOUNT_ATTR_STRICTATIME,
        MOUNT_ATTR_NODIRATIME,
        MOUNT_ATTR_NOSYMFOLLOW,
    }
}

named! {
    /// A command of fsconfig(2).
    struct FsCommand(u32) {
        FSCONFIG_SET_FLAG = 0,
        FSCONFIG_SET_STRING = 1,
        FSCONFIG_SET_BINARY = 2,
        FSCONFIG_SET_PATH = 3,
        FSCONFIG_SET_PATH_EMPTY = 4,
        FSCONFIG_SET_FD = 5,
        FSCONFIG_CMD_CREATE = 6,
        FSCONFIG_CMD_RECONFIGURE = 7,
        FSCONFIG_CMD_CREATE_EXCL = 8,
    }
}

/// The longest type and the longest key or value of fsconfig(2), with its NUL.
const TYPE_MAX: usize = 4096;
const WORD_MAX: usize = 256;
/// The most bytes of `FSCONFIG_SET_BINARY`.
const BLOB_MAX: i32 = 1 << 20;

/// A string that is `EINVAL` where it is longer (`strndup_user`).
fn word(cx: &Context, p: StrPtr, max: usize) -> Result<String> {
    let text = cx.mm().read_cstr(p.0, max).map_err(|e| match e {
        ENAMETOOLONG => EINVAL,
        e => e,
    })?;
    String::from_utf8(text).map_err(|_| EINVAL)
}

/// Where a path leads: links at its end are followed with `follow`, and an empty one is allowed
/// with `empty`.
fn target<'a>(cx: &Context, dirfd: DirFd, path: &'a [u8], walk: Walk) -> Result<Target<'a>> {
    let at = At::new(&cx.files(), dirfd.0, path)?;
    Ok(Target { at, path, walk })
}

fn walk(follow: Follow, empty: bool) -> Walk {
    let mut w = match follow {
        Follow::Yes => Walk::FOLLOW,
        Follow::No => Walk::empty(),
    };
    w.set(Walk::EMPTY, empty);
    w
}

/// Whether links at a path's end are followed.
#[derive(Clone, Copy)]
enum Follow {
    No,
    Yes,
}

impl Follow {
    fn unless(not: bool) -> Follow {
        if not { Follow::No } else { Follow::Yes }
    }
}

/// A path that may be empty, or none at all, with the flag for it (`getname_maybe_null`).
fn maybe_empty(cx: &Context, path: Option<PathPtr>, empty: bool) -> Result<Vec<u8>> {
    let flags = if empty {
        AtFlags::AT_EMPTY_PATH
    } else {
        AtFlags::empty()
    };
    path_or_empty(cx, path, flags)
}

fn recursive(yes: bool) -> Recursive {
    if yes { Recursive::Yes } else { Recursive::No }
}

/// Installs a file that a call has made.
fn install(cx: &Context, f: Arc<File>, cloexec: bool) -> SysResult {
    let c = if cloexec {
        CloseOnExec::Yes
    } else {
        CloseOnExec::No
    };
    cx.files().install(f, c, &cx.room()).map(|n| n as usize)
}

fn tree(cx: &Context, dirfd: DirFd, path: PathPtr, f: OpenTreeFlags) -> Result<Arc<File>> {
    let below = f.contains(OpenTreeFlags::AT_RECURSIVE);
    let copy = f.contains(OpenTreeFlags::OPEN_TREE_CLONE);
    if below && !copy {
        return Err(EINVAL);
    }
    if copy {
        cx.task.with_paths(|p| p.may_mount())?;
    }
    let path = path.read(cx)?;
    let follow = Follow::unless(f.contains(OpenTreeFlags::AT_SYMLINK_NOFOLLOW));
    let empty = f.contains(OpenTreeFlags::AT_EMPTY_PATH);
    let t = target(cx, dirfd, &path, walk(follow, empty))?;
    cx.task
        .with_paths(|p| p.open_tree(&t, copy.then(|| recursive(below))))
}

/// `open_tree(dirfd, path, flags)`.
fn open_tree(cx: &mut Context, dirfd: DirFd, path: PathPtr, flags: OpenTreeFlags) -> SysResult {
    let f = tree(cx, dirfd, path, flags)?;
    install(cx, f, flags.contains(OpenTreeFlags::OPEN_TREE_CLOEXEC))
}

/// `open_tree_attr(dirfd, path, flags, attr, size)`: as open_tree(2), with mount_setattr(2) of what
/// it gives.
fn open_tree_attr(
    cx: &mut Context,
    dirfd: DirFd,
    path: PathPtr,
    flags: OpenTreeFlags,
    attr: Va,
    size: usize,
) -> SysResult {
    if !attr.is_null() && size == 0 {
        return Err(EINVAL);
    }
    let f = tree(cx, dirfd, path, flags)?;
    if !attr.is_null()
        && let Some(change) = change(cx, attr, size)?
    {
        let t = Target {
            at: At::File(f.clone()),
            path: b"",
            walk: Walk::EMPTY,
        };
        let below = recursive(flags.contains(OpenTreeFlags::AT_RECURSIVE));
        cx.task.with_paths(|p| p.mount_setattr(&t, change, below))?;
    }
    install(cx, f, flags.contains(OpenTreeFlags::OPEN_TREE_CLOEXEC))
}

/// `move_mount(from_dirfd, from_path, to_dirfd, to_path, flags)`.
fn move_mount(
    cx: &mut Context,
    from_dirfd: DirFd,
    from_path: Option<PathPtr>,
    to_dirfd: DirFd,
    to_path: Option<PathPtr>,
    flags: MoveMountFlags,
) -> SysResult {
    use MoveMountFlags as M;
    cx.task.with_paths(|p| p.may_mount())?;
    let both = M::MOVE_MOUNT_SET_GROUP | M::MOVE_MOUNT_BENEATH;
    if !M::all().contains(flags) || flags.contains(both) {
        return Err(EINVAL);
    }
    let to_empty = flags.contains(M::MOVE_MOUNT_T_EMPTY_PATH);
    let from_empty = flags.contains(M::MOVE_MOUNT_F_EMPTY_PATH);
    let to_path = maybe_empty(cx, to_path, to_empty)?;
    let from_path = maybe_empty(cx, from_path, from_empty)?;
    let to_links = Follow::unless(!flags.contains(M::MOVE_MOUNT_T_SYMLINKS));
    let from_links = Follow::unless(!flags.contains(M::MOVE_MOUNT_F_SYMLINKS));
    let to = target(cx, to_dirfd, &to_path, walk(to_links, to_empty))?;
    let from = target(cx, from_dirfd, &from_path, walk(from_links, from_empty))?;
    let beneath = match flags.contains(M::MOVE_MOUNT_BENEATH) {
        true => Beneath::Yes,
        false => Beneath::No,
    };
    cx.task
        .with_paths(|p| match flags.contains(M::MOVE_MOUNT_SET_GROUP) {
            true => p.set_group(&from, &to),
            false => p.move_tree(&from, &to, beneath),
        })?;
    Ok(0)
}

/// Makes a file of what is configured.
fn config_file(cx: &Context, config: FsConfig, cloexec: bool) -> SysResult {
    install(
        cx,
        File::new(Arc::new(config), O_RDWR, None, cx.cred()),
        cloexec,
    )
}

/// `fsopen(type, flags)`.
fn fsopen(cx: &mut Context, fs_type: StrPtr, flags: FsOpenFlags) -> SysResult {
    cx.task.with_paths(|p| p.may_mount())?;
    if !FsOpenFlags::all().contains(flags) {
        return Err(EINVAL);
    }
    let name = word(cx, fs_type, TYPE_MAX)?;
    let config = FsConfig::create(&cx.kernel.vfs, &name, &cx.cred())?;
    config_file(cx, config, flags.contains(FsOpenFlags::FSOPEN_CLOEXEC))
}

/// `fspick(dirfd, path, flags)`.
fn fspick(cx: &mut Context, dirfd: DirFd, path: PathPtr, flags: FsPickFlags) -> SysResult {
    use FsPickFlags as P;
    cx.task.with_paths(|p| p.may_mount())?;
    if !P::all().contains(flags) {
        return Err(EINVAL);
    }
    let path = path.read(cx)?;
    let follow = Follow::unless(flags.contains(P::FSPICK_SYMLINK_NOFOLLOW));
    let t = target(
        cx,
        dirfd,
        &path,
        walk(follow, flags.contains(P::FSPICK_EMPTY_PATH)),
    )?;
    let config = cx.task.with_paths(|p| p.fspick(&t))?;
    config_file(cx, config, flags.contains(P::FSPICK_CLOEXEC))
}

/// What a command may be given: which of key and value are there, and the last word.
fn check_command(cmd: FsCommand, key: bool, value: bool, aux: i32) -> Result<()> {
    use FsCommand as C;
    let good = match cmd {
        C::FSCONFIG_SET_FLAG => key && !value && aux == 0,
        C::FSCONFIG_SET_STRING => key && value && aux == 0,
        C::FSCONFIG_SET_BINARY => key && value && aux > 0 && aux <= BLOB_MAX,
        C::FSCONFIG_SET_PATH | C::FSCONFIG_SET_PATH_EMPTY => {
            key && value && (aux == abi::linux::AT_FDCWD || aux >= 0)
        }
        C::FSCONFIG_SET_FD => key && !value && aux >= 0,
        C::FSCONFIG_CMD_CREATE | C::FSCONFIG_CMD_CREATE_EXCL | C::FSCONFIG_CMD_RECONFIGURE => {
            !key && !value && aux == 0
        }
        _ => return Err(EOPNOTSUPP),
    };
    if good { Ok(()) } else { Err(EINVAL) }
}

/// The parameter that a command gives.
fn param(cx: &Context, cmd: FsCommand, key: StrPtr, value: StrPtr, aux: i32) -> Result<Param> {
    use FsCommand as C;
    let key = word(cx, key, WORD_MAX)?;
    let value = match cmd {
        C::FSCONFIG_SET_STRING => Value::Text(word(cx, value, WORD_MAX)?),
        C::FSCONFIG_SET_BINARY => {
            // No type here takes bytes; they are read as Linux does, and refused as a value.
            let mut blob = vec![0; aux as usize];
            cx.mm().copy_in(value.0, &mut blob)?;
            Value::Bytes
        }
        C::FSCONFIG_SET_PATH | C::FSCONFIG_SET_PATH_EMPTY => {
            let path = PathPtr(value.0).read(cx)?;
            if path.is_empty() && cmd == C::FSCONFIG_SET_PATH {
                return Err(ENOENT);
            }
            // As a path: no type here takes one.
            Value::Bytes
        }
        C::FSCONFIG_SET_FD => match &Fd(aux).any_file(cx)?.path {
            Some(p) => {
                let shown = p.describe(&cx.fs().root()).display();
                if shown.len() >= vfs::PATH_MAX {
                    return Err(ENAMETOOLONG);
                }
                Value::Place(p.clone(), String::from_utf8_lossy(&shown).into_owned())
            }
            None => Value::Bytes,
        },
        _ => Value::Flag,
    };
    Ok(Param { key, value })
}

/// `fsconfig(fd, cmd, key, value, aux)`.
fn fsconfig(
    cx: &mut Context,
    fd: Fd,
    cmd: FsCommand,
    key: StrPtr,
    value: StrPtr,
    aux: i32,
) -> SysResult {
    use FsCommand as C;
    if fd.0 < 0 {
        return Err(EINVAL);
    }
    check_command(cmd, !key.0.is_null(), !value.0.is_null(), aux)?;
    let f = fd.file(cx)?;
    let config = f.ops::<FsConfig>().ok_or(EINVAL)?;
    let vfs = cx.kernel.vfs.clone();
    match cmd {
        C::FSCONFIG_CMD_CREATE | C::FSCONFIG_CMD_CREATE_EXCL => {
            let exclusive = match cmd {
                C::FSCONFIG_CMD_CREATE => Exclusive::No,
                _ => Exclusive::Yes,
            };
            cx.task
                .with_paths(|p| config.make(&vfs, &p.caller, exclusive))?;
        }
        C::FSCONFIG_CMD_RECONFIGURE => {
            cx.task.with_paths(|p| config.reconfigure(&p.caller))?;
        }
        _ => {
            let param = param(cx, cmd, key, value, aux)?;
            cx.task.with_paths(|p| config.set(&p.caller, param))?;
        }
    }
    Ok(0)
}

/// `fsmount(fd, flags, attrs)`.
fn fsmount(cx: &mut Context, fd: Fd, flags: FsOpenFlags, attrs: MountAttrs) -> SysResult {
    cx.task.with_paths(|p| p.may_mount())?;
    if !FsOpenFlags::all().contains(flags) {
        return Err(EINVAL);
    }
    let mount = fsmount_flags(attrs.bits())?;
    let f = fd.file(cx)?;
    let config = f.ops::<FsConfig>().ok_or(EINVAL)?;
    let tree = cx.task.with_paths(|p| p.fsmount(config, mount))?;
    install(cx, tree, flags.contains(FsOpenFlags::FSOPEN_CLOEXEC))
}

/// What `struct mount_attr` asks for; nothing where it asks for nothing
/// (`wants_mount_setattr`).
fn change(cx: &Context, attr: Va, size: usize) -> Result<Option<AttrChange>> {
    const IDMAP: u64 = abi::linux::MOUNT_ATTR_IDMAP as u64;
    if size > 4096 {
        return Err(E2BIG);
    }
    if size < 32 {
        return Err(EINVAL);
    }
    cx.task.with_paths(|p| p.may_mount())?;
    let mut words = [0u64; 4];
    read_sized(cx, attr, size, words.as_mut_bytes())?;
    let [set, clear, propagation, user] = words;
    if set == 0 && clear == 0 && propagation == 0 {
        return Ok(None);
    }
    let change = attr_change(set & !IDMAP, clear & !IDMAP, propagation)?;
    if clear & IDMAP != 0 {
        return Err(EINVAL);
    }
    if set & IDMAP != 0 {
        let fd = i32::try_from(user).map_err(|_| EINVAL)?;
        let f = Fd(fd).file(cx)?;
        let Some(NsRef::User(ns)) = f.ops::<NsFile>().map(|f| &f.0) else {
            return Err(EINVAL);
        };
        if ns.is_initial() || !cx.cred().has_in(ns, vfs::Caps::SYS_ADMIN) {
            return Err(EPERM);
        }
        // As of a file system that has no idmapped mounts (`FS_ALLOW_IDMAP`): none here has.
        return Err(EINVAL);
    }
    Ok(Some(change))
}

/// `mount_setattr(dirfd, path, flags, attr, size)`.
fn mount_setattr(
    cx: &mut Context,
    dirfd: DirFd,
    path: PathPtr,
    flags: SetAttrFlags,
    attr: Va,
    size: usize,
) -> SysResult {
    let Some(change) = change(cx, attr, size)? else {
        return Ok(0);
    };
    let path = path.read(cx)?;
    let follow = Follow::unless(flags.contains(SetAttrFlags::AT_SYMLINK_NOFOLLOW));
    let empty = flags.contains(SetAttrFlags::AT_EMPTY_PATH);
    let t = target(cx, dirfd, &path, walk(follow, empty))?;
    let below = recursive(flags.contains(SetAttrFlags::AT_RECURSIVE));
    cx.task.with_paths(|p| p.mount_setattr(&t, change, below))?;
    Ok(0)
}

calls! {
    open_tree,
    move_mount,
    fsopen,
    fsconfig,
    fsmount,
    fspick,
    mount_setattr: "MOUNT_ATTR_IDMAP gives EINVAL, as of a file system without idmapped mounts",
    open_tree_attr: "no idmapped mounts",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_words() {
        let bad = |cmd, key, value, aux| check_command(FsCommand(cmd), key, value, aux);
        assert_eq!(bad(0, true, false, 0), Ok(()));
        assert_eq!(bad(0, true, true, 0), Err(EINVAL));
        assert_eq!(bad(1, true, false, 0), Err(EINVAL));
        assert_eq!(bad(2, true, true, BLOB_MAX + 1), Err(EINVAL));
        assert_eq!(bad(3, true, true, -100), Ok(()));
        assert_eq!(bad(3, true, true, -1), Err(EINVAL));
        assert_eq!(bad(5, true, false, -1), Err(EINVAL));
        assert_eq!(bad(6, true, false, 0), Err(EINVAL));
        assert_eq!(bad(9, false, false, 0), Err(EOPNOTSUPP));
    }
}
