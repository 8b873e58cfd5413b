//! A bridge: frames go where their address was last seen, or to all ports.
//!
//! # What holds
//!
//! - At most [`MOST`] addresses are known. Those that were not seen for five minutes make room for
//!   others, once a second at most: frames for an address that is not known go to all ports.
//! - A port is no bridge, so a frame passes one bridge and ends in an inbox.

use super::device::Device;
use crate::clock::now;
use crate::taps::Way;
use bytes::Bytes;
use netstack::ip::FrameMeta;
use netstack::time::Instant;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

const MOST: usize = 4096;
/// `ageing_time`.
const AGE: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Default)]
pub(crate) struct Bridge {
    ports: RwLock<Arc<Vec<Weak<Device>>>>,
    /// Whether it ever had one: until then it has a carrier of its own.
    used: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    all: HashMap<[u8; 6], Known>,
    /// When it was looked for old ones.
    swept: Instant,
}

/// Where an address was seen.
struct Known {
    port: Weak<Device>,
    at: Instant,
}

impl Bridge {
    pub fn ports(&self) -> Vec<Arc<Device>> {
        let all = self.ports.read().clone();
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether it has no port, and never had one.
    pub fn is_unused(&self) -> bool {
        !self.used.load(Ordering::Relaxed)
    }

    pub fn add(&self, port: &Arc<Device>) {
        self.used.store(true, Ordering::Relaxed);
        let mut all = self.ports.write();
        Arc::make_mut(&mut *all).push(Arc::downgrade(port));
    }

    pub fn remove(&self, port: &Device) {
        let is_it = |w: &Weak<Device>| std::ptr::eq(w.as_ptr(), port);
        let mut all = self.ports.write();
        Arc::make_mut(&mut *all).retain(|w| !is_it(w) && w.strong_count() > 0);
        drop(all);
        self.seen.lock().all.retain(|_, k| !is_it(&k.port));
    }

    /// The addresses that were seen, with the indices of their ports.
    pub fn known(&self) -> Vec<([u8; 6], i32)> {
        let now = now();
        let seen = self.seen.lock();
        let fresh = seen.all.iter().filter(|(_, k)| now.since(k.at) < AGE);
        fresh
            .filter_map(|(mac, k)| Some((*mac, k.port.upgrade()?.place().index)))
            .collect()
    }

    fn learn(&self, now: Instant, mac: [u8; 6], port: &Device) {
        if mac[0] & 1 == 1 || mac == [0; 6] {
            return;
        }
        let mut seen = self.seen.lock();
        if let Some(k) = seen.all.get_mut(&mac) {
            k.at = now;
            if !std::ptr::eq(k.port.as_ptr(), port) {
                k.port = port.weak();
            }
            return;
        }
        if seen.all.len() >= MOST {
            if now.since(seen.swept) >= Duration::from_secs(1) {
                seen.swept = now;
                seen.all.retain(|_, k| now.since(k.at) < AGE);
            }
            if seen.all.len() >= MOST {
                return;
            }
        }
        let port = port.weak();
        seen.all.insert(mac, Known { port, at: now });
    }

    fn port_of(&self, now: Instant, mac: [u8; 6]) -> Option<Arc<Device>> {
        let seen = self.seen.lock();
        let known = seen.all.get(&mac).filter(|k| now.since(k.at) < AGE)?;
        known.port.upgrade()
    }

    /// Takes a frame out by the ports that lead to its address, but not back by `from`.
    pub fn forward(&self, from: Option<&Device>, meta: &FrameMeta, frame: &Bytes) {
        let Some(to) = frame.first_chunk::<6>() else {
            return;
        };
        let is_back = |p: &Arc<Device>| from.is_some_and(|f| std::ptr::eq(f, &raw const **p));
        let one = if to[0] & 1 == 1 {
            None
        } else {
            self.port_of(now(), *to)
        };
        if let Some(port) = one {
            if !is_back(&port) {
                port.pass(meta, frame);
            }
            return;
        }
        for port in self.ports().iter().filter(|p| !is_back(p)) {
            port.pass(meta, frame);
        }
    }

    /// A frame comes by a port of `bridge`.
    pub fn input(
        &self,
        bridge: &Device,
        port: &Device,
        now: Instant,
        meta: &FrameMeta,
        frame: Bytes,
    ) {
        let place = bridge.place();
        if !place.up || frame.len() < 14 {
            return;
        }
        let (mut to, mut from) = ([0; 6], [0; 6]);
        to.copy_from_slice(&frame[..6]);
        from.copy_from_slice(&frame[6..12]);
        self.learn(now, from, port);
        // Bridges' own (802.1D): not for others.
        if to[..5] == [1, 0x80, 0xc2, 0, 0] && to[5] <= 15 {
            return;
        }
        let for_us = to == place.mac;
        if !for_us {
            self.forward(Some(port), meta, &frame);
        }
        if for_us || to[0] & 1 == 1 {
            let Some(ns) = place.ns.upgrade() else {
                return;
            };
            ns.taps.frame(place.at(), Way::In, meta, &[&frame]);
            if let Some(stack) = ns.stack() {
                stack.receive(now, place.index, meta, frame);
            }
        }
    }
}
