use super::*;
use crate::walk::Walk;
use abi::errno::*;
use abi::linux::*;

#[test]
fn making_and_removing() {
    let r = Rig::new();
    assert_eq!(r.mkdir("/d/"), Ok(()));
    assert_eq!(r.mkdir("/d"), Err(EEXIST));
    assert_eq!(r.mkdir("/"), Err(EEXIST));
    assert_eq!(r.mkdir("/d/."), Err(EEXIST));
    assert_eq!(r.mkdir("/x/y"), Err(ENOENT));
    r.put("/d/f", b"").unwrap();
    assert_eq!(r.rmdir("/d"), Err(ENOTEMPTY));
    assert_eq!(r.rmdir("/d/f"), Err(ENOTDIR));
    assert_eq!(r.rmdir("/d/."), Err(EINVAL));
    assert_eq!(r.rmdir("/d/.."), Err(ENOTEMPTY));
    assert_eq!(r.rmdir("/"), Err(EBUSY));
    assert_eq!(r.unlink("/d"), Err(EISDIR));
    assert_eq!(r.unlink("/d/"), Err(EISDIR));
    assert_eq!(r.unlink("/d/f/"), Err(ENOTDIR));
    assert_eq!(r.unlink("/d/."), Err(EISDIR));
    assert_eq!(r.unlink("/nothing"), Err(ENOENT));
    assert_eq!(r.stat("/d").unwrap().nlink, 2);
    r.mkdir("/d/e").unwrap();
    assert_eq!(r.stat("/d").unwrap().nlink, 3);
    assert_eq!(r.link("/d/e", "/d/e2"), Err(EPERM));
    assert_eq!(r.link("/d/f", "/d/g"), Ok(()));
    assert_eq!(r.link("/d/f", "/d/g"), Err(EEXIST));
    assert_eq!(r.link("/d/f", "/d/h/"), Err(ENOENT));
    assert_eq!(r.stat("/d/g").unwrap().nlink, 2);
    assert_eq!(r.unlink("/d/f"), Ok(()));
    assert_eq!(r.stat("/d/f"), Err(ENOENT));
    assert_eq!(r.stat("/d/g").unwrap().nlink, 1);
    assert_eq!(r.symlink("", "/d/s"), Err(ENOENT));
    assert_eq!(r.symlink("x", "/d/s/"), Err(ENOENT));
    assert_eq!(r.list("/d").unwrap(), ["e", "g"]);
    assert_eq!(
        r.cx().mknod(&At::Cwd, b"/d/n", S_IFDIR, 0).err(),
        Some(EPERM)
    );
    assert_eq!(
        r.user(1, 1).cx().mknod(&At::Cwd, b"/n", S_IFCHR, 259).err(),
        Some(EPERM)
    );
    // A directory that was removed while someone stands in it.
    r.cx().chdir(b"/d/e").unwrap();
    assert_eq!(r.cx().getcwd().unwrap(), b"/d/e");
    r.rmdir("/d/e").unwrap();
    assert_eq!(r.cx().getcwd(), Err(ENOENT));
    assert_eq!(r.open("x", O_CREAT).err(), Some(ENOENT));
    assert_eq!(r.mkdir("x"), Err(ENOENT));
    assert!(r.stat(".").is_ok());
    assert!(r.stat("../g").is_ok());
}

