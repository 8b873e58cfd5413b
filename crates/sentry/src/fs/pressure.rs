//! Who waits for a lack of memory, by files that tell of it (Documentation/accounting/psi.rst,
//! kernel/sched/psi.c): an open file takes one trigger, and poll(2) says POLLPRI when it has told.

use crate::container::Container;
use abi::Result;
use abi::errno::{EBUSY, EINVAL, ENODEV, ENOMEM};
use clas::{AccountId, Clas, Part, Threshold, Trigger};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vfs::file::File;
use vfs::fs::dynamic::DynFile;
use vfs::notice::{Notice, Seen};
use vfs::ucounts::Charge;
use vfs::{Caller, Caps, Perm};
use wait::Events;

/// What a trigger takes of the kernel's memory, bytes.
const TRIGGER: usize = 256;
/// The longest window.
const LONGEST: Duration = Duration::from_secs(10);
/// How often averages change: without privilege a window is a multiple of it.
const PERIOD: Duration = Duration::from_secs(2);
/// How much of a text is looked at in /proc, with the end that it loses.
const TEXT: usize = 32;

/// `some|full LOST WINDOW`, microseconds (`psi_trigger_create`).
fn threshold(text: &str, is_privileged: bool) -> Result<Threshold> {
    let (part, rest) = match text.split_at_checked(4).ok_or(EINVAL)? {
        ("some", rest) => (Part::Some, rest),
        ("full", rest) => (Part::Full, rest),
        _ => return Err(EINVAL),
    };
    let (lost, rest) = micros(rest)?;
    let (window, _) = micros(rest)?;
    if window.is_zero() || window > LONGEST || lost.is_zero() || lost > window {
        return Err(EINVAL);
    }
    if !is_privileged && !window.as_micros().is_multiple_of(PERIOD.as_micros()) {
        return Err(EINVAL);
    }
    Ok(Threshold { part, lost, window })
}

/// A number as the kernel's `sscanf` reads it for `%u`, of 32 bits, and what follows.
fn micros(text: &str) -> Result<(Duration, &str)> {
    let text = text.trim_ascii_start();
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    if digits.is_empty() {
        return Err(EINVAL);
    }
    let more = |n: u32, d: u8| n.wrapping_mul(10).wrapping_add((d - b'0').into());
    let n = digits.bytes().fold(0, more);
    Ok((Duration::from_micros(n.into()), rest))
}

/// What an open file waits for.
pub struct Alarm {
    notice: Arc<Notice>,
    /// `None` in it: of what nothing is told.
    set: Mutex<Option<(Option<Trigger>, Charge)>>,
    /// What it was set for is gone. Atomic.
    has_ended: AtomicBool,
}

impl Default for Alarm {
    fn default() -> Alarm {
        Alarm {
            notice: Notice::new(Seen::AtPoll),
            set: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }
    }
}

impl Alarm {
    pub fn notice(&self) -> &Arc<Notice> {
        &self.notice
    }

    /// Takes what was written: `EBUSY` where it has a trigger. Without an account it never tells.
    pub fn set(&self, of: Option<(&Arc<Clas>, AccountId)>, file: &File, text: &str) -> Result<()> {
        let mut set = self.set.lock();
        if set.is_some() {
            return Err(EBUSY);
        }
        let is_privileged = file.cred.effective.contains(Caps::SYS_RESOURCE);
        let threshold = threshold(text, is_privileged)?;
        let charge = file.cred.kmem(TRIGGER, ENOMEM)?;
        let trigger = of.map(|(clas, id)| {
            let notice = Arc::downgrade(&self.notice);
            clas.add_trigger(id, threshold, move || {
                if let Some(n) = notice.upgrade() {
                    n.tell_here();
                }
            })
        });
        *set = Some((trigger, charge));
        Ok(())
    }

    /// There is nothing to wait for any more (`psi_trigger_destroy`). Any lock may be held.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.notice.tell();
    }

    /// What poll(2) says more (`psi_trigger_poll`).
    pub fn poll(&self, seen: &AtomicU64) -> Events {
        let new = self.notice.poll(seen);
        if self.has_ended.load(Ordering::SeqCst) {
            return Notice::EVENTS;
        }
        match self.set.lock().is_some() {
            true => new - Events::ERR,
            false => Notice::EVENTS,
        }
    }
}

/// A file of `/proc/pressure`.
pub(super) struct PressureFile {
    container: Weak<Container>,
    /// The host's stalls for its CPUs and devices are not told.
    is_memory: bool,
    /// Of an open file.
    alarm: Option<Alarm>,
}

impl PressureFile {
    pub(super) fn new(c: &Arc<Container>, is_memory: bool) -> PressureFile {
        PressureFile {
            container: Arc::downgrade(c),
            is_memory,
            alarm: None,
        }
    }
}

impl DynFile for PressureFile {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o666,
            uid: 0,
            gid: 0,
        }
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        let of = self.container.upgrade().filter(|_| self.is_memory);
        let pressure = of.map_or_else(Default::default, |c| c.clas.pressure());
        Ok(pressure.to_string().into_bytes())
    }
    fn bound(&self, _: &Caller<'_>) -> Result<Option<Arc<dyn DynFile>>> {
        Ok(Some(Arc::new(PressureFile {
            container: self.container.clone(),
            is_memory: self.is_memory,
            alarm: Some(Alarm::default()),
        })))
    }
    fn notice(&self) -> Option<&Arc<Notice>> {
        self.alarm.as_ref().map(Alarm::notice)
    }
    fn poll(&self, seen: &AtomicU64) -> Events {
        let alarm = self.alarm.as_ref();
        alarm.map_or(Events::empty(), |a| a.poll(seen))
    }
    fn write(&self, file: &File, data: &[u8], _: u64) -> Result<usize> {
        let alarm = self.alarm.as_ref().ok_or(EINVAL)?;
        let kept = data.len().min(TEXT).checked_sub(1).ok_or(EINVAL)?;
        let text = data[..kept].split(|b| *b == 0).next().unwrap_or_default();
        let text = std::str::from_utf8(text).map_err(|_| EINVAL)?;
        let c = self.container.upgrade().ok_or(ENODEV)?;
        let of = self.is_memory.then_some((&c.clas, AccountId::ROOT));
        alarm.set(of, file, text)?;
        Ok(data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read_as_linux_reads_them() {
        let of = |part, lost, window| Threshold {
            part,
            lost: Duration::from_micros(lost),
            window: Duration::from_micros(window),
        };
        let full = of(Part::Full, 100_000, 2_000_000);
        assert_eq!(threshold("full 100000 2000000\n", false), Ok(full));
        assert_eq!(threshold("full\t100000 2000000x", false), Ok(full));
        assert_eq!(
            threshold("some 150000 1000000", true),
            Ok(of(Part::Some, 150_000, 1_000_000))
        );
        for wrong in [
            "some 150000 1000000",
            "some 0 2000000",
            "some 2000001 2000000",
            "some 1 10000001",
            " some 1 2000000",
            "some",
            "some 1",
            "so",
            "some 1 0",
            "some -1 2000000",
        ] {
            assert_eq!(threshold(wrong, false), Err(EINVAL), "{wrong}");
        }
    }
}
