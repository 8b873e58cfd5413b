//! What a container's network is and does, for who looks at it from outside.

use super::{Failure, or, serve};
use crate::container::Container;
use crate::kernel::Kernel;
use config::DevicesChange;
use hostcall::HostFd;
use net::Socket;
use net::devices::Change;
use net::report::{Owner, Report};
use std::collections::HashMap;
use std::sync::Arc;

/// The most descriptors that are told of as owners of sockets.
const OWNERS_MOST: usize = 16_384;
/// The longest name of a program: as `comm`.
const COMMAND: usize = 16;

/// Has the sandbox go by other rules.
pub fn change_rules(kernel: &Kernel, body: &[u8]) -> core::result::Result<(), Failure> {
    let rules: egress::Rules =
        serde_json::from_slice(body).map_err(|e| format!("the rules are not understood: {e}"))?;
    rules.check().map_err(|e| e.to_string())?;
    let changed = kernel.initial.net.set_rules(rules);
    changed.map_err(|_| {
        "the container has no network by the stack (--net=sandbox, and devices when it starts), and rules are about that"
            .into()
    })
}

/// Has the sandbox follow what has become of its devices: what is given is the body
/// ([`DevicesChange`]), then what that names.
pub fn change_devices(kernel: &Kernel, given: Vec<HostFd>) -> core::result::Result<(), Failure> {
    let mut given = given.into_iter();
    let body = given.next().ok_or("the request has no body")?;
    let body = or(serve::read_all(&body), "read of the network's devices")?;
    let change: DevicesChange = serde_json::from_slice(&body)
        .map_err(|e| format!("the network's devices are not understood: {e}"))?;
    let now = change.now.with_sockets(given.collect());
    let now = now.ok_or("the network's devices are not all there")?;
    let changed = kernel.initial.net.change_devices(Change {
        there: change.there,
        setup: now.setup,
        links: now.links,
        names: now.names,
        gate: now.gate,
    });
    or(changed, "follow the network's devices")
}

pub fn report(kernel: &Kernel, container: &Arc<Container>) -> Report {
    container.ns.net.report(&owners(kernel, container))
}

/// The descriptors that stand for sockets, by the sockets' inodes. Those of other network
/// namespaces are among them: their inodes are others.
fn owners(kernel: &Kernel, container: &Arc<Container>) -> HashMap<u64, Vec<Owner>> {
    let ns = &container.ns.pid_for_children;
    let mut all: HashMap<u64, Vec<Owner>> = HashMap::new();
    let mut count = 0;
    for g in kernel.members(container) {
        let Some(t) = kernel.tasks.lock().some_thread(g.tgid) else {
            continue;
        };
        let files = t.files();
        let comm = t.comm();
        let comm = String::from_utf8_lossy(&comm[..comm.len().min(COMMAND)]);
        for fd in files.list(0) {
            let mut found = None;
            files.holding(fd, |f| found = f.ops::<Socket>().map(Socket::number));
            let Some(inode) = found else { continue };
            all.entry(inode).or_default().push(Owner {
                pid: g.pid.seen_in(ns),
                fd,
                command: comm.to_string(),
            });
            count += 1;
            if count == OWNERS_MOST {
                return all;
            }
        }
    }
    all
}
