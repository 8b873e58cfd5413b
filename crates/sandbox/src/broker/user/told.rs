//! Telling of refusals: lines of JSON, and for the person what was refused first.

use egress::Refusal;
use hostcall::{HostFd, file, time};
use std::collections::HashSet;

/// Lines that a second may have; the rest is counted.
const A_SECOND: u32 = 100;
/// How many different ones the person hears of.
const FIRST: usize = 8;

/// See the module.
#[derive(Default)]
pub struct Told {
    pub log: Option<HostFd>,
    pub first: Option<HostFd>,
    second: u64,
    lines: u32,
    left_out: u64,
    named: HashSet<String>,
}

impl Told {
    /// Something was refused; `now` in seconds of a clock that only goes on.
    pub fn tell(&mut self, refusal: &Refusal, now: u64) {
        if let Some(first) = &self.first
            && self.named.len() < FIRST
        {
            let wanted = refusal.wanted();
            if self.named.insert(wanted.clone()) {
                // (Who does not read it has had enough.)
                let _ = file::write(first.raw(), format!("{wanted}\n").as_bytes());
            }
        }
        let Some(log) = &self.log else { return };
        if self.second != now {
            self.second = now;
            self.lines = 0;
        }
        self.lines += 1;
        if self.lines > A_SECOND {
            self.left_out += 1;
            return;
        }
        let time = time::clock_nanos(libc::CLOCK_REALTIME) as u64 / 1_000_000_000;
        let mut text = String::new();
        if self.left_out > 0 {
            text = format!(
                "{{\"time\":{time},\"refused\":\"others\",\"count\":{}}}\n",
                self.left_out
            );
            self.left_out = 0;
        }
        text += &refusal.line(time);
        let _ = file::write(log.raw(), text.as_bytes());
    }
}
