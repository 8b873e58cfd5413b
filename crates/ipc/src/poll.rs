//! `poll(2)` and `select(2)`: waiting for many files at once.

use abi::Result;
use abi::errno::{EAGAIN, ERESTARTNOHAND, ERESTARTSYS, ETIMEDOUT};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;
use vfs::File;
use wait::{Blocker, Events, WaitQueue, retry_until};

/// What to watch; `None` where the descriptor was not open (POLLNVAL) or is negative (nothing).
pub struct PollItem {
    pub file: Option<Arc<File>>,
    pub events: Events,
    /// What holds now: filled in.
    pub ready: Cell<Events>,
}

impl PollItem {
    /// The queue that tells of it, and of what.
    fn watched(&self) -> Option<(&WaitQueue, Events)> {
        let queue = self.file.as_ref()?.ops.wait_queue()?;
        Some((queue, self.events))
    }
}

/// How long to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Only look.
    No,
    Until(Instant),
    Forever,
}

/// How many are ready; `EAGAIN` where none is.
fn scan(items: &[PollItem], always: Events) -> Result<usize> {
    let mut n = 0;
    for i in items {
        if let Some(f) = &i.file {
            i.ready.set(f.poll(i.events) & (i.events | always));
        }
        n += usize::from(!i.ready.get().is_empty());
    }
    if n > 0 { Ok(n) } else { Err(EAGAIN) }
}

/// Waits until one of the items is ready; gives their number, 0 when the time is over. Items
/// without a file keep the `ready` that they came with. `ERESTARTNOHAND` when a signal interrupts.
pub fn poll(b: &dyn Blocker, items: &[PollItem], wait: Wait) -> Result<usize> {
    wait_for(b, items, wait, Events::ALWAYS)
}

/// The same for select(2), which ends only for what its sets ask: `events` must name ERR and HUP
/// where they count.
pub fn select(b: &dyn Blocker, items: &[PollItem], wait: Wait) -> Result<usize> {
    wait_for(b, items, wait, Events::empty())
}

fn wait_for(b: &dyn Blocker, items: &[PollItem], wait: Wait, always: Events) -> Result<usize> {
    let r = match (scan(items, always), wait) {
        (Err(EAGAIN), Wait::Until(d)) => watch(b, items, Some(d), always),
        (Err(EAGAIN), Wait::Forever) => watch(b, items, None, always),
        (r, _) => r,
    };
    match r {
        Err(EAGAIN | ETIMEDOUT) => Ok(0),
        Err(ERESTARTSYS) => Err(ERESTARTNOHAND),
        r => r,
    }
}

fn watch(
    b: &dyn Blocker,
    items: &[PollItem],
    deadline: Option<Instant>,
    always: Events,
) -> Result<usize> {
    let queues: SmallVec<[(&WaitQueue, Events); 8]> =
        items.iter().filter_map(PollItem::watched).collect();
    retry_until(b, &queues, deadline, || scan(items, always))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::new_pipe;
    use crate::testing::*;
    use std::time::Duration;

    #[test]
    fn wakes_on_any() {
        let (r1, w1) = new_pipe(&vfs::Credentials::root()).unwrap();
        let (r2, w2) = new_pipe(&vfs::Credentials::root()).unwrap();
        let w2f = file(w2, 1);
        let _w1 = w1;
        let item = |r| PollItem {
            file: Some(file(r, 0)),
            events: Events::IN,
            ready: Cell::default(),
        };
        let items = [item(r1), item(r2)];
        let me = Me::new();
        assert_eq!(poll(&me, &items, Wait::No), Ok(0));
        let soon = Instant::now() + Duration::from_millis(3);
        assert_eq!(poll(&me, &items, Wait::Until(soon)), Ok(0));
        let t = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(3));
            write(&w2f, b"x").unwrap();
            w2f
        });
        assert_eq!(poll(&me, &items, Wait::Forever), Ok(1));
        assert_eq!(items[1].ready.get(), Events::IN);
        drop(t.join().unwrap());
        assert_eq!(poll(&me, &items, Wait::Forever), Ok(1));
        assert_eq!(items[1].ready.get(), Events::IN | Events::HUP);
    }
}
