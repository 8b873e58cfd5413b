//! A program's streams: containerd's FIFOs, and a terminal joined to them.
//!
//! Without a terminal the program has the FIFOs themselves, and no byte passes the shim. What the
//! shim does is hold the other ends, as containerd's clients expect: its reading end of an output,
//! so that a client may leave and come back, and its writing end of the input, so that the program
//! sees the end of its input only after `CloseIO`. A client whose input ends before `Create` is
//! answered has nothing yet to close: it only goes. So the writing end is opened when the program
//! is about to run, and only if no client came and went.
//!
//! With a terminal, two threads copy between the FIFOs and the terminal's master, until its other
//! end is gone or the process is deleted.

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::helper::Program;

/// How long a terminal's last output is waited for.
const DRAIN: Duration = Duration::from_secs(2);

/// The streams that a client asks for, in containerd's words.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StdioRequest {
    pub terminal: bool,
    pub stdin: String,
    pub stdout: String,
    pub stderr: String,
}

/// What the shim holds for a process.
#[derive(Debug)]
pub struct Io {
    /// Holds standard input open for clients until the program does.
    input: Option<OwnedFd>,
    /// Its end of standard input.
    stdin: Option<OwnedFd>,
    input_over: bool,
    stdin_path: PathBuf,
    _readers: Vec<OwnedFd>,
    console: Option<Console>,
    terminal: Option<Terminal>,
}

#[derive(Debug)]
struct Console {
    listener: UnixListener,
    path: PathBuf,
    /// A name for it that is short enough, by this process's descriptor of the directory.
    short: PathBuf,
    _dir: std::fs::File,
}

#[derive(Debug)]
struct Terminal {
    master: Arc<OwnedFd>,
    /// Closes when its last output is copied.
    drained: Receiver<()>,
    /// Its end ends the copying.
    _end: OwnedFd,
}

/// A stream's path: a plain one, or a URI.
fn path(uri: &str) -> Result<PathBuf, String> {
    match uri.split_once("://") {
        None | Some(("fifo" | "file", _)) => {
            let path = uri.split_once("://").map_or(uri, |(_, p)| p);
            let path = path.split('?').next().unwrap_or_default();
            if path.is_empty() || path.starts_with('/') {
                return Ok(path.into());
            }
            Err(format!("{uri:?} is not an absolute path"))
        }
        Some((scheme, _)) => Err(format!(
            "a stream by {scheme}:// is not supported: give a path or file://"
        )),
    }
}

fn is_fifo(p: &Path) -> bool {
    rustix::fs::stat(p).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Fifo)
}

fn open(p: &Path, flags: OFlags) -> Result<OwnedFd, String> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    rustix::fs::open(p, flags, Mode::from_raw_mode(0o600))
        .map_err(|e| format!("could not open {}: {e}", p.display()))
}

