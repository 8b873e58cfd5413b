//! A client that has been taken over: whatever it sends, the server answers or ends, nothing
//! outside its roots or in a read-only one changes or is handed out, and what it holds stays
//! bounded.

use crate::line::{BUFFER, Line};
use crate::proto::{Access, Handle, Reply, Request, WalkPurpose};
use crate::sample::{Sample, Samples};
use crate::server::{Root, Server, Writable};
use crate::wire::{MAX_CLOSES, MIN_CONNECTIONS};
use abi::Result;
use hostcall::{HostFd, sock};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One at a time: they look at this process's descriptors.
static ALONE: Mutex<()> = Mutex::new(());

/// A writable root, one that is not, and a neighbour that is nobody's.
struct Host {
    base: PathBuf,
    conns: Vec<Line>,
    server: Option<JoinHandle<()>>,
    buf: Vec<u8>,
}

/// Sends bytes, and receives what comes back.
fn exchange(conn: &Line, message: &[u8], buf: &mut [u8]) -> (Result<Reply>, Vec<HostFd>) {
    conn.send(message).unwrap();
    if Request::decode(message).is_ok_and(|(r, _)| r.brings_fd()) {
        let (reply, fds) = conn.receive_with(buf).unwrap();
        (Reply::decode(reply), fds)
    } else {
        (Reply::decode(conn.receive(buf).unwrap()), Vec::new())
    }
}

impl Host {
    fn new() -> Host {
        static N: AtomicU32 = AtomicU32::new(0);
        let n = N.fetch_add(1, Ordering::Relaxed);
        let base = std::env::temp_dir().join(format!("gofer-attack-{}-{n}", std::process::id()));
        for d in ["rw/dir/sub", "ro/dir", "out/dir"] {
            std::fs::create_dir_all(base.join(d)).unwrap();
        }
        for f in ["rw/f", "rw/dir/f", "ro/f", "out/f", "out/dir/f"] {
            std::fs::write(base.join(f), f).unwrap();
        }
        for d in ["rw", "ro"] {
            symlink("../out", base.join(d).join("up")).unwrap();
            symlink(base.join("out"), base.join(d).join("abs")).unwrap();
            symlink("/proc/self/root", base.join(d).join("magic")).unwrap();
        }
        let root = |name: &str, w| {
            let path = CString::new(base.join(name).as_os_str().as_bytes()).unwrap();
            Root::open(name, &path, w).unwrap()
        };
        let roots = vec![root("rw", Writable::Yes), root("ro", Writable::No)];
        let server = Server::new(roots, 512).unwrap();
        let (ours, theirs) = sock::seqpacket_pair().unwrap();
        let server = std::thread::spawn(move || server.serve(theirs).unwrap());
        let mut buf = vec![0; BUFFER + 100];
        let conns = Line::from_fds(sock::recv(ours.raw(), &mut buf).unwrap().1);
        assert!(conns.len() >= MIN_CONNECTIONS);
        Host {
            base,
            conns,
            server: Some(server),
            buf,
        }
    }

    fn raw(&mut self, conn: usize, message: &[u8]) -> (Result<Reply>, Vec<HostFd>) {
        exchange(&self.conns[conn], message, &mut self.buf)
    }

    fn ask(&mut self, r: &Request) -> (Result<Reply>, Vec<HostFd>) {
        // Names to look at afterwards are checked, too.
        let also = [&b".."[..], b"dir/f", b"f", b"a\0b"].map(<[u8]>::to_vec);
        let (reply, fds) = self.raw(0, &r.encode_with(&[], &also));
        let odd = reply.as_ref().is_ok_and(|reply| !r.is_answered_by(reply));
        assert!(!odd, "{}: {reply:?}", r.name());
        (reply, fds)
    }

    fn attach(&mut self, name: &str) -> Handle {
        let root = name.as_bytes().to_vec();
        match self.ask(&Request::Attach { root }).0 {
            Ok(Reply::Node { handle, .. }) => handle,
            r => panic!("{r:?}"),
        }
    }

    /// What may not change.
    fn untouched(&self) -> Vec<(PathBuf, u32, u64, i64)> {
        let mut all = Vec::new();
        let mut todo = vec![self.base.join("ro"), self.base.join("out")];
        while let Some(p) = todo.pop() {
            let m = std::fs::symlink_metadata(&p).unwrap();
            all.push((p.clone(), m.mode(), m.ino(), m.ctime_nsec() ^ m.ctime()));
            if m.is_dir() {
                todo.extend(std::fs::read_dir(&p).unwrap().map(|e| e.unwrap().path()));
            }
        }
        all.sort();
        all
    }

