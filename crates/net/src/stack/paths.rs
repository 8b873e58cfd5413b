//! Paths of connections: they are asked for anew when they may have changed, and the neighbour is
//! confirmed while bytes arrive, so that it needs no probes.

use super::{Stack, options};
use crate::interface::{LO_INDEX, stays};
use crate::options::Common;
use abi::Result;
use netstack::ip::{NoRoute, Pair, Path};
use netstack::tcp::Connection;
use netstack::time::Instant;
use std::net::IpAddr;
use std::time::Duration;

/// How often a neighbour is confirmed, at most.
const OFTEN: Duration = Duration::from_secs(5);

/// What was known when a connection's neighbour was confirmed last.
#[derive(Default)]
pub(super) struct Proof {
    acked: u64,
    at: Instant,
}

impl Stack {
    /// The way to an address for a socket, which may be one device's.
    pub fn path_for(&self, common: &Common, to: IpAddr, from: IpAddr) -> Result<Path> {
        let device = u32::try_from(common.device()).ok().filter(|d| *d != 0);
        let path = self.ip.path(to, Some(from), device);
        path.map_err(NoRoute::errno)
    }

    /// The way of a connection, as it is now. What began inside stays there: nobody has asked
    /// whether it may leave.
    pub fn path_again(&self, common: &Common, pair: Pair, old: &Path) -> Result<Path> {
        let (to, from) = (pair.remote.ip(), pair.local.ip());
        if !stays(old) {
            return self.path_for(common, to, from);
        }
        let path = self.ip.path(to, Some(from), Some(LO_INDEX as u32));
        path.map_err(NoRoute::errno)
    }

    /// Whether a path that was given out may still be used.
    pub fn holds(&self, path: &Path, now: impl FnOnce() -> Instant) -> bool {
        path.generation == self.ip.generation() && path.expires.is_none_or(|e| now() < e)
    }

    /// Looks after the path of a connection that has just been worked on.
    pub(super) fn look_after(
        &self,
        common: &Common,
        pair: Pair,
        path: &mut Path,
        proof: &mut Proof,
        engine: &mut Connection,
        now: Instant,
    ) {
        if !self.holds(path, || now) {
            match self.path_again(common, pair, path) {
                Ok(new) => {
                    *path = new;
                    engine.path_mtu(options::mss(path, pair));
                }
                // There is none now: another change is waited for.
                Err(_) => (path.generation, path.expires) = (self.ip.generation(), None),
            }
        }
        let acked = engine.acked();
        if acked != proof.acked && now.since(proof.at) >= OFTEN {
            *proof = Proof { acked, at: now };
            self.ip.confirm(now, path);
        }
    }
}
