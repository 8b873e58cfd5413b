//! `containerd-shim-cloister-v1`: containerd's containers, run with Cloister.
//!
//! ```text
//! containerd ── start ──► containerd-shim-cloister-v1 serve    one for each container or pod; ttrpc
//!     ▲                     │  └─ helper    one for each order that starts a process; short-lived
//!     └────── events ───────┘        └─ monitor    the container's process on the host (crate `oci`); it
//!                                        ├─ Sentry   becomes the shim's child when the helper is gone
//!                                        └─ Gofer
//! ```
//!
//! The containers of a pod share the shim and the sandbox: the monitor of each but the first has a
//! Gofer only, and the first one's Sentry (crate `oci` reads the annotations that say so).
//!
//! The shim is of the version 2 of containerd's runtime interface (`core/runtime/v2/README.md`). It
//! holds no byte of the program's streams, except of terminals; of a FIFO that is standard input it
//! hands on the open file. It knows what `oci` knows: the state of a container is `oci`'s, below
//! `/run/cloister/containerd/NAMESPACE`, and `cloister --root` shows it.
//!
//! # Invariants
//!
//! - Every monitor is the shim's child, and is waited for once, by the reaper: exit statuses are
//!   exact.
//! - If the shim is killed, `delete`, which containerd then runs, finds the container by the
//!   settings kept in the bundle, and ends all of it.
#![forbid(unsafe_code)]

mod args;
mod bootstrap;
mod container;
mod events;
mod helper;
mod io;
mod log;
mod metrics;
mod mounts;
mod oom;
mod paused;
mod process;
mod reaper;
mod service;
mod settings;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = args::parse(std::env::args().skip(1)).and_then(|f| {
        if f.version {
            println!("{}:\n  Version:  {}", args::NAME, env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        // (Run as /proc/self/exe, it would be called that.)
        let _ = rustix::thread::set_name(c"containerd-shim");
        match f.action.as_str() {
            "start" => bootstrap::start(&f),
            "delete" => bootstrap::delete(&f),
            "serve" => bootstrap::serve(&f),
            "helper" => helper::run(&f.socket),
            "" => Err("containerd runs this: see the README on how to set it up".into()),
            a => Err(format!("{a:?} is no action: it is start or delete")),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "{}: {e}", args::NAME);
            ExitCode::FAILURE
        }
    }
}
