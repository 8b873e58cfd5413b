//! A file system while it is configured: fsopen(2), fspick(2), fsconfig(2) (Linux's fs/fsopen.c and
//! fs/fs_context.c).
//!
//! A [`FsConfig`] goes through phases; what is not for the phase gives `EBUSY`. What the commands
//! found wrong is read from its descriptor, a message a read.
//!
//! Invariants: the state's lock is a leaf, held by no call that waits: a command that makes or
//! changes the file system first sets a phase in which all others are refused. Memory is bounded:
//! a parameter replaces an earlier one of its name, but for the layers of overlay, of which there
//! are [`LAYERS_MAX`] at most, and the log keeps the last [`LOG`] messages.

use crate::caller::Caller;
use crate::cred::{Caps, Credentials};
use crate::dentry::{Dentry, ReadOnly, SuperBlock};
use crate::file::{File, FileOps, Sink};
use crate::mount::{MountFlags, Path};
use crate::params::{Param, Params, Value};
use crate::ucounts::Charge;
use crate::vfs::{FsType, Vfs, split_subtype};
use crate::{Stat, namespace::Detached};
use abi::Result;
use abi::errno::{EBUSY, EINVAL, EMSGSIZE, ENODATA, ENOMEM, EPERM};
use abi::linux::{MS_DIRSYNC, MS_LAZYTIME, MS_MANDLOCK, MS_RDONLY, MS_SYNCHRONOUS};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages that are kept.
const LOG: usize = 8;
/// Layers of an overlay (`OVL_MAX_STACK`).
const LAYERS_MAX: usize = 500;
/// What one takes of the kernel's memory, bytes; and each layer beside its text.
const SIZE: usize = 16 << 10;
const LAYER: usize = 256;

/// What a command of fsconfig(2) is about (`enum fs_context_phase`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    CreateParams,
    Creating,
    AwaitingMount,
    /// Mounted: the next command begins a change.
    AwaitingReconf,
    ReconfParams,
    Reconfiguring,
    Failed,
}

/// Whether a file system that is there already may be taken (`FSCONFIG_CMD_CREATE_EXCL`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exclusive {
    No,
    Yes,
}

struct State {
    phase: Phase,
    params: Params,
    source: Option<String>,
    /// `MS_RDONLY` and what is like it, and which of them were told.
    flags: u32,
    told: u32,
    /// Of the layers among the parameters.
    layers: Vec<Charge>,
    root: Option<Arc<Dentry>>,
}

/// See the module.
pub struct FsConfig {
    fs_type: Option<Arc<dyn FsType>>,
    name: String,
    /// Its opener's: the file system is made with them.
    cred: Arc<Credentials>,
    state: Mutex<State>,
    log: Mutex<VecDeque<String>>,
    _charge: Charge,
}

/// The flags that every file system knows: which they set, which they clear
/// (`vfs_parse_sb_flag`).
fn common(key: &str) -> Option<(u32, u32)> {
    Some(match key {
        "dirsync" => (MS_DIRSYNC, 0),
        "lazytime" => (MS_LAZYTIME, 0),
        "mand" => (MS_MANDLOCK, 0),
        "ro" => (MS_RDONLY, 0),
        "sync" => (MS_SYNCHRONOUS, 0),
        "async" => (0, MS_SYNCHRONOUS),
        "nolazytime" => (0, MS_LAZYTIME),
        "nomand" => (0, MS_MANDLOCK),
        "rw" => (0, MS_RDONLY),
        _ => return None,
    })
}

/// File systems that the administrator of a user namespace may mount (`FS_USERNS_MOUNT`).
const USER_MOUNTABLE: [&str; 9] = [
    "cgroup2", "devpts", "fuse", "mqueue", "overlay", "proc", "ramfs", "sysfs", "tmpfs",
];

/// Whether who has these rights may mount a type (`mount_capable`); `owner` is the user namespace
/// of who asked for it.
pub(super) fn may_mount_type(
    name: &str,
    cred: &Credentials,
    owner: &crate::userns::UserNs,
) -> Result<()> {
    let may = if USER_MOUNTABLE.contains(&split_subtype(name).0) {
        cred.has_in(owner, Caps::SYS_ADMIN)
    } else {
        cred.has(Caps::SYS_ADMIN)
    };
    if may { Ok(()) } else { Err(EPERM) }
}

/// A new file system is its mounter's user namespace's, which may change it; but one that shows
/// what belongs to all is the initial one's, whoever mounts it (`fc->global`).
pub(super) fn set_owner(sb: &SuperBlock, cred: &Credentials) {
    if !matches!(sb.fs.name(), "cgroup2" | "sysfs") {
        sb.set_owner(&cred.user_ns);
    }
}

