//! Urgent data in one direction (`tcp(7)`, `unix(7)`: MSG_OOB). Protected by `Half::state`.
//!
//! # TCP
//!
//! The last byte of a send with MSG_OOB is urgent; it lies in the stream, and a mark says where
//! (`tcp_check_urg`, `tcp_recv_urg`). There is one mark, the newest: the byte of an older one is
//! an ordinary one again, unless the reader stands before it, which then passes over it.
//!
//! - A read ends before the mark, and one that begins there passes over the byte; with SO_OOBINLINE
//!   it is read there.
//! - The mark lasts until the reader is behind it, also where its byte was read (MSG_OOB).
//!
//! # UNIX
//!
//! The byte is a piece of its own, which is not in the ring ([`Aside`]; `queue_oob`,
//! `manage_oob`). The newest is urgent as long as nobody has read it; an older one that nobody has
//! read is an ordinary piece. One that was read stays as an empty piece, where reads end.
//!
//! An urgent byte is never in a read slot: while there is one, the slot is empty.

use super::{End, Half, Seg, State, Take};
use crate::control::Ucred;
use crate::inflight::InFlight;
use crate::options::SO_OOBINLINE;
use abi::Result;
use abi::errno::{EAGAIN, EINVAL, EPIPE};
use hostcall::MemSlice;
use vfs::{Sink, Source};
use wait::Events;

/// A TCP direction's urgent mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// How many bytes of the ring are before the urgent one.
    ahead: usize,
    /// The byte, while it was not read by MSG_OOB.
    byte: Option<u8>,
}

/// A byte of a UNIX stream that was sent with MSG_OOB.
pub(super) struct Aside {
    pub number: u64,
    /// None: it was read by MSG_OOB.
    pub byte: Option<u8>,
}

/// What a read of a UNIX stream does with such a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meets {
    Byte(u8),
    /// Takes it away, or looks behind it, and goes on.
    Pass,
    End,
}

/// What polls are told of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Urgent {
    /// There is a byte that MSG_OOB has not read.
    pub unread: bool,
    /// The reader stands before the byte, and passes over it.
    pub passes: bool,
    /// How many bytes there are up to it, if it lies ahead.
    pub ahead: Option<usize>,
    /// There are pieces, one of which may be empty: a read is told of as for bytes (`unix_poll`).
    pub some: bool,
}

/// Whether the bytes of a write are urgent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    Plain,
    /// The last one is.
    Last,
}

impl State {
    /// The last byte of the ring is urgent.
    pub(super) fn mark_last(&mut self, inline: bool) {
        let Some(last) = self.ring.len().checked_sub(1) else {
            return;
        };
        // An older one before which the reader stands is passed over.
        if !inline && last > 0 && self.mark.is_some_and(|m| m.ahead == 0) {
            self.took(1);
            self.ring.consume(1);
        }
        let ahead = self.ring.len() - 1;
        let (a, b) = self.ring.first(ahead + 1);
        let byte = b.last().or(a.last()).copied();
        self.mark = Some(Mark { ahead, byte });
    }

    /// The reader goes on by so many bytes.
    pub(super) fn took(&mut self, n: usize) {
        self.mark = self.mark.and_then(|m| {
            let ahead = m.ahead.checked_sub(n)?;
            Some(Mark { ahead, ..m })
        });
    }

    /// How many bytes a read that begins now passes over, and how many it reads at most then.
    pub(super) fn until_mark(&self, inline: bool) -> (usize, usize) {
        match self.mark {
            Some(m) if !inline && m.ahead == 0 => (1, usize::MAX),
            // (It is read where it lies; what comes after it, too.)
            Some(m) if m.ahead > 0 => (0, m.ahead),
            _ => (0, usize::MAX),
        }
    }

    /// What a read that has `got` bytes does where it meets a piece of a UNIX stream that was sent
    /// with MSG_OOB.
    pub(super) fn meet(&mut self, piece: &Aside, got: usize, take: Take, inline: bool) -> Meets {
        let is_urgent = self.urgent == Some(piece.number);
        match piece.byte {
            None if got > 0 && self.urgent.is_none() => Meets::End,
            None => Meets::Pass,
            Some(_) if is_urgent && got > 0 => Meets::End,
            Some(b) if is_urgent => {
                if take == Take::Out {
                    self.urgent = None;
                }
                if inline { Meets::Byte(b) } else { Meets::Pass }
            }
            Some(b) => Meets::Byte(b),
        }
    }

    /// How many bytes of UNIX pieces are not in the ring.
    pub(super) fn beside(&self) -> usize {
        let aside = self.segs.iter().filter_map(|s| s.aside.as_ref());
        aside.filter(|a| a.byte.is_some()).count()
    }