/// Where a terminal's output goes: a FIFO, a log file, which is continued, or nowhere.
fn open_output(p: &Path) -> Result<OwnedFd, String> {
    if p.as_os_str().is_empty() {
        return open(Path::new("/dev/null"), OFlags::WRONLY);
    }
    // The shim's own reading end of a FIFO is open: this does not wait.
    open(p, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
}

impl Io {
    /// Opens the shim's ends; `dir` takes the console's socket, by a short name.
    pub fn prepare(s: &StdioRequest, dir: &Path, name: &str) -> Result<(Io, Program), String> {
        let files = [path(&s.stdin)?, path(&s.stdout)?, path(&s.stderr)?];
        let mut readers = Vec::new();
        for f in files[1..].iter().filter(|f| is_fifo(f)) {
            readers.push(open(f, OFlags::RDONLY)?);
        }
        let input = is_fifo(&files[0])
            .then(|| open(&files[0], OFlags::RDONLY))
            .transpose()?;
        let mut io = Io {
            input,
            stdin: None,
            input_over: false,
            stdin_path: files[0].clone(),
            _readers: readers,
            console: None,
            terminal: None,
        };
        let input_given = io.input.is_some();
        if !s.terminal {
            return Ok((
                io,
                Program {
                    files,
                    input_given,
                    console: None,
                },
            ));
        }
        let console = Console::new(dir, name)?;
        let program = Program {
            files,
            input_given: false,
            console: Some(console.short.clone()),
        };
        io.console = Some(console);
        Ok((io, program))
    }

    /// The program's standard input, if it is a FIFO: this same open file, which knows of writers
    /// that have gone.
    pub fn program_input(&self) -> Result<Option<OwnedFd>, String> {
        let input = self.input.as_ref().filter(|_| self.console.is_none());
        let copy = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let failed = |e| format!("could not hand over standard input: {e}");
        input.map(copy).transpose().map_err(failed)
    }

    /// Before the program runs.
    pub fn admit(&mut self) {
        let Some(input) = self.input.as_ref().filter(|_| !self.input_over) else {
            return;
        };
        let mut fds = [PollFd::new(input, PollFlags::IN)];
        let now = rustix::event::Timespec::default();
        let polled = rustix::event::poll(&mut fds, Some(&now));
        if polled.is_ok() && !fds[0].revents().contains(PollFlags::HUP) {
            self.stdin = open(&self.stdin_path, OFlags::WRONLY).ok();
        }
    }

    /// Once the program runs: with no reader but the program, clients see its end.
    pub fn running(&mut self) {
        self.input = None;
    }

    /// Once the program has its ends: joins its terminal.
    pub fn join_terminal(&mut self, p: &Program) -> Result<(), String> {
        if let Some(c) = self.console.take() {
            self.admit();
            self.terminal = Some(Terminal::new(c.receive()?, self.input.take(), &p.files[1])?);
        }
        Ok(())
    }

    /// No more input after what was written.
    pub fn close_stdin(&mut self) {
        self.input_over = true;
        self.stdin = None;
    }

    pub fn resize(&self, rows: u16, cols: u16) -> Result<(), String> {
        let Some(t) = &self.terminal else {
            return Ok(());
        };
        let size = rustix::termios::Winsize {
            ws_row: rows,
            ws_col: cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&*t.master, size)
            .map_err(|e| format!("could not resize the terminal: {e}"))
    }

    /// Waits a while for the last output of a program that has ended.
    pub fn finish(self) {
        if let Some(t) = &self.terminal {
            let _ = t.drained.recv_timeout(DRAIN);
        }
    }
}

impl Console {
    fn new(dir: &Path, name: &str) -> Result<Console, String> {
        let wrong = |e: std::io::Error| format!("could not make a console socket: {e}");
        // A socket's name has 107 bytes, a bundle's path may have more.
        let fd = std::fs::File::open(dir).map_err(wrong)?;
        let short = format!("/proc/{}/fd/{}/{name}", std::process::id(), fd.as_raw_fd());
        let short = PathBuf::from(short);
        let _ = std::fs::remove_file(dir.join(name));
        let listener = UnixListener::bind(&short).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        Ok(Console {
            listener,
            path: dir.join(name),
            short,
            _dir: fd,
        })
    }

    /// The master that was handed over before the helper answered.
    fn receive(&self) -> Result<OwnedFd, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("could not take over the terminal: {e}");
        let (s, _) = self.listener.accept().map_err(|e| wrong(&e))?;
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut text = [0; 64];
        let mut into = [std::io::IoSliceMut::new(&mut text)];
        rustix::net::recvmsg(&s, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
            .map_err(|e| wrong(&e))?;
        let mut given = control.drain().filter_map(|m| match m {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        given.next().ok_or_else(|| wrong(&"none came"))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Terminal {
    fn new(master: OwnedFd, input: Option<OwnedFd>, output: &Path) -> Result<Terminal, String> {
        let wrong = |e: Errno| format!("could not join the terminal: {e}");
        rustix::io::ioctl_fionbio(&master, true).map_err(wrong)?;
        let (stop, end) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(wrong)?;
        let (master, stop) = (Arc::new(master), Arc::new(stop));
        let to = open_output(output)?;
        let (done, drained): (Sender<()>, _) = channel();
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.into())
                .spawn(work)
                .map_err(|e| format!("could not join the terminal: {e}"))
        };
        let (m, s) = (Arc::clone(&master), Arc::clone(&stop));
        start(
            "terminal-out",
            Box::new(move || {
                pump(&*m, &to, &s);
                drop(to);
                drop(done);
            }),
        )?;
        if let Some(from) = input {
            let (m, s) = (Arc::clone(&master), stop);
            start("terminal-in", Box::new(move || pump(&from, &*m, &s)))?;
        }
        Ok(Terminal {
            master,
            drained,
            _end: end,
        })
    }
}

/// Waits for one descriptor; false when it is to stop.
fn ready(fd: BorrowedFd<'_>, what: PollFlags, stop: &OwnedFd) -> bool {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(fd, what),
            PollFd::new(stop, PollFlags::empty()),
        ];
        match rustix::event::poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) => return fds[1].revents().is_empty(),
        }
    }
}

