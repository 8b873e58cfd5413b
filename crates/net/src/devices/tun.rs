//! Devices whose frames a program reads and writes (`/dev/net/tun`; Linux's
//! Documentation/networking/tuntap.rst): Ethernet frames (tap) or IP packets (tun).
//!
//! # What holds
//!
//! - What waits for a program is bounded, and its device's maker's memory. What finds no room is
//!   lost, as on a wire.
//! - A program gets super-segments and unfinished checksums only where it takes them
//!   (IFF_VNET_HDR and TUNSETOFFLOAD); else they are cut and made here ([`super::offload`]).
//! - What a program writes has come in when the call is over: it passes by the inbox, and is the
//!   writer's work.

use super::device::{Device, Kind};
use super::links::{LinkRequest, NewKind};
use super::offload;
use crate::ns::NetNamespace;
use abi::errno::{EAGAIN, EBADFD, EBUSY, EEXIST, EFAULT, EINVAL, EIO, ENOTTY, EPERM};
use abi::{Result, Va};
use bytes::Bytes;
use netstack::ip::{FrameMeta, Sent};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vfs::file::IoctlContext;
use vfs::{Caps, File, FileOps, Sink, Source, Stat};
use wait::{Events, WaitQueue};

/// Frames and bytes that wait for a program (`TUN_READQ_SIZE`).
const MOST_FRAMES: usize = 500;
const MOST_BYTES: usize = 2 << 20;
pub(super) const ETHERNET: usize = 14;
/// The longest packet, with its link header.
const LONGEST: usize = 65_535 + ETHERNET;
/// What a program may say that a `virtio_net_hdr` takes.
const HEADER_MAX: usize = 4096;
/// `struct tun_pi`.
const PI: usize = 4;

const IFF_TUN: u16 = 1;
const IFF_TAP: u16 = 2;
const IFF_NO_PI: u16 = 0x1000;
const IFF_ONE_QUEUE: u16 = 0x2000;
const IFF_VNET_HDR: u16 = 0x4000;
const IFF_TUN_EXCL: u16 = 0x8000;

const TUNSETNOCSUM: u32 = 0x4004_54c8;
const TUNSETIFF: u32 = 0x4004_54ca;
const TUNSETPERSIST: u32 = 0x4004_54cb;
const TUNSETOWNER: u32 = 0x4004_54cc;
const TUNSETGROUP: u32 = 0x4004_54ce;
const TUNGETFEATURES: u32 = 0x8004_54cf;
const TUNSETOFFLOAD: u32 = 0x4004_54d0;
const TUNGETIFF: u32 = 0x8004_54d2;
const TUNGETVNETHDRSZ: u32 = 0x8004_54d7;
const TUNSETVNETHDRSZ: u32 = 0x4004_54d8;
const TUNSETVNETLE: u32 = 0x4004_54dc;
const TUNGETVNETLE: u32 = 0x8004_54dd;

/// What a program takes (`TUN_F_*`).
const CSUM: u32 = 1;
const TSO: u32 = 2 | 4;
const TSO_ECN: u32 = 8;
const UFO: u32 = 0x10;
const USO: u32 = 0x20 | 0x40;
const IFREQ: usize = 40;

