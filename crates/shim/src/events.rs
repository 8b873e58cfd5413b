//! What containerd is told of tasks: a queue, and one thread that forwards it in order.

use containerd_shim_protos::events::task::{
    TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskOOM, TaskPaused,
    TaskResumed, TaskStart,
};
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{MessageField, MessageFull};
use containerd_shim_protos::shim::event::Envelope;
use containerd_shim_protos::shim::events::ForwardRequest;
use containerd_shim_protos::{Client, EventsClient, topics, ttrpc};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

/// How often, and how long apart, containerd is tried before an event is given up: it may be restarting.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(5);
/// A connection that is not used is closed: the client looks at it a hundred times a second.
const IDLE: Duration = Duration::from_millis(200);

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

enum Item {
    Event(Box<Envelope>),
    Stop(Sender<()>),
}

/// The queue's entrance.
#[derive(Clone)]
pub struct Publisher {
    queue: Sender<Item>,
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
        let (queue, items) = channel();
        let address = format!("unix://{}", address.trim_start_matches("unix://"));
        std::thread::Builder::new()
            .name("events".into())
            .spawn(move || run(&address, &items))?;
        Ok(Publisher {
            queue,
            namespace: namespace.into(),
        })
    }

    pub fn publish<E: Event>(&self, event: &E) {
        let envelope = Envelope {
            timestamp: MessageField::some(SystemTime::now().into()),
            namespace: self.namespace.clone(),
            topic: E::TOPIC.into(),
            event: MessageField::some(pack(event)),
            ..Envelope::default()
        };
        // The thread ends only with the process.
        let _ = self.queue.send(Item::Event(Box::new(envelope)));
    }

    /// Waits until what was published has gone out, or was given up.
    pub fn flush(&self) {
        let (told, done) = channel();
        if self.queue.send(Item::Stop(told)).is_ok() {
            let _ = done.recv_timeout(PAUSE * TRIES + ANSWER);
        }
    }
}

fn run(address: &str, items: &Receiver<Item>) {
    let mut client = None;
    loop {
        let item = match items.recv_timeout(IDLE) {
            Ok(i) => i,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                client = None;
                match items.recv() {
                    Ok(i) => i,
                    Err(_) => return,
                }
            }
        };
        match item {
            Item::Event(e) => forward(&mut client, address, *e),
            Item::Stop(told) => drop(told),
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
