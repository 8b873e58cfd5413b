//! What targets share: a thread's area as its application may have left it; a host of packets.
#![forbid(unsafe_code)]

use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// Bytes that the application wrote into its thread's area, each somewhere.
#[derive(Arbitrary, Debug)]
pub struct Forged(Vec<(u16, Vec<u8>)>);

impl Forged {
    /// The area's bytes.
    pub fn area(&self) -> Vec<u8> {
        let mut area = vec![0; stub::AREA_LEN as usize];
        for (at, bytes) in &self.0 {
            let at = usize::from(*at) % area.len();
            let n = bytes.len().min(area.len() - at);
            area[at..at + n].copy_from_slice(&bytes[..n]);
        }
        area
    }
}

/// A host of packets: what is no loopback address is another's, and each device has any address.
pub struct Here;

impl netfilter::packet::Host for Here {
    fn kind_of(&self, ip: std::net::IpAddr) -> u8 {
        if ip.is_loopback() { 2 } else { 1 }
    }
    fn mtu_towards(&self, _: std::net::IpAddr) -> u32 {
        1400
    }
    fn address_on(&self, _: u32, to: std::net::IpAddr) -> Option<std::net::IpAddr> {
        Some(to)
    }
}
