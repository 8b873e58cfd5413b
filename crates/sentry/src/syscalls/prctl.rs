//! What a process or a thread sets about itself: prctl, arch_prctl, personality.

use super::SysResult;
use super::args::*;
use super::seccomp::{SeccompFlags, add_filter};
use crate::task::Context;
use crate::task::seccomp;
use abi::errno::*;
use abi::{Result, Va};
use mm::Dumpable;
use std::sync::atomic::Ordering;
use vfs::{Caps, Credentials};

named! {
    /// What prctl(2) does.
    struct PrctlOption(i32) {
        PR_SET_PDEATHSIG = 1,
        PR_GET_PDEATHSIG = 2,
        PR_GET_DUMPABLE = 3,
        PR_SET_DUMPABLE = 4,
        PR_GET_KEEPCAPS = 7,
        PR_SET_KEEPCAPS = 8,
        PR_GET_TIMING = 13,
        PR_SET_TIMING = 14,
        PR_SET_NAME = 15,
        PR_GET_NAME = 16,
        PR_GET_SECCOMP = 21,
        PR_SET_SECCOMP = 22,
        PR_CAPBSET_READ = 23,
        PR_CAPBSET_DROP = 24,
        PR_GET_TSC = 25,
        PR_SET_TSC = 26,
        PR_GET_SECUREBITS = 27,
        PR_SET_SECUREBITS = 28,
        PR_SET_TIMERSLACK = 29,
        PR_GET_TIMERSLACK = 30,
        PR_SET_CHILD_SUBREAPER = 36,
        PR_GET_CHILD_SUBREAPER = 37,
        PR_SET_NO_NEW_PRIVS = 38,
        PR_GET_NO_NEW_PRIVS = 39,
        PR_SET_THP_DISABLE = 41,
        PR_GET_THP_DISABLE = 42,
        PR_CAP_AMBIENT = 47,
        PR_SET_VMA = 0x5356_4d41,
        PR_SET_CONFIDENTIAL = abi::own::PR_SET_CONFIDENTIAL,
        PR_GET_CONFIDENTIAL = abi::own::PR_GET_CONFIDENTIAL,
    }
}

/// A capability's number; `EINVAL` past the last (`cap_valid`).
fn capability(n: u64) -> Result<Caps> {
    /// CAP_CHECKPOINT_RESTORE.
    const LAST: u64 = 40;
    match n {
        0..=LAST => Ok(Caps::from_bits_retain(1 << n)),
        _ => Err(EINVAL),
    }
}

/// A switch; `EINVAL` for what is neither 0 nor 1.
fn switch(n: u64) -> Result<bool> {
    match n {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(EINVAL),
    }
}

/// What prctl(2) is to do, with its arguments.
#[derive(Clone, Copy)]
enum PrctlCmd {
    SetPdeathSignal(i32),
    GetPdeathSignal(UserOut<i32>),
    GetDumpable,
    SetDumpable(Dumpable),
    GetKeepCaps,
    SetKeepCaps(bool),
    /// Statistical, which is all there is.
    GetTiming,
    SetTiming,
    SetName(StrPtr),
    GetName(Va),
    GetSeccomp,
    SetSeccompStrict,
    SetSeccompFilter(UserIn<[u64; 2]>),
    InBounding(Caps),
    /// The number: the caller's right to drop any is asked first.
    DropBounding(u64),
    GetTsc(UserOut<i32>),
    SetTsc,
    GetSecureBits,
    SetSecureBits(u32),
    SetTimerSlack(u64),
    GetTimerSlack,
    SetSubreaper(bool),
    GetSubreaper(UserOut<i32>),
    SetNoNewPrivs,
    GetNoNewPrivs,
    SetThpDisable,
    SetMemoryName {
        at: Va,
        len: u64,
        name: Option<StrPtr>,
    },
    SetConfidential,
    GetConfidential,
    GetThpDisable,
    Ambient(AmbientCmd),
}