#[test]
fn renames() {
    let r = Rig::new();
    for d in ["/a", "/a/b", "/c", "/c/full"] {
        r.mkdir(d).unwrap();
    }
    r.put("/c/full/f", b"").unwrap();
    r.put("/f", b"f").unwrap();
    r.put("/g", b"g").unwrap();
    assert_eq!(r.rename("/a", "/a/b/x", 0), Err(EINVAL));
    assert_eq!(r.rename("/a/b", "/a", 0), Err(ENOTEMPTY));
    assert_eq!(r.rename("/a", "/c", 0), Err(ENOTEMPTY));
    assert_eq!(r.rename("/a", "/f", 0), Err(ENOTDIR));
    assert_eq!(r.rename("/f", "/a", 0), Err(EISDIR));
    assert_eq!(r.rename("/f", "/x/", 0), Err(ENOTDIR));
    assert_eq!(r.rename("/f/", "/x", 0), Err(ENOTDIR));
    assert_eq!(r.rename("/nothing", "/x", 0), Err(ENOENT));
    assert_eq!(r.rename("/a/.", "/x", 0), Err(EBUSY));
    assert_eq!(r.rename("/f", "/g", RENAME_NOREPLACE), Err(EEXIST));
    assert_eq!(r.rename("/f", "/x", RENAME_EXCHANGE), Err(ENOENT));
    assert_eq!(
        r.rename("/f", "/g", RENAME_EXCHANGE | RENAME_NOREPLACE),
        Err(EINVAL)
    );
    assert_eq!(r.rename("/f", "/g", RENAME_EXCHANGE), Ok(()));
    assert_eq!(r.get("/f").unwrap(), b"g");
    assert_eq!(r.rename("/f", "/a", RENAME_EXCHANGE), Ok(()));
    assert_eq!(r.get("/a").unwrap(), b"g");
    assert!(r.stat("/f/b").is_ok());
    assert_eq!(r.rename("/f", "/a", RENAME_EXCHANGE), Ok(()));
    // Over an empty directory, between directories.
    r.mkdir("/c/empty").unwrap();
    assert_eq!(r.stat("/c").unwrap().nlink, 4);
    r.cx().chdir(b"/a/b").unwrap();
    assert_eq!(r.rename("/a", "/c/empty", 0), Ok(()));
    assert_eq!(r.cx().getcwd().unwrap(), b"/c/empty/b");
    assert_eq!(r.stat("/c").unwrap().nlink, 4);
    assert_eq!(r.stat("/").unwrap().nlink, 3);
    assert_eq!(r.stat("/a"), Err(ENOENT));
    // Two names of one file: nothing happens.
    r.link("/f", "/f2").unwrap();
    assert_eq!(r.rename("/f", "/f2", 0), Ok(()));
    assert!(r.stat("/f").is_ok() && r.stat("/f2").is_ok());
    // Over a file.
    assert_eq!(r.rename("/f", "/g", 0), Ok(()));
    assert_eq!(r.get("/g").unwrap(), b"g");
    assert_eq!(r.list("/").unwrap(), ["c", "f2", "g"]);
    assert_eq!(r.rename("/g", "/h", RENAME_WHITEOUT), Ok(()));
    assert_eq!(r.stat("/g").unwrap().mode & S_IFMT, S_IFCHR);
}

#[test]
fn deep_trees_are_dropped() {
    let r = Rig::new();
    let inner = r.user(0, 0);
    for _ in 0..30_000 {
        inner.mkdir("d").unwrap();
        inner.cx().chdir(b"d").unwrap();
    }
    drop(inner);
    r.vfs.new_id();
    r.ns.root().mnt.sb().shrink();
    r.rename("/d", "/e", 0).unwrap();
    drop(r);
}

#[test]
fn xattrs() {
    use crate::ops::XattrOf;
    use crate::walk::Walk;
    let r = Rig::new();
    r.put("/f", b"").unwrap();
    r.symlink("f", "/l").unwrap();
    let u = r.user(5, 5);
    let of = |p: &'static str| XattrOf::Path {
        at: At::Cwd,
        path: p.as_bytes(),
        walk: Walk::empty(),
    };
    let c = r.cx();
    assert_eq!(c.set_xattr(&of("/f"), b"user.a", b"1", 0), Ok(()));
    assert_eq!(
        c.set_xattr(&of("/f"), b"user.a", b"2", XATTR_CREATE),
        Err(EEXIST)
    );
    assert_eq!(
        c.set_xattr(&of("/f"), b"user.b", b"2", XATTR_REPLACE),
        Err(ENODATA)
    );
    assert_eq!(c.set_xattr(&of("/f"), b"bad.a", b"2", 0), Err(EOPNOTSUPP));
    assert_eq!(c.set_xattr(&of("/f"), b"user.", b"2", 0), Err(EINVAL));
    assert_eq!(c.set_xattr(&of("/f"), b"", b"2", 0), Err(ERANGE));
    assert_eq!(c.set_xattr(&of("/l"), b"user.a", b"2", 0), Err(EPERM));
    assert_eq!(c.set_xattr(&of("/f"), b"trusted.t", b"2", 0), Ok(()));
    assert_eq!(c.get_xattr(&of("/f"), b"user.a"), Ok(b"1".to_vec()));
    assert_eq!(u.cx().get_xattr(&of("/f"), b"trusted.t"), Err(ENODATA));
    assert_eq!(u.cx().set_xattr(&of("/f"), b"user.a", b"3", 0), Err(EACCES));
    assert_eq!(c.list_xattr(&of("/f")), Ok(b"trusted.t\0user.a\0".to_vec()));
    assert_eq!(u.cx().list_xattr(&of("/f")), Ok(b"user.a\0".to_vec()));
    assert_eq!(c.remove_xattr(&of("/f"), b"user.a"), Ok(()));
    assert_eq!(c.remove_xattr(&of("/f"), b"user.a"), Err(ENODATA));
}

