//! `/proc/sys`: the settings of the namespaces that its reader is in (`man 5 proc_sys`).

mod net;
mod sysv;

use super::Text;
use super::global::text;
use crate::Kernel;
use crate::container::Container;
use crate::ns::uts::{RELEASE, VERSION};
use crate::ns::{IpcNs, NsProxy, UtsNs};
use crate::task::{seccomp, task_of};
use ipc::mqueue::Setting;
use parking_lot::RwLock;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynFile, DynNode, StaticDir};
use vfs::mode::Want;
use vfs::ucounts::Kind;
use vfs::userns::UserNs;
use vfs::vfs::Protections;
use vfs::{Caller, Perm};

/// Everybody reads a setting; who may write it does so whatever capabilities there are, or are not
/// (`sysctl_perm`).
fn permission(want: Want, may_write: bool) -> abi::Result<()> {
    match want == Want::READ || may_write && !want.contains(Want::EXEC) {
        true => Ok(()),
        false => Err(abi::errno::EACCES),
    }
}

/// A setting of a namespace belongs to the root of the user namespace that owns it.
pub(super) fn owned(user: &vfs::userns::UserNs) -> Perm {
    let id = user.root_uid();
    Perm {
        mode: 0o644,
        uid: if id == vfs::userns::INVALID { 0 } else { id },
        gid: 0,
    }
}

/// `fs.protected_*`: for the machine's root, whatever its capabilities (`sysctl_perm`).
struct Protected {
    kernel: Weak<Kernel>,
    level: fn(&Protections) -> &AtomicU8,
    most: u8,
}

impl DynFile for Protected {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o644,
            uid: 0,
            gid: 0,
        }
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> abi::Result<()> {
        permission(want, cx.cred.euid == 0)
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let k = self.kernel.upgrade().ok_or(abi::errno::ENOENT)?;
        let level = (self.level)(&k.vfs.protections).load(Ordering::Relaxed);
        Ok(format!("{level}\n").into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        let text = std::str::from_utf8(data).map_err(|_| abi::errno::EINVAL)?;
        let level = text.trim().parse().ok().filter(|n| *n <= self.most);
        let k = self.kernel.upgrade().ok_or(abi::errno::ENOENT)?;
        let level = level.ok_or(abi::errno::EINVAL)?;
        (self.level)(&k.vfs.protections).store(level, Ordering::Relaxed);
        Ok(data.len())
    }
}

/// The host name and the domain name, writable.
struct Hostname(Arc<UtsNs>, Name, Weak<Kernel>);

#[derive(Clone, Copy)]
enum Name {
    Host,
    Domain,
}

impl DynFile for Hostname {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o644,
            uid: 0,
            gid: 0,
        }
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let u = self.0.get();
        let mut n = match self.1 {
            Name::Host => u.nodename,
            Name::Domain => u.domainname,
        };
        n.push(b'\n');
        Ok(n)
    }
    fn write(&self, file: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        if !file.cred.has_in(&self.0.user, vfs::Caps::SYS_ADMIN) {
            return Err(abi::errno::EPERM);
        }
        let line = data.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = line[..line.len().min(64)].to_vec();
        let kernel = self.2.upgrade().ok_or(abi::errno::ENOENT)?;
        self.0.change(&kernel, |u| match self.1 {
            Name::Host => u.nodename = line,
            Name::Domain => u.domainname = line,
        });
        Ok(data.len())
    }
}

/// The directory itself.
pub struct Sysctl(pub Weak<Kernel>);

impl DynDir for Sysctl {
    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> abi::Result<DynNode> {
        let k = self.0.upgrade().ok_or(abi::errno::ENOENT)?;
        let task = task_of(cx.task);
        let ns = task.map_or_else(|| k.initial.clone(), |t| t.ns());
        let container = task.map_or(&k.root, |t| &t.group.container);
        sysctl(&k, &ns, container).lookup(cx, name)
    }
    fn list(&self, file: &File) -> abi::Result<Vec<DynEntry>> {
        let k = self.0.upgrade().ok_or(abi::errno::ENOENT)?;
        sysctl(&k, &k.initial, &k.root).list(file)
    }
    fn subdirs(&self) -> u32 {
        5
    }
}

