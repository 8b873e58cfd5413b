//! Namespaces (`namespaces(7)`): what a task sees of the system's resources.
//!
//! A task has an [`NsProxy`], replaced whole by unshare(2) and setns(2); its pid namespace is its
//! [`pid::Pid`]'s, its user namespace its credentials', its mount namespace its file-system
//! context's. Every namespace belongs to a user namespace: capabilities over it are asked of that
//! one ([`vfs::Credentials::has_in`]).
//!
//! | module | what it holds |
//! |---|---|
//! | [`pid`] | pid namespaces: numbers, the end of process 1 |
//! | [`time`] | what is added to clocks |
//! | [`uts`] | host and domain names |
//! | [`nsfs`] | namespaces as files: `/proc/PID/ns`, their ioctls |
//! | [`change`] | clone(2), unshare(2), setns(2) |
//!
//! A proxy and what it points to never change but by their own inner locks; a task's cell is a
//! leaf.

pub mod change;
pub mod nsfs;
pub mod pid;
pub mod time;
pub mod uts;

use crate::Kernel;
use parking_lot::RwLock;
use pid::PidNs;
use std::ops::Deref;
use std::sync::Arc;
use time::TimeNs;
use uts::Uts;
use vfs::userns::{NsId, UserNs};

/// A namespace that holds a `T`.
pub struct Ns<T> {
    pub id: NsId,
    /// Who may administer it.
    pub user: UserNs,
    it: T,
}

impl<T> Ns<T> {
    #[must_use]
    pub fn new(id: NsId, user: &UserNs, it: T) -> Arc<Ns<T>> {
        Arc::new(Ns {
            id,
            user: user.clone(),
            it,
        })
    }
}

impl<T> Deref for Ns<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.it
    }
}

/// The names of a UTS namespace.
pub struct Names(RwLock<Uts>);

impl Names {
    #[must_use]
    pub fn new(uts: Uts) -> Names {
        Names(RwLock::new(uts))
    }
    #[must_use]
    pub fn get(&self) -> Uts {
        self.0.read().clone()
    }
}

impl UtsNs {
    /// Changes the names. Threads know them, and answer uname(2) by themselves: when this returns,
    /// none does by the old ones. (Who comes into the namespace, or is made, while the tasks are
    /// listed looks the names up after that.)
    pub fn change(&self, kernel: &Kernel, f: impl FnOnce(&mut Uts)) {
        f(&mut self.0.write());
        let tasks: Vec<_> = kernel.tasks.lock().all().cloned().collect();
        for t in tasks {
            if std::ptr::eq(&*t.ns().uts, self) {
                t.withdraw_local();
            }
        }
    }
}

pub type UtsNs = Ns<Names>;
pub type IpcNs = Ns<Arc<ipc::sysv::IpcNamespace>>;
pub type NetNs = Ns<Arc<net::NetNamespace>>;
/// The root of what is seen of the control groups.
pub type CgroupNs = Ns<Arc<crate::cgroup::Cgroup>>;

/// A task's namespaces.
#[derive(Clone)]
pub struct NsProxy {
    pub uts: Arc<UtsNs>,
    pub ipc: Arc<IpcNs>,
    pub net: Arc<NetNs>,
    pub cgroup: Arc<CgroupNs>,
    /// Where children go; the task's own is its `Pid`'s.
    pub pid_for_children: Arc<PidNs>,
    pub time: Arc<TimeNs>,
    pub time_for_children: Arc<TimeNs>,
}

impl NsProxy {
    /// The initial namespaces.
    #[must_use]
    pub fn initial(uts: Uts, net: Arc<net::NetNamespace>, cgroup: Arc<CgroupNs>) -> Arc<NsProxy> {
        let (root, time) = (UserNs::default(), time::initial());
        Arc::new(NsProxy {
            uts: Ns::new(NsId::initial(0xefff_fffe), &root, Names::new(uts)),
            ipc: Ns::new(
                NsId::initial(0xefff_ffff),
                &root,
                ipc::sysv::IpcNamespace::new(),
            ),
            net: Ns::new(NsId::initial(0xf000_0041), &root, net),
            cgroup,
            pid_for_children: PidNs::initial(),
            time: time.clone(),
            time_for_children: time,
        })
    }
}
