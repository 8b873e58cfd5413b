//! Changing namespaces: clone(2) with `CLONE_NEW*`, unshare(2), setns(2).

use super::nsfs::NsRef;
use super::pid::PidNs;
use super::{Names, Ns, NsProxy};
use crate::Kernel;
use crate::cgroup::Cgroup;
use crate::task::access::{By, may_access};
use crate::task::{Context, Task};
use abi::Result;
use abi::errno::{EINVAL, EPERM, EUSERS};
use abi::linux::{
    CLONE_FILES, CLONE_FS, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID,
    CLONE_NEWTIME, CLONE_NEWUSER, CLONE_NEWUTS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD,
    CLONE_VM,
};
use std::sync::Arc;
use vfs::ucounts::Kind;
use vfs::userns::UserNs;
use vfs::{Caps, Credentials, MountNamespace};

/// The flags of namespaces that an [`NsProxy`] holds.
const IN_PROXY: u32 =
    CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWCGROUP | CLONE_NEWTIME;
/// All of them.
const ALL: u32 = IN_PROXY | CLONE_NEWNS | CLONE_NEWUSER;

/// What a child of clone(2), or the caller of unshare(2), gets.
pub struct Fresh {
    pub cred: Arc<Credentials>,
    pub proxy: Arc<NsProxy>,
}

/// Makes the namespaces that `flags` ask for (`copy_creds`, `copy_namespaces`). A new mount
/// namespace is the caller's to make, after this has checked the rights to it.
pub fn fresh(t: &Task, flags: u32) -> Result<Fresh> {
    let kernel = &t.kernel;
    let mut cred = t.cred();
    if flags & CLONE_NEWUSER != 0 {
        // A process in a chroot could leave it that way.
        let fs = t.fs();
        if fs.root() != fs.ns().root() {
            return Err(EPERM);
        }
        cred = Arc::new(UserNs::create(&kernel.namespaces, &cred)?);
        keep_limits(t, &cred.user_ns);
    }
    let old = t.ns();
    if flags & (IN_PROXY | CLONE_NEWNS) == 0 {
        return Ok(Fresh { cred, proxy: old });
    }
    if !cred.has_own(Caps::SYS_ADMIN) {
        return Err(EPERM);
    }
    let proxy = copy(kernel, &t.pid.ns, &old, &cred, &t.group.cgroup(), flags)?;
    Ok(Fresh { cred, proxy })
}

/// Whoever makes a user namespace passes its limits no more through it (`set_userns_rlimit_max`).
fn keep_limits(t: &Task, ns: &UserNs) {
    use crate::task::limits::{MSGQUEUE, NPROC, SIGPENDING};
    let l = t.group.limits.lock();
    let kinds = [
        (Kind::Processes, NPROC),
        (Kind::Signals, SIGPENDING),
        (Kind::MessageQueues, MSGQUEUE),
    ];
    for (kind, n) in kinds {
        let most = i64::try_from(l.0[n].current).unwrap_or(i64::MAX);
        let free = kind == Kind::Processes && t.cred().passes_limits();
        ns.limits().set(kind, if free { i64::MAX } else { most });
    }
}

