//! The commands with which containerd begins and ends a shim: `start` and `delete`, and our own
//! `serve`.
//!
//! `start` leaves a server behind and prints its address. Containers of one pod share a server:
//! what they share is the name, from which the address is made. The server answers `start` that it
//! listens before `start` prints, by closing its standard output.
//!
//! # Invariants
//!
//! - A maker or remover of a group's socket holds the group's lock, a file beside it. So `start`
//!   finds a server that will stay, or none; of two `start` at once, one makes the server and the
//!   other finds it.
//! - `start` leaves its container's name and the time in that file: a server that has not seen the
//!   `Create` of each that was announced lately does not end yet.
//! - The file goes with the socket.

use crate::args::{self, Flags};
use crate::events::Publisher;
use crate::reaper::Reaper;
use crate::service::{COMING, Service};
use crate::settings::{Settings, Words};
use crate::{log, mounts};
use containerd_shim_protos::api::DeleteResponse;
use containerd_shim_protos::protobuf::{Message, MessageField};
use containerd_shim_protos::{create_task, ttrpc};
use rustix::fs::{FlockOperation, Mode, OFlags};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

/// Where containerd's shims have their sockets.
const SOCKETS: &str = "/run/containerd/s";
/// The annotation of the container runtime interface that names a pod's sandbox; and one for
/// others.
const GROUPS: [&str; 2] = ["dev.cloister.group", "io.kubernetes.cri.sandbox-id"];
/// The longest list of containers that are on their way.
const ANNOUNCED_MAX: usize = 1 << 20;
/// What a killed container's exit status is taken to be.
const KILLED: u32 = 128 + 9;
/// How long the answer to `Shutdown` may take to go out.
const GOODBYE: Duration = Duration::from_millis(100);

/// Containers with the same name share a shim.
fn group(bundle: &Path, id: &str) -> Result<String, String> {
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct Annotated {
        annotations: Option<BTreeMap<String, String>>,
    }
    let (spec, _): (Annotated, _) =
        oci::spec::read(&bundle.join("config.json")).map_err(|e| e.to_string())?;
    let annotations = spec.annotations.unwrap_or_default();
    let name = GROUPS.iter().find_map(|g| annotations.get(*g));
    Ok(name.map_or(id, String::as_str).into())
}

/// Where a group's server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    socket: PathBuf,
}

/// A group's lock. It is given back by closing it.
#[derive(Debug)]
pub struct Group(std::fs::File);

impl Group {
    /// A container is on its way to the server.
    pub fn announce(&self, id: &str) {
        let mut all = self.announced();
        all.retain(|_, at| at.elapsed().is_ok_and(|t| t < COMING));
        all.insert(id.into(), SystemTime::now());
        // Where it cannot be told, a server may end too early, and says so to a late caller.
        if let Ok(text) = serde_json::to_vec(&all) {
            let _ = self
                .0
                .set_len(0)
                .and_then(|()| self.0.write_all_at(&text, 0));
        }
    }

    /// Those that were announced, and when.
    pub fn announced(&self) -> BTreeMap<String, SystemTime> {
        let mut text = vec![0; ANNOUNCED_MAX];
        let n = self.0.read_at(&mut text, 0).unwrap_or(0);
        serde_json::from_slice(&text[..n]).unwrap_or_default()
    }
}

impl Address {
    pub fn at(socket: PathBuf) -> Address {
        Address { socket }
    }

    fn of(f: &Flags, group: &str) -> Address {
        let words = format!(
            "{}\0{}\0{group}\0io.containerd.cloister.v1",
            f.address, f.namespace
        );
        let hash: String = Sha256::digest(words)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        Address::at(Path::new(SOCKETS).join(hash))
    }

    fn lock_file(&self) -> PathBuf {
        self.socket.with_extension("lock")
    }

    /// Waits for the group's lock.
    pub fn lock(&self) -> Result<Group, String> {
        let path = self.lock_file();
        let failed = |e: std::io::Error| format!("could not lock {}: {e}", path.display());
        make_sockets(&self.socket).map_err(failed)?;
        loop {
            let f = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)
                .map_err(failed)?;
            match rustix::fs::flock(&f, FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => continue,
                r => r.map_err(|e| failed(e.into()))?,
            }
            // Its last holder may have removed it, and another may have made a new one.
            let (own, there) = (f.metadata().map_err(failed)?, std::fs::metadata(&path));
            if there.is_ok_and(|t| (t.dev(), t.ino()) == (own.dev(), own.ino())) {
                return Ok(Group(f));
            }
        }
    }

    fn is_served(&self) -> bool {
        UnixStream::connect(&self.socket).is_ok()
    }

    /// Takes the socket away, and the lock, which the caller holds.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_file(self.lock_file());
    }
}

