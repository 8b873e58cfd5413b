//! Devices whose frames a program reads and writes (`/dev/net/tun`; Linux's
//! Documentation/networking/tuntap.rst): Ethernet frames (tap) or IP packets (tun).
//!
//! # What holds
//!
//! - What waits for a program is bounded, and its device's maker's memory. What finds no room is
//!   lost, as on a wire.
//! - A program gets whole packets with whole checksums: the stack makes no super-segments for these
//!   devices, and one that comes from another device is lost.
//! - What a program writes waits in the device's inbox as any frame does.

use super::device::{Device, Kind};
use super::links::{LinkRequest, NewKind};
use crate::ns::NetNamespace;
use abi::errno::{EAGAIN, EBADFD, EBUSY, EEXIST, EFAULT, EINVAL, EIO, ENOTTY, EPERM};
use abi::{Result, Va};
use bytes::Bytes;
use netstack::ip::{FrameMeta, Sent};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use vfs::file::IoctlContext;
use vfs::{Caps, File, FileOps, Sink, Source, Stat};
use wait::{Events, WaitQueue};

/// Frames and bytes that wait for a program (`TUN_READQ_SIZE`).
const MOST_FRAMES: usize = 500;
const MOST_BYTES: usize = 2 << 20;
const ETHERNET: usize = 14;
/// The longest packet, with its link header and what a program says before it.
const LONGEST: usize = 65_535 + ETHERNET + PI;
/// `struct tun_pi`.
const PI: usize = 4;

const IFF_TUN: u16 = 1;
const IFF_TAP: u16 = 2;
const IFF_NO_PI: u16 = 0x1000;
const IFF_ONE_QUEUE: u16 = 0x2000;
const IFF_TUN_EXCL: u16 = 0x8000;

const TUNSETNOCSUM: u32 = 0x4004_54c8;
const TUNSETIFF: u32 = 0x4004_54ca;
const TUNSETPERSIST: u32 = 0x4004_54cb;
const TUNSETOWNER: u32 = 0x4004_54cc;
const TUNSETGROUP: u32 = 0x4004_54ce;
const TUNGETFEATURES: u32 = 0x8004_54cf;
const TUNSETOFFLOAD: u32 = 0x4004_54d0;
const TUNGETIFF: u32 = 0x8004_54d2;
const IFREQ: usize = 40;

/// What a program reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layer {
    Ethernet,
    Ip,
}

/// The part of a device that waits for its program.
pub(crate) struct Tun {
    pub layer: Layer,
    /// The program's file.
    reader: Mutex<Weak<Shared>>,
    queue: Mutex<Queue>,
    /// It stays when its program goes.
    persistent: AtomicBool,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Bytes>,
    bytes: usize,
}

/// What an open file and its device share.
#[derive(Default)]
struct Shared {
    queue: WaitQueue,
}

impl Tun {
    pub fn new(layer: Layer) -> Tun {
        Tun {
            layer,
            reader: Mutex::default(),
            queue: Mutex::default(),
            persistent: AtomicBool::new(false),
        }
    }

    pub fn is_attached(&self) -> bool {
        self.reader.lock().strong_count() > 0
    }

    /// A frame leaves by the device.
    pub fn send(&self, meta: &FrameMeta, frame: &Bytes) -> Sent {
        let reader = self.reader.lock().upgrade();
        let (Some(reader), FrameMeta::GSO_NONE) = (reader, meta.gso_kind()) else {
            return Sent::Yes;
        };
        let frame = finished(meta, frame);
        {
            let mut q = self.queue.lock();
            if q.frames.len() >= MOST_FRAMES || q.bytes + frame.len() > MOST_BYTES {
                return Sent::Yes;
            }
            q.bytes += frame.len();
            q.frames.push_back(frame);
        }
        reader.queue.notify(Events::READABLE);
        Sent::Yes
    }

    fn take(&self) -> Option<Bytes> {
        let mut q = self.queue.lock();
        let frame = q.frames.pop_front()?;
        q.bytes -= frame.len();
        Some(frame)
    }
}

