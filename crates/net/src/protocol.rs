//! What a family and type of sockets does, and what a call brings along.

use crate::control::{Control, Ucred};
use crate::inflight::InFlight;
use crate::lingering::Lingering;
use crate::ns::NetNamespace;
use crate::options::Common;
use crate::sys::{SHUT_RD, SHUT_RDWR, SHUT_WR};
use abi::errno::{EINVAL, ENODEV, ENOPROTOOPT, ENOTTY, EOPNOTSUPP};
use abi::{Errno, Result};
use clas::Mappable;
use std::any::Any;
use std::sync::Arc;
use vfs::{Credentials, Sink, Source};
use wait::Events;
use wait::read_slots::SlotSource;

/// Who makes a call.
pub struct Caller<'a> {
    /// Its id; what receivers see of it is the system-call layer's.
    pub pid: i32,
    /// Its pid as it sees it.
    pub number: i32,
    /// Whether it may claim to be any process (CAP_SYS_ADMIN over its pid namespace).
    pub any_pid: bool,
    pub cred: &'a Arc<Credentials>,
    /// The caller's file system, for UNIX sockets' names.
    pub paths: &'a dyn PathNames,
    /// Whether a signal waits for it: what takes long ends then.
    pub has_signal: &'a dyn Fn() -> bool,
}

impl Caller<'_> {
    /// SO_PEERCRED's answer about this caller.
    #[must_use]
    pub fn ucred(&self) -> Ucred {
        Ucred {
            pid: self.pid,
            uid: self.cred.euid,
            gid: self.cred.egid,
        }
    }
}

/// By what a network namespace is named, as the caller sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamespaceOf {
    /// A process.
    Process(i32),
    /// A descriptor.
    File(i32),
}

/// UNIX sockets' names in the file system, and what else a caller names. The system-call layer
/// implements it with the caller's root and working directory.
pub trait PathNames {
    /// Makes a socket node (mode 0777 less umask) and attaches `endpoint` to its inode, weakly: it
    /// lives as long as the socket is open. `EADDRINUSE` where the path exists.
    fn bind(&self, path: &[u8], endpoint: Arc<dyn Any + Send + Sync>) -> Result<()>;
    /// What is attached to the node; `ECONNREFUSED` where it is no socket or nothing is attached;
    /// needs write permission (`EACCES`).
    fn lookup(&self, path: &[u8]) -> Result<Arc<dyn Any + Send + Sync>>;
    /// The network namespace of a process or of a file: `ESRCH`, `EBADF`, `EINVAL`.
    fn net_namespace(&self, _of: NamespaceOf) -> Result<Arc<NetNamespace>> {
        Err(EINVAL)
    }
    /// The name of the caller's thread (`comm`).
    fn command(&self) -> String {
        String::new()
    }
    /// RLIMIT_NOFILE: how many files of the caller's user may wait in messages.
    fn files_limit(&self) -> u64 {
        u64::MAX
    }
}

/// What `recvmsg` gives.
#[derive(Default)]
pub struct Received {
    /// The call's result: bytes copied, or the message's whole length where MSG_TRUNC was asked.
    pub n: usize,
    /// The sender's address; empty where there is none to tell.
    pub addr: Vec<u8>,
    pub control: Control,
    /// `msg_flags`: MSG_TRUNC, MSG_EOR, MSG_OOB (MSG_CTRUNC is the encoder's).
    pub flags: u32,
    /// A call that wants more ends all the same: the urgent mark follows.
    pub ends: bool,
}

impl Received {
    /// How many bytes were received. Files that came with them are closed, which may take long.
    #[must_use]
    pub fn without_files(self) -> usize {
        if !self.control.files.is_empty() {
            wait::wakes::without_deferral(|| drop(self.control));
        }
        self.n
    }
}

/// What an option says to whoever has so much room for it.
pub struct Answer {
    pub bytes: Vec<u8>,
    /// What becomes of the length.
    pub told: usize,
    /// The call fails all the same.
    pub error: Option<Errno>,
}

