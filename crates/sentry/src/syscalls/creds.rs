//! Credentials: users, groups, capabilities.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::{Context, creds};
use abi::errno::*;
use abi::{Result, Va};
use vfs::Caps;
use zerocopy::IntoBytes;

macro_rules! id_calls {
    ($($name:ident = $field:ident, $shown:ident;)*) => {
        $(fn $name(cx: &mut Context, _: &Args) -> SysResult {
            let c = cx.cred();
            Ok(c.user_ns.$shown(c.$field) as usize)
        })*
    };
}
id_calls! {
    getuid = uid, uid_shown;
    geteuid = euid, uid_shown;
    getgid = gid, gid_shown;
    getegid = egid, gid_shown;
}

/// The user that an argument means; -1 leaves one as it is.
fn uid_arg(cx: &Context, n: u32) -> Result<u32> {
    match n {
        creds::KEEP => Ok(n),
        n => cx.cred().user_ns.uid_from(n),
    }
}
fn gid_arg(cx: &Context, n: u32) -> Result<u32> {
    match n {
        creds::KEEP => Ok(n),
        n => cx.cred().user_ns.gid_from(n),
    }
}

fn triple(cx: &Context, a: &Args, ids: [u32; 3]) -> SysResult {
    let mm = cx.mm();
    for (i, id) in ids.iter().enumerate() {
        mm.write_obj(a.va(i), id)?;
    }
    Ok(0)
}
fn getresuid(cx: &mut Context, a: &Args) -> SysResult {
    let c = cx.cred();
    triple(
        cx,
        a,
        [c.uid, c.euid, c.suid].map(|u| c.user_ns.uid_shown(u)),
    )
}
fn getresgid(cx: &mut Context, a: &Args) -> SysResult {
    let c = cx.cred();
    triple(
        cx,
        a,
        [c.gid, c.egid, c.sgid].map(|g| c.user_ns.gid_shown(g)),
    )
}
fn setuid(cx: &mut Context, a: &Args) -> SysResult {
    creds::setuid(cx, uid_arg(cx, a.u32(0))?).map(|()| 0)
}
fn setgid(cx: &mut Context, a: &Args) -> SysResult {
    creds::setgid(cx, gid_arg(cx, a.u32(0))?).map(|()| 0)
}
fn setreuid(cx: &mut Context, a: &Args) -> SysResult {
    let arg = |i| uid_arg(cx, a.u32(i));
    creds::setreuid(cx, arg(0)?, arg(1)?).map(|()| 0)
}
fn setregid(cx: &mut Context, a: &Args) -> SysResult {
    let arg = |i| gid_arg(cx, a.u32(i));
    creds::setregid(cx, arg(0)?, arg(1)?).map(|()| 0)
}
fn setresuid(cx: &mut Context, a: &Args) -> SysResult {
    let arg = |i| uid_arg(cx, a.u32(i));
    creds::setresuid(cx, arg(0)?, arg(1)?, arg(2)?).map(|()| 0)
}
fn setresgid(cx: &mut Context, a: &Args) -> SysResult {
    let arg = |i| gid_arg(cx, a.u32(i));
    creds::setresgid(cx, arg(0)?, arg(1)?, arg(2)?).map(|()| 0)
}
fn setfsuid(cx: &mut Context, a: &Args) -> SysResult {
    let ns = cx.cred().user_ns.clone();
    let old = match ns.uid_from(a.u32(0)) {
        Ok(n) => creds::setfsuid(cx, n),
        Err(_) => cx.cred().fsuid,
    };
    Ok(ns.uid_shown(old) as usize)
}
fn setfsgid(cx: &mut Context, a: &Args) -> SysResult {
    let ns = cx.cred().user_ns.clone();
    let old = match ns.gid_from(a.u32(0)) {
        Ok(n) => creds::setfsgid(cx, n),
        Err(_) => cx.cred().fsgid,
    };
    Ok(ns.gid_shown(old) as usize)
}

fn getgroups(cx: &mut Context, a: &Args) -> SysResult {
    let (n, c) = (a.i32(0), cx.cred());
    if n < 0 {
        return Err(EINVAL);
    }
    if n > 0 {
        if (n as usize) < c.groups.len() {
            return Err(EINVAL);
        }
        let mut shown: Vec<u32> = c.groups.iter().map(|g| c.user_ns.gid_shown(*g)).collect();
        shown.sort_unstable();
        cx.mm().copy_out(a.va(1), shown.as_bytes())?;
    }
    Ok(c.groups.len())
}

fn setgroups(cx: &mut Context, a: &Args) -> SysResult {
    const NGROUPS_MAX: u32 = 65_536;
    let n = a.u32(0);
    let ns = cx.cred().user_ns.clone();
    if !cx.cred().has_own(Caps::SETGID) || !ns.may_setgroups() {
        return Err(EPERM);
    }
    if n > NGROUPS_MAX {
        return Err(EINVAL);
    }
    let mut groups = vec![0u32; n as usize];
    cx.mm().copy_in(a.va(1), groups.as_mut_bytes())?;
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
fn cap_version(cx: &Context, va: Va) -> Result<(usize, i32)> {
    let [version, pid]: [u32; 2] = cx.mm().read_obj(va)?;
    let words = match version {
        0x1998_0330 => 1,
        0x2007_1026 | 0x2008_0522 => 2,
        _ => {
            cx.mm().write_obj(va, &0x2008_0522u32)?;
            return Err(EINVAL);
        }
    };
    Ok((words, pid as i32))
}

fn capget(cx: &mut Context, a: &Args) -> SysResult {
    let r = cap_version(cx, a.va(0));
    let Some(data) = a.va_opt(1) else {
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
    cx.mm().copy_out(data, &out.as_bytes()[..words * 12])?;
    Ok(0)
}

fn capset(cx: &mut Context, a: &Args) -> SysResult {
    let (words, pid) = cap_version(cx, a.va(0))?;
    if pid != 0 && pid != cx.pid.own() {
        return Err(EPERM);
    }
    let mut raw = [0u32; 6];
    cx.mm()
        .copy_in(a.va(1), &mut raw.as_mut_bytes()[..words * 12])?;
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

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(102, "getuid", &[], getuid),
    Call::new(104, "getgid", &[], getgid),
    Call::new(105, "setuid", &[Arg::Uint], setuid),
    Call::new(106, "setgid", &[Arg::Uint], setgid),
    Call::new(107, "geteuid", &[], geteuid),
    Call::new(108, "getegid", &[], getegid),
    Call::new(113, "setreuid", &[Arg::Int, Arg::Int], setreuid),
    Call::new(114, "setregid", &[Arg::Int, Arg::Int], setregid),
    Call::new(115, "getgroups", &[Arg::Int, Arg::Ptr], getgroups),
    Call::new(116, "setgroups", &[Arg::Int, Arg::Ptr], setgroups),
    Call::new(117, "setresuid", &[Arg::Int, Arg::Int, Arg::Int], setresuid),
    Call::new(118, "getresuid", &[Arg::Ptr, Arg::Ptr, Arg::Ptr], getresuid),
    Call::new(119, "setresgid", &[Arg::Int, Arg::Int, Arg::Int], setresgid),
    Call::new(120, "getresgid", &[Arg::Ptr, Arg::Ptr, Arg::Ptr], getresgid),
    Call::new(122, "setfsuid", &[Arg::Int], setfsuid),
    Call::new(123, "setfsgid", &[Arg::Int], setfsgid),
    Call::new(125, "capget", &[Arg::Ptr, Arg::Ptr], capget),
    Call::new(126, "capset", &[Arg::Ptr, Arg::Ptr], capset),
];