#[derive(Default)]
struct Log(parking_lot::Mutex<Vec<(u32, String)>>);
impl crate::attachments::Attachable for Log {}
impl crate::watch::Watcher for Log {
    fn event(&self, mask: u32, _: u32, name: &[u8]) {
        self.0
            .lock()
            .push((mask, String::from_utf8_lossy(name).into_owned()));
    }
    fn end(&self) {
        self.0.lock().push((0, String::from("end")));
    }
}

#[test]
fn watchers_are_told() {
    use crate::watch::*;
    let r = Rig::new();
    r.mkdir("/d").unwrap();
    let at = |p: &str| {
        r.cx()
            .resolve(&At::Cwd, p.as_bytes(), crate::walk::Walk::empty())
            .unwrap()
    };
    let (dir, _dir_is_kept) = watcher::<Log>(&at("/d")).unwrap();
    r.put("/d/f", b"text").unwrap();
    let (file, _file_is_kept) = watcher::<Log>(&at("/d/f")).unwrap();
    r.ns.root().mnt.sb().shrink();
    r.cx().chmod(&At::Cwd, b"/d/f", 0o600, 0).unwrap();
    r.rename("/d/f", "/d/g", 0).unwrap();
    r.unlink("/d/g").unwrap();
    let took = |l: &Log| std::mem::take(&mut *l.0.lock());
    let e = |m: u32, n: &str| (m, String::from(n));
    let seen = took(&dir);
    assert_eq!(
        seen,
        [
            e(IN_CREATE, "f"),
            e(IN_OPEN, "f"),
            e(IN_MODIFY, "f"),
            e(IN_CLOSE_WRITE, "f"),
            e(IN_ATTRIB, "f"),
            e(IN_MOVED_FROM, "f"),
            e(IN_MOVED_TO, "g"),
            e(IN_DELETE, "g"),
        ]
    );
    let own = [
        e(IN_ATTRIB, ""),
        e(IN_MOVE_SELF, ""),
        e(IN_ATTRIB, ""),
        e(IN_DELETE_SELF, ""),
        e(0, "end"),
    ];
    assert_eq!(took(&file), own);
}

#[test]
fn a_dev_directory() {
    let r = Rig::new();
    r.mkdir("/dev").unwrap();
    for _ in 0..2 {
        crate::fs::dev::populate(&r.cx(), "/dev").unwrap();
    }
    assert_eq!(r.stat("/dev/null").unwrap().mode, S_IFCHR | 0o666);
    assert_eq!(r.list("/dev").unwrap().len(), 14);
}

/// What a user's names take, on a tree that starts empty: each name that a link made, its linker's,
/// while it is there.
pub(super) fn links_are_charged_while_they_are_there(root: &Rig, uid: u32) {
    use crate::ucounts::Kind;
    root.mkdir("/links").unwrap();
    root.cx().chmod(&At::Cwd, b"/links", 0o777, 0).unwrap();
    let (a, b) = (root.user(uid, uid), root.user(uid + 1, uid + 1));
    let held = |r: &Rig| r.cred.ucounts().count(Kind::Kmem);
    a.put("/links/f", b"x").unwrap();
    root.cx().chmod(&At::Cwd, b"/links/f", 0o666, 0).unwrap();
    let file = held(&a);
    assert_eq!(held(&b), 0);
    for _ in 0..3 {
        b.link("/links/f", "/links/g").unwrap();
        assert!(held(&b) >= 512 && held(&a) == file);
        b.unlink("/links/g").unwrap();
        assert_eq!((held(&a), held(&b)), (file, 0));
    }
    // A name takes its charge along, and gives it back when another goes over it.
    for _ in 0..3 {
        b.link("/links/f", "/links/g").unwrap();
        let one = held(&b);
        b.rename("/links/g", "/links/h", 0).unwrap();
        assert_eq!(held(&b), one);
        a.put("/links/other", b"").unwrap();
        a.rename("/links/other", "/links/h", 0).unwrap();
        assert_eq!(held(&b), 0);
        a.unlink("/links/h").unwrap();
    }
    // So it does when names are exchanged: the file that goes leaves the other's name charged.
    b.link("/links/f", "/links/g").unwrap();
    let one = held(&b);
    b.put("/links/h", b"").unwrap();
    b.rename("/links/g", "/links/h", RENAME_EXCHANGE).unwrap();
    b.unlink("/links/g").unwrap();
    assert_eq!(held(&b), one);
    b.unlink("/links/h").unwrap();
    assert_eq!((held(&a), held(&b)), (file, 0));
    // Where there is no more, there is no name more.
    let rest = crate::userns::UserNs::default().limits().get(Kind::Kmem) as u64;
    let full = b.cred.ucounts().force(Kind::Kmem, rest);
    assert_eq!(b.link("/links/f", "/links/g"), Err(ENOSPC));
    assert_eq!(a.stat("/links/f").unwrap().nlink, 1);
    drop(full);
    a.unlink("/links/f").unwrap();
}

