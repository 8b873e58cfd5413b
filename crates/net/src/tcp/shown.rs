//! Connections inside as packet sockets see them: segments are made where somebody looks
//! ([`crate::loopback`]). Acknowledgements follow at once.

use super::Connection;
use crate::addr::Endpoint;
use crate::ns::NetNamespace;
use crate::stream::{End, Half};
use abi::Result;
use hostcall::MemSlice;
use std::sync::atomic::Ordering;
use vfs::Source;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
/// The most bytes of a segment on this device.
const MSS: usize = 65_483;

/// Where a direction is, in sequence numbers. What was written while nobody looked does not count.
fn at(half: &Half) -> u32 {
    let first = (half.reader.ino as u32).wrapping_mul(0x9e37_79b1);
    first.wrapping_add(half.shown.load(Ordering::Relaxed))
}

fn goes_on(half: &Half, n: usize) {
    half.shown.fetch_add(n as u32, Ordering::Relaxed);
}

impl Connection {
    /// Who connects has been let in.
    pub(super) fn show_handshake(&self, ns: &NetNamespace) {
        if !ns.taps.is_used() {
            return;
        }
        let (out, back) = ((self.local, self.remote), (self.remote, self.local));
        ns.loop_tcp(out, (at(&self.tx), 0), SYN, &[]);
        goes_on(&self.tx, 1);
        ns.loop_tcp(back, (at(&self.rx), at(&self.tx)), SYN | ACK, &[]);
        goes_on(&self.rx, 1);
        ns.loop_tcp(out, (at(&self.tx), at(&self.rx)), ACK, &[]);
    }

    fn show_bytes(&self, ns: &NetNamespace, data: &[u8]) {
        let (out, back) = ((self.local, self.remote), (self.remote, self.local));
        for piece in data.chunks(MSS) {
            ns.loop_tcp(out, (at(&self.tx), at(&self.rx)), PSH | ACK, piece);
            goes_on(&self.tx, piece.len());
        }
        ns.loop_tcp(back, (at(&self.rx), at(&self.tx)), ACK, &[]);
    }

    /// This end says that it is done, or resets.
    pub(super) fn show_end(&self, ns: &NetNamespace, end: End) {
        if !ns.taps.is_used() || self.tx.ends().end != End::Open {
            return;
        }
        let (out, back) = ((self.local, self.remote), (self.remote, self.local));
        let flags = if end == End::Reset { RST } else { FIN };
        ns.loop_tcp(out, (at(&self.tx), at(&self.rx)), flags | ACK, &[]);
        if end != End::Reset {
            goes_on(&self.tx, 1);
            ns.loop_tcp(back, (at(&self.rx), at(&self.tx)), ACK, &[]);
        }
    }
}

/// Nobody listens there.
pub(super) fn show_refusal(ns: &NetNamespace, local: Endpoint, remote: Endpoint) {
    if ns.taps.is_used() {
        ns.loop_tcp((local, remote), (1, 0), SYN, &[]);
        ns.loop_tcp((remote, local), (0, 2), RST | ACK, &[]);
    }
}

/// Drains a source; gives the bytes that went, too.
pub(super) fn drain_seen(
    src: &mut dyn Source,
    max: usize,
    drain: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
) -> Result<(usize, Vec<u8>)> {
    let mut seen = Vec::new();
    let n = src.drain(max, &mut |from| {
        let n = drain(from)?;
        let mut left = n;
        for m in from {
            let mut b = vec![0; m.len().min(left)];
            m.copy_to(&mut b);
            left -= b.len();
            seen.extend_from_slice(&b);
        }
        Ok(n)
    })?;
    Ok((n, seen))
}

/// A source that shows what is taken of it.
pub(super) struct Shown<'a, 'b> {
    pub ns: &'a NetNamespace,
    pub connection: &'a Connection,
    pub inner: &'b mut dyn Source,
}

impl Source for Shown<'_, '_> {
    fn remaining(&self) -> usize {
        self.inner.remaining()
    }
    fn take(&mut self, dst: &mut [u8]) -> Result<usize> {
        let n = self.inner.take(dst)?;
        self.connection.show_bytes(self.ns, &dst[..n]);
        Ok(n)
    }
    fn drain(
        &mut self,
        max: usize,
        drain: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        let (n, seen) = drain_seen(self.inner, max, drain)?;
        self.connection.show_bytes(self.ns, &seen);
        Ok(n)
    }
}
