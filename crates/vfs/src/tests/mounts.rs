use super::*;
use crate::fs::tmpfs::TmpfsType;
use crate::mount::Path;
use crate::namespace::{Beneath, Recursive};
use crate::ops::MountArgs;
use crate::peers::Propagation;
use crate::ucounts::Kind;
use crate::userns::{self, NsId, UserNs};
use abi::errno::*;
use abi::linux::*;

fn rig() -> Rig {
    let r = Rig::new();
    let t = TmpfsType {
        clas: r.clas.clone(),
        default: Options::default(),
        total_pages: 1000,
        name: "tmpfs",
    };
    r.vfs.register_fs("tmpfs", Arc::new(t));
    for d in ["/m", "/n", "/o"] {
        r.mkdir(d).unwrap();
    }
    r
}

fn tmpfs(r: &Rig, at: &str, flags: u32, data: &str) -> Result<()> {
    let args = MountArgs {
        source: b"none",
        fs_type: b"tmpfs",
        data: data.as_bytes(),
    };
    r.cx().mount(at.as_bytes(), u64::from(flags), args)
}
fn bind(r: &Rig, from: &str, at: &str, flags: u32) -> Result<()> {
    let args = MountArgs {
        source: from.as_bytes(),
        ..MountArgs::default()
    };
    r.cx()
        .mount(at.as_bytes(), u64::from(MS_BIND | flags), args)
}

#[test]
fn mount_and_umount() {
    let r = rig();
    r.put("/m/under", b"").unwrap();
    assert_eq!(
        r.user(1, 1).cx().mount(b"/m", 0, MountArgs::default()),
        Err(EPERM)
    );
    tmpfs(&r, "/m", MS_NOSUID, "size=64k,mode=700").unwrap();
    assert_eq!(r.stat("/m").unwrap().mode & 0o7777, 0o700);
    assert_eq!(r.stat("/m/under"), Err(ENOENT));
    assert_eq!(r.rmdir("/m"), Err(EBUSY));
    assert_eq!(r.rename("/m", "/x", 0), Err(EBUSY));
    r.mkdir("/m/d").unwrap();
    assert_eq!(r.stat("/m/d/../..").unwrap().ino, r.stat("/").unwrap().ino);
    assert_eq!(r.rename("/m/d", "/d", 0), Err(EXDEV));
    let held = r.open("/m/d", O_DIRECTORY).unwrap();
    assert_eq!(r.cx().umount(b"/m", 0), Err(EBUSY));
    assert_eq!(r.cx().umount(b"/m/d", 0), Err(EINVAL));
    assert_eq!(r.cx().umount(b"/m", MNT_DETACH), Ok(()));
    assert!(r.stat("/m/under").is_ok());
    assert!(r.cx().stat(&At::File(held), b"..", 0).is_ok());
    // A limit.
    tmpfs(&r, "/m", 0, "size=8k").unwrap();
    assert_eq!(r.put("/m/f", &[1; 8192]), Ok(()));
    assert_eq!(r.put("/m/g", b"1"), Err(ENOSPC));
    assert_eq!(r.cx().umount(b"/m", 0), Ok(()));
    assert_eq!(tmpfs(&r, "/m", 0, "nonsense"), Err(EINVAL));
}

#[test]
fn binds_and_flags() {
    let r = rig();
    r.put("/m/f", b"x").unwrap();
    tmpfs(&r, "/o", 0, "").unwrap();
    bind(&r, "/m", "/n", 0).unwrap();
    assert_eq!(r.get("/n/f").unwrap(), b"x");
    let args = MountArgs::default();
    let ro = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOEXEC;
    r.cx().mount(b"/n", u64::from(ro), args).unwrap();
    assert_eq!(r.open("/n/f", O_WRONLY).err(), Some(EROFS));
    assert_eq!(r.open("/n/new", O_CREAT).err(), Some(EROFS));
    assert_eq!(r.open("/n/f", O_CREAT).map(|_| ()), Ok(()));
    assert_eq!(r.unlink("/n/f"), Err(EROFS));
    assert_eq!(r.cx().access(&At::Cwd, b"/n/f", 2, 0), Err(EROFS));
    assert_eq!(r.put("/m/f", b"y"), Ok(()));
    // A file on a file.
    r.put("/file", b"").unwrap();
    assert_eq!(bind(&r, "/m", "/file", 0), Err(ENOTDIR));
    bind(&r, "/m/f", "/file", 0).unwrap();
    assert_eq!(r.get("/file").unwrap(), b"y");
    assert_eq!(r.unlink("/file"), Err(EBUSY));
    // Recursively.
    r.mkdir("/all").unwrap();
    bind(&r, "/", "/all", MS_REC).unwrap();
    assert_eq!(r.stat("/all/o").unwrap().dev, r.stat("/o").unwrap().dev);
    assert_eq!(r.stat("/all/all").unwrap().nlink, 2);
    let info = String::from_utf8(r.ns.mountinfo(&r.fs.root())).unwrap();
    assert!(
        info.contains(" /m /n ro,noexec,relatime - tmpfs none rw"),
        "{info}"
    );
    assert!(info.contains(" /m/f /file rw,relatime - "), "{info}");
    assert_eq!(info.lines().count(), 8, "{info}");
    // Moves.
    r.mkdir("/new").unwrap();
    let mv = MountArgs {
        source: b"/o",
        ..args
    };
    r.cx().mount(b"/new", u64::from(MS_MOVE), mv).unwrap();
    assert_ne!(r.stat("/o").unwrap().dev, r.stat("/new").unwrap().dev);
}