/// What a family and type do.
pub trait Protocol: Any + Send + Sync {
    fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()>;
    /// `EINPROGRESS` only with `Block::No`; `EAGAIN` where a blocking caller waits for OUT and
    /// calls again.
    fn connect(&self, who: &Caller<'_>, addr: &[u8], block: Block) -> Result<()>;
    fn listen(&self, _who: &Caller<'_>, _backlog: i32) -> Result<()> {
        Err(EOPNOTSUPP)
    }
    fn accept(&self) -> Result<Parts> {
        Err(EOPNOTSUPP)
    }
    fn local_name(&self) -> Result<Vec<u8>>;
    fn peer_name(&self) -> Result<Vec<u8>>;
    /// The peer's name, also where it has gone.
    fn accepted_name(&self) -> Result<Vec<u8>> {
        self.peer_name()
    }
    fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: Control,
        flags: u32,
    ) -> Result<usize>;
    /// The connection is there that a send has begun ([`Common::takes_opens_by_send`]). `EAGAIN`: not
    /// yet; why it failed.
    fn finish_opening(&self) -> Result<()> {
        Ok(())
    }
    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received>;
    fn shutdown(&self, how: Shutdown) -> Result<()>;
    /// Where reads of it may be answered beside the Sentry; `None`: nowhere.
    fn slot_source(&self) -> Option<&dyn SlotSource> {
        None
    }
    fn poll(&self) -> Events;
    /// Whether somebody outside of the sandbox has to do with it, where its namespace is not the
    /// host's.
    fn is_outside(&self) -> bool {
        false
    }
    fn set_option(&self, _who: &Credentials, _level: i32, _name: i32, _v: &[u8]) -> Result<()> {
        Err(ENOPROTOOPT)
    }
    fn get_option(&self, _level: i32, _name: i32) -> Result<Vec<u8>> {
        Err(ENOPROTOOPT)
    }
    /// An option that is asked for with a value; `None` where it is none of these.
    fn option_of(&self, _level: i32, _name: i32, _v: &[u8]) -> Option<Result<Vec<u8>>> {
        None
    }
    /// An option whose answer goes by the room for it; `None` where it is none of these.
    fn answer(&self, _level: i32, _name: i32, _room: usize) -> Option<Answer> {
        None
    }
    /// What `mmap(2)` maps.
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        Err(ENODEV)
    }
    /// An option at SOL_SOCKET that is not kept in [`Common`].
    fn set_socket_option(&self, _name: i32, _v: &[u8]) -> Option<Result<()>> {
        None
    }
    /// As above.
    fn socket_option(&self, _name: i32) -> Option<Result<Vec<u8>>> {
        None
    }
    /// Whether `MSG_ERRQUEUE` can find anything.
    fn has_error_queue(&self) -> bool {
        false
    }
    /// SIOCINQ.
    fn unread(&self) -> Result<usize>;
    /// How many messages found no room.
    fn lost(&self) -> u32 {
        0
    }
    /// SIOCATMARK: whether what is read next is where the urgent byte lies, or lay.
    fn is_at_mark(&self) -> Result<bool> {
        Err(ENOTTY)
    }
    /// SIOCOUTQ.
    fn unsent(&self) -> usize {
        0
    }
    /// What the close of it waits for, as SO_LINGER asks.
    fn lingering(&self) -> Option<Lingering> {
        None
    }
    /// The open file's last reference went.
    fn close(&self);
    /// Files that wait in its queues, which it gives up: it is garbage ([`crate::inflight`]).
    fn take_in_flight(&self) -> Vec<InFlight> {
        Vec::new()
    }
}

/// A socket without its open file: what families make.
pub struct Parts {
    pub common: Arc<Common>,
    pub protocol: Arc<dyn Protocol>,
}

impl Parts {
    pub fn new(common: Arc<Common>, protocol: Arc<dyn Protocol>) -> Parts {
        Parts { common, protocol }
    }
}

/// Whether the call may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    No,
    Yes,
}

/// Which halves to shut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shutdown {
    pub read: bool,
    pub write: bool,
}

impl Shutdown {
    /// As the host's `shutdown(2)` takes it.
    pub fn number(self) -> i32 {
        let how = match (self.read, self.write) {
            (true, false) => SHUT_RD,
            (false, true) => SHUT_WR,
            _ => SHUT_RDWR,
        };
        how as i32
    }
}