const FEATURES: u16 = IFF_TUN | IFF_TAP | IFF_NO_PI | IFF_ONE_QUEUE | IFF_VNET_HDR;

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
    /// The program says, and is told, of each packet what a `virtio_net_hdr` tells, in so many
    /// bytes.
    has_header: AtomicBool,
    header_len: AtomicUsize,
    /// It was asked for words of the little order.
    is_little: AtomicBool,
    /// `TUN_F_*`.
    takes: AtomicU32,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<(FrameMeta, Bytes)>,
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
            has_header: AtomicBool::new(false),
            header_len: AtomicUsize::new(FrameMeta::LEN),
            is_little: AtomicBool::new(false),
            takes: AtomicU32::new(0),
        }
    }

    /// What its program takes, and is told of.
    fn takes(&self) -> u32 {
        match self.has_header.load(Ordering::Relaxed) {
            true => self.takes.load(Ordering::Relaxed),
            false => 0,
        }
    }

    /// The longest super-segments that the stack may make for it: one size for all kinds.
    fn gso_max(&self) -> u32 {
        match self.takes() & TSO {
            TSO => 65_536,
            _ => 0,
        }
    }

    pub fn is_attached(&self) -> bool {
        self.reader.lock().strong_count() > 0
    }

    /// A frame leaves by the device.
    pub fn send(&self, meta: &FrameMeta, frame: &Bytes) -> Sent {
        let Some(reader) = self.reader.lock().upgrade() else {
            return Sent::Yes;
        };
        let takes = self.takes();
        let whole = FrameMeta::default();
        let cut = match meta.gso_kind() {
            FrameMeta::GSO_NONE => false,
            FrameMeta::GSO_TCPV4 | FrameMeta::GSO_TCPV6 => takes & TSO != TSO,
            _ => takes & USO != USO,
        };
        if cut {
            // As many as find room.
            let _ = offload::cut(meta, frame).try_for_each(|f| self.put(whole, f));
        } else if takes & CSUM == 0 {
            let _ = self.put(whole, offload::finished(meta, frame));
        } else {
            let _ = self.put(*meta, frame.clone());
        }
        reader.queue.notify(Events::READABLE);
        Sent::Yes
    }

    /// Has a frame wait for the program; `None` where there is no room.
    fn put(&self, meta: FrameMeta, frame: Bytes) -> Option<()> {
        let mut q = self.queue.lock();
        if q.frames.len() >= MOST_FRAMES || q.bytes + frame.len() > MOST_BYTES {
            return None;
        }
        q.bytes += frame.len();
        q.frames.push_back((meta, frame));
        Some(())
    }

    fn take(&self) -> Option<(FrameMeta, Bytes)> {
        let mut q = self.queue.lock();
        let (meta, frame) = q.frames.pop_front()?;
        q.bytes -= frame.len();
        Some((meta, frame))
    }
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
    fn tun(&self) -> Result<&Tun> {
        match &self.device.kind {
            Kind::Tun(t) => Ok(t),
            _ => Err(EBADFD),
        }
    }

    /// The bytes before each packet: what is said of its protocol, and of its sums and pieces.
    fn before(&self, tun: &Tun) -> (usize, usize) {
        let has = |flag| self.flags & flag != 0;
        let pi = if has(IFF_NO_PI) { 0 } else { PI };
        let header = match has(IFF_VNET_HDR) {
            true => tun.header_len.load(Ordering::Relaxed),
            false => 0,
        };
        (pi, header)
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
        if flags & !(FEATURES | IFF_TUN_EXCL) != 0 {
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
        let tun = new.tun().ok().filter(|t| t.layer == layer).ok_or(EINVAL)?;
        {
            let mut reader = tun.reader.lock();
            if reader.strong_count() > 0 {
                return Err(EBUSY);
            }
            *reader = Arc::downgrade(&self.shared);
        }
        let has_header = flags & IFF_VNET_HDR != 0;
        tun.has_header.store(has_header, Ordering::Relaxed);
        let gso_max = tun.gso_max();
        req[..16].fill(0);
        req[..i.name.len().min(15)].copy_from_slice(&i.name.as_bytes()[..i.name.len().min(15)]);
        *at = Some(new);
        drop(at);
        self.ns.set_gso_max(index, gso_max);
        self.ns.tell_link(index);
        Ok(())
    }

    /// TUNSETOFFLOAD (`set_offload`): `EINVAL` tells a program of what is not known.
    fn set_offload(&self, asked: u64) -> Result<()> {
        let at = self.attached()?;
        let tun = at.tun()?;
        let mut left = u32::try_from(asked).map_err(|_| EINVAL)?;
        let mut takes = 0;
        if left & CSUM != 0 {
            takes = left & (CSUM | TSO);
            if left & TSO != 0 {
                left &= !TSO_ECN;
            }
            left &= !(CSUM | TSO | UFO);
            if left & USO == USO {
                takes |= USO;
                left &= !USO;
            }
        }
        if left != 0 {
            return Err(EINVAL);
        }
        tun.takes.store(takes, Ordering::Relaxed);
        let place = at.device.place();
        if let Some(ns) = place.ns.upgrade() {
            ns.set_gso_max(place.index, tun.gso_max());
        }
        Ok(())
    }
}

