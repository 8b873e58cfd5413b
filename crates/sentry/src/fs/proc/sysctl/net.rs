//! `/proc/sys/net`: the settings of a network namespace.

use super::{number_of, owned};
use crate::ns::NetNs;
use net::{ConfOf, ConfVersion, Setting};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynFile, DynNode, StaticDir};
use vfs::mode::FileType;
use vfs::{Caller, Perm};

/// Numbers of a network namespace that can be set: some mean something here, the others are kept
/// for who reads them back.
struct Numbers {
    ns: Arc<NetNs>,
    what: Number,
}

enum Number {
    UnprivilegedPortStart,
    MaxConnections,
    LocalPorts,
    TcpMemory,
    /// Of netfilter: how many connections are known, and how many may be.
    Known,
    MostKnown,
    /// A setting of devices.
    Device(ConfOf, Setting),
    /// As many numbers as it begins with, of which none is below or above the last two here. Some
    /// of them connections that begin ask for, by their names.
    Kept(&'static str, &'static [i64], (i64, i64)),
}

impl DynFile for Numbers {
    fn perm(&self) -> Perm {
        let own = owned(&self.ns.user);
        match self.what {
            Number::Known => Perm { mode: 0o444, ..own },
            _ => own,
        }
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        let text = match &self.what {
            Number::UnprivilegedPortStart => self
                .ns
                .unprivileged_port_start
                .load(Ordering::Relaxed)
                .to_string(),
            Number::MaxConnections => self.ns.somaxconn.load(Ordering::Relaxed).to_string(),
            Number::LocalPorts => {
                let ports = self.ns.local_ports();
                format!("{}\t{}", ports.low(), ports.high())
            }
            Number::TcpMemory => {
                let [low, pressure, high] = self.ns.tcp_memory.limits();
                format!("{low}\t{pressure}\t{high}")
            }
            Number::Known => self.ns.known_connections().0.to_string(),
            Number::MostKnown => self.ns.known_connections().1.to_string(),
            Number::Device(of, setting) => {
                let value = self.ns.conf(*of, *setting).ok_or(abi::errno::ENOENT)?;
                value.to_string()
            }
            Number::Kept(name, first, _) => {
                let kept = self.ns.kept.lock();
                let v = kept.get(name).map_or(*first, Vec::as_slice);
                let all: Vec<String> = v.iter().map(ToString::to_string).collect();
                all.join("\t")
            }
        };
        Ok(format!("{text}\n").into_bytes())
    }
    fn write(&self, file: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        const EINVAL: abi::Errno = abi::errno::EINVAL;
        if !file.cred.has_in(&self.ns.user, vfs::Caps::NET_ADMIN) {
            return Err(abi::errno::EPERM);
        }
        let text = std::str::from_utf8(&data[..data.len().min(256)]).map_err(|_| EINVAL)?;
        let given = text
            .split_ascii_whitespace()
            .map(|w| number_of(w).ok_or(EINVAL))
            .collect::<abi::Result<Vec<_>>>()?;
        match (&self.what, given.as_slice()) {
            (Number::UnprivilegedPortStart, [n]) => {
                let n = u16::try_from(*n).map_err(|_| EINVAL)?;
                self.ns.unprivileged_port_start.store(n, Ordering::Relaxed);
            }
            (Number::MaxConnections, [n]) => {
                let n = u32::try_from(*n).map_err(|_| EINVAL)?;
                self.ns.somaxconn.store(n, Ordering::Relaxed);
            }
            (Number::LocalPorts, [low, high]) => {
                let port = |n: i64| u16::try_from(n).map_err(|_| EINVAL);
                self.ns.set_local_ports(port(*low)?, port(*high)?)?;
            }
            (Number::TcpMemory, [low, pressure, high]) => {
                let pages = |n: i64| u32::try_from(n.min(u32::MAX.into())).map_err(|_| EINVAL);
                let limits = [pages(*low)?, pages(*pressure)?, pages(*high)?];
                self.ns.tcp_memory.set_limits(limits);
            }
            (Number::MostKnown, [n]) => {
                let n = usize::try_from(*n).map_err(|_| EINVAL)?;
                self.ns.set_most_known_connections(n)?;
            }
            (Number::Device(of, setting), [n]) => {
                let n = i32::try_from(*n).map_err(|_| EINVAL)?;
                self.ns.set_conf(*of, *setting, n)?;
            }
            // Those that are not given stay as they are, what is beyond is not looked at
            // (`proc_dointvec`).
            (Number::Kept(name, first, (least, most)), all @ [_, ..]) => {
                let all = &all[..all.len().min(first.len())];
                if all.iter().any(|n| n > most || n < least) {
                    return Err(EINVAL);
                }
                let mut kept = self.ns.kept.lock();
                let now = kept.entry(name).or_insert_with(|| first.to_vec());
                now[..all.len()].copy_from_slice(all);
            }
            _ => return Err(EINVAL),
        }
        Ok(data.len())
    }
}

