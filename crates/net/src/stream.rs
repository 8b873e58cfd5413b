//! One direction of a connection of bytes: a ring between a writer and a reader, with what each
//! side did to it. A connection is two of them.
//!
//! Its first bytes may be in a read slot of the reader's program ([`wait::read_slots`]). So the
//! state is reached by [`Half::lock`] alone, which revokes the slot first. While one is filled,
//! little is in the ring: what is taken of it does not change whether the writer may write. Urgent
//! bytes are in [`urgent`].

mod urgent;

pub use urgent::{AllButLast, Urgency};
use urgent::{Aside, Mark, Meets, Urgent};

use crate::control::Ucred;
use crate::inflight::InFlight;
use crate::lingering::Unacknowledged;
use crate::options::{Common, SO_PASSCRED, SO_PASSPIDFD};
use abi::Result;
use abi::errno::{EAGAIN, ENOBUFS, ENOMEM, EPIPE, Errno};
use ipc::ring::ByteRing;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering, fence};
use vfs::{File, Sink, Source};
use wait::Events;
use wait::read_slots::{ReadSlots, Remainder};

/// What the reader finds after the last byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Open,
    /// The writer said that it is done.
    Fin,
    /// The writer reset the connection.
    Reset,
}

/// See the module.
pub struct Half {
    state: Mutex<State>,
    /// Whether `state` has a filled slot, or one is being filled. Changed under `state`.
    filled: AtomicBool,
    pub reader: Arc<Common>,
    pub writer: Arc<Common>,
    /// UNIX: the reader's number, for files in flight.
    pub holder: u64,
    /// TCP: how far packet sockets have seen it.
    pub shown: AtomicU32,
    /// TCP: when the last bytes came, where the reader is told; nanoseconds of CLOCK_REALTIME.
    pub came: AtomicI64,
}

struct State {
    ring: ByteRing,
    /// UNIX: who wrote what, and with which files; covers the ring. TCP: empty.
    segs: VecDeque<Seg>,
    end: End,
    /// The reader will read no more: `shutdown(SHUT_RD)`.
    reader_shut: bool,
    /// The reader is gone.
    reader_closed: bool,
    /// The writer was told that nobody reads (a reset came back).
    writer_dead: bool,
    /// TCP's urgent mark.
    mark: Option<Mark>,
    /// UNIX: the number of the urgent piece, and the one to come.
    urgent: Option<u64>,
    asides: u64,
    slot: Option<FilledSlot>,
    /// What the last read took, and how many bytes the next fill may bring.
    last: usize,
    ahead: usize,
}

/// A fill of more is a copy that the reader may not want.
const LITTLE: usize = 1984;
/// What the slot of a reader in pieces is filled with, before it is known whether it takes it; and
/// in the end.
const FIRST: usize = 16 << 10;
const MOST: usize = 64 << 10;
/// What there is most room for.
const PIECE: usize = 8 << 10;

/// The ring's first `len` bytes are in this slot.
struct FilledSlot {
    slots: Arc<dyn ReadSlots>,
    slot: u32,
    number: u32,
    len: usize,
}

impl Seg {
    /// Whether more of a writer belongs to it.
    fn goes_on(&self, cred: Ucred) -> bool {
        self.files.is_none() && self.aside.is_none() && self.cred == cred
    }
}

impl State {
    /// Revokes the slot, and drops what was taken of it.
    fn revoke_slot(&mut self) {
        let Some(f) = self.slot.take() else { return };
        let mut n = f.slots.revoke(f.slot, f.number).min(f.len);
        if f.len > LITTLE && n == f.len {
            self.ahead = (self.ahead * 2).min(MOST);
        } else if n < f.len / 2 {
            self.ahead = (self.ahead / 2).max(LITTLE);
        }
        self.ring.consume(n);
        // None of these has files.
        while n > 0
            && let Some(s) = self.segs.front_mut()
        {
            let k = n.min(s.len);
            s.len -= k;
            n -= k;
            if s.len == 0 {
                self.segs.pop_front();
            }
        }
    }

    /// Takes `n` bytes of the first segment, which has so many; gives files that came with them.
    fn take_of_first(&mut self, n: usize, whole: usize) -> Option<InFlight> {
        let seg = self.segs.front_mut()?;
        let files = seg.files.take_if(|_| n > 0);
        if seg.aside.is_none() {
            self.ring.consume(n);
            seg.len -= n;
        }
        if n == whole {
            self.segs.pop_front();
        }
        files
    }

