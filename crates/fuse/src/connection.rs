//! A mounted file system's requests on their way to its server, and the answers.
//!
//! A request is made by `call` (somebody waits) or `post` (nobody does), and lies in `pending` until
//! the server reads it (`next`), then in `sent` until it is answered (`answer`). It is in neither
//! once it has an answer, or the connection has ended. A caller that is killed leaves; what the
//! server gives it when it is gone (a look-up, an open file) is given back at once (`undo`).

use crate::file::owes;
use crate::inode::FuseInode;
use crate::mount::Options;
use crate::proto::{
    BatchForgetIn, EntryOut, ForgetIn, ForgetOne, INTERRUPT_BIT, InHeader, InitFlags, InitIn,
    InitOut, InterruptIn, MAJOR, MINOR, MINOR_BATCH_FORGET, MINOR_LEAST, Op, OpenOut, OutHeader,
    ROOT, ReleaseIn, parse,
};
use abi::errno::{
    E2BIG, EAGAIN, ECONNABORTED, ECONNREFUSED, EINTR, EINVAL, EIO, ENODEV, ENOENT, ENOMEM, ENOSYS,
    ENOTCONN, EOVERFLOW, ERESTARTSYS, ETIMEDOUT,
};
use abi::{Errno, PAGE_SIZE, Result};
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use vfs::caller::Client;
use vfs::fs::tmpfs::Tmpfs;
use vfs::ucounts::Charge;
use vfs::userns::UserNs;
use vfs::{Credentials, Dentry};
use wait::{Events, Steady, UntilKilled, WaitQueue, block_until};
use zerocopy::IntoBytes;

/// Pages of the largest read or write where the server says nothing, and the most
/// (`FUSE_DEFAULT_MAX_PAGES_PER_REQ`, `FUSE_MAX_MAX_PAGES`).
const PAGES: u32 = 32;
const PAGES_MOST: u32 = 256;
/// How far ahead is read, bytes (`VM_READAHEAD_PAGES`).
const READ_AHEAD: u32 = 128 << 10;
/// FORGETs that are read in a row while requests wait, and the requests that come then
/// (`forget_batch`).
const FORGET_RUN: i32 = 16;
const FORGET_PAUSE: i32 = 8;
/// What a request takes beside its bytes and its answer's.
pub const REQUEST: usize = 512;

/// What a connection is made of, beside what mount(2) was told.
pub struct Made {
    /// `st_dev`.
    pub dev: u64,
    pub numbers: Numbers,
    /// Holds the pages of mapped files.
    pub cache: Arc<Tmpfs>,
}

/// Who pays for a request, and whose data it writes.
#[derive(Default)]
pub struct Charged {
    pub charge: Option<Charge>,
    pub writes: Option<Arc<FuseInode>>,
}

/// The number of a task in the pid namespace of who mounted.
pub type Numbers = Box<dyn Fn(&dyn Any) -> u32 + Send + Sync>;

/// What was agreed with the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest read and write, and how far ahead is read: bytes.
    pub read: usize,
    pub write: usize,
    pub ahead: usize,
    /// It is told which files' data are no longer what they were, and reads ask for no attributes.
    pub explicit: bool,
    pub ioctl_dir: bool,
    /// It takes the umask from the modes of new files itself.
    pub masks: bool,
    /// An OPEN with O_TRUNC truncates.
    pub truncates: bool,
    pub batch_forget: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            read: PAGES as usize * PAGE_SIZE as usize,
            write: PAGE_SIZE as usize,
            ahead: READ_AHEAD as usize,
            explicit: false,
            ioctl_dir: false,
            masks: false,
            truncates: false,
            batch_forget: false,
        }
    }
}

/// How long an answer may be, behind its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Exactly(usize),
    UpTo(usize),
}

impl Answer {
    fn most(self) -> usize {
        match self {
            Answer::Exactly(n) | Answer::UpTo(n) => n,
        }
    }
    fn fits(self, n: usize) -> bool {
        match self {
            Answer::Exactly(len) => n == len,
            Answer::UpTo(len) => n <= len,
        }
    }
}

/// What is asked.
pub struct Call<'a> {
    pub op: Op,
    pub node: u64,
    /// What follows the header, in pieces.
    pub parts: &'a [&'a [u8]],
    pub answer: Answer,
}

