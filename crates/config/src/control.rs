//! Messages on the control socket, each one `SOCK_SEQPACKET` datagram: a `u32` kind and its
//! payload, little-endian. A packet is at most 2048 bytes long.
//!
//! Those that ask carry a number of the starter's choice, which comes back with
//! [`ToStarter::Done`] or [`ToStarter::Refused`].

use zerocopy::{TryFromBytes, try_transmute};

/// Kinds of messages from the starter to the Sentry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes)]
#[repr(u32)]
pub enum ToSentry {
    /// A window changed; `u16` rows, `u16` columns, `u32` process (0: the first).
    Window = 2,
    /// Send a signal; `u32` signal, `u32` [`Recipient`].
    Signal = 3,
    /// Run the first program; `u32` process: 0, or that of a program that [`ToSentry::Exec`] made
    /// ready. Descriptors beside 0, if the sandbox is to have devices: a file with a
    /// [`DevicesSpec`](super::DevicesSpec), then the devices' sockets.
    Start = 7,
    /// Make one more program ready; `u32` number; descriptors: a file with an
    /// [`ExecSpec`](super::ExecSpec), then those that it names. [`ToStarter::Done`] tells its
    /// process id; it runs on [`ToSentry::Start`], and never if SIGKILL comes first.
    Exec = 8,
    /// All tasks stop at once; `u32` number.
    Pause = 9,
    /// They go on; `u32` number.
    Resume = 10,
    /// What there is, as JSON into the descriptor: [`Census`](super::Census); `u32` number.
    Census = 11,
    /// The changes of the root as a tar archive into the descriptor; `u32` number.
    Changes = 12,
    /// Limits that change, as JSON: [`Limits`](super::Limits).
    Limits = 16,
    /// From the root container's only: one more container; `u32` number; descriptors: a file with
    /// a [`JoinSpec`](super::JoinSpec), then those that the Sentry's `boot::join` names.
    Join = 17,
    /// Is it there; `u32` number.
    Ping = 18,
    /// What the container's network is and does, as JSON into the descriptor:
    /// [`Report`](net::report::Report); `u32` number.
    Network = 21,
    /// Rules for what may leave that hold from now on; `u32` number; descriptor: a file with
    /// [`Rules`](egress::Rules), as JSON.
    Rules = 22,
    /// Who has the container's memory, as JSON into the descriptor:
    /// [`MemoryReport`](super::MemoryReport); `u32` number.
    Memory = 23,
    /// Something changes in how the container's memory is governed; `u32` number; descriptor: a
    /// file with [`MemoryChange`](super::MemoryChange), as JSON.
    Bounds = 24,
    /// The container's memory by places, as JSON into the descriptor:
    /// [`MemoryMap`](super::MemoryMap); `u32` number.
    Map = 26,
    /// Nobody waits any more for what an [`ToSentry::Exec`] asked for; `u32` its number. The answer
    /// comes all the same.
    GiveUp = 27,
    /// From the root container's only: devices of the host have come, changed or gone; `u32`
    /// number; descriptors: a file with a [`DevicesChange`](super::DevicesChange), then the sockets
    /// of those that have come, and what else it names.
    Refresh = 28,
}

/// Kinds of messages from the Sentry to the starter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes)]
#[repr(u32)]
pub enum ToStarter {
    /// The first program has ended; `u32` wait status (as wait4(2) gives).
    Exit = 1,
    /// The Sentry, or another child, cannot start or go on; UTF-8 text for the person, one
    /// sentence.
    Error = 4,
    /// From any child: it failed by a fault of its own (a panic); UTF-8 text.
    Crash = 5,
    /// All is ready, and waits for [`ToSentry::Start`].
    Ready = 6,
    /// It is done; `u32` number, `u32` result.
    Done = 13,
    /// It could not be done; `u32` number, UTF-8 text.
    Refused = 14,
    /// A program that [`ToSentry::Exec`] ran has ended; `u32` process, `u32` wait status.
    Exited = 15,
    /// Something that the person may want to know, and that ends nothing; UTF-8 text.
    Note = 19,
    /// A process was ended for lack of memory; `u64`: how many were so far; UTF-8 text for the
    /// person.
    OutOfMemory = 20,
    /// Something in the container's memory is confidential; descriptor: the memory file, which the
    /// starter overwrites once the Sentry has ended.
    Confidential = 25,
    /// There is no such program; text as for [`ToStarter::Error`].
    NotFound = 32,
    /// The program cannot be executed; text as for [`ToStarter::Error`].
    NotExecutable = 33,
}

impl TryFrom<u32> for ToSentry {
    /// The number, which means nothing.
    type Error = u32;

    fn try_from(n: u32) -> Result<ToSentry, u32> {
        try_transmute!(n).map_err(|_| n)
    }
}

impl TryFrom<u32> for ToStarter {
    /// The number, which means nothing.
    type Error = u32;

    fn try_from(n: u32) -> Result<ToStarter, u32> {
        try_transmute!(n).map_err(|_| n)
    }
}

impl ToSentry {
    /// As it begins a packet.
    #[must_use]
    pub const fn to_le_bytes(self) -> [u8; 4] {
        (self as u32).to_le_bytes()
    }
}

impl ToStarter {
    /// As it begins a packet.
    #[must_use]
    pub const fn to_le_bytes(self) -> [u8; 4] {
        (self as u32).to_le_bytes()
    }
}

/// What a signal goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// The first program: 0.
    First,
    /// Every process: `u32::MAX`.
    All,
    /// A process, by its pid inside: any other number.
    Process(u32),
}

impl From<u32> for Recipient {
    fn from(n: u32) -> Recipient {
        match n {
            0 => Recipient::First,
            u32::MAX => Recipient::All,
            pid => Recipient::Process(pid),
        }
    }
}

impl From<Recipient> for u32 {
    fn from(r: Recipient) -> u32 {
        match r {
            Recipient::First => 0,
            Recipient::All => u32::MAX,
            Recipient::Process(pid) => pid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_kind_of_one_side_or_of_none() {
        for n in (0..1000).chain([u32::MAX]) {
            match (ToSentry::try_from(n), ToStarter::try_from(n)) {
                (Ok(k), Err(_)) => assert_eq!(k.to_le_bytes(), n.to_le_bytes()),
                (Err(_), Ok(k)) => assert_eq!(k.to_le_bytes(), n.to_le_bytes()),
                (Err(a), Err(b)) => assert_eq!((a, b), (n, n)),
                (Ok(a), Ok(b)) => panic!("{n} is {a:?} and {b:?}"),
            }
        }
        assert_eq!(ToSentry::try_from(28), Ok(ToSentry::Refresh));
        assert_eq!(ToStarter::try_from(33), Ok(ToStarter::NotExecutable));
    }

    #[test]
    fn a_recipient_is_a_number_and_back() {
        for n in [0, 1, 7, u32::MAX - 1, u32::MAX] {
            assert_eq!(u32::from(Recipient::from(n)), n);
        }
        assert_eq!(Recipient::from(0), Recipient::First);
        assert_eq!(Recipient::from(u32::MAX), Recipient::All);
    }
}