/// What `PR_CAP_AMBIENT` is to do.
#[derive(Clone, Copy)]
enum AmbientCmd {
    IsSet(Caps),
    Raise(Caps),
    Lower(Caps),
    ClearAll,
}

impl PrctlCmd {
    /// `EINVAL` for what there is not, and for arguments that are wrong whoever asks.
    fn new(option: PrctlOption, [arg2, arg3, arg4, arg5]: [u64; 4]) -> Result<PrctlCmd> {
        use PrctlOption as O;
        let rest_is_zero = [arg3, arg4, arg5] == [0; 3];
        let out = UserOut::new(Va(arg2));
        Ok(match option {
            O::PR_SET_PDEATHSIG if arg2 <= 64 => PrctlCmd::SetPdeathSignal(arg2 as i32),
            O::PR_GET_PDEATHSIG => PrctlCmd::GetPdeathSignal(out),
            O::PR_GET_DUMPABLE => PrctlCmd::GetDumpable,
            O::PR_SET_DUMPABLE => PrctlCmd::SetDumpable(match switch(arg2)? {
                true => Dumpable::Yes,
                false => Dumpable::No,
            }),
            O::PR_GET_KEEPCAPS => PrctlCmd::GetKeepCaps,
            O::PR_SET_KEEPCAPS => PrctlCmd::SetKeepCaps(switch(arg2)?),
            O::PR_GET_TIMING => PrctlCmd::GetTiming,
            O::PR_SET_TIMING if arg2 == 0 => PrctlCmd::SetTiming,
            O::PR_SET_NAME => PrctlCmd::SetName(StrPtr(Va(arg2))),
            O::PR_GET_NAME => PrctlCmd::GetName(Va(arg2)),
            O::PR_GET_SECCOMP => PrctlCmd::GetSeccomp,
            O::PR_SET_SECCOMP if arg2 == 1 => PrctlCmd::SetSeccompStrict,
            O::PR_SET_SECCOMP if arg2 == 2 => PrctlCmd::SetSeccompFilter(UserIn::new(Va(arg3))),
            O::PR_CAPBSET_READ => PrctlCmd::InBounding(capability(arg2)?),
            O::PR_CAPBSET_DROP => PrctlCmd::DropBounding(arg2),
            O::PR_GET_TSC => PrctlCmd::GetTsc(out),
            O::PR_SET_TSC if arg2 == 1 => PrctlCmd::SetTsc,
            O::PR_GET_SECUREBITS => PrctlCmd::GetSecureBits,
            O::PR_SET_SECUREBITS => PrctlCmd::SetSecureBits(arg2 as u32),
            O::PR_SET_TIMERSLACK => PrctlCmd::SetTimerSlack(arg2),
            O::PR_GET_TIMERSLACK => PrctlCmd::GetTimerSlack,
            O::PR_SET_CHILD_SUBREAPER => PrctlCmd::SetSubreaper(arg2 != 0),
            O::PR_GET_CHILD_SUBREAPER => PrctlCmd::GetSubreaper(out),
            O::PR_SET_NO_NEW_PRIVS if arg2 == 1 && rest_is_zero => PrctlCmd::SetNoNewPrivs,
            O::PR_GET_NO_NEW_PRIVS if arg2 == 0 && rest_is_zero => PrctlCmd::GetNoNewPrivs,
            // PR_SET_VMA_ANON_NAME, the only one.
            O::PR_SET_VMA if arg2 == 0 => PrctlCmd::SetMemoryName {
                at: Va(arg3),
                len: arg4,
                name: (arg5 != 0).then_some(StrPtr(Va(arg5))),
            },
            O::PR_SET_THP_DISABLE if rest_is_zero => PrctlCmd::SetThpDisable,
            O::PR_GET_THP_DISABLE if rest_is_zero && arg2 == 0 => PrctlCmd::GetThpDisable,
            O::PR_SET_CONFIDENTIAL if arg2 == 1 && rest_is_zero => PrctlCmd::SetConfidential,
            O::PR_GET_CONFIDENTIAL if arg2 == 0 && rest_is_zero => PrctlCmd::GetConfidential,
            O::PR_CAP_AMBIENT if arg4 == 0 && arg5 == 0 => {
                PrctlCmd::Ambient(AmbientCmd::new(arg2, arg3)?)
            }
            _ => return Err(EINVAL),
        })
    }
}

