//! Core files: what a process was when a signal ended it (`core(5)`, `fs/coredump.c`).
//!
//! The thread that takes the signal writes the file, in its own name. The others end, but put
//! their registers down before, and wait until it is written: what they would undo as they end
//! (futexes, the word of `CLONE_CHILD_CLEARTID`) is in the file as it was.
//!
//! ```text
//! name    the file's, by the pattern of kernel.core_pattern
//! image   what is in it: an ELF file of notes and memory
//! ```
//!
//! # What holds
//!
//! - Whom the writer waits for is decided under the slot's lock, and each thread joins once, under
//!   the same lock: nobody is waited for who has done so before, or never ran.
//! - Everybody waits without a lock. Who waits for the writer is told however it ends; the writer
//!   ends soon when somebody kills the process once more, or its container ends: it looks after
//!   each piece, also of what is not there ([`Out::check`]).
//! - While it writes, the end of the process is decided, but it is not told to end
//!   ([`ThreadGroup::needs_no_kill`]): who ends processes ends it, too.
//! - It writes as much as RLIMIT_CORE and RLIMIT_FSIZE let it, and makes no page that was not there:
//!   what nobody has touched is a hole. Confidential and secret memory is one, too, and a
//!   confidential process leaves no core.
//! - A pattern that begins with `|` names a program that would be given the core: there is no such
//!   way here, and nothing is written. (`@`, a socket, is no pattern here.)

mod image;
mod name;

use super::cpu::Cpu;
use super::trace::{CpuCopy, stops};
use super::{Context, Task, limits};
use abi::errno::{EACCES, EAGAIN, EFBIG, EINTR};
use abi::{Result, SigInfo};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use vfs::At;
use vfs::file::{BufSource, File, O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY};
use vfs::ops::OpenHow;
use wait::{Events, Steady, WaitQueue, block_until, wakes};

/// The bit of a wait status that says that there is a core.
pub const DUMPED: i32 = 0x80;
/// Below this nothing is written (`elf_format.min_coredump`).
const LEAST: u64 = 4096;

/// The settings of a container.
pub struct Settings {
    /// `kernel.core_pattern`.
    pub pattern: Arc<RwLock<Vec<u8>>>,
    /// `kernel.core_uses_pid`.
    pub uses_pid: Arc<AtomicI64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pattern: Arc::new(RwLock::new(b"core".to_vec())),
            uses_pid: Arc::default(),
        }
    }
}

/// The core of a process, if it leaves one (`core_state`).
#[derive(Default)]
pub struct Slot(Mutex<Option<Arc<Core>>>);

/// A core that is being written.
struct Core {
    writer: Weak<Task>,
    state: Mutex<State>,
    queue: WaitQueue,
}

#[derive(Default)]
struct State {
    /// How many threads have not put down what they are.
    awaited: usize,
    threads: Vec<ThreadState>,
    is_over: bool,
}

/// What is told of a thread.
struct ThreadState {
    pid: i32,
    /// None where its application side has gone.
    registers: Option<CpuCopy>,
    pending: u64,
    mask: u64,
    cpu: Cpu,
}

impl ThreadState {
    fn of(cx: &mut Context) -> ThreadState {
        ThreadState {
            pid: cx.task.pid.seen_in(&cx.group.pid.ns),
            registers: stops::copy_at_end(cx),
            pending: cx.task.pending.bits().0,
            mask: cx.mask().0,
            cpu: cx.task.cpu.get(),
        }
    }
}

impl Slot {
    /// Whether the core is being written, and nobody has ended that.
    #[must_use]
    pub fn is_dumping(&self) -> bool {
        let core = self.0.lock().clone();
        core.is_some_and(|c| {
            let writes = |t: Arc<Task>| !t.is_killed();
            !c.state.lock().is_over && c.writer.upgrade().is_some_and(writes)
        })
    }

    /// A task that ends joins; gives the core that waits for it, if one does.
    fn join(&self, task: &Task) -> Option<Arc<Core>> {
        let slot = self.0.lock();
        let was_past = task.has_joined_dump.swap(true, Ordering::SeqCst);
        slot.clone().filter(|_| !was_past)
    }
}

/// A task that never ran is taken back.
pub(super) fn abandoned(task: &Task) {
    if let Some(core) = task.group.core.join(task) {
        core.state.lock().awaited -= 1;
        core.queue.notify(Events::IN);
    }
}

/// A thread ends: where a core is written it leaves its registers for it, and waits until that is
/// done (`coredump_task_exit`).
pub(super) fn join(cx: &mut Context) {
    let Some(core) = cx.group.core.join(&cx.task) else {
        return;
    };
    let me = ThreadState::of(cx);
    {
        let mut s = core.state.lock();
        s.awaited -= 1;
        if !s.is_over {
            s.threads.push(me);
        }
    }
    core.queue.notify(Events::IN);
    let over = || match core.state.lock().is_over {
        true => Ok(()),
        false => Err(EAGAIN),
    };
    wait_for(&cx.task, &core, over);
}

/// Waits on a core's queue, whatever signals come.
fn wait_for(task: &Task, core: &Core, over: impl FnMut() -> Result<()>) {
    let steady = Steady(task.parker.clone());
    let _ = block_until(&steady, &[(&core.queue, Events::IN)], None, over);
}

/// However the writing ends, those who wait go on.
struct Writing(Arc<Core>);

impl Drop for Writing {
    fn drop(&mut self) {
        let threads = {
            let mut s = self.0.state.lock();
            s.is_over = true;
            std::mem::take(&mut s.threads)
        };
        drop(threads);
        self.0.queue.notify(Events::IN);
    }
}

