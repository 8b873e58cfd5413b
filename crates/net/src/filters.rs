//! Programs of classic BPF on packets: filters of sockets (`SO_ATTACH_FILTER` of `socket(7)`;
//! Linux's Documentation/networking/filter.rst), and those that choose who of several sockets at a
//! port gets a packet (`SO_ATTACH_REUSEPORT_CBPF`).
//!
//! A program comes from an application; [`bpf`] checks it once, and runs it. Here is what it may
//! load: what lies outside of the packet ends it with 0. Its memory is its socket's owner's.

use abi::Result;
use abi::errno::{EINVAL, ENOENT, ENOMEM};
use bpf::*;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::ucounts::{Charge, Kind, Ucounts};

pub use bpf::MAX_INSNS as MOST_INSNS;

/// The bytes of `struct sock_filter`.
pub const INSN: usize = size_of::<Insn>();

/// `SKF_AD_OFF`, `SKF_NET_OFF`, `SKF_LL_OFF`: where what is not in the packet lies.
const AD_OFF: i64 = -0x1000;
const NET_OFF: i64 = -0x10_0000;
const LL_OFF: i64 = -0x20_0000;

/// A checked program, and whose memory it is.
#[derive(Debug)]
pub struct Filter {
    code: Box<[Insn]>,
    _charge: Option<Charge>,
}

/// The filter of a socket. Leaf lock.
#[derive(Default)]
pub struct SocketFilter {
    /// Mostly there is none: this alone is looked at then.
    is_on: AtomicBool,
    program: RwLock<Option<Arc<Filter>>>,
}

impl SocketFilter {
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub fn set(&self, new: Option<Arc<Filter>>) {
        let mut program = self.program.write();
        self.is_on.store(new.is_some(), Ordering::Relaxed);
        let old = std::mem::replace(&mut *program, new);
        drop(program);
        drop(old);
    }

    /// Takes it away: `ENOENT` where there is none.
    pub fn detach(&self) -> Result<()> {
        let is_there = self.program.read().is_some();
        self.set(None);
        is_there.then_some(()).ok_or(ENOENT)
    }

    pub fn get(&self) -> Option<Arc<Filter>> {
        self.program.read().clone()
    }

    /// How many bytes of a packet the socket gets, of which it gets `least` where it gets any; none
    /// where it gets nothing (`sk_filter_trim_cap`).
    pub fn admits(&self, p: &Packet<'_>, least: usize) -> Option<usize> {
        let Some(f) = self.get() else {
            return Some(p.data.len());
        };
        match f.run(p) {
            0 => None,
            n => Some((n as usize).max(least).min(p.data.len())),
        }
    }
}

/// Who of the sockets at an address and port gets what comes: they share this (`sock_reuseport`).
#[derive(Default)]
pub struct Chooser(RwLock<Option<Arc<Filter>>>);

impl Chooser {
    pub fn program(&self) -> Option<Arc<Filter>> {
        self.0.read().clone()
    }
}

/// That of one socket, from when it is in such a group, or has a program before. Leaf lock.
#[derive(Default)]
pub struct Membership(Mutex<Option<Arc<Chooser>>>);

impl Membership {
    pub fn get(&self) -> Option<Arc<Chooser>> {
        self.0.lock().clone()
    }

    /// It is in a group from now on: of a member, or of its own.
    pub fn join(&self, other: Option<&Membership>) {
        let theirs = other.and_then(Membership::get);
        let mut mine = self.0.lock();
        *mine = Some(theirs.or(mine.take()).unwrap_or_default());
    }

    pub fn attach(&self, f: Filter) {
        let group = self.0.lock().get_or_insert_default().clone();
        let old = group.0.write().replace(Arc::new(f));
        drop(old);
    }

    pub fn detach(&self) -> Option<Arc<Filter>> {
        let group = self.get()?;
        let mut program = group.0.write();
        program.take()
    }
}

/// What a program may see.
pub struct Packet<'a> {
    /// From where the socket's packets begin.
    pub data: &'a [u8],
    /// The whole frame, and where its network header begins.
    pub frame: &'a [u8],
    pub network: usize,
    /// `ETH_P_*`.
    pub protocol: u16,
    /// `PACKET_*`.
    pub kind: u8,
    pub device: i32,
    /// `ARPHRD_*`.
    pub hardware: u16,
}

