mod append;
mod known;

use super::*;
use abi::errno::*;
use abi::linux::*;
use clas::{Access, Backing};
use gofer::server::{Root, Server, Writable};
use hostcall::sock;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use vfs::file::{BufSink, BufSource};
use vfs::fs::root_layer::RootLayer;
use vfs::fs::tmpfs::{self, Tmpfs};
use vfs::ops::OpenHow;
use vfs::{At, Caller, Credentials, File, FsContext, MountFlags, MountNamespace, PathCx};
use wait::{Blocker, Parker};

struct NoSignals(Arc<Parker>);
impl Blocker for NoSignals {
    fn parker(&self) -> &Arc<Parker> {
        &self.0
    }
    fn interrupted(&self) -> bool {
        false
    }
}

struct Rig {
    host: PathBuf,
    vfs: Arc<Vfs>,
    fs: Arc<FsContext>,
    cred: Arc<Credentials>,
    blocker: NoSignals,
    client: Arc<Client>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.host);
    }
}

impl Rig {
    fn new(sharing: Sharing, prepare: impl FnOnce(&Path)) -> Rig {
        Self::with(sharing, prepare, false)
    }
    fn with(sharing: Sharing, prepare: impl FnOnce(&Path), over: bool) -> Rig {
        Self::at(&std::env::temp_dir(), sharing, prepare, over)
    }
    fn at(base: &Path, sharing: Sharing, prepare: impl FnOnce(&Path), over: bool) -> Rig {
        static N: AtomicU32 = AtomicU32::new(0);
        let n = N.fetch_add(1, Ordering::Relaxed);
        let host = base.join(format!("goferfs-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&host).unwrap();
        std::fs::set_permissions(&host, std::fs::Permissions::from_mode(0o755)).unwrap();
        prepare(&host);
        let path = CString::new(host.as_os_str().as_bytes()).unwrap();
        let root = Root::open("root", &path, Writable::Yes).unwrap();
        let server = Server::new(vec![root], 5000)
            .unwrap()
            .with_mounts(gofer::server::Mounts::Own);
        let (ours, theirs) = sock::seqpacket_pair().unwrap();
        std::thread::spawn(move || server.serve(theirs).unwrap());
        let client = Client::connect(&ours, Box::new(|| {})).unwrap();
        let vfs = Vfs::new();
        let options = Options {
            sharing,
            ..Options::default()
        };
        let mut dentry = GoferFs::mountable(&vfs, &client, "root", options).unwrap();
        if over {
            let clas = clas::Clas::new().unwrap();
            let (upper, _) = Tmpfs::new(vfs.new_dev(), &clas, tmpfs::Options::default());
            dentry = RootLayer::over(&vfs, &[dentry], &upper).unwrap();
        }
        let ns = MountNamespace::new(&vfs.mounts, dentry, MountFlags::empty(), "root");
        let fs = FsContext::new(&ns);
        let cred = Arc::new(Credentials::root());
        let blocker = NoSignals(Arc::new(Parker::new()));
        Rig {
            host,
            vfs,
            fs,
            cred,
            blocker,
            client,
        }
    }
    /// Whether each change on the host that is seen has a time of its own: not on tmpfs.
    fn fine_times(&self) -> bool {
        let dir = std::fs::File::open(&self.host).unwrap();
        let fs = hostcall::path::fstatfs(std::os::fd::AsRawFd::as_raw_fd(&dir)).unwrap();
        hostcall::process::is_linux(6, 13) && fs.f_type != 0x0102_1994
    }
    fn cx(&self) -> PathCx<'_> {
        PathCx {
            vfs: &self.vfs,
            fs: &self.fs,
            caller: Caller {
                cred: &self.cred,
                task: &(),
            },
            blocker: &self.blocker,
        }
    }
    fn open(&self, path: &str, flags: u32) -> Result<Arc<File>> {
        self.cx()
            .open(&At::Cwd, path.as_bytes(), OpenHow::new(flags, 0o644))
    }
    fn stat(&self, path: &str) -> Result<vfs::Stat> {
        self.cx().stat(&At::Cwd, path.as_bytes(), 0)
    }
    fn get(&self, path: &str) -> Result<Vec<u8>> {
        read(&self.open(path, 0)?, 4096)
    }
    fn list(&self, path: &str) -> Vec<String> {
        let f = self.open(path, O_DIRECTORY).unwrap();
        let mut names = Vec::new();
        let mut pos = 0;
        f.ops
            .read_dir(&f, &mut pos, &mut |e| {
                names.push(String::from_utf8_lossy(e.name).into_owned());
                true
            })
            .unwrap();
        names.retain(|n| n != "." && n != "..");
        names.sort();
        names
    }
}

fn read(f: &Arc<File>, n: usize) -> Result<Vec<u8>> {
    let mut buf = vec![0; n];
    let n = f.read(&mut BufSink::new(&mut buf))?;
    buf.truncate(n);
    Ok(buf)
}

fn tree(host: &Path) {
    std::fs::create_dir_all(host.join("a/b/c")).unwrap();
    std::fs::write(host.join("a/b/c/f"), b"text").unwrap();
    symlink("b/c", host.join("a/l")).unwrap();
    symlink("/a/b", host.join("abs")).unwrap();
}

fn exercise(r: &Rig) {
    assert_eq!(r.get("/a/b/c/f").unwrap(), b"text");
    assert_eq!(r.get("/a/l/f").unwrap(), b"text");
    assert_eq!(r.get("/abs/c/f").unwrap(), b"text");
    assert_eq!(r.stat("/a/b/none/x"), Err(ENOENT));
    assert_eq!(r.stat("/a/b/c/f/x"), Err(ENOTDIR));
    let ino = std::fs::metadata(r.host.join("a/b/c/f")).unwrap().ino();
    assert_eq!(r.stat("/a/b/c/f").unwrap().ino, ino);
    // Writing.
    let f = r.open("/new", O_CREAT | O_RDWR).unwrap();
    assert_eq!(f.write(&mut BufSource::new(b"hello")), Ok(5));
    assert_eq!(r.stat("/new").unwrap().size, 5);
    let a = r.open("/new", O_APPEND | O_WRONLY).unwrap();
    assert_eq!(a.write(&mut BufSource::new(b", you")), Ok(5));
    assert_eq!(r.get("/new").unwrap(), b"hello, you");
    if let Ok(text) = std::fs::read(r.host.join("new")) {
        assert_eq!(text, b"hello, you");
    }
    r.cx().ftruncate(&f, 4).unwrap();
    assert_eq!(r.stat("/new").unwrap().size, 4);
    r.cx().chmod(&At::Cwd, b"/new", 0o600, 0).unwrap();
    assert_eq!(r.stat("/new").unwrap().mode & 0o7777, 0o600);
    // Mapping.
    let m = f.ops.mappable().unwrap();
    let host_backed = std::fs::metadata(r.host.join("new")).is_ok();
    assert!(Arc::ptr_eq(
        &m,
        &r.open("/new", 0).unwrap().ops.mappable().unwrap()
    ));
    let (b, n) = m.backing(0, 1 << 20, Access::Write).unwrap();
    assert_eq!(matches!(b, Backing::Host { offset: 0, .. }), host_backed);
    assert_eq!(n, 4096);
    assert_eq!(m.backing(4096, 4096, Access::Read).err(), Some(EFAULT));
    // Names.
    r.cx().mkdir(&At::Cwd, b"/d", 0o755).unwrap();
    r.cx()
        .link(&At::Cwd, b"/new", &At::Cwd, b"/d/two", 0)
        .unwrap();
    assert_eq!(r.stat("/new").unwrap().nlink, 2);
    assert_eq!(r.stat("/new").unwrap().ino, r.stat("/d/two").unwrap().ino);
    r.cx()
        .rename(&At::Cwd, b"/new", &At::Cwd, b"/d/one", 0)
        .unwrap();
    assert_eq!(r.stat("/new"), Err(ENOENT));
    r.cx().symlink(b"one", &At::Cwd, b"/d/link").unwrap();
    assert_eq!(r.get("/d/link").unwrap(), b"hell");
    r.cx()
        .mknod(&At::Cwd, b"/d/fifo", S_IFIFO | 0o600, 0)
        .unwrap();
    assert_eq!(r.list("/d"), ["fifo", "link", "one", "two"]);
    assert_eq!(r.cx().rmdir(&At::Cwd, b"/d"), Err(ENOTEMPTY));
    for n in ["fifo", "link", "one", "two"] {
        r.cx()
            .unlink(&At::Cwd, format!("/d/{n}").as_bytes())
            .unwrap();
    }
    assert_eq!(r.list("/d"), [""; 0]);
    assert_eq!(r.stat("/d/one"), Err(ENOENT));
    r.cx().rmdir(&At::Cwd, b"/d").unwrap();
    // A removed file lives as long as it is open.
    assert_eq!(f.seek(0, 0), Ok(0));
    assert_eq!(read(&f, 10).unwrap(), b"hell");
    assert_eq!(vfs::ops::fstat(&f).unwrap().nlink, 0);
    let t = r.open("/a", O_TMPFILE | O_RDWR).unwrap();
    assert_eq!(t.write(&mut BufSource::new(b"x")), Ok(1));
    assert!(r.cx().statfs(b"/a").unwrap().bsize > 0);
}

#[test]
fn exclusive() {
    let r = Rig::new(Sharing::Exclusive, tree);
    exercise(&r);
    // What is known is not asked for again.
    r.stat("/a/b/c/f").unwrap();
    assert_eq!(r.stat("/later"), Err(ENOENT));
    std::fs::write(r.host.join("later"), b"").unwrap();
    std::fs::remove_file(r.host.join("a/b/c/f")).unwrap();
    assert_eq!(r.stat("/later"), Err(ENOENT));
    assert!(r.stat("/a/b/c/f").is_ok());
}

/// Two changes of one file, the answers in the other order, or at once.
#[test]
fn the_later_change_of_attributes_stays() {
    let r = Rig::new(Sharing::Exclusive, tree);
    let path = "/a/b/c/f";
    let d = r
        .cx()
        .resolve(&At::Cwd, path.as_bytes(), vfs::walk::Walk::empty())
        .unwrap();
    let i: &GoferInode = vfs::inode::downcast(d.inode().unwrap()).unwrap();
    let since = i.fs.changes.load(Ordering::Relaxed);
    let chmod = |mode| {
        let attr = vfs::SetAttr {
            mode: Some(mode),
            ..Default::default()
        };
        i.fs.client.set_attr(i.handle, attr).unwrap()
    };
    let (first, second) = (chmod(0o600), chmod(0o640));
    // Whichever is stored: it is asked for once more.
    i.test_told(second, since);
    assert!(i.test_told(first, since));
    assert_eq!(r.stat(path).unwrap().mode & 0o777, 0o640);
    let since = i.fs.changes.load(Ordering::Relaxed);
    let only = chmod(0o604);
    assert!(!i.test_told(only, since));
    let [host, inside] = both(&r, path);
    assert_eq!(host, inside);
    // Told to two threads at the same moment.
    let (rounds, at) = (20_000u32, AtomicU32::new(0));
    let meet = |n: u32| {
        at.fetch_add(1, Ordering::SeqCst);
        while at.load(Ordering::SeqCst) < n {
            std::hint::spin_loop();
            std::thread::yield_now();
        }
    };
    let wrong = AtomicU32::new(0);
    std::thread::scope(|s| {
        for told in [first, second] {
            let (meet, wrong) = (&meet, &wrong);
            s.spawn(move || {
                for n in 0..rounds {
                    let since = i.fs.changes.load(Ordering::Relaxed);
                    meet(4 * n + 2);
                    let stale = i.test_told(told, since);
                    meet(4 * n + 4);
                    // The second knows that it was not alone.
                    if !stale && !i.test_is_stale() {
                        wrong.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(wrong.into_inner(), 0);
}

#[test]
fn shared() {
    let r = Rig::new(Sharing::Shared, tree);
    exercise(&r);
    assert_eq!(r.stat("/later"), Err(ENOENT));
    std::fs::write(r.host.join("later"), b"1").unwrap();
    assert_eq!(r.stat("/later").unwrap().size, 1);
    std::fs::write(r.host.join("later"), b"12").unwrap();
    assert_eq!(r.stat("/later").unwrap().size, 2);
    std::fs::rename(r.host.join("later"), r.host.join("moved")).unwrap();
    assert_eq!(r.stat("/later"), Err(ENOENT));
    assert_eq!(r.get("/moved").unwrap(), b"12");
    std::fs::write(r.host.join("other"), b"other").unwrap();
    std::fs::rename(r.host.join("other"), r.host.join("moved")).unwrap();
    assert_eq!(r.get("/moved").unwrap(), b"other");
}

/// A program that goes through a directory asks for few of its names, one that does not for few
/// more.
#[test]
fn names_beside_each_other() {
    for (over, n) in [(false, 300), (true, 300)] {
        let r = Rig::with(
            Sharing::Exclusive,
            |host| {
                std::fs::create_dir(host.join("d")).unwrap();
                for i in 0..n {
                    std::fs::write(host.join(format!("d/{i:04}")), vec![b'x'; i]).unwrap();
                }
            },
            over,
        );
        let before = r.client.requests();
        for i in 0..n {
            assert_eq!(r.stat(&format!("/d/{i:04}")).unwrap().size, i as u64);
        }
        let asked = r.client.requests() - before;
        assert!(asked < n as u64 / 5, "{asked} requests for {n} names");
        // Each name is its file's, by any look-up.
        for i in 0..n {
            let text = r.get(&format!("/d/{i:04}")).unwrap();
            assert_eq!(text, vec![b'x'; i.min(4096)]);
        }
        assert_eq!(r.stat("/d/0300"), Err(ENOENT));
    }
    // Every fourth, from the end: what was read ahead is not used, and soon nothing is.
    let r = Rig::with(
        Sharing::Exclusive,
        |host| {
            std::fs::create_dir(host.join("d")).unwrap();
            for i in 0..400 {
                std::fs::write(host.join(format!("d/{i:04}")), b"x").unwrap();
            }
        },
        true,
    );
    let before = r.client.requests();
    for i in (0..400).step_by(4).rev() {
        r.stat(&format!("/d/{i:04}")).unwrap();
    }
    assert!(r.client.requests() - before < 120);
}

/// More files than the Gofer may hold: what is not used is let go in time.
#[test]
fn more_names_than_handles() {
    let n = 6000;
    let r = Rig::with(
        Sharing::Exclusive,
        |host| {
            std::fs::create_dir(host.join("d")).unwrap();
            for i in 0..n {
                std::fs::write(host.join(format!("d/{i}")), b"").unwrap();
            }
        },
        true,
    );
    assert!(r.client.server().max_handles < n);
    for i in 0..n {
        r.stat(&format!("/d/{i}")).unwrap();
    }
}

/// What is made is not looked up before, and errors are as if it were.
#[test]
fn made_without_asking() {
    let r = Rig::new(Sharing::Shared, |host| {
        tree(host);
        std::fs::create_dir(host.join("closed")).unwrap();
        std::fs::write(host.join("closed/f"), b"text").unwrap();
        let mode = |p, m| {
            let m = std::fs::Permissions::from_mode(m);
            std::fs::set_permissions(host.join(p), m).unwrap();
        };
        mode("closed/f", 0o666);
        mode("closed", 0o755);
    });
    let mkdir = |p: &str| r.cx().mkdir(&At::Cwd, p.as_bytes(), 0o755).map(drop);
    let symlink = |p: &str| r.cx().symlink(b"to", &At::Cwd, p.as_bytes());
    let link = |p: &str| {
        r.cx()
            .link(&At::Cwd, b"/a/b/c/f", &At::Cwd, p.as_bytes(), 0)
    };
    r.stat("/a").unwrap();
    for round in 0..2 {
        let before = r.client.requests();
        mkdir(&format!("/a/dir{round}")).unwrap();
        symlink(&format!("/a/link{round}")).unwrap();
        r.open(&format!("/a/file{round}"), O_CREAT | O_EXCL | O_RDWR)
            .unwrap();
        r.open(&format!("/a/other{round}"), O_CREAT | O_WRONLY)
            .unwrap();
        let asked = r.client.requests() - before;
        // And for the directory itself, where there is no descriptor of it yet.
        let most = if round == 0 || !r.fine_times() { 12 } else { 4 };
        assert!(asked <= most, "{asked}");
    }
    for name in ["/a", "/a/b", "/a/b/c/f", "/a/l", "/a/dir0"] {
        assert_eq!(mkdir(name), Err(EEXIST));
        assert_eq!(symlink(name), Err(EEXIST));
        assert_eq!(link(name), Err(EEXIST));
        let excl = r.open(name, O_CREAT | O_EXCL).err();
        assert_eq!(excl, Some(EEXIST), "{name}");
    }
    // The host's, of which nothing is known here.
    std::fs::write(r.host.join("a/new"), b"new").unwrap();
    assert_eq!(mkdir("/a/new"), Err(EEXIST));
    std::fs::write(r.host.join("a/newer"), b"newer").unwrap();
    assert_eq!(r.open("/a/newer", O_CREAT | O_EXCL).err(), Some(EEXIST));
    std::fs::write(r.host.join("a/newest"), b"newest").unwrap();
    let f = r.open("/a/newest", O_CREAT).unwrap();
    assert_eq!(read(&f, 9).unwrap(), b"newest");
    std::fs::create_dir(r.host.join("a/late")).unwrap();
    assert_eq!(r.open("/a/late", O_CREAT).err(), Some(EISDIR));
    assert_eq!(symlink("/a/none/"), Err(ENOENT));
    assert_eq!(symlink("/a/newest/"), Err(EEXIST));
    // Where nothing may be made, what is there is there all the same.
    let user = Arc::new(Credentials::user(1000, 1000, Vec::new()));
    let mut cx = r.cx();
    cx.caller.cred = &user;
    let open = |p: &str, flags| {
        let f = cx.open(&At::Cwd, p.as_bytes(), OpenHow::new(flags, 0o644));
        f.map(drop)
    };
    for _ in 0..3 {
        assert_eq!(open("/closed/f", O_CREAT | O_RDWR), Ok(()));
        assert_eq!(open("/closed/f", O_CREAT | O_EXCL), Err(EEXIST));
        assert_eq!(open("/closed/none", O_CREAT), Err(EACCES));
        assert_eq!(cx.mkdir(&At::Cwd, b"/closed/f", 0o755).err(), Some(EEXIST));
        assert_eq!(cx.mkdir(&At::Cwd, b"/closed/n", 0o755).err(), Some(EACCES));
    }
}

/// What the host and the container see at a path: mode, size, links and owner, or nothing.
fn both(r: &Rig, path: &str) -> [Option<(u32, u64, u32, u32)>; 2] {
    let host = std::fs::metadata(r.host.join(&path[1..])).ok();
    [
        host.map(|m| (m.mode(), m.size(), m.nlink() as u32, m.uid())),
        r.stat(path).ok().map(|s| (s.mode, s.size, s.nlink, s.uid)),
    ]
}

/// Names and attributes are asked for no more, and are true all the same.
#[test]
fn shared_and_known() {
    let r = Rig::new(Sharing::Shared, tree);
    let wait_until_stable = || std::thread::sleep(std::time::Duration::from_millis(60));
    let known = |dir: &str, name: &str| {
        let p = r
            .cx()
            .resolve(&At::Cwd, dir.as_bytes(), vfs::walk::Walk::empty())
            .unwrap();
        let inode = p.inode().unwrap().clone();
        let i: &GoferInode = vfs::inode::downcast(&inode).unwrap();
        i.version()
            .is_some_and(|v| i.known(v, name.as_bytes()).is_some())
    };
    wait_until_stable();
    for _ in 0..6 {
        assert_eq!(
            r.get("/a/b/c/f").unwrap(),
            std::fs::read(r.host.join("a/b/c/f")).unwrap()
        );
        assert_eq!(r.stat("/a/missing"), Err(ENOENT));
    }
    for (dir, name) in [
        ("/", "a"),
        ("/a", "b"),
        ("/a/b", "c"),
        ("/a/b/c", "f"),
        ("/a", "missing"),
    ] {
        assert!(known(dir, name), "{dir} {name}");
    }
    // What was seen within a tick of a change proves nothing: on hosts whose clock for files is
    // coarse (before Linux 6.13) the next change may have the same time.
    {
        let inode = r
            .cx()
            .resolve(&At::Cwd, b"/a", vfs::walk::Walk::empty())
            .unwrap();
        let i: &GoferInode = vfs::inode::downcast(inode.inode().unwrap()).unwrap();
        let now = i.version().unwrap();
        assert!(now.is_stable);
        i.learn(
            Some(crate::inode::Version {
                is_stable: false,
                ..now
            }),
            b"young",
            None,
        );
        assert!(i.known(now, b"young").is_none());
        i.learn(Some(now), b"old", None);
        assert!(i.known(now, b"old").is_some());
    }
    // Every kind of change from outside is seen at once, and again when it is known.
    let at = |p: &str| r.host.join(p);
    let mode = |p: &str, m| {
        std::fs::set_permissions(at(p), std::fs::Permissions::from_mode(m)).unwrap();
    };
    let changes: [(&str, &dyn Fn()); 12] = [
        ("appears", &|| {
            std::fs::write(at("a/missing"), b"here").unwrap()
        }),
        ("grows", &|| {
            std::fs::write(at("a/missing"), b"longer").unwrap()
        }),
        ("a link elsewhere", &|| {
            std::fs::hard_link(at("a/missing"), at("a/b/l")).unwrap()
        }),
        ("chmod of the link", &|| mode("a/b/l", 0o600)),
        ("written by the link", &|| {
            std::fs::write(at("a/b/l"), b"by the link").unwrap()
        }),
        ("chmod of a directory", &|| mode("a", 0o711)),
        ("renamed over", &|| {
            std::fs::write(at("new"), b"new").unwrap();
            std::fs::rename(at("new"), at("a/missing")).unwrap();
        }),
        ("a directory moves", &|| {
            std::fs::rename(at("a/b/c"), at("c")).unwrap()
        }),
        ("another takes its place", &|| {
            std::fs::create_dir(at("a/b/c")).unwrap();
            std::fs::write(at("a/b/c/f"), b"another").unwrap();
        }),
        ("a directory for a file", &|| {
            std::fs::remove_file(at("a/missing")).unwrap();
            std::fs::create_dir(at("a/missing")).unwrap();
        }),
        ("all goes", &|| std::fs::remove_dir_all(at("a/b")).unwrap()),
        ("and comes back", &|| {
            std::fs::create_dir_all(at("a/b/c")).unwrap();
            std::fs::write(at("a/b/c/f"), b"back").unwrap();
        }),
    ];
    let paths = [
        "/a",
        "/a/b",
        "/a/b/c",
        "/a/b/c/f",
        "/a/missing",
        "/a/b/l",
        "/c/f",
        "/new",
    ];
    for pause in [true, false] {
        for (what, change) in &changes {
            change();
            for _ in 0..3 {
                for p in paths {
                    let [host, seen] = both(&r, p);
                    assert_eq!(host, seen, "{what}: {p}");
                }
            }
            if pause {
                wait_until_stable();
                for p in paths {
                    let [host, seen] = both(&r, p);
                    assert_eq!(host, seen, "{what}, later: {p}");
                }
            }
        }
        let _ = std::fs::remove_dir_all(at("a/missing"));
        let _ = std::fs::remove_dir_all(at("c"));
    }
}

/// What the container itself makes and removes is known at once, where times are fine; and what
/// others do to the same name afterwards is seen.
#[test]
fn own_names_are_known() {
    let r = Rig::new(Sharing::Shared, tree);
    let dir = r
        .cx()
        .resolve(&At::Cwd, b"/a", vfs::walk::Walk::empty())
        .unwrap();
    let i: &GoferInode = vfs::inode::downcast(dir.inode().unwrap()).unwrap();
    // Used often enough for a descriptor.
    for _ in 0..4 {
        let _ = i.version();
    }
    let known = || i.known(i.version().unwrap(), b"own").map(|n| n.is_some());
    let fine = r.fine_times();
    for _ in 0..50 {
        r.open("/a/own", O_CREAT | O_EXCL | O_RDWR).unwrap();
        assert_eq!(known(), fine.then_some(true));
        r.cx().unlink(&At::Cwd, b"/a/own").unwrap();
        assert_eq!(known(), fine.then_some(false));
        r.cx().mkdir(&At::Cwd, b"/a/own", 0o755).unwrap();
        assert_eq!(known(), fine.then_some(true));
        std::fs::remove_dir(r.host.join("a/own")).unwrap();
        assert_eq!(known(), None);
        assert_eq!(r.stat("/a/own"), Err(ENOENT));
        r.cx().symlink(b"x", &At::Cwd, b"/a/own").unwrap();
        assert_eq!(known(), fine.then_some(true));
        std::fs::remove_file(r.host.join("a/own")).unwrap();
        std::fs::write(r.host.join("a/own"), b"theirs").unwrap();
        assert_eq!(known(), None);
        assert_eq!(r.get("/a/own").unwrap(), b"theirs");
        r.cx().unlink(&At::Cwd, b"/a/own").unwrap();
    }
}

/// Changes of both sides in any order, many within one tick of the clock.
#[test]
fn shared_at_random() {
    // On tmpfs, too, whose times are not fine.
    for base in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
        if base.is_dir() {
            at_random(&Rig::at(&base, Sharing::Shared, |_| {}, false));
        }
    }
}

fn at_random(r: &Rig) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let name = |n: u64| {
        format!(
            "/{}",
            ["x", "y", "d/x", "d/y", "d", "e", "e/x", "d/e"][n as usize]
        )
    };
    for round in 0..4000 {
        let (a, b) = (name(random(8)), name(random(8)));
        let (ha, hb) = (r.host.join(&a[1..]), r.host.join(&b[1..]));
        match random(12) {
            0 => drop(std::fs::write(&ha, vec![b'x'; random(5) as usize])),
            1 => drop(std::fs::create_dir(&ha)),
            2 => drop(std::fs::remove_file(&ha)),
            3 => drop(std::fs::remove_dir(&ha)),
            4 => drop(std::fs::rename(&ha, &hb)),
            5 => drop(std::fs::hard_link(&ha, &hb)),
            6 => drop(r.open(&a, O_CREAT | O_RDWR)),
            7 => drop(r.cx().mkdir(&At::Cwd, a.as_bytes(), 0o755)),
            8 => drop(r.cx().unlink(&At::Cwd, a.as_bytes())),
            9 => drop(
                r.cx()
                    .rename(&At::Cwd, a.as_bytes(), &At::Cwd, b.as_bytes(), 0),
            ),
            10 => {
                let m = std::fs::Permissions::from_mode(0o700 | random(64) as u32);
                drop(std::fs::set_permissions(&ha, m));
            }
            _ if round % 40 == 0 => std::thread::sleep(std::time::Duration::from_millis(50)),
            _ => {}
        }
        for n in 0..8 {
            let [host, seen] = both(r, &name(n));
            assert_eq!(host, seen, "round {round}: {}", name(n));
        }
    }
}

#[test]
fn devices_of_the_host_are_never_opened() {
    let r = Rig::new(Sharing::Exclusive, |host| {
        tree(host);
        let _ = std::os::unix::net::UnixListener::bind(host.join("sock")).unwrap();
    });
    assert_eq!(r.open("/sock", 0).err(), Some(ENXIO));
    assert_eq!(
        r.cx().find_socket(&At::Cwd, b"/sock").err(),
        Some(ECONNREFUSED)
    );
    assert_eq!(r.stat("/sock").unwrap().mode & S_IFMT, S_IFSOCK);
    assert!(!r.client.is_dead());
}

#[test]
fn handles_come_back() {
    let r = Rig::new(Sharing::Exclusive, |host| {
        for i in 0..3000 {
            std::fs::write(host.join(format!("f{i}")), b"").unwrap();
        }
    });
    // More files than handles; each is opened, so descriptors are given up too.
    for round in 0..2 {
        for i in 0..3000 {
            assert!(r.open(&format!("/f{i}"), 0).is_ok(), "{round} {i}");
        }
    }
}

#[test]
fn a_walk_looks_ahead() {
    let r = Rig::new(Sharing::Exclusive, tree);
    let root = r.fs.root();
    r.stat("/a/b/c/f").unwrap();
    let a = root.dentry.lookup(&r.cx().caller, b"a").unwrap();
    assert!(!a.is_negative());
    assert_eq!(r.stat("/a/b/x/y/z"), Err(ENOENT));
    assert_eq!(r.stat("/a/b/x"), Err(ENOENT));
}

#[test]
fn a_writable_root_that_leaves_the_host_alone() {
    let r = Rig::with(Sharing::Exclusive, tree, true);
    exercise(&r);
    // The file below, mapped and read through the host's page cache.
    let f = r.open("/a/b/c/f", 0).unwrap();
    let m = f.ops.mappable().unwrap();
    let host = |m: &Arc<dyn clas::Mappable>| {
        matches!(
            m.backing(0, 4096, Access::Read).unwrap().0,
            Backing::Host { .. }
        )
    };
    assert!(host(&m));
    let w = r.open("/a/b/c/f", O_WRONLY).unwrap();
    assert_eq!(w.write(&mut BufSource::new(b"new")), Ok(3));
    assert!(!host(&m));
    assert_eq!(read(&f, 9).unwrap(), b"newt");
    assert_eq!(std::fs::read(r.host.join("a/b/c/f")).unwrap(), b"text");
    r.cx()
        .rename(&At::Cwd, b"/a/b", &At::Cwd, b"/moved", 0)
        .unwrap();
    assert_eq!(r.get("/moved/c/f").unwrap(), b"newt");
    assert_eq!(std::fs::read_dir(&r.host).unwrap().count(), 2);
}

/// The host runs a program that was made here as soon as nobody has it open for writing, though it
/// was read and changed by its name since.
#[test]
fn what_was_written_can_be_run() {
    let r = Rig::new(Sharing::Shared, |_| {});
    let run = |name: &str| std::process::Command::new(r.host.join(name)).status();
    let busy =
        |name: &str| run(name).is_err_and(|e| e.kind() == std::io::ErrorKind::ExecutableFileBusy);
    // The Gofer closes what it has just sent a moment after it is received; and a fork of another
    // test's may hold it.
    let runs = |name: &str| {
        (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            run(name).is_ok_and(|s| s.success())
        })
    };
    let program = std::fs::read("/bin/true").unwrap();
    let w = r
        .cx()
        .open(&At::Cwd, b"/p", OpenHow::new(O_CREAT | O_RDWR, 0o755))
        .unwrap();
    assert_eq!(w.write(&mut BufSource::new(&program)), Ok(program.len()));
    let second = r.open("/p", O_WRONLY).unwrap();
    let reader = r.open("/p", 0).unwrap();
    drop(w);
    assert!(busy("p"));
    drop(second);
    assert!(runs("p"));
    r.cx().truncate(b"/p", program.len() as i64).unwrap();
    assert!(runs("p"));
    assert_eq!(read(&reader, 4).unwrap(), program[..4]);
    drop(
        r.cx()
            .open(&At::Cwd, b"/q", OpenHow::new(O_CREAT, 0o755))
            .unwrap(),
    );
    assert!((0..200).any(|_| !busy("q")));
}

/// `cargo test --release -p goferfs speed -- --ignored --nocapture`
#[test]
#[ignore = "prints times"]
fn speed() {
    for over in [false, true] {
        let r = Rig::with(Sharing::Exclusive, tree, over);
        let time = |what: &str, f: &dyn Fn()| {
            f();
            let n = 20_000;
            let t = std::time::Instant::now();
            (0..n).for_each(|_| f());
            println!("overlay {over}: {what}: {} ns", t.elapsed().as_nanos() / n);
        };
        time("stat of 4 components", &|| {
            let _ = r.stat("/a/b/c/f");
        });
        time("open and close", &|| drop(r.open("/a/b/c/f", 0)));
        time("stat of a missing file", &|| {
            let _ = r.stat("/a/b/c/none");
        });
        let f = r.open("/a/b/c/f", 0).unwrap();
        time("read of 4 bytes", &|| {
            f.seek(0, 0).unwrap();
            f.read(&mut BufSink::new(&mut [0; 4])).unwrap();
        });
        let w = r.open("/w", O_CREAT | O_RDWR).unwrap();
        let page = [1; 4096];
        time("write of 4096 bytes", &|| {
            w.seek(0, 0).unwrap();
            w.write(&mut BufSource::new(&page)).unwrap();
        });
        time("create and unlink", &|| {
            r.open("/x", O_CREAT | O_RDWR).unwrap();
            r.cx().unlink(&At::Cwd, b"/x").unwrap();
        });
    }
}

/// The host gives a set-uid file to root and back, again and again: it is never seen as root's with
/// the bit.
#[test]
fn set_id_bits_are_seen_with_their_owner() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use vfs::Inode;
    let r = Rig::new(Sharing::Shared, tree);
    let file = r.host.join("a/b/c/f");
    if chown(&file, Some(1000), None).is_err() {
        // Not root.
        return;
    }
    let place = r
        .cx()
        .resolve(&At::Cwd, b"/a/b/c/f", vfs::walk::Walk::empty());
    let place = place.unwrap();
    let i: &GoferInode = vfs::inode::downcast(place.inode().unwrap()).unwrap();
    let _keeps = r.open("/a/b/c/f", 0).unwrap();
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                chown(&file, Some(1000), None).unwrap();
                std::fs::set_permissions(&file, PermissionsExt::from_mode(0o4755)).unwrap();
                chown(&file, Some(0), None).unwrap();
            }
        });
        let begun = std::time::Instant::now();
        let mut seen = 0;
        while begun.elapsed() < std::time::Duration::from_secs(2) {
            let _held = i.lock_attributes();
            let st = i.stat_at_once().unwrap();
            seen += u32::from(st.mode & 0o4000 != 0 && st.uid == 0);
        }
        ends.store(true, Ordering::Relaxed);
        assert_eq!(seen, 0, "root's with the bit");
    });
}
