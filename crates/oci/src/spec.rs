//! `config.json` of a bundle: the OCI runtime specification 1.2, as far as it concerns Linux.
//!
//! These are types of our own, not the `oci-spec` crate's, because a word that this version does
//! not know must be told to the caller by its name: that crate drops it in silence.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The version of the specification that this is written to.
pub const VERSION: &str = "1.2.0";

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $t:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default, remote = "Self")]
        pub struct $name {
            $($(#[$fmeta])* #[serde(deserialize_with = "or_null")] pub $field: $t,)*
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, s)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                $name::deserialize(ObjectOnly(d))
            }
        }
    };
}

/// Where an object is wanted, a list is none: by itself, serde takes one for the object's fields in
/// their order.
struct ObjectOnly<D>(D);

impl<'de, D: serde::Deserializer<'de>> serde::Deserializer<'de> for ObjectOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Go writes an empty list as `null`.
fn or_null<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

words! {
    /// `config.json`.
    Spec {
        oci_version: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        process: Option<Process>,
        #[serde(skip_serializing_if = "Option::is_none")]
        root: Option<Root>,
        #[serde(skip_serializing_if = "String::is_empty")]
        hostname: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        domainname: String,
        mounts: Vec<Mount>,
        #[serde(skip_serializing_if = "Option::is_none")]
        hooks: Option<Hooks>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        annotations: BTreeMap<String, String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        linux: Option<Linux>,
    }
}

words! {
    /// `root`.
    Root {
        path: PathBuf,
        readonly: bool,
    }
}

words! {
    /// `process`, and the file that `exec --process` reads.
    Process {
        terminal: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        console_size: Option<ConsoleSize>,
        user: User,
        args: Vec<String>,
        env: Vec<String>,
        cwd: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        capabilities: Option<Capabilities>,
        rlimits: Vec<Rlimit>,
        no_new_privileges: bool,
        #[serde(skip_serializing_if = "String::is_empty")]
        apparmor_profile: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        oom_score_adj: Option<i32>,
        #[serde(skip_serializing_if = "String::is_empty")]
        selinux_label: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        io_priority: Option<serde_json::Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        scheduler: Option<serde_json::Value>,
        #[serde(rename = "execCPUAffinity", skip_serializing_if = "Option::is_none")]
        exec_cpu_affinity: Option<serde_json::Value>,
    }
}

words! {
    /// The terminal's size in characters.
    ConsoleSize {
        height: u16,
        width: u16,
    }
}

words! {
    /// `process.user`.
    User {
        uid: u32,
        gid: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        umask: Option<u32>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        additional_gids: Vec<u32>,
        #[serde(skip_serializing_if = "String::is_empty")]
        username: String,
    }
}

words! {
    /// Names like `CAP_CHOWN`.
    Capabilities {
        bounding: Vec<String>,
        effective: Vec<String>,
        inheritable: Vec<String>,
        permitted: Vec<String>,
        ambient: Vec<String>,
    }
}

words! {
    /// `RLIMIT_*`.
    Rlimit {
        #[serde(rename = "type")]
        kind: String,
        hard: u64,
        soft: u64,
    }
}

words! {
    /// One of `mounts`.
    Mount {
        destination: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        options: Option<Vec<String>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        uid_mappings: Vec<IdMapping>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        gid_mappings: Vec<IdMapping>,
    }
}

words! {
    /// `hooks`.
    Hooks {
        prestart: Vec<Hook>,
        create_runtime: Vec<Hook>,
        create_container: Vec<Hook>,
        start_container: Vec<Hook>,
        poststart: Vec<Hook>,
        poststop: Vec<Hook>,
    }
}

words! {
    /// A program that is run at a moment of a container's life.
    Hook {
        path: PathBuf,
        args: Vec<String>,
        env: Vec<String>,
        /// Seconds.
        timeout: Option<u64>,
    }
}

