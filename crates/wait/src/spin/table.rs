//! All numbers of the spin budget. Times were measured on virtual machines of two CPUs (decision
//! 14).

use super::budget::{Kind, Use};
use std::time::Duration;

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

// ---- The uses ----

/// What was waited for and came within this was worth spinning for: two hand-overs are in it, and
/// so is a sleep of 50 us with its wake-up.
const SOON: Duration = us(60);

/// A task that is about to sleep in a call.
pub const SLEEP: Use = Use {
    kind: Kind::Sleep,
    // Two spins in vain: enough to see whether wake-ups come soon.
    begins_with: 100,
    // All of the limit or nothing: a little is spun in vain again and again.
    needs: 50,
    limit: us(50),
    soon: SOON,
    // The least that waking an idle CPU costs.
    soon_saves: 25,
    found_saves: 25,
    // The task could have slept instead.
    deducts: true,
};

/// A thread of the Sentry that has answered a call, or looks for the first in the mailbox.
pub const MAILBOX: Use = Use {
    kind: Kind::Mailbox,
    begins_with: 0,
    // 125 calls that came soon: to begin costs as much as ten calls, as the other thread is woken
    // elsewhere.
    needs: 250,
    // A call that comes another way costs it little, but to wake an idle CPU may cost ten times as
    // much.
    limit: us(100),
    soon: SOON,
    // A part of the hand-over: a trapped call that came soon might have come by the mailbox.
    soon_saves: 2,
    // A trapped call costs 4 to 6 us, one from the mailbox a third.
    found_saves: 5,
    // The application runs meanwhile.
    deducts: false,
};

/// A call that wakes another task: the wake-up waits for the answer. Not in microseconds: a task
/// needs eight calls in a row that it followed soon by the next.
pub const DEFERRED: Use = Use {
    kind: Kind::Deferred,
    begins_with: 0,
    needs: 8,
    limit: Duration::ZERO,
    // No more than an idle CPU takes to wake up.
    soon: us(30),
    soon_saves: 1,
    found_saves: 0,
    deducts: false,
};

/// What a short sleep saves whose waker ran on the sleeper's CPU, in microseconds: one try in fifty
/// sleeps, since a host that has an idle CPU by now may move one of both.
pub const SAME_CPU_SAVES: i32 = 1;
/// The most that a budget holds, and owes, in microseconds: what it takes to notice that a load has
/// changed.
pub const BUDGET_MOST: i32 = 1000;
/// The first wait for a thread that is woken on another CPU: the longest that waking one took.
pub const FIRST_LIMIT: Duration = us(200);
/// An answer that comes when nobody looks for it any more costs this: a park and a wake-up.
pub const LATE_ANSWER_COSTS: Duration = us(40);

// ---- While a thread spins ----

/// Looks between two readings of the clock: about a microsecond.
pub const LOOKS: u32 = 32;
/// Looks aside for calls that come another way are this far apart: each is a call of the host.
pub const LOOK_ASIDE: Duration = us(4);
/// A gap like this between two looks says that something else wanted the CPU: no interrupt takes as
/// long.
pub const PREEMPTED: Duration = us(200);
/// Then nobody spins for this long at first: half a time slice of the host's.
pub const BACK_OFF: Duration = ms(2);
/// Twice as long each time that it happens again soon, up to this: 0.04 % of a CPU is spun in vain
/// then.
pub const BACK_OFF_MOST: Duration = ms(500);
/// It is not soon after this many times the last back-off.
pub const BACK_OFF_FORGET: u64 = 16;
/// A CPU that has been idle for this long is likely to stay so: a time slice of the host's.
pub const IDLE: Duration = ms(4);
/// A budget's turns are added to the totals after this many that were won: the shared line is
/// touched seldom.
pub const TURNS_KEPT: u32 = 256;

// ---- Call sites ----

/// A call site is patched at its so many-th call: patching costs as much as seven calls, and more
/// in what is forked; most programs end before it pays.
pub const HOT_SITE_CALLS: u8 = 128;

// ---- Comparisons: spinning where no CPU is idle ----

/// Calls of one thread that are counted at once: the shared line is touched seldom.
pub const CALLS_AT_ONCE: u32 = 64;
/// The most calls that are believed to have been answered beside the Sentry meanwhile: any number
/// may stand in the application's memory.
pub const BESIDE_MOST: u32 = 1000 * CALLS_AT_ONCE;
/// A comparison begins where a CPU's tasks make so many calls in a millisecond: a call that traps
/// takes 4 to 6 us.
pub const COMPARE_CALLS_PER_MS: u64 = 30;
/// So many hundredths of what is done otherwise must be done by spinning: less is noise.
pub const COMPARE_BETTER: u64 = 115;
/// More threads may spin than CPUs are idle: one for each so many CPUs.
pub const COMPARE_CPUS_EACH: u32 = 2;
/// A slot in which nothing is tried.
pub const COMPARE_SLOT: Duration = ms(20);
/// A slot that takes so many times its length has few calls in it.
pub const COMPARE_LATE: u64 = 4;
/// So many slots in a row with tasks that compute end what was found better: one may be chance.
pub const COMPARE_UNSUITED: u32 = 3;
/// What was found better holds for this long at first, and twice as long each time, up to the
/// second: six times what the next comparison takes.
pub const COMPARE_HOLDS: [Duration; 2] = [ms(500), ms(4000)];
/// What was not better is tried again after this, and twice as long each time, up to the second. As
/// long as the first must others on the host have left the CPUs alone.
pub const COMPARE_AGAIN: [Duration; 2] = [ms(1000), ms(16_000)];

/// A slot of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Threads may spin although no CPU is idle.
    pub spins: bool,
    pub lasts: Duration,
    /// What is done in it is compared. It is not while affinities and call sites are still being
    /// changed.
    pub counts: bool,
}

const fn part(spins: bool, lasts: Duration, counts: bool) -> Part {
    Part {
        spins,
        lasts,
        counts,
    }
}

/// A comparison: both ways for 20 ms each, in the order A B A, behind pauses for what changes with
/// them. In the first slot call sites are found and patched; a later comparison begins behind it.
pub const COMPARE_PARTS: [Part; 6] = [
    part(true, ms(30), false),
    part(true, ms(10), true),
    part(false, ms(5), false),
    part(false, ms(20), true),
    part(true, ms(5), false),
    part(true, ms(10), true),
];

const _: () = assert!(SLEEP.needs as u128 == SLEEP.limit.as_micros());
const _: () = assert!(SLEEP.begins_with >= SLEEP.needs && MAILBOX.needs <= BUDGET_MOST);