impl FileOps for TunFile {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        let at = self.attached()?;
        let tun = at.tun()?;
        let (meta, frame) = tun.take().ok_or(EAGAIN)?;
        let (pi, header) = at.before(tun);
        let kind = [frame[12], frame[13]];
        let begin = match tun.layer {
            Layer::Ethernet => 0,
            Layer::Ip => ETHERNET,
        };
        let data = &frame[begin..];
        if dst.remaining() < pi + header {
            return Err(EINVAL);
        }
        let mut whole = Vec::new();
        if pi != 0 {
            const TUN_PKT_STRIP: u16 = 1;
            let cut = pi + header + data.len() > dst.remaining();
            whole.extend_from_slice(&(if cut { TUN_PKT_STRIP } else { 0 }).to_le_bytes());
            whole.extend_from_slice(&kind);
        }
        if header != 0 {
            whole.extend_from_slice(&offload::tells(&meta, begin));
            whole.resize(pi + header, 0);
        }
        whole.extend_from_slice(data);
        crate::msgqueue::put_all(dst, &whole)
    }

    fn write(&self, _: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        let at = self.attached()?;
        let tun = at.tun()?;
        if !at.device.place().up {
            return Err(EIO);
        }
        let n = src.remaining();
        let (pi, header) = at.before(tun);
        let begin = pi + header;
        let least = match tun.layer {
            Layer::Ethernet => ETHERNET,
            Layer::Ip => 1,
        };
        if n < begin + least || n > begin + LONGEST {
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
        let mut says = [0; FrameMeta::LEN];
        if header != 0 {
            says.copy_from_slice(&data[pi..pi + FrameMeta::LEN]);
        }
        let (frame, before): (Bytes, usize) = match tun.layer {
            Layer::Ethernet => (Bytes::from(data).slice(begin..), 0),
            Layer::Ip => {
                let kind = match (pi, data[begin] >> 4) {
                    (0, 4) => [8, 0],
                    (0, 6) => [0x86, 0xdd],
                    (0, _) => return Err(EINVAL),
                    _ => [data[2], data[3]],
                };
                let frame = [&[0; 12][..], &kind, &data[begin..]].concat();
                (frame.into(), ETHERNET)
            }
        };
        let (meta, frame) = offload::told(&says, frame, before)?;
        // It comes in at once, as the writer's work (`tun_get_user`), where the device is by now.
        let place = at.device.place();
        if !place.up {
            return Err(EIO);
        }
        at.device.receive(&place, crate::clock::now(), &meta, frame);
        Ok(n)
    }

    fn poll(&self, _: &File, mask: Events) -> Events {
        let Ok(at) = self.attached() else {
            return Events::ERR;
        };
        let mut e = Events::WRITABLE;
        if at.tun().is_ok_and(|t| !t.queue.lock().frames.is_empty()) {
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
                cx.copy_out(va, &u32::from(FEATURES).to_le_bytes())?;
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
                let tun = at.tun()?;
                tun.persistent.store(arg != 0, Ordering::Relaxed);
            }
            // Who else may take it: those who may make it.
            TUNSETNOCSUM | TUNSETOWNER | TUNSETGROUP => drop(self.attached()?),
            TUNSETOFFLOAD => self.set_offload(arg)?,
            TUNGETVNETHDRSZ => {
                let at = self.attached()?;
                let tun = at.tun()?;
                let len = tun.header_len.load(Ordering::Relaxed) as u32;
                cx.copy_out(va, &len.to_le_bytes())?;
            }
            TUNSETVNETHDRSZ => {
                let at = self.attached()?;
                let tun = at.tun()?;
                let mut len = [0; 4];
                cx.copy_in(va, &mut len)?;
                let len = usize::try_from(i32::from_le_bytes(len)).map_err(|_| EINVAL)?;
                if !(FrameMeta::LEN..=HEADER_MAX).contains(&len) {
                    return Err(EINVAL);
                }
                tun.header_len.store(len, Ordering::Relaxed);
            }
            // This machine's order is the little one in any case.
            TUNGETVNETLE => {
                let at = self.attached()?;
                let tun = at.tun()?;
                let set = u32::from(tun.is_little.load(Ordering::Relaxed));
                cx.copy_out(va, &set.to_le_bytes())?;
            }
            TUNSETVNETLE => {
                let at = self.attached()?;
                let tun = at.tun()?;
                let mut set = [0; 4];
                cx.copy_in(va, &mut set)?;
                tun.is_little.store(set != [0; 4], Ordering::Relaxed);
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
        let Ok(tun) = at.tun() else { return };
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