    pub(super) fn urgent(&self, inline: bool) -> Urgent {
        match self.mark {
            Some(m) => Urgent {
                unread: m.byte.is_some(),
                passes: m.ahead == 0 && !inline,
                ahead: Some(m.ahead),
                some: true,
            },
            None => Urgent {
                unread: self.urgent.is_some(),
                some: !self.segs.is_empty(),
                ..Urgent::default()
            },
        }
    }
}

/// All of a source but its last byte.
pub struct AllButLast<'a>(pub &'a mut dyn Source);

impl Source for AllButLast<'_> {
    fn remaining(&self) -> usize {
        self.0.remaining().saturating_sub(1)
    }
    fn take(&mut self, dst: &mut [u8]) -> Result<usize> {
        let n = dst.len().min(self.remaining());
        if n == 0 {
            Ok(0)
        } else {
            self.0.take(&mut dst[..n])
        }
    }
    fn drain(
        &mut self,
        max: usize,
        drain: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        let n = max.min(self.remaining());
        self.0.drain(n, drain)
    }
}

impl Half {
    /// Writes the one byte that is left of `src` to a UNIX stream, as the urgent one.
    pub fn write_aside(
        &self,
        src: &mut dyn Source,
        cred: Ucred,
        files: &mut Option<InFlight>,
    ) -> Result<usize> {
        let mut byte = [0];
        {
            let mut s = self.lock();
            if s.end != End::Open || s.writer_dead || s.reader_closed || s.reader_shut {
                return Err(EPIPE);
            }
            if self.capacity() <= Self::taken(&s) {
                return Err(EAGAIN);
            }
            if src.take(&mut byte)? == 0 {
                return Ok(0);
            }
            s.asides += 1;
            let number = s.asides;
            s.urgent = Some(number);
            s.segs.push_back(Seg {
                len: 0,
                cred,
                files: files.take(),
                aside: Some(Aside {
                    number,
                    byte: Some(byte[0]),
                }),
            });
        }
        self.reader.notify(Events::READABLE | Events::PRI);
        Ok(1)
    }

    pub(super) fn inline(&self) -> bool {
        self.reader.flag(SO_OOBINLINE)
    }

    /// Reads the urgent byte (MSG_OOB); how much, and whether it was cut. `EINVAL` where there is
    /// none, it was read, or it is in the stream.
    pub fn read_urgent(&self, dst: &mut dyn Sink, take: Take) -> Result<usize> {
        if self.inline() {
            return Err(EINVAL);
        }
        let mut s = self.lock();
        let byte = s.mark.as_ref().and_then(|m| m.byte).ok_or(EINVAL)?;
        if take == Take::Out
            && let Some(m) = &mut s.mark
        {
            m.byte = None;
        }
        drop(s);
        if dst.remaining() == 0 {
            return Ok(0);
        }
        dst.put(&[byte])
    }

    /// The same of a UNIX stream; with the files that came with the byte.
    pub fn read_aside(&self, dst: &mut dyn Sink, take: Take) -> Result<super::Got> {
        if self.inline() {
            return Err(EINVAL);
        }
        let mut s = self.lock();
        let number = s.urgent.ok_or(EINVAL)?;
        let is_it = |seg: &&mut Seg| seg.aside.as_ref().is_some_and(|a| a.number == number);
        let seg = s.segs.iter_mut().find(is_it).ok_or(EINVAL)?;
        let mut got = super::Got {
            cred: Some(seg.cred),
            ..super::Got::default()
        };
        let byte = seg.aside.as_ref().and_then(|a| a.byte).ok_or(EINVAL)?;
        let mut files = None;
        if take == Take::Out {
            files = seg.files.take();
            if let Some(a) = &mut seg.aside {
                a.byte = None;
            }
            s.urgent = None;
        } else if let Some(f) = &seg.files {
            got.files = f.peek();
        }
        drop(s);
        if let Some(f) = files {
            got.files = f.take();
        }
        got.n = if dst.remaining() > 0 {
            dst.put(&[byte])?
        } else {
            1
        };
        Ok(got)
    }

    /// Whether the reader stands at the mark (SIOCATMARK).
    pub fn is_at_mark(&self) -> bool {
        let s = self.lock();
        if let Some(m) = s.mark {
            return m.ahead == 0;
        }
        let mut pieces = s.segs.iter().map(|seg| seg.aside.as_ref());
        let Some(Some(first)) = pieces.next() else {
            return false;
        };
        let is_urgent = |a: &Aside| s.urgent == Some(a.number);
        match first.byte {
            Some(_) => is_urgent(first),
            None => s.urgent.is_none() || pieces.next().flatten().is_some_and(is_urgent),
        }
    }
}
