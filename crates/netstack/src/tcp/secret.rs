//! Numbers that a stranger cannot guess: initial sequence numbers (RFC 6528), timestamp offsets,
//! and cookies in place of half-open connections (RFC 4987 3.6; Linux: syncookies.c).

use super::config::Config;
use super::segment::{Flags, Header, Options, Segment, Seq, Timestamps};
use crate::time::Instant;
use siphasher::sip::SipHasher24;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

/// Cookies of this minute and the one before are taken.
const MINUTES: u64 = 2;
/// What a cookie's index says.
const SIZES: [u16; 4] = [536, 1300, 1440, 1460];
/// A timestamp's low bits: the window scale (15: none), whether SACK is permitted.
const SCALE: u32 = 0xf;
const SACK: u32 = 1 << 4;
const LOW: u32 = (1 << 6) - 1;
const INDEX_BITS: u32 = 24;

/// Both ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ends {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// What a cookie has kept of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie {
    /// Our initial sequence number, and the peer's.
    pub iss: Seq,
    pub irs: Seq,
    pub options: Options,
}

/// A secret of the stack. See the module.
pub struct Secret {
    key: [u8; 16],
}

impl Secret {
    #[must_use]
    pub fn new(key: [u8; 16]) -> Secret {
        Secret { key }
    }

    fn hash(&self, of: impl Hash) -> u64 {
        let mut h = SipHasher24::new_with_key(&self.key);
        of.hash(&mut h);
        h.finish()
    }

    /// A new connection's first sequence number: greater than that of one before between the same
    /// ends (it grows by one each 64 ns).
    #[must_use]
    pub fn initial(&self, ends: &Ends, now: Instant) -> Seq {
        Seq(self.hash((1u8, ends)) as u32).plus((now.0 >> 6) as u32)
    }

    /// What is added to the clock of timestamps between two hosts: the same for all connections of
    /// them, so that TIME_WAIT may be recycled.
    #[must_use]
    pub fn timestamp_offset(&self, ends: &Ends) -> u32 {
        self.hash((2u8, ends.local.ip(), ends.remote.ip())) as u32
    }

    /// The answer to a SYN for which nothing is kept.
    #[must_use]
    pub fn cookie(&self, ends: &Ends, syn: &Header, now: Instant, config: &Config) -> Header {
        let mss = syn.options.mss.unwrap_or(SIZES[0]);
        let index = SIZES.iter().rposition(|&s| s <= mss).unwrap_or(0);
        let minute = minute(now);
        let mut options = Options {
            mss: Some(config.mss),
            ..Options::default()
        };
        if let Some(t) = syn.options.timestamps.filter(|_| config.timestamps) {
            options.window_scale = syn.options.window_scale.filter(|_| config.window_scaling);
            options.sack_permitted = syn.options.sack_permitted && config.sack;
            let scale = options.window_scale.map_or(SCALE, |s| u32::from(s.min(14)));
            let low = scale | if options.sack_permitted { SACK } else { 0 };
            options.window_scale = options
                .window_scale
                .map(|_| super::connection::scale_for(config));
            let stamp = (now.millis() as u32).wrapping_add(config.timestamp_offset);
            let value = (stamp & !LOW) | low;
            // Never ahead of the clock.
            let value = if value.wrapping_sub(stamp) as i32 > 0 {
                value.wrapping_sub(LOW + 1)
            } else {
                value
            };
            options.timestamps = Some(Timestamps {
                value,
                echo: t.value,
            });
        }
        Header {
            seq: self.cookie_seq(ends, syn.seq, minute, index as u32),
            ack: syn.seq.plus(1),
            flags: Flags::SYN | Flags::ACK,
            window: u16::try_from(config.receive_buffer).unwrap_or(u16::MAX),
            options,
            ..Header::default()
        }
    }

    fn cookie_seq(&self, ends: &Ends, irs: Seq, minute: u64, index: u32) -> Seq {
        let base = self.hash((3u8, ends)) as u32;
        let tail = (self.hash((4u8, ends, minute)) as u32).wrapping_add(index);
        irs.plus(base)
            .plus((minute as u32) << INDEX_BITS)
            .plus(tail & ((1 << INDEX_BITS) - 1))
    }