/// In whose name.
#[derive(Clone, Copy, Default)]
struct Who {
    uid: u32,
    gid: u32,
    pid: u32,
}

/// How far a request has come.
enum Step {
    Waits,
    Done(Result<Vec<u8>>),
    /// Its caller is gone.
    Left,
}

/// A request.
pub struct Request {
    unique: u64,
    op: Op,
    node: u64,
    answer: Answer,
    /// Until the server has read them.
    bytes: Mutex<Vec<u8>>,
    step: Mutex<Step>,
    /// Its caller was interrupted; an INTERRUPT waits for the server. Under the state's lock.
    interrupted: AtomicBool,
    interrupt_waits: AtomicBool,
    done: WaitQueue,
    /// The file whose data it writes, which is told when that has happened.
    writes: Option<Arc<FuseInode>>,
    /// Of its caller's memory.
    _charge: Option<Charge>,
}

impl Request {
    /// It has an answer. Gives that back where the caller is gone.
    #[must_use]
    fn finish(&self, r: Result<Vec<u8>>) -> Option<Vec<u8>> {
        if let Some(file) = &self.writes {
            file.was_posted(r.as_ref().err().copied());
        }
        let mut step = self.step.lock();
        if matches!(*step, Step::Left) {
            return r.ok();
        }
        *step = Step::Done(r);
        drop(step);
        self.done.notify(Events::IN);
        None
    }
    /// It has an error, whether somebody waits or not.
    fn fail(&self, e: Errno) {
        let _ = self.finish(Err(e));
    }
    /// What came of it; `EAGAIN` outside: nothing yet.
    fn outcome(&self) -> Result<Result<Vec<u8>>> {
        let mut step = self.step.lock();
        match std::mem::replace(&mut *step, Step::Waits) {
            Step::Waits | Step::Left => Err(EAGAIN),
            Step::Done(r) => Ok(r),
        }
    }
    /// Its caller goes. Gives what came of it in the end.
    fn leave(&self) -> Option<Vec<u8>> {
        match std::mem::replace(&mut *self.step.lock(), Step::Left) {
            Step::Done(r) => r.ok(),
            Step::Waits | Step::Left => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// INIT is not answered yet.
    Starting,
    Running,
    /// It was answered badly (`conn_error`).
    Refused,
    Ended,
}

struct State {
    phase: Phase,
    limits: Limits,
    last: u64,
    pending: VecDeque<Arc<Request>>,
    forgets: VecDeque<ForgetOne>,
    /// FORGETs that may still be read before requests; below zero, requests that come first.
    turns: i32,
    interrupts: VecDeque<u64>,
    /// With the number of the device by which the server has read them.
    sent: HashMap<u64, (u64, Arc<Request>)>,
    ignores_interrupts: bool,
}

impl State {
    /// Uniques are even: an interrupt's is the request's, and one (`FUSE_INT_REQ_BIT`).
    fn unique(&mut self) -> u64 {
        self.last += 2;
        self.last
    }
    fn has_work(&self) -> bool {
        !(self.pending.is_empty() && self.forgets.is_empty() && self.interrupts.is_empty())
    }
    /// Puts an INTERRUPT of it into the queue, unless one waits there.
    fn queue_interrupt(&mut self, r: &Request) -> bool {
        let queues = !self.ignores_interrupts && !r.interrupt_waits.swap(true, Ordering::Relaxed);
        if queues {
            self.interrupts.push_back(r.unique);
        }
        queues
    }
    /// Whether FORGETs are read next (`fuse_dev_do_read`).
    fn forgets_next(&mut self) -> bool {
        if self.forgets.is_empty() {
            return false;
        }
        if self.pending.is_empty() {
            return true;
        }
        self.turns -= 1;
        let next = self.turns >= 0;
        if self.turns <= -FORGET_PAUSE {
            self.turns = FORGET_RUN;
        }
        next
    }
}

/// See the module.
pub struct Connection {
    pub dev: u64,
    pub options: Options,
    /// Whose numbers requests and answers have.
    pub user_ns: UserNs,
    numbers: Numbers,
    /// Holds the pages of mapped files.
    pub cache: Arc<Tmpfs>,
    state: Mutex<State>,
    /// The server's devices, by number: who reads there waits.
    devices: RwLock<Vec<(u64, Arc<WaitQueue>)>>,
    /// Callers that wait for INIT's answer.
    started: WaitQueue,
    /// What the server does not know: a bit for each [`Op`].
    unknown: AtomicU64,
    /// The files in use, by node.
    pub inodes: Mutex<HashMap<u64, Weak<FuseInode>>>,
    /// The last change of any attributes.
    version: AtomicU64,
    /// Of its file system: the same device mounts it again.
    pub root: OnceLock<Weak<Dentry>>,
}

impl Connection {
    /// One whose INIT waits for the server, which has one device: its number, and where it waits.
    pub fn new(
        made: Made,
        options: Options,
        user_ns: &UserNs,
        device: (u64, Arc<WaitQueue>),
    ) -> Arc<Connection> {
        let Made {
            dev,
            numbers,
            cache,
        } = made;
        let limits = Limits::default();
        let c = Arc::new(Connection {
            dev,
            options,
            user_ns: user_ns.clone(),
            numbers,
            cache,
            state: Mutex::new(State {
                phase: Phase::Starting,
                limits,
                last: 0,
                pending: VecDeque::new(),
                forgets: VecDeque::new(),
                turns: FORGET_RUN,
                interrupts: VecDeque::new(),
                sent: HashMap::new(),
                ignores_interrupts: false,
            }),
            devices: RwLock::new(vec![device]),
            started: WaitQueue::new(),
            unknown: AtomicU64::new(0),
            inodes: Mutex::default(),
            version: AtomicU64::new(1),
            root: OnceLock::new(),
        });
        let offered = InitFlags::all();
        let init = InitIn {
            major: MAJOR,
            minor: MINOR,
            max_readahead: READ_AHEAD,
            flags: offered.bits(),
            ..InitIn::default()
        };
        // (What is longer is of later versions.)
        let answer = Answer::UpTo(size_of::<InitOut>());
        let call = Call {
            op: Op::Init,
            node: 0,
            parts: &[init.as_bytes()],
            answer,
        };
        c.post(&call, Charged::default());
        c
    }

    pub fn limits(&self) -> Limits {
        self.state.lock().limits
    }
    /// The version of the attributes from now on.
    pub fn new_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::Relaxed) + 1
    }
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Whether these may use it at all (`fuse_allow_current_process`): who mounted it, unless it is
    /// for all.
    pub fn admits(&self, c: &Credentials) -> bool {
        if self.options.allow_other {
            return c.user_ns.is_below(&self.user_ns);
        }
        let (uid, gid) = (self.options.user, self.options.group);
        [c.uid, c.euid, c.suid] == [uid; 3] && [c.gid, c.egid, c.sgid] == [gid; 3]
    }

