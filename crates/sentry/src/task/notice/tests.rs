//! In all orders that an x86 CPU may show.

use super::{Flag, enter, kick};
use loom::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
    fence,
};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A sequentially consistent store is a locked instruction, a load is a plain one. (loom takes
/// SeqCst of other than fences for AcqRel.)
impl Flag for AtomicBool {
    fn get(&self) -> bool {
        self.load(Acquire)
    }
    fn set(&self, value: bool) {
        fence(SeqCst);
        self.swap(value, AcqRel);
        fence(SeqCst);
    }
}

/// A task, and application code that runs until it is stopped.
struct Model {
    in_app: AtomicBool,
    attention: AtomicBool,
    signal: AtomicBool,
    /// The host's signal waits, or has stopped it.
    stopped: Mutex<bool>,
    stops: Condvar,
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            in_app: AtomicBool::new(false),
            attention: AtomicBool::new(false),
            signal: AtomicBool::new(false),
            stopped: Mutex::new(false),
            stops: Condvar::new(),
        })
    }
    /// Somebody sends it a signal.
    fn send(&self) {
        self.signal.store(true, Relaxed);
        if kick(&self.in_app, &self.attention) {
            *self.stopped.lock().unwrap() = true;
            self.stops.notify_one();
        }
    }
    /// Until it has seen `signals` of them.
    fn run(&self, signals: usize) {
        let mut seen = 0;
        while seen < signals {
            // The boundary.
            if self.attention.swap(false, AcqRel) && self.signal.swap(false, AcqRel) {
                seen += 1;
                continue;
            }
            if enter(&self.in_app, &self.attention, || self.signal.load(Relaxed)) {
                let mut s = self.stopped.lock().unwrap();
                while !std::mem::take(&mut *s) {
                    s = self.stops.wait(s).unwrap();
                }
            }
            self.in_app.set(false);
        }
    }
}

/// A task that stays in application code for ever otherwise sees what is sent to it, whenever that
/// comes.
#[test]
fn no_kick_is_lost() {
    let mut b = loom::model::Builder::new();
    b.preemption_bound = Some(4);
    b.check(|| {
        let m = Model::new();
        let sender = {
            let m = m.clone();
            thread::spawn(move || m.send())
        };
        m.run(1);
        sender.join().unwrap();
    });
}