/// Copies until the source ends, the sink is gone, or `stop` closes.
fn pump(from: impl std::os::fd::AsFd, to: impl std::os::fd::AsFd, stop: &OwnedFd) {
    let mut buf = vec![0; 16 << 10];
    // Also while data flows: a program that never stops writing does not keep its thread.
    while ready(from.as_fd(), PollFlags::IN, stop) {
        let n = match rustix::io::read(&from, &mut buf) {
            Ok(0) => return,
            Ok(n) => n,
            Err(Errno::INTR | Errno::AGAIN) => continue,
            // EIO: the terminal's other end is closed.
            Err(_) => return,
        };
        let mut rest = &buf[..n];
        while !rest.is_empty() {
            match rustix::io::write(&to, rest) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if ready(to.as_fd(), PollFlags::OUT, stop) => {}
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(path("").unwrap(), Path::new(""));
        assert_eq!(path("/a/b").unwrap(), Path::new("/a/b"));
        assert_eq!(
            path("file:///var/log/x?y=1").unwrap(),
            Path::new("/var/log/x")
        );
        for bad in ["a/b", "binary:///bin/logger", "file://host/x", "npipe://x"] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pumps_until_told() {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let ((from, feed), (out, to), (stop, end)) = (pipe(), pipe(), pipe());
        rustix::io::write(&feed, b"text").unwrap();
        let t = std::thread::spawn(move || pump(from, to, &stop));
        let mut buf = [0; 8];
        while rustix::io::read(&out, &mut buf) != Ok(4) {
            std::thread::yield_now();
        }
        assert_eq!(&buf[..4], b"text");
        drop(end);
        t.join().unwrap();
        assert_eq!(rustix::io::read(&out, &mut buf), Ok(0));
        drop(feed);
    }

    #[test]
    fn stops_while_data_flows() {
        let zero = open(Path::new("/dev/zero"), OFlags::RDONLY).unwrap();
        let null = open_output(Path::new("")).unwrap();
        let (stop, end) = rustix::pipe::pipe().unwrap();
        let t = std::thread::spawn(move || pump(zero, null, &stop));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!t.is_finished());
        drop(end);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !t.is_finished() {
            assert!(std::time::Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn terminals_have_log_files() {
        let at = std::env::temp_dir().join(format!("shim-log-{}", std::process::id()));
        for part in [b"one ", b"two "] {
            let (_stop, end) = rustix::pipe::pipe().unwrap();
            let (from, feed) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&feed, part).unwrap();
            drop(feed);
            pump(from, open_output(&at).unwrap(), &_stop);
            drop(end);
        }
        assert_eq!(std::fs::read_to_string(&at).unwrap(), "one two ");
        std::fs::remove_file(&at).unwrap();
    }
}
