//! How a container is run: what containerd's options say, kept beside the bundle for `delete`.

use config::PlatformKind;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{CodedInputStream, Message};
use containerd_shim_protos::shim::oci::Options as RuncOptions;
use oci::start::KernelOptions;
use oci::{Annotated, Format, Log, Net, Overlay, Runtime};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The longest options, and the longest settings, that are read.
const MAX: u64 = 64 << 10;
const FILE: &str = "cloister.json";

/// Settings of one container.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The directory of the namespace's containers.
    pub root: PathBuf,
    /// Messages of the runtime.
    pub log: PathBuf,
    /// The pid of the first process on the host; 0 before it is known.
    pub pid: u32,
    pub words: Words,
}

/// What a person may say in the runtime's options: a JSON file that `ConfigPath` names, or
/// `ConfigBody`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Words {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_dir: Option<PathBuf>,
    /// notify or ptrace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// As `cloister --overlay` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlay: Option<String>,
    /// As `cloister --annotations` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<String>,
    /// As `cloister --net` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// As `cloister --allow`, `--deny` and `--net-log` have it: rules of all containers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<egress::Rule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<egress::Rule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_log: Option<PathBuf>,
    /// As `cloister --swap` and `--process-memory` have it.
    pub memory: oci::memory::MemoryOptions,
    pub systemd_cgroup: bool,
    pub debug: bool,
    /// System calls to write to `log.json` in the bundle: names and classes; an empty list for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strace: Option<Vec<String>>,
}

/// The three fields of runtimeoptions.v1.Options (containerd's `pkg/runtimeoptions`): `type_url` 1,
/// `config_path` 2 and `config_body` 3.
fn runtime_options(bytes: &[u8]) -> Result<(String, Vec<u8>), String> {
    let wrong = |e: containerd_shim_protos::protobuf::Error| format!("the runtime's options: {e}");
    let mut s = CodedInputStream::from_bytes(bytes);
    let (mut path, mut body) = (String::new(), Vec::new());
    while let Some(tag) = s.read_raw_tag_or_eof().map_err(wrong)? {
        // Field number and wire type, 2 for a length and bytes.
        match (tag >> 3, tag & 7) {
            (1, 2) => drop(s.read_string().map_err(wrong)?),
            (2, 2) => path = s.read_string().map_err(wrong)?,
            (3, 2) => body = s.read_bytes().map_err(wrong)?,
            _ => return Err("the runtime's options have an unknown field".into()),
        }
    }
    Ok((path, body))
}

fn words(options: &Any) -> Result<Words, String> {
    let kind = options.type_url.rsplit('/').next().unwrap_or_default();
    match kind {
        "" => Ok(Words::default()),
        "containerd.runc.v1.Options" => {
            let o = RuncOptions::parse_from_bytes(&options.value)
                .map_err(|e| format!("the runtime's options: {e}"))?;
            Ok(Words {
                root_dir: (!o.root.is_empty()).then(|| o.root.clone().into()),
                systemd_cgroup: o.systemd_cgroup,
                ..Words::default()
            })
        }
        "runtimeoptions.v1.Options" => {
            let (path, body) = runtime_options(&options.value)?;
            let text = if path.is_empty() {
                body
            } else {
                let mut text = Vec::new();
                std::fs::File::open(&path)
                    .and_then(|f| {
                        std::io::Read::read_to_end(&mut std::io::Read::take(f, MAX), &mut text)
                    })
                    .map_err(|e| format!("could not read {path}: {e}"))?;
                text
            };
            if text.is_empty() {
                return Ok(Words::default());
            }
            let name = if path.is_empty() { "ConfigBody" } else { &path };
            serde_json::from_slice(&text).map_err(|e| format!("{name} is not understood: {e}"))
        }
        other => Err(format!("options of the type {other} are not known")),
    }
}

impl Settings {
    /// Of `Create`. `cgroups_path` is the bundle's: the systemd form tells by itself.
    pub fn new(
        options: &Any,
        namespace: &str,
        bundle: &Path,
        cgroups_path: &str,
    ) -> Result<Settings, String> {
        let mut words = words(options)?;
        words.systemd_cgroup |= cgroups_path.matches(':').count() == 2;
        let base = match &words.root_dir {
            Some(r) => r.clone(),
            None => oci::default_root().join("containerd"),
        };
        let s = Settings {
            root: base.join(namespace),
            log: bundle.join("log.json"),
            pid: 0,
            words,
        };
        s.runtime().map(|_| s)
    }