words! {
    /// A range of a user namespace.
    IdMapping {
        #[serde(rename = "containerID")]
        container_id: u32,
        #[serde(rename = "hostID")]
        host_id: u32,
        size: u32,
    }
}

words! {
    /// `linux`.
    Linux {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        uid_mappings: Vec<IdMapping>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        gid_mappings: Vec<IdMapping>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        sysctl: BTreeMap<String, String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        resources: Option<Resources>,
        #[serde(skip_serializing_if = "String::is_empty")]
        cgroups_path: String,
        namespaces: Vec<Namespace>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        devices: Vec<Device>,
        #[serde(skip_serializing_if = "Option::is_none")]
        seccomp: Option<Seccomp>,
        #[serde(skip_serializing_if = "String::is_empty")]
        rootfs_propagation: String,
        masked_paths: Vec<String>,
        readonly_paths: Vec<String>,
        #[serde(skip_serializing_if = "String::is_empty")]
        mount_label: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        intel_rdt: Option<serde_json::Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        personality: Option<serde_json::Value>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        time_offsets: BTreeMap<String, TimeOffset>,
    }
}

words! {
    /// What a clock has more than the host's.
    TimeOffset {
        secs: i64,
        nanosecs: u32,
    }
}

words! {
    /// A namespace that the container has of its own, or joins.
    Namespace {
        #[serde(rename = "type")]
        kind: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        path: String,
    }
}

words! {
    /// A device node.
    Device {
        path: String,
        #[serde(rename = "type")]
        kind: String,
        major: i64,
        minor: i64,
        file_mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
    }
}

words! {
    /// `linux.seccomp`.
    Seccomp {
        default_action: String,
        default_errno_ret: Option<u32>,
        architectures: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        flags: Vec<String>,
        #[serde(skip_serializing_if = "String::is_empty")]
        listener_path: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        listener_metadata: String,
        syscalls: Vec<SeccompRule>,
    }
}

words! {
    /// What happens to some system calls.
    SeccompRule {
        names: Vec<String>,
        action: String,
        errno_ret: Option<u32>,
        args: Vec<SeccompArg>,
    }
}

words! {
    /// A condition on an argument.
    SeccompArg {
        index: u32,
        value: u64,
        value_two: u64,
        op: String,
    }
}

words! {
    /// `linux.resources`, also what `update --resources` reads.
    Resources {
        #[serde(skip_serializing_if = "Option::is_none")]
        unified: Option<BTreeMap<String, String>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        devices: Vec<serde_json::Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pids: Option<Pids>,
        #[serde(rename = "blockIO", skip_serializing_if = "Option::is_none")]
        block_io: Option<BlockIo>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cpu: Option<Cpu>,
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<Memory>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        hugepage_limits: Vec<HugepageLimit>,
        #[serde(skip_serializing_if = "Option::is_none")]
        network: Option<Network>,
        #[serde(skip_serializing_if = "Option::is_none")]
        rdma: Option<serde_json::Value>,
    }
}

words! {
    /// One of `hugepageLimits`: bytes in pages of a size, as `2MB`.
    HugepageLimit {
        page_size: String,
        limit: u64,
    }
}

words! {
    /// `network`.
    Network {
        #[serde(rename = "classID")]
        class_id: Option<u32>,
        priorities: Vec<InterfacePriority>,
    }
}

words! {
    /// The priority of one interface's traffic.
    InterfacePriority {
        name: String,
        priority: u32,
    }
}

words! {
    /// `pids`.
    Pids {
        limit: Option<i64>,
    }
}

words! {
    /// `memory`, bytes.
    Memory {
        limit: Option<i64>,
        reservation: Option<i64>,
        swap: Option<i64>,
        kernel: Option<i64>,
        #[serde(rename = "kernelTCP")]
        kernel_tcp: Option<i64>,
        swappiness: Option<u64>,
        #[serde(rename = "disableOOMKiller")]
        disable_oom_killer: Option<bool>,
        use_hierarchy: Option<bool>,
        check_before_update: Option<bool>,
    }
}