impl AmbientCmd {
    fn new(what: u64, capability_number: u64) -> Result<AmbientCmd> {
        let cap = capability(capability_number);
        Ok(match what {
            1 => AmbientCmd::IsSet(cap?),
            2 => AmbientCmd::Raise(cap?),
            3 => AmbientCmd::Lower(cap?),
            4 if capability_number == 0 => AmbientCmd::ClearAll,
            _ => return Err(EINVAL),
        })
    }
}

/// `prctl(option, ...)`.
fn prctl(
    cx: &mut Context,
    option: PrctlOption,
    arg2: u64,
    arg3: u64,
    arg4: u64,
    arg5: u64,
) -> SysResult {
    let mm = cx.mm();
    match PrctlCmd::new(option, [arg2, arg3, arg4, arg5])? {
        PrctlCmd::SetPdeathSignal(s) => cx.pdeath_signal.store(s, Ordering::Relaxed),
        PrctlCmd::GetPdeathSignal(out) => {
            out.write(&mm, &cx.pdeath_signal.load(Ordering::Relaxed))?;
        }
        PrctlCmd::GetDumpable => return Ok(mm.privacy().is_dumpable().into()),
        PrctlCmd::SetDumpable(to) => mm.privacy().set_dumpable(to),
        PrctlCmd::GetKeepCaps => return Ok((cx.cred().securebits & KEEP_CAPS != 0).into()),
        PrctlCmd::SetKeepCaps(on) => set_keep_caps(cx, on)?,
        PrctlCmd::SetName(name) => set_name(cx, name)?,
        PrctlCmd::GetName(to) => {
            let mut name = [0u8; 16];
            let c = cx.comm();
            name[..c.len()].copy_from_slice(&c);
            mm.copy_out(to, &name)?;
        }
        // Strict mode does not let it come here.
        PrctlCmd::GetSeccomp => return Ok(cx.seccomp.mode() as usize),
        PrctlCmd::SetSeccompStrict => seccomp::set_strict(cx)?,
        PrctlCmd::SetSeccompFilter(program) => {
            return add_filter(cx, program, SeccompFlags::empty());
        }
        PrctlCmd::InBounding(cap) => return Ok(cx.cred().bounding.contains(cap).into()),
        PrctlCmd::DropBounding(n) => drop_bounding(cx, n)?,
        // The counter may be read, and always.
        PrctlCmd::GetTsc(out) => out.write(&mm, &1)?,
        PrctlCmd::GetSecureBits => return Ok(cx.cred().securebits as usize),
        PrctlCmd::SetSecureBits(bits) => set_secure_bits(cx, bits)?,
        PrctlCmd::SetTimerSlack(nanos) => cx.set_timer_slack(nanos),
        PrctlCmd::GetTimerSlack => return Ok(cx.timer_slack.load(Ordering::Relaxed) as usize),
        PrctlCmd::SetSubreaper(on) => cx.group.subreaper.store(on, Ordering::Relaxed),
        PrctlCmd::GetSubreaper(out) => {
            out.write(&mm, &cx.group.subreaper.load(Ordering::Relaxed).into())?;
        }
        PrctlCmd::SetNoNewPrivs => cx.no_new_privs.store(true, Ordering::Relaxed),
        PrctlCmd::GetNoNewPrivs => return Ok(cx.no_new_privs.load(Ordering::Relaxed).into()),
        PrctlCmd::SetMemoryName { at, len, name } => set_memory_name(cx, at, len, name)?,
        PrctlCmd::SetConfidential => mm.set_confidential()?,
        PrctlCmd::GetConfidential => return Ok(mm.is_confidential().into()),
        PrctlCmd::Ambient(cmd) => return ambient(cx, cmd),
        PrctlCmd::GetTiming
        | PrctlCmd::SetTiming
        | PrctlCmd::SetTsc
        | PrctlCmd::SetThpDisable
        | PrctlCmd::GetThpDisable => {}
    }
    Ok(0)
}

