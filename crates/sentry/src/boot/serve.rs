//! The main thread's work once the kernel runs: what the starter asks for.
//!
//! Nothing that can wait for a file or a task is done on this thread: signals must always get through.

use super::config::{Census, CensusProcess, ExecSpec, Stdio, control};
use super::launch::{self, Launch};
use super::{Failure, changes, or};
use crate::kernel::Kernel;
use abi::errno::EINTR;
use abi::{SigInfo, Signal};
use hostcall::HostFd;
use std::sync::Arc;
use vfs::FsContext;

/// The longest body that is read from a descriptor.
const BODY_MAX: usize = 16 << 20;

/// Serves until the end; gives the reason.
pub fn serve(kernel: &Arc<Kernel>, mut held: Option<Launch>) -> String {
    let mut m = [0u8; 2048];
    let mut fds =
        [kernel.control.raw(), kernel.platform.end().unwrap_or(-1)].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
    loop {
        if hostcall::file::poll(&mut fds, -1) == Err(EINTR) {
            continue;
        }
        if fds[1].revents != 0 {
            return "a process that the sandbox needs was killed: the sandbox has ended".into();
        }
        let (n, given) = match hostcall::sock::recv(kernel.control.raw(), &mut m) {
            Ok((0, _)) => {
                // The starter is gone; nobody waits for us.
                hostcall::process::exit_group(72)
            }
            Ok(r) => r,
            Err(EINTR) => continue,
            Err(e) => return format!("the starter cannot be heard: {e}"),
        };
        let word = |at: usize| {
            (n >= at + 4).then(|| u32::from_le_bytes(m[at..at + 4].try_into().expect("4")))
        };
        let number = word(4).unwrap_or(0);
        match word(0) {
            Some(control::WINDOW) => {
                let process = word(8).unwrap_or(0);
                kernel.resize_terminal(process as i32, number as u16, (number >> 16) as u16);
            }
            Some(control::SIGNAL) => {
                if let Some(s) = Signal::new(number as i32) {
                    signal(kernel, s, word(8).unwrap_or(0));
                }
            }
            Some(control::START) => {
                if let Some(first) = held.take()
                    && let Err(e) = first.start()
                {
                    return e.text;
                }
            }
            Some(control::PIDS_LIMIT) => kernel.set_task_limit(number),
            Some(control::PAUSE) => {
                kernel.freeze();
                done(kernel, number, 0);
            }
            Some(control::RESUME) => {
                kernel.thaw();
                done(kernel, number, 0);
            }
            Some(control::EXEC) => {
                aside(kernel, number, move |k| {
                    let first = execute(k, given)?;
                    let pid = first.pid() as u32;
                    // Before its end can be told.
                    done(k, number, pid);
                    if first.start().is_err() {
                        k.tell_end_of_exec(pid as i32, 0x7e00);
                    }
                    Ok(None)
                });
            }
            Some(control::CHANGES) => {
                aside(kernel, number, move |k| {
                    let c = k.container().ok_or("the container is not ready")?;
                    if c.overlay.is_none() {
                        return Err("the container writes to its root directory itself: its changes are there".into());
                    }
                    let out = given.first().ok_or("there is nowhere to write to")?;
                    or(changes::write(c, out), "write the changes")?;
                    Ok(Some(0))
                });
            }
            Some(control::CENSUS) => {
                aside(kernel, number, move |k| {
                    let body = serde_json::to_vec(&census(k)).map_err(|e| e.to_string())?;
                    for fd in &given {
                        or(write_all(fd, &body), "write the census")?;
                    }
                    Ok(Some(0))
                });
            }
            Some(kind) => {
                if kind >= control::START {
                    refuse(kernel, number, "this version does not know that request");
                }
            }
            None => {}
        }
    }
}

fn done(kernel: &Kernel, number: u32, result: u32) {
    let mut m = number.to_le_bytes().to_vec();
    m.extend_from_slice(&result.to_le_bytes());
    kernel.tell_starter(control::DONE, &m);
}

fn refuse(kernel: &Kernel, number: u32, why: &str) {
    let mut m = number.to_le_bytes().to_vec();
    m.extend_from_slice(&why.as_bytes()[..why.len().min(1024)]);
    kernel.tell_starter(control::REFUSED, &m);
}

