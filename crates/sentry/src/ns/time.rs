//! Time namespaces (`time_namespaces(7)`): CLOCK_MONOTONIC and CLOCK_BOOTTIME with offsets.
//!
//! - unshare(2) makes one for the caller's children; the caller stays, until it runs another
//!   program. Nobody comes into it who shares the memory of somebody outside: the memory's vDSO
//!   tells one time ([`platform::AddressSpace::own_clocks`]).
//! - Offsets are set as long as nobody is in the namespace.
//! - The Sentry's own times are the host's. What a task gives is brought to them, and what it gets
//!   from them, where a system call reads or writes an absolute time: [`TimeNs::offset`].

use super::{Ns, NsProxy};
use crate::task::{Context, Task};
use abi::Result;
use abi::errno::{EACCES, EINVAL, EPERM, ERANGE};
use abi::time::NSEC_PER_SEC;
use config::{TimeOffset, TimeOffsets};
use parking_lot::Mutex;
use std::sync::Arc;
use vfs::userns::{NsId, UserNs};

pub type TimeNs = Ns<Offsets>;

/// What a namespace adds to the host's clocks.
#[derive(Default)]
pub struct Offsets(Mutex<State>);

#[derive(Clone, Copy, Default)]
struct State {
    /// Nanoseconds, by [`Shifted`].
    by: [i64; 2],
    /// Somebody is in it.
    frozen: bool,
}

/// A clock that is shifted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shifted {
    Monotonic,
    Boottime,
}

impl Shifted {
    /// The one that a clock follows; `None` for those that are the same everywhere.
    #[must_use]
    pub const fn of(clock: i32) -> Option<Shifted> {
        match clock {
            1 | 4 | 6 => Some(Shifted::Monotonic),
            7 | 9 => Some(Shifted::Boottime),
            _ => None,
        }
    }
    fn id(self) -> i32 {
        match self {
            Shifted::Monotonic => 1,
            Shifted::Boottime => 7,
        }
    }
    fn named(name: &str) -> Option<Shifted> {
        match name {
            "monotonic" | "1" => Some(Shifted::Monotonic),
            "boottime" | "7" => Some(Shifted::Boottime),
            _ => None,
        }
    }
}

/// The longest time of a clock, seconds (`KTIME_SEC_MAX`).
const SECONDS_MAX: i64 = i64::MAX / NSEC_PER_SEC;

/// One line of `/proc/PID/timens_offsets`.
type Line = (Shifted, i64, i64);

fn line(text: &str) -> Result<Line> {
    let mut words = text.split_ascii_whitespace();
    let mut word = || words.next().ok_or(EINVAL);
    let clock = Shifted::named(word()?).ok_or(EINVAL)?;
    // What is too large for a number is out of range.
    let sec: i128 = word()?.parse().map_err(|_| EINVAL)?;
    let sec = i64::try_from(sec).unwrap_or(i64::MAX);
    let nsec = word()?.parse().map_err(|_| EINVAL)?;
    if !(0..NSEC_PER_SEC).contains(&nsec) {
        return Err(EINVAL);
    }
    Ok((clock, sec, nsec))
}

/// The lines of a write, two at most, and how many bytes they are (`timens_offsets_write`).
fn lines(text: &str) -> Result<(Vec<Line>, usize)> {
    let (mut all, mut taken) = (Vec::new(), 0);
    for part in text.split_inclusive('\n') {
        all.push(line(part.trim_end_matches('\n'))?);
        taken += part.len();
        if all.len() == 2 {
            return Ok((all, taken));
        }
    }
    if all.is_empty() {
        return Err(EINVAL);
    }
    Ok((all, text.len()))
}

impl Offsets {
    fn state(&self) -> State {
        *self.0.lock()
    }
    /// As a new namespace has them.
    #[must_use]
    pub fn copy(&self) -> Offsets {
        Offsets(Mutex::new(State {
            frozen: false,
            ..self.state()
        }))
    }
    /// What the namespace adds to a clock, nanoseconds.
    #[must_use]
    pub fn offset(&self, clock: i32) -> i64 {
        Shifted::of(clock).map_or(0, |c| self.state().by[c as usize])
    }
    /// An absolute time of a clock as the host has it (`timens_ktime_to_host`).
    #[must_use]
    pub fn to_host(&self, clock: i32, nanos: i64) -> i64 {
        nanos.saturating_sub(self.offset(clock)).max(0)
    }
    /// `/proc/PID/timens_offsets`.
    #[must_use]
    pub fn text(&self) -> String {
        let by = self.state().by;
        let one = |name: &str, n: i64| {
            let (s, ns) = (n.div_euclid(NSEC_PER_SEC), n.rem_euclid(NSEC_PER_SEC));
            format!("{name:<10} {s:>10} {ns:>9}\n")
        };
        one("monotonic", by[0]) + &one("boottime", by[1])
    }
    /// A write to it by somebody who `may` (`EPERM`); gives how much was taken. `EACCES` once
    /// somebody is in the namespace, `ERANGE` for clocks that would be negative, or near their end.
    pub fn set(&self, data: &[u8], may: impl FnOnce() -> bool) -> Result<usize> {
        let (lines, taken) = lines(std::str::from_utf8(data).map_err(|_| EINVAL)?)?;
        if !may() {
            return Err(EPERM);
        }
        self.put(&lines)?;
        Ok(taken)
    }
    fn put(&self, lines: &[Line]) -> Result<()> {
        for (clock, sec, nsec) in lines {
            if !(-SECONDS_MAX..=SECONDS_MAX).contains(sec) {
                return Err(ERANGE);
            }
            let now = hostcall::time::clock_nanos(clock.id());
            let carry = (now % NSEC_PER_SEC + nsec) / NSEC_PER_SEC;
            let then = now / NSEC_PER_SEC + carry + sec;
            if !(0..=SECONDS_MAX / 2).contains(&then) {
                return Err(ERANGE);
            }
        }
        let mut state = self.0.lock();
        if state.frozen {
            return Err(EACCES);
        }
        for (clock, sec, nsec) in lines {
            // (At most half of what there is, in both directions.)
            state.by[*clock as usize] = sec.saturating_mul(NSEC_PER_SEC).saturating_add(*nsec);
        }
        Ok(())
    }
    /// As a bundle says them: `ERANGE` as [`Offsets::set`].
    pub fn at_start(t: &TimeOffsets) -> Result<Offsets> {
        let own = Offsets::default();
        own.take_over(t)?;
        Ok(own)
    }
    /// The same for a namespace that nobody is in.
    pub fn take_over(&self, t: &TimeOffsets) -> Result<()> {
        let of = |c, by: TimeOffset| (c, by.secs, i64::from(by.nanosecs));
        self.put(&[
            of(Shifted::Monotonic, t.monotonic),
            of(Shifted::Boottime, t.boottime),
        ])
    }
    /// Somebody comes into it.
    fn freeze(&self) {
        self.0.lock().frozen = true;
    }
}

