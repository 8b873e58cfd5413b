//! Questions and changes by rtnetlink(7), in the network namespace of the thread that opens the
//! socket.

use abi::errno::{EBADMSG, EINTR, EIO};
use abi::{Errno, Result};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::os::fd::OwnedFd;

/// The index of every namespace's loopback device.
pub const LO: u32 = 1;

/// More than the host ever sends at once (`NLMSG_GOODSIZE`, 32 KiB with room).
const PACKET_MAX: usize = 64 << 10;
/// How often a list is asked for that changes while it is told.
const TRIES: u32 = 20;

/// A socket to the host's network configuration.
pub struct Rtnetlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// A list that the host has told.
#[derive(Default)]
pub struct Dump {
    pub all: Vec<RouteNetlinkMessage>,
    /// So many of it are not understood.
    pub unknown: usize,
}

fn errno(e: rustix::io::Errno) -> Errno {
    Errno::new(e.raw_os_error()).unwrap_or(EIO)
}

impl Rtnetlink {
    pub fn open() -> Result<Rtnetlink> {
        let flags = SocketFlags::CLOEXEC;
        // Without a protocol it is NETLINK_ROUTE, which is 0.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None);
        Ok(Rtnetlink {
            socket: socket.map_err(errno)?,
            sequence: 0,
            buffer: vec![0; PACKET_MAX],
        })
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut m = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        m.finalize();
        let mut bytes = vec![0; m.buffer_len()];
        m.serialize(&mut bytes);
        let sent = send(&self.socket, &bytes, SendFlags::empty());
        sent.map(drop).map_err(errno)
    }

    /// Receives one packet; each of its messages goes to `each`, until that says that it was the
    /// last.
    fn receive(&mut self, mut each: impl FnMut(&[u8], u16) -> Result<Ended>) -> Result<Ended> {
        let n = loop {
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                r => break r.map_err(errno)?.0,
            }
        };
        let mut rest = self.buffer.get(..n).ok_or(EBADMSG)?;
        while let Some(header) = rest.first_chunk::<16>() {
            let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("4"));
            let len = word(0) as usize;
            let message = rest.get(..len).filter(|m| m.len() >= 16).ok_or(EBADMSG)?;
            let flags = (word(4) >> 16) as u16;
            // (What is left of an older question is not for this one.)
            if word(8) == self.sequence && each(message, flags)? == Ended::Yes {
                return Ok(Ended::Yes);
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(Ended::No)
    }

    /// Asks for a list.
    pub fn list(&mut self, what: &RouteNetlinkMessage) -> Result<Dump> {
        for _ in 0..TRIES {
            match self.list_once(what.clone()) {
                Err(EINTR) => {}
                r => return r,
            }
        }
        Err(EINTR)
    }

    /// `EINTR` where it changed meanwhile.
    fn list_once(&mut self, what: RouteNetlinkMessage) -> Result<Dump> {
        self.send(what, NLM_F_DUMP)?;
        let mut told = Dump::default();
        let mut is_torn = false;
        let each = &mut |message: &[u8], flags: u16| {
            is_torn |= flags & NLM_F_DUMP_INTR != 0;
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).map(|m| m.payload) {
                Ok(NetlinkPayload::Done(_)) => return Ok(Ended::Yes),
                Ok(NetlinkPayload::Error(e)) => return Err(failure(e.code)),
                Ok(NetlinkPayload::InnerMessage(m)) => told.all.push(m),
                Ok(_) => {}
                Err(_) => told.unknown += 1,
            }
            Ok(Ended::No)
        };
        while self.receive(&mut *each)? == Ended::No {}
        if is_torn { Err(EINTR) } else { Ok(told) }
    }

    /// Changes something. `flags` are `NLM_F_*`.
    pub fn change(&mut self, what: RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.send(what, NLM_F_ACK | flags)?;
        let each =
            &mut |message: &[u8], _| match NetlinkMessage::<RouteNetlinkMessage>::deserialize(
                message,
            )
            .map(|m| m.payload)
            {
                Ok(NetlinkPayload::Error(e)) if e.code.is_some() => Err(failure(e.code)),
                Ok(NetlinkPayload::Error(_)) => Ok(Ended::Yes),
                _ => Ok(Ended::No),
            };
        while self.receive(&mut *each)? == Ended::No {}
        Ok(())
    }

    /// Whether changes are allowed: asks for one that is none.
    pub fn may_change(&mut self) -> Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = LO;
        self.change(RouteNetlinkMessage::SetLink(link), 0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    No,
    Yes,
}

fn failure(code: Option<std::num::NonZeroI32>) -> Errno {
    code.and_then(|c| Errno::new(-c.get())).unwrap_or(EBADMSG)
}
