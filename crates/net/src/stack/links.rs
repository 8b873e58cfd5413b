//! Frames to and from the devices' sockets (`packet(7)` with PACKET_VNET_HDR).

use crate::taps::At;
use abi::Result;
use abi::errno::{EAGAIN, EINTR, ENETDOWN, ENOBUFS, ENOSPC};
use arc_swap::ArcSwap;
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
/// The most pieces of a frame.
const PARTS: usize = 16;
/// Before it is tried again to wait, where that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How many chunks are kept for later.
const SPARE: usize = 32;

/// A device of the host's: its socket, and its place here.
pub(super) struct Taken {
    /// Its index on the host. Where a program's device had that first, it has another one here.
    pub host: u32,
    pub at: At,
    socket: HostFd,
    /// The chunk that the next frame goes to. Who has it receives.
    chunk: Mutex<Vec<u8>>,
    spare: Arc<Spare>,
}

/// All of them. Who looks at them has a list of his own, and keeps the socket of a device that goes
/// meanwhile.
pub(super) type List = Arc<Vec<Arc<Taken>>>;

/// See [`List`].
#[derive(Default)]
pub(super) struct Links {
    all: ArcSwap<Vec<Arc<Taken>>>,
    changing: Mutex<()>,
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
    pub fn all(&self) -> List {
        self.all.load_full()
    }

    /// The device with this index here.
    pub fn at(&self, index: u32) -> Option<Arc<Taken>> {
        let all = self.all.load();
        all.iter().find(|t| t.at.device as u32 == index).cloned()
    }

    pub fn has(&self, index: u32) -> bool {
        let all = self.all.load();
        all.iter().any(|t| t.at.device as u32 == index)
    }

    /// One more, by its index on the host. `ENOSPC` where there are as many as can be waited for.
    pub fn add(&self, host: u32, at: At, socket: HostFd) -> Result<()> {
        let _one_at_a_time = self.changing.lock();
        let all = self.all();
        if all.len() >= packet::WAIT_MAX {
            return Err(ENOSPC);
        }
        let new = Arc::new(Taken {
            host,
            at,
            socket,
            chunk: Mutex::new(vec![0; ROOM]),
            spare: self.spare.clone(),
        });
        let more: Vec<_> = all.iter().cloned().chain([new]).collect();
        self.all.store(more.into());
        Ok(())
    }

    /// One has another socket, by its index on the host.
    pub fn renew(&self, host: u32, socket: HostFd) {
        let _one_at_a_time = self.changing.lock();
        let all = self.all();
        let (same, mut rest): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|t| t.host == host);
        rest.extend(same.first().map(|t| {
            Arc::new(Taken {
                host,
                at: t.at,
                socket,
                chunk: Mutex::new(vec![0; ROOM]),
                spare: self.spare.clone(),
            })
        }));
        self.all.store(rest.into());
    }

    /// One has gone, by its index on the host.
    pub fn remove(&self, host: u32) {
        let _one_at_a_time = self.changing.lock();
        let all = self.all();
        let rest: Vec<_> = all.iter().filter(|t| t.host != host).cloned().collect();
        self.all.store(rest.into());
    }

    /// Waits until there is a frame, or the bell is rung.
    pub fn wait(&self, bell: &Bell, most: Option<Duration>) {
        let most = most.map_or(-1, |m| i32::try_from(m.as_millis()).unwrap_or(i32::MAX));
        let all = self.all();
        if let Err(e) = packet::wait(all.iter().map(|t| t.socket.raw()), Some(bell), most)
            && e != EINTR
        {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Taken {
    /// Gives frames that have come by a device to `frame`, so many at most.
    pub fn receive(&self, most: usize, mut frame: impl FnMut(&FrameMeta, Bytes)) -> Worked {
        let mut bytes = self.chunk.lock();
        let fd = self.socket.raw();
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

    /// Sends a frame by the device.
    pub fn send(&self, meta: &FrameMeta, parts: &[&[u8]]) -> Sent {
        let mut slices = [IoSlice::new(&[]); PARTS];
        for (to, from) in slices.iter_mut().zip(parts) {
            *to = IoSlice::new(from);
        }
        let parts = &slices[..parts.len().min(PARTS)];
        match packet::send(self.socket.raw(), &meta.to_bytes(), parts) {
            // No room, or no memory for it now.
            Err(EAGAIN | ENOBUFS) => Sent::Full,
            // What the device does not take is lost, as on a wire.
            Ok(_) | Err(_) => Sent::Yes,
        }
    }
}