    /// A descriptor that was given is of a file below a root.
    fn belongs(&self, fd: &HostFd, writes: bool) {
        let at = std::fs::read_link(format!("/proc/self/fd/{}", fd.raw())).unwrap();
        let below = |r: &str| at.starts_with(self.base.join(r));
        assert!(below("rw") || below("ro"), "{}", at.display());
        assert!(!(writes && below("ro")), "{}", at.display());
    }

    /// The server ends once nobody holds its connections.
    fn end(mut self) {
        self.conns.clear();
        let server = self.server.take().unwrap();
        let started = Instant::now();
        while !server.is_finished() {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "the server hangs"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        server.join().unwrap();
        std::fs::remove_dir_all(&self.base).unwrap();
    }
}

/// Of this process, for what lies below a directory: other tests have descriptors of their own.
fn descriptors(below: &std::path::Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|e| std::fs::read_link(e.ok()?.path()).ok())
        .filter(|target| target.starts_with(below))
        .count()
}

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A walk to a file that is to be read.
fn walk(from: Handle, names: &[&str]) -> Request {
    Request::Walk {
        from,
        names: names.iter().map(|n| n.as_bytes().to_vec()).collect(),
        siblings: Vec::new(),
        then: WalkPurpose::Read,
    }
}

/// Not so odd that the test could not clean up.
fn tame(r: &mut Request) {
    use Request::*;
    match r {
        Create { new, .. } | Mkdir { new, .. } | Mknod { new, .. } | TmpFile { new, .. } => {
            new.mode |= 0o700;
        }
        SetAttr { attr, .. } => attr.mode = attr.mode.map(|m| m | 0o700),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(96)
    ))]

    #[test]
    fn any_sequence_stays_below_the_roots(
        all in vec(vec(any::<u64>(), 1..24), 1..60)
    ) {
        let _alone = alone();
        let mut host = Host::new();
        let before = host.untouched();
        let (rw, ro) = (host.attach("rw"), host.attach("ro"));
        let mut handles = vec![rw, ro];
        for numbers in &all {
            let known = &handles[..handles.len().min(12)];
            let mut r = Request::sample(&mut Samples::new(numbers, known));
            tame(&mut r);
            let (reply, given) = host.ask(&r);
            let opens = matches!(r, Request::Open { access: Access::Read, .. });
            let reads = opens || matches!(r, Request::Walk { .. });
            for fd in &given {
                host.belongs(fd, !reads);
            }
            match reply {
                Ok(Reply::Node { handle, .. }) => handles.push(handle),
                Ok(Reply::Walked { steps, .. }) => handles.extend(steps.iter().map(|s| s.handle)),
                _ => {}
            }
        }
        // Every file that a handle was given for lies below a root; its path may be gone.
        for h in handles {
            if let (Ok(_), fds) = host.ask(&Request::Open { file: h, access: Access::Read }) {
                fds.iter().for_each(|fd| host.belongs(fd, false));
            }
        }
        prop_assert_eq!(before, host.untouched());
        host.end();
    }

    #[test]
    fn any_bytes_get_an_answer(messages in vec(
        (vec(any::<u8>(), 1..400), any::<bool>()), 1..40)) {
        let _alone = alone();
        let mut host = Host::new();
        let before = host.untouched();
        for (i, (bytes, framed)) in messages.iter().enumerate() {
            let mut m = bytes.clone();
            if *framed {
                // The right version, and no handles to close or names to look at: the operation is
                // looked at.
                m.splice(0..0, [1, 0, 0, 0, 0]);
            }
            let _ = host.raw(i % MIN_CONNECTIONS, &m);
        }
        prop_assert!(host.ask(&Request::Nop).0.is_ok());
        prop_assert_eq!(before, host.untouched());
        host.end();
    }
}