    fn who(&self, cred: &Credentials, client: &dyn Client) -> Result<Who> {
        let ns = &self.user_ns;
        Ok(Who {
            uid: ns.uid_number(cred.fsuid).ok_or(EOVERFLOW)?,
            gid: ns.gid_number(cred.fsgid).ok_or(EOVERFLOW)?,
            pid: (self.numbers)(client.task()),
        })
    }

    fn enqueue(&self, st: &mut State, who: Who, call: &Call<'_>, charged: Charged) -> Arc<Request> {
        let len = call.parts.iter().map(|p| p.len()).sum::<usize>() + size_of::<InHeader>();
        let unique = st.unique();
        let header = InHeader {
            len: len as u32,
            op: call.op as u32,
            unique,
            node: call.node,
            uid: who.uid,
            gid: who.gid,
            pid: who.pid,
            extensions: 0,
        };
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(header.as_bytes());
        call.parts.iter().for_each(|p| bytes.extend_from_slice(p));
        let r = Arc::new(Request {
            unique,
            op: call.op,
            node: call.node,
            answer: call.answer,
            bytes: Mutex::new(bytes),
            step: Mutex::new(Step::Waits),
            interrupted: AtomicBool::new(false),
            interrupt_waits: AtomicBool::new(false),
            done: WaitQueue::new(),
            writes: charged.writes,
            _charge: charged.charge,
        });
        st.pending.push_back(r.clone());
        r
    }

