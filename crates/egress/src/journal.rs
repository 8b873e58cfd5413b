//! The lines of a log of refusals, at a pace that nobody can raise, and not for ever: a program
//! that is refused all the time fills no disk.

use crate::refusal::Refusal;

/// Lines that a second may have; the rest is counted.
const A_SECOND: u32 = 100;
/// Bytes of a sandbox's lines. After that only numbers are told.
const MOST: u64 = 64 << 20;
/// Seconds between two of these.
const SELDOM: u64 = 60;

/// See the module.
#[derive(Debug, Default)]
pub struct Journal {
    second: u64,
    lines: u32,
    left_out: u64,
    bytes: u64,
    next_number: u64,
}

impl Journal {
    /// What is to be written of a refusal, if anything: `now` in seconds of a clock that only goes
    /// on, `time` in seconds since 1970.
    pub fn line(&mut self, refusal: &Refusal, now: u64, time: u64) -> Option<String> {
        if self.bytes >= MOST {
            self.left_out += 1;
            if now < self.next_number {
                return None;
            }
            self.next_number = now + SELDOM;
            return Some(self.number(time));
        }
        if self.second != now {
            self.second = now;
            self.lines = 0;
        }
        self.lines += 1;
        if self.lines > A_SECOND {
            self.lines = A_SECOND + 1;
            self.left_out += 1;
            return None;
        }
        let mut text = match self.left_out {
            0 => String::new(),
            _ => self.number(time),
        };
        text += &refusal.line(time);
        self.bytes += text.len() as u64;
        Some(text)
    }

    /// How many were left out.
    fn number(&mut self, time: u64) -> String {
        let count = std::mem::take(&mut self.left_out);
        format!("{{\"time\":{time},\"refused\":\"others\",\"count\":{count}}}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;

    #[test]
    fn so_many_a_second() {
        let mut j = Journal::default();
        let r = Refusal::Name {
            name: "a.org".into(),
            reason: Reason::NotAllowed,
        };
        let told = (0..1000).filter(|_| j.line(&r, 5, 0).is_some()).count();
        assert_eq!(told, A_SECOND as usize);
        let next = j.line(&r, 6, 0).unwrap();
        assert!(next.contains("\"count\":900"), "{next}");
        assert_eq!(next.lines().count(), 2);
    }

    #[test]
    fn no_disk_is_filled() {
        let mut j = Journal::default();
        let r = Refusal::Name {
            name: "a".repeat(253),
            reason: Reason::NotAllowed,
        };
        let day = 24 * 3600;
        let (mut told, mut last) = (0, String::new());
        for second in 0..day {
            for _ in 0..2 * A_SECOND {
                if let Some(l) = j.line(&r, second, 0) {
                    told += l.len() as u64;
                    last = l;
                }
            }
        }
        assert!(told < MOST + (1 << 20), "{told}");
        assert!(last.contains("\"count\":12000}"), "{last}");
    }
}
