//! execve(2) (`fs/exec.c`).

use super::access::CredMutex;
use super::persona::{Persona, Rights};
use super::{Context, Sleep, Task};
use abi::Result;
use abi::errno::*;
use loader::{Elf, Image, LoadRequest, Program};
use mm::{Dumpable, MapFile, MapName, Mm};
use platform::AppThread;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vfs::file::{BufSink, File};
use vfs::mode::{FileType, Want};
use vfs::mount::MountFlags;
use vfs::ops::ExecGuard;
use vfs::userns::UserNs;
use vfs::walk::Walk;
use vfs::{At, Caps, Credentials, FsContext};
use wait::Events;

/// What to execute.
pub struct ExecRequest {
    pub at: At,
    /// The name as given; `/dev/fd/N` for fexecve.
    pub path: Vec<u8>,
    pub walk: Walk,
    /// What a program opened by descriptor is called (`/dev/fd/N`); a script cannot be reached by
    /// that name if the descriptor is closed by the call.
    pub by_fd: Option<ByFd>,
    pub argv: Vec<Vec<u8>>,
    pub envp: Vec<Vec<u8>>,
}

/// See [`ExecRequest::by_fd`].
pub struct ByFd {
    pub name: Vec<u8>,
    pub closes: bool,
}

/// An open program file.
pub struct FileImage(pub Arc<File>, pub vfs::Path);

impl Image for FileImage {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut sink = BufSink::new(buf);
        self.0.ops.read(&self.0, &mut sink, offset)
    }
    fn map_file(&self) -> Result<MapFile> {
        map_file(&self.0, &self.1)
    }
}

/// The name of a mapped file, as /proc/PID/maps shows it.
struct FileName(Arc<File>, vfs::Path);

impl MapName for FileName {
    fn path(&self) -> Vec<u8> {
        match &self.0.path {
            Some(p) => p.describe(&self.1).display(),
            None => self.0.ops.describe().into_bytes(),
        }
    }
    fn dev_ino(&self) -> (u64, u64) {
        self.0.ops.stat().map_or((0, 0), |s| (s.dev, s.ino))
    }
}

/// An open file as something to map; its name is shown from `root`.
pub fn map_file(f: &Arc<File>, root: &vfs::Path) -> Result<MapFile> {
    Ok(MapFile {
        mappable: f.ops.mappable()?,
        name: Some(Arc::new(FileName(f.clone(), root.clone()))),
        keep: Some(f.clone()),
        readable: f.readable(),
        writable: f.writable(),
        noexec: f
            .path
            .as_ref()
            .is_some_and(|p| p.mnt.flags().contains(MountFlags::NOEXEC) || p.mnt.sb().fs.no_exec()),
    })
}

struct Opened {
    file: Arc<File>,
    guard: ExecGuard,
    elf: Elf,
    interpreter: Option<(Elf, Arc<File>, ExecGuard)>,
    argv: Vec<Vec<u8>>,
    filename: Vec<u8>,
}

impl Opened {
    /// Whether a part of it is where files are confidential.
    fn marks_readers(&self) -> bool {
        let linker = self.interpreter.as_ref().map(|(_, f, _)| f);
        super::marks_readers(&self.file) || linker.is_some_and(|f| super::marks_readers(f))
    }
}

/// Opens a program or its interpreter, whose beginning is read.
fn open_to_read(
    task: &Arc<Task>,
    at: &At,
    path: &[u8],
    walk: Walk,
) -> Result<(Arc<File>, ExecGuard)> {
    let (file, guard) = task.with_paths(|p| p.open_exec(at, path, walk))?;
    file.may_read(&**task)?;
    file.accessed();
    Ok((file, guard))
}