impl Filter {
    /// Of an array of `struct sock_filter`; `EINVAL` for what Linux refuses.
    pub fn new(bytes: &[u8], owner: Option<&Arc<Ucounts>>) -> Result<Filter> {
        if !bytes.len().is_multiple_of(INSN) || bytes.len() / INSN > MAX_INSNS {
            return Err(EINVAL);
        }
        let all = bytes.as_chunks::<INSN>().0.iter();
        let code: Box<[Insn]> = all.map(|b| Insn::from(*b)).collect();
        check(&code, is_known)?;
        let charge = match owner {
            Some(u) => {
                let charge = u.charge(Kind::Kmem, bytes.len() as u64, u64::MAX);
                Some(charge.ok_or(ENOMEM)?)
            }
            None => None,
        };
        Ok(Filter {
            code,
            _charge: charge,
        })
    }

    /// As it was given.
    pub fn bytes(&self) -> Vec<u8> {
        let one = |i: &Insn| <[u8; INSN]>::from(*i);
        self.code.iter().flat_map(one).collect()
    }

    /// How many bytes of the packet the socket gets; 0: none.
    pub fn run(&self, p: &Packet<'_>) -> u32 {
        run(&self.code, p.data.len() as u32, |i, a, x| {
            let absolute = i64::from(i.k as i32);
            let indirect = i64::from(x.wrapping_add(i.k) as i32);
            match i.code {
                LD_ABS => p.load(absolute, 4, a, x),
                LD_ABS_HALF => p.load(absolute, 2, a, x),
                LD_ABS_BYTE => p.load(absolute, 1, a, x),
                LD_IND => p.load(indirect, 4, a, x),
                LD_IND_HALF => p.load(indirect, 2, a, x),
                LD_IND_BYTE => p.load(indirect, 1, a, x),
                // LDX_MSH: the length of an IP header.
                _ => Some((p.load(absolute, 1, a, x)? & 15) << 2),
            }
        })
    }
}

/// Whether there is such an instruction (`chk_code_allowed`).
fn is_known(i: &Insn) -> bool {
    match i.code {
        LD_ABS | LD_ABS_HALF | LD_ABS_BYTE => {
            // What lies between the extensions' numbers is nothing.
            let ad = i64::from(i.k as i32) - AD_OFF;
            !(0..0x1000).contains(&ad) || ad <= 60 && ad % 4 == 0
        }
        LD_IND | LD_IND_HALF | LD_IND_BYTE | LDX_MSH => true,
        LD_LEN | LDX_LEN | LD_IMM | LDX_IMM | LD_MEM | LDX_MEM | ST | STX => true,
        TAX | TXA | RET_K | RET_A | JA => true,
        c if c & 7 == 4 => c >> 4 <= 0xa && c != 0x8c,
        c if c & 7 == 5 => matches!(c & 0xfff0, 0x10 | 0x20 | 0x30 | 0x40),
        _ => false,
    }
}

