//! The Sentry's side of the start.

use crate::privilege::{self as own, Network, Standing};
use crate::spawn::REPORT;
use crate::{Broker, Confine, Error, Outside, Spec, spawn, step};
use abi::Result;
use abi::errno::EBUSY;
use hostcall::table::{Process, Sockets, Stubs};
use hostcall::{HostFd, process, start as host};

/// What the Sentry starts with.
pub struct SentrySide {
    /// To the starter: see [`crate::control`].
    pub control: HostFd,
    /// To the Gofer.
    pub gofer: HostFd,
    pub broker: Broker,
    /// The sockets of devices that were taken over, in their order, then that to the name server.
    pub devices: Vec<HostFd>,
    /// See [`crate::cgroups::memory_bound`].
    pub memory_bound: u64,
    /// As in the [`crate::Spec`].
    pub descriptors: Vec<HostFd>,
    /// To be called once the platform is made (which needs `/proc`) and before application code
    /// runs, with one thread: `EBUSY` if there are more.
    pub seal: Confine,
}

pub fn prepare(
    spec: &Spec,
    standing: Standing,
    network: Network,
    fds: Vec<HostFd>,
) -> std::result::Result<SentrySide, Error> {
    let mut fds = fds.into_iter();
    let (Some(report), Some(control), Some(gofer)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(Error::NoDescriptors);
    };
    let mut next = || fds.next().ok_or(Error::NoDescriptors);
    let (broker, sockets) = match spec.network {
        // Frames are read and written like any file.
        Outside::Nowhere | Outside::Devices(_) => (Broker::None, Sockets::Inside),
        Outside::Host => (Broker::Host(next()?), Sockets::Host),
        Outside::User(_) => {
            let (requests, events) = (next()?, next()?);
            (Broker::User { requests, events }, Sockets::Broker)
        }
    };
    let devices = match &spec.network {
        Outside::Devices(d) => {
            let fds = d.descriptors().map(|_| next());
            fds.collect::<std::result::Result<_, Error>>()?
        }
        _ => Vec::new(),
    };
    // It stays open as long as the process.
    let _ = report.into_raw();
    step("leave the terminal", host::setsid())?;
    // The exchange of the root directory takes along the processes that stand there, stub processes
    // too.
    step("leave its directory", host::chdir(c"/"))?;
    if standing == Standing::Privileged {
        spawn::await_admission(&control)?;
    }
    // In the groups that it was put into, which its own namespaces hide.
    let memory_bound = crate::cgroups::memory_bound();
    match standing {
        Standing::Privileged => {
            step(
                "become nobody",
                own::become_nobody(own::CAP_SYS_ADMIN | own::CAP_SETPCAP),
            )?;
            step("make its namespaces", own::own_namespaces(network))?;
        }
        Standing::Ordinary { uid, gid } => {
            own::raise_limits(standing, 0);
            map_ids(uid, gid)?;
            step("make its namespaces", own::own_namespaces(network))?;
        }
    }
    // For stub processes, too, which are made before the rest is given up.
    step("empty its bounding set", own::bound())?;
    // Both of these are lost when the user changes. Stub processes must be traceable by the Sentry.
    step("allow tracing", process::prctl(libc::PR_SET_DUMPABLE, 1, 0))?;
    step("follow the starter", own::die_with_starter(REPORT))?;
    let score = prefer_children();
    let stubs = if spec.traces {
        Stubs::Traced
    } else {
        Stubs::Notify
    };
    let list = Process::sentry(sockets, stubs);
    Ok(SentrySide {
        control,
        gofer,
        broker,
        devices,
        memory_bound,
        descriptors: fds.collect(),
        seal: Box::new(move || seal(list, score)),
    })
}

/// What the host's killer of processes adds for this one when memory is out (`oom_score_adj`).
const SCORE: &str = "/proc/self/oom_score_adj";

fn set_score(n: i32) -> std::io::Result<()> {
    std::fs::write(SCORE, n.to_string())
}

/// Makes what is cloned from now on worth more to the killer than this process is: an application
/// goes, not the sandbox. Gives what to go back to, for the Sentry itself; a host that does not let
/// it, leaves all alike.
fn prefer_children() -> Option<i32> {
    let own: i32 = std::fs::read_to_string(SCORE).ok()?.trim().parse().ok()?;
    set_score((own + 1000) / 2).ok().map(|()| own)
}

fn seal(list: Process, score: Option<i32>) -> Result<()> {
    if !host::is_single_threaded() {
        return Err(EBUSY);
    }
    // Stub processes keep what they were cloned with.
    if let Some(n) = score {
        let _ = set_score(n);
    }
    own::empty_root()?;
    own::keep_capabilities(0)?;
    own::lock_down(list, REPORT)
}

/// The user's way: the new user namespace knows this user and group only.
pub fn map_ids(uid: u32, gid: u32) -> std::result::Result<(), Error> {
    let write = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text)
            .map_err(|e| Error::file(&format!("set its {file}"), e))
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))
}
