//! A pseudo-terminal and the open files of its two sides.

use crate::devpts::Devpts;
use crate::line::{Asks, Line, WRITE_ROOM};
use crate::termios::{ICANON, TOSTOP, VMIN, VTIME};
use crate::{JobControl, ioctl};
use abi::errno::{EAGAIN, EIO, ERESTARTSYS, ETIMEDOUT};
use abi::signal::{SIGTTIN, SIGTTOU, SIGWINCH};
use abi::{Result, Signal};
use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use vfs::file::Io;
use vfs::file::IoctlContext;
use vfs::ucounts::Charge;
use vfs::userns::UserNs;
use vfs::{File, FileOps, Inode, Sink, Source, Stat};
use wait::{Blocker, Events, WaitQueue, block_until, deadline_after};

/// What the two sides share.
pub struct Pty {
    /// N of `/dev/pts/N`.
    pub index: u32,
    /// User and group that opened the master, and in which user namespace.
    opener: (u32, u32),
    user_ns: UserNs,
    /// The nodes that stand for it. One that is left of another terminal with its number does not.
    nodes: Mutex<Vec<Weak<dyn Inode>>>,
    pub(crate) jobs: Arc<dyn JobControl>,
    registry: Weak<Devpts>,
    /// What it may take, the opener's.
    _memory: Option<Charge>,
    pub(crate) state: Mutex<State>,
    master_queue: WaitQueue,
    slave_queue: WaitQueue,
}

pub(crate) struct State {
    pub line: Line,
    /// Rows, columns, and the size in pixels.
    pub window: [u16; 4],
    pub packet_mode: bool,
    /// `TIOCSPTLCK`: the slave cannot be opened.
    pub locked: bool,
    pub exclusive: bool,
    pub master_open: bool,
    pub slaves: u32,
    /// Whether a slave was ever opened: until then the master sees no hang-up.
    pub slave_seen: bool,
    /// Counts hang-ups; a slave opened before the last one is dead.
    pub hangups: u64,
    /// The session that this terminal controls, and its foreground process group; 0 for none.
    pub session: i32,
    pub foreground: i32,
}

/// What must be told after the lock is gone.
#[derive(Default)]
pub(crate) struct After {
    signals: Vec<(i32, Signal)>,
    to_master: Events,
    to_slave: Events,
}

impl Pty {
    pub(crate) fn new(
        index: u32,
        opener: ((u32, u32), UserNs),
        jobs: Arc<dyn JobControl>,
        registry: Weak<Devpts>,
        memory: Option<Charge>,
    ) -> Arc<Pty> {
        Arc::new(Pty {
            index,
            opener: opener.0,
            user_ns: opener.1,
            nodes: Mutex::default(),
            jobs,
            registry,
            _memory: memory,
            state: Mutex::new(State {
                line: Line::new(),
                window: [0; 4],
                packet_mode: false,
                locked: true,
                exclusive: false,
                master_open: true,
                slaves: 0,
                slave_seen: false,
                hangups: 0,
                session: 0,
                foreground: 0,
            }),
            master_queue: WaitQueue::new(),
            slave_queue: WaitQueue::new(),
        })
    }

    /// Who opened the master.
    #[must_use]
    pub fn opener(&self) -> (u32, u32) {
        self.opener
    }

    /// Whether a mount of devpts that was made in a user namespace shows it: not what those above
    /// have.
    #[must_use]
    pub fn is_of(&self, ns: &UserNs) -> bool {
        self.user_ns.is_below(ns)
    }

    /// From now on this node stands for it.
    pub fn add_node(&self, node: &Arc<dyn Inode>) {
        let mut nodes = self.nodes.lock();
        nodes.retain(|n| n.strong_count() > 0);
        nodes.push(Arc::downgrade(node));
    }

    pub(crate) fn has_node(&self, node: &Arc<dyn Inode>) -> bool {
        let is_it = |n: &Weak<dyn Inode>| std::ptr::addr_eq(n.as_ptr(), Arc::as_ptr(node));
        self.nodes.lock().iter().any(is_it)
    }

