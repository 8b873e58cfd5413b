//! The system as a whole: its names, its memory and uptime, randomness.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::Result;
use abi::errno::*;
use abi::linux::CLOCK_BOOTTIME;
use vfs::Caps;

fn uname(cx: &mut Context, a: &Args) -> SysResult {
    let names = cx.ns().uts.get().utsname();
    cx.mm().copy_out(a.va(0), &names)?;
    Ok(0)
}

fn set_name(cx: &Context, a: &Args) -> Result<Vec<u8>> {
    if !cx.cred().has_in(&cx.ns().uts.user, Caps::SYS_ADMIN) {
        return Err(EPERM);
    }
    let len = a.i32(1);
    if !(0..=64).contains(&len) {
        return Err(EINVAL);
    }
    let mut b = vec![0u8; len as usize];
    cx.mm().copy_in(a.va(0), &mut b)?;
    Ok(b)
}
fn sethostname(cx: &mut Context, a: &Args) -> SysResult {
    let n = set_name(cx, a)?;
    cx.ns().uts.change(&cx.kernel, |u| u.nodename = n);
    Ok(0)
}
fn setdomainname(cx: &mut Context, a: &Args) -> SysResult {
    let n = set_name(cx, a)?;
    cx.ns().uts.change(&cx.kernel, |u| u.domainname = n);
    Ok(0)
}

fn getrandom(cx: &mut Context, a: &Args) -> SysResult {
    let flags = a.u32(2);
    if flags & !7 != 0 || flags & 6 == 6 {
        return Err(EINVAL);
    }
    let len = a.usize(1).min(32 << 20);
    let mm = cx.mm();
    let mut done = 0;
    let mut buf = [0u8; 1024];
    while done < len {
        let n = (len - done).min(buf.len());
        hostcall::time::random(&mut buf[..n]);
        let w = mm.write_bytes(a.va(0).offset(done as u64), &buf[..n]);
        done += w;
        if w < n {
            break;
        }
    }
    if done == 0 && len > 0 {
        Err(EFAULT)
    } else {
        Ok(done)
    }
}

fn sysinfo(cx: &mut Context, a: &Args) -> SysResult {
    let (total, free) = crate::fs::meminfo(&cx.kernel, &cx.task.group.container);
    let up = (hostcall::time::clock_nanos(CLOCK_BOOTTIME as i32) - cx.kernel.boot)
        / abi::time::NSEC_PER_SEC;
    let procs = cx.kernel.tasks.lock().task_count() as u64;
    let mut s = [0u64; 14];
    s[0] = up as u64;
    s[4] = total;
    s[5] = free;
    // procs is a u16 after eleven longs; mem_unit a u32 after totalhigh and freehigh.
    s[10] = procs & 0xffff;
    s[13] = 1;
    cx.mm().write_obj(a.va(0), &s)?;
    Ok(0)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(63, "uname", &[Arg::Ptr], uname),
    Call::new(99, "sysinfo", &[Arg::Ptr], sysinfo),
    Call::new(170, "sethostname", &[Arg::In(1), Arg::Int], sethostname),
    Call::new(171, "setdomainname", &[Arg::In(1), Arg::Int], setdomainname),
    Call::new(
        318,
        "getrandom",
        &[Arg::Out, Arg::Uint, Arg::Hex],
        getrandom,
    ),
];
