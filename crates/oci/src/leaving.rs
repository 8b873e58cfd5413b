//! What may leave by a container's devices: by the runtime's options and by the bundle's
//! annotations.
//!
//! # Invariants
//!
//! - Annotations only close: they deny more, and allow only where nobody else does, which closes
//!   all that they do not allow.
//! - The resolvers whose answers are believed are this host's, or said with the rules: never those
//!   of a container's `/etc/resolv.conf`. An image has written that, or a program of the run
//!   before; also where it is a file that a container manager shows there.

use crate::spec::Spec;
use crate::state::Sandbox;
use crate::{
    ALLOW_ANNOTATION, DENY_ANNOTATION, Error, Leaving, Net, PCAP_ANNOTATION, Result, Runtime, Tried,
};
use egress::rules::RESOLVERS_MOST;
use egress::{Rule, Rules};
use std::io::Read;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The longest `resolv.conf` that is read.
const RESOLV_CONF_MOST: u64 = 64 << 10;

/// Of a bundle. `sandbox`: what it joins, if it is a later container of a pod.
pub fn of_bundle(rt: &Runtime, spec: &Spec, sandbox: Option<&Sandbox>) -> Result<Leaving> {
    let mut leaving = rt.leaving.clone();
    let closed = by_annotations(rt, spec, &mut leaving.rules)?;
    pcap(rt, spec, &mut leaving)?;
    if sandbox.is_some() {
        // The pod's first container has said it.
        return match closed {
            true => Err(Error::Refused(format!(
                "annotation {ALLOW_ANNOTATION} or {DENY_ANNOTATION}: the network is that of the pod, and what may leave is said where the pod begins"
            ))),
            false => Ok(Leaving::default()),
        };
    }
    if leaving == Leaving::default() {
        return Ok(leaving);
    }
    if rt.net != Net::Sandbox {
        return match closed || !rt.leaving.rules.is_empty() || leaving.pcap.is_some() {
            true => Err(Error::Refused(
                "rules for the network, and --pcap, are about --net=sandbox: take that, or none of them"
                    .into(),
            )),
            false => Ok(Leaving::default()),
        };
    }
    complete(&mut leaving.rules)?;
    Ok(leaving)
}

/// Where packets are written down, as far as annotations may say it.
fn pcap(rt: &Runtime, spec: &Spec, leaving: &mut Leaving) -> Result<()> {
    let Some(path) = spec.annotations.get(PCAP_ANNOTATION) else {
        return Ok(());
    };
    if !rt.annotated.pcap {
        return Err(Error::Refused(format!(
            "annotation {PCAP_ANNOTATION}: annotations may not choose a file of the host: allow it with --annotations=pcap"
        )));
    }
    if !Path::new(path).is_absolute() {
        return Err(Error::Refused(format!(
            "annotation {PCAP_ANNOTATION}: {path} is not an absolute path"
        )));
    }
    leaving.pcap = Some(path.into());
    Ok(())
}

/// Adds what annotations say; whether they say something.
fn by_annotations(rt: &Runtime, spec: &Spec, rules: &mut Rules) -> Result<bool> {
    let allow = of_annotation(spec, ALLOW_ANNOTATION)?;
    let deny = of_annotation(spec, DENY_ANNOTATION)?;
    if allow.is_empty() && deny.is_empty() {
        return Ok(false);
    }
    if !rt.annotated.network {
        return Err(Error::Refused(
            "annotations may not choose what leaves by the network: allow it with --annotations=network"
                .into(),
        ));
    }
    if !allow.is_empty() && !rules.allow.is_empty() {
        return Err(Error::Refused(format!(
            "annotation {ALLOW_ANNOTATION}: the runtime says what is allowed (--allow), and annotations may only deny more"
        )));
    }
    // Where the runtime denies something, this host and the like are refused, too.
    if !rules.is_empty() {
        let own = own();
        if let Some(r) = allow.iter().find(|r| r.opens(&own)) {
            return Err(Error::Refused(format!(
                "annotation {ALLOW_ANNOTATION}: {r} is refused where the runtime has rules (--deny), and annotations may only deny more"
            )));
        }
    }
    rules.allow.extend(allow);
    rules.deny.extend(deny);
    Ok(true)
}

fn of_annotation(spec: &Spec, name: &str) -> Result<Vec<Rule>> {
    let text = spec.annotations.get(name).map_or("", String::as_str);
    let words = text.split(',').map(str::trim).filter(|w| !w.is_empty());
    let rules = words.map(|w| {
        w.parse()
            .map_err(|e| Error::Refused(format!("annotation {name}: {e}")))
    });
    rules.collect()
}

/// With this host's addresses, and the name servers whose answers are believed.
pub fn complete(rules: &mut Rules) -> Result<()> {
    if rules.resolvers.is_empty() {
        rules.resolvers = resolvers();
    }
    rules.own = own();
    rules.check().map_err(|e| Error::Refused(e.to_string()))
}

/// This host's addresses.
#[must_use]
pub fn own() -> Vec<IpAddr> {
    let here = sandbox::interfaces().into_iter();
    here.flat_map(|i| i.addresses).map(|(ip, _)| ip).collect()
}

/// This host's name servers.
#[must_use]
pub fn resolvers() -> Vec<IpAddr> {
    // Where the first has none but one of this host's own, which containers do not reach, container
    // managers give them those of the second.
    const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
    let mut all: Vec<IpAddr> = Vec::new();
    for ip in FILES.iter().flat_map(|f| in_file(Path::new(f))) {
        if !all.contains(&ip) && !ip.is_loopback() {
            all.push(ip);
        }
    }
    all.truncate(RESOLVERS_MOST);
    all
}

fn in_file(path: &Path) -> Vec<IpAddr> {
    let mut text = String::new();
    // Without one there is none: names are not resolved.
    if let Ok(f) = std::fs::File::open(path) {
        let _ = f.take(RESOLV_CONF_MOST).read_to_string(&mut text);
    }
    egress::rules::resolvers(&text)
}

/// Opens the log of refusals.
pub fn open_log(path: &Path) -> Result<OwnedFd> {
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        // A pipe that nobody reads must not make the network stand still.
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    file.map(Into::into)
        .tried(&format!("open the log {}", path.display()))
}