/// Finds the program: follows scripts, opens the interpreter.
fn open(task: &Arc<Task>, req: &ExecRequest) -> Result<Opened> {
    let mut argv = req.argv.clone();
    let mut at = req.at.clone();
    let mut path = req.path.clone();
    let mut walk = req.walk;
    let root = task.fs().root();
    for _ in 0..=loader::MAX_SCRIPTS {
        let (file, guard) = open_to_read(task, &at, &path, walk)?;
        match loader::identify(Arc::new(FileImage(file.clone(), root.clone())))? {
            Program::Script(s) => {
                if req.by_fd.as_ref().is_some_and(|b| b.closes) {
                    return Err(ENOENT);
                }
                let mut new = vec![s.interpreter.clone()];
                new.extend(s.argument.clone());
                new.push(match &req.by_fd {
                    Some(b) if path == req.path => b.name.clone(),
                    _ => path.clone(),
                });
                new.extend(argv.into_iter().skip(1));
                argv = new;
                at = At::Cwd;
                path = s.interpreter;
                walk = Walk::FOLLOW;
            }
            Program::Elf(elf) => {
                let interpreter = match elf.interpreter() {
                    None => None,
                    Some(name) => {
                        let (f, g) = open_to_read(task, &At::Cwd, name, Walk::FOLLOW)?;
                        let image = Arc::new(FileImage(f.clone(), root.clone()));
                        Some((Elf::parse_interpreter(image)?, f, g))
                    }
                };
                let filename = req.by_fd.as_ref().map_or(&req.path, |b| &b.name).clone();
                return Ok(Opened {
                    file,
                    guard,
                    elf,
                    interpreter,
                    argv,
                    filename,
                });
            }
        }
    }
    Err(ELOOP)
}

/// A program loaded into memory of its own, not yet anybody's.
struct Built {
    opened: Opened,
    mm: Arc<Mm>,
    thread: Box<dyn AppThread>,
    raise: Raise,
}

fn build(
    task: &Arc<Task>,
    req: &ExecRequest,
    opened: Opened,
    memory: impl FnOnce() -> Result<Arc<Mm>>,
) -> Result<Built> {
    let raise = credentials(task, &opened.file)?;
    let mm = memory()?;
    if opened.marks_readers() {
        mm.set_confidential()?;
    }
    task.kernel.prepare_mm(&mm);
    mm.begin_loading();
    let loaded = load(task, &mm, &opened, req, &raise)?;
    protect(task, &mm, &opened);
    mm.loaded();
    let mut thread = mm.address_space().new_thread()?;
    let r = thread.regs();
    thread.set_regs(&platform::Regs {
        eflags: 0x202,
        rip: loaded.entry.0,
        rsp: loaded.sp.0,
        cs: r.cs,
        ss: r.ss,
        ..Default::default()
    });
    thread.set_fp_state(None)?;
    Ok(Built {
        opened,
        mm,
        thread,
        raise,
    })
}

/// What of the program is the process's: its name, its file.
fn adopt(task: &Task, o: Opened) {
    let name = o.filename.rsplit(|b| *b == b'/').next().unwrap_or_default();
    task.set_comm(name);
    *task.group.exe.write() = o.file.path.clone();
    let mut guards = vec![o.guard];
    guards.extend(o.interpreter.map(|(_, _, g)| g));
    let old = std::mem::replace(&mut *task.group.exe_guard.lock(), guards);
    drop(old);
}

/// Loads the first program of a task that has not run, into the memory that the task has: nothing
/// is in it yet. After an error the task can only be dropped.
pub fn prepare(task: &Arc<Task>, req: &ExecRequest) -> Result<Box<dyn AppThread>> {
    let b = build(task, req, open(task, req)?, || Ok(task.mm()))?;
    task.set_cred(b.raise.cred);
    adopt(task, b.opened);
    Ok(b.thread)
}

