//! What comes from outside goes to the sockets inside.

use crate::ns::NetNamespace;
use crate::tcp;
use std::sync::Arc;

impl NetNamespace {
    /// Turns what the host's sockets and the broker tell into notifications; for ever, on a thread
    /// of its own. Returns at once where there are none ([`NetNamespace::has_outside`]).
    pub fn serve_outside(self: &Arc<Self>) {
        if let Some(h) = &self.host {
            h.serve();
        }
        if let Some(u) = &self.way_out {
            u.serve(|port, peer, fd| tcp::accept_from_outside(self, port, peer, fd));
        }
    }
}
