//! Timestamps of what a socket receives and sends: SO_TIMESTAMP and its kin (`socket(7)`), and
//! SO_TIMESTAMPING (`Documentation/networking/timestamping.rst`).
//!
//! All are the software's: no device here has a clock. A datagram's is the time when it came to
//! the socket, a stream's that of the last bytes that came (`tcp_recv_timestamp`). What is sent is
//! told of in the error queue ([`crate::errors`]), with a number where that was asked for.

use crate::control::Control;
use crate::sys::SOL_SOCKET;
use abi::Result;
use abi::errno::EINVAL;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, Ordering};

pub const SO_TIMESTAMP: i32 = 29;
pub const SO_TIMESTAMPNS: i32 = 35;
pub const SO_TIMESTAMPING: i32 = 37;
const SO_TIMESTAMP_NEW: i32 = 63;
const SO_TIMESTAMPNS_NEW: i32 = 64;
pub const SO_TIMESTAMPING_NEW: i32 = 65;

/// `SOF_TIMESTAMPING_*`.
pub const TX_SOFTWARE: u32 = 1 << 1;
const RX_SOFTWARE: u32 = 1 << 3;
const SOFTWARE: u32 = 1 << 4;
const OPT_ID: u32 = 1 << 7;
pub const TX_SCHED: u32 = 1 << 8;
pub const TX_ACK: u32 = 1 << 9;
pub const OPT_CMSG: u32 = 1 << 10;
pub const OPT_TSONLY: u32 = 1 << 11;
const OPT_STATS: u32 = 1 << 12;
const BIND_PHC: u32 = 1 << 15;
const OPT_ID_TCP: u32 = 1 << 16;
const OPT_RX_FILTER: u32 = 1 << 17;
/// All that Linux 6.12 knows, and which of them ask for times of what is sent.
const MASK: u32 = (1 << 18) - 1;
pub const TX_RECORD: u32 = TX_SOFTWARE | TX_SCHED | 1 | TX_ACK;

/// What a socket asked for. Atomics, each for itself: who sets the option while another thread
/// sends or receives may have it told by the old flags in the new form once.
#[derive(Default)]
pub struct Stamps {
    /// The option of SO_TIMESTAMP's kin that is on; 0: none.
    on: AtomicI32,
    /// SO_TIMESTAMPING's flags, and whether its newer number set them.
    flags: AtomicU32,
    is_new: AtomicI32,
    /// The number of the next that is sent (OPT_ID).
    next: AtomicU32,
    /// When the datagram had come that was received last and told of no time itself, in nanoseconds
    /// of the real time (`sk_stamp`; SIOCGSTAMP); 0: none was.
    last: AtomicI64,
}

/// Whether what is told is of a datagram or in the error queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampOf {
    Datagram,
    Error,
}

/// A time as it is told: seconds, and the rest in units of so many nanoseconds.
pub fn in_seconds(at: i64, unit: i64) -> [u8; 16] {
    let mut v = [0; 16];
    v[..8].copy_from_slice(&(at / 1_000_000_000).to_le_bytes());
    v[8..].copy_from_slice(&(at % 1_000_000_000 / unit).to_le_bytes());
    v
}

impl Stamps {
    /// Those of a listener, for a connection.
    pub fn inherit(&self, from: &Stamps) {
        self.on
            .store(from.on.load(Ordering::Relaxed), Ordering::Relaxed);
        self.flags.store(from.flags(), Ordering::Relaxed);
        let is_new = from.is_new.load(Ordering::Relaxed);
        self.is_new.store(is_new, Ordering::Relaxed);
    }

    /// Whether it is one of these options.
    pub fn has(name: i32) -> bool {
        matches!(
            name,
            SO_TIMESTAMP
                | SO_TIMESTAMPNS
                | SO_TIMESTAMPING
                | SO_TIMESTAMP_NEW
                | SO_TIMESTAMPNS_NEW
                | SO_TIMESTAMPING_NEW
        )
    }

    /// `setsockopt(2)` (`sock_set_timestamp`, `sock_set_timestamping`).
    pub fn set(&self, name: i32, int: i32) -> Result<()> {
        if !matches!(name, SO_TIMESTAMPING | SO_TIMESTAMPING_NEW) {
            self.on
                .store(if int != 0 { name } else { 0 }, Ordering::Relaxed);
            return Ok(());
        }
        let new = int as u32;
        let lacks = |what, needs| new & what != 0 && new & needs == 0;
        if new & !MASK != 0 || lacks(OPT_ID_TCP, OPT_ID) || lacks(OPT_STATS, OPT_TSONLY) {
            return Err(EINVAL);
        }
        if new & BIND_PHC != 0 {
            // No device has such a clock.
            return Err(EINVAL);
        }
        let old = self.flags.swap(new, Ordering::Relaxed);
        if new & !old & OPT_ID != 0 {
            self.next.store(0, Ordering::Relaxed);
        }
        let is_new = i32::from(name == SO_TIMESTAMPING_NEW && int != 0);
        self.is_new.store(is_new, Ordering::Relaxed);
        Ok(())
    }