/// Names anonymous memory, or takes its name away (`prctl_set_vma`).
fn set_memory_name(cx: &Context, at: Va, len: u64, name: Option<StrPtr>) -> Result<()> {
    let mm = cx.mm();
    let read = |n: StrPtr| match mm.read_cstr(n.0, mm::names::MAX_LEN) {
        Err(ENAMETOOLONG) => Err(EINVAL),
        r => r,
    };
    let name = name.map(read).transpose()?;
    mm.set_name(at, len, name.as_deref())
}

/// Bits of `securebits`; each has a lock, which is the bit above.
const KEEP_CAPS: u32 = 1 << 4;
const NO_AMBIENT_RAISE: u32 = 1 << 6;
const LOCKS: u32 = 0xaa;
const ALL_BITS: u32 = 0xff;

fn set_keep_caps(cx: &Context, on: bool) -> Result<()> {
    let mut c = (*cx.cred()).clone();
    if c.securebits & (KEEP_CAPS << 1) != 0 {
        return Err(EPERM);
    }
    c.securebits &= !KEEP_CAPS;
    if on {
        c.securebits |= KEEP_CAPS;
    }
    cx.task.commit_cred(c);
    Ok(())
}

/// Locked bits stay, and unknown ones are refused.
fn set_secure_bits(cx: &Context, new: u32) -> Result<()> {
    let old = cx.cred();
    let locked = (old.securebits & LOCKS) >> 1;
    if !old.has_own(Caps::SETPCAP)
        || new & !ALL_BITS != 0
        || (old.securebits ^ new) & locked != 0
        || old.securebits & !new & LOCKS != 0
    {
        return Err(EPERM);
    }
    let mut c = (*old).clone();
    c.securebits = new;
    cx.task.commit_cred(c);
    Ok(())
}

/// Longer names are cut.
fn set_name(cx: &Context, name: StrPtr) -> Result<()> {
    let mut cut = [0u8; 16];
    let mm = cx.mm();
    let name = mm.read_cstr(name.0, cut.len()).or_else(|e| {
        if e != ENAMETOOLONG {
            return Err(e);
        }
        mm.copy_in(name.0, &mut cut)?;
        Ok(cut.to_vec())
    })?;
    cx.task.set_comm(&name);
    Ok(())
}

/// The right to drop any is asked before the number is looked at (`cap_prctl_drop`).
fn drop_bounding(cx: &Context, n: u64) -> Result<()> {
    let c = cx.cred();
    if !c.has_own(Caps::SETPCAP) {
        return Err(EPERM);
    }
    let mut c = (*c).clone();
    c.bounding.remove(capability(n)?);
    cx.task.commit_cred(c);
    Ok(())
}

fn ambient(cx: &Context, cmd: AmbientCmd) -> SysResult {
    let mut c: Credentials = (*cx.cred()).clone();
    match cmd {
        AmbientCmd::IsSet(cap) => return Ok(c.ambient.contains(cap).into()),
        AmbientCmd::Raise(cap) => {
            if !c.permitted.contains(cap)
                || !c.inheritable.contains(cap)
                || c.securebits & NO_AMBIENT_RAISE != 0
            {
                return Err(EPERM);
            }
            c.ambient |= cap;
        }
        AmbientCmd::Lower(cap) => c.ambient.remove(cap),
        AmbientCmd::ClearAll => c.ambient = Caps::empty(),
    }
    cx.task.commit_cred(c);
    Ok(0)
}

named! {
    /// What arch_prctl(2) does.
    struct ArchOp(u32) {
        ARCH_SET_GS = 0x1001,
        ARCH_SET_FS = 0x1002,
        ARCH_GET_FS = 0x1003,
        ARCH_GET_GS = 0x1004,
        ARCH_GET_CPUID = 0x1011,
        ARCH_SET_CPUID = 0x1012,
    }
}