    /// A read took `n` bytes.
    fn was_read(&mut self, n: usize) {
        self.last = n;
        if self.ring.is_empty() {
            self.ahead = self.ahead.max(FIRST);
        }
    }
}

/// What a piece costs beyond its bytes.
const SEG: usize = 256;

/// A socket without memory says so in its own words.
fn no_room(e: Errno) -> Errno {
    if e == ENOMEM { ENOBUFS } else { e }
}

struct Seg {
    len: usize,
    cred: Ucred,
    files: Option<InFlight>,
    /// A byte that is not in the ring; `len` is 0 then.
    aside: Option<Aside>,
}

/// What a side of the direction looks like now.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub len: usize,
    pub end: End,
    pub reader_shut: bool,
    pub reader_closed: bool,
    pub writer_dead: bool,
    pub writable: bool,
    pub urgent: Urgent,
}

/// What a read on a UNIX stream gives.
#[derive(Default)]
pub struct Got {
    pub n: usize,
    pub files: Vec<Arc<File>>,
    pub cred: Option<Ucred>,
}

/// How a write to a reader that is gone ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReaderGone {
    /// UNIX: at once.
    Epipe,
    /// TCP: the bytes are taken, and a reset comes back.
    ResetLater,
}

/// Whose bytes one read of a UNIX stream gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    Any,
    /// One's: the reader asks who wrote.
    One,
}

/// Whether a read takes the bytes out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Take {
    Out,
    Peek,
}

impl Take {
    /// As the flags of a receive say.
    pub fn by(flags: u32) -> Take {
        match flags & crate::sys::MSG_PEEK {
            0 => Take::Out,
            _ => Take::Peek,
        }
    }
}

/// What a read takes from the state, to be looked at when that is free.
#[derive(Default)]
struct Left {
    /// Files that came with the bytes.
    arrived: Option<InFlight>,
    /// What came with an urgent byte that nobody reads: dropped.
    passed: Vec<Seg>,
}

impl Unacknowledged for Half {
    /// Of a direction that is over; the writer's queue is told of the change.
    fn awaits_the_last(&self) -> bool {
        let s = self.lock();
        self.is_ahead(&s)
    }
}

impl Half {
    pub fn new(writer: &Arc<Common>, reader: &Arc<Common>, holder: u64) -> Arc<Half> {
        Arc::new(Half {
            state: Mutex::new(State {
                ring: writer.user.get().map_or_else(ByteRing::new, ByteRing::of),
                segs: VecDeque::new(),
                end: End::Open,
                reader_shut: false,
                reader_closed: false,
                writer_dead: false,
                mark: None,
                urgent: None,
                asides: 0,
                slot: None,
                last: 0,
                ahead: FIRST,
            }),
            filled: AtomicBool::new(false),
            reader: reader.clone(),
            writer: writer.clone(),
            holder,
            shown: AtomicU32::new(0),
            came: AtomicI64::new(0),
        })
    }

