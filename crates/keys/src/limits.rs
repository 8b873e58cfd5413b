//! What users' keys may take (`kernel.keys`).

use std::sync::atomic::{AtomicI64, Ordering};

/// A setting of `/proc/sys/kernel/keys`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    MaxKeys,
    MaxBytes,
    RootMaxKeys,
    RootMaxBytes,
    /// Seconds for which a key that has ended can be seen.
    GcDelay,
    /// Seconds after which an unused persistent keyring goes.
    PersistentExpiry,
}

impl Setting {
    pub const ALL: [Setting; 6] = [
        Setting::GcDelay,
        Setting::MaxBytes,
        Setting::MaxKeys,
        Setting::PersistentExpiry,
        Setting::RootMaxBytes,
        Setting::RootMaxKeys,
    ];
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Setting::MaxKeys => "maxkeys",
            Setting::MaxBytes => "maxbytes",
            Setting::RootMaxKeys => "root_maxkeys",
            Setting::RootMaxBytes => "root_maxbytes",
            Setting::GcDelay => "gc_delay",
            Setting::PersistentExpiry => "persistent_keyring_expiry",
        }
    }
    /// The least that it may be.
    #[must_use]
    pub const fn least(self) -> i64 {
        match self {
            Setting::GcDelay | Setting::PersistentExpiry => 0,
            _ => 1,
        }
    }
}

/// Their values.
#[derive(Debug)]
pub struct Limits([AtomicI64; 6]);

impl Default for Limits {
    fn default() -> Limits {
        let l = Limits(Default::default());
        l.set(Setting::MaxKeys, 200);
        l.set(Setting::MaxBytes, 20_000);
        l.set(Setting::RootMaxKeys, 1_000_000);
        l.set(Setting::RootMaxBytes, 25_000_000);
        l.set(Setting::GcDelay, 5 * 60);
        l.set(Setting::PersistentExpiry, 3 * 24 * 3600);
        l
    }
}

impl Limits {
    #[must_use]
    pub fn get(&self, s: Setting) -> i64 {
        self.0[s as usize].load(Ordering::Relaxed)
    }
    pub fn set(&self, s: Setting, value: i64) {
        self.0[s as usize].store(value, Ordering::Relaxed);
    }
    /// How many keys and bytes a user may have.
    pub(crate) fn of(&self, uid: u32) -> (u64, u64) {
        let (keys, bytes) = match uid {
            0 => (Setting::RootMaxKeys, Setting::RootMaxBytes),
            _ => (Setting::MaxKeys, Setting::MaxBytes),
        };
        let value = |s| u64::try_from(self.get(s)).unwrap_or(0);
        (value(keys), value(bytes))
    }
    pub(crate) fn gc_delay(&self) -> i64 {
        self.get(Setting::GcDelay)
    }
}
