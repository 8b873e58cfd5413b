//! Writing down what passes on devices: `--pcap FILE`.
//!
//! A process of its own has the file, and a packet socket for each device, by which the host shows
//! it each frame as it shows `tcpdump`. The Sentry has no part in it, and cannot keep a frame from
//! being seen.
//!
//! # What holds
//!
//! - Nobody waits for it: frames for which its sockets have no room ([`packet::WATCH_BUFFER`]) are
//!   lost, and counted by the host. The file says how many, at its end.
//! - The file grows to [`FILE_MOST`]; what comes later is counted with those. A program fills no
//!   disk.
//! - It has no capability, no file but that one, and an allow-list; all that it gets is hostile.
//! - It ends when what it watches ends: then it writes what has come by then.

mod pcapng;

use crate::privilege::{self as own, Namespaces, Standing};
use crate::spawn::{self, Who};
use crate::{Error, step};
use hostcall::table::Process;
use hostcall::{HostFd, RawFd, file, packet, process, time};
use pcapng::{Direction, Frame};
use std::convert::Infallible;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The longest frame.
const LONGEST: usize = (64 << 10) + 256;
/// How long the file gets, in bytes.
pub const FILE_MOST: u64 = 1 << 30;
/// Frames of a device in a turn.
const TURN: usize = 64;
/// Frames of a device that are still taken when all is over.
const LAST: usize = 1 << 16;

/// A device that is looked at.
#[derive(Debug)]
pub struct Tap {
    name: String,
    socket: HostFd,
}

/// Opens the sockets for devices of this thread's network namespace.
pub fn open<'a>(devices: impl Iterator<Item = (u32, &'a str)>) -> Result<Vec<Tap>, Error> {
    let open = |(index, name): (u32, &str)| {
        let socket = packet::watch(index);
        Ok(Tap {
            name: name.to_owned(),
            socket: step(&format!("look at the device {name}"), socket)?,
        })
    };
    devices.map(open).collect()
}

/// Whose end it waits for.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// The other end of this socket closes: that of the caller, which is its parent.
    Closed(RawFd),
    /// The process of this pidfd ends. The caller does not stay.
    Ended(RawFd),
}

/// Opens the file, which is written anew.
///
/// # Errors
///
/// It cannot be opened, or is something else than a file: who reads a pipe could stop the writer.
pub fn open_file(path: &Path) -> Result<OwnedFd, Error> {
    let failed = |e| Error::file(&format!("open {} for packets", path.display()), e);
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("it is not a file")));
    }
    Ok(file.into())
}

/// The process, while its starter runs.
#[derive(Debug)]
pub struct Writing {
    pid: i32,
    pidfd: HostFd,
}

impl Writing {
    /// Waits until it has written what has come; not for ever. The other end of what it watches is
    /// closed by then.
    pub fn finish(self) {
        const PATIENCE: i32 = 5_000;
        let mut fds = [libc::pollfd {
            fd: self.pidfd.raw(),
            events: libc::POLLIN,
            revents: 0,
        }];
        let _ = file::poll(&mut fds, PATIENCE);
        if fds[0].revents != 0 {
            let _ = process::wait(self.pid, 0);
        }
    }
}

/// Starts the process.
pub fn start(taps: &[Tap], file: &OwnedFd, until: Until) -> Result<Writing, Error> {
    let standing = Standing::of_caller()?;
    let null = spawn::null()?;
    let (word, stays) = match until {
        Until::Closed(fd) => (fd, Stays::WithCaller),
        Until::Ended(fd) => (fd, Stays::Alone),
    };
    let mut wanted = vec![word, file.as_raw_fd()];
    wanted.extend(taps.iter().map(|t| t.socket.raw()));
    let names: Vec<&str> = taps.iter().map(|t| t.name.as_str()).collect();
    let namespaces = Namespaces {
        needed: standing.broker_namespaces().needed,
        wished: 0,
    };
    let child = spawn::child(Who::Capture, namespaces, &null, &wanted, |fds| {
        run(standing, &names, fds, stays)
    })?;
    Ok(Writing {
        pid: child.pid,
        pidfd: child.pidfd,
    })
}

