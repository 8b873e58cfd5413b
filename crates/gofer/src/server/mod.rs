//! The Gofer's side.
//!
//! Before it is confined, the process makes a [`Server`] with its roots; afterwards it calls
//! [`Server::run`], which needs no path but what lies below descriptors it holds.

mod made;
mod names;
mod ops;
mod table;
mod xattr;

use crate::kernel_fs::Kind;
use crate::line::{BUFFER, Line};
use crate::proto::{Reply, Request};
use crate::wire::{Hello, MAX_CONNECTIONS, MIN_CONNECTIONS, VERSION, connection_of};
use abi::Result;
use abi::errno::EBADMSG;
use hostcall::{HostFd, path, process, sock};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use table::{Node, Table};

/// A directory (or a single file) of the host that the container may see.
pub struct Root {
    /// By which the client attaches to it.
    pub name: String,
    fd: HostFd,
    writable: Writable,
}

/// Whether the container may change what lies below a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writable {
    No,
    Yes,
}

/// The mounts that a Gofer's roots lie on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mounts {
    /// The host's.
    Hosts,
    /// Its own: what anybody mounts on the host later does not show below its roots.
    Own,
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
            writable,
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
    connections: Vec<(Line, Line)>,
    /// That it may use.
    cpus: Vec<u32>,
    uid: u32,
    gid: u32,
    own_mounts: bool,
    fine_times: bool,
    /// `net` of a procfs: see [`Server::with_network`].
    network: Option<Node>,
}

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
        let cpus = process::cpus();
        let connections = (0..cpus.len().clamp(MIN_CONNECTIONS, MAX_CONNECTIONS))
            .map(|_| Line::pair())
            .collect::<Result<_>>()?;
        let limit = u32::try_from(max_fds.saturating_sub(128)).unwrap_or(MAX_HANDLES);
        let roots = roots
            .into_iter()
            .map(|r| Ok((r.name, Arc::new(Node::root(&proc_fd, r.fd, r.writable)?))))
            .collect::<Result<_>>()?;
        Ok(Server {
            roots,
            proc_fd,
            table: Table::new(limit.min(MAX_HANDLES)),
            connections,
            cpus,
            uid,
            gid,
            own_mounts: false,
            fine_times: process::is_linux(6, 13),
            network: None,
        })
    }

    #[must_use]
    pub fn with_mounts(mut self, whose: Mounts) -> Server {
        self.own_mounts = whose == Mounts::Own;
        self
    }

    /// What a procfs below the roots shows as `net`: a directory of that procfs, of the network
    /// namespace that the container may see. Without it there is no such name.
    #[must_use]
    pub fn with_network(mut self, directory: Option<HostFd>) -> Server {
        let node = directory.and_then(|fd| Node::root(&self.proc_fd, fd, Writable::No).ok());
        self.network = node.filter(|n| n.fs == Kind::Proc);
        self
    }

    /// Serves until the client is gone. The caller may have confined the process by now: only calls
    /// of the Gofer's allow-list are made from here on.
    pub fn serve(mut self, channel: HostFd) -> Result<()> {
        process::limit_arenas();
        let (ours, theirs): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.connections).into_iter().unzip();
        let n = ours.len();
        let mut ours: Vec<_> = ours.into_iter().enumerate().collect();
        let hello = Hello {
            version: VERSION,
            max_handles: self.table.limit(),
            uid: self.uid,
            gid: self.gid,
        };
        let fds: Vec<i32> = theirs.iter().flat_map(Line::fds).collect();
        sock::send(channel.raw(), &hello.encode(), &fds)?;
        drop(theirs);
        let server = &self;
        // One is served by this thread, which runs already: where its maker may be, too.
        let own = connection_of(process::current_cpu(), n);
        std::thread::scope(|s| {
            let first = ours.swap_remove(own).1;
            s.spawn(move || {
                for (i, conn) in ours {
                    s.spawn(move || {
                        server.await_first(&conn);
                        server.connection(&conn, i, n);
                    });
                }
            });
            server.connection(&first, own, n);
        });
        Ok(())
    }

    /// As [`Server::serve`], as a whole process.
    pub fn run(self, channel: HostFd) -> ! {
        let status = i32::from(self.serve(channel).is_err());
        process::exit_group(status)
    }

    /// Most connections of a small container are never used: no memory before there is something to
    /// read.
    fn await_first(&self, conn: &Line) {
        let mut fds = [libc::pollfd {
            fd: conn.incoming().raw(),
            events: libc::POLLIN,
            revents: 0,
        }];
        while matches!(
            hostcall::file::poll_at_length(&mut fds, -1),
            Err(abi::errno::EINTR)
        ) {}
    }

    /// Serves the `index`th of `n` connections, on the CPUs that it is for: a request to a thread
    /// that sleeps on the asker's CPU costs two switches; to one on an idle CPU, up to some 100 us
    /// in a virtual machine for each of the two wake-ups.
    fn connection(&self, conn: &Line, index: usize, n: usize) {
        let mut cpus = self.cpus.clone();
        cpus.retain(|c| connection_of(*c, n) == index);
        if self.cpus.len() > 1 && !cpus.is_empty() {
            // Without that right it is on any.
            let _ = process::stay_on(&cpus);
        }
        let mut buf = vec![0u8; BUFFER];
        loop {
            let message = match conn.receive(&mut buf) {
                Err(e) if e != EBADMSG => return,
                m => m,
            };
            let mut out = None;
            let mut brings_fd = false;
            let result = message
                .and_then(Request::decode)
                .and_then(|(request, piggybacked)| {
                    brings_fd = request.brings_fd();
                    for h in piggybacked.closes {
                        self.table.remove(h);
                    }
                    let (reply, fd) = self.handle(request, &piggybacked.also)?;
                    out = fd;
                    Ok(reply)
                });
            let reply = Reply::encode(&result);
            let sent = if brings_fd {
                send_with(conn, &reply, out.as_ref())
            } else {
                conn.send(&reply)
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

/// The descriptor is a gift: the host refuses to carry it where other processes of this user have
/// too many on the way (`ETOOMANYREFS`, unix(7)), or for want of memory. The connection goes on,
/// and the client sees that it is missing.
fn send_with(conn: &Line, reply: &[u8], fd: Option<&HostFd>) -> Result<()> {
    let sent = fd.map(|fd| conn.send_with(reply, &[fd.raw()]));
    match sent {
        Some(Ok(())) => Ok(()),
        _ => conn.send_with(reply, &[]),
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
