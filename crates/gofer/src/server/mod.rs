//! The Gofer's side.
//!
//! Before it is confined, the process makes a [`Server`] with its roots; afterwards it calls
//! [`Server::run`], which needs no path but what lies below descriptors it holds.

mod ops;
mod table;

use crate::proto::{Reply, Request};
use crate::wire::{CONNECTIONS, Hello, MAX_MESSAGE, VERSION};
use abi::Result;
use hostcall::{HostFd, path, sock};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use table::{Node, Table};

/// A directory (or a single file) of the host that the container may see.
pub struct Root {
    /// By which the client attaches to it.
    pub name: String,
    fd: HostFd,
    writable: bool,
}

/// Whether the container may change what lies below a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writable {
    No,
    Yes,
}

impl Root {
    /// Opens a root by its host path; for the starter, before confinement.
    pub fn open(name: &str, host_path: &CStr, writable: Writable) -> Result<Root> {
        let fd = path::openat2(libc::AT_FDCWD, host_path, libc::O_PATH as u64, 0, 0)?;
        Ok(Self::from_fd(name, fd, writable))
    }
    /// From a descriptor, best opened with `O_PATH`.
    #[must_use]
    pub fn from_fd(name: &str, fd: HostFd, writable: Writable) -> Root {
        Root {
            name: name.to_owned(),
            fd,
            writable: writable == Writable::Yes,
        }
    }
    #[must_use]
    pub fn fd(&self) -> &HostFd {
        &self.fd
    }
}

/// A Gofer, not yet running.
pub struct Server {
    roots: Vec<(String, Arc<Node>)>,
    /// `/proc/self/fd`: how a file that is held by `O_PATH` is opened, or gets another name.
    proc_fd: HostFd,
    table: Table,
    /// Our ends and the client's.
    connections: Vec<(HostFd, HostFd)>,
    uid: u32,
    gid: u32,
    own_mounts: bool,
}

/// How long a thread waits awake for the next request, in microseconds.
const SPIN: u32 = 64;

/// Handles for a client where the descriptor limit does not say less.
const MAX_HANDLES: u32 = 1 << 16;

impl Server {
    /// Needs `/proc`: call it before the process is confined, and in the process that will run.
    /// `max_fds` is its descriptor limit.
    pub fn new(roots: Vec<Root>, max_fds: u64) -> Result<Server> {
        let flags = (libc::O_PATH | libc::O_DIRECTORY) as u64;
        let proc_fd = path::openat2(libc::AT_FDCWD, c"/proc/self/fd", flags, 0, 0)?;
        let (uid, gid) = path::effective_ids();
        // Modes come from the application, whose umask was applied.
        path::umask(0);
        let connections = (0..CONNECTIONS)
            .map(|_| sock::seqpacket_pair())
            .collect::<Result<_>>()?;
        let limit = u32::try_from(max_fds.saturating_sub(128)).unwrap_or(MAX_HANDLES);
        let roots = roots
            .into_iter()
            .map(|r| Ok((r.name, Arc::new(Node::new(r.fd, r.writable)?))))
            .collect::<Result<_>>()?;
        Ok(Server {
            roots,
            proc_fd,
            table: Table::new(limit.min(MAX_HANDLES)),
            connections,
            uid,
            gid,
            own_mounts: false,
        })
    }

    /// Its mounts are its own: what anybody mounts on the host later does not show below its roots.
    #[must_use]
    pub fn with_own_mounts(mut self, own: bool) -> Server {
        self.own_mounts = own;
        self
    }

    /// Serves until the client is gone. The caller may have confined the process by now: only calls of the
    /// Gofer's allow-list are made from here on.
    pub fn serve(mut self, channel: HostFd) -> Result<()> {
        hostcall::process::settle_allocator();
        let (mut ours, theirs): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.connections).into_iter().unzip();
        let hello = Hello {
            version: VERSION,
            max_handles: self.table.limit(),
            uid: self.uid,
            gid: self.gid,
        };
        let fds: Vec<i32> = theirs.iter().map(HostFd::raw).collect();
        sock::send(channel.raw(), &hello.encode(), &fds)?;
        drop(theirs);
        let server = &self;
        // The client uses the last one first: it is served by this thread, which runs already.
        let first = ours.pop();
        std::thread::scope(|s| {
            s.spawn(move || {
                for conn in ours {
                    s.spawn(move || {
                        server.await_first(&conn);
                        server.connection(&conn);
                    });
                }
            });
            if let Some(conn) = first {
                server.connection(&conn);
            }
        });
        Ok(())
    }

    /// As [`Server::serve`], as a whole process.
    pub fn run(self, channel: HostFd) -> ! {
        let status = i32::from(self.serve(channel).is_err());
        hostcall::process::exit_group(status)
    }

    /// Most connections of a small container are never used: no memory before there is something to read.
    fn await_first(&self, conn: &HostFd) {
        let mut fds = [libc::pollfd {
            fd: conn.raw(),
            events: libc::POLLIN,
            revents: 0,
        }];
        while matches!(hostcall::file::poll(&mut fds, -1), Err(abi::errno::EINTR)) {}
    }

    fn connection(&self, conn: &HostFd) {
        let mut buf = vec![0u8; MAX_MESSAGE];
        let mut spin = sock::Spin::up_to(SPIN);
        loop {
            // Descriptors from the client have no meaning, and are closed.
            let message = match sock::recv_spinning(conn.raw(), &mut buf, &mut spin) {
                Ok((0, _)) => return,
                Ok((n, _)) => Ok(&buf[..n]),
                Err(abi::errno::EBADMSG) => Err(abi::errno::EBADMSG),
                Err(_) => return,
            };
            let mut out = None;
            let result = message
                .and_then(Request::decode)
                .and_then(|(request, closes)| {
                    for h in closes {
                        self.table.remove(h);
                    }
                    let (reply, fd) = self.handle(request)?;
                    out = fd;
                    Ok(reply)
                });
            let fds: Vec<i32> = out.iter().map(HostFd::raw).collect();
            if sock::send(conn.raw(), &Reply::encode(&result), &fds).is_err() {
                return;
            }
        }
    }
}

/// A name of one component, as the host shall see it.
fn component(name: &[u8]) -> Result<CString> {
    use abi::errno::{EINVAL, ENAMETOOLONG};
    if name.len() > 255 {
        return Err(ENAMETOOLONG);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
        return Err(EINVAL);
    }
    CString::new(name).map_err(|_| EINVAL)
}
