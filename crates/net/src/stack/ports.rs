//! The devices: where the frames of each go, and packet sockets that look on.
//!
//! # What holds
//!
//! A frame that a program made (AF_PACKET) leaves by a device of the host's only if it speaks for
//! this host: with the device's own address, and with addresses of this host where it names some.
//! All others are counted and lost, as on a port that is guarded. Where there are rules for what
//! may leave ([`super::gate`]), none does.

use super::Stack;
use super::gate::Gate;
use super::links::{Links, List, Taken};
use crate::interface::Interface;
use crate::taps::{At, Taps, Way};
use abi::Result;
use abi::errno::{EACCES, ENOBUFS};
use bytes::Bytes;
use hostcall::HostFd;
use hostcall::packet::Bell;
use netstack::ip::{FrameMeta, Link, Sent};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use wait::lead::Worked;

/// A device that a program made, as the stack sends by it.
pub(crate) trait Made: Send + Sync {
    /// As packet sockets are told of it.
    fn at(&self) -> At;
    /// Takes a frame out by it. Where there is no room now, `Full`; where nobody is there, it is
    /// lost.
    fn send(&self, meta: &FrameMeta, frame: &Bytes) -> Sent;
}

/// See the module.
pub(super) struct Ports {
    /// Those of the host.
    links: Links,
    /// Those that programs made, by their indices.
    made: RwLock<HashMap<u32, Arc<dyn Made>>>,
    taps: Arc<Taps>,
    gate: Arc<Gate>,
}

impl Ports {
    pub fn new(taps: Arc<Taps>, gate: Arc<Gate>) -> Ports {
        Ports {
            links: Links::default(),
            made: RwLock::default(),
            taps,
            gate,
        }
    }

    /// Those of the host.
    pub fn taken(&self) -> List {
        self.links.all()
    }

    /// One more of the host's, by its index there. `ENOSPC` where there are too many.
    pub fn add(&self, host: u32, at: At, socket: HostFd) -> Result<()> {
        self.links.add(host, at, socket)
    }

    /// One of the host's has another socket, by its index there.
    pub fn renew(&self, host: u32, socket: HostFd) {
        self.links.renew(host, socket);
    }

    /// One of the host's has gone, by its index there.
    pub fn remove(&self, host: u32) {
        self.links.remove(host);
    }

    pub fn set(&self, made: HashMap<u32, Arc<dyn Made>>) {
        // Devices are dropped without the lock.
        let old = std::mem::replace(&mut *self.made.write(), made);
        drop(old);
    }

    /// Gives frames that have come by a device of the host to `frame`, with its index; so many at
    /// most.
    pub fn receive(
        &self,
        device: &Taken,
        most: usize,
        mut frame: impl FnMut(u32, &FrameMeta, Bytes),
    ) -> Worked {
        let at = device.at;
        device.receive(most, |meta, bytes| {
            self.taps.frame(at, Way::In, meta, &[&bytes]);
            frame(at.device as u32, meta, bytes);
        })
    }

    /// Waits until a frame has come by one of the host's, or the bell is rung.
    pub fn wait(&self, bell: &Bell, most: Option<Duration>) {
        self.links.wait(bell, most);
    }

    /// Whether a device is one of the host's.
    pub fn is_taken(&self, index: u32) -> bool {
        self.links.has(index)
    }

    fn made_at(&self, index: u32) -> Option<Arc<dyn Made>> {
        self.made.read().get(&index).cloned()
    }
}

impl Link for Ports {
    fn send(&self, device: u32, meta: &FrameMeta, parts: &[&[u8]]) -> Sent {
        if let Some(taken) = self.links.at(device) {
            self.taps.frame(taken.at, Way::Out, meta, parts);
            return taken.send(meta, parts);
        }
        let Some(d) = self.made_at(device) else {
            return Sent::Yes;
        };
        self.taps.frame(d.at(), Way::Out, meta, parts);
        d.send(meta, &parts.concat().into())
    }

    fn looped(&self, meta: &FrameMeta, frame: &[u8]) {
        for way in [Way::Out, Way::In] {
            self.taps.frame(At::LOOPBACK, way, meta, &[frame]);
        }
    }

    fn denies(&self, packet: &[u8]) -> bool {
        self.gate.is_on() && egress::packet::of_whole(packet).is_none_or(|to| self.gate.denies(to))
    }

    fn permits(&self, packet: &[u8]) -> bool {
        if !self.gate.is_on() {
            return true;
        }
        let found = egress::packet::of_whole(packet);
        let to = found.map_or(Ipv4Addr::UNSPECIFIED.into(), |to| to.ip);
        self.gate.packet(to, found).is_ok()
    }
}

