//! Taking over what has come to a namespace since its devices were taken over.
//!
//! All that was there was taken away, so what stands on a device is new. A container that had no
//! devices begins with nothing ([`Kept::nothing`]).
//!
//! # Invariants
//!
//! - What is taken away was written down before, as not answered for yet. Whoever looks again
//!   gives that back first, and finds it again: so a command may be killed at any place.
//! - What is refused is the host's again. Where the answer does not come in time it is, too, and
//!   the sandbox may have it besides, until somebody looks again: it is told of all devices then.

use super::difference::Difference;
use super::rtnetlink::Rtnetlink;
use super::{Kept, Link, Namespace, Setup, names, namespace, open, read};
use crate::{Error, step};
use abi::errno::ENOENT;
use config::DEVICES_MAX;
use hostcall::HostFd;

/// What has become of devices since they were taken over.
#[derive(Debug)]
pub struct Change {
    /// Those that are there still: their indices and hardware addresses.
    pub there: Vec<(u32, [u8; 6])>,
    /// Those of them that are up or have something new, with the addresses that are new; those that
    /// have come; of all, routes and neighbours that are new.
    pub setup: Setup,
    /// In the order of the setup's devices.
    pub links: Vec<Link>,
    /// As in [`super::OwnedDevices`], where there was none before.
    pub names: Option<HostFd>,
    pub warnings: Vec<String>,
}

/// Looks again at the network namespace where this thread is, whose devices are those of `kept`,
/// and hands what has changed over. `keep` writes down what is to be put back some time.
///
/// # Errors
///
/// Nothing is taken that was not before, as far as the host lets it back.
pub fn refresh<E: From<Error>>(
    mut kept: Kept,
    keep: impl Fn(&Kept) -> std::result::Result<(), E>,
    hand_over: impl FnOnce(&Change) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    if namespace::is_initial()? {
        return Err(Error::HostsNetwork.into());
    }
    if Namespace::here()? != kept.namespace {
        let what = "find the network namespace whose devices were taken over";
        return Err(Error::step(what, ENOENT).into());
    }
    let mut refused = None;
    if let Some(unanswered) = kept.unanswered.take() {
        // What the host refuses is not there for the sandbox, either.
        refused = unanswered.put_back_own()?;
        keep(&kept)?;
    }
    let mut host = step("ask for the network's devices", Rtnetlink::open())?;
    let mut seen = read::see(&mut host)?;
    seen.warnings.extend(refused.map(|e| e.to_string()));
    let there = kept.still_there(&mut host)?;
    let names = if kept.has_names { None } else { names() };
    let Some(new) = Difference::between(&kept, there, seen, names.is_some()) else {
        return Ok(());
    };
    let count = new.kept.devices.len();
    if count > DEVICES_MAX {
        return Err(Error::TooManyDevices { count }.into());
    }
    let links =
        open(&new.setup).map_err(|(name, e)| Error::step(&format!("open the device {name}"), e))?;
    step("ask for the right to change devices", host.may_change())?;
    kept.unanswered = Some(Box::new(new.taken.clone()));
    keep(&kept)?;
    kept.unanswered = None;
    let mut change = Change {
        there: new.there,
        setup: new.setup,
        links,
        names,
        warnings: new.warnings,
    };
    let cleared = new.taken.clear(&mut host, &mut change.warnings);
    if let Err(e) = cleared.map_err(E::from).and_then(|()| hand_over(&change)) {
        // What fails on the way back is less than what failed before.
        if new.taken.put_back_own().is_ok() {
            let _ = keep(&kept);
        }
        return Err(e);
    }
    keep(&new.kept)
}