/// `arch_prctl(op, addr)`.
fn arch_prctl(cx: &mut Context, op: ArchOp, addr: Va) -> SysResult {
    let mut r = cx.regs();
    match op {
        ArchOp::ARCH_SET_GS | ArchOp::ARCH_SET_FS if addr.0 >= platform::USER_MAX => {
            return Err(EPERM);
        }
        ArchOp::ARCH_SET_GS => r.gs_base = addr.0,
        ArchOp::ARCH_SET_FS => r.fs_base = addr.0,
        ArchOp::ARCH_GET_FS => return cx.mm().write_obj(addr, &r.fs_base).map(|()| 0),
        ArchOp::ARCH_GET_GS => return cx.mm().write_obj(addr, &r.gs_base).map(|()| 0),
        // Not faulting, as where processors cannot.
        ArchOp::ARCH_SET_CPUID => return Err(ENODEV),
        ArchOp::ARCH_GET_CPUID => return Ok(1),
        _ => return Err(EINVAL),
    }
    cx.thread.set_regs(&r);
    Ok(0)
}

/// See [`crate::task::persona`]; `0xffffffff` only asks.
fn personality(cx: &mut Context, persona: u32) -> SysResult {
    let old = cx.persona.load(Ordering::Relaxed);
    if persona != u32::MAX && persona != old {
        cx.persona.store(persona, Ordering::Relaxed);
        // Its names may be others.
        cx.task.local_is_stale();
    }
    Ok(old as usize)
}

calls! {
    personality: "ADDR_COMPAT_LAYOUT and MMAP_PAGE_ZERO without effect",
    prctl,
    arch_prctl,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cmd(option: i32, args: [u64; 4]) -> Result<PrctlCmd> {
        PrctlCmd::new(PrctlOption(option), args)
    }

    #[test]
    fn commands_come_with_their_arguments() {
        assert!(matches!(
            cmd(1, [9, 0, 0, 0]),
            Ok(PrctlCmd::SetPdeathSignal(9))
        ));
        assert!(matches!(
            cmd(4, [1, 0, 0, 0]),
            Ok(PrctlCmd::SetDumpable(Dumpable::Yes))
        ));
        assert!(matches!(
            cmd(47, [2, 10, 0, 0]),
            Ok(PrctlCmd::Ambient(AmbientCmd::Raise(_)))
        ));
        let name = cmd(15, [0x1000, 0, 0, 0]);
        assert!(matches!(name, Ok(PrctlCmd::SetName(StrPtr(Va(0x1000))))));
    }

    #[test]
    fn wrong_arguments_are_refused_whoever_asks() {
        for (option, args) in [
            (0, [0; 4]),                 // no such command
            (1, [65, 0, 0, 0]),          // no such signal
            (4, [2, 0, 0, 0]),           // neither on nor off
            (22, [3, 0, 0, 0]),          // no such mode
            (23, [41, 0, 0, 0]),         // no such capability
            (38, [1, 1, 0, 0]),          // the rest must be zero
            (39, [0, 0, 0, 1]),          // likewise
            (47, [1, 41, 0, 0]),         // no such capability
            (47, [2, 1, 1, 0]),          // the rest must be zero
            (47, [4, 1, 0, 0]),          // all means no one
            (47, [5, 1, 0, 0]),          // no such command
            (0x5356_4d41, [1, 0, 0, 0]), // names are all that it sets
        ] {
            assert_eq!(cmd(option, args).err(), Some(EINVAL), "{option} {args:?}");
        }
    }

    /// The caller's right to drop any comes first: the number is looked at after it.
    #[test]
    fn dropping_keeps_the_number() {
        assert!(matches!(
            cmd(24, [99, 0, 0, 0]),
            Ok(PrctlCmd::DropBounding(99))
        ));
    }
}
