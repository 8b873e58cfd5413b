//! A server and its client.

mod kernel_fs;
mod messages;

use crate::client::Client;
use crate::line::Line;
use crate::proto::{Access, Handle, Reply, Request, Step, WalkPurpose};
use crate::server::{Root, Server, Writable};
use crate::wire::Hello;
use abi::attr::{NewNode, Perm, SetAttr};
use abi::errno::*;
use hostcall::{HostFd, file, sock};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// A directory of the host that goes at the end.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Temp {
        static N: AtomicU32 = AtomicU32::new(0);
        let n = N.fetch_add(1, Ordering::Relaxed);
        let p = std::env::temp_dir().join(format!("gofer-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&p).unwrap();
        Temp(p)
    }
    fn with_tree() -> Temp {
        let dir = Temp::new();
        std::fs::create_dir_all(dir.0.join("a/b")).unwrap();
        std::fs::write(dir.0.join("a/b/f"), b"text").unwrap();
        std::os::unix::fs::symlink("b/f", dir.0.join("a/l")).unwrap();
        dir
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(dir: &Path, writable: Writable) -> (HostFd, JoinHandle<()>) {
    let path = CString::new(dir.as_os_str().as_bytes()).unwrap();
    let root = Root::open("root", &path, writable).unwrap();
    let server = Server::new(vec![root], 1024).unwrap();
    let (ours, theirs) = sock::seqpacket_pair().unwrap();
    let t = std::thread::spawn(move || server.serve(theirs).unwrap());
    (ours, t)
}

fn client(dir: &Path, writable: Writable) -> (Arc<Client>, JoinHandle<()>) {
    let (ours, t) = start(dir, writable);
    (Client::connect(&ours, Box::new(|| {})).unwrap(), t)
}

fn walk(
    c: &Client,
    from: Handle,
    names: Vec<Vec<u8>>,
) -> abi::Result<(Vec<Step>, Option<abi::Errno>)> {
    let w = c.walk(from, names, Vec::new(), WalkPurpose::Nothing)?;
    assert!(w.fd.is_none(), "nobody asked for it");
    Ok((w.steps, w.stopped))
}
fn names(s: &str) -> Vec<Vec<u8>> {
    s.split('/').map(|n| n.as_bytes().to_vec()).collect()
}

const NEW: NewNode = NewNode {
    mode: 0o644,
    uid: u32::MAX,
    gid: u32::MAX,
};

#[test]
fn a_walk_brings_a_descriptor_for_reading() {
    let dir = Temp::with_tree();
    let (c, server) = client(&dir.0, Writable::No);
    let (_, root, _) = c.attach("root").unwrap();
    let fd = |path: &str| {
        c.walk(root, names(path), Vec::new(), WalkPurpose::Read)
            .unwrap()
            .fd
    };
    let f = fd("a/b/f").expect("a regular file");
    let mut buf = [0; 64];
    let n = file::pread(f.raw(), &mut buf, 0).unwrap();
    assert_eq!(&buf[..n], b"text");
    let written = file::pwrite(f.raw(), b"x", 0);
    assert_eq!(written, Err(EBADF), "for reading alone");
    for other in ["a/b", "a/l", "a/none", "a/b/f/x"] {
        assert!(fd(other).is_none(), "{other}");
    }
    drop(c);
    server.join().unwrap();
}

#[test]
fn a_tree_of_the_host() {
    let dir = Temp::with_tree();
    std::os::unix::fs::symlink("/etc/passwd", dir.0.join("out")).unwrap();
    let (c, server) = client(&dir.0, Writable::Yes);
    assert_eq!(c.attach("other").err(), Some(ENOENT));
    let (attr, root, writable) = c.attach("root").unwrap();
    assert!(writable);
    assert_eq!(attr.stat.mode & libc::S_IFMT, libc::S_IFDIR);

    let (steps, stop) = walk(&c, root, names("a/b/f")).unwrap();
    assert_eq!((steps.len(), stop), (3, None));
    let f = steps[2].handle;
    assert_eq!(steps[2].attr.stat.size, 4);
    let fd = c.open(f, Access::Read).unwrap().0;
    let mut b = [0; 8];
    assert_eq!(file::pread(fd.raw(), &mut b, 0), Ok(4));
    assert_eq!(&b[..4], b"text");
    assert!(file::pwrite(fd.raw(), b"x", 0).is_err());

    // Links are given, never followed.
    let (steps, stop) = walk(&c, root, names("a/l/x")).unwrap();
    assert_eq!((steps.len(), stop), (2, None));
    assert_eq!(steps[1].target.as_deref(), Some(&b"b/f"[..]));
    assert_eq!(c.open(steps[1].handle, Access::Read).err(), Some(ENXIO));
    assert_eq!(c.readlink(steps[1].handle), Ok(b"b/f".to_vec()));
    let (steps, _) = walk(&c, root, names("out/x")).unwrap();
    assert_eq!(steps.len(), 1);
    for bad in ["..", ".", "", "a\0b"] {
        assert_eq!(
            walk(&c, root, vec![bad.as_bytes().to_vec()]).unwrap().1,
            Some(EINVAL),
            "{bad:?}"
        );
    }
    assert_eq!(
        walk(&c, root, vec![b"a/b".to_vec()]).unwrap().1,
        Some(EINVAL)
    );
    assert_eq!(walk(&c, root, names("a/none/x")).unwrap().1, Some(ENOENT));
    assert_eq!(walk(&c, f, names("x")).err(), Some(ENOTDIR));

    // Changes.
    let (made, fd) = c.create(root, b"new", NEW).unwrap();
    let g = made.handle;
    assert_eq!(file::pwrite(fd.raw(), b"hello", 0), Ok(5));
    assert_eq!(c.create(root, b"new", NEW).err(), Some(EEXIST));
    assert_eq!(c.get_attr(g).unwrap().stat.size, 5);
    let set = SetAttr {
        mode: Some(0o600),
        size: Some(2),
        mtime: Some(7),
        ..SetAttr::default()
    };
    let a = c.set_attr(g, set).unwrap().stat;
    assert_eq!((a.mode & 0o7777, a.size, a.mtime), (0o600, 2, 7));
    let d = c
        .mkdir(
            root,
            b"dir",
            NewNode {
                mode: 0o1777,
                ..NEW
            },
        )
        .unwrap()
        .handle;
    assert_eq!(c.get_attr(d).unwrap().stat.mode & 0o7777, 0o1777);
    c.link(g, d, b"second").unwrap();
    assert_eq!(c.get_attr(g).unwrap().stat.nlink, 2);
    c.rename(root, b"new", d, b"moved", 0).unwrap();
    c.symlink(d, b"sym", b"anything", NEW).unwrap();
    c.mknod(
        d,
        b"fifo",
        NewNode {
            mode: libc::S_IFIFO | 0o600,
            ..NEW
        },
    )
    .unwrap();
    assert_eq!(
        c.mknod(
            d,
            b"dev",
            NewNode {
                mode: libc::S_IFCHR,
                ..NEW
            }
        )
        .err(),
        Some(EPERM)
    );
    let mut all = Vec::new();
    let mut at = 0;
    loop {
        let (list, next, end) = c.read_dir(d, at).unwrap();
        all.extend(list.into_iter().map(|e| String::from_utf8(e.name).unwrap()));
        at = next;
        if end {
            break;
        }
    }
    all.sort();
    assert_eq!(all, ["fifo", "moved", "second", "sym"]);
    assert_eq!(c.rmdir(root, b"dir"), Err(ENOTEMPTY));
    for n in all {
        c.unlink(d, n.as_bytes()).unwrap();
    }
    c.rmdir(root, b"dir").unwrap();
    // A file without a name can still be opened.
    assert!(c.open(g, Access::ReadWrite).is_ok());
    c.sync(root).unwrap();
    assert!(c.stat_fs(root).unwrap().bsize > 0);
    c.close(g);
    c.attach("root").unwrap();
    assert_eq!(c.get_attr(g).err(), Some(EBADF));
    drop(c);
    server.join().unwrap();
}

/// What a change was decided by is not so any more: it is refused, and decided again.
#[test]
fn a_change_by_what_was_is_refused() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = Temp::with_tree();
    let (c, server) = client(&dir.0, Writable::Yes);
    let (_, root, _) = c.attach("root").unwrap();
    let (steps, _) = walk(&c, root, names("a/b/f")).unwrap();
    let (f, before) = (steps[2].handle, steps[2].attr.stat.perm());
    let chmod = |mode, before| {
        let attr = SetAttr {
            mode: Some(mode),
            seen: Some(before),
            ..SetAttr::default()
        };
        c.set_attr(f, attr).map(|a| a.stat.perm())
    };
    let path = dir.0.join("a/b/f");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let other = Perm {
        uid: before.uid + 1,
        mode: 0o600,
        ..before
    };
    for old in [before, other] {
        assert_eq!(chmod(0o4755, old), Err(EBUSY));
    }
    let mode = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
    assert_eq!(mode(), 0o600);
    let now = Perm {
        mode: 0o600,
        ..before
    };
    let new = Perm {
        mode: 0o4755,
        ..before
    };
    assert_eq!(chmod(0o4755, now), Ok(new));
    assert_eq!(mode(), 0o4755);
    drop(c);
    server.join().unwrap();
}

#[test]
fn read_only_roots_and_limits() {
    let dir = Temp::new();
    std::fs::write(dir.0.join("f"), b"").unwrap();
    let (c, _server) = client(&dir.0, Writable::No);
    let (_, root, writable) = c.attach("root").unwrap();
    assert!(!writable);
    let f = walk(&c, root, names("f")).unwrap().0[0].handle;
    assert_eq!(c.open(f, Access::ReadWrite).err(), Some(EROFS));
    assert_eq!(c.create(root, b"x", NEW).err(), Some(EROFS));
    assert_eq!(c.unlink(root, b"f"), Err(EROFS));
    assert_eq!(
        c.set_attr(
            f,
            SetAttr {
                mode: Some(0),
                ..SetAttr::default()
            }
        )
        .err(),
        Some(EROFS)
    );
    assert_eq!(c.rename(root, b"f", root, b"g", 0), Err(EROFS));
    let mut held = Vec::new();
    let full = loop {
        match c.attach("root") {
            Ok(h) => held.push(h.1),
            Err(e) => break e,
        }
    };
    assert_eq!(full, EMFILE);
    held.into_iter().for_each(|h| c.close(h));
    // Later requests carry what is to be closed.
    while c.attach("root").is_err() {}
}

#[test]
fn a_dead_server_is_an_io_error() {
    let (ours, theirs) = sock::seqpacket_pair().unwrap();
    let (a, b) = Line::pair().unwrap();
    let hello = Hello {
        version: 1,
        max_handles: 10,
        uid: 0,
        gid: 0,
    };
    sock::send(theirs.raw(), &hello.encode(), &a.fds()).unwrap();
    drop(a);
    let told = Arc::new(AtomicU32::new(0));
    let t = told.clone();
    let c = Client::connect(
        &ours,
        Box::new(move || {
            t.fetch_add(1, Ordering::SeqCst);
        }),
    )
    .unwrap();
    // A malformed reply is an error of this call only.
    let liar = std::thread::spawn(move || {
        let mut buf = [0; 1000];
        b.receive(&mut buf).unwrap();
        b.send(b"nonsense").unwrap();
        b.receive(&mut buf).unwrap();
    });
    assert_eq!(c.attach("x").err(), Some(EIO));
    assert!(!c.is_dead());
    assert_eq!(c.attach("x").err(), Some(EIO));
    liar.join().unwrap();
    assert_eq!(c.attach("x").err(), Some(EIO));
    assert_eq!(told.load(Ordering::SeqCst), 1);
}

/// Whether a request changes something, and how many handles are closed with it.
type Asked = (bool, usize);

/// A server of four connections that answers no request which changes something until it is told
/// to.
fn slow_server() -> (Arc<Client>, mpsc::Receiver<Asked>, mpsc::Sender<()>) {
    let (ours, theirs) = sock::seqpacket_pair().unwrap();
    let lines: Vec<_> = (0..4).map(|_| Line::pair().unwrap()).collect();
    let hello = Hello {
        version: 1,
        max_handles: 10,
        uid: 0,
        gid: 0,
    };
    let fds: Vec<_> = lines.iter().flat_map(|(a, _)| a.fds()).collect();
    sock::send(theirs.raw(), &hello.encode(), &fds).unwrap();
    let (asked, seen) = mpsc::channel();
    let (go, gate) = mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    for (_, line) in lines {
        let (asked, gate) = (asked.clone(), gate.clone());
        std::thread::spawn(move || {
            let mut buf = [0; 1000];
            while let Ok(m) = line.receive(&mut buf) {
                let (request, piggybacked) = Request::decode(m).unwrap();
                let changes = request.changes();
                asked.send((changes, piggybacked.closes.len())).unwrap();
                if changes {
                    gate.lock().unwrap().recv().unwrap();
                }
                if line.send(&Reply::encode(&Err(ENOENT))).is_err() {
                    break;
                }
            }
        });
    }
    let c = Client::connect(&ours, Box::new(|| {})).unwrap();
    (c, seen, go)
}

#[test]
fn who_only_reads_does_not_wait_for_changes() {
    const CHANGES: usize = 6;
    let (c, seen, go) = slow_server();
    let dir = Handle(1);
    let next = || seen.recv_timeout(Duration::from_secs(20));
    let unlink = |c: &Arc<Client>| {
        let c = c.clone();
        std::thread::spawn(move || c.unlink(dir, b"x").err())
    };
    let changes: Vec<_> = (0..CHANGES).map(|_| unlink(&c)).collect();
    // Two are under way; any other that would be, without a limit, has time to be.
    assert_eq!((next(), next()), (Ok((true, 0)), Ok((true, 0))));
    std::thread::sleep(Duration::from_millis(200));
    let reader = {
        let c = c.clone();
        std::thread::spawn(move || c.get_attr(dir).err())
    };
    assert_eq!(next(), Ok((false, 0)));
    assert_eq!(reader.join().unwrap(), Some(ENOENT));
    // Nor does it pay for a large file whose end waits for its turn.
    let closer = {
        let c = c.clone();
        std::thread::spawn(move || c.close_now(Handle(2)))
    };
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(c.get_attr(dir).err(), Some(ENOENT));
    assert_eq!(next(), Ok((false, 0)));
    // Each is answered in the end: none sleeps for good.
    for _ in 0..CHANGES {
        go.send(()).unwrap();
    }
    go.send(()).unwrap();
    for t in changes {
        assert_eq!(t.join().unwrap(), Some(ENOENT));
    }
    closer.join().unwrap();
    let closes = seen.try_iter().filter(|s| *s == (true, 1)).count();
    assert_eq!(closes, 1);
}

/// `cargo test --release -p gofer speed -- --ignored --nocapture`
#[test]
#[ignore = "prints times"]
fn speed() {
    let dir = Temp::new();
    std::fs::write(dir.0.join("f"), b"").unwrap();
    let (c, _server) = client(&dir.0, Writable::Yes);
    let (_, root, _) = c.attach("root").unwrap();
    let time = |what: &str, f: &dyn Fn()| {
        f();
        let n = 5000;
        let t = std::time::Instant::now();
        (0..n).for_each(|_| f());
        println!("{what}: {} ns", t.elapsed().as_nanos() / n);
    };
    time("attributes", &|| {
        let _ = c.get_attr(root);
    });
    time("walk", &|| {
        let h = walk(&c, root, names("f")).unwrap().0[0].handle;
        c.close(h);
    });
    time("create, unlink", &|| {
        let h = c.create(root, b"x", NEW).unwrap().0.handle;
        c.unlink(root, b"x").unwrap();
        c.close(h);
    });
}
