//! The root layer against a model: a tmpfs with the same files.

use super::*;
use crate::fs::root_layer::{Change, RootLayer, changes};
use abi::errno::*;
use abi::linux::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn populate(r: &Rig) {
    for d in ["/a", "/a/b", "/a/b/c", "/d", "/e"] {
        r.mkdir(d).unwrap();
    }
    r.put("/f", b"file f").unwrap();
    r.put("/a/g", &[7; 10_000]).unwrap();
    r.put("/a/b/h", b"").unwrap();
    r.put("/a/b/c/i", b"deep").unwrap();
    r.link("/f", "/d/hard").unwrap();
    r.symlink("a/b", "/link").unwrap();
    r.symlink("nowhere", "/a/broken").unwrap();
    r.cx().chmod(&At::Cwd, b"/a/g", 0o640, 0).unwrap();
}

/// A root layer over one populated tmpfs, and what lies below.
pub(super) fn root_layer() -> (Rig, Rig) {
    let below = Rig::new();
    populate(&below);
    let clas = below.clas.clone();
    let (upper, _) = Tmpfs::new(below.vfs.new_dev(), &clas, Options::default());
    let lower = below.fs.root().dentry;
    let root = RootLayer::over(&below.vfs, &[lower], &upper).unwrap();
    (Rig::on(below.vfs.clone(), clas, root), below)
}

#[test]
fn a_shrink_forgets_missing_names() {
    let (r, _below) = root_layer();
    let sb = r.fs.root().dentry.sb().clone();
    let fs = (sb.fs.clone() as Arc<dyn std::any::Any + Send + Sync>).downcast::<RootLayer>();
    let fs = fs.unwrap();
    for n in 0..2_000 {
        assert_eq!(r.lstat(&format!("/a/none-{n}")), Err(ENOENT));
    }
    // A directory remembers 1,024 of them.
    assert_eq!(fs.absent(), 2_000 - 1_024);
    sb.shrink();
    assert_eq!(fs.absent(), 0);
    assert_eq!(r.lstat("/a/none-1"), Err(ENOENT));
    assert_eq!(fs.absent(), 1);
    // And what goes takes its names along.
    r.rmdir("/e").unwrap();
    sb.shrink();
    assert_eq!(fs.absent(), 0);
}

/// What a tree looks like: type and mode, links, size, contents.
type Tree = BTreeMap<String, (u32, u32, u64, Vec<u8>)>;

fn tree(r: &Rig) -> Tree {
    let mut all = Tree::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for n in r.list(&format!("{dir}/")).unwrap() {
            let p = format!("{dir}/{n}");
            let s = r.lstat(&p).unwrap();
            let (nlink, text) = match s.mode & S_IFMT {
                S_IFDIR => {
                    todo.push(p.clone());
                    (0, Vec::new())
                }
                S_IFLNK => (s.nlink, r.cx().readlink(&At::Cwd, p.as_bytes()).unwrap()),
                _ => (s.nlink, r.get(&p).unwrap()),
            };
            let size = if s.mode & S_IFMT == S_IFDIR {
                0
            } else {
                s.size
            };
            all.insert(p, (s.mode, nlink, size, text));
        }
    }
    all
}

#[derive(Clone, Debug)]
enum Op {
    Write(usize, u16, u8),
    Append(usize),
    Truncate(usize, u16),
    Create(usize),
    Unlink(usize),
    Rmdir(usize),
    Mkdir(usize),
    Rename(usize, usize, u32),
    Link(usize, usize),
    Symlink(usize),
    Chmod(usize, u32),
    Xattr(usize, u8),
    Stat(usize),
    List(usize),
    Forget,
}

