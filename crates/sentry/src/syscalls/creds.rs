//! Credentials: users, groups, capabilities.

use super::SysResult;
use super::args::*;
use crate::task::{Context, creds};
use abi::Result;
use abi::errno::*;
use vfs::Caps;
use zerocopy::IntoBytes;

fn getuid(cx: &mut Context) -> SysResult {
    let c = cx.cred();
    Ok(c.user_ns.uid_shown(c.uid) as usize)
}
fn geteuid(cx: &mut Context) -> SysResult {
    let c = cx.cred();
    Ok(c.user_ns.uid_shown(c.euid) as usize)
}
fn getgid(cx: &mut Context) -> SysResult {
    let c = cx.cred();
    Ok(c.user_ns.gid_shown(c.gid) as usize)
}
fn getegid(cx: &mut Context) -> SysResult {
    let c = cx.cred();
    Ok(c.user_ns.gid_shown(c.egid) as usize)
}

/// The user that an argument means; -1 leaves one as it is.
fn user(cx: &Context, uid: Uid) -> Result<u32> {
    match uid.0 {
        creds::KEEP => Ok(creds::KEEP),
        n => cx.cred().user_ns.uid_from(n),
    }
}
fn group(cx: &Context, gid: Gid) -> Result<u32> {
    match gid.0 {
        creds::KEEP => Ok(creds::KEEP),
        n => cx.cred().user_ns.gid_from(n),
    }
}

fn triple(cx: &Context, out: [UserOut<u32>; 3], ids: [u32; 3]) -> SysResult {
    let mm = cx.mm();
    for (out, id) in out.iter().zip(&ids) {
        out.write(&mm, id)?;
    }
    Ok(0)
}
fn getresuid(
    cx: &mut Context,
    ruid: UserOut<u32>,
    euid: UserOut<u32>,
    suid: UserOut<u32>,
) -> SysResult {
    let c = cx.cred();
    let ids = [c.uid, c.euid, c.suid].map(|u| c.user_ns.uid_shown(u));
    triple(cx, [ruid, euid, suid], ids)
}
fn getresgid(
    cx: &mut Context,
    rgid: UserOut<u32>,
    egid: UserOut<u32>,
    sgid: UserOut<u32>,
) -> SysResult {
    let c = cx.cred();
    let ids = [c.gid, c.egid, c.sgid].map(|g| c.user_ns.gid_shown(g));
    triple(cx, [rgid, egid, sgid], ids)
}
fn setuid(cx: &mut Context, uid: Uid) -> SysResult {
    creds::setuid(cx, user(cx, uid)?).map(|()| 0)
}
fn setgid(cx: &mut Context, gid: Gid) -> SysResult {
    creds::setgid(cx, group(cx, gid)?).map(|()| 0)
}
fn setreuid(cx: &mut Context, ruid: Uid, euid: Uid) -> SysResult {
    creds::setreuid(cx, user(cx, ruid)?, user(cx, euid)?).map(|()| 0)
}
fn setregid(cx: &mut Context, rgid: Gid, egid: Gid) -> SysResult {
    creds::setregid(cx, group(cx, rgid)?, group(cx, egid)?).map(|()| 0)
}
fn setresuid(cx: &mut Context, ruid: Uid, euid: Uid, suid: Uid) -> SysResult {
    creds::setresuid(cx, user(cx, ruid)?, user(cx, euid)?, user(cx, suid)?).map(|()| 0)
}
fn setresgid(cx: &mut Context, rgid: Gid, egid: Gid, sgid: Gid) -> SysResult {
    creds::setresgid(cx, group(cx, rgid)?, group(cx, egid)?, group(cx, sgid)?).map(|()| 0)
}
fn setfsuid(cx: &mut Context, uid: Uid) -> SysResult {
    let ns = cx.cred().user_ns.clone();
    let old = match ns.uid_from(uid.0) {
        Ok(n) => creds::setfsuid(cx, n),
        Err(_) => cx.cred().fsuid,
    };
    Ok(ns.uid_shown(old) as usize)
}
fn setfsgid(cx: &mut Context, gid: Gid) -> SysResult {
    let ns = cx.cred().user_ns.clone();
    let old = match ns.gid_from(gid.0) {
        Ok(n) => creds::setfsgid(cx, n),
        Err(_) => cx.cred().fsgid,
    };
    Ok(ns.gid_shown(old) as usize)
}