/// A frame whose transport's checksum is whole.
fn finished(meta: &FrameMeta, frame: &Bytes) -> Bytes {
    let start = usize::from(meta.csum_start);
    let at = start + usize::from(meta.csum_offset);
    if meta.flags & FrameMeta::NEEDS_CSUM == 0 || at + 2 > frame.len() {
        return frame.clone();
    }
    let mut whole = frame.to_vec();
    let words = whole[start..].chunks(2);
    let mut sum: u64 = words
        .map(|w| u64::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // 0 would say that there is none.
    let sum = match !(sum as u16) {
        0 => 0xffff,
        n => n,
    };
    whole[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    whole.into()
}

/// An open `/dev/net/tun`.
pub struct TunFile {
    ns: Arc<NetNamespace>,
    shared: Arc<Shared>,
    at: Mutex<Option<Attached>>,
}

/// The device that it has.
#[derive(Clone)]
struct Attached {
    device: Arc<Device>,
    flags: u16,
}

impl Attached {
    fn tun(&self) -> Option<&Tun> {
        match &self.device.kind {
            Kind::Tun(t) => Some(t),
            _ => None,
        }
    }
}

impl TunFile {
    /// Opened in a namespace, where its device will be.
    #[must_use]
    pub fn open(ns: &Arc<NetNamespace>) -> Arc<TunFile> {
        Arc::new(TunFile {
            ns: ns.clone(),
            shared: Arc::default(),
            at: Mutex::default(),
        })
    }

    fn attached(&self) -> Result<Attached> {
        self.at.lock().clone().ok_or(EBADFD)
    }

    /// TUNSETIFF: makes a device, or takes one that nobody has.
    fn attach(&self, cx: &dyn IoctlContext, req: &mut [u8; IFREQ]) -> Result<()> {
        let mut at = self.at.lock();
        if at.is_some() {
            return Err(EEXIST);
        }
        let flags = u16::from_le_bytes([req[16], req[17]]);
        let layer = match flags & (IFF_TUN | IFF_TAP) {
            IFF_TUN => Layer::Ip,
            IFF_TAP => Layer::Ethernet,
            _ => return Err(EINVAL),
        };
        if flags & !(IFF_TUN | IFF_TAP | IFF_NO_PI | IFF_ONE_QUEUE | IFF_TUN_EXCL) != 0 {
            return Err(EINVAL);
        }
        let cred = cx.credentials();
        if !cred.has_in(&self.ns.user, Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        let end = req[..16].iter().position(|&b| b == 0).unwrap_or(15);
        let name = String::from_utf8(req[..end].to_vec()).map_err(|_| EINVAL)?;
        let index = match self.ns.device_by_name(name.as_bytes()) {
            Some(_) if flags & IFF_TUN_EXCL != 0 => return Err(EBUSY),
            Some(index) => index,
            None => {
                let wanted = LinkRequest {
                    name: Some(name).filter(|n| !n.is_empty()),
                    link_local: Some(layer == Layer::Ethernet),
                    queue: Some(500),
                    ..LinkRequest::default()
                };
                let kind = NewKind::Tun(layer);
                let owner = Some(cred.ucounts());
                self.ns
                    .add_link(kind, &wanted, &LinkRequest::default(), owner)?
            }
        };
        let i = self.ns.interface(index).ok_or(EINVAL)?;
        let device = self.ns.device(index).ok_or(EINVAL)?;
        let new = Attached { device, flags };
        let tun = new.tun().filter(|t| t.layer == layer).ok_or(EINVAL)?;
        {
            let mut reader = tun.reader.lock();
            if reader.strong_count() > 0 {
                return Err(EBUSY);
            }
            *reader = Arc::downgrade(&self.shared);
        }
        req[..16].fill(0);
        req[..i.name.len().min(15)].copy_from_slice(&i.name.as_bytes()[..i.name.len().min(15)]);
        *at = Some(new);
        drop(at);
        self.ns.tell_link(index);
        Ok(())
    }
}

impl FileOps for TunFile {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        let at = self.attached()?;
        let tun = at.tun().ok_or(EBADFD)?;
        let frame = tun.take().ok_or(EAGAIN)?;
        let kind = [frame[12], frame[13]];
        let data = match tun.layer {
            Layer::Ethernet => &frame[..],
            Layer::Ip => &frame[ETHERNET..],
        };
        let mut whole = Vec::new();
        if at.flags & IFF_NO_PI == 0 {
            const TUN_PKT_STRIP: u16 = 1;
            if dst.remaining() < PI {
                return Err(EINVAL);
            }
            let cut = PI + data.len() > dst.remaining();
            whole.extend_from_slice(&(if cut { TUN_PKT_STRIP } else { 0 }).to_le_bytes());
            whole.extend_from_slice(&kind);
        }
        whole.extend_from_slice(data);
        crate::msgqueue::put_all(dst, &whole)
    }

    fn write(&self, _: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        let at = self.attached()?;
        let tun = at.tun().ok_or(EBADFD)?;
        let place = at.device.place();
        if !place.up {
            return Err(EIO);
        }
        let n = src.remaining();
        let pi = if at.flags & IFF_NO_PI == 0 { PI } else { 0 };
        if n < pi
            + if tun.layer == Layer::Ethernet {
                ETHERNET
            } else {
                1
            }
            || n > LONGEST
        {
            return Err(EINVAL);
        }
        let mut data = vec![0; n];
        let mut done = 0;
        while done < n {
            match src.take(&mut data[done..])? {
                0 => return Err(EFAULT),
                k => done += k,
            }
        }
        let frame: Bytes = match tun.layer {
            Layer::Ethernet => Bytes::from(data).slice(pi..),
            Layer::Ip => {
                let kind = match (pi, data[pi] >> 4) {
                    (0, 4) => [8, 0],
                    (0, 6) => [0x86, 0xdd],
                    (0, _) => return Err(EINVAL),
                    _ => [data[2], data[3]],
                };
                [&[0; 12][..], &kind, &data[pi..]].concat().into()
            }
        };
        // One that finds no room is lost.
        let _ = at.device.arrive(&FrameMeta::default(), &frame);
        Ok(n)
    }

    fn poll(&self, _: &File, mask: Events) -> Events {
        let Ok(at) = self.attached() else {
            return Events::ERR;
        };
        let mut e = Events::WRITABLE;
        if at.tun().is_some_and(|t| !t.queue.lock().frames.is_empty()) {
            e |= Events::READABLE;
        }
        e & (mask | Events::ALWAYS)
    }

    fn signals_owner(&self) -> bool {
        true
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.shared.queue)
    }

    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        let va = Va(arg);
        match cmd {
            TUNGETFEATURES => {
                let known = u32::from(IFF_TUN | IFF_TAP | IFF_NO_PI | IFF_ONE_QUEUE);
                cx.copy_out(va, &known.to_le_bytes())?;
            }
            TUNSETIFF => {
                let mut req = [0; IFREQ];
                cx.copy_in(va, &mut req)?;
                self.attach(cx, &mut req)?;
                cx.copy_out(va, &req)?;
            }
            TUNGETIFF => {
                let at = self.attached()?;
                let i = self.ns.interface(at.device.place().index).ok_or(EBADFD)?;
                let mut req = [0; IFREQ];
                let n = i.name.len().min(15);
                req[..n].copy_from_slice(&i.name.as_bytes()[..n]);
                req[16..18].copy_from_slice(&at.flags.to_le_bytes());
                cx.copy_out(va, &req)?;
            }
            TUNSETPERSIST => {
                let at = self.attached()?;
                let tun = at.tun().ok_or(EBADFD)?;
                tun.persistent.store(arg != 0, Ordering::Relaxed);
            }
            // Who else may take it: those who may make it.
            TUNSETNOCSUM | TUNSETOWNER | TUNSETGROUP => drop(self.attached()?),
            TUNSETOFFLOAD => {
                self.attached()?;
                if arg != 0 {
                    return Err(EINVAL);
                }
            }
            _ => return Err(ENOTTY),
        }
        Ok(0)
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            mode: 0o020_666,
            nlink: 1,
            blksize: 4096,
            ..Stat::default()
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for TunFile {
    fn drop(&mut self) {
        let Some(at) = self.at.get_mut().take() else {
            return;
        };
        let Some(tun) = at.tun() else { return };
        *tun.reader.lock() = Weak::new();
        *tun.queue.lock() = Queue::default();
        // It may have gone to another namespace.
        let place = at.device.place();
        let Some(ns) = place.ns.upgrade() else { return };
        if tun.persistent.load(Ordering::Relaxed) {
            ns.tell_link(place.index);
        } else {
            ns.remove_orphan(place.index);
        }
    }
}
