//! Frames to and from the devices' sockets (`packet(7)` with PACKET_VNET_HDR).

use abi::errno::{EAGAIN, EINTR, ENETDOWN, ENOBUFS};
use bytes::Bytes;
use hostcall::HostFd;
use hostcall::packet::{self, Bell, Received};
use netstack::ip::{FrameMeta, Sent};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use wait::lead::Worked;

/// Room for the largest frame: a packet of 64 KiB and its link header.
const ROOM: usize = (64 << 10) + 64;
/// Frames from this size on are handed on in the chunk that they came in; smaller ones are copied,
/// so that what a stranger has us keep is about as large as what he sent.
const LARGE: usize = 32 << 10;
/// The most pieces of a frame ([`Link::send`]).
const PARTS: usize = 16;
/// Before it is tried again to wait, where that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How many chunks are kept for later.
const SPARE: usize = 32;

/// The sockets, in the order of the setup's devices.
pub(super) struct Links {
    sockets: Vec<HostFd>,
    /// Of each, the chunk that the next frame goes to. Who has it receives.
    chunks: Vec<Mutex<Vec<u8>>>,
    spare: Arc<Spare>,
}

/// Chunks that wait to be used again, the last first: it is still in the processor's cache.
#[derive(Default)]
struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_else(|| vec![0; ROOM])
    }
}

/// A frame in its chunk, which goes back when nobody holds a piece of it.
struct Chunk {
    bytes: Vec<u8>,
    len: usize,
    home: Arc<Spare>,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut all = self.home.0.lock();
        if all.len() < SPARE {
            all.push(std::mem::take(&mut self.bytes));
        }
    }
}

impl Links {
    pub fn new(links: Vec<packet::Link>) -> Links {
        Links {
            chunks: links.iter().map(|_| Mutex::new(vec![0; ROOM])).collect(),
            sockets: links.into_iter().map(|l| l.fd).collect(),
            spare: Arc::default(),
        }
    }

    /// Gives frames that have come by a device to `frame`, so many at most.
    pub fn receive(
        &self,
        device: usize,
        most: usize,
        mut frame: impl FnMut(&FrameMeta, Bytes),
    ) -> Worked {
        let mut bytes = self.chunks[device].lock();
        let fd = self.sockets[device].raw();
        let mut header = [0; FrameMeta::LEN];
        let mut worked = Worked::Nothing;
        for _ in 0..most {
            match packet::receive(fd, &mut header, &mut bytes) {
                Ok(Received::Frame(len)) => {
                    let len = len.min(bytes.len());
                    let meta = FrameMeta::from_bytes(&header);
                    let whole = if len < LARGE {
                        Bytes::copy_from_slice(&bytes[..len])
                    } else {
                        let bytes = std::mem::replace(&mut *bytes, self.spare.take());
                        let home = self.spare.clone();
                        Bytes::from_owner(Chunk { bytes, len, home })
                    };
                    frame(&meta, whole);
                }
                // (It is down, and may come up again. It is told once.)
                Ok(Received::Unknown) | Err(ENETDOWN) => {}
                Err(EAGAIN) => return worked,
                // The host has no memory, say.
                Err(_) => return Worked::Failed,
            }
            worked = Worked::Something;
        }
        worked
    }

    /// Waits until there is a frame, or the bell is rung.
    pub fn wait(&self, bell: Option<&Bell>, most: Option<Duration>) {
        let most = most.map_or(-1, |m| i32::try_from(m.as_millis()).unwrap_or(i32::MAX));
        if let Err(e) = packet::wait(&self.sockets, bell, most)
            && e != EINTR
        {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Links {
    /// Sends a frame by the device of this place.
    pub fn send(&self, device: usize, meta: &FrameMeta, parts: &[&[u8]]) -> Sent {
        let mut slices = [IoSlice::new(&[]); PARTS];
        for (to, from) in slices.iter_mut().zip(parts) {
            *to = IoSlice::new(from);
        }
        let Some(fd) = self.sockets.get(device) else {
            return Sent::Yes;
        };
        let parts = &slices[..parts.len().min(PARTS)];
        match packet::send(fd.raw(), &meta.to_bytes(), parts) {
            // No room, or no memory for it now.
            Err(EAGAIN | ENOBUFS) => Sent::Full,
            // What the device does not take is lost, as on a wire.
            Ok(_) | Err(_) => Sent::Yes,
        }
    }
}
