//! `/proc/keys` and `/proc/key-users` (`security/keys/proc.c`).

use crate::access::Ref;
use crate::act::Act;
use crate::key::*;
use crate::possession::Possessed;
use parking_lot::MutexGuard;
use std::fmt::Write as _;

/// What is left of a key's time, as `/proc/keys` tells it.
fn time_left(expiry: i64, now: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    if expiry == NEVER {
        return "perm".into();
    }
    match expiry.saturating_sub(now) {
        ..=0 => "expd".into(),
        t if t < MINUTE => format!("{t}s"),
        t if t < HOUR => format!("{}m", t / MINUTE),
        t if t < DAY => format!("{}h", t / HOUR),
        t if t < 7 * DAY => format!("{}d", t / DAY),
        t => format!("{}w", t / (7 * DAY)),
    }
}

impl Act<'_> {
    /// A line for each key that the task may view. Whoever waits for the keys goes between.
    #[must_use]
    pub fn show_keys(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        let possessed = self.possessed();
        let mut next = Some(Serial::MIN);
        while let Some(from) = next {
            next = self.show_some(from, &possessed, &mut text);
            MutexGuard::bump(&mut self.state);
        }
        text
    }
    /// Some keys, from this number on. The number to go on with, where there are more.
    fn show_some(&self, from: Serial, all: &Possessed, text: &mut Vec<u8>) -> Option<Serial> {
        const AT_ONCE: usize = 256;
        let is_here = |key: &Key| self.cred.user_ns.uid_number(key.uid).is_some();
        let mut keys = self.state.keys.range(from..);
        for (k, key) in keys.by_ref().take(AT_ONCE) {
            let r = Ref {
                serial: *k,
                possessed: self.is_among(*k, key, all),
            };
            if is_here(key) && self.permits(r, VIEW).is_ok() {
                self.show(*k, key, text);
            }
        }
        keys.next().map(|(k, _)| *k)
    }
    fn show(&self, k: Serial, key: &Key, text: &mut Vec<u8>) {
        let flag = |is: bool, letter: char| if is { letter } else { '-' };
        let ns = &self.cred.user_ns;
        let head = format!(
            "{k:08x} I{}-{}-{}{} {:5} {:>4} {:08x} {:5} {:5} {:<9.9} ",
            flag(key.revoked, 'R'),
            flag(key.in_quota, 'Q'),
            flag(key.negative.is_some(), 'N'),
            flag(key.invalidated, 'i'),
            key.parents.len() + key.holds,
            time_left(key.expiry, self.now),
            key.permissions,
            ns.uid_shown(key.uid),
            key.gid_shown(ns),
            key.kind.name(),
        );
        text.extend_from_slice(head.as_bytes());
        text.extend_from_slice(&key.description);
        let rest = match (key.negative, key.kind, key.len()) {
            (Some(_), ..) => String::new(),
            (_, Type::Keyring, 0) => ": empty".into(),
            (_, _, n) => format!(": {n}"),
        };
        text.extend_from_slice(rest.as_bytes());
        text.push(b'\n');
    }
    /// A line for each user with keys.
    #[must_use]
    pub fn show_users(&self) -> Vec<u8> {
        let mut text = String::new();
        for (uid, o) in &self.state.owners {
            let Some(number) = self.cred.user_ns.uid_number(*uid) else {
                continue;
            };
            let (keys, bytes) = self.keys.limits.of(*uid);
            let _ = writeln!(
                text,
                "{number:5}: {:5} {}/{} {}/{keys} {}/{bytes}",
                o.keys, o.keys, o.keys, o.counted_keys, o.counted_bytes
            );
        }
        text.into_bytes()
    }
}
