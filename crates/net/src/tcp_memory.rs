//! The memory of all connections of a sandbox that are made of packets (`tcp_mem`, `tcp(7)`).
//!
//! # What holds
//!
//! - Each connection says what its queues hold ([`Share`]); `/proc/net/sockstat` tells the sum.
//! - From the second limit on, until less is held than the first, buffers grow no more. Beyond the
//!   third a connection gets no more than [`LEAST`] each way: what came too early is dropped,
//!   windows close, orphans end. So all go on, slowly, and a hog is no better off than others.
//! - Programs may lower the limits, and never raise them above those that the sandbox began with.
//!   As on Linux only the first network namespace shows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// What a connection may hold each way, however little memory there is.
pub(crate) const LEAST: usize = 4096;

const PAGE: usize = 4096;

/// In pages: below the first there is no pressure any longer, from the second on there is, beyond
/// the third there is no more (96, 128 and 192 MB).
const LIMITS: [u32; 3] = [24_576, 32_768, 49_152];

/// See the module. One for a sandbox.
pub struct TcpMemory {
    bytes: AtomicUsize,
    limits: [AtomicU32; 3],
    pressed: AtomicBool,
}

/// How much there is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Level {
    #[default]
    Enough,
    Pressure,
    None,
}

impl Default for TcpMemory {
    fn default() -> TcpMemory {
        TcpMemory {
            bytes: AtomicUsize::new(0),
            limits: LIMITS.map(AtomicU32::new),
            pressed: AtomicBool::new(false),
        }
    }
}

impl TcpMemory {
    /// What is held, in pages.
    pub fn pages(&self) -> usize {
        self.bytes.load(Relaxed).div_ceil(PAGE)
    }

    pub fn limits(&self) -> [u32; 3] {
        self.limits.each_ref().map(|n| n.load(Relaxed))
    }

    pub fn set_limits(&self, to: [u32; 3]) {
        for ((limit, n), most) in self.limits.iter().zip(to).zip(LIMITS) {
            limit.store(n.min(most), Relaxed);
        }
    }

    pub(crate) fn level(&self) -> Level {
        let [low, pressure, high] = self.limits().map(|n| n as usize);
        let pages = self.pages();
        let before = self.pressed.load(Relaxed);
        let pressed = pages >= pressure || before && pages >= low;
        if pressed != before {
            self.pressed.store(pressed, Relaxed);
        }
        match pressed {
            _ if pages > high => Level::None,
            true => Level::Pressure,
            false => Level::Enough,
        }
    }
}

/// What one connection holds.
pub(crate) struct Share {
    all: Arc<TcpMemory>,
    bytes: usize,
}

impl Share {
    pub fn new(all: &Arc<TcpMemory>) -> Share {
        let all = all.clone();
        Share { all, bytes: 0 }
    }

    pub fn set(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            self.all.bytes.fetch_add(bytes - self.bytes, Relaxed);
        } else {
            self.all.bytes.fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_lasts_until_there_is_enough() {
        let all = Arc::new(TcpMemory::default());
        all.set_limits([2, 4, 8]);
        let (mut a, mut b) = (Share::new(&all), Share::new(&all));
        assert_eq!(all.level(), Level::Enough);
        a.set(3 * PAGE);
        assert_eq!(all.level(), Level::Enough);
        b.set(PAGE - 1);
        assert_eq!((all.pages(), all.level()), (4, Level::Pressure));
        b.set(0);
        assert_eq!(all.level(), Level::Pressure);
        b.set(6 * PAGE);
        assert_eq!(all.level(), Level::None);
        drop(b);
        assert_eq!(all.level(), Level::Pressure);
        a.set(PAGE);
        assert_eq!(all.level(), Level::Enough);
        drop(a);
        assert_eq!(all.pages(), 0);
    }

    #[test]
    fn nobody_raises_them() {
        let all = TcpMemory::default();
        all.set_limits([1, u32::MAX, u32::MAX]);
        assert_eq!(all.limits(), [1, LIMITS[1], LIMITS[2]]);
    }
}
