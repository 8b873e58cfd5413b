//! Arguments that are numbers: descriptors, ids, sizes, signals.

use super::{Argument, Kind, Show, text};
use crate::Task;
use abi::errno::{EBADF, EINVAL};
use abi::linux::{AT_FDCWD, O_PATH};
use abi::{Result, Signal, Va};
use std::sync::Arc;
use vfs::File;

/// A number that an argument's register is cut to.
pub trait Word: Copy {
    fn from_raw(raw: u64) -> Self;
}

macro_rules! plain {
    ($($t:ty)*) => {$(
        impl Word for $t {
            #[inline(always)]
            fn from_raw(raw: u64) -> $t {
                raw as $t
            }
        }
        impl Argument for $t {
            const SHOW: Show = Show::Words(|raw| <$t>::from_raw(raw[0]).to_string());
            #[inline(always)]
            fn decode(raw: &[u64]) -> Result<$t> {
                Ok(<$t>::from_raw(raw[0]))
            }
        }
    )*};
}
plain! { i32 u32 i64 u64 usize }

/// Types around one number.
macro_rules! wrapped {
    ($($name:ident($word:ty): $kind:ident, $show:expr;)*) => {$(
        impl Argument for $name {
            const KIND: Kind = Kind::$kind;
            const SHOW: Show = Show::Words(|raw| {
                let show: fn($word) -> String = $show;
                show(Word::from_raw(raw[0]))
            });
            #[inline(always)]
            fn decode(raw: &[u64]) -> Result<$name> {
                Ok($name(Word::from_raw(raw[0])))
            }
        }
    )*};
}

/// A descriptor's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fd(pub i32);

impl Fd {
    /// The open file; `EBADF`, also for those that only name a place (O_PATH). Linux's `fdget`.
    pub fn file(self, task: &Task) -> Result<Arc<File>> {
        let f = self.any_file(task)?;
        if f.flags() & O_PATH != 0 {
            Err(EBADF)
        } else {
            Ok(f)
        }
    }
    /// The open file, whatever it is for; `EBADF`. Linux's `fdget_raw`.
    #[inline]
    pub fn any_file(self, task: &Task) -> Result<Arc<File>> {
        task.fd(self.0)
    }
}

/// A directory's descriptor, or `AT_FDCWD`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirFd(pub i32);

impl DirFd {
    /// The working directory.
    pub const CWD: DirFd = DirFd(AT_FDCWD);

    /// As a descriptor, where a call takes one in a path's stead.
    #[must_use]
    pub const fn fd(self) -> Fd {
        Fd(self.0)
    }
}

fn dir_fd(n: i32) -> String {
    match n {
        AT_FDCWD => "AT_FDCWD".into(),
        n => n.to_string(),
    }
}

/// The number of a thread, a process or a process group as the caller sees it. What zero and
/// negative numbers mean is each call's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tid(pub i32);

impl Tid {
    /// The thread with this number; `ESRCH`.
    pub fn task(self, caller: &Task) -> Result<Arc<Task>> {
        caller.find_task(self.0)
    }
    /// The thread with this number, the caller for zero; `ESRCH`.
    pub fn task_or_caller(self, caller: &Arc<Task>) -> Result<Arc<Task>> {
        match self.0 {
            0 => Ok(caller.clone()),
            _ => self.task(caller),
        }
    }
}

/// A user's number in the caller's user namespace; -1 leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uid(pub u32);

/// A group's number in the caller's user namespace; -1 leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gid(pub u32);

/// Permission bits, with the kind of file for mknod(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode(pub u32);

/// A signal's number, not checked; zero often asks for checks alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalNumber(pub i32);

impl SignalNumber {
    /// `EINVAL` for what is no signal.
    pub fn signal(self) -> Result<Signal> {
        Signal::new(self.0).ok_or(EINVAL)
    }
    /// `None` for zero; `EINVAL` for what is no signal.
    pub fn signal_or_none(self) -> Result<Option<Signal>> {
        match self.0 {
            0 => Ok(None),
            _ => self.signal().map(Some),
        }
    }
}

/// A word that has a meaning, but no names here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits(pub u64);

wrapped! {
    Fd(i32): Descriptor, |n| n.to_string();
    DirFd(i32): Descriptor, dir_fd;
    Tid(i32): Other, |n| n.to_string();
    Uid(u32): Other, |n| (n as i32).to_string();
    Gid(u32): Other, |n| (n as i32).to_string();
    Mode(u32): Other, text::octal;
    SignalNumber(i32): Other, |n| Signal::new(n).map_or(n.to_string(), |s| format!("{s:?}"));
    Bits(u64): Other, text::hex;
    Va(u64): Other, text::pointer;
}
