//! A container that joins a running sandbox.

use super::{Failure, launch, mounts, or, serve};
use crate::container::{Container, Parts};
use crate::kernel::Kernel;
use crate::ns::{NsProxy, change};
use abi::linux::{CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUTS};
use clas::Clas;
use config::JoinSpec;
use config::control::ToStarter;
use gofer::client::Client;
use hostcall::HostFd;
use std::sync::Arc;

/// Makes the container up to its first instruction, tells its starter that it is ready, and serves
/// that.
///
/// What is given: the body ([`JoinSpec`]), the channel to the container's Gofer, the socket to its
/// starter, an empty memory file, a locked file that is held as long as its programs may run, the
/// file for the root's changes (if the spec says so), then what `exec` is given.
pub fn join(kernel: &Arc<Kernel>, given: Vec<HostFd>) -> core::result::Result<(), Failure> {
    let mut given = given.into_iter();
    let mut next = |what: &str| {
        let missing = || Failure::from(format!("the request has no {what}"));
        given.next().ok_or_else(missing)
    };
    let body = or(serve::read_all(&next("body")?), "read the request")?;
    let spec: JoinSpec =
        serde_json::from_slice(&body).map_err(|e| format!("the request is not understood: {e}"))?;
    let (channel, control) = (next("Gofer")?, next("starter")?);
    let memory = or(Clas::in_memory(next("memory")?), "make its memory")?;
    let lock = next("lock")?;
    let layer = spec.has_layer.then(|| next("layer")).transpose()?;
    let stdio = spec.first.stdio.take(&mut given);
    let stdio = stdio.ok_or("the request has too few descriptors")?;
    let preserved = given.take(spec.first.preserved as usize).collect();

    let ns = namespaces(kernel, &spec)?;
    let container = Container::new(Parts {
        clas: memory,
        ns,
        devpts: kernel.terminals.new_devpts(),
        seccomp: spec.container.seccomp.clone(),
        is_managed: true,
        control,
        limits: spec.container.limits.clone(),
        memory_bound: kernel.root.memory_bound,
    });
    kernel.root.share();
    container.share();
    kernel.govern_memory(&container);
    // Without its Gofer a container can find no file; its starter, which sees that too, ends it.
    let client = or(
        Client::connect(&channel, Box::new(|| {})),
        "reach the Gofer",
    )?;
    let mounts = mounts::Builder {
        kernel,
        container: &container,
        client: &client,
        spec: &spec.container,
    };
    container.set_root(mounts.tree(layer)?);
    let program = launch::Program::new(spec.first.process, stdio, preserved);
    let first = launch::prepare(kernel, &container, program, |_| true)?;
    let (k, c) = (kernel.clone(), container.clone());
    let made = std::thread::Builder::new()
        .name("container".into())
        .stack_size(256 << 10)
        .spawn(move || {
            let guard = k.clone();
            guard.guard(|| serve::serve_joined(k, c, first, lock));
        });
    made.map_err(|_| "no more threads can be made")?;
    container.tell(ToStarter::Ready, &[]);
    Ok(())
}

/// Its namespaces: the sandbox's first ones, but for those that it has of its own.
fn namespaces(
    kernel: &Arc<Kernel>,
    spec: &JoinSpec,
) -> core::result::Result<Arc<NsProxy>, Failure> {
    let own = [
        (spec.own_pids, CLONE_NEWPID),
        (spec.own_uts, CLONE_NEWUTS),
        (spec.own_ipc, CLONE_NEWIPC),
        (spec.own_net, CLONE_NEWNET),
        (spec.container.time.is_some(), CLONE_NEWTIME),
    ];
    let flags = own.iter().filter(|o| o.0).fold(0, |all, o| all | o.1);
    let old = &kernel.initial;
    let user = vfs::Credentials::root();
    let ns = or(
        change::copy(
            kernel,
            &old.pid_for_children,
            old,
            &user,
            &kernel.cgroups.root,
            flags,
        ),
        "make its namespaces",
    )?;
    if let Some(offsets) = &spec.container.time {
        or(ns.time_for_children.take_over(offsets), "shift its clocks")?;
    }
    if spec.own_net {
        // As container runtimes do.
        or(ns.net.set_loopback(net::Link::Up), "take its loopback up")?;
    }
    if spec.own_uts {
        ns.uts.change(kernel, |names| {
            names.nodename = spec.container.hostname.clone().into_bytes();
            if !spec.container.domainname.is_empty() {
                names.domainname = spec.container.domainname.clone().into_bytes();
            }
        });
    }
    // Containers do not reach each other's control groups: each has a tree.
    Ok(Arc::new(NsProxy {
        cgroup: or(kernel.new_cgroups(), "make its control groups")?,
        ..NsProxy::clone(&ns.with_childrens_time())
    }))
}
