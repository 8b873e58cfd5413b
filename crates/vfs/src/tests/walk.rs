use super::*;
use crate::fs::dynamic::{DynDir, DynEntry, DynFs, DynLink, DynNode};
use crate::mode::FileType;
use crate::walk::Walk;
use abi::errno::*;
use abi::linux::*;
use std::sync::Mutex;

fn tree() -> Rig {
    let r = Rig::new();
    r.mkdir("/a").unwrap();
    r.mkdir("/a/b").unwrap();
    r.put("/a/b/f", b"text").unwrap();
    r.symlink("b", "/a/l").unwrap();
    r.symlink("/a/b/f", "/a/abs").unwrap();
    r.symlink("loop2", "/loop1").unwrap();
    r.symlink("loop1", "/loop2").unwrap();
    r.symlink("../../../a/b/", "/a/b/up").unwrap();
    r.symlink("missing", "/dangling").unwrap();
    r.symlink("b/f/", "/a/slashed").unwrap();
    r
}

#[test]
fn table() {
    let r = tree();
    let f = r.stat("/a/b/f").unwrap().ino;
    let b = r.stat("/a/b").unwrap().ino;
    let root = r.stat("/").unwrap().ino;
    let long = "x".repeat(256);
    let very_long = "/x".repeat(2100);
    let cases: &[(&str, std::result::Result<u64, Errno>)] = &[
        ("/a/b/f", Ok(f)),
        ("//a///b//f", Ok(f)),
        ("/a/./b/../b/f", Ok(f)),
        ("/../../a/b/f", Ok(f)),
        ("/..", Ok(root)),
        ("/", Ok(root)),
        (".", Ok(root)),
        ("..", Ok(root)),
        ("a/l", Ok(b)),
        ("a/l/", Ok(b)),
        ("a/l/f", Ok(f)),
        ("a/abs", Ok(f)),
        ("a/abs/", Err(ENOTDIR)),
        ("a/slashed", Err(ENOTDIR)),
        ("a/b/f/", Err(ENOTDIR)),
        ("a/b/f/.", Err(ENOTDIR)),
        ("a/b/f/..", Err(ENOTDIR)),
        ("a/b/f/x", Err(ENOTDIR)),
        ("a/b/up", Ok(b)),
        ("a/b/up/f", Ok(f)),
        ("loop1", Err(ELOOP)),
        ("loop1/x", Err(ELOOP)),
        ("dangling", Err(ENOENT)),
        ("dangling/", Err(ENOENT)),
        ("missing/x", Err(ENOENT)),
        ("missing/..", Err(ENOENT)),
        ("", Err(ENOENT)),
        (&long, Err(ENAMETOOLONG)),
        (&very_long, Err(ENAMETOOLONG)),
    ];
    for (path, want) in cases {
        assert_eq!(r.stat(path).map(|s| s.ino), *want, "{path}");
        // Again: now from the cache.
        assert_eq!(r.stat(path).map(|s| s.ino), *want, "{path}");
    }
    assert_eq!(r.lstat("loop1").unwrap().mode & S_IFMT, S_IFLNK);
    assert_eq!(r.lstat("a/l").unwrap().mode & S_IFMT, S_IFLNK);
    assert_eq!(r.lstat("a/l/").unwrap().ino, b);
}

#[test]
fn forty_links_and_not_one_more() {
    let r = Rig::new();
    r.put("/l0", b"").unwrap();
    for i in 1..=41 {
        r.symlink(&format!("l{}", i - 1), &format!("/l{i}"))
            .unwrap();
    }
    assert!(r.stat("/l40").is_ok());
    assert_eq!(r.stat("/l41"), Err(ELOOP));
}

