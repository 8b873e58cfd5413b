//! What containerd is told of tasks: a queue, and one thread that forwards it in order.
//!
//! Publishing never waits. The queue is bounded: while containerd hangs, what it can learn by
//! asking is given up before the ends of processes are.

use containerd_shim_protos::events::task::{
    TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskOOM, TaskPaused,
    TaskResumed, TaskStart,
};
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{MessageField, MessageFull};
use containerd_shim_protos::shim::event::Envelope;
use containerd_shim_protos::shim::events::ForwardRequest;
use containerd_shim_protos::{Client, EventsClient, topics, ttrpc};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How often, and how long apart, containerd is tried before an event is given up: it may be
/// restarting.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(5);
/// A connection that is not used is closed: the client looks at it a hundred times a second.
const IDLE: Duration = Duration::from_millis(200);

/// Events that are kept while containerd does not take them; of more, the oldest that says least is
/// given up.
const QUEUE_MAX: usize = 2048;
/// How long the end of the shim may be held up by them.
const FLUSH: Duration = Duration::from_secs(10);

/// An event, and where it is published.
pub trait Event: MessageFull {
    const TOPIC: &'static str;
}

macro_rules! events {
    ($($kind:ty: $topic:ident;)*) => {$(
        impl Event for $kind {
            const TOPIC: &'static str = topics::$topic;
        }
    )*};
}

events! {
    TaskCreate: TASK_CREATE_EVENT_TOPIC;
    TaskStart: TASK_START_EVENT_TOPIC;
    TaskExit: TASK_EXIT_EVENT_TOPIC;
    TaskDelete: TASK_DELETE_EVENT_TOPIC;
    TaskExecAdded: TASK_EXEC_ADDED_EVENT_TOPIC;
    TaskExecStarted: TASK_EXEC_STARTED_EVENT_TOPIC;
    TaskOOM: TASK_OOM_EVENT_TOPIC;
    TaskPaused: TASK_PAUSED_EVENT_TOPIC;
    TaskResumed: TASK_RESUMED_EVENT_TOPIC;
}

/// What is to be forwarded.
#[derive(Default)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    items: VecDeque<Envelope>,
    /// One was taken out, and is being forwarded.
    busy: bool,
    /// Given up since the last warning.
    lost: u64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, e: Envelope) {
        let mut w = self.lock();
        if w.items.len() >= QUEUE_MAX {
            let tells_an_end =
                |e: &Envelope| [TaskExit::TOPIC, TaskDelete::TOPIC].contains(&&*e.topic);
            let least = w.items.iter().position(|e| !tells_an_end(e)).unwrap_or(0);
            w.items.remove(least);
            w.lost += 1;
        }
        w.items.push_back(e);
        drop(w);
        self.changed.notify_all();
    }

    /// The next; `None` after a while without any.
    fn next(&self, patience: Option<Duration>) -> Option<Envelope> {
        let mut w = self.lock();
        w.busy = false;
        self.changed.notify_all();
        let none = |w: &mut Waiting| w.items.is_empty();
        w = match patience {
            Some(p) => {
                let waited = self.changed.wait_timeout_while(w, p, none);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.changed.wait_while(w, none);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        let lost = std::mem::take(&mut w.lost);
        let e = w.items.pop_front();
        w.busy = e.is_some();
        drop(w);
        if lost > 0 {
            crate::log::warning(&format!("containerd does not take events: {lost} are lost"));
        }
        e
    }

    /// Waits until all are out, for so long at most.
    fn flush(&self, limit: Duration) {
        let some = |w: &mut Waiting| w.busy || !w.items.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), limit, some);
        let left = waited.unwrap_or_else(PoisonError::into_inner).0.items.len();
        if left > 0 {
            crate::log::warning(&format!("containerd does not take events: {left} are lost"));
        }
    }
}

/// The queue's entrance.
#[derive(Clone)]
pub struct Publisher {
    queue: Arc<Queue>,
    namespace: String,
}

/// A message with its name, as containerd packs them.
pub fn pack<M: MessageFull>(m: &M) -> Any {
    Any {
        type_url: M::descriptor().full_name().to_owned(),
        // Messages in memory can be written.
        value: m.write_to_bytes().unwrap_or_default(),
        ..Any::default()
    }
}