/// `net.ipv4.conf` and that of IPv6: a directory for each device, as it is when it is looked at,
/// for those to come, and for all.
struct Confs(Arc<NetNs>, ConfVersion);

impl Confs {
    fn of(&self, name: &[u8]) -> Option<ConfOf> {
        match name {
            b"all" => Some(ConfOf::All),
            b"default" => Some(ConfOf::Default),
            _ => self.0.device_index(name).map(ConfOf::Device),
        }
    }
}

impl DynDir for Confs {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> abi::Result<DynNode> {
        let of = self.of(name).ok_or(abi::errno::ENOENT)?;
        let (ns, version) = (self.0.clone(), self.1);
        Ok(DynNode::Dir(Arc::new(Conf { ns, version, of })))
    }

    fn list(&self, _: &File) -> abi::Result<Vec<DynEntry>> {
        let always = ["all", "default"].map(String::from);
        let known = |n: &String| self.of(n.as_bytes()).is_some();
        let names = self.0.device_names().into_iter().filter(known);
        let all = always.into_iter().chain(names);
        let entry = |name: String| DynEntry {
            name: name.into_bytes(),
            kind: FileType::Directory,
        };
        Ok(all.map(entry).collect())
    }
}

/// The settings of one.
struct Conf {
    ns: Arc<NetNs>,
    version: ConfVersion,
    of: ConfOf,
}

impl DynDir for Conf {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> abi::Result<DynNode> {
        let name = std::str::from_utf8(name).map_err(|_| abi::errno::ENOENT)?;
        let setting = Setting::named(self.version, name).ok_or(abi::errno::ENOENT)?;
        Ok(DynNode::File(Arc::new(Numbers {
            ns: self.ns.clone(),
            what: Number::Device(self.of, setting),
        })))
    }

    fn list(&self, _: &File) -> abi::Result<Vec<DynEntry>> {
        let entry = |name: &str| DynEntry {
            name: name.as_bytes().to_vec(),
            kind: FileType::Regular,
        };
        Ok(Setting::names(self.version).map(entry).collect())
    }
}

/// TCP's settings by name, the numbers that each has at first, and the range of them. Most are
/// asked for by a connection that begins.
const TCP: &[(&str, &[i64], (i64, i64))] = &[
    ("tcp_dsack", &[1], BYTE),
    ("tcp_early_retrans", &[3], (0, 4)),
    ("tcp_ecn", &[2], (0, 2)),
    ("tcp_fastopen", &[1], INT),
    ("tcp_fin_timeout", &[60], INT),
    ("tcp_keepalive_intvl", &[75], INT),
    ("tcp_keepalive_probes", &[9], BYTE),
    ("tcp_keepalive_time", &[7200], INT),
    ("tcp_max_syn_backlog", &[1024], INT),
    ("tcp_min_tso_segs", &[2], (1, 255)),
    ("tcp_moderate_rcvbuf", &[1], BYTE),
    (
        "tcp_notsent_lowat",
        &[u32::MAX as i64],
        (0, u32::MAX as i64),
    ),
    ("tcp_orphan_retries", &[0], BYTE),
    ("tcp_pacing_ca_ratio", &[120], (0, 1000)),
    ("tcp_pacing_ss_ratio", &[200], (0, 1000)),
    ("tcp_reordering", &[3], (1, 300)),
    ("tcp_retries2", &[15], BYTE),
    ("tcp_rmem", &[4096, 131_072, 6_291_456], SIZE),
    ("tcp_sack", &[1], BYTE),
    ("tcp_slow_start_after_idle", &[1], BYTE),
    ("tcp_syn_linear_timeouts", &[4], (0, 127)),
    ("tcp_syn_retries", &[6], (1, 127)),
    ("tcp_synack_retries", &[5], BYTE),
    ("tcp_syncookies", &[1], BYTE),
    ("tcp_timestamps", &[1], BYTE),
    ("tcp_tso_win_divisor", &[3], BYTE),
    ("tcp_tw_reuse", &[2], (0, 2)),
    ("tcp_window_scaling", &[1], BYTE),
    ("tcp_wmem", &[4096, 16_384, 4_194_304], SIZE),
];
const BYTE: (i64, i64) = (0, 255);
const INT: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);
const SIZE: (i64, i64) = (1, i32::MAX as i64);

