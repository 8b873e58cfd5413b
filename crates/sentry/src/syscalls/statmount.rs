//! statmount and listmount: what is mounted, by unique id (their man pages; Linux's
//! fs/namespace.c, include/uapi/linux/mount.h).

use super::args::*;
use super::{SysResult, read_sized};
use crate::ns::nsfs::{NsFile, NsRef};
use crate::task::Context;
use abi::errno::*;
use abi::{Result, Va};
use std::sync::Arc;
use vfs::Path;
use vfs::namespace::{MountNamespace, MountStat};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

flags! {
    /// Of listmount(2).
    struct ListMountFlags: u32, refused {
        LISTMOUNT_REVERSE,
    }
}

/// `struct mnt_id_req`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Request {
    size: u32,
    ns_fd: u32,
    mnt_id: u64,
    param: u64,
    ns_id: u64,
}

/// Reads a request, of any of its sizes (`copy_mnt_id_req`).
fn request(cx: &Context, at: Va) -> Result<Request> {
    let size: u32 = cx.mm().read_obj(at)?;
    let size = size as usize;
    if size > 4096 {
        return Err(E2BIG);
    }
    if size < 24 {
        return Err(EINVAL);
    }
    let mut r = Request::default();
    read_sized(cx, at, size, r.as_mut_bytes())?;
    if r.ns_fd != 0 && r.ns_id != 0 || r.mnt_id <= vfs::mount::UNIQUE {
        return Err(EINVAL);
    }
    Ok(r)
}

/// The namespace that a request is about, and the root from which it is seen.
fn requested(cx: &Context, r: &Request) -> Result<(Arc<MountNamespace>, Path)> {
    let own = cx.fs().ns();
    let ns = if r.ns_id != 0 {
        MountNamespace::by_number(&cx.kernel.vfs.mounts, r.ns_id, &own, &cx.cred())?
    } else if r.ns_fd != 0 {
        let f = Fd(r.ns_fd as i32).file(cx)?;
        match f.ops::<NsFile>().map(|f| &f.0) {
            Some(NsRef::Mnt(ns)) => ns.clone(),
            _ => return Err(EINVAL),
        }
    } else {
        own.clone()
    };
    let root = if ns.id == own.id {
        cx.fs().root()
    } else {
        ns.root()
    };
    Ok((ns, root))
}

/// `struct statmount`, without what is spare at its end.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StatMount {
    size: u32,
    mnt_opts: u32,
    mask: u64,
    sb_dev_major: u32,
    sb_dev_minor: u32,
    sb_magic: u64,
    sb_flags: u32,
    fs_type: u32,
    mnt_id: u64,
    mnt_parent_id: u64,
    mnt_id_old: u32,
    mnt_parent_id_old: u32,
    mnt_attr: u64,
    mnt_propagation: u64,
    mnt_peer_group: u64,
    mnt_master: u64,
    propagate_from: u64,
    mnt_root: u32,
    mnt_point: u32,
    mnt_ns_id: u64,
    fs_subtype: u32,
    sb_source: u32,
    opt_num: u32,
    opt_array: u32,
    opt_sec_num: u32,
    opt_sec_array: u32,
    supported_mask: u64,
    mnt_uidmap_num: u32,
    mnt_uidmap: u32,
    mnt_gidmap_num: u32,
    mnt_gidmap: u32,
}

/// Its size with all that is spare.
const STAT_MOUNT: usize = 512;
const SB_BASIC: u64 = 1;
const MNT_BASIC: u64 = 2;
const PROPAGATE_FROM: u64 = 4;
const MNT_ROOT: u64 = 8;
const MNT_POINT: u64 = 0x10;
const FS_TYPE: u64 = 0x20;
const MNT_NS_ID: u64 = 0x40;
const MNT_OPTS: u64 = 0x80;
const FS_SUBTYPE: u64 = 0x100;
const SB_SOURCE: u64 = 0x200;
const OPT_ARRAY: u64 = 0x400;
const OPT_SEC_ARRAY: u64 = 0x800;
const SUPPORTED_MASK: u64 = 0x1000;
const UIDMAP: u64 = 0x2000;
const GIDMAP: u64 = 0x4000;
/// What needs room for strings.
const STRINGS: u64 = MNT_ROOT
    | MNT_POINT
    | FS_TYPE
    | MNT_OPTS
    | FS_SUBTYPE
    | SB_SOURCE
    | OPT_ARRAY
    | OPT_SEC_ARRAY
    | UIDMAP
    | GIDMAP;
/// All that is known.
const SUPPORTED: u64 = (1 << 15) - 1;

