//! The documents that `spec` and `features` write.

use oci::spec;
use serde_json::json;

/// The user that is to run a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    Root,
    User,
}

/// The container that `spec` begins with: a shell as root without special rights.
pub fn example(whose: Whose) -> serde_json::Value {
    let caps = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"];
    let mount = |at: &str, kind: &str, source: &str, options: &[&str]| json!({"destination": at, "type": kind, "source": source, "options": options});
    let quiet = ["nosuid", "noexec", "nodev"];
    let namespaces =
        ["pid", "network", "ipc", "uts", "mount", "cgroup"].map(|n| json!({"type": n}));
    let mut linux = json!({
        "namespaces": namespaces,
        "maskedPaths": ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
            "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    if whose == Whose::User {
        let map = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
        let (uid, gid) = hostcall::path::effective_ids();
        linux["uidMappings"] = map(uid);
        linux["gidMappings"] = map(gid);
        linux["namespaces"]
            .as_array_mut()
            .expect("an array")
            .push(json!({"type": "user"}));
    }
    json!({
        "ociVersion": spec::VERSION,
        "process": {
            "terminal": true,
            "user": {"uid": 0, "gid": 0},
            "args": ["sh"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            "cwd": "/",
            "capabilities": {"bounding": caps, "effective": caps, "permitted": caps},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "cloister",
        "mounts": [
            mount("/proc", "proc", "proc", &[]),
            mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
            mount("/dev/shm", "tmpfs", "shm", &[&quiet[..], &["mode=1777", "size=65536k"]].concat()),
            mount("/dev/mqueue", "mqueue", "mqueue", &quiet),
            mount("/sys", "sysfs", "sysfs", &[&quiet[..], &["ro"]].concat()),
            mount("/sys/fs/cgroup", "cgroup", "cgroup", &[&quiet[..], &["relatime", "ro"]].concat()),
        ],
        "linux": linux,
    })
}

/// The features document (`features.md` of the specification).
pub fn features() -> serde_json::Value {
    json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": spec::VERSION,
        "hooks": ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"],
        "mountOptions": ["async", "atime", "bind", "defaults", "dev", "diratime", "dirsync", "exec", "exclusive",
            "noatime", "nodev", "nodiratime", "noexec", "norelatime", "nosuid", "nosymfollow", "private", "rbind", "relatime",
            "ro", "rprivate", "rslave", "rw", "slave", "strictatime", "suid", "symfollow", "sync",
            "unbindable"],
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"],
            "capabilities": oci::convert::capability_names().collect::<Vec<_>>(),
            "cgroup": {"v1": true, "v2": true, "systemd": false, "systemdUser": false, "rdma": false},
            "seccomp": oci::seccomp_features(),
            "apparmor": {"enabled": false},
            "selinux": {"enabled": false},
            "intelRdt": {"enabled": false},
            "mountExtensions": {"idmap": {"enabled": false}},
        },
        "annotations": {
            "dev.cloister.version": env!("CARGO_PKG_VERSION"),
        },
        "potentiallyUnsafeConfigAnnotations": [],
    })
}
