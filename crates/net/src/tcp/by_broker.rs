//! Connections that the broker made ([`Stream`]), as sockets of TCP use them.

use super::Listener;
use super::outside::{Dial, Dialer, Outside};
use crate::addr::Endpoint;
use crate::bindings::Binding;
use crate::control::Control;
use crate::lingering::Unacknowledged;
use crate::options::SO_KEEPALIVE;
use crate::protocol::{Received, Shutdown};
use crate::readiness;
use crate::sys::*;
use crate::user::UserNetwork;
use crate::user::stream::{Progress, Stream};
use abi::errno::{EAGAIN, EISCONN, ENOTCONN};
use abi::{Errno, Result};
use hostcall::inet as host;
use hostcall::{file, mem};
use std::sync::Arc;
use vfs::{Sink, Source};
use wait::Events;

const TCP_INFO: i32 = 11;

impl Dialer for Arc<UserNetwork> {
    fn connect(&self, new: Dial<'_>) -> Result<Arc<dyn Outside>> {
        let stream = Stream::connect(self, new.common, new.to)?;
        for (level, name, value) in new.options.set_values() {
            // What the host does not take is kept here all the same.
            let _ = stream.set_option(level, name, &value.to_ne_bytes());
        }
        if new.common.flag(SO_KEEPALIVE) {
            let _ = stream.set_option(SOL_SOCKET, SO_KEEPALIVE, &1i32.to_ne_bytes());
        }
        Ok(stream)
    }
}

impl Unacknowledged for Stream {
    /// The host's connection goes on by itself.
    fn awaits_the_last(&self) -> bool {
        false
    }
}

impl Outside for Stream {
    fn local(&self) -> Endpoint {
        self.local
    }

    fn remote(&self) -> Endpoint {
        self.remote
    }

    fn mss(&self) -> Option<i32> {
        let v = host::option(self.fd().raw(), SOL_TCP, 2, 4).ok()?;
        v.try_into().ok().map(i32::from_ne_bytes)
    }

    fn send(&self, src: &mut dyn Source, flags: u32) -> Result<usize> {
        let flags = (flags & (MSG_OOB | MSG_MORE)) as i32;
        let fd = self.fd().raw();
        let len = src.remaining();
        if len == 0 {
            return mem::with_slice_mut(&mut [], |m| host::send(fd, &[m], None, &[], flags));
        }
        src.drain(len, &mut |data| host::send(fd, data, None, &[], flags))
    }

    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        let fd = self.fd().raw();
        let host_flags = (flags & (MSG_OOB | MSG_PEEK | MSG_TRUNC)) as i32;
        let room = dst.remaining();
        let mut got = host::Message::default();
        let n = if room > 0 && flags & MSG_TRUNC == 0 {
            dst.fill(room, &mut |data| {
                got = host::receive(fd, data, host_flags)?;
                Ok(got.n)
            })?
        } else {
            let mut dropped = vec![0; room.min(1 << 16)];
            got = mem::with_slice_mut(&mut dropped, |m| host::receive(fd, &[m], host_flags))?;
            got.n
        };
        Ok(Received {
            n,
            addr: Vec::new(),
            control: Control::default(),
            flags: got.flags as u32 & MSG_OOB,
            ends: false,
        })
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        host::shutdown(self.fd().raw(), how.number())
    }

    fn poll(&self) -> Events {
        readiness::now(self.fd())
    }

    fn unread(&self) -> Result<usize> {
        file::bytes_ready(self.fd().raw()).map(|n| n.max(0) as usize)
    }

    /// (The host tells it by an ioctl that the Sentry has no use for else.)
    fn is_at_mark(&self) -> Result<bool> {
        Ok(false)
    }

    fn info(&self) -> Result<Vec<u8>> {
        host::option(self.fd().raw(), SOL_TCP, TCP_INFO, 512)
    }

    fn peer(&self) -> Result<Endpoint> {
        match self.progress() {
            Progress::Connected => Ok(self.remote),
            _ => Err(ENOTCONN),
        }
    }

    fn set_option(&self, level: i32, name: i32, v: &[u8]) -> Result<()> {
        Stream::set_option(self, level, name, v)
    }

    fn reset(&self) {
        Stream::reset(self);
    }

    fn again(&self) -> Option<Result<()>> {
        match self.progress() {
            Progress::Connecting => Some(Err(EAGAIN)),
            Progress::Connected if self.announce() => Some(Ok(())),
            Progress::Connected => Some(Err(EISCONN)),
            // Over: what it failed by is told once, then a new one may begin.
            Progress::Closed => self.take_error().map(Err),
        }
    }

    fn unsent(&self) -> usize {
        0
    }

    fn mtu(&self) -> u32 {
        65535
    }

    /// The host's answer is the socket's, also where it has none.
    fn take_error(&self) -> Option<Errno> {
        Stream::take_error(self)
    }

    fn close(&self, binding: Option<Arc<Binding<Listener>>>) -> Option<Arc<Binding<Listener>>> {
        binding
    }
}