#[test]
fn links_on_tmpfs_are_charged_while_they_are_there() {
    links_are_charged_while_they_are_there(&Rig::new(), 77_030);
}

/// What an open file keeps of a generated text, and an open directory of its names, is the
/// opener's.
#[test]
fn texts_and_listings_are_charged_to_who_reads() {
    use crate::fs::dynamic::{DynFs, StaticDir};
    use crate::ucounts::Kind;
    let (r, _below) = root_layer::root_layer();
    for i in 0..100 {
        r.put(&format!("/a/file{i}"), b"").unwrap();
    }
    let texts = StaticDir::new().text("long", vec![b'x'; 50_000]);
    let texts = DynFs::mountable(&r.vfs, "texts", 0, Arc::new(texts));
    let texts = Rig::on(r.vfs.clone(), r.clas.clone(), texts);
    let of = |rig: &Rig| rig.user(77_040, 77_040);
    let u = of(&r).cred.ucounts().clone();
    let held = || u.count(Kind::Kmem);

    let dir = of(&r).open("/a", O_RDONLY | O_DIRECTORY).unwrap();
    let before = held();
    list(&dir).unwrap();
    assert!(held() >= before + 100 * 32, "{} {before}", held());
    let open = || of(&texts).open("/long", O_RDONLY).unwrap();
    let file = open();
    let before = held();
    read(&file, 8).unwrap();
    read(&file, 8).unwrap();
    assert_eq!(held(), before + 50_000);

    let rest = crate::userns::UserNs::default().limits().get(Kind::Kmem) as u64;
    let full = u.force(Kind::Kmem, rest);
    assert_eq!(read(&open(), 8), Err(ENOMEM));
    let again = of(&r).open("/a", O_RDONLY | O_DIRECTORY).unwrap();
    assert_eq!(list(&again).err(), Some(ENOMEM));
    // What is there can be read on.
    assert_eq!(read(&file, 8).unwrap().len(), 8);
    drop(again);
    drop(full);
    drop((dir, file));
    assert_eq!(held(), 0);
}

/// What was looked for in a directory does not keep it, once it is gone.
#[test]
fn a_removed_directory_is_not_kept() {
    let (r, _below) = root_layer::root_layer();
    let watch = |name: &str| {
        let p = r.cx().resolve(&At::Cwd, name.as_bytes(), Walk::empty());
        Arc::downgrade(&p.unwrap().dentry)
    };
    for d in ["/removed", "/replaced", "/other"] {
        r.mkdir(d).unwrap();
        assert_eq!(r.stat(&format!("{d}/missing")), Err(ENOENT));
    }
    let (removed, replaced) = (watch("/removed"), watch("/replaced"));
    r.rmdir("/removed").unwrap();
    assert!(removed.upgrade().is_none());
    r.rename("/other", "/replaced", 0).unwrap();
    assert!(replaced.upgrade().is_none());
}

/// In memory a look at a directory costs as little as one at what is remembered of it.
#[test]
fn tmpfs_remembers_no_missing_names() {
    let r = Rig::new();
    let root = r.fs.root().dentry.clone();
    let before = Arc::strong_count(&root);
    for i in 0..50 {
        let (a, b) = (format!("/a{i}"), format!("/b{i}"));
        assert_eq!(r.stat(&a), Err(ENOENT));
        r.put(&a, b"").unwrap();
        r.rename(&a, &b, 0).unwrap();
        r.unlink(&b).unwrap();
    }
    assert_eq!(Arc::strong_count(&root), before);
}

/// A thread's boundary, where the test runs what was put off.
struct Here;
impl wait::later::Boundary for Here {
    fn ask(&self) {}
}

