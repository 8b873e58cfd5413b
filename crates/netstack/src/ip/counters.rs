//! What is counted of devices, as `/proc/net/dev` shows it, and all that is counted.

use crate::counters::Mib;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! device_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Of one device. A super-segment counts as one packet.
        #[derive(Default)]
        pub(crate) struct DeviceCounters {
            $(pub $name: AtomicU64,)*
        }

        /// What a device's counters say.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct DeviceCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl DeviceCounters {
            pub(crate) fn read(&self) -> DeviceCounts {
                DeviceCounts {
                    $($name: self.$name.load(Relaxed),)*
                }
            }
        }
    };
}

device_counters! {
    rx_packets,
    rx_bytes,
    /// Frames that are cut.
    rx_errors,
    /// Frames for others, of unknown protocols, with a VLAN's tag.
    rx_dropped,
    /// Multicast frames that came.
    multicast,
    /// Of `rx_dropped`, those with a VLAN's tag.
    rx_vlan,
    tx_packets,
    tx_bytes,
    /// Packets that waited for a neighbour in vain, or for which the device had no room.
    tx_dropped,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// What all counters say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// By the device's index.
    pub devices: Vec<(u32, DeviceCounts)>,
    pub mib: Vec<(Mib, u64)>,
}

impl Counts {
    /// One counter's value.
    #[must_use]
    pub fn get(&self, mib: Mib) -> u64 {
        let found = self.mib.iter().find(|(m, _)| *m == mib);
        found.map_or(0, |(_, n)| *n)
    }
}
