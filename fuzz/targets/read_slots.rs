//! Read slots and deferred changes of an epoll, in memory that the application forges between any
//! two steps.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use platform::lanes::read_slots::{Area, InSet};
use platform::{Lanes, Platform, notify::Notify};
use std::sync::{Arc, OnceLock};
use wait::read_slots::{ReadSlots, Remainder};

#[derive(Arbitrary, Debug)]
enum Step {
    Forge(u32, Vec<u8>),
    Fill(u8, Vec<u8>, u32, Option<bool>),
    EndCounts,
    Revoke(u8, Option<u32>),
    Defer(Option<i32>),
    State(i32, bool),
    Want(i32),
    Take,
}

/// One for all runs, which revoke no fill that is not theirs.
fn area() -> Option<&'static Arc<Area>> {
    static AREA: OnceLock<Option<Arc<Area>>> = OnceLock::new();
    AREA.get_or_init(|| {
        let platform = Notify::new(Lanes::All).expect("a platform");
        let space = platform.new_address_space().expect("an address space");
        let area = space.lanes().and_then(|l| l.read_slots());
        std::mem::forget((platform, space));
        area
    })
    .as_ref()
}

libfuzzer_sys::fuzz_target!(|steps: Vec<Step>| {
    // (None on a CPU without BMI2.)
    let Some(a) = area() else { return };
    let mut live = Vec::new();
    for s in steps {
        match s {
            Step::Forge(at, bytes) => a.forge(u64::from(at), &bytes),
            Step::Fill(slot, bytes, more, ask) => {
                let then = match ask {
                    Some(true) => Remainder::Ask,
                    Some(false) => Remainder::Empty,
                    None => Remainder::More(more),
                };
                // Of all lengths that have room, and more.
                let many = vec![7; more as usize % 80_000 * usize::from(bytes.len() % 3 == 0)];
                let n = a.fill(u32::from(slot), [&bytes, &many], then);
                live.extend(n.map(|n| (u32::from(slot), n)));
            }
            Step::Revoke(slot, number) => {
                let slot = u32::from(slot);
                let own = live.iter().position(|(s, _)| *s == slot);
                match (number, own) {
                    (Some(n), _) if live.contains(&(slot, n)) => {}
                    (Some(n), _) => assert_eq!(ReadSlots::revoke(&**a, slot, n), 0),
                    (None, Some(i)) => {
                        let (slot, n) = live.swap_remove(i);
                        let _ = ReadSlots::revoke(&**a, slot, n);
                    }
                    (None, None) => {}
                }
            }
            Step::EndCounts => a.end_counts(),
            Step::Defer(fd) => a.defer_for(fd),
            Step::State(fd, is_in) => a.set_state(fd, if is_in { InSet::Yes } else { InSet::No }),
            Step::Want(fd) => a.want(fd),
            Step::Take => {
                let mut n = 0;
                a.take_changes(|_| n += 1);
                assert!(n <= stub::read_slots::RING_LEN);
            }
        }
    }
    for (slot, n) in live {
        let _ = ReadSlots::revoke(&**a, slot, n);
    }
});