/// A file's watches end with the last user of its last name, and do not keep it.
#[test]
fn watches_end_with_the_last_user() {
    use crate::watch::*;
    use wait::later;
    let _bounded = later::Bounded::by(Arc::new(Here));
    let r = Rig::new();
    let at = |p: &str| r.cx().resolve(&At::Cwd, p.as_bytes(), Walk::empty());
    let e = |m: u32, n: &str| (m, String::from(n));
    let took = |l: &Log| std::mem::take(&mut *l.0.lock());
    let end = [e(IN_DELETE_SELF, ""), e(0, "end")];
    let sb = r.ns.root().mnt.sb().clone();

    r.put("/f", b"").unwrap();
    let file = r.open("/f", O_RDONLY).unwrap();
    let (log, kept) = watcher::<Log>(&at("/f").unwrap()).unwrap();
    assert!(sb.is_watched());
    r.unlink("/f").unwrap();
    assert_eq!(took(&log), [e(IN_ATTRIB, "")]);
    // One more, of the file without a name.
    let again = watcher::<Log>(file.path.as_ref().unwrap()).unwrap();
    assert!(Arc::ptr_eq(&log, &again.0));
    let inode = Arc::downgrade(file.path.as_ref().unwrap().inode().unwrap());
    drop(file);
    assert_eq!(took(&log), [e(IN_CLOSE_NOWRITE, "")]);
    later::run();
    assert_eq!(took(&log), end);
    assert!(inode.upgrade().is_none() && kept.file().is_none());
    drop(kept);
    assert!(sb.is_watched());
    drop(again);
    assert!(!sb.is_watched());

    // One that gets its first name while it is watched is kept by that.
    let file = r.open("/", O_TMPFILE | O_RDWR).unwrap();
    let (log, kept) = watcher::<Log>(file.path.as_ref().unwrap()).unwrap();
    r.cx()
        .link(&At::File(file.clone()), b"", &At::Cwd, b"/g", AT_EMPTY_PATH)
        .unwrap();
    drop(file);
    sb.shrink();
    later::run();
    assert_eq!(took(&log), [e(IN_ATTRIB, ""), e(IN_CLOSE_WRITE, "")]);
    assert!(kept.file().is_some());
    r.unlink("/g").unwrap();
    assert_eq!(took(&log)[1..], end);
    assert!(kept.file().is_none());
}

/// A look for marks that are not there makes nothing, and what was made ends with the last mark.
#[test]
fn a_look_for_marks_makes_nothing() {
    use crate::watch::{Happening, Watchers, marks::*};
    struct G;
    impl Group for G {
        fn flags(&self) -> u32 {
            0
        }
        fn priority(&self) -> u8 {
            0
        }
        fn tell(&self, _: &Happening<'_>, _: u32, _: Matched, _: u64) {}
        fn ask(&self, _: &Happening<'_>, _: u32, _: u64, _: &dyn wait::Blocker) -> Result<()> {
            Ok(())
        }
        fn forget(&self, _: &Arc<Mark>) {}
    }
    let r = Rig::new();
    r.put("/f", b"").unwrap();
    let at = r.cx().resolve(&At::Cwd, b"/f", Walk::empty()).unwrap();
    let g: Arc<dyn Group> = Arc::new(G);
    let g = Arc::downgrade(&g);
    for kind in [Kind::Inode, Kind::Mount, Kind::FileSystem] {
        assert!(mark_at(&at, kind, &g).is_none());
        let sb = at.mnt.sb();
        assert!(
            at.inode()
                .unwrap()
                .ext()
                .attachments
                .get::<Watchers>()
                .is_none()
        );
        assert!(at.mnt.attachments.get::<Marks>().is_none() && !sb.is_watched());
        assert!(sb.attachments.get::<Marks>().is_none());
    }
    let (marks, kept) = marks_at(&at, Kind::FileSystem, Keep::Yes).unwrap();
    let m = marks.add(&g, at.mnt.sb(), 0);
    assert!(kept.is_none() && at.mnt.sb().is_watched());
    m.detach();
    drop(m);
    assert!(!at.mnt.sb().is_watched());
}

#[derive(Default)]
struct Nobody;

impl crate::attachments::Attachable for Nobody {}
impl crate::watch::Watcher for Nobody {
    fn event(&self, _: u32, _: u32, _: &[u8]) {}
    fn end(&self) {}
}

#[test]
fn a_file_is_kept_as_long_as_it_is_watched() {
    let r = Rig::new();
    r.put("/f", b"").unwrap();
    let at = r
        .cx()
        .resolve(&At::Cwd, b"/f", crate::walk::Walk::empty())
        .unwrap();
    let users = Arc::strong_count(&at.dentry);
    let watch = || crate::watch::watcher::<Nobody>(&at).unwrap();
    let (one, other) = (watch(), watch());
    assert_eq!(Arc::strong_count(&at.dentry), users + 1);
    drop(one);
    assert_eq!(Arc::strong_count(&at.dentry), users + 1);
    drop(other);
    assert_eq!(Arc::strong_count(&at.dentry), users);
}