/// Makes the directory that a socket lies in.
fn make_sockets(socket: &Path) -> std::io::Result<()> {
    let Some(dir) = socket.parent() else {
        return Ok(());
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(dir)
}

/// `start`: prints the address.
pub fn start(f: &Flags) -> Result<(), String> {
    let bundle = std::env::current_dir().map_err(|e| format!("could not find the bundle: {e}"))?;
    if f.id.is_empty() || f.namespace.is_empty() {
        return Err("-id and -namespace are needed".into());
    }
    let address = Address::of(f, &group(&bundle, &f.id)?);
    let lock = address.lock()?;
    lock.announce(&f.id);
    if !address.is_served() {
        // A shim that was killed left it.
        let _ = std::fs::remove_file(&address.socket);
        serve_apart(f, &address.socket).inspect_err(|_| address.remove())?;
    }
    drop(lock);
    let url = format!("unix://{}", address.socket.display());
    // containerd reads it when it was restarted.
    oci::files::write(&bundle.join("address"), url.as_bytes())
        .map_err(|e| format!("could not write the address: {e}"))?;
    print!("{url}");
    Ok(())
}

/// Starts the server, and waits until it listens.
fn serve_apart(f: &Flags, socket: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("could not start the shim: {e}");
    // Both ends of containerd's FIFO: the shim lives on when containerd does not read.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = rustix::fs::open("log", flags, Mode::empty());
    let mut child = args::anew()
        .args([
            "-namespace",
            &f.namespace,
            "-id",
            &f.id,
            "-address",
            &f.address,
        ])
        .arg(format!("-debug={}", f.debug))
        .arg("-socket")
        .arg(socket)
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.map_or(Stdio::null(), Stdio::from))
        .spawn()
        .map_err(failed)?;
    let mut word = String::new();
    if let Some(out) = child.stdout.take() {
        out.take(4096).read_to_string(&mut word).map_err(failed)?;
    }
    if word == "ready" {
        Ok(())
    } else {
        Err(format!("could not start the shim: {word}"))
    }
}

/// Binds the socket; nobody but its owner connects. `start`, which waits, holds the group's lock.
fn listen(socket: &Path) -> Result<UnixListener, String> {
    let failed = |e: std::io::Error| format!("could not listen on {}: {e}", socket.display());
    make_sockets(socket).map_err(failed)?;
    // This process has one thread yet.
    let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
    let listener = UnixListener::bind(socket);
    rustix::process::umask(mask);
    listener.map_err(failed)
}

/// The server's life.
pub fn serve(f: &Flags) -> Result<(), String> {
    let socket = Path::new(&f.socket);
    let set_up = || -> Result<_, String> {
        let listener = listen(socket)?;
        // What signals containerd's terminal gets are not for us.
        hostcall::start::setsid().map_err(|e| format!("could not leave the session: {e}"))?;
        let reaper = Reaper::start().map_err(|e| format!("could not watch children: {e}"))?;
        let to = match std::env::var("TTRPC_ADDRESS") {
            Ok(a) if !a.is_empty() => a,
            _ => format!("{}.ttrpc", f.address),
        };
        let events =
            Publisher::start(&to, &f.namespace).map_err(|e| format!("could not publish: {e}"))?;
        let (over, end) = channel();
        let address = Address::at(socket.into());
        let service = Service::new(&f.namespace, reaper, events.clone(), address, over);
        let mut server = ttrpc::Server::new()
            .add_listener(listener.into_raw_fd())
            .map_err(|e| format!("could not listen: {e}"))?
            .register_service(create_task(service));
        server
            .start()
            .map_err(|e| format!("could not serve: {e}"))?;
        Ok((server, events, end))
    };
    let (server, events, end) = match set_up() {
        Ok(s) => s,
        Err(e) => {
            print!("{e}");
            return Err(e);
        }
    };
    print!("ready");
    let _ = std::io::stdout().flush();
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
    null.and_then(|n| Ok(rustix::stdio::dup2_stdout(n)?))
        .map_err(|e| format!("could not leave standard output: {e}"))?;
    // Whatever goes wrong with the channel, it is over.
    let _ = end.recv();
    // The socket is gone already; one that is there now is another server's.
    events.flush();
    std::thread::sleep(GOODBYE);
    drop(server);
    Ok(())
}

/// Removes the socket of a shim that was killed. (One that lives has other containers of the pod.)
fn remove_socket(bundle: &Path) -> Result<(), String> {
    let Ok(url) = std::fs::read_to_string(bundle.join("address")) else {
        return Ok(());
    };
    let address = Address::at(url.strip_prefix("unix://").unwrap_or(&url).into());
    if address.socket.parent() != Some(Path::new(SOCKETS)) {
        return Ok(());
    }
    let _lock = address.lock()?;
    if !address.is_served() {
        address.remove();
    }
    Ok(())
}

