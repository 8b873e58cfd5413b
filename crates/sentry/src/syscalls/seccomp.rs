//! seccomp(2) (`kernel/seccomp.c`): filters of a program's own calls. What they do is
//! [`crate::task::seccomp`]'s.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use crate::task::access::CredMutex;
use crate::task::seccomp::notify::{Notifications, OnceReceived};
use crate::task::seccomp::{self, Listener};
use ::seccomp::bpf;
use abi::errno::*;
use abi::{Result, Va};
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use zerocopy::IntoBytes;

named! {
    /// What seccomp(2) does.
    struct SeccompOp(u32) {
        SECCOMP_SET_MODE_STRICT = 0,
        SECCOMP_SET_MODE_FILTER = 1,
        SECCOMP_GET_ACTION_AVAIL = 2,
        SECCOMP_GET_NOTIF_SIZES = 3,
    }
}

flags! {
    /// Of seccomp(2).
    pub(crate) struct SeccompFlags: u32, kept {
        SECCOMP_FILTER_FLAG_TSYNC = 1 << 0,
        SECCOMP_FILTER_FLAG_LOG = 1 << 1,
        SECCOMP_FILTER_FLAG_SPEC_ALLOW = 1 << 2,
        SECCOMP_FILTER_FLAG_NEW_LISTENER = 1 << 3,
        SECCOMP_FILTER_FLAG_TSYNC_ESRCH = 1 << 4,
        SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV = 1 << 5,
    }
}

impl SeccompFlags {
    /// The listener that a filter is to have; `EINVAL` for flags that do not go together.
    fn listener(self) -> Result<Option<Arc<Notifications>>> {
        let is_new = self.contains(Self::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        let is_killable = self.contains(Self::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
        // The result would be a descriptor's number, or a thread's.
        let mixes = self.contains(Self::SECCOMP_FILTER_FLAG_TSYNC)
            && !self.contains(Self::SECCOMP_FILTER_FLAG_TSYNC_ESRCH);
        match (is_new, is_killable) {
            (false, true) => Err(EINVAL),
            (true, _) if mixes => Err(EINVAL),
            (false, false) => Ok(None),
            (true, false) => Ok(Some(Notifications::new(OnceReceived::Interruptible))),
            (true, true) => Ok(Some(Notifications::new(OnceReceived::Killable))),
        }
    }
}

/// Adds the filter of a `struct sock_fprog`: gives 0, or its listener. With TSYNC, the id of a
/// thread that stands against it.
pub(super) fn add_filter(
    cx: &Context,
    program: UserIn<[u64; 2]>,
    flags: SeccompFlags,
) -> SysResult {
    let listener = flags.listener()?;
    let mm = cx.mm();
    let [len, code] = program.read(&mm)?;
    let len = usize::from(len as u16);
    if len == 0 || len > bpf::MAX_INSNS {
        return Err(EINVAL);
    }
    seccomp::may_install(cx)?;
    let mut insns = vec![<bpf::Insn as zerocopy::FromZeros>::new_zeroed(); len];
    mm.copy_in(Va(code), insns.as_mut_slice().as_mut_bytes())?;
    let files = cx.files();
    let place = match &listener {
        None => None,
        Some(n) => {
            let slot = files.reserve(&cx.room())?;
            let file = Listener::open(n, cx);
            file.may_stay()?;
            Some((slot, file))
        }
    };
    // No other thread's execve may be computing credentials while TSYNC changes its
    // `no_new_privs`.
    let guard = match flags.contains(SeccompFlags::SECCOMP_FILTER_FLAG_TSYNC) {
        false => None,
        true => Some(CredMutex::lock(cx)?),
    };
    let installed = seccomp::install(cx, &insns, flags.bits().into(), listener.as_ref());
    drop(guard);
    match (installed, place) {
        (Ok(()), None) => Ok(0),
        (Ok(()), Some((slot, file))) => Ok(slot.install(file, CloseOnExec::Yes) as usize),
        (Err(seccomp::Refused::Thread(tid)), _) => Ok(cx.number_of(tid) as usize),
        (Err(seccomp::Refused::Errno(e)), _) => Err(e),
    }
}

/// `seccomp(operation, flags, args)`.
fn seccomp(cx: &mut Context, op: SeccompOp, flags: SeccompFlags, args: Va) -> SysResult {
    match op {
        SeccompOp::SECCOMP_SET_MODE_STRICT if flags.is_empty() && args.is_null() => {
            seccomp::set_strict(cx).map(|()| 0)
        }
        SeccompOp::SECCOMP_SET_MODE_FILTER if SeccompFlags::all().contains(flags) => {
            add_filter(cx, UserIn::new(args), flags)
        }
        SeccompOp::SECCOMP_GET_ACTION_AVAIL if flags.is_empty() => {
            let action: u32 = cx.mm().read_obj(args)?;
            if seccomp::action_available(action) {
                Ok(0)
            } else {
                Err(EOPNOTSUPP)
            }
        }
        SeccompOp::SECCOMP_GET_NOTIF_SIZES if flags.is_empty() => {
            cx.mm().write_obj(args, &seccomp::NOTIF_SIZES).map(|()| 0)
        }
        _ => Err(EINVAL),
    }
}

calls! {
    seccomp: "nothing is logged, as by a kernel without audit",
}
