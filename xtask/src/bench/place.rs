//! The one root file system that all peers get, and the bundles.
//!
//! The root is this machine's, beneath an overlay that keeps what is written; in it:
//!
//! - `/bench/bin`, `/bench/apps`: the programs; `/bench/site`: Python's modules
//! - `/bench/root`: a directory of the root
//! - `/bench/bind`: a host's tmpfs, bind-mounted
//! - `/bench/inner`: a tmpfs that the container itself has
//!
//! A native run has the same in a directory of its own, as a runtime would have mounted it
//! (`native.c` mounts the tmpfs inside).

use super::command::{Stop, output};
use super::experiments::Memory;
use super::peers::Net;
use super::{Plan, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const CAPABILITIES: &[&str] = &[
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];
/// Of `data` in the root and on the bind mount; `files.c` has the same.
const DATA: usize = 16 << 20;

pub struct Place {
    root: PathBuf,
    bind: PathBuf,
    bundles: PathBuf,
    /// For programs in the container.
    pub env: Vec<(String, String)>,
}

impl Place {
    pub fn new(plan: &Plan, stop: &Stop) -> Result<Place> {
        let at = |name: &str| plan.scratch.join(name);
        let place = Place {
            root: at("rootfs"),
            bind: at("bind"),
            bundles: at("bundles"),
            env: vec![
                (
                    "PATH".to_owned(),
                    "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned(),
                ),
                ("BENCH_BUDGET_MS".to_owned(), plan.budget_ms.to_string()),
                (
                    "BENCH_PART".to_owned(),
                    if plan.smoke { "0.01" } else { "1" }.to_owned(),
                ),
            ],
        };
        let mount = |args: &[&str]| output("mount", args, stop).map(drop);
        let s = |p: &Path| p.to_string_lossy().into_owned();
        let (writes, native) = (at("writes"), at("native"));
        for d in [&writes, &native, &place.root, &place.bind, &place.bundles] {
            make(d)?;
        }
        // What is written must lie on another file system than the machine's root.
        mount(&["-t", "tmpfs", "tmpfs", &s(&writes)])?;
        make(&writes.join("upper"))?;
        make(&writes.join("work"))?;
        let (upper, work) = (s(&writes.join("upper")), s(&writes.join("work")));
        let layers = format!("lowerdir=/,upperdir={upper},workdir={work}");
        mount(&["-t", "overlay", "overlay", "-o", &layers, &s(&place.root)])?;
        mount(&["-t", "tmpfs", "tmpfs", &s(&place.bind)])?;
        let bench = place.root.join("bench");
        for d in ["root", "bind", "inner"] {
            make(&bench.join(d))?;
        }
        let copy = |from: &Path, to: &Path| {
            output(
                "cp",
                &["-a", "--no-preserve=ownership", &s(from), &s(to)],
                stop,
            )
            .map(drop)
        };
        copy(&plan.material.dir.join("bin"), &bench.join("bin"))?;
        copy(&plan.material.dir.join("apps"), &bench.join("apps"))?;
        if let Some(site) = &plan.material.site {
            copy(site, &bench.join("site"))?;
            copy(site, &place.bind.join("site"))?;
        }
        if let Some(tree) = &plan.material.tree {
            copy(tree, &bench.join("root/tree"))?;
        }
        for f in [bench.join("root/data"), place.bind.join("data")] {
            std::fs::write(&f, vec![1; DATA]).map_err(|e| format!("{}: {e}", f.display()))?;
        }
        mount(&["--bind", &s(&place.root), &s(&native)])?;
        mount(&["--rbind", "/dev", &s(&native.join("dev"))])?;
        mount(&["--bind", &s(&place.bind), &s(&native.join("bench/bind"))])?;
        Ok(place)
    }

    /// A bundle that runs these words.
    pub fn bundle(&self, args: &[String], net: Net, memory: Option<Memory>) -> Result<PathBuf> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hash = DefaultHasher::new();
        (args, net, memory).hash(&mut hash);
        let dir = self.bundles.join(format!("{:016x}", hash.finish()));
        if !dir.exists() {
            make(&dir)?;
            let file = dir.join("config.json");
            let mut config = self.config(args, net);
            if let Some(m) = memory {
                config["linux"]["resources"] = json!({"memory": {"limit": m.limit << 20}});
            }
            std::fs::write(&file, config.to_string()).map_err(|e| e.to_string())?;
        }
        Ok(dir)
    }

    fn config(&self, args: &[String], net: Net) -> Value {
        let mut namespaces: Vec<Value> = ["pid", "mount", "ipc", "uts"]
            .map(|n| json!({"type": n}))
            .into();
        match net {
            Net::Own => namespaces.push(json!({"type": "network"})),
            Net::Host => {}
            Net::At(pid) => {
                let path = format!("/proc/{pid}/ns/net");
                namespaces.push(json!({"type": "network", "path": path}));
            }
        }
        let env: Vec<String> = self.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let mount = |at: &str, kind: &str, source: &str, options: Value| json!({"destination": at, "type": kind, "source": source, "options": options});
        json!({
            "ociVersion": "1.0.2",
            "hostname": "bench",
            "root": {"path": self.root, "readonly": false},
            "process": {
                "terminal": false, "user": {"uid": 0, "gid": 0}, "args": args, "cwd": "/", "env": env,
                "noNewPrivileges": true,
                "capabilities": {"bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES},
                "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 4096, "hard": 16384}],
            },
            "mounts": [
                mount("/proc", "proc", "proc", json!([])),
                mount("/dev", "tmpfs", "tmpfs", json!(["nosuid", "strictatime", "mode=755", "size=65536k"])),
                mount("/dev/shm", "tmpfs", "shm", json!(["nosuid", "noexec", "nodev", "mode=1777"])),
                mount("/bench/bind", "bind", &self.bind.to_string_lossy(), json!(["rbind", "rw"])),
                mount("/bench/inner", "tmpfs", "tmpfs", json!(["nosuid", "nodev", "mode=755"])),
            ],
            "linux": {"namespaces": namespaces},
        })
    }
}

fn make(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}