fn getgroups(cx: &mut Context, size: i32, list: UserArray<u32>) -> SysResult {
    let (n, c) = (size, cx.cred());
    if n < 0 {
        return Err(EINVAL);
    }
    if n > 0 {
        if (n as usize) < c.groups.len() {
            return Err(EINVAL);
        }
        let mut shown: Vec<u32> = c.groups.iter().map(|g| c.user_ns.gid_shown(*g)).collect();
        shown.sort_unstable();
        cx.mm().copy_out(list.va(), shown.as_bytes())?;
    }
    Ok(c.groups.len())
}

fn setgroups(cx: &mut Context, size: u32, list: UserArray<u32>) -> SysResult {
    const NGROUPS_MAX: u32 = 65_536;
    let n = size;
    let ns = cx.cred().user_ns.clone();
    if !cx.cred().has_own(Caps::SETGID) || !ns.may_setgroups() {
        return Err(EPERM);
    }
    if n > NGROUPS_MAX {
        return Err(EINVAL);
    }
    let mut groups = vec![0u32; n as usize];
    cx.mm().copy_in(list.va(), groups.as_mut_bytes())?;
    for g in &mut groups {
        *g = ns.gid_from(*g)?;
    }
    groups.sort_unstable();
    let mut c = (*cx.cred()).clone();
    c.groups = groups;
    cx.task.commit_cred(c);
    Ok(0)
}

/// The capability header's versions and how many words each has.
fn cap_version(cx: &Context, header: UserPtr<[u32; 2]>) -> Result<(usize, i32)> {
    let [version, pid] = header.read(&cx.mm())?;
    let words = match version {
        0x1998_0330 => 1,
        0x2007_1026 | 0x2008_0522 => 2,
        _ => {
            cx.mm().write_obj(header.va(), &0x2008_0522u32)?;
            return Err(EINVAL);
        }
    };
    Ok((words, pid as i32))
}

fn capget(cx: &mut Context, header: UserPtr<[u32; 2]>, data: Option<UserArray<u32>>) -> SysResult {
    let r = cap_version(cx, header);
    let Some(data) = data else {
        // Asking for the version only.
        return match r {
            Err(EINVAL) | Ok(_) => Ok(0),
            Err(e) => Err(e),
        };
    };
    let (words, pid) = r?;
    if pid < 0 {
        return Err(EINVAL);
    }
    let c = match pid {
        0 => cx.cred(),
        _ => cx.find_task(pid)?.cred(),
    };
    let mut out = [0u32; 6];
    for w in 0..words {
        for (i, set) in [c.effective, c.permitted, c.inheritable].iter().enumerate() {
            out[w * 3 + i] = (set.bits() >> (32 * w)) as u32;
        }
    }
    cx.mm().copy_out(data.va(), &out.as_bytes()[..words * 12])?;
    Ok(0)
}

fn capset(cx: &mut Context, header: UserPtr<[u32; 2]>, data: UserArray<u32>) -> SysResult {
    let (words, pid) = cap_version(cx, header)?;
    if pid != 0 && pid != cx.pid.own() {
        return Err(EPERM);
    }
    let mut raw = [0u32; 6];
    cx.mm()
        .copy_in(data.va(), &mut raw.as_mut_bytes()[..words * 12])?;
    let set = |i: usize| {
        let bits = u64::from(raw[i]) | (u64::from(raw[3 + i]) << 32);
        Caps::from_bits_retain(bits) & Caps::FULL
    };
    let (e, p, i) = (set(0), set(1), set(2));
    let old = cx.cred();
    // Nothing beyond the bounding set, and without CAP_SETPCAP nothing that was not permitted.
    let mut limit = old.bounding;
    if !old.has_own(Caps::SETPCAP) {
        limit &= old.permitted;
    }
    if !limit.contains(i & !old.inheritable) || !old.permitted.contains(p) || !p.contains(e) {
        return Err(EPERM);
    }
    let mut c = (*old).clone();
    c.effective = e;
    c.permitted = p;
    c.inheritable = i;
    c.ambient &= p & i;
    cx.task.commit_cred(c);
    Ok(0)
}

calls! {
    getuid,
    getgid,
    setuid,
    setgid,
    geteuid,
    getegid,
    setreuid,
    setregid,
    getgroups,
    setgroups,
    setresuid,
    getresuid,
    setresgid,
    getresgid,
    setfsuid,
    setfsgid,
    capget,
    capset,
}