/// The answer to a request for `asked`: the struct, and the strings behind it.
fn answer(t: &MountStat, asked: u64, room: usize) -> Result<(StatMount, Vec<u8>)> {
    let mut s = StatMount::default();
    if asked & SB_BASIC != 0 {
        (s.sb_dev_major, s.sb_dev_minor) = t.dev;
        (s.sb_magic, s.sb_flags) = (t.magic, t.fs_flags);
        s.mask |= SB_BASIC;
    }
    if asked & MNT_BASIC != 0 {
        (s.mnt_id, s.mnt_parent_id) = (t.id, t.parent);
        (s.mnt_id_old, s.mnt_parent_id_old) = (t.old_id, t.old_parent);
        (s.mnt_attr, s.mnt_propagation) = (t.attrs, t.propagation);
        (s.mnt_peer_group, s.mnt_master) = (t.group.into(), t.master.into());
        s.mask |= MNT_BASIC;
    }
    if asked & PROPAGATE_FROM != 0 {
        s.propagate_from = t.propagate_from.into();
        s.mask |= PROPAGATE_FROM;
    }
    if asked & MNT_NS_ID != 0 {
        s.mnt_ns_id = t.namespace;
        s.mask |= MNT_NS_ID;
    }
    if asked & SUPPORTED_MASK != 0 {
        s.supported_mask = SUPPORTED;
        s.mask |= SUPPORTED_MASK;
    }
    let split = apart(&t.options);
    // The first byte is the empty string of those that are not told.
    let mut strings = vec![0];
    for (bit, text, offset) in [
        (FS_TYPE, t.fs_type.as_bytes(), &mut s.fs_type),
        (MNT_ROOT, &*t.root, &mut s.mnt_root),
        (MNT_POINT, &*t.point, &mut s.mnt_point),
        (MNT_OPTS, t.options.as_bytes(), &mut s.mnt_opts),
        (OPT_ARRAY, &*split, &mut s.opt_array),
        (SB_SOURCE, t.source.as_bytes(), &mut s.sb_source),
    ] {
        if asked & bit == 0 || text.is_empty() {
            continue;
        }
        *offset = strings.len() as u32;
        strings.extend_from_slice(text);
        if STAT_MOUNT + strings.len() >= room {
            return Err(EOVERFLOW);
        }
        strings.push(0);
        s.mask |= bit;
        if bit == OPT_ARRAY {
            s.opt_num = text.iter().filter(|b| **b == 0).count() as u32 + 1;
        }
    }
    if asked & STRINGS == 0 {
        strings.clear();
    }
    Ok((s, strings))
}

/// Options apart, each as it was given: what is escaped in their list is not there
/// (`statmount_opt_process`).
fn apart(options: &str) -> Vec<u8> {
    let one = |o: &str| {
        let (mut out, mut rest) = (Vec::new(), o.as_bytes());
        while let Some((first, after)) = rest.split_first() {
            let octal = after.get(..3).filter(|_| *first == b'\\');
            let byte = octal.and_then(|o| u8::from_str_radix(str::from_utf8(o).ok()?, 8).ok());
            out.push(byte.unwrap_or(*first));
            rest = if byte.is_some() { &after[3..] } else { after };
        }
        out
    };
    options.split(',').map(one).collect::<Vec<_>>().join(&0)
}

/// `statmount(req, buf, size, flags)`.
fn statmount(cx: &mut Context, req: Va, out: BytesOut, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    let r = request(cx, req)?;
    let (ns, root) = requested(cx, &r)?;
    if r.param & STRINGS != 0 && out.len == STAT_MOUNT {
        return Err(EOVERFLOW);
    }
    let told = ns.tell(r.mnt_id, &root, &cx.cred())?;
    let (mut s, strings) = answer(&told, r.param, out.len)?;
    let head = out.len.min(STAT_MOUNT);
    s.size = (head + strings.len()) as u32;
    let mut whole = [0; STAT_MOUNT];
    whole[..size_of::<StatMount>()].copy_from_slice(s.as_bytes());
    cx.mm()
        .copy_out(out.va.offset(STAT_MOUNT as u64), &strings)?;
    cx.mm().copy_out(out.va, &whole[..head])?;
    Ok(0)
}

/// The most ids that listmount(2) gives at a time.
const IDS_MAX: usize = 1_000_000;
/// All that the caller's root reaches (`LSMT_ROOT`).
const FROM_ROOT: u64 = u64::MAX;

/// `listmount(req, ids, count, flags)`.
fn listmount(
    cx: &mut Context,
    req: Va,
    out: UserArray<u64>,
    count: usize,
    flags: ListMountFlags,
) -> SysResult {
    if count > IDS_MAX {
        return Err(EOVERFLOW);
    }
    let r = request(cx, req)?;
    if r.param != 0 && r.param <= vfs::mount::UNIQUE {
        return Err(EINVAL);
    }
    let (ns, root) = requested(cx, &r)?;
    let below = (r.mnt_id != FROM_ROOT).then_some(r.mnt_id);
    let mut ids = ns.list(below, &root, &cx.cred())?;
    let reverse = flags.contains(ListMountFlags::LISTMOUNT_REVERSE);
    if reverse {
        ids.reverse();
    }
    if r.param != 0 {
        ids.retain(|id| {
            if reverse {
                *id < r.param
            } else {
                *id > r.param
            }
        });
    }
    ids.truncate(count);
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
    cx.mm().copy_out(out.va(), &bytes)?;
    Ok(ids.len())
}

calls! {
    statmount: "no idmapped mounts",
    listmount,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_apart_as_they_were() {
        let got = apart("ro,lowerdir=a\\054b\\134\\012,x=\\9,\\07");
        assert_eq!(got, b"ro\0lowerdir=a,b\\\n\0x=\\9\0\\07");
    }

    #[test]
    fn strings_lie_behind_the_struct() {
        let t = MountStat {
            fs_type: "tmpfs",
            options: String::from("size=4k,mode=700"),
            ..MountStat::default()
        };
        let (s, strings) = answer(&t, FS_TYPE | OPT_ARRAY | MNT_POINT, 600).unwrap();
        assert_eq!(s.mask, FS_TYPE | OPT_ARRAY);
        assert_eq!(strings, b"\0tmpfs\0size=4k\0mode=700\0");
        assert_eq!((s.fs_type, s.opt_array, s.opt_num), (1, 7, 2));
        assert_eq!(s.mnt_point, 0);
        assert_eq!(answer(&t, FS_TYPE, 517).map(|_| ()), Err(EOVERFLOW));
        assert!(answer(&t, SB_BASIC, 64).unwrap().1.is_empty());
    }
}