    /// `getsockopt(2)`.
    pub fn get(&self, name: i32) -> Vec<u8> {
        let is_new = self.is_new.load(Ordering::Relaxed) != 0;
        match name {
            // The flags, and the index of a clock.
            SO_TIMESTAMPING_NEW if !is_new => vec![0; 8],
            SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => [self.flags().to_le_bytes(), [0; 4]].concat(),
            _ => {
                let on = self.on.load(Ordering::Relaxed);
                // (Linux tells the newer two apart one way only.)
                let on = on == name || (name, on) == (SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW);
                i32::from(on).to_le_bytes().to_vec()
            }
        }
    }

    /// Whether the time when something came is told.
    pub fn of_arrivals(&self) -> bool {
        self.on.load(Ordering::Relaxed) != 0 || self.flags() & RX_SOFTWARE != 0
    }

    /// When the last one had come that was received and told of no time.
    pub fn last(&self) -> Option<i64> {
        Some(self.last.load(Ordering::Relaxed)).filter(|t| *t != 0)
    }

    /// SO_TIMESTAMPING's flags.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// The number of what is sent now, where numbers are asked for.
    pub fn number(&self) -> u32 {
        match self.flags() & OPT_ID {
            0 => 0,
            _ => self.next.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// `n` bytes of a stream are sent now: the number of the last one.
    pub fn number_of_last(&self, n: usize) -> u32 {
        match self.flags() & OPT_ID {
            0 => 0,
            _ => {
                let before = self.next.fetch_add(n as u32, Ordering::Relaxed);
                before.wrapping_add(n as u32).wrapping_sub(1)
            }
        }
    }

    /// So many bytes of a stream come before the next: those that are not acknowledged where
    /// numbers begin, unless they are to begin with what is written next.
    pub fn begin_after(&self, n: usize) {
        let n = if self.flags() & OPT_ID_TCP == 0 { n } else { 0 };
        self.next.store(n as u32, Ordering::Relaxed);
    }

    /// Whether a stream that asks for these flags begins to have numbers.
    pub fn begins_numbers(&self, flags: u32) -> bool {
        flags & !self.flags() & OPT_ID != 0
    }

    /// A datagram is received that had come at `at`, nanoseconds of CLOCK_REALTIME: tells so, or
    /// keeps it for who asks (`sock_recv_timestamp`).
    pub fn came(&self, at: i64, c: &mut Control) {
        match self.of_arrivals() || self.flags() & SOFTWARE != 0 {
            true => self.tell(at, StampOf::Datagram, c),
            false => self.last.store(at, Ordering::Relaxed),
        }
    }

    /// Tells of something at `at`, nanoseconds of CLOCK_REALTIME (`__sock_recv_timestamp`).
    pub fn tell(&self, at: i64, told: StampOf, c: &mut Control) {
        let time = |unit| in_seconds(at, unit).to_vec();
        match self.on.load(Ordering::Relaxed) {
            0 => {}
            name @ (SO_TIMESTAMP | SO_TIMESTAMP_NEW) => {
                c.other.push((SOL_SOCKET, name, time(1000)))
            }
            name => c.other.push((SOL_SOCKET, name, time(1))),
        }
        let flags = self.flags();
        let wanted = flags & RX_SOFTWARE != 0 || told == StampOf::Error;
        let any = flags & OPT_RX_FILTER == 0 && self.on.load(Ordering::Relaxed) != 0;
        if flags & SOFTWARE != 0 && (wanted || any) {
            // The other two would be a device's.
            let mut v = time(1);
            v.resize(48, 0);
            let name = match self.is_new.load(Ordering::Relaxed) {
                0 => SO_TIMESTAMPING,
                _ => SO_TIMESTAMPING_NEW,
            };
            c.other.push((SOL_SOCKET, name, v));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_its_kin_is_on_and_flags_need_others() {
        let s = Stamps::default();
        s.set(SO_TIMESTAMP, 1).unwrap();
        s.set(SO_TIMESTAMPNS, 1).unwrap();
        assert_eq!(s.get(SO_TIMESTAMP), [0; 4]);
        assert_eq!(s.get(SO_TIMESTAMPNS), [1, 0, 0, 0]);
        let set = |n: u32| s.set(SO_TIMESTAMPING, n as i32);
        assert_eq!(set(OPT_STATS), Err(EINVAL));
        assert_eq!(set(MASK + 1), Err(EINVAL));
        set(OPT_ID | TX_SOFTWARE).unwrap();
        assert_eq!((s.number(), s.number()), (0, 1));
        let mut c = Control::default();
        s.tell(1_000_000_002, StampOf::Datagram, &mut c);
        assert_eq!(c.other.len(), 1);
        set(SOFTWARE | RX_SOFTWARE).unwrap();
        s.tell(1_000_000_002, StampOf::Datagram, &mut c);
        assert_eq!(c.other[2].2.len(), 48);
    }
}