    pub fn save(&self, bundle: &Path) -> Result<(), String> {
        let wrong =
            |e: std::io::Error| format!("could not keep the settings in {}: {e}", bundle.display());
        let text = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        oci::files::write(&bundle.join(FILE), &text).map_err(wrong)
    }

    /// Takes away what `save` kept.
    pub fn forget(bundle: &Path) {
        if let Err(e) = std::fs::remove_file(bundle.join(FILE))
            && e.kind() != std::io::ErrorKind::NotFound
        {
            crate::log::warning(&format!("could not remove the settings: {e}"));
        }
    }

    /// Those that `save` kept; `None` where it never did.
    pub fn load(bundle: &Path) -> Result<Option<Settings>, String> {
        let path = bundle.join(FILE);
        let mut text = Vec::new();
        let read = std::fs::File::open(&path).and_then(|f| {
            std::io::Read::read_to_end(&mut std::io::Read::take(f, MAX + 1), &mut text)
        });
        match read {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            r => r.map_err(|e| format!("could not read {}: {e}", path.display()))?,
        };
        let read = serde_json::from_slice(&text);
        read.map(Some)
            .map_err(|e| format!("{} is not understood: {e}", path.display()))
    }

    pub fn runtime(&self) -> Result<Runtime, String> {
        let w = &self.words;
        Ok(Runtime {
            root: self.root.clone(),
            log: Log {
                path: Some(self.log.clone()),
                format: Format::Json,
                debug: w.debug,
                open: None,
            },
            systemd_cgroup: w.systemd_cgroup,
            kernel: KernelOptions {
                platform: match w.platform.as_deref() {
                    None | Some("notify") => PlatformKind::Notify,
                    Some("ptrace") => PlatformKind::Ptrace,
                    Some(p) => {
                        return Err(format!(
                            "platform {p:?} is not known: write notify or ptrace"
                        ));
                    }
                },
                strace: w.strace.clone(),
                verbosity: u8::from(w.debug),
                ..KernelOptions::default()
            },
            overlay: match &w.overlay {
                None => Overlay::default(),
                Some(o) => o.parse().map_err(|e| format!("overlay {o:?}: {e}"))?,
            },
            annotated: match &w.annotations {
                None => Annotated::default(),
                Some(a) => a.parse().map_err(|e| format!("annotations: {e}"))?,
            },
            memory: w.memory.clone(),
            leaving: oci::Leaving {
                rules: egress::Rules {
                    allow: w.allow.clone(),
                    deny: w.deny.clone(),
                    ..egress::Rules::default()
                },
                log: w.net_log.clone(),
                pcap: None,
            },
            net: match &w.net {
                None => Net::default(),
                Some(n) => n
                    .parse()
                    .map_err(|e| format!("net {n:?} is not known: {e}"))?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(kind: &str, value: Vec<u8>) -> Any {
        Any {
            type_url: kind.into(),
            value,
            ..Any::default()
        }
    }

    #[test]
    fn options() {
        let none = words(&any("", Vec::new())).unwrap();
        assert_eq!(none, Words::default());
        let runc = RuncOptions {
            systemd_cgroup: true,
            root: "/r".into(),
            ..RuncOptions::default()
        };
        let w = words(&any(
            "containerd.runc.v1.Options",
            runc.write_to_bytes().unwrap(),
        ))
        .unwrap();
        assert!(w.systemd_cgroup && w.root_dir == Some("/r".into()));
        let body = br#"{"platform":"ptrace","overlay":"none"}"#;
        let mut bytes = vec![3 << 3 | 2, body.len() as u8];
        bytes.extend(body);
        let w = words(&any("types/runtimeoptions.v1.Options", bytes.clone())).unwrap();
        assert_eq!(
            (w.platform.as_deref(), w.overlay.as_deref()),
            (Some("ptrace"), Some("none"))
        );
        bytes.pop();
        assert!(words(&any("runtimeoptions.v1.Options", bytes)).is_err());
        assert!(words(&any("other", Vec::new())).is_err());
    }

    #[test]
    fn systemd_paths_tell_by_themselves() {
        let s = |p| Settings::new(&Any::default(), "ns", Path::new("/b"), p).unwrap();
        assert!(s("kubepods.slice:cri-containerd:a").words.systemd_cgroup);
        assert!(!s("/default/a").words.systemd_cgroup);
        assert!(s("").root.ends_with("containerd/ns"));
    }
}
