//! What the kernel tells of a container, as its programs read it: `syslog(2)`, dmesg(1)
//! (`kernel/printk/printk.c`).
//!
//! Lines of text, each with its level and time. The oldest go where there are too many. Positions
//! are counted from the first byte that there ever was.

use crate::ns::uts;
use abi::Result;
use abi::errno::EAGAIN;
use parking_lot::Mutex;
use std::collections::VecDeque;
use wait::{Events, WaitQueue};

/// The most bytes that are kept.
pub const SIZE: usize = 64 << 10;

/// A line's importance (`KERN_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Error = 3,
    Info = 6,
}

#[derive(Default)]
struct State {
    text: VecDeque<u8>,
    /// The position of its first byte.
    start: u64,
    /// What SYSLOG_ACTION_READ gives next.
    read: u64,
    /// SYSLOG_ACTION_READ_ALL begins here.
    cleared: u64,
}

impl State {
    fn end(&self) -> u64 {
        self.start + self.text.len() as u64
    }
    /// The bytes from a position on, at most `max`.
    fn from(&self, at: u64, max: usize) -> Vec<u8> {
        let skip = at.saturating_sub(self.start) as usize;
        self.text.iter().skip(skip).take(max).copied().collect()
    }
    /// The start of the first line from which on at most `max` bytes follow.
    fn last_lines(&self, max: usize) -> u64 {
        let from = self.cleared.max(self.start);
        let least = self.end().saturating_sub(max as u64);
        if least <= from {
            return from;
        }
        let skip = (least - self.start) as usize - 1;
        let line = self.text.iter().skip(skip).position(|b| *b == b'\n');
        line.map_or(self.end(), |n| least + n as u64)
    }
}

/// The log. Its lock is a leaf.
#[derive(Default)]
pub struct KernelLog {
    state: Mutex<State>,
    pub queue: WaitQueue,
}

impl KernelLog {
    /// With its first line.
    #[must_use]
    pub fn begun() -> KernelLog {
        let log = KernelLog::default();
        let (release, version) = (uts::RELEASE, uts::VERSION);
        let line = format!("Linux version {release} (x86_64) {version}");
        log.tell(Level::Info, 0, &line);
        log
    }

    /// Appends a line; `at`: nanoseconds since the start.
    pub fn tell(&self, level: Level, at: i64, line: &str) {
        let (s, us) = (at / 1_000_000_000, at / 1000 % 1_000_000);
        let line = format!("<{}>[{s:5}.{us:06}] {line}\n", level as u8);
        {
            let st = &mut *self.state.lock();
            st.text.extend(line.as_bytes());
            while st.text.len() > SIZE {
                let first = st.text.iter().position(|b| *b == b'\n');
                let gone = first.map_or(st.text.len(), |n| n + 1);
                st.text.drain(..gone);
                st.start += gone as u64;
            }
            st.read = st.read.max(st.start);
        }
        self.queue.notify(Events::READABLE);
    }

    /// Takes up to `max` bytes that nobody has read; `EAGAIN` where there are none.
    pub fn take(&self, max: usize) -> Result<Vec<u8>> {
        let mut s = self.state.lock();
        let out = s.from(s.read, max);
        s.read += out.len() as u64;
        if out.is_empty() { Err(EAGAIN) } else { Ok(out) }
    }

    /// The last lines, of at most `max` bytes together.
    #[must_use]
    pub fn last(&self, max: usize) -> Vec<u8> {
        let s = self.state.lock();
        s.from(s.last_lines(max), max)
    }

    /// [`KernelLog::last`] begins after what there is now.
    pub fn clear(&self) {
        let mut s = self.state.lock();
        s.cleared = s.end();
    }

    /// How many bytes nobody has taken.
    #[must_use]
    pub fn unread(&self) -> usize {
        let s = self.state.lock();
        (s.end() - s.read) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_whole_and_taken_once() {
        let l = KernelLog::default();
        assert_eq!(l.take(10), Err(EAGAIN));
        l.tell(Level::Info, 1_002_003_000, "one");
        l.tell(Level::Error, 61_000_000_000, "two");
        let (one, two) = ("<6>[    1.002003] one\n", "<3>[   61.000000] two\n");
        let all = format!("{one}{two}").into_bytes();
        assert_eq!(l.unread(), all.len());
        assert_eq!(l.last(1000), all);
        assert_eq!(l.last(all.len()), all);
        assert_eq!(l.last(all.len() - 1), two.as_bytes());
        assert_eq!(l.last(two.len()), two.as_bytes());
        assert_eq!(l.last(two.len() - 1), b"");
        assert_eq!(l.take(4).unwrap(), b"<6>[");
        assert_eq!(l.take(1000).unwrap(), &all[4..]);
        assert_eq!(l.unread(), 0);
        l.clear();
        assert_eq!(l.last(1000), b"");
        l.tell(Level::Info, 0, "three");
        assert_eq!(l.last(1000), b"<6>[    0.000000] three\n");
    }

    #[test]
    fn the_oldest_go() {
        let l = KernelLog::default();
        let text = "x".repeat(1000);
        for _ in 0..100 {
            l.tell(Level::Info, 0, &text);
        }
        let all = l.last(usize::MAX);
        assert!(all.len() <= SIZE && all.len() > SIZE - 1100);
        assert!(all.starts_with(b"<6>") && all.ends_with(b"x\n"));
        assert_eq!(l.unread(), all.len());
    }
}