#[test]
fn open_flags() {
    let r = tree();
    let open = |p: &str, f: u32| r.open(p, f).map(|_| ());
    assert_eq!(open("a/b", O_RDWR), Err(EISDIR));
    assert_eq!(open("a/b", O_CREAT), Err(EISDIR));
    assert_eq!(open("a/b", O_CREAT | O_EXCL), Err(EEXIST));
    assert_eq!(open("a/new/", O_CREAT), Err(EISDIR));
    assert_eq!(open("a/b/f", O_DIRECTORY), Err(ENOTDIR));
    assert_eq!(open("a/b/f", O_CREAT | O_DIRECTORY), Err(EINVAL));
    assert_eq!(open("a/l", O_NOFOLLOW), Err(ELOOP));
    assert_eq!(open("a/l", O_NOFOLLOW | O_DIRECTORY), Err(ENOTDIR));
    assert_eq!(open("a/abs", O_CREAT | O_EXCL), Err(EEXIST));
    assert_eq!(open("dangling", O_CREAT | O_EXCL), Err(EEXIST));
    assert_eq!(open("dangling", O_CREAT | O_NOFOLLOW), Err(ELOOP));
    assert_eq!(open("a/..", O_CREAT), Err(EISDIR));
    assert_eq!(open("a/b", O_TMPFILE), Err(EINVAL));
    // O_CREAT through a dangling link makes its target.
    assert_eq!(open("dangling", O_CREAT | O_RDWR), Ok(()));
    assert!(r.stat("/missing").is_ok());
    // A link as itself.
    let l = r.open("a/l", O_PATH | O_NOFOLLOW).unwrap();
    assert_eq!(crate::ops::fstat(&l).unwrap().mode & S_IFMT, S_IFLNK);
    assert_eq!(
        r.cx().readlink(&At::File(l.clone()), b""),
        Ok(b"b".to_vec())
    );
    assert_eq!(read(&l, 1), Err(EBADF));
    // O_TRUNC.
    r.open("a/b/f", O_WRONLY | O_TRUNC).unwrap();
    assert_eq!(r.stat("a/b/f").unwrap().size, 0);
    // O_TMPFILE and its name.
    let t = r.open("a/b", O_TMPFILE | O_RDWR).unwrap();
    write(&t, b"hidden").unwrap();
    assert_eq!(crate::ops::fstat(&t).unwrap().nlink, 0);
    r.cx()
        .link(
            &At::File(t.clone()),
            b"",
            &At::Cwd,
            b"/shown",
            AT_EMPTY_PATH,
        )
        .unwrap();
    assert_eq!(r.get("/shown").unwrap(), b"hidden");
}

#[test]
fn permissions() {
    let r = tree();
    let u = r.user(1000, 1000);
    let chmod = |p: &str, m| r.cx().chmod(&At::Cwd, p.as_bytes(), m, 0).unwrap();
    chmod("/a", 0o700);
    assert_eq!(u.stat("/a/b/f"), Err(EACCES));
    assert_eq!(u.stat("/a/nothing"), Err(EACCES));
    chmod("/a", 0o711);
    assert!(u.stat("/a/b/f").is_ok());
    assert_eq!(u.open("/a", O_DIRECTORY).err(), Some(EACCES));
    assert_eq!(u.open("/a/x", O_CREAT).err(), Some(EACCES));
    assert_eq!(u.open("/a/b/f", O_WRONLY).err(), Some(EACCES));
    assert_eq!(u.cx().access(&At::Cwd, b"/a/b/f", 4, 0), Ok(()));
    assert_eq!(u.cx().access(&At::Cwd, b"/a/b/f", 2, 0), Err(EACCES));
    assert_eq!(u.cx().access(&At::Cwd, b"/a/b/f", 1, 0), Err(EACCES));
    // Root may write what nobody may, but execute only what somebody may.
    chmod("/a/b/f", 0);
    assert_eq!(r.cx().access(&At::Cwd, b"/a/b/f", 6, 0), Ok(()));
    assert_eq!(r.cx().access(&At::Cwd, b"/a/b/f", 1, 0), Err(EACCES));
    // The sticky bit.
    r.cx().mkdir(&At::Cwd, b"/tmp", 0).unwrap();
    chmod("/tmp", 0o1777);
    r.put("/tmp/mine", b"").unwrap();
    assert_eq!(u.unlink("/tmp/mine"), Err(EPERM));
    assert_eq!(u.rename("/tmp/mine", "/tmp/other", 0), Err(EPERM));
    u.put("/tmp/his", b"").unwrap();
    assert_eq!(u.unlink("/tmp/his"), Ok(()));
    // Owners.
    assert_eq!(u.cx().chmod(&At::Cwd, b"/tmp/mine", 0o777, 0), Err(EPERM));
    assert_eq!(
        u.cx().chown(&At::Cwd, b"/tmp/mine", Some(1000), None, 0),
        Err(EPERM)
    );
    u.put("/tmp/u", b"").unwrap();
    assert_eq!(
        u.cx().chown(&At::Cwd, b"/tmp/u", Some(1000), Some(1000), 0),
        Ok(())
    );
    assert_eq!(
        u.cx().chown(&At::Cwd, b"/tmp/u", None, Some(5), 0),
        Err(EPERM)
    );
    // Set-user-id goes at a chown and at a write.
    chmod("/tmp/u", 0o6755);
    r.cx()
        .chown(&At::Cwd, b"/tmp/u", Some(1000), None, 0)
        .unwrap();
    assert_eq!(r.stat("/tmp/u").unwrap().mode & 0o7777, 0o755);
    chmod("/tmp/u", 0o4755);
    u.put("/tmp/u", b"x").unwrap();
    assert_eq!(r.stat("/tmp/u").unwrap().mode & 0o7777, 0o755);
    // Set-group-id of directories is inherited.
    r.mkdir("/tmp/g").unwrap();
    r.cx()
        .chown(&At::Cwd, b"/tmp/g", None, Some(77), 0)
        .unwrap();
    chmod("/tmp/g", 0o2777);
    u.mkdir("/tmp/g/d").unwrap();
    let s = r.stat("/tmp/g/d").unwrap();
    assert_eq!((s.gid, s.mode & 0o7777), (77, 0o2755));
    u.put("/tmp/g/d/f", b"").unwrap();
    assert_eq!(r.stat("/tmp/g/d/f").unwrap().gid, 77);
    // Times: others may set them to now only if they may write.
    let now = [crate::ops::UtimeArg::Now; 2];
    assert_eq!(u.cx().utimens(&At::Cwd, b"/tmp/mine", now, 0), Err(EACCES));
    let at = [crate::ops::UtimeArg::At(5); 2];
    assert_eq!(u.cx().utimens(&At::Cwd, b"/tmp/mine", at, 0), Err(EPERM));
    assert_eq!(r.cx().utimens(&At::Cwd, b"/tmp/mine", at, 0), Ok(()));
    assert_eq!(r.stat("/tmp/mine").unwrap().mtime, 5);
}