    /// A request whose answer nobody waits for. Lost where the connection has ended.
    pub fn post(&self, call: &Call<'_>, charged: Charged) {
        let mut st = self.state.lock();
        if matches!(st.phase, Phase::Refused | Phase::Ended) {
            drop(st);
            if let Some(file) = charged.writes {
                file.was_posted(Some(ENOTCONN));
            }
            return;
        }
        self.enqueue(&mut st, Who::default(), call, charged);
        drop(st);
        self.tell_readers(Events::READABLE);
    }
    fn tell_readers(&self, e: Events) {
        for (_, queue) in &*self.devices.read() {
            queue.notify(e);
        }
    }

    /// Asks the server and waits for its answer, in the name of `cred`, or of whom the thread acts
    /// for. `EINTR`: the caller is to end. `ENOTCONN`, `ECONNABORTED`: the server is gone.
    pub fn call(&self, cred: Option<&Credentials>, call: &Call<'_>) -> Result<Vec<u8>> {
        let client = vfs::caller::client()?;
        let request = self.send(&*client, cred, call)?;
        let r = self.await_answer(&*client, &request);
        if r == Err(EINTR) && client.killed() {
            // No server need see what it has not seen yet.
            let mut st = self.state.lock();
            st.pending.retain(|p| !Arc::ptr_eq(p, &request));
            drop(st);
            if let Some(answer) = request.leave() {
                self.undo(&request, &answer);
            }
        }
        r
    }

    /// What an answer gave that nobody takes: a look-up, an open file.
    fn undo(&self, r: &Request, answer: &[u8]) {
        let (node, opened) = match r.op {
            Op::Lookup | Op::Mkdir | Op::Mknod | Op::Symlink | Op::Link => {
                (parse::<EntryOut>(answer).map_or(0, |(e, _)| e.node), None)
            }
            Op::Create | Op::Tmpfile => match parse::<EntryOut>(answer) {
                Ok((e, rest)) => (e.node, parse::<OpenOut>(rest).ok().map(|o| (e.node, o.0))),
                Err(_) => return,
            },
            Op::Open | Op::Opendir => (0, parse::<OpenOut>(answer).ok().map(|o| (r.node, o.0))),
            _ => return,
        };
        if let Some((of, out)) = opened {
            let op = match r.op {
                Op::Opendir => Op::Releasedir,
                _ => Op::Release,
            };
            self.release(op, of, out.fh, 0, Some(owes(REQUEST)));
        }
        if node != 0 && node != ROOT {
            self.forget(node, 1);
        }
    }
    /// RELEASE, RELEASEDIR.
    pub fn release(&self, op: Op, node: u64, fh: u64, flags: u32, charge: Option<Charge>) {
        let last = ReleaseIn {
            fh,
            flags,
            ..ReleaseIn::default()
        };
        let call = Call {
            op,
            node,
            parts: &[last.as_bytes()],
            answer: Answer::Exactly(0),
        };
        let writes = None;
        self.post(&call, Charged { charge, writes });
    }

    /// As [`Connection::call`], of what the server is to hear of in any case (`args.force`): the
    /// request stays when its caller is killed. One that ends of its own will waits all the same, as
    /// long as it may ([`Client::waits_at_end`]).
    pub fn call_to_the_end(&self, call: &Call<'_>) -> Result<Vec<u8>> {
        /// How often it is looked whether it still may.
        const LOOK: Duration = Duration::from_millis(50);
        let client = vfs::caller::client()?;
        let request = self.send(&*client, None, call)?;
        if !client.killed() {
            return self.await_answer(&*client, &request);
        }
        let done = [(&request.done, Events::IN)];
        let ending = Steady(client.parker().clone());
        while client.waits_at_end() {
            let look = Some(Instant::now() + LOOK);
            match block_until(&ending, &done, look, || request.outcome()) {
                Err(ETIMEDOUT) => {}
                answered => return answered?,
            }
        }
        Err(EINTR)
    }

