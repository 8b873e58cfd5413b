//! What Fast Open's option says (RFC 7413), and what a client learns of it.

use siphasher::sip::SipHasher24;
use std::net::IpAddr;

/// A cookie as it lies in the option: 4 to 16 bytes, an even number of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie {
    len: u8,
    bytes: [u8; Cookie::MOST],
}

impl Cookie {
    const LEAST: usize = 4;
    const MOST: usize = 16;

    /// None where it has a length that no cookie has.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Cookie> {
        let n = bytes.len();
        if !(Cookie::LEAST..=Cookie::MOST).contains(&n) || !n.is_multiple_of(2) {
            return None;
        }
        let mut all = [0; Cookie::MOST];
        all[..n].copy_from_slice(bytes);
        Some(Cookie {
            len: n as u8,
            bytes: all,
        })
    }

    /// The one that a server with this key gives to who comes from `client` to its `server`:
    /// SipHash-2-4 of both addresses, as Linux's are (`__tcp_fastopen_cookie_gen_cipher`), so that
    /// servers with one key take each other's.
    #[must_use]
    pub fn made(key: &[u8; 16], client: IpAddr, server: IpAddr) -> Cookie {
        let mut both = Vec::with_capacity(32);
        for ip in [client, server] {
            match ip {
                IpAddr::V4(ip) => both.extend(ip.octets()),
                IpAddr::V6(ip) => both.extend(ip.octets()),
            }
        }
        let hash = SipHasher24::new_with_key(key).hash(&both);
        let mut bytes = [0; Cookie::MOST];
        bytes[..8].copy_from_slice(&hash.to_le_bytes());
        Cookie { len: 8, bytes }
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The option of a SYN, or of the answer to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastOpen {
    /// None asks for one.
    pub cookie: Option<Cookie>,
    pub form: Form,
}

/// Which of the two options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Standard,
    /// By the number for experiments, from before RFC 7413.
    Experimental,
}

impl Form {
    /// What stands before the cookie: kind, length, an experiment's magic.
    const fn prefix(self) -> usize {
        match self {
            Form::Standard => 2,
            Form::Experimental => 4,
        }
    }
}

impl FastOpen {
    /// An option's bytes behind its kind and length, and behind the magic of an experiment's. None
    /// where that is no cookie.
    #[must_use]
    pub fn read(body: &[u8], form: Form) -> Option<FastOpen> {
        let cookie = match body {
            [] => None,
            _ => Some(Cookie::new(body)?),
        };
        Some(FastOpen { cookie, form })
    }

    /// How long it says that it is.
    pub(crate) fn unpadded(&self) -> usize {
        self.form.prefix() + self.cookie.map_or(0, |c| c.bytes().len())
    }

    /// What it takes of a header, with its padding.
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.unpadded().next_multiple_of(4)
    }
}

/// What a client learns from the answer to its SYN, for the next connection to that peer
/// (`tcp_rcv_fastopen_synack`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learnt {
    /// The largest segment that the peer takes.
    pub mss: u16,
    /// A new cookie.
    pub cookie: Option<FastOpen>,
    /// It was asked for one by an option of this form, and has given none.
    pub refused: Option<Form>,
}

/// Why the data of a SYN did not arrive with it (`enum tcp_fastopen_client_fail`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// There was no cookie.
    CookieUnavailable = 1,
    /// The peer took the SYN alone.
    DataNotAcked = 2,
    /// The SYN was sent again, without it.
    SynRetransmitted = 3,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that Linux makes with the same key.
    #[test]
    fn cookies_are_linux_s() {
        let word = |n: u32| n.to_le_bytes();
        let key = |words: [u32; 4]| -> [u8; 16] { words.map(word).concat().try_into().unwrap() };
        let key = key([0xa0bf_63f7, 0xed80_3d81, 0xcd64_1d30, 0xcebc_4a90]);
        let cookie = Cookie::made(&key, [10, 248, 0, 2].into(), [192, 168, 0, 2].into());
        let linux = [0x00, 0xab, 0xaa, 0xab, 0xe8, 0xe9, 0x54, 0xc2];
        assert_eq!(cookie.bytes(), linux);
    }

    #[test]
    fn what_is_no_cookie_is_no_option() {
        for n in [1, 2, 3, 5, 15, 17, 18] {
            assert_eq!(FastOpen::read(&vec![7; n], Form::Standard), None, "{n}");
        }
        let asks = FastOpen::read(&[], Form::Experimental).unwrap();
        assert_eq!((asks.cookie, asks.header_len()), (None, 4));
        let longest = FastOpen::read(&[7; 16], Form::Standard).unwrap();
        assert_eq!(longest.header_len(), 20);
    }
}
