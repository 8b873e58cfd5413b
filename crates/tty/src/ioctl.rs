//! Terminals' ioctls (`tty_ioctl(2)`, `ioctl_tty(2)`).
//!
//! Most of them mean the slave's settings, whichever side they are called on.

use crate::line::packet;
use crate::pty::Pty;
use crate::termios::{TERMIOS_SIZE, TERMIOS2_SIZE, Termios, VSTART, VSTOP};
use abi::errno::{EINVAL, EIO, ENOTTY, EPERM, ESRCH};
use abi::signal::{SIGCONT, SIGHUP, SIGTTOU};
use abi::{Result, Signal, Va};
use std::sync::Arc;
use vfs::file::IoctlContext;
use vfs::{Caps, File};

const TCGETS: u32 = 0x5401;
const TCSETS: u32 = 0x5402;
const TCSETSF: u32 = 0x5404;
const TCGETA: u32 = 0x5405;
const TCSETA: u32 = 0x5406;
const TCSETAF: u32 = 0x5408;
const TCSBRK: u32 = 0x5409;
const TCXONC: u32 = 0x540A;
const TCFLSH: u32 = 0x540B;
const TIOCEXCL: u32 = 0x540C;
const TIOCNXCL: u32 = 0x540D;
const TIOCSCTTY: u32 = 0x540E;
const TIOCGPGRP: u32 = 0x540F;
pub const TIOCSPGRP: u32 = 0x5410;
const TIOCOUTQ: u32 = 0x5411;
const TIOCSTI: u32 = 0x5412;
const TIOCGWINSZ: u32 = 0x5413;
const TIOCSWINSZ: u32 = 0x5414;
const TIOCGSOFTCAR: u32 = 0x5419;
const TIOCSSOFTCAR: u32 = 0x541A;
const FIONREAD: u32 = 0x541B;
const TIOCPKT: u32 = 0x5420;
const TIOCNOTTY: u32 = 0x5422;
const TIOCSETD: u32 = 0x5423;
const TIOCGETD: u32 = 0x5424;
const TCSBRKP: u32 = 0x5425;
const TIOCSBRK: u32 = 0x5427;
const TIOCCBRK: u32 = 0x5428;
const TIOCGSID: u32 = 0x5429;
const TCGETS2: u32 = 0x802C_542A;
const TCSETS2: u32 = 0x402C_542B;
const TCSETSF2: u32 = 0x402C_542D;
const TIOCGPTN: u32 = 0x8004_5430;
const TIOCSPTLCK: u32 = 0x4004_5431;
const TIOCSIG: u32 = 0x4004_5436;
const TIOCVHANGUP: u32 = 0x5437;
const TIOCGPKT: u32 = 0x8004_5438;
const TIOCGPTLCK: u32 = 0x8004_5439;
const TIOCGEXCL: u32 = 0x8004_5440;

/// `struct termio`'s size, and how many control characters it has.
const TERMIO_SIZE: usize = 17;
const NCC: usize = 8;

/// Which side the call came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Master,
    Slave,
}

struct Call<'a> {
    pty: &'a Arc<Pty>,
    side: Side,
    file: &'a File,
    cx: &'a dyn IoctlContext,
    arg: u64,
}

pub fn master(
    pty: &Arc<Pty>,
    file: &File,
    cx: &dyn IoctlContext,
    cmd: u32,
    arg: u64,
) -> Result<u64> {
    let c = Call {
        pty,
        side: Side::Master,
        file,
        cx,
        arg,
    };
    match cmd {
        TIOCGPTN => c.put(pty.index as i32),
        TIOCSPTLCK => {
            let locked = c.get()? != 0;
            pty.state.lock().locked = locked;
            Ok(0)
        }
        TIOCGPTLCK => c.put(i32::from(pty.state.lock().locked)),
        TIOCPKT => {
            let on = c.get()? != 0;
            let mut s = pty.state.lock();
            if on && !s.packet_mode {
                s.line.packet_status = 0;
            }
            s.packet_mode = on;
            Ok(0)
        }
        TIOCGPKT => c.put(i32::from(pty.state.lock().packet_mode)),
        TIOCSIG => {
            let signal = Signal::new(arg as i32).ok_or(EINVAL)?;
            let group = pty.foreground();
            if let Some(g) = group {
                pty.jobs.signal_group(g, signal);
            }
            Ok(0)
        }
        _ => c.common(cmd),
    }
}

pub fn slave(
    pty: &Arc<Pty>,
    file: &File,
    cx: &dyn IoctlContext,
    cmd: u32,
    arg: u64,
) -> Result<u64> {
    Call {
        pty,
        side: Side::Slave,
        file,
        cx,
        arg,
    }
    .common(cmd)
}

