//! The text of `/proc/net/*`.

use crate::addr::{Endpoint, any_ip};
use crate::ns::{Binding, NetNamespace, PortTable};
use crate::sys::{AF_INET, AF_INET6};
use std::fmt::Write;
use std::net::IpAddr;

fn hex(e: Endpoint, family: u16) -> String {
    let mut s = String::new();
    let octets = match (e.ip, family) {
        (IpAddr::V4(a), AF_INET) => a.octets().to_vec(),
        (IpAddr::V4(a), _) if a.is_unspecified() => vec![0; 16],
        (IpAddr::V4(a), _) => a.to_ipv6_mapped().octets().to_vec(),
        (IpAddr::V6(a), _) => a.octets().to_vec(),
    };
    for w in octets.chunks_exact(4) {
        let _ = write!(s, "{:08X}", u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    }
    let _ = write!(s, ":{:04X}", e.port);
    s
}

/// The lines of one table; `state` gives the state of a binding that has a target and of one without.
fn table<T>(t: &PortTable<T>, family: u16, states: (u8, u8)) -> String {
    let (local, remote) = if family == AF_INET6 {
        (
            format!("{:<37}", "local_address"),
            format!("{:<37}", "remote_address"),
        )
    } else {
        ("local_address".into(), "rem_address  ".into())
    };
    let mut s = format!(
        "  sl  {local} {remote} st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n",
    );
    let mut all: Vec<_> = t
        .all()
        .into_iter()
        .filter(|b| b.common.family == family)
        .collect();
    all.sort_by_key(|b| (b.port, b.common.ino));
    for (i, b) in all.iter().enumerate() {
        let b: &Binding<T> = b;
        let remote = *b.remote.lock();
        let state = match remote {
            Some(_) => 1,
            None if b.has_target() => states.0,
            None => states.1,
        };
        let _ = writeln!(
            s,
            "{i:4}: {} {} {state:02X} 00000000:00000000 00:00000000 00000000 {:5}        0 {} 1 0000000000000000 100 0 0 10 0",
            hex(
                Endpoint {
                    ip: b.ip,
                    port: b.port
                },
                family
            ),
            hex(
                remote.unwrap_or(Endpoint {
                    ip: any_ip(family),
                    port: 0
                }),
                family
            ),
            b.uid,
            b.common.ino
        );
    }
    s
}

impl NetNamespace {
    /// The content of `/proc/net/<name>`, where there is such a file.
    #[must_use]
    pub fn proc_net(&self, name: &str) -> Option<String> {
        Some(match name {
            "tcp" => table(&self.tcp, AF_INET, (0x0A, 0x07)),
            "tcp6" => table(&self.tcp, AF_INET6, (0x0A, 0x07)),
            "udp" => table(&self.udp, AF_INET, (0x07, 0x07)),
            "udp6" => table(&self.udp, AF_INET6, (0x07, 0x07)),
            "unix" => {
                let mut s =
                    String::from("Num       RefCount Protocol Flags    Type St Inode Path\n");
                let names = self.abstract_names.lock().clone();
                for (n, w) in names {
                    if let Some(u) = w.upgrade() {
                        let (listens, connected) = u.status();
                        let _ = writeln!(
                            s,
                            "0000000000000000: 00000002 00000000 {:08X} {:04X} {:02} {:5} @{}",
                            if listens { 0x10000 } else { 0 },
                            u.common.kind,
                            if connected { 3 } else { 1 },
                            u.common.ino,
                            String::from_utf8_lossy(&n).replace('\0', "@")
                        );
                    }
                }
                s
            }
            "dev" => String::from(
                "Inter-|   Receive                                                |  Transmit\n \
                 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                 lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n",
            ),
            "route" => String::from(
                "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n",
            ),
            "if_inet6" => String::from("00000000000000000000000000000001 01 80 10 80       lo\n"),
            "arp" => String::from(
                "IP address       HW type     Flags       HW address            Mask     Device\n",
            ),
            "ipv6_route" | "packet" | "raw" | "raw6" => String::new(),
            _ => return None,
        })
    }
}