    fn send(
        &self,
        client: &dyn Client,
        cred: Option<&Credentials>,
        call: &Call<'_>,
    ) -> Result<Arc<Request>> {
        let own = client.credentials();
        let cred = cred.unwrap_or(&own);
        let who = self.who(cred, client)?;
        let started = [(&self.started, Events::IN)];
        block_until(&UntilKilled(client), &started, None, || self.may_ask())
            .map_err(|e| if e == ERESTARTSYS { EINTR } else { e })?;
        let len = call.parts.iter().map(|p| p.len()).sum::<usize>() + call.answer.most();
        let charged = Charged {
            charge: Some(cred.kmem(len + REQUEST, ENOMEM)?),
            writes: None,
        };
        let request = {
            let mut st = self.state.lock();
            if st.phase != Phase::Running {
                return Err(ENOTCONN);
            }
            self.enqueue(&mut st, who, call, charged)
        };
        self.tell_readers(Events::READABLE);
        Ok(request)
    }

    /// `EINTR`: the caller is to end.
    fn await_answer(&self, client: &dyn Client, request: &Arc<Request>) -> Result<Vec<u8>> {
        let done = [(&request.done, Events::IN)];
        match block_until(client, &done, None, || request.outcome()) {
            Err(ERESTARTSYS) => {}
            answered => return answered?,
        }
        self.interrupt(request);
        let until_killed = UntilKilled(client);
        match block_until(&until_killed, &done, None, || request.outcome()) {
            Ok(answer) => answer,
            Err(_) => Err(EINTR),
        }
    }

    /// As [`Connection::call`], of what a server need not know: `otherwise` where it does not.
    pub fn call_known(
        &self,
        cred: Option<&Credentials>,
        call: &Call<'_>,
        otherwise: Errno,
    ) -> Result<Vec<u8>> {
        self.if_known(call.op, otherwise, || self.call(cred, call))
    }
    /// Asks by `ask`, where the server has not said that it does not know this.
    pub fn if_known(
        &self,
        op: Op,
        otherwise: Errno,
        ask: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        if !self.knows(op) {
            return Err(otherwise);
        }
        match ask() {
            Err(ENOSYS) => {
                let bit = 1 << (op as u32);
                self.unknown.fetch_or(bit, Ordering::Relaxed);
                Err(otherwise)
            }
            r => r,
        }
    }
    /// Whether the server has not said yet that it does not know this.
    pub fn knows(&self, op: Op) -> bool {
        self.unknown.load(Ordering::Relaxed) & (1 << (op as u32)) == 0
    }

    fn may_ask(&self) -> Result<()> {
        match self.state.lock().phase {
            Phase::Starting => Err(EAGAIN),
            Phase::Running => Ok(()),
            Phase::Refused => Err(ECONNREFUSED),
            Phase::Ended => Err(ENOTCONN),
        }
    }

    /// The caller of a request got a signal: the server is told, once it has the request.
    fn interrupt(&self, r: &Arc<Request>) {
        let mut st = self.state.lock();
        r.interrupted.store(true, Ordering::Relaxed);
        if st.sent.contains_key(&r.unique) && st.queue_interrupt(r) {
            drop(st);
            self.tell_readers(Events::READABLE);
        }
    }

    /// The kernel has so many look-ups of a file less.
    pub fn forget(&self, node: u64, lookups: u64) {
        if lookups == 0 {
            return;
        }
        {
            let mut st = self.state.lock();
            if matches!(st.phase, Phase::Refused | Phase::Ended) {
                return;
            }
            st.forgets.push_back(ForgetOne { node, lookups });
        }
        self.tell_readers(Events::READABLE);
    }
}