    /// Changes the state, and afterwards sends the signals and tells who waits.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut s = self.state.lock();
        let could_write = s.line.writable();
        let had_room = s.line.room() > 0;
        let r = f(&mut s);
        let mut a = After::default();
        let group = s.foreground;
        for signal in s.line.signals.drain(..) {
            if group > 0 {
                a.signals.push((group, signal));
            }
        }
        if !s.line.output.is_empty() {
            a.to_master |= Events::READABLE;
        }
        if !s.packet_mode {
            s.line.packet_status = 0;
        } else if s.line.packet_status != 0 {
            a.to_master |= Events::READABLE | Events::PRI;
        }
        if s.line.readable(Asks::Read) {
            a.to_slave |= Events::READABLE;
        }
        if !could_write && s.line.writable() {
            a.to_slave |= Events::WRITABLE;
        }
        if !had_room && s.line.room() > 0 {
            a.to_master |= Events::WRITABLE;
        }
        self.tell(s, a);
        r
    }

    fn tell(&self, s: MutexGuard<'_, State>, a: After) {
        drop(s);
        for (group, signal) in a.signals {
            self.jobs.signal_group(group, signal);
        }
        if !a.to_master.is_empty() {
            self.master_queue.notify(a.to_master);
        }
        if !a.to_slave.is_empty() {
            self.slave_queue.notify(a.to_slave);
        }
    }

    /// The session that it controls, if any.
    #[must_use]
    pub fn session(&self) -> Option<i32> {
        Some(self.state.lock().session).filter(|s| *s != 0)
    }
    /// The foreground process group, if any.
    #[must_use]
    pub fn foreground(&self) -> Option<i32> {
        Some(self.state.lock().foreground).filter(|s| *s != 0)
    }
    /// Makes it the controlling terminal of a session without one (for the Sentry's first process).
    pub fn adopt(&self, session: i32, group: i32) {
        let mut s = self.state.lock();
        s.session = session;
        s.foreground = group;
    }
    /// The session ended or gave it up.
    pub fn release_session(&self) {
        let mut s = self.state.lock();
        s.session = 0;
        s.foreground = 0;
    }
    /// Sets the window's size; SIGWINCH to the foreground if it changed.
    pub fn set_window(&self, window: [u16; 4]) {
        let group = {
            let mut s = self.state.lock();
            if s.window == window {
                return;
            }
            s.window = window;
            s.foreground
        };
        if group > 0 {
            self.jobs.signal_group(group, SIGWINCH);
        }
    }

    /// `tty_check_change`: what becomes of a caller that is in the background.
    pub(crate) fn check_background(self: &Arc<Pty>, task: &dyn Any, signal: Signal) -> Result<()> {
        let foreground = self.state.lock().foreground;
        if foreground == 0
            || !self
                .jobs
                .controlling(task)
                .is_some_and(|t| Arc::ptr_eq(&t, self))
        {
            return Ok(());
        }
        let p = self.jobs.process(task);
        if p.group == foreground {
            return Ok(());
        }
        if self.jobs.ignores(task, signal) {
            return if signal == SIGTTIN { Err(EIO) } else { Ok(()) };
        }
        if p.orphaned {
            return Err(EIO);
        }
        self.jobs.signal_group(p.group, signal);
        Err(ERESTARTSYS)
    }

    /// `tty_vhangup`: every open slave is dead from now on, and the session loses its terminal.
    pub fn hang_up(&self) {
        let (session, foreground) = {
            let mut s = self.state.lock();
            s.hangups += 1;
            s.line.flush_input();
            s.line.packet_status = 0;
            (
                std::mem::take(&mut s.session),
                std::mem::take(&mut s.foreground),
            )
        };
        if session != 0 {
            self.jobs.hang_up(session, foreground);
        }
        let all = Events::READABLE | Events::WRITABLE | Events::ERR | Events::HUP;
        self.slave_queue.notify(all);
        self.master_queue
            .notify(Events::READABLE | Events::WRITABLE);
    }
}

