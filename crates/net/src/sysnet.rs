//! The text of `/sys/class/net/DEVICE/*`.

use crate::interface::Interface;
use crate::ns::NetNamespace;
use netstack::ip::DeviceCounts;

/// The files of a device.
pub const SYS_NET: [&str; 17] = [
    "addr_assign_type",
    "addr_len",
    "address",
    "broadcast",
    "carrier",
    "dev_id",
    "dormant",
    "duplex",
    "flags",
    "ifindex",
    "iflink",
    "link_mode",
    "mtu",
    "operstate",
    "speed",
    "tx_queue_len",
    "type",
];

/// The files of its `statistics`.
pub const SYS_NET_STATISTICS: [&str; 24] = [
    "collisions",
    "multicast",
    "rx_bytes",
    "rx_compressed",
    "rx_crc_errors",
    "rx_dropped",
    "rx_errors",
    "rx_fifo_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_missed_errors",
    "rx_nohandler",
    "rx_over_errors",
    "rx_packets",
    "tx_aborted_errors",
    "tx_bytes",
    "tx_carrier_errors",
    "tx_compressed",
    "tx_dropped",
    "tx_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_packets",
    "tx_window_errors",
];

const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
/// What the kernel keeps elsewhere: IFF_RUNNING, IFF_LOWER_UP.
const NOT_KEPT: u32 = 0x1_0040;

impl NetNamespace {
    /// The names of the devices.
    #[must_use]
    pub fn device_names(&self) -> Vec<String> {
        self.interfaces().into_iter().map(|i| i.name).collect()
    }

    /// The index of a device that programs may set something of.
    #[must_use]
    pub fn device_index(&self, name: &[u8]) -> Option<i32> {
        let t = self.table.lock();
        let mut all = t.entries.iter();
        all.find(|(_, e)| e.name.as_bytes() == name)
            .map(|(i, _)| *i)
    }

    /// A file of a device. `None`: there is no such device, or it has no answer (`EINVAL`).
    #[must_use]
    pub fn device_text(&self, device: &str, file: &str) -> Option<String> {
        let i = self.interfaces().into_iter().find(|i| i.name == device)?;
        text(&i, file).map(|t| t + "\n")
    }

    /// A counter of a device.
    #[must_use]
    pub fn device_statistic(&self, device: &str, file: &str) -> Option<String> {
        let i = self.interfaces().into_iter().find(|i| i.name == device)?;
        Some(format!("{}\n", counter(&self.device_counts(i.index), file)))
    }
}

fn mac(m: [u8; 6]) -> String {
    m.map(|b| format!("{b:02x}")).join(":")
}

fn text(i: &Interface, file: &str) -> Option<String> {
    let (up, loopback) = (i.flags & IFF_UP != 0, i.flags & IFF_LOOPBACK != 0);
    Some(match file {
        "addr_assign_type" | "link_mode" => "0".into(),
        "addr_len" => "6".into(),
        "address" => mac(i.mac),
        "broadcast" => mac([if loopback { 0 } else { 0xff }; 6]),
        "carrier" if up => "1".into(),
        "dormant" if up => "0".into(),
        "dev_id" => "0x0".into(),
        "duplex" if up && !loopback => "full".into(),
        "speed" if up && !loopback => "10000".into(),
        "flags" => format!("{:#x}", i.flags & !NOT_KEPT),
        "ifindex" | "iflink" => i.index.to_string(),
        "mtu" => i.mtu.to_string(),
        "operstate" => match (up, loopback) {
            (true, true) => "unknown",
            (true, false) => "up",
            (false, _) => "down",
        }
        .into(),
        "tx_queue_len" => "1000".into(),
        "type" => i.hardware_kind().to_string(),
        _ => return None,
    })
}

fn counter(c: &DeviceCounts, file: &str) -> u64 {
    match file {
        "multicast" => c.multicast,
        "rx_bytes" => c.rx_bytes,
        "rx_dropped" => c.rx_dropped,
        "rx_errors" => c.rx_errors,
        "rx_packets" => c.rx_packets,
        "tx_bytes" => c.tx_bytes,
        "tx_dropped" => c.tx_dropped,
        "tx_packets" => c.tx_packets,
        _ => 0,
    }
}