/// The server's side.
impl Connection {
    pub fn add_device(&self, number: u64, queue: &Arc<WaitQueue>) {
        self.devices.write().push((number, queue.clone()));
    }
    /// A device was closed: what was read by it is not answered any more. With the last one, the
    /// connection ends.
    pub fn remove_device(&self, number: u64) {
        let last = {
            let mut all = self.devices.write();
            all.retain(|(n, _)| *n != number);
            all.is_empty()
        };
        let lost: Vec<_> = {
            let mut st = self.state.lock();
            let of_it = st.sent.extract_if(|_, (d, _)| *d == number);
            of_it.map(|(_, (_, r))| r).collect()
        };
        for r in lost {
            r.fail(ECONNABORTED);
        }
        if last {
            self.abort();
        }
    }
    /// Ends it (`fuse_abort_conn`).
    pub fn abort(&self) {
        let lost: Vec<_> = {
            let mut st = self.state.lock();
            if st.phase == Phase::Ended {
                return;
            }
            st.phase = Phase::Ended;
            st.forgets.clear();
            st.interrupts.clear();
            let sent = std::mem::take(&mut st.sent);
            let pending = std::mem::take(&mut st.pending);
            let sent = sent.into_values().map(|(_, r)| r);
            pending.into_iter().chain(sent).collect()
        };
        for r in lost {
            r.fail(ECONNABORTED);
        }
        self.started.notify(Events::IN);
        self.tell_readers(Events::READABLE | Events::ERR | Events::HUP);
    }

    /// What poll(2) says of the device.
    pub fn readiness(&self) -> Events {
        let st = self.state.lock();
        match st.phase {
            Phase::Ended => Events::ERR,
            _ if st.has_work() => Events::READABLE | Events::WRITABLE,
            _ => Events::WRITABLE,
        }
    }

    /// The next request for the server, which has room for `room` bytes; none is longer than that.
    /// `EAGAIN`: none yet. `ENODEV`: the connection has ended.
    pub fn next(&self, device: u64, room: usize) -> Result<Vec<u8>> {
        loop {
            let mut st = self.state.lock();
            if st.phase == Phase::Ended {
                return Err(ENODEV);
            }
            let least = size_of::<InHeader>() + size_of::<crate::proto::WriteIn>();
            let writes = match st.phase {
                Phase::Starting => 0,
                _ => st.limits.write,
            };
            if room < crate::proto::READ_BUFFER_LEAST.max(least + writes) {
                return Err(EINVAL);
            }
            if let Some(of) = st.interrupts.pop_front() {
                if let Some((_, r)) = st.sent.get(&of) {
                    r.interrupt_waits.store(false, Ordering::Relaxed);
                }
                return Ok(interrupt(of));
            }
            if st.forgets_next() {
                return Ok(forgets(&mut st, room));
            }
            let r = st.pending.pop_front().ok_or(EAGAIN)?;
            let bytes = std::mem::take(&mut *r.bytes.lock());
            if bytes.len() > room {
                drop(st);
                r.fail(if r.op == Op::Setxattr { E2BIG } else { EIO });
                continue;
            }
            if r.interrupted.load(Ordering::Relaxed) {
                st.queue_interrupt(&r);
            }
            st.sent.insert(r.unique, (device, r));
            return Ok(bytes);
        }
    }

    /// The server could not be given a request that it had begun to read.
    pub fn not_read(&self, request: &[u8]) {
        let unique = parse::<InHeader>(request).map_or(0, |(h, _)| h.unique);
        let r = self.state.lock().sent.remove(&unique);
        if let Some((_, r)) = r {
            r.fail(EIO);
        }
    }

    /// How much of an answer is to be looked at, behind the header: nothing longer than what was
    /// asked for. `ENOENT`: nobody has asked this, by that device. `EINVAL`: it cannot be.
    pub fn expects(&self, device: u64, h: &OutHeader) -> Result<usize> {
        let st = self.state.lock();
        if h.error > 0 || h.error <= -(ERESTARTSYS.raw()) {
            return Err(EINVAL);
        }
        let (of, r) = st.sent.get(&(h.unique & !INTERRUPT_BIT)).ok_or(ENOENT)?;
        if *of != device {
            return Err(ENOENT);
        }
        let n = h.len as usize - size_of::<OutHeader>();
        if h.unique & INTERRUPT_BIT != 0 {
            return if n == 0 { Ok(0) } else { Err(EINVAL) };
        }
        Ok(n.min(r.answer.most() + 1))
    }