/// The master's open file. Dropping it hangs the terminal up.
pub struct Master {
    pty: Arc<Pty>,
}

impl Master {
    pub(crate) fn new(pty: Arc<Pty>) -> Arc<Master> {
        Arc::new(Master { pty })
    }
    #[must_use]
    pub fn pty(&self) -> &Arc<Pty> {
        &self.pty
    }

    /// Types: gives the number of bytes taken, 0 when the slave must read first.
    pub fn write_bytes(&self, bytes: &[u8]) -> usize {
        self.pty.change(|s| {
            let mut done = 0;
            while done < bytes.len() {
                let n = s.line.room().min(bytes.len() - done);
                if n == 0 {
                    break;
                }
                s.line.receive(&bytes[done..done + n]);
                done += n;
            }
            done
        })
    }

    /// Takes what the terminal shows: `EAGAIN` when there is nothing, `EIO` when no slave is open
    /// any more.
    pub fn read_bytes(&self, buf: &mut [u8]) -> Result<usize> {
        self.take(&mut vfs::file::BufSink::new(buf))
    }

    pub fn set_window_size(&self, rows: u16, columns: u16, x_pixels: u16, y_pixels: u16) {
        self.pty.set_window([rows, columns, x_pixels, y_pixels]);
    }

    /// Unlocks the slave, as unlockpt(3) does.
    pub fn unlock(&self) {
        self.pty.state.lock().locked = false;
    }

    fn take(&self, dst: &mut dyn Sink) -> Result<usize> {
        if dst.remaining() == 0 {
            return Ok(0);
        }
        self.pty.change(|s| {
            if s.packet_mode {
                let status = std::mem::take(&mut s.line.packet_status);
                if status != 0 {
                    return dst.put(&[status]);
                }
                if !s.line.output.is_empty() {
                    dst.put(&[0])?;
                    let n = s.line.output.pop_into(dst, usize::MAX).unwrap_or(0);
                    return Ok(n + 1);
                }
            } else if !s.line.output.is_empty() {
                return s.line.output.pop_into(dst, usize::MAX);
            }
            if s.slave_seen && s.slaves == 0 {
                Err(EIO)
            } else {
                Err(EAGAIN)
            }
        })
    }
}

impl FileOps for Master {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        self.take(dst)
    }
    fn write(&self, _: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        if src.remaining() == 0 {
            return Ok(0);
        }
        let mut done = 0;
        let mut buf = [0; 512];
        loop {
            {
                let s = self.pty.state.lock();
                if s.slave_seen && s.slaves == 0 && s.line.room() <= 1 {
                    return if done > 0 { Ok(done) } else { Err(EIO) };
                }
            }
            // The application's memory is not touched under the terminal's lock.
            let n = self.pty.state.lock().line.room().min(buf.len());
            let n = if n == 1 { buf.len() } else { n };
            if n == 0 {
                return if done > 0 { Ok(done) } else { Err(EAGAIN) };
            }
            let n = match src.take(&mut buf[..n]) {
                Ok(0) => return Ok(done),
                Ok(n) => n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            };
            self.pty.change(|s| s.line.receive(&buf[..n]));
            done += n;
        }
    }
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            mode: 0o020_666,
            nlink: 1,
            rdev: vfs::makedev(5, 2),
            blksize: 1024,
            ..Stat::default()
        })
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        let s = self.pty.state.lock();
        let mut e = Events::empty();
        if !s.line.output.is_empty() {
            e |= Events::READABLE;
        }
        if s.packet_mode && s.line.packet_status != 0 {
            e |= Events::READABLE | Events::PRI;
        }
        if s.line.room() > 0 {
            e |= Events::WRITABLE;
        }
        if s.slave_seen && s.slaves == 0 {
            e |= Events::HUP;
        }
        e & (mask | Events::ALWAYS)
    }
    fn can_splice(&self) -> bool {
        true
    }
    fn signals_owner(&self) -> bool {
        true
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.pty.master_queue)
    }
    fn ioctl(&self, file: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        ioctl::master(&self.pty, file, cx, cmd, arg)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "/dev/ptmx".into()
    }
    fn fdinfo(&self) -> String {
        format!("tty-index:\t{}\n", self.pty.index)
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.pty.state.lock().master_open = false;
        if let Some(r) = self.pty.registry.upgrade() {
            r.forget(self.pty.index);
        }
        self.pty.hang_up();
    }
}

