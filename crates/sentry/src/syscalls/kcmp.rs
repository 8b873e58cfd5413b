//! kcmp(2): whether two tasks share a thing of the kernel's (`kernel/kcmp.c`).

use super::SysResult;
use super::args::*;
use crate::task::access::{By, guarded};
use crate::task::{Context, Task};
use abi::errno::*;
use abi::{Result, Va};
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::sync::{Arc, LazyLock};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

named! {
    /// What is compared.
    struct KcmpType(i32) {
        KCMP_FILE = 0,
        KCMP_VM = 1,
        KCMP_FILES = 2,
        KCMP_FS = 3,
        KCMP_SIGHAND = 4,
        KCMP_IO = 5,
        KCMP_SYSVSEM = 6,
        KCMP_EPOLL_TFD = 7,
    }
}

/// `struct kcmp_epoll_slot`: the `toff`th that an epoll descriptor watches under the number `tfd`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct EpollSlot {
    efd: u32,
    tfd: u32,
    toff: u32,
}

impl Pointee for EpollSlot {}

fn of<T: ?Sized>(a: &Arc<T>) -> usize {
    Arc::as_ptr(a).cast::<()>().addr()
}

/// The identity of a task's thing; 0 for none.
fn identity(t: &Task, what: KcmpType) -> Result<usize> {
    Ok(match what {
        KcmpType::KCMP_VM => of(&t.mm()),
        KcmpType::KCMP_FILES => of(&t.files()),
        KcmpType::KCMP_FS => of(&t.fs()),
        KcmpType::KCMP_SIGHAND => of(&t.group.actions()),
        // One is made by ioprio_set(2) and belongs to the thread.
        KcmpType::KCMP_IO => match t.io_priority.load(std::sync::atomic::Ordering::Relaxed) {
            0 => 0,
            _ => t.tid as usize,
        },
        KcmpType::KCMP_SYSVSEM => match t.ns().ipc.has_undo(t.group.tgid) {
            true => t.group.tgid as usize,
            false => 0,
        },
        _ => return Err(EINVAL),
    })
}

/// `EPERM` where the caller may not look into it.
fn look<T>(cx: &Context, t: &Task, read: impl Fn(&Task) -> Result<T>) -> Result<T> {
    guarded(cx, t, By::Real, || read(t))
}

fn file(cx: &Context, t: &Task, fd: u64) -> Result<usize> {
    look(cx, t, |t| t.fd(fd as i32)).map(|f| of(&f))
}

/// The file that an epoll descriptor of `t` watches.
fn watched(cx: &Context, t: &Task, slot: Va) -> Result<usize> {
    let s = UserIn::<EpollSlot>::new(slot).read(&cx.mm())?;
    let e = look(cx, t, |t| t.fd(s.efd as i32))?;
    let epoll = e.ops::<ipc::epoll::Epoll>().ok_or(EINVAL)?;
    let f = epoll.watched_as(s.tfd as i32, s.toff).ok_or(ENOENT)?;
    Ok(of(&f))
}

/// 0 for the same, 1 and 2 for an order that says nothing of addresses.
fn order(a: usize, b: usize) -> usize {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    if a == b {
        return 0;
    }
    match KEY.hash_one(a) < KEY.hash_one(b) {
        true => 1,
        false => 2,
    }
}

/// `kcmp(pid1, pid2, type, idx1, idx2)`.
fn kcmp(
    cx: &mut Context,
    first: Tid,
    second: Tid,
    what: KcmpType,
    index1: u64,
    index2: u64,
) -> SysResult {
    let (a, b) = (first.task(cx)?, second.task(cx)?);
    look(cx, &a, |_| Ok(()))?;
    look(cx, &b, |_| Ok(()))?;
    let (x, y) = match what {
        KcmpType::KCMP_FILE => (file(cx, &a, index1)?, file(cx, &b, index2)?),
        KcmpType::KCMP_EPOLL_TFD => (file(cx, &a, index1)?, watched(cx, &b, Va(index2))?),
        _ => (identity(&a, what)?, identity(&b, what)?),
    };
    Ok(order(x, y))
}

calls! {
    kcmp,
}