/// Replaces the program. Registers are known; on success they are final.
pub fn exec(cx: &mut Context, req: ExecRequest) -> Result<()> {
    cx.may_exec()?;
    // May wait for a lease's holder, or for who may forbid it: others' calls on this process do not
    // wait with it.
    let opened = open(&cx.task, &req)?;
    // What the credentials follow from stays as it is until they are installed.
    let guard = CredMutex::lock(cx)?;
    let Built {
        opened: o,
        mm,
        thread,
        raise,
    } = build(&cx.task, &req, opened, || {
        let space = cx.kernel.platform.new_address_space()?;
        if !cx.ns().time_for_children.is_initial() {
            space.own_clocks()?;
        }
        let mm = Mm::new(cx.group.container.clas.clone(), space);
        mm.charge_to(cx.cred().ucounts());
        mm.set_bounds(*cx.group.memory.lock());
        if cx.mm().is_confidential() {
            mm.set_confidential()?;
        }
        Ok(mm)
    })?;

    // From here on there is no way back: the other threads end first.
    let before = cx.pid.clone();
    cx.task.leave_uring(super::uring::work::Leaves::AtExec);
    de_thread(cx)?;
    cx.task.begin_uring();

    super::futex::exit_robust_list(&cx.task);
    cx.task.robust_list.store(0, Ordering::Relaxed);
    // In the old memory, where others wait for it (`mm_release`).
    super::exit::clear_child_tid(&cx.task);
    // The vfork parent's memory stays; our own goes.
    let old = install(cx, mm, &raise);
    if cx.ns().changes_time() {
        cx.task.set_ns(cx.ns().with_childrens_time());
    }
    cx.kernel.account_space(&cx.task, &old);
    cx.replace_thread(thread);
    old.forget_thread();
    drop(cx.task.leave_aio());
    cx.task.end_vfork();

    let group = cx.group.clone();
    // Dispositions are ours alone from now on.
    let mut actions = group.actions().read().clone();
    actions.reset_for_exec();
    *group.actions.write() = Arc::new(parking_lot::RwLock::new(actions));
    cx.altstack = cx.altstack.after_exec();
    group.timers.clear_posix();
    let files = cx.files();
    // A table shared by CLONE_FILES without CLONE_THREAD is copied first.
    let files = if Arc::strong_count(&files) > 2 {
        files.fork_for_exec(&cx.cred())
    } else {
        files
    };
    files.exec();
    cx.task.set_files(files);
    // Whoever shared memory or descriptors may have opened something meanwhile.
    if old.is_confidential() && cx.mm().set_confidential().is_err() {
        cx.kernel.kill_group(&group, abi::signal::SIGKILL.number());
    }
    drop(old);
    adopt(&cx.task, o);
    if let Some(p) = cx.kernel.tasks.lock().process_mut(group.tgid) {
        p.has_execed = true;
        p.exit_signal = abi::signal::SIGCHLD.number();
    }
    cx.regs_final = true;
    drop(guard);
    super::trace::stops::exec(cx, &before);
    Ok(())
}

/// Installs memory and credentials in one step for those who look in from outside; gives the old
/// memory.
fn install(cx: &Context, mm: Arc<Mm>, raise: &Raise) -> Arc<Mm> {
    let task = &cx.task;
    let _update = task.group.exec_update.write();
    task.group.exec_id.fetch_add(1, Ordering::SeqCst);
    let old = task.replace_mm(mm.clone());
    // As it may have become meanwhile.
    mm.set_bounds(*task.group.memory.lock());
    task.commit_cred(raise.cred.clone());
    task.keep_session_keyring();
    task.persona.store(raise.persona.bits(), Ordering::Relaxed);
    if raise.secure {
        task.pdeath_signal.store(0, Ordering::Relaxed);
    }
    old
}

fn load(
    task: &Arc<Task>,
    mm: &Arc<Mm>,
    o: &Opened,
    req: &ExecRequest,
    raise: &Raise,
) -> Result<loader::Loaded> {
    let cred = &raise.cred;
    let vdso = task.kernel.vdso();
    let mut map_vdso = |_: &Mm| Ok(vdso);
    loader::load(
        mm,
        LoadRequest {
            program: &o.elf,
            interpreter: o.interpreter.as_ref().map(|(e, ..)| e),
            filename: &o.filename,
            argv: &o.argv,
            envp: &req.envp,
            uid: cred.user_ns.uid_shown(cred.uid),
            euid: cred.user_ns.uid_shown(cred.euid),
            gid: cred.user_ns.gid_shown(cred.gid),
            egid: cred.user_ns.gid_shown(cred.egid),
            secure: raise.secure,
            hardware: loader::Hardware::host(),
            randomize: match raise.persona.contains(Persona::ADDR_NO_RANDOMIZE) {
                true => loader::Randomize::No,
                false => loader::Randomize::Yes,
            },
            limits: task.mm_limits(),
            map_vdso: Some(&mut map_vdso),
        },
    )
}

