//! What the Sentry and the broker of `--net=user` say to each other.
//!
//! Two sockets of packets. On the first the Sentry asks and waits for the answer ([`Request`],
//! [`Answer`]). On the second both sides speak when they have something ([`ToBroker`],
//! [`ToSentry`]), and what finds no room is lost, as datagrams may be. All numbers are
//! little-endian. Decoding checks lengths; what is too long or too short is none.

use crate::addr::Endpoint;
use std::net::IpAddr;

/// The longest option.
pub const OPTION_MAX: usize = 64;
/// The longest packet: a datagram and what is said of it.
pub const MAX: usize = 65_536 + 64;
/// The longest request and answer.
pub const REQUEST_MAX: usize = 128;

/// Whose it is: a user's id, as the Sentry counts what users take. The broker shares among them
/// what it has.
pub type User = u32;

/// What the Sentry asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// A TCP connection. The answer has a descriptor, which is connecting or connected.
    Connect { user: User, to: Endpoint },
    /// `setsockopt(2)` of the socket that comes with it.
    SetOption {
        level: i32,
        name: i32,
        value: &'a [u8],
    },
}

/// The broker's answer: an errno, 0 for none; the connection's end here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    pub errno: i32,
    pub local: Option<Endpoint>,
}

/// A protocol of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Datagrams {
    Udp,
    /// Echo requests.
    Icmp,
}

/// What the Sentry tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToBroker<'a> {
    /// A datagram of the socket with that number.
    Send {
        user: User,
        socket: u64,
        protocol: Datagrams,
        to: Endpoint,
        data: &'a [u8],
    },
    /// That socket is gone.
    Close { socket: u64 },
}

/// What the broker tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToSentry<'a> {
    /// A datagram for the socket with that number.
    Received {
        socket: u64,
        from: Endpoint,
        data: &'a [u8],
    },
    /// What it sent there did not arrive.
    Failed {
        socket: u64,
        to: Endpoint,
        errno: i32,
    },
    /// A connection to a published port, which comes with it.
    Accepted { port: u16, peer: Endpoint },
}

/// Takes fields from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn byte(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[b]| b)
    }
    fn int(&mut self) -> Option<i32> {
        self.bytes().map(i32::from_le_bytes)
    }
    fn word(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
    fn long(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
    fn endpoint(&mut self) -> Option<Endpoint> {
        let ip = match self.byte()? {
            4 => IpAddr::from(self.bytes::<4>()?),
            6 => IpAddr::from(self.bytes::<16>()?),
            _ => return None,
        };
        let port = u16::from_le_bytes(self.bytes()?);
        Some(Endpoint::new(ip, port))
    }
    /// `value`, if nothing is left.
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

fn put_endpoint(v: &mut Vec<u8>, e: Endpoint) {
    match e.ip {
        IpAddr::V4(a) => {
            v.push(4);
            v.extend_from_slice(&a.octets());
        }
        IpAddr::V6(a) => {
            v.push(6);
            v.extend_from_slice(&a.octets());
        }
    }
    v.extend_from_slice(&e.port.to_le_bytes());
}

impl<'a> Request<'a> {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(32);
        match self {
            Request::Connect { user, to } => {
                v.push(1);
                v.extend_from_slice(&user.to_le_bytes());
                put_endpoint(&mut v, *to);
            }
            Request::SetOption { level, name, value } => {
                v.push(2);
                v.extend_from_slice(&level.to_le_bytes());
                v.extend_from_slice(&name.to_le_bytes());
                v.extend_from_slice(value);
            }
        }
        v
    }
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Request<'a>> {
        let mut r = Reader(bytes);
        match r.byte()? {
            1 => {
                let (user, to) = (r.word()?, r.endpoint()?);
                r.end(Request::Connect { user, to })
            }
            2 => {
                let (level, name) = (r.int()?, r.int()?);
                let value = r.0;
                (value.len() <= OPTION_MAX).then_some(Request::SetOption { level, name, value })
            }
            _ => None,
        }
    }
}

impl Answer {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut v = self.errno.to_le_bytes().to_vec();
        if let Some(l) = self.local {
            put_endpoint(&mut v, l);
        }
        v
    }
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let mut r = Reader(bytes);
        let errno = r.int()?;
        let local = if r.0.is_empty() {
            None
        } else {
            Some(r.endpoint()?)
        };
        r.end(Answer { errno, local })
    }
}

