//! Requests that poll a file (`IOCB_CMD_POLL`): they end with the first event that they ask for.
//!
//! A request listens on its file's wait queue, where it only notes what it was told; it looks
//! closer when the thread that told it holds no lock ([`wait::later`]).

use super::{AioContext, IoEvent};
use abi::Result;
use abi::errno::{EAGAIN, EINVAL};
use ipc::EventFd;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::File;
use vfs::ucounts::{Charge, Kind, Ucounts};
use wait::later::{self, Later};
use wait::{Events, Listener, Ticket};

/// What a request takes of the kernel's memory, bytes.
const REQUEST: u64 = 512;

/// Where a request's end is told, beside the ring.
#[derive(Clone, Default)]
pub struct ResultFd(Option<Arc<File>>);

impl ResultFd {
    /// An eventfd (`IOCB_FLAG_RESFD`); `EINVAL` for another file.
    pub fn by(f: Arc<File>) -> Result<ResultFd> {
        f.ops::<EventFd>().ok_or(EINVAL)?;
        Ok(ResultFd(Some(f)))
    }
    pub fn tell(&self) {
        if let Some(e) = self.0.as_ref().and_then(|f| f.ops::<EventFd>()) {
            e.signal(1);
        }
    }
}

/// What is asked of a polling request.
pub struct PollArgs {
    pub file: Arc<File>,
    pub events: Events,
    /// Its event, without the result.
    pub event: IoEvent,
    pub told: ResultFd,
}

/// A request that waits.
pub struct PollRequest {
    me: Weak<PollRequest>,
    context: Weak<AioContext>,
    asked: PollArgs,
    /// Of those at the same place.
    number: u64,
    ticket: Mutex<Option<Ticket>>,
    /// What came and was not looked at. Where it is not empty, somebody is to look.
    came: AtomicU32,
    /// Set once, by who ends it.
    ended: AtomicBool,
    _charge: Charge,
}

impl PollRequest {
    /// Begins a request: it ends at once, or waits. `EINVAL` where it would wait for a file that
    /// never changes. The context's room for it was taken.
    pub fn begin(c: &Arc<AioContext>, user: &Arc<Ucounts>, asked: PollArgs) -> Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(queue) = asked.file.ops.wait_queue() else {
            let now = asked.file.poll(asked.events) & asked.events;
            if now.is_empty() {
                return Err(EINVAL);
            }
            c.complete(&IoEvent {
                result: now.bits().into(),
                ..asked.event
            });
            asked.told.tell();
            return Ok(());
        };
        let charge = user.charge(Kind::Kmem, REQUEST, u64::MAX).ok_or(EAGAIN)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let r = Arc::new_cyclic(|me| PollRequest {
            me: me.clone(),
            context: Arc::downgrade(c),
            number,
            ticket: Mutex::new(None),
            came: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            _charge: charge,
            asked: PollArgs {
                file: asked.file.clone(),
                ..asked
            },
        });
        let key = (r.asked.event.request, number);
        c.polls.lock().insert(key, r.clone());
        let ticket = queue.register(r.clone(), r.asked.events);
        *r.ticket.lock() = Some(ticket);
        let now = r.asked.file.poll(r.asked.events) & r.asked.events;
        if !now.is_empty() {
            r.finish(c, now.bits().into());
        } else if r.ended.load(Ordering::SeqCst) {
            // It ended before it had its ticket.
            r.leave_queue();
        } else if c.is_dead() {
            // Whoever ended the context may have missed it.
            r.finish(c, 0);
        }
        Ok(())
    }

    fn leave_queue(&self) {
        let ticket = self.ticket.lock().take();
        if let Some((q, t)) = self.asked.file.ops.wait_queue().zip(ticket) {
            q.unregister(t);
        }
    }

    /// Ends it with a result; false where it had ended. The caller holds no lock.
    pub fn finish(&self, c: &AioContext, result: i64) -> bool {
        if self.ended.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.leave_queue();
        let key = (self.asked.event.request, self.number);
        let own = c.polls.lock().remove(&key);
        c.complete(&IoEvent {
            result,
            ..self.asked.event
        });
        self.asked.told.tell();
        drop(own);
        true
    }
}

impl Listener for PollRequest {
    fn notify(&self, events: Events) {
        if events.contains(Events::OPENED) || self.ended.load(Ordering::SeqCst) {
            return;
        }
        if self.came.fetch_or(events.bits(), Ordering::SeqCst) == 0
            && let Some(me) = self.me.upgrade()
        {
            later::put(me);
        }
    }
}

impl Later for PollRequest {
    fn run(&self) {
        let came = Events::from_bits_retain(self.came.swap(0, Ordering::SeqCst));
        let Some(c) = self.context.upgrade() else {
            return;
        };
        // Linux's event has all that the file told (`aio_poll_wake`), asked for or not.
        let asked = self.asked.events;
        let now = self.asked.file.poll(asked | came) & (asked | came);
        if now.intersects(asked) {
            self.finish(&c, now.bits().into());
        }
    }
    fn elsewhere(self: Arc<Self>) {
        // Where it is lost, what comes next tries again.
        if !later::by_service(self.clone()) {
            self.came.store(0, Ordering::SeqCst);
        }
    }
}
