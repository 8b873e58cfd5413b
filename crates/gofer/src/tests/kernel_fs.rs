//! The host kernel's own file systems.

use super::*;

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