    /// An answer, of which so much came as [`Connection::expects`] said. `EINVAL`, too, where it is
    /// none: who asked gets `EIO`.
    pub fn answer(&self, device: u64, h: &OutHeader, body: Vec<u8>) -> Result<()> {
        let mut st = self.state.lock();
        if h.unique & INTERRUPT_BIT != 0 {
            match Errno::new(-h.error) {
                Some(ENOSYS) => st.ignores_interrupts = true,
                Some(EAGAIN) => {
                    let of = st.sent.get(&(h.unique & !INTERRUPT_BIT));
                    if let Some(r) = of.map(|(_, r)| r.clone()) {
                        st.queue_interrupt(&r);
                    }
                }
                _ => {}
            }
            return Ok(());
        }
        match st.sent.get(&h.unique) {
            Some((of, _)) if *of == device => {}
            _ => return Err(ENOENT),
        }
        let Some((_, r)) = st.sent.remove(&h.unique) else {
            return Err(ENOENT);
        };
        let error = Errno::new(-h.error);
        let bad = match error {
            Some(_) => !body.is_empty(),
            None => !r.answer.fits(body.len()),
        };
        let result = match error {
            _ if bad => Err(EIO),
            Some(e) => Err(e),
            None => Ok(body),
        };
        if r.op == Op::Init {
            self.start(&mut st, result);
            drop(st);
            self.started.notify(Events::IN);
        } else {
            drop(st);
            if let Some(answer) = r.finish(result) {
                self.undo(&r, &answer);
            }
        }
        if bad { Err(EINVAL) } else { Ok(()) }
    }

    /// INIT was answered (`process_init_reply`).
    fn start(&self, st: &mut State, answer: Result<Vec<u8>>) {
        let padded = answer.map(|mut a| {
            a.resize(size_of::<InitOut>(), 0);
            a
        });
        let out = padded.and_then(|a| Ok(parse::<InitOut>(&a)?.0));
        st.phase = match out {
            Ok(o) if o.major == MAJOR && o.minor >= MINOR_LEAST => {
                st.limits = self.agreed(&o);
                Phase::Running
            }
            _ => Phase::Refused,
        };
    }

    fn agreed(&self, o: &InitOut) -> Limits {
        let flags = InitFlags::from_bits_truncate(o.flags);
        let pages = if flags.contains(InitFlags::MAX_PAGES) {
            u32::from(o.max_pages).clamp(1, PAGES_MOST)
        } else {
            PAGES
        };
        let most = pages * PAGE_SIZE as u32;
        let least = PAGE_SIZE as u32;
        Limits {
            read: most.min(self.options.max_read).max(least) as usize,
            write: o.max_write.clamp(least, most) as usize,
            ahead: o.max_readahead.min(READ_AHEAD) as usize,
            explicit: flags.contains(InitFlags::EXPLICIT_INVAL_DATA)
                && !flags.contains(InitFlags::AUTO_INVAL_DATA),
            ioctl_dir: flags.contains(InitFlags::HAS_IOCTL_DIR),
            masks: flags.contains(InitFlags::DONT_MASK),
            truncates: flags.contains(InitFlags::ATOMIC_O_TRUNC),
            batch_forget: o.minor >= MINOR_BATCH_FORGET,
        }
    }
}

/// A request that needs no answer and is nobody's.
fn alone(op: Op, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        op: op as u32,
        unique,
        node,
        ..InHeader::default()
    };
    [header.as_bytes(), body].concat()
}

fn interrupt(of: u64) -> Vec<u8> {
    let body = InterruptIn { unique: of };
    alone(Op::Interrupt, of | INTERRUPT_BIT, 0, body.as_bytes())
}

/// FORGETs, as many as there is room for.
fn forgets(st: &mut State, room: usize) -> Vec<u8> {
    let unique = st.unique();
    if (st.forgets.len() == 1 || !st.limits.batch_forget)
        && let Some(f) = st.forgets.pop_front()
    {
        let body = ForgetIn { lookups: f.lookups };
        return alone(Op::Forget, unique, f.node, body.as_bytes());
    }
    let room = room - size_of::<InHeader>() - size_of::<BatchForgetIn>();
    let n = st.forgets.len().min(room / size_of::<ForgetOne>());
    let all: Vec<ForgetOne> = st.forgets.drain(..n).collect();
    let batch = BatchForgetIn {
        count: n as u32,
        unused: 0,
    };
    let body = [batch.as_bytes(), all.as_bytes()].concat();
    alone(Op::BatchForget, unique, 0, &body)
}