/// Does it on a thread of its own; `Some` result is told.
fn aside<F>(kernel: &Arc<Kernel>, number: u32, f: F)
where
    F: FnOnce(&Arc<Kernel>) -> core::result::Result<Option<u32>, Failure> + Send + 'static,
{
    let k = kernel.clone();
    let made = std::thread::Builder::new()
        .name("request".into())
        .stack_size(512 << 10)
        .spawn(move || {
            k.guard(|| match f(&k) {
                Ok(Some(r)) => done(&k, number, r),
                Ok(None) => {}
                Err(e) => refuse(&k, number, &e.text),
            });
        });
    if made.is_err() {
        refuse(kernel, number, "no more threads can be made");
    }
}

fn signal(kernel: &Arc<Kernel>, s: Signal, target: u32) {
    let groups: Vec<_> = {
        let l = kernel.tasks.lock();
        match target {
            control::ALL => l.processes().map(|p| p.group.clone()).collect(),
            0 => l.group(1).into_iter().collect(),
            n => l.group(n as i32).into_iter().collect(),
        }
    };
    for g in groups {
        // These two are obeyed from outside also by a process 1.
        match s {
            abi::signal::SIGKILL => kernel.kill_group(&g, s.number()),
            abi::signal::SIGSTOP => kernel.stop_group(&g, s),
            _ => {}
        }
        let _ = kernel.send_to_group(&g, SigInfo::new(s, abi::signal::SI_USER));
    }
}

/// Prepares what `exec` asks for.
fn execute(kernel: &Arc<Kernel>, given: Vec<HostFd>) -> core::result::Result<Launch, Failure> {
    let mut given = given.into_iter();
    let body = given.next().ok_or("the request has no body")?;
    let body = or(read_all(&body), "read the request")?;
    let spec: ExecSpec =
        serde_json::from_slice(&body).map_err(|e| format!("the request is not understood: {e}"))?;
    let stdio = match spec.terminal {
        Some((rows, cols)) => Stdio::Terminal {
            host: given.next().ok_or("the request has no terminal")?,
            rows,
            cols,
            stderr: None,
        },
        None => Stdio::Inherited(
            spec.streams
                .map(|there| if there { given.next() } else { None }),
        ),
    };
    let preserved = given.take(spec.preserved as usize).collect();
    let container = kernel.container().ok_or("the container is not ready")?;
    let fs = FsContext::new(&container.mounts);
    launch::prepare(kernel, fs, spec.process, stdio, preserved)
}

fn read_all(fd: &HostFd) -> abi::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buf = vec![0u8; 64 << 10];
    loop {
        match hostcall::file::pread(fd.raw(), &mut buf, all.len() as u64)? {
            0 => return Ok(all),
            n if all.len() + n > BODY_MAX => return Err(abi::errno::E2BIG),
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

fn write_all(fd: &HostFd, mut bytes: &[u8]) -> abi::Result<()> {
    while !bytes.is_empty() {
        match hostcall::file::write(fd.raw(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn census(kernel: &Arc<Kernel>) -> Census {
    let groups: Vec<_> = {
        let l = kernel.tasks.lock();
        l.processes()
            .filter(|p| p.zombie.is_none())
            .map(|p| (p.group.clone(), p.parent, p.sid, p.threads.len() as u32))
            .collect()
    };
    // Seconds since the Epoch when CLOCK_BOOTTIME was 0.
    let epoch = (hostcall::time::clock_nanos(libc::CLOCK_REALTIME)
        - hostcall::time::clock_nanos(libc::CLOCK_BOOTTIME))
        / 1_000_000_000;
    let mut c = Census {
        memory: kernel.clas.stats().resident * abi::PAGE_SIZE,
        ..Census::default()
    };
    for (g, ppid, sid, threads) in groups {
        let cpu = kernel.cpu_time(&g).total();
        c.cpu += cpu;
        c.threads += u64::from(threads);
        let Some(t) = kernel.tasks.lock().some_thread(g.tgid) else {
            continue;
        };
        let tty = kernel
            .terminals
            .of_session(sid)
            .map_or_else(|| "?".into(), |p| format!("pts/{}", p.index));
        c.processes.push(CensusProcess {
            pid: g.tgid,
            ppid,
            uid: t.cred().euid,
            threads,
            cpu,
            start: epoch + t.start / 1_000_000_000,
            tty,
            command: crate::fs::proc::command_line(&t),
        });
    }
    c
}