#[test]
fn pivot_root_as_container_runtimes_do_it() {
    let r = rig();
    tmpfs(&r, "/m", 0, "").unwrap();
    r.mkdir("/m/put").unwrap();
    r.put("/m/inside", b"").unwrap();
    assert_eq!(r.cx().pivot_root(b"/n", b"/n"), Err(EBUSY));
    r.cx().chdir(b"/m").unwrap();
    r.cx().pivot_root(b".", b".").unwrap();
    r.cx().umount(b".", MNT_DETACH).unwrap();
    assert!(r.stat("/inside").is_ok());
    assert_eq!(r.stat("/n"), Err(ENOENT));
    assert_eq!(r.ns.mounts().len(), 1);
    r.cx().chdir(b"/").unwrap();
    assert_eq!(r.cx().getcwd().unwrap(), b"/");
}

#[test]
fn namespaces_are_copies() {
    let r = rig();
    tmpfs(&r, "/m", 0, "").unwrap();
    r.put("/m/f", b"1").unwrap();
    let u = r.user(0, 0);
    u.cx().chdir(b"/m").unwrap();
    u.fs.unshare_ns(crate::userns::NsId::initial(1), &Default::default())
        .unwrap();
    assert_eq!(u.get("f").unwrap(), b"1");
    tmpfs(&u, "/n", 0, "").unwrap();
    u.put("/n/x", b"").unwrap();
    assert_eq!(r.stat("/n/x"), Err(ENOENT));
    r.cx().umount(b"/m", 0).unwrap();
    assert_eq!(u.get("/m/f").unwrap(), b"1");
    // chroot: nothing above it.
    u.cx().chdir(b"/").unwrap();
    u.cx().chroot(b"/m").unwrap();
    assert_eq!(u.get("/../../f").unwrap(), b"1");
    assert_eq!(u.cx().getcwd().unwrap(), b"(unreachable)/");
}

/// What comes into several namespaces that one user pays for, and the tree itself, have room
/// together or not at all.
#[test]
fn one_user_pays_for_all_copies_together() {
    let r = rig();
    tmpfs(&r, "/m", 0, "").unwrap();
    r.mkdir("/m/t").unwrap();
    tmpfs(&r, "/n", 0, "").unwrap();
    for d in ["/n/1", "/n/2", "/n/3"] {
        r.mkdir(d).unwrap();
        tmpfs(&r, d, 0, "").unwrap();
    }
    let outside = r.user(4711, 4711).cred;
    let inside = UserNs::create(&userns::Registry::default(), &outside).unwrap();
    let copy = |ns: &MountNamespace| ns.copy(NsId::initial(1), &inside.user_ns).unwrap().0;
    let a = copy(&r.ns);
    let at = |path: &str| {
        let dev = r.stat(path).unwrap().dev;
        let m = a.mounts().into_iter().find(|m| m.sb().dev == dev);
        Path::root_of(&m.unwrap())
    };
    let (m, n) = (at("/m"), at("/n"));
    a.set_propagation(&m, Propagation::Shared, Recursive::No)
        .unwrap();
    let peers = [copy(&a), copy(&a), copy(&a)];
    let before = [&a, &peers[0]].map(|ns| ns.mounts().len());
    let payer = UserNs::default().ucounts(4711);
    let leave = |mounts: i64| {
        let used = payer.count(Kind::Kmem) + mounts * 1024;
        let most = UserNs::default().limits().get(Kind::Kmem);
        payer.force(Kind::Kmem, (most - used) as u64)
    };
    // Each of four has room for the four mounts.
    let full = leave(15);
    assert_eq!(a.bind(&n, &m, Recursive::Yes).err(), Some(ENOSPC));
    assert_eq!([&a, &peers[0]].map(|ns| ns.mounts().len()), before);
    drop(full);
    // A detached tree is paid for; its copies are not.
    let tree = a.detached_copy(&n, Recursive::Yes).unwrap();
    let from = Path::root_of(&tree.root().unwrap());
    let full = leave(11);
    let to_m = || a.move_mount(&from, &m, Beneath::No, &a.root());
    assert_eq!(to_m(), Err(ENOSPC));
    drop(full);
    let full = leave(12);
    assert_eq!(to_m(), Ok(()));
    drop(full);
    let full = leave(16);
    assert!(a.bind(&n, &m, Recursive::Yes).is_ok());
    drop(full);
    for (ns, before) in [&a, &peers[0]].into_iter().zip(before) {
        assert_eq!(ns.mounts().len(), before + 8);
    }
}

/// Whether the group above a slave is in reach is looked up once for all slaves: many slaves of a
/// group of many took seconds a read.
#[test]
fn masters_are_looked_through_once() {
    let r = rig();
    tmpfs(&r, "/m", 0, "").unwrap();
    let cx = r.cx();
    let make = |at: &str, to: u32| cx.mount(at.as_bytes(), to.into(), MountArgs::default());
    make("/m", MS_SHARED).unwrap();
    const EACH: usize = 4000;
    for i in 0..EACH {
        for (d, slave) in [("n", false), ("o", true)] {
            let at = format!("/{d}/{i}");
            r.mkdir(&at).unwrap();
            bind(&r, "/m", &at, 0).unwrap();
            if slave {
                make(&at, MS_SLAVE).unwrap();
            }
        }
    }
    // No member is in reach: all of them are asked.
    cx.chroot(b"/o").unwrap();
    let begin = std::time::Instant::now();
    let info = String::from_utf8(r.ns.mountinfo(&r.fs.root())).unwrap();
    assert_eq!(info.matches(" master:").count(), EACH, "{info}");
    assert!(!info.contains("propagate_from"));
    let took = begin.elapsed();
    assert!(took < std::time::Duration::from_secs(1), "{took:?}");
}