    /// Whether a segment of no connection brings back a cookie of ours. The connection follows by
    /// [`super::Connection::accept_cookie`].
    #[must_use]
    pub fn check(
        &self,
        ends: &Ends,
        ack: &Segment,
        now: Instant,
        config: &Config,
    ) -> Option<Cookie> {
        let h = &ack.header;
        if h.flags & (Flags::ACK | Flags::SYN | Flags::RST) != Flags::ACK {
            return None;
        }
        let (iss, irs) = (Seq(h.ack.0.wrapping_sub(1)), Seq(h.seq.0.wrapping_sub(1)));
        let this = minute(now);
        let index = (this.saturating_sub(MINUTES - 1)..=this).find_map(|m| {
            (0..SIZES.len()).find(|&i| self.cookie_seq(ends, irs, m, i as u32) == iss)
        })?;
        let mut options = Options {
            mss: Some(SIZES[index]),
            ..Options::default()
        };
        if let Some(t) = h.options.timestamps.filter(|_| config.timestamps) {
            let bits = t.echo & LOW;
            options.timestamps = Some(t);
            options.sack_permitted = bits & SACK != 0;
            options.window_scale = (bits & SCALE != SCALE).then_some((bits & SCALE) as u8);
        }
        Some(Cookie { iss, irs, options })
    }
}

fn minute(now: Instant) -> u64 {
    now.millis() / 60_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        Ends {
            local: ([10, 0, 0, 1], 80).into(),
            remote: ([10, 0, 0, 2], port).into(),
        }
    }

    #[test]
    fn initial_numbers_grow_and_differ() {
        let s = Secret::new([7; 16]);
        let (a, b) = (Instant(5_000_000), Instant(9_000_000));
        assert!(s.initial(&ends(1), b).is_after(s.initial(&ends(1), a)));
        assert_ne!(s.initial(&ends(1), a), s.initial(&ends(2), a));
        assert_ne!(
            s.initial(&ends(1), a),
            Secret::new([8; 16]).initial(&ends(1), a)
        );
        assert_eq!(s.timestamp_offset(&ends(1)), s.timestamp_offset(&ends(2)));
    }

    #[test]
    fn a_cookie_brings_back_the_options() {
        let s = Secret::new([7; 16]);
        let config = Config {
            timestamp_offset: 12_345,
            ..Config::default()
        };
        let now = Instant(119_000_000_000);
        let options = Options {
            mss: Some(1400),
            window_scale: Some(9),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 77, echo: 0 }),
            ..Options::default()
        };
        let syn = Header {
            seq: Seq(u32::MAX),
            flags: Flags::SYN,
            options,
            ..Header::default()
        };
        let answer = s.cookie(&ends(1), &syn, now, &config);
        let echo = answer.options.timestamps.unwrap().value;
        assert!((119_000u32 + 12_345).wrapping_sub(echo) < 64 * 2);
        let mut ack = Segment::default();
        ack.header.flags = Flags::ACK;
        ack.header.seq = Seq(0);
        ack.header.ack = answer.seq.plus(1);
        ack.header.options.timestamps = Some(Timestamps { value: 78, echo });
        let later = Instant(now.0 + 30_000_000_000);
        let c = s.check(&ends(1), &ack, later, &config).unwrap();
        assert_eq!((c.iss, c.irs), (answer.seq, syn.seq));
        assert_eq!(c.options.mss, Some(1300));
        assert_eq!(c.options.window_scale, Some(9));
        assert!(c.options.sack_permitted);
        assert!(s.check(&ends(2), &ack, later, &config).is_none());
        let much_later = Instant(now.0 + 200_000_000_000);
        assert!(s.check(&ends(1), &ack, much_later, &config).is_none());
        ack.header.ack = answer.seq.plus(7);
        assert!(s.check(&ends(1), &ack, later, &config).is_none());
    }
}