/// A signal ends the process whose default leaves a core, where one is wanted.
pub(super) fn end_by(cx: &mut Context, info: &SigInfo) {
    // It may be long, and what this call has changed is to be heard of.
    if wakes::without_deferral(|| write(cx, info)) == Wanted::No {
        cx.kernel.kill_group(&cx.group, info.signo);
    }
}

/// Whether a core is wanted. Then the process ends already, or does so from now on.
#[derive(PartialEq, Eq)]
enum Wanted {
    Yes,
    No,
}

/// Writes the core (`do_coredump`).
fn write(cx: &mut Context, info: &SigInfo) -> Wanted {
    let settings = &cx.group.container.core;
    let pattern = settings.pattern.read().clone();
    let (most, longest) = {
        let l = cx.group.limits.lock();
        (l.0[limits::CORE].current, l.0[limits::FSIZE].current)
    };
    let is_for_program = pattern.first() == Some(&b'|');
    let mm = cx.task.mm();
    let is_shown = mm.privacy().is_dumpable() && !mm.is_confidential();
    if most < LEAST || is_for_program || !is_shown {
        return Wanted::No;
    }
    let Some(core) = begin(cx, info.signo) else {
        // Somebody ends it: this thread, too.
        cx.task.kill();
        return Wanted::Yes;
    };
    let writing = Writing(core);
    wait_for(&cx.task, &writing.0, || {
        match writing.0.state.lock().awaited == 0 || is_ended(&cx.task) {
            true => Ok(()),
            false => Err(EAGAIN),
        }
    });
    let mut threads = std::mem::take(&mut writing.0.state.lock().threads);
    let own = ThreadState::of(cx);
    threads.insert(0, own);
    let name = name::of(cx, &pattern, info.signo);
    if !is_ended(&cx.task)
        && let Ok(file) = create(&cx.task, &name)
    {
        let mut out = Out {
            file: &file,
            task: &cx.task,
            end: 0,
            written: 0,
            most,
            longest,
        };
        // What is cut short is a core all the same, as on Linux.
        let _ = image::write(cx, info, &threads, &mut out);
        if !is_ended(&cx.task) {
            cx.group.note_core(info.signo);
        }
    }
    // With the others: whoever was to end it as well has not told it again.
    cx.task.kill();
    Wanted::Yes
}

/// Whether nobody wants the core any more.
fn is_ended(task: &Task) -> bool {
    task.is_killed() || task.group.container.is_closed()
}

/// All others end from now on. None where the process ends already.
fn begin(cx: &Context, signal: i32) -> Option<Arc<Core>> {
    let g = &cx.group;
    // As `kill_group`: none is born until all are told.
    let list = cx.kernel.tasks.lock();
    let mut slot = g.core.0.lock();
    if slot.is_some() || cx.task.is_killed() || !g.decide_exit(signal) {
        return None;
    }
    // It waits for nobody when it ends.
    cx.task.has_joined_dump.store(true, Ordering::SeqCst);
    let mut others = list.threads(g.tgid);
    others.retain(|t| !Arc::ptr_eq(t, &cx.task));
    let awaited = others
        .iter()
        .filter(|t| !t.has_joined_dump.load(Ordering::SeqCst));
    let core = Arc::new(Core {
        writer: Arc::downgrade(&cx.task),
        state: Mutex::new(State {
            awaited: awaited.count(),
            ..State::default()
        }),
        queue: WaitQueue::new(),
    });
    *slot = Some(core.clone());
    drop(slot);
    g.kills.fetch_add(1, Ordering::SeqCst);
    g.end_stop();
    others.iter().for_each(|t| t.kill());
    Some(core)
}

/// The file: a new one, in the place of whatever has its name.
fn create(task: &Arc<Task>, name: &[u8]) -> Result<Arc<File>> {
    let flags = O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
    let file = task.with_paths(|p| {
        // (Where there is none, or it may not be, that is told below.)
        let _ = p.unlink(&At::Cwd, name);
        p.open(&At::Cwd, name, OpenHow::new(flags, 0o600))
    })?;
    let st = file.ops.stat()?;
    // Some file systems make files for others.
    if st.uid != task.cred().fsuid || st.mode & 0o677 != 0o600 {
        return Err(EACCES);
    }
    Ok(file)
}

/// The file that is written, from its beginning on.
struct Out<'a> {
    file: &'a File,
    task: &'a Task,
    end: u64,
    written: u64,
    /// RLIMIT_CORE counts what is written, RLIMIT_FSIZE the file.
    most: u64,
    longest: u64,
}

impl Out<'_> {
    /// `EINTR` where nobody wants it any more.
    fn check(&self) -> Result<()> {
        match is_ended(self.task) {
            true => Err(EINTR),
            false => Ok(()),
        }
    }

    /// `EFBIG` where it may not be longer; `EINTR`.
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.check()?;
        let len = bytes.len() as u64;
        if self.written + len > self.most || self.end + len > self.longest {
            return Err(EFBIG);
        }
        self.written += len;
        while !bytes.is_empty() {
            self.file.set_position(self.end)?;
            let n = self.file.write(&mut BufSource::new(bytes))?;
            if n == 0 {
                return Err(EFBIG);
            }
            self.end += n as u64;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    /// Zeros that take no room. `EINTR`.
    fn skip(&mut self, n: u64) -> Result<()> {
        self.end += n;
        self.check()
    }
}
