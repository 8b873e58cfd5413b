use crate::client::Client;
use crate::line::Line;
use crate::proto::{Access, Handle, Named, Reply, Request, Riders, Seen, Step, Then};
use crate::sample::{Sample, Samples};
use crate::server::{Root, Server, Writable};
use crate::wire::{Hello, MAX_ALSO, MAX_CLOSES, MAX_MESSAGE, MAX_NAMES, MAX_STRING};
use abi::attr::{NewNode, Perm, SetAttr};
use abi::errno::*;
use hostcall::{HostFd, file, sock};
use proptest::collection::vec;
use proptest::prelude::*;
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
    let w = c.walk(from, names, Vec::new(), Then::Nothing)?;
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
        c.walk(root, names(path), Vec::new(), Then::Read)
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
    // Closing happens beside later requests.
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
                let (request, riders) = Request::decode(m).unwrap();
                let changes = request.changes();
                asked.send((changes, riders.closes.len())).unwrap();
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
    // Two are under way; whoever else would be, without a limit, has time to be.
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

#[test]
fn garbage_is_refused_and_the_connection_goes_on() {
    let dir = Temp::new();
    let (ours, server) = start(&dir.0, Writable::Yes);
    let mut buf = vec![0; MAX_MESSAGE + 100];
    let conns = Line::from_fds(sock::recv(ours.raw(), &mut buf).unwrap().1);
    let conn = &conns[0];
    let mut ask = |m: &[u8]| {
        conn.send(m).unwrap();
        if Request::decode(m).is_ok_and(|(r, _)| r.brings_fd()) {
            Reply::decode(conn.receive_with(&mut buf).unwrap().0)
        } else {
            Reply::decode(conn.receive(&mut buf).unwrap())
        }
    };
    // A simple generator: what matters is many near misses.
    let mut seed = 0x1234_5678_9abc_def0u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let root = match ask(&Request::Attach {
        root: b"root".to_vec(),
    }
    .encode(&[]))
    {
        Ok(Reply::Node { handle, .. }) => handle,
        r => panic!("{r:?}"),
    };
    let name = b"name".to_vec();
    let good: Vec<Vec<u8>> = [
        Request::Walk {
            from: root,
            names: vec![name.clone(); 3],
            beside: vec![name.clone(); 2],
            then: Then::Read,
        },
        Request::Create {
            dir: root,
            name: name.clone(),
            new: NEW,
        },
        Request::Rename {
            dir: root,
            name: name.clone(),
            new_dir: root,
            new_name: b"b".to_vec(),
            flags: 0,
        },
        Request::SetXattr {
            file: root,
            name: b"user.x".to_vec(),
            value: vec![1; 9],
            flags: 0,
        },
        Request::ReadDir {
            dir: root,
            cookie: 0,
        },
        Request::SetAttr {
            file: root,
            attr: SetAttr::default(),
        },
    ]
    .iter()
    .map(|r| r.encode(&[Handle(1), Handle(u64::MAX)]))
    .collect();
    for i in 0..4000 {
        let mut m = good[i % good.len()].clone();
        match random() % 4 {
            0 => m.truncate(random() as usize % (m.len() + 1)),
            1 => m.extend((0..random() % 50).map(|_| random() as u8)),
            _ => {
                for _ in 0..1 + random() % 4 {
                    let at = random() as usize % m.len();
                    m[at] = random() as u8;
                }
            }
        }
        if !m.is_empty() {
            let _ = ask(&m);
        }
    }
    assert_eq!(ask(&vec![0; MAX_MESSAGE + 50]), Err(EBADMSG));
    assert!(ask(&Request::Nop.encode(&[])).is_ok());
    drop(conns);
    server.join().unwrap();
}

