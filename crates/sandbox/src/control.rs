//! The control sockets: packets of a `u32` kind and its payload, little-endian.
//!
//! The starter believes a child only in what concerns that child: its text is shown with control
//! characters taken out, its numbers are checked.

use crate::{EXIT_BROKEN, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_NOT_STARTED};
use abi::Result;
use config::control::{ToSentry, ToStarter};
use hostcall::{HostFd, RawFd, sock};

/// The longest packet.
pub(crate) const MAX: usize = 2048;

/// What the Sentry says of what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// All is ready for [`ToSentry::Start`].
    Ready,
    Done {
        number: u32,
        result: u32,
    },
    Refused {
        number: u32,
        text: String,
    },
    /// A program that was started by [`ToSentry::Exec`] has ended.
    Exited {
        pid: u32,
        status: i32,
    },
}

/// What a child says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChildMessage {
    Exit(i32),
    /// There is no sandbox, or none any more: why, and the starter's exit status for it.
    Failed(String, u8),
    Answer(Answer),
    /// Something to be told to the person.
    Note(String),
    /// A process was ended for lack of memory: how many were so far, and a sentence.
    OutOfMemory(u64, String),
    /// Its memory is confidential: the file is the first that came with it.
    Confidential,
    /// It has closed its end.
    HungUp,
    /// Something that this version does not know.
    Nothing,
}

/// From a child.
pub(crate) fn send(fd: RawFd, kind: ToStarter, payload: &[u8]) -> Result<()> {
    let mut packet = kind.to_le_bytes().to_vec();
    packet.extend_from_slice(&payload[..payload.len().min(MAX - 4)]);
    sock::send(fd, &packet, &[]).map(|_| ())
}

/// From the starter, which nobody can make wait.
pub(crate) fn tell(fd: RawFd, kind: ToSentry, payload: &[u8], given: &[RawFd]) -> Result<()> {
    let packet = [&kind.to_le_bytes(), payload].concat();
    sock::try_send(fd, &packet, given).map(|_| ())
}

/// What a child says, with the descriptors that came with it.
pub(crate) fn receive(fd: RawFd) -> (ChildMessage, Vec<HostFd>) {
    let mut buf = [0u8; MAX];
    match sock::recv(fd, &mut buf) {
        Ok((0, _)) => (ChildMessage::HungUp, Vec::new()),
        Ok((n, fds)) => (decode(&buf[..n]), fds),
        Err(abi::errno::EBADMSG) => (ChildMessage::Nothing, Vec::new()),
        Err(_) => (ChildMessage::HungUp, Vec::new()),
    }
}

/// What a packet says; whatever it is.
#[must_use]
pub fn decode(packet: &[u8]) -> ChildMessage {
    let Some((kind, payload)) = packet.split_first_chunk::<4>() else {
        return ChildMessage::Nothing;
    };
    let word = |at: usize| {
        payload
            .get(at..at + 4)
            .map(|b| u32::from_le_bytes(b.try_into().expect("4")))
    };
    let Ok(kind) = ToStarter::try_from(u32::from_le_bytes(*kind)) else {
        return ChildMessage::Nothing;
    };
    match (kind, word(0)) {
        (ToStarter::Exit, Some(status)) => ChildMessage::Exit(status as i32),
        (ToStarter::Ready, _) => ChildMessage::Answer(Answer::Ready),
        (ToStarter::Done, Some(number)) => ChildMessage::Answer(Answer::Done {
            number,
            result: word(4).unwrap_or(0),
        }),
        (ToStarter::Refused, Some(number)) => ChildMessage::Answer(Answer::Refused {
            number,
            text: plain(&payload[4..]),
        }),
        (ToStarter::Exited, Some(pid)) => ChildMessage::Answer(Answer::Exited {
            pid,
            status: word(4).unwrap_or(0) as i32,
        }),
        (ToStarter::Error, _) => ChildMessage::Failed(plain(payload), EXIT_NOT_STARTED),
        (ToStarter::Note, _) => ChildMessage::Note(plain(payload)),
        (ToStarter::OutOfMemory, _) => match payload.split_first_chunk::<8>() {
            Some((kills, text)) => {
                ChildMessage::OutOfMemory(u64::from_le_bytes(*kills), plain(text))
            }
            None => ChildMessage::Nothing,
        },
        (ToStarter::Confidential, _) => ChildMessage::Confidential,
        (ToStarter::Crash, _) => ChildMessage::Failed(plain(payload), EXIT_BROKEN),
        (ToStarter::NotFound, _) => ChildMessage::Failed(plain(payload), EXIT_NOT_FOUND),
        (ToStarter::NotExecutable, _) => ChildMessage::Failed(plain(payload), EXIT_NOT_EXECUTABLE),
        (ToStarter::Exit | ToStarter::Done | ToStarter::Refused | ToStarter::Exited, None) => {
            ChildMessage::Nothing
        }
    }
}

/// Text that cannot play tricks with a terminal.
fn plain(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_checked() {
        assert_eq!(decode(&[]), ChildMessage::Nothing);
        assert_eq!(decode(&[1, 0, 0]), ChildMessage::Nothing);
        assert_eq!(decode(&[1, 0, 0, 0, 9, 0]), ChildMessage::Nothing);
        assert_eq!(decode(&[1, 0, 0, 0, 0, 3, 0, 0]), ChildMessage::Exit(0x300));
        assert_eq!(decode(&[99, 0, 0, 0]), ChildMessage::Nothing);
        assert_eq!(
            decode(b"\x04\0\0\0no \x1b[31mroom\n"),
            ChildMessage::Failed("no  [31mroom".into(), EXIT_NOT_STARTED)
        );
        assert_eq!(decode(b"\x13\0\0\0a\nb"), ChildMessage::Note("a b".into()));
        assert_eq!(decode(b"\x14\0\0\0\x02\0\0\0"), ChildMessage::Nothing);
        let told = decode(b"\x14\0\0\0\x02\0\0\0\0\0\0\0a\nb");
        assert_eq!(told, ChildMessage::OutOfMemory(2, "a b".into()));
    }
}