/// One open file of the slave side.
pub struct Slave {
    pty: Arc<Pty>,
    /// `State::hangups` when it was opened.
    born: u64,
}

impl Slave {
    /// Counts an open slave; the caller has checked that it may be opened.
    pub(crate) fn new(pty: &Arc<Pty>) -> Arc<Slave> {
        let mut s = pty.state.lock();
        s.slaves += 1;
        s.slave_seen = true;
        Arc::new(Slave {
            pty: pty.clone(),
            born: s.hangups,
        })
    }
    #[must_use]
    pub fn pty(&self) -> &Arc<Pty> {
        &self.pty
    }
    fn is_dead(&self, s: &State) -> bool {
        s.hangups != self.born
    }

    /// Before a read: SIGTTIN (`ERESTARTSYS`) or `EIO` for a caller in the background.
    pub(crate) fn check_read(&self, task: &dyn Any) -> Result<()> {
        if self.is_dead(&self.pty.state.lock()) {
            return Ok(());
        }
        self.pty.check_background(task, SIGTTIN)
    }
    /// Before a write: SIGTTOU where TOSTOP is set.
    pub(crate) fn check_write(&self, task: &dyn Any) -> Result<()> {
        {
            let s = self.pty.state.lock();
            if self.is_dead(&s) || !s.line.termios.local(TOSTOP) {
                return Ok(());
            }
        }
        self.pty.check_background(task, SIGTTOU)
    }

    /// Reads what is there, or `EAGAIN`; at least `min` bytes (or as many as fit) in raw mode.
    fn read_some(&self, dst: &mut dyn Sink, min: usize) -> Result<usize> {
        let want = dst.remaining();
        if want == 0 {
            return Ok(0);
        }
        let (dead, bytes) = self.pty.change(|s| {
            if self.is_dead(s) {
                return (true, None);
            }
            let enough = s.line.termios.local(ICANON) || s.line.input.len() >= min.min(want).max(1);
            (
                false,
                (s.line.readable(Asks::Read) && enough).then(|| s.line.take(want)),
            )
        });
        match bytes {
            Some(b) if b.is_empty() => Ok(0),
            Some(b) => dst.put(&b),
            // A hung-up terminal reads as ended.
            None if dead => Ok(0),
            None => Err(EAGAIN),
        }
    }

    /// A blocking read with VMIN and VTIME (`termios(3)`). `ERESTARTSYS` when a signal comes first.
    pub(crate) fn read_blocking(&self, b: &dyn Blocker, dst: &mut dyn Sink) -> Result<usize> {
        let queue = [(&self.pty.slave_queue, Events::READABLE)];
        let (canonical, min, time) = {
            let s = self.pty.state.lock();
            let t = &s.line.termios;
            (
                t.local(ICANON),
                usize::from(t.cc[VMIN]),
                u64::from(t.cc[VTIME]),
            )
        };
        let time = Duration::from_millis(time * 100);
        if canonical || (min > 0 && time.is_zero()) {
            return block_until(b, &queue, None, || self.read_some(dst, min));
        }
        if min == 0 {
            // VTIME limits the wait for the first byte; without it there is no wait.
            let deadline = if time.is_zero() {
                Some(Instant::now())
            } else {
                deadline_after(time)
            };
            return match block_until(b, &queue, deadline, || self.read_some(dst, 1)) {
                Err(ETIMEDOUT) => Ok(0),
                r => r,
            };
        }
        // VTIME limits the wait between bytes, from the first on.
        let mut done = block_until(b, &queue, None, || self.read_some(dst, 1))?;
        while done < min && dst.remaining() > 0 {
            match block_until(b, &queue, deadline_after(time), || self.read_some(dst, 1)) {
                Ok(0) | Err(_) => break,
                Ok(n) => done += n,
            }
        }
        Ok(done)
    }
}

