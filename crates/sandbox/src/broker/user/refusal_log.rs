//! Telling of refusals: lines of JSON, and for the person what was refused first.

use egress::Refusal;
use egress::journal::Journal;
use hostcall::{HostFd, file, time};
use std::collections::HashSet;

/// How many different ones the person hears of.
const FIRST: usize = 8;

/// See the module.
#[derive(Default)]
pub struct RefusalLog {
    pub log: Option<HostFd>,
    pub first: Option<HostFd>,
    journal: Journal,
    named: HashSet<String>,
}

/// What a hint begins with, for the person who hears of refusals otherwise.
pub const HINT: char = '!';

impl RefusalLog {
    /// Something that the person may want to know; told once.
    pub fn hint(&mut self, text: &str) {
        if let Some(first) = &self.first
            && self.named.insert(text.to_owned())
        {
            let _ = file::write(first.raw(), format!("{HINT}{text}\n").as_bytes());
        }
    }

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
        let time = time::clock_nanos(libc::CLOCK_REALTIME) as u64 / 1_000_000_000;
        if let Some(text) = self.journal.line(refusal, now, time) {
            let _ = file::write(log.raw(), text.as_bytes());
        }
    }
}