/// Ends what the settings tell of: the container of this bundle.
fn end(s: Settings, id: &str, bundle: &Path) -> Result<(), String> {
    // Where the container is does not hang on what it was to be run with.
    let plain = |_| {
        let words = Words::default();
        Settings { words, ..s.clone() }.runtime()
    };
    let rt = s.runtime().or_else(plain)?;
    oci::delete_of(&rt, id, oci::Force::Yes, Some(bundle))
        .map_err(|e| format!("could not delete {id}: {e}"))
}

/// `delete`: after the shim was killed, or could not create. Prints how the container ended,
/// whatever happens: without that containerd would not know it to have ended. All is tried;
/// failures go to the log.
pub fn delete(f: &Flags) -> Result<(), String> {
    let bytes = end_all(f)?.write_to_bytes().map_err(|e| e.to_string())?;
    std::io::stdout()
        .write_all(&bytes)
        .map_err(|e| e.to_string())
}

fn end_all(f: &Flags) -> Result<DeleteResponse, String> {
    let here = || std::env::current_dir().map_err(|e| format!("could not find the bundle: {e}"));
    let bundle = if f.bundle.as_os_str().is_empty() {
        here()?
    } else {
        f.bundle.clone()
    };
    let mut pid = 0;
    let ended = Settings::load(&bundle).and_then(|s| match s {
        Some(s) => {
            pid = s.pid;
            end(s, &f.id, &bundle)
        }
        None => Ok(()),
    });
    let all = [
        ended,
        mounts::unmount_all(&bundle.join("rootfs")),
        remove_socket(&bundle),
    ];
    let failures = all.into_iter().filter_map(Result::err);
    failures.for_each(|e| log::error(&e));
    Ok(DeleteResponse {
        pid,
        exit_status: KILLED,
        exited_at: MessageField::some(SystemTime::now().into()),
        ..DeleteResponse::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_share() {
        let dir = std::env::temp_dir().join(format!("shim-group-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let of = |text: &str| {
            std::fs::write(dir.join("config.json"), text).unwrap();
            group(&dir, "own").unwrap()
        };
        assert_eq!(of(r#"{"ociVersion":"1.0.2"}"#), "own");
        assert_eq!(
            of(r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}"#),
            "pod"
        );
        let f = |ns: &str| Flags {
            namespace: ns.into(),
            address: "/run/c.sock".into(),
            ..Flags::default()
        };
        let address = |ns| Address::of(&f(ns), "pod");
        assert_eq!(address("a"), address("a"));
        assert_ne!(address("a"), address("b"));
        // A socket's name has 107 bytes.
        assert!(address("a").socket.as_os_str().len() < 107);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn one_at_a_time_holds_a_group() {
        let dir = std::env::temp_dir().join(format!("shim-lock-{}", std::process::id()));
        let address = Address::at(dir.join("s"));
        let held = address.lock().unwrap();
        assert!(held.announced().is_empty());
        let before = SystemTime::now();
        let other = address.clone();
        let t = std::thread::spawn(move || {
            let g = other.lock().unwrap();
            g.announce("x");
            g.announce("longer");
            g.announce("x");
            assert_eq!(g.announced().len(), 2);
            g.announced()["x"]
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!t.is_finished());
        // Its holder removes it: the waiter gets one that is there.
        address.remove();
        drop(held);
        assert!(t.join().unwrap() > before);
        assert!(address.lock_file().exists() && !address.is_served());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn delete_always_answers() {
        let dir = std::env::temp_dir().join(format!("shim-delete-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let f = Flags {
            id: "c".into(),
            bundle: dir.clone(),
            ..Flags::default()
        };
        // Neither the settings nor the runtime's state can be read.
        std::fs::write(dir.join("cloister.json"), "rubbish").unwrap();
        assert_eq!(end_all(&f).unwrap().exit_status, KILLED);
        let root = dir.join("root");
        std::fs::write(&root, "no directory").unwrap();
        let s = Settings {
            pid: 77,
            root: root.join("below"),
            ..Settings::default()
        };
        s.save(&dir).unwrap();
        let r = end_all(&f).unwrap();
        assert_eq!((r.pid, r.exit_status), (77, KILLED));
        assert!(r.exited_at.is_some());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn another_bundles_container_is_not_ended() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("shim-other-{}", std::process::id()));
        let root = dir.join("root");
        for d in ["a", "b", "root/c"] {
            std::fs::create_dir_all(dir.join(d)).unwrap();
        }
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o700)).unwrap();
        let record = serde_json::json!({"version": 1, "id": "c", "bundle": dir.join("a")});
        std::fs::write(root.join("c/state.json"), record.to_string()).unwrap();
        let s = Settings {
            root: root.clone(),
            ..Settings::default()
        };
        for (bundle, there) in [("b", true), ("a", false)] {
            s.save(&dir.join(bundle)).unwrap();
            let f = Flags {
                id: "c".into(),
                bundle: dir.join(bundle),
                ..Flags::default()
            };
            end_all(&f).unwrap();
            assert_eq!(root.join("c").exists(), there, "{bundle}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