/// What a program makes of the caller's rights.
struct Raise {
    cred: Credentials,
    /// `AT_SECURE`.
    secure: bool,
    persona: Persona,
    /// Held while nobody else may come to share the root and working directory of a raised program.
    _alone: Option<Alone>,
}

/// The credentials after the call: set-uid and set-gid bits, capabilities (`bprm_fill_uid`,
/// `cap_bprm_creds_from_file`).
fn credentials(task: &Arc<Task>, file: &File) -> Result<Raise> {
    let old = task.cred();
    let mut c = (*old).clone();
    let no_new_privs = task.no_new_privs.load(Ordering::SeqCst);
    let owned = !no_new_privs && take_owner(task, &mut c, file)?;
    // A file without capabilities of its own gives none, but for root (no SECBIT_NOROOT).
    const NOROOT: u32 = 1;
    let root_uid = old.user_ns.root_uid();
    let privileged = old.securebits & NOROOT == 0;
    c.permitted = if privileged && (c.euid == root_uid || c.uid == root_uid) {
        (c.inheritable | old.bounding) & Caps::FULL
    } else {
        Caps::empty()
    };
    let effective = privileged && c.euid == root_uid;
    let changed = |c: &Credentials| c.euid != old.euid || !old.in_group(c.egid);
    let id_changed = changed(&c);
    let persona = task.persona();
    let rights = match owned || id_changed || !old.permitted.contains(c.permitted) {
        true => Rights::Raised,
        false => Rights::Kept,
    };
    let mut alone = None;
    if id_changed || !old.permitted.contains(c.permitted) {
        alone = Alone::with(task);
        // What a tracer could do to it, it must be allowed to do itself.
        if no_new_privs || alone.is_none() || !task.tracer_may(&c.user_ns) {
            // It gets no more than the caller had, and maybe less.
            if no_new_privs || !old.has_own(Caps::SETUID) {
                c.euid = c.uid;
                c.egid = c.gid;
            }
            c.permitted &= old.permitted;
        }
    }
    (c.suid, c.fsuid) = (c.euid, c.euid);
    (c.sgid, c.fsgid) = (c.egid, c.egid);
    if id_changed {
        c.ambient = Caps::empty();
    }
    c.permitted |= c.ambient;
    c.effective = if effective { c.permitted } else { c.ambient };
    // SECBIT_KEEP_CAPS is cleared.
    c.securebits &= !(1 << 4);
    let secure = id_changed
        || c.euid != old.uid
        || c.egid != old.gid
        || (c.uid != root_uid && (effective || !c.ambient.contains(c.permitted)));
    Ok(Raise {
        cred: c,
        secure,
        persona: persona.after_exec(rights),
        _alone: alone,
    })
}

/// The effective ids that a program's file gives (`bprm_fill_uid`); whether it gives any.
fn take_owner(task: &Arc<Task>, c: &mut Credentials, file: &File) -> Result<bool> {
    let set_id = |st: &vfs::Stat| {
        FileType::from_mode(st.mode) == Some(FileType::Regular) && st.mode & 0o6000 != 0
    };
    let mut st = file.ops.stat()?;
    if !set_id(&st) {
        return Ok(false);
    }
    if let Some(p) = &file.path {
        // Owner and mode of one moment, and of one at which the caller may run it.
        let inode = p.inode()?;
        let _held = inode.lock_attributes();
        st = inode.stat_at_once()?;
        let may = task.with_paths(|cx| cx.permission(p, Want::EXEC));
        if !set_id(&st) || may.is_err() {
            return Ok(false);
        }
    }
    // Not for owners without a number here.
    let ns = &c.user_ns;
    let known = ns.uid_number(st.uid).is_some() && ns.gid_number(st.gid).is_some();
    if !known || !may_suid(task, ns, file) {
        return Ok(false);
    }
    // Set-gid without group execution means something else (mandatory locking).
    let (user, group) = (st.mode & 0o4000 != 0, st.mode & 0o2010 == 0o2010);
    if user {
        c.euid = st.uid;
    }
    if group {
        c.egid = st.gid;
    }
    Ok(user || group)
}

