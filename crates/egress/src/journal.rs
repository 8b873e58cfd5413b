//! The lines of a log of refusals, at a pace that nobody can raise.

use crate::refusal::Refusal;

/// Lines that a second may have; the rest is counted.
const A_SECOND: u32 = 100;

/// See the module.
#[derive(Debug, Default)]
pub struct Journal {
    second: u64,
    lines: u32,
    left_out: u64,
}

impl Journal {
    /// What is to be written of a refusal, if anything: `now` in seconds of a clock that only goes on,
    /// `time` in seconds since 1970.
    pub fn line(&mut self, refusal: &Refusal, now: u64, time: u64) -> Option<String> {
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
        let mut text = String::new();
        if self.left_out > 0 {
            let count = std::mem::take(&mut self.left_out);
            text = format!("{{\"time\":{time},\"refused\":\"others\",\"count\":{count}}}\n");
        }
        Some(text + &refusal.line(time))
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
}