impl Stack {
    /// Sends a frame that the packet socket `by` made.
    pub fn send_frame(&self, i: &Interface, by: u64, frame: &[u8]) -> Result<()> {
        let (meta, index) = (FrameMeta::default(), i.index as u32);
        let ports = &self.ports;
        let sent = if let Some(taken) = ports.links.at(index) {
            if self.gate.is_on() {
                self.ip.dropped(index);
                return Err(EACCES);
            }
            ports.taps.frame(taken.at, Way::By(by), &meta, &[frame]);
            let is_ours = |ip: IpAddr| ip.is_unspecified() || self.ip.is_local(ip);
            if !speaks_for(frame, taken.at.mac, is_ours) {
                self.ip.dropped(index);
                return Ok(());
            }
            taken.send(&meta, &[frame])
        } else if let Some(d) = ports.made_at(index) {
            ports.taps.frame(d.at(), Way::By(by), &meta, &[frame]);
            d.send(&meta, &Bytes::copy_from_slice(frame))
        } else {
            return Ok(());
        };
        match sent {
            Sent::Yes => {
                self.ip.sent(index, frame.len());
                Ok(())
            }
            Sent::Full => Err(ENOBUFS),
        }
    }
}

/// Whether a frame says of nobody else that he sent it.
fn speaks_for(frame: &[u8], mac: [u8; 6], is_ours: impl Fn(IpAddr) -> bool) -> bool {
    let Some(([_, _, _, _, _, _, from @ .., a, b], body)) = frame.split_first_chunk::<14>() else {
        return false;
    };
    if *from != mac {
        return false;
    }
    match u16::from_be_bytes([*a, *b]) {
        0x0800 => {
            let source: Option<[u8; 4]> = body.get(12..16).and_then(|b| b.try_into().ok());
            source.is_some_and(|s| is_ours(Ipv4Addr::from(s).into()))
        }
        0x86dd => {
            let source: Option<[u8; 16]> = body.get(8..24).and_then(|b| b.try_into().ok());
            source.is_some_and(|s| is_ours(Ipv6Addr::from(s).into()))
        }
        // ARP of Ethernet and IPv4: who is said to ask or answer.
        0x0806 => match body {
            [0, 1, 8, 0, 6, 4, _, _, rest @ ..] if rest.len() >= 10 => {
                let source = Ipv4Addr::new(rest[6], rest[7], rest[8], rest[9]);
                rest[..6] == mac && is_ours(source.into())
            }
            _ => false,
        },
        // For experiments on a link (IEEE 802). Tags could hide anything behind them.
        0x88b5 | 0x88b6 => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn speaks(from: [u8; 6], kind: u16, body: &[u8]) -> bool {
        let frame = [&[0xff; 6][..], &from, &kind.to_be_bytes(), body].concat();
        speaks_for(&frame, MAC, |ip| {
            ip.is_unspecified() || ip == IpAddr::V4(OURS)
        })
    }

    fn ip(source: Ipv4Addr) -> Vec<u8> {
        let mut p = vec![0x45; 20];
        p[12..16].copy_from_slice(&source.octets());
        p
    }

    fn arp(mac: [u8; 6], source: Ipv4Addr) -> Vec<u8> {
        let mut p = vec![0, 1, 8, 0, 6, 4, 0, 1];
        p.extend_from_slice(&mac);
        p.extend_from_slice(&source.octets());
        p.resize(28, 0);
        p
    }

    #[test]
    fn who_speaks_for_others_is_not_heard() {
        let other = Ipv4Addr::new(10, 0, 0, 3);
        assert!(speaks(MAC, 0x800, &ip(OURS)));
        assert!(speaks(MAC, 0x800, &ip(Ipv4Addr::UNSPECIFIED)));
        assert!(!speaks(MAC, 0x800, &ip(other)));
        assert!(!speaks([2; 6], 0x800, &ip(OURS)));
        assert!(!speaks(MAC, 0x800, &[0x45]));
        assert!(speaks(MAC, 0x806, &arp(MAC, OURS)));
        assert!(!speaks(MAC, 0x806, &arp(MAC, other)));
        assert!(!speaks(MAC, 0x806, &arp([2; 6], OURS)));
        assert!(!speaks(MAC, 0x8100, &[0, 1, 8, 0]));
        assert!(!speaks(MAC, 0x86dd, &[0x60; 40]));
    }
}
