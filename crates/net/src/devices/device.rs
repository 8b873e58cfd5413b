//! A device, and its frames: those that wait to come in, and where those go that leave.
//!
//! # What holds
//!
//! - Who sends leaves a frame in the inbox of who gets it, and goes on: nobody works in another
//!   namespace's stack, no two devices' locks are held at once, and nothing recurs. Only who writes
//!   to a tun device works in that device's namespace, on his thread.
//! - An inbox is bounded, in frames and bytes, and charged to who made the device. What finds no
//!   room is not taken.
//! - The worker takes a few frames of a device, then the next device's ([`crate::work`]).

use super::bridge::Bridge;
use super::tun::{Layer, Tun};
use crate::interface::{ETHERNET, NO_HEADER};
use crate::ns::NetNamespace;
use crate::stack::Made;
use crate::taps::{At, Way};
use crate::work::{Job, Next, Ticket, Worker};
use bytes::Bytes;
use netstack::ip::{FrameMeta, Sent};
use netstack::time::Instant;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use vfs::ucounts::{Charge, Kind as Counted, Ucounts};

/// Frames and bytes that wait (`net.core.netdev_max_backlog`).
const MOST_FRAMES: usize = 1000;
const MOST_BYTES: usize = 4 << 20;
/// What a waiting frame costs beyond its bytes.
const OVERHEAD: usize = 256;
/// What a device costs.
const DEVICE: u64 = 8 << 10;
/// Frames and bytes of one turn.
const TURN: usize = 64;
const TURN_BYTES: usize = 512 << 10;
/// A turn ends behind the frame that takes longer: rules are programs'.
const TURN_TIME: Duration = Duration::from_millis(1);
const ETHERNET_HEADER: usize = 14;

/// What a device does with frames.
pub(crate) enum Kind {
    /// Joined in memory: no frames.
    Loopback,
    /// One of the host's, which the stack serves.
    Taken,
    /// Nobody is there.
    Dummy,
    /// Its other end.
    Veth(OnceLock<Weak<Device>>),
    Bridge(Bridge),
    Tun(Tun),
}

/// A device.
pub(crate) struct Device {
    pub kind: Kind,
    place: RwLock<Place>,
    inbox: Mutex<Inbox>,
    /// Its other end has gone.
    pub orphaned: AtomicBool,
    me: Weak<Device>,
    worker: Arc<Worker>,
    ticket: Ticket,
    _charge: Option<Charge>,
}

/// Where a device is, as its frames need it. The namespace's table says it, and is changed first.
#[derive(Clone)]
pub(crate) struct Place {
    pub ns: Weak<NetNamespace>,
    pub index: i32,
    pub mac: [u8; 6],
    pub mtu: u32,
    pub up: bool,
    /// The bridge that it is a port of.
    pub bridge: Option<Weak<Device>>,
    /// `ARPHRD_*`.
    pub hardware: u16,
}

struct Inbox {
    frames: VecDeque<(FrameMeta, Bytes)>,
    bytes: usize,
    memory: Option<Charge>,
}

impl Place {
    pub fn at(&self) -> At {
        At {
            device: self.index,
            hardware: self.hardware,
            mac: self.mac,
        }
    }
}

impl Device {
    /// `None` where its maker may have no more of the kernel's memory.
    pub fn new(
        ns: &Arc<NetNamespace>,
        kind: Kind,
        index: i32,
        mac: [u8; 6],
        owner: Option<&Arc<Ucounts>>,
    ) -> Option<Arc<Device>> {
        let charge = match owner {
            Some(u) => Some(u.charge(Counted::Kmem, DEVICE, u64::MAX)?),
            None => None,
        };
        let hardware = match &kind {
            Kind::Tun(t) if t.layer == Layer::Ip => NO_HEADER,
            _ => ETHERNET,
        };
        Some(Arc::new_cyclic(|me| Device {
            kind,
            place: RwLock::new(Place {
                ns: Arc::downgrade(ns),
                index,
                mac,
                mtu: 1500,
                up: false,
                bridge: None,
                hardware,
            }),
            inbox: Mutex::new(Inbox {
                frames: VecDeque::new(),
                bytes: 0,
                memory: owner.map(|u| u.force(Counted::Kmem, 0)),
            }),
            orphaned: AtomicBool::new(false),
            me: me.clone(),
            worker: ns.worker.clone(),
            ticket: Ticket::default(),
            _charge: charge,
        }))
    }

    pub fn place(&self) -> Place {
        self.place.read().clone()
    }

    pub fn set_place(&self, change: impl FnOnce(&mut Place)) {
        change(&mut self.place.write());
    }

    pub fn weak(&self) -> Weak<Device> {
        self.me.clone()
    }

    pub fn is_up(&self) -> bool {
        self.place.read().up
    }

