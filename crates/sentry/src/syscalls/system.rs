//! The system as a whole: its names, its memory and uptime, randomness.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::errno::*;
use abi::linux::CLOCK_BOOTTIME;
use abi::{Result, Va};
use vfs::Caps;

flags! {
    /// Of getrandom(2).
    struct RandomFlags: u32, refused {
        GRND_NONBLOCK,
        GRND_RANDOM,
        GRND_INSECURE,
    }
}

fn uname(cx: &mut Context, out: Va) -> SysResult {
    cx.mm().copy_out(out, &cx.task.utsname())?;
    Ok(0)
}

fn new_name(cx: &Context, name: BytesIn<i32>) -> Result<Vec<u8>> {
    if !cx.cred().has_in(&cx.ns().uts.user, Caps::SYS_ADMIN) {
        return Err(EPERM);
    }
    if !(0..=64).contains(&name.len) {
        return Err(EINVAL);
    }
    let mut b = vec![0u8; name.len as usize];
    cx.mm().copy_in(name.va, &mut b)?;
    Ok(b)
}
fn sethostname(cx: &mut Context, name: BytesIn<i32>) -> SysResult {
    let n = new_name(cx, name)?;
    cx.ns().uts.change(&cx.kernel, |u| u.nodename = n);
    Ok(0)
}
fn setdomainname(cx: &mut Context, name: BytesIn<i32>) -> SysResult {
    let n = new_name(cx, name)?;
    cx.ns().uts.change(&cx.kernel, |u| u.domainname = n);
    Ok(0)
}

fn getrandom(cx: &mut Context, buf: BytesOut, flags: RandomFlags) -> SysResult {
    if flags.contains(RandomFlags::GRND_RANDOM | RandomFlags::GRND_INSECURE) {
        return Err(EINVAL);
    }
    let len = buf.len.min(32 << 20);
    let mm = cx.mm();
    let mut done = 0;
    let mut piece = [0u8; 1024];
    while done < len {
        let n = (len - done).min(piece.len());
        hostcall::time::random(&mut piece[..n]);
        let w = mm.write_bytes(buf.va.offset(done as u64), &piece[..n]);
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

fn sysinfo(cx: &mut Context, out: UserOut<[u64; 14]>) -> SysResult {
    let (total, free) = crate::fs::meminfo(&cx.kernel, &cx.task.group.container);
    let up = (hostcall::time::clock_nanos(CLOCK_BOOTTIME as i32) - cx.kernel.boot)
        / abi::time::NSEC_PER_SEC;
    let procs = cx.kernel.tasks.lock().task_count() as u64;
    let mut s = [0u64; 14];
    s[0] = up as u64;
    s[4] = total;
    s[5] = free;
    let swap = cx.task.group.container.clas.swap_stats();
    s[8] = swap.limit;
    s[9] = swap.limit.saturating_sub(swap.used);
    // procs is a u16 after eleven longs; mem_unit a u32 after totalhigh and freehigh.
    s[10] = procs & 0xffff;
    s[13] = 1;
    out.write(&cx.mm(), &s)?;
    Ok(0)
}

calls! {
    uname,
    sysinfo,
    sethostname,
    setdomainname,
    getrandom,
}