impl Publisher {
    /// `address` is the socket of containerd's ttrpc services.
    pub fn start(address: &str, namespace: &str) -> std::io::Result<Publisher> {
        let p = Publisher {
            queue: Arc::default(),
            namespace: namespace.into(),
        };
        let address = format!("unix://{}", address.trim_start_matches("unix://"));
        let queue = Arc::clone(&p.queue);
        std::thread::Builder::new()
            .name("events".into())
            .spawn(move || run(&address, &queue))?;
        Ok(p)
    }

    pub fn publish<E: Event>(&self, event: &E) {
        let envelope = Envelope {
            timestamp: MessageField::some(SystemTime::now().into()),
            namespace: self.namespace.clone(),
            topic: E::TOPIC.into(),
            event: MessageField::some(pack(event)),
            ..Envelope::default()
        };
        self.queue.add(envelope);
    }

    /// Waits until what was published has gone out, or was given up; within reason.
    pub fn flush(&self) {
        self.queue.flush(FLUSH);
    }
}

fn run(address: &str, queue: &Queue) {
    let mut client = None;
    let mut patience = Some(IDLE);
    loop {
        match queue.next(patience) {
            Some(e) => {
                forward(&mut client, address, e);
                patience = Some(IDLE);
            }
            None => (client, patience) = (None, None),
        }
    }
}

fn forward(client: &mut Option<EventsClient>, address: &str, envelope: Envelope) {
    let request = ForwardRequest {
        envelope: MessageField::some(envelope),
        ..ForwardRequest::default()
    };
    for n in 0..TRIES {
        if n > 0 {
            std::thread::sleep(PAUSE);
        }
        let c = match client.take() {
            Some(c) => Ok(c),
            None => Client::connect(address).map(EventsClient::new),
        };
        let sent = c.and_then(|c| {
            let sent = c.forward(ttrpc::context::with_duration(ANSWER), &request);
            // An answer, whichever, shows that the connection is good.
            if matches!(sent, Ok(_) | Err(ttrpc::Error::RpcStatus(_))) {
                *client = Some(c);
            }
            sent
        });
        match sent {
            Ok(_) => return,
            Err(ttrpc::Error::RpcStatus(s)) if s.code() != ttrpc::Code::DEADLINE_EXCEEDED => {
                crate::log::warning(&format!("containerd refused an event: {}", s.message()));
                return;
            }
            Err(e) if n + 1 == TRIES => crate::log::warning(&format!("an event is lost: {e}")),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
impl Publisher {
    /// One that keeps all.
    pub fn kept() -> Publisher {
        Publisher {
            queue: Arc::default(),
            namespace: "test".into(),
        }
    }

    /// The topics of what was published, and forgets them.
    pub fn topics(&self) -> Vec<String> {
        let items = std::mem::take(&mut self.queue.lock().items);
        items.into_iter().map(|e| e.topic).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_kept_longest() {
        let p = Publisher::kept();
        p.publish(&TaskExit::default());
        for _ in 0..QUEUE_MAX * 2 {
            p.publish(&TaskOOM::default());
        }
        p.publish(&TaskDelete::default());
        assert_eq!(p.queue.lock().lost, QUEUE_MAX as u64 + 2);
        let topics = p.topics();
        assert_eq!(topics.len(), QUEUE_MAX);
        assert_eq!(topics[0], TaskExit::TOPIC);
        assert_eq!(topics[QUEUE_MAX - 1], TaskDelete::TOPIC);
        // Of ends alone, too, there are not more.
        for _ in 0..QUEUE_MAX + 5 {
            p.publish(&TaskExit::default());
        }
        assert_eq!(p.topics().len(), QUEUE_MAX);
    }

    #[test]
    fn a_flush_ends() {
        let p = Publisher::kept();
        p.queue.flush(Duration::from_secs(100));
        p.publish(&TaskExit::default());
        let began = std::time::Instant::now();
        p.queue.flush(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50));
        // What is being forwarded is waited for, too.
        assert!(p.queue.next(None).is_some());
        let other = p.clone();
        let t = std::thread::spawn(move || other.queue.flush(Duration::from_secs(100)));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!t.is_finished());
        assert!(p.queue.next(Some(Duration::ZERO)).is_none());
        t.join().unwrap();
    }
}