/// The number of the first one.
const INITIAL: u32 = 0xefff_fffa;

/// That of a first container which has one of its own.
const OWN: u32 = 0xefff_fff0;

/// The one that all begin in.
#[must_use]
pub fn initial() -> Arc<TimeNs> {
    let offsets = Offsets::default();
    offsets.freeze();
    Ns::new(NsId::initial(INITIAL), &UserNs::default(), offsets)
}

impl TimeNs {
    /// Whether its clocks are the host's.
    #[must_use]
    pub fn is_initial(&self) -> bool {
        self.id.ino == INITIAL
    }
}

impl NsProxy {
    /// With a time namespace of its own, for the first container.
    #[must_use]
    pub fn with_first_time(self: &Arc<Self>, offsets: Offsets) -> Arc<NsProxy> {
        let own = Ns::new(NsId::initial(OWN), &UserNs::default(), offsets);
        let new = Arc::new(NsProxy {
            time_for_children: own,
            ..NsProxy::clone(self)
        });
        new.with_childrens_time()
    }
    /// Whether its holder's children are in another time namespace.
    #[must_use]
    pub fn changes_time(&self) -> bool {
        !Arc::ptr_eq(&self.time, &self.time_for_children)
    }
    /// With the time of its holder's children.
    #[must_use]
    pub fn with_childrens_time(self: &Arc<Self>) -> Arc<NsProxy> {
        if !self.changes_time() {
            return self.clone();
        }
        self.time_for_children.freeze();
        Arc::new(NsProxy {
            time: self.time_for_children.clone(),
            ..NsProxy::clone(self)
        })
    }
}

impl Task {
    /// What the task's namespace adds to a clock, nanoseconds.
    #[must_use]
    pub fn clock_offset(&self, clock: i32) -> i64 {
        let ns = self.ns();
        if ns.time.is_initial() {
            0
        } else {
            ns.time.offset(clock)
        }
    }
    /// An absolute time of the task's as the host has it.
    #[must_use]
    pub fn to_host(&self, clock: i32, nanos: i64) -> i64 {
        let ns = self.ns();
        if ns.time.is_initial() {
            nanos
        } else {
            ns.time.to_host(clock, nanos)
        }
    }
}

/// `setns(2)`: the caller's memory tells the time of the namespace from here on.
pub fn enter(cx: &Context, ns: &Arc<TimeNs>) -> Result<()> {
    if !ns.is_initial() {
        cx.mm().address_space().own_clocks()?;
    }
    ns.freeze();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_linux_does() {
        let o = Offsets::default();
        let set = |o: &Offsets, data: &[u8]| o.set(data, || true);
        assert_eq!(set(&o, b"monotonic 10 5\nboottime 7 0\n"), Ok(28));
        assert_eq!(
            (o.offset(1), o.offset(6), o.offset(9)),
            (
                10 * NSEC_PER_SEC + 5,
                10 * NSEC_PER_SEC + 5,
                7 * NSEC_PER_SEC
            )
        );
        assert_eq!(o.offset(0), 0);
        assert_eq!(o.to_host(7, 1), 0);
        for bad in [
            "",
            "x 1 2",
            "monotonic 1",
            "1 1 1000000000",
            "1 1 -1",
            "boottime x 0",
            "\n",
        ] {
            assert_eq!(set(&o, bad.as_bytes()), Err(EINVAL), "{bad:?}");
        }
        assert_eq!(set(&o, b"1 9223372037 0"), Err(ERANGE));
        assert_eq!(set(&o, b"7 -4000000000 0"), Err(ERANGE));
        assert_eq!(set(&o, b"1 1 0\n7 1 0\n1 2 0\n"), Ok(12));
        assert_eq!(
            o.copy().text(),
            "monotonic           1         0\nboottime            1         0\n"
        );
        o.freeze();
        assert_eq!(set(&o, b"1 1 0"), Err(EACCES));
    }
}
