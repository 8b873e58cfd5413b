//! Handles of files (name_to_handle_at(2), open_by_handle_at(2)).

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::Va;
use abi::errno::*;
use vfs::At;
use vfs::fd_table::CloseOnExec;
use vfs::ops::Purpose;
use vfs::walk::Walk;

flags! {
    /// Of name_to_handle_at(2).
    struct HandleFlags: u32, refused {
        AT_SYMLINK_FOLLOW,
        AT_EMPTY_PATH,
        AT_HANDLE_FID,
        AT_HANDLE_MNT_ID_UNIQUE,
        AT_HANDLE_CONNECTABLE,
    }
}

/// The most bytes of a handle (`MAX_HANDLE_SZ`).
const MAX: u32 = 128;
/// Where they begin in `struct file_handle`: behind their number and the type.
const HEAD: u64 = 8;
/// Of a type: a handle that leads to a path (`FILEID_IS_CONNECTABLE`); and what flags there are.
const CONNECTABLE: i32 = 0x1_0000;
const KNOWN_FLAGS: i32 = 0x3_0000;

/// `name_to_handle_at(dirfd, path, handle, mount_id, flags)`.
fn name_to_handle_at(
    cx: &mut Context,
    dirfd: DirFd,
    path: PathPtr,
    handle: Va,
    mount_id: Va,
    flags: HandleFlags,
) -> SysResult {
    use HandleFlags as H;
    if flags.contains(H::AT_HANDLE_FID | H::AT_HANDLE_CONNECTABLE) {
        return Err(EINVAL);
    }
    let path = path.read(cx)?;
    let at = At::new(&cx.files(), dirfd.0, &path)?;
    let mut walk = Walk::empty();
    walk.set(Walk::FOLLOW, flags.contains(H::AT_SYMLINK_FOLLOW));
    walk.set(Walk::EMPTY, flags.contains(H::AT_EMPTY_PATH));
    let purpose = match flags.contains(H::AT_HANDLE_FID) {
        true => Purpose::Compare,
        false => Purpose::Open,
    };
    let (h, place) = cx
        .task
        .with_paths(|p| p.handle(&at, &path, walk, purpose))?;
    let mm = cx.mm();
    let room: u32 = mm.read_obj(handle)?;
    if room > MAX {
        return Err(EINVAL);
    }
    let fits = room as usize >= h.bytes.len();
    let mut kind = h.kind;
    if fits && flags.contains(H::AT_HANDLE_CONNECTABLE) {
        kind |= CONNECTABLE;
    }
    if !fits {
        kind = 0xff;
    }
    if flags.contains(H::AT_HANDLE_MNT_ID_UNIQUE) {
        mm.write_obj(mount_id, &place.mnt.unique_id())?;
    } else {
        mm.write_obj(mount_id, &(place.mnt.id as u32))?;
    }
    mm.write_obj(handle, &[h.bytes.len() as i32, kind])?;
    if !fits {
        return Err(EOVERFLOW);
    }
    mm.copy_out(handle.offset(HEAD), &h.bytes)?;
    Ok(0)
}

/// `open_by_handle_at(mount_fd, handle, flags)`.
fn open_by_handle_at(cx: &mut Context, mount: DirFd, handle: Va, flags: OpenFlags) -> SysResult {
    let mm = cx.mm();
    let [len, kind]: [i32; 2] = mm.read_obj(handle)?;
    if len as u32 > MAX || len == 0 || kind < 0 || kind >> 16 << 16 & !KNOWN_FLAGS != 0 {
        return Err(EINVAL);
    }
    let at = At::scoped(&cx.files(), mount.0)?;
    let mut bytes = vec![0; len as usize];
    if cx.cred().has(vfs::Caps::DAC_READ_SEARCH) {
        mm.copy_in(handle.offset(HEAD), &mut bytes)?;
    }
    let f = cx
        .task
        .with_paths(|p| p.open_by_handle(&at, &bytes, flags.bits()))?;
    cx.task.heed_confidential(&f)?;
    let cloexec = CloseOnExec::from_flags(flags.bits());
    cx.files()
        .install(f, cloexec, &cx.room())
        .map(|n| n as usize)
}

calls! {
    name_to_handle_at: "of tmpfs; others' files have handles to compare alone (AT_HANDLE_FID)",
    open_by_handle_at: "of tmpfs, files that have a name; not by rights over a user namespace",
}
