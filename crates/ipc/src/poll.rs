//! `poll(2)` and `select(2)`: waiting for many files at once.

use abi::Result;
use abi::errno::ERESTARTNOHAND;
use std::sync::Arc;
use std::time::Instant;
use vfs::File;
use wait::{Blocker, Events, Listener};

/// What to watch; `None` where the descriptor was not open (POLLNVAL) or is negative (nothing).
pub struct PollItem {
    pub file: Option<Arc<File>>,
    pub events: Events,
    /// What holds now: filled in.
    pub ready: Events,
}

/// How long to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Only look.
    No,
    Until(Instant),
    Forever,
}

fn scan(items: &mut [PollItem], always: Events) -> usize {
    let mut n = 0;
    for i in items {
        if let Some(f) = &i.file {
            i.ready = f.poll(i.events) & (i.events | always);
        }
        n += usize::from(!i.ready.is_empty());
    }
    n
}

/// Waits until one of the items is ready; gives their number, 0 when the time is over. Items without a file
/// keep the `ready` that they came with. `ERESTARTNOHAND` when a signal interrupts.
pub fn poll(b: &dyn Blocker, items: &mut [PollItem], wait: Wait) -> Result<usize> {
    wait_for(b, items, wait, Events::ALWAYS)
}

/// The same for select(2), which ends only for what its sets ask: `events` must name ERR and HUP where they
/// count.
pub fn select(b: &dyn Blocker, items: &mut [PollItem], wait: Wait) -> Result<usize> {
    wait_for(b, items, wait, Events::empty())
}

fn wait_for(b: &dyn Blocker, items: &mut [PollItem], wait: Wait, always: Events) -> Result<usize> {
    let n = scan(items, always);
    let deadline = match wait {
        Wait::No => return Ok(n),
        _ if n > 0 => return Ok(n),
        Wait::Until(d) => Some(d),
        Wait::Forever => None,
    };
    let parker = b.parker();
    let mut tickets = Vec::new();
    for (at, i) in items.iter().enumerate() {
        if let Some(q) = i.file.as_ref().and_then(|f| f.ops.wait_queue()) {
            tickets.push((
                at,
                q.register(parker.clone() as Arc<dyn Listener>, i.events),
            ));
        }
    }
    let r = loop {
        let n = scan(items, always);
        if n > 0 {
            break Ok(n);
        }
        if b.interrupted() {
            break Err(ERESTARTNOHAND);
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            break Ok(0);
        }
        parker.park(deadline);
    };
    for (at, t) in tickets {
        if let Some(q) = items[at].file.as_ref().and_then(|f| f.ops.wait_queue()) {
            q.unregister(t);
        }
    }
    r
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
            ready: Events::empty(),
        };
        let mut items = [item(r1), item(r2)];
        let me = Me::new();
        assert_eq!(poll(&me, &mut items, Wait::No), Ok(0));
        let soon = Instant::now() + Duration::from_millis(3);
        assert_eq!(poll(&me, &mut items, Wait::Until(soon)), Ok(0));
        let t = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(3));
            write(&w2f, b"x").unwrap();
            w2f
        });
        assert_eq!(poll(&me, &mut items, Wait::Forever), Ok(1));
        assert_eq!(items[1].ready, Events::IN);
        drop(t.join().unwrap());
        assert_eq!(poll(&me, &mut items, Wait::Forever), Ok(1));
        assert_eq!(items[1].ready, Events::IN | Events::HUP);
    }
}