/// Whether it ends with its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stays {
    WithCaller,
    Alone,
}

fn run(
    standing: Standing,
    names: &[&str],
    fds: Vec<HostFd>,
    stays: Stays,
) -> Result<Infallible, Error> {
    let mut fds = fds.into_iter();
    let (Some(until), Some(file)) = (fds.next(), fds.next()) else {
        return Err(Error::NoDescriptors);
    };
    if stays == Stays::Alone {
        // Who started it may be waited for until its standard error closes.
        let null = spawn::null()?;
        for n in 1..3 {
            step("be silent", process::dup_onto(null.raw(), n)).map(HostFd::into_raw)?;
        }
    }
    own::leave_host(standing, 0)?;
    let locked = match stays {
        Stays::WithCaller => own::lock_down(Process::Capture, until.raw()),
        Stays::Alone => own::lock_down_alone(Process::Capture),
    };
    step("confine itself", locked)?;
    let mut writer = Writer {
        file,
        left_out: vec![0; names.len()],
        taps: fds.collect(),
        frame: vec![0; LONGEST],
        room: FILE_MOST,
        out: pcapng::head(names),
    };
    writer.serve(&until);
    process::exit_group(0)
}

struct Writer {
    file: HostFd,
    taps: Vec<HostFd>,
    /// Of each, the frames for which the file had no room.
    left_out: Vec<u64>,
    frame: Vec<u8>,
    /// Bytes that may still be written.
    room: u64,
    /// What is to be written.
    out: Vec<u8>,
}

impl Writer {
    fn serve(&mut self, until: &HostFd) {
        self.write();
        let all = std::iter::once(until).chain(&self.taps);
        let mut fds: Vec<libc::pollfd> = all
            .map(|fd| libc::pollfd {
                fd: fd.raw(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        loop {
            let _ = file::poll(&mut fds, -1);
            if fds[0].revents != 0 {
                break;
            }
            for (n, fd) in fds.iter().enumerate().skip(1) {
                if fd.revents != 0 {
                    self.take(n - 1, TURN);
                }
            }
            self.write();
        }
        for n in 0..self.taps.len() {
            self.take(n, LAST);
            let drops = self.lost(n);
            pcapng::statistics(&mut self.out, n as u32, now(), drops);
        }
        self.write();
    }

    /// Takes frames of a device, at most so many.
    fn take(&mut self, n: usize, most: usize) {
        let fd = self.taps[n].raw();
        for _ in 0..most {
            // (That the device is down, or gone, is told once.)
            let Ok(got) = packet::look(fd, &mut self.frame) else {
                return;
            };
            if self.room < (LONGEST + self.out.len()) as u64 {
                self.left_out[n] += 1;
                continue;
            }
            let kept = got.n.min(self.frame.len());
            pcapng::frame(
                &mut self.out,
                &Frame {
                    device: n as u32,
                    nanos: packet::time_of(&got.control).unwrap_or_else(now),
                    direction: match packet::is_outgoing(&got.from) {
                        true => Direction::Out,
                        false => Direction::In,
                    },
                    length: got.n,
                    bytes: &self.frame[..kept],
                },
            );
            if self.out.len() > LONGEST {
                self.write();
            }
        }
    }

    /// The frames for which a socket, or the file, had no room.
    fn lost(&self, n: usize) -> u64 {
        self.left_out[n] + u64::from(packet::drops(self.taps[n].raw()).unwrap_or(0))
    }

    /// Writes all that waits. What the file does not take, as the disk is full, is lost.
    fn write(&mut self) {
        self.room = self.room.saturating_sub(self.out.len() as u64);
        let mut left = &self.out[..];
        while !left.is_empty() {
            match file::write(self.file.raw(), left) {
                Ok(n) if n > 0 => left = &left[n..],
                Err(abi::errno::EINTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        self.out.clear();
    }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    u64::try_from(time::clock_nanos(libc::CLOCK_REALTIME)).unwrap_or(0)
}
