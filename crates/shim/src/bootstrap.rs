//! The commands with which containerd begins and ends a shim: `start` and `delete`, and our own `serve`.
//!
//! `start` leaves a server behind and prints its address. Containers of one pod share a server: what they
//! share is the name, from which the address is made. The server answers `start` that it listens before
//! `start` prints, by closing its standard output.

use crate::args::Flags;
use crate::events::Publisher;
use crate::reaper::Reaper;
use crate::service::Service;
use crate::settings::Settings;
use crate::{log, mounts};
use containerd_shim_protos::api::DeleteResponse;
use containerd_shim_protos::protobuf::{Message, MessageField};
use containerd_shim_protos::{create_task, ttrpc};
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

/// Where containerd's shims have their sockets.
const SOCKETS: &str = "/run/containerd/s";
/// The annotation of the container runtime interface that names a pod's sandbox; and one for others.
const GROUPS: [&str; 2] = ["dev.cloister.group", "io.kubernetes.cri.sandbox-id"];
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
        oci::spec::read(&bundle.join("config.json")).map_err(|e| e.0)?;
    let annotations = spec.annotations.unwrap_or_default();
    let name = GROUPS.iter().find_map(|g| annotations.get(*g));
    Ok(name.map_or(id, String::as_str).into())
}

fn address(f: &Flags, group: &str) -> PathBuf {
    let words = format!(
        "{}\0{}\0{group}\0io.containerd.cloister.v1",
        f.address, f.namespace
    );
    let hash: String = Sha256::digest(words)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    Path::new(SOCKETS).join(hash)
}

/// `start`: prints the address.
pub fn start(f: &Flags) -> Result<(), String> {
    let bundle = std::env::current_dir().map_err(|e| format!("could not find the bundle: {e}"))?;
    if f.id.is_empty() || f.namespace.is_empty() {
        return Err("-id and -namespace are needed".into());
    }
    let socket = address(f, &group(&bundle, &f.id)?);
    if UnixStream::connect(&socket).is_err() {
        // A shim that was killed left it.
        let _ = std::fs::remove_file(&socket);
        serve_apart(f, &socket)?;
    }
    let url = format!("unix://{}", socket.display());
    // containerd reads it when it was restarted.
    let new = bundle.join(".address");
    std::fs::write(&new, &url)
        .and_then(|()| std::fs::rename(&new, bundle.join("address")))
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
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
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

/// Binds the socket; nobody but its owner connects.
fn listen(socket: &Path) -> Result<UnixListener, String> {
    let failed = |e: std::io::Error| format!("could not listen on {}: {e}", socket.display());
    if let Some(dir) = socket.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(dir)
            .map_err(failed)?;
    }
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
        let service = Arc::new(Service::new(&f.namespace, reaper, events.clone(), over));
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
    // Before anything else: a new container of the group gets a shim of its own.
    let _ = std::fs::remove_file(socket);
    events.flush();
    std::thread::sleep(GOODBYE);
    drop(server);
    Ok(())
}

/// Removes the socket of a shim that was killed. (One that lives has other containers of the pod.)
fn remove_socket(bundle: &Path) {
    let Ok(url) = std::fs::read_to_string(bundle.join("address")) else {
        return;
    };
    let socket = Path::new(url.strip_prefix("unix://").unwrap_or(&url));
    if socket.starts_with(SOCKETS) && UnixStream::connect(socket).is_err() {
        let _ = std::fs::remove_file(socket);
    }
}

/// `delete`: after the shim was killed, or could not create. Prints how the container ended.
pub fn delete(f: &Flags) -> Result<(), String> {
    let here = || std::env::current_dir().map_err(|e| format!("could not find the bundle: {e}"));
    let bundle = if f.bundle.as_os_str().is_empty() {
        here()?
    } else {
        f.bundle.clone()
    };
    let mut pid = 0;
    if let Some(s) = Settings::load(&bundle) {
        pid = s.pid;
        let rt = s.runtime()?;
        if let Err(e) = oci::delete(&rt, &f.id, true) {
            log::error(&format!("could not delete {}: {e}", f.id));
        }
    }
    mounts::unmount_all(&bundle.join("rootfs"));
    remove_socket(&bundle);
    let response = DeleteResponse {
        pid,
        exit_status: KILLED,
        exited_at: MessageField::some(SystemTime::now().into()),
        ..DeleteResponse::default()
    };
    let bytes = response.write_to_bytes().map_err(|e| e.to_string())?;
    std::io::stdout()
        .write_all(&bytes)
        .map_err(|e| e.to_string())
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
        assert_eq!(address(&f("a"), "pod"), address(&f("a"), "pod"));
        assert_ne!(address(&f("a"), "pod"), address(&f("b"), "pod"));
        // A socket's name has 107 bytes.
        assert!(address(&f("a"), "pod").as_os_str().len() < 107);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
