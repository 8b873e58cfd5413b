//! What is the machine's: its start and end, its terminals, its security modules.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::errno::*;
use abi::signal::{SIGHUP, SIGINT};
use abi::{Signal, Va};
use vfs::Caps;

named! {
    /// What reboot(2) does.
    struct RebootCmd(u32) {
        LINUX_REBOOT_CMD_RESTART = 0x0123_4567,
        LINUX_REBOOT_CMD_HALT = 0xcdef_0123,
        LINUX_REBOOT_CMD_CAD_ON = 0x89ab_cdef,
        LINUX_REBOOT_CMD_CAD_OFF = 0,
        LINUX_REBOOT_CMD_POWER_OFF = 0x4321_fedc,
        LINUX_REBOOT_CMD_RESTART2 = 0xa1b2_c3d4,
        LINUX_REBOOT_CMD_SW_SUSPEND = 0xd000_fce2,
        LINUX_REBOOT_CMD_KEXEC = 0x4558_4543,
    }
}

/// The signal by which process 1 of a pid namespace seems to have ended (`reboot_pid_ns`).
fn end_of(cmd: RebootCmd) -> Option<Signal> {
    match cmd {
        RebootCmd::LINUX_REBOOT_CMD_RESTART | RebootCmd::LINUX_REBOOT_CMD_RESTART2 => Some(SIGHUP),
        RebootCmd::LINUX_REBOOT_CMD_POWER_OFF | RebootCmd::LINUX_REBOOT_CMD_HALT => Some(SIGINT),
        _ => None,
    }
}

/// `reboot(magic, magic2, cmd, arg)`: ends the caller's pid namespace.
fn reboot(cx: &mut Context, magic: Bits, magic2: Bits, cmd: RebootCmd) -> SysResult {
    const MAGIC: u32 = 0xfee1_dead;
    const MAGIC2: [u32; 4] = [0x2812_1969, 0x0512_1996, 0x1604_1998, 0x2011_2000];
    let ns = cx.pid.ns.clone();
    if !cx.cred().has_in(&ns.user, Caps::SYS_BOOT) {
        return Err(EPERM);
    }
    if magic.0 as u32 != MAGIC || !MAGIC2.contains(&(magic2.0 as u32)) {
        return Err(EINVAL);
    }
    let signal = end_of(cmd).ok_or(EINVAL)?;
    let first = match ns.is_initial() {
        true => cx.group.container.first(),
        false => ns.init(),
    };
    let init = cx.kernel.tasks.lock().group(first);
    if let Some(init) = init {
        cx.kernel.kill_group(&init, signal.number());
    }
    // The caller ends like everybody there.
    cx.exit = Some(0);
    Ok(0)
}

/// `vhangup()`: the caller's terminal is as if its line had been cut.
fn vhangup(cx: &mut Context) -> SysResult {
    if !cx.cred().has(Caps::SYS_TTY_CONFIG) {
        return Err(EPERM);
    }
    let tty = {
        let sid = cx.kernel.tasks.lock().sid(cx.group.tgid);
        cx.kernel.terminals.of_session(sid)
    };
    if let Some(tty) = tty {
        tty.hang_up();
    }
    Ok(0)
}

/// `LSM_ID_CAPABILITY`, `LSM_ID_LANDLOCK`.
const MODULES: [u64; 2] = [100, 110];

/// `lsm_list_modules(ids, size, flags)`.
fn lsm_list_modules(
    cx: &mut Context,
    ids: UserArray<u64>,
    size: UserPtr<u32>,
    flags: u32,
) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let room = size.read(&mm)?;
    let all = size_of_val(&MODULES) as u32;
    size.write(&mm, &all)?;
    if room < all {
        return Err(E2BIG);
    }
    for (i, id) in MODULES.iter().enumerate() {
        ids.at(i as u64).write(&mm, id)?;
    }
    Ok(MODULES.len())
}

/// `LSM_FLAG_SINGLE`: of the module that the context names.
const SINGLE: u32 = 1;

/// `lsm_get_self_attr(attr, ctx, size, flags)`: no module has attributes.
fn lsm_get_self_attr(cx: &mut Context, attr: u32, ctx: Va, size: Va, flags: u32) -> SysResult {
    if attr == 0 || size.is_null() {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let left = UserPtr::<u32>::new(size);
    left.read(&mm)?;
    if flags != 0 {
        if flags != SINGLE || ctx.is_null() {
            return Err(EINVAL);
        }
        let id: u64 = mm.read_obj(ctx)?;
        if id == 0 {
            return Err(EINVAL);
        }
    }
    left.write(&mm, &0)?;
    Err(EOPNOTSUPP)
}

/// `lsm_set_self_attr(attr, ctx, size, flags)`: as above.
fn lsm_set_self_attr(cx: &mut Context, _attr: u32, ctx: Va, size: u32, flags: u32) -> SysResult {
    /// `struct lsm_ctx`, without its text.
    const HEAD: usize = 32;
    if flags != 0 || (size as usize) < HEAD {
        return Err(EINVAL);
    }
    if size > 4096 {
        return Err(E2BIG);
    }
    let mut b = vec![0; size as usize];
    cx.mm().copy_in(ctx, &mut b)?;
    let word = |at: usize| u64::from_ne_bytes(b[at..at + 8].try_into().unwrap_or_default());
    let (len, text) = (word(16), word(24));
    let fits = text.checked_add(HEAD as u64).is_some_and(|n| n <= len);
    if len < size.into() || !fits {
        return Err(EINVAL);
    }
    Err(EOPNOTSUPP)
}

calls! {
    reboot,
    vhangup,
    lsm_list_modules: "as a kernel with capabilities and Landlock",
    lsm_get_self_attr: "as a kernel with capabilities and Landlock",
    lsm_set_self_attr: "as a kernel with capabilities and Landlock",
}
