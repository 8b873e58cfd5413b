//! The system as a whole: its names, its memory and uptime, randomness.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::errno::*;
use abi::linux::CLOCK_BOOTTIME;
use abi::{Result, Va};
use vfs::Caps;
use wait::Events;

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
    let boottime = CLOCK_BOOTTIME as i32;
    let up = hostcall::time::clock_nanos(boottime) - cx.kernel.boot + cx.clock_offset(boottime);
    // (Offsets are of the host's time: that since our own start may be less.)
    // A second that has begun counts, as on Linux: not less than /proc/uptime says.
    let up = (up.max(0) as u64).div_ceil(abi::time::NSEC_PER_SEC as u64);
    let procs = cx.kernel.tasks.lock().task_count() as u64;
    let mut s = [0u64; 14];
    s[0] = up;
    s[4] = total;
    s[5] = free;
    let memory = &cx.task.group.container.clas;
    let swap = memory.swap_stats();
    s[6] = memory.files_here(clas::AccountId::ROOT);
    s[8] = swap.limit;
    s[9] = swap.limit.saturating_sub(swap.used);
    // procs is a u16 after eleven longs; mem_unit a u32 after totalhigh and freehigh.
    s[10] = procs & 0xffff;
    s[13] = 1;
    out.write(&cx.mm(), &s)?;
    Ok(0)
}

/// What syslog(2) does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SyslogAction {
    Nothing,
    Read,
    Last { clear: bool },
    Clear,
    Level,
    Unread,
    Size,
}

named! {
    /// The numbers of that.
    struct SyslogType(i32) {
        SYSLOG_ACTION_CLOSE = 0,
        SYSLOG_ACTION_OPEN = 1,
        SYSLOG_ACTION_READ = 2,
        SYSLOG_ACTION_READ_ALL = 3,
        SYSLOG_ACTION_READ_CLEAR = 4,
        SYSLOG_ACTION_CLEAR = 5,
        SYSLOG_ACTION_CONSOLE_OFF = 6,
        SYSLOG_ACTION_CONSOLE_ON = 7,
        SYSLOG_ACTION_CONSOLE_LEVEL = 8,
        SYSLOG_ACTION_SIZE_UNREAD = 9,
        SYSLOG_ACTION_SIZE_BUFFER = 10,
    }
}

impl SyslogType {
    fn action(self) -> Result<SyslogAction> {
        type T = SyslogType;
        Ok(match self {
            T::SYSLOG_ACTION_CLOSE
            | T::SYSLOG_ACTION_OPEN
            | T::SYSLOG_ACTION_CONSOLE_OFF
            | T::SYSLOG_ACTION_CONSOLE_ON => SyslogAction::Nothing,
            T::SYSLOG_ACTION_READ => SyslogAction::Read,
            T::SYSLOG_ACTION_READ_ALL => SyslogAction::Last { clear: false },
            T::SYSLOG_ACTION_READ_CLEAR => SyslogAction::Last { clear: true },
            T::SYSLOG_ACTION_CLEAR => SyslogAction::Clear,
            T::SYSLOG_ACTION_CONSOLE_LEVEL => SyslogAction::Level,
            T::SYSLOG_ACTION_SIZE_UNREAD => SyslogAction::Unread,
            T::SYSLOG_ACTION_SIZE_BUFFER => SyslogAction::Size,
            _ => return Err(EINVAL),
        })
    }
}

/// `syslog(type, buf, len)`: of the caller's container, for CAP_SYSLOG (as with
/// `kernel.dmesg_restrict`).
fn syslog(cx: &mut Context, what: SyslogType, buf: BytesOut<i32>) -> SysResult {
    if !cx.cred().has(Caps::SYSLOG) {
        return Err(EPERM);
    }
    let log = &cx.task.group.container.log;
    match what.action()? {
        SyslogAction::Nothing => Ok(0),
        a @ (SyslogAction::Read | SyslogAction::Last { .. }) => {
            let len = usize::try_from(buf.len).map_err(|_| EINVAL)?;
            if buf.va.is_null() {
                return Err(EINVAL);
            }
            if len == 0 {
                return Ok(0);
            }
            let text = match a {
                SyslogAction::Read => {
                    cx.block(&[(&log.queue, Events::READABLE)], None, || log.take(len))?
                }
                _ => log.last(len),
            };
            cx.mm().copy_out(buf.va, &text)?;
            if a == (SyslogAction::Last { clear: true }) {
                log.clear();
            }
            Ok(text.len())
        }
        SyslogAction::Clear => {
            log.clear();
            Ok(0)
        }
        SyslogAction::Level if (1..=8).contains(&buf.len) => Ok(0),
        SyslogAction::Level => Err(EINVAL),
        SyslogAction::Unread => Ok(log.unread()),
        SyslogAction::Size => Ok(crate::container::log::SIZE),
    }
}

calls! {
    syslog,
    uname,
    sysinfo,
    sethostname,
    setdomainname,
    getrandom,
}
