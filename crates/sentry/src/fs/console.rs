//! The person's terminal joined to a pty of the sandbox: two threads copy.

use crate::container::Console;
use abi::errno::{EAGAIN, EINTR};
use hostcall::HostFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tty::Master;
use vfs::file::FileOps;
use wait::{Events, Parker, Steady, block_until};

/// The joint.
pub struct HostConsole {
    master: Arc<Master>,
    /// Whether the last look found nothing more to show.
    idle: AtomicBool,
    /// The terminal is let go.
    stop: AtomicBool,
    /// Where the showing thread waits.
    parker: Arc<Parker>,
}

/// Starts the threads.
pub fn start(host: HostFd, master: Arc<Master>) -> Arc<HostConsole> {
    let c = Arc::new(HostConsole {
        master: master.clone(),
        idle: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        parker: Arc::default(),
    });
    // Open until both threads have ended: the last input is the hang-up of the host's terminal.
    let host = Arc::new(host);
    let (input, typed) = (c.clone(), host.clone());
    spawn("console-in", move || type_in(typed.raw(), &input));
    let shown = c.clone();
    spawn("console-out", move || show(host.raw(), &shown));
    c
}

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) {
    let _ = std::thread::Builder::new()
        .name(name.into())
        .stack_size(128 << 10)
        .spawn(f);
}

/// How often the input's thread looks whether the terminal is let go, in milliseconds.
const LOOK_EVERY: i32 = 100;

fn type_in(fd: i32, c: &HostConsole) {
    let mut buf = [0u8; 4096];
    loop {
        // Not in read(2): when the program has ended, what is typed next is somebody else's, and
        // who holds the other end must see the hang-up.
        let mut p = [libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }];
        let ready = hostcall::file::poll(&mut p, LOOK_EVERY);
        if c.stop.load(Ordering::SeqCst) {
            return;
        }
        if !matches!(ready, Ok(n) if n > 0) {
            continue;
        }
        let n = match hostcall::file::read(fd, &mut buf) {
            Ok(0) => return,
            Ok(n) => n,
            Err(EINTR | EAGAIN) => continue,
            Err(_) => return,
        };
        let mut rest = &buf[..n];
        while !rest.is_empty() {
            if c.stop.load(Ordering::SeqCst) {
                return;
            }
            let taken = c.master.write_bytes(rest);
            rest = &rest[taken..];
            if taken == 0 {
                // The program must read first.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn show(fd: i32, c: &HostConsole) {
    let me = Steady(c.parker.clone());
    let watched: Vec<_> = c
        .master
        .wait_queue()
        .map(|q| (q, Events::READABLE))
        .into_iter()
        .collect();
    let mut buf = [0u8; 4096];
    loop {
        // What comes, or nothing when it is to stop.
        let look = || match c.master.read_bytes(&mut buf) {
            Ok(n) if n > 0 => {
                c.idle.store(false, Ordering::SeqCst);
                Ok(n)
            }
            _ => {
                c.idle.store(true, Ordering::SeqCst);
                let stop = c.stop.load(Ordering::SeqCst);
                if stop { Ok(0) } else { Err(EAGAIN) }
            }
        };
        let until = Instant::now() + Duration::from_millis(500);
        match block_until(&me, &watched, Some(until), look) {
            Ok(0) => return,
            Ok(n) if put_out(fd, &buf[..n]).is_err() => return,
            _ => {}
        }
    }
}

/// Writes all of it to the host's terminal.
fn put_out(fd: i32, mut rest: &[u8]) -> abi::Result<()> {
    while !rest.is_empty() {
        match hostcall::file::write(fd, rest) {
            Ok(w) => rest = &rest[w..],
            Err(EINTR) => {}
            Err(EAGAIN) => {
                let mut p = [libc::pollfd {
                    fd,
                    events: libc::POLLOUT,
                    revents: 0,
                }];
                let _ = hostcall::file::poll(&mut p, -1);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl Console for HostConsole {
    fn drain(&self, limit: Duration) {
        let end = Instant::now() + limit;
        self.idle.store(false, Ordering::SeqCst);
        self.parker.unpark();
        while !self.idle.load(Ordering::SeqCst) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.stop.store(true, Ordering::SeqCst);
        self.parker.unpark();
    }
}