const PATHS: [&str; 24] = [
    "/f",
    "/a",
    "/a/b",
    "/a/b/c",
    "/a/b/c/i",
    "/a/g",
    "/a/b/h",
    "/d",
    "/e",
    "/d/hard",
    "/link",
    "/link/h",
    "/a/broken",
    "/new",
    "/d/a",
    "/d/a/b",
    "/d/a/b/c/i",
    "/e/new",
    "/e/f",
    "/a/b/new",
    "/link/new",
    "/e/x",
    "/e/x/y",
    "/d/new",
];

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let p = || 0..PATHS.len();
    let op = prop_oneof![
        2 => (p(), 0u16..12_000, any::<u8>()).prop_map(|(p, o, b)| Op::Write(p, o, b)),
        1 => p().prop_map(Op::Append),
        1 => (p(), 0u16..12_000).prop_map(|(p, n)| Op::Truncate(p, n)),
        2 => p().prop_map(Op::Create),
        3 => p().prop_map(Op::Unlink),
        2 => p().prop_map(Op::Rmdir),
        2 => p().prop_map(Op::Mkdir),
        5 => (p(), p(), prop_oneof![3 => Just(0u32), 1 => Just(1), 1 => Just(2)])
            .prop_map(|(a, b, f)| Op::Rename(a, b, f)),
        2 => (p(), p()).prop_map(|(a, b)| Op::Link(a, b)),
        1 => p().prop_map(Op::Symlink),
        1 => (p(), 0u32..0o777).prop_map(|(p, m)| Op::Chmod(p, m | 0o700)),
        1 => (p(), any::<u8>()).prop_map(|(p, v)| Op::Xattr(p, v)),
        1 => p().prop_map(Op::Stat),
        1 => p().prop_map(Op::List),
        1 => Just(Op::Forget),
    ];
    proptest::collection::vec(op, 1..50)
}

