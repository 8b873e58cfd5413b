//! The command line that containerd gives a shim, in the form of Go's flags.

use std::collections::VecDeque;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// This program's name, also where it runs itself anew.
pub const NAME: &str = "containerd-shim-cloister-v1";

/// This program, to be run anew: the same, also if another has been installed in its place
/// meanwhile.
pub fn anew() -> Command {
    // Looked up by the child, which is still this program then.
    let mut c = Command::new("/proc/self/exe");
    c.arg0(NAME);
    c
}

/// What containerd says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// containerd's namespace: its tenants.
    pub namespace: String,
    /// The task that is meant.
    pub id: String,
    /// containerd's own socket.
    pub address: String,
    /// The bundle, in `delete`.
    pub bundle: PathBuf,
    /// Ours: where `serve` is to listen.
    pub socket: String,
    pub debug: bool,
    pub version: bool,
    /// `start`, `delete`, and our own `serve` and `helper`.
    pub action: String,
}

/// Takes `-name value`, `-name=value` and either with two dashes; the first other word is the
/// action.
pub fn parse(args: impl Iterator<Item = String>) -> Result<Flags, String> {
    let mut f = Flags::default();
    let mut args: VecDeque<String> = args.collect();
    while let Some(a) = args.pop_front() {
        let Some(flag) = a.strip_prefix('-') else {
            f.action = a;
            break;
        };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        let (name, given) = match flag.split_once('=') {
            Some((n, v)) => (n, Some(v.to_owned())),
            None => (flag, None),
        };
        if let "debug" | "v" | "version" | "info" = name {
            let on = given.is_none_or(|v| v == "true" || v == "1");
            match name {
                "debug" => f.debug = on,
                "info" => return Err("-info is not known".into()),
                _ => f.version = on,
            }
            continue;
        }
        let value = given
            .or_else(|| args.pop_front())
            .ok_or_else(|| format!("-{name} needs a value"))?;
        match name {
            "namespace" => f.namespace = value,
            "id" => f.id = value,
            "address" => f.address = value,
            "bundle" => f.bundle = value.into(),
            "socket" => f.socket = value,
            // What it publishes with is the socket in TTRPC_ADDRESS.
            "publish-binary" => {}
            _ => return Err(format!("-{name} is not known")),
        }
    }
    // They become names of files. (Which of them must be there is the action's matter.)
    for (what, name) in [("namespace", &f.namespace), ("id", &f.id)] {
        if !name.is_empty() && oci::check_id(name).is_err() {
            return Err(format!("-{what} {name:?} is no name"));
        }
    }
    Ok(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Result<Flags, String> {
        parse(words.split(' ').map(str::to_owned))
    }

    #[test]
    fn forms() {
        let f = of(
            "-namespace default --id=a -address /run/c.sock -publish-binary /bin/c -debug start",
        )
        .unwrap();
        assert_eq!((f.namespace.as_str(), f.id.as_str()), ("default", "a"));
        assert_eq!(
            (f.address.as_str(), f.action.as_str(), f.debug),
            ("/run/c.sock", "start", true)
        );
        assert!(!of("-debug=false start").unwrap().debug);
        assert!(of("-v").unwrap().version);
        for bad in [
            "-id",
            "-what x start",
            "-id ../x start",
            "-namespace a/b start",
            "-id .. delete",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