/// New namespaces for those that the flags name, which belong to the maker's user namespace; the
/// others stay (`copy_namespaces`). `active`: the pid namespace of who asks; `group`: its control
/// group.
pub fn copy(
    kernel: &Kernel,
    active: &Arc<PidNs>,
    old: &Arc<NsProxy>,
    maker: &Credentials,
    group: &Arc<Cgroup>,
    flags: u32,
) -> Result<Arc<NsProxy>> {
    let mut new = NsProxy::clone(old);
    let user = &maker.user_ns;
    let id = |kind| kernel.namespaces.new_id(kind, maker);
    if flags & CLONE_NEWUTS != 0 {
        new.uts = Ns::new(id(Kind::UtsNamespaces)?, user, Names::new(old.uts.get()));
    }
    if flags & CLONE_NEWIPC != 0 {
        new.ipc = Ns::new(
            id(Kind::IpcNamespaces)?,
            user,
            ipc::sysv::IpcNamespace::made_by(maker),
        );
    }
    if flags & CLONE_NEWPID != 0 {
        // Whose children already go elsewhere cannot be sent further.
        if !Arc::ptr_eq(active, &old.pid_for_children) {
            return Err(EINVAL);
        }
        new.pid_for_children = active.create(&kernel.namespaces, maker)?;
    }
    if flags & CLONE_NEWNET != 0 {
        new.net = Ns::new(id(Kind::NetNamespaces)?, user, old.net.sibling(user));
    }
    if flags & CLONE_NEWCGROUP != 0 {
        new.cgroup = Ns::new(id(Kind::CgroupNamespaces)?, user, group.clone());
    }
    if flags & CLONE_NEWTIME != 0 {
        if !kernel.platform.has_own_clocks() {
            return Err(EINVAL);
        }
        let offsets = old.time_for_children.copy();
        new.time_for_children = Ns::new(id(Kind::TimeNamespaces)?, user, offsets);
    }
    Ok(Arc::new(new))
}

/// The identity of a new mount namespace.
pub fn new_mounts(t: &Task, maker: &Credentials) -> Result<vfs::userns::NsId> {
    t.kernel.namespaces.new_id(Kind::MntNamespaces, maker)
}

/// `unshare(2)`.
pub fn unshare(cx: &Context, flags: u32) -> Result<()> {
    const OTHERS: u32 =
        CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
    let mut flags = flags;
    if flags & CLONE_NEWUSER != 0 {
        flags |= CLONE_THREAD | CLONE_FS;
    }
    if flags & CLONE_NEWNS != 0 {
        flags |= CLONE_FS;
    }
    if flags & !(OTHERS | ALL) != 0 {
        return Err(EINVAL);
    }
    if flags & (CLONE_THREAD | CLONE_SIGHAND | CLONE_VM) != 0 && !is_alone(cx) {
        return Err(EINVAL);
    }
    let new = fresh(cx, flags)?;
    if flags & CLONE_FS != 0 {
        let fs = cx.fs().fork();
        if flags & CLONE_NEWNS != 0 {
            fs.unshare_ns(new_mounts(cx, &new.cred)?, &new.cred.user_ns)?;
        }
        cx.task.set_fs(fs);
    }
    if flags & CLONE_FILES != 0 {
        crate::task::lanes::slots::end_read_slots(&cx.mm());
        let own = cx.files().fork(&cx.cred())?;
        cx.task.set_files(own);
    }
    if flags & (CLONE_NEWIPC | CLONE_SYSVSEM) != 0 {
        cx.ns().ipc.process_ended(cx.group.tgid);
    }
    cx.task.set_ns(new.proxy);
    if flags & CLONE_NEWUSER != 0 {
        cx.task.commit_cred(Credentials::clone(&new.cred));
    }
    Ok(())
}

fn is_alone(cx: &Context) -> bool {
    cx.kernel.tasks.lock().threads(cx.group.tgid).len() == 1
}

/// What setns(2) has gathered; installed at once, or not at all.
struct Set {
    cred: Arc<Credentials>,
    proxy: NsProxy,
    mnt: Option<Arc<MountNamespace>>,
    user: bool,
}