impl FsConfig {
    /// For a file system to be made.
    pub fn create(vfs: &Vfs, name: &str, cred: &Arc<Credentials>) -> Result<FsConfig> {
        let fs_type = Some(vfs.fs_type(name)?);
        Self::new(fs_type, name, cred, Phase::CreateParams, None)
    }
    /// For the one that is mounted at `at`.
    pub(super) fn pick(vfs: &Vfs, at: &Path, cred: &Arc<Credentials>) -> Result<FsConfig> {
        let name = at.mnt.sb().fs.name();
        let (fs_type, root) = (vfs.fs_type(name).ok(), Some(at.mnt.root.clone()));
        Self::new(fs_type, name, cred, Phase::ReconfParams, root)
    }
    fn new(
        fs_type: Option<Arc<dyn FsType>>,
        name: &str,
        cred: &Arc<Credentials>,
        phase: Phase,
        root: Option<Arc<Dentry>>,
    ) -> Result<FsConfig> {
        Ok(FsConfig {
            _charge: cred.kmem(SIZE, ENOMEM)?,
            fs_type,
            name: name.to_owned(),
            cred: cred.clone(),
            state: Mutex::new(State {
                phase,
                params: Params::default(),
                source: None,
                flags: 0,
                told: 0,
                layers: Vec::new(),
                root,
            }),
            log: Mutex::default(),
        })
    }
    /// The name of its type.
    #[must_use]
    pub fn type_name(&self) -> &str {
        &self.name
    }
    /// Whose parameters' values a [`Caller`] with its opener's rights understands.
    fn opener<'a>(&'a self, caller: &Caller<'a>) -> Caller<'a> {
        Caller {
            cred: &self.cred,
            task: caller.task,
        }
    }
    /// `e`, with the reason in the log.
    fn fails(&self, e: abi::Errno, why: &str) -> abi::Errno {
        let mut log = self.log.lock();
        if log.len() == LOG {
            log.pop_front();
        }
        log.push_back(format!("e {why}\n"));
        e
    }

    /// A parameter (`vfs_parse_fs_param`).
    pub fn set(&self, caller: &Caller<'_>, p: Param) -> Result<()> {
        self.begin_change();
        let mut s = self.state.lock();
        if !matches!(s.phase, Phase::CreateParams | Phase::ReconfParams) {
            return Err(EBUSY);
        }
        if let Some((set, clear)) = common(&p.key) {
            s.flags = (s.flags & !clear) | set;
            s.told |= set | clear;
            return Ok(());
        }
        drop(s);
        let known = self
            .fs_type
            .as_ref()
            .filter(|t| t.parameters().contains(&p.key.as_str()));
        if let Some(t) = known {
            // Without the lock: paths are walked.
            let key = p.key.clone();
            let p = t.parse(&self.opener(caller), p).map_err(|e| match e {
                EINVAL => self.fails(e, &format!("{}: Bad value for '{key}'", self.name)),
                e => e,
            })?;
            return self.keep(p);
        }
        if p.key == "source" {
            return self.set_source(p);
        }
        if self.fs_type.as_ref().is_some_and(|t| t.ignores_unknown()) {
            return Ok(());
        }
        Err(self.fails(
            EINVAL,
            &format!("{}: Unknown parameter '{}'", self.name, p.key),
        ))
    }
    fn keep(&self, p: Param) -> Result<()> {
        let mut s = self.state.lock();
        if !matches!(s.phase, Phase::CreateParams | Phase::ReconfParams) {
            return Err(EBUSY);
        }
        if p.key.ends_with('+') {
            if s.params.0.iter().filter(|o| o.key == p.key).count() >= LAYERS_MAX {
                drop(s);
                let why = format!(
                    "{}: too many lower directories, limit is {LAYERS_MAX}",
                    self.name
                );
                return Err(self.fails(EINVAL, &why));
            }
            let layer = self.cred.kmem(LAYER + p.word().len(), ENOMEM)?;
            s.layers.push(layer);
        } else {
            s.params.0.retain(|o| o.key != p.key);
        }
        s.params.0.push(p);
        Ok(())
    }
    fn set_source(&self, p: Param) -> Result<()> {
        let Value::Text(text) = p.value else {
            return Err(self.fails(EINVAL, "Non-string source"));
        };
        let mut s = self.state.lock();
        if s.source.is_some() {
            drop(s);
            return Err(self.fails(EINVAL, "Multiple sources"));
        }
        s.source = Some(text);
        Ok(())
    }

    /// What was mounted is to be changed (`finish_clean_context`).
    fn begin_change(&self) {
        let mut s = self.state.lock();
        if s.phase == Phase::AwaitingReconf {
            s.phase = Phase::ReconfParams;
        }
    }
    /// Takes what was configured, if this is the phase, for a command that makes something of it.
    fn begin(&self, from: Phase, to: Phase) -> Result<(Params, u32, u32)> {
        let mut s = self.state.lock();
        if s.phase != from {
            return Err(EBUSY);
        }
        s.phase = to;
        let params = std::mem::take(&mut s.params);
        Ok((params, s.flags, s.told))
    }
    /// The end of a command that began: what it made is looked at with the lock.
    fn end<T>(&self, r: Result<T>, then: impl FnOnce(&mut State, T)) -> Result<()> {
        let mut s = self.state.lock();
        match r {
            Ok(t) => {
                then(&mut s, t);
                Ok(())
            }
            Err(e) => {
                s.phase = Phase::Failed;
                Err(e)
            }
        }
    }

