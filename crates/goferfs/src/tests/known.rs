//! What is known of names in shared directories after the container's own changes.

use super::*;

fn in_a(r: &Rig) -> Arc<dyn vfs::Inode> {
    let walk = vfs::walk::Walk::empty();
    let dir = r.cx().resolve(&At::Cwd, b"/a", walk).unwrap();
    dir.inode().unwrap().clone()
}

/// Whether a name is known, and to be there.
fn known(dir: &Arc<dyn vfs::Inode>, name: &str) -> Option<bool> {
    let i: &GoferInode = vfs::inode::downcast(dir).unwrap();
    i.known(i.version().unwrap(), name.as_bytes())
        .map(|n| n.is_some())
}

/// Used often enough for a descriptor.
fn warm(dir: &Arc<dyn vfs::Inode>) {
    let i: &GoferInode = vfs::inode::downcast(dir).unwrap();
    for _ in 0..4 {
        let _ = i.version();
    }
}

#[test]
fn a_shrink_forgets() {
    let r = Rig::new(Sharing::Shared, tree);
    if !r.fine_times() {
        return;
    }
    let a = in_a(&r);
    warm(&a);
    assert_eq!(r.stat("/a/none"), Err(ENOENT));
    assert_eq!(known(&a, "none"), Some(false));
    r.fs.root().dentry.sb().shrink();
    assert_eq!(known(&a, "none"), None);
}

#[test]
fn links_and_renames_are_told() {
    let r = Rig::new(Sharing::Shared, tree);
    if !r.fine_times() {
        return;
    }
    let a = in_a(&r);
    warm(&a);
    let rename = |from: &str, to: &str, flags| {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        r.cx().rename(&At::Cwd, from, &At::Cwd, to, flags).unwrap();
    };
    r.open("/a/one", O_CREAT | O_RDWR).unwrap();
    r.cx()
        .link(&At::Cwd, b"/a/one", &At::Cwd, b"/a/two", 0)
        .unwrap();
    assert_eq!(known(&a, "two"), Some(true));
    rename("/a/two", "/a/three", 0);
    assert_eq!(
        (known(&a, "two"), known(&a, "three")),
        (Some(false), Some(true))
    );
    // Which takes no request but its own, from now on.
    let before = r.client.requests();
    rename("/a/three", "/a/two", 0);
    rename("/a/two", "/a/three", 0);
    assert_eq!(r.stat("/a/two"), Err(ENOENT));
    assert_eq!(r.client.requests() - before, 2);
    // Two files, and each other's name.
    r.open("/a/four", O_CREAT | O_RDWR).unwrap();
    r.stat("/a/three").unwrap();
    rename("/a/three", "/a/four", RENAME_EXCHANGE);
    assert_eq!(
        (known(&a, "three"), known(&a, "four")),
        (Some(true), Some(true))
    );
    for name in ["/a/three", "/a/four"] {
        let [host, seen] = both(&r, name);
        assert_eq!(host, seen);
    }
    // Over what is there, and out of the directory.
    rename("/a/three", "/a/four", 0);
    assert_eq!(
        (known(&a, "three"), known(&a, "four")),
        (Some(false), Some(true))
    );
    rename("/a/four", "/a/b/away", 0);
    assert_eq!(known(&a, "four"), Some(false));
    // The host's changes are seen all the same.
    std::fs::rename(r.host.join("a/b/away"), r.host.join("a/four")).unwrap();
    assert_eq!(known(&a, "four"), None);
    for name in ["/a/four", "/a/b/away", "/a/three"] {
        let [host, seen] = both(&r, name);
        assert_eq!(host, seen);
    }
}