/// Whether set-id bits count where the file is (`mnt_may_suid`): on a mount of the caller's
/// namespace, and of a file system that nobody below mounted.
fn may_suid(task: &Task, ns: &UserNs, file: &File) -> bool {
    let Some(p) = &file.path else { return true };
    let mine = || task.fs().ns().owns(&p.mnt);
    !p.mnt.flags().contains(MountFlags::NOSUID) && ns.is_below(&p.mnt.sb().owner()) && mine()
}

/// No other process shares the task's root, working directory and umask (`CLONE_FS`), and none
/// begins to (`fs_struct::in_exec`).
struct Alone(Arc<FsContext>);

impl Alone {
    /// `None` where another process shares them (`LSM_UNSAFE_SHARE`).
    fn with(task: &Task) -> Option<Alone> {
        let fs = task.fs();
        let list = task.kernel.tasks.lock();
        let shared = list
            .all()
            .any(|t| !Arc::ptr_eq(&t.group, &task.group) && Arc::ptr_eq(&t.fs(), &fs));
        // Under the list's lock, as the check in clone(2).
        (!shared).then(|| {
            fs.begin_exec();
            Alone(fs)
        })
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.end_exec();
    }
}

/// Makes the new memory private where the program is not to be looked into (`would_dump`,
/// `begin_new_exec`).
fn protect(task: &Arc<Task>, mm: &Mm, o: &Opened) {
    let cred = task.cred();
    let mut dumpable = if cred.euid == cred.uid && cred.egid == cred.gid {
        Dumpable::Yes
    } else {
        Dumpable::No
    };
    let mut ns = cred.user_ns.clone();
    let caller = vfs::Caller { cred: &cred, task };
    for f in [Some(&o.file), o.interpreter.as_ref().map(|(_, f, _)| f)] {
        let Some(Ok(inode)) = f.and_then(|f| f.path.as_ref()).map(vfs::Path::inode) else {
            continue;
        };
        if inode.permission(&caller, Want::READ).is_ok() {
            continue;
        }
        // The namespace that may look in knows the file's owner.
        dumpable = Dumpable::No;
        let owner = inode.perm().ok();
        let knows = |ns: &UserNs| {
            owner.is_some_and(|p| ns.uid_number(p.uid).is_some() && ns.gid_number(p.gid).is_some())
        };
        while !knows(&ns)
            && let Some(parent) = ns.parent()
        {
            ns = parent;
        }
    }
    mm.privacy().set_user_ns(ns);
    mm.privacy().set_dumpable(dumpable);
    let filter = task.mm().privacy().dump_filter();
    mm.privacy().set_dump_filter(filter);
}

/// Ends the other threads of the group and waits for them. The caller takes the group's id. Of two
/// threads that come here, one ends by the other's hand.
fn de_thread(cx: &mut Context) -> Result<()> {
    let kernel = cx.kernel.clone();
    // Again and again: one that was making a thread when it was told to end may have made it.
    let alone = || {
        let l = kernel.tasks.lock();
        // Under the list's lock, so that of two only one ends the other.
        if cx.is_killed() {
            return Err(EINTR);
        }
        let mut others = l.threads(cx.group.tgid);
        others.retain(|t| t.tid != cx.tid);
        for t in others.iter().filter(|t| !t.is_killed()) {
            t.kill();
        }
        if others.is_empty() {
            Ok(())
        } else {
            Err(EAGAIN)
        }
    };
    let queue = [(&cx.group.exit_wait, Events::IN)];
    let soon = || Some(Instant::now() + Duration::from_millis(100));
    loop {
        match cx.block_as(Sleep::Killable, &queue, soon(), alone) {
            Ok(()) => break,
            Err(ETIMEDOUT) => {}
            Err(_) => return Err(EINTR),
        }
    }
    if !cx.is_leader() {
        super::Task::become_leader(cx);
    }
    Ok(())
}