/// A limit of every user, of the sandbox's initial user namespace.
struct UserLimit(Kind);

/// A setting of a container, and what it may be.
struct Of(Arc<AtomicI64>, std::ops::RangeInclusive<i32>);

impl DynFile for Of {
    fn perm(&self) -> Perm {
        SETTING
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(format!("{}\n", self.0.load(Ordering::Relaxed)).into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        let n = integer(data)?;
        if !self.1.contains(&n) {
            return Err(abi::errno::EINVAL);
        }
        self.0.store(n.into(), Ordering::Relaxed);
        Ok(data.len())
    }
}

/// `kernel.core_pattern`, at most 127 bytes (`CORENAME_MAX_SIZE`).
struct CorePattern(Arc<RwLock<Vec<u8>>>);

impl DynFile for CorePattern {
    fn perm(&self) -> Perm {
        SETTING
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> abi::Result<()> {
        permission(want, cx.cred.euid == 0)
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok([&self.0.read()[..], b"\n"].concat())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        let line = data.split(|b| matches!(b, 0 | b'\n')).next();
        let line = line.unwrap_or_default();
        if line.first() == Some(&b'@') {
            // (`check_coredump_socket`: a socket of the machine's.)
            return Err(abi::errno::EINVAL);
        }
        *self.0.write() = line[..line.len().min(127)].to_vec();
        Ok(data.len())
    }
}

/// A setting that is as it is.
struct Constant {
    text: Vec<u8>,
    /// Whether Linux has one that can be set: here to what it is.
    has_writer: bool,
}

impl Constant {
    /// One that nobody may write, on Linux either.
    fn new(text: impl Into<Vec<u8>>) -> Constant {
        Constant {
            text: text.into(),
            has_writer: false,
        }
    }
    fn kept(text: impl Into<Vec<u8>>) -> Constant {
        Constant {
            has_writer: true,
            ..Constant::new(text)
        }
    }
}

impl DynFile for Constant {
    fn perm(&self) -> Perm {
        Perm {
            mode: if self.has_writer { 0o644 } else { 0o444 },
            uid: 0,
            gid: 0,
        }
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> abi::Result<()> {
        permission(want, self.has_writer && cx.cred.euid == 0)
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(self.text.clone())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
            let all = text.split(|b| b.is_ascii_whitespace() || *b == 0);
            all.filter(|w| !w.is_empty())
        }
        match words(data).eq(words(&self.text)) {
            true => Ok(data.len()),
            false => Err(abi::errno::EINVAL),
        }
    }
}

/// A setting that the kernel keeps in one place.
struct StaticSetting(&'static AtomicI64);

/// The same, where not every number will do.
#[derive(Clone, Copy)]
struct Whole {
    value: &'static AtomicI64,
    /// What becomes of a number that is written.
    takes: fn(u32) -> Option<i64>,
    /// Opened by a container that joined the sandbox: others have what it would take away.
    only_raises: bool,
}

impl Whole {
    fn new(value: &'static AtomicI64, takes: fn(u32) -> Option<i64>) -> Whole {
        Whole {
            value,
            takes,
            only_raises: false,
        }
    }
}

/// Of `fs.nr_open`.
fn open_limit(n: u32) -> Option<i64> {
    (64..=0x7fff_ffc0).contains(&n).then_some(n.into())
}

/// Of `vm.max_map_count`.
fn map_count(n: u32) -> Option<i64> {
    i32::try_from(n).ok().map(i64::from)
}

/// Of `fs.pipe-max-size`.
fn pipe_size(n: u32) -> Option<i64> {
    ipc::pipe::rounded(n).and_then(|n| n.try_into().ok())
}

const SETTING: Perm = Perm {
    mode: 0o644,
    uid: 0,
    gid: 0,
};

/// A whole number that is not negative, from what was written to a setting.
fn number(data: &[u8]) -> abi::Result<i64> {
    u32::try_from(integer(data)?)
        .map(i64::from)
        .map_err(|_| abi::errno::EINVAL)
}

/// The same, where it may be negative.
fn integer(data: &[u8]) -> abi::Result<i32> {
    let text = std::str::from_utf8(data).map_err(|_| abi::errno::EINVAL)?;
    let n = number_of(text.trim()).and_then(|n| i32::try_from(n).ok());
    n.ok_or(abi::errno::EINVAL)
}

/// A number as programs write it: decimal, or as C has them from 0 on (`proc_get_long`).
pub(super) fn number_of(word: &str) -> Option<i64> {
    let (sign, digits) = word.strip_prefix('-').map_or((1, word), |d| (-1, d));
    let is_plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    if !is_plain || !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let hex = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let n = match (hex, digits.strip_prefix('0')) {
        (Some(h), _) => i64::from_str_radix(h, 16),
        (None, Some(o)) if !o.is_empty() => i64::from_str_radix(o, 8),
        _ => digits.parse(),
    };
    n.ok().map(|n| sign * n)
}

impl DynFile for UserLimit {
    fn perm(&self) -> Perm {
        SETTING
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let n = UserNs::default().limits().get(self.0);
        Ok(format!("{n}\n").into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        UserNs::default().limits().set(self.0, number(data)?);
        Ok(data.len())
    }
}

impl DynFile for StaticSetting {
    fn perm(&self) -> Perm {
        SETTING
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(format!("{}\n", self.0.load(Ordering::Relaxed)).into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        self.0.store(number(data)?, Ordering::Relaxed);
        Ok(data.len())
    }
}

impl DynFile for Whole {
    fn perm(&self) -> Perm {
        SETTING
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> abi::Result<()> {
        permission(want, cx.cred.euid == 0)
    }
    fn bound(&self, cx: &Caller<'_>) -> abi::Result<Option<Arc<dyn DynFile>>> {
        let joined =
            task_of(cx.task).is_some_and(|t| !Arc::ptr_eq(&t.group.container, &t.kernel.root));
        Ok(joined.then(|| {
            let only_raises = true;
            Arc::new(Whole {
                only_raises,
                ..*self
            }) as Arc<dyn DynFile>
        }))
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(format!("{}\n", self.value.load(Ordering::Relaxed)).into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        let text = std::str::from_utf8(data).map_err(|_| abi::errno::EINVAL)?;
        let n = text.trim().parse().ok().and_then(self.takes);
        let n = n.ok_or(abi::errno::EINVAL)?;
        if !self.only_raises {
            self.value.store(n, Ordering::Relaxed);
        } else if self.value.fetch_max(n, Ordering::Relaxed) > n {
            return Err(abi::errno::EPERM);
        }
        Ok(data.len())
    }
}

fn uuid(b: &[u8; 16]) -> String {
    let h: String = b.iter().fold(String::new(), |mut s, x| {
        let _ = write!(s, "{x:02x}");
        s
    });
    format!(
        "{}-{}-4{}-a{}-{}\n",
        &h[..8],
        &h[8..12],
        &h[13..16],
        &h[17..20],
        &h[20..]
    )
}

/// `kernel.seccomp.actions_logged`, as what it is not. (There is no log: as a kernel without
/// audit.)
struct LoggedActions(Arc<AtomicI64>);

/// Names of seccomp's actions, of which those with a bit in `set` are told.
fn action_names(set: i64) -> String {
    let named = seccomp::ACTIONS.iter().enumerate();
    let told = named.filter(|(bit, _)| set >> bit & 1 != 0);
    let names: Vec<&str> = told.map(|(_, (_, name))| *name).collect();
    names.join(" ") + "\n"
}

impl DynFile for LoggedActions {
    fn perm(&self) -> Perm {
        SETTING
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let not = self.0.load(Ordering::Relaxed);
        Ok(action_names(seccomp::LOGGED & !not).into_bytes())
    }
    fn write(&self, file: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        if !file.cred.has_in(&UserNs::default(), vfs::Caps::SYS_ADMIN) {
            return Err(abi::errno::EPERM);
        }
        let text = std::str::from_utf8(data).map_err(|_| abi::errno::EINVAL)?;
        let mut set = 0;
        for word in text.split_ascii_whitespace() {
            let bit = seccomp::ACTIONS.iter().position(|(_, name)| *name == word);
            set |= 1 << bit.ok_or(abi::errno::EINVAL)?;
        }
        if set & !seccomp::LOGGED != 0 {
            return Err(abi::errno::EINVAL);
        }
        self.0.store(seccomp::LOGGED & !set, Ordering::Relaxed);
        Ok(data.len())
    }
}

/// A setting of `kernel.keys`.
struct KeySetting(Arc<keys::Limits>, keys::Setting);

impl DynFile for KeySetting {
    fn perm(&self) -> Perm {
        SETTING
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(format!("{}\n", self.0.get(self.1)).into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        let n = integer(data)?;
        if i64::from(n) < self.1.least() {
            return Err(abi::errno::EINVAL);
        }
        self.0.set(self.1, n.into());
        Ok(data.len())
    }
}

fn key_settings(c: &Container) -> StaticDir {
    let add =
        |dir: StaticDir, s: keys::Setting| dir.file(s.name(), KeySetting(c.keys.limits.clone(), s));
    keys::Setting::ALL.into_iter().fold(StaticDir::new(), add)
}

/// `vm.drop_caches`: names that nobody uses are forgotten (2, 3). Pages are the host's.
struct DropCaches;

impl DynFile for DropCaches {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o200,
            uid: 0,
            gid: 0,
        }
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> abi::Result<()> {
        if want == Want::WRITE && cx.cred.euid == 0 {
            Ok(())
        } else {
            Err(abi::errno::EACCES)
        }
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(b"0\n".to_vec())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        let what = number(data)?;
        if !(1..=4).contains(&what) {
            return Err(abi::errno::EINVAL);
        }
        if what & 2 != 0 {
            vfs::dentry::shrink_all();
        }
        Ok(data.len())
    }
}

fn sysctl(k: &Arc<Kernel>, ns: &NsProxy, c: &Container) -> StaticDir {
    let [of_uts, of_net, of_ipc] = [ns.uts.id.ino, ns.net.id.ino, ns.ipc.id.ino].map(u64::from);
    StaticDir::new()
        .dir("fs", fs(k, ns, c).with_identity(of_ipc))
        .dir("kernel", kernel(k, ns, c).with_identity(of_uts))
        .dir(
            "net",
            net::settings(&ns.net, &k.initial.net).with_identity(of_net),
        )
        .dir("user", user())
        .dir("vm", vm())
}

/// Settings of `kernel.*` that are as Linux has them at first, and cannot be changed.
fn constants() -> StaticDir {
    const ALL: [(&str, &str); 14] = [
        ("auto_msgmni", "0\n"),
        ("core_file_note_size_limit", "4194304\n"),
        ("core_pipe_limit", "0\n"),
        ("core_sort_vma", "0\n"),
        ("ctrl-alt-del", "0\n"),
        ("panic", "0\n"),
        ("panic_on_oops", "0\n"),
        ("print-fatal-signals", "0\n"),
        ("printk", "4\t4\t1\t7\n"),
        ("sched_deadline_period_max_us", "4194304\n"),
        ("sched_deadline_period_min_us", "100\n"),
        ("sched_rr_timeslice_ms", "100\n"),
        ("sched_rt_period_us", "1000000\n"),
        ("sched_rt_runtime_us", "950000\n"),
    ];
    let dir = StaticDir::new().file("tainted", Constant::kept("0\n"));
    ALL.into_iter()
        .fold(dir, |d, (name, text)| d.file(name, Constant::kept(text)))
}

/// `kernel.*`.
fn kernel(k: &Arc<Kernel>, ns: &NsProxy, c: &Container) -> StaticDir {
    let boot_id = uuid(&k.boot_id);
    let random = StaticDir::new()
        .file("boot_id", Constant::new(boot_id))
        .file(
            "uuid",
            Text(|| {
                let mut b = [0u8; 16];
                hostcall::time::random(&mut b);
                uuid(&b).into_bytes()
            }),
        )
        .file("entropy_avail", Constant::new("256\n"))
        .file("poolsize", Constant::new("256\n"));
    let name = |n| Hostname(ns.uts.clone(), n, Arc::downgrade(k));
    let dir = sysv::settings(constants(), &ns.ipc);
    let core = &c.core;
    dir.file("cap_last_cap", Constant::new("40\n"))
        .file("core_pattern", CorePattern(c.core.pattern.clone()))
        .file(
            "core_uses_pid",
            Of(core.uses_pid.clone(), i32::MIN..=i32::MAX),
        )
        .file("hostname", name(Name::Host))
        .file("domainname", name(Name::Domain))
        .file("io_uring_disabled", Of(c.uring_disabled.clone(), 0..=2))
        .file("io_uring_group", Of(c.uring_group.clone(), -1..=i32::MAX))
        .dir("keys", key_settings(c))
        .file("ngroups_max", Constant::new("65536\n"))
        .file("osrelease", Constant::new(format!("{RELEASE}\n")))
        .file("ostype", Constant::new("Linux\n"))
        .file("overflowgid", Constant::kept("65534\n"))
        .file("overflowuid", Constant::kept("65534\n"))
        .file(
            "pid_max",
            Constant::kept(format!("{}\n", crate::task::list::PID_MAX)),
        )
        .dir(
            "pty",
            StaticDir::new()
                .file("max", Constant::kept("4096\n"))
                .file("reserve", Constant::kept("1024\n")),
        )
        .dir("random", random)
        .file("randomize_va_space", Constant::kept("2\n"))
        .dir(
            "seccomp",
            StaticDir::new()
                .file("actions_avail", Constant::new(action_names(-1)))
                .file(
                    "actions_logged",
                    LoggedActions(c.seccomp_not_logged.clone()),
                ),
        )
        .file("threads-max", Constant::kept(format!("{}\n", k.tasks_max)))
        .file("version", Constant::new(format!("{VERSION}\n")))
}

/// `fs.*`.
fn fs(k: &Arc<Kernel>, ns: &NsProxy, c: &Container) -> StaticDir {
    let protected = |level, most| Protected {
        kernel: Arc::downgrade(k),
        level,
        most,
    };
    let requests = c.aio_requests.clone();
    StaticDir::new()
        .file("aio-max-nr", UserLimit(Kind::AioRequests))
        .file(
            "aio-nr",
            Text(move || format!("{}\n", requests.load(Ordering::Relaxed)).into_bytes()),
        )
        .file("protected_fifos", protected(|p| &p.fifos, 2))
        .file("protected_hardlinks", protected(|p| &p.hardlinks, 1))
        .file("protected_regular", protected(|p| &p.regular, 2))
        .file("protected_symlinks", protected(|p| &p.symlinks, 1))
        .file("file-max", Constant::kept("1048576\n"))
        .file(
            "file-nr",
            text(k, |_| format!("{}\t0\t1048576\n", vfs::file::open_files())),
        )
        .file(
            "dir-notify-enable",
            StaticSetting(&vfs::watch::dnotify::ENABLED),
        )
        .file("lease-break-time", StaticSetting(&vfs::leases::BREAK_TIME))
        .file("leases-enable", StaticSetting(&vfs::leases::ENABLED))
        .file("nr_open", Whole::new(&vfs::fd_table::NR_OPEN, open_limit))
        .file("overflowgid", Constant::kept("65534\n"))
        .file("overflowuid", Constant::kept("65534\n"))
        .file(
            "pipe-max-size",
            Whole::new(&ipc::pipe::MAX_CAPACITY, pipe_size),
        )
        .file(
            "pipe-user-pages-soft",
            StaticSetting(&ipc::pipe::USER_PAGES_SOFT),
        )
        .file(
            "pipe-user-pages-hard",
            StaticSetting(&ipc::pipe::USER_PAGES_HARD),
        )
        .dir(
            "epoll",
            StaticDir::new().file("max_user_watches", UserLimit(Kind::EpollWatches)),
        )
        .dir(
            "fanotify",
            StaticDir::new()
                .file(
                    "max_queued_events",
                    StaticSetting(&ipc::fanotify::MAX_QUEUED),
                )
                .file("max_user_groups", UserLimit(Kind::FanotifyGroups))
                .file("max_user_marks", UserLimit(Kind::FanotifyMarks)),
        )
        .dir(
            "inotify",
            StaticDir::new()
                .file("max_queued_events", Constant::kept("16384\n"))
                .file("max_user_instances", UserLimit(Kind::InotifyInstances))
                .file("max_user_watches", UserLimit(Kind::InotifyWatches)),
        )
        .dir("mqueue", mqueue(&ns.ipc))
}

/// `fs.mqueue.*`: those of an ipc namespace.
fn mqueue(ns: &Arc<IpcNs>) -> StaticDir {
    let file = |what| MessageQueues {
        ns: ns.clone(),
        what,
    };
    let identity = u64::from(ns.id.ino);
    Setting::ALL
        .into_iter()
        .fold(StaticDir::new(), |d, (name, what)| d.file(name, file(what)))
        .with_identity(identity)
}

struct MessageQueues {
    ns: Arc<IpcNs>,
    what: Setting,
}

impl DynFile for MessageQueues {
    fn perm(&self) -> Perm {
        owned(&self.ns.user)
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> abi::Result<()> {
        // For the namespace's root, whatever its capabilities (`mq_permissions`).
        permission(want, cx.cred.euid == self.perm().uid)
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let n = self.ns.mqueue.limits.get(self.what);
        Ok(format!("{}\n", n as i32).into_bytes())
    }
    fn write(&self, _: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        let n = integer(data)?;
        self.ns.mqueue.limits.set(self.what, n.into())?;
        Ok(data.len())
    }
    fn identity(&self) -> u64 {
        u64::from(self.ns.id.ino)
    }
}

/// `user.*`.
fn user() -> StaticDir {
    StaticDir::new()
        .file("max_cgroup_namespaces", UserLimit(Kind::CgroupNamespaces))
        .file("max_time_namespaces", UserLimit(Kind::TimeNamespaces))
        .file("max_fanotify_groups", UserLimit(Kind::FanotifyGroups))
        .file("max_fanotify_marks", UserLimit(Kind::FanotifyMarks))
        .file("max_inotify_instances", UserLimit(Kind::InotifyInstances))
        .file("max_inotify_watches", UserLimit(Kind::InotifyWatches))
        .file("max_ipc_namespaces", UserLimit(Kind::IpcNamespaces))
        .file("max_mnt_namespaces", UserLimit(Kind::MntNamespaces))
        .file("max_net_namespaces", UserLimit(Kind::NetNamespaces))
        .file("max_pid_namespaces", UserLimit(Kind::PidNamespaces))
        .file("max_user_namespaces", UserLimit(Kind::UserNamespaces))
        .file("max_uts_namespaces", UserLimit(Kind::UtsNamespaces))
}

/// `vm.*`.
fn vm() -> StaticDir {
    StaticDir::new()
        .file("drop_caches", DropCaches)
        .file("max_map_count", Whole::new(&mm::MAX_MAP_COUNT, map_count))
        .file("mmap_min_addr", Constant::kept("65536\n"))
        .file("overcommit_memory", Constant::kept("0\n"))
        .file("oom_dump_tasks", Constant::kept("1\n"))
        .file("oom_kill_allocating_task", Constant::kept("0\n"))
        .file("overcommit_kbytes", Constant::kept("0\n"))
        .file("overcommit_ratio", Constant::kept("50\n"))
        .file("page-cluster", Constant::kept("3\n"))
        .file("panic_on_oom", Constant::kept("0\n"))
        .file("swappiness", Constant::kept("60\n"))
        .file("vfs_cache_pressure", Constant::kept("100\n"))
}
