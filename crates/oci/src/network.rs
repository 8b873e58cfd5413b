//! The devices of a container's network namespace: taken over at its start, when whoever manages
//! the container has made them, followed when they change, and given back when it is deleted.
//!
//! # Invariants
//!
//! - What a namespace had is written to the state directory before it is taken away, and stays
//!   there until it is given back.
//! - A namespace's devices are one container's. A second one in the same namespace has its loopback
//!   only; or, where the first has ended and was not deleted, takes them over from it.
//! - One lock, over all containers of a state directory, holds from the first look to the last
//!   change.

use crate::client::Request;
use crate::container::Container;
use crate::reach::reach;
use crate::state::{self, Dir, Owner};
use crate::{Error, Leaving, Result, Runtime, Tried, files, leaving};
use config::{DevicesChange, DevicesSpec};
use hostcall::{HostFd, RawFd};
use rustix::fs::{Mode, OFlags};
use sandbox::capture::{self, Tap, Until};
use sandbox::devices::{self, Change, Kept, Link, Namespace, Outcome, OwnedDevices, Place, Setup};
use serde::Serialize;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::path::Path;

/// Starts a container's first program, with the devices of its network namespace if they are to be
/// the sandbox's.
pub fn start(rt: &Runtime, c: &Container) -> Result<()> {
    if c.record.devices == Owner::Host {
        return c.ask(&Request::Start, &[]).map(drop);
    }
    let _lock = state::lock_networks(&rt.root)?;
    let Some(Takeover { taken, taps }) = take_over(rt, c)? else {
        return c.ask(&Request::Start, &[]).map(drop);
    };
    for w in &taken.warnings {
        rt.log.warning(w);
    }
    let started = write_down(c, &taps).and_then(|()| hand_over(c, &taken));
    if started.is_err() {
        // The host's again, also of a container that stays.
        drop(taken);
        give_back_locked(rt, c);
    }
    started
}

/// What was taken over, and who looks on.
struct Takeover {
    taken: Box<OwnedDevices>,
    taps: Vec<Tap>,
}

/// Has what passes on the devices written down, if it is to be, as long as the container's monitor
/// lives.
fn write_down(c: &Container, taps: &[Tap]) -> Result<()> {
    let Some(path) = &c.record.leaving.pcap else {
        return Ok(());
    };
    let file = capture::open_file(path)?;
    let monitor = reach(c.record.pid, c.record.pid_start)?.ok_or(Error::NotRunning)?;
    let monitor = monitor.into_fd();
    let until = Until::Ended(monitor.as_raw_fd());
    Ok(capture::start(taps, &file, until).map(drop)?)
}

/// Devices as a Sentry gets them: what it is told, and the descriptors that follow.
struct Parcel {
    spec: DevicesSpec,
    fds: Vec<RawFd>,
    _log: Option<OwnedFd>,
}

impl Parcel {
    /// With what may leave, and where refusals are told: for a sandbox that had no devices.
    fn new(
        leaving: &Leaving,
        setup: &Setup,
        links: &[Link],
        names: Option<&HostFd>,
    ) -> Result<Parcel> {
        let log = leaving.log.as_deref().map(leaving::open_log).transpose()?;
        let mut fds: Vec<RawFd> = links.iter().map(|l| l.fd.raw()).collect();
        fds.extend(names.map(HostFd::raw));
        fds.extend(log.as_ref().map(AsRawFd::as_raw_fd));
        Ok(Parcel {
            fds,
            spec: DevicesSpec {
                setup: setup.clone(),
                receive_buffers: links.iter().map(|l| l.receive_buffer).collect(),
                has_names: names.is_some(),
                rules: leaving.rules.clone(),
                has_log: log.is_some(),
            },
            _log: log,
        })
    }

    /// Asks with it, behind the words that say what it is.
    fn send(&self, c: &Container, request: &Request, words: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(words).tried("describe the network's devices")?;
        let body = files::in_memory(&text)?;
        let fds = [&[body.as_raw_fd()], &self.fds[..]].concat();
        c.ask(request, &fds).map(drop)
    }
}