impl Set {
    /// Rights over the namespace, and in the own user namespace.
    fn admin(&self, cx: &Context, user: &UserNs) -> Result<()> {
        if cx.cred().has_in(user, Caps::SYS_ADMIN) && self.cred.has_own(Caps::SYS_ADMIN) {
            Ok(())
        } else {
            Err(EPERM)
        }
    }
    fn add(&mut self, cx: &Context, ns: &NsRef) -> Result<()> {
        match ns {
            NsRef::User(u) => {
                let cred = cx.cred();
                // Nobody enters the own again: it would give all capabilities back.
                if *u == cred.user_ns || !is_alone(cx) || Arc::strong_count(&cx.fs()) > 2 {
                    return Err(EINVAL);
                }
                if !cred.has_in(u, Caps::SYS_ADMIN) {
                    return Err(EPERM);
                }
                self.cred = Arc::new(u.enter(&cred));
                self.user = true;
            }
            NsRef::Mnt(m) => {
                let may = cx.cred().has_in(m.user(), Caps::SYS_ADMIN)
                    && self.cred.has_own(Caps::SYS_CHROOT)
                    && self.cred.has_own(Caps::SYS_ADMIN);
                if !may {
                    return Err(EPERM);
                }
                // The context is not shared with others: ours and the task's own reference.
                if Arc::strong_count(&cx.fs()) > 2 {
                    return Err(EINVAL);
                }
                self.mnt = Some(m.clone());
            }
            NsRef::Uts(n) => {
                self.admin(cx, &n.user)?;
                self.proxy.uts = n.clone();
            }
            NsRef::Ipc(n) => {
                self.admin(cx, &n.user)?;
                self.proxy.ipc = n.clone();
            }
            NsRef::Net(n) => {
                self.admin(cx, &n.user)?;
                self.proxy.net = n.clone();
            }
            NsRef::Pid(n) => {
                self.admin(cx, &n.user)?;
                // Only downwards.
                if !n.is_below(&cx.pid.ns) {
                    return Err(EINVAL);
                }
                self.proxy.pid_for_children = n.clone();
            }
            NsRef::Cgroup(n) => {
                self.admin(cx, &n.user)?;
                self.proxy.cgroup = n.clone();
            }
            NsRef::Time(n) => {
                // The memory has one time.
                if !is_alone(cx) {
                    return Err(EUSERS);
                }
                self.admin(cx, &n.user)?;
                self.proxy.time = n.clone();
                self.proxy.time_for_children = n.clone();
            }
        }
        Ok(())
    }
}

/// `setns(2)`, with what the descriptor stands for.
pub enum Target {
    One(NsRef),
    /// A pidfd: those of the process that the flags name.
    Of(Arc<Task>),
}

pub fn setns(cx: &Context, target: &Target, flags: u32) -> Result<()> {
    let mut set = Set {
        cred: cx.cred(),
        proxy: NsProxy::clone(&cx.ns()),
        mnt: None,
        user: false,
    };
    match target {
        Target::One(n) => {
            if flags != 0 && flags != n.clone_flag() {
                return Err(EINVAL);
            }
            set.add(cx, n)?;
        }
        Target::Of(t) => {
            if flags == 0 || flags & !ALL != 0 {
                return Err(EINVAL);
            }
            may_access(cx, t, By::Real)?;
            let ns = t.ns();
            let all = [
                NsRef::User(t.cred().user_ns.clone()),
                NsRef::Mnt(t.fs().ns()),
                NsRef::Uts(ns.uts.clone()),
                NsRef::Ipc(ns.ipc.clone()),
                NsRef::Pid(t.pid.ns.clone()),
                NsRef::Cgroup(ns.cgroup.clone()),
                NsRef::Net(ns.net.clone()),
                NsRef::Time(ns.time.clone()),
            ];
            for n in all.iter().filter(|n| n.clone_flag() & flags != 0) {
                set.add(cx, n)?;
            }
        }
    }
    if !Arc::ptr_eq(&set.proxy.time, &cx.ns().time) {
        super::time::enter(cx, &set.proxy.time)?;
    }
    if let Some(m) = set.mnt {
        cx.fs().set_ns(&m);
    }
    if !Arc::ptr_eq(&set.proxy.ipc, &cx.ns().ipc) {
        cx.ns().ipc.process_ended(cx.group.tgid);
    }
    cx.task.set_ns(Arc::new(set.proxy));
    if set.user {
        cx.task.commit_cred(Credentials::clone(&set.cred));
    }
    Ok(())
}
