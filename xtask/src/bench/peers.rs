//! What is measured: native runs, other runtimes, and Cloister's platforms.
//!
//! A peer is a name, a program and options, so that a new variant (a platform, a lane) is one line
//! of [`find`], or no line at all: `--peers 'notify --some-option'`.

use super::command::{Stop, output};
use super::setup::{Installer, cache};
use super::{Plan, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// gVisor of May 2025: a version of its own Go module that builds by itself.
const RUNSC: &str = "gvisor.dev/gvisor/runsc@v0.0.0-20250503011706-39ed1f5ac29c";

#[derive(Serialize, Deserialize, Clone)]
pub struct Peer {
    pub name: String,
    pub kind: Kind,
    pub program: PathBuf,
    /// Options before the runtime's command.
    pub options: Vec<String>,
    pub version: String,
    /// Why it is not there.
    pub missing: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Native,
    Crun,
    Runc,
    Runsc,
    Cloister,
    /// `cloister do`: programs of this machine, and no bundle.
    Do,
}

/// The network that a container sees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Net {
    /// A loopback of its own.
    Own,
    /// The host's.
    Host,
    /// The namespace of this process.
    At(u32),
}

impl Peer {
    /// The command before which nothing of it is timed: crun refuses machines that mount both
    /// versions of cgroups, and gets a view with version 2 alone.
    pub fn prefix(&self) -> &'static [&'static str] {
        const ONE_CGROUP: &str =
            "umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"";
        if self.kind == Kind::Crun {
            &["unshare", "-m", "sh", "-c", ONE_CGROUP, "sh"]
        } else {
            &[]
        }
    }

    /// Words that run `args` in a container of the name `id`.
    pub fn words(
        &self,
        plan: &Plan,
        bundle: &Path,
        id: &str,
        net: Net,
        args: &[String],
    ) -> Vec<String> {
        if self.kind == Kind::Native {
            let root = plan.scratch.join("native");
            let mut words = Vec::new();
            if let Net::At(pid) = net {
                let net = format!("--net=/proc/{pid}/ns/net");
                words.extend(["nsenter".to_owned(), net, "--".to_owned()]);
            }
            let net = if net == Net::Own { "own" } else { "host" };
            words.extend([text(&self.program), text(&root), net.to_owned()]);
            words.extend_from_slice(args);
            return words;
        }
        if self.kind == Kind::Do {
            let mut words = vec![text(&self.program), "do".to_owned()];
            words.extend_from_slice(&self.options);
            words.push("--".to_owned());
            words.extend_from_slice(args);
            return words;
        }
        let mut words = self.runtime(plan, net);
        words.extend([
            "run".to_owned(),
            "--bundle".to_owned(),
            text(bundle),
            id.to_owned(),
        ]);
        words
    }

    pub fn runtime(&self, plan: &Plan, net: Net) -> Vec<String> {
        let state = plan
            .scratch
            .join("state")
            .join(self.name.replace([' ', '/', '@'], "_"));
        let mut words = vec![text(&self.program), format!("--root={}", text(&state))];
        match (self.kind, net) {
            (Kind::Runsc, Net::Own) => words.push("--network=none".to_owned()),
            (Kind::Runsc, Net::Host) => words.push("--network=host".to_owned()),
            (Kind::Cloister, Net::Host) => words.push("--net=host".to_owned()),
            _ => {}
        }
        words.extend_from_slice(&self.options);
        words
    }

    /// Deletes a container that may still be there.
    pub fn delete(&self, plan: &Plan, id: &str) {
        if matches!(self.kind, Kind::Native | Kind::Do) {
            return;
        }
        let mut words: Vec<String> = self.prefix().iter().map(|&w| w.to_owned()).collect();
        words.extend(self.runtime(plan, Net::Own));
        words.extend(["delete".to_owned(), "--force".to_owned(), id.to_owned()]);
        // Also when the run is to stop: then above all.
        let never = Stop::never();
        let _ = super::command::run(
            Command::new(&words[0]).args(&words[1..]),
            Duration::from_secs(20),
            &never,
        );
    }

    pub fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Cloister | Kind::Do)
    }
}