words! {
    /// `cpu`.
    Cpu {
        shares: Option<u64>,
        quota: Option<i64>,
        burst: Option<u64>,
        period: Option<u64>,
        realtime_runtime: Option<i64>,
        realtime_period: Option<u64>,
        cpus: Option<String>,
        mems: Option<String>,
        idle: Option<i64>,
    }
}

words! {
    /// `blockIO`.
    BlockIo {
        weight: Option<u16>,
        leaf_weight: Option<u16>,
        weight_device: Vec<serde_json::Value>,
        throttle_read_bps_device: Vec<Throttle>,
        throttle_write_bps_device: Vec<Throttle>,
        #[serde(rename = "throttleReadIOPSDevice")]
        throttle_read_iops_device: Vec<Throttle>,
        #[serde(rename = "throttleWriteIOPSDevice")]
        throttle_write_iops_device: Vec<Throttle>,
    }
}

words! {
    /// A rate for one device.
    Throttle {
        major: i64,
        minor: i64,
        rate: u64,
    }
}

/// The longest `config.json` that is read.
const MAX: u64 = 16 << 20;

/// Whether it is a descriptor of this process, which may be a pipe: what `-` and a shell's `<(...)`
/// become.
fn is_stream(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

/// Reads JSON from a file; gives the words that it has and this version does not know.
pub fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<(T, Vec<String>), Error> {
    let shown = path.display();
    let text = if is_stream(path) {
        let mut text = Vec::new();
        let read = std::fs::File::open(path).and_then(|f| f.take(MAX + 1).read_to_end(&mut text));
        read.and_then(|n| match n as u64 {
            n if n > MAX => Err(std::io::Error::other(format!(
                "it is longer than {MAX} bytes"
            ))),
            _ => Ok(text),
        })
    } else {
        crate::files::read(path, MAX)
    };
    let text = text.map_err(|e| Error::new(format!("cannot read {shown}: {e}")))?;
    parse(&text).map_err(|e| Error::new(format!("{shown} is not understood: {e}")))
}

/// As [`read`], from memory.
pub fn parse<T: for<'a> Deserialize<'a>>(
    text: &[u8],
) -> Result<(T, Vec<String>), serde_json::Error> {
    let mut unknown = Vec::new();
    let mut de = serde_json::Deserializer::from_slice(text);
    let value = serde_ignored::deserialize(&mut de, |p| {
        // A word inside an optional object is shown with a "?" for the option.
        unknown.push(p.to_string().replace(".?", ""));
    })?;
    de.end()?;
    Ok((value, unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_are_told() {
        let text = br#"{"ociVersion":"1.2.0","process":{"args":["a"],"colour":1,"user":{"uid":3}},
            "linux":{"resources":{"blockIO":{"throttleReadIOPSDevice":[{"major":1,"minor":2,"rate":3}]}},
            "newThing":{},"devices":null}}"#;
        let (s, unknown): (Spec, _) = parse(text).unwrap();
        assert_eq!(unknown, ["process.colour", "linux.newThing"]);
        assert_eq!(s.process.unwrap().user.uid, 3);
        let r = s.linux.unwrap().resources.unwrap();
        assert_eq!(r.block_io.unwrap().throttle_read_iops_device[0].rate, 3);
        assert!(parse::<Spec>(b"{} x").is_err());
        // A list is no object, at the top and below.
        for list in [
            &b"[]"[..],
            br#"{"process":[]}"#,
            br#"{"linux":{"resources":{"memory":[1]}}}"#,
        ] {
            assert!(parse::<Spec>(list).is_err());
        }
        let text = serde_json::to_vec(&parse::<Spec>(text).unwrap().0).unwrap();
        assert_eq!(parse::<Spec>(&text).unwrap().0.process.unwrap().args, ["a"]);
    }
}