    /// The state, with no slot filled.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut s = self.state.lock();
        if s.slot.is_some() {
            s.revoke_slot();
            self.filled.store(false, Ordering::SeqCst);
        }
        s
    }

    /// What was taken of the slot is taken here, too, and nothing more can be.
    pub fn revoke_slot(&self) {
        // `fill_slot` sets it, and then looks at what the caller has changed.
        fence(Ordering::SeqCst);
        if self.filled.load(Ordering::SeqCst) {
            drop(self.lock());
        }
    }

    /// Fills the reader's slot with what there is, if it is little and a read would give just that;
    /// and says that there is nothing more, where `nonblocking` says so, which is asked while a
    /// caller of [`Half::revoke_slot`] has to wait. Of more, the first bytes, to a reader that
    /// takes them in pieces.
    pub fn fill_slot(&self, slots: &Arc<dyn ReadSlots>, slot: u32, nonblocking: &dyn Fn() -> bool) {
        let mut s = self.lock();
        // Set first: whoever changes what is looked at below revokes the slot afterwards.
        self.filled.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let then = if nonblocking() {
            Remainder::Empty
        } else {
            Remainder::Ask
        };
        let all = s.ring.len();
        let most = self
            .most_to_fill(&s)
            .filter(|_| all > 0 || then == Remainder::Empty);
        for len in most.map_or([None; 2], |m| [Some(m), (m > PIECE).then_some(PIECE)]) {
            // A read of more than there is then would ask.
            let Some(len) = len.filter(|n| *n == all || (*n > 0 && *n >= s.last)) else {
                continue;
            };
            let then = if len < all {
                Remainder::More((all - len) as u32)
            } else {
                then
            };
            let (a, b) = s.ring.first(len);
            if let Some(number) = slots.fill(slot, [a, b], then) {
                let slots = slots.clone();
                s.slot = Some(FilledSlot {
                    slots,
                    slot,
                    number,
                    len,
                });
                return;
            }
        }
        self.filled.store(false, Ordering::SeqCst);
    }

    /// How many of the first bytes may be put into a slot, so that what is taken of them does not
    /// change whether the writer may write; `None` where nothing may be, not even that there is
    /// nothing.
    fn most_to_fill(&self, s: &State) -> Option<usize> {
        if s.end != End::Open
            || s.reader_shut
            || s.reader_closed
            || s.ring.is_stuck()
            || s.segs
                .iter()
                .any(|g| g.files.is_some() || g.aside.is_some())
            || s.mark.is_some()
            || self.reader.rcvlowat() > 1
            || self.reader.peeks.is_on()
            || self.reader.flag(SO_PASSCRED)
            || self.reader.flag(SO_PASSPIDFD)
            || self.reader.has_error()
        {
            return None;
        }
        let len = s.ring.len();
        let writable = self.writable(s);
        if len <= LITTLE {
            return writable.then_some(len);
        }
        let in_pieces = s.last > 0 && s.last * 2 <= s.ahead;
        if s.segs.len() > 1 || !(in_pieces || len <= PIECE.min(s.ahead)) {
            return None;
        }
        let most = if writable {
            len
        } else {
            len.checked_sub(self.full() + 1)?
        };
        Some(most.min(s.ahead))
    }

    /// How much may wait in the ring: what the sender may hold back and the receiver takes.
    fn capacity(&self) -> usize {
        if self.writer.family == crate::sys::AF_UNIX {
            return self.writer.sndbuf.load(Ordering::Relaxed) as usize;
        }
        self.writer.connected_sndbuf() as usize
            + self.reader.rcvbuf.load(Ordering::Relaxed) as usize
    }

    /// What of the capacity is taken. A piece with a sender or files of its own costs more than its
    /// bytes.
    fn taken(s: &State) -> usize {
        s.ring.len() + s.segs.len().saturating_sub(1) * SEG
    }

    fn writable(&self, s: &State) -> bool {
        !s.ring.is_stuck() && Self::taken(s) <= self.full()
    }

    /// Whether its last bytes would not be acknowledged yet, and the end after them: the reader's
    /// buffer has no room for them. (Half of it is for what Linux keeps beside the bytes.)
    fn is_ahead(&self, s: &State) -> bool {
        let buffer = self.reader.rcvbuf.load(Ordering::Relaxed) as usize;
        s.end == End::Fin && s.ring.len() > buffer / 2 && !s.reader_closed
    }

    /// With more in it nobody may write: a third is free before a writer wakes, for a worthwhile
    /// piece.
    fn full(&self) -> usize {
        self.capacity() * 2 / 3
    }

    /// As [`Half::view`], for what is no reader's: the slot stays filled. `len` may count bytes
    /// that were taken of it, which makes no difference to `writable`.
    pub fn ends(&self) -> View {
        let s = self.state.lock();
        self.view_of(&s)
    }

    pub fn view(&self) -> View {
        let s = self.lock();
        self.view_of(&s)
    }

    fn view_of(&self, s: &State) -> View {
        View {
            len: s.ring.len() + s.beside(),
            end: s.end,
            reader_shut: s.reader_shut,
            reader_closed: s.reader_closed,
            writer_dead: s.writer_dead,
            writable: self.writable(s),
            urgent: s.urgent(self.inline()),
        }
    }

    /// Writes what fits. UNIX gives the writer's identity and files, which are taken with the first
    /// byte.
    pub fn write(
        &self,
        src: &mut dyn Source,
        gone: ReaderGone,
        urgency: Urgency,
        mut tag: Option<(Ucred, &mut Option<InFlight>)>,
    ) -> Result<usize> {
        let n = {
            let mut s = self.lock();
            if s.end != End::Open || s.writer_dead {
                return Err(EPIPE);
            }
            if s.reader_closed && gone == ReaderGone::ResetLater {
                s.writer_dead = true;
                drop(s);
                let n = discard(src);
                self.fail_writer(EPIPE);
                return Ok(n);
            }
            if s.reader_closed || (s.reader_shut && gone == ReaderGone::Epipe) {
                return Err(EPIPE);
            }
            let free = self.capacity().saturating_sub(Self::taken(&s));
            if src.remaining() == 0 {
                return Ok(0);
            }
            if free == 0 {
                return Err(EAGAIN);
            }
            let n = s.ring.push_from(src, free).map_err(no_room)?;
            if urgency == Urgency::Last && n > 0 {
                s.mark_last(self.inline());
            }
            if let (Some((cred, files)), true) = (&mut tag, n > 0) {
                let files = files.take();
                match s.segs.back_mut() {
                    Some(b) if files.is_none() && b.goes_on(*cred) => b.len += n,
                    _ => s.segs.push_back(Seg {
                        len: n,
                        cred: *cred,
                        files,
                        aside: None,
                    }),
                }
            }
            n
        };
        if self.reader.stamps.of_arrivals() {
            let now = hostcall::time::clock_nanos(0);
            self.came.store(now, Ordering::Relaxed);
        }
        self.reader.notify(match urgency {
            Urgency::Plain => Events::READABLE,
            Urgency::Last => Events::READABLE | Events::PRI,
        });
        Ok(n)
    }

    /// Takes bytes out and wakes the writer when enough room appeared.
    fn taking<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut s = self.lock();
        let was = (self.writable(&s), self.is_ahead(&s));
        let r = f(&mut s);
        let is = (self.writable(&s), self.is_ahead(&s));
        drop(s);
        if (!was.0 && is.0) || (was.1 && !is.1) {
            self.writer.notify(Events::WRITABLE);
        }
        r
    }

    /// What a read finds when there are no bytes.
    fn empty(&self, s: &State) -> Result<usize> {
        if s.end == End::Fin {
            return Ok(0);
        }
        self.reader.take_error()?;
        if s.end == End::Reset || s.reader_shut {
            Ok(0)
        } else {
            Err(EAGAIN)
        }
    }

    /// Reads bytes (TCP). A peek passes over `skip` bytes.
    pub fn read(&self, dst: &mut dyn Sink, take: Take, skip: usize) -> Result<usize> {
        self.taking(|s| {
            let (past, most) = s.until_mark(self.inline());
            if dst.remaining() == 0 {
                return Ok(0);
            }
            if take == Take::Out && past > 0 {
                s.ring.consume(past);
                s.took(past);
            }
            let past = if take == Take::Peek { past + skip } else { 0 };
            if s.ring.len() <= past {
                return self.empty(s);
            }
            match take {
                Take::Out => {
                    let n = s.ring.pop_into(dst, most)?;
                    s.took(n);
                    s.was_read(n);
                    Ok(n)
                }
                Take::Peek => s.ring.peek_into(dst, past, most.saturating_sub(skip)),
            }
        })
    }

    /// Throws up to `n` bytes away (TCP's MSG_TRUNC).
    pub fn discard(&self, n: usize) -> Result<usize> {
        self.taking(|s| {
            let (past, most) = s.until_mark(self.inline());
            s.ring.consume(past);
            s.took(past);
            if s.ring.is_empty() {
                return self.empty(s);
            }
            let n = n.min(s.ring.len()).min(most);
            s.ring.consume(n);
            s.took(n);
            Ok(n)
        })
    }

    /// Reads bytes of a UNIX stream: ends after bytes that came with files, and, where the reader
    /// asks who wrote, before bytes of another writer.
    pub fn read_unix(
        &self,
        dst: &mut dyn Sink,
        (take, skip): (Take, Option<usize>),
        of: Writers,
    ) -> Result<Got> {
        let mut left = Left::default();
        let how = (take, skip.unwrap_or(0), of);
        let got = self.taking(|s| self.read_segments(s, dst, how, &mut left));
        drop(left.passed);
        let mut got = got?;
        if let Some(f) = left.arrived {
            got.files = f.take();
        }
        Ok(got)
    }

    /// What a read that has got so many bytes meets where a byte lies aside.
    fn meets(&self, s: &mut State, i: usize, got: usize, take: Take) -> Option<Meets> {
        let aside = s.segs.get_mut(i)?.aside.take()?;
        let meets = s.meet(&aside, got, take, self.inline());
        s.segs.get_mut(i)?.aside = Some(aside);
        Some(meets)
    }

    fn put_segment(
        ring: &ByteRing,
        dst: &mut dyn Sink,
        meets: Option<&Meets>,
        (from, len): (usize, usize),
    ) -> Result<usize> {
        match meets {
            Some(Meets::Byte(b)) if dst.remaining() > 0 => dst.put(&[*b]),
            Some(_) => Ok(0),
            None => ring.peek_into(dst, from, len),
        }
    }

    fn read_segments(
        &self,
        s: &mut State,
        dst: &mut dyn Sink,
        (take, mut skip, of): (Take, usize, Writers),
        left: &mut Left,
    ) -> Result<Got> {
        let mut got = Got::default();
        if s.segs.is_empty() {
            if dst.remaining() > 0 {
                self.empty(s)?;
            }
            return Ok(got);
        }
        let mut at = 0;
        let mut i = 0;
        while let Some(seg) = s.segs.get_mut(i) {
            if of == Writers::One && got.cred.is_some_and(|c| c != seg.cred) {
                break;
            }
            if dst.remaining() == 0 && got.n > 0 {
                break;
            }
            let whole = seg.aside.as_ref().map_or(seg.len, |_| 1);
            if take == Take::Peek && skip >= whole {
                (skip, at, i) = (skip - whole, at + seg.len, i + 1);
                continue;
            }
            let meets = self.meets(s, i, got.n, take);
            let Some(seg) = s.segs.get_mut(i) else { break };
            match meets {
                Some(Meets::End) => break,
                Some(Meets::Pass) if take == Take::Peek => {
                    i += 1;
                    continue;
                }
                Some(Meets::Pass) => {
                    left.passed.extend(s.segs.pop_front());
                    continue;
                }
                _ => {}
            }
            let from = if take == Take::Peek { at + skip } else { 0 };
            let len = seg.len - skip;
            let n = match Self::put_segment(&s.ring, dst, meets.as_ref(), (from, len)) {
                Ok(n) => n,
                Err(_) if got.n > 0 => break,
                Err(e) => return Err(e),
            };
            got.cred = Some(seg.cred);
            got.n += n;
            let mut stop = n < whole - skip;
            if take == Take::Peek {
                at += seg.len.min(skip + n);
                skip = 0;
                if let Some(f) = &seg.files {
                    got.files = f.peek();
                    stop = true;
                }
                i += 1;
            } else {
                left.arrived = s.take_of_first(n, whole);
                stop |= left.arrived.is_some();
            }
            if stop || n == 0 {
                break;
            }
        }
        if take == Take::Out {
            s.was_read(got.n);
        }
        if got.cred.is_none() && dst.remaining() > 0 {
            // There was nothing but what a read passes over.
            self.empty(s)?;
        }
        Ok(got)
    }

    /// The writer is done. Tells the reader.
    pub fn finish(&self, end: End) {
        {
            let mut s = self.lock();
            if s.end == End::Open {
                s.end = end;
            }
        }
        self.reader
            .notify(Events::READABLE | Events::RDHUP | Events::HUP);
    }

    /// The reader reads no more. Tells both.
    pub fn shut_reader(&self) {
        self.lock().reader_shut = true;
        self.reader
            .notify(Events::READABLE | Events::RDHUP | Events::HUP);
        self.writer
            .notify(Events::WRITABLE | Events::ERR | Events::HUP);
    }

    /// The reader goes away; whether bytes were left unread.
    pub fn close_reader(&self) -> bool {
        let segs;
        let unread;
        {
            let mut s = self.lock();
            s.reader_closed = true;
            unread = !s.ring.is_empty() || s.beside() > 0;
            s.ring.release();
            segs = std::mem::take(&mut s.segs);
        }
        drop(segs);
        self.writer.notify(Events::WRITABLE);
        unread
    }

    /// The writer learns that its bytes go nowhere: later writes fail.
    pub fn kill_writer(&self) {
        self.lock().writer_dead = true;
        self.writer
            .notify(Events::WRITABLE | Events::ERR | Events::HUP);
    }

    /// Sets the writer's pending error with the state that goes with it.
    pub fn fail_writer(&self, e: Errno) {
        self.writer.set_error(e);
        self.kill_writer();
    }

    /// The files that wait in it.
    pub fn take_in_flight(&self) -> Vec<InFlight> {
        self.lock()
            .segs
            .iter_mut()
            .filter_map(|s| s.files.take())
            .collect()
    }
}

/// Takes a source's bytes for nothing, a bounded number.
fn discard(src: &mut dyn Source) -> usize {
    let mut buf = [0; 4096];
    let mut n = 0;
    while n < 65536 {
        match src.take(&mut buf) {
            Ok(0) | Err(_) => break,
            Ok(k) => n += k,
        }
    }
    n
}