fn text(p: &Path) -> String {
    p.to_string_lossy().into_owned()
}

/// A peer's first word: what it stands for, and after an `@` the build of the command that is
/// meant.
fn base_and_build(name: &str) -> (&str, Option<&Path>) {
    let word = name.split_whitespace().next().unwrap_or_default();
    match word.split_once('@') {
        Some((base, build)) => (base, Some(Path::new(build))),
        None => (word, None),
    }
}

/// What a peer's first word stands for: its kind, and the options that make it.
pub fn known(name: &str) -> Result<(Kind, &'static [&'static str])> {
    let (base, _) = base_and_build(name);
    Ok(match base {
        "native" => (Kind::Native, &[]),
        "crun" => (Kind::Crun, &[]),
        "runc" => (Kind::Runc, &[]),
        "runsc" => (Kind::Runsc, &["--platform=systrap", "--ignore-cgroups"]),
        "runsc-ptrace" => (Kind::Runsc, &["--platform=ptrace", "--ignore-cgroups"]),
        "notify" => (Kind::Cloister, &["--platform=notify"]),
        "ptrace" => (Kind::Cloister, &["--platform=ptrace"]),
        "do" => (Kind::Do, &["--platform=notify"]),
        "do-ptrace" => (Kind::Do, &["--platform=ptrace"]),
        _ => return Err(format!("there is no peer {base}: see --help")),
    })
}

/// The peer of this name, or one that says why it cannot be had.
pub fn find(
    name: &str,
    cloister: &Path,
    native: &Path,
    installer: &Installer,
    stop: &Stop,
) -> Result<Peer> {
    let (base, build) = base_and_build(name);
    let words = name.split_whitespace().skip(1).map(str::to_owned);
    let (kind, options) = known(name)?;
    if build.is_some() && !matches!(kind, Kind::Cloister | Kind::Do) {
        return Err(format!(
            "{base} has no build of Cloister's: leave out what follows @"
        ));
    }
    if let Some(build) = build.filter(|b| !b.exists()) {
        return Err(format!("there is no {} (peer {name})", build.display()));
    }
    let found = match kind {
        Kind::Native => Ok(native.to_owned()),
        Kind::Cloister | Kind::Do => Ok(build.unwrap_or(cloister).to_owned()),
        Kind::Crun | Kind::Runc => installer.program(base, base, stop),
        Kind::Runsc => runsc(installer, stop),
    };
    let (program, missing) = match found {
        Ok(p) => (p, None),
        Err(why) => (PathBuf::new(), Some(why)),
    };
    let version = if kind == Kind::Native || missing.is_some() {
        String::new()
    } else {
        let told = output(&text(&program), &["--version"], stop).unwrap_or_default();
        told.lines().next().unwrap_or_default().to_owned()
    };
    let options = options.iter().map(|&o| o.to_owned()).chain(words).collect();
    Ok(Peer {
        name: name.to_owned(),
        kind,
        program,
        options,
        version,
        missing,
    })
}

/// $RUNSC, one that was built before, one in PATH, or one built now.
fn runsc(installer: &Installer, stop: &Stop) -> Result<PathBuf> {
    if let Some(p) = std::env::var_os("RUNSC") {
        return Ok(p.into());
    }
    let built = cache()?.join("runsc");
    if built.exists() {
        return Ok(built);
    }
    if let Some(p) = super::setup::which("runsc") {
        return Ok(p);
    }
    let go = super::setup::which("go").ok_or("no runsc in PATH, and no go to build it with")?;
    if !installer.may {
        return Err("no runsc in PATH".to_owned());
    }
    eprintln!("bench: building runsc (some minutes)");
    let mut command = Command::new(go);
    command
        .args(["install", RUNSC])
        .env("CGO_ENABLED", "0")
        .env("GOBIN", cache()?);
    super::command::run(&mut command, Duration::from_secs(1800), stop)?.ok("go install")?;
    Ok(built)
}