#[test]
fn descriptors_and_handles_are_bounded() {
    let _alone = alone();
    let mut host = Host::new();
    let base = host.base.clone();
    let file = std::fs::File::open(base.join("out/f")).unwrap();
    let bomb = [std::os::fd::AsRawFd::as_raw_fd(&file); sock::MAX_FDS];
    let open = descriptors(&base);
    for i in 0..2000 {
        let _ = sock::try_send(host.conns[i % MIN_CONNECTIONS].fds()[2], b"x", &bomb);
        let r = host.raw(i % MIN_CONNECTIONS, &Request::Nop.encode(&[])).0;
        assert!(r.is_ok());
    }
    assert_eq!(
        descriptors(&base),
        open,
        "nobody takes what a client passes"
    );
    // Handles up to the limit, and not one descriptor more.
    let mut held = 0;
    let root = host.attach("rw");
    loop {
        match host.ask(&walk(root, &["dir", "sub"])).0 {
            Ok(Reply::Walked { steps, .. }) if !steps.is_empty() => held += steps.len(),
            _ => break,
        }
        assert!(held < 1000);
    }
    assert!(descriptors(&base) <= open + 512);
    // All closes there are, of handles that are not: no harm.
    let closes: Vec<Handle> = (0..MAX_CLOSES as u64)
        .map(|i| Handle(u64::MAX - i))
        .collect();
    assert!(host.raw(0, &Request::Nop.encode(&closes)).0.is_ok());
    let too_many = vec![Handle(1); MAX_CLOSES + 1];
    assert!(host.raw(0, &Request::Nop.encode(&too_many)).0.is_err());
    host.end();
    drop(file);
    assert_eq!(descriptors(&base), 0, "everything goes with the server");
}

#[test]
fn a_client_that_never_reads_stops_only_itself() {
    let _alone = alone();
    let mut host = Host::new();
    let root = host.attach("rw");
    let message = Request::ReadDir {
        dir: root,
        cookie: 0,
    }
    .encode(&[]);
    // Until the server's thread waits for us, or has given this connection up.
    let flood = host.conns.remove(1);
    std::thread::spawn(move || while flood.send(&message).is_ok() {});
    std::thread::sleep(Duration::from_millis(300));
    // The other connections go on; so does what the table guards.
    assert!(host.ask(&Request::GetAttr { file: root }).0.is_ok());
    assert!(host.ask(&walk(root, &["dir"])).0.is_ok());
    host.end();
}

/// One connection exchanges a directory with a link out, others walk through it.
#[test]
fn exchanged_links_lead_nowhere() {
    let _alone = alone();
    let mut host = Host::new();
    let before = host.untouched();
    let root = host.attach("rw");
    let secret = std::fs::metadata(host.base.join("out/dir/f"))
        .unwrap()
        .ino();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let swapper = host.conns.pop().unwrap();
    let mut walkers = vec![host.conns.pop().unwrap(), host.conns.pop().unwrap()];
    let swap = Request::Rename {
        dir: root,
        name: b"dir".to_vec(),
        new_dir: root,
        new_name: b"abs".to_vec(),
        flags: libc::RENAME_EXCHANGE,
    };
    let outcomes = Mutex::new([0u32; 3]);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut buf = vec![0; BUFFER];
            while !stop.load(Ordering::Relaxed) {
                let _ = exchange(&swapper, &swap.encode(&[]), &mut buf);
            }
        });
        let walks: Vec<_> = walkers
            .iter()
            .map(|conn| {
                s.spawn(|| {
                    let mut buf = vec![0; BUFFER];
                    for _ in 0..4000 {
                        let m = walk(root, &["dir", "f"]);
                        let reply = exchange(conn, &m.encode(&[]), &mut buf).0;
                        let Ok(Reply::Walked { steps, .. }) = reply else {
                            continue;
                        };
                        assert!(steps.iter().all(|s| s.attr.stat.ino != secret), "outside");
                        let link = steps.first().is_some_and(|s| s.target.is_some());
                        assert!(!(link && steps.len() > 1), "through a link");
                        outcomes.lock().unwrap()[if link { 0 } else { steps.len().min(2) }] += 1;
                        let closes: Vec<Handle> = steps.iter().map(|s| s.handle).collect();
                        exchange(conn, &Request::Nop.encode(&closes), &mut buf)
                            .0
                            .unwrap();
                    }
                })
            })
            .collect();
        walks.into_iter().for_each(|w| w.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    let [links, _, files] = *outcomes.lock().unwrap();
    assert!(links > 0 && files > 0, "never exchanged: {links} {files}");
    assert_eq!(before, host.untouched());
    walkers.clear();
    drop(swapper);
    host.end();
}

/// Roots are by name; there is no other way in.
#[test]
fn attaching() {
    let _alone = alone();
    let mut host = Host::new();
    for name in ["", "/", "out", "../out", "rw/../../out", "rw\0", "RW", "2"] {
        let root = name.as_bytes().to_vec();
        assert!(host.ask(&Request::Attach { root }).0.is_err(), "{name:?}");
    }
    let rw = host.attach("rw");
    for guess in [0, 1, rw.0 + 1, rw.0 ^ 1 << 32, u64::MAX] {
        let file = Handle(guess);
        assert!(host.ask(&Request::GetAttr { file }).0.is_err(), "{guess:x}");
    }
    host.end();
}