/// A database asks for the same names around each change of one of them.
#[test]
fn names_that_are_asked_for_again() {
    let r = Rig::new(Sharing::Shared, tree);
    if !r.fine_times() {
        return;
    }
    std::fs::write(r.host.join("a/db"), b"pages").unwrap();
    let a = in_a(&r);
    warm(&a);
    let transaction = || {
        assert_eq!(r.stat("/a/journal"), Err(ENOENT));
        assert_eq!(r.stat("/a/wal"), Err(ENOENT));
        r.open("/a/journal", O_CREAT | O_RDWR).unwrap();
        assert_eq!(r.stat("/a/db").unwrap().size, 5);
        assert_eq!(r.stat("/a/wal"), Err(ENOENT));
        r.cx().unlink(&At::Cwd, b"/a/journal").unwrap();
        assert_eq!(r.stat("/a/db").unwrap().size, 5);
    };
    for _ in 0..5 {
        transaction();
    }
    let before = r.client.requests();
    for _ in 0..10 {
        transaction();
    }
    assert_eq!(r.client.requests() - before, 20, "to make and to remove");
    // What others do is seen.
    std::fs::write(r.host.join("a/wal"), b"1").unwrap();
    assert_eq!(r.stat("/a/wal").unwrap().size, 1);
    r.open("/a/journal", O_CREAT | O_RDWR).unwrap();
    assert_eq!(known(&a, "wal"), Some(true));
    std::fs::rename(r.host.join("a/db"), r.host.join("a/wal")).unwrap();
    assert_eq!(r.stat("/a/wal").unwrap().size, 5);
    assert_eq!(r.stat("/a/db"), Err(ENOENT));
    r.cx().unlink(&At::Cwd, b"/a/journal").unwrap();
    for name in ["/a/db", "/a/wal", "/a/journal"] {
        let [host, seen] = both(&r, name);
        assert_eq!(host, seen);
    }
    // Nobody asks any more: they are looked at no more.
    for _ in 0..4 {
        r.open("/a/journal", O_CREAT | O_RDWR).unwrap();
        r.cx().unlink(&At::Cwd, b"/a/journal").unwrap();
    }
    assert_eq!((known(&a, "db"), known(&a, "wal")), (None, None));
}

/// What is kept is bounded for all mounts together.
#[test]
fn mounts_share_what_is_kept() {
    let kept = Arc::new(Kept::new(1));
    let most = Listed::room(&kept, MAX_LISTED - 1).unwrap();
    assert!(Listed::room(&kept, 2).is_none());
    let last = Listed::room(&kept, 1).unwrap();
    assert!(Listed::room(&kept, 1).is_none());
    drop(most);
    assert!(Listed::room(&kept, MAX_LISTED).is_none());
    drop(last);
    assert!(Listed::room(&kept, MAX_LISTED).is_some());
    // A directory that finds no room is read anew, and told in whole.
    let r = Rig::new(Sharing::Exclusive, tree);
    let fs = &r.fs.root().dentry.sb().fs.clone();
    let dir = in_a(&r);
    let i: &GoferInode = vfs::inode::downcast(&dir).unwrap();
    let full = Listed::room(&i.fs.options.kept, MAX_LISTED).unwrap();
    assert_eq!(r.list("/a"), ["b", "l"]);
    std::fs::write(r.host.join("a/more"), b"").unwrap();
    assert_eq!(r.list("/a"), ["b", "l", "more"]);
    drop(full);
    assert_eq!(r.list("/a"), ["b", "l", "more"]);
    std::fs::write(r.host.join("a/most"), b"").unwrap();
    assert_eq!(r.list("/a"), ["b", "l", "more"], "remembered");
    // The Gofer's handles are for all.
    let alone = fs.max_cached();
    let _second = GoferFs::mountable(&r.vfs, &r.client, "root", Options::default()).unwrap();
    assert_eq!(fs.max_cached(), alone / 2);
}

/// Inodes that are gone do not stay in memory for the ring of those that had descriptors.
#[test]
fn what_has_ended_is_not_kept() {
    let r = Rig::new(Sharing::Exclusive, |_| {});
    let root = r.fs.root().dentry.inode().unwrap().clone();
    let root: &GoferInode = vfs::inode::downcast(&root).unwrap();
    let kept = root.fs.options.kept.clone();
    for i in 0..300 {
        let name = format!("/f{i}");
        drop(r.open(&name, O_CREAT | O_RDWR).unwrap());
        r.cx().unlink(&At::Cwd, name.as_bytes()).unwrap();
    }
    let left = kept.ring.lock().len();
    assert!(left < 150, "{left}");
}