/// Starts it with these devices.
fn hand_over(c: &Container, taken: &OwnedDevices) -> Result<()> {
    let (leaving, names) = (&c.record.leaving, taken.names.as_ref());
    let parcel = Parcel::new(leaving, &taken.setup, &taken.links, names)?;
    parcel.send(c, &Request::Start, &parcel.spec)
}

/// Has a running container follow what has become of the devices of its namespace since its start,
/// or since this was done last.
pub fn refresh(rt: &Runtime, c: &Container) -> Result<()> {
    let _lock = state::lock_networks(&rt.root)?;
    let monitor = reach(c.record.pid, c.record.pid_start)?.ok_or(Error::NotRunning)?;
    let place = Place::Process(to_host_fd(monitor.into_fd()));
    let mut leaving = c.record.leaving.clone();
    // The host's networks are others by now, too.
    leaving.rules.own = leaving::own();
    let refreshed = devices::inside(&place, || refresh_here(rt, c, &leaving));
    refreshed?.unwrap_or_else(|| {
        Err(Error::new(
            "this user may not take over devices of the container's network",
        ))
    })
}

fn refresh_here(rt: &Runtime, c: &Container, leaving: &Leaving) -> Result<()> {
    let (kept, is_first) = match c.dir.load_network()? {
        Some(kept) => (kept, false),
        None if is_anothers(rt, c)? => return Ok(()),
        None => (Kept::nothing()?, true),
    };
    let hand_over = |new: &Change| {
        for w in &new.warnings {
            rt.log.warning(w);
        }
        if is_first {
            write_down(c, &taps(c, &new.setup)?)?;
        }
        let parcel = Parcel::new(leaving, &new.setup, &new.links, new.names.as_ref())?;
        let words = DevicesChange {
            there: new.there.clone(),
            now: parcel.spec.clone(),
        };
        parcel.send(c, &Request::Refresh, &words)
    };
    devices::refresh(kept, |kept| c.dir.save_network(kept), hand_over)
}

/// Takes over what there is; `None` where the container has its loopback only.
fn take_over(rt: &Runtime, c: &Container) -> Result<Option<Takeover>> {
    let monitor = reach(c.record.pid, c.record.pid_start)?.ok_or(Error::NotRunning)?;
    if has_loopback_only(c.record.pid) {
        return Ok(None);
    }
    let place = Place::Process(to_host_fd(monitor.into_fd()));
    match devices::inside(&place, || take_over_here(rt, c)) {
        Ok(Some(r)) => r,
        Ok(None) => Ok(not_allowed(rt)),
        Err(sandbox::Error::HostsNetwork) => Ok(hosts(rt)),
        Err(e) => Err(e.into()),
    }
}

/// Whether the network namespace of a process, which has not been waited for, has no device but a
/// loopback: a look from outside, which is quicker than to go there.
fn has_loopback_only(pid: i32) -> bool {
    let devices = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    // Behind two lines of titles.
    let mut names = devices.lines().skip(2).map(str::trim_start).peekable();
    names.peek().is_some() && names.all(|l| l.starts_with("lo:"))
}

/// A bundle can name the host's own namespace, for a container that is to share it.
fn hosts<T>(rt: &Runtime) -> Option<T> {
    rt.log.warning(
        "the host's network is not shown: the container has a loopback of its own (--net=host passes \
         sockets through)",
    );
    None
}

fn not_allowed<T>(rt: &Runtime) -> Option<T> {
    rt.log.warning(
        "the container's network is not used, as this user may not take over its devices: the container \
         has a loopback of its own",
    );
    None
}

/// The same, in the container's network namespace.
fn take_over_here(rt: &Runtime, c: &Container) -> Result<Option<Takeover>> {
    if devices::is_hosts()? {
        return Ok(hosts(rt));
    }
    if devices::is_alone()? {
        return Ok(None);
    }
    if is_anothers(rt, c)? {
        return Ok(None);
    }
    // Of a start that failed.
    if let Some(kept) = c.dir.load_network()? {
        put_back(rt, &c.dir, &kept);
    }
    match devices::take_over(|kept| c.dir.save_network(kept))? {
        Outcome::Taken(taken) => {
            let taps = taps(c, &taken.setup).inspect_err(|_| put_back(rt, &c.dir, &taken.kept))?;
            Ok(Some(Takeover { taken, taps }))
        }
        Outcome::Nothing => Ok(None),
        Outcome::NotAllowed => Ok(not_allowed(rt)),
    }
}

