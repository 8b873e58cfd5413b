//! Signals: they come to this process, as the sandbox has a session of its own, and go on to the
//! program.

use crate::stdio::RawMode;
use abi::Result;
use config::control::Recipient;
use hostcall::start::{self as host, SignalSet};
use hostcall::{HostFd, process, term};
use sandbox::{Attendant, Running};

/// Those that are not passed on: they cannot be caught, or they concern this process itself.
/// SIGTTOU is blocked, too: it would stop this process when it puts the terminal back.
const OWN: [i32; 13] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGPIPE,
    libc::SIGCHLD,
    libc::SIGURG,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Blocks them, and opens the descriptor that they are read from. What the caller ignores (`nohup`)
/// stays ignored.
pub fn open() -> Result<HostFd> {
    // A caller that ignores it would have our children's ends thrown away.
    host::set_default_action(libc::SIGCHLD)?;
    let set = (1..=64)
        .filter(|s| !OWN.contains(s) && !host::is_ignored(*s))
        .fold(SignalSet::default(), SignalSet::with);
    host::block_signals(set.with(libc::SIGTTOU))?;
    host::signalfd(set)
}

/// Passes signals on while a sandbox runs.
pub struct PassOn<'a> {
    pub signals: &'a HostFd,
    pub terminal: Option<&'a RawMode>,
}

impl Attendant for PassOn<'_> {
    fn poll(&mut self, fds: &mut Vec<libc::pollfd>) {
        fds.push(libc::pollfd {
            fd: self.signals.raw(),
            events: libc::POLLIN,
            revents: 0,
        });
    }
    fn ready(&mut self, running: &Running, _: &[libc::pollfd]) {
        while let Ok(s) = host::next_signal(self.signals) {
            arrived(running, self.terminal, s);
        }
    }
    fn note(&mut self, text: &str) {
        crate::complain(text);
    }
}

/// One came.
fn arrived(running: &Running, terminal: Option<&RawMode>, signal: i32) {
    match signal {
        libc::SIGWINCH => {
            if terminal.is_some()
                && let Ok((rows, cols)) = term::window(0)
            {
                let _ = running.send_window(rows, cols, 0);
            }
        }
        // The program stops, and so do we, for the shell to see; its SIGCONT wakes both.
        libc::SIGTSTP => {
            let _ = running.send_signal(signal, Recipient::First);
            let stop = || {
                let _ = process::kill(std::process::id() as i32, libc::SIGSTOP);
            };
            match terminal {
                Some(t) => t.pause(stop),
                None => stop(),
            }
        }
        s => {
            let _ = running.send_signal(s, Recipient::First);
        }
    }
}

/// Ends this process as `signal` ended the program, so that the caller sees what it would see
/// without a sandbox. Returns if that cannot be.
pub fn die_by(signal: i32) {
    // The program's core is none of ours.
    let _ = host::set_rlimit(libc::RLIMIT_CORE, 0, 0);
    let _ = process::prctl(libc::PR_SET_DUMPABLE, 0, 0);
    let _ = host::set_default_action(signal);
    let _ = process::kill(std::process::id() as i32, signal);
    // If it was blocked, it comes now.
    if (1..=64).contains(&signal) {
        let _ = host::unblock_signals(SignalSet::default().with(signal));
    }
}