proptest! {
    #[test]
    fn decoding_never_panics(bytes in vec(any::<u8>(), 0..300)) {
        let mut b = vec![1, 0, 0, 0, 0];
        b.extend(&bytes);
        let _ = Request::decode(&b);
        let mut b = vec![1, 0, 0, 0, 0, 0];
        b.extend(&bytes);
        let _ = Reply::decode(&b);
        if let Ok((r, with)) = Request::decode(&bytes) {
            let again = r.encode_with(&with.closes, &with.also);
            prop_assert_eq!(Request::decode(&again), Ok((r, with)));
        }
    }

    /// Each row of the tables: what is sent arrives, whole and with nothing behind it.
    #[test]
    fn messages_arrive_as_they_were_sent(numbers in vec(any::<u64>(), 0..80)) {
        let s = &mut Samples::new(&numbers, &[]);
        let request = Request::sample(s);
        let (closes, also) = (vec![Handle(1), Handle(2)], names("a/b"));
        let sent = request.encode_with(&closes, &also);
        prop_assert_eq!(Request::decode(&sent), Ok((request, Riders { closes, also })));
        let reply = Ok(Reply::sample(s));
        let answered = Reply::encode(&reply);
        prop_assert_eq!(Reply::decode(&answered), reply.clone());
        for n in 0..sent.len() {
            prop_assert_eq!(Request::decode(&sent[..n]).err(), Some(EBADMSG));
        }
        prop_assert_eq!(Request::decode(&[&sent[..], &[0]].concat()).err(), Some(EBADMSG));
        // A list of entries ends with the message.
        if !matches!(reply, Ok(Reply::Entries { .. })) {
            for n in 0..answered.len() {
                prop_assert_eq!(Reply::decode(&answered[..n]).err(), Some(EBADMSG));
            }
        }
        prop_assert_eq!(Reply::decode(&[&answered[..], &[0]].concat()).err(), Some(EBADMSG));
    }
}

#[test]
fn lists_are_bounded() {
    let refused = |names, beside| {
        let (from, then) = (Handle(1), Then::Read);
        let names = vec![b"n".to_vec(); names];
        let beside = vec![b"n".to_vec(); beside];
        let walk = Request::Walk {
            from,
            then,
            beside,
            names,
        };
        Request::decode(&walk.encode(&[])).err()
    };
    assert_eq!(refused(MAX_NAMES, MAX_NAMES), None);
    assert_eq!(refused(MAX_NAMES + 1, 0), Some(EBADMSG));
    assert_eq!(refused(0, MAX_NAMES + 1), Some(EBADMSG));
    let with = |closes, also| {
        let (closes, also) = (vec![Handle(1); closes], vec![Vec::new(); also]);
        Request::decode(&Request::Nop.encode_with(&closes, &also)).err()
    };
    assert_eq!(with(MAX_CLOSES, MAX_ALSO), None);
    assert_eq!(with(MAX_CLOSES + 1, 0), Some(EBADMSG));
    assert_eq!(with(0, MAX_ALSO + 1), Some(EBADMSG));
    let seen = |n| {
        let (version, names) = (1, vec![Named::Missing; n]);
        let dir = Some(Seen { version, names });
        Reply::decode(&Reply::encode(&Ok(Reply::Changed { dir, old: None }))).err()
    };
    assert_eq!(seen(1 + MAX_ALSO), None);
    assert_eq!(seen(2 + MAX_ALSO), Some(EBADMSG));
    let long = Reply::Bytes(vec![0; MAX_STRING + 1]);
    assert_eq!(Reply::decode(&Reply::encode(&Ok(long))), Err(EBADMSG));
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

/// What a client sees by a path.
fn reach(c: &Client, root: Handle, path: &str) -> abi::Result<Handle> {
    let (steps, stopped) = walk(c, root, names(path))?;
    match stopped {
        Some(e) => Err(e),
        None if steps.len() < names(path).len() => Err(ENOTDIR),
        None => Ok(steps.last().unwrap().handle),
    }
}

fn list(c: &Client, dir: Handle) -> Vec<String> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let (entries, next, end) = c.read_dir(dir, cookie).unwrap();
        all.extend(
            entries
                .into_iter()
                .map(|e| String::from_utf8(e.name).unwrap()),
        );
        if end {
            return all;
        }
        cookie = next;
    }
}

