//! What a namespace knows for TCP's Fast Open (RFC 7413): a server's keys, a client's cookies.
//! What its sockets do with it: `tcp::fast_open`.

use crate::ns::NetNamespace;
use abi::Result;
use abi::errno::EINVAL;
use netstack::ip::Pair;
use netstack::tcp::fast_open::{FastOpen, Form, Learnt};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;

/// The bits of `net.ipv4.tcp_fastopen`.
pub(crate) const CLIENT: i64 = 1;
pub(crate) const SERVER: i64 = 2;
pub(crate) const CLIENT_WITHOUT_COOKIE: i64 = 4;
pub(crate) const SERVER_WITHOUT_COOKIE: i64 = 0x200;
pub(crate) const ALL_LISTENERS: i64 = 0x400;

/// How many peers are known at most.
const KNOWN_MOST: usize = 256;

/// A server's keys: cookies are made with the first, and taken of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Keys {
    pub active: [u8; 16],
    pub backup: Option<[u8; 16]>,
}

impl Keys {
    /// TCP_FASTOPEN_KEY: one or two. `EINVAL`.
    pub fn of_bytes(v: &[u8]) -> Result<Keys> {
        let (active, backup) = v.split_first_chunk().ok_or(EINVAL)?;
        let backup = match backup {
            [] => None,
            _ => Some(backup.try_into().map_err(|_| EINVAL)?),
        };
        Ok(Keys {
            active: *active,
            backup,
        })
    }

    pub fn bytes(&self) -> Vec<u8> {
        let backup = self.backup.iter().flatten();
        self.active.iter().chain(backup).copied().collect()
    }
}

/// What a namespace knows.
#[derive(Default)]
pub(crate) struct Knowledge {
    keys: Mutex<Option<Keys>>,
    /// Of peers, by our address and theirs.
    peers: Mutex<HashMap<(IpAddr, IpAddr), Peer>>,
}

#[derive(Default)]
struct Peer {
    mss: u16,
    cookie: Option<FastOpen>,
    /// In which form it was asked for one in vain last.
    refused: Option<Form>,
}

/// What a SYN may do.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attempt {
    pub option: Option<FastOpen>,
    /// For which segments: those of a peer that takes so much. None: nothing goes with it.
    pub data: Option<u16>,
}

impl Knowledge {
    /// The keys, which are made where there are none.
    pub fn keys(&self) -> Keys {
        let new = || Keys {
            active: crate::stack::random(),
            backup: None,
        };
        *self.keys.lock().get_or_insert_with(new)
    }

    /// As `tcp_fastopen_init_key_once`.
    pub fn make_keys(&self) {
        let _ = self.keys();
    }

    /// What a SYN may do between two addresses.
    pub fn attempt(&self, local: IpAddr, remote: IpAddr, needs_cookie: bool) -> Attempt {
        let peers = self.peers.lock();
        let peer = peers.get(&(local, remote));
        let mss = peer.map_or(u16::MAX, |p| p.mss);
        if !needs_cookie {
            return Attempt {
                option: None,
                data: Some(mss),
            };
        }
        if let Some(cookie) = peer.and_then(|p| p.cookie) {
            return Attempt {
                option: Some(cookie),
                data: Some(mss),
            };
        }
        // Who does not know the one form is asked once in the other.
        let form = match peer.and_then(|p| p.refused) {
            Some(Form::Standard) => Form::Experimental,
            _ => Form::Standard,
        };
        let asks = FastOpen { cookie: None, form };
        Attempt {
            option: Some(asks),
            data: None,
        }
    }

    /// A client has learnt something (`tcp_fastopen_cache_set`).
    pub fn learn(&self, pair: Pair, learnt: Learnt) {
        let mut peers = self.peers.lock();
        let ends = (pair.local.ip(), pair.remote.ip());
        if peers.len() >= KNOWN_MOST
            && !peers.contains_key(&ends)
            && let Some(some) = peers.keys().next().copied()
        {
            peers.remove(&some);
        }
        let p = peers.entry(ends).or_default();
        p.mss = learnt.mss;
        if learnt.cookie.is_some() {
            p.cookie = learnt.cookie;
        } else if p.cookie.is_none() && p.refused != Some(Form::Experimental) {
            p.refused = learnt.refused.or(p.refused);
        }
    }
}

impl NetNamespace {
    pub(crate) fn fast_open_setting(&self) -> i64 {
        self.kept_number("tcp_fastopen").unwrap_or(CLIENT)
    }

    /// `net.ipv4.tcp_fastopen_key`: the words of the keys, as the file has them.
    #[must_use]
    pub fn fast_open_keys(&self) -> String {
        let keys = *self.fast_open.keys.lock();
        let all = keys.map_or(vec![0; 16], |k| k.bytes());
        let word = |w: &[u8]| format!("{:08x}", u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        let key = |k: &[u8]| k.chunks_exact(4).map(word).collect::<Vec<_>>().join("-");
        let keys: Vec<_> = all.chunks_exact(16).map(key).collect();
        keys.join(",")
    }

    /// Sets it: one key, or two with a comma between them. `EINVAL`.
    pub fn set_fast_open_keys(&self, text: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(text).map_err(|_| EINVAL)?;
        let mut bytes = Vec::new();
        for key in text.split(',') {
            let words = key.split('-').map(|w| u32::from_str_radix(w, 16));
            let words: Vec<u32> = words
                .collect::<std::result::Result<_, _>>()
                .map_err(|_| EINVAL)?;
            if words.len() != 4 {
                return Err(EINVAL);
            }
            bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
        }
        *self.fast_open.keys.lock() = Some(Keys::of_bytes(&bytes)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_as_they_are_set() {
        let ns = NetNamespace::new();
        assert_eq!(ns.fast_open_keys(), "00000000-00000000-00000000-00000000");
        let one = "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4";
        ns.set_fast_open_keys(one.as_bytes()).unwrap();
        assert_eq!(ns.fast_open_keys(), one);
        let two = format!("{one},00000001-00000002-00000003-00000004");
        ns.set_fast_open_keys(two.as_bytes()).unwrap();
        assert_eq!(ns.fast_open_keys(), two);
        for bad in [
            "",
            "1-2-3",
            "1-2-3-4-5",
            "1-2-3-x",
            "1-2-3-4,",
            "1-2-3-4,1-2",
        ] {
            assert_eq!(ns.set_fast_open_keys(bad.as_bytes()), Err(EINVAL), "{bad}");
        }
        assert_eq!(ns.fast_open_keys(), two);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let k = Knowledge::default();
        let learnt = Learnt {
            mss: 1000,
            cookie: None,
            refused: Some(Form::Standard),
        };
        for n in 0..2 * KNOWN_MOST as u32 {
            let pair = Pair {
                local: ([10, 0, 0, 1], 1).into(),
                remote: (std::net::Ipv4Addr::from(n), 1).into(),
            };
            k.learn(pair, learnt);
        }
        assert_eq!(k.peers.lock().len(), KNOWN_MOST);
    }
}