    pub fn name_of_kind(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Loopback | Kind::Taken => None,
            Kind::Dummy => Some("dummy"),
            Kind::Veth(_) => Some("veth"),
            Kind::Bridge(_) => Some("bridge"),
            Kind::Tun(_) => Some("tun"),
        }
    }

    /// Whether its state is not known, as Linux says of what has no link (`IF_OPER_UNKNOWN`).
    pub fn is_linkless(&self) -> bool {
        match &self.kind {
            Kind::Loopback | Kind::Dummy => true,
            Kind::Tun(t) => t.is_attached(),
            Kind::Bridge(b) => b.is_unused(),
            _ => false,
        }
    }

    /// A veth's other end.
    pub fn peer(&self) -> Option<Arc<Device>> {
        match &self.kind {
            Kind::Veth(peer) => peer.get()?.upgrade(),
            _ => None,
        }
    }

    /// Whether frames would pass.
    pub fn has_carrier(&self) -> bool {
        match &self.kind {
            Kind::Veth(_) => self.is_up() && self.peer().is_some_and(|p| p.is_up()),
            Kind::Tun(t) => t.is_attached(),
            Kind::Bridge(b) => b.is_unused() || b.ports().iter().any(|p| p.has_carrier()),
            _ => true,
        }
    }

    /// Takes a frame out that another device brought ([`Made::send`]): packet sockets see it here,
    /// too.
    pub fn pass(&self, meta: &FrameMeta, frame: &Bytes) {
        let place = self.place();
        // What is cut on the way is as small as its pieces.
        let whole = meta.gso_kind() == FrameMeta::GSO_NONE;
        if !place.up || whole && frame.len() > place.mtu as usize + ETHERNET_HEADER + 4 {
            return;
        }
        if let Some(ns) = place.ns.upgrade() {
            ns.taps.frame(place.at(), Way::Out, meta, &[frame]);
            ns.count_sent(place.index, frame.len());
        }
        // One that finds no room is lost.
        let _ = self.send(meta, frame);
    }

    /// A frame is left here for the worker.
    pub fn arrive(&self, meta: &FrameMeta, frame: &Bytes) -> Sent {
        let size = frame.len() + OVERHEAD;
        {
            let mut q = self.inbox.lock();
            if q.frames.len() >= MOST_FRAMES || q.bytes + size > MOST_BYTES {
                return Sent::Full;
            }
            let memory = q.memory.as_mut();
            if memory.is_some_and(|m| !m.grow(size as u64, u64::MAX)) {
                return Sent::Full;
            }
            q.bytes += size;
            q.frames.push_back((*meta, frame.clone()));
        }
        self.wake();
        Sent::Yes
    }

    /// Has the worker look at it.
    pub fn wake(&self) {
        if let Some(me) = self.me.upgrade() {
            let job: Arc<dyn Job> = me;
            self.worker.ready(&job);
        }
    }

    fn take(&self) -> Option<(FrameMeta, Bytes)> {
        let mut q = self.inbox.lock();
        let (meta, frame) = q.frames.pop_front()?;
        q.bytes -= frame.len() + OVERHEAD;
        let left = q.bytes as u64;
        if let Some(m) = &mut q.memory {
            m.set(left);
        }
        Some((meta, frame))
    }

    /// A frame comes in by this device, which is up.
    pub fn receive(&self, place: &Place, now: Instant, meta: &FrameMeta, frame: Bytes) {
        let Some(ns) = place.ns.upgrade() else {
            return;
        };
        ns.taps.frame(place.at(), Way::In, meta, &[&frame]);
        if let Some(bridge) = place.bridge.as_ref().and_then(Weak::upgrade)
            && let Kind::Bridge(b) = &bridge.kind
        {
            ns.count_received(place.index, frame.len());
            b.input(&bridge, self, now, meta, frame);
            return;
        }
        if let Some(stack) = ns.stack() {
            stack.receive(now, place.index, meta, frame);
        }
    }
}

impl Made for Device {
    fn at(&self) -> At {
        self.place().at()
    }

    fn send(&self, meta: &FrameMeta, frame: &Bytes) -> Sent {
        match &self.kind {
            Kind::Veth(_) if self.is_up() => match self.peer().filter(|p| p.is_up()) {
                Some(peer) => peer.arrive(meta, frame),
                None => Sent::Yes,
            },
            Kind::Bridge(b) => {
                b.forward(None, meta, frame);
                Sent::Yes
            }
            Kind::Tun(t) if self.is_up() => t.send(meta, frame),
            _ => Sent::Yes,
        }
    }
}

impl Job for Device {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    fn work(&self, now: Instant) -> Next {
        if self.orphaned.load(Ordering::Relaxed) {
            let place = self.place();
            if let Some(ns) = place.ns.upgrade() {
                ns.remove_orphan(place.index);
            }
            return Next::Nothing;
        }
        let mut bytes = 0;
        for _ in 0..TURN {
            let Some((meta, frame)) = self.take() else {
                return Next::Nothing;
            };
            bytes += frame.len();
            let place = self.place();
            if place.up {
                self.receive(&place, now, &meta, frame);
            }
            if bytes > TURN_BYTES || crate::clock::now().since(now) > TURN_TIME {
                break;
            }
        }
        Next::More
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The other end goes, too: the worker takes it out of its namespace.
        if let Some(peer) = self.peer() {
            peer.orphaned.store(true, Ordering::Relaxed);
            peer.wake();
        }
    }
}
