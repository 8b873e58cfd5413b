//! What goes in and out.

use abi::{Signal, Va};
use clas::Mappable;
use std::any::Any;
use std::sync::Arc;

/// How memory is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    Exec,
}

/// The resource limits that matter here, in bytes; `u64::MAX` for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `RLIMIT_AS`.
    pub address_space: u64,
    /// `RLIMIT_DATA`.
    pub data: u64,
    /// `RLIMIT_STACK`.
    pub stack: u64,
    /// `RLIMIT_MEMLOCK`; `u64::MAX` for holders of CAP_IPC_LOCK.
    pub memlock: u64,
}

impl Default for Limits {
    /// Linux's defaults for the first process.
    fn default() -> Self {
        Limits {
            address_space: u64::MAX,
            data: u64::MAX,
            stack: 8 << 20,
            memlock: 8 << 20,
        }
    }
}

/// How a mapped file is shown in `/proc/PID/maps`.
pub trait MapName: Send + Sync {
    /// Its path, or a name in brackets.
    fn path(&self) -> Vec<u8>;
    /// `st_dev` and `st_ino`.
    fn dev_ino(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A file to map: what `mmap(2)` takes from a descriptor.
#[derive(Clone)]
pub struct MapFile {
    pub mappable: Arc<dyn Mappable>,
    pub name: Option<Arc<dyn MapName>>,
    /// The open file, kept alive as long as it is mapped.
    pub keep: Option<Arc<dyn Any + Send + Sync>>,
    /// Whether it was opened for reading, and for writing.
    pub readable: bool,
    pub writable: bool,
    /// Whether its mount forbids execution.
    pub noexec: bool,
}

/// The arguments of `mmap(2)`. `file` is `None` for anonymous memory, where the descriptor is
/// ignored.
#[derive(Clone)]
pub struct MmapRequest {
    pub addr: Va,
    pub len: u64,
    pub prot: u32,
    pub flags: u32,
    pub offset: u64,
    pub file: Option<MapFile>,
}

/// A fault that application code made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultInfo {
    pub addr: Va,
    /// `None` where the platform cannot tell.
    pub access: Option<Access>,
    /// The host raised SIGBUS rather than SIGSEGV: what is mapped has no page there.
    pub bus: bool,
}

impl FaultInfo {
    /// From the platform's `Event::Fault` for SIGSEGV (11) or SIGBUS (7) and the x86 error code.
    #[must_use]
    pub fn from_event(signal: i32, addr: u64, error: u64) -> FaultInfo {
        let access = match error {
            platform::ERROR_UNKNOWN => None,
            e if e & 0x10 != 0 => Some(Access::Exec),
            e if e & 2 != 0 => Some(Access::Write),
            _ => Some(Access::Read),
        };
        FaultInfo {
            addr: Va(addr),
            access,
            bus: signal == abi::signal::SIGBUS.number(),
        }
    }
}

/// A fault that the application must see: the signal, its `si_code` and `si_addr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    pub signal: Signal,
    pub code: i32,
    pub addr: Va,
}

/// `SEGV_MAPERR`: nothing is mapped there.
pub const SEGV_MAPERR: i32 = 1;
/// `SEGV_ACCERR`: its protection forbids it.
pub const SEGV_ACCERR: i32 = 2;
/// `BUS_ADRERR`: the file ends before it.
pub const BUS_ADRERR: i32 = 2;

/// Why an access cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bad {
    Unmapped,
    Forbidden,
    Bus,
    /// There is none, nor will there be.
    Memory,
    /// Its own limit leaves none, and nothing of it can go: its process is to be ended.
    Limit,
    /// There is none now: the caller waits for room without the lock, and tries again.
    Room,
    /// Its file must be asked for it, without the lock ([`crate::absent`]).
    Absent,
}

impl Bad {
    pub(crate) fn fault(self, addr: Va) -> Fault {
        use abi::signal::{SIGBUS, SIGKILL, SIGSEGV};
        let (signal, code) = match self {
            Bad::Unmapped => (SIGSEGV, SEGV_MAPERR),
            Bad::Forbidden => (SIGSEGV, SEGV_ACCERR),
            Bad::Bus | Bad::Absent => (SIGBUS, BUS_ADRERR),
            // As the kernel's out-of-memory killer.
            Bad::Memory | Bad::Room | Bad::Limit => (SIGKILL, abi::signal::SI_KERNEL),
        };
        Fault { signal, code, addr }
    }
}