/// Who writes down what passes on these devices, if it is to be.
fn taps(c: &Container, setup: &Setup) -> Result<Vec<Tap>> {
    if c.record.leaving.pcap.is_none() {
        return Ok(Vec::new());
    }
    let devices = setup.devices.iter().map(|d| (d.index, &d.name[..]));
    Ok(capture::open(devices)?)
}

/// Whether the devices of this namespace are another container's that runs, which is told. What one
/// has left that has ended is the host's again.
fn is_anothers(rt: &Runtime, c: &Container) -> Result<bool> {
    let here = Namespace::here()?;
    for (other, kept) in others(rt, c, here) {
        if state::is_alive(other.record.pid, other.record.pid_start) {
            rt.log.warning(&format!(
                "the container's network is not used, as its devices are those of the container {}: this one \
                 has a loopback of its own",
                other.record.id
            ));
            return Ok(true);
        }
        put_back(rt, &other.dir, &kept);
    }
    Ok(false)
}

/// The other containers that hold, or have left, something of this namespace.
fn others(rt: &Runtime, c: &Container, here: Namespace) -> Vec<(Container, Kept)> {
    let all = state::all(&rt.root).into_iter().filter_map(|dir| {
        let kept = dir.load_network().ok()??;
        let record = dir.load().ok()??;
        (kept.namespace() == here && record.id != c.record.id)
            .then_some((Container { dir, record }, kept))
    });
    all.collect()
}

/// Gives devices back, in the namespace that they are of. What the host does not take is told, and
/// not tried again.
fn put_back(rt: &Runtime, dir: &Dir, kept: &Kept) {
    let put = kept.put_back().map_err(Error::from);
    if let Err(e) = put.and_then(|()| dir.remove_network()) {
        rt.log.warning(&format!("of the container's network: {e}"));
        let _ = dir.remove_network();
    }
}

/// Gives back what a container has taken over that runs no more, where its namespace is still
/// there.
pub fn give_back(rt: &Runtime, c: &Container) {
    if !matches!(c.dir.load_network(), Ok(None)) {
        match state::lock_networks(&rt.root) {
            Ok(_lock) => give_back_locked(rt, c),
            Err(e) => rt.log.warning(&e.to_string()),
        }
    }
}

fn give_back_locked(rt: &Runtime, c: &Container) {
    let kept = match c.dir.load_network() {
        Ok(Some(kept)) => kept,
        // Another has taken it over meanwhile.
        Ok(None) => return,
        Err(e) => return rt.log.warning(&e.to_string()),
    };
    let Some(place) = place(c, &kept) else { return };
    match devices::inside(&place, || put_back(rt, &c.dir, &kept)) {
        Ok(Some(())) => {}
        Ok(None) => rt.log.warning(
            "the devices of the container's network are not given back: this user may not go there",
        ),
        Err(e) => rt.log.warning(&format!(
            "the devices of the container's network are not given back: {e}"
        )),
    }
}

/// Where the namespace is found, if it is still the same: by the path that the bundle names, or by
/// the monitor.
fn place(c: &Container, kept: &Kept) -> Option<Place> {
    let of_monitor = || {
        let monitor = reach(c.record.pid, c.record.pid_start).ok()??;
        Some(Place::Process(to_host_fd(monitor.into_fd())))
    };
    let of_path = |path: &Path| {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = to_host_fd(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let is_same = Namespace::of_open(&file).is_ok_and(|n| n == kept.namespace());
        is_same.then_some(Place::File(file))
    };
    match &c.record.devices {
        Owner::Host => None,
        Owner::Sandbox { namespace: None } => of_monitor(),
        Owner::Sandbox {
            namespace: Some(path),
        } => of_path(path).or_else(of_monitor),
    }
}

fn to_host_fd(fd: OwnedFd) -> HostFd {
    HostFd::from_raw(fd.into_raw_fd())
}
