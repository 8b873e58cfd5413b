//! The processes of a sandbox, with placeholders for what they run: how they are confined, and that
//! the end of any of them is the end of all.
//!
//! Not run by libtest: a starter has one thread. Each case runs in a process of its own (this
//! program again), as this user and, where this is root, as nobody too.

use abi::errno::{EROFS, EXDEV};
use config::control::{Recipient, ToSentry, ToStarter};
use hostcall::{HostFd, file, path, process, sock, start as host};
use sandbox::{
    Access, Attendant, Ending, Error, GoferSide, Kernel, Outside, RootSpec, Running, SentrySide,
    Spec,
};
use std::convert::Infallible;
use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

static LANDLOCK: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
static ROOT: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
const NOBODY: u32 = 65534;
type Check = fn(&mut Run);
const CASES: &[(&str, Check)] = &[
    ("exit", |r| assert_eq!(r.end(), "program 7")),
    ("signal", |r| assert_eq!(r.end(), "program killed 15")),
    ("forward", |r| {
        r.line("ready");
        process::kill(r.child.id() as i32, libc::SIGUSR1).unwrap();
        assert_eq!(r.end(), "program 10");
    }),
    ("files", |r| assert_eq!(r.end(), "program 0")),
    ("error", |r| {
        assert_eq!(r.end(), "broken 125: no program, no [7m tricks");
    }),
    ("start-error", |r| {
        let end = r.end();
        assert!(
            end.starts_with("broken 125: the Gofer could not open /nowhere/x: "),
            "{end}"
        );
    }),
    ("sentry-panic", |r| {
        let end = r.end();
        assert!(end.starts_with("broken 70: the Sentry failed at "), "{end}");
        assert!(end.ends_with(": oh dear"), "{end}");
    }),
    ("gofer-panic", |r| {
        let end = r.end();
        assert!(end.starts_with("broken 70: the Gofer failed at "), "{end}");
    }),
    ("sentry-forbidden", |r| {
        let end = r.end();
        assert!(end.contains("the Sentry made a host call"), "{end}");
    }),
    ("gofer-forbidden", |r| {
        let end = r.end();
        assert!(end.contains("the Gofer made a host call"), "{end}");
    }),
    ("kill-sentry", |r| {
        let (sentry, _) = r.pids();
        process::kill(sentry, libc::SIGKILL).unwrap();
        let end = r.end();
        assert!(end.starts_with("broken 71: the Sentry was killed"), "{end}");
    }),
    ("kill-gofer", |r| {
        let (_, gofer) = r.pids();
        process::kill(gofer, libc::SIGKILL).unwrap();
        let end = r.end();
        assert!(end.starts_with("broken 71: the Gofer was killed"), "{end}");
    }),
    ("kill-starter", |r| {
        r.pids();
        r.child.kill().unwrap();
        assert_eq!(r.child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }),
    ("confined", confined),
];

/// A case's process.
struct Run {
    tag: String,
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    user: Option<u32>,
}

impl Run {
    fn start(case: &str, user: Option<u32>) -> Run {
        let tag = format!("{case}-{}-{}", std::process::id(), user.unwrap_or(0));
        let mut c = Command::new(std::env::current_exe().unwrap());
        c.arg("--case").arg(case).env("SANDBOX_TEST", &tag);
        c.stdout(Stdio::piped());
        if let Some(u) = user {
            c.uid(u).gid(u);
        }
        let mut child = c.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Run {
            tag,
            child,
            out,
            user,
        }
    }
    fn line(&mut self, want: &str) -> String {
        let mut l = String::new();
        self.out.read_line(&mut l).unwrap();
        assert!(l.starts_with(want), "{want}: {l}");
        l.trim_end().into()
    }
    fn pids(&mut self) -> (i32, i32) {
        // Said by the starter and by the Sentry, whichever comes first.
        let (l, other) = (self.line(""), self.line(""));
        let (l, other) = if other.starts_with("pids") {
            (other, l)
        } else {
            (l, other)
        };
        assert!(l.starts_with("pids") && other == "ready", "{l}, {other}");
        let mut n = l.split(' ').skip(1).map(|n| n.parse().unwrap());
        (n.next().unwrap(), n.next().unwrap())
    }
    /// The case's last line.
    fn end(&mut self) -> String {
        let mut last = String::new();
        for l in (&mut self.out).lines() {
            last = l.unwrap();
        }
        assert!(self.child.wait().unwrap().success());
        last
    }
    /// The processes that came from it.
    fn left(&self) -> Vec<i32> {
        let all = std::fs::read_dir("/proc").unwrap();
        all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid: &i32| {
                let env = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                let want = format!("SANDBOX_TEST={}\0", self.tag);
                env.windows(want.len()).any(|w| w == want.as_bytes())
            })
            .collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn field(pid: i32, name: &str) -> String {
    let s = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let l = s.lines().find(|l| l.starts_with(name)).unwrap();
    l[name.len() + 1..].trim().replace('\t', " ")
}

fn descriptors(pid: i32) -> Vec<i32> {
    let d = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut v: Vec<i32> = d
        .map(|e| e.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    v.sort_unstable();
    v
}

/// What the host shows of the two processes once they are confined. Only root may look.
fn confined(r: &mut Run) {
    let (sentry, gofer) = r.pids();
    let root = path::effective_ids().0 == 0;
    for pid in [sentry, gofer] {
        // The Sentry is ready; the Gofer may still be about to confine itself.
        let started = Instant::now();
        while field(pid, "Seccomp") != "2" && started.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(field(pid, "NoNewPrivs"), "1");
        assert_eq!(field(pid, "Seccomp"), "2");
    }
    assert_eq!(field(sentry, "CapEff"), "0000000000000000");
    assert_eq!(field(sentry, "CapPrm"), "0000000000000000");
    assert_eq!(field(sentry, "CapBnd"), "0000000000000000");
    assert!(field(sentry, "NSpid").ends_with(" 1"));
    if r.user.is_none() && root {
        assert_eq!(field(sentry, "Uid"), "65534 65534 65534 65534");
        assert_eq!(field(sentry, "Groups"), "");
        assert_eq!(field(gofer, "CapEff"), "0000000000000004");
        assert_eq!(field(gofer, "CapBnd"), "0000000000000000");
        let mut left = std::fs::read_dir(format!("/proc/{gofer}/root/")).unwrap();
        assert!(left.next().is_none());
    } else {
        assert_eq!(field(gofer, "CapEff"), "0000000000000000");
    }
    if root {
        let mut left = std::fs::read_dir(format!("/proc/{sentry}/root/")).unwrap();
        assert!(left.next().is_none());
        assert_eq!(descriptors(sentry), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(descriptors(gofer).len(), 6);
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        for ns in ["net", "mnt", "ipc", "uts", "pid", "cgroup", "user"] {
            let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{ns}")).unwrap();
            assert_ne!(of("self"), of(&sentry.to_string()), "{ns}");
        }
        let net = std::fs::read_link(format!("/proc/{gofer}/ns/net")).unwrap();
        assert_eq!(r.user.is_none(), net != ours);
    }
    r.child.kill().unwrap();
    r.child.wait().unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, case] = args.as_slice()
        && flag == "--case"
    {
        return as_starter(case);
    }
    let is_root = path::effective_ids().0 == 0;
    let users: &[Option<u32>] = if is_root {
        &[None, Some(NOBODY)]
    } else {
        &[None]
    };
    let wanted = args.get(1).filter(|a| !a.starts_with('-'));
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    for (name, check) in CASES {
        if wanted.is_some_and(|w| !name.contains(w.as_str())) {
            continue;
        }
        for user in users {
            let started = Instant::now();
            let mut run = Run::start(name, *user);
            check(&mut run);
            // The killed one takes the others with it.
            while !run.left().is_empty() {
                assert!(
                    started.elapsed() < Duration::from_secs(2),
                    "{name}: {:?}",
                    run.left()
                );
                std::thread::sleep(Duration::from_millis(5));
            }
            println!(
                "test {name} (user {user:?}) ... ok, {:?}",
                started.elapsed()
            );
        }
    }
    assert_eq!(before, mounts(), "mounts were left behind");
}

// ---- The other side: each case as a starter ----

fn as_starter(case: &str) {
    // A killed starter leaves its file; the next with that pid may be another user.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let name = format!("sandbox-test-{}-{}", std::process::id(), now.as_nanos());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, "seen").unwrap();
    let name = |p: &std::path::Path| CString::new(p.to_str().unwrap()).unwrap();
    let mut spec = Spec {
        roots: vec![RootSpec {
            path: c"/".into(),
            access: Access::ReadOnly,
            recursive: true,
        }],
        descriptors: vec![1],
        network: Outside::Nowhere,
        traces: false,
    };
    match case {
        "files" => spec.roots.push(RootSpec {
            path: name(&std::env::temp_dir()),
            access: Access::Writable,
            recursive: true,
        }),
        "start-error" => spec.roots.push(RootSpec {
            path: c"/nowhere/x".into(),
            access: Access::ReadOnly,
            recursive: true,
        }),
        _ => {}
    }
    LANDLOCK.get_or_init(hostcall::landlock::version);
    ROOT.get_or_init(|| path::effective_ids().0 == 0);
    let usr1 = host::SignalSet::default().with(libc::SIGUSR1);
    host::block_signals(usr1).unwrap();
    let signals = host::signalfd(usr1).unwrap();
    let (case1, case2) = (case.to_owned(), case.to_owned());
    let file2 = file.clone();
    let kernel = Kernel::Own {
        main: Box::new(move |s| Ok(sentry(&case2, s))),
        away: None,
    };
    let gofer = Box::new(move |g| Ok(gofer(&case1, &file2, g)));
    let running = sandbox::start::<Error>(&spec, gofer, kernel).unwrap();
    let (s, g) = running.pids();
    if case.starts_with("kill") || case == "confined" {
        println!("pids {s} {g}");
    }
    let ending = running.wait(&mut PassOn(signals));
    let _ = std::fs::remove_file(&file);
    match ending {
        Ending::Program { status, .. } => {
            let s = ExitStatus::from_raw(status);
            match s.code() {
                Some(c) => println!("program {c}"),
                None => println!("program killed {}", s.signal().unwrap()),
            }
        }
        Ending::Broken { text, exit } => println!("broken {exit}: {text}"),
    }
}

struct PassOn(HostFd);

impl Attendant for PassOn {
    fn poll(&mut self, fds: &mut Vec<libc::pollfd>) {
        fds.push(libc::pollfd {
            fd: self.0.raw(),
            events: libc::POLLIN,
            revents: 0,
        });
    }
    fn ready(&mut self, running: &Running, _: &[libc::pollfd]) {
        while let Ok(s) = host::next_signal(&self.0) {
            let _ = running.send_signal(s, Recipient::First);
        }
    }
}

fn say(fd: i32, kind: ToStarter, payload: &[u8]) {
    let mut m = kind.to_le_bytes().to_vec();
    m.extend_from_slice(payload);
    sock::send(fd, &m, &[]).unwrap();
}

fn sentry(case: &str, side: SentrySide) -> Infallible {
    let exit = |status: i32| -> ! {
        say(side.control.raw(), ToStarter::Exit, &status.to_le_bytes());
        process::exit_group(0)
    };
    let mut buf = [0u8; 64];
    if case == "sentry-panic" {
        panic!("oh dear");
    }
    // As the platform does: a process of its own, which must not outlive it.
    if case.starts_with("kill")
        && let host::Side::Child = host::clone_process(0).unwrap()
    {
        process::close_from(0).unwrap();
        loop {
            std::thread::sleep(Duration::from_secs(100));
        }
    }
    (side.seal)().unwrap();
    match case {
        "exit" => exit(7 << 8),
        "signal" => exit(15),
        "forward" => {
            file::write(side.descriptors[0].raw(), b"ready\n").unwrap();
            let (n, _) = sock::recv(side.control.raw(), &mut buf).unwrap();
            assert_eq!((n, &buf[..4]), (12, &ToSentry::Signal.to_le_bytes()[..]));
            exit(i32::from(buf[4]) << 8)
        }
        "files" => {
            let (n, _) = sock::recv(side.gofer.raw(), &mut buf).unwrap();
            exit(i32::from(&buf[..n] != b"fine") << 8)
        }
        "error" => {
            say(
                side.control.raw(),
                ToStarter::Error,
                b"no program, no\x1b[7m tricks\n",
            );
            process::exit_group(1)
        }
        "sentry-forbidden" => {
            let _ = std::fs::read("/etc/passwd");
            exit(0)
        }
        _ => {
            file::write(side.descriptors[0].raw(), b"ready\n").unwrap();
            // Does not look at its control socket: the host must end it.
            loop {
                std::thread::sleep(Duration::from_secs(100));
            }
        }
    }
}

fn gofer(case: &str, test_file: &std::path::Path, side: GoferSide) -> Infallible {
    assert!(side.max_descriptors >= 1024);
    (side.confine)().unwrap();
    let privileged = ROOT.get() == Some(&true);
    match case {
        "gofer-panic" => panic!("oh dear"),
        "gofer-forbidden" => {
            let _ = std::fs::read("/etc/passwd");
        }
        "files" => {
            files(test_file, &side.roots, privileged);
            sock::send(side.channel.raw(), b"fine", &[]).unwrap();
        }
        _ => {}
    }
    // Until the Sentry hangs up.
    let _ = sock::recv(side.channel.raw(), &mut [0u8; 8]);
    process::exit_group(0)
}

fn files(test_file: &std::path::Path, roots: &[(HostFd, Access)], privileged: bool) {
    let (root, temp) = (roots[0].0.raw(), roots[1].0.raw());
    assert_eq!(roots[0].1, Access::ReadOnly);
    let whole = CString::new(&test_file.to_str().unwrap()[1..]).unwrap();
    let name = CString::new(test_file.file_name().unwrap().to_str().unwrap()).unwrap();
    let mut buf = [0u8; 16];
    for (dir, name) in [(root, &whole), (temp, &name)] {
        let f = path::openat2(dir, name, libc::O_RDONLY as u64, 0, 0).unwrap();
        let n = file::read(f.raw(), &mut buf).unwrap();
        assert_eq!(&buf[..n], b"seen");
    }
    let rw = libc::O_RDWR as u64;
    path::openat2(temp, &name, rw, 0, 0).unwrap();
    let up = path::openat2(
        root,
        c"../etc",
        libc::O_PATH as u64,
        0,
        u64::from(abi::linux::RESOLVE_BENEATH),
    );
    assert_eq!(up.unwrap_err(), EXDEV);
    // Below a root that may be read, what may be written lies under another name.
    if privileged {
        assert_eq!(path::openat2(root, &whole, rw, 0, 0).unwrap_err(), EROFS);
    }
    if privileged || LANDLOCK.get() >= Some(&3) {
        path::openat2(root, c"etc/passwd", 0, 0, 0).unwrap();
        path::openat2(root, c"etc", libc::O_DIRECTORY as u64, 0, 0).unwrap();
        assert!(path::openat2(root, c"etc/passwd", rw, 0, 0).is_err());
        assert!(path::openat2(root, c"proc/version", 0, 0, 0).is_err());
        assert!(path::openat2(root, c"dev/null", 0, 0, 0).is_err());
    }
}