    /// `FSCONFIG_CMD_CREATE` (`vfs_cmd_create`).
    pub fn make(&self, vfs: &Arc<Vfs>, caller: &Caller<'_>, exclusive: Exclusive) -> Result<()> {
        if self.state.lock().phase != Phase::CreateParams {
            return Err(EBUSY);
        }
        may_mount_type(&self.name, caller.cred, &self.cred.user_ns)?;
        let t = self.fs_type.as_ref().ok_or(EBUSY)?;
        let (params, flags, _) = self.begin(Phase::CreateParams, Phase::Creating)?;
        let source = self.state.lock().source.clone();
        let made = t.mount(
            vfs,
            &self.opener(caller),
            source.as_deref().unwrap_or(""),
            &params,
        );
        let made = made.and_then(|root| {
            let sb = root.sb();
            if sb.is_mounted() {
                if exclusive == Exclusive::Yes {
                    return Err(EBUSY);
                }
            } else {
                set_owner(sb, &self.cred);
                sb.set_read_only(read_only(flags));
            }
            Ok(root)
        });
        self.end(made, |s, root| {
            s.root = Some(root);
            s.phase = Phase::AwaitingMount;
        })
    }

    /// `FSCONFIG_CMD_RECONFIGURE` (`vfs_cmd_reconfigure`).
    pub fn reconfigure(&self, caller: &Caller<'_>) -> Result<()> {
        self.begin_change();
        let (params, flags, told) = self.begin(Phase::ReconfParams, Phase::Reconfiguring)?;
        let root = self.state.lock().root.clone();
        let r = root.ok_or(EINVAL).and_then(|root| {
            let sb = root.sb();
            if !caller.cred.has_in(&sb.owner(), Caps::SYS_ADMIN) {
                return Err(EPERM);
            }
            super::landlock::may_change_mounts(caller.cred)?;
            if told & MS_DIRSYNC != 0 {
                return Err(EINVAL);
            }
            if told & flags & MS_RDONLY != 0 && sb.has_writers() {
                return Err(EBUSY);
            }
            sb.fs.remount(&params.joined()).map_err(|e| match e {
                EINVAL if sb.fs.name() == "tmpfs" => {
                    let why = format!("{}: Too small a size for current use", self.name);
                    self.fails(e, &why)
                }
                e => e,
            })?;
            if told & MS_RDONLY != 0 {
                sb.set_read_only(read_only(flags));
            }
            Ok(())
        });
        self.end(r, |s, ()| s.clean())
    }

    /// What fsmount(2) mounts: with `mount`, which makes the mount, the file system is given away.
    /// `shows_all` gives the flags that the mount keeps.
    pub(super) fn mounted(
        &self,
        shows_all: impl FnOnce(&Arc<Dentry>) -> Result<MountFlags>,
        mount: impl FnOnce(Arc<Dentry>, &str, MountFlags) -> Result<Arc<Detached>>,
    ) -> Result<Arc<Detached>> {
        let (root, source, phase) = {
            let s = self.state.lock();
            (s.root.clone(), s.source.clone(), s.phase)
        };
        let root = root.ok_or(EINVAL)?;
        let kept = shows_all(&root).map_err(|e| self.fails(e, "VFS: Mount too revealing"))?;
        if phase != Phase::AwaitingMount {
            return Err(EBUSY);
        }
        self.begin(Phase::AwaitingMount, Phase::Creating)?;
        match mount(root, source.as_deref().unwrap_or(""), kept) {
            Ok(m) => {
                self.state.lock().clean();
                Ok(m)
            }
            Err(e) => {
                self.state.lock().phase = Phase::AwaitingMount;
                Err(e)
            }
        }
    }
}

impl State {
    /// As after fspick(2) (`vfs_clean_context`).
    fn clean(&mut self) {
        *self = State {
            phase: Phase::AwaitingReconf,
            params: Params::default(),
            source: None,
            flags: 0,
            told: 0,
            layers: Vec::new(),
            root: self.root.take(),
        };
    }
}

fn read_only(flags: u32) -> ReadOnly {
    if flags & MS_RDONLY != 0 {
        ReadOnly::Yes
    } else {
        ReadOnly::No
    }
}

impl FileOps for FsConfig {
    /// One message, which stays where the buffer is too small for it.
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        let m = {
            let mut log = self.log.lock();
            match log.front() {
                None => return Err(ENODATA),
                Some(m) if m.len() > dst.remaining() => return Err(EMSGSIZE),
                Some(_) => log.pop_front().unwrap_or_default(),
            }
        };
        dst.put(m.as_bytes())
    }
    fn ignores_seek(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Ok(crate::file::anon_stat())
    }
    fn describe(&self) -> String {
        String::from("anon_inode:[fscontext]")
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