#[test]
fn procfs_shows_numbers_only() {
    let (c, _server) = client(Path::new("/proc"), Writable::Yes);
    let (_, root, _) = c.attach("root").unwrap();
    let own = std::process::id().to_string();
    for hidden in [
        "self",
        "thread-self",
        "1",
        &own,
        "keys",
        "key-users",
        "kcore",
        "kmsg",
        "kallsyms",
        "mounts",
        "net",
        "sysrq-trigger",
        "kpageflags",
        "iomem",
        "modules",
        "timer_list",
        "locks",
        "fs",
        "irq",
        "bus",
        "vmallocinfo",
    ] {
        assert_eq!(reach(&c, root, hidden).err(), Some(ENOENT), "{hidden}");
    }
    assert_eq!(reach(&c, root, "self/mem").err(), Some(ENOENT));
    let shown = list(&c, root);
    assert!(shown.contains(&"meminfo".into()));
    let odd = |n: &&String| !crate::kernel_fs::is_shown(n.as_bytes()) || *n == "net";
    assert_eq!(shown.iter().find(odd), None);
    for name in ["stat", "meminfo", "loadavg", "sys/kernel/osrelease"] {
        let file = reach(&c, root, name).unwrap();
        let fd = c.open(file, Access::Read).unwrap().0;
        let mut text = [0u8; 4096];
        assert!(file::read(fd.raw(), &mut text).unwrap() > 0, "{name}");
        assert_eq!(c.open(file, Access::ReadWrite).err(), Some(EROFS), "{name}");
    }
    let domain = reach(&c, root, "sys/kernel/domainname").unwrap();
    let attr = SetAttr {
        mode: Some(0o666),
        ..SetAttr::default()
    };
    assert_eq!(c.set_attr(domain, attr).err(), Some(EROFS));
    // Not everybody's to read.
    let secret = reach(&c, root, "slabinfo").unwrap();
    assert_eq!(c.open(secret, Access::Read).err(), Some(EACCES));
}

#[test]
fn sysfs_is_read_only_and_debugging_is_closed() {
    let (c, _server) = client(Path::new("/sys"), Writable::Yes);
    let (_, root, _) = c.attach("root").unwrap();
    let file =
        reach(&c, root, "kernel/profiling").or_else(|_| reach(&c, root, "kernel/mm/ksm/run"));
    if let Ok(file) = file {
        c.open(file, Access::Read).unwrap();
        assert_eq!(c.open(file, Access::ReadWrite).err(), Some(EROFS));
    }
    for (path, below) in [
        ("kernel/debug", "x"),
        ("kernel/tracing", "trace"),
        ("kernel/security", "lsm"),
        ("fs/bpf", "x"),
        ("kernel/config", "x"),
    ] {
        let own = Path::new("/sys").join(path);
        let fd = hostcall::path::openat2(
            libc::AT_FDCWD,
            &CString::new(own.as_os_str().as_bytes()).unwrap(),
            libc::O_PATH as u64,
            0,
            0,
        );
        let closed = |fd: &HostFd| {
            crate::kernel_fs::of(fd).is_ok_and(|k| k.0 == crate::kernel_fs::Kind::Closed)
        };
        if fd.as_ref().is_ok_and(closed) {
            let dir = reach(&c, root, path).unwrap();
            assert_eq!(c.read_dir(dir, 0).err(), Some(EACCES), "{path}");
            assert_eq!(reach(&c, dir, below).err(), Some(EACCES), "{path}");
        }
    }
    // A cgroup can be read, and none be made.
    if let Ok(group) = reach(&c, root, "fs/cgroup") {
        let new = NewNode { mode: 0o755, ..NEW };
        assert_eq!(c.mkdir(group, b"x", new).err(), Some(EROFS));
    }
}