impl FileOps for Slave {
    fn read_as(&self, io: &Io<'_>, dst: &mut dyn Sink) -> Result<usize> {
        self.check_read(io.caller.task())?;
        if io.nonblocking {
            io.file.read(dst)
        } else {
            self.read_blocking(io.caller, dst)
        }
    }
    fn write_as(&self, io: &Io<'_>, src: &mut dyn Source) -> Result<usize> {
        self.check_write(io.caller.task())?;
        io.write_all(src)
    }
    fn read(&self, file: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        let min = {
            let s = self.pty.state.lock();
            let cc = &s.line.termios.cc;
            let raw = !s.line.termios.local(ICANON);
            if raw && cc[VMIN] == 0 && cc[VTIME] == 0 && s.line.input.is_empty() {
                return Ok(0);
            }
            if file.nonblocking() {
                1
            } else {
                usize::from(cc[VMIN])
            }
        };
        self.read_some(dst, min)
    }
    fn write(&self, _: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        let mut done = 0;
        let mut buf = [0; 2048];
        loop {
            let room = {
                let s = self.pty.state.lock();
                if self.is_dead(&s) {
                    return if done > 0 { Ok(done) } else { Err(EIO) };
                }
                if !s.line.writable() {
                    0
                } else {
                    s.line.write_room().max(WRITE_ROOM / 8)
                }
            };
            if src.remaining() == 0 {
                return Ok(done);
            }
            if room == 0 {
                return if done > 0 { Ok(done) } else { Err(EAGAIN) };
            }
            let n = match src.take(&mut buf[..room.min(2048)]) {
                Ok(0) => return Ok(done),
                Ok(n) => n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            };
            self.pty.change(|s| s.line.write(&buf[..n]));
            done += n;
        }
    }
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            ino: u64::from(self.pty.index) + 3,
            mode: 0o020_620,
            nlink: 1,
            gid: 5,
            rdev: vfs::makedev(136, self.pty.index),
            blksize: 1024,
            ..Stat::default()
        })
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        let s = self.pty.state.lock();
        let mut e = Events::empty();
        if self.is_dead(&s) {
            e = Events::READABLE | Events::WRITABLE | Events::ERR | Events::HUP;
        }
        if s.line.readable(Asks::Poll) {
            e |= Events::READABLE;
        }
        if s.line.writable() {
            e |= Events::WRITABLE;
        }
        e & (mask | Events::ALWAYS)
    }
    fn can_splice(&self) -> bool {
        true
    }
    fn signals_owner(&self) -> bool {
        true
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.pty.slave_queue)
    }
    fn ioctl(&self, file: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        let dead = self.is_dead(&self.pty.state.lock());
        if dead {
            return Err(if cmd == ioctl::TIOCSPGRP {
                abi::errno::ENOTTY
            } else {
                EIO
            });
        }
        ioctl::slave(&self.pty, file, cx, cmd, arg)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        format!("/dev/pts/{}", self.pty.index)
    }
}

impl Drop for Slave {
    fn drop(&mut self) {
        let last = {
            let mut s = self.pty.state.lock();
            s.slaves -= 1;
            if s.slaves == 0 {
                s.exclusive = false;
            }
            s.slaves == 0
        };
        if last {
            self.pty.master_queue.notify(Events::READABLE | Events::HUP);
        }
    }
}