impl<'a> ToBroker<'a> {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(64);
        match self {
            ToBroker::Send {
                user,
                socket,
                protocol,
                to,
                data,
            } => {
                v.push(match protocol {
                    Datagrams::Udp => 1,
                    Datagrams::Icmp => 2,
                });
                v.extend_from_slice(&user.to_le_bytes());
                v.extend_from_slice(&socket.to_le_bytes());
                put_endpoint(&mut v, *to);
                v.extend_from_slice(data);
            }
            ToBroker::Close { socket } => {
                v.push(3);
                v.extend_from_slice(&socket.to_le_bytes());
            }
        }
        v
    }
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<ToBroker<'a>> {
        let mut r = Reader(bytes);
        let protocol = match r.byte()? {
            1 => Datagrams::Udp,
            2 => Datagrams::Icmp,
            3 => {
                let socket = r.long()?;
                return r.end(ToBroker::Close { socket });
            }
            _ => return None,
        };
        Some(ToBroker::Send {
            protocol,
            user: r.word()?,
            socket: r.long()?,
            to: r.endpoint()?,
            data: r.0,
        })
    }
}

impl<'a> ToSentry<'a> {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(64);
        match self {
            ToSentry::Received { socket, from, data } => {
                v.push(1);
                v.extend_from_slice(&socket.to_le_bytes());
                put_endpoint(&mut v, *from);
                v.extend_from_slice(data);
            }
            ToSentry::Failed { socket, to, errno } => {
                v.push(2);
                v.extend_from_slice(&socket.to_le_bytes());
                put_endpoint(&mut v, *to);
                v.extend_from_slice(&errno.to_le_bytes());
            }
            ToSentry::Accepted { port, peer } => {
                v.push(3);
                v.extend_from_slice(&port.to_le_bytes());
                put_endpoint(&mut v, *peer);
            }
        }
        v
    }
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<ToSentry<'a>> {
        let mut r = Reader(bytes);
        match r.byte()? {
            1 => Some(ToSentry::Received {
                socket: r.long()?,
                from: r.endpoint()?,
                data: r.0,
            }),
            2 => {
                let (socket, to, errno) = (r.long()?, r.endpoint()?, r.int()?);
                r.end(ToSentry::Failed { socket, to, errno })
            }
            3 => {
                let port = u16::from_le_bytes(r.bytes()?);
                let peer = r.endpoint()?;
                r.end(ToSentry::Accepted { port, peer })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends() -> [Endpoint; 2] {
        [
            Endpoint::new("192.0.2.1".parse().unwrap(), 443),
            Endpoint::new("2001:db8::1".parse().unwrap(), 53),
        ]
    }

    #[test]
    fn there_and_back() {
        for e in ends() {
            let value = &[1, 0, 0, 0][..];
            for r in [
                Request::Connect { user: 1000, to: e },
                Request::SetOption {
                    level: 6,
                    name: 1,
                    value,
                },
            ] {
                assert_eq!(Request::decode(&r.encode()), Some(r));
            }
            for local in [None, Some(e)] {
                let a = Answer { errno: 115, local };
                assert_eq!(Answer::decode(&a.encode()), Some(a));
            }
            for protocol in [Datagrams::Udp, Datagrams::Icmp] {
                let t = ToBroker::Send {
                    user: 1000,
                    socket: 7,
                    protocol,
                    to: e,
                    data: b"hello",
                };
                assert_eq!(ToBroker::decode(&t.encode()), Some(t));
            }
            for t in [
                ToSentry::Received {
                    socket: 7,
                    from: e,
                    data: b"",
                },
                ToSentry::Failed {
                    socket: 7,
                    to: e,
                    errno: 111,
                },
                ToSentry::Accepted { port: 80, peer: e },
            ] {
                assert_eq!(ToSentry::decode(&t.encode()), Some(t));
            }
        }
        let c = ToBroker::Close { socket: u64::MAX };
        assert_eq!(ToBroker::decode(&c.encode()), Some(c));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = (Request::decode(&bytes), Answer::decode(&bytes));
            let _ = (ToBroker::decode(&bytes), ToSentry::decode(&bytes));
        }
    }
}
