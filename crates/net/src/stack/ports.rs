//! The devices: where the frames of each go, and packet sockets that look on.
//!
//! # What holds
//!
//! A frame that a program made (AF_PACKET) leaves by a device of the host's only if it speaks for
//! this host: with the device's own address, and with addresses of this host where it names some.
//! All others are counted and lost, as on a port that is guarded.

use super::Stack;
use super::links::Links;
use crate::interface::Interface;
use crate::packet::{At, ETHERNET, Taps, Way};
use abi::Result;
use abi::errno::ENOBUFS;
use bytes::Bytes;
use netstack::ip::{FrameMeta, Link, Sent};
use netstack::setup::Setup;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// See the module.
pub(super) struct Ports {
    links: Links,
    /// In the order of the setup's devices.
    at: Vec<At>,
    taps: Arc<Taps>,
}

impl Ports {
    pub fn new(setup: &Setup, links: Links, taps: Arc<Taps>) -> Ports {
        let at = setup.devices.iter().map(|d| At {
            device: d.index as i32,
            hardware: ETHERNET,
            mac: d.mac,
        });
        Ports {
            links,
            at: at.collect(),
            taps,
        }
    }

    /// Gives all frames that come by a device to `frame`, for ever.
    pub fn serve(&self, device: usize, mut frame: impl FnMut(&FrameMeta, Bytes)) -> ! {
        self.links.serve(device, |meta, bytes| {
            self.taps.frame(self.at[device], Way::In, meta, &[&bytes]);
            frame(meta, bytes);
        })
    }
}

impl Link for Ports {
    fn send(&self, device: usize, meta: &FrameMeta, parts: &[&[u8]]) -> Sent {
        if let Some(at) = self.at.get(device) {
            self.taps.frame(*at, Way::Out, meta, parts);
        }
        self.links.send(device, meta, parts)
    }
}

impl Stack {
    /// Sends a frame that the packet socket `by` made.
    pub fn send_frame(&self, i: &Interface, by: u64, frame: &[u8]) -> Result<()> {
        let Some(device) = self.ports.at.iter().position(|at| at.device == i.index) else {
            return Ok(());
        };
        let meta = FrameMeta::default();
        let at = self.ports.at[device];
        self.ports.taps.frame(at, Way::By(by), &meta, &[frame]);
        let is_ours = |ip: IpAddr| ip.is_unspecified() || self.ip.is_local(ip);
        if !speaks_for(frame, at.mac, is_ours) {
            self.ip.dropped(i.index as u32);
            return Ok(());
        }
        match self.ports.links.send(device, &meta, &[frame]) {
            Sent::Yes => {
                self.ip.sent(i.index as u32, frame.len());
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