#[test]
fn resolve_flags() {
    let r = tree();
    let dir = At::File(r.open("/a", O_DIRECTORY).unwrap());
    let ino = |p: &str, w: Walk| {
        let p = r.cx().resolve(&dir, p.as_bytes(), w | Walk::FOLLOW);
        p.and_then(|p| p.inode().unwrap().stat()).map(|s| s.ino)
    };
    let f = r.stat("/a/b/f").unwrap().ino;
    let a = r.stat("/a").unwrap().ino;
    assert_eq!(ino("b/f", Walk::BENEATH), Ok(f));
    assert_eq!(ino("b/../b/f", Walk::BENEATH), Ok(f));
    assert_eq!(ino("..", Walk::BENEATH), Err(EXDEV));
    assert_eq!(ino("/a", Walk::BENEATH), Err(EXDEV));
    assert_eq!(ino("abs", Walk::BENEATH), Err(EXDEV));
    assert_eq!(ino("b/up", Walk::BENEATH), Err(EXDEV));
    assert_eq!(ino("../..", Walk::IN_ROOT), Ok(a));
    assert_eq!(ino("/b/f", Walk::IN_ROOT), Ok(f));
    assert_eq!(ino("abs", Walk::IN_ROOT), Err(ENOENT));
    assert_eq!(ino("l", Walk::NO_SYMLINKS), Err(ELOOP));
    assert_eq!(ino("l/f", Walk::NO_SYMLINKS), Err(ELOOP));
    assert_eq!(ino("b/f", Walk::NO_SYMLINKS), Ok(f));
    assert_eq!(Walk::from_resolve(24), Err(EINVAL));
    assert_eq!(Walk::from_resolve(1 << 20), Err(EINVAL));
}

/// A directory of magic links.
struct Magic(Mutex<Option<crate::Path>>);
struct Jump(crate::Path);
impl DynDir for Magic {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        let p = self.0.lock().unwrap().clone();
        match (name, p) {
            (b"fd", Some(p)) => Ok(DynNode::Link(Arc::new(Jump(p)))),
            _ => Err(ENOENT),
        }
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        Ok(vec![DynEntry::new("fd", FileType::Symlink)])
    }
}
impl DynLink for Jump {
    fn read(&self, _: &Caller<'_>) -> Result<Vec<u8>> {
        Ok(b"nowhere (deleted)".to_vec())
    }
    fn jump(&self, _: &Caller<'_>) -> Result<Option<crate::Path>> {
        Ok(Some(self.0.clone()))
    }
}

#[test]
fn magic_links_lead_to_places_without_a_name() {
    let r = tree();
    let magic = Arc::new(Magic(Mutex::new(None)));
    r.mkdir("/proc").unwrap();
    let at = r.cx().resolve(&At::Cwd, b"/proc", Walk::empty()).unwrap();
    let root = DynFs::mountable(&r.vfs, "proc", 0x9fa0, magic.clone());
    r.ns.mount(&at, root, MountFlags::empty(), "proc").unwrap();
    assert_eq!(r.stat("/proc/fd"), Err(ENOENT));
    let f = r.open("/a/b/f", O_RDWR).unwrap();
    *magic.0.lock().unwrap() = f.path.clone();
    r.unlink("/a/b/f").unwrap();
    assert_eq!(r.get("/proc/fd").unwrap(), b"text");
    assert_eq!(r.open("/proc/fd", O_CREAT | O_RDWR).map(|_| ()), Ok(()));
    assert_eq!(r.list("/proc").unwrap(), ["fd"]);
    let no = |w| {
        r.cx()
            .resolve(&At::Cwd, b"/proc/fd", w | Walk::FOLLOW)
            .map(|_| ())
    };
    assert_eq!(no(Walk::NO_MAGICLINKS), Err(ELOOP));
    assert_eq!(no(Walk::BENEATH), Err(EXDEV));
    let p = f.path.as_ref().unwrap().describe(&r.fs.root());
    assert_eq!(p.display(), b"/a/b/f (deleted)");
    *magic.0.lock().unwrap() = None;
    assert_eq!(r.stat("/proc/fd"), Err(ENOENT));
}
