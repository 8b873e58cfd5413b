//! Limits of a container's resources.

use serde::{Deserialize, Serialize};

/// The lowest limit of memory, of a container or a process, in bytes: what a shell needs to say
/// that it has no more.
pub const LEAST_MEMORY: u64 = 1 << 20;
/// As many CPUs as a host has at most.
const CPUS_MAX: u32 = 8192;

/// How it is chosen what is swapped out (docs/replacement.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    #[default]
    Reservation,
    Lru,
    Clock,
    Priority,
    WorkingSet,
}

impl Replacement {
    /// All there are, by name.
    pub const ALL: [(&'static str, Replacement); 5] = [
        ("reservation", Replacement::Reservation),
        ("lru", Replacement::Lru),
        ("clock", Replacement::Clock),
        ("priority", Replacement::Priority),
        ("working-set", Replacement::WorkingSet),
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        Replacement::ALL
            .iter()
            .find(|(_, r)| *r == self)
            .map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for Replacement {
    type Err = String;

    fn from_str(s: &str) -> Result<Replacement, String> {
        let found = Replacement::ALL.iter().find(|(name, _)| *name == s);
        found.map(|(_, r)| *r).ok_or_else(|| {
            let names = Replacement::ALL.map(|(name, _)| name);
            format!("there are the policies {}", names.join(", "))
        })
    }
}

/// What a starter says. `None` leaves a limit as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes; negative for no limit. So are `memory_and_swap` and `reservation`.
    pub memory: Option<i64>,
    pub memory_and_swap: Option<i64>,
    pub reservation: Option<i64>,
    /// Bytes of frames that it may have: the memory, with swap where the host has some; negative
    /// for no limit but the host's.
    pub frames: Option<i64>,
    /// Bytes of frames that may be swapped out besides, compressed, to memory that does not count
    /// for `frames`. Said at the start alone.
    pub swap: Option<i64>,
    /// How it is chosen what goes there.
    pub replacement: Option<Replacement>,
    /// Bytes of frames that each process may have here. Said at the start alone.
    pub process: Option<i64>,
    /// Microseconds of CPU time in each period; not positive for no limit.
    pub quota: Option<i64>,
    pub period: Option<u64>,
    /// As cpu.weight (1..10000).
    pub weight: Option<u64>,
    /// Lists of CPUs and of memory nodes.
    pub cpus: Option<String>,
    pub mems: Option<String>,
    /// Tasks; not positive for no limit but the kernel's own.
    pub pids: Option<i64>,
}

impl Limits {
    /// Takes over what `new` says.
    pub fn update(&mut self, new: Limits) {
        fn set<T>(old: &mut Option<T>, new: Option<T>) {
            if new.is_some() {
                *old = new;
            }
        }
        set(&mut self.memory, new.memory);
        set(&mut self.memory_and_swap, new.memory_and_swap);
        set(&mut self.reservation, new.reservation);
        set(&mut self.frames, new.frames);
        set(&mut self.replacement, new.replacement);
        set(&mut self.process, new.process);
        set(&mut self.quota, new.quota);
        set(&mut self.period, new.period);
        set(&mut self.weight, new.weight);
        set(&mut self.cpus, new.cpus);
        set(&mut self.mems, new.mems);
        set(&mut self.pids, new.pids);
    }

    /// The limit of memory, bytes.
    #[must_use]
    pub fn memory_max(&self) -> Option<u64> {
        self.memory.and_then(|n| u64::try_from(n).ok())
    }

    /// The limit of frames, bytes.
    #[must_use]
    pub fn frames_max(&self) -> Option<u64> {
        self.frames.and_then(|n| u64::try_from(n).ok())
    }

    /// The sandbox's own swap, bytes.
    #[must_use]
    pub fn swap_max(&self) -> Option<u64> {
        self.swap.and_then(|n| u64::try_from(n).ok())
    }

    /// The limit of each process's frames, bytes.
    #[must_use]
    pub fn process_max(&self) -> Option<u64> {
        self.process.and_then(|n| u64::try_from(n).ok())
    }

    /// How many CPUs there are, of the `all` that the sandbox began with. They are numbered from 0,
    /// whichever of the host's they are; so is the one memory node.
    #[must_use]
    pub fn cpus(&self, all: u32) -> u32 {
        let listed = self.cpus.as_deref().map_or(0, count);
        if listed == 0 { all } else { all.min(listed) }
    }

    /// The limit of tasks, 0 for none.
    #[must_use]
    pub fn task_limit(&self) -> u32 {
        let n = self.pids.unwrap_or(0);
        u32::try_from(n.max(0)).unwrap_or(u32::MAX)
    }
}

/// What a process may have of its container's memory from now on. What is `None` stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundsSpec {
    /// Its number in the container.
    pub pid: i32,
    /// Bytes that may be here, not swapped out; `u64::MAX` for no limit.
    pub limit: Option<u64>,
    /// Bytes that others cannot have swapped out.
    pub reserve: Option<u64>,
}

/// What changes of a container's memory. What is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryChange {
    pub process: Option<BoundsSpec>,
    pub replacement: Option<Replacement>,
}

/// How many numbers a list has, as `0-3,8`; 0 where it is none.
fn count(list: &str) -> u32 {
    let of = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let last = (last < CPUS_MAX).then_some(last)?;
        Some(last.checked_sub(first)? + 1)
    };
    let counts = list.trim().split(',').map(|r| of(r.trim()));
    counts.sum::<Option<u32>>().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        let counts = [
            "0",
            "0-3",
            "1,3",
            "0-1, 4-7",
            "",
            "x",
            "3-1",
            "0-4294967295",
        ]
        .map(count);
        assert_eq!(counts, [1, 4, 2, 6, 0, 0, 0, 0]);
    }
}