fn apply(r: &Rig, op: &Op) -> Result<Vec<u8>> {
    let none = |r: Result<()>| r.map(|()| Vec::new());
    match op {
        Op::Write(p, at, byte) => {
            let f = r.open(PATHS[*p], O_WRONLY)?;
            f.seek(i64::from(*at), 0)?;
            write(&f, &[*byte; 3000]).map(|n| vec![n as u8])
        }
        Op::Append(p) => {
            let f = r.open(PATHS[*p], O_WRONLY | O_APPEND)?;
            write(&f, b"appended").map(|n| vec![n as u8])
        }
        Op::Truncate(p, n) => none(r.cx().truncate(PATHS[*p].as_bytes(), i64::from(*n))),
        Op::Create(p) => none(r.open(PATHS[*p], O_CREAT | O_EXCL).map(|_| ())),
        Op::Unlink(p) => none(r.unlink(PATHS[*p])),
        Op::Rmdir(p) => none(r.rmdir(PATHS[*p])),
        Op::Mkdir(p) => none(r.mkdir(PATHS[*p])),
        Op::Rename(a, b, f) => none(r.rename(PATHS[*a], PATHS[*b], *f)),
        Op::Link(a, b) => none(r.link(PATHS[*a], PATHS[*b])),
        Op::Symlink(p) => none(r.symlink("a", PATHS[*p])),
        Op::Chmod(p, m) => none(r.cx().chmod(&At::Cwd, PATHS[*p].as_bytes(), *m, 0)),
        Op::Xattr(p, v) => {
            let walk = crate::walk::Walk::empty();
            let of = crate::ops::XattrOf::Path {
                at: At::Cwd,
                path: PATHS[*p].as_bytes(),
                walk,
            };
            r.cx().set_xattr(&of, b"user.x", &[*v], 0)?;
            r.cx().get_xattr(&of, b"user.x")
        }
        Op::Stat(p) => r.stat(PATHS[*p]).map(|s| s.mode.to_le_bytes().to_vec()),
        Op::List(p) => r.list(PATHS[*p]).map(|n| n.join(" ").into_bytes()),
        Op::Forget => {
            r.fs.root().mnt.sb().shrink();
            Ok(Vec::new())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_root_layer_is_a_writable_copy(ops in ops()) {
        let (o, below) = root_layer();
        let before = tree(&below);
        let model = Rig::new();
        populate(&model);
        for op in &ops {
            prop_assert_eq!(apply(&o, op), apply(&model, op), "{:?}", op);
        }
        prop_assert_eq!(tree(&o), tree(&model));
        prop_assert_eq!(tree(&below), before);
        // Nothing is kept that has no name.
        o.fs.root().mnt.sb().shrink();
        prop_assert_eq!(tree(&o), tree(&model));
    }
}

#[test]
fn numbers_stay_and_old_descriptors_see_new_contents() {
    let (r, _below) = root_layer();
    let reader = r.open("/a/g", O_RDONLY).unwrap();
    let map = reader.ops.mappable().unwrap();
    let before = r.stat("/a/g").unwrap();
    let dir = r.stat("/a").unwrap();
    assert_eq!(read(&reader, 2).unwrap(), [7, 7]);
    // A change of attributes copies no contents.
    let pages = r.clas.stats().allocated;
    r.cx().chmod(&At::Cwd, b"/a/g", 0o600, 0).unwrap();
    assert_eq!(r.clas.stats().allocated, pages);
    let w = r.open("/a/g", O_WRONLY).unwrap();
    write(&w, &[9; 3]).unwrap();
    reader.seek(0, 0).unwrap();
    assert_eq!(read(&reader, 5).unwrap(), [9, 9, 9, 7, 7]);
    assert!(map.backing(0, 4096, clas::Access::Read).is_ok());
    assert!(map.backing(0, 4096, clas::Access::Write).is_ok());
    let after = r.stat("/a/g").unwrap();
    assert_eq!(
        (before.ino, before.dev, before.size),
        (after.ino, after.dev, after.size)
    );
    assert_eq!(crate::ops::fstat(&reader).unwrap().ino, after.ino);
    assert_eq!(r.stat("/a").unwrap().ino, dir.ino);
    // Both names of a file from below.
    r.put("/d/hard", b"changed").unwrap();
    assert_eq!(r.get("/f").unwrap(), b"changed");
    r.unlink("/d/hard").unwrap();
    assert_eq!(r.get("/f").unwrap(), b"changed");
    assert_eq!(r.stat("/f").unwrap().nlink, 1);
    // A removed file lives as long as it is open.
    r.unlink("/a/g").unwrap();
    reader.seek(0, 0).unwrap();
    assert_eq!(read(&reader, 3).unwrap(), [9, 9, 9]);
    assert_eq!(crate::ops::fstat(&reader).unwrap().nlink, 0);
}

#[test]
fn layers_with_whiteouts() {
    let top = Rig::new();
    let o = Options {
        mode: 0o755,
        ..Options::default()
    };
    let second = Tmpfs::mountable(&top.vfs, &top.clas, o);
    let bottom = Rig::on(top.vfs.clone(), top.clas.clone(), second);
    populate(&bottom);
    let node = |p: &str| {
        top.cx().mknod(&At::Cwd, p.as_bytes(), S_IFCHR, 0).unwrap();
    };
    top.mkdir("/a").unwrap();
    top.put("/a/g", b"from the top").unwrap();
    top.put("/e", b"a file over a directory").unwrap();
    node("/f");
    top.mkdir("/d").unwrap();
    let of = crate::ops::XattrOf::Path {
        at: At::Cwd,
        path: b"/d",
        walk: crate::walk::Walk::empty(),
    };
    top.cx()
        .set_xattr(&of, b"trusted.overlay.opaque", b"y", 0)
        .unwrap();
    let (upper, _) = Tmpfs::new(99, &top.clas, Options::default());
    let lowers = [top.fs.root().dentry, bottom.fs.root().dentry];
    let root = RootLayer::over(&top.vfs, &lowers, &upper).unwrap();
    let r = Rig::on(top.vfs.clone(), top.clas.clone(), root);
    assert_eq!(r.list("/").unwrap(), ["a", "d", "e", "link"]);
    assert_eq!(r.list("/a").unwrap(), ["b", "broken", "g"]);
    assert_eq!(r.list("/d").unwrap(), [""; 0]);
    assert_eq!(r.get("/a/g").unwrap(), b"from the top");
    assert_eq!(r.get("/a/b/c/i").unwrap(), b"deep");
    assert_eq!(r.stat("/f"), Err(ENOENT));
    r.put("/f", b"new").unwrap();
    r.rename("/a", "/d/moved", 0).unwrap();
    assert_eq!(r.get("/d/moved/b/c/i").unwrap(), b"deep");
    assert_eq!(r.list("/").unwrap(), ["d", "e", "f", "link"]);
}

#[test]
fn nothing_is_left_behind() {
    let (r, below) = root_layer();
    for i in 0..50 {
        r.put("/tmp", &[1; 5000]).unwrap();
        r.rename("/tmp", "/f", 0).unwrap();
        r.mkdir("/dir").unwrap();
        r.put(&format!("/dir/{i}"), b"x").unwrap();
        r.unlink(&format!("/dir/{i}")).unwrap();
        r.rmdir("/dir").unwrap();
    }
    r.unlink("/f").unwrap();
    r.unlink("/a/g").unwrap();
    assert_eq!(r.clas.stats().allocated, 4 * 4096 + 4096);
    let weak = Arc::downgrade(&r.fs.root().mnt.sb().fs);
    drop(r);
    drop(below);
    assert!(
        weak.upgrade().is_none(),
        "the file system outlives its mounts"
    );
}

#[test]
fn many_threads_at_once() {
    let (r, _below) = root_layer();
    let r = Arc::new(r);
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            let r = r.user(0, 0);
            std::thread::spawn(move || {
                let mut seed = t * 0x9e37_79b9 + 1;
                let mut random = |n: usize| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    seed as usize % n
                };
                for _ in 0..4000 {
                    let (a, b) = (random(PATHS.len()), random(PATHS.len()));
                    let op = match random(9) {
                        0 => Op::Write(a, 100, 1),
                        1 => Op::Create(a),
                        2 => Op::Unlink(a),
                        3 => Op::Mkdir(a),
                        4 => Op::Rmdir(a),
                        5 | 6 => Op::Rename(a, b, random(3) as u32),
                        7 => Op::Stat(a),
                        _ => Op::List(a),
                    };
                    let _ = apply(&r, &op);
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    tree(&r);
}

#[test]
fn changes_are_told_parents_first() {
    let (r, _below) = root_layer();
    r.cx().unlink(&At::Cwd, b"/a/g").unwrap();
    r.put("/a/b/c/i", b"changed").unwrap();
    r.mkdir("/new").unwrap();
    r.put("/new/x", b"x").unwrap();
    // A directory that takes the name of one below hides it; one that moves is told whole.
    r.cx().rmdir(&At::Cwd, b"/e").unwrap();
    r.mkdir("/e").unwrap();
    r.cx()
        .rename(&At::Cwd, b"/a/b", &At::Cwd, b"/moved", 0)
        .unwrap();
    let root = r.fs.root().dentry;
    let mut told = Vec::new();
    changes(&root, &mut |path, c| {
        let what = match c {
            Change::Hidden => "-",
            Change::Opaque => "=",
            Change::File(_) => "+",
            Change::TooDeep => "!",
        };
        told.push(format!("{what}{}", std::str::from_utf8(path).unwrap()));
        Ok(())
    })
    .unwrap();
    let want = [
        "+a",
        "-a/b",
        "-a/g",
        "+e",
        "=e",
        "+moved",
        "+moved/c",
        "+moved/c/i",
        "+moved/h",
        "+new",
        "+new/x",
    ];
    assert_eq!(told, want);
}

#[test]
fn links_on_a_root_layer_are_charged_while_they_are_there() {
    super::names::links_are_charged_while_they_are_there(&root_layer().0, 77_040);
}