impl Call<'_> {
    fn put(&self, v: i32) -> Result<u64> {
        self.cx.copy_out(Va(self.arg), &v.to_le_bytes())?;
        Ok(0)
    }
    fn get(&self) -> Result<i32> {
        let mut b = [0; 4];
        self.cx.copy_in(Va(self.arg), &mut b)?;
        Ok(i32::from_le_bytes(b))
    }
    fn admin(&self) -> bool {
        self.cx.credentials().has(Caps::SYS_ADMIN)
    }
    /// A change by a caller in the background: SIGTTOU.
    fn check_change(&self) -> Result<()> {
        self.pty.check_background(self.cx.task(), SIGTTOU)
    }
    /// Whether it is the caller's controlling terminal.
    fn controls_caller(&self) -> bool {
        let t = self.pty.jobs.controlling(self.cx.task());
        t.is_some_and(|t| Arc::ptr_eq(&t, self.pty))
    }

    /// A `struct termio`.
    fn get_termio(&self) -> Result<u64> {
        let t = self.pty.state.lock().line.termios;
        let mut v = Vec::with_capacity(TERMIO_SIZE + 1);
        for f in [t.iflag, t.oflag, t.cflag, t.lflag] {
            v.extend_from_slice(&(f as u16).to_le_bytes());
        }
        v.push(t.line);
        v.extend_from_slice(&t.cc[..NCC]);
        v.push(0);
        self.cx.copy_out(Va(self.arg), &v).map(|()| 0)
    }

    /// Bytes that a read of this side gets.
    fn unread(&self) -> usize {
        let s = self.pty.state.lock();
        match self.side {
            Side::Slave => s.line.available(),
            Side::Master => s.line.output.len(),
        }
    }

    fn session(&self) -> Result<u64> {
        if self.side == Side::Slave && !self.controls_caller() {
            return Err(ENOTTY);
        }
        let session = self.pty.session().ok_or(ENOTTY)?;
        self.put(self.pty.jobs.number_for(self.cx.task(), session))
    }

    fn common(&self, cmd: u32) -> Result<u64> {
        let out = Va(self.arg);
        match cmd {
            TCGETS | TCGETS2 => {
                let size = if cmd == TCGETS {
                    TERMIOS_SIZE
                } else {
                    TERMIOS2_SIZE
                };
                let t = self.pty.state.lock().line.termios.encode(size);
                self.cx.copy_out(out, &t).map(|()| 0)
            }
            TCGETA => self.get_termio(),
            // …W waits for the output to drain, which a pty's has once it is written; …F drops the
            // input too.
            TCSETS..=TCSETSF => self.set_termios(TERMIOS_SIZE, cmd == TCSETSF),
            TCSETS2..=TCSETSF2 => self.set_termios(TERMIOS2_SIZE, cmd == TCSETSF2),
            TCSETA..=TCSETAF => self.set_termio(cmd == TCSETAF),
            TIOCGWINSZ => {
                let w = self.pty.state.lock().window;
                let b: Vec<u8> = w.iter().flat_map(|n| n.to_le_bytes()).collect();
                self.cx.copy_out(out, &b).map(|()| 0)
            }
            TIOCSWINSZ => {
                let mut b = [0; 8];
                self.cx.copy_in(out, &mut b)?;
                let n = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
                self.pty.set_window([n(0), n(2), n(4), n(6)]);
                Ok(0)
            }
            FIONREAD => self.put(self.unread() as i32),
            // A pty's output is delivered at once.
            TIOCOUTQ => self.put(0),
            TCSBRK | TCSBRKP | TIOCSBRK | TIOCCBRK => self.check_change().map(|()| 0),
            TCXONC => self.flow(),
            TCFLSH => self.flush(),
            TIOCEXCL => {
                self.pty.state.lock().exclusive = true;
                Ok(0)
            }
            TIOCNXCL => {
                self.pty.state.lock().exclusive = false;
                Ok(0)
            }
            TIOCGEXCL => self.put(i32::from(self.pty.state.lock().exclusive)),
            TIOCGETD => self.put(0),
            TIOCSETD => {
                self.check_change()?;
                if self.get()? == 0 { Ok(0) } else { Err(EINVAL) }
            }
            TIOCGSOFTCAR => self.put(0),
            TIOCSSOFTCAR => self.get().map(|_| 0),
            TIOCSTI => self.insert(),
            TIOCVHANGUP => {
                if !self.admin() {
                    return Err(EPERM);
                }
                self.pty.hang_up();
                Ok(0)
            }
            TIOCSCTTY => self.set_controlling(),
            TIOCNOTTY => self.no_tty(),
            TIOCGPGRP => {
                let group = self.foreground_if_ours()?;
                self.put(self.pty.jobs.number_for(self.cx.task(), group))
            }
            TIOCSPGRP => self.set_foreground(),
            TIOCGSID => self.session(),
            _ => Err(ENOTTY),
        }
    }

    fn apply(&self, new: Termios, flush: bool) {
        self.pty.change(|s| {
            if flush {
                s.line.flush_input();
            }
            s.line.set_termios(new);
        });
    }

    fn set_termios(&self, size: usize, flush: bool) -> Result<u64> {
        self.check_change()?;
        let mut b = [0; TERMIOS2_SIZE];
        self.cx.copy_in(Va(self.arg), &mut b[..size])?;
        let old = self.pty.state.lock().line.termios;
        self.apply(Termios::decode(&b[..size], &old)?, flush);
        Ok(0)
    }

    fn set_termio(&self, flush: bool) -> Result<u64> {
        self.check_change()?;
        let mut b = [0; TERMIO_SIZE];
        self.cx.copy_in(Va(self.arg), &mut b)?;
        let old = self.pty.state.lock().line.termios;
        let low = |at: usize, old: u32| {
            (old & !0xffff) | u32::from(u16::from_le_bytes([b[at], b[at + 1]]))
        };
        let mut new = Termios {
            iflag: low(0, old.iflag),
            oflag: low(2, old.oflag),
            cflag: low(4, old.cflag),
            lflag: low(6, old.lflag),
            line: b[8],
            ..old
        };
        new.cc[..NCC].copy_from_slice(&b[9..17]);
        self.apply(new, flush);
        Ok(0)
    }

    fn flow(&self) -> Result<u64> {
        self.check_change()?;
        let master = self.side == Side::Master;
        self.pty.change(|s| {
            match self.arg {
                // TCOOFF, TCOON
                0 => {
                    s.line.stop();
                    s.line.tco_stopped = true;
                }
                1 => {
                    s.line.tco_stopped = false;
                    s.line.start();
                }
                // TCIOFF, TCION: the other side is asked by its flow-control character.
                n @ (2 | 3) => {
                    let c = s.line.termios.cc[if n == 2 { VSTOP } else { VSTART }];
                    if c != 0 && master {
                        s.line.receive(&[c]);
                    } else if c != 0 {
                        s.line.output.push(&[c]);
                    }
                }
                _ => return Err(EINVAL),
            }
            Ok(0)
        })
    }

    fn flush(&self) -> Result<u64> {
        self.check_change()?;
        let (mut input, mut output) = match self.arg {
            0 => (true, false),
            1 => (false, true),
            2 => (true, true),
            _ => return Err(EINVAL),
        };
        if self.side == Side::Master {
            std::mem::swap(&mut input, &mut output);
        }
        self.pty.change(|s| {
            if input {
                s.line.flush_input();
            }
            if output {
                s.line.flush_output();
            }
            if self.side == Side::Master {
                s.line.packet_status &= !(packet::FLUSHREAD | packet::FLUSHWRITE);
            }
        });
        Ok(0)
    }

    /// TIOCSTI: since Linux 6.2 for the privileged alone.
    fn insert(&self) -> Result<u64> {
        if !self.admin() {
            return Err(EIO);
        }
        let mut b = [0; 1];
        self.cx.copy_in(Va(self.arg), &mut b)?;
        self.pty.change(|s| match self.side {
            Side::Slave if s.line.room() > 0 => s.line.receive(&b),
            Side::Master => s.line.output.push(&b),
            Side::Slave => {}
        });
        Ok(0)
    }

    fn set_controlling(&self) -> Result<u64> {
        let (jobs, task) = (&self.pty.jobs, self.cx.task());
        let p = jobs.process(task);
        let session = self.pty.session();
        if p.leader && session == Some(p.session) {
            return Ok(0);
        }
        if !p.leader || jobs.controlling(task).is_some() {
            return Err(EPERM);
        }
        if let Some(other) = session {
            // Only the privileged may steal it.
            if self.arg != 1 || !self.admin() {
                return Err(EPERM);
            }
            jobs.clear_session(other);
        }
        if !self.file.readable() && !self.admin() {
            return Err(EPERM);
        }
        self.pty.adopt(p.session, p.group);
        jobs.set_controlling(task, Some(self.pty.clone()));
        Ok(0)
    }

    fn no_tty(&self) -> Result<u64> {
        if self.side == Side::Master || !self.controls_caller() {
            return Err(ENOTTY);
        }
        let (jobs, task) = (&self.pty.jobs, self.cx.task());
        let p = jobs.process(task);
        if p.leader {
            let foreground = self.pty.foreground();
            self.pty.release_session();
            if let Some(g) = foreground {
                jobs.signal_group(g, SIGHUP);
                jobs.signal_group(g, SIGCONT);
            }
            jobs.clear_session(p.session);
        }
        jobs.set_controlling(task, None);
        Ok(0)
    }

    /// The foreground group; the slave's only for those whom it controls.
    fn foreground_if_ours(&self) -> Result<i32> {
        if self.side == Side::Slave && !self.controls_caller() {
            return Err(ENOTTY);
        }
        Ok(self.pty.foreground().unwrap_or(0))
    }

    fn set_foreground(&self) -> Result<u64> {
        self.check_change()?;
        let (jobs, task) = (&self.pty.jobs, self.cx.task());
        let p = jobs.process(task);
        if !self.controls_caller() || self.pty.session() != Some(p.session) {
            return Err(ENOTTY);
        }
        let group = self.get()?;
        if group < 0 {
            return Err(EINVAL);
        }
        let group = jobs.number_from(task, group);
        match jobs.session_of(group) {
            None => return Err(ESRCH),
            Some(s) if s != p.session => return Err(EPERM),
            Some(_) => {}
        }
        self.pty.state.lock().foreground = group;
        Ok(0)
    }
}