impl<'a> Packet<'a> {
    /// Of what comes by no device.
    pub fn without_device(data: &'a [u8]) -> Packet<'a> {
        Packet {
            data,
            frame: data,
            network: 0,
            protocol: 0,
            kind: 0,
            device: 0,
            hardware: 0,
        }
    }

    fn load(&self, at: i64, size: usize, a: u32, x: u32) -> Option<u32> {
        let (from, at) = match at {
            0.. => (self.data, at),
            AD_OFF..0 => return self.extension(at - AD_OFF, a, x),
            NET_OFF..AD_OFF => (self.frame.get(self.network..)?, at - NET_OFF),
            LL_OFF..NET_OFF => (self.frame, at - LL_OFF),
            _ => return None,
        };
        let at = usize::try_from(at).ok()?;
        let b = from.get(at..at.checked_add(size)?)?;
        Some(b.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
    }

    /// `SKF_AD_*`.
    fn extension(&self, which: i64, a: u32, x: u32) -> Option<u32> {
        Some(match which {
            0 => u32::from(self.protocol),
            4 => u32::from(self.kind),
            8 | 28 if self.device == 0 => return None,
            8 => self.device as u32,
            28 => u32::from(self.hardware),
            40 => a ^ x,
            52 => self.network as u32,
            // As `prandom_u32`: nobody's secret, and cheap, for a program may ask thousands of
            // times for one packet.
            56 => fastrand::u32(..),
            // Marks, queues, processors and VLAN tags: none.
            _ => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(code: &[(u16, u8, u8, u32)]) -> Vec<u8> {
        let of = |(code, jt, jf, k): &(u16, u8, u8, u32)| {
            [&code.to_le_bytes()[..], &[*jt, *jf], &k.to_le_bytes()].concat()
        };
        code.iter().flat_map(of).collect()
    }

    fn packet(frame: &[u8]) -> Packet<'_> {
        Packet {
            data: frame,
            frame,
            network: 14,
            protocol: 0x800,
            kind: 4,
            device: 7,
            hardware: 1,
        }
    }

    #[test]
    fn a_port_is_compared() {
        // tcpdump -d "udp port 68" for IPv4, shortened.
        let code = program(&[
            (0x28, 0, 0, 12),
            (0x15, 0, 6, 0x800),
            (0x30, 0, 0, 23),
            (0x15, 0, 4, 17),
            (0xb1, 0, 0, 14),
            (0x48, 0, 0, 16),
            (0x15, 0, 1, 68),
            (0x06, 0, 0, 262_144),
            (0x06, 0, 0, 0),
        ]);
        let f = Filter::new(&code, None).unwrap();
        let mut frame = vec![0; 60];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[23] = 17;
        frame[37] = 68;
        assert_eq!(f.run(&packet(&frame)), 262_144);
        frame[37] = 67;
        assert_eq!(f.run(&packet(&frame)), 0);
        // What lies beyond the packet is never read.
        assert_eq!(f.run(&packet(&frame[..20])), 0);
    }

    #[test]
    fn extensions_tell_of_the_frame() {
        let of = |n: i64| {
            let code = program(&[(0x20, 0, 0, (AD_OFF + n) as i32 as u32), (0x16, 0, 0, 0)]);
            Filter::new(&code, None).map(|f| f.run(&packet(&[0; 60])))
        };
        assert_eq!(of(0), Ok(0x800));
        assert_eq!(of(4), Ok(4));
        assert_eq!(of(8), Ok(7));
        assert_eq!(of(48), Ok(0));
        assert_eq!(of(64), Err(EINVAL));
    }

    #[test]
    fn chance_differs() {
        let load = (0x20, 0, 0, (AD_OFF + 56) as i32 as u32);
        let chance = Filter::new(&program(&[load, (0x16, 0, 0, 0)]), None).unwrap();
        assert_ne!(chance.run(&packet(&[0; 60])), chance.run(&packet(&[0; 60])));
    }

    proptest::proptest! {
        /// Whatever an application says ends, and touches nothing.
        #[test]
        fn any_program_ends(
            code in proptest::collection::vec(
                (0u16..0x100, 0u8..6, 0u8..6, proptest::prelude::any::<u32>()), 1..30),
            small in proptest::collection::vec(0u32..20, 30),
            frame in proptest::collection::vec(proptest::prelude::any::<u8>(), 14..80),
        ) {
            // Numbers that programs have, and some that they do not.
            let mut code = code;
            for (i, n) in code.iter_mut().zip(small) {
                if n > 4 {
                    i.3 = n;
                }
            }
            code.push((0x16, 0, 0, 0));
            if let Ok(f) = Filter::new(&program(&code), None) {
                f.run(&packet(&frame));
            }
        }
    }

    #[test]
    fn what_linux_refuses() {
        for bad in [
            &[(0x06u16, 0u8, 0u8, 1u32), (0x00, 0, 0, 0)][..],
            &[(0x05, 0, 0, 1), (0x06, 0, 0, 0)],
            &[(0x15, 0, 2, 1), (0x06, 0, 0, 0)],
            &[(0x60, 0, 0, 3), (0x16, 0, 0, 0)],
            &[(0x34, 0, 0, 0), (0x06, 0, 0, 0)],
            &[(0x64, 0, 0, 32), (0x06, 0, 0, 0)],
            &[(0xb4, 0, 0, 1), (0x06, 0, 0, 0)],
            &[(0x02, 0, 0, 16), (0x06, 0, 0, 0)],
            &[(0xffff, 0, 0, 0), (0x06, 0, 0, 0)],
        ] {
            assert!(Filter::new(&program(bad), None).is_err(), "{bad:?}");
        }
        assert!(Filter::new(&[], None).is_err());
    }
}
