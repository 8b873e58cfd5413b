//! One connection between the two sides: a pipe each way, and a socket for replies that may bring a
//! descriptor.
//!
//! A pipe hands a message over in half the time of a socket. Which way a reply comes is known to
//! both sides from the request ([`Request::brings_fd`](crate::proto::Request::brings_fd)); one that
//! cannot be decoded is answered by the pipe. Nobody sends before the other has answered.

use crate::wire::MAX_MESSAGE;
use abi::Result;
use abi::errno::{EBADMSG, EINTR, EPIPE};
use hostcall::{HostFd, file, sock};

/// Before each message in a pipe: its length.
const HEAD: usize = 4;
/// Room for the longest message.
pub const BUFFER: usize = HEAD + MAX_MESSAGE;

/// One side of a connection.
#[derive(Debug)]
pub struct Line {
    sends: HostFd,
    receives: HostFd,
    socket: HostFd,
}

impl Line {
    /// Both sides of a new one.
    pub fn pair() -> Result<(Line, Line)> {
        let (a, b) = (sock::pipe()?, sock::pipe()?);
        let (socket, other) = sock::seqpacket_pair()?;
        let ours = Line {
            sends: a.1,
            receives: b.0,
            socket,
        };
        let theirs = Line {
            sends: b.1,
            receives: a.0,
            socket: other,
        };
        Ok((ours, theirs))
    }
    /// Its descriptors, in the order of [`Line::from_fds`].
    #[must_use]
    pub fn fds(&self) -> [i32; 3] {
        [&self.sends, &self.receives, &self.socket].map(HostFd::raw)
    }
    /// Those that came with a message; an incomplete one is left out.
    pub fn from_fds(fds: Vec<HostFd>) -> Vec<Line> {
        let mut fds = fds.into_iter();
        let mut all = Vec::new();
        while let (Some(sends), Some(receives), Some(socket)) = (fds.next(), fds.next(), fds.next())
        {
            all.push(Line {
                sends,
                receives,
                socket,
            });
        }
        all
    }
    /// The descriptor that is readable when a message is there.
    #[must_use]
    pub fn incoming(&self) -> &HostFd {
        &self.receives
    }

    /// Sends a message. An error: the other side is gone.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        let mut all = Vec::with_capacity(HEAD + message.len());
        all.extend_from_slice(&(message.len() as u32).to_le_bytes());
        all.extend_from_slice(message);
        let mut rest = &all[..];
        while !rest.is_empty() {
            match file::write(self.sends.raw(), rest) {
                Ok(n) => rest = &rest[n..],
                Err(EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
    /// Receives one message, into a buffer of [`BUFFER`] bytes. `EBADMSG` for one that is too long,
    /// behind which the next may come. Other errors: the other side is gone (`EPIPE`), or does not
    /// keep to the protocol.
    pub fn receive<'a>(&self, buf: &'a mut [u8]) -> Result<&'a [u8]> {
        let mut have = 0;
        loop {
            have += self.read(&mut buf[have..])?;
            let Some(head) = buf[..have].first_chunk::<HEAD>() else {
                continue;
            };
            let len = u32::from_le_bytes(*head) as usize;
            if len > buf.len() - HEAD {
                self.skip((HEAD + len).checked_sub(have).ok_or(EPIPE)?, buf)?;
                return Err(EBADMSG);
            }
            // A client that sends two at a time does not wait for answers.
            if have > HEAD + len {
                return Err(EPIPE);
            }
            if have == HEAD + len {
                return Ok(&buf[HEAD..have]);
            }
        }
    }
    fn skip(&self, mut left: usize, buf: &mut [u8]) -> Result<()> {
        while left > 0 {
            let most = left.min(buf.len());
            left -= self.read(&mut buf[..most])?;
        }
        Ok(())
    }
    fn read(&self, buf: &mut [u8]) -> Result<usize> {
        loop {
            match file::read(self.receives.raw(), buf) {
                Ok(0) => return Err(EPIPE),
                Err(EINTR) => {}
                r => return r,
            }
        }
    }

    /// As [`Line::send`], for a message that may bring descriptors.
    pub fn send_with(&self, message: &[u8], fds: &[i32]) -> Result<()> {
        sock::send(self.socket.raw(), message, fds).map(drop)
    }
    /// Receives such a message; errors are those of [`Line::receive`].
    pub fn receive_with<'a>(&self, buf: &'a mut [u8]) -> Result<(&'a [u8], Vec<HostFd>)> {
        match sock::recv(self.socket.raw(), buf)? {
            (0, _) => Err(EPIPE),
            (n, fds) => Ok((&buf[..n], fds)),
        }
    }
}