/// A setting of words.
struct Words {
    ns: Arc<NetNs>,
    mode: u32,
    show: fn(&NetNs) -> String,
    set: fn(&NetNs, &[u8]) -> abi::Result<()>,
}

impl DynFile for Words {
    fn perm(&self) -> Perm {
        Perm {
            mode: self.mode,
            ..owned(&self.ns.user)
        }
    }
    fn generate(&self, _: &File) -> abi::Result<Vec<u8>> {
        Ok(format!("{}\n", (self.show)(&self.ns)).into_bytes())
    }
    fn write(&self, file: &File, data: &[u8], _: u64) -> abi::Result<usize> {
        if !file.cred.has_in(&self.ns.user, vfs::Caps::NET_ADMIN) {
            return Err(abi::errno::EPERM);
        }
        (self.set)(&self.ns, data.trim_ascii())?;
        Ok(data.len())
    }
}

/// `net.ipv4.tcp_congestion_control`: what sockets begin with.
fn default_congestion(ns: &Arc<NetNs>) -> Words {
    Words {
        ns: ns.clone(),
        mode: 0o644,
        show: |ns| net::default_congestion(ns).into(),
        set: |ns, name| net::set_default_congestion(ns, name),
    }
}

/// `net.ipv4.tcp_fastopen_key`: what cookies are made with, one or two keys. A secret.
fn fast_open_keys(ns: &Arc<NetNs>) -> Words {
    Words {
        ns: ns.clone(),
        mode: 0o600,
        show: |ns| ns.fast_open_keys(),
        set: |ns, keys| ns.set_fast_open_keys(keys),
    }
}

/// `net.*`. What counts for all namespaces is shown in the `first` one alone.
pub(super) fn settings(ns: &Arc<NetNs>, first: &Arc<NetNs>) -> StaticDir {
    let number = |what| Numbers {
        ns: ns.clone(),
        what,
    };
    let kept = |name, first| number(Number::Kept(name, first, (i64::MIN, i64::MAX)));
    let within = |name, first, range| number(Number::Kept(name, first, range));
    let ipv4 = StaticDir::new()
        .file("ip_local_port_range", number(Number::LocalPorts))
        .file(
            "ip_unprivileged_port_start",
            number(Number::UnprivilegedPortStart),
        )
        .file("ping_group_range", kept("ping_group_range", &[1, 0]))
        .file(
            "ip_forward",
            number(Number::Device(ConfOf::All, Setting::FORWARDING)),
        )
        .dir("conf", Confs(ns.clone(), ConfVersion::V4))
        .file(
            "ip_nonlocal_bind",
            within("ip_nonlocal_bind", &[0], (0, 255)),
        )
        .file("tcp_congestion_control", default_congestion(ns))
        .text("tcp_available_congestion_control", "reno cubic\n")
        .text("tcp_allowed_congestion_control", "reno cubic\n")
        .file("tcp_fastopen_key", fast_open_keys(ns));
    let ipv4 = TCP.iter().fold(ipv4, |dir, &(name, first, range)| {
        dir.file(name, within(name, first, range))
    });
    let ipv4 = if Arc::ptr_eq(ns, first) {
        ipv4.file("tcp_mem", number(Number::TcpMemory))
    } else {
        ipv4
    };
    let core = StaticDir::new()
        .file("somaxconn", number(Number::MaxConnections))
        .text("rmem_max", "212992\n")
        .text("wmem_max", "212992\n")
        .text("rmem_default", "212992\n")
        .text("wmem_default", "212992\n");
    let int = (i32::MIN.into(), i32::MAX.into());
    let ipv6 = StaticDir::new()
        .dir("conf", Confs(ns.clone(), ConfVersion::V6))
        .file("ip_nonlocal_bind", within("ip_nonlocal_bind_v6", &[0], int));
    let all = StaticDir::new()
        .dir("core", core)
        .dir("ipv4", ipv4)
        .dir("ipv6", ipv6);
    if !ns.takes_rules() {
        return all;
    }
    let netfilter = StaticDir::new()
        .file("nf_conntrack_count", number(Number::Known))
        .file("nf_conntrack_max", number(Number::MostKnown));
    all.dir("netfilter", netfilter)
        .file("nf_conntrack_max", number(Number::MostKnown))
}
